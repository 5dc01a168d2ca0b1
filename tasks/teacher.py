"""Teachers: outputs of a workdir for all examples, computed once, on disk.

Outputs of a fine-tuned teacher are the scores of each example, float32, or of
spans the scores of every token, float16; and for each layer below the last the
normalised pooled state of each text, float16 (which changes `soft_span` and
`patience` by less than a thousandth). Outputs of an embedding model are
vectors, float16 (which changes the losses as little). They lie in the cache
under a hash of the teacher's weights and of the examples, in chunks: a stopped
command goes on with the next chunk. All students use the same outputs.

Glossary of shapes: n examples, S texts of each, C classes, W width.
"""

import hashlib
import json
import math
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from infoword_tf import commands, errors, files
from infoword_tf.config import WEIGHTS, TeacherConfig
from infoword_tf.data import opened
from infoword_tf.objectives import TABLE
from infoword_tf.resolve import answering

from .task import ANY_TABLE, Task

if TYPE_CHECKING:
    from infoword_tf.data.examples import Examples
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.views import View

CHUNK = 1024  # examples of a file
BATCH = 32  # examples that are computed together
PATIENCE = 'patience'  # the row that learns a teacher's states


def chunks_of(
    teacher: str,
    key: str,
    order: np.ndarray,
    compute: Callable[[np.ndarray], dict[str, np.ndarray]],
) -> list[tuple[pathlib.Path, np.ndarray]]:
    """Returns the files of a teacher's outputs, and computes missing files.

    Args:
        teacher: the workdir, for people.
        key: hash of the teacher's weights and of the examples.
        order: [n] numbers of examples, as they are computed.
        compute: (numbers of examples) -> the arrays of a file.

    Returns:
        (file, numbers of its examples) of all files.

    Raises:
        OSError: the disk is full.
    """
    folder = files.cache_dir() / 'teachers' / key
    folder.mkdir(parents=True, exist_ok=True)
    chunks = [
        (folder / f'{begin:09d}.safetensors', order[begin : begin + CHUNK])
        for begin in range(0, len(order), CHUNK)
    ]
    lacking = [chunk for chunk in chunks if not chunk[0].is_file()]
    if lacking:
        print(
            f'--teacher={teacher}: its outputs for {len(order):,} examples '
            f'are kept in {folder}',
            flush=True,
        )
    with commands.bar(
        total=sum(len(numbers) for _, numbers in lacking),
        unit=' examples',
        disable=len(lacking) < 2,
    ) as bar:
        for path, numbers in lacking:
            files.write_tensors(path, compute(numbers))
            bar.update(len(numbers))
    return chunks


