"""Scores of answers that read nothing, which a trained model has to beat.

    accuracy              the commonest label of the held-out examples
    f1                    class 1 for every example ("always yes")
    f1_micro, f1_macro    the same labels for every example: those of the best
                          score, and all of them
    matthews              0, of the same label for every example
    pearson, spearman     0, of the same number for every example

The error of a mean over n examples is its standard error: of an accuracy p the
binomial one, sqrt(p (1 - p) / n). That of F1, a ratio of two means, is
linearised (delta method). A correlation with what is unrelated has a standard
deviation of 1 / sqrt(n - 1), by permutation; Matthews' of more than two classes
at most that.

Glossary of shapes: n examples, C labels.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

CORRELATIONS = {
    'matthews': 'the same label for every text',
    'pearson': 'the same number for every text',
    'spearman': 'the same number for every text',
}
# What is advised: updates, at least and as a multiple, and the peak rate.
LEAST_STEPS, MORE_STEPS = 500, 3
HIGHER_RATE, HIGHEST_RATE = 3, 1e-3
FEW = 0.5  # a smaller share of the updates, of a few hundred, says little


class Commonest(NamedTuple):
    """Score of an answer that reads nothing.

    Attributes:
        answer: name of the answer, for people.
        score: on the held-out examples.
        error: standard error of the score.
    """

    answer: str
    score: float
    error: float


def of_targets(
    metric: str, targets: np.ndarray, names: Sequence[str] = ()
) -> Commonest:
    """Scores the commonest answer to held-out examples.

    Args:
        metric: one of those above.
        targets: [n] classes, or [n, C] 0 and 1 of several labels, or numbers.
        names: names of the C labels.
    """
    count = len(targets)
    if metric in CORRELATIONS:
        error = 1 / math.sqrt(max(1, count - 1))
        return Commonest(CORRELATIONS[metric], 0.0, error)
    if metric == 'accuracy':
        chosen = int(np.bincount(targets, minlength=len(names)).argmax())
        return of_answers({always(names[chosen]): targets == chosen})
    if metric == 'f1':
        true = np.equal(targets, 1)[:, None]
        return _f1(always(names[1]), true, 1 + true)
    if metric == 'f1_macro':
        return _f1('all labels for every text', targets, 1 + targets)
    order = np.argsort(-targets.sum(axis=0), kind='stable')
    right = np.cumsum(targets[:, order], axis=1)  # of the commonest 1 to C
    total = np.arange(1, len(order) + 1) + right[:, -1:]
    size = int((right.sum(axis=0) / total.sum(axis=0)).argmax())
    answer = always(*(names[number] for number in order[: size + 1]))
    return _f1(answer, right[:, [size]], total[:, [size]])


def always(*labels: str) -> str:
    """Describes the answer that has the same labels for every text."""
    return f'{" and ".join(map(repr, labels))} for every text'


def of_answers(scores: Mapping[str, np.ndarray]) -> Commonest:
    """Chooses the answer of the best mean, of scores [n] by answer."""
    means = {answer: np.mean(values) for answer, values in scores.items()}
    best = max(means, key=means.__getitem__)
    error = np.std(scores[best]) / math.sqrt(len(scores[best]))
    return Commonest(best, float(means[best]), float(error))


def _f1(answer: str, right: np.ndarray, total: np.ndarray) -> Commonest:
    """Averages F1 over columns: 2 right / total, of sums over examples.

    Args:
        answer: name of the answer, for people.
        right: [n, C], right answers to an example.
        total: [n, C], its answers and its true labels.
    """
    f1 = 2 * right.sum(axis=0) / total.sum(axis=0)
    linear = (2 * right - f1 * total) / total.mean(axis=0)
    error = np.std(linear.mean(axis=1)) / math.sqrt(len(right))
    return Commonest(answer, float(f1.mean()), float(error))


def complaint(
    metric: str,
    score: float,
    commonest: Commonest,
    steps: int,
    learning_rate: float,
    usual: int,
) -> str | None:
    """Compares a score with that of the commonest answer, and advises.

    Args:
        metric: name of the measure, for people.
        score: result of the model.
        commonest: result of the commonest answer to the same examples.
        steps, learning_rate: length and rate of the run.
        usual: steps that the defaults would have made.

    Returns:
        A sentence; None if the score is higher by more than one standard
        error, of a run of enough steps.
    """
    if score > commonest.score + commonest.error:
        if steps >= FEW * min(usual, LEAST_STEPS):
            return None
        return (
            f'{metric} {score:.4f} is that of {steps:,} updates, where the '
            f'defaults make {usual:,}: the model may have learned little of '
            f'what it can; try --steps={usual} in another --workdir'
        )
    steps = max(LEAST_STEPS, MORE_STEPS * steps)
    tries = [f'more updates (--steps={steps})']
    if learning_rate < HIGHEST_RATE:
        rate = min(HIGHEST_RATE, HIGHER_RATE * learning_rate)
        tries.append(f'a higher rate (--learning_rate={rate:.2g})')
    return (
        f'{metric} {score:.4f} is no better than that of {commonest.answer}, '
        f'{commonest.score:.4f} +- {commonest.error:.4f}: the model has '
        f'learned nothing that this score shows; try {" or ".join(tries)} in '
        'another --workdir'
    )
