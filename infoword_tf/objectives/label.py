"""Rows whose b are labels by people: the class of a text, or a number.

    row    a             b          f(a, b)                    candidates
    label  text, or two  its class  psi_b . g_omega(a)         all classes
    score  text, or two  a number   -(w . g_omega(a) - b)^2    none: regression

g_omega(a) is the pooled state, such as [CLS] (Kong et al. 2019, §5.2; Devlin et
al. 2019, §4.1), with BERT's dense layer over it where `pooler` asks for one. An
encoder that is not `contextual` has no such state: of `lookup` it is the mean
over the text's tokens, [CLS] and [SEP] among them, as `encode` pools.
Cross-entropy over the classes is Eq. 1, so

    I(text, label) >= H(label) - cross-entropy,

with H(label) as ceiling; a critic that knows how frequent the classes are, and
nothing else, has exactly 0. Where a text may have several labels, or none
(`multilabel`), each of C labels is a question: b is yes or no, with the scores
s and 0, so that Eq. 1 is binary cross-entropy. Loss, MI and
ceiling are then means over the labels, of I(text; label c) and H(label c).
Regression bounds nothing; nor does CoSENT (Su 2022), which learns the order of
the numbers s alone,

    log(1 + sum over b_i < b_j of exp(scale (s_i - s_j))),

over all pairs of examples of the global batch.

`texts` says how an example of S texts is encoded (Radford et al. 2018, Fig. 1):
'joined', one text, or two formatted as one; 'both_ways', two texts in both
orders, whose states are added; 'choices', S texts of which b is one: each has a
score, and these are the candidates.

Shapes: J examples of a sequence, N = B J, S texts of an example, C classes, Q
questions of an example (1, or C of several labels), A answers (C, or 2).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infoword_tf.errors import InputError
from infoword_tf.layers import dropout
from infoword_tf.layers.bilstm import BiLstm
from infoword_tf.layers.mix import Mix
from infoword_tf.layers.pooling import of_texts, pool
from infoword_tf.layers.scores import NO_POOLER, POOLERS, Scored
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.candidates import Statistics
from infoword_tf.objectives.infonce import Marginal
from infoword_tf.objectives.objective import (
    Batch,
    Objective,
    Row,
    vector_of_init,
)
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads

VIEW = 'examples'
REGRESSION, COSENT = LOSSES = ('regression', 'cosent')
TEXTS = ('joined', 'both_ways', 'choices')
TEXTS_HELP = (
    'How an example is encoded: as one text, two texts being joined (joined), '
    'or as two texts in both orders (both_ways){}.'
)
CHOICES_HELP = ', or as several texts of which one is right (choices)'


def flat(x: Tensor) -> Tensor:
    """Reshapes [B, J, ...] to [N, ...]."""
    return ops.reshape(x, (-1, *x.shape[2:]))


class Scorer(Scored, Objective):
    """Scores of states: perhaps a dense layer, and C columns."""

    pooler: str = setting(
        NO_POOLER,
        'Activation of a dense layer before the output layer (BERT: tanh, '
        'DistilBERT: relu, ELECTRA: gelu; ModernBERT: gelu_norm, with a norm '
        'and without biases); none: no such layer.',
        choices=(NO_POOLER, *POOLERS),
    )
    mix: bool = setting(
        False,
        'Use a learned scalar mix of all layers (ELMo) instead of the last '
        'layer.',
    )

    def build(self) -> None:
        """Makes the layers."""
        if self.mix:
            self.mixer = Mix(self.encoder.depth)
            self.mixer.build()
        self.make_scores()

    def dropout_key(self, batch: Batch) -> Tensor | None:
        """Returns the key of dropout over states, another on each replica."""
        key = batch.fused_key
        return None if key is None else dropout.fold_in(key, batch.replicas.id)


class Head(Scorer):
    """Scores of a text: pooled states, perhaps a dense layer, and C columns."""

    mean: bool = setting(
        False,
        'Pool the states of a text by their mean, [CLS] and [SEP] among them, '
        'instead of taking one state.',
    )
    bilstm: bool = setting(
        False,
        'Pool the states of a text with a bidirectional LSTM, each direction '
        'as wide as the encoder (ELMo), instead of taking one state.',
    )

    @property
    def input_width(self) -> int:
        """D, or 2 D of a BiLSTM."""
        return self.encoder.width * (1 + self.bilstm)

    def build(self) -> None:
        """Makes the layers."""
        if self.bilstm:
            self.reader = BiLstm(self.encoder.width, self.dtype_policy)
            self.reader.build(self.encoder.width)
        super().build()

    def pooled_states(
        self,
        states: Tensor,
        layers: Sequence[Tensor] | None,
        block_ids: Tensor,
        texts: int,
        key: Tensor | None = None,
    ) -> Tensor:
        """Computes a state for each text: [B, P, D], or 2 D of a BiLSTM.

        Args:
            states: [B, T, D] where all are read (`Reads.everywhere`), else
                [B, P, D].
            layers: states of all layers, for a head that mixes layers.
            block_ids: [B, T] int32, 0 to P - 1 by text, others are padding.
            texts: P.
            key: [2] uint32 of training, None for inference.
        """
        if self.mix:
            states = self.mixer(layers)
        if self.bilstm:
            return self.reader(states, block_ids, texts=texts, key=key)
        if self.encoder.contextual and not self.mean:
            return states
        vectors = pool(states, of_texts(block_ids, texts))
        return ops.reshape(vectors, (-1, texts, states.shape[-1]))

    def scored(self, batch: Batch) -> Tensor:
        """Scores every slot of the view: [N, S, C] float32."""
        view = batch.views[VIEW]
        slots = view.weights[self.row].shape[1]
        texts = view.places[self.row].shape[1]
        states = self.pooled_states(
            batch.states(VIEW),
            batch.layers(VIEW),
            view.block_ids,
            texts,
            key=batch.fused_key,
        )
        states = ops.reshape(states, (-1, texts // slots, states.shape[-1]))
        return self.class_scores(states, self.dropout_key(batch))

    def by_slot(self, batch: Batch, scores: Tensor) -> dict[str, Tensor]:
        """Reshapes 'scores' [N, ...] to [B, J, ...]."""
        slots = batch.views[VIEW].weights[self.row].shape[1]
        return {'scores': ops.reshape(scores, (-1, slots, *scores.shape[1:]))}


class Labels(Head):
    """`label`: the class of a text, by Eq. 1 over all classes.

    Learns: a head over the encoder, and the encoder.
    Take it: to fine-tune for classes, several labels of a text or choices.
    Needs: a table of texts with labels, and usually --init.
    Example: python -m tasks.classify --init=MODEL --train=a.csv --text=body
        --label=folder --workdir=W
    """

    classes: int = setting(
        2,
        'How many labels there are.',
        at_least=1,
        decided_by='the labels of the examples',
    )
    multilabel: bool = setting(
        False,
        'Whether a text may have several labels, or none.',
        decided_by='the labels of the examples',
    )
    texts: str = setting(
        'joined', TEXTS_HELP.format(CHOICES_HELP), choices=TEXTS)

    @property
    def columns(self) -> int:
        """C; of choices each text has one score."""
        return 1 if self.texts == 'choices' else self.classes

    def candidate_scores(self, batch: Batch) -> Tensor:
        """Scores the candidates of each example: [N, C] float32."""
        scores = self.scored(batch)  # [N, S, C]
        if self.texts == 'choices':
            return scores[:, :, 0]
        # Both ways: without a pooler the head is linear, so that the sum of
        # scores is that of the summed states.
        return ops.sum(scores, axis=1)

    def answers(self, scores: Tensor) -> Tensor:
        """Reshapes scores [N, C] to [N Q, A]: no and yes to each label."""
        if not self.multilabel:
            return scores
        both = ops.stack([ops.zeros_like(scores), scores], axis=-1)
        return ops.reshape(both, (-1, 2))

    def of_questions(self, weights: Tensor) -> Tensor:
        """Spreads weights [N] of examples over questions: [N Q]."""
        if not self.multilabel:
            return weights
        return ops.repeat(weights / self.classes, self.classes)

    def marginal(self, statistics: Statistics, targets: Tensor) -> Marginal:
        """Computes how well b is guessed without a text.

        Args:
            statistics: counts [C] of classes; of several labels [2 C], of no
                and yes to each.
            targets: [N Q] int32, which of A answers is true.
        """
        size = len(statistics.measured)
        uniform = np.full(size, 1 / size)
        if not self.multilabel:
            return statistics.marginal(self.row, targets, uniform)
        targets = ops.reshape(targets, (-1, self.classes))
        numbers = targets + 2 * np.arange(self.classes, dtype='int32')
        likelier = statistics.measured.reshape(-1, 2).argmax(axis=1)
        right = ops.equal(targets, likelier.astype('int32'))
        known = statistics.marginal(
            self.row, ops.reshape(numbers, (-1,)), uniform
        )
        chance = ops.cast(ops.reshape(right, (-1,)), 'float32')
        return known._replace(chance=chance)

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Computes cross-entropy of the classes, or of each label."""
        scores = self.candidate_scores(batch)
        view = batch.views[VIEW]
        targets = ops.reshape(flat(view.targets[self.row]), (-1,))
        answers = self.answers(scores)
        positive, rank = infonce.rank_classes(answers, targets)
        outcome = infonce.infonce(
            infonce.Candidates(
                positive,
                ops.logsumexp(answers, axis=1),
                float(np.log(answers.shape[1])),
                rank,
            ),
            self.of_questions(flat(view.weights[self.row])),
            self.marginal(batch.statistics.by_row[self.row], targets),
        )
        return outcome._replace(predictions=self.by_slot(batch, scores))


