"""A bidirectional LSTM that pools the states of each text of a row.

What Peters et al. 2018 (§3.2, §4) put over the mixed layers of a frozen
encoder: a text is the last state of each direction.

Glossary of shapes: R rows, T tokens of a row, P texts of a row, F width of what
is read, D width of a state.
"""

from typing import Any

from infoword_tf.layers.block import take
from infoword_tf.layers.pooling import of_texts
from infoword_tf.layers.recurrent import Recurrent, begins_anew
from infoword_tf.lazy import Layer, ops

Tensor = Any


class BiLstm(Layer):
    """Texts, laid out one after another in rows, -> 2 D each."""

    def __init__(self, width: int, dtype: Any = None, name: str = 'bilstm'):
        """Args: D of each direction; Keras dtype policy; of the layer."""
        super().__init__(dtype=dtype, name=name, autocast=False)
        self.left, self.right = (
            Recurrent('lstm', width, backward=backward, dtype=dtype, name=way)
            for way, backward in (('forward', False), ('backward', True))
        )

    def build(self, width: int) -> None:
        """Makes the weights; args: F."""
        self.left.build(width)
        self.right.build(width)
        self.built = True

    def call(
        self,
        x: Tensor,
        block_ids: Tensor,
        texts: int,
        key: Tensor | None = None,
    ) -> Tensor:
        """Reads every text.

        Args:
            block_ids: [R, T] int32: 0 to P - 1 by text; others are padding.
            texts: P. One that is nowhere comes to the first state of its row.

        Returns:
            [R, P, 2 D] float32: after each text's last token, and before its
            first.
        """
        x = ops.cast(x, self.compute_dtype)
        left, _ = self.left(x, None, begins_anew(block_ids), key)
        right, _ = self.right(x, None, begins_anew(block_ids, True), key)
        own = ops.cast(of_texts(block_ids, texts), 'int32')  # [R, P, T]
        first = ops.argmax(own, axis=-1)
        last = first + ops.maximum(ops.sum(own, axis=-1), 1) - 1
        ends = [take(left, last), take(right, ops.cast(first, 'int32'))]
        return ops.cast(ops.concatenate(ends, axis=-1), 'float32')
