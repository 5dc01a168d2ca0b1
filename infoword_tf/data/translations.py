"""The source `translations`: pairs of texts of two languages.

An update reads one pair of languages, and fills the sequences of a batch with
as many pairs of texts as fit. They come in strata of length, as labelled
examples do (data/examples.py), so that every update has nearly the same number
of sequences and hardly any padding. For `xlco` an example is two pairs: the
longest of an update with the shortest, so that all are nearly as long.

Glossary of shapes: n pairs, S sequences, J examples that a sequence has room
for, G pairs of languages.
"""

import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from infoword_tf import errors
from infoword_tf.data.examples import (
    MULTIPLE,
    Strata,
    longest,
    pack_examples,
    pad_shapes,
)
from infoword_tf.data.mixture import (
    ROUND,
    TRANSLATIONS,
    Turns,
    apportion,
    as_drawn,
    shares,
)
from infoword_tf.data.source import Source, naming
from infoword_tf.data.text_pairs import Columns
from infoword_tf.views import translations as views

if TYPE_CHECKING:  # it imports TensorFlow
    from infoword_tf.text.tokenizer import TextTokenizer

HELDOUT = 512  # pairs of each two languages that are measured
_STRINGS = 8192  # of a call of the tokenizer


class TokenPairs(NamedTuple):
    """Pairs of two languages in flat arrays.

    Attributes:
        ids: [tokens] int32, no specials, one text after the other.
        word_starts: [tokens] bool.
        begins: [2 n + 1] int64: text k of pair i is `ids[begins[2 i + k]:
            begins[2 i + k + 1]]`.
        truncated: [n] bool, whether a text of the pair has lost its end.
    """

    ids: np.ndarray
    word_starts: np.ndarray
    begins: np.ndarray
    truncated: np.ndarray

    @property
    def size(self) -> int:
        """Number n of pairs."""
        return len(self.truncated)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of both texts, [n, 2] int64."""
        return np.diff(self.begins).reshape(-1, 2)

    def tally(self, size: int) -> np.ndarray:
        """Counts each token of the vocabulary, [V] int64."""
        return np.bincount(self.ids, minlength=size)

    def batch(
        self, numbers: np.ndarray, slots: np.ndarray, width: int, crossed: bool
    ) -> views.Translations:
        """Selects pairs [n] by number, in the form that a view takes."""
        texts = 2 * numbers[:, None] + np.arange(2)
        begins = self.begins[texts]
        lengths = self.begins[texts + 1] - begins
        column = np.arange(lengths.max(initial=1))
        place = begins[:, :, None] + np.minimum(column, lengths[:, :, None] - 1)
        return views.Translations(
            ids=self.ids[place],
            word_starts=self.word_starts[place],
            lengths=lengths.astype(np.int32),
            numbers=numbers.astype(np.int32),
            slots=slots.astype(np.int32),
            width=width,
            truncated=self.truncated[numbers],
            crossed=crossed,
        )


class ParallelText(NamedTuple):
    """Translations of one or several pairs of languages.

    Attributes:
        parts: texts by pair of languages, 'de-en', sorted.
        exponent: power to which sizes are raised, see `data.mixture`.
    """

    parts: Mapping[str, TokenPairs]
    exponent: float = 1.0

    @property
    def ids(self) -> np.ndarray:
        """Ids of all pairs of languages, [tokens] int32."""
        return np.concatenate([part.ids for part in self.parts.values()])

    @property
    def shares(self) -> np.ndarray:
        """Shares of the updates, [G] float64."""
        return shares([x.size for x in self.parts.values()], self.exponent)

    @property
    def truncated(self) -> int:
        """Number of pairs with a truncated text."""
        return sum(int(x.truncated.sum()) for x in self.parts.values())

    def counts(self, size: int) -> np.ndarray:
        """Counts the tokens of the vocabulary as often as drawn, [V] int64."""
        counts = [part.tally(size) for part in self.parts.values()]
        return as_drawn(counts, self.shares)


def tokenized(
    columns: Columns, tokenizer: 'TextTokenizer', max_length: int
) -> TokenPairs:
    """Tokenizes pairs of texts; a text is truncated to half a sequence.

    A pair is left out where a text has no token (control characters alone).

    Args:
        columns: two texts a pair.
        max_length: T of a sequence with both.
    """
    most = (max_length - views.SPECIALS) // 2
    first, second = columns.texts
    pairs = zip(first, second, strict=True)
    strings = [text for pair in pairs for text in pair]
    ids, starts, row_lengths = [], [], []
    for begin in range(0, len(strings), _STRINGS):
        texts = [text.encode() for text in strings[begin : begin + _STRINGS]]
        tokens = tokenizer.tokenize_flat(texts)
        ids.append(np.asarray(tokens.ids, np.int32))
        starts.append(np.asarray(tokens.word_starts, bool))
        row_lengths.append(np.diff(tokens.row_splits))
    lengths = np.concatenate(row_lengths).reshape(-1, 2)
    has_tokens = np.all(lengths > 0, axis=1)
    sizes = np.where(has_tokens[:, None], np.minimum(lengths, most), 0).ravel()
    begins = np.cumsum(lengths.ravel()) - lengths.ravel()
    place = np.arange(sizes.sum()) + np.repeat(
        begins - np.cumsum(sizes) + sizes, sizes
    )
    kept_sizes = sizes.reshape(-1, 2)[has_tokens].ravel()
    return TokenPairs(
        np.concatenate(ids)[place],
        np.concatenate(starts)[place],
        np.concatenate([[0], np.cumsum(kept_sizes, dtype=np.int64)]),
        np.any(lengths > most, axis=1)[has_tokens],
    )


class _Pairs:
    """Pairs of two languages, or examples of two pairs, in strata.

    Attributes:
        slots: [S, J] int32, which examples share a sequence; -1: none.
        width: T.
    """

    def __init__(
        self, store: TokenPairs, length: int, batch_size: int, seed: int,
        crossed: bool, stratified: bool,
    ):  # fmt: skip
        self.store, self.crossed, self.stratified = store, crossed, stratified
        least = batch_size * (1 + crossed)
        if store.size < least:
            raise errors.InputError(
                'few_translations',
                f'there are {store.size:,} pairs of texts, but an update takes '
                f'{least:,}; give more, or lower --batch_size',
            )
        self.width = length
        if crossed:  # either language may be a
            self.sizes = store.lengths.max(axis=1)
        else:
            self.sizes = store.lengths.sum(axis=1) + views.SPECIALS
        if not stratified:
            self.count = least
            self.slots = self._shared(self.sizes[:least])
        elif crossed:
            self._fill(least, seed)
        else:
            # As many pairs as fill the sequences.
            fit = int(batch_size * length / self.sizes.mean())
            count = min(store.size, max(batch_size, fit))
            in_order = np.sort(self.sizes)
            while count > batch_size and (
                len(self._shared(longest(in_order, count))) > batch_size
            ):
                count = max(batch_size, count - max(1, count // 64))
            self._fill(count, seed)

    def _fill(self, count: int, seed: int) -> None:
        """Makes strata of `count` pairs, and the sequences of an update."""
        self.count, self.strata = count, Strata(self.sizes, count, seed)
        self.slots = self._shared(self._ordered(self.strata.longest))

    def _ordered(self, strata: np.ndarray) -> np.ndarray:
        """Orders strata; crossed: the shortest, the longest, and so on."""
        if not self.crossed:
            return strata
        half = len(strata) // 2
        return np.stack([strata[:half], strata[:-half-1:-1]], axis=1).ravel()

    def _shared(self, sizes: np.ndarray) -> np.ndarray:
        """Packs pairs of `sizes` into sequences, [S, J]."""
        if self.crossed:
            sizes = sizes.reshape(-1, 2).sum(axis=1) + views.SPECIALS
            self.width = -(-int(sizes.max()) // MULTIPLE) * MULTIPLE
        return pack_examples(sizes, self.width)

    def batch(self, step: int) -> views.Translations:
        """Returns the pairs of a step."""
        if self.stratified:
            numbers = self._ordered(self.strata.members(step))
        else:
            numbers = step * self.count + np.arange(self.count)
        return self.store.batch(numbers, self.slots, self.width, self.crossed)


class TranslationSource(Source):
    """Pairs of two languages at a time, as many as fill B sequences.

    With `crossed`, B examples of two pairs each. Held-out text is one batch of
    at most 512 pairs.
    """

    whole = True
    too_little = 'there is no held-out translation'
    in_training = types.MappingProxyType({'stratified': True})
    by_length = True

    def __init__(
        self, store: ParallelText, length: int, batch_size: int, seed: int,
        crossed: bool = False, stratified: bool = False,
    ):  # fmt: skip
        """Sets how pairs are read.

        Args:
            crossed: whether an example is two pairs.
            stratified: whether updates have one example of each stratum of
                length, or all come in their order.

        Raises:
            ValueError: two languages have fewer pairs than an update takes.
        """
        self.parts = []
        for number, (languages, pairs) in enumerate(store.parts.items()):
            with naming(languages):
                part = _Pairs(
                    pairs,
                    length,
                    batch_size,
                    seed + number,
                    crossed=crossed,
                    stratified=stratified,
                )
            self.parts.append(part)
        pad_shapes(self.parts)
        count = max(ROUND, len(self.parts))
        self.turns = Turns(apportion(count, store.shares), seed, TRANSLATIONS)

    @classmethod
    def capacity(
        cls, store: ParallelText, length: int, crossed: bool = False
    ) -> int:
        """Returns how many examples held-out text has, of at most 512 pairs."""
        del length
        fewest = min(pairs.size for pairs in store.parts.values())
        return min(HELDOUT, fewest) // (1 + crossed)

    def batch(self, step: int) -> views.Translations:
        """Returns the global batch of a step, of two languages."""
        number, own_step = self.turns.turn(step)
        return self.parts[number].batch(own_step)
