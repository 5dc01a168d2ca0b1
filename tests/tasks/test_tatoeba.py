"""tasks.tatoeba: what a table says of vectors, and a real model."""

import collections
from unittest import mock

import numpy as np
from absl.testing import absltest

from infoword_tf.evaluation import bitext as evaluation
from infoword_tf.evaluation import models
from tasks import tatoeba
from tests import places
from tests.export import workdirs
from tests.tasks import command

# By text the angle of its vector, in degrees. Of English, a to d, c and d are
# found by C and D, but in turn these find c; y stands for b and for c.
ANGLES = {'a': 0, 'b': 90, 'c': 180, 'd': 270, 'A': 10, 'B': 100, 'C': 200,
          'D': 170, 'x': 0, 'y': 100, 'z': 270}  # fmt: skip


def write(path, lines):
    path.write_text(''.join(f'{line}\n' for line in lines))


class TatoebaTest(places.Folder, command.Checks, absltest.TestCase):
    def run_it(self, foreign, english, model):
        """The command on translations: lines by language, lines in English."""
        data = self.folder / 'data'
        data.mkdir()
        for code, lines in foreign.items():
            write(data / f'tatoeba.{code}-eng.{code}', lines)
            write(data / f'tatoeba.{code}-eng.eng', english)
        return command.succeeded(command.run(
            tatoeba, f'--init={model}', f'--data_dir={data}',
            f'--workdir={self.folder}/out',
        ))  # fmt: skip

    def test_the_table(self):
        encoded = collections.Counter()

        def encode(texts, role):
            encoded.update(texts)
            self.assertIsNone(role)
            angles = np.radians([ANGLES[text] for text in texts])
            return np.stack([np.cos(angles), np.sin(angles)], axis=1)

        with mock.patch.object(
            models, 'vectors_of', lambda *_, **__: (encode, 'cosine')
        ):
            done = self.run_it({'deu': 'ABCD', 'fra': 'xyyz'}, 'abcd', 'any')
        # English once for both languages.
        self.assertEqual(encoded, dict.fromkeys(ANGLES, 1))
        languages = done.result['languages']
        # xx>en, en>xx and their mean: accuracy, by line, F1. Of German a b c c
        # and A B D C are found, of French a b b d and x y y z.
        for actual, *expected in (
            (languages['deu'], [75, 50, 62.5], [75, 50, 62.5],
             [66.67, 50, 58.33]),
            (languages['fra'], [75, 100, 87.5], [75, 75, 75], 3 * [66.67]),
            (done.result, [75, 75, 75], [75, 62.5, 68.75],
             [66.67, 58.33, 62.5]),
        ):  # fmt: skip
            for name, values in zip(evaluation.MEASURES, expected, strict=True):
                self.assertEqual(
                    [actual[name][key] for key in evaluation.DIRECTIONS], values
                )
        self.assertEqual([x['pairs'] for x in languages.values()], [4, 4])
        self.assertEqual(languages['fra']['copies'], {'xx': 1, 'en': 0})
        self.assertIn(
            'fra: 1 lines repeat a sentence of their file; by number of the '
            'line accuracy is 75.00, 75.00, 75.00\n', done.out,
        )  # fmt: skip
        self.assertNotIn('deu: ', done.out)
        cells = '75.00 50.00 62.50 66.67 50.00 58.33'.replace(' ', ' +')
        self.assertRegex(done.out, rf'\ndeu +4 +{cells}\n')
        self.assertRegex(done.out, r'\nmean of 2 +75.00 +75.00 ')

    def test_sorted_english(self):
        words = [f'word {i:02}' for i in range(30)]
        done = self.run_it({'deu': words[::-1]}, words, workdirs.shared())
        self.assertIn('deu: the English sentences are in the order', done.out)
        # Each word finds itself, which stands in another line.
        self.assertEqual(done.result['accuracy']['mean'], 0)
