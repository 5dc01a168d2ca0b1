r"""Word vectors, measured by word similarity and by analogies.

    python -m tasks.words --init=runs/skip_gram --data_dir=words \
        --workdir=runs/skip_gram/words

Each *.txt and *.tsv of a folder is a test. Pairs with people's scores, parted
by tabs (WS-353, Finkelstein et al. 2002; SimLex-999, Hill et al. 2015), are
measured by Spearman's rank correlation (x 100) of cosines: two words, and the
first column of numbers after them; a first line without a number there is a
header. Questions, "a b c d" below lines ": section", are answered by the word
nearest to b - a + c among all but these three (3CosAdd; Mikolov et al. 2013).
Lines that begin with # are no part of either. A pair or question with a word
that has no vector is left out, and counted. A word that is not there as it is
written is looked up in lower case.

Glossary of shapes: V words, D width, Q questions.
"""

import dataclasses
import math
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import commands, errors
from infoword_tf.choices import flag
from infoword_tf.data import readers
from infoword_tf.inference import wordvectors
from infoword_tf.inference.wordvectors import WordVectors
from tasks import measures

AT_ONCE = 256  # questions


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    init: str | None = flag(
        None, 'The workdir of a finished run, or a converted one.', model=True)
    vectors: str | None = flag(
        None, "A file in word2vec's text format instead.")
    data_dir: str | None = flag(None, 'A folder of tests, *.txt and *.tsv.')
    word2vec: str | None = flag(
        None, "Where to write the vectors, in word2vec's text format.")
    workdir: str | None = flag(None, 'Where metrics.json goes.')


class Test(NamedTuple):
    """A file of words.

    Attributes:
        name: of the file, without its ending.
        words: n of 2 or 4.
        scores: n, of pairs; None: these are questions.
        sections: n, of questions; '' of pairs.
    """

    name: str
    words: list[list[str]]
    scores: list[float] | None
    sections: list[str]


def read(path: pathlib.Path) -> Test:
    """Reads a test of either kind.

    Raises:
        ValueError: a line is neither, or no UTF-8; there is no line.
    """
    lines = [
        (number, line.strip())
        for number, line in enumerate(readers.lines(path), 1)
        if line.strip() and not line.startswith('#')
    ]
    questions = bool(lines) and lines[0][1].startswith(':')
    test = _questions(path, lines) if questions else _pairs(path, lines)
    if not test.words:
        raise ValueError(f'{path} has neither pairs nor questions')
    return test


def _questions(path: pathlib.Path, lines: list[tuple[int, str]]) -> Test:
    words, sections, section = [], [], ''
    for number, line in lines:
        if line.startswith(':'):
            section = line[1:].strip()
            continue
        words.append(line.split())
        sections.append(section)
        if len(words[-1]) != 4:
            raise _wrong(path, number, 'four words', line)
    return Test(path.stem, words, None, sections)


def _pairs(path: pathlib.Path, lines: list[tuple[int, str]]) -> Test:
    rows = [(number, line.split('\t')) for number, line in lines]
    # Where scores are is seen below the line that may be a header.
    cells = rows[min(1, len(rows) - 1)][1] if rows else []
    places = (i for i in range(2, len(cells)) if _number(cells[i]) is not None)
    place = next(places, 2)
    words, scores = [], []
    for number, cells in rows:
        score = _number(cells[place]) if len(cells) > place else None
        if score is not None:
            words.append(cells[:2])
            scores.append(score)
        elif number != rows[0][0] or len(cells) <= place:
            line = '\t'.join(cells)
            raise _wrong(path, number, 'two words and a score', line)
    return Test(path.stem, words, scores, [''] * len(words))


def _number(cell: str) -> float | None:
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _wrong(
    path: pathlib.Path, number: int, what: str, line: str
) -> ValueError:
    return ValueError(f'{path}, line {number}: no {what} in {line[:60]!r}')


