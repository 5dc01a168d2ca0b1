"""Tokenizers of other people's folders: equal ids, and back again."""

import functools
import io
import pathlib
import random
import re
from pydoc_data import topics
from typing import Any, NamedTuple

import sentencepiece
import tensorflow as tf
import tokenizers
from absl.testing import parameterized
from sentencepiece import sentencepiece_model_pb2
from tokenizers import models, normalizers, pre_tokenizers

from infoword_tf import files
from infoword_tf.text.bytepairs import BytePairs
from infoword_tf.text.numbers import Numbers
from infoword_tf.text.wordpiece import WordPieceTokenizer
from infoword_tf.weights import tokenizer_reader, tokenizer_writer, unigram
from infoword_tf.weights.kinds import ARCHITECTURES
from tests import places
from tests.oracles import frozen
from tests.refused import refused
from tests.weights import folders

NASTY = [
    'naïve Straße ﬁne … ½ İstanbul', "``quoted'' 'n' ' '",
    'e\u0301 a\u0308', '漢字かな交じり文 한국어', 'ｆｕｌｌ ﾊﾝｶｸ',
    'שלום مرحبا', 'हिन्दी ไทย', 'emoji 😀👩\u200d💻',
    'a\u00adb\u200bc \ufeff', '  many   blanks\tand tabs ', 'ΑΣ Ὀδυσσεύς',
    'x', '', '²³ ™ ℃',
]  # fmt: skip
# A run of one character has several ways to part it, of equal scores.
TIES = re.compile(r'(.)\1\1')


@functools.cache
def lines():
    """Real lines but those with ties, and nasty ones."""
    actual = [
        line
        for text in topics.topics.values()
        for line in text.splitlines()
        if line.strip() and not TIES.search(line.strip())
    ]
    return [*random.Random(0).sample(actual, 500), *NASTY]


@functools.cache
def trained(first):
    """A unigram model whose specials are these, as others train them."""
    model = io.BytesIO()
    more = {
        'xlnet': {'control_symbols': ['<cls>', '<sep>', '<pad>', '<mask>']},
        'llama': {'model_type': 'bpe', 'byte_fallback': True,
                  'normalization_rule_name': 'identity',
                  'remove_extra_whitespaces': False},
        'deberta': {'control_symbols': ['[CLS]'], 'unk_piece': '[UNK]',
                    'bos_id': -1, 'eos_piece': '[SEP]', 'pad_id': 0,
                    'pad_piece': '[PAD]', 'unk_id': 3, 'eos_id': 2},
    }  # fmt: skip
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*lines(), *NASTY]), model_writer=model,
        vocab_size=600, character_coverage=1.0, hard_vocab_limit=False,
        minloglevel=2, **{'model_type': 'unigram', **more.get(first, {})},
    )  # fmt: skip
    return model.getvalue()


def ids(tokenizer, texts):
    """Ids of ours."""
    return tokenizer.tokenize(tf.constant(texts)).to_list()


def theirs(tokenizer, texts):
    """Ids of the package tokenizers, without specials."""
    actual = tokenizer.encode_batch(texts, add_special_tokens=False)
    return [encoding.ids for encoding in actual]


def rebuilt(proto, *before):
    """The pipeline that transformers makes of a SentencePiece model."""
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    unknown = next(i for i, x in enumerate(proto.pieces) if x.type == 2)
    public = tokenizers.Tokenizer(models.Unigram(pieces, unknown, False))
    characters = proto.normalizer_spec.precompiled_charsmap
    public.normalizer = normalizers.Sequence([
        *before, normalizers.Precompiled(characters),
        normalizers.Replace(tokenizers.Regex(' {2,}'), ' '),
    ])  # fmt: skip
    public.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    return public


parsed = sentencepiece_model_pb2.ModelProto.FromString


class Case(NamedTuple):
    """A tokenizer as folders hold it.

    Attributes:
        kind: the model_type.
        files: what a folder holds, by name.
        size: tokens.
        other: what the package tokenizers makes of them.
        left_out: texts with one of these are of other ids there.
        alone: files, each of which gives the same ids without the others.
        layout: of special tokens around texts.
    """

    kind: str
    files: dict[str, Any]
    size: int
    other: Any
    left_out: str = '\0'
    alone: tuple[str, ...] = ()
    layout: str = 'bert'


