"""Byte pairs against the `tokenizers` package: equal ids, equal places."""

import copy
import functools
import itertools
import json
import random
import unicodedata
from pydoc_data import topics

import numpy as np
import tensorflow as tf
import tokenizers
from absl.testing import parameterized
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

from infoword_tf.text import bytepairs
from infoword_tf.text.bytepairs import SPLITS, BytePairs
from infoword_tf.text.characterpairs import ENDS, CharacterPairs
from infoword_tf.text.markedpairs import MarkedPairs
from infoword_tf.text.merges import Merges
from tests.near import same
from tests.oracles import public_folders
from tests.text.learned import HARD, SPECIALS, encoded
from tests.text.test_normalization import TEXTS, mixtures

ALPHABET = sorted(bytepairs._BYTES)
BYTES = {'type': 'ByteLevel', 'add_prefix_space': False, 'use_regex': False,
         'trim_offsets': True}  # fmt: skip


def split_by(number):
    """Returns a pre-tokenizer of one of the expressions."""
    split = {'type': 'Split', 'pattern': {'Regex': list(SPLITS)[number]},
             'behavior': 'Isolated', 'invert': False}  # fmt: skip
    return {'type': 'Sequence', 'pretokenizers': [split, BYTES]}


OPTIONS = {
    'plain': {},
    'marks_first': {},
    'llama_3': {'pre_tokenizer': split_by(1)},
    'gpt_4': {'pre_tokenizer': split_by(2)},
    'qwen_2': {'pre_tokenizer': split_by(3), 'normalizer': {'type': 'NFC'}},
    'qwen_3_5': {'pre_tokenizer': split_by(4)},
    'digits': {'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [
        {'type': 'Digits', 'individual_digits': True},
        {**BYTES, 'use_regex': True},
    ]}},
    'composed': {'normalizer': {'type': 'NFC'}},
    'lower_case': {'normalizer': {'type': 'Lowercase'}},
}


@functools.cache
def real():
    """Lines of Python's manual."""
    actual = [
        line for text in topics.topics.values() for line in text.splitlines()
    ]
    return random.Random(0).sample(actual, 1500)


@functools.cache
def learned():
    """Returns what is learned from them."""
    return bytepairs.learn([*real(), *TEXTS], 1500)


@functools.cache
def both(option):
    """Ours and theirs."""
    public, first = copy.deepcopy(learned()), option == 'marks_first'
    public['pre_tokenizer']['add_prefix_space'] = first
    public |= OPTIONS[option]
    theirs = tokenizers.Tokenizer.from_str(json.dumps(public))
    theirs.post_processor = processors.ByteLevel(
        trim_offsets=True, add_prefix_space=first
    )
    theirs.encode_special_tokens = True
    return BytePairs(public), theirs


@functools.cache
def characters(lower_case=True, others=None):
    """GPT's kind, learned by theirs: ours and theirs; others: not as usual."""
    public = tokenizers.Tokenizer(
        models.BPE(unk_token='<unk>', end_of_word_suffix=ENDS)
    )
    public.normalizer = normalizers.BertNormalizer(
        others is None, others is None, others, lower_case
    )
    public.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    public.train_from_iterator(real(), trainers.BpeTrainer(
        vocab_size=1500, special_tokens=['<unk>'], end_of_word_suffix=ENDS,
        show_progress=False,
    ))  # fmt: skip
    public.encode_special_tokens = True
    return CharacterPairs(json.loads(public.to_str())), public


def ids_of(tokenizer, texts):
    return tokenizer.tokenize(tf.constant(texts)).to_list()


@functools.cache
def everything():
    """All code points: between letters, alone, after a blank.

    Of planes without any letter the first and the last are enough.
    """
    plain = [*range(4, 14), 15, 16]
    codes = [
        code
        for code in [*range(0xD800), *range(0xE000, 0x110000)]
        if code >> 16 not in plain or 0x400 <= (code + 0x800) % 0x10000 < 0xC00
    ]
    # In large blocks all are letters, or none is: many together.
    large = (0x3400, 0xA000), (0xAC00, 0xD7A4), (0x20000, 0x110000)
    apart = [c for c in codes if not any(a <= c < b for a, b in large)]
    words = [f'a{chr(c)}b {chr(c)}1{chr(c)}  {chr(c)}' for c in apart]
    texts = ['!'.join(words[i : i + 128]) for i in range(0, len(words), 128)]
    together = ''.join(map(chr, sorted(set(codes).difference(apart))))
    for i in range(0, len(together), 64):
        texts.append(f'a{together[i : i + 64]} 1')
    return texts


