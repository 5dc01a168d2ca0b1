"""Measures by hand and against trec_eval; search in any blocks."""

import math
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized
from scipy import sparse

from infoword_tf.critics import texts as critics
from infoword_tf.evaluation import ranking, retrieval
from tests.oracles import frozen, trec_eval
from tests.refused import refused


def best_of(scores, numbers, top_k, step):
    best = ranking.Best(len(scores), top_k)
    for begin in range(0, len(numbers), step):
        block = slice(begin, begin + step)
        best.add(slice(None), scores[:, block], numbers[block])
    return best.sorted()


class MergeTest(absltest.TestCase):
    def test_written_out(self):
        """Scores of mean 0 and deviation 1; others have the lowest."""
        first = np.array([[5.0, 3.0, 1.0]]), np.array([[4, 7, 2]])
        second = np.array([[0.4, 0.2, -np.inf]]), np.array([[7, 9, -1]])
        scores, numbers = ranking.merge([first, second], 5)
        one = math.sqrt(3 / 2)  # 5, 3, 1 have deviation sqrt(8 / 3)
        # Of 2 and 9, which one search lacks each, the larger comes first.
        self.assertEqual(numbers.tolist(), [[7, 4, 9, 2, -1]])
        np.testing.assert_allclose(
            scores, [[1, one - 1, -one - 1, -one - 1, -np.inf]], rtol=1e-6
        )

    def test_the_best_of_each_search(self):
        """Documents beyond the first MERGED change nothing."""
        random = np.random.default_rng(0)
        scores = -np.sort(-random.standard_normal((2, 2, 150)))
        numbers = np.array([random.permutation(400)[:150] for _ in range(4)])
        numbers = numbers.reshape(2, 2, 150)
        first, second = zip(scores, numbers, strict=True)
        actual = ranking.merge([first, second], 200)
        n = ranking.MERGED
        cut = [(s[:, :n], x[:, :n]) for s, x in (first, second)]
        for x, y in zip(actual, ranking.merge(cut, 200), strict=True):
            np.testing.assert_array_equal(x, y)
        self.assertLess((actual[1] >= 0).sum(axis=1).max(), 201)

    def test_nothing_and_equal_scores(self):
        none = np.full((1, 2), -np.inf), np.full((1, 2), -1)
        scores, numbers = ranking.merge([none, none], 2)
        self.assertEqual(numbers.tolist(), [[-1, -1]])
        equal = np.full((1, 2), 3.0), np.array([[1, 5]])
        scores, numbers = ranking.merge([none, equal], 2)
        self.assertEqual(numbers.tolist(), [[5, 1]])
        self.assertEqual(scores.tolist(), [[0, 0]])


