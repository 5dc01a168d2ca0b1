"""Presets of KerasHub: settings and names of weights.

Names are those of model.weights.h5 after `backbone/` and of task.weights.h5
after `task/`, without `layers/` and `vars/`; the first of several layers is
numbered 0.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from infoword_tf.weights.names import (
    HEADS_FIRST,
    JOINED_FLAT,
    JOINED_FLAT_BIAS,
    SAME,
    Lines,
    Naming,
    Style,
)

_STYLE = Style(
    '/0', '/1', gamma='/0', beta='/1', form=SAME,
    joined=(JOINED_FLAT, JOINED_FLAT_BIAS),
)  # fmt: skip


def _layer(below: str, part: str) -> Lines:
    """Names a layer; `part` stands before the names of products."""
    attention = '_self_attention_layer/'
    return _STYLE.layer(
        below,
        f'{attention}{part}PART_dense',
        output=f'{attention}{part}output_dense',
        attention_norm='_self_attention_layer_norm',
        inner='_feedforward_intermediate_dense',
        outer='_feedforward_output_dense',
        outer_norm='_feedforward_layer_norm',
    )


_MASKED_WORDS = _STYLE.mlm(
    'task/masked_lm_head/_intermediate_dense',
    'task/masked_lm_head/_intermediate_layer_norm',
    'task/masked_lm_head/0',
)
_TABLES = 'token_and_position_embedding/'
_BERT = Naming(
    encoder={
        'word_embeddings': ('reversible_embedding/0', SAME),
        'position_embeddings': ('position_embedding/0', SAME),
        'segment_embeddings': ('embedding/0', SAME),
        **_STYLE.norm('norm', 'layer_normalization'),
    },
    layer={
        **_layer('transformer_encoder_{i}/', ''),
        'attention/output_kernel': (
            'transformer_encoder_{i}/_self_attention_layer/output_dense/0',
            HEADS_FIRST,
        ),
    },
    heads={
        'masked_words': _MASKED_WORDS,
        'classes': _STYLE.pooled('{p}dense', 'task/dense'),
    },
    dropped={'dense/': 'the pooler'},
    ignored=('task/optimizer',),
    prefixes=('backbone/',),
)
# Embeddings that are narrower than the layers; the pooler is the second.
_NARROW = _BERT._replace(
    encoder={
        **_BERT.encoder,
        **_STYLE.dense('dense', 'projection_kernel', 'projection_bias'),
    },
    heads={
        'masked_words': _MASKED_WORDS,
        'classes': _STYLE.pooled('{p}dense_1', 'task/dense'),
    },
    dropped={'dense_1/': 'the pooler'},
)
_ROBERTA = _BERT._replace(
    encoder={
        'word_embeddings': (f'{_TABLES}token_embedding/0', SAME),
        'position_embeddings': (f'{_TABLES}position_embedding/0', SAME),
        **_STYLE.norm('norm', 'layer_normalization'),
    },
    heads={
        'masked_words': _MASKED_WORDS,
        'classes': _STYLE.pooled('task/dense', 'task/dense_1'),
    },
    dropped={},
)
_DEBERTA = _ROBERTA._replace(
    encoder={
        'word_embeddings': ('reversible_embedding/0', SAME),
        'distance_embeddings': ('relative_embedding/0', SAME),
        **_STYLE.norm('norm', 'layer_normalization'),
        **_STYLE.norm('distance_norm', 'relative_embedding/layer_norm'),
    },
    layer=_layer('disentangled_attention_encoder_{i}/', '_'),
)
# Keys of the config by argument of encoders; a class lacks some of them.
KEYS = {
    'layers': 'num_layers',
    'width': 'hidden_dim',
    'heads': 'num_heads',
    'inner_width': 'intermediate_dim',
    'max_length': 'max_sequence_length',
    'rate': 'dropout',
    'segments': 'num_segments',
    'embedding_width': 'embedding_dim',
    'buckets': 'bucket_size',
}


class PresetClass(NamedTuple):
    """One class of backbones.

    Attributes:
        module: name of the class in the paths of modules.
        kind: name in ARCHITECTURES of the same encoder.
        naming: names of the weights.
        vocabulary: file of the tokenizer, and what `tokenizer_reader` calls it.
        fixed: keys of config.json of transformers, which have one value.
        fills: activation of the head that fills masks; None: the encoder's.
        size: the key for the size of the vocabulary.
    """

    module: str
    kind: str
    naming: Naming
    vocabulary: tuple[str, str]
    fixed: Mapping[str, Any]
    fills: str | None = None
    size: str = 'vocabulary_size'


_WORDS = 'vocabulary.txt', 'vocab.txt'
_MODEL = 'vocabulary.spm'
_TANH = {'hidden_act': 'gelu_new', 'layer_norm_eps': 1e-12}
# Positions begin at 0, and there are no segments.
_OF_ROBERTA = {
    'hidden_act': 'gelu', 'layer_norm_eps': 1e-5, 'pad_token_id': -1,
    'type_vocab_size': 0,
}  # fmt: skip
# By class, without `Backbone`.
PRESETS: dict[str, PresetClass] = {
    'Albert': PresetClass(
        'albert', 'albert', naming=_NARROW, vocabulary=(_MODEL, _MODEL),
        fixed=_TANH,
    ),
    'Bert': PresetClass(
        'bert', 'bert', naming=_BERT, vocabulary=_WORDS, fixed=_TANH,
        fills='gelu_erf',
    ),
    'DebertaV3': PresetClass(
        'deberta_v3', 'deberta-v2', naming=_DEBERTA,
        vocabulary=(_MODEL, _MODEL),
        fixed={
            'hidden_act': 'gelu', 'layer_norm_eps': 1e-7, 'type_vocab_size': 0,
        },
    ),
    'DistilBert': PresetClass(
        'distil_bert', 'distilbert', naming=_ROBERTA, vocabulary=_WORDS,
        fixed={'activation': 'gelu'},
    ),
    'Electra': PresetClass(
        'electra', 'electra', naming=_NARROW, vocabulary=_WORDS, fixed=_TANH,
        size='vocab_size',
    ),
    'Roberta': PresetClass(
        'roberta', 'roberta', naming=_ROBERTA,
        vocabulary=('vocabulary.json', 'vocab.json'), fixed=_OF_ROBERTA,
    ),
    'XLMRoberta': PresetClass(
        'xlm_roberta', 'xlm-roberta', naming=_ROBERTA,
        vocabulary=(_MODEL, 'sentencepiece.bpe.model'), fixed=_OF_ROBERTA,
    ),
}  # fmt: skip
# Of ELECTRA whose embeddings are as wide as the layers.
EQUAL_WIDTHS = _BERT
