"""Views of plain text: the neighbours of each token are targets."""

import numpy as np
from absl.testing import absltest

from infoword_tf.data.batches import Batches
from infoword_tf.data.streams import StreamSource
from infoword_tf.plan import make_plan
from infoword_tf.views.streams import Streams, neighbours, streamed
from tests.data.test_streams import ROW, SPECIALS, make_store
from tests.refused import refused
from tests.views.texts import same


def five_tokens():
    ids = np.array([[7, 2, 3, 4, 1]], np.int32)
    flags = np.zeros_like(ids, bool)
    return Streams(
        ids, flags, flags, flags, np.ones(1), np.array([8], np.int32)
    )


class StreamedTest(absltest.TestCase):
    def batches(self, batch=3):
        source = StreamSource(make_store(997), 20, batch, 0)
        plan = make_plan({ROW: {}}, 20)
        return Batches({plan.source_specs[0]: source}, plan, SPECIALS, 0)

    def test_targets_are_the_next_inputs(self):
        views = [self.batches().views(step)['streamed'] for step in range(40)]
        separators = 0
        for view, after in zip(views, views[1:], strict=False):
            targets = view.targets[ROW]
            same(targets[:, :-1], view.ids[:, 1:])
            same(targets[:, -1], after.ids[:, 0])
            self.assertTrue((view.weights[ROW] == 1).all())
            measured = view.measured[ROW]
            same(measured, targets != SPECIALS.sep_id)
            separators += (measured == 0).sum()
            same(
                view.counts['tokens'], (view.ids != SPECIALS.sep_id).sum(axis=1)
            )
            self.assertEqual(measured.dtype, np.float32)
        self.assertGreater(separators, 20)

    def test_other_specials_are_no_targets(self):
        view = streamed(five_tokens(), None, {ROW: 'text'}, SPECIALS)
        self.assertEqual(view.weights[ROW].tolist(), [[0, 1, 0, 1, 1]])

    def test_it_is_wanted_whole(self):
        text = five_tokens()
        for view in (streamed, neighbours):
            with refused('where_not_in_view', 'text', 'mlm'):
                view(text, None, {'mlm': 'tokens'}, SPECIALS)


class NeighboursTest(absltest.TestCase):
    def test_by_hand(self):
        """2 and 4 are never targets, 3 is not measured."""
        text = five_tokens()
        view = neighbours(text, None, {ROW: 'text'}, SPECIALS)
        same(view.ids, text.ids)
        after, before = [2, 3, 4, 1, 8], [1, 7, 2, 3, 4]
        self.assertEqual(view.targets[ROW].tolist(), [after + before])
        self.assertEqual(
            view.weights[ROW].tolist(), [[0, 1, 0, 1, 1] + [0, 1, 0, 1, 0]]
        )
        self.assertEqual(
            view.measured[ROW].tolist(), [[1, 0, 1, 1, 1] + [1, 1, 1, 0, 1]]
        )
        for part in (view.targets, view.weights, view.measured):
            self.assertEqual(part[ROW].dtype.itemsize, 4)
