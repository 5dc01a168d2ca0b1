"""Strings to vectors, and tokens for blanks, through a workdir."""

import functools
import itertools
import json
import pathlib
import re
import shutil
import warnings
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import absltest, parameterized

import infoword_tf
from infoword_tf import checkpoint, commands, files
from infoword_tf.choices import RunChoices
from infoword_tf.config import EncoderConfig, Layout, RowConfig
from infoword_tf.encoders import Inputs
from infoword_tf.inference import batches
from infoword_tf.inference.loaded import Loaded
from infoword_tf.model import Model
from infoword_tf.resolve import ModelChoices, resolve
from infoword_tf.text import wordpiece
from infoword_tf.text.tokenizer import SPECIALS, write_vocabulary
from infoword_tf.text.wordpiece import WordPieceTokenizer
from tests import corpus, places, zoo
from tests.eager import eagerly
from tests.refused import refused

ROOT = pathlib.Path(__file__).parent.parent.parent

STEP = 7  # of the weights
SENTENCES = [
    'The with statement is used to wrap a block.',
    '',
    'Names refer to objects. Names are introduced by name binding.',
    'x',
    'A list. ' * 40,
    'naïve café 🙂 \u05e9\u05dc\u05d5\u05dd',
]


# What is given for a text, the error, and what it says.
NO_TEXT = (
    (None, TypeError, 'is None, and no string: give a str'),
    (float('nan'), TypeError, r'is nan \(float\), and no string'),
    (2, TypeError, r'is 2 \(int\), and no string'),
    (['a', 'b'], TypeError, r"is \['a', 'b'\] \(list\), and no string"),
    ('a \ud83c', ValueError, r"holds '\\ud83c' at character 2, half a surro"),
)


def setUpModule():
    global WORKDIR, PIECES
    folder = places.make()
    name, _ = corpus.write_topics(folder / 'text')
    text = pathlib.Path(name.removeprefix('text:')).read_text()
    PIECES = wordpiece.learn(text.splitlines(), 400)
    more = resolve(ModelChoices(objectives='bert_nce,mlm')).rows
    WORKDIR = write_workdir(folder / 'run', 'ict', more, pooling='weighted')


def write_workdir(folder, case, more=None, **changes):
    """Writes what a run of a case of the zoo leaves, with random weights.

    more: other rows; changes: of the config.
    """
    tokenizer = WordPieceTokenizer(PIECES)
    config = zoo.config(case)
    arguments = {**config.encoder.arguments, 'vocab_size': len(PIECES)}
    if 'layers' in arguments:
        arguments['layers'] = 2  # so that one is below the last
    config = config.replace(
        encoder=EncoderConfig(config.encoder.name, arguments),
        rows={**config.rows, **(more or {})},
        max_length=32,
        **{'pooling': 'mean', 'similarity': 'cosine', **changes},
    )
    model = Model(config, tokenizer.specials)
    random = np.random.default_rng(0)
    tensors = {
        path: np.float32(0.3 * random.standard_normal(v.shape)
                         + path.endswith('gamma'))
        for path, v in model.variables.items()
    }  # fmt: skip
    tensors['unigram'] = np.arange(len(PIECES), dtype=np.int64)
    folder.mkdir(parents=True)
    write_vocabulary(folder / 'vocab.txt', PIECES)
    config.write(folder)
    checkpoint.write_weights(folder, tensors, STEP)
    return folder


def one_by_one(model, text, pooling=None, layers=None):
    """The vector of a text alone, without padding."""
    pieces = model.tokenizer.tokenize([text]).to_list()[0]
    pieces = pieces[: model.max_length - 2]
    ids = [model.tokenizer.cls_id, *pieces, model.tokenizer.sep_id]
    actual = model.embed(
        tf.constant([ids]), tf.constant([len(ids)]), pooling, layers
    )
    return actual.numpy()[0]


