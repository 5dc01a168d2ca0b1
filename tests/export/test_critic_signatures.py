"""Exports of models that compare texts otherwise than by two vectors."""

import numpy as np
from absl.testing import absltest

from export import comparison, demo
from tests.export import answers, critics, workdirs


def setUpModule():
    critics.exported('both')


class CriticsTest(absltest.TestCase):
    def test_says_what_the_workdir_says(self):
        content = [
            *(text.encode() for text in critics.TEXTS), *comparison.NASTY[:-2]
        ]  # fmt: skip
        version = critics.exported('both')
        actual, expected = answers.check(
            self, version, critics.loaded('both'), 'embed_tokens', content
        )
        names = {name.partition('/')[0] for name in expected}
        self.assertEqual(
            names, {*critics.SIGNATURES['both'], 'serving_default'}
        )
        weights = actual['embed_sparse/weights']
        self.assertTrue((np.diff(weights, axis=1) <= 0).all())
        np.testing.assert_array_equal(
            (weights > 0).sum(axis=1), actual['embed_sparse/count']
        )
        card = workdirs.card_of(version)
        self.assertIn('| `tokens` | [B, U] | string |', card)
        self.assertIn('| `embeddings` | [B, T, 5] | float32 |', card)
        self.assertIn('late interaction', card)

    def test_weights_are_compared_by_token(self):
        ids = [[2, 5], [5, 0]]
        expected = {
            'x/ids': np.int32(ids), 'x/weights': np.float32([[0.5, 4], [1, 0]])
        }  # fmt: skip
        for ids_of, weights, tolerance, gap in (
            ([[5, 2], [5, 0]], [[4, 0.5], [1, 0]], 1e-5, 0),
            (ids, [[0.5, 4], [0.75, 0]], 1e-5, 0.25),
            ([[2, 5], [6, 0]], [[0.5, 4], [1, 0]], 1e-5, 1),
            (ids, [[0.5, 3], [1, 0]], 0.1, 0.25),  # a share of 4
            (ids, [[0.5, np.nan], [1, 0]], 1e-5, np.inf),
        ):
            actual = {'x/ids': np.int32(ids_of), 'x/weights': np.array(weights)}
            self.assertEqual(
                comparison.difference(actual, expected, tolerance),
                {'x/weights': gap},
            )
        gaps = comparison.difference({}, expected, 1e-5)
        self.assertEqual(gaps, {'x/weights': np.inf})
        # No share of less than 1, and what stands beside them.
        less = expected | {'x/weights': expected['x/weights'] / 8}
        none = expected | {'x/weights': 0 * expected['x/weights']}
        self.assertEqual(
            comparison.difference(none, less, 0.1), {'x/weights': 0.5}
        )
        beside = [expected | {'x/embeddings': np.float32([[1, x]])}
                  for x in (2.5, 2)]  # fmt: skip
        self.assertEqual(
            comparison.difference(*beside, 1e-5),
            {'x/weights': 0, 'x/embeddings': 0.5},
        )

    def test_people_can_read_weights(self):
        served, text = critics.served('both')['embed_sparse'], critics.TEXTS[0]
        (terms,) = critics.loaded('both').terms([text], top_k=9)
        tokens = workdirs.answer(served, [text])['tokens'][0, :9]
        self.assertEqual([x.decode() for x in tokens], [x for x, _ in terms])
        shown = demo.ask('embed_sparse', served, text)
        self.assertEqual(shown[0], (terms[0][0], f'{terms[0][1]:.2f}'))
