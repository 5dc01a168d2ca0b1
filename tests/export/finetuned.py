"""Workdirs of several tasks, each fine-tuned by the real command once.

They start from a tiny converted encoder, whose words are letters; one, whose
row of next words goes on, from an encoder that looks back alone.
"""

import atexit
import functools
import pathlib
import shutil
import tempfile

import numpy as np

from export import bundle
from infoword_tf import convert, files
from tasks import classify, distill
from tests import quick
from tests.export import workdirs
from tests.tasks import command
from tests.weights import folders

COLUMNS = ('first', 'second', 'third', 'kind', 'grade', 'right')
# By name: flags of the command, and of the trainer.
KINDS = {
    'classes': (('--text=first', '--label=kind'), ('--label.mix',)),
    'pairs': (
        ('--text=first', '--pair=second', '--label=kind'),
        ('--label.texts=both_ways', '--label.pooler=tanh'),
    ),
    'number': (('--text=first', '--label=grade', '--regress'), ()),
    'numbers': (
        ('--text=first', '--pair=second', '--label=grade', '--regress'),
        ('--objectives=score:1,gpt:0.5',),
    ),
    'choices': (
        ('--text=first', '--choices=second,third', '--label=right'),
        ('--label.bilstm',),
    ),
}  # fmt: skip
TRAINER = (
    '--steps=4',
    '--batch_size=8',
    '--seq_len=16',
    '--precision=float32',
    '--learning_rate=0.01',
    '--warmup_steps=0',
)


@functools.cache
def folder():
    """Where all of them lie, for as long as the process lives."""
    made = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return pathlib.Path(made)


@functools.cache
def data():
    """Tables of all kinds in one: a training file and a dev file."""
    random = np.random.default_rng(0)
    paths = []
    for name, count in (('train', 24), ('dev', 12)):
        lines = ['\t'.join(COLUMNS)]
        for number in range(count):
            first, second, third = (
                ' '.join(random.choice(list('abcdxyz'), random.integers(1, 9)))
                for _ in range(3)
            )
            kind = ('bad', 'fair', 'good')[number % 3]
            grade = f'{len(first) / 4:.2f}'
            right = ('second', 'third')[number % 2]
            cells = (first, second, third, kind, grade, right)
            lines.append('\t'.join(cells))
        paths.append(folder() / f'{name}.tsv')
        paths[-1].write_text('\n'.join(lines) + '\n')
    return paths


@functools.cache
def start():
    """The workdir that all start from."""
    source = folders.write(folder() / 'source', 'bert')
    convert.convert(source, folder() / 'start')
    return folder() / 'start'


@functools.cache
def causal():
    """The workdir that 'numbers' starts from."""
    return workdirs.write(folder() / 'causal', ('gpt',))


@functools.cache
def workdir(kind):
    """A fine-tuned workdir."""
    task, trainer = KINDS[kind]
    train, dev = data()
    path = folder() / kind / 'workdir'
    init = causal() if kind == 'numbers' else start()
    given = [f'--init={init}', f'--workdir={path}', *TRAINER, *trainer]
    with quick.small():
        done = command.run(
            classify, *given, f'--train={train}', f'--dev={dev}', *task
        )
    assert done.status == 0, done.err
    # A few steps leave scores so close that mistakes would not be seen.
    weights = files.read_tensors(path / 'weights.safetensors')
    for name, value in weights.items():
        if name.startswith('objectives/') and name.endswith('/kernel'):
            weights[name] = value * 20
    files.write_tensors(path / 'weights.safetensors', weights)
    return path


@functools.cache
def student():
    """A workdir of one layer that has learned from that of 'classes'."""
    train, dev = data()
    path = folder() / 'student'
    with quick.small():
        done = command.run(
            distill,
            f'--workdir={path}',
            *TRAINER,
            f'--teacher={workdir("classes")}',
            f'--train={train}',
            f'--dev={dev}',
            '--text=first',
            '--label=kind',
            '--layers=1',
            '--patience=none',
        )
    assert done.status == 0, done.err
    return path


def exported(kind, precision='float32'):
    """A version of it."""
    path = folder() / kind / precision
    if not path.exists():
        bundle.write(workdir(kind), path, 1, precision)
    return path / '1'


def loaded(kind):
    """The workdir in memory."""
    return workdirs.load(workdir(kind))


def served(kind, precision='float32'):
    """Functions of the version."""
    return workdirs.serve(str(exported(kind, precision))).signatures
