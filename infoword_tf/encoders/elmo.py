"""ELMo's encoder (Peters et al. 2018): characters, LSTMs of both directions.

A piece is read by its characters, whatever its number: convolutions over them,
highway layers, a projection (Kim et al. 2016). Over pieces go layers of LSTM
with projected states (Sak et al. 2014), one from the left and one from the
right, which never meet: what stands in a state of the left half has not read
what comes later. From the second layer on each adds to what it reads.

    layer 0     [e, e]            e of the characters, D / 2 wide
    layer i     [left, right]     states of both directions

All as in allenai/bilm-tf, its characters too, but for dropout by key.

Glossary of shapes: B rows, T tokens, Q places, N = B T, C characters of a
piece, F filters, D width, P = D / 2 of a direction, H cells, L layers,
V vocabulary.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from infoword_tf.encoders.encoder import Encoded, Encoder, Inputs
from infoword_tf.encoders.rnn import (
    check_advance,
    encoded,
    of_layer,
    stacked,
)
from infoword_tf.layers import dropout
from infoword_tf.layers.attention import project
from infoword_tf.layers.block import matrix, vector
from infoword_tf.layers.fused import with_bias
from infoword_tf.layers.recurrent import Recurrent, begins_anew
from infoword_tf.lazy import Layer, ops
from infoword_tf.settings import setting
from infoword_tf.views import Specials

Tensor = Any
CHARACTERS = 262  # 256 bytes and five marks, from 1 on; 0 is no word's
# Of a text, of a piece, and what follows a piece.
TEXT_BEGIN, TEXT_END, BEGIN, END, PADDING = 257, 258, 259, 260, 261
FILTERS = (32, 32, 64, 128, 256, 512, 1024)  # of 1 to 7 characters, at 1,024
PUBLISHED_WIDTH = 1024
# Shares of a batch's tokens, for the first of which that holds all distinct
# pieces the characters are read.
SHARES = (0.25, 0.375, 0.5, 1.0)


def spelled(
    specials: Specials, longest: int = 50, reach: int = len(FILTERS)
) -> np.ndarray:
    """The characters of every piece: [V, C] int16.

    Its bytes in UTF-8, each + 1, between two marks; of one with more than
    `longest` - 2 bytes the first ones. [CLS] and [SEP] are the marks where a
    text begins and ends. Where pieces are unknown, as in a model without a
    tokenizer, they are spelled as their numbers.

    C is no more than the longest piece and `reach` need: all that a filter
    finds beyond is padding, which it has found once then.

    Args:
        specials: of the vocabulary.
        longest: characters of a piece, marks among them.
        reach: characters of the longest filter.
    """
    pieces = specials.pieces or map(str, range(specials.size))
    marks = {specials.cls_id: TEXT_BEGIN, specials.sep_id: TEXT_END}
    found = [
        [marks[i]]
        if i in marks
        else [byte + 1 for byte in piece.encode()[: longest - 2]]
        for i, piece in enumerate(pieces)
    ]
    most = min(longest, 2 + max(map(len, found)) + reach)
    table = np.full((len(found), most), PADDING, np.int16)
    for row, characters in zip(table, found, strict=True):
        row[: len(characters) + 2] = [BEGIN, *characters, END]
    return table


class Directions(Layer):
    """A layer of both directions."""

    def __init__(
        self, width: int, cells: int, clip: float | None, residual: bool,
        dtype: Any = None, name: str = 'layer',
    ):  # fmt: skip
        """Args: P, H, as of `Recurrent`; whether it adds to what it reads."""
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
        self.built = True

    def call(
        self,
        left: Tensor,
        right: Tensor,
        state: dict[str, Tensor] | None = None,
        keeps: tuple[Tensor | None, Tensor | None] = (None, None),
        key: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Runs it.

        Args:
            left, right: [B, T, P], what each direction reads.
            state: of the left one, before the first token.
            keeps: of each, see `Recurrent`.
            key: [2] uint32, or None for inference.

        Returns:
            The same of the layer; the state of the left one after the last.
        """
        new_left, new = self.left(left, state, keeps[0], key)
        new_right, _ = self.right(right, None, keeps[1], key)
        if self.residual:
            new_left, new_right = left + new_left, right + new_right
        return new_left, new_right, new


