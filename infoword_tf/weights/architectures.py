"""Encoders in config.json of transformers, and as this project configures them.

Both directions read one table, kinds.ARCHITECTURES.
"""

from collections.abc import Mapping
from typing import Any

from infoword_tf import errors
from infoword_tf.config import EncoderConfig
from infoword_tf.weights.kinds import ARCHITECTURES
from infoword_tf.weights.kinds.architecture import Architecture

# RoBERTa's positions begin after the id of this token; the default.
_PAD, _PAD_ID = 'pad_token_id', 1
# Arguments of public encoders that no key sets.
_ONLY = {
    'causal': False, 'pre_norm': False, 'embedding_norm': True,
    'embedding_width': None, 'clamp': None, 'same_length': False, 'untie': True,
    'scale_embeddings': False, 'relative_buckets': 0, 'shared_layers': False,
    'norm': 'layer', 'norms': 'before', 'biases': 'none', 'qk_norm': False,
    'global_first': 0, 'global_factor': 1.0,
}  # fmt: skip


def check_values(
    config: Mapping[str, Any],
    known: Mapping[str, tuple[Any, ...]],
    where: str,
    advice: str = '',
) -> None:
    """Raises ValueError for values of a config.json that cannot be converted.

    Args:
        config: content of the file.
        known: values that can be converted, by key, the default first.
        where: the file, for errors.
        advice: ends the message.
    """
    for key, values in known.items():
        if config.get(key, values[0]) not in values:
            raise errors.InputError(
                'value_not_convertible',
                f'{where} has {key} {config[key]!r}; only {values[0]!r} can be '
                f'converted{advice}',
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
    known = ', '.join(sorted(ARCHITECTURES))
    if kind is None:
        raise errors.InputError(
            'no_model_type',
            f'{where} has no model_type{_own_code(config)}; set it to one of '
            f'{known}',
        )
    if kind not in ARCHITECTURES:
        raise errors.InputError(
            'unknown_model_type',
            f'{where} is of the model_type {kind!r}'
            f'{_own_code(config)}; known are {known}',
        )
    architecture = ARCHITECTURES[kind]
    if architecture.rewrite:
        config = architecture.rewrite(config, where)
    check_values(config, architecture.refused, where)
    arguments: dict[str, Any] = dict(architecture.fixed)
    for ours, key in architecture.keys.items():
        value = config.get(key)
        if value is None and ours not in architecture.absent:
            raise errors.InputError('config_lacks_key', f'{where} has no {key}')
        value = architecture.absent.get(ours) if value is None else value
        if value is not None:
            arguments[ours] = value
    arguments['activation'] = _activation(
        arguments['activation'], architecture, where
    )
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
    width = arguments['width']
    usual = {'embedding_width': width}
    if 'head_width' in arguments:
        usual['head_width'] = width // arguments['heads']
    for name, value in usual.items():
        if arguments.get(name) == value:
            arguments[name] = None
    return EncoderConfig(architecture.encoder, arguments)


def transform_activation(
    config: Mapping[str, Any], encoder: EncoderConfig, where: str
) -> str | None:
    """Reads the activation of the head that fills masks.

    Returns:
        In layers.pointwise.FORMS; None: it is that of the encoder.

    Raises:
        ValueError: another activation.
    """
    architecture = ARCHITECTURES[config['model_type']]
    if architecture.fills_by is None:
        return None
    key, default = architecture.fills_by
    value = default if key is None else config.get(key, default)
    activation = _activation(value, architecture, where)
    return None if activation == encoder.arguments['activation'] else activation


def spelled(kind: str, activation: str | None) -> str | None:
    """Spells an activation as a config.json does; None: as none does."""
    known = ARCHITECTURES[kind].activations
    return next((x for x, ours in known.items() if ours == activation), None)


def _activation(value: str, architecture: Architecture, where: str) -> str:
    """Translates an activation of a config.json to one of FORMS."""
    if value not in architecture.activations:
        raise errors.InputError(
            'unknown_public_activation',
            f'{where} has the activation {value!r}; known are '
            f'{", ".join(architecture.activations)}',
        )
    return architecture.activations[value]


def _own_code(config: Mapping[str, Any]) -> str:
    if 'auto_map' not in config:
        return ''
    return '; its own code (auto_map) is not run'


def config_of(
    kind: str, encoder: EncoderConfig, pad_id: int = _PAD_ID
) -> dict[str, Any]:
    """Returns the config.json that `encoder_of` reads as an encoder.

    Args:
        kind: the model_type.
        encoder: encoder of this project.
        pad_id: id of the token that pads.

    Raises:
        ValueError: transformers has no such encoder.
    """
    architecture = ARCHITECTURES[kind]
    arguments = dict(encoder.arguments)
    # MPNet's code has one, whatever its tokenizer pads with.
    pad_id, *_ = architecture.refused.get(_PAD, (pad_id,))
    config: dict[str, Any] = {'model_type': kind, _PAD: pad_id}
    if encoder.name != architecture.encoder:
        raise errors.InputError(
            'kind_other_encoder', f'{kind} is no encoder {encoder.name}'
        )
    check_values(config, architecture.refused, kind)
    arguments['max_length'] += first_position(config)
    width = arguments['width']
    if kind == 'electra' and not arguments.get('embedding_width'):
        arguments['embedding_width'] = width
    only = {**_ONLY, **architecture.fixed, 'inner_width': 4 * width}
    if arguments.get('global_every') == 1:  # no layer sees near tokens alone
        for name in ('local_window', 'local_theta'):
            only[name] = arguments[name]
    for name, value in arguments.items():
        if name == 'activation' and (theirs := spelled(kind, value)):
            config[architecture.keys[name]] = theirs
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
    if architecture.finish:
        architecture.finish(config)
    return config


def kind_of(encoder: EncoderConfig, roberta: str | None) -> str:
    """Chooses the model_type; `roberta` is the one for texts in that layout."""
    arguments = encoder.arguments
    kinds = (
        kind
        for kind, known in ARCHITECTURES.items()
        if known.encoder == encoder.name and known.writes(arguments)
    )
    kind = next(kinds, 'bert')
    if kind == 'bert' and roberta and arguments.get('segments') == 1:
        return roberta
    return kind
