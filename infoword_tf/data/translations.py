"""The source `translations`: pairs of texts of two languages.

An update reads one pair of languages, and fills the rows of a batch with pairs
of texts, as many as fit. They come in strata of length, as labelled examples do
(data/examples.py), so that every update has nearly the same rows and hardly a
place is padding. For `xlco` an example is two pairs: the longest of an update
with the shortest, so that all are nearly as long.

Glossary of shapes: n pairs, L tokens of the longest text, R rows, J examples
that a row has room for, T tokens of a row, P pairs of languages.
"""

import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from infoword_tf.data.examples import (
    MULTIPLE,
    ExampleSource,
    Strata,
    longest,
    share_rows,
)
from infoword_tf.data.mixture import (
    ROUND,
    TRANSLATIONS,
    Turns,
    as_drawn,
    parted,
    shares,
)
from infoword_tf.data.source import Source
from infoword_tf.data.text_pairs import Columns
from infoword_tf.views import translations as views

if TYPE_CHECKING:  # it imports TensorFlow
    from infoword_tf.text.tokenizer import Tokenizer

HELDOUT = 512  # pairs of each two languages that are measured
_STRINGS = 8192  # of a call of the tokenizer


class TokenPairs(NamedTuple):
    """Pairs of two languages in flat arrays, or two pairs to an example.

    Attributes:
        ids: [tokens] int32, no specials, one text after the other.
        word_starts: [tokens] bool.
        begins: [2 n + 1] int64: text k of pair i is `ids[begins[2 i + k]:
            begins[2 i + k + 1]]`.
        cut: [n] bool, of which a text has lost its end.
    """

    ids: np.ndarray
    word_starts: np.ndarray
    begins: np.ndarray
    cut: np.ndarray

    @property
    def size(self) -> int:
        """n."""
        return len(self.cut)

    @property
    def lengths(self) -> np.ndarray:
        """[n, 2] int64."""
        return np.diff(self.begins).reshape(-1, 2)

    def pieces(self, size: int) -> np.ndarray:
        """[V] int64: how often each piece occurs."""
        return np.bincount(self.ids, minlength=size)

    def batch(
        self, numbers: np.ndarray, slots: np.ndarray, width: int, crossed: bool
    ) -> views.Translations:
        """Some pairs, [n], as a view takes them."""
        rows = 2 * numbers[:, None] + np.arange(2)
        begins = self.begins[rows]
        lengths = self.begins[rows + 1] - begins
        column = np.arange(lengths.max(initial=1))
        place = begins[:, :, None] + np.minimum(column, lengths[:, :, None] - 1)
        return views.Translations(
            self.ids[place],
            self.word_starts[place],
            lengths.astype(np.int32),
            numbers.astype(np.int32),
            slots.astype(np.int32),
            width,
            self.cut[numbers],
            crossed,
        )


class ParallelText(NamedTuple):
    """Translations of one or several pairs of languages.

    Attributes:
        parts: by pair of languages, 'de-en', sorted.
        exponent: of their sizes, see `data.mixture`.
    """

    parts: Mapping[str, TokenPairs]
    exponent: float = 1.0

    @property
    def ids(self) -> np.ndarray:
        """All tokens."""
        return np.concatenate([part.ids for part in self.parts.values()])

    @property
    def shares(self) -> np.ndarray:
        """[P] float64 of the updates."""
        return shares([x.size for x in self.parts.values()], self.exponent)

    def counts(self, size: int) -> np.ndarray:
        """[V] int64, of each piece as often as it is drawn."""
        found = [part.pieces(size) for part in self.parts.values()]
        return as_drawn(found, self.shares)


def tokenized(
    columns: Columns, tokenizer: 'Tokenizer', max_length: int
) -> TokenPairs:
    """Pairs of texts as pieces; ends beyond half a row are cut.

    Args:
        columns: two texts each.
        max_length: T of a row with two of them.

    A text of which no piece is left (control characters alone) leaves its pair
    out.
    """
    most = (max_length - views.SPECIALS) // 2
    first, second = columns.texts
    pairs = zip(first, second, strict=True)
    strings = [text for pair in pairs for text in pair]
    ids, starts, sizes = [], [], []
    for begin in range(0, len(strings), _STRINGS):
        some = [text.encode() for text in strings[begin : begin + _STRINGS]]
        pieces = tokenizer.pieces(some)
        ids.append(np.asarray(pieces.ids, np.int32))
        starts.append(np.asarray(pieces.word_starts, bool))
        sizes.append(np.diff(pieces.row_splits))
    lengths = np.concatenate(sizes).reshape(-1, 2)
    kept = (lengths > 0).all(axis=1)
    sizes = np.where(kept[:, None], np.minimum(lengths, most), 0).ravel()
    begins = np.cumsum(lengths.ravel()) - lengths.ravel()
    place = np.arange(sizes.sum()) + np.repeat(
        begins - np.cumsum(sizes) + sizes, sizes
    )
    left = sizes.reshape(-1, 2)[kept].ravel()
    return TokenPairs(
        np.concatenate(ids)[place],
        np.concatenate(starts)[place],
        np.concatenate([[0], np.cumsum(left, dtype=np.int64)]),
        (lengths > most).any(axis=1)[kept],
    )


