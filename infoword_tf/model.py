"""Encoders and the rows that train them, as one model.

In NumPy and `keras.ops` alone: no backend is imported here.

Glossary of shapes: P places of a row, J texts of a sequence.
"""

import copy
import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from keras import ops

from infoword_tf.assembly import MAIN, Assembly
from infoword_tf.encoders import Encoded, Inputs
from infoword_tf.layers import dropout
from infoword_tf.layers.block import take
from infoword_tf.objectives import (
    TABLE,
    Batch,
    Replicas,
    Statistics,
)
from infoword_tf.objectives.infonce import Outcome
from infoword_tf.tensors import Tensor
from infoword_tf.views import VIEWS, Reads, View

HELDOUT_KEY = 20190  # seed of all that is drawn for held-out text


class StateEntry(NamedTuple):
    """Entry of the state that steps hand on.

    Attributes:
        empty: arrays in a named tuple or a dict, as the first step reads them.
        per_sequence: whether each sequence of a batch has its own entry, so
            that replicas have different ones; else all replicas have the same.
    """

    empty: Any
    per_sequence: bool


class Pass(NamedTuple):
    """A pass of an encoder over a view.

    Attributes:
        encoder: name of the encoder.
        number: place among the passes of the encoder, which differ by dropout
            alone, from 0 on.
        reads: parts of the states that are read, by row.
        key: [2] uint32 of dropout; None: nothing is dropped.
    """

    encoder: str
    number: int
    reads: dict[str, Reads]
    key: Tensor | None


