"""The formula of memory: its numbers are found, and held to other runs."""

import pathlib
import subprocess
import sys

from absl.testing import absltest

ROOT = pathlib.Path(__file__).parent.parent.parent
# In a process of its own, since benchmarks.step has flags of the same names as
# the trainer. First runs that the formula describes, with and without --remat;
# then 2 texts of 8 tokens at mini (4 layers, 256 wide, 4 heads), by hand.
CODE = '''
import numpy as np
from benchmarks import scale

wanted = np.array([42.0, 5.0, 1.75, 3e7, 1e8])
found = [
    (point, {'weights': 10**7,
             'bytes': round(scale.formula(point, 10**7, wanted))})
    for point in scale.POINTS
]
np.testing.assert_allclose(scale.fit(found), wanted, rtol=1e-4)

numbers = np.array([10.0, 3.0, 2.0, 9.0, 7.0])
block = 10 * 2 * 8 * 256 + 3 * 2 * 4 * 8 * 8
plain = scale.Point('mini', 2, 8, False)
assert scale.formula(plain, 100, numbers) == 1600 + 6 * block + 43
again = scale.Point('mini', 2, 8, False, 'bfloat16', True)
states = 4 * 3 * 2 * 8 * 256
assert scale.formula(again, 100, numbers) == 1200 + 3 * block + states + 43
'''


class FormulaTest(absltest.TestCase):
    def test_numbers_are_found(self):
        done = subprocess.run(
            [sys.executable, '-c', CODE],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr[-1000:])


if __name__ == '__main__':
    absltest.main()
