"""What every command does alike: complaints, Ctrl-C, the record of a run.

    commands.start(run)                      # of a module that is run

`run()` does the work; a `UsageError`, or anything else that a user can mend,
becomes one sentence on standard error and exit status 1. The choices of a
function that `takes` some are its flags.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import inspect
import itertools
import json
import os
import pathlib
import re
import signal
import sys
import types
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NoReturn

from absl import app, flags, logging

from infoword_tf import files, folders, lazy, preemption
from infoword_tf.choices import REPEATED, SETTINGS, flags_of
from infoword_tf.errors import UsageError

# Messages of TensorFlow's C++ parts: fatal ones alone.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
TRACEBACK = 'INFOWORD_TRACEBACK'  # set it to see where an error comes from
OUT_OF_MEMORY = ('MemoryError', 'ResourceExhaustedError')
NO_MEMORY = (
    'error: out of memory; lower --batch_size, --seq_len or --size'
)
# What Ctrl-C leaves.
NOTHING = 'nothing was written'
GOES_ON = 'the same command goes on from the last checkpoint'
HELP = re.compile(r'--?(?:help|helpshort|\?|help(full|xml))(?:=.*)?')
NO_FLAG = '{!r} is no flag; flags begin with --'
# Flags of older runs, as their flags.txt has them.
RENAMED = {f'--gelu={x}': f'--activation=gelu_{x}' for x in ('tanh', 'erf')}
# When Python's collector looks: after so many more objects than were freed.
COLLECTED = 100_000, 20, 20
INTERRUPTED = 130  # as a shell has it: 128 and SIGINT


def start(
    run: Callable[..., Any],
    words: str | None = None,
    stopped: str | None = None,
) -> None:
    """Parses the flags and runs a command; it does not return.

    `--help` shows what `helptext` says.

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

    def main(argv: Sequence[str]) -> None:
        given = chosen(kind, flags.FLAGS) if kind is not None else {}
        done = functools.partial(run, **given)
        guard(done, argv, words, stopped or NOTHING)

    app.run(main, flags_parser=functools.partial(_parse, kind))


def own_process() -> None:
    """Makes a process that is one command's begin and end sooner.

    Modules and graphs are millions of objects that stay. Python's collector
    would visit them all, often while they are made, and twice when the process
    ends: a second and a half of a command that takes five.
    Only time depends on it: if a release of Python breaks it, delete both
    calls of `gc`.
    """
    lazy.lean()
    gc.set_threshold(*COLLECTED)
    atexit.register(gc.freeze)


def _parse(kind: type | None, argv: Sequence[str]) -> list[str]:
    """Gives what is no flag, unless help was asked for."""
    try:
        typed = _renamed(argv[1:])
        options = itertools.takewhile(lambda x: x != '--', typed)
        if asked := [x for x in options if HELP.fullmatch(x)]:
            _help(kind, [x for x in typed if x not in asked], asked[-1])
        return flags.FLAGS([argv[0], *typed])
    except flags.Error:
        return app.parse_flags_with_usage(argv)  # says it, and ends


def _help(kind: type | None, typed: Sequence[str], asked: str) -> NoReturn:
    """Prints what was asked for, by what else was typed, and ends."""
    from infoword_tf import helptext

    with contextlib.suppress(flags.Error):
        flags.FLAGS(['', *typed])
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # --helpfull | head
    about = sys.modules['__main__'].__doc__ or ''
    name = HELP.fullmatch(asked)[1] or asked.partition('=')[2]
    try:
        if name == 'xml':
            flags.FLAGS.write_help_in_xml_format(sys.stdout)
        else:
            print(helptext.page(flags.FLAGS, kind, about, name))
    except ValueError as error:
        print(f'error: {error}', file=sys.stderr)
        sys.exit(1)
    sys.exit(0)


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
    """Imports TensorFlow; its Python parts say only what concerns a user.

    That graphs are traced often, one of each language's held-out text, say, is
    nothing to be done about.
    """
    lazy.import_keras()
    import tensorflow as tf

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


def refuse(chosen: Container[str], names: Iterable[str], why: str) -> None:
    """Complains of the first of these flags that was given; {}: its name."""
    for name in names:
        if name in chosen:
            raise UsageError(why.format(f'--{name}'))


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
                text = known.help
                if known.default not in (None, ''):
                    text += f' By default {known.default}.'
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