class HybridTest(parameterized.TestCase):
    def searches(self, gaps):
        """Searches of documents 0, 1, 2, a line for each gap.

        Scores have mean 0 and deviation 1; 0 is above 1 by the gap, 2 last.
        """
        gaps = np.array(gaps)
        mean = np.sqrt((3 - gaps**2 / 2) / 6)
        scores = [mean + gaps / 2, mean - gaps / 2, -2 * mean]
        scores = np.transpose(scores)
        numbers = np.argsort(-scores, axis=1)
        return np.take_along_axis(scores, numbers, 1), numbers

    def test_written_out(self):
        """Shares are the weights of scores whose deviation is 1."""
        first, second = self.searches([0.7]), self.searches([-1.3])
        for share in (0, 0.3, 0.4, 1, None):
            shares = () if share is None else (share,)
            scores, numbers = ranking.hybrid(first, second, 3, *shares)
            share = 0.5 if share is None else share  # as docs/serving.md says
            gap = 2 * (0.7 * (1 - share) - 1.3 * share)
            self.assertEqual(numbers.tolist()[0], [gap < 0, gap > 0, 2])
            self.assertAlmostEqual(scores[0, 0] - scores[0, 1], abs(gap), 5)

    def test_documents_without_a_word(self):
        """They have the score 0: 4, 0, 0, 0 have mean 1, deviation sqrt(3).

        A corpus of four documents has no more scores than that.
        """
        numbers = np.array([[5, 6, 7, 8, -1]])
        vectors = np.array([[4.0, 3, 2, 1, -np.inf]]), numbers
        numbers = np.array([[7, -1, -1, -1, -1]])
        words = np.where(numbers < 0, -np.inf, 4.0), numbers
        scores, numbers = ranking.hybrid(vectors, words, 4, 0.5)
        five = math.sqrt(5)  # of 4, 3, 2, 1 the first two have 3 and 1 of it
        three = math.sqrt(3)
        self.assertEqual(numbers.tolist(), [[7, 5, 6, 8]])
        np.testing.assert_allclose(
            scores[0],
            [three - 1 / five, 3 / five - 1 / three, 1 / five - 1 / three,
             -3 / five - 1 / three], rtol=1e-6,
        )  # fmt: skip
        # Without any word vectors alone count.
        nothing = np.full((1, 5), -np.inf), np.full((1, 5), -1)
        scores, numbers = ranking.hybrid(vectors, nothing, 4, 0.5)
        self.assertEqual(numbers.tolist(), [[5, 6, 7, 8]])
        self.assertAlmostEqual(scores[0, 0], 3 / five, 6)

    def test_the_best_share(self):
        """The first query wants less than 0.35, the second more than 0.25."""
        vectors, words = self.searches([0.7, 0.5]), self.searches([-1.3, -1.5])
        task = retrieval.RetrievalTask(
            't', 3, iter, ['', ''], [{0: 1}, {1: 1}], [-1, -1], 'ab', '012'
        )
        best, values = retrieval.tune(task, vectors, words)
        half = round((1 + 1 / math.log2(3)) / 2, 5)
        self.assertEqual(best, 0.3)
        self.assertEqual(
            values, {**dict.fromkeys(retrieval.SHARES, half), 0.3: 1.0}
        )
        # Of equal shares it is the default, or that next to it.
        for query, expected in ((0, 0.3), (1, ranking.SHARE)):
            part = [tuple(x[[query]] for x in y) for y in (vectors, words)]
            best, _ = retrieval.tune(task.part([query]), *part)
            self.assertEqual(best, expected)
        # A document of the query's id is no result.
        best, values = retrieval.tune(
            task._replace(same_id=[1, 0]), vectors, words
        )
        self.assertEqual(set(values.values()), {1.0})

    @parameterized.parameters((5, ranking.SHARE), (7, 0.3))
    def test_chance_chooses_no_share(self, below, expected):
        """So many of nine queries want less than 0.35, the others more.

        Shares differ by 0.369 (b - (9 - b)) / 9: 0.041 or 0.205; half a
        standard error is 0.061 or 0.051.
        """
        searches = self.searches(9 * [0.7]), self.searches(9 * [-1.3])
        relevance = below * [{0: 1}] + (9 - below) * [{1: 1}]
        task = retrieval.RetrievalTask(
            't', 3, iter, 9 * [''], relevance, 9 * [-1], range(9), '012'
        )
        best, values = retrieval.tune(task, *searches)
        self.assertEqual(best, expected)
        self.assertEqual(max(values, key=values.get), 0.0)


class MeasureTest(absltest.TestCase):
    def test_gain_is_linear(self):
        """(1 / log2 3 + 2 / log2 4) / (2 / log2 2 + 1 / log2 3)"""
        expected = {
            'ndcg@10': 0.619906, 'recall@100': 1, 'recall@10': 1,
            'map': 0.583333, 'mrr@10': 0.5,  # (1 / 2 + 2 / 3) / 2
        }  # fmt: skip
        actual = ranking.measure([1, 2, 3], {2: 1, 3: 2})
        self.assertEqual({k: round(x, 6) for k, x in actual.items()}, expected)

    def test_no_result_and_nothing_relevant_are_zero(self):
        zero = dict.fromkeys(ranking.MEASURES, 0.0)
        self.assertEqual(ranking.measure([], {1: 1}), zero)
        self.assertEqual(ranking.measure([1, 2], {1: 0, 2: -1}), zero)

    def test_all_queries_count(self):
        actual = ranking.evaluate([[1, 2], [], [3]], [{1: 1}, {1: 1}, {3: 0}])
        self.assertEqual(actual, dict.fromkeys(ranking.MEASURES, 0.33333))

    def test_trec_eval_agrees_also_where_scores_are_equal(self):
        """Its answers are in a file that tests/oracles/trec_eval.py wrote."""
        arrays = frozen.read(frozen.FOLDER / 'trec_eval.npz')
        self.assertLen(arrays, 3 * len(trec_eval.LEVELS))
        for level in trec_eval.LEVELS:
            scores, judged, values = (
                arrays[f'{level}/{name}']
                for name in ('scores', 'judged', 'values')
            )
            numbers = np.arange(trec_eval.DOCUMENTS)
            scores = scores.astype(np.float32) / 7
            _, ranked = best_of(scores, numbers, 1000, 300)
            for query in range(trec_eval.QUERIES):
                actual = ranking.measure(
                    ranked[query].tolist(),
                    {int(n): int(g) for q, n, g in judged if q == query},
                )
                theirs = dict(
                    zip(trec_eval.MEASURES, values[query], strict=True)
                )
                # Of trec_eval it has no cut: where the first is beyond ten,
                # MRR@10 is 0.
                first = theirs['recip_rank']
                for name, value in (
                    ('mrr@10', first if first > 1 / 10.5 else 0),
                    ('ndcg@10', theirs['ndcg_cut_10']),
                    ('recall@100', theirs['recall_100']),
                    ('recall@10', theirs['recall_10']),
                    ('map', theirs['map_cut_1000']),
                ):
                    self.assertAlmostEqual(actual[name], value, 9, name)


