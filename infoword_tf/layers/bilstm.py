"""A bidirectional LSTM over the states of each text of a sequence.

Peters et al. 2018 (§3.2, §4) put it over the mixed layers of a frozen encoder:
a token has a state of each direction, and a text's vector is the last of each.

Glossary of shapes: J texts of a sequence, F width of the inputs.
"""

from typing import Any

from infoword_tf.layers.block import take
from infoword_tf.layers.pooling import of_texts
from infoword_tf.layers.recurrent import Recurrent, begins_anew
from infoword_tf.lazy import Layer, ops
from infoword_tf.tensors import Tensor


class BiLstm(Layer):
    """A layer that maps texts, packed into sequences, to vectors [2 D]."""

    def __init__(self, width: int, dtype: Any = None, name: str = 'bilstm'):
        """Sets D of each direction, the dtype policy, and the layer's name."""
        super().__init__(dtype=dtype, name=name, autocast=False)
        self.left, self.right = (
            Recurrent('lstm', width, backward=backward, dtype=dtype, name=way)
            for way, backward in (('forward', False), ('backward', True))
        )

    def build(self, width: int) -> None:
        """Makes the weights for inputs of width F."""
        self.left.build(width)
        self.right.build(width)

    def directions(
        self, x: Tensor, block_ids: Tensor, key: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Computes the states of both directions, [B, T, D] each.

        `x`, `block_ids` and `key` as of `call`.
        """
        x = ops.cast(x, self.compute_dtype)
        left, _ = self.left(x, None, begins_anew(block_ids), key)
        right, _ = self.right(x, None, begins_anew(block_ids, True), key)
        return left, right

    def call(
        self,
        x: Tensor,
        block_ids: Tensor,
        texts: int,
        key: Tensor | None = None,
    ) -> Tensor:
        """Reads every text.

        Args:
            x: [B, T, F].
            block_ids: [B, T] int32: 0 to J - 1 by text; others are padding.
            texts: J. A text without tokens gets the first state of the
                sequence.

        Returns:
            [B, J, 2 D] float32: the left direction's state at each text's last
            token, the right direction's at the first.
        """
        left, right = self.directions(x, block_ids, key)
        tokens = ops.cast(of_texts(block_ids, texts), 'int32')  # [B, J, T]
        first = ops.argmax(tokens, axis=-1)
        last = first + ops.maximum(ops.sum(tokens, axis=-1), 1) - 1
        ends = [take(left, last), take(right, ops.cast(first, 'int32'))]
        return ops.cast(ops.concatenate(ends, axis=-1), 'float32')
