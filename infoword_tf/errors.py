"""Errors that name what a user can mend.

    raise errors.UsageError('unknown_row', f'no row {row!r}; rows are {rows}')

The id says what is refused, and one place alone raises it: tests name the id,
so that words can change. The message says what, where, and what to do.
"""


class _Refusal(Exception):
    """An error with an id.

    Attributes:
        id: name in snake_case, of two to five words.
    """

    # Without these Keras and AutoGraph make another error of one that is raised
    # in a layer or a graph: without the id, or no ValueError.
    _keras_call_info_injected = ag_pass_through = True

    def __init__(self, id: str, message: str | None = None):
        """Sets the id and the message."""
        if message is None:  # Keras makes errors anew, of the message alone
            id, message = '', id
        super().__init__(message)
        self.id = id


class UsageError(_Refusal):
    """Flags or choices that cannot be met."""


class InputError(_Refusal, ValueError):
    """Files, texts or arguments that a library cannot use."""


class Preempted(BaseException):
    """End of a run that the same command continues; the message says why.

    No `Exception`, so that code which catches all exceptions lets it pass.

    Attributes:
        status: exit status of the process, that of TensorFlow's preemption
            handler: start the job again.
    """

    status = 42
