"""Promises of every tokenizer, and what a run makes with one."""

import contextlib
import io
import json
import pathlib
import random
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from export import card, comparison, serving_ops
from infoword_tf.choices import TextChoices
from infoword_tf.config import TokenizerConfig
from infoword_tf.data import opened, store
from infoword_tf.data.documents import Document
from infoword_tf.text.numbers import Numbers
from infoword_tf.text.tokenizers import TOKENIZERS
from infoword_tf.text.wholewords import WholeWords
from infoword_tf.text.wordpiece import WordPieceTokenizer
from tests import corpus, places, zoo
from tests.refused import refused
from tests.text.learned import (
    HARD,
    LEARNED,
    SPECIALS,
    TEXTS,
    learned,
    model,
    small,
    words_of,
)

# Of these two have a million bytes; the beginning of a text is enough for most.
NASTY = list(comparison.NASTY)
BEGUN = [text[:2000] for text in NASTY]
# Of real text, how many pieces may be unknown.
UNKNOWN = {'wordpiece': 1e-3, 'sentencepiece': 2e-3}


class PromisesTest(parameterized.TestCase):
    @parameterized.product(kind=list(LEARNED), lower_case=(True, False))
    def test_pieces_of_real_text(self, kind, lower_case):
        tokenizer = learned(kind, lower_case)
        actual = tokenizer.tokenize_flat([text.encode() for text in TEXTS])
        self.assertEqual(actual.ids.dtype, np.int32)
        self.assertEqual(actual.word_starts.dtype, bool)
        ragged = tokenizer.tokenize(TEXTS)
        np.testing.assert_array_equal(actual.ids, ragged.flat_values)
        np.testing.assert_array_equal(actual.row_splits, ragged.row_splits)
        words = sum(len(t.split()) for t in TEXTS)
        self.assertEqual(actual.word_starts.sum(), words)
        share = np.mean(actual.ids == tokenizer.unk_id)
        self.assertLessEqual(share, UNKNOWN.get(kind, 0))
        for strings in ([], [b''], [b'', b'']):
            nothing = tokenizer.tokenize_flat(strings)
            self.assertEqual([*nothing.ids, *nothing.word_starts], [])
            splits = nothing.row_splits.tolist()
            self.assertEqual(splits, [0] * (len(strings) + 1))

    @parameterized.parameters(*LEARNED)
    def test_in_a_graph_that_servers_load(self, kind):
        tokenizer, module = learned(kind), tf.Module()
        module.tokenizer = tokenizer
        strings = tf.TensorSpec([None], tf.string)
        module.ask = tf.function(lambda texts: [
            (part.values, part.row_splits)
            for part in tokenizer.tokenize_with_offsets(texts)
        ], input_signature=[strings])  # fmt: skip
        folder = pathlib.Path(self.create_tempdir().full_path)
        tf.saved_model.save(module, folder)
        self.assertEqual(serving_ops.unservable(folder), [])
        graph = tf.saved_model.load(folder).ask
        texts = [*BEGUN, *HARD]
        for (values, splits), expected in zip(
            graph(texts), tokenizer.tokenize_with_offsets(texts), strict=True
        ):
            np.testing.assert_array_equal(values, expected.values)
            np.testing.assert_array_equal(splits, expected.row_splits)
        self.assertEqual(graph([''])[0][0].dtype, tf.int32)
        for texts in ([''], tf.zeros([0], tf.string)):
            for values, splits in graph(texts):
                self.assertEqual(values.shape, [0])
                np.testing.assert_array_equal(splits, [0] * (len(texts) + 1))

    @parameterized.parameters(*LEARNED)
    def test_places_in_nasty_strings(self, kind):
        tokenizer = learned(kind)
        ids, starts, ends = tokenizer.tokenize_with_offsets(NASTY)
        np.testing.assert_array_equal(
            ids.flat_values, tokenizer.tokenize(NASTY).flat_values
        )
        for text, begins, after in zip(
            NASTY, starts.to_list(), ends.to_list(), strict=True
        ):
            if kind != 'bytes':  # whose pieces may be parts of a character
                self.assertEqual(begins, sorted(begins))
                self.assertEqual(after, sorted(after))
            for b, e in zip(begins, after, strict=True):
                self.assertBetween(b, 0, e - (kind in ('wordpiece', 'words')))
                self.assertLessEqual(e, len(text))
        self.assertEqual(ids[0].shape[0], 0)

    @parameterized.parameters(*LEARNED)
    def test_written_and_read(self, kind):
        tokenizer, cls = learned(kind), TOKENIZERS[kind]
        path = pathlib.Path(self.create_tempdir().full_path, cls.file)
        with self.assertRaisesRegex(
            FileNotFoundError, f'{path}: no such vocabulary; --vocab '
        ):
            cls.read(path)
        tokenizer.write(path)
        again = cls.read(path, tokenizer.lower_case, **tokenizer.options)
        for name in ('identity', 'vocabulary', 'config'):
            self.assertEqual(getattr(again, name), getattr(tokenizer, name))
        self.assertEqual(again.config.kind, kind)
        expected = tokenizer.tokenize(BEGUN).to_list()
        self.assertEqual(again.tokenize(BEGUN).to_list(), expected)
        self.assertNotEqual(again.identity, learned(kind, False).identity)

    @parameterized.parameters(*LEARNED)
    def test_special_pieces(self, kind):
        """They come first, and their text is text like any other."""
        tokenizer = learned(kind)
        size = LEARNED[kind] or len(tokenizer)
        self.assertEqual(tokenizer.vocabulary[:5], SPECIALS)
        self.assertLen(set(tokenizer.vocabulary), size)
        self.assertLen(tokenizer, size)
        self.assertEqual(tokenizer.special_ids, (0, 1, 2, 3, 4))
        self.assertContainsSubset((0, 2, 3, 4), tokenizer.control_ids)
        (ids,) = tokenizer.tokenize(['[PAD][CLS] [SEP] [UNK] [MASK]']).to_list()
        self.assertNoCommonElements(tokenizer.control_ids, ids)

    @parameterized.parameters(*LEARNED)
    def test_case_is_folded_where_that_is_asked_for(self, kind):
        for lower_case in (True, False):
            tokenizer = learned(kind, lower_case)
            self.assertEqual(tokenizer.lower_case, lower_case)
            actual = tokenizer.tokenize(['The FILE', 'the file']).to_list()
            self.assertEqual(actual[0] == actual[1], lower_case)

    @parameterized.parameters(*LEARNED)
    def test_the_same_from_the_same_texts(self, kind):
        texts, learn = TEXTS[:12], TOKENIZERS[kind].learn
        shuffled = random.Random(1).sample(texts, len(texts))
        one, other = learn(shuffled, 400), learn(texts, 400)
        self.assertEqual(one.identity, other.identity)

    @parameterized.parameters(
        ('wordpiece', (1, 5)), ('sentencepiece', (1, 5, 20)),
        ('bytes', (1, 5, 260)), ('words', (3, 5), ['<unk>']),
    )  # fmt: skip
    def test_what_cannot_be_learned(self, kind, sizes, *more):
        for texts in ([], ['', ' \t '], [' \n '], *more):
            with refused('no_text_to_learn', '--corpus'):
                TOKENIZERS[kind].learn(texts, 300)
        for size in sizes:
            with refused('small_vocab_size', f'--vocab_size={size} '):
                TOKENIZERS[kind].learn(TEXTS, size)


