"""Whitening: the covariance is I, in `encode` and wherever vectors go."""

import numpy as np
from absl.testing import absltest

import infoword_tf
from infoword_tf import commands
from tasks import whiten
from tests import corpus, places
from tests.export import workdirs


class FitTest(absltest.TestCase):
    def test_covariance_is_the_identity(self):
        random = np.random.default_rng(0)
        mixed = random.standard_normal((6, 6))
        x = random.standard_normal((500, 6)) @ mixed + 3.0
        kernel, bias = whiten.fit(x, 6, 0.0)
        y = x @ kernel + bias
        np.testing.assert_allclose(y.mean(0), np.zeros(6), atol=1e-4)
        np.testing.assert_allclose(np.cov(y.T), np.eye(6), atol=1e-4)
        # Su et al. 2021, Algorithm 1: U diag(1 / sqrt(s)), first columns.
        u, s, _ = np.linalg.svd(np.cov(x.T))
        expected = np.abs((x - x.mean(0)) @ u[:, :2] / np.sqrt(s[:2]))
        few, first = whiten.fit(x, 2, 0.0)
        np.testing.assert_allclose(
            np.abs(x @ few + first), expected, atol=1e-3
        )

    def test_fewer_texts_than_numbers(self):
        """The published code divides by zero; with epsilon all is finite."""
        x = np.random.default_rng(1).standard_normal((4, 9))
        kernel, bias = whiten.fit(x, 9, 1e-6)
        y = x @ kernel + bias
        self.assertTrue(np.isfinite(kernel).all())
        np.testing.assert_allclose(
            np.linalg.eigvalsh(np.cov(y.T))[-3:], np.ones(3), atol=1e-3
        )
        np.testing.assert_allclose(
            np.linalg.eigvalsh(np.cov(y.T))[:-3], np.zeros(6), atol=1e-3
        )


class CommandTest(absltest.TestCase):
    def test_a_workdir_with_one_more_layer(self):
        folder = places.make()
        text, _ = corpus.write_topics(folder / 'text')
        done = whiten.run(
            init=str(workdirs.shared()), corpus=text, sentences=300, dims=8,
            pooling='mean', workdir=str(folder / 'white'),
        )  # fmt: skip
        self.assertEqual(done, {'sentences': 300, 'width': 8})
        loaded = infoword_tf.load(folder / 'white')
        given = whiten.Choices(corpus=text, sentences=300)
        found = loaded.encode(whiten.spread(given), progress=False)
        self.assertEqual(found.shape, (300, 8))
        np.testing.assert_allclose(found.mean(0), np.zeros(8), atol=1e-3)
        np.testing.assert_allclose(np.cov(found.T), np.eye(8), atol=2e-3)
        with self.assertRaisesRegex(commands.UsageError, 'holds files'):
            whiten.run(
                init=str(workdirs.shared()), corpus=text,
                workdir=str(folder / 'white'),
            )  # fmt: skip
        with self.assertRaisesRegex(commands.UsageError, '--dims=9999'):
            whiten.run(
                init=str(workdirs.shared()), corpus=text, dims=9999,
                workdir=str(folder / 'wide'),
            )  # fmt: skip


if __name__ == '__main__':
    absltest.main()
