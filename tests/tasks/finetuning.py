"""Commands that fine-tune, small: in this process, or as a program.

    python -m tests.tasks.finetuning tasks.classify --train=... --workdir=...

Their own flags stand in the module's FLAGS, the trainer's in absl's.
"""

import contextlib
import functools
import importlib
import json
import pathlib
import sys
from pydoc_data import topics
from unittest import mock

from absl import flags
from absl.testing import flagsaver

from tasks import finetune, measures
from tests import quick
from tests.export import workdirs
from tests.tasks import command

# A dozen updates a second, each of them seen.
SMALL = ('--learning_rate=0.003', '--batch_size=8', '--seq_len=24',
         '--precision=float32', '--log_every=1', '--epochs=2')  # fmt: skip
KINDS = {'class': 'assignment', 'text': 'strings', 'loop': 'specialattrs'}


@contextlib.contextmanager
def parsed(module, *arguments, pictures=False):
    """Inside, the flags are these; gives those that are the module's own."""

    def is_own(argument):
        return argument[2:].partition('=')[0].removeprefix('no') in module.FLAGS

    own = [x for x in arguments if is_own(x)]
    with quick.small(pictures=pictures), flagsaver.flagsaver():
        finetune.set_defaults()
        flags.FLAGS(['train', *(x for x in arguments if not is_own(x))])
        yield own


def run(module, *arguments, pictures=False):
    """As whoever types it meets it; later flags win."""
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(
            parsed(module, *SMALL, *arguments, pictures=pictures)
        )
        if not pictures:
            stack.enter_context(mock.patch.object(measures, 'draw_confusion'))
        return command.run(module, *own)


@functools.cache
def init():
    """A pretrained workdir: random weights, and a real vocabulary."""
    return workdirs.write(
        workdirs.folder() / 'pretrained', rows=('mlm',), pooling='cls'
    )


@functools.cache
def sentences():
    """Real ones, of three kinds: (text, kind), one of each in turn."""
    found = []
    for kind, topic in KINDS.items():
        words = topics.topics[topic].split()
        found.append([
            (' '.join(words[i : i + 9]).replace('"', "'"), kind)
            for i in range(0, 9 * 40, 9)
        ])  # fmt: skip
    return [one for three in zip(*found, strict=False) for one in three]


def write(path, names, rows):
    """A TSV."""
    lines = ['\t'.join(map(str, row)) for row in (names, *rows)]
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('\n'.join(lines) + '\n', encoding='utf-8')
    return path


def last_line(done):
    """What the last line of the output says."""
    return json.loads(done.out.splitlines()[-1])


if __name__ == '__main__':
    program = importlib.import_module(sys.argv[1])
    with parsed(program, *SMALL, *sys.argv[2:]) as mine:
        with command.parsed(program, *mine):
            program.run()
