r"""Trains rows of the table: raw text in, a workdir out.

    python -m infoword_tf.train --flagfile=tasks/flags/quickstart.flags
    python -m infoword_tf.train --corpus='text:books/*.txt' \
        --objectives=bert_nce --size=mini --steps=20000 --workdir=runs/books

The same command resumes a run that was stopped (on a CPU bit for bit).
"""

import contextlib
import dataclasses
import math
import os
import pathlib
from typing import Any

from absl import flags

# The backend is chosen before Keras is imported; this program is TensorFlow's.
os.environ['KERAS_BACKEND'] = 'tensorflow'

from infoword_tf import commands
from infoword_tf.config import Config, TokenizerConfig
from infoword_tf.data.opened import VOCAB_SIZE, TextChoices, open_text
from infoword_tf.objectives import TABLE
from infoword_tf.plan import settings_of
from infoword_tf.resolve import GELU, POSITIONS, Choices, resolve

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
    'size', None, 'tiny, mini, small, medium, base or large; tiny by default.')
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
    ['infoword', 'bert', 'xlnet', 'gpt', 'transformer_xl', 'elmo'],
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

flags.DEFINE_enum(
    'strategy', 'one', ['one', 'mirrored', 'multiworker', 'tpu'],
    'tf.distribute: one device, all of this machine, several machines, a TPU.')
flags.DEFINE_integer(
    'logical_cpus', 1, 'Splits the CPU into devices, to try --strategy='
    'mirrored on.', lower_bound=1)
flags.DEFINE_enum(
    'precision', 'auto', ['auto', 'float32', 'mixed_bfloat16'],
    'auto: bfloat16 where its matrix products are 1.5 times as fast.')
flags.DEFINE_bool(
    'xla', False, 'Compile forward and backward pass whole; for GPU and TPU.')

SETTINGS = commands.define_settings({row: settings_of(row) for row in TABLE})
flags.adopt_module_key_flags(commands)  # --help shows them


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


def choices() -> Choices:
    """What the flags choose of model and batches."""
    given = values()
    settings = {n: given[n] for n in SETTINGS if given[n] is not None}
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


def check_finite(given: dict[str, Any]) -> None:
    """Complains of numbers that are none: bounds let nan through."""
    for flag, value in given.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise commands.UsageError(f'--{flag}={value} is no finite number')


