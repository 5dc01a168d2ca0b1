"""Memory from step to step: model, trainer, checkpoints, held-out values."""

import contextlib
import dataclasses
import io
import pathlib
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf import checkpoint
from infoword_tf.config import Config, EncoderConfig, RowConfig
from infoword_tf.data import store as stores
from infoword_tf.data.batches import Batches, heldout_views, open_sources
from infoword_tf.encoders import Inputs
from infoword_tf.model import Model
from infoword_tf.objectives import TABLE
from infoword_tf.plan import make_plan
from infoword_tf.training import loop, optim
from infoword_tf.training.state import State
from infoword_tf.views import VIEWS
from tests import places, zoo
from tests.near import assert_near
from tests.objectives.eq1 import EagerCase, states_of

V, D, B, T = zoo.V, 8, 4, 6
ROW, MEMORY = 'transformer_xl', 'memory/streamed'
STATISTICS = zoo.statistics()


def make_config(memory_length, rate=0.0, precision='float32', rows=(ROW,)):
    arguments = {
        **zoo.ENCODERS['relative'], 'vocab_size': V, 'width': D, 'heads': 2,
        'layers': 1, 'causal': True, 'rate': rate, 'max_length': T,
    }  # fmt: skip
    return Config(
        EncoderConfig('relative', arguments),
        {row: RowConfig(1.0, zoo.defaults_of(row)) for row in rows},
        max_length=T,
        precision=precision,
        memory_length=memory_length,
    )


def make_model(memory_length, *args, **kwargs):
    model = Model(make_config(memory_length, *args, **kwargs), zoo.SPECIALS)
    random = np.random.default_rng(0)
    for variable in model.variables.values():
        variable.assign(0.7 * random.standard_normal(variable.shape))
    return model


def make_store(tokens=2000):
    random = np.random.default_rng(0)
    ids = random.choice(V, tokens, p=zoo.frequencies()).astype(np.uint16)
    ids[99::100] = zoo.SEP
    flags_ = np.full(tokens, stores.WORD_START, np.uint8)
    flags_[99::100] |= stores.SEPARATOR
    ends = np.arange(0, tokens + 1, 100)
    counts = np.bincount(ids[ids != zoo.SEP], minlength=V)
    return stores.Store(ids, flags_, ends, counts, pathlib.Path('nowhere'))


def make_batches(batch=B):
    plan = make_plan({ROW: {}}, T)
    sources = open_sources(make_store(), plan, batch, 0)
    return Batches(sources, plan, zoo.SPECIALS, 0)


def empty(model, batch=B):
    actual = model.empty_state(batch)
    return {name: entry.empty for name, entry in actual.items()}


