"""BERT's normalisation as Hugging Face's `tokenizers` does it, in the graph.

`FastBertNormalize` of tensorflow_text maps each code point by a table that it
is given. Its own table folds case and deletes what it should not; `fit` asks
`tokenizers` about every code point instead:

    BertNormalizer    drops controls, parts Chinese characters, strips
                      accents, lower-cases: what a code point becomes
    BertPreTokenizer  what are spaces, and what is a word of its own

The tokenizer of tensorflow_text then parts text once more, by the classes of
its ICU. The table hides from it what they would get wrong: what they do not
part has spaces around it, and what they alone part (most of it is younger
than the tables of `tokenizers`) is spelled with private characters, in pieces
as in text. So no text depends on the ICU that a server has.

One thing is no function of a code point: NFD, with which accents are stripped,
also sorts marks that follow one another. Most of those are dropped. Spacing
marks and marks younger than the tables stay, and two of them that follow
one another in an order other than NFD's are left in it.

Glossary of shapes: S bytes, U units of a trie.
"""

import contextlib
import functools
import hashlib
import itertools
import json
import pathlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np
import tensorflow_text as tf_text

from infoword_tf import files
from infoword_tf.text import vocabulary as vocabularies

_ALL = 0x110000
_PLANE = 0x10000
_SURROGATES = range(0xD800, 0xE000)
# In other planes all code points become the same, itself or nothing.
_DIVERSE = 0, 1, 2, 14
_PRIVATE = (
    range(0xE000, 0xF900),
    range(0xF0000, 0xFFFFE),
    range(0x100000, 0x10FFFE),
)
_SNOWMAN = '\u2603'  # becomes itself, and nothing else becomes it

# Values of the trie: that there is a form, where in the pool, its bytes.
_CHANGED = 1 << 30
_LENGTH_BITS = 6
# Units of the trie (github.com/s-yata/darts-clone): the byte that leads to it,
# whether it has a value, and what takes it to its children.
_HAS_VALUE = 1 << 8
_OFFSET_BIT = 10
_IS_VALUE = 1 << 31
_FIRST, _REST = 256, 64  # how many bytes begin a character, and go on with it
# What begins characters of two bytes and more, and the first of those.
_LEADS = (0xC0, 0x80), (0xE0, 0x800), (0xF0, 0x10000)


class Normalization(NamedTuple):
    """The options of BertNormalizer.

    Attributes:
        lower_case: every letter by itself: no final sigma, no folding.
        strip_accents: decompose and drop marks; None: as `lower_case`.
        chinese_characters: each is a word of its own.
        clean: drop controls; all spaces are blanks.
    """

    lower_case: bool = True
    strip_accents: bool | None = None
    chinese_characters: bool = True
    clean: bool = True


class _Classes(NamedTuple):
    """What parts words: spaces and marks for `tokenizers`, all for tf_text."""

    spaces: frozenset[str]
    marks: frozenset[str]
    parted: frozenset[str]


def fit(
    normalization: Normalization, vocabulary: Sequence[str]
) -> tuple[np.ndarray, list[str]]:
    """What the operations of tensorflow_text need to agree with `tokenizers`.

    Returns:
        The model for `FastBertNormalizer`, [S] uint8, and the pieces as text
        that it has normalised spells them.
    """
    known = frozenset().union(*vocabulary)
    model, spelling = _kept_fitted(
        normalization,
        known & _kept_hidden(normalization),
        frozenset(c for c in known if any(ord(c) in r for r in _PRIVATE)),
    )
    pieces = str.maketrans(spelling)
    return model, [piece.translate(pieces) for piece in vocabulary]


def _kept(
    make: Callable[[], dict[str, np.ndarray]], *decided_by: Any
) -> dict[str, np.ndarray]:
    """What `make` gives, or gave when a process of before asked for the same.

    To ask about every code point takes most of a second, and the answers are
    those of the versions that are installed. A cache that cannot be written,
    or is damaged, costs that second.
    """
    asked = [metadata.version(x) for x in ('tokenizers', 'tensorflow-text')]
    own = files.digest_of(pathlib.Path(__file__))
    key = json.dumps([own, *asked, *decided_by]).encode()
    name = hashlib.blake2b(key, digest_size=10).hexdigest()
    path = files.cache_dir() / 'normalization' / f'{name}.safetensors'
    with contextlib.suppress(OSError, ValueError):
        return files.read_tensors(path)
    found = make()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_tensors(path, found)
    return found


def _codes(characters: Iterable[str]) -> np.ndarray:
    return np.array([ord(c) for c in characters], np.int32)


@functools.cache
def _kept_hidden(normalization: Normalization) -> frozenset[str]:
    """`_hidden`, which is asked for once."""
    found = _kept(
        lambda: {'hidden': _codes(sorted(_hidden(normalization)))},
        normalization,
    )
    return frozenset(map(chr, found['hidden'].tolist()))


