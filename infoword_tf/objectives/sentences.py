"""The row `simcse`, which contrasts whole sentences.

    a           b                                  candidates
    a sentence  the same under other dropout; or   the batch; negatives of
                what people have paired with it    pairs, a queue

SimCSE (Gao et al. 2021); with repetition, a queue and a momentum encoder
(objectives/queue.py) the sum `esimcse` (Wu et al. 2022). Every option of a
contrast of sentences is here, once. f is a cosine over a temperature, or one of
the other critics (critics.py).

Copies of a sentence share a sequence of the view, so that both passes are one
product; dropout is drawn for each token, so that copies differ.

Shapes: J examples of a sequence, N = B J, S texts of an example, E width of an
exported vector, W of a compared one (F of other critics), G of a guide's.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from infoword_tf.config import COSINE, CROSS, LATE, LEXICAL
from infoword_tf.encoders import Encoded, Inputs
from infoword_tf.errors import InputError
from infoword_tf.layers import dropout
from infoword_tf.layers.dense import Dense
from infoword_tf.layers.pooling import LAYERS, of_texts, pool, unit
from infoword_tf.layers.projector import Projector
from infoword_tf.layers.queue_scores import QueueScores
from infoword_tf.lazy import ops
from infoword_tf.objectives import cross, infonce
from infoword_tf.objectives.comparing import Comparing, vector_of
from infoword_tf.objectives.objective import Batch
from infoword_tf.objectives.pools import Pool, gather_vectors, join_pools
from infoword_tf.objectives.queue import MOMENTUM, auxiliaries
from infoword_tf.objectives.row import Row, Vector
from infoword_tf.settings import setting
from infoword_tf.views import Reads, View
from infoword_tf.views.pair_candidates import PAIR
from infoword_tf.views.sentences import POSITIVES, SETTINGS

Tensor = Any
VIEW, KEYS = 'sentences', 'sentence_keys'
CLS, MEAN = 'cls', 'mean'
NO_HEAD, IN_TRAINING, KEPT, PROJECTOR = HEADS = (
    'none', 'training', 'kept', 'projector',
)  # fmt: skip
FORWARD, BOTH, JOINT = DIRECTIONS = ('forward', 'both', 'joint')


class SharedCandidates(NamedTuple):
    """Candidates of a batch, and the norms of a projector.

    Attributes:
        pools: by the side of the answer, 'a' or 'b', its candidates.
        norms: of held-out text, for 'texts' and 'keys', the moments of a
            projector over all of it; {}: those of the batch are used.
    """

    pools: dict[str, Pool]
    norms: Mapping[str, Any]


class SimCSE(Comparing):
    """`simcse`: which texts of the batch belong together.

    Learns: vectors of sentences; a positive is the sentence under other
        dropout, or the b that people paired with it.
    Take it: for similarity and search, usually from a pretrained model; the
        strongest start is `--pairs`.
    Needs: sentences, or pairs with or without negatives; large batches.
    Example: python -m infoword_tf.train --objectives=simcse --init=MODEL
        --pairs=pairs.csv --workdir=W
    """

    contrasts = True
    more = ('identical',)
    owners: ClassVar = {'expand': VIEW}
    temperature: float = setting(
        0.05,
        'Temperature: the cosine is divided by it, or what another critic has '
        '(by default by 1).',
        at_least=1e-6,
        defaults=('critic', dict.fromkeys((LATE, LEXICAL, CROSS), 1.0)),
    )
    pooling: str = setting(
        CLS,
        'How states become a vector: [CLS], or the mean over the last layer, '
        'over the first and the last, or over the last two.',
        choices=(CLS, MEAN, *(name for name in LAYERS if name != 'mix')),
        needs=('critic', COSINE),
    )
    head: str = setting(
        IN_TRAINING,
        'A dense layer with tanh over the vector: only in training (SimCSE '
        'without pairs), or kept (SimCSE with pairs); projector: two layers '
        'with norms over the batch, only in training (DiffCSE, InfoCSE); none: '
        'no such layer.',
        choices=HEADS,
        needs=('critic', COSINE),
    )
    directions: str = setting(
        FORWARD,
        'a searches for b (forward); b for a as well (both); both of them '
        'among the texts of both sides (joint, NT-Xent).',
        choices=DIRECTIONS,
    )
    hardness: float = setting(
        0.0,
        'Weight of a negative in the loss: exp(hardness cosine), relative to '
        'the other negatives (Robinson et al. 2021); 0: all weigh the same.',
        at_least=0.0,
        needs=('critic', COSINE),
    )
    cut_features: float = setting(
        0.0,
        'Share of the features of the first text that are 0 in all of its '
        'embeddings, drawn anew each time (ConSERT: 0.2).',
        at_least=0.0,
        at_most=0.99,
        needs=('critic', COSINE),
    )
    cut_tokens: float = setting(
        0.0,
        'Share of the tokens of the first text whose embeddings are 0 '
        '(ConSERT: 0.15).',
        at_least=0.0,
        at_most=0.99,
        needs=('critic', COSINE),
    )
    dims: str = setting(
        '',
        'Train the first so many numbers of an exported vector, too, as 192,96 '
        '(Matryoshka), of late of the vector of a token; empty: the whole '
        'alone.',
    )
    keys: str = SETTINGS['keys']
    pairs: int = SETTINGS['pairs']
    expand: bool = SETTINGS['expand']
    query_length: int = SETTINGS['query_length']
    passage_length: int = SETTINGS['passage_length']
    guide: str = setting(
        '',
        'Workdir of a guide, of any vocabulary (GISTEmbed): of --pairs, texts '
        'that its vectors find nearer to a than b is are no candidates; empty: '
        'none.',
        model=True,
    )
    guide_margin: float = setting(
        0.0,
        'How much less near to a than b is a text may be for the guide, and '
        'still be no candidate.',
        at_least=0.0,
        at_most=2.0,
    )

    @classmethod
    def check_settings(
        cls, row: str, rows: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Refuses settings that a critic, a guide or keys lack."""
        super().check_settings(row, rows)
        settings = rows[row]
        guide, queue = settings['guide'], settings['queue']
        if settings['guide_margin'] and not guide:
            raise InputError(
                'margin_without_guide',
                f'--{row}.guide_margin={settings["guide_margin"]:g} is of a '
                f'guide, and there is none; give --{row}.guide too',
            )
        if guide and queue:
            raise InputError(
                'guide_and_queue',
                f'--{row}.guide={guide} sees the texts of a step, and '
                f'--{row}.queue={queue} has those of earlier ones; leave out '
                'one of the two',
            )
        if not cls.makes_positives(settings):
            return
        if not settings['momentum']:
            raise InputError(
                'keys_without_momentum',
                f'--{VIEW}.keys={settings["keys"]} are those of a momentum '
                f'encoder, and there is none; give --{row}.momentum too',
            )
        if settings['directions'] != FORWARD:
            raise InputError(
                'keys_of_one_side',
                f'--{VIEW}.keys={settings["keys"]} are of b alone, and '
                f'--{row}.directions={settings["directions"]} looks for a '
                'too; leave out one of the two',
            )

    @classmethod
    def lacking(cls, settings: Mapping[str, Any]) -> dict[str, bool]:
        """Tells by setting whether the critic lacks a use."""
        critic = settings['critic']
        return super().lacking(settings) | {
            'guide': critic == CROSS,
            'dims': critic in (LEXICAL, CROSS),
            'directions': (settings['directions'], critic) in (
                (JOINT, LATE), (JOINT, CROSS), (BOTH, CROSS),
            ),
            'expand': critic != LATE,
        }  # fmt: skip

    def build(self) -> None:
        """Makes the head that training alone has."""
        if self.guide:
            self.more = (*type(self).more, 'guided')
        self.train_head = None
        if self.critic == COSINE and self.head == IN_TRAINING:
            width = self.encoder.width
            self.train_head = Dense(width, width, 'tanh', name='head')
        elif self.critic == COSINE and self.head == PROJECTOR:
            self.train_head = Projector(self.encoder.width, name='head')
        if self.train_head:
            self.train_head.build()
            self.not_exported |= {w.path for w in self.train_head.weights}
        super().build()

    @property
    def lengths(self) -> tuple[int, int]:
        """Longest a and b in tokens; 0: of any length."""
        return self.query_length, self.passage_length

    def limit_texts(self, longest: tuple[int, int]) -> None:
        """Leaves padding out of comparisons of tokens."""
        if self.critic == LATE:
            self.form.limit(longest)

    def set_dense(self, dense: Sequence[Any]) -> None:
        """Sets the dense layers, which decide how wide an exported vector is.

        Raises:
            ValueError: `dims` is no list of widths, or one is wider; or a
                head of training does not fit.
        """
        super().set_dense(dense)
        width = self.encoder.width
        self.exported_width = self.dense[-1].wide if self.dense else width
        if self.critic != COSINE:
            self.exported_width = self.late.width if self.late else 0
            self.prefixes, self.concatenates = self._prefixes(), False
            return
        if self.train_head and self.exported_width != width:
            raise InputError(
                'head_of_other_width',
                f'--{self.row}.head={self.head} is over {width} numbers, and '
                f'vectors of --init have {self.exported_width} behind its last '
                f'layer; give --{self.row}.head={NO_HEAD}',
            )
        self.prefixes = self._prefixes()
        # Prefixes are of the exported vector. With a head that is not exported
        # both are compared: the head's output, then the exported vector.
        self.whole_width = width if self.train_head else self.exported_width
        self.concatenates = bool(self.train_head and self.prefixes)

    def _prefixes(self) -> list[int]:
        """Parses `dims`, without the width of the whole vector.

        Raises:
            ValueError: `dims` is no list of widths, or one is wider.
        """
        numbers = [x.strip() for x in self.dims.split(',') if x.strip()]
        if not all(x.isdigit() and 0 < int(x) for x in numbers):
            raise InputError(
                'dims_no_numbers',
                f'--{self.row}.dims={self.dims}: give numbers, as 192,96',
            )
        most = self.exported_width
        if too_wide := [x for x in numbers if int(x) > most]:
            raise InputError(
                'dims_too_wide',
                f'--{self.row}.dims={self.dims}: vectors are {most} wide, less '
                f'than {too_wide[0]}',
            )
        widths = map(int, numbers)
        return [x for x in widths if self.train_head or x < most]

    # ------------------------------------------------------------- vectors

    def _pooled(self, view: View, encoded: Encoded) -> Tensor:
        """Pools all texts of a view, [N S, D] float32."""
        if self.pooling == CLS:
            states = ops.cast(encoded.states, 'float32')  # [B, J S, D]
            return ops.reshape(states, (-1, states.shape[-1]))
        real = of_texts(view.block_ids, _count(view, self.row))
        if self.pooling == MEAN:
            return pool(encoded.states, real)
        at = LAYERS[self.pooling]
        return sum(pool(encoded.layers[i], real) for i in at) / len(at)

    def _cut(self, batch: Batch) -> Encoded:
        """Encodes the texts with features or tokens cut out."""
        view = batch.views[VIEW]
        return batch.encode(
            Inputs(
                view.ids,
                view.positions,
                block_ids=view.block_ids,
                multipliers=self._cut_mask(batch, view),
            ),
            name=VIEW,
            places=view.places[self.row] if self.pooling == CLS else None,
            all_layers=self.pooling in LAYERS,
        )

    def _cut_mask(self, batch: Batch, view: View) -> Tensor:
        """Draws [B, T, E] float32: 0 for cut features of first texts, else 1.

        Of each text a share of the features is cut, after the norm of the
        embeddings, and a share of the tokens, special tokens too (Yan et al.
        2021, "ConSERT", §3.2, and its code).
        """
        rows, slots, texts = view.targets[self.row].shape
        number = ops.cast(view.block_ids, 'int32')  # of each token's text
        first = ops.equal(number % texts, 0) & (number < slots * texts)
        key = dropout.fold_in(batch.key, batch.replicas.id)
        width = self.encoder.embedding_width  # E
        u = dropout.uniform(dropout.fold_in(key, 0), (rows, slots, width))
        edge = int(self.cut_features * width)
        lowest = ops.sort(u, axis=-1)[..., edge : edge + 1]
        features = ops.cast(u >= lowest, 'float32')  # [B, J, E]
        slot = ops.minimum(number // texts, slots - 1)
        features = ops.take_along_axis(features, slot[..., None], axis=1)
        # Of n tokens int(share n) are cut: the lowest draws.
        u = dropout.uniform(dropout.fold_in(key, 1), number.shape)
        same = ops.cast(number[:, :, None] == number[:, None], 'float32')
        lower = ops.cast(u[:, None] < u[:, :, None], 'float32')
        rank = ops.sum(same * lower, axis=2)
        most = ops.floor(self.cut_tokens * ops.sum(same, axis=2))
        mask = features * ops.cast(rank >= most, 'float32')[..., None]
        return ops.where(first[..., None], mask, 1.0)

    def vectors(self, batch: Batch) -> dict[str, Tensor]:
        """Returns 'texts' [N, S, D], before the head, and 'keys' [N, D].

        Keys are by the momentum encoder.
        """
        view = batch.views[VIEW]
        numbers = view.targets[self.row]
        cut = self.cut_features or self.cut_tokens
        if self.form is not None:
            texts = self.form.pooled(
                view, view.places[self.row], batch.states(VIEW),
                batch.fused_key,
            )  # fmt: skip
        else:
            texts = self._pooled(
                view,
                self._cut(batch) if cut else batch.encoded[VIEW]['encoder'][0],
            )
        vectors = {
            'texts': ops.reshape(texts, (-1, numbers.shape[2], texts.shape[1]))
        }
        if self.momentum:
            vectors['keys'] = self._pooled(
                batch.views[KEYS], batch.encoded[KEYS][MOMENTUM][0]
            )
        return vectors

    def exported(self, vectors: Tensor) -> Tensor:
        """Applies the exported dense layers: [..., D] -> [n, E]."""
        x = ops.reshape(vectors, (-1, vectors.shape[-1]))
        for layer in self.dense:
            x = layer(x)
        return x

    def _through_head(
        self, batch: Batch, x: Tensor, numbers: Tensor, norm: Any = None
    ) -> tuple[Tensor, Any]:
        """Applies the head to `exported` [n, E]; also returns moments."""
        if self.head == PROJECTOR:
            weights = _weights(batch.views[VIEW], self.row, numbers)
            return self.train_head(
                ops.cast(x, 'float32'),
                ops.reshape(weights, (-1,)),
                gather=batch.replicas.gather,
                moments=norm,
            )
        return (self.train_head(x) if self.train_head else x), None

    def projected(
        self, batch: Batch, vectors: Tensor, numbers: Tensor, norm: Any = None
    ) -> Tensor:
        """Applies the dense layers, then the head: [..., D] -> [..., D].

        Args:
            batch: of the step.
            vectors: [N, D] or [N, S, D], of texts.
            numbers: [N] or [N, S], equal where texts are; -1 for no text.
            norm: the moments that a projector norms by, see `norms`; None:
                those of the vectors.
        """
        x = self.exported(vectors)
        x, _ = self._through_head(batch, x, numbers, norm)
        return ops.reshape(x, (*ops.shape(vectors)[:-1], x.shape[-1]))

    def finished(
        self, batch: Batch, vectors: Tensor, numbers: Tensor, norm: Any = None
    ) -> Tensor:
        """Computes the compared vectors [..., W], each part of length 1."""
        exported = self.exported(vectors)
        x, _ = self._through_head(batch, exported, numbers, norm)
        shape = ops.shape(vectors)[:-1]
        parts = [x, exported] if self.concatenates else [x]
        parts = [unit(ops.reshape(x, (*shape, x.shape[-1]))) for x in parts]
        return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)

    def norms(self, batch: Batch) -> dict[str, Any]:
        """Computes a projector's norms of a batch, by name; {} without one.

        Of all held-out text at once, so that they do not depend on slices.
        """
        if self.head != PROJECTOR:
            return {}
        view, vectors = batch.views[VIEW], self.vectors_of(batch)
        numbers = {'texts': sentence_numbers(view, self.row)}
        if self.keys_are_positives:
            numbers['keys'] = _numbers(view, self.row)[0][:, 1]
        return {
            name: self._through_head(batch, self.exported(vectors[name]), of)[1]
            for name, of in numbers.items()
        }

    def _texts(self, batch: Batch, norms: Mapping[str, Any]) -> Tensor:
        """Computes the compared vectors of all texts, [N, S, W].

        Where keys are positives, b is encoded by the momentum encoder, without
        a gradient (He et al. 2020, §3.2, Algorithm 1).
        """
        vectors = self.vectors_of(batch)
        view = batch.views[VIEW]
        numbers = sentence_numbers(view, self.row)
        if self.form is not None:
            return self.form.finished(
                view, view.places[self.row], vectors['texts']
            )
        texts = self.finished(
            batch, vectors['texts'], numbers, norms.get('texts')
        )
        if not self.keys_are_positives:
            return texts
        numbers, _ = _numbers(view, self.row)
        keys = self.finished(
            batch, vectors['keys'], numbers[:, 1], norms.get('keys')
        )
        keys = ops.stop_gradient(keys)
        return ops.concatenate(
            [texts[:, :1], keys[:, None], texts[:, 2:]], axis=1
        )

    # ---------------------------------------------------------- candidates

    @property
    def has_vectors(self) -> bool:
        """False for a critic that encodes both texts at once."""
        return self.critic != CROSS

    def candidates(self, batch: Batch) -> SharedCandidates | None:
        """Gathers the texts of the global batch, by kind, and a queue.

        None for a critic that encodes both texts at once.
        """
        if self.critic == CROSS:
            return None
        view = batch.views[VIEW]
        norms = {} if batch.training else self.norms(batch)
        texts = self._texts(batch, norms)  # [N, S, W]
        if self.guide:  # [N, S, W + G], to be gathered at once
            texts = ops.concatenate([texts, _guides(view, self.row)], axis=2)
        numbers, sequences = _numbers(view, self.row)  # [N, S], [N]

        def of(text: int, sequences: Tensor) -> Pool:
            mine = numbers[:, text]
            return gather_vectors(
                batch,
                mine,
                sequences,
                texts[:, text],
                _weights(view, self.row, mine),
                kind=text,
            )

        pools = [of(1, sequences)]
        nobody = ops.full_like(sequences, -1)
        pools += [of(k, nobody) for k in range(2, texts.shape[1])]
        if self.directions == FORWARD:
            b = self.with_queue(batch, join_pools(*pools))
            return SharedCandidates({'b': b}, norms)
        a = of(0, sequences)
        if self.directions == BOTH:
            b = self.with_queue(batch, join_pools(*pools))
            return SharedCandidates({'b': b, 'a': a}, norms)
        # Each side has all texts as candidates, but those of its example.
        every = join_pools(pools[0], a, *pools[1:])
        every = self.with_queue(batch, every)
        return SharedCandidates(dict.fromkeys('ba', every), norms)

    def score(
        self, batch: Batch, candidates: SharedCandidates | None
    ) -> infonce.Outcome:
        """Computes Eq. 1, the mean over the directions.

        The loss is the mean over the whole vectors and prefixes of exported
        ones (Kusupati et al. 2022, "Matryoshka", Eq. 1). All else is of whole
        vectors, and of no candidates but other answers of the batch: other a
        for an a, other b for a b.
        """
        if self.critic == CROSS:
            states = batch.states(cross.VIEW)[:, :, 0]  # [N, M, D]
            key = batch.fused_key
            if key is not None:
                key = dropout.fold_in(key, batch.replicas.id)
            return cross.outcome(
                batch, self.row, self.pair.scores(states, key),
                self.temperature, self.pairs,
            )  # fmt: skip
        texts = self._texts(batch, candidates.norms)
        outcome = self._score(batch, texts, candidates.pools)
        losses = [outcome.loss]
        for width in self.prefixes:
            prefix = self._score(batch, texts, candidates.pools, width)
            losses.append(prefix.loss)
        outcome = outcome._replace(loss=sum(losses) / len(losses))
        if self.critic != LEXICAL:
            return outcome
        view = batch.views[VIEW]
        real = _weights(view, self.row, sentence_numbers(view, self.row))
        return self.with_terms(
            batch,
            outcome,
            [
                (
                    ops.reshape(texts[:, side], (-1, texts.shape[2])),
                    ops.reshape(real[:, side], (-1,)),
                )
                for side in (slice(1), slice(1, None))
            ],
        )

    def _score(
        self,
        batch: Batch,
        texts: Tensor,
        pools: dict[str, Pool],
        prefix: int | None = None,
    ) -> infonce.Outcome:
        """Scores vectors [N, S, W], or the first `prefix` numbers of each."""
        view = batch.views[VIEW]
        numbers, sequences = _numbers(view, self.row)
        weights = _weights(view, self.row, numbers[:, 1])
        wide = texts.shape[2]

        def part(x: Tensor) -> Tensor:
            if self.form is not None:
                return self.form.part(x, prefix)
            if prefix:
                begin = self.whole_width if self.concatenates else 0
                return unit(x[..., begin : begin + prefix])
            return x[..., : self.whole_width] if self.concatenates else x

        texts = part(texts)
        outcomes = []
        for side, query, answer in (('b', 0, 1), ('a', 1, 0)):
            if side not in pools:
                continue
            others, queries = pools[side], texts[:, query]
            states, trained = others.states, others.others(sequences)
            counts = others.others(sequences, others.kinds[None] == answer)
            identical = ops.equal(others.ids[None], numbers[:, answer, None])
            guided = None
            if self.guide:
                near = self._near(view, query, answer, states[:, wide:])
                near = ops.logical_and(near, ops.logical_not(identical))
                guided = infonce.share(near, trained)
                trained = ops.where(near, 0.0, trained)
                states = states[:, :wide]
            states = part(states)
            cosines, positive = self._compared(
                batch, texts, states, side, prefix
            )
            positive = positive / self.temperature
            earlier = self.score_queue(
                batch,
                others,
                queries / self.temperature,
                numbers[:, answer],
                sharpness=self.hardness * self.temperature,
                finish=part if prefix or self.concatenates else None,
            )
            outcome = self._contrast(
                positive, cosines, counts, trained, identical, weights, earlier
            )
            if guided is not None:
                more = {**outcome.more, 'guided': ops.sum(weights * guided)}
                outcome = outcome._replace(more=more)
            outcomes.append(outcome)
        return infonce.average(*outcomes)

    def _compared(
        self,
        batch: Batch,
        texts: Tensor,
        states: Tensor,
        side: str,
        prefix: int | None,
    ) -> tuple[Tensor, Tensor]:
        """Compares texts with candidates, [N, M], and a with b, [N].

        Args:
            batch: of the step.
            texts: [N, S, W].
            states: [M, W], the candidates.
            side: that of the candidates.
            prefix: of the vectors; None: they are whole.
        """
        a, b = texts[:, 0], texts[:, 1]
        if self.form is None:
            queries = a if side == 'b' else b
            answers = b if side == 'b' else a
            cosines = ops.matmul(queries, ops.transpose(states))
            return cosines, ops.sum(queries * answers, axis=1)
        scores = self.compared(batch, a, b, states, side == 'b', prefix)
        return scores, self.form.paired(a, b, prefix)

    def own_scores(self, batch: Batch) -> Tensor:
        """Scores the other texts of each example: [N, S - 1] float32, nats.

        b first, then the negatives of the example.
        """
        texts = self._texts(batch, {})
        if self.concatenates:
            texts = texts[..., : self.whole_width]
        scores = []
        for number in range(1, texts.shape[1]):
            a, b = texts[:, 0], texts[:, number]
            if self.form is None:
                scores.append(ops.sum(a * b, axis=1))
            else:
                scores.append(self.form.paired(a, b, None))
        return ops.stack(scores, axis=1) / self.temperature

    def _near(
        self, view: View, query: int, answer: int, others: Tensor
    ) -> Tensor:
        """Marks candidates that the guide finds nearer than the answer.

        The guide's cosine of query and candidate is above that of query and
        answer less the margin (Solatorio 2024, "GISTEmbed", §3). The answer is
        never marked: `Pool.others` leaves it out, and f(a, b) is apart.

        Args:
            view: of the texts.
            query, answer: which of the S texts.
            others: [M, G] the guide's vectors of candidates, of length 1.

        Returns:
            [N, M] bool.
        """
        guides = _guides(view, self.row)
        queries = guides[:, query]
        cosines = ops.matmul(queries, ops.transpose(others))
        edge = ops.sum(queries * guides[:, answer], axis=1) - self.guide_margin
        return cosines > edge[:, None]

    def _contrast(
        self,
        positive: Tensor,
        cosines: Tensor,
        counts: Tensor,
        trained: Tensor,
        identical: Tensor,
        weights: Tensor,
        earlier: QueueScores | None,
    ) -> infonce.Outcome:
        """Computes Eq. 1; copies of b are no negatives of the loss.

        `counts` are candidates of the bound, `trained` those of the loss; the
        share of `identical` ones among these is a further measure.
        """
        others = ops.where(identical, 0.0, trained)
        if self.hardness:
            hard = ops.exp(self.hardness * ops.stop_gradient(cosines))
            total = ops.sum(others * hard, axis=1, keepdims=True)
            size = ops.sum(others, axis=1, keepdims=True)
            if earlier is not None:
                total = total + earlier.weight[:, None]
                size = size + earlier.size[:, None]
                scale = ops.log(ops.maximum(size, 1.0))[:, 0]
                scale = scale - ops.log(ops.maximum(total, 1e-12))[:, 0]
                earlier = earlier._replace(others=earlier.others + scale)
            others = others * hard * size / ops.maximum(total, 1e-12)
        outcome = infonce.contrast(
            positive,
            cosines / self.temperature,
            counts,
            identical,
            weights,
            drop_identical=True,
            trained=others,
            earlier=earlier and earlier.others,
        )
        share = infonce.share(identical, trained)
        return outcome._replace(more={'identical': ops.sum(weights * share)})

    # --------------------------------------------------------------- queue

    @classmethod
    def makes_positives(cls, settings: Mapping[str, Any]) -> bool:
        """Tells whether the momentum encoder makes the b of each step."""
        return settings['keys'] == POSITIVES

    @property
    def keys_are_positives(self) -> bool:
        """True if the momentum encoder makes the b of each step."""
        return self.keys == POSITIVES

    @property
    def key_width(self) -> int:
        """W."""
        exported = self.exported_width if self.concatenates else 0
        return self.whole_width + exported

    def update_state(self, batch: Batch) -> dict[str, Any]:
        """Queues b, by the momentum encoder if `momentum`; or counts updates.

        The head has no average: as published, it is the current one.
        """
        if self.critic != COSINE:
            return super().update_state(batch)
        view, vectors = batch.views[VIEW], self.vectors_of(batch)
        numbers, sequences = _numbers(view, self.row)
        keys = vectors['keys'] if self.momentum else vectors['texts'][:, 1]
        ids = numbers[:, 1]
        pool = gather_vectors(
            batch,
            ids,
            sequences,
            self.finished(batch, keys, ids),
            _weights(view, self.row, ids),
        )
        return self.enqueue(batch, pool)


