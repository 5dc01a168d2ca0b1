"""What the commands that train on labelled examples share.

Fine-tuning is a run of `infoword_tf.train` whose row reads examples: `label`,
`score` or `span`, alone or in a sum (`--objectives=label:1,mlm:0.1` keeps
pretraining). All choices of that command apply here too. The weights with the
best held-out score are kept.
"""

import dataclasses
import hashlib
import itertools
import json
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from infoword_tf import commands, errors, files
from infoword_tf.choices import RunChoices, again, flag
from infoword_tf.config import Config, TaskConfig
from infoword_tf.data import tables
from infoword_tf.data.tables import TableExamples
from infoword_tf.objectives import TABLE, built, parse
from infoword_tf.objectives.lm import EXAMPLES
from infoword_tf.resolve import Resolved, resolve, resolve_rows
from infoword_tf.training.begin import begin, check_translations
from infoword_tf.training.record import FREE
from tasks import measures

if TYPE_CHECKING:
    from infoword_tf.data.examples import Examples
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.training.run import LabelledData

# By flag, what is tried.
GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    # Kong et al. 2019, App. B; 10 epochs, 4 of CoLA, are its --epochs.
    'infoword': {
        'learning_rate': (5e-6, 1e-5, 2e-5, 3e-5, 5e-5),
        'batch_size': (16, 32),
    },
    # Devlin et al. 2019, App. A.3.
    'bert': {
        'learning_rate': (5e-5, 3e-5, 2e-5),
        'batch_size': (16, 32),
        'epochs': (2, 3, 4),
    },
    # Sun et al. 2019, §4.2; 4 epochs are its --epochs. Runs that differ in
    # their rate alone, which share their graphs, follow each other.
    'pkd': {
        'temperature': (5, 10, 20),
        'alpha': (0.2, 0.5, 0.7),
        'beta': (10, 100, 500, 1000),
        'learning_rate': (5e-5, 2e-5, 1e-5),
    },
}


@dataclasses.dataclass(frozen=True)
class Choices(RunChoices):
    """What such commands may choose besides.

    Some begin elsewhere (Devlin et al. 2019, App. A.3, but for the optimizer,
    whose averages are corrected for their start: Mosbach et al. 2021, §5, on
    small data).
    """

    USUAL: ClassVar[tuple[str, ...]] = (
        'init', 'epochs', 'learning_rate', 'batch_size', 'seq_len', 'sweep',
        'seeds', 'workdir',
    )  # fmt: skip

    corpus: tuple[str, ...] = again(RunChoices, 'corpus', ())
    optimizer: str = again(RunChoices, 'optimizer', 'adamw')
    learning_rate: float = again(RunChoices, 'learning_rate', 3e-5)
    objectives: str | None = again(RunChoices, 'objectives', None)
    epochs: float = flag(
        3.0, 'Training epochs; --steps sets the number of updates instead.',
        at_least=0.0)
    examples: int | None = flag(
        None, 'Train on a random subset of this size; smaller subsets are part '
        'of larger ones.', at_least=1)
    sweep: str | None = flag(
        None, 'Train with every combination of a published grid, and keep the '
        'best run.', choices=('infoword', 'bert'))
    seeds: int = flag(
        1, 'Runs with consecutive seeds, from --seed on, of each combination.',
        at_least=1)


