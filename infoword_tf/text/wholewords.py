"""Whole words: tokens between white space, as published perplexities count.

Nothing is normalised. A word that the vocabulary lacks is [UNK], and so is
`<unk>`, which public corpora write for one.
"""

import collections
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from infoword_tf.text.layout import UNKNOWN
from infoword_tf.text.tokenizer import (
    SPECIALS,
    FlatTokens,
    TextTokenizer,
    check_vocabulary,
    lookup_table,
    no_room,
    no_text,
    read_vocabulary,
    special_ids,
    write_vocabulary,
)

# White space of one, two and three bytes.
_WHITE = (
    (r'[\x{1c}-\x{1f}]', ' '),
    (r'[\x{85}\x{a0}]', '  '),
    (
        r'[\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}'
        r'\x{3000}]',
        '   ',
    ),
)


class WholeWords(TextTokenizer):
    """A tokenizer whose tokens are words."""

    kind = 'words'
    file = 'words.txt'
    as_written = unbounded = True

    def __init__(self, vocabulary: Sequence[str], lower_case: bool = False):
        """Takes words as of `check_vocabulary`; `lower_case` keeps accents."""
        vocabulary = check_vocabulary(vocabulary, 'the tokenizer')
        specials = special_ids(vocabulary)
        super().__init__(vocabulary, *specials, lower_case)
        # No text spells a special token.
        index = {word: i for i, word in enumerate(vocabulary)}
        for token in SPECIALS:
            del index[token]
        self._ids = lookup_table(index, self.unk_id, tf.int32)
        self._splitter = tf_text.WhitespaceTokenizer()

    @classmethod
    def learn(
        cls,
        texts: Iterable[str],
        size: int | None = None,
        lower_case: bool = False,
    ) -> Self:
        """Learns from all texts; `size` None: every word."""
        return cls(learn(texts, size, lower_case), lower_case)

    @classmethod
    def read(
        cls, path: str | pathlib.Path, lower_case: bool = False, **options: Any
    ) -> Self:
        """Reads a file of one word a line."""
        return cls(read_vocabulary(path), lower_case)

    def write(self, path: str | pathlib.Path) -> None:
        """Writes one word a line."""
        write_vocabulary(path, self.vocabulary)

    @property
    def identity(self) -> str:
        """The kind, so that no WordPiece vocabulary is equal, and the words."""
        return '\n'.join([self.kind, *self.vocabulary])

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Implements `TextTokenizer.tokenize`."""
        return self._looked_up(self._splitter.tokenize(_spaced(strings)))

    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Implements `TextTokenizer.tokenize_with_offsets`."""
        words, starts, ends = self._splitter.tokenize_with_offsets(
            _spaced(strings)
        )
        return self._looked_up(words), starts, ends

    def tokenize_flat(self, strings: Sequence[bytes]) -> FlatTokens:
        """Implements `TextTokenizer.tokenize_flat`; every token is a word."""
        tokens = self.tokenize(tf.constant(strings, tf.string))
        ids, splits = tokens.flat_values.numpy(), tokens.row_splits.numpy()
        return FlatTokens(ids, np.ones(len(ids), bool), splits)

    def _looked_up(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        flat = words.flat_values
        if self.lower_case:
            flat = _lower(flat)
        return words.with_flat_values(self._ids.lookup(flat))


def _spaced(strings: tf.Tensor) -> tf.Tensor:
    """Writes the white space of `str.split` as blanks, as many as bytes:
    `WhitespaceTokenizer` takes bytes of longer white space for words.
    """
    for characters, spaces in _WHITE:
        strings = tf.strings.regex_replace(strings, characters, spaces)
    return strings


def _lower(words: tf.Tensor) -> tf.Tensor:
    return tf.strings.lower(words, 'utf-8')


def learn(
    texts: Iterable[str], size: int | None = None, lower_case: bool = False
) -> list[str]:
    """Lists specials, then words by count and spelling; at most `size`."""
    specials = SPECIALS
    if size is not None and size <= len(specials):
        raise no_room(
            size,
            f'beside the {len(specials)} special tokens; without it every '
            'word is learned',
        )
    cased: collections.Counter[str] = collections.Counter()
    for text in texts:
        cased.update(text.split())
    words = list(cased)
    if lower_case and words:
        words = [word.decode() for word in _lower(words).numpy()]
    counts: collections.Counter[str] = collections.Counter()
    for word, count in zip(words, cased.values(), strict=True):
        counts[word] += count
    for word in (*specials, UNKNOWN):
        counts.pop(word, None)
    if not counts:
        raise no_text()
    words = sorted(counts, key=lambda word: (-counts[word], word))
    return [*specials, *words][:size]
