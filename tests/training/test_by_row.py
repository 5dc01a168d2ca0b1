"""Updates of rows that were read, and of nothing else."""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.layers import dropout
from infoword_tf.training import optim
from tests import zoo
from tests.near import assert_near

V, D = 12, 4
PATH = 'encoder/word_embeddings'


def make_optimizer(**changes):
    random = np.random.default_rng(0)
    table = random.standard_normal((V, D)).astype(np.float32)
    bias = random.standard_normal(D).astype(np.float32)
    variables = {PATH: keras.Variable(table), 'bias': keras.Variable(bias)}
    rules = optim.preset('word2vec')._replace(**changes)
    return optim.AdamW(variables, rules)


def make_gradients(step):
    """Draws gradients of rows, a few of them twice, and of a bias."""
    random = np.random.default_rng([1, step])
    rows = random.integers(0, 6, 9)
    values = random.standard_normal((9, D)).astype(np.float32)
    return rows, values, random.standard_normal(D).astype(np.float32)


def sparse(rows, values):
    return tf.IndexedSlices(tf.constant(values), tf.constant(rows), (V, D))


def apply(optimizer, gradients, step=0, allowed=True):
    return optimizer.apply(
        [optimizer.gradient(g) for g in gradients],
        tf.constant(0.1),
        tf.constant(step, tf.int64),
        tf.constant(allowed),
    )


class ByRowTest(parameterized.TestCase):
    @parameterized.parameters((0.0, 0.0), (0.5, 0.0), (0.0, 0.02))
    def test_written_out(self, clip, decay):
        """In float64: sums over what was read twice come first."""
        optimizer = make_optimizer(clip_norm=clip, weight_decay=decay)
        table = optimizer.variables[PATH].numpy().astype(np.float64)
        bias = optimizer.variables['bias'].numpy().astype(np.float64)
        squares, of_bias = np.zeros(V), np.zeros(D)
        for step in range(4):
            rows, values, other = make_gradients(step)
            gradient = np.zeros((V, D))
            np.add.at(gradient, rows, values)
            norm = np.sqrt((gradient**2).sum() + (other**2).sum())
            scale = min(1, clip / norm) if clip else 1
            read = np.unique(rows)
            g = gradient[read] * scale
            squares[read] += (g**2).mean(axis=1)
            of_bias += (other * scale) ** 2
            table[read] -= 0.1 * (
                g / np.sqrt(squares[read])[:, None] + decay * table[read]
            )
            bias -= 0.1 * other * scale / np.sqrt(of_bias)
            done = apply(
                optimizer, [sparse(rows, values), tf.constant(other)], step
            )
            self.assertTrue(bool(done))
        expected = {PATH: table, 'bias': bias}
        assert_near(optimizer.variables, expected, rtol=1e-5, atol=1e-6)
        assert_near(optimizer.slots, {f'v/{PATH}': squares}, rtol=1e-5)

    def test_a_dense_gradient_gives_the_same(self):
        one, two = make_optimizer(), make_optimizer()
        for step in range(3):
            rows, values, other = make_gradients(step)
            gradient = sparse(rows, values)
            apply(one, [gradient, tf.constant(other)], step)
            dense = tf.convert_to_tensor(gradient)
            apply(two, [dense, tf.constant(other)], step)
        assert_near(one.variables, two.variables, rtol=1e-5, atol=1e-7)

    @parameterized.parameters(np.nan, np.inf)
    def test_what_is_not_finite_changes_nothing(self, value):
        optimizer = make_optimizer()
        before = {k: v.numpy() for k, v in optimizer.variables.items()}
        rows, values, other = make_gradients(0)
        values[3, 1] = value
        self.assertFalse(
            bool(apply(optimizer, [sparse(rows, values), tf.constant(other)]))
        )
        assert_near(optimizer.variables, before)

    def test_other_rules_take_dense_gradients(self):
        """Adam's averages fall where nothing was read, too."""
        optimizer = optim.AdamW({PATH: keras.Variable(np.ones((V, D)))})
        actual = optimizer.gradient(sparse(*make_gradients(0)[:2]))
        self.assertIsInstance(actual, tf.Tensor)

    def test_slots_have_a_number_a_row(self):
        shapes = {k: v.shape for k, v in make_optimizer().slots.items()}
        self.assertEqual(shapes, {f'v/{PATH}': (V,), 'v/bias': (D,)})


def make_trainer(name, replicas):
    rules = optim.preset('word2vec')
    return zoo.make_trainer(name, replicas, 3, rules=rules, rate=0.05)


def operations(graph):
    """Yields all operations of a graph and of the functions in it."""
    yield from graph.get_operations()
    for function in graph._functions.values():
        inner = getattr(function, 'graph', None)
        if inner is not None:
            yield from operations(inner)


class TrainerTest(parameterized.TestCase):
    def test_two_replicas_are_one_device(self, name='cbow'):
        weights = []
        for replicas in (1, 2):
            trainer = make_trainer(name, replicas)
            trainer.train(tf.constant(3))
            weights.append({
                path: v.numpy() for path, v in trainer.model.variables.items()
            })  # fmt: skip
        before = zoo.make_model(name, rate=0.0).variables
        assert_near(weights[1], weights[0], rtol=1e-7, atol=2e-4)
        for path, value in weights[0].items():
            self.assertFalse(np.allclose(value, before[path].numpy()))

    @parameterized.parameters('skip_gram', 'cbow')
    def test_nothing_is_as_large_as_a_table(self, name):
        """But what is read of it: no gradient, no square, no copy."""
        trainer = make_trainer(name, 1)

        @tf.function(autograph=False)
        def step(flat):
            gradients, _, _ = trainer.gradients(
                flat, dropout.new_key(0, 0), trainer.state.read()
            )
            return trainer.optimizer.apply(
                gradients, tf.constant(0.1), tf.constant(0, tf.int64),
                tf.constant(True),
            )  # fmt: skip

        flat = {
            k: tf.constant(v)
            for k, v in zoo.views.flatten(zoo.make_views(name)).items()
        }
        actual = set()
        for op in operations(step.get_concrete_function(flat).graph):
            for output in op.outputs:
                if output.shape.rank == 2 and output.shape[0] == zoo.V:
                    actual.add(op.type)
        # Not even read: that would copy a table that rows are written to.
        self.assertEmpty(actual)
