"""`xlco` against the published loss in NumPy; its queue by hand."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from scipy import special

from infoword_tf.encoders import Encoded
from infoword_tf.model import Model
from infoword_tf.training.state import State
from tests import eager, zoo
from tests.near import near, same
from tests.objectives.eq1 import EagerCase, batch_of, sums, unit, view_of

N, D = 5, 16
KEY = eager.new_key(4)
QUEUED = {
    'critic': 'dot', 'temperature': 0.25, 'negatives': 'queue', 'queue': 7,
}  # fmt: skip


class LossTest(EagerCase):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(0)
        self.a, self.b = random.standard_normal((2, N, D)).astype(np.float32)
        self.queue = random.standard_normal((7, D)).astype(np.float32)

    def score(
        self, numbers=None, weights=None, state=None, a=None, **settings
    ):
        """Its outcome where [CLS] of a and of b are given."""
        case = zoo.Case(
            'xlco', settings={f'xlco.{k}': x for k, x in settings.items()}
        )
        model = Model(zoo.config_of(case, rate=0.0), zoo.SPECIALS)
        objective = model.objectives['xlco']
        numbers = np.arange(N) if numbers is None else numbers
        view = view_of('xlco', numbers[:, None], weights)
        a = self.a if a is None else a
        batch = batch_of(
            {'crossed': view, 'crossed_keys': view},
            {'crossed': a[:, None], 'crossed_keys': self.b[:, None]},
            KEY,
        )
        if settings.get('momentum'):
            keys = {'momentum': batch.encoded['crossed_keys'].pop('encoder')}
            batch.encoded['crossed_keys'].update(keys)
        batch = batch._replace(state=state or {})
        self.objective, self.batch = objective, batch
        return objective.score(batch, objective.candidates(batch))

    def held(self, texts=None):
        """A queue that is full."""
        texts = 100 + np.arange(7) if texts is None else texts
        return {
            'rows': tf.constant(self.queue),
            'texts': tf.constant(texts, tf.int32),
            'count': tf.constant(7),
        }

    def losses(self, others, scale, finish=lambda x: x):
        """-log of exp(a b / t) among itself and what stands in others."""
        a, b = finish(self.a), finish(self.b)
        positive = (a * b).sum(axis=1) / scale
        return special.logsumexp(
            np.concatenate([positive[:, None], others / scale], axis=1), axis=1
        ) - positive

    def others_of_batch(self, finish):
        scores = finish(self.a) @ finish(self.b).T
        return scores[~np.eye(N, dtype=bool)].reshape(N, N - 1)

    @parameterized.parameters(
        ('cosine', 0.05, unit), ('dot', 0.25, lambda x: x)
    )
    def test_among_the_batch(self, critic, temperature, finish):
        outcome = self.score(critic=critic, temperature=temperature)
        expected = self.losses(
            self.others_of_batch(finish), temperature, finish
        )
        near(outcome.loss, expected.sum(), rtol=1e-5)
        near(outcome.mi, (np.log(N) - expected).sum(), rtol=1e-4, atol=1e-4)

    @parameterized.parameters(
        ('queue', 0.9, ()), ('both', 0.0, ()), ('queue', 0.0, (3, 2)),
    )  # fmt: skip
    def test_among_a_queue(self, negatives, momentum, copy):
        """InfoXLM, Eq. 9: the positive, and negatives of the queue alone.

        Or of the batch too; text `copy[1]` of the queue is that of the batch.
        """
        texts, others = 100 + np.arange(7), self.a @ self.queue.T
        if copy:
            texts[copy[1]], others[copy] = copy[0], -np.inf
        if negatives == 'both':
            batch = self.others_of_batch(lambda x: x)
            others = np.concatenate([batch, others], axis=1)
        outcome = self.score(
            **{**QUEUED, 'negatives': negatives}, momentum=momentum,
            state=self.held(texts),
        )  # fmt: skip
        expected = self.losses(others, 0.25)
        near(outcome.loss, expected.sum(), rtol=1e-5)
        self.check_bound(outcome)
        self.assertEqual(float(outcome.more['identical']), 0.0)

    def check_bound(self, outcome):
        """Over the batch, whatever the loss contrasts: by the dot over 0.25."""
        expected = self.losses(self.others_of_batch(lambda x: x), 0.25)
        near(outcome.mi, (np.log(N) - expected).sum(), rtol=1e-5)
        for actual in (outcome.ceiling, outcome.log_candidates):
            near(actual, N * np.log(N), rtol=1e-5)

    def test_held_out_text_has_no_queue(self):
        """There its candidates are the batch's."""
        outcome = self.score(**QUEUED)
        self.check_bound(outcome)
        near(outcome.loss, N * np.log(N) - outcome.mi, rtol=1e-5)

    def test_a_text_that_is_there_twice(self):
        numbers = np.array([0, 1, 2, 3, 1])
        outcome = self.score(numbers, critic='dot', temperature=0.25)
        scores = self.a @ self.b.T
        scores[[1, 4], [4, 1]] = -np.inf
        others = scores[~np.eye(N, dtype=bool)].reshape(N, N - 1)
        expected = self.losses(others, 0.25)
        near(outcome.loss, expected.sum(), rtol=1e-5)
        self.assertAlmostEqual(float(outcome.more['identical']), 2 / (N - 1), 6)

    def test_no_gradient_enters_the_momentum_encoder(self):
        for momentum in (0.0, 0.9):
            b = tf.Variable(self.b)
            settings = {'negatives': 'both', 'queue': 7, 'momentum': momentum}
            with tf.GradientTape() as tape:
                self.b = b
                outcome = self.score(state=self.held(), **settings)
            gradient = tape.gradient(outcome.loss, b)
            self.b = b.numpy()
            if momentum:
                self.assertIsNone(gradient)
            else:
                self.assertGreater(float(tf.norm(gradient)), 0.1)

    def test_b_goes_through_the_average_of_the_projection(self):
        """`proj_matrix_slow` of infoxlm/models/infoxlm.py; so does a queue."""
        random = np.random.default_rng(1)
        fast, slow = random.standard_normal((2, D, D)).astype(np.float32) / 4
        self.score(**QUEUED, momentum=0.9, project=True)
        weights = {w.path.split('/', 2)[-1]: w for w in self.objective.weights}
        weights['projection/kernel'].assign(fast)
        weights['projection_average/kernel'].assign(slow)
        batch = self.batch._replace(state=self.held())
        outcome = self.objective.score(batch, self.objective.candidates(batch))
        self.a, self.b = self.a @ fast, self.b @ slow
        expected = self.losses(self.a @ self.queue.T, 0.25)
        near(outcome.loss, expected.sum(), rtol=1e-5)
        queued = self.objective.update_state(batch)['rows']
        near(queued.values[-N:], self.b, rtol=1e-4)

    def test_the_average_begins_as_the_projection_and_follows(self):
        """0.9 of itself and 0.1 of it, as the momentum encoder does."""
        model = zoo.make_model('infoxlm_code')
        model.assign_copies()
        pairs = model.averages['momentum']
        self.assertLen(pairs, len(model.encoder.weights) + 1)
        average, _ = pairs[-1]
        self.assertNotIn(average.path, [*model.trainable, *model.exported])
        self.assertIn(average.path, model.checkpointed)
        for copy, source in pairs:
            same(copy.numpy(), source.numpy())
            source.assign(source + 1)
        State(model, zoo.strategy(1), 8).update_averages(tf.constant(True))
        for copy, source in pairs:
            near(copy, source.numpy() - 0.9, atol=1e-6)

    def test_rows_that_are_none_change_nothing(self):
        whole = sums(self.score())
        first = sums(self.score(weights=[1, 1, 1, 1, 0]))
        self.a, self.b = self.a[:4], self.b[:4]
        fewer = sums(self.score(np.arange(4)))
        near(first, fewer, rtol=1e-5)
        self.assertNotAlmostEqual(whole[0], fewer[0])


