"""Translations: what may be named, read, held out and left out."""

import gzip
import itertools
from unittest import mock

from absl.testing import parameterized

from infoword_tf import languages
from infoword_tf.data import documents, parallel, textfiles
from tests.data.texts import Temporary, in_one_line
from tests.refused import refused

PAIRS = [(f'Satz {i} ist hier', f'the sentence {i} is here') for i in range(40)]


def lines(texts):
    return ''.join(f'{text}\n' for text in texts)


def tsv(pairs):
    return lines(map('\t'.join, pairs))


def swapped(pairs):
    return [pair[::-1] for pair in pairs]


def pairs_of(*columns):
    return [pair for x in columns for pair in zip(*x.texts, strict=True)]


class ParallelTest(Temporary):
    def put(self, *names_and_contents):
        for name, content in names_and_contents:
            if name.endswith('.gz') and isinstance(content, str):
                content = gzip.compress(content.encode())
            self.write(name, content)

    def paths(self, values):
        """Values of the flag, with the folder before their files."""
        return [
            f'{languages}{equals}{self.folder}/{pattern}'
            for languages, equals, pattern in (
                value.rpartition('=') for value in values
            )
        ]

    def read(self, *values, heldout=(), drop_equal=False):
        values, heldout = self.paths(values), self.paths(heldout)
        actual = parallel.read(values, heldout, drop_equal)
        self.assertEqual(
            parallel.check(values, heldout), [x.languages for x in actual.train]
        )
        return actual

    def check_notes(self, actual, *notes):
        self.assertEqual(actual.notes, notes)

    def all(self, *values):
        """Every pair that is read, of whatever languages, in order."""
        actual = self.read(*values)
        return sorted(pairs_of(*actual.train, *actual.heldout))


