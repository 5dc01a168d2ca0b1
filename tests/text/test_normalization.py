"""Against the `tokenizers` package, which is Hugging Face's."""

import functools
import itertools
import pathlib
import random
import shutil
from unittest import mock

import numpy as np
import tokenizers
from absl.testing import absltest, parameterized
from tokenizers import models, normalizers, pre_tokenizers

from infoword_tf.text import normalization
from infoword_tf.text.normalization import Normalization
from infoword_tf.text.tokenizer import SPECIALS, write_vocabulary
from infoword_tf.text.wordpiece import WordPieceTokenizer
from tests import places
from tests.text.learned import encoded

UNCASED, CASED = Normalization(), Normalization(lower_case=False)
OPTIONS = (
    UNCASED,
    CASED,
    Normalization(strip_accents=False),
    Normalization(lower_case=False, strip_accents=True, clean=False),
    Normalization(chinese_characters=False),
    Normalization(chinese_characters=False, clean=False, lower_case=False),
)
# Of blocks of Unicode, from the first to the last.
SCRIPTS = {
    'controls': (0x0, 0x20), 'latin': (0x20, 0x24F), 'marks': (0x300, 0x36F),
    'greek': (0x370, 0x3FF), 'cyrillic': (0x400, 0x52F),
    'hebrew': (0x590, 0x5FF), 'arabic': (0x600, 0x6FF),
    'hindi': (0x900, 0x97F), 'tamil': (0xB80, 0xBFF), 'thai': (0xE00, 0xE5B),
    'jamo': (0x1100, 0x11FF), 'vietnamese': (0x1E00, 0x1EFF),
    'signs': (0x2000, 0x206F), 'kana': (0x3030, 0x30FF),
    'chinese': (0x4E00, 0x9FFF), 'korean': (0xAC00, 0xD7A3),
    'forms': (0xFB00, 0xFEFF), 'widths': (0xFF00, 0xFFEF),
    'emoji': (0x1F300, 0x1F6FF), 'rare': (0x2B700, 0x2BA00),
    'private': (0xE000, 0xE010),
}  # fmt: skip
TEXTS = (
    'Straße und Fuß, İstanbul ve ışık; ΌΣΟΣ ὀδυσσεύς',
    'a\u00b4b \u00a8 \u02dc 1\u00bd \ufb01n \u2460 \u212b \u2126',
    'สวัสดีครับ ผมชื่อจอห์น ๑๒๓', '안녕하세요 세계, 각 갂 각', 'مَرْحَبًا بِالعَالَم؟ ۱۲۳',
    'नमस्ते दुनिया। क़ ऩ', '我是中国人。〇々 ﹏ｱｲｳ ＡＢＣ！',
    'שָׁלוֹם עוֹלָם', 'ガギグ か\u3099',
    '👩\u200d👩\u200d👧 👍🏽 🇩🇪 ❤\ufe0f ☃ 1\ufe0f\u20e3',
    'a\x00b\x01c\x11d\x7fe\x85f\tg\rh\x0bi\x1cj\u2028k\ufeffl\u00adm\ufffdn',
    '\u2e43 x\u2e52y \u166d z\u111c9z \U00011944', '[ mask ] ## ### #a',
)  # fmt: skip


def mixtures(count, blanks=' '):
    """Texts of words of a script, or of one and of ASCII."""
    draw = random.Random(0)
    scripts = [[chr(c) for c in range(a, b + 1)] for a, b in SCRIPTS.values()]

    def word():
        script = draw.choice(scripts)
        if draw.random() < 0.2:
            script = [*script, *'aAé .,#-']
        word = ''.join(draw.choices(script, k=draw.randint(1, 9)))
        return word + draw.choice(blanks)

    return [
        ''.join(word() for _ in range(draw.randint(0, 12)))
        for _ in range(count)
    ]


