"""Event files are truncated where a run resumes."""

import pathlib

import tensorflow as tf
from absl.testing import absltest

from infoword_tf.training import events
from tests.training.events import steps_of


class CutTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.workdir = pathlib.Path(self.create_tempdir().full_path)
        self.folder = self.workdir / 'tensorboard'

    def write(self, steps, part='train'):
        """Writes a new file; returns its path."""
        before = set(self.folder.rglob('events*'))
        writer = tf.summary.create_file_writer(str(self.folder / part))
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
        events.truncate(self.folder, 2)
        self.assertEqual(sorted(steps_of(self.workdir, 'loss')), [1, 2, 2])
        self.assertTrue(early.exists())
        self.assertFalse(late.exists())
        self.assertEqual(unchanged.read_bytes(), before)

    def test_a_damaged_end_goes(self):
        path = self.write([1, 2, 3])
        whole = path.read_bytes()
        for damaged in (whole[:-5], whole[:-20] + b'x' * 20):
            path.write_bytes(damaged)
            events.truncate(self.folder, 9)
            self.assertEqual(steps_of(self.workdir, 'loss'), [1, 2])

    def test_of_a_new_run_nothing_stays(self):
        self.write([1, 2])
        events.truncate(self.folder, 0)
        self.assertEmpty(list(self.folder.rglob('events*')))
        events.truncate(self.workdir / 'none', 0)
