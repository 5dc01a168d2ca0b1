"""A run, in order: devices, text, config, model, loop.

training/begin.py gives it what was chosen; commands that train on labelled
examples (tasks/finetune.py) give it those too.
"""

import contextlib
import dataclasses
import functools
import gc
import pathlib
from collections.abc import Callable, Mapping, Sequence
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
    service,
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
from infoword_tf.inference.vectors import Vectors
from infoword_tf.model import Model
from infoword_tf.objectives import Statistics
from infoword_tf.plan import Plan, auxiliaries_of
from infoword_tf.resolve import Resolved
from infoword_tf.training import (
    distribution,
    fit,
    loop,
    optim,
    precision,
    record,
)
from infoword_tf.training.built import Built, Shared, build, shape_of
from infoword_tf.training.evaluators import Evaluator
from infoword_tf.training.guide import Guide
from infoword_tf.views.examples import FOLLOWING
from infoword_tf.workdir import Workdir

FAR = 1 << 40  # a step that no run reaches
# Held-out text has 512 sequences, of several languages each a part of that: a
# half, a third, and of so many or more a quarter.
MOST_LANGUAGES = 4


class LabelledData(NamedTuple):
    """What a run is given besides text.

    Attributes:
        train, heldout: labelled examples.
        fingerprint: changes when they do.
        goal: by what the exported weights are chosen.
        measures: by row, what predictions for all held-out examples come to.
        kept: fields of the config that serving wants: names of classes, say.
        started: what --init holds, where it is in memory.
        shared: with other runs on the same examples.
        source: where `started` is from, for people; '': from --init.
        record: by flag, what else the task decides of the weights.
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
    record: Mapping[str, Any] = {}

    def statistics(
        self,
        counts: np.ndarray,
        heldout: bool,
        plan: Plan,
        control_ids: Sequence[int],
    ) -> Statistics:
        """Counts of pieces [V], and of the labels of examples."""
        measured = self.heldout if heldout else self.train
        own = {
            row: Statistics(found, measured.counts[row])
            for row, found in self.train.counts.items()
        }
        for row, reads in plan.views['examples'].rows.items():
            if reads.where == FOLLOWING:
                own[row] = Statistics(
                    self.train.tally(len(counts), control_ids),
                    measured.tally(len(counts), control_ids),
                )
        return Statistics(counts, counts, by_row=own)


class Opened(NamedTuple):
    """What --pairs or --parallel names, tokenized.

    Attributes:
        train, heldout: the examples.
        fingerprint: changes when the texts do.
        record: by flag, what else decides the weights: guides.
    """

    train: text_pairs.TextPairs | translations.ParallelText
    heldout: text_pairs.TextPairs | translations.ParallelText
    fingerprint: str
    record: Mapping[str, Any] = {}


class Run:
    """The stages of a run; each uses what those before it have left here."""

    # Of `open_devices`.
    strategy: tf.distribute.Strategy
    replicas: int
    chief: bool  # whether this process is the one that writes to the workdir
    # Of `open_text`.
    started: Workdir | None  # what --init holds
    text: OpenedText | None  # the corpus, where rows read one
    pairs: Opened | None  # likewise of --pairs
    translations: Opened | None  # likewise of --parallel
    tokenizer: Any
    counts: np.ndarray  # [V], of pieces in what is trained on
    batches: batches.Batches
    # (first step, step after the last) -> global batches
    dataset: Callable[[int, int], tf.data.Dataset]
    # Of `decide`; then `given` has its steps and the optimizer's numbers too.
    config: Config
    rules: optim.Preset
    warmup_steps: int
    pace: fit.Pace
    # Of `build`.
    built: Built

    def __init__(
        self,
        given: RunChoices,
        plan: Plan,
        labelled: LabelledData | None = None,
        judged: Judgements | None = None,
    ):
        """Args: what was chosen, what its rows read, their examples, and what
        --best names.
        """
        if plan.labelled and labelled is None:
            raise errors.UsageError(
                f'--objectives={given.objectives} reads labelled examples; '
                'train it with tasks.classify, tasks.glue, tasks.squad or '
                'tasks.distill'
            )
        self.given, self.plan, self.labelled = given, plan, labelled
        self.judged = judged
        self.workdir = pathlib.Path(given.workdir)
        self.shared = (labelled and labelled.shared) or Shared()

    def open_devices(self) -> None:
        """Those that runs share, or new ones."""
        given, shared = self.given, self.shared
        if shared.strategy is None:
            shared.strategy = distribution.make_strategy(
                given.strategy, given.logical_cpus
            )
        self.strategy = shared.strategy
        self.replicas = self.strategy.num_replicas_in_sync
        distribution.check(
            self.replicas,
            given.batch_size,
            one_cpu=given.logical_cpus > 1,
            xla=given.xla,
        )
        # Every worker holds the same weights: one of them writes.
        self.chief = distribution.is_chief(self.strategy)

    def open_text(self) -> None:
        """What --init, the corpus and the examples hold."""
        given, plan, labelled = self.given, self.plan, self.labelled
        started = labelled.started if labelled else None
        if given.init and started is None:
            started = Workdir.read(given.init)
        tokenizer, text = started and started.tokenizer, None
        found, spoken = None, {}
        if plan.reads('translations'):
            found = parallel.read(
                given.parallel, given.heldout_parallel, given.drop_equal
            )
            spoken = {
                language: corpora.Corpus(
                    f'--parallel ({language})',
                    found.fingerprint,
                    functools.partial(found.documents_of, language),
                    tuple,
                )
                for language in found.languages
            }
        if plan.reads('text'):
            text = open_text(given, tokenizer, spoken)
            tokenizer = text.tokenizer
            if started is not None:
                text = _prompted(text, started.config)
        self.pairs = self.translations = None
        if plan.reads('pairs'):
            tokenizer, self.pairs = self._open_pairs(tokenizer, started)
        if found is not None:
            if tokenizer is None:
                tokenizer = open_tokenizer(given, spoken, files.cache_dir())
            self.translations = self._open_translations(tokenizer, found)
        self.started, self.text, self.tokenizer = started, text, tokenizer
        self.counts = self._counts()
        sources = batches.open_sources(
            text and text.train,
            plan,
            given.batch_size,
            given.seed,
            labelled and labelled.train,
            self.pairs and self.pairs.train,
            self.translations and self.translations.train,
            given.shuffle_block,
        )
        for source_spec, source in sources.items():
            if source.single is not None:
                print(
                    f'{source.single:,} documents have one sentence and no '
                    f'part in {", ".join(plan.readers(source_spec))}',
                    flush=True,
                )
        self.batches = batches.Batches(
            sources, plan, tokenizer.specials, given.seed
        )
        if given.data_service:
            self.batches.service = service.Service(
                given.data_service, self.identity()
            )
        self.dataset = self.batches.dataset

    def identity(self) -> bytes:
        """Of the batches: those of another run have another one."""
        given = self.given
        return service.digest(
            self.batches,
            given.language_exponent,
            sorted(given.corpus_weights),
            given.pair_weights,
            given.shuffle_block,
        )

    def _counts(self) -> np.ndarray:
        """[V] int64, of pieces in what is trained on, or what --init says."""
        size = len(self.tokenizer)
        if self.text is not None:
            return self.text.train.counts
        if self.started is not None:
            counts = self.started.unigram
            return np.zeros(size, np.int64) if counts is None else counts
        if self.pairs is not None:
            return self.pairs.train.tally(size, self.tokenizer.control_ids)
        if self.translations is not None:
            return self.translations.train.counts(size)
        return np.zeros(size, np.int64)

    def _open_translations(
        self, tokenizer: Any, found: text_pairs.PairCorpus
    ) -> Opened:
        """What --parallel names, as pieces."""
        print('\n'.join(found.notes), flush=True)
        given, cut, parts = self.given, 0, []
        for files_of in (found.train, found.heldout):
            some = {}
            for file in files_of:  # in the order of their languages
                part = translations.tokenized(file, tokenizer, given.seq_len)
                some['-'.join(file.languages)] = part
                cut += int(part.truncated.sum())
            parts.append(
                translations.ParallelText(some, given.language_exponent)
            )
        if cut:
            print(f'of {cut:,} pairs a text is cut', flush=True)
        return Opened(*parts, found.fingerprint)

    def _open_pairs(
        self, tokenizer: Any, started: Workdir | None
    ) -> tuple[Any, Opened]:
        """What --pairs names; and a tokenizer of it, where there is none."""
        from infoword_tf.text.layout import LAYOUTS
        from infoword_tf.text.template import Template

        given = self.given
        found = text_pairs.read(
            given.pairs, given.pair_columns, given.heldout_pairs,
            given.pair_delimiter, given.pair_negatives,
        )
        print('\n'.join(found.notes), flush=True)
        if tokenizer is None:
            corpus = corpora.Corpus(
                given.pairs, found.fingerprint, found.documents, tuple
            )
            tokenizer = open_tokenizer(
                given, {'': corpus}, files.cache_dir()
            )
        prompts = ('', '')
        if started is not None:
            config = started.config
            prompts = tuple(
                config.prompt_text(config.prompt_for(role))
                for role in ('query', 'passage')
            )
        template = Template(tokenizer, LAYOUTS['bert'])
        guides = {
            flag.removesuffix('.guide'): Guide(folder)
            for flag, folder in given.settings.items()
            if flag.endswith('.guide') and folder
        }
        parts = []
        for what, some in (
            ('to train on', found.train), ('held out', found.heldout),
        ):  # fmt: skip
            part, cut = text_pairs.tokenized(
                some,
                template,
                given.seq_len,
                prompts,
                {row: guide.vectors for row, guide in guides.items()},
            )
            parts.append(part)
            sizes = ' and '.join(f'{p.size:,}' for p in part.parts)
            print(
                f'{given.pairs}: {sizes} examples {what}'
                + (f', a text of {cut:,} is cut' if cut else ''),
                flush=True,
            )
        if empty := sum(file.empty for file in found.train):
            print(
                f'{given.pairs}: {empty:,} rows with an empty a or b are left '
                'out',
                flush=True,
            )
        parts[0] = parts[0]._replace(
            weights=text_pairs.weights_of(given.pair_weights, parts[0].files)
        )
        known = {
            f'{row}.guide': record.known_by(x.folder, x.digest)
            for row, x in guides.items()
        }
        del guides
        gc.collect()  # models are full of circles
        return tokenizer, Opened(*parts, found.fingerprint, known)

    def decide(self, resolved: Resolved) -> None:
        """The config, and every number that decides the weights."""
        given, tokenizer, labelled = self.given, self.tokenizer, self.labelled
        self.rules = optim.preset(
            given.optimizer,
            given.weight_decay,
            given.clip_norm,
            given.moments,
        )
        self.config = resolved.config(
            len(tokenizer),
            tokenizer.config,
            self._precision(),
            self.replicas,
        )
        if labelled is not None:
            self.config = self.config.replace(**labelled.kept)
        read = self.text, self.pairs, self.translations, labelled
        fingerprints = [x.fingerprint for x in read if x is not None]
        steps = given.steps or STEPS
        if given.minutes is not None:
            steps = record.begun_steps(self.workdir, given.minutes)
            steps = steps or self._timed_steps()
        self.warmup_steps = optim.warmup_steps(
            given.warmup_steps, steps, self.rules
        )
        self.pace = fit.make_pace(
            steps, given.log_every, given.eval_every, given.checkpoint_every
        )
        self.given = dataclasses.replace(
            given,
            steps=steps,
            eval_every=self.pace.evaluate,
            weight_decay=self.rules.weight_decay,
            clip_norm=self.rules.clip_norm,
        )
        of_init = self.text is None and self.started is not None
        digest = digest_of(self.tokenizer)
        more = dict(labelled.record) if labelled else {}
        if self.judged is not None and isinstance(given.best, str):
            more['best'] = f'{given.best} (files {self.judged.fingerprint})'
        written = record.run_record(
            self.given,
            self.config,
            self.warmup_steps,
            ' '.join(fingerprints),
            'of --init' if of_init else digest,
            {**more, **(self.pairs.record if self.pairs else {})},
        )
        self.config = self.config.replace(run=written, vocabulary=digest)

    def _precision(self) -> str:
        """As chosen; decided by itself it is what all machines have."""
        found = precision.decide(
            self.given.precision,
            self.workdir,
            self.strategy.extended.worker_devices[0],
        )
        slow = found == 'float32'
        (slow,) = distribution.any_process(self.strategy, slow)
        if slow and self.given.precision == 'auto':
            return 'float32'
        return found

    def agree(self) -> None:
        """Complains of machines that began with different things."""
        given = self.given
        free = ('microbatch', 'remat', 'on_nonfinite', 'rewinds', 'log_every',
                'checkpoint_every')  # fmt: skip
        known = {
            **self.config.run,
            **{name: getattr(given, name) for name in free},
            'the config': self.config.replace(run={}).to_json(),
            'the weights of --init': given.init
            and files.digest_of(pathlib.Path(given.init) / WEIGHTS),
        }
        if unlike := distribution.differing(self.strategy, known):
            raise errors.UsageError(
                'machines of --strategy=multiworker differ in '
                f'{", ".join(unlike)}; start the same command on all, with the '
                'same code and text'
            )

    def _timed_steps(self) -> int:
        """The updates that --minutes have room for."""
        # Made for that alone: the run begins as if it had not been.
        given = dataclasses.replace(self.given, steps=1, learning_rate=0.0)
        statistics = Statistics(self.counts, self.counts)
        update = self.rules, 0
        trial = self._built(given, update, self.dataset(0, FAR), statistics)
        minutes = self.given.minutes
        steps = fit.steps_in(minutes, trial.trainer)
        del trial
        gc.collect()  # models are full of circles
        print(
            f'--minutes={minutes:g}: there is time for {steps:,} steps',
            flush=True,
        )
        return steps

    def _built(
        self,
        given: RunChoices,
        update: tuple[optim.Preset, int],
        dataset: tf.data.Dataset,
        statistics: Statistics,
    ) -> Built:
        return build(
            given, self.config, self.tokenizer.specials, self.strategy, update,
            dataset, statistics,
        )  # fmt: skip

    def begin(self, flagfile: str) -> None:
        """Writes what decides the run, or compares it with what is there."""
        record.agree(self.workdir, self.config, flagfile)
        with files.written(self.workdir / self.tokenizer.file) as partial:
            self.tokenizer.write(partial)

    def build(self) -> None:
        """Model, graphs, and all that lasts: new, or as new of `shared`."""
        given, labelled = self.given, self.labelled
        update = self.rules, self.warmup_steps
        shape = shape_of(given, self.config, *update)
        built = self.shared.built.get(shape)
        if built is not None:
            built.begin_again(given, self.dataset(0, 1))
        else:
            statistics = self._statistics()
            built = self._built(given, update, self.dataset(0, 1), statistics)
            built.heldout = self._heldout(built.model)
            if not built.state.variables():  # which begins empty
                self.shared.keep(shape, built)
        self._check_begun(built.model)
        if self.started is not None:
            source = (labelled and labelled.source) or f'--init={given.init}'
            print(f'{source}: {self.started.start(built.model)}', flush=True)
            begun, ends = self.started.config, self.config
            if begun.pooling != ends.pooling:
                print(
                    f'{source} pools by {begun.pooling}, this run by '
                    f'{ends.pooling}', flush=True,
                )  # fmt: skip
        self.built = built

    def _statistics(self) -> Statistics:
        """Of what is trained on."""
        labelled, counts = self.labelled, self.counts
        if labelled is not None:
            return labelled.statistics(
                counts, False, self.plan, self.tokenizer.control_ids
            )
        own = {}
        if self.translations is not None:
            pieces = self.translations.train.counts(len(counts))
            readers = self.plan.readers_of('translations')
            own = dict.fromkeys(readers, Statistics(pieces, pieces))
        return Statistics(counts, counts, by_row=own)

    def _heldout(self, model: Model) -> loop.Heldout | loop.HeldoutLanguages:
        """What measures held-out text: all, or each language apart."""
        labelled, counts = self.labelled, self.counts
        specials, plan = self.tokenizer.specials, self.plan
        parts = self.text.by_language if self.text else {'': (None, None)}
        most = batches.HELDOUT_SEQUENCES // min(len(parts), MOST_LANGUAGES)
        found = {}
        for language, (trained, held) in parts.items():
            statistics, measures, others = Statistics(counts, counts), {}, ()
            if not found:  # what is of no language is measured with the first
                others = labelled and labelled.heldout, (
                    self.pairs and self.pairs.heldout
                )
            if labelled is not None and not found:
                measures = labelled.measures
                statistics = labelled.statistics(
                    counts, True, plan, self.tokenizer.control_ids
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
                if len(parts) == 1:
                    raise
                views = {}  # of a few lines; the others are measured
                print(f'{language} is not measured: {error}', flush=True)
            if views:
                found[language] = loop.Heldout(
                    model, views, statistics, measures
                )
        if self.text is not None and not found:
            raise ValueError(
                'no language has enough held-out text; hold out more '
                '(--heldout=LANGUAGE=GLOB), or lower --seq_len'
            )
        if self.translations is None:
            several = len(parts) > 1
            return loop.HeldoutLanguages(found) if several else found['']
        size, rows = len(counts), plan.readers_of('translations')
        lacking = set(rows)
        for languages, part in self.translations.heldout.parts.items():
            trained = self.translations.train.parts[languages]
            own = Statistics(trained.tally(size), part.tally(size))
            try:
                views = batches.heldout_views(
                    None,
                    plan,
                    specials,
                    translations=translations.ParallelText({languages: part}),
                )
            except ValueError as error:  # of a pair or two
                print(f'{languages} is not measured: {error}', flush=True)
                continue
            statistics = Statistics(
                counts, counts, by_row=dict.fromkeys(rows, own)
            )
            found[languages] = measured = loop.Heldout(
                model, views, statistics
            )
            lacking -= set(measured.rows)
        if lacking:
            raise ValueError(
                f'{", ".join(sorted(lacking))}: there is not one held-out '
                'example of translations; name more with --heldout_parallel'
            )
        return loop.HeldoutLanguages(found)

    def _check_begun(self, model: Model) -> None:
        """Complains of a row whose weights --init has to bring, and has not."""
        there = self.started.model.variables if self.started else {}
        for row, objective in model.objectives.items():
            lacking = {w.path for w in objective.weights} - set(there)
            lacking -= {copy.weight.path for copy in objective.copied_weights()}
            if objective.init_complaint and lacking:
                raise errors.UsageError(f'{row} {objective.init_complaint}')

    def check_auxiliaries(self) -> None:
        """Complains of those of workdirs that read another vocabulary."""
        rows = {row: x.settings for row, x in self.config.rows.items()}
        for name, auxiliary in auxiliaries_of(rows).items():
            if not auxiliary.workdir:
                continue
            theirs, ours = (
                folder / self.tokenizer.file
                for folder in (pathlib.Path(auxiliary.workdir), self.workdir)
            )
            same = theirs.is_file() and (
                theirs.read_bytes() == ours.read_bytes()
            )
            if not same:
                raise errors.UsageError(
                    f'{name} begins with {auxiliary.workdir}, which has '
                    f'another {self.tokenizer.file} than this run; name it '
                    f'with --vocab={theirs}, or --init that workdir'
                )

    def loop(self) -> dict[str, Any]:
        """From the last checkpoint or the start to what metrics.json holds."""
        given, built, workdir = self.given, self.built, self.workdir
        model, state, trainer = built.model, built.state, built.trainer
        goal = self.labelled and self.labelled.goal
        if given.best:
            goal = fit.Goal(fit.LOSS, lowest=True)
        evaluator = None
        if self.judged is not None:
            if isinstance(given.best, str):
                goal = fit.Goal(self.judged.name)
            evaluator = self._evaluator() if self.chief else None
        if goal is not None:
            goal = goal._replace(patience=given.patience_evals)
        checkpointed = {
            f'model/{k}': v.value for k, v in model.checkpointed.items()
        }
        slots = built.optimizer.slots
        checkpointed |= {f'optimizer/{k}': v for k, v in slots.items()}
        checkpoints = checkpoint.Checkpoints(
            workdir, given.keep_checkpoints, self.chief
        )
        first = checkpoints.restore(checkpointed, state.variables())
        state.broadcast()
        found = distribution.gather_numbers(self.strategy, first)
        if (found != first).any():
            steps = ', '.join(str(step) for step in found[:, 0].tolist())
            raise errors.UsageError(
                f'--workdir={workdir} is another folder, or another state of '
                f'it, on each machine (checkpoints of steps {steps}); name one '
                'that all of them reach'
            )
        trainer.step.assign(first)
        dataset = self.dataset(first, max(given.steps, first + 1))
        trainer.train_dataset = dataset
        size = sum(int(tf.size(v)) for v in built.optimizer.variables.values())
        print(
            f'{given.objectives}: {size:,} weights, {self.config.precision}, '
            f'{self.replicas} replica{"s" if self.replicas > 1 else ""}, '
            f'{given.steps:,} steps of {given.batch_size} x '
            f'{given.seq_len} tokens',
            flush=True,
        )

        def write_weights(now: int) -> None:
            """What is exported."""
            tensors = {k: v.numpy() for k, v in model.exported.items()}
            if self.counts.any():
                tensors['unigram'] = self.counts
            checkpoint.write_weights(workdir, tensors, now)

        def save(now: int) -> None:
            """What a run resumes from, and what is exported."""
            checkpoints.save(now, checkpointed | state.gather())
            if self.chief and goal is None:
                write_weights(now)

        def rewind(behind: int) -> int:
            """From the last checkpoint on, with a later update."""
            before = checkpoints.restore(checkpointed, state.variables())
            state.broadcast()
            trainer.step.assign(behind)
            trainer.restart(self.dataset(behind, given.steps))
            found = distribution.gather_numbers(self.strategy, before)
            if (found != before).any():
                raise RuntimeError(
                    f'machines find different checkpoints in {workdir}; start '
                    'the same command again'
                )
            checkpoints.rewound(before, behind, checkpointed | state.gather())
            if self.chief and goal is None:
                write_weights(behind)
            return before

        # A run that was stopped between the two, or a file that is damaged.
        if self.chief and first and goal is None:
            if checkpoint.weights_step(workdir, checked=True) != first:
                write_weights(first)
        return fit.Fit(
            workdir, trainer, built.heldout, self.pace, fit.view_sizes(dataset),
            save, write_weights, self.chief, goal, evaluator,
            rewind if given.on_nonfinite == 'rewind' else None,
            checkpoints, given.rewinds, given.grace_seconds,
            functools.partial(distribution.any_process, self.strategy),
        ).run()  # fmt: skip

    def _vectors(self) -> Vectors:
        """Of the model that is trained."""
        counts = self.counts if self.counts.any() else None
        return Loaded(
            Workdir(self.built.model, self.tokenizer, self.config, counts)
        ).vectors

    def _evaluator(self) -> Evaluator:
        """What measures the vectors of the model that is trained."""
        evaluator = Evaluator(self.judged, self._vectors())
        print(
            f'{self.judged.spec}: {self.judged.name} is measured every '
            f'{self.pace.evaluate:,} steps'
            + (f', {evaluator.cut:,} texts are cut' if evaluator.cut else ''),
            flush=True,
        )
        return evaluator


def _prompted(text: OpenedText, config: Config) -> OpenedText:
    """A text whose sentences have the default prompt of a config."""
    prompt = config.prompts.get(config.prompt, '')
    ids = text.tokenizer.tokenize([prompt])[0].numpy().tolist()

    def with_it(part: Store | Mixture) -> Store | Mixture:
        if isinstance(part, Mixture):
            stores = {k: with_it(store) for k, store in part.stores.items()}
            return part._replace(stores=stores)
        return part._replace(prompt=ids)

    return text._replace(
        train=with_it(text.train), heldout=with_it(text.heldout)
    )


def run(
    given: RunChoices,
    resolved: Resolved,
    flagfile: str,
    labelled: LabelledData | None = None,
    judged: Judgements | None = None,
) -> dict[str, Any]:
    """The whole run: what metrics.json holds; args and errors as of `begin`."""
    one = Run(given, resolved.plan, labelled, judged)
    with contextlib.ExitStack() as stack:
        stack.enter_context(distribution.ended_by_lost_workers())
        one.open_devices()
        with distribution.failing_together(one.strategy):
            if one.chief:
                stack.enter_context(files.locked(one.workdir))
            one.open_text()
        one.decide(resolved)
        one.agree()
        with distribution.failing_together(one.strategy):
            if one.chief:
                one.begin(flagfile)
                one.check_auxiliaries()
        one.build()
        return one.loop()
