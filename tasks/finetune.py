"""What the commands that train on labelled examples share.

Fine-tuning is a run of `infoword_tf.train` whose row reads examples: `label`,
`score` or `span`, alone or in a sum (`--objectives=label:1,mlm:0.1` keeps
pretraining). All flags of that command count here too; those of DEFAULTS begin
elsewhere. The weights that stay are those of the best held-out score.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from absl import flags

from infoword_tf import commands, files, train
from infoword_tf.config import Config, TaskConfig
from infoword_tf.data import corpora
from infoword_tf.objectives import TABLE, built, parse
from infoword_tf.objectives.lm import EXAMPLES
from infoword_tf.resolve import resolve
from infoword_tf.training.record import FREE
from tasks import tables
from tasks.measures import MEASURES
from tasks.tables import Rows

if TYPE_CHECKING:  # it imports TensorFlow
    from infoword_tf.inference.loaded import Loaded

# Flags of the trainer that begin elsewhere (Devlin et al. 2019, App. A.3, but
# for the optimizer, whose averages are corrected for their start: Mosbach et
# al. 2021, §5, on small data).
DEFAULTS = {
    'corpus': None,
    'optimizer': 'adamw',
    'learning_rate': 3e-5,
    'objectives': None,
}
EPOCHS = 3.0
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


def define(
    values: flags.FlagValues, grids: Sequence[str] = ('infoword', 'bert')
) -> None:
    """Defines the flags that such commands have besides the trainer's.

    Args:
        values: where they are defined.
        grids: of GRIDS, those whose flags they are.
    """
    flags.DEFINE_float(
        'epochs', EPOCHS, 'How often each example is trained on; --steps '
        'instead says it in updates.', lower_bound=0.0, flag_values=values)
    flags.DEFINE_integer(
        'examples', None, 'Train on so many alone, drawn from all; of two '
        'numbers the smaller are among the larger.', lower_bound=1,
        flag_values=values)
    flags.DEFINE_enum(
        'sweep', None, list(grids), 'Train with every cell of a published '
        'grid, and keep the best of all.', flag_values=values)
    flags.DEFINE_integer(
        'seeds', 1, 'Runs of each cell, from --seed on.', lower_bound=1,
        flag_values=values)


def set_defaults() -> None:
    """Makes DEFAULTS those of the trainer's flags."""
    for name, value in DEFAULTS.items():
        flags.FLAGS.set_default(name, value)


class Task(NamedTuple):
    """What is asked of a text, or of two.

    Attributes:
        name: for people, and what a workdir is compared by.
        metrics: names in MEASURES; the first chooses the weights.
        labels: classes in their order, as the data write them; none: a number
            is asked.
        names: of the classes for people, where they are others.
    """

    name: str
    metrics: tuple[str, ...]
    labels: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def shown(self) -> tuple[str, ...]:
        """The classes as people read them."""
        return self.names or self.labels

    @property
    def row(self) -> str:
        """Of the table."""
        return 'label' if self.labels else 'score'

    def targets(self, rows: Rows) -> np.ndarray:
        """[n]: int32 numbers of classes, or float32.

        Raises:
            ValueError: a label that is none of the task's.
        """
        if not self.labels:
            return np.asarray(rows.scores, np.float32)
        return tables.known_labels(rows, self.labels)


def texts_of(rows: Rows, texts: str) -> list[tuple[list[str], Any]]:
    """K times (n first texts, n second ones or None).

    Args:
        rows: of a table.
        texts: in `objectives.label.TEXTS`.

    Raises:
        UsageError: two texts are asked for, and there is one.
    """
    if texts == 'choices':
        if rows.choices is None:
            raise commands.UsageError(
                f'--label.texts=choices: {rows.where} has no choices; name '
                'their columns with --choices'
            )
        return [(rows.first, choice) for choice in rows.choices]
    if texts == 'both_ways':
        if rows.second is None:
            raise commands.UsageError(
                f'texts in both ways: {rows.where} has one text a row; name '
                'the column of the second with --pair'
            )
        return [(rows.first, rows.second), (rows.second, rows.first)]
    return [(rows.first, rows.second)]


