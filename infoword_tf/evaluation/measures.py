"""Measures of predictions, as GLUE defines them, and confusion matrices."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infoword_tf import files
from infoword_tf.evaluation.correlation import pearson, spearman
from infoword_tf.pictures import INK, LINE, QUIET

LIKELY = 0.5  # the least probability of a label, where a text may have several
MOST_CLASSES = 50  # in a picture; the rarer classes are merged
_FEW, _SOME = 8, 25  # classes with counts and shares; with counts
_LONGEST = 24  # letters of a name
_COLOURS = ('#ffffff', '#8fb8de', '#3f6491')  # from share 0 to 1


def confusion(
    predictions: np.ndarray, targets: np.ndarray, classes: int
) -> np.ndarray:
    """Counts pairs of classes, [targets, predictions] int64.

    Predictions and targets are [n] numbers of classes.
    """
    pairs = np.asarray(targets, np.int64) * classes + predictions
    return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)


def accuracy(predictions: np.ndarray, targets: np.ndarray) -> float:
    """Returns the share of [n] predictions that are right."""
    return float(np.mean(np.equal(predictions, targets)))


def f1(predictions: np.ndarray, targets: np.ndarray) -> float:
    """Returns F1 of class 1, 2 tp / (2 tp + fp + fn); 0 without tp."""
    predicted, true = np.equal(predictions, 1), np.equal(targets, 1)
    right = np.sum(predicted & true)
    if not right:
        return 0.0
    return float(2 * right / (np.sum(predicted) + np.sum(true)))


def f1_macro(predictions: np.ndarray, targets: np.ndarray) -> float:
    """Averages F1 over labels, of [n, C] 0 and 1.

    A label that is never right counts 0, even if no text has it.
    """
    return float(np.mean(list(map(f1, predictions.T, targets.T))))


def matthews(predictions: np.ndarray, targets: np.ndarray) -> float:
    """Returns Matthews' correlation of [n] classes (Gorodkin 2004).

    0 where all predictions, or all targets, are one class.
    """
    classes = 1 + int(max(np.max(predictions), np.max(targets)))
    counts = confusion(predictions, targets, classes).astype(np.float64)
    total, right = counts.sum(), np.trace(counts)
    predicted, true = counts.sum(0), counts.sum(1)
    spread = (total**2 - predicted @ predicted) * (total**2 - true @ true)
    if not spread:
        return 0.0
    return float((right * total - predicted @ true) / np.sqrt(spread))


def interval(correlation: float, count: int) -> tuple[float, float]:
    """Estimates a 95 % confidence interval of Spearman's correlation.

    Fisher's z with the variance of Bonett & Wright (2000), (1 + r^2 / 2) /
    (n - 3), for the correlation r of n pairs. A perfect order of few pairs may
    be chance, so |r| is at most that of half a swap of neighbours.
    """
    if count < 4:
        return -1.0, 1.0
    most = 1 - 6 / (count * (count**2 - 1))
    r = min(max(correlation, -most), most)
    half = 1.96 * np.sqrt((1 + r**2 / 2) / (count - 3))
    low, high = np.tanh(np.arctanh(r) + np.array([-half, half]))
    return min(float(low), correlation), max(float(high), correlation)


def ranked(predictions: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
    """Returns Spearman's x 100 of [n] pairs and an `interval`, for JSON."""
    value = spearman(predictions, targets)
    ends = interval(value, len(targets))
    return {
        'spearman': round(100 * value, 2),
        'interval': [round(100 * end, 1) for end in ends],
    }


def described(record: Mapping[str, Any], pairs: int) -> str:
    """Formats a result of `ranked` for people; `pairs`: how many."""
    low, high = record['interval']
    return (
        f'Spearman {record["spearman"]:.2f} of {pairs:,} pairs '
        f'(95 %: {low:.1f} to {high:.1f})'
    )


MEASURES = {
    'accuracy': accuracy,
    'f1': f1,
    'f1_micro': f1,  # of all labels of all texts together
    'f1_macro': f1_macro,
    'matthews': matthews,
    'pearson': pearson,
    'spearman': spearman,
}


