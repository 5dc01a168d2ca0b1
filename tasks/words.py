r"""Words: are near vectors near in meaning, and do differences carry over?

    python -m tasks.words --init=runs/skip_gram --data_dir=words \
        --workdir=runs/skip_gram/words

Each *.txt of a folder is a test. Pairs with people's scores, tab-separated and
the score last (WS-353, Finkelstein et al. 2002; SimLex-999, Hill et al. 2015),
are measured by Spearman's rank correlation (x 100) of cosines. Questions, "a b
c d" below lines ": section", are answered by the word nearest to b - a + c
among all but these three (3CosAdd; Mikolov et al. 2013). A pair or question
with a word that has no vector is left out, and counted. A word that is not
there as it is written is looked up in lower case.

Glossary of shapes: V words, D width, Q questions.
"""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from infoword_tf import commands
from infoword_tf.inference import wordvectors
from infoword_tf.inference.wordvectors import WordVectors
from tasks import measures

# Imported, they stand beside the trainer's, which have the same names.
FLAGS = flags.FLAGS if __name__ == '__main__' else flags.FlagValues()

INIT = flags.DEFINE_string(
    'init', None, 'The workdir of a finished run, or a converted one.',
    flag_values=FLAGS)
VECTORS = flags.DEFINE_string(
    'vectors', None, "A file in word2vec's text format instead.",
    flag_values=FLAGS)
DATA_DIR = flags.DEFINE_string(
    'data_dir', None, 'A folder of tests, *.txt.', flag_values=FLAGS)
WORD2VEC = flags.DEFINE_string(
    'word2vec', None, "Where to write the vectors, in word2vec's text format.",
    flag_values=FLAGS)
WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Where metrics.json goes.', flag_values=FLAGS)

AT_ONCE = 256  # questions


class Test(NamedTuple):
    """A file of words.

    Attributes:
        name: of the file, without its ending.
        words: n of 2 or 4.
        scores: n, of pairs; None: these are questions.
        sections: n, of questions.
    """

    name: str
    words: list[list[str]]
    scores: list[float] | None
    sections: list[str]


def read(path: pathlib.Path) -> Test:
    """Reads a test of either kind.

    Raises:
        ValueError: a line is neither; there is no line.
    """
    words, scores, sections, section = [], [], [], ''
    lines = path.read_text(encoding='utf-8').splitlines()
    questions = bool(lines) and lines[0].startswith(':')
    for number, line in enumerate(lines, 1):
        if questions and line.startswith(':'):
            section = line[1:].strip()
            continue
        cells = line.split() if questions else line.strip().split('\t')
        if not cells or cells == ['']:
            continue
        try:
            if not questions:
                scores.append(float(cells.pop()))
            if len(cells) != (4 if questions else 2):
                raise ValueError
        except ValueError:
            what = 'four words' if questions else 'two words and a score'
            raise ValueError(
                f'{path}, line {number}: no {what} in {line[:60]!r}'
            ) from None
        words.append(cells)
        sections.append(section)
    if not words:
        raise ValueError(f'{path} has neither pairs nor questions')
    return Test(path.stem, words, None if questions else scores, sections)


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
    found = np.empty(len(questions), int)
    for i in range(0, len(questions), AT_ONCE):
        some = questions[i : i + AT_ONCE]
        a, b, c = (units[some[:, j]] for j in range(3))
        scores = (b - a + c) @ units.T
        np.put_along_axis(scores, some, -np.inf, axis=1)
        found[i : i + AT_ONCE] = scores.argmax(axis=1)
    return found


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
        raise commands.UsageError(
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


def vectors_of(tests: list[Test]) -> WordVectors:
    """Those of --vectors, or of a workdir: of pieces, of the tests' words."""
    if VECTORS.value:
        return wordvectors.read(VECTORS.value)
    import infoword_tf

    loaded = infoword_tf.load(INIT.value)
    if loaded.tokenizer.kind == 'words':
        return loaded.word_vectors()
    words = (word for test in tests for some in test.words for word in some)
    return loaded.word_vectors(list(dict.fromkeys(words)))


def run() -> dict[str, Any]:
    """The whole command.

    Raises:
        UsageError: neither or both of --init and --vectors; no tests.
    """
    values = FLAGS.flag_values_dict()
    commands.require(
        values, data_dir='a folder of *.txt', workdir='one for metrics.json'
    )
    if bool(INIT.value) == bool(VECTORS.value):
        raise commands.UsageError('give --init or --vectors')
    workdir = commands.result_folder(WORKDIR.value)
    paths = sorted(pathlib.Path(DATA_DIR.value).glob('*.txt'))
    if not paths:
        raise commands.UsageError(
            f'--data_dir={DATA_DIR.value} holds no *.txt'
        )
    tests = [read(path) for path in paths]
    vectors = vectors_of(tests)
    if WORD2VEC.value:
        vectors.write(WORD2VEC.value)
    found = {}
    for test in tests:
        found[test.name] = measure(test, vectors)
        print('\n'.join(lines_of(test.name, found[test.name])), flush=True)
    record = {
        'task': 'words',
        'weights': INIT.value or VECTORS.value,
        'words': len(vectors.words),
        'tests': found,
    }
    commands.record(workdir, record)
    return record


if __name__ == '__main__':
    commands.start(run)
