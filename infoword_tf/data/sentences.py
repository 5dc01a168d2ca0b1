"""The source `sentences`: sentences of a text, one or several times each.

They share sequences and come in strata of length, as labelled examples do
(data/examples.py): X copies of a sentence are the X texts of an example.

Glossary of shapes: n sentences, X copies, S sequences, J sentences that a
sequence has room for.
"""

from typing import NamedTuple

import numpy as np

from infoword_tf import errors
from infoword_tf.data import store as stores
from infoword_tf.data.examples import ExampleOrder
from infoword_tf.data.store import Store
from infoword_tf.views.examples import Labelled
from infoword_tf.views.sentences import most_repeated

HELDOUT = 512  # sentences that are measured


class StoreSentences(NamedTuple):
    """All sentences of a store.

    Attributes:
        store: the text.
        begins: [n] int64, places of their first tokens.
        lengths: [n] int64, tokens with [CLS], the store's prompt and [SEP]; T
            at most.
        truncated: [n] bool, whether a sentence is longer than T.
        copies: X.
        repeat: the view's setting, for which places stay free.
    """

    store: Store
    begins: np.ndarray
    lengths: np.ndarray
    truncated: np.ndarray
    copies: int
    repeat: float

    @classmethod
    def of(
        cls, store: Store, length: int, copies: int, repeat: float
    ) -> 'StoreSentences':
        """Finds the sentences of a store, of at most T = `length` tokens.

        Raises:
            ValueError: the prompt alone fills T.
        """
        around = len(store.prompt) + 2
        if around >= length:
            raise errors.InputError(
                'prompt_fills_sequence',
                f'--seq_len={length} has no room for a sentence: the prompt of '
                f'--init, [CLS] and [SEP] are {around} tokens; raise it',
            )
        begins = np.concatenate(list(stores.sentence_starts(store)))
        # A sentence ends where the next begins, or before a document's [SEP].
        document = np.searchsorted(store.documents, begins, 'right')
        ends = np.append(begins[1:], len(store.ids))
        ends = np.minimum(ends, store.documents[document] - 1)
        tokens = ends - begins
        has_text = tokens > 0
        begins, tokens = begins[has_text], tokens[has_text]
        return cls(
            store,
            begins,
            lengths=np.minimum(tokens + around, length),
            truncated=tokens + around > length,
            copies=copies,
            repeat=repeat,
        )

    @property
    def texts(self) -> int:
        """Number X of copies."""
        return self.copies

    @property
    def size(self) -> int:
        """Number n of sentences."""
        return len(self.begins)

    @property
    def sizes(self) -> np.ndarray:
        """Tokens that all copies of a sentence may take, [n] int64."""
        more = most_repeated(self.lengths, self.repeat)
        return self.copies * self.lengths + more

    def select(self, numbers: np.ndarray) -> 'StoreSentences':
        """Selects sentences by number."""
        return self._replace(
            begins=self.begins[numbers],
            lengths=self.lengths[numbers],
            truncated=self.truncated[numbers],
        )

    def batch(
        self, numbers: np.ndarray, slots: np.ndarray, width: int
    ) -> Labelled:
        """Reads sentences [B] by number; see `Examples.batch`.

        The view fills in [CLS] and [SEP].
        """
        lengths = self.lengths[numbers]
        first = 1 + len(self.store.prompt)  # token of the sentence
        column = np.arange(lengths.max(initial=first + 1))
        source = self.begins[numbers, None] + np.maximum(column - first, 0)
        ids = self.store.ids[np.minimum(source, len(self.store.ids) - 1)]
        ids[:, 1:first] = self.store.prompt
        ids = np.repeat(ids[:, None].astype(np.int32), self.copies, axis=1)
        return Labelled(
            ids=ids,
            segments=np.zeros_like(ids),
            lengths=np.repeat(
                lengths[:, None].astype(np.int32), self.copies, axis=1
            ),
            places=np.zeros((len(ids), self.copies), np.int32),
            numbers=numbers.astype(np.int32),
            targets={},
            candidates={},
            slots=slots.astype(np.int32),
            width=width,
            truncated=self.truncated[numbers],
        )


class SentenceSource(ExampleOrder):
    """Sentences of which B make an update, each X times.

    Held-out text is one batch of at most 512 sentences.
    """

    too_little = (
        'the held-out text of {tokens:,} tokens has no sentence; hold out '
        'more (--heldout)'
    )
    by_blocks = False  # strata are of the whole text

    def __init__(
        self,
        store: Store,
        length: int,
        batch_size: int,
        seed: int,
        copies: int = 1,
        repeat: float = 0.0,
        stratified: bool = False,
    ):
        """Sets how sentences are read, X = `copies` of each.

        Raises:
            ValueError: there are fewer sentences than an update takes.
        """
        sentences = StoreSentences.of(store, length, copies, repeat)
        if sentences.size < batch_size:
            raise errors.InputError(
                'few_sentences',
                f'the text has {sentences.size:,} sentences, but a batch takes '
                f'{batch_size}; give more text, or lower --batch_size',
            )
        if not stratified:
            random = np.random.default_rng([seed, 7])
            numbers = random.permutation(sentences.size)[:batch_size]
            sentences = sentences.select(np.sort(numbers))
        super().__init__(
            sentences,
            int(sentences.sizes.max()),
            batch_size,
            seed,
            stratified=stratified,
        )

    @classmethod
    def capacity(
        cls, store: Store, length: int, copies: int = 1, repeat: float = 0.0
    ) -> int:
        """Returns the number of sentences, at most 512."""
        del copies, repeat
        return min(HELDOUT, StoreSentences.of(store, length, 1, 0.0).size)
