"""Tokens that folders have beside their vocabulary, beside `tokenizers`."""

import dataclasses
import functools
import io
import itertools
import random

import numpy as np
import sentencepiece
import tensorflow as tf
import tokenizers
from absl.testing import parameterized
from sentencepiece import sentencepiece_model_pb2
from tokenizers import (
    AddedToken,
    Regex,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

import infoword_tf
from export import litert, serving_ops
from infoword_tf import convert, files
from infoword_tf.config import EncoderConfig, Layout
from infoword_tf.inference import blanks
from infoword_tf.text import added as subject
from infoword_tf.text import characters
from infoword_tf.text.layout import layout_of
from infoword_tf.text.template import Template
from infoword_tf.text.wordpiece import WordPieceTokenizer
from infoword_tf.weights import (
    post_processors,
    tokenizer_reader,
    tokenizer_writer,
)
from tests import places
from tests.eager import eagerly
from tests.oracles import public_folders
from tests.refused import refused
from tests.text.learned import encoded
from tests.weights import folders

SPECIALS = folders.SPECIALS
LETTERS = 'abcdehlorstuwx0123456789<>[]_-'
WORDS = public_folders.TOKENS
ADDED = ['[DOC]', '[DOC]x', '<user>', '<us', 'lone', '東京', '<Éa>', ' x ']
BITS = [
    *ADDED, *SPECIALS, '<mask>', '<USER>', 'LONE', 'hello', 'world', 'a', 'x',
    '_', '-', '<', ']', '1', ' ', ' ', '  ', '\t', '\n', '\u00a0', '\u3000',
    'é', 'e\u0301', '\u0301', '²', 'ﬁ', '京', '\x00', '\u200b',
]  # fmt: skip


def texts(seed, count=200):
    """Added tokens, glued to all that may stand beside them."""
    draw = random.Random(seed)
    return [
        ''.join(draw.choice(BITS) for _ in range(draw.randint(0, 9)))
        for _ in range(count)
    ]


def added(seed):
    """Tokens of all flags."""
    draw = random.Random(seed)
    names = 'single_word', 'lstrip', 'rstrip', 'normalized', 'special'
    return [
        AddedToken(word, **{name: draw.random() < 0.4 for name in names})
        for word in ADDED
    ]


def wordpiece(lower_case=True):
    """BERT's, with nothing around a text."""
    return public_folders.word_piece(around='', lowercase=lower_case)


def byte_pairs(prefix=False, normalizer=None, trims=True):
    """RoBERTa's, with nothing around a text."""
    public = public_folders.byte_pairs(
        around='bytes', prefix=prefix, trims=trims
    )
    public.normalizer = normalizer
    return public


def character_pairs():
    """GPT's."""
    names = ['<unk>', '<s>', *LETTERS, *(f'{c}</w>' for c in LETTERS), 'he']
    index = {piece: i for i, piece in enumerate(names)}
    public = tokenizers.Tokenizer(models.BPE(
        index, [('h', 'e')], unk_token='<unk>', end_of_word_suffix='</w>'
    ))  # fmt: skip
    public.normalizer = normalizers.BertNormalizer()
    public.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    public.add_special_tokens(['<unk>'])
    return public


@functools.cache
def charsmap():
    """The table of characters that SentencePiece has, NFKC."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(['a b c d e f']), model_writer=model,
        vocab_size=12, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    return normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)


def unigram(normalizer=None, white=True, scheme='always', split=True,
            mark=True):  # fmt: skip
    """XLM-R's; without a `mark` of its own blanks in a row are unknown."""
    names = [('<s>', 0.0), ('<pad>', 0.0), ('</s>', 0.0), ('<unk>', 0.0)]
    names += [('\u2581', -1.5)] * mark
    for i, c in enumerate(LETTERS):
        names += [(f'\u2581{c}', -2 - i / 50), (c, -3 - i / 50)]
    names += [('hello', -2.5), ('lo\u2581w', -2.0), ('<mask>', 0.0)]
    public = tokenizers.Tokenizer(models.Unigram(names, 3, False))
    if normalizer is not None:
        public.normalizer = normalizer
    marks = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    public.pre_tokenizer = marks
    if white:
        public.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), marks]
        )
    public.add_special_tokens(
        ['<s>', '<pad>', '</s>', '<unk>', AddedToken('<mask>', lstrip=True)]
    )
    return public


