"""Batches of views, each a pure function of (seed, step).

Glossary of shapes: E held-out sequences.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import errors, views
from infoword_tf.data.examples import Examples
from infoword_tf.data.mixture import Mixture, mixed
from infoword_tf.data.source import StepReader
from infoword_tf.data.sources import SOURCES
from infoword_tf.data.store import Store
from infoword_tf.data.text_pairs import TextPairs
from infoword_tf.data.translations import ParallelText
from infoword_tf.objectives import TABLE
from infoword_tf.plan import Plan, SourceSpec

HELDOUT_SEED = 20190  # held-out text is masked alike in every run
HELDOUT_SEQUENCES = 512
HELDOUT_BATCH = 32

Single = Store | Examples | TextPairs | ParallelText
Text = Single | Mixture


class RunInputs(NamedTuple):
    """Text that the rows of a run read, by kind; None: no text of a kind.

    Attributes:
        text: a corpus, or a mixture of languages.
        examples, pairs, translations: labelled texts, pairs by people, texts
            of two languages.
    """

    text: Store | Mixture | None = None
    examples: Examples | None = None
    pairs: TextPairs | None = None
    translations: ParallelText | None = None

    def of(self, source_spec: SourceSpec) -> Text | None:
        """Returns the text of a source."""
        return getattr(self, source_spec.reads)


def open_source(
    store: Text,
    source_spec: SourceSpec,
    batch_size: int,
    seed: int,
    **arguments: Any,
) -> StepReader:
    """Opens a source as a plan says, for batches of `batch_size`."""
    if source_spec.source not in SOURCES:
        raise errors.InputError(
            'unknown_source',
            f'a view reads the source {source_spec.source!r}; known are '
            f'{", ".join(SOURCES)}',
        )
    kind = SOURCES[source_spec.source]
    arguments = {**dict(source_spec.arguments), **arguments}
    if isinstance(store, Mixture):
        return mixed(kind, store, batch_size, seed, **arguments)
    return kind(store, batch_size=batch_size, seed=seed, **arguments)


def open_sources(
    store: Store | Mixture | None,
    plan: Plan,
    batch_size: int,
    seed: int,
    examples: Examples | None = None,
    pairs: TextPairs | None = None,
    translations: ParallelText | None = None,
    shuffle_block: int | None = None,
) -> dict[SourceSpec, StepReader]:
    """Opens all sources of a plan, for training; see `open_source`.

    Args:
        shuffle_block: tokens of a block, of sources that shuffle by blocks.

    Raises:
        ValueError: a view reads text of a kind that is not there.
    """
    inputs = RunInputs(store, examples, pairs, translations)
    sources = {}
    for source_spec in plan.source_specs:
        text = inputs.of(source_spec)
        if text is None:
            raise errors.InputError(
                'source_without_text',
                f'the rows {", ".join(plan.readers(source_spec))} read '
                f'{source_spec.reads}, of which there is none',
            )
        kind = SOURCES[source_spec.source]
        arguments = dict(kind.in_training)
        if kind.by_blocks:
            arguments['shuffle_block'] = shuffle_block
        sources[source_spec] = open_source(
            text, source_spec, batch_size, seed, **arguments
        )
    return sources


def unmeasured(plan: Plan) -> set[str]:
    """Returns rows whose MI training batches would flatter.

    Where a batch has a text of each length, candidates are not drawn from p(b):
    the length of a text alone then tells b from all others.
    """
    return {
        row
        for source_spec in plan.source_specs
        if SOURCES[source_spec.source].by_length
        for row in plan.readers(source_spec)
        if TABLE[row].objective.contrasts
    }


@dataclasses.dataclass
class DrawnText:
    """Text of a step, with all draws so far by name and settings."""

    text: Any
    seed: int
    step: int
    draws: dict[Any, Any] = dataclasses.field(default_factory=dict)

    def draw(self, draw: views.Draw | None) -> Any:
        """Makes a draw, or returns the one of equal name and settings."""
        if draw is None:
            return None
        key = draw.name, tuple(draw.settings.items())
        if key not in self.draws:
            random = views.generator(self.seed, self.step, draw.name)
            self.draws[key] = draw.function(self.text, random, **draw.settings)
        return self.draws[key]


@dataclasses.dataclass
class Batches:
    """Global batch of every step, as views.

    Attributes:
        sources: texts by the entries of the plan.
        plan: views and draws of the run.
        specials: ids of special tokens.
        seed: number that decides the draws.
    """

    sources: Mapping[SourceSpec, StepReader]
    plan: Plan
    specials: views.Specials
    seed: int

    def draw(self, step: int) -> dict[str, tuple[Any, Any]]:
        """Draws the text of a step; returns (text, draw) of each view."""
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
        """Makes the views of drawn texts.

        Where several views show a text, the first of them counts its tokens.
        """
        made_views: dict[str, views.View] = {}
        counted = set()
        for name, view in self.plan.views.items():
            if name not in drawn:
                continue  # held-out text of one language has not all views
            text, draw = drawn[name]
            rows = {row: reads.where for row, reads in view.rows.items()}
            made_view = view.spec.make(text, draw, rows, self.specials)
            if view.source_spec not in counted:
                counted.add(view.source_spec)
                made_view = made_view._replace(
                    counts={**made_view.counts, 'tokens': text.tokens}
                )
            made_views[name] = made_view
        return made_views

    def views(self, step: int) -> dict[str, views.View]:
        """Returns the views of a step, NumPy, whole global batch."""
        return self.make(self.draw(step))

    def dataset(self, first: int, last: int) -> Any:
        """Makes a `tf.data.Dataset` of flat views of steps first to last - 1.

        Each element is a global batch, whatever the replicas: every worker
        makes all of it.
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
        # The tuner has nothing to tune, and its thread can miss the end of its
        # iterator, whose destruction then waits forever.
        options.autotune.enabled = False
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
    """Makes the held-out sequences, always the same: [E, ...] arrays.

    They depend on the text alone, not on seed, batch size or replicas of the
    run. Sequences that continue from step to step lie one step after the other.

    Args:
        store, examples, pairs, translations: texts; views whose text is None
            are omitted.
        plan: views and draws of the run.
        specials: ids of special tokens.
        most: sequences of a corpus; None: HELDOUT_SEQUENCES.

    Raises:
        ValueError: the text is shorter than one sequence.
    """
    drawn: dict[str, tuple[Any, Any]] = {}
    multiple = 1  # E is a multiple of it
    texts: dict[str, Single | None] = {
        'text': store,
        'examples': examples,
        'pairs': pairs,
        'translations': translations,
    }
    for source_spec in plan.source_specs:
        source = SOURCES[source_spec.source]
        arguments = dict(source_spec.arguments)
        text = texts[source_spec.reads]
        if text is None:
            continue
        capacity = source.capacity(text, **arguments)
        if capacity < 1:
            raise errors.InputError(
                'little_heldout_text',
                source.too_little.format(
                    tokens=len(text.ids), length=arguments['length']
                ),
            )
        batch = capacity if source.whole else min(HELDOUT_BATCH, capacity)
        if source.heldout_sequences:
            batch = multiple = source.heldout_sequences
        batches = Batches(
            {source_spec: open_source(text, source_spec, batch, HELDOUT_SEED)},
            plan,
            specials,
            HELDOUT_SEED,
        )
        steps = max(1, min(most or HELDOUT_SEQUENCES, capacity) // batch)
        draws_of_steps = [batches.draw(step) for step in range(steps)]
        for name in draws_of_steps[0]:
            pairs_of = [x[name] for x in draws_of_steps]
            drawn[name] = (
                _joined([text for text, _ in pairs_of]),
                _joined([draw for _, draw in pairs_of]),
            )
    made_views = Batches({}, plan, specials, HELDOUT_SEED).make(drawn)
    if not made_views:
        return {}
    size = max(len(view.ids) for view in made_views.values())
    size += -size % multiple
    return {name: _padded(view, size) for name, view in made_views.items()}


def _padded(view: views.View, size: int) -> views.View:
    """Adds sequences of weight 0 until a view has `size`."""
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


def _joined(batches: Sequence[Any]) -> Any:
    """Concatenates the batches of one text or draw, field by field.

    What is no array is equal in all of them.
    """
    if len(batches) > 1 and isinstance(batches[0], tuple):
        return type(batches[0])(*map(_joined, zip(*batches, strict=True)))
    if len(batches) > 1 and isinstance(batches[0], np.ndarray):
        return np.concatenate(batches)
    return batches[0]
