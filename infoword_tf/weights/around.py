"""What a public tokenizer puts around texts, as a layout, and back.

A tokenizer.json says it by its `post_processor`; without that file the class
of the tokenizer decides.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from infoword_tf.config import SPECIAL, EncoderConfig, Layout
from infoword_tf.text.layout import LAYOUTS, layout_of
from infoword_tf.text.tokenizer import Tokenizer

# Of a row: an id, or the name of a text; and its segment.
Entry = tuple[int | str, int]


class Around(NamedTuple):
    """A text, 'A', and two, 'A' and 'B', with all ids beside them."""

    one: tuple[Entry, ...]
    two: tuple[Entry, ...]


NOTHING = Around((('A', 0),), (('A', 0), ('B', 1)))


def parsed(described: Mapping[str, Any] | None, where: str) -> Around:
    """Tokens and segments that a post-processor puts around texts.

    Raises:
        ValueError: it is of a type that is not known, or several are in a row.
    """
    if described is None:
        return NOTHING
    kind = described.get('type')
    if kind == 'ByteLevel':
        return NOTHING
    if kind == 'Sequence':
        steps = [parsed(step, where) for step in described['processors']]
        steps = [step for step in steps if step != NOTHING]
        if len(steps) > 1:
            raise ValueError(
                f'{where} puts tokens around a text {len(steps)} times in a '
                'row (post_processor); once is what can be kept'
            )
        return steps[0] if steps else NOTHING
    if kind in ('BertProcessing', 'RobertaProcessing'):
        cls, sep = ((described[name][1], 0) for name in ('cls', 'sep'))
        one = cls, ('A', 0), sep
        if kind == 'RobertaProcessing':
            return Around(one, (*one, sep, ('B', 0), sep))
        return Around(one, (*one, ('B', 1), (sep[0], 1)))
    if kind != 'TemplateProcessing':
        raise ValueError(
            f'{where} has a post_processor of the type {kind!r}; known are '
            'TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel '
            'and Sequence'
        )
    ids = {
        name: token['ids']
        for name, token in (described.get('special_tokens') or {}).items()
    }

    def entries(template: Iterable[Mapping[str, Any]]) -> Iterable[Entry]:
        for part in template:
            if (text := part.get('Sequence')) is not None:
                yield text['id'], text['type_id']
            else:
                special = part['SpecialToken']
                for number in ids[special['id']]:
                    yield number, special['type_id']

    return Around(
        tuple(entries(described['single'])), tuple(entries(described['pair']))
    )


def without_segments(around: Around) -> Around:
    """Gives all tokens segment 0."""
    return Around(*(tuple((x, 0) for x, _ in row) for row in around))


def layout_by(
    around: Around,
    tokenizer: Tokenizer,
    usual: str,
    encoder: EncoderConfig,
    where: str,
) -> str | Layout:
    """Makes the layout for an encoder of what stands around texts.

    Args:
        around: what it puts around texts.
        tokenizer: ours, of the same ids.
        usual: name of the layout that texts of this architecture usually have;
            it says which state is the pooled one.
        encoder: that reads them; without segments nothing depends on theirs.
        where: for complaints.

    Returns:
        A name in LAYOUTS, where one of them is the same.

    Raises:
        ValueError: it has no place in a `Layout`.
    """
    knows = encoder.arguments.get('segments', 0) > 1
    if not knows:
        around = without_segments(around)
    first = LAYOUTS[usual].first
    layout = _layout(around, tokenizer, first, where)
    # What our own rows put behind a text of GPT is no public tokenizer's.
    names = () if usual == 'end' else (usual, *LAYOUTS)
    for name in names:
        known = LAYOUTS[name]
        same = entries(known, tokenizer)
        if not knows:
            same = without_segments(same)
        if same == around and known.first == first:
            return name
    return layout


def _layout(
    around: Around, tokenizer: Tokenizer, first: bool, where: str
) -> Layout:
    one, two = around
    texts = [name for name, _ in one if isinstance(name, str)]
    pair = [name for name, _ in two if isinstance(name, str)]
    if (texts, pair) != (['A'], ['A', 'B']):
        raise ValueError(
            f'{where} lays a text out as {texts} and two as {pair} '
            '(post_processor); only A, and A before B, can be kept'
        )
    names = [name for name, _ in one]
    at = names.index('A')
    both = [name for name, _ in two]
    a, b = both.index('A'), both.index('B')
    parts = one[:at], one[at + 1 :], two[:a], two[a + 1 : b], two[b + 1 :]
    before, after, before_two, between, after_two = (
        tuple(_name(number, tokenizer, place) for number, _ in part)
        for place, part in enumerate(parts)
    )
    second = two[b][1]
    # Which segment the last token has, where it is not that of its text.
    lasts = [
        rest[-1][1]
        for rest, text in ((parts[1], 0), (parts[4], second))
        if rest and rest[-1][1] != text
    ]
    layout = Layout(
        before,
        after,
        lasts[0] if lasts else None,
        first,
        between,
        second,
        None
        if (before, after) == (before_two, after_two)
        else (before_two, after_two),
    )
    if entries(layout, tokenizer) != around:
        raise ValueError(
            f'{where} gives segments (type_id of its post_processor) other '
            'than 0 to a text and what is before it, one to a second text and '
            'what is after it, and one to the last token; that cannot be kept'
        )
    return layout


def _name(number: int, tokenizer: Tokenizer, place: int) -> str:
    """Names a token as layouts do; several specials may be one token."""
    ids = tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id
    known = dict(zip(SPECIAL, ids, strict=True))
    order = SPECIAL if place in (0, 2) else ('sep', 'cls', 'mask')
    for name in order:
        if known[name] == number:
            return name
    return tokenizer.vocabulary[number]


def entries(layout: Layout, tokenizer: Tokenizer) -> Around:
    """Describes a layout in the form that `parsed` returns."""
    ids = {
        'cls': tokenizer.cls_id,
        'sep': tokenizer.sep_id,
        'mask': tokenizer.mask_id,
    }

    def marks(tokens: Sequence[str], segment: int = 0) -> list[Entry]:
        spelled = tokenizer.vocabulary.index
        return [(ids[x] if x in ids else spelled(x), segment) for x in tokens]

    def ended(row: list[Entry]) -> tuple[Entry, ...]:
        if layout.last_segment is not None and not isinstance(row[-1][0], str):
            row = [*row[:-1], (row[-1][0], layout.last_segment)]
        return tuple(row)

    begin, end = layout.two
    second = layout.second_segment
    return Around(
        ended([*marks(layout.before), ('A', 0), *marks(layout.after)]),
        ended(
            [
                *marks(begin),
                ('A', 0),
                *marks(layout.between),
                ('B', second),
                *marks(end, second),
            ]
        ),
    )


def processor(layout: str | Layout, tokenizer: Tokenizer) -> Any:
    """Makes the post-processor of `tokenizers` for a layout."""
    from tokenizers import processors

    rows = entries(layout_of(layout), tokenizer)
    names = tokenizer.vocabulary
    return processors.TemplateProcessing(
        *(
            [f'{f"${x}" if isinstance(x, str) else names[x]}:{segment}'
             for x, segment in row]
            for row in rows
        ),
        special_tokens=sorted(
            {
                (names[x], x)
                for row in rows
                for x, _ in row
                if not isinstance(x, str)
            }
        ),
    )  # fmt: skip
