"""Tokens for the blanks of a text, by rows that learned from masked ones.

Glossary of shapes: P masks of a text, J tokens of all texts together.
"""

import re

import numpy as np
import tensorflow as tf

from infoword_tf import errors
from infoword_tf.config import WEIGHTS
from infoword_tf.inference.states import Predictor
from infoword_tf.tensors import Tensor
from infoword_tf.text import strings
from infoword_tf.text.tokenizer import MASK, TextTokenizer

_FAR = 2**30  # from every token


class Blanks(Predictor):
    """The tokens that a workdir puts in the place of [MASK]."""

    @property
    def rows(self) -> list[str]:
        """Names of the rows that can fill a blank; the first one does.

        Rows whose scores are of p(b | a) / p(b) need `unigram`.
        """
        more = [] if self.workdir.unigram is None else ['blanks_by_counts']
        return [
            row
            for answer in ('blanks', *more)
            for row in self.states.rows_that(answer)
        ]

    def token_scores(
        self, ids: Tensor, lengths: Tensor, places: Tensor
    ) -> Tensor:
        """Computes log p of every token at places of [MASK]; graph or eager.

        Args:
            ids, lengths: inputs of `States.__call__`.
            places: [B, P] int32.

        Returns:
            [B, P, V] float32 log-probabilities; special tokens but [UNK]
            have none.

        Raises:
            ValueError: no row of this model can, or what it needs is missing.
        """
        rows, unigram = self.rows, self.workdir.unigram
        if not rows:
            row = self.states.row_that('blanks', 'blanks_by_counts')
            raise errors.InputError(
                'no_token_counts',
                f'{row} fills blanks with the token counts of its training '
                f'text, and this workdir has none (`unigram` in {WEIGHTS})',
            )
        states = self.states(ids, lengths, places=places)
        counts = None if unigram is None else np.maximum(unigram, 1e-9)
        objective = self.workdir.model.objectives[rows[0]]
        return self._token_log_p(objective.token_scores(states, counts))

    def fill_mask(
        self, text: str | bytes, top_k: int = 10
    ) -> list[list[tuple[str, float]]]:
        """Fills in the blanks of a text.

        Args:
            text: string with [MASK] where a token is wanted.

        Returns:
            For each [MASK] the best tokens with their log-probabilities
            (nats), best first.

        Raises:
            TypeError: it is no text.
            ValueError: no [MASK], a text too long, half a surrogate pair, or
                no row that can.
        """
        text = strings.checked_one(text)
        workdir, tokenizer = self.workdir, self.workdir.tokenizer
        tokens = with_masks(tokenizer, tf.constant([text]))
        masks = masks_of(tokens, tokenizer.mask_id)[0]
        if not len(masks):
            raise errors.InputError(
                'text_without_mask',
                f'there is no {MASK} in {text!r}',
            )
        size = len(tokens.flat_values) + workdir.max_length
        size -= workdir.free_length
        if size > workdir.max_length:
            raise errors.InputError(
                'blanks_text_too_long',
                f'{size} tokens, but this model takes {workdir.max_length}; '
                'shorten the text',
            )
        scores = self.token_scores(
            workdir.template.one(tokens, size).to_tensor(),
            tf.constant([size]),
            tf.cast(masks, tf.int32)[None] + len(workdir.before),
        )
        return self._best_tokens(scores[0], top_k)


def with_masks(tokenizer: TextTokenizer, texts: Tensor) -> tf.RaggedTensor:
    """Tokenizes texts [B] that contain [MASK]: [B, None] int32.

    A tokenizer that knows how a text spells [MASK] finds it; to others it is
    text like any other, so texts are split there.
    """
    if tokenizer.mask_text is not None:
        mask = re.escape(MASK)
        spelled = tokenizer.mask_text.replace('\\', r'\\')
        return tokenizer.tokenize(
            tf.strings.regex_replace(texts, mask, spelled)
        )
    parts = tf.strings.split(texts, MASK)
    number = tf.ragged.range(parts.row_lengths()).flat_values
    inside = number > 0
    masks = tf.fill([tf.size(number), 1], tokenizer.mask_id)
    # Before each part but the first.
    masks = tf.ragged.boolean_mask(masks, inside[:, None])
    tokens = tokenizer.tokenize_between_masks(parts.flat_values, inside)
    return parts.with_values(tf.concat([masks, tokens], 1)).merge_dims(1, 2)


def masks_of(tokens: tf.RaggedTensor, mask_id: int) -> tf.RaggedTensor:
    """Finds the masks among the tokens of each text: [B, None] int64."""
    indices = tf.where(tf.equal(tokens.flat_values, mask_id))[:, 0]
    text = tf.gather(tokens.value_rowids(), indices)
    return tf.RaggedTensor.from_value_rowids(
        indices - tf.gather(tokens.row_starts(), text),
        text,
        tokens.nrows(),
        validate=False,
    )


def first_masks(masks: tf.RaggedTensor, count: int) -> Tensor:
    """Returns the first `count` of `masks_of`, [B, P] int32, or -2^30."""
    return tf.cast(masks.to_tensor(-_FAR, shape=(None, count)), tf.int32)


def near_masks(
    tokens: tf.RaggedTensor, masks: Tensor, limit: int
) -> tf.RaggedTensor:
    """Truncates texts to the `limit` tokens that are nearest to masks.

    Masks stay, then tokens by their distance from the nearest mask, the
    earlier first; in their order. Of a text without masks the beginning stays.

    Args:
        tokens: [B, None] int32.
        masks: [B, P] of `first_masks`.
    """
    text = tokens.value_rowids()
    place = tf.ragged.range(tokens.row_lengths()).flat_values
    far = tf.cast(place, tf.int32)[:, None] - tf.gather(masks, text)  # [J, P]
    far = tf.cast(tf.reduce_min(tf.abs(far), axis=1), tf.int64)
    order = tf.argsort(text * 2**32 + far, stable=True)
    # Texts lie as before, each by distance: its first `limit` stay.
    stay = tf.sort(tf.boolean_mask(order, place < limit))
    sizes = tf.minimum(tokens.row_lengths(), tf.cast(limit, tf.int64))
    return tf.RaggedTensor.from_row_lengths(
        tf.gather(tokens.flat_values, stay), sizes, validate=False
    )
