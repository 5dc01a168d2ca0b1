"""The source `documents`: whole documents, shuffled, addressed by step.

Glossary of shapes: C tokens read of each document.
"""

import types
from collections.abc import Sequence
from typing import Self

import numpy as np

from infoword_tf import errors
from infoword_tf.data import store as stores
from infoword_tf.data.source import Source, items_of, visited
from infoword_tf.views.cloze import Documents, cloze, passage_sizes
from infoword_tf.views.masked import fewest_sequences

SAMPLE = 64  # batches from which the number of sequences is decided


class DocumentSource(Source):
    """Documents of at least two sentences, from a sentence start on.

    A document that fits is served whole. Of a longer one each visit reads C
    tokens from another sentence start, so that all of it is seen. Epochs visit
    the documents in a permutation of their own, as `source.WindowSource` does.

    In training two passages may share a sequence of their view. The number of
    sequences is the same in every step: the fewest that hold each of the first
    batches.
    """

    by_blocks = True
    in_training = types.MappingProxyType({'packed': True})

    too_little = (
        'the held-out text of {tokens:,} tokens has no document of two '
        'sentences; hold out more (--heldout)'
    )

    def __init__(
        self,
        store: stores.Store,
        length: int,
        batch_size: int,
        seed: int,
        packed: bool = False,
        shuffle_block: int | None = None,
    ):
        """Sets how documents are read, C = `length` tokens of each.

        With `packed` passages share sequences, where so many are short that it
        pays.
        """
        self.store, self.length = store, length
        self.batch_size, self.seed = batch_size, seed
        self.rows: int | None = None
        sentences = count_sentences(store)
        self.documents = np.nonzero(sentences > 1)[0]
        self.single = len(sentences) - len(self.documents)
        if len(self.documents) < batch_size:
            raise errors.InputError(
                'few_documents',
                f'{len(self.documents):,} of {len(sentences):,} documents '
                f'have two sentences, but a batch takes {batch_size}; give '
                'more text, or lower --batch_size',
            )
        self.block = items_of(
            shuffle_block, len(self.documents), len(store.ids)
        )
        if packed:
            sequences = fewest_sequences(self._sizes(), length + 2)
            # An empty place for a sentence costs a quarter of a sequence.
            if 4 * (batch_size - sequences) > 2 * sequences - batch_size:
                self.rows = sequences

    def _sizes(self) -> np.ndarray:
        """Returns the sizes of passages of the first batches, [n, B]."""
        sizes = []
        for step in range(SAMPLE):
            text = self.batch(step)
            draw = cloze(text, np.random.default_rng(step))
            sizes.append(passage_sizes(text, draw))
        return np.array(sizes)

    @classmethod
    def capacity(cls, store: stores.Store, length: int) -> int:
        """Returns the documents of two sentences or more."""
        return int((count_sentences(store) > 1).sum())

    @classmethod
    def unify_shapes(cls, sources: Sequence[Self]) -> None:
        """Gives all sources as many sequences as one needs, or none shared."""
        shared = [x.rows for x in sources if x.rows is not None]
        most = max(shared) if len(shared) == len(sources) else None
        for source in sources:
            source.rows = most

    def batch(self, step: int) -> Documents:
        """Returns the global batch of a step."""
        number = step * self.batch_size + np.arange(self.batch_size)
        chosen = visited(
            number, len(self.documents), self.seed, salt=3, block=self.block
        )
        document = self.documents[chosen]
        begin = self.store.documents[document]
        end = self.store.documents[document + 1] - 1  # without [SEP]
        where = np.random.default_rng([self.seed, step, 4]).random(len(begin))
        for i in np.nonzero(end - begin > self.length)[0]:
            begin[i] = self._sentence(begin[i], end[i], where[i])
        place = begin[:, None] + np.arange(self.length)
        real = place < end[:, None]
        place = np.minimum(place, len(self.store.ids) - 1)
        flags = self.store.flags[place] & stores.SENTENCE_START
        ids = self.store.ids[place].astype(np.int32)
        starts = real & (flags > 0)
        starts[:, 0] = True
        return Documents(
            np.where(real, ids, 0),
            real.sum(axis=1).astype(np.int32),
            starts,
            self.rows,
        )

    def _sentence(self, begin: int, end: int, where: float) -> int:
        """Picks a sentence start with text after, else returns `begin`."""
        flags = self.store.flags[begin : max(begin + 1, end - self.length // 2)]
        starts = np.nonzero(flags & stores.SENTENCE_START)[0]
        return begin + (starts[int(where * len(starts))] if len(starts) else 0)


def count_sentences(store: stores.Store) -> np.ndarray:
    """Counts the sentences of each document, in blocks: [documents] int64."""
    counts = np.zeros(len(store.documents) - 1, np.int64)
    for places in stores.sentence_starts(store):
        document = np.searchsorted(store.documents, places, 'right') - 1
        counts += np.bincount(document, minlength=len(counts))
    return counts
