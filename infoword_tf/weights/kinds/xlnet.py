"""XLNet (Yang et al. 2019)."""

from infoword_tf.weights.kinds.architecture import Architecture
from infoword_tf.weights.names import ROW, SAME, TORCH, Naming

_XLNET = Naming(
    encoder={
        'word_embeddings': ('word_embedding.weight', SAME),
        'mask_embedding': ('mask_emb', ROW),
    },
    layer=TORCH.relative_layer(
        'layer.{i}.PART.',
        'layer.{i}.rel_attn.PART',
        'layer.{i}.rel_attn.PART',
        'layer_norm',
    ),
    heads={
        'permuted_words': {'piece_bias': ('lm_loss.bias', SAME)},
        'classes': TORCH.pooled('sequence_summary.summary', 'logits_proj'),
    },
    copies={'lm_loss.weight': '{p}word_embedding.weight'},
    prefixes=('transformer.', ''),
)

ARCHITECTURES: dict[str, Architecture] = {
    'xlnet': Architecture(
        'relative',
        _XLNET,
        keys={
            'vocab_size': 'vocab_size',
            'layers': 'n_layer',
            'width': 'd_model',
            'heads': 'n_head',
            'inner_width': 'd_inner',
            'rate': 'dropout',
            'activation': 'ff_activation',
            'epsilon': 'layer_norm_eps',
        },
        absent={'rate': 0.1, 'activation': 'gelu', 'epsilon': 1e-12},
        name='XLNet',
        fills='LMHeadModel',
        fixed={'segments': 2, 'max_length': 512},
        refused={
            'attn_type': ('bi', None), 'bi_data': (False, None),
            'untie_r': (True, None), 'clamp_len': (-1, 0, None),
            'same_length': (False, None), 'summary_type': ('last', None),
            'summary_use_proj': (True,), 'summary_activation': ('tanh',),
        },
        layout='xlnet',
        spans={},  # XLNet reads the question before the context there
    ),
}  # fmt: skip
