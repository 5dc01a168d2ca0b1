"""Scores of labels of words: as conlleval counts, and accuracy.

A span is right if first word, last word and type are those of a true span.
Precision and recall are shares of the predicted and of the true spans, F1 their
harmonic mean (Tjong Kim Sang & De Meulder 2003, and their script). Words whose
label is right are the accuracy.

Glossary of shapes: W words of all texts.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from infoword_tf.evaluation.commonest import Commonest, of_targets
from infoword_tf.text import tags

SPANS = ('f1', 'precision', 'recall', 'accuracy')
WORDS = ('accuracy',)


class Truth(NamedTuple):
    """True labels of the words of texts.

    Attributes:
        labels: names, those of the model first.
        numbers: [W] int64, numbers of labels.
        first: [W] bool, the first words of texts.
    """

    labels: tuple[str, ...]
    numbers: np.ndarray
    first: np.ndarray

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the scores; the first selects the weights."""
        return SPANS if tags.marks_spans(self.labels) else WORDS

    @property
    def frequencies(self) -> dict[str, int]:
        """Numbers of spans by type, or of words by label."""
        names, numbers = self.labels, self.numbers
        if self.metrics == SPANS:
            kinds = tags.kinds_of(names)
            names = kinds.types
            numbers = tags.spans(numbers, self.first, kinds)[:, 2]
        counts = np.bincount(numbers, minlength=len(names))
        return dict(zip(names, counts.tolist(), strict=True))

    @property
    def silent(self) -> int:
        """Number of the label of a word that is not read: O, if possible."""
        return int(np.argmin(tags.kinds_of(self.labels).numbers))

    def commonest(self) -> Commonest:
        """Scores the best answer that reads nothing.

        The error of no right span is that of a count: one span.
        """
        if self.metrics == SPANS:
            error = 2 / (1 + sum(self.frequencies.values()))
            return Commonest('no span in any text', 0.0, error)
        return of_targets('accuracy', self.numbers, self.labels)


def truth_of(texts: Sequence[Sequence[str]], labels: Sequence[str]) -> Truth:
    """Numbers the labels of texts; `labels` come first."""
    every = [tag for text in texts for tag in text]
    names = tuple(dict.fromkeys([*labels, *sorted({*every})]))
    numbers = {name: number for number, name in enumerate(names)}
    first = np.zeros(len(every), bool)
    sizes = np.array([len(text) for text in texts if text], np.int64)
    first[np.cumsum(sizes) - sizes] = True
    return Truth(names, np.array([numbers[x] for x in every], np.int64), first)


def scores(truth: Truth, predicted: np.ndarray) -> dict[str, float]:
    """Scores predicted labels [W], numbers as of the truth."""
    accuracy = float(np.mean(predicted == truth.numbers))
    if truth.metrics == WORDS:
        return {'accuracy': accuracy}
    right, guessed, true = counts(truth, predicted).sum(axis=0).tolist()
    return {**shares(right, guessed, true), 'accuracy': accuracy}


def shares(right: int, guessed: int, true: int) -> dict[str, float]:
    """Computes F1, precision and recall of numbers of spans."""
    return {
        'f1': 2 * right / max(1, guessed + true),
        'precision': right / max(1, guessed),
        'recall': right / max(1, true),
    }


def counts(truth: Truth, predicted: np.ndarray) -> np.ndarray:
    """Counts right, predicted and true spans by type: [types, 3]."""
    kinds = tags.kinds_of(truth.labels)
    both = [
        tags.spans(numbers, truth.first, kinds)
        for numbers in (predicted, truth.numbers)
    ]
    base = len(predicted) + 1
    guessed, true = (
        (x[:, 0] * base + x[:, 1]) * (len(kinds.types) + 1) + x[:, 2]
        for x in both
    )
    right = both[0][np.isin(guessed, true)]
    return np.stack(
        [
            np.bincount(x[:, 2], minlength=len(kinds.types))
            for x in (right, *both)
        ],
        axis=1,
    )


def table(truth: Truth, predicted: np.ndarray) -> str:
    """Prints precision, recall and F1 of each type, in percent."""
    kinds = tags.kinds_of(truth.labels)
    rows = counts(truth, predicted)
    width = max(map(len, (*kinds.types, 'all')))
    lines = [f'{"":{width}}  precision  recall     f1   spans']
    for name, row in sorted(zip(kinds.types, rows.tolist(), strict=True)):
        lines.append(_line(name, row, width))
    return '\n'.join([*lines, _line('all', rows.sum(axis=0).tolist(), width)])


def _line(name: str, row: Sequence[int], width: int) -> str:
    values = shares(*row)
    return (
        f'{name:{width}}  {100 * values["precision"]:9.2f}'
        f'  {100 * values["recall"]:6.2f}  {100 * values["f1"]:5.2f}'
        f'  {row[2]:6,}'
    )
