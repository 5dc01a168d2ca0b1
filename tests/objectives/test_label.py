"""Rows whose b people gave, against NumPy; where their axis begins and ends.

Shapes: J examples of a sequence, S texts of each, C classes.
"""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from scipy import special, stats

from infoword_tf.encoders import Encoded
from infoword_tf.layers import dropout
from infoword_tf.layers.mix import Mix
from infoword_tf.objectives import TABLE, Replicas, Statistics
from infoword_tf.objectives.infonce import SUMS
from infoword_tf.objectives.label import Labels, Scores
from infoword_tf.views import View
from tests import zoo
from tests.near import near, same
from tests.objectives import eq1

R, J, D, C = 5, 3, 6, 4
TRAINING, MEASURED = np.array([9, 2, 30, 5]), np.array([3, 1, 7, 2])
# Where each of C labels stands at 50 texts, and at 20.
NO_AND_YES = Statistics(
    np.stack([50 - TRAINING, TRAINING], axis=1).ravel(),
    np.stack([20 - MEASURED, MEASURED], axis=1).ravel(),
)
ACTIVATIONS = {
    'none': lambda x: x,
    'tanh': np.tanh,
    'relu': lambda x: np.maximum(x, 0),
    'gelu': lambda x: x * stats.norm.cdf(x),
}


def make(kind, rate=0.0, depth=2, contextual=True, **settings):
    """A head over D-wide states, all weights drawn."""
    encoder = eq1.encoder_of(
        D, depth=depth, arguments={'rate': rate}, contextual=contextual
    )
    row = {Labels: 'label', Scores: 'score'}[kind]
    if kind is Labels:
        settings = {'classes': C, **settings}
    return eq1.drawn(kind(row, encoder, zoo.SPECIALS, **settings))


def weights_of(head):
    """By the end of their path, NumPy."""
    return {w.path.split('/')[-1]: w.numpy() for w in head.weights}


def batch_of(
    row, states, targets, weights, key=None, layers=None, block_ids=None,
    texts=None, by_row=None, **more,
):  # fmt: skip
    """Builds the batch of a head: states [B, J K, D], targets [B, J].

    Or states [B, T, D] of all tokens, block_ids [B, T] and J K as `texts`.
    """
    rows, slots = np.shape(weights)
    places = np.zeros((rows, texts or states.shape[1]), np.int32)
    view = View(
        ids=np.zeros((rows, 8), np.int32),
        sequences=np.arange(rows * slots, dtype=np.int32).reshape(rows, slots),
        block_ids=block_ids,
        places={row: places},
        targets={row: np.asarray(targets)},
        weights={row: np.asarray(weights, np.float32)},
    )
    by_row = {row: by_row or Statistics(TRAINING, MEASURED)}
    statistics = Statistics(np.ones(3), np.ones(3), by_row=by_row)
    batch = eq1.batch_of(
        {'examples': view}, {'examples': Encoded(states, layers)}, key,
        statistics=statistics,
    )  # fmt: skip
    return batch._replace(**more)


def drawn(texts=1, seed=0):
    """States, targets of C classes and weights; two slots are empty."""
    random = np.random.default_rng(seed)
    states = random.standard_normal((R, J * texts, D)).astype(np.float32)
    targets = random.integers(0, C, (R, J)).astype(np.int32)
    weights = np.ones((R, J), np.float32)
    weights[1, 2] = weights[4, 1:] = 0
    return states, targets, weights


def expected(scores, targets, weights):
    """[F] sums of `label`, from scores [N, C] of each example."""
    p = MEASURED / MEASURED.sum()
    trained = (TRAINING + 1) / (TRAINING.sum() + C)
    total = np.zeros(len(SUMS))
    for s, b, w in zip(scores, targets.ravel(), weights.ravel(), strict=True):
        loss = special.logsumexp(s) - s[b]
        total += w * np.array([
            loss,
            1,
            -math.log(p[b]) - loss,
            -math.log(p[b]),
            math.log(len(s)),
            math.log(trained[b] / p[b]),
            (np.delete(s, b) < s[b]).all(),
            b == MEASURED.argmax(),
            1,
        ])  # fmt: skip
    return total


