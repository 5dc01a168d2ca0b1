"""Transformer-XL (Dai et al. 2019) and XLNet's two streams (Yang et al. 2019).

Blocks of relative attention over the states of this text and, with memory, of
the text before it. There is no absolute position, so a text may be of any
length. The content stream holds what a token is; the query stream, computed at
some places only, knows where a token is and what it may look at, not what it
is. Both share all weights.

Glossary of shapes: B rows, T tokens, M tokens of memory, Q places, D width,
L layers, V vocabulary.
"""

import math
from typing import Any, NamedTuple

from infoword_tf.encoders.encoder import ACTIVATION, Encoded, Encoder, Inputs
from infoword_tf.encoders.stack import blocks_of
from infoword_tf.layers import dropout
from infoword_tf.layers.attention import table
from infoword_tf.layers.block import take
from infoword_tf.layers.relative import (
    RelativeBlock,
    make_biases,
    sight,
    sinusoids,
)
from infoword_tf.lazy import ops
from infoword_tf.settings import setting

Tensor = Any


class Memory(NamedTuple):
    """States of the text before, which no gradient enters.

    Attributes:
        states: [L, B, M, D] in the compute dtype, what went into each block,
            oldest first.
        filled: [B] int32: how many of the last places hold something.
    """

    states: Tensor
    filled: Tensor