def of_sentencepiece(first, name, **settings):
    """Returns a *.model of XLM-R's kind, of XLNet's or of DeBERTa's."""
    model = trained(first)
    proto, files = parsed(model), {name: model}
    if first == 'xlm-r':
        # fairseq: one more than the model's, and 3 for the unknown.
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)

        def other(texts):
            actual = processor.encode(texts)
            return [[i + 1 if i else 3 for i in row] for row in actual]

        return Case(
            'xlm-roberta', files, len(proto.pieces) + 2, other,
            alone=('tokenizer.json',), layout='roberta',
        )  # fmt: skip
    if first == 'llama':
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        return Case(
            'llama', files, len(proto.pieces),
            # transformers marks no text that begins with a blank.
            lambda texts: processor.encode(
                [x.removeprefix(' ') for x in texts]
            ),
            alone=('tokenizer.json',), layout='end',
        )  # fmt: skip
    if first == 'deberta':
        other, blanks = rebuilt(proto), tokenizers.Regex(r'\s{2,}|[\n\r\t]')
        other.normalizer = normalizers.Sequence([
            normalizers.Replace(blanks, ' '), normalizers.NFC(),
            normalizers.Strip(left=False),
        ])  # fmt: skip
        other.pre_tokenizer = pre_tokenizers.Metaspace()
        return Case(
            'deberta-v2', {**files, 'tokenizer_config.json': settings},
            len(proto.pieces) + 1, functools.partial(theirs, other),
            alone=('tokenizer.json',),
        )  # fmt: skip
    before = [normalizers.Replace(quotes, '"') for quotes in ('``', "''")]
    if not settings.get('keep_accents'):
        before += [normalizers.NFKD(), normalizers.StripAccents()]
    if settings.get('do_lower_case'):
        before.append(normalizers.Lowercase())
    public = functools.partial(theirs, rebuilt(proto, *before))
    files['tokenizer_config.json'] = settings
    # Theirs takes Hangul apart.
    return Case('xlnet', files, len(proto.pieces), public, left_out='한')


def of_pairs(kind):
    """Returns vocab.json and merges.txt."""
    names, merges = folders.PAIRS[kind]()
    index = {piece: i for i, piece in enumerate(names)}
    pairs = [tuple(merge.split()) for merge in merges]
    if kind == 'openai-gpt':
        other = tokenizers.Tokenizer(models.BPE(
            index, pairs, unk_token='<unk>', end_of_word_suffix='</w>'
        ))  # fmt: skip
        other.normalizer = normalizers.BertNormalizer()
        other.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    else:
        other = tokenizers.ByteLevelBPETokenizer(index, pairs)
    return Case(
        kind, {'vocab.json': index, 'merges.txt': '\n'.join(merges).encode()},
        len(names), functools.partial(theirs, other),
        alone=('tokenizer.json', 'vocab.json'),
        layout=ARCHITECTURES[kind].layout,
    )  # fmt: skip


def of_wordpiece(**settings):
    """Returns vocab.txt, and what BERT's class changes."""
    learned = WordPieceTokenizer.learn(lines(), 400).vocabulary
    learned = [*learned, 'É', 'é', '漢', '漢字', '##字']
    learned = list(dict.fromkeys(learned))
    other = tokenizers.BertWordPieceTokenizer(
        {piece: i for i, piece in enumerate(learned)},
        lowercase=settings.get('do_lower_case', True),
        strip_accents=settings.get('strip_accents'),
        handle_chinese_chars=settings.get('tokenize_chinese_chars', True),
    )
    held = {'vocab.txt': '\n'.join(learned).encode(),
            'tokenizer_config.json': settings}  # fmt: skip
    return Case(
        'bert', held, len(learned), functools.partial(theirs, other),
        alone=('tokenizer.json', 'vocab.txt'),
    )  # fmt: skip


CASES = {
    'xlm-r': lambda: of_sentencepiece('xlm-r', 'sentencepiece.bpe.model'),
    **{
        name: functools.partial(
            of_sentencepiece, 'xlnet', 'spiece.model', **settings
        )
        for name, settings in {
            'xlnet': {'keep_accents': True},
            'xlnet_lower': {'do_lower_case': True},
            'albert': {'do_lower_case': True,
                       'tokenizer_class': 'AlbertTokenizer'},
        }.items()
    },
    'deberta': lambda: of_sentencepiece('deberta', 'spm.model'),
    'llama': lambda: of_sentencepiece('llama', 'tokenizer.model'),
    **{
        kind: functools.partial(of_pairs, kind)
        for kind in ('roberta', 'gpt2', 'openai-gpt', 'modernbert')
    },
    'bert': of_wordpiece,
    'bert_cased': lambda: of_wordpiece(do_lower_case=False),
    'bert_accents': lambda: of_wordpiece(strip_accents=False),
    'bert_cased_bare': lambda: of_wordpiece(
        do_lower_case=False, strip_accents=True
    ),
    'bert_chinese': lambda: of_wordpiece(tokenize_chinese_chars=False),
}  # fmt: skip


