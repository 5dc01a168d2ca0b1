"""Files and columns of GLUE's nine tasks.

GLUE (Wang et al. 2019) has a folder a task, of tab-separated files without
quotes, whose columns differ between tasks. TFDS has the same examples in
another order and with other names of labels; `read` restores GLUE's. Labels of
test files are secret: predictions are written in GLUE's submission format.
"""

import pathlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from infoword_tf import errors, files
from infoword_tf.data import labelling, tables

_COLA = ('source', 'label', 'star', 'sentence')  # columns without a header line
_FILES = {'train': ('train.tsv',), 'dev': ('dev.tsv',), 'test': ('test.tsv',)}
_TFDS = {'train': 'train', 'dev': 'validation', 'test': 'test'}
_BINARY = ('0', '1')
_ENTAILMENT = ('entailment', 'not_entailment')
_LOWEST, _HIGHEST = 0.0, 5.0  # scores of STS-B


class GlueTask(NamedTuple):
    """One of GLUE's tasks.

    Attributes:
        folder: name in GLUE's data.
        columns: names of the first text, the second (or None) and the label.
        measures: names in `measures.MEASURES`; the first selects the weights.
        labels: GLUE's words for them, in the order of their numbers; empty for
            scores.
        names: words of the labels for people, if TFDS has other labels.
        tfds_columns: `columns`, if TFDS has other names.
        files: possible names of the file in `folder`, by split.
        tfds_splits: names of the splits in TFDS, by split.
        header: columns of training and dev files without a header line.
        has_broken_lines: whether the training file has lines with too few
            cells, which are left out.
    """

    folder: str
    columns: tuple[str, str | None, str]
    measures: tuple[str, ...] = ('accuracy',)
    labels: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    tfds_columns: tuple[str, str | None, str] | None = None
    files: Mapping[str, tuple[str, ...]] = _FILES
    tfds_splits: Mapping[str, str] = _TFDS
    header: tuple[str, ...] | None = None
    has_broken_lines: bool = False

    @property
    def regress(self) -> bool:
        """True if labels are scores."""
        return not self.labels

    @property
    def config(self) -> str:
        """Name of the configuration of TFDS's `glue`."""
        return self.folder.lower().replace('-', '')

    @property
    def submission(self) -> dict[str, str]:
        """Name of the file of a submission, by split."""
        if 'test_mm' not in self.files:
            return {'test': f'{self.folder}.tsv'}
        return {'test': f'{self.folder}-m.tsv',
                'test_mm': f'{self.folder}-mm.tsv'}  # fmt: skip


TASKS = {
    'cola': GlueTask(
        'CoLA', ('sentence', None, 'label'), ('matthews',), _BINARY,
        names=('unacceptable', 'acceptable'),
        header=_COLA,
    ),
    'sst-2': GlueTask(
        'SST-2', ('sentence', None, 'label'), labels=_BINARY,
        names=('negative', 'positive'),
    ),
    'mrpc': GlueTask(
        'MRPC', ('#1 String', '#2 String', 'Quality'), ('f1', 'accuracy'),
        _BINARY,
        names=('not_equivalent', 'equivalent'),
        tfds_columns=('sentence1', 'sentence2', 'label'),
        # Microsoft's test file; its training file would hold the dev examples.
        files={**_FILES, 'test': ('test.tsv', 'msr_paraphrase_test.txt')},
    ),
    'qqp': GlueTask(
        'QQP', ('question1', 'question2', 'is_duplicate'), ('f1', 'accuracy'),
        _BINARY,
        names=('not_duplicate', 'duplicate'),
        tfds_columns=('question1', 'question2', 'label'),
        has_broken_lines=True,
    ),
    'sts-b': GlueTask(
        'STS-B', ('sentence1', 'sentence2', 'score'), ('spearman', 'pearson'),
        tfds_columns=('sentence1', 'sentence2', 'label'),
    ),
    'mnli': GlueTask(
        'MNLI', ('sentence1', 'sentence2', 'gold_label'),
        labels=('contradiction', 'entailment', 'neutral'),
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
    'qnli': GlueTask(
        'QNLI', ('question', 'sentence', 'label'), labels=_ENTAILMENT),
    'rte': GlueTask(
        'RTE', ('sentence1', 'sentence2', 'label'), labels=_ENTAILMENT),
    'wnli': GlueTask(
        'WNLI', ('sentence1', 'sentence2', 'label'), labels=_BINARY,
        names=('not_entailment', 'entailment'),
    ),
}  # fmt: skip


def read(name: str, data_dir: str, split: str) -> labelling.TableExamples:
    """Reads a split of a task.

    Args:
        name: name of the task.
        data_dir: the folder that holds CoLA/, RTE/ and so on, or `tfds:glue`.
        split: 'train', 'dev' or 'test'; of MNLI also 'dev_mm' and 'test_mm',
            of mismatched genres.

    Returns:
        Examples in GLUE's order, with GLUE's labels; None of a test split.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: it is malformed or has an unknown label; with file and line.
    """
    task = TASKS[name]
    columns, known = task.columns, task.labels
    if data_dir.startswith('tfds:'):
        columns, known = task.tfds_columns or columns, task.names or known
        table = tables.open_table(
            f'{data_dir}/{task.config}:{task.tfds_splits[split]}'
        )
        # TFDS has GLUE's numbers, which restore the order.
        place = table.names.index('idx')
        lines = sorted(table.rows, key=lambda line: int(line[1][place] or 0))
        table = table._replace(rows=iter(lines))
    else:
        table = _open_file(task, pathlib.Path(data_dir), split)
    text, pair, named = columns
    label = None if split.startswith('test') else named
    examples = labelling.examples_of(
        table, labelling.TableColumns(text, pair, label, task.regress)
    )
    if examples.labels is None:
        return examples
    labels = [task.labels[i] for i in labelling.known_labels(examples, known)]
    return examples._replace(labels=labels)


def _open_file(
    task: GlueTask, data_dir: pathlib.Path, split: str
) -> tables.Table:
    """Opens the file of a split, and counts broken lines."""
    folder = data_dir.expanduser() / task.folder
    for name in task.files[split]:
        if (folder / name).is_file():
            break
    else:
        raise FileNotFoundError(
            f'{folder / task.files[split][0]}: there is no such file; '
            '--data_dir is the folder that holds CoLA/, RTE/ and so on in '
            "GLUE's format, or tfds:glue"
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


def write_predictions(
    path: pathlib.Path, name: str, predictions: np.ndarray
) -> None:
    """Writes [n] predictions for a test file in GLUE's format, atomically.

    After a header each line has the number of an example from 0, and the label
    as GLUE writes it; of STS-B the score, within 0 and 5, to three decimals.

    Raises:
        ValueError: a score is not finite.
    """
    task = TASKS[name]
    if task.regress:
        if not np.isfinite(predictions).all():
            raise errors.InputError(
                'glue_score_not_finite', f'{path}: a score is no finite number'
            )
        clipped = np.clip(predictions, _LOWEST, _HIGHEST)
        cells = [f'{score:.3f}' for score in clipped]
    else:
        cells = [task.labels[number] for number in predictions]
    lines = ['index\tprediction']
    lines += [f'{index}\t{cell}' for index, cell in enumerate(cells)]
    with files.written(path) as partial:
        partial.write_text('\n'.join(lines) + '\n', encoding='utf-8')
