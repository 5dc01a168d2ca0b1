"""What a workdir says of the run that began there."""

import dataclasses
import pathlib

from absl.testing import parameterized

from infoword_tf import checkpoint
from infoword_tf.training import record
from tests import zoo


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
        run = {'minutes': 3.0, 'steps': 7}
        dataclasses.replace(zoo.config('simcse'), run=run).write(folder)
        if has_checkpoint:
            path = folder / checkpoint.FOLDER / 'step-000000002.safetensors'
            path.parent.mkdir()
            path.touch()
        self.assertEqual(record.begun_steps(folder, minutes), expected)