class RelativeTransformer(Encoder):
    """g_omega of `transformer_xl` and `plm`."""

    input_fields = (
        'ids', 'segment_ids', 'block_ids', 'ranks', 'sees', 'directions',
        'first',
        'first_places',
    )  # fmt: skip
    remembers = has_memory = True

    layers: int = setting(2, 'L.', at_least=1)
    heads: int = setting(2, 'H.', at_least=1)
    inner_width: int = setting(None, 'Feed-forward; 4 D.', kind=int)
    segments: int = setting(
        0,
        "2 for XLNet's relative segments, same and different, whatever the "
        'number of segment ids; 0 for none.',
    )
    causal: bool = setting(
        False,
        'Whether tokens see no later ones; there is no query stream then.',
    )
    untie: bool = setting(
        True,
        'Each layer has its own biases u, v and s instead of sharing them.',
        flag='untie',
    )
    clamp: int = setting(
        None,
        'Clip distances at this many tokens; by default they are not clipped.',
        at_least=1,
        kind=int,
        flag='clamp',
        free=True,
    )
    same_length: bool = setting(
        False,
        'Every token sees equally many before it, as many as the memory holds; '
        'of rows whose tokens see no later ones.',
        flag='same_length',
        free=True,
    )
    activation: str = ACTIVATION
    epsilon: float = setting(1e-12, 'Of every layer norm.')
    scale_embeddings: bool = setting(
        False,
        'Whether embeddings are multiplied by sqrt(D) (Transformer-XL).',
    )

    def make_blocks(self) -> None:
        """As `Encoder.make_blocks`."""
        if self.segments not in (0, 2):
            raise ValueError(
                f'segments are same and different, 2, or 0 for none, not '
                f'{self.segments}'
            )
        if self.same_length and not self.causal:
            raise ValueError('same_length needs causal')
        self.inner_width = self.inner_width or 4 * self.width
        self.blocks = blocks_of(
            self, self.layers, RelativeBlock, self, 'layer',
            segments=bool(self.segments), causal=self.causal,
            biases=self.untie,
        )  # fmt: skip

    def build(self) -> None:
        """As `Encoder.build`."""
        sizes = self.arguments
        self.make_embedding_table()
        if not sizes['causal']:
            self.mask_embedding = table(
                self, 'mask_embedding', 1, self.width
            )
        self.biases = None
        if not sizes['untie']:
            self.biases = make_biases(
                self,
                sizes['heads'],
                self.width // sizes['heads'],
                bool(sizes['segments']),
            )
        super().build()

    @property
    def query_weights(self) -> list[Any]:
        """As `Encoder.query_weights`."""
        return [] if self.causal else [self.mask_embedding]

    def empty_state(self, batch: int, length: int) -> Memory:
        """Memory of `length` tokens of which none is filled yet."""
        shape = (len(self.blocks), batch, length, self.width)
        return Memory(
            ops.zeros(shape, self.compute_dtype),
            ops.zeros((batch,), 'int32'),
        )

    def call(
        self,
        inputs: Inputs,
        places: Tensor | None = None,
        key: Tensor | None = None,
        all_layers: bool | str = False,
        state: Memory | None = None,
        advance: int | None = None,
        queries: bool = False,
    ) -> Encoded:
        """As `Encoder.call`.

        The memory is of segment 0, and seen by all blocks; the new one has
        the size of the one that was given, and of the first tokens takes
        those of all blocks.

        Raises:
            ValueError: what does not fit together, or this encoder.
        """
        self.check_inputs(inputs)
        ids, _, segment_ids, block_ids, ranks, sees, directions, *_ = inputs
        memory = state
        self._check(inputs, places, queries)
        length = ids.shape[1] or ops.shape(ids)[1]
        remembered = 0 if memory is None else memory.states.shape[2]
        if isinstance(length, int) and (advance or 0) > length:
            raise ValueError(
                f'{length} tokens, fewer than the {advance} that go on'
            )
        keys = dropout.keys_of(key, len(self.blocks) + 4)

        def drop(x: Tensor, site: int) -> Tensor:
            found = keys[len(self.blocks) + site]
            if not site:  # distances, which all rows share
                found = dropout.of_all(found)
            return dropout.drop(x, key=found, rate=self.rate)

        sizes = self.arguments
        rules = {
            'causal': sizes['causal'],
            'same_length': sizes['same_length'],
            'filled': memory.filled if remembered else None,
            'block_ids': block_ids,
            'ranks': ranks,
            'sees': sees,
            'segment_ids': segment_ids,
        }
        everywhere = sight(length, remembered, **rules)
        at_places = everywhere
        if places is not None:
            at_places = sight(
                length, remembered, places=places, queries=queries, **rules
            )
        distances = sinusoids(
            length,
            remembered,
            self.width,
            causal=sizes['causal'],
            clamp=sizes['clamp'],
            longest=sizes['max_length'],
        )
        distances = drop(ops.convert_to_tensor(distances), 0)
        x = self.lookup(ids)  # [B, T, D]
        if sizes['scale_embeddings']:
            x = x * math.sqrt(self.width)
        x = ops.cast(drop(x, 1), self.compute_dtype)
        x = self.entered(x, inputs)
        g = None
        if queries:
            shape = (*ops.shape(places)[:2], self.width)
            g = drop(ops.broadcast_to(self.mask_embedding, shape), 2)
            g = ops.cast(g, self.compute_dtype)
        below = []
        for i, block in enumerate(self.blocks):
            below.append(x)
            last = i == len(self.blocks) - 1 and all_layers is not True
            streams = [] if last and queries else [(x, everywhere)]
            if last and places is not None and not queries:
                streams = [(take(x, places), at_places)]
            if queries:
                streams.append((g, at_places))
            made = block(
                x,
                streams,
                distances,
                signs=directions,
                memory=memory.states[i] if remembered else None,
                biases=self.biases,
                key=keys[i],
            )
            x = made[0]
            g = made[-1]
        if all_layers is True and places is not None and not queries:
            g = take(x, places)
        states = drop(g, 3)
        layers = None
        if all_layers:
            layers = [*below, x] if all_layers is True else below
        return Encoded(
            states,
            layers,
            None if memory is None else self._remember(memory, below, advance),
        )

    def _check(
        self, inputs: Inputs, places: Tensor | None, queries: bool
    ) -> None:
        """Complains of arguments that do not fit."""
        if inputs.segment_ids is not None and not self.arguments['segments']:
            raise ValueError(
                'segment_ids for an encoder without segments: build it '
                'with segments=2'
            )
        if (inputs.ranks is None) != (inputs.sees is None):
            raise ValueError('ranks and sees go together: give both')
        if queries and places is None:
            raise ValueError('queries are computed at places: name places')
        if queries and self.arguments['causal']:
            raise ValueError('a causal encoder has no query stream')

    def _remember(
        self, memory: Memory, below: list[Tensor], advance: int | None
    ) -> Memory:
        """The last M of what was remembered and the first `advance` tokens.

        Args:
            below: what went into each block, [B, T, D].
        """
        size = memory.states.shape[2]
        if not size:
            return memory
        count = advance
        if advance is None:
            count = below[0].shape[1] or ops.shape(below[0])[1]
        states = []
        for i, x in enumerate(below):
            new = x[:, :count]
            if not isinstance(count, int) or count < size:
                old = memory.states[i, :, count:]
                new = ops.concatenate([old, new], axis=1)
            states.append(new[:, -size:])
        return Memory(
            ops.stop_gradient(ops.stack(states)),
            ops.minimum(memory.filled + count, size),
        )
