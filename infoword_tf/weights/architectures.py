"""Encoders in config.json of transformers, and as this project configures them.

One table for both directions: by `model_type`, arguments here and keys there.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from infoword_tf import errors
from infoword_tf.config import EncoderConfig

ACTIVATIONS = {
    'gelu': 'gelu_erf',
    'gelu_new': 'gelu_tanh',
    'gelu_pytorch_tanh': 'gelu_tanh',
    'gelu_fast': 'gelu_tanh',
    'relu': 'relu',
}
# RoBERTa's positions begin after the id of this token; the default.
_PAD, _PAD_ID = 'pad_token_id', 1
# Arguments of public encoders that no key sets.
_ONLY = {
    'causal': False, 'pre_norm': False, 'embedding_norm': True,
    'embedding_width': None, 'clamp': None, 'same_length': False, 'untie': True,
    'scale_embeddings': False,
}  # fmt: skip
_BERT_KEYS = {
    'vocab_size': 'vocab_size',
    'layers': 'num_hidden_layers',
    'width': 'hidden_size',
    'heads': 'num_attention_heads',
    'inner_width': 'intermediate_size',
    'max_length': 'max_position_embeddings',
    'segments': 'type_vocab_size',
    'rate': 'hidden_dropout_prob',
    'activation': 'hidden_act',
    'epsilon': 'layer_norm_eps',
}


class Architecture(NamedTuple):
    """One kind of config.json.

    Attributes:
        encoder: name in ENCODERS.
        keys: key in config.json by argument.
        absent: default by argument, where config.json lacks the key.
        fixed: arguments that this kind always has.
        padded: whether positions begin after the id of the token that pads.
        refused: by key, the only values that can be converted; the first is
            the default of transformers.
        layout: of a text, name in text.layout.LAYOUTS.
        classes: activation between the two layers of the head on the whole
            text, the row 'label'.
        activations: names there and here; of two with one meaning the first is
            written.
        name: of such models in transformers, before the task.
        fills: the task of filling masks, after `name`.
        tied: the row whose head has no weights but the embeddings, and which
            every encoder of this kind brings.
        rewrite: a function of config.json and its path that returns it by
            `keys`, where some files have other keys.
        pooling: the key for whether the head on the whole text reads the first
            state ('cls') or the mean of all ('mean'), if there is a choice.
    """

    encoder: str
    keys: Mapping[str, str]
    absent: Mapping[str, Any]
    name: str
    fills: str = 'ForMaskedLM'
    fixed: Mapping[str, Any] = {}
    padded: bool = False
    refused: Mapping[str, tuple[Any, ...]] = {}
    layout: str = 'bert'
    classes: str = 'tanh'
    activations: Mapping[str, str] = ACTIVATIONS
    tied: str | None = None
    rewrite: Callable[[Mapping[str, Any], str], Mapping[str, Any]] | None = None
    pooling: str | None = None


_BERT_ABSENT = {
    'segments': 2, 'rate': 0.1, 'activation': 'gelu', 'epsilon': 1e-12,
    'max_length': 512,
}  # fmt: skip
_BERT_REFUSED = {
    'position_embedding_type': ('absolute', None), 'is_decoder': (False, None),
}  # fmt: skip
_GPT_KEYS = {
    'vocab_size': 'vocab_size',
    'layers': 'n_layer',
    'width': 'n_embd',
    'heads': 'n_head',
    'max_length': 'n_positions',
    'rate': 'resid_pdrop',
    'epsilon': 'layer_norm_epsilon',
}
_GPT_ABSENT = {'rate': 0.1, 'epsilon': 1e-5}
_GPT_FIXED = {'segments': 0, 'causal': True, 'embedding_norm': False}


def _modern(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Rewrites ModernBERT's config.json of transformers 5 to the first format.

    Raises:
        ValueError: rotary positions, or an order of layers, of another kind.
    """
    rewritten = dict(config)
    ropes = rewritten.get('rope_parameters') or {}
    for kind, name in (('full', 'global'), ('sliding', 'local')):
        rope = ropes.get(f'{kind}_attention') or {}
        if rope.get('rope_type', 'default') != 'default':
            raise errors.InputError(
                'unknown_rope',
                f'{where} has rope_type {rope["rope_type"]!r}; only '
                "'default' can be converted",
            )
        if 'rope_theta' in rope:
            rewritten[f'{name}_rope_theta'] = rope['rope_theta']
    if types := rewritten.get('layer_types'):
        every = next(
            (i for i, kind in enumerate(types) if i and kind[0] == 'f'),
            max(len(types), 2),
        )
        if types != [
            'sliding_attention' if i % every else 'full_attention'
            for i in range(len(types))
        ]:
            raise errors.InputError(
                'unknown_layer_types',
                f'{where} has the layer_types {", ".join(types)}; only '
                'full_attention first and then every so many layers can be '
                'converted',
            )
        rewritten['global_attn_every_n_layers'] = every
    return rewritten


