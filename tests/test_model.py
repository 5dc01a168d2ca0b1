"""One pass for each view, whatever shares it, and packed rows in it."""

from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf.encoders import Inputs
from tests import eager, zoo
from tests.objectives.eq1 import states_of, sums

KEY = eager.new_key(5)


class PackedTest(parameterized.TestCase):
    @parameterized.parameters((24, None), (8, KEY))
    def test_packed_ngrams_are_ngrams_one_by_one(self, batch, key):
        model = zoo.make_model('infoword', rate=0.0)
        views = zoo.make_views('infoword', batch)
        view = views['ngrams']
        states = states_of(model.encode(views, key)[0], 'dim', 'ngrams').numpy()
        windows = zoo.make_windows(batch)
        pairs = np.argwhere(view.weights['dim'] > 0)
        self.assertGreater(len(pairs), batch + 3)
        largest = 0.0
        for row, slot in pairs:
            ids = view.ids[row][view.block_ids[row] == slot]
            self.assertEqual((ids[0], ids[-1]), (zoo.CLS, zoo.SEP))
            # It is words of the text, and no more.
            text = np.lib.stride_tricks.sliding_window_view(
                windows.ids[row], len(ids) - 2
            )
            self.assertTrue((text == ids[1:-1]).all(axis=1).any())
            # With a key it is another path through the same numbers.
            alone = model.encoder(Inputs(ids[None])).states[0, 0]
            np.testing.assert_allclose(
                states[row, slot], alone, rtol=0, atol=1e-5
            )
            largest = max(largest, np.abs(alone).max())
        self.assertGreater(largest, 0.5)
        self.assertGreater(np.ptp(states[:, 0], axis=0).max(), 0.5)


class OnePassTest(absltest.TestCase):
    def test_each_view_once_at_the_places_of_all_its_rows(self):
        model = zoo.make_model('infoword')
        views = zoo.make_views('infoword')
        encoder = mock.Mock(side_effect=model.encoder)
        with mock.patch.dict(model.encoders, encoder=encoder):
            model.outcomes(views, zoo.statistics(), KEY)
        for call, (name, rows) in zip(
            encoder.call_args_list,
            (('masked', ('bert_nce', 'dim')), ('ngrams', ('dim',))),
            strict=True,
        ):
            view = views[name]
            np.testing.assert_array_equal(call.args[0].ids, view.ids)
            places = np.concatenate([view.places[x] for x in rows], axis=1)
            np.testing.assert_array_equal(call.kwargs['places'], places)

    def test_texts_are_compared_once(self):
        model = zoo.make_model('simcse')
        row, views = model.objectives['simcse'], zoo.make_views('simcse')
        with mock.patch.object(row, 'vectors', wraps=row.vectors) as vectors:
            model.outcomes(views, zoo.statistics(), KEY)
        vectors.assert_called_once()

    def test_rows_of_a_sum_are_rows_alone(self):
        both, _ = zoo.make_model('infoword').outcomes(
            zoo.make_views('infoword'), zoo.statistics()
        )
        self.assertEqual(list(both), ['bert_nce', 'dim'])
        for row in both:
            # The sum's encoder, which has more layers than those of its rows.
            model = zoo.make_model('infoword')
            for other in set(both) - {row}:
                model.drop(other)
            alone, _ = model.outcomes(zoo.make_views(row), zoo.statistics())
            np.testing.assert_allclose(
                sums(both[row]), sums(alone[row]), 1e-5, 1e-5, err_msg=row
            )