def places(
    words: list[list[str]], index: Mapping[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Where words are: [n, 2 or 4] int, -1 for none; [n] bool, all are there.
    """
    found = np.array([
        [index.get(word, index.get(word.lower(), -1)) for word in some]
        for some in words
    ])  # fmt: skip
    return found, (found >= 0).all(axis=1)


def answers(units: np.ndarray, questions: np.ndarray) -> np.ndarray:
    """[Q]: the number of the word nearest to b - a + c, none of these three.

    Args:
        units: [V, D] of length 1.
        questions: [Q, 3] numbers of a, b and c.
    """
    answered = np.empty(len(questions), int)
    for i in range(0, len(questions), AT_ONCE):
        some = questions[i : i + AT_ONCE]
        a, b, c = (units[some[:, j]] for j in range(3))
        scores = (b - a + c) @ units.T
        np.put_along_axis(scores, some, -np.inf, axis=1)
        answered[i : i + AT_ONCE] = scores.argmax(axis=1)
    return answered


def measure(test: Test, vectors: WordVectors) -> dict[str, Any]:
    """What a test comes to, for JSON.

    Raises:
        UsageError: no line of it has all its words there.
    """
    index = {word: i for i, word in enumerate(vectors.words)}
    found, known = places(test.words, index)
    missing = {
        word
        for some, line in zip(test.words, found, strict=True)
        for word, place in zip(some, line, strict=True)
        if place < 0
    }
    if not known.any():
        raise errors.UsageError(
            f'{test.name}: no line has all its words among the '
            f'{len(vectors.words):,} that have vectors, so there is nothing '
            'to measure'
        )
    norms = np.linalg.norm(vectors.vectors, axis=1, keepdims=True)
    units = vectors.vectors / np.maximum(norms, 1e-12)
    record: dict[str, Any] = {
        'used': int(known.sum()),
        'left_out': int((~known).sum()),
        'unknown_words': len(missing),
    }
    if test.scores is not None:
        pairs = units[found[known]]
        cosines = np.einsum('nd,nd->n', pairs[:, 0], pairs[:, 1])
        scores = np.array(test.scores)[known]
        return {**measures.ranked(cosines, scores), **record}
    right = answers(units, found[known][:, :3]) == found[known][:, 3]
    of = np.array(test.sections)[known]
    return {
        'accuracy': round(float(right.mean()), 4),
        **record,
        'sections': {
            section: round(float(right[of == section].mean()), 4)
            for section in dict.fromkeys(of.tolist())
        },
    }


def lines_of(name: str, record: Mapping[str, Any]) -> list[str]:
    """A result, for people."""
    if 'spearman' in record:
        value = measures.said(record, record["used"])
    else:
        value = f'right {record["accuracy"]:.4f} of {record["used"]:,}'
    shown = [
        f'{name}: {value}; {record["left_out"]:,} left out, whose '
        f'{record["unknown_words"]:,} words have no vector'
    ]
    for section, accuracy in record.get('sections', {}).items():
        shown.append(f'  {section}: {accuracy:.4f}')
    return shown


def vectors_of(given: Choices, tests: list[Test]) -> WordVectors:
    """Those of --vectors, or of a workdir: of pieces, of the tests' words."""
    if given.vectors:
        return wordvectors.read(given.vectors)
    import infoword_tf

    loaded = infoword_tf.load(given.init)
    if loaded.tokenizer.kind == 'words':
        return loaded.word_vectors()
    words = (word for test in tests for some in test.words for word in some)
    return loaded.word_vectors(list(dict.fromkeys(words)))


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command.

    Raises:
        UsageError: neither or both of --init and --vectors; no tests.
    """
    commands.require(
        vars(given),
        data_dir='a folder of *.txt and *.tsv',
        workdir='one for metrics.json',
    )
    if bool(given.init) == bool(given.vectors):
        raise errors.UsageError('give --init or --vectors')
    workdir = commands.result_folder(given.workdir)
    folder = pathlib.Path(given.data_dir)
    paths = sorted([*folder.glob('*.txt'), *folder.glob('*.tsv')])
    if not paths:
        raise errors.UsageError(
            f'--data_dir={given.data_dir} holds no *.txt and no *.tsv'
        )
    names = [path.stem for path in paths]
    if twice := [name for name in names if names.count(name) > 1]:
        raise errors.UsageError(
            f'--data_dir={given.data_dir} holds two tests {twice[0]!r}: rename '
            'one, results go by the name without its ending'
        )
    tests = [read(path) for path in paths]
    vectors = vectors_of(given, tests)
    if given.word2vec:
        vectors.write(given.word2vec)
    results = {}
    for test in tests:
        results[test.name] = measure(test, vectors)
        print('\n'.join(lines_of(test.name, results[test.name])), flush=True)
    record = {
        'task': 'words',
        'weights': given.init or given.vectors,
        'words': len(vectors.words),
        'tests': results,
    }
    commands.record(workdir, record)
    return record


if __name__ == '__main__':
    commands.start(run)
