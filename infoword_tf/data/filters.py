"""Which documents of a text are kept, and for what reason others are not."""

import functools
from collections.abc import Callable
from typing import NamedTuple

from infoword_tf.commands import UsageError
from infoword_tf.data.documents import Document

REASONS = ('short', 'long', 'language', 'duplicate', 'near')  # from 1; 0: kept
DUPLICATES = ('keep', 'exact', 'near')
_CHARACTERS = 2000  # of a document that tell its language


class Filters(NamedTuple):
    """What is asked of documents.

    Attributes:
        min_words, max_words: None: any number.
        language: its code; None: any.
        duplicates: of DUPLICATES, those that earlier documents repeat are left
            out.
        similarity: from which on two documents are near.
    """

    min_words: int | None = None
    max_words: int | None = None
    language: str | None = None
    duplicates: str = 'keep'
    similarity: float = 0.8

    @property
    def are_any(self) -> bool:
        """Whether documents may be left out."""
        return self.duplicates != 'keep' or any(
            (self.min_words, self.max_words, self.language)
        )

    def reason(self, document: Document) -> int:
        """Why one is left out by itself: its number in REASONS; 0: not."""
        if self.min_words or self.max_words:
            words = document.text.count(' ') + bool(document.sentences)
            if self.min_words and words < self.min_words:
                return number_of('short')
            if self.max_words and words > self.max_words:
                return number_of('long')
        if self.language:
            if language_of(self.language)(document.text) != self.language:
                return number_of('language')
        return 0


def number_of(reason: str) -> int:
    """Of a reason, 1 at least."""
    return 1 + REASONS.index(reason)


@functools.lru_cache(1)
def language_of(wanted: str) -> Callable[[str], str]:
    """What finds the code of a text's language, where `wanted` is one.

    Raises:
        UsageError: py3langid is not installed, or does not know the language.
    """
    try:
        import py3langid
    except ImportError as error:
        raise UsageError(
            f'--language needs py3langid ({error}): pip install py3langid, or '
            'leave it out'
        ) from None
    known = sorted(code for code, _ in py3langid.rank(''))
    if wanted not in known:
        raise UsageError(
            f'--language={wanted}: py3langid knows {", ".join(known)}'
        )
    return lambda text: py3langid.classify(text[:_CHARACTERS])[0]
