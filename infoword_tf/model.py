"""Encoders and the rows that train them, as one model.

In NumPy and `keras.ops` alone: no backend is imported here.

Glossary of shapes: B sequences, T tokens, Q places of all rows, P of one,
D width, V vocabulary.
"""

import contextlib
import copy
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

from infoword_tf import files
from infoword_tf.config import WEIGHTS, Config, DenseConfig, FlowConfig
from infoword_tf.encoders import ENCODERS, Encoded, Encoder, Inputs
from infoword_tf.layers import dropout
from infoword_tf.layers.block import take
from infoword_tf.layers.dense import Dense
from infoword_tf.layers.flow import Flow
from infoword_tf.objectives import (
    TABLE,
    Batch,
    Copy,
    Objective,
    Replicas,
    Statistics,
    decided,
)
from infoword_tf.objectives.infonce import Outcome
from infoword_tf.plan import companions_of
from infoword_tf.views import VIEWS, Reads, Specials, View, root

Tensor = Any
MAIN = 'encoder'  # the encoder that is trained, and exported
HELDOUT_KEY = 20190  # of what objectives draw for held-out text
# Devlin et al. 2019 draw from a normal of 0.02 cut at two deviations; so does
# the base size, and a narrower one draws wider, see `initialise`.
WEIGHT_DEVIATION, BASE_WIDTH = 0.02, 768


class StateEntry(NamedTuple):
    """Something that lasts from step to step.

    Attributes:
        empty: arrays in a named tuple or a dict: what the first step finds.
        by_row: whether its rows are those of the batch, so that each replica
            has a part of its own; else it is the same on all replicas.
    """

    empty: Any
    by_row: bool


