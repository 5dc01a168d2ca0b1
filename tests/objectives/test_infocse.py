"""`infocse` against what the publication says, written out."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from scipy import special

from infoword_tf.layers import dropout
from infoword_tf.model import Model
from tests import zoo

KEY = dropout.new_key(4)


class InfoCseTest(parameterized.TestCase):
    def made(self, name='infocse_paper', rate=0.0, **settings):
        """A model with a batch of its row; what its network has read."""
        case = zoo.CASES[name]
        settings = {f'infocse.{k}': x for k, x in settings.items()}
        case = case._replace(settings={**case.settings, **settings})
        self.model = zoo.model_of(case, rate=rate)
        self.model.begin_copies()
        self.views = zoo.views_of(case.resolved)
        batches, _ = self.model.batches(self.views, zoo.statistics(), KEY)
        self.objective = self.model.objectives['infocse']
        self.encoded, encode = {}, batches['infocse'].encode
        self.read = []

        def watched(inputs, encoder, **more):
            found = encode(inputs, encoder, **more)
            self.encoded[encoder] = inputs, found
            return found

        self.batch = batches['infocse']._replace(encode=watched)
        first, call = self.objective.network[0], None
        call = first.call

        def reading(x, **more):
            self.read.append((x, more))
            return call(x, **more)

        with absltest.mock.patch.object(first, 'call', reading):
            return self.objective.score(self.batch, None)

    def test_the_network_reads_h_and_lower_states_of_the_masked_copy(self):
        self.made()
        (x, more), view = self.read[0], self.views['sentences']
        inputs, encoded = self.encoded['lower']
        lower = np.array(encoded.layers[1])  # the middle of two
        states = np.array(self.batch.states('sentences'))  # [R, J K, D]
        there = np.repeat(view.weights['infocse'] > 0, 2, axis=1)
        expected = lower.copy()
        for row, j in np.argwhere(there):
            expected[row, view.places['infocse'][row, j]] = states[row, j]
        np.testing.assert_allclose(x, expected, atol=1e-6)
        shown = np.array(inputs.ids)
        self.assertGreater((shown == zoo.MASK).sum(), 10)
        starts = view.ids == zoo.CLS
        np.testing.assert_array_equal(shown[starts], view.ids[starts])
        np.testing.assert_array_equal(
            np.array(more['allowed'])[:, 0],
            view.block_ids[:, :, None] == view.block_ids[:, None],
        )

    def test_the_loss_is_cross_entropy_at_masked_places(self):
        """Wu et al. 2022, Eq. 5; W is the frozen copy's table."""
        outcome = self.made()
        x, more = self.read[0]
        for i, block in enumerate(self.objective.network):
            key = dropout.fold_in(self.batch.key, 0)
            x = block(x, allowed=more['allowed'], key=dropout.fold_in(key, i))
        table = np.array(self.model.encoders['lower'].embedding_table)
        scores = np.array(x) @ table.T
        view = self.views['sentences']
        shown = np.array(self.encoded['lower'][0].ids)
        masked = shown == zoo.MASK
        losses = special.logsumexp(scores, axis=-1) - np.take_along_axis(
            scores, view.ids[..., None], axis=-1
        ).squeeze(-1)
        counts = zoo.statistics().measured
        log_p = np.log(counts / counts.sum())[view.ids[masked]]
        self.assertEqual(outcome.measured, masked.sum())
        self.assertAlmostEqual(
            outcome.mi / outcome.measured,
            (-log_p - losses[masked]).mean(),
            delta=1e-4,
        )

    @parameterized.named_parameters(
        ('frozen', {}, False),
        ('detached', {'lower': 'detached'}, False),
        ('trained', {'lower': 'trained'}, True),
    )
    def test_the_encoder_is_reached_through_h_alone(self, settings, also):
        """Where h has no gradient, none is left, but in the ablation."""

        def gradients(stop):
            states = type(self.batch).states if stop else None
            with tf.GradientTape() as tape:
                with (
                    absltest.mock.patch.object(
                        type(self.batch),
                        'states',
                        lambda *a: tf.stop_gradient(states(*a)),
                    )
                    if stop
                    else absltest.mock.MagicMock()
                ):
                    loss = self.made(**settings).loss
            weights = {
                p: x.value
                for p, x in self.model.variables.items()
                if p.startswith('encoder/')
            }
            found = tape.gradient(loss, weights)
            return {
                path
                for path, x in found.items()
                if x is not None and np.abs(tf.convert_to_tensor(x)).max() > 0
            }

        self.made()
        self.assertIn('encoder/layer_1/inner_kernel', gradients(False))
        self.assertEqual(bool(gradients(True)), also)

    def test_stage_one_shares_the_pass_of_mlm(self):
        """Both read one masked text; W is the encoder's own table."""
        passes = []
        run = Model._run

        def counted(model, encoder, inputs, **more):
            passes.append((encoder, more.get('all_layers')))
            return run(model, encoder, inputs, **more)

        with absltest.mock.patch.object(Model, '_run', counted):
            outcome = self.made('infocse_stage1')
        self.assertEqual(passes, [('encoder', 'below')])
        x, _ = self.read[0]
        lower = np.array(self.batch.layers('masked')[1])
        np.testing.assert_array_equal(x[:, 1:], lower[:, 1:])
        np.testing.assert_array_equal(
            x[:, 0], np.array(self.batch.states('masked'))[:, 0]
        )
        self.assertIs(self.objective.table, self.model.encoder.embedding_table)
        view = self.views['masked']
        self.assertEqual(outcome.weight, view.weights['infocse'].sum())
        paths = {p for p in self.model.exported if 'objectives/infocse' in p}
        self.assertLen(paths, len(self.objective.weights))  # for stage 2

    def test_a_layer_that_there_is_not(self):
        case = zoo.CASES['infocse_paper']
        case = case._replace(settings={'infocse.layer': 2})
        with self.assertRaisesRegex(ValueError, 'has 2 layers, .*: 1 to 1'):
            zoo.model_of(case)


if __name__ == '__main__':
    absltest.main()
