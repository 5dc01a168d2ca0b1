"""DeBERTa, versions 2 and 3 (He et al. 2021, 2023)."""

from collections.abc import Mapping
from typing import Any

from infoword_tf.weights.kinds.architecture import Architecture
from infoword_tf.weights.kinds.bert import BERT, BERT_KEYS
from infoword_tf.weights.names import SAME, TORCH

_DEBERTA = BERT._replace(
    encoder={
        **TORCH.embeddings('word', 'segment'),
        'distance_embeddings': ('encoder.rel_embeddings.weight', SAME),
        **TORCH.norm('distance_norm', 'encoder.LayerNorm'),
    },
    layer=TORCH.layer(
        'encoder.layer.{i}.',
        'attention.self.PART_proj',
        output='attention.output.dense',
        attention_norm='attention.output.LayerNorm',
        inner='intermediate.dense',
        outer='output.dense',
        outer_norm='output.LayerNorm',
    ),
    heads={
        'masked_words': BERT.heads['masked_words'],
        'classes': TORCH.pooled('pooler.dense', 'classifier'),
    },
    dropped={
        'pooler.': 'the pooler',
        'mask_predictions.': 'the head of the discriminator',
        'embeddings.position_embeddings': "positions of the generator's head",
    },
    ignored=('embeddings.position_ids',),
    prefixes=('deberta.', ''),
    # The head that is not `legacy` computes the same.
    old={
        r'^lm_predictions\.lm_head\.bias$': 'cls.predictions.bias',
        r'^lm_predictions\.lm_head\.': 'cls.predictions.transform.',
    },
)  # fmt: skip
# What transformers has by default is no published model.
_DEFAULTS = {
    'relative_attention': False, 'position_biased_input': True,
    'norm_rel_ebd': 'none', 'share_att_key': False,
    'max_relative_positions': -1, 'max_position_embeddings': 512,
}  # fmt: skip
_PUBLISHED = {
    'relative_attention': True, 'position_biased_input': False,
    'norm_rel_ebd': 'layer_norm', 'share_att_key': True,
    'pos_att_type': 'p2c|c2p',
}  # fmt: skip
# Widths that have to be others, which most config.json repeat.
_REPEATED = {
    'embedding_size': 'hidden_size',
    'pooler_hidden_size': 'hidden_size',
    'attention_head_size': 'hidden_size / num_attention_heads',
}


def _deberta(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Adds defaults, and replaces several spellings by one."""
    del where
    config = {**_DEFAULTS, **config}
    types = config.get('pos_att_type') or []
    if isinstance(types, str):
        types = types.lower().split('|')
    types = sorted((x.strip() for x in types), reverse=True)
    config['pos_att_type'] = '|'.join(types)
    if config['max_relative_positions'] < 1:
        config['max_relative_positions'] = config['max_position_embeddings']
    if (config.get('position_buckets') or 0) < 1:
        config['position_buckets'] = None
    width = config.get('hidden_size', 0)
    each = width // (config.get('num_attention_heads') or 1)
    for key, meaning in _REPEATED.items():
        if config.get(key) in (each if '/' in meaning else width, None):
            config[key] = meaning
    return config


ARCHITECTURES: dict[str, Architecture] = {
    'deberta-v2': Architecture(
        'disentangled',
        _DEBERTA,
        keys={
            **BERT_KEYS,
            'buckets': 'position_buckets',
            'max_distance': 'max_relative_positions',
        },
        absent={
            'segments': 0, 'rate': 0.1, 'activation': 'gelu', 'epsilon': 1e-7,
        },
        name='DebertaV2',
        refused={
            **{key: (value,) for key, value in _PUBLISHED.items()},
            **{key: (value,) for key, value in _REPEATED.items()},
            'conv_kernel_size': (0, None), 'pooler_hidden_act': ('gelu',),
        },
        classes='gelu',
        rewrite=_deberta,
        finish=lambda config: config.update(_PUBLISHED),
    ),
}  # fmt: skip