def measure_of(task: Task) -> Callable[..., dict[str, float]]:
    """What predictions for all held-out examples come to, by metric."""

    def measure(predictions: dict[str, np.ndarray], view: Any) -> dict:
        from infoword_tf.views.examples import by_example

        said = by_example(predictions['scores'], view)
        if task.labels:
            said = said.argmax(axis=1)
        true = by_example(view.targets[task.row], view)
        return {name: MEASURES[name](said, true) for name in task.metrics}

    return measure


def beside(objectives: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """By flag, that rows read the examples which may (`gpt`).

    Where no corpus is named, and nobody says otherwise.

    Args:
        objectives: the sum.
        given: by flag of the trainer, its value.
    """
    found = {}
    for row in built(parse(objectives)):
        if 'reads' in TABLE[row].settings and not given['corpus']:
            found[f'{row}.reads'] = given[f'{row}.reads'] or EXAMPLES
    return found


def own_text(parts: Mapping[str, Rows]) -> dict[str, str]:
    """--corpus and --heldout of the examples' own texts.

    For rows that read text without labels, where no corpus is named.

    Args:
        parts: 'train' and 'heldout'.
    """
    found = {}
    digest = hashlib.blake2b(digest_size=10)
    written = {}
    for part, rows in parts.items():
        both = zip(rows.first, rows.second or [''] * len(rows.first),
                   strict=True)  # fmt: skip
        written[part] = ''.join(
            '\n'.join(' '.join(x.split()) for x in pair if x.strip()) + '\n\n'
            for pair in both
        )
        digest.update(written[part].encode())
    folder = corpora.cache_dir() / 'examples' / digest.hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    for part, text in written.items():
        path = folder / f'{part}.txt'
        if not path.exists():
            with files.written(path) as partial:
                partial.write_text(text, encoding='utf-8')
        found[part] = str(path)
    return {'corpus': f'text:{found["train"]}', 'heldout': found['heldout']}


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What a run of a task needs, made once for all runs of a sweep.

    Attributes:
        labelled: as `training.run.Labelled`.
        decided: by flag of the trainer, what the task decides.
        decide: from the command's own flags, which a sweep may vary, to more
            of the same.
    """

    labelled: Any
    decided: dict[str, Any]
    decide: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda own: {}


def check_inits(*inits: str | None) -> None:
    """Complains of workdirs before examples are read and TensorFlow starts.

    Args:
        *inits: what was named, or None.

    Raises:
        FileNotFoundError, ValueError: as `Config.read`.
    """
    for init in filter(None, inits):
        Config.read(init)


def prepare(
    task: Task,
    parts: Mapping[str, Rows],
    given: Mapping[str, Any],
    count: int | None = None,
    started: 'Loaded | None' = None,
    extra: Rows | None = None,
) -> Prepared:
    """Lays examples out as the model of --init reads them.

    Args:
        task: what is asked.
        parts: 'train' and 'heldout'.
        given: by flag of the trainer, its value.
        count: of examples to train on; None: all.
        started: what --init holds, where it is in memory.
        extra: texts without labels, to train on besides.

    Raises:
        UsageError: --init is missing, or flags that do not go together.
        ValueError: the rows or --init cannot be read.
    """
    commands.require(given, init='a workdir to start from')
    parts = {part: parts[part] for part in ('train', 'heldout')}
    parts['train'] = tables.some(parts['train'], count)
    row = task.row
    objectives = given['objectives'] or row
    if row not in built(parse(objectives)):
        raise commands.UsageError(
            f'--objectives={objectives}: the task {task.name} trains {row}; '
            f'write {row}:1 into the sum'
        )
    texts = given[f'{row}.texts'] or 'joined'
    if parts['train'].choices is not None:
        texts = 'choices'
    targets = {part: task.targets(rows) for part, rows in parts.items()}
    if task.labels:
        check_classes(task, parts, targets)
    if extra is not None:
        nobody = np.full(len(extra.first), -1 if task.labels else np.nan)
        targets['train'] = np.concatenate(
            [targets['train'], nobody.astype(targets['train'].dtype)]
        )
        parts['train'] = tables.joined(parts['train'], extra)
    alone = texts_of(parts['train'], texts)

    import infoword_tf
    from infoword_tf.data.examples import lay_out
    from infoword_tf.training import fit
    from infoword_tf.training.run import Labelled, Shared
    from infoword_tf.views.examples import is_known

    loaded = started or infoword_tf.load(given['init'])
    # What it is served with is what it was trained on.
    kept: dict[str, Any] = {
        'max_length': given['seq_len'],
        'task': TaskConfig(
            task.name,
            row,
            any(second is not None for _, second in alone),
            task.metrics,
            {part: rows.where for part, rows in parts.items()},
            {part: len(rows.first) for part, rows in parts.items()},
        ),
    }
    decided: dict[str, Any] = {'objectives': objectives, 'task': task.name}
    if task.labels:
        kept['labels'] = task.shown
        decided['label.classes'] = len(task.labels)
        decided['label.texts'] = texts
        # Scores of other classes are no start.
        other = tuple(loaded.config.labels) != task.shown
        if other and 'label' in loaded.model.objectives:
            loaded.model.drop('label')
    decided |= beside(objectives, given)
    resolved = resolve(
        train.choices({**given, **decided}), loaded.config
    )
    loaded = loaded.with_layout(resolved.vector.layout)
    examples = {}
    digest = hashlib.blake2b(digest_size=16)
    for part, rows in parts.items():
        known = targets[part][is_known(targets[part])]
        counts = (
            {row: np.bincount(known, minlength=len(task.labels))}
            if task.labels
            else {row: np.zeros(0, np.int64)}
        )
        both = alone if part == 'train' else texts_of(rows, texts)
        examples[part], cut = lay_out(
            loaded.frame, both, given['seq_len'], {row: targets[part]}, counts
        )
        if cut:
            print(
                f'{rows.where}: {cut:,} of {len(rows.first):,} rows are cut '
                f'at --seq_len={given["seq_len"]} tokens',
                flush=True,
            )
        for array in (examples[part].ids, examples[part].begins,
                      targets[part]):  # fmt: skip
            digest.update(np.ascontiguousarray(array).tobytes())
    if resolved.plan.reads_text and not given['corpus']:
        decided |= own_text(parts)
    goal = fit.Goal(f'heldout/{row}/{task.metrics[0]}')
    return Prepared(
        Labelled(
            examples['train'],
            examples['heldout'],
            digest.hexdigest(),
            goal,
            {row: measure_of(task)},
            kept,
            loaded,
            Shared(),
        ),
        decided,
    )


def check_classes(
    task: Task,
    parts: Mapping[str, Rows],
    targets: Mapping[str, np.ndarray],
) -> None:
    """Complains of a class that is asked for and was never seen.

    Nothing can be said of how frequent it is, and so of what a text tells.

    Args:
        task: what is asked.
        parts: 'train' and 'heldout'.
        targets: likewise, [n] numbers of classes.

    Raises:
        ValueError: there is one.
    """
    lacking = np.setdiff1d(targets['heldout'], targets['train'])
    if lacking.size:
        raise ValueError(
            f'{parts["train"].where}: none of the {len(targets["train"]):,} '
            f'examples is {task.shown[lacking[0]]!r}, which '
            f'{parts["heldout"].where} has; take more of them'
        )


def pace(
    examples: int, given: Mapping[str, Any], epochs: float
) -> dict[str, Any]:
    """--steps and --eval_every: an epoch between two held-out scores.

    Args:
        examples: n of an epoch.
        given: by flag of the trainer, its value.
        epochs: how many.
    """
    updates = max(1, examples // given['batch_size'])
    steps = max(1, round(epochs * updates))
    if flags.FLAGS['steps'].present:
        steps = given['steps']
    return {
        'steps': steps,
        'eval_every': given['eval_every'] or min(updates, steps),
        'log_every': given['log_every'] or min(100, max(1, steps // 50)),
    }


def train_once(
    prepared: Prepared,
    own: Mapping[str, Any],
    **decided: Any,
) -> dict[str, Any]:
    """One run.

    Args:
        prepared: what it needs.
        own: flags of `define`, by name.
        **decided: by flag of the trainer, what else is decided.

    Returns:
        The best record of metrics.jsonl.
    """
    decided = {**prepared.decided, **prepared.decide(own), **decided}
    given = {**train.values(), **decided}
    labelled = prepared.labelled
    found = pace(labelled.train.size, given, own['epochs'])
    return train.train(labelled, {**found, **decided})


def train_all(
    task: Task,
    prepared: Prepared,
    own: Mapping[str, Any],
    tested: Callable[[pathlib.Path], dict[str, Any]] = lambda folder: {},
) -> tuple[pathlib.Path, dict[str, Any]]:
    """One run, or all of --sweep and --seeds.

    Args:
        task: what is asked.
        prepared: what its runs need.
        own: flags of `define`, by name.
        tested: what else is said of the weights of a run, by 'test_' and
            metric.

    Returns:
        The workdir whose weights were best, and what is said of them.

    Raises:
        UsageError: --steps beside a grid of epochs.
    """
    from infoword_tf.training import checkpoint

    given = train.values()
    grid = GRIDS[own['sweep']] if own['sweep'] else {}
    seeds = range(given['seed'], given['seed'] + own['seeds'])
    workdir = pathlib.Path(given['workdir'])
    if 'epochs' in grid and flags.FLAGS['steps'].present:
        raise commands.UsageError(
            f'--sweep={own["sweep"]} tries numbers of epochs; leave out '
            '--steps'
        )
    if not grid and len(seeds) == 1:
        best = train_once(prepared, own)
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
            # As a program a command has the trainer's flags too.
            decided = {k: v for k, v in cell.items() if k in given}
            here = {**own, **cell}
            steps = pace(
                prepared.labelled.train.size,
                {**given, **decided},
                here['epochs'],
            )['steps']
            best = done(folder, prepared, steps)
            if best is None:
                print(f'{folder}:', flush=True)
                decided |= {'seed': seed, 'workdir': str(folder)}
                best = train_once(prepared, here, **decided)
                # It has ended, and a grid of them fills a disk.
                shutil.rmtree(folder / checkpoint.FOLDER)
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
    folder: pathlib.Path, prepared: Prepared, steps: int
) -> dict[str, Any] | None:
    """The best record of a run of a sweep that has ended, or None.

    Args:
        folder: of the run.
        prepared: what it would be trained on now.
        steps: and for how many updates.

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
        *FREE, 'steps', 'seed', 'seeds', 'epochs', 'test', 'notest', 'predict',
        'columns',
    )  # fmt: skip
    now, then = (
        {
            line
            for line in text.splitlines()
            if line.lstrip('-').partition('=')[0] not in said
        }
        for text in (train.flagfile(), (folder / 'flags.txt').read_text())
    )
    differ += [f'{line} is new' for line in sorted(now - then)]
    differ += [f'{line} is gone' for line in sorted(then - now)]
    if differ:
        raise commands.UsageError(
            f'{folder} holds a run with other flags: {"; ".join(differ)}. '
            'Give this sweep another --workdir, or the old flags'
        )
    return json.loads(path.read_text())


