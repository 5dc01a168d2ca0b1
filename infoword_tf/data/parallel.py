"""Translations: `--parallel`, texts of two languages that say the same.

A value is `[LL-LL=]PATTERN`: `x.{de,en}` are two aligned files, a .tsv or .txt
has two columns; the same packed. Whatever they are read from, texts of the
same two languages are put together: a are of the one whose code comes first.
"""

import glob
import os
import pathlib
import re
from collections.abc import Iterable, Sequence

import numpy as np

from infoword_tf.data import bitexts, documents, readers, textfiles
from infoword_tf.data.bitexts import File, Languages
from infoword_tf.data.text_pairs import Columns, Pairs, fingerprint_of
from infoword_tf.languages import code_of, known_code

TRAIN, HELDOUT = '--parallel', '--heldout_parallel'
LEAST = 20  # so many are held out of a language of few, or a tenth of them
TABLES = ('.tsv', '.txt')

_NAME = r'([A-Za-z]{2,3}(?:_\w+)?)'
_EXPLICIT = re.compile(f'{_NAME}-{_NAME}=(.+)')
_BRACES = re.compile(r'([^{}]*)\{([^{},*?[]+),([^{},*?[]+)\}([^{}]*)')
_IN_A_NAME = re.compile(
    '(?<![A-Za-z])(?=([A-Za-z]{2,3})[-_]([A-Za-z]{2,3})(?![A-Za-z]))'
)


class _Found:
    """Pairs of two languages, each once, and what was left out."""

    def __init__(self):
        self.pairs: dict[tuple[str, str], None] = {}
        self.empty = self.equal = self.again = 0

    def add(self, pair: tuple[str, str], drop_equal: bool) -> None:
        if not all(pair):
            self.empty += 1
        elif pair in self.pairs:
            self.again += 1
        else:
            if pair[0] == pair[1]:
                self.equal += 1
                if drop_equal:
                    return
            self.pairs[pair] = None


def check(
    patterns: Sequence[str], heldout: Sequence[str] = ()
) -> list[Languages]:
    """The pairs of languages there are, in order; reads no file to its end.

    Args:
        patterns: what `--parallel` names, `[LL-LL=]PATTERN` each.
        heldout: likewise `--heldout_parallel`.

    Raises:
        ValueError: there is no file, or its format or its languages cannot be
            told; held-out text is trained on, or of other languages.
    """
    parts = _files(patterns, TRAIN), _files(heldout, HELDOUT)
    train, held = ({path.resolve() for file in files for path in file.paths}
                   for files in parts)  # fmt: skip
    if same := train & held:
        raise ValueError(
            f'{min(same)} matches both {TRAIN} and {HELDOUT}; what is held out '
            'is not trained on: narrow one of them'
        )
    known, asked = (sorted({tuple(sorted(file.languages)) for file in files})
                    for files in parts)  # fmt: skip
    for languages in asked:
        if languages not in known:
            raise ValueError(
                f'{HELDOUT} has translations of {"-".join(languages)}, but '
                f'those that are trained on are of '
                f'{", ".join(map("-".join, known))}; leave them out, or name '
                f'some of {"-".join(languages)} with {TRAIN}'
            )
    return known


