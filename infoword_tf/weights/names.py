"""What others call our weights: one map, read one way in and the other out.

Each line of a map says: our path, the name or names that others have for it,
and how the numbers lie there (`Form`). `{i}` is a layer. Nothing else of this
package knows a name.

Glossary of shapes: D width, E width of one head, F inner width, H heads,
C classes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Form(NamedTuple):
    """How arrays of others lie in ours.

    Attributes:
        read: their arrays, in the order of their names -> ours.
        write: ours, and H -> theirs.
    """

    read: Callable[[Sequence[np.ndarray]], np.ndarray]
    write: Callable[[np.ndarray, int], list[np.ndarray]]


def _heads(array: np.ndarray, heads: int) -> np.ndarray:
    """[D, H E] -> [D, H, E]."""
    return array.reshape(array.shape[0], heads, -1)


def _flat(array: np.ndarray) -> np.ndarray:
    """[D, H, E] -> [D, H E]."""
    return array.reshape(array.shape[0], -1)


def _behind(first: int) -> Form:
    """A table whose first rows stand for no token, and are zeros out."""

    def write(x: np.ndarray, heads: int) -> list[np.ndarray]:
        return [np.concatenate([np.zeros_like(x[:first]), x])]

    return Form(lambda x: x[0][first:], write)


SAME = Form(lambda x: x[0], lambda x, heads: [x])
# torch.nn.Linear keeps [out, in].
TURNED = Form(lambda x: x[0].T, lambda x, heads: [x.T])
JOINED = Form(
    lambda x: np.concatenate(x, axis=-1),
    lambda x, heads: np.split(x, 3, axis=-1),
)
JOINED_TURNED = Form(
    lambda x: np.concatenate([part.T for part in x], axis=-1),
    lambda x, heads: [part.T for part in np.split(x, 3, axis=-1)],
)
# XLNet and the Model Garden keep the heads apart: [D, H, E].
FLAT = Form(lambda x: _flat(x[0]), lambda x, heads: [_heads(x, heads)])
FLAT_TURNED = Form(
    lambda x: _flat(x[0]).T, lambda x, heads: [_heads(x.T, heads)]
)
JOINED_FLAT = Form(
    lambda x: np.concatenate([_flat(part) for part in x], axis=-1),
    lambda x, heads: [_heads(p, heads) for p in np.split(x, 3, axis=-1)],
)
JOINED_FLAT_BIAS = Form(  # [H, E] -> [H E]
    lambda x: np.concatenate([part.reshape(-1) for part in x]),
    lambda x, heads: [p.reshape(heads, -1) for p in np.split(x, 3)],
)
HEADS_FIRST = Form(  # [H, E, D] -> [H E, D]
    lambda x: x[0].reshape(-1, x[0].shape[-1]),
    lambda x, heads: [x.reshape(heads, -1, x.shape[-1])],
)
ROW = Form(  # [1, 1, D]
    lambda x: x[0].reshape(1, -1), lambda x, heads: [x[None]]
)
BEHIND_PADDING = _behind(2)

Lines = Mapping[str, tuple[str | tuple[str, ...], Form]]


class Naming(NamedTuple):
    """What one kind of model calls its weights.

    Attributes:
        encoder: of what stands once; `layer` of each layer.
        layer: our paths below `encoder/layer_{i}/`.
        heads: by row, below `objectives/ROW/`.
        copies: names that repeat another (tied): by name, whose.
        dropped: beginnings of names that have no place here, with what they
            are.
        unsaid: beginnings of names of which nobody need be told: counters
            and slots of an optimizer.
        prefixes: that stand before the encoder's names, the first where they
            are written with a head.
        old: regular expressions of what stands otherwise in some files, and
            what it is here; in order.
    """

    encoder: Lines
    layer: Lines
    heads: Mapping[str, Lines] = {}
    copies: Mapping[str, str] = {}
    dropped: Mapping[str, str] = {}
    unsaid: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ('',)
    old: Mapping[str, str] = {}


_OLD = {r'\.gamma$': '.weight', r'\.beta$': '.bias'}
_POOLER = {'pooler.': 'the pooler'}
_BERT_LAYER = 'encoder.layer.{i}.'


def _norm(ours: str, theirs: str) -> Lines:
    return {
        f'{ours}_gamma': (f'{theirs}.weight', SAME),
        f'{ours}_beta': (f'{theirs}.bias', SAME),
    }


def _dense(
    theirs: str, kernel: str = 'kernel', bias: str = 'bias'
) -> Lines:
    return {
        kernel: (f'{theirs}.weight', TURNED),
        bias: (f'{theirs}.bias', SAME),
    }


def _embeddings(positions: Form = SAME) -> Lines:
    return {
        'word_embeddings': ('embeddings.word_embeddings.weight', SAME),
        'position_embeddings': (
            'embeddings.position_embeddings.weight',
            positions,
        ),
        'segment_embeddings': (
            'embeddings.token_type_embeddings.weight',
            SAME,
        ),
        **_norm('norm', 'embeddings.LayerNorm'),
    }


def _joined(
    pattern: str,
    parts: Sequence[str] = ('query', 'key', 'value'),
    ends: tuple[str, str] = ('.weight', '.bias'),
    forms: tuple[Form, Form] = (JOINED_TURNED, JOINED),
) -> Lines:
    """Three of theirs side by side; PART in the pattern is which."""
    found = {}
    for ours, end, form in zip(('kernel', 'bias'), ends, forms, strict=True):
        names = tuple(pattern.replace('PART', part) + end for part in parts)
        found[f'attention/qkv_{ours}'] = (names, form)
    return found


_LAYER: Lines = {
    **_joined(f'{_BERT_LAYER}attention.self.PART'),
    **_dense(
        f'{_BERT_LAYER}attention.output.dense',
        'attention/output_kernel',
        'attention_bias',
    ),
    **_norm('attention_norm', f'{_BERT_LAYER}attention.output.LayerNorm'),
    **_dense(
        f'{_BERT_LAYER}intermediate.dense', 'inner_kernel', 'inner_bias'
    ),
    **_dense(f'{_BERT_LAYER}output.dense', 'outer_kernel', 'outer_bias'),
    **_norm('outer_norm', f'{_BERT_LAYER}output.LayerNorm'),
}

# Devlin et al. 2019, and whoever has the same layers. The pooler belongs to
# the heads that read it.
_BERT = Naming(
    encoder=_embeddings(),
    layer=_LAYER,
    heads={
        'mlm': {
            **_dense('cls.predictions.transform.dense'),
            **_norm('norm', 'cls.predictions.transform.LayerNorm'),
            'piece_bias': ('cls.predictions.bias', SAME),
        },
        'nsp': {
            **_dense('{p}pooler.dense', 'pooler_kernel', 'pooler_bias'),
            **_dense('cls.seq_relationship'),
        },
        'label': {
            **_dense('{p}pooler.dense', 'pooler_kernel', 'pooler_bias'),
            **_dense('classifier'),
        },
    },
    copies={
        'cls.predictions.decoder.weight': (
            '{p}embeddings.word_embeddings.weight'
        ),
        'cls.predictions.decoder.bias': 'cls.predictions.bias',
    },
    dropped=_POOLER,
    unsaid=('embeddings.position_ids', 'embeddings.token_type_ids'),
    prefixes=('bert.', ''),
    old=_OLD,
)
# Conneau et al. 2020: places begin behind that of the padding, 1.
_ROBERTA = Naming(
    encoder=_embeddings(BEHIND_PADDING),
    layer=_LAYER,
    heads={
        'mlm': {
            **_dense('lm_head.dense'),
            **_norm('norm', 'lm_head.layer_norm'),
            'piece_bias': ('lm_head.bias', SAME),
        },
        'label': {
            **_dense('classifier.dense', 'pooler_kernel', 'pooler_bias'),
            **_dense('classifier.out_proj'),
        },
    },
    copies={
        'lm_head.decoder.weight': '{p}embeddings.word_embeddings.weight',
        'lm_head.decoder.bias': 'lm_head.bias',
    },
    dropped=_POOLER,
    unsaid=('embeddings.position_ids', 'embeddings.token_type_ids'),
    prefixes=('roberta.', ''),
    old=_OLD,
)
# Sanh et al. 2019.
_DISTILBERT = Naming(
    encoder={
        name: line
        for name, line in _embeddings().items()
        if name != 'segment_embeddings'
    },
    layer={
        **_joined('transformer.layer.{i}.attention.PART_lin', 'qkv'),
        **_dense(
            'transformer.layer.{i}.attention.out_lin',
            'attention/output_kernel',
            'attention_bias',
        ),
        **_norm('attention_norm', 'transformer.layer.{i}.sa_layer_norm'),
        **_dense(
            'transformer.layer.{i}.ffn.lin1', 'inner_kernel', 'inner_bias'
        ),
        **_dense(
            'transformer.layer.{i}.ffn.lin2', 'outer_kernel', 'outer_bias'
        ),
        **_norm('outer_norm', 'transformer.layer.{i}.output_layer_norm'),
    },
    heads={
        'mlm': {
            **_dense('vocab_transform'),
            **_norm('norm', 'vocab_layer_norm'),
            'piece_bias': ('vocab_projector.bias', SAME),
        },
        'label': {
            **_dense('pre_classifier', 'pooler_kernel', 'pooler_bias'),
            **_dense('classifier'),
        },
    },
    copies={
        'vocab_projector.weight': '{p}embeddings.word_embeddings.weight'
    },
    unsaid=('embeddings.position_ids',),
    prefixes=('distilbert.', ''),
    old=_OLD,
)
# Clark et al. 2020; of the small ones embeddings are narrower than the layers.
_ELECTRA = Naming(
    encoder={
        **_embeddings(),
        **_dense(
            'embeddings_project', 'projection_kernel', 'projection_bias'
        ),
    },
    layer=_LAYER,
    heads={
        'mlm': {
            **_dense('generator_predictions.dense'),
            **_norm('norm', 'generator_predictions.LayerNorm'),
            'piece_bias': ('generator_lm_head.bias', SAME),
        },
        'label': {
            **_dense('classifier.dense', 'pooler_kernel', 'pooler_bias'),
            **_dense('classifier.out_proj'),
        },
    },
    copies={
        'generator_lm_head.weight': '{p}embeddings.word_embeddings.weight'
    },
    dropped={'discriminator_predictions.': 'the head of the discriminator'},
    unsaid=('embeddings.position_ids', 'embeddings.token_type_ids'),
    prefixes=('electra.', ''),
    old=_OLD,
)
# Yang et al. 2019.
_XLNET = Naming(
    encoder={
        'word_embeddings': ('word_embedding.weight', SAME),
        'mask_embedding': (
            'mask_emb',
            ROW,
        ),
    },
    layer={
        'attention/qkv_kernel': (
            tuple(f'layer.{{i}}.rel_attn.{name}' for name in 'qkv'),
            JOINED_FLAT,
        ),
        'attention/position_kernel': ('layer.{i}.rel_attn.r', FLAT),
        'attention/output_kernel': ('layer.{i}.rel_attn.o', FLAT_TURNED),
        'attention/segment_embeddings': (
            'layer.{i}.rel_attn.seg_embed',
            SAME,
        ),
        'attention/content_bias': ('layer.{i}.rel_attn.r_w_bias', SAME),
        'attention/position_bias': ('layer.{i}.rel_attn.r_r_bias', SAME),
        'attention/segment_bias': ('layer.{i}.rel_attn.r_s_bias', SAME),
        **_norm('attention_norm', 'layer.{i}.rel_attn.layer_norm'),
        **_dense('layer.{i}.ff.layer_1', 'inner_kernel', 'inner_bias'),
        **_dense('layer.{i}.ff.layer_2', 'outer_kernel', 'outer_bias'),
        **_norm('outer_norm', 'layer.{i}.ff.layer_norm'),
    },
    heads={
        'plm': {'piece_bias': ('lm_loss.bias', SAME)},
        'label': {
            **_dense(
                'sequence_summary.summary', 'pooler_kernel', 'pooler_bias'
            ),
            **_dense('logits_proj'),
        },
    },
    copies={'lm_loss.weight': '{p}word_embedding.weight'},
    prefixes=('transformer.', ''),
)
# Radford et al. 2018: its dense layers keep [in, out].
_GPT = Naming(
    encoder={
        'word_embeddings': ('tokens_embed.weight', SAME),
        'position_embeddings': ('positions_embed.weight', SAME),
    },
    layer={
        'attention/qkv_kernel': ('h.{i}.attn.c_attn.weight', SAME),
        'attention/qkv_bias': ('h.{i}.attn.c_attn.bias', SAME),
        'attention/output_kernel': ('h.{i}.attn.c_proj.weight', SAME),
        'attention_bias': ('h.{i}.attn.c_proj.bias', SAME),
        **_norm('attention_norm', 'h.{i}.ln_1'),
        'inner_kernel': ('h.{i}.mlp.c_fc.weight', SAME),
        'inner_bias': ('h.{i}.mlp.c_fc.bias', SAME),
        'outer_kernel': ('h.{i}.mlp.c_proj.weight', SAME),
        'outer_bias': ('h.{i}.mlp.c_proj.bias', SAME),
        **_norm('outer_norm', 'h.{i}.ln_2'),
    },
    copies={'lm_head.weight': '{p}tokens_embed.weight'},
    unsaid=('position_ids', 'h.{i}.attn.bias'),
    prefixes=('transformer.', ''),
)
# Radford et al. 2019: norms come first, and one more last.
_GPT_2 = _GPT._replace(
    encoder={
        'word_embeddings': ('wte.weight', SAME),
        'position_embeddings': ('wpe.weight', SAME),
        **_norm('last_norm', 'ln_f'),
    },
    copies={'lm_head.weight': '{p}wte.weight'},
    unsaid=('h.{i}.attn.bias', 'h.{i}.attn.masked_bias'),
)

# By `model_type` of config.json.
HUGGINGFACE: dict[str, Naming] = {
    'bert': _BERT,
    'xlm-roberta': _ROBERTA,
    'roberta': _ROBERTA,
    'camembert': _ROBERTA,
    'distilbert': _DISTILBERT,
    'electra': _ELECTRA,
    'xlnet': _XLNET,
    'openai-gpt': _GPT,
    'gpt2': _GPT_2,
}

_SLOTS = ('global_step', 'beta1_power', 'beta2_power', 'good_steps',
          'loss_scale')  # fmt: skip


def _google_dense(theirs: str, kernel: str, bias: str) -> Lines:
    return {
        kernel: (f'{theirs}/kernel', SAME),
        bias: (f'{theirs}/bias', SAME),
    }


def _google_norm(ours: str, theirs: str) -> Lines:
    return {
        f'{ours}_gamma': (f'{theirs}/gamma', SAME),
        f'{ours}_beta': (f'{theirs}/beta', SAME),
    }


_TF1 = 'encoder/layer_{i}/'
# Checkpoints of TensorFlow 1, by the name of the configuration beside them.
GOOGLE: dict[str, Naming] = {
    'bert_config.json': Naming(
        encoder={
            'word_embeddings': ('embeddings/word_embeddings', SAME),
            'position_embeddings': ('embeddings/position_embeddings', SAME),
            'segment_embeddings': ('embeddings/token_type_embeddings', SAME),
            **_google_norm('norm', 'embeddings/LayerNorm'),
        },
        layer={
            **_joined(
                f'{_TF1}attention/self/PART',
                ends=('/kernel', '/bias'),
                forms=(JOINED, JOINED),
            ),
            **_google_dense(
                f'{_TF1}attention/output/dense',
                'attention/output_kernel',
                'attention_bias',
            ),
            **_google_norm(
                'attention_norm', f'{_TF1}attention/output/LayerNorm'
            ),
            **_google_dense(
                f'{_TF1}intermediate/dense', 'inner_kernel', 'inner_bias'
            ),
            **_google_dense(
                f'{_TF1}output/dense', 'outer_kernel', 'outer_bias'
            ),
            **_google_norm('outer_norm', f'{_TF1}output/LayerNorm'),
        },
        heads={
            'mlm': {
                **_google_dense(
                    'cls/predictions/transform/dense', 'kernel', 'bias'
                ),
                **_google_norm('norm', 'cls/predictions/transform/LayerNorm'),
                'piece_bias': ('cls/predictions/output_bias', SAME),
            },
            'nsp': {
                **_google_dense(
                    '{p}pooler/dense', 'pooler_kernel', 'pooler_bias'
                ),
                'kernel': ('cls/seq_relationship/output_weights', TURNED),
                'bias': ('cls/seq_relationship/output_bias', SAME),
            },
            'label': {
                **_google_dense(
                    '{p}pooler/dense', 'pooler_kernel', 'pooler_bias'
                ),
                'kernel': ('output_weights', TURNED),
                'bias': ('output_bias', SAME),
            },
        },
        dropped={'pooler/': 'the pooler'},
        unsaid=_SLOTS,
        prefixes=('bert/',),
    ),
    'xlnet_config.json': Naming(
        encoder={
            'word_embeddings': ('word_embedding/lookup_table', SAME),
            'mask_embedding': (
                'mask_emb/mask_emb',
                ROW,
            ),
        },
        layer={
            'attention/qkv_kernel': (
                tuple(
                    f'layer_{{i}}/rel_attn/{name}/kernel' for name in 'qkv'
                ),
                JOINED_FLAT,
            ),
            'attention/position_kernel': (
                'layer_{i}/rel_attn/r/kernel',
                FLAT,
            ),
            'attention/output_kernel': (
                'layer_{i}/rel_attn/o/kernel',
                FLAT_TURNED,
            ),
            # Of all layers in one.
            'attention/segment_embeddings': ('seg_embed[{i}]', SAME),
            'attention/content_bias': ('r_w_bias[{i}]', SAME),
            'attention/position_bias': ('r_r_bias[{i}]', SAME),
            'attention/segment_bias': ('r_s_bias[{i}]', SAME),
            **_google_norm('attention_norm', 'layer_{i}/rel_attn/LayerNorm'),
            **_google_dense(
                'layer_{i}/ff/layer_1', 'inner_kernel', 'inner_bias'
            ),
            **_google_dense(
                'layer_{i}/ff/layer_2', 'outer_kernel', 'outer_bias'
            ),
            **_google_norm('outer_norm', 'layer_{i}/ff/LayerNorm'),
        },
        heads={'plm': {'piece_bias': ('model/lm_loss/bias', SAME)}},
        unsaid=_SLOTS,
        prefixes=('model/transformer/',),
    ),
}

_GARDEN = 'layer_with_weights-{i4}/'
_MULTIHEAD = f'{_GARDEN}_attention_layer/'
# Yu et al., TensorFlow Model Garden: a checkpoint of objects. Layers are
# numbered behind the four parts of the embeddings, and before the pooler.
GARDEN = Naming(
    encoder={
        'word_embeddings': ('layer_with_weights-0/embeddings', SAME),
        'position_embeddings': ('layer_with_weights-1/embeddings', SAME),
        'segment_embeddings': ('layer_with_weights-2/embeddings', SAME),
        **_google_norm('norm', 'layer_with_weights-3'),
    },
    layer={
        **_joined(
            f'{_MULTIHEAD}_PART_dense',
            ends=('/kernel', '/bias'),
            forms=(JOINED_FLAT, JOINED_FLAT_BIAS),
        ),
        'attention/output_kernel': (
            f'{_MULTIHEAD}_output_dense/kernel',
            HEADS_FIRST,
        ),
        'attention_bias': (f'{_MULTIHEAD}_output_dense/bias', SAME),
        **_google_norm('attention_norm', f'{_GARDEN}_attention_layer_norm'),
        **_google_dense(
            f'{_GARDEN}_intermediate_dense', 'inner_kernel', 'inner_bias'
        ),
        **_google_dense(
            f'{_GARDEN}_output_dense', 'outer_kernel', 'outer_bias'
        ),
        **_google_norm('outer_norm', f'{_GARDEN}_output_layer_norm'),
    },
    heads={
        'mlm': {
            **_google_dense('masked_lm/dense', 'kernel', 'bias'),
            **_google_norm('norm', 'masked_lm/layer_norm'),
            'piece_bias': ('masked_lm/output_bias', SAME),
        },
    },
    dropped={
        'layer_with_weights-{last}/': 'the pooler',
        'next_sentence': 'the head of the next sentence',
        'classification_heads': 'a head of classes',
    },
    unsaid=('save_counter', 'optimizer', 'global_step'),
    prefixes=('encoder/', 'model/', ''),
    # Of a pretrainer, whole or in its parts. What two layers share is called
    # by the first of them.
    old={
        r'^model/encoder_network/': 'encoder/',
        r'^model/(masked_lm|classification_heads)/': r'\1/',
        r'^masked_lm/embedding_table$': (
            'encoder/layer_with_weights-0/embeddings'
        ),
        r'^masked_lm/output_bias\.Sbias$': 'masked_lm/output_bias',
    },
)
