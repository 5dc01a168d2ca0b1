"""`plm` against its formula, and all the way from a stream to an outcome."""

import pathlib
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from keras import ops

from infoword_tf import views
from infoword_tf.config import Config, EncoderConfig, RowConfig
from infoword_tf.data.batches import Batches
from infoword_tf.data.store import SEPARATOR, WORD_START, Store
from infoword_tf.data.streams import StreamSource
from infoword_tf.encoders import ENCODERS, Encoded, Encoder, Inputs
from infoword_tf.layers import dropout
from infoword_tf.model import Model
from infoword_tf.objectives import parse
from infoword_tf.plan import make_plan
from infoword_tf.resolve import ModelChoices, resolve
from infoword_tf.views import VIEWS, permuted
from infoword_tf.views.streams import Streams
from tests import zoo
from tests.objectives.eq1 import batch_of, of_piece, states_of, sums
from tests.refused import refused

V, D, T = zoo.V, 16, 32
SETTINGS = {'k': 6, 'order': 'partial'}


class Mean(Encoder):
    """An encoder whose query is the mean of the words that it may see.

    A stand-in that keeps to the masks and reads what it is handed.
    """

    input_fields = ('ids', 'segment_ids', 'ranks', 'sees', 'directions')

    def build(self):
        self.make_embedding_table()
        self.built = True

    def call(
        self, inputs, places=None, key=None, all_layers=False, queries=False
    ):
        self.check_inputs(inputs)
        assert queries and inputs.directions is not None
        assert inputs.segment_ids is not None
        ask = ops.take_along_axis(inputs.sees, places, axis=1)
        allowed = ops.cast(
            ask[:, :, None] > inputs.ranks[:, None, :], 'float32'
        )
        allowed /= ops.maximum(ops.sum(allowed, axis=-1, keepdims=True), 1.0)
        return Encoded(ops.matmul(allowed, self.lookup(inputs.ids)))


def make_streams(batch=8, seed=0):
    """Random text of T - 3 tokens, odd rows backward."""
    random = np.random.default_rng(seed)
    shape = (batch, T - 3)
    ids = random.choice(V, size=shape, p=zoo.frequencies()).astype(np.int32)
    separators = np.zeros(shape, bool)
    separators[0, 5] = True
    return Streams(
        np.where(separators, np.int32(zoo.SEP), ids),
        random.random(shape) < 0.7,
        separators,
        separators,
        np.where(np.arange(batch) % 2, -1, 1).astype(np.int32),
        np.zeros(batch, np.int32),
    )


def zoo_store(tokens):
    """Random text, one document."""
    random = np.random.default_rng(0)
    ids = random.choice(V, size=tokens, p=zoo.frequencies())
    flags = np.where(random.random(tokens) < 0.7, WORD_START, 0)
    ids[-1], flags[-1] = zoo.SEP, WORD_START | SEPARATOR
    return Store(
        ids.astype(np.uint16),
        flags.astype(np.uint8),
        np.array([0, tokens]),
        np.bincount(ids, minlength=V),
        pathlib.Path('nowhere'),
    )


def make_batches(seed=0, **settings):
    """The same text at every step."""
    plan = make_plan({'plm': {**SETTINGS, **settings}}, T)
    (reading,) = plan.source_specs
    sources = {reading: zoo.OneBatch(make_streams())}
    return Batches(sources, plan, zoo.SPECIALS, seed)


def make_views(seed=0, **settings):
    """The views of the row."""
    return make_batches(seed, **settings).views(0)


def make_model(**settings):
    """The row over the stand-in, all weights drawn."""
    config = Config(
        EncoderConfig('mean', {'vocab_size': V, 'width': D}),
        {'plm': RowConfig(1.0, {**SETTINGS, **settings})},
        max_length=T,
    )
    with mock.patch.dict(ENCODERS, mean=Mean):
        model = Model(config, zoo.SPECIALS)
    random = np.random.default_rng(1)
    for variable in model.variables.values():
        variable.assign(0.5 * random.standard_normal(variable.shape))
    return model


def literal(words, bias, states, targets, weights):
    """Cross-entropy over V, one pair after the other, float64: [F] sums."""
    return sum(
        of_piece(words @ states[at] + bias, targets[at], zoo.statistics())
        for at in zip(*np.nonzero(weights), strict=True)
    )


