"""How two lists of numbers agree."""

import numpy as np


def pearson(predictions: np.ndarray, targets: np.ndarray) -> float:
    """Pearson's correlation of [n] scores; 0 where either is constant."""
    if np.ptp(predictions) == 0 or np.ptp(targets) == 0:
        return 0.0
    return float(np.corrcoef(predictions, targets, dtype=np.float64)[0, 1])


def spearman(predictions: np.ndarray, targets: np.ndarray) -> float:
    """Spearman's: Pearson's of ranks; equal scores share their mean rank."""
    from scipy import stats

    return pearson(stats.rankdata(predictions), stats.rankdata(targets))