class Scores(Head):
    """`score`: a number of a text, or the order of numbers; no MI, no ceiling.

    Learns: a head over the encoder, and the encoder.
    Take it: to fine-tune for similarity of two texts, ratings and the like.
    Needs: a table of texts with numbers, and usually --init.
    Example: python -m tasks.classify --init=MODEL --train=a.csv --text=body
        --label=stars --regress --workdir=W
    """

    bounded = False
    ranked = False
    texts: str = setting(
        'joined', TEXTS_HELP.format(''), choices=TEXTS[:2])
    loss: str = setting(
        REGRESSION,
        'Squared error (regression), or the order of the numbers in the batch '
        'alone, not their scale (cosent).',
        choices=LOSSES,
    )
    scale: float = setting(
        20.0,
        'What differences of two numbers are multiplied by (cosent).',
        at_least=1e-6,
        needs=('loss', (COSENT,)),
    )

    def numbers(self, batch: Batch) -> Tensor:
        """Computes a number for each example, [N] float32."""
        return ops.sum(self.scored(batch)[:, :, 0], axis=1)

    def vectors(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the numbers, which CoSENT compares."""
        return {'numbers': self.numbers(batch)}

    @property
    def has_vectors(self) -> bool:
        """True for CoSENT."""
        return self.loss == COSENT

    def candidates(
        self, batch: Batch
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Gathers numbers, b and weights of the global batch, [M] each.

        For CoSENT; None otherwise.
        """
        if not self.has_vectors:
            return None
        view, gather = batch.views[VIEW], batch.replicas.gather
        return (
            gather(self.vectors_of(batch)['numbers']),
            gather(flat(view.targets[self.row])),
            gather(flat(view.weights[self.row])),
        )

    def score(
        self, batch: Batch, candidates: tuple[Tensor, Tensor, Tensor] | None
    ) -> infonce.Outcome:
        """Computes squared errors; or CoSENT, as the loss of every example."""
        numbers = self.vectors_of(batch)['numbers']
        view = batch.views[VIEW]
        if candidates is None:
            loss = ops.square(numbers - flat(view.targets[self.row]))
        else:
            loss = ops.broadcast_to(
                cosent(*candidates, self.scale), ops.shape(numbers)
            )
        return infonce.unbounded(
            loss,
            flat(view.weights[self.row]),
            predictions=self.by_slot(batch, numbers),
        )


def cosent(
    numbers: Tensor, targets: Tensor, weights: Tensor, scale: float
) -> Tensor:
    """Computes CoSENT of a batch (Su 2022), a scalar; 0 where b are equal.

    Args:
        numbers, targets: [M] float32.
        weights: [M] float32, 0 for padding.
        scale: factor of differences.
    """
    wrong = scale * (numbers[:, None] - numbers[None, :])
    pairs = ops.logical_and(
        targets[:, None] < targets[None, :],
        weights[:, None] * weights[None, :] > 0,
    )
    total = ops.logsumexp(ops.where(pairs, wrong, infonce.NEVER))
    return ops.logaddexp(total, 0.0)


def _example(settings: Mapping[str, Any]) -> Reads:
    if settings['mean'] and settings['bilstm']:
        raise InputError(
            'two_poolings_of_text',
            'mean=True and bilstm=True both pool a text; take one of them',
        )
    if settings.get('multilabel') and settings['texts'] == 'choices':
        raise InputError(
            'multilabel_choices',
            'texts=choices has one right answer, and multilabel any number of '
            'them; take one of the two',
        )
    return Reads(
        'example',
        layers=settings['mix'],
        everywhere=settings['bilstm'] or settings['mean'],
    )


LABEL = Row(
    objective=Labels,
    a='text, or two',
    b='its label',
    relation='the class that people gave it',
    candidates='all labels',
    views={VIEW: _example},
    needs=(),
    vector=vector_of_init,
    answers=('classes',),
    public_head='classes',
    taught_by='soft',
)
SCORE = Row(
    objective=Scores,
    a='text, or two',
    b='a number',
    relation='the number that people gave it',
    candidates='none: regression, without a bound',
    views={VIEW: _example},
    needs=(),
    vector=vector_of_init,
    answers=('numbers',),
    public_head='classes',
    taught_by='soft_score',
)
