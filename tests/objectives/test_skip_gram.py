"""Skip-gram and CBOW against pairs that are scored one by one.

Shapes: J places of a window.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from scipy import special

from infoword_tf.objectives import Statistics, word2vec
from infoword_tf.views.words import keep_probabilities, known, noise
from tests import eager, zoo
from tests.near import same
from tests.objectives import eq1

KEY = eager.new_key(0, 0)
COUNTS = known(zoo.statistics().training, zoo.UNK)
CASES = [name for name in zoo.CASES if name.startswith(('skip_gram', 'cbow'))]


def pairs(model, view, row):
    """Each pair with a weight: (state of a, b, row of the batch)."""
    table = model.encoder.embedding_table.numpy().astype(np.float64)
    batch, length = view.ids.shape
    if row == 'cbow':
        near = view.mixes[row] > 0
    else:
        near = view.weights[row].reshape(batch, length, -1) > 0
    window = near.shape[2] // 2
    for i in range(batch):
        for t in range(length):
            places = t + np.flatnonzero(near[i, t]) - window
            if row == 'cbow' and len(places):
                yield table[view.ids[i, places]].mean(axis=0), view.ids[i, t], i
            elif row == 'skip_gram':
                for place in places:
                    yield table[view.ids[i, t]], view.ids[i, place], i


def expected(name, model, view):
    """Means by name, of what a reader of the definition would write."""
    (row,) = zoo.CASES[name].rows
    settings = zoo.CASES[name].settings_of(row)
    outputs = model.objectives[row].outputs.numpy().astype(np.float64)
    left = COUNTS * keep_probabilities(COUNTS, settings['subsample'])
    p, q = left / left.sum(), noise(COUNTS)
    (drawn,) = view.drawn.values()
    likely = p / (1 - (1 - np.where(q > 0, q, 1)) ** drawn.shape[1])
    sums = []
    for a, b, i in pairs(model, view, row):
        positive = a @ outputs[b]
        drawn = view.drawn[row][i]
        others = outputs[drawn] @ a
        copies = (drawn == b).sum()
        right = (others[drawn != b] < positive).all()
        chance = (likely[drawn[drawn != b]] < likely[b]).all()
        if settings['loss'] == 'binary':
            loss = np.logaddexp(0, -positive) + settings['ratio'] * np.sum(
                np.logaddexp(0, others[drawn != b])
            ) / len(drawn)
            sums.append([loss, right, chance, 0, 0])
            continue
        if settings['loss'] == 'vocabulary':
            others, copies = outputs @ a, 0
            right, chance = others.argmax() == b, p.argmax() == b
            loss = special.logsumexp(others) - positive
            most = -np.log(p[b])
        else:
            loss = special.logsumexp([positive, *others]) - positive
            most = np.log(1 + len(drawn)) - np.log(p[b] / q[b])
        ceiling = most - np.log(1 + copies)
        sums.append([loss, right, chance, most - loss, ceiling])
    return len(sums), np.mean(sums, axis=0)


class PairsTest(eq1.EagerCase):
    @parameterized.product(name=CASES, key=(None, KEY))
    def test_one_by_one(self, name, key):
        model = zoo.make_model(name, rate=0.0)
        all_views = zoo.make_views(name)
        (row,) = zoo.CASES[name].rows
        outcomes, _ = model.outcomes(all_views, zoo.statistics(), key)
        # The binary loss bounds nothing.
        self.assertEqual(model.objectives[row].bounded, 'binary' not in name)
        actual = eq1.mean(outcomes[row])
        number, (loss, right, chance, mi, ceiling) = expected(
            name, model, all_views['words']
        )
        self.assertEqual(float(outcomes[row].measured), number)
        eq1.check(actual, 5e-5, loss=loss, mi=mi, ceiling=ceiling)
        eq1.check(actual, 5e-7, accuracy=right, chance=chance)

    def test_chance_by_hand(self):
        """p / w: 0.55, 1.58, 0.56; two pairs share each row of draws."""
        statistics = Statistics(np.ones(3), np.array([5, 3, 2]))
        actual = statistics.marginal(
            'any',
            tf.constant([0, 1, 2, 0]),
            np.array([0.7, 0.1, 0.2]),
            tf.constant([[1, -1], [0, 0]]),
        )
        same(actual.chance, [0, 1, 1, 1])


class RowTest(parameterized.TestCase):
    @parameterized.parameters('skip_gram', 'cbow')
    def test_unknown_words_are_in_no_pair(self, row):
        view = zoo.make_views(row)['words']
        weights = view.weights[row]
        near = weights.reshape(*view.ids.shape, -1).any(axis=2)
        for ids in (view.targets[row][weights > 0], view.ids[near],
                    view.drawn[row]):  # fmt: skip
            self.assertGreater(ids.size, 100)
            self.assertNotIn(zoo.UNK, ids)

    def test_bands(self):
        for s, window in ((4, 1), (6, 3), (1, 2)):
            c = s + 2 * window
            x = np.arange(2.0 * s * c).reshape(2, s, c).astype('float32')
            band = np.asarray(word2vec._band(tf.constant(x)))
            for i in range(s):
                same(band[:, i], x[:, i, i : i + 2 * window + 1])
            spread = np.asarray(word2vec._spread(tf.constant(band)))
            same(np.asarray(word2vec._band(tf.constant(spread))), band)
            self.assertEqual((spread != 0).sum(), (band != 0).sum())

    def test_gradient_of_overlapping_blocks(self):
        """Equals the gradient of the plain operations."""
        random = np.random.default_rng(3)
        x = tf.constant(random.standard_normal((2, 15, 3)), tf.float32)
        for block, margin in ((5, 2), (5, 5), (3, 1)):
            upstream = (2, 15 // block, block + 2 * margin, 3)
            upstream = random.standard_normal(upstream)
            gradients = []
            for key in (None, KEY):
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    blocks = word2vec._around(x, block, margin, key)
                    value = tf.reduce_sum(blocks * upstream)
                gradients.append(tape.gradient(value, x))
            np.testing.assert_allclose(*gradients, rtol=1e-5, atol=1e-5)