class OracleTest(parameterized.TestCase):
    def check(self, ours, theirs, texts):
        """Ids and places are equal; of a difference, the text."""
        for text, ids, actual, expected, bounds in encoded(ours, theirs, texts):
            # Of blanks alone nothing is left, wherever that is.
            empty = (bounds[:, 0] == bounds[:, 1])[:, None]
            if theirs.normalizer and unicodedata.normalize('NFC', text) != text:
                actual = bounds  # theirs forgets what a letter was composed of
            if text.startswith(' ') and getattr(ours, '_marks_first', False):
                actual[:1] = bounds[:1]  # theirs takes it for the mark
            if (
                ids != expected
                or not np.array_equal(actual * ~empty, bounds * ~empty)
                or (actual[:, 0] != actual[:, 1])[empty[:, 0]].any()
            ):
                self.fail(
                    f'{text!r}: {ids} {actual.tolist()}, not {expected} '
                    f'{bounds.tolist()}'
                )

    @parameterized.parameters(*OPTIONS)
    def test_texts(self, option):
        self.check(*both(option), [*HARD, *TEXTS, ' '.join(HARD), *real()])

    @parameterized.parameters(*OPTIONS)
    def test_every_code_point(self, option):
        texts = everything()
        if option != 'plain':
            later = 'pre_tokenizer' in OPTIONS[option]
            texts = texts[: 0x60 if later else 0x100]
        ours, theirs = both(option)
        expected = theirs.encode_batch(texts, add_special_tokens=False)
        for i in range(0, len(texts), 1024):
            actual = ids_of(ours, texts[i : i + 1024])
            for text, row, want in zip(
                texts[i : i + 1024], actual, expected[i : i + 1024], strict=True
            ):
                self.assertEqual(row, want.ids, text)

    @parameterized.parameters(*OPTIONS)
    def test_mixtures(self, option):
        blanks = [' ', ' ', ' ', '  ', '\n', ' \t', '\u00a0', "'", "'s", "'ll",
                  '\r\n', '\n \n', ".'LL", '!\n\n ', '12345', "'\u017f"]

        self.check(*both(option), mixtures(800, blanks))

    @parameterized.parameters((True,), (False,), (True, False))
    def test_characters(self, *options):
        texts = [*HARD, *TEXTS, *real(), 'a</w>b <unk>', 'a中b']
        self.check(*characters(*options), texts)

    @parameterized.parameters(
        'a', 'ab', 'the', '的一是不', '0123456789abcdefXYZ', 'é', ' ', '  x'
    )
    def test_long_words(self, unit):
        ours, theirs = both('plain')
        random_ = random.Random(1)
        texts = [(unit * 5000)[:n] for n in (63, 64, 65, 66, 67, 500, 5000)]
        texts += [''.join(random_.choices(unit, k=2000)) for _ in range(3)]
        self.check(ours, theirs, [*texts, texts[-1] + ' ' + texts[0]])

    def test_rows_of_blanks(self):
        """Added pieces of 2 to 5 blanks, as code models have them."""
        public = copy.deepcopy(learned())
        size = len(public['model']['vocab'])
        for count in range(2, 6):
            public['added_tokens'].append({
                'id': size + count - 2, 'content': ' ' * count,
                'single_word': False, 'lstrip': False, 'rstrip': False,
                'normalized': True, 'special': False,
            })  # fmt: skip
        theirs = tokenizers.Tokenizer.from_str(json.dumps(public))
        theirs.encode_special_tokens = True
        texts = [
            f'{before}{" " * count}{after}'
            for before, after in itertools.product(
                ['', 'a', '\n', "x'", '\u00a0'], ['', 'b', '\t', "'s", '!']
            )
            for count in range(14)
        ]
        texts += ['a  b   c', ' '.join(texts), *HARD]
        expected = theirs.encode_batch(texts, add_special_tokens=False)
        actual = ids_of(BytePairs(public), texts)
        self.assertEqual(actual, [row.ids for row in expected])


