"""WordPiece in the graph: one object for the pipeline and for the SavedModel.

`FastBertTokenizer` normalises, splits and looks up in one pass and maps its
offsets to the original bytes, which `BertTokenizer` does not.

Glossary of shapes: B strings, N pieces of all strings together.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from infoword_tf.text import vocabulary as vocabularies
from infoword_tf.views import Specials


class Pieces(NamedTuple):
    """Tokenized strings, flat.

    Attributes:
        ids: [N] int32.
        word_starts: [N] bool: the piece begins a whitespace-delimited word.
        row_splits: [B + 1] int64: where each string begins in `ids`.
    """

    ids: np.ndarray
    word_starts: np.ndarray
    row_splits: np.ndarray


class WordPiece(tf.Module):
    """BERT's tokenizer (Devlin et al. 2019) over a vocabulary."""

    kind = 'wordpiece'

    def __init__(self, vocabulary: Sequence[str], lower_case: bool = True):
        """Builds the tokenizer.

        Args:
            vocabulary: pieces in the order of their ids.
            lower_case: fold case and strip accents.

        Raises:
            ValueError: as `vocabulary.check`.
        """
        super().__init__(name='tokenizer')
        self.vocabulary = tuple(
            vocabularies.check(vocabulary, 'the tokenizer')
        )
        self.lower_case = lower_case
        index = {piece: i for i, piece in enumerate(self.vocabulary)}
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            index[piece] for piece in vocabularies.SPECIALS
        )
        self._tokenizer = tf_text.FastBertTokenizer(
            vocab=list(self.vocabulary),
            unknown_token=vocabularies.UNK,
            token_out_type=tf.int32,
            lower_case_nfd_strip_accents=lower_case,
        )

    @property
    def specials(self) -> Specials:
        """What views and objectives need to know."""
        return Specials(self.cls_id, self.sep_id, self.mask_id, len(self))

    def __len__(self) -> int:
        """V."""
        return len(self.vocabulary)

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Strings [B] -> ragged ids [B, pieces] int32, without specials."""
        return self._tokenizer.tokenize(strings)

    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """As `tokenize`, with the first byte of each piece and the one after.

        Offsets count bytes of the string that was given, not of its
        normalised form.
        """
        return self._tokenizer.tokenize_with_offsets(strings)

    def pieces(self, strings: Sequence[bytes]) -> Pieces:
        """Tokenizes strings whose words are parted by single spaces.

        Args:
            strings: B UTF-8 strings.

        Returns:
            `Pieces`. A piece starts a word if a space lies between it and the
            piece before it: punctuation stays with its word, and characters
            that normalisation deletes do not part one.
        """
        tokens, starts, _ = self.tokenize_with_offsets(
            tf.constant(strings, tf.string)
        )
        splits = tokens.row_splits.numpy()
        lengths = np.fromiter(map(len, strings), np.int64, len(strings))
        # Strings are joined by a space, so a new string is a new word too.
        text = np.frombuffer(b' '.join(strings) + b' ', np.uint8)
        begin = np.cumsum(lengths + 1) - (lengths + 1)  # [B]
        words = np.cumsum(text == ord(' '))
        place = starts.flat_values.numpy() + np.repeat(begin, np.diff(splits))
        word = words[place]  # [N]
        return Pieces(
            tokens.flat_values.numpy(),
            np.diff(word, prepend=-1) != 0,
            splits,
        )
