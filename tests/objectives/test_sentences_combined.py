"""`simcse` with every two of its settings at once, beside its definition.

Vectors of texts are the row's; everything after them is written out here, in
float64, pair by pair of masks, with a queue that is half full.
"""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from infoword_tf.layers import dropout
from infoword_tf.objectives import Replicas
from infoword_tf.objectives.sentences import VIEW, sentence_numbers
from infoword_tf.views import flatten, unflatten
from tests import combined, zoo
from tests.eager import eagerly

ROW = 'simcse'
FULL = 7  # of the 12 places of the queue


def unit(x):
    """Vectors of length 1, float64."""
    x = tf.cast(x, tf.float64)
    return x / tf.norm(x, axis=-1, keepdims=True)


def finished(objective, vectors, real, whole=True):
    """Dense layers and head of texts that are there; else 1s.

    What is exported has no head of training: `whole` is False.
    """
    x = tf.boolean_mask(vectors, real)
    for layer in objective.dense:
        x = layer(x)
    if whole and objective.head == 'projector':
        x, _ = objective.train_head(x, tf.ones(len(x)), gather=lambda x: x)
    elif whole and objective.train_head:
        x = objective.train_head(x)
    places = tf.where(real)
    shape = tf.constant([*real.shape, x.shape[1]], tf.int64)
    return tf.scatter_nd(places, x, shape) + tf.cast(
        ~real[..., None], tf.float32
    )


def loss_of(settings, texts, exported, numbers, real, queue, guides):
    """The mean loss of examples, nats.

    Args:
        settings: of the row.
        texts, exported: [N, K, W], b is the second: behind the head, and
            before it, which prefixes are of.
        numbers, there: [N, K], what each is, and whether it is there.
        queue: [S, W] vectors, those before the head behind them if they
            have prefixes, and [S] numbers.
        guides: [N, K, G]; None: there is no guide.
    """
    n, several = numbers.shape
    names = {'forward': 'b', 'both': 'ba', 'joint': 'ba'}
    losses = []
    widths = [int(x) for x in settings['dims'].split(',') if x]
    whole = texts.shape[2]
    for width in (None, *widths):
        x, old = unit(texts), unit(queue[0][..., :whole])
        if width:
            begin = queue[0].shape[1] - exported.shape[2]
            x = unit(exported[..., :width])
            old = unit(queue[0][..., begin : begin + width])
        for side in names[settings['directions']]:
            asks, answers = (0, 1) if side == 'b' else (1, 0)
            columns = [answers]
            if settings['directions'] == 'joint':
                columns = [0, 1]
            if side == 'b' or settings['directions'] == 'joint':
                columns += range(2, several)
            query, answer = x[:, asks], x[:, answers]
            of_b = tf.reduce_sum(query * answer, axis=1)
            cosines, counts = [], []
            for k in columns:
                cosine = query @ tf.transpose(x[:, k])
                count = np.tile(real[:, k], (n, 1))
                # A hard negative of its own is a candidate; its texts are not.
                count &= (k > 1) | ~np.eye(n, dtype=bool)
                count &= numbers[None, :, k] != numbers[:, answers, None]
                if guides is not None:
                    seen = guides[:, asks] @ guides[:, k].T
                    edge = (guides[:, asks] * guides[:, answers]).sum(1)
                    count &= seen <= (edge - settings['guide_margin'])[:, None]
                cosines.append(cosine)
                counts.append(count)
            if len(queue[1]) and (
                side == 'b' or settings['directions'] == 'joint'
            ):
                cosines.append(query @ tf.transpose(old))
                counts.append(queue[1][None] != numbers[:, answers, None])
            cosine, count = tf.concat(cosines, 1), np.hstack(counts)
            weights = count.astype(np.float64)
            if settings['hardness']:
                hard = weights * np.exp(settings['hardness'] * cosine.numpy())
                total = np.maximum(hard.sum(1, keepdims=True), 1e-12)
                weights = hard * count.sum(1, keepdims=True) / total
            positive = tf.exp(of_b / settings['temperature'])
            every = positive + tf.reduce_sum(
                weights * tf.exp(cosine / settings['temperature']), axis=1
            )
            loss = tf.math.log(every) - of_b / settings['temperature']
            losses.append(tf.boolean_mask(loss, real[:, 1]))
    return tf.reduce_mean(tf.stack(losses))


class WrittenOutTest(absltest.TestCase):
    def test_every_two_settings(self):
        self.enterContext(eagerly())
        cases, _ = combined.covering(ROW)
        self.assertGreater(len(cases), 15)
        for chosen in cases:
            with self.subTest(**chosen):
                self.check(combined.case_of(ROW, chosen))

    def check(self, case):
        """Loss, and its gradient in the vectors of texts."""
        model, settings = zoo.model_of(case, 0.0), case.settings_of(ROW)
        objective = model.objectives[ROW]
        flat = flatten(zoo.views_of(case.resolved))
        views = unflatten({k: tf.constant(x) for k, x in flat.items()})
        key, random = dropout.new_key(0, 3), np.random.default_rng(1)
        batches, _ = model.batches(views, zoo.statistics(), key, Replicas())
        batch, view = batches[ROW], views[VIEW]
        numbers = sentence_numbers(view, ROW).numpy()
        state, queue = {}, (np.zeros((0, objective.key_width)), np.zeros(0))
        if settings['queue']:
            rows = random.standard_normal((12, objective.key_width))
            parts = np.split(rows, [objective.whole_width], axis=1)
            rows = np.hstack([unit(x) for x in parts if x.size])
            texts = np.resize(numbers, 12)
            state = {
                'rows': tf.constant(rows, tf.float32),
                'texts': tf.constant(texts, tf.int32),
                'count': tf.constant(FULL),
            }
            queue = rows[:FULL], texts[:FULL]
        vectors = objective.vectors(batch)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(vectors)
            whole = batch._replace(vectors=vectors, state=state)
            outcome = objective.score(whole, objective.candidates(whole))
            loss = outcome.loss / outcome.weight
            shown = view.weights[ROW].numpy().reshape(-1, 1) > 0
            real = (numbers >= 0) & shown
            kinds = []
            for behind in (True, False):
                x = finished(objective, vectors['texts'], real, behind)
                if numbers.shape[1] == 1:
                    x = tf.repeat(x, 2, axis=1)
                if settings['keys'] == 'positives':
                    last = real[:, min(1, real.shape[1] - 1)]
                    keys = finished(objective, vectors['keys'], last, behind)
                    keys = tf.stop_gradient(keys)[:, None]
                    x = tf.concat([x[:, :1], keys, x[:, 2:]], axis=1)
                kinds.append(x)
            if numbers.shape[1] == 1:
                numbers, real = (np.repeat(x, 2, 1) for x in (numbers, real))
            guides = None
            if settings['guide']:
                guides = view.guides[ROW].numpy().astype(np.float32)
                guides = guides.reshape(*numbers.shape, -1)
                guides /= np.linalg.norm(guides, axis=2, keepdims=True)
            expected = loss_of(settings, *kinds, numbers, real, queue, guides)
        self.assertAlmostEqual(float(loss), float(expected), places=4)
        gradient, of_b = (
            tape.gradient(x, vectors['texts']).numpy() for x in (loss, expected)
        )
        largest = np.abs(of_b).max()
        for name in set(vectors) - {'texts'}:  # of the momentum encoder
            others = tape.gradient(loss, vectors[name])
            self.assertTrue(others is None or not np.any(others))
        self.assertGreater(largest, 1e-5)
        np.testing.assert_allclose(gradient, of_b, atol=1e-4 * largest)