class NamesTest(absltest.TestCase):
    def test_names_of_older_versions(self):
        for name, now in (
            ('next_pieces', 'next_tokens'), ('laid_out', 'format_texts'),
            ('tokenized', 'tokenize'), ('embed_pieces', 'embed_tokens'),
            ('piece_scores', 'token_scores'),
        ):  # fmt: skip
            self.assertIs(getattr(Loaded, name), getattr(Loaded, now))
        ids, tokenizer = [7, 8], WordPieceTokenizer(PIECES)
        self.assertEqual(tokenizer.text(ids), tokenizer.detokenize(ids))


class WordsTest(absltest.TestCase):
    def test_pieces_and_words(self):
        """Embeddings of pieces; of words what `encode` makes of each."""
        loaded = infoword_tf.load(WORKDIR)
        words, vectors = loaded.word_vectors()
        self.assertEqual(words, [p for p in PIECES if p not in SPECIALS])
        table = loaded.encoder.embedding_table.numpy()
        expected = [table[PIECES.index(word)] for word in words]
        np.testing.assert_array_equal(vectors, expected)
        text = ['objects', 'naïve']
        words, vectors = loaded.word_vectors(text)
        self.assertEqual(words, text)
        np.testing.assert_array_equal(vectors, loaded.encode(text))
        words, _ = loaded.word_vectors(['naïve'.encode(), b'objects'])
        self.assertEqual(words, ['naïve', 'objects'])
        with self.assertRaisesRegex(TypeError, 'a list'):
            loaded.word_vectors('objects')
        # Of a vocabulary of whole words those that it has, in order.
        with mock.patch.object(WordPieceTokenizer, 'kind', 'words'):
            known, unknown = PIECES[-2:], ['nowhere', '[CLS]']
            words, vectors = loaded.word_vectors([*unknown, *known[::-1]])
        self.assertEqual(words, known[::-1])
        np.testing.assert_array_equal(vectors, table[[-1, -2]])


def blocks_of(document):
    text = (ROOT / document).read_text()
    return re.findall(r'^```python\n(.*?)^```', text, re.M | re.S)


class DocumentsTest(absltest.TestCase):
    def test_its_python_runs(self):
        """On a workdir of ours: names, arguments, types and shapes."""
        (block,) = blocks_of('README.md')
        (folder,) = re.findall(r"infoword_tf\.load\('(.*?)'\)", block)
        names = {}
        with mock.patch.object(infoword_tf, 'train', create=True) as train:
            exec(block.replace(folder, str(WORKDIR)), names)
        (asked,) = train.call_args_list  # what it is to the command
        asked = commands.parse(RunChoices, commands.typed(asked.kwargs))
        self.assertEqual(asked['objectives'], 'bert_nce:1,ict:1')
        self.assertEqual(asked['workdir'], str(WORKDIR))
        model, vectors = names['model'], names['vectors']
        (comment,) = re.findall(r'load\(.*# (\..*)', block)
        for name in comment.split(', '):
            self.assertTrue(hasattr(model, name.removeprefix('.')), name)
        self.assertEqual(vectors.dtype, np.float32)
        self.assertEqual(vectors.shape, (2, model.encoder.arguments['width']))
        self.assertLen(names['words'], 1)
        self.assertLen(names['words'][0], 5)

    def test_how_to_tokenize(self):
        """The example of docs/serving.md, beside `encode` and by hand."""
        (block,) = [block for block in blocks_of('docs/serving.md')
                    if 'tokenizer.tokenize(' in block]  # fmt: skip
        names = {'model': infoword_tf.load(WORKDIR)}
        exec(block, names)
        self.assertEqual(names['ids'].row_lengths().numpy()[1], 0)
        spelled = names['spelled'].replace(' ##', '')
        self.assertEqual(spelled, 'names refer to objects .')
        tokens = ''.join(x.removeprefix('##') for x in names['tokens'])
        self.assertEqual(tokens, 'namesrefertoobjects.')
        self.assertEqual(
            names['padded'].numpy()[0].tolist(),
            [2, *names['ids'][0].numpy(), 3],
        )
        self.assertEqual(names['begins'][0, 0], 0)
        self.assertEqual(names['ends'][0, -1], len('Names refer'))
        np.testing.assert_allclose(
            names['vectors'],
            names['model'].encode(['Names refer to objects.', 'x']),
            atol=1e-5,
        )


class EncodeTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(eagerly())  # but where graphs are asked about
        self.model = infoword_tf.load(WORKDIR)

    @parameterized.parameters(
        (None, None),
        ('mean', 0),
        *itertools.product(
            ('cls', 'mean', 'weighted', 'first_last'), (None, (1, 2))
        ),
    )
    def test_is_one_by_one_in_order(self, pooling, layers):
        self.enterContext(eagerly(pooling is not None))
        actual = self.model.encode(
            SENTENCES, batch_size=2, pooling=pooling, layers=layers
        )
        self.assertEqual(actual.dtype, np.float32)
        numbers = (layers,) if isinstance(layers, int) else layers
        for text, vector in zip(SENTENCES, actual, strict=True):
            alone = one_by_one(self.model, text, pooling, numbers)
            np.testing.assert_allclose(vector, alone, atol=1e-5)
        self.assertEqual(self.model.cut, 1)
        # What is one batch takes one graph, from strings to vectors.
        few = self.model.encode(
            SENTENCES, len(SENTENCES), pooling=pooling, layers=layers
        )
        np.testing.assert_allclose(few, actual, atol=1e-5)
        self.assertEqual(self.model.cut, 1)

    @parameterized.parameters(
        (0, '', 2), (4, '', 2), (1, '', 16), (0, '1', 16), (4, '1', 2)
    )
    def test_batches_at_a_time(self, threads, variable, expected):
        """Runs as many as there are cores, with one thread an operation."""
        asked = mock.Mock(side_effect=batches.futures.ThreadPoolExecutor)
        with (
            mock.patch.object(
                tf.config.threading,
                'get_intra_op_parallelism_threads',
                return_value=threads,
            ),
            mock.patch.dict(
                batches.os.environ, TF_NUM_INTRAOP_THREADS=variable
            ),
            mock.patch.object(batches.os, 'cpu_count', return_value=16),
            mock.patch.object(batches.futures, 'ThreadPoolExecutor', asked),
        ):
            self.model.encode(SENTENCES, batch_size=2)
        asked.assert_called_once_with(expected)

    def test_poolings_written_out(self):
        ids = tf.constant([[2, 7, 9, 3, 0], [2, 8, 3, 0, 0]])
        lengths = tf.constant([4, 3])
        layers = [
            self.model.states(ids, lengths, [i]).numpy() for i in range(3)
        ]
        weights = dict(self.model.model.variables)
        w = weights['objectives/ict/pooling_kernel'].numpy()
        for i, n in enumerate((4, 3)):
            x = layers[2][i, :n]
            p = np.exp(x @ w)
            expected = {
                'cls': x[0], 'mean': x.mean(0), 'weighted': p @ x / p.sum(),
                'first_last': (layers[1][i, :n] + x).mean(0) / 2,
                'mix': np.mean([y[i, :n] for y in layers], axis=(0, 1)),
            }  # fmt: skip
            for pooling, vector in expected.items():
                actual = self.model.embed(ids, lengths, pooling)[i]
                np.testing.assert_allclose(actual, vector, atol=1e-5)
        config = self.model.config.replace(pooling='first_last')
        states, vectors = self.model.with_config(
            config
        ).vectors.embed_with_states(ids, lengths)
        np.testing.assert_allclose(states, layers[2], atol=1e-5)
        np.testing.assert_allclose(
            vectors[1], expected['first_last'], atol=1e-5
        )

    def test_nothing_at_all(self):
        """No special tokens either, so no state: zeros."""
        bare = self.model.with_layout(Layout((), ()))
        for pooling in ('cls', 'last'):
            nothing, something = bare.encode(['', 'x'], pooling=pooling)
            self.assertEqual(np.abs(nothing).max(), 0)
            self.assertGreater(np.abs(something).max(), 0)

    def test_a_mix(self):
        """Mixes all layers alike, or as a row has learned."""
        layers = [
            self.model.encode(SENTENCES, pooling='mean', layers=i)
            for i in range(3)
        ]
        actual = self.model.encode(SENTENCES, pooling='mean', layers='mix')
        np.testing.assert_allclose(actual, np.mean(layers, axis=0), atol=1e-5)
        folder = write_workdir(places.make() / 'run', 'label_mix')
        model = infoword_tf.load(folder)
        mix = model.model.objectives['label'].mixer
        for loaded, needed in (model, {'label': mix.weights}), (self.model, {}):
            mixed = loaded.with_config(loaded.config.replace(pooling='mix'))
            self.assertEqual(mixed.vectors.weights.keys(), needed.keys())
        for scales in ([0.5, -1.0, 2.0], [3.5, 2.0, 5.0]):  # and a constant
            mix.scales.assign(scales)
            mix.gamma.assign([3.0])
            shares = 3 * np.exp(scales) / np.exp(scales).sum()
            ids, lengths, _ = model.format_texts(tf.constant(SENTENCES))
            expected = sum(
                share * model.states(ids, lengths, [i])
                for i, share in enumerate(shares)
            )
            actual = model.states(ids, lengths, 'mix')
            np.testing.assert_allclose(actual, expected, atol=1e-5)

    def test_words_stand_beside_the_states(self):
        folder = places.make()
        workdir = write_workdir(folder / 'run', 'ict_words', pooling='words')
        model = infoword_tf.load(workdir)
        self.assertEqual(model.config.pooling, 'words')
        actual = model.encode(SENTENCES, batch_size=2)
        self.assertEqual(actual.shape, (len(SENTENCES), 16 + 24))
        self.assertEqual(model.vector_width(), 16 + 24)
        self.assertEqual(model.vector_width('mean'), 16)
        for text, vector in zip(SENTENCES, actual, strict=True):
            np.testing.assert_allclose(
                vector, one_by_one(model, text), atol=1e-5
            )
        states = model.encode(SENTENCES, pooling='weighted', normalize=True)
        np.testing.assert_allclose(actual[:, :16], states, atol=1e-5)
        words = np.linalg.norm(actual[:, 16:], axis=1)
        np.testing.assert_allclose(words, 1, 1e-5)
        with refused('pooling_not_learned', 'words'):
            self.model.encode(['a'], pooling='words')

    def test_another_config_changes_all_answers(self):
        """Also after a first `encode`, which has traced a graph."""
        self.enterContext(eagerly(False))
        model = infoword_tf.load(WORKDIR)
        before = model.encode(SENTENCES)
        model.config = model.config.replace(dims=5, pooling='mean')
        actual = model.encode(SENTENCES)
        self.assertEqual(actual.shape[1], 5)
        self.assertEqual(model.vector_width(), 5)
        expected = model.encode(SENTENCES, pooling='mean')[:, :5]
        np.testing.assert_array_equal(actual, expected)
        self.assertFalse(np.allclose(actual, before[:, :5]))

    def test_the_first_numbers_alone(self):
        whole = self.model.encode(SENTENCES)
        actual = self.model.encode(SENTENCES, dims=5)
        np.testing.assert_array_equal(actual, whole[:, :5])
        config = self.model.config
        cut = self.model.with_config(config.replace(dims=5, normalize=True))
        self.assertEqual(cut.vector_width(), 5)
        self.assertEqual(cut.vector_width('cls'), whole.shape[1])
        unit = actual / np.linalg.norm(actual, axis=1, keepdims=True)
        normal = self.model.with_config(config.replace(normalize=True))
        np.testing.assert_allclose(
            normal.encode(SENTENCES, dims=5, normalize=True), unit, atol=1e-5
        )
        for dims in (0, whole.shape[1] + 1):
            with refused('dims_out_of_range', dims):
                self.model.encode(SENTENCES, dims=dims)

    def test_no_texts(self):
        self.assertEqual(self.model.encode([]).shape, (0, 16))

    def test_a_batch_ends_where_its_padding_takes_longer_than_another(self):
        lengths, sizes = np.array([30] * 9 + [90, 50, 40, 60]), []
        texts = batches.Tokenized(np.zeros(510, int), lengths, lengths, 0)
        self.model.vectors._in_batches(
            texts, lambda batch, *_: sizes.append([*lengths[batch]]), 999, False
        )
        self.assertCountEqual(sizes, ([90, 60], [50, 40, 30, 30], [30] * 7))

    def test_equal_texts_have_equal_vectors(self):
        """Whatever stands beside them, in which order, by each of the three
        ways; and they are cut as often as they stand there.
        """
        self.enterContext(eagerly(False))
        texts = [*SENTENCES] * 5 + [SENTENCES[0].encode()]
        table = write_workdir(places.make() / 'table', 'ict_lookup')
        for model in (self.model, infoword_tf.load(table)):
            for size in (2, 99):
                vectors = model.encode(texts, size, progress=False)
                self.assertEqual(model.cut, 5)
                self.assertLen(np.unique(vectors, axis=0), 6)
                once = model.encode(SENTENCES, size, progress=False)
                again = model.tokenize(texts)
                np.testing.assert_array_equal(
                    model.encode_tokenized(again, size), vectors
                )
                np.testing.assert_array_equal(
                    vectors, [*np.tile(once, (5, 1)), once[0]]
                )

    def test_a_table_counts_from_the_start_of_each_text(self):
        """Means of the first 30 tokens of a text, and what is around it."""
        folder = write_workdir(places.make() / 'table', 'ict_lookup')
        loaded = infoword_tf.load(folder)
        self.assertEqual(loaded.workdir.free_length, 30)
        ids = [[7, 8, 9], [*range(5, 45)], [], [6]]
        table = np.array(loaded.encoder.embedding_table)
        first, last = loaded.tokenizer.cls_id, loaded.tokenizer.sep_id
        expected = [table[[first, *x[:30], last]].mean(axis=0) for x in ids]
        actual = loaded.vectors.embed_tokens(tf.ragged.constant(ids, tf.int32))
        np.testing.assert_allclose(actual, expected, atol=1e-6)

    def test_lists_of_every_kind(self):
        pandas = pytest.importorskip('pandas')
        texts = ['a list', 'naïve']
        expected = self.model.encode(texts)
        for sequence in (
            tuple(texts), iter(texts), np.array(texts), pandas.Series(texts),
            np.array(texts, object), tf.constant(texts),
            dict.fromkeys(texts), ['a list', 'naïve'.encode()],
            [tf.constant('a list'), np.str_('naïve')],
        ):  # fmt: skip
            np.testing.assert_array_equal(self.model.encode(sequence), expected)

    @parameterized.parameters(*NO_TEXT)
    def test_what_is_no_text(self, text, error, message):
        """Which one, and what it is; of each method that reads texts."""
        named = functools.partial(self.assertRaisesRegex, error)
        with named(rf'^texts\[1\] {message}'):
            self.model.encode(['a', text])
        with named(rf'^texts\[2\] {message}'):
            self.model.tokenized(('a', 'b', text))
        with named(rf'^words\[0\] {message}'):
            self.model.word_vectors([text])
        for method in (self.model.fill_mask, self.model.next_tokens):
            with named(rf'^text {message}'):
                method(text)

    def test_nasty_strings(self):
        texts = ['a\0b', b'\xff\xfe bad', 'x' * 1_000_000, '\u202eabc', ' ']
        actual = self.model.encode(texts, progress=False)
        self.assertTrue(np.isfinite(actual).all())

    def test_complaints(self):
        with self.assertRaisesRegex(TypeError, 'list of texts'):
            self.model.encode('one')
        with self.assertRaisesRegex(TypeError, 'texts are None, and no list'):
            self.model.encode(None)
        with refused('vectors_unknown_pooling', 'cls, last, mean, max'):
            self.model.encode(['a'], pooling='median')
        with refused('layer_out_of_range', 3, '0 to 2'):
            self.model.encode(['a'], layers=3)
        with refused('unknown_layers', 'all', '0 to 2', 'mix'):
            self.model.encode(['a'], layers='all')
        ict = self.model.model.objectives['ict']
        with (
            mock.patch.object(type(ict.form), 'poolings', {}),
            refused('pooling_not_learned', 'weighted'),
        ):
            self.model.encode(['a'], pooling='weighted')
        self.model.model.drop('ict')
        with refused('pooling_not_learned', 'weights'):
            self.model.embed(tf.constant([[2, 3]]), [2], 'weighted')

    def test_untrained_is_another_model(self):
        fresh = self.model.untrained(seed=1)
        a, b = (m.encode(SENTENCES[:1]) for m in (self.model, fresh))
        self.assertGreater(np.abs(a - b).max(), 0.1)
        rows = set(fresh.model.objectives)
        self.assertEqual(rows, {'ict', 'bert_nce', 'mlm'})


