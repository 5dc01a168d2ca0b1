r"""Trains rows of the table: raw text in, a workdir out.

    python -m infoword_tf.train --flagfile=tasks/flags/quickstart.flags
    python -m infoword_tf.train --corpus='text:books/*.txt' \
        --objectives=bert_nce --size=mini --steps=20000 --workdir=runs/books

The same command resumes a run that was stopped (on a CPU bit for bit).
"""

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any

from absl import flags

# The backend is chosen before Keras is imported; this program is TensorFlow's.
os.environ['KERAS_BACKEND'] = 'tensorflow'

from infoword_tf import commands
from infoword_tf.config import Config
from infoword_tf.data.opened import VOCAB_SIZE, TextChoices, check_text
from infoword_tf.objectives import TABLE
from infoword_tf.resolve import (
    GELU,
    POSITIONS,
    Choices,
    resolve,
    resolve_rows,
)
from infoword_tf.training.precision import HELP as AUTO

# ----------------------------------------------------------------------- flags
# Settings of rows are flags too, --ROW.NAME: `commands.define_settings`.

flags.DEFINE_string(
    'corpus', 'pydocs', 'pydocs, or text:GLOB (one sentence or paragraph a '
    'line, a blank line between documents, also .gz), or lines:GLOB (one text '
    'whose line ends count; with --heldout), or tfds:NAME[/CONFIG][:FEATURE] '
    '(what tensorflow-datasets has prepared).')
flags.DEFINE_string(
    'heldout', None, 'GLOB of held-out text, of tfds: a split; without it '
    'what the corpus holds out by itself: 1 document in 100, at least one.')
flags.DEFINE_enum(
    'tokenizer', None, ['wordpiece', 'sentencepiece', 'words'], 'How text '
    'becomes pieces; by default as --vocab is, else wordpiece.')
flags.DEFINE_string(
    'vocab', None, 'A vocab.txt, a SentencePiece *.model or a words.txt; '
    'without it one is learned from the corpus.')
flags.DEFINE_integer(
    'vocab_size', None, f'Pieces to learn; {VOCAB_SIZE} by default, every one '
    'of words.',
    lower_bound=1)
flags.DEFINE_bool(
    'lower_case', None, 'Lower-case text; wordpiece strips accents too. True '
    'by default, but of words.')

flags.DEFINE_string(
    'objectives', Choices.objectives, 'A named sum, or weighted rows: '
    'bert_nce:1,mlm:0.5.')
flags.DEFINE_enum(
    'masking', None, ['spans', 'words', 'tokens'], 'What is masked; by '
    'default what the rows want, else tokens.')
flags.DEFINE_string(
    'size', None, 'tiny, mini, small, medium, base, large or elmo; tiny by '
    'default.')
flags.DEFINE_integer(
    'width', None, 'Of vectors of the encoder lookup; 256 by default.',
    lower_bound=1)
flags.DEFINE_string(
    'encoder', None, 'Another encoder, where the rows allow it.')
flags.DEFINE_integer(
    'positions', None, f'Positions of the encoder; {POSITIONS} by default.',
    lower_bound=1)
flags.DEFINE_float(
    'dropout', Choices.dropout, 'Share dropped of states and attention '
    'weights.', lower_bound=0.0, upper_bound=0.99)
flags.DEFINE_enum(
    'gelu', None, ['tanh', 'erf'], "tanh: Google's BERT; erf: Hugging "
    f"Face's. {GELU} by default.")
# Arguments of an encoder, named alike; without the flag its own default counts.
flags.DEFINE_bool(
    'untie', None, 'transformer_xl, plm: biases u and v of each layer, not of '
    'all layers together; true by default.')
flags.DEFINE_integer(
    'clamp', None, 'transformer_xl, plm: farther tokens are as far as this; '
    'without it no distance is cut.', lower_bound=1)
flags.DEFINE_bool(
    'same_length', None, 'transformer_xl: every token sees as many as the '
    'memory holds, the first of a step and the last; false by default.')
flags.DEFINE_string(
    'init', None, 'A workdir to start from: encoder, tokenizer, and the '
    'objectives of the same rows.')