@functools.cache
def everything():
    """A vocabulary of all characters that others become, and of some more."""
    pieces = set(itertools.chain(*TEXTS))
    for options in OPTIONS:
        forms, _ = normalization._forms(options)
        pieces.update(*forms.values())
    spaces, marks, parted = normalization._classes()
    chinese = {c for c in parted - marks if c > '\u3000'}
    pieces |= {'\U0001d165', '\U0001d16d'}
    pieces |= spaces | marks | parted - chinese | set(sorted(chinese)[::50])
    pieces.update(map(chr, itertools.chain(
        range(0xE000, 0xE004), *(range(*ends) for ends in SCRIPTS.values())
    )))  # fmt: skip
    pieces = sorted(pieces)
    actual = [*SPECIALS, *pieces, *(f'##{c}' for c in pieces)]
    more = ('ab', '##ab', 'a b', 'สวัส', '##สดี', 'ab.', '中国', 'a\u2e52', '[i]')
    return [*actual, *(piece for piece in more if piece not in actual)]


@functools.cache
def both(options):
    """Ours, and the oracle."""
    pieces = everything()
    index = {piece: i for i, piece in enumerate(pieces)}
    theirs = tokenizers.Tokenizer(models.WordPiece(
        index, unk_token='[UNK]', max_input_chars_per_word=100
    ))  # fmt: skip
    theirs.normalizer = normalizers.BertNormalizer(
        lowercase=options.lower_case,
        strip_accents=options.strip_accents,
        handle_chinese_chars=options.chinese_characters,
        clean_text=options.clean,
    )
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return WordPieceTokenizer(pieces, *options), theirs


class KeptTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = places.make(self.addCleanup) / 'cache' / 'normalization'
        self.folder.unlink()  # which other tests share
        self.forget()
        self.addCleanup(self.forget)

    def forget(self):
        normalization._cached_hidden.cache_clear()
        normalization._cached_fit.cache_clear()

    def fit(self):
        self.forget()
        pieces = [*SPECIALS, 'a', 'x\u2e52y', '\ue000']
        with mock.patch.object(
            normalization, '_fit', side_effect=normalization._fit
        ) as calls:
            model, spelled = normalization.fit(UNCASED, pieces)
        return model.tobytes(), spelled, calls.call_count

    def test_code_points_are_asked_about_once(self):
        """Again, if the answers are damaged, or could not be written."""
        model, spelled, calls = self.fit()
        self.assertEqual(calls, 1)
        self.assertNotEqual(spelled[-2], 'x\u2e52y')
        self.assertLen(list(self.folder.iterdir()), 2)
        self.assertEqual(self.fit(), (model, spelled, 0))
        for path in self.folder.iterdir():
            whole = path.read_bytes()
            path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        self.assertEqual(self.fit(), (model, spelled, 1))
        self.assertEqual(self.fit(), (model, spelled, 0))  # whole again
        shutil.rmtree(self.folder)
        self.folder.write_text('no folder')
        self.assertEqual(self.fit(), (model, spelled, 1))


