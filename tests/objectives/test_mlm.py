"""`mlm` and `bert_nce` against their formulas, one pair after the other."""

import itertools
import math
import zlib

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from scipy import special

from infoword_tf import objectives
from infoword_tf.encoders import Inputs, Transformer
from infoword_tf.layers import dropout
from infoword_tf.objectives import TABLE, Statistics, infonce
from infoword_tf.views import View
from tests import eager, zoo
from tests.layers.operations import gelu_tanh, normed
from tests.near import near, same
from tests.objectives.eq1 import (
    EagerCase,
    F,
    batch_of,
    check,
    drawn,
    of_pair,
    of_piece,
    states_of,
    sums,
)
from tests.refused import refused

V, D, P = zoo.V, 16, 3
KEY = eager.new_key(31)
COMMONEST = int(np.argmax(zoo.frequencies()))


def make_objective(row, width=D, form='gelu_tanh', **settings):
    """An objective over an encoder whose words are drawn."""
    encoder = Transformer(
        vocab_size=V, layers=1, width=width, heads=2,
        max_length=zoo.POSITIONS, activation=form,
    )  # fmt: skip
    encoder.build()
    random = np.random.default_rng(1)
    encoder.embedding_table.assign(0.5 * random.standard_normal((V, width)))
    objective = TABLE[row].objective(row, encoder, zoo.SPECIALS, **settings)
    return drawn(objective, scale=0.5)


def make_view(row, targets, weights=None, sequences=None, shown=None):
    """A masked view; `shown` [B, P] is what stands at the places."""
    b, p = targets.shape
    ids = np.full((b, p + 2), 7, np.int32)
    ids[:, 0], ids[:, -1] = zoo.CLS, zoo.SEP
    ids[:, 1:-1] = zoo.MASK if shown is None else shown
    places = np.tile(np.arange(1, p + 1, dtype=np.int32), (b, 1))
    if weights is None:
        weights = np.ones((b, p))
    if sequences is None:
        sequences = np.arange(b)
    return View(
        ids=tf.constant(ids),
        sequences=tf.constant(sequences, tf.int32),
        places={row: tf.constant(places)},
        targets={row: tf.constant(targets, tf.int32)},
        weights={row: tf.constant(weights, tf.float32)},
        measured={row: tf.constant(ids[:, 1:-1] == zoo.MASK, tf.float32)},
    )


def make_batch(b, seed=0, p=P):
    """Few words, so that many are there twice; states of the size of 1."""
    random = np.random.default_rng(seed)
    targets = random.choice(np.arange(5, 17), size=(b, p)).astype(np.int32)
    states = random.standard_normal((b, p, D)).astype(np.float32)
    weights = np.arange(p) < random.integers(0, p + 1, size=(b, 1))
    weights[0] = True
    return states, targets, weights.astype(np.float32)


def score(objective, view, states, key=None, limit=None, statistics=None):
    """An outcome, gradients by states [B, P, D] and by words [V, D]."""
    states = tf.constant(states)
    words = objective.encoder.embedding_table.value
    with tf.GradientTape() as tape:
        tape.watch(states)
        batch = batch_of(
            {'masked': view}, {'masked': states}, key, limit, statistics
        )
        outcome = objective.score(batch, objective.candidates(batch))
    gradients = tape.gradient(
        outcome.loss, [states, words],
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )  # fmt: skip
    return outcome, [tf.convert_to_tensor(g).numpy() for g in gradients]


def score_batch(objective, states, targets, weights, key=None, **more):
    """As `score`, of a view of these targets."""
    view = make_view(objective.row, targets, weights)
    return score(objective, view, states, key, **more)


def literal(
    objective, states, targets, weights, sequences=None, limit=None,
    drop_hits=False,
):  # fmt: skip
    """J_MLM with its multiset written out, float64; as `score`."""
    sequences = range(len(targets)) if sequences is None else sequences
    words = objective.encoder.embedding_table.numpy().astype(np.float64)
    outcome, d_states = np.zeros(F), np.zeros(states.shape)
    d_words = np.zeros(words.shape)
    for i, q in np.argwhere(weights > 0):
        others = [
            targets[j, r] for j, r in np.argwhere(weights > 0)
            if sequences[j] != sequences[i]
        ][:limit]  # fmt: skip
        positive, scores = targets[i, q], words @ states[i, q]
        copies = [w == positive for w in others]
        contrasted = [
            positive,
            *(w for w, copy in zip(others, copies, strict=True)
              if not (drop_hits and copy)),
        ]  # fmt: skip
        share = special.softmax(scores[contrasted])
        share[0] -= 1
        d_states[i, q] = share @ words[contrasted]
        np.add.at(d_words, contrasted, np.outer(share, states[i, q]))
        outcome += of_pair(
            scores[positive], scores[others], copies, positive == COMMONEST,
            drop_hits,
        )  # fmt: skip
    return infonce.Outcome(*outcome), [d_states, d_words]


