"""Two replicas are one: the same loss, gradients and update of a batch."""


import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.layers import dropout
from infoword_tf.objectives import TABLE
from infoword_tf.training import distribution
from infoword_tf.views import flatten, unflatten
from tests import zoo
from tests.eager import eagerly
from tests.near import assert_near
from tests.objectives.eq1 import F
from tests.processor import REPLICAS
from tests.refused import refused

# Cases by batch size, and whether in a graph: every row, and settings that
# change what a pair is compared with. every_row.py goes over all of them, this
# test over sums of rows: of each row alone test_combined.py has more.
BATCHES = [
    *(
        (name, 8, zoo.GRAPH in case.checks)
        for name, case in zoo.CASES.items()
        if {zoo.REPLICAS, zoo.MORE_REPLICAS} & {*case.checks}
    ),
    # More targets than there are words: other columns.
    ('bert_nce', 24, False),
]


def shares(strategy, flat):
    """Distributes a flat global batch over the replicas."""
    count = strategy.num_replicas_in_sync

    def rows(context):
        i = context.replica_id_in_sync_group
        return {
            name: distribution.shard(tf.constant(array), i, count)
            for name, array in flat.items()
        }

    return strategy.experimental_distribute_values_from_function(rows)


def local(strategy, values):
    return [
        value.numpy() for value in strategy.experimental_local_results(values)
    ]


def step_of(replicas, name, batch, key, rate=0.0, remat=False):
    """Builds a training step: strategy, function, argument, paths."""
    strategy = zoo.strategy(replicas)
    with strategy.scope():
        model = zoo.make_model(name, rate)
    if remat:
        model.encoder.remat = True

    def step(flat):
        replicas = distribution.StrategyReplicas()
        outcomes, _, loss, gradients = zoo.differentiated(
            model, unflatten(flat), zoo.statistics(), key, replicas=replicas,
            weights=model.variables,
        )  # fmt: skip
        sums = tf.stack([tf.stack(o[:F]) for o in outcomes.values()])
        gradients = [gradients[path] for path in model.variables]
        return (
            replicas.sum(loss), replicas.sum(sums), replicas.sum_all(gradients)
        )  # fmt: skip

    flat = shares(strategy, flatten(zoo.make_views(name, batch)))
    return (
        strategy, lambda flat: strategy.run(step, args=(flat,)), flat,
        list(model.variables),
    )  # fmt: skip


def loss_and_gradients(replicas, name, batch, in_graph):
    """Computes a step's loss, outcomes [rows, F] and gradients by path."""
    # Without a graph each fused piece would be compiled by itself.
    key = dropout.new_key(0, 0) if in_graph else None
    strategy, run, flat, paths = step_of(replicas, name, batch, key)
    loss, sums, gradients = (tf.function(run) if in_graph else run)(flat)
    return (
        local(strategy, loss)[0],
        local(strategy, sums)[0],
        {p: local(strategy, g) for p, g in zip(paths, gradients, strict=True)},
    )