@functools.lru_cache(maxsize=8)
def _kept_fitted(
    normalization: Normalization, spelled: frozenset[str], taken: frozenset[str]
) -> tuple[np.ndarray, dict[str, str]]:
    """`_fitted`, which is made once."""

    def make() -> dict[str, np.ndarray]:
        model, spelling = _fitted(normalization, spelled, taken)
        return {
            'model': model,
            'from': _codes(spelling),
            'to': _codes(spelling.values()),
        }

    found = _kept(make, normalization, sorted(spelled), sorted(taken))
    both = (map(chr, found[name].tolist()) for name in ('from', 'to'))
    return found['model'], dict(zip(*both, strict=True))


def _hidden(normalization: Normalization) -> frozenset[str]:
    """Characters that tensorflow_text must not see as they are."""
    _, chinese = _forms(normalization)
    spaces, marks, parted = _classes()
    return spaces | parted - marks - chinese


def _fitted(
    normalization: Normalization, spelled: frozenset[str], taken: frozenset[str]
) -> tuple[np.ndarray, dict[str, str]]:
    """`fit` for vocabularies with the same characters to spell, and taken."""
    forms, chinese = _forms(normalization)
    spaces, marks, parted = _classes()
    apart = marks | chinese
    unseen = apart - parted
    joined = parted - apart - spaces
    private = (c for c in _private() if c not in taken)
    unknown = next(private)  # no piece has it, so its word is [UNK]
    # No text spells a space like this, so pieces that have one stay unused.
    spelling = {c: next(private) for c in sorted(spelled)}

    def spell(character: str) -> str:
        if character in spaces:
            return ' '
        if character in unseen:
            return f' {character} '
        if character in joined:
            return spelling.get(character, unknown)
        return character

    table = dict.fromkeys(spelling.values(), unknown)
    table.update((c, spell(c)) for c in spaces | unseen | joined)
    table.update((c, ''.join(map(spell, forms[c]))) for c in forms)
    # What is said to change costs time, a blank above all.
    table = {c: form for c, form in table.items() if c != form}
    return _model(table), spelling


def table(normalization: Normalization) -> dict[str, str]:
    """The same for a program that looks characters up one by one.

    Returns:
        What characters become, if not themselves. Then a word ends at a blank
        and nowhere else: those that are words of their own have blanks around
        them.
    """
    forms, chinese = _forms(normalization)
    spaces, marks, _ = _classes()
    apart = marks | chinese

    def spell(character: str) -> str:
        if character in spaces:
            return ' '
        return f' {character} ' if character in apart else character

    found = {c: spell(c) for c in spaces | apart}
    found.update((c, ''.join(map(spell, forms[c]))) for c in forms)
    return {c: form for c, form in found.items() if c != form}


@functools.lru_cache(maxsize=8)
def model(normalization: Normalization, parted: bool = False) -> np.ndarray:
    """What `FastBertNormalizer` needs to do the same and nothing else, [S]
    uint8; `parted`: what `table` says, blanks around words included.
    """
    if parted:
        return _model(table(normalization))
    return _model(_forms(normalization)[0])


@functools.lru_cache(maxsize=8)
def mapped(charsmap: bytes) -> np.ndarray:
    """The same for a table of SentencePiece's: what it makes of characters
    that stand alone, [S] uint8.
    """
    from tokenizers import normalizers

    def make() -> dict[str, np.ndarray]:
        characters = _characters()
        normal = normalizers.Precompiled(charsmap).normalize_str(
            _SNOWMAN.join(characters)
        )
        forms = dict(zip(characters, normal.split(_SNOWMAN), strict=True))
        return {'model': _model({c: x for c, x in forms.items() if c != x})}

    digest = hashlib.blake2b(charsmap, digest_size=16).hexdigest()
    return _kept(make, digest)['model']


@functools.lru_cache(maxsize=8)
def written(normalization: Normalization) -> np.ndarray:
    """What `FastBertNormalizer` needs to do as `written_forms` says, [S]
    uint8.
    """
    return _model(written_forms(normalization))


def written_forms(normalization: Normalization) -> dict[str, str]:
    """What `BertNormalizer` writes for characters, if not themselves, with its
    blanks around Chinese ones.
    """
    forms, chinese = _forms(normalization)
    return {
        c: f' {form} ' if form in chinese else form
        for c, form in {**{c: c for c in chinese}, **forms}.items()
    }


def _characters() -> list[str]:
    """Those about which `tokenizers` is asked one by one."""
    return [
        chr(c)
        for plane in _DIVERSE
        for c in range(plane * _PLANE, (plane + 1) * _PLANE)
        if c not in _SURROGATES and chr(c) != _SNOWMAN
    ]


def _private() -> Iterator[str]:
    return map(chr, itertools.chain(*_PRIVATE))


