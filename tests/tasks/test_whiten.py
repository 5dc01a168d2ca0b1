"""Whitening: the covariance is I, in `encode` and wherever vectors go."""

import json

import numpy as np
from absl.testing import absltest

import infoword_tf
from infoword_tf.data import corpora
from infoword_tf.data.documents import Document
from tasks import whiten
from tests import corpus, places
from tests.export import workdirs
from tests.refused import refused


class WhitenFitTest(absltest.TestCase):
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
        np.testing.assert_allclose(np.abs(x @ few + first), expected, atol=1e-3)

    def test_fewer_texts_than_numbers(self):
        """The published code divides by zero; with epsilon all is finite."""
        x = np.random.default_rng(1).standard_normal((4, 9))
        kernel, bias = whiten.fit(x, 9, 1e-6)
        y = x @ kernel + bias
        self.assertTrue(np.isfinite(kernel).all())
        spectrum = np.linalg.eigvalsh(np.cov(y.T))
        np.testing.assert_allclose(spectrum, [0] * 6 + [1] * 3, atol=1e-3)

    def test_what_cannot_be_whitened(self):
        """Copies of one text, NaN, and too few texts without epsilon."""
        random = np.random.default_rng(2)
        same = np.float32(random.standard_normal(9)) + np.zeros((50, 1))
        x = random.standard_normal((4, 9))
        for vectors, epsilon, *complaint in (
            (same, 1e-6, 'all_vectors_equal'),
            (0 * same, 1e-6, 'all_vectors_equal'),
            (np.where(x > 1, np.nan, x), 1e-6, 'init_not_finite'),
            (x, 0.0, 'too_few_directions', '--epsilon=0', 'of 4 sentences'),
        ):
            with refused(*complaint):
                whiten.fit(vectors, 9, epsilon)
        kernel, _ = whiten.fit(x, 3, 0.0)  # so many directions there are
        self.assertTrue(np.isfinite(kernel).all())
        self.assertLess(np.abs(kernel).max(), 100)


class SpreadTest(absltest.TestCase):
    def test_sentences_are_taken_evenly(self):
        documents = [
            Document(tuple(map(str, range(i, i + 25))), 'x')
            for i in range(0, 100, 25)
        ]
        for most, variance in (
            (10, range(0, 100, 10)), (30, range(0, 90, 3)), (200, range(100)),
        ):  # fmt: skip
            actual = whiten.spread(lambda: iter(documents), most)
            self.assertEqual(actual, [*map(str, variance)])


class WhitenCommandTest(absltest.TestCase):
    def test_a_workdir_with_one_more_layer(self):
        """Adds it to one whose vectors have length 1, as it has then."""
        folder = places.make()
        text, _ = corpus.write_topics(folder / 'text')
        start = workdirs.write(folder / 'start', fields={'normalize': True})
        done = whiten.run(
            init=str(start), corpus=text, sentences=300, dims=8,
            pooling='last_two', workdir=str(folder / 'white'),
        )  # fmt: skip
        self.assertEqual((done['sentences'], done['width']), (300, 8))
        metrics = json.loads((folder / 'white' / 'metrics.json').read_text())
        self.assertEqual(metrics, done)
        loaded = infoword_tf.load(folder / 'white')
        every = [x for d in corpora.open_corpus(text).train()
                 for x in d.sentences]  # fmt: skip
        step = len(every) // 300
        self.assertGreater(step, 1)
        read = every[: 300 * step : step]
        actual = loaded.encode(read, progress=False)
        self.assertTrue(loaded.config.normalize)
        longer = infoword_tf.load(folder / 'white')
        longer.config = loaded.config.replace(normalize=False)
        plain = longer.encode(read, progress=False)
        self.assertEqual(plain.shape, (300, 8))
        np.testing.assert_allclose(plain.mean(0), np.zeros(8), atol=1e-3)
        np.testing.assert_allclose(np.cov(plain.T), np.eye(8), atol=2e-3)
        lengths = np.linalg.norm(plain, axis=1, keepdims=True)
        np.testing.assert_allclose(actual, plain / lengths, atol=1e-5)
