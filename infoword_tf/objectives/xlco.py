"""The row `xlco`: two texts and their translations.

a are two texts of one language, one after the other, b their translations, in
an order of their own, so that neither language nor order tells b from other
texts (Chi et al. 2021, "InfoXLM", §3.3 and its code). Both are represented by
[CLS], of the last layer or of one in the middle, and compared by a dot product
or a cosine. b is read by the same encoder, or by a momentum encoder without a
gradient; candidates are those of the batch, of a queue, or both.

Shapes: J examples that fit a sequence, N = B J.
"""

from collections.abc import Mapping
from typing import Any

from infoword_tf.errors import InputError
from infoword_tf.layers.dense import Dense
from infoword_tf.layers.pooling import unit
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.candidates import Pool, gather_vectors
from infoword_tf.objectives.objective import Batch, Copy, Row, Vector
from infoword_tf.objectives.queue import MOMENTUM, Queued, auxiliaries
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads, View

VIEW, KEYS = 'crossed', 'crossed_keys'
DOT, COSINE = CRITICS = ('dot', 'cosine')
QUEUE, BATCH, BOTH = NEGATIVES = ('queue', 'batch', 'both')


class CrossLingual(Queued):
    """`xlco`: a text's translation among other translations.

    Learns: vectors that are near where two texts of any languages say the
        same.
    Take it: for search and classification over languages, with `mmlm`, `tlm`.
    Needs: pairs of translations (--parallel).
    Example: python -m infoword_tf.train --objectives=infoxlm
        --parallel=PAIRS --corpus=de=text:GLOB --workdir=W
    """

    contrasts = True
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

    @classmethod
    def check_settings(
        cls, row: str, rows: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Refuses a queue that nothing is compared with, or that is missing."""
        super().check_settings(row, rows)
        queue, negatives = rows[row]['queue'], rows[row]['negatives']
        if bool(queue) != (negatives != BATCH):
            raise InputError(
                'xlco_negatives_and_queue',
                f'--{row}.negatives={negatives} and --{row}.queue={queue} do '
                'not go together: '
                + (
                    'nothing is compared with the queue; take queue or both'
                    if queue
                    else 'there is no queue; give it a size'
                ),
            )

    def build(self) -> None:
        """Makes the weights of `project`.

        Raises:
            ValueError: there is no such layer.
        """
        if self.layer > self.encoder.depth:
            raise InputError(
                'xlco_unknown_layer',
                f'--{self.row}.layer={self.layer}: the encoder has '
                f'{self.encoder.depth} layers',
            )
        self.projection: Dense | None = None
        self.average: Dense | None = None
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
        if self.average is None or self.projection is None:
            return []
        weights = self.average.kernel, self.projection.kernel
        return [Copy(*weights, follows=MOMENTUM)]

    @classmethod
    def makes_positives(cls, settings: Mapping[str, Any]) -> bool:
        """Returns True: b is read by the momentum encoder if `momentum`."""
        del settings
        return True

    def vectors(self, batch: Batch) -> dict[str, Tensor]:
        """Returns 'texts' and 'keys' [N, D], of a and of b."""
        keys = MOMENTUM if self.momentum else 'encoder'
        return {
            'texts': self._pooled(batch, VIEW, 'encoder'),
            'keys': self._pooled(batch, KEYS, keys),
        }

    def _pooled(self, batch: Batch, view: str, encoder: str) -> Tensor:
        """Returns [CLS] of the layer, [N, D] float32."""
        if self.layer:
            states = batch.layers(view, encoder)[self.layer]
        else:
            states = batch.states(view, encoder)
        states = ops.cast(states, 'float32')  # [B, J, D]
        return ops.reshape(states, (-1, states.shape[-1]))

    def _finished(self, x: Tensor, projection: Dense | None) -> Tensor:
        """Computes the compared vectors [N, D]."""
        if projection:
            x = projection(x)
        return unit(x) if self.critic == COSINE else x

    def _keys(self, batch: Batch) -> Tensor:
        """Computes b [N, D]; of a momentum encoder without a gradient."""
        keys = self._finished(
            self.vectors_of(batch)['keys'], self.average or self.projection
        )
        return ops.stop_gradient(keys) if self.momentum else keys

    def candidates(self, batch: Batch) -> Pool:
        """Returns the b of the global batch, and a queue."""
        return self.with_queue(batch, self._pool(batch))

    def _pool(self, batch: Batch) -> Pool:
        """Gathers the b of the global batch."""
        view = batch.views[KEYS]
        return gather_vectors(
            batch,
            _numbers(view, self.row),
            ops.reshape(view.sequences, (-1,)),
            self._keys(batch),
            weights=_weights(view, self.row),
        )

    def score(self, batch: Batch, candidates: Pool) -> infonce.Outcome:
        """Computes Eq. 1; copies of b are no negatives of the loss.

        With `negatives` queue, other b of the batch are candidates of the
        bound alone; of held-out text, which has no queue, of the loss too.
        """
        view = batch.views[KEYS]
        texts = self._finished(self.vectors_of(batch)['texts'], self.projection)
        texts = texts / self.temperature
        positive = ops.sum(texts * self._keys(batch), axis=1)
        numbers = _numbers(view, self.row)
        earlier = self.score_queue(batch, candidates, texts, numbers)
        counts = candidates.others(ops.reshape(view.sequences, (-1,)))
        identical = ops.equal(candidates.ids[None], numbers[:, None])
        weights = _weights(view, self.row)
        trained = None
        if earlier is not None and self.negatives == QUEUE:
            trained = ops.zeros_like(counts)
        outcome = infonce.contrast(
            infonce.Comparison(
                positive,
                ops.matmul(texts, ops.transpose(candidates.states)),
                counts,
                identical,
            ),
            weights,
            drop_identical=True,
            trained=trained,
            earlier=earlier and earlier.others,
        )
        copies = ops.sum(ops.where(identical, counts, 0.0), axis=1)
        share = copies / ops.maximum(ops.sum(counts, axis=1), 1.0)
        return outcome._replace(more={'identical': ops.sum(weights * share)})

    def update_state(self, batch: Batch) -> dict[str, Any]:
        """Queues b."""
        return self.enqueue(batch, self._pool(batch))


def _numbers(view: View, row: str) -> Tensor:
    """Returns [N] int32, equal where texts are."""
    return ops.reshape(view.targets[row], (-1,))


def _weights(view: View, row: str) -> Tensor:
    """Returns [N] float32, 0 for padding."""
    return ops.reshape(view.weights[row], (-1,))


def _reads(settings: Mapping[str, Any]) -> Reads:
    return Reads(
        'example', layers=bool(settings['layer']), source='translations'
    )


def _reads_keys(settings: Mapping[str, Any]) -> Reads:
    reader = MOMENTUM if settings['momentum'] else 'encoder'
    return _reads(settings)._replace(encoders=(reader,))


def _vector(settings: Mapping[str, Any]) -> Vector:
    """Pools [CLS] if that of the last layer is trained, else the mean."""
    pooling = 'mean' if settings['layer'] else 'cls'
    similarity = 'dot' if settings['critic'] == DOT else 'cosine'
    return Vector(pooling, similarity, priority=4)


ROW = Row(
    objective=CrossLingual,
    a='two texts of one language',
    b='their translations',
    relation='translations of each other',
    candidates='other translations of the batch, a queue',
    views={VIEW: _reads, KEYS: _reads_keys},
    heldout_candidates=512,
    vector=_vector,
    auxiliaries=auxiliaries,
)
