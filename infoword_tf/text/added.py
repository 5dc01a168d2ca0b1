r"""Tokens that were added to a vocabulary, found in texts before all others.

As the AddedVocabulary of `tokenizers` finds them: from the left, at each place
the longest token that begins there; first the tokens of text as written, then,
in the rest, those of normalised text. Blanks beside a token belong to it if it
has `lstrip` or `rstrip`; a `single_word` has no letter or digit beside it. What
lies between added tokens is tokenized by itself, and a text without them as a
whole.

Glossary of shapes: S spans of all strings together (an added token, or the text
between two), n tokens of all strings together.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from infoword_tf import errors
from infoword_tf.text.normalizers import (
    BLANK,
    AsWritten,
    Normalizer,
    quoted,
    traced,
)
from infoword_tf.text.tokenizer import (
    FlatTokens,
    PlainTexts,
    TextTokenizer,
    lookup_table,
    ragged,
    string_of,
    with_word_starts,
)

# Written around added tokens, and before them: no bytes of UTF-8.
_EDGE, _MARK = b'\xff\xfd\xfe\xfc', b'\xfd'
# The characters of words, as RE2 names them.
_WORD = (
    r'[\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}'
    r'\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}]'
)


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """An added token, as in tokenizer.json.

    Attributes:
        content: the spelling in texts.
        id: number of the token.
        lstrip, rstrip: whether blanks before, and after, belong to the token.
        single_word: whether letters and digits beside the token hide it.
        normalized: whether the token is sought in normalised text.
        special: whether `detokenize` leaves the token out.
    """

    content: str
    id: int
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False
    special: bool = True


class _Spans(NamedTuple):
    """Strings split at added tokens.

    Attributes:
        texts: [S] strings; '' of an added token.
        ids: [S] int32 of added tokens; -1 of text.
        starts, ends: [S] int64: bytes in the string, with the blanks that
            belong to a token.
        splits: [B + 1] int64: where each string begins.
    """

    texts: tf.Tensor
    ids: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    splits: tf.Tensor


class _Finder(tf.Module):
    """A search for added tokens in strings."""

    def __init__(self, spelled: Sequence[str], tokens: Sequence[AddedToken]):
        """Compiles spellings of tokens; ValueError: too many for a regular
        expression.
        """
        super().__init__(name='finder')
        order = sorted(range(len(spelled)), key=lambda i: -len(spelled[i]))
        every = '|'.join(quoted(spelled[i]) for i in order)
        self._pattern = f'({every})'
        self._somewhere = rf'\C*(?:{every})\C*'
        try:
            with tf.init_scope():
                self.somewhere(tf.constant(['']))
        except tf.errors.InvalidArgumentError as error:
            raise errors.InputError(
                'many_added_tokens',
                f'{len(tokens)} added tokens are more than a regular '
                'expression holds',
            ) from error
        # Numbers of tokens; text has the one after the last.
        self._table = lookup_table(
            {_MARK + text.encode(): i for i, text in enumerate(spelled)},
            len(spelled),
        )
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

    def __call__(self, strings: tf.Tensor) -> _Spans:
        """Splits strings [B] at added tokens."""
        marked = tf.strings.regex_replace(
            strings, self._pattern, _EDGE + _MARK + rb'\1' + _EDGE
        )
        if self._single.any():
            marked = self._of_words(marked)
        spans = tf.strings.split(marked, _EDGE)
        flat, number = spans.values, self._table.lookup(spans.values)
        no_token = len(self._ids) - 1
        is_token = number < no_token
        lengths = _sizes(flat) - tf.cast(is_token, tf.int64)
        texts = tf.where(is_token, '', flat)
        ends = tf.cumsum(lengths)
        string = string_of(spans.row_splits)
        begins = tf.gather(tf.pad(ends, [[1, 0]]), spans.row_splits[:-1])
        ends -= tf.gather(begins, string)
        starts = ends - lengths
        next_token = tf.concat([number[1:], [no_token]], 0)
        previous_token = tf.concat([[no_token], number[:-1]], 0)
        if self._left.any():
            strips = tf.gather(self._left, next_token)
            texts = tf.where(strips, _without(texts, f'{BLANK}+$'), texts)
        right_stripped = _sizes(texts)
        if self._right.any():
            strips = tf.gather(self._right, previous_token)
            texts = tf.where(strips, _without(texts, f'^{BLANK}+'), texts)
        stripped = _sizes(texts)
        # Blanks that are stripped off texts belong to the tokens beside them.
        begin = tf.where(is_token, starts, starts + right_stripped - stripped)
        end = tf.where(is_token, ends, starts + right_stripped)
        previous = tf.concat([[0], end[:-1]], 0)
        following = tf.concat([begin[1:], [0]], 0)
        return _Spans(
            texts=texts,
            ids=tf.gather(tf.constant(self._ids, tf.int32), number),
            starts=tf.where(is_token, previous, begin),
            ends=tf.where(is_token, following, end),
            splits=spans.row_splits,
        )

    def _of_words(self, marked: tf.Tensor) -> tf.Tensor:
        """Removes marks of each `single_word` beside a letter or digit."""
        spans = tf.strings.split(marked, _EDGE)
        flat, number = spans.values, self._table.lookup(spans.values)
        is_token = number < len(self._ids) - 1
        spelled = tf.where(is_token, _without(flat, r'^\C'), flat)
        empty = tf.equal(spelled, '')
        ends = tf.strings.regex_full_match(spelled, rf'\C*{_WORD}')
        begins = tf.strings.regex_full_match(spelled, rf'{_WORD}\C*')
        # Over an empty span the one beyond counts, if of the same string.
        string = string_of(spans.row_splits) + 1
        ends, strings = tf.pad(ends, [[2, 0]]), tf.pad(string, [[2, 0]])
        void = tf.pad(empty, [[1, 0]])[:-1] & (strings[:-2] == strings[2:])
        before = ends[1:-1] | (void & ends[:-2])
        begins, strings = tf.pad(begins, [[0, 2]]), tf.pad(string, [[0, 2]])
        void = tf.pad(empty, [[0, 1]])[1:] & (strings[:-2] == strings[2:])
        after = begins[1:-1] | (void & begins[2:])
        single = tf.gather(self._single, number)
        stays = is_token & ~(single & (before | after))
        edged = tf.strings.join([_EDGE, flat, _EDGE])
        spans = spans.with_values(tf.where(stays, edged, spelled))
        return tf.strings.reduce_join(spans.to_tensor(''), axis=1)


class WithAdded(TextTokenizer):
    """A tokenizer with added tokens.

    Attributes:
        inner: the tokenizer without them.
        added: the tokens.
    """

    def __init__(self, inner: TextTokenizer, added: Iterable[AddedToken]):
        """Sets the attributes; ValueError: too many tokens."""
        added = tuple(added)
        special = set(inner.special_ids)
        names = dict(enumerate(inner.vocabulary))
        names |= {token.id: token.content for token in added}
        super().__init__(
            [names[number] for number in range(len(inner))],
            inner.special_ids,
            # Added tokens are in texts.
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
        self._finders = self._make_finders(added)
        self._training_finders = self._make_finders(
            token for token in added if token.id not in special
        )

    def _make_finders(
        self, tokens: Iterable[AddedToken]
    ) -> list[_Finder | None]:
        """Makes finders for texts as written, and for normalised texts; None
        without such tokens.
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
        # A token that normalises to nothing is never found.
        pairs = [(a, b) for a, b in zip(spelled, normal, strict=True) if a]
        return [
            _Finder([t.content for t in written], written) if written else None,
            _Finder(*zip(*pairs, strict=True)) if pairs else None,
        ]

    @property
    def inner(self) -> TextTokenizer:
        """The tokenizer without added tokens."""
        return self._inner

    def write(self, path: str | pathlib.Path) -> None:
        """Writes the vocabulary of the inner tokenizer."""
        self._inner.write(path)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the inner tokenizer, and the tokens for `with_added`."""
        added = [dataclasses.asdict(token) for token in self.added]
        return {**self._inner.options, ADDED: added}

    @property
    def identity(self) -> str:
        """The identity of the inner tokenizer, and a digest of the tokens."""
        text = json.dumps(self.options[ADDED], sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        return f'{self._inner.identity}\n{ADDED} {digest}'

    @property
    def mask_text(self) -> str | None:
        """The spelling of [MASK], if [MASK] is an added token."""
        masks = (t.content for t in self.added if t.id == self.mask_id)
        return next(masks, None)

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Implements `TextTokenizer.tokenize`."""
        strings = tf.convert_to_tensor(strings, tf.string)

        def split() -> tf.RaggedTensor:
            spans, before = self._split(strings, self._finders)
            return _joined(spans, self._tokenized(spans, before, False))[0]

        any_token = self._somewhere(strings, self._finders)
        return tf.cond(any_token, split, lambda: self._inner.tokenize(strings))

    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Implements `TextTokenizer.tokenize_with_offsets`; the blanks that
        belong to an added token are among its bytes.
        """
        strings = tf.convert_to_tensor(strings, tf.string)
        return self._with_offsets(strings, self._finders)

    def tokenize_between_masks(
        self, texts: tf.Tensor, inside: tf.Tensor
    ) -> tf.RaggedTensor:
        """Implements `TextTokenizer.tokenize_between_masks`; added tokens are
        text there.
        """
        return self._inner.tokenize_between_masks(texts, inside)

    def detokenize(self, ids: Sequence[int]) -> str:
        """Implements `TextTokenizer.detokenize`."""
        spelled = {t.id: t.content for t in self.added if not t.special}
        runs: list[list[int]] = [[]]
        for number in ids:
            if int(number) in spelled:
                runs += [[int(number)], []]
            else:
                runs[-1].append(number)
        texts = [
            self._inner.detokenize(run) if i % 2 == 0 else spelled[run[0]]
            for i, run in enumerate(runs)
        ]
        between = '' if self.kind in ('bytes', 'marked') else ' '
        return between.join(text for text in texts if text)

    def tokenize_flat(self, strings: Sequence[bytes]) -> FlatTokens:
        """Implements `TextTokenizer.tokenize_flat`, with the five special
        tokens as text: training would take them for the ends of texts.
        """
        texts = tf.constant(strings, tf.string)
        if not self._somewhere(texts, self._training_finders):
            return self._inner.tokenize_flat(strings)
        ids, starts, ends = self._with_offsets(texts, self._training_finders)
        lasts = np.maximum(starts.values.numpy(), ends.values.numpy() - 1)
        return with_word_starts(strings, ids, lasts)

    def _somewhere(self, strings: tf.Tensor, finders: list) -> tf.Tensor:
        """Tells whether an added token is in one of the strings [B], bool."""
        written, normal = finders
        any_token = tf.constant(False)
        if written:
            any_token |= written.somewhere(strings)
        if normal:
            any_token |= normal.somewhere(self._normalizer(strings))
        return any_token

    def _with_offsets(
        self, strings: tf.Tensor, finders: list
    ) -> tuple[tf.RaggedTensor, ...]:
        def split() -> tuple[tf.RaggedTensor, ...]:
            spans, before = self._split(strings, finders)
            ids, starts, ends = self._tokenized(spans, before, True)
            span = string_of(ids.row_splits)
            begin = tf.gather(spans.starts, span)
            first, last = begin + starts.values, begin + ends.values
            if before is not None:
                first, last = before.offsets(
                    tf.gather(before.span, span), first, last
                )
                spans = before.with_offsets(spans)
            return _joined(
                spans, (ids, ids.with_values(first), ids.with_values(last))
            )

        return tf.cond(
            self._somewhere(strings, finders),
            split,
            lambda: self._inner.tokenize_with_offsets(strings),
        )

    def _split(
        self, strings: tf.Tensor, finders: list
    ) -> tuple[_Spans, '_Normalised | None']:
        """Splits strings [B] at added tokens; with `_Normalised` the offsets
        count bytes of normalised texts.
        """
        written, normal = finders
        if written:
            spans = written(strings)
        else:
            size = tf.size(strings, tf.int64)
            spans = _Spans(
                texts=strings,
                ids=tf.fill([size], -1),
                starts=tf.zeros([size], tf.int64),
                ends=_sizes(strings),
                splits=tf.range(size + 1),
            )
        if not normal:
            return spans, None
        parts = normal(self._normalizer(spans.texts))
        span = string_of(parts.splits)
        ids = tf.maximum(parts.ids, tf.gather(spans.ids, span))
        splits = tf.gather(parts.splits, spans.splits)
        return (
            parts._replace(ids=ids, splits=splits),
            _Normalised(spans, span, self._normalizer),
        )

    def _tokenized(
        self, spans: _Spans, before: '_Normalised | None', with_offsets: bool
    ) -> tuple[tf.RaggedTensor, ...]:
        """Tokenizes the texts among spans."""
        string = string_of(spans.splits)
        place = tf.range(tf.size(string, tf.int64))
        begins = ends = tf.ones_like(string, tf.bool)
        if before is not None:
            span = tf.pad(before.span, [[1, 1]], constant_values=-1)
            begins, ends = span[1:-1] > span[:-2], span[1:-1] < span[2:]
            ends |= span[2:] < 0
        follows = place > tf.gather(spans.splits, string)
        return self._inner.tokenize_between_added(
            PlainTexts(spans.texts, follows, begins, ends), with_offsets
        )


def _joined(
    spans: _Spans, tokenized: Iterable[tf.RaggedTensor]
) -> tuple[tf.RaggedTensor, ...]:
    """Joins tokens of texts [S, tokens] and added tokens to [B, tokens]; ids,
    and perhaps starts and ends.
    """
    is_token = spans.ids >= 0
    joined = []
    for added, tokens in zip(
        (spans.ids, spans.starts, spans.ends), tokenized, strict=False
    ):
        added = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(added, is_token),
            tf.cast(is_token, tf.int64),
            validate=False,
        )
        both = tf.concat([tf.cast(tokens, added.dtype), added], 1)
        splits = tf.gather(both.row_splits, spans.splits)
        joined.append(ragged(both.values, splits))
    return tuple(joined)


class _Normalised(NamedTuple):
    """Spans of texts before normalisation, which were then split further.

    Attributes:
        spans: S' of them, as written.
        span: [S]: number among `spans` of each span after normalisation.
        normalizer: normalizer of the texts.
    """

    spans: _Spans
    span: tf.Tensor
    normalizer: Any

    def with_offsets(self, spans: _Spans) -> _Spans:
        """Returns spans with offsets in the strings."""
        starts, ends = self.offsets(self.span, spans.starts, spans.ends)
        is_token = tf.gather(self.spans.ids, self.span) >= 0
        token_starts, token_ends = (
            tf.gather(x, self.span)
            for x in (self.spans.starts, self.spans.ends)
        )
        return spans._replace(
            starts=tf.where(is_token, token_starts, starts),
            ends=tf.where(is_token, token_ends, ends),
        )

    def offsets(
        self, span: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Maps bytes of normalised texts, numbers `span` of `spans`, to bytes
        of the strings, [n] int64.
        """
        begin = tf.gather(self.spans.starts, span)
        if isinstance(self.normalizer, AsWritten):
            return begin + starts, begin + ends
        characters = self.normalizer.characters(self.spans.texts)
        start, end = traced(characters, span, starts, ends)
        return begin + start, begin + end


