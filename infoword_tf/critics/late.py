"""The critic `late`: vectors of tokens, compared token by token.

    f(a, b) = sum over tokens of a of the largest cosine with a token of b

(Khattab & Zaharia 2020, "ColBERT", §3.2 and §3.3). A text is [L, W + 1]
numbers: a vector of each token, and whether it counts. Of b what
`LateConfig.skip` names does not count.

Shapes: J examples of a sequence, S texts of an example, N = B J, Ta, Tb tokens
of a and of b, W width of a token's vector, F = L (W + 1).
"""

import dataclasses
import functools
import string
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from infoword_tf.config import Config, DenseConfig
from infoword_tf.critics.critic import (
    Critic,
    HeadConfig,
    RoleMethods,
    Start,
)
from infoword_tf.critics.form import Compared
from infoword_tf.critics.texts import Tokens, averaged
from infoword_tf.errors import InputError
from infoword_tf.layers.block import take
from infoword_tf.layers.dense import Dense
from infoword_tf.layers.late import TokenVectors, late_scores, paired_scores
from infoword_tf.layers.pooling import real_places, unit
from infoword_tf.lazy import ops
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Specials

LATE = 'late'
PUNCTUATION = tuple(string.punctuation)
TOKEN_WIDTH = 128  # (Khattab & Zaharia 2020, §3.2)


