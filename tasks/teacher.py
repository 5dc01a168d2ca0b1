"""A workdir as a teacher: its outputs for all examples, kept on disk.

A student's training needs only the teacher's outputs, so they are computed
once. A fine-tuned teacher gives for each example its scores, float32, or for
spans those of every token, float16; and for each layer below the last the
normalised pooled state of each text, float16 (which changes `soft_span` and
`patience` by less than a thousandth). An embedding model gives its vectors,
float16 (which changes the losses as little). They lie in the cache under a hash
of the teacher's weights and of the examples, in parts: a pass that was stopped
is resumed with the next part. One pass serves every student.

Glossary of shapes: n examples, K texts of each, C classes, L layers, W width.
"""

import hashlib
import json
import math
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from infoword_tf import errors, files, progress
from infoword_tf.config import WEIGHTS, TeacherConfig
from infoword_tf.data import opened
from infoword_tf.plan import answering
from tasks.finetune import Task

if TYPE_CHECKING:
    from infoword_tf.data.examples import Examples
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.views import View

PART = 1024  # examples of a file
BATCH = 32  # that are computed together


def parts_of(
    teacher: str,
    key: str,
    order: np.ndarray,
    compute: Callable[[np.ndarray], dict[str, np.ndarray]],
) -> list[tuple[pathlib.Path, np.ndarray]]:
    """The files of a teacher's outputs; computed where that was not done yet.

    Args:
        teacher: its workdir, for people.
        key: of its weights and of the examples.
        order: [n] numbers of the examples as they are computed.
        compute: what a file holds of some of them.

    Returns:
        Each file, and the numbers of the examples that it holds.

    Raises:
        OSError: the disk is full.
    """
    folder = files.cache_dir() / 'teachers' / key
    folder.mkdir(parents=True, exist_ok=True)
    parts = [
        (folder / f'{begin:09d}.safetensors', order[begin : begin + PART])
        for begin in range(0, len(order), PART)
    ]
    lacking = [part for part in parts if not part[0].is_file()]
    if lacking:
        print(
            f'--teacher={teacher}: its outputs for {len(order):,} examples '
            f'are kept in {folder}',
            flush=True,
        )
    with progress.bar(
        total=sum(len(numbers) for _, numbers in lacking),
        unit=' examples',
        disable=len(lacking) < 2,
    ) as bar:
        for path, numbers in lacking:
            files.write_tensors(path, compute(numbers))
            bar.update(len(numbers))
    return parts


