"""Whether what was drawn is as likely as is said, to one in a thousand."""

from typing import Any

from scipy import stats

SIGNIFICANCE = 1e-3


def assert_shares(counts: Any, expected: Any = None) -> None:
    """Asserts that counts are those of draws; None: all are as likely."""
    assert stats.chisquare(counts, expected).pvalue > SIGNIFICANCE, counts


def assert_share(count: Any, total: int, share: float = 0.5) -> None:
    """Asserts that so many of all are those of draws of this share."""
    p = stats.binomtest(int(count), total, share).pvalue
    assert p > SIGNIFICANCE, (count, total)
