"""A run, in the order in which it happens: `run` is the table of contents.

training/begin.py hands over the checked choices; commands that train on
labelled examples (tasks/finetune.py) add those. The stages below `run` stand in
its order, and each gets by name what the stages before it returned.
"""

import contextlib
import dataclasses
import functools
import gc
import json
import math
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from infoword_tf import checkpoint, errors, files
from infoword_tf.choices import STEPS, RunChoices
from infoword_tf.config import WEIGHTS, Config
from infoword_tf.data import (
    batches,
    corpora,
    parallel,
    text_pairs,
    translations,
)
from infoword_tf.data.examples import Examples
from infoword_tf.data.mixture import Mixture
from infoword_tf.data.opened import (
    OpenedText,
    digest_of,
    open_text,
    open_tokenizer,
)
from infoword_tf.data.store import Store
from infoword_tf.evaluation.judgements import Judgements
from infoword_tf.inference.loaded import Loaded
from infoword_tf.model import Model
from infoword_tf.objectives import (
    SUMS,
    TABLE,
    Auxiliary,
    Statistics,
    decided,
)
from infoword_tf.resolve import Plan, Resolved
from infoword_tf.training import (
    distribution,
    fit,
    loop,
    optim,
    precision,
    record,
)
from infoword_tf.training.evaluators import Evaluator
from infoword_tf.training.guide import open_guides
from infoword_tf.training.state import State
from infoword_tf.views import Specials, root
from infoword_tf.views.examples import FOLLOWING
from infoword_tf.views.pair_candidates import Joining
from infoword_tf.views.sentences import PAIRED
from infoword_tf.workdir import Workdir

FEW_STEPS = 200  # of --minutes; with fewer a run is told so
FAR = 1 << 40  # a step that no run reaches
# Held-out text has 512 sequences. Each of several languages has a share: a
# half, a third, and a quarter of four or more.
MOST_LANGUAGES = 4
# Builds that are cached: the shapes of a published grid beside its rates.
MOST_BUILDS = 6
# Flags that decide the graphs of a run, beside its config.
SHAPE = (
    'batch_size', 'steps', 'microbatch', 'remat', 'xla', 'freeze',
    'layer_decay', 'logical_cpus',
)  # fmt: skip


@dataclasses.dataclass
class BuildCache:
    """The devices and the builds that runs of one process share.

    The runs of a sweep differ in seed and learning rate alone: the first one of
    a shape traces and compiles its graphs for all.

    Attributes:
        strategy: None before the first run.
        builds: by `shape_of`.
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
        goal: what chooses the weights that are exported.
        measures: by row, the function of the predictions for all held-out
            examples that gives the metrics of the task.
        config_fields: fields of the config that serving needs, such as the
            names of classes.
        started: the workdir of --init, where it is in memory.
        shared: builds of other runs on the same examples.
        source: where `started` comes from, for people; '': from --init.
        record: by flag, what else the task decides of the weights.
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


class TokenizedPairs(NamedTuple):
    """Tokenized texts of --pairs or --parallel.

    Attributes:
        train, heldout: the examples.
        fingerprint: changes when the texts do.
        record: by flag, what else decides the weights: guides.
    """

    train: text_pairs.TextPairs | translations.ParallelText
    heldout: text_pairs.TextPairs | translations.ParallelText
    fingerprint: str
    record: Mapping[str, Any] = {}


class RunData(NamedTuple):
    """Inputs of a run, opened.

    Attributes:
        started: the workdir of --init.
        text: the corpus; None: no row reads text.
        pairs, translations: likewise the texts of --pairs and --parallel.
        tokenizer: of all texts.
        counts: [V] int64, of tokens in what is trained on.
        batches: of all steps.
    """

    started: Workdir | None
    text: OpenedText | None
    pairs: TokenizedPairs | None
    translations: TokenizedPairs | None
    tokenizer: Any
    counts: np.ndarray
    batches: batches.Batches

    @property
    def longest(self) -> tuple[int, int]:
        """Tokens of the longest a and b of --pairs; without pairs 0."""
        if self.pairs is None:
            return 0, 0
        both = self.pairs.train.longest, self.pairs.heldout.longest
        return tuple(map(max, zip(*both, strict=True)))


class Decisions(NamedTuple):
    """All numbers that decide the weights, as recorded.

    Attributes:
        choices: with the number of steps and the numbers of the optimizer.
        config: with the record of the run.
        rules: of the optimizer.
        warmup_steps: updates until the peak learning rate.
        pace: steps between logging, evaluations and checkpoints.
    """

    choices: RunChoices
    config: Config
    rules: optim.Preset
    warmup_steps: int
    pace: fit.Pace


@dataclasses.dataclass
class Build:
    """A model with optimizer, state, and the graphs of a step.

    Attributes:
        peak: float32 variable, the peak learning rate.
        heldout: None until the first run has measured text.
        first: by path, the first values of vectors and scalars. Matrices are
            drawn from the seed instead.
    """

    model: Model
    optimizer: optim.AdamW
    peak: tf.Variable
    state: State
    trainer: loop.Trainer
    heldout: loop.Heldout | loop.HeldoutLanguages | None = None

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

    def free(self) -> None:
        """Empties weights and moments, after which the build is of no use.

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