class Elmo(Encoder):
    """g_omega of `elmo`."""

    input_fields = ('ids', 'block_ids')
    remembers = True

    layers: int = setting(2, 'L.', at_least=1)
    width: int = setting(1024, 'D, both directions; even.', at_least=1)
    inner_width: int = setting(None, 'H; 4 D.', kind=int)
    characters: int = setting(50, 'The longest C, with two marks.')
    character_width: int = setting(16, "Of a character's embedding.")
    filters: list = setting(
        None,
        'How many of 1, 2, 3, ... characters; the published ones in the '
        'proportion of the width to 1,024.',
        kind=list,
    )
    highways: int = setting(2, 'Layers behind them.')
    clip: float = setting(
        3.0, 'The largest number in a cell or a projected state.'
    )

    def make_blocks(self) -> None:
        """As `Encoder.make_blocks`."""
        width = self.width
        if width % 2:
            raise ValueError(f'width {width} is shared by two directions: '
                             'take an even one')  # fmt: skip
        self.filters = list(
            self.filters
            or (max(1, n * width // PUBLISHED_WIDTH) for n in FILTERS)
        )
        if len(self.filters) > self.characters:
            raise ValueError(
                f'filters of {len(self.filters)} characters, but a piece has '
                f'{self.characters}'
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
        self.spell(Specials(-1, -1, -1, self.vocab_size))

    @property
    def embedding_width(self) -> int:
        """P: the characters of a piece give a vector of each direction."""
        return self.width // 2

    def spell(self, specials: Specials) -> None:
        """As `Encoder.spell`: what the characters of each piece are."""
        self.spelling = functools.cache(
            lambda: spelled(specials, self.characters, len(self.filters))
        )

    def build(self) -> None:
        """As `Encoder.build`."""
        sizes = self.arguments
        size, filters = sizes['character_width'], sizes['filters']
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
            for i in range(sizes['highways'])
        ]
        self.projection_kernel = matrix(
            self, 'projection_kernel', total, self.embedding_width
        )
        self.projection_bias = vector(
            self, 'projection_bias', self.embedding_width
        )
        super().build()

    def empty_state(self, batch: int, length: int = 0) -> dict[str, Tensor]:
        """Of rows that have read nothing from the left: [L, B, ...]."""
        del length
        return stacked([block.left.empty_state(batch) for block in self.blocks])

    @property
    def embedding_table(self) -> Tensor:
        """[V, P] float32: every piece by its characters, and nothing else."""
        return self.lookup(np.arange(self.vocab_size, dtype='int32'))

    def lookup(self, ids: Tensor) -> Tensor:
        """ids [...] -> by their characters [..., P] float32.

        Each piece is read once, however often it is there.
        """
        flat = ops.reshape(ids, (-1,))
        number = flat.shape[0]
        # Ascending, each once, then V.
        ordered = ops.sort(flat)
        first = ops.not_equal(ordered[1:], ordered[:-1])
        first = ops.pad(first, ((1, 0),), constant_values=True)
        pieces = ops.sort(ops.where(first, ordered, self.vocab_size))
        count = ops.sum(ops.cast(first, 'int32'))
        slots = ops.searchsorted(pieces, flat)
        characters = self.characters_of(
            ops.minimum(pieces, self.vocab_size - 1)
        )
        if number is None:  # a graph of any shape
            vectors = self.read(characters[:count])
        else:
            sizes = {
                min(self.vocab_size, math.ceil(share * number))
                for share in SHARES
            }
            vectors = self._read_some(characters, count, sorted(sizes))
        shape = (*ops.shape(ids), self.embedding_width)
        return ops.reshape(ops.take(vectors, slots, axis=0), shape)

    def _read_some(
        self, characters: Tensor, count: Tensor, sizes: Sequence[int]
    ) -> Tensor:
        """`read` of the first `count` of [N, C] at least.

        Shapes are static: the first of the sizes that is enough is computed,
        and what is left of [the last one, P] is zeros.
        """
        size, *larger = sizes

        def read() -> Tensor:
            short = sizes[-1] - size
            found = self.read(characters[:size])
            return ops.pad(found, ((0, short), (0, 0)))

        if not larger:
            return read()
        return ops.cond(
            ops.less_equal(count, size),
            read,
            lambda: self._read_some(characters, count, larger),
        )

    def characters_of(self, ids: Tensor) -> Tensor:
        """ids [N] -> [N, C] int32, see `spelled`."""
        table = ops.convert_to_tensor(self.spelling())
        return ops.cast(ops.take(table, ids, axis=0), 'int32')

    def read(self, characters: Tensor) -> Tensor:
        """[N, C] -> [N, P] float32: each piece by its characters."""
        sizes = self.arguments
        x = ops.take(self.character_table, characters, axis=0)
        # As large as published, of deviation 0.55, at any width.
        x = ops.cast(x * math.sqrt(self.width), self.compute_dtype)
        found = []
        for n, kernel in enumerate(self.filter_kernels, 1):
            places = characters.shape[1] - n + 1
            beside = ops.concatenate(
                [x[:, i : i + places] for i in range(n)], axis=-1
            )  # [N, places, n times a character]
            y = project(beside, ops.cast(kernel, x.dtype))
            found.append(ops.max(y, axis=1))
        x = ops.concatenate(found, axis=-1)  # [N, F]
        x = ops.relu(with_bias(x, self.filter_bias))
        for i in range(sizes['highways']):
            kernel, bias = self.highway_weights[i]
            gate, y = ops.split(
                with_bias(project(x, ops.cast(kernel, x.dtype)), bias),
                2,
                axis=-1,
            )
            # Closed at first: what comes is carried on.
            gate = ops.sigmoid(gate - 2.0)
            x = gate * ops.relu(y) + (1.0 - gate) * x
        x = project(x, ops.cast(self.projection_kernel, x.dtype))
        return ops.cast(with_bias(x, self.projection_bias), 'float32')

    def call(
        self,
        inputs: Inputs,
        places: Tensor | None = None,
        key: Tensor | None = None,
        all_layers: bool | str = False,
        state: dict[str, Tensor] | None = None,
        advance: int | None = None,
    ) -> Encoded:
        """As `Encoder.call`. A block of a row is a text by itself.

        The left direction goes on from the state; the right one begins at the
        end of each row: what follows is not known yet. (bilm reads another
        text from the right, whose end is the beginning of its next step.)

        Raises:
            ValueError: as of `Rnn.call`.
        """
        self.check_inputs(inputs)
        check_advance(inputs.ids, advance)
        keys = dropout.keys_of(key, 2 * len(self.blocks) + 1)
        keeps = tuple(
            begins_anew(inputs.block_ids, backward)
            for backward in (False, True)
        )
        left = right = ops.cast(self.lookup(inputs.ids), self.compute_dtype)
        layers, new = [ops.concatenate([left, right], axis=-1)], []
        for i, block in enumerate(self.blocks):
            left, right, own = block(
                dropout.drop(left, key=keys[2 * i], rate=self.rate),
                dropout.drop(right, key=keys[2 * i + 1], rate=self.rate),
                None if state is None else of_layer(state, i),
                keeps,
                key,
            )
            layers.append(ops.concatenate([left, right], axis=-1))
            new.append(own)
        if state is not None:
            state = stacked(new)
        key = keys[-1]
        return encoded(layers, places, key, self.rate, all_layers, state)
