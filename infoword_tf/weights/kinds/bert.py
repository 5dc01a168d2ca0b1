"""BERT, and whoever has the same layers."""

from collections.abc import Mapping
from typing import Any

from infoword_tf import errors
from infoword_tf.weights.kinds.architecture import SIZES, Architecture
from infoword_tf.weights.names import SAME, TORCH, Naming

# Devlin et al. 2019, and whoever has the same layers. The pooler belongs to
# the heads that read it.
BERT = Naming(
    encoder=TORCH.embeddings('word', 'position', 'segment'),
    layer=TORCH.layer(
        'encoder.layer.{i}.',
        'attention.self.PART',
        output='attention.output.dense',
        attention_norm='attention.output.LayerNorm',
        inner='intermediate.dense',
        outer='output.dense',
        outer_norm='output.LayerNorm',
    ),
    heads={
        'masked_words': TORCH.mlm(
            'cls.predictions.transform.dense',
            'cls.predictions.transform.LayerNorm',
            'cls.predictions.bias',
        ),
        'next_text': TORCH.pooled('{p}pooler.dense', 'cls.seq_relationship'),
        'classes': TORCH.pooled('{p}pooler.dense', 'classifier'),
    },
    copies={
        'cls.predictions.decoder.weight': (
            '{p}embeddings.word_embeddings.weight'
        ),
        'cls.predictions.decoder.bias': 'cls.predictions.bias',
    },
    dropped={'pooler.': 'the pooler'},
    ignored=('embeddings.position_ids', 'embeddings.token_type_ids'),
    prefixes=('bert.', ''),
    old={r'\.gamma$': '.weight', r'\.beta$': '.bias'},
)
# Conneau et al. 2020; where positions begin `after_padding` says.
_ROBERTA = BERT._replace(
    heads={
        'masked_words': TORCH.mlm(
            'lm_head.dense', 'lm_head.layer_norm', 'lm_head.bias'
        ),
        'classes': TORCH.pooled('classifier.dense', 'classifier.out_proj'),
    },
    copies={
        'lm_head.decoder.weight': '{p}embeddings.word_embeddings.weight',
        'lm_head.decoder.bias': 'lm_head.bias',
    },
    prefixes=('roberta.', ''),
)
# Sanh et al. 2019.
_DISTILBERT = BERT._replace(
    encoder=TORCH.embeddings('word', 'position'),
    layer=TORCH.layer(
        'transformer.layer.{i}.',
        'attention.PART_lin',
        output='attention.out_lin',
        attention_norm='sa_layer_norm',
        inner='ffn.lin1',
        outer='ffn.lin2',
        outer_norm='output_layer_norm',
        parts='qkv',
    ),
    heads={
        'masked_words': TORCH.mlm(
            'vocab_transform', 'vocab_layer_norm', 'vocab_projector.bias'
        ),
        'classes': TORCH.pooled('pre_classifier', 'classifier'),
    },
    copies={'vocab_projector.weight': '{p}embeddings.word_embeddings.weight'},
    dropped={},
    ignored=('embeddings.position_ids',),
    prefixes=('distilbert.', ''),
)
# Clark et al. 2020; of the small ones embeddings are narrower than the layers.
_ELECTRA = BERT._replace(
    encoder={
        **TORCH.embeddings('word', 'position', 'segment'),
        **TORCH.dense(
            'embeddings_project', 'projection_kernel', 'projection_bias'
        ),
    },
    heads={
        'masked_words': TORCH.mlm(
            'generator_predictions.dense',
            'generator_predictions.LayerNorm',
            'generator_lm_head.bias',
        ),
        'classes': TORCH.pooled('classifier.dense', 'classifier.out_proj'),
    },
    copies={'generator_lm_head.weight': '{p}embeddings.word_embeddings.weight'},
    dropped={'discriminator_predictions.': 'the head of the discriminator'},
    prefixes=('electra.', ''),
)
# Song et al. 2020.
_MPNET = _ROBERTA._replace(
    encoder={
        **TORCH.embeddings('word', 'position'),
        'relative_bias': ('encoder.relative_attention_bias.weight', SAME),
    },
    layer=TORCH.layer(
        'encoder.layer.{i}.',
        'attention.attn.PART',
        output='attention.attn.o',
        attention_norm='attention.LayerNorm',
        inner='intermediate.dense',
        outer='output.dense',
        outer_norm='output.LayerNorm',
        parts='qkv',
    ),
    ignored=('embeddings.position_ids',),
    prefixes=('mpnet.', ''),
)
# Lan et al. 2020.
_ALBERT = BERT._replace(
    encoder={
        **TORCH.embeddings('word', 'position', 'segment'),
        **TORCH.dense(
            'encoder.embedding_hidden_mapping_in',
            'projection_kernel',
            'projection_bias',
        ),
    },
    layer=TORCH.layer(
        'encoder.albert_layer_groups.{i}.albert_layers.0.',
        'attention.PART',
        output='attention.dense',
        attention_norm='attention.LayerNorm',
        inner='ffn',
        outer='ffn_output',
        outer_norm='full_layer_layer_norm',
    ),
    heads={
        'masked_words': TORCH.mlm(
            'predictions.dense', 'predictions.LayerNorm', 'predictions.bias'
        ),
        'classes': TORCH.pooled('{p}pooler', 'classifier'),
    },
    copies={
        'predictions.decoder.weight': '{p}embeddings.word_embeddings.weight',
        'predictions.decoder.bias': 'predictions.bias',
    },
    dropped={
        'pooler.': 'the pooler',
        'sop_classifier.': 'the head of the order of sentences',
    },
    prefixes=('albert.', ''),
)