class ScoreTest(parameterized.TestCase):
    @parameterized.parameters(None, 31)
    def test_formula(self, seed):
        model = make_model()
        objective = model.objectives['plm']
        all_views = make_views()
        view = all_views['permuted']
        view.weights['plm'][2, 3:] = 0
        random = np.random.default_rng(0)
        states = random.standard_normal((8, 5, D)).astype(np.float32)
        key = None if seed is None else dropout.new_key(seed)
        batch = batch_of(all_views, {'permuted': tf.constant(states)}, key)
        actual = objective.score(batch, objective.candidates(batch))
        expected = literal(
            model.encoder.embedding_table.numpy().astype(np.float64),
            objective.token_bias.numpy(),
            states,
            view.targets['plm'],
            view.weights['plm'],
        )
        np.testing.assert_allclose(sums(actual), expected, rtol=1e-5, atol=1e-5)
        self.assertEqual(expected[1], 8 * 5 - 2)


class ModelTest(parameterized.TestCase):
    @parameterized.parameters(*permuted.ORDERS)
    def test_query_states_at_the_places(self, order):
        model, all_views = make_model(), make_views(order=order)
        view = all_views['permuted']
        states = states_of(
            model.encode(all_views)[0], 'plm', 'permuted'
        ).numpy()
        words = model.encoder.embedding_table.numpy()
        for b in range(8):
            for p, place in enumerate(view.places['plm'][b]):
                seen = view.sees[b, place] > view.ranks[b]
                self.assertFalse(seen[place])
                np.testing.assert_allclose(
                    states[b, p],
                    words[view.ids[b, seen]].mean(axis=0),
                    rtol=1e-4,
                    atol=1e-5,
                )

    def test_a_query_does_not_know_its_word(self):
        model, all_views = make_model(), make_views()
        before = states_of(
            model.encode(all_views)[0], 'plm', 'permuted'
        ).numpy()
        view = all_views['permuted']
        places = view.places['plm'][:, :1]
        np.put_along_axis(view.ids, places, 7, axis=1)
        after = states_of(model.encode(all_views)[0], 'plm', 'permuted').numpy()
        np.testing.assert_array_equal(before[:, 0], after[:, 0])
        self.assertFalse(np.array_equal(before, after))


class IndependenceTest(parameterized.TestCase):
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
        for p in range(view.places['plm'].shape[1]):
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


class BatchesTest(absltest.TestCase):
    def test_the_source_goes_on_by_half_a_text(self):
        self.assertEqual(
            VIEWS['permuted'].source_args(512, SETTINGS),
            {'length': 509, 'advance': 256, 'both_directions': True},
        )

    def test_a_token_comes_again_as_what_came_before(self):
        store = zoo_store(4000)
        reading = VIEWS['permuted'].source_args(T, SETTINGS)
        source = StreamSource(store, batch_size=6, seed=0, **reading)
        now, then = source.batch(0), source.batch(1)
        half = T // 2
        np.testing.assert_array_equal(
            then.ids[:, : half - 3], now.ids[:, half:]
        )
        np.testing.assert_array_equal(now.directions, [1, -1] * 3)

    def test_settings_reach_the_draw(self):
        streams = make_streams()
        random = views.generator(3, 0, 'permutation')
        draw = permuted.permutation(streams, random, k=3, order='strict')
        rows = {'plm': 'queries'}
        expected = VIEWS['permuted'].make(streams, draw, rows, zoo.SPECIALS)
        actual = make_views(seed=3, k=3, order='strict')['permuted']
        np.testing.assert_array_equal(actual.ranks, expected.ranks)
        self.assertEqual(actual.places['plm'].shape, (8, T // 3))


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

    def test_given(self):
        options = {'k': 4, 'order': 'strict'}
        actual = self.choose('plm', **options)
        self.assertEqual(actual.plan.views['permuted'].draw.settings, options)

    def test_what_cannot_be_split(self):
        with refused('no_two_halves', '--objectives=plm: --seq_len=127'):
            self.choose('plm', 127)
        with refused('permuted_k_out_of_range', 'k 65'):
            self.choose('plm', k=65)
        self.choose('mlm', 127)

    def test_the_sum(self):
        self.assertEqual(parse('xlnet'), {'plm': 1.0})
