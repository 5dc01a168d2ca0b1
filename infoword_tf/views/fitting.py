"""Truncation of two texts that share a sequence."""

from typing import Any

import numpy as np

from infoword_tf.tensors import Tensor


def fitting_lengths(
    first: Tensor, second: Tensor, total: int, xp: Any = np
) -> tuple[Tensor, Tensor]:
    """Returns how many tokens of two texts fit into `total` together.

    The longer text is truncated first, as `longest_first` of Hugging Face's
    tokenizers does it.

    Args:
        first, second: [...] integers, tokens of each.
        total: tokens of both at most.
        xp: the module of the arrays, NumPy or TensorFlow.
    """
    swapped = first > second
    short, long = xp.minimum(first, second), xp.maximum(first, second)
    half = xp.zeros_like(short) + total // 2
    long = xp.where(short > total, short, xp.maximum(short, total - short))
    beyond = short + long > total
    short = xp.where(beyond, half, short)
    long = xp.where(beyond, total - half, long)
    long = xp.minimum(long, xp.maximum(first, second))
    return xp.where(swapped, long, short), xp.where(swapped, short, long)
