"""Translations: `--parallel`, texts of two languages with one meaning.

A value is `[LL-LL=]PATTERN`: `x.{de,en}` are two aligned files, a .tsv or .txt
has two columns; the same packed. Texts of the same two languages are joined,
whichever file they are from: a is of the language whose code comes first.
"""

import glob
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from infoword_tf import errors
from infoword_tf.data import bitexts, documents, readers, textfiles
from infoword_tf.data.bitexts import BitextFile, Languages
from infoword_tf.data.text_pairs import Columns, PairCorpus, fingerprint_of
from infoword_tf.languages import code_of, known_code

TRAIN, HELDOUT = '--parallel', '--heldout_parallel'
LEAST = 20  # held-out pairs of two languages, or a tenth of fewer than 200
TABLES = ('.tsv', '.txt')

_NAME = r'([A-Za-z]{2,3}(?:_\w+)?)'
_EXPLICIT = re.compile(f'{_NAME}-{_NAME}=(.+)')
_BRACES = re.compile(r'([^{}]*)\{([^{},*?[]+),([^{},*?[]+)\}([^{}]*)')
_IN_A_NAME = re.compile(
    '(?<![A-Za-z])(?=([A-Za-z]{2,3})[-_]([A-Za-z]{2,3})(?![A-Za-z]))'
)


class _Gathered:
    """Pairs of two languages, each once, and counts of pairs left out."""

    def __init__(self) -> None:
        self.pairs: dict[tuple[str, str], None] = {}
        self.empty = self.equal = self.repeated = 0

    def add(self, pair: tuple[str, str], drop_equal: bool) -> None:
        if not all(pair):
            self.empty += 1
        elif pair in self.pairs:
            self.repeated += 1
        else:
            if pair[0] == pair[1]:
                self.equal += 1
                if drop_equal:
                    return
            self.pairs[pair] = None


def check(
    patterns: Sequence[str], heldout: Sequence[str] = ()
) -> list[Languages]:
    """Returns the pairs of languages, in order; reads no whole file.

    Args:
        patterns: values of `--parallel`, `[LL-LL=]PATTERN` each.
        heldout: values of `--heldout_parallel`.

    Raises:
        ValueError: no file matches, its format or its languages are unknown,
            or held-out text is trained on, or of other languages.
    """
    return _languages(_files(patterns, TRAIN), _files(heldout, HELDOUT))


def _languages(*both: Sequence[BitextFile]) -> list[Languages]:
    """Returns the pairs of languages to train on; see `check`."""
    paths, heldout_paths = ({path.resolve() for x in files for path in x.paths}
                            for files in both)  # fmt: skip
    if same := paths & heldout_paths:
        raise errors.InputError(
            'parallel_file_twice',
            f'{min(same)} matches both {TRAIN} and {HELDOUT}; what is held out '
            'is not trained on: narrow one of them',
        )
    known, measured = (sorted({_in_order(*file.languages) for file in files})
                       for files in both)  # fmt: skip
    for languages in measured:
        if languages not in known:
            raise errors.InputError(
                'heldout_languages_unknown',
                f'{HELDOUT} has translations of {"-".join(languages)}, but '
                f'those that are trained on are of '
                f'{", ".join(map("-".join, known))}; leave them out, or name '
                f'some of {"-".join(languages)} with {TRAIN}',
            )
    return known


