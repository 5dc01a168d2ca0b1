"""The row `ict`: a sentence, and the document around it.

    a                             b               candidates
    document without a sentence   that sentence   the batch, both ways

The inverse cloze task (Lee et al. 2019, §4) is Deep InfoMax (Kong et al. 2019,
§4) with a sentence as the n-gram. One encoder for both views; f is the cosine
times a learned scale.

Shapes: J texts of a sequence, N = B J, W width of `words`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from infoword_tf.layers.attention import table, vector
from infoword_tf.layers.pooling import about_unit, pool, rarity, unit
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import Batch
from infoword_tf.objectives.pools import Pool
from infoword_tf.objectives.queue import (
    MOMENTUM,
    Queued,
    auxiliaries,
    encoders,
)
from infoword_tf.objectives.row import Row, Scoring, Vector
from infoword_tf.settings import setting
from infoword_tf.views import Reads, View

Tensor = Any
FIRST_SCALE, LARGEST_SCALE = 20.0, 100.0
_AROUND = -1e4  # exp of it is 0; above infonce.NEVER


class SentenceContrast(Queued):
    """`ict`: which sentence of the batch is missing from which document.

    Learns: vectors of texts for search. They are means of states with weights
        exp(w . h), w learned. With `words` each has a second part, the mean of
        word vectors e from another table, with weights exp(w' . e) a / (a + p),
        where rare tokens weigh most; f is the mean of the cosines of both
        parts. A Transformer needs long to learn that texts which share a rare
        word belong together; a table of random vectors knows it at once.
    Take it: for search without labelled pairs.
    Needs: documents of two sentences or more, and large batches.
    Example: python -m infoword_tf.train --objectives=ict --workdir=W
    """

    sides = ('passage', 'sentence')
    queues = ('passage_', 'sentence_')  # the candidates of each direction
    words: int = setting(
        0,
        'Width of an additional table of word vectors; their weighted mean is '
        "appended to a text's vector; 0: none.",
        at_least=0,
    )

    def build(self) -> None:
        """Makes w, 0 at first (the plain mean), and the scale of f."""
        width = self.encoder.width
        self.pooling_kernel = vector(self, 'pooling_kernel', width)
        self.log_scale = table(self, 'log_scale')
        if self.words:
            self.word_embeddings = table(
                self, 'word_embeddings', self.specials.size, self.words
            )
            self.word_kernel = vector(self, 'word_kernel', self.words)
        super().build()

    def text_vectors(
        self, ids: Tensor, real: Tensor, states: Tensor, counts: Any
    ) -> Tensor:
        """Computes a vector for each text, to be compared by cosine.

        Args:
            ids: [B, T] int32.
            real: [B, T] bool, False for padding, or [B, J, T], see `pool`.
            states: [B, T, D] of the encoder.
            counts: [V], how often each token is in the training text.

        Returns:
            [N, D + W] float32: with `words` both parts of length 1.
        """
        kernel = ops.convert_to_tensor(self.pooling_kernel)
        vectors = pool(states, real, kernel)
        if not self.words:
            return vectors
        prior = rarity(counts)
        # [CLS] and [SEP] are no words: they weigh nothing compared with words,
        # but count in an empty text.
        prior[[self.specials.cls_id, self.specials.sep_id]] = _AROUND
        table = ops.convert_to_tensor(self.word_embeddings)
        words = pool(
            ops.take(table, ids, axis=0),
            real,
            ops.convert_to_tensor(self.word_kernel),
            ops.take(ops.convert_to_tensor(prior), ids, axis=0),
        )
        return ops.concatenate([about_unit(vectors), about_unit(words)], axis=1)

    def vectors(self, batch: Batch) -> dict[str, Tensor]:
        """Returns [N, D + W] of length 1, by side.

        SIDE_keys are by the momentum encoder.
        """
        vectors = {side: self._side(batch, side) for side in self.sides}
        if self.momentum:
            for side in self.sides:
                vectors[f'{side}_keys'] = self._side(batch, side, MOMENTUM)
        return vectors

    def _side(
        self, batch: Batch, side: str, encoder: str = 'encoder'
    ) -> Tensor:
        view, states = batch.views[side], batch.states(side, encoder)
        *_, length, width = states.shape
        ids, real = self.tokens_of_texts(view)
        vectors = self.text_vectors(
            ids,
            real,
            ops.reshape(states, (-1, length, width)),
            batch.statistics.training,
        )
        return unit(vectors)

    def tokens_of_texts(self, view: View) -> tuple[Tensor, Tensor]:
        """Returns the tokens of each text; see `Queued`."""
        length = view.ids.shape[-1]
        ids, block_ids = (
            ops.reshape(x, (-1, length)) for x in (view.ids, view.block_ids)
        )
        # Passages share a sequence as blocks; sentences stand alone, J to a
        # sequence of passages.
        slots = view.targets[self.row].shape[1]
        if len(view.ids.shape) == 3:
            slots //= view.ids.shape[1]
        number = ops.arange(slots, dtype='int32')[:, None]
        return ids, ops.equal(block_ids[:, None], number)

    def candidates(self, batch: Batch) -> dict[str, Pool]:
        """Returns the vectors of the global batch and of a queue, by side."""
        vectors, pools = self.vectors_of(batch), {}
        for side in self.sides:
            pool = self.pool_of(
                batch, batch.views[side], vectors[side][:, None]
            )
            pools[side] = self.with_queue(batch, pool, f'{side}_')
        return pools

    def update_state(self, batch: Batch) -> dict[str, Any]:
        """Queues both sides, by the momentum encoder if `momentum`.

        Pooling and words have no averages: their weights are the current ones.
        """
        if not self.queue:
            return {}
        state: dict[str, Any] = {}
        vectors = self.vectors_of(batch)
        for side in self.sides:
            keys = vectors[f'{side}_keys' if self.momentum else side]
            pool = self.pool_of(batch, batch.views[side], keys[:, None])
            state |= self.enqueue(batch, pool, f'{side}_')
        return state

    @property
    def key_width(self) -> int:
        """D + W."""
        return self.encoder.width + self.words

    def score(
        self, batch: Batch, candidates: dict[str, Pool]
    ) -> infonce.Outcome:
        """Computes the mean of Eq. 1 from a to b and from b to a.

        With `words` the loss adds that of the states alone; all else is of the
        whole vectors.
        """
        whole = self.vectors_of(batch)
        outcome = self._contrast(batch, candidates, whole)
        if not self.words:
            return outcome

        def states(vectors: Tensor) -> Tensor:
            return unit(vectors[:, : self.encoder.width])

        alone = self._contrast(
            batch,
            {
                side: others._replace(states=states(others.states))
                for side, others in candidates.items()
            },
            {side: states(vectors) for side, vectors in whole.items()},
            states,
        )
        return outcome._replace(loss=outcome.loss + alone.loss)

    def _contrast(
        self,
        batch: Batch,
        candidates: dict[str, Pool],
        vectors: Mapping[str, Tensor],
        finish: Callable[[Tensor], Tensor] | None = None,
    ) -> infonce.Outcome:
        """Computes Eq. 1 both ways.

        Args:
            batch, candidates: of the step.
            vectors: by side, [N, ...] of length 1.
            finish: makes such vectors of queued ones.
        """
        scale = ops.minimum(
            FIRST_SCALE * ops.exp(self.log_scale), LARGEST_SCALE
        )
        positive = vectors['passage'] * vectors['sentence']
        positive = scale * ops.sum(positive, axis=1)
        outcomes = []
        for query, answer in (self.sides, self.sides[::-1]):
            view, others = batch.views[answer], candidates[answer]
            targets = self.text_numbers(view)
            queries = scale * vectors[query]
            scores = ops.matmul(queries, ops.transpose(others.states))  # [B, M]
            earlier = self.score_queue(
                batch, others, queries, targets, finish=finish
            )
            outcomes.append(
                infonce.contrast(
                    positive,
                    scores,
                    others.others(ops.reshape(view.sequences, (-1,))),
                    ops.equal(others.ids[None, :], targets[:, None]),
                    ops.reshape(view.weights[self.row], (-1,)),
                    measured=ops.reshape(view.measured[self.row], (-1,)),
                    drop_identical=True,
                    earlier=earlier and earlier.others,
                )
            )
        return infonce.average(*outcomes)


def _vector(settings: Mapping[str, Any]) -> Vector:
    """Pools by the mean with learned weights, with or without words."""
    pooling = 'words' if settings['words'] else 'weighted'
    return Vector(pooling, 'cosine', priority=2)


def _reads(settings: Mapping[str, Any]) -> Reads:
    return Reads('text', encoders=encoders(settings))


def _products(scoring: Scoring) -> int:
    """Counts the products of two poolings of each text, and of both ways."""
    sides = [scoring.views[side].ids for side in SentenceContrast.sides]
    pooled = 2 * 2 * sum(ids.size for ids in sides)
    texts = len(sides[0])
    return (pooled + 2 * texts * texts) * scoring.width


ICT = Row(
    objective=SentenceContrast,
    a='document without a sentence',
    b='that sentence',
    relation='a sentence and the text around it (inverse cloze task)',
    candidates='the batch, both ways',
    views=dict.fromkeys(SentenceContrast.sides, _reads),
    encoders={
        'modern': {},
        'transformer': {},
        'disentangled': {},
        'lookup': {},
    },
    heldout_candidates=128,
    vector=_vector,
    auxiliaries=auxiliaries,
    answers=('vectors',),
    products=_products,
)