class Task(NamedTuple):
    """What is asked of a text, or of two.

    Attributes:
        name: for people, and what a workdir is compared by.
        metrics: names in MEASURES; the first chooses the weights.
        labels: classes in their order, as the data write them; none: a number
            is asked.
        names: of the classes for people, where they are others.
        multilabel: whether a text may have several of them, or none.
    """

    name: str
    metrics: tuple[str, ...]
    labels: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    multilabel: bool = False

    @property
    def shown(self) -> tuple[str, ...]:
        """The classes as people read them."""
        return self.names or self.labels

    @property
    def row(self) -> str:
        """Of the table."""
        return 'label' if self.labels else 'score'

    def targets(self, rows: TableExamples) -> np.ndarray:
        """[n]: int32 numbers of classes, or float32; [n, C] int32 of several.

        Raises:
            ValueError: a label that is none of the task's, or several where
                the task has one.
        """
        if not self.labels:
            return np.asarray(rows.scores, np.float32)
        if self.multilabel != (rows.label_sets is not None):
            one, other = 'one label', 'lists of labels'
            if self.multilabel:
                one, other = other, one
            raise ValueError(
                f'{rows.where} has {other}, and the training table {one}'
            )
        return tables.known_labels(rows, self.labels)

    def counts(self, targets: np.ndarray) -> np.ndarray:
        """How often each class occurs, [C] int64; of several labels how often
        no and yes to each, [2 C]; nothing of numbers.
        """
        if not self.labels:
            return np.zeros(0, np.int64)
        if self.multilabel:
            has = targets.sum(axis=0, dtype=np.int64)
            return np.stack([len(targets) - has, has], axis=1).ravel()
        return np.bincount(targets, minlength=len(self.labels))

    def chosen(self, scores: np.ndarray, least: float = 0.0) -> np.ndarray:
        """Decides classes or labels by scores.

        Args:
            scores: [n, C] of classes, or numbers [n].
            least: what one of several labels has to score; of probabilities
                `measures.LIKELY`.

        Returns:
            [n] classes, or the numbers; of several labels [n, C] int32, 1 for
            those that a text has.
        """
        if self.multilabel:
            return (scores >= least).astype(np.int32)
        return scores.argmax(axis=1) if self.labels else scores


def texts_of(rows: TableExamples, texts: str) -> list[tuple[list[str], Any]]:
    """K times (n first texts, n second ones or None).

    `texts` is one of `objectives.label.TEXTS`.

    Raises:
        UsageError: two texts are asked for, and there is one.
    """
    if texts == 'choices':
        if rows.choices is None:
            raise errors.UsageError(
                f'--label.texts=choices: {rows.where} has no choices; name '
                'their columns with --choices'
            )
        return [(rows.first, choice) for choice in rows.choices]
    if texts == 'both_ways':
        if rows.second is None:
            raise errors.UsageError(
                f'both_ways reads two texts: {rows.where} has one a row; name '
                'the column of the second with --pair'
            )
        return [(rows.first, rows.second), (rows.second, rows.first)]
    return [(rows.first, rows.second)]


def measured(
    task: Task, scores: np.ndarray, true: np.ndarray, least: float = 0.0
) -> dict[str, float]:
    """Measures what scores choose, by metric; args as of `Task.chosen`."""
    chosen = task.chosen(scores, least)
    return {m: measures.MEASURES[m](chosen, true) for m in task.metrics}


def measure_of(task: Task) -> Callable[..., dict[str, float]]:
    """`measured` of predictions for all held-out examples."""

    def measure(predictions: dict[str, np.ndarray], view: Any) -> dict:
        from infoword_tf.views.examples import by_example

        return measured(
            task,
            by_example(predictions['scores'], view),
            by_example(view.targets[task.row], view),
        )

    return measure


def beside(objectives: str, given: RunChoices) -> dict[str, Any]:
    """By flag, that those rows of a sum read the examples which may (`gpt`).

    Where no corpus is named, and nobody says otherwise.
    """
    rows = () if given.corpus else built(parse(objectives))
    flags = [f'{x}.reads' for x in rows if 'reads' in TABLE[x].settings]
    return {flag: given.settings.get(flag) or EXAMPLES for flag in flags}


def own_text(
    parts: Mapping[str, tuple[Sequence[str], Sequence[str] | None]],
) -> dict[str, str]:
    """--corpus and --heldout of the examples' own texts.

    For rows that read text without labels, where no corpus is named. `parts`
    are 'train' and 'heldout': first texts, and second ones or None.
    """
    found, written = {}, {}
    digest = hashlib.blake2b(digest_size=10)
    for part, (first, second) in parts.items():
        both = zip(first, second or [''] * len(first), strict=True)
        written[part] = ''.join(
            '\n'.join(' '.join(x.split()) for x in pair if x.strip()) + '\n\n'
            for pair in both
        )
        digest.update(written[part].encode())
    folder = files.cache_dir() / 'examples' / digest.hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    for part, text in written.items():
        path = folder / f'{part}.txt'
        if not path.exists():
            with files.written(path) as partial:
                partial.write_text(text, encoding='utf-8')
        found[part] = str(path)
    return {'corpus': f'text:{found["train"]}', 'heldout': found['heldout']}


