"""A run, in the order in which it happens: `run` is the table of contents.

training/begin.py hands over what it has checked; commands that train on
labelled examples (tasks/finetune.py) add those. The stages below `run` stand in
its order, and each gets by name what the stages before it returned.
"""

import contextlib
import dataclasses
import functools
import math
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from infoword_tf import checkpoint, errors, files
from infoword_tf.choices import STEPS, RunChoices
from infoword_tf.config import WEIGHTS, Config
from infoword_tf.data import batches
from infoword_tf.data.opened import RunData, digest_of, open_data
from infoword_tf.data.text_pairs import TextPairSource
from infoword_tf.evaluation.judgements import Judgements
from infoword_tf.model import Model
from infoword_tf.objectives import (
    SUMS,
    TABLE,
    Auxiliary,
    Statistics,
    decided,
)
from infoword_tf.resolve import Resolved
from infoword_tf.training import (
    distribution,
    fit,
    optim,
    record,
)
from infoword_tf.training.begin import Checked, guides_of
from infoword_tf.training.build import (
    Build,
    BuildCache,
    Decisions,
    LabelledData,
    build_or_reuse,
    make_learner,
)
from infoword_tf.training.guide import open_guides
from infoword_tf.workdir import Workdir

if TYPE_CHECKING:
    from infoword_tf.training.evaluators import Evaluator

FEW_STEPS = 200  # of --minutes; with fewer a run is told so
FAR = 1 << 40  # a step that no run reaches


def run(
    checked: Checked, flagfile: str, labelled: LabelledData | None = None
) -> dict[str, Any]:
    """Trains a run: devices, text, config, agreement, model, loop, saving.

    Args:
        checked: choices, and decisions that need no text.
        flagfile: the explicit choices, for flags.txt.
        labelled: the examples of rows that people label.

    Returns:
        Content of metrics.json.

    Raises: as `begin.check_and_run`.
    """
    choices, resolved, texts, judged = checked
    workdir = pathlib.Path(choices.workdir)
    shared = (labelled and labelled.shared) or BuildCache()
    with contextlib.ExitStack() as stack:
        stack.enter_context(distribution.ended_by_lost_workers())

        # ------------------------------------------------------------ devices
        strategy = open_devices(choices, shared)
        # Every worker holds the same weights: one of them writes.
        is_chief = distribution.is_chief(strategy)

        # ------------------------------ text, tokenizer, statistics, batches
        with distribution.failing_together(strategy):
            if is_chief:
                stack.enter_context(files.locked(workdir))
            data = open_data(
                choices,
                resolved.plan,
                started=open_init(choices, labelled),
                examples=labelled and labelled.train,
                texts=texts,
                open_guides=functools.partial(open_guides, guides_of(choices)),
            )

        # ----------------------------------- config, steps, optimizer, record
        decisions = decide(
            choices,
            resolved,
            data,
            strategy=strategy,
            labelled=labelled,
            judged=judged,
        )
        config = decisions.config

        # ---------------------- agreement with other machines and the workdir
        refuse_differing_machines(strategy, choices, config)
        with distribution.failing_together(strategy):
            if is_chief:
                record.write_or_compare(workdir, config, flagfile)
                tokenizer_file = workdir / data.tokenizer.file
                with files.written(tokenizer_file) as partial:
                    data.tokenizer.write(partial)
                refuse_other_vocabularies(resolved.auxiliaries, tokenizer_file)

        # ------------------------------------------- model, optimizer, state
        build = build_or_reuse(
            decisions,
            resolved.plan,
            data,
            labelled,
            shared=shared,
            strategy=strategy,
        )
        start_from_init(decisions, build.model, data.started, labelled)

        # --------------------------------------------------- loop and saving
        return train_and_save(
            decisions,
            build,
            data,
            strategy=strategy,
            labelled=labelled,
            judged=judged,
        )


# -------------------------------------------------------------------- devices


