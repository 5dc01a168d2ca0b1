"""Event files are cut where a run goes on."""

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
        """A file of its own; returns its path."""
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
        kept = self.write([2], 'more')
        before = kept.read_bytes()
        events.cut(self.folder, 2)
        self.assertEqual(sorted(steps_of(self.workdir, 'loss')), [1, 2, 2])
        self.assertTrue(early.exists())
        self.assertFalse(late.exists())
        self.assertEqual(kept.read_bytes(), before)

    def test_a_damaged_end_goes(self):
        path = self.write([1, 2, 3])
        whole = path.read_bytes()
        for damaged in (whole[:-5], whole[:-20] + b'x' * 20):
            path.write_bytes(damaged)
            events.cut(self.folder, 9)
            self.assertEqual(steps_of(self.workdir, 'loss'), [1, 2])

    def test_of_a_new_run_nothing_stays(self):
        self.write([1, 2])
        events.cut(self.folder, 0)
        self.assertEmpty(list(self.folder.rglob('events*')))
        events.cut(self.workdir / 'none', 0)
