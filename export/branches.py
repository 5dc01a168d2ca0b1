"""Weights of blocks, split into branches that are computed side by side.

See layers/branches.py, which computes them.
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
        name: of the encoder.
        arguments: of the encoder.
        count: of branches.

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
    weights: Mapping[str, np.ndarray], count: int
) -> dict[str, Sequence[np.ndarray]]:
    """Splits weights of blocks into branches.

    Args:
        weights: by path, of the whole model.
        count: of branches; it has passed `check`.

    Returns:
        By path, of weights that are split, the shares.
    """
    shapes = {path: value.shape for path, value in weights.items()}
    shares: dict[str, Sequence[np.ndarray]] = {}
    for path, value in weights.items():
        folder, _, name = path.rpartition('/')
        kernel = f'{folder}/{_VECTORS.get(name, name)}'
        columns = adapters.parts_of(kernel, shapes, 'all')
        if not columns:
            continue
        if name in _ROWS:
            shares[path] = np.split(value, count)
        else:  # queries, keys and values, or both halves of a gate, are joined
            joined = [
                np.split(value[..., x.begin : x.begin + x.width], count, -1)
                for x in columns
            ]
            shares[path] = [
                np.concatenate(each, -1) for each in zip(*joined, strict=True)
            ]
    return shares
