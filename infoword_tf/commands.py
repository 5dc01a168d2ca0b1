"""The frame of every command: flags, complaints, Ctrl-C, progress, the record.

    commands.start(run)                      # of a module that is run

`run()` does the work; a `UsageError`, or anything else that a user can mend,
becomes one sentence on standard error and exit status 1. The flags are made of
the choices that `run` `takes`.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import inspect
import io
import itertools
import json
import os
import pathlib
import re
import signal
import sys
import types
from collections.abc import (
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import fields
from typing import Any, NoReturn

from absl import app, flags, logging

from infoword_tf import files, folders, lazy
from infoword_tf.choices import REPEATED, SETTINGS, flags_of
from infoword_tf.errors import InputError, Preempted, UsageError

# Messages of TensorFlow's C++ parts: fatal ones alone.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
TRACEBACK = 'INFOWORD_TRACEBACK'  # set it to see where an error comes from
OUT_OF_MEMORY = ('MemoryError', 'ResourceExhaustedError')
NO_MEMORY = (
    'error: out of memory; lower --batch_size, --seq_len or --size'
)
# Printed after Ctrl-C.
NOTHING = 'nothing was written'
GOES_ON = 'the same command goes on from the last checkpoint'
HELP = re.compile(r'--?(?:help|helpshort|\?|help(full|xml))(?:=.*)?')
NO_FLAG = '{!r} is no flag; flags begin with --'
# Flags of older runs, flagfiles and programs: a name, or a name with its value.
RENAMED = {
    'gelu=tanh': 'activation=gelu_tanh',
    'gelu=erf': 'activation=gelu_erf',
    'skip_gram.window': 'words.window',
    'skip_gram.subsample': 'words.subsample',
    'skip_gram.negatives': 'words.negatives',
    'cbow.window': 'words.window',
    'cbow.subsample': 'words.subsample',
    'cbow.negatives': 'words.negatives',
    'tlm.restart': 'translated.restart',
    'xlco.masked': 'crossed.masked',
    'plm.k': 'permuted.k',
    'plm.order': 'permuted.order',
    'simcse.keys': 'sentences.keys',
    'simcse.repeat': 'sentences.repeat',
    'simcse.shuffle': 'sentences.shuffle',
    'diffcse.keys': 'sentences.keys',
    'diffcse.repeat': 'sentences.repeat',
    'diffcse.shuffle': 'sentences.shuffle',
    'infocse.keys': 'sentences.keys',
    'infocse.repeat': 'sentences.repeat',
    'infocse.shuffle': 'sentences.shuffle',
}
# Flags of older flagfiles that are gone, and what to do.
GONE = {
    'data_service': 'the run makes its batches itself; leave it out '
    '(docs/scale.md shows a service of tf.data)',
}
TYPED = re.compile(r'(--?(?:no)?)([\w.]+)(.*)', re.S)  # --, name, =value
# Thresholds of Python's garbage collector.
COLLECTED = 100_000, 20, 20
BAR_EVERY = 30.0  # seconds between lines of progress in logs
INTERRUPTED = 130  # as a shell has it: 128 and SIGINT


def start(
    run: Callable[..., Any],
    words: str | None = None,
    stopped: str | None = None,
) -> None:
    """Parses the flags, runs a command and ends the process.

    Args:
        run: the command, with flags of its choices if it `takes` any. False
            as its result is exit status 1.
        words: names the arguments that are no flags, which `run` gets as a
            list; None: such arguments are refused.
        stopped: description, for people, of what is left after Ctrl-C.
    """
    own_process()
    prefer_onednn()
    kind, parsed = getattr(run, 'choices', None), getattr(run, 'parsed', run)
    if kind is not None:
        define(kind, flags.FLAGS)
        if _has_settings(kind):
            stopped = stopped or GOES_ON

    def main(argv: Sequence[str]) -> None:
        command = run
        if kind is not None:  # the values are parsed
            command = functools.partial(parsed, **chosen(kind, flags.FLAGS))
        guard(command, argv, words, stopped or NOTHING)

    app.run(main, flags_parser=functools.partial(_parse, kind))


def runs() -> bool:
    """Returns whether the process is that of a command."""
    return flags.FLAGS.is_parsed()


def own_process() -> None:
    """Makes the process of a command begin and end sooner.

    Modules and graphs are millions of objects that stay. Python's collector
    would visit all of them, often while they are made and twice when the
    process ends: 1.5 seconds of a command that takes five. Only time depends
    on it: if a release of Python breaks it, delete both calls of `gc`.
    """
    lazy.lean()
    gc.set_threshold(*COLLECTED)
    atexit.register(gc.freeze)


def _parse(kind: type | None, argv: Sequence[str]) -> list[str]:
    """Parses flags and returns other arguments, or prints the help and ends."""
    typed = argv[1:]
    try:
        typed = _rename_flags(typed)
        options = itertools.takewhile(lambda x: x != '--', typed)
        if helps := list(filter(None, map(HELP.fullmatch, options))):
            texts = {matched.string for matched in helps}
            _help(kind, [x for x in typed if x not in texts], helps[-1])
        return flags.FLAGS([argv[0], *typed])
    except UsageError as error:
        print(f'error: {error}', file=sys.stderr)
        sys.exit(1)
    except flags.Error:
        # Prints the error, and ends.
        return app.parse_flags_with_usage([argv[0], *typed])


def _help(
    kind: type | None, typed: Sequence[str], matched: re.Match[str]
) -> NoReturn:
    """Prints the page of --help or --help=NAME for other flags, and ends."""
    from infoword_tf import helptext
    from infoword_tf.__main__ import as_installed

    with contextlib.suppress(flags.Error):
        flags.FLAGS(['', *typed])
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # --helpfull | head
    about = sys.modules['__main__'].__doc__ or ''
    name = matched[1] or matched.string.partition('=')[2]
    try:
        if name == 'xml':
            flags.FLAGS.write_help_in_xml_format(sys.stdout)
        else:
            page = helptext.page(flags.FLAGS, kind, about, name)
            print(as_installed(page))
    except ValueError as error:
        print(f'error: {error}', file=sys.stderr)
        sys.exit(1)
    sys.exit(0)


def _rename_flags(arguments: Sequence[str]) -> list[str]:
    """Expands flagfiles, and replaces old flags by the flags of today."""
    typed = flags.FLAGS.read_flags_from_files(arguments, force_gnu=False)
    return [_rename_flag(argument) for argument in typed]


def _rename_flag(argument: str) -> str:
    """Returns an argument, of which an old flag has the name of today.

    Raises:
        UsageError: the flag is gone.
    """
    if not (parts := TYPED.fullmatch(argument)):
        return argument
    dashes, name, value = parts.groups()
    if name in GONE:
        raise UsageError('flag_gone', f'--{name}: {GONE[name]}')
    whole = RENAMED.get(name + value)
    return dashes + (whole or RENAMED.get(name, name) + value)


def guard(
    run: Callable[..., Any],
    argv: Sequence[str],
    words: str | None = None,
    stopped: str = NOTHING,
) -> None:
    """Runs a command whose flags are parsed; see `start`."""
    logging.set_verbosity(logging.WARNING)
    try:
        if words is None:
            refuse_words(argv[1:])
        done = run() if words is None else run(list(argv[1:]))
    except (UsageError, ValueError, OSError, RuntimeError) as error:
        if os.environ.get(TRACEBACK):
            raise
        print(f'error: {error}', file=sys.stderr, flush=True)
        sys.exit(1)
    except Preempted as error:
        print(f'stopped {error}', file=sys.stderr, flush=True)
        sys.exit(error.status)
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


def prefer_onednn() -> None:
    """Makes TensorFlow, if not imported yet, multiply by oneDNN.

    A variable that is set decides. TensorFlow does so itself where a processor
    has AVX512-VNNI or AMX. With AVX2 alone oneDNN saves a sixth of an update,
    and a quarter of the time of long texts.
    """
    if 'tensorflow' not in sys.modules:
        os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '1')


def hush_tensorflow() -> None:
    """Imports TensorFlow, without the warning about graphs traced often.

    There is one for the held-out text of each language, for example.
    """
    prefer_onednn()
    lazy.import_keras()
    import tensorflow as tf

    tf.get_logger().addFilter(_concerns_users)


def _concerns_users(record: Any) -> bool:
    """Tells whether a message of TensorFlow is printed."""
    return 'triggered tf.function retracing' not in record.getMessage()


def refuse_words(words: Sequence[str]) -> None:
    """Raises UsageError for arguments that are no flags."""
    if words:
        raise UsageError('no_flag', NO_FLAG.format(words[0]))


def require(values: Mapping[str, Any], **needed: str) -> list[Any]:
    """Returns the values of flags that must have a value, in order.

    Args:
        values: choices by name.
        needed: meaning of each flag, for the message, by name.

    Raises:
        UsageError: a flag has no value.
    """
    for flag, what in needed.items():
        if not values[flag]:
            raise UsageError(
                'missing_flag', f'--{flag} is missing: name {what}'
            )
    return [values[flag] for flag in needed]


def import_extra(module: str, extra: str, what: str) -> types.ModuleType:
    """Imports a module of a package that an extra of the project installs.

    Args:
        module: full name, such as 'bm25s'.
        extra: the name in extras_require of setup.py, such as 'tasks'.
        what: the feature that needs the module: the error begins with it.

    Raises:
        UsageError: the module cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            'missing_package',
            f'{what} needs {module} ({error}): '
            f"pip install 'infoword_tf[{extra}]'",
        ) from None


