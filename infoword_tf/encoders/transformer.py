"""BERT's encoder (Devlin et al. 2019): embeddings and post-norm blocks.

Glossary of shapes: B batch, T tokens, Q places, D width, L layers,
V vocabulary.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from infoword_tf.layers import dropout, fused
from infoword_tf.layers.block import Block, take

Tensor = Any


class Encoded(NamedTuple):
    """What every encoder returns.

    Attributes:
        states: [B, Q, D] at the places asked for, [B, T, D] without places.
        layers: all states [B, T, D], embeddings first (L + 1 of them), or
            None where they were not asked for.
        memory: the new memory of encoders that have one, else None.
    """

    states: Tensor
    layers: list[Tensor] | None = None
    memory: Tensor | None = None


class Transformer(keras.layers.Layer):
    """g_omega of BERT, BERT-NCE and InfoWord."""

    def __init__(
        self,
        vocab_size: int,
        layers: int,
        width: int,
        heads: int,
        hidden: int | None = None,
        max_length: int = 512,
        segments: int = 2,
        rate: float = 0.1,
        gelu: str = 'tanh',
        epsilon: float = 1e-12,
        dtype: Any = None,
        name: str = 'encoder',
    ):
        """Sets the sizes; `build()` makes the weights.

        Args:
            vocab_size: V.
            layers: L.
            width: D.
            heads: H.
            hidden: inner width of the feed-forward, 4 D by default.
            max_length: positions.
            segments: kinds of segment.
            rate: dropout of states and of attention weights.
            gelu: 'tanh' (Google's BERT) or 'erf' (Hugging Face's).
            epsilon: of every layer norm.
            dtype: Keras dtype policy, such as 'mixed_bfloat16'.
            name: first part of every weight's path.

        Raises:
            ValueError: sizes that do not fit together.
        """
        super().__init__(dtype=dtype, name=name)
        if gelu not in ('tanh', 'erf'):
            raise ValueError(f"gelu is 'tanh' or 'erf', not {gelu!r}")
        self.arguments = {
            'vocab_size': vocab_size,
            'layers': layers,
            'width': width,
            'heads': heads,
            'hidden': hidden or 4 * width,
            'max_length': max_length,
            'segments': segments,
            'rate': rate,
            'gelu': gelu,
            'epsilon': epsilon,
        }
        self.width, self.max_length = width, max_length
        self.rate, self.epsilon = rate, epsilon
        self.blocks = [
            Block(
                width,
                heads,
                hidden or 4 * width,
                rate,
                gelu,
                epsilon,
                dtype=dtype,
                name=f'layer_{i}',
            )
            for i in range(layers)
        ]

    def build(self) -> None:
        """Makes the weights, each under an explicit path."""
        sizes = self.arguments

        def weight(name: str, *shape: int, initializer: str = 'zeros') -> Any:
            return self.add_weight(
                shape=shape, initializer=initializer, name=name, autocast=False
            )

        self.words = weight('word_embeddings', sizes['vocab_size'], self.width)
        self.position_table = weight(
            'position_embeddings', self.max_length, self.width
        )
        self.segment_table = weight(
            'segment_embeddings', sizes['segments'], self.width
        )
        self.gamma = weight('norm_gamma', self.width, initializer='ones')
        self.beta = weight('norm_beta', self.width)
        for block in self.blocks:
            block.build()
        self.built = True

    def lookup(self, ids: Tensor) -> Tensor:
        """g_psi of the lookup rows: ids [...] -> input embeddings [..., D].

        float32, since scores are.
        """
        return ops.take(self.words, ids, axis=0)

    def call(
        self,
        ids: Tensor,
        positions: Tensor | None = None,
        segment_ids: Tensor | None = None,
        block_ids: Tensor | None = None,
        places: Tensor | None = None,
        key: Tensor | None = None,
        all_layers: bool = False,
    ) -> Encoded:
        """Encodes a view.

        Args:
            ids: [B, T] int32.
            positions: [B, T] int32; None: 0, 1, 2, ...
            segment_ids: [B, T] int32; None: all 0.
            block_ids: [B, T] int32: tokens see tokens of their own block
                (packed rows; padding is a block of its own); None: one block.
            places: [B, Q] int32: where states are wanted; the last block then
                computes these alone. None: everywhere.
            key: [2] uint32 for dropout, or None for inference.
            all_layers: whether to return every layer's states too.

        Returns:
            `Encoded`; states in the compute dtype.

        Raises:
            ValueError: T beyond the positions.
        """
        length = ids.shape[1]
        if length is not None and positions is None:
            if length > self.max_length:
                raise ValueError(
                    f'{length} tokens a sequence, but the encoder has '
                    f'{self.max_length} positions'
                )
        x = self.lookup(ids)  # [B, T, D]
        if positions is None:
            x = x + self.position_table[: ops.shape(ids)[1]]
        else:
            x = x + ops.take(self.position_table, positions, axis=0)
        if segment_ids is None:
            x = x + self.segment_table[0]
        else:
            x = x + ops.take(self.segment_table, segment_ids, axis=0)
        keys = [None] * (len(self.blocks) + 1) if key is None else [
            dropout.fold_in(key, site) for site in range(len(self.blocks) + 1)
        ]
        x = fused.norm(
            x,
            self.gamma,
            self.beta,
            epsilon=self.epsilon,
            dtype=self.compute_dtype,
            key=keys[-1],
            rate=self.rate,
        )
        allowed = None
        if block_ids is not None:
            allowed = ops.equal(
                block_ids[:, None, :, None], block_ids[:, None, None, :]
            )  # [B, 1, T, T]
        layers = [x]
        for i, block in enumerate(self.blocks):
            last = i == len(self.blocks) - 1 and not all_layers
            x = block(
                x,
                allowed=allowed,
                places=places if last else None,
                key=keys[i],
            )
            layers.append(x)
        if all_layers:
            states = x if places is None else take(x, places)
            return Encoded(states, layers)
        return Encoded(x)
