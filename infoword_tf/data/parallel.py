"""Translations: `--parallel`, texts of two languages that say the same.

A value is `[LL-LL=]PATTERN`: `x.{de,en}` are two aligned files, all others one
file each: .tsv or .txt (two columns), .tmx, .po or .mo (gettext); the same and
.gz. Whatever they are read from, texts of the same two languages are put
together: a are of the one whose code comes first.

    found = parallel.read(['europarl.{de,en}', 'en-de=tatoeba.tsv'])
    found.train[0].languages  # ('de', 'en')
"""

import glob
import itertools
import os
import pathlib
import re
from collections.abc import Iterable, Sequence

import numpy as np

from infoword_tf.data import bitexts, catalogs, documents, textfiles
from infoword_tf.data.bitexts import File, Languages
from infoword_tf.data.text_pairs import Columns, Pairs, fingerprint_of
from infoword_tf.languages import code_of, known_code

TRAIN, HELDOUT = '--parallel', '--heldout_parallel'
LEAST = 20  # so many are held out of a language of few, or a tenth of them
_LOOKED_AT = 1000  # pairs of a TMX that say what its languages are

_NAME = r'([A-Za-z]{2,3}(?:_\w+)?)'
_EXPLICIT = re.compile(f'{_NAME}-{_NAME}=(.+)')
_BRACES = re.compile(r'([^{}]*)\{([^{}]*)\}([^{}]*)')
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
) -> list[Languages] | None:
    """The pairs of languages there are; None where that takes reading all.

    Of a TMX whose languages are not named they are looked for in its first
    1,000 pairs alone: others may come.

    Args:
        patterns: what `--parallel` names, `[LL-LL=]PATTERN` each.
        heldout: likewise `--heldout_parallel`.

    Raises:
        ValueError: there is no file, or its format or its languages cannot be
            told; held-out text is trained on, or of other languages.
    """
    files = _files(patterns, TRAIN)
    found = _languages_of(files)
    if heldout:
        held = _files(heldout, HELDOUT)
        _check_apart(files, held)
        if found is not None:
            _check_known(_languages_of(held) or (), found)
    return found and sorted(found)


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
    files = _files(patterns, TRAIN)
    where = f'{TRAIN}={" ".join(patterns)}'
    train = _gather(files, where, drop_equal)
    if heldout:
        others = _files(heldout, HELDOUT)
        _check_apart(files, others)
        held = _gather(others, f'{HELDOUT}={" ".join(heldout)}', drop_equal)
        _check_known(held, train)
        drawn = {which: list(found.pairs) for which, found in held.items()}
    else:
        drawn = {
            which: _drawn(found.pairs, which) for which, found in train.items()
        }
    known: dict[str, set[str]] = {}  # by language, of whichever pairs
    for which, pairs in drawn.items():
        for code, texts in zip(which, zip(*pairs, strict=True), strict=True):
            known.setdefault(code, set()).update(map(_key, texts))
    columns, notes = [], []
    for which, found in sorted(train.items()):
        a, b = (known.get(code, frozenset()) for code in which)
        total = len(found.pairs)
        kept = [
            pair
            for pair in found.pairs
            if _key(pair[0]) not in a and _key(pair[1]) not in b
        ]
        if not kept:
            raise ValueError(
                f'{where}: of {"-".join(which)} nothing is left to train on, '
                f'because a text of each of its {total:,} pairs is held out; '
                f'give more pairs, or name others with {HELDOUT}'
            )
        del found.pairs
        columns.append(_columns(which, kept, patterns, found.empty))
        held_out = len(drawn.get(which, ()))
        drawn_here = 0 if heldout else held_out  # of these pairs
        left_out = {
            'with an empty side': found.empty,
            'that are there twice': found.again,
            'with equal sides': found.equal * drop_equal,
            'of which a text is held out': total - len(kept) - drawn_here,
        }
        told = [f'{n:,} {what}' for what, n in left_out.items() if n]
        note = f'{len(kept):,} pairs to train on, {held_out:,} held out'
        if told:
            note += f'; left out: {", ".join(told)}'
        if found.equal and not drop_equal:
            note += f'; {found.equal:,} have equal sides'
        notes.append(f'{"-".join(which)}: {note}')
    held_columns = [
        _columns(which, pairs, heldout or patterns, 0)
        for which, pairs in sorted(drawn.items())
    ]
    fingerprint = fingerprint_of([*columns, *held_columns])
    return Pairs(columns, held_columns, fingerprint, tuple(notes))


