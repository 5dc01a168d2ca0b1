r"""Tokens that were added to a vocabulary: found in a text before all others.

As the AddedVocabulary of `tokenizers`: at each place of a text the longest
token that begins there, from the left; first those that are found in the text
as it is written, then, in what is left, those that are found in it as it is
normalised. The tokenizer reads what lies between them, each part alone. Blanks
beside a token are a part of it where it says so (`lstrip`, `rstrip`), and one
that is a `single_word` has no letter or digit beside it.

A text without such a token goes to the tokenizer as it is.

Glossary of shapes: B strings, P parts of all strings together, N tokens of all
strings together, K added tokens.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import tensorflow as tf

from infoword_tf.text.normalizers import BLANK, AsWritten, Normalizer
from infoword_tf.text.tokenizer import (
    Between,
    Pieces,
    Tokenizer,
    string_of,
    with_word_starts,
)

# Around what is found, and before it: no bytes of UTF-8.
_EDGE, _MARK = b'\xff\xfe', b'\xfd'
# The characters of words, as RE2 names them.
_WORD = (
    r'[\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}'
    r'\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}]'
)


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token, and where it is found.

    Attributes:
        content: as a text spells it.
        id: its number.
        lstrip, rstrip: whether blanks before it, and after it, go with it.
        single_word: whether it is found between words alone.
        normalized: whether it is looked for once the text is normalised.
        special: whether it is no text, for others.
    """

    content: str
    id: int
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False
    special: bool = True


class _Parts(NamedTuple):
    """Strings, parted at added tokens, flat.

    Attributes:
        texts: [P] strings; '' where a token is.
        ids: [P] int32: of the token; -1 where a text is.
        starts, ends: [P] int64: bytes in the string, with the blanks that go
            with a token.
        splits: [B + 1] int64: where each string begins in them.
    """

    texts: tf.Tensor
    ids: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    splits: tf.Tensor


class _Finder(tf.Module):
    """A search for tokens in strings."""

    def __init__(self, spelled: Sequence[str], tokens: Sequence[AddedToken]):
        """Args: how a text spells each token; ValueError: they are more than
        one expression holds.
        """
        super().__init__(name='finder')
        order = sorted(range(len(spelled)), key=lambda i: -len(spelled[i]))
        every = '|'.join(_quoted(spelled[i]) for i in order)
        self._pattern = f'({every})'
        self._somewhere = rf'\C*(?:{every})\C*'
        try:
            with tf.init_scope():
                self.somewhere(tf.constant(['']))
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(
                f'{len(tokens)} added tokens are more than a regular '
                'expression holds'
            ) from error
        keys = [_MARK + text.encode() for text in spelled]
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(keys, tf.string),
                tf.constant(range(len(keys)), tf.int64),
            ),
            len(keys),
        )
        # Of a text, which is the last of each list.
        self._ids = [*(token.id for token in tokens), -1]
        self._left, self._right, self._single = (
            np.array([*(getattr(t, name) for t in tokens), False])
            for name in ('lstrip', 'rstrip', 'single_word')
        )

    def somewhere(self, strings: tf.Tensor) -> tf.Tensor:
        """Tells whether one of the strings [B] has a token, bool."""
        return tf.reduce_any(
            tf.strings.regex_full_match(strings, self._somewhere)
        )

    def __call__(self, strings: tf.Tensor) -> _Parts:
        """Splits strings [B] at the tokens."""
        marked = tf.strings.regex_replace(
            strings, self._pattern, _EDGE + _MARK + rb'\1' + _EDGE
        )
        if self._single.any():
            marked = self._of_words(marked)
        parts = tf.strings.split(marked, _EDGE)
        flat, number = parts.values, self._table.lookup(parts.values)
        none = len(self._ids) - 1
        found = number < none
        lengths = _sizes(flat) - tf.cast(found, tf.int64)
        texts = tf.where(found, '', flat)
        ends = tf.cumsum(lengths)
        row = string_of(parts.row_splits)
        begins = tf.gather(tf.pad(ends, [[1, 0]]), parts.row_splits[:-1])
        ends -= tf.gather(begins, row)
        starts = ends - lengths
        before = tf.concat([number[1:], [none]], 0)  # what follows a text
        after = tf.concat([[none], number[:-1]], 0)
        if self._left.any():
            goes = tf.gather(self._left, before)
            texts = tf.where(goes, _without(texts, f'{BLANK}+$'), texts)
        shorter = _sizes(texts)
        if self._right.any():
            goes = tf.gather(self._right, after)
            texts = tf.where(goes, _without(texts, f'^{BLANK}+'), texts)
        left = _sizes(texts)
        # Texts lose what tokens take.
        begin = tf.where(found, starts, starts + shorter - left)
        end = tf.where(found, ends, starts + shorter)
        previous = tf.concat([[0], end[:-1]], 0)
        following = tf.concat([begin[1:], [0]], 0)
        return _Parts(
            texts,
            tf.gather(tf.constant(self._ids, tf.int32), number),
            tf.where(found, previous, begin),
            tf.where(found, following, end),
            parts.row_splits,
        )

    def _of_words(self, marked: tf.Tensor) -> tf.Tensor:
        """Unmarks tokens inside words that have to be words (`single_word`)."""
        parts = tf.strings.split(marked, _EDGE)
        flat, number = parts.values, self._table.lookup(parts.values)
        found = number < len(self._ids) - 1
        spelled = tf.where(found, _without(flat, r'^\C'), flat)
        empty = tf.equal(spelled, '')
        ends = tf.strings.regex_full_match(spelled, rf'\C*{_WORD}')
        begins = tf.strings.regex_full_match(spelled, rf'{_WORD}\C*')
        # Between two tokens nothing may stand.
        row = string_of(parts.row_splits)
        ends, rows = tf.pad(ends, [[2, 0]]), tf.pad(row + 1, [[2, 0]])
        void = tf.pad(empty, [[1, 0]])[:-1] & (rows[:-2] == rows[2:])
        before = ends[1:-1] | (void & ends[:-2])
        begins, rows = tf.pad(begins, [[0, 2]]), tf.pad(row + 1, [[0, 2]])
        void = tf.pad(empty, [[0, 1]])[1:] & (rows[:-2] == rows[2:])
        after = begins[1:-1] | (void & begins[2:])
        lone = tf.gather(self._single, number)
        stays = found & ~(lone & (before | after))
        edged = tf.strings.join([_EDGE, flat, _EDGE])
        again = parts.with_values(tf.where(stays, edged, spelled))
        return tf.strings.reduce_join(again.to_tensor(''), axis=1)


