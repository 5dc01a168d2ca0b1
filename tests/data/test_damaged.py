"""Damaged files of every kind are complained of by name; see tests/fuzz.py."""

import pathlib

from absl.testing import absltest, parameterized

from tests import fuzz


class DamagedTest(parameterized.TestCase):
    @parameterized.parameters(*fuzz.READERS)
    def test_read_or_complained_of(self, kind):
        folder = pathlib.Path(self.create_tempdir().full_path)
        found, crashes = fuzz.tried(kind, folder, count=100, seed=0)
        self.assertEqual(crashes, {})
        self.assertGreater(found['read'], 0)  # the good one
        self.assertGreater(100 - found['read'], 5)


if __name__ == '__main__':
    absltest.main()
