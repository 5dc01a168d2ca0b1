r"""A small student of a fine-tuned teacher (Sun et al. 2019, "PKD").

    python -m tasks.distill --teacher=runs/rte --layers=3 --patience=last \
        --task=rte --data_dir=glue --init=runs/minilm --workdir=runs/rte3
    python -m tasks.distill --teacher=runs/mails --layers=3 --patience=skip \
        --train=mails.csv --dev=mails_dev.csv --text=body --label=folder \
        --extra=unlabelled.csv --workdir=runs/mails3
    python -m tasks.distill --teacher=runs/squad --layers=3 --task=squad \
        --train=train-v1.1.json --dev=dev-v1.1.json --workdir=runs/squad3
    python -m tasks.distill --teacher=runs/names --layers=3 --task=tag \
        --train=train.conll --dev=dev.conll --workdir=runs/names3

The loss is (1 - alpha) label + alpha soft + beta patience: the labels, the
teacher's distribution at --temperature, and the teacher's states layer by layer
(see docs/rows.md). The student is the first --layers layers of --init (a
pretrained workdir, as in the paper; by default the teacher). Examples are those
of tasks.glue (--task), tasks.classify (--train), tasks.squad or tasks.tag
(--task=squad, tag), with their flags; texts of --extra are labelled by the
teacher alone. The teacher's outputs are computed once, into the cache.

    python -m tasks.distill --task=embed --teacher=runs/minilm \
        --student=lookup --corpus=pydocs --workdir=runs/lookup

Here the teacher is any workdir that makes vectors of texts. Examples are the
sentences of a corpus, b is the teacher's vector (the rows `embed` and
`embed_distance`), and the student the teacher's first --layers layers or a
lookup table.

    python -m tasks.distill --task=embed --teacher=runs/minilm \
        --student=lookup --parallel=en-de=deu-eng.tsv --workdir=runs/two

With --parallel examples are translations: the teacher reads one language, and
the student learns to give both texts the teacher's vector.

--patience=none is plain distillation, with --alpha=0 plain fine-tuning.
--sweep=pkd trains with every combination of the paper's grid, in the units of
its code. The last line is one JSON object, also in WORKDIR/metrics.json.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from infoword_tf import commands, errors
from infoword_tf.adapters import NONE
from infoword_tf.choices import again, flag
from infoword_tf.data import tables
from infoword_tf.objectives.distill import CODE, MAPS, layer_map
from infoword_tf.training.checks import refuse_infinite_numbers
from tasks import (
    classify,
    embedding,
    finetune,
    glue,
    glue_layout,
    squad,
    tag,
    tag_scores,
)
from tasks.finetune import FinetuneChoices
from tasks.student import start_of
from tasks.teacher import OF_TOKENS, Teacher

NO_PATIENCE = 'none'
SOFT = {
    'label': 'soft', 'score': 'soft_score', 'span': 'soft_span',
    'tag': 'soft_tag',
}  # fmt: skip
# Flags that tasks of other rows refuse.
OF_WORDS = tuple(
    x.name
    for x in dataclasses.fields(tag.TaggedChoices)
    if x.name not in ('train', 'dev')
)
# Flags that --task=embed refuses.
OF_LABELS = (
    'patience', 'alpha', 'beta', 'temperature', 'extra', 'data_dir', 'train',
    'dev', 'sweep', 'seeds', 'regress', 'version2', 'dev_examples',
    'columns', 'delimiter', 'label_columns',
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class DistillChoices(
    glue.TaskChoices,
    classify.TableChoices,
    squad.SquadChoices,
    tag.TaggedChoices,
    embedding.EmbeddingChoices,
):
    """Choices of the command; None of --seq_len is the task's default."""

    USUAL: ClassVar[tuple[str, ...]] = (
        'teacher', 'task', 'data_dir', 'train', 'dev', 'init', 'student',
        'layers', 'patience', 'alpha', 'beta', 'temperature', 'epochs',
        'learning_rate', 'batch_size', 'workdir',
    )  # fmt: skip

    task: str | None = again(
        glue.TaskChoices, 'task', None, choices=(
            *glue_layout.TASKS, squad.TASK.name, tag.NAME, embedding.TASK),
        help=f'Which of the nine, or {squad.TASK.name}, {tag.NAME}, '
        f'{embedding.TASK}.')
    seq_len: int | None = again(
        FinetuneChoices, 'seq_len', None, shown=FinetuneChoices.seq_len)
    epochs: float | None = again(FinetuneChoices, 'epochs', None)
    sweep: str | None = again(
        FinetuneChoices, 'sweep', None, choices=('pkd', 'infoword', 'bert'))
    patience: str = flag(
        'last', 'Layers of the teacher that are imitated: every n-th (skip), '
        'the last, or none.',
        choices=(*MAPS, NO_PATIENCE))
    alpha: float = flag(
        0.7, "Weight of the teacher's distribution; the labels have 1 - alpha.",
        at_least=0.0, at_most=1.0)
    beta: float = flag(0.1, "Weight of the teacher's states.", at_least=0.0)
    temperature: float = flag(
        10.0, 'Divisor of the scores of both models.', at_least=1e-6)
    extra: str | None = flag(
        None, 'A table of additional unlabelled texts, which only the teacher '
        'labels.')


