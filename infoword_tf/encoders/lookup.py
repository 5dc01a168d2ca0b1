"""The cheapest encoder: the state of a token is its embedding.

It is g_omega of Skip-gram (Mikolov et al. 2013), and makes `ict` a bag of words
whose weights the row learns. With `weighted` each token of the vocabulary has a
learned factor, so that common tokens can count less in the mean of a text, and
special tokens nothing.

Glossary of shapes: P places.
"""

from infoword_tf.encoders.encoder import Encoded, Encoder, Inputs
from infoword_tf.layers import dropout
from infoword_tf.layers.attention import vector
from infoword_tf.layers.block import read_vectors, take
from infoword_tf.lazy import ops
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor


class Lookup(Encoder):
    """Embeddings with dropout; only ids change the states."""

    input_fields = ('ids', 'positions', 'segment_ids', 'block_ids')
    abilities = {'alone': {}, 'at_once': {}, 'own_vectors': {}, 'words': {}}
    width: int = setting(256, 'Width of the vectors.', at_least=1, flag='width')
    rate: float = setting(0.1, 'Dropout of single numbers.', at_least=0.0)
    weighted: bool = setting(False, 'Whether each token has a weight.')

    def build(self) -> None:
        """Makes the table, and the weights of tokens, initially 1."""
        self.make_embedding_table()
        if self.weighted:
            self.piece_weights = vector(
                self, 'piece_weights', self.vocab_size, 'ones'
            )

    def lookup(self, ids: Tensor) -> Tensor:
        """Overrides `Encoder.lookup`: reads no other vectors of the table."""
        return ops.cast(read_vectors(self.embedding_table, ids), 'float32')

    def call(
        self,
        inputs: Inputs,
        places: Tensor | None = None,
        key: Tensor | None = None,
        all_layers: bool | str = False,
    ) -> Encoded:
        """Encodes a view, see `Encoder.call`."""
        self.check_inputs(inputs)
        x = self.lookup(inputs.ids)  # [B, T, D]
        if self.weighted:
            x = x * ops.take(self.piece_weights, inputs.ids)[..., None]
        if key is not None and self.rate:
            mask = dropout.keep_mask(key, ops.shape(x), self.rate)
            x = ops.where(mask, x / (1 - self.rate), 0.0)
        x = ops.cast(x, self.compute_dtype)
        states = x if places is None else take(x, places)
        return Encoded(states, [x] if all_layers is True else [])
