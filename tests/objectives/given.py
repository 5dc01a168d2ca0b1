"""A `Batch` of states that a test chooses, as `Model.batches` would make it."""

from collections.abc import Mapping
from typing import Any

from infoword_tf.encoders import Encoded
from infoword_tf.layers import dropout
from infoword_tf.objectives import Batch, Replicas, Statistics
from tests import zoo


def batch_of(
    views: Mapping[str, Any],
    states: Mapping[str, Any],
    key: Any = None,
    limit: int | None = None,
    statistics: Statistics | None = None,
) -> Batch:
    """One replica's batch.

    Args:
        views: by name.
        states: by view, [B, P, D] at the row's places.
        key: of a training step; None: held-out text, plain operations.
        limit: M of held-out text.
        statistics: those of the zoo where None.
    """
    return Batch(
        views,
        {name: {'encoder': [Encoded(x)]} for name, x in states.items()},
        zoo.statistics() if statistics is None else statistics,
        Replicas(),
        dropout.new_key(0) if key is None else key,
        training=key is not None,
        limit=limit,
    )


def states_of(encoded: Any, row: str, view: str) -> Any:
    """Of what `Model.encode` gives, the states of the trained encoder."""
    return encoded[row][view]['encoder'][0].states
