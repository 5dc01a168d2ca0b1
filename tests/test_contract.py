"""The contract holds what is to come: toys of rows."""

import dataclasses
import unittest

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf import checkpoint, files
from infoword_tf.model import Model
from infoword_tf.objectives import TABLE
from infoword_tf.training import loop
from infoword_tf.training.state import State
from tests import eager, places, toys, zoo
from tests.eager import eagerly
from tests.near import assert_near
from tests.refused import refused

KEY = eager.new_key(0, 0)


def setUpModule():
    unittest.enterModuleContext(toys.added())


class QueueTest(absltest.TestCase):
    """A momentum encoder, and queues of keys."""

    def test_a_loss_that_is_not_finite_changes_nothing(self):
        self.enterContext(eagerly())
        trainer = zoo.make_trainer('ict_queue', 1, steps=2)
        model = trainer.model
        empty = trainer.state.read()['objectives/ict']['sentence_rows']
        trainer.train(tf.constant(1))
        self.assertFalse(np.any(empty), 'what was read stays')
        weights = {k: v.numpy() for k, v in model.variables.items()}
        state = {k: v.numpy() for k, v in trainer.state.variables().items()}
        self.assertGreater(state['state/objectives/ict/sentence_count'], 0)
        table = model.encoder.embedding_table
        table.assign(table * np.nan)
        with self.assertRaises(loop.NonFiniteLoss):
            trainer.train(tf.constant(1))
        assert_near(trainer.state.variables(), state)
        momentum = {k: x for k, x in weights.items() if k[:9] == 'momentum/'}
        assert_near(model.variables, momentum)


class BegunTest(places.Folder, absltest.TestCase):
    """(b), (c) Rows that start from another workdir."""

    def written(self, model):
        model.config.write(self.folder)
        files.write_tensors(
            self.folder / 'weights.safetensors',
            {k: v.numpy() for k, v in model.exported.items()},
        )
        return str(self.folder)

    def test_a_generator_of_other_sizes_and_its_head(self):
        """Words that it chooses are read by a third encoder."""
        other = zoo.Case('mlm', settings={'mlm.transform': True}, layers=3)
        first = zoo.model_of(other, seed=5)
        case = zoo.Case(
            'replaced', settings={'replaced.generator': self.written(first)}
        )
        model = Model(zoo.config_of(case, rate=0.0), zoo.SPECIALS)
        views = zoo.views_of(case.resolved)
        self.assertEqual(model.encoders['generator'].depth, 3)
        self.assertEqual(model.encoder.depth, 1)
        mine = {f'generator/{path.removeprefix("encoder/")}': x
                for path, x in first.variables.items()}  # fmt: skip
        assert_near(model.variables, mine)
        for weights in (model.trainable, model.checkpointed):
            self.assertNoCommonElements(mine, weights)
        learning = {p.split('/')[0] for p in model.trainable}
        self.assertEqual(learning, {'encoder', 'discriminator', 'objectives'})
        kernel = {'objectives/replaced/kernel'}
        self.assertEqual(model.no_decay, kernel)
        self.assertNoCommonElements(kernel, model.exported)
        self.assertContainsSubset(kernel, model.checkpointed)
        *_, loss, actual = zoo.differentiated(
            model, views, zoo.statistics(), KEY
        )
        self.assertAlmostEqual(float(loss), np.log(2), delta=0.2)
        # The encoder learns through the state that is read alone.
        for encoder in 'encoder', 'discriminator':
            kernel = actual[f'{encoder}/layer_0/inner_kernel']
            self.assertGreater(np.abs(kernel).max(), 0)

    def test_another_vocabulary(self):
        config = zoo.config('mlm')
        arguments = {**config.encoder.arguments, 'vocab_size': 7}
        encoder = dataclasses.replace(config.encoder, arguments=arguments)
        config.replace(encoder=encoder).write(self.folder)
        case = zoo.Case(
            'replaced', settings={'replaced.generator': str(self.folder)}
        )
        with refused('auxiliary_of_other_vocabulary', 7, 60):
            Model(zoo.config_of(case), zoo.SPECIALS)

    def test_a_network_of_the_row_frozen(self):
        first = zoo.model_of(zoo.Case('auxiliary'), seed=6)
        block = {p for p in first.variables if '/block/' in p}
        self.assertContainsSubset(block, first.trainable)
        case = zoo.Case('auxiliary', settings={
            'auxiliary.begin': self.written(first), 'auxiliary.frozen': True,
        })  # fmt: skip
        model = Model(zoo.config_of(case), zoo.SPECIALS)
        self.assertEmpty(block & set(model.trainable))
        self.assertContainsSubset(block, model.checkpointed)
        assert_near(model.variables, {p: first.variables[p] for p in block})


