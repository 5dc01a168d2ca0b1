"""Encoders and the rows that train them, as one model.

In NumPy and `keras.ops` alone: no backend is imported here.

Glossary of shapes: P places of a row, J texts of a sequence.
"""

import contextlib
import copy
import functools
import itertools
import math
import pathlib
import zlib
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
)
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from infoword_tf import adapters, files
from infoword_tf.config import Config, DenseConfig, FlowConfig
from infoword_tf.critics import CRITICS
from infoword_tf.encoders import ENCODERS, Encoded, Encoder, Inputs
from infoword_tf.errors import InputError
from infoword_tf.layers import dropout
from infoword_tf.layers.block import take
from infoword_tf.layers.dense import Dense
from infoword_tf.layers.flow import Flow
from infoword_tf.lazy import instead
from infoword_tf.objectives import (
    TABLE,
    Batch,
    Copy,
    Objective,
    Replicas,
    Statistics,
    check_settings,
    decided,
)
from infoword_tf.objectives.infonce import Outcome
from infoword_tf.objectives.objective import Shared
from infoword_tf.resolve import auxiliaries_of
from infoword_tf.tensors import Tensor
from infoword_tf.views import VIEWS, Reads, Specials, View, root

MAIN = 'encoder'  # the encoder that is trained, and exported
HELDOUT_KEY = 20190  # seed of all that is drawn for held-out text
# Devlin et al. 2019 draw from a normal of 0.02 truncated at two deviations; so
# does the base size, and a narrower one draws wider, see `initialise`.
WEIGHT_DEVIATION, BASE_WIDTH = 0.02, 768


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


