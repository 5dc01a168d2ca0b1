"""The critic `cross`: one encoder over both texts (monoBERT).

    f(a, b) = w . g_omega([CLS] a [SEP] b [SEP]) + c

(Nogueira & Cho 2019, "Passage re-ranking with BERT"). No text is a vector, so
each candidate of an a is encoded with it: b, b of a few other examples of the
batch, and the negatives of the example itself. The bound counts b and what was
drawn, K + 1 in all.

Shapes: M candidates of an example, N = B.
"""

from typing import Any

from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import Batch
from infoword_tf.views import View
from infoword_tf.views.sentences import COPIES

Tensor = Any
VIEW = 'pair_candidates'


def outcome(
    batch: Batch, row: str, scores: Tensor, temperature: float, texts: int
) -> infonce.Outcome:
    """Computes Eq. 1 over the candidates of each example.

    Args:
        batch: of the step.
        row: that reads the view.
        scores: [N, M] float32, those of b first.
        temperature: that divides them.
        texts: S of an example, whose last S - 2 are the negatives.
    """
    view: View = batch.views[VIEW]
    numbers = view.targets[row]  # [N, M]
    scores = scores / temperature
    negatives = texts - COPIES
    others = ops.cast(numbers[:, 1:] >= 0, 'float32')
    drawn = ops.arange(others.shape[1]) < others.shape[1] - negatives
    weights = ops.reshape(view.weights[row], (-1,))
    identical = ops.equal(numbers[:, 1:], numbers[:, :1])
    result = infonce.contrast(
        scores[:, 0],
        scores[:, 1:],
        ops.where(drawn, others, 0.0),
        identical,
        weights,
        drop_identical=True,
        trained=others,
    )
    share = infonce.share(identical, others)
    return result._replace(more={'identical': ops.sum(weights * share)})
