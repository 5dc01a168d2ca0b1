"""BERT's normalisation as Hugging Face's `tokenizers` does it, in the graph.

`FastBertNormalize` of tensorflow_text maps each code point by a table. Its
default table folds case and deletes too much, so `fit` makes one by asking
`tokenizers` about every code point:

    BertNormalizer    what a code point becomes: controls are dropped, Chinese
                      characters set apart, accents stripped, case lowered
    BertPreTokenizer  which are spaces, and which are words by themselves

The tokenizer of tensorflow_text then splits text once more, by the classes of
its ICU. The table guards against differences: a character that ICU would not
split off gets spaces around it, and one that ICU alone would split off (most
are younger than the tables of `tokenizers`) is spelled with a private
character, in tokens as in text. So no text depends on the ICU of a server.

One thing is no function of a code point: NFD, by which accents are stripped,
also sorts marks in a row. Most marks are dropped. Spacing marks and marks
younger than the tables stay, and keep an order other than NFD's.

Glossary of shapes: S bytes, U units of a trie.
"""

import base64
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
from infoword_tf.text.tokenizer import UNK

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

# Values of the trie: a flag, the place of the form in the pool, its bytes.
_CHANGED = 1 << 30
_LENGTH_BITS = 6
# Units of the trie (github.com/s-yata/darts-clone): the byte that leads to the
# unit, whether it has a value, and the offset to its children.
_HAS_VALUE = 1 << 8
_OFFSET_BIT = 10
_IS_VALUE = 1 << 31
_FIRST, _REST = 256, 64  # how many bytes begin a character, and go on with it
# What begins characters of two bytes and more, and the first of those.
_LEADS = (0xC0, 0x80), (0xE0, 0x800), (0xF0, 0x10000)


class Normalization(NamedTuple):
    """The options of BertNormalizer.

    Attributes:
        lower_case: lower-case each letter by itself: no final sigma.
        strip_accents: decompose and drop marks; None: as `lower_case`.
        chinese_characters: each is a word of its own.
        clean: drop controls; all spaces are blanks.
    """

    lower_case: bool = True
    strip_accents: bool | None = None
    chinese_characters: bool = True
    clean: bool = True


class _Classes(NamedTuple):
    """Characters that split words: spaces and marks are of `tokenizers`,
    `split_off` of tensorflow_text.
    """

    spaces: frozenset[str]
    marks: frozenset[str]
    split_off: frozenset[str]


def fit(
    normalization: Normalization, vocabulary: Sequence[str]
) -> tuple[np.ndarray, list[str]]:
    """Makes tensorflow_text agree with `tokenizers`.

    Returns:
        The model for `FastBertNormalizer`, [S] uint8, and the vocabulary as it
        is spelled in text that this model has normalised.
    """
    known = frozenset().union(*vocabulary)
    model, spelling = _cached_fit(
        normalization,
        known & _cached_hidden(normalization),
        frozenset(c for c in known if any(ord(c) in r for r in _PRIVATE)),
    )
    characters = str.maketrans(spelling)
    return model, [token.translate(characters) for token in vocabulary]


def _cached(
    make: Callable[[], dict[str, np.ndarray]], *decided_by: Any
) -> dict[str, np.ndarray]:
    """Returns `make()`, or the tensors that an earlier process cached.

    To ask about every code point takes most of a second, and the answers are
    those of the versions that are installed. A cache that cannot be written,
    or is damaged, costs that second.
    """
    versions = [metadata.version(x) for x in ('tokenizers', 'tensorflow-text')]
    code = files.digest_of(pathlib.Path(__file__))
    key = json.dumps([code, *versions, *decided_by]).encode()
    name = hashlib.blake2b(key, digest_size=10).hexdigest()
    path = files.cache_dir() / 'normalization' / f'{name}.safetensors'
    with contextlib.suppress(OSError, ValueError):
        return files.read_tensors(path)
    tensors = make()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_tensors(path, tensors)
    return tensors


def _codes(characters: Iterable[str]) -> np.ndarray:
    return np.array([ord(c) for c in characters], np.int32)


@functools.cache
def _cached_hidden(normalization: Normalization) -> frozenset[str]:
    tensors = _cached(
        lambda: {'hidden': _codes(sorted(_hidden(normalization)))},
        normalization,
    )
    return frozenset(map(chr, tensors['hidden'].tolist()))


@functools.lru_cache(maxsize=8)
def _cached_fit(
    normalization: Normalization, spelled: frozenset[str], used: frozenset[str]
) -> tuple[np.ndarray, dict[str, str]]:
    def make() -> dict[str, np.ndarray]:
        model, spelling = _fit(normalization, spelled, used)
        return {
            'model': model,
            'from': _codes(spelling),
            'to': _codes(spelling.values()),
        }

    tensors = _cached(make, normalization, sorted(spelled), sorted(used))
    both = (map(chr, tensors[name].tolist()) for name in ('from', 'to'))
    return tensors['model'], dict(zip(*both, strict=True))


def _hidden(normalization: Normalization) -> frozenset[str]:
    """Returns the characters that tensorflow_text must not see."""
    _, chinese = _forms(normalization)
    spaces, marks, split_off = _classes()
    return spaces | split_off - marks - chinese


def _fit(
    normalization: Normalization, spelled: frozenset[str], used: frozenset[str]
) -> tuple[np.ndarray, dict[str, str]]:
    """Computes the model and the private characters for `spelled`, but none of
    `used`, which the vocabulary has.
    """
    forms, chinese = _forms(normalization)
    spaces, marks, split_off = _classes()
    apart = marks | chinese
    unseen = apart - split_off
    joined = split_off - apart - spaces
    private = (c for c in _private() if c not in used)
    unknown = next(private)  # no token has it, so its word is [UNK]
    # No text spells a space like this, so tokens that have one stay unused.
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
    # An entry costs time even where nothing changes, a blank above all.
    return _model(_changes(table)), spelling