class Model:
    """Encoder g_omega and the weighted objectives that train the encoder.

    Attributes:
        config: content of a workdir's `config.json`.
        encoders: encoders by name; 'encoder' is the one that is trained and
            exported.
        auxiliaries: descriptions of the other encoders, by name.
        auxiliary_rows: objectives of the workdir that an auxiliary encoder
            begins with, by its name.
        objectives: objective layers by row.
        weights: factors in the sum, by row.
        reads: parts of a view that a row reads, by row and view.
        heldout_candidates: M of held-out text, by row, see `Row`.
        dense: layers over the vector of a text.
        critics: heads of critics, by name.
        adapters: adapters of the encoder, whose weights stay then; None: none.
    """

    def __init__(
        self,
        config: Config,
        specials: Specials,
        seed: int | None = 0,
        auxiliaries: bool = True,
        deviation: float | None = None,
        encoded: bool = True,
    ):
        """Builds the model and draws the weights.

        Args:
            seed: seed of the initial weights, which are the same on each
                backend; None: the caller sets the weights.
            auxiliaries: whether encoders that only training needs are built.
            deviation: deviation of the initial weights; None: that of
                `initialise`.
            encoded: whether encoders have weights; without them only heads
                can be looked at.

        Raises:
            ValueError: two rows declare different encoders of one name.
        """
        self.config = config
        settings = {row: entry.settings for row, entry in config.rows.items()}
        self.auxiliaries = auxiliaries_of(settings) if auxiliaries else {}
        self.encoders: dict[str, Encoder] = {}
        self.auxiliary_rows: dict[str, dict[str, Objective]] = {}
        for name in (MAIN, *self.auxiliaries):
            source, policy = config, config.precision
            changes: Mapping[str, Any] = {}
            if name == MAIN and config.adapter is not None:
                policy = adapters.policy_of(policy, config.adapter.frozen)
            if name != MAIN:
                auxiliary = self.auxiliaries[name]
                changes = auxiliary.arguments
                if auxiliary.workdir:
                    source = _config_of(name, auxiliary.workdir, config)
            encoder = ENCODERS[source.encoder.name](
                **{**source.encoder.arguments, **changes},
                dtype=policy,
                name=name,
            )
            encoder.set_special_tokens(specials)
            if encoded:
                encoder.build()
            self.encoders[name] = encoder
            if source is not config:
                self.auxiliary_rows[name] = _objectives(
                    source, encoder, specials, config.precision, (name,)
                )
        self.adapters = None
        if config.adapter is not None:
            self.adapters = adapters.Adapters(self.encoder, config.adapter)
        self.objectives = _objectives(
            config, self.encoder, specials, config.precision
        )
        self.weights: dict[str, float] = {}
        self.reads: dict[str, dict[str, Reads]] = {}
        self.heldout_candidates: dict[str, int | None] = {}
        for row, entry in config.rows.items():
            self.weights[row] = entry.weight
            self.reads[row] = TABLE[row].reads(
                entry.settings, self.encoder.contextual
            )
            self.heldout_candidates[row] = decided(
                TABLE[row].heldout_candidates, entry.settings
            )
        for row, objective in self.objectives.items():
            if scorer := TABLE[row].scored_by:
                objective.set_scorer(self.objectives[scorer])
            objective.set_encoders(self.encoders, self.auxiliary_rows)
        self.dense: list[Dense | Flow] = []
        width = self.encoder.width
        for i, layer in enumerate(config.dense):
            self.dense.append(_dense(layer, width, f'dense_{i}'))
            self.dense[-1].build()
            width = layer.width
        self.critics: dict[str, Any] = {}
        for name, critic in CRITICS.items():
            if (entry := critic.of(config)) is not None:
                self.critics[name] = critic.make_head(
                    entry, Shared(self.encoder), specials, config.precision
                )
                self.critics[name].build()
        for objective in self.objectives.values():
            objective.set_critics(self.critics)
            objective.set_dense(self.dense)
        if seed is not None:
            self.draw_weights(seed, deviation)

    def draw_weights(self, seed: int, deviation: float | None = None) -> None:
        """Draws all matrices, and copies the weights that start as others.

        Raises:
            ValueError, FileNotFoundError: a workdir that a row or an auxiliary
                encoder begins with cannot be read, or does not fit.
        """
        fresh = self.variables
        if self.adapters is not None:  # then --init has the encoder's
            stay = {weight.path for weight in self.encoder.weights}
            fresh = {k: x for k, x in fresh.items() if k not in stay}
        initialise(fresh, seed, self.encoder.width, deviation)
        if self.adapters is not None:
            self.adapters.reset()
        for objective in self.objectives.values():
            first = objective.initial_weights()
            files.assign(
                {path: self.variables[path] for path in first},
                first,
                f'what {objective.row} begins with',
            )
        self.read_auxiliaries()
        self.assign_copies()

    def read_auxiliaries(self) -> None:
        """Reads the weights of auxiliary encoders that start from a workdir."""
        for name, auxiliary in self.auxiliaries.items():
            if not auxiliary.workdir:
                continue
            tensors = adapters.open_weights(pathlib.Path(auxiliary.workdir))
            layers = [self.encoders[name], *self.auxiliary_rows[name].values()]
            variables = {
                p.removeprefix(f'{name}/')
                if p.startswith(f'{name}/objectives/')
                else f'encoder/{p.removeprefix(f"{name}/")}': variable
                for p, variable in self._paths(layers).items()
            }
            needed = {p: x for p, x in tensors.items() if p in variables}
            files.assign(variables, needed, auxiliary.workdir)

    def assign_copies(self, except_for: Collection[str] = ()) -> None:
        """Sets auxiliaries and copied weights of rows to the source weights.

        Args:
            except_for: paths of weights that --init has set, which stay.
        """
        for name, auxiliary in self.auxiliaries.items():
            if auxiliary.copied or auxiliary.momentum is not None:
                for copied, source in self._with_sources(name):
                    copied.assign(source)
        for weight, source, _ in self.copies:
            if weight.path not in except_for:
                weight.assign(source)

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

    @property
    def encoder(self) -> Encoder:
        """Encoder that is trained and exported."""
        return self.encoders[MAIN]

    @property
    def variables(self) -> dict[str, keras.Variable]:
        """All weights by path, the encoder's first."""
        others = [
            o for rows in self.auxiliary_rows.values() for o in rows.values()
        ]
        return self._paths([*self.encoders.values(), *self._heads, *others])

    @property
    def trainable(self) -> dict[str, keras.Variable]:
        """Weights that gradients change, by path."""
        encoders = self._encoders_that(lambda auxiliary: not auxiliary.frozen)
        weights = self._paths([*encoders, *self._heads])
        return {path: x for path, x in weights.items() if x.trainable}

    @property
    def no_decay(self) -> set[str]:
        """Paths of weights that objectives exempt from decay."""
        return set().union(*(o.no_decay for o in self.objectives.values()))

    @property
    def checkpointed(self) -> dict[str, keras.Variable]:
        """Weights that checkpoints hold, by path."""
        saved = self._encoders_that(lambda auxiliary: auxiliary.saved)
        others = [
            objective
            for name, rows in self.auxiliary_rows.items()
            if self.auxiliaries[name].saved
            for objective in rows.values()
        ]
        return self._paths([*saved, *self._heads, *others])

    @property
    def inherited(self) -> dict[str, keras.Variable]:
        """Weights that answers depend on, which --init may set, by path."""
        not_exported = set().union(
            *(o.not_exported for o in self.objectives.values())
        )
        weights = self._paths([self.encoder, *self._heads])
        return {
            path: x for path, x in weights.items() if path not in not_exported
        }

    @property
    def exported(self) -> dict[str, keras.Variable]:
        """Weights that a workdir and exports hold, by path.

        A workdir of adapters holds no weight of the encoder.
        """
        weights = self.inherited
        if self.adapters is not None:
            for weight in self.encoder.weights:
                del weights[weight.path]
        return weights

    @property
    def copies(self) -> list[Copy]:
        """Weights of rows that start as copies of others."""
        return [
            copy
            for objective in self.objectives.values()
            for copy in objective.copied_weights()
        ]

    @property
    def momenta(self) -> dict[str, float]:
        """Momentum of each auxiliary encoder that is a moving average."""
        return {
            name: auxiliary.momentum
            for name, auxiliary in self.auxiliaries.items()
            if auxiliary.momentum is not None
        }

    @property
    def averages(self) -> dict[str, list[tuple[Any, Any]]]:
        """Maps each momentum encoder to (weight, online weight) pairs.

        Weights of rows that are averaged with it are among them.
        """
        return {
            name: [
                *self._with_sources(name),
                *(c[:2] for c in self.copies if c.follows == name),
            ]
            for name in self.momenta
        }

    def _with_sources(self, name: str) -> list[tuple[Any, Any]]:
        """Pairs weights of an auxiliary encoder with the weights followed."""
        weights = self.encoders[name].weights
        return list(zip(weights, self.encoder.weights, strict=True))

    def _encoders_that(self, condition: Callable[..., bool]) -> list[Encoder]:
        """Returns auxiliaries that meet a condition, and the main encoder.

        Without the main encoder if its weights stay.
        """
        return [
            encoder
            for name, encoder in self.encoders.items()
            if (self.adapters is None if name == MAIN
                else condition(self.auxiliaries[name]))
        ]  # fmt: skip

    @property
    def _heads(self) -> list[Any]:
        changes = [] if self.adapters is None else [self.adapters]
        return [
            *changes, *self.objectives.values(), *self.dense,
            *self.critics.values(),
        ]  # fmt: skip

    def adapted(self) -> Callable[[], contextlib.AbstractContextManager]:
        """Computes the adapted kernels of the encoder, if any.

        Returns:
            A function that makes scopes in which the encoder has them.
        """
        if self.adapters is None:
            return contextlib.nullcontext
        return functools.partial(instead, self.adapters.values())

    @staticmethod
    def _paths(layers: list[Any]) -> dict[str, keras.Variable]:
        weights = {}
        for layer in layers:
            for variable in layer.weights:
                if variable.path in weights:
                    raise InputError(
                        'two_weights_of_one_name',
                        f'two weights are called {variable.path}',
                    )
                weights[variable.path] = variable
        return weights

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
                    source = reads.source or VIEWS[root(name)].source
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
                arguments = VIEWS[root(name)].source_args(length, settings)
                return arguments.get('advance')
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
        if VIEWS[root(name)].any_encoder:
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
            list(map(ops.stop_gradient, encoded.layers)),
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
                views,
                {},
                statistics,
                replicas,
                dropout.fold_in(common, zlib.crc32(row.encode())),
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
            views, statistics, key, replicas, state, limits
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
        for row in batches:
            if scorer := TABLE[row].scored_by:
                batches[row] = batches[row]._replace(
                    scorer_batch=batches[scorer]
                )
        return batches, memories

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
        batches, new = self.batches(views, statistics, key, replicas, state)
        outcomes = {}
        for row in self.objectives if rows is None else rows:
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


