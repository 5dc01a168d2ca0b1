"""Comparison of arrays, and of arrays by name."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def same(actual: Any, expected: Any, message: str = '') -> None:
    """Asserts that numbers are equal."""
    np.testing.assert_array_equal(actual, expected, message)


def near(
    actual: Any, expected: Any, rtol: float = 1e-7, atol: float = 0.0,
    message: str = '',
) -> None:  # fmt: skip
    """Asserts that numbers are near each other."""
    np.testing.assert_allclose(actual, expected, rtol, atol, err_msg=message)


def assert_near(
    actual: Mapping[str, Any],
    expected: Mapping[str, Any],
    rtol: float = 0.0,
    atol: float = 0.0,
    of_each: float = 0.0,
    of_all: float = 0.0,
) -> None:
    """Asserts that what two dicts hold under each name is near, or equal.

    Args:
        actual: arrays, tensors or variables; it may have more names.
        expected: the same kinds; some at least.
        rtol: bound, relative to each number.
        atol: bound that is added.
        of_each: bound, relative to the largest number of an array.
        of_all: bound, relative to the largest number of all arrays.
    """
    arrays = {name: np.asarray(x) for name, x in expected.items()}
    largest = {name: np.abs(x).max(initial=0) for name, x in arrays.items()}
    atol += of_all * max(largest.values())
    for name, array in arrays.items():
        np.testing.assert_allclose(
            np.asarray(actual[name]), array, rtol,
            atol + of_each * largest[name], err_msg=name,
        )  # fmt: skip
