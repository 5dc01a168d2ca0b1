"""WordPiece: BERT's tokenizer (Devlin et al. 2019) over a vocabulary.

Ids and offsets are those of Hugging Face's BertTokenizerFast (the exception is
in `normalization`), but the text of a special piece is text like any other,
and offsets are bytes.

Glossary of shapes: B strings, N pieces of all strings together, W words of
all strings together, V vocabulary.
"""

import functools
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, Self

import tensorflow as tf
import tensorflow_text as tf_text

from infoword_tf.text import normalization
from infoword_tf.text import vocabulary as vocabularies
from infoword_tf.text.normalization import Normalization
from infoword_tf.text.normalizers import Mapped
from infoword_tf.text.tokenizer import (
    Pieces,
    Tokenizer,
    string_of,
    with_word_starts,
)

_GOES_ON = '##'
# Characters of a word, normalised; a longer one is [UNK].
_LONGEST_WORD = 100
_BYTES = 4  # of a character in UTF-8, at most


class WordPiece(Tokenizer):
    """A word is the longest pieces from its left; `##` goes on with one."""

    kind = 'wordpiece'
    file = 'vocab.txt'

    def __init__(
        self,
        vocabulary: Sequence[str],
        lower_case: bool = True,
        strip_accents: bool | None = None,
        chinese_characters: bool = True,
        clean: bool = True,
    ):
        """Args: as of `vocabulary.check` and `Normalization`."""
        vocabulary = vocabularies.check(vocabulary, 'the tokenizer')
        specials = vocabularies.special_ids(vocabulary)
        super().__init__(vocabulary, *specials, lower_case)
        self.normalization = Normalization(
            lower_case, strip_accents, chinese_characters, clean
        )
        table, pieces = normalization.fit(self.normalization, vocabulary)
        self._normalizer = tf_text.FastBertNormalizer(
            model_buffer=tf.constant(table)
        )
        self._tokenizer = _splitter(tuple(pieces))
        begins = [not piece.startswith(_GOES_ON) for piece in vocabulary]
        self._begins = tf.constant(begins)  # [V]
        self._lengths = tf.constant([  # [V] characters
            len(piece) - (0 if begin else len(_GOES_ON))
            for piece, begin in zip(vocabulary, begins, strict=True)
        ])  # fmt: skip
        # By the last byte of a character that stays, or the first of another:
        # the bytes from there to its end.
        self._widths = tf.constant(
            [1] * 0xC0 + [2] * 0x20 + [3] * 0x10 + [4] * 0x10, tf.int64
        )

    @classmethod
    def learn(
        cls, texts: Iterable[str], size: int, lower_case: bool = True
    ) -> Self:
        """As `Tokenizer.learn`."""
        return cls(vocabularies.learn(texts, size, lower_case), lower_case)

    @classmethod
    def read(
        cls, path: str | pathlib.Path, lower_case: bool = True, **options: Any
    ) -> Self:
        """As `Tokenizer.read`, a `vocab.txt`."""
        return cls(vocabularies.read(path), lower_case, **options)

    @functools.cached_property
    def normalizer(self) -> Mapped:
        """As `Tokenizer.normalizer`."""
        with tf.init_scope():
            return Mapped(normalization.written(self.normalization))

    @property
    def options(self) -> dict[str, Any]:
        """As `Tokenizer.options`: those that are not the defaults."""
        chosen = self.normalization
        options: dict[str, Any] = {}
        if chosen.strip_accents not in (None, self.lower_case):
            options['strip_accents'] = chosen.strip_accents
        if not chosen.chinese_characters:
            options['chinese_characters'] = False
        if not chosen.clean:
            options['clean'] = False
        return options

    def write(self, path: str | pathlib.Path) -> None:
        """Writes a `vocab.txt`."""
        vocabularies.write(path, self.vocabulary)

    @property
    def identity(self) -> str:
        """How text is normalised, case aside, and the pieces."""
        options = self.normalization
        strips = options.strip_accents
        if strips is None:
            strips = options.lower_case
        return '\n'.join([
            f'tokenizers {strips} {options.chinese_characters} {options.clean}',
            *self.vocabulary,
        ])  # fmt: skip

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """As `Tokenizer.tokenize`."""
        tokens, _, _ = self._tokenize(self._normalizer.normalize(strings))
        return tokens

    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """As `Tokenizer.tokenize_with_offsets`.

        What normalisation deletes beside a piece is not among its bytes, as an
        accent that is a character of its own. All pieces of a character that
        becomes several have its bytes.
        """
        strings = tf.convert_to_tensor(strings, tf.string)
        tokens, starts, lasts = self._places(strings)
        lengths = tf.cast(tf.strings.length(strings, unit='BYTE'), tf.int64)
        row = string_of(tokens.row_splits)
        joined = tf.strings.reduce_join(strings)
        text = tf.cast(tf.io.decode_raw(joined, tf.uint8), tf.int32)
        place = tf.gather(tf.cumsum(lengths, exclusive=True), row) + lasts
        ends = lasts + tf.gather(self._widths, tf.gather(text, place))
        ends = tf.minimum(ends, tf.gather(lengths, row))  # if it is no UTF-8
        return tokens, tokens.with_values(starts), tokens.with_values(ends)

    def text(self, ids: Sequence[int]) -> str:
        """As `Tokenizer.text`; marks stand apart, as words do."""
        joined = super().text(ids).replace(f' {_GOES_ON}', '')
        return joined.removeprefix(_GOES_ON)

    def pieces(self, strings: Sequence[bytes]) -> Pieces:
        """As `Tokenizer.pieces`."""
        tokens, starts, _ = self._places(tf.constant(strings, tf.string))
        return with_word_starts(strings, tokens, starts.numpy())

    def _places(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Ids; and by piece, [N] int64 in its string, where its first character
        begins, and where its last one does or, if it stayed as it was, ends.
        """
        normal, offsets = self._normalizer.normalize_with_offsets(strings)
        tokens, starts, ends = self._tokenize(normal)
        begin = tf.gather(offsets.row_splits, string_of(tokens.row_splits))
        return (
            tokens,
            tf.gather(offsets.values, begin + starts),
            tf.gather(offsets.values, begin + ends - 1),
        )

    def _tokenize(
        self, normal: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Normalised strings [B] -> ids, and bytes of those, [N] int64."""
        tokens, starts, ends = self._tokenizer.tokenize_with_offsets(normal)
        ids, splits = tokens.values, tokens.row_splits
        starts, ends = starts.values, ends.values
        begins = tf.gather(self._begins, ids)
        first = tf.where(begins)[:, 0]  # [W]
        last = tf.concat([first, splits[-1:]], axis=0)[1:] - 1
        widths = tf.gather(ends, last) - tf.gather(starts, first)  # [W] bytes
        ids, splits, starts, ends = tf.cond(
            tf.reduce_max(widths) > _LONGEST_WORD,
            lambda: self._shortened(ids, splits, starts, ends, first, last),
            lambda: (ids, splits, starts, ends),
        )
        tokens = tf.RaggedTensor.from_row_splits(ids, splits, validate=False)
        return tokens, starts, ends

    def _shortened(
        self,
        ids: tf.Tensor,
        splits: tf.Tensor,
        starts: tf.Tensor,
        ends: tf.Tensor,
        first: tf.Tensor,
        last: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        """One [UNK] of a word of too many characters; first, last [W]: its
        pieces.
        """
        lengths = tf.gather(self._lengths, ids)
        until = tf.cumsum(lengths)
        before = tf.gather(until - lengths, first)
        long = tf.gather(until, last) - before > _LONGEST_WORD  # [W]
        begins = tf.gather(self._begins, ids)
        word = tf.cumsum(tf.cast(begins, tf.int32)) - 1  # [N]
        inside = tf.gather(long, word)
        stays = begins | ~inside
        kept = tf.where(stays)[:, 0]
        count = tf.cumsum(tf.pad(tf.cast(stays, splits.dtype), [[1, 0]]))
        ends = tf.where(inside, tf.gather(tf.gather(ends, last), word), ends)
        return (
            tf.gather(tf.where(inside, self.unk_id, ids), kept),
            tf.gather(count, splits),
            tf.gather(starts, kept),
            tf.gather(ends, kept),
        )


@functools.lru_cache(maxsize=8)
def _splitter(pieces: tuple[str, ...]) -> tf_text.FastWordpieceTokenizer:
    """Words to pieces. Kept: a process opens one vocabulary often."""
    with tf.init_scope():
        return tf_text.FastWordpieceTokenizer(
            vocab=list(pieces),
            suffix_indicator=_GOES_ON,
            # It counts bytes; `_shortened` counts characters.
            max_bytes_per_word=_BYTES * _LONGEST_WORD,
            token_out_type=tf.int32,
            unknown_token=vocabularies.UNK,
        )
