"""Damaged files of every kind are complained of by name; see tests/fuzz.py."""

import pathlib

from absl.testing import parameterized

from tests import fuzz


class DamagedTest(parameterized.TestCase):
    @parameterized.parameters(*fuzz.READERS)
    def test_read_or_complained_of(self, kind):
        folder = pathlib.Path(self.create_tempdir().full_path)
        actual, crashes = fuzz.tried(kind, folder, count=100, seed=0)
        self.assertEqual(crashes, {})
        self.assertGreater(actual['read'], 0)  # the good one
        self.assertGreater(100 - actual['read'], 5)

    @parameterized.parameters(
        ('npy', b"'<i8', 'fortran_order': False, 'shape': (300000000000,)"),
        ('npy', b"'<i8', 'fortran_order': False, 'shape': (%d,)" % 10**30),
        ('npy', b"'<i4', 'fortran_order': False, 'shape': (1, 1)"),
        ('npy', b"'<i,', 'fortran_order': False, 'shape': (1,)"),
        ('pieces', b'identit\x90'),
    )
    def test_what_was_no_complaint_once(self, kind, part):
        """Arrays larger than memory, or of records; a name that is no UTF-8."""
        name, good, reader = fuzz.READERS[kind]
        if kind == 'npy':
            data = b"{'descr': " + part + b', }'
            data = b'\x93NUMPY\x01\0v\0' + data.ljust(117) + b'\n' + bytes(16)
        else:
            data = good.replace(b'identity', part)
        self.assertNotEqual(data, good)
        path = pathlib.Path(self.create_tempdir().full_path) / name
        how, crash = fuzz.judged(reader, path, data)
        self.assertEqual((how, crash), ('InputError', None))