class FormatsTest(ParallelTest):
    def setUp(self):
        super().setUp()
        de, en = zip(*PAIRS, strict=True)
        self.put(
            ('t.de', lines(de)),
            ('t.en', lines(en)),
            ('zipped.deu.gz', lines(de)),
            ('zipped.eng.gz', lines(en)),
            ('deu-eng.txt', tsv((*x[::-1], 'CC-BY') for x in PAIRS)),
            ('x.tsv', tsv(PAIRS)),
        )

    @parameterized.parameters(
        't.{de,en}', 't.{en,de}', 'zipped.{deu,eng}.gz', 'de-en=t.{de,en}',
        'deu-eng.txt', 'en-de=deu-eng.txt', 'de-en=x.tsv',
    )  # fmt: skip
    def test_all_say_the_same(self, value):
        actual = self.read(value)
        (train,), (held,) = actual.train, actual.heldout
        self.assertEqual(train.languages, ('de', 'en'))
        self.assertEqual((held.languages, held.empty), (('de', 'en'), 0))
        where = f'de-en of {", ".join(self.paths([value]))}'
        self.assertEqual(train.where, where)
        # One in 100 by the hash of its English; of forty four.
        hashes = {x: documents.text_hash(x[1]) for x in PAIRS}
        order = sorted(PAIRS, key=lambda x: (hashes[x] % 100 > 0, hashes[x]))
        self.assertCountEqual(pairs_of(held), order[:4])
        self.assertCountEqual(pairs_of(train), order[4:])
        self.check_notes(actual, 'de-en: 36 pairs to train on, 4 held out')

    def test_put_together(self):
        self.put(
            ('e.fr', lines(f'phrase {i}' for i in range(30))),
            ('e.en', lines(f'sentence {i}' for i in range(30))),
            ('fr-en.tsv', tsv([('Salut !', "What's that?"), ('a b', 'of us')])),
        )
        values = ['deu-eng.txt', 't.{de,en}', 'e.{fr,en}', 'fr-en.tsv']
        actual = self.read(*values)
        self.assertEqual(
            [x.languages for x in actual.train], [('de', 'en'), ('en', 'fr')]
        )
        self.check_notes(
            actual,
            'de-en: 36 pairs to train on, 4 held out; left out: 40 that are '
            'there twice',
            'en-fr: 29 pairs to train on, 3 held out',
        )
        of_french = pairs_of(actual.train[1], actual.heldout[1])
        self.assertIn(("What's that?", 'Salut !'), of_french)
        for order in itertools.islice(itertools.permutations(values), 0, 99, 9):
            again = self.read(*order)
            self.assertEqual(again.fingerprint, actual.fingerprint)
            texts = [[x.texts for x in one.train] for one in (again, actual)]
            self.assertEqual(*texts)

    def test_texts_of_a_language(self):
        self.put(('e.fr', 'un\ndeux\n'), ('e.en', 'one\ntwo\n'))
        actual = self.read('t.{de,en}', 'e.{fr,en}')
        self.assertEqual(actual.languages, ['de', 'en', 'fr'])
        texts = {
            code: [x.text for x in actual.documents_of(code)]
            for code in actual.languages
        }
        of_german, of_french = actual.train
        self.assertEqual(texts['en'], of_german.texts[1] + of_french.texts[0])
        self.assertLen(texts['fr'], 1)
        every = [x.text for x in actual.documents()]
        self.assertCountEqual(every, sum(texts.values(), []))

    def test_files_of_the_same_stem(self):
        self.put(
            ('deep/de.a.de', 'eins\nzwei\n'), ('deep/de.a.en', 'one\ntwo\n'),
            ('deep/er/b.de', 'drei\n'), ('deep/er/b.en', 'three\n'),
        )  # fmt: skip
        expected = [('drei', 'three'), ('eins', 'one'), ('zwei', 'two')]
        self.assertEqual(self.all('deep/**/*.{de,en}'), expected)
        # The folder is called like a language, and so is a part of the name.
        self.put(('en/de.tok', 'a\nb\n'), ('de/de.tok', 'ein\nzwei\n'))
        expected = [('ein', 'a'), ('zwei', 'b')]
        self.assertEqual(self.all('{en,de}/de.*'), expected)

    def test_other_codes_are_named(self):
        self.put(('r.quz', 'huk\niskay\n'), ('r.spa', 'uno\ndos\n'))
        actual = self.read('spa-quz=r.{spa,quz}')
        self.assertEqual(actual.train[0].languages, ('es', 'quz'))
        other = self.read('fr-quz=r.{spa,quz}')
        self.assertNotEqual(other.fingerprint, actual.fingerprint)

    def test_scripts(self):
        """A line ends where a line ends, and nowhere else."""
        pairs = [
            ('مرحبا بالعالم', '你好，世界'),
            ('שלום', 'สวัสดีชาวโลก'),
            ('👩‍👩‍👧 🇩🇪', 'e\u0301t\u00e9'),
            ('one\u2028line\x85here', 'two\x0b\x0cwords\xa0'),
        ]
        self.put(
            ('u.ar', '\ufeff' + lines(a for a, _ in pairs)),
            ('u.zh', '\r\n'.join(b for _, b in pairs)),
        )
        expected = [*pairs[:3], ('one line here', 'two words')]
        self.assertEqual(self.all('u.{ar,zh}'), sorted(expected))
        self.put(('u.tsv', tsv(expected)))
        self.assertEqual(self.all('ar-zh=u.tsv'), sorted(expected))


class TablesTest(ParallelTest):
    def test_columns_of_a_file_without_an_order(self):
        """English is found by its words, wherever the name has it."""
        rows = [
            ('Go.', 'Geh.'), ('I did it.', 'Ich war es.'),
            ("You can't go.", 'Du gehst nicht.'), ('Hi!', 'Hallo, the Queen!'),
            ('That is her house.', 'Das ist ihr Haus.'),
            ('Who was here?', 'Wer war da?'),
        ]  # fmt: skip
        one, other = 'deu-eng.txt', 'corpus.en_de.tsv'
        self.put((one, tsv(rows)), (other, tsv(swapped(rows))))
        for values in ((one,), ('*.en_de.tsv',), (one, other)):
            self.assertEqual(self.all(*values), sorted(swapped(rows)))

    def test_cells(self):
        self.put(
            ('a.tsv', ' ein\ttwo  \twords\n\ndrei\t four\t5\t6\r\nfünf\t\n')
        )
        actual = self.read('de-en=a.tsv')
        pairs = sorted(pairs_of(*actual.train, *actual.heldout))
        self.assertEqual(pairs, [('drei', 'four'), ('ein', 'two')])
        self.assertEqual(actual.train[0].empty, 1)
        self.check_notes(
            actual, 'de-en: 1 pairs to train on, 1 held out; left out: 1 with '
            'an empty side',
        )  # fmt: skip


