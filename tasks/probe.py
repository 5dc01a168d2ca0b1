r"""Transfer tasks: what a linear classifier reads off frozen vectors.

    python -m tasks.probe --init=runs/minilm --train=MR \
        --workdir=runs/minilm/mr
    python -m tasks.probe --init=runs/minilm --train=mails.csv \
        --dev=mails_dev.csv --text=body --label=folder \
        --workdir=runs/minilm/mails

The tasks of SentEval (Conneau & Kiela 2018): texts are encoded once,
and a logistic regression learns their labels. How strong its L2 penalty is
5-fold cross-validation on the training texts decides. It is scored on --dev; of
data without such a split by 10-fold cross-validation, where each fold chooses
anew (nested), over all texts. Folds are stratified, and always the same.
(SentEval chooses by as many folds as it scores by, and stops Adam early.)

Unlike SentEval's, vectors are standardised: each of their numbers has mean 0
and standard deviation 1 over the training texts. So the same penalties suit
vectors of any length, and none counts more because it is large.

Tables are .tsv, .csv, .jsonl (also as .gz or .zst) or .parquet files, or
tfds:NAME[/CONFIG][:SPLIT].
A folder is laid out as SentEval's are: NAME.pos and NAME.neg with a sentence a
line (MR, CR, MPQA), or train_5500.label and TREC_10.label (TREC), of whose
labels LABEL:fine the first part counts. With `--model` the vectors are those of
an export.

Glossary of shapes: n texts, D width.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import commands, errors
from infoword_tf.choices import TextChoices, again, flag
from infoword_tf.data import tables
from infoword_tf.data.tables import TableExamples
from tasks import measures, retrieval

OUTER, INNER = 10, 5  # folds: of data without a test, and that choose C
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # C, the inverse of the penalty
_SEED = 0
_ITERATIONS = 1000
_KINDS = ('.neg', '.pos')
_TRAIN, _TEST = 'train_5500.label', 'TREC_10.label'

Split = tuple[np.ndarray, np.ndarray]  # rows that train, rows that are scored


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    init: str | None = flag(
        None, 'The workdir of a finished run, or a converted one.', model=True)
    model: str | None = flag(None, 'An export instead, DIR/1.')
    dims: int | None = flag(
        None, 'The first so many numbers of a vector alone.', at_least=1)
    train: str | None = flag(
        None, 'A table to train on, or a folder in the layout of MR or TREC.')
    dev: str | None = flag(
        None, 'A table to score; by default --train is cross-validated.')
    delimiter: str | None = again(
        TextChoices, 'pair_delimiter', None, help='What parts the cells of '
        '.csv files; by default as their first lines say.')
    text: str = flag('text', 'Column of the text.')
    label: str = flag('label', 'Column of the label.')
    pooling: str | None = flag(
        None, 'Pooling of the vectors; by default that of --init.')
    workdir: str | None = flag(None, 'Where metrics.json goes.')


class Probed(NamedTuple):
    """What was predicted of the rows that are scored.

    Attributes:
        predictions: numbers of classes, in the order of the splits.
        rows: which rows they are of.
        strengths: C of each split.
    """

    predictions: np.ndarray
    rows: np.ndarray
    strengths: list[float]


# ---------------------------------------------------------------------- reading


def read(given: Choices) -> tuple[TableExamples, TableExamples | None]:
    """What trains, and what is scored; None: there is no such split.

    Raises:
        FileNotFoundError, ValueError: as the message says, with file and line.
        UsageError: --dev beside a folder.
    """
    path = pathlib.Path(given.train).expanduser()
    if path.is_dir():
        if given.dev:
            raise errors.UsageError(
                f'--train={given.train} is a folder, which says itself what is '
                'scored; leave out --dev'
            )
        return _read_folder(path)
    if not given.train.startswith('tfds:') and not path.exists():
        raise FileNotFoundError(
            f'--train={given.train}: there is no such file or folder'
        )

    def table(name: str) -> TableExamples:
        found = tables.open_table(name, delimiter=given.delimiter)
        return tables.examples_of(found, given.text, label=given.label)

    return table(given.train), table(given.dev) if given.dev else None


def _read_folder(
    folder: pathlib.Path,
) -> tuple[TableExamples, TableExamples | None]:
    """SentEval's layouts; see `read`."""
    train, test = folder / _TRAIN, folder / _TEST
    if train.is_file() and test.is_file():
        return _read_questions(train), _read_questions(test)
    kinds = sorted(
        (path for path in folder.iterdir() if path.suffix in _KINDS),
        key=lambda path: path.suffix,
    )
    if tuple(path.suffix for path in kinds) != _KINDS:
        raise FileNotFoundError(
            f'--train={folder} is a folder without NAME.pos and NAME.neg (one '
            f'of each), and without {_TRAIN} and {_TEST}; name one that has '
            'them, or a table'
        )
    found = [
        (line, path.suffix[1:], text)
        for path in kinds
        for line, text in _lines(path)
    ]
    return _examples(folder, found), None


def _read_questions(path: pathlib.Path) -> TableExamples:
    """A file of TREC, `LABEL:fine question` a line."""
    found = []
    for number, line in _lines(path):
        label, _, rest = line.partition(':')
        _, _, question = rest.partition(' ')
        if not label or not question.strip():
            raise ValueError(
                f'{path}, line {number}: no LABEL:fine and a question in '
                f'{line[:60]!r}'
            )
        found.append((number, label, question.strip()))
    return _examples(path, found)


