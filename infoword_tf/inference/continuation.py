"""Continuation: likely next tokens of a text, and generated text.

Text goes on by tokens that are drawn one after the other. Where the encoder
has memory, a token is read once, and the memory holds what came before it;
elsewhere the last T tokens are read again for each new one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from infoword_tf.inference.states import Predictor
from infoword_tf.layers.pooling import last_places
from infoword_tf.objectives.lm import VIEW
from infoword_tf.tensors import Tensor
from infoword_tf.text import strings
from infoword_tf.text.template import padded
from infoword_tf.views import View


class Continuation(Predictor):
    """The tokens that a workdir expects after a text."""

    @property
    def row(self) -> str:
        """Name of the row that scores the next token; ValueError: none."""
        return self.states.row_that('next')

    def log_p(self, states: Tensor) -> Tensor:
        """Computes log p of the token after a place; graph or eager.

        Returns:
            [..., V] float32. Of special tokens [UNK] and the end of a document,
            [SEP], have one alone.
        """
        objective = self.workdir.model.objectives[self.row]
        return self._token_log_p(
            objective.token_scores(states), self.workdir.tokenizer.sep_id
        )

    def token_scores(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Computes log p of the token after each text, [B, V] float32.

        Args as of `States.__call__`; graph or eager.
        """
        states = self.states(ids, lengths, places=last_places(lengths))
        return self.log_p(states[:, 0])

    def format_texts(self, texts: Tensor) -> tuple[Tensor, Tensor]:
        """Returns ids of texts [B] that shall go on; graph or eager.

        A text begins after the end of another, [SEP], unless the vocabulary
        has no end; of a text that is too long the end stays.

        Returns:
            ids [B, T] and lengths [B], as `token_scores` takes them.
        """
        tokenizer = self.workdir.tokenizer
        tokens = tokenizer.tokenize(texts)
        begins = tf.ones_like(tokens.row_lengths())
        if not tokenizer.ends_texts:
            begins = tf.cast(tokens.row_lengths() == 0, tf.int64)
        begins = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.reduce_sum(begins)], tokenizer.sep_id),
            begins,
            validate=False,
        )
        tokens = tf.concat([begins, tokens], axis=1)
        return padded(tokens[:, -self.workdir.max_length :], tokenizer.pad_id)

    def next_tokens(
        self, text: str | bytes, top_k: int = 10
    ) -> list[tuple[str, float]]:
        """Predicts the token after a text.

        Args:
            text: string; where it is too long, its end is read.

        Returns:
            The best tokens with their log-probabilities (nats), best first;
            '[SEP]' (as the vocabulary calls it) is the end.

        Raises:
            TypeError: it is no text.
            ValueError: no row of this model scores the next token, or half a
                surrogate pair.
        """
        text = strings.checked_one(text)
        _ = self.row  # complains before the work
        scores = self.token_scores(*self.format_texts(tf.constant([text])))
        return self._best_tokens(scores, top_k)[0]


def likeliest(p: np.ndarray, top_p: float) -> np.ndarray:
    """Keeps the fewest tokens that have `top_p` of the probability.

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
    nucleus = order[before < top_p * p.sum()]
    filtered = np.zeros_like(p)
    filtered[nucleus] = p[nucleus]
    return filtered / filtered.sum()


def choose(
    log_p: np.ndarray, number: float, temperature: float, top_p: float
) -> int:
    """Chooses a token by a number in [0, 1).

    Args:
        log_p: [V] log-probabilities, nats.
        number: decides; uniform numbers draw tokens by their probability.
        temperature: divides `log_p`; 0: the likeliest token.
        top_p: share of `likeliest`, after the temperature.
    """
    if not temperature:
        return int(np.argmax(log_p))
    scores = np.asarray(log_p, np.float64) / temperature
    p = likeliest(np.exp(scores - scores.max()), top_p)
    total = np.cumsum(p)
    return int(np.searchsorted(total, number * total[-1], 'right'))


def generate(
    continuation: Continuation,
    ids: Sequence[int],
    count: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int = 0,
) -> list[int]:
    """Draws the tokens after a text, until a document ends.

    A text begins after the end of another, as in training.

    Args:
        ids: tokens of the text so far, without special tokens.
        count: number of further tokens, at most.
        temperature, top_p: settings of `choose`.
        seed: the same seed draws the same tokens.
    """
    tokenizer = continuation.workdir.tokenizer
    read = _memory_reader(continuation) or _reader(continuation)
    tokens = list(ids)
    if tokenizer.ends_texts or not tokens:
        tokens = [tokenizer.sep_id, *tokens]
    new_ids: list[int] = []
    for number in np.random.default_rng(seed).random(count):
        token = choose(read(tokens), number, temperature, top_p)
        if token == tokenizer.sep_id:
            break
        new_ids.append(token)
        tokens = [token]
    return new_ids


def _memory_reader(
    continuation: Continuation,
) -> Callable[[Sequence[int]], np.ndarray] | None:
    """Returns a function from new tokens to log p [V] of the next token.

    None: the encoder has no memory.
    """
    model, row = continuation.workdir.model, continuation.row
    state = {
        name: entry.empty
        for name, entry in model.empty_state(1).items()
        if name == f'memory/{VIEW}'
    }
    if not state:
        return None

    @tf.function(autograph=False)
    def step(ids: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
        view = View(ids=ids, sequences=np.zeros(1, np.int32))
        encoded, state = model.encode({VIEW: view}, state=state)
        states = encoded[row][VIEW]['encoder'][0].states
        return continuation.log_p(states[0, -1]), state

    def read(ids: Sequence[int]) -> np.ndarray:
        nonlocal state
        log_p, state = step(tf.constant([ids], tf.int32), state)
        return log_p.numpy()

    return read


def _reader(
    continuation: Continuation,
) -> Callable[[Sequence[int]], np.ndarray]:
    """Returns a function as of `_memory_reader`, by the last T tokens."""
    workdir = continuation.workdir
    length = workdir.max_length
    text: list[int] = []

    @tf.function(autograph=False)
    def score(ids: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        return continuation.token_scores(ids, size)[0]

    def read(ids: Sequence[int]) -> np.ndarray:
        text.extend(ids)
        sequence = np.full((1, length), workdir.tokenizer.pad_id, np.int32)
        last = text[-length:]
        sequence[0, : len(last)] = last
        return score(tf.constant(sequence), tf.constant([len(last)])).numpy()

    return read