def read(
    patterns: Sequence[str],
    heldout: Sequence[str] = (),
    drop_equal: bool = False,
) -> PairCorpus:
    """Reads all files, joins equal languages, and holds pairs out.

    Args:
        patterns: values of `--parallel`, see `check`.
        heldout: patterns of held-out files; empty: of each two languages one
            pair in 100, by the hash of its English text, or of its first; 20 at
            least, or a tenth of fewer than 200, and 2,000 at most.
        drop_equal: whether pairs of two equal texts are left out.

    Returns:
        Of each two languages one `Columns`, in order. No pair is trained on
        that has a held-out text, of whichever pair of languages; white space
        and case make no difference there.

    Raises:
        ValueError: as `check`; a file is malformed; aligned files differ in
            length; no pair is left to train on.
    """
    files, heldout_files = _files(patterns, TRAIN), _files(heldout, HELDOUT)
    _languages(files, heldout_files)  # raises
    train = _gather(files, patterns, TRAIN, drop_equal)
    if heldout:
        held = _gather(heldout_files, heldout, HELDOUT, drop_equal)
        drawn = {which: [*group.pairs] for which, group in held.items()}
    else:
        drawn = {which: _drawn(x.pairs, which) for which, x in train.items()}
    known: dict[str, set[str]] = {}  # held-out texts by language, of all pairs
    for which, pairs in drawn.items():
        for code, texts in zip(which, zip(*pairs, strict=True), strict=True):
            known.setdefault(code, set()).update(map(_key, texts))
    columns, notes = [], []
    for which, group in sorted(train.items()):
        a, b = (known.get(code, set()) for code in which)
        left = [pair for pair in group.pairs
                if _key(pair[0]) not in a and _key(pair[1]) not in b]
        gone = len(group.pairs) - len(left)
        if not left:
            raise errors.InputError(
                'parallel_all_heldout',
                f'{TRAIN}={" ".join(patterns)}: of {"-".join(which)} nothing '
                f'is left to train on, because a text of each of its {gone:,} '
                f'pairs is held out; give more pairs, or name others with '
                f'{HELDOUT}',
            )
        group.pairs.clear()
        columns.append(_columns(which, left, patterns, group.empty))
        held_out = len(drawn.get(which, ()))
        left_out = {
            'with an empty side': group.empty,
            'that are there twice': group.repeated,
            'with equal sides': group.equal * drop_equal,
            'of which a text is held out': gone - held_out * (not heldout),
        }
        reasons = [f'{n:,} {why}' for why, n in left_out.items() if n]
        note = f'{len(left):,} pairs to train on, {held_out:,} held out'
        if reasons:
            note += f'; left out: {", ".join(reasons)}'
        if group.equal and not drop_equal:
            note += f'; {group.equal:,} have equal sides'
        notes.append(f'{"-".join(which)}: {note}')
    held_columns = [
        _columns(which, pairs, heldout or patterns, 0)
        for which, pairs in sorted(drawn.items())
    ]
    fingerprint = fingerprint_of([*columns, *held_columns])
    return PairCorpus(columns, held_columns, fingerprint, tuple(notes))


def _gather(
    files: Sequence[BitextFile], patterns: Sequence[str], flag: str,
    drop_equal: bool,
) -> dict[Languages, _Gathered]:  # fmt: skip
    """Reads the pairs of files, by languages in order of codes."""
    gathered: dict[Languages, _Gathered] = {}
    for file in files:
        languages, texts = file.read()
        if languages[0] > languages[1]:
            languages, texts = _in_order(*languages), texts[::-1]
        group = gathered.setdefault(languages, _Gathered())
        for pair in zip(*texts, strict=True):
            group.add(pair, drop_equal)
    for languages, group in sorted(gathered.items()):
        if not group.pairs:
            raise errors.InputError(
                'no_whole_translation',
                f'{flag}={" ".join(patterns)}: no pair of '
                f'{"-".join(languages)} has two texts'
                f'{" that differ" if group.equal else ""}; give others, or '
                'leave them out',
            )
    return gathered


