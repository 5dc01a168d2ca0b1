"""`span` against its formulas, in rows that several examples share."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from keras import ops
from scipy import special

from infoword_tf.data.examples import Examples, pack_examples
from infoword_tf.objectives import Statistics, span
from infoword_tf.objectives.span import BINS, ENDS, Spans
from infoword_tf.views.examples import examples as make_view
from tests import eager, zoo
from tests.near import near, same
from tests.objectives.eq1 import EagerCase, batch_of, drawn, encoder_of, sums

D, T = 6, 64
# Tokens, first of the context, one past its last, first and last of the
# answer; None: there is none.
GIVEN = [
    (40, 7, 39, 10, 12),
    (20, 5, 19, 5, 5),
    (30, 4, 29, None, None),
    (12, 4, 11, 10, 10),
    (9, 4, 5, 4, 4),
]
KEY = eager.new_key(3)


def make_examples(cases=GIVEN, nowhere=0):
    """Makes random ids; the first state sums up, or the last (-1)."""
    sizes = np.array([row[0] for row in cases])
    places = np.where(nowhere < 0, sizes + nowhere, nowhere)
    targets = np.array([
        (place, place, place) if row[3] is None else (*row[3:], place)
        for row, place in zip(cases, places, strict=True)
    ])  # fmt: skip
    candidates = np.array([row[1:3] for row in cases], np.int32)
    random = np.random.default_rng(0)
    return Examples(
        random.integers(zoo.FIRST, zoo.V, sizes.sum()).astype(np.int32),
        np.zeros(sizes.sum(), np.int8),
        np.concatenate([[0], np.cumsum(sizes)]),
        places.astype(np.int32),
        {'span': targets.astype(np.int32)},
        {'span': candidates},
        {'span': span.counts_of(targets, candidates)},
    )


def rows_of(examples, width=T):
    """All examples, as few rows as they need: the view and the slots."""
    slots = pack_examples(examples.sizes, width)
    text = examples.batch(np.arange(examples.size), slots, width)
    return make_view(text, None, {'span': 'text'}, zoo.SPECIALS), slots


def make_objective(end='independent', null=True, seed=0):
    objective = Spans('span', encoder_of(D), zoo.SPECIALS, end=end, null=null)
    return drawn(objective, seed)


def states_of(examples, view, slots, seed=1):
    """By example [tokens, D], and in the rows of the view [R, T, D]."""
    random = np.random.default_rng(seed)
    hidden = [random.standard_normal((n, D)) for n in examples.sizes]
    rows = np.zeros((*view.ids.shape, D), np.float32)
    rows += random.standard_normal(rows.shape)  # what no example is
    for i, row in enumerate(slots):
        end = 0
        for number in row[row >= 0]:
            begin, end = end, end + len(hidden[number])
            rows[i, begin:end] = hidden[number]
    return hidden, rows


def statistics_of(examples, training=None):
    measured = examples.counts['span']
    hidden = Statistics(measured if training is None else training, measured)
    return zoo.statistics()._replace(by_row={'span': hidden})


def predicted(objective, examples, view, states):
    batch = batch_of(
        {'examples': view},
        {'examples': states},
        statistics=statistics_of(examples),
    )
    return objective.score(batch, None).predictions


def weights_of(objective):
    return {v.name: v.numpy().astype(np.float64) for v in objective.weights}


def scores_of(objective, x, first):
    """[tokens, 2] float64, the last places given the first one."""
    w = weights_of(objective)
    if not objective.conditional:
        return x @ w['kernel']
    joined = np.concatenate([x, np.tile(x[first], (len(x), 1))], axis=1)
    inner = np.tanh(joined @ w['inner_kernel'] + w['inner_bias'])
    inner = inner - inner.mean(axis=1, keepdims=True)
    inner /= np.sqrt((inner**2).mean(axis=1, keepdims=True) + 1e-12)
    inner = inner * w['norm_gamma'] + w['norm_beta']
    return np.concatenate(
        [x @ w['start_kernel'], inner @ w['end_kernel']], axis=1
    )


def candidates_of(examples, number, null):
    begin, end = examples.candidates['span'][number]
    places = list(range(begin, end))
    return places + [examples.places[number]] * null


def density(examples, number, null, counts):
    """[M] p of every candidate: its part's share, spread over the part."""
    begin, end = examples.candidates['span'][number]
    part = [BINS * i // (end - begin) for i in range(end - begin)]
    actual = [counts[k] / part.count(k) for k in part]
    if null:
        actual.append(counts[BINS])
    return np.array(actual, float) / np.sum(actual)


def outcome_of(objective, examples, x, number, training):
    """Returns what the two pairs of one example add, by hand."""
    target = examples.targets['span'][number]
    places = candidates_of(examples, number, objective.null)
    if not np.isin(target[:2], places).all():
        return np.zeros(9)
    scores = scores_of(objective, x, target[0])
    total = np.zeros(9)
    for end in range(2):
        half = slice(end * (BINS + 1), (end + 1) * (BINS + 1))
        counts = np.maximum(examples.counts['span'][half], 1e-6)
        p = density(examples, number, objective.null, counts)
        expected = density(examples, number, objective.null, training[half] + 1)
        hidden = scores[places, end]
        b = places.index(target[end])
        loss = special.logsumexp(hidden) - hidden[b]
        likely = np.isclose(p, p.max())
        total += [
            loss, 1, -np.log(p[b]) - loss, -np.log(p[b]), np.log(len(places)),
            np.log(expected[b] / p[b]),
            (np.delete(hidden, b) < hidden[b]).all(),
            likely[b] / likely.sum(), 1,
        ]  # fmt: skip
    return total


class SpansTest(EagerCase):
    def setUp(self):
        super().setUp()
        self.examples = make_examples()
        self.view, self.slots = rows_of(self.examples)
        self.hidden, self.states = states_of(
            self.examples, self.view, self.slots
        )

    @parameterized.product(
        end=ENDS, null=(False, True), key=(None, KEY), nowhere=(0, -1)
    )
    def test_every_pair_by_itself(self, end, null, key, nowhere):
        examples = make_examples(nowhere=nowhere)
        examples.targets['span'][1, 1] = 2  # the end alone is no candidate
        view, slots = rows_of(examples)
        self.assertEqual(slots.shape, (2, 3))
        self.assertEqual(slots.min(), -1)  # one is empty
        hidden, states = states_of(examples, view, slots)
        objective = make_objective(end, null)
        training = np.random.default_rng(2).integers(0, 9, 2 * (BINS + 1))
        batch = batch_of(
            {'examples': view},
            {'examples': states},
            key,
            statistics=statistics_of(examples, training),
        )
        actual = objective.score(batch, objective.candidates(batch))
        total = sum(
            outcome_of(objective, examples, x, number, training)
            for number, x in enumerate(hidden)
        )
        self.assertEqual(total[1], 8 if null else 6)
        self.assertEqual(float(objective.weight(batch)), total[1])
        near(sums(actual), total, rtol=1e-5, atol=1e-4)

    def test_counts(self):
        first, last = self.examples.counts['span'].reshape(2, BINS + 1)
        # 3 of 32 places, 0 of 14, 6 of 7, 0 of 1; and one has none.
        self.assertEqual(np.nonzero(first)[0].tolist(), [0, 1, 17, BINS])
        self.assertEqual(first[[0, 1, 17, BINS]].tolist(), [2, 1, 1, 1])
        self.assertEqual(np.nonzero(last)[0].tolist(), [0, 3, 17, BINS])

    @parameterized.parameters(1, 7, 19, 20, 21, 333)
    def test_parts_hold_all_places(self, size):
        """The densities of all places of a context add up to 1."""
        examples = make_examples([(size + 3, 2, size + 2, 2, 2)])
        view, slots = rows_of(examples, 344)
        objective = make_objective()
        log_p = span._log_density(
            objective._slots(view), np.arange(1.0, BINS + 2)
        )
        densities = density(examples, 0, True, np.arange(1.0, BINS + 2))
        actual = np.exp(np.asarray(log_p)[0, 0])
        near(actual[2 : size + 2], densities[:-1], rtol=1e-5)
        self.assertAlmostEqual(actual[0], densities[-1], places=5)

    def test_the_best_first_places_and_what_follows_each(self):
        examples, view, slots = self.examples, self.view, self.slots
        hidden, states = self.hidden, self.states
        objective = make_objective('conditional')
        actual = predicted(objective, examples, view, states)
        actual = {name: np.asarray(x) for name, x in actual.items()}
        for number, x in enumerate(hidden):
            row, slot = np.argwhere(slots == number)[0]
            offset = sum(len(hidden[n]) for n in slots[row, :slot])
            begin, end = examples.candidates['span'][number]
            places = candidates_of(examples, number, True)
            first = special.log_softmax(scores_of(objective, x, 0)[places, 0])
            best = np.argsort(-first[:-1])[: span.STARTS]
            count = len(best)
            same(actual['starts'][row, slot, :count], best)
            near(actual['first'][row, slot, :count], first[best], rtol=1e-4)
            self.assertTrue((actual['first'][row, slot, count:] < -1e29).all())
            for i, start in enumerate(best):
                last = scores_of(objective, x, begin + start)[places, 1]
                near(
                    actual['last'][row, offset + begin : offset + end, i],
                    special.log_softmax(last)[:-1],
                    rtol=1e-4,
                    atol=1e-5,
                )
            none = scores_of(objective, x, 0)[places, 1]
            self.assertAlmostEqual(
                actual['nowhere'][row, slot],
                first[-1] + special.log_softmax(none)[-1],
                places=4,
            )

    def test_scores_of_two_vectors(self):
        examples, view, slots = self.examples, self.view, self.slots
        hidden, states = self.hidden, self.states
        objective = make_objective()
        actual = predicted(objective, examples, view, states)
        self.assertEqual(set(actual), {'first', 'last', 'nowhere'})
        both = states @ weights_of(objective)['kernel']
        near(actual['first'], both[..., 0], rtol=1e-4)
        near(actual['last'], both[..., 1], rtol=1e-4)
        row, slot = np.argwhere(slots == 3)[0]
        nowhere = scores_of(objective, hidden[3], 0)[0].sum()
        self.assertAlmostEqual(
            float(actual['nowhere'][row, slot]), nowhere, places=4
        )
        without = make_objective(null=False)
        actual = predicted(without, examples, view, states)
        self.assertEqual(set(actual), {'first', 'last'})

    @parameterized.parameters(*ENDS)
    def test_gradients_reach_candidates_alone(self, end):
        view, slots = self.view, self.slots
        objective = make_objective(end, null=False)
        x = tf.Variable(self.states)
        with tf.GradientTape() as tape:
            batch = batch_of(
                {'examples': view}, {'examples': x}, KEY,
                statistics=statistics_of(self.examples),
            )  # fmt: skip
            loss = objective.score(batch, None).loss
        actual = tf.convert_to_tensor(tape.gradient(loss, x)).numpy()
        self.assertTrue(np.isfinite(actual).all())
        touched = np.abs(actual).max(axis=2) > 0
        number = np.asarray(view.candidates['span'])
        example = np.take_along_axis(slots, np.maximum(number, 0), axis=1)
        # One has no answer here, and one but one candidate.
        learns = (number >= 0) & ~np.isin(example, [2, 4])
        same(touched, learns)

    def test_the_head_of_xlnet(self):
        """Equals that of the Model Garden, which has its parts."""
        from official.nlp.modeling.networks import span_labeling

        random = np.random.default_rng(5)
        # Two: of one, theirs squeezes the batch away.
        x = random.standard_normal((2, 9, D)).astype(np.float32)
        paragraph = np.array([[1] * 5 + [0] * 3 + [1]] * 2, np.float32)
        last, second = np.array([8, 8]), np.array([2, 2])
        head = span_labeling.XLNetSpanLabeling(D)
        head(x, last, paragraph, second, training=True)
        objective = make_objective('conditional')
        w = weights_of(objective)
        parts = (
            head.start_logits_dense,
            head.end_logits_inner_dense,
            head.end_logits_layer_norm,
            head.end_logits_output_dense,
        )
        for part, values in zip(parts, (
            (w['start_kernel'], [0.0]),
            (w['inner_kernel'], w['inner_bias']),
            (w['norm_gamma'], w['norm_beta']),
            (w['end_kernel'], [0.0]),
        ), strict=True):  # fmt: skip
            part.set_weights([np.asarray(v, np.float32) for v in values])
        known = head(x, last, paragraph, second, training=True)
        best = head(x, last, paragraph, training=False)

        examples = make_examples([(9, 0, 5, 2, 3)] * 2, nowhere=-1)
        view, _ = rows_of(examples, 9)
        slots = objective._slots(view)
        states = ops.convert_to_tensor(x)
        scores = objective.ends_after(
            states, second[:, None].astype(np.int32), slots.token
        )
        inside = [0, 1, 2, 3, 4, 8]
        near(
            np.asarray(scores)[:, inside],
            np.asarray(known['end_logits'])[:, inside],
            rtol=1e-4, atol=1e-5,
        )  # fmt: skip
        first = span.log_softmax(slots.candidates, objective.starts(states))
        near(
            -np.sort(-np.asarray(first)[:, 0], axis=1)[:, : span.STARTS],
            best['start_top_predictions'],
            rtol=1e-4,
        )