# ---------------------------------------------------------------------- picture


def draw_confusion(
    path: pathlib.Path,
    names: Sequence[str],
    targets: np.ndarray,
    predictions: np.ndarray,
) -> None:
    """Draws a confusion matrix into a PNG: counts, and shares of each target.

    Of many classes the commonest are shown, the others merged.

    Raises:
        OSError: the PNG cannot be written.
    """
    from matplotlib.figure import Figure

    counts = confusion(predictions, targets, len(names))
    right = np.trace(counts)
    short, counts = _commonest(list(map(_cut, names)), counts)
    size, longest = len(short), max(map(len, short))
    # In inches; cells of few classes hold a count and a share.
    cell = 0.85 if size <= _FEW else 0.45 if size <= _SOME else 0.2
    is_flat = size <= _FEW and longest <= 13  # names below stand upright
    side = max(size * cell, 2.4)
    left = 0.55 + 0.075 * longest
    bottom = 0.6 if is_flat else left - 0.1
    figure = Figure((left + side + 0.3, bottom + side + 0.45), dpi=150)
    width, height = figure.get_size_inches()
    axes = figure.add_axes(
        (left / width, bottom / height, side / width, side / height)
    )
    _fill(axes, counts)
    axes.set_xticks(range(size), short, rotation=0 if is_flat else 90)
    axes.set_yticks(range(size), short)
    axes.set_xlabel('predicted', color=QUIET)
    axes.set_ylabel('true', color=QUIET)
    axes.set_title(
        f'{right:,} of {len(targets):,} right ({right / len(targets):.1%})',
        color=INK,
        fontsize=10,
    )
    with files.written(path) as partial:
        figure.savefig(partial, format='png')


def _cut(name: str) -> str:
    if len(name) > _LONGEST:
        name = f'{name[: _LONGEST - 1]}…'
    return name.replace('$', r'\$')  # matplotlib reads $...$ as mathematics


def _fill(axes: Any, counts: np.ndarray) -> None:
    """Colours cells by the share of a target, and writes counts."""
    from matplotlib.colors import LinearSegmentedColormap

    size = len(counts)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    blues = LinearSegmentedColormap.from_list('shares', _COLOURS)
    axes.imshow(shares, blues, vmin=0, vmax=1, aspect='auto')
    for set_ticks in (axes.set_xticks, axes.set_yticks):
        set_ticks(np.arange(size + 1) - 0.5, minor=True)
    axes.grid(which='minor', color=LINE, linewidth=0.6)
    axes.tick_params(which='minor', length=0)
    axes.tick_params(
        length=0, labelsize=8 if size <= _SOME else 6, labelcolor=INK
    )
    axes.spines[:].set_color(LINE)
    for row, column in zip(*np.nonzero(counts), strict=True):
        if size > _SOME:
            break  # too small to be read
        share = shares[row, column]
        text = f'{counts[row, column]:,}'
        axes.text(
            column,
            row,
            f'{text}\n{share:.1%}' if size <= _FEW else text,
            ha='center',
            va='center',
            fontsize=8 if size <= _FEW else 6,
            color='white' if share > 0.6 else INK,
        )


def _commonest(
    names: list[str], counts: np.ndarray
) -> tuple[list[str], np.ndarray]:
    """Merges the rarest classes, so that at most MOST_CLASSES are left."""
    if len(names) <= MOST_CLASSES:
        return names, counts
    order = np.argsort(-counts.sum(1), kind='stable')
    common = np.sort(order[: MOST_CLASSES - 1])
    place = np.full(len(names), MOST_CLASSES - 1)
    place[common] = np.arange(MOST_CLASSES - 1)
    fewer = np.zeros((MOST_CLASSES, MOST_CLASSES), counts.dtype)
    np.add.at(fewer, (place[:, None], place[None, :]), counts)
    others = f'{len(names) - len(common)} others'
    return [*(names[number] for number in common), others], fewer