def open_devices(
    choices: RunChoices, shared: BuildCache
) -> tf.distribute.Strategy:
    """Creates the strategy, or reuses that of the sweep.

    Raises: UsageError, ValueError: the batch or the compiler does not fit it.
    """
    if shared.strategy is None:
        shared.strategy = distribution.make_strategy(
            choices.strategy, choices.logical_cpus
        )
    distribution.check(
        shared.strategy.num_replicas_in_sync, choices.batch_size,
        one_cpu=choices.logical_cpus > 1, xla=choices.xla,
    )  # fmt: skip
    return shared.strategy


# ------------------------------------------------------------------------ text


def open_init(
    choices: RunChoices, labelled: LabelledData | None
) -> Workdir | None:
    """Opens the workdir of --init, or returns the one in memory."""
    if labelled is not None and labelled.started is not None:
        return labelled.started
    return Workdir.open(choices.init) if choices.init else None


# --------------------------------------------------------------------- config


def decide(
    choices: RunChoices,
    resolved: Resolved,
    data: RunData,
    strategy: tf.distribute.Strategy,
    labelled: LabelledData | None,
    judged: Judgements | None,
) -> Decisions:
    """Decides the config, the number of steps and the optimizer's numbers."""
    workdir = pathlib.Path(choices.workdir)
    rules = optim.preset(
        choices.optimizer,
        weight_decay=choices.weight_decay,
        clip_norm=choices.clip_norm,
        moments=choices.moments,
        lr_decay=choices.lr_decay,
    )
    policy = record.decide_precision(
        choices.precision, workdir, strategy.extended.worker_devices[0]
    )
    (slow,) = distribution.any_process(strategy, policy == 'float32')
    if slow and choices.precision == 'auto':  # what all machines are good at
        policy = 'float32'
    config = resolved.config(
        len(data.tokenizer), data.tokenizer.config, policy,
        strategy.num_replicas_in_sync,
    )  # fmt: skip
    if labelled is not None:
        config = config.replace(**labelled.config_fields)
    if config.adapter is not None and choices.init:
        base = pathlib.Path(choices.init).resolve()
        adapter = dataclasses.replace(
            config.adapter,
            base=str(base),
            digest=files.digest_of(base / WEIGHTS),
        )
        config = config.replace(adapter=adapter)
    read = data.text, data.pairs, data.translations, labelled
    fingerprints = [x.fingerprint for x in read if x is not None]
    if choices.minutes is None:
        steps = _steps_of(choices, data.batches)
    else:
        steps = record.begun_steps(workdir, choices.minutes) or _timed_steps(
            choices,
            choices.minutes,
            config=config,
            data=data,
            strategy=strategy,
            rules=rules,
        )
    warmup_steps = optim.warmup_steps(choices.warmup_steps, steps, rules)
    pace = fit.make_pace(
        steps, choices.log_every, choices.eval_every, choices.checkpoint_every
    )
    of_init = data.text is None and data.started is not None
    digest = digest_of(data.tokenizer)
    more = {
        'steps': steps,
        'warmup_steps': warmup_steps,
        'weight_decay': rules.weight_decay,
        'clip_norm': rules.clip_norm,
        **(labelled.record if labelled else {}),
    }
    if choices.best:  # one of the held-out values
        more['eval_every'] = pace.evaluate
    if judged is not None and isinstance(choices.best, str):
        more['best'] = f'{choices.best} (files {judged.fingerprint})'
    guides = data.pairs.guides if data.pairs else {}
    more |= {flag: record.known_by(*known) for flag, known in guides.items()}
    written = record.run_record(
        choices,
        config,
        fingerprint=' '.join(fingerprints),
        vocabulary='of --init' if of_init else digest,
        auxiliaries=resolved.auxiliaries,
        more=more,
    )
    return Decisions(
        choices,
        config.replace(run=written, vocabulary=digest),
        optim.Course(rules, steps, warmup_steps, choices.learning_rate),
        pace,
    )


