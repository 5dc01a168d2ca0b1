"""Normalisation of texts in the graph, with offsets into what they were.

Steps are those of a tokenizer.json, by type. What changes each character by
itself is one table.

Glossary of shapes: C characters of all strings together, S spans of strings.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from infoword_tf.text import normalization
from infoword_tf.text.tokenizer import (
    UnsupportedTokenizer,
    ragged,
    string_of,
)

BLANK = r'[\x09-\x0d\x{85}\p{Z}]'  # Unicode's White_Space, for RE2
_EDGE = b'\xff\xfe'  # no bytes of UTF-8
# Steps that change characters one by one; a decomposition does beside
# StripAccents, which drops what it would put in order.
_BY_CHARACTER = 'Lowercase', 'StripAccents', 'Precompiled', 'Nmt'
_DECOMPOSED = 'NFD', 'NFKD'
_FORMS = 'NFC', 'NFKC', 'NFD', 'NFKD'


class Characters(NamedTuple):
    """Characters of normalised strings.

    Attributes:
        codes: [C] int32: code points.
        splits: [B + 1] int64: where each string begins in `codes`.
        starts, ends: [C] int64: in the string before normalisation, the first
            byte of what became the character, and the byte after.
    """

    codes: tf.Tensor
    splits: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor


class Normalizer(Protocol):
    """A function of strings, and one that also tells offsets."""

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """Normalises strings [B]."""

    def characters(self, strings: tf.Tensor) -> Characters:
        """Normalises strings [B], with the offsets of each character."""


class AsWritten:
    """No normalisation."""

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """Implements `Normalizer`."""
        return strings

    def characters(self, strings: tf.Tensor) -> Characters:
        """Implements `Normalizer`."""
        return _decoded(strings)


class Composed:
    """A normal form of Unicode: NFC has letter and accent as one character."""

    def __init__(self, form: str = 'NFC'):
        """Takes one of NFC, NFKC, NFD and NFKD."""
        self._form = form

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """Implements `Normalizer`."""
        return tf_text.normalize_utf8(strings, self._form)

    def characters(self, strings: tf.Tensor) -> Characters:
        """Implements `Normalizer`."""
        # `find_source_offsets` fails on empty strings, so a blank is appended
        # to each, and taken out again below.
        normal, offsets = tf_text.normalize_utf8_with_offsets_map(
            tf.strings.join([strings, ' ']), self._form
        )
        codes, splits, *bounds = _decoded(normal)
        starts, ends = (
            tf_text.find_source_offsets(
                offsets,
                ragged(values, splits),
            ).values
            for values in bounds
        )
        # The parts of what is taken apart have all bytes of it.
        filled = starts < ends
        number = tf.cumsum(tf.cast(filled, tf.int64)) - 1
        whole = tf.gather(tf.where(filled)[:, 0], tf.maximum(number, 0))
        starts = tf.gather(starts, whole)
        same = tf.equal(normal, tf.strings.join([strings, ' ']))
        same = tf.gather(same, string_of(splits))
        starts = tf.where(same, bounds[0], starts)
        ends = tf.where(same, bounds[1], ends)
        appended = tf.scatter_nd(
            splits[1:, None] - 1, tf.ones_like(splits[1:]), splits[-1:]
        )
        stays = tf.where(appended == 0)[:, 0]
        return Characters(
            tf.gather(codes, stays),
            splits - tf.range(tf.size(splits, tf.int64)),
            tf.gather(starts, stays),
            tf.gather(ends, stays),
        )


class Mapped:
    """Normalisation by a table of characters: case, accents, controls."""

    def __init__(self, model: np.ndarray):
        """Takes a model that `normalization` made, [S] uint8."""
        self._normalizer = tf_text.FastBertNormalizer(
            model_buffer=tf.constant(model)
        )

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """Implements `Normalizer`."""
        return self._normalizer.normalize(strings)

    def characters(self, strings: tf.Tensor) -> Characters:
        """Implements `Normalizer`."""
        normal, offsets = self._normalizer.normalize_with_offsets(strings)
        characters = _decoded(normal)
        string = string_of(characters.splits)
        begin = tf.gather(offsets.row_splits, string)
        lasts = tf.gather(offsets.values, begin + characters.ends - 1)
        return characters._replace(
            starts=tf.gather(offsets.values, begin + characters.starts),
            ends=ends_of(strings, string, lasts),
        )


class Replaced:
    """Replacement of text that matches an expression."""

    def __init__(self, pattern: str, content: str):
        """Takes an expression of RE2, and the text of a replacement."""
        self._pattern, self._content = pattern, content

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """Implements `Normalizer`."""
        content = self._content.replace('\\', r'\\')
        return tf.strings.regex_replace(strings, self._pattern, content)

    def characters(self, strings: tf.Tensor) -> Characters:
        """Implements `Normalizer`; a replacement has the bytes of the last
        character of a match.
        """
        edged = tf.strings.regex_replace(
            strings, f'({self._pattern})', _EDGE + rb'\1' + _EDGE
        )
        spans = tf.strings.split(edged, _EDGE)  # [S]: text and match in turn
        string = string_of(spans.row_splits)
        place = tf.range(tf.size(string, tf.int64))
        match = (place - tf.gather(spans.row_splits, string)) % 2 == 1
        lengths = tf.cast(tf.strings.length(spans.values), tf.int64)
        begins = tf.cumsum(lengths, exclusive=True)
        begins -= tf.gather(begins, tf.gather(spans.row_splits, string))
        codes, splits, starts, ends = _decoded(
            tf.where(match, self._content, spans.values)
        )
        lasts = _decoded(spans.values)
        width = tf.gather(
            tf.pad(lasts.ends - lasts.starts, [[1, 0]]), lasts.splits[1:]
        )
        span = string_of(splits)
        of_match = tf.gather(match, span)
        begin = tf.gather(begins, span)
        end = tf.gather(begins + lengths, span)
        return Characters(
            codes,
            tf.gather(splits, spans.row_splits),
            tf.where(of_match, end - tf.gather(width, span), begin + starts),
            tf.where(of_match, end, begin + ends),
        )


class Chained:
    """Several normalizers, one after the other."""

    def __init__(self, steps: Sequence[Normalizer]):
        """Takes two normalizers or more."""
        self._steps = steps

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """Implements `Normalizer`."""
        for step in self._steps:
            strings = step(strings)
        return strings

    def characters(self, strings: tf.Tensor) -> Characters:
        """Implements `Normalizer`."""
        first, *others = self._steps
        characters, strings = first.characters(strings), first(strings)
        for step in others:
            after = step.characters(strings)
            starts, ends = traced(
                characters, string_of(after.splits), after.starts, after.ends
            )
            characters = after._replace(starts=starts, ends=ends)
            strings = step(strings)
        return characters


def traced(
    characters: Characters,
    string: tf.Tensor,
    starts: tf.Tensor,
    ends: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Maps bytes of normalised strings to bytes before normalisation.

    Args:
        characters: those of the normalised strings.
        string: [n] int64: the number of each one's string.
        starts, ends: [n] int64: first bytes, and those after the last.
    """
    # Bytes before each character; padded, since there may be none.
    before = tf.cumsum(tf.pad(utf8_widths(characters.codes), [[1, 0]]))
    origin = tf.gather(tf.gather(before, characters.splits), string)
    at, until = (
        tf.searchsorted(before, origin + x, 'right', tf.int64) - 1
        for x in (starts, ends - 1)
    )
    first, last = (
        tf.pad(x, [[0, 1]]) for x in (characters.starts, characters.ends)
    )
    start, end = tf.gather(first, at), tf.gather(last, tf.maximum(until, 0))
    # What is empty begins where the character before it ends.
    empty = tf.where(starts > 0, end, 0)
    filled = ends > starts
    return tf.where(filled, start, empty), tf.where(filled, end, empty)