def run(
    choices: RunChoices,
    resolved: Resolved,
    flagfile: str,
    labelled: LabelledData | None = None,
    judged: Judgements | None = None,
    texts: Mapping[str, corpora.Corpus] | None = None,
) -> dict[str, Any]:
    """Trains a run: devices, text, config, agreement, model, loop, saving.

    Args:
        choices: checked.
        resolved: what they decide before the text is read.
        flagfile: the explicit choices, for flags.txt.
        labelled: the examples of rows that people label.
        judged: what --best or --measure names.
        texts: by language, the opened corpora; None: `open_data` opens them.

    Returns:
        What metrics.json holds.

    Raises: as `begin.check_and_run`.
    """
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
            data = open_data(choices, resolved.plan, labelled, texts)

        # ----------------------------------- config, steps, optimizer, record
        decisions = decide(choices, resolved, data, strategy, labelled, judged)
        choices, config = decisions.choices, decisions.config

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
            decisions, resolved.plan, data, labelled, shared
        )
        start_from_init(decisions, build.model, data.started, labelled)

        # --------------------------------------------------- loop and saving
        return train_and_save(
            decisions, build, data, strategy, labelled, judged
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


# ----------------------------------------------------------------------- text


def open_data(
    choices: RunChoices,
    plan: Plan,
    labelled: LabelledData | None = None,
    texts: Mapping[str, corpora.Corpus] | None = None,
) -> RunData:
    """Opens --init, the corpus and the examples; tokenizes new text.

    Args: as of `run`.
    """
    started = labelled.started if labelled else None
    if choices.init and started is None:
        started = Workdir.open(choices.init)
    tokenizer = started and started.tokenizer
    bitexts, spoken = None, {}
    if plan.reads('translations'):
        bitexts = parallel.read(
            choices.parallel, choices.heldout_parallel, choices.drop_equal
        )
        spoken = {
            language: corpora.Corpus(
                f'--parallel ({language})',
                bitexts.fingerprint,
                functools.partial(bitexts.documents_of, language),
                tuple,
            )
            for language in bitexts.languages
        }
    text = pairs = parallel_texts = None
    if plan.reads('text'):
        text = open_text(choices, tokenizer, spoken, texts)
        tokenizer = text.tokenizer
        if started is not None:
            text = _prompted(text, started.config)
    if plan.reads('pairs'):
        tokenizer, pairs = _open_pairs(
            choices, tokenizer, started, sides_of(plan)
        )
    if bitexts is not None:
        if tokenizer is None:
            tokenizer = open_tokenizer(choices, spoken, files.cache_dir())
        parallel_texts = _tokenize_translations(choices, tokenizer, bitexts)
    counts = _token_counts(tokenizer, started, text, pairs, parallel_texts)
    sources = batches.open_sources(
        text and text.train, plan, choices.batch_size, choices.seed,
        labelled and labelled.train, pairs and pairs.train,
        parallel_texts and parallel_texts.train, choices.shuffle_block,
    )  # fmt: skip
    for source_spec, source in sources.items():
        if source.single is not None:
            print(
                f'{source.single:,} documents have one sentence and no '
                f'part in {", ".join(plan.readers(source_spec))}',
                flush=True,
            )
    return RunData(
        started, text, pairs, parallel_texts, tokenizer, counts,
        batches.Batches(sources, plan, tokenizer.specials, choices.seed),
    )  # fmt: skip


def _token_counts(
    tokenizer: Any,
    started: Workdir | None,
    text: OpenedText | None,
    pairs: TokenizedPairs | None,
    parallel_texts: TokenizedPairs | None,
) -> np.ndarray:
    """Counts tokens, [V] int64: of the corpus, of --init, else of examples."""
    size = len(tokenizer)
    if text is not None:
        return text.train.counts
    if started is not None:
        counts = started.unigram
        return np.zeros(size, np.int64) if counts is None else counts
    if pairs is not None:
        return pairs.train.tally(size, tokenizer.control_ids)
    if parallel_texts is not None:
        return parallel_texts.train.counts(size)
    return np.zeros(size, np.int64)


def _tokenize_translations(
    choices: RunChoices, tokenizer: Any, bitexts: text_pairs.PairCorpus
) -> TokenizedPairs:
    """Tokenizes the texts of --parallel."""
    print('\n'.join(bitexts.notes), flush=True)
    truncated, splits = 0, []
    for columns_of_split in (bitexts.train, bitexts.heldout):
        by_languages = {}
        for columns in columns_of_split:  # in the order of their languages
            tokens = translations.tokenized(columns, tokenizer, choices.seq_len)
            by_languages['-'.join(columns.languages)] = tokens
            truncated += int(tokens.truncated.sum())
        splits.append(
            translations.ParallelText(by_languages, choices.language_exponent)
        )
    if truncated:
        print(f'of {truncated:,} pairs a text is truncated', flush=True)
    return TokenizedPairs(*splits, bitexts.fingerprint)


def sides_of(plan: Plan) -> Mapping[str, Any]:
    """Returns the settings of the two sides of --pairs."""
    views = plan.views.items()
    return next(x.settings for name, x in views if root(name) == PAIRED)


def _open_pairs(
    choices: RunChoices,
    tokenizer: Any,
    started: Workdir | None,
    sides: Mapping[str, Any],
) -> tuple[Any, TokenizedPairs]:
    """Tokenizes the texts of --pairs; learns a tokenizer if None is passed.

    `sides` are the settings of the view.
    """
    from infoword_tf.text import added
    from infoword_tf.text.layout import LAYOUTS, layout_of
    from infoword_tf.text.template import Template

    pairs = text_pairs.read(
        choices.pairs, choices.pair_columns, choices.heldout_pairs,
        choices.pair_delimiter, choices.pair_negatives,
    )  # fmt: skip
    print('\n'.join(pairs.notes), flush=True)
    if tokenizer is None:
        corpus = corpora.Corpus(
            choices.pairs, pairs.fingerprint, pairs.documents, tuple
        )
        tokenizer = open_tokenizer(choices, {'': corpus}, files.cache_dir())
    prompts = ('', '')
    if started is not None:
        config = started.config
        prompts = tuple(
            config.prompt_text(config.prompt_for(role))
            for role in ('query', 'passage')
        )
    if sides['markers']:
        prompts = tuple(sides['markers'].split(','))
        tokenizer = added.with_markers(tokenizer, prompts)
    lengths = tuple(
        min(choices.seq_len, sides[name] or choices.seq_len)
        for name in ('query_length', 'passage_length')
    )
    layout = LAYOUTS['bert']
    template = Template(tokenizer, layout)
    if started is not None:
        layout = layout_of(started.config.layout)
    joining = Joining(
        choices.seq_len, len(layout.between), layout.second_segment
    )
    guides = open_guides(choices.settings)
    splits = []
    for purpose, columns in (
        ('to train on', pairs.train), ('held out', pairs.heldout),
    ):  # fmt: skip
        split, truncated = text_pairs.tokenized(
            columns,
            template,
            lengths,
            prompts,
            {
                flag.rpartition('.')[0]: guide.numbers
                for flag, guide in guides.items()
            },
            sides['expand'],
        )
        splits.append(split._replace(joining=joining))
        sizes = ' and '.join(f'{p.size:,}' for p in split.parts)
        print(
            f'{choices.pairs}: {sizes} examples {purpose}'
            + (f', a text of {truncated:,} is truncated' if truncated else ''),
            flush=True,
        )
    if empty := sum(file.empty for file in pairs.train):
        print(
            f'{choices.pairs}: {empty:,} rows with an empty a or b are left '
            'out',
            flush=True,
        )
    splits[0] = splits[0]._replace(
        weights=text_pairs.weights_of(choices.pair_weights, splits[0].files)
    )
    guides_record = {
        flag: record.known_by(x.folder, x.digest)
        for flag, x in guides.items()
    }
    del guides
    gc.collect()  # models are full of circles
    pairs = TokenizedPairs(*splits, pairs.fingerprint, guides_record)
    return tokenizer, pairs


def _prompted(text: OpenedText, config: Config) -> OpenedText:
    """Returns a text whose sentences have the default prompt of a config."""
    prompt = config.prompts.get(config.prompt, '')
    ids = text.tokenizer.tokenize([prompt])[0].numpy().tolist()

    def with_prompt(store: Store | Mixture) -> Store | Mixture:
        if isinstance(store, Mixture):
            stores = {k: with_prompt(x) for k, x in store.stores.items()}
            return store._replace(stores=stores)
        return store._replace(prompt=ids)

    return text._replace(
        train=with_prompt(text.train), heldout=with_prompt(text.heldout)
    )


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
        choices.optimizer, choices.weight_decay, choices.clip_norm,
        choices.moments,
    )  # fmt: skip
    policy = precision.decide(
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
    if config.adapter is not None:
        base = pathlib.Path(choices.init).resolve()
        adapter = dataclasses.replace(
            config.adapter,
            base=str(base),
            digest=files.digest_of(base / WEIGHTS),
        )
        config = config.replace(adapter=adapter)
    read = data.text, data.pairs, data.translations, labelled
    fingerprints = [x.fingerprint for x in read if x is not None]
    steps = _steps_of(choices, data.batches)
    if choices.minutes is not None:
        steps = record.begun_steps(workdir, choices.minutes)
        steps = steps or _timed_steps(choices, config, data, strategy, rules)
    warmup_steps = optim.warmup_steps(choices.warmup_steps, steps, rules)
    pace = fit.make_pace(
        steps, choices.log_every, choices.eval_every, choices.checkpoint_every
    )
    choices = dataclasses.replace(
        choices,
        steps=steps,
        eval_every=pace.evaluate,
        weight_decay=rules.weight_decay,
        clip_norm=rules.clip_norm,
    )
    of_init = data.text is None and data.started is not None
    digest = digest_of(data.tokenizer)
    more = dict(labelled.record) if labelled else {}
    if judged is not None and isinstance(choices.best, str):
        more['best'] = f'{choices.best} (files {judged.fingerprint})'
    written = record.run_record(
        choices, config, warmup_steps, ' '.join(fingerprints),
        'of --init' if of_init else digest, resolved.auxiliaries,
        {**more, **(data.pairs.record if data.pairs else {})},
    )  # fmt: skip
    config = config.replace(run=written, vocabulary=digest)
    return Decisions(choices, config, rules, warmup_steps, pace)


def _steps_of(choices: RunChoices, all_batches: batches.Batches) -> int:
    """Returns the updates of --steps or --epochs, or by default."""
    of_pairs = (
        source.updates
        for source_spec, source in all_batches.sources.items()
        if source_spec.reads == 'pairs'
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
    config: Config,
    data: RunData,
    strategy: tf.distribute.Strategy,
    rules: optim.Preset,
) -> int:
    """Measures how many updates --minutes have room for, on a trial model."""
    trial = make_build(
        dataclasses.replace(choices, steps=1, learning_rate=0.0), config,
        data.tokenizer.specials, strategy, (rules, 0),
        data.batches.dataset(0, FAR), Statistics(data.counts, data.counts),
        data.longest,
    )  # fmt: skip
    minutes = choices.minutes
    steps = fit.steps_in(minutes, trial.trainer)
    trial.free()
    print(
        f'--minutes={minutes:g}: there is time for {steps:,} steps',
        flush=True,
    )
    if steps < FEW_STEPS:
        print(too_few(steps, choices), flush=True)
    return steps


def too_few(steps: int, choices: RunChoices) -> str:
    """Returns advice to a run whose --minutes have room for few updates."""
    minutes = math.ceil(choices.minutes * FEW_STEPS / steps)
    smaller = '' if choices.init else 'a smaller --size or '
    return (
        f'{steps:,} updates are too few to learn much: {FEW_STEPS} take '
        f'--minutes={minutes}; else take {smaller}a shorter --seq_len than '
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
        tokenizer_file: of this run.
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


# --------------------------------------------------- model, optimizer, state


def build_or_reuse(
    decisions: Decisions,
    plan: Plan,
    data: RunData,
    labelled: LabelledData | None,
    shared: BuildCache,
) -> Build:
    """Builds model, optimizer and state, or resets a build of the sweep."""
    choices, config, rules, warmup_steps, _ = decisions
    shape = shape_of(choices, config, rules, warmup_steps)
    dataset = data.batches.dataset(0, 1)
    if shape in shared.builds:
        reused = shared.builds[shape]
        reused.reset(choices, dataset)
        return reused
    new = make_build(
        choices, config, data.tokenizer.specials, shared.strategy,
        (rules, warmup_steps), dataset,
        _training_statistics(plan, data, labelled), data.longest,
        batches.unmeasured(plan),
    )  # fmt: skip
    new.heldout = make_heldout(new.model, plan, data, labelled)
    if not new.state.variables():  # `reset` empties no state
        shared.add(shape, new)
    return new


def shape_of(
    choices: RunChoices,
    config: Config,
    rules: optim.Preset,
    warmup_steps: int,
) -> str:
    """Returns, as JSON, all that decides the graphs of a run."""
    flags = [getattr(choices, name) for name in SHAPE]
    values = config.replace(run={}).to_json()
    return json.dumps([values, flags, rules, warmup_steps])


def make_build(
    choices: RunChoices,
    config: Config,
    specials: Specials,
    strategy: tf.distribute.Strategy,
    update: tuple[optim.Preset, int],
    dataset: tf.data.Dataset,
    statistics: Statistics,
    longest: tuple[int, int],
    unmeasured: Collection[str] = (),
) -> Build:
    """Builds model, optimizer, state and trainer.

    Args:
        choices: with the number of steps.
        update: rules of the optimizer, and updates of the warm-up.
        dataset: flat views, of the shapes of the run's.
        statistics: of the training text.
        longest: tokens of the longest a and b of --pairs; 0: of any length.
        unmeasured: rows without MI of the training text, see
            `batches.unmeasured`.
    """
    rules, warmup_steps = update
    with strategy.scope():
        model = Model(
            config, specials, choices.seed, deviation=choices.init_deviation
        )
        model.encoder.remat = choices.remat
        for objective in model.objectives.values():
            objective.limit_texts(longest)
            objective.steps = choices.steps
        learning = {
            path: variable
            for path, variable in model.trainable.items()
            if not (choices.freeze and path.startswith('encoder/'))
        }
        shares = {}
        if choices.layer_decay != 1.0:
            layers = len({*model.encoder.blocks})  # one, if they share weights
            shares = optim.layer_shares(learning, layers, choices.layer_decay)
        optimizer = optim.AdamW(learning, rules, shares, model.no_decay)
    peak = tf.Variable(choices.learning_rate, dtype=tf.float32, trainable=False)
    state = State(model, strategy, choices.batch_size)
    step = tf.Variable(0, dtype=tf.int64, trainable=False)

    def rate(step: tf.Tensor) -> tf.Tensor:
        now = peak.read_value()
        return optim.schedule(step, now, warmup_steps, choices.steps, rules)

    trainer = loop.Trainer(
        model, dataset, strategy, optimizer, step, rate, statistics,
        choices.seed, choices.batch_size, choices.xla, state,
        choices.microbatch, unmeasured,
    )  # fmt: skip
    return Build(model, optimizer, peak, state, trainer)


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
    measured = {}
    for language, (trained, held) in stores.items():
        statistics, measures, others = Statistics(counts, counts), {}, ()
        if not measured:  # texts of no language are measured with the first
            others = labelled and labelled.heldout, (
                data.pairs and data.pairs.heldout
            )
        if labelled is not None and not measured:
            measures = labelled.measures
            statistics = labelled.statistics(
                counts, True, plan, data.tokenizer.control_ids
            )
        if held is not None:
            statistics = statistics._replace(
                training=trained.counts, measured=held.counts
            )
        try:
            views = batches.heldout_views(
                held, plan, specials, *others, most=most
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
        measured |= _heldout_translations(model, plan, data)
        return loop.HeldoutLanguages(measured)
    return loop.HeldoutLanguages(measured) if len(stores) > 1 else measured['']


def _heldout_translations(
    model: Model, plan: Plan, data: RunData
) -> dict[str, loop.Heldout]:
    """Returns the measurement of held-out translations by pair of languages."""
    counts, rows = data.counts, plan.readers_of('translations')
    size, measured, lacking = len(counts), {}, set(rows)
    for languages, held in data.translations.heldout.parts.items():
        trained = data.translations.train.parts[languages]
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
            if advice := decided(TABLE[row].init_advice, entry.settings):
                print(f'{row} {advice}', flush=True)
        return
    source = labelled and labelled.source
    source = source or f'--init={decisions.choices.init}'
    print(f'{source}: {started.start(model)}', flush=True)
    before, after = started.config.pooling, decisions.config.pooling
    if before != after:
        print(f'{source} pools by {before}, this run by {after}', flush=True)


# ------------------------------------------------------------ loop and saving


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
    choices, config = decisions.choices, decisions.config
    chief = distribution.is_chief(strategy)
    model, state, trainer = build.model, build.state, build.trainer
    workdir = pathlib.Path(choices.workdir)
    goal = _goal(choices, labelled, judged)
    evaluator = None
    if judged is not None and chief:
        evaluator = _evaluator(judged, model, data, config, decisions.pace)
    checkpointed = {
        f'model/{k}': v.value for k, v in model.checkpointed.items()
    }
    slots = build.optimizer.slots
    checkpointed |= {f'optimizer/{k}': v for k, v in slots.items()}
    checkpoints = checkpoint.Checkpoints(
        workdir, choices.keep_checkpoints, chief
    )
    first = checkpoints.restore(checkpointed, state.variables())
    state.broadcast()
    restored = distribution.gather_numbers(strategy, first)
    if (restored != first).any():
        steps = ', '.join(str(step) for step in restored[:, 0].tolist())
        raise errors.UsageError(
            'machines_other_workdirs',
            f'--workdir={workdir} is another folder, or another state of '
            f'it, on each machine (checkpoints of steps {steps}); name one '
            'that all of them reach',
        )
    trainer.step.assign(first)
    dataset = data.batches.dataset(first, max(choices.steps, first + 1))
    trainer.train_dataset = dataset
    size = sum(int(tf.size(v)) for v in build.optimizer.variables.values())
    replicas = strategy.num_replicas_in_sync
    print(
        f'{choices.objectives}: {size:,} weights, {config.precision}, '
        f'{replicas} replica{"s" if replicas > 1 else ""}, '
        f'{choices.steps:,} steps of {choices.batch_size} x '
        f'{choices.seq_len} tokens',
        flush=True,
    )
    if trainer.unmeasured:
        print(
            f'{", ".join(sorted(trainer.unmeasured))}: MI is measured on '
            'held-out text alone, since a batch has a text of each length',
            flush=True,
        )

    def write_weights(now: int) -> None:
        """Writes weights.safetensors, the exported weights."""
        tensors = {k: v.numpy() for k, v in model.exported.items()}
        if data.counts.any():
            tensors['unigram'] = data.counts
        checkpoint.write_weights(workdir, tensors, now)

    def save(now: int) -> None:
        """Writes a checkpoint, and the exported weights."""
        checkpoints.save(now, checkpointed | state.gather())
        if chief and goal is None:
            write_weights(now)

    def rewind(failed: int) -> int:
        """Restores the last checkpoint, and skips to the batch after `failed`.
        """
        before = checkpoints.restore(checkpointed, state.variables())
        state.broadcast()
        trainer.step.assign(failed)
        trainer.restart(data.batches.dataset(failed, choices.steps))
        restored = distribution.gather_numbers(strategy, before)
        if (restored != before).any():
            raise RuntimeError(
                f'machines find different checkpoints in {workdir}; start '
                'the same command again'
            )
        checkpoints.rewound(before, failed, checkpointed | state.gather())
        if chief and goal is None:
            write_weights(failed)
        return before

    # A run that was stopped between the two, or a file that is damaged.
    if chief and first and goal is None:
        if checkpoint.weights_step(workdir, checked=True) != first:
            write_weights(first)
    return fit.Fit(
        workdir, trainer, build.heldout, decisions.pace,
        fit.view_sizes(dataset), save, write_weights, chief, goal, evaluator,
        rewind if choices.on_nonfinite == 'rewind' else None,
        checkpoints, choices.rewinds, choices.grace_seconds,
        functools.partial(distribution.any_process, strategy),
    ).run()  # fmt: skip


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
) -> Evaluator:
    """Returns the evaluator of the model in training."""
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