class Part(NamedTuple):
    """Some examples, as a model reads them.

    Attributes:
        examples: of the part.
        said: their labels, as a fingerprint takes them.
        where, size: the file, for people, and how many it has.
        texts: all of them, for rows that read text alone: first ones, and
            second ones or None.
        measure: what predictions for all of them come to, by metric.
    """

    examples: 'Examples'
    said: Sequence[np.ndarray]
    where: str
    size: int
    texts: tuple[Sequence[str], Sequence[str] | None]
    measure: Callable[..., dict[str, float]]


@dataclasses.dataclass(frozen=True)
class PreparedTask:
    """What a run of a task needs, made once for all runs of a sweep.

    Attributes:
        labelled: the examples, and what is made of them.
        given: what was chosen, with what the task decides.
        resolved: what that leads to; None: it is not known yet.
        decide: more of the same, from what a sweep varies.
    """

    labelled: 'LabelledData'
    given: Choices
    resolved: Resolved | None = None
    decide: Callable[[Choices], Choices] = lambda given: given


def check_inits(*inits: str | None) -> None:
    """Complains of workdirs before examples are read and TensorFlow starts.

    Raises:
        FileNotFoundError, ValueError: as `Config.read`, but of None.
    """
    for init in filter(None, inits):
        Config.read(init)


def check_one_machine(given: Choices) -> None:
    """Complains of several machines, of commands that several models take.

    Raises:
        UsageError: --strategy=multiworker.
    """
    if given.strategy == 'multiworker':
        raise errors.UsageError(
            '--strategy=multiworker: this command makes several models, one '
            'after the other; take one machine, with --strategy=mirrored'
        )


def lay_out(
    loaded: 'Loaded',
    texts: Sequence[Any],
    length: int,
    where: str,
    *said: Any,
    what: str = 'rows',
) -> 'Examples':
    """`data.examples.format_texts`, which prints how many texts are cut."""
    from infoword_tf.data import examples

    found, cut = examples.format_texts(loaded.template, texts, length, *said)
    if cut:
        print(
            f'{where}: {cut:,} of {len(texts[0][0]):,} {what} are cut '
            f'at --seq_len={length} tokens',
            flush=True,
        )
    return found


def prepare_task(
    task: Task,
    given: Choices,
    read: Callable[['Loaded', Mapping[str, Any]], Mapping[str, Part]],
    started: 'Loaded | None' = None,
    pairs: bool = True,
    **kept: Any,
) -> PreparedTask:
    """Lays examples out as the model of --init reads them.

    Args:
        task: what is asked.
        given: as `asked` gives it.
        read: (model, settings of its row) -> 'train' and 'heldout'.
        started: what --init holds, where it is in memory.
        pairs: whether an example has two texts.
        **kept: fields of the config that serving wants.

    Raises:
        UsageError: choices that do not go together.
        ValueError: the examples or --init cannot be read.
    """
    row, rows = task.row, resolve_rows(given)

    commands.hush_tensorflow()
    import infoword_tf
    from infoword_tf.training import distribution, fit
    from infoword_tf.training.run import LabelledData, Shared

    shared = Shared()
    if given.strategy == 'multiworker':  # before --init touches a device
        shared.strategy = distribution.make_strategy(given.strategy)
    loaded = started or infoword_tf.load(given.init)
    resolved = resolve(given, loaded.config)
    check_translations(given, resolved)
    loaded = loaded.with_layout(resolved.vector.layout)
    parts = read(loaded, rows[row].settings)
    digest = hashlib.blake2b(digest_size=16)
    for part in parts.values():
        examples = part.examples
        for array in (examples.ids, examples.begins, *part.said):
            digest.update(np.ascontiguousarray(array).tobytes())
    if resolved.plan.reads('text') and not given.corpus:
        texts = {name: part.texts for name, part in parts.items()}
        given = given.decided(**own_text(texts))
    learned = TaskConfig(
        task.name,
        row,
        pairs,
        task.metrics,
        {name: part.where for name, part in parts.items()},
        {name: part.size for name, part in parts.items()},
    )
    labelled = LabelledData(
        parts['train'].examples,
        parts['heldout'].examples,
        digest.hexdigest(),
        fit.Goal(f'heldout/{row}/{task.metrics[0]}'),
        {row: parts['heldout'].measure},
        # What it is served with is what it was trained on.
        {'max_length': given.seq_len, 'task': learned, **kept},
        loaded,
        shared,
        record={'task': task.name},
    )
    return PreparedTask(labelled, given, resolved)


