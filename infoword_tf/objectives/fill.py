"""The row `fill`: the place where an n-gram is missing, and what is missing.

    a  state of its first [MASK]     b  [CLS] of the n-gram, encoded alone

`dim` asks which n-grams are missing from a text, whose one state must know all
of them; here each place answers for its own n-gram. So those that the same text
lacks elsewhere are candidates too, which know its topic and its style: only
what stands around the place tells them from b. With `bert_nce` or `mlm`, which
share the pass over the text, it is InfoWord with a state for each n-gram.

Glossary of shapes: B sequences, S n-grams of each, N = B S pairs, M
candidates, D width.
"""

import math
from typing import Any

from infoword_tf.layers.pooling import unit
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.dim import CRITICS, NGrams, ngram_lengths
from infoword_tf.objectives.objective import Batch, Objective, gather_pool
from infoword_tf.objectives.row import BOTH_SIDES, Row, Vector
from infoword_tf.settings import setting
from infoword_tf.views import Reads

Tensor = Any


class Fill(Objective):
    """`fill`: which n-gram stood here?"""

    critic: str = setting(
        'cosine',
        'How two states are compared; scaled: dot product over the square root '
        'of the width.',
        choices=CRITICS,
    )
    temperature: float = setting(
        0.05,
        'Temperature: the cosine is divided by it.',
        at_least=1e-6,
        needs=('critic', 'cosine'),
    )

    def vectors(self, batch: Batch) -> dict[str, Tensor]:
        """[B, S, D] each: of the places, and of the n-grams."""
        return {'a': batch.states('masked'), 'b': batch.states('ngrams')}

    def candidates(self, batch: Batch) -> NGrams:
        """The n-grams of the global batch; own text's ones are some of them."""
        view = batch.views['ngrams']
        b = self.compared(batch)['b']
        slots = view.targets[self.row].shape[1]
        pool = gather_pool(view, self.row, batch.replicas, batch.limit, b)
        lengths = ops.reshape(ngram_lengths(view, slots), (-1,))
        # Each is a text of its own: what its sequence lacks besides counts.
        numbers = ops.arange(pool.ids.shape[0], dtype='int32')
        return NGrams(
            pool._replace(sequences=numbers), batch.replicas.gather(lengths)
        )

    def score(self, batch: Batch, candidates: NGrams) -> infonce.Outcome:
        """Eq. 1 over n-grams as long as b, which [MASK] shows of b."""
        view = batch.views['ngrams']
        targets = ops.reshape(view.targets[self.row], (-1,))
        slots = view.targets[self.row].shape[1]
        own = self.compared(batch)
        a, b = (
            ops.reshape(ops.cast(own[x], 'float32'), (-1, own[x].shape[-1]))
            for x in 'ab'
        )
        c = candidates.pool.states
        if self.critic == 'cosine':
            a, b, c = map(unit, (a, b, c))
            a = a / self.temperature
        elif self.critic == 'scaled':
            a = a / math.sqrt(a.shape[-1])
        lengths = ops.reshape(ngram_lengths(view, slots), (-1, 1))
        n = targets.shape[0]
        numbers = batch.replicas.id * n + ops.arange(n, dtype='int32')
        counts = candidates.pool.others(
            numbers, among=ops.equal(candidates.lengths[None, :], lengths)
        )
        return infonce.contrast(
            ops.sum(a * b, axis=1),
            ops.matmul(a, ops.transpose(c)),
            counts,
            ops.equal(candidates.pool.ids[None, :], targets[:, None]),
            ops.reshape(view.weights[self.row], (-1,)),
            drop_identical=True,
        )


ROW = Row(
    objective=Fill,
    a='masked text, at the place of an n-gram',
    b='masked n-gram',
    relation='the n-gram that stood at the place',
    candidates='masked n-grams of that length of the batch, its own text too',
    views={
        'masked': Reads('spans', masking='spans'),
        'ngrams': Reads('start', masking='spans'),
    },
    encoders=BOTH_SIDES,
    heldout_candidates=128,
    vector=Vector('mean', 'cosine', priority=1),
)