def _steps_of(choices: RunChoices, all_batches: batches.Batches) -> int:
    """Returns the updates of --steps or --epochs, or by default."""
    of_pairs = (
        source.updates
        for source in all_batches.sources.values()
        if isinstance(source, TextPairSource)
    )
    updates = next(of_pairs, 0)  # of an epoch; 0: no row reads pairs
    if choices.steps is not None or choices.epochs is not None:
        return choices.steps_of(updates)
    named = SUMS.get(choices.objectives)
    if not (updates and choices.init and named and named.epochs):
        return STEPS
    steps = choices.decided(epochs=named.epochs).steps_of(updates)
    return max(named.least, steps)


def _timed_steps(
    choices: RunChoices,
    minutes: float,
    config: Config,
    data: RunData,
    strategy: tf.distribute.Strategy,
    rules: optim.Preset,
) -> int:
    """Measures how many updates --minutes have room for, on a trial model."""
    trial = make_learner(
        choices,
        config,
        data,
        strategy,
        course=optim.Course(rules, steps=1, warmup_steps=0, peak=0.0),
        dataset=data.batches.dataset(0, FAR),
        statistics=Statistics(data.counts, data.counts),
    )
    steps = fit.steps_in(minutes, trial.trainer)
    trial.free()
    print(
        f'--minutes={minutes:g}: there is time for {steps:,} steps',
        flush=True,
    )
    if steps < FEW_STEPS:
        print(too_few(steps, minutes, choices), flush=True)
    return steps


def too_few(steps: int, minutes: float, choices: RunChoices) -> str:
    """Returns advice to a run whose --minutes have room for few updates."""
    enough = math.ceil(minutes * FEW_STEPS / steps)
    smaller = '' if choices.init else 'a smaller --size or '
    return (
        f'{steps:,} updates are too few to learn much: {FEW_STEPS} take '
        f'--minutes={enough}; else take {smaller}a shorter --seq_len than '
        f'{choices.seq_len}'
    )


# ------------------------------------------------------------------ agreement


def refuse_differing_machines(
    strategy: tf.distribute.Strategy, choices: RunChoices, config: Config
) -> None:
    """Raises UsageError if machines began with different flags or files."""
    free = ('microbatch', 'remat', 'on_nonfinite', 'rewinds', 'log_every',
            'checkpoint_every')  # fmt: skip
    known = {
        **config.run,
        **{name: getattr(choices, name) for name in free},
        'the config': config.replace(run={}).to_json(),
        'the weights of --init': choices.init
        and files.digest_of(pathlib.Path(choices.init) / WEIGHTS),
    }
    if unlike := distribution.differing(strategy, known):
        raise errors.UsageError(
            'machines_differ',
            'machines of --strategy=multiworker differ in '
            f'{", ".join(unlike)}; start the same command on all, with the '
            'same code and text',
        )


def refuse_other_vocabularies(
    auxiliaries: Mapping[str, Auxiliary], tokenizer_file: pathlib.Path
) -> None:
    """Raises UsageError if an auxiliary encoder reads other tokens.

    Args:
        auxiliaries: the auxiliary encoders of the rows, by name.
        tokenizer_file: tokenizer of this run.
    """
    for name, auxiliary in auxiliaries.items():
        if not auxiliary.workdir:
            continue
        theirs = pathlib.Path(auxiliary.workdir) / tokenizer_file.name
        same = theirs.is_file() and (
            theirs.read_bytes() == tokenizer_file.read_bytes()
        )
        if not same:
            raise errors.UsageError(
                'auxiliary_other_vocabulary',
                f'{name} begins with {auxiliary.workdir}, which has '
                f'another {tokenizer_file.name} than this run; name it '
                f'with --vocab={theirs}, or --init that workdir',
            )


# ------------------------------------------------------------ weights of --init