def sum_of(row: str, alpha: float, beta: float) -> str:
    """Writes --objectives of a student: rows with weights."""
    weights = {row: 1 - alpha, SOFT[row]: alpha, 'patience': beta}
    return ','.join(
        f'{name}:{weight:g}'
        for name, weight in weights.items()
        if weight or name == row
    )


def check(choices: DistillChoices, chosen: Mapping[str, Any]) -> None:
    """Refuses contradicting choices, before anything is read.

    Raises:
        UsageError: what contradicts, and what to leave out.
    """
    commands.require(
        vars(choices),
        teacher='a workdir to learn from',
        workdir='a folder for this run',
    )
    refuse_infinite_numbers(choices)
    another = ('layers', *embedding.VOCABULARY)
    if choices.adapter != NONE and (
        not choices.init or any(vars(choices)[x] is not None for x in another)
    ):
        raise errors.UsageError(
            'adapter_of_student',
            f'--adapter={choices.adapter} leaves the encoder of --init as it '
            'is; name the student with --init, and leave out '
            + ', '.join(f'--{name}' for name in another),
        )
    if choices.task == embedding.TASK:
        why = '{} is for labels, not for --task=embed; leave it out'
        embedding.check(choices, chosen)
        commands.refuse(chosen, OF_LABELS, why)
        return
    why = '{} is for --task=embed; leave it out'
    commands.refuse(chosen, embedding.OF_VECTORS, why)
    why = '{} is decided by --alpha, --beta and --patience; leave it out'
    commands.refuse(chosen, ['objectives'], why)
    if choices.task != tag.NAME:
        why = '{} is for labels of words (--task=tag); leave it out'
        commands.refuse(chosen, OF_WORDS, why)
    if choices.task in (squad.TASK.name, tag.NAME):
        why = (
            '{} is for classes and numbers of texts; of '
            f'--task={choices.task} leave it out'
        )
        commands.refuse(chosen, ['extra'], why)
        return
    if bool(choices.task) == bool(choices.train):
        raise errors.UsageError(
            'no_examples_named',
            'name the examples: --task of GLUE with --data_dir, or --train '
            'and --dev',
        )
    if choices.task and glue_layout.TASKS[choices.task].regress:
        numbers = f'--task={choices.task}'
    else:
        numbers = '--regress' if choices.regress and not choices.task else ''
    if numbers and ('temperature' in chosen or choices.sweep == 'pkd'):
        raise errors.UsageError(
            'temperature_of_numbers',
            f'{numbers} is of numbers, and they have no temperature; leave '
            'out --temperature and --sweep=pkd',
        )