class HeldoutTest(ParallelTest):
    def of(self, count):
        return [(f'Nummer {i}', f'number {i}') for i in range(count)]

    def drawn(self, pairs):
        return [x for x in pairs if documents.hash_bucket(x[1], 100) == 0]

    def test_one_in_a_hundred_by_hash(self):
        pairs = self.of(3000)
        self.put(('a.tsv', tsv(pairs)))
        actual = self.read('de-en=a.tsv')
        held = self.drawn(pairs)
        self.assertBetween(len(held), 20, 45)
        self.assertEqual(pairs_of(*actual.heldout), held)
        others = [x for x in pairs if x not in held]
        self.assertEqual(pairs_of(*actual.train), others)
        with mock.patch.object(textfiles, 'MAX_HELDOUT', 7):
            fewer = self.read('de-en=a.tsv')
        self.assertLen(pairs_of(*fewer.heldout), 7)
        self.assertContainsSubset(pairs_of(*fewer.heldout), held)
        self.assertLen(pairs_of(*fewer.train), 2993)
        self.assertNotEqual(fewer.fingerprint, actual.fingerprint)

    @parameterized.parameters((2, 1), (100, 10), (400, 20))
    def test_of_few(self, count, least):
        pairs = self.of(count)
        self.put(('a.tsv', tsv(pairs)))
        actual = self.read('de-en=a.tsv')
        held = pairs_of(*actual.heldout)
        self.assertLen(held, least)
        self.assertContainsSubset(self.drawn(pairs), held)
        self.assertCountEqual(pairs_of(*actual.train) + held, pairs)

    def test_no_copy_is_trained_on(self):
        """Drops copies of either side, in all pairs that have the language."""
        self.put(
            ('t.de', 'Hallo\nAuf Wiedersehen!\nGut\nTag\n'),
            ('t.en', 'hello\nbye\nGOOD  day\nday\n'),
            ('t.es', 'hola\nadiós\nbueno\ndía\n'),
            ('h.de', 'auf wieder  sehen!\nSchluss\n'),
            ('h.en', 'So long\nGood day\n'),
        )
        actual = self.read(
            't.{de,en}', 't.{en,es}', 't.{de,es}', heldout=['h.{de,en}']
        )
        self.assertEqual(
            [x.texts for x in actual.train],
            [
                [['Hallo', 'Tag'], ['hello', 'day']],
                [['Hallo', 'Gut', 'Tag'], ['hola', 'bueno', 'día']],
                [['hello', 'bye', 'day'], ['hola', 'adiós', 'día']],
            ],
        )
        (held,) = actual.heldout
        self.assertEqual(held.languages, ('de', 'en'))
        self.assertEqual(pairs_of(held), [
            ('auf wieder sehen!', 'So long'), ('Schluss', 'Good day')
        ])  # fmt: skip
        self.check_notes(actual, *(
            f'{names} pairs to train on, {count} held out; left out: {left} of '
            'which a text is held out'
            for names, count, left in (
                ('de-en: 2', 2, 2), ('de-es: 3', 0, 1), ('en-es: 3', 0, 1)
            )
        ))  # fmt: skip

    def test_small_languages_that_share_their_english(self):
        """Drops from all what one holds out, and leaves something."""
        codes = 'af bg ca cs da de el es et fi fr ga hr hu is it lt lv'.split()
        english = [f'number {i}' for i in range(100)]
        self.put(('t.en', lines(english)))
        for code in codes:
            texts = [f'{code} {i}' for i in range(100)]
            self.put((f't.{code}', lines(texts)))
        actual = self.read(*(f't.{{{code},en}}' for code in codes))
        drawn = set()
        for held in actual.heldout:
            self.assertLen(held.texts[0], 10)
            drawn |= set(held.texts[held.languages.index('en')])
        self.assertLen(drawn, 10)
        for train in actual.train:
            self.assertLen(train.texts[0], 90)

    def test_what_is_drawn_is_not_trained_on(self):
        """Its copies neither, though their other side differs."""
        pairs = self.of(300)
        held = self.drawn(pairs)[0]
        more = [(held[0].upper(), 'new'), ('neu', held[1]), ('wenig', 'few')]
        self.put(('a.tsv', tsv(pairs + more)))
        actual = self.read('de-en=a.tsv')
        self.assertIn(held, pairs_of(*actual.heldout))
        training = pairs_of(*actual.train)
        self.assertNoCommonElements(training, more[:2])
        self.assertIn(more[2], training)
        note = 'left out: [1-9] of which a text is held out$'
        self.assertRegex(actual.notes[0], note)

    def test_equal_sides(self):
        rows = [
            ('OK', 'OK'), ('ja', 'yes'), ('ja', ' yes'), ('nein', 'no'),
            ('', 'of'), ('OK', 'OK'), ('Tom', 'Tom'), ('x', ''), ('', ''),
        ]  # fmt: skip
        self.put(('a.tsv', tsv(rows)), ('h.tsv', tsv([('A', 'A'), ('b', 'c')])))
        actual = self.read('de-en=a.tsv', heldout=['de-en=h.tsv'])
        self.check_notes(
            actual, 'de-en: 4 pairs to train on, 2 held out; left out: 3 with '
            'an empty side, 2 that are there twice; 2 have equal sides',
        )  # fmt: skip
        self.assertEqual(actual.train[0].empty, 3)
        actual = self.read(
            'de-en=a.tsv', heldout=['de-en=h.tsv'], drop_equal=True
        )
        different = [('ja', 'yes'), ('nein', 'no')]
        self.assertEqual(pairs_of(*actual.train), different)
        self.assertEqual(pairs_of(*actual.heldout), [('b', 'c')])
        self.assertIn('3 with equal sides', actual.notes[0])