def start_from_init(
    decisions: Decisions,
    model: Model,
    started: Workdir | None,
    labelled: LabelledData | None,
) -> None:
    """Copies the weights of --init into the model, and prints which.

    Without --init it prints what rows advise to do first.

    Raises: UsageError: weights are missing that a row has to begin with.
    """
    variables = set(started.weights) if started else set()
    for row, objective in model.objectives.items():
        lacking = {w.path for w in objective.weights} - variables
        lacking -= {copy.weight.path for copy in objective.copied_weights()}
        if objective.init_complaint and lacking:
            raise errors.UsageError(
                'init_lacks_weights', f'{row} {objective.init_complaint}'
            )
    if started is None:
        for row, entry in decisions.config.rows.items():
            advice: str = decided(TABLE[row].init_advice, entry.settings)
            if advice:
                print(f'{row} {advice}', flush=True)
        return
    source = labelled and labelled.source
    source = source or f'--init={decisions.choices.init}'
    print(f'{source}: {started.start(model)}', flush=True)
    before, after = started.config.pooling, decisions.config.pooling
    if before != after:
        print(f'{source} pools by {before}, this run by {after}', flush=True)


# ------------------------------------------------------------ loop and saving


@dataclasses.dataclass
class Saver:
    """The files of a run's weights: checkpoints, and weights.safetensors.

    Attributes:
        workdir: folder of the run.
        checkpoints: checkpoints of the workdir.
        build: whose model, optimizer and state are saved.
        data: whose batches a run that was rewound continues with.
        steps: updates of the run.
        chief: whether this process writes.
        last: whether the last weights are exported, not the best ones.
    """

    workdir: pathlib.Path
    checkpoints: checkpoint.Checkpoints
    build: Build
    data: RunData
    steps: int
    chief: bool
    last: bool

    def __post_init__(self):
        """Collects the variables of a checkpoint."""
        model, slots = self.build.model, self.build.optimizer.slots
        self.variables = {
            **{f'model/{k}': v.value for k, v in model.checkpointed.items()},
            **{f'optimizer/{k}': v for k, v in slots.items()},
        }

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """Devices of the run."""
        return self.build.trainer.strategy

    def restore(self) -> int:
        """Restores the last checkpoint; returns the step, 0 without one."""
        state = self.build.state.variables()
        step = self.checkpoints.restore(self.variables, state)
        self.build.state.broadcast()
        return step

    def begin(self) -> int:
        """Restores the last checkpoint of a run that was stopped.

        Returns:
            The number of updates so far.

        Raises:
            UsageError: machines have other checkpoints.
        """
        first = self.restore()
        restored = distribution.gather_numbers(self.strategy, first)
        if (restored != first).any():
            steps = ', '.join(str(step) for step in restored[:, 0].tolist())
            raise errors.UsageError(
                'machines_other_workdirs',
                f'--workdir={self.workdir} is another folder, or another '
                f'state of it, on each machine (checkpoints of steps {steps}); '
                'name one that all of them reach',
            )
        self.build.trainer.step.assign(first)
        return first

    def write_weights(self, now: int) -> None:
        """Writes weights.safetensors, the exported weights."""
        tensors = {k: v.numpy() for k, v in self.build.model.exported.items()}
        if self.data.counts.any():
            tensors['unigram'] = self.data.counts
        checkpoint.write_weights(self.workdir, tensors, now)

    def repair_weights(self, first: int) -> None:
        """Exports the weights of the checkpoint, if another step is exported.

        A run may have been stopped between the two, or a file be damaged.
        """
        if self.chief and first and self.last:
            written = checkpoint.weights_step(self.workdir, checked=True)
            if written != first:
                self.write_weights(first)

    def save(self, now: int) -> None:
        """Writes a checkpoint, and the exported weights."""
        self.checkpoints.save(now, self.variables | self.build.state.gather())
        if self.chief and self.last:
            self.write_weights(now)

    def rewind(self, failed: int) -> int:
        """Restores the last checkpoint, and skips to the batch after `failed`.

        Returns:
            The step of the checkpoint.
        """
        before, trainer = self.restore(), self.build.trainer
        trainer.step.assign(failed)
        trainer.restart(self.data.batches.dataset(failed, self.steps))
        restored = distribution.gather_numbers(self.strategy, before)
        if (restored != before).any():
            raise RuntimeError(
                f'machines find different checkpoints in {self.workdir}; '
                'start the same command again'
            )
        self.checkpoints.rewound(
            before, failed, self.variables | self.build.state.gather()
        )
        if self.chief and self.last:
            self.write_weights(failed)
        return before


