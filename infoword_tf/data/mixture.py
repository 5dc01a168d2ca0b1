"""Texts of several languages as one: which language each update reads.

Or several parts of one text, such as web and books: whatever has a name.

An update reads one language, so that the candidates of a batch are of one
language, and a bound measures the text and not its language. Only where
sequences continue from step to step (`streams`) each language has sequences of
its own. A language of n tokens has a share of the updates in proportion to n to
the power of an exponent (Conneau and Lample 2019, "XLM", §3.1; 0.7 in InfoXLM),
or as `--corpus_weights` says, whatever the order of languages.

Glossary of shapes: G languages, or pairs of languages.
"""

import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import errors
from infoword_tf.data.source import Source, naming
from infoword_tf.data.store import Store

ROUND = 1024  # updates in which each language has its share, one at least
# What takes turns; each kind does so independently of the others in a run.
FILES, LANGUAGES, TRANSLATIONS = 8, 9, 10


def shares(sizes: Sequence[float], exponent: float) -> np.ndarray:
    """Returns sizes to a power, scaled to sum to 1: [G] float64."""
    powers = np.array(sizes, np.float64) ** exponent
    return powers / powers.sum()


def as_drawn(counts: Sequence[np.ndarray], shares: np.ndarray) -> np.ndarray:
    """Counts the tokens of a mixture as often as drawn, [V] int64.

    Args:
        counts: occurrences of each token, [V] of each language.
        shares: parts of the updates, [G].
    """
    total = sum(count.sum() for count in counts)
    p = sum(
        share * count / max(1, count.sum())
        for share, count in zip(shares, counts, strict=True)
    )
    # A token that occurs is counted, however rare its language is.
    drawn = np.where(p > 0, np.maximum(np.rint(total * p), 1), 0)
    return drawn.astype(np.int64)


def apportion(total: int, shares: np.ndarray) -> np.ndarray:
    """Divides a total in proportion to shares: [G] int64, each at least 1."""
    exact = shares * (total - len(shares))
    counts = np.floor(exact).astype(np.int64)
    order = np.argsort(counts - exact, kind='stable')
    counts[order[: total - len(shares) - counts.sum()]] += 1
    return counts + 1


class Turns:
    """Order in which languages take steps.

    A round has every language as often as its count says, in a random order
    that is a function of (seed, round, kind).
    """

    def __init__(self, counts: np.ndarray, seed: int, kind: int):
        """Takes counts [G] of at least 1; `kind` is a constant as FILES."""
        self.counts, self.key = counts, (seed, kind)
        self.order = functools.lru_cache(2)(self._order)

    def _order(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns languages [U] of a round's steps, and steps of each [U]."""
        languages = np.repeat(np.arange(len(self.counts)), self.counts)
        seed, kind = self.key
        random = np.random.default_rng([seed, number, kind])
        languages = random.permutation(languages)
        steps = np.zeros(len(languages), np.int64)
        for language, count in enumerate(self.counts):
            is_here = languages == language
            steps[is_here] = number * count + np.arange(count)
        return languages, steps

    def turn(self, step: int) -> tuple[int, int]:
        """Returns the language of a step and that language's own step."""
        number, place = divmod(step, int(self.counts.sum()))
        languages, steps = self.order(number)
        return int(languages[place]), int(steps[place])


class Mixture(NamedTuple):
    """Stores of several languages.

    Attributes:
        stores: text by language, sorted; all have one vocabulary.
        exponent: power to which sizes are raised.
        weights: numbers by language, instead of sizes; empty: sizes decide.
    """

    stores: Mapping[str, Store]
    exponent: float
    weights: Mapping[str, float] = types.MappingProxyType({})

    @property
    def shares(self) -> np.ndarray:
        """Shares of the updates, [G] float64, in the order of `stores`."""
        if self.weights:
            return shares([self.weights[name] for name in self.stores], 1.0)
        sizes = [len(store.ids) for store in self.stores.values()]
        return shares(sizes, self.exponent)

    @property
    def counts(self) -> np.ndarray:
        """Counts of tokens, each as often as drawn, [V] int64."""
        counts = [store.counts for store in self.stores.values()]
        return as_drawn(counts, self.shares)

    def sources(
        self, kind: type[Source], sizes: Sequence[int] | np.ndarray,
        seed: int, **arguments: Any,
    ) -> list[Source]:  # fmt: skip
        """Opens a source of each language, with a batch size for each.

        Raises:
            ValueError: a language has less than one batch.
        """
        sources, counts = [], self.counts
        for number, (language, store) in enumerate(self.stores.items()):
            # Dropping and drawing by frequency use counts of all languages.
            counts_here = counts * (store.counts.sum() / counts.sum())
            with naming(language):
                source = kind(
                    store._replace(counts=counts_here),
                    batch_size=int(sizes[number]), seed=seed + number,
                    **arguments,
                )  # fmt: skip
            sources.append(source)
        kind.unify_shapes(sources)
        return sources


class MixedSource:
    """Source that reads one language each step; see `Source`."""

    def __init__(
        self, kind: type[Source], mixture: Mixture, batch_size: int, seed: int,
        **arguments: Any,
    ):  # fmt: skip
        """Opens all languages; `kind` says how each is read."""
        self.sources = mixture.sources(
            kind, [batch_size] * len(mixture.stores), seed, **arguments
        )
        count = max(ROUND, len(self.sources))
        self.turns = Turns(apportion(count, mixture.shares), seed, LANGUAGES)
        single = [x.single for x in self.sources if x.single is not None]
        counted = len(single) == len(self.sources)
        self.single = sum(single) if counted else None

    def batch(self, step: int) -> Any:
        """Returns the global batch of a step, of one language."""
        language, own_step = self.turns.turn(step)
        return self.sources[language].batch(own_step)


class MixedRows:
    """Source in which each language has sequences that continue."""

    single: int | None = None

    def __init__(
        self, kind: type[Source], mixture: Mixture, batch_size: int, seed: int,
        **arguments: Any,
    ):  # fmt: skip
        """Opens all languages, each for a share of the sequences."""
        # Where odd sequences read backward a language has both directions.
        each = 1 + bool(arguments.get('both_directions'))
        units, languages = batch_size // each, len(mixture.stores)
        if units < languages:
            raise errors.InputError(
                'few_sequences_for_languages',
                f'a batch has {batch_size} sequences for {languages} '
                f'languages, each of which needs {each}; raise --batch_size',
            )
        sizes = apportion(units, mixture.shares) * each
        sizes[-1] += batch_size - units * each
        self.sources = mixture.sources(kind, sizes, seed, **arguments)

    def batch(self, step: int) -> Any:
        """Returns the global batch of a step, of all languages."""
        batches = [source.batch(step) for source in self.sources]
        fields = zip(*batches, strict=True)
        return type(batches[0])(*map(np.concatenate, fields))


def mixed(
    kind: type[Source], mixture: Mixture, batch_size: int, seed: int,
    **arguments: Any,
) -> MixedSource | MixedRows:  # fmt: skip
    """Opens a mixture; `kind` says how each language is read."""
    goes_on = kind.heldout_sequences is not None
    source = MixedRows if goes_on else MixedSource
    return source(kind, mixture, batch_size, seed, **arguments)
