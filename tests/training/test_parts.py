"""A batch in microbatches: what the whole batch gives, dropout and all."""

import functools
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.layers import dropout
from infoword_tf.objectives import TABLE, Replicas
from infoword_tf.objectives.infonce import SUMS
from infoword_tf.training import loop
from infoword_tf.training.microbatch import MicrobatchStep
from infoword_tf.views import flatten, unflatten
from tests import zoo
from tests.eager import eagerly
from tests.near import assert_near
from tests.refused import refused

KEY = 0, 3


# Every row that has a loss of its own, over every kind of encoder.
CASES = [
    name for name, case in zoo.CASES.items() if zoo.MICROBATCH in case.checks
]


def remembered(empty):
    """Makes what earlier steps leave: states, or counts of sequences."""
    empty = tf.convert_to_tensor(empty)
    if empty.dtype.is_integer:
        return tf.range(len(empty)) % 3
    random = np.random.default_rng(0)
    return tf.cast(random.standard_normal(empty.shape), empty.dtype)


class PartsTest(parameterized.TestCase):
    def test_every_row_is_there(self):
        rows = {row for name in CASES for row in zoo.CASES[name].rows}
        self.assertSameElements(rows, TABLE)

    @parameterized.named_parameters(*[(n, n) for n in CASES])
    def test_gradients_are_those_of_the_whole_batch(self, name):
        """3 sequences of 8 at a time: two microbatches, and a smaller one."""
        model = zoo.make_model(name, rate=0.1)
        views, statistics = zoo.make_views(name), zoo.statistics()
        flat = {k: tf.constant(x) for k, x in flatten(views).items()}
        views = unflatten(flat)
        state = {
            name: tf.nest.map_structure(remembered, entry.empty)
            if name.startswith('memory/') else entry.empty
            for name, entry in model.empty_state(8, 4).items()
        }  # fmt: skip
        key = dropout.new_key(*KEY)
        with eagerly():
            outcomes, new, _, expected = zoo.differentiated(
                model, views, statistics, key, state=state
            )
            step = MicrobatchStep(
                model, views, statistics, key, Replicas(), state, 3
            )
            actual, sums, new_state = step.gradients(
                [v.value for v in model.trainable.values()]
            )
        # Some are all but 0; in a number terms of all pairs cancel.
        largest = max(np.abs(x).max() for x in expected.values())
        for b, (path, a) in zip(actual, expected.items(), strict=True):
            size = 2 * np.abs(a).max() + largest
            most = 1e-6 if a.shape.rank else 4e-6
            assert_near({path: b}, {path: a}, atol=most * size)
        for row, outcome in outcomes.items():
            compared = np.full(len(SUMS), True)
            if row == 'diffcse':  # the answers' p is that of a microbatch
                compared = np.isin(SUMS, ('loss', 'weight', 'accuracy'))
            np.testing.assert_allclose(
                sums[row][compared], np.array(outcome.sums)[compared],
                rtol=1e-5, atol=1e-5, err_msg=row,
            )  # fmt: skip
        tf.nest.map_structure(
            functools.partial(
                np.testing.assert_allclose, rtol=1e-5, atol=1e-5
            ),
            new_state, new,
        )  # fmt: skip

    def test_what_cannot_be_parted(self):
        """A state of candidates; and views of unlike numbers of sequences."""
        model, views = zoo.make_model('dim'), zoo.make_views('dim')
        parts = functools.partial(
            MicrobatchStep, model, statistics=zoo.statistics(),
            key=dropout.new_key(*KEY), replicas=Replicas(), size=3,
        )  # fmt: skip
        few = {
            path: x[:4] if path.startswith('ngrams') else x
            for path, x in flatten(views).items()
        }
        with refused('microbatch_unequal_views', 'dim', '[4, 8]'):
            parts(unflatten(few), state={}).gradients([])
        model = zoo.make_model('mlm')
        with refused('microbatch_with_state', 'mlm', '--microbatch'):
            MicrobatchStep(
                model, zoo.make_views('mlm'), zoo.statistics(),
                dropout.new_key(*KEY), Replicas(), {'objectives/mlm': {}}, 3,
            )  # fmt: skip

    @parameterized.parameters(
        ('ict_lookup', 1, 2),
        # Scored microbatch by microbatch, each with its share of the weight.
        ('skip_gram', 2, 6),
    )
    def test_a_run(self, name, replicas, size):
        """In a graph, a loop; and 3 of the 4 sequences of a replica.

        What Adam averages shows the length of gradients, which no clip hides.
        """
        values = {}
        for microbatch in (None, size):
            trainer = zoo.make_trainer(
                name, replicas, 2, clip=0.0, microbatch=microbatch,
            )  # fmt: skip
            with mock.patch.object(
                loop, 'MicrobatchStep', wraps=MicrobatchStep
            ) as step:
                trainer.train(tf.constant(2))
            if microbatch:  # of the global batch
                share = step.call_args.kwargs['size']
                self.assertEqual(share, size // replicas)
            values[microbatch] = {
                path: variable.numpy()
                for variables in (
                    trainer.model.variables, trainer.optimizer.slots
                )
                for path, variable in variables.items()
            }  # fmt: skip
        assert_near(
            values[size], values[None], rtol=1e-4, atol=1e-8, of_each=1e-5
        )
