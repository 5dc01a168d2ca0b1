"""Counts of b, which decide where mutual information is zero."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from infoword_tf.lazy import ops
from infoword_tf.objectives.infonce import Marginal
from infoword_tf.tensors import Tensor


class Statistics(NamedTuple):
    """Counts of each token; of special tokens only of [UNK].

    Attributes:
        training: [V] counts of the training text.
        measured: [V] counts of the text that the batch is from: the training
            text, or the held-out text.
        answers: by row, the commonest b among the measured pairs, where they
            are known beforehand (held-out text).
        by_row: by row, counts of b that are no tokens of the corpus: of
            classes, say, or of tokens of other texts.
    """

    training: np.ndarray
    measured: np.ndarray
    answers: Mapping[str, int] = {}
    by_row: Mapping[str, 'Statistics'] = {}

    def of(self, row: str) -> 'Statistics':
        """Returns the counts of a row's b: `by_row`, or else of tokens."""
        return self.by_row.get(row, self)

    @property
    def p(self) -> np.ndarray:
        """[V] float64, p(b) of the measured text."""
        return self.measured / max(1, self.measured.sum())

    @property
    def expected(self) -> np.ndarray:
        """[V] float64, p(b) as estimated from the training text.

        One is added to each count: a token that never occurred there may
        still come.
        """
        return (self.training + 1) / (self.training.sum() + len(self.training))

    def marginal(
        self,
        row: str,
        targets: Tensor,
        q: np.ndarray | None = None,
        drawn: Tensor | None = None,
        inclusion: np.ndarray | None = None,
    ) -> Marginal:
        """Computes the MI that targets have for a critic without a text.

        That is log p(b) / q(b), the zero of MI; the MI of the frequencies of
        the training text; and whether the best guess without a is right. This
        guess is the most frequent token. If each token is a candidate with a
        probability w, it is the token of the highest p / w.
        (Not of p / q: a copy of b is no wrong answer, and for many draws w is
        far from proportional to q.)

        Args:
            row: whose targets they are.
            targets: [N] int32.
            q: [V], what candidates are drawn from; None: from p(b), where
                the zero is 0: no score of b alone has an MI above it.
            drawn: [n, M] int32, the draws from q that N / n pairs each, one
                after the other, have for candidates; -1 for no draw. None:
                all tokens are candidates, or those of the batch.
            inclusion: [V], w; None: of M draws, each from q.

        Returns:
            [N] float32 each, or scalars.
        """
        # What is not counted (separators) is never measured, but stays finite.
        known = np.where(self.measured > 0, self.p, 1.0)
        if drawn is None:
            answer = self.answers.get(row, int(np.argmax(self.measured)))
            right = ops.equal(targets, answer)
        else:
            if inclusion is None:
                inclusion = 1 - (1 - q) ** drawn.shape[1]
            order = np.argsort(np.argsort(self.p / inclusion, kind='stable'))
            order = ops.convert_to_tensor(order.astype('int32'))
            others = ops.take(order, ops.maximum(drawn, 0))
            others = ops.max(ops.where(drawn < 0, -1, others), axis=1)
            of_b = ops.reshape(ops.take(order, targets), (drawn.shape[0], -1))
            # Equal are copies of b alone, which are no wrong answers.
            right = ops.greater_equal(of_b, others[:, None])
        chance = ops.cast(ops.reshape(right, (-1,)), 'float32')
        if q is None:
            return Marginal(0.0, 0.0, chance)
        logs = np.stack([np.log(known / q), np.log(self.expected / known)])
        logs = ops.take(logs.astype('float32'), targets, axis=1)
        return Marginal(logs[0], logs[1], chance)
