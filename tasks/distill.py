r"""A small student of a fine-tuned teacher (Sun et al. 2019, "PKD").

    python -m tasks.distill --teacher=runs/rte --layers=3 --patience=last \
        --task=rte --data_dir=glue --init=runs/minilm --workdir=runs/rte3
    python -m tasks.distill --teacher=runs/mails --layers=3 --patience=skip \
        --train=mails.csv --dev=mails_dev.csv --text=body --label=folder \
        --extra=unlabelled.csv --workdir=runs/mails3
    python -m tasks.distill --teacher=runs/squad --layers=3 --task=squad \
        --train=train-v1.1.json --dev=dev-v1.1.json --workdir=runs/squad3

The loss is (1 - alpha) label + alpha soft + beta patience: the labels, the
teacher's distribution at --temperature, and its states layer by layer (see
docs/rows.md). The student is the first --layers layers of --init (a pretrained
workdir, as in the paper; by default of the teacher). Examples are those of
tasks.glue (--task), of tasks.classify (--train) or of tasks.squad
(--task=squad with --train and --dev), with their flags; texts of --extra have
no label: only the teacher labels them. The teacher's outputs for all examples
are computed once and kept in the cache.

    python -m tasks.distill --task=embed --teacher=runs/minilm \
        --student=lookup --corpus=pydocs --workdir=runs/lookup

The teacher may be any workdir whose texts become vectors. Examples are then
the sentences of a corpus, b is the teacher's vector (the rows `embed` and
`embed_distance`), and the student its first --layers layers or a table lookup.

    python -m tasks.distill --task=embed --teacher=runs/minilm \
        --student=lookup --parallel=en-de=deu-eng.tsv --workdir=runs/two

With --parallel they are translations: the teacher reads one language, and the
student learns to give both texts its vector of that one.

--patience=none is plain distillation, with --alpha=0 plain fine-tuning.
--sweep=pkd trains with every combination of the paper's grid, in the units of
its code. The last line of the output is one JSON object, also in
WORKDIR/metrics.json.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from infoword_tf import commands, errors
from infoword_tf.choices import again, flag
from infoword_tf.data import tables
from infoword_tf.objectives.distill import CODE, MAPS, followed
from infoword_tf.training.begin import check_finite
from tasks import (
    classify,
    embedding,
    finetune,
    glue,
    glue_layout,
    squad,
)
from tasks.student import start_of
from tasks.teacher import Teacher

NO_PATIENCE = 'none'
SOFT = {'label': 'soft', 'score': 'soft_score', 'span': 'soft_span'}
# Flags of examples with labels alone.
OF_LABELS = (
    'patience', 'alpha', 'beta', 'temperature', 'extra', 'data_dir', 'train',
    'dev', 'sweep', 'seeds', 'regress', 'version2', 'dev_examples',
    'columns', 'delimiter', 'label_columns',
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Choices(
    glue.TaskChoices, classify.TableChoices, squad.Choices, embedding.Choices
):
    """All that the command may choose; of --seq_len None is the task's own."""

    USUAL: ClassVar[tuple[str, ...]] = (
        'teacher', 'task', 'data_dir', 'train', 'dev', 'init', 'student',
        'layers', 'patience', 'alpha', 'beta', 'temperature', 'epochs',
        'learning_rate', 'batch_size', 'workdir',
    )  # fmt: skip

    task: str | None = again(
        glue.TaskChoices, 'task', None, choices=(
            *glue_layout.TASKS, squad.TASK.name, embedding.TASK),
        help=f'Which of the nine, or {squad.TASK.name}, {embedding.TASK}.')
    seq_len: int | None = again(
        finetune.Choices, 'seq_len', None, shown=finetune.Choices.seq_len)
    epochs: float = again(finetune.Choices, 'epochs', finetune.Choices.epochs)
    sweep: str | None = again(
        finetune.Choices, 'sweep', None, choices=('pkd', 'infoword', 'bert'))
    patience: str = flag(
        'last', "Layers of the teacher that the student's imitate: every n-th "
        '(skip), the last ones, or none.',
        choices=(*MAPS, NO_PATIENCE))
    alpha: float = flag(
        0.7, "Weight of the teacher's distribution; the labels have 1 - alpha.",
        at_least=0.0, at_most=1.0)
    beta: float = flag(0.1, "Weight of the teacher's states.", at_least=0.0)
    temperature: float = flag(
        10.0, 'Distillation temperature: the scores of both models are divided '
        'by it.', at_least=1e-6)
    extra: str | None = flag(
        None, 'A table of additional unlabelled texts, which only the teacher '
        'labels.')


