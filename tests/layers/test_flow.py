"""The invertible network against float64 NumPy."""

import keras
import numpy as np
from absl.testing import parameterized

from infoword_tf.layers.flow import Flow
from tests.refused import refused


def drawn(width, levels, depth, permutation, hidden=5):
    """Makes a flow with random weights, and lists them by step and layer."""
    flow = Flow(width, levels, depth, hidden, permutation)
    flow.build()
    random = np.random.default_rng(0)
    for weight in flow.weights:
        value = random.standard_normal(weight.shape)
        value /= 2 * np.sqrt(weight.shape[0])
        if 'mix/kernel' in weight.path:  # far from singular
            value += np.eye(len(value))
        weight.assign(value)
    steps = [
        [
            [np.float64(weight) for weight in layer.weights]
            for layer in (step.mix, *step.net)
        ]
        for step in flow.steps
    ]
    return flow, steps


def normed(x, bias, log_scale):
    return (x + bias) * np.exp(3 * log_scale)


def moved(first, layers):
    """Computes the shift of a coupling: [B, half] -> [B, D - half]."""
    if len(layers) == 3:  # dense layers, each with a bias
        for kernel, bias in layers[:2]:
            first = np.maximum(first @ kernel + bias, 0)
        kernel, bias = layers[2]
        return first @ kernel + bias
    (one,), norm_one, (two,), norm_two, (three,), norm_three = layers
    first = np.maximum(normed(first @ one, *norm_one), 0)
    first = np.maximum(normed(first @ two, *norm_two), 0)
    return normed(first @ three, *norm_three)


def forward(x, steps, depth):
    done = []
    for number, ((first, second), *net) in enumerate(steps):
        if number and number % depth == 0:
            count = -(-x.shape[1] // 2)
            x, finished = x[:, :count], x[:, count:]
            done.append(finished)
        half = x.shape[1] // 2
        if first.ndim == 2:
            x = x @ first + second
        else:
            x = normed(x, first, second)[:, ::-1]
        x = np.concatenate(
            [x[:, :half], x[:, half:] + moved(x[:, :half], net)], axis=1
        )
    return np.concatenate([*done, x], axis=1)


class FlowTest(parameterized.TestCase):
    @parameterized.product(
        sizes=((6, 1, 2), (8, 2, 2), (7, 2, 1), (13, 3, 2)),
        permutation=('reversal', 'learned'),
    )
    def test_written_out(self, sizes, permutation):
        """Values, and the determinant of all differences."""
        width, _, depth = sizes
        flow, steps = drawn(*sizes, permutation)
        x = np.random.default_rng(1).standard_normal((9, width))
        z = forward(x, steps, depth)
        self.assertEqual(z.shape, x.shape)
        np.testing.assert_allclose(flow(np.float32(x)), z, atol=1e-5)
        for one in x[:3]:
            tiny = 1e-6 * np.eye(width)
            jacobian = (
                forward(one + tiny, steps, depth)
                - forward(one - tiny, steps, depth)
            ) / 2e-6
            _, expected = np.linalg.slogdet(jacobian)
            self.assertAlmostEqual(float(flow.log_det()), expected, delta=1e-4)

    def test_how_many_weights(self):
        """Published: 35 D + 1,152 in each of three steps of 768, 384 and 192
        numbers, couplings 32 wide; nine matrices more are trained otherwise.
        """
        for permutation, expected in (
            ('reversal', 3 * (35 * 1344 + 3 * 1152)),
            ('learned', 3 * (768**2 + 384**2 + 192**2)
             + 3 * (1344 * (1 + 32 + 1 / 2) + 3 * (1024 + 64))),
        ):  # fmt: skip
            flow = Flow(768, 3, 3, 32, permutation)
            with keras.StatelessScope(initialize_variables=False):
                flow.build()
            sizes = [np.prod(w.shape) for w in flow.trainable_weights]
            self.assertEqual(sum(sizes), expected)

    def test_too_many_levels(self):
        Flow(9, 3, 1, 4, 'reversal')  # 9, 5, 3
        with refused('too_many_levels', 5, 9):
            Flow(9, 5, 1, 4, 'reversal')
