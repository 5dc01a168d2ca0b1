"""What comes next: pieces after a text, and text that goes on.

Text goes on by pieces that are drawn one after the other. Where the encoder
remembers, a piece is read once, and what came before it is the memory;
elsewhere the last T pieces are read again for each new one.

Glossary of shapes: B texts, T tokens, D width, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from infoword_tf.inference.states import States, last_places
from infoword_tf.objectives.lm import VIEW
from infoword_tf.text import strings
from infoword_tf.text.template import padded
from infoword_tf.views import View

Tensor = Any


class Continuing(States):
    """A workdir that predicts the next piece and generates text."""

    def next_row(self) -> str:
        """The row that scores the next piece; ValueError: there is none."""
        return self.row_that('next')

    def next_log_p(self, states: Tensor) -> Tensor:
        """log p of the piece after a place; graph or eager.

        Returns:
            [..., V] float32. Of special pieces [UNK] and the end of a document,
            [SEP], have one alone.
        """
        scores = self.model.objectives[self.next_row()].piece_scores(states)
        return self._pieces_log_p(scores, self.tokenizer.sep_id)

    def next_scores(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """The same after each text, [B, V]; args as in `states`."""
        states = self.states(ids, lengths, places=last_places(lengths))
        return self.next_log_p(states[:, 0])

    def begun(self, texts: Tensor) -> tuple[Tensor, Tensor]:
        """Ids of texts that shall go on; graph or eager.

        A text begins after the end of another, [SEP], unless the vocabulary
        has no such piece; of one that is too long the end stays.

        Returns:
            ids [B, T] and lengths [B], as `next_scores` takes them.
        """
        pieces = self.tokenizer.tokenize(texts)
        begins = tf.ones_like(pieces.row_lengths())
        if not self.tokenizer.ends_texts:
            begins = tf.cast(pieces.row_lengths() == 0, tf.int64)
        begins = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.reduce_sum(begins)], self.tokenizer.sep_id),
            begins,
            validate=False,
        )
        rows = tf.concat([begins, pieces], axis=1)
        return padded(rows[:, -self.max_length :], self.tokenizer.pad_id)

    def next_pieces(
        self, text: str | bytes, top_k: int = 10
    ) -> list[tuple[str, float]]:
        """What may come next.

        Args:
            text: so far; of one that is too long its end is read.

        Returns:
            The best pieces with their log-probabilities (nats), best first;
            '[SEP]' (as the vocabulary calls it) is the end.

        Raises:
            TypeError: it is no text.
            ValueError: no row of this model scores the next piece, or half a
                surrogate pair.
        """
        text = strings.checked_one(text)
        self.next_row()  # complains before the work
        scores = self.next_scores(*self.begun(tf.constant([text])))
        return self._best_pieces(scores, top_k)[0]


def likeliest(p: np.ndarray, top_p: float) -> np.ndarray:
    """The fewest pieces that have `top_p` of the probability, and no others.

    (Holtzman et al. 2020, §3.1.)

    Args:
        p: [V] probabilities.
        top_p: above 0; 1 or more: all.

    Returns:
        [V], which sums to 1. Of equal ones the first stay.
    """
    if top_p >= 1:
        return p / p.sum()
    order = np.argsort(-p, kind='stable')
    before = np.cumsum(p[order]) - p[order]
    kept = order[before < top_p * p.sum()]
    filtered = np.zeros_like(p)
    filtered[kept] = p[kept]
    return filtered / filtered.sum()


def choose(
    log_p: np.ndarray, number: float, temperature: float, top_p: float
) -> int:
    """A piece, by a number in [0, 1).

    Args:
        log_p: [V] log-probabilities, nats.
        number: that decides.
        temperature: what they are divided by; 0: the likeliest piece.
        top_p: as in `likeliest`, after the temperature.
    """
    if not temperature:
        return int(np.argmax(log_p))
    scores = np.asarray(log_p, np.float64) / temperature
    p = likeliest(np.exp(scores - scores.max()), top_p)
    total = np.cumsum(p)
    return int(np.searchsorted(total, number * total[-1], 'right'))


def continued(
    loaded: Continuing,
    ids: Sequence[int],
    count: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int = 0,
) -> list[int]:
    """What comes after some pieces, until a document ends.

    A text begins after the end of another, as in training.

    Args:
        ids: pieces of the text so far, without specials.
        count: how many more, at most.
        temperature, top_p: as in `choose`.
        seed: the same one draws the same pieces.
    """
    loaded.next_row()  # complains before the work
    read = _reader(loaded)
    given = list(ids)
    if loaded.tokenizer.ends_texts or not given:
        given = [loaded.tokenizer.sep_id, *given]
    new_ids: list[int] = []
    numbers = np.random.default_rng(seed).random(count)
    for number in numbers:
        piece = choose(read(given), number, temperature, top_p)
        if piece == loaded.tokenizer.sep_id:
            break
        new_ids.append(piece)
        given = [piece]
    return new_ids


def _reader(loaded: Continuing) -> Callable[[Sequence[int]], np.ndarray]:
    """A function of pieces that are new: log p [V] of the one after them."""
    model = loaded.model
    row = loaded.next_row()
    state = {
        name: entry.empty
        for name, entry in model.empty_state(1).items()
        if name == f'memory/{VIEW}'
    }
    if not state:
        return _rereader(loaded)

    @tf.function(autograph=False)
    def step(ids: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
        view = View(ids=ids, sequences=np.zeros(1, np.int32))
        encoded, state = model.encode({VIEW: view}, state=state)
        states = encoded[row][VIEW]['encoder'][0].states
        return loaded.next_log_p(states[0, -1]), state

    def read(ids: Sequence[int]) -> np.ndarray:
        nonlocal state
        log_p, state = step(tf.constant([ids], tf.int32), state)
        return log_p.numpy()

    return read


def _rereader(loaded: Continuing) -> Callable[[Sequence[int]], np.ndarray]:
    """The same without memory: a row of T places, the text at its left."""
    length = loaded.max_length
    text: list[int] = []

    @tf.function(autograph=False)
    def score(ids: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        return loaded.next_scores(ids, size)[0]

    def read(ids: Sequence[int]) -> np.ndarray:
        text.extend(ids)
        row = np.full((1, length), loaded.tokenizer.pad_id, np.int32)
        last = text[-length:]
        row[0, : len(last)] = last
        return score(tf.constant(row), tf.constant([len(last)])).numpy()

    return read
