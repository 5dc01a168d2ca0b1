import numpy as np
from absl.testing import absltest

from infoword_tf import sampling, views

SPECIALS = views.Specials(cls_id=2, sep_id=3, mask_id=4, size=100)


def make_windows():
    """Two rows of L = 7 tokens, P = 2; a document ends in the second."""
    ids = np.array(
        [[10, 11, 12, 13, 14, 15, 16], [20, 21, 22, 3, 23, 24, 25]], np.int32
    )
    return sampling.Windows(ids, np.ones((2, 7), bool), ids == 3)


def make_draw(hidden, shown=None, random=None, **more):
    mask = np.zeros((2, 7), bool)
    for row, places in enumerate(hidden):
        mask[row, places] = True
    return sampling.Masking(
        mask,
        np.zeros((2, 7), np.int32) if shown is None else np.array(shown),
        np.zeros((2, 7)) if random is None else np.array(random),
        **more,
    )


class MaskedTest(absltest.TestCase):
    def test_spans(self):
        draw = make_draw([[5, 6], [1, 4]], shortened=np.array([0, 2]))
        view = views.masked(make_windows(), draw, ['bert_nce'], SPECIALS)
        np.testing.assert_array_equal(
            view.ids,
            [
                [2, 10, 11, 12, 13, 14, 4, 4, 3],
                [2, 20, 4, 22, 3, 4, 24, 25, 3],
            ],
        )
        # Places count the [CLS], and are in the order of the text.
        np.testing.assert_array_equal(
            view.places['bert_nce'], [[6, 7], [2, 5]]
        )
        np.testing.assert_array_equal(
            view.targets['bert_nce'], [[15, 16], [21, 23]]
        )
        np.testing.assert_array_equal(
            view.weights['bert_nce'], np.ones((2, 2))
        )
        np.testing.assert_array_equal(view.sequences, [0, 1])
        np.testing.assert_array_equal(view.counts['shortened_spans'], [0, 2])
        self.assertIsNone(view.positions)
        self.assertIsNone(view.segment_ids)
        self.assertIsNone(view.block_ids)
        for array in (view.ids, view.sequences, view.places['bert_nce'],
                      view.targets['bert_nce']):  # fmt: skip
            self.assertEqual(array.dtype, np.int32)
        self.assertEqual(view.weights['bert_nce'].dtype, np.float32)

    def test_what_is_shown(self):
        # [MASK], piece floor(.37 * 100), itself, piece 99; what is not
        # hidden stays whatever was drawn for it.
        draw = make_draw(
            [[0, 3], [2, 6]],
            shown=[[0, 1, 0, 1, 2, 0, 1], [1, 1, 2, 0, 0, 0, 1]],
            random=[[0.5, 0.5, 0, 0.37, 0, 0, 0.9], [0.1] * 6 + [0.9999]],
        )
        view = views.masked(make_windows(), draw, ['mlm'], SPECIALS)
        np.testing.assert_array_equal(
            view.ids,
            [
                [2, 4, 11, 12, 37, 14, 15, 16, 3],
                [2, 20, 21, 22, 3, 23, 24, 99, 3],
            ],
        )
        np.testing.assert_array_equal(view.places['mlm'], [[1, 4], [3, 7]])
        np.testing.assert_array_equal(
            view.targets['mlm'], [[10, 13], [22, 25]]
        )
        np.testing.assert_array_equal(view.weights['mlm'], np.ones((2, 2)))
        self.assertEqual(view.counts, {})

    def test_random_pieces_are_of_the_whole_vocabulary(self):
        draw = make_draw(
            [[0, 1], [0, 1]],
            shown=np.ones((2, 7), int),
            random=[[0.0, 0.009, 0, 0, 0, 0, 0], [0.01, 1 - 2**-53] + [0] * 5],
        )
        view = views.masked(make_windows(), draw, ['mlm'], SPECIALS)
        np.testing.assert_array_equal(view.ids[:, 1:3], [[0, 0], [1, 99]])

    def test_fewer_hidden_than_the_budget(self):
        draw = make_draw([[4], []])
        view = views.masked(make_windows(), draw, ['mlm'], SPECIALS)
        np.testing.assert_array_equal(view.weights['mlm'], [[1, 0], [0, 0]])
        self.assertEqual(view.places['mlm'][0, 0], 5)
        self.assertEqual(view.targets['mlm'][0, 0], 14)
        self.assertEqual(view.places['mlm'].shape, (2, 2))
        # Places of weight 0 still lie inside the row.
        self.assertBetween(view.places['mlm'].min(), 1, 7)
        self.assertBetween(view.places['mlm'].max(), 1, 7)
        np.testing.assert_array_equal(
            view.ids[1], [2, 20, 21, 22, 3, 23, 24, 25, 3]
        )

    def test_rows_that_share_the_view_get_the_same(self):
        view = views.masked(
            make_windows(), make_draw([[1, 2], [0, 6]]), ['mlm', 'bert_nce'],
            SPECIALS,
        )  # fmt: skip
        for field in (view.places, view.targets, view.weights):
            self.assertEqual(list(field), ['mlm', 'bert_nce'])
            np.testing.assert_array_equal(field['mlm'], field['bert_nce'])

    def test_the_text_can_be_put_together_again(self):
        random = np.random.default_rng(0)
        b, length = 40, 62
        ids = random.integers(5, 100, (b, length), dtype=np.int32)
        windows = sampling.Windows(
            ids, np.ones((b, length), bool), np.zeros((b, length), bool)
        )
        for name, masking in sampling.MASKINGS.items():
            view = views.masked(
                windows, masking(windows, random), ['a'], SPECIALS
            )
            self.assertTrue((np.diff(view.places['a']) > 0).all(), name)
            restored = view.ids.copy()
            np.put_along_axis(
                restored, view.places['a'], view.targets['a'], axis=1
            )
            np.testing.assert_array_equal(restored[:, 1:-1], ids)
            np.testing.assert_array_equal(restored[:, 0], 2)
            np.testing.assert_array_equal(restored[:, -1], 3)

    def test_leaves_the_text_alone(self):
        windows = make_windows()
        views.masked(windows, make_draw([[1, 2], [0, 6]]), ['a'], SPECIALS)
        for array, old in zip(windows, make_windows(), strict=True):
            np.testing.assert_array_equal(array, old)


class FlattenTest(absltest.TestCase):
    def make(self):
        draw = make_draw([[5, 6], [1, 4]], shortened=np.array([0, 2]))
        return {
            'masked': views.masked(
                make_windows(), draw, ['mlm', 'bert_nce'], SPECIALS
            ),
            'other': views.View(
                ids=np.arange(4), sequences=np.arange(2), positions=np.ones(3)
            ),
        }

    def test_names(self):
        self.assertEqual(
            list(views.flatten(self.make())),
            [
                'masked/ids', 'masked/sequences',
                'masked/places/mlm', 'masked/places/bert_nce',
                'masked/targets/mlm', 'masked/targets/bert_nce',
                'masked/weights/mlm', 'masked/weights/bert_nce',
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


if __name__ == '__main__':
    absltest.main()
