"""tasks.tatoeba: real models, and what they are told."""

import collections
from unittest import mock

import numpy as np
from absl.testing import parameterized

from infoword_tf.evaluation import bitext as evaluation
from infoword_tf.evaluation import models
from tasks import tatoeba
from tests import places
from tests.export import workdirs
from tests.tasks import command

ENGLISH = [
    'the value of an expression', 'a class is a statement',
    'names are bound to objects', 'the loop ends', 'strings hold characters',
    'functions return values', 'modules are imported once',
    'an exception was raised', 'the value of an argument',
    'lists can be changed', 'a class has names', 'the loop ends here',
]  # fmt: skip
FOREIGN = [' '.join(text.split()[::-1]) for text in ENGLISH]
COPIED = [*FOREIGN[:9], FOREIGN[1], FOREIGN[1], FOREIGN[11]]


def write(path, lines):
    path.write_text(''.join(f'{line}\n' for line in lines))
    return path


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class TatoebaTest(places.Folder, command.Checks, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data = places.make(cls.addClassCleanup, cache=False)
        for code, foreign in (('deu', FOREIGN), ('fra', COPIED)):
            write(cls.data / f'tatoeba.{code}-eng.{code}', foreign)
            write(cls.data / f'tatoeba.{code}-eng.eng', ENGLISH)

    def run_it(self, *choices, model=None):
        model = model or f'--init={workdirs.shared()}'
        return command.run(
            tatoeba, model, f'--data_dir={self.data}',
            f'--workdir={self.folder}/out', *choices,
        )  # fmt: skip

    def test_the_table(self):
        encoded, vectors_of = collections.Counter(), models.vectors_of

        def counted(*choices, **named):
            encode, similarity = vectors_of(*choices, **named)

            def called(texts, role):
                encoded.update(texts)
                self.assertIsNone(role)
                return encode(texts, role)

            return called, similarity

        with mock.patch.object(models, 'vectors_of', counted):
            done = self.run_it()
        self.assertEqual(done.status, 0, done.err)
        # English once for both languages.
        self.assertEqual(
            encoded,
            collections.Counter([*ENGLISH, *FOREIGN, *dict.fromkeys(COPIED)]),
        )
        loaded = workdirs.loaded()
        english = unit(loaded.encode(ENGLISH, progress=False))
        lines = np.arange(len(ENGLISH))
        for code, foreign in (('deu', FOREIGN), ('fra', COPIED)):
            cosines = unit(loaded.encode(foreign, progress=False)) @ english.T
            # The first of equal texts, whatever the last bits say.
            first = [foreign.index(text) for text in foreign]
            into, back = cosines[first].argmax(1), cosines[first].argmax(0)
            back = np.array(first)[back]
            shares = {
                ('accuracy', 'xx_en'): into == lines,
                ('by_line', 'xx_en'): into == lines,
                ('accuracy', 'en_xx'): back == first,
                ('by_line', 'en_xx'): back == lines,
            }
            actual = done.result['languages'][code]
            self.assertEqual(actual['pairs'], 12)
            for (name, key), share in shares.items():
                self.assertAlmostEqual(
                    actual[name][key], 100 * share.mean(), 2,
                    f'{code} {name} {key}',
                )  # fmt: skip
            for name in evaluation.MEASURES:
                both = actual[name]['xx_en'], actual[name]['en_xx']
                self.assertAlmostEqual(
                    actual[name]['mean'], np.mean(both), delta=0.011
                )
        # Words in another order: most are found, and not all.
        self.assertBetween(done.result['accuracy']['mean'], 30, 99)
        for name in evaluation.MEASURES:
            for key in evaluation.DIRECTIONS:
                every = done.result['languages'].values()
                self.assertAlmostEqual(
                    done.result[name][key],
                    np.mean([actual[name][key] for actual in every]),
                    delta=0.011,
                )
        by_line = done.result['languages']['fra']['by_line']
        self.assertEqual(
            done.result['languages']['fra']['copies'], {'xx': 2, 'en': 0}
        )
        self.assertIn(
            'fra: 2 lines repeat a sentence of their file; by number of the '
            'line accuracy is {xx_en:.2f}, {en_xx:.2f}, {mean:.2f}\n'.format(
                **by_line
            ),
            done.out,
        )
        self.assertNotIn('deu: ', done.out)
        deu = done.result['languages']['deu']
        cells = [f'{deu[name][key]:.2f}' for name in tatoeba.SHOWN
                 for key in evaluation.DIRECTIONS]  # fmt: skip
        self.assertRegex(done.out, r'\ndeu +12 +' + ' +'.join(cells) + '\n')
        self.assertRegex(done.out, r'\nmean of 2 +\d')

    def test_sorted_english(self):
        words = [f'word {i:02}' for i in range(30)]
        data = self.folder / 'xtreme'
        data.mkdir()
        write(data / 'de-en.de', words[::-1])
        write(data / 'de-en.en', words)
        done = command.succeeded(self.run_it(f'--data_dir={data}'))
        self.assertIn('de: the English sentences are in the order', done.out)
