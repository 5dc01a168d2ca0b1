"""What is to be drawn of a view: words, and numbers in masks; no inches."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.pictures.attention import seen, text_of
from infoword_tf.pictures.palette import NAMES


class Picture(NamedTuple):
    """What is drawn of a view: one text of it.

    Attributes:
        title: name of the view.
        lines: sentences about it.
        tokens: [T] what is read.
        kinds: [T] name in KINDS of what each token is.
        left_over: [T] bool: no part of a text.
        asked: by place, the word that is asked for there.
        numbers: by place, which one it is in the order of a permutation.
        starts: places whose state stands for a text.
        segments: [T] int, or None.
        blocks: [T] int.
        memory: [M] tokens.
        content: [T, M + T] int, numbers of KINDS.
        queries: [Q, M + T] int, or None.
        queried: [Q] places of the queries.
    """

    title: str
    lines: list[str]
    tokens: list[str]
    kinds: list[str]
    left_over: np.ndarray
    asked: dict[int, str]
    numbers: dict[int, int]
    starts: list[int]
    segments: np.ndarray | None
    blocks: np.ndarray
    memory: list[str]
    content: np.ndarray
    queries: np.ndarray | None
    queried: np.ndarray


_WANTS = {
    'pieces': 'The states at the outlined places are compared with the words '
    'below them.',
    'queries': 'The query states at the outlined places are compared with '
    'their words, in the order of the numbers.',
    'start': 'The state of each [CLS] with a frame stands for its text.',
    'example': 'The state of each [CLS] with a frame stands for its text.',
    'next': 'The state of [CLS] tells whether the second piece of text goes '
    'with the first.',
    'text': 'All states are wanted: a mean of them stands for the text.',
    'around': 'Each word is compared with those of a window around it.',
    'middle': 'The mean of each window is compared with the word in its '
    'middle.',
}
_FOLLOWS = 'Every state is compared with the word that comes next.'


def picture(
    name: str,
    view: Any,
    wants: Mapping[str, str],
    words: Sequence[str],
    specials: Any,
    causal: bool = False,
    memory: Sequence[int] = (),
    number: int = 0,
) -> Picture:
    """What is to be drawn of a view, from its fields alone.

    Args:
        name, view, causal, number: of the view, as in `attention.seen`.
        wants: by row, what it wants of the view (`Row.views`).
        words, specials: [V] the vocabulary, and of it.
        memory: [M] ids of what came before.
    """
    ids = text_of(view.ids, number)
    length = len(ids)
    special = np.isin(ids, (specials.cls_id, specials.sep_id))
    kinds = ['special' if s else 'word' for s in special]
    asked: dict[int, str] = {}
    numbers: dict[int, int] = {}
    starts: list[int] = []
    queried: list[int] = []
    lines = [f'Read by {" and ".join(wants)}.'] if wants else []
    for row, what in wants.items():
        line = _WANTS.get(what, f'{row} wants {what!r}.')
        places = np.zeros(0, int)
        if row in view.places:
            places = text_of(view.places[row], number)
            weights = view.weights.get(row)
            if weights is not None:
                weights = text_of(weights, number)
                if weights.shape == places.shape:
                    places = places[weights > 0]
        if what in ('pieces', 'queries'):
            targets = text_of(view.targets[row], number)
            for place, target in zip(places, targets, strict=False):
                asked[int(place)] = words[target]
                kinds[place] = 'asked'
            if what == 'queries':
                queried = [int(p) for p in places]
        elif row in view.places:
            starts += [int(p) for p in places]
        elif what == 'text' and row in view.targets:
            targets = text_of(view.targets[row], number)
            if len(targets) == length:
                line = _FOLLOWS
                asked |= {i: words[t] for i, t in enumerate(targets)}
        if line not in lines:
            lines.append(line)
    if queried:
        ranks = text_of(view.ranks, number)
        order = sorted(queried, key=lambda place: ranks[place])
        numbers = {place: i for i, place in enumerate(order, 1)}
    if view.directions is not None and view.directions[number] < 0:
        lines.append('This row reads backward.')
    if np.ndim(view.ids) == 3:
        lines.append(
            f'There are {np.shape(view.ids)[1]} of them to a text; this is '
            'the first.'
        )

    blocks = np.zeros(length, int)
    if view.block_ids is not None:
        blocks = text_of(view.block_ids, number)
    # A text of which nothing is wanted is none: padding, or room left over.
    used = blocks[[*asked, *starts]] if asked or starts else blocks[:1]
    left_over = ~np.isin(blocks, used)

    content, queries = _masks(
        view, number, causal, len(memory), kinds, np.array(queried, int)
    )
    segments = None
    if view.segment_ids is not None:
        segments = text_of(view.segment_ids, number)
    return Picture(
        title=name,
        lines=lines,
        tokens=[words[i] for i in ids],
        kinds=kinds,
        left_over=left_over,
        asked=asked,
        numbers=numbers,
        starts=sorted(set(starts)),
        segments=segments,
        blocks=blocks,
        memory=[words[i] for i in memory],
        content=content,
        queries=queries,
        queried=np.array(queried, int),
    )


def _masks(
    view: Any,
    number: int,
    causal: bool,
    memory: int,
    kinds: Sequence[str],
    queried: np.ndarray,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Numbers of KINDS [T, M + T] and, if any place is queried, [Q, M + T]."""
    column = np.array(
        [NAMES.index('memory')] * memory
        + [NAMES.index(kind) for kind in kinds]
    )
    content = np.where(seen(view, number, causal, memory), column, 0)
    place = np.arange(len(kinds))
    own = content[place, memory + place]
    content[place, memory + place] = np.where(own > 0, NAMES.index('self'), 0)
    if not len(queried):
        return content, None
    allowed = seen(view, number, causal, memory, queried)
    queries = np.where(allowed, column, 0)
    row, own = np.arange(len(queried)), memory + queried
    queries[row, own] = np.where(
        allowed[row, own], queries[row, own], NAMES.index('blind')
    )
    return content, queries
