"""A setting of a row, a view or an encoder: default, bounds and help.

It is defined once: as a field of the class that it sets (`Configurable`), or in
the `ViewSpec` of a view. `commands.define` makes the flag `--ROW.NAME` of it,
and `resolve` the value. Arguments of encoders are such fields too; those that
name a `flag` become a choice of that name in `choices`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a run may choose.

    Attributes:
        default: its value where nothing is chosen; its type is the setting's.
            None: what that means is the class's.
        help: one sentence for --help.
        choices: all values of a string.
        at_least, at_most: the smallest number, and the largest.
        flag: of an encoder's argument, what chooses it; '': nothing does.
        free: of such a one, whether weights that were trained with another
            value can be read with this one.
        needs: (another setting, its value) without which this one does
            nothing.
        encoder: by value, the encoder's arguments that it fixes.
        decided_by: what decides it, where no flag of its own does: other
            flags of a command, or the data.
        kind: its type, where the default is None.
        model: whether it names a workdir, as `choices.Flag`.
    """

    default: Any
    help: str
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    flag: str = ''
    free: bool = False
    needs: tuple[str, Any] | None = None
    encoder: Mapping[Any, Mapping[str, Any]] = dataclasses.field(
        default_factory=dict
    )
    decided_by: str = ''
    kind: type | None = None
    model: bool = False

    def check(self, flag: str, value: Any) -> Any:
        """A value, as the type of the default; ValueError: out of bounds."""
        if value is None and self.default is None:
            return None
        kind = self.kind or type(self.default)
        try:
            value = kind(value)
        except (TypeError, ValueError):
            raise ValueError(
                f'--{flag}={value!r} is no {kind.__name__}'
            ) from None
        if self.choices and value not in self.choices:
            raise ValueError(
                f'--{flag}={value}: known are {", ".join(self.choices)}'
            )
        if self.at_least is not None and not value >= self.at_least:
            raise ValueError(
                f'--{flag}={value}: it is {self.at_least:g} or more'
            )
        if self.at_most is not None and not value <= self.at_most:
            raise ValueError(
                f'--{flag}={value}: it is {self.at_most:g} or less'
            )
        return value


def setting(default: Any, help_: str, **more: Any) -> Any:
    """A field of a `Configurable` class; args as of `Setting`."""
    return Setting(default, help_, **more)


class Configurable:
    """A class whose fields are settings, and whose constructor sets them.

        class Contrast(Configurable):
            temperature: float = setting(0.05, 'What a cosine is divided by.')

    Attributes:
        settings: by name, those of the class and of the classes above it.
    """

    settings: ClassVar[dict[str, Setting]] = {}

    def __init_subclass__(cls, **kwargs: Any):
        """Called by Python for each class: collects its fields."""
        super().__init_subclass__(**kwargs)
        own = {k: v for k, v in vars(cls).items() if isinstance(v, Setting)}
        cls.settings = {**cls.settings, **own}

    def set_values(self, chosen: Mapping[str, Any]) -> None:
        """Sets every field, to its default where nothing was chosen.

        Raises:
            TypeError: there is no such field.
            ValueError: a value is out of bounds.
        """
        if unknown := sorted(set(chosen) - set(self.settings)):
            raise TypeError(
                f'{type(self).__name__} has no setting {unknown[0]!r}'
            )
        for name, known in self.settings.items():
            value = chosen.get(name, known.default)
            setattr(self, name, known.check(name, value))