class EveryTokenizerTest(parameterized.TestCase):
    """In, out, and in again, from each file that is enough."""

    @parameterized.parameters(*CASES)
    def test_ids_are_those_of_their_libraries(self, name):
        case = CASES[name]()
        folder = pathlib.Path(self.create_tempdir().full_path)
        for file, content in case.files.items():
            if isinstance(content, bytes):
                (folder / file).write_bytes(content)
            else:
                files.write_json(folder / file, content)
        texts = [*lines(), 'É é 漢字 a漢字']
        texts = [text for text in texts if case.left_out not in text]
        expected = case.other(texts)
        read = tokenizer_reader.read(folder, case.size)
        self.assertEqual(read.notes, [])

        def check(actual):
            for text, one, two in zip(texts, actual, expected, strict=True):
                self.assertEqual(one, two, text)

        check(ids(read.tokenizer, texts))
        if not case.alone:
            return
        out = folder / 'out'
        out.mkdir()
        tokenizer_writer.write(out, read.tokenizer, case.kind, 40, case.layout)
        written = tokenizers.Tokenizer.from_file(str(out / 'tokenizer.json'))
        check(theirs(written, texts))
        settings = files.read_json(out / 'tokenizer_config.json')
        for key, value in case.files.get('tokenizer_config.json', {}).items():
            self.assertEqual(settings[key], value)
        if case.kind == 'roberta':  # <s> a </s> </s> b </s>
            pair = written.encode('re', 're').ids
            self.assertEqual([pair[i] for i in (0, 2, 3, 5)], [0, 2, 2, 2])
        if case.kind == 'modernbert':  # its model takes no token_type_ids
            self.assertEqual(
                settings['model_input_names'], ['input_ids', 'attention_mask']
            )
        for path in out.glob('*.model'):
            path.unlink()
        for file in case.alone:
            again = tokenizer_reader.read(out, case.size)
            self.assertEqual(again.max_length, 40)
            check(ids(again.tokenizer, texts))
            self.assertEqual(
                again.tokenizer.special_ids, read.tokenizer.special_ids
            )
            if case.kind == 'bert':
                config = again.tokenizer.inner.config
                self.assertEqual(config, read.tokenizer.config)
            (out / file).unlink()


class SentencePieceTest(places.Folder, parameterized.TestCase):
    def test_specials_of_xlm_r(self):
        model = trained('xlm-r')
        (self.folder / 'sentencepiece.bpe.model').write_bytes(model)
        size = len(parsed(model).pieces) + 2
        actual = tokenizer_reader.read(self.folder, size).tokenizer
        specials = (actual.cls_id, actual.pad_id, actual.sep_id,
                    actual.unk_id, actual.mask_id)  # fmt: skip
        self.assertEqual(specials, (0, 1, 2, 3, size - 1))
        self.assertEqual(unigram.unshifted(actual.model), model)

    def test_what_xlnet_changes_where_nothing_is_said(self):
        """Accents and quotes, but not case."""
        (self.folder / 'spiece.model').write_bytes(trained('xlnet'))
        files.write_json(self.folder / 'tokenizer_config.json', {})
        size = len(parsed(trained('xlnet')).pieces)
        read = tokenizer_reader.read(self.folder, size)
        self.assertEqual(
            [step['type'] for step in read.tokenizer.inner.before],
            ['Replace', 'Replace', 'NFKD', 'StripAccents'],
        )

    def test_other_orders_are_refused(self):
        with refused('unigram_other_specials', '<unk>, <s>'):
            unigram.shifted(folded(), 'x')
        (self.folder / 'tokenizer.model').write_bytes(folded())
        with refused('not_byte_pairs', 'tokenizer.model'):
            tokenizer_reader.read(self.folder, 600)
        settings = {'tokenizer_class': 'GemmaTokenizer'}
        files.write_json(self.folder / 'tokenizer_config.json', settings)
        with refused('model_of_another_class', 'GemmaTokenizer'):
            tokenizer_reader.read(self.folder, 600)

    @parameterized.parameters(
        ({'normalizer': {'type': 'Prepend', 'prepend': 'x'}}, '"Prepend"'),
        ({'pre_tokenizer': {'type': 'ByteLevel'}}, 'splits by ByteLevel'),
        ({'pre_tokenizer': None}, 'does not mark words'),
        ({'model': {'type': 'WordPiece', 'vocab': {'[UNK]': 3}}}, 'Metaspace'),
        # Of older files the type shows in what the model has.
        ({'model': {'vocab': {'[UNK]': 3}}}, 'splits words by .*Metaspace'),
        *(({'model': {'type': 'WordPiece', 'vocab': {}, key: value}}, why)
          for key, value, why in (
              ('max_input_chars_per_word', 9, 'words of up to 9 characters'),
              ('continuing_subword_prefix', '@', "go on with '@'"))),
    )  # fmt: skip
    def test_ids_alone_where_text_is_read_in_other_ways(self, changed, why):
        public = folders.unigram() | changed
        files.write_json(self.folder / 'tokenizer.json', public)
        read = tokenizer_reader.read(self.folder, folders.V)
        self.assertIsInstance(read.tokenizer, Numbers)
        self.assertRegex(read.notes[0], f'{why}.*; so it takes ids alone$')


