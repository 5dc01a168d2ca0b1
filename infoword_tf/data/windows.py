"""The source `windows`: full windows of text, shuffled, addressed by step."""

import numpy as np

from infoword_tf import errors
from infoword_tf.data import store as stores
from infoword_tf.data.source import Source, items_of, visited
from infoword_tf.views.masked import Windows

_LOOK_BACK = 64  # tokens; longer words (rules of dashes) are walked back


class WindowOrder(Source):
    """Order in which windows of consecutive tokens are read.

    Epoch e cuts the corpus into windows at an offset of its own and visits them
    in a permutation of its own, both functions of (seed, e); nothing is kept
    between steps.
    """

    by_blocks = True

    def __init__(
        self,
        store: stores.Store,
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
        flags = self.store.flags[np.maximum(back, 0)] & stores.WORD_START
        steps = np.argmax(flags > 0, axis=1)
        has_start = np.take_along_axis(flags, steps[:, None], axis=1)[:, 0] > 0
        starts = np.maximum(starts - steps, 0)
        for i in np.nonzero(~has_start)[0]:
            while not self.store.flags[starts[i]] & stores.WORD_START:
                starts[i] -= 1
        return starts


class WindowSource(WindowOrder):
    """Windows of consecutive tokens from a word start on, never padded."""

    too_little = (
        'the held-out text has {tokens:,} tokens, less than two sequences of '
        '{length}; hold out more (--heldout), or lower --seq_len'
    )

    @classmethod
    def capacity(cls, store: stores.Store, length: int) -> int:
        """Returns windows of an epoch."""
        return windows_of(store, length)

    def batch(self, step: int) -> Windows:
        """Returns the global batch of a step, B full windows."""
        place = self.starts(step)[:, None] + np.arange(self.length)
        flags = self.store.flags[place]
        return Windows(
            self.store.ids[place].astype(np.int32),
            (flags & stores.WORD_START) > 0,
            (flags & stores.SEPARATOR) > 0,
        )


def windows_of(store: stores.Store, length: int) -> int:
    """Counts the windows of an epoch; one fewer than fit leaves an offset."""
    return len(store.ids) // length - 1