def answers(loaded: 'Loaded', task: Task, rows: Rows) -> np.ndarray:
    """What a workdir in memory says of some rows.

    Returns:
        [n, C] float32 probabilities of the classes, or [n] numbers.
    """
    if not task.labels:
        return loaded.rate(rows.first, rows.second)
    if rows.choices is not None:
        return loaded.choose(rows.first, rows.choices)
    return loaded.classify(rows.first, rows.second)


def say(workdir: pathlib.Path, task: Task, rows: Rows) -> np.ndarray:
    """What the weights of a workdir say of some rows.

    Returns:
        [n] int numbers of classes, or float32.
    """
    import infoword_tf

    found = answers(infoword_tf.load(workdir), task, rows)
    return found.argmax(axis=1) if task.labels else found


def result(task: Task, best: Mapping[str, Any]) -> dict[str, Any]:
    """What a command says of its best weights.

    Args:
        task: what was asked.
        best: record of metrics.jsonl.
    """
    found = f'heldout/{task.row}/'
    bound = {
        name: round(best[f'{found}{name}'], 6)
        for name in ('mi', 'ceiling', 'loss')
        if f'{found}{name}' in best
    }
    return {
        'task': task.name,
        **{m: round(best[f'{found}{m}'], 6) for m in task.metrics},
        **bound,
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
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, 0.0
    squares = math.fsum((v - mean) ** 2 for v in values)
    return mean, math.sqrt(squares / (len(values) - 1))
