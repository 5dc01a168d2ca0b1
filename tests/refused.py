"""Assertions about errors, by their ids."""

import contextlib
from collections.abc import Iterator
from typing import Any

from infoword_tf import errors


@contextlib.contextmanager
def refused(id: str, *values: Any) -> Iterator[None]:
    """Expects an error with an id, whose message names all values.

        with refused('unknown_row', 'berta'):
            parse('berta')
    """
    try:
        yield
    except (errors.UsageError, errors.InputError) as error:
        assert error.id == id, f'{error.id!r}, not {id!r}: {error}'
        for value in values:
            assert str(value) in str(error), f'no {value} in: {error}'
    else:
        raise AssertionError(f'{id} was not refused')
