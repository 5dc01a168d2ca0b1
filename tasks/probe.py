r"""Transfer tasks: accuracy of a linear classifier of frozen vectors.

    python -m tasks.probe --init=runs/minilm --train=MR \
        --workdir=runs/minilm/mr
    python -m tasks.probe --init=runs/minilm --train=mails.csv \
        --dev=mails_dev.csv --text=body --label=folder \
        --workdir=runs/minilm/mails

The tasks of SentEval (Conneau & Kiela 2018): texts are encoded once, and a
logistic regression learns the labels. The strength of its L2 penalty is chosen
by 5-fold cross-validation on the training texts. It is scored on --dev, or
without --dev by nested 10-fold cross-validation over all texts, where each fold
chooses its own penalty. Folds are stratified, and always the same. (SentEval
chooses and scores by the same number of folds, and stops Adam early.)

Unlike SentEval's, vectors are standardised: each number has mean 0 and standard
deviation 1 over the training texts, so that the same penalties suit all
vectors.

Tables are .tsv, .csv, .jsonl (also as .gz or .zst) or .parquet files, or
tfds:NAME[/CONFIG][:SPLIT]. A folder is in SentEval's format: NAME.pos and
NAME.neg with a sentence a line (MR, CR, MPQA), or train_5500.label and
TREC_10.label (TREC) with labels LABEL:fine, of which LABEL is learned. With
`--model` the vectors are those of an export.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import commands, errors
from infoword_tf.choices import again, flag
from infoword_tf.data import labelling, tables
from infoword_tf.data.labelling import ColumnChoices, TableExamples
from infoword_tf.evaluation import measures, models

from . import retrieval
from .whiten import LayerChoices

OUTER, INNER = 10, 5  # folds that score without --dev, and that choose C
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # C, the inverse of the penalty
_SEED = 0
_ITERATIONS = 1000
_KINDS = ('.neg', '.pos')
_TRAIN, _TEST = 'train_5500.label', 'TREC_10.label'

# Numbers of the texts that train, and of those that are scored.
Split = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class ProbeChoices(retrieval.VectorChoices):
    """Choices of the command."""

    train: str = flag(
        '', 'A table to train on, or a folder in the layout of MR or TREC.')
    dev: str | None = flag(
        None, 'A table to score; by default --train is cross-validated.')
    delimiter: str | None = again(ColumnChoices, 'delimiter', None)
    text: str = again(ColumnChoices, 'text', 'text')
    label: str = flag('label', 'Column of the label.')
    pooling: str | None = again(LayerChoices, 'pooling', None, choices=())


class Probed(NamedTuple):
    """Predictions for all scored texts.

    Attributes:
        predictions: numbers of classes, in the order of the splits.
        texts: number of the text of each.
        strengths: C of each split.
    """

    predictions: np.ndarray
    texts: np.ndarray
    strengths: list[float]


# ---------------------------------------------------------------------- reading


def read(choices: ProbeChoices) -> tuple[TableExamples, TableExamples | None]:
    """Reads training texts, and texts to score; None without a test split.

    Raises:
        FileNotFoundError, ValueError: a file is missing or malformed.
        UsageError: --dev with a folder.
    """
    path = pathlib.Path(choices.train).expanduser()
    if path.is_dir():
        if choices.dev:
            raise errors.UsageError(
                'dev_with_folder',
                f'--train={choices.train} is a folder with its own test split; '
                'leave out --dev',
            )
        return _read_folder(path)
    if not choices.train.startswith('tfds:') and not path.exists():
        raise FileNotFoundError(
            f'--train={choices.train}: there is no such file or folder'
        )

    def table(name: str) -> TableExamples:
        opened = tables.open_table(name, delimiter=choices.delimiter)
        examples = labelling.examples_of(
            opened, labelling.TableColumns(choices.text, label=choices.label)
        )
        for note in examples.notes:
            print(note, flush=True)
        return examples

    return table(choices.train), table(choices.dev) if choices.dev else None


def _read_folder(
    folder: pathlib.Path,
) -> tuple[TableExamples, TableExamples | None]:
    """Reads a folder in SentEval's format; see `read`."""
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
    examples = [
        (line, path.suffix[1:], text)
        for path in kinds
        for line, text in _lines(path)
    ]
    return _examples(folder, examples), None


def _read_questions(path: pathlib.Path) -> TableExamples:
    """Reads a file of TREC, `LABEL:fine question` a line."""
    examples = []
    for number, line in _lines(path):
        label, _, rest = line.partition(':')
        _, _, question = rest.partition(' ')
        if not label or not question.strip():
            raise errors.InputError(
                'question_without_label',
                f'{path}, line {number}: no LABEL:fine and a question in '
                f'{line[:60]!r}',
            )
        examples.append((number, label, question.strip()))
    return _examples(path, examples)


