"""Lengths of texts by role, as folders of late interaction have them."""

from absl.testing import parameterized

from infoword_tf.weights import multivector
from tests import zoo


class LengthsTest(parameterized.TestCase):
    @parameterized.parameters(
        (8, 16, {'query_length': 8, 'document_length': 16}),
        (None, 16, {'document_length': 16}),
        (8, None, {'query_length': 8}),
        (None, None, {}),
    )
    def test_out_and_in_again(self, query, passage, written):
        lengths = {'query_length': query, 'passage_length': passage}
        config = zoo.config('simcse').replace(**lengths)
        self.assertEqual(multivector.lengths_of(config), written)
        self.assertEqual(multivector.lengths(written), lengths)
