"""`infocse` against what the publication says, written out."""

import functools
import types

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf import files
from infoword_tf.layers import dropout
from infoword_tf.model import Model
from infoword_tf.objectives import TABLE, Batch
from infoword_tf.workdir import Workdir
from tests import eager, zoo
from tests.layers.operations import gelu_tanh, normed
from tests.objectives.eq1 import EagerCase, losses_of
from tests.refused import refused

KEY = eager.new_key(4)


class InfoCseTest(EagerCase):
    def make(self, name='infocse_paper', rate=0.0, other=None, **settings):
        """A model with a batch of its row; what its network has read.

        The weight `other` is none that it is a copy of, nor a copy.
        """
        case = zoo.CASES[name]
        settings = {f'infocse.{k}': x for k, x in settings.items()}
        case = case._replace(settings={**case.settings, **settings})
        self.model = zoo.model_of(case, rate=rate)
        self.model.assign_copies()
        if other:
            weight = self.model.variables[other]
            weight.assign(np.flip(weight, axis=0))
        self.views = zoo.views_of(case.resolved)
        batches, _ = self.model.batches(self.views, zoo.statistics(), KEY)
        self.objective = self.model.objectives['infocse']
        self.encoded, encode = {}, batches['infocse'].encode
        self.read = []

        def watched(inputs, encoder, **more):
            actual = encode(inputs, encoder, **more)
            self.encoded[encoder] = inputs, actual
            return actual

        self.batch = batches['infocse']._replace(encode=watched)
        first, call = self.objective.network[0], None
        call = first.call

        def reading(x, **more):
            self.read.append((x, more))
            return call(x, **more)

        with absltest.mock.patch.object(first, 'call', reading):
            return self.objective.score(self.batch, None)

    @parameterized.parameters(('frozen', 'lower'), ('detached', 'encoder'))
    def test_the_network_reads_h_and_lower_states_of_the_masked_copy(
        self, lower, whose
    ):
        self.make(lower=lower)
        (x, more), view = self.read[0], self.views['sentences']
        inputs, encoded = self.encoded[whose]
        lower = np.array(encoded.layers[1])  # the middle of two
        states = np.array(self.batch.states('sentences'))  # [R, J K, D]
        real = np.repeat(view.weights['infocse'] > 0, 2, axis=1)
        expected = lower.copy()
        for row, j in np.argwhere(real):
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

    def written_out(self, x):
        """Returns scores of states [R, T, D] by W, and the words' bias."""
        x = np.array(x, np.float64)
        weights = {
            w.path.rsplit('/', 1)[1]: w.numpy() for w in self.objective.weights
            if w.path.count('/') == 2
        }  # fmt: skip
        if not weights:
            return x, 0.0
        x = gelu_tanh(x @ weights['kernel'] + weights['bias'])
        return normed(x, weights, 'norm', 0), weights['piece_bias']

    @parameterized.parameters(
        ({'lower': 'frozen'}, 'lower/word_embeddings'),
        ({'lower': 'detached'}, 'encoder/word_embeddings'),
        ({'lower': 'frozen', 'output': 'layer'},
         'objectives/infocse/output_embeddings'),
        ({'lower': 'detached', 'output': 'layer'},
         'objectives/infocse/output_embeddings'),
    )  # fmt: skip
    def test_the_loss_is_cross_entropy_at_masked_places(self, settings, path):
        """Wu et al. 2022, Eq. 5; W is the table of `path`.

        With `output=layer` it stands behind BERT's transform (`lm_head` of
        infocse/models_cls_mlm.py).
        """
        outcome = self.make(other=path, **settings)
        x, more = self.read[0]
        for i, block in enumerate(self.objective.network):
            key = dropout.fold_in(self.batch.key, 0)
            x = block(x, allowed=more['allowed'], key=dropout.fold_in(key, i))
        x, bias = self.written_out(x)
        scores = x @ self.model.variables[path].numpy().T + bias
        view = self.views['sentences']
        shown = np.array(next(iter(self.encoded.values()))[0].ids)
        masked = shown == zoo.MASK
        losses = losses_of(scores, view.ids)
        counts = zoo.statistics().measured
        log_p = np.log(counts / counts.sum())[view.ids[masked]]
        self.assertEqual(outcome.measured, masked.sum())
        self.assertEqual(self.objective.weight(self.batch), outcome.weight)
        mi = (-log_p - losses[masked]).mean()
        self.assertAlmostEqual(outcome.mi / outcome.measured, mi, delta=1e-4)

    def test_a_frozen_copy_does_not_drop(self):
        """Has the states of rate 0, whatever rate the trained one has."""
        layers = []
        for rate in 0.0, 0.5:
            self.make(lower='frozen', rate=rate)
            layers.append(self.encoded['lower'][1].layers[1])
        np.testing.assert_array_equal(*layers)

    @parameterized.named_parameters(
        ('frozen', {'lower': 'frozen', 'output': 'layer'}, False),
        ('detached', {'lower': 'detached'}, False),
        ('trained', {'lower': 'trained'}, True),
    )
    def test_the_encoder_is_reached_through_h_alone(self, settings, also):
        """Where h has no gradient, none is left, but in the ablation."""
        usual = Batch.states

        def reached(states):
            patch = absltest.mock.patch.object(Batch, 'states', states)
            with tf.GradientTape() as tape, patch:
                loss = self.make(**settings).loss
            weights = {p: x.value for p, x in self.model.variables.items()}
            actual = tape.gradient(loss, weights)
            return {
                path for path, x in actual.items()
                if path.startswith('encoder/') and x is not None
                and np.abs(tf.convert_to_tensor(x)).max() > 0
            }  # fmt: skip

        self.assertIn('encoder/layer_1/inner_kernel', reached(usual))
        stopped = reached(lambda *a: tf.stop_gradient(usual(*a)))
        self.assertEqual(bool(stopped), also)

    def test_stage_one_shares_the_pass_of_mlm(self):
        """Both read one masked text; W is the encoder's own table."""
        passes = []
        run = Model._run

        def counted(model, encoder, inputs, **more):
            passes.append((encoder, more.get('all_layers')))
            return run(model, encoder, inputs, **more)

        with absltest.mock.patch.object(Model, '_run', counted):
            outcome = self.make('infocse_stage1')
        self.assertEqual(passes, [('encoder', 'below')])
        x, _ = self.read[0]
        lower = np.array(self.batch.layers('masked')[1])
        np.testing.assert_array_equal(x[:, 1:], lower[:, 1:])
        np.testing.assert_array_equal(
            x[:, 0], np.array(self.batch.states('masked'))[:, 0]
        )
        self.assertIs(self.objective.table, self.model.encoder.embedding_table)
        self.assertEqual(self.model.copies, [])
        view = self.views['masked']
        self.assertEqual(outcome.weight, view.weights['infocse'].sum())
        self.assertEqual(self.objective.weight(self.batch), outcome.weight)
        paths = {p for p in self.model.exported if 'objectives/infocse' in p}
        self.assertLen(paths, len(self.objective.weights))  # for stage 2

    def test_the_table_of_the_published_code_is_trained_apart(self):
        """It begins as the embeddings, or as --init left it."""
        path = 'objectives/infocse/output_embeddings'
        with tf.GradientTape() as tape:
            loss = self.make(output='layer').loss
        model = self.model
        table = model.encoder.embedding_table
        np.testing.assert_array_equal(model.variables[path], table)
        self.assertIn(path, model.trainable)
        first, second = tape.gradient(
            loss, [model.variables[path].value, table.value]
        )
        self.assertGreater(np.abs(first).max(), 1e-3)
        # Of these through h alone, which no masked word reaches.
        second = np.array(tf.convert_to_tensor(second))
        self.assertEqual(np.abs(second[zoo.MASK]).max(), 0)
        old = {'encoder/word_embeddings': np.flip(table, axis=0)}
        for more in ({}, {path: -np.array(table)}):
            arrays = files.Unread({
                k: functools.partial(np.array, x)
                for k, x in (old | more).items()
            })  # fmt: skip
            theirs = types.SimpleNamespace(weights=arrays, config=model.config)
            Workdir.start(theirs, model)
            expected = more.get(path, old['encoder/word_embeddings'])
            np.testing.assert_array_equal(model.variables[path], expected)

    def test_a_layer_that_there_is_not(self):
        case = zoo.CASES['infocse_paper']
        case = case._replace(settings={'infocse.layer': 2})
        with refused('infocse_unknown_layer', '--infocse.layer=2', '1 to 1'):
            zoo.model_of(case)
        config = zoo.config_of(case)
        config.encoder.arguments['layers'] = 1
        with refused('infocse_one_layer', 'infocse', '--size'):
            Model(config, zoo.SPECIALS)

    def test_stage_two_begins_where_stage_one_ends(self):
        """Unless it is the ablation; with an output layer that has one too."""
        for more, complaint in (
            ({}, '--objectives=infocse_stage1, or'),
            ({'output': 'layer'},
             '--objectives=infocse_stage1 --infocse.output=layer, or'),
            ({'fresh': True}, ''), ({'stage': 1}, ''),
        ):  # fmt: skip
            objective = TABLE['infocse'].objective(
                'infocse', None, zoo.SPECIALS, **more
            )
            self.assertIn(complaint, objective.init_complaint)
            self.assertEqual(bool(objective.init_complaint), bool(complaint))
