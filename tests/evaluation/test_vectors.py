"""Vectors on disk: whole blocks at any time."""

import numpy as np
from absl.testing import absltest

from infoword_tf.evaluation.vectors import VectorFile, digest
from tests import places
from tests.refused import refused

BLOCKS = np.split(
    np.random.default_rng(0).standard_normal((12, 3), np.float32), [5, 9]
)
WHOLE = np.concatenate(BLOCKS)


class VectorFileTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = places.make() / 'vectors.npy'

    def test_blocks_one_after_the_other(self):
        file = VectorFile(self.path)
        self.assertEqual(file.rows, 0)
        for block in BLOCKS:
            file.append(block)
            whole = np.load(self.path)
            np.testing.assert_array_equal(whole, WHOLE[: file.rows])
        np.testing.assert_array_equal(file.read(4, 10), WHOLE[4:10])
        self.assertIsInstance(file.read(4, 10), np.memmap)
        with refused('vectors_other_width', self.path, 'of 3', 'have 2'):
            file.append(np.zeros((1, 2)))
        np.testing.assert_array_equal(np.load(self.path), WHOLE)

    def test_whoever_was_stopped_goes_on_after_the_last_block(self):
        """At whatever byte: of a block that is not whole nothing counts."""
        for stop in (0, 128, 130, 128 + 5 * 12, 128 + 5 * 12 + 7):
            file = VectorFile(self.path)
            for block in BLOCKS[: stop > 128 + 5 * 12 - 1]:
                file.append(block)
            rows = file.rows
            self.path.touch()
            with open(self.path, 'r+b') as content:
                if not rows and stop:  # the header is the first that is there
                    np.lib.format.write_array_header_1_0(
                        content,
                        {'descr': '<f4', 'fortran_order': False,
                         'shape': (0, 3)},
                    )  # fmt: skip
                content.seek(0, 2)
                content.write(bytes(stop - content.tell()))
            again = VectorFile(self.path)
            self.assertEqual(again.rows, rows)
            for block in BLOCKS[1 if rows else 0 :]:
                again.append(block)
            self.assertEqual(self.path.stat().st_size, 128 + 12 * 12)
            np.testing.assert_array_equal(np.load(self.path), WHOLE)
            self.path.unlink()


class DigestTest(absltest.TestCase):
    def test_of_names_and_contents(self):
        folder = places.make()
        (folder / 'a').write_text('1')
        first = digest(folder)
        (folder / 'b').write_text('2')
        second = digest(folder)
        (folder / 'b').rename(folder / 'c')
        (folder / 'd').mkdir()
        third = digest(folder)
        (folder / 'c').write_text('3')
        self.assertLen({first, second, third, digest(folder)}, 4)
        self.assertEqual(digest(folder, [folder / 'a']), first)
