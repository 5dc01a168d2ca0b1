"""Text that goes on, with memory and without it, and what is drawn."""

from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import infoword_tf
from infoword_tf.inference import continuation
from tests import places
from tests.eager import eagerly
from tests.export import workdirs
from tests.refused import refused

TEXT = 'a list of names'


class ChooseTest(parameterized.TestCase):
    P = np.array([0.1, 0.4, 0.2, 0.1, 0.2])

    @parameterized.parameters(
        (1.0, [0.1, 0.4, 0.2, 0.1, 0.2]),
        (0.99, [0.1, 0.4, 0.2, 0.1, 0.2]),
        (0.9, [0.1 / 0.9, 0.4 / 0.9, 0.2 / 0.9, 0, 0.2 / 0.9]),
        (0.7, [0, 0.5, 0.25, 0, 0.25]),
        (0.6, [0, 2 / 3, 1 / 3, 0, 0]),
        (0.5, [0, 2 / 3, 1 / 3, 0, 0]),
        (0.4, [0, 1, 0, 0, 0]),
        (1e-6, [0, 1, 0, 0, 0]),
    )
    def test_the_fewest_that_have_the_share(self, top_p, expected):
        actual = continuation.likeliest(self.P - 1e-12, top_p - 1e-9)
        np.testing.assert_allclose(actual, expected, atol=1e-9)

    def test_a_number_decides(self):
        log_p = np.log(self.P)
        for number, token in (
            (0.0, 0), (0.099, 0), (0.101, 1), (0.499, 1), (0.501, 2),
            (0.799, 3), (0.801, 4), (1 - 1e-9, 4),
        ):  # fmt: skip
            self.assertEqual(
                continuation.choose(log_p, number, 1.0, 1.0), token
            )
            self.assertEqual(continuation.choose(log_p, number, 0.0, 1.0), 1)

    def test_temperature_sharpens(self):
        """0.5 squares: of .01, .16, .04, .01, .04 in .26."""
        log_p = np.log(self.P) + 7  # sums do not matter
        numbers = (np.arange(2600) + 0.5) / 2600
        actual = [continuation.choose(log_p, n, 0.5, 1.0) for n in numbers]
        np.testing.assert_array_equal(
            np.bincount(actual), [100, 1600, 400, 100, 400]
        )

    def test_what_cannot_be_is_never_drawn(self):
        log_p = np.array([-1e30, 0.0, -1e30], np.float32)
        for number in (0.0, 0.5, 1 - 1e-12):
            self.assertEqual(continuation.choose(log_p, number, 2.0, 0.9), 1)


class ContinuedTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.enterClassContext(eagerly())
        cls.loaded = {}
        folder = places.make()
        for row, encoder in (
            ('gpt', 'transformer'), ('transformer_xl', 'relative'),
            ('mlm', 'transformer'),
        ):  # fmt: skip
            workdirs.write(folder / row, (row,), encoder, layers=2)
            cls.loaded[row] = infoword_tf.load(folder / row)

    def pieces(self, loaded, text=TEXT):
        return loaded.tokenizer.tokenize([text])[0].numpy().tolist()

    def by_hand(self, loaded, ids):
        """log p [V] after all of some ids, read at once."""
        ids = tf.constant([[loaded.tokenizer.sep_id, *ids]])
        return loaded.continuation.token_scores(ids, [ids.shape[1]])[0].numpy()

    @parameterized.parameters('gpt', 'transformer_xl')
    def test_greedy_is_the_likeliest_after_all_that_came(self, row):
        """A memory is as good as the text, as long as it holds it.

        The model's holds 8, and the prompt is read at once.
        """
        loaded = self.loaded[row]
        ids = self.pieces(loaded)[:3]
        count = 5 if row == 'transformer_xl' else 12
        actual = continuation.generate(
            loaded.continuation, ids, count, temperature=0
        )
        self.assertNotEmpty(actual)
        for i, token in enumerate(actual):
            expected = self.by_hand(loaded, [*ids, *actual[:i]])
            self.assertEqual(np.argmax(expected), token)

    @parameterized.parameters('gpt', 'transformer_xl')
    def test_the_same_seed_the_same_text(self, row):
        loaded = self.loaded[row]
        ids = self.pieces(loaded)
        texts = [
            continuation.generate(loaded.continuation, ids, 6, seed=seed)
            for seed in (1, 1, 2)
        ]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_next_tokens(self):
        self.enterContext(eagerly(False))
        for row in ('gpt', 'transformer_xl'):
            loaded = self.loaded[row]
            expected = self.by_hand(loaded, self.pieces(loaded))
            actual = loaded.next_tokens(TEXT, 4)
            names = loaded.tokenizer.vocabulary
            order = np.argsort(-expected)[:4]
            self.assertEqual([p for p, _ in actual], [names[i] for i in order])
            np.testing.assert_allclose(
                [score for _, score in actual], expected[order], atol=1e-5
            )
            self.assertAlmostEqual(np.exp(expected).sum(), 1, places=5)
            for special in ('[PAD]', '[CLS]', '[MASK]'):
                self.assertLess(expected[names.index(special)], -1e29)
            self.assertGreater(expected[names.index('[SEP]')], -100)
        self.assertLen(loaded.next_tokens('', 3), 3)

    def test_a_vocabulary_without_an_end(self):
        """Only an empty text begins with what stands in for one."""
        loaded = self.loaded['gpt']
        sep, pieces = loaded.tokenizer.sep_id, self.pieces(loaded)
        for ends, begin in (True, [sep]), (False, []):
            with mock.patch.object(type(loaded.tokenizer), 'ends_texts', ends):
                ids, lengths = loaded.continuation.format_texts(
                    tf.constant([TEXT, ''])
                )
            self.assertEqual([*ids[0]], begin + pieces)
            self.assertEqual(ids[1, 0], sep)
            self.assertEqual([*lengths], [len(begin + pieces), 1])

    def test_next_tokens_of_a_long_text(self):
        """Reads its last pieces, as many as a text may have."""
        loaded = self.loaded['gpt']
        text = TEXT + ' to be found' * 10 + ' where it is'
        last = self.pieces(loaded, text)[-loaded.max_length :]
        scores = loaded.continuation.token_scores(
            tf.constant([last]), [loaded.max_length]
        )
        actual = loaded.next_tokens(text, 4)
        best = np.argsort(-scores[0])[:4]
        (drawn,) = continuation.generate(
            loaded.continuation, self.pieces(loaded, text), 1, temperature=0
        )
        self.assertEqual(drawn, best[0])
        names = loaded.tokenizer.vocabulary
        self.assertEqual([p for p, _ in actual], [names[i] for i in best])
        np.testing.assert_allclose(
            [score for _, score in actual], scores.numpy()[0, best], atol=1e-5
        )

    def test_ends_with_the_document(self):
        loaded = self.loaded['gpt']
        bias = loaded.model.objectives['gpt'].token_bias
        before = bias.numpy()
        try:
            bias.assign(np.eye(len(before))[loaded.tokenizer.sep_id] * 1e4)
            self.assertEmpty(continuation.generate(loaded.continuation, [], 9))
        finally:
            bias.assign(before)

    def test_a_row_that_cannot(self):
        loaded = self.loaded['mlm']
        for ask in (
            lambda: continuation.generate(loaded.continuation, [], 3),
            lambda: loaded.next_tokens('text'),
        ):
            with refused('no_row_answers', 'mlm'):
                ask()