def _lines(path: pathlib.Path) -> list[tuple[int, str]]:
    """Numbers lines, and leaves blank lines out."""
    content = path.read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode('latin-1')  # as published
    # `splitlines` would split at bytes that Latin-1 has inside lines.
    numbered = enumerate(map(str.strip, text.split('\n')), 1)
    return [(number, line) for number, line in numbered if line]


def _examples(
    path: pathlib.Path, examples: list[tuple[int, str, str]]
) -> TableExamples:
    """Converts (line, label, text) to a table's examples."""
    if not examples:
        raise errors.InputError('probe_no_texts', f'{path} has no texts')
    lines, labels, texts = zip(*examples, strict=True)
    return TableExamples(
        first=list(texts),
        second=None,
        labels=list(labels),
        scores=None,
        where=str(path),
        lines=np.array(lines),
    )


def _check_folds(table: TableExamples, folds: int) -> None:
    """Raises ValueError if a class has fewer texts than folds."""
    labels = np.array(table.labels)
    names, counts = np.unique(labels, return_counts=True)
    least = counts.argmin()
    if counts[least] < folds:
        raise errors.InputError(
            'fewer_than_folds',
            f'{table.where}: {counts[least]} of {len(labels):,} rows are '
            f'labelled {str(names[least])!r}; {folds}-fold cross-validation '
            f'needs {folds} of each label',
        )


# ---------------------------------------------------------------------- probing


def probe(
    vectors: np.ndarray, targets: np.ndarray, splits: Iterable[Split]
) -> Probed:
    """Learns classes of [n, D] vectors in a split, and predicts the others."""
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    predictions, texts, strengths = [], [], []
    for train, scored in splits:
        regression = LogisticRegressionCV(
            Cs=STRENGTHS, cv=_folds(INNER), l1_ratios=(0.0,),
            scoring='accuracy', max_iter=_ITERATIONS,
            use_legacy_attributes=False,
        )  # fmt: skip
        model = make_pipeline(StandardScaler(), regression)
        # Steps of L-BFGS are too short to gain from threads.
        with threadpool_limits(1, 'blas'):
            model.fit(np.asarray(vectors[train], np.float64), targets[train])
        predicted = model.predict(np.asarray(vectors[scored], np.float64))
        predictions.append(predicted)
        texts.append(scored)
        strengths.append(float(regression.C_))
        right = 100 * measures.accuracy(predicted, targets[scored])
        print(
            f'{right:.2f} % of {len(scored):,} texts (C {strengths[-1]:g})',
            flush=True,
        )
    return Probed(
        np.concatenate(predictions), np.concatenate(texts), strengths
    )


def splits_of(targets: np.ndarray, train_count: int) -> list[Split]:
    """Splits [n] texts, of which the first `train_count` may train."""
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
    """Returns accuracies x 100, for JSON; arguments as in `splits_of`.

    The standard error is that of a share of n texts, sqrt(p (1 - p) / n);
    `majority` is the accuracy of the commonest class of the training texts.
    """
    true = targets[probed.texts]
    share = measures.accuracy(probed.predictions, true)
    counts = np.bincount(targets[:train_count])
    commonest = np.full_like(true, counts.argmax())
    error = np.sqrt(share * (1 - share) / len(true))
    return {
        'accuracy': round(100 * share, 2),
        'standard_error': round(100 * float(error), 2),
        'majority': round(100 * measures.accuracy(commonest, true), 2),
        'n': len(true),
        'train_n': train_count,
        'folds': len(probed.strengths) if train_count == len(targets) else 0,
        'C': probed.strengths,
    }


@commands.takes(ProbeChoices)
def run(choices: ProbeChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Scores a classifier of frozen vectors; returns metrics.json.

    Raises:
        UsageError: choices that contradict each other, or scikit-learn is not
            installed.
        FileNotFoundError, ValueError: the data or the model cannot be read.
    """
    workdir = retrieval.check_source(
        choices,
        'pooling',
        train='a table, or a folder in the layout of MR or TREC',
    )
    train, dev = read(choices)
    classes = labelling.classes(train)
    _check_folds(train, INNER if dev else OUTER)
    splits = [train, dev] if dev else [train]
    targets = np.concatenate(
        [labelling.known_labels(split, classes) for split in splits]
    )
    texts = [text for split in splits for text in split.first]
    count = len(train.first)
    # Complains before texts are encoded.
    commands.import_extra('sklearn', 'tasks', 'tasks.probe')
    encode, _ = models.vectors_of(
        choices.init, choices.model, choices.dims, choices.pooling
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
        'train': choices.train,
        'dev': choices.dev,
        'weights': choices.model or choices.init,
        'pooling': choices.pooling,
        'dims': choices.dims,
        **scores,
        'classes': classes,
    }
    commands.record(workdir, record)
    return record


if __name__ == '__main__':
    commands.start(run)
