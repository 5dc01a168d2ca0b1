"""Encoders with rotary positions: nomic-bert, GTE, EuroBERT, Llama, Mistral,
Qwen 2 and 3, Gemma 3 (text).

As transformers 5 calls their weights, and as their first repositories do
(model_type `new`, and nomic_bert with the keys of GPT-2).
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from infoword_tf import errors
from infoword_tf.weights.kinds.architecture import (
    ACTIVATIONS,
    SIZES,
    Architecture,
)
from infoword_tf.weights.names import (
    JOINED,
    ONE_LESS,
    SAME,
    TORCH,
    TURNED,
    Lines,
    Naming,
    joined_turned,
)

_QKV = tuple(f'self_attn.{x}_proj' for x in 'qkv')
_NO = (False, None)


def check_sight(
    types: Sequence[str], where: str, first: int | None = None
) -> tuple[int, int]:
    """Reads layer_types: one layer in so many sees the whole text, from which
    layer on.

    Args:
        types: full_attention or sliding_attention, by layer.
        where: the file, for errors.
        first: the only number of a first layer that can be converted.

    Raises:
        ValueError: another order of layers.
    """
    whole = [i for i, kind in enumerate(types) if kind == 'full_attention']
    every, begin = 1 + len(types), whole[0] if whole else len(types)
    if len(whole) > 1:
        every = whole[1] - begin
    elif whole:
        every = max(len(types), 2)
    expected = [
        'full_attention' if i % every == begin else 'sliding_attention'
        for i in range(len(types))
    ]
    if list(types) != expected or first not in (None, begin):
        raise errors.InputError(
            'unknown_layer_types',
            f'{where} has the layer_types {", ".join(types)}; only '
            'full_attention every so many layers can be converted, of some '
            'models from the first layer on',
        )
    return every, begin


def read_rope(
    rope: Mapping[str, Any],
    where: str,
    known: Sequence[str] = ('default', 'linear', 'ntk', 'llama3'),
    width: int = 2,
) -> dict[str, Any]:
    """Reads rotary positions: `rope_theta`, and how planes are slowed.

    Args:
        rope: rope_parameters of a config.json, or its rope_theta and all of
            rope_scaling.
        where: the file, for errors.
        known: kinds that can be converted.
        width: width of a head.

    Returns:
        Of `rope_theta`, `rope_factor` and `rope_turns` those that are there.

    Raises:
        ValueError: rotary positions of another kind.
    """
    kind = rope.get('rope_type', rope.get('type', 'default'))
    if kind not in known or rope.get('mixed_b') or (
        rope.get('partial_rotary_factor', 1.0) != 1.0
    ):  # fmt: skip
        raise errors.InputError(
            'unknown_rope',
            f'{where} has rotary positions of the rope_type {kind!r} '
            f'({", ".join(sorted(rope))}); known are {", ".join(known)}, of '
            'whole heads',
        )
    read = {k: rope[k] for k in ('rope_theta',) if rope.get(k) is not None}
    if kind != 'default':
        read['rope_factor'] = float(rope['factor'])
    if kind == 'ntk':  # Su 2023: another base, and slower planes
        read['rope_theta'] = rope['rope_theta'] * rope['factor']
        read['rope_factor'] = float(rope['factor']) ** (2 / width)
    if kind == 'llama3':
        names = (
            'low_freq_factor', 'high_freq_factor',
            'original_max_position_embeddings',
        )  # fmt: skip
        read['rope_turns'] = [float(rope[name]) for name in names]
    return read


def _rope(config: Mapping[str, Any], where: str, theta: float) -> dict:
    """Reads the rotary positions of a config.json, `theta` by default."""
    heads = config.get('num_attention_heads') or 1
    width = config.get('head_dim') or config.get('hidden_size', 0) // heads
    of_file = {'rope_theta': config.get('rope_theta') or theta}
    if part := config.get('partial_rotary_factor'):
        of_file['partial_rotary_factor'] = part
    rope = config.get('rope_parameters') or config.get('rope_scaling') or {}
    return read_rope(of_file | dict(rope), where, width=width)


def _described(config: Mapping[str, Any]) -> dict[str, Any]:
    """Writes rope_parameters of `rope_theta`, `rope_factor`, `rope_turns`."""
    rope = {'rope_type': 'default', 'rope_theta': config['rope_theta']}
    if config['rope_factor'] != 1.0:
        rope |= {'rope_type': 'linear', 'factor': config['rope_factor']}
    if turns := config.get('rope_turns'):
        rope |= {
            'rope_type': 'llama3', 'low_freq_factor': turns[0],
            'high_freq_factor': turns[1],
            'original_max_position_embeddings': int(turns[2]),
        }  # fmt: skip
    return rope


def _read(
    config: Mapping[str, Any], where: str, *, theta: float
) -> dict[str, Any]:
    """Rewrites a config.json of a kind whose layers see the whole text."""
    types = config.get('layer_types') or ()
    if set(types) - {'full_attention'}:
        check_sight(types, where, -1)  # no such layer can be converted
    return {**config, **_rope(config, where, theta)}


def _write(config: dict[str, Any]) -> None:
    """Completes a config.json that is written."""
    rope = _described(config)
    for name in ('rope_theta', 'rope_factor', 'rope_turns'):
        config.pop(name, None)
    config |= {'rope_parameters': rope, 'tie_word_embeddings': True}
    if 'num_key_value_heads' in config:
        heads = config['num_attention_heads']
        config['num_key_value_heads'] = config['num_key_value_heads'] or heads
        config['head_dim'] = config['head_dim'] or (
            config['hidden_size'] // heads
        )


def _by_groups(naming: Naming, config: Mapping[str, Any]) -> Naming:
    """Returns a naming whose keys and values have fewer heads than queries."""
    heads = config.get('num_attention_heads') or 1
    groups = config.get('num_key_value_heads') or heads
    form = joined_turned((heads, groups, groups))
    return naming._replace(
        layer={
            path: (theirs, form if '/qkv_' in path else usual)
            for path, (theirs, usual) in naming.layer.items()
        }
    )


def _layer(norms: Mapping[str, str], form: Any = SAME, **more: Any) -> Lines:
    """Names a layer; `norms` and `more` by path below the layer."""
    gate = tuple(f'layers.{{i}}.mlp.{x}_proj.weight' for x in ('gate', 'up'))
    return {
        'attention/qkv_kernel': (
            tuple(f'layers.{{i}}.{x}.weight' for x in _QKV),
            joined_turned((1, 1, 1)),
        ),
        'attention/output_kernel': (
            'layers.{i}.self_attn.o_proj.weight', TURNED
        ),
        'inner_kernel': (gate, joined_turned((1, 1))),
        'outer_kernel': ('layers.{i}.mlp.down_proj.weight', TURNED),
        **{
            f'{ours}_gamma': (f'layers.{{i}}.{theirs}.weight', form)
            for ours, theirs in norms.items()
        },
        **more,
    }  # fmt: skip


# --------------------------------------------------- norms after, BERT's heads

_AFTER = {
    'attention_norm': 'post_attention_layernorm',
    'outer_norm': 'post_mlp_layernorm',
}
_BETAS = {
    f'{ours}_beta': (f'layers.{{i}}.{theirs}.bias', SAME)
    for ours, theirs in _AFTER.items()
}
_QKV_BIAS = {
    'attention/qkv_bias': (
        tuple(f'layers.{{i}}.{x}.bias' for x in _QKV), JOINED
    )
}  # fmt: skip
# Nussbaum et al. 2024.
_NOMIC = Naming(
    encoder=TORCH.embeddings('word', 'segment'),
    layer=_layer(_AFTER, **_BETAS),
    heads={
        'masked_words': TORCH.mlm(
            'cls.predictions.transform.dense',
            'cls.predictions.transform.layer_norm',
            'cls.predictions.bias',
        ),
        'classes': TORCH.pooled('{p}pooler.dense', 'classifier'),
    },
    copies={
        'cls.predictions.decoder.weight': (
            '{p}embeddings.word_embeddings.weight'
        ),
    },
    dropped={'pooler.': 'the pooler'},
    ignored=('embeddings.position_ids', 'embeddings.token_type_ids'),
    prefixes=('nomic_bert.', ''),
    old={
        r'^bert\.': 'nomic_bert.',
        r'cls\.predictions\.decoder\.bias$': 'cls.predictions.bias',
        r'\bemb_ln\.': 'embeddings.LayerNorm.',
        r'\bencoder\.layers\.': 'layers.',
        r'\battn\.out_proj\.': 'self_attn.o_proj.',
        r'\bmlp\.fc11\.': 'mlp.up_proj.',
        r'\bmlp\.fc12\.': 'mlp.gate_proj.',
        r'\bmlp\.fc2\.': 'mlp.down_proj.',
        r'\.norm1\.': '.post_attention_layernorm.',
        r'\.norm2\.': '.post_mlp_layernorm.',
    },
    fused={r'\battn\.Wqkv\b': _QKV},
)
# Zhang et al. 2024, "mGTE".
_GTE = _NOMIC._replace(
    layer=_layer(
        _AFTER,
        **_BETAS,
        **{
            **_QKV_BIAS,
            'attention_bias': ('layers.{i}.self_attn.o_proj.bias', SAME),
            'outer_bias': ('layers.{i}.mlp.down_proj.bias', SAME),
        },
    ),
    heads={
        'masked_words': TORCH.mlm(
            'lm_head.dense', 'lm_head.layer_norm', 'lm_head.decoder.bias'
        ),
        'classes': TORCH.pooled('{p}pooler.dense', 'classifier'),
    },
    copies={'lm_head.decoder.weight': '{p}embeddings.word_embeddings.weight'},
    prefixes=('gte.', ''),
    old={
        r'^new\.': 'gte.',
        r'\bencoder\.layer\.': 'layers.',
        r'\battention\.([qkvo]_proj)\.': r'self_attn.\1.',
        r'\battn_ln\.': 'post_attention_layernorm.',
        r'\bmlp_ln\.': 'post_mlp_layernorm.',
        r'^lm_head\.norm\.': 'lm_head.layer_norm.',
    },
    fused={
        r'\battention\.qkv_proj\b': _QKV,
        r'\bmlp\.up_gate_proj\b': ('mlp.up_proj', 'mlp.gate_proj'),
    },
)
_KEYS = {
    **SIZES,
    'activation': 'hidden_act',
    'global_theta': 'rope_theta',
    'global_factor': 'rope_factor',
}
_AFTER_KEYS = {
    **_KEYS, 'segments': 'type_vocab_size', 'rate': 'hidden_dropout_prob',
    'epsilon': 'layer_norm_eps',
}  # fmt: skip
_EVERYWHERE = {'global_every': 1, 'causal': False}
_NOMIC_OLD = {  # of the first repository
    'n_layer': 'num_hidden_layers', 'n_embd': 'hidden_size',
    'n_head': 'num_attention_heads', 'n_inner': 'intermediate_size',
    'n_positions': 'max_position_embeddings',
    'resid_pdrop': 'hidden_dropout_prob',
    'activation_function': 'hidden_act',
    'layer_norm_epsilon': 'layer_norm_eps', 'rotary_emb_base': 'rope_theta',
}  # fmt: skip


def _nomic(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Rewrites a config.json of nomic-bert, also of the first repository.

    Its positions are scaled beyond the texts that it was trained on, by the
    longest text of a batch, where rotary_scaling_factor is set; longer ones
    are truncated.
    """
    config = {_NOMIC_OLD.get(k, k): value for k, value in config.items()}
    if config.get('rotary_scaling_factor'):
        trained = config.get('max_trained_positions', 2048)
        config['max_position_embeddings'] = trained
    return _read(config, where, theta=1000.0)