flags.DEFINE_integer('steps', 1000, 'Updates.', lower_bound=1)
flags.DEFINE_float(
    'minutes', None, 'Instead of --steps: as many as fit, by the rate of the '
    'first ones; tracing and held-out values come on top.', lower_bound=1e-6)
flags.DEFINE_integer(
    'batch_size', Choices.batch_size, 'Sequences of the global batch.',
    lower_bound=1)
flags.DEFINE_integer(
    'seq_len', Choices.seq_len, 'Tokens of a sequence, with specials.',
    lower_bound=8)
flags.DEFINE_integer(
    'memory_length', None, 'Tokens of the steps before that an encoder with '
    'memory sees; --seq_len by default, 0: none.', lower_bound=0)
flags.DEFINE_float(
    'learning_rate', 1e-3, 'Highest learning rate.', lower_bound=0.0)
flags.DEFINE_integer(
    'warmup_steps', None, 'Updates until it is reached; steps / 10 by '
    'default.', lower_bound=0)
flags.DEFINE_enum(
    'optimizer', 'infoword',
    ['infoword', 'adamw', 'bert', 'xlnet', 'gpt', 'transformer_xl', 'elmo',
     'word2vec'],
    'Whose: moments, decay, clip and the shape of the schedule as published.')
flags.DEFINE_float(
    'weight_decay', None, 'Decoupled decay, not of biases and norms; by '
    'default as --optimizer has it, 0.01.', lower_bound=0.0)
flags.DEFINE_float(
    'clip_norm', None, 'Largest global norm of the gradient, 0: no clip; by '
    'default as --optimizer has it, 1.', lower_bound=0.0)
flags.DEFINE_float(
    'init_deviation', None, 'Deviation of the first weights; 0.02 sqrt(768 / '
    'width) by default.', lower_bound=1e-6)
flags.DEFINE_float(
    'layer_decay', 1.0, 'Share of the learning rate that each layer leaves to '
    'the one below it.', lower_bound=1e-6, upper_bound=1.0)
flags.DEFINE_bool(
    'freeze', False, 'Leave the encoder as --init has it; the rows alone are '
    'trained.')
flags.DEFINE_integer(
    'seed', 0, 'Of weights, text order, masks and dropout.', lower_bound=0)

flags.DEFINE_string('workdir', None, 'Where the run lives.')
flags.DEFINE_integer(
    'checkpoint_every', None, 'Updates between checkpoints, rounded up to a '
    'logging step; steps / 10, at most 1000, by default.', lower_bound=1)
flags.DEFINE_integer(
    'keep_checkpoints', 2, 'How many are kept.', lower_bound=1)
flags.DEFINE_integer(
    'log_every', None, 'Updates between logging steps; steps / 50, at '
    'most 100, by default.',
    lower_bound=1)
flags.DEFINE_integer(
    'eval_every', None, 'Updates between held-out values, rounded up to a '
    'logging step; steps / 10 by default.', lower_bound=1)
flags.DEFINE_bool(
    'best', None, 'Keep the weights of the lowest held-out loss (of the sum, '
    'as --objectives weighs it) instead of the last.')
flags.DEFINE_integer(
    'patience_evals', None, 'End after so many held-out values without a '
    'better one.', lower_bound=1)

flags.DEFINE_enum(
    'strategy', 'one', ['one', 'mirrored', 'multiworker', 'tpu'],
    'tf.distribute: one device, all of this machine, several machines, a TPU.')
flags.DEFINE_integer(
    'logical_cpus', 1, 'Splits the CPU into devices, to try --strategy='
    'mirrored on.', lower_bound=1)
flags.DEFINE_enum(
    'precision', 'auto', ['auto', 'float32', 'mixed_bfloat16'], AUTO)
flags.DEFINE_bool(
    'xla', False, 'Compile forward and backward pass whole; for GPU and TPU.')

SETTINGS = commands.define_settings({row: TABLE[row].settings for row in TABLE})


