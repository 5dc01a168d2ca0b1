"""How far long work has come: a bar where somebody watches, lines in logs.

On a terminal or in a notebook this is tqdm's bar. Elsewhere, in a file or a
pipe, it is a line every half minute and one at the end; of work that takes less
there is none.
"""

import functools
import io
import sys
from typing import Any

EVERY = 30.0  # seconds, where nobody watches


def bar(*args: Any, **kwargs: Any) -> Any:
    """Shows progress; args as of `tqdm.tqdm`, to which what comes back is
    alike.
    """
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
        """A bar whose every state is a line of its own."""

        @staticmethod
        def status_printer(file: Any) -> Any:
            """Makes what writes a state."""
            return lambda state: state and print(state, file=file, flush=True)

        def close(self) -> None:
            """Writes the last state, without the line break that would follow
            a bar.
            """
            self.fp = io.StringIO()
            super().close()

    return Lines