class LayoutTest(places.Folder, parameterized.TestCase):
    """Rows whose texts are no [CLS] text [SEP]."""

    def load(self, row):
        folder = write_workdir(self.folder / 'run', row, memory_length=16)
        return infoword_tf.load(folder)

    def by_hand(self, model, text):
        """All layers of a text alone, [T, D] each."""
        pieces = model.tokenizer.tokenize([text]).to_list()[0]
        sep, cls = model.tokenizer.sep_id, model.tokenizer.cls_id
        if 'plm' in model.model.objectives:
            ids = [*pieces[: 32 - 2], sep, cls]
            segments = np.array([[0] * (len(ids) - 1) + [2]], np.int32)
        else:
            ids, segments = [*pieces[: 32 - 1], sep], None
        encoded = model.encoder(
            Inputs(np.array([ids], np.int32), segment_ids=segments),
            all_layers=True,
        )
        return [layer[0].numpy() for layer in encoded.layers]

    @parameterized.parameters('transformer_xl', 'rnn_lm', 'elmo', 'plm')
    def test_is_the_encoder_called_by_hand(self, row):
        """Texts beside each other as each alone, so padding is unseen."""
        self.enterContext(eagerly())  # graphs take seconds
        model = self.load(row)
        layers = [self.by_hand(model, text) for text in SENTENCES]
        expected = {
            'cls': [x[-1][-1] for x in layers],
            'mean': [x[-1].mean(axis=0) for x in layers],
            'first_last': [(x[1] + x[-1]).mean(axis=0) / 2 for x in layers],
        }
        for pooling, size in (
            ('cls', 32), ('mean', 1), ('mean', 32), ('first_last', 32)
        ):  # fmt: skip
            np.testing.assert_allclose(
                model.encode(SENTENCES, batch_size=size, pooling=pooling),
                expected[pooling], atol=1e-5, err_msg=pooling,
            )  # fmt: skip
            self.assertEqual(model.cut, 1)
        actual = model.encode(SENTENCES, pooling='cls', layers=(0, 1))
        np.testing.assert_allclose(
            actual, [(x[0][-1] + x[1][-1]) / 2 for x in layers], atol=1e-5
        )

    def test_other_arguments(self):
        plain, folder = self.load('plm'), self.folder / 'run'
        clamped = infoword_tf.load(folder, arguments={'clamp': 3})
        self.assertEqual(clamped.config.encoder.arguments['clamp'], 3)
        ids, length = np.arange(5, 13, dtype='int32')[None], np.array([8])
        gap = plain.states(ids, length) - clamped.states(ids, length)
        self.assertGreater(np.abs(gap).max(), 1e-3)
        with self.assertRaisesRegex(ValueError, 'relative of .* no size'):
            infoword_tf.load(folder, arguments={'size': 3})

    @parameterized.parameters('transformer_xl', 'plm')
    def test_no_blanks(self, row):
        with refused('no_row_answers', row):
            self.load(row).fill_mask('a [MASK]')


class FillMaskTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(eagerly())
        self.model = infoword_tf.load(WORKDIR)

    def scores(self, row):
        """log p(b | a) at the mask of `a [MASK] list`, written plainly."""
        tokenizer = self.model.tokenizer
        before, after = tokenizer.tokenize(['a ', ' list']).to_list()
        ids = [tokenizer.cls_id, *before, tokenizer.mask_id, *after,
               tokenizer.sep_id]  # fmt: skip
        states = self.model.states(tf.constant([ids]), [len(ids)]).numpy()
        table = self.model.encoder.embedding_table.numpy()
        f = table @ states[0, 1 + len(before)]
        if row == 'bert_nce':
            counts = np.maximum(self.model.unigram, 1e-9)
            f = f + np.log(counts / counts.sum())
        f[[tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id,
           tokenizer.mask_id]] = -np.inf  # fmt: skip
        return f - np.log(np.exp(f - f.max()).sum()) - f.max()

    def test_f_of_mlm_and_f_plus_log_p_of_bert_nce(self):
        for row in ('mlm', 'bert_nce'):
            if row == 'bert_nce':
                self.model.model.drop('mlm')
            expected = self.scores(row)
            (actual,) = self.model.fill_mask('a [MASK] list', 5)
            best = np.argsort(-expected)[:5]
            self.assertEqual(
                [token for token, _ in actual],
                [self.model.tokenizer.vocabulary[i] for i in best],
            )
            np.testing.assert_allclose(
                [value for _, value in actual], expected[best], atol=1e-4
            )

    def test_several_masks(self):
        self.assertLen(self.model.fill_mask('[MASK] is [MASK]', 2), 2)

    def test_complaints(self):
        with refused('text_without_mask', '[MASK]'):
            self.model.fill_mask('nothing is missing')
        with refused('blanks_text_too_long', 32):
            self.model.fill_mask('[MASK] ' + 'list ' * 40)
        for row in ('mlm', 'bert_nce'):
            self.model.model.drop(row)
        with refused('no_row_answers', 'ict'):
            self.model.fill_mask('a [MASK]')