class OracleTest(parameterized.TestCase):
    def check(self, options, texts):
        """Ids and offsets are equal; of a difference, the text."""
        for text, ids, bounds, *expected in encoded(*both(options), texts):
            if ids != expected[0] or not np.array_equal(bounds, expected[1]):
                self.fail(f'{text!r}: {ids} {bounds.tolist()}, not {expected}')

    @parameterized.parameters(*zip(OPTIONS))
    def test_every_code_point(self, options):
        # In a word, alone, and as a mark of a letter.
        every = [*normalization._characters(), '\u2603']
        words = [f'a{c}b {c} e{c}' for c in every]
        if options != UNCASED:
            words = words[:0x12000]
        begins = range(0, len(words), 256)
        self.check(options, [' '.join(words[i : i + 256]) for i in begins])

    @parameterized.parameters(*zip(OPTIONS))
    def test_planes_whose_code_points_are_alike(self, options):
        planes = set(range(17)).difference(normalization._DIVERSE)
        words = [
            ''.join(map(chr, range(first, first + 64)))
            for plane in sorted(planes)
            for first in range(plane << 16, (plane + 1) << 16, 64)
        ]
        if options != UNCASED:
            words = [*words[::16], words[-1]]
        texts = [f'a{word}b' for word in words]
        if options.clean:  # what is dropped leaves nothing that is unknown
            texts += [f'a{c}b' for word in words[-2:] for c in word]
        self.check(options, texts)

    @parameterized.parameters(*zip(OPTIONS))
    def test_texts(self, options):
        self.check(options, [*TEXTS, '', ' ', ' '.join(TEXTS)])

    @parameterized.parameters(*zip(OPTIONS))
    def test_mixtures(self, options):
        self.check(options, mixtures(1500))

    @parameterized.parameters(*itertools.product(OPTIONS[:3], (
        'a', 'ab', 'é', 'e\u0301', 'ส', 'ก\u0e34', '각', '😀', '\u2603', 'ß',
        'A\u200b',
    )))  # fmt: skip
    def test_long_words(self, options, unit):
        words = [(unit * 101)[:n] for n in (33, 50, 99, 100, 101)]
        words += [unit * n for n in (33, 34, 50, 51, 99, 100, 101, 200, 500)]
        texts = [f'b {word} c.{word}, {words[-1]} {unit}' for word in words]
        self.check(options, [*texts, *words, '', 'a b'])


class WordPieceTest(parameterized.TestCase):
    def test_malformed_text(self):
        generator = random.Random(0)
        ours, _ = both(UNCASED)
        texts = [
            bytes(generator.choices(
                [*b'ab A.', *range(0x80, 0x100)], k=generator.randint(1, 20)
            ))
            for _ in range(5000)
        ]  # fmt: skip
        texts += [b'\xe0\xa4', b'a\xff', b'\xc0\x80', b'\xed\xa0\x80b', b'\xf5']
        ids, starts, ends = ours.tokenize_with_offsets(texts)
        lengths = np.repeat([len(text) for text in texts], ids.row_lengths())
        self.assertTrue(np.all(starts.values >= 0))
        self.assertTrue(np.all(starts.values < ends.values))
        self.assertTrue(np.all(ends.values <= lengths))
        np.testing.assert_array_equal(ours.tokenize(texts).values, ids.values)
        flat, ragged = (f(texts[:100]) for f in (ours.tokenize_flat,
                                                 ours.tokenize))  # fmt: skip
        np.testing.assert_array_equal(flat.ids, ragged.values)

    def test_what_is_said_of_marks(self):
        # 1D165 is of class 216, 1D16D of 226; neither is dropped.
        ours, theirs = both(UNCASED)
        for marks, equal in (
            ('\U0001d165\U0001d16d', True), ('\U0001d16d\U0001d165', False)
        ):  # fmt: skip
            theirs_ids = theirs.encode('a' + marks).ids
            ours_ids = ours.tokenize(['a' + marks]).to_list()[0]
            self.assertEqual(ours_ids == theirs_ids, equal)
            self.assertCountEqual(ours_ids[1:], theirs_ids[1:])

    def test_what_none_stands_for_is_the_same_tokenizer(self):
        """Case aside."""
        pieces = [*SPECIALS, 'a']
        other = WordPieceTokenizer(pieces, False, True).identity
        self.assertEqual(WordPieceTokenizer(pieces).identity, other)

    def test_options_are_read(self):
        path = pathlib.Path(self.create_tempdir().full_path) / 'vocab.txt'
        write_vocabulary(path, [*SPECIALS, 'a', 'á'])
        for options in OPTIONS:
            tokenizer = WordPieceTokenizer.read(path, **options._asdict())
            self.assertEqual(tokenizer.normalization, options)
            self.assertEqual(tokenizer.lower_case, options.lower_case)
