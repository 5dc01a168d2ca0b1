"""What every command does alike: complaints, Ctrl-C, the record of a run.

    commands.start(run)                      # of a module that is run

`run()` does the work; a `UsageError`, or anything else that a user can mend,
becomes one sentence on standard error and exit status 1. The choices of a
function that `takes` some are its flags.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import inspect
import json
import os
import pathlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from absl import app, flags, logging

from infoword_tf import files, folders, lazy, preemption
from infoword_tf.choices import REPEATED, SETTINGS, flags_of

# Messages of TensorFlow's C++ parts: fatal ones alone.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
TRACEBACK = 'INFOWORD_TRACEBACK'  # set it to see where an error comes from
# absl::SetMinLogLevel of the release that TensorFlow 2.20 is built with.
_SET_MIN_LOG_LEVEL = (
    '_ZN4absl12lts_2025012714SetMinLogLevelENS0_18LogSeverityAtLeastE'
)
OUT_OF_MEMORY = ('MemoryError', 'ResourceExhaustedError')
NO_MEMORY = (
    'error: out of memory; lower --batch_size, --seq_len or --size'
)
# What Ctrl-C leaves.
NOTHING = 'nothing was written'
GOES_ON = 'the same command goes on from the last checkpoint'
NO_FLAG = '{!r} is no flag; flags begin with --'
# Flags of older runs, as their flags.txt has them.
RENAMED = {f'--gelu={x}': f'--activation=gelu_{x}' for x in ('tanh', 'erf')}
# When Python's collector looks: after so many more objects than were freed.
COLLECTED = 100_000, 20, 20
INTERRUPTED = 130  # as a shell has it: 128 and SIGINT


class UsageError(Exception):
    """Something that was asked for cannot be; the message says what to do."""


def start(
    run: Callable[..., Any],
    words: str | None = None,
    stopped: str | None = None,
) -> None:
    """Parses the flags and runs a command; it does not return.

    `--help` shows every flag of the command, those of the trainer and the
    settings of rows too where it passes them on.

    Args:
        run: the command, with flags of its choices if it `takes` any. What it
            returns is the exit status where that is False or True.
        words: what arguments that are no flags are, which `run` then gets as
            a list; None: there are none.
        stopped: what Ctrl-C leaves, for people.
    """
    own_process()
    kind = getattr(run, 'choices', None)
    if kind is not None:
        define(kind, flags.FLAGS)
        if _has_settings(kind):
            stopped = stopped or GOES_ON
    for flag in _defined():
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)

    def main(argv: Sequence[str]) -> None:
        given = chosen(kind, flags.FLAGS) if kind is not None else {}
        done = functools.partial(run, **given)
        guard(done, argv, words, stopped or NOTHING)

    app.run(main, flags_parser=_parse)


def own_process() -> None:
    """Makes a process that is one command's begin and end sooner.

    Modules and graphs are millions of objects that stay. Python's collector
    would visit them all, often while they are made, and twice when the process
    ends, which of a small run takes longer than its steps.
    """
    lazy.lean()
    gc.set_threshold(*COLLECTED)
    atexit.register(gc.freeze)


def _defined() -> Iterator[flags.Flag]:
    """All flags of this command: what absl brings along is none of them."""
    for module, found in flags.FLAGS.flags_by_module_dict().items():
        if not module.startswith('absl'):
            yield from found


def _parse(argv: Sequence[str]) -> list[str]:
    """Gives what is no flag. Help that was asked for is no failure."""
    try:
        return flags.FLAGS([argv[0], *_renamed(argv[1:])])
    except SystemExit:  # absl has printed it
        sys.exit(0)
    except flags.Error:
        return app.parse_flags_with_usage(argv)  # says it, and ends


def _renamed(arguments: Sequence[str]) -> list[str]:
    """Flags as they are called today, those of flagfiles too."""
    found = flags.FLAGS.read_flags_from_files(arguments, force_gnu=False)
    return [RENAMED.get(flag, flag) for flag in found]


def guard(
    run: Callable[..., Any],
    argv: Sequence[str],
    words: str | None = None,
    stopped: str = NOTHING,
) -> None:
    """Runs a command whose flags are parsed; see `start`."""
    logging.set_verbosity(logging.WARNING)
    try:
        if words is None and len(argv) > 1:
            raise UsageError(NO_FLAG.format(argv[1]))
        done = run() if words is None else run(list(argv[1:]))
    except (UsageError, ValueError, OSError, RuntimeError) as error:
        if os.environ.get(TRACEBACK):
            raise
        print(f'error: {error}', file=sys.stderr, flush=True)
        sys.exit(1)
    except preemption.Preempted as error:
        print(f'stopped {error}', file=sys.stderr, flush=True)
        sys.exit(preemption.STATUS)
    except Exception as error:
        # By name: a command need not have imported TensorFlow.
        lacking = type(error).__name__ in OUT_OF_MEMORY
        if not lacking or os.environ.get(TRACEBACK):
            raise
        print(NO_MEMORY, file=sys.stderr, flush=True)
        sys.exit(1)
    except KeyboardInterrupt:
        print(f'\nstopped; {stopped}', file=sys.stderr, flush=True)
        sys.exit(INTERRUPTED)
    if done is False:
        sys.exit(1)


def hush_tensorflow() -> None:
    """Holds all of TensorFlow's C++ parts to TF_CPP_MIN_LOG_LEVEL.

    And its Python parts to what concerns a user: that graphs are traced often,
    one of each language's held-out text, say, is nothing to be done about.

    XLA logs through a library that was never told of it, and begins with a
    warning about just that. Its level can be set from outside alone; where a
    build of TensorFlow has it under another name nothing is changed.
    """
    import tensorflow as tf

    folder = pathlib.Path(tf.__file__).parent
    for library in folder.glob('libtensorflow_framework.*'):
        found = ctypes.CDLL(str(library))
        with contextlib.suppress(AttributeError):
            level = int(os.environ.get('TF_CPP_MIN_LOG_LEVEL') or 0)
            found[_SET_MIN_LOG_LEVEL](level)
    tf.get_logger().addFilter(_concerns_users)


def _concerns_users(record: Any) -> bool:
    """Whether a message of TensorFlow is shown."""
    return 'triggered tf.function retracing' not in record.getMessage()


def require(values: Mapping[str, Any], **needed: str) -> None:
    """Complains of flags without a value; `needed`: by flag, what it names."""
    for flag, what in needed.items():
        if not values[flag]:
            raise UsageError(f'--{flag} is missing: name {what}')


def import_extra(module: str, extra: str, what: str) -> types.ModuleType:
    """Imports a module of a package that an extra of this project installs.

    Args:
        module: its full name, such as 'bm25s'.
        extra: the name in extras_require of setup.py, such as 'tasks'.
        what: what needs it, for people: how the sentence of the error begins.

    Raises:
        UsageError: it cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f'{what} needs {module} ({error}): '
            f"pip install 'infoword_tf[{extra}]'"
        ) from None