def reading_again():
    """A text goes on after a third of what was read."""

    def reading(length, settings):
        return {'length': length, 'advance': length // 3}

    view = VIEWS['streamed']._replace(source_args=reading)
    return mock.patch.dict(VIEWS, streamed=view)


class ModelTest(EagerCase):
    def test_without_memory(self):
        view = make_batches().views(0)
        for model in (make_model(0), make_model(None)):
            self.assertEqual(model.empty_state(B), {})
            states, state = model.encode(view, state={})
            self.assertEqual(state, {})
            np.testing.assert_array_equal(
                states_of(states, ROW, 'streamed'),
                states_of(model.encode(view)[0], ROW, 'streamed'),
            )
        self.assertLen(make_model(0).empty_state(B, 3), 1)
        # An encoder without memory, and views that do not go on.
        config = zoo.config('mlm').replace(memory_length=5)
        self.assertEqual(Model(config, zoo.SPECIALS).empty_state(B), {})
        model = make_model(5, rows=('mlm',))
        self.assertEqual(model.empty_state(B), {})

    def test_a_row_that_reads_again_remembers_less(self):
        with reading_again():
            model = make_model(T)
            view = make_batches().views(0)
            _, state = model.encode(view, state=empty(model))
        memory = state[MEMORY]
        np.testing.assert_array_equal(memory.filled, np.full(B, T // 3))
        np.testing.assert_allclose(
            memory.states[0, :, -T // 3 :],
            model.encoder.lookup(view['streamed'].ids[:, : T // 3]),
        )

    def test_a_view_that_is_cut_out_of_another_goes_on_as_that_does(self):
        cut = VIEWS['streamed']._replace(source='windows', like='streamed')
        views = {'cut': TABLE[ROW].views['streamed']}
        row = dataclasses.replace(TABLE[ROW], views=views)
        with (
            reading_again(), mock.patch.dict(VIEWS, cut=cut),
            mock.patch.dict(TABLE, {ROW: row}),
        ):
            model = make_model(T)
            self.assertEqual(list(model.empty_state(B)), ['memory/cut'])
            self.assertEqual(model.advance('cut', T), T // 3)


class TrainerCase(EagerCase):
    def make(
        self, replicas=1, memory_length=T, steps=4, rate=0.1, batch=B,
        learning_rate=0.01, broken=None, precision='float32',
    ):  # fmt: skip
        strategy = zoo.strategy(replicas)
        with strategy.scope():
            model = make_model(memory_length, rate, precision)
            optimizer = optim.AdamW(model.trainable)
        dataset = make_batches(batch).dataset(0, steps)
        if broken is not None:

            def damage(number, flat):
                name = f'streamed/weights/{ROW}'
                bad = tf.where(number == broken, np.nan, 1.0)
                return {**flat, name: flat[name] * tf.cast(bad, tf.float32)}

            dataset = dataset.enumerate().map(damage)
        return loop.Trainer(
            dataset,
            State(model, strategy, batch),
            optimizer,
            lambda step: tf.constant(learning_rate),
            STATISTICS,
            seed=0,
        )

    def arrays(self, trainer):
        return {k: v.numpy() for k, v in trainer.state.variables().items()}


class TrainerTest(TrainerCase):
    @parameterized.parameters(0, 4, T, 3 * T)
    def test_a_step_sees_those_before(self, memory_length):
        trainer = self.make(memory_length=memory_length, rate=0.0,
                            learning_rate=0.0)
        model, batches = trainer.model, make_batches()
        state = empty(model)
        for step in range(4):
            actual = trainer.train(tf.constant(1))
            outcomes, state = model.outcomes(
                batches.views(step), STATISTICS, state=state
            )
            outcome = outcomes[ROW]
            self.assertAlmostEqual(
                actual[f'{ROW}/loss'],
                float(outcome.loss / outcome.weight),
                places=5,
            )
        for path, array in self.arrays(trainer).items():
            name, field, replica = path.removeprefix('state/').rsplit('/', 2)
            self.assertEqual((name, replica), (MEMORY, '0'))
            np.testing.assert_allclose(
                array, getattr(state[MEMORY], field), atol=1e-6
            )
        self.assertEqual(bool(trainer.state.variables()), memory_length > 0)

    def test_two_replicas_remember_what_one_does(self):
        actual, reports = [], []
        for replicas in (1, 2):
            trainer = self.make(replicas, rate=0.0)
            reports.append(trainer.train(tf.constant(4)))
            arrays = self.arrays(trainer)
            self.assertLen(arrays, 2 * replicas)
            actual.append([
                np.concatenate(
                    [arrays[f'state/{MEMORY}/{field}/{replica}']
                     for replica in range(replicas)],
                    axis=axis,
                )
                for field, axis in (('states', 1), ('filled', 0))
            ])  # fmt: skip
        for one, two in zip(*actual, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-5)
        self.assertEqual(one.tolist(), [T] * B)
        for name, value in reports[0].items():
            self.assertAlmostEqual(reports[1][name], value, places=4, msg=name)

    @parameterized.parameters(1, 2)
    def test_a_step_that_is_not_finite_is_forgotten(self, replicas):
        trainer = self.make(replicas, broken=2)
        trainer.train(tf.constant(2))
        before = self.arrays(trainer)
        with self.assertRaisesRegex(
            loop.NonFiniteLoss,
            f'step 3: {ROW} is not finite. No weight .*=rewind goes around',
        ):
            trainer.train(tf.constant(2))
        np.testing.assert_equal(self.arrays(trainer), before)

    def test_bfloat16_is_kept_exactly(self):
        trainer = self.make(precision='mixed_bfloat16')
        trainer.train(tf.constant(2))
        memory = trainer.state.read()[MEMORY]
        self.assertEqual(memory.states.dtype, tf.bfloat16)
        array = trainer.state.variables()[f'state/{MEMORY}/states/0']
        self.assertEqual(array.dtype, tf.float32)
        np.testing.assert_array_equal(tf.cast(memory.states, tf.float32), array)


class CheckpointTest(places.Folder, TrainerCase):
    @parameterized.parameters(1, 2)
    def test_of_the_same_replicas(self, replicas):
        trainer = self.make(replicas)
        trainer.train(tf.constant(3))
        saved = checkpoint.Checkpoints(self.folder, 2)
        saved.save(3, trainer.state.variables())
        fresh = self.make(replicas)
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            self.assertEqual(saved.restore({}, fresh.state.variables()), 3)
        self.assertNotIn('starts empty', shown.getvalue())
        for array in self.arrays(trainer).values():
            self.assertGreater(np.abs(array).max(), 0)
        assert_near(self.arrays(fresh), self.arrays(trainer))


class HeldoutTest(EagerCase):
    def views(self, rows=(ROW,)):
        plan = make_plan(dict.fromkeys(rows, {}), T)
        return heldout_views(make_store(400), plan, zoo.SPECIALS)

    @parameterized.parameters(0, T, 4 * T)
    def test_eight_rows_with_memory(self, memory_length):
        model, views = make_model(memory_length), self.views()
        heldout = loop.Heldout(model, views, STATISTICS)
        actual = heldout.evaluate()
        self.assertEqual(heldout.evaluate(), actual)  # empty at the first step
        view = views['streamed']
        by_row = (
            x.reshape(-1, 8, T).transpose(1, 0, 2).reshape(8, -1)
            for x in (view.ids, view.targets[ROW])
        )
        ids, targets = by_row
        total = 0.0
        for place in range(0, ids.shape[1], T):
            begin = max(0, place - memory_length)
            states = model.encoder(
                Inputs(ids[:, begin : place + T])
            ).states[:, -T:]
            scores = states @ tf.transpose(model.encoder.embedding_table)
            scores += model.objectives[ROW].token_bias
            total += tf.reduce_sum(
                tf.nn.sparse_softmax_cross_entropy_with_logits(
                    targets[:, place : place + T], scores
                )
            ).numpy()
        self.assertAlmostEqual(
            actual[f'heldout/{ROW}/loss'], total / ids.size, places=4
        )

    def test_other_rows_of_a_sum_keep_their_values(self):
        rows = 'mlm', 'bert_nce'
        actual = []
        for names in ((*rows, ROW), rows):
            views = self.views(names)
            model = make_model(T, rows=names)
            heldout = loop.Heldout(model, views, STATISTICS)
            actual.append(heldout.evaluate())
        together, alone = actual
        self.assertLen(together, 21)
        for name, value in alone.items():
            self.assertAlmostEqual(together[name], value, places=4, msg=name)
