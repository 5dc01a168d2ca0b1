"""Rows that compare vectors of whole texts.

    row  a                             b             candidates
    ict  document without a sentence   that sentence the batch, both ways

`ict` is the inverse cloze task (Lee et al. 2019, §4), which is Deep InfoMax
(Kong et al. 2019, §4) with a sentence as the n-gram. One encoder for both
views; f is the cosine times a learned scale.

Glossary of shapes: B rows of a view, J texts of a row, N = B J texts, T tokens,
M candidates, D width, E width of words, V vocabulary.
"""

from collections.abc import Callable, Mapping
from typing import Any

from infoword_tf.layers.attention import table, vector
from infoword_tf.layers.pooling import about_unit, pool, rarity, unit
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import Batch, Pool
from infoword_tf.objectives.queue import (
    MOMENTUM,
    Queued,
    companions,
    encoders,
)
from infoword_tf.objectives.row import Row, Vector
from infoword_tf.settings import setting
from infoword_tf.views import Reads, View

Tensor = Any
FIRST_SCALE, LARGEST_SCALE = 20.0, 100.0
_AROUND = -1e4  # exp of it is 0; above infonce.NEVER


class SentenceContrast(Queued):
    """`ict`: which of the batch's sentences is missing from which document.

    Vectors are means of states with weights exp(w . h), w learned. With
    `words` each has a second part, the mean of word vectors e from a table of
    their own, with weights exp(w' . e) a / (a + p), where rare pieces weigh
    most; f is the mean of the cosines of both parts. A Transformer needs long
    to learn that texts which share a rare word belong together; a table of
    random vectors knows it from the first step on.
    """

    sides = ('passage', 'sentence')
    queued = ('passage_', 'sentence_')  # what each direction looks among
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
        """One vector for each text, to be compared by cosine.

        Args:
            ids: [B, T] int32.
            real: [B, T] bool, False for padding, or [B, J, T], see `pool`.
            states: [B, T, D] of the encoder.
            counts: [V], how often each piece is in the training text.

        Returns:
            [B J, D + E] float32: where there are words, both parts of length 1.
        """
        kernel = ops.convert_to_tensor(self.pooling_kernel)
        vectors = pool(states, real, kernel)
        if not self.words:
            return vectors
        prior = rarity(counts)
        # What stands around every text is no word of it, though all that an
        # empty one has: it weighs nothing beside words, but not padding.
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
        """[N, D + E] of length 1, by side: N texts, some share a row.

        And as SIDE_keys those of a momentum encoder.
        """
        found = {side: self._side(batch, side) for side in self.sides}
        if self.momentum:
            for side in self.sides:
                found[f'{side}_keys'] = self._side(batch, side, MOMENTUM)
        return found

    def _side(
        self, batch: Batch, side: str, encoder: str = 'encoder'
    ) -> Tensor:
        view, states = batch.views[side], batch.states(side, encoder)
        *_, length, width = states.shape
        ids, real = self.texts_of(view)
        vectors = self.text_vectors(
            ids,
            real,
            ops.reshape(states, (-1, length, width)),
            batch.statistics.training,
        )
        return unit(vectors)

    def texts_of(self, view: View) -> tuple[Tensor, Tensor]:
        """As `Queued.texts_of`."""
        length = view.ids.shape[-1]
        ids, block_ids = (
            ops.reshape(x, (-1, length)) for x in (view.ids, view.block_ids)
        )
        # Passages that share a row are its blocks; their sentences stand
        # alone, as many to a row.
        slots = view.targets[self.row].shape[1]
        if len(view.ids.shape) == 3:
            slots //= view.ids.shape[1]
        number = ops.arange(slots, dtype='int32')[:, None]
        return ids, ops.equal(block_ids[:, None], number)

    def candidates(self, batch: Batch) -> dict[str, Pool]:
        """The vectors of the global batch, by side, and of a queue."""
        vectors, pools = self.compared(batch), {}
        for side in self.sides:
            pool = self.pooled(
                batch, batch.views[side], vectors[side][:, None]
            )
            pools[side] = self.behind(batch, pool, f'{side}_')
        return pools

    def remember(self, batch: Batch) -> dict[str, Any]:
        """Queues both sides, as the momentum encoder has them if there is one.

        With the weights of pooling, and the words, as they are now.
        """
        if not self.queue:
            return {}
        kept: dict[str, Any] = {}
        own = self.compared(batch)
        for side in self.sides:
            vectors = own[f'{side}_keys' if self.momentum else side]
            pool = self.pooled(batch, batch.views[side], vectors[:, None])
            kept |= self.enqueued(batch, pool, f'{side}_')
        return kept

    @property
    def key_width(self) -> int:
        """D + E."""
        return self.encoder.width + self.words

    def score(
        self, batch: Batch, candidates: dict[str, Pool]
    ) -> infonce.Outcome:
        """The mean of Eq. 1 from a to b and from b to a.

        Where there are words the states alone must answer, too: the loss is
        the sum of both, all else is of the whole vectors.
        """
        own = self.compared(batch)
        outcome = self._contrast(batch, candidates, own)
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
            {side: states(vectors) for side, vectors in own.items()},
            states,
        )
        return outcome._replace(loss=outcome.loss + alone.loss)

    def _contrast(
        self,
        batch: Batch,
        candidates: dict[str, Pool],
        own: Mapping[str, Tensor],
        finish: Callable[[Tensor], Tensor] | None = None,
    ) -> infonce.Outcome:
        """Eq. 1 both ways; own: by side, vectors [N, ...] of length 1.

        `finish` makes such ones of those that are queued.
        """
        scale = ops.minimum(
            FIRST_SCALE * ops.exp(self.log_scale), LARGEST_SCALE
        )
        positive = scale * ops.sum(own['passage'] * own['sentence'], axis=1)
        outcomes = []
        for query, answer in (self.sides, self.sides[::-1]):
            view, others = batch.views[answer], candidates[answer]
            targets = self.numbers(view)
            queries = scale * own[query]
            scores = ops.matmul(queries, ops.transpose(others.states))  # [B, M]
            earlier = self.among_earlier(
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
    """The mean with learned weights, or that and the words."""
    pooling = 'words' if settings['words'] else 'weighted'
    return Vector(pooling, 'cosine', priority=2)


def _wanted(settings: Mapping[str, Any]) -> Reads:
    return Reads('text', encoders=encoders(settings))


ICT = Row(
    objective=SentenceContrast,
    a='document without a sentence',
    b='that sentence',
    relation='a sentence and the text around it (inverse cloze task)',
    candidates='the batch, both ways',
    views=dict.fromkeys(SentenceContrast.sides, _wanted),
    encoders={'transformer': {}, 'modern': {}, 'lookup': {}},
    heldout_candidates=128,
    vector=_vector,
    companions=companions,
    answers=('vectors',),
)