def result_folder(workdir: str) -> pathlib.Path:
    """Returns --workdir of an evaluation as a folder.

    Raises:
        UsageError: the folder holds a model, whose metrics.json would be lost.
    """
    folder = pathlib.Path(workdir)
    if (folder / 'config.json').exists():
        raise UsageError(
            'folder_of_model',
            f'--workdir={workdir} holds a model, whose own metrics.json '
            'would be lost; name another folder',
        )
    return folder


def refuse(chosen: Container[str], names: Iterable[str], why: str) -> None:
    """Raises UsageError if a flag was chosen; {} of `why` becomes the flag."""
    for name in names:
        if name in chosen:
            raise UsageError('refused_flag', why.format(f'--{name}'))


def record(folder: pathlib.Path, values: Mapping[str, Any]) -> None:
    """Writes the result of a command to metrics.json, and prints the result."""
    folder.mkdir(parents=True, exist_ok=True)
    files.write_json(folder / 'metrics.json', values)
    print(json.dumps(values), flush=True)


def bar(*args: Any, **kwargs: Any) -> Any:
    """Shows progress; arguments and result as of `tqdm.tqdm`.

    On a terminal or in a notebook the bar is tqdm's. In a file or a pipe there
    is a line every half minute and one at the end, and none where work takes
    less.
    """
    import tqdm

    watched = sys.stderr.isatty() or 'ipykernel' in sys.modules
    if watched:
        return tqdm.tqdm(*args, **kwargs)
    every = {'mininterval': BAR_EVERY, 'delay': BAR_EVERY, 'miniters': 1}
    return _log_bar()(*args, **every, position=0, **kwargs)