def _changes(forms: Mapping[str, str]) -> dict[str, str]:
    return {c: form for c, form in forms.items() if c != form}


def spaced_forms(normalization: Normalization) -> dict[str, str]:
    """Maps characters to normal forms, for programs that look each one up.

    Words then end at blanks and nowhere else: characters that are words by
    themselves have blanks around them. Others that do not change are left out.
    """
    forms, chinese = _forms(normalization)
    spaces, marks, _ = _classes()
    apart = marks | chinese

    def spell(character: str) -> str:
        if character in spaces:
            return ' '
        return f' {character} ' if character in apart else character

    spelled = {c: spell(c) for c in spaces | apart}
    spelled.update((c, ''.join(map(spell, forms[c]))) for c in forms)
    return _changes(spelled)


@functools.lru_cache(maxsize=8)
def spaced_model(normalization: Normalization) -> np.ndarray:
    """Returns a `FastBertNormalizer` model of `spaced_forms`, [S] uint8."""
    return _model(spaced_forms(normalization))


@functools.lru_cache(maxsize=8)
def steps_model(steps: str) -> np.ndarray:
    """Returns a model for `FastBertNormalizer` of normalizers of a
    tokenizer.json, a list as JSON, by what becomes of single characters, [S]
    uint8.
    """

    def make() -> dict[str, np.ndarray]:
        forms = _forms_by(normalizer_of(json.loads(steps)))
        return {'model': _model(_changes(forms))}

    digest = hashlib.blake2b(steps.encode(), digest_size=16).hexdigest()
    return _cached(make, digest)['model']


def normalizer_of(steps: Sequence[Mapping[str, Any]]) -> Any:
    """Makes a normalizer of the library `tokenizers` of steps of a
    tokenizer.json.
    """
    import tokenizers

    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    described = json.loads(tokenizer.to_str())
    described['normalizer'] = {'type': 'Sequence', 'normalizers': list(steps)}
    return tokenizers.Tokenizer.from_str(json.dumps(described)).normalizer


def precompiled(charsmap: bytes) -> dict[str, str]:
    """Describes a table of SentencePiece as a step of a tokenizer.json."""
    text = base64.b64encode(charsmap).decode()
    return {'type': 'Precompiled', 'precompiled_charsmap': text}


@functools.lru_cache(maxsize=8)
def bert_model(normalization: Normalization) -> np.ndarray:
    """Returns a `FastBertNormalizer` model of `bert_forms`, [S] uint8."""
    return _model(bert_forms(normalization))


def bert_forms(normalization: Normalization) -> dict[str, str]:
    """Maps characters to output of `BertNormalizer`, with blanks around
    Chinese characters.
    """
    forms, chinese = _forms(normalization)
    return {
        c: f' {form} ' if form in chinese else form
        for c, form in {**{c: c for c in chinese}, **forms}.items()
    }


def _characters() -> list[str]:
    """Lists the characters about which `tokenizers` is asked."""
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
    """Maps characters to output of BertNormalizer, without the spaces around
    Chinese characters; returns also the latter.
    """
    from tokenizers import normalizers

    normalizer = normalizers.BertNormalizer(
        lowercase=normalization.lower_case,
        strip_accents=normalization.strip_accents,
        handle_chinese_chars=normalization.chinese_characters,
        clean_text=normalization.clean,
    )
    forms = _forms_by(normalizer)
    chinese = set()
    for character, form in forms.items():
        if len(form) == 3 and form[0] == form[2] == ' ':
            forms[character] = form[1]
            chinese.add(form[1])
    if not forms[chr(_PRIVATE[0][0])]:
        forms.update(dict.fromkeys(_private(), ''))
    return _changes(forms), frozenset(chinese)


def _forms_by(normalizer: Any) -> dict[str, str]:
    """Maps characters to forms by a normalizer of `tokenizers`."""
    characters = _characters()
    # The snowmen between characters keep NFD from sorting marks.
    normal = normalizer.normalize_str(_SNOWMAN.join(characters))
    return dict(zip(characters, normal.split(_SNOWMAN), strict=True))


@functools.cache
def _classes() -> _Classes:
    """Asks both libraries, with a letter before and after each character."""
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
    tokenizer = tf_text.FastWordpieceTokenizer([UNK, 'a'])
    # These have other meanings to that tokenizer, and no token has them.
    controls = frozenset(map(chr, range(32)))
    characters = [c for c in characters if c not in controls]
    text = 'a'.join(['', *characters, ''])
    _, begins, _ = tokenizer.tokenize_with_offsets([text])
    lengths = [len(c.encode()) + 1 for c in characters]
    split_off = np.isin(np.cumsum(lengths), begins.values)
    return _Classes(
        frozenset(spaces),
        frozenset(marks),
        controls.union(itertools.compress(characters, split_off)),
    )


def _model(table: Mapping[str, str]) -> np.ndarray:
    """Writes a FastBertNormalizerModel (.fbs) of characters that change, [S]
    uint8.
    """
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
        16,  # the table begins there, after the places of its fields:
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
    """Builds a double array of darts-clone from UTF-8 to values: [U] uint32.

    Units 0 to 255 are the root's children, the bytes that begin characters;
    children of other nodes are blocks of 64, and equal blocks are one. Values
    stand after all blocks.
    """
    # By level: the units that lead there with the numbers of their blocks,
    # from 1, and where blocks begin. A block of level 0 is a value.
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