BERT_KEYS = {
    **SIZES,
    'segments': 'type_vocab_size',
    'rate': 'hidden_dropout_prob',
    'activation': 'hidden_act',
    'epsilon': 'layer_norm_eps',
}
_BERT_ABSENT = {
    'segments': 2, 'rate': 0.1, 'activation': 'gelu', 'epsilon': 1e-12,
    'max_length': 512,
}  # fmt: skip
_BERT_REFUSED = {
    'position_embedding_type': ('absolute', None), 'is_decoder': (False, None),
}  # fmt: skip


def _roberta(name: str) -> Architecture:
    return Architecture(
        'transformer', _ROBERTA, keys=BERT_KEYS, absent=_BERT_ABSENT, name=name,
        fills_by=(None, 'gelu'), padded=True,
        refused=_BERT_REFUSED, layout='roberta',
    )  # fmt: skip


def _albert(config: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Checks the widths of ALBERT, which projects equal widths too.

    Raises:
        ValueError: a projection from D to D.
    """
    width = config.get('hidden_size')
    if width is not None and config.get('embedding_size', 128) == width:
        raise errors.InputError(
            'albert_equal_widths',
            f'{where} has the embedding_size and the hidden_size {width}; '
            'only a smaller embedding_size can be converted',
        )
    return config


ARCHITECTURES: dict[str, Architecture] = {
    'albert': Architecture(
        'transformer',
        _ALBERT,
        keys={**BERT_KEYS, 'embedding_width': 'embedding_size'},
        absent={
            **_BERT_ABSENT, 'embedding_width': 128, 'rate': 0.0,
            'activation': 'gelu_new',
        },
        name='Albert',
        fixed={'shared_layers': True},
        refused={
            'num_hidden_groups': (1,), 'inner_group_num': (1,),
            'position_embedding_type': ('absolute', None),
        },
        rewrite=_albert,
        writes=lambda arguments: bool(
            arguments.get('shared_layers') and arguments.get('embedding_width')
        ),
    ),
    'mpnet': Architecture(
        'transformer',
        _MPNET,
        keys={k: v for k, v in BERT_KEYS.items() if k != 'segments'},
        absent={k: v for k, v in _BERT_ABSENT.items() if k != 'segments'},
        name='MPNet',
        fills_by=(None, 'gelu'),
        # Whatever config.json says: transformers reads neither key.
        fixed={'segments': 0, 'relative_buckets': 32},
        padded=True,
        refused={
            'relative_attention_num_buckets': (32,), 'pad_token_id': (1,),
        },
        layout='roberta',
        writes=lambda arguments: bool(arguments.get('relative_buckets')),
    ),
    'electra': Architecture(
        'transformer',
        _ELECTRA,
        keys={**BERT_KEYS, 'embedding_width': 'embedding_size'},
        absent={**_BERT_ABSENT, 'embedding_width': 128},
        name='Electra',
        fills_by=(None, 'gelu'),
        refused=_BERT_REFUSED,
        classes='gelu',
        writes=lambda arguments: bool(arguments.get('embedding_width')),
    ),
    'distilbert': Architecture(
        'transformer',
        _DISTILBERT,
        keys={
            'vocab_size': 'vocab_size',
            'layers': 'n_layers',
            'width': 'dim',
            'heads': 'n_heads',
            'inner_width': 'hidden_dim',
            'max_length': 'max_position_embeddings',
            'rate': 'dropout',
            'activation': 'activation',
        },
        absent={'rate': 0.1, 'activation': 'gelu', 'max_length': 512},
        name='DistilBert',
        fixed={'segments': 0, 'epsilon': 1e-12},
        classes='relu',
        writes=lambda arguments: arguments.get('segments', 2) == 0,
    ),
    'bert': Architecture(
        'transformer', BERT, keys=BERT_KEYS, absent=_BERT_ABSENT, name='Bert',
        refused=_BERT_REFUSED,
    ),
    'xlm-roberta': _roberta('XLMRoberta'),
    'roberta': _roberta('Roberta'),
    'camembert': _roberta('Camembert'),
}  # fmt: skip
