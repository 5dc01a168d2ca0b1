"""Evaluation of a model's vectors during training, by human judgements.

In float32 the numbers are those that tasks.sts, tasks.retrieval and
tasks.tatoeba print of the weights. Texts are tokenized once.
"""

from collections.abc import Callable, Iterator

import numpy as np

from infoword_tf.evaluation import bitext, ranking, retrieval, sts
from infoword_tf.evaluation.judgements import Judgements
from infoword_tf.inference.vectors import Tokenized, Vectors

_TEXTS = 32  # in a batch of the longest, as in tasks.retrieval
_DEPTH = 10  # documents of a ranking that nDCG@10 reads


class Evaluator:
    """Measure of a model's vectors, with the weights of each call.

    Attributes:
        cut: number of texts that are truncated.
    """

    def __init__(self, judgements: Judgements, vectors: Vectors):
        """Tokenizes all texts that were judged."""
        self.name, self.vectors = judgements.name, vectors
        self.cut = 0
        judged = judgements.judged
        if isinstance(judged, sts.ScoredPairs):
            self._measure = self._similarity(judged)
        elif isinstance(judged, retrieval.RetrievalTask):
            self._measure = self._retrieval(judged)
        else:
            self._measure = self._translations(judged)

    def __call__(self) -> dict[str, float]:
        """Returns the value by name; of languages each value, and the mean."""
        values = self._measure()
        if isinstance(values, float):
            return {self.name: values}
        mean = float(np.mean(list(values.values())))
        scheme = self.name.split('/')[0]
        return {self.name: mean} | {
            f'{scheme}/{language}': value for language, value in values.items()
        }

    def _tokenized(self, texts: list[str], role: str | None) -> Tokenized:
        prompt = role and self.vectors.config.prompt_for(role)
        tokenized = self.vectors.tokenize(texts, prompt)
        self.cut += tokenized.cut
        return tokenized

    def _similarity(self, pairs: sts.ScoredPairs) -> Callable[[], float]:
        """Prepares a measure: Spearman's correlation x 100 of pairs."""
        texts = self._tokenized(pairs.texts, None)

        def encode(_: list[str]) -> np.ndarray:
            return self.vectors.encode_tokenized(texts)

        similarity = self.vectors.config.similarity
        return lambda: sts.correlation(pairs, encode, similarity)

    def _retrieval(self, task: retrieval.RetrievalTask) -> Callable[[], float]:
        """Prepares a measure: nDCG@10 of exact search."""
        queries = self._tokenized(task.queries, 'query')
        blocks = [
            (numbers, self._tokenized(texts, 'passage'))
            for numbers, texts in task.blocks()
        ]

        def encode(texts: Tokenized) -> np.ndarray:
            return self.vectors.encode_tokenized(texts, _TEXTS)

        def encoded() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for numbers, texts in blocks:
                yield task.with_copies(numbers, encode(texts))

        def measure() -> float:
            # One more than is read: a query may find its own document.
            rankings = ranking.search(
                encode(queries), encoded(), _DEPTH + 1,
                self.vectors.config.similarity,
            )  # fmt: skip
            return retrieval.measure(task, rankings)['ndcg@10']

        return measure

    def _translations(
        self, languages: list[bitext.Bitext]
    ) -> Callable[[], dict[str, float]]:
        """Prepares a measure: accuracy of finding translations, percent."""
        texts = [self._tokenized(x.foreign.texts, None) for x in languages]
        english, indices = bitext.english_of(languages)
        shared = self._tokenized(english, None)

        def measure() -> dict[str, float]:
            values, pivots = {}, self.vectors.encode_tokenized(shared)
            for language, side, index in zip(
                languages, texts, indices, strict=True
            ):
                vectors = self.vectors.encode_tokenized(side)
                shares = bitext.measure_both(language, vectors, pivots[index])
                values[language.language] = 100 * shares['accuracy']['mean']
            return values

        return measure
