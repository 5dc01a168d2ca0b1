"""ELMo's encoder (Peters et al. 2018): characters, LSTMs of both directions.

A token is represented by its characters: convolutions over them, highway
layers, a projection (Kim et al. 2016). Over tokens run layers of LSTM with
projected states (Sak et al. 2014), one from the left and one from the right,
which never meet: the left half of a state depends on no later token. From the
second layer on each layer adds its output to its input.

    layer 0     [e, e]            e of the characters, D / 2 wide
    layer i     [left, right]     states of both directions

All as in allenai/bilm-tf, ids of characters too, but for dropout by key.

Glossary of shapes: P places, C characters of a token, F filters,
E = D / 2 of a direction, U cells, n tokens that are looked up.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from infoword_tf import errors
from infoword_tf.encoders.rnn import Recurrence
from infoword_tf.layers.attention import project
from infoword_tf.layers.block import matrix, vector
from infoword_tf.layers.fused import with_bias
from infoword_tf.layers.recurrent import Recurrent
from infoword_tf.lazy import Layer, ops
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Specials

CHARACTERS = 262  # 256 bytes and five marks, from 1 on; 0 is unused
# Ends of a text and of a token; after a token.
TEXT_BEGIN, TEXT_END, BEGIN, END, PADDING = 257, 258, 259, 260, 261
FILTERS = (32, 32, 64, 128, 256, 512, 1024)  # of 1 to 7 characters, at 1,024
PUBLISHED_WIDTH = 1024
# Shares of a batch's tokens: the characters of as many tokens are read as the
# first share that holds all distinct ones.
SHARES = (0.25, 0.375, 0.5, 1.0)


def spelled(
    specials: Specials, longest: int = 50, reach: int = len(FILTERS)
) -> np.ndarray:
    """Returns the characters of every token: [V, C] int16.

    They are the bytes in UTF-8, each + 1, between two marks; of longer tokens
    the first `longest` - 2 bytes. [CLS] and [SEP] are the marks where a text
    begins and ends. A model without a tokenizer spells tokens as their ids.

    C is the longest token plus `reach`: beyond, a filter would read padding
    alone, which it has read once by then.

    Args:
        specials: properties of the vocabulary.
        longest: characters of a token, with marks.
        reach: characters of the longest filter.
    """
    tokens = specials.tokens or map(str, range(specials.size))
    marks = {specials.cls_id: TEXT_BEGIN, specials.sep_id: TEXT_END}
    spellings = [
        [marks[i]]
        if i in marks
        else [byte + 1 for byte in token.encode()[: longest - 2]]
        for i, token in enumerate(tokens)
    ]
    most = min(longest, 2 + max(map(len, spellings)) + reach)
    table = np.full((len(spellings), most), PADDING, np.int16)
    for line, characters in zip(table, spellings, strict=True):
        line[: len(characters) + 2] = [BEGIN, *characters, END]
    return table


class Directions(Layer):
    """One layer: an LSTM from the left and one from the right."""

    def __init__(
        self, width: int, cells: int, clip: float | None, residual: bool,
        dtype: Any = None, name: str = 'layer',
    ):  # fmt: skip
        """Sets E, U, `clip` of `Recurrent`, and whether to add the inputs."""
        super().__init__(dtype=dtype, name=name, autocast=False)
        self.residual = residual
        self.left, self.right = (
            Recurrent(
                'lstm', width, cells, clip, backward=backward, dtype=dtype,
                name='backward' if backward else 'forward',
            )
            for backward in (False, True)
        )  # fmt: skip

    def build(self) -> None:
        """Makes the weights."""
        self.left.build()
        self.right.build()

    def empty_state(self, batch: int) -> dict[str, Tensor]:
        """Returns the memory of no text, of the left direction: [B, ...]."""
        return self.left.empty_state(batch)

    def call(
        self,
        streams: list[Tensor],
        state: dict[str, Tensor] | None = None,
        keeps: Sequence[Tensor | None] = (None, None),
        key: Tensor | None = None,
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Runs both directions.

        Args:
            streams: inputs of each direction, [B, T, E].
            state: state of the left direction, before the first token.
            keeps: `keep` of `Recurrent.call`, of each direction.
            key: [2] uint32, or None for inference.

        Returns:
            Outputs of each direction [B, T, E]; the left direction's state
            after the last token.
        """
        left, state = self.left(streams[0], state, keeps[0], key)
        right, _ = self.right(streams[1], None, keeps[1], key)
        if self.residual:
            left, right = streams[0] + left, streams[1] + right
        return [left, right], state


