"""Fine-tuning, shared by all commands that train on labelled examples.

Fine-tuning is a run of `infoword_tf.train` whose row reads examples: `label`,
`score` or `span`, alone or in a sum (`--objectives=label:1,mlm:0.1` goes on
pretraining). All choices of that command apply. The weights with the best
held-out score are saved.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import pathlib
import re
import shutil
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from infoword_tf import adapters, commands, errors, files
from infoword_tf.checkpoint import last_step
from infoword_tf.choices import RunChoices, again, flag
from infoword_tf.config import Config, TaskConfig
from infoword_tf.evaluation.commonest import Commonest, complaint
from infoword_tf.objectives import TABLE, built, parse
from infoword_tf.objectives.lm import EXAMPLES
from infoword_tf.resolve import Resolved, resolve, resolve_rows
from infoword_tf.training.begin import check_and_run, refuse_translations
from infoword_tf.training.record import FREE

from .task import HELDOUT, TRAIN, Task

if TYPE_CHECKING:
    from infoword_tf.data.examples import Examples
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.training.build import LabelledData

NOTHING_LEARNED = 'nothing_learned'  # a sentence in metrics.json
SEED = 'seed='  # how the folder of a run of several begins or ends
# Without --epochs: more for small tables, at most so many, for enough updates.
EPOCHS, MOST_EPOCHS, LEAST_UPDATES = 3.0, 10.0, 400
# Without --learning_rate, at width D: RATE (WIDTH / D)^2. At WIDTH it is one of
# Devlin et al. 2019, App. A.3; narrower encoders want more.
RATE, WIDTH = 3e-5, 768
# By flag, the values of a sweep.
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
    # Sun et al. 2019, §4.2; 4 epochs are its --epochs. The rate is last, since
    # runs that differ in the rate alone share graphs.
    'pkd': {
        'temperature': (5, 10, 20),
        'alpha': (0.2, 0.5, 0.7),
        'beta': (10, 100, 500, 1000),
        'learning_rate': (5e-5, 2e-5, 1e-5),
    },
}


@dataclasses.dataclass(frozen=True)
class FinetuneChoices(RunChoices):
    """Choices of a command that fine-tunes.

    Defaults differ from pretraining: Devlin et al. 2019, App. A.3, with an
    optimizer that corrects its averages and enough updates (Mosbach et al.
    2021, §5, on small data), and a higher rate for narrower encoders.
    """

    USUAL: ClassVar[tuple[str, ...]] = (
        'init', 'epochs', 'learning_rate', 'batch_size', 'seq_len', 'sweep',
        'seeds', 'workdir',
    )  # fmt: skip

    corpus: tuple[str, ...] = again(RunChoices, 'corpus', ())
    optimizer: str = again(RunChoices, 'optimizer', 'adamw')
    # None is what the width decides: wider than the type of the parent.
    learning_rate: float | None = again(  # type: ignore[assignment]
        RunChoices, 'learning_rate', None,
        help=f'Peak learning rate; by default {RATE:g} ({WIDTH} / width)^2, '
        f'with --adapter {adapters.RATE:g} times as much.')
    objectives: str = again(RunChoices, 'objectives', '')
    epochs: float | None = again(
        RunChoices, 'epochs', None, shown=EPOCHS,
        help='Training epochs; --steps sets the number of updates instead. '
        f'By default small tables have more epochs, at most {MOST_EPOCHS:g}, '
        f'so that there are {LEAST_UPDATES} updates.')
    examples: int | None = flag(
        None, 'Train on a random subset of this size; smaller subsets are part '
        'of larger ones.', at_least=1)
    sweep: str | None = flag(
        None, 'Train with every combination of a published grid, and keep the '
        'best run.', choices=('infoword', 'bert'))
    seeds: int = flag(
        1, 'Runs with consecutive seeds, from --seed on, of each combination.',
        at_least=1)


def read_examples(objectives: str, choices: RunChoices) -> dict[str, Any]:
    """Makes language models of a sum read the examples, without a corpus.

    Returns:
        Settings by flag, such as `gpt.reads`; those that were chosen stay.
    """
    rows = () if choices.corpus else built(parse(objectives))
    flags = [f'{x}.reads' for x in rows if 'reads' in TABLE[x].settings]
    return {flag: choices.settings.get(flag) or EXAMPLES for flag in flags}


def write_corpus(
    splits: Mapping[str, tuple[Sequence[str], Sequence[str] | None]],
) -> tuple[str, str]:
    """Writes texts of examples; returns --corpus and --heldout.

    `splits` are 'train' and 'heldout': first texts, and second texts or None.
    """
    paths, written = {}, {}
    digest = hashlib.blake2b(digest_size=10)
    for split, (first, second) in splits.items():
        both = zip(first, second or [''] * len(first), strict=True)
        written[split] = ''.join(
            '\n'.join(' '.join(x.split()) for x in pair if x.strip()) + '\n\n'
            for pair in both
        )
        digest.update(written[split].encode())
    folder = files.cache_dir() / 'examples' / digest.hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    for split, text in written.items():
        path = folder / f'{split}.txt'
        if not path.exists():
            with files.written(path) as partial:
                partial.write_text(text, encoding='utf-8')
        paths[split] = str(path)
    return f'text:{paths["train"]}', paths['heldout']


@dataclasses.dataclass(frozen=True)
class PreparedTask:
    """Data and choices of a task, prepared once for all runs of a sweep.

    Attributes:
        labelled: the examples, with their measures.
        choices: choices of the command, with those that the task decides.
        resolved: rows and views of `choices`; None if not resolved yet.
        decide: completes choices that a sweep has changed.
        commonest: scores the commonest answer to held-out examples; None: there
            is none, of vectors.
    """

    labelled: 'LabelledData'
    choices: FinetuneChoices
    resolved: Resolved | None = None
    decide: Callable[[FinetuneChoices], FinetuneChoices] = lambda x: x
    commonest: Callable[[], Commonest] | None = None


def main(
    kind: type[Task], choices: FinetuneChoices, chosen: Mapping[str, Any]
) -> dict[str, Any]:
    """Runs a command that fine-tunes on a task; returns metrics.json.

    Args:
        kind: class of the task.
        choices: choices of the command, with those of `kind.choices`.
        chosen: the explicit ones by name.
    """
    commands.require(vars(choices), workdir='a folder for this run')
    check_inits(choices.init)
    task = kind.read(choices, choices.init).with_others(choices)
    return train_and_write(task, prepare(task, choices), chosen)


def train_and_write(
    task: Task,
    prepared: 'PreparedTask',
    chosen: Mapping[str, Any],
    more: Mapping[str, Any] = types.MappingProxyType({}),
) -> dict[str, Any]:
    """Trains and writes predictions; returns metrics.json with `more` entries.
    """
    workdir, values = train_all(task, prepared, chosen)
    out = pathlib.Path(prepared.choices.workdir)
    return finish(out, {**values, **task.write(workdir, out), **more})


def check_inits(*inits: str | None) -> None:
    """Reads the config of workdirs, to complain before TensorFlow starts."""
    for init in filter(None, inits):
        Config.read(init)


def check_one_machine(choices: FinetuneChoices) -> None:
    """Refuses --strategy=multiworker, where a command makes several models.

    Raises:
        UsageError: that strategy was chosen.
    """
    if choices.strategy == 'multiworker':
        raise errors.UsageError(
            'multiworker_makes_models',
            '--strategy=multiworker: this command makes several models, one '
            'after the other; take one machine, with --strategy=mirrored',
        )


def format_examples(
    loaded: 'Loaded',
    texts: Sequence[Any],
    length: int,
    where: str,
    targets: Mapping[str, np.ndarray],
    counts: Mapping[str, np.ndarray] = types.MappingProxyType({}),
    what: str = 'rows',
) -> 'Examples':
    """Calls `data.examples.format_texts`, and prints how many are truncated."""
    from infoword_tf.data import examples

    formatted, cut = examples.format_texts(
        loaded.template, texts, length, targets=targets, counts=counts
    )
    if cut:
        print(
            f'{where}: {cut:,} of {len(texts[0][0]):,} {what} are truncated '
            f'to --seq_len={length} tokens',
            flush=True,
        )
    return formatted


def prepare(
    task: Task, choices: FinetuneChoices, started: 'Loaded | None' = None
) -> PreparedTask:
    """Formats examples as inputs of the model of --init.

    Args:
        task: examples, and what is learned of them.
        choices: choices of the command.
        started: --init, if it is in memory.

    Raises:
        UsageError: --init is missing, or choices contradict each other.
        ValueError: the examples or --init cannot be read.
    """
    choices, row = with_objectives(task, choices), task.row
    train = task.splits[TRAIN].subset(choices.examples)
    task = dataclasses.replace(task, splits={**task.splits, TRAIN: train})
    settings = task.decide(choices)
    choices = choices.decided({f'{row}.{k}': v for k, v in settings.items()})
    rows = resolve_rows(choices)

    commands.hush_tensorflow()
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.training import distribution, fit
    from infoword_tf.training.build import BuildCache, LabelledData
    from infoword_tf.workdir import Workdir

    shared = BuildCache()
    if choices.strategy == 'multiworker':  # before --init touches a device
        shared.strategy = distribution.make_strategy(choices.strategy)
    loaded = started or Loaded(Workdir.open(choices.init or ''))
    resolved = resolve(choices, loaded.config)
    choices = with_rate(choices, resolved.encoder.arguments['width'])
    refuse_translations(choices, resolved.plan)
    loaded = loaded.with_layout(resolved.vector.layout)
    fields = {'labels': task.class_names} if task.labels else {}
    # A head of other labels is of no use.
    other = fields.get('labels') not in (None, tuple(loaded.config.labels))
    if other and row in loaded.model.objectives:
        loaded.model.drop(row)
    splits = task.examples(loaded, rows[row].settings, choices.seq_len)
    heldout = splits[HELDOUT]
    digest = hashlib.blake2b(digest_size=16)
    for split in splits.values():
        examples = split.examples
        for array in (examples.ids, examples.begins, *split.labels):
            digest.update(np.ascontiguousarray(array).tobytes())
    if resolved.plan.reads('text') and not choices.corpus:
        texts = {name: split.texts for name, split in splits.items()}
        corpus, held = write_corpus(texts)
        choices = choices.decided(corpus=corpus, heldout=held)
    learned = TaskConfig(
        name=task.name,
        row=row,
        pairs=task.pairs,
        metrics=task.metrics,
        data={name: split.where for name, split in splits.items()},
        sizes={name: split.size for name, split in splits.items()},
    )
    labelled = LabelledData(
        train=splits[TRAIN].examples,
        heldout=heldout.examples,
        fingerprint=digest.hexdigest(),
        goal=fit.Goal(f'heldout/{row}/{task.metrics[0]}'),
        measures={row: heldout.measure},
        # A model is served with the length that it was trained on.
        config_fields={
            'max_length': choices.seq_len,
            'task': learned,
            **fields,
        },
        started=loaded.workdir,
        shared=shared,
        record={'task': task.name},
    )
    return PreparedTask(
        labelled, choices, resolved, commonest=heldout.commonest
    )


def with_objectives(task: Task, choices: FinetuneChoices) -> FinetuneChoices:
    """Adds the --objectives of a task to the choices.

    Raises:
        UsageError: --init is missing, or --objectives are of another task.
    """
    commands.require(vars(choices), init='a workdir to start from')
    objectives = choices.objectives or task.row
    if task.row not in built(parse(objectives)):
        raise errors.UsageError(
            'sum_without_task',
            f'--objectives={objectives}: the task {task.name} trains '
            f'{task.row}; write {task.row}:1 into the sum',
        )
    return choices.decided(
        read_examples(objectives, choices), objectives=objectives
    )


def with_steps(choices: FinetuneChoices, examples: int) -> FinetuneChoices:
    """Sets the steps of --epochs, and a held-out score after every epoch.

    A run, or runs of several seeds, that began without --epochs and --steps
    keep their steps.
    """
    updates = updates_of(choices, examples)
    steps, epochs = choices.steps, choices.epochs
    if epochs is None:
        folder = pathlib.Path(choices.workdir or '')
        others = sorted(folder.parent.glob(f'{SEED}*'))
        folders = folder, *(others if folder.name.startswith(SEED) else ())
        steps = steps or begun_with(folders, 'epochs', 'steps')
        epochs = usual_epochs(updates)
    steps = choices.decided(steps=steps, epochs=epochs).steps_of(updates)
    return choices.decided(
        steps=steps,
        eval_every=choices.eval_every or min(updates, steps),
        log_every=choices.log_every or min(100, max(1, steps // 50)),
    )


def updates_of(choices: FinetuneChoices, examples: int) -> int:
    """Counts the updates of an epoch."""
    return max(1, examples // choices.batch_size)


def usual_epochs(updates: int) -> float:
    """Returns how many epochs of so many updates a run has by default."""
    return min(MOST_EPOCHS, max(EPOCHS, math.ceil(LEAST_UPDATES / updates)))


def with_rate(choices: FinetuneChoices, width: int) -> FinetuneChoices:
    """Sets the peak learning rate that is not chosen, by the width D.

    A run, or runs of several seeds, that began without it keep their rate.
    """
    rate = choices.learning_rate
    if rate is None:
        workdir = pathlib.Path(choices.workdir or '')
        folders = workdir, *sorted(workdir.glob(f'*{SEED}*'))
        rate = begun_with(folders, 'learning_rate')
    if rate is None:
        rate = RATE * (WIDTH / width) ** 2
        if choices.adapter != adapters.NONE:
            rate *= adapters.RATE
        rate = float(f'{rate:.2g}')
    return choices.decided(learning_rate=rate)


def begun_with(folders: Iterable[pathlib.Path], *flags: str) -> Any:
    """Returns the recorded value of the last flag of a run that has begun.

    It is that of the first of the workdirs in which a run began without the
    flags; None: there is none.
    """
    pattern = re.compile(f'^--({"|".join(flags)})=', re.MULTILINE)
    for workdir in folders:
        path = workdir / 'flags.txt'
        ended = (workdir / 'metrics.json').is_file()
        began = path.is_file() and (ended or last_step(workdir) is not None)
        if began and not pattern.search(path.read_text()):
            return Config.read(workdir).run.get(flags[-1])
    return None


def train_once(
    prepared: PreparedTask, chosen: Mapping[str, Any], **changes: Any
) -> dict[str, Any]:
    """Trains once; returns the best record of metrics.jsonl.

    `chosen` are the explicit choices by name; `changes` are made to choices.
    """
    choices, labelled = prepared.choices, prepared.labelled
    if changes:
        choices = prepared.decide(choices.decided(**changes))
    size, unset = labelled.train.size, choices.epochs is choices.steps is None
    choices = with_steps(choices, size)
    updates = updates_of(choices, size)
    usual = round(EPOCHS * updates)
    steps = choices.steps_of(updates)
    if unset and steps > usual:
        print(
            f'{size:,} examples: {steps / updates:g} epochs, since '
            f'{EPOCHS:g} have only {usual} updates; --epochs sets the number',
            flush=True,
        )
    return check_and_run(
        choices,
        chosen,
        labelled,
        None if changes else prepared.resolved,
    )


def train_one_of_many(
    prepared: PreparedTask, chosen: Mapping[str, Any], **changes: Any
) -> dict[str, Any]:
    """Calls `train_once` unless the run is finished; removes checkpoints.

    Raises:
        UsageError: the folder holds another run.
    """
    from infoword_tf import checkpoint

    choices = prepared.choices.decided(**changes)
    folder = pathlib.Path(choices.workdir)
    planned = with_steps(choices, prepared.labelled.train.size)
    best = finished_run(folder, prepared, planned, chosen)
    if best is None:
        print(f'{folder}:', flush=True)
        best = train_once(prepared, chosen, **changes)
        # Checkpoints of many runs would fill the disk.
        shutil.rmtree(folder / checkpoint.FOLDER)
    return best


def leave_to_chief(prepared: PreparedTask) -> None:
    """Ends every worker but the first, which measures, writes and prints."""
    from infoword_tf.training import distribution

    shared = prepared.labelled.shared
    if shared is not None and not distribution.is_chief(shared.strategy):
        print('the first worker says what was learned', flush=True)
        raise SystemExit(0)


def free(prepared: PreparedTask) -> None:
    """Deletes the builds that the runs share."""
    if prepared.labelled.shared is not None:
        prepared.labelled.shared.clear()


def train_all(
    task: Task, prepared: PreparedTask, chosen: Mapping[str, Any]
) -> tuple[pathlib.Path, dict[str, Any]]:
    """Trains once, or all runs of --sweep and --seeds.

    Args:
        task: task of the runs.
        prepared, chosen: arguments of `train_once`.

    Returns:
        The workdir with the best weights, and its entries of metrics.json.

    Raises:
        UsageError: --steps with a grid of epochs, or several runs of several
            machines.
    """
    choices = prepared.choices
    grid = GRIDS[choices.sweep] if choices.sweep else {}
    seeds = range(choices.seed, choices.seed + choices.seeds)
    workdir = pathlib.Path(choices.workdir)
    if 'epochs' in grid and choices.steps is not None:
        raise errors.UsageError(
            'sweep_of_steps',
            f'--sweep={choices.sweep} tries numbers of epochs; leave out '
            '--steps',
        )

    def further(
        folder: pathlib.Path, best: Mapping[str, Any], **changes: Any
    ) -> dict[str, Any]:
        sentences = nothing_learned(task, prepared, best, **changes)
        return sentences | task.test(folder)

    several = choices.strategy == 'multiworker'
    if several and (grid or len(seeds) > 1):
        raise errors.UsageError(
            'multiworker_sweep',
            '--strategy=multiworker makes one run at a time; leave out --sweep '
            'and --seeds',
        )
    if not grid and len(seeds) == 1:
        best = train_once(prepared, chosen)
        if several:
            leave_to_chief(prepared)
        free(prepared)
        return workdir, {**result(task, best), **further(workdir, best)}
    runs: dict[str, list[tuple[pathlib.Path, dict]]] = {}
    cells = [
        dict(zip(grid, values, strict=True))
        for values in itertools.product(*grid.values())
    ]
    for cell in cells:
        name = '-'.join(f'{key}={value:g}' for key, value in cell.items())
        for seed in seeds:
            folder = workdir / '-'.join(filter(None, (name, f'{SEED}{seed}')))
            best = train_one_of_many(
                prepared, chosen, **cell, seed=seed, workdir=str(folder)
            )
            if more := further(folder, best, **cell):
                update_metrics(folder, more)
            runs.setdefault(name or 'all', []).append(
                (folder, {**result(task, best), **more})
            )
    free(prepared)
    return compared(task.metrics[0], runs)


def compared(
    metric: str,
    runs: Mapping[str, Sequence[tuple[pathlib.Path, Mapping[str, Any]]]],
) -> tuple[pathlib.Path, dict[str, Any]]:
    """Prints means over seeds, of (workdir, values) by combination.

    Returns:
        The workdir with the best value of the metric, and its values with a
        table of all.
    """
    table: dict[str, dict[str, float]] = {}
    for name, results in runs.items():
        table[name], figures = {}, []
        for key, before in ((metric, ''), (f'test_{metric}', 'test_')):
            numbers = [values[key] for _, values in results if key in values]
            if not numbers:
                continue
            mean, deviation = spread(numbers)
            table[name] |= {
                f'{before}mean': round(mean, 6),
                f'{before}spread': round(deviation, 6),
            }
            figures.append(f'{key} {mean:.4f} +- {deviation:.4f}')
        print(
            f'{name}: {", ".join(figures)} over {len(results)} seeds',
            flush=True,
        )
    folder, values = max(
        itertools.chain.from_iterable(runs.values()),
        key=lambda run: run[1][metric],
    )
    return folder, {**values, 'best': folder.name, 'runs': table}


def finished_run(
    folder: pathlib.Path,
    prepared: PreparedTask,
    choices: FinetuneChoices,
    chosen: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Returns metrics.json of a finished run of a sweep; None if unfinished.

    Args:
        folder: workdir of the run.
        prepared, chosen: arguments of `train_once`.
        choices: choices of the run, with its steps.

    Raises:
        UsageError: the folder holds a run with other examples, steps or flags.
    """
    path = folder / 'metrics.json'
    if not path.is_file():
        return None
    old = Config.read(folder).run
    differ = [
        f'--{name} was {old[name]}, is {getattr(choices, name)}'
        for name in ('steps', 'learning_rate', 'init')
        if old[name] != getattr(choices, name)
    ]
    if prepared.labelled.fingerprint not in str(old):
        differ.append('other examples')
    # Compared above, or without effect on the weights.
    ignored = (
        *FREE, 'steps', 'learning_rate', 'init', 'seed', 'seeds', 'epochs',
        'test', 'notest', 'test_by', 'test_only', 'predict', 'columns',
        'delimiter',
    )  # fmt: skip
    now, then = (
        {
            line
            for line in text.splitlines()
            if line.lstrip('-').partition('=')[0] not in ignored
        }
        for text in (
            commands.flagfile(chosen), (folder / 'flags.txt').read_text()
        )
    )
    differ += [f'{line} is new' for line in sorted(now - then)]
    differ += [f'{line} is gone' for line in sorted(then - now)]
    if differ:
        raise errors.UsageError(
            'sweep_other_flags',
            f'{folder} holds a run with other flags: {"; ".join(differ)}. '
            'Give this sweep another --workdir, or the old flags',
        )
    return json.loads(path.read_text())