# ------------------------------------------------- norms before, Llama's names

_LLAMA = Naming(
    encoder={
        'word_embeddings': ('embed_tokens.weight', SAME),
        'last_norm_gamma': ('norm.weight', SAME),
    },
    layer=_layer({
        'attention_norm': 'input_layernorm',
        'outer_norm': 'post_attention_layernorm',
    }),
    heads={
        'next_words': {},  # scores are of the embeddings alone
        'classes': {'kernel': ('score.weight', TURNED)},
    },
    copies={'lm_head.weight': '{p}embed_tokens.weight'},
    dropped={'lm_head.': 'the head with a table of tokens of its own'},
    ignored=('layers.{i}.self_attn.rotary_emb.inv_freq',),
    # The second is of Llama's and Qwen's ...ForQuestionAnswering.
    prefixes=('model.', 'transformer.', ''),
)
_EUROBERT = _LLAMA._replace(
    heads={'masked_words': {}, 'classes': TORCH.pooled('dense', 'classifier')},
    dropped={
        **_LLAMA.dropped,
        'dense.': 'the head for classes, which averages the scores of tokens '
        '(classifier_pooling late)',
        'classifier.': 'the head for classes, which averages the scores of '
        'tokens (classifier_pooling late)',
    },
)
_QK = {
    f'attention/{ours}_norm_gamma': (
        f'layers.{{i}}.self_attn.{ours[0]}_norm.weight', SAME
    )
    for ours in ('query', 'key')
}  # fmt: skip
_QWEN_2 = _LLAMA._replace(layer={**_LLAMA.layer, **_QKV_BIAS})
_QWEN = _LLAMA._replace(layer={**_LLAMA.layer, **_QK})
# Its norms multiply by 1 and the weight.
_GEMMA = _LLAMA._replace(
    encoder={**_LLAMA.encoder, 'last_norm_gamma': ('norm.weight', ONE_LESS)},
    layer=_layer(
        {
            'attention_norm': 'input_layernorm',
            'attention_after_norm': 'post_attention_layernorm',
            'outer_norm': 'pre_feedforward_layernorm',
            'outer_after_norm': 'post_feedforward_layernorm',
        },
        ONE_LESS,
        **{ours: (theirs, ONE_LESS) for ours, (theirs, _) in _QK.items()},
    ),
)
_BEFORE_KEYS = {
    **_KEYS, 'rate': 'attention_dropout', 'epsilon': 'rms_norm_eps',
    'kv_heads': 'num_key_value_heads', 'head_width': 'head_dim',
    'turn_bounds': 'rope_turns',
}  # fmt: skip
_BEFORE_ABSENT = {
    'rate': 0.0, 'activation': 'silu', 'epsilon': 1e-6, 'global_factor': 1.0,
    'kv_heads': None, 'head_width': None, 'turn_bounds': None, 'causal': True,
    'max_length': 2048,
}  # fmt: skip
_RMS = {
    'segments': 0, 'norm': 'rms', 'norms': 'before', 'embedding_norm': False,
    'biases': 'none', 'global_every': 1, 'qk_norm': False,
}  # fmt: skip
_NO_BIAS = {'attention_bias': _NO, 'mlp_bias': _NO}


