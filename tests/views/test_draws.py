import numpy as np
from absl.testing import absltest

from infoword_tf.views import generator


class GeneratorTest(absltest.TestCase):
    def test_same_key_same_numbers(self):
        a, b = (generator(3, 7, 'spans').random(8) for _ in 'ab')
        np.testing.assert_array_equal(a, b)

    def test_seed_step_and_name_all_matter(self):
        keys = [
            (3, 7, 'spans'), (4, 7, 'spans'), (3, 8, 'spans'),
            (7, 3, 'spans'), (3, 7, 'words'), (3, 7, 'tokens'),
        ]  # fmt: skip
        first = {generator(*key).random() for key in keys}
        self.assertLen(first, len(keys))
