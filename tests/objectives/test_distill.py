"""Rows that a teacher teaches: worked values, and where gradients end.

Shapes: C classes.
"""

import types
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized
from scipy import special

from infoword_tf.encoders import Encoded
from infoword_tf.model import Model
from infoword_tf.objectives import TABLE, Statistics, built, parse
from infoword_tf.objectives.distill import (
    Patience,
    SoftSpans,
    every,
    layer_map,
)
from infoword_tf.objectives.label import Labels, Scores
from infoword_tf.objectives.span import slots_of
from infoword_tf.views import View
from infoword_tf.views.examples import examples
from tests import eager, zoo
from tests.objectives import eq1
from tests.objectives.eq1 import EagerCase, encoder_of
from tests.refused import refused

KEY = eager.new_key(5)


class MapsTest(parameterized.TestCase):
    @parameterized.parameters(
        ('skip', 12, 6, (2, 4, 6, 8, 10)),
        ('last', 12, 6, (7, 8, 9, 10, 11)),
        ('skip', 12, 3, (4, 8)),
        ('last', 12, 3, (10, 11)),
        ('skip', 24, 6, (4, 8, 12, 16, 20)),
        ('last', 24, 6, (19, 20, 21, 22, 23)),
        ('skip', 6, 3, (2, 4)),
        ('last', 6, 3, (4, 5)),
        ('skip', 12, 5, (2, 4, 7, 9)),
        ('skip', 6, 4, (1, 3, 4)),
        ('skip', 6, 6, (1, 2, 3, 4, 5)),
        ('last', 6, 6, (1, 2, 3, 4, 5)),
        ('skip', 2, 2, (1,)),
    )
    def test_index_sets(self, map_, teacher, student, layers):
        self.assertEqual(layer_map(map_, teacher, student), layers)
        self.assertEqual(every(teacher, student)[-1], teacher)

    @parameterized.parameters(
        (12, 1, 'student_of_one_layer'),
        (3, 4, 'student_deeper_than_teacher', 'of 3', '3 layers'),
    )
    def test_too_few(self, teacher, student, id, *values):
        for map_ in ('skip', 'last'):
            with refused(id, f'{student} layers', *values):
                layer_map(map_, teacher, student)


def batch_of(row, targets, by_row=None, **encoded):
    """Makes [1, N] examples; encoded: states, or layers, [1, N, D]."""
    count = targets.shape[1]
    view = View(
        ids=np.zeros((1, 8), np.int32),
        sequences=np.arange(count, dtype=np.int32)[None],
        places={row: np.zeros((1, count), np.int32)},
        targets={row: targets},
        weights={row: np.ones((1, count), np.float32)},
    )
    one_encoded = Encoded(encoded.get('states'), encoded.get('layers', ()))
    return eq1.batch_of(
        {'examples': view}, {'examples': one_encoded},
        statistics=Statistics(np.ones(3), np.ones(3), by_row=by_row or {}),
    )  # fmt: skip


def soft(scores, taught, multilabel=False, **settings):
    """(sums of `soft`, of `label` with the true class 0) of [N, C] scores.

    The states are the scores: the head's kernel is the identity. Of several
    labels none is true.
    """
    count, classes = np.shape(scores)
    label = Labels(
        'label', encoder_of(classes), zoo.SPECIALS, classes=classes,
        multilabel=multilabel,
    )  # fmt: skip
    label.build()
    label.kernel.assign(np.eye(classes))
    objective = TABLE['soft'].objective(
        'soft', encoder_of(classes), zoo.SPECIALS, **settings
    )
    objective.build()
    objective.set_scorer(label)
    # Of what the teacher says; of several labels yes is the likelier.
    counts = np.arange(classes * (1 + multilabel))
    by_row = {'soft': Statistics(counts, counts)}
    by_row['label'] = Statistics(counts[::-1] + 1, counts[::-1] + 1)
    states = np.array(scores, np.float32)[None]
    shape = (1, count, classes) if multilabel else (1, count)
    head = batch_of('label', np.zeros(shape, np.int32), by_row, states=states)
    batch = batch_of('soft', np.array(taught, np.float32)[None], by_row)
    batch = batch._replace(scorer_batch=head)
    return (
        eq1.mean(objective.score(batch, None)),
        eq1.mean(label.score(head, None)),
    )


