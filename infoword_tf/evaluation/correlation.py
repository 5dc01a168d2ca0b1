"""Correlations of predictions with targets."""

import warnings

import numpy as np

# Predictions are float32 sums, whose last bits are rounding: a cosine of two
# vectors is off by 1e-7. Numbers closer than this share of the largest count as
# equal.
ROUNDING = 8 * float(np.finfo(np.float32).eps)


def pearson(predictions: np.ndarray, targets: np.ndarray) -> float:
    """Computes Pearson's correlation of [n] scores.

    Constant scores have correlation 0. Predictions that are equal within
    `ROUNDING` count as constant, with a warning.
    """
    if _constant(predictions, targets):
        return 0.0
    return _correlation(predictions, targets)


def spearman(predictions: np.ndarray, targets: np.ndarray) -> float:
    """Computes Spearman's, `pearson` of ranks; equal scores share a rank."""
    from scipy import stats

    if _constant(predictions, targets):
        return 0.0
    return _correlation(stats.rankdata(predictions), stats.rankdata(targets))


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(x, y, dtype=np.float64)[0, 1])


def _constant(predictions: np.ndarray, targets: np.ndarray) -> bool:
    """Tells whether values are equal within rounding; warns of predictions."""
    if np.ptp(targets) == 0:
        return True
    if not np.ptp(predictions) <= ROUNDING * np.max(np.abs(predictions)):
        return False  # also if there are NaN
    warnings.warn(
        f'all {len(predictions):,} predictions are equal within rounding (near '
        f'{predictions[0]:.6g}): their correlation counts as 0',
        stacklevel=3,
    )
    return True