def train() -> None:
    """The whole run, in order."""
    given = values()
    check_finite(given)
    commands.require(given, workdir='a folder for this run')
    check_brought(given)
    workdir, init = pathlib.Path(given['workdir']), given['init']
    resolved = resolve(choices(), Config.read(init) if init else None)

    # devices ------------------------------------------------------------------
    import tensorflow as tf

    from infoword_tf import files
    from infoword_tf.training import distribution, precision

    commands.hush_tensorflow()
    strategy = distribution.make_strategy(
        given['strategy'], given['logical_cpus']
    )
    replicas = strategy.num_replicas_in_sync
    distribution.check(
        replicas,
        given['batch_size'],
        one_cpu=given['logical_cpus'] > 1,
        xla=given['xla'],
    )
    precision.check(given['precision'], given['strategy'])

    # Every worker holds the same weights: one of them writes.
    chief = distribution.is_chief(strategy)
    with files.locked(workdir) if chief else contextlib.nullcontext():
        # text -----------------------------------------------------------------
        from infoword_tf.data import batches
        from infoword_tf.inference.load import load

        started = load(init) if init else None
        text = open_text(
            choices_of(given, TextChoices), started and started.tokenizer
        )
        tokenizer, plan, seed = text.tokenizer, resolved.plan, given['seed']
        sources = batches.open_sources(
            text.train, plan, given['batch_size'], seed
        )
        for reading, source in sources.items():
            if source.single is not None:
                print(
                    f'{source.single:,} documents have one sentence and no '
                    f'part in {", ".join(plan.readers(reading))}',
                    flush=True,
                )

        # config ---------------------------------------------------------------
        from infoword_tf.training import optim, record

        rules = optim.chosen(
            given['optimizer'], given['weight_decay'], given['clip_norm']
        )
        given |= {
            'weight_decay': rules.weight_decay,
            'clip_norm': rules.clip_norm,
        }
        warmup_steps = optim.warmup_steps(
            given['warmup_steps'], given['steps'], rules
        )
        config = resolved.config(
            len(tokenizer),
            TokenizerConfig(
                tokenizer.kind, tokenizer.lower_case, tokenizer.options
            ),
            precision.decide(given['precision'], workdir),
            replicas,
        )
        config = config.replace(
            run=record.run_record(
                given, config, warmup_steps, text.fingerprint, text.vocabulary
            )
        )
        if chief:
            record.agree(workdir, config, flagfile())
            with files.written(workdir / tokenizer.file) as partial:
                tokenizer.write(partial)

        # model, optimizer, and all else that lasts ----------------------------
        from infoword_tf.model import Model
        from infoword_tf.objectives import Statistics
        from infoword_tf.training import checkpoint, fit, loop
        from infoword_tf.training.state import State

        with strategy.scope():
            model = Model(
                config, tokenizer.specials, seed,
                deviation=given['init_deviation'],
            )  # fmt: skip
            optimizer = optim.AdamW(model.trainable, rules)
        step = tf.Variable(0, dtype=tf.int64, trainable=False)
        if started is not None:
            print(f'--init={init}: {started.start(model)}', flush=True)
        lasting = {f'model/{k}': v.value for k, v in model.lasting.items()}
        lasting |= {f'optimizer/{k}': v for k, v in optimizer.slots.items()}
        state = State(model, strategy, given['batch_size'])
        checkpoints = checkpoint.Checkpoints(
            workdir, given['keep_checkpoints'], chief
        )
        first = checkpoints.restore(lasting, state.parts())
        state.share()
        if first and state.is_local:
            print(
                'memory starts empty: that of several machines is not saved',
                flush=True,
            )
        step.assign(first)
        size = sum(int(tf.size(v)) for v in optimizer.variables.values())
        print(
            f'{given["objectives"]}: {size:,} weights, {config.precision}, '
            f'{replicas} replica{"s" if replicas > 1 else ""}, '
            f'{given["steps"]:,} steps of {given["batch_size"]} x '
            f'{given["seq_len"]} tokens',
            flush=True,
        )

        def write_weights(now: int) -> None:
            """What travels."""
            tensors = {k: v.numpy() for k, v in model.travelling.items()}
            tensors['unigram'] = text.train.counts
            checkpoint.write_weights(workdir, tensors, now)

        def save(now: int) -> None:
            """What a run resumes from, and what travels."""
            checkpoints.save(now, lasting | state.parts())
            write_weights(now)

        # A run that was stopped between the two.
        if chief and first and checkpoint.weights_step(workdir) != first:
            write_weights(first)

        # loop -----------------------------------------------------------------
        counts, heldout_counts = text.train.counts, text.heldout.counts
        dataset = batches.Batches(
            sources, plan, tokenizer.specials, seed
        ).dataset(first, max(given['steps'], first + 1))
        trainer = loop.Trainer(
            model,
            dataset,
            strategy,
            optimizer,
            step,
            lambda s: optim.schedule(
                s, given['learning_rate'], warmup_steps, given['steps'], rules
            ),
            Statistics(counts, counts),
            seed,
            given['batch_size'],
            given['xla'],
            state,
        )
        heldout = loop.Heldout(
            model,
            batches.heldout_views(text.heldout, plan, tokenizer.specials),
            Statistics(counts, heldout_counts),
        )
        pace = fit.make_pace(
            given['steps'],
            given['log_every'],
            given['eval_every'],
            given['checkpoint_every'],
        )
        places = fit.places_of(dataset)
        fit.fit(workdir, trainer, heldout, save, pace, places, chief)


def flagfile() -> str:
    """The flags that were given, as a flagfile that runs this again."""
    names = values()
    given = (flags.FLAGS[name] for name in names if flags.FLAGS[name].present)
    return '\n'.join(sorted(flag.serialize() for flag in given)) + '\n'


if __name__ == '__main__':
    commands.start(
        train, stopped='the same command goes on from the last checkpoint'
    )
