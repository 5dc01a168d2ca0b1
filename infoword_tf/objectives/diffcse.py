"""The row `diffcse`: which words of a sentence have been replaced?

    a                                   b                    candidates
    a vector of the sentence, and the   whether the word is  yes and no
    sentence with a generator's words   the sentence's own

DiffCSE (Chuang et al. 2022, §3) with `simcse`: a generator fills a masked
copy of the sentence; a discriminator tells which words differ. At [CLS] its
first layer reads the vector in place of an embedding (published code,
`modeling_bert.py`), so that the scale of the vector counts. The vector has to
know the words of the sentence. Discriminator and generator are not exported.

Shapes: J examples of a sequence, N = B J, S texts of an example.
"""

import math
from collections.abc import Mapping
from typing import Any

from infoword_tf.critics import CRITICS
from infoword_tf.encoders import Inputs
from infoword_tf.errors import InputError
from infoword_tf.layers import dropout
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.masked_copies import (
    masked_copy,
    real_tokens,
    sequence_key,
)
from infoword_tf.objectives.objective import Auxiliary, Batch, Objective, Row
from infoword_tf.objectives.sentence_texts import (
    VIEW,
    compared_texts,
    source_of,
    text_places,
)
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads

SCORER = 'simcse'
GENERATOR, DISCRIMINATOR = 'generator', 'discriminator'
BLANKS = 'blanks', 'blanks_by_counts'


