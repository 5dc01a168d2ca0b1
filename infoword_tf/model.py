"""An encoder and the rows that train it, as one model.

In NumPy and `keras.ops` alone: no backend is imported here.

Glossary of shapes: B sequences, T tokens, Q places of all rows, P of one,
D width, V vocabulary.
"""

import math
import zlib
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from infoword_tf.encoders import ENCODERS
from infoword_tf.layers import dropout
from infoword_tf.layers.block import take
from infoword_tf.objectives import TABLE, Objective, Replicas
from infoword_tf.objectives.infonce import Outcome
from infoword_tf.views import VIEWS, Specials, View

Tensor = Any
CONFIG_VERSION = 1
# Devlin et al. 2019 draw from a normal of 0.02 cut at two deviations; so does
# the base size, and a narrower one draws wider, see `initialise`.
WEIGHT_DEVIATION, BASE_WIDTH = 0.02, 768


class Model:
    """g_omega, and by row the objective and its weight in the sum.

    Attributes:
        config: what `config.json` of a workdir holds.
        encoder: the encoder layer.
        objectives: by row, the objective layer.
        weights: by row, its factor in the sum.
    """

    def __init__(
        self, config: Mapping[str, Any], specials: Specials, seed: int = 0
    ):
        """Builds the model and draws its weights.

        Args:
            config: `encoder` {name, arguments}, `rows` {row: {weight,
                settings}}, `precision` (a Keras dtype policy), and
                `memory_length`, tokens of memory in training, if any.
            specials: of the vocabulary.
            seed: of the initial weights, which are the same on each backend.
        """
        self.config = dict(config)
        precision = config['precision']
        described = config['encoder']
        self.encoder = ENCODERS[described['name']](
            **described['arguments'], dtype=precision
        )
        self.encoder.build()
        self.objectives: dict[str, Objective] = {}
        self.weights: dict[str, float] = {}
        for row, entry in config['rows'].items():
            own = {
                name: value
                for name, value in entry['settings'].items()
                if name not in TABLE[row].drawn
            }
            objective = TABLE[row].objective(
                row, self.encoder, specials, dtype=precision, **own
            )
            with keras.name_scope('objectives'):
                objective.build()
            self.objectives[row] = objective
            self.weights[row] = entry['weight']
        initialise(self.variables, seed, described['arguments']['width'])

    @property
    def variables(self) -> dict[str, keras.Variable]:
        """Every weight by its path, the encoder's first."""
        layers = [self.encoder, *self.objectives.values()]
        found = {}
        for layer in layers:
            for variable in layer.weights:
                if variable.path in found:
                    raise ValueError(f'two weights are called {variable.path}')
                found[variable.path] = variable
        return found

    def kl(self, frequencies: np.ndarray) -> dict[str, float]:
        """KL(p(b) || q) of each row on a text of these frequencies [V]."""
        return {
            row: objective.kl(frequencies)
            for row, objective in self.objectives.items()
        }

    def empty_memories(
        self, batch: int, length: int | None = None
    ) -> dict[str, Any]:
        """By view that goes on from step to step, memory of nothing.

        Args:
            batch: B.
            length: tokens of memory; None: the config's `memory_length`.

        Returns:
            Nothing at all where the length is 0, the encoder has no memory,
            or no view goes on.
        """
        if length is None:
            length = self.config.get('memory_length') or 0
        if not length or not has_memory(self.config['encoder']['name']):
            return {}
        return {
            name: self.encoder.empty_memory(batch, length)
            for row in self.objectives
            for name in TABLE[row].views
            if VIEWS[name].source == 'streams'
        }

    def kept(self, name: str, length: int) -> int | None:
        """Tokens of a view of T = length that the next step has behind it.

        A row that reads less than a whole view further each time (XLNet's
        reuse) has the others before it again. None: all.
        """
        for row in self.objectives:
            reading = TABLE[row].reading
            if name in TABLE[row].views and reading is not None:
                settings = self.config['rows'][row]['settings']
                return reading(length, settings).get('advance')
        return None

    def encode(
        self,
        views: Mapping[str, View],
        key: Tensor | None = None,
        memories: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        """Encodes each view once, at the places of all rows that share it.

        Args:
            views: by name.
            key: [2] uint32 of the step, or None without dropout.
            memories: by view, what the encoder remembers of the steps before;
                views that are not there have no memory.

        Returns:
            By row, then by view, states [B, P, D], of all tokens where the
            row wants the text, [B, K, P, D] of a view of K texts each; and
            the new memories of the same views.
        """
        states: dict[str, dict[str, Tensor]] = {
            row: {} for row in self.objectives
        }
        remembered: dict[str, Any] = {}
        for name, view in views.items():
            rows = [r for r in self.objectives if name in TABLE[r].views]
            some = [view.places[row] for row in rows if row in view.places]
            whole = len(some) < len(rows)
            texts = tuple(view.ids.shape[1:-1])  # K of each sequence, or ()
            if texts:
                view = _one_by_one(view)
                some = [view.places[row] for row in rows if row in view.places]
            # Not every encoder has these.
            more = {
                field: value
                for field in ('ranks', 'sees', 'directions')
                if (value := getattr(view, field)) is not None
            }
            if any(TABLE[row].views[name] == 'queries' for row in rows):
                more['queries'] = True
            if memories and name in memories:
                more['memory'] = memories[name]
                more['keep'] = self.kept(name, view.ids.shape[1])
            encoded = self.encoder(
                view.ids,
                view.positions,
                view.segment_ids,
                view.block_ids,
                places=None if whole else ops.concatenate(some, axis=1),
                key=key
                if key is None
                else dropout.fold_in(key, zlib.crc32(name.encode())),
                **more,
            )
            found = encoded.states
            if 'memory' in more:
                remembered[name] = encoded.memory
            end = 0
            for row in rows:
                if row not in view.places:
                    states[row][name] = found
                elif whole:
                    states[row][name] = take(found, view.places[row])
                else:
                    begin, end = end, end + view.places[row].shape[1]
                    states[row][name] = found[:, begin:end]
                if texts:
                    x = states[row][name]
                    states[row][name] = ops.reshape(
                        x, (-1, *texts, *x.shape[1:])
                    )
        return states, remembered

    def outcomes(
        self,
        views: Mapping[str, View],
        kl: Mapping[str, float],
        key: Tensor | None = None,
        replicas: Replicas | None = None,
        candidates: Mapping[str, Any] | None = None,
        memories: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Outcome], dict[str, Any]]:
        """What every row makes of a batch.

        Args:
            views: this replica's rows of the global batch.
            kl: by row, of the text that the batch is from.
            key: [2] uint32 of the step and replica; None: no dropout.
            replicas: to share candidates with.
            candidates: by row, given (held-out text); None: the batch's own.
            memories: as in `encode`.

        Returns:
            By row, its sums; and the new memories.
        """
        replicas = replicas or Replicas()
        states, memories = self.encode(views, key, memories)
        found = {}
        for row, objective in self.objectives.items():
            if candidates is None:
                chosen = objective.candidates(views, states[row], replicas)
            else:
                chosen = candidates[row]
            found[row] = objective.score(
                views, states[row], chosen, kl[row], key
            )
        return found, memories

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


def has_memory(encoder: str) -> bool:
    """Whether an encoder of this name can remember the steps before."""
    return hasattr(ENCODERS[encoder], 'empty_memory')


def initialise(
    variables: Mapping[str, keras.Variable], seed: int, width: int
) -> None:
    """Draws matrices and tables from a normal cut at two deviations.

    Its deviation is 0.02 sqrt(768 / width): products of D terms are then as
    large at every width as at the published one. With 0.02 at 128 wide,
    attention adds so little to a state that the bound stays at 0 twice as
    long.

    Each weight's numbers come from (seed, its path) in NumPy, so they depend
    neither on the backend nor on what else there is. Vectors keep their
    zeros and ones.
    """
    deviation = WEIGHT_DEVIATION * math.sqrt(BASE_WIDTH / width)
    for path, variable in variables.items():
        if len(variable.shape) < 2:
            continue
        random = np.random.default_rng([seed, zlib.crc32(path.encode())])
        size = math.prod(variable.shape)
        drawn = random.standard_normal(size, np.float32)
        while (far := np.nonzero(np.abs(drawn) > 2)[0]).size:
            drawn[far] = random.standard_normal(far.size, np.float32)
        variable.assign(deviation * drawn.reshape(variable.shape))
