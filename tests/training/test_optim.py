"""Updates against written-out ones, and what they must not touch."""

import math
import re
from types import MappingProxyType

import keras
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.choices import OptimizerChoices, flags_of
from infoword_tf.training import optim
from tests import zoo
from tests.near import assert_near
from tests.refused import refused

SHAPES = {
    'encoder/word_embeddings': (7, 4),
    'encoder/layer_0/inner_kernel': (4, 6),
    'encoder/layer_0/inner_bias': (6,),
    'encoder/norm_gamma': (4,),
    'encoder/layer_0/attention/content_bias': (2, 2),
}
DECAYING = ('encoder/word_embeddings', 'encoder/layer_0/inner_kernel')
# By hand, of facts and code: beta_2, epsilon, bias correction, decay, clip.
SETTINGS = {
    'infoword': (0.98, 1e-6, True, 0.01, 1.0),
    'adamw': (0.999, 1e-8, True, 0.01, 1.0),
    'bert': (0.999, 1e-6, False, 0.01, 1.0),
    'xlnet': (0.999, 1e-8, False, 0.01, 1.0),
    'gpt': (0.999, 1e-8, True, 0.01, 1.0),
    'transformer_xl': (0.999, 1e-8, True, 0.0, 0.25),
}


class NumpyAdamW:
    """Computes Adam with decoupled decay in float64: the oracle."""

    def __init__(self, weights, decay, clip, name='infoword'):
        self.weights = {k: w.astype(np.float64) for k, w in weights.items()}
        self.m = {k: np.zeros(w.shape) for k, w in weights.items()}
        self.v = {k: np.zeros(w.shape) for k, w in weights.items()}
        self.decay, self.clip, self.updates = decay, clip, 0
        self.name = name
        self.beta, self.epsilon, self.corrected, *_ = SETTINGS[name]

    def decays(self, path):
        xlnets = self.name == 'xlnet' and path.endswith('content_bias')
        return path in DECAYING or xlnets

    def apply(self, gradients, rate):
        self.updates += 1
        norm = math.sqrt(sum((g**2).sum() for g in gradients.values()))
        scale = min(1.0, self.clip / norm) if self.clip else 1.0
        rate_t = rate
        if self.corrected:
            rate_t *= math.sqrt(1 - self.beta**self.updates)
            rate_t /= 1 - 0.9**self.updates
        shrink = self.decay * (rate_t if self.name == 'gpt' else rate)
        for k, g in gradients.items():
            g = g.astype(np.float64) * scale
            self.m[k] = 0.9 * self.m[k] + 0.1 * g
            self.v[k] = self.beta * self.v[k] + (1 - self.beta) * g**2
            if self.decays(k):
                self.weights[k] *= 1 - shrink
            self.weights[k] -= rate_t * self.m[k] / (
                np.sqrt(self.v[k]) + self.epsilon
            )


def make_weights():
    random = np.random.default_rng(0)
    return {
        path: random.standard_normal(shape).astype(np.float32)
        for path, shape in SHAPES.items()
    }


def make_gradients(step):
    """Draws gradients of sizes from 1e-7, below epsilon, to 3."""
    random = np.random.default_rng([1, step])
    return {
        path: (
            random.standard_normal(shape) * 10.0 ** random.uniform(-7, 0.5)
        ).astype(np.float32)
        for path, shape in SHAPES.items()
    }


def optimizer_of(name, *options, shares=MappingProxyType({})):
    variables = {k: keras.Variable(w) for k, w in make_weights().items()}
    return optim.AdamW(variables, optim.preset(name, *options), shares)


def update(optimizer, gradients, rate, step, allowed=True, apply=None):
    return (apply or optimizer.apply)(
        [tf.convert_to_tensor(g) for g in gradients.values()],
        tf.constant(rate, tf.float32), tf.cast(step, tf.int64),
        tf.convert_to_tensor(allowed),
    )  # fmt: skip


def state(optimizer):
    both = {**optimizer.variables, **optimizer.slots}
    return {k: v.numpy().copy() for k, v in both.items()}


