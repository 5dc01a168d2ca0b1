"""`ict` against a plain implementation, and its pooling."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from scipy import special

from infoword_tf.model import Model
from infoword_tf.views import View, cloze
from tests import eager, zoo
from tests.near import assert_near, near
from tests.objectives.eq1 import (
    EagerCase,
    F,
    batch_of,
    mean,
    of_pair,
    sums,
    unit,
)

B, T, D = 4, 5, 16
LENGTHS = {
    'passage': np.array([5, 4, 3, 5]), 'sentence': np.array([2, 3, 1, 2])
}  # fmt: skip


def make_view(
    lengths, numbers=(0, 1, 2, 3), weights=(1,) * B, shows_b=(0,) * B
):
    return View(
        ids=np.zeros((B, T), np.int32),
        sequences=np.arange(B, dtype=np.int32),
        block_ids=(np.arange(T) >= lengths[:, None]).astype(np.int32),
        targets={'ict': np.array(numbers, np.int32)[:, None]},
        weights={'ict': np.array(weights, np.float32)[:, None]},
        measured={'ict': 1 - np.array(shows_b, np.float32)[:, None]},
    )


def pooled(states, lengths, w):
    rows = []
    for x, n in zip(states.astype(np.float64), lengths, strict=True):
        rows.append(special.softmax(x[:n] @ w) @ x[:n])
    return unit(np.array(rows))


class ContrastTest(EagerCase):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(0)
        config = zoo.config('ict', rate=0.0)
        self.objective = Model(config, zoo.SPECIALS).objectives['ict']
        self.w = random.standard_normal(D)
        self.objective.form.pooling_kernel.assign(self.w)
        self.objective.form.log_scale.assign(-1.0)
        self.numbers = {'passage': [0, 1, 2, 3], 'sentence': [0, 1, 1, 2]}
        self.weights = {'passage': [1, 0, 1, 0], 'sentence': [1, 1, 1, 0]}
        self.shows_b = [0, 1, 0, 0]
        self.views = {
            side: make_view(
                lengths, self.numbers[side], self.weights[side], self.shows_b
            )
            for side, lengths in LENGTHS.items()
        }
        self.states = {
            side: random.standard_normal((B, T, D)).astype(np.float32)
            for side in self.views
        }

    def outcome(self, states=None, limit=None):
        states = self.states if states is None else states
        batch = batch_of(self.views, states, limit=limit)
        candidates = self.objective.candidates(batch)
        return self.objective.score(batch, candidates)

    def test_both_directions_written_plainly(self):
        vectors = {
            side: pooled(self.states[side], LENGTHS[side], self.w)
            for side in self.views
        }
        scale = 20 * np.exp(-1.0)
        total = np.zeros(F)
        for a, b in (('passage', 'sentence'), ('sentence', 'passage')):
            scores = scale * vectors[a] @ vectors[b].T
            # The fourth weighs nothing, the second only as a sentence.
            (real,) = np.nonzero(self.views[b].weights['ict'][:, 0])
            for i in real:
                others = [j for j in real if j != i]
                numbers = np.array(self.numbers[b])
                pair = of_pair(
                    scores[i, i], scores[i, others],
                    numbers[others] == numbers[i], drop_copies=True,
                )  # fmt: skip
                pair[2:] *= 1 - self.shows_b[i]  # a shows b: in the loss alone
                total += pair / 2
        actual = self.outcome()
        near(sums(actual), total, rtol=1e-5)
        self.assertEqual(float(actual.weight), 5 / 2)
        self.assertEqual(float(actual.measured), 2)

    def test_heldout_candidates_are_counted(self):
        actual = self.outcome(limit=1)
        self.assertAlmostEqual(mean(actual).log_candidates, np.log(2), places=6)

    def test_states_of_length_0(self):
        """They know nothing, and have a gradient."""
        states = {side: tf.zeros((B, T, D)) for side in self.views}
        with tf.GradientTape() as tape:
            tape.watch(list(states.values()))
            actual = self.outcome(states)
        self.assertEqual(float(actual.accuracy), 0.0)
        self.assertAlmostEqual(float(actual.mi), 0.0, places=4)
        for gradient in tape.gradient(actual.loss, list(states.values())):
            self.assertTrue(np.isfinite(gradient).all())

    def test_the_scale_ends_at_100(self):
        self.objective.form.log_scale.assign(50.0)
        at_limit = self.outcome()
        self.objective.form.log_scale.assign(np.log(5.0))
        near(sums(at_limit), sums(self.outcome()), rtol=1e-5)


class CriticsTest(EagerCase):
    """f of a sentence, the query, with a document, written out."""

    SETTINGS = {
        'late': {'token_width': 3},
        'lexical': {
            'terms': 'vocabulary', 'query_flops': 0.3, 'passage_flops': 0.2,
            'flops_steps': 0,
        },
    }  # fmt: skip

    def open(self, critic):
        """Sets a row, views of texts that differ in length, and states."""
        random = np.random.default_rng(3)
        case = zoo.of('ict', critic=critic, **self.SETTINGS[critic])
        tokens = [f'[{i}]' for i in range(zoo.V)]
        tokens[40] = '.'
        self.model = Model(
            zoo.config_of(case, rate=0.0),
            zoo.SPECIALS._replace(tokens=tokens),
        )
        self.objective = self.model.objectives['ict']
        for path, weight in self.model.variables.items():
            if 'late_0/kernel' in path or path.endswith('word_embeddings'):
                weight.assign(random.standard_normal(weight.shape))
        self.views, self.states = {}, {}
        for side, lengths in LENGTHS.items():
            self.views[side] = make_view(lengths)
            self.views[side].ids[0, 1] = 40
            self.states[side] = random.standard_normal((B, T, D))
            self.states[side] = self.states[side].astype(np.float32)
        # The full stop would be nearest to a token of a sentence.
        self.states['passage'][0, 1] = self.states['sentence'][1, 0]

    def score(self, key=None):
        batch = batch_of(self.views, self.states, key)
        return self.objective.score(batch, self.objective.candidates(batch))

    def late(self):
        """Sums of the largest cosines; a passage leaves out its full stop."""
        weights = self.model.variables.items()
        (kernel,) = (x.numpy() for path, x in weights if 'late_0/' in path)
        texts = {}
        for side, lengths in LENGTHS.items():
            texts[side] = []
            for number, n in enumerate(lengths):
                x = unit(self.states[side][number, :n] @ kernel)
                if side == 'passage' and not number:
                    x = np.delete(x, 1, axis=0)
                texts[side].append(x)
        return np.array([
            [(x @ y.T).max(axis=1).sum() for y in texts['passage']]
            for x in texts['sentence']
        ])  # fmt: skip

    def weights(self):
        """Computes log(1 + relu) of the largest outputs, by side [B, V]."""
        e = self.model.variables['encoder/word_embeddings'].numpy()
        return {
            side: np.array([
                np.log1p(np.maximum((x[:n] @ e.T).max(axis=0), 0))
                for x, n in zip(self.states[side], lengths, strict=True)
            ])
            for side, lengths in LENGTHS.items()
        }  # fmt: skip

    @parameterized.product(
        critic=('late', 'lexical'), key=(None, eager.new_key(4))
    )
    def test_both_directions_written_plainly(self, critic, key):
        """A step and held-out text have the sums of scores by hand.

        And in a step FLOPS of both sides; weights above 0 are counted.
        """
        self.open(critic)
        weights, actual = self.weights(), self.score(key)
        scores = weights['sentence'] @ weights['passage'].T
        if critic == 'late':
            scores = self.late()
        expected = sum(
            of_pair(x[i, i], np.delete(x[i], i), [False] * (B - 1)) / 2
            for x in (scores, scores.T)
            for i in range(B)
        )
        for name, side, factor in (
            ('query_terms', 'sentence', 0.3), ('passage_terms', 'passage', 0.2)
        ) if critic == 'lexical' else ():  # fmt: skip
            self.assertAlmostEqual(
                float(actual.more[name]), (weights[side] > 0).sum(), places=3
            )
            if key is not None:
                mean_square = (weights[side].mean(axis=0) ** 2).sum()
                expected[0] += B * factor * mean_square
        near(sums(actual), expected, rtol=1e-4)


class SharedRowsTest(EagerCase):
    """Passages that share rows: the numbers are those of rows of their own."""

    def setUp(self):
        super().setUp()
        random = np.random.default_rng(0)
        documents = zoo.make_documents()
        short = np.minimum(documents.lengths, 10 + 4 * np.arange(8))
        self.documents = documents._replace(
            lengths=short.astype(np.int32),
            sentence_starts=documents.sentence_starts
            & (np.arange(zoo.T - 2) < short[:, None]),
        )
        self.draw = cloze.cloze(self.documents, random)

    def views(self, rows):
        documents = self.documents._replace(sequences=rows)
        arguments = documents, self.draw, {'ict': 'text'}, zoo.SPECIALS
        passages = cloze.passage(*arguments)
        if rows:
            self.assertEqual(passages.counts['cut_passages'].sum(), 0)
        return {'passage': passages, 'sentence': cloze.sentence(*arguments)}

    @parameterized.parameters(
        ('ict', 5), ('ict', 8), ('ict_lookup', 6), ('ict_words', 5),
        ('ict_late', 5), ('ict_lexical', 5), ('ict_lexical_tokens', 6),
    )  # fmt: skip
    def test_losses_and_gradients(self, name, rows):
        model = zoo.make_model(name, rate=0.0)
        (alone, *_, gradients), (shared, *_, others) = (
            zoo.differentiated(
                model, self.views(x), zoo.statistics(), weights=model.variables
            )
            for x in (None, rows)
        )
        near(sums(shared['ict']), sums(alone['ict']), rtol=1e-5, atol=1e-5)
        assert_near(others, gradients, atol=1e-5)


class WordsTest(EagerCase):
    """`--ict.words`: a second part of the vector, of word vectors."""

    def setUp(self):
        super().setUp()
        self.random = np.random.default_rng(0)
        model = Model(zoo.config('ict_words', rate=0.0), zoo.SPECIALS)
        self.objective = model.objectives['ict']
        self.kernel = self.random.standard_normal(D)
        self.objective.form.pooling_kernel.assign(self.kernel)
        self.w = self.random.standard_normal(24)
        self.objective.form.word_kernel.assign(self.w)
        self.counts = zoo.statistics().training

    def make(self):
        lengths = self.random.integers(2, T + 1, B)
        view = make_view(lengths)
        ids = self.random.integers(8, zoo.V, (B, T))
        ids[:, 0] = zoo.CLS
        ids[np.arange(B), lengths - 1] = zoo.SEP
        states = self.random.standard_normal((B, T, D)).astype(np.float32)
        return view._replace(ids=ids.astype(np.int32)), states, lengths

    def expected(self, view, states, lengths):
        """[B, D + 24] of length 1, term by term."""
        p = self.counts / self.counts.sum()
        table = self.objective.form.word_embeddings.numpy().astype(np.float64)
        rows = []
        for ids, n in zip(view.ids, lengths, strict=True):
            ids = ids[:n]
            weights = np.exp(table[ids] @ self.w) * 1e-3 / (1e-3 + p[ids])
            weights[np.isin(ids, (zoo.CLS, zoo.SEP))] = 0
            rows.append(unit(weights @ table[ids]))
        states = pooled(states, lengths, self.kernel)
        return np.hstack([states, rows]) / np.sqrt(2)

    def test_an_empty_text_has_a_vector_whatever_the_padding(self):
        states = self.random.standard_normal((1, 6, D)).astype(np.float32)
        ids = np.array([[zoo.CLS, zoo.SEP, 0, 0, 0, 0]], np.int32)
        actual = [
            self.objective.form.text_vectors(
                ids[:, :n], np.arange(n)[None] < 2, states[:, :n], self.counts
            )
            for n in (2, 3, 6)
        ]
        for vector in actual[1:]:
            near(vector, actual[0], atol=1e-6)
        table = self.objective.form.word_embeddings.numpy().astype(np.float64)
        w = np.exp(table[[zoo.CLS, zoo.SEP]] @ self.w)
        mean = unit(w @ table[[zoo.CLS, zoo.SEP]])
        near(actual[0][0, D:], mean, atol=1e-3)

    def test_the_states_alone_must_answer_too(self):
        """The loss is of both; the bound is of the whole vectors."""
        views, states, vectors = {}, {}, {}
        for side in ('passage', 'sentence'):
            views[side], states[side], lengths = self.make()
            lengths = np.maximum(lengths, 3)
            block_ids = (np.arange(T) >= lengths[:, None]).astype(np.int32)
            views[side] = views[side]._replace(block_ids=block_ids)
            vectors[side] = self.expected(views[side], states[side], lengths)
        batch = batch_of(views, states)
        actual = self.objective.score(batch, self.objective.candidates(batch))

        def loss(a, b):
            scores = 20 * a @ b.T
            inside = np.diag(scores)
            rows, columns = (special.logsumexp(scores, axis=i) for i in (0, 1))
            return (rows + columns - 2 * inside).sum() / 2

        a, b = vectors.values()
        whole = loss(a, b)
        alone = loss(np.sqrt(2) * a[:, :D], np.sqrt(2) * b[:, :D])
        near(actual.loss, whole + alone, rtol=1e-5)
        near(actual.mi, B * np.log(B) - whole, rtol=1e-4)
