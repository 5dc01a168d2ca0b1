"""Batches of views, each a pure function of (seed, step).

Glossary of shapes: B sequences of the global batch, E held-out sequences,
T tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infoword_tf import sampling, views
from infoword_tf.data.pairs import NextPairSource, PairSource
from infoword_tf.data.passages import DocumentSource
from infoword_tf.data.store import Store
from infoword_tf.data.streams import StreamSource
from infoword_tf.data.windows import WindowSource
from infoword_tf.plan import Plan

HELDOUT_SEED = 20190  # held-out text is cut and masked alike in every run
HELDOUT_SEQUENCES = 512
HELDOUT_BATCH = 32


SOURCES = {
    'windows': WindowSource,
    'documents': DocumentSource,
    'pairs': PairSource,
    'next_pairs': NextPairSource,
    'streams': StreamSource,
}


def open_sources(
    store: Store, plan: Plan, batch_size: int, seed: int
) -> dict[str, Any]:
    """The sources that a plan reads, by name.

    Args:
        store: the text.
        plan: of the run.
        batch_size: B.
        seed: of the order of the text.

    Raises:
        ValueError: there is less text than a batch takes.
    """
    return {
        name: SOURCES[name](store, batch_size=batch_size, seed=seed, **how)
        for name, how in plan.reading.items()
    }


class Batches:
    """The global batch of every step, as views."""

    def __init__(
        self,
        sources: Mapping[str, Any],
        plan: Plan,
        specials: views.Specials,
        seed: int,
    ):
        """Sets what is drawn.

        Args:
            sources: text by step, as `open_sources` has it.
            plan: what its rows want of it.
            specials: of the vocabulary.
            seed: of the draws.
        """
        self.sources, self.plan = sources, plan
        self.specials, self.seed = specials, seed

    def draw(self, step: int) -> dict[str, tuple[Any, Any]]:
        """By source, the text of a step and what was drawn in it."""
        drawn = {}
        for name, source in self.sources.items():
            text = source.batch(step)
            if name not in self.plan.draws:
                drawn[name] = text, None
                continue
            what, function = self.plan.draws[name]
            random = sampling.generator(self.seed, step, what)
            drawn[name] = text, function(text, random)
        return drawn

    def make(
        self, drawn: Mapping[str, tuple[Any, Any]]
    ) -> dict[str, views.View]:
        """The views of what was drawn."""
        return {
            name: views.VIEWS[name].make(
                *drawn[self.plan.sources[name]], rows, self.specials
            )
            for name, rows in self.plan.rows.items()
        }

    def views(self, step: int) -> dict[str, views.View]:
        """The views of a step, NumPy, whole global batch."""
        return self.make(self.draw(step))

    def dataset(self, first: int, last: int) -> Any:
        """A `tf.data.Dataset` of the flat views of steps first to last - 1.

        Of global batches, whatever the replicas: each worker makes them all.
        """
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
        return dataset.with_options(options).prefetch(4)


def heldout_views(
    store: Store, plan: Plan, specials: views.Specials
) -> dict[str, views.View]:
    """The held-out sequences, always the same ones: [E, ...] arrays.

    They depend on the text alone, not on the run's seed, batch size or
    replicas. Rows that go on from step to step lie one step behind the other.

    Args:
        store: held-out text.
        plan, specials: as in `Batches`.

    Raises:
        ValueError: there is less text than one sequence.
    """
    drawn: dict[str, tuple[Any, Any]] = {}
    whole = 1  # E is a multiple of it
    for name, how in plan.reading.items():
        source = SOURCES[name]
        room = source.room(store, **how)
        if room < 1:
            raise ValueError(
                _TOO_LITTLE[name].format(len(store.ids), how['length'])
            )
        batch = min(HELDOUT_BATCH, room)
        if hasattr(source, 'heldout_rows'):
            batch = whole = source.heldout_rows
        sources = {
            name: source(store, batch_size=batch, seed=HELDOUT_SEED, **how)
        }
        batches = Batches(sources, plan, specials, HELDOUT_SEED)
        steps = min(HELDOUT_SEQUENCES, room) // batch
        parts = [batches.draw(step)[name] for step in range(steps)]
        text, draw = map(_joined, zip(*parts, strict=True))
        drawn[name] = text, draw
    made = Batches({}, plan, specials, HELDOUT_SEED).make(drawn)
    most = max(len(view.ids) for view in made.values())
    most += -most % whole
    return {name: _padded(view, most) for name, view in made.items()}


_NO_PAIRS = (
    'the held-out text of {:,} tokens has no two documents of two sentences; '
    'hold out more (--heldout)'
)
_TOO_LITTLE = {
    'windows': 'the held-out text has {:,} tokens, less than two sequences of '
    '{}; hold out more (--heldout), or lower --seq_len',
    'documents': 'the held-out text of {:,} tokens has no document of two '
    'sentences; hold out more (--heldout)',
    'pairs': _NO_PAIRS,
    'next_pairs': _NO_PAIRS,
    'streams': 'the held-out text has {:,} tokens, too few for 8 rows of {}; '
    'hold out more (--heldout), or lower --seq_len',
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
    if parts[0] is None:
        return None

    def join(field: Sequence[Any]) -> Any:
        if field[0] is None:
            return None
        nested = isinstance(field[0], tuple)
        return _joined(field) if nested else np.concatenate(field)

    return type(parts[0])(*map(join, zip(*parts, strict=True)))
