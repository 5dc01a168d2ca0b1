"""Weights of the vocabulary for texts: vectors that people can read.

    f(a, b) = sum over tokens of the vocabulary of weight in a x weight in b

(Formal et al. 2021, "SPLADE v2").

Glossary of shapes: n texts, t tokens of the vocabulary with a weight.
"""

import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from scipy import sparse

from infoword_tf import errors
from infoword_tf.inference.batches import RolePredictor, Tensor, Tokenized
from infoword_tf.inference.states import real_places
from infoword_tf.layers import lexical

WEIGHTS_AT_ONCE = 2**23  # of a batch, 32 MiB
_MARK = '\u2581'  # of SentencePiece, where a word begins


class LexicalWeights(RolePredictor):
    """The weights that a workdir gives the vocabulary for texts."""

    @property
    def head(self) -> lexical.Lexical:
        """The layer of weights; ValueError: the model has none."""
        if self.workdir.model.lexical is None:
            raise errors.InputError(
                'no_lexical_weights',
                f'{self.states.rows_text} give no weights to the vocabulary; '
                'train with --simcse.critic=lexical, or bring in a model that '
                'has them',
            )
        return self.workdir.model.lexical

    @functools.cached_property
    def spelled(self) -> list[str]:
        """Tokens of the vocabulary as people read text, V strings."""
        tokenizer = self.workdir.tokenizer
        # Of bytes, or with a mark where a word begins or ends.
        if tokenizer.kind in ('bytes', 'marked', 'characters'):
            texts = (tokenizer.detokenize([i]) for i in range(len(tokenizer)))
        else:
            texts = (x.replace(_MARK, ' ') for x in tokenizer.vocabulary)
        return [
            text.strip() or token
            for text, token in zip(texts, tokenizer.vocabulary, strict=True)
        ]

    # ------------------------------------------------------ ids to weights

    def weights(
        self, ids: Tensor, lengths: Tensor, hidden: Tensor | None = None
    ) -> Tensor:
        """Computes the weights of the vocabulary; graph or eager, any shape.

        Args:
            ids, lengths, hidden: as in `States.__call__`.

        Returns:
            [B, V] float32, at least 0; 0 for a text without tokens of its own.
        """
        workdir = self.workdir
        states = self.states.encode(ids, lengths, hidden=hidden).states
        around = len(workdir.before) + len(workdir.after)
        real = real_places(ids, lengths) & (lengths > around)[:, None]
        block_ids = tf.cast(real, tf.int32) - 1
        best = self.head.highest(states, ids, block_ids, 1)
        return self.head.weights_of(best)

    def entries(
        self, ids: Tensor, lengths: Tensor, role: str
    ) -> tf.RaggedTensor:
        """Implements `RolePredictor.entries`.

        Returns:
            [B, t, 2] float32, the weights above 0 and their ids, most first.
            (Ids are exact in float32: there are fewer than 2^24.)
        """
        del role
        weights = self.weights(ids, lengths)
        sizes = tf.math.count_nonzero(weights, axis=1)
        most = tf.cast(tf.reduce_max(tf.pad(sizes, [[0, 1]])), tf.int32)
        best = tf.math.top_k(weights, most)
        pairs = [best.values, tf.cast(best.indices, tf.float32)]
        return tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(tf.stack(pairs, axis=2), best.values > 0),
            sizes, validate=False,
        )  # fmt: skip

    def most_texts(self, tokens: int, role: str) -> int | None:
        """Implements `RolePredictor.most_texts`."""
        del tokens, role
        return max(1, WEIGHTS_AT_ONCE // len(self.workdir.tokenizer))

    # -------------------------------------------------- strings to weights

    def encode(
        self,
        texts: Sequence[str],
        role: str = 'passage',
        batch_size: int = 8,
        progress: bool = True,
    ) -> sparse.csr_array:
        """Computes weights of the vocabulary for texts, in order.

        Equal texts are encoded once, and texts are sorted and batched as by
        `Vectors.encode`. `lexical.cut` says how many texts were truncated.

        Args:
            texts: n strings (or bytes, UTF-8).
            role: 'query' or 'passage', which decides on the prompt and on the
                longest text.
            batch_size, progress: as of `Vectors.encode`.

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
        texts: Tokenized,
        role: str = 'passage',
        batch_size: int = 8,
        progress: bool = False,
    ) -> sparse.csr_array:
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
            top_k: of a text at most; None: all.
        """
        return [
            [(self.spelled[int(i)], float(w)) for w, i in text[:top_k]]
            for text in self._arrays(texts, role, 8, False)
        ]

    def _matrix(self, arrays: list[np.ndarray]) -> sparse.csr_array:
        """Makes [n, V] of n `entries` [t, 2]."""
        values = np.concatenate([np.zeros((0, 2), np.float32), *arrays])
        splits = np.cumsum([0, *map(len, arrays)])
        matrix = sparse.csr_array(
            (values[:, 0], values[:, 1].astype(np.int32), splits),
            shape=(len(arrays), len(self.workdir.tokenizer)),
        )
        matrix.sort_indices()
        return matrix
