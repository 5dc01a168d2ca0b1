"""tasks.sts on pairs whose ranks are known by hand."""

import pathlib

import numpy as np
from absl.testing import absltest, parameterized

import infoword_tf
from infoword_tf import convert
from tasks import retrieval, sts
from tests.tasks import command
from tests.weights import folders

# Scores, and two texts each; `angles` makes vectors of the texts.
ROWS = [(5.0, '0', '1'), (4.0, '0', '20'), (1.0, '10', '95'),
        (2.5, '5', '70'), (0.0, '0', '90')]  # fmt: skip
PUBLISHED = ['main\tx\t2012\t{}\t{}\t{}\t{}'.format(i, *row)
             for i, row in enumerate(ROWS)]  # fmt: skip
GLUE = ['index\tsentence1\tsentence2\tscore'] + [
    f'{i}\t{a}\t{b}\t{score}' for i, (score, a, b) in enumerate(ROWS)
]


def angles(texts):
    """[n, 2]: a text is its angle in degrees; lengths differ."""
    a = np.radians(np.float64(texts))
    lengths = np.arange(1, len(a) + 1)[:, None]
    return np.stack([np.cos(a), np.sin(a)], axis=1) * lengths


class StsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def file(self, lines):
        path = self.folder / 'pairs.tsv'
        path.write_text('\n'.join(lines) + '\n')
        return path

    @parameterized.parameters([PUBLISHED], [GLUE])
    def test_both_layouts(self, lines):
        pairs = sts.read(self.file(lines))
        self.assertEqual(pairs.first, [a for _, a, _ in ROWS])
        self.assertEqual(pairs.second, [b for _, _, b in ROWS])
        np.testing.assert_array_equal(pairs.scores, [s for s, *_ in ROWS])

    def test_the_correlation_of_ranks(self):
        """By angles 1, 20, 85, 65, 90 they rank as people say: 100."""
        pairs = sts.read(self.file(PUBLISHED))
        found = sts.correlation(pairs, angles, 'cosine')
        self.assertAlmostEqual(found, 100)
        # One swap of neighbours among five: 1 - 6 * 2 / (5 * 24) = 0.9.
        swapped = pairs._replace(scores=np.array([4.0, 5.0, 1.0, 2.5, 0.0]))
        found = sts.correlation(swapped, angles, 'cosine')
        self.assertAlmostEqual(found, 90)

    @parameterized.parameters(
        (['a\tb'], 'line 1: no score and two sentences'),
        (PUBLISHED[:2], '2 pairs: too few'),
        (['id\tsentence1\tsentence2', '0\ta\tb'], 'names no score'),
    )
    def test_complaints(self, lines, message):
        with self.assertRaisesRegex(ValueError, message):
            sts.read(self.file(lines))

    def test_no_file(self):
        with self.assertRaisesRegex(FileNotFoundError, 'no such file'):
            sts.read(self.folder / 'nothing')

    def test_the_command(self):
        texts = ['a cab', 'bees', 'a b', 'deaf', 'x y']
        others = [texts[(2 * i + 1) % 5] for i in range(5)]
        rows = [
            f'g\tf\ty\t0\t{i}\t{a}\t{b}'
            for i, (a, b) in enumerate(zip(texts, others, strict=True))
        ]
        path = self.file(rows)
        source = folders.write(self.folder / 'source', 'bert')
        convert.convert(source, self.folder / 'run')
        done = command.run(
            sts, f'--init={self.folder}/run', f'--data={path}',
            f'--workdir={self.folder}/out',
        )  # fmt: skip
        loaded = infoword_tf.load(self.folder / 'run')
        vectors = [
            loaded.encode(part, progress=False)
            for part in (texts, others)
        ]
        cosines = [
            a @ b / np.linalg.norm(a) / np.linalg.norm(b)
            for a, b in zip(*vectors, strict=True)
        ]
        ranks = np.argsort(np.argsort(cosines))
        wanted = 100 - 600 * ((ranks - np.arange(5)) ** 2).sum() / (5 * 24)
        self.assertIn(f'"spearman": {wanted:.1f}', done.out)

    def test_one_model(self):
        done = command.run(
            sts, f'--data={self.file(PUBLISHED)}',
            f'--workdir={self.folder}/out',
        )  # fmt: skip
        self.assertEqual(done.status, 1)
        self.assertIn('give --init or --model', done.err)


class PromptsTest(absltest.TestCase):
    def test_roles_have_the_first_prompt_that_is_there(self):
        from tests.tasks import counting

        config = counting.config(
            'cosine', prompts={'document': 'd: ', 'passage': 'p: '}
        )
        self.assertEqual(config.prompt_for('passage'), 'passage')
        self.assertIsNone(config.prompt_for('query'))
        self.assertEqual(set(retrieval.ROLES), {'query', 'passage'})


if __name__ == '__main__':
    absltest.main()