def modern():
    """Returns what transformers makes of a *.model since 4.40."""
    return normalizers.Sequence([
        charsmap(), normalizers.Strip(left=False, right=True),
        normalizers.Replace(Regex(' {2,}'), '\u2581'),
    ])  # fmt: skip


KINDS = {
    'wordpiece': wordpiece,
    'cased': lambda: wordpiece(False),
    'bytes': byte_pairs,
    'folded': lambda: byte_pairs(True, normalizers.Lowercase(), False),
    'characters': character_pairs,
    'xlm-r': lambda: unigram(charsmap()),
    'modern': lambda: unigram(modern(), False),
    **{
        name: functools.partial(public_folders.byte_pairs, split=name)
        for name in ('llama_3', 'qwen')
    },
    **{
        name: functools.partial(public_folders.marked_pairs, name)
        for name in ('gemma', 'first')
    },
    **{
        f'bare-{white}-{scheme}': functools.partial(
            unigram, None, white, scheme, scheme != 'first', scheme == 'first'
        )
        for white, scheme in itertools.product(
            (True, False), ('always', 'first', 'never')
        )
    },
}


class AddedTest(places.Folder, parameterized.TestCase):
    def read(self, public, size=None, config=None, **settings):
        """Returns what `pieces` reads of a folder."""
        public.save(str(self.folder / 'tokenizer.json'))
        files.write_json(self.folder / 'tokenizer_config.json', settings)
        return tokenizer_reader.read(
            self.folder, size or public.get_vocab_size(), config
        )

    @parameterized.parameters(*KINDS)
    def test_ids(self, kind):
        """Blanks too, of Unigrams without a table of characters."""
        public = KINDS[kind]()
        public.add_tokens(added(1))
        tokenizer = self.read(public).tokenizer
        strings = texts(1)
        if kind in ('xlm-r', 'modern'):
            # SentencePiece keeps it before blanks.
            strings = [text.replace('\u200b', '') for text in strings]
        theirs = public.encode_batch(strings, add_special_tokens=False)
        expected = [x.ids for x in theirs]
        actual, starts, ends = tokenizer.tokenize_with_offsets(strings)
        for text, a, b in zip(strings, actual.to_list(), expected, strict=True):
            self.assertEqual(a, b, repr(text))
        self.assertEqual(tokenizer.tokenize(strings).to_list(), expected)
        self.assertTrue(np.all(starts.values <= ends.values))
        # Where nobody spells a token, nothing is different.
        plain = ['hello  world', ' a-b 1 ', '']
        for one, other in zip(
            tokenizer.tokenize_with_offsets(plain),
            tokenizer.inner.tokenize_with_offsets(plain), strict=True,
        ):  # fmt: skip
            self.assertEqual(one.to_list(), other.to_list())
        # And out again.
        out = self.folder / 'out'
        out.mkdir()
        tokenizer_writer.write(out, tokenizer, 'bert', 64, 'bert')
        public = tokenizers.Tokenizer.from_file(str(out / 'tokenizer.json'))
        theirs = public.encode_batch(strings, add_special_tokens=False)
        self.assertEqual([x.ids for x in theirs], expected)

    @parameterized.parameters('wordpiece', 'cased')
    def test_places(self, kind):
        public = KINDS[kind]()
        # A token that takes blanks may overlap the next one there.
        public.add_tokens([
            AddedToken('[DOC]', lstrip=True, normalized=False), '<user>', 'Éa',
        ])  # fmt: skip
        tokenizer = self.read(public).tokenizer
        strings = ['é\u0301東京 [DOC]<USER> éa', 'Éa  hello [SEP]',
                   '\x00<user>a']  # fmt: skip
        for _, _, actual, _, expected in encoded(tokenizer, public, strings):
            np.testing.assert_array_equal(actual, expected)

    @parameterized.parameters(False, True)
    def test_offsets_have_blanks_where_the_folder_says_so(self, trims):
        public = byte_pairs(trims=trims)
        tokenizer = self.read(public).tokenizer
        text = 'or the  file\tis'
        _, starts, ends = tokenizer.tokenize_with_offsets([text])
        offsets = public.encode(text).offsets
        self.assertEqual(
            list(zip(starts[0].numpy(), ends[0].numpy(), strict=True)), offsets
        )
        # The class of RoBERTa has it from the settings.
        other = self.read(
            public, tokenizer_class='RobertaTokenizer', trim_offsets=not trims
        )
        other = other.tokenizer.tokenize_with_offsets([text])
        self.assertIn(2 if trims else 3, other[1][0])
        begins = [begin for begin, _ in offsets]
        self.assertIn(3 if trims else 2, begins)  # of ' the'
        self.assertNotIn(2 if trims else 3, begins)
        _, starts, _ = characters.read(tokenizer, tf.constant([text]))
        self.assertIn(3, starts[0])  # what people are shown begins no blank
        self.assertNotIn(2, starts[0])

    def test_training_text_has_no_ends(self):
        """[SEP] in a text that is trained on would end it."""
        public = wordpiece()
        public.add_tokens(['[DOC]'])
        tokenizer = self.read(public).tokenizer
        number = public.token_to_id('[DOC]')
        actual = tokenizer.tokenize_flat([b'[doc] [SEP] hello', b'hello[MASK]'])
        self.assertIn(number, actual.ids)
        self.assertNoCommonElements(actual.ids.tolist(), [0, 2, 3, 4])
        self.assertTrue(actual.word_starts[0])
        self.assertTrue(actual.word_starts[1])
        self.assertEqual(tokenizer.detokenize([number, 5]), '[DOC] a')
        self.assertNotIn(number, tokenizer.control_ids)
        self.assertEqual(tokenizer.vocabulary[number], '[DOC]')

    def test_masks(self):
        """Ours and the folder's, of the same id."""
        tokenizer = self.read(byte_pairs()).tokenizer
        actual = blanks.with_masks(
            tokenizer, tf.constant(['the [MASK].', 'the <mask>.'])
        )
        self.assertEqual(actual[0].numpy().tolist(), actual[1].numpy().tolist())
        self.assertIn(tokenizer.mask_id, actual[0])

    def test_in_a_graph_that_servers_load(self):
        public = unigram(charsmap())
        public.add_tokens(added(2)[:3])
        tokenizer = self.read(public).tokenizer
        module = tf.Module()
        module.tokenizer = tokenizer
        module.ids = tf.function(
            lambda x: tokenizer.tokenize_with_offsets(x)[1].to_tensor(),
            input_signature=[tf.TensorSpec([None], tf.string)],
        )
        tf.saved_model.save(module, str(self.folder / 'saved'))
        self.assertEqual(serving_ops.unservable(self.folder / 'saved'), [])
        again = tf.saved_model.load(str(self.folder / 'saved'))
        np.testing.assert_array_equal(
            again.ids(texts(2)), module.ids(tf.constant(texts(2)))
        )

    def test_beside_litert(self):
        public = wordpiece()
        public.add_tokens(added(3))
        litert.write_tokenizer(self.folder, self.read(public).tokenizer)
        alone = litert.standalone.read_tokenizer(self.folder)
        for text in texts(3):
            expected = public.encode(text).ids
            self.assertEqual(alone.ids(text), expected, repr(text))

    # ------------------------------------------------- files of a folder

    def test_files_that_name_tokens(self):
        """added_tokens.json, added_tokens_decoder and lists of specials."""
        names = [*WORDS, '', 'hello', 'last']
        text = '\ufeff' + '\r\n'.join(names)
        (self.folder / 'vocab.txt').write_bytes(text.encode())
        last = len(names)
        files.write_json(self.folder / 'added_tokens.json', {'[ADD]': last})
        files.write_json(self.folder / 'tokenizer_config.json', {
            'additional_special_tokens': ['[NEW]', '[FAR]'],
        })  # fmt: skip
        bert = {'model_type': 'bert'}
        read = tokenizer_reader.read(self.folder, last + 2, bert)
        expected = [[last], [last - 2, last - 1], [last + 1], [3]]
        strings = ['[add]', 'hello last', '[NEW]', '[SEP]']
        # What a list of special tokens names is one, a number alone is not.
        tokens = read.tokenizer.options['added']
        special = {x['content']: x['special'] for x in tokens}
        self.assertEqual((special['[NEW]'], special['[ADD]']), (True, False))
        # A token that is there twice has its last id.
        self.assertEqual(read.tokenizer.tokenize(strings).to_list(), expected)
        self.assertRegex(
            ' '.join(read.notes), r"the added token '\[FAR\]' has no embedding"
        )
        files.write_json(self.folder / 'tokenizer_config.json', {
            'added_tokens_decoder': {
                str(last): {'content': '[add]', 'special': False},
            },
        })  # fmt: skip
        read = tokenizer_reader.read(self.folder, last + 1, bert)
        (ids,) = read.tokenizer.tokenize(strings[:1]).to_list()
        self.assertEqual(ids, [last])

    def test_fewer_tokens_than_embeddings(self):
        public = unigram(charsmap())
        read = self.read(public, public.get_vocab_size() + 35)
        self.assertLen(read.tokenizer, public.get_vocab_size() + 35)
        note = '35 embeddings have no token of the vocabulary'
        self.assertEqual(read.notes, [note])
        (ids,) = read.tokenizer.tokenize(['hello a']).to_list()
        self.assertEqual(ids, public.encode('hello a').ids)

    @parameterized.parameters(
        # As transformers 5 has it: (settings, class of the model, cased?)
        ({'do_lower_case': False}, 'bert', True),
        ({}, 'bert', False),
        ({'do_lower_case': False, 'tokenizer_class': 'BertTokenizerFast'},
         'electra', True),
        ({'do_lower_case': False, 'tokenizer_class':
          'PreTrainedTokenizerFast'}, 'bert', False),
    )  # fmt: skip
    def test_case_is_what_the_class_says(self, settings, kind, cased):
        public = wordpiece()
        read = self.read(public, config={'model_type': kind}, **settings)
        self.assertEqual(read.tokenizer.lower_case, not cased)
        (ids,) = read.tokenizer.tokenize(['Hello']).to_list()
        self.assertEqual(ids, [WORDS.index('Hello' if cased else 'hello')])
        self.assertEqual(bool(read.notes), cased)
        for note in read.notes:
            self.assertStartsWith(note, 'lowercase False, as tokenizer_con')

    def test_a_blank_before_a_text(self):
        public = byte_pairs()
        read = self.read(
            public, config={'model_type': 'roberta'}, add_prefix_space=True
        )
        (ids,) = read.tokenizer.tokenize(['the']).to_list()
        expected = public.encode(' the', add_special_tokens=False).ids
        self.assertEqual(ids, expected)

    @parameterized.parameters((True, '\u2581hello'), (False, 'hello'))
    def test_what_follows_a_token_is_marked_by_older_llamas(self, legacy, last):
        token = '[DOC]', {'special': True, 'normalized': False}
        public = public_folders.marked_pairs('gemma', [token])
        tokenizer = self.read(
            public, tokenizer_class='LlamaTokenizer', legacy=legacy
        ).tokenizer
        (ids,) = tokenizer.tokenize(['hello[DOC]hello']).to_list()
        spelled = [tokenizer.vocabulary[i] for i in ids]
        self.assertEqual(spelled, ['\u2581hello', '[DOC]', last])

    def test_identity(self):
        inner = WordPieceTokenizer(WORDS)
        token = subject.AddedToken('lone', 7)
        names = [field.name for field in dataclasses.fields(token)]
        values = 'far', 8, True, True, True, True, False
        others = [
            dataclasses.replace(token, **{name: value})
            for name, value in zip(names, values, strict=True)
        ]
        every = [[token], *([other] for other in others), [token, others[0]]]
        every = {subject.WithAdded(inner, x).identity for x in every}
        self.assertLen(every | {inner.identity}, 10)


