"""The rows `skip_gram` and `cbow`: a word and the words around it.

    row        a                          b
    skip_gram  a word                     a word around it
    cbow       the mean of those around   the word

g_omega is the encoder's table and g_psi one of the row's own, f their dot
product (Mikolov et al. 2013; Kong et al. 2019, §3.1). Candidates are the true
word and M that are drawn from q, unigram^0.75, or the whole vocabulary. The
original loss is binary: it bounds nothing. [UNK] is in no pair and among no
draws. Both tables are drawn, where word2vec.c begins with zeros for b.

All pairs of a sequence share its draws, so that scores are products of
matrices: words [T, D] with draws [D, M], and with the words around in blocks,
of which the pairs are a band. Each vector of a table is read once a word.

Shapes: J = 2 w + 1 places of a window (1 of `cbow`), W words of a block,
G = T / W blocks.
"""

import math

import numpy as np

from infoword_tf.layers.attention import table
from infoword_tf.layers.block import read_vectors
from infoword_tf.layers.fused import by_key, compiled, upstream_of
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.candidates import Statistics
from infoword_tf.objectives.objective import Batch, Objective, Row
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads, View
from infoword_tf.views.words import (
    SUBSAMPLE,
    keep_probabilities,
    known,
    noise,
)

LOSSES = ('infonce', 'vocabulary', 'binary')
VIEW = 'words'
BLOCK = 32  # words; more waste products, fewer read more vectors


class WindowWords(Objective):
    """Candidates, losses and the table of b of both rows."""

    loss: str = setting(
        'infonce',
        'Candidates: sampled words (infonce), all words (vocabulary), or none: '
        'binary classification (binary, word2vec).',
        choices=LOSSES,
    )
    ratio: int = setting(
        5,
        'Negatives per pair that the loss is scaled to, however many are '
        'sampled (word2vec: negative).',
        at_least=1,
        needs=('loss', ('binary',)),
    )
    subsample: float = SUBSAMPLE  # as the view has it

    def build(self) -> None:
        """Makes the table of b."""
        self.bounded = self.loss != 'binary'
        self.outputs = table(
            self,
            'output_embeddings',
            self.encoder.vocab_size,
            self.encoder.embedding_width,
        )

    def rows_of(self, ids: Tensor) -> Tensor:
        """Looks b up in the table: ids [...] -> g_psi [..., D]."""
        return ops.cast(read_vectors(self.outputs, ids), 'float32')

    def statistics(self, counted: Statistics) -> Statistics:
        """Returns counts of the subsampled text, where b come from."""

        def subsampled(counts: np.ndarray) -> np.ndarray:
            counts = known(counts, self.specials.unk_id)
            return counts * keep_probabilities(counts, self.subsample)

        return counted._replace(
            training=subsampled(counted.training),
            measured=subsampled(counted.measured),
        )

    def score_windows(
        self, batch: Batch, x: Tensor, positive: Tensor, targets: Tensor
    ) -> infonce.Outcome:
        """Computes the loss of all pairs.

        Args:
            batch: input of the step.
            x: [B, T, D] float32, a of each place.
            positive: [B, T, J] float32, f of its pairs.
            targets: [B, T, J] int32, their b.
        """
        view = batch.views[VIEW]
        size = self.encoder.vocab_size
        if self.loss == 'vocabulary':
            q, ids = np.full(size, 1 / size), None
            rows = ops.convert_to_tensor(self.outputs)[None]  # [1, V, D]
            copies = ops.zeros_like(positive)
        else:
            counts = batch.statistics.measured
            q = noise(known(counts, self.specials.unk_id))
            q = np.where(q > 0, q, 1.0)  # never drawn, and never a target
            ids = view.drawn[self.row]  # [B, M]
            rows = self.rows_of(ids)
            copies = self.copies(view, ids, targets)
        reduce = 'softplus' if self.loss == 'binary' else 'exp'
        reduced, highest = (
            scores[:, :, None]
            for scores in _reduced(x, rows, reduce, batch.fused_key)
        )
        # A copy of b is no other word, although rounding may score it higher.
        has_copy = copies + float(self.loss == 'vocabulary') > 0
        margin = ops.where(has_copy, 1e-5 * (1.0 + ops.abs(positive)), 0.0)
        first = ops.cast(ops.greater(positive + margin, highest), 'float32')
        weights = ops.reshape(view.weights[self.row], (-1,))
        flat = ops.reshape(targets, (-1,))
        marginal = self.statistics(batch.statistics).marginal(
            self.row, flat, q, ids
        )
        if self.loss == 'binary':
            others = reduced - copies * ops.softplus(positive)
            loss = ops.softplus(-positive)
            loss = loss + others * (self.ratio / rows.shape[1])
            return infonce.unbounded(
                ops.reshape(loss, (-1,)),
                weights,
                ops.reshape(first, (-1,)),
                marginal.chance,
            )
        number = rows.shape[1]
        if self.loss == 'vocabulary':
            log_sum = ops.broadcast_to(reduced, positive.shape)
        else:
            log_sum = ops.logaddexp(reduced, positive)
            number += 1
        return infonce.infonce(
            infonce.Candidates(
                ops.reshape(positive, (-1,)),
                ops.reshape(log_sum, (-1,)),
                math.log(number),
                rank=ops.reshape(1 - first, (-1,)),
                log_copies=ops.reshape(ops.log1p(copies), (-1,)),
            ),
            weights,
            marginal,
        )

    def copies(self, view: View, ids: Tensor, targets: Tensor) -> Tensor:
        """Counts the draws [B, M] that equal b, [B, T, J] float32."""
        same = ops.equal(view.ids[:, :, None], ids[:, None, :])
        count = ops.sum(ops.cast(same, 'float32'), axis=2)  # [B, T]
        return _frames(count, 1, targets.shape[2])


