"""Exports of models that compare texts otherwise than by two vectors."""

import numpy as np
from absl.testing import absltest

from export import comparison, demo, serving_ops
from infoword_tf.config import read_exported
from tests.export import answers, critics, workdirs

NAMES = [*critics.SIGNATURES['both']]


def setUpModule():
    critics.exported('both')


class CriticsTest(absltest.TestCase):
    def test_says_what_the_workdir_says(self):
        content = [
            *(text.encode() for text in critics.TEXTS), *comparison.NASTY[:-2]
        ]  # fmt: skip
        version = critics.exported('both')
        self.assertEmpty(serving_ops.unservable(version))
        _, export = read_exported(version)
        self.assertEqual(export['default'], 'embed_tokens')
        batches = {'all': content, 'none': []}
        actual = answers.here(version, batches)
        expected = {
            batch: answers.in_python(critics.loaded('both'), texts, NAMES)
            for batch, texts in batches.items()
        }
        gaps = comparison.largest(actual, expected, 1e-5)
        self.assertLen(gaps, 6)
        self.assertLess(max(gaps.values()), 1e-5, gaps)
        weights = actual['all']['embed_sparse/weights']
        self.assertTrue((np.diff(weights, axis=1) <= 0).all())
        np.testing.assert_array_equal(
            (weights > 0).sum(axis=1), actual['all']['embed_sparse/count']
        )
        # A weight that differs, and one of another token.
        for output, more in (('weights', 9), ('ids', 899)):
            name = f'embed_sparse/{output}'
            other = actual['all'] | {name: actual['all'][name] + more}
            gaps = comparison.difference(other, expected['all'], 1e-5)
            self.assertGreater(gaps['embed_sparse/weights'], 0.1)
        card = workdirs.card_of(version)
        self.assertIn('| `tokens` | [B, U] | string |', card)
        self.assertIn('| `embeddings` | [B, T, 5] | float32 |', card)
        self.assertIn('late interaction', card)

    def test_people_can_read_weights(self):
        served, text = critics.served('both')['embed_sparse'], critics.TEXTS[0]
        (terms,) = critics.loaded('both').terms([text], top_k=9)
        tokens = workdirs.answer(served, [text])['tokens'][0, :9]
        self.assertEqual([x.decode() for x in tokens], [x for x, _ in terms])
        shown = demo.ask('embed_sparse', served, text)
        self.assertEqual(shown[0], (terms[0][0], f'{terms[0][1]:.2f}'))
