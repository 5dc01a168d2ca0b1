"""BERT's output transform before the scores of a vocabulary.

A dense layer, GELU or the encoder's activation, and a norm
(google-research/bert, run_pretraining), and a bias of each token.

Glossary of shapes: E width of embeddings.
"""

from typing import Any

from infoword_tf.layers import pointwise
from infoword_tf.layers.attention import matrix, project, vector
from infoword_tf.lazy import ops

Tensor = Any


class Transformed:
    """A layer that may have the transform.

    Attributes:
        encoder: whose states are transformed, and whose sizes decide.
        transform_activation: in layers.pointwise.FORMS; None: the encoder's.
        token_bias: [V] float32.
    """

    encoder: Any
    transform_activation: str | None = None

    def make_transform(self) -> None:
        """Makes the weights; with biases where the encoder has biases."""
        d, e = self.encoder.width, self.encoder.embedding_width
        self.kernel = matrix(self, 'kernel', d, e)
        self.gamma = vector(self, 'norm_gamma', e, 'ones')
        self.bias = self.beta = None
        if self.encoder.biased:
            self.bias = vector(self, 'bias', e)
            self.beta = vector(self, 'norm_beta', e)
        self.token_bias = vector(self, 'piece_bias', self.encoder.vocab_size)

    def transformed(self, x: Tensor, key: Tensor | None = None) -> Tensor:
        """Applies the transform: x [..., D] -> [..., E].

        Args:
            x: states in the compute dtype.
            key: None runs plain operations.
        """
        sizes = self.encoder.arguments
        x = pointwise.bias_gelu(
            project(x, ops.cast(self.kernel, x.dtype)),
            self.bias,
            form=self.transform_activation or sizes['activation'],
            key=key,
        )
        return pointwise.norm(
            x,
            self.gamma,
            self.beta,
            epsilon=sizes['epsilon'],
            dtype=self.compute_dtype,
            key=key,
        )
