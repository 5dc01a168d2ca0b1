"""Inputs of signatures, and how fast they answer, by a clock of its own."""

import time
import types
from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from export import runner


class RunnerTest(absltest.TestCase):
    def test_inputs(self):
        """Texts are paired from the last to the first."""
        texts = tf.constant(['a', 'b', 'c'])
        for name, expected in (
            ('pairs', [b'c', b'b', b'a']),
            ('choices', [[b'c', b'a'], [b'b', b'b'], [b'a', b'c']]),
        ):
            names = ((), {'texts': None, name: None})
            function = types.SimpleNamespace(structured_input_signature=names)
            inputs = runner.inputs_of(function, texts)
            self.assertEqual(inputs[name].numpy().tolist(), expected)
            self.assertIs(inputs['texts'], texts)

    def test_speed(self):
        """A text takes 2 ms; at first 9 more, as all do after ten of them."""
        clock, sizes = [0.0], []

        def function(texts):
            sizes.append(len(texts))
            clock[0] += 0.002 * len(texts) + 0.009 * (len(sizes) < 12)
            return {'score': tf.zeros(len(texts))}

        function.structured_input_signature = ((), {'texts': None})
        texts = tf.constant([*'abcdefghijkl'])
        with mock.patch.object(time, 'perf_counter', lambda: clock[0]):
            speed = runner.speed_of(function, texts)
        self.assertAlmostEqual(speed['one'], 2)
        self.assertAlmostEqual(speed['many'], 500)
        self.assertEqual(sizes, [1] * 10 + [12] + [1] * 12 + [12] * 3)
