"""Sources of text, a global batch for every step: the contract, and `windows`.

Text is visited in an order that is a shuffle without memory, of the whole text
or by blocks: blocks come in a random order, and the items of some adjacent
blocks are shuffled together. Then a batch reads at few places, which suits text
on a remote disk.
"""

import abc
import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from infoword_tf import errors
from infoword_tf.data.store import SEPARATOR, WORD_START, Store
from infoword_tf.views.masked import Windows

GROUP = 64  # blocks that are shuffled together, to the nearest number that fits
_LOOK_BACK = 64  # tokens; longer words (rules of dashes) are walked back


def shuffled(places: np.ndarray, size: int, *key: int) -> np.ndarray:
    """Permutes places [B] int64 of range(size), pseudo-randomly by `key`.

    Nothing of the size of the corpus is stored: a Feistel network over the next
    power of four, walked until it lands inside (Black and Rogaway 2002).
    """
    half = max(1, math.ceil(math.log2(max(size, 2)) / 2))
    mask = np.uint64((1 << half) - 1)
    rounds = np.random.default_rng(list(key)).integers(
        0, 2**63, 4, dtype=np.uint64
    )

    def permute(x: np.ndarray) -> np.ndarray:
        left, right = x >> np.uint64(half), x & mask
        for salt in rounds:
            mixed = (right + salt) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
            mixed *= np.uint64(0xBF58476D1CE4E5B9)
            left, right = right, left ^ ((mixed >> np.uint64(32)) & mask)
        return (left << np.uint64(half)) | right

    x = permute(np.asarray(places, np.uint64))
    while (outside := x >= size).any():
        x[outside] = permute(x[outside])
    return x.astype(np.int64)


