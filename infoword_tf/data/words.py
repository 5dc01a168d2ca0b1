"""The source `words`: passages of known words, without some frequent ones.

Glossary of shapes: B rows, T words of each, L tokens of a passage, M draws.
"""

import math

import numpy as np

from infoword_tf.data import store as stores
from infoword_tf.data.windows import WindowSource
from infoword_tf.views.view import generator
from infoword_tf.views.words import Words, keep_probabilities, known, noise


class WordSource(WindowSource):
    """Rows of T words, filled one after the other with what is left.

    A step reads B passages of L tokens, in the order of `WindowSource`, and
    drops [UNK] always and frequent words by chance. L is what leaves B T words
    less two roots of that number: hardly a step has more, of which the last
    are lost, and at the size of a batch that trains little is padding.
    """

    too_little = (
        'the held-out text has {tokens:,} tokens, of which frequent words are '
        'dropped, and [UNK]: too few for two rows of {length}; hold out more '
        '(--heldout), or lower --seq_len'
    )

    def __init__(
        self,
        store: stores.Store,
        length: int,
        batch_size: int,
        seed: int,
        subsample: float,
        negatives: int,
        shuffle_block: int | None = None,
    ):
        """Sets how the text is read.

        Args:
            seed: of the order of the text, of what is dropped and drawn.
            subsample: as in `keep_probabilities`, of this text's counts.
            negatives: M.
            shuffle_block: see `Source`.
        """
        counts = known(store.counts, store.unk_id)
        if np.count_nonzero(counts) < 2:
            raise ValueError(
                'the text has no two different words besides [UNK], so there '
                'are no negatives; give more text, or a larger --vocab_size'
            )
        self.row, self.negatives = length, negatives
        self.keep = keep_probabilities(counts, subsample)
        self.edges = np.cumsum(noise(counts))
        size = batch_size * length
        size -= min(2 * math.sqrt(size), size / 2)
        share = _kept(store, subsample) / len(store.ids)
        passage = max(1, int(size / (share * batch_size)))
        super().__init__(store, passage, batch_size, seed, shuffle_block)

    @classmethod
    def capacity(
        cls, store: stores.Store, length: int, subsample: float, negatives: int
    ) -> int:
        """Rows of an epoch: one less than are filled, as in windows."""
        del negatives
        return int(_kept(store, subsample)) // length - 1

    def batch(self, step: int) -> Words:
        """The global batch of a step."""
        random = generator(self.seed, step, 'dropped words')
        place = self.starts(step)[:, None] + np.arange(self.length)
        ids = self.store.ids[place]  # [B, L]
        ends = (self.store.flags[place] & stores.SEPARATOR) > 0
        kept = random.random(ids.shape) < self.keep[ids]
        begins = ends.copy()
        begins[:, 0] = True
        shape = self.batch_size, self.row
        size = math.prod(shape)
        left = np.flatnonzero(kept & ~ends)[:size]
        found = np.zeros(size, np.int32)
        found[: len(left)] = ids.reshape(-1)[left]
        texts = np.full(size, -1, np.int32)
        texts[: len(left)] = np.cumsum(begins)[left]
        u = random.random((self.batch_size, self.negatives))
        drawn = np.searchsorted(self.edges, u * self.edges[-1], side='right')
        return Words(
            found.reshape(shape),
            texts.reshape(shape),
            drawn.astype(np.int32),
            (~ends).sum(axis=1).astype(np.int32),
        )


def _kept(store: stores.Store, subsample: float) -> float:
    """How many words are left of a text, to be expected."""
    counts = known(store.counts, store.unk_id)
    return float(counts @ keep_probabilities(counts, subsample))