class Model:
    """g_omega, and by row the objective and its weight in the sum.

    Attributes:
        config: what `config.json` of a workdir holds.
        encoders: by name; 'encoder' is the one that is trained and exported.
        companions: by name, what the others are.
        companion_rows: by companion of a workdir, the rows of that one.
        objectives: by row, the objective layer.
        weights: by row, its factor in the sum.
        reads: by row, the views that it reads and what it wants there.
        heldout_candidates: by row, M of held-out text, see `Row`.
        dense: layers over the vector of a text.
    """

    def __init__(
        self,
        config: Config,
        specials: Specials,
        seed: int | None = 0,
        companions: bool = True,
        deviation: float | None = None,
    ):
        """Builds the model and draws its weights.

        Args:
            seed: of the initial weights, which are the same on each backend;
                None: they are given later.
            companions: whether encoders that only training needs are built.
            deviation: of the initial weights; None: as `initialise` has it.

        Raises:
            ValueError: two rows bring different encoders of one name.
        """
        self.config = config
        settings = {row: entry.settings for row, entry in config.rows.items()}
        self.companions = companions_of(settings) if companions else {}
        self.encoders: dict[str, Encoder] = {}
        self.companion_rows: dict[str, dict[str, Objective]] = {}
        for name in (MAIN, *self.companions):
            own, changes = config, {}
            if name != MAIN:
                companion = self.companions[name]
                changes = companion.arguments
                if companion.workdir:
                    own = _config_of(name, companion.workdir, config)
            encoder = ENCODERS[own.encoder.name](
                **{**own.encoder.arguments, **changes},
                dtype=config.precision,
                name=name,
            )
            encoder.spell(specials)
            encoder.build()
            self.encoders[name] = encoder
            if own is not config:
                self.companion_rows[name] = _objectives(
                    own, encoder, specials, config.precision, (name,)
                )
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
                objective.score_with(self.objectives[scorer])
            objective.meet(self.encoders, self.companion_rows)
        self.dense: list[Dense | Flow] = []
        width = self.encoder.width
        for i, layer in enumerate(config.dense):
            self.dense.append(_dense(layer, width, f'dense_{i}'))
            self.dense[-1].build()
            width = layer.width
        for objective in self.objectives.values():
            objective.follow(self.dense)
        if seed is not None:
            self.begin(seed, deviation)

    def begin(self, seed: int, deviation: float | None = None) -> None:
        """Draws all matrices anew, and sets what begins elsewhere.

        Raises:
            ValueError, FileNotFoundError: a workdir that a row or a companion
                begins with cannot be read, or does not fit.
        """
        initialise(self.variables, seed, self.encoder.width, deviation)
        for objective in self.objectives.values():
            first = objective.first_weights()
            files.assign(
                {path: self.variables[path] for path in first},
                first,
                f'what {objective.row} begins with',
            )
        self.read_companions()
        self.begin_copies()

    def read_companions(self) -> None:
        """Gives companions of a workdir its weights."""
        for name, companion in self.companions.items():
            if not companion.workdir:
                continue
            path = pathlib.Path(companion.workdir) / WEIGHTS
            tensors = files.read_tensors(path)
            layers = [self.encoders[name], *self.companion_rows[name].values()]
            variables = {
                p.removeprefix(f'{name}/')
                if p.startswith(f'{name}/objectives/')
                else f'encoder/{p.removeprefix(f"{name}/")}': variable
                for p, variable in self._paths(layers).items()
            }
            there = {p: x for p, x in tensors.items() if p in variables}
            files.assign(variables, there, str(path))

    def begin_copies(self, taken: Collection[str] = ()) -> None:
        """Makes what begins as a copy what its source is now.

        Companions, and weights of rows.

        Args:
            taken: paths of weights that --init had, which stay as they are.
        """
        for name, companion in self.companions.items():
            if companion.copied or companion.momentum is not None:
                for copied, source in self._beside(name):
                    copied.assign(source)
        for weight, source, _ in self.copies:
            if weight.path not in taken:
                weight.assign(source)

    def drop(self, row: str) -> None:
        """Does without a row, whose weights are not there."""
        del self.objectives[row], self.weights[row], self.reads[row]
        del self.heldout_candidates[row]

    def alone(self, row: str, reads: Mapping[str, Reads]) -> 'Model':
        """The same weights with one row, which reads these views."""
        copied = copy.copy(self)
        copied.objectives = {row: self.objectives[row]}
        copied.weights = {row: self.weights[row]}
        copied.reads = {row: dict(reads)}
        return copied

    @property
    def encoder(self) -> Encoder:
        """The encoder that is trained and exported."""
        return self.encoders[MAIN]

    @property
    def variables(self) -> dict[str, keras.Variable]:
        """Every weight by its path, the encoder's first."""
        brought = [
            o for rows in self.companion_rows.values() for o in rows.values()
        ]
        return self._paths([*self.encoders.values(), *self._heads, *brought])

    @property
    def trainable(self) -> dict[str, keras.Variable]:
        """By path, the weights that gradients change."""
        learning = self._encoders_that(lambda companion: not companion.frozen)
        weights = self._paths([*learning, *self._heads])
        return {path: x for path, x in weights.items() if x.trainable}

    @property
    def no_decay(self) -> set[str]:
        """Paths of weights that do not decay, whatever they are called."""
        return set().union(*(o.no_decay for o in self.objectives.values()))

    @property
    def checkpointed(self) -> dict[str, keras.Variable]:
        """By path, the weights that checkpoints hold."""
        saved = self._encoders_that(lambda companion: companion.saved)
        brought = [
            objective
            for name, rows in self.companion_rows.items()
            if self.companions[name].saved
            for objective in rows.values()
        ]
        return self._paths([*saved, *self._heads, *brought])

    @property
    def exported(self) -> dict[str, keras.Variable]:
        """By path, the weights that a workdir and its exports hold."""
        not_exported = set().union(
            *(o.not_exported for o in self.objectives.values())
        )
        weights = self._paths([self.encoder, *self._heads])
        return {
            path: x for path, x in weights.items() if path not in not_exported
        }

    @property
    def copies(self) -> list[Copy]:
        """Weights of rows that begin as copies of others."""
        return [
            copy
            for objective in self.objectives.values()
            for copy in objective.copied_weights()
        ]

    @property
    def averages(self) -> dict[str, list[tuple[Any, Any]]]:
        """By companion that is an average: each weight, and what it follows.

        Weights of rows that follow with it are among them.
        """
        return {
            name: [
                *self._beside(name),
                *(c[:2] for c in self.copies if c.follows == name),
            ]
            for name, companion in self.companions.items()
            if companion.momentum is not None
        }

    def _beside(self, name: str) -> list[tuple[Any, Any]]:
        """Weights of a companion, each with that of the encoder."""
        mine = self.encoders[name].weights
        return list(zip(mine, self.encoder.weights, strict=True))

    def _encoders_that(self, chosen: Callable[..., bool]) -> list[Encoder]:
        """The trained one, and those of companions that are chosen."""
        return [
            encoder
            for name, encoder in self.encoders.items()
            if name == MAIN or chosen(self.companions[name])
        ]

    @property
    def _heads(self) -> list[Any]:
        return [*self.objectives.values(), *self.dense]

    @staticmethod
    def _paths(layers: list[Any]) -> dict[str, keras.Variable]:
        weights = {}
        for layer in layers:
            for variable in layer.weights:
                if variable.path in weights:
                    raise ValueError(f'two weights are called {variable.path}')
                weights[variable.path] = variable
        return weights

    def empty_state(
        self, batch: int, memory_length: int | None = None
    ) -> dict[str, StateEntry]:
        """All that lasts from step to step, as the first step finds it.

        'memory/VIEW' is what the encoder remembers of a view that goes on,
        'objectives/ROW' what an objective keeps.

        Args:
            batch: B.
            memory_length: tokens of memory; None: the config's. An encoder
                that has memory remembers nothing where it is 0, and none does
                where no view goes on.
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
                            by_row=True,
                        )
        for row, objective in self.objectives.items():
            if empty := objective.empty_state():
                entries[f'objectives/{row}'] = StateEntry(empty, by_row=False)
        return entries

    def advance(self, name: str, length: int) -> int | None:
        """Tokens of a view of T = length that the next step has behind it.

        A view that goes on by less than its length (XLNet's reuse) has the
        others before it again. None: all.
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
        """Encodes each view once, at the places of all rows that share it.

        Once by each encoder, and as often as a row asks for another pass.

        Args:
            key: [2] uint32 of the step and replica, or None without dropout.
            state: by 'memory/VIEW', what the encoder remembers of the steps
                before; views that are not there have no memory.

        Returns:
            By row, view and encoder, what each pass gave at the row's places:
            [B, P, D], of all tokens where the row wants the text, [B, K, P,
            D] of a view of K texts each; and the new memories by the same
            names.
        """
        by_row: dict[str, Any] = {
            row: {name: {} for name in self.reads[row] if name in views}
            for row in self.objectives
        }
        state = dict(state or {})
        remembered: dict[str, Any] = {}
        for name, view in views.items():
            memory = f'memory/{name}'
            for encoder, pass_index, rows, dropped in self._passes(name, key):
                first = encoder == MAIN and not pass_index
                states, new = self._pass(
                    encoder,
                    view,
                    rows,
                    self._key(dropped, encoder, name, pass_index),
                    state.get(memory) if first else None,
                    name,
                )
                if first and memory in state:
                    remembered.setdefault(memory, new)
                for row, encoded in states.items():
                    by_row[row][name].setdefault(encoder, []).append(encoded)
        return by_row, remembered

    def _passes(
        self, view: str, key: Tensor | None
    ) -> Iterator[tuple[str, int, dict[str, Reads], Tensor | None]]:
        """Passes of a view: encoder, number, rows, key.

        Without a key nothing is dropped, but for rows that read several
        passes, or copies: these differ by dropout alone, and so they do in
        held-out text, by one key for all of it.
        """
        reads = {
            row: self.reads[row][view]
            for row in self.objectives
            if view in self.reads[row]
        }
        courses = [(reads, key)]
        if key is None:
            several = {
                row for row, r in reads.items() if r.passes > 1 or r.dropped
            }
            courses = [
                ({r: x for r, x in reads.items() if r not in several}, None),
                (
                    {r: x for r, x in reads.items() if r in several},
                    dropout.new_key(HELDOUT_KEY),
                ),
            ]
        for encoder in self.encoders:
            for mine, dropped in courses:
                passes = max(
                    (r.passes for r in mine.values() if encoder in r.encoders),
                    default=0,
                )
                for pass_index in range(passes):
                    rows = {
                        row: r
                        for row, r in mine.items()
                        if encoder in r.encoders and pass_index < r.passes
                    }
                    yield encoder, pass_index, rows, dropped

    def _key(
        self, key: Tensor | None, encoder: str, view: str, pass_index: int
    ) -> Tensor | None:
        """Of a pass; other encoders and passes drop otherwise."""
        if key is None:
            return None
        if encoder == MAIN and not pass_index:
            return dropout.fold_in(key, zlib.crc32(view.encode()))
        if encoder != MAIN and not self.companions[encoder].dropout:
            return None
        text = f'{view}/{encoder}/{pass_index}'
        return dropout.fold_in(key, zlib.crc32(text.encode()))

    def _pass(
        self,
        encoder: str,
        view: View,
        rows: Mapping[str, Reads],
        key: Tensor | None,
        memory: Any,
        name: str,
    ) -> tuple[dict[str, Encoded], Any]:
        """One pass of a view: by row its states, and the new memory."""
        texts = tuple(view.ids.shape[1:-1])  # K of each sequence, or ()
        if texts:
            view = _one_by_one(view)
        at = {
            row: view.places[row]
            for row, reads in rows.items()
            if row in view.places and not reads.everywhere
        }
        some = list(at.values())
        everywhere = len(some) < len(rows)
        wanted = {reads.layers for reads in rows.values()}
        all_layers = True in wanted or ('below' in wanted and 'below')
        more = {}  # what not every encoder has
        if any(reads.where == 'queries' for reads in rows.values()):
            more['queries'] = True
        if memory is not None:
            more['state'] = memory
            more['advance'] = self.advance(name, view.ids.shape[1])
        inputs = Inputs.of(view)
        if VIEWS[root(name)].any_encoder:
            if 'positions' not in self.encoders[encoder].input_fields:
                inputs = inputs._replace(positions=None)  # it knows distances
            if self.encoders[encoder].arguments.get('segments', 0) < 2:
                inputs = inputs._replace(segment_ids=None)
        encoded = self._run(
            encoder,
            inputs,
            places=None if everywhere else ops.concatenate(some, axis=1),
            key=key,
            all_layers=all_layers,
            **more,
        )

        def parted(x: Tensor) -> Tensor:
            return ops.reshape(x, (-1, *texts, *x.shape[1:])) if texts else x

        found = {}
        end = 0
        for row, reads in rows.items():
            states, places = encoded.states, at.get(row)
            if places is not None and everywhere:
                states = take(states, places)
            elif places is not None:
                begin, end = end, end + places.shape[1]
                states = states[:, begin:end]
            layers = None
            if reads.layers:
                depth = self.encoders[encoder].depth
                layers = [
                    parted(x if places is None else take(x, places))
                    for x in encoded.layers[: depth + (reads.layers is True)]
                ]
            found[row] = Encoded(parted(states), layers)
        return found, encoded.state

    def _run(self, encoder: str, inputs: Inputs, **more: Any) -> Encoded:
        """One encoder; no gradient enters one that is frozen."""
        encoded = self.encoders[encoder](inputs, **more)
        if encoder == MAIN or not self.companions[encoder].frozen:
            return encoded
        return Encoded(
            ops.stop_gradient(encoded.states),
            encoded.layers and list(map(ops.stop_gradient, encoded.layers)),
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
        """Gives what every row knows before anything is encoded.

        Args:
            views, statistics, key, replicas, state: as of `outcomes`.
            limits: of held-out text, by row, see `Batch.limit`.
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
        """Gives what every row gets of a step; arguments as of `unencoded`.

        Returns:
            By row; and the new memories.
        """
        replicas = replicas or Replicas()
        batches = self.unencoded(
            views, statistics, key, replicas, state, limits
        )
        own = None if key is None else dropout.fold_in(key, replicas.id)
        by_row, memories = self.encode(views, own, state)

        def encode(
            inputs: Inputs, encoder: str = MAIN, name: str = 'made',
            **more: Any,
        ) -> Encoded:  # fmt: skip
            drawn = self._key(own, encoder, name, 0)
            return self._run(encoder, inputs, key=drawn, **more)

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
        """What every row makes of a batch.

        Args:
            views: this replica's rows of the global batch.
            key: [2] uint32 of the step, the same on all replicas; None: no
                dropout, and plain operations.
            candidates: by row, given (held-out text); of rows that are not
                there the batch's own.
            state: what `empty_state` has, of the step before.
            rows: those whose views are there; None: all.

        Returns:
            By row, its sums; and the state of the next step.
        """
        batches, new = self.batches(views, statistics, key, replicas, state)
        outcomes = {}
        for row in self.objectives if rows is None else rows:
            objective, batch = self.objectives[row], batches[row]
            if candidates and row in candidates:
                chosen = candidates[row]
            else:
                chosen = objective.candidates(batch)
            outcomes[row] = objective.score(batch, chosen)
            if f'objectives/{row}' in (state or {}):
                new[f'objectives/{row}'] = objective.remember(batch)
        return outcomes, new

    def loss(
        self, outcomes: Mapping[str, Outcome], replicas: Replicas | None = None
    ) -> Tensor:
        """The weighted sum of the rows' means over the global batch.

        Of several replicas each gets its own share: the shares, and their
        gradients, add up to the whole.
        """
        replicas = replicas or Replicas()
        total = 0.0
        for row, outcome in outcomes.items():
            weight = ops.maximum(replicas.sum(outcome.weight), 1e-12)
            total = total + self.weights[row] * outcome.loss / weight
        return total


def _objectives(
    config: Config,
    encoder: Encoder,
    specials: Specials,
    precision: str,
    where: tuple[str, ...] = (),
) -> dict[str, Objective]:
    """By row of a config, its objective, built; `where` begins their paths."""
    objectives = {}
    for row, entry in config.rows.items():
        kind = TABLE[row].objective
        own = {k: v for k, v in entry.settings.items() if k in kind.settings}
        objectives[row] = kind(row, encoder, specials, dtype=precision, **own)
        with contextlib.ExitStack() as stack:
            for part in (*where, 'objectives'):
                stack.enter_context(keras.name_scope(part))
            objectives[row].build()
    return objectives


def _config_of(name: str, workdir: str, config: Config) -> Config:
    """The config of a workdir that a companion begins with."""
    found = Config.read(pathlib.Path(workdir))
    sizes = [c.encoder.arguments['vocab_size'] for c in (found, config)]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f'{name} begins with {workdir}, whose vocabulary has {sizes[0]:,} '
            f'pieces, this run has {sizes[1]:,}: they have to be the same'
        )
    return found


def _one_by_one(view: View) -> View:
    """A view of K texts to a sequence as one of B K sequences."""

    def flat(x: Tensor) -> Tensor:
        return ops.reshape(x, (-1, x.shape[-1]))

    fields = ('ids', 'positions', 'segment_ids', 'block_ids')
    given = {name: getattr(view, name) for name in fields}
    return view._replace(
        **{name: flat(x) for name, x in given.items() if x is not None},
        places={row: flat(x) for row, x in view.places.items()},
    )


def _dense(
    layer: DenseConfig | FlowConfig, width: int, name: str
) -> Dense | Flow:
    """A layer over vectors of a width."""
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
    """Draws matrices and tables from a normal cut at two deviations.

    Its deviation is, where none is given, 0.02 sqrt(768 / width): products of
    D terms are then as large at every width as at the published one. With
    0.02 at 128 wide, attention adds so little to a state that the bound stays
    at 0 twice as long.

    Each weight's numbers come from (seed, its path) in NumPy, so they depend
    neither on the backend nor on what else there is. Vectors keep their
    zeros and ones.
    """
    if deviation is None:
        deviation = WEIGHT_DEVIATION * math.sqrt(BASE_WIDTH / width)
    for path, variable in variables.items():
        if len(variable.shape) < 2:
            continue
        random = np.random.default_rng([seed, zlib.crc32(path.encode())])
        size = math.prod(variable.shape)
        drawn = random.standard_normal(size, np.float32)
        # Of a table of a million words there is no second copy of floats.
        while (far := np.flatnonzero((drawn > 2) | (drawn < -2))).size:
            drawn[far] = random.standard_normal(far.size, np.float32)
        drawn *= deviation
        variable.assign(drawn.reshape(variable.shape))