def shuffled_in_blocks(
    places: np.ndarray, size: int, block: int, *key: int
) -> np.ndarray:
    """Permutes places as `shuffled` does, by blocks of consecutive items.

    The items are a circle that is cut at a random place, into blocks and a
    remainder. A place moves within its group of blocks, and each block moves in
    the circle: so every item is as likely as any other at every place, and two
    items of a group are of one block with a chance of one in its blocks.
    """
    block = min(block, size)
    whole, blocks = size // block, -(-size // block)
    groups = max(1, round(blocks / GROUP))  # of almost as many blocks each
    places = np.asarray(places, np.int64)
    ranks = np.empty_like(places)
    numbers = ((places // block + 1) * groups - 1) // blocks
    for number in np.unique(numbers):
        here = numbers == number
        begin, end = (
            min(int(n) * blocks // groups * block, size)
            for n in (number, number + 1)
        )
        ranks[here] = begin + shuffled(
            places[here] - begin, end - begin, *key, 3 + int(number)
        )
    # The remainder keeps its place: the cut is there.
    which, within = np.divmod(ranks, block)
    full = which < whole
    which[full] = shuffled(which[full], whole, *key, 1)
    cut = np.random.default_rng([*key, 2]).integers(size)
    return (which * block + within + cut) % size


def visited(
    visits: np.ndarray,
    size: int,
    seed: int,
    salt: int,
    block: int | None = None,
) -> np.ndarray:
    """Returns the item of each visit, [B] int64 of range(size).

    Epoch e, visits e size to (e + 1) size - 1, goes through all items in a
    permutation of its own, with key (seed, e, salt).

    Args:
        visits: [B] int64 numbers, from 0.
        block: items of a block; None: all are shuffled together.
    """
    items = np.empty(len(visits), np.int64)
    epochs = visits // size
    for epoch in np.unique(epochs):
        here = epochs == epoch
        places, key = visits[here] % size, (seed, int(epoch), salt)
        items[here] = (
            shuffled(places, size, *key)
            if block is None
            else shuffled_in_blocks(places, size, block, *key)
        )
    return items


def items_of(block: int | None, size: int, tokens: int) -> int | None:
    """Returns how many items make a block of `block` tokens, or None.

    `size` items have `tokens` tokens together.
    """
    return None if block is None else max(1, round(block * size / tokens))


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Puts the name of a text before the message of an error."""
    try:
        yield
    except errors.InputError as error:
        raise errors.InputError(error.id, f'{name}: {error}') from None


class StepReader(Protocol):
    """Source, or mixture of sources, for the batches of a run."""

    @property
    def single(self) -> int | None:
        """Number of documents of one sentence, which are omitted."""

    def batch(self, step: int) -> Any:
        """Returns the global batch of a step; see `Source.batch`."""


class Source(abc.ABC):
    """Text addressed by step: nothing is kept between steps.

    Attributes:
        heldout_sequences: B of held-out text, where sequences continue with a
            memory; None: any.
        whole: whether held-out text is one batch of the whole text.
        too_little: message for held-out text without room for one batch;
            {tokens} of text, {length} of a sequence.
        in_training: arguments of the training text, besides those of a plan:
            how sequences are filled, not what is read.
        by_length: whether batches of the training text have a text of each
            length: they are not drawn independently, and from p(b) even less.
        by_blocks: whether `shuffle_block`, the tokens of a block, is an
            argument; None: nothing of a corpus is shuffled.
        single: documents of one sentence, which are omitted; None: none are.
    """

    heldout_sequences: ClassVar[int | None] = None
    whole: ClassVar[bool] = False
    too_little: ClassVar[str]
    in_training: ClassVar[Mapping[str, Any]] = {}
    by_length: ClassVar[bool] = False
    by_blocks: ClassVar[bool | None] = None
    single: int | None = None

    @abc.abstractmethod
    def __init__(
        self,
        store: Any,
        length: int,
        batch_size: int,
        seed: int,
        **arguments: Any,
    ):
        """Opens a text.

        Args:
            store: the text, of the kind that the source reads.
            length: tokens of a sequence.
            batch_size: B.
            seed: decides the order of the text.
            arguments: those of a plan, and `in_training`.

        Raises:
            ValueError: the text has less than one batch.
        """

    @classmethod
    @abc.abstractmethod
    def capacity(cls, *text: Any, **arguments: Any) -> int:
        """Returns how many different sequences a text has.

        Args:
            text: `store` and `length`, as the constructor takes them.
            arguments: those of a plan.
        """

    @classmethod
    def unify_shapes(cls, sources: Sequence[Self]) -> None:
        """Gives the batches of sources of several texts one shape.

        Does nothing where the shape does not depend on the text.
        """
        del sources

    @abc.abstractmethod
    def batch(self, step: int) -> Any:
        """Returns the global batch of a step, a tuple of `views`.

        Its `tokens` [B] int32 count the tokens of each sequence that no step
        before has read; specials count in labelled examples alone.
        """


class WindowOrder(Source):
    """Order in which windows of consecutive tokens are read.

    Epoch e cuts the corpus into windows at an offset of its own and visits them
    in a permutation of its own, both functions of (seed, e); nothing is kept
    between steps.
    """

    by_blocks = True

    def __init__(
        self,
        store: Store,
        length: int,
        batch_size: int,
        seed: int,
        shuffle_block: int | None = None,
    ):
        """Sets how the text is read: windows of `length` tokens."""
        self.store, self.length = store, length
        self.batch_size, self.seed = batch_size, seed
        tokens = len(store.ids)
        self.windows = windows_of(store, length)
        if self.windows < batch_size:
            raise errors.InputError(
                'few_windows',
                f'the text has {tokens:,} tokens: room for '
                f'{max(0, self.windows)} windows of {length}, but a batch '
                f'takes {batch_size}; give more text, or lower --batch_size '
                'or --seq_len',
            )
        self.block = items_of(shuffle_block, self.windows, tokens)

    def starts(self, step: int) -> np.ndarray:
        """Returns where the windows of a step begin, [B] int64."""
        number = step * self.batch_size + np.arange(self.batch_size)
        epochs = number // self.windows
        starts = np.empty(self.batch_size, np.int64)
        for epoch in np.unique(epochs):
            random = np.random.default_rng([self.seed, int(epoch), 1])
            starts[epochs == epoch] = random.integers(self.length)
        starts += self.length * visited(
            number, self.windows, self.seed, salt=2, block=self.block
        )
        return self._word_starts(starts)

    def _word_starts(self, starts: np.ndarray) -> np.ndarray:
        """Moves places [B] back to the beginnings of words."""
        back = starts[:, None] - np.arange(_LOOK_BACK)  # [B, 64]
        flags = self.store.flags[np.maximum(back, 0)] & WORD_START
        steps = np.argmax(flags > 0, axis=1)
        has_start = np.take_along_axis(flags, steps[:, None], axis=1)[:, 0] > 0
        starts = np.maximum(starts - steps, 0)
        for i in np.nonzero(~has_start)[0]:
            while not self.store.flags[starts[i]] & WORD_START:
                starts[i] -= 1
        return starts


class WindowSource(WindowOrder):
    """Windows of consecutive tokens from a word start on, never padded."""

    too_little = (
        'the held-out text has {tokens:,} tokens, less than two sequences of '
        '{length}; hold out more (--heldout), or lower --seq_len'
    )

    @classmethod
    def capacity(cls, store: Store, length: int) -> int:
        """Returns windows of an epoch."""
        return windows_of(store, length)

    def batch(self, step: int) -> Windows:
        """Returns the global batch of a step, B full windows."""
        place = self.starts(step)[:, None] + np.arange(self.length)
        flags = self.store.flags[place]
        return Windows(
            self.store.ids[place].astype(np.int32),
            (flags & WORD_START) > 0,
            (flags & SEPARATOR) > 0,
        )


def windows_of(store: Store, length: int) -> int:
    """Counts the windows of an epoch; one fewer than fit leaves an offset."""
    return len(store.ids) // length - 1
