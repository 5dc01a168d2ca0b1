"""Labels of words, and the spans that they spell.

    IOB1    I-PER I-PER O I-LOC B-LOC    B- where a span follows its like
    IOB2    B-PER I-PER O B-LOC B-LOC    B- at the beginning of every span
    BIOES   B-PER E-PER O S-LOC S-LOC    also its end, or both (Lample et al.
                                         2016, §4.3); L- and U- mean the same,
                                         M- (BMES) is I-

(Ramshaw & Marcus 1995; Tjong Kim Sang & Veenstra 1999.) A span begins where
conlleval says so (Tjong Kim Sang & De Meulder 2003): at B-, after an end, and
where the type changes. Labels without such beginnings, as of parts of speech,
label each word for itself. O is no label. `hyphened` spells B_PER, PER-B and
b-per as B-PER.

Glossary of shapes: n words, C labels, S spans.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import errors

NONE = 'O'
IOB1, IOB2, BIOES = SCHEMES = ('iob1', 'iob2', 'bioes')
_BEGINS, _ENDS = 'BSU', 'ESL'
_PARTS = f'{_BEGINS}{_ENDS}IM'
_LABEL = re.compile(rf'([{_PARTS}])-(.+)', re.DOTALL)
# Other ways to write B-PER: part and type.
_OTHERS = (
    re.compile(rf'(?P<part>[{_PARTS}])_(?P<kind>.+)'),
    re.compile(rf'(?P<kind>.+)[-_](?P<part>[{_PARTS}])'),
    re.compile(rf'(?P<part>[{_PARTS.lower()}])[-_](?P<kind>.+)'),
)


def hyphened(labels: Collection[str]) -> dict[str, str]:
    """Spells labels of spans as B-PER that are written in another way.

    Args:
        labels: all labels of a file.

    Returns:
        Spellings by label; {} unless O stands beside beginnings of spans that
        are all written in one of these ways: B_PER, PER-B, PER_B, b-per, b_per.
    """
    others = [x for x in labels if x not in (NONE, NONE.lower())]
    if len(others) == len(labels) or marks_spans(others):
        return {}
    for way in _OTHERS:
        parts = [x for label in others if (x := way.fullmatch(label))]
        if len(parts) == len(others) and any(
            x['part'].upper() == 'B' for x in parts
        ):
            spelled = (f'{x["part"].upper()}-{x["kind"]}' for x in parts)
            spellings = dict(zip(others, spelled, strict=True))
            return spellings | {x: NONE for x in labels if x not in others}
    return {}


class Kinds(NamedTuple):
    """Types, beginnings and ends of spans, of C labels.

    Attributes:
        types: names of types of spans.
        numbers: [C] int32, the type of each label; -1: none.
        begins, ends: [C] bool, whether a span begins, or ends, at a word.
    """

    types: tuple[str, ...]
    numbers: np.ndarray
    begins: np.ndarray
    ends: np.ndarray


def marks_spans(labels: Sequence[str]) -> bool:
    """Tells whether labels are of spans, in one of SCHEMES."""
    others = [label for label in labels if label != NONE]
    return bool(others) and all(map(_LABEL.fullmatch, others))


def marks_ends(labels: Sequence[str]) -> bool:
    """Tells whether labels are of spans in BIOES."""
    return marks_spans(labels) and any(label[0] in 'ES' for label in labels)


def kinds_of(labels: Sequence[str], simple: bool = False) -> Kinds:
    """Reads C labels.

    Args:
        labels: their names.
        simple: whether words are tokens, and spans those of transformers'
            `aggregation_strategy='simple'`: B- alone begins a span, and equal
            labels of neighbours are one.
    """
    parted, spans = [], marks_spans(labels)
    for label in labels:
        match = _LABEL.fullmatch(label)
        if label == NONE:
            parted.append(('', NONE))
        elif match and (match[1] in 'BI' if simple else spans):
            parted.append((match[1], match[2]))
        else:
            parted.append(('I' if simple else 'S', label))
    types = tuple(dict.fromkeys(kind for _, kind in parted if kind != NONE))
    return Kinds(
        types,
        np.array([types.index(kind) if kind != NONE else -1
                  for _, kind in parted], np.int32),
        np.array([part != '' and part in _BEGINS for part, _ in parted], bool),
        np.array([part != '' and part in _ENDS for part, _ in parted], bool),
    )  # fmt: skip


def begin_spans(
    numbers: Any, before: Any, begins: Any, ended: Any, first: Any
) -> Any:
    """Tells at which words a span begins: arrays or tensors, [n] bool.

    Args:
        numbers, begins: fields of `Kinds` of each word's label.
        before, ended: `numbers` and `ends` of the label of the word before.
        first: whether a word is the first of its text.
    """
    return (numbers >= 0) & (begins | ended | first | (numbers != before))


def spans(labels: np.ndarray, first: np.ndarray, kinds: Kinds) -> np.ndarray:
    """Finds the spans of labelled words.

    Args:
        labels: [n] int, numbers of labels.
        first: [n] bool, the first words of texts.
        kinds: types of the labels.

    Returns:
        [S, 3] int64: first word, the one after the last, type.
    """
    numbers = kinds.numbers[labels]
    begins = begin_spans(
        numbers,
        before=np.roll(numbers, 1),
        begins=kinds.begins[labels],
        ended=np.roll(kinds.ends[labels], 1),
        first=first,
    )
    begin = np.flatnonzero(begins)
    # A span goes on to the next word that begins one, or has no type.
    stops = np.flatnonzero(np.append(begins | (numbers < 0), True))
    end = stops[np.searchsorted(stops, begin, 'right')]
    return np.stack([begin, end, numbers[begin]], axis=1).astype(np.int64)


def with_ends(
    numbers: np.ndarray, first: np.ndarray, labels: Sequence[str]
) -> np.ndarray:
    """Spells labels of words in BIOES, where that is the scheme of all labels.

    The label of a word may be that of a part of the word, such as its first
    token, which does not end a span that ends with the word.

    Args:
        numbers: [n] int, numbers of labels.
        first: [n] bool, the first words of texts.
        labels: names.
    """
    if not marks_ends(labels):
        return numbers
    kinds = kinds_of(labels)
    begin, end, kind = spans(numbers, first, kinds).T
    number = {label: i for i, label in enumerate(labels)}
    of_part = np.array([
        [number.get(f'{part}-{name}', 0) for part in 'BIES']
        for name in kinds.types
    ]).reshape(-1, 4)  # fmt: skip
    sizes = end - begin
    span = np.repeat(np.arange(len(begin)), sizes)
    place = np.arange(len(span)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    part = np.where(place == 0, 0, 1)
    part = np.where(place == sizes[span] - 1, 2, part)
    part = np.where(sizes[span] == 1, 3, part)
    spelled_anew = np.full(len(numbers), number.get(NONE, 0))
    spelled_anew[begin[span] + place] = of_part[kind[span], part]
    return spelled_anew


def scheme_of(tags: Sequence[Sequence[str]], where: Sequence[str]) -> str:
    """Finds the scheme of the tags of texts; '' if tags mark no spans.

    Args:
        tags: labels of the words of each text.
        where: the place of each text, for complaints.

    Raises:
        ValueError: labels are of no scheme, or a span of BIOES has no end, or
            no beginning.
    """
    names = {tag for text in tags for tag in text}
    parts = {x: match[1] for x in names if (match := _LABEL.fullmatch(x))}
    others = sorted(names - parts.keys() - {NONE})
    if not any(part in 'BI' for part in parts.values()):
        return ''
    if others:
        place = next(
            f'{at}, word {number}'
            for text, at in zip(tags, where, strict=True)
            for number, tag in enumerate(text, 1)
            if tag == others[0]
        )
        raise errors.InputError(
            'tags_of_no_scheme',
            f'{place}: {others[0]!r} stands beside {min(parts)!r}; '
            'labels of spans all begin with B- or I- (IOB), perhaps with E- '
            'and S- (BIOES) or M- (BMES), but for O',
        )
    if set('ESLUM').intersection(parts.values()):
        for text, at in zip(tags, where, strict=True):
            _check_ends(text, at)
        return BIOES
    # In IOB2 no span begins with I-; in IOB1 B- follows a span of its type.
    kinds = {True: 0, False: 0}
    for text in tags:
        before = NONE
        for tag in text:
            after = before[2:] == tag[2:] and before != NONE
            if tag[0] == 'I' and not after:
                kinds[True] += 1
            if tag[0] == 'B' and not after:
                kinds[False] += 1
            before = tag
    return IOB1 if kinds[True] > kinds[False] else IOB2


def _check_ends(text: Sequence[str], where: str) -> None:
    """Raises ValueError for spans of BIOES without a beginning or an end."""
    inside = None  # the type of a span that has begun
    for number, tag in enumerate([*text, NONE], 1):
        part, kind = ('', None) if tag == NONE else (tag[0], tag[2:])
        goes_on = part in ('I', 'M', 'E', 'L')
        if goes_on != (inside is not None) or (goes_on and kind != inside):
            place = f'{where}, word {min(number, len(text))}'
            what = (
                f'{tag!r} without a beginning' if inside is None
                else f'the span of {inside!r} has no end before {tag!r}'
            )  # fmt: skip
            raise errors.InputError(
                'tags_without_end',
                f'{place}: {what}; in BIOES a span of several words begins '
                'with B- and ends with E-',
            )
        inside = kind if part in ('B', 'I', 'M') else None


def spelled(text: Sequence[str], scheme: str) -> list[str]:
    """Spells the spans of a text's tags, in any scheme, in another one."""
    labels = sorted({*text})
    kinds = kinds_of(labels)
    numbers = np.array([labels.index(tag) for tag in text], np.int64)
    first = np.arange(len(text)) == 0
    tags, last = [NONE] * len(text), (-1, -1)
    for begin, end, number in spans(numbers, first, kinds).tolist():
        kind = kinds.types[number]
        parts = ['I'] * (end - begin)
        if scheme != IOB1 or last == (begin, number):
            parts[0] = 'B'
        if scheme == BIOES:
            parts[-1] = 'E' if end - begin > 1 else 'S'
        tags[begin:end] = [f'{part}-{kind}' for part in parts]
        last = end, number
    return tags