class Teacher:
    """A workdir that knows a task.

    Attributes:
        folder: the workdir.
        loaded: it in memory.
        row: 'label', 'score' or 'span'.
        settings: of the row.
        depth, width: L and W.
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
        self._graph: Any = None
        self.loaded = infoword_tf.load(folder)
        known = self.loaded.model.objectives
        rows = answering(('classes', 'numbers', 'spans'), known)
        if not rows:
            raise errors.UsageError(
                f'--teacher={folder} was never fine-tuned: none of its rows '
                'knows labels; make one with tasks.glue or tasks.classify'
            )
        if self.row not in rows:
            raise errors.UsageError(
                f'--teacher={folder} was fine-tuned for {", ".join(rows)}, '
                f'this task is of {self.row}; name a teacher of the same task'
            )
        if task.labels and self.loaded.multilabel != task.multilabel:
            theirs, ours = 'one label a text', 'several'
            if self.loaded.multilabel:
                theirs, ours = 'several labels a text', 'one'
            raise errors.UsageError(
                f'--teacher={folder} knows {theirs}, the data has {ours}; '
                'name a teacher of such labels'
            )
        labels = self.loaded.config.labels
        if task.labels and tuple(labels) != task.shown:
            raise errors.UsageError(
                f'--teacher={folder} knows the labels {", ".join(labels)}, '
                f'the data has {", ".join(task.shown)}; name a teacher of '
                'the same labels, in the same order'
            )
        known, names = self.loaded.config.task, {task.name}
        names |= {known.name} if known else set()
        if len(names - {'classify'}) > 1:  # which is of any table
            raise errors.UsageError(
                f'--teacher={folder} was fine-tuned on {known.name}, this is '
                f'{task.name}; name a teacher of the same task'
            )
        self.settings = self.loaded.config.rows[self.row].settings
        encoder = self.loaded.encoder
        self.depth, self.width = encoder.depth, encoder.width
        self.digest = files.digest_of(pathlib.Path(folder) / WEIGHTS)

    def check(self, student: 'Loaded', length: int, **settings: Any) -> None:
        """Complains of a student that reads examples of T tokens otherwise.

        The settings of its row have to be the teacher's.

        Raises:
            UsageError: it does.
        """

        def reads(loaded: 'Loaded') -> tuple[Any, ...]:
            tokenizer = loaded.tokenizer
            return tokenizer.identity, tokenizer.lower_case, loaded.layout

        if reads(student) != reads(self.loaded):
            raise errors.UsageError(
                f'--init reads text with another vocabulary than --teacher='
                f'{self.folder}; start the student from a workdir with its '
                'own'
            )
        most = self.loaded.encoder.max_length
        if length > most:
            raise errors.UsageError(
                f'--seq_len={length}: --teacher={self.folder} has {most} '
                'positions; lower it'
            )
        for name, value in settings.items():
            theirs = self.settings[name]
            if value != theirs:
                raise errors.UsageError(
                    f'--teacher={self.folder} was fine-tuned with --{self.row}.'
                    f'{name}={theirs}, this is {value}; give both the same'
                )

    def described(
        self, metric: str | None = None, score: float | None = None
    ) -> TeacherConfig:
        """What a student's config says of it, and of its held-out score."""
        values = self.loaded.model.variables.values()
        return TeacherConfig(
            self.folder,
            self.digest,
            self.depth,
            sum(math.prod(value.shape) for value in values),
            metric,
            None if score is None else round(float(score), 6),
        )

    def key(self, examples: 'Examples') -> str:
        """Other weights, settings or examples have another."""
        config = self.loaded.config
        digest = hashlib.blake2b(self.digest.encode(), digest_size=10)
        arguments = [
            config.encoder.name, config.encoder.arguments, self.settings
        ]  # fmt: skip
        digest.update(json.dumps(arguments, sort_keys=True).encode())
        arrays = [examples.ids, examples.segments, examples.begins,
                  examples.places]  # fmt: skip
        if self.row == 'span':  # the last place after the true first one
            arrays.append(examples.targets['span'])
        for array in arrays:
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def outputs(
        self, examples: 'Examples', layers: Sequence[int] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        """What it makes of examples; as of `parts_of`.

        Returns:
            [n, C] float32 scores, of numbers [n], of both ends of spans
            [tokens, 2] float16; states of layers from 1 to L - 1
            [n, K, layers, W] float16.
        """
        order = np.argsort(-examples.sizes, kind='stable')
        parts = parts_of(
            self.folder,
            self.key(examples),
            order,
            lambda numbers: self.computed(examples, numbers),
        )
        shape = (len(order), examples.texts, len(layers), self.width)
        states = np.empty(shape, np.float16)
        scores: Any = None
        for path, numbers in parts:
            found = files.read_tensor(path, 'scores')
            where, count = numbers, len(order)
            if self.row == 'span':
                where = examples.tokens_of(numbers)
                count = len(examples.ids)
            if scores is None:
                scores = np.empty((count, *found.shape[1:]), found.dtype)
            scores[where] = found
            for i, layer in enumerate(layers):
                name = f'layer_{layer}'
                states[numbers, :, i] = files.read_tensor(path, name)
        return scores, states

    def computed(
        self, examples: 'Examples', numbers: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Of some examples, sorted by length, what a file holds."""
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
            made = self._graph(flatten({'examples': view}))
            made = {name: x.numpy() for name, x in made.items()}
            if self.row == 'span':  # of each token
                made['scores'] = made['scores'][view.block_ids == 0]
            outputs.append(made)
        return {
            name: np.concatenate([part[name] for part in outputs])
            for name in outputs[0]
        }

    def view(
        self, examples: 'Examples', some: np.ndarray, wider: int = 0
    ) -> 'View':
        """Some examples, each in a row of its own, as its row reads them.

        Rows are `wider` times MULTIPLE wider than need be.
        """
        from infoword_tf.data.examples import MULTIPLE
        from infoword_tf.views.examples import EXAMPLES

        longest = int(examples.sizes[some].max())
        text = examples.batch(
            some,
            np.arange(len(some))[:, None],
            (-(-longest // MULTIPLE) + wider) * MULTIPLE,
        )
        where = self.loaded.model.reads[self.row]['examples'].where
        specials = self.loaded.tokenizer.specials
        return EXAMPLES.make(text, None, {self.row: where}, specials)

    def traced(self, few: dict[str, Any], more: dict[str, Any]) -> Any:
        """Flat views to scores and states, of shapes that `few`, `more` allow.

        One graph from the first call on: a pass that goes on computes bit for
        bit what it would have computed.
        """
        import tensorflow as tf

        from infoword_tf.layers.block import take
        from infoword_tf.layers.pooling import unit
        from infoword_tf.objectives import Statistics
        from infoword_tf.views import unflatten

        reads = self.loaded.model.reads[self.row]['examples']
        # The other rows have no b here.
        model = self.loaded.model.with_row(
            self.row, {'examples': reads._replace(layers=True)}
        )
        head = model.objectives[self.row]
        nothing = Statistics(np.ones(1), np.ones(1))

        def compute(flat: dict[str, Any]) -> dict[str, Any]:
            batches, _ = model.batches(unflatten(flat), nothing)
            batch = batches[self.row]
            if self.row == 'label':
                made = {'scores': head.candidate_scores(batch)}
            elif self.row == 'score':
                made = {'scores': head.numbers(batch)}
            else:
                _, ends = head.both_ends(batch)
                made = {'scores': tf.cast(tf.stack(ends, -1), tf.float16)}
            view = batch.views['examples']
            places = None
            if self.row == 'span':  # whose layers are of all tokens
                places = view.targets['span'][:, :, 2]
            elif reads.everywhere:  # likewise
                places = view.places[self.row]
            below = batch.layers('examples')[1:-1]  # [B, K or T, W] each
            for i, layer in enumerate(below):
                if places is not None:
                    layer = take(layer, places)
                state = unit(tf.cast(layer, tf.float32))
                made[f'layer_{i + 1}'] = tf.cast(state, tf.float16)
            return made

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
    """A workdir whose texts become vectors. It reads strings: its vocabulary
    need not be its student's.

    Attributes:
        folder: the workdir.
        loaded: it in memory.
        width: W.
        digest: of its weights.
        prompts: what it puts before texts, by turns; [''] where it has none.
    """

    def __init__(self, folder: str):
        """Loads it.

        Raises:
            FileNotFoundError: it is no workdir.
            UsageError: its texts become no vectors.
        """
        import infoword_tf

        self.folder = folder
        self.loaded = infoword_tf.load(folder)
        config = self.loaded.config
        try:
            self.loaded.graph()
        except ValueError as error:
            raise errors.UsageError(
                f'--teacher={folder} makes no vectors of texts: {error}'
            ) from None
        self.width = self.loaded.vector_width()
        self.digest = files.digest_of(pathlib.Path(folder) / WEIGHTS)
        self.prompts = list(dict.fromkeys(config.prompts.values())) or ['']

    def prompted(
        self, texts: Sequence[str], numbers: Iterable[int] | None = None
    ) -> list[str]:
        """Texts with one of the prompts before each, in turn.

        What has the same number has the same prompt; None: 0, 1, 2, ...
        """
        every, count = self.prompts, len(self.prompts)
        numbers = range(len(texts)) if numbers is None else numbers
        pairs = zip(numbers, texts, strict=True)
        return [every[number % count] + text for number, text in pairs]

    def key(self, what: str, *said: str) -> str:
        """Of vectors; other weights, settings or texts have another."""
        config = self.loaded.config.to_json()
        named = ('encoder', 'max_length', 'layout', 'pooling', 'normalize',
                 'dense', 'dims')  # fmt: skip
        settings = [config[name] for name in named]
        settings.append(opened.identity_of(self.loaded.tokenizer))
        digest = hashlib.blake2b(self.digest.encode(), digest_size=10)
        for part in (what, json.dumps(settings, sort_keys=True), *said):
            digest.update(part.encode() + b'\n')
        return digest.hexdigest()

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Of texts, prompts and all: [n, W] float16; as of `parts_of`."""
        return self._kept(
            self.key('texts', *texts),
            len(texts),
            lambda numbers: self.loaded.encode(
                [texts[i] for i in numbers], progress=False, prompt=''
            ),
        )

    def pieces(self) -> np.ndarray:
        """Of each piece of its vocabulary, alone in its layout: [V, W]."""
        loaded = self.loaded
        embed = loaded.graph()

        def compute(numbers: np.ndarray) -> np.ndarray:
            rows = [[*loaded.before, i, *loaded.after] for i in numbers]
            ids = np.array(rows, np.int32)
            lengths = np.full(len(ids), ids.shape[1], np.int32)
            return embed(ids, lengths).numpy()

        size = len(loaded.tokenizer)
        return self._kept(self.key('pieces'), size, compute)

    def _kept(
        self,
        key: str,
        count: int,
        compute: Callable[[np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """[n, W] float16 of `count` things, by what computes some."""
        parts = parts_of(
            self.folder,
            key,
            np.arange(count),
            lambda numbers: {'vectors': compute(numbers).astype(np.float16)},
        )
        vectors = np.empty((count, self.width), np.float16)
        for path, numbers in parts:
            vectors[numbers] = files.read_tensor(path, 'vectors')
        return vectors
