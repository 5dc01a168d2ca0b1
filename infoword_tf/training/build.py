"""The parts of a run: what it decides, its model with all that trains it.

A `Build` outlives its run where several runs of a process have one shape.
"""

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from infoword_tf import errors, files
from infoword_tf.choices import RunChoices
from infoword_tf.config import Config
from infoword_tf.data import batches, translations
from infoword_tf.data.examples import Examples
from infoword_tf.data.opened import RunData, TokenizedPairs
from infoword_tf.model import Model
from infoword_tf.objectives import Statistics
from infoword_tf.plan import Plan
from infoword_tf.training import fit, loop, optim
from infoword_tf.training.state import State
from infoword_tf.views.examples import FOLLOWING
from infoword_tf.workdir import Workdir

# Held-out text has 512 sequences. Each of several languages has a share: a
# half, a third, and a quarter of four or more.
MOST_LANGUAGES = 4
# Builds that are cached: the shapes of a published grid beside its rates.
MOST_BUILDS = 6
# Flags that decide the graphs of a run, beside its config.
SHAPE = (
    'batch_size', 'microbatch', 'remat', 'xla', 'freeze', 'layer_decay',
    'logical_cpus',
)  # fmt: skip


class Decisions(NamedTuple):
    """All numbers that decide the weights, as recorded.

    Attributes:
        choices: choices as they were checked; the fields below stand for
            those that are None.
        config: content of config.json, with the record of the run.
        course: updates, decided by the text or the clock, too.
        pace: steps between logging, evaluations and checkpoints.
    """

    choices: RunChoices
    config: Config
    course: optim.Course
    pace: fit.Pace


@dataclasses.dataclass
class Learner:
    """A model with optimizer, state, and the graphs of a step.

    Attributes:
        model: encoders and objectives.
        optimizer: updates of their weights.
        peak: float32 variable, the peak learning rate.
        state: variables that steps hand on.
        trainer: loop over steps.
    """

    model: Model
    optimizer: optim.AdamW
    peak: tf.Variable
    state: State
    trainer: loop.Trainer

    def free(self) -> None:
        """Empties weights and moments, after which the learner is of no use.

        TensorFlow registers custom gradients for as long as the process lives,
        these hold the graphs, and the graphs the variables.
        """
        weights = [x.value for x in self.model.variables.values()]
        for variable in (*weights, *self.optimizer.slots.values()):
            for part in self.trainer.strategy.experimental_local_results(
                variable
            ):
                tf.raw_ops.AssignVariableOp(
                    resource=part.handle, value=tf.zeros((), part.dtype)
                )


@dataclasses.dataclass
class Build(Learner):
    """A learner of a run, which other runs of the same shape may take over.

    Attributes:
        heldout: measurement of held-out text.
        first: first values of vectors and scalars, by path. Matrices are drawn
            from the seed instead.
    """

    heldout: loop.Heldout | loop.HeldoutLanguages

    def __post_init__(self):
        """Copies the first values that are not drawn."""
        self.first = {
            path: variable.numpy()
            for path, variable in self.model.variables.items()
            if len(variable.shape) < 2
        }

    def reset(self, choices: RunChoices, dataset: tf.data.Dataset) -> None:
        """Resets weights, optimizer and step, for another seed and rate."""
        files.assign(
            {path: self.model.variables[path] for path in self.first},
            self.first,
            'the first weights',
        )
        self.model.draw_weights(choices.seed, choices.init_deviation)
        self.optimizer.reset()
        self.peak.assign(choices.learning_rate)
        self.trainer.step.assign(0)
        self.trainer.restart(dataset, choices.seed)

@dataclasses.dataclass
class BuildCache:
    """The devices and the builds that runs of one process share.

    The runs of a sweep differ in seed and learning rate alone: the first one of
    a shape traces and compiles its graphs for all.

    Attributes:
        strategy: None before the first run.
        builds: one of each shape, by `shape_of`.
    """

    strategy: tf.distribute.Strategy | None = None
    builds: dict[str, 'Build'] = dataclasses.field(default_factory=dict)

    def add(self, shape: str, build: 'Build') -> None:
        """Adds a build, and drops the oldest of too many: each is large."""
        if len(self.builds) == MOST_BUILDS:
            self.builds.pop(next(iter(self.builds))).free()
        self.builds[shape] = build

    def clear(self) -> None:
        """Removes all builds, and frees the memory."""
        while self.builds:
            self.builds.popitem()[1].free()


