"""Tokenizers learned from real text, each once."""

import functools
from pydoc_data import topics

from infoword_tf.text.tokenizer import TextTokenizer
from infoword_tf.text.tokenizers import TOKENIZERS

SPECIALS = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
# Of Python's manual; words are parted by single spaces.
TEXTS = [' '.join(text.split()) for text in topics.topics.values()]
# Pieces of those that can be learned; None: every word is one.
LEARNED = {
    'wordpiece': 2000,
    'sentencepiece': 2000,
    'bytes': 600,
    'words': None,
}


@functools.cache
def learned(kind: str, lower_case: bool = True) -> TextTokenizer:
    """One of LEARNED."""
    return TOKENIZERS[kind].learn(TEXTS, LEARNED[kind], lower_case)


def words_of(tokenizer: TextTokenizer, *strings: str) -> list[str]:
    """The pieces of each word, joined: word starts made readable."""
    actual = tokenizer.tokenize_flat([string.encode() for string in strings])
    words: list[list[str]] = []
    for i, start in zip(actual.ids, actual.word_starts, strict=True):
        if start:
            words.append([])
        words[-1].append(tokenizer.vocabulary[i])
    return [' '.join(word) for word in words]
