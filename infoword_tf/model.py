"""An encoder and the rows that train it, as one model.

In NumPy and `keras.ops` alone: no backend is imported here.

Glossary of shapes: B sequences, Q places of all rows, P of one, D width,
V vocabulary.
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
from infoword_tf.views import Specials, View

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
                settings}}, `precision` (a Keras dtype policy).
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
            objective = TABLE[row].objective(
                row,
                self.encoder,
                specials,
                dtype=precision,
                **entry['settings'],
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

    def encode(
        self, views: Mapping[str, View], key: Tensor | None = None
    ) -> dict[str, dict[str, Tensor]]:
        """Encodes each view once, at the places of all rows that share it.

        Args:
            views: by name.
            key: [2] uint32 of the step, or None without dropout.

        Returns:
            By row, then by view, states [B, P, D], of all tokens where the
            row wants the text.
        """
        states: dict[str, dict[str, Tensor]] = {
            row: {} for row in self.objectives
        }
        for name, view in views.items():
            rows = [r for r in self.objectives if name in TABLE[r].views]
            some = [view.places[row] for row in rows if row in view.places]
            whole = len(some) < len(rows)
            found = self.encoder(
                view.ids,
                view.positions,
                view.segment_ids,
                view.block_ids,
                places=None if whole else ops.concatenate(some, axis=1),
                key=key
                if key is None
                else dropout.fold_in(key, zlib.crc32(name.encode())),
            ).states
            end = 0
            for row in rows:
                if row not in view.places:
                    states[row][name] = found
                elif whole:
                    states[row][name] = take(found, view.places[row])
                else:
                    begin, end = end, end + view.places[row].shape[1]
                    states[row][name] = found[:, begin:end]
        return states

    def outcomes(
        self,
        views: Mapping[str, View],
        kl: Mapping[str, float],
        key: Tensor | None = None,
        replicas: Replicas | None = None,
        candidates: Mapping[str, Any] | None = None,
    ) -> dict[str, Outcome]:
        """What every row makes of a batch.

        Args:
            views: this replica's rows of the global batch.
            kl: by row, of the text that the batch is from.
            key: [2] uint32 of the step and replica; None: no dropout.
            replicas: to share candidates with.
            candidates: by row, given (held-out text); None: the batch's own.
        """
        replicas = replicas or Replicas()
        states = self.encode(views, key)
        found = {}
        for row, objective in self.objectives.items():
            if candidates is None:
                chosen = objective.candidates(views, states[row], replicas)
            else:
                chosen = candidates[row]
            found[row] = objective.score(
                views, states[row], chosen, kl[row], key
            )
        return found

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
