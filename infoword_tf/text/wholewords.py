"""Whole words: what white space delimits, as published perplexities count.

Nothing is split and nothing normalised. A word that the vocabulary lacks is
[UNK], and so is `<unk>`, which public corpora write for one.

Glossary of shapes: B strings, N words of all strings together.
"""

import collections
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from infoword_tf.text import vocabulary as vocabularies
from infoword_tf.text.tokenizer import Pieces, Tokenizer

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


class WholeWords(Tokenizer):
    """The words of a text, the commonest first; a piece is a word."""

    kind = 'words'
    file = 'words.txt'
    as_written = unbounded = True

    def __init__(self, vocabulary: Sequence[str], lower_case: bool = False):
        """Args: words in the order of their ids, as of `vocabulary.check`;
        whether case is folded (accents stay).
        """
        vocabulary = vocabularies.check(vocabulary, 'the tokenizer')
        specials = vocabularies.special_ids(vocabulary)
        super().__init__(vocabulary, *specials, lower_case)
        # No text spells a special piece.
        index = {word: i for i, word in enumerate(vocabulary)}
        for piece in vocabularies.SPECIALS:
            del index[piece]
        self._ids = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(list(index), tf.string),
                tf.constant(list(index.values()), tf.int32),
            ),
            self.unk_id,
        )
        self._splitter = tf_text.WhitespaceTokenizer()

    @classmethod
    def learn(
        cls,
        texts: Iterable[str],
        size: int | None = None,
        lower_case: bool = False,
    ) -> Self:
        """As `Tokenizer.learn`, from all texts; `size` None: every word."""
        return cls(learn(texts, size, lower_case), lower_case)

    @classmethod
    def read(
        cls, path: str | pathlib.Path, lower_case: bool = False, **options: Any
    ) -> Self:
        """As `Tokenizer.read`, a file of one word a line."""
        return cls(vocabularies.read(path), lower_case)

    def write(self, path: str | pathlib.Path) -> None:
        """Writes one word a line."""
        vocabularies.write(path, self.vocabulary)

    @property
    def identity(self) -> str:
        """The words, told apart from pieces that are spelled alike."""
        return '\n'.join([self.kind, *self.vocabulary])

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """As `Tokenizer.tokenize`."""
        return self._looked_up(self._splitter.tokenize(_spaced(strings)))

    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """As `Tokenizer.tokenize_with_offsets`."""
        words, starts, ends = self._splitter.tokenize_with_offsets(
            _spaced(strings)
        )
        return self._looked_up(words), starts, ends

    def pieces(self, strings: Sequence[bytes]) -> Pieces:
        """As `Tokenizer.pieces`; every piece is a word."""
        found = self.tokenize(tf.constant(strings, tf.string))
        ids = found.flat_values.numpy()
        return Pieces(ids, np.ones(len(ids), bool), found.row_splits.numpy())

    def _looked_up(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        flat = words.flat_values
        if self.lower_case:
            flat = _lower(flat)
        return words.with_flat_values(self._ids.lookup(flat))


def _spaced(strings: tf.Tensor) -> tf.Tensor:
    """As many spaces as bytes for the white space of `str.split`: of a longer
    character `WhitespaceTokenizer` leaves bytes in the word before it.
    """
    for characters, spaces in _WHITE:
        strings = tf.strings.regex_replace(strings, characters, spaces)
    return strings


def _lower(words: tf.Tensor) -> tf.Tensor:
    return tf.strings.lower(words, 'utf-8')


def learn(
    texts: Iterable[str], size: int | None = None, lower_case: bool = False
) -> list[str]:
    """Counts the words of all texts: specials, then the commonest, those of one
    count by their characters; at most `size`.
    """
    specials = vocabularies.SPECIALS
    if size is not None and size <= len(specials):
        raise ValueError(
            f'--vocab_size={size} has no room beside the {len(specials)} '
            'special pieces; without it every word is learned'
        )
    written: collections.Counter[str] = collections.Counter()
    for text in texts:
        written.update(text.split())
    words = list(written)
    if lower_case and words:
        words = [word.decode() for word in _lower(words).numpy()]
    counts: collections.Counter[str] = collections.Counter()
    for word, count in zip(words, written.values(), strict=True):
        counts[word] += count
    for word in (*specials, vocabularies.UNKNOWN):
        counts.pop(word, None)
    if not counts:
        raise ValueError(vocabularies.NO_TEXT)
    known = sorted(counts, key=lambda word: (-counts[word], word))
    max_pieces = None if size is None else size - len(specials)
    return [*specials, *known[:max_pieces]]