# Of small tokenizers: texts and their tokens.
TOKENS = {
    'wordpiece': (
        ('UNwant\u00e9d,running', 'un ##want ##ed , runn ##ing'),
        (' \tUNwant\u00e9d , \n running ', 'un ##want ##ed , runn ##ing'),
        ('unwanted running', 'un ##want ##ed runn ##ing'),
        ('unwantedX running', '[UNK] runn ##ing'),
        ('a b ab ba', 'a b ab [UNK]'),
        ('CAFÉ cafe\u0301', 'cafe cafe'),
        ('a中人b', 'a 中 人 b'),
        ('a' * 101, '[UNK]'),
        ('a\u00b4b', '[UNK]'),  # the accent is no mark, and stays
        ('', ''),
        (' \u200b ', ''),
        ('[MASK] a', '[ mask ] a'),
        ('[SEP] [CLS] [PAD]', '[ [UNK] ] [ [UNK] ] [ [UNK] ]'),
    ),
    'wordpiece with case': (
        ('UNwant\u00e9d,running', 'UN ##want ##éd , runn ##ing'),
        ('unwant\u00e9d running', '[UNK] runn ##ing'),
        ('Caf\u00e9 cafe CAFE', 'Café cafe [UNK]'),
    ),
    'wordpiece, specials anywhere': (('b a c', 'b a [UNK]'),),
    'sentencepiece': (
        ('UNwanted,running', '▁un want ed , run ning'),
        (' \tUNwanted , \n running ', '▁un want ed ▁ , ▁ run ning'),
        ('a b ab ba', '▁a ▁b ▁a b ▁b a'),
        ('caf\u00e9 cafe\u0301 cafe', '▁c a [UNK] é ▁c a [UNK] é ▁ cafe'),
        ('\uff41, \u24d0', '▁a , ▁a'),  # NFKC
        ('the 漢字', '▁the ▁ [UNK]'),
        ('', ''),
        (' \u200b ', ''),
        ('[MASK] a', '▁ [ mask ] ▁a'),
    ),
    'sentencepiece with bytes': (('a ß', '▁a ▁ <0xC3> <0x9F>'),),
    'words': (
        ('the The THE', 'the The [UNK]'),
        ('the. the .', '[UNK] the .'),
        ('caf\u00e9 cafe\u0301 cafe', 'caf\u00e9 [UNK] [UNK]'),
        ('a, @-@ a ,', 'a, @-@ [UNK] [UNK]'),
        (' \tthe \n .\u3000the\u00a0', 'the . the'),
        ('<unk> the <unk>', '[UNK] the [UNK]'),
        ('[PAD] [CLS] [SEP] [MASK] [UNK]', ' '.join(['[UNK]'] * 5)),
        ('', ''),
        (' \n', ''),
        (b'\xff the', '[UNK] the'),
    ),
    'words without case': (
        ('THE \u00c9mil \u03a3\u0391\u03a3', 'the émil σας'),
    ),
}
# Tokens with their bytes of the text as it was before normalisation.
PLACES = {
    'wordpiece': (
        ('Café a', [('cafe', 0, 5), ('a', 6, 7)]),
        ('UNwantéd,b', [('un', 0, 2), ('##want', 2, 6), ('##ed', 6, 9),
                        (',', 9, 10), ('b', 10, 11)]),
        ('中a', [('中', 0, 3), ('a', 3, 4)]),
        ('cafe\u0301 b', [('cafe', 0, 4), ('b', 7, 8)]),
    ),
    'sentencepiece': (
        # Spaces are of no piece.
        ('Aé bé', [('▁a', 0, 1), ('é', 1, 3), ('▁b', 4, 5), ('é', 5, 7)]),
        ('  a \t b ', [('▁a', 2, 3), ('▁b', 6, 7)]),
        ('e\u0301, a', [('▁', 0, 0), ('é', 0, 3), (',', 3, 4), ('▁a', 5, 6)]),
        ('\uff41\uff42', [('▁a', 0, 3), ('b', 3, 6)]),
        ('a\u200bb', [('▁a', 0, 1), ('▁b', 1, 5)]),
        # Two pieces of one character: the last has its bytes.
        ('a ﬁ a', [('▁a', 0, 1), ('▁f', 2, 2), ('i', 2, 5), ('▁a', 6, 7)]),
        # Unknown neighbours are one piece.
        ('漢字, 漢', [('▁', 0, 0), ('[UNK]', 0, 6), (',', 6, 7), ('▁', 8, 8),
                  ('[UNK]', 8, 11)]),
        (b'a \xff\0b', [('▁a', 0, 1), ('▁', 2, 2), ('[UNK]', 2, 4),
                        ('b', 4, 5)]),
    ),
    'sentencepiece with bytes': (
        ('a ß.', [('▁a', 0, 1), ('▁', 2, 2), ('<0xC3>', 2, 2),
                  ('<0x9F>', 2, 4), ('.', 4, 5)]),
    ),
    'words': (
        (' the  caf\u00e9 x\n', [('the', 1, 4), ('café', 6, 11),
                                ('[UNK]', 12, 13)]),
        ('The', [('The', 0, 3)]),
    ),
}  # fmt: skip
# Strings and the tokens of each word.
PARTED = {
    'wordpiece': (
        # Punctuation stays with its word.
        (('unwanted, (running).',), ['un ##want ##ed ,', '( runn ##ing ) .']),
        (('a . b',), ['a', '.', 'b']),
        # A new string is a new word, with empty ones between or around.
        (('a', 'b'), ['a', 'b']),
        (('', 'a', '', '', 'b a', ''), ['a', 'b', 'a']),
        (('unwanted, a.', '', '(b)'), ['un ##want ##ed ,', 'a .', '( b )']),
        # Accents, composed or not, part nothing.
        (('Café cafe\u0301, b',), ['cafe', 'cafe ,', 'b']),
        # Characters that normalisation deletes part no word, and hide no
        # space beside them.
        (('a\u200bb a',), ['ab', 'a']),
        (('a,\u200bb a',), ['a , b', 'a']),
        (('a \u200bb',), ['a', 'b']),
        (('a\u200b b',), ['a', 'b']),
        (('\u200b a', '\u200b', 'b'), ['a', 'b']),
        # Each ideograph is a piece, but no word of its own.
        (('a中人 人b',), ['a 中 人', '人 b']),
    ),
    'sentencepiece': (
        # A mark may stand alone before punctuation.
        (('unwanted, (running).',), ['▁un want ed ,', '▁ ( run ning ) .']),
        (('a . b',), ['▁a', '▁ .', '▁b']),
        (('a', 'b'), ['▁a', '▁b']),
        (('', 'a', '', '', 'b a', ''), ['▁a', '▁b', '▁a']),
        (('unwanted, a.', '', '(b)'), ['▁un want ed ,', '▁a .', '▁ ( b )']),
        # What normalisation deletes, or makes a space, parts no word.
        (('a\u200bb a',), ['▁a ▁b', '▁a']),
        (('a,\u200bb a',), ['▁a , ▁b', '▁a']),
        (('a \u200bb',), ['▁a', '▁b']),
        (('a\u200b b',), ['▁a', '▁b']),
        (('\u200b a', '\u200b', 'b'), ['▁a', '▁b']),
        (('a\u00a8b \u00a8 a',), ['▁a ▁ [UNK] b', '▁ [UNK]', '▁a']),
        # Of the pieces of one character all are in its word.
        (('ﬁ ﬁ', 'ﬁ'), ['▁f i', '▁f i', '▁f i']),
        (('a漢字 漢b',), ['▁a [UNK]', '▁ [UNK] b']),
    ),
    'sentencepiece with bytes': (
        (('ß ß',), ['▁ <0xC3> <0x9F>', '▁ <0xC3> <0x9F>']),
    ),
    'words': ((('the .', '', 'The'), ['the', '.', 'The']),),
}
# Tokens as text: a text, and what its tokens spell.
BACK = {
    'wordpiece': (
        ('unwanted running', 'unwanted running'), ('Café, a', 'cafe , a'),
    ),
    'sentencepiece': (('The cafe, a.', 'the cafe, a.'),),
    'words': (('The  café .', 'The café .'),),
    'bytes': tuple((text, text) for text in HARD),
}  # fmt: skip
# Documents as lists of sentences, and tokens with flags of their store.
STORED = {
    'sentencepiece': (
        [('the b.', '', 'a (b)'), ('unwanted',)],
        '▁the/3 ▁b/1 ./0 ▁a/3 ▁/1 (/0 b/0 )/0 [SEP]/5 '
        '▁un/3 want/0 ed/0 [SEP]/5',
    ),
    # A line end is one token, and `<unk>` a type like any other.
    'words': (
        [('The <unk> .', 'the'), (), ('x',), ('<unk> the',)],
        'The/3 [UNK]/1 ./1 the/3 [SEP]/5 [SEP]/5 [UNK]/3 [SEP]/5 '
        '[UNK]/3 the/1 [SEP]/5',
    ),
}