def assert_state(test, optimizer, oracle, tolerance=2e-6):
    expected = {
        **oracle.weights,
        **{f'm/{k}': v for k, v in oracle.m.items()},
        **{f'v/{k}': v for k, v in oracle.v.items()},
    }
    test.assertEqual(set(state(optimizer)), set(expected))
    assert_near(state(optimizer), expected, of_each=tolerance)


class NarrowTest(parameterized.TestCase):
    """Moments in bfloat16."""

    def test_as_likely_as_near(self):
        """Between 1 and 1 + 2^-7 there is nothing; 3/8 of the way there."""
        x = np.float32(1 + 3 / 8 * 2**-7)
        chance = tf.range(65536, dtype=tf.int64)
        for sign in (1, -1):
            actual = optim.narrowed(
                tf.fill((65536,), sign * x), tf.cast(chance, tf.uint32)
            ).numpy().astype(np.float64)
            self.assertEqual(set(abs(actual)), {1.0, 1.0078125})
            self.assertEqual(actual.mean(), sign * np.float64(x))

    def test_exact_ones_stay(self):
        x = np.array([0.0, 1.0, -0.5, 1e-30, -3.0078125], np.float32)
        x = tf.cast(tf.cast(x, tf.bfloat16), tf.float32)
        for chance in (0, 65535):
            actual = optim.narrowed(x, tf.fill((5,), np.uint32(chance)))
            np.testing.assert_array_equal(
                tf.cast(actual, tf.float32).numpy(), x.numpy()
            )

    @parameterized.parameters('infoword', 'bert')
    def test_weights_as_with_float32(self, name):
        """A thousand updates; the averages would stand still if rounded."""
        weights, moments = {}, {}
        random = np.random.default_rng(0)
        first = random.standard_normal((8, 32)).astype(np.float32)
        drawn = random.standard_normal((1000, 8, 32)).astype(np.float32)
        scales = np.linspace(1.0, 0.2, 1000, dtype=np.float32)
        gradients_of = (drawn + 0.5) * scales[:, None, None]
        for kind in ('float32', 'bfloat16'):
            variable = keras.Variable(first)
            optimizer = optim.AdamW(
                {'kernel': variable}, optim.preset(name, 0.0, 0.0, kind)
            )
            self.assertEqual(optimizer.slots['v/kernel'].dtype, kind)

            def one(step, optimizer=optimizer):
                gradients = {'kernel': tf.gather(gradients_of, step)}
                update(optimizer, gradients, 1e-3, step)
                return step + 1

            tf.function(tf.while_loop, autograph=False)(
                lambda step: step < 1000, one, [tf.constant(0, tf.int64)]
            )
            weights[kind] = variable.numpy() - first
            moments[kind] = {
                k: v.numpy().astype(np.float32)
                for k, v in optimizer.slots.items()
            }
        moved = np.abs(weights['float32']).mean()
        self.assertGreater(moved, 0.1)
        apart = np.abs(weights['bfloat16'] - weights['float32']).mean()
        self.assertLess(apart, 0.03 * moved)
        wide, narrow = (moments[k]['v/kernel'] for k in ('float32', 'bfloat16'))
        # On average they are the same: 256 weights, each off by some 2^-8.
        self.assertAlmostEqual((narrow / wide).mean(), 1.0, delta=0.02)

    def test_sums_want_float32(self):
        with refused('moments_of_sums', '--moments=bfloat16'):
            optim.preset('word2vec', moments='bfloat16')