class Teacher:
    """A workdir that was fine-tuned on a task.

    Attributes:
        folder: the workdir.
        loaded: the workdir in memory.
        task, row: examples that it knows, and the row that learned them.
        settings: settings of the row.
        depth, width: L and W.
        digest: hash of the weights.
    """

    def __init__(self, folder: str, task: Task):
        """Loads a workdir.

        Raises:
            FileNotFoundError: it is no workdir.
            UsageError: it was not fine-tuned on the task.
        """
        import infoword_tf

        self.folder, self.task, self.row = folder, task, task.row
        self._graph: Any = None
        self.loaded = infoword_tf.load(folder)
        known = self.loaded.model.objectives
        rows = answering(('classes', 'numbers', 'spans', 'tags'), known)
        if not rows:
            raise errors.UsageError(
                'teacher_without_labels',
                f'--teacher={folder} was never fine-tuned: none of its rows '
                'knows labels; make one with tasks.glue or tasks.classify',
            )
        if self.row not in rows:
            raise errors.UsageError(
                'teacher_of_other_row',
                f'--teacher={folder} was fine-tuned for {", ".join(rows)}, '
                f'this task is of {self.row}; name a teacher of the same task',
            )
        if task.labels and self.loaded.classes.multilabel != task.multilabel:
            theirs, ours = 'one label a text', 'several'
            if self.loaded.classes.multilabel:
                theirs, ours = 'several labels a text', 'one'
            raise errors.UsageError(
                'teacher_of_label_sets',
                f'--teacher={folder} knows {theirs}, the data has {ours}; '
                'name a teacher of such labels',
            )
        labels = self.loaded.config.labels
        if task.labels and tuple(labels) != task.class_names:
            raise errors.UsageError(
                'teacher_of_other_labels',
                f'--teacher={folder} knows the labels {", ".join(labels)}, '
                f'the data has {", ".join(task.class_names)}; name a teacher '
                'of the same labels, in the same order',
            )
        known = self.loaded.config.task
        if known and len({known.name, task.name} - {ANY_TABLE}) > 1:
            raise errors.UsageError(
                'teacher_of_other_task',
                f'--teacher={folder} was fine-tuned on {known.name}, this is '
                f'{task.name}; name a teacher of the same task',
            )
        self.settings = self.loaded.config.rows[self.row].settings
        encoder = self.loaded.encoder
        self.depth, self.width = encoder.depth, encoder.width
        self.digest = files.digest_of(pathlib.Path(folder) / WEIGHTS)

    def check(self, student: 'Loaded', length: int, **settings: Any) -> None:
        """Refuses a student with other inputs than the teacher.

        Args:
            student: before the training.
            length: T of the examples.
            **settings: settings of the student's row, which must be those of
                the teacher.

        Raises:
            UsageError: the vocabulary, the layout, the length or a setting
                does not fit.
        """

        def reads(loaded: 'Loaded') -> tuple[Any, ...]:
            tokenizer = loaded.tokenizer
            return tokenizer.identity, tokenizer.lower_case, loaded.layout

        if reads(student) != reads(self.loaded):
            raise errors.UsageError(
                'teacher_other_vocabulary',
                f'--init reads text with another vocabulary than --teacher='
                f'{self.folder}; start the student from a workdir with its '
                'own',
            )
        most = self.loaded.encoder.max_length
        if length > most:
            raise errors.UsageError(
                'seq_len_over_teacher',
                f'--seq_len={length}: --teacher={self.folder} has {most} '
                'positions; lower it',
            )
        for name, value in settings.items():
            theirs = self.settings[name]
            if value != theirs:
                raise errors.UsageError(
                    'teacher_other_setting',
                    f'--teacher={self.folder} was fine-tuned with --{self.row}.'
                    f'{name}={theirs}, this is {value}; give both the same',
                )

    def described(
        self, metric: str | None = None, score: float | None = None
    ) -> TeacherConfig:
        """Describes the teacher for a student's config.json."""
        values = self.loaded.model.variables.values()
        return TeacherConfig(
            name=self.folder,
            digest=self.digest,
            layers=self.depth,
            weights=sum(math.prod(value.shape) for value in values),
            metric=metric,
            score=None if score is None else round(float(score), 6),
        )

    def key(self, examples: 'Examples') -> str:
        """Hashes weights, settings and examples."""
        config = self.loaded.config
        digest = hashlib.blake2b(self.digest.encode(), digest_size=10)
        arguments = [
            config.encoder.name, config.encoder.arguments, self.settings
        ]  # fmt: skip
        digest.update(json.dumps(arguments, sort_keys=True).encode())
        arrays = [examples.ids, examples.segments, examples.begins,
                  examples.places, *self.task.hashed(examples)]  # fmt: skip
        for array in arrays:
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def outputs(
        self, examples: 'Examples', layers: Sequence[int] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        """Computes or reads scores and states, see `chunks_of`.

        Returns:
            Scores [n, C] float32, of a teacher of numbers [n], of both ends of
            spans [tokens, 2] float16, of labels of words [tokens, C] float16;
            and states of layers from 1 to L - 1,
            [n, S, layers, W] float16.
        """
        order = np.argsort(-examples.sizes, kind='stable')
        chunks = chunks_of(
            self.folder,
            self.key(examples),
            order,
            lambda numbers: self.computed(examples, numbers),
        )
        shape = (len(order), examples.texts, len(layers), self.width)
        states = np.empty(shape, np.float16)
        scores = np.empty(0)
        for path, numbers in chunks:
            chunk = files.read_tensor(path, 'scores')
            if chunk is None:
                raise KeyError(f'{path} has no scores')
            where, count = numbers, len(order)
            if TABLE[self.row].of_tokens:
                where = examples.tokens_of(numbers)
                count = len(examples.ids)
            if not len(scores):
                scores = np.empty((count, *chunk.shape[1:]), chunk.dtype)
            scores[where] = chunk
            for i, layer in enumerate(layers):
                name = f'layer_{layer}'
                states[numbers, :, i] = files.read_tensor(path, name)
        return scores, states

    def computed(
        self, examples: 'Examples', numbers: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Computes the arrays of a file, of examples sorted by length."""
        from infoword_tf.views import flatten

        if self._graph is None:
            few = self.view(examples, numbers[:1])
            more = self.view(examples, numbers[[0, 0]], 1)
            self._graph = self.traced(
                *(flatten({'examples': view}) for view in (few, more))
            )
        outputs: list[dict[str, np.ndarray]] = []
        for begin in range(0, len(numbers), BATCH):
            view = self.view(examples, numbers[begin : begin + BATCH])
            batch = self._graph(flatten({'examples': view}))
            batch = {name: x.numpy() for name, x in batch.items()}
            if TABLE[self.row].of_tokens:
                batch['scores'] = batch['scores'][view.block_ids == 0]
            outputs.append(batch)
        return {
            name: np.concatenate([batch[name] for batch in outputs])
            for name in outputs[0]
        }

    def view(
        self, examples: 'Examples', numbers: np.ndarray, wider: int = 0
    ) -> 'View':
        """Draws a view of examples, one a sequence.

        Sequences have `wider` times MULTIPLE tokens of padding more than the
        longest example needs.
        """
        from infoword_tf.data.examples import MULTIPLE
        from infoword_tf.views.examples import EXAMPLES

        longest = int(examples.sizes[numbers].max())
        text = examples.batch(
            numbers,
            np.arange(len(numbers))[:, None],
            (-(-longest // MULTIPLE) + wider) * MULTIPLE,
        )
        where = self.loaded.model.reads[self.row]['examples'].where
        specials = self.loaded.tokenizer.specials
        rows = {self.row: where, PATIENCE: 'example'}  # for places of texts
        unlearned = np.zeros(len(text.numbers), np.int32)
        text = text._replace(targets={**text.targets, PATIENCE: unlearned})
        return EXAMPLES.make(text, None, rows, specials)

    def traced(self, few: dict[str, Any], more: dict[str, Any]) -> Any:
        """Traces a graph from flat views to scores and states.

        Dimensions in which `few` and `more` differ are free. It is one graph
        for all shapes, so that a resumed pass computes the same bits.
        """
        import tensorflow as tf

        from infoword_tf.layers.block import take
        from infoword_tf.layers.pooling import unit
        from infoword_tf.objectives import Statistics
        from infoword_tf.views import unflatten

        reads = self.loaded.model.reads[self.row]['examples']
        # Other rows have no b in these examples.
        model = self.loaded.model.with_row(
            self.row, {'examples': reads._replace(layers=True)}
        )
        head = model.objectives[self.row]
        nothing = Statistics(np.ones(1), np.ones(1))

        def compute(flat: dict[str, Any]) -> dict[str, Any]:
            batches, _ = model.batches(unflatten(flat), nothing)
            batch = batches[self.row]
            outputs = {'scores': self.task.scores(head, batch)}
            places = batch.views['examples'].places
            all_tokens = reads.everywhere or self.row not in places
            below = batch.layers('examples')[1:-1]  # [B, S or T, W] each
            for i, layer in enumerate(below):
                if all_tokens:
                    layer = take(layer, places[PATIENCE])
                state = unit(tf.cast(layer, tf.float32))
                outputs[f'layer_{i + 1}'] = tf.cast(state, tf.float16)
            return outputs

        shapes = {
            name: tf.TensorSpec(
                [n if n == m else None
                 for n, m in zip(x.shape, more[name].shape, strict=True)],
                x.dtype,
            )
            for name, x in few.items()
        }  # fmt: skip
        return tf.function(compute, input_signature=[shapes], autograph=False)


class Embedder:
    """A workdir that makes vectors of strings.

    A student may have another vocabulary.

    Attributes:
        folder: the workdir.
        loaded: the workdir in memory.
        width: W.
        digest: hash of the weights.
        prompts: put before texts in turn; [''] without prompts.
    """

    def __init__(self, folder: str):
        """Loads a workdir.

        Raises:
            FileNotFoundError: it is no workdir.
            UsageError: it makes no vectors of texts.
        """
        import infoword_tf

        self.folder = folder
        self.loaded = infoword_tf.load(folder)
        config = self.loaded.config
        try:
            self.loaded.vectors.graph()
        except ValueError as error:
            raise errors.UsageError(
                'teacher_without_vectors',
                f'--teacher={folder} makes no vectors of texts: {error}',
            ) from None
        self.width = self.loaded.vector_width()
        self.digest = files.digest_of(pathlib.Path(folder) / WEIGHTS)
        self.prompts = list(dict.fromkeys(config.prompts.values())) or ['']

    def prompted(
        self, texts: Sequence[str], numbers: Iterable[int] | None = None
    ) -> list[str]:
        """Prefixes texts with the prompts, in turn.

        Texts of the same number have the same prompt; None: 0, 1, 2, ...
        """
        every, count = self.prompts, len(self.prompts)
        numbers = range(len(texts)) if numbers is None else numbers
        pairs = zip(numbers, texts, strict=True)
        return [every[number % count] + text for number, text in pairs]

    def key(self, what: str, *texts: str) -> str:
        """Hashes weights, settings and texts."""
        config = self.loaded.config.to_json()
        named = ('encoder', 'max_length', 'layout', 'pooling', 'normalize',
                 'dense', 'dims')  # fmt: skip
        settings = [config[name] for name in named]
        settings.append(opened.identity_of(self.loaded.tokenizer))
        digest = hashlib.blake2b(self.digest.encode(), digest_size=10)
        for line in (what, json.dumps(settings, sort_keys=True), *texts):
            digest.update(line.encode() + b'\n')
        return digest.hexdigest()

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Computes or reads vectors of texts with prompts, [n, W] float16."""
        return self._read(
            self.key('texts', *texts),
            len(texts),
            lambda numbers: self.loaded.encode(
                [texts[i] for i in numbers], progress=False, prompt=''
            ),
        )

    def token_vectors(self) -> np.ndarray:
        """Computes or reads vectors of single tokens, [V, W] float16."""
        loaded = self.loaded
        embed = loaded.vectors.graph()

        def compute(numbers: np.ndarray) -> np.ndarray:
            sequences = [[*loaded.before, i, *loaded.after] for i in numbers]
            ids = np.array(sequences, np.int32)
            lengths = np.full(len(ids), ids.shape[1], np.int32)
            return embed(ids, lengths).numpy()

        size = len(loaded.tokenizer)
        return self._read(self.key('pieces'), size, compute)

    def _read(
        self,
        key: str,
        count: int,
        compute: Callable[[np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """Computes or reads `count` vectors, [count, W] float16."""
        chunks = chunks_of(
            self.folder,
            key,
            np.arange(count),
            lambda numbers: {'vectors': compute(numbers).astype(np.float16)},
        )
        vectors = np.empty((count, self.width), np.float16)
        for path, numbers in chunks:
            vectors[numbers] = files.read_tensor(path, 'vectors')
        return vectors
