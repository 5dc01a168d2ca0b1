"""WordPiece: BERT's tokenizer (Devlin et al. 2019) over a vocabulary.

`FastBertTokenizer` normalises, splits and looks up in one pass and maps its
offsets to the original bytes, which `BertTokenizer` does not.

Glossary of shapes: B strings, N pieces of all strings together.
"""

import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, Self

import tensorflow as tf
import tensorflow_text as tf_text

from infoword_tf.text import vocabulary as vocabularies
from infoword_tf.text.tokenizer import Pieces, Tokenizer, with_word_starts


class WordPiece(Tokenizer):
    """A word is the longest pieces from its left; `##` goes on with one."""

    kind = 'wordpiece'
    file = 'vocab.txt'

    def __init__(self, vocabulary: Sequence[str], lower_case: bool = True):
        """Builds the tokenizer.

        Args:
            vocabulary: pieces in the order of their ids.
            lower_case: fold case and strip accents.

        Raises:
            ValueError: as `vocabulary.check`.
        """
        vocabulary = vocabularies.check(vocabulary, 'the tokenizer')
        index = {piece: i for i, piece in enumerate(vocabulary)}
        special = [index[piece] for piece in vocabularies.SPECIALS]
        unknown = index[vocabularies.UNK]
        super().__init__(
            vocabulary,
            special,
            sorted(i for i in special if i != unknown),
            lower_case,
        )
        self._tokenizer = tf_text.FastBertTokenizer(
            vocab=vocabulary,
            unknown_token=vocabularies.UNK,
            token_out_type=tf.int32,
            lower_case_nfd_strip_accents=lower_case,
        )

    @classmethod
    def learn(
        cls, texts: Iterable[str], size: int, lower_case: bool = True
    ) -> Self:
        """As `Tokenizer.learn`."""
        return cls(vocabularies.learn(texts, size, lower_case), lower_case)

    @classmethod
    def read(
        cls,
        path: str | pathlib.Path,
        lower_case: bool = True,
        **options: Any,
    ) -> Self:
        """As `Tokenizer.read`, a `vocab.txt`."""
        return cls(vocabularies.read(path), lower_case, **options)

    def write(self, path: str | pathlib.Path) -> None:
        """Writes a `vocab.txt`."""
        vocabularies.write(path, self.vocabulary)

    @property
    def identity(self) -> str:
        """The pieces."""
        return '\n'.join(self.vocabulary)

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """As `Tokenizer.tokenize`."""
        return self._tokenizer.tokenize(strings)

    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """As `Tokenizer.tokenize_with_offsets`."""
        return self._tokenizer.tokenize_with_offsets(strings)

    def pieces(self, strings: Sequence[bytes]) -> Pieces:
        """As `Tokenizer.pieces`."""
        tokens, starts, _ = self.tokenize_with_offsets(
            tf.constant(strings, tf.string)
        )
        return with_word_starts(strings, tokens, starts.flat_values.numpy())
