"""The sources `pairs` and `next_pairs`: two segments of text, [SEP] between.

They are made as BERT's are (Devlin et al. 2019, §A.2): sentences of a document
until there are enough tokens, divided at a random sentence end into A and B;
one time in ten fewer tokens are enough; a pair that is too long loses tokens of
its longer segment, at either end alike. Three things are better defined here:

* Another B is always of another document, and is the B of another such pair. So
  it is drawn from p(b), and no candidate has other text in front of it.
* Of several such B the one is taken with which the pair is truncated most like
  the true pair. BERT fills the rest of the sequence with the other B, so
  lengths alone tell random pairs from true ones where documents are short: in
  57 of 100 docstrings, here in 51.
* A pair has two sentences, whatever their length, and half of `pairs` is
  random. In BERT a single long sentence always gets a random B.

Documents of one sentence have no pair and are omitted.

Short pairs leave much of a sequence empty: 45 % of it at T = 128 where
documents are docstrings. So several are packed into one sequence, where the
rows that a run trains allow it: see `share_sequences`.

Glossary of shapes: J pairs that a sequence has room for, C other segments of
each pair, E tokens of a pair alone in its sequence, F = E - 1 tokens of text in
it, T = E + 2 with specials, n pairs.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from infoword_tf import errors
from infoword_tf.data import store as stores
from infoword_tf.data.passages import count_sentences
from infoword_tf.data.source import Source, visited
from infoword_tf.views.masked import Pairs

SHORT_SHARE = 0.1  # of the pairs are shorter than the room
RANDOM_SHARE = 0.5  # of `pairs`
FILLED_SHARE = 0.95  # of the shared sequences, if all could be filled
SAMPLE = 1024  # pairs from whose sizes is decided how many fit
SPECIALS = 3  # of a pair, [CLS] A [SEP] B [SEP]
SHORTEST = SPECIALS + 2  # a token of A and one of B
TRIES = 16  # other segments, of which the best length is taken
_BLOCK = 64  # flags looked at at once, three sentences or so


class _Sides(NamedTuple):
    """Places of pairs in the store: A is first..middle, B is middle..end."""

    first: np.ndarray
    middle: np.ndarray
    end: np.ndarray


class PairSource(Source):
    """The source `pairs`: half the time B follows A, half the time B is random.

    Epochs visit the documents in a permutation of their own, as
    `source.WindowSource` does; one of n tokens is visited ceil(n / F) times.
    """

    by_blocks = False  # another B is of any document
    too_little = (
        'the held-out text of {tokens:,} tokens has no two documents of two '
        'sentences; hold out more (--heldout)'
    )

    negatives = 0  # C, besides the true B

    def __init__(
        self,
        store: stores.Store,
        length: int,
        batch_size: int,
        seed: int,
        packed: bool = False,
    ):
        """Sets how pairs are read; with `packed`, several to a sequence.

        How many then are in a batch depends on the text alone, and is the same
        in every step: as many as fill its sequences on average.
        """
        self.store, self.length = store, length
        self.batch_size, self.seed = batch_size, seed
        sentences = count_sentences(store)
        self.documents = np.nonzero(sentences > 1)[0]
        self.single = len(sentences) - len(self.documents)
        if len(self.documents) < 2:
            raise errors.InputError(
                'few_documents_for_pairs',
                f'{len(self.documents)} of {len(sentences):,} documents have '
                'two sentences, but pairs take two such documents; give more '
                'text, with a blank line between documents',
            )
        # By document, the number of its first pair; one more entry: the end.
        self.numbers = np.concatenate(
            [[0], np.cumsum(_visits(store, self.documents, length - 1))]
        )
        if self.numbers[-1] < batch_size:
            raise errors.InputError(
                'few_sentence_pairs',
                f'the text has {self.numbers[-1]:,} pairs of sentences, but a '
                f'batch takes {batch_size}; give more text, or lower '
                '--batch_size',
            )
        self.packed, self.pairs, self.slots = packed, batch_size, 1
        if packed:
            fit = self._pairs_in_a_sequence()
            enough = min(int(batch_size * fit), int(self.numbers[-1]))
            self.pairs = max(batch_size, enough)
            self.slots = min(2 * math.ceil(fit), (length + 2) // SHORTEST)

    def _pairs_in_a_sequence(self) -> float:
        """Returns how many pairs of average size fit, 1 or more."""
        number = np.arange(SAMPLE) * self.numbers[-1] // SAMPLE
        true = self._spans(number, np.random.default_rng(0))
        a, b = cut_lengths(*_lengths(true, true), self.length - 1)
        tokens = self.length + 2
        fit = FILLED_SHARE * tokens / (a + b + SPECIALS).mean()
        return min(max(1.0, fit), float(tokens // SHORTEST))

    @classmethod
    def capacity(
        cls, store: stores.Store, length: int, packed: bool = False
    ) -> int:
        """Returns sequences of an epoch; 0 where one document has all pairs."""
        documents = np.nonzero(count_sentences(store) > 1)[0]
        if len(documents) < 2:
            return 0
        pairs = int(_visits(store, documents, length - 1).sum())
        if packed:
            source = cls(store, length, batch_size=1, seed=0, packed=True)
            fit = source._pairs_in_a_sequence()
            return max(1, int(pairs / fit))
        return pairs

    @classmethod
    def unify_shapes(cls, sources: Sequence[Self]) -> None:
        """Gives all sources room for the most pairs in a sequence."""
        slots = max(source.slots for source in sources)
        for source in sources:
            source.slots = slots

    def batch(self, step: int) -> Pairs:
        """Returns the global batch of a step."""
        number = step * self.pairs + np.arange(self.pairs)
        chosen = visited(number, int(self.numbers[-1]), self.seed, 5)
        random = np.random.default_rng([self.seed, step, 6])
        true = self._spans(chosen, random)
        if self.negatives:
            labels = np.zeros(self.pairs, np.int32)
            pairs = self._read(true, true, labels, random)
            repeated = np.repeat(np.arange(self.pairs), self.negatives)
            true = _Sides(*(x[repeated] for x in true))
            others = self._others(chosen[repeated], true, random)
            labels = np.ones(len(repeated), np.int32)
            return pairs._replace(
                negatives=self._read(true, others, labels, random)
            )
        is_random = random.random(self.pairs) < RANDOM_SHARE
        others = self._others(chosen, true, random)
        second = _Sides(
            *(
                np.where(is_random, x, y)
                for x, y in zip(others, true, strict=True)
            )
        )
        labels = is_random.astype(np.int32)
        if not self.packed:
            return self._read(true, second, labels, random)
        a, b = cut_lengths(*_lengths(true, second), self.length - 1)
        sequence, sizes = share_sequences(
            a + b + SPECIALS,
            self.batch_size,
            self.slots,
            self.length + 2,
        )
        order = np.argsort(sequence, kind='stable')
        true, second = (_Sides(*(x[order] for x in y)) for y in (true, second))
        max_tokens = sizes[order] - SPECIALS
        counts = np.bincount(sequence, minlength=self.batch_size)
        return self._read(
            true, second, labels[order], random, max_tokens=max_tokens
        )._replace(slots=np.arange(self.slots) < counts[:, None])

    def _spans(self, number: np.ndarray, random: np.random.Generator) -> _Sides:
        """Returns where pairs [n] lie, by number, before truncation."""
        max_tokens = self.length - 1
        which = np.searchsorted(self.numbers, number, 'right') - 1
        visits = self.numbers[which + 1] - self.numbers[which]
        begin = self.store.documents[self.documents[which]]
        stop = self.store.documents[self.documents[which] + 1] - 1  # no [SEP]
        u, v, w, target = random.random((4, len(number)))
        # The visits of a long document divide the document among them, except
        # for an end that leaves the last visit text to read.
        within = (number - self.numbers[which] + u) / visits
        within *= np.where(visits > 1, stop - begin - max_tokens // 2, 0)
        first = self._sentence_at(begin + within.astype(np.int64))
        lonely = self._sentence_after(first, stop) == stop
        first[lonely] = self._sentence_at(first[lonely] - 1)
        enough = np.where(
            w < SHORT_SHARE,
            2 + (target * (max_tokens - 1)).astype(np.int64),
            max_tokens,
        )
        place = first[:, None] + np.arange(1, max_tokens)  # [n, R - 1]
        inside = place < np.minimum(first + enough, stop)[:, None]
        starts = self._flags(place) & inside
        ordinal = np.cumsum(starts, axis=1)
        several = ordinal[:, -1]
        column = np.argmax(ordinal > (v * several).astype(int)[:, None], axis=1)
        # A first sentence of enough tokens gets a second one all the same.
        middle = np.where(
            several > 0, first + 1 + column, self._sentence_after(first, stop)
        )
        end = self._sentence_after(
            np.where(several > 0, first + enough - 1, middle), stop
        )
        return _Sides(first, middle, end)

    def _others(
        self, number: np.ndarray, true: _Sides, random: np.random.Generator
    ) -> _Sides:
        """Draws a pair of another document for each of n pairs."""
        n, max_tokens = len(number), self.length - 1
        which = np.searchsorted(self.numbers, number, 'right') - 1
        begin, end = self.numbers[which], self.numbers[which + 1]
        left = self.numbers[-1] - (end - begin)  # pairs of other documents
        drawn = (random.random((TRIES, n)) * left).astype(np.int64)
        drawn += np.where(drawn >= begin, end - begin, 0)
        others = self._spans(drawn.ravel(), random)
        others = _Sides(*(x.reshape(TRIES, n) for x in others))
        a = true.middle - true.first
        target = cut_lengths(a, true.end - true.middle, max_tokens)
        lengths = cut_lengths(a, others.end - others.middle, max_tokens)
        best = np.argmin(
            sum(np.abs(x - y) for x, y in zip(lengths, target, strict=True)),
            axis=0,
        )
        return _Sides(*(x[best, np.arange(n)] for x in others))

    def _read(
        self,
        first: _Sides,
        second: _Sides,
        labels: np.ndarray,
        random: np.random.Generator,
        max_tokens: np.ndarray | None = None,
    ) -> Pairs:
        """Reads A of `first` with B of `second`, truncated."""
        whole = _lengths(first, second)
        most = self.length - 1 if max_tokens is None else max_tokens
        sizes = np.stack(cut_lengths(*whole, most))
        # Each token that is lost is the first or the last one.
        begins = np.stack([first.first, second.middle])
        begins += random.binomial(np.stack(whole) - sizes, 0.5)
        (a, b), column = sizes[:, :, None], np.arange(self.length)
        in_b = column > a
        place = np.where(in_b, begins[1][:, None] - a - 1, begins[0][:, None])
        place = np.minimum(place + column, len(self.store.ids) - 1)
        separators = (column == a) | (column > a + b)
        flags = self.store.flags[place] & stores.WORD_START
        # A segment that lost its beginning may start inside a word.
        begin = (column == 0) | (column == a + 1)
        ids = self.store.ids[place].astype(np.int32)
        firsts, seconds = sizes.astype(np.int32)
        return Pairs(
            ids=np.where(separators, 0, ids),
            word_starts=(flags > 0) | begin | separators,
            separators=separators,
            firsts=firsts,
            seconds=seconds,
            labels=labels,
        )

    def _flags(self, place: np.ndarray) -> np.ndarray:
        """Returns whether a sentence begins at each place of the text."""
        last = len(self.store.flags) - 1
        flags = self.store.flags[np.minimum(place, last)]
        return (flags & stores.SENTENCE_START) > 0

    def _sentence_at(self, place: np.ndarray) -> np.ndarray:
        """Returns where the sentences around places [n] begin."""
        place, left = place.copy(), np.arange(len(place))
        while len(left):
            back = place[left, None] - np.arange(_BLOCK)
            flags = self._flags(np.maximum(back, 0))
            steps = np.argmax(flags, axis=1)
            has_start = flags.any(axis=1)
            place[left] -= np.where(has_start, steps, _BLOCK)
            left = left[~has_start]
        return place

    def _sentence_after(
        self, place: np.ndarray, stop: np.ndarray
    ) -> np.ndarray:
        """Returns where the next sentences begin, or documents end: [n]."""
        place, left = place + 1, np.arange(len(place))
        while len(left):
            flags = self._flags(place[left, None] + np.arange(_BLOCK))
            steps = np.argmax(flags, axis=1)
            has_start = flags.any(axis=1)
            place[left] += np.where(has_start, steps, _BLOCK)
            left = left[~has_start & (place[left] < stop[left])]
        return np.minimum(place, stop)


class NextPairSource(PairSource):
    """The source `next_pairs`: B follows A, and C other B are negatives."""

    negatives = 3


def share_sequences(
    sizes: np.ndarray, sequences: int, slots: int, max_tokens: int
) -> tuple[np.ndarray, np.ndarray]:
    """Packs n texts into B sequences, at most J = `slots` each: best fit.

    The longest B texts open a sequence each. Every other text, the longest
    first, goes where it leaves least room. A text that fits nowhere goes where
    most room is left, and the longest texts there are truncated to one size
    that fits.

    Returns:
        [n] the sequence of each text, and [n] its size there.
    """
    order = np.argsort(-sizes, kind='stable')
    sequence = np.empty(len(sizes), np.int64)
    sequence[order[:sequences]] = np.arange(sequences)
    room = max_tokens - sizes[order[:sequences]]
    count = np.ones(sequences, np.int64)
    for text in order[sequences:]:
        (open,) = np.nonzero(count < slots)
        after = room[open] - sizes[text]
        fits = after >= 0
        best = np.argmin(
            np.where(fits, after, max_tokens) if fits.any() else -after
        )
        sequence[text] = open[best]
        room[open[best]] -= sizes[text]
        count[open[best]] += 1
    sizes = sizes.copy()
    levels = np.arange(max_tokens + 1)
    for full in np.nonzero(room < 0)[0]:
        is_here = sequence == full
        totals = np.minimum(sizes[is_here, None], levels).sum(axis=0)
        sizes[is_here] = np.minimum(
            sizes[is_here], levels[totals <= max_tokens].max()
        )
    return sequence, sizes


def _lengths(
    first: _Sides, second: _Sides
) -> tuple[np.ndarray, np.ndarray]:
    """Returns lengths [n] of A, and of B, before truncation."""
    return first.middle - first.first, second.end - second.middle


def cut_lengths(
    a: np.ndarray, b: np.ndarray, max_tokens: int | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns lengths of two segments, of which the longer is truncated.

    One token after the other, as BERT's `truncate_seq_pair` does; at equal
    lengths the second loses.
    """
    a, b = np.broadcast_arrays(a, b)
    rest = np.minimum(a, np.maximum(-(-max_tokens // 2), max_tokens - b))
    over = a + b > max_tokens
    return np.where(over, rest, a), np.where(over, max_tokens - rest, b)


def _visits(
    store: stores.Store, documents: np.ndarray, max_tokens: int
) -> np.ndarray:
    """Returns ceil(n / F) of the documents' tokens, [documents] int64."""
    tokens = store.documents[documents + 1] - 1 - store.documents[documents]
    return -(-tokens // max_tokens)
