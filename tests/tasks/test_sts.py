"""tasks.sts on pairs whose ranks are known by hand."""

import contextlib
import io
import shutil
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf.config import Config
from infoword_tf.evaluation import models
from infoword_tf.evaluation import sts as evaluation
from tasks import sts
from tests import places
from tests.export import workdirs
from tests.refused import refused
from tests.tasks import command, counting

# Scores, and two texts each; `angles` makes vectors of the texts.
ROWS = [(5.0, '0', '1'), (4.0, '0', '20'), (1.0, '10', '95'),
        (2.5, '5', '70'), (0.0, '0', '90')]  # fmt: skip
PUBLISHED = ['main\tx\t2012\t{}\t{}\t{}\t{}'.format(i, *row)
             for i, row in enumerate(ROWS)]  # fmt: skip
GLUE = ['index\tsentence1\tsentence2\tscore'] + [
    f'{i}\t{a}\t{b}\t{score}' for i, (score, a, b) in enumerate(ROWS)
]
# As spreadsheets and editors leave them.
COMMAS = ['score,sentence1,sentence2'] + [
    f'"{score}",{a},"{b}"' for score, a, b in ROWS
]
SEMICOLONS = ['\ufeffscore;sentence1;sentence2', ''] + [
    f'{score};{a};{b}\r'.replace('.', ',') for score, a, b in ROWS
]
BLANKS = ['\ufeff' + PUBLISHED[0], '', *PUBLISHED[1:], ' ', '\t\t']
SICK = ['pair_ID\tsentence_A\tsentence_B\trelatedness_score\tjudgment'] + [
    f'{i}\t{a}\t{b}\t{score}\tNEUTRAL' for i, (score, a, b) in enumerate(ROWS)
]


def angles(texts):
    """[n, 2]: a text is its angle in degrees; lengths differ."""
    a = np.radians(np.float64(texts))
    lengths = np.arange(1, len(a) + 1)[:, None]
    return np.stack([np.cos(a), np.sin(a)], axis=1) * lengths