class NceTokensTest(EagerCase):
    def test_words_are_scored_by_what_they_share_and_by_frequency(self):
        """f is log p(b | a) / p(b), of which a filled blank wants p(b | a)."""
        objective = make_objective('bert_nce')
        states = np.random.default_rng(2).standard_normal((2, P, D))
        counts = np.arange(1, V + 1)
        table = objective.encoder.embedding_table.numpy()
        np.testing.assert_allclose(
            objective.token_scores(tf.constant(states, tf.float32), counts),
            states @ table.T + np.log(counts / counts.sum()), atol=1e-5,
        )  # fmt: skip

    # 4 x 3 and 20 x 3 targets: columns are targets; 24 x 3 > 60: words, but
    # with a limit the first are ids still. One sequence has no candidates.
    @parameterized.parameters(
        *itertools.product((1, 4, 20, 24), (False, True), (None, KEY)),
        *itertools.product((8, 24), (False,), (None,), (1, 4, 11, 1000)),
        *itertools.product((6, 24), (False,), (None,), (None,), (2,)),
    )  # fmt: skip
    def test_is_the_literal_multiset(
        self, b, drop_hits, key, limit=None, together=1
    ):
        """Candidates are the first of other texts, some with two rows."""
        objective = make_objective('bert_nce', drop_hits=drop_hits)
        states, targets, weights = make_batch(b)
        self.assertEqual(len(set(weights.sum(axis=1))) > 1, b > 1)
        sequences = np.arange(b) // together * 5
        view = make_view('bert_nce', targets, weights, sequences)
        actual = score(objective, view, states, key, limit)
        expected = literal(
            objective, states, targets, weights, sequences, limit, drop_hits
        )
        near(sums(actual[0]), sums(expected[0]), rtol=2e-6, atol=2e-5)
        for one, two in zip(actual[1], expected[1], strict=True):
            near(one, two, rtol=0, atol=1e-5)

    def test_candidates_of_other_text(self):
        """Held-out batches are scored against the first sequences of all."""
        objective = make_objective('bert_nce')
        states, targets, weights = make_batch(8)
        whole = make_view('bert_nce', targets, weights)
        expected, _ = score(objective, whole, states, limit=6)
        head = make_view('bert_nce', targets[:6], weights[:6])
        candidates = objective.candidates(
            batch_of({'masked': head}, {}, limit=6)
        )
        total = np.zeros(F)
        for part in (slice(0, 3), slice(3, 8)):
            view = make_view(
                'bert_nce', targets[part], weights[part], np.arange(8)[part]
            )
            at = {'masked': tf.constant(states[part])}
            total += sums(
                objective.score(batch_of({'masked': view}, at), candidates)
            )
        near(total, sums(expected), rtol=1e-5)

    @parameterized.product(key=(None, KEY))
    def test_mixed_precision_scores_in_float32(self, key):
        """By counts of the vocabulary; by targets see test_precision.py."""
        objective = make_objective('bert_nce', dtype='mixed_bfloat16')
        states, targets, weights = make_batch(24)
        rounded = tf.cast(states, tf.bfloat16)
        actual, (by_states, _) = score_batch(
            objective, rounded, targets, weights, key
        )
        self.assertEqual(by_states.dtype, tf.bfloat16.as_numpy_dtype)
        rounded = tf.cast(rounded, tf.float32).numpy()
        expected, _ = literal(objective, rounded, targets, weights)
        near(sums(actual), sums(expected), rtol=2e-6, atol=2e-5)