def _gather(
    files: Iterable[File], where: str, drop_equal: bool
) -> dict[Languages, _Found]:
    """The pairs of files, by languages in order of their codes."""
    found: dict[Languages, _Found] = {}
    for file in files:
        for languages, a, b in file.pairs():
            if languages[0] > languages[1]:
                languages, a, b = languages[::-1], b, a
            if languages not in found:
                found[languages] = _Found()
            found[languages].add((a, b), drop_equal)
    for languages, some in sorted(found.items()):
        if not some.pairs:
            raise ValueError(
                f'{where}: no pair of {"-".join(languages)} has two texts'
                f'{" that differ" if some.equal else ""}; give others, or '
                'leave them out'
            )
    if not found:
        raise ValueError(f'{where}: there is no translation; give others')
    return found


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
    languages: Languages,
    pairs: Sequence[tuple[str, str]],
    patterns: Sequence[str],
    empty: int,
) -> Columns:
    where = f'{"-".join(languages)} of {", ".join(patterns)}'
    texts = [[a for a, _ in pairs], [b for _, b in pairs]]
    return Columns(where, texts, empty, languages)


# ------------------------------------------------------------- what is named


def _files(patterns: Sequence[str], flag: str) -> list[File]:
    """All files that are named, each once, in the order of their names."""
    found = {file for value in patterns for file in _named(value, flag)}
    for file in found:
        if file.kind in ('aligned', '.tsv', '.txt'):
            textfiles.check(file.paths)
    return sorted(found, key=lambda x: (x.paths, x.languages or (), x.ordered))


def _named(value: str, flag: str) -> list[File]:
    """The files of a value of the flag."""
    match = _EXPLICIT.fullmatch(value)
    if match is None and re.match(r'\w+-\w+=', value):
        raise ValueError(
            f'{flag}={value}: languages are named by their codes, as in '
            f'{flag}=en-de=FILE'
        )
    given, pattern = None, value
    if match is not None:
        given, pattern = (code_of(match[1]), code_of(match[2])), match[3]
        _check_two(given, f'{flag}={value}')
    if '{' in pattern or '}' in pattern:
        return _aligned(value, pattern, given, flag)
    files = []
    for path in textfiles.find(pattern):
        languages, ordered = given, True
        kind = bitexts.kind_of(path)
        if kind not in bitexts.READERS:
            known = ', '.join([*bitexts.READERS][1:])
            raise ValueError(
                f'{flag}={value}: the name of {path} does not tell how to read '
                f'it, since it ends in none of {known}; two aligned files are '
                f"named in quotes, as {flag}='x.{{de,en}}'"
            )
        if given is None and kind in ('.tsv', '.txt'):
            languages, ordered = _by_name(path, flag), False
        elif given is None and kind in ('.po', '.mo'):
            languages = ('en', _of_catalog(path, flag))
        files.append(File((path,), languages, ordered))
    # The British and American catalogs among those of all languages.
    two = [x for x in files if x.languages is None or len({*x.languages}) > 1]
    if not two:
        _check_two(files[0].languages, f'{flag}={value}')
    return two


