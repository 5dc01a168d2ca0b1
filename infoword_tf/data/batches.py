"""Batches of views, each a pure function of (seed, step).

Glossary of shapes: B sequences of the global batch, E held-out sequences,
T tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infoword_tf import sampling, views
from infoword_tf.data.passages import DocumentSource
from infoword_tf.data.store import Store
from infoword_tf.data.windows import WindowSource

HELDOUT_SEED = 20190  # held-out text is cut and masked alike in every run
HELDOUT_SEQUENCES = 512
HELDOUT_BATCH = 32


SOURCES = {'windows': WindowSource, 'documents': DocumentSource}


def open_sources(
    store: Store,
    length: int,
    batch_size: int,
    rows: Mapping[str, Mapping[str, str]],
    seed: int,
) -> dict[str, Any]:
    """The sources that the views of some rows read, by name.

    Args:
        store: the text.
        length: T - 2 tokens of each text.
        batch_size: B.
        rows: as in `Batches`.
        seed: of the order of the text.

    Raises:
        ValueError: there is less text than a batch takes.
    """
    return {
        name: SOURCES[name](store, length, batch_size, seed)
        for name in source_names(rows)
    }


def source_names(rows: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Names in SOURCES that the views of some rows read."""
    return sorted(
        {views.VIEWS[view].source for row in rows.values() for view in row}
    )


class Batches:
    """The global batch of every step, as views."""

    def __init__(
        self,
        sources: Mapping[str, Any],
        rows: Mapping[str, Mapping[str, str]],
        masking: str,
        specials: views.Specials,
        seed: int,
    ):
        """Sets what is drawn.

        Args:
            sources: text by step, as `open_sources` has it.
            rows: by row, what it wants of which views (`Row.views`).
            masking: name in sampling.MASKINGS.
            specials: of the vocabulary.
            seed: of the draws.
        """
        self.sources = sources
        self.specials, self.seed = specials, seed
        self.draws = {
            'windows': (masking, sampling.MASKINGS[masking]),
            'documents': ('cloze', sampling.cloze),
        }
        self.rows: dict[str, dict[str, str]] = {}
        for row, wanted in rows.items():
            for view, what in wanted.items():
                self.rows.setdefault(view, {})[row] = what

    def draw(self, step: int) -> dict[str, tuple[Any, Any]]:
        """By source, the text of a step and what was drawn in it."""
        drawn = {}
        for name, source in self.sources.items():
            what, function = self.draws[name]
            text = source.batch(step)
            random = sampling.generator(self.seed, step, what)
            drawn[name] = text, function(text, random)
        return drawn

    def make(
        self, drawn: Mapping[str, tuple[Any, Any]]
    ) -> dict[str, views.View]:
        """The views of what was drawn."""
        return {
            name: views.VIEWS[name].make(
                *drawn[views.VIEWS[name].source], rows, self.specials
            )
            for name, rows in self.rows.items()
        }

    def views(self, step: int) -> dict[str, views.View]:
        """The views of a step, NumPy, whole global batch."""
        return self.make(self.draw(step))

    def dataset(self, first: int, last: int) -> Any:
        """A `tf.data.Dataset` of the flat views of steps first to last - 1."""
        import tensorflow as tf

        example = views.flatten(self.views(first))
        names = list(example)

        def make(step: np.ndarray) -> list[np.ndarray]:
            flat = views.flatten(self.views(int(step)))
            return [flat[name] for name in names]

        def load(step: tf.Tensor) -> dict[str, tf.Tensor]:
            arrays = tf.numpy_function(
                make, [step], [example[name].dtype for name in names]
            )
            for name, array in zip(names, arrays, strict=True):
                array.set_shape(example[name].shape)
            return dict(zip(names, arrays, strict=True))

        dataset = tf.data.Dataset.range(first, last)
        dataset = dataset.map(load, num_parallel_calls=2, deterministic=True)
        options = tf.data.Options()
        # There is nothing to tune, and the tuner's thread can miss the end of
        # its iterator: destroying that then waits forever.
        options.autotune.enabled = False
        # Every worker makes the global batch and keeps its own rows.
        options.experimental_distribute.auto_shard_policy = (
            tf.data.experimental.AutoShardPolicy.DATA
        )
        return dataset.with_options(options).prefetch(4)


def heldout_views(
    store: Store,
    length: int,
    rows: Mapping[str, Mapping[str, str]],
    masking: str,
    specials: views.Specials,
) -> dict[str, views.View]:
    """The held-out sequences, always the same ones: [E, ...] arrays.

    They depend on the text alone, not on the run's seed, batch size or
    replicas.

    Args:
        store: held-out text.
        length: L.
        rows, masking, specials: as in `Batches`.

    Raises:
        ValueError: there is less text than one sequence.
    """
    drawn: dict[str, tuple[Any, Any]] = {}
    for name in source_names(rows):
        room = SOURCES[name].room(store, length)
        if room < 1:
            raise ValueError(_TOO_LITTLE[name].format(len(store.ids), length))
        batch = min(HELDOUT_BATCH, room)
        sources = {name: SOURCES[name](store, length, batch, HELDOUT_SEED)}
        batches = Batches(sources, {}, masking, specials, HELDOUT_SEED)
        steps = min(HELDOUT_SEQUENCES, room) // batch
        parts = [batches.draw(step)[name] for step in range(steps)]
        text, draw = map(_joined, zip(*parts, strict=True))
        drawn[name] = text, draw
    made = Batches({}, rows, masking, specials, HELDOUT_SEED).make(drawn)
    most = max(len(view.ids) for view in made.values())
    return {name: _padded(view, most) for name, view in made.items()}


_TOO_LITTLE = {
    'windows': 'the held-out text has {:,} tokens, less than two sequences of '
    '{}; hold out more (--heldout), or lower --seq_len',
    'documents': 'the held-out text of {:,} tokens has no document of two '
    'sentences; hold out more (--heldout)',
}


def _padded(view: views.View, size: int) -> views.View:
    """A view with more sequences, which weigh nothing.

    Sources hold out different numbers of texts; the views of a batch are of
    one size.
    """
    lacking = size - len(view.ids)
    if not lacking:
        return view
    flat = views.flatten({'view': view})
    for name, array in flat.items():
        more = np.repeat(array[-1:], lacking, axis=0)
        if '/weights/' in name or '/counts/' in name:
            more = np.zeros_like(more)
        flat[name] = np.concatenate([array, more])
    flat['view/sequences'] = np.arange(size, dtype=np.int32)
    return views.unflatten(flat)['view']


def _joined(parts: Sequence[Any]) -> Any:
    """Named tuples of arrays [B, ...] as one, None staying None."""
    fields = zip(*parts, strict=True)
    return type(parts[0])(
        *(None if x[0] is None else np.concatenate(x) for x in fields)
    )
