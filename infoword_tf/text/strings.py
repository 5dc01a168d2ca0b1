"""Texts as callers have them: looked at before a graph reads them, each once.

Glossary of shapes: n texts, N distinct ones.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

Text = str | bytes


def checked(texts: Iterable[Any], name: str = 'texts') -> list[Text]:
    """Lists texts, each looked at.

    Args:
        texts: of strings or UTF-8 bytes: a list, a tuple, a generator, an
            array, a pandas Series, a tensor. (Bytes that are no UTF-8 are read
            with U+FFFD in their place, here and in exports.)
        name: what complaints call them.

    Raises:
        TypeError: one string instead of several, or what is no text, such as
            None or NaN; with its number, from 0.
        ValueError: half a surrogate pair, which UTF-8 cannot hold; likewise.
    """
    if isinstance(texts, Text):
        raise TypeError(f'{name} are a list of texts, this is one string')
    try:
        several = iter(texts)
    except TypeError:
        raise TypeError(
            f'{name} are {_shown(texts)}, and no list of texts'
        ) from None
    return [
        checked_one(text, f'{name}[{number}]')
        for number, text in enumerate(several)
    ]


def checked_one(text: Any, name: str = 'text') -> Text:
    """Looks at one text; args and errors as of `checked`."""
    if not isinstance(text, Text) and hasattr(text, '__array__'):
        value = np.asarray(text)  # a scalar of TensorFlow or NumPy
        text = value.item() if value.ndim == 0 else text
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise TypeError(
            f'{name} is {_shown(text)}, and no string: give a str (or bytes of '
            "UTF-8), '' where there is no text"
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            half = text[error.start]
            raise ValueError(
                f'{name} holds {half!r} at character {error.start}, half a '
                'surrogate pair, which is no character: join both halves by '
                "text.encode('utf-16', 'surrogatepass').decode('utf-16', "
                "'replace')"
            ) from None
    return text


def _shown(value: Any) -> str:
    """A value and what it is, in few letters."""
    shown = repr(value)
    shown = shown if len(shown) <= 40 else f'{shown[:39]}…'
    kind = type(value).__name__
    return shown if value is None else f'{shown} ({kind})'


def distinct(texts: Iterable[Text]) -> tuple[list[Text], np.ndarray]:
    """Parts texts into those that differ and where each stands.

    Returns:
        N texts in the order of their first places, and [n] int64, which of
        them each text is. A str and its UTF-8 are one text.
    """
    number: dict[bytes, int] = {}
    several: list[Text] = []
    place = []
    for text in texts:
        key = text.encode() if isinstance(text, str) else text
        if key not in number:
            number[key] = len(several)
            several.append(text)
        place.append(number[key])
    return several, np.array(place, np.int64)
