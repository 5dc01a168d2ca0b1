"""The random numbers of a draw."""

import zlib

import numpy as np


def generator(seed: int, step: int, name: str) -> np.random.Generator:
    """The random numbers of one draw of one step."""
    return np.random.default_rng([seed, step, zlib.crc32(name.encode())])
