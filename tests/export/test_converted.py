"""Exports of converted weights: classes, pairs, prompts, bfloat16."""

import pathlib
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from export import bundle, comparison
from infoword_tf import convert
from infoword_tf.config import read_exported
from tasks import sts
from tests.eager import eagerly
from tests.export import answers, workdirs
from tests.export.converted import KINDS, exported, loaded, served, workdir

TEXTS = ['a cab. b', 'deaf bees', '', 'x y z ' * 20]
PAIRS = ['bad', 'a b c d e f g h i j k l m n o p', 'z', '']


class ConvertedTest(parameterized.TestCase):
    @parameterized.parameters('one_class', 'xlnet')
    def test_classes_of_texts_and_of_pairs(self, kind):
        model = loaded(kind)
        labels = [label.encode() for label in model.config.labels]
        for signature, pairs in (
            ('classify', {}), ('classify_pairs', {'pairs': PAIRS})
        ):  # fmt: skip
            actual = workdirs.answer(served(kind)[signature], TEXTS, **pairs)
            with eagerly():
                expected = model.classify(TEXTS, *pairs.values())
            np.testing.assert_allclose(
                actual['probabilities'], expected, atol=1e-5
            )
            scores = actual['scores']
            again = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
            if scores.shape[1] == 1:
                again = 1 / (1 + np.exp(-scores))
            np.testing.assert_allclose(expected, again, atol=1e-5)
            np.testing.assert_array_equal(actual['labels'], [labels] * 4)
            np.testing.assert_array_equal(
                actual['label'], [labels[i] for i in scores.argmax(1)]
            )

    def test_a_pair_is_laid_out_as_the_tokenizers_do(self):
        for kind, texts, pairs, rows, seconds in (
            ('classes', ['a b', 'c'], ['d', 'e f'],
             ['[CLS] a b [SEP] d [SEP]', '[CLS] c [SEP] e f [SEP]'], [4, 3]),
            ('roberta', ['a'], ['b'],
             ['<s> \u2581a </s> </s> \u2581b </s>'], [4]),
        ):  # fmt: skip
            model = loaded(kind)
            index = model.tokenizer.vocabulary.index
            ids, lengths, second = model.format_texts(
                tf.constant(texts), tf.constant(pairs)
            )
            expected = [[*map(index, row.split())] for row in rows]
            np.testing.assert_array_equal(ids, expected)
            np.testing.assert_array_equal(lengths, [*map(len, expected)])
            np.testing.assert_array_equal(second, seconds)
            if kind == 'roberta':
                self.assertEqual([*map(index, ('<s>', '</s>'))], [0, 2])

    def test_the_longer_of_a_pair_is_cut_as_the_tokenizers_do(self):
        """As `longest_first` of the package tokenizers."""
        import tokenizers

        model = loaded('classes')
        path = pathlib.Path(self.create_tempdir().full_path) / 'out'
        convert.write(workdir('classes'), path, 'huggingface')
        other = tokenizers.Tokenizer.from_file(str(path / 'tokenizer.json'))
        other.enable_truncation(model.max_length, strategy='longest_first')
        sizes = (0, 1, 2, 8, 9, 16, 17, 30)
        texts = ['a ' * n for n in sizes for _ in sizes]
        pairs = ['b ' * n for _ in sizes for n in sizes]
        ids, lengths, _ = model.format_texts(
            tf.constant(texts), tf.constant(pairs)
        )
        both = list(zip(texts, pairs, strict=True))
        for row, encoding in enumerate(other.encode_batch(both)):
            self.assertEqual([*ids[row, : lengths[row]].numpy()], encoding.ids)

    def test_prompts_are_signatures(self):
        for name, prompt in (('', 'ask: '), ('_query', 'ask: '),
                             ('_passage', 'it says ')):  # fmt: skip
            actual = workdirs.answer(served('prompts')[f'embed{name}'], TEXTS)
            with eagerly():
                expected = loaded('prompts').encode(
                    [prompt + text for text in TEXTS], progress=False, prompt=''
                )
            np.testing.assert_allclose(
                actual['embeddings'], expected, atol=1e-5
            )

    def test_masks_are_filled(self):
        with eagerly():
            [expected] = loaded('masks').fill_mask('a [MASK] b')
        actual = workdirs.answer(served('masks')['fill_mask'], ['a [MASK] b'])
        np.testing.assert_allclose(
            actual['scores'][0, 0], [score for _, score in expected], atol=1e-5
        )

    @parameterized.parameters(*KINDS)
    def test_says_what_the_workdir_says(self, kind):
        """By its signatures, that which needs no name among them."""
        texts = [text.encode() for text in TEXTS]
        batches = {'all': [*texts, *comparison.NASTY[:6]], 'none': []}
        actual = answers.here(exported(kind), batches)
        _, described = read_exported(exported(kind))
        model = loaded(kind)
        default = 'classify' if model.config.labels else 'embed'
        names = [*described['signatures'], 'serving_default']
        for batch, content in batches.items():
            expected = answers.in_python(model, content, names, default)
            worst = comparison.difference(actual[batch], expected, 1e-5)
            self.assertLessEqual(max(worst.values()), 1e-5, worst)

    def test_bfloat16_is_what_is_stored_and_what_it_costs_is_said(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        path = folder / 'sts.csv'
        rows = [
            (5, 'a cab', 'a cab'), (1, 'bees', 'x y z'), (3, 'a b', 'a c'),
            (2, 'deaf', 'cab cab'),
        ]  # fmt: skip
        path.write_text(
            '\n'.join(f'g\tf\ty\t0\t{s}\t{a}\t{b}' for s, a, b in rows)
        )
        exact = loaded('prompts')
        expected = exact.encode(TEXTS, progress=False)

        def correlation(pairs, encode, similarity):
            self.assertLen(pairs.scores, 4)
            self.assertEqual(similarity, exact.config.similarity)
            return 33.0 + np.array_equal(encode(TEXTS), expected)

        with mock.patch.object(sts, 'correlation', correlation):
            version = bundle.write(
                workdir('prompts'), folder / 'sts', 1, 'bfloat16', str(path)
            )
        self.assertIn(
            'Spearman x 100 on `sts.csv` (4 pairs): 33.00, 34.00 in float32.',
            workdirs.card_of(version),
        )
        reader = tf.train.load_checkpoint(str(version / 'variables/variables'))
        shapes = reader.get_variable_to_shape_map()
        [table] = [name for name in shapes if shapes[name] == [60, 16]]
        self.assertEqual(reader.get_variable_to_dtype_map()[table], tf.bfloat16)
        embed = tf.saved_model.load(str(version)).signatures['embed']
        actual = workdirs.answer(embed, TEXTS)['embeddings']
        self.assertEqual(actual.dtype, np.float32)
        gap = np.abs(actual - expected).max()
        self.assertBetween(gap, 1e-6, 0.1)

    def test_gaps_in_bfloat16_are_shares_of_the_largest_number(self):
        expected = {'tokens/states': np.float32([40, -2, np.nan])}
        actual = {'tokens/states': np.float32([39, -2, 5])}
        for tolerance, gap in ((1e-5, 1), (0.1, 1 / 40)):
            gaps = comparison.difference(actual, expected, tolerance)
            self.assertAlmostEqual(gaps['tokens/states'], gap)

    def test_the_card(self):
        for kind, words in (
            ('classes', (
                'Converted from the weights `source`, with the heads `label`',
                '### `classify_pairs`',
                'of each class, before they become probabilities',
                '"pairs": "a passage"',
            )),
            ('prompts', (
                '`embed_query`, and `embed`, too, puts "ask: " before each',
                'the encoder alone.',
            )),
        ):  # fmt: skip
            card = workdirs.card_of(exported(kind))
            for part in words:
                self.assertIn(part, card)

    def test_warm_up_has_both_texts(self):
        path = exported('classes') / 'assets.extra/tf_serving_warmup_requests'
        records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
        pairs = [r for r in records if b'classify_pairs' in r]
        self.assertLen(pairs, 2)
        for record in pairs:
            self.assertIn(b'\x0a\x05texts', record)
            self.assertIn(b'\x0a\x05pairs', record)
