"""Draws of views, and views as one flat dict and back."""

import numpy as np
from absl.testing import absltest

from infoword_tf import views
from infoword_tf.views.masked import masked
from tests.views import texts


class GeneratorTest(absltest.TestCase):
    def test_seed_step_and_name_all_matter(self):
        keys = [(3, 7, 'spans'), (4, 7, 'spans'), (3, 8, 'spans'),
                (7, 3, 'spans'), (3, 7, 'words')]  # fmt: skip
        first, again = (
            [views.generator(*key).random() for key in keys] for _ in 'ab'
        )
        self.assertEqual(first, again)
        self.assertLen(set(first), len(keys))


class FlattenTest(absltest.TestCase):
    def make(self):
        draw = texts.make_draw([[5, 6], [1, 4]], shortened=np.array([0, 2]))
        rows = {'mlm': 'tokens', 'dim': 'start', 'bert_nce': 'tokens'}
        other = views.View(np.arange(4), np.arange(2), positions=np.ones(3))
        view = masked(texts.make_windows(), draw, rows, texts.SPECIALS)
        return {'masked': view, 'other': other}

    def test_names(self):
        self.assertEqual(
            list(views.flatten(self.make())),
            [
                'masked/ids', 'masked/sequences',
                'masked/places/mlm', 'masked/places/dim',
                'masked/places/bert_nce',
                'masked/targets/mlm', 'masked/targets/bert_nce',
                'masked/weights/mlm', 'masked/weights/bert_nce',
                'masked/measured/mlm', 'masked/measured/bert_nce',
                'masked/counts/shortened_spans',
                'other/ids', 'other/sequences', 'other/positions',
            ],
        )  # fmt: skip

    def test_round_trip(self):
        before = self.make()
        after = views.unflatten(views.flatten(before))
        self.assertEqual(list(after), list(before))
        for name, view in before.items():
            for field, value in view._asdict().items():
                other = getattr(after[name], field)
                if isinstance(value, dict):
                    self.assertEqual(list(other), list(value))
                    for part in value:
                        self.assertIs(other[part], value[part])
                else:
                    self.assertIs(other, value)

    def test_views_do_not_share_their_rows(self):
        after = views.unflatten(views.flatten(self.make()))
        after['masked'].places['new'] = 1
        self.assertNotIn('new', views.View(ids=0, sequences=0).places)
        self.assertNotIn('new', after['other'].places)