@functools.cache
def _forms(
    normalization: Normalization,
) -> tuple[Mapping[str, str], frozenset[str]]:
    """What BertNormalizer changes; Chinese forms, without the spaces around."""
    from tokenizers import normalizers

    normalizer = normalizers.BertNormalizer(
        lowercase=normalization.lower_case,
        strip_accents=normalization.strip_accents,
        handle_chinese_chars=normalization.chinese_characters,
        clean_text=normalization.clean,
    )
    characters = _characters()
    # What stands between them keeps NFD from sorting marks.
    found = normalizer.normalize_str(_SNOWMAN.join(characters))
    forms = dict(zip(characters, found.split(_SNOWMAN), strict=True))
    chinese = set()
    for character, form in forms.items():
        if len(form) == 3 and form[0] == form[2] == ' ':
            forms[character] = form[1]
            chinese.add(form[1])
    if not forms[chr(_PRIVATE[0][0])]:
        forms.update(dict.fromkeys(_private(), ''))
    forms = {c: form for c, form in forms.items() if c != form}
    return forms, frozenset(chinese)


@functools.cache
def _classes() -> _Classes:
    """Asks both, with a letter before and after each character."""
    from tokenizers import pre_tokenizers

    characters = _characters()
    text = 'a'.join(['', *characters, ''])
    words = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(text)
    bounds = [place for _, place in words]
    marks = {text[i] for i, end in bounds if i % 2 and end == i + 1}
    spaces = {
        text[end]
        for (_, end), (begin, _) in itertools.pairwise(bounds)
        if end < begin
    }
    tokenizer = tf_text.FastWordpieceTokenizer([vocabularies.UNK, 'a'])
    # To it these mean something else, and no piece has them.
    controls = frozenset(map(chr, range(32)))
    characters = [c for c in characters if c not in controls]
    text = 'a'.join(['', *characters, ''])
    _, begins, _ = tokenizer.tokenize_with_offsets([text])
    lengths = [len(c.encode()) + 1 for c in characters]
    parted = np.isin(np.cumsum(lengths), begins.values)
    return _Classes(
        frozenset(spaces),
        frozenset(marks),
        controls.union(itertools.compress(characters, parted)),
    )


def _model(table: Mapping[str, str]) -> np.ndarray:
    """A FastBertNormalizerModel (its .fbs), [S] uint8, of what changes."""
    forms = dict.fromkeys(table.values())
    numbers = {form: number for number, form in enumerate(forms, 1)}
    codes = np.zeros(_ALL, np.int32)
    codes[[ord(c) for c in table]] = [numbers[form] for form in table.values()]
    spelled = [form.encode() for form in forms]
    pool = b''.join(spelled)
    lengths = np.array([len(form) for form in spelled])
    places = np.cumsum(lengths) - lengths
    values = (_CHANGED | places << _LENGTH_BITS | lengths).astype(np.uint32)
    zero = int(values[codes[0] - 1]) if codes[0] else 0
    units = _trie(codes, values)
    header = struct.pack(
        '<I6HiIiI',
        16,  # the table begins there; before it, what is where in it:
        12, 16, 0, 4, 8, 12,
        12, 12, zero, 8 + 4 * len(units),
    )  # fmt: skip
    parts = (
        header,
        struct.pack('<I', len(units)), units.astype('<u4').tobytes(),
        struct.pack('<I', len(pool)), pool,
    )  # fmt: skip
    return np.frombuffer(b''.join(parts), np.uint8)


def _trie(codes: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A double array of darts-clone from UTF-8 to values: [U] uint32.

    Units 0 to 255 are the root's children, the bytes that begin characters;
    children of other nodes are blocks of 64, shared by those that have the
    same. Values stand after them.
    """
    # By level: units that lead to it and the numbers of the blocks, from 1,
    # and where those begin. A block of level 0 is a value.
    leading = [[(np.arange(1, 0x80), codes[1:0x80])]]
    starts, size = [0], _FIRST
    for level, (lead, least) in enumerate(_LEADS):
        # A character has one spelling; longer ones are no UTF-8.
        codes = np.pad(codes, (0, -len(codes) % _REST))
        codes[: least // _REST**level] = 0
        blocks = {bytes(codes.itemsize * _REST): 0}
        codes = np.array([
            blocks.setdefault(block.tobytes(), len(blocks))
            for block in codes.reshape(-1, _REST)
        ], np.int32)  # fmt: skip
        inner = np.frombuffer(b''.join(blocks), np.int32)[_REST:]
        leading[level].append((size + np.arange(len(inner)), inner))
        first = codes[: (_FIRST - lead) // 2]
        leading.append([(lead + np.arange(len(first)), first)])
        starts.append(size)
        size += len(inner)
    starts[0] = size
    size += len(values)
    units = np.zeros(size + -size % _FIRST, np.uint32)  # no step leaves it
    units[starts[0] : size] = values | _IS_VALUE
    for level, start in enumerate(starts):
        for at, number in leading[level]:
            at, number = at[number > 0], number[number > 0] - 1
            label = np.where(at < _FIRST, at, 0x80 | at % _REST)
            if level:
                to = start + _REST * number ^ 0x80
            else:
                to, label = start + number, label | _HAS_VALUE
            units[at] = label | (at ^ to) << _OFFSET_BIT
    return units
