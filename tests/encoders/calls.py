"""Encoders called with each input by its name."""

from typing import Any

import numpy as np

from infoword_tf.encoders import Encoded, Encoder, Inputs


def run(encoder: Encoder, ids: Any, **given: Any) -> Encoded:
    """Calls it; given: fields of `Inputs`, and what else a call takes."""
    fields = set(Inputs._fields) & set(given)
    inputs = Inputs(ids, **{name: given.pop(name) for name in fields})
    return encoder(inputs, **given)


def assert_blocks_are_alone(
    encoder: Encoder, ids: Any, key: Any, atol: float = 1e-6
) -> None:
    """Of ids [3, 9] in which every block of a row gives what it gives alone."""
    rows, length = ids.shape
    blocks = np.array([[0] * 4 + [1] * 5, [7] * 2 + [3] * 7, [1] * length])
    found = encoder(Inputs(ids, block_ids=blocks), key=key).states
    for row, cut in zip(range(rows), (4, 2, length), strict=True):
        for part in (slice(0, cut), slice(cut, length)):
            if ids[row, part].size:
                alone = encoder(Inputs(ids[row : row + 1, part])).states
                np.testing.assert_allclose(
                    found[row, part], alone[0], atol=atol
                )