def cases(table):
    return [(name, *row) for name, rows in table.items() for row in rows]


class SmallTest(parameterized.TestCase):
    @parameterized.parameters(*cases(TOKENS))
    def test_tokens(self, name, text, expected):
        tokenizer = small(name)
        ragged = tokenizer.tokenize(['', text, ''])
        self.assertEqual(ragged.dtype, tf.int32)
        first, ids, last = ragged.to_list()
        self.assertEqual((first, last), ([], []))
        tokens = [tokenizer.vocabulary[i] for i in ids]
        self.assertEqual(tokens, expected.split())

    @parameterized.parameters(*cases(PLACES))
    def test_places(self, name, text, expected):
        tokenizer = small(name)
        _, actual, _ = zip(
            *(part.to_list() for part in
              tokenizer.tokenize_with_offsets(['b ', text, ''])), strict=True
        )  # fmt: skip
        self.assertEqual(
            [(tokenizer.vocabulary[i], *place)
             for i, *place in zip(*actual, strict=True)], expected,
        )  # fmt: skip

    @parameterized.parameters(*cases(PARTED))
    def test_word_starts(self, name, strings, words):
        tokenizer = small(name)
        self.assertEqual(words_of(tokenizer, *strings), words)
        actual = tokenizer.tokenize_flat([s.encode() for s in strings])
        expected = tokenizer.tokenize(strings)
        np.testing.assert_array_equal(actual.ids, expected.values)
        np.testing.assert_array_equal(actual.row_splits, expected.row_splits)

    @parameterized.parameters(*cases(BACK))
    def test_back_to_text(self, name, text, expected):
        """Special tokens are left out."""
        tokenizer = small(name)
        (ids,) = tokenizer.tokenize([text]).to_list()
        around = [tokenizer.cls_id, *ids, tokenizer.sep_id]
        self.assertEqual(tokenizer.detokenize(around), expected)
        self.assertEqual(tokenizer.detokenize([]), '')

    def test_back_from_the_middle_of_a_word(self):
        tokenizer = small('wordpiece')
        (ids,) = tokenizer.tokenize(['unwanted']).to_list()
        self.assertEqual(tokenizer.detokenize(ids[1:]), 'wanted')

    @parameterized.parameters(
        # [CLS], [SEP], [MASK] and how many; [PAD], [UNK]; what no text has.
        ('wordpiece', (2, 3, 4, 25), (0, 1), (0, 2, 3, 4)),
        ('wordpiece, specials anywhere', (5, 2, 1, 7), (6, 4), (1, 2, 5, 6)),
        ('sentencepiece of XLNet', (3, 4, 6, 32), (5, 0), (1, 2, 3, 4, 5, 6)),
        ('sentencepiece with bytes', (2, 3, 4, 286), (0, 1), (0, 2, 3, 4)),
        ('words', (2, 3, 4, 11), (0, 1), (0, 2, 3, 4)),
        ('bytes', (2, 3, 4, 600), (0, 1), (0, 1, 2, 3, 4)),
    )
    def test_special_ids(self, name, specials, others, control_ids):
        tokenizer = small(name)
        self.assertEqual(tokenizer.specials[:4], specials)
        self.assertEqual((tokenizer.pad_id, tokenizer.unk_id), others)
        self.assertEqual(tokenizer.control_ids, control_ids)

    def test_one_vocabulary_of_several_kinds(self):
        pieces = [*SPECIALS, 'a']
        tokenizers = (WordPieceTokenizer(pieces), WholeWords(pieces),
                      Numbers(pieces, range(5)))  # fmt: skip
        self.assertLen({x.identity for x in tokenizers}, 3)

    @parameterized.parameters(*STORED)
    def test_in_a_store(self, name):
        documents, expected = STORED[name]
        tokenizer = small(name)
        stored = store.write_store(
            pathlib.Path(self.create_tempdir().full_path) / 'store',
            [Document(sentences, '') for sentences in documents],
            tokenizer, progress=False,
        )  # fmt: skip
        actual = [
            f'{tokenizer.vocabulary[i]}/{flag}'
            for i, flag in zip(stored.ids, stored.flags, strict=True)
        ]
        self.assertEqual(actual, expected.split())
        ids = stored.ids[stored.flags & store.SEPARATOR == 0]
        counts = np.bincount(ids, minlength=len(tokenizer))
        np.testing.assert_array_equal(stored.counts, counts)