class SkipGram(WindowWords):
    """`skip_gram`: the words around a word.

    Learns: a vector of each word.
    Take it: for word vectors, or as the start of a lookup encoder.
    Needs: much text, and words as tokens (--tokenizer=words).
    Example: python -m infoword_tf.train --objectives=skip_gram
        --tokenizer=words --workdir=W
    """

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Scores every pair of a window."""
        view = batch.views[VIEW]
        x = ops.cast(batch.states(VIEW), 'float32')
        batch_size, length, width = x.shape
        places = view.targets[self.row].shape[1] // length
        block = _block(length)
        # b are words of the block, and of a margin on both sides.
        around = _frames(view.ids, block, block + places - 1)  # [B, G, ...]
        positive = _near(
            ops.reshape(x, (batch_size, -1, block, width)),
            self.rows_of(around),
            batch.fused_key,
        )
        positive = ops.reshape(positive, (batch_size, length, places))
        targets = ops.reshape(view.targets[self.row], positive.shape)
        return self.score_windows(batch, x, positive, targets)


class ContinuousBag(WindowWords):
    """`cbow`: a word from the mean of the words around.

    Learns: a vector of each word; faster than `skip_gram`, and less of rare
        words.
    Take it: as `skip_gram`, with very much text.
    Needs: as `skip_gram`.
    Example: python -m infoword_tf.train --objectives=cbow --tokenizer=words
        --workdir=W
    """

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Scores every word that has words around."""
        view = batch.views[VIEW]
        states = ops.cast(batch.states(VIEW), 'float32')
        batch_size, length, width = states.shape
        mixes = view.mixes[self.row]  # [B, T, J]
        block = _block(length)
        around = _around(states, block, mixes.shape[2] // 2, batch.fused_key)
        mixes = ops.reshape(mixes, (batch_size, -1, block, mixes.shape[2]))
        x = ops.reshape(ops.matmul(_spread(mixes), around), states.shape)
        positive = ops.sum(x * self.rows_of(view.ids), axis=2, keepdims=True)
        return self.score_windows(batch, x, positive, view.ids[:, :, None])


def _block(length: int) -> int:
    """Returns W, the largest divisor of T that blocks may have."""
    return next(s for s in range(min(BLOCK, length), 0, -1) if not length % s)


def _reduced(
    x: Tensor, rows: Tensor, how: str, key: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Reduces all scores of each place, as a fused operation (`fused.py`).

    Scores lie with the places in the last axis, along which sums over
    candidates are fast.

    Args:
        x: [B, T, D] float32.
        rows: [B or 1, M, D] float32, candidates.
        how: 'exp', the log of the sum of exponentials; 'softplus', the sum of
            softplus.
        key: None runs plain operations.

    Returns:
        [B, T] float32 each: the reduced score, and the highest score, which
        has no gradient.
    """

    def scores_of(x, rows):
        return ops.matmul(rows, ops.transpose(x, (0, 2, 1)))  # [B, M, T]

    if key is None:
        scores = scores_of(x, rows)
        reduced, highest = by_key(_reduce, key)(scores, how=how)
        return reduced, ops.stop_gradient(highest)

    @ops.custom_gradient
    def function(x, rows):
        scores = scores_of(x, rows)
        reduced, highest = _reduce(scores, how=how)

        def grad(*args, upstream=None):
            d_reduced, _ = upstream_of(args, upstream)
            total = _reduce_grad(scores, reduced, d_reduced, how=how)
            d_rows = ops.matmul(total, x)
            if rows.shape[0] == 1:
                d_rows = ops.sum(d_rows, axis=0, keepdims=True)
            return ops.matmul(ops.transpose(total, (0, 2, 1)), rows), d_rows

        return (reduced, highest), grad

    return function(x, rows)


@compiled
def _reduce(scores, *, how):
    """Returns the reduced and the highest of scores [B, M, T], [B, T] each."""
    highest = ops.max(scores, axis=1)
    if how == 'softplus':
        return ops.sum(ops.softplus(scores), axis=1), highest
    total = ops.sum(ops.exp(scores - highest[:, None]), axis=1)
    return highest + ops.log(total), highest


@compiled
def _reduce_grad(scores, reduced, upstream, *, how):
    """Computes the gradient of `_reduce`'s first result, [B, M, T]."""
    if how == 'softplus':
        return ops.sigmoid(scores) * upstream[:, None]
    return ops.exp(scores - reduced[:, None]) * upstream[:, None]


def _frames(x: Tensor, step: int, size: int) -> Tensor:
    """Cuts overlapping blocks: [B, T, ...] -> [B, T / step, size, ...].

    Each is of `step` places and as many more as make up the size, half of them
    before and half after; zeros beyond the sequence.
    """
    margin = (size - step) // 2
    number = -(-size // step)
    rest = ((0, 0),) * (len(x.shape) - 2)
    length = x.shape[1]
    after = (number - 1) * step - margin
    padded = ops.pad(x, ((0, 0), (margin, after), *rest))
    slices = []
    for begin in range(0, size, step):
        blocks = padded[:, begin : begin + length]
        blocks = ops.reshape(
            blocks, (x.shape[0], length // step, step, *x.shape[2:])
        )
        slices.append(blocks[:, :, : min(step, size - begin)])
    return slices[0] if number == 1 else ops.concatenate(slices, axis=2)


def _around(
    x: Tensor, block: int, margin: int, key: Tensor | None
) -> Tensor:
    """Computes `_frames` of states, with an explicit gradient.

    Args:
        x: [B, T, D] float32.
        block: W.
        margin: places before, and after.
        key: None runs plain operations.
    """
    size = block + 2 * margin
    if key is None or margin > block:
        return _frames(x, block, size)

    @ops.custom_gradient
    def function(x):
        def grad(*args, upstream=None):
            (upstream,) = upstream_of(args, upstream)
            rest = block - margin
            inner = upstream[:, :, margin : margin + block]
            before = upstream[:, 1:, :margin]  # of the block after
            before = ops.pad(before, ((0, 0), (0, 1), (rest, 0), (0, 0)))
            after = upstream[:, :-1, margin + block :]
            after = ops.pad(after, ((0, 0), (1, 0), (0, rest), (0, 0)))
            return ops.reshape(inner + before + after, x.shape)

        return _frames(x, block, size), grad

    return function(x)


def _near(x: Tensor, rows: Tensor, key: Tensor | None) -> Tensor:
    """Multiplies in bands: [B, G, W, D], [B, G, n, D] -> [B, G, W, J].

    The gradient needs no product that is transposed afterwards.

    Args:
        x, rows: float32.
        key: None runs plain operations.
    """

    def turned(x):
        return ops.transpose(x, (0, 1, 3, 2))

    if key is None:
        return _band(ops.matmul(x, turned(rows)))

    @ops.custom_gradient
    def function(x, rows):
        def grad(*args, upstream=None):
            (upstream,) = upstream_of(args, upstream)
            total = _spread(upstream)
            return ops.matmul(total, rows), ops.matmul(turned(total), x)

        return _band(ops.matmul(x, turned(rows))), grad

    return function(x, rows)


def _band(x: Tensor) -> Tensor:
    """Takes diagonals: [..., W, n] -> [..., W, J], J = n - W + 1.

    Line i keeps its columns i to i + J - 1. In lines that are one longer than n
    these begin at the same column.
    """
    *rest, s, c = x.shape
    flat = ops.reshape(x, (*rest, s * c))
    flat = ops.pad(flat, ((0, 0),) * len(rest) + ((0, s),))
    return ops.reshape(flat, (*rest, s, c + 1))[..., : c - s + 1]


def _spread(x: Tensor) -> Tensor:
    """Inverts `_band`, with zeros elsewhere: [..., W, J] -> [..., W, n]."""
    *rest, s, j = x.shape
    c = s + j - 1
    wide = ops.pad(x, ((0, 0),) * (len(rest) + 1) + ((0, c + 1 - j),))
    flat = ops.reshape(wide, (*rest, s * (c + 1)))[..., : s * c]
    return ops.reshape(flat, (*rest, s, c))


_CANDIDATES = 'sampled tokens, vocabulary, or none: binary, without a bound'
SKIP_GRAM = Row(
    objective=SkipGram,
    a='token',
    b='token around it',
    relation='a token of the same window (word2vec)',
    candidates=_CANDIDATES,
    views={VIEW: Reads('around')},
    needs=('own_vectors',),
)
CBOW = Row(
    objective=ContinuousBag,
    a='tokens of a window',
    b='token in their middle',
    relation='the token that they stand around (word2vec)',
    candidates=_CANDIDATES,
    views={VIEW: Reads('middle')},
    needs=('own_vectors',),
)
