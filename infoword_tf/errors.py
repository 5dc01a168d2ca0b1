"""Errors that name what a user can mend."""


class UsageError(Exception):
    """A request that cannot be met; the message says how to change the request.
    """
