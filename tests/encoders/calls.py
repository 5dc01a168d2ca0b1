"""Encoders called with each input by its name."""

from typing import Any

from infoword_tf.encoders import Encoded, Encoder, Inputs


def run(encoder: Encoder, ids: Any, **given: Any) -> Encoded:
    """Calls it; given: fields of `Inputs`, and what else a call takes."""
    fields = set(Inputs._fields) & set(given)
    inputs = Inputs(ids, **{name: given.pop(name) for name in fields})
    return encoder(inputs, **given)
