"""Parts of a workdir that a run which starts from it takes."""

import functools
import types

import numpy as np
from absl.testing import parameterized

from infoword_tf import files
from infoword_tf.workdir import Workdir
from tests import zoo


class StartTest(parameterized.TestCase):
    @parameterized.parameters((8, True), (12, False))
    def test_a_head_of_another_width_begins_anew(self, width, is_taken):
        before, model = (
            zoo.model_of(zoo.of('simcse', critic='late', token_width=x))
            for x in (8, width)
        )
        arrays = {
            path: functools.partial(np.array, x)
            for path, x in before.exported.items()
        }
        theirs = types.SimpleNamespace(
            config=before.config, weights=files.Unread(arrays)
        )
        taken, fresh, dropped = Workdir.start(theirs, model).split('; ')
        self.assertEqual('late' in taken, is_taken)
        self.assertEqual('late' in fresh, not is_taken)
        self.assertEqual(dropped, 'dropped nothing')
