"""Texts of several languages as one: which of them each update reads.

Or several parts of one text, such as web and books: whatever has a name.

An update reads one language, so that candidates of its batch are of that one,
and a bound says what is known of the text and not of its language. Only where
rows go on from step to step (`streams`) each language has rows of its own. A
language of n tokens has a share of the updates in proportion to n to the power
of an exponent (Conneau and Lample 2019, "XLM", §3.1; 0.7 in InfoXLM), or one
that people give it, whatever the order in which the languages are named.

Glossary of shapes: B rows, V vocabulary, P parts: languages, or pairs of them.
"""

import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.data.source import Source
from infoword_tf.data.store import Store

ROUND = 1024  # updates in which each part has its share, one at least
# What parts are. Those of a run take turns independently of each other.
FILES, LANGUAGES, TRANSLATIONS = 8, 9, 10


def shares(sizes: Sequence[float], exponent: float) -> np.ndarray:
    """[P] float64 that sum to 1: sizes to a power."""
    powers = np.array(sizes, np.float64) ** exponent
    return powers / powers.sum()


def as_drawn(counts: Sequence[np.ndarray], shares: np.ndarray) -> np.ndarray:
    """[V] int64, of each piece as often as it is drawn.

    Args:
        counts: [V] of each part.
        shares: [P] of the updates.
    """
    total = sum(own.sum() for own in counts)
    p = sum(
        share * own / max(1, own.sum())
        for share, own in zip(shares, counts, strict=True)
    )
    # What occurs is counted, however rare its part is.
    drawn = np.where(p > 0, np.maximum(np.rint(total * p), 1), 0)
    return drawn.astype(np.int64)


def parted(total: int, shares: np.ndarray) -> np.ndarray:
    """[P] int64 that sum to a total, as near to its shares as integers are.

    None is 0, so the total is P at least.
    """
    wanted = shares * (total - len(shares))
    counts = np.floor(wanted).astype(np.int64)
    order = np.argsort(counts - wanted, kind='stable')
    counts[order[: total - len(shares) - counts.sum()]] += 1
    return counts + 1


class Turns:
    """Which part has each step, and which of its own steps that is.

    A round has every part as often as its count says, in a random order of its
    own: a function of (seed, round, what the parts are).
    """

    def __init__(self, counts: np.ndarray, seed: int, what: int):
        """Args: of each part [P], 1 or more; and a number, FILES say."""
        self.counts, self.key = counts, (seed, what)
        self.order = functools.lru_cache(2)(self._order)

    def _order(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """[U] of each step of a round: its part, and which of that one's."""
        part = np.repeat(np.arange(len(self.counts)), self.counts)
        seed, what = self.key
        random = np.random.default_rng([seed, number, what])
        part = random.permutation(part)
        own = np.zeros(len(part), np.int64)
        for this, count in enumerate(self.counts):
            own[part == this] = number * count + np.arange(count)
        return part, own

    def turn(self, step: int) -> tuple[int, int]:
        """The part of a step, and which of that one's steps it is."""
        number, place = divmod(step, int(self.counts.sum()))
        part, own = self.order(number)
        return int(part[place]), int(own[place])


class Mixture(NamedTuple):
    """Stores of several languages.

    Attributes:
        stores: by language, sorted; all have one vocabulary.
        exponent: of the sizes.
        weights: by language, instead of sizes; none: these decide.
    """

    stores: Mapping[str, Store]
    exponent: float
    weights: Mapping[str, float] = types.MappingProxyType({})

    @property
    def shares(self) -> np.ndarray:
        """[P] float64 of the updates, in the order of `stores`."""
        if self.weights:
            return shares([self.weights[name] for name in self.stores], 1.0)
        sizes = [len(store.ids) for store in self.stores.values()]
        return shares(sizes, self.exponent)

    @property
    def counts(self) -> np.ndarray:
        """[V] int64, of each piece as often as it is drawn."""
        counts = [store.counts for store in self.stores.values()]
        return as_drawn(counts, self.shares)

    def sources(
        self, kind: type[Source], sizes: Sequence[int], seed: int,
        **arguments: Any,
    ) -> list[Source]:  # fmt: skip
        """A source of each language, for so many rows of each.

        Raises:
            ValueError: a language has less than one batch.
        """
        found, counts = [], self.counts
        for number, (language, store) in enumerate(self.stores.items()):
            # What is dropped or drawn by frequency goes by that of all.
            own = counts * (store.counts.sum() / counts.sum())
            try:
                source = kind(
                    store._replace(counts=own), batch_size=int(sizes[number]),
                    seed=seed + number, **arguments,
                )  # fmt: skip
            except ValueError as error:
                raise ValueError(f'{language}: {error}') from None
            found.append(source)
        kind.agree(found)
        return found


class MixedSource:
    """A language for each step; `single` and `batch` as of `Source`."""

    def __init__(
        self, kind: type[Source], mixture: Mixture, batch_size: int, seed: int,
        **arguments: Any,
    ):  # fmt: skip
        """Args: how a text is read; of which texts; B."""
        self.sources = mixture.sources(
            kind, [batch_size] * len(mixture.stores), seed, **arguments
        )
        count = max(ROUND, len(self.sources))
        self.turns = Turns(parted(count, mixture.shares), seed, LANGUAGES)
        single = [source.single for source in self.sources]
        self.single = None if None in single else sum(single)

    def batch(self, step: int) -> Any:
        """The global batch of a step, of one language."""
        part, own = self.turns.turn(step)
        return self.sources[part].batch(own)


class MixedRows:
    """Rows of each language, which go on from step to step; as `Source`."""

    single = None

    def __init__(
        self, kind: type[Source], mixture: Mixture, batch_size: int, seed: int,
        **arguments: Any,
    ):  # fmt: skip
        """Args: as of `MixedSource`.

        Raises:
            ValueError: there are fewer rows than languages.
        """
        # Where odd rows read backward a language has both.
        each = 1 + bool(arguments.get('both_directions'))
        units, languages = batch_size // each, len(mixture.stores)
        if units < languages:
            raise ValueError(
                f'a batch has {batch_size} rows for {languages} languages, '
                f'each of which needs {each}; raise --batch_size'
            )
        sizes = parted(units, mixture.shares) * each
        sizes[-1] += batch_size - units * each
        self.sources = mixture.sources(kind, sizes, seed, **arguments)

    def batch(self, step: int) -> Any:
        """The global batch of a step, of all languages."""
        parts = [source.batch(step) for source in self.sources]
        fields = zip(*parts, strict=True)
        return type(parts[0])(*map(np.concatenate, fields))


def mixed(
    kind: type[Source], mixture: Mixture, batch_size: int, seed: int,
    **arguments: Any,
) -> MixedSource | MixedRows:  # fmt: skip
    """What reads a mixture as `kind` reads a text; args as of `MixedSource`."""
    goes_on = kind.heldout_rows is not None
    source = MixedRows if goes_on else MixedSource
    return source(kind, mixture, batch_size, seed, **arguments)