class MergesTest(parameterized.TestCase):
    @parameterized.parameters(range(12))
    def test_any_merges(self, seed):
        """Also of no order: theirs takes any, in any."""
        generator = random.Random(seed)
        vocab = {piece: i for i, piece in enumerate('abcd')}
        public = []
        for _ in range(40):
            left, right = generator.choices(list(vocab), k=2)
            if len(left + right) < 8 and (left, right) not in public:
                vocab.setdefault(left + right, len(vocab))
                public.append((left, right))
        if seed % 2:
            generator.shuffle(public)
        merges = Merges(
            [(vocab[a], vocab[b], vocab[a + b]) for a, b in public], len(vocab)
        )
        other = models.BPE(vocab, public)
        words = [
            ''.join(generator.choices('abcd', k=generator.randint(1, length)))
            for length in (3, 10, 30, 200)
            for _ in range(40)
        ]
        words += ['a' * n for n in range(1, 80)]
        numbers = [[vocab[c] for c in word] for word in words]
        symbols = tf.ragged.constant(numbers, tf.int64)
        ids, word = merges(
            symbols.values, symbols.value_rowids(), symbols.nrows()
        )
        for number, text in enumerate(words):
            actual = ids.numpy()[word.numpy() == number].tolist()
            expected = [token.id for token in other.tokenize(text)]
            self.assertEqual(actual, expected, text)

    def test_a_part_that_is_made_later(self):
        """By hand: c+d is made after x+cd and xcd+c, which wait for it."""
        pieces = ['x', 'c', 'd', 'cd', 'xcd', 'xcdc']
        vocab = {piece: i for i, piece in enumerate(pieces)}
        merges = Merges([(0, 3, 4), (4, 1, 5), (1, 2, 3)], len(vocab))
        ids, _ = merges(
            tf.constant([0, 1, 2, 1, 2], tf.int64), tf.zeros(5, tf.int64),
            tf.constant(1, tf.int64),
        )  # fmt: skip
        other = models.BPE(vocab, [('x', 'cd'), ('xcd', 'c'), ('c', 'd')])
        expected = [token.value for token in other.tokenize('xcdcd')]
        self.assertEqual([pieces[i] for i in ids], expected)

    def test_a_piece_that_no_merge_makes_is_no_word(self):
        """Unless `ignore_merges`: then a piece is one whatever makes it."""
        public = copy.deepcopy(learned())
        public['model']['vocab']['zqzq'] = len(public['model']['vocab'])
        for ignore in False, True:
            public['model']['ignore_merges'] = ignore
            theirs = tokenizers.Tokenizer.from_str(json.dumps(public))
            (actual,) = ids_of(BytePairs(public), ['zqzq'])
            self.assertEqual(actual, theirs.encode('zqzq').ids)
            self.assertEqual(len(actual) == 1, ignore)


class BytePairsTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokenizer, _ = both('plain')

    def test_how_bytes_are_written(self):
        """As in GPT-2's public vocabulary: its first pieces are these."""
        written = {byte: name for name, byte in bytepairs._BYTES.items()}
        names = ''.join(written[ord(c)] for c in '!A \n\t\r')
        self.assertEqual(names, '!AĠĊĉč')
        self.assertEqual(''.join(sorted(written.values()))[:3], '!"#')
        self.assertEqual(written[0xAD], 'Ń')  # the soft hyphen, the last
        self.assertLen(set(written.values()), 256)

    def test_bytes_that_are_no_text(self):
        texts = [b'\xe0\xa4', b'a\xff b', b'\xc0\x80', b'\xed\xa0\x80b', b'']
        ids, starts, ends = self.tokenizer.tokenize_with_offsets(texts)
        replaced = ids_of(self.tokenizer, ['a\ufffd b'])
        self.assertEqual(replaced, ids[1:2].to_list())
        lengths = np.repeat([len(text) for text in texts], ids.row_lengths())
        self.assertTrue(np.all(starts.values >= 0))
        self.assertTrue(np.all(starts.values <= ends.values))
        self.assertTrue(np.all(ends.values <= lengths))

    def test_normalizers_tell_tokenizers_apart(self):
        composed, _ = both('composed')
        self.assertNotEqual(self.tokenizer.identity, composed.identity)
        self.assertTrue(both('lower_case')[0].lower_case)

    def test_back_to_text(self):
        ours, _ = characters()
        (ids,) = ids_of(ours, ['The file is here.'])
        self.assertEqual(ours.detokenize(ids), 'the file is here .')

    def test_word_starts(self):
        strings = [b'unwanted, (running).', b'', b"it's a . b", 'é 字'.encode()]
        actual = self.tokenizer.tokenize_flat(strings)
        same(actual.ids, self.tokenizer.tokenize(strings).values)
        words = [0, *np.flatnonzero(actual.word_starts)[1:], len(actual.ids)]
        spelled = [
            self.tokenizer.detokenize(actual.ids[a:b].tolist())
            for a, b in itertools.pairwise(words)
        ]
        self.assertEqual(
            spelled,
            ['unwanted,', ' (running).', "it's", ' a', ' .', ' b', 'é', ' 字'],
        )

    def test_a_mask_has_the_blank_before_it(self):
        """As of RoBERTa, whose <mask> takes it."""
        parts = tf.constant(['the ', ' of a \n', '.', 'end '])
        inside = tf.constant([False, True, True, False])
        actual = self.tokenizer.tokenize_between_masks(parts, inside)
        expected = ids_of(self.tokenizer, ['the', ' of a', '.', 'end '])
        self.assertEqual(actual.to_list(), expected)

    def test_what_is_learned(self):
        vocabulary = self.tokenizer.vocabulary
        self.assertEqual(vocabulary[:5], SPECIALS)
        self.assertEqual(list(vocabulary[5:261]), ALPHABET)
        self.assertLen(vocabulary, 1500)
        self.assertIn('Ġthe', vocabulary)
        self.assertLen(BytePairs.learn(real(), 261), 261)


class MarkedPairsTest(parameterized.TestCase):
    """Gemma's kind and Llama's."""

    def both(self, marks, merge=None):
        theirs = public_folders.marked_pairs(marks)
        public = json.loads(theirs.to_str())
        vocab = public['model']['vocab']
        # A letter may be the first of all tokens.
        (pad,) = (x for x in public['added_tokens'] if x['content'] == '<pad>')
        vocab['<pad>'], vocab['h'] = vocab['h'], vocab['<pad>']
        pad['id'] = vocab['<pad>']
        if merge:
            vocab[''.join(merge)] = len(vocab)
            public['model']['merges'].append(list(merge))
        public['added_tokens'].sort(key=lambda x: x['id'])
        theirs = tokenizers.Tokenizer.from_str(json.dumps(public))
        return MarkedPairs(public), theirs

    @parameterized.parameters(
        ('gemma',), ('legacy',), ('first',), ('gemma', ('o', '\u2581'))
    )
    def test_ids_and_places(self, marks, merge=None):
        """With a merge over a blank, too: then no text is split."""
        ours, theirs = self.both(marks, merge)
        texts = ['hello the  hello', ' hello', '', '\u2581the', 'the é字 the ']
        texts = [*texts, ' '.join(texts) * 20]
        for text, ids, places, *expected in encoded(ours, theirs, texts):
            self.assertEqual(ids, expected[0])
            same(places, expected[1])
            if '\u2581' not in text and text[:1] != ' ':
                self.assertEqual(ours.detokenize(ids), text)
        actual = ours.tokenize_flat([b'hello the hello', b'', b'hello'])
        self.assertEqual(int(actual.word_starts.sum()), 4)

    @parameterized.parameters('gemma', 'legacy', 'first')
    def test_text_after_a_mask_may_go_on_with_a_word(self, marks):
        ours, _ = self.both(marks)
        parts = tf.constant(['the ', 'hello', ' the'])
        inside = tf.constant([False, True, True])
        actual = ours.tokenize_between_masks(parts, inside)
        spelled = [[ours.vocabulary[i] for i in row] for row in actual.numpy()]
        self.assertEqual(
            spelled,
            [['the' if marks == 'gemma' else '\u2581the', '\u2581'],
             ['hello'], ['\u2581the']],
        )  # fmt: skip
