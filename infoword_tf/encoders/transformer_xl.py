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

import keras
from keras import ops

from infoword_tf.encoders.transformer import Encoded
from infoword_tf.layers import dropout, fused
from infoword_tf.layers.block import take
from infoword_tf.layers.relative import (
    RelativeBlock,
    make_biases,
    sight,
    sinusoids,
)

Tensor = Any
ACTIVATIONS = ('gelu_tanh', 'gelu_erf', 'relu')


class Memory(NamedTuple):
    """States of the text before, which no gradient enters.

    Attributes:
        states: [L, B, M, D] in the compute dtype, what went into each block,
            oldest first.
        filled: [B] int32: how many of the last places hold something.
    """

    states: Tensor
    filled: Tensor


class TransformerXL(keras.layers.Layer):
    """g_omega of `transformer_xl` and `plm`."""

    def __init__(
        self,
        vocab_size: int,
        layers: int,
        width: int,
        heads: int,
        hidden: int | None = None,
        max_length: int = 512,
        segments: int = 0,
        causal: bool = False,
        untie: bool = True,
        clamp: int = -1,
        same_length: bool = False,
        rate: float = 0.1,
        activation: str = 'gelu_tanh',
        epsilon: float = 1e-12,
        scale_embeddings: bool = False,
        dtype: Any = None,
        name: str = 'encoder',
    ):
        """Sets the sizes; `build()` makes the weights.

        Args:
            vocab_size: V.
            layers: L.
            width: D, even.
            heads: H.
            hidden: inner width of the feed-forward, 4 D by default.
            max_length: the longest text where T is not known beforehand, as
                in an export; elsewhere nothing here has a length.
            segments: 2 for XLNet's relative segments, same and different,
                whatever the number of segment ids; 0 for none.
            causal: whether tokens see no later ones; there is no query stream
                then.
            untie: whether each layer has biases u, v, s of its own.
            clamp: the largest distance, farther ones are like it; -1: none.
            same_length: whether each token sees but the M places before it,
                as if the text went on for ever; needs `causal`.
            rate: dropout of states, distances and attention weights.
            activation: 'gelu_tanh' (XLNet), 'gelu_erf' (Hugging Face's
                XLNet) or 'relu' (Transformer-XL).
            epsilon: of every layer norm.
            scale_embeddings: whether they are multiplied by sqrt(D)
                (Transformer-XL).
            dtype: Keras dtype policy.
            name: first part of every weight's path.

        Raises:
            ValueError: sizes or choices that do not fit together.
        """
        super().__init__(dtype=dtype, name=name)
        if activation not in ACTIVATIONS:
            raise ValueError(
                f'activation is one of {", ".join(ACTIVATIONS)}, not '
                f'{activation!r}'
            )
        if segments not in (0, 2):
            raise ValueError(
                f'segments are same and different, 2, or 0 for none, not '
                f'{segments}'
            )
        if same_length and not causal:
            raise ValueError('same_length needs causal')
        self.arguments = {
            'vocab_size': vocab_size,
            'layers': layers,
            'width': width,
            'heads': heads,
            'hidden': hidden or 4 * width,
            'max_length': max_length,
            'segments': segments,
            'causal': causal,
            'untie': untie,
            'clamp': clamp,
            'same_length': same_length,
            'rate': rate,
            'activation': activation,
            'epsilon': epsilon,
            'scale_embeddings': scale_embeddings,
        }
        self.width, self.rate = width, rate
        self.blocks = [
            RelativeBlock(
                width,
                heads,
                hidden or 4 * width,
                rate,
                activation,
                epsilon,
                segments=bool(segments),
                causal=causal,
                biases=untie,
                dtype=dtype,
                name=f'layer_{i}',
            )
            for i in range(layers)
        ]

    def build(self) -> None:
        """Makes the weights, each under an explicit path."""
        sizes = self.arguments
        self.words = self.add_weight(
            shape=(sizes['vocab_size'], self.width),
            initializer='zeros',
            name='word_embeddings',
            autocast=False,
        )
        if not sizes['causal']:
            self.mask_embedding = self.add_weight(
                shape=(1, self.width),
                initializer='zeros',
                name='mask_embedding',
                autocast=False,
            )
        self.biases = None
        if not sizes['untie']:
            self.biases = make_biases(
                self,
                sizes['heads'],
                self.width // sizes['heads'],
                bool(sizes['segments']),
            )
        for block in self.blocks:
            block.build()
        self.built = True

    def lookup(self, ids: Tensor) -> Tensor:
        """g_psi of the lookup rows: ids [...] -> input embeddings [..., D].

        float32, since scores are.
        """
        return ops.take(self.words, ids, axis=0)

    def empty_memory(self, batch: int, length: int) -> Memory:
        """Memory of `length` tokens of which none is filled yet."""
        shape = (len(self.blocks), batch, length, self.width)
        return Memory(
            ops.zeros(shape, self.compute_dtype),
            ops.zeros((batch,), 'int32'),
        )

    def call(
        self,
        ids: Tensor,
        positions: Tensor | None = None,
        segment_ids: Tensor | None = None,
        block_ids: Tensor | None = None,
        places: Tensor | None = None,
        key: Tensor | None = None,
        all_layers: bool = False,
        memory: Memory | None = None,
        keep: int | None = None,
        ranks: Tensor | None = None,
        sees: Tensor | None = None,
        directions: Tensor | None = None,
        queries: bool = False,
    ) -> Encoded:
        """Encodes a view.

        Args:
            ids: [B, T] int32.
            positions: None: there is no absolute position.
            segment_ids: [B, T] int32; None: all 0. The memory is of segment 0.
            block_ids: [B, T] int32: tokens see tokens of their own block, and
                the memory (packed rows; padding is a block of its own); None:
                one block.
            places: [B, Q] int32: where states are wanted; the last block then
                computes these alone. None: everywhere.
            key: [2] uint32 for dropout, or None for inference.
            all_layers: whether to return every layer's content states too.
            memory: of the text before; None: there is none.
            keep: how many of the first tokens the new memory takes (XLNet's
                reuse); None: all. Those of other blocks than the first too.
            ranks, sees: [B, T] int32: token i sees j where
                sees[i] > ranks[j], and always itself; a query by the former
                alone. None: all see all, queries all but their own places.
            directions: [B] int32, -1 for rows whose text is reversed, so that
                distances are those of the text; None: all 1.
            queries: whether states of the query stream are wanted, at
                `places`.

        Returns:
            `Encoded`; states in the compute dtype. Its memory has the size of
            the one that was given.

        Raises:
            ValueError: arguments that do not fit together or this encoder.
        """
        self._check(positions, segment_ids, places, ranks, sees, queries)
        length = ids.shape[1] or ops.shape(ids)[1]
        remembered = 0 if memory is None else memory.states.shape[2]
        if keep is not None and isinstance(length, int) and keep > length:
            raise ValueError(f'{length} tokens, of which {keep} are to be kept')
        keys = [
            None if key is None else dropout.fold_in(key, site)
            for site in range(len(self.blocks) + 4)
        ]

        def drop(x: Tensor, site: int) -> Tensor:
            found = keys[len(self.blocks) + site]
            return fused.drop(x, key=found, rate=self.rate)

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
        whole = sight(length, remembered, **rules)
        chosen = whole
        if places is not None:
            chosen = sight(
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
        g = None
        if queries:
            shape = (*ops.shape(places)[:2], self.width)
            g = drop(ops.broadcast_to(self.mask_embedding, shape), 2)
            g = ops.cast(g, self.compute_dtype)
        inputs = []
        for i, block in enumerate(self.blocks):
            inputs.append(x)
            last = i == len(self.blocks) - 1 and not all_layers
            asking = [] if last and queries else [(x, whole)]
            if last and places is not None and not queries:
                asking = [(take(x, places), chosen)]
            if queries:
                asking.append((g, chosen))
            made = block(
                x,
                asking,
                distances,
                signs=directions,
                memory=memory.states[i] if remembered else None,
                biases=self.biases,
                key=keys[i],
            )
            x = made[0]
            g = made[-1]
        if all_layers and places is not None and not queries:
            g = take(x, places)
        states = drop(g, 3)
        return Encoded(
            states,
            [*inputs, x] if all_layers else None,
            None if memory is None else self._remember(memory, inputs, keep),
        )

    def _check(self, positions, segment_ids, places, ranks, sees, queries):
        """Complains of arguments that do not fit."""
        if positions is not None:
            raise ValueError(
                'transformer_xl knows distances alone: it takes no positions'
            )
        if segment_ids is not None and not self.arguments['segments']:
            raise ValueError(
                'segment_ids for a transformer_xl without segments: build it '
                'with segments=2'
            )
        if (ranks is None) != (sees is None):
            raise ValueError('ranks and sees go together')
        if queries and places is None:
            raise ValueError('queries are computed at places: give some')
        if queries and self.arguments['causal']:
            raise ValueError('a causal transformer_xl has no query stream')

    def _remember(
        self, memory: Memory, inputs: list[Tensor], keep: int | None
    ) -> Memory:
        """The last M of what was remembered and the first `keep` tokens.

        Args:
            inputs: of each block, [B, T, D].
        """
        size = memory.states.shape[2]
        if not size:
            return memory
        count = keep
        if keep is None:
            count = inputs[0].shape[1] or ops.shape(inputs[0])[1]
        states = []
        for i, x in enumerate(inputs):
            new = x[:, :count]
            if not isinstance(count, int) or count < size:
                old = memory.states[i, :, count:]
                new = ops.concatenate([old, new], axis=1)
            states.append(new[:, -size:])
        return Memory(
            ops.stop_gradient(ops.stack(states)),
            ops.minimum(memory.filled + count, size),
        )
