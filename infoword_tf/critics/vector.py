"""Critics of one vector a text, whose f is a product.

    f(a, b) = side(v(a), query) . side(v(b), passage)

v is what the layer of the critic's head makes of mean states. A critic of its
own says what the head is, and perhaps `side`: a squared distance is a product,
too, where queries have other numbers than passages.

Shapes: J examples of a sequence, S texts of an example, N = B J, n texts, F
numbers of v, G numbers of a side.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from infoword_tf.config import Config
from infoword_tf.critics.critic import Critic, RoleMethods
from infoword_tf.critics.form import Compared
from infoword_tf.layers.pooling import of_texts, pool, real_places
from infoword_tf.lazy import ops
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads


class VectorCritic(Critic):
    """A product of vectors."""

    of_vectors = True
    similarity: ClassVar[str | None] = 'dot'
    has_dims = False
    lacks = {
        'queue': (), 'momentum': (), 'dims': (), 'expand': (),
    }  # fmt: skip

    @classmethod
    def side(cls, layer: Any, vectors: Tensor, role: str) -> Tensor:
        """Returns vectors of a role, whose products are scores.

        Args:
            layer: the head.
            vectors: v, [n, F] float32.
            role: name in config.ROLES.

        Returns:
            [n, G] float32.
        """
        del layer, role
        return vectors

    @classmethod
    def reads(cls, settings: Mapping[str, Any]) -> Reads:
        """Implements `Critic.reads`."""
        del settings
        return Reads('text')

    @classmethod
    def takes_lookup(cls, settings: Mapping[str, Any]) -> bool:
        """Implements `Critic.takes_lookup`: means need no context."""
        del settings
        return True

    @classmethod
    def answer(cls) -> type[RoleMethods] | None:
        """Implements `Critic.answer`."""
        return HeadVectors

    @classmethod
    def joined(
        cls, outputs: Sequence[Mapping[str, np.ndarray]], config: Config,
        role: str | None,
    ) -> np.ndarray:  # fmt: skip
        """Implements `Critic.joined`."""
        del config, role
        return np.concatenate([batch['embeddings'] for batch in outputs])

    def pooled(self, batch: Any, texts: Compared, encoded: Any) -> Tensor:
        """Averages the states of all texts, [N S, D] float32."""
        del batch
        return pool(
            encoded.states, of_texts(texts.view.block_ids, texts.slots)
        )

    def finished(
        self, batch: Any, texts: Compared, pooled: Tensor, norm: Any = None
    ) -> Tensor:
        """Computes v, [N, S, F]."""
        del batch, texts, norm
        vectors = self.layer(ops.reshape(pooled, (-1, pooled.shape[-1])))
        shape = *ops.shape(pooled)[:-1], vectors.shape[-1]
        return ops.reshape(vectors, shape)

    def scores(
        self, a: Tensor, b: Tensor, width: int | None, key: Tensor | None
    ) -> Tensor:
        """Implements `Critic.scores`."""
        return super().scores(*self._sides(a, b), width, key)

    def paired(self, a: Tensor, b: Tensor, width: int | None) -> Tensor:
        """Implements `Critic.paired`."""
        return super().paired(*self._sides(a, b), width)

    def _sides(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return (
            self.side(self.layer, a, 'query'),
            self.side(self.layer, b, 'passage'),
        )


class HeadVectors(RoleMethods):
    """The vectors that the head of a workdir gives texts of a role.

    Methods of a `RolePredictor`, see `Critic.answer`.
    """

    critic: type[VectorCritic]

    @property
    def width(self) -> int:
        """G."""
        mean = np.zeros((1, self.workdir.encoder.width), np.float32)
        return self._of_means(mean, 'passage').shape[1]

    def _of_means(self, means: Tensor, role: str) -> Tensor:
        """Maps mean states [B, D] to vectors [B, G]."""
        return self.critic.side(self.layer, self.layer(means), role)

    def entries(self, ids: Tensor, lengths: Tensor, role: str) -> Any:
        """Implements `RolePredictor.entries`: one a text, [B, 1, G]."""
        import tensorflow as tf

        means = pool(self.states(ids, lengths), real_places(ids, lengths))
        return tf.RaggedTensor.from_row_lengths(
            self._of_means(means, role), tf.ones_like(lengths), validate=False
        )

    def outputs(self, entries: Any) -> dict[str, Tensor]:
        """Returns the output of a signature, [B, G]."""
        return {'embeddings': entries.flat_values}

    def expected(
        self, texts: Sequence[bytes], role: str
    ) -> dict[str, np.ndarray]:
        """Computes `outputs` of texts, to compare an export with."""
        return {'embeddings': self.encode(texts, role, progress=False)}

    def encode(
        self,
        texts: Sequence[str | bytes],
        role: str = 'passage',
        batch_size: int = 8,
        progress: bool = True,
    ) -> np.ndarray:
        """Computes vectors of texts, in order, whose products are scores.

        Args as of `LexicalWeights.encode`.

        Returns:
            float32 [n, G].
        """
        return self._joined(self._arrays(texts, role, batch_size, progress))

    def encode_tokenized(
        self,
        texts: Any,
        role: str = 'passage',
        batch_size: int = 8,
        progress: bool = False,
    ) -> np.ndarray:
        """Computes vectors as `encode` does, of texts that `tokenize` returned.

        By the weights as they are at each call.
        """
        return self._joined(self._arrays_of(texts, role, batch_size, progress))

    def _joined(self, arrays: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([np.zeros((0, self.width), np.float32), *arrays])
