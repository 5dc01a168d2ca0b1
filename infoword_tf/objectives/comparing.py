"""Rows that compare a query with a passage by a critic: what they share.

`simcse` and `ict` derive from it. A row says which of its texts is the query
and which the passage; critics are in critics.py, and heads in the model.

Shapes: N pairs, M candidates, F numbers of a text, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from infoword_tf.config import COSINE, CRITICS, LATE, LEXICAL
from infoword_tf.errors import InputError
from infoword_tf.layers import lexical
from infoword_tf.lazy import ops
from infoword_tf.objectives import critics, infonce
from infoword_tf.objectives.objective import Batch
from infoword_tf.objectives.queue import Queued
from infoword_tf.objectives.row import Vector
from infoword_tf.settings import setting

Tensor = Any
AS_INIT = 'init'
TERMS = 'query_terms', 'passage_terms'  # weights above 0 of a text
THIRD = -1  # of the run's updates


class Comparing(Queued):
    """A row that compares queries with passages by a critic.

    Attributes:
        form: of critics.py, of a critic other than the cosine that encodes
            each text by itself; else None.
        owners: by setting that a critic may lack, the view whose it is.
    """

    form: Any = None
    owners: ClassVar[Mapping[str, str]] = {}
    critic: str = setting(
        COSINE,
        'What compares a, the query, with b, the passage: the cosine of their '
        'vectors (cosine); each token of a with the nearest of b (late, '
        'ColBERT); weights of all tokens of the vocabulary (lexical, SPLADE); '
        'or the encoder, which reads both at once (cross, monoBERT).',
        choices=CRITICS,
    )
    token_width: int = setting(
        0,
        "Width of a token's vector; 0: that of --init, else 128.",
        at_least=0,
        needs=('critic', LATE),
    )
    skip_punctuation: bool = setting(
        True,
        'Leave the vectors of punctuation out of passages.',
        needs=('critic', LATE),
    )
    terms: str = setting(
        AS_INIT,
        'What gives tokens weights: the output layer of masked words, to every '
        'token of the vocabulary (vocabulary, SPLADE); one number a token, to '
        'the tokens of the text alone (tokens, BGE-M3); init: the former where '
        '--init has such a layer with a bias (--mlm.transform).',
        choices=(AS_INIT, *lexical.HEADS),
        needs=('critic', LEXICAL),
    )
    query_flops: float = setting(
        0.0,
        'Weight of the expected products of a search with the weights of '
        'queries (FLOPS), which keeps most of them 0 (SPLADE).',
        at_least=0.0,
        needs=('critic', LEXICAL),
    )
    passage_flops: float = setting(
        0.0,
        'The same of the weights of passages.',
        at_least=0.0,
        needs=('critic', LEXICAL),
    )
    flops_steps: int = setting(
        THIRD,
        'Updates in which the weights of FLOPS rise, quadratically, to what '
        'they are; 0: they are that from the first one; -1: a third of the '
        'run, as published.',
        at_least=THIRD,
        needs=('critic', LEXICAL),
    )
    top_k: int = setting(
        0,
        'How many weights of a text are above 0 at most; 0: as many as with '
        '--init, or any number.',
        at_least=0,
        needs=('critic', LEXICAL),
    )

    @classmethod
    def check_settings(
        cls, row: str, rows: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Refuses settings that the critic lacks, as a queue of vectors."""
        super().check_settings(row, rows)
        for name, is_lacking in cls.lacking(rows[row]).items():
            if is_lacking and rows[row][name]:
                raise InputError(
                    'critic_without_setting',
                    f'--{cls.owners.get(name, row)}.{name}={rows[row][name]} '
                    f'is not for --{row}.critic={rows[row]["critic"]}; leave '
                    'it out',
                )

    @classmethod
    def lacking(cls, settings: Mapping[str, Any]) -> dict[str, bool]:
        """Tells by setting whether the critic lacks a use."""
        has_vector = settings['critic'] == COSINE
        return {'queue': not has_vector, 'momentum': not has_vector}

    def build(self) -> None:
        """Names further measures of lexical weights."""
        if self.critic == LEXICAL:
            self.more = (*self.more, *TERMS)
        super().build()

    @property
    def lengths(self) -> tuple[int, int]:
        """Longest query and passage in tokens; 0: of any length."""
        return 0, 0

    def set_critics(self, late: Any, weights: Any, pair: Any) -> None:
        """Sets the heads of critics, and makes the one that compares texts."""
        super().set_critics(late, weights, pair)
        if self.critic == LATE:
            skipped = critics.PUNCTUATION if self.skip_punctuation else ()
            self.form = critics.Late(
                self.late, skipped, self.specials, self.lengths
            )
        elif self.critic == LEXICAL:
            self.form = critics.Weights(self.lexical)

    def compared(
        self,
        batch: Batch,
        query: Tensor,
        passage: Tensor,
        states: Tensor,
        are_passages: bool,
        width: int | None = None,
    ) -> Tensor:
        """Compares texts with candidates by `form`: [N, M] float32.

        f(query, passage), whichever of both is searched for.

        Args:
            batch: of the step.
            query, passage: [N, F], of which one is compared.
            states: [M, F], the candidates.
            are_passages: whether candidates are passages, not queries.
            width: of vectors of tokens, see `critics.Late.part`; None: all.
        """
        if are_passages:
            return self.form.scores(query, states, width, batch.fused_key)
        scores = self.form.scores(states, passage, width, batch.fused_key)
        return ops.transpose(scores)

    def with_terms(
        self,
        batch: Batch,
        outcome: infonce.Outcome,
        sides: Sequence[tuple[Tensor, Tensor]],
    ) -> infonce.Outcome:
        """Adds FLOPS of the global batch to the loss; counts weights above 0.

        (Formal et al. 2021, "SPLADE v2", Eq. 7.) The term has weights of its
        own, whatever that of the row: where a reranker alone teaches (§3.3),
        it is 0. Held-out text has no such term.

        Args:
            batch: of the step.
            outcome: of the row.
            sides: weights [n, V] of queries, and which are real, [n] float32;
                and of passages.
        """
        more, penalty = dict(outcome.more), 0.0
        gather = batch.replicas.gather
        factors = self.query_flops, self.passage_flops
        for name, factor, side in zip(TERMS, factors, sides, strict=True):
            weights, real = side
            if batch.training and factor:
                term = critics.flops(gather(weights), gather(real))
                penalty = penalty + factor * term
            above = ops.sum(ops.cast(weights > 0, 'float32'), axis=1)
            mean = ops.sum(above * real) / ops.maximum(ops.sum(real), 1.0)
            more[name] = outcome.measured * mean
        rise = self.flops_steps
        if rise == THIRD:
            rise = self.steps // 3
        if batch.state and rise:
            share = ops.cast(batch.state['updates'], 'float32')
            share = ops.minimum(share / rise, 1.0)
            penalty = penalty * ops.square(share)
        penalty = outcome.weight * penalty
        return outcome._replace(
            loss=outcome.loss + penalty, more=more, unscaled=penalty
        )

    def empty_state(self) -> dict[str, Tensor]:
        """Creates the queue; of a lexical critic the count of updates."""
        if self.critic == LEXICAL:
            return {'updates': ops.zeros((), 'int32')}
        return super().empty_state()

    def update_state(self, batch: Batch) -> dict[str, Any]:
        """Counts the updates of a lexical critic, for FLOPS."""
        if self.critic == LEXICAL:
            return {'updates': batch.state['updates'] + 1}
        return super().update_state(batch)


def vector_of(settings: Mapping[str, Any], **more: Any) -> Vector:
    """Returns the `Vector` of a critic other than the cosine."""
    skips = settings['skip_punctuation']
    return Vector(
        'mean',
        critic=settings['critic'],
        width=settings['token_width'],
        top_k=settings['top_k'],
        head=settings['terms'].replace(AS_INIT, ''),
        skip=critics.PUNCTUATION if skips else (),
        **more,
    )
