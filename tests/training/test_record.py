"""Record of the run that began in a workdir."""

import contextlib
import dataclasses
import io
import pathlib

from absl.testing import absltest, parameterized

from infoword_tf import checkpoint
from infoword_tf.config import Config
from infoword_tf.training import record
from tests import zoo
from tests.refused import refused


def checkpoint_in(folder):
    path = folder / checkpoint.FOLDER / 'step-000000002.safetensors'
    path.parent.mkdir()
    path.touch()


def config_of(**run):
    return dataclasses.replace(zoo.config('simcse'), run=run)


class BegunStepsTest(parameterized.TestCase):
    @parameterized.parameters(
        (3.0, False, 7),
        (4.0, False, None),  # it is timed anew
        (3.0, True, 7),
        (4.0, True, 7),  # which `write_or_compare` refuses
    )
    def test_of_minutes(self, minutes, has_checkpoint, expected):
        folder = pathlib.Path(self.create_tempdir().full_path)
        self.assertIsNone(record.begun_steps(folder, minutes))
        config_of(minutes=3.0, steps=7).write(folder)
        if has_checkpoint:
            checkpoint_in(folder)
        self.assertEqual(record.begun_steps(folder, minutes), expected)


class OtherRunTest(absltest.TestCase):
    def test_another_run_is_refused_from_the_first_checkpoint_on(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        for steps in (7, 8):  # no checkpoint: the last one counts
            record.write_or_compare(folder, config_of(steps=steps), f'{steps}')
            self.assertEqual(Config.read(folder).run, {'steps': steps})
            self.assertEqual((folder / 'flags.txt').read_text(), f'{steps}')
        checkpoint_in(folder)
        with refused('run_other_flags', folder, '--steps was 8, is 7.'):
            record.write_or_compare(folder, config_of(steps=7), '')
        record.write_or_compare(folder, config_of(steps=8), 'again')
        self.assertEqual((folder / 'flags.txt').read_text(), 'again')
        (folder / 'metrics.json').touch()  # it has ended, and stays
        record.write_or_compare(folder, config_of(steps=8), 'later')
        self.assertEqual((folder / 'flags.txt').read_text(), 'again')

    def test_weights_and_no_checkpoint(self):
        """Refuses to lose the weights of a public folder."""
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / checkpoint.WEIGHTS).touch()
        with refused('weights_without_checkpoint', folder, f'--init={folder}'):
            record.write_or_compare(folder, config_of(steps=7), '')
        self.assertFalse((folder / 'config.json').exists())
        checkpoint_in(folder)
        record.write_or_compare(folder, config_of(steps=7), '')

    def test_other_replicas(self):
        """Go on; and a choice that is newer had its default."""
        folder = pathlib.Path(self.create_tempdir().full_path)
        config_of(steps=7).replace(replicas=1).write(folder)
        checkpoint_in(folder)
        now = config_of(steps=7, remat=False).replace(replicas=2)
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            record.write_or_compare(folder, now, '')
        self.assertIn('on with 2 replicas instead of 1', shown.getvalue())
        self.assertEqual(Config.read(folder).replicas, 2)
        with refused('run_other_flags', '--remat was False, is True'):
            record.write_or_compare(folder, config_of(steps=7, remat=True), '')