def _aligned(
    value: str, pattern: str, given: Languages | None, flag: str
) -> list[File]:
    """Files that are named in braces, two and two."""
    match = _BRACES.fullmatch(pattern)
    ends = match[2].split(',') if match else []
    if len(ends) != 2 or not all(ends) or {*match[2]} & {*'*?['}:
        raise ValueError(
            f'{flag}={value}: expected one pair of braces with two languages, '
            f'as in {flag}=train.{{de,en}}'
        )
    told = tuple(map(known_code, ends))
    if given is None:
        if None in told:
            unknown = ends[told.index(None)]
            raise ValueError(
                f'{flag}={value}: {unknown!r} is the code of no known '
                f'language; say which it is as {flag}=LL-LL={pattern}'
            )
    elif None not in told and told != given:
        raise ValueError(
            f'{flag}={value} says {"-".join(given)} before the braces and '
            f'{"-".join(told)} in them; leave out what is wrong'
        )
    languages = given or told
    _check_two(languages, f'{flag}={value}')
    first, second = (f'{match[1]}{end}{match[3]}' for end in ends)
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
                f'{flag}={value}: {path} has no neighbour {others[0]}; give '
                'both files, or narrow the pattern'
            )
        names.remove(other)
        files.append(File((pathlib.Path(path), pathlib.Path(other)), languages))
    if names:
        raise ValueError(
            f'{flag}={value}: {min(names)} has no neighbour among {first}; '
            'give both files, or narrow the pattern'
        )
    return files


def _check_two(languages: Languages, where: str) -> None:
    if languages[0] == languages[1]:
        raise ValueError(
            f'{where}: translations are of two languages, and both are '
            f'{languages[0]}; name two, or leave them out'
        )


def _by_name(path: pathlib.Path, flag: str) -> Languages:
    """What the name of a tsv says, such as deu-eng.txt."""
    found = {
        tuple(sorted(codes))
        for match in _IN_A_NAME.finditer(path.name)
        if None not in (codes := tuple(map(known_code, match.groups())))
        and codes[0] != codes[1]
    }
    if len(found) != 1:
        raise ValueError(
            f'{path}: its name does not tell its two languages; say those of '
            f'its first two columns, as in {flag}=en-de={path}'
        )
    languages = found.pop()
    if 'en' not in languages:
        raise bitexts.no_order(path, languages)
    return languages


def _of_catalog(path: pathlib.Path, flag: str) -> str:
    """The language of a catalog by its folder, its header or its name."""
    if path.parent.name == 'LC_MESSAGES':
        if code := code_of(path.parent.parent.name):
            return code
    code = catalogs.language_of(path) or known_code(path.name.split('.')[0])
    if code is None:
        raise ValueError(
            f'{path}: neither its folder, its header (Language:) nor its name '
            f'tells its language; say so, as in {flag}=en-de={path}'
        )
    return code


def _languages_of(files: Iterable[File]) -> set[Languages] | None:
    """None where the pairs that are looked at may not be all."""
    found = set()
    for file in files:
        named = [file.languages]
        if file.languages is None:
            pairs = list(itertools.islice(file.pairs(), _LOOKED_AT))
            if len(pairs) == _LOOKED_AT:
                return None
            named = {languages for languages, _, _ in pairs}
        found.update(tuple(sorted(languages)) for languages in named)
    return found


def _check_apart(train: Iterable[File], held: Iterable[File]) -> None:
    parts = [{p.resolve() for x in some for p in x.paths}
             for some in (train, held)]  # fmt: skip
    if same := parts[0] & parts[1]:
        raise ValueError(
            f'{min(same)} matches both {TRAIN} and {HELDOUT}; what is held out '
            'is not trained on: narrow one of them'
        )


def _check_known(held: Iterable[Languages], train: Iterable[Languages]) -> None:
    known = ['-'.join(languages) for languages in sorted(train)]
    for languages in sorted(held):
        if (name := '-'.join(languages)) not in known:
            raise ValueError(
                f'{HELDOUT} has translations of {name}, but those that are '
                f'trained on are of {", ".join(known)}; leave them out, or '
                f'name some of {name} with {TRAIN}'
            )
