"""Files of weights, and what is read of them."""

import contextlib
import io
import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import absltest
from safetensors import safe_open

from infoword_tf import checkpoint, files
from infoword_tf.config import WEIGHTS
from tests.faults import OLDER
from tests.refused import refused


class CheckpointsTest(absltest.TestCase):
    def test_what_stays_and_what_is_read(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        left = folder / checkpoint.FOLDER / '.step-7'
        left.parent.mkdir()
        left.touch()
        others = checkpoint.Checkpoints(folder, 2, chief=False)
        others.save(1, {'a': np.ones(2)})  # the chief does
        self.assertEqual((left.exists(), others.paths()), (True, []))
        chief = checkpoint.Checkpoints(folder, 2)
        self.assertFalse(left.exists())
        for step in 1, 2, 3:
            chief.save(step, {'a': np.full(2, step), **{
                f'state/x/{name}': np.ones(1) for name in ('y/0', 'z/0', 'z/1')
            }})  # fmt: skip
        self.assertLen(chief.paths(), 2)
        a, fewer = tf.Variable([0, 0]), tf.Variable([0.0])
        state = {'state/x/y/0': tf.Variable([0.0]), 'state/x/z/0': fewer}
        for more, value in ({'state/x/y/1': None}, 0), ({}, 1):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                self.assertEqual(others.restore({'a': a}, state | more), 3)
            empty = 'x/y starts empty' in printed.getvalue()
            self.assertEqual(empty, bool(more))
            self.assertIn('x/z starts empty', printed.getvalue())
            self.assertEqual(float(fewer[0]), 0)
            self.assertEqual(float(state['state/x/y/0'][0]), value)
        self.assertEqual(a.numpy().tolist(), [3, 3])
        with refused('other_weight_shape', 'a has shape (2,)', '(3,)'):
            others.restore({'a': tf.Variable([0, 0, 0])})

    def test_half_written_files_of_a_workdir(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / '.weights.123').touch()
        (folder / '.hidden').touch()
        with files.locked(folder):
            names = {x.name for x in folder.iterdir()}
            self.assertEqual(names, {'.lock', '.hidden'})
        with self.assertRaisesRegex(RuntimeError, 'is a file'):
            with files.locked(folder / '.hidden'):
                pass


class WeightsStepTest(absltest.TestCase):
    def test_a_damaged_file_has_none_where_it_is_checked(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        self.assertIsNone(checkpoint.weights_step(folder))
        checkpoint.write_weights(folder, {'a': np.ones(5, np.float32)}, 7)
        for checked in (False, True):
            self.assertEqual(checkpoint.weights_step(folder, checked), 7)
        data = (folder / WEIGHTS).read_bytes()
        one = np.ones(5, np.float32).tobytes()
        self.assertEqual(data.count(one), 1)
        (folder / WEIGHTS).write_bytes(data.replace(one, one[:-1] + b'\x3e'))
        self.assertEqual(checkpoint.weights_step(folder), 7)
        self.assertIsNone(checkpoint.weights_step(folder, checked=True))

    def test_every_type_comes_back(self):
        """To us, and to the library of these files."""
        path = pathlib.Path(self.create_tempdir().full_path) / 'x'
        arrays = {
            f'{name} {shape}': np.ones(shape, np.dtype(name))
            for name in files._DTYPES for shape in ((), (2, 0), (3, 2))
        }  # fmt: skip
        files.write_tensors(path, arrays)
        with safe_open(path, 'np') as others:
            self.assertCountEqual(others.keys(), arrays)
            for actual in (files.read_tensors(path), others.get_tensor):
                get = getattr(actual, '__getitem__', actual)
                for name, array in arrays.items():
                    self.assertEqual(get(name).dtype, array.dtype)
                    np.testing.assert_array_equal(get(name), array)

    def test_files_of_older_code_have_the_digests_of_today(self):
        """What stands in them; and of a whole file as `b2sum -l 80` has it."""
        path = OLDER / 'run' / WEIGHTS
        with files._safetensors(path) as file:
            self.assertIn(files.DIGEST, file.metadata())
        self.assertIn('step', files.read_tensors(path))
        self.assertEqual(
            files.digest_of(path.with_name('vocab.txt')), '3e8db276fec445f351b6'
        )
