"""The view `negatives`: a pair with other second texts."""

import numpy as np
from absl.testing import absltest

from infoword_tf.views.negatives import negatives
from tests.refused import refused
from tests.views import texts
from tests.views.texts import assert_view, same


class NegativesTest(absltest.TestCase):
    def test_written_out(self):
        """Two of each; one is a copy of the true text, masked otherwise."""
        others = texts.make_pairs([
            ([10, 11, 12], [30, 31]), ([10, 11, 12], [13, 14, 15, 16, 17]),
            ([20], [21]), ([20], [30, 31]),
        ])  # fmt: skip
        text = texts.two_pairs()._replace(negatives=others)
        draw = texts.two_pairs_draw()._replace(
            negatives=texts.pair_draw([[0], [2, 5], [2], []])
        )
        view = negatives(text, draw, {'nsp_nce': 'start'}, texts.SPECIALS)
        assert_view(
            view, 'nsp_nce',
            ids=[[[2, 4, 11, 12, 3, 30, 31, 3, 3, 3, 3],
                  [2, 10, 11, 4, 3, 13, 4, 15, 16, 17, 3]],
                 [[2, 20, 3, 4, 3, 3, 3, 3, 3, 3, 3],
                  [2, 20, 3, 30, 31, 3, 3, 3, 3, 3, 3]]],
            places=np.zeros((2, 2, 1)), weights=[[1], [1]], sequences=[0, 1],
            padding=[3, 11],
        )  # fmt: skip
        same(view.segment_ids.sum(axis=2), [[3, 6], [2, 3]])
        same(view.block_ids.sum(axis=2), [[3, 0], [6, 5]])
        numbers = view.targets['nsp_nce']
        self.assertEqual(numbers.shape, (2, 3))
        self.assertEqual(numbers[0, 0], numbers[0, 2])
        self.assertEqual(numbers[0, 1], numbers[1, 2])
        self.assertLen(set(numbers.ravel().tolist()), 4)
        # Other second texts, [30 31] and [13 .. 17], [21] and [30 31].
        # Beside the pair's own 8 and 3 tokens; A is not counted again.
        same(text.tokens, [8 + 7, 3 + 3])
        with refused('where_not_in_view', 'start', 'mlm'):
            negatives(text, draw, {'mlm': 'tokens'}, texts.SPECIALS)
