"""The source `examples`: labelled texts, addressed by step.

An update has exactly B examples, packed into rows (`views.examples`). An epoch
is stratified by length, so that every update needs the same number of rows: its
examples, sorted by length, fall into B strata, and each update has one random
example of each stratum. Each example is seen once an epoch, except for the
remainder of n / B; each epoch leaves out other ones.

Glossary of shapes: n examples, K texts of each, B of an update, R rows, J
examples that a row has room for, T tokens of a row.
"""

import bisect
import functools
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from infoword_tf.data.source import Source
from infoword_tf.views.examples import Labelled

if TYPE_CHECKING:  # it imports TensorFlow
    from infoword_tf.text.template import Template

MULTIPLE = 8  # of which the tokens of a row are one


class Examples(NamedTuple):
    """n labelled examples in flat arrays.

    Attributes:
        ids: [tokens] int32, with specials, one text after the other.
        segments: [tokens] int8.
        begins: [n K + 1] int64: text k of example i is `ids[begins[i K + k]:
            begins[i K + k + 1]]`.
        places: [n K] int32, where in each text its pooled state is.
        targets: by row, [n, ...], see `views.examples.Labelled`.
        candidates: by row, [n, 2] int32, see `views.examples.Labelled`.
        counts: by row, [C] int64: how often each b occurs.
        texts: K.
        of_tokens: by row, [tokens, ...]: b that are of each token.
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
        """n."""
        return (len(self.begins) - 1) // self.texts

    @property
    def sizes(self) -> np.ndarray:
        """[n] int64: tokens of each example."""
        return np.diff(self.begins[:: self.texts])

    def pieces(self, size: int, control_ids: Sequence[int]) -> np.ndarray:
        """[V] int64: how often each piece occurs that texts can have."""
        counts = np.bincount(self.ids, minlength=size)
        counts[list(control_ids)] = 0
        return counts

    def tokens_of(self, numbers: np.ndarray) -> np.ndarray:
        """[tokens] int64: where those of some examples are."""
        begins, sizes = self.begins[:: self.texts][numbers], self.sizes[numbers]
        return np.arange(sizes.sum()) + np.repeat(
            begins - np.cumsum(sizes) + sizes, sizes
        )

    def taken(self, numbers: np.ndarray) -> 'Examples':
        """Some of them, in another order; `counts` are those of all."""
        rows = (numbers[:, None] * self.texts + np.arange(self.texts)).ravel()
        sizes = np.diff(self.begins)[rows]
        begins = np.concatenate([[0], np.cumsum(sizes)])
        source = self.tokens_of(numbers)
        return self._replace(
            ids=self.ids[source],
            segments=self.segments[source],
            begins=begins,
            places=self.places[rows],
            targets={k: v[numbers] for k, v in self.targets.items()},
            candidates={k: v[numbers] for k, v in self.candidates.items()},
            of_tokens={k: v[source] for k, v in self.of_tokens.items()},
        )

    def batch(
        self, numbers: np.ndarray, slots: np.ndarray, width: int
    ) -> Labelled:
        """Examples [B], padded to T tokens, with the rows that they share:
        `slots` [R, J] says which, -1 for none.
        """
        rows = numbers[:, None] * self.texts + np.arange(self.texts)  # [B, K]
        begins = self.begins[rows]
        lengths = self.begins[rows + 1] - begins
        column = np.arange(lengths.max(initial=1))
        source = begins[:, :, None] + np.minimum(
            column, lengths[:, :, None] - 1
        )
        return Labelled(
            ids=self.ids[source],
            segments=self.segments[source].astype(np.int32),
            lengths=lengths.astype(np.int32),
            places=self.places[rows],
            numbers=numbers.astype(np.int32),
            targets={k: v[numbers] for k, v in self.targets.items()},
            candidates={k: v[numbers] for k, v in self.candidates.items()},
            of_tokens={k: v[source] for k, v in self.of_tokens.items()},
            slots=slots.astype(np.int32),
            width=width,
        )


def lay_out(
    template: 'Template',
    texts: Sequence[Sequence[str]],
    max_length: int,
    targets: Mapping[str, np.ndarray],
    counts: Mapping[str, np.ndarray] = types.MappingProxyType({}),
    chunk: int = 4096,
) -> tuple[Examples, int]:
    """Examples of strings.

    Args:
        texts: K times (n first texts, n second ones or None).
        max_length: T at most of each text; the longer one of two is cut first.

    Returns:
        The examples, and of how many a text was cut.
    """
    k, n = len(texts), len(texts[0][0])
    layout = template.layout
    ids, segments, lengths, cut = [], [], [], 0
    for begin in range(0, n, chunk):
        parts, longer = [], []
        for first, second in texts:
            some = slice(begin, begin + chunk)
            sides = first[some], None if second is None else second[some]
            found = template.laid_out(*sides, max_length)
            parts.append([None if x is None else x.numpy() for x in found])
            longer.append(_cut(template, sides, parts[-1][1], max_length))
        width = max(part[0].shape[1] for part in parts)
        column = np.arange(width)
        rows = [
            np.pad(part[0], [(0, 0), (0, width - part[0].shape[1])])
            for part in parts
        ]
        sizes = np.stack([part[1] for part in parts], axis=1)  # [n, K]
        seconds = np.stack(
            [sz if s is None else s for _, sz, s in parts], axis=1
        )
        where = np.where(
            column >= seconds[:, :, None], layout.second_segment, 0
        )
        last = column == sizes[:, :, None] - 1
        if layout.last_segment is not None:
            where = np.where(last, layout.last_segment, where)
        real = column < sizes[:, :, None]
        ids.append(np.stack(rows, axis=1)[real])
        segments.append(where[real])
        lengths.append(sizes.ravel())
        cut += int(np.any(longer, axis=0).sum())
    sizes = np.concatenate(lengths) if lengths else np.zeros(0, np.int64)
    places = np.zeros_like(sizes) if layout.first else sizes - 1
    examples = Examples(
        np.concatenate(ids).astype(np.int32),
        np.concatenate(segments).astype(np.int8),
        np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
        places.astype(np.int32),
        dict(targets),
        counts=dict(counts),
        texts=k,
    )
    return examples, cut


def _cut(
    template: 'Template',
    sides: tuple[Sequence[str], Sequence[str] | None],
    lengths: np.ndarray,
    max_length: int,
) -> np.ndarray:
    """[n] bool: which texts were cut. One that is full may just fit."""
    cut = np.zeros(len(lengths), bool)
    full = np.flatnonzero(lengths == max_length)
    if len(full):
        some = (None if x is None else [x[i] for i in full] for x in sides)
        _, uncut, _ = template.laid_out(*some, max_length + 1)
        cut[full] = uncut.numpy() > max_length
    return cut


class Strata:
    """B examples for each update, one of each stratum of length.

    Attributes:
        updates: of an epoch, in which no example comes twice.
        longest: [B] int64, sizes that no example of each stratum exceeds.
    """

    def __init__(self, sizes: np.ndarray, batch_size: int, seed: int):
        """Args: tokens of all examples [n], B or more."""
        self.batch_size, self.seed = batch_size, seed
        # Of equal lengths, who comes first changes with the seed alone.
        random = np.random.default_rng([seed, 5])
        self.order = np.lexsort((random.random(len(sizes)), sizes))
        self.updates = len(sizes) // batch_size
        self.longest = longest(sizes[self.order], batch_size)
        self.epoch = functools.lru_cache(2)(self._epoch)

    def members(self, step: int) -> np.ndarray:
        """[B] int64: the examples of an update, the shortest stratum first."""
        epoch, update = divmod(step, self.updates)
        return self.epoch(epoch)[:, update]

    def _epoch(self, epoch: int) -> np.ndarray:
        """[B, updates]: which example each stratum gives each update."""
        random = np.random.default_rng([self.seed, epoch, 6])
        size = len(self.order)
        rest = size - self.updates * self.batch_size
        left_out = random.choice(size, rest, replace=False)
        kept = np.delete(self.order, left_out)
        strata = kept.reshape(self.batch_size, self.updates)
        return random.permuted(strata, axis=1)


def longest(sizes: np.ndarray, count: int) -> np.ndarray:
    """[count]: sizes that no example of each stratum exceeds, of sizes [n] in
    order.

    Whichever examples are left out, since n is no multiple of the count.
    """
    updates = len(sizes) // count
    rest = len(sizes) - updates * count
    return sizes[np.arange(1, count + 1) * updates - 1 + rest]


class ExampleSource(Source):
    """Examples of which B make an update, in R rows of T tokens.

    Of held-out examples one batch has all.
    """

    whole = True
    too_little = 'there is no held-out example'
    in_training = types.MappingProxyType({'stratified': True})

    def __init__(
        self,
        store: Examples,
        length: int,
        batch_size: int,
        seed: int,
        stratified: bool = False,
    ):
        """Args: the examples, T at most, B; stratified: whether updates have
        one example of each stratum, or all come in their order.
        """
        self.store, self.batch_size = store, batch_size
        self.stratified = stratified
        sizes = store.sizes
        if store.size < batch_size:
            raise ValueError(
                f'there are {store.size:,} examples, but an update takes '
                f'{batch_size}; lower --batch_size'
            )
        longest = int(sizes.max())
        if longest > length * store.texts:
            raise ValueError(
                f'an example has {longest} tokens, a row {length}; raise '
                '--seq_len'
            )
        self.width = -(-longest // MULTIPLE) * MULTIPLE
        if not stratified:
            self.slots = share_rows(sizes[:batch_size], self.width)
            return
        self.strata = Strata(sizes, batch_size, seed)
        self.updates = self.strata.updates
        self.slots = share_rows(self.strata.longest, self.width)

    @classmethod
    def capacity(cls, store: Examples, length: int) -> int:
        """Examples."""
        del length
        return store.size

    @classmethod
    def agree(cls, sources: Sequence[Self]) -> None:
        """As of `Source`: rows, examples to a row, and tokens are the most."""
        rows, slots = np.max([x.slots.shape for x in sources], axis=0)
        for source in sources:
            r, j = source.slots.shape
            lacking = (0, rows - r), (0, slots - j)
            source.slots = np.pad(source.slots, lacking, constant_values=-1)
            source.width = max(x.width for x in sources)

    def batch(self, step: int) -> Labelled:
        """The global batch of a step."""
        if not self.stratified:
            begin = step * self.batch_size
            numbers = np.arange(begin, begin + self.batch_size)
            return self.store.batch(numbers, self.slots, self.width)
        return self.store.batch(
            self.strata.members(step), self.slots, self.width
        )


def share_rows(sizes: np.ndarray, max_tokens: int) -> np.ndarray:
    """Which of [B] examples share a row of `max_tokens` tokens: each, the
    longest first, goes where least is left over.

    Returns:
        [R, J] int32, numbers in the order of B; -1 for none.
    """
    rows: list[list[int]] = []
    left: list[tuple[int, int]] = []  # what is left of each row, sorted
    for number in np.argsort(-sizes, kind='stable').tolist():
        size = int(sizes[number])
        place = bisect.bisect_left(left, (size, -1))
        if place == len(left):
            rows.append([])
            tokens_left, row = max_tokens, len(rows) - 1
        else:
            tokens_left, row = left.pop(place)
        rows[row].append(number)
        bisect.insort(left, (tokens_left - size, row))
    most = max(map(len, rows), default=0)
    numbers = np.full((len(rows), most), -1, np.int32)
    for row, members in enumerate(rows):
        numbers[row, : len(members)] = members
    return numbers