def _count(view: View, row: str) -> int:
    """Returns J S, the number of texts of a sequence."""
    _, slots, texts = view.targets[row].shape
    return slots * texts


def _numbers(view: View, row: str) -> tuple[Tensor, Tensor]:
    """Returns [N, S], equal where texts are, and [N], the example of each.

    With one copy, a sentence is its own positive.
    """
    numbers = sentence_numbers(view, row)
    if numbers.shape[1] == 1:
        numbers = ops.repeat(numbers, 2, axis=1)
    return numbers, ops.reshape(view.sequences, (-1,))


def _guides(view: View, row: str) -> Tensor:
    """Returns a guide's vectors of the texts, [N, S, G] of length 1."""
    vectors = ops.cast(view.guides[row], 'float32')
    return unit(ops.reshape(vectors, (-1, *vectors.shape[2:])))


def sentence_numbers(view: View, row: str) -> Tensor:
    """Returns [N, S] int32, equal where texts are; -1 for no text."""
    numbers = view.targets[row]
    return ops.reshape(numbers, (-1, numbers.shape[2]))


def text_places(view: View, row: str) -> Tensor:
    """Returns where each text begins, [B, J S] int32; -1 for no text."""
    weights = _weights(view, row, sentence_numbers(view, row))
    places = view.places[row]
    return ops.where(ops.reshape(weights, places.shape) > 0, places, -1)


