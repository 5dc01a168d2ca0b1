"""Tasks of texts, or of pairs of texts: classes, labels or numbers.

Examples are rows of tables (data/tables.py), which `label` or `score` learns.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from infoword_tf import errors
from infoword_tf.data import labelling
from infoword_tf.data.labelling import TableExamples
from infoword_tf.evaluation import measures
from infoword_tf.evaluation.commonest import of_targets

from . import labels
from .finetune import format_examples
from .task import HELDOUT, SPLITS, TRAIN, Task, TaskSplit

if TYPE_CHECKING:
    from infoword_tf.inference.loaded import Loaded


def texts_of(table: TableExamples, texts: str) -> list[tuple[list[str], Any]]:
    """Returns all inputs of examples: (n texts, n second texts or None).

    Raises:
        UsageError: a second text or choices are missing.
    """
    if texts == 'choices':
        if table.choices is None:
            raise errors.UsageError(
                'table_without_choices',
                f'--label.texts=choices: {table.where} has no choices; name '
                'their columns with --choices',
            )
        return [(table.first, choice) for choice in table.choices]
    if texts == 'both_ways':
        if table.second is None:
            raise errors.UsageError(
                'table_without_pair',
                f'both_ways reads two texts: {table.where} has one a row; name '
                'the column of the second with --pair',
            )
        return [(table.first, table.second), (table.second, table.first)]
    return [(table.first, table.second)]


@dataclasses.dataclass(frozen=True)
class TextTask(Task):
    """Classes, labels or numbers of texts, whose `splits` are of tables.

    Attributes:
        extra: texts without labels, which a teacher labels; None: none.
    """

    shared = ('texts',)
    takes_texts = True

    extra: TableExamples | None = None

    @property
    def row(self) -> str:
        """Name of the row that learns the task."""
        return 'label' if self.labels else 'score'

    @property
    def pairs(self) -> bool:
        """True if an example has two texts."""
        table = self.splits[TRAIN]
        return table.second is not None or table.choices is not None

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the row that the examples decide."""
        if not self.labels:
            return {}
        known: dict[str, Any] = {
            'classes': len(self.labels),
            'multilabel': self.multilabel,
        }
        if self.splits[TRAIN].choices is not None:
            known['texts'] = 'choices'
        return known

    # ----------------------------------------------------------------- labels

    def targets(self, table: TableExamples) -> np.ndarray:
        """Converts labels of a table to targets.

        Returns:
            [n] int32 numbers of classes, or [n] float32 numbers, or [n, C]
            int32 of 0 and 1 if `multilabel`.

        Raises:
            ValueError: an unknown label, or lists of labels in place of labels
                (or the reverse).
        """
        if not self.labels:
            return np.asarray(table.scores, np.float32)
        if self.multilabel != (table.label_sets is not None):
            one, other = 'one label', 'lists of labels'
            if self.multilabel:
                one, other = other, one
            raise errors.InputError(
                'labels_and_sets',
                f'{table.where} has {other}, and the training table {one}',
            )
        return labelling.known_labels(table, self.labels)

    def counts(self, targets: np.ndarray) -> np.ndarray:
        """Counts classes, [C] int64; if `multilabel` no and yes, [2 C].

        Numbers are not counted: [0].
        """
        if not self.labels:
            return np.zeros(0, np.int64)
        if self.multilabel:
            has = targets.sum(axis=0, dtype=np.int64)
            return np.stack([len(targets) - has, has], axis=1).ravel()
        return np.bincount(targets, minlength=len(self.labels))

    def predictions(self, scores: np.ndarray, least: float = 0.0) -> np.ndarray:
        """Decides on classes or labels by scores.

        Args:
            scores: [n, C] of classes, or numbers [n].
            least: the lowest score of a predicted label if `multilabel`; of
                probabilities `measures.LIKELY`.

        Returns:
            [n] classes, or the numbers; if `multilabel` [n, C] int32, 1 for a
            predicted label.
        """
        if self.multilabel:
            return (scores >= least).astype(np.int32)
        return scores.argmax(axis=1) if self.labels else scores

    def measured(
        self, scores: np.ndarray, true: np.ndarray, least: float = 0.0
    ) -> dict[str, float]:
        """Measures predictions, by metric; args as of `predictions`."""
        predicted = self.predictions(scores, least)
        return {x: measures.MEASURES[x](predicted, true) for x in self.metrics}

    @functools.cached_property
    def _targets(self) -> dict[str, np.ndarray]:
        """Targets of SPLITS."""
        return {split: self.targets(self.splits[split]) for split in SPLITS}

    @functools.cached_property
    def _counts(self) -> dict[str, np.ndarray]:
        """Counts of SPLITS."""
        return {split: self.counts(x) for split, x in self._targets.items()}

    def _yes(self, split: str) -> np.ndarray:
        """Counts the examples of each class or label, [C]."""
        # If `multilabel`, every second count is of a yes.
        return self._counts[split][self.multilabel :: 1 + self.multilabel]

    # ----------------------------------------------------------------- inputs

    def _tables(self) -> dict[str, TableExamples]:
        """Returns the tables of SPLITS, with the texts of --extra."""
        train, heldout = (self.splits[split] for split in SPLITS)
        if self.extra is not None:
            train = labelling.joined(train, self.extra)
        return {TRAIN: train, HELDOUT: heldout}

    def decide(self, choices: Any) -> dict[str, Any]:
        """Returns settings of the row, and prints the labels.

        Raises:
            UsageError: a second text or choices are missing.
            ValueError: an unknown label, or a held-out class does not occur in
                training.
        """
        settings = self.settings
        texts = choices.settings.get(f'{self.row}.texts') or 'joined'
        texts = settings.get('texts', texts)
        self.say_labels()
        if self.labels:
            settings |= {'texts': texts}
            lacking = (self._yes(HELDOUT) > 0) & (self._yes(TRAIN) == 0)
            # Then neither its frequency is known, nor anything of it learned.
            if lacking.any():
                raise errors.InputError(
                    'class_without_example',
                    f'{self.splits[TRAIN].where}: none of the '
                    f'{len(self._targets[TRAIN]):,} examples is '
                    f'{self.class_names[lacking.argmax()]!r}, which '
                    f'{self.splits[HELDOUT].where} has; take more of them',
                )
        for table in self._tables().values():
            texts_of(table, texts)  # complains
        return settings

    def say_labels(self) -> None:
        """Prints the labels of the training table, by frequency, and doubts."""
        table = self.splits[TRAIN]
        rows, counts = f'{len(table.first):,} rows', self._yes(TRAIN)
        if not self.labels:
            least, most = table.scores.min(), table.scores.max()
            print(f'{table.where}: numbers of {rows}, {least:g} to {most:g}',
                  flush=True)  # fmt: skip
            return
        by_label = dict(zip(self.class_names, counts.tolist(), strict=True))
        print(labels.line(table.where, by_label, rows), flush=True)
        if not self.multilabel:
            for doubt in labels.doubts(table.where, by_label):
                print(doubt, flush=True)

    def examples(
        self, loaded: 'Loaded', settings: Mapping[str, Any], length: int
    ) -> dict[str, TaskSplit]:
        """Formats texts as inputs of a model, by settings of the row."""
        from infoword_tf.views.examples import by_example

        def measure(predictions: Mapping[str, np.ndarray], view: Any) -> dict:
            return self.measured(
                by_example(predictions['scores'], view),
                by_example(view.targets[self.row], view),
            )

        targets = dict(self._targets)
        if self.extra is not None:
            known = targets[TRAIN]
            shape = len(self.extra.first), *known.shape[1:]
            mark = -1 if self.labels else np.nan
            unknown = np.full(shape, mark, known.dtype)
            targets[TRAIN] = np.concatenate([known, unknown])
        splits = {}
        for split, table in self._tables().items():
            examples = format_examples(
                loaded,
                texts_of(table, settings['texts']),
                length,
                table.where,
                targets={self.row: targets[split]},
                counts={self.row: self._counts[split]},
            )
            splits[split] = TaskSplit(
                examples=examples,
                labels=[targets[split]],
                where=table.where,
                size=len(table.first),
                texts=(table.first, table.second),
                measure=measure,
                commonest=functools.partial(
                    of_targets,
                    self.metrics[0],
                    targets[split],
                    self.class_names,
                ),
            )
        return splits

    # ------------------------------------------------------------ predictions

    def predict(self, loaded: 'Loaded', table: TableExamples) -> np.ndarray:
        """Predicts probabilities of classes [n, C], or numbers [n]; float32."""
        if not self.labels:
            return loaded.rate(table.first, table.second)
        if table.choices is not None:
            return loaded.choose(table.first, table.choices)
        return loaded.classify(table.first, table.second)

    def write(self, workdir: pathlib.Path, out: pathlib.Path) -> dict[str, Any]:
        """Draws a confusion matrix into OUT/confusion.png, of single classes.
        """
        if self.labels and not self.multilabel:
            import infoword_tf

            table = self.splits[HELDOUT]
            predicted = self.predict(infoword_tf.load(workdir), table)
            measures.draw_confusion(
                out / 'confusion.png', self.class_names, self.targets(table),
                predicted.argmax(axis=1),
            )  # fmt: skip
        return super().write(workdir, out)

    # -------------------------------------------------------------- a teacher

    def scores(self, head: Any, batch: Any) -> Any:
        """Returns scores [n, C], or numbers [n], of a teacher's head."""
        if self.labels:
            return head.candidate_scores(batch)
        return head.numbers(batch)

    def soft_counts(self, scores: np.ndarray) -> np.ndarray:
        """Counts the classes that a teacher names, as `counts`."""
        return self.counts(self.predictions(scores))

    def judged(self, loaded: 'Loaded', scores: np.ndarray) -> dict[str, float]:
        """Measures the outputs of a teacher for held-out examples."""
        return self.measured(scores, self.targets(self.splits[HELDOUT]))
