"""Checks of texts that callers pass, before a graph reads them."""

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from infoword_tf import errors

Text = str | bytes
AnyText = TypeVar('AnyText', bound=Text)


def checked(texts: Iterable[Any], name: str = 'texts') -> list[Text]:
    """Lists texts and checks each.

    Args:
        texts: strings or UTF-8 bytes: a list, a tuple, a generator, an array, a
            pandas Series, a tensor. (Bytes that are no UTF-8 are read as
            U+FFFD, here and in exports.)
        name: name of the argument, for errors.

    Raises:
        TypeError: one string instead of several; or an element, named by its
            number from 0, that is no text, such as None or NaN.
        ValueError: an element with half a surrogate pair, which UTF-8 cannot
            hold.
    """
    if isinstance(texts, Text):
        raise TypeError(f'{name} are a list of texts, this is one string')
    try:
        elements = iter(texts)
    except TypeError:
        raise TypeError(
            f'{name} are {_shown(texts)}, and no list of texts'
        ) from None
    return [
        checked_one(text, f'{name}[{number}]')
        for number, text in enumerate(elements)
    ]


def checked_one(text: Any, name: str = 'text') -> Text:
    """Checks one text; args and errors as of `checked`."""
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
            raise errors.InputError(
                'half_surrogate',
                f'{name} holds {half!r} at character {error.start}, half a '
                'surrogate pair, which is no character: join both halves by '
                "text.encode('utf-16', 'surrogatepass').decode('utf-16', "
                "'replace')",
            ) from None
    return text


def _shown(value: Any) -> str:
    """Describes a value and the type in few letters."""
    text = repr(value)
    text = text if len(text) <= 40 else f'{text[:39]}…'
    return text if value is None else f'{text} ({type(value).__name__})'


def distinct(texts: Iterable[AnyText]) -> tuple[list[AnyText], np.ndarray]:
    """Removes repeated texts.

    Returns:
        The distinct texts in the order in which they come first; and of each
        of `texts` its number among them, int64. A str and its UTF-8 are equal.
    """
    number: dict[bytes, int] = {}
    unique: list[AnyText] = []
    numbers = []
    for text in texts:
        key = text.encode() if isinstance(text, str) else text
        if key not in number:
            number[key] = len(unique)
            unique.append(text)
        numbers.append(number[key])
    return unique, np.array(numbers, np.int64)
