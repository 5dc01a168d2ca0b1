"""How two lists of numbers agree."""

import warnings

import numpy as np

# Predictions are float32 and come of sums: their last bits say nothing. A
# cosine of two vectors is off by 1e-7; numbers closer than this share of the
# largest are taken for one.
ROUNDING = 8 * float(np.finfo(np.float32).eps)


def pearson(predictions: np.ndarray, targets: np.ndarray) -> float:
    """Computes Pearson's correlation of [n] scores.

    0 where either is constant; predictions that are equal within `ROUNDING`
    are, and a warning says so.
    """
    if _constant(predictions, targets):
        return 0.0
    return _correlation(predictions, targets)


def spearman(predictions: np.ndarray, targets: np.ndarray) -> float:
    """Computes Spearman's: Pearson's of ranks; equal scores share their mean
    rank. 0 as `pearson`.
    """
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
        return False  # of NaN too
    warnings.warn(
        f'all {len(predictions):,} predictions are equal within rounding (near '
        f'{predictions[0]:.6g}): their correlation counts as 0',
        stacklevel=3,
    )
    return True
