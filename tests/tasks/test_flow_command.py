"""Flows find densities that are known, and go wherever vectors go."""

import math
import pathlib
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import infoword_tf
from export import bundle
from infoword_tf.config import Config, FlowConfig
from infoword_tf.data.documents import Document
from infoword_tf.layers.flow import Flow
from infoword_tf.training import optim
from tasks import flow as command_of
from tasks import whiten
from tests import places, runs
from tests.eager import eagerly
from tests.export import critics, workdirs
from tests.processor import FIT
from tests.refused import refused
from tests.tasks import command


def setUpModule():
    runs.set_up()


def fitted(x, levels=1, depth=2, permutation='learned', **choices):
    flow = Flow(x.shape[1], levels, depth, 8, permutation)
    flow.build()
    command_of.fit(flow, x, command_of.FlowChoices(**choices))
    return flow


def gaussian_bits(covariance):
    """The entropy of a normal distribution, in bits of a number."""
    _, log_det = np.linalg.slogdet(2 * math.pi * math.e * covariance)
    return log_det / 2 / len(covariance) / math.log(2)


class FlowFitTest(parameterized.TestCase):
    @parameterized.parameters(('learned', 2), ('reversal', 4))
    def test_a_gaussian_has_its_entropy(self, permutation, depth):
        """Scales and moves it by the covariance that was drawn."""
        random = np.random.default_rng(0)
        mixed = 0.01 * random.standard_normal((3, 3))
        x = random.standard_normal((3000, 3)) @ mixed + 5.0
        flow = fitted(
            np.float32(x), depth=depth, permutation=permutation, epochs=8,
            learning_rate=2e-3,
        )  # fmt: skip
        expected = gaussian_bits(np.cov(x.T))
        self.assertAlmostEqual(command_of.bits(flow, x), expected, delta=0.02)
        z = np.float64(flow(np.float32(x)))
        np.testing.assert_allclose(z.mean(0), np.zeros(3), atol=FIT)
        np.testing.assert_allclose(np.cov(z.T), np.eye(3), atol=0.15)

    def test_what_is_bent_is_made_straight(self):
        """(u, u^2 + v / 5) has the entropy of (u, v / 5): its map has
        determinant 1. The best Gaussian is far from that.
        """
        random = np.random.default_rng(0)
        u, v = random.standard_normal((2, 3000))
        x = np.float32(np.stack([u, u * u + v / 5], axis=1))
        expected = gaussian_bits(np.diag([1, 1 / 25]))
        self.assertGreater(gaussian_bits(np.cov(x.T)), expected + 1)
        flow = fitted(x, depth=3, epochs=8, learning_rate=5e-3)
        actual = command_of.bits(flow, x)
        self.assertBetween(actual, expected - 0.05, expected + 0.2)

    def test_first_weights_norm_every_step(self):
        random = np.random.default_rng(0)
        x = random.standard_normal((400, 8)) * np.geomspace(0.1, 9, 8) + 3
        flow = Flow(8, 2, 2, 5, 'reversal')
        flow.build()
        command_of.begin(flow, np.float32(x), random)
        z = np.float64(flow(np.float32(x)))
        np.testing.assert_allclose(z.mean(0), np.zeros(8), atol=1e-5)
        np.testing.assert_allclose(z.std(0), np.ones(8), atol=1e-5)
        # Only norms: the last half is what was first, in its order.
        last = (x - x.mean(0)) / x.std(0)
        np.testing.assert_allclose(z[:, :4], last[:, 4:], atol=1e-4)
        inner = flow.steps[0].net
        first = np.float64(x)[:, ::-1][:, :4]
        first = (first - first.mean(0)) / first.std(0)
        hidden = np.float64(inner[1].bias) + first @ inner[0].kernel.numpy()
        np.testing.assert_allclose(hidden.mean(0), np.zeros(5), atol=1e-5)

    def test_one_update_is_that_of_the_published_program(self):
        """Adam without correction moves what has a gradient by 0.1 / sqrt(
        0.001) rates, whatever its size; and all weights decay.
        """
        x = np.random.default_rng(0).standard_normal((64, 8)) ** 3
        x = np.float32((x - x.mean(0)) / x.std(0))
        x /= np.sqrt(np.square(x - x.mean(0)).mean())
        rate = 1e-3
        before, after = (
            fitted(x, permutation='reversal', epochs=1, learning_rate=lr,
                   epsilon=0.0)
            for lr in (0.0, rate)
        )  # fmt: skip
        moved = {
            old.path.partition('/')[2]: np.abs(new - old * (1 - 0.01 * rate))
            for old, new in zip(before.weights, after.weights, strict=True)
        }
        for name, distance in moved.items():
            self.assertLess(distance.max(), 3.163 * rate, name)
        distance = moved['step_0/net_2/kernel']  # the rest is normed already
        self.assertGreater(np.median(distance), 3.1 * rate)

    def test_the_loss_is_bits_of_a_number(self):
        """Its gradient by a coupling's last bias is the mean of what it moves,
        over D ln 2; half of the published clip, whose loss is of two.
        """
        x = np.float32(np.random.default_rng(0).standard_normal((64, 4)))
        seen = {}

        class Seen(optim.AdamW):
            def apply(self, gradients, *rest):
                seen.update(zip(self.variables, gradients, strict=True))
                seen['clip'] = self.rules.clip_norm
                return super().apply(gradients, *rest)

        with (
            mock.patch.object(optim, 'AdamW', Seen),
            mock.patch.object(command_of, 'FIRST', 9),  # so means are not 0
            mock.patch.object(tf, 'function', lambda **_: lambda f: f),
        ):
            flow = fitted(
                x, depth=1, permutation='reversal', epochs=1,
                learning_rate=0.0, epsilon=0.0,
            )  # fmt: skip
        expected = np.float64(flow(x)).mean(0)[2:] / (4 * math.log(2))
        (path,) = (p for p in seen if p.endswith('norm_2/bias'))
        np.testing.assert_allclose(seen[path], expected, rtol=1e-4)
        self.assertEqual(seen['clip'], 0.5)

    def test_fewer_directions_than_numbers(self):
        """Bounded by epsilon; and a seed decides all."""
        random = np.random.default_rng(0)
        x = random.standard_normal((500, 2)) @ random.standard_normal((2, 5))
        actual = [
            fitted(np.float32(x), epochs=2, seed=seed).get_weights()
            for seed in (1, 1, 2)
        ]
        for one, again, other in zip(*actual, strict=True):
            self.assertTrue(np.isfinite(one).all())
            np.testing.assert_array_equal(one, again)
            self.assertGreater(np.abs(one - other).max(), 1e-4)

    def test_a_likelihood_that_is_not_finite(self):
        drawn = np.random.default_rng(0).standard_normal((99, 4))
        with refused('flow_not_finite', '1e+30'):
            fitted(drawn, learning_rate=1e30, epochs=5)


