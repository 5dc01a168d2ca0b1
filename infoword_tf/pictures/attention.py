"""Which tokens of a view a token may look at, from the fields of the view."""

from typing import Any

import numpy as np


def text_of(x: Any, number: int = 0) -> np.ndarray:
    """One text of a field of a view: [T] of [B, T], the first of [B, K, T]."""
    x = np.asarray(x)[number]
    return x if x.ndim == 1 else x[0]


def seen(
    view: Any,
    number: int = 0,
    causal: bool = False,
    memory: int = 0,
    queries: np.ndarray | None = None,
) -> np.ndarray:
    """What the tokens of one text may look at.

    Args:
        view: a `views.View`.
        number: which text of the batch.
        causal: whether the encoder looks back alone.
        memory: M, which all tokens see.
        queries: [Q] places of the query stream; None: all tokens, of the
            content stream.

    Returns:
        [Q or T, M + T] bool.
    """
    length = len(text_of(view.ids, number))
    places = np.arange(length)
    looking = places if queries is None else np.asarray(queries)
    allowed = np.ones((len(looking), length), bool)
    if view.block_ids is not None:
        block = text_of(view.block_ids, number)
        allowed &= block[looking, None] == block
    if causal:
        allowed &= places <= looking[:, None]
    if view.ranks is not None:
        ranks, sees = (text_of(x, number) for x in (view.ranks, view.sees))
        before = sees[looking, None] > ranks
        if queries is None:
            before |= looking[:, None] == places
        allowed &= before
    return np.hstack([np.ones((len(looking), memory), bool), allowed])
