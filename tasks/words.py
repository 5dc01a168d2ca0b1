r"""Word vectors: word similarity and analogies.

    python -m tasks.words --init=runs/skip_gram --data_dir=words \
        --workdir=runs/skip_gram/words

Each *.txt and *.tsv of a folder is a test, of one of two kinds:

* pairs of words with people's scores, separated by tabs (WS-353, Finkelstein et
  al. 2002; SimLex-999, Hill et al. 2015), measured by Spearman's rank
  correlation (x 100) of cosines. The score is the first column of numbers after
  the two words; a first line without a number there is a header;
* questions "a b c d" below lines ": section", answered by the word nearest to
  b - a + c except these three (3CosAdd; Mikolov et al. 2013).

Lines that begin with # are comments. A word without a vector is looked up in
lower case; a pair or question with a word that has none is left out, and
counted.

Glossary of shapes: W words, Q questions.
"""

import dataclasses
import math
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import commands, errors
from infoword_tf.choices import again, flag
from infoword_tf.data import readers
from infoword_tf.evaluation import measures
from infoword_tf.inference import wordvectors
from infoword_tf.inference.wordvectors import WordVectors

from .retrieval import VectorChoices

AT_ONCE = 256  # questions


@dataclasses.dataclass(frozen=True)
class WordsChoices:
    """Choices of the command."""

    init: str = again(VectorChoices, 'init', '')
    vectors: str | None = flag(
        None, "A file in word2vec's text format instead.")
    data_dir: str = flag('', 'A folder of tests, *.txt and *.tsv.')
    word2vec: str | None = flag(
        None, "Where to write the vectors, in word2vec's text format.")
    workdir: str = again(VectorChoices, 'workdir', '')


class Test(NamedTuple):
    """A file of words.

    Attributes:
        name: name of the file, without its ending.
        words: n of 2 or 4.
        scores: n, of pairs; None of questions.
        sections: n, of questions; '' of pairs.
    """

    name: str
    words: list[list[str]]
    scores: list[float] | None
    sections: list[str]


def read(path: pathlib.Path) -> Test:
    """Reads a test of either kind.

    Raises:
        ValueError: a line is malformed or no UTF-8, or all lines are blank.
    """
    lines = [
        (number, line.strip())
        for number, line in enumerate(readers.lines(path), 1)
        if line.strip() and not line.startswith('#')
    ]
    questions = bool(lines) and lines[0][1].startswith(':')
    test = _questions(path, lines) if questions else _pairs(path, lines)
    if not test.words:
        raise errors.InputError(
            'words_nothing_to_read', f'{path} has neither pairs nor questions'
        )
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
    # The second line tells the column, since the first may be a header.
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
) -> errors.InputError:
    return errors.InputError(
        'words_bad_line', f'{path}, line {number}: no {what} in {line[:60]!r}'
    )


