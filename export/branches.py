"""Weights of blocks, split into branches that are computed side by side.

See layers/attention.py, which computes them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infoword_tf import adapters, errors

ENCODERS = 'transformer', 'modern'  # whose blocks can have branches
# Weights that are vectors of a kernel's columns, by the kernel.
_VECTORS = {'qkv_bias': 'qkv_kernel', 'inner_bias': 'inner_kernel'}
_ROWS = 'output_kernel', 'outer_kernel'  # of the sums over heads, inner numbers


def check(name: str, arguments: Mapping[str, Any], count: int) -> None:
    """Checks that an encoder can have so many branches.

    Args:
        name: name of the encoder.
        arguments: arguments of the encoder.
        count: number of branches.

    Raises:
        ValueError: its blocks have none, or heads or inner numbers do not
            divide.
    """
    if name not in ENCODERS:
        raise errors.InputError(
            'encoder_without_branches',
            f'--branches={count}: the encoder {name} has none; leave the flag '
            f'out, it is for {" and ".join(ENCODERS)}',
        )
    sizes = {
        'heads': arguments['heads'],
        'heads of keys': arguments.get('kv_heads') or arguments['heads'],
        'inner numbers': arguments['inner_width'],
    }
    for what, size in sizes.items():
        if size % count:
            raise errors.InputError(
                'branches_divide_heads',
                f'--branches={count} does not divide {size} {what} of this '
                'encoder; try 2',
            )


def split(
    path: str, value: np.ndarray, shapes: Mapping[str, Any], count: int
) -> Sequence[np.ndarray]:
    """Splits a weight of a block into branches.

    Args:
        path, value: name and values of the weight.
        shapes: shapes of all weights of the encoder, by path.
        count: number of branches; it has passed `check`.

    Returns:
        The shares; the weight alone, if it is not split.
    """
    folder, _, name = path.rpartition('/')
    kernel = f'{folder}/{_VECTORS.get(name, name)}'
    columns = adapters.parts_of(kernel, shapes, 'all')
    if count == 1 or not columns:
        return (value,)
    if name in _ROWS:
        return np.split(value, count)
    # Queries, keys and values, or both halves of a gate, are joined.
    joined = [
        np.split(value[..., x.begin : x.begin + x.width], count, -1)
        for x in columns
    ]
    return [np.concatenate(each, -1) for each in zip(*joined, strict=True)]
