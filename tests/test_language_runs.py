"""The command on text of several languages and on translations."""

import contextlib
import io
import json

import numpy as np
from absl.testing import absltest

import infoword_tf
from export import card
from infoword_tf import convert
from infoword_tf.choices import by_language
from infoword_tf.config import Config, read_exported
from infoword_tf.files import read_tensors
from tests import languages, places, quick, runs
from tests.export import workdirs
from tests.weights import folders


def setUpModule():
    global FOLDER
    FOLDER = places.make()
    languages.write(FOLDER)


def corpora(*names):
    return [f'--corpus={x}=text:{FOLDER}/text.{x}' for x in names]


def run(workdir, *more):
    return quick_run(
        workdir, '--vocab_size=300', '--tokenizer=sentencepiece', *more
    )


def quick_run(workdir, *more):
    quick.run(*runs.SMALL, f'--workdir={workdir}', *more)
    return runs.records(workdir)


class LanguagesTest(places.Folder, absltest.TestCase):
    def test_all_of_infoxlm(self):
        """From text and two aligned files; each language has its bounds."""
        workdir = places.make() / 'run'
        records = run(
            workdir, '--objectives=infoxlm', *corpora('en', 'de', 'fr'),
            f'--parallel={FOLDER}/two.{{de,en}}',
            f'--parallel={FOLDER}/three.{{en,fr}}',
        )  # fmt: skip
        last = records[-1]
        for row, parts in (
            ('mmlm', ('de', 'en', 'fr')), ('tlm', ('de-en', 'en-fr')),
            ('xlco', ('de-en', 'en-fr')),
        ):  # fmt: skip
            values = []
            for part in parts:
                begin = f'heldout/{row}/{part}_'
                self.assertLess(last[f'{begin}mi'], last[f'{begin}ceiling'])
                values.append(last[f'{begin}loss'])
            self.assertBetween(
                last[f'heldout/{row}/loss'], min(values), max(values)
            )
        self.assertNotIn('heldout/mmlm/de-en_mi', last)
        actual = Config.read(workdir)
        self.assertLen(actual.run['corpus'], 3)
        self.assertEqual(actual.pooling, 'cls')
        _, described = read_exported(workdirs.exported())
        text = card.render(actual, described, None, '', last)
        self.assertIn('Text (fr): `text:', text)
        self.assertIn('Translations: `', text)

    def test_the_order_of_languages_changes_nothing(self):
        losses = [
            [record['mlm/loss'] for record in run(
                self.folder / names[0], '--objectives=mlm', *corpora(*names),
                '--steps=2',
            )]
            for names in (('de', 'fr'), ('fr', 'de'))
        ]  # fmt: skip
        self.assertEqual(*losses)

    def test_the_last_of_a_language_counts(self):
        """So what a flagfile has can be replaced."""
        a, b, c = 'text:a', 'text:b=c', 'pydocs'
        for values, expected in (
            ([a, b], {'': b}),
            ([f'de={a}', f'de={b}', f'EN={c}'], {'de': b, 'en': c}),
            ([a, f'de={b}'], {'de': b}),
            ([f'de={a}', c], {'': c}),
            (a, {'': a}),
            (None, {}),
            ([f'web={a}', f'Old-Books={b}'], {'old_books': b, 'web': a}),
            ([f'web={a}', 'c4=pydocs'], {'c4': 'pydocs', 'web': a}),
            (['text:date=2024/x'], {'': 'text:date=2024/x'}),
        ):
            self.assertEqual(by_language(values), expected)
        # Files may have such names, where no corpus has.
        for names, expected in (
            ((), {'': 'books=x.txt'}), (('books',), {'books': 'x.txt'}),
        ):  # fmt: skip
            self.assertEqual(by_language('books=x.txt', names), expected)

    def test_parts_by_weights(self):
        """They need not be languages; the order of weights is free."""
        workdir = places.make() / 'run'
        flags = (
            '--objectives=mlm', f'--corpus=books=text:{FOLDER}/text.de',
            f'--corpus=web=text:{FOLDER}/text.fr', '--steps=2',
            f'--heldout=books={FOLDER}/text.en',
        )  # fmt: skip
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            records = run(workdir, *flags, '--corpus_weights=web=3,books=1')
        self.assertIn(
            'of the updates: books 25.0%, web 75.0%', shown.getvalue()
        )
        losses = [
            records[-1][f'heldout/mlm/{x}loss'] for x in ('books_', 'web_', '')
        ]
        self.assertBetween(losses[2], *sorted(losses[:2]))
        actual = Config.read(workdir).run
        self.assertEqual(actual['corpus_weights'], ['books=1', 'web=3'])
        self.assertEqual(actual['heldout'], f'books={FOLDER}/text.en')

    def test_translations_alone(self):
        """They are what the vocabulary is learned from too."""
        workdir = places.make() / 'run'
        records = run(
            workdir, '--objectives=tlm', f'--parallel={FOLDER}/two.{{de,en}}',
        )
        self.assertIn('heldout/tlm/de-en_mi', records[-1])
        pieces = infoword_tf.load(workdir).tokenizer.vocabulary
        self.assertContainsSubset(['▁winter', '▁gar', 'ö', 'he'], pieces)

    def test_from_xlm_r_and_back(self):
        """Its head begins both rows of masked words, and is given back."""
        folder = places.make()
        source = folders.write(folder / 'source', 'xlm_roberta')
        convert.convert(source, folder / 'start')

        def from_workdir(name, start, row, *more):
            """Runs from a workdir, with the head of a row for all rows."""
            with contextlib.redirect_stdout(io.StringIO()) as shown:
                quick_run(
                    folder / name, f'--init={folder}/{start}', '--seq_len=20',
                    *more,
                )  # fmt: skip
            self.assertIn(f'taken encoder, objectives/{row}', shown.getvalue())
            self.assertIn('fresh nothing', shown.getvalue())

        from_workdir(
            'run', 'start', 'mlm', '--objectives=infoxlm', '--mmlm.transform',
            '--tlm.transform', '--steps=2', *corpora('en', 'de'),
            f'--parallel={FOLDER}/two.{{de,en}}',
        )  # fmt: skip
        convert.write(folder / 'run', folder / 'out', 'huggingface')
        before, after = (
            set(read_tensors(folder / x / 'model.safetensors'))
            for x in ('source', 'out')
        )
        self.assertEmpty(after - before)
        config = json.loads((folder / 'out' / 'config.json').read_text())
        self.assertEqual(config['architectures'], ['XLMRobertaForMaskedLM'])
        convert.convert(folder / 'out', folder / 'again')
        actual = [
            infoword_tf.load(folder / x) for x in ('run', 'again', 'start')
        ]
        texts = ['a bc d', 'xyz', 'the end.']
        first, again, start = (x.encode(texts, pooling='cls') for x in actual)
        np.testing.assert_array_equal(first, again)
        self.assertGreater(np.abs(first - start).max(), 1e-4)
        kernels = [
            x.model.variables[f'objectives/{row}/kernel']
            for x, row in zip(actual, ('mmlm', 'mlm', 'mlm'), strict=True)
        ]
        np.testing.assert_array_equal(*kernels[:2])
        self.assertGreater(np.abs(kernels[0] - kernels[2]).max(), 1e-5)
        # Other rows begin with a head that had begun so.
        from_workdir(
            'more', 'run', 'mmlm', '--objectives=mlm', '--mlm.transform',
            '--steps=1', *corpora('de'),
        )  # fmt: skip

    def test_a_language_of_few_lines(self):
        folder = places.make()
        lines = languages.sentences('fr')[:100]
        (folder / 'few.txt').write_text('\n\n'.join(lines) + '\n')
        records = run(
            folder / 'run', '--objectives=mlm', *corpora('de'),
            f'--corpus=fr=text:{folder}/few.txt', '--seq_len=16',
        )
        # Of a hundred lines one is held out: less than two sequences.
        self.assertNotIn('heldout/mlm/fr_mi', records[-1])
        self.assertEqual(
            records[-1]['heldout/mlm/mi'], records[-1]['heldout/mlm/de_mi']
        )
