"""Checkpoints of TensorFlow: Google's, and those of the Model Garden."""

from infoword_tf.weights.names import (
    HEADS_FIRST,
    JOINED_FLAT,
    JOINED_FLAT_BIAS,
    ROW,
    SAME,
    TF,
    TURNED,
    Naming,
)

_SLOTS = ('global_step', 'beta1_power', 'beta2_power', 'good_steps',
          'loss_scale')  # fmt: skip
_TF1_POOLER = TF.dense('{p}pooler/dense', 'pooler_kernel', 'pooler_bias')
# Checkpoints of TensorFlow 1, by the name of the configuration beside them.
GOOGLE: dict[str, Naming] = {
    'bert_config.json': Naming(
        encoder={
            'word_embeddings': ('embeddings/word_embeddings', SAME),
            'position_embeddings': ('embeddings/position_embeddings', SAME),
            'segment_embeddings': ('embeddings/token_type_embeddings', SAME),
            **TF.norm('norm', 'embeddings/LayerNorm'),
        },
        layer=TF.layer(
            'encoder/layer_{i}/',
            'attention/self/PART',
            output='attention/output/dense',
            attention_norm='attention/output/LayerNorm',
            inner='intermediate/dense',
            outer='output/dense',
            outer_norm='output/LayerNorm',
        ),
        heads={
            'masked_words': TF.mlm(
                'cls/predictions/transform/dense',
                'cls/predictions/transform/LayerNorm',
                'cls/predictions/output_bias',
            ),
            'next_text': {
                **_TF1_POOLER,
                'kernel': ('cls/seq_relationship/output_weights', TURNED),
                'bias': ('cls/seq_relationship/output_bias', SAME),
            },
            'classes': {
                **_TF1_POOLER,
                'kernel': ('output_weights', TURNED),
                'bias': ('output_bias', SAME),
            },
        },
        dropped={'pooler/': 'the pooler'},
        ignored=_SLOTS,
        prefixes=('bert/',),
    ),
    'xlnet_config.json': Naming(
        encoder={
            'word_embeddings': ('word_embedding/lookup_table', SAME),
            'mask_embedding': ('mask_emb/mask_emb', ROW),
        },
        layer=TF.relative_layer(
            'layer_{i}/PART/',
            'layer_{i}/rel_attn/PART/kernel',
            'PART[{i}]',  # of all layers in one
            'LayerNorm',
        ),
        heads={'permuted_words': {'piece_bias': ('model/lm_loss/bias', SAME)}},
        ignored=_SLOTS,
        prefixes=('model/transformer/',),
    ),
}

_GARDEN = 'layer_with_weights-{i4}/'
# Yu et al., TensorFlow Model Garden: a checkpoint of objects. Layers are
# numbered after the four parts of the embeddings, and before the pooler.
GARDEN = Naming(
    encoder={
        'word_embeddings': ('layer_with_weights-0/embeddings', SAME),
        'position_embeddings': ('layer_with_weights-1/embeddings', SAME),
        'segment_embeddings': ('layer_with_weights-2/embeddings', SAME),
        **TF.norm('norm', 'layer_with_weights-3'),
    },
    layer={
        **TF._replace(joined=(JOINED_FLAT, JOINED_FLAT_BIAS)).layer(
            _GARDEN,
            '_attention_layer/_PART_dense',
            output='_attention_layer/_output_dense',
            attention_norm='_attention_layer_norm',
            inner='_intermediate_dense',
            outer='_output_dense',
            outer_norm='_output_layer_norm',
        ),
        'attention/output_kernel': (
            f'{_GARDEN}_attention_layer/_output_dense/kernel',
            HEADS_FIRST,
        ),
    },  # fmt: skip
    heads={
        'masked_words': TF.mlm(
            'masked_lm/dense', 'masked_lm/layer_norm', 'masked_lm/output_bias'
        )
    },
    dropped={
        'layer_with_weights-{last}/': 'the pooler',
        'next_sentence': 'the head of the next sentence',
        'classification_heads': 'a head of classes',
    },
    ignored=('save_counter', 'optimizer', 'global_step'),
    prefixes=('encoder/', 'model/', ''),
    # Of a pretrainer, whole or in its parts. A weight that two layers share has
    # the name of the first.
    old={
        r'^model/encoder_network/': 'encoder/',
        r'^model/(masked_lm|classification_heads)/': r'\1/',
        r'^masked_lm/embedding_table$': (
            'encoder/layer_with_weights-0/embeddings'
        ),
        r'^masked_lm/output_bias\.Sbias$': 'masked_lm/output_bias',
    },
)
