"""Byte-level byte-pair encoding: GPT-2's tokenizer (Radford et al. 2019, §2.2).

Words are parted by kinds of characters, with the blank before them; their
bytes are the symbols that merges begin with, so nothing is unknown. Ids and
offsets are those of `tokenizers`, but the text of a special piece is text like
any other, and offsets are bytes.

A word is what this expression finds:

    's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|
    \\s+(?!\\S)|\\s+

No operation of TensorFlow has its lookahead. Nor is it needed: whether a word
begins at a character can be said of that one and its two neighbours.

Glossary of shapes: B strings, C characters of all strings together, M
contractions, W words, V vocabulary.
"""

import functools
import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
import tensorflow as tf

from infoword_tf.text import normalization
from infoword_tf.text import vocabulary as vocabularies
from infoword_tf.text.normalization import Normalization
from infoword_tf.text.normalizers import (
    AsWritten,
    Composed,
    Mapped,
    Normalizer,
)
from infoword_tf.text.pairs import CannotKeep, Pairs, Words
from infoword_tf.text.tokenizer import string_of

# Kinds of characters; _EDGE is beyond the ends of a string.
_OTHER, _LETTER, _NUMBER, _WHITE, _BLANK, _APOSTROPHE, _EDGE = range(7)
_KINDS = 7
# What is said of a character: it goes on with a word, begins one, or begins
# one as an apostrophe that may contract.
_GOES_ON, _BEGINS, _MAY_CONTRACT = range(3)
_SHORT = [ord(c) for c in 'stmd']
_LONG = tuple((ord(a), ord(b)) for a, b in ('re', 've', 'll'))
_NORMALIZERS = {
    None: AsWritten,
    'NFC': Composed,
    'Lowercase': lambda: Mapped(
        normalization.model(Normalization(True, False, False, False))
    ),
}