class CopyCase(places.Folder, absltest.TestCase):
    def copy(self):
        return shutil.copytree(WORKDIR, self.folder / 'run')


class LackingTest(places.Folder, absltest.TestCase):
    """Weights that hold less than the rows of the config have."""

    def setUp(self):
        super().setUp()
        self.enterContext(eagerly())

    def without(self, *lacking):
        """A workdir, and the same without the tensors that begin so."""
        folder = write_workdir(self.folder / 'run', 'ict', {
            'bert_nce': RowConfig(1.0, {'drop_hits': False}),
            'mlm': RowConfig(1.0, {'transform': True}),
        })  # fmt: skip
        whole = infoword_tf.load(folder)
        path = folder / 'weights.safetensors'
        tensors = files.read_tensors(path)
        present = {
            k: v for k, v in tensors.items() if not k.startswith(lacking)
        }
        self.assertLess(len(present), len(tensors))
        files.write_tensors(path, present)
        return whole, infoword_tf.load(folder)

    def test_the_encoder_alone(self):
        whole, actual = self.without('objectives/', 'unigram')
        for pooling in ('mean', 'cls', 'first_last'):
            np.testing.assert_array_equal(
                actual.encode(SENTENCES, pooling=pooling),
                whole.encode(SENTENCES, pooling=pooling),
            )
        # It has no weights of its own, and wants counts.
        self.assertEqual(list(actual.model.objectives), ['bert_nce'])
        self.assertEqual(actual.blanks.rows, [])
        self.assertIsNone(actual.workdir.training_pieces)
        with refused('no_token_counts', 'bert_nce', '`unigram` in weights'):
            actual.fill_mask('a [MASK] list')
        lacks = '(ict: weights.safetensors has no objectives/ict/pooling_k'
        with refused('pooling_not_learned', 'weighted', 'bert_nce', lacks):
            actual.encode(SENTENCES, pooling='weighted')
        actual.model.drop('bert_nce')
        lacks = 'mlm: weights.safetensors has no objectives/mlm/kernel)'
        with refused('no_row_answers', lacks):
            actual.fill_mask('a [MASK] list')

    def test_without_counts(self):
        """`mlm` needs none, `bert_nce` does."""
        whole, actual = self.without('unigram')
        text = 'a [MASK] list'
        self.assertEqual(actual.missing, {})
        self.assertEqual(actual.blanks.rows, ['mlm'])
        self.assertEqual(actual.fill_mask(text), whole.fill_mask(text))

    def test_untrained_lacks_the_same(self):
        whole, actual = self.without('objectives/')
        fresh, expected = (m.untrained(seed=1) for m in (actual, whole))
        self.assertEqual(fresh.missing, actual.missing)
        self.assertEqual(
            set(fresh.model.objectives), set(actual.model.objectives)
        )
        np.testing.assert_array_equal(
            fresh.encode(SENTENCES), expected.encode(SENTENCES)
        )

    def test_the_encoder_cannot_lack_anything(self):
        with self.assertRaisesRegex(ValueError, r'lacks \[.*word_embeddings'):
            self.without('encoder/word_embeddings')