def result(task: Task, best: Mapping[str, Any]) -> dict[str, Any]:
    """Selects the printed values of the best record of metrics.jsonl."""
    prefix = f'heldout/{task.row}/'
    bound = [m for m in ('mi', 'ceiling', 'loss') if f'{prefix}{m}' in best]
    return {
        'task': task.name,
        **{m: round(best[f'{prefix}{m}'], 6) for m in (*task.metrics, *bound)},
        'step': best['step'],
        'seconds': best.get('seconds'),
    }


def nothing_learned(
    task: Task,
    prepared: PreparedTask,
    best: Mapping[str, Any],
    **changes: Any,
) -> dict[str, str]:
    """Compares the best score of a run with that of the commonest answer.

    `changes` are made to the choices of the task.

    Returns:
        A sentence by its name in metrics.json, see `commonest.complaint`; {}
        if the score is better, of a run of enough updates.
    """
    if prepared.commonest is None:
        return {}
    metric, examples = task.metrics[0], prepared.labelled.train.size
    choices = with_steps(prepared.choices.decided(**changes), examples)
    updates = updates_of(choices, examples)
    usual = type(choices).epochs or usual_epochs(updates)
    sentence = complaint(
        metric,
        best[f'heldout/{task.row}/{metric}'],
        prepared.commonest(),
        steps=choices.steps_of(updates),
        learning_rate=choices.learning_rate or RATE,
        usual=round(usual * updates),
    )
    if sentence and choices.sweep:
        sentence += ', without --sweep'
    return {NOTHING_LEARNED: sentence} if sentence else {}


def finish(
    workdir: pathlib.Path, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Adds a result to metrics.json, and prints the last lines."""
    update_metrics(workdir, values)
    if NOTHING_LEARNED in values:
        print(values[NOTHING_LEARNED], flush=True)
    print(json.dumps(values), flush=True)
    return dict(values)


def update_metrics(folder: pathlib.Path, values: Mapping[str, Any]) -> None:
    """Adds to metrics.json, without entries that may no longer hold."""
    path = folder / 'metrics.json'
    old = json.loads(path.read_text()) if path.is_file() else {}
    passing = 'test_', NOTHING_LEARNED
    old = {k: v for k, v in old.items() if not k.startswith(passing)}
    files.write_json(path, {**old, **values})


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Returns mean and standard deviation (of a sample) over seeds."""
    deviation = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return float(np.mean(values)), float(deviation)
