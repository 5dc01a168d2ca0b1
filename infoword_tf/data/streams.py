"""The source `streams`: the text as sequences that continue step by step.

Glossary of shapes: n tokens that a sequence reads in a step, W tokens of the
text.
"""

from collections.abc import Iterator

import numpy as np

from infoword_tf import errors
from infoword_tf.data import store as stores
from infoword_tf.data.source import Source
from infoword_tf.views.streams import Streams


class StreamSource(Source):
    """Sequences that continue from step to step.

    The text is a circle: after its last token, which ends a document, comes the
    first. B sequences begin at B places, W / B tokens apart (Dai et al. 2019
    divide the text into B strips, and lose the remainder), and each goes around
    for ever: at the end of its strip it reads the next one's. So no token is
    left over whatever W, B and n are, sequences together read all tokens
    equally often, to within one, and the token that follows a sequence's last
    one always exists.

    Sequences begin and end anywhere, inside words too. There are no epochs to
    shuffle: memory wants the order of the text.

    In both directions even sequences read forward and odd sequences the
    reversed text, each kind around a circle of its own.
    """

    too_little = (
        'the held-out text has {tokens:,} tokens, too few for 8 sequences of '
        '{length}; hold out more (--heldout), or lower --seq_len'
    )

    heldout_sequences = 8  # for any batch size, so that memory is the same

    def __init__(
        self,
        store: stores.Store,
        length: int,
        batch_size: int,
        seed: int,
        advance: int | None = None,
        both_directions: bool = False,
    ):
        """Sets how the text is read; the `seed` decides nothing.

        Args:
            advance: tokens from a sequence's beginning to its beginning in the
                next step; with fewer than n the rest comes again. None: n.
            both_directions: whether odd sequences read backward.

        Raises:
            ValueError: the text is smaller than one step of its sequences, or
                `advance` would skip tokens.
        """
        del seed
        self.store, self.length, self.batch_size = store, length, batch_size
        self.advance = advance or length
        self.both_directions = both_directions
        if not 0 < self.advance <= length:
            raise errors.InputError(
                'advance_skips_tokens',
                f'sequences of {length} tokens cannot advance by '
                f'{self.advance} a step: the tokens between would be skipped',
            )
        tokens = len(store.ids)
        circles = 1 + both_directions
        self.rows = -(-batch_size // circles)  # of the fuller circle
        if tokens // self.rows < length:
            which = f'{self.rows} sequences'
            if both_directions:
                which += ' of each direction'
            raise errors.InputError(
                'few_tokens_for_streams',
                f'the text has {tokens:,} tokens, too few for {which} of '
                f'{length}; give more text, or lower --batch_size or --seq_len',
            )
        sequence = np.arange(batch_size)
        number, circle = sequence // circles, sequence % circles
        each = (batch_size - circle + circles - 1) // circles
        self.directions = np.where(circle, -1, 1).astype(np.int32)
        # Tokens from the beginning of the circle, in reading order.
        self.begins = number * tokens // each

    @classmethod
    def capacity(
        cls,
        store: stores.Store,
        length: int,
        advance: int | None = None,
        both_directions: bool = False,
    ) -> int:
        """Returns sequences of all steps in which held-out text comes once."""
        sequences = cls.heldout_sequences
        strip = len(store.ids) // (sequences // (1 + both_directions))
        return sequences * max(0, (strip - length) // (advance or length) + 1)

    def batch(self, step: int) -> Streams:
        """Returns the global batch of a step: B sequences of n tokens."""
        begins = self.begins + step * self.advance
        text = _read(self.store, begins, self.length, self.directions)
        again = np.full(self.batch_size, self.length - self.advance, np.int32)
        return text._replace(again=again)


def _read(
    store: stores.Store, begins: np.ndarray, length: int, directions: np.ndarray
) -> Streams:
    """Reads sequences from places of a circle on, in `directions`."""
    tokens = len(store.ids)
    place = begins[:, None] + np.arange(length + 1)
    backward = directions[:, None] < 0
    place = np.where(backward, -1 - place, place) % tokens
    ids = store.ids[place].astype(np.int32)
    flags = store.flags[place]
    # Backward a word begins with its last token, the one before the next word's
    # first. So does a sentence.
    ahead = store.flags[(place + 1) % tokens]
    first = np.where(backward, ahead, flags)[:, :-1]
    opens_sentence = stores.SENTENCE_START | stores.SEPARATOR
    return Streams(
        ids=ids[:, :-1],
        word_starts=(first & stores.WORD_START) > 0,
        sentence_starts=(first & opens_sentence) > 0,
        separators=(flags[:, :-1] & stores.SEPARATOR) > 0,
        directions=directions,
        following=ids[:, -1],
    )


def once(
    store: stores.Store, length: int, rows: int = 1
) -> Iterator[tuple[Streams, np.ndarray]]:
    """Reads a text so that every token is the next one exactly once.

    The first token follows the last, a separator: it begins a text as it begins
    any document. With several sequences each reads a strip of W / `rows`
    tokens, rounded up.

    Yields:
        Sequences that continue, and weights [B, n] float32: 0 beyond a
        sequence's strip, where the next token does not count.
    """
    strip = -(-len(store.ids) // rows)
    begins = np.minimum(np.arange(rows) * strip, len(store.ids))
    sizes = np.diff(begins, append=len(store.ids))
    directions = np.ones(rows, np.int32)
    for step in range(-(-strip // length)):
        place = step * length + np.arange(length)
        yield (
            _read(store, begins + step * length - 1, length, directions),
            (place < sizes[:, None]).astype(np.float32),
        )