def look_up(
    words: list[list[str]], index: Mapping[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Looks words up: [n, 2 or 4] int, -1 if unknown; [n] bool, all known."""
    numbers = np.array([
        [index.get(word, index.get(word.lower(), -1)) for word in line]
        for line in words
    ])  # fmt: skip
    return numbers, np.all(numbers >= 0, axis=1)


def answers(units: np.ndarray, questions: np.ndarray) -> np.ndarray:
    """Finds the words nearest to b - a + c, except a, b and c: [Q] numbers.

    Args:
        units: [W, D] of length 1.
        questions: [Q, 3] numbers of a, b and c.
    """
    numbers = np.empty(len(questions), int)
    for i in range(0, len(questions), AT_ONCE):
        batch = questions[i : i + AT_ONCE]
        a, b, c = (units[batch[:, j]] for j in range(3))
        scores = (b - a + c) @ units.T
        np.put_along_axis(scores, batch, -np.inf, axis=1)
        numbers[i : i + AT_ONCE] = scores.argmax(axis=1)
    return numbers


def measure(test: Test, vectors: WordVectors) -> dict[str, Any]:
    """Measures word vectors by a test, for JSON.

    Raises:
        UsageError: no line whose words all have vectors.
    """
    index = {word: i for i, word in enumerate(vectors.words)}
    numbers, known = look_up(test.words, index)
    missing = {
        word
        for words, line in zip(test.words, numbers, strict=True)
        for word, number in zip(words, line, strict=True)
        if number < 0
    }
    if not known.any():
        raise errors.UsageError(
            'words_all_unknown',
            f'{test.name}: no line has all its words among the '
            f'{len(vectors.words):,} that have vectors, so there is nothing '
            'to measure',
        )
    norms = np.linalg.norm(vectors.vectors, axis=1, keepdims=True)
    units = vectors.vectors / np.maximum(norms, 1e-12)
    record: dict[str, Any] = {
        'used': int(known.sum()),
        'left_out': int((~known).sum()),
        'unknown_words': len(missing),
    }
    if test.scores is not None:
        pairs = units[numbers[known]]
        cosines = np.einsum('nd,nd->n', pairs[:, 0], pairs[:, 1])
        scores = np.array(test.scores)[known]
        return {**measures.ranked(cosines, scores), **record}
    right = answers(units, numbers[known][:, :3]) == numbers[known][:, 3]
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
    """Formats a result for people."""
    if 'spearman' in record:
        value = measures.described(record, record['used'])
    else:
        value = f'right {record["accuracy"]:.4f} of {record["used"]:,}'
    lines = [
        f'{name}: {value}; {record["left_out"]:,} left out, whose '
        f'{record["unknown_words"]:,} words have no vector'
    ]
    for section, accuracy in record.get('sections', {}).items():
        lines.append(f'  {section}: {accuracy:.4f}')
    return lines


def vectors_of(choices: WordsChoices, tests: list[Test]) -> WordVectors:
    """Reads --vectors, or makes vectors of words with --init.

    A model with sub-word tokens embeds the words of the tests alone.
    """
    if choices.vectors:
        return wordvectors.read(choices.vectors)
    import infoword_tf

    loaded = infoword_tf.load(choices.init)
    if loaded.tokenizer.kind == 'words':
        return loaded.word_vectors()
    words = (word for test in tests for line in test.words for word in line)
    return loaded.word_vectors(list(dict.fromkeys(words)))


@commands.takes(WordsChoices)
def run(choices: WordsChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Measures word vectors by all tests of a folder; returns metrics.json.

    Raises:
        UsageError: neither or both of --init and --vectors; no tests.
    """
    commands.require(
        vars(choices),
        data_dir='a folder of *.txt and *.tsv',
        workdir='one for metrics.json',
    )
    if bool(choices.init) == bool(choices.vectors):
        raise errors.UsageError('init_or_vectors', 'give --init or --vectors')
    workdir = commands.result_folder(choices.workdir)
    folder = pathlib.Path(choices.data_dir)
    paths = sorted([*folder.glob('*.txt'), *folder.glob('*.tsv')])
    if not paths:
        raise errors.UsageError(
            'words_no_files',
            f'--data_dir={choices.data_dir} holds no *.txt and no *.tsv',
        )
    names = [path.stem for path in paths]
    if twice := [name for name in names if names.count(name) > 1]:
        raise errors.UsageError(
            'words_test_twice',
            f'--data_dir={choices.data_dir} holds two tests {twice[0]!r}: '
            'rename one, results go by the name without its ending',
        )
    tests = [read(path) for path in paths]
    vectors = vectors_of(choices, tests)
    if choices.word2vec:
        vectors.write(choices.word2vec)
    results = {}
    for test in tests:
        results[test.name] = measure(test, vectors)
        print('\n'.join(lines_of(test.name, results[test.name])), flush=True)
    record = {
        'task': 'words',
        'weights': choices.init or choices.vectors,
        'words': len(vectors.words),
        'tests': results,
    }
    commands.record(workdir, record)
    return record


if __name__ == '__main__':
    commands.start(run)
