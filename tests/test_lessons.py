"""Every row learns what its text says, over each encoder that it allows.

Texts are of kinds, and a kind says all that is asked (zoo.py). Whoever reads
them knows more than the best of constants does, after a few updates on one
batch; whoever reads a constant never does.
"""

from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf import views
from infoword_tf.encoders import Encoded
from infoword_tf.model import Model
from infoword_tf.training import optim
from tests import zoo
from tests.objectives import given

UPDATES, RATE = 60, 1e-2
NATS = 0.3  # of MI; the kind alone is worth log 2 to log 4
SHARE = 0.2  # of the answers, above chance
LOSS = 0.5  # of the best constant's


class Silent:
    """An encoder that says 0 wherever it is asked, and learns nothing."""

    def __init__(self, encoder):
        self.encoder = encoder

    def __getattr__(self, name):
        return getattr(self.encoder, name)

    def __call__(self, inputs, places=None, all_layers=False, **more):
        del more
        b, t = inputs.ids.shape
        states = tf.zeros((b, t, self.width))
        at = states if places is None else states[:, : places.shape[1]]
        layers = [states] * (self.depth + 1) if all_layers else None
        return Encoded(at, layers)


def model_of(case, constant=False):
    """A fresh model; constant: all that its encoder says is 0."""
    model = Model(zoo.config_of(case, rate=0.0), zoo.SPECIALS)
    if constant:
        model.encoders['encoder'] = Silent(model.encoder)
    return model


def outcomes(model, made):
    """By row; plain operations, which are traced fast."""
    return model.outcomes(made, zoo.statistics(zoo.KINDS))[0]


def learn(case, constant=False):
    """By row, what it measures of the batch that it was trained on."""
    model = model_of(case, constant)
    optimizer = optim.AdamW(model.trainable, optim.chosen(weight_decay=0.0))
    flat = views.flatten(zoo.views_of(case.resolved, kinds=zoo.KINDS))
    flat = {name: tf.constant(x) for name, x in flat.items()}

    @tf.function(autograph=False)
    def update(step):
        with tf.GradientTape() as tape:
            found = outcomes(model, views.unflatten(flat))
            loss = model.loss(found)
        gradients = tape.gradient(
            loss,
            list(optimizer.variables.values()),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        optimizer.apply(gradients, tf.constant(RATE), step, tf.constant(True))
        return found

    for step in range(UPDATES):
        found = update(tf.constant(step, tf.int64))
    return {row: given.mean(outcome) for row, outcome in found.items()}


def knows(objective, found, nothing):
    """Whether a row says more than the best constant, and by how much.

    Args:
        objective: of the row.
        found: means of its sums.
        nothing: the loss of a model that says 0, where that is the best
            constant: of rows without answers.
    """
    if objective.bounded:
        return found.mi > NATS, f'{found.mi:.2f} nats'
    if objective.ranked:
        above = found.accuracy - found.chance
        return above > SHARE, f'{above:.2f} above chance'
    share = found.loss / nothing.loss
    return share < LOSS, f"{share:.2f} of a constant's loss"