class UpdateTest(parameterized.TestCase):
    """Every system's own updates, from the first one on, and others."""

    @parameterized.product(
        asked=(
            *((name, None, None) for name in SETTINGS),
            ('infoword', 0.0, 0.0), ('infoword', 0.3, 0.5),
        ),
        graph=(False, True),
    )  # fmt: skip
    def test_equals_numpy(self, asked, graph):
        """Six updates, of falling rates."""
        name, decay, clip = asked
        optimizer = optimizer_of(name, decay, clip)
        if decay is None:
            *_, decay, clip = SETTINGS[name]
        oracle = NumpyAdamW(make_weights(), decay, clip, name)
        apply = tf.function(optimizer.apply) if graph else None
        # 1 - 0.999 in float32 is off by 1.3e-5 of it.
        tolerance = 2e-6 if name == 'infoword' else 2e-5
        for step in range(6):
            gradients, rate = make_gradients(step), 0.1 / (step + 1)
            updated = update(optimizer, gradients, rate, step, apply=apply)
            self.assertTrue(bool(updated))
            oracle.apply(gradients, rate)
            assert_state(self, optimizer, oracle, tolerance)

    @parameterized.parameters('infoword', 'word2vec')
    def test_a_row_may_spare_a_weight(self, name):
        rules = optim.preset(name, weight_decay=0.5)
        rate, step = tf.constant(0.1), tf.constant(0, tf.int64)
        weights = {
            path: keras.Variable(np.ones((2, 3), 'float32'), name=path[:1])
            for path in ('a/kernel', 'b/kernel')
        }
        optimizer = optim.AdamW(weights, rules, no_decay={'b/kernel'})
        optimizer.apply([tf.zeros((2, 3))] * 2, rate, step, tf.constant(True))
        a, b = (weight.numpy() for weight in weights.values())
        np.testing.assert_allclose(a, 0.95, rtol=1e-6)
        np.testing.assert_array_equal(b, 1.0)

    def test_late_updates(self):
        """Bias correction of step 100,000 is 1, not a negative power."""
        optimizer = optimizer_of('infoword', 0.0, 0.0)
        oracle = NumpyAdamW(make_weights(), 0.0, 0.0)
        oracle.updates = 99_999
        update(optimizer, make_gradients(0), 0.1, 99_999)
        oracle.apply(make_gradients(0), 0.1)
        assert_state(self, optimizer, oracle)

    def test_adagrad_equals_numpy(self):
        """ELMo's: squares summed from 1 on, a clip at 10, and no more."""
        optimizer = optimizer_of('elmo')
        self.assertEqual({k[:2] for k in optimizer.slots}, {'v/'})
        weights = {k: w.astype(float) for k, w in make_weights().items()}
        sums = {k: np.ones(w.shape) for k, w in weights.items()}
        for step in range(4):
            gradients = {k: 9 * g for k, g in make_gradients(step).items()}
            norm = math.sqrt(sum((g**2).sum() for g in gradients.values()))
            update(optimizer, gradients, 0.2, step)
            for k, g in gradients.items():
                g = g * min(1.0, 10.0 / norm)
                sums[k] += g**2
                weights[k] -= 0.2 * g / np.sqrt(sums[k])
            slots = {f'v/{k}': x for k, x in sums.items()}
            assert_near(optimizer.slots, slots, rtol=1e-5)
            assert_near(optimizer.variables, weights, atol=1e-5)

    def test_what_is_chosen_wins(self):
        self.assertEqual(optim.preset('xlnet'), optim.PRESETS['xlnet'])
        actual = optim.preset('elmo', weight_decay=0.3, clip_norm=0.0)
        self.assertEqual((actual.weight_decay, actual.clip_norm), (0.3, 0.0))
        self.assertIsNone(actual.beta_2)

    def test_another_course_of_the_rate(self):
        """Of 12 updates 4 are warm-up; then half of the rest is over at 8."""
        for name, lr_decay, at_6, at_8 in (
            ('infoword', None, 0.75, 0.5), ('infoword', 'none', 1.0, 1.0),
            ('infoword', 'cosine', 0.8535534, 0.5), ('bert', 'none', 1.0, 1.0),
            ('gpt', 'linear', 0.75, 0.5), ('xlnet', 'linear', 0.75025, 0.5005),
        ):  # fmt: skip
            rules = optim.preset(name, lr_decay=lr_decay)
            rates = [optim.schedule(t, 2.0, 4, 12, rules) for t in (6, 8)]
            np.testing.assert_allclose(rates, [2 * at_6, 2 * at_8], rtol=1e-6)

    def test_the_flag_knows_them_all(self):
        self.assertEqual(OptimizerChoices.optimizer, optim.DEFAULT)
        _, flag = flags_of(OptimizerChoices)['optimizer']
        self.assertEqual(flag.choices, tuple(optim.PRESETS))