class Case(eq1.EagerCase):
    def assert_sums(self, outcome, expected_sums):
        near(eq1.sums(outcome), expected_sums, rtol=1e-5, atol=1e-5)


class LabelTest(Case):
    @parameterized.parameters(*ACTIVATIONS)
    def test_equals_numpy(self, pooler):
        """Counts nothing of an empty slot, by every pooler."""
        head = make(Labels, pooler=pooler)
        has = weights_of(head)
        states, targets, weights = drawn()
        x = states.reshape(-1, D).astype(float)
        if pooler != 'none':
            x = x @ has['pooler_kernel'] + has['pooler_bias']
        x = ACTIVATIONS[pooler](x)
        scores = x @ has['kernel'] + has['bias']
        outcome = head.score(batch_of('label', states, targets, weights), None)
        self.assert_sums(outcome, expected(scores, targets, weights))
        near(outcome.predictions['scores'], scores.reshape(R, J, C), atol=1e-5)
        empty = weights == 0
        states[empty], targets[empty] = 1e3, (targets[empty] + 1) % C
        again = head.score(batch_of('label', states, targets, weights), None)
        same(eq1.sums(again), eq1.sums(outcome))

    def test_choices_are_the_candidates(self):
        """K = C texts of an example, one score each."""
        head = make(Labels, texts='choices')
        has = weights_of(head)
        self.assertEqual(has['kernel'].shape, (D, 1))
        states, targets, weights = drawn(texts=C)
        scores = (states.reshape(-1, C, D) @ has['kernel'])[:, :, 0]
        outcome = head.score(batch_of('label', states, targets, weights), None)
        self.assert_sums(outcome, expected(scores, targets, weights))
        near(
            outcome.predictions['scores'].numpy().reshape(-1, C),
            scores + has['bias'],
            atol=1e-5,
        )

    def test_several_labels_have_the_mean_of_each(self):
        head = make(Labels, multilabel=True)
        has = weights_of(head)
        states, _, weights = drawn()
        random = np.random.default_rng(5)
        targets = random.integers(0, 2, (R, J, C)).astype(np.int32)
        targets[0, 0] = 0
        scores = states.reshape(-1, D) @ has['kernel'] + has['bias']
        outcome = head.score(
            batch_of('label', states, targets, weights, by_row=NO_AND_YES), None
        )
        p, q = MEASURED / 20, (TRAINING + 1) / (50 + 2)  # of yes
        total = np.zeros(len(SUMS))
        for s, b, w in zip(
            scores, targets.reshape(-1, C), weights.ravel(), strict=True
        ):
            loss = np.logaddexp(0, s) - b * s
            entropy = -np.log(np.where(b, p, 1 - p))
            trained = np.log(np.where(b, q, 1 - q))
            total += w * np.mean([
                loss, np.ones(C), entropy - loss, entropy,
                np.full(C, math.log(2)), trained + entropy,
                (s > 0) == b, (p > 0.5) == b, np.ones(C),
            ], axis=1)  # fmt: skip
        self.assert_sums(outcome, total)
        near(outcome.predictions['scores'], scores.reshape(R, J, C), atol=1e-5)

    def test_two_alike_are_no_answer(self):
        head = make(Labels)
        for weight in head.weights:
            weight.assign(np.zeros(weight.shape))
        outcome = head.score(batch_of('label', *drawn()), None)
        self.assertEqual(float(outcome.accuracy), 0)


