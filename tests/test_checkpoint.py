"""Files of weights, and what is read of them."""

import pathlib

import numpy as np
from absl.testing import absltest

from infoword_tf import checkpoint
from infoword_tf.config import WEIGHTS


class WeightsStepTest(absltest.TestCase):
    def test_a_damaged_file_has_none_where_it_is_checked(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        self.assertIsNone(checkpoint.weights_step(folder))
        checkpoint.write_weights(folder, {'a': np.ones(5, np.float32)}, 7)
        for checked in (False, True):
            self.assertEqual(checkpoint.weights_step(folder, checked), 7)
        data = (folder / WEIGHTS).read_bytes()
        one = np.ones(5, np.float32).tobytes()
        self.assertEqual(data.count(one), 1)
        (folder / WEIGHTS).write_bytes(data.replace(one, one[:-1] + b'\x3e'))
        self.assertEqual(checkpoint.weights_step(folder), 7)
        self.assertIsNone(checkpoint.weights_step(folder, checked=True))
