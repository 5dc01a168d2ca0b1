"""Tokenizers of other people's folders: equal ids, and back again."""

import functools
import io
import json
import pathlib
import random
import re
from pydoc_data import topics
from unittest import mock

import sentencepiece
import tensorflow as tf
import tokenizers
from absl.testing import absltest, parameterized
from sentencepiece import sentencepiece_model_pb2
from tokenizers import models, normalizers, pre_tokenizers

from infoword_tf import files
from infoword_tf.text.wordpiece import WordPieceTokenizer
from infoword_tf.weights import (
    characters,
    tokenizer_reader,
    tokenizer_writer,
    unigram,
)
from infoword_tf.weights.architectures import ARCHITECTURES
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
    more = {'control_symbols': ['<cls>', '<sep>', '<pad>', '<mask>']}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*lines(), *NASTY]),
        model_writer=model,
        model_type='unigram',
        vocab_size=600,
        character_coverage=1.0,
        hard_vocab_limit=False,
        minloglevel=2,
        **(more if first == 'xlnet' else {}),
    )
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
    public = tokenizers.Tokenizer(
        models.Unigram(
            [(piece.piece, piece.score) for piece in proto.pieces],
            next(i for i, p in enumerate(proto.pieces) if p.type == 2),
            False,
        )
    )
    public.normalizer = normalizers.Sequence(
        [
            *before,
            normalizers.Precompiled(
                proto.normalizer_spec.precompiled_charsmap
            ),
            normalizers.Replace(tokenizers.Regex(' {2,}'), ' '),
        ]
    )
    public.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    return public


def parsed(model):
    """Its ModelProto."""
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    return proto


class SentencePieceTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def test_ids_of_xlm_r_are_shifted(self):
        model = trained('xlm-r')
        path = self.folder / 'sentencepiece.bpe.model'
        path.write_bytes(model)
        proto = parsed(model)
        size = len(proto.pieces) + 2
        actual = tokenizer_reader.read(self.folder, size).tokenizer
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        for text, row in zip(
            lines(), ids(actual, lines()), strict=True
        ):
            # fairseq: one more than the model's, and 3 for the unknown.
            expected = [i + 1 if i else 3 for i in processor.encode(text)]
            self.assertEqual(row, expected, text)
        self.assertEqual(
            (actual.cls_id, actual.pad_id, actual.sep_id, actual.unk_id,
             actual.mask_id),
            (0, 1, 2, 3, size - 1),
        )  # fmt: skip
        self.assertEqual(unigram.unshifted(actual.model), model)

    def test_what_goes_out_gives_the_same_ids(self):
        (self.folder / 'sentencepiece.bpe.model').write_bytes(trained('xlm-r'))
        size = len(parsed(trained('xlm-r')).pieces) + 2
        read = tokenizer_reader.read(self.folder, size)
        out = self.folder / 'out'
        out.mkdir()
        tokenizer_writer.write(
            out, read.tokenizer, 'xlm-roberta', 40, 'roberta'
        )
        other = tokenizers.Tokenizer.from_file(str(out / 'tokenizer.json'))
        self.assertEqual(
            theirs(other, lines()), ids(read.tokenizer, lines())
        )
        # And in again, from tokenizer.json alone.
        (out / 'sentencepiece.bpe.model').unlink()
        again = tokenizer_reader.read(out, size)
        self.assertEqual(again.max_length, 40)
        self.assertEqual(
            ids(again.tokenizer, lines()), ids(read.tokenizer, lines())
        )

    def test_what_xlnet_changes_where_nothing_is_said(self):
        """Accents and quotes; a table of all characters takes seconds."""
        (self.folder / 'spiece.model').write_bytes(trained('xlnet'))
        files.write_json(self.folder / 'tokenizer_config.json', {})
        size = len(parsed(trained('xlnet')).pieces)
        with (
            mock.patch.object(
                characters, 'table', side_effect=InterruptedError
            ) as table,
            self.assertRaises(InterruptedError),
        ):
            tokenizer_reader.read(self.folder, size)
        self.assertEqual(
            table.call_args.kwargs,
            {'strip_accents': True, 'lower_case': False, 'quotes': True},
        )

    @parameterized.parameters({'do_lower_case': True}, {'keep_accents': True})
    def test_xlnet_changes_text_first(self, **settings):
        model = trained('xlnet')
        (self.folder / 'spiece.model').write_bytes(model)
        files.write_json(self.folder / 'tokenizer_config.json', settings)
        proto = parsed(model)
        actual = tokenizer_reader.read(self.folder, len(proto.pieces)).tokenizer
        before = [
            normalizers.Replace(quotes, '"') for quotes in ('``', "''")
        ]
        if not settings.get('keep_accents'):
            before += [normalizers.NFKD(), normalizers.StripAccents()]
        if settings.get('do_lower_case'):
            before.append(normalizers.Lowercase())
        other = rebuilt(proto, *before)
        # Theirs takes Hangul apart.
        texts = [text for text in lines() if '한' not in text]
        for text, row, expected in zip(
            texts, ids(actual, texts), theirs(other, texts), strict=True
        ):
            self.assertEqual(row, expected, text)

    def test_other_orders_are_refused(self):
        with self.assertRaisesRegex(ValueError, 'not with <unk>, <s> and'):
            unigram.shifted(folded(), 'x')

    def test_what_cannot_be_kept(self):
        public = folders.unigram()
        public['normalizer'] = {'type': 'NFD'}
        files.write_json(self.folder / 'tokenizer.json', public)
        with self.assertRaisesRegex(ValueError, 'normalises by NFD'):
            tokenizer_reader.read(self.folder, folders.V)
        public['normalizer'] = None
        public['pre_tokenizer'] = {'type': 'ByteLevel'}
        files.write_json(self.folder / 'tokenizer.json', public)
        with self.assertRaisesRegex(ValueError, 'splits by ByteLevel'):
            tokenizer_reader.read(self.folder, folders.V)
        public['pre_tokenizer'] = None
        files.write_json(self.folder / 'tokenizer.json', public)
        with self.assertRaisesRegex(ValueError, 'does not mark words'):
            tokenizer_reader.read(self.folder, folders.V)
        files.write_json(self.folder / 'tokenizer.json', folders.unigram())
        with self.assertRaisesRegex(ValueError, '60 tokens.*59 embeddings'):
            tokenizer_reader.read(self.folder, folders.V - 1)


