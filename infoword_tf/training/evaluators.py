"""Evaluation of a model during training, by human judgements.

The critic of the model compares texts; one without a vector of a text those of
a search alone.
In float32 the numbers are those that tasks.sts, tasks.retrieval and
tasks.tatoeba print of the weights. Texts are tokenized once.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from infoword_tf import errors
from infoword_tf.critics import CRITICS
from infoword_tf.critics.texts import Texts
from infoword_tf.evaluation import bitext, ranking, retrieval, sts
from infoword_tf.evaluation.judgements import Judgements
from infoword_tf.inference.batches import Tokenized
from infoword_tf.inference.loaded import Loaded

_TEXTS = 32  # in a batch of the longest, as in tasks.retrieval
_DEPTH = 10  # documents of a ranking that nDCG@10 reads


class Evaluator:
    """Measure of a model, with the weights of each call.

    Attributes:
        cut: number of texts that are truncated.
    """

    def __init__(self, judgements: Judgements, loaded: Loaded):
        """Tokenizes all texts that were judged.

        Raises:
            ValueError: the critic of the model compares no texts as judged.
        """
        self.name, self.loaded = judgements.name, loaded
        self.cut = 0
        judged = judgements.judged
        self.critic = critic = CRITICS[loaded.config.critic]
        is_search = isinstance(judged, retrieval.RetrievalTask)
        if critic.of_pairs or not (critic.has_vector or is_search):
            raise errors.InputError(
                'judgement_of_other_critic',
                f'{judgements.spec} is not measured by the critic '
                f'{critic.name}: retrieval:DIR is by critics that encode each '
                'text alone, all by cosine',
            )
        self._measure: Callable[[], float | dict[str, float]]
        if isinstance(judged, sts.ScoredPairs):
            self._measure = self._similarity(judged)
        elif isinstance(judged, retrieval.RetrievalTask):
            self._measure = self._retrieval(judged, judgements.spec)
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
        tokenized = self.critic.tokenize(self.loaded, texts, role)
        self.cut += tokenized.cut
        return tokenized

    def _similarity(self, pairs: sts.ScoredPairs) -> Callable[[], float]:
        """Prepares a measure: Spearman's correlation x 100 of pairs."""
        texts = self._tokenized(pairs.texts, None)

        def encode(_: Sequence[str]) -> np.ndarray:
            return self.loaded.encode_tokenized(texts)

        similarity = self.loaded.config.similarity
        return lambda: sts.correlation(pairs, encode, similarity)

    def _retrieval(
        self, task: retrieval.RetrievalTask, spec: str
    ) -> Callable[[], float]:
        """Prepares a measure: nDCG@10 of exact search.

        Args:
            task: queries, documents and judgements.
            spec: name of the task, for people.

        Raises:
            ValueError: the documents are too many for the critic.
        """
        if self.critic.compares_few and task.size > retrieval.EXACT:
            raise errors.InputError(
                'judgement_of_too_many',
                f'{spec} has {task.size:,} documents, and vectors '
                f'of the tokens of {retrieval.EXACT:,} are compared at most',
            )
        queries = self._tokenized(task.queries, 'query')
        blocks = [
            (numbers, self._tokenized(texts, 'passage'))
            for numbers, texts in task.blocks()
        ]

        def encode(texts: Tokenized, role: str) -> Texts:
            return self.critic.encode(
                self.loaded, texts, role, batch_size=_TEXTS
            )

        def encoded() -> Iterator[tuple[np.ndarray, Texts]]:
            for numbers, texts in blocks:
                yield task.with_copies(numbers, encode(texts, 'passage'))

        def measure() -> float:
            # One more than is read: a query may find its own document.
            rankings = ranking.search(
                encode(queries, 'query'), encoded(), _DEPTH + 1,
                self.critic.similarity or self.loaded.config.similarity,
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
            values, pivots = {}, self.loaded.encode_tokenized(shared)
            for language, side, index in zip(
                languages, texts, indices, strict=True
            ):
                vectors = self.loaded.encode_tokenized(side)
                shares = bitext.measure_both(language, vectors, pivots[index])
                values[language.language] = 100 * shares['accuracy']['mean']
            return values

        return measure
