"""Names of weights in public models: one map for both directions.

Each line of a map has a path of this project, the name or names of public
models, and how their arrays lie (`Form`). `{i}` is a layer. No other module
knows such names.

Glossary of shapes: E width of one head.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Form(NamedTuple):
    """A pair of functions between arrays of public models and of infoword_tf.

    Attributes:
        read: public arrays, in the order of names, to one of this project.
        write: the other way, given H.
    """

    read: Callable[[Sequence[np.ndarray]], np.ndarray]
    write: Callable[[np.ndarray, int], list[np.ndarray]]


def _heads(array: np.ndarray, heads: int) -> np.ndarray:
    """Splits [D, H E] to [D, H, E]."""
    return array.reshape(array.shape[0], heads, -1)


def _flat(array: np.ndarray) -> np.ndarray:
    """Joins [D, H, E] to [D, H E]."""
    return array.reshape(array.shape[0], -1)


def _after(first: int) -> Form:
    """Skips the first positions of a table, and writes zeros instead."""

    def write(x: np.ndarray, heads: int) -> list[np.ndarray]:
        return [np.pad(x, ((first, 0), (0, 0)))]

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
# XLNet and the Model Garden have an axis of heads: [D, H, E].
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

Lines = Mapping[str, tuple[str | tuple[str, ...], Form]]


class Naming(NamedTuple):
    """The names of the weights of one kind of model.

    Attributes:
        encoder: names outside layers, by path below `encoder/`.
        layer: names of each layer, by path below `encoder/layer_{i}/`.
        heads: names of heads by row, by path below `objectives/ROW/`.
        copies: names of tied weights, and the names of which they are copies.
        dropped: beginnings of names without a place here, and descriptions.
        ignored: beginnings of names that are not even mentioned: counters and
            slots of an optimizer.
        prefixes: before the encoder's names; the first is written with a head.
        old: regular expressions for older names, and replacements; in order.
    """

    encoder: Lines
    layer: Lines
    heads: Mapping[str, Lines] = {}
    copies: Mapping[str, str] = {}
    dropped: Mapping[str, str] = {}
    ignored: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ('',)
    old: Mapping[str, str] = {}


def after_padding(naming: Naming, first: int) -> Naming:
    """Returns a naming whose first `first` positions belong to no token."""
    theirs, _ = naming.encoder['position_embeddings']
    return naming._replace(
        encoder={
            **naming.encoder, 'position_embeddings': (theirs, _after(first))
        }
    )  # fmt: skip


class _Style(NamedTuple):
    """Endings of names in a framework, and the form of kernels."""

    kernel: str
    bias: str
    gamma: str
    beta: str
    form: Form
    joined: tuple[Form, Form]  # of the kernels and biases of query, key, value

    def dense(
        self, theirs: str, kernel: str = 'kernel', bias: str = 'bias'
    ) -> Lines:
        """Names a dense layer."""
        return {
            kernel: (theirs + self.kernel, self.form),
            bias: (theirs + self.bias, SAME),
        }

    def norm(self, ours: str, theirs: str) -> Lines:
        """Names a layer norm."""
        return {
            f'{ours}_gamma': (theirs + self.gamma, SAME),
            f'{ours}_beta': (theirs + self.beta, SAME),
        }

    def mlm(self, dense: str, norm: str, bias: str) -> Lines:
        """Names the head that fills masks."""
        return {
            **self.dense(dense),
            **self.norm('norm', norm),
            'piece_bias': (bias, SAME),
        }

    def pooled(self, pooler: str, classes: str) -> Lines:
        """Names a head on the state that represents a text."""
        return {
            **self.dense(pooler, 'pooler_kernel', 'pooler_bias'),
            **self.dense(classes),
        }

    def layer(
        self,
        below: str,
        qkv: str,
        output: str,
        attention_norm: str,
        inner: str,
        outer: str,
        outer_norm: str,
        parts: Sequence[str] = ('query', 'key', 'value'),
    ) -> Lines:
        """Names a layer of a Transformer; PART in `qkv` is each of `parts`."""
        joined = {}
        ends = ('kernel', self.kernel), ('bias', self.bias)
        for (ours, end), form in zip(ends, self.joined, strict=True):
            names = tuple(below + qkv.replace('PART', x) + end for x in parts)
            joined[f'attention/qkv_{ours}'] = (names, form)
        return {
            **joined,
            **self.dense(
                below + output, 'attention/output_kernel', 'attention_bias'
            ),
            **self.norm('attention_norm', below + attention_norm),
            **self.dense(below + inner, 'inner_kernel', 'inner_bias'),
            **self.dense(below + outer, 'outer_kernel', 'outer_bias'),
            **self.norm('outer_norm', below + outer_norm),
        }

    def relative_layer(
        self, below: str, kernel: str, vector: str, norm: str
    ) -> Lines:
        """Names a layer of XLNet; PART in patterns is the name of a weight."""

        def of(pattern: str, part: str) -> str:
            return pattern.replace('PART', part)

        return {
            'attention/qkv_kernel': (
                tuple(of(kernel, name) for name in 'qkv'), JOINED_FLAT
            ),
            'attention/position_kernel': (of(kernel, 'r'), FLAT),
            'attention/output_kernel': (of(kernel, 'o'), FLAT_TURNED),
            'attention/segment_embeddings': (of(vector, 'seg_embed'), SAME),
            'attention/content_bias': (of(vector, 'r_w_bias'), SAME),
            'attention/position_bias': (of(vector, 'r_r_bias'), SAME),
            'attention/segment_bias': (of(vector, 'r_s_bias'), SAME),
            **self.norm('attention_norm', of(below, 'rel_attn') + norm),
            **self.dense(
                of(below, 'ff') + 'layer_1', 'inner_kernel', 'inner_bias'
            ),
            **self.dense(
                of(below, 'ff') + 'layer_2', 'outer_kernel', 'outer_bias'
            ),
            **self.norm('outer_norm', of(below, 'ff') + norm),
        }  # fmt: skip


_TORCH = _Style(
    '.weight', '.bias', '.weight', '.bias', TURNED, (JOINED_TURNED, JOINED)
)
_TF = _Style('/kernel', '/bias', '/gamma', '/beta', SAME, (JOINED, JOINED))


def _embeddings(segments: bool = True) -> Lines:
    tables = {'word': 'word', 'position': 'position'}
    if segments:
        tables['segment'] = 'token_type'
    return {
        **{
            f'{ours}_embeddings': (
                f'embeddings.{theirs}_embeddings.weight',
                SAME,
            )
            for ours, theirs in tables.items()
        },
        **_TORCH.norm('norm', 'embeddings.LayerNorm'),
    }


# Devlin et al. 2019, and whoever has the same layers. The pooler belongs to
# the heads that read it.
_BERT = Naming(
    encoder=_embeddings(),
    layer=_TORCH.layer(
        'encoder.layer.{i}.',
        'attention.self.PART',
        'attention.output.dense',
        'attention.output.LayerNorm',
        'intermediate.dense',
        'output.dense',
        'output.LayerNorm',
    ),
    heads={
        'mlm': _TORCH.mlm(
            'cls.predictions.transform.dense',
            'cls.predictions.transform.LayerNorm',
            'cls.predictions.bias',
        ),
        'nsp': _TORCH.pooled('{p}pooler.dense', 'cls.seq_relationship'),
        'label': _TORCH.pooled('{p}pooler.dense', 'classifier'),
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
_ROBERTA = _BERT._replace(
    heads={
        'mlm': _TORCH.mlm(
            'lm_head.dense', 'lm_head.layer_norm', 'lm_head.bias'
        ),
        'label': _TORCH.pooled('classifier.dense', 'classifier.out_proj'),
    },
    copies={
        'lm_head.decoder.weight': '{p}embeddings.word_embeddings.weight',
        'lm_head.decoder.bias': 'lm_head.bias',
    },
    prefixes=('roberta.', ''),
)
# Sanh et al. 2019.
_DISTILBERT = _BERT._replace(
    encoder=_embeddings(segments=False),
    layer=_TORCH.layer(
        'transformer.layer.{i}.',
        'attention.PART_lin',
        'attention.out_lin',
        'sa_layer_norm',
        'ffn.lin1',
        'ffn.lin2',
        'output_layer_norm',
        parts='qkv',
    ),
    heads={
        'mlm': _TORCH.mlm(
            'vocab_transform', 'vocab_layer_norm', 'vocab_projector.bias'
        ),
        'label': _TORCH.pooled('pre_classifier', 'classifier'),
    },
    copies={'vocab_projector.weight': '{p}embeddings.word_embeddings.weight'},
    dropped={},
    ignored=('embeddings.position_ids',),
    prefixes=('distilbert.', ''),
)
# Clark et al. 2020; of the small ones embeddings are narrower than the layers.
_ELECTRA = _BERT._replace(
    encoder={
        **_embeddings(),
        **_TORCH.dense(
            'embeddings_project', 'projection_kernel', 'projection_bias'
        ),
    },
    heads={
        'mlm': _TORCH.mlm(
            'generator_predictions.dense',
            'generator_predictions.LayerNorm',
            'generator_lm_head.bias',
        ),
        'label': _TORCH.pooled('classifier.dense', 'classifier.out_proj'),
    },
    copies={'generator_lm_head.weight': '{p}embeddings.word_embeddings.weight'},
    dropped={'discriminator_predictions.': 'the head of the discriminator'},
    prefixes=('electra.', ''),
)
# Yang et al. 2019.
_XLNET = Naming(
    encoder={
        'word_embeddings': ('word_embedding.weight', SAME),
        'mask_embedding': ('mask_emb', ROW),
    },
    layer=_TORCH.relative_layer(
        'layer.{i}.PART.',
        'layer.{i}.rel_attn.PART',
        'layer.{i}.rel_attn.PART',
        'layer_norm',
    ),
    heads={
        'plm': {'piece_bias': ('lm_loss.bias', SAME)},
        'label': _TORCH.pooled('sequence_summary.summary', 'logits_proj'),
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
    layer=_TORCH._replace(form=SAME, joined=(SAME, SAME)).layer(
        'h.{i}.',
        'attn.c_attn',
        'attn.c_proj',
        'ln_1',
        'mlp.c_fc',
        'mlp.c_proj',
        'ln_2',
        parts=('all',),
    ),
    heads={'gpt': {}},  # scores are of the embeddings alone
    copies={'lm_head.weight': '{p}tokens_embed.weight'},
    ignored=('position_ids', 'h.{i}.attn.bias'),
    prefixes=('transformer.', ''),
)
# Radford et al. 2019: norms come first, and one more last.
_GPT_2 = _GPT._replace(
    encoder={
        'word_embeddings': ('wte.weight', SAME),
        'position_embeddings': ('wpe.weight', SAME),
        **_TORCH.norm('last_norm', 'ln_f'),
    },
    copies={'lm_head.weight': '{p}wte.weight'},
    ignored=('h.{i}.attn.bias', 'h.{i}.attn.masked_bias'),
)

# Warner et al. 2024: no biases; the first layer has no norm before attention.
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
        'mlm': {**_MODERN_HEAD, 'piece_bias': ('decoder.bias', SAME)},
        'label': {
            **{f'pooler_{ours}': x for ours, x in _MODERN_HEAD.items()},
            **_TORCH.dense('classifier'),
        },
    },
    copies={'decoder.weight': '{p}embeddings.tok_embeddings.weight'},
    prefixes=('model.', ''),
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
    'modernbert': _MODERN,
}

_SLOTS = ('global_step', 'beta1_power', 'beta2_power', 'good_steps',
          'loss_scale')  # fmt: skip
_TF1_POOLER = _TF.dense('{p}pooler/dense', 'pooler_kernel', 'pooler_bias')
# Checkpoints of TensorFlow 1, by the name of the configuration beside them.
GOOGLE: dict[str, Naming] = {
    'bert_config.json': Naming(
        encoder={
            'word_embeddings': ('embeddings/word_embeddings', SAME),
            'position_embeddings': ('embeddings/position_embeddings', SAME),
            'segment_embeddings': ('embeddings/token_type_embeddings', SAME),
            **_TF.norm('norm', 'embeddings/LayerNorm'),
        },
        layer=_TF.layer(
            'encoder/layer_{i}/',
            'attention/self/PART',
            'attention/output/dense',
            'attention/output/LayerNorm',
            'intermediate/dense',
            'output/dense',
            'output/LayerNorm',
        ),
        heads={
            'mlm': _TF.mlm(
                'cls/predictions/transform/dense',
                'cls/predictions/transform/LayerNorm',
                'cls/predictions/output_bias',
            ),
            'nsp': {
                **_TF1_POOLER,
                'kernel': ('cls/seq_relationship/output_weights', TURNED),
                'bias': ('cls/seq_relationship/output_bias', SAME),
            },
            'label': {
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
        layer=_TF.relative_layer(
            'layer_{i}/PART/',
            'layer_{i}/rel_attn/PART/kernel',
            'PART[{i}]',  # of all layers in one
            'LayerNorm',
        ),
        heads={'plm': {'piece_bias': ('model/lm_loss/bias', SAME)}},
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
        **_TF.norm('norm', 'layer_with_weights-3'),
    },
    layer={
        **_TF._replace(joined=(JOINED_FLAT, JOINED_FLAT_BIAS)).layer(
            _GARDEN,
            '_attention_layer/_PART_dense',
            '_attention_layer/_output_dense',
            '_attention_layer_norm',
            '_intermediate_dense',
            '_output_dense',
            '_output_layer_norm',
        ),
        'attention/output_kernel': (
            f'{_GARDEN}_attention_layer/_output_dense/kernel', HEADS_FIRST
        ),
    },  # fmt: skip
    heads={
        'mlm': _TF.mlm(
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