def _drawn(
    pairs: Iterable[tuple[str, str]], languages: Languages
) -> list[tuple[str, str]]:
    """Draws one pair in 100 by hash, in order; of few pairs more.

    The hash is of the English text (or the first), so that a text with
    translations into many languages is held out of all of them together: else
    copies of held-out texts would leave little to train on.
    """
    pairs = list(pairs)
    place = languages.index('en') if 'en' in languages else 0
    hashes = _hashes(pair[place] for pair in pairs)
    others = hashes % textfiles.HELDOUT_IN != 0  # as of `hash_bucket`
    least = max(1, min(LEAST, len(pairs) // 10))
    count = np.clip((~others).sum(), least, textfiles.MAX_HELDOUT)
    # The last key is the first that counts.
    ranks = [_hashes(map('\t'.join, pairs)), hashes, others]
    return [pairs[i] for i in np.sort(np.lexsort(ranks)[:count])]


def _hashes(texts: Iterable[str]) -> np.ndarray:
    return np.fromiter(map(documents.text_hash, texts), np.uint64)


def _key(text: str) -> str:
    """Returns the form that copies of a text share."""
    return text.replace(' ', '').casefold()


def _columns(
    languages: Languages, pairs: Sequence[tuple[str, str]],
    patterns: Sequence[str], empty: int,
) -> Columns:  # fmt: skip
    where = f'{"-".join(languages)} of {", ".join(patterns)}'
    texts = [[a for a, _ in pairs], [b for _, b in pairs]]
    return Columns(where, texts, empty, languages)


# -------------------------------------------------------------------- patterns


def _files(patterns: Sequence[str], flag: str) -> list[BitextFile]:
    """Finds all files, each once, in order of names."""
    files = sorted({x for value in patterns for x in _files_of(value, flag)})
    for file in files:
        textfiles.check(file.paths)
    return files


def _files_of(value: str, flag: str) -> list[BitextFile]:
    """Finds the files of a value of the flag."""
    where, languages, pattern = f'{flag}={value}', None, value
    match = _EXPLICIT.fullmatch(value)
    codes = match and _codes(code_of, match[1], match[2])
    if match and codes:
        languages, pattern = _two(codes, where), match[3]
    elif re.match(r'\w+-\w+=', value):
        raise errors.InputError(
            'languages_without_codes',
            f'{where}: languages are named by their codes, as in '
            f'{flag}=en-de=FILE',
        )
    if '{' in pattern or '}' in pattern:
        return _aligned(pattern, languages, flag, where)
    paths = textfiles.find(pattern)
    return [_table(path, languages, flag, where) for path in paths]


def _codes(
    code: Callable[[str], str | None], one: str, other: str
) -> Languages | None:
    """Returns the codes of two languages; None: a language has no code."""
    a, b = code(one), code(other)
    return None if a is None or b is None else (a, b)


def _in_order(a: str, b: str) -> Languages:
    """Sorts two codes."""
    return (a, b) if a < b else (b, a)


def _two(languages: Languages, where: str) -> Languages:
    if languages[0] == languages[1]:
        raise errors.InputError(
            'one_language_twice',
            f'{where}: translations are of two languages, and both are '
            f'{languages[0]}; name two, or leave them out',
        )
    return languages


def _aligned(
    pattern: str, languages: Languages | None, flag: str, where: str
) -> list[BitextFile]:
    """Finds the aligned files of a pattern with braces."""
    match = _BRACES.fullmatch(pattern)
    if match is None:
        raise errors.InputError(
            'wrong_braces',
            f'{where}: expected one pair of braces with two languages, as in '
            f'{flag}=train.{{de,en}}',
        )
    before, *ends, after = match.groups()
    codes = _codes(known_code, *ends)
    if languages is None:
        if codes is None:
            unknown = next(end for end in ends if known_code(end) is None)
            raise errors.InputError(
                'unknown_language_code',
                f'{where}: {unknown!r} is the code of no known language; say '
                f'which it is as {flag}=LL-LL={pattern}',
            )
        languages = _two(codes, where)
    elif codes not in (None, languages):
        raise errors.InputError(
            'contradictory_languages',
            f'{where} says {"-".join(languages)} before the braces and '
            f'{"-".join(codes)} in them; leave out what is wrong',
        )
    first, second = (f'{before}{end}{after}' for end in ends)
    matches = glob.glob(os.path.expanduser(second), recursive=True)
    names = {str(pathlib.Path(x)) for x in matches if os.path.isfile(x)}
    files = []
    for path in map(str, textfiles.find(first)):
        # Names in which one occurrence of the first ending is replaced.
        places = [m.start() for m in re.finditer(re.escape(ends[0]), path)]
        others = [
            path[:place] + ends[1] + path[place + len(ends[0]) :]
            for place in reversed(places)
        ]
        other = next((x for x in others if x in names), None)
        if other is None:
            raise errors.InputError(
                'missing_neighbour',
                f'{where}: {path} has no neighbour {others[0]}; give both '
                'files, or narrow the pattern',
            )
        names.remove(other)
        paths = pathlib.Path(path), pathlib.Path(other)
        files.append(BitextFile(paths, languages))
    if names:
        raise errors.InputError(
            'file_without_neighbour',
            f'{where}: {min(names)} has no neighbour among {first}; give both '
            'files, or narrow the pattern',
        )
    return files


def _table(
    path: pathlib.Path, languages: Languages | None, flag: str, where: str
) -> BitextFile:
    """Checks a file of two columns, whose name may say the languages."""
    if not readers.unpacked(path).lower().endswith(TABLES):
        raise errors.InputError(
            'unreadable_parallel_name',
            f'{where}: the name of {path} does not tell how to read it, since '
            f'it ends in none of {", ".join(TABLES)} (docs/preparing.md makes '
            'one of .po, .mo and .tmx); two aligned files are named in quotes, '
            f"as {flag}='x.{{de,en}}'",
        )
    if languages is not None:
        return BitextFile((path,), languages)
    candidates = {
        _in_order(*codes)
        for match in _IN_A_NAME.finditer(path.name)
        if (codes := _codes(known_code, *match.groups()))
        and codes[0] != codes[1]
    }
    if len(candidates) != 1:
        raise errors.InputError(
            'unnamed_languages',
            f'{path}: its name does not tell its two languages; say those of '
            f'its first two columns, as in {flag}=en-de={path}',
        )
    (languages,) = candidates
    if 'en' not in languages:
        raise bitexts.no_order(path, languages)
    return BitextFile((path,), languages, ordered=False)
