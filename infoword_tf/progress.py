"""Progress of long work: a bar on a terminal, lines in logs.

On a terminal or in a notebook the bar is tqdm's. In a file or a pipe there is
a line every half minute and one at the end, and none where work takes less.
"""

import functools
import io
import sys
from typing import Any

EVERY = 30.0  # seconds between lines


def bar(*args: Any, **kwargs: Any) -> Any:
    """Shows progress; arguments and result as of `tqdm.tqdm`."""
    import tqdm

    watched = sys.stderr.isatty() or 'ipykernel' in sys.modules
    if watched:
        return tqdm.tqdm(*args, **kwargs)
    every = {'mininterval': EVERY, 'delay': EVERY, 'miniters': 1}
    return _lines()(*args, **every, position=0, **kwargs)


@functools.cache
def _lines() -> type:
    """Makes the class of bar that writes lines; imports tqdm late."""
    import tqdm

    class Lines(tqdm.tqdm):
        """Bar that prints each state as a line."""

        @staticmethod
        def status_printer(file: Any) -> Any:
            """Returns a function that prints a state."""
            return lambda state: state and print(state, file=file, flush=True)

        def close(self) -> None:
            """Writes the last state, without the line break after a bar."""
            self.fp = io.StringIO()
            super().close()

    return Lines