def _weights(view: View, row: str, numbers: Tensor) -> Tensor:
    """Returns the weights of texts, shaped as numbers; 0 for no text."""
    real = ops.cast(numbers >= 0, 'float32')
    weights = ops.reshape(view.weights[row], (-1,))
    return real * (weights if len(real.shape) == 1 else weights[:, None])


def source_of(settings: Mapping[str, Any]) -> str:
    """Names the source of the texts of a row that reads VIEW."""
    return 'text_pairs' if settings['pairs'] else 'sentences'


def _reads_pairs(settings: Mapping[str, Any]) -> Reads | None:
    if settings['critic'] != CROSS:
        return None
    return Reads(PAIR, source=source_of(settings))


def _reads(settings: Mapping[str, Any]) -> Reads | None:
    pooling, pairs = settings['pooling'], settings['pairs']
    if settings['critic'] == CROSS:
        return None
    if settings['critic'] != COSINE:
        return Reads(
            'example', everywhere=True, dropped=not pairs,
            source=source_of(settings),
        )  # fmt: skip
    cut = settings['cut_features'] or settings['cut_tokens']
    return Reads(
        'example' if pooling == CLS else 'text',
        encoders=() if cut else ('encoder',),
        layers=pooling in LAYERS,
        dropped=not pairs,
        source=source_of(settings),
    )


