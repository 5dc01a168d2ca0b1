"""How good a model's vectors are while it is trained, by people's judgements.

The numbers are those that tasks.sts, tasks.retrieval and tasks.tatoeba print of
the weights, where training computes in float32. Texts are tokenized once.
"""

from collections.abc import Callable, Iterator

import numpy as np

from infoword_tf.evaluation import bitext, ranking, retrieval, sts
from infoword_tf.evaluation.judgements import Judgements
from infoword_tf.inference.vectors import Tokenized, Vectors

_TEXTS = 32  # of the longest in a batch, as of tasks.retrieval
_DEPTH = 10  # documents of a ranking that nDCG@10 reads


class Evaluator:
    """Measures the vectors of a model, by its weights as they then are.

    Attributes:
        cut: how many texts are longer than the model reads.
    """

    def __init__(self, judgements: Judgements, vectors: Vectors):
        """Tokenizes all texts; args: what people said, whose vectors."""
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
        """By name of the measure its value, and what it is the mean of."""
        found = self._measure()
        if isinstance(found, float):
            return {self.name: found}
        mean = float(np.mean(list(found.values())))
        scheme = self.name.split('/')[0]
        return {self.name: mean} | {
            f'{scheme}/{part}': value for part, value in found.items()
        }

    def _tokenized(self, texts: list[str], role: str | None) -> Tokenized:
        prompt = role and self.vectors.config.prompt_for(role)
        found = self.vectors.tokenized(texts, prompt)
        self.cut += found.cut
        return found

    def _similarity(self, pairs: sts.ScoredPairs) -> Callable[[], float]:
        """Spearman x 100 of pairs."""
        texts = self._tokenized(pairs.texts, None)

        def encode(_: list[str]) -> np.ndarray:
            return self.vectors.encode_tokenized(texts)

        similarity = self.vectors.config.similarity
        return lambda: sts.correlation(pairs, encode, similarity)

    def _retrieval(self, task: retrieval.RetrievalTask) -> Callable[[], float]:
        """nDCG@10 of exact search."""
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
            found = ranking.search(
                encode(queries), encoded(), _DEPTH + 1,
                self.vectors.config.similarity,
            )  # fmt: skip
            return retrieval.measure(task, found)['ndcg@10']

        return measure

    def _translations(
        self, languages: list[bitext.Bitext]
    ) -> Callable[[], dict[str, float]]:
        """By language the accuracy of finding translations, percent."""
        texts = [self._tokenized(x.foreign.texts, None) for x in languages]
        english, places = bitext.english_of(languages)
        shared = self._tokenized(english, None)

        def measure() -> dict[str, float]:
            found, own = {}, self.vectors.encode_tokenized(shared)
            for language, side, place in zip(
                languages, texts, places, strict=True
            ):
                vectors = self.vectors.encode_tokenized(side)
                shares = bitext.measured(language, vectors, own[place])
                found[language.language] = 100 * shares['accuracy']['mean']
            return found

        return measure
