"""Rows of a teacher's vectors: worked values, and texts that share a row.

Shapes: W width of the teacher.
"""

import numpy as np
from absl.testing import parameterized
from scipy import special

from infoword_tf.objectives.embed import pooled
from infoword_tf.views.examples import examples
from tests import zoo
from tests.near import near
from tests.objectives.eq1 import EagerCase, check
from tests.objectives.eq1 import unit as length_1


class EmbedTest(EagerCase):
    def outcome_of(self, case, taught=None, **limits):
        """Outcomes, s and t of a row of a case; None: as drawn."""
        model = zoo.make_model(case, rate=0.0)
        (row,) = model.objectives
        views = zoo.make_views(case)
        view = views['examples']
        if taught is not None:
            shape = (*view.weights[row].shape, -1)
            view.targets[row] = np.reshape(taught, shape)
        batches, _ = model.batches(views, zoo.statistics(), limits=limits)
        objective, batch = model.objectives[row], batches[row]
        vectors, target = map(
            np.array, (objective.student(batch), objective.teacher(batch))
        )
        outcome = objective.score(batch, objective.candidates(batch))
        # What is said of each text.
        cosine, real = outcome.predictions['cosine'], view.weights[row] > 0
        self.assertEqual(cosine.shape, real.shape)
        s, t = (length_1(x[real.ravel()]) for x in (vectors, target))
        near(np.array(cosine)[real], (s * t).sum(axis=1), atol=1e-5)
        return outcome, vectors, target, view

    def test_pooled_as_if_each_text_stood_alone(self):
        text = zoo.make_examples()
        view = examples(text, None, {'embed': 'text'}, zoo.SPECIALS)
        states = np.random.default_rng(0).standard_normal(
            (*view.ids.shape, 5)
        ).astype(np.float32)  # fmt: skip
        for pooling, encoder_kind in (
            ('mean', slice(None)), ('cls', slice(1)), ('last', slice(-1, None))
        ):  # fmt: skip
            actual = np.array(pooled(states, view, 3, pooling))
            actual = actual.reshape(*view.weights['embed'].shape, 5)
            for row, slot in np.ndindex(*view.sequences.shape):
                vectors = states[row][view.block_ids[row] == slot]
                is_text = len(vectors) > 0
                expected = np.zeros(5)
                if is_text:
                    expected = vectors[encoder_kind].mean(axis=0)
                self.assertEqual(is_text, view.sequences[row, slot] >= 0)
                near(actual[row, slot], expected, atol=1e-6)

    @parameterized.parameters(('embed', 0.05), ('embed_lookup', 0.1))
    def test_infonce_over_the_teacher_s_vectors(self, case, temperature):
        outcome, vectors, taught, view = self.outcome_of(case)
        real = view.weights['embed'].ravel() > 0
        vectors, taught = length_1(vectors[real]), length_1(taught[real])
        scores = vectors @ taught.T / temperature
        losses = special.logsumexp(scores, axis=1) - np.diag(scores)
        self.assertLen(losses, 8)
        mi = (np.log(8) - losses).sum()
        check(outcome, 1e-3, loss=losses.sum(), mi=mi)
        check(outcome, 1e-4, ceiling=8 * np.log(8))
        right = scores.argmax(axis=1) == np.arange(8)
        check(outcome, 0, weight=8, accuracy=right.sum())

    def test_copies_of_a_vector_are_no_negatives(self):
        """A translation has its vector too; the bound counts copies."""
        _, _, taught, view = self.outcome_of('embed')
        real = np.flatnonzero(view.weights['embed'])
        taught = taught.copy()
        taught[real[5]] = taught[real[2]]
        outcome, vectors, taught, _ = self.outcome_of('embed', taught)
        scores = length_1(vectors[real]) @ length_1(taught[real]).T / 0.05
        copies = np.zeros((8, 8), bool)
        copies[[2, 5], [5, 2]] = True
        left = np.where(copies, -np.inf, scores)
        losses = special.logsumexp(left, axis=1) - np.diag(scores)
        bound = special.logsumexp(scores, axis=1) - np.diag(scores)
        mi = (np.log(8) - bound).sum()
        check(outcome, 1e-3, loss=losses.sum(), mi=mi)
        check(outcome, 1e-4, ceiling=8 * np.log(8) - 2 * np.log(2))
        right = left.argmax(axis=1) == np.arange(8)
        check(outcome, 0, accuracy=right.sum())

    def test_candidates_of_held_out_text_are_limited(self):
        outcome, *_ = self.outcome_of('embed', embed=4)
        check(outcome, 1e-4, ceiling=8 * np.log(5))

    @parameterized.parameters(
        'embed_distance', 'embed_distance_lookup', 'embed_distance_relative'
    )
    def test_distances(self, case):
        outcome, vectors, taught, view = self.outcome_of(case)
        real = view.weights['embed_distance'].ravel() > 0
        vectors, taught = vectors[real], taught[real]
        cosines = (length_1(vectors) * length_1(taught)).sum(axis=1)
        losses = 1 - cosines
        if case == 'embed_distance_lookup':
            self.assertEqual(vectors.shape, (8, 24))
            losses = np.square(vectors - taught).sum(axis=1)
        near(outcome.loss, losses.sum(), rtol=1e-4)
        near(outcome.more['cosine'], cosines.sum(), rtol=1e-4, atol=1e-4)