class LanguagesTest(parameterized.TestCase):
    @parameterized.parameters(
        ('de', 'de'), ('deu', 'de'), ('ger', 'de'), ('DE-at', 'de'),
        ('pt_BR.UTF-8', 'pt'), ('sr@latin', 'sr'), ('cmn', 'zh'), ('arb', 'ar'),
        ('nob', 'nb'), ('ces', 'cs'), ('ast', 'ast'), ('xqz', 'xqz'),
        ('german', None), ('', None), ('C', None),
    )  # fmt: skip
    def test_codes(self, name, code):
        self.assertEqual(languages.code_of(name), code)
        known = None if code == 'xqz' else code
        self.assertEqual(languages.known_code(name), known)

    def test_tatoeba_and_xnli(self):
        """Those that LASER is measured in, by their number of letters."""
        tatoeba = (
            'afr amh ang ara arq arz ast awa aze bel ben ber bos bre bul cat '
            'cbk ceb ces cha cmn cor csb cym dan deu dsb dtp ell epo est eus '
            'fao fin fra fry gla gle glg gsw heb hin hrv hsb hun hye ido ile '
            'ina ind isl ita jav jpn kab kat kaz khm kor kur kzj lat lfn lit '
            'lvs mal mar max mhr mkd mon nds nld nno nob nov oci orv pam pes '
            'pms pol por ron rus slk slv spa sqi srp swe swg swh tam tat tel '
            'tgl tha tuk tur tzl uig ukr urd uzb vie war wuu xho yid yue zsm'
        ).split()
        actual = [languages.known_code(code) for code in tatoeba]
        self.assertNotIn(None, actual)
        self.assertLen(set(actual), len(tatoeba))
        self.assertEqual(sum(len(code) == 2 for code in actual), 84)
        for code in 'ar bg de el en es fr hi ru sw th tr ur vi zh'.split():
            self.assertEqual(languages.known_code(code), code)