@functools.cache
def _log_bar() -> type:
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


def takes(
    kind: type,
    converts: bool = True,
    check: Callable[[Any], None] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes of `run(choices, chosen)` a function of choices by name.

    From Python `run(steps=3, settings={'dim.critic': 'dot'})` is what
    `--steps=3 --dim.critic=dot` is to the command: checked by the same flags.
    Choices that are None are not made.

    Args:
        kind: a dataclass of `choices.flag`s, the class of `choices`; `chosen`
            has by name the explicit ones alone, as they were typed. Words of a
            command come before both.
        converts: whether public folders are converted before `run`, which gets
            workdirs in their place; else `run` does so after its complaints, by
            `folders.with_workdirs`.
        check: refuses choices before that.
    """

    def decorate(run: Callable[..., Any]) -> Callable[..., Any]:
        def parsed(*words: Sequence[str], **chosen: Any) -> Any:
            choices = kind(**chosen)
            if check is not None:
                check(choices)
            choices = folders.with_files(choices, chosen)
            if converts:
                choices = folders.with_workdirs(choices, chosen)
            return run(*words, choices, chosen)

        @functools.wraps(run)
        def called(*words: Sequence[str], **named: Any) -> Any:
            return parsed(*words, **checked(kind, named))

        known = inspect.signature(kind).parameters.values()
        signature = inspect.Signature(
            [x.replace(kind=inspect.Parameter.KEYWORD_ONLY) for x in known]
        )
        vars(called).update(
            __signature__=signature, choices=kind, parsed=parsed
        )
        return called

    return decorate


def checked(kind: type, named: Mapping[str, Any]) -> dict[str, Any]:
    """Returns choices by name, converted and bounded as flags are.

    Raises:
        UsageError: as `parse`.
    """
    values = flags.FlagValues()
    define(kind, values)
    with _refusing_flags():
        for name, value in sorted(_flat(named).items()):
            if value is None:
                continue
            if name in values:
                values[name].parse(_argument(values[name], value))
            else:  # an old name, a flagfile, or no flag
                values(['', *_rename_flags(typed({name: value}))])
    return chosen(kind, values)


@contextlib.contextmanager
def _refusing_flags() -> Iterator[None]:
    """Raises UsageError for an unknown flag, or a value out of bounds."""
    try:
        yield
    except flags.Error as error:
        raise UsageError('bad_flag', str(error)) from None


def _argument(flag: flags.Flag, value: Any) -> Any:
    """Returns a value for the parser of a flag: unchanged, or as text."""
    if isinstance(value, list | tuple):
        if isinstance(flag, flags.MultiFlag):
            # An empty value removes the default.
            return [str(x) for x in value] or ['']
        return flags.CsvListSerializer(',').serialize(value)
    fits = {'float': int | float, 'int': int}.get(flag.flag_type(), bool)
    return value if isinstance(value, fits | bool) else str(value)


def _flat(named: Mapping[str, Any]) -> dict[str, Any]:
    """Returns choices and settings by the names of flags."""
    flat = {**named, **(named.get(SETTINGS) or {})}
    flat.pop(SETTINGS, None)
    return flat


def typed(named: Mapping[str, Any]) -> list[str]:
    """Returns choices as arguments of a command line, sorted by name."""
    arguments = []
    for name, value in sorted(_flat(named).items()):
        if isinstance(value, bool):
            arguments.append(f'--{name}' if value else f'--no{name}')
        elif name in REPEATED and not isinstance(value, str | None):
            # An empty value removes the default.
            arguments += [f'--{name}={one}' for one in value or ['']]
        elif isinstance(value, list | tuple):
            serializer = flags.CsvListSerializer(',')
            arguments.append(f'--{name}={serializer.serialize(value)}')
        elif value is not None:
            arguments.append(f'--{name}={value}')
    return arguments


def flagfile(named: Mapping[str, Any]) -> str:
    """Returns choices as the text of a flagfile."""
    return '\n'.join(typed(named)) + '\n'


def parse(kind: type, arguments: Sequence[str]) -> dict[str, Any]:
    """Parses the arguments of a command line; returns choices by name.

    Raises:
        UsageError: a flag is unknown, or a value out of bounds.
    """
    values = flags.FlagValues()
    define(kind, values)
    with _refusing_flags():
        refuse_words(values(['', *_rename_flags(arguments)])[1:])
    return chosen(kind, values)


def _has_settings(kind: type) -> bool:
    """Tells whether choices have settings of rows and views."""
    return any(field.name == SETTINGS for field in fields(kind))


def define(kind: type, values: flags.FlagValues) -> None:
    """Defines the flags of choices and of settings of rows and views.

    Args:
        kind: class of the choices. `kind.setting_flags()` gives the settings by
            flag; without this method it is that of `objectives`.
        values: gets the flags.
    """
    defaults = {field.name: field.default for field in fields(kind)}
    for name, (of, flag) in flags_of(kind).items():
        default = defaults[name] if flag.shown is None else flag.shown
        _define(
            name,
            of,
            default=default,
            text=flag.help,
            known=flag,
            values=values,
        )
    if not _has_settings(kind):
        return
    from infoword_tf import objectives

    of_kind = getattr(kind, 'setting_flags', objectives.setting_flags)
    for name, (known, rows) in of_kind().items():
        if not known.decided_by:
            text = known.help
            if known.default not in (None, ''):
                text += f' By default {known.default}.'
            if rows != [name.partition('.')[0]]:  # a view's
                text += f' Rows: {", ".join(rows)}.'
            of = known.kind or type(known.default)
            _define(
                name,
                of,
                default=None,
                text=text,
                known=known,
                values=values,
            )


class _TrueOrNamed(flags.ArgumentParser):
    """True or False as of a flag that is only that, or else a string."""

    def parse(self, argument: Any) -> bool | str:
        """Returns the truth value of an argument, or the argument."""
        try:
            return flags.BooleanParser().parse(argument)
        except ValueError:
            return argument

    def flag_type(self) -> str:
        """Returns the type for --helpxml."""
        return 'bool or string'


def _define_true_or_named(
    name: str, default: Any, text: str, flag_values: flags.FlagValues
) -> None:
    """Defines a flag that may stand alone (--best, --nobest) or have a value.
    """
    flags.DEFINE_flag(
        flags.Flag(
            parser=_TrueOrNamed(),
            serializer=None,
            name=name,
            default=default,
            help_string=text,
            boolean=True,
        ),
        flag_values,
    )


class _ListOf(flags.ListParser):
    """Known values, with commas between."""

    def __init__(self, known: Sequence[str]):
        """Stores the known values."""
        super().__init__()
        self.known = known
        self.syntactic_help = f'any of {", ".join(known)}'

    def parse(self, argument: Any) -> list[str]:
        """Returns the values; ValueError: one is unknown."""
        values = super().parse(argument)
        for value in values:
            if value not in self.known:
                raise InputError(
                    'unknown_value_listed',
                    f'{value!r} is not {self.syntactic_help}',
                )
        return values


_DEFINE: dict[type | types.UnionType, Callable[..., Any]] = {
    bool: flags.DEFINE_bool, int: flags.DEFINE_integer,
    float: flags.DEFINE_float, str: flags.DEFINE_string,
    tuple: flags.DEFINE_list, bool | str: _define_true_or_named,
}  # fmt: skip


def _define(
    name: str,
    kind: type | types.UnionType,
    default: Any,
    text: str,
    known: Any,
    values: Any,
) -> None:
    """Defines a flag with the choices and bounds of a `Flag` or `Setting`."""
    if known.choices and kind is tuple:
        flags.DEFINE(
            parser=_ListOf(known.choices),
            name=name,
            default=list(default),
            help=text,
            flag_values=values,
            serializer=flags.CsvListSerializer(','),
        )
        return
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
    """Returns the explicit values of parsed flags by name."""
    present = {name: values[name].value for name in values
               if values[name].present}  # fmt: skip
    for name in REPEATED & present.keys():
        if isinstance(present[name], list) and '' in present[name]:
            # An empty value removes all before it.
            later = present[name][::-1].index('')
            present[name] = present[name][len(present[name]) - later :]
    choices = {k: present[k] for k in flags_of(kind) if k in present}
    settings = {k: v for k, v in present.items() if '.' in k}
    return {**choices, SETTINGS: settings} if settings else choices