class BagTest(Case):
    """Over an encoder whose states know their own piece alone."""

    @parameterized.parameters(
        ('label', Labels, 1, {}),
        ('label', Labels, 2, {'texts': 'both_ways', 'pooler': 'tanh'}),
        ('label', Labels, C, {'texts': 'choices', 'mix': True}),
        ('score', Scores, 1, {'mix': True, 'pooler': 'gelu'}),
    )
    def test_a_text_is_the_mean_of_its_tokens(self, row, kind, count, settings):
        """Takes no other text of its row, and no padding."""
        head = make(kind, depth=0, contextual=False, **settings)
        has = weights_of(head)
        _, targets, weights = drawn(texts=count)
        targets = targets.astype('int32' if row == 'label' else 'float32')
        random = np.random.default_rng(4)
        sizes = random.integers(1, 5, (R, J * count))
        sizes[np.repeat(weights == 0, count, axis=1)] = 0
        block_ids = np.full((R, sizes.sum(axis=1).max() + 3), J * count)
        for by_row, size in zip(block_ids, sizes, strict=True):
            by_row[: size.sum()] = np.repeat(np.arange(J * count), size)
        states = random.standard_normal((*block_ids.shape, D))
        states = states.astype(np.float32)
        x = np.zeros((R, J * count, D))
        for i, number in np.argwhere(sizes > 0):
            x[i, number] = states[i, block_ids[i] == number].mean(axis=0)
        x = x * has.get('gamma', 1.0)
        if 'pooler' in settings:
            x = x @ has['pooler_kernel'] + has['pooler_bias']
            x = ACTIVATIONS[settings['pooler']](x)
        scores = x @ has['kernel'] + has['bias']
        scores = scores.reshape(R, J, count, -1)
        both = settings.get('texts') != 'choices'
        scores = scores.sum(axis=2) if both else scores[..., 0]
        outcome = head.score(
            batch_of(
                row, states, targets, weights, layers=[states],
                block_ids=block_ids.astype(np.int32), texts=J * count,
            ),
            None,
        )  # fmt: skip
        actual = outcome.predictions['scores'].numpy().reshape(scores.shape)
        near(actual, scores, atol=1e-5)


class ScoreTest(Case):
    @parameterized.parameters(('joined', 1), ('both_ways', 2))
    def test_squared_errors(self, texts, count):
        head = make(Scores, texts=texts, pooler='tanh')
        has = weights_of(head)
        states, _, weights = drawn(texts=count)
        targets = np.linspace(-2, 5, R * J, dtype=np.float32).reshape(R, J)
        x = np.tanh(states @ has['pooler_kernel'] + has['pooler_bias'])
        numbers = (x @ has['kernel'] + has['bias']).reshape(R, J, count)
        numbers = numbers.sum(axis=2)
        outcome = head.score(batch_of('score', states, targets, weights), None)
        actual = dict(zip(SUMS, eq1.sums(outcome), strict=True))
        errors = weights * (numbers - targets) ** 2
        self.assertAlmostEqual(
            actual['loss'], errors.sum(), delta=1e-5 * errors.sum()
        )
        self.assertEqual(actual['weight'], weights.sum())
        self.assertEqual(actual['measured'], weights.sum())
        for name in set(actual) - {'loss', 'weight', 'measured'}:
            self.assertEqual(actual[name], 0, name)
        near(outcome.predictions['scores'], numbers, atol=1e-5)

    def cosent(self, numbers, targets, weights, scale=1.0):
        """(loss, gradient of numbers) of a head whose number is a state's
        first.
        """
        head = make(Scores, loss='cosent', scale=scale)
        head.kernel.assign(np.eye(D, 1))
        head.bias.assign([0.0])
        states = np.zeros((1, len(numbers), D), np.float32)
        states[0, :, 0] = numbers
        states = tf.constant(states)
        batch = batch_of(
            'score', states, np.float32([targets]), np.float32([weights])
        )
        with tf.GradientTape() as tape:
            tape.watch(states)
            outcome = head.score(batch, head.candidates(batch))
        gradient = tape.gradient(outcome.loss, states)[0, :, 0]
        near(outcome.predictions['scores'], [numbers], atol=1e-6)
        self.assertEqual(float(outcome.weight), sum(weights))
        return float(outcome.loss), gradient.numpy()

    def test_cosent_by_hand(self):
        """Takes b 0, 1, 1 and s log 2, 0, log 4: exp(log 2 - 0) is 2 and
        exp(log 2 - log 4) is 1/2, so log 3.5, for each of three examples; the
        fourth is none.
        """
        numbers = [math.log(2), 0, math.log(4), 99]
        known = [0, 1, 1, -1], [1, 1, 1, 0]
        loss, gradient = self.cosent(numbers, *known)
        self.assertAlmostEqual(loss, 3 * math.log(3.5), places=5)
        expected_sums = 3 * np.array([2.5, -2, -0.5, 0]) / 3.5
        near(gradient, expected_sums, atol=1e-5)
        # Twice the scale squares both: 1 + 4 + 1/4.
        loss, _ = self.cosent(numbers, *known, scale=2.0)
        self.assertAlmostEqual(loss, 3 * math.log(5.25), places=5)
        # What all have in common does not count.
        loss, _ = self.cosent(np.add(numbers, 5), *known)
        self.assertAlmostEqual(loss, 3 * math.log(3.5), places=4)

    @parameterized.parameters(
        ([3.0, 1.0, 2.0], [2, 2, 2], [1, 1, 1]),
        ([3.0, 1.0], [1, 2], [1, 0]),
    )
    def test_cosent_without_a_pair(self, numbers, targets, weights):
        loss, gradient = self.cosent(numbers, targets, weights)
        self.assertEqual(loss, 0)
        same(gradient, 0)

    def test_only_cosent_compares(self):
        self.assertFalse(make(Scores).has_vectors)
        self.assertTrue(make(Scores, loss='cosent').has_vectors)

    def test_it_says_that_it_bounds_nothing(self):
        self.assertTrue(TABLE['label'].objective.bounded)
        self.assertFalse(TABLE['score'].objective.bounded)
        self.assertFalse(TABLE['score'].objective.ranked)


