"""A setting of a row or of a view: its default, its bounds and its help.

It stands once, beside what it sets; `commands.define_settings` makes the flag
`--ROW.NAME` of it, and `resolve` the value.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a run may choose.

    Attributes:
        default: its value where nothing is chosen; its type is the setting's.
        help: one sentence for --help.
        choices: all values of a string.
        at_least: the smallest number.
        needs: (another setting, its value) without which this one does
            nothing.
        encoder: by value, the encoder's arguments that it fixes; the row's
            class then knows nothing of it.
    """

    default: Any
    help: str
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    needs: tuple[str, Any] | None = None
    encoder: Mapping[Any, Mapping[str, Any]] = dataclasses.field(
        default_factory=dict
    )

    def check(self, flag: str, value: Any) -> Any:
        """A value that was chosen, as the type of the default.

        Args:
            flag: its name, for complaints.
            value: what was chosen.

        Raises:
            ValueError: it is out of bounds.
        """
        try:
            value = type(self.default)(value)
        except (TypeError, ValueError):
            kind = type(self.default).__name__
            raise ValueError(f'--{flag}={value!r} is no {kind}') from None
        if self.choices and value not in self.choices:
            raise ValueError(
                f'--{flag}={value}: known are {", ".join(self.choices)}'
            )
        if self.at_least is not None and not value >= self.at_least:
            raise ValueError(
                f'--{flag}={value}: it is {self.at_least:g} or more'
            )
        return value
