"""The state of a run between steps."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from infoword_tf.objectives.candidates import ScatterUpdate
from infoword_tf.training.state import apply_updates


class UpdatesTest(absltest.TestCase):
    def test_places_are_written_and_others_stay(self):
        old = {'row': {'x': tf.constant([[1], [2], [3]]), 'n': 7}, 'other': 5}
        update = ScatterUpdate(tf.constant([[8], [9]]), tf.constant([2, 0]))
        actual = apply_updates(old, {'row': {'x': update, 'n': 6}, 'other': 4})
        self.assertEqual((actual['row']['n'], actual['other']), (6, 4))
        np.testing.assert_array_equal(actual['row']['x'], [[9], [2], [8]])