class Model(Assembly):
    """Encoder g_omega and the weighted objectives that train the encoder."""

    def drop(self, row: str) -> None:
        """Removes a row, as where a workdir lacks the weights of a row."""
        del self.objectives[row], self.weights[row], self.reads[row]
        del self.heldout_candidates[row]

    def with_row(self, row: str, reads: Mapping[str, Reads]) -> 'Model':
        """Returns a model of the same weights with one row, of other views."""
        copied = copy.copy(self)
        copied.objectives = {row: self.objectives[row]}
        copied.weights = {row: self.weights[row]}
        copied.reads = {row: dict(reads)}
        return copied

    def empty_state(
        self, batch: int, memory_length: int | None = None
    ) -> dict[str, StateEntry]:
        """Returns the state that the first step reads.

        'memory/VIEW' is the encoder's memory of a view of streams,
        'objectives/ROW' the state of an objective.

        Args:
            batch: B.
            memory_length: tokens of memory; None: the config's. Without any,
                and without a view of streams, no memory is in the state.
        """
        entries = {}
        if memory_length is None:
            memory_length = self.config.memory_length or 0
        off = self.encoder.has_memory and not memory_length
        if self.encoder.remembers and not off:
            for row in self.objectives:
                for name, reads in self.reads[row].items():
                    source = reads.source or VIEWS[VIEWS.root(name)].source
                    if source == 'streams' and MAIN in reads.encoders:
                        entries[f'memory/{name}'] = StateEntry(
                            self.encoder.empty_state(batch, memory_length),
                            per_sequence=True,
                        )
        for row, objective in self.objectives.items():
            if empty := objective.empty_state():
                entries[f'objectives/{row}'] = StateEntry(empty, False)
        return entries

    def advance(self, name: str, length: int) -> int | None:
        """Returns by how many tokens of T = length the next step moves on.

        None: by all. XLNet's streams move on by fewer, and read the others
        once more.
        """
        for row in self.objectives:
            if name in self.reads[row]:
                settings = self.config.rows[row].settings
                spec = VIEWS[VIEWS.root(name)]
                return spec.source_args(length, settings).get('advance')
        return None

    def encode(
        self,
        views: Mapping[str, View],
        key: Tensor | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, dict[str, dict[str, list[Encoded]]]], dict[str, Any]]:
        """Encodes each view once, at the places of all rows that read the view.

        More than once where several encoders, or several passes, are read.

        Args:
            key: [2] uint32 of the step and replica, or None without dropout.
            state: memories of the step before, by 'memory/VIEW'; a view
                without one is read without memory.

        Returns:
            By row, view and encoder, the states of each pass at the row's
            places: [B, P, D], of all tokens [B, T, D] where the row reads
            them, [B, J, P, D] of a view of J texts; and the new memories.
        """
        by_row: dict[str, Any] = {
            row: {name: {} for name in self.reads[row] if name in views}
            for row in self.objectives
        }
        state = dict(state or {})
        memories: dict[str, Any] = {}
        for name, view in views.items():
            memory = f'memory/{name}'
            for pass_ in self._passes(name, key):
                first = pass_.encoder == MAIN and not pass_.number
                states, new = self._encode_pass(
                    pass_, name, view, state.get(memory) if first else None
                )
                if first and memory in state:
                    memories.setdefault(memory, new)
                for row, encoded in states.items():
                    passes = by_row[row][name].setdefault(pass_.encoder, [])
                    passes.append(encoded)
        return by_row, memories

    def _passes(self, view: str, key: Tensor | None) -> Iterator[Pass]:
        """Yields the passes over a view, encoder by encoder.

        Without a key nothing is dropped, except for rows that read several
        passes or copies: these differ by dropout alone, so held-out text has
        it too, by one key for all batches.
        """
        reads = {
            row: self.reads[row][view]
            for row in self.objectives
            if view in self.reads[row]
        }
        groups = [(reads, key)]
        if key is None:
            dropped = {
                row: r for row, r in reads.items() if r.passes > 1 or r.dropped
            }
            plain = {row: r for row, r in reads.items() if row not in dropped}
            groups = [(plain, None), (dropped, dropout.new_key(HELDOUT_KEY))]
        for encoder, (group, group_key) in itertools.product(
            self.encoders, groups
        ):
            for number in itertools.count():
                rows = {
                    row: r
                    for row, r in group.items()
                    if encoder in r.encoders and number < r.passes
                }
                if not rows:
                    break
                one_key = self._dropout_key(group_key, encoder, view, number)
                yield Pass(encoder, number, rows, one_key)

    def _dropout_key(
        self, key: Tensor | None, encoder: str, view: str, number: int
    ) -> Tensor | None:
        """Derives the dropout key of one pass of one encoder over one view."""
        if key is None:
            return None
        if encoder == MAIN and not number:
            return dropout.fold_in(key, zlib.crc32(view.encode()))
        if encoder != MAIN and not self.auxiliaries[encoder].dropout:
            return None
        text = f'{view}/{encoder}/{number}'
        return dropout.fold_in(key, zlib.crc32(text.encode()))

    def _encode_pass(
        self, pass_: Pass, name: str, view: View, memory: Any
    ) -> tuple[dict[str, Encoded], Any]:
        """Encodes a view once; returns states by row, and the new memory."""
        encoder = self.encoders[pass_.encoder]
        texts = tuple(view.ids.shape[1:-1])  # J of each sequence, or ()
        if texts:
            view = _one_by_one(view)
        places_of = {
            row: view.places[row]
            for row, reads in pass_.reads.items()
            if row in view.places and not reads.everywhere
        }
        everywhere = len(places_of) < len(pass_.reads)
        layers_read = {reads.layers for reads in pass_.reads.values()}
        all_layers = True in layers_read or ('below' in layers_read and 'below')
        options: dict[str, Any] = {}  # those that not every encoder has
        if any(reads.where == 'queries' for reads in pass_.reads.values()):
            options['queries'] = True
        if memory is not None:
            options['state'] = memory
            options['advance'] = self.advance(name, view.ids.shape[1])
        inputs = Inputs.of(view)
        if VIEWS[VIEWS.root(name)].any_encoder:
            if 'positions' not in encoder.input_fields:
                # An encoder of relative positions computes distances itself.
                inputs = inputs._replace(positions=None)
            if encoder.arguments.get('segments', 0) < 2:
                inputs = inputs._replace(segment_ids=None)
        places = list(places_of.values())
        encoded = self._run(
            pass_.encoder,
            inputs,
            places=None if everywhere else ops.concatenate(places, axis=1),
            key=pass_.key,
            all_layers=all_layers,
            **options,
        )

        def by_text(x: Tensor) -> Tensor:
            return ops.reshape(x, (-1, *texts, *x.shape[1:])) if texts else x

        by_row = {}
        end = 0
        for row, reads in pass_.reads.items():
            states, at = encoded.states, places_of.get(row)
            if at is not None and everywhere:
                states = take(states, at)
            elif at is not None:
                begin, end = end, end + at.shape[1]
                states = states[:, begin:end]
            layers = []
            if reads.layers:
                count = encoder.depth + (reads.layers is True)
                layers = [
                    by_text(x if at is None else take(x, at))
                    for x in encoded.layers[:count]
                ]
            by_row[row] = Encoded(by_text(states), layers)
        return by_row, encoded.state

    def _run(self, encoder: str, inputs: Inputs, **options: Any) -> Encoded:
        """Calls an encoder; a frozen one gets no gradient."""
        encoded = self.encoders[encoder](inputs, **options)
        if encoder == MAIN or not self.auxiliaries[encoder].frozen:
            return encoded
        return Encoded(
            ops.stop_gradient(encoded.states),
            encoded.layers and [*map(ops.stop_gradient, encoded.layers)],
        )

    def unencoded(
        self,
        views: Mapping[str, View],
        statistics: Statistics,
        key: Tensor | None = None,
        replicas: Replicas | None = None,
        state: Mapping[str, Any] | None = None,
        limits: Mapping[str, int | None] | None = None,
    ) -> dict[str, Batch]:
        """Returns the batch of every row before anything is encoded.

        Args:
            views, statistics, key, replicas, state: arguments of `outcomes`.
            limits: limits of held-out text by row, see `Batch.limit`.
        """
        replicas, state = replicas or Replicas(), state or {}
        common = dropout.new_key(HELDOUT_KEY) if key is None else key
        return {
            row: Batch(
                views=views,
                encoded={},
                statistics=statistics,
                replicas=replicas,
                key=dropout.fold_in(common, zlib.crc32(row.encode())),
                training=key is not None,
                state=state.get(f'objectives/{row}', {}),
                limit=(limits or {}).get(row),
            )
            for row in self.objectives
        }

    def batches(
        self,
        views: Mapping[str, View],
        statistics: Statistics,
        key: Tensor | None = None,
        replicas: Replicas | None = None,
        state: Mapping[str, Any] | None = None,
        limits: Mapping[str, int | None] | None = None,
    ) -> tuple[dict[str, Batch], dict[str, Any]]:
        """Encodes a step; arguments of `unencoded`.

        Returns:
            By row, its encoded batch; and the new memories.
        """
        replicas = replicas or Replicas()
        batches = self.unencoded(
            views,
            statistics,
            key=key,
            replicas=replicas,
            state=state,
            limits=limits,
        )
        replica_key = None if key is None else dropout.fold_in(key, replicas.id)
        adapted = self.adapted()
        with adapted():
            by_row, memories = self.encode(views, replica_key, state)

        def encode(
            inputs: Inputs, encoder: str = MAIN, name: str = 'made',
            **options: Any,
        ) -> Encoded:  # fmt: skip
            one_key = self._dropout_key(replica_key, encoder, name, 0)
            with adapted():
                return self._run(encoder, inputs, key=one_key, **options)

        for row in batches:
            batches[row] = batches[row]._replace(
                encoded=by_row[row], encode=encode
            )
        return _with_scorers(batches), memories

    def outcomes(
        self,
        views: Mapping[str, View],
        statistics: Statistics,
        key: Tensor | None = None,
        replicas: Replicas | None = None,
        candidates: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        rows: Iterable[str] | None = None,
    ) -> tuple[dict[str, Outcome], dict[str, Any]]:
        """Encodes a batch and scores every row.

        Args:
            views: this replica's sequences of the global batch.
            key: [2] uint32 of the step, the same on all replicas; None: no
                dropout, and plain operations.
            candidates: candidates of held-out text, by row; the other rows take
                the batch's.
            state: state of the step before, with the names of `empty_state`.
            rows: that are scored; None: all.

        Returns:
            By row, its sums; and the state of the next step.
        """
        batches, new = self.batches(
            views,
            statistics,
            key=key,
            replicas=replicas,
            state=state,
        )
        scored = list(self.objectives if rows is None else rows)
        for row in scored:  # candidates and scores read the same vectors
            if self.objectives[row].has_vectors:
                vectors = self.objectives[row].vectors(batches[row])
                batches[row] = batches[row]._replace(vectors=vectors)
        batches = _with_scorers(batches)
        outcomes = {}
        for row in scored:
            objective, batch = self.objectives[row], batches[row]
            if candidates and row in candidates:
                pool = candidates[row]
            else:
                pool = objective.candidates(batch)
            outcomes[row] = objective.score(batch, pool)
            if f'objectives/{row}' in (state or {}):
                new[f'objectives/{row}'] = objective.update_state(batch)
        return outcomes, new

    def loss(
        self, outcomes: Mapping[str, Outcome], replicas: Replicas | None = None
    ) -> Tensor:
        """Returns the weighted sum of the rows' means over the global batch.

        Each of several replicas gets its share: the shares, and their
        gradients, add up to the whole. What a row adds unscaled counts once,
        whatever its weight.
        """
        replicas = replicas or Replicas()
        total = 0.0
        for row, outcome in outcomes.items():
            weight = ops.maximum(replicas.sum(outcome.weight), 1e-12)
            total = total + self.weights[row] * outcome.loss / weight
            if outcome.unscaled is not None:
                rest = 1.0 - self.weights[row]
                total = total + rest * outcome.unscaled / weight
        return total


def _with_scorers(batches: Mapping[str, Batch]) -> dict[str, Batch]:
    """Gives each row the batch of `Row.scored_by`, if any."""
    linked = dict(batches)
    for row, batch in batches.items():
        if scorer := TABLE[row].scored_by:
            linked[row] = batch._replace(scorer_batch=batches[scorer])
    return linked


def _one_by_one(view: View) -> View:
    """Makes a view of J texts to a sequence one of B J sequences."""

    def flat(x: Tensor) -> Tensor:
        return ops.reshape(x, (-1, x.shape[-1]))

    fields = ('ids', 'positions', 'segment_ids', 'block_ids')
    arrays = {name: getattr(view, name) for name in fields}
    return view._replace(
        **{name: flat(x) for name, x in arrays.items() if x is not None},
        places={row: flat(x) for row, x in view.places.items()},
    )
