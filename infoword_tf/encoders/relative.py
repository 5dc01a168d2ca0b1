"""Transformer-XL (Dai et al. 2019) and XLNet's two streams (Yang et al. 2019).

Blocks of relative attention over the states of this text and, with memory, of
the text before. Positions are relative, so a text may have any length. States
of the content stream depend on their token; those of the query stream, computed
at the requested places alone, on its position and on the tokens that it may
attend to. Both share all weights. The memory has K - T tokens.

Glossary of shapes: P places.
"""

import math
from typing import Any, NamedTuple

from infoword_tf import errors
from infoword_tf.encoders.encoder import (
    ACTIVATION,
    Encoded,
    Encoder,
    Inputs,
    blocks_of,
)
from infoword_tf.layers import dropout
from infoword_tf.layers.attention import table
from infoword_tf.layers.block import take
from infoword_tf.layers.relative import (
    RelativeBlock,
    Rules,
    Sight,
    make_biases,
    sinusoids,
)
from infoword_tf.lazy import ops
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor


class Memory(NamedTuple):
    """States of the text before, without a gradient.

    Attributes:
        states: [L, B, K - T, D] in the compute dtype, inputs of each block,
            oldest first.
        filled: [B] int32: how many of the last states are of tokens.
    """

    states: Tensor
    filled: Tensor


class RelativeTransformer(Encoder):
    """Transformer-XL and XLNet: g_omega of `transformer_xl` and `plm`."""

    input_fields = (
        'ids', 'segment_ids', 'block_ids', 'ranks', 'sees', 'directions',
        'first',
        'first_places',
    )  # fmt: skip
    abilities = {
        'attention': {},
        'at_once': {},
        'both_sides': {'causal': False},
        'causal': {'causal': True},
        'memory': {},
        'queries': {'segments': 2, 'causal': False},
        'words': {},
    }
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
        """Overrides `Encoder.make_blocks`."""
        if self.segments not in (0, 2):
            raise errors.InputError(
                'unknown_segment_count',
                f'segments are same and different, 2, or 0 for none, not '
                f'{self.segments}',
            )
        if self.same_length and not self.causal:
            raise errors.InputError(
                'same_length_needs_causal', 'same_length needs causal'
            )
        self.inner_width = self.inner_width or 4 * self.width
        self.blocks = blocks_of(
            self, self.layers, RelativeBlock, layer=self, name='layer',
            segments=bool(self.segments), causal=self.causal,
            biases=self.untie,
        )  # fmt: skip

    def build(self) -> None:
        """Overrides `Encoder.build`."""
        self.make_embedding_table()
        if not self.causal:
            self.mask_embedding = table(self, 'mask_embedding', 1, self.width)
        self.biases = None
        if not self.untie:
            self.biases = make_biases(
                self, self.heads, self.width // self.heads, bool(self.segments)
            )
        super().build()

    @property
    def query_weights(self) -> list[Any]:
        """Weights of the query stream, see `Encoder.query_weights`."""
        return [] if self.causal else [self.mask_embedding]

    def empty_state(self, batch: int, length: int) -> Memory:
        """Returns a memory of `length` tokens, none filled."""
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
        """Encodes a view, see `Encoder.call`.

        The memory is of segment 0, and all blocks attend to it. The new memory
        has the size of `state`, and takes the first tokens of all blocks.

        Raises:
            ValueError: arguments that do not fit together, or this encoder.
        """
        self.check_inputs(inputs)
        self._check(inputs, places, queries)
        memory = state
        if memory is not None and not memory.states.shape[2]:
            memory = None
        length = inputs.ids.shape[1] or ops.shape(inputs.ids)[1]
        if isinstance(length, int) and (advance or 0) > length:
            raise errors.InputError(
                'advance_beyond_text',
                f'{length} tokens, fewer than the {advance} that go on',
            )
        keys = dropout.keys_of(key, len(self.blocks) + 4)
        *keys, distances_key, x_key, g_key, last_key = keys

        def drop(x: Tensor, key: Tensor | None) -> Tensor:
            return dropout.drop(x, key=key, rate=self.rate)

        everywhere, at_places = self._sights(
            inputs, length, memory, places=places, queries=queries
        )
        distances = self._distances(length, memory)
        # All sequences share the distances.
        distances = drop(distances, dropout.of_all(distances_key))
        x = self.lookup(inputs.ids)  # [B, T, D]
        if self.scale_embeddings:
            x = x * math.sqrt(self.width)
        x = ops.cast(drop(x, x_key), self.compute_dtype)
        x = self.put_first(x, inputs)
        g = None
        if queries:
            shape = (*ops.shape(places)[:2], self.width)
            g = drop(ops.broadcast_to(self.mask_embedding, shape), g_key)
            g = ops.cast(g, self.compute_dtype)
        below = []
        for i, block in enumerate(self.blocks):
            below.append(x)
            is_last = i == len(self.blocks) - 1 and all_layers is not True
            streams = [] if is_last and queries else [(x, everywhere)]
            if is_last and places is not None and not queries:
                streams = [(take(x, places), at_places)]
            if queries:
                streams.append((g, at_places))
            outputs = block(
                x,
                streams,
                distances,
                signs=inputs.directions,
                memory=None if memory is None else memory.states[i],
                biases=self.biases,
                key=keys[i],
            )
            x, g = outputs[0], outputs[-1]
        if all_layers is True and places is not None and not queries:
            g = take(x, places)
        layers = []
        if all_layers:
            layers = [*below, x] if all_layers is True else below
        if memory is not None:
            state = self._new_memory(memory, below, advance)
        return Encoded(drop(g, last_key), layers, state)

    def _distances(self, length: Any, memory: Memory | None) -> Tensor:
        """Returns the sinusoids [S, D] of all distances."""
        distances = sinusoids(
            length,
            0 if memory is None else memory.states.shape[2],
            self.width,
            causal=self.causal,
            clamp=self.clamp,
            longest=self.max_length,
        )
        return ops.convert_to_tensor(distances)

    def _sights(
        self,
        inputs: Inputs,
        length: Any,
        memory: Memory | None,
        *,
        places: Tensor | None,
        queries: bool,
    ) -> tuple[Sight, Sight]:
        """Returns the masks of all tokens, and of tokens at places."""
        rules = Rules(
            length,
            0 if memory is None else memory.states.shape[2],
            causal=self.causal,
            same_length=self.same_length,
            filled=None if memory is None else memory.filled,
            block_ids=inputs.block_ids,
            ranks=inputs.ranks,
            sees=inputs.sees,
            segment_ids=inputs.segment_ids,
        )
        everywhere = rules.sight()
        if places is None:
            return everywhere, everywhere
        return everywhere, rules.sight(places, queries)

    def _check(
        self, inputs: Inputs, places: Tensor | None, queries: bool
    ) -> None:
        """Raises if arguments do not fit together."""
        if (inputs.ranks is None) != (inputs.sees is None):
            raise errors.InputError(
                'ranks_without_sees', 'ranks and sees go together: give both'
            )
        if queries and places is None:
            raise errors.InputError(
                'queries_without_places',
                'queries are computed at places: name places',
            )
        if queries and self.causal:
            raise errors.InputError(
                'causal_queries', 'a causal encoder has no query stream'
            )

    def _new_memory(
        self, memory: Memory, below: list[Tensor], advance: int | None
    ) -> Memory:
        """Returns the last states of the memory and the first `advance` tokens.

        Args:
            below: inputs of each block, [B, T, D].
        """
        size = memory.states.shape[2]
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
