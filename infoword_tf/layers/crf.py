"""A linear-chain CRF over the labels of the words of a text.

    log p(y | a) = sum_t s_t(y_t) + sum_t A(y_t-1, y_t) - log Z

(Lafferty et al. 2001; Lample et al. 2016, §2.2) with scores s of each word, a
score A of each two neighbouring labels, and scores of the first and of the last
label. Forward and backward pass are in probabilities that are normalised at
each word (Rabiner 1989, §V.A). No gradient goes back through these loops: that
of log Z are the posteriors, so

    sum_t p(y_t) . s_t + sum_t p(y_t-1, y_t) . A

with constant posteriors has the gradient of log Z, one product after the loops.

Glossary of shapes: W words of a sequence at most, C labels.
"""

from typing import NamedTuple

from infoword_tf.layers.attention import table, vector
from infoword_tf.layers.fused import compiled
from infoword_tf.lazy import Layer, ops
from infoword_tf.tensors import Tensor

TINY = 1e-30


class Chains(NamedTuple):
    """Words of sequences, moved together, and padding.

    Attributes:
        order: [B, T] int32, the place of each word; then all other places.
        back: [B, T] int32, the reverse.
        word: [B, T] float32, 1 for words.
        first, last: [B, T] float32, 1 for the first, and the last, of a chain.
    """

    order: Tensor
    back: Tensor
    word: Tensor
    first: Tensor
    last: Tensor

    @property
    def flags(self) -> tuple[Tensor, Tensor, Tensor]:
        """`word`, `first` and `last` for the numbers of a word, [B, T, 1]."""
        return (
            self.word[:, :, None],
            self.first[:, :, None],
            self.last[:, :, None],
        )


def chains_of(word: Tensor, block_ids: Tensor) -> Chains:
    """Moves words [B, T] bool together; a chain is the words of a block."""
    length = ops.shape(word)[1]
    place = ops.arange(length, dtype='int32')[None, :]
    order = ops.argsort(ops.where(word, place, place + length), axis=1)
    order = ops.cast(order, 'int32')
    back = ops.cast(ops.argsort(order, axis=1), 'int32')
    word = ops.take_along_axis(ops.cast(word, 'float32'), order, axis=1)
    block = ops.take_along_axis(block_ids, order, axis=1)
    block = ops.where(word > 0, block, -1)
    around = ops.pad(block, [[0, 0], [1, 1]], constant_values=-1)
    differs = ops.cast(ops.not_equal(around[:, 1:], around[:, :-1]), 'float32')
    return Chains(
        order,
        back,
        word,
        first=word * differs[:, :-1],
        last=word * differs[:, 1:],
    )


def moved(x: Tensor, places: Tensor) -> Tensor:
    """Moves x [B, T, ...] along T: `Chains.order`, or `back` again."""
    if len(x.shape) == 3:
        places = places[:, :, None]
    return ops.take_along_axis(x, places, axis=1)


def _scan(step, start, inputs, length, reverse=False):
    """Scans arrays [B, T, ...], joined to one; returns results [B, T, ...].

    Of several arrays Keras needs a known length.
    """
    sizes = [x.shape[2] for x in inputs]
    bounds = [sum(sizes[:i]) for i in range(1, len(sizes))]
    joined = ops.transpose(ops.concatenate(inputs, axis=2), (1, 0, 2))

    def one(carry, x):
        new = step(carry, *ops.split(x, bounds, axis=1))
        return new, new

    results = ops.scan(one, start, joined, length=length, reverse=reverse)[1]
    return ops.transpose(results, (1, 0, 2))


def _posteriors(scores, word, first, last, transitions):
    """Computes posteriors: of labels [B, T, C], of pairs [C, C] in all, log Z.

    Args: `scores` [B, T, C] with those of first and last labels; `word`,
    `first` and `last` [B, T, 1]; `transitions` A [C, C].
    """
    c = scores.shape[2]
    most, top = ops.max(scores, axis=2, keepdims=True), ops.max(transitions)
    emitted = ops.exp(scores - most)
    moves = ops.exp(transitions - top)  # [C, C]
    length = scores.shape[1]

    def forward(carry, emitted, word, first):
        before = carry[:, :c]
        prior = ops.where(first > 0, 1.0, ops.matmul(before, moves))
        now = prior * emitted
        total = ops.maximum(ops.sum(now, axis=1, keepdims=True), TINY)
        now = ops.where(word > 0, now / total, before)
        return ops.concatenate([now, total], axis=1)

    start = ops.zeros_like(ops.concatenate([scores[:, 0], most[:, 0]], axis=1))
    states = _scan(forward, start, [emitted, word, first], length)
    alpha, total = states[:, :, :c], states[:, :, c:]
    # What comes after a word, times its scores: what the word before reads.
    through = emitted / total

    def backward(carry, through, word, last):
        beta = ops.where(last > 0, 1.0, ops.matmul(carry, ops.transpose(moves)))
        after = ops.where(word > 0, through * beta, carry)
        return after

    after = _scan(
        backward, ops.zeros_like(scores[:, 0]), [through, word, last], length,
        reverse=True,
    )  # fmt: skip
    beta = ops.where(last > 0, 1.0, ops.matmul(
        ops.pad(after[:, 1:], [[0, 0], [0, 1], [0, 0]]), ops.transpose(moves)
    ))  # fmt: skip
    posterior = alpha * beta * word
    posterior = posterior / ops.maximum(
        ops.sum(posterior, axis=2, keepdims=True), TINY
    )
    inner = word * (1 - first)
    before = ops.pad(alpha[:, :-1], [[0, 0], [1, 0], [0, 0]]) * inner
    pairs = moves * ops.matmul(
        ops.transpose(ops.reshape(before, (-1, c))),
        ops.reshape(after * inner, (-1, c)),
    )
    log_z = ops.sum(word * (ops.log(total) + most) + inner * top)
    return posterior, pairs, log_z


