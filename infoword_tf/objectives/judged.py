"""Rows whose b is what a reranker says of the texts of a pair.

    row          a                   b                      loss
    soft_margin  pair and negatives  the teacher's margins  (m - q(b) + q(n))^2
    soft_order   pair and negatives  its order of b and n   T^2 KL(p || q)

p are scores of the teacher, which reads a text a with b or a negative n at
once, m = p(b) - p(n); q those of `simcse`, whichever critic it has, which is
built with these rows, if necessary with weight 0. Margins are as of Hofstätter
et al. 2020 ("Improving efficient neural ranking models with cross-architecture
knowledge distillation", §3), the mean over negatives. `soft_order` compares
distributions over b and the negatives of the example itself. Neither bounds
anything.

The teacher scores all pairs once, before training begins (training/guide.py).

Shapes: J examples of a sequence, S texts of an example, N = B J.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from infoword_tf.critics import CRITICS
from infoword_tf.errors import InputError
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.infonce import NEVER
from infoword_tf.objectives.objective import (
    Batch,
    Objective,
    Row,
    vector_of_init,
)
from infoword_tf.objectives.sentence_texts import (
    VIEW,
    sentence_numbers,
    source_of,
)
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads
from infoword_tf.views.sentences import SETTINGS

SCORER = 'simcse'


class Judged(Objective):
    """A row that compares scores of pairs with a teacher's."""

    bounded = False
    pairs: int = SETTINGS['pairs']
    teacher: str = setting(
        '',
        'Workdir of the reranker, of any vocabulary: its score of a with each '
        'other text of an example of --pairs.',
        model=True,
    )

    @classmethod
    def check_settings(
        cls, row: str, rows: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Refuses a row without a teacher, or without negatives.

        Also a student that encodes both texts at once.
        """
        if not rows[row]['teacher']:
            raise InputError(
                'no_reranker',
                f'{row} learns from a reranker; name its workdir with '
                f'--{row}.teacher',
            )
        if rows[row]['pairs'] < 3:
            raise InputError(
                'no_negatives_to_judge',
                f'{row} compares b with negatives, and --pairs has none; find '
                'some with tasks.mine',
            )
        critic = rows[SCORER]['critic']
        if CRITICS[critic].of_pairs:
            raise InputError(
                'reranker_taught',
                f'{row} teaches a model that encodes each text alone; choose '
                f'another --{SCORER}.critic than {critic}',
            )

    @property
    def needs_whole_batch(self) -> bool:
        """True if the student's scores are behind norms over the batch."""
        return self.scorer.form.normed

    def both(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Returns scores of teacher and student, and which are real.

        Returns:
            [N, S - 1] each, float32 and bool; b first.
        """
        view = batch.views[VIEW]
        teacher = ops.cast(view.guides[self.row], 'float32')
        teacher = ops.reshape(teacher[..., 0], (-1, teacher.shape[2]))[:, 1:]
        real = sentence_numbers(view, self.row)[:, 1:] >= 0
        return teacher, self.scorer.own_scores(batch.scorer_batch), real

    def outcome(
        self, batch: Batch, loss: Tensor, scores: tuple[Tensor, ...]
    ) -> infonce.Outcome:
        """Sums a loss [N]; right is an order like the teacher's at the top."""
        *both, real = scores
        best = [ops.argmax(ops.where(real, x, NEVER), axis=1) for x in both]
        right = ops.equal(*best)
        weights = ops.reshape(batch.views[VIEW].weights[self.row], (-1,))
        return infonce.unbounded(loss, weights, ops.cast(right, 'float32'))


class Margins(Judged):
    """`soft_margin`: how far margins between b and negatives are from a
    teacher's.

    Learns: the differences that a reranker makes, with any critic.
    Take it: to make a fast model for search from a slow one.
    Needs: pairs with negatives (tasks.mine), and a reranker.
    Example: python -m infoword_tf.train --objectives=simcse:0,soft_margin:1
        --soft_margin.teacher=RERANKER --pairs=mined.jsonl --init=W --workdir=V
    """

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Computes squared differences, the mean over negatives."""
        teacher, student, real = scores = self.both(batch)
        margins = [x[:, :1] - x[:, 1:] for x in (teacher, student)]
        counts = ops.cast(real[:, 1:], 'float32')
        squares = counts * ops.square(margins[1] - margins[0])
        total = ops.maximum(ops.sum(counts, axis=1), 1.0)
        return self.outcome(batch, ops.sum(squares, axis=1) / total, scores)


class Order(Judged):
    """`soft_order`: how far the order of b and negatives is from a teacher's.

    Learns: as `soft_margin`, the order more than the differences.
    Take it: where examples have several negatives.
    Needs: as `soft_margin`.
    Example: python -m infoword_tf.train --objectives=simcse:0,soft_order:1
        --soft_order.teacher=RERANKER --pairs=mined.jsonl --init=W --workdir=V
    """

    temperature: float = setting(
        1.0,
        'Distillation temperature: the scores of both models are divided by '
        'it.',
        at_least=1e-6,
    )

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Computes KL divergences over the texts of each example."""
        teacher, student, real = scores = self.both(batch)
        log_p, log_q = (
            ops.log_softmax(ops.where(real, x / self.temperature, NEVER), -1)
            for x in (teacher, student)
        )
        terms = ops.exp(log_p) * (log_p - log_q)
        loss = ops.sum(ops.where(real, terms, 0.0), axis=1)
        return self.outcome(batch, self.temperature**2 * loss, scores)


def _reads(settings: Mapping[str, Any]) -> Reads:
    return Reads('example', encoders=(), source=source_of(settings))


SOFT_MARGIN = Row(
    objective=Margins,
    a='pair and negatives',
    b="a reranker's margins",
    relation='how much more relevant b is to a larger model (MarginMSE)',
    candidates='none: a distance, without a bound',
    views={VIEW: _reads},
    vector=vector_of_init,
    scored_by=SCORER,
)
SOFT_ORDER = dataclasses.replace(
    SOFT_MARGIN,
    objective=Order,
    b="a reranker's order",
    relation='how relevant a larger model finds each text',
    candidates='none: a divergence, without a bound',
)
