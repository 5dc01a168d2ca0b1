"""A setting of a row, a view or an encoder: default, bounds and help.

A setting is defined once: as a field of the class that it configures
(`Configurable`), or in the `ViewSpec` of a view. `commands.define` makes of it
the flag `--ROW.NAME` or `--VIEW.NAME`, and `resolve` its value. Arguments of
encoders are settings too; those with a `flag` become a choice of that name in
`choices`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from infoword_tf.errors import InputError


@dataclasses.dataclass(frozen=True)
class Setting:
    """Default, bounds and help of a value that a run may choose.

    Attributes:
        default: value where nothing is chosen, of the setting's type. None:
            the class says what None means.
        help: one sentence for --help.
        choices: all values of a string.
        at_least, at_most: the smallest number, and the largest.
        flag: the flag of an encoder's argument; '': there is no flag.
        free: whether an encoder's argument may differ from the value that the
            weights were trained with.
        needs: (another setting, its values), without one of which the setting
            does nothing.
        encoder: arguments of the encoder that a value fixes, by value.
        decided_by: name of what decides the setting instead of a flag: other
            flags of a command, or the data.
        kind: the type, where the default is None.
        model: whether the value names a workdir, as `choices.Flag`.
        defaults: another setting, and by its value the default where that is
            another one.
    """

    default: Any
    help: str
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    flag: str = ''
    free: bool = False
    needs: tuple[str, tuple[Any, ...]] | None = None
    encoder: Mapping[Any, Mapping[str, Any]] = dataclasses.field(
        default_factory=dict
    )
    decided_by: str = ''
    kind: type | None = None
    model: bool = False
    defaults: tuple[str, Mapping[Any, Any]] | None = None

    def check(self, flag: str, value: Any) -> Any:
        """Returns a value as the type of the default, or raises ValueError."""
        if value is None and self.default is None:
            return None
        kind = self.kind or type(self.default)
        try:
            value = kind(value)
        except (TypeError, ValueError):
            raise InputError(
                'setting_of_wrong_type',
                f'--{flag}={value!r} is no {kind.__name__}',
            ) from None
        if self.choices and value not in self.choices:
            raise InputError(
                'unknown_setting_value',
                f'--{flag}={value}: known are {", ".join(self.choices)}',
            )
        if self.at_least is not None and not value >= self.at_least:
            raise InputError(
                'setting_too_small',
                f'--{flag}={value}: it is {self.at_least:g} or more',
            )
        if self.at_most is not None and not value <= self.at_most:
            raise InputError(
                'setting_too_large',
                f'--{flag}={value}: it is {self.at_most:g} or less',
            )
        return value


def setting(default: Any, help_: str, **more: Any) -> Any:
    """Returns a field of a `Configurable` class; args as of `Setting`."""
    return Setting(default, help_, **more)


class Configurable:
    """A class whose fields are settings.

        class Contrast(Configurable):
            temperature: float = setting(0.05, 'What a cosine is divided by.')

    Attributes:
        settings: settings of the class and of the classes above it, by name.
    """

    settings: ClassVar[dict[str, Setting]] = {}

    def __init_subclass__(cls, **kwargs: Any):
        """Collects the settings of a class when Python defines the class."""
        super().__init_subclass__(**kwargs)
        fields = {k: v for k, v in vars(cls).items() if isinstance(v, Setting)}
        cls.settings = {**cls.settings, **fields}

    def set_values(self, chosen: Mapping[str, Any]) -> None:
        """Sets every field to the chosen value, or to the default.

        Raises:
            TypeError: a name is no field.
            ValueError: a value is out of bounds.
        """
        if unknown := sorted(set(chosen) - set(self.settings)):
            raise TypeError(
                f'{type(self).__name__} has no setting {unknown[0]!r}'
            )
        for name, known in self.settings.items():
            value = chosen.get(name, known.default)
            setattr(self, name, known.check(name, value))
