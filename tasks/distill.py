r"""A small student of a fine-tuned teacher (Sun et al. 2019, "PKD").

    python -m tasks.distill --teacher=runs/rte --layers=3 --patience=last \
        --task=rte --data_dir=glue --init=runs/minilm --workdir=runs/rte3
    python -m tasks.distill --teacher=runs/mails --layers=3 --patience=skip \
        --train=mails.csv --dev=mails_dev.csv --text=body --label=folder \
        --extra=unlabelled.csv --workdir=runs/mails3
    python -m tasks.distill --teacher=runs/squad --layers=3 --task=squad \
        --train=train-v1.1.json --dev=dev-v1.1.json --workdir=runs/squad3

The loss is (1 - alpha) label + alpha soft + beta patience: what people say, the
teacher's distribution at --temperature, and its states layer by layer (see
docs/rows.md). The student is the first --layers layers of --init (a pretrained
workdir, as in the paper; by default of the teacher). Examples are those of
tasks.glue (--task), of tasks.classify (--train) or of tasks.squad
(--task=squad with --train and --dev), with their flags; texts of --extra have
no label, and the teacher alone teaches them. What the teacher makes of all of
them is computed once and kept in the cache.

    python -m tasks.distill --task=embed --teacher=runs/minilm \
        --student=lookup --corpus=pydocs --workdir=runs/lookup

The teacher may be any workdir whose texts become vectors. Examples are then
the sentences of a corpus, b is the teacher's vector (the rows `embed` and
`embed_distance`), and the student its first --layers layers or a table lookup.

--patience=none is plain distillation, with --alpha=0 plain fine-tuning.
--sweep=pkd trains with every cell of the paper's grid, in the units of its
code. The last line of the output is one JSON object, also in
WORKDIR/metrics.json.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import flags

from infoword_tf import commands, train
from infoword_tf.objectives import parse
from infoword_tf.objectives.distill import CODE, MAPS
from tasks import (
    classify,
    embedding,
    finetune,
    glue,
    glue_layout,
    measures,
    squad,
    tables,
)
from tasks.student import FIRST, SIF, TAKES, WEIGHTINGS, start_of

# Imported, they stand beside the trainer's, which have the same names.
FLAGS = flags.FLAGS if __name__ == '__main__' else flags.FlagValues()
NO_PATIENCE = 'none'
SOFT = {'label': 'soft', 'score': 'soft_score', 'span': 'soft_span'}
SQUAD = squad.Squad()
# Flags of examples with labels alone, and of vectors alone.
OF_LABELS = (
    'patience', 'alpha', 'beta', 'temperature', 'extra', 'data_dir', 'train',
    'dev', 'sweep', 'seeds', 'regress', 'version2', 'dev_examples',
    'columns',
)  # fmt: skip
OF_VECTORS = ('student', 'weighting')

TEACHER = flags.DEFINE_string(
    'teacher', None, 'A workdir that was fine-tuned on the same task.',
    flag_values=FLAGS)
LAYERS = flags.DEFINE_integer(
    'layers', None, 'Layers of the student; all of --init by default.',
    lower_bound=1, flag_values=FLAGS)
TAKE = flags.DEFINE_enum(
    'take', FIRST, TAKES, 'Which layers of --init: the first ones, or every '
    'n-th.', flag_values=FLAGS)
flags.DEFINE_enum(
    'patience', 'last', (*MAPS, NO_PATIENCE), "Which of the teacher's layers "
    "the student's follow: every n-th (skip), the last ones, or none.",
    flag_values=FLAGS)
flags.DEFINE_float(
    'alpha', 0.7, "Weight of the teacher's distribution; labels have the "
    'rest.', lower_bound=0.0, upper_bound=1.0, flag_values=FLAGS)
flags.DEFINE_float(
    'beta', 0.1, "Weight of the teacher's states.", lower_bound=0.0,
    flag_values=FLAGS)
flags.DEFINE_float(
    'temperature', 10.0, 'What the scores of both are divided by.',
    lower_bound=1e-6, flag_values=FLAGS)
EXTRA = flags.DEFINE_string(
    'extra', None, 'A table of texts without labels, to train on besides.',
    flag_values=FLAGS)
flags.DEFINE_enum(
    'student', embedding.LAYERS, embedding.STUDENTS, 'Of an embedding model: '
    'layers of --init, or a table lookup.', flag_values=FLAGS)
flags.DEFINE_enum(
    'weighting', SIF, WEIGHTINGS, 'What the pieces of a '
    'table lookup weigh at first: a / (a + frequency), or log(1 + rank).',
    flag_values=FLAGS)
glue.define(FLAGS, SQUAD.name, embedding.TASK)
squad.define(FLAGS)
classify.define(FLAGS)
finetune.define(FLAGS, ('pkd', 'infoword', 'bert'))


def sum_of(row: str, alpha: float, beta: float) -> str:
    """The rows of a student with their weights, as --objectives has them.

    Args:
        row: 'label', 'score' or 'span'.
        alpha: of the teacher's scores.
        beta: of its states.
    """
    weights = {row: 1 - alpha, SOFT[row]: alpha, 'patience': beta}
    return ','.join(
        f'{name}:{weight:g}'
        for name, weight in weights.items()
        if weight or name == row
    )


def check(own: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Complains of flags that do not go together, before anything is read.

    Args:
        own: flags of this command, by name.
        given: by flag of the trainer, its value.

    Raises:
        UsageError: they do not.
    """
    commands.require(own, teacher='a workdir to learn from')
    commands.require(given, workdir='a folder for this run')
    train.check_finite(dict(own))
    if own['task'] == embedding.TASK:
        check_embed(own, given)
        return
    for flag in OF_VECTORS:
        if FLAGS[flag].present:
            raise commands.UsageError(
                f'--{flag} is for --task={embedding.TASK}; leave it out'
            )
    if given['objectives'] is not None:
        raise commands.UsageError(
            '--objectives is decided by --alpha, --beta and --patience; leave '
            'it out'
        )
    if own['task'] == SQUAD.name:
        if own['extra']:
            raise commands.UsageError(
                '--extra is for classes and numbers; of --task=squad leave it '
                'out'
            )
        return
    if bool(own['task']) == bool(own['train']):
        raise commands.UsageError(
            'name the examples: --task of GLUE with --data_dir, or --train '
            'and --dev'
        )
    if own['task'] and glue_layout.TASKS[own['task']].regress:
        numbers = f'--task={own["task"]}'
    else:
        numbers = '--regress' if own['regress'] and not own['task'] else ''
    if numbers and (FLAGS['temperature'].present or own['sweep'] == 'pkd'):
        raise commands.UsageError(
            f'{numbers} is of numbers, and they have no temperature; leave '
            'out --temperature and --sweep=pkd'
        )


