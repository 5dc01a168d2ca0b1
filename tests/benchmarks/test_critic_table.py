"""Vectors of tokens as indexes of fewer bytes have them, and their lines."""

import pathlib

import numpy as np
from absl.testing import absltest

from benchmarks import critics, tables
from infoword_tf.critics.texts import Tokens
from tasks.vectors import TokenFile

SIZES = np.array([3, 1, 4] * 200)  # of 600 texts, more than a block
WIDTH = 8


class CriticsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(0)
        # Around four directions, which residual codes find as centroids.
        kinds = np.eye(WIDTH)[random.integers(4, size=SIZES.sum())]
        vectors = kinds + random.normal(0, 0.1, (SIZES.sum(), WIDTH))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        self.vectors = np.float32(vectors)
        self.folder = pathlib.Path(self.create_tempdir())
        (self.folder / 'vectors').mkdir()
        file = TokenFile(self.folder / 'vectors' / 'model-1.npy')
        file.append(Tokens(self.vectors, SIZES))

    def test_recoded(self):
        # A step of 4 bytes and a byte a number; a centroid of 2 bytes and two
        # bits a number. The largest number is below 1: half a step is 1 / 254.
        for kind, size, error in (('int8', 12, 1 / 254), ('residual', 4, 0.25)):
            with self.subTest(kind):
                target = self.folder / kind
                got = critics.recoded(self.folder / 'vectors', target, kind)
                self.assertAlmostEqual(got, size * SIZES.sum() / len(SIZES))
                file = TokenFile(target / 'model-1.npy')
                self.assertEqual(file.rows, 600)
                texts = file.read(0, 600)
                np.testing.assert_array_equal(texts.sizes, SIZES)
                difference = np.abs(texts.vectors - self.vectors)
                self.assertLess(difference.max(), error)
                self.assertGreater(difference.max(), error / 10)

    def test_once(self):
        target = self.folder / 'int8'
        size = critics.recoded(self.folder / 'vectors', target, 'int8')
        (self.folder / 'vectors' / 'model-1.npy').unlink()
        self.assertEqual(
            critics.recoded(self.folder / 'vectors', target, 'int8'), size
        )

    def test_text(self):
        # The flagfile, but for how long it trains and where.
        lines = (tables.FOLDER / 'ict_tiny.flags').read_text().splitlines()
        typed = [x for x in lines if x.startswith('--')]
        self.assertCountEqual(
            [x for x in typed if not x.startswith(('--steps', '--workdir'))],
            critics.SETS['ict'].training(self.folder, ''),
        )

    def test_line(self):
        costs = dict.fromkeys(critics.COSTS) | {'bytes_per_passage': 7177.4}
        scores = {'model': 0.5, 'hybrid': 0.75, 'bm25': 0.25}
        smaller = critics.Result(scores, {'model': costs}, 1.25, 3.5, 27)
        self.assertEqual(
            critics.line('scifact', 'late, int8', [smaller]),
            ['`scifact`', '`late, int8`', '0.500', '0.750', '1.250 of 3.50',
             '7,177', '', '', '27'],
        )  # fmt: skip
