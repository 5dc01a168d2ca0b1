"""Dense layers over vectors, written out."""

import numpy as np
from scipy import special

from infoword_tf.layers.dense import Dense
from tests.near import near
from tests.objectives.eq1 import EagerCase, drawn
from tests.refused import refused


class DenseTest(EagerCase):
    def test_by_hand(self):
        x = np.float32([[1, -2], [0.5, 3]])
        for activation, function in (
            ('gelu', lambda h: h * special.ndtr(h)), ('tanh', np.tanh),
            ('relu', lambda h: h.clip(0)),
        ):  # fmt: skip
            layer = drawn(Dense(2, 3, activation))
            h = x @ layer.kernel.numpy() + layer.bias.numpy()
            near(layer(x), function(h), atol=1e-5)
        layer = drawn(Dense(2, 3, 'identity', bias=False))
        self.assertLen(layer.weights, 1)
        near(layer(x), x @ layer.kernel.numpy(), atol=1e-5)

    def test_an_unknown_activation(self):
        with refused('unknown_head_activation', "'swish'", 'identity'):
            Dense(2, 3, 'swish')