class LabelledData(NamedTuple):
    """Labelled examples of a run, and decisions of the task.

    Attributes:
        train, heldout: labelled examples.
        fingerprint: changes when the examples do.
        goal: criterion of the weights that are exported.
        measures: functions of the predictions for all held-out examples that
            give the metrics of the task, by row.
        config_fields: fields of the config that serving needs, such as the
            names of classes.
        started: the workdir of --init, where it is in memory.
        shared: builds of other runs on the same examples.
        source: name of where `started` comes from, for people; '': it is
            --init.
        record: further decisions of the task about the weights, by flag.
    """

    train: Examples
    heldout: Examples
    fingerprint: str
    goal: fit.Goal
    measures: Mapping[str, loop.Measure]
    config_fields: Mapping[str, Any] = {}
    started: Workdir | None = None
    shared: BuildCache | None = None
    source: str = ''
    record: Mapping[str, Any] = {}

    def statistics(
        self,
        counts: np.ndarray,
        heldout: bool,
        plan: Plan,
        control_ids: Sequence[int],
    ) -> Statistics:
        """Returns counts of tokens [V], and of the labels of examples."""
        measured = self.heldout if heldout else self.train
        by_row = {
            row: Statistics(labels, measured.counts[row])
            for row, labels in self.train.counts.items()
        }
        for row, reads in plan.views['examples'].rows.items():
            if reads.where == FOLLOWING:
                by_row[row] = Statistics(
                    self.train.tally(len(counts), control_ids),
                    measured.tally(len(counts), control_ids),
                )
        return Statistics(counts, counts, by_row=by_row)


def build_or_reuse(
    decisions: Decisions,
    plan: Plan,
    data: RunData,
    labelled: LabelledData | None,
    shared: BuildCache,
    strategy: tf.distribute.Strategy,
) -> Build:
    """Builds model, optimizer and state, or resets a build of the sweep."""
    choices, config, course, _ = decisions
    shape = shape_of(choices, config, course)
    dataset = data.batches.dataset(0, 1)
    if shape in shared.builds:
        reused = shared.builds[shape]
        reused.reset(choices, dataset)
        return reused
    learner = make_learner(
        choices,
        config,
        data,
        strategy,
        course=course,
        dataset=dataset,
        statistics=_training_statistics(plan, data, labelled),
        unmeasured=batches.unmeasured(plan),
    )
    heldout = make_heldout(learner.model, plan, data, labelled)
    new = Build(**vars(learner), heldout=heldout)
    if not new.state.variables():  # `reset` empties no state
        shared.add(shape, new)
    return new


def shape_of(choices: RunChoices, config: Config, course: optim.Course) -> str:
    """Returns, as JSON, all that decides the graphs of a run."""
    flags = [getattr(choices, name) for name in SHAPE]
    values = config.replace(run={}).to_json()
    return json.dumps([values, flags, course._replace(peak=0.0)])


def make_learner(
    choices: RunChoices,
    config: Config,
    data: RunData,
    strategy: tf.distribute.Strategy,
    course: optim.Course,
    dataset: tf.data.Dataset,
    statistics: Statistics,
    unmeasured: Collection[str] = (),
) -> Learner:
    """Makes model, optimizer, state and trainer.

    Args:
        choices: choices of model, batch and devices.
        config: content of config.json.
        data: opened text, whose tokens and longest pairs count.
        strategy: devices.
        course: updates of the run.
        dataset: flat views, of the shapes of the run's.
        statistics: counts of the training text.
        unmeasured: rows without MI of the training text, see
            `batches.unmeasured`.
    """
    with strategy.scope():
        model = Model(
            config, data.tokenizer.specials, choices.seed,
            deviation=choices.init_deviation,
        )
        model.encoder.remat = choices.remat
        for objective in model.objectives.values():
            objective.limit_texts(data.longest)
            objective.steps = course.steps
        learning = {
            path: variable
            for path, variable in model.trainable.items()
            if not (choices.freeze and path.startswith('encoder/'))
        }
        shares = {}
        if choices.layer_decay != 1.0:
            layers = len({*model.encoder.blocks})  # one, if they share weights
            shares = optim.layer_shares(learning, layers, choices.layer_decay)
        optimizer = optim.AdamW(
            learning, course.rules, shares, model.no_decay
        )
    peak = tf.Variable(course.peak, dtype=tf.float32, trainable=False)
    state = State(model, strategy, choices.batch_size)

    def rate(step: tf.Tensor) -> tf.Tensor:
        return optim.schedule(
            step,
            peak.read_value(),
            course.warmup_steps,
            course.steps,
            rules=course.rules,
        )

    trainer = loop.Trainer(
        dataset,
        state,
        optimizer,
        learning_rate=rate,
        statistics=statistics,
        seed=choices.seed,
        computation=loop.Computation(choices.xla, choices.microbatch),
        unmeasured=unmeasured,
    )
    return Learner(model, optimizer, peak=peak, state=state, trainer=trainer)


