"""The parts of a model: encoders, objectives, heads, and all their weights.

In NumPy and `keras.ops` alone: no backend is imported here.
"""

import contextlib
import functools
import math
import pathlib
import zlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import keras
import numpy as np

from infoword_tf import adapters, files
from infoword_tf.config import Config, DenseConfig, FlowConfig
from infoword_tf.critics import CRITICS
from infoword_tf.encoders import ENCODERS, Encoder
from infoword_tf.errors import InputError
from infoword_tf.layers.dense import Dense
from infoword_tf.layers.flow import Flow
from infoword_tf.lazy import instead
from infoword_tf.objectives import (
    TABLE,
    Copy,
    Objective,
    check_settings,
    decided,
)
from infoword_tf.objectives.objective import Shared
from infoword_tf.resolve import auxiliaries_of
from infoword_tf.views import Reads, Specials

MAIN = 'encoder'  # the encoder that is trained, and exported
# Devlin et al. 2019 draw from a normal of 0.02 truncated at two deviations; so
# does the base size, and a narrower one draws wider, see `initialise`.
WEIGHT_DEVIATION, BASE_WIDTH = 0.02, 768


class Assembly:
    """The encoders, objectives and heads of a config.

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
        """Builds the layers and draws the weights.

        Args:
            config: content of config.json.
            specials: special tokens of the vocabulary.
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
        self.config, self.specials = config, specials
        settings = {row: entry.settings for row, entry in config.rows.items()}
        self.auxiliaries = auxiliaries_of(settings) if auxiliaries else {}
        self.encoders: dict[str, Encoder] = {}
        self.auxiliary_rows: dict[str, dict[str, Objective]] = {}
        for name in (MAIN, *self.auxiliaries):
            self._add_encoder(name, encoded)
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
        self.dense = self._make_dense()
        self.critics = self._make_critics()
        for objective in self.objectives.values():
            objective.set_critics(self.critics)
            objective.set_dense(self.dense)
        if seed is not None:
            self.draw_weights(seed, deviation)

    def _add_encoder(self, name: str, encoded: bool) -> None:
        """Makes an encoder, and the rows of a workdir that begins one."""
        source = config = self.config
        policy = config.precision
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
        encoder.set_special_tokens(self.specials)
        if encoded:
            encoder.build()
        self.encoders[name] = encoder
        if source is not config:
            self.auxiliary_rows[name] = _objectives(
                source,
                encoder,
                self.specials,
                config.precision,
                where=(name,),
            )

    def _make_dense(self) -> list[Dense | Flow]:
        """Makes the layers over the vector of a text."""
        layers, width = [], self.encoder.width
        for i, layer in enumerate(self.config.dense):
            layers.append(_dense(layer, width, f'dense_{i}'))
            layers[-1].build()
            width = layer.width
        return layers

    def _make_critics(self) -> dict[str, Any]:
        """Makes the heads of critics, by name."""
        heads = {}
        for name, critic in CRITICS.items():
            if self.config.critics.get(name) is not None:
                heads[name] = critic.make_head(
                    critic.of(self.config),
                    Shared(self.encoder),
                    self.specials,
                    self.config.precision,
                )
                heads[name].build()
        return heads

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


def _dense(
    layer: DenseConfig | FlowConfig, width: int, name: str
) -> Dense | Flow:
    if isinstance(layer, FlowConfig):
        return Flow(
            width,
            layer.levels,
            layer.depth,
            layer.hidden,
            permutation=layer.permutation,
            name=name,
        )
    return Dense(
        width, layer.width, layer.activation, layer.bias, name=name
    )


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
