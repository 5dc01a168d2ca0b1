"""Byte-pair encoding of characters: GPT's tokenizer (Radford et al. 2018).

Text is split into words as BERT's is; the end of a word is marked `</w>`
(Sennrich et al. 2016, §3.2). Each character that the vocabulary lacks becomes
the unknown token.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from infoword_tf.text import normalization
from infoword_tf.text.normalization import Normalization
from infoword_tf.text.normalizers import Characters, Mapped, characters_of
from infoword_tf.text.pairs import (
    PairEncoding,
    SplitWords,
    UnsupportedTokenizer,
    words_at,
)
from infoword_tf.text.tokenizer import lookup_table

ENDS = '</w>'
_BLANK = ord(' ')


class CharacterPairs(PairEncoding):
    """A tokenizer that merges the characters of words."""

    kind = 'characters'

    def __init__(
        self,
        described: Mapping[str, Any],
        where: str = 'the tokenizer',
        specials: Sequence[str] = (),
    ):
        """Reads a tokenizer.json; args as of `PairEncoding`."""
        model = described['model']
        step = described.get('normalizer') or {}
        split = described.get('pre_tokenizer') or {}
        kinds = step.get('type'), split.get('type')
        if kinds != ('BertNormalizer', 'BertPreTokenizer'):
            raise UnsupportedTokenizer(
                'characters_normalizer',
                f'{where} normalises by {kinds[0]} and splits words by '
                f'{kinds[1]}; beside characters only BertNormalizer and '
                'BertPreTokenizer can be kept',
            )
        other = model.get('fuse_unk') or model.get('byte_fallback')
        if model.get('end_of_word_suffix') != ENDS or other:
            raise UnsupportedTokenizer(
                'characters_word_ends',
                f'{where}: words must end in {ENDS}, and each unknown '
                'character be one unknown token',
            )
        if model.get('unk_token') not in model['vocab']:
            raise UnsupportedTokenizer(
                'no_unknown_token',
                f'{where}: its vocabulary has no token for what is unknown; '
                'name one as unk_token',
            )
        lower_case = bool(step.get('lowercase', True))
        self._normalization = Normalization(
            lower_case,
            step.get('strip_accents'),
            bool(step.get('handle_chinese_chars', True)),
            bool(step.get('clean_text', True)),
        )
        self._normalizer = Mapped(
            normalization.spaced_model(self._normalization)
        )
        self._single = lookup_table(
            {
                token: number
                for token, number in model['vocab'].items()
                if len(token.removesuffix(ENDS)) == 1
            },
            model['vocab'][model['unk_token']],
        )
        super().__init__(described, where, lower_case, specials)

    @functools.cached_property
    def normalizer(self) -> Mapped:
        """The `Normalizer` of texts."""
        with tf.init_scope():
            return Mapped(normalization.bert_model(self._normalization))

    def detokenize(self, ids: Iterable[int]) -> str:
        """Implements `TextTokenizer.detokenize`."""
        tokens = (self.vocabulary[i] for i in ids if i not in self.control_ids)
        return ''.join(tokens).replace(ENDS, ' ').rstrip(' ')

    def _word(self, token: str) -> bytes | None:
        if not token.endswith(ENDS):
            return None
        return token.removesuffix(ENDS).encode()

    def _length(self, token: str) -> int:
        if token == self.vocabulary[self.unk_id]:
            return 1
        return len(token.removesuffix(ENDS))

    def _symbols(self, words: tf.Tensor) -> tf.RaggedTensor:
        split = tf.strings.unicode_split(words, 'UTF-8')
        characters = split.values
        lasts = split.row_splits[1:] - 1
        characters = tf.tensor_scatter_nd_update(
            characters,
            lasts[:, None],
            tf.strings.join([tf.gather(characters, lasts), ENDS]),
        )
        return split.with_values(self._single.lookup(characters))

    def _split(self, strings: tf.Tensor, with_offsets: bool) -> SplitWords:
        codes, splits, starts, ends = characters_of(
            self._normalizer, strings, with_offsets
        )
        # Normalised words have blanks between them, and nothing else.
        begins = tf.scatter_nd(
            splits[:, None], tf.ones_like(splits), [splits[-1] + 1]
        )[:-1]
        begins = (begins > 0) | (tf.pad(codes, [[1, 0]])[:-1] == _BLANK)
        solid = codes != _BLANK
        begins &= solid
        stays = tf.where(solid)[:, 0]
        codes = tf.gather(codes, stays)
        if with_offsets:
            starts, ends = tf.gather(starts, stays), tf.gather(ends, stays)
        before = tf.cumsum(tf.pad(tf.cast(solid, tf.int64), [[1, 0]]))
        solid = Characters(codes, tf.gather(before, splits), starts, ends)
        split = words_at(tf.gather(begins, stays), solid)
        return split._replace(widths=tf.ones_like(codes, tf.int64))