def asked(task: Task, given: Choices, **settings: Any) -> Choices:
    """What was chosen, with the sum and the settings that train a task.

    Raises:
        UsageError: --init is missing, or --objectives are of another task.
    """
    commands.require(vars(given), init='a workdir to start from')
    row, objectives = task.row, given.objectives or task.row
    if row not in built(parse(objectives)):
        raise errors.UsageError(
            f'--objectives={objectives}: the task {task.name} trains {row}; '
            f'write {row}:1 into the sum'
        )
    settings_by_flag = {
        f'{row}.{name}': value for name, value in settings.items()
    }
    return given.decided(
        settings_by_flag | beside(objectives, given), objectives=objectives
    )


def prepare(
    task: Task,
    parts: Mapping[str, TableExamples],
    given: Choices,
    started: 'Loaded | None' = None,
    extra: TableExamples | None = None,
) -> PreparedTask:
    """What runs on the rows of tables need.

    Args:
        task: what is asked.
        parts: 'train' and 'heldout'.
        given: what was chosen.
        started: as of `prepare_task`.
        extra: texts without labels, to train on besides.

    Raises:
        UsageError: --init is missing, or choices that do not go together.
        ValueError: the rows or --init cannot be read; a class that is asked
            for was never seen.
    """
    given, row = asked(task, given), task.row
    parts = {part: parts[part] for part in ('train', 'heldout')}
    parts['train'] = parts['train'].subset(given.examples)
    texts = given.settings.get(f'{row}.texts') or 'joined'
    if parts['train'].choices is not None:
        texts = 'choices'
    targets = {part: task.targets(rows) for part, rows in parts.items()}
    counts = {part: task.counts(x) for part, x in targets.items()}
    kept: dict[str, Any] = {}
    if task.labels:
        # Of several labels yes, which is every second count.
        train, heldout = (
            counts[part][task.multilabel :: 1 + task.multilabel] > 0
            for part in ('train', 'heldout')
        )
        lacking = heldout & ~train
        # How frequent it is nobody knows then, nor what a text tells of it.
        if lacking.any():
            raise ValueError(
                f'{parts["train"].where}: none of the '
                f'{len(targets["train"]):,} examples is '
                f'{task.shown[lacking.argmax()]!r}, which '
                f'{parts["heldout"].where} has; take more of them'
            )
        given = given.decided({
            'label.classes': len(task.labels),
            'label.multilabel': task.multilabel,
            'label.texts': texts,
        })
        kept['labels'] = task.shown
    if extra is not None:
        known = targets['train']
        nobody = np.full(
            (len(extra.first), *known.shape[1:]),
            -1 if task.labels else np.nan,
            known.dtype,
        )
        targets['train'] = np.concatenate([known, nobody])
        parts['train'] = tables.joined(parts['train'], extra)
    ways = {part: texts_of(rows, texts) for part, rows in parts.items()}

    def read(loaded: 'Loaded', _: Mapping[str, Any]) -> dict[str, Part]:
        # Scores of other classes are no start.
        other = tuple(loaded.config.labels) != task.shown
        if task.labels and other and 'label' in loaded.model.objectives:
            loaded.model.drop('label')
        found = {}
        for part, rows in parts.items():
            examples = lay_out(
                loaded, ways[part], given.seq_len, rows.where,
                {row: targets[part]}, {row: counts[part]},
            )  # fmt: skip
            found[part] = Part(
                examples, [targets[part]], rows.where, len(rows.first),
                (rows.first, rows.second), measure_of(task),
            )  # fmt: skip
        return found

    pairs = ways['train'][0][1] is not None
    return prepare_task(task, given, read, started, pairs, **kept)


