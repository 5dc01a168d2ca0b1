r"""What distillation is worth: a table of students, by task and by method.

    python -m benchmarks.distill --init=runs/minilm --data_dir=glue \
        --workdir=runs/tables/pkd

Fine-tunes --init on each task: the teacher. Its students have the first
--layers layers of --init and learn from the labels alone, from the teacher's
distribution too (KD), and from its states as well (PKD-last, PKD-skip; Sun et
al. 2019, Tables 1 and 2); all with the same updates, rate and seeds. What is
finished is kept, so a table that was stopped goes on.

Prints the table and writes it to WORKDIR/table.md: dev scores, how much longer
an update takes than without a teacher, and what both models are as SavedModels.
"""

import pathlib
import statistics
import time
from typing import Any

import numpy as np
from absl import flags

from benchmarks import kept, tuning
from infoword_tf import commands, files
from tasks import glue_layout

METHODS = {
    'fine-tuning': ('--alpha=0', '--patience=none'),
    'KD': ('--patience=none',),
    'PKD-last': ('--patience=last',),
    'PKD-skip': ('--patience=skip',),
}
CALLS, WARM_UP = 200, 20

FLAGS = flags.FLAGS

TASKS = flags.DEFINE_list(
    'tasks', ['sst-2', 'mrpc', 'rte'], 'Of GLUE, with classes.')
LAYERS = flags.DEFINE_integer(
    'layers', 3, 'Of the students.', lower_bound=1)


def train(module: str, folder: pathlib.Path, *given: str) -> None:
    """Runs a command of tasks/ unless it has finished; its log is beside.

    Raises:
        RuntimeError: it failed.
    """
    done = folder / 'metrics.json'
    if done.exists() and 'task' in kept.read_json(done):
        return
    kept.run(
        module,
        folder.with_suffix('.log'),
        *tuning.given(),
        f'--epochs={tuning.EPOCHS.value}',
        f'--workdir={folder}',
        *given,
    )


def runs_of(folder: pathlib.Path) -> list[pathlib.Path]:
    """The folder of each seed."""
    if tuning.SEEDS.value == 1:
        return [folder]
    return [folder / f'seed={seed}' for seed in range(tuning.SEEDS.value)]


def scores_of(task: str, folder: pathlib.Path) -> list[float]:
    """The best dev score of each seed."""
    key = f'heldout/label/{glue_layout.TASKS[task].measures[0]}'
    return [
        max(one[key] for one in kept.records_of(run) if key in one)
        for run in runs_of(folder)
    ]


def seconds_of(folder: pathlib.Path) -> float:
    """Of an update, the median; compiling does not count."""
    return statistics.median(
        1 / record['steps_per_second']
        for run in runs_of(folder)
        for record in kept.records_of(run)[1:]
    )


def served(
    workdirs: dict[str, pathlib.Path], folder: pathlib.Path, task: str
) -> list[str]:
    """Markdown: parameters, megabytes and time of an answer, as SavedModels.

    Every round asks each for the same text, in turns.
    """
    import tensorflow as tf

    import infoword_tf
    from export import bundle

    rows = glue_layout.read(task, tuning.DATA_DIR.value, 'dev')
    models, found = {}, {}
    for name, workdir in workdirs.items():
        version = folder / name / '1'
        if not version.exists():
            version = bundle.write(str(workdir), folder / name, 1)
        size = sum(p.stat().st_size for p in version.rglob('*') if p.is_file())
        weights = infoword_tf.load(workdir).model.exported.values()
        count = sum(int(np.prod(weight.shape)) for weight in weights)
        found[name] = [f'{count / 1e6:.1f} M', f'{size / 1e6:.1f}']
        model = tf.saved_model.load(str(version))
        models[name] = model.signatures['classify']
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for number in range(-WARM_UP, CALLS):
        text = tf.constant([rows.first[number % len(rows.first)]])
        names = list(models)
        for name in names[number % 2 :] + names[: number % 2]:
            began = time.perf_counter()
            models[name](texts=text)['probabilities'].numpy()
            if number >= 0:
                seconds[name].append(time.perf_counter() - began)
    lines = ['| model | parameters | MB | ms of a text |', '|---|---|---|---|']
    for name, took in seconds.items():
        p50 = 1e3 * statistics.median(took)
        lines.append(f'| {name} | {" | ".join(found[name])} | {p50:.1f} |')
    return lines


def run() -> dict[str, Any]:
    """The whole table."""
    commands.require(
        FLAGS.flag_values_dict(),
        init='a pretrained workdir',
        data_dir="GLUE's data",
        workdir='a folder for the table',
    )
    for task in TASKS.value:
        if task not in glue_layout.TASKS or glue_layout.TASKS[task].regress:
            raise commands.UsageError(
                f'--tasks={task}: take tasks of GLUE that have classes, sst-2 '
                'say'
            )
    out = pathlib.Path(tuning.WORKDIR.value)
    kept.begin(out)
    titles = ['task', 'score', 'teacher', *METHODS, 'an update, x']
    lines = [f'| {" | ".join(titles)} |', '|---' * len(titles) + '|']
    for task in TASKS.value:
        teacher = out / task / 'teacher'
        train('tasks.glue', teacher, f'--task={task}')
        cells, took = [], {}
        for method, given in METHODS.items():
            folder = out / task / method
            train(
                'tasks.distill',
                folder,
                f'--task={task}',
                f'--teacher={teacher}',
                f'--layers={LAYERS.value}',
                f'--seeds={tuning.SEEDS.value}',
                *given,
            )
            scores = scores_of(task, folder)
            cells.append(tuning.shown(scores))
            took[method] = seconds_of(folder)
            print(f'{task}, {method}: {cells[-1]}', flush=True)
        best = glue_layout.TASKS[task].measures[0]
        known = kept.read_json(teacher / 'metrics.json')[best]
        plain, *others = took.values()
        ratios = ', '.join(f'{other / plain:.2f}' for other in others)
        cells = [task, best, f'{known:.3f}', *cells, ratios]
        lines.append(f'| {" | ".join(cells)} |')
        with files.written(out / 'table.md') as partial:
            partial.write_text('\n'.join(lines) + '\n')
    task = TASKS.value[0]
    student = runs_of(out / task / 'KD')[0]
    workdirs = {'teacher': out / task / 'teacher', 'student': student}
    lines += ['', *served(workdirs, out / 'models', task), '']
    lines.append(
        f'Commit {kept.commit()}, seeds 0 to {tuning.SEEDS.value - 1}, '
        f'{tuning.PRECISION.value}, students of {LAYERS.value} layers.'
    )
    with files.written(out / 'table.md') as partial:
        partial.write_text('\n'.join(lines) + '\n')
    print('\n'.join(lines), flush=True)
    return {}


if __name__ == '__main__':
    commands.start(run, stopped='the same command goes on')
