"""Rows whose b is the vector that a teacher gives a text.

    row             a     b                     loss
    embed           text  the teacher's vector  Eq. 1 with f = cos(s P, t) / T
    embed_distance  text  the teacher's vector  1 - cos(s P, t), or |s P - t|^2

s is the student's vector of a text, pooled from its states, t the teacher's of
the same text; P is a learned projection where widths differ, else the identity.
It is discarded after training: the student's vector is s, of its own width.

Candidates of `embed` are the teacher's vectors of all texts of the global
batch, so it bounds the mutual information of both vectors, up to log M nats.
Texts whose b is the same vector, as a sentence's and its translation's may be,
are no negatives of each other: they are copies of b.
`embed_distance` bounds nothing (Reimers & Gurevych 2020, Eq. 1).

Shapes: J texts of a sequence, N = B J, W width of the teacher.
"""

from infoword_tf.layers.pooling import of_texts, pool, unit
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.candidates import Pool, gather_vectors, text_ids
from infoword_tf.objectives.distill import Projected
from infoword_tf.objectives.label import VIEW, flat
from infoword_tf.objectives.objective import Batch, Row, vector_of_init
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads, View

MEAN, CLS, LAST_TOKEN = POOLINGS = ('mean', 'cls', 'last')
COSINE, MSE = DISTANCES = ('cosine', 'mse')
GRAIN = 2**-12  # to which numbers are rounded before they are compared


def pooled(states: Tensor, view: View, texts: int, pooling: str) -> Tensor:
    """Pools the states of texts that share sequences.

    Args:
        states: [B, T, D] of all tokens.
        view: `examples`.
        texts: J.
        pooling: name in POOLINGS.

    Returns:
        [N, D] float32, 0 for a slot without a text.
    """
    block_ids = view.block_ids
    counted = of_texts(block_ids, texts)  # [B, J, T]
    if pooling == CLS:
        first = ops.equal(view.positions, 0)
        counted = ops.logical_and(counted, first[:, None])
    if pooling == LAST_TOKEN:
        following = ops.pad(block_ids[:, 1:], [[0, 0], [0, 1]], 'constant', -1)
        last = ops.not_equal(block_ids, following)
        counted = ops.logical_and(counted, last[:, None])
    return pool(states, counted)


def numbers_of(vectors: Tensor) -> Tensor:
    """Hashes vectors [N, W] to [N] int32, equal for equal vectors."""
    grains = ops.cast(ops.round(vectors / GRAIN), 'int32')
    return text_ids(grains, ops.ones_like(grains, dtype='bool'))


class StudentVectors(Projected):
    """A row that compares a student's vector with a teacher's."""

    pooling: str = setting(
        MEAN,
        "Pooling of the student's states.",
        choices=POOLINGS,
        decided_by='--teacher of tasks.distill',
    )

    def student(self, batch: Batch) -> Tensor:
        """Computes s P, [N, W] float32."""
        view = batch.views[VIEW]
        texts = view.weights[self.row].shape[1]
        vectors = pooled(batch.states(VIEW), view, texts, self.pooling)
        return self.projected(vectors)

    def teacher(self, batch: Batch) -> Tensor:
        """Returns t, [N, W] float32."""
        targets = batch.views[VIEW].targets[self.row]
        return ops.cast(flat(targets), 'float32')

    def predictions(self, batch: Batch, cosine: Tensor) -> dict[str, Tensor]:
        """Reshapes cosines [N] of both vectors to [B, J], by example."""
        weights = batch.views[VIEW].weights[self.row]
        return {'cosine': ops.reshape(cosine, ops.shape(weights))}


class EmbeddingContrast(StudentVectors):
    """`embed`: the teacher's vector of a text among others of the batch.

    Learns: the nearest neighbours of the teacher's vectors.
    Take it: to distil a model for search into a smaller one.
    Needs: a teacher (tasks.distill --task=embed) and many texts.
    Example: python -m tasks.distill --task=embed --teacher=W
        --corpus=text:GLOB --workdir=STUDENT
    """

    contrasts = True
    temperature: float = setting(
        0.05, 'Temperature: the cosine is divided by it.', at_least=1e-6
    )

    def candidates(self, batch: Batch) -> Pool:
        """Gathers the teacher's vectors of the global batch, of length 1."""
        view, teacher = batch.views[VIEW], self.teacher(batch)
        return gather_vectors(
            batch,
            numbers_of(teacher),
            ops.reshape(view.sequences, (-1,)),
            unit(teacher),
            weights=ops.reshape(view.weights[self.row], (-1,)),
        )

    def score(self, batch: Batch, candidates: Pool) -> infonce.Outcome:
        """Computes Eq. 1, from the student's vector to the teacher's."""
        view = batch.views[VIEW]
        teacher = self.teacher(batch)
        numbers = numbers_of(teacher)
        student = unit(self.student(batch)) / self.temperature
        positive = ops.sum(student * unit(teacher), axis=1)
        outcome = infonce.contrast(
            infonce.Comparison(
                positive,
                ops.matmul(student, ops.transpose(candidates.states)),
                candidates.others(ops.reshape(view.sequences, (-1,))),
                ops.equal(candidates.ids[None, :], numbers[:, None]),
            ),
            ops.reshape(view.weights[self.row], (-1,)),
            drop_identical=True,
        )
        predictions = self.predictions(batch, positive * self.temperature)
        return outcome._replace(predictions=predictions)


class Distance(StudentVectors):
    """`embed_distance`: how far a vector is from the teacher's.

    Learns: the teacher's vectors themselves, so that both can share an index.
    Take it: for a student over new languages (translations), or where old
        vectors stay in use.
    Needs: as `embed`.
    Example: python -m tasks.distill --task=embed --teacher=W
        --objectives=embed_distance --corpus=text:GLOB --workdir=STUDENT
    """

    bounded = False
    ranked = False
    more = ('cosine',)
    distance: str = setting(
        COSINE,
        '1 - cosine, or the squared distance summed over coordinates (mse).',
        choices=DISTANCES,
    )

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Computes distances, and also cosines, whichever is trained."""
        student, teacher = self.student(batch), self.teacher(batch)
        cosine = ops.sum(unit(student) * unit(teacher), axis=1)
        loss = 1 - cosine
        if self.distance == MSE:
            loss = ops.sum(ops.square(student - teacher), axis=1)
        weights = flat(batch.views[VIEW].weights[self.row])
        outcome = infonce.unbounded(
            loss, weights, predictions=self.predictions(batch, cosine)
        )
        return outcome._replace(more={'cosine': ops.sum(weights * cosine)})


EMBED = Row(
    objective=EmbeddingContrast,
    a='text',
    b="a teacher's vector",
    relation='the vector that a larger model gives the text',
    candidates="the teacher's vectors of the batch",
    views={VIEW: Reads('text')},
    needs=('at_once',),
    heldout_candidates=512,
    vector=vector_of_init,
)
EMBED_DISTANCE = Row(
    objective=Distance,
    a='text',
    b="a teacher's vector",
    relation='how far it is from the vector that a larger model gives',
    candidates='none: a distance, without a bound',
    views={VIEW: Reads('text')},
    needs=('at_once',),
    vector=vector_of_init,
)