ADDED = 'added'  # among the options of a tokenizer


def with_added(
    tokenizer: TextTokenizer, added: Iterable[dict[str, Any]]
) -> TextTokenizer:
    """Adds `AddedToken`s to a tokenizer, which without any is returned."""
    tokens = [AddedToken(**token) for token in added]
    return WithAdded(tokenizer, tokens) if tokens else tokenizer


def with_markers(
    tokenizer: TextTokenizer, markers: Sequence[str]
) -> TextTokenizer:
    """Makes a tokenizer find tokens of the vocabulary as spelled.

    Also those that were added to be sought in normalised text.

    Raises:
        ValueError: the vocabulary has no such token.
    """
    known = {token: i for i, token in enumerate(tokenizer.vocabulary)}
    for marker in markers:
        if marker not in known:
            raise errors.InputError(
                'unknown_marker',
                f'the marker {marker!r} is no token of the vocabulary; name '
                'two of its tokens, such as unused ones',
            )
    present = tokenizer.added if isinstance(tokenizer, WithAdded) else ()
    added = [token for token in present if token.content not in markers]
    added += [AddedToken(x, known[x]) for x in markers]
    added.sort(key=lambda token: token.id)
    return WithAdded(tokenizer.inner, added)


def _sizes(strings: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.strings.length(strings), tf.int64)


def _without(strings: tf.Tensor, pattern: str) -> tf.Tensor:
    return tf.strings.regex_replace(strings, pattern, '')
