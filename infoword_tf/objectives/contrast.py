"""Rows that compare vectors of whole texts.

    row  a                             b             candidates
    ict  document without a sentence   that sentence the batch, both ways

`ict` is the inverse cloze task (Lee et al. 2019, §4), which is Deep InfoMax
(Kong et al. 2019, §4) with a sentence as the n-gram. One encoder for both
views; f is the cosine times a learned scale.

Glossary of shapes: B texts, T tokens, M candidates, D width.
"""

from collections.abc import Mapping
from typing import Any

from keras import ops

from infoword_tf.layers.pooling import pool, unit
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import (
    Batch,
    Objective,
    Pool,
    Vector,
    gather_pool,
)
from infoword_tf.views import View

Tensor = Any
FIRST_SCALE, LARGEST_SCALE = 20.0, 100.0


def vector(settings: Mapping[str, Any]) -> Vector:
    """The mean with learned weights."""
    del settings
    return Vector('weighted', 'cosine', rank=2)


class SentenceContrast(Objective):
    """`ict`: which of the batch's sentences is missing from which document.

    Vectors are means of states with weights exp(w . h), w learned.
    """

    sides = ('passage', 'sentence')

    def build(self) -> None:
        """Makes w, 0 at first (the plain mean), and the scale of f."""
        width = self.encoder.width
        self.pooling_kernel = self.add_weight(
            shape=(width,),
            initializer='zeros',
            name='pooling_kernel',
            autocast=False,
        )
        self.log_scale = self.add_weight(
            shape=(), initializer='zeros', name='log_scale', autocast=False
        )
        self.built = True

    def vectors(self, view: View, states: Tensor) -> Tensor:
        """States [B, T, D] of a view -> [B, 1, D] float32 of length 1."""
        real = ops.equal(view.block_ids, 0)
        kernel = ops.convert_to_tensor(self.pooling_kernel)
        pooled = pool(states, real, kernel)
        return unit(pooled)[:, None]

    def candidates(self, batch: Batch) -> dict[str, Pool]:
        """The vectors of the global batch, by side."""
        return {
            side: gather_pool(
                batch.views[side],
                self.row,
                batch.replicas,
                batch.limit,
                self.vectors(batch.views[side], batch.states(side)),
            )
            for side in self.sides
        }

    def score(
        self, batch: Batch, candidates: dict[str, Pool]
    ) -> infonce.Outcome:
        """The mean of Eq. 1 from a to b and from b to a."""
        own = {
            side: self.vectors(batch.views[side], batch.states(side))[:, 0]
            for side in self.sides
        }
        scale = ops.minimum(
            FIRST_SCALE * ops.exp(self.log_scale), LARGEST_SCALE
        )
        positive = scale * ops.sum(own['passage'] * own['sentence'], axis=1)
        outcomes = []
        for query, answer in (self.sides, self.sides[::-1]):
            view, others = batch.views[answer], candidates[answer]
            targets = view.targets[self.row][:, 0]
            scores = ops.matmul(
                scale * own[query], ops.transpose(others.states)
            )  # [B, M]
            outcomes.append(
                infonce.contrast(
                    positive,
                    scores,
                    others.others(view.sequences),
                    ops.equal(others.ids[None, :], targets[:, None]),
                    view.weights[self.row][:, 0],
                    self.kl(batch.statistics),
                    drop_identical=True,
                    measured=view.measured[self.row][:, 0],
                )
            )
        return infonce.Outcome(
            *(0.5 * (x + y) for x, y in zip(*outcomes, strict=True))
        )
