"""ModernBERT (Warner et al. 2024)."""

from collections.abc import Mapping
from typing import Any

from infoword_tf.weights.kinds.architecture import SIZES, Architecture
from infoword_tf.weights.kinds.rotary import check_sight, read_rope
from infoword_tf.weights.names import SAME, TORCH, TURNED, Naming

# No biases; the first layer has no norm before attention.
_MODERN_HEAD = {
    'kernel': ('head.dense.weight', TURNED),
    'norm_gamma': ('head.norm.weight', SAME),
}
_MODERN = Naming(
    encoder={
        'word_embeddings': ('embeddings.tok_embeddings.weight', SAME),
        'norm_gamma': ('embeddings.norm.weight', SAME),
        'last_norm_gamma': ('final_norm.weight', SAME),
    },
    layer={
        'attention_norm_gamma': ('layers.{i}.attn_norm.weight', SAME),
        'attention/qkv_kernel': ('layers.{i}.attn.Wqkv.weight', TURNED),
        'attention/output_kernel': ('layers.{i}.attn.Wo.weight', TURNED),
        'outer_norm_gamma': ('layers.{i}.mlp_norm.weight', SAME),
        'inner_kernel': ('layers.{i}.mlp.Wi.weight', TURNED),
        'outer_kernel': ('layers.{i}.mlp.Wo.weight', TURNED),
    },
    heads={
        'masked_words': {**_MODERN_HEAD, 'piece_bias': ('decoder.bias', SAME)},
        'classes': {
            **{f'pooler_{ours}': x for ours, x in _MODERN_HEAD.items()},
            **TORCH.dense('classifier'),
        },
    },
    copies={'decoder.weight': '{p}embeddings.tok_embeddings.weight'},
    prefixes=('model.', ''),
)


_ACTIVATION = 'classifier_activation'
# How the names of architectures end of which no other head reads that key.
_ANY_ACTIVATION = 'ForMaskedLM', 'Model'


def _modern(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Rewrites ModernBERT's config.json of transformers 5 to the first format.

    Of `local_attention` and `sliding_window`, half of it, the latter counts.

    Raises:
        ValueError: rotary positions, or an order of layers, of another kind.
    """
    rewritten = dict(config)
    if (config.get('architectures') or [''])[0].endswith(_ANY_ACTIVATION):
        rewritten.pop(_ACTIVATION, None)
    if (near := rewritten.get('sliding_window')) is not None:
        rewritten['local_attention'] = 2 * near
    ropes = rewritten.get('rope_parameters') or {}
    for kind, name in (('full', 'global'), ('sliding', 'local')):
        rope = read_rope(
            dict(ropes.get(f'{kind}_attention') or {})
            | (rewritten.get('rope_scaling') or {}),
            where, ('default',),
        )  # fmt: skip
        if rope:
            rewritten[f'{name}_rope_theta'] = rope['rope_theta']
    if types := rewritten.get('layer_types'):
        every, _ = check_sight(types, where, 0)
        rewritten['global_attn_every_n_layers'] = every
    return rewritten


ARCHITECTURES: dict[str, Architecture] = {
    'modernbert': Architecture(
        'modern',
        _MODERN,
        keys={
            **SIZES,
            'rate': 'embedding_dropout',
            'activation': 'hidden_activation',
            'epsilon': 'norm_eps',
            'global_every': 'global_attn_every_n_layers',
            'local_window': 'local_attention',
            'global_theta': 'global_rope_theta',
            'local_theta': 'local_rope_theta',
        },
        absent={
            'rate': 0.0, 'activation': 'gelu', 'epsilon': 1e-5,
            'max_length': 8192, 'global_every': 3, 'local_window': 128,
            'global_theta': 160_000.0, 'local_theta': 10_000.0,
        },
        name='ModernBert',
        fills_by=(_ACTIVATION, 'gelu'),
        fixed={'segments': 0, 'causal': False},
        refused={
            'attention_bias': (False, None), 'mlp_bias': (False, None),
            'norm_bias': (False, None), 'classifier_bias': (False, None),
            'decoder_bias': (True,), _ACTIVATION: ('gelu',),
        },
        classes='gelu_norm',
        tags=_MODERN.heads['classes'],
        spans=_MODERN.heads['classes'],
        rewrite=_modern,
        pooling='classifier_pooling',
    ),
}  # fmt: skip
