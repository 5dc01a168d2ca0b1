"""Byte-pair encoding of characters: GPT's tokenizer (Radford et al. 2018).

Words are parted as BERT's are; what ends one is marked `</w>` (Sennrich et al.
2016, §3.2). A character that the vocabulary lacks is its unknown piece.

Glossary of shapes: B strings, C characters of all strings together, W words.
"""

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Self

import tensorflow as tf

from infoword_tf.text import normalization
from infoword_tf.text.normalization import Normalization
from infoword_tf.text.normalizers import Mapped
from infoword_tf.text.pairs import CannotKeep, Pairs, Words

ENDS = '</w>'
_BLANK = ord(' ')


class CharacterPairs(Pairs):
    """Words as pieces that are characters."""

    kind = 'characters'

    def __init__(
        self, described: Mapping[str, Any], where: str = 'the tokenizer'
    ):
        """Args: as of `Pairs`."""
        model = described['model']
        step = described.get('normalizer') or {}
        split = described.get('pre_tokenizer') or {}
        found = step.get('type'), split.get('type')
        if found != ('BertNormalizer', 'BertPreTokenizer'):
            raise CannotKeep(
                f'{where} normalises by {found[0]} and splits words by '
                f'{found[1]}; beside characters only BertNormalizer and '
                'BertPreTokenizer can be kept'
            )
        if model.get('end_of_word_suffix') != ENDS or model.get('fuse_unk'):
            raise CannotKeep(
                f'{where}: words must end in {ENDS}, and each unknown '
                'character be one unknown piece'
            )
        if model.get('unk_token') not in model['vocab']:
            raise CannotKeep(
                f'{where}: its vocabulary has no piece for what is unknown; '
                'name one as unk_token'
            )
        lower_case = bool(step.get('lowercase', True))
        self._normalization = Normalization(
            lower_case,
            step.get('strip_accents'),
            bool(step.get('handle_chinese_chars', True)),
            bool(step.get('clean_text', True)),
        )
        self._normalizer = Mapped(
            normalization.model(self._normalization, parted=True)
        )
        single = {
            piece: number
            for piece, number in model['vocab'].items()
            if len(piece.removesuffix(ENDS)) == 1
        }
        self._single = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(list(single), tf.string),
                tf.constant(list(single.values()), tf.int64),
            ),
            model['vocab'][model['unk_token']],
        )
        super().__init__(described, where, lower_case)

    @classmethod
    def learn(
        cls, texts: Iterable[str], size: int, lower_case: bool = True
    ) -> Self:
        """It is not learned: ValueError."""
        raise ValueError(
            'pairs of characters are read from public models alone; learn '
            '--tokenizer=bytes instead'
        )

    @functools.cached_property
    def normalizer(self) -> Mapped:
        """As `Tokenizer.normalizer`."""
        with tf.init_scope():
            return Mapped(normalization.written(self._normalization))

    def text(self, ids: Iterable[int]) -> str:
        """As `Tokenizer.text`."""
        kept = (self.vocabulary[i] for i in ids if i not in self.control_ids)
        return ''.join(kept).replace(ENDS, ' ').rstrip(' ')

    def _word(self, piece: str) -> bytes | None:
        if not piece.endswith(ENDS):
            return None
        return piece.removesuffix(ENDS).encode()

    def _length(self, piece: str) -> int:
        if piece == self.vocabulary[self.unk_id]:
            return 1
        return len(piece.removesuffix(ENDS))

    def _symbols(self, words: tf.Tensor) -> tf.RaggedTensor:
        found = tf.strings.unicode_split(words, 'UTF-8')
        characters = found.values
        lasts = found.row_splits[1:] - 1
        characters = tf.tensor_scatter_nd_update(
            characters,
            lasts[:, None],
            tf.strings.join([tf.gather(characters, lasts), ENDS]),
        )
        return found.with_values(self._single.lookup(characters))

    def _parted(self, strings: tf.Tensor, places: bool) -> Words:
        if places:
            codes, splits, starts, ends = self._normalizer.characters(strings)
        else:
            found = tf.strings.unicode_decode(
                self._normalizer(strings), 'UTF-8'
            )
            codes, splits = found.values, found.row_splits
            starts = ends = splits[:0]
        # Normalised words have blanks between them, and nothing else.
        begins = tf.scatter_nd(
            splits[:, None], tf.ones_like(splits), [splits[-1] + 1]
        )[:-1]
        begins = (begins > 0) | (tf.pad(codes, [[1, 0]])[:-1] == _BLANK)
        solid = codes != _BLANK
        begins &= solid
        kept = tf.where(solid)[:, 0]
        codes = tf.gather(codes, kept)
        first = tf.where(tf.gather(begins, kept))[:, 0]
        words = tf.raw_ops.UnicodeEncode(
            input_values=codes,
            input_splits=tf.concat([first, [tf.size(codes, tf.int64)]], 0),
            output_encoding='UTF-8',
        )
        before = tf.cumsum(tf.pad(tf.cast(begins, tf.int64), [[1, 0]]))
        if places:
            starts, ends = tf.gather(starts, kept), tf.gather(ends, kept)
        return Words(
            words,
            tf.gather(before, splits),
            first,
            starts,
            ends,
            tf.ones_like(codes, tf.int64),
        )