def _objectives(
    config: Config,
    encoder: Encoder,
    specials: Specials,
    precision: str,
    where: tuple[str, ...] = (),
) -> dict[str, Objective]:
    """Builds the objective of each row; `where` prefixes paths of weights."""
    check_settings({row: entry.settings for row, entry in config.rows.items()})
    objectives = {}
    for row, entry in config.rows.items():
        kind = TABLE[row].objective
        fields = {k: v for k, v in entry.settings.items() if k in kind.settings}
        objectives[row] = kind(
            row, encoder, specials, dtype=precision, **fields
        )
        with contextlib.ExitStack() as stack:
            for scope in (*where, 'objectives'):
                stack.enter_context(keras.name_scope(scope))
            objectives[row].build()
    return objectives


def _config_of(name: str, workdir: str, config: Config) -> Config:
    """Reads the config of a workdir that an auxiliary encoder starts from."""
    source = Config.read(pathlib.Path(workdir))
    sizes = [c.encoder.arguments['vocab_size'] for c in (source, config)]
    if sizes[0] != sizes[1]:
        raise InputError(
            'auxiliary_of_other_vocabulary',
            f'{name} begins with {workdir}, whose vocabulary has {sizes[0]:,} '
            f'tokens, this run has {sizes[1]:,}: they have to be the same',
        )
    return source


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


