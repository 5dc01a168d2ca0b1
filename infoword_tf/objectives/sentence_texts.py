"""Texts of the view `sentences`, as the rows that read it take them.

Shapes: J examples of a sequence, N = B J, S texts of an example.
"""

from collections.abc import Mapping
from typing import Any

from infoword_tf.critics import Compared
from infoword_tf.lazy import ops
from infoword_tf.tensors import Tensor
from infoword_tf.views import View

VIEW, KEYS = 'sentences', 'sentence_keys'


def sentence_numbers(view: View, row: str) -> Tensor:
    """Returns [N, S] int32, equal where texts are; -1 for no text."""
    numbers = view.targets[row]
    return ops.reshape(numbers, (-1, numbers.shape[2]))


def paired_numbers(view: View, row: str) -> tuple[Tensor, Tensor]:
    """Returns [N, S], equal where texts are, and [N], the example of each.

    With one copy, a sentence is its own positive.
    """
    numbers = sentence_numbers(view, row)
    if numbers.shape[1] == 1:
        numbers = ops.repeat(numbers, 2, axis=1)
    return numbers, ops.reshape(view.sequences, (-1,))


def text_weights(view: View, row: str, numbers: Tensor) -> Tensor:
    """Returns the weights of texts, shaped as numbers; 0 for no text."""
    real = ops.cast(numbers >= 0, 'float32')
    weights = ops.reshape(view.weights[row], (-1,))
    return real * (weights if len(real.shape) == 1 else weights[:, None])


def text_places(view: View, row: str) -> Tensor:
    """Returns where each text begins, [B, J S] int32; -1 for no text."""
    weights = text_weights(view, row, sentence_numbers(view, row))
    places = view.places[row]
    return ops.where(ops.reshape(weights, places.shape) > 0, places, -1)


def compared_texts(view: View, row: str) -> Compared:
    """Returns all texts of VIEW or KEYS, for a critic."""
    numbers = sentence_numbers(view, row)
    _, slots, texts = view.targets[row].shape
    return Compared(
        view,
        slots * texts,
        view.places.get(row),
        text_weights(view, row, numbers),
    )


def compared_keys(view: View, row: str) -> Compared:
    """Returns b of the examples of VIEW, as keys: vectors [N, ...]."""
    numbers, _ = paired_numbers(view, row)
    return Compared(view, 0, None, text_weights(view, row, numbers[:, 1]))


def source_of(settings: Mapping[str, Any]) -> str:
    """Names the source of the texts of a row that reads VIEW."""
    return 'text_pairs' if settings['pairs'] else 'sentences'