_fused = compiled(_posteriors)


def _most(x):
    """Returns the largest of x [..., C] and the place, float32.

    Without `ops.argmax`, which servers cannot run: it tells 0 from -0.
    """
    value, place = ops.top_k(x, 1)
    return value[..., 0], ops.cast(place[..., 0], 'float32')


class Crf(Layer):
    """A CRF over C labels."""

    def __init__(self, labels: int, name: str = 'crf'):
        """Sets C, and the first part of the paths."""
        super().__init__(name=name)
        self.labels = labels

    def build(self) -> None:
        """Makes the scores of neighbours, of first and of last labels."""
        self.transitions = table(
            self, 'transition_kernel', self.labels, self.labels
        )
        self.starts = vector(self, 'start_bias', self.labels)
        self.ends = vector(self, 'end_bias', self.labels)

    def _with_ends(self, scores: Tensor, chains: Chains) -> Tensor:
        """Moves scores [B, T, C] together, and adds scores of both ends."""
        scores = moved(scores, chains.order)
        scores = scores + chains.first[:, :, None] * self.starts
        return scores + chains.last[:, :, None] * self.ends

    def posteriors(
        self,
        scores: Tensor,
        targets: Tensor | None,
        chains: Chains,
        key: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Computes how likely each label is, and the loss of true labels.

        Args:
            scores: [B, T, C] float32.
            targets: [B, T] int32, read at words; None: there is no loss.
            chains: the words.
            key: key of fused operations; None: plain operations.

        Returns:
            log p of labels [B, T, C] float32, without a gradient; and minus the
            sum of log p(y | a) over all chains, nats.
        """
        scores = self._with_ends(scores, chains)
        transitions = ops.convert_to_tensor(self.transitions)
        word, first, last = chains.flags
        compute = _posteriors if key is None else _fused
        posterior, pairs, log_z = compute(
            ops.stop_gradient(scores), word, first, last,
            transitions=ops.stop_gradient(transitions),
        )  # fmt: skip
        log_p = moved(ops.log(ops.maximum(posterior, TINY)), chains.back)
        if targets is None:
            return log_p, None
        true = ops.one_hot(
            moved(targets, chains.order), self.labels, dtype='float32'
        ) * word  # fmt: skip
        before = ops.pad(true[:, :-1], [[0, 0], [1, 0], [0, 0]])
        before = before * word * (1 - first)
        of_true = ops.matmul(
            ops.transpose(ops.reshape(before, (-1, self.labels))),
            ops.reshape(true, (-1, self.labels)),
        )
        best = ops.sum(true * scores) + ops.sum(of_true * transitions)
        linear = ops.sum(ops.stop_gradient(posterior) * scores)
        linear = linear + ops.sum(ops.stop_gradient(pairs) * transitions)
        # Its value is log Z, its gradient that of `linear`.
        log_z = linear + ops.stop_gradient(log_z - linear)
        return ops.stop_gradient(log_p), log_z - best

    def best(self, scores: Tensor, chains: Chains) -> Tensor:
        """Finds the likeliest labels of each chain (Viterbi): [B, T] int32."""
        scores = self._with_ends(scores, chains)
        word, first, last = chains.flags
        c, length = self.labels, scores.shape[1]
        before = ops.transpose(ops.convert_to_tensor(self.transitions))

        def forward(carry, scores, word, first):
            most, origin = _most(carry[:, None, :c] + before)  # [B, C]
            value = ops.where(first > 0, 0.0, most) + scores
            new = ops.concatenate([value, origin], axis=1)
            return ops.where(word > 0, new, carry)

        start = ops.zeros_like(ops.concatenate([scores[:, 0]] * 2, axis=1))
        states = _scan(forward, start, [scores, word, first], length)
        ends = _most(states[:, :, :c])[1][:, :, None]
        labels = ops.arange(c, dtype='float32')[None, :]

        def backward(carry, origin, end, word, last):
            # The carry: this word's label, and that of the word before it.
            label = ops.where(last > 0, end, carry[:, 1:])
            label = ops.where(word > 0, label, carry[:, 1:])
            before = ops.sum(
                ops.where(labels == label, origin, 0.0), axis=1, keepdims=True
            )
            return ops.concatenate([label, before], axis=1)

        inputs = [states[:, :, c:], ends, word, last]
        start = ops.zeros_like(ops.concatenate([word[:, 0]] * 2, axis=1))
        path = _scan(backward, start, inputs, length, reverse=True)[:, :, 0]
        return ops.cast(moved(path, chains.back), 'int32')