class MaskedTokensTest(EagerCase):
    def written_out(self, objective, states, form):
        """Scores [B, P, V] in NumPy, float64."""
        x = states.astype(np.float64)
        bias = 0.0
        if objective.transform:
            w = {weight.name: weight.numpy() for weight in objective.weights}
            x = x @ w['kernel'] + w['bias']
            if form == 'gelu_tanh':
                x = gelu_tanh(x)
            else:
                x = x * 0.5 * (1 + special.erf(x / math.sqrt(2)))
            x = normed(x, w, 'norm', 1e-12)
            bias = w['piece_bias']
        return x @ objective.encoder.embedding_table.numpy().T + bias

    @parameterized.product(
        transform=(False, True),
        form=('gelu_tanh', 'gelu_erf'),
        key=(None, KEY),
    )
    def test_is_cross_entropy(self, transform, form, key):
        objective = make_objective('mlm', form=form, transform=transform)
        states, targets, weights = make_batch(8)
        # Text that is measured may have other frequencies than was trained on.
        frequencies = zoo.frequencies()
        statistics = Statistics(90 * frequencies[::-1], 500 * frequencies)
        outcome, _ = score_batch(
            objective, states, targets, weights, key, statistics=statistics
        )
        scores = self.written_out(objective, states, form)
        real = weights > 0
        expected = [
            of_piece(x, target, statistics)
            for x, target in zip(scores[real], targets[real], strict=True)
        ]
        near(sums(outcome), np.sum(expected, axis=0), rtol=1e-5, atol=1e-4)

    def test_copying_what_is_visible_is_no_information(self):
        """The loss counts all places; MI those that show [MASK].

        Eight sequences with three places: one shows [MASK], one the word
        itself, one a random word. The model copies what it sees, which the
        loss is glad of, and knows no more than frequencies under [MASK].
        """
        objective = make_objective('mlm', width=V)
        # So states are scores.
        objective.encoder.embedding_table.assign(np.eye(V))
        p = np.zeros(V)
        p[5:9] = [0.5, 0.25, 0.125, 0.125]
        entropy = 1.75 * math.log(2)
        words = np.array([5, 5, 5, 5, 6, 6, 7, 8])
        targets = np.stack([words] * 3, axis=1)
        random_words = (words - 4) % 4 + 5
        self.assertFalse((random_words == words).any())
        shown = np.stack([np.full(8, zoo.MASK), words, random_words], axis=1)
        states = np.full((8, 3, V), -60.0, np.float32)
        states[:, 0, 5:9] = np.log(p[5:9])
        np.put_along_axis(states[:, 1:], shown[:, 1:, None], 0.0, axis=2)
        outcome, _ = score(
            objective,
            make_view('mlm', targets, shown=shown),
            states,
            statistics=Statistics(np.ones(V), 8 * p),
        )
        # Under [MASK] the entropy, 0 where copied, 60 nats where misled.
        check(outcome, 1e-3, loss=8 * (entropy + 0 + 60))
        check(outcome, 1e-4, mi=0, ceiling=8 * entropy)
        # The word 5 is the likeliest.
        check(outcome, 0, weight=24, measured=8, accuracy=4)


class SharedViewTest(absltest.TestCase):
    def test_the_key_of_a_view_has_its_name_in_it(self):
        model = zoo.make_model('mlm', rate=0.1)
        views_ = zoo.make_views('mlm')
        view = views_['masked']
        actual = states_of(model.encode(views_, KEY)[0], 'mlm', 'masked')
        expected = model.encoder(
            Inputs(view.ids),
            places=view.places['mlm'],
            key=dropout.fold_in(KEY, zlib.crc32(b'masked')),
        ).states
        same(actual, expected)


class ParseTest(parameterized.TestCase):
    def test_weights(self):
        """Reads weights of rows, and of a sum by its name, in their order."""
        for rows, expected in (
            ('mlm', {'mlm': 1.0}),
            ('bert_nce:0.5, mlm:2', {'bert_nce': 0.5, 'mlm': 2.0}),
            ('mlm:0,bert_nce', {'mlm': 0.0, 'bert_nce': 1.0}),
            ('infoword', {'bert_nce': 1.0, 'dim': 0.8}),
        ):
            actual = objectives.parse(rows)
            self.assertEqual([*actual.items()], [*expected.items()])

    @parameterized.parameters(
        ('berta', 'unknown_row', "'berta'", 'nsp_nce'),
        ('', 'unknown_row', "''"),
        ('mlm,', 'unknown_row', "''"),
        ('mlm,bert_nce,mlm:2', 'row_twice', "'mlm'"),
        ('infoword,mlm', 'sum_among_rows', 'infoword', 'bert_nce:1,dim:0.8'),
        ('mlm:much', 'weight_no_number', "'much'", 'mlm:0.5'),
        ('mlm:1:2', 'weight_no_number', "'1:2'"),
        ('mlm:-1', 'negative_weight', 'mlm', -1),
        ('mlm:inf', 'negative_weight', 'mlm', 'inf'),
        ('mlm:nan', 'negative_weight', 'mlm', 'nan'),
        ('mlm:0', 'all_weights_zero'),
        ('mlm:0,bert_nce:0.0', 'all_weights_zero'),
    )
    def test_an_error_names_what_is_wrong(self, rows, id, *values):
        with refused(id, f'--objectives={rows}: ', *values):
            objectives.parse(rows)
