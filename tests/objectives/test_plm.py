"""`plm` against its formula, and what its targets see."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.encoders import Inputs
from infoword_tf.layers import dropout
from infoword_tf.resolve import ModelChoices, resolve
from tests import zoo
from tests.objectives.eq1 import EagerCase, batch_of, of_piece, states_of, sums
from tests.refused import refused

V, D = zoo.V, 16
SETTINGS = {'k': 6, 'order': 'partial'}


class ScoreTest(EagerCase):
    @parameterized.parameters(None, 31)
    def test_formula(self, seed):
        model = zoo.make_model('plm')
        objective = model.objectives['plm']
        all_views = zoo.make_views('plm')
        view = all_views['permuted']
        view.weights['plm'][2, 3:] = 0
        random = np.random.default_rng(0)
        states = random.standard_normal((8, 8, D)).astype(np.float32)
        key = None if seed is None else dropout.new_key(seed)
        batch = batch_of(all_views, {'permuted': tf.constant(states)}, key)
        actual = objective.score(batch, objective.candidates(batch))
        words = model.encoder.embedding_table.numpy().astype(np.float64)
        bias, targets = objective.token_bias.numpy(), view.targets['plm']
        expected = sum(
            of_piece(words @ states[at] + bias, targets[at], zoo.statistics())
            for at in zip(*np.nonzero(view.weights['plm']), strict=True)
        )
        np.testing.assert_allclose(sums(actual), expected, rtol=1e-5, atol=1e-5)
        self.assertEqual(expected[1], 8 * 8 - 5)


class IndependenceTest(EagerCase):
    """Dependences through all layers of the real encoder."""

    def states(self, model, view):
        """Query states at the places [B, P, D], content states [B, T, D]."""
        options = dict(
            segment_ids=view.segment_ids,
            ranks=view.ranks,
            sees=view.sees,
            directions=view.directions,
        )
        encoded, _ = model.encode({'permuted': view})
        queries = states_of(encoded, 'plm', 'permuted')
        content = model.encoder(Inputs(view.ids, **options)).states
        return queries.numpy(), content.numpy()

    @parameterized.parameters('plm', 'plm_strict')
    def test_a_target(self, name):
        """Its word is seen by targets behind it, and by no plain word."""
        model = zoo.make_model(name)
        view = zoo.make_views(name)['permuted']
        queries, content = self.states(model, view)
        rows = np.arange(8)
        for p in range(0, view.places['plm'].shape[1], 2):
            places = view.places['plm'][:, p]
            ids = view.ids.copy()
            ids[rows, places] = (ids[rows, places] + 1) % V
            actual, around = self.states(model, view._replace(ids=ids))
            differ = np.abs(actual - queries).max(axis=-1) > 1e-6
            behind = (
                np.take_along_axis(view.sees, view.places['plm'], axis=1)
                > view.ranks[rows, places][:, None]
            )
            np.testing.assert_array_equal(differ, behind)
            differ = np.abs(around - content).max(axis=-1) > 1e-6
            behind = view.sees > view.ranks[rows, places][:, None]
            behind[rows, places] = True
            np.testing.assert_array_equal(differ, behind)


class ChoicesTest(parameterized.TestCase):
    def choose(self, objectives, seq_len=128, **settings):
        settings = {f'permuted.{k}': x for k, x in settings.items()}
        return resolve(
            ModelChoices(
                objectives=objectives, seq_len=seq_len, settings=settings
            )
        )

    def test_defaults(self):
        actual = self.choose('xlnet')
        self.assertEqual(actual.rows['plm'].settings, SETTINGS)
        self.assertEqual(actual.encoder.name, 'relative')
        arguments = actual.encoder.arguments
        self.assertEqual((arguments['segments'], arguments['causal']), (2, 0))
        self.assertEqual(actual.plan.views['permuted'].draw.settings, SETTINGS)

    def test_what_cannot_be_split(self):
        with refused('no_two_halves', '--objectives=plm: --seq_len=127'):
            self.choose('plm', 127)
        with refused('permuted_k_out_of_range', 'k 65'):
            self.choose('plm', k=65)
        self.choose('mlm', 127)
