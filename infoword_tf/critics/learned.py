"""The cosine of `ict`: vectors are means of states with learned weights.

The weights are exp(w . h), w learned. With `words` each text has a second part,
the mean of word vectors e from another table, with weights exp(w' . e) a / (a +
p), where rare tokens weigh most; f is the mean of the cosines of both parts,
times a learned scale.

Shapes: J texts of a sequence, N = B J, W width of `words`, F = D + W.
"""

from collections.abc import Mapping
from typing import Any

from infoword_tf.critics.cosine import Cosine
from infoword_tf.critics.form import Compared
from infoword_tf.layers.attention import table, vector
from infoword_tf.layers.pooling import about_unit, of_texts, pool, rarity, unit
from infoword_tf.lazy import ops
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor

FIRST_SCALE, LARGEST_SCALE = 20.0, 100.0
_AROUND = -1e4  # exp of it is 0; above infonce.NEVER


class LearnedCosine(Cosine):
    """The cosine of documents and sentences, of the row `ict`.

    Attributes:
        pooling_kernel: w, [D].
        word_embeddings, word_kernel: e [V, W] and w' [W], with `words`.
    """

    words: int = setting(
        0,
        'Width of an additional table of word vectors; their weighted mean is '
        "appended to a text's vector; 0: none.",
        at_least=0,
    )

    @classmethod
    def takes_lookup(cls, settings: Mapping[str, Any]) -> bool:
        """Implements `Critic.takes_lookup`."""
        del settings
        return True

    @classmethod
    def vector(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Implements `Critic.vector`: pools with learned weights."""
        return {'pooling': 'words' if settings['words'] else 'weighted'}

    def build(self) -> None:
        """Makes w, 0 at first (the plain mean), and the scale of the cosine."""
        row, width = self.row, self.row.encoder.width
        self.pooling_kernel = vector(row, 'pooling_kernel', width)
        self.log_scale = table(row, 'log_scale')
        if self.words:
            self.word_embeddings = table(
                row, 'word_embeddings', row.specials.size, self.words
            )
            self.word_kernel = vector(row, 'word_kernel', self.words)
            self.prefixes = (width,)

    @property
    def poolings(self) -> dict[str, list[Any]]:
        """Learned poolings, with all weights."""
        weights = [self.pooling_kernel]
        if not self.words:
            return {'weighted': weights}
        more = [self.word_embeddings, self.word_kernel]
        return {'weighted': weights, 'words': [*weights, *more]}

    @property
    def key_width(self) -> int:
        """D + W."""
        return self.row.encoder.width + self.words

    def text_vectors(
        self, ids: Tensor, real: Tensor, states: Tensor, counts: Any
    ) -> Tensor:
        """Computes a vector for each text, to be compared by cosine.

        Args:
            ids: [B, T] int32.
            real: [B, T] bool, False for padding, or [B, J, T], see `pool`.
            states: [B, T, D] of the encoder.
            counts: [V], how often each token is in the training text.

        Returns:
            [N, D + W] float32: with `words` both parts of length 1.
        """
        kernel = ops.convert_to_tensor(self.pooling_kernel)
        vectors = pool(states, real, kernel)
        if not self.words:
            return vectors
        prior, specials = rarity(counts), self.row.specials
        # [CLS] and [SEP] are no words: they weigh nothing compared with words,
        # but count in an empty text.
        prior[[specials.cls_id, specials.sep_id]] = _AROUND
        table = ops.convert_to_tensor(self.word_embeddings)
        words = pool(
            ops.take(table, ids, axis=0),
            real,
            ops.convert_to_tensor(self.word_kernel),
            ops.take(ops.convert_to_tensor(prior), ids, axis=0),
        )
        return ops.concatenate([about_unit(vectors), about_unit(words)], axis=1)

    def pooled(self, batch: Any, texts: Compared, encoded: Any) -> Tensor:
        """Computes [N, D + W] of length 1."""
        view = texts.view
        real = of_texts(view.block_ids, texts.slots)
        return unit(
            self.text_vectors(
                view.ids, real, encoded.states, batch.statistics.training
            )
        )

    def finished(
        self, batch: Any, texts: Compared, pooled: Tensor, norm: Any = None
    ) -> Tensor:
        """Returns the vectors, which have length 1."""
        del batch, texts, norm
        return pooled

    def part(self, texts: Tensor, width: int | None) -> Tensor:
        """Returns the part of the states, of length 1, or the whole."""
        return texts if width is None else unit(texts[..., :width])

    @property
    def scale(self) -> Tensor:
        """Learned factor of cosines."""
        return ops.minimum(
            FIRST_SCALE * ops.exp(self.log_scale), LARGEST_SCALE
        )

    def of_queue(
        self, temperature: float, width: int | None
    ) -> dict[str, Any]:
        """Implements `Critic.of_queue`."""
        del temperature
        whole = width is None
        return {'finish': None if whole else lambda x: self.part(x, width)}
