"""The program `infoword`: all commands by name.

    infoword
    infoword classify --help
    infoword train --flagfile=$(infoword flags)/quickstart.flags

`infoword classify` is `python -m tasks.classify` of a checkout, and
`python -m infoword_tf.tasks.classify` of an install.
"""

import difflib
import pathlib
import re
import runpy
import signal
import sys
from collections.abc import Sequence

from infoword_tf.errors import UsageError

# Name -> module as of a checkout, and what the command does.
COMMANDS = {
    'train': ('infoword_tf.train', 'train rows: raw text in, a workdir out'),
    'convert': ('infoword_tf.convert', 'public folders to workdirs, and back'),
    'prepare': ('infoword_tf.prepare', 'filter and tokenize text'),
    'show': ('infoword_tf.show', 'show what a row reads of a text'),
    'classify': ('tasks.classify', 'learn labels or numbers of texts'),
    'glue': ('tasks.glue', "learn one of GLUE's tasks"),
    'squad': ('tasks.squad', 'learn where answers stand in a text'),
    'tag': ('tasks.tag', 'learn labels of words'),
    'distill': ('tasks.distill', 'teach a smaller model'),
    'retrieval': ('tasks.retrieval', 'measure a search of documents'),
    'sts': ('tasks.sts', 'measure similarities of sentences'),
    'tatoeba': ('tasks.tatoeba', 'measure a search of translations'),
    'words': ('tasks.words', 'measure vectors of words'),
    'lm': ('tasks.lm', 'measure a language model, or sample from it'),
    'probe': ('tasks.probe', 'classify by vectors alone'),
    'mine': ('tasks.mine', 'search negatives of pairs'),
    'whiten': ('tasks.whiten', 'whiten the vectors of a model'),
    'flow': ('tasks.flow', 'make the vectors of a model Gaussian by a flow'),
    'export': ('export.savedmodel', 'write a SavedModel that takes strings'),
    'verify': ('export.verify', 'compare an export with its workdir'),
    'search': ('export.search', 'search text with an export'),
    'demo': ('export.demo', 'try an export on a local page'),
    'litert': ('export.litert', 'write a model for phones'),
}
# Name -> folder of a checkout, and what is in it.
FOLDERS = {
    'flags': ('tasks/flags', 'print the folder of all flagfiles'),
    'serving': ('export/serving', 'print the folder of settings of servers'),
}
HELP = ('help', '-h', '--help')
PACKAGE = pathlib.Path(__file__).resolve().parent
# An install has tasks/ and export/ in the package, a checkout beside it.
INSTALLED = (PACKAGE / 'tasks').is_dir()


def listing() -> str:
    """Returns a line for each command."""
    entries = {**COMMANDS, **FOLDERS}
    width = max(map(len, entries))
    return '\n'.join(
        [
            'infoword COMMAND --flags; infoword COMMAND --help lists the flags',
            *(f'  {k:<{width}}  {line}' for k, (_, line) in entries.items()),
        ]
    )


def module_of(command: str) -> str:
    """Returns the name of a command's module, for `python -m`."""
    module, _ = COMMANDS[command]
    if INSTALLED and not module.startswith('infoword_tf.'):
        return f'infoword_tf.{module}'
    return module


def as_installed(text: str) -> str:
    """Writes `infoword train` for `python -m infoword_tf.train`, and so on.

    A text of a checkout stays: there is no `python -m tasks.classify` in an
    install alone.
    """
    if not INSTALLED:
        return text
    names = {module: name for name, (module, _) in COMMANDS.items()}
    return re.sub(
        rf'python -m ({"|".join(map(re.escape, names))})(?![\w.])',
        lambda match: f'infoword {names[match[1]]}',
        text,
    )


def folder_of(name: str) -> pathlib.Path:
    """Returns a folder of files that are no modules."""
    return (PACKAGE if INSTALLED else PACKAGE.parent) / FOLDERS[name][0]


def check(command: str) -> None:
    """Raises UsageError for a name of no command."""
    known = [*COMMANDS, *FOLDERS]
    if command not in known:
        nearest = difflib.get_close_matches(command, known, n=1)
        raise UsageError(
            'unknown_command',
            f'infoword has no command {command!r}; '
            + (f'the nearest is {nearest[0]}, and ' if nearest else '')
            + 'infoword alone lists all',
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command by name; None: the arguments of the process."""
    typed = list(sys.argv[1:] if arguments is None else arguments)
    if not typed or typed[0] in HELP:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # infoword | head
        print(listing())
        return
    command = typed[0]
    try:
        check(command)
    except UsageError as error:
        print(f'error: {error}', file=sys.stderr)
        sys.exit(1)
    if command in FOLDERS:
        print(folder_of(command))
        return
    sys.argv[1:] = typed[1:]
    runpy.run_module(module_of(command), run_name='__main__', alter_sys=True)


if __name__ == '__main__':
    main()
