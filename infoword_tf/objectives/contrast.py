"""The row `ict`: a sentence, and the document around it.

    a                             b               candidates
    document without a sentence   that sentence   the batch, both ways

The inverse cloze task (Lee et al. 2019, §4) is Deep InfoMax (Kong et al. 2019,
§4) with a sentence as the n-gram. One encoder for both views; f is the cosine
times a learned scale, or another critic's (comparing.py). To these the sentence
is the query and the document the passage, as in a search.

Shapes: J texts of a sequence, N = B J, W width of `words`, F numbers of a text.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from infoword_tf.config import COSINE, LATE, LEXICAL
from infoword_tf.layers.attention import table, vector
from infoword_tf.layers.pooling import about_unit, pool, rarity, unit
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.comparing import Comparing, vector_of
from infoword_tf.objectives.objective import Batch
from infoword_tf.objectives.pools import Pool
from infoword_tf.objectives.queue import MOMENTUM, auxiliaries, encoders
from infoword_tf.objectives.row import Row, Scoring, Vector
from infoword_tf.settings import setting
from infoword_tf.views import Reads, View

Tensor = Any
PASSAGE, SENTENCE = 'passage', 'sentence'  # views
FIRST_SCALE, LARGEST_SCALE = 20.0, 100.0
_AROUND = -1e4  # exp of it is 0; above infonce.NEVER


class DirectionScores(NamedTuple):
    """Scores of the pairs of a batch, in nats.

    Attributes:
        positive: [N] of each document with its sentence.
        others: by side of the candidates, [N, M].
        earlier: likewise, those of a queue, or None.
    """

    positive: Tensor
    others: dict[str, Tensor]
    earlier: dict[str, Any]


class SentenceContrast(Comparing):
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

    contrasts = True
    sides = (PASSAGE, SENTENCE)
    queues = ('passage_', 'sentence_')  # the candidates of each direction
    critic: str = setting(
        COSINE,
        'What compares a sentence with a document: the cosine of their '
        'vectors (cosine); each token of the sentence with the nearest of the '
        'document (late, ColBERT); or weights of all tokens of the vocabulary '
        '(lexical, SPLADE).',
        choices=(COSINE, LATE, LEXICAL),
    )
    words: int = setting(
        0,
        'Width of an additional table of word vectors; their weighted mean is '
        "appended to a text's vector; 0: none.",
        at_least=0,
        needs=('critic', COSINE),
    )

    def build(self) -> None:
        """Makes w, 0 at first (the plain mean), and the scale of the cosine."""
        if self.critic != COSINE:
            super().build()
            return
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
        """Returns [N, D + W] of length 1, by side; [N, F] of other critics.

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
        states = ops.reshape(states, (-1, length, width))
        if self.form is not None:
            return self.form.pooled(
                *self._with_places(view), states, batch.fused_key
            )
        ids, real = self.tokens_of_texts(view)
        vectors = self.text_vectors(
            ids, real, states, batch.statistics.training
        )
        return unit(vectors)

    def _with_places(self, view: View) -> tuple[View, Tensor]:
        """Returns a view of texts by sequence, and where each text begins.

        [B, J] int32; 0 for a text that is not there.
        """
        ids, real = self.tokens_of_texts(view)
        block_ids = ops.reshape(view.block_ids, (-1, ids.shape[1]))
        places = ops.argmax(ops.cast(real, 'int32'), axis=2)
        flat = view._replace(ids=ids, block_ids=block_ids)
        return flat, ops.cast(places, 'int32')

    def compared_texts(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the compared form of all texts, [N, ...], by side."""
        vectors = dict(self.vectors_of(batch))
        if self.form is None:
            return vectors
        for side in self.sides:
            vectors[side] = self.form.finished(
                *self._with_places(batch.views[side]),
                vectors[side][:, None],
                first=int(side == PASSAGE),
            )[:, 0]
        return vectors

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
        vectors, pools = self.compared_texts(batch), {}
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
            return super().update_state(batch)
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
        whole = self.compared_texts(batch)
        outcome = self._contrast(batch, candidates, whole)
        if self.critic == LEXICAL:
            # Of an example that counts both are there, whichever is b.
            real = batch.views[SENTENCE].weights[self.row]
            real = ops.cast(ops.reshape(real, (-1,)) > 0, 'float32')
            return self.with_terms(
                batch, outcome, [(whole[x], real) for x in (SENTENCE, PASSAGE)]
            )
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
            vectors: by side, [N, ...], of a cosine of length 1.
            finish: makes such vectors of queued ones.
        """
        if self.form is None:
            scores = self._cosines(batch, candidates, vectors, finish)
        else:
            scores = self._by_form(batch, candidates, vectors)
        outcomes = []
        for answer in self.sides[::-1]:
            view, others = batch.views[answer], candidates[answer]
            targets = self.text_numbers(view)
            earlier = scores.earlier.get(answer)
            outcomes.append(
                infonce.contrast(
                    scores.positive,
                    scores.others[answer],
                    others.others(ops.reshape(view.sequences, (-1,))),
                    ops.equal(others.ids[None, :], targets[:, None]),
                    ops.reshape(view.weights[self.row], (-1,)),
                    measured=ops.reshape(view.measured[self.row], (-1,)),
                    drop_identical=True,
                    earlier=earlier and earlier.others,
                )
            )
        return infonce.average(*outcomes)

    def _cosines(
        self,
        batch: Batch,
        candidates: dict[str, Pool],
        vectors: Mapping[str, Tensor],
        finish: Callable[[Tensor], Tensor] | None,
    ) -> DirectionScores:
        """Computes cosines times the scale, of queues too; see `_contrast`."""
        scale = ops.minimum(
            FIRST_SCALE * ops.exp(self.log_scale), LARGEST_SCALE
        )
        positive = vectors[PASSAGE] * vectors[SENTENCE]
        positive = scale * ops.sum(positive, axis=1)
        scores, earlier = {}, {}
        for query, answer in (self.sides, self.sides[::-1]):
            pool, queries = candidates[answer], scale * vectors[query]
            scores[answer] = ops.matmul(queries, ops.transpose(pool.states))
            earlier[answer] = self.score_queue(
                batch, pool, queries, self.text_numbers(batch.views[answer]),
                finish=finish,
            )  # fmt: skip
        return DirectionScores(positive, scores, earlier)

    def _by_form(
        self,
        batch: Batch,
        candidates: dict[str, Pool],
        vectors: Mapping[str, Tensor],
    ) -> DirectionScores:
        """Computes the scores of `form`; see `_contrast`."""
        both = vectors[SENTENCE], vectors[PASSAGE]

        def scores(side: str) -> Tensor:
            states = candidates[side].states
            return self.compared(batch, *both, states, side == PASSAGE)

        others = {SENTENCE: scores(SENTENCE)}
        if batch.training and batch.replicas.count == 1:
            # Candidates are the texts themselves: the same scores.
            others[PASSAGE] = ops.transpose(others[SENTENCE])
        else:
            others[PASSAGE] = scores(PASSAGE)
        return DirectionScores(self.form.paired(*both, None), others, {})


def _vector(settings: Mapping[str, Any]) -> Vector:
    """Pools by the mean with learned weights, with or without words."""
    if settings['critic'] != COSINE:
        return vector_of(settings, priority=2)
    pooling = 'words' if settings['words'] else 'weighted'
    return Vector(pooling, 'cosine', priority=2)


def _needs(settings: Mapping[str, Any]) -> tuple[str, ...]:
    by_vectors = settings['critic'] == COSINE
    return ('alone',) if by_vectors else ('alone', 'attention')


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
    needs=_needs,
    heldout_candidates=128,
    vector=_vector,
    auxiliaries=auxiliaries,
    answers=('vectors',),
    products=_products,
)
