"""A `Batch` of states that a test chooses, as `Model.batches` would make it.

And what Eq. 1 makes of one pair, in NumPy: sums of it are what rows report.

Shapes: F fields of an `Outcome` that are sums.
"""

import math
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
from absl.testing import parameterized
from scipy import special

from infoword_tf.encoders import Encoded
from infoword_tf.layers import dropout
from infoword_tf.objectives import Batch, Replicas, Statistics
from infoword_tf.objectives.infonce import SUMS, Outcome
from infoword_tf.views import View
from tests import zoo
from tests.eager import eagerly
from tests.near import near

F = len(SUMS)


class EagerCase(parameterized.TestCase):
    """Runs fused operations as plain ones; tests/layers has both."""

    def setUp(self):
        super().setUp()
        self.enterContext(eagerly())


def batch_of(
    views: Mapping[str, Any],
    states: Mapping[str, Any],
    key: Any = None,
    limit: int | None = None,
    statistics: Statistics | None = None,
) -> Batch:
    """One replica's batch.

    Args:
        views: by name.
        states: by view, [B, P, D] at the row's places, or `Encoded`.
        key: of a training step; None: held-out text, plain operations.
        limit: M of held-out text.
        statistics: those of the zoo where None.
    """
    return Batch(
        views,
        {
            name: {'encoder': [x if isinstance(x, Encoded) else Encoded(x)]}
            for name, x in states.items()
        },
        zoo.statistics() if statistics is None else statistics,
        Replicas(),
        dropout.new_key(0) if key is None else key,
        training=key is not None,
        limit=limit,
    )


def view_of(row: str, numbers: Any, weights: Any = None) -> View:
    """Texts of a row that scores sequences, an example to a packed row.

    Args:
        row: its name.
        numbers: [B, K] of the texts of each example; -1: it is not there.
        weights: [B]; None: 1.
    """
    numbers = np.asarray(numbers, np.int32)
    n, k = numbers.shape
    weights = np.ones(n) if weights is None else np.asarray(weights)
    return View(
        ids=np.zeros((n, 2 * k), np.int32),
        sequences=np.where(weights > 0, np.arange(n), -1)[:, None].astype('i'),
        block_ids=np.tile(np.repeat(np.arange(k), 2), (n, 1)).astype('i'),
        places={row: np.zeros((n, k), np.int32)},
        targets={row: numbers[:, None]},
        weights={row: weights[:, None].astype(np.float32)},
    )


def encoder_of(width: int, **more: Any) -> Any:
    """Makes what a head asks of an encoder."""
    usual = {'depth': 2, 'arguments': {'rate': 0.0}, 'contextual': True}
    return types.SimpleNamespace(width=width, **usual | more)


def drawn(layer: Any, seed: int = 3, scale: float = 1.0) -> Any:
    """Builds a layer, or a row, with random weights."""
    layer.build()
    random = np.random.default_rng(seed)
    for weight in layer.weights:
        weight.assign(scale * random.standard_normal(weight.shape))
    return layer


def unit(x: np.ndarray) -> np.ndarray:
    """Vectors of length 1."""
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def states_of(encoded: Any, row: str, view: str) -> Any:
    """Returns the trained encoder's states, of what `Model.encode` gives."""
    return encoded[row][view]['encoder'][0].states


def sums(outcome: Outcome) -> np.ndarray:
    """[F] float64, without `more`."""
    return np.array([float(x) for x in outcome[:F]])


def losses_of(scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Cross-entropy of scores [..., C] where targets [...] are right."""
    right = np.take_along_axis(scores, targets[..., None], axis=-1)
    return special.logsumexp(scores, axis=-1) - right[..., 0]


def check(outcome: Outcome, delta: float, **expected: Any) -> None:
    """Asserts that fields of an outcome are so near to what is expected."""
    for name, value in expected.items():
        near(getattr(outcome, name), value, 0, delta, name)


def mean(outcome: Outcome) -> Outcome:
    """Floats: the loss by weight, the others by measured pair."""
    actual = Outcome(*sums(outcome))
    by_pair = Outcome(*(x / max(actual.measured, 1e-12) for x in actual[:F]))
    return by_pair._replace(loss=actual.loss / max(actual.weight, 1e-12))


def of_pair(
    positive: float,
    others: Any,
    copies: Any,
    chance: float | None = None,
    drop_copies: bool = False,
) -> np.ndarray:
    """Returns what one pair adds where candidates are drawn from p(b).

    Args:
        own: f(a, b).
        others: [M] the scores of the other candidates.
        copies: [M] bool, which of them are b too.
        chance: None: 1 / (1 + M).
        drop_copies: whether the training loss leaves those out.

    Returns:
        [F] float64.
    """
    others, copies = np.asarray(others, float), np.asarray(copies, bool)
    size = math.log(1 + len(others))
    mi = size + positive - special.logsumexp([positive, *others])
    negatives = others[~copies] if drop_copies else others
    return np.array([
        special.logsumexp([positive, *negatives]) - positive,
        1,
        mi,
        size - math.log(1 + copies.sum()),
        size,
        0,
        not (others >= positive)[~copies].any(),
        1 / (1 + len(others)) if chance is None else chance,
        1,
    ])  # fmt: skip


def of_piece(
    scores: Any, target: int, statistics: Statistics
) -> np.ndarray:
    """Returns what one pair adds where candidates are the vocabulary.

    Args:
        scores: [V].
        target: b.
        statistics: of the text.

    Returns:
        [F] float64.
    """
    training, measured = (np.asarray(x, float) for x in statistics[:2])
    p = measured[target] / measured.sum()
    expected = (1 + training[target]) / (len(training) + training.sum())
    loss = special.logsumexp(scores) - scores[target]
    return np.array([
        loss,
        1,
        -math.log(p) - loss,
        -math.log(p),
        math.log(len(scores)),
        math.log(expected / p),
        (np.delete(scores, target) < scores[target]).all(),
        target == measured.argmax(),
        1,
    ])  # fmt: skip
