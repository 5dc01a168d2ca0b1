"""The contract of a task: reading, learning, scoring and writing examples.

A task is a class, whose objects hold the examples of files. `finetune.main`
makes a command of it; tasks.distill teaches it to students, if TASKS there
names it. Of a new kind the file has

    a dataclass of the choices of its files
    a class of `Task` with `read`, `examples` and, if need be, other methods
    `run`, a command, which calls `finetune.main`

The shortest is tasks/glue.py, over texts in a table (tasks/texts.py). The one
to copy for examples of another kind is tasks/squad.py.
"""

import dataclasses
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from infoword_tf import files
from infoword_tf.evaluation.commonest import Commonest

if TYPE_CHECKING:
    from infoword_tf.data.examples import Examples
    from infoword_tf.inference.loaded import Loaded

ANY_TABLE = 'classify'  # the name of tasks of which only labels are known
TRAIN, HELDOUT = SPLITS = ('train', 'heldout')


class TaskSplit(NamedTuple):
    """Training or held-out examples, as a model's inputs.

    Attributes:
        examples: inputs and targets.
        labels: arrays that a fingerprint takes.
        where, size: the file, for people, and the number of its examples.
        texts: first texts, and second texts or None, for rows that read text.
        measure: function of predictions for all examples; scores by metric.
        commonest: scores the commonest answer, by the task's first metric.
    """

    examples: 'Examples'
    labels: Sequence[np.ndarray]
    where: str
    size: int
    texts: tuple[Sequence[str], Sequence[str] | None]
    measure: Callable[..., dict[str, float]]
    commonest: Callable[[], Commonest]


@dataclasses.dataclass(frozen=True)
class Task:
    """Labelled examples of files, for a row.

    Attributes:
        choices: class of the choices of files.
        shared: settings of the row that a student takes from a teacher.
        takes_texts: whether a teacher may label the texts of --extra, which
            `with_texts(choices)` reads.
        alone: flags that tasks of other kinds refuse.
        about: use of these flags, for people.
        name: name for people and for comparisons of workdirs.
        metrics: names of scores; the first selects the weights.
        labels: ordered classes, as the data write them; () of other tasks.
        names: names of the classes for people; () if as `labels`.
        multilabel: whether a text may have several labels, or none.
        splits: examples by name, those of SPLITS at least. They have
            `subset(count)`.
        unknown: examples of --predict, or None.
        output: file of a workdir that has the predictions for `unknown`.
    """

    choices: ClassVar[type]
    shared: ClassVar[tuple[str, ...]] = ()
    takes_texts: ClassVar[bool] = False
    alone: ClassVar[tuple[str, ...]] = ()
    about: ClassVar[str] = ''
    output: ClassVar[str] = ''

    name: str
    metrics: tuple[str, ...]
    labels: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    multilabel: bool = False
    splits: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    unknown: Any = None

    @property
    def row(self) -> str:
        """Name of the row that learns the task."""
        raise NotImplementedError

    @property
    def pairs(self) -> bool:
        """True if an example has two texts."""
        return True

    # ------------------------------------------------------ before TensorFlow

    @classmethod
    def read(cls, choices: Any, model: str | None = None) -> Self:
        """Reads the examples of the choices.

        Args:
            choices: choices of a command, with those of `cls.choices`.
            model: a workdir, whose order of the same labels is taken.

        Raises:
            UsageError: choices that contradict each other.
            FileNotFoundError, ValueError: a file cannot be read.
        """
        raise NotImplementedError

    @classmethod
    def regresses(cls, choices: Any) -> bool:
        """Tells whether the examples of the choices have numbers as labels."""
        return False

    def with_others(self, choices: Any) -> Self:
        """Reads the files of --test and --predict; errors as of `read`."""
        return self

    def with_texts(self, choices: Any) -> Self:
        """Reads the texts of --extra, if the task `takes_texts`."""
        raise NotImplementedError

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes for people."""
        return self.names or self.labels

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the row that the examples decide."""
        return {}

    def decide(self, choices: Any) -> dict[str, Any]:
        """Returns `settings` or more, and prints labels.

        Raises:
            UsageError, ValueError: examples that no model can learn.
        """
        return self.settings

    # ------------------------------------------------------------- of a model

    def examples(
        self, loaded: 'Loaded', settings: Mapping[str, Any], length: int
    ) -> dict[str, TaskSplit]:
        """Formats SPLITS as inputs of a model, by settings of the row."""
        raise NotImplementedError

    def test(self, workdir: pathlib.Path) -> dict[str, Any]:
        """Scores and predicts other files with the weights of a run.

        Returns:
            Entries of metrics.json, by 'test_' and metric; predictions are
            written to the workdir.
        """
        return {}

    def write(self, workdir: pathlib.Path, out: pathlib.Path) -> dict[str, Any]:
        """Writes predictions of the best run; returns further scores.

        Args:
            workdir: workdir of the best of several runs, with `output`.
            out: workdir of the command.
        """
        if self.unknown is not None and workdir != out:
            with files.written(out / self.output) as partial:
                shutil.copyfile(workdir / self.output, partial)
            print(f'{out / self.output}: those of {workdir.name}', flush=True)
        return {}

    # ----------------------------------------------------------- of a teacher

    def defaults(self, teacher: Any) -> dict[str, Any]:
        """Returns choices of a student, by the Config of a teacher."""
        return {}

    def hashed(self, examples: 'Examples') -> list[np.ndarray]:
        """Lists arrays besides inputs that outputs of a teacher depend on."""
        return []

    def scores(self, head: Any, batch: Any) -> Any:
        """Returns scores of a teacher's head: [B, ...], or [B, T, ...] float16.
        """
        raise NotImplementedError

    def soft_counts(self, scores: np.ndarray) -> np.ndarray:
        """Counts the classes that scores name, [C]; [0] without classes."""
        return np.zeros(0, np.int64)

    def judged(self, loaded: 'Loaded', scores: np.ndarray) -> dict[str, float]:
        """Measures a teacher, whose outputs are `scores`, on held-out examples.
        """
        raise NotImplementedError