class SoftTest(EagerCase):
    def test_worked_values(self):
        """Student (1, 0), teacher (2, 0), T = 2, class 0."""
        paper, label = soft([[1, 0]], [[2, 0]], temperature=2.0)
        code, _ = soft([[1, 0]], [[2, 0]], temperature=2.0, reduction='code')
        # Halves of the first and of another add up to .2093200 and .1829754.
        for outcome, loss in (
            (label, 0.3132617), (paper, 0.1053783), (code, 0.0526892)
        ):  # fmt: skip
            self.assertAlmostEqual(outcome.loss, loss, places=6)

    @parameterized.parameters(1.0, 5.0, 20.0)
    def test_equals_numpy(self, temperature):
        random = np.random.default_rng(0)
        scores, taught = 3 * random.standard_normal((2, 7, 4))
        actual, _ = soft(scores, taught, temperature=temperature)
        p, q = (special.softmax(x / temperature, axis=1)
                for x in (taught, scores))  # fmt: skip
        expected = temperature**2 * (p * np.log(p / q)).sum(axis=1).mean()
        self.assertAlmostEqual(actual.loss, expected, delta=2e-5 * expected)
        agrees = scores.argmax(axis=1) == taught.argmax(axis=1)
        self.assertAlmostEqual(actual.accuracy, agrees.mean(), places=6)
        commonest = taught.argmax(axis=1) == 3
        self.assertBetween(commonest.mean(), 0.1, 0.9)
        self.assertAlmostEqual(actual.chance, commonest.mean(), places=6)

    @parameterized.parameters('paper', 'code')
    def test_of_several_labels_the_mean_of_each(self, reduction):
        """By hand, T = 2: of log odds 2 and 0 the KL divergence at 1 and 0 is
        log 2 - H(sigma(1)) = .1109439 nats; of 0 and 0 it is none.
        """
        actual, label = soft(
            [[0, 0]], [[2, 0]], True, temperature=2.0, reduction=reduction
        )
        factor = 2 if reduction == 'code' else 1  # no and yes
        expected = 4 * 0.1109439 / 2 / factor
        self.assertAlmostEqual(actual.loss, expected, places=6)
        self.assertAlmostEqual(label.loss, np.log(2), places=6)
        random = np.random.default_rng(0)
        scores, taught = 3 * random.standard_normal((2, 7, 4))
        actual, _ = soft(
            scores, taught, True, temperature=5.0, reduction=reduction
        )
        p, q = special.expit(taught / 5), special.expit(scores / 5)
        loss = special.rel_entr(p, q) + special.rel_entr(1 - p, 1 - q)
        expected = 25 * loss.mean() / factor
        self.assertAlmostEqual(actual.loss, expected, delta=1e-5)
        agrees = (scores > 0) == (taught > 0)
        self.assertAlmostEqual(actual.accuracy, agrees.mean(), places=6)
        self.assertAlmostEqual(actual.chance, (taught > 0).mean(), places=6)

    def test_of_a_number_the_squared_distance(self):
        head = Scores('score', encoder_of(1), zoo.SPECIALS)
        head.build()
        head.kernel.assign([[1.0]])
        objective = TABLE['soft_score'].objective(
            'soft_score', encoder_of(1), zoo.SPECIALS
        )
        objective.set_scorer(head)
        states = np.array([[[1.0], [2.0]]], np.float32)
        batch = batch_of('soft_score', np.array([[3.0, 2.5]], np.float32))
        zeros = np.zeros((1, 2), np.float32)
        head_batch = batch_of('score', zeros, states=states)
        batch = batch._replace(scorer_batch=head_batch)
        actual = eq1.mean(objective.score(batch, None))
        self.assertAlmostEqual(actual.loss, (4 + 0.25) / 2, places=6)
        self.assertFalse(objective.bounded or objective.ranked)


def log_softmax(scores):
    return special.log_softmax(np.asarray(scores, np.float64))