class SharesTest(absltest.TestCase):
    """Layer-wise decay of the rate, and no gradient of what is frozen."""

    def test_written_out(self):
        """Has three layers; 1 is not said."""
        paths = [
            'encoder/word_embeddings', 'encoder/norm_gamma',
            'encoder/layer_0/inner_kernel', 'encoder/layer_1/inner_bias',
            'encoder/layer_2/attention/qkv_kernel', 'encoder/last_norm_beta',
            'objectives/label/kernel',
        ]  # fmt: skip
        actual = optim.layer_shares(paths, 3, 0.5)
        self.assertEqual(
            [actual.get(path, 1.0) for path in paths],
            [0.125, 0.125, 0.25, 0.5, 1.0, 1.0, 1.0],
        )
        twelve = [f'encoder/layer_{i}/inner_kernel' for i in range(12)]
        actual = optim.layer_shares(twelve, 12, 0.75)
        for i, path in enumerate(twelve):
            self.assertAlmostEqual(actual[path], 0.75 ** (11 - i))

    def test_of_every_weight_of_a_model(self):
        for name in ('label_mix', 'label_relative', 'label_lookup'):
            model = zoo.make_model(name)
            depth = model.encoder.depth
            actual = optim.layer_shares(model.trainable, depth, 0.5)
            for path in model.trainable:
                if path.startswith('objectives/'):
                    self.assertNotIn(path, actual)
                elif f'/layer_{depth - 1}/' in path:
                    self.assertEqual(actual[path], 1.0)
                elif path.endswith('embeddings'):
                    self.assertEqual(actual[path], 0.5**depth)

    def test_it_is_the_rate_that_is_scaled(self):
        """Scales the rate: of a gradient Adam would divide the factor out.

        Bit for bit the update of another rate, decay and moments too.
        """
        shares = {
            'encoder/word_embeddings': 0.25,
            'encoder/layer_0/inner_kernel': 0.5,
            'encoder/layer_0/inner_bias': 0.5,
        }
        scaled = optimizer_of('adamw', 0.1, shares=shares)
        for share in (0.25, 0.5, 1.0):
            plain = optimizer_of('adamw', 0.1)
            for step in range(3):
                update(plain, make_gradients(step), 0.1 * share, step)
                if share == 0.25:
                    update(scaled, make_gradients(step), 0.1, step)
            assert_near(state(scaled), {
                path: x for path, x in state(plain).items()
                if shares.get(re.sub('^[mv]/', '', path), 1.0) == share
            })  # fmt: skip

    def test_forgotten_moments_are_as_they_were_made(self):
        for name in ('adamw', 'elmo'):
            optimizer = optimizer_of(name)
            before = {k: v.numpy() for k, v in optimizer.slots.items()}
            update(optimizer, make_gradients(0), 0.1, 0)
            optimizer.reset()
            assert_near(optimizer.slots, before)


class RefusedTest(parameterized.TestCase):
    def test_no_gradient_at_all_is_none(self):
        optimizer = optimizer_of('infoword', 0.01, 0.5)
        zeros = {k: np.zeros(s, np.float32) for k, s in SHAPES.items()}
        self.assertTrue(bool(update(optimizer, zeros, 0.1, 0)))
        for value in state(optimizer).values():
            self.assertTrue(np.isfinite(value).all())

    @parameterized.product(
        value=(math.nan, math.inf, -math.inf), clip=(0.0, 1.0)
    )
    def test_a_gradient_that_is_not_finite_changes_nothing(self, value, clip):
        optimizer = optimizer_of('infoword', 0.01, clip)
        update(optimizer, make_gradients(0), 0.1, 0)
        before = state(optimizer)
        gradients = make_gradients(1)
        gradients['encoder/layer_0/inner_bias'][3] = value
        self.assertFalse(bool(update(optimizer, gradients, 0.1, 1)))
        np.testing.assert_equal(state(optimizer), before)

    def test_what_is_not_allowed_changes_nothing(self):
        optimizer = optimizer_of('infoword', 0.01, 1.0)
        update(optimizer, make_gradients(0), 0.1, 0)
        before = state(optimizer)
        for apply in (None, tf.function(optimizer.apply)):
            self.assertFalse(
                bool(update(optimizer, make_gradients(1), 0.1, 1, False, apply))
            )
            np.testing.assert_equal(state(optimizer), before)
        self.assertTrue(
            bool(update(optimizer, make_gradients(1), 0.1, 1, True, apply))
        )
        for path, array in state(optimizer).items():
            self.assertFalse(np.array_equal(array, before[path]), path)