class KeysTest(places.Folder, parameterized.TestCase):
    @parameterized.parameters(
        ('model', {'type': 'WordLevel'}, 'unknown_tokenizer_model',
         "'WordLevel'", 'BPE'),
        ('post_processor', {'type': 'Odd'}, 'unknown_post_processor', "'Odd'"),
        ('post_processor', {'type': 'Sequence', 'processors': [
            {'type': 'BertProcessing', 'cls': ['<s>', 0], 'sep': ['</s>', 2]},
        ] * 2}, 'several_post_processors', '2 times'),
    )  # fmt: skip
    def test_a_file_is_refused(self, key, value, id, *values):
        public = folders.unigram() | {key: value}
        files.write_json(self.folder / 'tokenizer.json', public)
        with refused(id, *values):
            tokenizer_reader.read(self.folder, folders.V)

    def test_gaps_before_added_tokens(self):
        """Ids are the file's, in a workdir and in a folder written of it."""
        public, last = folders.unigram(), folders.V + 2
        more = {**public['added_tokens'][0], 'id': last, 'content': '[DOC]'}
        public['added_tokens'].append(more)
        files.write_json(self.folder / 'tokenizer.json', public)
        read = tokenizer_reader.read(self.folder, last + 1)
        (expected,) = ids(read.tokenizer, ['a [DOC] b'])
        self.assertEqual([expected[0], expected[-2]], [4, last])
        out = self.folder / 'out'
        out.mkdir()
        tokenizer_writer.write(out, read.tokenizer, 'bert', 40, 'roberta')
        written = tokenizers.Tokenizer.from_file(str(out / 'tokenizer.json'))
        self.assertEqual(theirs(written, ['a [DOC] b']), [expected])

    def test_what_goes_out_has_a_text(self):
        with refused('tokenizer_not_public', 'numbers'):
            tokenizer_writer.write(
                self.folder, Numbers(folders.vocabulary(), [0, 1, 2, 3, 4]),
                'bert', 9, 'bert',
            )  # fmt: skip

    def test_words_are_taken_apart(self):
        (self.folder / 'vocab.txt').write_text('\n'.join(folders.vocabulary()))
        files.write_json(
            self.folder / 'tokenizer_config.json',
            {'do_basic_tokenize': False, 'auto_map': {'x': 'y'}},
        )
        with refused('no_basic_tokenize', self.folder):
            tokenizer_reader.read(self.folder, folders.V)
        files.write_json(
            self.folder / 'tokenizer_config.json', {'auto_map': {'x': 'y'}}
        )
        read = tokenizer_reader.read(self.folder, folders.V)
        self.assertRegex(read.notes[0], 'code .*auto_map.* is not run')

    def test_every_key_of_tokenizer_config(self):
        """It is followed, named, without effect, or refused."""
        arrays = frozen.read(frozen.FOLDER / 'tokenizer_keys.npz')
        known = tokenizer_reader.KEYS
        self.assertContainsSubset(frozen.from_bytes(arrays['keys']), [*known])
        (self.folder / 'vocab.txt').write_text('\n'.join(folders.vocabulary()))
        path = self.folder / 'tokenizer_config.json'
        for key, values in known.items():
            if isinstance(values, tuple):
                files.write_json(path, {key: 'other'})
                with refused('value_not_convertible', f"{key} 'other'"):
                    tokenizer_reader.read(self.folder, folders.V)
        files.write_json(path, {'truncation_side': 'left', 'max_len': 9})
        read = tokenizer_reader.read(self.folder, folders.V)
        self.assertEqual(read.max_length, 9)
        self.assertLen([x for x in read.notes if 'truncation_side' in x], 1)


