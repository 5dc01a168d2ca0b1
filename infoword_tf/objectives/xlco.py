"""The row `xlco`: which texts are the translations of these?

a are two texts of one language, one after the other, b their translations, in
an order of their own, so that neither language nor order tells b from other
texts (Chi et al. 2021, "InfoXLM", §3.3 and its code). Both are summed up by
[CLS], of the last layer or of one in the middle, and compared by a dot product
or a cosine. b is read by the same encoder, or by a momentum encoder without a
gradient; candidates are those of the batch, of a queue, or both.

Glossary of shapes: R rows, J examples that a row has room for, N = R J, M
candidates, D width.
"""

from collections.abc import Mapping
from typing import Any

from infoword_tf.layers.dense import Dense
from infoword_tf.layers.pooling import unit
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import Batch, Copy, Pool, gathered
from infoword_tf.objectives.queue import MOMENTUM, Queued, companions
from infoword_tf.objectives.row import Row, Vector
from infoword_tf.settings import setting
from infoword_tf.views import Reads, View

Tensor = Any
VIEW, KEYS = 'crossed', 'crossed_keys'
DOT, COSINE = CRITICS = ('dot', 'cosine')
QUEUE, BATCH, BOTH = NEGATIVES = ('queue', 'batch', 'both')


class CrossLingual(Queued):
    """`xlco`: a text among texts of the other language."""

    more = ('identical',)

    critic: str = setting(
        COSINE,
        'How two vectors are compared: cosine, or dot as published.',
        choices=CRITICS,
    )
    temperature: float = setting(
        0.05, 'Temperature: the score is divided by it.', at_least=1e-6
    )
    negatives: str = setting(
        BATCH,
        'Which other b are candidates: those of the batch, of a queue (as '
        'published), or both.',
        choices=NEGATIVES,
    )
    layer: int = setting(
        0,
        'The layer whose [CLS] is compared, 1 the first (InfoXLM: 8 of 12); 0: '
        'the last.',
        at_least=0,
    )
    project: bool = setting(
        False,
        'Compare linear projections of the vectors, one matrix for all '
        'languages, only in training; with a momentum encoder b by an average '
        'of the matrix.',
    )

    def build(self) -> None:
        """Makes the projection, if it is wanted.

        Raises:
            ValueError: there is no such layer, or no queue to compare with.
        """
        if self.layer > self.encoder.depth:
            raise ValueError(
                f'--{self.row}.layer={self.layer}: the encoder has '
                f'{self.encoder.depth} layers'
            )
        if bool(self.queue) != (self.negatives != BATCH):
            raise ValueError(
                f'--{self.row}.negatives={self.negatives} and '
                f'--{self.row}.queue={self.queue} do not go together: '
                + (
                    'nothing is compared with the queue; take queue or both'
                    if self.queue
                    else 'there is no queue; give it a size'
                )
            )
        self.projection = self.average = None
        if self.project:
            width = self.encoder.width
            sizes = width, width, 'identity', False
            self.projection = Dense(*sizes, name='projection')
            self.projection.build()
            if self.momentum:
                self.average = Dense(*sizes, name='projection_average')
                self.average.build()
                self.average.trainable = False
            self.not_exported |= {w.path for w in self.weights}
        super().build()

    def copied_weights(self) -> list[Copy]:
        """Names the matrix of b, which follows with the momentum encoder."""
        if self.average is None:
            return []
        weights = self.average.kernel, self.projection.kernel
        return [Copy(*weights, follows=MOMENTUM)]

    @property
    def keys_are_positives(self) -> bool:
        """Always: b is read by the momentum encoder, if there is one."""
        return True

    def vectors(self, batch: Batch) -> dict[str, Tensor]:
        """'texts' and 'keys' [N, D], of a and of b."""
        keys = MOMENTUM if self.momentum else 'encoder'
        return {
            'texts': self._pooled(batch, VIEW, 'encoder'),
            'keys': self._pooled(batch, KEYS, keys),
        }

    def _pooled(self, batch: Batch, view: str, encoder: str) -> Tensor:
        """[N, D] float32, [CLS] of the layer."""
        if self.layer:
            states = batch.layers(view, encoder)[self.layer]
        else:
            states = batch.states(view, encoder)
        states = ops.cast(states, 'float32')  # [R, J, D]
        return ops.reshape(states, (-1, states.shape[-1]))

    def _finished(self, x: Tensor, projection: Dense | None) -> Tensor:
        """As they are compared: [N, D]."""
        if projection:
            x = projection(x)
        return unit(x) if self.critic == COSINE else x

    def _keys(self, batch: Batch) -> Tensor:
        """b [N, D]. No gradient enters what a momentum encoder makes."""
        keys = self._finished(
            self.compared(batch)['keys'], self.average or self.projection
        )
        return ops.stop_gradient(keys) if self.momentum else keys

    def candidates(self, batch: Batch) -> Pool:
        """Other b, and a queue of them."""
        return self.behind(batch, self._pool(batch))

    def _pool(self, batch: Batch) -> Pool:
        """All b of the global batch."""
        view = batch.views[KEYS]
        return gathered(
            batch,
            _numbers(view, self.row),
            ops.reshape(view.sequences, (-1,)),
            self._keys(batch),
            _there(view, self.row),
        )

    def score(self, batch: Batch, candidates: Pool) -> infonce.Outcome:
        """Eq. 1; copies of b are no negatives of the loss.

        Nor are those of the batch where the queue alone is; they are those of
        the bound. Held-out text has no queue: there they are of both.
        """
        view = batch.views[KEYS]
        texts = self._finished(self.compared(batch)['texts'], self.projection)
        texts = texts / self.temperature
        positive = ops.sum(texts * self._keys(batch), axis=1)
        numbers = _numbers(view, self.row)
        earlier = self.among_earlier(batch, candidates, texts, numbers)
        counts = candidates.others(ops.reshape(view.sequences, (-1,)))
        identical = ops.equal(candidates.ids[None], numbers[:, None])
        weights = _there(view, self.row)
        trained = None
        if earlier is not None and self.negatives == QUEUE:
            trained = ops.zeros_like(counts)
        outcome = infonce.contrast(
            positive,
            ops.matmul(texts, ops.transpose(candidates.states)),
            counts,
            identical,
            weights,
            drop_identical=True,
            trained=trained,
            earlier=earlier and earlier.others,
        )
        copies = ops.sum(ops.where(identical, counts, 0.0), axis=1)
        share = copies / ops.maximum(ops.sum(counts, axis=1), 1.0)
        return outcome._replace(more={'identical': ops.sum(weights * share)})

    def remember(self, batch: Batch) -> dict[str, Any]:
        """Queues b."""
        return self.enqueued(batch, self._pool(batch))


