"""Views of one run: a text that is read alike, equal draws."""

import dataclasses
from unittest import mock

import numpy as np
from absl.testing import absltest

from infoword_tf import views
from infoword_tf.data.batches import Batches, open_sources
from infoword_tf.objectives import TABLE
from infoword_tf.plan import make_plan
from infoword_tf.views import VIEWS, Draw, Reads
from infoword_tf.views.masked import masking_of
from tests import zoo
from tests.near import same

B = 4
SETTINGS = {
    'plm': {'k': 6, 'order': 'partial'},
    'dim': {'one_mask': False, 'momentum': 0.0},
    'ict': {'momentum': 0.0},
}


def draw_of(name):
    """Returns the draw of a view that draws words or tokens."""
    return lambda settings: Draw(name, masking_of(name))


class SharingTest(absltest.TestCase):
    """The rows `one`, `two` and `three` want a view of their own each."""

    def setUp(self):
        super().setUp()
        self.store = zoo.make_store(documents=200)
        masked = VIEWS['masked']
        self.specs = {
            'first': masked._replace(draw=draw_of('tokens')),
            'second': masked._replace(draw=draw_of('words')),
            'third': masked._replace(draw=draw_of('tokens')),
        }
        table = {
            row: dataclasses.replace(TABLE['mlm'], views={x: Reads('tokens')})
            for row, x in zip(('one', 'two', 'three'), self.specs, strict=True)
        }
        self.enterContext(mock.patch.dict(TABLE, table))

    def batches(self, *rows, seed=3, **specs):
        """Batches of some rows, their views being made in this way."""
        with mock.patch.dict(VIEWS, {**self.specs, **specs}):
            settings = {row: SETTINGS.get(row, {}) for row in rows}
            plan = make_plan(settings, zoo.T)
        sources = open_sources(self.store, plan, B, seed)
        return Batches(sources, plan, zoo.SPECIALS, seed)

    def text_of(self, view, row):
        """The view with what stands at the places of a row put back."""
        ids = view.ids.copy()
        np.put_along_axis(ids, view.places[row], view.targets[row], axis=1)
        return ids

    def assert_same(self, one, two):
        """But for tokens, which the first view of a text counts."""
        for view in (one, two):
            view.counts.pop('tokens', None)
        one, two = (views.flatten({'view': view}) for view in (one, two))
        self.assertEqual(list(one), list(two))
        for path, array in one.items():
            same(array, two[path], path)

    def test_one_text_and_each_its_own_draw(self):
        batches = self.batches('one', 'two')
        self.assertLen(batches.sources, 1)
        for step in (0, 7):
            result = batches.views(step)
            first, second = result['first'], result['second']
            text = self.text_of(second, 'two')
            same(self.text_of(first, 'one'), text)
            places = first.places['one'], second.places['two']
            self.assertFalse(np.array_equal(*places))
            # Neither knows of the other.
            for row, view in (('one', 'first'), ('two', 'second')):
                alone = self.batches(row).views(step)[view]
                self.assert_same(result[view], alone)

    def test_the_text_is_read_once(self):
        batches = self.batches('one', 'two', 'three')
        ((source_spec, source),) = batches.sources.items()
        counted = mock.Mock(batch=mock.Mock(side_effect=source.batch))
        batches.sources = {source_spec: counted}
        batches.views(5)
        counted.batch.assert_called_once_with(5)

    def test_equal_draws_are_made_once(self):
        calls = []

        def hide(text, random, share=0):
            calls.append(share)
            return masking_of('tokens')(text, random)

        def spec(**settings):
            return VIEWS['masked']._replace(
                draw=lambda settings_of_row: Draw('hide', hide, settings)
            )

        batches = self.batches(
            'one', 'two', 'three', first=spec(share=1), second=spec(share=2),
            third=spec(share=1),
        )  # fmt: skip
        drawn = batches.draw(0)
        self.assertCountEqual(calls, [1, 2])
        self.assertIs(drawn['first'][1], drawn['third'][1])
        self.assertIsNot(drawn['first'][1], drawn['second'][1])
        # And one of its own at every step.
        batches.draw(1)
        self.assertLen(calls, 4)

    def test_views_that_are_cut_out_of_another_share_its_draw(self):
        drawn = self.batches('dim', 'bert_nce').draw(2)
        self.assertIs(drawn['masked'][0], drawn['ngrams'][0])
        self.assertIs(drawn['masked'][1], drawn['ngrams'][1])
        drawn = self.batches('ict').draw(2)
        self.assertIs(drawn['passage'][1], drawn['sentence'][1])

    def test_a_source_that_is_read_in_two_ways(self):
        """Texts of their own, each as the row alone would have it."""
        rows = 'transformer_xl', 'plm'
        batches = self.batches(*rows)
        self.assertEqual([x.source for x in batches.sources], ['streams'] * 2)
        for step in (0, 3):
            result = batches.views(step)
            for row, view in zip(rows, ('streamed', 'permuted'), strict=True):
                alone = self.batches(row).views(step)[view]
                self.assert_same(result[view], alone)
            drawn = batches.draw(step)
            self.assertEqual(drawn['streamed'][0].ids.shape, (B, zoo.T))
            self.assertEqual(drawn['permuted'][0].ids.shape, (B, zoo.T - 3))