def paced(given: Choices, examples: int) -> Choices:
    """With its steps: an epoch of n examples between two held-out scores."""
    updates = max(1, examples // given.batch_size)
    steps = given.steps or max(1, round(given.epochs * updates))
    return given.decided(
        steps=steps,
        eval_every=given.eval_every or min(updates, steps),
        log_every=given.log_every or min(100, max(1, steps // 50)),
    )


def train_once(
    prepared: PreparedTask, chosen: Mapping[str, Any], **changes: Any
) -> dict[str, Any]:
    """One run, with some choices changed: its best record of metrics.jsonl.

    `chosen` has by name the choices that were made, for people.
    """
    given, labelled = prepared.given, prepared.labelled
    if changes:
        given = prepared.decide(given.decided(**changes))
    return begin(
        paced(given, labelled.train.size),
        chosen,
        labelled,
        None if changes else prepared.resolved,
    )


def train_one_of_many(
    prepared: PreparedTask, chosen: Mapping[str, Any], **changes: Any
) -> dict[str, Any]:
    """As `train_once`, unless the run has ended; without checkpoints.

    Raises:
        UsageError: its folder holds another run.
    """
    from infoword_tf import checkpoint

    given = prepared.given.decided(**changes)
    folder = pathlib.Path(given.workdir)
    steps = paced(given, prepared.labelled.train.size).steps
    best = done(folder, prepared, steps, chosen)
    if best is None:
        print(f'{folder}:', flush=True)
        best = train_once(prepared, chosen, **changes)
        # It has ended, and many of them fill a disk.
        shutil.rmtree(folder / checkpoint.FOLDER)
    return best


def leave_to_chief(prepared: PreparedTask) -> None:
    """Ends every worker but the first: one measures, writes and says."""
    from infoword_tf.training import distribution

    if not distribution.is_chief(prepared.labelled.shared.strategy):
        print('the first worker says what was learned', flush=True)
        raise SystemExit(0)


def train_all(
    task: Task,
    prepared: PreparedTask,
    chosen: Mapping[str, Any],
    tested: Callable[[pathlib.Path], dict[str, Any]] = lambda folder: {},
) -> tuple[pathlib.Path, dict[str, Any]]:
    """One run, or all of --sweep and --seeds.

    Args:
        task: what is asked.
        prepared, chosen: as of `train_once`.
        tested: what else is said of the weights of a run, by 'test_' and
            metric.

    Returns:
        The workdir whose weights were best, and what is said of them.

    Raises:
        UsageError: --steps beside a grid of epochs, or several runs of
            several machines.
    """
    given = prepared.given
    grid = GRIDS[given.sweep] if given.sweep else {}
    seeds = range(given.seed, given.seed + given.seeds)
    workdir = pathlib.Path(given.workdir)
    if 'epochs' in grid and given.steps is not None:
        raise errors.UsageError(
            f'--sweep={given.sweep} tries numbers of epochs; leave out --steps'
        )
    several = given.strategy == 'multiworker'
    if several and (grid or len(seeds) > 1):
        raise errors.UsageError(
            '--strategy=multiworker makes one run at a time; leave out --sweep '
            'and --seeds'
        )
    if not grid and len(seeds) == 1:
        best = train_once(prepared, chosen)
        if several:
            leave_to_chief(prepared)
        return workdir, {**result(task, best), **tested(workdir)}
    runs: dict[str, list[tuple[pathlib.Path, dict]]] = {}
    cells = [
        dict(zip(grid, values, strict=True))
        for values in itertools.product(*grid.values())
    ]
    for cell in cells:
        name = '-'.join(f'{key}={value:g}' for key, value in cell.items())
        for seed in seeds:
            folder = workdir / '-'.join(filter(None, (name, f'seed={seed}')))
            best = train_one_of_many(
                prepared, chosen, **cell, seed=seed, workdir=str(folder)
            )
            if more := tested(folder):
                keep(folder, more)
            runs.setdefault(name or 'all', []).append(
                (folder, {**result(task, best), **more})
            )
    metric = task.metrics[0]
    table = {}
    for name, found in runs.items():
        table[name], shown = {}, []
        for key, before in ((metric, ''), (f'test_{metric}', 'test_')):
            numbers = [values[key] for _, values in found if key in values]
            if not numbers:
                continue
            mean, deviation = spread(numbers)
            table[name] |= {
                f'{before}mean': round(mean, 6),
                f'{before}spread': round(deviation, 6),
            }
            shown.append(f'{key} {mean:.4f} +- {deviation:.4f}')
        print(
            f'{name}: {", ".join(shown)} over {len(found)} seeds', flush=True
        )
    folder, values = max(
        itertools.chain.from_iterable(runs.values()),
        key=lambda run: run[1][metric],
    )
    return folder, {**values, 'best': folder.name, 'runs': table}


def done(
    folder: pathlib.Path,
    prepared: PreparedTask,
    steps: int,
    chosen: Mapping[str, Any],
) -> dict[str, Any] | None:
    """The best record of a run of many that has ended, or None.

    Args:
        folder: of the run.
        prepared, steps: what it would be trained on now, for so many updates.
        chosen: by name the choices that were made.

    Raises:
        UsageError: it was another run.
    """
    path = folder / 'metrics.json'
    if not path.is_file():
        return None
    old = Config.read(folder).run
    differ = [] if old['steps'] == steps else [
        f'--steps was {old["steps"]}, is {steps}'
    ]  # fmt: skip
    if prepared.labelled.fingerprint not in str(old):
        differ.append('other examples')
    # Elsewhere, or of no account.
    said = (
        *FREE, 'steps', 'seed', 'seeds', 'epochs', 'test', 'notest', 'test_by',
        'test_only', 'predict', 'columns', 'delimiter',
    )  # fmt: skip
    now, then = (
        {
            line
            for line in text.splitlines()
            if line.lstrip('-').partition('=')[0] not in said
        }
        for text in (
            commands.flagfile(chosen), (folder / 'flags.txt').read_text()
        )
    )
    differ += [f'{line} is new' for line in sorted(now - then)]
    differ += [f'{line} is gone' for line in sorted(then - now)]
    if differ:
        raise errors.UsageError(
            f'{folder} holds a run with other flags: {"; ".join(differ)}. '
            'Give this sweep another --workdir, or the old flags'
        )
    return json.loads(path.read_text())


def answers(loaded: 'Loaded', task: Task, rows: TableExamples) -> np.ndarray:
    """Predictions: float32 [n, C] probabilities of classes, or [n] numbers."""
    if not task.labels:
        return loaded.rate(rows.first, rows.second)
    if rows.choices is not None:
        return loaded.choose(rows.first, rows.choices)
    return loaded.classify(rows.first, rows.second)


def draw(
    workdir: pathlib.Path, task: Task, rows: TableExamples, out: pathlib.Path
) -> None:
    """Draws the confusion matrix of classes: OUT/confusion.png.

    Several labels of a text have none.
    """
    if not task.labels or task.multilabel:
        return
    import infoword_tf

    said = answers(infoword_tf.load(workdir), task, rows).argmax(axis=1)
    path = out / 'confusion.png'
    measures.draw_confusion(path, task.shown, task.targets(rows), said)


def result(task: Task, best: Mapping[str, Any]) -> dict[str, Any]:
    """What a command prints of its best record of metrics.jsonl."""
    prefix = f'heldout/{task.row}/'
    bound = [m for m in ('mi', 'ceiling', 'loss') if f'{prefix}{m}' in best]
    return {
        'task': task.name,
        **{m: round(best[f'{prefix}{m}'], 6) for m in (*task.metrics, *bound)},
        'step': best['step'],
        'seconds': best.get('seconds'),
    }


def finish(
    workdir: pathlib.Path, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Keeps a result beside all that was measured of it, and says it."""
    keep(workdir, values)
    print(json.dumps(values), flush=True)
    return dict(values)


def keep(folder: pathlib.Path, values: Mapping[str, Any]) -> None:
    """Adds to metrics.json; what it had of a test may be of other weights."""
    path = folder / 'metrics.json'
    old = json.loads(path.read_text()) if path.is_file() else {}
    old = {k: v for k, v in old.items() if not k.startswith('test_')}
    files.write_json(path, {**old, **values})


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation (of a sample) of some seeds."""
    deviation = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return float(np.mean(values)), float(deviation)
