"""Words as a vocabulary: a toy tokenizer, which needs no TensorFlow."""

import itertools
import re
import types
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from infoword_tf.views import Specials


class WordTokenizer:
    """The words of some sentences as a vocabulary: nothing is learned.

    Punctuation is a piece of its own, of the word that it touches.
    """

    def __init__(self, texts: Iterable[str]):
        """Args: the sentences."""
        special = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
        found = itertools.chain(special, *map(self._split, texts))
        self.vocabulary = list(dict.fromkeys(found))
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            range(len(special))
        )

    @property
    def specials(self) -> Specials:
        """What views need to know."""
        return Specials(
            self.cls_id,
            self.sep_id,
            self.mask_id,
            len(self),
            unk_id=self.unk_id,
        )

    def __len__(self) -> int:
        """V."""
        return len(self.vocabulary)

    @staticmethod
    def _split(text: str) -> list[str]:
        return re.findall(r'\w+|[^\w\s]', text)

    def pieces(self, strings: Sequence[bytes]) -> Any:
        """As `text.wordpiece.WordPiece.pieces`."""
        number = {word: i for i, word in enumerate(self.vocabulary)}
        ids, starts, splits = [], [], [0]
        for string in strings:
            for word in string.decode().split():
                pieces = self._split(word)
                ids += [number[piece] for piece in pieces]
                starts += [i == 0 for i in range(len(pieces))]
            splits.append(len(ids))
        return types.SimpleNamespace(
            ids=np.array(ids, np.int32),
            word_starts=np.array(starts, bool),
            row_splits=np.array(splits),
        )
