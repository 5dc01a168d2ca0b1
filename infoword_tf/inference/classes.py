"""Classes of texts, or of pairs of texts, and numbers, by rows with labels.

Glossary of shapes: n texts, C classes, J choices.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from infoword_tf import errors
from infoword_tf.inference.states import Predictor, cls_places
from infoword_tf.layers.block import take
from infoword_tf.layers.pooling import real_places
from infoword_tf.objectives.label import Head
from infoword_tf.tensors import Tensor
from infoword_tf.text import strings


class Classes(Predictor):
    """The labels that a workdir predicts for texts, or numbers."""

    # ------------------------------------------------------- ids to scores

    def class_scores(
        self,
        ids: Tensor,
        lengths: Tensor,
        second: Tensor | None = None,
        row: str | None = None,
    ) -> Tensor:
        """Computes scores of classes over pooled states; graph or eager.

        Args:
            ids, lengths, second: inputs of `States.__call__`.
            row: that answers classes, or a number, which is one class then;
                None: the first that answers classes.

        Returns:
            [B, C] float32.

        Raises:
            ValueError: this model has no such row.
        """
        head = self._head(row)
        place = None
        if not self.workdir.model.reads[head.row]['examples'].everywhere:
            place = cls_places(self.workdir.template, ids, lengths)
        encoded = self.states.encode(
            ids,
            lengths,
            all_layers=head.mix,
            places=place,
            second=second,
        )
        layers: Sequence[Tensor] = encoded.layers
        if head.mix and place is not None:
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
        """Computes `class_scores` of strings; graph or eager.

        Args:
            texts, pairs: [B] string. Of a model that reads two texts in both
                orders the sum of both.
            row: row of `class_scores`.
            compute: function from ids, lengths and second to scores; None:
                `class_scores` of all at once.
        """
        if compute is None:
            compute = functools.partial(self.class_scores, row=row)
        scores = compute(*self.states.format_texts(texts, pairs))
        if self._head(row).texts == 'both_ways':
            scores += compute(*self.states.format_texts(pairs, texts))
        return scores

    def probabilities(self, scores: Tensor) -> Tensor:
        """Turns scores of classes [B, C] into probabilities, see `classify`."""
        if self.multilabel or scores.shape[-1] == 1:
            return ops.sigmoid(scores)
        return ops.softmax(scores)

    # ---------------------------------------------------------------- rows

    def sides(self, row: str) -> tuple[int, ...]:
        """Returns how many texts an example of a row has.

        1, 2, or both where the config does not say; ValueError: this model
        has no such row.
        """
        if self._head(row).texts != 'joined':
            return (2,)
        task = self.config.task
        return (1, 2) if task is None else (1 + task.pairs,)

    @property
    def multilabel(self) -> bool:
        """The case that a text may have several of the classes, or none."""
        rows = self.states.rows_that('classes')
        return bool(rows) and self._head(rows[0]).multilabel

    def _head(self, row: str | None) -> Head:
        """Returns the objective of a row, see `class_scores`."""
        row = row or self.states.row_that('classes')
        objectives = self.workdir.model.objectives
        if row not in objectives:
            raise errors.InputError(
                'row_not_loaded',
                f'{self.states.rows_text}: {row} is not among them',
            )
        return objectives[row]

    # ------------------------------------------------------------- strings

    def classify(
        self,
        texts: Sequence[strings.Text],
        pairs: Sequence[strings.Text] | None = None,
        batch_size: int = 32,
    ) -> np.ndarray:
        """Computes how probable each class is, of texts or of pairs.

        Args:
            texts: n strings (or bytes, UTF-8).
            pairs: n second texts; None: there are none.

        Returns:
            float32 [n, C]: by class, in the order of `config.labels`, its
            probability: the softmax of the scores; of one class alone, and of
            each where a text may have several, the logistic function of its
            score.

        Raises:
            TypeError: one string instead of a sequence of strings, or an
                entry that is no text.
            ValueError: no row knows classes; texts and pairs of different
                numbers; half a surrogate pair.
        """
        scores = self.scores(texts, pairs, batch_size)
        return np.asarray(self.probabilities(scores))

    def scores(
        self,
        texts: Sequence[strings.Text],
        pairs: Sequence[strings.Text] | None = None,
        batch_size: int = 32,
    ) -> np.ndarray:
        """Computes scores (logits) [n, C] float32 of classes.

        `classify` makes probabilities of them; args and errors as there.
        """
        return self._scores(texts, pairs, 'classes', batch_size)

    def choose(
        self,
        texts: Sequence[strings.Text],
        choices: Sequence[Sequence[strings.Text]],
        batch_size: int = 32,
    ) -> np.ndarray:
        """Computes how probable each of J times n second texts is.

        Returns:
            float32 [n, J].
        """
        texts = strings.checked(texts)
        scores = [
            self._scores(
                texts,
                choice,
                answer='classes',
                batch_size=batch_size,
                second=f'choices[{number}]',
            )
            for number, choice in enumerate(choices)
        ]
        return np.asarray(ops.softmax(np.concatenate(scores, axis=1), axis=1))

    def rate(
        self,
        texts: Sequence[strings.Text],
        pairs: Sequence[strings.Text] | None = None,
        batch_size: int = 32,
    ) -> np.ndarray:
        """Predicts the numbers of texts, [n] float32; see `classify`."""
        return self._scores(texts, pairs, 'numbers', batch_size)[:, 0]

    def _scores(
        self,
        texts: Sequence[strings.Text],
        pairs: Sequence[strings.Text] | None,
        answer: str,
        batch_size: int,
        second: str = 'pairs',
    ) -> np.ndarray:
        """Computes `text_scores` of any number of texts: [n, C] float32.

        `second` is what complaints call the pairs.
        """
        row = self.states.row_that(answer)
        texts = strings.checked(texts)
        if pairs is not None:
            pairs = strings.checked(pairs, second)
        if pairs is not None and len(pairs) != len(texts):
            raise errors.InputError(
                'classes_unequal_pairs',
                f'{len(texts)} texts and {len(pairs)} pairs',
            )
        sides = [texts] if pairs is None else [texts, pairs]
        if len(sides) not in self.sides(row):
            expected = 'two texts' if pairs is None else 'one text'
            raise errors.InputError(
                'sides_not_trained',
                f'{row} was trained on examples of {expected}',
            )
        # Texts of like length together: hardly any padding is computed.
        sizes = [sum(map(len, both)) for both in zip(*sides, strict=True)]
        order = np.argsort(sizes)
        scores = np.zeros((len(texts), self._head(row).columns), np.float32)
        graph = self._graphs(row, len(sides))
        for begin in range(0, len(texts), batch_size):
            batch = order[begin : begin + batch_size]
            scores[batch] = graph(
                *(tf.constant([side[i] for i in batch], tf.string)
                  for side in sides)
            )  # fmt: skip
        return scores

    @functools.cached_property
    def _graphs(self) -> Callable[..., Any]:
        """Graphs of `text_scores`, by row and number of sides."""

        def build(row: str, sides: int) -> Any:
            def answer(texts: Tensor, pairs: Tensor | None = None) -> Tensor:
                return self.text_scores(texts, pairs, row=row)

            return tf.function(
                answer,
                input_signature=[tf.TensorSpec((None,), tf.string)] * sides,
                autograph=False,
            )

        return functools.cache(build)