def changed(without=(), **model):
    """A learned tokenizer.json with another model, or other steps."""
    described = json.loads(learned('bytes').json)
    described['model'] |= model
    return json.dumps(described | dict(without))


def of_characters(unknown='<unk>', ends='</w>', **parts):
    """A tokenizer.json of GPT's kind."""
    return json.dumps({
        'normalizer': {'type': 'BertNormalizer'},
        'pre_tokenizer': {'type': 'BertPreTokenizer'},
        'model': {'type': 'BPE', 'vocab': {'<unk>': 0, 'a</w>': 1},
                  'merges': [], 'unk_token': unknown,
                  'end_of_word_suffix': ends},
        **parts,
    })  # fmt: skip


LINES = '\n'.join(SPECIALS)
_BYTE_LEVEL = {'type': 'ByteLevel', 'add_prefix_space': False}
# Files with wrong contents: the tokenizer, contents, id, values.
REFUSED = (
    ('wordpiece', '\n'.join(SPECIALS[:4]), 'vocabulary_without_specials',
     'vocab.txt', ' [MASK];'),
    ('wordpiece', '[UNK]\n[CLS]\n[MASK]\na', 'vocabulary_without_specials',
     'vocab.txt', ' [PAD], [SEP];'),
    ('words', '[PAD]\nthe\n', 'vocabulary_without_specials', 'words.txt',
     '[UNK]'),
    ('wordpiece', f'{LINES}\nthe\na\nof\nthe\n', 'token_twice', 'vocab.txt',
     "'the' is on line 6 ", ' line 9;'),
    ('wordpiece', b'[PAD]\ncaf\xe9\n', 'vocabulary_not_utf8', 'vocab.txt',
     'byte 9 '),
    ('sentencepiece', lambda: model(SPECIALS[:-1]), 'model_without_specials',
     'spm.model', '[MASK] or <mask>;'),
    ('sentencepiece', lambda: model(('[UNK]', '[PAD]')),
     'model_without_specials', '[CLS] or <cls> or <s>, [SEP] or '),
    ('sentencepiece', lambda: model(types={'[MASK]': 4}), 'special_in_texts',
     '[MASK]'),
    ('sentencepiece', lambda: model(treat_whitespace_as_suffix=True),
     'ends_of_words_marked', 'spm.model'),
    ('sentencepiece', lambda: model(pieces=('a', 'a')), 'damaged_model',
     'spm.model'),
    ('sentencepiece', lambda: learned('sentencepiece').model[:-1],
     'damaged_model', 'spm.model'),
    ('sentencepiece', b'', 'damaged_model', 'no pieces'),
    ('sentencepiece', b'[PAD]\n[UNK]\n', 'damaged_model', 'spm.model'),
    ('bytes', '{"model": {"type": "WordPiece"}}', 'no_byte_pairs', 'BPE'),
    ('bytes', lambda: changed(merges=[['a', 'b'], ['x', 'nothing']]),
     'wrong_merge', "merge 2 of 2, ['x', 'nothing']"),
    ('bytes', lambda: changed(merges=['a b c']), 'wrong_merge', 'a b c'),
    ('bytes', lambda: changed(vocab={'a': 9}, merges=[]),
     'bytes_without_tokens', '255 of 256'),
    ('bytes', lambda: changed(
        vocab={**json.loads(learned('bytes').json)['model']['vocab'],
               'é': 9999}), 'wrong_token_ids', ' 600 '),
    ('bytes', lambda: changed(dropout=0.1), 'unsupported_byte_pairs',
     'dropout'),
    ('bytes', lambda: changed({'normalizer': {'type': 'Prepend'}}),
     'unknown_normalizer', 'Prepend', 'NFKC'),
    ('bytes', lambda: changed({'pre_tokenizer': {'type': 'Whitespace'}}),
     'bytes_pre_tokenizer', 'Whitespace'),
    ('bytes', lambda: changed({'pre_tokenizer': {
        'type': 'Sequence', 'pretokenizers': [
            {'type': 'Digits', 'individual_digits': False}, _BYTE_LEVEL]}}),
     'bytes_pre_tokenizer', 'Digits of several'),
    ('bytes', lambda: changed({'pre_tokenizer': {
        'type': 'Sequence', 'pretokenizers': [
            {'type': 'Split', 'pattern': {'Regex': 'x+'},
             'behavior': 'Isolated'}, {**_BYTE_LEVEL, 'use_regex': False}]}}),
     'bytes_pre_tokenizer', "Split by 'x+' (Isolated)"),
    ('bytes', lambda: changed({'added_tokens': [
        {'id': 5, 'content': ' ' * 3}]}), 'wrong_blank_tokens', '[3] blanks'),
    ('characters', of_characters(normalizer={'type': 'NFC'}),
     'characters_normalizer', 'by NFC and', 'by BertPreTokenizer;'),
    ('characters', of_characters(ends=''), 'characters_word_ends'),
    ('characters', of_characters('[UNK]'), 'no_unknown_token'),
    ('characters', of_characters().replace('<unk>', '<none>'), 'no_end_token',
     'eos_token'),
    ('marked', lambda: changed(), 'marked_otherwise', 'ByteLevel'),
    ('marked', lambda: changed({'pre_tokenizer': {'type': 'Metaspace'}}),
     'marked_without_bytes', '256 of 256'),
)  # fmt: skip