class _Pairs:
    """Pairs of one two languages, or of two pairs each, in strata.

    Attributes:
        slots: [R, J] int32, which examples share a row; -1: none.
        width: T.
    """

    def __init__(
        self, store: TokenPairs, length: int, batch_size: int, seed: int,
        crossed: bool, stratified: bool,
    ):  # fmt: skip
        """Args: as of `TranslationSource`.

        Raises:
            ValueError: there are fewer pairs than an update takes.
        """
        self.store, self.crossed, self.stratified = store, crossed, stratified
        least = batch_size * (1 + crossed)
        if store.size < least:
            raise ValueError(
                f'there are {store.size:,} pairs of texts, but an update takes '
                f'{least:,}; give more, or lower --batch_size'
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
            # As many pairs as fill the rows.
            fit = int(batch_size * length / self.sizes.mean())
            count = min(store.size, max(batch_size, fit))
            in_order = np.sort(self.sizes)
            while count > batch_size and (
                len(self._shared(longest(in_order, count))) > batch_size
            ):
                count = max(batch_size, count - max(1, count // 64))
            self._fill(count, seed)

    def _fill(self, count: int, seed: int) -> None:
        """Makes the strata of so many pairs, and the rows that they share."""
        self.count, self.strata = count, Strata(self.sizes, count, seed)
        self.slots = self._shared(self._ordered(self.strata.longest))

    def _ordered(self, strata: np.ndarray) -> np.ndarray:
        """What there is of strata, with the crossed ones side by side: the
        shortest and the longest, and so on.
        """
        if not self.crossed:
            return strata
        half = len(strata) // 2
        return np.stack([strata[:half], strata[:-half-1:-1]], axis=1).ravel()

    def _shared(self, sizes: np.ndarray) -> np.ndarray:
        """The rows of pairs of such sizes."""
        if self.crossed:
            sizes = sizes.reshape(-1, 2).sum(axis=1) + views.SPECIALS
            self.width = -(-int(sizes.max()) // MULTIPLE) * MULTIPLE
        return share_rows(sizes, self.width)

    def batch(self, step: int) -> views.Translations:
        """The pairs of a step."""
        if self.stratified:
            numbers = self._ordered(self.strata.members(step))
        else:
            numbers = step * self.count + np.arange(self.count)
        return self.store.batch(numbers, self.slots, self.width, self.crossed)


class TranslationSource(Source):
    """Pairs of two languages at a time, as many as fill B rows; or B examples
    of two pairs each.

    Held-out text is one batch of at most 512 pairs.
    """

    whole = True
    too_little = 'there is no held-out translation'
    in_training = types.MappingProxyType({'stratified': True})

    def __init__(
        self, store: ParallelText, length: int, batch_size: int, seed: int,
        crossed: bool = False, stratified: bool = False,
    ):  # fmt: skip
        """Sets how pairs are read.

        Args:
            store: of one or several pairs of languages.
            length: T.
            batch_size: B; of held-out text how many examples.
            seed: of the order.
            crossed: whether an example is two pairs.
            stratified: whether updates have one example of each stratum of
                length, or all come in their order.

        Raises:
            ValueError: two languages have fewer pairs than an update takes.
        """
        self.parts = []
        for number, (languages, part) in enumerate(store.parts.items()):
            try:
                self.parts.append(
                    _Pairs(
                        part, length, batch_size, seed + number, crossed,
                        stratified,
                    )  # fmt: skip
                )
            except ValueError as error:
                raise ValueError(f'{languages}: {error}') from None
        ExampleSource.agree(self.parts)
        count = max(ROUND, len(self.parts))
        self.turns = Turns(parted(count, store.shares), seed, TRANSLATIONS)

    @classmethod
    def capacity(
        cls, store: ParallelText, length: int, crossed: bool = False
    ) -> int:
        """Pairs, 512 at most, or half as many crossed ones."""
        del length
        fewest = min(part.size for part in store.parts.values())
        return min(HELDOUT, fewest) // (1 + crossed)

    def batch(self, step: int) -> views.Translations:
        """The global batch of a step, of two languages."""
        part, own = self.turns.turn(step)
        return self.parts[part].batch(own)