def _gpt_2(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Adds the default of the inner width to GPT-2's config.json."""
    del where
    width = 4 * config.get('n_embd', 0)
    inner = config.get('n_inner')
    return {**config, 'n_inner': width if inner is None else inner}


def _roberta(name: str) -> Architecture:
    return Architecture(
        'transformer', _BERT_KEYS, _BERT_ABSENT, name, padded=True,
        refused=_BERT_REFUSED, layout='roberta',
    )  # fmt: skip


ARCHITECTURES: dict[str, Architecture] = {
    'bert': Architecture(
        'transformer', _BERT_KEYS, _BERT_ABSENT, 'Bert',
        refused=_BERT_REFUSED,
    ),
    'xlm-roberta': _roberta('XLMRoberta'),
    'roberta': _roberta('Roberta'),
    'camembert': _roberta('Camembert'),
    'distilbert': Architecture(
        'transformer',
        {
            'vocab_size': 'vocab_size',
            'layers': 'n_layers',
            'width': 'dim',
            'heads': 'n_heads',
            'inner_width': 'hidden_dim',
            'max_length': 'max_position_embeddings',
            'rate': 'dropout',
            'activation': 'activation',
        },
        {'rate': 0.1, 'activation': 'gelu', 'max_length': 512},
        'DistilBert',
        fixed={'segments': 0, 'epsilon': 1e-12},
        classes='relu',
    ),
    'electra': Architecture(
        'transformer',
        {**_BERT_KEYS, 'embedding_width': 'embedding_size'},
        {**_BERT_ABSENT, 'embedding_width': 128},
        'Electra',
        refused=_BERT_REFUSED,
        classes='gelu',
    ),
    'xlnet': Architecture(
        'relative',
        {
            'vocab_size': 'vocab_size',
            'layers': 'n_layer',
            'width': 'd_model',
            'heads': 'n_head',
            'inner_width': 'd_inner',
            'rate': 'dropout',
            'activation': 'ff_activation',
            'epsilon': 'layer_norm_eps',
        },
        {'rate': 0.1, 'activation': 'gelu', 'epsilon': 1e-12},
        'XLNet',
        'LMHeadModel',
        fixed={'segments': 2, 'max_length': 512},
        refused={
            'attn_type': ('bi', None), 'bi_data': (False, None),
            'untie_r': (True, None), 'clamp_len': (-1, 0, None),
            'same_length': (False, None), 'summary_type': ('last', None),
            'summary_use_proj': (True,), 'summary_activation': ('tanh',),
        },
        layout='xlnet',
    ),
    'openai-gpt': Architecture(
        'transformer', {**_GPT_KEYS, 'activation': 'afn'},
        {**_GPT_ABSENT, 'activation': 'gelu', 'max_length': 512},
        'OpenAIGPT',
        'LMHeadModel',
        fixed={**_GPT_FIXED, 'pre_norm': False},
        layout='end',
        activations={**ACTIVATIONS, 'gelu': 'gelu_tanh'},
        tied='gpt',
    ),
    'gpt2': Architecture(
        'transformer',
        {
            **_GPT_KEYS,
            'inner_width': 'n_inner', 'activation': 'activation_function',
        },
        {**_GPT_ABSENT, 'activation': 'gelu_new', 'max_length': 1024},
        'GPT2',
        'LMHeadModel',
        fixed={**_GPT_FIXED, 'pre_norm': True},
        refused={
            'add_cross_attention': (False, None),
            'scale_attn_by_inverse_layer_idx': (False, None),
            'scale_attn_weights': (True,),
        },
        layout='end',
        tied='gpt',
        rewrite=_gpt_2,
    ),
    'modernbert': Architecture(
        'modern',
        {
            'vocab_size': 'vocab_size',
            'layers': 'num_hidden_layers',
            'width': 'hidden_size',
            'heads': 'num_attention_heads',
            'inner_width': 'intermediate_size',
            'max_length': 'max_position_embeddings',
            'rate': 'embedding_dropout',
            'activation': 'hidden_activation',
            'epsilon': 'norm_eps',
            'global_every': 'global_attn_every_n_layers',
            'local_window': 'local_attention',
            'global_theta': 'global_rope_theta',
            'local_theta': 'local_rope_theta',
        },
        {
            'rate': 0.0, 'activation': 'gelu', 'epsilon': 1e-5,
            'max_length': 8192, 'global_every': 3, 'local_window': 128,
            'global_theta': 160_000.0, 'local_theta': 10_000.0,
        },
        'ModernBert',
        fixed={'segments': 0, 'causal': False},
        refused={
            'attention_bias': (False, None), 'mlp_bias': (False, None),
            'norm_bias': (False, None), 'classifier_bias': (False, None),
            'decoder_bias': (True,), 'classifier_activation': ('gelu',),
        },
        classes='gelu_norm',
        rewrite=_modern,
        pooling='classifier_pooling',
    ),
}  # fmt: skip


def check_values(
    config: Mapping[str, Any],
    known: Mapping[str, tuple[Any, ...]],
    where: str,
) -> None:
    """Raises ValueError for values of a config.json that cannot be converted;
    by key, `known` has those that can, the default first.
    """
    for key, values in known.items():
        if config.get(key, values[0]) not in values:
            raise errors.InputError(
                'value_not_convertible',
                f'{where} has {key} {config[key]!r}; only {values[0]!r} can be '
                'converted',
            )


def first_position(config: Mapping[str, Any]) -> int:
    """Returns the first token's position by a config.json."""
    if not ARCHITECTURES[config['model_type']].padded:
        return 0
    return config.get(_PAD, _PAD_ID) + 1


def encoder_of(config: Mapping[str, Any], where: str) -> EncoderConfig:
    """Reads the encoder of a config.json.

    Raises:
        ValueError: an unknown model_type or none; a missing key; a value that
            no encoder here has.
    """
    kind = config.get('model_type')
    known = ', '.join(ARCHITECTURES)
    if kind is None:
        raise errors.InputError(
            'no_model_type',
            f'{where} has no model_type; set it to one of {known}',
        )
    if kind not in ARCHITECTURES:
        raise errors.InputError(
            'unknown_model_type',
            f'{where} is of the model_type {kind!r}; known are {known}',
        )
    architecture = ARCHITECTURES[kind]
    if architecture.rewrite:
        config = architecture.rewrite(config, where)
    check_values(config, architecture.refused, where)
    arguments: dict[str, Any] = dict(architecture.fixed)
    for ours, key in architecture.keys.items():
        value = config.get(key, architecture.absent.get(ours))
        if value is None:
            raise errors.InputError('config_lacks_key', f'{where} has no {key}')
        arguments[ours] = value
    value, activations = arguments['activation'], architecture.activations
    if value not in activations:
        raise errors.InputError(
            'unknown_public_activation',
            f'{where} has the activation {value!r}; known are '
            f'{", ".join(activations)}',
        )
    arguments['activation'] = activations[value]
    if architecture.padded and not isinstance(config.get(_PAD, _PAD_ID), int):
        raise errors.InputError(
            'no_padding_id',
            f'{where} has {_PAD} {config[_PAD]!r}, after which positions '
            'begin; set it to the id of the token that pads',
        )
    arguments['max_length'] -= first_position(config)
    if arguments['max_length'] < 1:
        raise errors.InputError(
            'no_position_left',
            f'{where} has no position for a token: they begin after {_PAD}, '
            f'{first_position(config) - 1}',
        )
    if arguments.get('embedding_width') == arguments['width']:
        arguments['embedding_width'] = None
    return EncoderConfig(architecture.encoder, arguments)


def config_of(
    kind: str, encoder: EncoderConfig, pad_id: int = _PAD_ID
) -> dict[str, Any]:
    """Returns the config.json that `encoder_of` reads as an encoder.

    Args:
        kind: the model_type.
        encoder: of this project.
        pad_id: of the token that pads.

    Raises:
        ValueError: transformers has no such encoder.
    """
    architecture = ARCHITECTURES[kind]
    arguments = dict(encoder.arguments)
    config: dict[str, Any] = {'model_type': kind, _PAD: pad_id}
    if encoder.name != architecture.encoder:
        raise errors.InputError(
            'kind_other_encoder', f'{kind} is no encoder {encoder.name}'
        )
    arguments['max_length'] += first_position(config)
    width = arguments['width']
    if kind == 'electra' and not arguments.get('embedding_width'):
        arguments['embedding_width'] = width
    theirs = {v: k for k, v in reversed(architecture.activations.items())}
    only = {**_ONLY, **architecture.fixed, 'inner_width': 4 * width}
    for name, value in arguments.items():
        if name == 'activation' and value in theirs:
            config[architecture.keys[name]] = theirs[value]
        elif name in architecture.keys and name != 'activation':
            config[architecture.keys[name]] = value
        # XLNet has no longest text.
        elif value != only.get(name) and name != 'max_length':
            raise errors.InputError(
                'kind_other_argument',
                f'{kind} has no encoder with {name} {value!r}',
            )
    # transformers has a rate of its own for attention weights.
    for key in ('attention_probs_dropout_prob', 'attention_dropout',
                'attn_pdrop'):  # fmt: skip
        config[key] = arguments['rate']
    return config


def kind_of(encoder: EncoderConfig, roberta: str | None) -> str:
    """Chooses the model_type; `roberta` is the one for texts in that layout."""
    arguments = encoder.arguments
    if encoder.name == 'relative':
        return 'xlnet'
    if encoder.name == 'modern':
        return 'modernbert'
    if arguments.get('causal'):
        return 'gpt2' if arguments.get('pre_norm') else 'openai-gpt'
    if arguments.get('embedding_width'):
        return 'electra'
    if arguments.get('segments', 2) == 0:
        return 'distilbert'
    if roberta and arguments.get('segments') == 1:
        return roberta
    return 'bert'