def _reads_keys(settings: Mapping[str, Any]) -> Reads | None:
    if not settings['momentum'] or settings['critic'] != COSINE:
        return None
    return _reads(settings)._replace(encoders=(MOMENTUM,))


def _needs(settings: Mapping[str, Any]) -> tuple[str, ...]:
    cut = settings['cut_features'] or settings['cut_tokens']
    by_vectors = settings['critic'] == COSINE
    if settings['pooling'] == MEAN and by_vectors and not cut:
        return ('alone',)
    return 'alone', 'attention'


def _init_advice(settings: Mapping[str, Any]) -> str:
    if settings['pairs']:
        return ''
    return (
        'contrasts vectors of random weights, which learns little: pretrain '
        'first (--objectives=mlm) and --init that workdir or a public model, '
        'or name pairs of texts with --pairs'
    )


def _vector(settings: Mapping[str, Any]) -> Vector:
    if settings['critic'] != COSINE:
        return vector_of(settings, priority=3, keeps=True)
    dense = ('tanh',) if settings['head'] == KEPT else ()
    return Vector(
        settings['pooling'], 'cosine', priority=3, dense=dense, keeps=True
    )


ROW = Row(
    objective=SimCSE,
    a='sentence',
    b='the same sentence, or its pair',
    relation='equal but for dropout; or paired by people (`--pairs`)',
    candidates='the batch; own negatives of pairs, a queue',
    views={VIEW: _reads, KEYS: _reads_keys, cross.VIEW: _reads_pairs},
    needs=_needs,
    heldout_candidates=lambda settings: (
        None if settings['critic'] == CROSS else 512
    ),
    vector=_vector,
    auxiliaries=auxiliaries,
    init_advice=_init_advice,
)