def sum_of(row: str, alpha: float, beta: float) -> str:
    """The rows of a student with their weights, as --objectives has them."""
    weights = {row: 1 - alpha, SOFT[row]: alpha, 'patience': beta}
    return ','.join(
        f'{name}:{weight:g}'
        for name, weight in weights.items()
        if weight or name == row
    )


def check(given: Choices, chosen: Mapping[str, Any]) -> None:
    """Complains of choices that do not go together, before anything is read.

    Raises:
        UsageError: they do not.
    """
    commands.require(vars(given), teacher='a workdir to learn from')
    commands.require(vars(given), workdir='a folder for this run')
    check_finite(given)
    if given.task == embedding.TASK:
        why = '{} is for labels, not for --task=embed; leave it out'
        embedding.check(given, chosen)
        commands.refuse(chosen, OF_LABELS, why)
        return
    why = '{} is for --task=embed; leave it out'
    commands.refuse(chosen, embedding.OF_VECTORS, why)
    why = '{} is decided by --alpha, --beta and --patience; leave it out'
    commands.refuse(chosen, ['objectives'], why)
    if given.task == squad.TASK.name:
        why = '{} is for classes and numbers; of --task=squad leave it out'
        commands.refuse(chosen, ['extra'], why)
        return
    if bool(given.task) == bool(given.train):
        raise errors.UsageError(
            'name the examples: --task of GLUE with --data_dir, or --train '
            'and --dev'
        )
    if given.task and glue_layout.TASKS[given.task].regress:
        numbers = f'--task={given.task}'
    else:
        numbers = '--regress' if given.regress and not given.task else ''
    if numbers and ('temperature' in chosen or given.sweep == 'pkd'):
        raise errors.UsageError(
            f'{numbers} is of numbers, and they have no temperature; leave '
            'out --temperature and --sweep=pkd'
        )


def extra_of(given: Choices) -> tables.TableExamples | None:
    """The texts of --extra, in the columns of the task."""
    if not given.extra:
        return None
    if given.task:
        text, pair, _ = glue_layout.TASKS[given.task].columns
        given = given.decided(text=text, pair=pair)
    return classify.read(given.extra, given, labelled=False)


def taught(
    prepared: finetune.PreparedTask,
    teacher: Teacher,
    task: finetune.Task,
    layers: tuple[int, ...],
) -> tuple[dict[str, Any], np.ndarray]:
    """Examples with the teacher's b beside their labels.

    `layers` of the teacher are followed.

    Returns:
        By field of `training.run.Labelled`, the examples and their
        fingerprint; and the teacher's scores of the held-out ones.
    """
    targets: dict[str, Any] = {}
    fingerprints = [prepared.labelled.fingerprint]
    for part in ('train', 'heldout'):
        examples = getattr(prepared.labelled, part)
        scores, states = teacher.outputs(examples, layers)
        soft = {SOFT[task.row]: scores}
        counts = dict.fromkeys([*soft, 'patience'], np.zeros(0, np.int64))
        if task.labels:
            counts['soft'] = task.counts(task.chosen(scores))
        of_tokens = soft if task.row == 'span' else {}
        of_texts = {} if of_tokens else soft
        targets[part] = examples._replace(
            targets={**examples.targets, **of_texts, 'patience': states},
            counts={**examples.counts, **counts},
            of_tokens=of_tokens,
        )
        fingerprints.append(teacher.key(examples))
    return {**targets, 'fingerprint': ' '.join(fingerprints)}, scores


def judged(
    teacher: Teacher,
    task: finetune.Task,
    scores: np.ndarray,
    true: np.ndarray,
    asked: Any,
) -> float:
    """The score of the teacher on held-out examples, by the first metric.

    Of its `scores` against the labels; of spans, on the questions `asked`.
    """
    if task.row == 'span':
        answers = squad.answered(teacher.folder, asked)
        null = teacher.settings['null']
        return squad.judged(asked, answers, null)[0][task.metrics[0]]
    return finetune.measured(task, scores, true)[task.metrics[0]]


