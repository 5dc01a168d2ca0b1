"""The row `simcse`, which contrasts whole sentences.

    a           b                                  candidates
    a sentence  the same under other dropout; or   the batch; negatives of
                what people have paired with it    pairs, a queue

SimCSE (Gao et al. 2021); with repetition, a queue and a momentum encoder
(objectives/queue.py) the sum `esimcse` (Wu et al. 2022). Every option of a
contrast of sentences is here, once, or of vectors in critics/cosine.py. f is
that of a critic over a temperature.

Copies of a sentence share a sequence of the view, so that both passes are one
product; dropout is drawn for each token, so that copies differ.

Shapes: J examples of a sequence, N = B J, S texts of an example, F numbers of a
compared one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from infoword_tf.critics import CRITICS, Critic
from infoword_tf.errors import InputError
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.candidates import Pool, gather_vectors, join_pools
from infoword_tf.objectives.comparing import (
    PAIRS_VIEW,
    critics_setting,
    needs_of,
    outcome_of_pairs,
)
from infoword_tf.objectives.guided import Guided
from infoword_tf.objectives.objective import Batch, Row, Vector
from infoword_tf.objectives.queue import MOMENTUM, auxiliaries
from infoword_tf.objectives.sentence_texts import (
    KEYS,
    VIEW,
    compared_keys,
    compared_texts,
    paired_numbers,
    sentence_numbers,
    source_of,
    text_weights,
)
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads
from infoword_tf.views.pair_candidates import PAIR
from infoword_tf.views.sentences import POSITIVES, SETTINGS

FORWARD, BOTH, JOINT = DIRECTIONS = ('forward', 'both', 'joint')


class SharedCandidates(NamedTuple):
    """Candidates of a batch, and the norms of a projector.

    Attributes:
        pools: candidates by the side of the answer, 'a' or 'b'.
        norms: moments of a projector over all held-out text, for 'texts' and
            'keys'; {}: those of the batch are used.
    """

    pools: dict[str, Pool]
    norms: Mapping[str, Any]


class SimCSE(Guided):
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
    critic: str = critics_setting(
        CRITICS, 'a', 'b', 'a, the query, with b, the passage'
    )
    temperature: float = setting(
        0.05,
        'Temperature: the cosine is divided by it, or what another critic has '
        '(by default by 1).',
        at_least=1e-6,
        defaults=(
            'critic', {k: x.usual_temperature for k, x in CRITICS.items()}
        ),
    )  # fmt: skip
    directions: str = setting(
        FORWARD,
        'a searches for b (forward); b for a as well (both); both of them '
        'among the texts of both sides (joint, NT-Xent).',
        choices=DIRECTIONS,
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

    @classmethod
    def check_settings(
        cls, row: str, rows: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Refuses settings that a critic, a guide or keys lack."""
        super().check_settings(row, rows)
        settings = rows[row]
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

    @property
    def lengths(self) -> tuple[int, int]:
        """Longest a and b in tokens; 0: of any length."""
        return self.query_length, self.passage_length

    def limit_texts(self, longest: tuple[int, int]) -> None:
        """Leaves padding out of comparisons of tokens."""
        self.form.limit(longest)

    def set_dense(self, dense: Sequence[Any]) -> None:
        """Sets the dense layers, and the prefixes that `dims` names.

        Raises:
            ValueError: as `Critic.set_dense`; `dims` is no list of widths, or
                one is wider than what it shortens.
        """
        super().set_dense(dense)
        numbers = [x.strip() for x in self.dims.split(',') if x.strip()]
        if not all(x.isdigit() and 0 < int(x) for x in numbers):
            raise InputError(
                'dims_no_numbers',
                f'--{self.row}.dims={self.dims}: give numbers, as 192,96',
            )
        most = self.form.width if numbers else 0
        if too_wide := [x for x in numbers if int(x) > most]:
            raise InputError(
                'dims_too_wide',
                f'--{self.row}.dims={self.dims}: vectors are {most} wide, less '
                f'than {too_wide[0]}',
            )
        self.form.set_prefixes([*map(int, numbers)])

    # ------------------------------------------------------------- vectors

    def vectors(self, batch: Batch) -> dict[str, Tensor]:
        """Returns 'texts' [N, S, ...], pooled by the critic, and 'keys'.

        Keys [N, ...] are by the momentum encoder.
        """
        view = batch.views[VIEW]
        texts = self.form.pooled(
            batch, compared_texts(view, self.row),
            self.form.encoded(batch, VIEW),
        )  # fmt: skip
        size = view.targets[self.row].shape[2]
        vectors = {'texts': ops.reshape(texts, (-1, size, texts.shape[1]))}
        if self.momentum:
            vectors['keys'] = self.form.pooled(
                batch,
                compared_texts(batch.views[KEYS], self.row),
                batch.encoded[KEYS][MOMENTUM][0],
            )
        return vectors

    def norms(self, batch: Batch) -> dict[str, Any]:
        """Computes the norms of a batch, by name; {}: none.

        Of all held-out text at once, so that they do not depend on slices.
        """
        if not self.form.normed:
            return {}
        view, vectors = batch.views[VIEW], self.vectors_of(batch)
        texts = {'texts': compared_texts(view, self.row)}
        if self.keys == POSITIVES:
            texts['keys'] = compared_keys(view, self.row)
        return {
            name: self.form.norm(batch, of, vectors[name])
            for name, of in texts.items()
        }

    def _texts(self, batch: Batch, norms: Mapping[str, Any]) -> Tensor:
        """Computes the compared form of all texts, [N, S, F].

        Where keys are positives, b is encoded by the momentum encoder, without
        a gradient (He et al. 2020, §3.2, Algorithm 1).
        """
        view, vectors = batch.views[VIEW], self.vectors_of(batch)
        texts = self.form.finished(
            batch, compared_texts(view, self.row), vectors['texts'],
            norms.get('texts'),
        )  # fmt: skip
        if self.keys != POSITIVES:
            return texts
        keys = self.form.finished(
            batch, compared_keys(view, self.row), vectors['keys'],
            norms.get('keys'),
        )  # fmt: skip
        keys = ops.stop_gradient(keys)
        return ops.concatenate(
            [texts[:, :1], keys[:, None], texts[:, 2:]], axis=1
        )

    # ---------------------------------------------------------- candidates

    def candidates(self, batch: Batch) -> SharedCandidates | None:
        """Gathers the texts of the global batch, by kind, and a queue.

        None for a critic that encodes both texts at once.
        """
        if self.form.of_pairs:
            return None
        view = batch.views[VIEW]
        norms = {} if batch.training else self.norms(batch)
        texts = self.with_guides(view, self._texts(batch, norms))
        numbers, sequences = paired_numbers(view, self.row)  # [N, S], [N]

        def of(text: int, sequences: Tensor) -> Pool:
            mine = numbers[:, text]
            return gather_vectors(
                batch,
                mine,
                sequences,
                texts[:, text],
                weights=text_weights(view, self.row, mine),
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
        if candidates is None:
            states = batch.states(PAIRS_VIEW)[:, :, 0]  # [N, M, D]
            return outcome_of_pairs(
                batch, self.row, self.form.pair_scores(batch, states),
                temperature=self.temperature, texts=self.pairs,
            )  # fmt: skip
        texts = self._texts(batch, candidates.norms)
        outcome = self._score(batch, texts, candidates.pools)
        losses = [outcome.loss]
        for width in self.form.prefixes:
            prefix = self._score(batch, texts, candidates.pools, width)
            losses.append(prefix.loss)
        outcome = outcome._replace(loss=sum(losses) / len(losses))
        view = batch.views[VIEW]
        real = text_weights(view, self.row, sentence_numbers(view, self.row))
        a, b = slice(1), slice(1, None)
        return self.form.with_terms(
            batch, outcome, [(texts[:, x], real[:, x]) for x in (a, b)]
        )

    def _score(
        self,
        batch: Batch,
        texts: Tensor,
        pools: dict[str, Pool],
        prefix: int | None = None,
    ) -> infonce.Outcome:
        """Scores texts [N, S, F], or the first `prefix` numbers of each."""
        view = batch.views[VIEW]
        numbers, sequences = paired_numbers(view, self.row)
        weights = text_weights(view, self.row, numbers[:, 1])
        wide = texts.shape[2]
        texts, outcomes = self.form.part(texts, prefix), []
        for side, query, answer in (('b', 0, 1), ('a', 1, 0)):
            if side not in pools:
                continue
            others = pools[side]
            states, kinds = others.states, others.kinds
            assert states is not None and kinds is not None, 'see `candidates`'
            a_and_b = texts[:, 0], texts[:, 1]
            trained = others.others(sequences)
            counts = others.others(sequences, kinds[None] == answer)
            identical = ops.equal(others.ids[None], numbers[:, answer, None])
            more = {}
            if self.guide:
                trained, spared = self.spared(
                    view, (query, answer), states[:, wide:],
                    trained=trained, identical=identical,
                )  # fmt: skip
                more['guided'] = ops.sum(weights * spared)
                states = states[:, :wide]
            scores = self.form.compared(
                a_and_b, self.form.part(states, prefix), side == 'b',
                width=prefix, key=batch.fused_key,
            )  # fmt: skip
            positive = self.form.paired(*a_and_b, prefix) / self.temperature
            earlier = self.score_queue(
                batch, others, texts[:, query] / self.temperature,
                numbers[:, answer],
                **self.form.of_queue(self.temperature, prefix),
            )  # fmt: skip
            # Copies of b are no negatives of the loss; the share of identical
            # candidates is a further measure.
            hard, earlier = self.form.hardened(
                ops.where(identical, 0.0, trained), scores, earlier
            )
            outcome = infonce.contrast(
                infonce.Comparison(
                    positive, scores / self.temperature, counts, identical
                ),
                weights,
                drop_identical=True,
                trained=hard,
                earlier=earlier and earlier.others,
            )
            share = infonce.share(identical, trained)
            more['identical'] = ops.sum(weights * share)
            outcomes.append(outcome._replace(more=more))
        return infonce.average(*outcomes)

    def own_scores(self, batch: Batch) -> Tensor:
        """Scores the other texts of each example: [N, S - 1] float32, nats.

        b first, then the negatives of the example.
        """
        texts = self.form.part(self._texts(batch, {}), None)
        scores = [
            self.form.paired(texts[:, 0], texts[:, number], None)
            for number in range(1, texts.shape[1])
        ]
        return ops.stack(scores, axis=1) / self.temperature

    # --------------------------------------------------------------- queue

    @classmethod
    def makes_positives(cls, settings: Mapping[str, Any]) -> bool:
        """Tells whether the momentum encoder makes the b of each step."""
        return settings['keys'] == POSITIVES

    def update_state(self, batch: Batch) -> dict[str, Any]:
        """Queues b, by the momentum encoder if `momentum`.

        The head has no average: as published, it is the current one.
        """
        if not self.queue:
            return super().update_state(batch)
        view, vectors = batch.views[VIEW], self.vectors_of(batch)
        numbers, sequences = paired_numbers(view, self.row)
        keys = vectors['keys'] if self.momentum else vectors['texts'][:, 1]
        of_b = compared_keys(view, self.row)
        pool = gather_vectors(
            batch,
            numbers[:, 1],
            sequences,
            self.form.finished(batch, of_b, keys),
            weights=of_b.weights,
        )
        return self.enqueue(batch, pool)


def _critic(settings: Mapping[str, Any]) -> type[Critic]:
    return CRITICS[settings['critic']]


def _reads_pairs(settings: Mapping[str, Any]) -> Reads | None:
    if not _critic(settings).of_pairs:
        return None
    return Reads(PAIR, source=source_of(settings))


def _reads(settings: Mapping[str, Any]) -> Reads | None:
    reads = _critic(settings).reads(settings)
    return reads and reads._replace(
        dropped=not settings['pairs'], source=source_of(settings)
    )


def _reads_keys(settings: Mapping[str, Any]) -> Reads | None:
    reads = _reads(settings) if settings['momentum'] else None
    return reads and reads._replace(encoders=(MOMENTUM,))


def _init_advice(settings: Mapping[str, Any]) -> str:
    if settings['pairs']:
        return ''
    return (
        'contrasts vectors of random weights, which learns little: pretrain '
        'first (--objectives=mlm) and --init that workdir or a public model, '
        'or name pairs of texts with --pairs'
    )


def _vector(settings: Mapping[str, Any]) -> Vector:
    fields = _critic(settings).vector(settings)
    return Vector(**fields, priority=3, keeps=True)


ROW = Row(
    objective=SimCSE,
    a='sentence',
    b='the same sentence, or its pair',
    relation='equal but for dropout; or paired by people (`--pairs`)',
    candidates='the batch, hard negatives of pairs, a queue',
    views={VIEW: _reads, KEYS: _reads_keys, PAIRS_VIEW: _reads_pairs},
    needs=lambda settings: needs_of(_critic(settings), settings),
    heldout_candidates=lambda settings: (
        None if _critic(settings).of_pairs else 512
    ),
    vector=_vector,
    auxiliaries=auxiliaries,
    init_advice=_init_advice,
)
