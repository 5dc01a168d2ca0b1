"""Ids alone: for encoders whose pieces no graph can make of a text.

GPT and RoBERTa join bytes by ranked merges (Sennrich et al. 2016; Radford et
al. 2019), which no operation of TensorFlow Serving does. Their encoders take
ids that other tokenizers have made.
"""

import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Self

from infoword_tf.text.tokenizer import Tokenizer

WHY = (
    'this model has the vocabulary of a byte-pair encoding, which cannot be '
    'tokenized in a graph: give ids to `states`, made by its own tokenizer'
)


class Numbers(Tokenizer):
    """A vocabulary whose pieces have names, and no way from text to them."""

    kind = 'numbers'
    file = 'pieces.json'

    def __init__(self, vocabulary: Sequence[str], specials: Sequence[int]):
        """Args: as the attributes of `Tokenizer`."""
        super().__init__(vocabulary, specials, sorted(set(specials)), False)

    @classmethod
    def learn(
        cls, texts: Iterable[str], size: int, lower_case: bool = True
    ) -> Self:
        """It cannot learn: ValueError."""
        raise ValueError(WHY)

    @classmethod
    def read(
        cls, path: str | pathlib.Path, lower_case: bool = True, **options: Any
    ) -> Self:
        """As `Tokenizer.read`, what `write` wrote."""
        del lower_case, options
        found = json.loads(pathlib.Path(path).read_text(encoding='utf-8'))
        return cls(found['pieces'], found['specials'])

    def write(self, path: str | pathlib.Path) -> None:
        """Writes pieces and specials as JSON."""
        value = {'pieces': self.vocabulary, 'specials': self.special_ids}
        text = json.dumps(value, ensure_ascii=False)
        pathlib.Path(path).write_text(text, encoding='utf-8')

    @property
    def identity(self) -> str:
        """The pieces."""
        return '\n'.join(self.vocabulary)

    def tokenize(self, strings: Any) -> NoReturn:
        """It cannot: ValueError."""
        raise ValueError(WHY)

    tokenize_with_offsets = pieces = tokenize
