"""The row `ict`: a sentence, and the document around it.

    a                             b               candidates
    document without a sentence   that sentence   the batch, both ways

The inverse cloze task (Lee et al. 2019, §4) is Deep InfoMax (Kong et al. 2019,
§4) with a sentence as the n-gram. One encoder for both views; f is the cosine
times a learned scale (critics/learned.py), or that of another critic. To these
the sentence is the query and the document the passage, as in a search.

Shapes: J texts of a sequence, N = B J, F numbers of a text.
"""

from collections.abc import Mapping
from typing import Any

from infoword_tf.critics import OF_DOCUMENTS, Compared, Critic
from infoword_tf.encoders import Encoded
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.candidates import Pool
from infoword_tf.objectives.comparing import (
    Comparing,
    critics_setting,
    needs_of,
)
from infoword_tf.objectives.objective import Batch, Row, Scoring, Vector
from infoword_tf.objectives.queue import MOMENTUM, auxiliaries, encoders
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads, View

PASSAGE, SENTENCE = 'passage', 'sentence'  # views


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
    critics = OF_DOCUMENTS
    critic: str = critics_setting(
        OF_DOCUMENTS, 'the sentence', 'the document',
        'a sentence with a document',
    )  # fmt: skip

    def vectors(self, batch: Batch) -> dict[str, Tensor]:
        """Returns all texts, pooled by the critic, [N, ...], by side.

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
        states = batch.states(side, encoder)
        states = ops.reshape(states, (-1, *states.shape[-2:]))
        texts = self._compared(batch.views[side])
        return self.form.pooled(batch, texts, Encoded(states))

    def _compared(self, view: View, first: int = 0) -> Compared:
        """Returns texts by sequence; a missing one begins at 0."""
        ids, real = self.tokens_of_texts(view)
        block_ids = ops.reshape(view.block_ids, (-1, ids.shape[1]))
        places = ops.argmax(ops.cast(real, 'int32'), axis=2)
        return Compared(
            view._replace(ids=ids, block_ids=block_ids),
            real.shape[1],
            ops.cast(places, 'int32'),
            first=first,
        )

    def compared_texts(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the compared form of all texts, [N, F], by side."""
        vectors = dict(self.vectors_of(batch))
        for side in self.sides:
            texts = self._compared(batch.views[side], int(side == PASSAGE))
            pooled = vectors[side][:, None]
            vectors[side] = self.form.finished(batch, texts, pooled)[:, 0]
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

    def score(
        self, batch: Batch, candidates: dict[str, Pool]
    ) -> infonce.Outcome:
        """Computes the mean of Eq. 1 from a to b and from b to a.

        With `words` the loss adds that of the states alone; all else is of the
        whole vectors.
        """
        texts = self.compared_texts(batch)
        outcome = self._contrast(batch, candidates, texts)
        for width in self.form.prefixes:
            part = self._contrast(batch, candidates, texts, width)
            outcome = outcome._replace(loss=outcome.loss + part.loss)
        # Of an example that counts both are there, whichever is b.
        real = batch.views[SENTENCE].weights[self.row]
        real = ops.cast(ops.reshape(real, (-1, 1)) > 0, 'float32')
        return self.form.with_terms(
            batch, outcome,
            [(texts[side][:, None], real) for side in (SENTENCE, PASSAGE)],
        )  # fmt: skip

    def _contrast(
        self,
        batch: Batch,
        candidates: dict[str, Pool],
        texts: Mapping[str, Tensor],
        width: int | None = None,
    ) -> infonce.Outcome:
        """Computes Eq. 1 both ways.

        Args:
            batch, candidates: arguments of `score`.
            texts: compared forms [N, F], by side.
            width: number of the first numbers, which alone are compared;
                None: all.
        """
        form, scale, key = self.form, self.form.scale, batch.fused_key
        texts = {x: form.part(texts[x], width) for x in self.sides}
        positive = form.paired(texts[SENTENCE], texts[PASSAGE], width)
        scaled = dict(texts)
        if scale is not None:
            positive = scale * positive
            scaled = {x: scale * texts[x] for x in self.sides}
        both, scores, outcomes = (scaled[SENTENCE], scaled[PASSAGE]), None, []
        alone = batch.training and batch.replicas.count == 1
        for query, answer in (self.sides, self.sides[::-1]):
            view, others = batch.views[answer], candidates[answer]
            targets = self.text_numbers(view)
            if scores is not None and form.symmetric and alone:
                # Candidates are the texts themselves: the same scores.
                scores = ops.transpose(scores)
            else:
                states = form.part(others.states, width)
                scores = form.compared(
                    both, states, answer == PASSAGE, width=width, key=key
                )
            earlier = self.score_queue(
                batch, others, scaled[query], targets,
                **form.of_queue(1.0, width),
            )  # fmt: skip
            outcomes.append(
                infonce.contrast(
                    infonce.Comparison(
                        positive,
                        scores,
                        others.others(ops.reshape(view.sequences, (-1,))),
                        ops.equal(others.ids[None, :], targets[:, None]),
                    ),
                    ops.reshape(view.weights[self.row], (-1,)),
                    measured=ops.reshape(view.measured[self.row], (-1,)),
                    drop_identical=True,
                    earlier=earlier and earlier.others,
                )
            )
        return infonce.average(*outcomes)


def _critic(settings: Mapping[str, Any]) -> type[Critic]:
    return OF_DOCUMENTS[settings['critic']]


def _vector(settings: Mapping[str, Any]) -> Vector:
    return Vector(**_critic(settings).vector(settings), priority=2)


def _reads(settings: Mapping[str, Any]) -> Reads:
    return Reads('text', encoders=encoders(settings))


def _products(scoring: Scoring) -> int:
    """Counts the products of the pooling of each text, and of both ways."""
    sides = [scoring.views[side].ids for side in SentenceContrast.sides]
    pooled = 2 * sum(ids.size for ids in sides)  # weights of tokens, and sums
    texts = len(sides[0])
    return (pooled + 2 * texts * texts) * scoring.width


ICT = Row(
    objective=SentenceContrast,
    a='document without a sentence',
    b='that sentence',
    relation='a sentence and the text around it (inverse cloze task)',
    candidates='the batch, both ways',
    views=dict.fromkeys(SentenceContrast.sides, _reads),
    needs=lambda settings: needs_of(_critic(settings), settings),
    heldout_candidates=128,
    vector=_vector,
    auxiliaries=auxiliaries,
    answers=('vectors',),
    products=_products,
)
