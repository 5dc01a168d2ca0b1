"""Exports of converted weights: classes, pairs, prompts, bfloat16."""

import pathlib
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from export import bundle, card, comparison
from infoword_tf import convert
from infoword_tf.config import read_exported
from infoword_tf.evaluation import sts
from tests.export import answers, workdirs
from tests.export.converted import KINDS, exported, loaded, workdir

TEXTS = ['a cab. b', 'deaf [MASK]', '', 'x y z ' * 20]


class ConvertedTest(parameterized.TestCase):
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

    @parameterized.parameters(*KINDS)
    def test_says_what_the_workdir_says(self, kind):
        """By its signatures, that which needs no name among them."""
        texts = [text.encode() for text in TEXTS]
        default = 'classify' if loaded(kind).config.labels else 'embed'
        actual, expected = answers.check(
            self, exported(kind), loaded(kind), default,
            [*texts, *comparison.NASTY[:6]],
        )  # fmt: skip
        if kind == 'prompts':
            self.assertContainsSubset(
                ('embed_query/embeddings', 'embed_passage/embeddings'),
                expected,
            )
        elif kind == 'masks':
            self.assertEqual(expected['fill_mask/count'].max(), 1)
        elif kind == 'one_class':
            np.testing.assert_allclose(
                expected['classify_pairs/probabilities'],
                1 / (1 + np.exp(-actual['classify_pairs/scores'])), atol=1e-5,
            )  # fmt: skip

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
        signatures = tf.saved_model.load(str(version)).signatures
        for function in signatures.values():
            for x in function.structured_outputs.values():
                self.assertNotEqual(x.dtype, tf.bfloat16)
        actual = workdirs.answer(signatures['embed'], TEXTS)['embeddings']
        gap = np.abs(actual - expected).max()
        self.assertBetween(gap, 1e-6, 0.1)

    def test_gaps_in_bfloat16_are_shares_of_the_largest_number(self):
        expected = {'tokens/states': np.float32([40, -2, np.nan])}
        actual = {'tokens/states': np.float32([39, -2, 5])}
        for tolerance, gap in ((1e-5, 1), (0.1, 1 / 40)):
            gaps = comparison.difference(actual, expected, tolerance)
            self.assertAlmostEqual(gaps['tokens/states'], gap)

    def test_the_card(self):
        _, export = read_exported(exported('classes'))
        prompts = card.render(loaded('prompts').config, export, None, '', {})
        for text, words in (
            (workdirs.card_of(exported('classes')), (
                'Converted from the weights `source`, with the heads `label`',
                '### `classify_pairs`',
                'of each class, before they become probabilities',
                '"pairs": "a passage"',
            )),
            (prompts, (
                '`embed_query`, and `embed`, too, puts "ask: " before each',
                'the encoder alone.',
            )),
        ):  # fmt: skip
            for part in words:
                self.assertIn(part, text)
