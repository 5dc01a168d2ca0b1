"""The row `dim`: a text with masked n-grams, and one of its n-grams.

    a  [CLS] of the masked text     b  [CLS] of the n-gram, encoded alone

J_DIM of Kong et al. 2019, §4, Deep InfoMax (Hjelm et al. 2019) over text: one
encoder for both views, gradient through both, n-grams of other sequences as
candidates.

A masked text shows how many tokens each n-gram has, which alone tells many of
them apart. Two ways to see past it: MI among the candidates of the positive's
length, which is measured always, and one [MASK] for an n-gram (`one_mask`).

Shapes: S n-grams of a sequence, N = B S.
"""

import math
from collections.abc import Mapping
from typing import Any

from infoword_tf.layers.pooling import of_texts, tokens_of, unit
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.candidates import Pool
from infoword_tf.objectives.objective import Batch, Row, Scoring, Vector
from infoword_tf.objectives.queue import (
    MOMENTUM,
    Queued,
    auxiliaries,
    encoders,
)
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads, View

CRITICS = ('dot', 'scaled', 'cosine')  # the paper's is the first


class DeepInfoMax(Queued):
    """`dim`: a masked n-gram among n-grams of other sequences.

    Learns: a state of the whole text at [CLS]. An n-gram that another sequence
        hides too is no negative: the paper's S~ is a set.
    Take it: with `bert_nce`, as InfoWord, to pretrain for labels and answers.
    Needs: any text, and batches of many sequences.
    Example: python -m infoword_tf.train --objectives=infoword --workdir=W
    """

    contrasts = True
    more = 'same_length_mi', 'same_length_ceiling'
    critic: str = setting(
        'dot',
        'How two states are compared; scaled: dot product over the square root '
        'of the width.',
        choices=CRITICS,
    )
    temperature: float = setting(
        0.05,
        'Temperature: the cosine is divided by it.',
        at_least=1e-6,
        needs=('critic', ('cosine',)),
    )
    one_mask: bool = setting(
        False,
        'Replace each n-gram with a single [MASK], which hides its length.',
    )

    def vectors(self, batch: Batch) -> dict[str, Tensor]:
        """Returns states of [CLS]: of texts [B, 1, D], of n-grams [B, S, D].

        'keys' are the n-grams' states of a momentum encoder.
        """
        text = 'joined' if self.one_mask else 'masked'
        states = {'a': batch.states(text), 'b': batch.states('ngrams')}
        if self.momentum:
            states['keys'] = batch.states('ngrams', MOMENTUM)
        return states

    def candidates(self, batch: Batch) -> Pool:
        """Returns the encoded n-grams of the global batch, and of a queue."""
        pool = self.with_queue(batch, self._pool(batch, 'b'))
        if batch.training:
            return pool
        lengths = self._lengths(batch.views['ngrams'])
        return pool._replace(lengths=batch.replicas.gather(lengths))

    def _lengths(self, view: View) -> Tensor:
        """Counts the tokens of each n-gram with [CLS] and [SEP], [N] int32."""
        slots = view.targets[self.row].shape[1]
        return ops.reshape(tokens_of(view.block_ids, slots), (-1,))

    def _pool(self, batch: Batch, name: str) -> Pool:
        """Gathers the vectors called `name` over replicas into a pool."""
        vectors = self.vectors_of(batch)[name]
        return self.pool_of(batch, batch.views['ngrams'], vectors)

    def tokens_of_texts(self, view: View) -> tuple[Tensor, Tensor]:
        """Returns the tokens of each n-gram; see `Queued`."""
        slots = view.targets[self.row].shape[1]
        return view.ids, of_texts(view.block_ids, slots)

    def update_state(self, batch: Batch) -> dict[str, Any]:
        """Queues n-grams, by the momentum encoder if `momentum`."""
        return self.enqueue(
            batch, self._pool(batch, 'keys' if self.momentum else 'b')
        )

    def score(self, batch: Batch, candidates: Pool) -> infonce.Outcome:
        """Computes Eq. 1 over b and the n-grams of other sequences.

        Of held-out text the bound among n-grams of the positive's length comes
        besides. The scores are one [B, D] by [D, M] product: the n-grams of a
        sequence have the same a.
        """
        view = batch.views['ngrams']
        targets = self.text_numbers(view)  # [N]
        vectors = self.vectors_of(batch)
        a, b = (ops.cast(vectors[x], 'float32') for x in 'ab')
        c = candidates.states  # [M, D]
        slots, width = b.shape[1:]
        finish = None
        if self.critic == 'cosine':
            a, b, c = map(unit, (a, b, c))
            a, finish = a / self.temperature, unit
        elif self.critic == 'scaled':
            a = a / math.sqrt(width)
        positive = ops.reshape(ops.sum(a * b, axis=-1), (-1,))  # [N]
        a = ops.reshape(a, (-1, width))
        earlier = self.score_queue(
            batch, candidates, a, targets, finish=finish
        )
        scores = ops.matmul(a, ops.transpose(c))
        scores = ops.repeat(scores, slots, axis=0)  # [N, M]
        counts = ops.repeat(candidates.others(view.sequences), slots, axis=0)
        identical = ops.equal(candidates.ids[None, :], targets[:, None])
        weights = ops.reshape(view.weights[self.row], (-1,))
        comparison = infonce.Comparison(positive, scores, counts, identical)
        outcome = infonce.contrast(
            comparison,
            weights,
            drop_identical=True,
            earlier=earlier and earlier.others,
        )
        if batch.training:
            return outcome
        # The bound once more, over the candidates of the positive's length.
        lengths = self._lengths(view)[:, None]
        of_candidates = candidates.lengths
        assert of_candidates is not None, 'held-out candidates have lengths'
        same = ops.equal(of_candidates[None, :], lengths)  # [N, M]
        counts = ops.where(same, counts, 0.0)
        # Of this bound the training loss is not used.
        alike = infonce.contrast(
            comparison._replace(counts=counts), weights, drop_identical=False
        )
        more = alike.mi, alike.ceiling
        return outcome._replace(more=dict(zip(self.more, more, strict=True)))


def _vector(settings: Mapping[str, Any]) -> Vector:
    """Pools the state of [CLS], compared as by the critic."""
    cosine = settings['critic'] == 'cosine'
    return Vector('cls', 'cosine' if cosine else 'dot', priority=1)


def n_gram_products(scoring: Scoring) -> int:
    """Counts the products of B texts with B S n-grams."""
    texts, slots = scoring.views['ngrams'].targets[scoring.row].shape
    return texts * scoring.width * texts * slots


_STATE = Reads('start', masking='spans')
ROW = Row(
    objective=DeepInfoMax,
    a='masked text',
    b='masked n-gram',
    relation='an n-gram that was masked',
    candidates='masked n-grams of other sequences',
    views={
        'masked': lambda settings: None if settings['one_mask'] else _STATE,
        'joined': lambda settings: _STATE if settings['one_mask'] else None,
        'ngrams': lambda settings: _STATE._replace(
            encoders=encoders(settings)
        ),
    },
    heldout_candidates=128,
    vector=_vector,
    auxiliaries=auxiliaries,
    products=n_gram_products,
)