# (single, pair of a template) -> the layout for an encoder of segments, or
# what is said against it.
CLS, SEP = '[CLS]', '[SEP]'
TEMPLATES = {
    'bert': (f'{CLS} $A {SEP}', f'{CLS} $A {SEP} $B:1 {SEP}:1'),
    'roberta': (f'{CLS} $A {SEP}', f'{CLS} $A {SEP} {SEP} $B {SEP}'),
    'none': ('$A', '$A $B:1'),
    'single': (f'{CLS} $A {SEP}', '$A $B:1'),
    'prompt': ('[CLS] [DOC] $A', '[CLS] [DOC] $A [SEP] $B:1 [SEP]:0'),
    'odd': (f'{CLS}:1 $A {SEP}', f'{CLS}:1 $A {SEP} $B'),
    'swapped': (f'{CLS} $A', f'{CLS} $B $A'),
}


class AroundTest(places.Folder, parameterized.TestCase):
    def read(self, public, processor, **settings):
        """The folder's tokenizer, and the layout of an encoder's segments."""
        public.post_processor = processor
        public.save(str(self.folder / 'tokenizer.json'))
        files.write_json(self.folder / 'tokenizer_config.json', settings)
        read = tokenizer_reader.read(self.folder, public.get_vocab_size())

        def layout(segments=2):
            encoder = EncoderConfig('transformer', {'segments': segments})
            return post_processors.layout_for(
                read.post_processor, read.tokenizer, 'bert', encoder, 'x'
            )

        return read, layout

    @parameterized.product(name=list(TEMPLATES), segments=(2, 1))
    def test_templates(self, name, segments):
        public = wordpiece()
        public.add_tokens(['[DOC]'])
        single, pair = TEMPLATES[name]
        read, give = self.read(public, processors.TemplateProcessing(
            single=single, pair=pair,
            special_tokens=[('[CLS]', 2), ('[SEP]', 3),
                            ('[DOC]', public.token_to_id('[DOC]'))],
        ))  # fmt: skip
        bad = {'swapped': 'texts', 'odd': 'segments' if segments == 2 else None}
        if bad.get(name):
            with refused(f'post_processor_{bad[name]}', 'x '):
                give(segments)
            return
        layout = give(segments)
        if name in ('bert', 'roberta'):
            self.assertEqual(layout, name)
        else:
            self.assertIsInstance(layout, Layout)
        template = Template(read.tokenizer, layout_of(layout))
        for pairs in (), ('world hello',):
            theirs = public.encode('hello', *pairs)
            second = tf.constant(pairs) if pairs else None
            ids, lengths, second = template.format(
                tf.constant(['hello']), second, 16
            )
            size = int(lengths[0])
            self.assertEqual(ids[0, :size].numpy().tolist(), theirs.ids)
            if segments == 2:
                actual = infoword_tf.inference.states.segments_of(
                    layout_of(layout), ids, lengths, second
                )
                actual = np.zeros(16) if actual is None else actual[0].numpy()
                self.assertEqual(actual[:size].tolist(), theirs.type_ids)
        # And the same goes out.
        before = public.encode('hello', 'world').ids
        public.post_processor = post_processors.write(layout, read.tokenizer)
        self.assertEqual(public.encode('hello', 'world').ids, before)

    @parameterized.parameters(
        (processors.BertProcessing(('[SEP]', 3), ('[CLS]', 2)), 'bert'),
        (processors.RobertaProcessing(('[SEP]', 3), ('[CLS]', 2)), 'roberta'),
        (processors.Sequence([
            processors.ByteLevel(),
            processors.BertProcessing(('[SEP]', 3), ('[CLS]', 2)),
        ]), 'bert'),
    )  # fmt: skip
    def test_processors(self, processor, name):
        _, layout = self.read(wordpiece(), processor)
        self.assertEqual(layout(), name)

    def test_nothing_stands_around(self):
        for described in None, {'type': 'ByteLevel'}:
            actual = post_processors.read(described, 'x')
            self.assertEqual(actual, ((('A', 0),), (('A', 0), ('B', 1))))

    @parameterized.parameters(
        ('BertTokenizer', 1), ('DebertaV2Tokenizer', 1),
        ('AlbertTokenizer', 0), ('XLMRobertaTokenizer', 0),
    )  # fmt: skip
    def test_classes_that_give_a_second_segment(self, name, segment):
        processor = processors.BertProcessing(('[SEP]', 3), ('[CLS]', 2))
        read, _ = self.read(wordpiece(), processor, tokenizer_class=name)
        self.assertEqual(
            [x for _, x in read.post_processor.two], [0] * 3 + [segment] * 2
        )

    def test_gpt_2_has_nothing_around_a_text(self):
        """Until its tokenizer says so; texts without a token have vectors."""
        root = self.folder
        source = folders.write(root / 'source', 'gpt2')
        convert.convert(source, root / 'workdir')
        loaded = infoword_tf.load(root / 'workdir')
        self.assertEqual((loaded.before, loaded.after), ([], []))
        (expected,) = loaded.tokenizer.tokenize(['a file']).to_list()
        ids, lengths, _ = loaded.format_texts(tf.constant(['a file']))
        self.assertEqual(ids[0, : int(lengths[0])].numpy().tolist(), expected)
        with eagerly():
            vectors = loaded.encode(['', 'a file'], progress=False)
        self.assertTrue(np.isfinite(vectors).all())
        folders.change(source / 'tokenizer_config.json', add_eos_token=True)
        convert.convert(source, root / 'ended')
        end = loaded.tokenizer.vocabulary.index('<|endoftext|>')
        self.assertEqual(infoword_tf.load(root / 'ended').after, [end])
