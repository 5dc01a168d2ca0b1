"""Rows whose b is a teacher's: a larger model, fine-tuned on the same labels.

    row         a             b                          loss
    soft        text, or two  the teacher's classes      T^2 KL(p || q)
    soft_score  text, or two  the teacher's number       (q - p)^2
    soft_span   two texts     the teacher's places       T^2 KL(p || q)
    soft_tag    words         the teacher's labels       T^2 KL(p || q)
    patience    text, or two  states below its last      |h/|h| - t/|t||^2
                              layer

p and q are the distributions of teacher and student at temperature T (Hinton
et al. 2015): softmax of the scores over T. Of several labels each has its own,
over no and yes, and the loss is the mean over the labels. For spans they are
over the places of the context, and the loss is the mean of both ends. The
student's scores are those of `label`, `score`, `span` and `tag`, which are
built with these rows, if necessary with weight 0. h and t are pooled states
([CLS] in BERT) of the student's layers 1 to k - 1 and of the teacher's layers
that they imitate (Sun et al. 2019, "patient knowledge distillation", §3.2). The
last layer is left out, because its state is in the scores already. So
`patience` gives no gradient to the last layer, the pooler and the classes. None
of the five is a bound.

The sums are published in two forms. The paper adds up classes, layers and
coordinates. Its code takes their means, and is smaller by a factor of C in
`soft` and of (k - 1) D in `patience`; a weight of the code, divided by that
factor, is the weight of the paper.

Shapes: J examples of a sequence, N = B J, S texts of an example, C classes, Q
questions of an example and A answers (label.py), W width of the teacher.
"""

from infoword_tf.errors import InputError
from infoword_tf.layers.attention import table
from infoword_tf.layers.pooling import unit
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.label import VIEW, flat
from infoword_tf.objectives.objective import (
    Batch,
    Objective,
    Row,
    vector_of_init,
)
from infoword_tf.objectives.span import log_softmax
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads

LAST, SKIP = MAPS = ('last', 'skip')
PAPER, CODE = REDUCTIONS = ('paper', 'code')
REDUCTION = setting(
    PAPER,
    'Reduction over classes, layers and coordinates: sums as in the paper, or '
    'means as in its code.',
    choices=REDUCTIONS,
)


def layer_map(map_: str, teacher: int, student: int) -> tuple[int, ...]:
    """Returns the teacher's layers that layers 1 to k - 1 follow.

    Last: the layers right below the last, {7, ..., 11} of 12 for 6. Skip:
    every n-th, {2, 4, 6, 8, 10}; layer i follows i L / k, rounded down where k
    does not divide L.

    Args:
        map_: name in MAPS.
        teacher, student: numbers of their layers, L and k.

    Raises:
        ValueError: there is nothing to follow, or not enough.
    """
    if student < 2:
        raise InputError(
            'student_of_one_layer',
            f'a student of {student} layers has none below its last that '
            'could follow its teacher; give it 2 or more, or no patience',
        )
    if student > teacher:
        raise InputError(
            'student_deeper_than_teacher',
            f'a student of {student} layers cannot follow a teacher of '
            f'{teacher}; give it {teacher} layers or fewer, or no patience',
        )
    if map_ == LAST:
        return tuple(range(teacher - student + 1, teacher))
    return every(teacher, student)[:-1]