def read(
    patterns: Sequence[str],
    heldout: Sequence[str] = (),
    drop_equal: bool = False,
) -> Pairs:
    """Reads all files, puts those of the same languages together, parts them.

    Args:
        patterns: as of `check`.
        heldout: likewise, what is held out; none: of each two languages one
            pair in 100, by the hash of its English text, or of its first; 20 at
            least, or a tenth of fewer than 200, and 2,000 at most.
        drop_equal: whether pairs are left out whose two texts are the same.

    Returns:
        Of each two languages one `Columns`, in order. No pair is trained on
        of which a text is held out, of whichever pair of languages; white
        space and case make no difference there.

    Raises:
        ValueError: as `check`; a file is malformed; files that are aligned
            differ in length; nothing is left to train on.
    """
    check(patterns, heldout)
    train = _gather(patterns, TRAIN, drop_equal)
    if heldout:
        held = _gather(heldout, HELDOUT, drop_equal)
        drawn = {which: [*group.pairs] for which, group in held.items()}
    else:
        drawn = {which: _drawn(x.pairs, which) for which, x in train.items()}
    known: dict[str, set[str]] = {}  # by language, of whichever pairs
    for which, pairs in drawn.items():
        for code, texts in zip(which, zip(*pairs, strict=True), strict=True):
            known.setdefault(code, set()).update(map(_key, texts))
    columns, notes = [], []
    for which, group in sorted(train.items()):
        a, b = (known.get(code, frozenset()) for code in which)
        left = [pair for pair in group.pairs
                if _key(pair[0]) not in a and _key(pair[1]) not in b]
        gone = len(group.pairs) - len(left)
        if not left:
            raise ValueError(
                f'{TRAIN}={" ".join(patterns)}: of {"-".join(which)} nothing '
                f'is left to train on, because a text of each of its {gone:,} '
                f'pairs is held out; give more pairs, or name others with '
                f'{HELDOUT}'
            )
        group.pairs.clear()
        columns.append(_columns(which, left, patterns, group.empty))
        held_out = len(drawn.get(which, ()))
        left_out = {
            'with an empty side': group.empty,
            'that are there twice': group.again,
            'with equal sides': group.equal * drop_equal,
            'of which a text is held out': gone - held_out * (not heldout),
        }
        told = [f'{n:,} {what}' for what, n in left_out.items() if n]
        note = f'{len(left):,} pairs to train on, {held_out:,} held out'
        if told:
            note += f'; left out: {", ".join(told)}'
        if group.equal and not drop_equal:
            note += f'; {group.equal:,} have equal sides'
        notes.append(f'{"-".join(which)}: {note}')
    held_columns = [
        _columns(which, pairs, heldout or patterns, 0)
        for which, pairs in sorted(drawn.items())
    ]
    fingerprint = fingerprint_of([*columns, *held_columns])
    return Pairs(columns, held_columns, fingerprint, tuple(notes))


def _gather(
    patterns: Sequence[str], flag: str, drop_equal: bool
) -> dict[Languages, _Found]:
    """The pairs of files, by languages in order of their codes."""
    gathered: dict[Languages, _Found] = {}
    for file in _files(patterns, flag):
        languages, texts = file.read()
        if languages[0] > languages[1]:
            languages, texts = languages[::-1], texts[::-1]
        group = gathered.setdefault(languages, _Found())
        for pair in zip(*texts, strict=True):
            group.add(pair, drop_equal)
    for languages, group in sorted(gathered.items()):
        if not group.pairs:
            raise ValueError(
                f'{flag}={" ".join(patterns)}: no pair of '
                f'{"-".join(languages)} has two texts'
                f'{" that differ" if group.equal else ""}; give others, or '
                'leave them out'
            )
    return gathered


