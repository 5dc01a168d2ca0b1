r"""Labels of words: named entities, parts of speech.

    python -m tasks.tag --init=runs/minilm --train=train.conll \
        --dev=dev.conll --test=test.conll --workdir=runs/names

Trains the row `tag`. Files are CoNLL columns (--word_column, --column), or
tables (.jsonl, .parquet, .arrow, tfds:NAME) whose columns --words and --labels
hold lists. Labels of spans are read in IOB1, IOB2, BIOES or BMES and learned in
--scheme; then the weights with the best F1 on --dev are saved, as conlleval
counts it, else those with the best accuracy. Texts that are too long for the
model are read in windows (--tag.context). All flags of `infoword_tf.train`
apply: --tag.crf, --tag.bilstm and --tag.mix make ELMo's tagger.

With these weights --test scores another file, span by span, and --predict
labels the words of a file, which needs no labels, in WORKDIR/predictions.conll:
a word and the predicted label a line.
Both also work on a finished run: the same command with them does not train
again.

The last line of the output is one JSON object, also in WORKDIR/metrics.json.
`infoword_tf.load(WORKDIR).tag(texts)` labels texts.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from infoword_tf import commands, errors, files
from infoword_tf.choices import flag
from infoword_tf.text import tags
from infoword_tf.training.checks import refuse_unknown_rows
from tasks import finetune, labels, tag_data, tag_scores

if TYPE_CHECKING:
    from infoword_tf.inference.loaded import Loaded
    from tasks.tag_windows import TaggedWindows

NAME = 'tag'
PREDICTIONS = 'predictions.conll'


@dataclasses.dataclass(frozen=True)
class TaggedChoices:
    """Choices of files of labelled words."""

    train: str | None = flag(None, 'A file of labelled words to train on.')
    dev: str | None = flag(
        None, 'Another, on which the weights are selected.')
    word_column: int = flag(
        0, 'Column of the words in CoNLL files, from 0; -1 is the last.')
    column: int = flag(-1, 'Column of the labels, likewise.')
    words: str = flag('tokens', 'Column of the lists of words in tables.')
    labels: str = flag('tags', 'Column of the lists of labels.')
    names: tuple[str, ...] = flag(
        (), 'Names of labels, where files have their numbers from 0.')
    scheme: str = flag(
        tags.IOB2, 'How labels of spans are learned; files may have any.',
        choices=(tags.IOB2, tags.BIOES))


@dataclasses.dataclass(frozen=True)
class TagChoices(TaggedChoices, finetune.FinetuneChoices):
    """Choices of the command."""

    USUAL: ClassVar[tuple[str, ...]] = (
        'train', 'dev', 'column', 'test', 'predict',
        *finetune.FinetuneChoices.USUAL,
    )  # fmt: skip

    test: str | None = flag(
        None, 'A file of labelled words on which the selected weights are '
        'scored.')
    predict: str | None = flag(
        None, 'A file whose words are labelled with the selected weights: '
        f'WORKDIR/{PREDICTIONS}.')


class OtherFiles(NamedTuple):
    """Files besides --train and --dev.

    Attributes:
        test, predict: of these flags, or None.
    """

    test: tag_data.Tagged | None
    predict: tag_data.Tagged | None


class Tagging(finetune.Task):
    """A task of the row `tag`; `labels` are of words."""

    @property
    def row(self) -> str:
        """Name of the row that learns the task."""
        return NAME


def columns_of(choices: TaggedChoices) -> tag_data.TagColumns:
    """Returns where files have words and labels."""
    return tag_data.TagColumns(
        choices.word_column, choices.column, choices.words, choices.labels,
        choices.names,
    )  # fmt: skip


def read(path: str, choices: TaggedChoices) -> tag_data.Tagged:
    """Reads a file of labelled words, spans in the scheme of the choices.

    Raises:
        FileNotFoundError, ValueError: with file and line.
    """
    return tag_data.read(path, columns_of(choices)).spelled(choices.scheme)


def splits_of(choices: TaggedChoices) -> dict[str, tag_data.Tagged]:
    """Reads training and dev texts.

    Raises:
        UsageError: --train or --dev is missing.
        FileNotFoundError, ValueError: as `read`.
    """
    commands.require(
        vars(choices),
        train='a file of labelled words to train on',
        dev='a file to choose the weights by',
    )
    splits = {
        'train': read(choices.train, choices),
        'heldout': read(choices.dev, choices),
    }
    marked = {
        split: tags.marks_spans([x for text in tagged.tags for x in text])
        for split, tagged in splits.items()
    }
    if marked['train'] != marked['heldout']:
        spans, others = ('train', 'heldout')[:: 1 if marked['train'] else -1]
        raise errors.InputError(
            'tags_of_two_kinds',
            f'{splits[spans].where} has labels of spans (B-, I-), and '
            f'{splits[others].where} has others; is --column right?',
        )
    return splits


def task_of(tagged: tag_data.Tagged) -> Tagging:
    """Derives the task from the training texts.

    Raises:
        ValueError: there is a single label.
    """
    labels = tag_data.labels_of(tagged)
    if len(labels) < 2:
        raise errors.InputError(
            'single_tag',
            f'{tagged.where}: all words have the label {labels[0]!r}, of which '
            'nothing can be learned; is --column right?',
        )
    metrics = tag_scores.truth_of(tagged.tags, labels).metrics
    return Tagging(NAME, metrics, labels)


def measure_of(
    features: 'TaggedWindows', truth: tag_scores.Truth
) -> Callable[..., dict[str, float]]:
    """Returns a function that scores all held-out words."""

    def measure(predictions: dict[str, np.ndarray], view: Any) -> dict:
        from infoword_tf.views.examples import by_token

        labels = by_token(predictions['labels'], view)
        read = labels[np.maximum(features.words, 0)]
        read = np.where(features.words < 0, truth.silent, read)
        read = tags.with_ends(read, truth.first, truth.labels)
        return tag_scores.scores(truth, read)

    return measure


def prepare(
    task: Tagging,
    splits: Mapping[str, tag_data.Tagged],
    choices: finetune.FinetuneChoices,
    started: 'Loaded | None' = None,
) -> finetune.PreparedTask:
    """Prepares runs on windows over the texts; as `finetune.prepare`."""
    choices = finetune.with_objectives(
        task, choices, classes=len(task.labels)
    )
    splits = {split: splits[split] for split in ('train', 'heldout')}
    splits['train'] = splits['train'].subset(choices.examples)
    say_labels(splits['train'])

    def read(
        loaded: 'Loaded', settings: Mapping[str, Any]
    ) -> dict[str, finetune.TaskSplit]:
        from tasks import tag_windows

        windows = {}
        for split, tagged in splits.items():
            features = tag_windows.features(
                tagged, task.labels, loaded.template, choices.seq_len,
                settings['context'], settings['tokens'],
            )  # fmt: skip
            print('\n'.join(features.notes), flush=True)
            truth = tag_scores.truth_of(tagged.tags, task.labels)
            windows[split] = finetune.TaskSplit(
                features.examples,
                [features.examples.of_tokens[task.row]],
                tagged.where,
                len(tagged.words),
                ([' '.join(text) for text in tagged.words], None),
                measure_of(features, truth),
                lambda truth=truth: truth.commonest,
            )
        return windows

    return finetune.prepare_task(
        task, choices, read, started, pairs=False, labels=task.labels
    )


def say_labels(tagged: tag_data.Tagged) -> None:
    """Prints the labels of training texts, by frequency, and doubts."""
    truth = tag_scores.truth_of(tagged.tags, ())
    counts = truth.frequencies
    what = 'spans' if truth.metrics == tag_scores.SPANS else 'words'
    what = f'{sum(counts.values()):,} {what}'
    print(labels.line(tagged.where, counts, what), flush=True)
    for doubt in labels.doubts_of_words(tagged.where, counts):
        print(doubt, flush=True)


def labelled(
    loaded: 'Loaded', tagged: tag_data.Tagged, labels: Sequence[str]
) -> tuple[tag_scores.Truth, np.ndarray]:
    """Labels the words of texts whose labels are known.

    Returns:
        The true labels, and predicted numbers [W].
    """
    truth = tag_scores.truth_of(tagged.tags, labels)
    numbers = {label: number for number, label in enumerate(truth.labels)}
    predicted = loaded.tag_words(tagged.words)
    return truth, np.array(
        [numbers[label] for text in predicted for label in text], np.int64
    )


def others_of(choices: TagChoices) -> OtherFiles:
    """Reads the files of --test and --predict.

    Raises:
        FileNotFoundError, ValueError: as `read`.
    """
    test = predict = None
    if choices.test:
        test = read(choices.test, choices)
    if choices.predict:
        columns = columns_of(choices)
        predict = tag_data.read(choices.predict, columns, labelled=False)
    return OtherFiles(test, predict)


def tested(
    folder: pathlib.Path, task: Tagging, others: OtherFiles
) -> dict[str, Any]:
    """Scores --test and labels --predict with the weights of a run.

    Returns:
        Scores by 'test_' and metric; predictions are written to the folder.
    """
    if others == (None, None):
        return {}
    import infoword_tf

    loaded, results = infoword_tf.load(folder), {}
    if others.test is not None:
        truth, predicted = labelled(loaded, others.test, task.labels)
        if truth.metrics == tag_scores.SPANS:
            print(f'{others.test.where}, percent:', flush=True)
            print(tag_scores.table(truth, predicted), flush=True)
        results = {
            f'test_{name}': round(value, 6)
            for name, value in tag_scores.scores(truth, predicted).items()
        }
    if others.predict is not None:
        tagged, path = others.predict, folder / PREDICTIONS
        write_predictions(path, tagged, loaded.tag_words(tagged.words))
        print(
            f'{path}: {len(tagged.words):,} texts of {tagged.where}',
            flush=True,
        )
    return results


def write_predictions(
    path: pathlib.Path,
    tagged: tag_data.Tagged,
    predicted: Sequence[Sequence[str]],
) -> None:
    """Writes words and predicted labels in columns, atomically."""
    texts = (
        ''.join(
            f'{" ".join(word.split())}\t{label}\n'
            for word, label in zip(words, labels, strict=True)
        )
        for words, labels in zip(tagged.words, predicted, strict=True)
    )
    with files.written(path) as partial:
        partial.write_text('\n'.join(texts), encoding='utf-8')


@commands.takes(TagChoices, check=refuse_unknown_rows)
def run(choices: TagChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Fine-tunes on labelled words, and scores and labels other files."""
    commands.require(vars(choices), workdir='a folder for this run')
    finetune.check_inits(choices.init)
    splits = splits_of(choices)
    task = task_of(splits['train'])
    others = others_of(choices)
    prepared = prepare(task, splits, choices)
    workdir, values = finetune.train_all(
        task, prepared, chosen, lambda folder: tested(folder, task, others)
    )
    out = pathlib.Path(choices.workdir)
    if others.predict is not None:
        finetune.copy_best(workdir, out, PREDICTIONS)
    return finetune.finish(out, values)


if __name__ == '__main__':
    commands.start(run)