class MixTest(Case):
    def layers(self, depth=2):
        random = np.random.default_rng(1)
        shape = (R, J, D)
        return [
            random.standard_normal(shape).astype(np.float32)
            for _ in range(depth + 1)
        ]

    def test_it_begins_as_the_mean(self):
        mix, layers = Mix(2), self.layers()
        mix.build()
        near(mix(layers), np.mean(layers, axis=0), atol=1e-6)

    @parameterized.parameters(('label', Labels), ('score', Scores))
    def test_a_head_reads_it(self, row, kind):
        """And nothing of the last states."""
        head = make(kind, mix=True)
        has = weights_of(head)
        layers = self.layers()
        states, targets, weights = drawn()
        if row == 'score':
            targets = targets.astype(np.float32)
        mixed = np.tensordot(
            special.softmax(has['scales']), layers, axes=1
        ) * has['gamma']
        outcome = head.score(
            batch_of(row, states, targets, weights, layers=layers), None
        )
        expected = mixed @ has['kernel'] + has['bias']
        actual = outcome.predictions['scores'].numpy()
        near(actual.reshape(R, J, -1), expected, atol=1e-5)

    @parameterized.product(
        row=('label', 'score'),
        mix=(False, True),
        pools=('', 'bilstm', 'mean'),
    )
    def test_what_rows_ask_for(self, row, mix, pools):
        settings = {'mix': mix, 'bilstm': False, 'mean': False}
        if pools:
            settings[pools] = True
        reads = TABLE[row].reads(settings)['examples']
        self.assertEqual(reads.layers, mix)
        self.assertEqual(reads.everywhere, bool(pools))
        bag = TABLE[row].reads(settings, False)
        self.assertEqual(bag['examples'], reads._replace(everywhere=True))


class DropoutTest(Case):
    def loss(self, head, key, replica=0):
        replicas = Replicas()
        replicas.id = replica
        batch = batch_of('label', *drawn(), key=key, replicas=replicas)
        return float(head.score(batch, None).loss)

    def test_by_key_and_replica(self):
        head = make(Labels, rate=0.5)
        key, other = dropout.new_key(1), dropout.new_key(2)
        self.assertEqual(self.loss(head, key), self.loss(head, key))
        actual = {
            self.loss(head, key),
            self.loss(head, other),
            self.loss(head, key, replica=1),
            self.loss(head, None),
        }
        self.assertLen(actual, 4)
        still = make(Labels)  # of rate 0
        self.assertEqual(self.loss(still, key), self.loss(still, None))
