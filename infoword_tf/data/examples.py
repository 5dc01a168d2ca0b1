"""The source `examples`: labelled texts, addressed by step.

An update has exactly B examples, packed into sequences (`views.examples`). An
epoch is stratified by length, so that every update needs the same number of
sequences: examples, sorted by length, fall into B strata, and each update has
one random example of each stratum. Each example is seen once an epoch, except
for the remainder of n / B; each epoch leaves out others.

Glossary of shapes: n examples, X texts of each, S sequences, J examples that a
sequence has room for, C classes.
"""

import bisect
import functools
import math
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import numpy as np

from infoword_tf import commands, errors
from infoword_tf.data.source import Source
from infoword_tf.views.examples import MULTIPLE, Labelled

if TYPE_CHECKING:  # it imports TensorFlow
    from infoword_tf.text.template import Template


# X times (n first texts, n second texts or None).
Sides = tuple[Sequence[str], Sequence[str] | None]
# Of `best_width`: how many wider sequences are tried, the fewest sequences, and
# the T at which attention costs as much as all else (measured at 384 wide,
# where each token of 432 costs a tenth more than each of 288).
WIDTHS, SEQUENCES, ATTENTION = 32, 8, 1024


class Examples(NamedTuple):
    """n labelled examples in flat arrays.

    Attributes:
        ids: [tokens] int32, with specials, one text after the other.
        segments: [tokens] int8.
        begins: [n X + 1] int64: text k of example i is `ids[begins[i X + k]:
            begins[i X + k + 1]]`.
        places: [n X] int32, where in each text its pooled state is.
        targets: b by row, [n, ...], see `views.examples.Labelled`.
        candidates: numbers by row, [n, 2] int32, see
            `views.examples.Labelled`.
        counts: occurrences of each b, by row, [C] int64.
        texts: X.
        of_tokens: b of each token, by row, [tokens, ...].
    """

    ids: np.ndarray
    segments: np.ndarray
    begins: np.ndarray
    places: np.ndarray
    targets: dict[str, np.ndarray]
    candidates: Mapping[str, np.ndarray] = types.MappingProxyType({})
    counts: Mapping[str, np.ndarray] = types.MappingProxyType({})
    texts: int = 1
    of_tokens: Mapping[str, np.ndarray] = types.MappingProxyType({})

    @property
    def size(self) -> int:
        """Number n of examples."""
        return (len(self.begins) - 1) // self.texts

    @property
    def sizes(self) -> np.ndarray:
        """Tokens of each example, [n] int64."""
        return np.diff(self.begins[:: self.texts])

    def tally(self, size: int, control_ids: Sequence[int]) -> np.ndarray:
        """Counts the tokens that texts can have, [V] int64."""
        counts = np.bincount(self.ids, minlength=size)
        counts[list(control_ids)] = 0
        return counts

    def tokens_of(self, numbers: np.ndarray) -> np.ndarray:
        """Returns where the tokens of examples are, [tokens] int64."""
        begins, sizes = self.begins[:: self.texts][numbers], self.sizes[numbers]
        return np.arange(sizes.sum()) + np.repeat(
            begins - np.cumsum(sizes) + sizes, sizes
        )

    def select(self, numbers: np.ndarray) -> 'Examples':
        """Selects examples, in another order, with the `counts` of all."""
        texts = (numbers[:, None] * self.texts + np.arange(self.texts)).ravel()
        sizes = np.diff(self.begins)[texts]
        begins = np.concatenate([[0], np.cumsum(sizes)])
        source = self.tokens_of(numbers)
        return self._replace(
            ids=self.ids[source],
            segments=self.segments[source],
            begins=begins,
            places=self.places[texts],
            targets={k: v[numbers] for k, v in self.targets.items()},
            candidates={k: v[numbers] for k, v in self.candidates.items()},
            of_tokens={k: v[source] for k, v in self.of_tokens.items()},
        )

    def expanded(self, length: int, mask_id: int) -> 'Examples':
        """Pads each first text with [MASK] to `length` tokens.

        Texts of `of_tokens` are not padded: there are none.
        """
        sizes = np.diff(self.begins)
        more = np.zeros_like(sizes)
        firsts = sizes[:: self.texts]
        more[:: self.texts] = np.maximum(length - firsts, 0)
        at = np.repeat(self.begins[1:], more)
        return self._replace(
            ids=np.insert(self.ids, at, mask_id),
            segments=np.insert(self.segments, at, 0),
            begins=np.concatenate([[0], np.cumsum(sizes + more)]),
        )

    def by_first(self) -> list[np.ndarray]:
        """Groups examples of equal first texts, in order: numbers of each."""
        groups: dict[bytes, list[int]] = {}
        begins = self.begins[:: self.texts]
        ends = self.begins[1 :: self.texts]
        for number, (begin, end) in enumerate(
            zip(begins.tolist(), ends.tolist(), strict=False)
        ):
            first = self.ids[begin:end].tobytes()
            groups.setdefault(first, []).append(number)
        return [np.array(numbers) for numbers in groups.values()]

    def batch(
        self, numbers: np.ndarray, slots: np.ndarray, width: int
    ) -> Labelled:
        """Reads examples [B], padded; `slots` [S, J] are of each sequence."""
        texts = numbers[:, None] * self.texts + np.arange(self.texts)  # [B, X]
        begins = self.begins[texts]
        lengths = self.begins[texts + 1] - begins
        column = np.arange(lengths.max(initial=1))
        source = begins[:, :, None] + np.minimum(
            column, lengths[:, :, None] - 1
        )
        return Labelled(
            ids=self.ids[source],
            segments=self.segments[source].astype(np.int32),
            lengths=lengths.astype(np.int32),
            places=self.places[texts],
            numbers=numbers.astype(np.int32),
            targets={k: v[numbers] for k, v in self.targets.items()},
            candidates={k: v[numbers] for k, v in self.candidates.items()},
            of_tokens={k: v[source] for k, v in self.of_tokens.items()},
            slots=slots.astype(np.int32),
            width=width,
        )


