"""Classes of texts, or of pairs of them, and numbers, by rows with labels.

Glossary of shapes: B texts of a batch, n texts, C classes, K choices.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from infoword_tf.inference.states import States, last_places, real_places
from infoword_tf.layers.block import take
from infoword_tf.objectives.label import Head
from infoword_tf.text import strings

Tensor = Any


class Classes(States):
    """A workdir that predicts labels of texts, or numbers."""

    def class_scores(
        self,
        ids: Tensor,
        lengths: Tensor,
        second: Tensor | None = None,
        row: str | None = None,
    ) -> Tensor:
        """Scores of a row over the pooled states of texts; graph or eager.

        Args:
            ids, lengths, second: as in `states`.
            row: that answers classes, or the one number that this is then;
                None: the first that answers classes.

        Returns:
            [B, C] float32, one number each where there is one class.

        Raises:
            ValueError: this model has no such row.
        """
        head = self._head(row)
        place = None
        if not self.model.reads[head.row]['examples'].everywhere:
            place = last_places(lengths)
            place = ops.zeros_like(place) if self.layout.first else place
        every = head.mix
        encoded = self._encoded(ids, lengths, every, place, second)
        layers = encoded.layers
        if every and place is not None:
            layers = [take(layer, place) for layer in layers]
        padding = ops.cast(ops.logical_not(real_places(ids, lengths)), 'int32')
        states = head.pooled_states(encoded.states, layers, padding, texts=1)
        return head.class_scores(states[:, 0])

    def text_scores(
        self,
        texts: Tensor,
        pairs: Tensor | None = None,
        row: str | None = None,
        compute: Callable[..., Tensor] | None = None,
    ) -> Tensor:
        """The same of strings; graph or eager.

        Args:
            texts, pairs: [B] string. Of a model that reads two texts in both
                orders the sum of both.
            row: as in `class_scores`.
            compute: from ids, lengths and second to scores; None:
                `class_scores` of all at once.
        """
        if compute is None:
            compute = functools.partial(self.class_scores, row=row)
        scores = compute(*self.laid_out(texts, pairs))
        if self._head(row).texts == 'both_ways':
            scores += compute(*self.laid_out(pairs, texts))
        return scores

    def sides(self, row: str) -> tuple[int, ...]:
        """How many texts an example of a row has: 1, 2, or both where the
        config does not say; ValueError: this model has no such row.
        """
        if self._head(row).texts != 'joined':
            return (2,)
        task = self.config.task
        return (1, 2) if task is None else (1 + task.pairs,)

    def _head(self, row: str | None) -> Head:
        """The objective of a row, see `class_scores`."""
        row = row or self.row_that('classes')
        if row not in self.model.objectives:
            raise ValueError(f'{self._rows}: {row} is not among them')
        return self.model.objectives[row]

    def probabilities(
        self, ids: Tensor, lengths: Tensor, second: Tensor | None = None
    ) -> Tensor:
        """[B, C] float32 of `class_scores`; args as there."""
        return self.probabilities_of(self.class_scores(ids, lengths, second))

    def probabilities_of(self, scores: Tensor) -> Tensor:
        """[B, C] scores of classes -> [B, C], see `classify`."""
        if self.multilabel or scores.shape[-1] == 1:
            return ops.sigmoid(scores)
        return ops.softmax(scores, axis=-1)

    @property
    def multilabel(self) -> bool:
        """Tells whether a text may have several of the classes, or none."""
        rows = self.rows_that('classes')
        return bool(rows) and self._head(rows[0]).multilabel

    # ------------------------------------------------------------- strings

    def classify(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        batch_size: int = 32,
    ) -> np.ndarray:
        """Which class texts have, or pairs of them.

        Args:
            texts: n strings (or bytes, UTF-8).
            pairs: n second texts; None: there are none.

        Returns:
            float32 [n, C]: by class, in the order of `config.labels`, its
            probability: the softmax of the scores; of one class alone, and of
            each where a text may have several, the logistic function of its
            score.

        Raises:
            TypeError: one string instead of a sequence of them, or one of
                them is no text.
            ValueError: no row knows classes; texts and pairs of different
                numbers; half a surrogate pair.
        """
        scores = self.scores(texts, pairs, batch_size)
        return np.asarray(self.probabilities_of(scores))

    def scores(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        batch_size: int = 32,
    ) -> np.ndarray:
        """float32 [n, C]: of each class its score (logit), of which `classify`
        makes probabilities; args and errors as there.
        """
        return self._text_scores(texts, pairs, 'classes', batch_size)

    def choose(
        self,
        texts: Sequence[str],
        choices: Sequence[Sequence[str]],
        batch_size: int = 32,
    ) -> np.ndarray:
        """float32 [n, K]: how probable each of K times n second texts is."""
        texts = strings.checked(texts)
        scores = [
            self._text_scores(
                texts, choice, 'classes', batch_size, f'choices[{number}]'
            )
            for number, choice in enumerate(choices)
        ]
        return np.asarray(ops.softmax(np.concatenate(scores, axis=1), axis=1))

    def rate(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        batch_size: int = 32,
    ) -> np.ndarray:
        """float32 [n], the numbers of texts; see `classify`."""
        return self._text_scores(texts, pairs, 'numbers', batch_size)[:, 0]

    def _text_scores(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None,
        answer: str,
        batch_size: int,
        second: str = 'pairs',
    ) -> np.ndarray:
        """`text_scores` of any number of texts: [n, C] float32; `second` is
        what complaints call the pairs."""
        row = self.row_that(answer)
        texts = strings.checked(texts)
        if pairs is not None:
            pairs = strings.checked(pairs, second)
        if pairs is not None and len(pairs) != len(texts):
            raise ValueError(f'{len(texts)} texts and {len(pairs)} pairs')
        sides = [texts] if pairs is None else [texts, pairs]
        if len(sides) not in self.sides(row):
            wanted = 'two texts' if pairs is None else 'one text'
            raise ValueError(f'{row} was trained on examples of {wanted}')
        # Those of like length together: hardly any padding is computed.
        sizes = [sum(map(len, both)) for both in zip(*sides, strict=True)]
        order = np.argsort(sizes)
        scores = np.zeros((len(texts), self._head(row).columns), np.float32)
        graph = self._traced_scores(row, len(sides))
        for begin in range(0, len(texts), batch_size):
            some = order[begin : begin + batch_size]
            scores[some] = graph(
                *(tf.constant([side[i] for i in some], tf.string)
                  for side in sides)
            )  # fmt: skip
        return scores

    @functools.cached_property
    def _traced_scores(self) -> Callable[..., Any]:
        """`text_scores` of a row and 1 or 2 sides, as one graph."""

        def trace(row: str, sides: int) -> Any:
            return tf.function(
                lambda *texts: self.text_scores(*texts, row=row),
                input_signature=[tf.TensorSpec((None,), tf.string)] * sides,
                autograph=False,
            )

        return functools.cache(trace)
