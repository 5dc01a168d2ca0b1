"""Adapters: what they change, what learns, and what a workdir holds."""

import dataclasses
import functools
import re

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.config import AdapterConfig
from infoword_tf.layers import dropout
from infoword_tf.model import Model
from infoword_tf.objectives import Replicas
from infoword_tf.training.microbatch import MicrobatchStep
from infoword_tf.views import flatten, unflatten
from tests import places, zoo
from tests.eager import eagerly

LORA = AdapterConfig('lora', rank=2, alpha=3.0, where='all', frozen='float32')
SCALE = 1.5
# Cases of encoders that have adapters, and parts of the first layer.
JOINED = ['qkv_kernel/query', 'qkv_kernel/key', 'qkv_kernel/value']
CASES = {
    'label': [*JOINED, 'output_kernel', 'inner_kernel', 'outer_kernel'],
    'label_modern': [*JOINED, 'output_kernel', 'inner_kernel/gate',
                     'inner_kernel/up', 'outer_kernel'],
    'label_relative': [*JOINED, 'position_kernel', 'output_kernel',
                       'inner_kernel', 'outer_kernel'],
}  # fmt: skip


def setUpModule():
    places.make()


@functools.cache
def views_of(name):
    flat = flatten(zoo.make_views(name))
    return unflatten({k: tf.constant(x) for k, x in flat.items()})


def with_adapters(name, **changes):
    """A case's model with adapters, B of 0, and the model without them."""
    plain = zoo.make_model(name)
    lora = dataclasses.replace(LORA, **changes)
    model = Model(plain.config.replace(adapter=lora), zoo.SPECIALS)
    for path, variable in plain.variables.items():
        model.variables[path].assign(variable)
    return model, plain


def set_b(model):
    """Draws every B."""
    random = np.random.default_rng(1)
    for path, variable in model.variables.items():
        if path.startswith('adapters/') and path.endswith('/b'):
            variable.assign(0.3 * random.standard_normal(variable.shape))


def gradients(model, name, variables, key=(0, 3)):
    """Sums of the outcome, and gradients as arrays."""
    key = dropout.new_key(*key) if key else None
    state = {n: e.empty for n, e in model.empty_state(8).items()}
    with eagerly(), tf.GradientTape() as tape:
        outcomes, _ = model.outcomes(
            views_of(name), zoo.statistics(), key, state=state
        )
        loss = model.loss(outcomes)
    each = tape.gradient(loss, [v.value for v in variables])
    (outcome,) = outcomes.values()
    return np.array(outcome.sums), [x.numpy() for x in each]


class ModelTest(parameterized.TestCase):
    @parameterized.parameters(*zip(CASES))
    def test_a_model_with_adapters(self, name):
        model, plain = with_adapters(name)
        a = [p for p in model.trainable if p.endswith('/a')]
        parts = [re.sub('.*?/layer_0/(attention/)?|/a$', '', p) for p in a]
        self.assertEqual(set(CASES[name]), set(parts) & set(CASES[name]))
        self.assertTrue(all(np.any(model.variables[p].numpy()) for p in a))
        kernels = {k.path: k for k, _ in model.adapters.kernels}
        of_plain = [plain.variables[path] for path in kernels]

        # B = 0 changes no bit, with dropout and without.
        for key in ((0, 3), None):
            expected, _ = gradients(plain, name, of_plain, key)
            actual, _ = gradients(model, name, model.adapters.weights, key)
            np.testing.assert_array_equal(actual, expected)

        # What it computes is what the plain model does with W + s A B.
        set_b(model)
        for kernel, value in model.adapters.values():
            plain.variables[kernel.path].assign(value)
        expected, of_kernels = gradients(plain, name, of_plain)
        learning = list(model.trainable.values())
        actual, each = gradients(model, name, learning)
        np.testing.assert_array_equal(actual, expected)
        each = dict(zip(model.trainable, each, strict=True))

        # dA = s dW B^T and dB = s A^T dW, of the columns of a part.
        of_kernels = dict(zip(kernels, of_kernels, strict=True))
        for kernel, of_kernel in model.adapters.kernels:
            for part, a, b in of_kernel:
                columns = slice(part.begin, part.begin + part.width)
                d = of_kernels[kernel.path][:, columns]
                for path, value in (
                    (a.path, d @ b.numpy().T), (b.path, a.numpy().T @ d),
                ):  # fmt: skip
                    scale = np.abs(value).max()
                    np.testing.assert_allclose(
                        each[path], SCALE * value, rtol=1e-4, atol=1e-5 * scale
                    )

        # In microbatches, and with the blocks computed again.
        state = {n: e.empty for n, e in model.empty_state(8).items()}
        step = MicrobatchStep(
            model, views_of(name), zoo.statistics(), dropout.new_key(0, 3),
            Replicas(), state, 3,
        )  # fmt: skip
        with eagerly():
            others = [step.gradients([v.value for v in learning])[0]]
        if model.encoder.can_remat:
            model.encoder.remat = True
            others.append(gradients(model, name, learning)[1])
        for other in others:
            for path, x in zip(model.trainable, other, strict=True):
                scale = np.abs(each[path]).max()
                np.testing.assert_allclose(
                    x, each[path], rtol=1e-4, atol=1e-5 * scale, err_msg=path
                )

    def test_what_learns_and_what_is_written(self):
        model, plain = with_adapters('label')
        of_encoder = {p for p in plain.variables if p.startswith('encoder/')}
        self.assertEqual(
            set(model.variables) - set(plain.variables),
            {w.path for w in model.adapters.weights},
        )
        for weights in (model.trainable, model.checkpointed, model.exported):
            self.assertEqual(set(weights), set(model.variables) - of_encoder)
        self.assertEqual(set(model.inherited), set(model.variables))