class Elmo(Recurrence):
    """ELMo's encoder: g_omega of `elmo`.

    The left direction goes on from the state; the right one begins at the end
    of each sequence, since the continuation is not known yet. (bilm reads
    another text from the right, whose end is the beginning of the next step.)
    """

    abilities = {'directions': {}, 'words': {}}
    directions = (False, True)
    layers: int = setting(2, 'L.', at_least=1)
    width: int = setting(1024, 'D, both directions; even.', at_least=1)
    inner_width: int = setting(None, 'Cells of each LSTM; 4 D.', kind=int)
    characters: int = setting(50, 'The longest C, with two marks.')
    character_width: int = setting(16, "Of a character's embedding.")
    filters: list = setting(
        None,
        'How many of 1, 2, 3, ... characters; the published ones in the '
        'proportion of the width to 1,024.',
        kind=list,
    )
    highways: int = setting(2, 'Highway layers after them.')
    clip: float = setting(
        3.0, 'The largest number in a cell or a projected state.'
    )

    def make_blocks(self) -> None:
        """Overrides `Encoder.make_blocks`."""
        width = self.width
        if width % 2:
            raise errors.InputError(
                'odd_elmo_width',
                f'width {width} is shared by two directions: take an even one',
            )
        self.filters = list(
            self.filters
            or (max(1, n * width // PUBLISHED_WIDTH) for n in FILTERS)
        )
        if len(self.filters) > self.characters:
            raise errors.InputError(
                'filters_too_long',
                f'filters of {len(self.filters)} characters, but a token has '
                f'{self.characters}',
            )
        self.inner_width = self.inner_width or 4 * width
        self.autocast = False  # a state stays float32
        self.blocks = [
            Directions(
                width // 2,
                self.inner_width,
                self.clip,
                residual=i > 0,
                dtype=self.dtype_policy,
                name=f'layer_{i}',
            )
            for i in range(self.layers)
        ]
        self.set_special_tokens(Specials(-1, -1, -1, self.vocab_size))

    @property
    def embedding_width(self) -> int:
        """Width E of a token's vector, which both directions read."""
        return self.width // 2

    def set_special_tokens(self, specials: Specials) -> None:
        """Sets the characters of each token of the vocabulary."""
        self.spelling = functools.cache(
            lambda: spelled(specials, self.characters, len(self.filters))
        )

    def build(self) -> None:
        """Overrides `Encoder.build`."""
        size, filters = self.character_width, self.filters
        self.character_table = matrix(
            self, 'character_embeddings', CHARACTERS, size
        )
        self.filter_kernels = [
            matrix(self, f'filter_{n}_kernel', n * size, count)
            for n, count in enumerate(filters, 1)
        ]
        total = sum(filters)
        self.filter_bias = vector(self, 'filter_bias', total)
        self.highway_weights = [
            (
                matrix(self, f'highway_{i}_kernel', total, 2 * total),
                vector(self, f'highway_{i}_bias', 2 * total),
            )
            for i in range(self.highways)
        ]
        self.projection_kernel = matrix(
            self, 'projection_kernel', total, self.embedding_width
        )
        self.projection_bias = vector(
            self, 'projection_bias', self.embedding_width
        )
        super().build()

    @property
    def embedding_table(self) -> Tensor:
        """Vectors [V, E] float32 of all tokens, made of the characters."""
        return self.lookup(np.arange(self.vocab_size, dtype='int32'))

    def lookup(self, ids: Tensor) -> Tensor:
        """Computes vectors of ids [...] from characters: [..., E] float32.

        A token that occurs several times is computed once.
        """
        flat = ops.reshape(ids, (-1,))
        number = flat.shape[0]
        # Distinct ids in ascending order, then V.
        ordered = ops.sort(flat)
        first = ops.not_equal(ordered[1:], ordered[:-1])
        first = ops.pad(first, ((1, 0),), constant_values=True)
        distinct = ops.sort(ops.where(first, ordered, self.vocab_size))
        count = ops.sum(ops.cast(first, 'int32'))
        slots = ops.searchsorted(distinct, flat)
        characters = self.characters_of(
            ops.minimum(distinct, self.vocab_size - 1)
        )
        if number is None:  # a graph of any shape
            vectors = self.read(characters[:count])
        else:
            sizes = {
                min(self.vocab_size, math.ceil(share * number))
                for share in SHARES
            }
            vectors = self._read_first(characters, count, sorted(sizes))
        shape = (*ops.shape(ids), self.embedding_width)
        return ops.reshape(ops.take(vectors, slots, axis=0), shape)

    def _read_first(
        self, characters: Tensor, count: Tensor, sizes: Sequence[int]
    ) -> Tensor:
        """Reads at least the first `count` of the tokens [n, C].

        Shapes are static: as many tokens are read as the first of the sizes
        that is enough, and the rest of [last size, E] is zeros.
        """
        size, *larger = sizes

        def read() -> Tensor:
            short = sizes[-1] - size
            return ops.pad(self.read(characters[:size]), ((0, short), (0, 0)))

        if not larger:
            return read()
        return ops.cond(
            ops.less_equal(count, size),
            read,
            lambda: self._read_first(characters, count, larger),
        )

    def characters_of(self, ids: Tensor) -> Tensor:
        """Looks up the characters of ids [n] -> [n, C] int32, see `spelled`."""
        table = ops.convert_to_tensor(self.spelling())
        return ops.cast(ops.take(table, ids, axis=0), 'int32')

    def read(self, characters: Tensor) -> Tensor:
        """Computes vectors from characters: [n, C] -> [n, E] float32."""
        x = ops.take(self.character_table, characters, axis=0)
        # A deviation of 0.55 as published, at any width.
        x = ops.cast(x * math.sqrt(self.width), self.compute_dtype)
        features = []
        for size, kernel in enumerate(self.filter_kernels, 1):
            count = characters.shape[1] - size + 1
            windows = ops.concatenate(
                [x[:, i : i + count] for i in range(size)], axis=-1
            )  # [n, count, size times a character]
            y = project(windows, ops.cast(kernel, x.dtype))
            features.append(ops.max(y, axis=1))
        x = ops.concatenate(features, axis=-1)  # [n, F]
        x = ops.relu(with_bias(x, self.filter_bias))
        for i in range(self.highways):
            kernel, bias = self.highway_weights[i]
            gate, y = ops.split(
                with_bias(project(x, ops.cast(kernel, x.dtype)), bias),
                2,
                axis=-1,
            )
            # Closed at first: the input passes unchanged.
            gate = ops.sigmoid(gate - 2.0)
            x = gate * ops.relu(y) + (1.0 - gate) * x
        x = project(x, ops.cast(self.projection_kernel, x.dtype))
        return ops.cast(with_bias(x, self.projection_bias), 'float32')

    def start(self, ids: Tensor) -> list[Tensor]:
        """Overrides `Recurrence.start`: both directions read the same."""
        return [ops.cast(self.lookup(ids), self.compute_dtype)] * 2
