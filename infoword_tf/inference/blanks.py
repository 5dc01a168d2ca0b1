"""Pieces for the blanks of a text, by rows that learned from masked ones.

Glossary of shapes: B texts, T tokens, N pieces of all texts together, Q
places, V vocabulary.
"""

import re
from typing import Any

import numpy as np
import tensorflow as tf

from infoword_tf.config import WEIGHTS
from infoword_tf.inference.states import States
from infoword_tf.text import strings, vocabulary
from infoword_tf.text.tokenizer import Tokenizer

Tensor = Any
_FAR = 2**30  # from every piece


class Blanks(States):
    """A workdir that fills in [MASK]."""

    @property
    def fill_rows(self) -> list[str]:
        """Rows that can fill a blank here; the first one does.

        Some need `unigram`: their scores are of p(b | a) / p(b).
        """
        more = [] if self.unigram is None else ['blanks_by_counts']
        return [
            row
            for answer in ('blanks', *more)
            for row in self.rows_that(answer)
        ]

    def piece_scores(
        self, ids: Tensor, lengths: Tensor, places: Tensor
    ) -> Tensor:
        """log p of every piece at places [B, Q] of [MASK]; graph or eager.

        Returns:
            [B, Q, V] float32 log-probabilities; special pieces but [UNK]
            have none.

        Raises:
            ValueError: no row of this model can, or what it needs is missing.
        """
        rows = self.fill_rows
        if not rows:
            row = self.row_that('blanks', 'blanks_by_counts')
            raise ValueError(
                f'{row} fills blanks with the piece counts of its training '
                f'text, and this workdir has none (`unigram` in {WEIGHTS})'
            )
        states = self.states(ids, lengths, places=places)
        counts = None
        if self.unigram is not None:
            counts = np.maximum(self.unigram, 1e-9)
        return self._pieces_log_p(
            self.model.objectives[rows[0]].piece_scores(states, counts)
        )

    def fill_mask(
        self, text: str | bytes, top_k: int = 10
    ) -> list[list[tuple[str, float]]]:
        """What may stand at each [MASK] of a text.

        Args:
            text: with [MASK] where a piece is wanted.

        Returns:
            For each [MASK] the best pieces with their log-probabilities
            (nats), best first.

        Raises:
            TypeError: it is no text.
            ValueError: no [MASK], a text too long, half a surrogate pair, or
                no row that can.
        """
        text = strings.checked_one(text)
        pieces = with_masks(self.tokenizer, tf.constant([text]))
        masks = masks_of(pieces, self.tokenizer.mask_id)[0]
        if not len(masks):
            raise ValueError(f'there is no {vocabulary.MASK} in {text!r}')
        size = len(pieces.flat_values) + self.max_length - self.free_length
        if size > self.max_length:
            raise ValueError(
                f'{size} tokens, but this model takes {self.max_length}; '
                'shorten the text'
            )
        scores = self.piece_scores(
            self.template.one(pieces, size).to_tensor(),
            tf.constant([size]),
            tf.cast(masks, tf.int32)[None] + len(self.before),
        )
        return self._best_pieces(scores[0], top_k)


def with_masks(tokenizer: Tokenizer, texts: Tensor) -> tf.RaggedTensor:
    """Pieces of texts that have [MASK] in them: [B] -> [B, pieces] int32.

    A tokenizer that knows how a text spells it finds it; to others [MASK] is
    text like any other, so texts are parted there.
    """
    if tokenizer.mask_text is not None:
        mask = re.escape(vocabulary.MASK)
        spelled = tokenizer.mask_text.replace('\\', r'\\')
        return tokenizer.tokenize(
            tf.strings.regex_replace(texts, mask, spelled)
        )
    parts = tf.strings.split(texts, vocabulary.MASK)
    number = tf.ragged.range(parts.row_lengths()).flat_values
    inside = number > 0
    masks = tf.fill([tf.size(number), 1], tokenizer.mask_id)
    # Before each part but the first.
    masks = tf.ragged.boolean_mask(masks, inside[:, None])
    pieces = tokenizer.tokenize_parts(parts.flat_values, inside)
    return parts.with_values(tf.concat([masks, pieces], 1)).merge_dims(1, 2)


def masks_of(pieces: tf.RaggedTensor, mask_id: int) -> tf.RaggedTensor:
    """Which pieces of each text are masks: [B, masks] int64."""
    where = tf.where(tf.equal(pieces.flat_values, mask_id))[:, 0]
    text = tf.gather(pieces.value_rowids(), where)
    return tf.RaggedTensor.from_value_rowids(
        where - tf.gather(pieces.row_starts(), text),
        text,
        pieces.nrows(),
        validate=False,
    )


def first_masks(masks: tf.RaggedTensor, count: int) -> Tensor:
    """[B, `count`] int32: the first of `masks_of`; beyond them -2^30."""
    return tf.cast(masks.to_tensor(-_FAR, shape=(None, count)), tf.int32)


def near_masks(
    pieces: tf.RaggedTensor, masks: Tensor, limit: int
) -> tf.RaggedTensor:
    """Cuts texts [B, pieces] to the `limit` pieces that are nearest to their
    masks, [B, Q] of `first_masks`.

    Masks stay, then pieces by their distance from the nearest of these, the
    earlier first; in their order. Of a text without masks the beginning stays.
    """
    text = pieces.value_rowids()
    place = tf.ragged.range(pieces.row_lengths()).flat_values
    far = tf.cast(place, tf.int32)[:, None] - tf.gather(masks, text)  # [N, Q]
    far = tf.cast(tf.reduce_min(tf.abs(far), axis=1), tf.int64)
    order = tf.argsort(text * 2**32 + far, stable=True)
    # Texts lie as before, each by distance: its first `limit` stay.
    stay = tf.sort(tf.boolean_mask(order, place < limit))
    sizes = tf.minimum(pieces.row_lengths(), tf.cast(limit, tf.int64))
    return tf.RaggedTensor.from_row_lengths(
        tf.gather(pieces.flat_values, stay), sizes, validate=False
    )
