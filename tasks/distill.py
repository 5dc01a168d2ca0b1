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
(--task=squad, tag), with their flags; texts or words of --extra are labelled by
the teacher alone. The teacher's outputs are computed once, into the cache.

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
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from infoword_tf import commands, errors
from infoword_tf.adapters import NONE
from infoword_tf.choices import again, flag, flags_of
from infoword_tf.data import glue_layout
from infoword_tf.objectives import TABLE, parse
from infoword_tf.objectives.distill import CODE, MAPS, layer_map
from infoword_tf.training.begin import refuse_infinite_numbers

from . import classify, embedding, finetune, glue, squad, tag
from .finetune import FinetuneChoices
from .student import start_of
from .task import SPLITS, Task
from .teacher import PATIENCE, Teacher

NO_PATIENCE = 'none'
# By --task; without it --train is a table.
TASKS: dict[str | None, type[Task]] = {
    **dict.fromkeys(glue_layout.TASKS, glue.Glue),
    None: classify.Classify,
    squad.NAME: squad.Squad,
    tag.NAME: tag.Tagging,
}
NAMES = (*filter(None, TASKS), embedding.TASK)
# Flags that --task=embed refuses.
OF_LABELS = (
    'patience', 'alpha', 'beta', 'temperature', 'extra', 'data_dir', 'train',
    'dev', 'sweep', 'seeds', 'regress', 'version2', 'dev_examples',
    'columns', 'delimiter', 'label_columns',
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class DistillChoices(
    # A checker of types does not see what the table has.
    *dict.fromkeys(x.choices for x in TASKS.values()),  # type: ignore[misc]
    embedding.EmbeddingChoices,
):
    """Choices of the command; --seq_len is None until the task decides."""

    USUAL: ClassVar[tuple[str, ...]] = (
        'teacher', 'task', 'data_dir', 'train', 'dev', 'init', 'student',
        'layers', 'patience', 'alpha', 'beta', 'temperature', 'epochs',
        'learning_rate', 'batch_size', 'workdir',
    )  # fmt: skip

    task: str | None = again(
        glue.TaskChoices, 'task', None, choices=NAMES,
        help='Which of the nine, or '
        f'{", ".join(x for x in NAMES if x not in glue_layout.TASKS)}.')
    seq_len: int = again(
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
        None, 'A file of additional texts, in the form of --train, which only '
        'the teacher labels; no labels of it are read.')


def sum_of(row: str, alpha: float, beta: float) -> str:
    """Writes --objectives of a student: rows with weights."""
    weights = {row: 1 - alpha, TABLE[row].taught_by: alpha, PATIENCE: beta}
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
    kind = TASKS[choices.task]
    for other in dict.fromkeys(TASKS.values()):
        why = f'{{}} is for {other.about}; leave it out'
        commands.refuse(chosen, other.alone if other is not kind else (), why)
    if not kind.takes_texts:
        why = (
            '{} is for labels of texts or words, and for numbers; of '
            f'--task={choices.task} leave it out'
        )
        commands.refuse(chosen, ['extra'], why)
    is_odd = choices.train and 'train' not in flags_of(kind.choices)
    if is_odd or not (choices.train or choices.task):
        raise errors.UsageError(
            'no_examples_named',
            'name the examples: --task of GLUE with --data_dir, or --train '
            'and --dev',
        )
    if kind.regresses(choices) and (
        'temperature' in chosen or choices.sweep == 'pkd'
    ):
        numbers = f'--task={choices.task}' if choices.task else '--regress'
        raise errors.UsageError(
            'temperature_of_numbers',
            f'{numbers} is of numbers, and they have no temperature; leave '
            'out --temperature and --sweep=pkd',
        )


def add_outputs(
    prepared: finetune.PreparedTask,
    teacher: Teacher,
    layers: tuple[int, ...],
) -> tuple[dict[str, Any], np.ndarray]:
    """Adds outputs of a teacher, and states of `layers`, to examples.

    Returns:
        Changed fields of `training.build.LabelledData`; and the scores of the
        teacher for held-out examples.
    """
    targets: dict[str, Any] = {}
    row, fingerprints = TABLE[teacher.row], [prepared.labelled.fingerprint]
    for split in SPLITS:
        examples = getattr(prepared.labelled, split)
        scores, states = teacher.outputs(examples, layers)
        learned = {row.taught_by: scores}
        of_tokens = learned if row.of_tokens else {}
        of_texts = {} if of_tokens else learned
        counts = {
            row.taught_by: teacher.task.soft_counts(scores),
            PATIENCE: np.zeros(0, np.int64),
        }
        targets[split] = examples._replace(
            targets={**examples.targets, **of_texts, PATIENCE: states},
            counts={**examples.counts, **counts},
            of_tokens={**examples.of_tokens, **of_tokens},
        )
        fingerprints.append(teacher.key(examples))
    return {**targets, 'fingerprint': ' '.join(fingerprints)}, scores


def layers_of(
    choices: DistillChoices, teacher: int, student: int
) -> tuple[int, ...]:
    """Returns the layers of a teacher that are imitated, by both depths."""
    if choices.patience == NO_PATIENCE:
        return ()
    try:
        return layer_map(choices.patience, teacher, student)
    except ValueError as error:
        raise errors.UsageError(
            'patience_of_layers', f'--patience={choices.patience}: {error}'
        ) from None


def decided(
    choices: DistillChoices, row: str, width: int, has_layers: bool
) -> DistillChoices:
    """Returns choices with --objectives and settings of a student's rows.

    Args:
        choices: choices of the command, or of a run of its sweep.
        row: that learns labels.
        width: width of the teacher, where the student has another; else 0.
        has_layers: whether layers of the teacher are imitated.
    """
    rows = sum_of(row, choices.alpha, choices.beta if has_layers else 0.0)
    # The betas of the grid are in units of the published code.
    code = CODE if choices.sweep == 'pkd' else None
    settings: dict[str, Any] = {}
    for name in parse(rows):
        known = TABLE[name].settings
        if 'temperature' in known:
            settings[f'{name}.temperature'] = choices.temperature
        if 'reduction' in known:
            flag = f'{name}.reduction'
            settings[flag] = choices.settings.get(flag) or code
        if 'width' in known and width:
            settings[f'{name}.width'] = width
    return choices.decided(settings, objectives=rows)


def prepare(
    task: Task, choices: DistillChoices
) -> tuple[finetune.PreparedTask, dict[str, Any]]:
    """Prepares a student, and examples with the teacher's outputs.

    Returns:
        As `finetune.prepare`; and entries of metrics.json about the teacher.

    Raises:
        UsageError: teacher and student do not fit.
    """
    row, settings, metric = task.row, choices.settings, task.metrics[0]
    teacher = Teacher(choices.teacher, task)
    init = choices.init or choices.teacher
    student = start_of(init, choices.layers, choices.take)
    defaults: dict[str, Any] = {'seq_len': FinetuneChoices.seq_len}
    defaults |= task.defaults(teacher.loaded.config)
    choices = choices.decided(init=init, **{
        name: value for name, value in defaults.items()
        if getattr(choices, name) is None
    })  # fmt: skip
    reads = {
        name: settings.get(f'{row}.{name}') or teacher.settings[name]
        for name in task.shared
    }
    reads |= {k: v for k, v in task.settings.items() if k in reads}
    teacher.check(student, choices.seq_len, **reads)
    depth, width = student.encoder.depth, student.encoder.width
    layers = layers_of(choices, teacher.depth, depth)
    decide = functools.partial(
        decided,
        row=row,
        width=0 if teacher.width == width else teacher.width,
        has_layers=bool(layers),
    )
    choices = decide(choices).decided(
        {f'{row}.{name}': value for name, value in reads.items()}
    )
    if choices.extra:
        task = task.with_texts(choices)
    prepared = finetune.prepare(task, choices, student)
    labelled, results = prepared.labelled, {}
    if choices.sweep == 'pkd' or choices.objectives != f'{row}:1':
        changes, scores = add_outputs(prepared, teacher, layers)
        best = task.judged(teacher.loaded, scores)[metric]
        config = teacher.described(metric, best)
        fields = {**labelled.config_fields, 'teacher': config}
        labelled = labelled._replace(**changes, config_fields=fields)
        results = {f'teacher_{metric}': round(best, 6)}
    record = {
        **labelled.record,
        'teacher': f'{choices.teacher} (weights {teacher.digest})',
        'layers': depth,
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
    task = TASKS[choices.task].read(choices, choices.teacher)
    prepared, results = prepare(task, choices)
    return finetune.train_and_write(task, prepared, chosen, results)


if __name__ == '__main__':
    commands.start(run)
