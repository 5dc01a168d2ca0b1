"""Critics f(a, b) of two texts, each of which is encoded by itself.

    critic    a text is                    f(a, b), times the temperature
    cosine    a vector                     the cosine
    late      vectors of its tokens        sum over tokens of a of the largest
                                           cosine with a token of b (ColBERT)
    lexical   weights of the vocabulary    the dot product (SPLADE)

a is the query, b the passage. A fourth, `cross`, encodes both together, see
cross.py. The cosine is in the file of each row, with all that is over a vector;
what else rows share is in comparing.py. To the candidates of a batch each
text is one array of F numbers, whichever critic compares them.

Shapes: J examples of a sequence, S texts of an example, N = B J, Ta, Tb tokens
of a and of b, W width of a token's vector.
"""

import string
from collections.abc import Mapping
from typing import Any

import numpy as np

from infoword_tf.config import RowConfig
from infoword_tf.layers.block import take
from infoword_tf.layers.late import late_scores, paired_scores
from infoword_tf.layers.pooling import unit
from infoword_tf.lazy import ops
from infoword_tf.views import Specials, View

Tensor = Any

HEAD = 'mlm'  # the row whose output transform lexical weights begin with
PUNCTUATION = tuple(string.punctuation)


def scoring(rows: Mapping[str, RowConfig]) -> list[str]:
    """Lists the rows of a workdir that give a pair of texts one number."""
    return [
        row
        for row in ('score', 'label')
        if row in rows and rows[row].settings.get('classes', 1) == 1
    ]


def counted(skipped: tuple[str, ...], tokens: Any, size: int) -> np.ndarray:
    """Returns which tokens of a vocabulary count, [V] bool.

    Args:
        skipped: spellings of those that do not.
        tokens: spellings of all, in the order of their ids; or none.
        size: V.
    """
    left_out = set(skipped)
    counts = np.ones(size, bool)
    counts[[i for i, token in enumerate(tokens) if token in left_out]] = False
    return counts