def _drawn(
    pairs: Iterable[tuple[str, str]], languages: Languages
) -> list[tuple[str, str]]:
    """One pair in 100 by hash, in order; of few pairs more.

    By that of its English text (or its first), so that what has been translated
    into many languages is held out of all together: copies of each other's
    held-out texts would leave little to train on.
    """
    pairs = list(pairs)
    place = languages.index('en') if 'en' in languages else 0
    hashes = _hashes(pair[place] for pair in pairs)
    others = hashes % textfiles.HELDOUT_IN != 0  # as of `hash_bucket`
    least = max(1, min(LEAST, len(pairs) // 10))
    count = np.clip((~others).sum(), least, textfiles.MAX_HELDOUT)
    # The last is the first that counts.
    ranks = [_hashes(map('\t'.join, pairs)), hashes, others]
    return [pairs[i] for i in np.sort(np.lexsort(ranks)[:count])]


def _hashes(texts: Iterable[str]) -> np.ndarray:
    return np.fromiter(map(documents.text_hash, texts), np.uint64)


def _key(text: str) -> str:
    """What copies of a text share."""
    return text.replace(' ', '').casefold()


def _columns(
    languages: Languages, pairs: Sequence[tuple[str, str]],
    patterns: Sequence[str], empty: int,
) -> Columns:  # fmt: skip
    where = f'{"-".join(languages)} of {", ".join(patterns)}'
    texts = [[a for a, _ in pairs], [b for _, b in pairs]]
    return Columns(where, texts, empty, languages)


# ------------------------------------------------------------- what is named


def _files(patterns: Sequence[str], flag: str) -> list[File]:
    """All files that are named, each once, in the order of their names."""
    named = sorted({file for value in patterns for file in _named(value, flag)})
    for file in named:
        textfiles.check(file.paths)
    return named


def _named(value: str, flag: str) -> list[File]:
    """The files of a value of the flag."""
    where, languages, pattern = f'{flag}={value}', None, value
    if match := _EXPLICIT.fullmatch(value):
        languages = _two((code_of(match[1]), code_of(match[2])), where)
        pattern = match[3]
    elif re.match(r'\w+-\w+=', value):
        raise ValueError(
            f'{where}: languages are named by their codes, as in '
            f'{flag}=en-de=FILE'
        )
    if '{' in pattern or '}' in pattern:
        return _aligned(pattern, languages, flag, where)
    paths = textfiles.find(pattern)
    return [_table(path, languages, flag, where) for path in paths]


def _two(languages: Languages, where: str) -> Languages:
    if languages[0] == languages[1]:
        raise ValueError(
            f'{where}: translations are of two languages, and both are '
            f'{languages[0]}; name two, or leave them out'
        )
    return languages


def _aligned(
    pattern: str, languages: Languages | None, flag: str, where: str
) -> list[File]:
    """Files that are named in braces, two and two."""
    match = _BRACES.fullmatch(pattern)
    if match is None:
        raise ValueError(
            f'{where}: expected one pair of braces with two languages, as in '
            f'{flag}=train.{{de,en}}'
        )
    before, *ends, after = match.groups()
    told = tuple(map(known_code, ends))
    if languages is None and None in told:
        raise ValueError(
            f'{where}: {ends[told.index(None)]!r} is the code of no known '
            f'language; say which it is as {flag}=LL-LL={pattern}'
        )
    if languages not in (None, told) and None not in told:
        raise ValueError(
            f'{where} says {"-".join(languages)} before the braces and '
            f'{"-".join(told)} in them; leave out what is wrong'
        )
    languages = languages or _two(told, where)
    first, second = (f'{before}{end}{after}' for end in ends)
    names = glob.glob(os.path.expanduser(second), recursive=True)
    names = {str(pathlib.Path(x)) for x in names if os.path.isfile(x)}
    files = []
    for path in map(str, textfiles.find(first)):
        # The names where one part is replaced; one of them has the pattern.
        places = [m.start() for m in re.finditer(re.escape(ends[0]), path)]
        others = [
            path[:place] + ends[1] + path[place + len(ends[0]) :]
            for place in reversed(places)
        ]
        other = next((x for x in others if x in names), None)
        if other is None:
            raise ValueError(
                f'{where}: {path} has no neighbour {others[0]}; give both '
                'files, or narrow the pattern'
            )
        names.remove(other)
        files.append(File((pathlib.Path(path), pathlib.Path(other)), languages))
    if names:
        raise ValueError(
            f'{where}: {min(names)} has no neighbour among {first}; give both '
            'files, or narrow the pattern'
        )
    return files


def _table(
    path: pathlib.Path, languages: Languages | None, flag: str, where: str
) -> File:
    """A file of two columns; its name may say the languages: deu-eng.txt."""
    if not readers.unpacked(path).lower().endswith(TABLES):
        raise ValueError(
            f'{where}: the name of {path} does not tell how to read it, since '
            f'it ends in none of {", ".join(TABLES)} (docs/preparing.md makes '
            'one of .po, .mo and .tmx); two aligned files are named in quotes, '
            f"as {flag}='x.{{de,en}}'"
        )
    if languages is not None:
        return File((path,), languages)
    told = {
        tuple(sorted(codes))
        for match in _IN_A_NAME.finditer(path.name)
        if None not in (codes := tuple(map(known_code, match.groups())))
        and codes[0] != codes[1]
    }
    if len(told) != 1:
        raise ValueError(
            f'{path}: its name does not tell its two languages; say those of '
            f'its first two columns, as in {flag}=en-de={path}'
        )
    (languages,) = told
    if 'en' not in languages:
        raise bitexts.no_order(path, languages)
    return File((path,), languages, ordered=False)