def result_folder(workdir: str) -> pathlib.Path:
    """--workdir of an evaluation: a folder that is no model's.

    Raises:
        UsageError: it holds a model, whose own metrics.json would be lost.
    """
    folder = pathlib.Path(workdir)
    if (folder / 'config.json').exists():
        raise UsageError(
            f'--workdir={workdir} holds a model, whose own metrics.json '
            'would be lost; name another folder'
        )
    return folder


def record(folder: pathlib.Path, values: Mapping[str, Any]) -> None:
    """Keeps a command's result: metrics.json, and the last line printed."""
    folder.mkdir(parents=True, exist_ok=True)
    files.write_json(folder / 'metrics.json', values)
    print(json.dumps(values), flush=True)


def takes(kind: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes of `run(given, chosen)` a function of choices by name.

    From Python `run(steps=3, settings={'dim.critic': 'dot'})` is what
    `--steps=3 --dim.critic=dot` is to the command: read by the same parser.
    Choices that are None are not made.

    Args:
        kind: a dataclass of `choices.flag`s, what `given` is; `chosen` has by
            name what was chosen alone. Words of a command come before both.
    """

    def decorate(run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def called(*words: Sequence[str], **named: Any) -> Any:
            made = folders.resolved(kind, parse(kind, typed(named)))
            return run(*words, kind(**made), made)

        known = inspect.signature(kind).parameters.values()
        called.__signature__ = inspect.Signature(
            [x.replace(kind=inspect.Parameter.KEYWORD_ONLY) for x in known]
        )
        called.choices = kind
        return called

    return decorate


def typed(named: Mapping[str, Any]) -> list[str]:
    """Choices by name as they are typed, sorted by name."""
    flat = {**named, **(named.get(SETTINGS) or {})}
    flat.pop(SETTINGS, None)
    arguments = []
    for name, value in sorted(flat.items()):
        if isinstance(value, bool):
            arguments.append(f'--{name}' if value else f'--no{name}')
        elif name in REPEATED and not isinstance(value, str | None):
            # An empty one takes back what is the default.
            arguments += [f'--{name}={one}' for one in value or ['']]
        elif isinstance(value, list | tuple):
            serializer = flags.CsvListSerializer(',')
            arguments.append(f'--{name}={serializer.serialize(value)}')
        elif value is not None:
            arguments.append(f'--{name}={value}')
    return arguments


def flagfile(named: Mapping[str, Any]) -> str:
    """Choices by name, as a flagfile that makes the command run them again."""
    return '\n'.join(typed(named)) + '\n'


def parse(kind: type, arguments: Sequence[str]) -> dict[str, Any]:
    """The choices that were typed, by name.

    Raises:
        UsageError: there is no such flag, or it has not such a value.
    """
    values = flags.FlagValues()
    define(kind, values)
    try:
        rest = values(['', *_renamed(arguments)])[1:]
    except flags.Error as error:
        raise UsageError(str(error)) from None
    if rest:
        raise UsageError(NO_FLAG.format(rest[0]))
    return chosen(kind, values)


def _has_settings(kind: type) -> bool:
    """Whether choices are of rows too."""
    return any(field.name == SETTINGS for field in fields(kind))


def define(kind: type, values: flags.FlagValues) -> None:
    """Flags of choices in `values`, and those of settings.

    `kind.settings_of(row)` says which, by name; without it they are all.
    """
    defaults = {field.name: field.default for field in fields(kind)}
    for name, (of, flag) in flags_of(kind).items():
        default = defaults[name] if flag.shown is None else flag.shown
        _define(name, of, default, flag.help, flag, values)
    if not _has_settings(kind):
        return
    from infoword_tf.objectives import TABLE

    settings_of = getattr(kind, 'settings_of', lambda row: TABLE[row].settings)
    for row in TABLE:
        for name, known in settings_of(row).items():
            if not known.decided_by:
                text = f'{known.help} By default {known.default}.'
                of = known.kind or type(known.default)
                _define(f'{row}.{name}', of, None, text, known, values)


class _TrueOrNamed(flags.ArgumentParser):
    """True or False as of a flag that is only that, or else a string."""

    def parse(self, argument: Any) -> bool | str:
        """As of any parser."""
        try:
            return flags.BooleanParser().parse(argument)
        except ValueError:
            return argument

    def flag_type(self) -> str:
        """For --help in XML."""
        return 'bool or string'


def _define_true_or_named(
    name: str, default: Any, text: str, flag_values: flags.FlagValues
) -> None:
    """A flag that may stand alone (--best, --nobest), or name something."""
    flags.DEFINE_flag(
        flags.Flag(_TrueOrNamed(), None, name, default, text, boolean=True),
        flag_values,
    )


_DEFINE = {
    bool: flags.DEFINE_bool, int: flags.DEFINE_integer,
    float: flags.DEFINE_float, str: flags.DEFINE_string,
    tuple: flags.DEFINE_list, bool | str: _define_true_or_named,
}  # fmt: skip


def _define(
    name: str, kind: type, default: Any, text: str, known: Any, values: Any
) -> None:
    """A flag; `known`, a `Flag` or a `Setting`, says its choices and bounds."""
    if known.choices:
        flags.DEFINE_enum(
            name, default, known.choices, text, flag_values=values
        )
        return
    bounds = {}
    if kind in (int, float):
        bounds = {'lower_bound': known.at_least,
                  'upper_bound': known.at_most}  # fmt: skip
    if kind is tuple:
        default = list(default)
        if known.repeated:
            flags.DEFINE_multi_string(name, default, text, flag_values=values)
            return
    _DEFINE[kind](name, default, text, flag_values=values, **bounds)


def chosen(kind: type, values: flags.FlagValues) -> dict[str, Any]:
    """What was typed, by name, as functions that `takes` made want it."""
    present = {name: values[name].value for name in values
               if values[name].present}  # fmt: skip
    for name in REPEATED & present.keys():
        if isinstance(present[name], list) and '' in present[name]:
            # An empty one takes all back.
            behind = present[name][::-1].index('')
            present[name] = present[name][len(present[name]) - behind :]
    found = {k: present[k] for k in flags_of(kind) if k in present}
    settings = {k: v for k, v in present.items() if '.' in k}
    return {**found, SETTINGS: settings} if settings else found