class SoftSpansTest(EagerCase):
    """Two examples in a row of nine tokens: contexts at 2 to 4 and at 6 to 8,
    'nowhere' at 0 and 5.
    """

    NOWHERE = np.array([[0, 5]], np.int32)
    PLACES = ([2, 3, 4], [6, 7, 8])

    def loss(self, scores, taught, temperature, null=False):
        """Scores and taught: [9, 2], of both ends."""
        context = np.zeros((1, 2, 9), bool)
        for example, places in enumerate(self.PLACES):
            context[0, example, places] = True
        slots = slots_of(context, self.NOWHERE, 9 if null else None)
        scores = np.asarray(scores, np.float32)[None]
        head = types.SimpleNamespace(
            both_ends=lambda batch: (slots, (scores[..., 0], scores[..., 1]))
        )
        objective = SoftSpans(
            'soft_span', encoder_of(4), zoo.SPECIALS, temperature=temperature
        )
        objective.set_scorer(head)
        self.assertFalse(objective.bounded or objective.ranked)
        batch = batch_of('soft_span', np.asarray(taught)[None])
        batch.views['examples'].weights['soft_span'] = np.ones((1, 2), 'f')
        return eq1.mean(objective.score(batch, None)).loss

    @parameterized.product(temperature=(1.0, 5.0), null=(False, True))
    def test_equals_numpy(self, temperature, null):
        random = np.random.default_rng(3)
        scores, taught = 3 * random.standard_normal((2, 9, 2))
        expected = []
        for example, places in enumerate(self.PLACES):
            places = places + [self.NOWHERE[0, example]] * null
            for end in range(2):
                log_p, log_q = (log_softmax(x[places, end] / temperature)
                                for x in (taught, scores))  # fmt: skip
                expected.append((np.exp(log_p) * (log_p - log_q)).sum())
        expected = temperature**2 * np.mean(expected)
        actual = self.loss(scores, taught, temperature, null)
        self.assertAlmostEqual(actual, expected, delta=1e-4 * expected)


def patience(states, taught, **settings):
    """The loss of states [N, k - 1, D]; taught: [N, 1, k - 1, W]."""
    states = np.asarray(states, np.float32)
    width = states.shape[2]
    encoder = encoder_of(width, depth=states.shape[1] + 1)
    objective = Patience('patience', encoder, zoo.SPECIALS, **settings)
    objective.build()
    if objective.kernel is not None:
        objective.kernel.assign(np.eye(width, objective.width))
    layers = [states[None, :, 0] * np.nan]  # embeddings count nothing
    layers += [states[None, :, i] for i in range(states.shape[1])]
    batch = batch_of('patience', np.asarray(taught)[None], layers=layers)
    return eq1.mean(objective.score(batch, None)).loss


class PatienceTest(EagerCase):
    def test_orthogonal_states_of_768(self):
        one, other = np.zeros((2, 1, 1, 768))
        one[0, 0, 0], other[0, 0, 5] = 3, 0.1  # of any length
        self.assertAlmostEqual(patience(one, other[:, None]), 2, places=5)
        code = patience(one, other[:, None], reduction='code')
        self.assertAlmostEqual(code, 2 / 768, places=8)

    def drawn(self, n=5, layers=3, width=12):
        random = np.random.default_rng(2)
        return random.standard_normal((2, n, layers, width))

    def test_equals_numpy_and_the_factor_between_the_forms(self):
        """beta of the code / ((k - 1) D) is beta of the paper."""
        states, taught = self.drawn()
        unit = [x / np.linalg.norm(x, axis=-1, keepdims=True)
                for x in (states, taught)]  # fmt: skip
        expected = np.square(unit[0] - unit[1]).sum(axis=(1, 2)).mean()
        paper = patience(states, taught[:, None])
        code = patience(states, taught[:, None], reduction='code')
        self.assertAlmostEqual(paper, expected, delta=1e-5 * expected)
        self.assertAlmostEqual(500 * code, 500 / (3 * 12) * paper, delta=1e-3)

    def test_another_width_is_projected(self):
        states, taught = self.drawn(width=8)
        wide = np.pad(taught, [(0, 0), (0, 0), (0, 4)])
        actual = patience(states, wide[:, None], width=12)
        expected = patience(states, taught[:, None])
        self.assertAlmostEqual(actual, expected, places=5)

    def test_one_layer_is_too_few(self):
        with refused('patience_one_layer', 'patience', 1):
            encoder = encoder_of(4, depth=1)
            Patience('patience', encoder, zoo.SPECIALS).build()


def outcomes_of(model, views, key=None, **weights):
    """Outcomes, and by path the gradient of a sum of their means."""
    model.weights = {row: weights.get(row, 0.0) for row in model.objectives}
    outcomes, _, _, gradients = zoo.differentiated(
        model, views, zoo.statistics(), key, weights=model.variables
    )
    return outcomes, {k: np.abs(x).max() for k, x in gradients.items()}


