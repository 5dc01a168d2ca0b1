"""Special tokens around texts: post-processors of tokenizers, and layouts.

A tokenizer.json says it by its `post_processor`; without that file the class
of the tokenizer decides.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from infoword_tf import errors
from infoword_tf.config import SPECIAL, EncoderConfig, Layout
from infoword_tf.text import layout as layouts
from infoword_tf.text.layout import LAYOUTS
from infoword_tf.text.tokenizer import TextTokenizer

# An id, or the name of a text; and the segment.
Entry = tuple[int | str, int]


class PostProcessor(NamedTuple):
    """Entries of a sequence with one text, 'A', and of one with 'A' and 'B'."""

    one: tuple[Entry, ...]
    two: tuple[Entry, ...]

    def without_segments(self) -> 'PostProcessor':
        """Gives all tokens segment 0."""
        return PostProcessor(
            *(tuple((x, 0) for x, _ in entries) for entries in self)
        )


NOTHING = PostProcessor((('A', 0),), (('A', 0), ('B', 1)))


def read(described: Mapping[str, Any] | None, where: str) -> PostProcessor:
    """Reads the post-processor of a tokenizer.json.

    Raises:
        ValueError: an unknown type, or several in a row.
    """
    if described is None:
        return NOTHING
    kind = described.get('type')
    if kind == 'ByteLevel':
        return NOTHING
    if kind == 'Sequence':
        steps = [read(step, where) for step in described['processors']]
        steps = [step for step in steps if step != NOTHING]
        if len(steps) > 1:
            raise errors.InputError(
                'several_post_processors',
                f'{where} puts tokens around a text {len(steps)} times in a '
                'row (post_processor); once is what can be kept',
            )
        return steps[0] if steps else NOTHING
    if kind in ('BertProcessing', 'RobertaProcessing'):
        cls, sep = ((described[name][1], 0) for name in ('cls', 'sep'))
        one = cls, ('A', 0), sep
        if kind == 'RobertaProcessing':
            return PostProcessor(one, (*one, sep, ('B', 0), sep))
        return PostProcessor(one, (*one, ('B', 1), (sep[0], 1)))
    if kind != 'TemplateProcessing':
        raise errors.InputError(
            'unknown_post_processor',
            f'{where} has a post_processor of the type {kind!r}; known are '
            'TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel '
            'and Sequence',
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

    return PostProcessor(
        tuple(entries(described['single'])), tuple(entries(described['pair']))
    )


def layout_for(
    post_processor: PostProcessor,
    tokenizer: TextTokenizer,
    usual: str,
    encoder: EncoderConfig,
    where: str,
) -> str | Layout:
    """Makes the layout of a post-processor.

    Args:
        post_processor: part of a public tokenizer.
        tokenizer: tokenizer of this project, with the same ids.
        usual: name of the layout that texts of this architecture usually have;
            it says which state is the pooled one.
        encoder: without segments those of the post-processor do not matter.
        where: the file, for errors.

    Returns:
        A name in LAYOUTS, if one of them is equal.

    Raises:
        ValueError: no `Layout` is equal.
    """
    has_segments = encoder.arguments.get('segments', 0) > 1
    if not has_segments:
        post_processor = post_processor.without_segments()
    first = LAYOUTS[usual].first
    layout = _layout(post_processor, tokenizer, first, where)
    # A public GPT puts nothing after a text, so `end` has no counterpart.
    names = () if usual == 'end' else (usual, *LAYOUTS)
    for name in names:
        known = LAYOUTS[name]
        same = of_layout(known, tokenizer)
        if not has_segments:
            same = same.without_segments()
        if same == post_processor and known.first == first:
            return name
    return layout


def _layout(
    post_processor: PostProcessor,
    tokenizer: TextTokenizer,
    first: bool,
    where: str,
) -> Layout:
    one, two = post_processor
    texts = [name for name, _ in one if isinstance(name, str)]
    pair = [name for name, _ in two if isinstance(name, str)]
    if (texts, pair) != (['A'], ['A', 'B']):
        raise errors.InputError(
            'post_processor_texts',
            f'{where} formats a text as {texts} and two as {pair} '
            '(post_processor); only A, and A before B, can be kept',
        )
    at = [name for name, _ in one].index('A')
    both = [name for name, _ in two]
    a, b = both.index('A'), both.index('B')
    stretches = one[:at], one[at + 1 :], two[:a], two[a + 1 : b], two[b + 1 :]
    before, after, before_two, between, after_two = (
        tuple(
            _name(number, tokenizer, place)
            for number, _ in stretch
            if not isinstance(number, str)
        )
        for place, stretch in enumerate(stretches)
    )
    second = two[b][1]
    # The segment of the last token, where it is not that of the text.
    lasts = [
        rest[-1][1]
        for rest, text in ((stretches[1], 0), (stretches[4], second))
        if rest and rest[-1][1] != text
    ]
    same = (before, after) == (before_two, after_two)
    layout = Layout(
        before,
        after,
        last_segment=lasts[0] if lasts else None,
        first=first,
        between=between,
        second_segment=second,
        around_two=None if same else (before_two, after_two),
    )
    if of_layout(layout, tokenizer) != post_processor:
        raise errors.InputError(
            'post_processor_segments',
            f'{where} gives segments (type_id of its post_processor) other '
            'than 0 to a text and what is before it, one to a second text and '
            'what is after it, and one to the last token; that cannot be kept',
        )
    return layout


def _name(number: int, tokenizer: TextTokenizer, place: int) -> str:
    """Names a token as layouts do; several specials may be one token."""
    ids = tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id
    known = dict(zip(SPECIAL, ids, strict=True))
    order = SPECIAL if place in (0, 2) else ('sep', 'cls', 'mask')
    for name in order:
        if known[name] == number:
            return name
    return tokenizer.vocabulary[number]


def of_layout(layout: Layout, tokenizer: TextTokenizer) -> PostProcessor:
    """Makes the post-processor of a layout."""
    ids = {
        'cls': tokenizer.cls_id,
        'sep': tokenizer.sep_id,
        'mask': tokenizer.mask_id,
    }

    def specials(tokens: Sequence[str], segment: int = 0) -> list[Entry]:
        index = tokenizer.vocabulary.index
        return [(ids[x] if x in ids else index(x), segment) for x in tokens]

    def ended(entries: list[Entry]) -> tuple[Entry, ...]:
        last = entries[-1][0]
        if layout.last_segment is not None and not isinstance(last, str):
            entries = [*entries[:-1], (last, layout.last_segment)]
        return tuple(entries)

    begin, end = layout.two
    second = layout.second_segment
    one = [*specials(layout.before), ('A', 0), *specials(layout.after)]
    two = [*specials(begin), ('A', 0), *specials(layout.between)]
    two += [('B', second), *specials(end, second)]
    return PostProcessor(ended(one), ended(two))


def write(layout: str | Layout, tokenizer: TextTokenizer) -> Any:
    """Makes the post-processor of the library `tokenizers` for a layout."""
    from tokenizers import processors

    templates = []
    ids: set[int] = set()
    for entries in of_layout(layouts.layout_of(layout), tokenizer):
        names = [
            f'${x}' if isinstance(x, str) else tokenizer.vocabulary[x]
            for x, _ in entries
        ]
        segments = [segment for _, segment in entries]
        templates.append(list(map('{}:{}'.format, names, segments)))
        ids.update(x for x, _ in entries if not isinstance(x, str))
    single, pair = templates
    return processors.TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=sorted((tokenizer.vocabulary[x], x) for x in ids),
    )
