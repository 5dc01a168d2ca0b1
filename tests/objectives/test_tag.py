"""Labels of words: loss and bound against NumPy, and where the axis ends."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from scipy import special

from infoword_tf.encoders import Encoded
from infoword_tf.objectives import Statistics
from infoword_tf.objectives.distill import SoftTags
from infoword_tf.objectives.tag import Tags
from infoword_tf.views import View
from tests import zoo
from tests.near import near, same
from tests.objectives import eq1
from tests.refused import refused

B, T, D, C = 2, 7, 6, 3
TARGETS = np.array([[0, 2, -1, 1, 0, -1, -1], [-1, 0, 0, -1, 2, 0, -1]])
BLOCKS = np.array([[0, 0, 0, 1, 1, 1, 2], [0, 0, 0, 0, 0, 0, 1]], np.int32)
WORDS = TARGETS >= 0
COUNTS = np.bincount(TARGETS[WORDS], minlength=C).astype(float)


def make(scale=0.5, **settings):
    encoder = eq1.encoder_of(D, depth=1)
    head = Tags('tag', encoder, zoo.SPECIALS, classes=C, **settings)
    return eq1.drawn(head, scale=scale)


def batch_of(states, more=None, key=None):
    view = View(
        ids=np.zeros((B, T), np.int32),
        sequences=np.zeros((B, 3), np.int32),
        block_ids=tf.constant(BLOCKS),
        targets={'tag': tf.constant(TARGETS, tf.int32), **(more or {})},
        weights={
            'tag': tf.constant(WORDS, tf.float32),
            'soft_tag': tf.ones((B, 3)),
        },
    )
    encoded = Encoded(tf.constant(states, tf.float32), [
        tf.constant(states, tf.float32), tf.constant(2 * states, tf.float32),
    ])  # fmt: skip
    by_row = {'tag': Statistics(COUNTS, COUNTS)}
    return eq1.batch_of(
        {'examples': view}, {'examples': encoded}, key,
        statistics=Statistics(np.ones(1), np.ones(1), by_row=by_row),
    )  # fmt: skip


def unlabelled(*place):
    targets = TARGETS.copy()
    targets[place] = -2
    return {'tag': tf.constant(targets, tf.int32)}


def outcome(head, states):
    sums = head.score(batch_of(states), None)
    assert float(sums.weight) == float(sums.measured) == WORDS.sum()
    return eq1.mean(sums), sums.predictions


def drawn():
    states = np.random.default_rng(4).standard_normal((B, T, D))
    return states.astype(np.float32)


class TagsTest(eq1.EagerCase):
    def test_cross_entropy_of_words_and_its_bound(self):
        head, states = make(), drawn()
        scores = states @ head.kernel.numpy() + head.bias.numpy()
        log_p = special.log_softmax(scores, axis=2)[WORDS]
        true = TARGETS[WORDS]
        loss = -log_p[np.arange(len(true)), true].mean()
        p = COUNTS / COUNTS.sum()
        entropy = -np.log(p[true]).mean()
        actual, predictions = outcome(head, states)
        eq1.check(actual, 5e-6, loss=loss, mi=entropy - loss, ceiling=entropy)
        right = (log_p.argmax(axis=1) == true).mean()
        eq1.check(actual, 5e-7, chance=p.max(), accuracy=right)
        same(predictions['labels'][WORDS], log_p.argmax(axis=1))

    @parameterized.parameters(False, True)
    def test_who_knows_frequencies_alone_has_no_nats(self, crf):
        head = make(scale=0, crf=crf)
        head.bias.assign(np.log(COUNTS / COUNTS.sum()))
        actual, _ = outcome(head, drawn())
        self.assertAlmostEqual(actual.mi, 0.0, places=6)

    @parameterized.parameters(False, True)
    def test_who_knows_every_label_is_at_the_ceiling(self, crf):
        head = make(scale=0, crf=crf)
        head.kernel.assign(np.eye(D, C))
        states = np.zeros((B, T, D))
        states[WORDS, TARGETS[WORDS]] = 40.0
        actual, predictions = outcome(head, states)
        self.assertAlmostEqual(actual.mi, actual.ceiling, places=5)
        self.assertEqual(actual.accuracy, 1.0)
        same(predictions['labels'][WORDS], TARGETS[WORDS])

    def test_a_teacher_tells_posteriors(self):
        """Divides the first chain of two words by all of its labellings."""
        head, batch = make(crf=True), batch_of(drawn(), unlabelled(0, 1))
        scores = head.token_scores(batch).numpy()[0]
        chain = head.chain
        joint = np.exp(
            (scores[0] + chain.starts)[:, None] + chain.transitions
            + scores[1] + chain.ends
        )
        joint /= joint.sum()
        near(
            np.exp(head.word_scores(batch)[0, :2]),
            [joint.sum(axis=1), joint.sum(axis=0)],
            atol=1e-5,
        )

    def test_embeddings_stand_beside_the_mix(self):
        head, states = make(mix=True, embeddings=True), drawn()
        scales, gamma = (w.numpy() for w in head.mixer.weights)
        shares = special.softmax(scales)
        mix = gamma * (shares[0] * states + shares[1] * 2 * states)
        expected = np.concatenate([states, mix], axis=2) @ head.kernel.numpy()
        near(
            head.token_scores(batch_of(states)),
            expected + head.bias.numpy(),
            atol=1e-5,
        )


class SoftTagsTest(eq1.EagerCase):
    def make(self, scorer):
        row = SoftTags('soft_tag', eq1.encoder_of(D), zoo.SPECIALS,
                       temperature=2.0)  # fmt: skip
        row.build()
        row.set_scorer(scorer)
        return row

    def test_divergence_at_words_alone(self):
        """Labelled or not: the token 2 begins a word without a label."""
        head, states = make(), drawn()
        teacher = np.random.default_rng(5).standard_normal((B, T, C))
        more = unlabelled(0, 2) | {'soft_tag': tf.constant(teacher)}
        batch = batch_of(states, more)
        batch = batch._replace(scorer_batch=batch)
        row = self.make(head)
        actual = row.score(batch, None)
        words = WORDS.copy()
        words[0, 2] = True
        log_p, log_q = (
            special.log_softmax(x / 2, axis=2)[words]
            for x in (teacher, head.token_scores(batch).numpy())
        )
        expected = 4 * (np.exp(log_p) * (log_p - log_q)).sum()
        self.assertAlmostEqual(float(actual.loss), expected, places=4)
        self.assertEqual(float(actual.weight), WORDS.sum() + 1)
        self.assertEqual(float(row.weight(batch)), WORDS.sum() + 1)

    def test_no_chain(self):
        with refused('student_of_chains', '--tag.crf'):
            self.make(make(crf=True))