class StsTest(command.Checks, places.Folder, parameterized.TestCase):
    def file(self, lines):
        path = self.folder / 'pairs.tsv'
        path.write_text('\n'.join(lines) + '\n')
        return path

    @parameterized.parameters(
        [PUBLISHED], [GLUE], [SICK], [COMMAS], [SEMICOLONS], [BLANKS]
    )
    def test_all_layouts(self, lines):
        pairs = sts.read(self.file(lines))
        self.assertEqual(pairs.first, [a for _, a, _ in ROWS])
        self.assertEqual(pairs.second, [b for _, _, b in ROWS])
        np.testing.assert_array_equal(pairs.scores, [s for s, *_ in ROWS])

    def test_the_correlation_of_ranks(self):
        """By angles 1, 20, 85, 65, 90 they rank as people say: 100."""
        pairs = sts.read(self.file(PUBLISHED))
        actual = evaluation.correlation(pairs, angles, 'cosine')
        self.assertAlmostEqual(actual, 100)
        # One swap of neighbours among five: 1 - 6 * 2 / (5 * 24) = 0.9.
        swapped = pairs._replace(scores=np.array([4.0, 5.0, 1.0, 2.5, 0.0]))
        actual = evaluation.correlation(swapped, angles, 'cosine')
        self.assertAlmostEqual(actual, 90)

    def test_alignment_and_uniformity(self):
        """Right angles are 2 apart, squared; equal texts count once."""
        pairs = evaluation.ScoredPairs(
            ['x', 'x', 'y'], ['y', 'z', 'z'], np.array([5.0, 4.0, 4.5])
        )
        at = {'x': [3.0, 0.0], 'y': [0.0, 1.0], 'z': [-2.0, 0.0]}
        vectors = np.array([at[text] for text in pairs.texts])
        # x and y, y and z score above 4: 2 and 2.
        self.assertAlmostEqual(evaluation.alignment(pairs, vectors), 2.0)
        few = pairs._replace(scores=np.array([4.0, 1.0, 2.0]))
        self.assertIsNone(evaluation.alignment(few, vectors))
        # Three texts: 2, 2 and 4 apart.
        expected = np.log((2 * np.exp(-4.0) + np.exp(-8.0)) / 3)
        with mock.patch.object(evaluation, '_BLOCK', 2):
            self.assertAlmostEqual(
                evaluation.uniformity(pairs.texts, vectors), expected
            )
        even = np.random.default_rng(0).standard_normal((500, 300))
        actual = evaluation.uniformity(list(map(str, range(500))), even)
        self.assertAlmostEqual(actual, -4.0, delta=0.05)
        actual = evaluation.uniformity(list('abc'), np.ones((3, 2)))
        self.assertAlmostEqual(actual, 0.0)

    def test_vectors_that_are_not_finite(self):
        pairs = sts.read(self.file(PUBLISHED))
        with refused('vectors_not_finite'):
            evaluation.correlation(pairs, lambda t: angles(t) * np.nan, 'dot')

    def part(self, name, pairs, scores, folder=None):
        folder = folder or self.folder
        folder.mkdir(parents=True, exist_ok=True)
        lines = ''.join(f'{a}\t{b}\n' for a, b in pairs)
        (folder / f'STS.input.{name}.txt').write_text(lines)
        lines = ''.join(f'{score}\n' for score in scores)
        (folder / f'STS.gs.{name}.txt').write_text(lines)

    def test_the_parts_of_a_folder(self):
        """Angles 1, 20, 85 and 90 rank as people say in one part; of the
        other, 2, 40 and 60, the last two are swapped: 1 - 6 * 2 / 24.

        As one, 1 2 20 40 60 85 90 have the ranks 1 2 3 6 5 4 7 of people:
        1 - 6 * (2^2 + 2^2) / (7 * 48).
        """
        self.part(
            'one', [(0, 1), (0, 20), (9, 9), (10, 95), (0, 90)],
            [5, 4, '', 3, 0],
        )  # fmt: skip
        self.part('two', [(0, 2), (0, 40), (0, 60)], [4.9, 1, '2,0', ''])
        (self.folder / 'STS.gs.ALL.txt').write_text('5\n')  # as STS12 has it
        pairs = sts.read(self.folder)
        self.assertEqual(pairs.parts, {'one': 4, 'two': 3})
        self.assertEqual(pairs.second[2:5], ['95', '90', '2'])
        actual = sts.measure(pairs, sts.similarities(pairs, angles, 'cosine'))
        values = {name: x['spearman'] for name, x in actual['parts'].items()}
        self.assertEqual(values, {'one': 100.0, 'two': 50.0})
        self.assertEqual(actual['pairs'], 7)
        self.assertEqual(actual['spearman'], 85.71)
        self.assertEqual(actual['mean'], 75.0)
        self.assertEqual(actual['weighted_mean'], 78.57)  # 550 / 7

    def write_sets(self):
        """Some of SentEval's folder, below one with another file."""
        data = self.folder / 'downstream'
        pairs, scores = [row[1:] for row in ROWS], [row[0] for row in ROWS]
        for year, order in (('14', 1), ('12', -1)):
            self.part('one', pairs, scores[::order],
                      data / 'STS' / f'STS{year}-en-test')  # fmt: skip
        self.part('two', [(0, 2), (0, 40), (0, 60)], [4.5, 3, 2.8],
                  data / 'STS' / 'STS14-en-test')  # fmt: skip
        for name, lines in (('STS/STSBenchmark/sts-test.csv', PUBLISHED),
                            ('STS/STSBenchmark/sts-dev.csv', ['no pairs']),
                            ('SICK/SICK_test_annotated.txt', SICK)):
            (data / name).parent.mkdir(exist_ok=True)
            (data / name).write_text('\n'.join(lines))
        return data

    def test_all_sets_of_a_folder(self):
        """Each as alone, all its pairs together, and the mean over sets."""
        data = self.write_sets()
        with mock.patch.object(
            models, 'vectors_of',
            lambda *choices: (lambda texts, role: angles(texts), 'cosine'),
        ):  # fmt: skip
            part = self.run_it(f'--data={data}/STS/STS14-en-test', '--init=any')
            done = self.run_it(f'--data={data}', '--init=any')
        sets = done.result['sets']
        self.assertEqual(list(sets), ['STS12', 'STS14', 'STS-B', 'SICK-R'])
        for key in ('pairs', 'spearman', 'parts', 'mean', 'alignment'):
            self.assertEqual(sets['STS14'][key], part.result[key])
        self.assertEqual(sets['STS14']['pairs'], 8)
        low, high = part.result['interval']
        self.assertIn(
            f'all: Spearman 100.00 of 8 pairs (95 %: {low} to {high})', part.out
        )
        values = [sets[name]['spearman'] for name in sets]
        # Ranks of cosines are 5 4 2 3 1, and backwards those of STS12's
        # scores 1 3 2 4 5: 1 - 6 * (16 + 1 + 0 + 1 + 16) / (5 * 24).
        self.assertEqual(values, [-70.0, 100.0, 100.0, 100.0])
        self.assertEqual(done.result['mean'], 57.5)
        self.assertEqual(done.result['missing'], ['STS13', 'STS15', 'STS16'])
        self.assertIn(
            'mean of 4 sets 57.50; of the published 7 STS13, STS15, STS16 are '
            'not there\n', done.out,
        )  # fmt: skip
        self.assertRegex(done.out, r'\nSTS-B: Spearman 100.00 of 5 pairs')
        # Other folders come last.
        self.part('x', [(0, 2), (0, 40), (0, 60)], [3, 2, 1], data / 'mine')
        self.assertEqual([*evaluation.read_sets(data)], [*sets, 'mine'])

    def run_it(self, *choices):
        return command.succeeded(command.run(
            sts, *choices, f'--workdir={self.folder}/out'
        ))  # fmt: skip

    def test_another_critic_is_told(self):
        run = shutil.copytree(workdirs.shared(), self.folder / 'run')
        Config.read(run).replace(critics={'late': None}).write(run)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            models.vectors_of(str(run), None)
        self.assertIn(
            f'{run} compares texts by the critic late; its pooled states, '
            'which are measured here, were not trained', printed.getvalue(),
        )  # fmt: skip


class PromptsTest(absltest.TestCase):
    def test_an_export_without_a_prompt_for_a_role(self):
        """The default does not stand in for it."""
        config = counting.config('cosine', prompts={'document': 'd: '})
        model = mock.Mock(signatures={'embed': None, 'embed_document': None})
        with mock.patch.object(models, 'read_exported') as read:
            read.return_value = config, {}
            models.exported('1', 8, model=model)
            read.return_value = config.replace(prompt='document'), {}
            with refused('export_prompts_alone', "'document'", 'for a query'):
                models.exported('1', 8, model=model)