@dataclasses.dataclass(frozen=True)
class LateConfig(HeadConfig):
    """Vectors of tokens, which late interaction compares.

    Attributes:
        dense: layers over the state of each token, in order.
        expand: whether queries are padded with [MASK] to `query_length`.
        attend: whether tokens attend to these [MASK].
        skip: spellings of tokens whose vectors passages leave out.
        first: whether the first state of a text has a vector.
        mean: whether scores are divided by the number of a query's vectors.
    """

    dense: tuple[DenseConfig, ...]
    expand: bool = False
    attend: bool = False
    skip: tuple[str, ...] = ()
    first: bool = True
    mean: bool = False

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Implements `HeadConfig.parse`."""
        dense = tuple(DenseConfig(**layer) for layer in values['dense'])
        skip = tuple(values.get('skip', ()))
        return cls(**{**values, 'dense': dense, 'skip': skip})


def counted(skipped: tuple[str, ...], tokens: Any, size: int) -> np.ndarray:
    """Returns which tokens of a vocabulary count, [V] bool.

    Args:
        skipped: spellings of those that do not.
        tokens: spellings of all, in the order of their ids; or none.
        size: V.
    """
    left_out = set(skipped)
    counts = np.ones(size, bool)
    counts[[i for i, token in enumerate(tokens) if token in left_out]] = False
    return counts


class LateCritic(Critic):
    """Late interaction.

    Attributes:
        lengths: tokens of an a and of a b at most; 0: of any length.
        counts: flags of the tokens of a vocabulary that count in b, [V] bool.
    """

    name = LATE
    help = 'each token of {a} with the nearest of {b} (late, ColBERT)'
    described = 'the vectors of tokens'
    public = 'MultiVectorEncoder'
    signature = 'embed_tokens'
    card = (
        'late interaction: of each vector of a query (`embed_tokens_query`) '
        'the largest product with one of the passage (`embed_tokens`), '
        'summed'
    )
    card_outputs = {
        'embeddings': 'one vector of length 1 for each token that counts; '
        'zeros beyond them',
        'count': 'how many vectors each text has',
    }
    compares_few = True
    head_config = LateConfig
    lacks = {
        'queue': (), 'momentum': (), 'directions': ('joint',),
    }  # fmt: skip
    token_width: int = setting(
        0,
        "Width of a token's vector; 0: that of --init, else 128.",
        at_least=0,
    )
    skip_punctuation: bool = setting(
        True,
        'Leave the vectors of punctuation out of passages.',
    )

    # ------------------------------------------------------------ of a model

    @classmethod
    def of_head(cls) -> tuple[str, ...]:
        """Implements `Critic.of_head`."""
        return ('token_width', 'skip_punctuation')

    @classmethod
    def decide(cls, chosen: Mapping[str, Any], start: Start) -> LateConfig:
        """Keeps the layers of --init, if of the width."""
        old, width = cls.of(start.config), chosen['token_width']
        dense = () if old is None else old.dense
        if width and (not dense or dense[-1].width != width):
            dense = (DenseConfig(width, 'identity', bias=False),)
        if not dense:
            narrow = min(TOKEN_WIDTH, start.width)
            dense = (DenseConfig(narrow, 'identity', bias=False),)
        return dataclasses.replace(
            old or LateConfig(dense),
            dense=dense,
            skip=PUNCTUATION if chosen['skip_punctuation'] else (),
            expand=start.sides.get('expand', False),
            attend=start.sides.get('attend', False),
        )

    @classmethod
    def make_head(
        cls, entry: LateConfig, encoder: Any, specials: Specials, dtype: Any
    ) -> TokenVectors:
        """Implements `Critic.make_head`."""
        del specials, dtype
        width, dense = encoder.width, []
        for number, layer in enumerate(entry.dense):
            dense.append(
                Dense(
                    width, layer.width, layer.activation,
                    bias=layer.bias, name=f'{cls.name}_{number}',
                )
            )  # fmt: skip
            width = layer.width
        return TokenVectors(dense, entry.first, entry.mean)

    @classmethod
    def fits(cls, old: LateConfig | None, new: LateConfig | None) -> bool:
        """Implements `Critic.fits`."""
        return (old and old.dense) == (new and new.dense)

    @classmethod
    def sides_of(cls, config: Config) -> tuple[dict[str, Any], dict[str, Any]]:
        """Implements `Critic.sides_of`."""
        sides, chosen = super().sides_of(config)
        entry = cls.of(config)
        if entry is None:
            return sides, chosen
        if entry.expand:
            sides['query_length'] = config.length_for('query')
        sides |= {'expand': entry.expand, 'attend': entry.attend}
        return sides, {'skip_punctuation': bool(entry.skip)}

    @classmethod
    def check_public(
        cls,
        entry: LateConfig,
        where: str,
        arguments: Mapping[str, Any],
        vectors: Any,
        first: bool,
    ) -> None:
        """Raises where [MASK] behind a query would see no token of the query.
        """
        if not entry.expand or entry.attend:
            return
        near = arguments.get('global_every', 1) > 1
        near = near and arguments['local_window']
        length = vectors.query_length or arguments['max_length']
        if near and length > near // 2 + 1:
            raise InputError(
                'expansion_beyond_window',
                f'{where} pads queries to {length} tokens with [MASK] that '
                'nothing attends to, and some layers see '
                f'{near // 2} tokens back; set its length of queries to '
                f'{near // 2 + 1} or less, or let tokens attend to [MASK]',
            )

    # ------------------------------------------------------ of a loaded model

    @classmethod
    def answer(cls) -> type:
        """Implements `Critic.answer`."""
        return LateVectors

    @classmethod
    def width_in(cls, loaded: Any) -> int:
        """Implements `Critic.width_in`."""
        return loaded.late.width

    @classmethod
    def encode(
        cls, loaded: Any, texts: Any, role: str | None, **settings: Any
    ) -> Tokens:
        """Implements `Critic.encode`."""
        encoded = super().encode(loaded, texts, role, **settings)
        return cls._asking(Tokens.of(encoded), loaded.config, role)

    @classmethod
    def joined(
        cls, outputs: Sequence[Mapping[str, np.ndarray]], config: Config,
        role: str | None,
    ) -> Tokens:  # fmt: skip
        """Implements `Critic.joined`."""
        texts = Tokens.of([
            line[:count]
            for batch in outputs
            for line, count in zip(
                batch['embeddings'], batch['count'], strict=True
            )
        ])  # fmt: skip
        return cls._asking(texts, config, role)

    @classmethod
    def _asking(cls, texts: Tokens, config: Config, role: str | None) -> Tokens:
        """Averages queries, if scores are means."""
        is_mean = role == 'query' and cls.of(config).mean
        return averaged(texts) if is_mean else texts

    # --------------------------------------------------- of a row, in training

    def set_head(self, layer: TokenVectors) -> None:
        """Sets the layer, tokens that b skips, and the longest texts."""
        super().set_head(layer)
        skipped = PUNCTUATION if self.skip_punctuation else ()
        specials = self.row.specials
        self.counts = counted(skipped, specials.tokens, specials.size)
        self.lengths = self.row.lengths

    @property
    def width(self) -> int:
        """W."""
        return self.layer.width

    def limit(self, longest: tuple[int, int]) -> None:
        """Implements `Critic.limit`."""
        self.lengths = tuple(
            min(filter(None, both), default=0)
            for both in zip(self.lengths, longest, strict=True)
        )

    def pooled(self, batch: Any, texts: Compared, encoded: Any) -> Tensor:
        """Computes vectors of the tokens of all texts, [N S, L W] float32."""
        del batch
        at, _ = self._places(texts)
        vectors = take(self.layer.projected(encoded.states), at)
        # [B, J S L, W] by text
        size = at.shape[1] // texts.slots * vectors.shape[2]
        return ops.reshape(vectors, (-1, size))

    def finished(
        self, batch: Any, texts: Compared, pooled: Tensor, norm: Any = None
    ) -> Tensor:
        """Normalizes vectors, and adds which count: [N, S, L (W + 1)]."""
        del batch, norm
        count, first = pooled.shape[1], texts.first
        at, real = self._places(texts)
        ids = ops.take_along_axis(texts.view.ids, at, axis=1)
        length = at.shape[1] // texts.slots
        real, ids = (ops.reshape(x, (-1, count, length)) for x in (real, ids))
        if not self.layer.first:
            real = real & (ops.arange(length) > 0)
        of_b = ops.arange(first, first + count)[:, None] > 0
        skipped = ops.logical_not(ops.take(self.counts, ids, axis=0))
        real = real & ops.logical_not(ops.logical_and(skipped, of_b))
        vectors = ops.reshape(pooled, (-1, count, length, self.layer.width))
        both = ops.concatenate(
            [unit(vectors), ops.cast(real, 'float32')[..., None]], axis=3
        )
        return ops.reshape(both, (-1, count, length * (self.layer.width + 1)))

    def _places(self, texts: Compared) -> tuple[Tensor, Tensor]:
        """Returns places of all tokens of texts, and which are real.

        Returns:
            [B, J S L] int32, and bool.
        """
        view, places, count = texts.view, texts.places, texts.slots
        assert places is not None, '`Critic.reads` names places'
        width = view.ids.shape[1]
        longest = max(min(x or width, width) for x in self.lengths)  # L
        at = places[:, :, None] + ops.arange(longest, dtype='int32')
        inside = at < width
        at = ops.reshape(ops.minimum(at, width - 1), (-1, count * longest))
        block = ops.take_along_axis(view.block_ids, at, axis=1)
        number = ops.repeat(ops.arange(count, dtype='int32'), longest)
        real = ops.equal(block, number[None])
        inside = ops.reshape(inside, (-1, count * longest))
        return at, ops.logical_and(real, inside)

    def part(self, texts: Tensor, width: int | None) -> Tensor:
        """Shortens vectors to the first `width` numbers, of length 1."""
        if width is None:
            return texts
        tokens = self._tokens(texts, self.layer.width)
        vectors = unit(tokens[..., :width])
        both = ops.concatenate([vectors, tokens[..., -1:]], axis=-1)
        shape = ops.shape(texts)[:-1]
        return ops.reshape(both, (*shape, tokens.shape[-2] * (width + 1)))

    @staticmethod
    def _tokens(texts: Tensor, width: int) -> Tensor:
        """Splits texts [..., L (W + 1)] into [..., L, W + 1]."""
        length = texts.shape[-1] // (width + 1)
        return ops.reshape(texts, (*ops.shape(texts)[:-1], length, width + 1))

    def _sides(
        self, a: Tensor, b: Tensor, width: int | None
    ) -> list[Tensor]:
        """Returns vectors and masks of a, then of b, without padding."""
        arrays = []
        for texts, most in zip((a, b), self.lengths, strict=True):
            width = width or self.layer.width
            tokens = self._tokens(texts, width)
            if 0 < most < tokens.shape[1]:
                tokens = tokens[:, :most]
            # Not slices, whose gradients are slow.
            vectors, counts = ops.split(tokens, [width], axis=-1)
            arrays += [vectors, counts[..., 0] > 0]
        return arrays

    def scores(
        self, a: Tensor, b: Tensor, width: int | None, key: Tensor | None
    ) -> Tensor:
        """Implements `Critic.scores`."""
        sides = self._sides(a, b, width)
        scores = late_scores(*sides, key=key)
        return scores / self._counts(sides[1])[:, None]

    def paired(self, a: Tensor, b: Tensor, width: int | None) -> Tensor:
        """Implements `Critic.paired`."""
        sides = self._sides(a, b, width)
        return paired_scores(*sides) / self._counts(sides[1])

    def _counts(self, real: Tensor) -> Tensor:
        """Returns divisors of scores, [N]; real: [N, Ta] bool."""
        counts = ops.sum(ops.cast(real, 'float32'), axis=1)
        if not self.layer.mean:
            return ops.ones_like(counts)
        return ops.maximum(counts, 1.0)


class LateVectors(RoleMethods):
    """The vectors that a workdir gives the tokens of texts.

    Methods of a `RolePredictor`, see `Critic.answer`.
    """

    @property
    def width(self) -> int:
        """W."""
        width = self.head.dense[-1].width
        return min(width, self.config.dims or width)

    @functools.cached_property
    def _passage_ids(self) -> np.ndarray:
        """Tokens that have a vector in passages, [V] bool."""
        tokenizer = self.workdir.tokenizer
        return counted(self.head.skip, tokenizer.vocabulary, len(tokenizer))

    # ------------------------------------------------------ ids to vectors

    def expanded(
        self, ids: Tensor, lengths: Tensor, role: str
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Pads queries with [MASK] to `query_length`, if the model does.

        Args:
            ids, lengths: results of `States.format_role`.
            role: name in config.ROLES.

        Returns:
            ids, lengths and `hidden`, as `vectors` takes them.
        """
        if not self._expands(role):
            return ids, lengths, None
        import tensorflow as tf

        length = self.config.length_for(role)
        ids = tf.pad(ids, [[0, 0], [0, length]])[:, :length]
        is_text = tf.sequence_mask(lengths, length)
        ids = tf.where(is_text, ids, self.workdir.tokenizer.mask_id)
        hidden = None if self.head.attend else tf.cast(~is_text, tf.int32)
        return ids, tf.fill(tf.shape(lengths), length), hidden

    def vectors(
        self,
        ids: Tensor,
        lengths: Tensor,
        hidden: Tensor | None = None,
        role: str = 'passage',
    ) -> Any:
        """Computes the vectors of tokens; graph or eager, any shape.

        Args:
            ids, lengths, hidden: arguments of `States.__call__`, results of
                `expanded`.
            role: name in config.ROLES; passages leave out `LateConfig.skip`.

        Returns:
            [B, t, W] float32 of length 1, of the tokens that have a vector, in
            order. (`to_tensor()` pads with 0; `row_lengths()` are t.)
        """
        import tensorflow as tf

        counts = real_places(ids, lengths)
        if role == 'passage' and self.head.skip:
            counts &= tf.gather(self._passage_ids, ids)
        if not self.head.first:
            counts &= tf.range(tf.shape(ids)[1]) > 0
        states = self.states(ids, lengths, hidden=hidden)
        vectors = self.layer.projected(tf.boolean_mask(states, counts))
        sizes = tf.reduce_sum(tf.cast(counts, tf.int64), axis=1)
        return tf.RaggedTensor.from_row_lengths(
            unit(vectors[:, : self.config.dims]), sizes, validate=False
        )

    def entries(
        self, ids: Tensor, lengths: Tensor, role: str
    ) -> Any:
        """Implements `RolePredictor.entries`: `vectors` after `expanded`."""
        return self.vectors(*self.expanded(ids, lengths, role), role)

    def _expands(self, role: str) -> bool:
        return role == 'query' and self.head.expand

    def outputs(self, entries: Any) -> dict[str, Tensor]:
        """Returns outputs of a signature: `entries`, padded."""
        import tensorflow as tf

        return {
            'embeddings': entries.to_tensor(),
            'count': tf.cast(entries.row_lengths(), tf.int32),
        }

    def expected(
        self, texts: Sequence[bytes], role: str
    ) -> dict[str, np.ndarray]:
        """Computes `outputs` of texts by `encode`, to compare an export with.
        """
        arrays = self.encode(texts, role, progress=False)
        count = np.array([*map(len, arrays)], np.int32)
        shape = len(arrays), count.max(initial=0), self.width
        vectors = np.zeros(shape, np.float32)
        for i, array in enumerate(arrays):
            vectors[i, : len(array)] = array
        return {'embeddings': vectors, 'count': count}

    def most_texts(self, tokens: int, role: str) -> int | None:
        """Implements `RolePredictor.most_texts`."""
        if self._expands(role):
            return max(1, tokens // self.config.length_for(role))
        return None

    # -------------------------------------------------- strings to vectors

    def encode(
        self,
        texts: Sequence[str | bytes],
        role: str = 'passage',
        batch_size: int = 8,
        progress: bool = True,
        dims: int | None = None,
    ) -> list[np.ndarray]:
        """Computes vectors of the tokens of texts, in order.

        Equal texts are encoded once, and texts are sorted and batched as by
        `Vectors.encode`. Special tokens have vectors, too, so an empty text
        has theirs alone. `late.cut` says how many texts were truncated.

        Args:
            texts: n strings (or bytes, UTF-8).
            role: 'query' or 'passage', which decides on the prompt, on the
                longest text, on [MASK] after a text, and on tokens without a
                vector.
            batch_size, progress: arguments of `Vectors.encode`.
            dims: number of first numbers of a vector to return, of length 1;
                None: all.

        Returns:
            n arrays [t, W] float32 of vectors of length 1, or [t, dims].

        Raises:
            TypeError: one string instead of a sequence of strings, or an
                entry that is no text.
            ValueError: a model without vectors of tokens, an unknown role,
                more `dims` than numbers, or half a surrogate pair.
        """
        self._check_dims(dims)
        arrays = self._arrays(texts, role, batch_size, progress)
        return _shortened(arrays, dims)

    def encode_tokenized(
        self,
        texts: Any,
        role: str = 'passage',
        batch_size: int = 8,
        progress: bool = False,
        dims: int | None = None,
    ) -> list[np.ndarray]:
        """Computes vectors as `encode` does, of texts that `tokenize` returned.

        By the weights as they are at each call. Args and errors as of
        `encode`.
        """
        self._check_dims(dims)
        arrays = self._arrays_of(texts, role, batch_size, progress)
        return _shortened(arrays, dims)

    def _check_dims(self, dims: int | None) -> None:
        if dims is not None and not 0 < dims <= self.width:
            raise InputError(
                'token_dims_out_of_range',
                f'dims {dims}: vectors of tokens have {self.width} numbers',
            )


def _shortened(arrays: list[np.ndarray], dims: int | None) -> list[np.ndarray]:
    """Takes the first `dims` numbers of vectors, n times [t, W]."""
    if dims is None:
        return arrays
    arrays = [np.array(x[:, :dims]) for x in arrays]
    for x in arrays:
        x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    return arrays