class EncodedTest(EagerCase):
    def test_what_serves_a_layer_in_the_middle(self):
        """[CLS] of the last layer is what nobody trained then."""
        for layer, pooling in ((0, 'cls'), (1, 'mean')):
            case = zoo.of('xlco', layer=layer, critic='dot')
            vector = case.resolved.vector
            self.assertEqual((vector.pooling, vector.similarity),
                             (pooling, 'dot'))  # fmt: skip

    def test_a_layer_in_the_middle(self):
        """[CLS] of the first of two layers, through both encoders."""
        actual = {}
        for layer in (0, 1, 2):
            case = zoo.CASES['infoxlm_code']._replace(
                objectives='xlco',
                settings={'xlco.layer': layer, 'crossed.masked': False},
            )
            model = zoo.model_of(case, rate=0.0)
            views = zoo.views_of(case.resolved)
            batches, _ = model.batches(views, zoo.statistics())
            row = model.objectives['xlco']
            actual[layer] = row.vectors(batches['xlco'])
            states = batches['xlco'].encoded['crossed']['encoder'][0]
            if layer:
                same(
                    actual[layer]['texts'],
                    np.reshape(states.layers[layer], (-1, 16)),
                )
        near(actual[0]['texts'], actual[2]['texts'], atol=1e-6)
        self.assertGreater(
            np.abs(actual[1]['texts'] - actual[2]['texts']).max(), 0.1
        )

    def test_keys_are_of_the_momentum_encoder(self):
        model = zoo.make_model('infoxlm_code', rate=0.0)
        views = zoo.make_views('infoxlm_code')
        batches, _ = model.batches(views, zoo.statistics())
        encoded = batches['xlco'].encoded
        self.assertEqual(list(encoded['crossed']), ['encoder'])
        self.assertEqual(list(encoded['crossed_keys']), ['momentum'])
        self.assertIsInstance(encoded['crossed'][ 'encoder'][0], Encoded)
