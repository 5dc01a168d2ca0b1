"""Vectors of tokens, for late interaction.

    f(a, b) = sum over vectors of a of the largest cosine with a vector of b

(Khattab & Zaharia 2020, "ColBERT"), divided by the number of vectors of a where
`LateConfig.mean` says so. a is a text of the role query, b of the role passage.

Glossary of shapes: W numbers of a vector, t vectors of a text.
"""

import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from infoword_tf import errors
from infoword_tf.config import LateConfig
from infoword_tf.inference.batches import (
    RolePredictor,
    Tensor,
    Tokenized,
    unit_rows,
)
from infoword_tf.inference.states import real_places
from infoword_tf.layers.pooling import unit
from infoword_tf.objectives.critics import counted


class LateVectors(RolePredictor):
    """The vectors that a workdir gives the tokens of texts."""

    @property
    def head(self) -> LateConfig:
        """Settings of the vectors; ValueError: the model has none."""
        if self.config.late is None:
            raise errors.InputError(
                'no_token_vectors',
                f'{self.states.rows_text} make no vectors of tokens; train '
                'with --simcse.critic=late, or bring in a model that has them',
            )
        return self.config.late

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
            ids, lengths: as of `States.format_role`.
            role: in config.ROLES.

        Returns:
            ids, lengths and `hidden`, as `vectors` takes them.
        """
        if not self._expands(role):
            return ids, lengths, None
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
    ) -> tf.RaggedTensor:
        """Computes the vectors of tokens; graph or eager, any shape.

        Args:
            ids, lengths, hidden: as in `States.__call__`, as of `expanded`.
            role: in config.ROLES; passages leave out `LateConfig.skip`.

        Returns:
            [B, t, W] float32 of length 1, of the tokens that have a vector, in
            order. (`to_tensor()` pads with 0; `row_lengths()` are t.)
        """
        counts = real_places(ids, lengths)
        if role == 'passage' and self.head.skip:
            counts &= tf.gather(self._passage_ids, ids)
        if not self.head.first:
            counts &= tf.range(tf.shape(ids)[1]) > 0
        states = self.states(ids, lengths, hidden=hidden)
        vectors = self.workdir.model.late.projected(
            tf.boolean_mask(states, counts)
        )
        sizes = tf.reduce_sum(tf.cast(counts, tf.int64), axis=1)
        return tf.RaggedTensor.from_row_lengths(
            unit(vectors[:, : self.config.dims]), sizes, validate=False
        )

    def entries(
        self, ids: Tensor, lengths: Tensor, role: str
    ) -> tf.RaggedTensor:
        """Implements `RolePredictor.entries`: `vectors` after `expanded`."""
        return self.vectors(*self.expanded(ids, lengths, role), role)

    def _expands(self, role: str) -> bool:
        return role == 'query' and self.head.expand

    def most_texts(self, tokens: int, role: str) -> int | None:
        """Implements `RolePredictor.most_texts`."""
        if self._expands(role):
            return max(1, tokens // self.config.length_for(role))
        return None

    # -------------------------------------------------- strings to vectors

    def encode(
        self,
        texts: Sequence[str],
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
            batch_size, progress: as of `Vectors.encode`.
            dims: how many first numbers of a vector to return, of length 1.

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
        texts: Tokenized,
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
            raise errors.InputError(
                'token_dims_out_of_range',
                f'dims {dims}: vectors of tokens have {self.width} numbers',
            )


def _shortened(arrays: list[np.ndarray], dims: int | None) -> list[np.ndarray]:
    """Takes the first `dims` numbers of vectors, n times [t, W]."""
    if dims is None:
        return arrays
    return [unit_rows(np.array(x[:, :dims])) for x in arrays]
