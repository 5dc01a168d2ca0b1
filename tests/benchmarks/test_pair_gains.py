"""Gains by training on pairs: the interval, and the lines of the table."""

import json
from unittest import mock

import numpy as np
from absl.testing import absltest

from benchmarks import kept, pairs
from tests import places


class BootstrapTest(absltest.TestCase):
    def test_queries_are_the_same_before_and_after(self):
        """However far apart they are, a gain of each is a gain of all."""
        random = np.random.default_rng(0)
        before = random.random(50)
        low, high = pairs.bootstrap(before, [before + 0.1], np.mean)
        np.testing.assert_allclose([low, high], 0.1, atol=1e-12)

    def test_by_the_normal_law(self):
        """1.96 deviations of the mean to both sides, over two seeds."""
        random = np.random.default_rng(1)
        before = random.random(400)
        gain = 0.05 + 0.2 * random.standard_normal(400)
        after = [before + gain - 0.01, before + gain + 0.01]
        actual = pairs.bootstrap(before, after, np.mean, draws=4000)
        far = 1.96 * gain.std() / 20
        np.testing.assert_allclose(
            actual, [gain.mean() - far, gain.mean() + far], atol=0.002
        )

    def test_correlation_of_each_set(self):
        """The mean of 100 and -100, and not of all pairs."""
        near = np.array([1, 2, 3, 10, 11, 12.0])
        people = np.array([1, 2, 3, 3, 2, 1.0])
        scores = np.stack([near, people, [0, 0, 0, 1, 1, 1]], axis=1)
        self.assertAlmostEqual(pairs.correlation(scores), 0.0)


class GainsTest(absltest.TestCase):
    def test_a_folder_of_beir(self):
        """Ranks the right text first for one query, second for another."""
        folder = places.make()
        for file, names in (('corpus', 'xy'), ('queries', ('near', 'far'))):
            lines = [json.dumps({'_id': name, 'text': name}) for name in names]
            (folder / f'{file}.jsonl').write_text('\n'.join(lines))
        (folder / 'qrels').mkdir()
        (folder / 'qrels/test.tsv').write_text(
            'query-id\tcorpus-id\tscore\nnear\tx\t1\nfar\tx\t1\n'
        )
        angles = {'x': 0.0, 'y': 2.0, 'near': 0.1, 'far': 1.9}

        def encode(texts, **_):
            each = [angles[text] for text in texts]
            return np.stack([np.cos(each), np.sin(each)], 1, dtype=np.float32)

        loaded = mock.Mock(encode=encode)
        loaded.config.similarity = 'cosine'
        np.testing.assert_allclose(
            pairs.gains(loaded, str(folder)), [1.0, 1 / np.log2(3)], rtol=1e-6
        )


class TableTest(absltest.TestCase):
    def test_a_line_of_each_measure(self):
        folder = places.make()
        one = pairs.PairSet(lambda *_: folder / 'p.csv', (
            pairs.Measure('half', lambda x: np.full(4, x / 2), np.mean),
            pairs.Measure('twice', lambda x: np.full(4, 2 * x), np.mean),
        ))  # fmt: skip

        def trained(module, log, *typed):
            flags = dict(x.strip('-').split('=') for x in typed)
            self.assertEqual(flags['pairs'], str(folder / 'p.csv'))
            self.assertEqual(flags['learning_rate'], '1')
            workdir = folder / f'seed_{flags["seed"]}'
            (workdir / 'checkpoints').mkdir(parents=True)
            (workdir / 'metrics.json').write_text('{}')
            (workdir / 'metrics.jsonl').write_text('{"step": 1500}\n')

        def loaded(init, dtype):
            return {'m': 3.0, 'seed_0': 4.0, 'seed_1': 6.0}[
                str(init).rpartition('/')[2]
            ]

        choices = pairs.PairsChoices(
            init='m', seeds=2, typed='--learning_rate=1'
        )
        with mock.patch.dict(pairs.SETS, one=one), \
                mock.patch('infoword_tf.load', loaded), \
                mock.patch.object(kept, 'run', trained):  # fmt: skip
            lines = [pairs.of_set(choices, 'one', folder) for _ in range(2)]
        self.assertEqual(lines[0], lines[1])  # finished runs stay
        self.assertEqual(lines[0], [
            ['`one`', 'half', '1.500', '2.500 (2.000-3.000)',
             '+1.000 to +1.000', '1,500'],
            ['`one`', 'twice', '6.000', '10.000 (8.000-12.000)',
             '+4.000 to +4.000', '1,500'],
        ])  # fmt: skip