class Late:
    """Late interaction (Khattab & Zaharia 2020, "ColBERT", §3.2 and §3.3).

    A text is [L, W + 1] numbers: a vector of each token, and whether it counts.
    Of b what `LateConfig.skip` names does not count.
    """

    def __init__(
        self, layer: Any, skipped: tuple[str, ...], specials: Specials,
        lengths: tuple[int, int],
    ):  # fmt: skip
        """Sets the layer of vectors, tokens that b skips, and longest texts.

        `lengths` are those of a and b in tokens; 0: of any length.
        """
        self.layer, self.lengths = layer, lengths
        self.counts = counted(skipped, specials.tokens, specials.size)

    def limit(self, longest: tuple[int, int]) -> None:
        """Leaves out places at which no a, or no b, has a token.

        Args:
            longest: tokens of the longest a and b of all batches; 0: of any
                length.
        """
        self.lengths = tuple(
            min(filter(None, both), default=0)
            for both in zip(self.lengths, longest, strict=True)
        )

    def pooled(
        self, view: View, places: Tensor, states: Tensor, key: Tensor | None
    ) -> Tensor:
        """Computes vectors of the tokens of all texts, [N S, L W] float32.

        Args:
            view: of all texts.
            places: [B, J S] int32, where each text begins.
            states: [B, T, D].
            key: of dropout, not used.
        """
        del key
        at, _ = self._places(view, places)
        vectors = take(self.layer.projected(states), at)  # [B, J S L, W]
        texts = places.shape[1]
        size = at.shape[1] // texts * vectors.shape[2]
        return ops.reshape(vectors, (-1, size))

    def finished(
        self, view: View, places: Tensor, texts: Tensor, first: int = 0
    ) -> Tensor:
        """Normalizes vectors, and adds which count: [N, S, L (W + 1)].

        Args:
            view, places: as of `pooled`, of all texts.
            texts: [N, S, L W].
            first: which text of an example the first one is; 0: a, of which
                nothing is skipped.
        """
        n, count, _ = texts.shape
        at, real = self._places(view, places)
        ids = ops.take_along_axis(view.ids, at, axis=1)
        length = at.shape[1] // places.shape[1]
        real, ids = (ops.reshape(x, (-1, count, length)) for x in (real, ids))
        if not self.layer.first:
            real = real & (ops.arange(length) > 0)
        of_b = ops.arange(first, first + count)[:, None] > 0
        skipped = ops.logical_not(ops.take(self.counts, ids, axis=0))
        real = real & ops.logical_not(ops.logical_and(skipped, of_b))
        vectors = ops.reshape(texts, (-1, count, length, self.layer.width))
        both = ops.concatenate(
            [unit(vectors), ops.cast(real, 'float32')[..., None]], axis=3
        )
        return ops.reshape(both, (-1, count, length * (self.layer.width + 1)))

    def _places(self, view: View, places: Tensor) -> tuple[Tensor, Tensor]:
        """Returns places of all tokens of texts, and which are real.

        Returns:
            [B, J S L] int32, and bool.
        """
        width, texts = view.ids.shape[1], places.shape[1]
        longest = max(min(x or width, width) for x in self.lengths)  # L
        at = places[:, :, None] + ops.arange(longest, dtype='int32')
        inside = at < width
        at = ops.reshape(ops.minimum(at, width - 1), (-1, texts * longest))
        block = ops.take_along_axis(view.block_ids, at, axis=1)
        number = ops.repeat(ops.arange(texts, dtype='int32'), longest)
        real = ops.equal(block, number[None])
        inside = ops.reshape(inside, (-1, texts * longest))
        return at, ops.logical_and(real, inside)

    def part(self, texts: Tensor, width: int | None) -> Tensor:
        """Shortens vectors to the first `width` numbers, of length 1."""
        if width is None:
            return texts
        tokens = self._tokens(texts, self.layer.width)
        vectors = unit(tokens[..., :width])
        both = ops.concatenate([vectors, tokens[..., -1:]], axis=-1)
        shape = ops.shape(texts)[:-1]
        return ops.reshape(both, (*shape, tokens.shape[-2] * (width + 1)))

    @staticmethod
    def _tokens(texts: Tensor, width: int) -> Tensor:
        """Splits texts [..., L (W + 1)] into [..., L, W + 1]."""
        length = texts.shape[-1] // (width + 1)
        return ops.reshape(texts, (*ops.shape(texts)[:-1], length, width + 1))

    def _sides(
        self, a: Tensor, b: Tensor, width: int | None
    ) -> list[Tensor]:
        """Returns vectors and masks of a, then of b, without padding."""
        arrays = []
        for texts, most in zip((a, b), self.lengths, strict=True):
            width = width or self.layer.width
            tokens = self._tokens(texts, width)
            if 0 < most < tokens.shape[1]:
                tokens = tokens[:, :most]
            # Not slices, whose gradients are slow.
            vectors, counts = ops.split(tokens, [width], axis=-1)
            arrays += [vectors, counts[..., 0] > 0]
        return arrays

    def scores(
        self, a: Tensor, b: Tensor, width: int | None, key: Tensor | None
    ) -> Tensor:
        """Scores each a [N, F] against each b [M, F]: [N, M] float32.

        Args:
            width: of the vectors, as of `part`; None: W.
            key: None runs plain operations.
        """
        sides = self._sides(a, b, width)
        scores = late_scores(*sides, key=key)
        return scores / self._counts(sides[1])[:, None]

    def paired(self, a: Tensor, b: Tensor, width: int | None) -> Tensor:
        """Scores pairs of a [N, F] and b: [N]; as of `scores`."""
        sides = self._sides(a, b, width)
        return paired_scores(*sides) / self._counts(sides[1])

    def _counts(self, real: Tensor) -> Tensor:
        """Returns divisors of scores, [N]; real: [N, Ta] bool."""
        counts = ops.sum(ops.cast(real, 'float32'), axis=1)
        if not self.layer.mean:
            return ops.ones_like(counts)
        return ops.maximum(counts, 1.0)


class Weights:
    """Lexical vectors (Formal et al. 2021, "SPLADE v2", §3)."""

    def __init__(self, layer: Any):
        """Sets the layer of weights."""
        self.layer = layer

    def pooled(
        self, view: View, places: Tensor, states: Tensor, key: Tensor | None
    ) -> Tensor:
        """Computes the largest scores of all texts, [N S, V] float32.

        Args as of `Late.pooled`.
        """
        return self.layer.highest(
            states, view.ids, view.block_ids, places.shape[1], key
        )

    def finished(
        self, view: View, places: Tensor, texts: Tensor, first: int = 0
    ) -> Tensor:
        """Computes weights [N, S, V], 0 for a text without tokens."""
        del view, places, first
        return self.layer.weights_of(texts)

    def part(self, texts: Tensor, width: int | None) -> Tensor:
        """Returns the texts, which have no shorter form."""
        del width
        return texts

    def scores(
        self, a: Tensor, b: Tensor, width: int | None, key: Tensor | None
    ) -> Tensor:
        """Scores each a [N, V] against each b [M, V]: [N, M] float32."""
        del width, key
        return ops.matmul(a, ops.transpose(b))

    def paired(self, a: Tensor, b: Tensor, width: int | None) -> Tensor:
        """Scores pairs of a [N, V] and b: [N]."""
        del width
        return ops.sum(a * b, axis=1)


def flops(weights: Tensor, counts: Tensor) -> Tensor:
    """Estimates the products of a search (Paria et al. 2020, §4).

    The sum over the vocabulary of squared mean weights.

    Args:
        weights: [M, V], at least 0.
        counts: [M] float32, 0 for padding.

    Returns:
        A float32 scalar.
    """
    total = ops.maximum(ops.sum(counts), 1.0)
    mean = ops.matmul(counts[None], weights)[0] / total
    return ops.sum(ops.square(mean))
