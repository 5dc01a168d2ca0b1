"""Maps of names of weights in public models, for both directions.

Each line of a map has a path of this project, the name or names of public
models, and how their arrays lie (`Form`). `{i}` is a layer. The
maps are in kinds/, and no other module knows such names.

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


def joined_turned(parts: Sequence[int]) -> Form:
    """Puts kernels side by side, whose widths are in proportion to `parts`."""

    def write(x: np.ndarray, heads: int) -> list[np.ndarray]:
        ends = np.cumsum(parts)[:-1] * (x.shape[-1] // sum(parts))
        return [part.T for part in np.split(x, ends, axis=-1)]

    return Form(
        lambda x: np.concatenate([part.T for part in x], axis=-1), write
    )


JOINED_TURNED = joined_turned((1, 1, 1))
# Of norms that multiply by 1 and the weight.
ONE_LESS = Form(lambda x: x[0] + 1, lambda x, heads: [x - 1])
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


def names_of(theirs: str | tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names of a line of a map."""
    return (theirs,) if isinstance(theirs, str) else theirs


def names_in(lines: Lines) -> list[str]:
    """Lists all names of a map."""
    return [x for theirs, _ in lines.values() for x in names_of(theirs)]


class Naming(NamedTuple):
    """The names of the weights of one kind of model.

    Attributes:
        encoder: names outside layers, by path below `encoder/`.
        layer: names of each layer, by path below `encoder/layer_{i}/`.
        heads: names of heads by name in heads.HEADS, or by critic; or (`at`)
            by the row or critic below whose place the paths are.
        copies: names of tied weights, and the names of which they are copies.
        dropped: beginnings of names without a place here, and descriptions.
        ignored: beginnings of names that are not even mentioned: counters and
            slots of an optimizer.
        prefixes: before the encoder's names; the first is written with a head.
        old: regular expressions for older names, and replacements; in order.
        fused: regular expressions of parts of such names, and names of the
            arrays that lie there one after another, of equal size.
    """

    encoder: Lines
    layer: Lines
    heads: Mapping[str, Lines] = {}
    copies: Mapping[str, str] = {}
    dropped: Mapping[str, str] = {}
    ignored: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ('',)
    old: Mapping[str, str] = {}
    fused: Mapping[str, tuple[str, ...]] = {}

    def at(self, rows: Mapping[str, str]) -> 'Naming':
        """Returns the names with heads by row, or critic, that has the head."""
        heads = {rows.get(name, name): x for name, x in self.heads.items()}
        return self._replace(heads=heads)


def is_unnamed_bias(naming: Naming, path: str) -> bool:
    """Tells whether a path is of a bias that public heads do not have."""
    row, _, name = path.removeprefix('objectives/').partition('/')
    if '/' in name or not name.endswith('bias'):
        return False
    return name not in naming.heads.get(row, {name})


def after_padding(naming: Naming, first: int) -> Naming:
    """Returns a naming whose first `first` positions belong to no token."""
    theirs, _ = naming.encoder['position_embeddings']
    return naming._replace(
        encoder={
            **naming.encoder, 'position_embeddings': (theirs, _after(first))
        }
    )  # fmt: skip


class Style(NamedTuple):
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

    def embeddings(self, *tables: str) -> Lines:
        """Names BERT's tables of words, positions or segments, and the norm."""
        theirs = {'segment': 'token_type'}
        return {
            **{
                f'{name}_embeddings': (
                    f'embeddings.{theirs.get(name, name)}_embeddings.weight',
                    SAME,
                )
                for name in tables
            },
            **self.norm('norm', 'embeddings.LayerNorm'),
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


TORCH = Style(
    '.weight', '.bias', gamma='.weight', beta='.bias', form=TURNED,
    joined=(JOINED_TURNED, JOINED),
)  # fmt: skip
TF = Style(
    '/kernel', '/bias', gamma='/gamma', beta='/beta', form=SAME,
    joined=(JOINED, JOINED),
)  # fmt: skip
