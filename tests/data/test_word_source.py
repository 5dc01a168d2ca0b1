"""Text without some of its frequent words, by step."""

import numpy as np
from absl.testing import absltest

from infoword_tf.data.batches import heldout_views
from infoword_tf.data.words import WordSource
from infoword_tf.views.words import keep_probabilities, known, noise
from tests import zoo
from tests.refused import refused


class WordSourceTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.store = zoo.make_store(0, 2000)

    def source(self, subsample):
        return WordSource(self.store, 64, 16, 0, subsample, negatives=32)

    def test_rows_are_full_of_what_is_left_in_its_order(self):
        source = self.source(0.0)
        text = source.batch(3)
        self.assertEqual(text.ids.shape, (16, 64))
        self.assertLess((text.texts < 0).mean(), 0.1)
        # All words stay: passages, less separators and [UNK], one by one.
        place = source.starts(3)[:, None] + np.arange(source.length)
        passages = source.store.ids[place]
        ends = source.store.flags[place] & 4 > 0
        expected = passages[~ends & (passages != zoo.UNK)][:1024]
        np.testing.assert_array_equal(
            text.ids.ravel()[: len(expected)], expected
        )
        self.assertEqual(text.tokens.sum(), (~ends).sum())
        ends[:, 0] = True
        texts = text.texts.ravel()[: len(expected)]
        self.assertEqual(len(np.unique(texts)), ends.sum())
        self.assertTrue((np.diff(texts) >= 0).all())

    def test_how_many_are_dropped_and_what_is_drawn(self):
        source = self.source(0.02)
        counts = known(source.store.counts, zoo.UNK)
        left, read, drawn = np.zeros(zoo.V), np.zeros(zoo.V), np.zeros(zoo.V)
        for step in range(20):
            text = source.batch(step)
            left += np.bincount(text.ids[text.texts >= 0], minlength=zoo.V)
            place = source.starts(step)[:, None] + np.arange(source.length)
            read += np.bincount(source.store.ids[place].ravel(), None, zoo.V)
            drawn += np.bincount(text.drawn.ravel(), minlength=zoo.V)
        keep = keep_probabilities(counts, 0.02)
        for piece in np.flatnonzero(read > 500):
            if piece != zoo.SEP:
                self.assertAlmostEqual(
                    left[piece] / read[piece], keep[piece], delta=0.05
                )
        self.assertLess(keep[counts > 0].min(), 0.7)
        self.assertGreater(read[zoo.UNK], 500)
        self.assertEqual((left[zoo.UNK], drawn[zoo.UNK]), (0, 0))
        q = noise(counts)
        error = (drawn - drawn.sum() * q) / np.sqrt(drawn.sum() * q + 1)
        self.assertLess(np.abs(error).max(), 4.5)

    def test_too_little_heldout_text(self):
        plan = zoo.CASES['skip_gram'].resolved.plan
        with refused('little_heldout_text', '[UNK]', '--heldout'):
            heldout_views(zoo.make_store(0, 3), plan, zoo.SPECIALS)