def train_and_save(
    decisions: Decisions,
    build: Build,
    data: RunData,
    strategy: tf.distribute.Strategy,
    labelled: LabelledData | None,
    judged: Judgements | None,
) -> dict[str, Any]:
    """Trains from the last checkpoint, or from the start, to metrics.json.

    Returns:
        What metrics.json holds.
    """
    choices, config, course, pace = decisions
    chief, trainer = distribution.is_chief(strategy), build.trainer
    workdir = pathlib.Path(choices.workdir)
    goal = _goal(choices, labelled, judged)
    evaluator = None
    if judged is not None and chief:
        evaluator = _evaluator(judged, build.model, data, config, pace=pace)
    checkpoints = checkpoint.Checkpoints(
        workdir, choices.keep_checkpoints, chief
    )
    saver = Saver(
        workdir, checkpoints, build, data,
        steps=course.steps, chief=chief, last=goal is None,
    )  # fmt: skip
    first = saver.begin()
    dataset = data.batches.dataset(first, max(course.steps, first + 1))
    trainer.train_dataset = dataset
    _print_sizes(build, decisions)
    saver.repair_weights(first)
    return fit.Fit(
        workdir=workdir,
        trainer=trainer,
        heldout=build.heldout,
        pace=pace,
        sizes=fit.view_sizes(dataset),
        save=saver.save,
        keep=saver.write_weights,
        chief=chief,
        goal=goal,
        evaluator=evaluator,
        rewind=saver.rewind if choices.on_nonfinite == 'rewind' else None,
        checkpoints=checkpoints,
        rewinds=choices.rewinds,
        grace=choices.grace_seconds,
        any_process=functools.partial(distribution.any_process, strategy),
    ).run()


def _print_sizes(build: Build, decisions: Decisions) -> None:
    """Prints the size of a model, and the length of the run."""
    choices, trainer = decisions.choices, build.trainer
    size = sum(int(tf.size(v)) for v in build.optimizer.variables.values())
    replicas = trainer.strategy.num_replicas_in_sync
    print(
        f'{choices.objectives}: {size:,} weights, '
        f'{decisions.config.precision}, '
        f'{replicas} replica{"s" if replicas > 1 else ""}, '
        f'{decisions.course.steps:,} steps of {choices.batch_size} x '
        f'{choices.seq_len} tokens',
        flush=True,
    )
    if trainer.unmeasured:
        print(
            f'{", ".join(sorted(trainer.unmeasured))}: MI is measured on '
            'held-out text alone, since a batch has a text of each length',
            flush=True,
        )


def _goal(
    choices: RunChoices,
    labelled: LabelledData | None,
    judged: Judgements | None,
) -> fit.Goal | None:
    """Returns the criterion of the weights that stay; None: the last weights.
    """
    goal = labelled and labelled.goal
    if choices.best:
        goal = fit.Goal(fit.LOSS, lowest=True)
    if judged is not None and isinstance(choices.best, str):
        goal = fit.Goal(judged.name)
    if goal is not None:
        goal = goal._replace(patience=choices.patience_evals)
    return goal


def _evaluator(
    judged: Judgements,
    model: Model,
    data: RunData,
    config: Config,
    pace: fit.Pace,
) -> 'Evaluator':
    """Returns the evaluator of the model in training."""
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.training.evaluators import Evaluator

    counts = data.counts if data.counts.any() else None
    loaded = Loaded(Workdir(model, data.tokenizer, config, counts))
    evaluator = Evaluator(judged, loaded)
    print(
        f'{judged.spec}: {judged.name} is measured every '
        f'{pace.evaluate:,} steps'
        + (f', {evaluator.cut:,} texts are truncated' if evaluator.cut else ''),
        flush=True,
    )
    return evaluator