def _numbers(view: View, row: str) -> Tensor:
    """[N] int32, what each text is."""
    return ops.reshape(view.targets[row], (-1,))


def _there(view: View, row: str) -> Tensor:
    """[N] float32, 0 for places of a row that no example has."""
    return ops.reshape(view.weights[row], (-1,))


def _wanted(settings: Mapping[str, Any]) -> Reads:
    return Reads(
        'example', layers=bool(settings['layer']), source='translations'
    )


def _wanted_keys(settings: Mapping[str, Any]) -> Reads:
    reader = MOMENTUM if settings['momentum'] else 'encoder'
    return _wanted(settings)._replace(encoders=(reader,))


def _vector(settings: Mapping[str, Any]) -> Vector:
    """[CLS] where that of the last layer is compared, as it is compared."""
    pooling = 'mean' if settings['layer'] else 'cls'
    similarity = 'dot' if settings['critic'] == DOT else 'cosine'
    return Vector(pooling, similarity, priority=4)


ROW = Row(
    objective=CrossLingual,
    a='two texts of one language',
    b='their translations',
    relation='say the same',
    candidates='other translations of the batch, a queue',
    views={VIEW: _wanted, KEYS: _wanted_keys},
    heldout_candidates=512,
    vector=_vector,
    companions=companions,
)
