"""A build that another run takes over."""

from unittest import mock

import numpy as np
import tensorflow as tf

from infoword_tf.choices import RunChoices
from infoword_tf.training import build
from tests import zoo
from tests.near import assert_near
from tests.objectives.eq1 import EagerCase

CHOICES = RunChoices(seed=3, learning_rate=0.25)


def make():
    """A build of `mlm` that trains without dropout."""
    trainer = zoo.make_trainer('mlm', 1, 2)
    return build.Build(
        trainer.model, trainer.optimizer, tf.Variable(0.5), trainer.state,
        trainer, mock.Mock(),
    )  # fmt: skip


def data():
    return zoo.dataset([zoo.make_views('mlm', 8, seed=x) for x in (5, 6)])


class BuildTest(EagerCase):
    def test_of_too_many_the_oldest_goes(self):
        cache, (first, *others) = build.BuildCache(), [
            mock.Mock() for _ in range(build.MOST_BUILDS + 1)
        ]  # fmt: skip
        for number, one in enumerate((first, *others)):
            first.free.assert_not_called()
            cache.add(f'{number}', one)
        first.free.assert_called_once_with()
        self.assertEqual([*cache.builds.values()], others)
        for one in others:
            one.free.assert_not_called()

    def test_a_run_takes_over(self):
        """Begins as a new one does: weights, moments, step and seed."""
        used, new = make(), make()
        used.trainer.train(tf.constant(2))
        for one in used, new:
            one.reset(CHOICES, data())
            self.assertEqual(one.peak.numpy(), 0.25)
            self.assertEqual(one.trainer.step.numpy(), 0)
            self.assertEqual(one.trainer.seed.numpy(), 3)
            one.trainer.train(tf.constant(2))
        for actual, expected in (
            (used.model.variables, new.model.variables),
            (used.optimizer.slots, new.optimizer.slots),
        ):
            assert_near(actual, expected)

    def test_another_seed_and_other_examples(self):
        one, other = make(), make()
        words, expected = (
            x.model.variables['encoder/word_embeddings'] for x in (one, other)
        )
        other.model.draw_weights(3)
        before = words.numpy()
        examples = data()
        one.reset(CHOICES, examples)
        self.assertIs(one.trainer.train_dataset, examples)
        self.assertFalse(np.any(words.numpy() == before))
        np.testing.assert_array_equal(words.numpy(), expected.numpy())