class Batchable(Protocol):
    """Examples that `ExampleSource` can read; each has X texts."""

    @property
    def texts(self) -> int:
        """Number X of texts."""

    @property
    def sizes(self) -> np.ndarray:
        """Tokens of each example, [n] int64."""

    def batch(
        self, numbers: np.ndarray, slots: np.ndarray, width: int
    ) -> Labelled:
        """Reads examples [B]; see `Examples.batch`."""


def format_texts(
    template: 'Template',
    texts: Sequence[Sides],
    max_length: int | Sequence[int],
    targets: Mapping[str, np.ndarray],
    counts: Mapping[str, np.ndarray] = types.MappingProxyType({}),
    chunk: int = 4096,
) -> tuple[Examples, int]:
    """Tokenizes and formats texts as examples.

    Args:
        texts: X times (n first texts, n second texts or None).
        max_length: T of a text at most, or of each of X; the longer of two
            loses tokens first.
        chunk: texts of a call.

    Returns:
        The examples, and how many have a truncated text.
    """
    k, n = len(texts), len(texts[0][0])
    layout = template.layout
    lengths_of = (
        max_length if isinstance(max_length, Sequence) else [max_length] * k
    )
    ids, segments, lengths, ends_of, cut = [], [], [], [], 0
    bar = commands.bar(total=n, desc='tokenizing', unit=' texts', leave=False)
    for begin in range(0, n, chunk):
        span = slice(begin, begin + chunk)
        sides = [
            (first[span], None if second is None else second[span])
            for first, second in texts
        ]
        formatted = [
            _formatted(template, x, most)
            for x, most in zip(sides, lengths_of, strict=True)
        ]
        longer = [
            _cut(template, *x)
            for x in zip(sides, formatted, lengths_of, strict=True)
        ]
        stacked, where, sizes, ends = _stacked(template, formatted)
        real = np.arange(stacked.shape[2]) < sizes[:, :, None]
        ends_of.append(ends.ravel())
        ids.append(stacked[real])
        segments.append(where[real])
        lengths.append(sizes.ravel())
        cut += int(np.any(longer, axis=0).sum())
        bar.update(len(stacked))
    bar.close()
    sizes = np.concatenate(lengths) if lengths else np.zeros(0, np.int64)
    places = np.concatenate(ends_of) if lengths else sizes
    if layout.first:
        places = np.zeros_like(sizes)
    examples = Examples(
        ids=np.concatenate(ids).astype(np.int32),
        segments=np.concatenate(segments).astype(np.int8),
        begins=np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
        places=places.astype(np.int32),
        targets=dict(targets),
        counts=dict(counts),
        texts=k,
    )
    return examples, cut


class _Formatted(NamedTuple):
    """Texts in the form that `Template.format` makes.

    Attributes:
        ids: [n, T] int32.
        sizes: [n] int32, tokens of each.
        seconds: [n] int32, place of each second text; the end without one.
    """

    ids: np.ndarray
    sizes: np.ndarray
    seconds: np.ndarray