class WithAdded(Tokenizer):
    """A tokenizer, and the tokens that were added to its vocabulary.

    Attributes:
        inner: the tokenizer.
        added: the tokens.
    """

    def __init__(self, inner: Tokenizer, added: Iterable[AddedToken]):
        """Args: as the attributes; ValueError: they are too many."""
        added = tuple(added)
        special = set(inner.special_ids)
        names = dict(enumerate(inner.vocabulary))
        names |= {token.id: token.content for token in added}
        super().__init__(
            [names[number] for number in range(len(inner))],
            inner.special_ids,
            # A text has them now.
            sorted(
                set(inner.control_ids)
                - {token.id for token in added if token.id not in special}
            ),
            inner.lower_case,
        )
        self._inner, self.added = inner, added
        self._normalizer: Normalizer = AsWritten()
        if any(token.normalized for token in added):
            self._normalizer = inner.normalizer or AsWritten()
        self.kind, self.file, self.trims = inner.kind, inner.file, inner.trims
        self._every = self._finders(added)
        self._own = self._finders(t for t in added if t.id not in special)

    def _finders(self, tokens: Iterable[AddedToken]) -> list[_Finder]:
        """Of tokens as they are written, and as they are normalised; None
        where there are none.
        """
        tokens = [token for token in tokens if token.content]
        written = [token for token in tokens if not token.normalized]
        normal = [token for token in tokens if token.normalized]
        spelled: list[str] = []
        if normal:
            with tf.init_scope():
                texts = self._normalizer(
                    tf.constant([token.content for token in normal])
                )
            spelled = [text.decode() for text in texts.numpy()]
        # One that normalises to nothing is found nowhere.
        pairs = [(a, b) for a, b in zip(spelled, normal, strict=True) if a]
        return [
            _Finder([t.content for t in written], written) if written else None,
            _Finder(*zip(*pairs, strict=True)) if pairs else None,
        ]

    @property
    def inner(self) -> Tokenizer:
        """As `Tokenizer.inner`."""
        return self._inner

    @classmethod
    def learn(cls, texts: Any, size: int, lower_case: bool = True) -> NoReturn:
        """Raises TypeError: added tokens are read, never learned."""
        raise TypeError('learn the tokenizer, then add tokens to it')

    @classmethod
    def read(
        cls, path: str | pathlib.Path, lower_case: bool = True, **options: Any
    ) -> NoReturn:
        """Raises TypeError: only the tokenizer without them has a file."""
        raise TypeError('read the tokenizer, then add tokens to it')

    def write(self, path: str | pathlib.Path) -> None:
        """Writes the vocabulary of the tokenizer."""
        self._inner.write(path)

    @property
    def options(self) -> dict[str, Any]:
        """Returns the tokenizer's options and the tokens, for `with_added`."""
        added = [dataclasses.asdict(token) for token in self.added]
        return {**self._inner.options, ADDED: added}

    @property
    def identity(self) -> str:
        """That of the tokenizer, and a digest of the tokens."""
        text = json.dumps(self.options[ADDED], sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        return f'{self._inner.identity}\n{ADDED} {digest}'

    @property
    def mask_text(self) -> str | None:
        """As `Tokenizer.mask_text`."""
        masks = (t.content for t in self.added if t.id == self.mask_id)
        return next(masks, None)

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """As `Tokenizer.tokenize`."""
        strings = tf.convert_to_tensor(strings, tf.string)

        def parted() -> tf.RaggedTensor:
            parts, before = self._parted(strings, self._every)
            (rows,) = self._joined(parts, self._read(parts, before, False))
            return rows

        return tf.cond(
            self._somewhere(strings, self._every),
            parted,
            lambda: self._inner.tokenize(strings),
        )

    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """As `Tokenizer.tokenize_with_offsets`; the blanks that go with a token
        are among its bytes.
        """
        return self._with_offsets(
            tf.convert_to_tensor(strings, tf.string), self._every
        )

    def tokenize_parts(
        self, parts: tf.Tensor, inside: tf.Tensor
    ) -> tf.RaggedTensor:
        """As `Tokenizer.tokenize_parts`; the tokens are text there."""
        return self._inner.tokenize_parts(parts, inside)

    def text(self, ids: Sequence[int]) -> str:
        """As `Tokenizer.text`."""
        spelled = {t.id: t.content for t in self.added if not t.special}
        runs: list[list[int]] = [[]]
        for number in ids:
            if int(number) in spelled:
                runs += [[int(number)], []]
            else:
                runs[-1].append(number)
        texts = [
            self._inner.text(run) if place % 2 == 0 else spelled[run[0]]
            for place, run in enumerate(runs)
        ]
        between = '' if self.kind == 'bytes' else ' '
        return between.join(text for text in texts if text)

    def pieces(self, strings: Sequence[bytes]) -> Pieces:
        """As `Tokenizer.pieces`: the five special tokens are text like any
        other here, since what trains takes them for the ends of texts.
        """
        texts = tf.constant(strings, tf.string)
        if not self._somewhere(texts, self._own):
            return self._inner.pieces(strings)
        rows, starts, ends = self._with_offsets(texts, self._own)
        places = np.maximum(starts.values.numpy(), ends.values.numpy() - 1)
        return with_word_starts(strings, rows, places)

    def _somewhere(self, strings: tf.Tensor, finders: list) -> tf.Tensor:
        """Tells whether a token is in one of the strings [B], bool."""
        written, normal = finders
        found = tf.constant(False)
        if written:
            found |= written.somewhere(strings)
        if normal:
            found |= normal.somewhere(self._normalizer(strings))
        return found

    def _with_offsets(
        self, strings: tf.Tensor, finders: list
    ) -> tuple[tf.RaggedTensor, ...]:
        def parted() -> tuple[tf.RaggedTensor, ...]:
            parts, before = self._parted(strings, finders)
            rows, starts, ends = self._read(parts, before, True)
            number = string_of(rows.row_splits)
            begin = tf.gather(parts.starts, number)
            first, last = begin + starts.values, begin + ends.values
            if before is not None:
                first, last = before.written(
                    tf.gather(before.number, number), first, last
                )
            rows = rows, rows.with_values(first), rows.with_values(last)
            if before is not None:
                starts, ends = before.written(
                    before.number, parts.starts, parts.ends
                )
                old = tf.gather(before.parts.ids, before.number) >= 0
                starts, ends = (
                    tf.where(old, tf.gather(a, before.number), b)
                    for a, b in (
                        (before.parts.starts, starts),
                        (before.parts.ends, ends),
                    )
                )
                parts = parts._replace(starts=starts, ends=ends)
            return self._joined(parts, rows)

        return tf.cond(
            self._somewhere(strings, finders),
            parted,
            lambda: self._inner.tokenize_with_offsets(strings),
        )

    def _parted(
        self, strings: tf.Tensor, finders: list
    ) -> tuple[_Parts, '_Before | None']:
        """The parts of strings; and where their texts are normalised, what
        those are parts of: then `starts` and `ends` count bytes of that.
        """
        written, normal = finders
        if written:
            parts = written(strings)
        else:
            size = tf.size(strings, tf.int64)
            parts = _Parts(
                strings, tf.fill([size], -1), tf.zeros([size], tf.int64),
                _sizes(strings), tf.range(size + 1),
            )  # fmt: skip
        if not normal:
            return parts, None
        found = normal(self._normalizer(parts.texts))
        number = string_of(found.splits)
        ids = tf.maximum(found.ids, tf.gather(parts.ids, number))
        splits = tf.gather(found.splits, parts.splits)
        return (
            found._replace(ids=ids, splits=splits),
            _Before(parts, number, self._normalizer),
        )

    def _read(
        self, parts: _Parts, before: '_Before | None', places: bool
    ) -> tuple[tf.RaggedTensor, ...]:
        """Tokenizes the texts between the tokens."""
        row = string_of(parts.splits)
        place = tf.range(tf.size(row, tf.int64))
        begins = ends = tf.ones_like(row, tf.bool)
        if before is not None:
            number = tf.pad(before.number, [[1, 1]], constant_values=-1)
            begins, ends = number[1:-1] > number[:-2], number[1:-1] < number[2:]
            ends |= number[2:] < 0
        return self._inner.tokenize_between(
            Between(
                parts.texts,
                place > tf.gather(parts.splits, row),
                begins,
                ends,
            ),
            places,
        )

    def _joined(
        self, parts: _Parts, rows: Iterable[tf.RaggedTensor]
    ) -> tuple[tf.RaggedTensor, ...]:
        """Pieces of texts, and the tokens between: [B, pieces] of each."""
        found = tf.cast(parts.ids >= 0, tf.int64)
        values = parts.ids, parts.starts, parts.ends
        joined = []
        for value, row in zip(values, rows, strict=False):
            token = tf.RaggedTensor.from_row_lengths(
                tf.boolean_mask(value, parts.ids >= 0), found, validate=False
            )
            every = tf.concat([tf.cast(row, value.dtype), token], 1)
            splits = tf.gather(every.row_splits, parts.splits)
            joined.append(
                tf.RaggedTensor.from_row_splits(
                    every.values, splits, validate=False
                )
            )
        return tuple(joined)


class _Before(NamedTuple):
    """Parts of texts that were normalised.

    Attributes:
        parts: as they are written.
        number: [P]: which one of them a part is of.
        normalizer: what was done to them.
    """

    parts: _Parts
    number: tf.Tensor
    normalizer: Any

    def written(
        self, number: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Maps bytes of normalised texts to those of strings, [N] int64."""
        begin = tf.gather(self.parts.starts, number)
        if isinstance(self.normalizer, AsWritten):
            return begin + starts, begin + ends
        found = self.normalizer.characters(self.parts.texts)
        widths = 1 + sum(
            tf.cast(found.codes >= least, tf.int64)
            for least in (0x80, 0x800, 0x10000)
        )
        bytes_ = tf.cumsum(tf.pad(widths, [[1, 0]]))  # before a character
        origin = tf.gather(tf.gather(bytes_, found.splits), number)
        # There may be none at all.
        first, last = (tf.pad(x, [[0, 1]]) for x in (found.starts, found.ends))
        at, until = (
            tf.searchsorted(bytes_, origin + x, 'right', tf.int64) - 1
            for x in (starts, ends - 1)
        )
        start, end = tf.gather(first, at), tf.gather(last, tf.maximum(until, 0))
        return begin + start, begin + tf.where(ends > starts, end, start)


ADDED = 'added'  # among the options of a tokenizer


def with_added(
    tokenizer: Tokenizer, added: Iterable[dict[str, Any]]
) -> Tokenizer:
    """A tokenizer that knows tokens, `AddedToken` each; itself without any."""
    tokens = [AddedToken(**token) for token in added]
    return WithAdded(tokenizer, tokens) if tokens else tokenizer


def _quoted(text: str) -> str:
    """A text as an expression of RE2 that finds it alone."""
    return ''.join(
        c if c.isalnum() or ord(c) > 127 else rf'\x{ord(c):02x}' for c in text
    )


def _sizes(strings: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.strings.length(strings), tf.int64)


def _without(strings: tf.Tensor, pattern: str) -> tf.Tensor:
    return tf.strings.regex_replace(strings, pattern, '')