class TaughtTest(absltest.TestCase):
    """(a) A second, frozen encoder."""

    def test_it_does_not_learn_and_does_not_travel(self):
        model = zoo.model_of(zoo.Case('taught'))
        guide = {p for p in model.variables if p.startswith('guide/')}
        self.assertLen(guide, len(model.encoder.weights))
        self.assertEmpty(guide & set(model.trainable))
        self.assertEmpty(guide & set(model.exported))
        self.assertContainsSubset(guide, model.checkpointed)
        for path in guide:  # it has weights of its own
            if path.endswith(('kernel', 'embeddings')):
                one, two = (model.variables[path.replace('guide', name, 1)]
                            for name in ('guide', 'encoder'))  # fmt: skip
                self.assertFalse(np.array_equal(one, two), path)

    def test_it_is_not_built_where_nothing_is_trained(self):
        config = zoo.config_of(zoo.Case('taught'))
        model = Model(config, zoo.SPECIALS, auxiliaries=False)
        self.assertEqual(list(model.encoders), ['encoder'])


class AuxiliaryTest(parameterized.TestCase):
    @parameterized.parameters(
        ({'frozen': False, 'momentum': 0.5}, 'momentum_encoder_learns'),
        ({'saved': False, 'momentum': 0.5}, 'auxiliary_encoder_unsaved'),
        ({'saved': False, 'frozen': False}, 'auxiliary_encoder_unsaved'),
        ({'momentum': 0.5, 'workdir': 'x'}, 'copied_from_two_models'),
        ({'copied': True, 'workdir': 'x'}, 'copied_from_two_models'),
    )
    def test_what_one_cannot_be(self, auxiliary, id):
        other = dataclasses.replace(
            toys.ROWS['taught'],
            auxiliaries={'guide': toys.Auxiliary(**auxiliary)},
        )
        with (
            absltest.mock.patch.dict(TABLE, other=other),
            refused(id, '--objectives=other', 'guide'),
        ):
            zoo.Case('other').resolved  # noqa: B018


class PromisesTest(places.Folder, absltest.TestCase):
    def test_state_comes_back_for_another_number_of_replicas(self):
        """Gives to all what is the same on all, and says what is of rows."""
        saved = {}
        for replicas in (2, 1, 2):
            with zoo.strategy(replicas).scope():
                model = zoo.make_model('ict_queue', 0.0)
            state = State(model, zoo.strategy(replicas), 8)
            checkpoints = checkpoint.Checkpoints(self.folder, 2)
            if not saved:
                for number, part in enumerate(state.variables().values()):
                    part.assign(tf.ones_like(part) * (number + 1))
                saved = {k: v.numpy() for k, v in state.variables().items()}
                checkpoints.save(5, state.variables())
            self.assertEqual(checkpoints.restore({}, state.variables()), 5)
            state.broadcast()
            actual = {k: v.numpy() for k, v in state.variables().items()}
            np.testing.assert_equal(actual, saved)
        # The second replica too, whose variables were never restored.
        both = zoo.strategy(2).run(state.read)['objectives/ict']
        for part, value in both.items():
            for one in zoo.strategy(2).experimental_local_results(value):
                np.testing.assert_array_equal(
                    one, saved[f'state/objectives/ict/{part}']
                )
