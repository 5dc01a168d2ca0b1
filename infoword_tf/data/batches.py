"""Batches of views, each a pure function of (seed, step).

Glossary of shapes: B sequences of the global batch, E held-out sequences,
T tokens.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import views
from infoword_tf.data.examples import Examples
from infoword_tf.data.mixture import Mixture, mixed
from infoword_tf.data.service import Service
from infoword_tf.data.source import Source
from infoword_tf.data.sources import SOURCES
from infoword_tf.data.store import Store
from infoword_tf.data.text_pairs import TextPairs
from infoword_tf.data.translations import ParallelText
from infoword_tf.plan import Plan, SourceSpec

HELDOUT_SEED = 20190  # held-out text is cut and masked alike in every run
HELDOUT_SEQUENCES = 512
HELDOUT_BATCH = 32


Text = Store | Mixture | Examples | TextPairs | ParallelText


class Inputs(NamedTuple):
    """All that the rows of a run may read; None: there is none.

    Attributes:
        text: a corpus, or those of several languages.
        examples: labelled ones.
        pairs: texts that people have paired.
        translations: texts of two languages.
    """

    text: Store | Mixture | None = None
    examples: Examples | None = None
    pairs: TextPairs | None = None
    translations: ParallelText | None = None

    def of(self, source_spec: SourceSpec) -> Text | None:
        """What a source reads."""
        return getattr(self, source_spec.reads)


def open_source(
    store: Text,
    source_spec: SourceSpec,
    batch_size: int,
    seed: int,
    **arguments: Any,
) -> Source:
    """A source, read as a plan says."""
    if source_spec.source not in SOURCES:
        raise ValueError(
            f'a view reads the source {source_spec.source!r}; known are '
            f'{", ".join(SOURCES)}'
        )
    kind = SOURCES[source_spec.source]
    if isinstance(store, Mixture):
        kind = functools.partial(mixed, kind)
    return kind(
        store,
        batch_size=batch_size,
        seed=seed,
        **dict(source_spec.arguments),
        **arguments,
    )


def open_sources(
    store: Store | Mixture | None,
    plan: Plan,
    batch_size: int,
    seed: int,
    examples: Examples | None = None,
    pairs: TextPairs | None = None,
    translations: ParallelText | None = None,
    shuffle_block: int | None = None,
) -> dict[SourceSpec, Source]:
    """All that a plan reads, to be trained on; see `open_source`.

    Args:
        shuffle_block: tokens of a block, of sources that are read so.
    """
    inputs = Inputs(store, examples, pairs, translations)
    found = {}
    for source_spec in plan.source_specs:
        kind = SOURCES[source_spec.source]
        arguments = dict(kind.in_training)
        if kind.by_blocks:
            arguments['shuffle_block'] = shuffle_block
        found[source_spec] = open_source(
            inputs.of(source_spec), source_spec, batch_size, seed, **arguments
        )
    return found


@dataclasses.dataclass
class DrawnText:
    """A text, the global batch of a step, and what was drawn in it."""

    text: Any
    seed: int
    step: int
    found: dict[Any, Any] = dataclasses.field(default_factory=dict)

    def draw(self, draw: views.Draw | None) -> Any:
        """What a draw gives; of the same name and settings, the same."""
        if draw is None:
            return None
        key = draw.name, tuple(draw.settings.items())
        if key not in self.found:
            random = views.generator(self.seed, self.step, draw.name)
            self.found[key] = draw.function(self.text, random, **draw.settings)
        return self.found[key]


@dataclasses.dataclass
class Batches:
    """The global batch of every step, as views.

    Attributes:
        sources, plan, specials: what is read, and how.
        seed: of the draws.
        service: who makes them, while anybody answers; None: this process.
    """

    sources: Mapping[SourceSpec, Source]
    plan: Plan
    specials: views.Specials
    seed: int
    service: Service | None = None

    def draw(self, step: int) -> dict[str, tuple[Any, Any]]:
        """By view, the text of a step and what was drawn in it."""
        drawn = {
            source_spec: DrawnText(source.batch(step), self.seed, step)
            for source_spec, source in self.sources.items()
        }
        return {
            name: (drawn[v.source_spec].text, drawn[v.source_spec].draw(v.draw))
            for name, v in self.plan.views.items()
            if v.source_spec in drawn
        }

    def make(
        self, drawn: Mapping[str, tuple[Any, Any]]
    ) -> dict[str, views.View]:
        """The views of what was drawn.

        However many views show a text, the first of them counts its tokens.
        """
        made_views: dict[str, views.View] = {}
        counted = set()
        for name, view in self.plan.views.items():
            if name not in drawn:
                continue  # held-out text of one language has not all views
            text, draw = drawn[name]
            rows = {row: reads.where for row, reads in view.rows.items()}
            made = view.spec.make(text, draw, rows, self.specials)
            if view.source_spec not in counted:
                counted.add(view.source_spec)
                made = made._replace(
                    counts={**made.counts, 'tokens': text.tokens}
                )
            made_views[name] = made
        return made_views

    def views(self, step: int) -> dict[str, views.View]:
        """The views of a step, NumPy, whole global batch."""
        return self.make(self.draw(step))

    def flat(self, step: int) -> dict[str, np.ndarray]:
        """The same by flat names, from whoever makes them."""
        found = self.service and self.service.batch(step)
        return views.flatten(self.views(step)) if found is None else found

    def dataset(self, first: int, last: int) -> Any:
        """A `tf.data.Dataset` of the flat views of steps first to last - 1.

        Of global batches, whatever the replicas: each worker makes them all.
        """
        import tensorflow as tf

        example = views.flatten(self.views(first))
        names = list(example)

        def make(step: np.ndarray) -> list[np.ndarray]:
            flat = self.flat(int(step))
            return [flat[name] for name in names]

        def load(step: tf.Tensor) -> dict[str, tf.Tensor]:
            arrays = tf.numpy_function(
                make, [step], [example[name].dtype for name in names]
            )
            for name, array in zip(names, arrays, strict=True):
                array.set_shape(example[name].shape)
            return dict(zip(names, arrays, strict=True))

        dataset = tf.data.Dataset.range(first, last)
        calls = 2 * (len(self.service.addresses) if self.service else 1)
        dataset = dataset.map(
            load, num_parallel_calls=calls, deterministic=True
        )
        options = tf.data.Options()
        # There is nothing to tune, and the tuner's thread can miss the end of
        # its iterator: destroying that then waits forever.
        options.autotune.enabled = False
        if self.service:
            # Threads that wait for answers are not those of the step.
            options.threading.private_threadpool_size = calls
        return dataset.with_options(options).prefetch(4)


def heldout_views(
    store: Store | None,
    plan: Plan,
    specials: views.Specials,
    examples: Examples | None = None,
    pairs: TextPairs | None = None,
    translations: ParallelText | None = None,
    most: int | None = None,
) -> dict[str, views.View]:
    """The held-out sequences, always the same ones: [E, ...] arrays.

    They depend on the text alone, not on the run's seed, batch size or
    replicas. Rows that go on from step to step lie one step after the other.

    Args:
        store, plan, specials, examples, pairs, translations: what is read,
            and how. Views of what is not there are left out.
        most: sequences of a corpus; None: HELDOUT_SEQUENCES.

    Raises:
        ValueError: there is less text than one sequence.
    """
    drawn: dict[str, tuple[Any, Any]] = {}
    multiple = 1  # of which E is one
    inputs = Inputs(store, examples, pairs, translations)
    for source_spec in plan.source_specs:
        source = SOURCES[source_spec.source]
        arguments = dict(source_spec.arguments)
        read = inputs.of(source_spec)
        if read is None:
            continue
        capacity = source.capacity(read, **arguments)
        if capacity < 1:
            raise ValueError(
                source.too_little.format(
                    tokens=len(read.ids), length=arguments['length']
                )
            )
        batch = capacity if source.whole else min(HELDOUT_BATCH, capacity)
        if source.heldout_rows:
            batch = multiple = source.heldout_rows
        batches = Batches(
            {source_spec: open_source(read, source_spec, batch, HELDOUT_SEED)},
            plan,
            specials,
            HELDOUT_SEED,
        )
        steps = max(1, min(most or HELDOUT_SEQUENCES, capacity) // batch)
        parts = [batches.draw(step) for step in range(steps)]
        for name in parts[0]:
            texts, draws = zip(*(part[name] for part in parts), strict=True)
            drawn[name] = _joined(texts), _joined(draws)
    made = Batches({}, plan, specials, HELDOUT_SEED).make(drawn)
    if not made:
        return {}
    size = max(len(view.ids) for view in made.values())
    size += -size % multiple
    return {name: _padded(view, size) for name, view in made.items()}


def _padded(view: views.View, size: int) -> views.View:
    """A view with more sequences, which weigh nothing."""
    lacking = size - len(view.ids)
    if not lacking:
        return view
    flat = views.flatten({'view': view})
    for name, array in flat.items():
        more = np.repeat(array[-1:], lacking, axis=0)
        if '/weights/' in name or '/counts/' in name:
            more = np.zeros_like(more)
        flat[name] = np.concatenate([array, more])
    if view.sequences.ndim == 1:
        flat['view/sequences'] = np.arange(size, dtype=np.int32)
    else:
        flat['view/sequences'][-lacking:] = -1
    return views.unflatten(flat)['view']


def _joined(parts: Sequence[Any]) -> Any:
    """Batches of one text or draw as one: arrays, and tuples of them.

    What is no array is the same of all.
    """
    if len(parts) > 1 and isinstance(parts[0], tuple):
        return type(parts[0])(*map(_joined, zip(*parts, strict=True)))
    if len(parts) > 1 and isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return parts[0]
