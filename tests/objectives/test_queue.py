"""Queues of `ict` and `dim`, filled by a momentum encoder."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from infoword_tf.objectives import text_ids
from tests import eager, zoo
from tests.objectives.eq1 import EagerCase, F, of_pair, sums

KEY = eager.new_key(4)


def texts_of(view, slots):
    """The tokens of each text of a view, as many to a row."""
    length = view.ids.shape[-1]
    ids, blocks = (x.reshape(-1, length) for x in (view.ids, view.block_ids))
    return [
        tuple(row[block == j])
        for row, block in zip(ids, blocks, strict=True)
        for j in range(slots)
    ]


def sides_of(row, actual, views, keys=False):
    """By side: vectors [n, D], texts, sequences, weights, measured."""
    sides = {'dim': {'b': 'ngrams'}, 'ict': {s: s for s in (
        'passage', 'sentence'
    )}}[row]  # fmt: skip
    layers = {}
    for name, of in sides.items():
        view = views[of]
        weights = view.weights[row]
        slots = weights.shape[1]
        if view.ids.ndim == 3:
            slots //= view.ids.shape[1]
        key = {'dim': 'keys', 'ict': f'{name}_keys'}[row] if keys else name
        vectors = np.asarray(actual[key], np.float64)
        sequences = view.sequences
        if sequences.ndim == 1:
            sequences = np.repeat(sequences, weights.shape[1])
        layers[name] = (
            vectors.reshape(-1, vectors.shape[-1]),
            texts_of(view, slots),
            sequences.ravel(),
            weights.ravel(),
            view.measured.get(row, np.ones_like(weights)).ravel(),
        )
    return layers


def expected_of(row, actual, views, queued):
    """The sums over pairs, one after the other.

    Args:
        found: what the row compares.
        queued: by side, the vectors and texts that are queued.
    """
    side_vectors = sides_of(row, actual, views)
    total = np.zeros(F)
    for side, (b, texts, sequences, weights, measured) in side_vectors.items():
        if row == 'ict':
            a = side_vectors['sentence' if side == 'passage' else 'passage'][0]
            a = 20 * a
        else:
            a = np.asarray(actual['a'], np.float64)[:, 0]
            a = np.repeat(a, len(b) // len(a), axis=0)
        for i in np.flatnonzero(weights):
            others = np.flatnonzero((weights > 0) & (sequences != sequences[i]))
            rows = np.concatenate([b[others], queued[side][0]])
            names = [texts[j] for j in others] + queued[side][1]
            copies = [name == texts[i] for name in names]
            n = len(others)  # those of the bound, which has no queue
            pair = of_pair(a[i] @ b[i], rows[:n] @ a[i], copies[:n])
            pair[0] = of_pair(
                a[i] @ b[i], rows @ a[i], copies, drop_copies=True
            )[0]
            pair[2:] *= measured[i]
            total += pair / len(side_vectors)
    return total


class QueueTest(EagerCase):
    @parameterized.product(name=('ict_queue', 'dim_queue'), again=(0, 1))
    def test_candidates_are_of_the_step_before_too(self, name, again):
        (row,) = zoo.CASES[name].rows
        model = zoo.make_model(name, rate=0.0)
        random = np.random.default_rng(0)
        for weight in model.encoders['momentum'].weights:
            weight.assign(weight + random.normal(0, 0.1, weight.shape))
        objective, state = model.objectives[row], model.empty_state(8)
        if row == 'ict':
            objective.form.log_scale.assign(0.0)
        copied = {n: np.array(x) for n, x in
                state[f'objectives/{row}'].empty.items()}  # fmt: skip
        queued = {
            side: (np.zeros((0, 16)), [])
            for side in (('b',) if row == 'dim' else objective.sides)
        }
        for seed in (0, again):
            views = zoo.make_views(name, seed=seed)
            batches, _ = model.batches(
                views, zoo.statistics(), KEY,
                state={f'objectives/{row}': copied},
            )  # fmt: skip
            batch = batches[row]
            outcome = objective.score(batch, objective.candidates(batch))
            actual = {n: np.array(x) for n, x in
                     objective.vectors(batch).items()}  # fmt: skip
            np.testing.assert_allclose(
                sums(outcome), expected_of(row, actual, views, queued),
                rtol=2e-5, atol=1e-4,
            )  # fmt: skip
            self.assertGreater(float(outcome.loss), 1.0)
            keys = sides_of(row, actual, views, keys=True)
            for side, (vectors, texts, _, weights, _) in keys.items():
                side_vectors = sides_of(row, actual, views)[side][0]
                self.assertGreater(np.abs(vectors - side_vectors).max(), 0.01)
                real_places = np.flatnonzero(weights)
                queued[side] = (
                    np.concatenate([queued[side][0], vectors[real_places]]),
                    queued[side][1] + [texts[i] for i in real_places],
                )
            for place, update in objective.update_state(batch).items():
                if hasattr(update, 'places'):
                    copied[place][update.places] = update.values
                else:
                    copied[place] = np.array(update)
        counts = [x for n, x in copied.items() if n.endswith('count')]
        lengths = [len(texts) for _, texts in queued.values()]
        self.assertEqual(counts, lengths)
        self.assertLess(max(lengths), objective.queue)

    def test_the_same_text_has_a_number_wherever_it_stands(self):
        ids = np.array([[2, 7, 3, 2, 8, 9, 3, 0], [2, 8, 9, 3, 0, 0, 0, 0]])
        block = np.array([[0, 0, 0, 1, 1, 1, 1, 2], [0, 0, 0, 0, 2, 2, 2, 2]])
        column = np.array([[0, 1, 2, 0, 1, 2, 3, 0], [0, 1, 2, 3, 0, 0, 0, 0]])
        real = block[:, None] == np.arange(2)[:, None]
        actual = text_ids(*map(tf.constant, (ids, real, column))).numpy()
        self.assertEqual(actual[0, 1], actual[1, 0])
        self.assertNotEqual(actual[0, 0], actual[1, 0])
        alone = text_ids(tf.constant(ids[1:]), tf.constant(real[1:, 0]))
        self.assertEqual(alone.numpy(), actual[1, 0])
