"""Every row learns what its text says, over each encoder that it allows.

Texts are of kinds, and a kind says all that is asked (zoo.py). Whoever reads
them knows more than the best of constants does, after a few updates on one
batch; whoever reads a constant never does.
"""

import tensorflow as tf
from absl.testing import parameterized

from infoword_tf import views
from infoword_tf.encoders import Encoded
from infoword_tf.model import Model
from infoword_tf.training import loop, optim
from tests import zoo
from tests.objectives import eq1

UPDATES, RATE = 80, 1e-2
NATS = 0.5  # of MI; the kind alone is worth log 2 to log 4
SHARE = 0.2  # of the answers, above chance
LOSS = 0.5  # of the best constant's


class Silent:
    """Encoder whose states are 0 and that learns nothing."""

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
    model = Model(zoo.config_of(case, rate=0.0), zoo.SPECIALS)
    if constant:
        model.encoders['encoder'] = Silent(model.encoder)
    return model


def statistics_of(examples):
    """Returns statistics of the text and of the answers in a batch."""
    answers = loop.most_common_targets(examples)
    return zoo.statistics(zoo.KINDS)._replace(answers=answers)


def learn(model, examples):
    """Trains on a batch; returns by row the means on that batch."""
    optimizer = optim.AdamW(model.trainable, optim.preset(weight_decay=0.0))
    statistics = statistics_of(examples)
    flat = {k: tf.constant(x) for k, x in views.flatten(examples).items()}

    @tf.function(autograph=False)
    def update(step):
        # Plain operations, which are traced fast.
        actual, *_, gradients = zoo.differentiated(
            model, views.unflatten(flat), statistics
        )
        rate, allowed = tf.constant(RATE), tf.constant(True)
        optimizer.apply([*gradients.values()], rate, step, allowed)
        return actual

    for step in range(UPDATES):
        actual = update(tf.constant(step, tf.int64))
    return {row: eq1.mean(outcome) for row, outcome in actual.items()}


def knows(objective, actual, nothing):
    """Tells whether a row beats the best constant, and by how much.

    Args:
        objective: of the row.
        actual: means of the sums of an outcome.
        nothing: the loss of a model that says 0, where that is the best
            constant: of rows without answers.
    """
    if objective.bounded:
        # Most words are their own, so there is little to know.
        least = actual.ceiling / 2 if objective.row == 'diffcse' else NATS
        return actual.mi > least, f'{actual.mi:.2f} nats'
    if objective.ranked:
        above = actual.accuracy - actual.chance
        return above > SHARE, f'{above:.2f} above chance'
    share = actual.loss / nothing.loss
    return share < LOSS, f"{share:.2f} of a constant's loss"


class LessonsTest(parameterized.TestCase):
    def marks(self, case, constant=False):
        """Tells for each row whether it beats a constant, and by how much."""
        examples = zoo.views_of(case.resolved, kinds=zoo.KINDS)
        deaf = model_of(case, constant=True)
        nothing, _ = deaf.outcomes(examples, statistics_of(examples))
        actual = learn(model_of(case, constant), examples)
        self.assertEqual(set(actual), set(case.rows))
        return {
            row: knows(objective, actual[row], eq1.mean(nothing[row]))
            for row, objective in deaf.objectives.items()
        }

    @parameterized.parameters(*zoo.LESSONS)
    def test_every_row_learns(self, name):
        for row, (passed, measured) in self.marks(zoo.LESSONS[name]).items():
            with self.subTest(row):
                self.assertTrue(passed, f'{row} over {name}: {measured}')

    def test_who_reads_a_constant_does_not(self):
        """Whatever is measured: MI, answers or the loss."""
        case = zoo.Case('label:1,soft:1,score:1', encoder='lookup')
        for row, (passed, measured) in self.marks(case, constant=True).items():
            self.assertFalse(passed, f'{row}: {measured}')