class ReplacedTokens(Objective):
    """`diffcse`: replaced token detection that reads the sentence's vector.

    Learns: vectors that know the words of a sentence, with `simcse`.
    Take it: for similarity of sentences without labelled pairs.
    Needs: `simcse` in the same run, and --init; two more encoders in memory.
    Example: python -m infoword_tf.train --objectives=simcse:1,diffcse:0.005
        --init=MODEL --workdir=W
    """

    generator: str = setting(
        '',
        'A workdir that fills masked words; empty: the encoder as the run '
        'starts, by its embeddings.',
        model=True,
    )
    mask_share: float = setting(
        0.3,
        'Share of the tokens that are masked for the generator.',
        at_least=0.01,
        at_most=0.99,
    )
    sampled: bool = setting(
        False,
        'Sample words of the generator, as the paper says; else the likeliest, '
        'as its code does.',
    )
    projected: bool = setting(
        True,
        "The discriminator reads simcse's vector after its head, as published; "
        'else before.',
    )
    legacy: bool = setting(
        False,
        'As the published code: the loss is that of [CLS] too, and divided by '
        'all places of texts padded to the longest; the generator drops.',
    )

    @classmethod
    def check_settings(
        cls, row: str, rows: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Refuses to read vectors where something else is compared."""
        critic = rows[SCORER]['critic']
        if not CRITICS[critic].has_vector:
            raise InputError(
                'discriminator_without_vector',
                f'{row} reads the vector of a sentence, and --{SCORER}.critic='
                f'{critic} has none; leave out one of the two',
            )

    def build(self) -> None:
        """Makes the discriminator's output layer."""
        width = self.encoder.width
        self.kernel = self.make_weight('kernel', width, 2, exported=False)
        self.bias = self.make_weight('bias', 2, exported=False)

    @property
    def needs_whole_batch(self) -> bool:
        """True if a norm, or the longest text, is that of the batch."""
        return self.legacy or (self.projected and self.scorer.form.normed)

    def _words(self, batch: Batch) -> Tensor:
        """Returns the generator's words, [B, T] int32, and [CLS].

        At every place, masked or not, as published: it may replace words that
        it has seen.
        """
        view = batch.views[VIEW]
        key = sequence_key(batch, view.ids.shape[0])
        real = real_tokens(view, self.row)
        copy = masked_copy(
            key, view.ids, real, share=self.mask_share, specials=self.specials
        )
        states = batch.encode(
            Inputs(copy.ids, view.positions, block_ids=view.block_ids),
            GENERATOR,
            name='masked_sentences',
        ).states
        scores = self._scores(states, batch)  # [B, T, V]
        if self.sampled:
            u = dropout.uniform(dropout.fold_in(key, 3), scores.shape)
            scores = scores - ops.log(-ops.log(ops.maximum(u, 1e-7)))
        words = ops.cast(ops.argmax(scores, axis=-1), 'int32')
        fixed = ~real | ops.equal(view.ids, self.specials.cls_id)
        return ops.where(fixed, view.ids, words)

    def _scores(self, states: Tensor, batch: Batch) -> Tensor:
        """Scores words by the generator: [B, T, D] -> [B, T, V]."""
        for row in self.auxiliary_rows.get(GENERATOR, {}).values():
            if hasattr(row, 'token_scores'):
                return row.token_scores(states, batch.statistics.training)
        table = self.auxiliaries[GENERATOR].embedding_table
        x = ops.cast(states, 'float32')
        return ops.matmul(x, ops.transpose(ops.convert_to_tensor(table)))

    def candidates(self, batch: Batch) -> Mapping[str, Any] | None:
        """Computes the norms of simcse's head over all held-out text.

        Candidates are yes and no, which need no vectors.
        """
        if batch.training or not self.projected:
            return None
        return self.scorer.norms(batch.scorer_batch)

    def _vectors(self, batch: Batch, norms: Mapping[str, Any]) -> Tensor:
        """Returns the vectors of the texts of each sequence, [B, J S, D]."""
        view, scorer = batch.views[VIEW], self.scorer
        texts = scorer.vectors_of(batch.scorer_batch)['texts']  # [N, S, D]
        if self.projected:
            texts = scorer.form.projected(
                batch.scorer_batch, compared_texts(view, self.row), texts,
                norms.get('texts'),
            )  # fmt: skip
        return ops.reshape(texts, (view.ids.shape[0], -1, texts.shape[-1]))

    def weight(self, batch: Batch) -> Tensor:
        """Counts the tokens of texts; with `legacy` the padding too."""
        if self.legacy:
            return self._padded(batch)
        return ops.sum(self._measured(batch))

    def _measured(self, batch: Batch) -> Tensor:
        """Marks tokens of texts but [CLS], [B, T] float32."""
        view = batch.views[VIEW]
        real = real_tokens(view, self.row)
        return ops.cast(
            real & ~ops.equal(view.ids, self.specials.cls_id), 'float32'
        )

    def score(
        self, batch: Batch, candidates: Mapping[str, Any] | None
    ) -> infonce.Outcome:
        """Computes Eq. 1 of two answers, yes and no.

        A critic that knows the share of yes alone has an MI of 0. With `legacy`
        the loss counts [CLS] too, where nothing is ever replaced; MI never
        does.
        """
        view, words = batch.views[VIEW], self._words(batch)
        states = batch.encode(
            Inputs(
                words,
                view.positions,
                block_ids=view.block_ids,
                first=self._vectors(batch, candidates or {}),
                first_places=text_places(view, self.row),
            ),
            DISCRIMINATOR,
            name='replaced_sentences',
        ).states
        x = ops.reshape(ops.cast(states, 'float32'), (-1, states.shape[-1]))
        scores = ops.matmul(x, ops.convert_to_tensor(self.kernel)) + self.bias
        replaced = ops.cast(ops.not_equal(words, view.ids), 'int32')
        replaced = ops.reshape(replaced, (-1,))  # [B T]
        measured = ops.reshape(self._measured(batch), (-1,))
        weights = measured
        if self.legacy:
            real = ops.cast(real_tokens(view, self.row), 'float32')
            weights = ops.reshape(real, (-1,))
        positive, rank = infonce.rank_classes(scores, replaced)
        # p of the answers in the batch itself, or in the microbatch.
        yes = ops.cast(replaced, 'float32')
        total = batch.replicas.sum(ops.sum(measured))
        p = batch.replicas.sum(ops.sum(measured * yes))
        p = ops.clip(p / ops.maximum(total, 1.0), 1e-6, 1 - 1e-6)
        log_p = ops.where(replaced > 0, ops.log(p), ops.log1p(-p))
        log_two = math.log(2)
        outcome = infonce.infonce(
            infonce.Candidates(
                positive, ops.logsumexp(scores, axis=1), log_two, rank
            ),
            weights,
            infonce.Marginal(
                log_p + log_two,
                ops.zeros_like(log_p),
                ops.cast(ops.equal(replaced > 0, p > 0.5), 'float32'),
            ),
            measured=measured,
        )
        return outcome._replace(weight=self.weight(batch))

    def _padded(self, batch: Batch) -> Tensor:
        """Counts the places of texts padded to the longest, with [CLS].

        The published code divides by it. Sequences that texts share have no
        padding, so the loss of padding, which is soon 0, is left out.
        """
        view = batch.views[VIEW]
        real = real_tokens(view, self.row)
        _, slots, texts = view.targets[self.row].shape
        of = ops.one_hot(view.block_ids, slots * texts, dtype='float32')
        lengths = ops.sum(of * ops.cast(real, 'float32')[..., None], axis=1)
        longest = ops.max(batch.replicas.gather(ops.max(lengths)[None]))
        return longest * ops.sum(ops.cast(lengths > 0, 'float32'))


def _auxiliaries(settings: Mapping[str, Any]) -> dict[str, Auxiliary]:
    workdir = settings['generator'] or None
    return {
        GENERATOR: Auxiliary(
            workdir=workdir,
            answers=BLANKS,
            copied=workdir is None,
            saved=workdir is None,
            dropout=settings['legacy'],
        ),
        DISCRIMINATOR: Auxiliary(copied=True, frozen=False),
    }


def _reads(settings: Mapping[str, Any]) -> Reads:
    return Reads(
        'example',
        encoders=(),
        source=source_of(settings),
    )


ROW = Row(
    objective=ReplacedTokens,
    a="the sentence's vector, and its text with replaced tokens",
    b='whether a token was replaced',
    relation='a generator replaces tokens of the sentence',
    candidates='replaced and original',
    views={VIEW: _reads},
    needs=('alone', 'positions'),
    heldout_candidates=512,  # the norms are of all that simcse contrasts
    auxiliaries=_auxiliaries,
    scored_by=SCORER,
)