def _dense(
    layer: DenseConfig | FlowConfig, width: int, name: str
) -> Dense | Flow:
    if isinstance(layer, FlowConfig):
        return Flow(
            width, layer.levels, layer.depth, layer.hidden, layer.permutation,
            name,
        )  # fmt: skip
    return Dense(width, layer.width, layer.activation, layer.bias, name)


def initialise(
    variables: Mapping[str, keras.Variable],
    seed: int,
    width: int,
    deviation: float | None = None,
) -> None:
    """Draws matrices and tables from a normal truncated at two deviations.

    The default deviation is 0.02 sqrt(768 / width): products of D terms are
    then as large at every width as at the published one. With 0.02 at 128
    wide, attention adds so little to a state that the bound stays at 0 twice
    as long.

    The numbers of a weight come from (seed, path) in NumPy, so they depend
    neither on the backend nor on other weights. Vectors keep their zeros and
    ones.
    """
    if deviation is None:
        deviation = WEIGHT_DEVIATION * math.sqrt(BASE_WIDTH / width)
    for path, variable in variables.items():
        if len(variable.shape) < 2:
            continue
        random = np.random.default_rng([seed, zlib.crc32(path.encode())])
        size = math.prod(variable.shape)
        drawn = random.standard_normal(size, np.float32)
        # In place: a table of a million words leaves no room for a copy.
        while (far := np.flatnonzero((drawn > 2) | (drawn < -2))).size:
            drawn[far] = random.standard_normal(far.size, np.float32)
        drawn *= deviation
        variable.assign(drawn.reshape(variable.shape))
