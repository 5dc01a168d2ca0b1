"""Logging steps of a run, its end, and how it resumes."""

import types
from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from infoword_tf.training import fit
from tests import places
from tests.training.events import steps_of


class CountTest(absltest.TestCase):
    def test_tokens_and_padding(self):
        """Two steps of two views, 8 x 16 and 8 x 4 sizes."""
        spec = tf.TensorSpec
        dataset = types.SimpleNamespace(
            element_spec={
                'passage/ids': spec((8, 16), tf.int32),
                'passage/block_ids': spec((8, 16), tf.int32),
                'passage/counts/tokens': spec((8,), tf.int32),
                'several/ids': spec((8, 2, 2), tf.int32),
            }
        )
        sizes = fit.view_sizes(dataset)
        self.assertEqual(sizes, {'passage': 128, 'several': 32})
        others = {'ict/loss': 2.0, 'several/cut_sentences': 3.0}
        values = {
            'passage/tokens': 150.0, 'passage/padding': 64.0,
            'several/tokens': 20.0, **others,
        }  # fmt: skip
        self.assertEqual(fit.count_tokens(values, sizes, 2), 170)
        self.assertEqual(
            values, {'passage/padding': 0.25, 'padding': 0.2, **others}
        )


class PaceTest(absltest.TestCase):
    def test_numbers_are_rounded_up_to_logging_steps(self):
        self.assertEqual(
            fit.make_pace(1000, 20, 50, 130), fit.Pace(1000, 20, 60, 140)
        )

    def test_by_default_ten_evaluations_and_a_checkpoint_in_1000(self):
        self.assertEqual(fit.make_pace(4321), fit.Pace(4321, 86, 516, 516))
        self.assertEqual(
            fit.make_pace(50_000), fit.Pace(50_000, 100, 5000, 1000)
        )
        self.assertEqual(fit.make_pace(7), fit.Pace(7, 1, 1, 1))


class GoalTest(absltest.TestCase):
    def records(self, *values):
        """Returns records of logging steps; None: no evaluation."""
        return [
            {'step': i, 'loss': 0.0, **({} if v is None else {'score': v})}
            for i, v in enumerate(values)
        ]

    def test_the_highest_and_of_equal_ones_the_first(self):
        goal = fit.Goal('score')
        for values, step in (
            ((0.5,), 0),
            ((0.1, None, 0.5, None, 0.3), 2),
            ((None, 0.5, 0.5), 1),
            ((-2.0, -1.0), 1),
        ):
            actual = goal.best(self.records(*values))
            self.assertEqual(actual['step'], step)
        self.assertIsNone(goal.best(self.records(None, None)))
        lowest = goal._replace(lowest=True)
        self.assertEqual(
            lowest.best(self.records(0.4, None, 0.2, 0.2, 0.3))['step'], 2
        )
        self.assertIsNone(goal.best([]))

    def test_patience(self):
        """Held-out values without a better one; an equal one is none."""
        for values, ended in (
            ((), False),
            ((0.5,), False),
            ((0.5, 0.5), False),
            ((0.5, None, None, 0.4), False),
            ((0.5, None, 0.5, 0.4), True),
            ((0.5, 0.4, 0.6), False),
            ((0.5, 0.4, 0.6, 0.6, 0.1), True),
        ):
            records = self.records(*values)
            goal = fit.Goal('score', patience=2)
            self.assertEqual(goal.reached(records), ended, values)
            self.assertFalse(fit.Goal('score').reached(records))


class StepsTest(absltest.TestCase):
    """--minutes: by a clock that the trainer moves, after 30 s of tracing."""

    def steps(self, minutes, seconds):
        """Returns the updates that fit, and those that were tried."""
        clock, trials = [0.0], []

        def train(count):
            clock[0] += int(count) * seconds + (0 if trials else 30.0)
            trials.append(int(count))

        trainer = types.SimpleNamespace(train=train)
        with mock.patch.object(fit.time, 'monotonic', lambda: clock[0]):
            return fit.steps_in(minutes, trainer), sum(trials[1:])

    def test_as_many_as_fit(self):
        for minutes, seconds, steps, tried in (
            (3, 0.125, 1440, 75),  # a twentieth of the time: 9 s
            (60, 0.125, 28800, 80),  # or 10 s
            (3, 4.0, 45, 5),
            (0.01, 0.125, 5, 5),
            (0.01, 4.0, 1, 5),  # one at least
        ):
            self.assertEqual(self.steps(minutes, seconds), (steps, tried))


class EventsTest(places.Folder, absltest.TestCase):
    """Events of TensorBoard after the step where a run resumes."""

    def write(self, steps, part='train'):
        before = set(self.folder.rglob('events*'))
        writer = tf.summary.create_file_writer(
            str(self.folder / 'tensorboard' / part)
        )
        with writer.as_default():
            for step in steps:
                tf.summary.scalar('loss', 1.0, step=step)
        writer.close()
        (path,) = set(self.folder.rglob('events*')) - before
        return path

    def test_what_is_behind_the_step_goes(self):
        early, late = self.write([1, 2, 3]), self.write([4, 5], 'other')
        unchanged = self.write([2], 'more')
        before = unchanged.read_bytes()
        fit.truncate_events(self.folder, 2)
        self.assertEqual(sorted(steps_of(self.folder, 'loss')), [1, 2, 2])
        self.assertTrue(early.exists())
        self.assertFalse(late.exists())
        self.assertEqual(unchanged.read_bytes(), before)

    def test_a_damaged_end_goes(self):
        path = self.write([1, 2, 3])
        whole = path.read_bytes()
        for damaged in (whole[:-5], whole[:-20] + b'x' * 20):
            path.write_bytes(damaged)
            fit.truncate_events(self.folder, 9)
            self.assertEqual(steps_of(self.folder, 'loss'), [1, 2])

    def test_of_a_new_run_nothing_stays(self):
        self.write([1, 2])
        fit.truncate_events(self.folder, 0)
        self.assertEmpty(list(self.folder.rglob('events*')))
        fit.truncate_events(self.folder / 'none', 0)
