"""Rows that ask whether one piece of text goes with another.

    row        a               f(a, b)                    candidates
    nsp        first piece     binary, on a pooled state  consecutive or not
    nsp_nce    first piece     psi . g_omega([a, b])      K other second pieces
    same_text  cut of a text   binary, on a pooled state  of the text or not

b is the second piece of text, and both are encoded together: f is not a
product of two encoders, each candidate takes a pass. `nsp` is BERT's next
sentence prediction (Devlin et al. 2019, §3.1), which is binary ("local") NCE
and bounds no mutual information; `nsp_nce` is the same question as Eq. 1
("global" NCE). Both are Appendix A of Kong et al. 2019.

`same_text` asks it of cuts that overlap, each with other words masked. That
one sentence follows another is seldom to be seen in them; what two texts have
in common is, and tasks with two texts (paraphrases, similarity, answers) ask
for little else.

Glossary of shapes: B pairs, K other second pieces of each, D width.
"""

import dataclasses
from typing import Any, ClassVar

from infoword_tf.layers.attention import table, vector
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import Batch, Objective
from infoword_tf.objectives.row import BOTH_SIDES, Row
from infoword_tf.views import Reads

Tensor = Any


class NextSentence(Objective):
    """`nsp`: BERT's pooler over [CLS], and a softmax over its two classes.

    Class 0 is "B follows A", class 1 "B is another text", as in BERT's
    weights. The softmax over two is the logistic function of the difference
    of their scores.

    Attributes:
        view: that it reads.
    """

    view: ClassVar[str] = 'masked'
    bounded = False

    def build(self) -> None:
        """Makes pooler and classes."""
        d = self.encoder.width
        self.pooler_kernel = table(self, 'pooler_kernel', d, d)
        self.pooler_bias = vector(self, 'pooler_bias', d)
        self.kernel = table(self, 'kernel', d, 2)
        self.bias = vector(self, 'bias', 2)
        self.built = True

    def class_scores(self, states: Tensor) -> Tensor:
        """States of [CLS], [B, D] -> [B, 2] float32."""
        x = ops.cast(states, 'float32')
        x = ops.tanh(ops.matmul(x, self.pooler_kernel) + self.pooler_bias)
        return ops.matmul(x, self.kernel) + self.bias

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Cross-entropy of the two classes; no MI, no ceiling."""
        view = batch.views[self.view]
        # Pairs that share a row have their [CLS] in it, one after the other.
        states = batch.states(self.view)  # [B, P, D]
        states = ops.reshape(states, (-1, states.shape[-1]))
        random = ops.cast(ops.reshape(view.targets[self.row], (-1,)), 'float32')
        weights = ops.reshape(view.weights[self.row], (-1,))
        scores = self.class_scores(states)
        # How far the wrong class is above the right one.
        wrong = (scores[:, 1] - scores[:, 0]) * (1.0 - 2.0 * random)
        correct = ops.cast(ops.less(wrong, 0.0), 'float32')
        constant = batch.statistics.answers.get(self.row, 0)
        constant = ops.cast(ops.equal(random, constant), 'float32')
        return infonce.unbounded(
            ops.softplus(wrong), weights, correct, constant
        )


class SameText(NextSentence):
    """`same_text`: the same of two cuts of a text, or of two texts."""

    view: ClassVar[str] = 'overlap'


class NextSentenceNce(Objective):
    """`nsp_nce`: which of K + 1 second pieces follows, Eq. 1 over them.

    The others are drawn as the true one is, from other documents, so q is
    p(b).
    """

    def build(self) -> None:
        """Makes psi."""
        # A matrix of one column, so that it is drawn and decays as others do.
        self.psi = table(self, 'kernel', self.encoder.width, 1)
        self.built = True

    def weight(self, batch: Batch) -> Tensor:
        """As `Objective.weight`; the other pieces are no pairs."""
        return ops.sum(batch.views['negatives'].weights[self.row][:, 0])

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Eq. 1 over each pair's own candidates."""
        view = batch.views['negatives']
        true, others = (
            ops.cast(batch.states(name), 'float32')
            for name in ('masked', 'negatives')
        )  # [B, 1, D], [B, K, 1, D]
        # Products of two matrices: one of more is slower, and says no more.
        width = true.shape[-1]
        positive, scores = (
            ops.matmul(ops.reshape(x, (-1, width)), self.psi)
            for x in (true, others)
        )
        scores = ops.reshape(scores, (-1, others.shape[1]))  # [B, K]
        numbers = view.targets[self.row]  # [B, 1 + K]
        return infonce.contrast(
            positive[:, 0],
            scores,
            ops.ones_like(scores),
            ops.equal(numbers[:, 1:], numbers[:, :1]),
            view.weights[self.row][:, 0],
            drop_identical=False,
        )


NSP = Row(
    objective=NextSentence,
    a='first piece of a text',
    b='second piece',
    relation='the piece that follows, or half the time another (BERT)',
    candidates='none: binary NCE, without a bound',
    views={'masked': Reads('next', source='pairs')},
)
NSP_NCE = Row(
    objective=NextSentenceNce,
    a='first piece of a text',
    b='second piece',
    relation='the piece that follows',
    candidates='the true one and 3 of other documents',
    views={
        'masked': Reads('start', source='next_pairs'),
        'negatives': Reads('start'),
    },
)
SAME_TEXT = dataclasses.replace(
    NSP,
    objective=SameText,
    a='masked cut of a text',
    b='another masked cut',
    relation='a cut that overlaps it, or in a quarter one of another text',
    views={SameText.view: Reads('next', source='windows')},
    encoders=BOTH_SIDES,
    begins_as='nsp',
)