class BytePairs(Pairs):
    """Any text as pieces that are bytes."""

    kind = 'bytes'

    def __init__(
        self, described: Mapping[str, Any], where: str = 'the tokenizer'
    ):
        """Args: as of `Pairs`."""
        step = described.get('normalizer') or {'type': None}
        split = described.get('pre_tokenizer') or {}
        if step['type'] not in _NORMALIZERS:
            raise CannotKeep(
                f'{where} normalises by {step["type"]}; beside bytes only NFC '
                'and Lowercase can be kept'
            )
        if split.get('type') != 'ByteLevel' or not split.get('use_regex', True):
            raise CannotKeep(
                f'{where} splits words by {split.get("type") or "nothing"}; '
                'beside bytes only ByteLevel with its own expression can be '
                'kept'
            )
        post = described.get('post_processor')
        # Blanks that pieces begin with are in their bytes where it says so.
        self.trims = post is None or any(
            step.get('trim_offsets', False)
            for step in post.get('processors') or [post]
        )
        self._bytes = tf.constant(_symbols_of(described, where), tf.int64)
        self._marks_first = bool(split.get('add_prefix_space', True))
        self._normalizer: Normalizer = _NORMALIZERS[step['type']]()
        # Of blanks in a row some vocabularies have added pieces, up to so
        # many: they are no text to merges, but stand between texts.
        self._rows = _rows_of_blanks(described, where)
        self._kinds = tf.constant(_kinds())
        self._says = tf.constant(_says())
        super().__init__(described, where, step['type'] == 'Lowercase')

    @classmethod
    def learn(
        cls, texts: Iterable[str], size: int, lower_case: bool = True
    ) -> Self:
        """As `Tokenizer.learn`; accents stay."""
        return cls(learn(texts, size, lower_case), 'the learned tokenizer')

    @property
    def normalizer(self) -> Normalizer:
        """As `Tokenizer.normalizer`."""
        return self._normalizer

    def tokenize_parts(
        self, parts: tf.Tensor, inside: tf.Tensor
    ) -> tf.RaggedTensor:
        """As `Tokenizer.tokenize_parts`.

        [MASK] has the blank before it, as a word that it stands for.
        """
        before_mask = tf.concat([inside[1:], [False]], 0)
        parts = tf.where(
            before_mask,
            tf.strings.regex_replace(parts, r'[\s\p{Z}]+$', ''),
            parts,
        )
        return self.tokenize(parts)

    def text(self, ids: Iterable[int]) -> str:
        """As `Tokenizer.text`."""
        pieces = (self._word(self.vocabulary[i]) for i in ids
                  if i not in self.control_ids)  # fmt: skip
        return b''.join(piece or b'' for piece in pieces).decode(
            errors='replace'
        )

    def _more_words(self) -> dict[bytes, int]:
        return {b' ' * count: number for count, number in self._rows}

    def _word(self, piece: str) -> bytes | None:
        codes = [_BYTES.get(character) for character in piece]
        return None if None in codes else bytes(codes)

    def _length(self, piece: str) -> int:
        return len(piece)

    def _symbols(self, words: tf.Tensor) -> tf.RaggedTensor:
        text = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)
        lengths = tf.strings.length(words, unit='BYTE')
        return tf.RaggedTensor.from_row_lengths(
            tf.gather(self._bytes, tf.cast(text, tf.int32)),
            tf.cast(lengths, tf.int64),
            validate=False,
        )

    def _parted(self, strings: tf.Tensor, places: bool) -> Words:
        if self._marks_first:
            marked = tf.strings.regex_full_match(strings, '(?s)( .*)?')
            blanks = tf.where(marked, '', ' ')
            strings = tf.strings.join([blanks, strings])
        if places:
            codes, splits, starts, ends = self._normalizer.characters(strings)
            widths = 1 + sum(
                tf.cast(codes >= least, tf.int64)
                for least in (0x80, 0x800, 0x10000)
            )
        else:
            found = tf.strings.unicode_decode(
                self._normalizer(strings), 'UTF-8'
            )
            codes, splits = found.values, found.row_splits
            starts = ends = widths = splits[:0]
        if places and self._marks_first:
            added = tf.gather(tf.cast(~marked, tf.int64), string_of(splits))
            starts, ends = tf.maximum(starts - added, 0), ends - added
            if not self.trims:  # it is of the character that follows
                ends = tf.where(ends > 0, ends, tf.concat([ends[1:], [0]], 0))
        begins = self._begins(codes, splits)  # [C] bool
        first = tf.where(begins)[:, 0]
        words = tf.raw_ops.UnicodeEncode(
            input_values=codes,
            input_splits=tf.concat([first, splits[-1:]], 0),
            output_encoding='UTF-8',
        )
        before = tf.cumsum(tf.pad(tf.cast(begins, tf.int64), [[1, 0]]))
        return Words(
            words, tf.gather(before, splits), first, starts, ends, widths
        )

    def _begins(self, codes: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
        """Whether a word begins at a character: [C] bool."""
        size = tf.size(codes)
        # Where strings begin, and where the last one ends.
        edge = tf.scatter_nd(
            splits[:, None], tf.ones_like(splits), [splits[-1] + 1]
        )
        edge = edge > 0  # [C + 1]
        kind = tf.gather(
            self._kinds, tf.minimum(codes, tf.size(self._kinds) - 1)
        )
        kind = tf.cast(kind, tf.int32)
        if self._rows:
            place = self._place_in_row(codes, edge)
            kind = tf.where(place >= 0, _EDGE, kind)
        around = tf.pad(kind, [[1, 1]])
        before = tf.where(edge[:-1], _EDGE, around[:-2])
        after = tf.where(edge[1:], _EDGE, around[2:])
        says = tf.gather(self._says, (before * _KINDS + kind) * _KINDS + after)
        marks = tf.where(says == _MAY_CONTRACT)
        says = tf.cond(
            tf.size(marks) > 0,
            lambda: _contracted(says, marks[:, 0], codes, edge)[:size],
            lambda: says,
        )
        begins = says > _GOES_ON
        if self._rows:
            begins = tf.where(place >= 0, place == 0, begins)
        return begins

    def _place_in_row(self, codes: tf.Tensor, edge: tf.Tensor) -> tf.Tensor:
        """[C] int32: which one of a piece of blanks a character is, or -1.

        Of blanks in a row the longest piece is taken from the left.
        """
        longest = self._rows[-1][0]
        blank = codes == ord(' ')
        before = tf.concat([[False], blank], 0)[:-1]
        begins = blank & (edge[:-1] | ~before)
        number = tf.cumsum(tf.cast(begins, tf.int32))  # of the row, from 1
        start = tf.cast(tf.where(begins), tf.int32)[:, 0]
        start = tf.concat([[0], start], 0)
        length = tf.math.unsorted_segment_sum(
            tf.cast(blank, tf.int32), number, tf.size(start)
        )
        length = tf.gather(length, number)
        place = tf.range(tf.size(codes)) - tf.gather(start, number)
        left = length % longest  # one blank is no piece, but text
        inside = blank & ((place < length - left) | (left > 1))
        return tf.where(inside, place % longest, -1)


def _contracted(
    says: tf.Tensor, marks: tf.Tensor, codes: tf.Tensor, edge: tf.Tensor
) -> tf.Tensor:
    """`says` [C + 3], once contractions are words. marks: [M] int64."""
    codes = tf.pad(codes, [[0, 2]])
    edge = tf.concat([edge, [True]], 0)
    second, third = tf.gather(codes, marks + 1), tf.gather(codes, marks + 2)
    short = tf.reduce_any(second[:, None] == _SHORT, 1)
    short &= ~tf.gather(edge, marks + 1)
    long = functools.reduce(
        tf.logical_or, ((second == a) & (third == b) for a, b in _LONG)
    )
    long &= ~tf.gather(edge, marks + 1) & ~tf.gather(edge, marks + 2)
    says = tf.pad(says, [[0, 3]])
    one = tf.boolean_mask(marks, short)
    two = tf.boolean_mask(marks, long)
    inside = tf.concat([one + 1, two + 1, two + 2], 0)
    after = tf.concat([one + 2, two + 3], 0)
    for places, value in (inside, _GOES_ON), (after, _BEGINS):
        says = tf.tensor_scatter_nd_update(
            says, places[:, None], tf.fill(tf.shape(places), value)
        )
    return says


@functools.cache
def _kinds() -> np.ndarray:
    """By code point its kind, uint8; beyond them all are _OTHER."""
    import tokenizers
    from tokenizers import pre_tokenizers

    # No surrogates; neither letters, numbers nor blanks beyond.
    codes = np.array([*range(0xD800), *range(0xE000, 0x40000)])
    text = ''.join(map(chr, codes))
    kinds = np.zeros(0x40000, np.uint8)
    for kind, name in (
        (_LETTER, r'\p{L}+'), (_NUMBER, r'\p{N}+'), (_WHITE, r'\s+')
    ):  # fmt: skip
        # `tokenizers` has Unicode's classes of its own.
        splitter = pre_tokenizers.Split(tokenizers.Regex(name), 'removed')
        found = np.ones(len(codes), bool)
        for _, (begin, end) in splitter.pre_tokenize_str(text):
            found[begin:end] = False
        kinds[codes[found]] = kind
    kinds[ord(' ')], kinds[ord("'")] = _BLANK, _APOSTROPHE
    return kinds[: np.flatnonzero(kinds)[-1] + 2]


@functools.cache
def _says() -> np.ndarray:
    """By the kinds of a character's neighbour, itself, its other neighbour."""
    like = {_BLANK: _WHITE, _APOSTROPHE: _OTHER}
    says = np.zeros(_KINDS**3, np.int32)
    kinds = range(_KINDS)
    for i, (before, kind, after) in enumerate(
        itertools.product(kinds, kinds, kinds)
    ):
        alike = like.get(before, before) == like.get(kind, kind)
        if kind in (_WHITE, _BLANK):
            # The last one of several stands with what follows, or apart.
            begins = not alike or after not in (_WHITE, _BLANK, _EDGE)
        else:
            begins = before != _BLANK and not alike
        if begins:
            contracts = kind == _APOSTROPHE
            says[i] = _MAY_CONTRACT if contracts else _BEGINS
    return says


def _byte_characters() -> dict[str, int]:
    """How a vocabulary writes bytes: those that print as Latin-1 does, the
    others by the characters from U+0100 on.
    """
    prints = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in prints]
    return {
        **{chr(byte): byte for byte in prints},
        **{chr(256 + i): byte for i, byte in enumerate(others)},
    }