def steps_of(part: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Lists the steps of a part of a tokenizer.json, a sequence or one."""
    if part is None:
        return []
    for name in 'normalizers', 'pretokenizers', 'processors':
        if name in part:
            return [x for step in part[name] for x in steps_of(step)]
    return [part]


def normalizer_of(steps: Sequence[Mapping[str, Any]], where: str) -> Normalizer:
    """Makes a normalizer of steps as in tokenizer.json.

    Raises:
        UnsupportedTokenizer: a step that cannot be kept.
    """
    parts: list[Normalizer] = []
    kinds = [step['type'] for step in steps]
    decomposes = 'StripAccents' in kinds

    def by_character(step: Mapping[str, Any]) -> bool:
        known = *_BY_CHARACTER, *(_DECOMPOSED if decomposes else ())
        return step['type'] in known

    for alone, group in itertools.groupby(steps, by_character):
        if alone:
            text = json.dumps(list(group))
            with tf.init_scope():
                parts.append(Mapped(normalization.steps_model(text)))
            continue
        for step in group:
            pattern = step.get('pattern', {}).get('String')
            if step['type'] in _FORMS:
                parts.append(Composed(step['type']))
            elif step['type'] == 'Replace' and pattern:
                parts.append(Replaced(quoted(pattern), step['content']))
            else:
                raise UnsupportedTokenizer(
                    'unknown_normalizer',
                    f'{where} normalises by {json.dumps(step)}; known are '
                    f'{", ".join((*_FORMS, *_BY_CHARACTER))}, and Replace of a '
                    'text',
                )
    if not parts:
        return AsWritten()
    return parts[0] if len(parts) == 1 else Chained(parts)


def quoted(text: str) -> str:
    """Returns an expression of RE2 that matches a text."""
    return ''.join(
        c if c.isalnum() or ord(c) > 127 else rf'\x{ord(c):02x}' for c in text
    )


def characters_of(
    normalizer: Normalizer, strings: tf.Tensor, with_offsets: bool
) -> Characters:
    """Normalises strings [B]; without offsets `starts`, `ends` are empty."""
    if with_offsets:
        return normalizer.characters(strings)
    codes = tf.strings.unicode_decode(normalizer(strings), 'UTF-8')
    splits = codes.row_splits
    return Characters(codes.values, splits, splits[:0], splits[:0])


def utf8_widths(codes: tf.Tensor) -> tf.Tensor:
    """Returns the bytes of each character in UTF-8, [C] int64."""
    return 1 + sum(
        tf.cast(codes >= least, tf.int64) for least in (0x80, 0x800, 0x10000)
    )


# Bytes up to the end of a character, by the byte that
# `FastBertNormalizer.normalize_with_offsets` points at: the last one of a
# character that stays as it is, the first one of a character that changes.
_WIDTHS = np.array([1] * 0xC0 + [2] * 0x20 + [3] * 0x10 + [4] * 0x10)


def ends_of(
    strings: tf.Tensor, string: tf.Tensor, lasts: tf.Tensor
) -> tf.Tensor:
    """Returns the bytes after characters or tokens, [n] int64.

    Args:
        strings: [B], before normalisation.
        string: [n]: the number of each one's string.
        lasts: [n] int64: the offset that `FastBertNormalizer` has for the last
            normalised byte.
    """
    lengths = tf.cast(tf.strings.length(strings, unit='BYTE'), tf.int64)
    joined = tf.strings.reduce_join(strings)
    text = tf.cast(tf.io.decode_raw(joined, tf.uint8), tf.int32)
    place = tf.gather(tf.cumsum(lengths, exclusive=True), string) + lasts
    ends = lasts + tf.gather(_WIDTHS, tf.gather(text, place))
    return tf.minimum(ends, tf.gather(lengths, string))  # if it is no UTF-8


def _decoded(strings: tf.Tensor) -> Characters:
    codes, starts = tf.strings.unicode_decode_with_offsets(strings, 'UTF-8')
    lengths = tf.cast(tf.strings.length(strings, unit='BYTE'), tf.int64)
    splits = codes.row_splits
    # A string's last character ends with it.
    following = tf.concat([starts.values[1:], [0]], 0)
    filled = splits[1:] > splits[:-1]
    ends = tf.tensor_scatter_nd_update(
        following[: tf.size(starts.values)],
        tf.boolean_mask(splits[1:] - 1, filled)[:, None],
        tf.boolean_mask(lengths, filled),
    )
    return Characters(codes.values, splits, starts.values, ends)