class PairsTest(places.Folder, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.names, self.merges = folders.byte_pairs()

    def write(self, names, **parts):
        """Writes a tokenizer.json, and returns the ids of its tokens."""
        index = {x: i for i, x in enumerate(names)}
        files.write_json(self.folder / 'tokenizer.json', {
            'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': False},
            'model': {'type': 'BPE', 'merges': self.merges, 'vocab': index},
            **parts,
        })  # fmt: skip
        return index

    def write_files(self, merges):
        index = {x: i for i, x in enumerate(self.names)}
        files.write_json(self.folder / 'vocab.json', index)
        (self.folder / 'merges.txt').write_text(merges)

    def test_a_longer_table_and_added_pieces(self):
        added = {'single_word': False, 'lstrip': False, 'rstrip': False,
                 'normalized': True, 'special': False}  # fmt: skip
        self.write(self.names, added_tokens=[
            {'id': 300, 'content': '  ', **added},
            {'id': 301, 'content': '|MAIL|', **added},
        ])  # fmt: skip
        read = tokenizer_reader.read(self.folder, 304)
        self.assertLen(read.tokenizer, 304)
        self.assertRegex(read.notes[0], '^2 embeddings have no token')
        self.assertLen(read.notes, 1)
        self.assertIn(300, ids(read.tokenizer, ['a   b'])[0])
        self.assertIn(301, ids(read.tokenizer, ['a |MAIL|'])[0])

    @parameterized.parameters(
        ({'eos_token': '<|im|>', 'pad_token': {'content': '<|end|>'}}, None,
         ['<|end|>', *['<|im|>'] * 4]),
        ({'eos_token': '<|im|>'}, '<|end|>', ['<|im|>'] * 5),
        ({}, '<|end|>', ['<|end|>'] * 5),
    )  # fmt: skip
    def test_ends_with_names_of_their_own(self, settings, after, specials):
        names = [x for x in self.names if x != '<|endoftext|>']
        template = [{'Sequence': {'id': 'A', 'type_id': 0}}]
        pair = [*template, {'Sequence': {'id': 'B', 'type_id': 0}}]
        special = [{'SpecialToken': {'id': after, 'type_id': 0}}] * bool(after)
        index = self.write(
            [*names, '<|end|>', '<|im|>'], added_tokens=[],
            post_processor={
                'type': 'TemplateProcessing',
                'single': template + special, 'pair': pair + special,
                'special_tokens': {after: {'ids': [len(names)]}},
            },
        )  # fmt: skip
        files.write_json(self.folder / 'tokenizer_config.json', settings)
        read = tokenizer_reader.read(self.folder, len(index))
        actual = read.tokenizer
        self.assertEqual(
            [actual.vocabulary[i] for i in actual.special_ids], specials
        )
        # A workdir keeps the names.
        actual.write(self.folder / 'kept.json')
        options = actual.config.options
        options.pop('added', None)
        again = BytePairs.read(self.folder / 'kept.json', **options)
        self.assertEqual(again.special_ids, actual.special_ids)
        self.assertIn(specials[1], again.identity)
        self.assertEqual(ids(again, ['the file']), ids(actual, ['the file']))

    def test_merges_that_are_missing_or_of_others(self):
        self.write_files('h e\nhe llo\n')
        with self.assertRaisesRegex(ValueError, "merge 2 of 2, 'he llo'"):
            tokenizer_reader.read(self.folder, 300)
        (self.folder / 'merges.txt').unlink()
        with self.assertRaisesRegex(FileNotFoundError, 'but no merges.txt'):
            tokenizer_reader.read(self.folder, 300)

    def test_a_token_before_texts_that_has_no_embedding(self):
        self.write_files('\n'.join(self.merges))
        size = len(self.names)
        files.write_json(self.folder / 'tokenizer_config.json', {
            'tokenizer_class': 'GPT2Tokenizer', 'add_bos_token': True,
            'bos_token': '<new>',
        })  # fmt: skip
        with refused('end_without_embedding', 'bos_token', '<new>'):
            tokenizer_reader.read(self.folder, size)
        path = self.folder / 'tokenizer_config.json'
        folders.change(path, bos_token={'content': '<new>'})
        read = tokenizer_reader.read(self.folder, size + 1)
        new = read.tokenizer.vocabulary.index('<new>')
        self.assertEqual(read.post_processor.one, ((new, 0), ('A', 0)))


def folded():
    """A model whose first pieces are others."""
    proto = parsed(trained('xlm-r'))
    proto.pieces[1].piece = '<cls>'
    return proto.SerializeToString()
