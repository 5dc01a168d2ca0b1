"""Rows that ask whether one segment of text goes with another.

    row        a               f(a, b)                    candidates
    nsp        first segment   binary, on a pooled state  consecutive or not
    nsp_nce    first segment   psi . g_omega([a, b])      n other segments
    same_text  cut of a text   binary, on a pooled state  of the text or not

b is the second segment of text, and both are encoded together: f is not a
product of two encoders, each candidate takes a pass. `nsp` is BERT's next
sentence prediction (Devlin et al. 2019, §3.1), which is binary ("local") NCE
and bounds no mutual information; `nsp_nce` is the same question as Eq. 1
("global" NCE). Both are Appendix A of Kong et al. 2019.

`same_text` asks it of cuts that overlap, each with other words masked. Whether
one sentence follows another is seldom visible in them; what two texts have in
common is, and tasks with two texts (paraphrases, similarity, answers) ask for
little else.
"""

import dataclasses
from typing import ClassVar

from infoword_tf.layers.attention import table, vector
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import Batch, Objective, Row
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads


class NextSentence(Objective):
    """`nsp`: whether a segment follows, by BERT's pooler over [CLS].

    Class 0 is "B follows A", class 1 "B is another text", as in BERT's
    weights. The softmax over two is the logistic function of the difference
    of their scores.

    Learns: a pooled state of two segments.
    Take it: to reproduce BERT (`--objectives=bert`), with `mlm`.
    Needs: documents of several sentences.
    Example: python -m infoword_tf.train --objectives=bert --workdir=W

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

    def class_scores(self, states: Tensor) -> Tensor:
        """Scores both classes: states of [CLS] [N, D] -> [N, 2] float32."""
        x = ops.cast(states, 'float32')
        x = ops.tanh(ops.matmul(x, self.pooler_kernel) + self.pooler_bias)
        return ops.matmul(x, self.kernel) + self.bias

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Computes cross-entropy of the two classes; no MI, no ceiling."""
        view = batch.views[self.view]
        # A sequence has the [CLS] of each of its pairs.
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
    """`same_text`: whether two cuts are of one text.

    Learns: a pooled state of what two texts have in common.
    Take it: with `overlap`, before fine-tuning on pairs of texts.
    Needs: any text.
    Example: python -m infoword_tf.train --objectives=overlap:1,same_text:1
        --workdir=W
    """

    view: ClassVar[str] = 'overlap'


class NextSentenceNce(Objective):
    """`nsp_nce`: which of n + 1 second segments follows, by Eq. 1.

    The others are drawn as the true one is, from other documents, so q is
    p(b).

    Learns: a state of two segments, and a bound where `nsp` has none.
    Take it: to compare `nsp` with other rows in nats.
    Needs: documents of several sentences; a pass for each candidate.
    Example: python -m infoword_tf.train --objectives=mlm:1,nsp_nce:0.5
        --workdir=W
    """

    def build(self) -> None:
        """Makes psi."""
        # A matrix of one column, so that it is drawn and decays as others do.
        self.psi = table(self, 'kernel', self.encoder.width, 1)

    def weight(self, batch: Batch) -> Tensor:
        """Sums the weights of pairs; the other segments are no pairs."""
        return ops.sum(batch.views['negatives'].weights[self.row][:, 0])

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Computes Eq. 1; each pair has other candidates."""
        view = batch.views['negatives']
        true, others = (
            ops.cast(batch.states(name), 'float32')
            for name in ('masked', 'negatives')
        )  # [B, 1, D], [B, n, 1, D]
        # Products of two matrices: one of more is slower, and says no more.
        width = true.shape[-1]
        positive, scores = (
            ops.matmul(ops.reshape(x, (-1, width)), self.psi)
            for x in (true, others)
        )
        scores = ops.reshape(scores, (-1, others.shape[1]))  # [B, n]
        numbers = view.targets[self.row]  # [B, 1 + n]
        return infonce.contrast(
            infonce.Comparison(
                positive[:, 0],
                scores,
                ops.ones_like(scores),
                ops.equal(numbers[:, 1:], numbers[:, :1]),
            ),
            view.weights[self.row][:, 0],
            drop_identical=False,
        )


NSP = Row(
    objective=NextSentence,
    a='first segment of a text',
    b='second segment',
    relation='the segment that follows, or half the time another (BERT)',
    candidates='none: binary NCE, without a bound',
    views={'masked': Reads('next', source='pairs')},
    needs=('alone', 'both_sides', 'segments'),
    public_head='next_text',
    # Of the pooler and of two classes.
    products=lambda x: x.batch_size * x.width * (x.width + 2),
)
NSP_NCE = Row(
    objective=NextSentenceNce,
    a='first segment of a text',
    b='second segment',
    relation='the segment that follows',
    candidates='the true one and 3 of other documents',
    views={
        'masked': Reads('start', source='next_pairs'),
        'negatives': Reads('start'),
    },
    needs=('alone', 'both_sides', 'segments'),
    # Of psi, with the true second segment and three others.
    products=lambda x: 4 * x.batch_size * x.width,
)
SAME_TEXT = dataclasses.replace(
    NSP,
    objective=SameText,
    a='masked cut of a text',
    b='another masked cut',
    relation='a cut that overlaps it, or in a quarter a cut of another text',
    views={SameText.view: Reads('next', source='windows')},
    needs=('alone', 'both_sides'),
    begins_as='nsp',
)