def prepare(
    task: finetune.Task, parts: Mapping[str, Any], given: Choices
) -> tuple[finetune.PreparedTask, dict[str, Any]]:
    """A student before its training, and examples with the teacher's b.

    Returns:
        As `finetune.prepare`, and what is said of the teacher.

    Raises:
        UsageError: teacher and student do not go together.
    """
    row, settings = task.row, given.settings
    teacher = Teacher(given.teacher, task)
    init = given.init or given.teacher
    student = start_of(init, given.layers, given.take)
    length = given.seq_len or finetune.Choices.seq_len
    if row == 'span':
        length = given.seq_len or teacher.loaded.config.max_length
        end = settings.get('span.end') or teacher.settings['end']
        reads = {'null': given.version2, 'end': end}
    else:
        reads = {
            'texts': settings.get(f'{row}.texts') or teacher.settings['texts']
        }
        if parts['train'].choices is not None:
            reads = {'texts': 'choices'}
    teacher.check(student, length, **reads)
    layers: tuple[int, ...] = ()
    if given.patience != NO_PATIENCE:
        depths = teacher.depth, student.encoder.depth
        try:
            layers = followed(given.patience, *depths)
        except ValueError as error:
            raise errors.UsageError(
                f'--patience={given.patience}: {error}'
            ) from None

    def decide(given: Choices) -> Choices:
        beta = given.beta if layers else 0.0
        rows = sum_of(row, given.alpha, beta)
        code = CODE if given.sweep == 'pkd' else None  # whose betas these are
        found: dict[str, Any] = {}
        for soft in ('soft', 'soft_span'):
            if f'{soft}:' in rows:
                found[f'{soft}.temperature'] = given.temperature
        for name in ('soft.reduction', 'patience.reduction'):
            if f'{name.partition(".")[0]}:' in rows:
                found[name] = given.settings.get(name) or code
        if 'patience:' in rows and teacher.width != student.encoder.width:
            found['patience.width'] = teacher.width
        return given.decided(found, objectives=rows)

    given = decide(given).decided(
        {f'{row}.{name}': value for name, value in reads.items()},
        init=init,
        seq_len=length,
    )
    if row == 'span':
        prepared = squad.prepare(parts, given, given.version2, student)
    else:
        extra = extra_of(given)
        prepared = finetune.prepare(task, parts, given, student, extra)
    labelled, said = prepared.labelled, {}
    if given.sweep == 'pkd' or given.objectives != f'{row}:1':
        changes, scores = taught(prepared, teacher, task, layers)
        true = labelled.heldout.targets[row]
        best = judged(teacher, task, scores, true, parts['heldout'])
        known = teacher.described(task.metrics[0], best)
        kept = {**labelled.kept, 'teacher': known}
        labelled = labelled._replace(**changes, kept=kept)
        said = {f'teacher_{task.metrics[0]}': round(best, 6)}
    record = {
        **labelled.record,
        'teacher': f'{given.teacher} (weights {teacher.digest})',
        'layers': student.encoder.depth,
        'take': given.take,
        'patience': given.patience,
    }
    labelled = labelled._replace(record=record)
    return dataclasses.replace(
        prepared, labelled=labelled, decide=decide
    ), said


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command."""
    finetune.check_one_machine(given)
    check(given, chosen)
    finetune.check_inits(given.teacher, given.init)
    if given.task == embedding.TASK:
        return embedding.run(given, chosen)
    out = pathlib.Path(given.workdir)
    if given.task == squad.TASK.name:
        parts, task = squad.parts_of(given), squad.TASK
    elif given.task:
        parts, task = glue.parts_of(given), glue.task_of(given.task)
    else:
        parts = classify.parts_of(given)
        task = classify.task_of(parts['train'], given, given.teacher)
    prepared, said = prepare(task, parts, given)
    workdir, values = finetune.train_all(task, prepared, chosen)
    if given.task == squad.TASK.name:
        asked = parts['heldout']
        values |= squad.answer(workdir, asked, given.version2, out)
    elif given.task:
        values |= glue.answer(workdir, given.task, parts, out)
    else:
        finetune.draw(workdir, task, parts['heldout'], out)
    return finetune.finish(out, {**values, **said})


if __name__ == '__main__':
    commands.start(run)
