"""A run, in order: devices, text, config, model, loop.

`infoword_tf.train` gives it the values of its flags; commands that train on
labelled examples (tasks/finetune.py) give it those too.
"""

import contextlib
import gc
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from infoword_tf import commands, files
from infoword_tf.config import TokenizerConfig
from infoword_tf.data import batches
from infoword_tf.data.examples import Examples
from infoword_tf.data.opened import TextChoices, open_text
from infoword_tf.objectives import Statistics
from infoword_tf.plan import Plan
from infoword_tf.resolve import Resolved
from infoword_tf.training import (
    checkpoint,
    distribution,
    fit,
    loop,
    optim,
    precision,
    record,
)
from infoword_tf.training.built import Shared, build, shape_of
from infoword_tf.training.workdir import Workdir
from infoword_tf.views.examples import FOLLOWING

FAR = 1 << 40  # a step that no run reaches


class Labelled(NamedTuple):
    """What a run is given besides text.

    Attributes:
        train, heldout: labelled examples.
        fingerprint: changes when they do.
        goal: by what the weights that travel are chosen.
        measures: by row, what predictions for all held-out examples come to.
        kept: fields of the config that serving wants: names of classes, say.
        started: what --init holds, where it is in memory.
        shared: with other runs on the same examples.
        source: where `started` is from, for people; '': from --init.
    """

    train: Examples
    heldout: Examples
    fingerprint: str
    goal: fit.Goal
    measures: Mapping[str, loop.Measure]
    kept: Mapping[str, Any] = {}
    started: Workdir | None = None
    shared: Shared | None = None
    source: str = ''

    def statistics(
        self,
        counts: np.ndarray,
        heldout: bool,
        plan: Plan,
        control_ids: Sequence[int],
    ) -> Statistics:
        """Of pieces, and of what is said of examples.

        Args:
            counts: [V], of the text that is trained on.
            heldout: whether held-out examples are measured.
            plan: which rows ask for pieces of the examples.
            control_ids: pieces that no text has.
        """
        measured = self.heldout if heldout else self.train
        own = {
            row: Statistics(found, measured.counts[row])
            for row, found in self.train.counts.items()
        }
        for row, reads in plan.views['examples'].rows.items():
            if reads.states == FOLLOWING:
                own[row] = Statistics(
                    self.train.pieces(len(counts), control_ids),
                    measured.pieces(len(counts), control_ids),
                )
        return Statistics(counts, counts, own=own)


