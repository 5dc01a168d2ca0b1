"""Arrays of public files."""

import numpy as np
from absl.testing import parameterized

from infoword_tf.weights import tensors


class TensorsTest(parameterized.TestCase):
    @parameterized.parameters(
        ('float16', 'float32'), ('float32', 'float32'), ('float64', 'float32'),
        ('int8', 'int8'), ('int64', 'int64'), ('uint8', 'uint8'),
        ('bool', 'bool'),
    )  # fmt: skip
    def test_floats_alone_become_float32(self, stored, expected):
        array = np.array([0, 1], stored)
        actual = tensors.Tensors({'x': lambda: array}, 'file')['x']
        self.assertEqual(actual.dtype, expected)
        np.testing.assert_array_equal(actual, [0, 1])
