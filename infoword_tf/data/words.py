"""The source `words`: passages of known words, without some frequent ones.

Glossary of shapes: W words of a sequence, F tokens of a passage, n draws.
"""

import math

import numpy as np

from infoword_tf import errors
from infoword_tf.data import store as stores
from infoword_tf.data.source import WindowOrder
from infoword_tf.views.view import generator
from infoword_tf.views.words import Words, keep_probabilities, known, noise


class WordSource(WindowOrder):
    """Sequences of W words, filled one after the other with the words kept.

    A step reads B passages of F tokens, in the order of `WindowOrder`, and
    drops [UNK] always and frequent words by chance. F is chosen so that B W
    words remain, less two roots of that number: hardly a step has more, of
    which the last are lost, and little is padding at the batch sizes of
    training.
    """

    too_little = (
        'the held-out text has {tokens:,} tokens, of which frequent words are '
        'dropped, and [UNK]: too few for two sequences of {length}; hold out '
        'more (--heldout), or lower --seq_len'
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
        """Sets how the text is read, W = `length`.

        Args:
            subsample: threshold of `keep_probabilities`, of this text's counts.
            negatives: n.
        """
        counts = known(store.counts, store.unk_id)
        if np.count_nonzero(counts) < 2:
            raise errors.InputError(
                'one_known_word',
                'the text has no two different words besides [UNK], so there '
                'are no negatives; give more text, or a larger --vocab_size',
            )
        self.row, self.negatives = length, negatives
        self.keep = keep_probabilities(counts, subsample)
        self.edges = np.cumsum(noise(counts))
        most = batch_size * length
        size = most - min(2 * math.sqrt(most), most / 2)
        share = _expected(store, subsample) / len(store.ids)
        passage = max(1, int(size / (share * batch_size)))
        super().__init__(
            store, passage, batch_size, seed, shuffle_block=shuffle_block
        )

    @classmethod
    def capacity(
        cls, store: stores.Store, length: int, subsample: float, negatives: int
    ) -> int:
        """Returns sequences of an epoch, fewer by one, as in windows."""
        del negatives
        return int(_expected(store, subsample)) // length - 1

    def batch(self, step: int) -> Words:
        """Returns the global batch of a step."""
        random = generator(self.seed, step, 'dropped words')
        place = self.starts(step)[:, None] + np.arange(self.length)
        ids = self.store.ids[place]  # [B, F]
        ends = (self.store.flags[place] & stores.SEPARATOR) > 0
        is_kept = random.random(ids.shape) < self.keep[ids]
        begins = ends.copy()
        begins[:, 0] = True
        shape = self.batch_size, self.row
        size = math.prod(shape)
        places = np.flatnonzero(is_kept & ~ends)[:size]
        words = np.zeros(size, np.int32)
        words[: len(places)] = ids.reshape(-1)[places]
        texts = np.full(size, -1, np.int32)
        texts[: len(places)] = np.cumsum(begins)[places]
        u = random.random((self.batch_size, self.negatives))
        drawn = np.searchsorted(self.edges, u * self.edges[-1], side='right')
        return Words(
            words.reshape(shape),
            texts.reshape(shape),
            drawn.astype(np.int32),
            (~ends).sum(axis=1).astype(np.int32),
        )


def _expected(store: stores.Store, subsample: float) -> float:
    """Returns the expected number of words kept of a text."""
    counts = known(store.counts, store.unk_id)
    return float(counts @ keep_probabilities(counts, subsample))
