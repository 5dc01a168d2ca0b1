"""Workdirs of several tasks, each fine-tuned by the real command once.

They start from a tiny converted encoder, whose words are letters; one, whose
row of next words goes on, from an encoder that looks back alone.
"""

import json

import numpy as np

from export import bundle
from infoword_tf import convert, files
from tasks import classify, distill
from tests import places, quick
from tests.export import workdirs
from tests.tasks import command
from tests.weights import folders

COLUMNS = ('first', 'second', 'third', 'kind', 'grade', 'right', 'has')
# By name: flags of the command, and of the trainer.
KINDS = {
    'classes': (('--text=first', '--label=kind'), ('--label.mix',)),
    'pairs': (
        ('--text=first', '--pair=second', '--label=kind'),
        ('--label.texts=both_ways', '--label.pooler=tanh'),
    ),
    'several': (('--text=first', '--label=has'), ('--label.pooler=tanh',)),
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
TRAINER = ('--steps=4', '--batch_size=8', '--seq_len=16', '--warmup_steps=0',
           '--precision=float32', '--learning_rate=0.01')  # fmt: skip


def folder():
    return workdirs.folder() / 'finetuned'


@places.once
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
            has = json.dumps([x for x in 'xyz' if x in first])
            cells = (first, second, third, kind, grade, right, has)
            lines.append('\t'.join(cells))
        folder().mkdir(exist_ok=True)
        paths.append(folder() / f'{name}.tsv')
        paths[-1].write_text('\n'.join(lines) + '\n')
    return paths


@places.once
def start():
    """The workdir that all start from."""
    source = folders.write(folder() / 'source', 'bert')
    convert.convert(source, folder() / 'start')
    return folder() / 'start'


@places.once
def causal():
    """The workdir that 'numbers' starts from."""
    return workdirs.write(folder() / 'causal', ('gpt',))


def tuned(module, path, *arguments):
    train, dev = data()
    with quick.small():
        done = command.run(
            module, f'--workdir={path}', *TRAINER, f'--train={train}',
            f'--dev={dev}', *arguments,
        )  # fmt: skip
    assert done.status == 0, done.err
    return path


def _write(kind):
    task, trainer = KINDS[kind]
    init = causal() if kind == 'numbers' else start()
    path = folder() / kind / 'workdir'
    tuned(classify, path, f'--init={init}', *trainer, *task)
    # A few steps leave scores so close that mistakes would not be seen.
    weights = files.read_tensors(path / 'weights.safetensors')
    for name, value in weights.items():
        if name.startswith('objectives/') and name.endswith('/kernel'):
            weights[name] = value * 20
    files.write_tensors(path / 'weights.safetensors', weights)
    return path


workdir, exported, loaded, served = workdirs.kinds('finetuned', _write)


@places.once
def student():
    """A workdir of one layer that has learned from that of 'classes'."""
    return tuned(
        distill, folder() / 'student', f'--teacher={workdir("classes")}',
        '--text=first', '--label=kind', '--layers=1', '--patience=none',
    )  # fmt: skip


@places.once
def versions():
    """A model of two versions: the teacher, 'classes', and its student."""
    output = folder() / 'versions'
    for version, run in enumerate((workdir('classes'), student()), 1):
        bundle.write(run, output, version)
    return output