class MomentsTest(absltest.TestCase):
    def test_a_number_that_hardly_differs(self):
        """Its deviation counts as a millionth of the largest."""
        x = np.array([[0, 1, 5], [4, 1 + 2e-7, 5]])
        mean, deviation = command_of.moments(x)
        np.testing.assert_allclose(mean, [2, 1 + 1e-7, 5])
        np.testing.assert_allclose(deviation, [2, 2e-6, 2e-6])


class FlowLayerTest(absltest.TestCase):
    def test_what_a_workdir_is_given(self):
        """Bits are -log2 of the density of z times |dz / dx|, for old x."""
        drawn = np.random.default_rng(0).standard_normal((70, 4)) * 3 + 1
        vectors = {str(i): x for i, x in enumerate(np.float32(drawn))}
        train, heldout = [*vectors][:64], [*vectors][64:]
        model = mock.Mock(
            vector_width=lambda: 4,
            encode=lambda texts, **_: np.stack([vectors[x] for x in texts]),
        )
        corpus = mock.Mock(heldout=lambda: [Document(tuple(heldout), 'x')])
        with (
            mock.patch.object(
                whiten, 'extend', lambda *args: args[2](model, train, corpus)
            ),
            eagerly(),
        ):
            fitted = command_of.run(levels=1, depth=1, hidden=3, epochs=1)
        self.assertEqual(fitted.layer, FlowConfig(4, 1, 1, 3, 'reversal'))
        self.assertLess(fitted.measured['bits'], 4)  # of a deviation of 3: 3.6
        self.assertStartsWith(fitted.summary, 'made normal on 64 sentences: ')
        flow = Flow(4, 1, 1, 3, 'reversal')
        flow.build()
        for weight in flow.weights:
            name = weight.path.removeprefix(f'{flow.name}/')
            weight.assign(fitted.weights[name])
        self.assertLen(fitted.weights, len(flow.weights))
        for name, texts in ('bits', train), ('heldout_bits', heldout):
            x = tf.constant(model.encode(texts))
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                z = flow(x)
                sums = [tf.reduce_sum(z[:, i]) for i in range(4)]
            slopes = [tape.gradient(one, x)[0] for one in sums]
            _, change = np.linalg.slogdet(np.float64(slopes))
            nats = np.square(z).sum(1).mean() / 2 - change
            bits = (nats / 4 + math.log(2 * math.pi) / 2) / math.log(2)
            self.assertAlmostEqual(fitted.measured[name], bits, places=3)


class FlowCommandTest(command.Checks, absltest.TestCase):
    def test_a_workdir_with_a_flow(self):
        """It is encoded, exported and trained on like any other."""
        folder = places.make()
        choices = (f'--init={workdirs.shared()}', '--pooling=first_last',
                 f'--corpus={runs.TEXT["corpus"]}', '--sentences=300',
                 f'--heldout={runs.TEXT["heldout"]}', '--levels=2',
                 '--depth=1', '--hidden=8')  # fmt: skip
        workdir = folder / 'flow'
        done = command.run(
            command_of, *choices, '--epochs=2', f'--workdir={workdir}'
        )
        metrics = command.left(done, workdir)
        self.assertEqual((metrics['sentences'], metrics['width']), (300, 64))
        self.assertLess(metrics['bits'], metrics['heldout_bits'])
        layer = FlowConfig(64, 2, 1, 8, 'reversal')
        self.assertEqual(Config.read(workdir).dense, (layer,))

        loaded = infoword_tf.load(workdir)
        text = pathlib.Path(runs.TEXT['heldout']).read_text().splitlines()[:20]
        actual = loaded.encode(text, progress=False)
        pooled = infoword_tf.load(workdirs.shared()).encode(
            text, pooling='first_last', progress=False
        )
        (flow,) = loaded.model.dense
        np.testing.assert_allclose(flow(pooled), actual, atol=1e-4)
        with critics.few('embed'):
            version = bundle.write(workdir, folder / 'model')
        served = workdirs.serve(str(version)).signatures['embed']
        np.testing.assert_allclose(
            served(texts=tf.constant(text))['embeddings'], actual, atol=1e-4
        )
        card = (folder / 'model' / 'MODEL_CARD.md').read_text()
        self.assertIn('of widths 64 (an invertible network)', card)

        flags = f'--init={workdir}', '--objectives=simcse', '--steps=1'
        runs.run_here(folder / 'next', *flags)
        self.assertEqual(Config.read(folder / 'next').dense, (layer,))
