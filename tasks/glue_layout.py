"""GLUE's nine tasks: where their files lie, and what is in them.

GLUE (Wang et al. 2019) has a folder a task, of tab-separated files without
quotes, each task with columns of its own. TFDS has the same examples in an
order of its own and other names of labels; here they come in GLUE's order with
GLUE's labels. A test file's labels are kept back: predictions are written in
the form that GLUE scores.
"""

import pathlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from infoword_tf import files
from infoword_tf.data import tables

_OWN = ('source', 'label', 'star', 'sentence')  # CoLA's, where no line says so
_FILES = {'train': ('train.tsv',), 'dev': ('dev.tsv',), 'test': ('test.tsv',)}
_TFDS = {'train': 'train', 'dev': 'validation', 'test': 'test'}
_BINARY = ('0', '1')
_ENTAILMENT = ('entailment', 'not_entailment')
_LOWEST, _HIGHEST = 0.0, 5.0  # scores of STS-B


class Task(NamedTuple):
    """One of GLUE's tasks.

    Attributes:
        folder: in GLUE's data.
        columns: of the first text, the second (or None) and the label.
        labels: as GLUE writes them, in the order of their numbers; none of a
            task of scores.
        names: the same for people, as TFDS has them.
        measures: names in `measures.MEASURES`, as GLUE reports them.
        best: the one that chooses among runs.
        submission: the file that GLUE takes, by split.
        config: of TFDS's `glue`.
        tfds_columns: as `columns`, where TFDS has other names.
        files: by split, the file in `folder`, or others that may stand there
            in its place.
        tfds_splits: by split.
        header: columns of the training and dev file, where these do not name
            them.
        has_broken_lines: whether the training file has lines with too few
            cells, to be left out.
    """

    folder: str
    columns: tuple[str, str | None, str]
    labels: tuple[str, ...]
    names: tuple[str, ...]
    measures: tuple[str, ...]
    best: str
    submission: Mapping[str, str]
    config: str
    tfds_columns: tuple[str, str | None, str]
    files: Mapping[str, tuple[str, ...]] = _FILES
    tfds_splits: Mapping[str, str] = _TFDS
    header: tuple[str, ...] | None = None
    has_broken_lines: bool = False

    @property
    def regress(self) -> bool:
        """Whether its labels are scores."""
        return not self.labels


TASKS = {
    'cola': Task(
        folder='CoLA',
        columns=('sentence', None, 'label'),
        labels=_BINARY,
        names=('unacceptable', 'acceptable'),
        measures=('matthews',),
        best='matthews',
        submission={'test': 'CoLA.tsv'},
        config='cola',
        tfds_columns=('sentence', None, 'label'),
        header=_OWN,
    ),
    'sst-2': Task(
        folder='SST-2',
        columns=('sentence', None, 'label'),
        labels=_BINARY,
        names=('negative', 'positive'),
        measures=('accuracy',),
        best='accuracy',
        submission={'test': 'SST-2.tsv'},
        config='sst2',
        tfds_columns=('sentence', None, 'label'),
    ),
    'mrpc': Task(
        folder='MRPC',
        columns=('#1 String', '#2 String', 'Quality'),
        labels=_BINARY,
        names=('not_equivalent', 'equivalent'),
        measures=('f1', 'accuracy'),
        best='f1',
        submission={'test': 'MRPC.tsv'},
        config='mrpc',
        tfds_columns=('sentence1', 'sentence2', 'label'),
        # Microsoft's own test file; its training file has the dev rows too.
        files={**_FILES, 'test': ('test.tsv', 'msr_paraphrase_test.txt')},
    ),
    'qqp': Task(
        folder='QQP',
        columns=('question1', 'question2', 'is_duplicate'),
        labels=_BINARY,
        names=('not_duplicate', 'duplicate'),
        measures=('f1', 'accuracy'),
        best='f1',
        submission={'test': 'QQP.tsv'},
        config='qqp',
        tfds_columns=('question1', 'question2', 'label'),
        has_broken_lines=True,
    ),
    'sts-b': Task(
        folder='STS-B',
        columns=('sentence1', 'sentence2', 'score'),
        labels=(),
        names=(),
        measures=('pearson', 'spearman'),
        best='spearman',
        submission={'test': 'STS-B.tsv'},
        config='stsb',
        tfds_columns=('sentence1', 'sentence2', 'label'),
    ),
    'mnli': Task(
        folder='MNLI',
        columns=('sentence1', 'sentence2', 'gold_label'),
        labels=('contradiction', 'entailment', 'neutral'),
        names=('contradiction', 'entailment', 'neutral'),
        measures=('accuracy',),
        best='accuracy',
        submission={'test': 'MNLI-m.tsv', 'test_mm': 'MNLI-mm.tsv'},
        config='mnli',
        tfds_columns=('premise', 'hypothesis', 'label'),
        files={
            'train': ('train.tsv',),
            'dev': ('dev_matched.tsv',),
            'dev_mm': ('dev_mismatched.tsv',),
            'test': ('test_matched.tsv',),
            'test_mm': ('test_mismatched.tsv',),
        },
        tfds_splits={
            'train': 'train',
            'dev': 'validation_matched',
            'dev_mm': 'validation_mismatched',
            'test': 'test_matched',
            'test_mm': 'test_mismatched',
        },
    ),
    'qnli': Task(
        folder='QNLI',
        columns=('question', 'sentence', 'label'),
        labels=_ENTAILMENT,
        names=_ENTAILMENT,
        measures=('accuracy',),
        best='accuracy',
        submission={'test': 'QNLI.tsv'},
        config='qnli',
        tfds_columns=('question', 'sentence', 'label'),
    ),
    'rte': Task(
        folder='RTE',
        columns=('sentence1', 'sentence2', 'label'),
        labels=_ENTAILMENT,
        names=_ENTAILMENT,
        measures=('accuracy',),
        best='accuracy',
        submission={'test': 'RTE.tsv'},
        config='rte',
        tfds_columns=('sentence1', 'sentence2', 'label'),
    ),
    'wnli': Task(
        folder='WNLI',
        columns=('sentence1', 'sentence2', 'label'),
        labels=_BINARY,
        names=('not_entailment', 'entailment'),
        measures=('accuracy',),
        best='accuracy',
        submission={'test': 'WNLI.tsv'},
        config='wnli',
        tfds_columns=('sentence1', 'sentence2', 'label'),
    ),
}