class StepTest(CopyCase):
    """Weights and checkpoints of a run that was stopped between the two."""

    def warned(self, folder):
        with warnings.catch_warnings(record=True) as actual:
            warnings.simplefilter('always')
            infoword_tf.load(folder)
        return [(str(w.message), w.filename) for w in actual]

    def checkpoint(self, folder, step):
        checkpoint.Checkpoints(folder, keep=2).save(step, {'x': np.zeros(1)})

    def test_weights_of_another_step(self):
        folder = self.copy()
        self.assertEqual(checkpoint.weights_step(folder), STEP)
        self.assertIsNone(checkpoint.last_step(folder))
        self.assertEmpty(self.warned(folder))
        self.checkpoint(folder, STEP)
        self.assertEmpty(self.warned(folder))
        self.checkpoint(folder, STEP + 3)
        self.assertEqual(checkpoint.last_step(folder), STEP + 3)
        ((message, where),) = self.warned(folder)
        self.assertIn('run/weights.safetensors is of step 7, its', message)
        self.assertIn('checkpoint of step 10', message)
        self.assertIn('run again, writes them anew', message)
        self.assertEqual(where, __file__)

    def test_weights_that_do_not_say_it(self):
        folder = self.copy()
        path = folder / 'weights.safetensors'
        tensors = files.read_tensors(path)
        del tensors['step']
        files.write_tensors(path, tensors)
        self.checkpoint(folder, STEP + 3)
        self.assertIsNone(checkpoint.weights_step(folder))
        self.assertEmpty(self.warned(folder))


