"""The files of the oracles: a number that was changed is noticed."""

import pathlib

import numpy as np
from absl.testing import absltest

from tests.oracles import frozen


class FrozenTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path) / 'a.npz'
        self.arrays = {
            'whole': np.arange(4), 'real': np.float32([[0.5, -1.25]])
        }
        frozen.write(self.path, self.arrays)

    def test_what_was_written_is_read(self):
        actual = frozen.read(self.path)
        self.assertEqual(frozen.compare(actual, self.arrays), 0)
        self.assertEqual(actual['real'].dtype, np.float32)

    def test_any_change_is_noticed(self):
        for path in (self.path, *sorted(frozen.FOLDER.glob('*.npz'))):
            arrays = frozen.read(path)
            digest = frozen.digest(arrays)
            for name, array in arrays.items():
                changed = array.copy()
                whole = changed.dtype.kind != 'f'
                last = changed.flat[-1]
                changed.flat[-1] = last + 1 if whole else np.nextafter(
                    last, np.inf, dtype=changed.dtype
                )
                changed = {**arrays, name: changed}
                self.assertFalse(
                    np.array_equal(frozen.digest(changed), digest), name
                )
            # Of the last: as a file.
            np.savez(self.path, **{frozen.DIGEST: digest}, **changed)
            with self.assertRaisesRegex(ValueError, 'make oracles'):
                frozen.read(self.path)

    def test_every_oracle_has_its_file(self):
        oracles = {
            path.stem
            for path in frozen.FOLDER.glob('*.py')
            if path.stem not in ('frozen', 'test_frozen')
        }
        self.assertEqual(
            oracles, {path.stem for path in frozen.FOLDER.glob('*.npz')}
        )
        self.assertLen(oracles, 7)
        makefile = (frozen.FOLDER.parent.parent / 'Makefile').read_text()
        for name in oracles:
            self.assertIn(f'-m tests.oracles.{name}', makefile)

    def test_differences(self):
        for changed in (
            {'whole': np.arange(4) + 1},
            {'whole': np.arange(3)},
            {'real': np.float32([[0.5, np.nan]])},
            {'real': np.float32([[0.5, -1.2501]])},
            {'other': np.arange(4)},
        ):
            with self.assertRaises(ValueError):
                frozen.compare({**self.arrays, **changed}, self.arrays)
        near = {**self.arrays, 'real': np.float32([[0.5, -1.250001]])}
        self.assertBetween(frozen.compare(near, self.arrays), 1e-7, 2e-6)