class RefusedTest(parameterized.TestCase):
    @parameterized.parameters(*REFUSED)
    def test_files(self, kind, content, id, *values):
        cls = TOKENIZERS[kind]
        content = content() if callable(content) else content
        content = content.encode() if isinstance(content, str) else content
        path = pathlib.Path(self.create_tempdir().full_path, cls.file)
        path.write_bytes(content)
        with refused(id, *values):
            cls.read(path)

    def test_vocabularies_in_memory(self):
        for kind in (WordPieceTokenizer, WholeWords):
            with refused('vocabulary_without_specials', '[UNK]'):
                kind(['[PAD]', '[CLS]', '[SEP]', '[MASK]', 'a'])

    @parameterized.parameters(('characters',), ('marked',))
    def test_what_is_never_learned(self, kind):
        with refused('pairs_never_learned', kind, '--tokenizer=bytes'):
            TOKENIZERS[kind].learn(TEXTS, 500)


class OpenedTest(parameterized.TestCase):
    """The text of a run, and a model of its tokens."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = places.make(cls.addClassCleanup)
        cls.text = corpus.write_topics(cls.folder / 'text')

    def opened(self, **choices):
        text, heldout = ((x,) for x in self.text)
        with contextlib.redirect_stdout(io.StringIO()):
            return opened.open_text(TextChoices(text, heldout, **choices))

    @parameterized.parameters('sentencepiece', 'words')
    def test_a_vocabulary_that_is_given(self, kind):
        """By the flag; its tokens are those that are there already."""
        first = self.opened(tokenizer=kind, vocab_size=600)
        self.assertIsInstance(first.tokenizer, TOKENIZERS[kind])
        self.assertLen(first.tokenizer, 600)
        path = self.folder / f'list{pathlib.Path(TOKENIZERS[kind].file).suffix}'
        first.tokenizer.write(path)
        again = self.opened(tokenizer=kind, vocab=str(path))
        self.assertEqual(again.tokenizer.identity, first.tokenizer.identity)
        self.assertEqual(again.train.path, first.train.path)
        np.testing.assert_array_equal(again.train.ids, first.train.ids)

    def test_learned_vocabularies_are_told_apart(self):
        """WordPiece of as many pieces from the same text; all words of it,
        with their case unless it is folded.
        """
        text = pathlib.Path(self.folder / 'text' / 'train.txt').read_text()
        with mock.patch.object(opened, 'VOCAB_SIZE', 300):
            every = self.opened(tokenizer='words').tokenizer
            self.assertEqual(set(every.vocabulary[5:]), set(text.split()))
            every = self.opened(tokenizer='words', lower_case=True).tokenizer
            self.assertLen(self.opened().tokenizer, 300)
        self.assertEqual(set(every.vocabulary[5:]), set(text.lower().split()))
        self.assertTrue(every.lower_case)
        pieces = self.opened(vocab_size=len(every)).tokenizer
        self.assertTrue(pieces.lower_case)
        merged = self.opened(tokenizer='bytes', vocab_size=262).tokenizer
        self.assertFalse(merged.lower_case)
        self.assertIsInstance(pieces, WordPieceTokenizer)
        self.assertNotEqual(pieces.vocabulary, every.vocabulary)

    @parameterized.parameters(
        ('words.txt', 'words'), ('runs/a/words.txt', 'words'),
        ('vocab.txt', 'wordpiece'), ('a.model', 'sentencepiece'),
    )  # fmt: skip
    def test_the_kind_of_a_vocabulary(self, vocab, kind):
        choices = TextChoices(vocab=vocab)
        self.assertEqual(opened.choose_tokenizer(choices), kind)

    @parameterized.parameters(
        ('sentencepiece', True, 'lower-cased', 'its unknown token'),
        ('words', False, 'with case', 'punctuation stands apart only where'),
    )
    def test_what_a_card_says(self, kind, lower_case, *parts):
        tokenizer = TokenizerConfig(kind, lower_case)
        config = zoo.config('mlm').replace(tokenizer=tokenizer)
        facts = card._model(config, {})
        for fact, part in zip(('case', 'unknown'), parts, strict=True):
            self.assertIn(part, ' '.join(facts[fact].split()))
