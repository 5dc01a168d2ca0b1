"""The critic `lexical`: weights of the vocabulary, which people can read.

    f(a, b) = sum over tokens of the vocabulary of weight in a x weight in b

(Formal et al. 2021, "SPLADE v2", §3). FLOPS keep most weights 0.

Shapes: J examples of a sequence, S texts of an example, N = B J, F = V.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infoword_tf.config import Config
from infoword_tf.critics.critic import (
    Critic,
    HeadConfig,
    RoleMethods,
    Start,
)
from infoword_tf.critics.form import Compared
from infoword_tf.critics.texts import Tokens
from infoword_tf.layers import lexical
from infoword_tf.layers.lexical import TOKENS, VOCABULARY, Lexical
from infoword_tf.layers.pooling import real_places
from infoword_tf.lazy import ops
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Specials

LEXICAL = 'lexical'
AS_INIT = 'init'
THIRD = -1  # of the run's updates
WEIGHTS_AT_ONCE = 2**23  # of a batch, 32 MiB
_MARK = '\u2581'  # of SentencePiece, where a word begins
PUBLIC = 'masked_words'  # the head there, in weights/heads.py
BLANKS = 'mlm'  # the row whose output transform weights begin with


@dataclasses.dataclass(frozen=True)
class LexicalConfig(HeadConfig):
    """Weights of the vocabulary for a text, compared by a dot product.

    Attributes:
        head: name in layers.lexical.HEADS of what scores a token of a text.
        transform: whether states go through BERT's output transform.
        transform_activation: name in layers.pointwise.FORMS; None: the
            encoder's.
        transform_epsilon: epsilon of the norm; None: the encoder's.
        activation: name in layers.lexical.ACTIVATIONS, of the largest scores.
        top_k: number of weights of a text that stay, the largest; None: all.
    """

    head: str = VOCABULARY
    transform: bool = False
    activation: str = 'log1p_relu'
    top_k: int | None = None
    transform_activation: str | None = None
    transform_epsilon: float | None = None


class LexicalCritic(Critic):
    """A product of lexical vectors."""

    name = LEXICAL
    help = 'weights of all tokens of the vocabulary (lexical, SPLADE)'
    described = 'the weights of the vocabulary'
    public = 'SparseEncoder'
    signature = 'embed_sparse'
    card = (
        'the product of the weights of the vocabulary '
        '(`embed_sparse_query`, `embed_sparse`)'
    )
    card_outputs = {
        'ids': 'the tokens of the vocabulary with a weight above 0, most first',
        'weights': 'of these; 0 beyond them',
        'tokens': 'of these, as people read them; empty strings beyond them',
        'count': 'how many each text has',
    }
    card_axes = 'BU'
    has_dims = False
    head_config = LexicalConfig
    lacks = {
        'queue': (), 'momentum': (), 'dims': (), 'expand': (),
    }  # fmt: skip
    more = ('query_terms', 'passage_terms')  # weights above 0 of a text
    terms: str = setting(
        AS_INIT,
        'What gives tokens weights: the output layer of masked words, to every '
        'token of the vocabulary (vocabulary, SPLADE); one number a token, to '
        'the tokens of the text alone (tokens, BGE-M3); init: the former where '
        '--init has such a layer with a bias (--mlm.transform).',
        choices=(AS_INIT, *lexical.HEADS),
    )
    query_flops: float = setting(
        0.0,
        'Weight of the expected products of a search with the weights of '
        'queries (FLOPS), which keeps most of them 0 (SPLADE).',
        at_least=0.0,
    )
    passage_flops: float = setting(
        0.0,
        'The same of the weights of passages.',
        at_least=0.0,
    )
    flops_steps: int = setting(
        THIRD,
        'Updates in which the weights of FLOPS rise, quadratically, to what '
        'they are; 0: they are that from the first one; -1: a third of the '
        'run, as published.',
        at_least=THIRD,
    )
    top_k: int = setting(
        0,
        'How many weights of a text are above 0 at most; 0: as many as with '
        '--init, or any number.',
        at_least=0,
    )

    # ------------------------------------------------------------ of a model

    @classmethod
    def of_head(cls) -> tuple[str, ...]:
        """Implements `Critic.of_head`."""
        return ('terms', 'top_k')

    @classmethod
    def decide(cls, chosen: Mapping[str, Any], start: Start) -> LexicalConfig:
        """Keeps the head of --init, or takes one that fills masks."""
        terms, top_k = chosen['terms'], chosen['top_k']
        old = cls.of(start.config)
        if old is not None and terms in (AS_INIT, old.head):
            return dataclasses.replace(old, top_k=top_k or old.top_k)
        # An output layer without a transform has no bias: of texts, nearly all
        # tokens weigh more than 0.
        transform = any(head.get('transform') for head in start.blanks)
        new = LexicalConfig(VOCABULARY, transform, **start.transform)
        if terms == TOKENS or (terms == AS_INIT and not transform):
            new = LexicalConfig(TOKENS, activation='relu')
        return dataclasses.replace(new, top_k=top_k or None)

    @classmethod
    def make_head(
        cls, entry: LexicalConfig, encoder: Any, specials: Specials, dtype: Any
    ) -> Lexical:
        """Implements `Critic.make_head`."""
        # Ids of special tokens but [MASK] have no weight.
        ids = specials.cls_id, specials.sep_id, specials.unk_id
        fields = (field.name for field in dataclasses.fields(LexicalConfig))
        return Lexical(
            encoder,
            **{name: getattr(entry, name) for name in fields},
            left_out=sorted({x for x in ids if x is not None}),
            dtype=dtype,
            name=cls.name,
        )

    @classmethod
    def fits(
        cls, old: LexicalConfig | None, new: LexicalConfig | None
    ) -> bool:
        """Implements `Critic.fits`."""
        heads = [x and (x.head, x.transform) for x in (old, new)]
        return heads[0] == heads[1]

    @classmethod
    def begins_as(cls, config: Config) -> list[str]:
        """Implements `Critic.begins_as`."""
        del config
        return [f'objectives/{BLANKS}']

    @classmethod
    def takes_head(cls, entry: LexicalConfig) -> str | None:
        """Implements `Critic.takes_head`: the one that fills masks."""
        return PUBLIC if entry.head == VOCABULARY else None

    @classmethod
    def with_head(
        cls,
        entry: LexicalConfig,
        has_weights: bool,
        settings: Mapping[str, Any],
    ) -> LexicalConfig:
        """Implements `Critic.with_head`: with the transform, if any."""
        more = settings if has_weights else {}
        return dataclasses.replace(entry, transform=has_weights, **more)

    @classmethod
    def writes_head(
        cls, entry: LexicalConfig
    ) -> tuple[str, dict[str, Any]] | None:
        """Implements `Critic.writes_head`."""
        if entry.head != VOCABULARY:
            return None
        return PUBLIC, dataclasses.asdict(entry)

    # ------------------------------------------------------ of a loaded model

    @classmethod
    def answer(cls) -> type:
        """Implements `Critic.answer`."""
        return LexicalWeights

    @classmethod
    def joined(
        cls, outputs: Sequence[Mapping[str, np.ndarray]], config: Config,
        role: str | None,
    ) -> Any:  # fmt: skip
        """Implements `Critic.joined`."""
        del role
        texts = Tokens.of([
            np.stack([ids[:count].astype(np.float32), weights[:count]], axis=1)
            for batch in outputs
            for ids, weights, count in zip(
                *(batch[x] for x in ('ids', 'weights', 'count')), strict=True
            )
        ])  # fmt: skip
        return texts.weights(cls.size_in(config))

    @classmethod
    def size_in(cls, config: Config) -> int:
        """Returns the number of weights of a text, V."""
        return config.encoder.arguments['vocab_size']

    # --------------------------------------------------- of a row, in training

    def pooled(self, batch: Any, texts: Compared, encoded: Any) -> Tensor:
        """Computes the largest scores of all texts, [N S, V] float32."""
        view = texts.view
        return self.layer.highest(
            encoded.states, view.ids, view.block_ids, texts.slots,
            key=batch.fused_key,
        )  # fmt: skip

    def finished(
        self, batch: Any, texts: Compared, pooled: Tensor, norm: Any = None
    ) -> Tensor:
        """Computes weights [N, S, V], 0 for a text without tokens."""
        del batch, texts, norm
        return self.layer.weights_of(pooled)

    def with_terms(
        self,
        batch: Any,
        outcome: Any,
        sides: Sequence[tuple[Tensor, Tensor]],
    ) -> Any:
        """Adds FLOPS of the global batch to the loss; counts weights above 0.

        (Formal et al. 2021, "SPLADE v2", Eq. 7.) The term has weights of its
        own, whatever that of the row: where a reranker alone teaches (§3.3),
        it is 0. Held-out text has no such term.
        """
        more, penalty = dict(outcome.more), 0.0
        gather = batch.replicas.gather
        factors = self.query_flops, self.passage_flops
        for name, factor, side in zip(self.more, factors, sides, strict=True):
            weights, real = side
            weights = ops.reshape(weights, (-1, weights.shape[-1]))
            real = ops.reshape(real, (-1,))
            if batch.training and factor:
                term = flops(gather(weights), gather(real))
                penalty = penalty + factor * term
            above = ops.sum(ops.cast(weights > 0, 'float32'), axis=1)
            mean = ops.sum(above * real) / ops.maximum(ops.sum(real), 1.0)
            more[name] = outcome.measured * mean
        rise = self.flops_steps
        if rise == THIRD:
            rise = self.row.steps // 3
        if batch.state and rise:
            share = ops.cast(batch.state['updates'], 'float32')
            share = ops.minimum(share / rise, 1.0)
            penalty = penalty * ops.square(share)
        penalty = outcome.weight * penalty
        return outcome._replace(
            loss=outcome.loss + penalty, more=more, unscaled=penalty
        )

    def empty_state(self) -> dict[str, Tensor]:
        """Creates the count of updates, for FLOPS."""
        return {'updates': ops.zeros((), 'int32')}

    def update_state(self, batch: Any) -> dict[str, Tensor]:
        """Counts the updates."""
        return {'updates': batch.state['updates'] + 1}


def flops(weights: Tensor, counts: Tensor) -> Tensor:
    """Estimates the products of a search (Paria et al. 2020, §4).

    The sum over the vocabulary of squared mean weights.

    Args:
        weights: [M, V], at least 0.
        counts: [M] float32, 0 for padding.

    Returns:
        A float32 scalar.
    """
    total = ops.maximum(ops.sum(counts), 1.0)
    mean = ops.matmul(counts[None], weights)[0] / total
    return ops.sum(ops.square(mean))


class LexicalWeights(RoleMethods):
    """The weights that a workdir gives the vocabulary for texts.

    Methods of a `RolePredictor`, see `Critic.answer`.
    """

    critic: type[LexicalCritic]
    width = 2  # of an entry: a weight and an id

    @functools.cached_property
    def spelled(self) -> list[str]:
        """Tokens of the vocabulary as people read text, V strings."""
        return spelled(self.workdir.tokenizer)

    # ------------------------------------------------------ ids to weights

    def weights(
        self, ids: Tensor, lengths: Tensor, hidden: Tensor | None = None
    ) -> Tensor:
        """Computes the weights of the vocabulary; graph or eager, any shape.

        Args:
            ids, lengths, hidden: arguments of `States.__call__`.

        Returns:
            [B, V] float32, at least 0; 0 for a text without tokens of its own.
        """
        import tensorflow as tf

        workdir = self.workdir
        states = self.states.encode(ids, lengths, hidden=hidden).states
        around = len(workdir.before) + len(workdir.after)
        real = real_places(ids, lengths) & (lengths > around)[:, None]
        return self.weights_of(states, ids, tf.cast(real, tf.int32) - 1)

    def weights_of(
        self, states: Tensor, ids: Tensor, block_ids: Tensor
    ) -> Tensor:
        """Computes the weights of texts, [B, V] float32, by the states.

        Args:
            states: [B, T, D].
            ids: [B, T] int32.
            block_ids: [B, T] int32, 0 for tokens of the text, else -1.
        """
        best = self.layer.highest(states, ids, block_ids, 1)
        return self.layer.weights_of(best)

    def entries(
        self, ids: Tensor, lengths: Tensor, role: str
    ) -> Any:
        """Implements `RolePredictor.entries`.

        Returns:
            [B, t, 2] float32, the weights other than 0 and their ids, the
            largest first. (Ids are exact in float32: there are fewer than
            2^24.)
        """
        del role
        import tensorflow as tf

        weights = self.weights(ids, lengths)
        sizes = tf.math.count_nonzero(weights, axis=1)
        most = tf.cast(tf.reduce_max(tf.pad(sizes, [[0, 1]])), tf.int32)
        best = tf.math.top_k(tf.abs(weights), most)
        values = tf.gather(weights, best.indices, batch_dims=1)
        pairs = [values, tf.cast(best.indices, tf.float32)]
        return tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(tf.stack(pairs, axis=2), best.values > 0),
            sizes, validate=False,
        )  # fmt: skip

    def outputs(self, entries: Any) -> dict[str, Tensor]:
        """Returns outputs of a signature: `entries`, padded, with spellings."""
        import tensorflow as tf

        weights, ids = tf.unstack(entries.to_tensor(), axis=2)
        ids = tf.cast(ids, tf.int32)
        tokens = tf.gather(tf.constant(self.spelled), ids)
        return {
            'ids': ids,
            'weights': weights,
            'tokens': tf.where(weights != 0, tokens, ''),
            'count': tf.cast(entries.row_lengths(), tf.int32),
        }

    def expected(
        self, texts: Sequence[bytes], role: str
    ) -> dict[str, np.ndarray]:
        """Computes `outputs` of texts by `encode`, to compare an export with.
        """
        matrix = self.encode(texts, role, progress=False)
        count = np.diff(matrix.indptr)
        shape = len(texts), count.max(initial=0)
        ids, weights = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
        inside = np.arange(shape[1]) < count[:, None]
        ids[inside], weights[inside] = matrix.indices, matrix.data
        return {'ids': ids, 'weights': weights}

    def most_texts(self, tokens: int, role: str) -> int | None:
        """Implements `RolePredictor.most_texts`."""
        del tokens, role
        return max(1, WEIGHTS_AT_ONCE // len(self.workdir.tokenizer))

    # -------------------------------------------------- strings to weights

    def encode(
        self,
        texts: Sequence[str | bytes],
        role: str = 'passage',
        batch_size: int = 8,
        progress: bool = True,
    ) -> Any:
        """Computes weights of the vocabulary for texts, in order.

        Equal texts are encoded once, and texts are sorted and batched as by
        `Vectors.encode`. `lexical.cut` says how many texts were truncated.

        Args:
            texts: n strings (or bytes, UTF-8).
            role: 'query' or 'passage', which decides on the prompt and on the
                longest text.
            batch_size, progress: arguments of `Vectors.encode`.

        Returns:
            float32 [n, V]; a text without tokens has no weight.

        Raises:
            TypeError: one string instead of a sequence of strings, or an
                entry that is no text.
            ValueError: a model without such weights, an unknown role, or half
                a surrogate pair.
        """
        return self._matrix(self._arrays(texts, role, batch_size, progress))

    def encode_tokenized(
        self,
        texts: Any,
        role: str = 'passage',
        batch_size: int = 8,
        progress: bool = False,
    ) -> Any:
        """Computes weights as `encode` does, of texts that `tokenize` returned.

        By the weights as they are at each call. Args and errors as of
        `encode`.
        """
        return self._matrix(self._arrays_of(texts, role, batch_size, progress))

    def terms(
        self,
        texts: Sequence[str],
        role: str = 'passage',
        top_k: int | None = None,
    ) -> list[list[tuple[str, float]]]:
        """Spells the tokens that have a weight for each text, most first.

        Args and errors as of `encode`, and:

        Args:
            top_k: number of tokens of a text at most; None: all.
        """
        return [
            [(self.spelled[int(i)], float(w)) for w, i in text[:top_k]]
            for text in self._arrays(texts, role, 8, False)
        ]

    def _matrix(self, arrays: list[np.ndarray]) -> Any:
        """Makes [n, V] of n `entries` [t, 2]."""
        from scipy import sparse

        values = np.concatenate([np.zeros((0, 2), np.float32), *arrays])
        splits = np.cumsum([0, *map(len, arrays)])
        matrix = sparse.csr_array(
            (values[:, 0], values[:, 1].astype(np.int32), splits),
            shape=(len(arrays), self.critic.size_in(self.config)),
        )
        matrix.sort_indices()
        return matrix


def spelled(tokenizer: Any) -> list[str]:
    """Spells the tokens of a vocabulary as people read text, V strings."""
    # Of bytes, or with a mark where a word begins or ends.
    if tokenizer.kind in ('bytes', 'marked', 'characters'):
        texts = (tokenizer.detokenize([i]) for i in range(len(tokenizer)))
    else:
        texts = (x.replace(_MARK, ' ') for x in tokenizer.vocabulary)
    return [
        text.strip() or token
        for text, token in zip(texts, tokenizer.vocabulary, strict=True)
    ]