def every(teacher: int, student: int) -> tuple[int, ...]:
    """Returns every n-th of L layers, k in all, with the last."""
    return tuple(i * teacher // student for i in range(1, student + 1))


class Softened(Objective):
    """A row that compares scores with a teacher's, at a temperature."""

    bounded = False
    temperature: float = setting(
        10.0,
        'Distillation temperature: the scores of both models are divided by '
        'it.',
        at_least=1e-6,
        decided_by='--temperature of tasks.distill',
    )


class Projected(Objective):
    """A row that projects states to the width of a teacher."""

    width: int = setting(
        0,
        "Width of the teacher, to which the student's states are projected; 0: "
        'no projection.',
        at_least=0,
        decided_by='--teacher of tasks.distill',
    )

    def build(self) -> None:
        """Makes the projection, where widths differ."""
        self.kernel = None
        if self.width not in (0, self.encoder.width):
            self.kernel = table(
                self, 'kernel', self.encoder.width, self.width
            )

    def projected(self, x: Tensor) -> Tensor:
        """Projects [..., D] to [..., W]."""
        return x if self.kernel is None else ops.matmul(x, self.kernel)


class Soft(Softened):
    """`soft`: how far the distribution of classes is from the teacher's.

    Learns: labels with the teacher's doubts.
    Take it: for a small classifier from a large one, with `label`.
    Needs: a fine-tuned teacher and labelled or plain texts.
    Example: python -m tasks.distill --teacher=W --layers=3 --train=a.csv
        --text=body --label=folder --workdir=STUDENT
    """

    reduction: str = REDUCTION

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Computes KL divergences; right is an answer like the teacher's."""
        scores = self.scorer.candidate_scores(batch.scorer_batch)  # [N, C]
        view = batch.views[VIEW]
        teacher = ops.cast(flat(view.targets[self.row]), 'float32')
        teacher, scores = (  # [N Q, A]
            self.scorer.answers(x) for x in (teacher, scores)
        )
        log_p, log_q = (
            ops.log_softmax(x / self.temperature, axis=1)
            for x in (teacher, scores)
        )
        loss = ops.sum(ops.exp(log_p) * (log_p - log_q), axis=1)
        loss = self.temperature**2 * loss
        if self.reduction == CODE:
            loss = loss / scores.shape[1]
        answers = ops.argmax(teacher, axis=1)
        _, rank = infonce.rank_classes(scores, answers)
        statistics = batch.statistics.by_row[self.row]
        return infonce.unbounded(
            loss,
            self.scorer.of_questions(flat(view.weights[self.row])),
            ops.cast(ops.equal(rank, 0), 'float32'),
            self.scorer.marginal(statistics, answers).chance,
        )


class SoftScores(Objective):
    """`soft_score`: the squared distance to the teacher's number.

    Learns: a number of a text as the teacher gives it.
    Take it: as `soft`, with `score`.
    Needs: a teacher that was fine-tuned on numbers.
    Example: python -m tasks.distill --teacher=W --layers=3 --train=a.csv
        --text=body --label=stars --regress --workdir=STUDENT
    """

    bounded = False
    ranked = False

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Computes squared distances."""
        view = batch.views[VIEW]
        teacher = ops.cast(flat(view.targets[self.row]), 'float32')
        distance = self.scorer.numbers(batch.scorer_batch) - teacher
        return infonce.unbounded(
            ops.square(distance), flat(view.weights[self.row])
        )


class SoftSpans(Softened):
    """`soft_span`: how far places of an answer are from the teacher's.

    The targets of the view are [B, T, 2], f of the teacher for the first and
    the last place of an answer.

    Learns: answers in contexts with the teacher's doubts.
    Take it: as `soft`, with `span`.
    Needs: a teacher of `span`, and questions with contexts.
    Example: python -m tasks.distill --teacher=W --layers=3 --task=squad
        --train=train-v1.1.json --dev=dev-v1.1.json --workdir=STUDENT
    """

    ranked = False

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Computes KL divergences, the mean of both ends."""
        view = batch.views[VIEW]
        slots, scores = self.scorer.both_ends(batch.scorer_batch)
        teacher = ops.cast(view.targets[self.row], 'float32')
        loss = 0.0
        for end in range(2):
            log_p, log_q = (
                log_softmax(slots.candidates, x / self.temperature)
                for x in (teacher[:, :, end], scores[end])
            )  # [B, J, T]
            divergence = ops.sum(ops.exp(log_p) * (log_p - log_q), axis=2)
            loss = loss + 0.5 * self.temperature**2 * divergence
        return infonce.unbounded(flat(loss), flat(view.weights[self.row]))


class SoftTags(Softened):
    """`soft_tag`: how far the labels of words are from the teacher's.

    The targets of the view are [B, T, C], the teacher's scores of labels, which
    count at the words of `tag`, labelled or not.

    Learns: labels of words with the teacher's doubts.
    Take it: as `soft`, with `tag`.
    Needs: a teacher of `tag`, and labelled words.
    Example: python -m tasks.distill --teacher=W --layers=3 --task=tag
        --train=train.conll --dev=dev.conll --workdir=STUDENT
    """

    ranked = False

    def set_scorer(self, scorer: Objective) -> None:
        """Sets the student's row of tags.

        Raises:
            ValueError: it scores the labels of a text together.
        """
        if scorer.crf:
            raise InputError(
                'student_of_chains',
                f'{self.row} compares the labels of each word, and --tag.crf '
                'scores those of a text together; leave out one of the two',
            )
        super().set_scorer(scorer)

    def weight(self, batch: Batch) -> Tensor:
        """Counts words."""
        return ops.sum(ops.cast(self.scorer.words(batch), 'float32'))

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Computes KL divergences."""
        view = batch.views[VIEW]
        log_p, log_q = (
            ops.log_softmax(ops.cast(x, 'float32') / self.temperature, axis=2)
            for x in (
                view.targets[self.row],
                self.scorer.token_scores(batch.scorer_batch),
            )
        )
        loss = ops.sum(ops.exp(log_p) * (log_p - log_q), axis=2)
        words = self.scorer.words(batch)
        loss = self.temperature**2 * ops.where(words, loss, 0.0)
        return infonce.unbounded(flat(loss), flat(ops.cast(words, 'float32')))


class Patience(Projected):
    """`patience`: how far normalised states are from the teacher's.

    Learns: the teacher's states below the last layer.
    Take it: with `label` and `soft`, for students of few layers.
    Needs: as `soft`, and two layers or more.
    Example: python -m tasks.distill --teacher=W --layers=3 --patience=skip
        --train=a.csv --text=body --label=folder --workdir=STUDENT
    """

    bounded = False
    ranked = False
    reduction: str = REDUCTION

    def build(self) -> None:
        """Makes the projection, where widths differ.

        Raises:
            ValueError: the encoder has no layer below its last.
        """
        if self.encoder.depth < 2:
            raise InputError(
                'patience_one_layer',
                f'{self.row} compares layers below the last, and the encoder '
                f'has {self.encoder.depth}; take 2 or more, or leave '
                f'{self.row} out',
            )
        super().build()

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Computes squared distances, the mean of S texts."""
        view = batch.views[VIEW]
        teacher = ops.cast(flat(view.targets[self.row]), 'float32')
        below = batch.layers(VIEW)[1:]  # k - 1 times [B, J S, D]
        states = ops.cast(ops.stack(below, axis=2), 'float32')
        states = ops.reshape(self.projected(states), (-1, *teacher.shape[1:]))
        squares = ops.square(unit(states) - unit(teacher))
        loss = ops.sum(squares, axis=(2, 3))  # [N, S]
        if self.reduction == CODE:
            loss = loss / (len(below) * teacher.shape[-1])
        return infonce.unbounded(
            ops.mean(loss, axis=1), flat(view.weights[self.row])
        )


_TARGETS = {VIEW: Reads('example', encoders=())}  # states are the scorer's
SOFT = Row(
    objective=Soft,
    a='text, or two',
    b="a teacher's distribution",
    relation='how likely a larger model finds each label (distillation)',
    candidates='none: a divergence, without a bound',
    views=_TARGETS,
    needs=('at_once',),
    vector=vector_of_init,
    scored_by='label',
)
SOFT_SCORE = Row(
    objective=SoftScores,
    a='text, or two',
    b="a teacher's number",
    relation='the number that a larger model gives it',
    candidates='none: regression, without a bound',
    views=_TARGETS,
    needs=('at_once',),
    vector=vector_of_init,
    scored_by='score',
)
SOFT_SPAN = Row(
    objective=SoftSpans,
    a='question and context',
    b="a teacher's answer",
    relation='how likely a larger model finds each start and end',
    candidates='none: a divergence, without a bound',
    views=_TARGETS,
    needs=('attention', 'at_once'),
    vector=vector_of_init,
    scored_by='span',
)
SOFT_TAG = Row(
    objective=SoftTags,
    a='text',
    b="a teacher's labels of words",
    relation='how likely a larger model finds each label of a word',
    candidates='none: a divergence, without a bound',
    views=_TARGETS,
    needs=('at_once',),
    vector=vector_of_init,
    scored_by='tag',
)
PATIENCE = Row(
    objective=Patience,
    a='text, or two',
    b="a teacher's states",
    relation='the states of a larger model, layer by layer (PKD)',
    candidates='none: a distance, without a bound',
    views={VIEW: Reads('example', layers='below')},
    needs=('attention', 'at_once'),
    vector=vector_of_init,
)
