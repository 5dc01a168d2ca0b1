"""Vectors of words, and the text format of word2vec.

The first line has the number of words and their width, each other line a word
and its numbers, between single spaces.
"""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from infoword_tf import errors, files
from infoword_tf.data import readers


class WordVectors(NamedTuple):
    """Words, and a vector of each.

    Attributes:
        words: V distinct words; of a vocabulary the commonest first.
        vectors: [V, D] float32.
    """

    words: Sequence[str]
    vectors: np.ndarray

    def write(self, path: str | pathlib.Path) -> None:
        """Writes the text format, whole or not at all.

        Numbers have nine digits, so that they are read as they were.
        """
        for word in self.words:
            if len(word.split()) != 1:
                raise errors.InputError(
                    'not_a_word',
                    f'{word!r} cannot be written as a word: it is empty or '
                    'has white space',
                )
        line = ' '.join(['%s', *['%.9g'] * self.vectors.shape[1]]) + '\n'
        path = pathlib.Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            files.written(path) as partial,
            open(partial, 'w', encoding='utf-8', newline='\n') as file,
        ):
            file.write(f'{len(self.words)} {self.vectors.shape[1]}\n')
            for word, vector in zip(self.words, self.vectors, strict=True):
                file.write(line % (word, *vector.tolist()))


def read(path: str | pathlib.Path) -> WordVectors:
    """Reads the text format; of equal words the first stays.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is malformed, or there are more or fewer than the
            first one says; the message names file and line.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f'{path}: there is no such file')
    lines = readers.lines(path)
    header = next(lines, '')
    try:
        number, width = map(int, header.split())
    except ValueError:
        number = width = -1
    # A number takes two bytes at least: a false count takes no memory.
    if min(number, width) < 0 or number * width > path.stat().st_size:
        raise errors.InputError(
            'word_vectors_header',
            f'{path}, line 1: no number of words and their width, or more of '
            f'them than the file holds, in {header[:60]!r}',
        )
    vectors = np.empty((number, width), np.float32)
    words: dict[str, int] = {}
    line = 1
    for line, text in enumerate(lines, 2):
        word, *cells = text.rstrip().split(' ')
        try:
            vector = np.array(cells, np.float32)
        except ValueError:
            vector = np.empty(0, np.float32)
        if not word or len(vector) != width:
            raise errors.InputError(
                'word_vectors_line',
                f'{path}, line {line}: no word and {width} numbers in '
                f'{text[:60]!r}',
            )
        if not np.isfinite(vector).all():
            raise errors.InputError(
                'word_vectors_not_finite',
                f'{path}, line {line}: not all numbers are finite',
            )
        if line - 1 > number:
            break
        if word not in words:
            vectors[len(words)] = vector
            words[word] = len(words)
    if line - 1 != number:
        raise errors.InputError(
            'word_vectors_count',
            f'{path}, line {line}: the first line says {number} words, '
            f'there are {"more" if line - 1 > number else line - 1}',
        )
    return WordVectors(list(words), vectors[: len(words)])
