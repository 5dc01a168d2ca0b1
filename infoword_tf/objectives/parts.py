"""The rows of texts in parts: `parts`, and `part_words` beside it.

    row         a                     b                     candidates
    parts       masked part           the same part, masked parts of that length
                of a text             anew; or the next one of the batch
    part_words  masked part           masked piece          the whole vocabulary

`infoword` contrasts a text with its n-grams, and pays for it with a second
pass over these. Here a text is cut into parts, each of which is there twice,
and the one pass that words are predicted from is contrasted as well: which
part is the same as this one, of which other words are masked? What is masked
is another draw in both, so neither vector can rest on a few words; and as words
are predicted in both, no token is read for the contrast alone. Parts are half a
text, a quarter, ... to an n-gram, and each is compared with those of its own
length: the critic is fair to all scales, and a length says nothing. f is the
cosine of means of states over a temperature.

SimCSE (Gao et al. 2021) has dropout where masks are here, and begins with a
pretrained encoder; DeCLUTR (Giorgi et al. 2021) contrasts spans that are near
each other beside masked words, and encodes them apart.

Glossary of shapes: B sequences, S parts of each, N = B S, M candidates,
T tokens, D width.
"""

from typing import Any, ClassVar

from infoword_tf.layers.pooling import of_texts, pool, tokens_of, unit
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.mlm import MaskedPieces
from infoword_tf.objectives.objective import (
    Batch,
    Objective,
    Pool,
    gather_pool,
)
from infoword_tf.objectives.row import BOTH_SIDES, Row, Vector
from infoword_tf.settings import setting
from infoword_tf.views import Reads, View

Tensor = Any
VIEW = 'parts'
OTHERS, ALL = NEGATIVES = ('others', 'all')


class PartContrast(Objective):
    """`parts`: which part of its length belongs to this one?"""

    temperature: float = setting(
        0.05, 'Temperature: the cosine is divided by it.', at_least=1e-6
    )
    negatives: str = setting(
        OTHERS,
        'Candidates: parts of other texts (others), or those of its own text '
        'that are not beside it as well (all).',
        choices=NEGATIVES,
    )

    def vectors(self, batch: Batch) -> dict[str, Tensor]:
        """[N, D] float32 of length 1: of each part."""
        view = batch.views[VIEW]
        real = of_texts(view.block_ids, view.targets[self.row].shape[1])
        return {'parts': unit(pool(batch.states(VIEW), real))}

    def candidates(self, batch: Batch) -> Pool:
        """The parts of the global batch."""
        view = batch.views[VIEW]
        slots = view.targets[self.row].shape[1]
        vectors = self.compared(batch)['parts']
        found = gather_pool(
            view,
            self.row,
            batch.replicas,
            batch.limit,
            ops.reshape(vectors, (-1, slots, vectors.shape[-1])),
        )
        lengths = batch.replicas.gather(_lengths(view, slots))
        return found._replace(lengths=lengths)

    def score(self, batch: Batch, candidates: Pool) -> infonce.Outcome:
        """Eq. 1 over the parts of that length; each is an a, and a b."""
        view = batch.views[VIEW]
        targets, weights = view.targets[self.row], view.weights[self.row]
        slots = targets.shape[1]
        x = self.compared(batch)['parts']  # [N, D]
        b = _beside(ops.reshape(x, (-1, slots, x.shape[-1])))
        b = ops.reshape(b, ops.shape(x))
        there = ops.reshape(weights * _beside(weights), (-1,))  # [N]
        asked = x / self.temperature
        scores = ops.matmul(asked, ops.transpose(candidates.states))  # [N, M]
        own_lengths = _lengths(view, slots)[:, None]
        alike = ops.equal(candidates.lengths[None, :], own_lengths)
        sequences = ops.repeat(view.sequences, slots)
        counts = candidates.others(sequences, among=alike)
        identical = ops.equal(
            candidates.ids[None, :], ops.reshape(_beside(targets), (-1, 1))
        )
        if self.negatives == ALL:
            # Of its own text all but itself and b.
            own = ops.equal(candidates.sequences[None, :], sequences[:, None])
            itself = ops.equal(
                candidates.ids[None, :], ops.reshape(targets, (-1, 1))
            )
            both = ops.logical_or(itself, identical)
            own = ops.logical_and(own, ops.logical_not(both))
            counts = counts + ops.where(own, candidates.weights[None, :], 0.0)
        return infonce.contrast(
            ops.sum(x * b, axis=1) / self.temperature,
            scores,
            counts,
            identical,
            there,
            drop_identical=True,
        )

    def weight(self, batch: Batch) -> Tensor:
        """The sum over parts that have a neighbour."""
        weights = batch.views[VIEW].weights[self.row]
        return ops.sum(weights * _beside(weights))


def _beside(x: Tensor) -> Tensor:
    """[B, S, ...] of parts -> the same of the part beside each: 1, 0, 3, 2."""
    b, slots, *more = x.shape
    pairs = ops.reshape(x, (-1, slots // 2, 2, *more))
    return ops.reshape(ops.flip(pairs, axis=2), (-1, slots, *more))


def _lengths(view: View, slots: int) -> Tensor:
    """[N] int32: tokens of each part, [CLS] and [SEP] too."""
    return ops.reshape(tokens_of(view.block_ids, slots), (-1,))


class PartPieces(MaskedPieces):
    """`part_words`: `mlm` in the view of `parts`, which share a pass."""

    view: ClassVar[str] = VIEW


PARTS = Row(
    objective=PartContrast,
    a='masked part of a text',
    b='the part, masked anew',
    relation='equal but for what is masked, from halves of a text to n-grams',
    candidates='parts of that length of other sequences',
    views={VIEW: Reads('text')},
    encoders=BOTH_SIDES,
    heldout_candidates=128,
    vector=Vector('mean', 'cosine', priority=5),
)
PART_WORDS = Row(
    objective=PartPieces,
    a='masked part of a text',
    b='masked word',
    relation='the word that stood at the place, in its part',
    candidates='vocabulary',
    views={VIEW: Reads('pieces')},
    encoders=BOTH_SIDES,
    answers=('blanks',),
    begins_as='mlm',
)