class ShareTest(absltest.TestCase):
    def test_all_rows_once_and_zeros(self):
        """Each row of the global batch is one replica's, up to a thousand."""
        for rows, count in ((1024, 1000), (2048, 256), (1000, 1000), (7, 3),
                            (5, 8), (5, 2), (5, 1)):  # fmt: skip
            batch = tf.reshape(tf.range(1, 2 * rows + 1), (rows, 2))
            shards = [
                distribution.shard(batch, i, count).numpy()
                for i in range(count)
            ]
            shape = (-(-rows // count), 2)
            self.assertEqual({shard.shape for shard in shards}, {shape})
            actual = np.concatenate(shards)
            np.testing.assert_array_equal(actual[actual.any(axis=1)], batch)
            self.assertFalse(actual[count * shape[0] :].any())


class SameAsOneTest(parameterized.TestCase):
    def test_every_row_is_here(self):
        rows = {row for name, *_ in BATCHES for row in zoo.CASES[name].rows}
        self.assertEqual(rows, set(TABLE))

    @parameterized.parameters(*(
        x for x in BATCHES if zoo.MORE_REPLICAS not in zoo.CASES[x[0]].checks
    ))
    def test_loss_and_gradients(self, name, batch, in_graph):
        self.check(name, batch, in_graph, 2)

    def check(self, name, batch, in_graph, replicas):
        """Compares `replicas` with one; every_row.py uses it for more."""
        # FLOPS are of training alone, which has a key.
        trained = name in ('ict_lexical', 'simcse_lexical')
        loss, sums, gradients = loss_and_gradients(1, name, batch, trained)
        loss_2, sums_2, gradients_2 = loss_and_gradients(
            replicas, name, batch, in_graph
        )
        # Of more shards more sums are rounded.
        more = 1 if replicas == 2 else 3
        self.assertAlmostEqual(loss_2, loss, delta=more * 1e-6 * abs(loss))
        # MI is a difference of what may be much larger.
        sizes = np.abs(sums).max(axis=1, keepdims=True)
        np.testing.assert_array_less(
            np.abs(sums_2 - sums),
            more * 2e-6 * np.broadcast_to(sizes, sums.shape),
        )
        rows = zoo.CASES[name].resolved.rows
        weights = [entry.weight for entry in rows.values()]
        self.assertAlmostEqual(
            loss, weights @ (sums[:, 0] / sums[:, 1]), delta=1e-6 * abs(loss)
        )
        largest = max(np.abs(g[0]).max() for g in gradients.values())
        self.assertGreater(largest, 0.004)
        # All texts begin alike in a random model: in the gradient of `dim`
        # terms cancel that are much larger than it. Another order of the same
        # batch changes it as much on one device.
        sums_of_texts = {'dim', 'ict', 'nsp_nce', 'xlco'}
        alike = sums_of_texts.intersection(zoo.CASES[name].rows)
        # In a graph the loop of `rnn_lm` is compiled, and sums otherwise.
        # A norm over the batch takes their mean off.
        # Each a stands in all candidates of `cross`; tokens of `late` are many.
        apart = name in (
            'rnn_lm', 'infocse_paper', 'simcse_cross', 'simcse_late',
        )  # fmt: skip
        near = more * (1e-5 if alike or apart else REPLICAS)
        alone = {path: gradient for path, (gradient,) in gradients.items()}
        for each in zip(*gradients_2.values(), strict=True):
            of_replica = dict(zip(gradients_2, each, strict=True))
            assert_near(of_replica, alone, atol=near * largest)
            assert_near(of_replica, {p: x[0] for p, x in gradients_2.items()})


class DropoutTest(absltest.TestCase):
    def test_replicas_draw_their_own_masks(self):
        strategy = zoo.strategy(2)
        flat = flatten(zoo.make_views('mlm', 4))
        flat = {k: np.concatenate([v, v]) for k, v in flat.items()}
        with strategy.scope():
            model = zoo.make_model('mlm', rate=0.1)

        key = dropout.new_key(0, 7)

        def states(flat):
            batches, _ = model.batches(
                unflatten(flat),
                zoo.statistics(),
                key,
                distribution.StrategyReplicas(),
            )
            return batches['mlm'].states('masked'), batches['mlm'].key

        with eagerly():
            actual, keys = strategy.run(states, args=(shares(strategy, flat),))
        first, second = actual = local(strategy, actual)
        self.assertTrue((np.abs(first - second).max(axis=(1, 2)) > 0.1).all())
        half = {k: tf.constant(v[:4]) for k, v in flat.items()}
        for replica, states in enumerate(actual):
            replica_key = dropout.fold_in(key, replica)
            with eagerly():
                expected, _ = model.encode(unflatten(half), replica_key)
            expected = expected['mlm']['masked']['encoder'][0].states
            np.testing.assert_allclose(states, expected, atol=1e-5)
        # What a row itself draws is the same on all.
        np.testing.assert_array_equal(*local(strategy, keys))


class RematTest(parameterized.TestCase):
    """--remat: the same gradients, with dropout."""

    def gradients(self, name, replicas, remat):
        """Returns gradients by path, and the size of the graph."""
        key = dropout.new_key(0, 0)
        strategy, run, flat, paths = step_of(replicas, name, 8, key, 0.1, remat)
        run = tf.function(run)
        nodes = str(run.get_concrete_function(flat).graph.as_graph_def())
        *_, actual = run(flat)
        actual = [local(strategy, g)[0] for g in actual]
        return dict(zip(paths, actual, strict=True)), len(nodes)

    # All layers of the second read one table.
    @parameterized.parameters(
        ('bert', 2), ('mlm_disentangled', 1), ('gpt_qwen', 1)
    )
    def test_the_same_gradients(self, name, replicas):
        stored, small = self.gradients(name, replicas, False)
        again, large = self.gradients(name, replicas, True)
        self.assertGreater(large, 1.05 * small)  # blocks are there twice
        assert_near(again, stored, of_all=1e-6)


class UpdateTest(parameterized.TestCase):
    CLIP = 0.01

    @parameterized.parameters(0.0, CLIP)
    def test_two_replicas_make_the_update_of_one(self, clip):
        """With a clip that is always active, and with none.

        A clip hides a factor that gradients were multiplied by.
        """
        name = 'bert_nce'
        *_, gradients = zoo.differentiated(
            zoo.make_model(name, rate=0.0), zoo.make_views(name, 8),
            zoo.statistics(),
        )  # fmt: skip
        everything = np.hstack([np.ravel(g) for g in gradients.values()])
        norm = np.linalg.norm(everything.astype(np.float64))
        self.assertGreater(norm, 10 * self.CLIP)
        scale = clip / norm if clip else 1.0
        slots, weights, reports = [], [], []
        for replicas in (1, 2):
            trainer = zoo.make_trainer(name, replicas, 3, clip)
            optimizer = trainer.optimizer
            before = [v.numpy() for v in optimizer.variables.values()]
            # Of two replicas TensorFlow wants a function, to gather in.
            with eagerly(replicas == 1):
                trainer.train(tf.constant(1))
            # m is a tenth of the gradient then.
            moments = {k: v.numpy() for k, v in optimizer.slots.items()}
            tenth = {f'm/{k}': 0.1 * scale * x for k, x in gradients.items()}
            assert_near(moments, tenth, atol=1e-5 * scale * norm)
            slots.append(moments)
            with eagerly(replicas == 1):
                reports.append(trainer.train(tf.constant(2)))
            after = [v.numpy() for v in optimizer.variables.values()]
            weights.append(dict(zip(optimizer.variables, after, strict=True)))
            for old, new in zip(before, after, strict=True):
                self.assertGreater(np.abs(new - old).max(), 1e-4)
        largest = max(
            np.abs(v).max() for k, v in slots[0].items() if k[0] == 'm'
        )
        for (one, two), atol in ((slots, 1e-6 * largest), (weights, 1e-5)):
            assert_near(two, one, atol=atol)
        self.assertEqual(set(reports[0]), set(reports[1]))
        for metric, value in reports[0].items():
            self.assertAlmostEqual(reports[1][metric], value, places=5)


class ReplicasTest(absltest.TestCase):
    def run_on_two(self, function):
        strategy = zoo.strategy(2)
        return local(strategy, tf.function(lambda: strategy.run(function))())

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
                factor = tf.stop_gradient(x[0] + 1.0)
                loss = factor * tf.reduce_sum(everyone**2)
            return tf.concat([everyone, tape.gradient(loss, x)], 0)

        self.assertEqual(
            [actual.tolist() for actual in self.run_on_two(gathered)],
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
            [actual.tolist() for actual in self.run_on_two(summed)],
            [[3.0, 3.0], [3.0, 3.0]],
        )

    def test_one_replica_keeps_what_it_has(self):
        strategy = zoo.strategy(1)

        def alone():
            replicas = distribution.StrategyReplicas()
            x = tf.constant([4.0])
            return tf.concat(
                [replicas.gather(x), replicas.sum(x), *replicas.sum_all([x])],
                0,
            )

        (actual,) = local(strategy, strategy.run(alone))
        self.assertEqual(actual.tolist(), [4.0, 4.0, 4.0])


class StrategyTest(absltest.TestCase):
    def test_unknown(self):
        known = 'one, mirrored, multiworker, tpu'
        with refused('unknown_strategy', '--strategy=horovod', known):
            distribution.make_strategy('horovod')

    def test_logical_cpus_need_the_mirrored_strategy(self):
        for name in ('one', 'multiworker', 'tpu'):
            with refused('logical_cpus_unused', '--logical_cpus=2'):
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