def values() -> dict[str, Any]:
    """Every flag of this program by name."""
    module = flags.FLAGS.find_module_defining_flag('objectives')
    own = flags.FLAGS.flags_by_module_dict()[module]
    found = {flag.name: flag.value for flag in own}
    return found | {name: flag.value for name, flag in SETTINGS.items()}


def choices_of(given: dict[str, Any], kind: type) -> Any:
    """The fields of `Choices` or `TextChoices` among the flags."""
    names = {field.name for field in dataclasses.fields(kind)}
    return kind(**{k: v for k, v in given.items() if k in names})


def choices(given: dict[str, Any] | None = None) -> Choices:
    """What the flags choose of model and batches."""
    given = values() if given is None else given
    # Those that a command decides have no flag.
    settings = {
        n: value for n, value in given.items()
        if '.' in n and value is not None
    }
    if given['freeze']:
        given = {**given, 'dropout': 0.0}  # nothing there is trained
    return choices_of({**given, 'settings': settings}, Choices)


# ---------------------------------------------------------------------- the run


def check_brought(given: dict[str, Any]) -> None:
    """Complains of flags that --init decides."""
    for flag in ('vocab', 'lower_case', 'vocab_size', 'tokenizer'):
        if given['init'] and given[flag] is not None:
            raise commands.UsageError(
                f'--{flag} is decided by --init={given["init"]}, which brings '
                'its vocabulary; leave it out'
            )
    if given['freeze'] and not given['init']:
        raise commands.UsageError(
            '--freeze leaves the encoder as --init has it; name one'
        )


def check_finite(given: dict[str, Any]) -> None:
    """Complains of numbers that are none: bounds let nan through."""
    for flag, value in given.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise commands.UsageError(f'--{flag}={value} is no finite number')


def check_end(given: dict[str, Any], labelled: bool) -> None:
    """Complains of flags about the end of a run that do not go together."""
    for flag, instead in (
        ('minutes', '--steps or --epochs says how long'),
        ('best', 'the weights of the best score are kept anyway'),
    ):
        if labelled and given[flag]:
            raise commands.UsageError(
                f'--{flag} is for runs on text alone; of labelled examples '
                f'{instead}; leave it out'
            )
    if given['minutes'] is not None and flags.FLAGS['steps'].present:
        raise commands.UsageError(
            f'--minutes={given["minutes"]:g} and --steps={given["steps"]} both '
            'say how long; leave out one of the two'
        )
    if given['patience_evals'] and not (given['best'] or labelled):
        raise commands.UsageError(
            f'--patience_evals={given["patience_evals"]} waits for better '
            'weights, and the last ones are kept; give --best too'
        )
    if given['strategy'] == 'multiworker':
        for flag, why in (
            ('minutes', 'each machine has a rate of its own; give --steps'),
            ('patience_evals', 'one of several machines would end alone; '
             'leave it out'),
        ):  # fmt: skip
            if given[flag]:
                raise commands.UsageError(f'--{flag}: {why}')


def train(
    labelled: Any = None, decided: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The whole run, in order: training/run.py.

    Args:
        labelled: `training.run.Labelled`, of commands that have examples.
        decided: by flag, values that such a command decides.

    Returns:
        What metrics.json holds.
    """
    given = {**values(), **(decided or {})}
    check_finite(given)
    commands.require(given, workdir='a folder for this run')
    check_brought(given)
    check_end(given, labelled is not None)
    init, started = given['init'], None
    if labelled is not None and labelled.started is not None:
        started = labelled.started.config
    elif init:
        started = Config.read(init)
    text = choices_of(given, TextChoices)
    if labelled is None:
        resolve_rows(choices(given))
        check_text(text)
    resolved = resolve(choices(given), started)

    from infoword_tf.training.run import run

    return run(given, resolved, text, flagfile(), labelled)


def flagfile() -> str:
    """The flags that were given, as a flagfile that runs this again.

    Those of a command that has examples too.
    """
    given = {flag for flag in commands.defined() if flag.present}
    return '\n'.join(sorted(flag.serialize() for flag in given)) + '\n'


if __name__ == '__main__':
    commands.start(
        train, stopped='the same command goes on from the last checkpoint'
    )
