"""Two replicas are one: the same loss, gradients and update of a batch."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.layers import dropout
from infoword_tf.training import distribution, loop, optim
from infoword_tf.views import flatten, unflatten
from tests import zoo

# Settings that change how a pair is scored, not what it is compared with; a
# sum of rows that other sums have.
SCORED_ALIKE = ('mlm_transform', 'dim_scaled', 'plm_strict', 'mlm_nsp_nce')
BATCHES = [
    # Other critics have no fused pieces of their own.
    *(
        (name, 8, not name.startswith('dim_'))
        for name in zoo.CASES
        if name not in SCORED_ALIKE
    ),
    # More targets than there are words: other columns.
    ('bert_nce', 24, False),
]


def shares(strategy, flat):
    """Each replica's rows of a flat global batch."""
    count = strategy.num_replicas_in_sync

    def rows(context):
        i = context.replica_id_in_sync_group
        size = len(next(iter(flat.values()))) // count
        return {
            name: tf.constant(array[i * size : (i + 1) * size])
            for name, array in flat.items()
        }

    return strategy.experimental_distribute_values_from_function(rows)


def local(strategy, values):
    """What each replica returned, NumPy."""
    return [
        value.numpy() for value in strategy.experimental_local_results(values)
    ]


def loss_and_gradients(strategy, name, batch, keyed):
    """As a training step has them: loss, outcomes [rows, 7], gradients."""
    with strategy.scope():
        model = zoo.make_model(name, rate=0.0)
    kl = model.kl(zoo.frequencies())
    variables = {path: v.value for path, v in model.variables.items()}

    def step(flat):
        replicas = distribution.StrategyReplicas()
        key = dropout.new_key(0, 0, replicas.id) if keyed else None
        with tf.GradientTape() as tape:
            outcomes, _ = model.outcomes(
                unflatten(flat), kl, key, replicas
            )
            loss = model.loss(outcomes, replicas)
        gradients = tape.gradient(
            loss,
            list(variables.values()),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        gradients = [tf.convert_to_tensor(g) for g in gradients]
        return (
            replicas.sum(loss),
            replicas.sum(tf.stack([tf.stack(o) for o in outcomes.values()])),
            replicas.sum_all(gradients),
        )

    flat = flatten(zoo.make_views(name, batch))
    loss, sums, gradients = tf.function(
        lambda x: strategy.run(step, args=(x,))
    )(shares(strategy, flat))
    return (
        local(strategy, loss)[0],
        local(strategy, sums)[0],
        {
            path: local(strategy, g)
            for path, g in zip(variables, gradients, strict=True)
        },
    )


class SameAsOneTest(parameterized.TestCase):
    @parameterized.parameters(*BATCHES)
    def test_loss_and_gradients(self, name, batch, keyed):
        (loss, sums, gradients), (loss_2, sums_2, gradients_2) = (
            loss_and_gradients(zoo.strategy(replicas), name, batch, keyed)
            for replicas in (1, 2)
        )
        self.assertAlmostEqual(loss_2, loss, delta=1e-6 * abs(loss))
        np.testing.assert_allclose(sums_2, sums, rtol=1e-6, atol=1e-5)
        weights = list(zoo.CASES[name].rows.values())
        self.assertAlmostEqual(
            loss, weights @ (sums[:, 0] / sums[:, 1]), delta=1e-6 * abs(loss)
        )
        largest = max(np.abs(g[0]).max() for g in gradients.values())
        self.assertGreater(largest, 0.005)
        # All texts begin alike in a random model: in the gradient of `dim`
        # terms cancel that are much larger than it. Another order of the same
        # batch changes it as much on one device.
        sums_of_texts = {'dim', 'ict', 'nsp_nce'}
        alike = sums_of_texts.intersection(zoo.CASES[name].rows)
        near = 1e-5 if alike else 1e-6
        for path, (gradient,) in gradients.items():
            first, second = gradients_2[path]
            np.testing.assert_array_equal(first, second, path)
            np.testing.assert_allclose(
                first, gradient, rtol=0, atol=near * largest, err_msg=path
            )

    def test_a_replica_alone_would_miss_candidates(self):
        """The test above can fail: half the batch has another loss."""
        flat = flatten(zoo.make_views('bert_nce', 8))
        model = zoo.make_model('bert_nce', 0.0)
        halves = 0.0
        for part in (slice(0, 4), slice(4, 8)):
            half = {k: tf.constant(v[part]) for k, v in flat.items()}
            outcomes, _ = model.outcomes(unflatten(half), {'bert_nce': 0.0})
            halves += float(model.loss(outcomes)) / 2
        outcomes, _ = model.outcomes(unflatten(flat), {'bert_nce': 0.0})
        self.assertGreater(float(model.loss(outcomes)), halves + 0.1)


class DropoutTest(absltest.TestCase):
    def test_replicas_draw_their_own_masks(self):
        strategy = zoo.strategy(2)
        flat = flatten(zoo.make_views('mlm', 4))
        flat = {k: np.concatenate([v, v]) for k, v in flat.items()}
        with strategy.scope():
            model = zoo.make_model('mlm', rate=0.1)

        def states(flat, key=None):
            if key is None:
                replicas = distribution.StrategyReplicas()
                key = dropout.new_key(0, 7, replicas.id)
            return model.encode(unflatten(flat), key)[0]['mlm']['masked']

        first, second = local(
            strategy,
            tf.function(lambda x: strategy.run(states, args=(x,)))(
                shares(strategy, flat)
            ),
        )
        self.assertTrue((np.abs(first - second).max(axis=(1, 2)) > 0.1).all())
        half = {k: tf.constant(v[:4]) for k, v in flat.items()}
        for replica, found in enumerate((first, second)):
            np.testing.assert_allclose(
                found, states(half, dropout.new_key(0, 7, replica)), atol=1e-5
            )


class UpdateTest(absltest.TestCase):
    """Steps of the trainer itself, with a clip that is always active."""

    CLIP, SEED = 0.01, 3

    def make(self, replicas, name, steps):
        strategy = zoo.strategy(replicas)
        with strategy.scope():
            model = zoo.make_model(name, rate=0.0)
            optimizer = optim.AdamW(model.variables, 0.01, self.CLIP)
        batches = [
            flatten(zoo.make_views(name, 8, seed=s)) for s in range(steps)
        ]
        dataset = tf.data.Dataset.from_tensor_slices(
            {k: np.stack([b[k] for b in batches]) for k in batches[0]}
        )
        step = tf.Variable(0, dtype=tf.int64, trainable=False)
        trainer = loop.Trainer(
            model,
            dataset,
            strategy,
            optimizer,
            step,
            lambda s: tf.constant(1e-3),
            model.kl(zoo.frequencies()),
            seed=self.SEED,
            batch_size=next(iter(dataset.element_spec.values())).shape[0],
        )
        return trainer, optimizer

    def test_keys_are_of_seed_step_and_replica(self):
        """Two steps of two replicas, their four keys summed in halves."""
        trainer, _ = self.make(2, 'mlm', 2)

        def gradients(batch, key, memories):
            del batch
            halves = tf.stack([key // 65536, key % 65536], axis=1)
            sums = tf.concat([tf.reshape(halves, [-1]), [0, 0, 0]], 0)
            variables = trainer.optimizer.variables.values()
            return (
                [tf.zeros(variable.shape) for variable in variables],
                tf.cast(sums, tf.float32)[None],
                memories,
            )

        trainer.gradients = gradients
        trainer.train(tf.constant(2))
        expected = np.zeros(7)
        for step in range(2):
            for replica in range(2):
                key = dropout.new_key(self.SEED, step, replica).numpy()
                halves = np.stack([key // 65536, key % 65536], axis=1)
                expected[:4] += halves.ravel()
        np.testing.assert_array_equal(trainer.sums.numpy()[0], expected)

    def test_two_replicas_make_the_update_of_one(self):
        slots, weights, reports = [], [], []
        for replicas in (1, 2):
            trainer, optimizer = self.make(replicas, 'bert_nce', 3)
            before = [v.numpy() for v in optimizer.variables.values()]
            trainer.train(tf.constant(1))
            # m is a tenth of the gradient then, which is cut to CLIP.
            moments = {k: v.numpy() for k, v in optimizer.slots.items()}
            norm = math.sqrt(
                sum(
                    (v.astype(np.float64) ** 2).sum()
                    for k, v in moments.items()
                    if k.startswith('m/')
                )
            )
            self.assertAlmostEqual(norm, 0.1 * self.CLIP, delta=1e-8)
            slots.append(moments)
            reports.append(trainer.train(tf.constant(2)))
            after = [v.numpy() for v in optimizer.variables.values()]
            weights.append(dict(zip(optimizer.variables, after, strict=True)))
            for old, new in zip(before, after, strict=True):
                self.assertGreater(np.abs(new - old).max(), 1e-4)
        largest = max(
            np.abs(v).max() for k, v in slots[0].items() if k[0] == 'm'
        )
        for path, value in slots[0].items():
            np.testing.assert_allclose(
                slots[1][path], value, rtol=0, atol=1e-6 * largest
            )
        for path, value in weights[0].items():
            np.testing.assert_allclose(
                weights[1][path], value, rtol=0, atol=1e-5, err_msg=path
            )
        self.assertEqual(set(reports[0]), set(reports[1]))
        for metric, value in reports[0].items():
            self.assertAlmostEqual(reports[1][metric], value, places=5)


class ReplicasTest(absltest.TestCase):
    def run_on_two(self, function):
        strategy = zoo.strategy(2)
        return local(strategy, tf.function(lambda: strategy.run(function))())

    def test_number_and_count(self):
        def numbers():
            replicas = distribution.StrategyReplicas()
            return tf.stack([replicas.id, replicas.count])

        self.assertEqual(
            [found.tolist() for found in self.run_on_two(numbers)],
            [[0, 2], [1, 2]],
        )

    def test_gather_and_its_gradient(self):
        """Replica r has x = [r + 1] and the loss (r + 2) * sum(gather(x)^2).

        Of the sum of both losses, 5 (x0^2 + x1^2), the gradient is 10 x.
        """

        def gathered():
            replicas = distribution.StrategyReplicas()
            x = tf.cast(tf.reshape(replicas.id, [1]), tf.float32) + 1.0
            with tf.GradientTape() as tape:
                tape.watch(x)
                everyone = replicas.gather(x)
                loss = (x[0] + 1.0) * 0.0
                factor = tf.stop_gradient(x[0] + 1.0)
                loss += factor * tf.reduce_sum(everyone**2)
            return tf.concat([everyone, tape.gradient(loss, x)], 0)

        self.assertEqual(
            [found.tolist() for found in self.run_on_two(gathered)],
            [[1.0, 2.0, 10.0], [1.0, 2.0, 20.0]],
        )

    def test_sum_has_no_gradient(self):
        def summed():
            replicas = distribution.StrategyReplicas()
            x = tf.cast(replicas.id, tf.float32) + 1.0
            with tf.GradientTape() as tape:
                tape.watch(x)
                total = replicas.sum(x)
                loss = total * x
            return tf.stack([total, tape.gradient(loss, x)])

        self.assertEqual(
            [found.tolist() for found in self.run_on_two(summed)],
            [[3.0, 3.0], [3.0, 3.0]],
        )

    def test_sum_all(self):
        def summed():
            replicas = distribution.StrategyReplicas()
            x = tf.cast(replicas.id, tf.float32) + 1.0
            return tf.concat(replicas.sum_all([x * [1.0, 2.0], [x]]), 0)

        for found in self.run_on_two(summed):
            self.assertEqual(found.tolist(), [3.0, 6.0, 3.0])

    def test_one_replica_keeps_what_it_has(self):
        strategy = zoo.strategy(1)

        def alone():
            replicas = distribution.StrategyReplicas()
            x = tf.constant([4.0])
            return tf.concat(
                [replicas.gather(x), replicas.sum(x), *replicas.sum_all([x])],
                0,
            )

        (found,) = local(strategy, strategy.run(alone))
        self.assertEqual(found.tolist(), [4.0, 4.0, 4.0])


class StrategyTest(absltest.TestCase):
    def test_unknown(self):
        with self.assertRaisesRegex(
            ValueError,
            '--strategy=horovod: known are one, mirrored, multiworker, tpu',
        ):
            distribution.make_strategy('horovod')

    def test_logical_cpus_need_the_mirrored_strategy(self):
        for name in ('one', 'multiworker', 'tpu'):
            with self.assertRaisesRegex(
                ValueError, '--logical_cpus=2 is for --strategy=mirrored'
            ):
                distribution.make_strategy(name, logical_cpus=2)

    def test_one_and_mirrored(self):
        strategy = distribution.make_strategy('one')
        self.assertEqual(strategy.num_replicas_in_sync, 1)
        kind = 'GPU' if tf.config.list_physical_devices('GPU') else 'CPU'
        strategy = distribution.make_strategy('mirrored')
        self.assertEqual(
            strategy.num_replicas_in_sync,
            len(tf.config.list_logical_devices(kind)),
        )


if __name__ == '__main__':
    absltest.main()