def _lines(path: pathlib.Path) -> list[tuple[int, str]]:
    """Lines with their numbers, without those that are blank.

    Latin-1, as the files were published, unless they are UTF-8. Latin-1 has
    bytes at which `splitlines` would part.
    """
    content = path.read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode('latin-1')
    numbered = enumerate(map(str.strip, text.split('\n')), 1)
    return [(number, line) for number, line in numbered if line]


def _examples(
    path: pathlib.Path, found: list[tuple[int, str, str]]
) -> TableExamples:
    """Of (line, label, text)."""
    if not found:
        raise ValueError(f'{path} has no texts')
    lines, labels, texts = zip(*found, strict=True)
    return TableExamples(
        list(texts), None, list(labels), None, str(path), np.array(lines)
    )


def _check_folds(rows: TableExamples, folds: int) -> None:
    """Complains of a class that not every fold can hold."""
    names, counts = np.unique(rows.labels, return_counts=True)
    least = counts.argmin()
    if counts[least] < folds:
        raise ValueError(
            f'{rows.where}: {counts[least]} of {len(rows.labels):,} rows are '
            f'labelled {str(names[least])!r}; {folds}-fold cross-validation '
            f'needs {folds} of each label'
        )


# ---------------------------------------------------------------------- probing


def probe(
    vectors: np.ndarray, targets: np.ndarray, splits: Iterable[Split]
) -> Probed:
    """Learns from a part of the vectors what the others are; for each split.

    Args:
        vectors: [n, D].
        targets: [n] numbers of classes.
        splits: as `Split`.
    """
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    predictions, rows, strengths = [], [], []
    for train, scored in splits:
        regression = LogisticRegressionCV(
            Cs=STRENGTHS, cv=_folds(INNER), l1_ratios=(0.0,),
            scoring='accuracy', max_iter=_ITERATIONS,
            use_legacy_attributes=False,
        )  # fmt: skip
        model = make_pipeline(StandardScaler(), regression)
        # Threads take longer to meet than steps of L-BFGS to compute.
        with threadpool_limits(1, 'blas'):
            model.fit(np.asarray(vectors[train], np.float64), targets[train])
        found = model.predict(np.asarray(vectors[scored], np.float64))
        predictions.append(found)
        rows.append(scored)
        strengths.append(float(regression.C_))
        right = 100 * measures.accuracy(found, targets[scored])
        print(
            f'{right:.2f} % of {len(scored):,} texts (C {strengths[-1]:g})',
            flush=True,
        )
    return Probed(np.concatenate(predictions), np.concatenate(rows), strengths)


def splits_of(targets: np.ndarray, train_count: int) -> list[Split]:
    """How [n] rows are parted, of which the first `train_count` may train."""
    count = len(targets)
    if train_count < count:
        return [(np.arange(train_count), np.arange(train_count, count))]
    return list(_folds(OUTER).split(np.zeros(count), targets))


def _folds(count: int) -> Any:
    from sklearn.model_selection import StratifiedKFold

    return StratifiedKFold(count, shuffle=True, random_state=_SEED)


def measure(
    probed: Probed, targets: np.ndarray, train_count: int
) -> dict[str, Any]:
    """Accuracies x 100 for JSON; arguments as of `splits_of`.

    The standard error is that of a share of n texts, sqrt(p (1 - p) / n);
    `majority` is what the commonest class of the training texts would reach.
    """
    wanted = targets[probed.rows]
    share = measures.accuracy(probed.predictions, wanted)
    commonest = np.bincount(targets[:train_count]).argmax()
    error = np.sqrt(share * (1 - share) / len(wanted))
    return {
        'accuracy': round(100 * share, 2),
        'standard_error': round(100 * float(error), 2),
        'majority': round(100 * measures.accuracy(commonest, wanted), 2),
        'n': len(wanted),
        'train_n': train_count,
        'folds': len(probed.strengths) if train_count == len(targets) else 0,
        'C': probed.strengths,
    }


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command.

    Raises:
        UsageError: neither or both of --init and --model, --pooling of an
            export, --dev beside a folder, or scikit-learn is not installed.
        FileNotFoundError, ValueError: of the data, as the message says.
    """
    commands.require(
        vars(given),
        train='a table, or a folder in the layout of MR or TREC',
        workdir='a folder for metrics.json',
    )
    retrieval.check_source(given.init, given.model, pooling=given.pooling)
    workdir = commands.result_folder(given.workdir)
    train, dev = read(given)
    classes = tables.classes(train)
    _check_folds(train, INNER if dev else OUTER)
    parts = [train, dev] if dev else [train]
    targets = np.concatenate([tables.known_labels(p, classes) for p in parts])
    texts = [text for part in parts for text in part.first]
    count = len(train.first)
    # What it lacks is said before anything takes long.
    commands.import_extra('sklearn', 'tasks', 'tasks.probe')
    encode, _ = retrieval.vectors_of(
        given.init, given.model, given.dims, given.pooling
    )
    probed = probe(encode(texts, None), targets, splits_of(targets, count))
    scores = measure(probed, targets, count)
    print(
        f'accuracy {scores["accuracy"]:.2f} +- {scores["standard_error"]:.2f} '
        f'of {scores["n"]:,} texts, {len(classes)} classes (majority '
        f'{scores["majority"]:.2f})'
    )
    record = {
        'task': 'probe',
        'train': given.train,
        'dev': given.dev,
        'weights': given.model or given.init,
        'pooling': given.pooling,
        'dims': given.dims,
        **scores,
        'classes': classes,
    }
    commands.record(workdir, record)
    return record


if __name__ == '__main__':
    commands.start(run)
