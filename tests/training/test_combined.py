"""Settings together: what holds of a row holds wherever two of them meet."""

from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.errors import UsageError
from infoword_tf.layers import dropout
from infoword_tf.model import Model
from infoword_tf.objectives import TABLE, Replicas
from infoword_tf.training import distribution, loop
from infoword_tf.training.microbatch import MicrobatchStep
from infoword_tf.training.state import apply_updates
from infoword_tf.views import flatten, unflatten
from tests import combined, threads, zoo
from tests.near import assert_near
from tests.objectives.eq1 import EagerCase
from tests.refused import refused

# Sequences of a batch, a microbatch, and a batch of held-out text.
B, MICROBATCH, SLICE = 8, 3, 5
# Settings with which each replica draws by itself.
DRAWN = 'simcse.cut_features', 'simcse.cut_tokens'


class Step:
    """A step of training of a case, eager, without dropout."""

    def __init__(self, case: zoo.Case):
        """Builds the model of a case, with random weights, and views."""
        self.model = zoo.model_of(case, rate=0.0)
        flat = flatten(zoo.views_of(case.resolved, B))
        self.flat = {name: tf.constant(x) for name, x in flat.items()}
        self.values = [v.value for v in self.model.trainable.values()]

    def run(self, replicas: int, size: int | None, key: tf.Tensor | None):
        """Returns gradients by path, sums by row, states by replica."""

        def step(over, flat):
            model, views = self.model, unflatten(flat)
            entries = model.empty_state(B // replicas)
            state = {name: entry.empty for name, entry in entries.items()}
            arguments = views, zoo.statistics(), key, over, state
            if size:
                gradients, sums, new = MicrobatchStep(
                    model, *arguments, size
                ).gradients(self.values)
                return gradients, sums, row_states(state, new)
            outcomes, new, _, gradients = zoo.differentiated(
                model, *arguments[:3], replicas=over, state=state
            )
            sums = {row: outcome.sums for row, outcome in outcomes.items()}
            return [*gradients.values()], sums, row_states(state, new)

        rows = [
            [{name: distribution.shard(x, number, replicas)
              for name, x in self.flat.items()}]
            for number in range(replicas)
        ]  # fmt: skip
        if replicas == 1:
            done = [step(Replicas(), *rows[0])]
        else:
            done = threads.run(step, rows)
        gradients, sums, states = zip(*done, strict=True)
        totals = [np.sum(x, axis=0) for x in zip(*gradients, strict=True)]
        return (
            dict(zip(self.model.trainable, totals, strict=True)),
            {row: np.sum([x[row] for x in sums], axis=0) for row in sums[0]},
            states,
        )


def row_states(state, new):
    """Returns the states of rows, which all replicas share."""
    states = sorted(apply_updates(state, new).items())
    return [
        value for name, entry in states if name.startswith('objectives/')
        for value in tf.nest.flatten(entry)
    ]  # fmt: skip


class CombinedTest(EagerCase):
    """Every two settings of a row that may be combined."""

    @parameterized.named_parameters(*[
        (row, row) for row in TABLE if combined.is_combined(row)
    ])  # fmt: skip
    def test_one_step_however_it_is_taken(self, row):
        """In microbatches, over replicas, and in batches of held-out text."""
        cases, never = combined.covering(row)
        self.assertEqual(never, combined.never(row))
        for number, chosen in enumerate(cases):
            case = combined.case_of(row, chosen)
            with self.subTest(encoder=case.encoder, **case.settings):
                step = Step(case)
                drawn = row in combined.SUMS or any(
                    map(case.settings.get, DRAWN)
                )
                self.check_training(step, row, drawn)
                if number % 4 == 0 and not drawn:  # slices draw otherwise
                    self.check_heldout(step)

    def check_training(self, step, row, drawn):
        """Compares microbatches, on up to two replicas, with the batch."""
        key = dropout.new_key(0, 3)
        expected = step.run(1, None, key)
        if any(x.needs_whole_batch for x in step.model.objectives.values()):
            with refused('microbatch_of_whole_batch', '--microbatch'):
                step.run(1, MICROBATCH, key)
        else:
            actual = step.run(1 if drawn else 2, MICROBATCH, key)
            self.check(expected, actual, row)
        if row in combined.SUMS:  # without a key nothing is drawn
            self.check(step.run(1, None, None), step.run(2, None, None), '')

    def check(self, expected, actual, split_row):
        """Compares sums, gradients and states, within rounding."""
        assert_near(actual[0], expected[0], atol=1e-8, of_all=1e-5)
        for row, sums in expected[1].items():
            # The answers' p is that of each microbatch.
            compared = np.isin(loop.SUMS, ('loss', 'weight', 'accuracy'))
            compared |= (row, split_row) != ('diffcse', 'diffcse')
            np.testing.assert_allclose(
                actual[1][row][compared], sums[compared], rtol=2e-6,
                atol=2e-6 * np.abs(sums).max(), err_msg=row,
            )  # fmt: skip
        first, *others = *expected[2], *actual[2]
        for other in others:
            for a, b in zip(first, other, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)

    def check_heldout(self, step):
        """Compares held-out text of 8 sequences with batches of 5 and 3."""
        views = unflatten({k: x.numpy() for k, x in step.flat.items()})
        reports = []
        for size in (B, SLICE):
            with mock.patch.object(loop, 'HELDOUT_BATCH', size):
                heldout = loop.Heldout(step.model, views, zoo.statistics())
            reports.append(heldout.evaluate())
        at_once, sliced = reports
        self.assertEqual(at_once.keys(), sliced.keys())
        for name, value in at_once.items():
            self.assertAlmostEqual(sliced[name], value, places=4, msg=name)

    @parameterized.named_parameters(*[
        (f'{row}_{number}', row, refused)
        for row, several in combined.REFUSED.items()
        for number, refused in enumerate(several)
    ])  # fmt: skip
    def test_what_does_not_stand_together_is_refused(self, row, refused):
        """Where nothing else is wrong, and in a sentence that names a flag."""
        others = [x for x in combined.REFUSED[row] if x is not refused]
        with mock.patch.dict(combined.REFUSED, {row: others}):
            chosen = combined.completed(row, dict(refused), set())
        names = '|'.join(refused)
        with self.assertRaisesRegex(
            (UsageError, ValueError), f'(--({row}.)?)?({names})='
        ):
            Model(
                zoo.config_of(combined.case_of(row, chosen)), zoo.SPECIALS
            )