def extra_of(choices: DistillChoices) -> tables.TableExamples | None:
    """Reads the texts of --extra from the columns of the task."""
    if not choices.extra:
        return None
    if choices.task:
        text, pair, _ = glue_layout.TASKS[choices.task].columns
        choices = choices.decided(text=text, pair=pair)
    return classify.read(choices.extra, choices, labelled=False)


def add_outputs(
    prepared: finetune.PreparedTask,
    teacher: Teacher,
    task: finetune.Task,
    layers: tuple[int, ...],
) -> tuple[dict[str, Any], np.ndarray]:
    """Adds outputs of a teacher, and states of `layers`, to examples.

    Returns:
        Changed fields of `training.build.LabelledData`; and the scores of the
        teacher for held-out examples.
    """
    targets: dict[str, Any] = {}
    fingerprints = [prepared.labelled.fingerprint]
    for split in ('train', 'heldout'):
        examples = getattr(prepared.labelled, split)
        scores, states = teacher.outputs(examples, layers)
        soft = {SOFT[task.row]: scores}
        counts = dict.fromkeys([*soft, 'patience'], np.zeros(0, np.int64))
        if task.row == 'label':
            counts['soft'] = task.counts(task.predictions(scores))
        of_tokens = soft if task.row in OF_TOKENS else {}
        of_texts = {} if of_tokens else soft
        targets[split] = examples._replace(
            targets={**examples.targets, **of_texts, 'patience': states},
            counts={**examples.counts, **counts},
            of_tokens={**examples.of_tokens, **of_tokens},
        )
        fingerprints.append(teacher.key(examples))
    return {**targets, 'fingerprint': ' '.join(fingerprints)}, scores


def judged(
    teacher: Teacher,
    task: finetune.Task,
    scores: np.ndarray,
    true: np.ndarray | None,
    questions: Any,
) -> float:
    """Scores a teacher on held-out examples, by the first metric.

    Compares `scores` with the labels `true`; a teacher of spans answers the
    `questions`, one of labels of words labels them.
    """
    if task.row == 'span':
        answers = squad.answered(teacher.folder, questions)
        null = teacher.settings['null']
        return squad.judged(questions, answers, null)[0][task.metrics[0]]
    if task.row == 'tag':
        labelled = tag.labelled(teacher.loaded, questions, task.labels)
        return tag_scores.scores(*labelled)[task.metrics[0]]
    return finetune.measured(task, scores, true)[task.metrics[0]]


