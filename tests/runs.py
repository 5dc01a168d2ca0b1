"""Runs of the real command on real text, small, for all tests of it."""

import contextlib
import io
import json
import pathlib
import subprocess
import sys

from tests import corpus, places, quick

ROOT = pathlib.Path(__file__).parent.parent
SMALL = (
    '--steps=6', '--log_every=1', '--eval_every=3', '--checkpoint_every=2',
    '--batch_size=8', '--seq_len=32', '--precision=float32',
    '--learning_rate=0.002',
)  # fmt: skip
TEXT: dict[str, str] = {}


def python(*words, **more):
    """Runs Python in a process of its own; returns its end."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=ROOT, capture_output=True, text=True, check=False, **more,
    )  # fmt: skip


def set_up() -> None:
    """Writes the text; call it in setUpModule."""
    folder = places.make()
    TEXT['corpus'], TEXT['heldout'] = corpus.write_topics(folder / 'text')


def arguments(workdir, *more):
    """Flags of a run in a workdir; later ones win."""
    text = (f'--corpus={TEXT["corpus"]}', f'--heldout={TEXT["heldout"]}')
    if not any(flag.startswith(('--init', '--vocab=')) for flag in more):
        text += ('--vocab_size=600',)
    timed = any(flag.startswith('--minutes') for flag in more)
    small = [x for x in SMALL if not (timed and x.startswith('--steps'))]
    return [*small, *text, f'--workdir={workdir}', *more]


def run_here(workdir, *more, **ways):
    """The command in this process, one layer of 64; returns what it printed.

    Args:
        workdir: of the run.
        *more: flags.
        **ways: of `quick.small`.
    """
    shown = io.StringIO()
    try:
        with contextlib.redirect_stdout(shown):
            quick.run(*arguments(workdir, *more), **ways)
    finally:
        print(shown.getvalue())
    return shown.getvalue()


def run(workdir, *more, module='infoword_tf.train'):
    """The command in a process of its own; returns (exit status, output).

    As `tests.quick` it is one layer of 64.
    """
    done = python('-m', module, *arguments(workdir, *more))
    return done.returncode, done.stdout + done.stderr


def records(workdir):
    """Lines of metrics.jsonl."""
    lines = (pathlib.Path(workdir) / 'metrics.jsonl').read_text().splitlines()
    return [json.loads(line) for line in lines]


def untimed(workdir):
    """Lines of metrics.jsonl without what a clock has measured."""
    return [
        {
            name: value
            for name, value in record.items()
            if not name.endswith(('seconds', '_per_second'))
        }
        for record in records(workdir)
    ]


def weights(workdir):
    """The bytes of weights.safetensors."""
    return (pathlib.Path(workdir) / 'weights.safetensors').read_bytes()