VECTORS = r'(bias|gamma|beta|log_scale|scales)$'


class DecaysTest(parameterized.TestCase):
    @parameterized.parameters(*zoo.CASES)
    def test_matrices_and_tables_decay_biases_and_norms_do_not(self, name):
        variables = zoo.make_model(name).variables
        decaying = {p for p in variables if optim.preset().decays(p)}
        # Relative attention has its biases by head.
        matrices = {
            p
            for p, v in variables.items()
            if len(v.shape) > 1 and not p.endswith('bias')
        }
        # Those of poolings are matrices of one column, kept as vectors.
        of_poolings = '/pooling_kernel', '/word_kernel'
        kernels = {p for p in variables if p.endswith(of_poolings)}
        self.assertEqual(decaying, matrices | kernels)
        for path in set(variables) - decaying:
            self.assertRegex(path, VECTORS)

    @parameterized.parameters('plm', 'transformer_xl')
    def test_relative_biases_decay_under_xlnet_alone(self, name):
        """r_w_bias, r_r_bias and r_s_bias of its code: u, v and s."""
        variables = zoo.make_model(name).variables
        usual = {p for p in variables if optim.preset().decays(p)}
        kinds = ('content_bias', 'position_bias', 'segment_bias')
        relative = {p for p in variables if p.endswith(kinds)}
        layers = zoo.CASES[name].layers
        self.assertLen(relative, layers * (3 if name == 'plm' else 2))
        for other in optim.PRESETS:
            actual = {p for p in variables if optim.preset(other).decays(p)}
            more = relative if other == 'xlnet' else set()
            self.assertEqual(actual, usual | more, other)


class ScheduleTest(parameterized.TestCase):
    @parameterized.parameters(
        ('infoword', 4, 4, 8, dict(enumerate([1, 2, 3, 4, 4, 3, 2, 1, 0]))),
        ('infoword', 4, 2, 6, dict(enumerate([2, 4, 4, 3, 2, 1, 0]))),
        ('infoword', 4, 1, 5, dict(enumerate([4, 4, 3, 2, 1, 0]))),
        ('infoword', 4, 0, 4, dict(enumerate([4, 3, 2, 1, 0]))),
        ('infoword', 4, 4, 4, dict(enumerate([1, 2, 3, 4, 0]))),
        ('infoword', 0.2, 1, 1, {0: 0.2, 1: 0}),
        # Of the code of BERT: from the first update on, so that there is a
        # small decay at the end of the warm-up.
        ('bert', 1e-4, 10_000, 1_000_000,
         {0: 0, 5000: 5e-5, 9999: 9.999e-5, 10_000: 9.9e-5, 500_000: 5e-5,
          1_000_000: 0}),
        # Of XLNet: to a thousandth.
        ('xlnet', 1.0, 100, 1100,
         {0: 0, 50: 0.5, 100: 1, 600: 0.5005, 1100: 0.001}),
        # A cosine to 0.
        ('gpt', 1.0, 100, 1100,
         {0: 0, 50: 0.5, 100: 1, 350: 0.85355339, 600: 0.5, 1100: 0}),
        ('transformer_xl', 1.0, 0, 1000,
         {0: 1, 250: 0.85355339, 500: 0.5, 1000: 0}),
        ('elmo', 0.2, 0, 1000, {0: 0.2, 500: 0.2, 999: 0.2}),
    )  # fmt: skip
    def test_values(self, name, peak, warmup_steps, steps, rates):
        for step, expected in rates.items():
            rate = optim.schedule(
                tf.constant(step), peak, warmup_steps, steps,
                optim.preset(name),
            )  # fmt: skip
            np.testing.assert_allclose(
                rate, expected, rtol=2e-6, atol=1e-7, err_msg=str(step)
            )

    def test_climbs(self):
        for name in optim.PRESETS:
            rules = optim.preset(name)
            actual = optim.warmup_steps(None, 5, rules)
            warmup = 0 if name in ('elmo', 'word2vec') else 1
            self.assertEqual(actual, warmup, name)
            self.assertEqual(optim.warmup_steps(7, 5, rules), 7)
        self.assertEqual(optim.warmup_steps(None, 250), 25)
