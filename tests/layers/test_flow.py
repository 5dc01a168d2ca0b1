"""The invertible network, beside itself written out in float64."""

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf.layers.flow import Flow


def drawn(width, levels, depth, hidden=5):
    """A flow of random weights, and these by step."""
    flow = Flow(width, levels, depth, hidden)
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
            (np.float64(layer.kernel), np.float64(layer.bias))
            for layer in (step.mix, *step.net)
        ]
        for step in flow.steps
    ]
    return flow, steps


def moved(first, layers):
    """What a coupling adds: [B, half] -> [B, D - half]."""
    *inner, (kernel, bias) = layers
    for inner_kernel, inner_bias in inner:
        first = np.maximum(first @ inner_kernel + inner_bias, 0)
    return first @ kernel + bias


def forward(x, steps, depth):
    done = []
    for number, ((kernel, bias), *net) in enumerate(steps):
        if number and number % depth == 0:
            kept = -(-x.shape[1] // 2)
            x, finished = x[:, :kept], x[:, kept:]
            done.append(finished)
        x, half = x @ kernel + bias, x.shape[1] // 2
        x = np.concatenate(
            [x[:, :half], x[:, half:] + moved(x[:, :half], net)], axis=1
        )
    return np.concatenate([*done, x], axis=1)


def backward(z, steps, depth):
    """What the levels have given, from the last one back."""
    x = z[:, z.shape[1] - len(steps[-1][0][1]) :]
    for number in reversed(range(len(steps))):
        (kernel, bias), *net = steps[number]
        half = x.shape[1] // 2
        x = np.concatenate(
            [x[:, :half], x[:, half:] - moved(x[:, :half], net)], axis=1
        )
        x = (x - bias) @ np.linalg.inv(kernel)
        if number and number % depth == 0:
            wide = len(steps[number - 1][0][1])
            done = sum(
                len(steps[i][0][1]) - len(steps[i + depth][0][1])
                for i in range(0, number - depth, depth)
            )
            finished = z[:, done : done + wide - x.shape[1]]
            x = np.concatenate([x, finished], axis=1)
    return x


class FlowTest(parameterized.TestCase):
    @parameterized.parameters((6, 1, 2), (8, 2, 2), (7, 2, 1), (13, 3, 2))
    def test_written_out(self, width, levels, depth):
        """Values, the way back, and the determinant of all differences."""
        flow, steps = drawn(width, levels, depth)
        x = np.random.default_rng(1).standard_normal((9, width))
        z = forward(x, steps, depth)
        self.assertEqual(z.shape, x.shape)
        np.testing.assert_allclose(flow(np.float32(x)), z, atol=1e-5)
        np.testing.assert_allclose(backward(z, steps, depth), x, atol=1e-6)
        for one in x[:3]:
            tiny = 1e-6 * np.eye(width)
            jacobian = (
                forward(one + tiny, steps, depth)
                - forward(one - tiny, steps, depth)
            ) / 2e-6
            _, wanted = np.linalg.slogdet(jacobian)
            self.assertAlmostEqual(float(flow.log_det()), wanted, delta=1e-4)

    def test_too_many_levels(self):
        Flow(9, 3, 1, 4)  # 9, 5, 3
        with self.assertRaisesRegex(ValueError, '5 levels halve .* of 9'):
            Flow(9, 5, 1, 4)


if __name__ == '__main__':
    absltest.main()
