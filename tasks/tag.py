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
import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from infoword_tf import commands, errors, files
from infoword_tf.choices import flag
from infoword_tf.text import tags
from infoword_tf.training.begin import refuse_unknown_rows

from . import finetune, labels, tag_data, tag_scores
from .task import HELDOUT, SPLITS, TRAIN, Task, TaskSplit

if TYPE_CHECKING:
    from infoword_tf.data.examples import Examples
    from infoword_tf.inference.loaded import Loaded

    from .tag_windows import TaggedWindows

NAME = 'tag'
PREDICTIONS = 'predictions.conll'


@dataclasses.dataclass(frozen=True)
class TaggedChoices:
    """Choices of files of labelled words."""

    train: str = flag('', 'A file of labelled words to train on.')
    dev: str = flag(
        '', 'Another, on which the weights are selected.')
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


def columns_of(choices: TaggedChoices) -> tag_data.TagColumns:
    """Returns where files have words and labels."""
    return tag_data.TagColumns(
        word=choices.word_column,
        label=choices.column,
        words=choices.words,
        labels=choices.labels,
        names=choices.names,
    )


def read(path: str, choices: TaggedChoices) -> tag_data.Tagged:
    """Reads a file of labelled words, spans in the scheme of the choices.

    Raises:
        FileNotFoundError, ValueError: with file and line.
    """
    return tag_data.read(path, columns_of(choices)).spelled(choices.scheme)


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


@dataclasses.dataclass(frozen=True)
class Tagging(Task):
    """Labels of words; `splits` are `Tagged` texts.

    Attributes:
        tests: texts of --test, or None.
        extra: texts without labels, which a teacher labels; None: none.
    """

    choices = TaggedChoices
    row = NAME
    shared = ('tokens',)
    takes_texts = True
    pairs = False
    alone = tuple(
        x.name
        for x in dataclasses.fields(TaggedChoices)
        if x.name not in ('train', 'dev')
    )
    about = f'labels of words (--task={NAME})'
    output = PREDICTIONS

    tests: tag_data.Tagged | None = None
    extra: tag_data.Tagged | None = None

    @classmethod
    def of(cls, train: tag_data.Tagged, heldout: tag_data.Tagged) -> Self:
        """Derives labels and metrics from training texts.

        Raises:
            ValueError: there is a single label.
        """
        labels = tag_data.labels_of(train)
        if len(labels) < 2:
            raise errors.InputError(
                'single_tag',
                f'{train.where}: all words have the label {labels[0]!r}, of '
                'which nothing can be learned; is --column right?',
            )
        metrics = tag_scores.truth_of(train.tags, labels).metrics
        splits = {TRAIN: train, HELDOUT: heldout}
        return cls(NAME, metrics, labels, splits=splits)

    @classmethod
    def read(cls, choices: TaggedChoices, model: str | None = None) -> Self:
        """Reads training and dev texts; errors as of `Task.read`."""
        commands.require(
            vars(choices),
            train='a file of labelled words to train on',
            dev='a file to choose the weights by',
        )
        both = [read(x, choices) for x in (choices.train, choices.dev)]
        flat = ([*itertools.chain(*tagged.tags)] for tagged in both)
        marked = [*map(tags.marks_spans, flat)]
        if marked[0] != marked[1]:
            spans, others = both[:: 1 if marked[0] else -1]
            raise errors.InputError(
                'tags_of_two_kinds',
                f'{spans.where} has labels of spans (B-, I-), and '
                f'{others.where} has others; is --column right?',
            )
        return cls.of(*both)

    def with_others(self, choices: TagChoices) -> Self:
        """Reads the files of --test and --predict; errors as of `read`."""
        tests = unknown = None
        if choices.test:
            tests = read(choices.test, choices)
        if choices.predict:
            columns = columns_of(choices)
            unknown = tag_data.read(choices.predict, columns, labelled=False)
        return dataclasses.replace(self, tests=tests, unknown=unknown)

    def with_texts(self, choices: Any) -> Self:
        """Reads the texts of --extra, in the columns of --train."""
        columns = columns_of(choices)
        extra = tag_data.read(choices.extra, columns, labelled=False)
        return dataclasses.replace(self, extra=extra)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the row that the examples decide."""
        return {'classes': len(self.labels)}

    def decide(self, choices: Any) -> dict[str, Any]:
        """Returns `settings`, and prints the labels."""
        say_labels(self.splits[TRAIN])
        return self.settings

    def examples(
        self, loaded: 'Loaded', settings: Mapping[str, Any], length: int
    ) -> dict[str, TaskSplit]:
        """Formats windows over the texts as inputs of a model."""
        from . import tag_windows

        windows = {}
        for split in SPLITS:
            tagged = self.splits[split]
            truth = tag_scores.truth_of(tagged.tags, self.labels)
            if split == TRAIN and self.extra is not None:
                tagged = tagged.joined(self.extra)
            features = tag_windows.features(
                tagged,
                self.labels,
                template=loaded.template,
                max_length=length,
                context=settings['context'],
                tokens=settings['tokens'],
            )
            print('\n'.join(features.notes), flush=True)
            windows[split] = TaskSplit(
                examples=features.examples,
                labels=[features.examples.of_tokens[NAME]],
                where=tagged.where,
                size=len(tagged.words),
                texts=([' '.join(text) for text in tagged.words], None),
                measure=measure_of(features, truth),
                commonest=truth.commonest,
            )
        return windows

    def test(self, workdir: pathlib.Path) -> dict[str, Any]:
        """Implements `Task.test`."""
        if self.tests is self.unknown is None:
            return {}
        import infoword_tf

        loaded, results = infoword_tf.load(workdir), {}
        if self.tests is not None:
            truth, predicted = labelled(loaded, self.tests, self.labels)
            if truth.metrics == tag_scores.SPANS:
                print(f'{self.tests.where}, percent:', flush=True)
                print(tag_scores.table(truth, predicted), flush=True)
            results = {
                f'test_{name}': round(value, 6)
                for name, value in tag_scores.scores(truth, predicted).items()
            }
        if self.unknown is not None:
            tagged, path = self.unknown, workdir / PREDICTIONS
            write_predictions(path, tagged, loaded.tag_words(tagged.words))
            print(
                f'{path}: {len(tagged.words):,} texts of {tagged.where}',
                flush=True,
            )
        return results

    def hashed(self, examples: 'Examples') -> list[np.ndarray]:
        """Lists where words are, of which a CRF reads all together."""
        from infoword_tf.views.examples import UNKNOWN

        return [examples.of_tokens[NAME] != UNKNOWN]

    def scores(self, head: Any, batch: Any) -> Any:
        """Returns scores of the labels of words, [B, T, C] float16."""
        import tensorflow as tf

        return tf.cast(head.word_scores(batch), tf.float16)

    def judged(self, loaded: 'Loaded', scores: np.ndarray) -> dict[str, float]:
        """Measures the labels of a teacher for held-out words."""
        predicted = labelled(loaded, self.splits[HELDOUT], self.labels)
        return tag_scores.scores(*predicted)


@commands.takes(TagChoices, check=refuse_unknown_rows)
def run(choices: TagChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Fine-tunes on labelled words, and scores and labels other files."""
    return finetune.main(Tagging, choices, chosen)


if __name__ == '__main__':
    commands.start(run)
