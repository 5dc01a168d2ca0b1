"""A queue: vectors of earlier steps that are candidates too.

A row that contrasts encoded texts derives from `Queued`. It has two settings
then: the size of the queue, and a momentum encoder whose vectors fill it (He et
al. 2020, "MoCo"), so that old ones stay comparable.

The loss contrasts them, the bound does not: another encoder made them, and what
tells its vectors from those of this step would pass for information.

Glossary of shapes: B rows, J texts of each, N = B J, T tokens, M candidates, S
size of the queue, D width.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from infoword_tf.layers.queue_scores import QueueScores, queue_scores
from infoword_tf.lazy import ops
from infoword_tf.objectives.objective import (
    Batch,
    Objective,
    Pool,
    Ring,
    gather_pool,
    text_ids,
)
from infoword_tf.objectives.row import Companion
from infoword_tf.settings import setting
from infoword_tf.views import View

Tensor = Any
MOMENTUM = 'momentum'


class Queued(Objective):
    """A row whose candidates may be of earlier steps.

    Attributes:
        queued: how the names of each queue's state begin; a row has one queue
            for each kind of b.
    """

    queued: ClassVar[tuple[str, ...]] = ('',)
    queue: int = setting(
        0,
        'How many vectors of earlier steps the loss contrasts too; 0: none.',
        at_least=0,
    )
    momentum: float = setting(
        0.0,
        'Momentum of a second encoder whose vectors fill the queue (MoCo: '
        '0.999); 0: the encoder itself fills it.',
        at_least=0.0,
        at_most=1.0,
    )

    def build(self) -> None:
        """Complains of a momentum encoder that does nothing."""
        if self.momentum and not (self.queue or self.keys_are_positives):
            raise ValueError(
                f'--{self.row}.momentum={self.momentum:g} fills a queue, and '
                f'there is none; give --{self.row}.queue too'
            )
        self.built = True

    @property
    def keys_are_positives(self) -> bool:
        """Whether what the momentum encoder makes is b of its own step."""
        return False

    @property
    def key_width(self) -> int:
        """D of what is queued."""
        return self.encoder.width

    @property
    def ring(self) -> Ring:
        """A queue, as the encoder computes."""
        return Ring(self.queue, self.key_width, self.compute_dtype)

    def empty_state(self) -> dict[str, Tensor]:
        """Every queue, without a vector."""
        if not self.queue:
            return {}
        return {
            kind + name: array
            for kind in self.queued
            for name, array in self.ring.empty().items()
        }

    def behind(self, batch: Batch, pool: Pool, kind: str = '') -> Pool:
        """A pool of the batch, with what a queue of `queued` holds.

        Held-out text has no queue.
        """
        if not batch.state:
            return pool
        queue = self.ring.pool(self._queue_of(batch, kind))
        return pool._replace(earlier=queue)

    def among_earlier(
        self,
        batch: Batch,
        pool: Pool,
        queries: Tensor,
        targets: Tensor,
        **more: Any,
    ) -> QueueScores | None:
        """What the scores over a pool's queue come to; None: it has none.

        Args:
            batch: of the step.
            pool: as of `behind`.
            queries, targets: of `queue_scores`.
            **more: likewise, `sharpness` and `finish`.
        """
        if pool.earlier is None:
            return None
        earlier = pool.earlier
        return queue_scores(
            queries, earlier.states, earlier.ids, earlier.weights > 0,
            targets, key=batch.fused, **more,
        )  # fmt: skip

    def texts_of(self, view: View) -> tuple[Tensor, Tensor]:
        """Ids [B, T], and [B, J, T] bool: which are of each b in a row."""
        raise NotImplementedError

    def numbers(self, view: View) -> Tensor:
        """[N] int32, equal where b are: of a step alone, or of all."""
        if not self.queue:
            return ops.reshape(view.targets[self.row], (-1,))
        found = text_ids(*self.texts_of(view), view.positions)
        return ops.reshape(found, (-1,))

    def pooled(self, batch: Batch, view: View, vectors: Tensor) -> Pool:
        """Vectors [B, J, D] of the b of a view, of the global batch."""
        pool = gather_pool(
            view, self.row, batch.replicas, batch.limit, vectors
        )
        if not self.queue:
            return pool
        return pool._replace(ids=batch.replicas.gather(self.numbers(view)))

    def enqueued(
        self, batch: Batch, pool: Pool, kind: str = ''
    ) -> dict[str, Any]:
        """As `remember`, of one queue: with all of a pool in it."""
        found = self.ring.add(
            self._queue_of(batch, kind), pool.states, pool.ids, pool.weights
        )
        return {kind + name: array for name, array in found.items()}

    def _queue_of(self, batch: Batch, kind: str) -> dict[str, Tensor]:
        return {
            name.removeprefix(kind): array
            for name, array in batch.state.items()
            if name.startswith(kind)
        }


def companions(settings: Mapping[str, Any]) -> dict[str, Companion]:
    """What such a row brings along."""
    if not settings['momentum']:
        return {}
    return {MOMENTUM: Companion(momentum=settings['momentum'])}


def encoders(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Those that encode a view of b: the trained one, and the momentum one."""
    return ('encoder', MOMENTUM) if settings['momentum'] else ('encoder',)