def run(
    given: Mapping[str, Any],
    resolved: Resolved,
    choices: TextChoices,
    flagfile: str,
    labelled: Labelled | None = None,
) -> dict[str, Any]:
    """The whole run.

    Args:
        given: by flag of `infoword_tf.train`, its value.
        resolved: what they decide.
        choices: what they choose of the text.
        flagfile: the flags that were given, for people.
        labelled: examples, where rows read them.

    Returns:
        What metrics.json holds.

    Raises:
        UsageError: what was asked for cannot be.
        ValueError: the text or --init cannot be read.
    """
    given = dict(given)
    workdir, init = pathlib.Path(given['workdir']), given['init']
    if resolved.plan.labelled and labelled is None:
        raise commands.UsageError(
            f'--objectives={given["objectives"]} reads labelled examples; '
            'train it with tasks.classify, tasks.glue or tasks.squad'
        )

    goal = labelled and labelled.goal
    if given['best']:
        goal = fit.Goal(fit.LOSS, lowest=True)
    if goal is not None:
        goal = goal._replace(patience=given['patience_evals'])

    # devices ------------------------------------------------------------------
    commands.hush_tensorflow()
    shared = (labelled and labelled.shared) or Shared()
    if shared.strategy is None:
        shared.strategy = distribution.make_strategy(
            given['strategy'], given['logical_cpus']
        )
    strategy = shared.strategy
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
        started = labelled.started if labelled else None
        if init and started is None:
            started = Workdir.read(init)
        tokenizer = started and started.tokenizer
        text, plan, seed = None, resolved.plan, given['seed']
        if plan.reads_text:
            text = open_text(choices, tokenizer)
            tokenizer = text.tokenizer
        counts = np.zeros(len(tokenizer), np.int64)
        if text is not None:
            counts = text.train.counts
        elif started.unigram is not None:
            counts = started.unigram
        examples = labelled and labelled.train
        sources = batches.open_sources(
            text and text.train, plan, given['batch_size'], seed, examples
        )
        for reading, source in sources.items():
            if source.single is not None:
                print(
                    f'{source.single:,} documents have one sentence and no '
                    f'part in {", ".join(plan.readers(reading))}',
                    flush=True,
                )

        # config ---------------------------------------------------------------
        rules = optim.chosen(
            given['optimizer'], given['weight_decay'], given['clip_norm']
        )
        given |= {
            'weight_decay': rules.weight_decay,
            'clip_norm': rules.clip_norm,
        }
        config = resolved.config(
            len(tokenizer),
            TokenizerConfig(
                tokenizer.kind, tokenizer.lower_case, tokenizer.options
            ),
            precision.decide(
                given['precision'],
                workdir,
                strategy.extended.worker_devices[0],
            ),
            replicas,
        )
        fingerprints = [text.fingerprint] if text else []
        if labelled is not None:
            fingerprints.append(labelled.fingerprint)
            config = config.replace(**labelled.kept)
        dataset_of = batches.Batches(
            sources, plan, tokenizer.specials, seed
        ).dataset
        minutes = given['minutes']
        if minutes is not None:
            given['steps'] = record.begun_steps(workdir, minutes)
        if given['steps'] is None:
            # Made for that alone: the run begins as if it had not been.
            trial = build(
                {**given, 'steps': 1, 'learning_rate': 0.0},
                config,
                tokenizer.specials,
                strategy,
                (rules, 0),
                dataset_of(0, FAR),
                Statistics(counts, counts),
            )
            given['steps'] = fit.steps_in(minutes, trial.trainer)
            del trial
            gc.collect()  # models are full of circles
            print(
                f'--minutes={minutes:g}: there is time for '
                f'{given["steps"]:,} steps',
                flush=True,
            )
        warmup_steps = optim.warmup_steps(
            given['warmup_steps'], given['steps'], rules
        )
        pace = fit.make_pace(
            given['steps'],
            given['log_every'],
            given['eval_every'],
            given['checkpoint_every'],
        )
        given['eval_every'] = pace.evaluate
        config = config.replace(
            run=record.run_record(
                given,
                config,
                warmup_steps,
                ' '.join(fingerprints),
                text.vocabulary if text else 'of --init',
            )
        )
        if chief:
            record.agree(workdir, config, flagfile)
            with files.written(workdir / tokenizer.file) as partial:
                tokenizer.write(partial)

        # model, graphs, and all that lasts from step to step ----------------
        shape = shape_of(given, config, rules, warmup_steps)
        built = shared.built.get(shape)
        if built is None:
            statistics = heldout_statistics = Statistics(counts, counts)
            if labelled is not None:
                statistics, heldout_statistics = (
                    labelled.statistics(
                        counts, heldout, plan, tokenizer.control_ids
                    )
                    for heldout in (False, True)
                )
            if text is not None:
                heldout_statistics = heldout_statistics._replace(
                    measured=text.heldout.counts
                )
            built = build(
                given,
                config,
                tokenizer.specials,
                strategy,
                (rules, warmup_steps),
                dataset_of(0, 1),
                statistics,
            )
            built.heldout = loop.Heldout(
                built.model,
                batches.heldout_views(
                    text and text.heldout,
                    plan,
                    tokenizer.specials,
                    labelled and labelled.heldout,
                ),
                heldout_statistics,
                labelled.measures if labelled else {},
            )
            if not built.state.parts():  # which begins empty
                shared.keep(shape, built)
        else:
            built.begin_again(
                seed,
                given['init_deviation'],
                given['learning_rate'],
                dataset_of(0, 1),
            )
        model, optimizer, state = built.model, built.optimizer, built.state
        trainer = built.trainer
        if started is not None:
            source = (labelled and labelled.source) or f'--init={init}'
            print(f'{source}: {started.start(model)}', flush=True)
        lasting = {f'model/{k}': v.value for k, v in model.lasting.items()}
        lasting |= {f'optimizer/{k}': v for k, v in optimizer.slots.items()}
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
        trainer.step.assign(first)
        trainer.train_dataset = dataset = dataset_of(
            first, max(given['steps'], first + 1)
        )
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
            if counts.any():
                tensors['unigram'] = counts
            checkpoint.write_weights(workdir, tensors, now)

        def save(now: int) -> None:
            """What a run resumes from, and what travels."""
            checkpoints.save(now, lasting | state.parts())
            if goal is None:
                write_weights(now)

        # A run that was stopped between the two.
        stale = checkpoint.weights_step(workdir) != first
        if chief and first and stale and goal is None:
            write_weights(first)

        # loop -----------------------------------------------------------------
        return fit.fit(
            workdir,
            trainer,
            built.heldout,
            save,
            pace,
            fit.places_of(dataset),
            chief,
            goal,
            write_weights,
        )