class PairsTest(parameterized.TestCase):
    @parameterized.parameters('roberta', 'gpt2', 'openai-gpt', 'modernbert')
    def test_in_and_out(self, kind):
        """From vocab.json and merges.txt, and from tokenizer.json alone."""
        folder = pathlib.Path(self.create_tempdir().full_path)
        names, merges = folders.PAIRS[kind]()
        index = {piece: i for i, piece in enumerate(names)}
        files.write_json(folder / 'vocab.json', index)
        (folder / 'merges.txt').write_text('\n'.join(merges))
        read = tokenizer_reader.read(folder, len(names))
        self.assertEqual(read.notes, [])
        if kind == 'openai-gpt':
            other = tokenizers.Tokenizer(
                models.BPE(
                    index,
                    [tuple(merge.split()) for merge in merges],
                    unk_token='<unk>',
                    end_of_word_suffix='</w>',
                )
            )
            other.normalizer = normalizers.BertNormalizer()
            other.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        else:
            other = tokenizers.ByteLevelBPETokenizer(
                str(folder / 'vocab.json'), str(folder / 'merges.txt')
            )
        expected = theirs(other, lines())
        self.assertEqual(ids(read.tokenizer, lines()), expected)
        out = folder / 'out'
        out.mkdir()
        layout = ARCHITECTURES[kind].layout
        tokenizer_writer.write(out, read.tokenizer, kind, 40, layout)
        written = tokenizers.Tokenizer.from_file(str(out / 'tokenizer.json'))
        self.assertEqual(theirs(written, lines()), expected)
        if kind == 'roberta':  # <s> a </s> </s> b </s>
            pair = written.encode('re', 're').ids
            self.assertEqual([pair[i] for i in (0, 2, 3, 5)], [0, 2, 2, 2])
        if kind == 'modernbert':  # its model takes no token_type_ids
            settings = files.read_json(out / 'tokenizer_config.json')
            self.assertEqual(
                settings['model_input_names'], ['input_ids', 'attention_mask']
            )
        for name in 'tokenizer.json', 'vocab.json':
            again = tokenizer_reader.read(out, len(names))
            self.assertEqual(again.max_length, 40)
            self.assertEqual(ids(again.tokenizer, lines()), expected)
            self.assertEqual(
                again.tokenizer.special_ids, read.tokenizer.special_ids
            )
            (out / name).unlink()

    def test_a_longer_table_and_added_pieces(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        names, merges = folders.byte_pairs()
        added = {'single_word': False, 'lstrip': False, 'rstrip': False,
                 'normalized': True, 'special': False}  # fmt: skip
        files.write_json(folder / 'tokenizer.json', {
            'added_tokens': [{'id': 300, 'content': '  ', **added},
                             {'id': 301, 'content': '|MAIL|', **added}],
            'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': False},
            'model': {
                'type': 'BPE', 'merges': merges,
                'vocab': {piece: i for i, piece in enumerate(names)},
            },
        })  # fmt: skip
        read = tokenizer_reader.read(folder, 304)
        self.assertLen(read.tokenizer, 304)
        self.assertRegex(read.notes[0], '^2 embeddings have no token')
        self.assertLen(read.notes, 1)
        self.assertIn(300, ids(read.tokenizer, ['a   b'])[0])
        self.assertIn(301, ids(read.tokenizer, ['a |MAIL|'])[0])

    def test_merges_that_are_missing_or_of_others(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        names, _ = folders.byte_pairs()
        index = {piece: i for i, piece in enumerate(names)}
        files.write_json(folder / 'vocab.json', index)
        with self.assertRaisesRegex(FileNotFoundError, 'but no merges.txt'):
            tokenizer_reader.read(folder, 300)
        (folder / 'merges.txt').write_text('h e\nhe llo\n')
        with self.assertRaisesRegex(ValueError, "merge 2 of 2, 'he llo'"):
            tokenizer_reader.read(folder, 300)


def folded():
    """A model whose first pieces are others."""
    proto = parsed(trained('xlm-r'))
    proto.pieces[1].piece = '<cls>'
    return proto.SerializeToString()


class WordPieceTest(parameterized.TestCase):
    @parameterized.parameters(
        {},
        {'do_lower_case': False},
        {'strip_accents': False},
        {'do_lower_case': False, 'strip_accents': True},
        {'tokenize_chinese_chars': False},
    )
    def test_options_come_along_and_go_out(self, **settings):
        folder = pathlib.Path(self.create_tempdir().full_path)
        learned = WordPieceTokenizer.learn(lines(), 400).vocabulary
        learned = [*learned, 'É', 'é', '漢', '漢字', '##字']
        learned = list(dict.fromkeys(learned))
        (folder / 'vocab.txt').write_text('\n'.join(learned))
        files.write_json(folder / 'tokenizer_config.json', settings)
        read = tokenizer_reader.read(folder, len(learned))
        other = tokenizers.BertWordPieceTokenizer(
            str(folder / 'vocab.txt'),
            lowercase=settings.get('do_lower_case', True),
            strip_accents=settings.get('strip_accents'),
            handle_chinese_chars=settings.get('tokenize_chinese_chars', True),
        )
        texts = [*lines(), 'É é 漢字 a漢字']
        self.assertEqual(
            ids(read.tokenizer, texts), theirs(other, texts)
        )
        out = folder / 'out'
        out.mkdir()
        tokenizer_writer.write(out, read.tokenizer, 'bert', 64, 'bert')
        written = json.loads((out / 'tokenizer_config.json').read_text())
        for name, value in settings.items():
            self.assertEqual(written[name], value)
        again = tokenizer_reader.read(out, len(learned))
        self.assertEqual(ids(again.tokenizer, texts), theirs(other, texts))
        (out / 'tokenizer.json').unlink()
        again = tokenizer_reader.read(out, len(learned))
        self.assertEqual(ids(again.tokenizer, texts), theirs(other, texts))
        self.assertEqual(again.tokenizer.inner.config, read.tokenizer.config)



if __name__ == '__main__':
    absltest.main()