def _training_statistics(
    plan: Plan, data: RunData, labelled: LabelledData | None
) -> Statistics:
    """Returns token and label counts of the training text."""
    counts = data.counts
    if labelled is not None:
        return labelled.statistics(
            counts, False, plan, data.tokenizer.control_ids
        )
    by_row = {}
    if data.translations is not None:
        tokens = data.translations.train.counts(len(counts))
        readers = plan.readers_of('translations')
        by_row = dict.fromkeys(readers, Statistics(tokens, tokens))
    return Statistics(counts, counts, by_row=by_row)


def make_heldout(
    model: Model,
    plan: Plan,
    data: RunData,
    labelled: LabelledData | None = None,
) -> loop.Heldout | loop.HeldoutLanguages:
    """Returns the measurement of held-out text: as a whole, or by language.

    Raises: ValueError: there is not enough held-out text.
    """
    counts, specials = data.counts, data.tokenizer.specials
    stores = data.text.by_language if data.text else {'': (None, None)}
    most = batches.HELDOUT_SEQUENCES // min(len(stores), MOST_LANGUAGES)
    measured: dict[str, loop.Heldout] = {}
    for language, (trained, held) in stores.items():
        statistics = Statistics(counts, counts)
        measures: Mapping[str, loop.Measure] = {}
        examples = pairs = None
        if not measured:  # texts of no language are measured with the first
            examples = labelled and labelled.heldout
            pairs = data.pairs and data.pairs.heldout
        if labelled is not None and not measured:
            measures = labelled.measures
            statistics = labelled.statistics(
                counts, True, plan, data.tokenizer.control_ids
            )
        if trained is not None and held is not None:
            statistics = statistics._replace(
                training=trained.counts, measured=held.counts
            )
        try:
            views = batches.heldout_views(
                held,
                plan,
                specials,
                examples=examples,
                pairs=pairs,
                most=most,
            )
        except ValueError as error:
            if len(stores) == 1:
                raise
            views = {}  # of a few lines; the others are measured
            print(f'{language} is not measured: {error}', flush=True)
        if views:
            measured[language] = loop.Heldout(
                model, views, statistics, measures
            )
    if data.text is not None and not measured:
        raise errors.InputError(
            'no_heldout_languages',
            'no language has enough held-out text; hold out more '
            '(--heldout=LANGUAGE=GLOB), or lower --seq_len',
        )
    if data.translations is not None:
        measured |= _heldout_translations(model, plan, data, data.translations)
        return loop.HeldoutLanguages(measured)
    return loop.HeldoutLanguages(measured) if len(stores) > 1 else measured['']


def _heldout_translations(
    model: Model, plan: Plan, data: RunData, texts: TokenizedPairs
) -> dict[str, loop.Heldout]:
    """Returns the measurement of held-out translations by pair of languages."""
    counts, rows = data.counts, plan.readers_of('translations')
    size, measured, lacking = len(counts), {}, set(rows)
    for languages, held in texts.heldout.parts.items():
        trained = texts.train.parts[languages]
        of_pairs = Statistics(trained.tally(size), held.tally(size))
        try:
            views = batches.heldout_views(
                None,
                plan,
                data.tokenizer.specials,
                translations=translations.ParallelText({languages: held}),
            )
        except ValueError as error:  # of a pair or two
            print(f'{languages} is not measured: {error}', flush=True)
            continue
        statistics = Statistics(
            counts, counts, by_row=dict.fromkeys(rows, of_pairs)
        )
        measured[languages] = loop.Heldout(model, views, statistics)
        lacking -= set(measured[languages].rows)
    if lacking:
        raise errors.InputError(
            'no_heldout_translations',
            f'{", ".join(sorted(lacking))}: there is not one held-out '
            'example of translations; name more with --heldout_parallel',
        )
    return measured
