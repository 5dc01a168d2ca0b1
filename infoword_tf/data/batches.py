"""Batches of views, each a pure function of (seed, step).

Glossary of shapes: B sequences of the global batch, E held-out sequences,
T tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infoword_tf import sampling, views
from infoword_tf.data.store import Store
from infoword_tf.data.windows import WindowSource

HELDOUT_SEED = 20190  # held-out text is cut and masked alike in every run
HELDOUT_SEQUENCES = 512
HELDOUT_BATCH = 32


class Batches:
    """The global batch of every step, as views."""

    def __init__(
        self,
        source: WindowSource,
        rows: Mapping[str, Mapping[str, str]],
        masking: str,
        specials: views.Specials,
        seed: int,
    ):
        """Sets what is drawn.

        Args:
            source: text by step.
            rows: by row, what it wants of which views (`Row.views`).
            masking: name in sampling.MASKINGS.
            specials: of the vocabulary.
            seed: of the draws.
        """
        self.source, self.masking = source, masking
        self.specials, self.seed = specials, seed
        self.rows: dict[str, dict[str, str]] = {}
        for row, wanted in rows.items():
            for view, what in wanted.items():
                self.rows.setdefault(view, {})[row] = what

    def draw(self, step: int) -> tuple[sampling.Windows, sampling.Masking]:
        """The text of a step and what is hidden of it."""
        windows = self.source.batch(step)
        random = sampling.generator(self.seed, step, self.masking)
        return windows, sampling.MASKINGS[self.masking](windows, random)

    def make(
        self, windows: sampling.Windows, draw: sampling.Masking
    ) -> dict[str, views.View]:
        """The views of a text."""
        return {
            name: views.VIEWS[name](windows, draw, rows, self.specials)
            for name, rows in self.rows.items()
        }

    def views(self, step: int) -> dict[str, views.View]:
        """The views of a step, NumPy, whole global batch."""
        return self.make(*self.draw(step))

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
    room = len(store.ids) // length - 1
    if room < 1:
        raise ValueError(
            f'the held-out text has {len(store.ids):,} tokens, less than two '
            f'sequences of {length}; hold out more (--heldout), or lower '
            '--seq_len'
        )
    batch = min(HELDOUT_BATCH, room)
    source = WindowSource(store, length, batch, HELDOUT_SEED)
    batches = Batches(source, rows, masking, specials, HELDOUT_SEED)
    steps = min(HELDOUT_SEQUENCES, room) // batch
    parts = [batches.draw(step) for step in range(steps)]
    windows, draw = map(_joined, zip(*parts, strict=True))
    return batches.make(windows, draw)


def _joined(parts: Sequence[Any]) -> Any:
    """Named tuples of arrays [B, ...] as one, None staying None."""
    fields = zip(*parts, strict=True)
    return type(parts[0])(
        *(None if x[0] is None else np.concatenate(x) for x in fields)
    )