_BYTES = _byte_characters()


def _symbols_of(described: Mapping[str, Any], where: str) -> list[int]:
    """By byte, the piece that it is alone."""
    index = described['model']['vocab']
    by_byte = sorted(_BYTES, key=_BYTES.get)
    missing = [character for character in by_byte if character not in index]
    if missing:
        raise CannotKeep(
            f'{where} lacks pieces for {len(missing)} of 256 bytes, the first '
            f'of them {missing[0]!r}; it is of no byte-level encoding'
        )
    return [index[character] for character in by_byte]


def _rows_of_blanks(
    described: Mapping[str, Any], where: str
) -> tuple[tuple[int, int], ...]:
    """Added pieces of blanks alone: how many, from 2, and the piece."""
    found = {
        len(token['content']): token['id']
        for token in described.get('added_tokens') or ()
        if token['content'] and not token['content'].strip(' ')
    }
    if sorted(found) != list(range(2, len(found) + 2)):
        raise CannotKeep(
            f'{where} has added pieces of {sorted(found)} blanks; only 2 and '
            'all numbers from there on can be kept'
        )
    return tuple(sorted(found.items()))


def learn(
    texts: Iterable[str], size: int, lower_case: bool = False
) -> dict[str, Any]:
    """Learns what a tokenizer.json holds.

    Args and errors are those of `Tokenizer.learn`. Specials come first, then
    bytes, then what is made of them, the commonest first.
    """
    import json

    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    specials = vocabularies.SPECIALS
    if size < len(specials) + len(_BYTES):
        raise ValueError(
            f'--vocab_size={size} has no room for {len(specials)} special '
            f'pieces and {len(_BYTES)} bytes; a few thousand is usual'
        )
    sampled = sorted(vocabularies.sample(texts))
    if not any(text.strip() for text in sampled):
        raise ValueError(vocabularies.NO_TEXT)
    made = tokenizers.Tokenizer(models.BPE())
    if lower_case:
        made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(
        sampled,
        trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=[
                tokenizers.AddedToken(
                    # Its blank is masked with a word.
                    piece,
                    special=True,
                    lstrip=piece == vocabularies.MASK,
                )
                for piece in specials
            ],
            initial_alphabet=sorted(_BYTES, key=_BYTES.get),
            show_progress=False,
        ),
    )
    return json.loads(made.to_str())