class ComplaintsTest(ParallelTest):
    @parameterized.parameters(
        # What is named: a value of the flag, id, values.
        ('t.{de}', 'wrong_braces'),
        ('t.{de,en,fr}', 'wrong_braces'),
        ('{t,u}.{de,en}', 'wrong_braces'),
        ('t.{d*,en}', 'wrong_braces'),
        ('t.{de,en', 'wrong_braces'),
        ('t.{src,tgt}', 'unknown_language_code', "'src'", '=LL-LL='),
        ('t.{en,en_GB}', 'one_language_twice', ' en;'),
        ('en-de=t.{de,en}', 'contradictory_languages', ' en-de ', ' de-en '),
        ('de-de=x.tsv', 'one_language_twice', ' de;'),
        ('german-english=x.tsv', 'languages_without_codes', '--parallel='),
        ('t.{fr,en}', 'no_file_matches', 't.fr'),
        ('t.{de,fr}', 'missing_neighbour', 't.de ', 't.fr;'),
        ('some/*.{de,en}', 'file_without_neighbour', 'b.en '),
        ('none.tsv', 'no_file_matches', 'none.tsv'),
        ('t.de', 'unreadable_parallel_name', "='x.{de,en}'"),
        ('bare', 'unreadable_parallel_name'),
        ('x.tsv', 'unnamed_languages', 'x.tsv:', '=en-de='),
        ('de-en.fr-en.tsv', 'unnamed_languages'),
        ('de-fr.tsv', 'order_of_columns', ' de-fr=', ' fr-de='),
        ('app.po', 'unreadable_parallel_name', 'app.po', 'docs/preparing.md'),
    )
    def test_names(self, value, id, *values):
        self.put(
            *((x, 'a\tb\n') for x in ('x.tsv', 'de-en.fr-en.tsv', 'bare',
                                       'de-fr.tsv', 't.de', 't.en',
                                       'app.po')),
            ('some/a.de', 'a\n'), ('some/a.en', 'a\n'), ('some/b.en', 'a\n'),
        )  # fmt: skip
        for call in (parallel.check, parallel.read):
            with refused(id, *values):
                call(self.paths([value]))

    @parameterized.parameters(
        # Files with wrong contents: the value, the files, id, values.
        ('a.{de,en}', {'a.de': 'a\nb\n', 'a.en': 'a\nb\nc\n'},
         'unequal_lines', 'a.de has 2 ', 'a.en 3,', 'line 3 of '),
        ('a.{de,en}', {'a.de': 'a\nb\nc\nd\n', 'a.en': 'a\n\nb\nc\nd\n'},
         'unequal_lines', 'line 2 of ', 'a.en, which is empty'),
        ('a.{de,en}', {'a.de': 'a\nb\nb\nc\n', 'a.en': 'a\nb\nc\n'},
         'unequal_lines', 'line 3 of ', 'a.de, which repeats'),
        ('a.{de,en}', {'a.de': '', 'a.en': ''}, 'no_translations', 'de-en'),
        ('a.{de,en}', {'a.de': '\n', 'a.en': 'x\n'}, 'no_whole_translation',
         'de-en'),
        ('a.{de,en}', {'a.de': b'x\xe4\n', 'a.en': 'x\n'}, 'file_not_utf8',
         'a.de, line 1 ', '0xe4', 'offset 1 '),
        ('a.{de,en}', {'a.de': b'x\0\n', 'a.en': 'x\n'}, 'binary_file',
         'a.de '),
        ('a.{de,en}.gz', {'a.de.gz': 'x\n' * 9, 'a.en.gz': b'no gzip'},
         'file_not_whole', 'a.en.gz ', 'gzip'),
        ('en-de=a.tsv', {'a.tsv': 'a\tb\n\nwhole\n'}, 'one_column_line',
         'a.tsv, line 3:'),
        ('en-de=a.tsv', {'a.tsv': '\n'}, 'no_translations', 'en-de'),
        ('en-de=a.tsv', {'a.tsv': '1.5\ta\tb\n2\tc\td\n'},
         'columns_without_letters', ' column 1 '),
        # A score before two texts.
        ('en-de=a.tsv', {'a.tsv': 'score\tsource\ttarget\n'
                                  + '1.1\ta\tb\n0.9\tc\td\n0.8\te\tf\n'},
         'columns_without_letters', ' column 1 '),
        ('de-en=a.tsv', {'a.tsv': 'Who are you?\tWer?\n' * 9},
         'languages_swapped', ' column 1 ', ' de;', ' en-de='),
        ('en-de.tsv', {'en-de.tsv': 'Hi!\tHallo!\n'}, 'order_of_columns',
         ' de-en='),
        ('en-de=a.tsv', {'a.tsv': 'one\teins\n'}, 'parallel_all_heldout',
         ' de-en ', ' 1 pairs'),
    )  # fmt: skip
    def test_contents(self, value, files, id, *values):
        self.put(*files.items())
        with refused(id, *values), in_one_line():
            parallel.read(self.paths([value]))

    def test_held_out(self):
        self.put(
            ('a.tsv', tsv(PAIRS)), ('b.tsv', tsv(PAIRS)), ('c.tsv', 'un\tone\n')
        )
        values = self.paths(['de-en=a.tsv'])
        (self.folder / 'in').mkdir()
        (self.folder / 'linked.tsv').symlink_to(self.folder / 'a.tsv')
        for heldout, id, *named in (
            *((f'en-de={same}', 'parallel_file_twice', 'a.tsv ')
              for same in ('*a.tsv', 'in/../a.tsv', 'linked.tsv')),
            ('fr-en=c.tsv', 'heldout_languages_unknown', ' en-fr', ' de-en;'),
            ('a.{x,y,z,', 'wrong_braces', '--heldout_parallel=', 'z,'),
        ):  # fmt: skip
            for call in (parallel.check, parallel.read):
                with refused(id, *named):
                    call(values, self.paths([heldout]))
        with refused('parallel_all_heldout'):
            parallel.read(values, self.paths(['de-en=b.tsv']))