class LoadTest(CopyCase, parameterized.TestCase):
    def test_no_weights(self):
        folder = self.copy()
        (folder / 'weights.safetensors').unlink()
        with self.assertRaisesRegex(FileNotFoundError, 'no weights'):
            infoword_tf.load(folder)

    @parameterized.parameters(
        (('encoder', 'name'), 'of_tomorrow'),
        (('tokenizer', 'kind'), 'of_tomorrow'),
        (('rows',), {'of_tomorrow': {'weight': 1.0, 'settings': {}}}),
        (('rows',), []),
        ((), []),
    )
    def test_a_config_of_other_code(self, path, value):
        folder = self.copy()
        config = json.loads((folder / 'config.json').read_text())
        inner = config
        for name in path[:-1]:
            inner = inner[name]
        if path:
            inner[path[-1]] = value
        text = json.dumps(config if path else value)
        (folder / 'config.json').write_text(text)
        message = "config.json (names the .* 'of_tomorrow'|is no config)"
        with self.assertRaisesRegex(ValueError, message):
            infoword_tf.load(folder)

    def test_a_setting_that_is_newer(self):
        """Workdirs are loaded whose rows had fewer settings."""
        folder = self.copy()
        config = json.loads((folder / 'config.json').read_text())
        (row, entry), *_ = config['rows'].items()
        (name, value), *_ = entry['settings'].items()
        del entry['settings'][name]
        (folder / 'config.json').write_text(json.dumps(config))
        actual = infoword_tf.load(folder).config.rows[row].settings
        self.assertEqual(actual[name], value)

    def test_damaged_weights(self):
        folder = self.copy()
        path = folder / 'weights.safetensors'
        whole = path.read_bytes()
        flipped = [bytearray(whole), bytearray(whole)]
        for data, place in zip(flipped, (20, -20), strict=True):
            data[place] ^= 0x10
        for data in (*flipped, whole[:-100]):
            path.write_bytes(data)
            with self.assertRaisesRegex(ValueError, 'weights.safetensors'):
                infoword_tf.load(folder)
