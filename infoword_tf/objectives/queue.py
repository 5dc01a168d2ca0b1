"""A queue: vectors of earlier steps as further candidates of the loss.

A row that contrasts encoded texts derives from `Queued`. It has two settings
then: the size of the queue, and a momentum encoder whose vectors fill it (He et
al. 2020, "MoCo"), so that old vectors stay comparable.

The bound leaves the queue out: another encoder made its vectors, and a critic
that tells the two encoders apart would seem to have information.

Shapes: J texts of a sequence, N = B J.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from infoword_tf.errors import InputError
from infoword_tf.layers.queue_scores import QueueScores, queue_scores
from infoword_tf.lazy import ops
from infoword_tf.objectives.candidates import Pool, Ring, gather_pool, text_ids
from infoword_tf.objectives.objective import Auxiliary, Batch, Objective
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import View

MOMENTUM = 'momentum'


class Queued(Objective):
    """A row whose candidates may be of earlier steps.

    Attributes:
        queues: prefixes of the names of each queue's state; a row has one
            queue for each kind of b.
    """

    queues: ClassVar[tuple[str, ...]] = ('',)
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

    @classmethod
    def check_settings(
        cls, row: str, rows: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Refuses a momentum encoder without a queue to fill."""
        settings = rows[row]
        momentum, queue = settings['momentum'], settings['queue']
        if momentum and not (queue or cls.makes_positives(settings)):
            raise InputError(
                'momentum_without_queue',
                f'--{row}.momentum={momentum:g} fills a queue, and there is '
                f'none; give --{row}.queue too',
            )

    @classmethod
    def makes_positives(cls, settings: Mapping[str, Any]) -> bool:
        """Tells whether the momentum encoder makes the b of each step."""
        del settings
        return False

    @property
    def key_width(self) -> int:
        """D of the queue's vectors."""
        return self.encoder.width

    @property
    def ring(self) -> Ring:
        """A queue in the encoder's compute dtype."""
        return Ring(self.queue, self.key_width, self.compute_dtype)

    def empty_state(self) -> dict[str, Tensor]:
        """Creates the queues, without a vector."""
        if not self.queue:
            return {}
        return {
            kind + name: array
            for kind in self.queues
            for name, array in self.ring.empty().items()
        }

    def with_queue(self, batch: Batch, pool: Pool, kind: str = '') -> Pool:
        """Adds a queue of `queues` to a pool, as `Pool.earlier`.

        Held-out text has no queue.
        """
        if not (self.queue and batch.state):
            return pool
        queue = self.ring.pool(self._queue_of(batch, kind))
        return pool._replace(earlier=queue)

    def score_queue(
        self,
        batch: Batch,
        pool: Pool,
        queries: Tensor,
        targets: Tensor,
        **more: Any,
    ) -> QueueScores | None:
        """Sums the scores over a pool's queue; None without a queue.

        Args:
            batch: input of the step.
            pool: result of `with_queue`.
            queries, targets: arguments of `queue_scores`.
            **more: likewise, `sharpness` and `finish`.
        """
        if pool.earlier is None:
            return None
        earlier = pool.earlier
        return queue_scores(
            queries, earlier.states, earlier.ids, earlier.weights > 0,
            targets=targets, key=batch.fused_key, **more,
        )  # fmt: skip

    def tokens_of_texts(self, view: View) -> tuple[Tensor, Tensor]:
        """Returns ids [B, T], and [B, J, T] bool: the tokens of each b."""
        raise NotImplementedError

    def text_numbers(self, view: View) -> Tensor:
        """Returns [N] int32, equal where b are equal.

        Within a step; with a queue over all steps.
        """
        if not self.queue:
            return ops.reshape(view.targets[self.row], (-1,))
        ids = text_ids(*self.tokens_of_texts(view), view.positions)
        return ops.reshape(ids, (-1,))

    def pool_of(self, batch: Batch, view: View, vectors: Tensor) -> Pool:
        """Gathers vectors [B, J, D] of the b of a view over the replicas."""
        pool = gather_pool(
            view, self.row, batch.replicas, batch.limit, states=vectors
        )
        if not self.queue:
            return pool
        ids = batch.replicas.gather(self.text_numbers(view))
        return pool._replace(ids=ids)

    def enqueue(
        self, batch: Batch, pool: Pool, kind: str = ''
    ) -> dict[str, Any]:
        """Adds a pool to a queue; see `Objective.update_state`."""
        state = self.ring.add(
            self._queue_of(batch, kind), pool.states, pool.ids, pool.weights
        )
        return {kind + name: array for name, array in state.items()}

    def _queue_of(self, batch: Batch, kind: str) -> dict[str, Tensor]:
        return {
            name.removeprefix(kind): array
            for name, array in batch.state.items()
            if name.startswith(kind)
        }


def auxiliaries(settings: Mapping[str, Any]) -> dict[str, Auxiliary]:
    """Returns the auxiliary encoders of a `Queued` row."""
    if not settings['momentum']:
        return {}
    return {MOMENTUM: Auxiliary(momentum=settings['momentum'])}


def encoders(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Names the encoders of a view of b: the trained and the momentum one."""
    return ('encoder', MOMENTUM) if settings['momentum'] else ('encoder',)
