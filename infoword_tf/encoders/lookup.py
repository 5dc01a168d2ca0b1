"""The cheapest encoder: every token is its own embedding, whatever is around.

g_omega of Skip-gram (Mikolov et al. 2013), and of `ict` a bag of words whose
weights the row learns. See `transformer.Encoded`.

Glossary of shapes: B batch, T tokens, Q places, D width, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from infoword_tf.encoders.transformer import Encoded
from infoword_tf.layers import dropout
from infoword_tf.layers.block import take

Tensor = Any


class Lookup(keras.layers.Layer):
    """Embeddings alone, with dropout."""

    def __init__(
        self,
        vocab_size: int,
        width: int = 256,
        max_length: int = 512,
        rate: float = 0.1,
        dtype: Any = None,
        name: str = 'encoder',
    ):
        """Sets the sizes; `build()` makes the weights.

        Args:
            vocab_size: V.
            width: D.
            max_length: the longest text, though nothing here has a length.
            rate: dropout of single numbers.
            dtype: Keras dtype policy.
            name: first part of every weight's path.
        """
        super().__init__(dtype=dtype, name=name)
        self.arguments = {
            'vocab_size': vocab_size,
            'width': width,
            'max_length': max_length,
            'rate': rate,
        }
        self.width, self.rate = width, rate

    def build(self) -> None:
        """Makes the table."""
        self.words = self.add_weight(
            shape=(self.arguments['vocab_size'], self.width),
            initializer='zeros',
            name='word_embeddings',
            autocast=False,
        )
        self.built = True

    def lookup(self, ids: Tensor) -> Tensor:
        """ids [...] -> embeddings [..., D] float32."""
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
        """As `Transformer`; only ids and places change the states."""
        x = self.lookup(ids)  # [B, T, D]
        if key is not None and self.rate:
            kept = dropout.keep_mask(key, ops.shape(x), self.rate)
            x = ops.where(kept, x / (1 - self.rate), 0.0)
        x = ops.cast(x, self.compute_dtype)
        states = x if places is None else take(x, places)
        return Encoded(states, [x] if all_layers else None)
