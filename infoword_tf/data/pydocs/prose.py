"""What of a docstring is English prose: its sentences, markup made plain."""

import re

from infoword_tf.data.documents import split_sentences
from infoword_tf.data.pydocs.markup import plain
from infoword_tf.data.pydocs.paragraphs import paragraphs


def prose(docstring: str) -> list[str]:
    """The sentences of English in a docstring, markup made plain.

    Keeps the summary line, the paragraphs of running text and the items of
    lists that are sentences. Leaves out code, doctests, tables, headings, and
    the descriptions of parameters in the styles of NumPy, Google and Sphinx.
    """
    sentences: list[str] = []
    for paragraph in paragraphs(docstring):
        text = ' '.join(paragraph.lines)
        sentences += _sentences(text, paragraph.is_summary)
    return sentences


_FINISHED = re.compile(r"""[ ].*[.!?]["'”’)\]]*$""")  # two words or more
_UNFINISHED_SUMMARY = re.compile(r"""[\w"'”’)\]]$""")


def _sentences(text: str, is_summary: bool) -> list[str]:
    """The sentences of a paragraph, [] where it is not English prose."""
    if not text:
        return []
    sentences = split_sentences(plain(text))
    # A paragraph that leads to code ends in a colon: what comes before that
    # sentence is prose. A summary line needs no full stop.
    while sentences and not _FINISHED.search(sentences[-1]):
        if is_summary and _UNFINISHED_SUMMARY.search(sentences[-1]):
            break
        del sentences[-1]
    min_words = 3 if is_summary else 5
    return sentences if _is_english(' '.join(sentences), min_words) else []


_NOT_LETTERS = re.compile(r'[\W\d_]+')
_FUNCTION_WORD = re.compile(
    r'\b(?:the|an?|of|to|is|in|and|for|with|that|this|it|be|are|on|by|from|as'
    r'|or|if|not|at|was|were|has|have|when|can|will|must|should)\b',
    re.I,
)
_MIN_LETTERS = 0.82  # of what is not a space; plain English has 0.95 to 0.98


def _is_english(text: str, min_words: int) -> bool:
    """Whether it is words, most of them letters, one a function word."""
    spaces = text.count(' ')
    if spaces + 1 < min_words or '\\' in text or not text.isprintable():
        return False
    letters = len(_NOT_LETTERS.sub('', text))
    return (
        letters >= _MIN_LETTERS * (len(text) - spaces)
        and _FUNCTION_WORD.search(text) is not None
    )