def read(name: str, data_dir: str, split: str) -> tables.Rows:
    """Reads a split of a task.

    Args:
        name: of the task.
        data_dir: the folder that holds CoLA/, RTE/ and so on, or `tfds:glue`.
        split: 'train', 'dev' or 'test'; of MNLI also 'dev_mm' and 'test_mm',
            the mismatched ones.

    Returns:
        In GLUE's order. Labels are GLUE's; those of a test split are None.

    Raises:
        FileNotFoundError: the file is not there.
        ValueError: it is malformed, or a label is none of the task's; with
            file and line.
    """
    task = TASKS[name]
    from_tfds = data_dir.startswith('tfds:')
    if from_tfds:
        text, pair, label = task.tfds_columns
        table = _in_order(
            tables.open_table(
                f'{data_dir}/{task.config}:{task.tfds_splits[split]}'
            )
        )
    else:
        text, pair, label = task.columns
        table = _open_file(task, pathlib.Path(data_dir), split)
    rows = tables.rows_of(
        table,
        text,
        pair,
        None if split.startswith('test') else label,
        task.regress,
    )
    if rows.labels is None:
        return rows
    known = task.names if from_tfds else task.labels
    numbers = tables.known_labels(rows, known)
    return rows._replace(labels=[task.labels[number] for number in numbers])


def _open_file(task: Task, data_dir: pathlib.Path, split: str) -> tables.Table:
    """A split's file; of training, lines that are broken are counted."""
    folder = data_dir.expanduser() / task.folder
    for name in task.files[split]:
        if (folder / name).is_file():
            break
    else:
        raise FileNotFoundError(
            f'{folder / task.files[split][0]}: there is no such file; '
            '--data_dir is the folder that holds CoLA/, RTE/ and so on as '
            'GLUE lays them out, or tfds:glue'
        )
    header = None if split == 'test' else task.header
    if not (task.has_broken_lines and split == 'train'):
        return tables.open_table(str(folder / name), header)
    broken: list[str] = []
    table = tables.open_table(str(folder / name), header, broken.append)

    def counted() -> Iterator[tuple[int, tables.Cells]]:
        yield from table.rows
        if broken:
            print(
                f'{table.where}: {len(broken)} broken line(s) left out, the '
                f'first {broken[0]}',
                flush=True,
            )

    return table._replace(rows=counted())


def _in_order(table: tables.Table) -> tables.Table:
    """The same rows by GLUE's numbers, which TFDS keeps as `idx`."""
    place = table.names.index('idx')
    rows = sorted(table.rows, key=lambda row: int(row[1][place]))
    return table._replace(rows=iter(rows))


def write_predictions(
    path: pathlib.Path, name: str, predictions: np.ndarray
) -> None:
    """Writes predictions for a test file as GLUE takes them, or none.

    A line of names, then a line an example: its number from 0, and the label
    as GLUE writes it; of STS-B the score, within 0 and 5, to three decimals.

    Args:
        path: of the file; `Task.submission` has the name that GLUE wants.
        name: of the task.
        predictions: [n] numbers of classes, or scores.

    Raises:
        ValueError: a score is no number.
    """
    task = TASKS[name]
    if task.regress:
        if not np.isfinite(predictions).all():
            raise ValueError(f'{path}: a score is no finite number')
        clipped = np.clip(predictions, _LOWEST, _HIGHEST)
        cells = [f'{score:.3f}' for score in clipped]
    else:
        cells = [task.labels[number] for number in predictions]
    lines = ['index\tprediction']
    lines += [f'{index}\t{cell}' for index, cell in enumerate(cells)]
    with files.written(path) as partial:
        partial.write_text('\n'.join(lines) + '\n', encoding='utf-8')
