"""A fine-tuned workdir as a teacher: what it makes of examples, kept on disk.

A student's training needs the teacher's outputs alone, so they are computed
once: for each example its scores, float32, and of each layer below the last
the normalised state that sums each text up, float16 (which changes `patience`
by less than a thousandth). They lie in the cache under a hash of the teacher's
weights and of the examples, in parts: a pass that was stopped goes on with the
next part. One pass serves every student.

Glossary of shapes: n examples, K texts of each, C classes, L layers, W width.
"""

import functools
import hashlib
import json
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from infoword_tf import commands, files
from infoword_tf.config import TeacherConfig
from infoword_tf.data import corpora
from infoword_tf.training.checkpoint import WEIGHTS
from tasks.finetune import Task

PART = 1024  # examples of a file
BATCH = 32  # that are computed together


class Teacher:
    """A workdir that knows a task.

    Attributes:
        folder: the workdir.
        loaded: it in memory.
        row: 'label' or 'score'.
        digest: of its weights.
    """

    def __init__(self, folder: str, task: Task):
        """Loads it.

        Raises:
            FileNotFoundError: it is no workdir.
            UsageError: it does not know the task.
        """
        import infoword_tf

        self.folder, self.row = folder, task.row
        self.loaded = infoword_tf.load(folder)
        known = self.loaded.model.objectives
        heads = [row for row in ('label', 'score', 'span') if row in known]
        if not heads:
            raise commands.UsageError(
                f'--teacher={folder} was never fine-tuned: none of its rows '
                'knows labels; make one with tasks.glue or tasks.classify'
            )
        if self.row not in heads:
            raise commands.UsageError(
                f'--teacher={folder} was fine-tuned for {", ".join(heads)}, '
                f'this task is of {self.row}; name a teacher of the same task'
            )
        labels = self.loaded.config.labels
        if task.labels and tuple(labels) != task.shown:
            raise commands.UsageError(
                f'--teacher={folder} knows the labels {", ".join(labels)}, '
                f'the data has {", ".join(task.shown)}; name a teacher of '
                'the same labels, in the same order'
            )
        known, names = self.loaded.config.task, {task.name}
        names |= {known.name} if known else set()
        if len(names - {'classify'}) > 1:  # which is of any table
            raise commands.UsageError(
                f'--teacher={folder} was fine-tuned on {known.name}, this is '
                f'{task.name}; name a teacher of the same task'
            )
        weights = (pathlib.Path(folder) / WEIGHTS).read_bytes()
        self.digest = hashlib.blake2b(weights, digest_size=10).hexdigest()

    @property
    def texts(self) -> str:
        """What an example comes to, in `objectives.label.TEXTS`."""
        return self.loaded.model.objectives[self.row].texts

    @property
    def depth(self) -> int:
        """L."""
        return self.loaded.encoder.depth

    @property
    def width(self) -> int:
        """W."""
        return self.loaded.encoder.width

    def check(self, student: Any, length: int, texts: str) -> None:
        """Complains of a student that reads examples in another way.

        Args:
            student: a `Loaded`.
            length: T of its examples.
            texts: what an example comes to for it.

        Raises:
            UsageError: it does.
        """

        def reads(loaded: Any) -> tuple[Any, ...]:
            tokenizer = loaded.tokenizer
            return tokenizer.identity, tokenizer.lower_case, loaded.layout

        if reads(student) != reads(self.loaded):
            raise commands.UsageError(
                f'--init reads text with another vocabulary than --teacher='
                f'{self.folder}; start the student from a workdir with its '
                'own'
            )
        most = self.loaded.encoder.max_length
        if length > most:
            raise commands.UsageError(
                f'--seq_len={length}: --teacher={self.folder} has {most} '
                'positions; lower it'
            )
        if texts != self.texts:
            raise commands.UsageError(
                f'--teacher={self.folder} was fine-tuned with --{self.row}.'
                f'texts={self.texts}, this is {texts}; ask as it was asked'
            )

    def described(
        self, metric: str | None = None, score: float | None = None
    ) -> TeacherConfig:
        """What a student's config says of it.

        Args:
            metric, score: how good it is on held-out examples.
        """
        values = self.loaded.model.variables.values()
        return TeacherConfig(
            self.folder,
            self.digest,
            self.depth,
            sum(math.prod(value.shape) for value in values),
            metric,
            None if score is None else round(float(score), 6),
        )

    def key(self, examples: Any) -> str:
        """Other weights, settings or examples have another."""
        config = self.loaded.config
        digest = hashlib.blake2b(self.digest.encode(), digest_size=10)
        settings = config.rows[self.row].settings
        arguments = [config.encoder.name, config.encoder.arguments, settings]
        digest.update(json.dumps(arguments, sort_keys=True).encode())
        for array in (examples.ids, examples.segments, examples.begins,
                      examples.places):  # fmt: skip
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def outputs(
        self, examples: Any, layers: Sequence[int] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        """What it makes of examples; computed where that was not done yet.

        Args:
            examples: `data.examples.Examples`, labelled or not.
            layers: whose states are wanted, from 1 to L - 1.

        Returns:
            [n, C] float32 scores, of numbers [n]; [n, K, layers, W] float16.

        Raises:
            OSError: the disk is full.
        """
        import tqdm

        folder = corpora.cache_dir() / 'teachers' / self.key(examples)
        folder.mkdir(parents=True, exist_ok=True)
        order = np.argsort(-examples.sizes, kind='stable')
        parts = [
            (folder / f'{begin:09d}.safetensors', order[begin : begin + PART])
            for begin in range(0, len(order), PART)
        ]
        lacking = [part for part in parts if not part[0].is_file()]
        if lacking:
            print(
                f'--teacher={self.folder}: what it makes of {len(order):,} '
                f'examples is kept in {folder}',
                flush=True,
            )
        with tqdm.tqdm(
            total=sum(len(numbers) for _, numbers in lacking),
            unit=' examples',
            disable=len(lacking) < 2,
        ) as bar:
            for path, numbers in lacking:
                files.write_tensors(path, self.computed(examples, numbers))
                bar.update(len(numbers))
        shape = (len(order), examples.texts, len(layers), self.width)
        states = np.empty(shape, np.float16)
        scores: Any = [None] * len(order)
        for path, numbers in parts:
            found = files.read_tensor(path, 'scores')
            for number, score in zip(numbers, found, strict=True):
                scores[number] = score
            for i, layer in enumerate(layers):
                found = files.read_tensor(path, f'layer_{layer}')
                states[numbers, :, i] = found
        return np.stack(scores), states

    def computed(
        self, examples: Any, numbers: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Of some examples, sorted by length, what a file holds."""
        from infoword_tf.data.examples import MULTIPLE
        from infoword_tf.views import flatten
        from infoword_tf.views.examples import EXAMPLES

        specials = self.loaded.tokenizer.specials
        found: list[dict[str, np.ndarray]] = []
        for begin in range(0, len(numbers), BATCH):
            some = numbers[begin : begin + BATCH]
            longest = int(examples.sizes[some].max())
            text = examples.batch(
                some,
                np.arange(len(some))[:, None],  # each has a row of its own
                -(-longest // MULTIPLE) * MULTIPLE,
            )
            view = EXAMPLES.make(text, None, {self.row: 'example'}, specials)
            made = self.graph(flatten({'examples': view}))
            found.append({name: x.numpy() for name, x in made.items()})
        return {
            name: np.concatenate([part[name] for part in found])
            for name in found[0]
        }

    @functools.cached_property
    def graph(self) -> Any:
        """Flat views to scores and states, as its own row reads them."""
        import tensorflow as tf

        from infoword_tf.layers.pooling import unit
        from infoword_tf.objectives import Statistics
        from infoword_tf.views import unflatten

        model = self.loaded.model
        for row in set(model.objectives) - {self.row}:
            model.drop(row)  # they have no b here
        reads = model.reads[self.row]['examples']
        model.reads[self.row] = {'examples': reads._replace(layers=True)}
        head = model.objectives[self.row]
        nothing = Statistics(np.ones(1), np.ones(1))

        def compute(flat: dict[str, Any]) -> dict[str, Any]:
            batches, _ = model.batches(unflatten(flat), nothing)
            batch = batches[self.row]
            if self.row == 'label':
                made = {'scores': head.candidate_scores(batch)}
            else:
                made = {'scores': head.numbers(batch)}
            below = batch.layers('examples')[1:-1]  # [B, K, W] each
            for i, layer in enumerate(below):
                state = unit(tf.cast(layer, tf.float32))
                made[f'layer_{i + 1}'] = tf.cast(state, tf.float16)
            return made

        return tf.function(compute, reduce_retracing=True)
