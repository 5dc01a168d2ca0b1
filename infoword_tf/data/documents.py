"""Documents, which every corpus yields, and how text becomes sentences.

Inside a sentence words are separated by single spaces (byte 0x20) and by
nothing else, so that a word of the project, whitespace-delimited text, is
found from the bytes alone.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from infoword_tf.text.layout import UNKNOWN


class Document(NamedTuple):
    """Text that belongs together.

    Attributes:
      sentences: its sentences in order, none of them empty.
      source: where it is from, for people: `package/module.py:Qualified.name`
        for a docstring, `path:line` for a text file.
      characters: how many its source has, with an end; None: as many as `text`,
        and one for an end.
    """

    sentences: tuple[str, ...]
    source: str
    characters: int | None = None

    @property
    def text(self) -> str:
        """Sentences, joined by single spaces."""
        return ' '.join(self.sentences)


_UNKNOWN = re.compile(rf'(?:(?<= )|^){UNKNOWN}(?= |$)')


def split_at_unknown(text: str) -> list[str]:
    """Splits a text at the words `<unk>`.

    No tokenizer has a token for `<unk>`: it would be spelled out, and `unk`
    learned as if it were a word. Stores hold one [UNK] for each instead.
    """
    if UNKNOWN not in text:
        return [text]
    return [between.strip() for between in _UNKNOWN.split(text)]


def passages(document: Document, words: int = 100) -> Iterator[str]:
    """Yields whole sentences together, about `words` words each."""
    passage: list[str] = []
    count = 0
    for sentence in document.sentences:
        size = len(sentence.split())
        if passage and count + size > words:
            yield ' '.join(passage)
            passage, count = [], 0
        passage.append(sentence)
        count += size
    if passage:
        yield ' '.join(passage)


# Titles, Latin and units that are followed by a capital inside a sentence.
_ABBREVIATIONS = frozenset(
    'e.g. i.e. eg. ie. etc. cf. vs. viz. al. approx. resp. incl. esp. '
    'mr. mrs. ms. dr. prof. st. jr. sr. messrs. gen. col. lt. rev. hon. '
    'dept. univ. assn. inc. ltd. co. corp. w.r.t. a.k.a. u.s. u.k. ph.d. '
    'jan. feb. apr. jun. jul. aug. sept. oct. nov. dec.'.split()
)

# These end a sentence unless a number follows: `No. 5` but `Say no. It ...`.
_BEFORE_NUMBERS = frozenset(
    'no. nos. fig. figs. eq. eqs. eqn. sec. sect. ch. chap. vol. p. pp. '
    'ref. refs. art. tab. ver. v.'.split()
)

# End punctuation, closing quotes and brackets, one space, and what may begin a
# sentence: opening quotes and brackets, then a digit or a letter that is not
# lower case (the regex knows ASCII, `_is_boundary` the other alphabets).
# Chinese and Japanese put no space there, and their marks end sentences alone.
_BOUNDARY = re.compile(
    # One class first is searched for much faster than two alternatives.
    r"""[.!?؟।॥。！？](?:(?<![。！？])[.!?؟।॥]*["'”’»)\]]*[ ]"""
    r"""(?=["'“‘«(\[]*([^\W_a-z]))"""
    r"""|(?<=[。！？])[。！？]*+[」』”’）]*+[ ]?(?=\S))"""
)
SPLITTING = 2  # version of `split_sentences`, part of keys of the cache
_INITIALS = re.compile(r'(?:[A-Z]\.)+')
_OPENING = '"\'“‘«(['


def split_sentences(text: str) -> list[str]:
    """Splits text by rule, fast and the same everywhere.

    A sentence ends at `.`, `!`, `?` or the marks of Arabic and Hindi, with
    closing quotes and brackets, when white space and a capital (or a letter of
    a script without capitals), a digit or an opening quote follow. It does not
    end after common English abbreviations, single initials or a lone ellipsis.
    In Chinese and Japanese it ends after their own marks.
    """
    text = ' '.join(text.split())
    sentences, start = [], 0
    for match in _BOUNDARY.finditer(text):
        if match[1] is None or _is_boundary(text, match, start):
            sentences.append(text[start : match.end()].rstrip())
            start = match.end()
    if start < len(text):
        sentences.append(text[start:])
    return sentences


def _is_boundary(text: str, match: re.Match[str], start: int) -> bool:
    """Tells whether a sentence that began at `start` ends at a match."""
    following = match[1]
    if following.islower():
        return False
    begin, end = match.span()
    if text[begin] != '.':
        return True
    end -= 1
    word = text[max(start, text.rfind(' ', start, end) + 1) : end]
    word = word.lstrip(_OPENING)
    # Initials, or points alone.
    if word[1:2] in '.' and (
        _INITIALS.fullmatch(word) or not word.strip('.')
    ):
        return False
    word = word.lower()
    if word in _BEFORE_NUMBERS:
        return not following.isdigit()
    return word not in _ABBREVIATIONS


def text_hash(text: str) -> int:
    """Hashes a text to 64 bits, equal on every machine."""
    # Lone surrogates have no UTF-8; a docstring may hold them as escapes.
    digest = hashlib.blake2b(text.encode('utf-8', 'replace'), digest_size=8)
    return int.from_bytes(digest.digest(), 'big')


def hash_bucket(text: str, buckets: int) -> int:
    """Returns the bucket of a text, 0 .. buckets - 1, equal on every machine.

    Corpora hold out the documents of bucket 0: a choice that depends on the
    text alone, so that it survives reordering and other documents.
    """
    return text_hash(text) % buckets
