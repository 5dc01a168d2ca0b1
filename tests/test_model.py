"""One pass for each view, whatever shares it, and packed rows in it."""

from unittest import mock

import numpy as np
import tensorflow as tf
from absl import flags
from absl.testing import absltest, flagsaver, parameterized

from infoword_tf import train
from infoword_tf.layers import dropout
from infoword_tf.model import Model
from tests import zoo

KEY = dropout.new_key(5)


class PackedTest(parameterized.TestCase):
    @parameterized.parameters((24, None), (8, KEY))
    def test_packed_ngrams_are_ngrams_one_by_one(self, batch, key):
        model = zoo.make_model('infoword', rate=0.0)
        made = zoo.make_views('infoword', batch)
        view = made['ngrams']
        states = model.encode(made, key)[0]['dim']['ngrams'].numpy()
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
            alone = model.encoder(ids[None], key=key).states[0, 0]
            np.testing.assert_allclose(
                states[row, slot], alone, rtol=0, atol=1e-5
            )
            largest = max(largest, np.abs(alone).max())
        self.assertGreater(largest, 0.5)
        self.assertGreater(np.ptp(states[:, 0], axis=0).max(), 0.5)

    def test_the_start_of_the_masked_text(self):
        made = zoo.make_views('infoword')
        model = zoo.make_model('infoword')
        found, _ = model.encode(made)
        states = model.encoder(made['masked'].ids).states
        np.testing.assert_allclose(
            found['dim']['masked'], states[:, :1], atol=1e-5
        )
        places = made['masked'].places['bert_nce']
        np.testing.assert_allclose(
            found['bert_nce']['masked'],
            np.take_along_axis(states.numpy(), places[..., None], axis=1),
            atol=1e-5,
        )


class OnePassTest(absltest.TestCase):
    def test_each_view_once_at_the_places_of_all_its_rows(self):
        model = zoo.make_model('infoword')
        made = zoo.make_views('infoword')
        masked, ngrams = made['masked'], made['ngrams']
        real = model.encoder
        with mock.patch.object(model, 'encoder', side_effect=real) as encoder:
            model.outcomes(made, model.kl(zoo.frequencies()), KEY)
        self.assertEqual(encoder.call_count, 2)
        for call, view, places in (
            (
                encoder.call_args_list[0],
                masked,
                [masked.places['bert_nce'], masked.places['dim']],
            ),
            (encoder.call_args_list[1], ngrams, [ngrams.places['dim']]),
        ):
            np.testing.assert_array_equal(call.args[0], view.ids)
            np.testing.assert_array_equal(
                call.kwargs['places'], np.concatenate(places, axis=1)
            )

    def test_rows_of_a_sum_are_rows_alone(self):
        both, _ = zoo.make_model('infoword').outcomes(
            zoo.make_views('infoword'), {'bert_nce': 0.0, 'dim': 0.0}
        )
        self.assertEqual(list(both), ['bert_nce', 'dim'])
        for row in both:
            alone, _ = zoo.make_model(row).outcomes(
                zoo.make_views(row), {row: 0.0}
            )
            np.testing.assert_allclose(
                both[row], alone[row], rtol=1e-5, atol=1e-5, err_msg=row
            )

    def test_a_row_of_weight_0_is_not_there(self):
        """Nothing of it: weights, loss and gradients are bit for bit."""
        chosen, results = [], []
        for objectives in ('bert_nce', 'bert_nce:1,dim:0'):
            with flagsaver.flagsaver():
                flags.FLAGS(['train', f'--objectives={objectives}'])
                rows, masking, _ = train.choose_rows()
            chosen.append((rows, masking))
            model = Model(
                {**zoo.config('bert_nce'), 'rows': rows}, zoo.SPECIALS
            )
            self.assertEqual(list(model.objectives), ['bert_nce'])
            made = zoo.views_of(rows, masking)
            self.assertEqual(list(made), ['masked'])
            variables = {p: v.value for p, v in model.variables.items()}
            with tf.GradientTape() as tape:
                outcomes, _ = model.outcomes(made, {'bert_nce': 0.0}, KEY)
                loss = model.loss(outcomes)
            gradients = tape.gradient(loss, variables)
            results.append(
                {
                    'loss': loss,
                    **{f'weight {p}': v for p, v in variables.items()},
                    **{
                        f'gradient {p}': tf.convert_to_tensor(g)
                        for p, g in gradients.items()
                    },
                }
            )
        self.assertEqual(*chosen)
        first, second = results
        self.assertEqual(list(first), list(second))
        for name, value in first.items():
            np.testing.assert_array_equal(value, second[name], name)


if __name__ == '__main__':
    absltest.main()