def _stacked(
    template: 'Template', formatted: Sequence[_Formatted]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Puts X times n texts side by side.

    Returns:
        Ids [n, X, T], segments [n, X, T], sizes [n, X], and last tokens [n, X]
        that are no padding.
    """
    layout = template.layout
    width = max(x.ids.shape[1] for x in formatted)
    column = np.arange(width)
    stacked = np.stack(
        [
            np.pad(x.ids, [(0, 0), (0, width - x.ids.shape[1])])
            for x in formatted
        ],
        axis=1,
    )  # [n, X, T]
    sizes = np.stack([x.sizes for x in formatted], axis=1)  # [n, X]
    seconds = np.stack([x.seconds for x in formatted], axis=1)
    where = np.where(column >= seconds[:, :, None], layout.second_segment, 0)
    if layout.last_segment is not None:
        last = column == sizes[:, :, None] - 1
        where = np.where(last, layout.last_segment, where)
    ends = sizes - 1
    if template.padding is not None:
        pads = column >= sizes[:, :, None]
        pads |= stacked == template.padding
        ends = np.where(pads, 0, column).max(axis=-1)
    return stacked, where, sizes, ends


def _formatted(
    template: 'Template', sides: Sides, max_length: int
) -> _Formatted:
    """Tokenizes and formats texts, or pairs of texts."""
    ids, sizes, begins = template.format(*sides, max_length)
    seconds = sizes if begins is None else begins
    return _Formatted(ids.numpy(), sizes.numpy(), seconds.numpy())


def _cut(
    template: 'Template', sides: Sides, formatted: _Formatted, max_length: int
) -> np.ndarray:
    """Returns which texts are truncated, [n] bool."""
    cut = np.zeros(len(formatted.sizes), bool)
    # A text of exactly `max_length` tokens may fit.
    full = np.flatnonzero(formatted.sizes == max_length)
    if len(full):
        first, second = sides
        again = (
            [first[i] for i in full.tolist()],
            None if second is None else [second[i] for i in full.tolist()],
        )
        uncut = _formatted(template, again, max_length + 1)
        cut[full] = uncut.sizes > max_length
    return cut


class Strata:
    """Strata of length, of which each update has one example each.

    Attributes:
        updates: number of them in an epoch, in which no example comes twice.
        longest: [B] int64, sizes that no example of each stratum exceeds.
    """

    def __init__(self, sizes: np.ndarray, batch_size: int, seed: int):
        """Sorts n examples by `sizes` [n]; n is at least B."""
        self.batch_size, self.seed = batch_size, seed
        # The order of equal lengths depends on the seed alone.
        random = np.random.default_rng([seed, 5])
        self.order = np.lexsort((random.random(len(sizes)), sizes))
        self.updates = len(sizes) // batch_size
        self.longest = longest(sizes[self.order], batch_size)
        self.epoch = functools.lru_cache(2)(self._epoch)

    def members(self, step: int) -> np.ndarray:
        """Returns the examples of an update, the shortest first, [B] int64."""
        epoch, update = divmod(step, self.updates)
        return self.epoch(epoch)[:, update]

    def _epoch(self, epoch: int) -> np.ndarray:
        """Draws the example of each stratum in each update, [B, updates]."""
        random = np.random.default_rng([self.seed, epoch, 6])
        size = len(self.order)
        rest = size - self.updates * self.batch_size
        left_out = random.choice(size, rest, replace=False)
        order = np.delete(self.order, left_out)
        strata = order.reshape(self.batch_size, self.updates)
        return random.permuted(strata, axis=1)


def longest(sizes: np.ndarray, count: int) -> np.ndarray:
    """Returns sizes that no example of each stratum exceeds, [count].

    `sizes` [n] are sorted. Holds whichever examples an epoch leaves out.
    """
    updates = len(sizes) // count
    rest = len(sizes) - updates * count
    return sizes[np.arange(1, count + 1) * updates - 1 + rest]


class ExampleOrder(Source):
    """Order in which examples are read: B an update, in S sequences.

    Held-out examples are one batch.

    Attributes:
        width: T.
        slots: [S, J] int32, which examples share a sequence; -1: none.
    """

    whole = True
    in_training = types.MappingProxyType({'stratified': True})
    by_length = True
    width: int
    slots: np.ndarray

    def __init__(
        self,
        store: Batchable,
        length: int,
        batch_size: int,
        seed: int,
        stratified: bool = False,
        groups: Sequence[np.ndarray] = (),
    ):
        """Sets how examples are read; a text has at most `length` tokens.

        With `stratified` updates have one example of each stratum, else all
        come in their order. Of each of `groups` an epoch reads one example,
        the next epoch the next one; without groups it reads all.
        """
        self.store, self.batch_size = store, batch_size
        self.stratified, self.groups = stratified, groups
        sizes = store.sizes
        if groups:
            sizes = np.array([sizes[group].max() for group in groups])
        if len(sizes) < batch_size:
            raise errors.InputError(
                'few_examples',
                f'there are {len(sizes):,} examples, but an update takes '
                f'{batch_size}; lower --batch_size',
            )
        longest = int(sizes.max())
        if longest > length * store.texts:
            raise errors.InputError(
                'long_example',
                f'an example has {longest} tokens, a sequence {length}; raise '
                '--seq_len',
            )
        self.least = -(-longest // MULTIPLE) * MULTIPLE
        self.packed = sizes[:batch_size]
        if stratified:
            self.strata = Strata(sizes, batch_size, seed)
            self.updates = self.strata.updates
            self.packed = self.strata.longest
        self.unify_shapes([self])

    @classmethod
    def unify_shapes(cls, sources: Sequence[Self]) -> None:
        """Packs the examples of all sources into sequences of one shape."""
        width = max(x.least for x in sources)
        if all(x.stratified for x in sources):
            width = best_width([x.packed for x in sources], width)
        for source in sources:
            source.width = width
            source.slots = pack_examples(source.packed, width)
        pad_shapes(sources)

    def batch(self, step: int) -> Labelled:
        """Returns the global batch of a step."""
        if not self.stratified:
            begin = step * self.batch_size
            numbers = np.arange(begin, begin + self.batch_size)
            return self.store.batch(numbers, self.slots, self.width)
        numbers = self.strata.members(step)
        if self.groups:
            epoch = step // self.updates
            # Groups begin at different examples, the longest not together.
            numbers = np.array([
                self.groups[i][(epoch + i) % len(self.groups[i])]
                for i in numbers.tolist()
            ])  # fmt: skip
        return self.store.batch(numbers, self.slots, self.width)


class ExampleSource(ExampleOrder):
    """Examples of which B make an update, in S sequences of T tokens."""

    too_little = 'there is no held-out example'

    @classmethod
    def capacity(cls, store: Examples, length: int) -> int:
        """Returns the number of examples."""
        del length
        return store.size


class Packed(Protocol):
    """Fields of a source that `pad_shapes` changes; see `ExampleOrder`."""

    width: int
    slots: np.ndarray


def pad_shapes(sources: Sequence[Packed]) -> None:
    """Gives sources the most sequences, examples a sequence, and tokens."""
    sequences, slots = np.max([x.slots.shape for x in sources], axis=0)
    width = max(x.width for x in sources)
    for source in sources:
        s, j = source.slots.shape
        lacking = (0, sequences - s), (0, slots - j)
        source.slots = np.pad(source.slots, lacking, constant_values=-1)
        source.width = width


def best_width(updates: Sequence[np.ndarray], least: int) -> int:
    """Chooses how many tokens sequences of packed examples have.

    As many as the longest example, unless that leaves much room: a sequence of
    256 tokens holds one example of 144, a sequence of 288 two. A wider one has
    to save a tenth of the work, and to leave SEQUENCES at least, which replicas
    and parts of a batch can share.

    Args:
        updates: sizes [B] int of the examples of an update, of each source.
        least: tokens of the longest, a multiple of MULTIPLE.

    Returns:
        T, a multiple of MULTIPLE, at most twice the least.
    """

    def work(width: int) -> float:
        sequences = max(len(pack_examples(x, width)) for x in updates)
        all_of_it = sequences * width * (1 + width / ATTENTION)
        if width == least:
            return 0.9 * all_of_it
        return all_of_it if sequences >= SEQUENCES else math.inf

    step = MULTIPLE * -(-least // (MULTIPLE * WIDTHS))
    return min(range(least, 2 * least + 1, step), key=work)


def pack_examples(sizes: np.ndarray, max_tokens: int) -> np.ndarray:
    """Packs [B] examples into sequences of `max_tokens` tokens.

    Each example, the longest first, goes where it leaves least room.

    Returns:
        [S, J] int32, numbers in the order of B; -1 for none.
    """
    sequences: list[list[int]] = []
    room: list[tuple[int, int]] = []  # room of each sequence, sorted
    for number in np.argsort(-sizes, kind='stable').tolist():
        size = int(sizes[number])
        place = bisect.bisect_left(room, (size, -1))
        if place == len(room):
            sequences.append([])
            tokens, sequence = max_tokens, len(sequences) - 1
        else:
            tokens, sequence = room.pop(place)
        sequences[sequence].append(number)
        bisect.insort(room, (tokens - size, sequence))
    most = max(map(len, sequences), default=0)
    numbers = np.full((len(sequences), most), -1, np.int32)
    for sequence, members in enumerate(sequences):
        numbers[sequence, : len(members)] = members
    return numbers