class SearchTest(parameterized.TestCase):
    def test_of_equal_scores_the_larger_number_comes_first(self):
        scores = np.array([[1, 2, 1, 2, -0.0, 0.0]], np.float32)
        for step in (1, 2, 4, 6):
            for top_k in (1, 2, 3, 5, 6):
                actual = best_of(scores, np.arange(6), top_k, step)[1][0]
                self.assertEqual(actual.tolist(), [3, 1, 2, 0, 5, 4][:top_k])

    def test_order_is_that_of_a_full_sort(self):
        random = np.random.default_rng(1)
        scores = random.integers(-20, 20, (7, 500)).astype(np.float32) / 3
        scores[0] = random.standard_normal(500)
        numbers = random.permutation(500)
        expected = [np.lexsort((-numbers, -row)) for row in scores]
        for step in (1, 64, 500):
            values, actual = best_of(scores, numbers, 100, step)
            for row, order in enumerate(expected):
                np.testing.assert_array_equal(actual[row], numbers[order[:100]])
                np.testing.assert_array_equal(
                    values[row], scores[row, order[:100]]
                )

    def test_fewer_documents_than_wanted(self):
        scores = np.array([[0.5, -np.inf, -3]], np.float32)
        values, numbers = best_of(scores, np.array([4, 5, 0]), 4, 2)
        self.assertEqual(numbers.tolist(), [[4, 0, -1, -1]])
        self.assertEqual(values.tolist(), [[0.5, -3, -np.inf, -np.inf]])

    @parameterized.parameters('cosine', 'dot')
    def test_blocks_equal_one_block(self, similarity):
        random = np.random.default_rng(2)
        # Nothing here is rounded, so the order of sums does not matter; more
        # queries than are compared at a time.
        queries = random.integers(-3, 4, (600, 16)).astype(np.float32)
        vectors = random.integers(-3, 4, (300, 16)).astype(np.float32)
        if similarity == 'cosine':
            queries, vectors = np.sign(queries + 0.5), np.sign(vectors + 0.5)
        numbers = random.permutation(300)

        def blocks(step):
            for begin in range(0, 300, step):
                block = slice(begin, begin + step)
                yield numbers[block], vectors[block]

        whole = ranking.search(queries, blocks(300), 50, similarity)
        for step in (7, 128):
            parts = ranking.search(queries, blocks(step), 50, similarity)
            np.testing.assert_array_equal(whole[1], parts[1])
            np.testing.assert_allclose(whole[0], parts[0], rtol=1e-6)
        scores = queries @ vectors.T / (16 if similarity == 'cosine' else 1)
        order = np.lexsort((-numbers, -scores[599]))[:50]
        np.testing.assert_array_equal(whole[1][599], numbers[order])

    @parameterized.product(queries=(1, 5), count=(5, 13, 1023))
    def test_equal_vectors_have_equal_scores(self, queries, count):
        """Scores also last columns of products, which are rounded otherwise.

        Then the larger number is first, as trec_eval has ties.
        """
        random = np.random.default_rng(3)
        asked = random.normal(size=(queries, 384))
        one, other = random.normal(size=(2, 384))
        block = np.arange(count + 1), np.array([*[one] * count, other])
        scores, actual = ranking.search(asked, [block], count + 1, 'cosine')
        for row, numbers in zip(scores, actual, strict=True):
            self.assertLen(set(row), 2)
            ties = numbers[numbers < count]
            self.assertEqual(ties.tolist(), [*range(count)][::-1])

    def test_cosine_and_dot_differ_by_length(self):
        queries = np.array([[1, 0]], np.float32)
        vectors = np.array([[3, 3], [1, 0], [0, 0]], np.float32)
        for similarity, expected in (('cosine', [1, 0, 2]), ('dot', [0, 1, 2])):
            blocks = [(np.arange(3), vectors)]
            values, actual = ranking.search(queries, blocks, 3, similarity)
            self.assertEqual(actual[0].tolist(), expected)
            self.assertEqual(values[0, 2], 0)

    def test_texts_whose_sums_are_equal(self):
        """These differ; equal ones, the third and the last, have one score."""
        empty = np.zeros((0, 2), np.float32)
        both, one, again = np.float32(
            [[[1, 2], [2, 1]], [[0, 3], [3, 0]], [[1, 2], [2, 1]]]
        )
        opposite = np.float32([[1, 3], [-1, -3]])
        texts = critics.Tokens.of([empty, opposite, both, one, again])
        query = critics.Tokens.of([np.float32([[1, 2]])])
        scores = ranking.comparer(texts)(query)
        self.assertEqual(scores.tolist(), [[0, 7, 5, 6, 5]])

    @parameterized.parameters((512, 8192), (3, 4), (1, 1))
    def test_other_critics(self, tokens_a, tokens_b):
        """Each a with each b, and with some b alone; without a token: 0."""
        random = np.random.default_rng(4)
        a, b = (
            [np.float32(random.normal(size=(n, 5))) for n in sizes]
            for sizes in ([2, 0, 3, 1], [4, 1, 0, 0, 6, 2, 4])
        )
        b[-1] = b[0]
        expected = np.array([
            [(x @ y.T).max(axis=1).sum() if len(y) else 0 for y in b] for x in a
        ])  # fmt: skip
        weights = [
            sparse.csr_array(np.float32([x.sum(axis=0) for x in texts]))
            for texts in (a, b)
        ]
        with (
            mock.patch.object(critics, 'TOKENS_A', tokens_a),
            mock.patch.object(critics, 'TOKENS_B', tokens_b),
        ):
            for queries, texts, scores in (
                (critics.Tokens.of(a), critics.Tokens.of(b), expected),
                (*weights, (weights[0] @ weights[1].T).toarray()),
            ):
                numbers = np.arange(10, 17)
                order = np.lexsort((-numbers * np.ones((4, 1)), -scores))
                seconds = np.zeros(2)
                actual = ranking.search(
                    queries, [(numbers[:2], texts[:2]), (
                        numbers[2:], texts[np.arange(2, 7)])],
                    7, seconds=seconds,
                )  # fmt: skip
                self.assertTrue((seconds > 0).all())
                np.testing.assert_allclose(
                    actual[0], np.take_along_axis(scores, order, 1), 1e-5, 1e-6
                )
                np.testing.assert_array_equal(actual[1][0], 10 + order[0])
                flat = critics.restored(critics.flat(texts), queries)
                chosen = np.array([[16, -1], [12, 10], [11, 14], [-1, -1]])
                actual = ranking.rescore(queries, [(numbers, flat)], chosen)
                for row, (scored, ids) in enumerate(zip(*actual, strict=True)):
                    self.assertEqual({*ids} | {-1}, {*chosen[row]} | {-1})
                    np.testing.assert_allclose(
                        scored[ids >= 0], scores[row, ids[ids >= 0] - 10],
                        1e-5, 1e-6,
                    )  # fmt: skip

    def test_complaints(self):
        good = np.ones((1, 2), np.float32)
        for bad in np.nan, np.inf:
            with refused('vectors_not_finite'):
                ranking.search(good, [(np.arange(1), good * bad)], 1)
        with refused('unknown_similarity', "'euclid'"):
            ranking.search(good, [], 1, 'euclid')
