"""A vocabulary without a tokenizer: for models that take ids alone.

Some public tokenizers read text in ways that no class here has. Another program
tokenizes the texts of such models.
"""

import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Self

from infoword_tf import errors
from infoword_tf.text.tokenizer import TextTokenizer


def _refusal() -> errors.InputError:
    return errors.InputError(
        'ids_without_tokenizer',
        'the tokenizer of this model reads texts in a way that is not known '
        'here (`infoword_tf.load` of its public folder says which), so give '
        'ids to `states`, made by that tokenizer',
    )


class Numbers(TextTokenizer):
    """A vocabulary whose tokens have names and ids, but are in no text."""

    kind = 'numbers'
    file = 'pieces.json'

    def __init__(self, vocabulary: Sequence[str], specials: Sequence[int]):
        """Sets attributes of `TextTokenizer`."""
        super().__init__(vocabulary, specials, sorted(set(specials)), False)

    @classmethod
    def learn(
        cls, texts: Iterable[str], size: int, lower_case: bool = True
    ) -> Self:
        """Raises ValueError."""
        raise _refusal()

    @classmethod
    def read(
        cls, path: str | pathlib.Path, lower_case: bool = True, **options: Any
    ) -> Self:
        """Reads a file of `write`."""
        del lower_case, options
        value = json.loads(pathlib.Path(path).read_text(encoding='utf-8'))
        return cls(value['pieces'], value['specials'])

    def write(self, path: str | pathlib.Path) -> None:
        """Writes the vocabulary and the special ids as JSON."""
        value = {'pieces': self.vocabulary, 'specials': self.special_ids}
        text = json.dumps(value, ensure_ascii=False)
        pathlib.Path(path).write_text(text, encoding='utf-8')

    @property
    def identity(self) -> str:
        """The vocabulary."""
        return '\n'.join(self.vocabulary)

    def tokenize(self, strings: Any) -> NoReturn:
        """Raises ValueError."""
        raise _refusal()

    tokenize_with_offsets = tokenize_flat = tokenize