def _eurobert(naming: Naming, config: Mapping[str, Any]) -> Naming:
    """Returns a naming without the head for classes, where that averages."""
    naming = _by_groups(naming, config)
    if config.get('classifier_pooling', 'late') != 'late':
        return naming
    heads = {head: x for head, x in naming.heads.items() if head != 'classes'}
    return naming._replace(heads=heads)


def _write_eurobert(config: dict[str, Any]) -> None:
    """Completes a config.json of EuroBERT that is written."""
    _write(config)
    config['classifier_pooling'] = 'bos'  # a head says otherwise


def _qwen_2(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Reads a config.json of Qwen 2.

    Raises:
        ValueError: as `_read`; code of its own, and no word on its mask.
    """
    if 'auto_map' in config and config.get('is_causal') is None:
        raise errors.InputError(
            'mask_by_own_code',
            f'{where} leaves to its own code (auto_map) whether tokens see '
            'later ones; set is_causal to false (gte-Qwen2) or true',
        )
    return _read(config, where, theta=10_000.0)


def _mistral(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Rewrites a config.json of Mistral, which within a window is Llama."""
    window = config.get('sliding_window', 4096)
    config = _read(config, where, theta=10_000.0)
    longest = config.get('max_position_embeddings') or 131_072
    config['max_position_embeddings'] = min(longest, window or longest)
    return config


def _gemma(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Rewrites a config.json of Gemma 3: layers with two kinds of sight.

    A layer with near sight sees `sliding_window` tokens before a token, with
    itself; bidirectional the half on each side.
    """
    config = dict(config)
    ropes = config.get('rope_parameters') or {}
    rope = ropes.get('full_attention') or config.get('rope_scaling') or {}
    of_file = {'rope_theta': config.get('rope_theta') or 1e6}
    config |= read_rope(
        of_file | dict(rope), where, ('default', 'linear')
    )  # fmt: skip
    near = ropes.get('sliding_attention') or {}
    of_file = {'rope_theta': config.get('rope_local_base_freq') or 1e4}
    config['local_theta'] = read_rope(
        of_file | dict(near), where, ('default',)
    )['rope_theta']
    pattern = config.get('sliding_window_pattern') or 6
    types = config.get('layer_types') or [
        'sliding_attention' if (i + 1) % pattern else 'full_attention'
        for i in range(config.get('num_hidden_layers', 0))
    ]
    config['global_every'], config['global_first'] = check_sight(types, where)
    config['is_causal'] = not config.get('use_bidirectional_attention')
    window = config.get('sliding_window') or 4096
    config['local_window'] = 2 * (window - 1) if config['is_causal'] else window
    return config


def _write_gemma(config: dict[str, Any]) -> None:
    """Completes a config.json of Gemma 3 that is written."""
    local, window = config.pop('local_theta'), config.pop('local_window')
    every, first = config.pop('global_every'), config.pop('global_first')
    causal = config.pop('is_causal')
    _write(config)
    config |= {
        'use_bidirectional_attention': not causal,
        'sliding_window': window // 2 + 1 if causal else window,
        'layer_types': [
            'full_attention' if i % every == first else 'sliding_attention'
            for i in range(config['num_hidden_layers'])
        ],
        'rope_parameters': {
            'full_attention': config['rope_parameters'],
            'sliding_attention': {'rope_type': 'default', 'rope_theta': local},
        },
        'query_pre_attn_scalar': int(
            config['query_pre_attn_scalar'] or config['head_dim']
        ),
    }


def _with(**values: Any) -> Callable[[Mapping[str, Any]], bool]:
    """Returns a function that tells whether arguments have values."""
    return lambda arguments: values.items() <= {
        name: arguments.get(name) for name in values
    }.items()


_OF_GTE = Architecture(
    'modern',
    _GTE,
    keys=_AFTER_KEYS,
    absent={
        'rate': 0.1, 'activation': 'gelu', 'epsilon': 1e-12, 'segments': 1,
        'max_length': 8192, 'global_factor': 1.0,
    },
    name='Gte',
    fills_by=(None, 'gelu'),
    fixed={
        **_EVERYWHERE, 'norms': 'after', 'biases': 'all',
    },
    refused={
        'position_embedding_type': ('rope', None),
        'layer_norm_type': ('layer_norm', None),
        'logn_attention_scale': _NO, 'logn_attention_clip1': _NO,
    },
    spans={},
    rewrite=functools.partial(_read, theta=160_000.0),
    finish=_write,
    writes=_with(norm='layer', norms='after', biases='all'),
)  # fmt: skip
_OF_LLAMA = Architecture(
    'modern',
    _LLAMA,
    keys={**_BEFORE_KEYS, 'causal': 'is_causal'},
    absent=_BEFORE_ABSENT,
    name='Llama',
    fills='ForCausalLM',
    fixed=_RMS,
    refused=_NO_BIAS,
    layout='end',
    classes='none',
    tags=TORCH.dense('score'),
    spans={},
    tied='next_words',
    ties=False,
    rewrite=functools.partial(_read, theta=10_000.0),
    finish=_write,
    adapt=_by_groups,
    writes=_with(norm='rms', norms='before', qk_norm=False, causal=True),
)
ARCHITECTURES: dict[str, Architecture] = {
    'gemma3_text': _OF_LLAMA._replace(
        naming=_GEMMA,
        name='Gemma3Text',
        keys={
            **_OF_LLAMA.keys, 'activation': 'hidden_activation',
            'query_scalar': 'query_pre_attn_scalar',
            'local_theta': 'local_theta', 'local_window': 'local_window',
            'global_every': 'global_every', 'global_first': 'global_first',
        },
        absent={
            **_BEFORE_ABSENT, 'activation': 'gelu_pytorch_tanh',
            'kv_heads': 4, 'head_width': 256, 'query_scalar': 256.0,
            'max_length': 131_072,
        },
        fixed={
            **{k: v for k, v in _RMS.items() if k != 'global_every'},
            'norms': 'both', 'qk_norm': True, 'scale_embeddings': True,
        },
        refused={
            'attention_bias': _NO, 'attn_logit_softcapping': (None,),
            'final_logit_softcapping': (None,),
        },
        tags={},
        ties=True,
        rewrite=_gemma,
        finish=_write_gemma,
        writes=_with(norm='rms', norms='both'),
    ),
    'qwen3': _OF_LLAMA._replace(
        naming=_QWEN,
        name='Qwen3',
        absent={
            **_BEFORE_ABSENT, 'kv_heads': 32, 'head_width': 128,
            'max_length': 32_768,
        },
        fixed={**_RMS, 'qk_norm': True},
        refused={'attention_bias': _NO, 'use_sliding_window': _NO},
        writes=_with(norm='rms', norms='before', qk_norm=True),
    ),
    'qwen2': _OF_LLAMA._replace(
        naming=_QWEN_2,
        name='Qwen2',
        absent={**_BEFORE_ABSENT, 'kv_heads': 32, 'max_length': 32_768},
        fixed={**_RMS, 'biases': 'qkv'},
        refused={'use_sliding_window': _NO},
        rewrite=_qwen_2,
        writes=_with(norm='rms', norms='before', biases='qkv'),
    ),
    'mistral': _OF_LLAMA._replace(
        absent={**_BEFORE_ABSENT, 'kv_heads': 8},
        refused={},
        notes={
            'sliding_window': 'texts beyond {sliding_window} tokens are '
            'truncated: within that window (sliding_window) each token sees '
            'all before it',
        },
        rewrite=_mistral,
        writes=lambda arguments: False,
    ),
    'llama': _OF_LLAMA,
    'eurobert': _OF_LLAMA._replace(
        naming=_EUROBERT,
        keys=_BEFORE_KEYS,
        absent={
            **_BEFORE_ABSENT, 'epsilon': 1e-5, 'max_length': 8192,
        },
        name='EuroBert',
        fills='ForMaskedLM',
        fixed={**_RMS, 'causal': False},
        layout='bert',
        classes='gelu',
        tags=TORCH.dense('classifier'),
        tied='masked_words',
        pooling='classifier_pooling',
        first='bos',
        finish=_write_eurobert,
        adapt=_eurobert,
        writes=_with(norm='rms', norms='before', qk_norm=False),
    ),
    # Llama without its mask, of NVIDIA's own repositories.
    'llama_bidirec': _OF_LLAMA._replace(
        absent={**_BEFORE_ABSENT, 'causal': False},
        writes=lambda arguments: False,
    ),
    'gte': _OF_GTE,
    'new': _OF_GTE._replace(writes=lambda arguments: False),
    'nomic_bert': _OF_GTE._replace(
        naming=_NOMIC,
        absent={
            'rate': 0.0, 'activation': 'silu', 'epsilon': 1e-12, 'segments': 2,
            'max_length': 2048, 'global_factor': 1.0,
        },
        name='NomicBert',
        fills_by=None,
        fixed={**_EVERYWHERE, 'norms': 'after', 'biases': 'norms'},
        refused={
            'num_experts': (None, 0), 'moe_every_n_layers': (None, 0),
            'prenorm': _NO, 'parallel_block': _NO, 'use_rms_norm': _NO,
            'qkv_proj_bias': _NO, 'mlp_fc1_bias': _NO, 'mlp_fc2_bias': _NO,
            'causal': _NO, 'rotary_emb_fraction': (1.0, None),
            'rotary_emb_interleaved': _NO, 'rotary_emb_scale_base': (None,),
        },
        notes={
            'rotary_scaling_factor': 'texts beyond max_trained_positions are '
            'truncated: positions that are scaled by the longest text of a '
            'batch (rotary_scaling_factor) cannot be converted',
        },
        activations={**ACTIVATIONS, 'swiglu': 'silu', 'geglu': 'gelu_erf'},
        rewrite=_nomic,
        writes=_with(norm='layer', norms='after'),
    ),
}  # fmt: skip