def prepare(
    task: finetune.Task, splits: Mapping[str, Any], choices: DistillChoices
) -> tuple[finetune.PreparedTask, dict[str, Any]]:
    """Prepares a student, and examples with the teacher's outputs.

    Returns:
        As `finetune.prepare`; and entries of metrics.json about the teacher.

    Raises:
        UsageError: teacher and student do not fit.
    """
    row, settings = task.row, choices.settings
    teacher = Teacher(choices.teacher, task)
    init = choices.init or choices.teacher
    student = start_of(init, choices.layers, choices.take)
    length = choices.seq_len or FinetuneChoices.seq_len
    if row == 'span':
        length = choices.seq_len or teacher.loaded.config.max_length
        end = settings.get('span.end') or teacher.settings['end']
        reads = {'null': choices.version2, 'end': end}
        if choices.epochs is None:
            choices = choices.decided(epochs=finetune.EPOCHS)
    elif row == 'tag':
        name = 'tokens'
        reads = {
            name: settings.get(f'{row}.{name}') or teacher.settings[name]
        }
    else:
        reads = {
            'texts': settings.get(f'{row}.texts') or teacher.settings['texts']
        }
        if splits['train'].choices is not None:
            reads = {'texts': 'choices'}
    teacher.check(student, length, **reads)
    layers: tuple[int, ...] = ()
    if choices.patience != NO_PATIENCE:
        depths = teacher.depth, student.encoder.depth
        try:
            layers = layer_map(choices.patience, *depths)
        except ValueError as error:
            raise errors.UsageError(
                'patience_of_layers', f'--patience={choices.patience}: {error}'
            ) from None

    def decide(choices: DistillChoices) -> DistillChoices:
        beta = choices.beta if layers else 0.0
        rows = sum_of(row, choices.alpha, beta)
        # The betas of the grid are in units of the published code.
        code = CODE if choices.sweep == 'pkd' else None
        decided: dict[str, Any] = {}
        for soft in ('soft', 'soft_span', 'soft_tag'):
            if f'{soft}:' in rows:
                decided[f'{soft}.temperature'] = choices.temperature
        for name in ('soft.reduction', 'patience.reduction'):
            if f'{name.partition(".")[0]}:' in rows:
                decided[name] = choices.settings.get(name) or code
        if 'patience:' in rows and teacher.width != student.encoder.width:
            decided['patience.width'] = teacher.width
        return choices.decided(decided, objectives=rows)

    choices = decide(choices).decided(
        {f'{row}.{name}': value for name, value in reads.items()},
        init=init,
        seq_len=length,
    )
    if row == 'span':
        prepared = squad.prepare(splits, choices, choices.version2, student)
    elif row == 'tag':
        prepared = tag.prepare(task, splits, choices, student)
    else:
        extra = extra_of(choices)
        prepared = finetune.prepare(task, splits, choices, student, extra)
    labelled, results = prepared.labelled, {}
    if choices.sweep == 'pkd' or choices.objectives != f'{row}:1':
        changes, scores = add_outputs(prepared, teacher, task, layers)
        true = labelled.heldout.targets.get(row)
        best = judged(teacher, task, scores, true, splits['heldout'])
        config = teacher.described(task.metrics[0], best)
        fields = {**labelled.config_fields, 'teacher': config}
        labelled = labelled._replace(**changes, config_fields=fields)
        results = {f'teacher_{task.metrics[0]}': round(best, 6)}
    record = {
        **labelled.record,
        'teacher': f'{choices.teacher} (weights {teacher.digest})',
        'layers': student.encoder.depth,
        'take': choices.take,
        'patience': choices.patience,
    }
    labelled = labelled._replace(record=record)
    return dataclasses.replace(
        prepared, labelled=labelled, decide=decide
    ), results


@commands.takes(DistillChoices)
def run(choices: DistillChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Distils a teacher into a student; returns metrics.json."""
    finetune.check_one_machine(choices)
    check(choices, chosen)
    finetune.check_inits(choices.teacher, choices.init)
    if choices.task == embedding.TASK:
        return embedding.run(choices, chosen)
    out = pathlib.Path(choices.workdir)
    if choices.task == squad.TASK.name:
        splits, task = squad.splits_of(choices), squad.TASK
    elif choices.task == tag.NAME:
        splits = tag.splits_of(choices)
        task = tag.task_of(splits['train'])
    elif choices.task:
        splits, task = glue.splits_of(choices), glue.task_of(choices.task)
    else:
        splits = classify.splits_of(choices)
        task = classify.task_of(splits['train'], choices, choices.teacher)
    prepared, results = prepare(task, splits, choices)
    workdir, values = finetune.train_all(task, prepared, chosen)
    if choices.task == squad.TASK.name:
        questions = splits['heldout']
        values |= squad.answer(workdir, questions, choices.version2, out)
    elif choices.task in glue_layout.TASKS:
        values |= glue.answer(workdir, choices.task, splits, out)
    elif not choices.task:
        finetune.draw(workdir, task, splits['heldout'], out)
    return finetune.finish(out, {**values, **results})


if __name__ == '__main__':
    commands.start(run)