class GradientTest(EagerCase):
    """Student of three layers with BERT's pooler."""

    def setUp(self):
        super().setUp()
        settings = {'label.pooler': 'tanh'}
        rows = 'label:0.3,soft:0.7,patience:1'
        case = zoo.Case(rows, settings=settings, layers=3)
        self.enterContext(mock.patch.dict(zoo.CASES, student=case))
        self.model = zoo.make_model('student', rate=0.0)
        self.views = zoo.make_views('student')
        view = self.views['examples']
        shape = (*view.weights['patience'].shape, 1, 2, 16)
        taught = np.random.default_rng(0).standard_normal(shape)
        view.targets['patience'] = taught.astype(np.float16)

    def test_patience_ends_below_the_last_layer(self):
        _, actual = outcomes_of(self.model, self.views, patience=1.0)
        none = {p for p, g in actual.items() if g == 0}
        last = {p for p in actual if p.startswith('encoder/layer_2/')}
        head = {p for p in actual if p.startswith('objectives/label/')}
        self.assertLen(head, 4)
        self.assertContainsSubset(last | head, none)
        self.assertEqual(none - last - head, {
            # Keys move all scores of a query alike.
            p for p in none if p.endswith('key_bias')
        })  # fmt: skip

    def test_soft_reaches_all_and_label_of_weight_0_nothing(self):
        _, actual = outcomes_of(self.model, self.views, soft=1.0)
        self.assertGreater(actual['objectives/label/kernel'], 1e-3)
        self.assertGreater(actual['objectives/label/pooler_kernel'], 1e-3)
        self.assertGreater(actual['encoder/layer_2/inner_kernel'], 1e-4)
        self.assertGreater(actual['encoder/word_embeddings'], 1e-4)

    def test_both_have_the_same_scores(self):
        """One dropout: a teacher that says what the student says is right."""
        model = zoo.make_model('student', rate=0.2)
        batches, _ = model.batches(self.views, zoo.statistics(), KEY)
        head = model.objectives['label']
        class_scores = head.candidate_scores(batches['label'])
        view = self.views['examples']
        shape = view.targets['soft'].shape
        view.targets['soft'] = np.reshape(class_scores, shape)
        actual, _ = outcomes_of(model, self.views, KEY, soft=1.0)
        self.assertAlmostEqual(float(actual['soft'].loss), 0, delta=1e-4)
        self.assertEqual(float(actual['soft'].accuracy), 8)

    def test_nothing_of_another_row_s_weights_is_counted_twice(self):
        soft = self.model.objectives['soft']
        self.assertEmpty(soft.weights)
        self.assertEmpty(self.model.objectives['patience'].weights)


class HeadTest(absltest.TestCase):
    def test_it_is_built_without_weight(self):
        for rows, expected in (
            ('soft', {'soft': 1, 'label': 0}),
            ('soft_score:1,score:0', {'soft_score': 1, 'score': 0}),
            ('label:0,mlm:1', {'mlm': 1}),
            ('soft:0.7,label:0.3', {'soft': 0.7, 'label': 0.3}),
        ):
            self.assertEqual(built(parse(rows)), expected)
        model = Model(zoo.config('soft'), zoo.SPECIALS)
        self.assertEqual(list(model.objectives), ['label', 'soft'])
        self.assertEqual(model.weights, {'label': 0, 'soft': 1})


class UnknownTest(absltest.TestCase):
    """Examples that nobody has labelled."""

    def test_they_weigh_nothing_in_their_row_alone(self):
        text = zoo.make_examples()
        text.targets['label'][[1, 5]] = -1
        text.targets['score'][[0, 2]] = np.nan
        rows = dict.fromkeys(('label', 'score', 'soft', 'patience'), 'example')
        view = examples(text, None, rows, zoo.SPECIALS)
        for row, nobody in (
            ('label', {1, 5}), ('score', {0, 2}), ('soft', set()),
            ('patience', set()),
        ):  # fmt: skip
            sequences = view.sequences[view.weights[row] > 0]
            self.assertEqual(set(sequences.tolist()), set(range(8)) - nobody)
            self.assertTrue(np.isfinite(view.targets[row]).all())
        self.assertGreaterEqual(view.targets['label'].min(), 0)

    def test_an_update_without_any_label(self):
        text = zoo.make_examples()
        text.targets['label'][:] = -1
        rows = dict.fromkeys(('label', 'soft'), 'example')
        view = examples(text, None, rows, zoo.SPECIALS)
        model = zoo.make_model('soft')
        views = {'examples': view}
        actual, gradients = outcomes_of(model, views, label=0.5, soft=0.5)
        self.assertEqual(float(actual['label'].weight), 0)
        self.assertEqual(float(actual['soft'].weight), 8)
        self.assertGreater(gradients['objectives/label/kernel'], 1e-4)