def check_embed(own: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """`check` with --task=embed."""
    commands.require(given, corpus='text for the teacher to read')
    for flag in OF_LABELS:
        if FLAGS[flag].present:
            raise commands.UsageError(
                f'--{flag} is for labels, not for --task={embedding.TASK}; '
                'leave it out'
            )
    other = ('layers', 'take') if own['student'] == embedding.LOOKUP else (
        'weighting',
    )  # fmt: skip
    said = [flag for flag in other if FLAGS[flag].present]
    if own['student'] != embedding.LOOKUP and given['width'] is not None:
        said.append('width')
    if said:
        raise commands.UsageError(
            f'--student={own["student"]} has no --{said[0]}; leave it out'
        )
    if own['student'] == embedding.LOOKUP and given['init']:
        raise commands.UsageError(
            '--student=lookup starts from pieces of --teacher; leave out '
            '--init'
        )
    objectives = given['objectives'] or embedding.OBJECTIVES
    for row in parse(objectives):
        if row not in embedding.GOALS:
            raise commands.UsageError(
                f'--objectives={objectives}: {row} reads no vectors of a '
                f'teacher; known are {", ".join(embedding.GOALS)}'
            )


def extra_of(own: Mapping[str, Any]) -> tables.Rows | None:
    """The texts of --extra, in the columns of the task."""
    if not own['extra']:
        return None
    if own['task']:
        text, pair, _ = glue_layout.TASKS[own['task']].columns
        own = {**own, 'text': text, 'pair': pair}
    return classify.read(own['extra'], own, labelled=False)


def taught(
    prepared: finetune.Prepared,
    teacher: Any,
    task: Any,
    layers: tuple[int, ...],
) -> tuple[dict[str, Any], np.ndarray]:
    """Examples with the teacher's b beside those of people.

    Args:
        prepared: of `finetune.prepare`.
        teacher: a `teacher.Teacher`.
        task: what is asked.
        layers: of the teacher, those that are followed.

    Returns:
        By field of `training.run.Labelled`, the examples and their
        fingerprint; and the teacher's scores of the held-out ones.
    """
    found: dict[str, Any] = {}
    fingerprints = [prepared.labelled.fingerprint]
    for part in ('train', 'heldout'):
        examples = getattr(prepared.labelled, part)
        scores, states = teacher.outputs(examples, layers)
        soft = {SOFT[task.row]: scores}
        counts = dict.fromkeys([*soft, 'patience'], np.zeros(0, np.int64))
        if task.labels:
            said = scores.argmax(axis=1)
            counts['soft'] = np.bincount(said, minlength=scores.shape[1])
        of_tokens = soft if task.row == 'span' else {}
        of_texts = {} if of_tokens else soft
        found[part] = examples._replace(
            targets={**examples.targets, **of_texts, 'patience': states},
            counts={**examples.counts, **counts},
            of_tokens=of_tokens,
        )
        fingerprints.append(teacher.key(examples))
    return {**found, 'fingerprint': ' '.join(fingerprints)}, scores


def judged(
    teacher: Any, task: Any, scores: np.ndarray, true: np.ndarray, asked: Any
) -> float:
    """How good the teacher is on held-out examples.

    Args:
        teacher: a `teacher.Teacher`.
        task: what is asked.
        scores: of `Teacher.outputs`.
        true: what people say.
        asked: of spans, the questions.
    """
    if task.row == 'span':
        found = squad.answered(teacher.folder, asked)
        null = teacher.settings['null']
        return squad.judged(asked, found, null)[0][task.metrics[0]]
    said = scores.argmax(axis=1) if task.labels else scores
    return measures.MEASURES[task.metrics[0]](said, true)


def prepare(
    task: Any,
    parts: Mapping[str, Any],
    given: Mapping[str, Any],
    own: Mapping[str, Any],
) -> tuple[finetune.Prepared, dict[str, Any]]:
    """A student before its training, and examples with the teacher's b.

    Args:
        task: what is asked.
        parts: 'train' and 'heldout'.
        given: by flag of the trainer, its value.
        own: flags of this command, by name.

    Returns:
        What runs need, and what is said of the teacher.
    """
    from infoword_tf.objectives.distill import followed
    from tasks.teacher import Teacher

    row = task.row
    teacher = Teacher(own['teacher'], task)
    init = given['init'] or own['teacher']
    student = start_of(init, own['layers'], own['take'])
    length = given['seq_len']
    if row == 'span':
        end = given['span.end'] or teacher.settings['end']
        reads = {'null': own['version2'], 'end': end}
        if not flags.FLAGS['seq_len'].present:
            length = teacher.loaded.config.max_length
    else:
        reads = {'texts': given[f'{row}.texts'] or teacher.settings['texts']}
        if parts['train'].choices is not None:
            reads = {'texts': 'choices'}
    teacher.check(student, length, **reads)
    layers: tuple[int, ...] = ()
    if own['patience'] != NO_PATIENCE:
        try:
            layers = followed(
                own['patience'], teacher.depth, student.encoder.depth
            )
        except ValueError as error:
            raise commands.UsageError(
                f'--patience={own["patience"]}: {error}'
            ) from None

    def decide(own: Mapping[str, Any]) -> dict[str, Any]:
        beta = own['beta'] if layers else 0.0
        found = {'objectives': sum_of(row, own['alpha'], beta)}
        rows = found['objectives']
        code = CODE if own['sweep'] == 'pkd' else None  # whose betas these are
        for soft in ('soft', 'soft_span'):
            if f'{soft}:' in rows:
                found[f'{soft}.temperature'] = own['temperature']
        if 'soft:' in rows:
            found['soft.reduction'] = given['soft.reduction'] or code
        if 'patience:' in rows:
            found['patience.reduction'] = given['patience.reduction'] or code
            if teacher.width != student.encoder.width:
                found['patience.width'] = teacher.width
        return found

    decided = {
        'init': init,
        'seq_len': length,
        **{f'{row}.{name}': value for name, value in reads.items()},
        'teacher': f'{own["teacher"]} (weights {teacher.digest})',
        'layers': student.encoder.depth,
        'take': own['take'],
        'patience': own['patience'],
    }
    given = {**given, **decided, 'objectives': None}
    if row == 'span':
        prepared = squad.prepare(parts, given, own['version2'], student)
    else:
        prepared = finetune.prepare(
            task, parts, given, own['examples'], student, extra_of(own)
        )
    labelled, said = prepared.labelled, {}
    if own['sweep'] == 'pkd' or decide(own)['objectives'] != f'{row}:1':
        changes, scores = taught(prepared, teacher, task, layers)
        true = labelled.heldout.targets[row]
        best = judged(teacher, task, scores, true, parts['heldout'])
        known = teacher.described(task.metrics[0], best)
        kept = {**labelled.kept, 'teacher': known}
        labelled = labelled._replace(**changes, kept=kept)
        said = {f'teacher_{task.metrics[0]}': round(best, 6)}
    return (
        finetune.Prepared(labelled, {**prepared.decided, **decided}, decide),
        said,
    )


def run() -> dict[str, Any]:
    """The whole command."""
    own, given = FLAGS.flag_values_dict(), train.values()
    check(own, given)
    finetune.check_inits(own['teacher'], given['init'])
    out = pathlib.Path(given['workdir'])
    if own['task'] == embedding.TASK:
        if own['student'] == embedding.LOOKUP:
            for flag, value in embedding.LOOKUP_DEFAULTS.items():
                if not flags.FLAGS[flag].present:
                    given[flag] = value
        return embedding.run(own, given)
    if own['task'] == SQUAD.name:
        parts, task = squad.parts_of(own), SQUAD
    elif own['task']:
        parts, task = glue.parts_of(own), glue.task_of(own['task'])
    else:
        parts = classify.parts_of(own)
        task = classify.task_of(parts['train'], own)
    prepared, said = prepare(task, parts, given, own)
    workdir, values = finetune.train_all(task, prepared, own)
    if own['task'] == SQUAD.name:
        asked = parts['heldout']
        values |= squad.answer(workdir, asked, own['version2'], out)
    elif own['task']:
        values |= glue.answer(workdir, own['task'], parts, out)
    else:
        classify.answer(workdir, task, parts, out)
    return finetune.finish(out, {**values, **said})


if __name__ == '__main__':
    finetune.set_defaults()
    commands.start(
        run, stopped='the same command goes on from the last checkpoint'
    )
