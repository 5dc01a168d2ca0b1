"""Pictures of views: the tokens as they are read, and who sees whom.

Drawn from what an encoder is given, the fields of a view, whatever view it
is: above the tokens, with what is asked for below them; under them the masks
of attention, in which a row is a token that looks and a column what it may
look at. `show.py` is the command.

Glossary of shapes: B texts, T tokens, M tokens of memory, Q tokens that look,
V vocabulary.
"""

import pathlib
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


def text_of(x: Any, number: int = 0) -> np.ndarray:
    """One text of a field of a view: [T] of [B, T], the first of [B, K, T]."""
    x = np.asarray(x)[number]
    return x if x.ndim == 1 else x[0]


def seen(
    view: Any,
    number: int = 0,
    causal: bool = False,
    memory: int = 0,
    queries: np.ndarray | None = None,
) -> np.ndarray:
    """What the tokens of one text may look at.

    Args:
        view: a `views.View`.
        number: which text of the batch.
        causal: whether the encoder looks back alone.
        memory: M, which all tokens see.
        queries: [Q] places of the query stream; None: all tokens, of the
            content stream.

    Returns:
        [Q or T, M + T] bool.
    """
    length = len(text_of(view.ids, number))
    places = np.arange(length)
    looking = places if queries is None else np.asarray(queries)
    allowed = np.ones((len(looking), length), bool)
    if view.block_ids is not None:
        block = text_of(view.block_ids, number)
        allowed &= block[looking, None] == block
    if causal:
        allowed &= places <= looking[:, None]
    if view.ranks is not None:
        ranks, sees = (text_of(x, number) for x in (view.ranks, view.sees))
        before = sees[looking, None] > ranks
        if queries is None:
            before |= looking[:, None] == places
        allowed &= before
    return np.hstack([np.ones((len(looking), memory), bool), allowed])


# ----------------------------------------------------------------- the picture

INK, QUIET, LINE = '#22303c', '#6b7883', '#c9d1d8'
# What a column is, by the number in a mask: colour, and words for the legend.
KINDS = {
    'nothing': ('#f2f4f6', 'may not look there'),
    'word': ('#8fb8de', 'looks at a word'),
    'special': ('#c3ccd5', 'looks at [CLS] or [SEP]'),
    'asked': ('#f2a65e', 'looks at what stands at a place that is asked for'),
    'memory': ('#93c29a', 'looks at the memory: states of the step before, '
               'without a gradient'),
    'self': ('#3f6491', 'looks at itself'),
    'blind': ('#ffffff', 'a query: it knows its place, and not its word'),
}
NAMES = list(KINDS)
START = '#3f6491'
SEGMENTS = ('#5aa897', '#a98bc4', '#d9b44a', '#8d99a6')
MOST_CHIPS, MOST_LABELS, LONGEST_LABEL = 192, 96, 12
WIDEST, NARROWEST = 17.0, 5.2  # inches, of the picture and of a panel


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
    'words': 'The states at the outlined places are compared with the words '
    'below them.',
    'queries': 'The query states at the outlined places are compared with '
    'their words, in the order of the numbers.',
    'start': 'The state of each [CLS] with a frame stands for its text.',
    'next': 'The state of [CLS] tells whether the second piece of text follows '
    'the first.',
    'text': 'All states are wanted: a mean of them stands for the text.',
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
        name: of the view.
        view: a `views.View`.
        wants: by row, what it wants of the view (`Row.views`).
        words: [V] the vocabulary.
        specials: of the vocabulary.
        causal: whether the encoder looks back alone.
        memory: [M] ids of what came before.
        number: which text of the batch.
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
        if what in ('words', 'queries'):
            targets = text_of(view.targets[row], number)
            for place, target in zip(places, targets, strict=False):
                asked[int(place)] = words[target]
                kinds[place] = 'asked'
            if what == 'queries':
                queried = [int(p) for p in places]
        elif row in view.places:
            starts += [int(p) for p in places]
        elif row in view.targets:
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
    several = np.ndim(view.ids) == 3
    if several:
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

    column = np.array(
        [NAMES.index('memory')] * len(memory)
        + [NAMES.index(kind) for kind in kinds]
    )
    content = np.where(seen(view, number, causal, len(memory)), column, 0)
    place = np.arange(length)
    own = content[place, len(memory) + place]
    content[place, len(memory) + place] = np.where(
        own > 0, NAMES.index('self'), 0
    )
    queries = None
    if queried:
        allowed = seen(view, number, causal, len(memory), np.array(queried))
        queries = np.where(allowed, column, 0)
        own = np.array(queried) + len(memory)
        row = np.arange(len(queried))
        queries[row, own] = np.where(
            allowed[row, own], queries[row, own], NAMES.index('blind')
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


# ------------------------------------------------------------------ drawing it


def _cut(word: str, most: int = LONGEST_LABEL) -> str:
    return word if len(word) <= most else word[: most - 1] + '…'


def _inches(word: str, points: float) -> float:
    """How wide a word is in the font of fixed width."""
    return 0.602 * points / 72 * len(word)


class _Panel:
    """Where things of a picture lie; all in inches, y downward."""

    chip, below, line = 0.25, 0.19, 0.18

    def __init__(self, picture: Picture):
        self.picture = picture
        length = len(picture.tokens)
        self.columns = len(picture.memory) + length
        self.cell = min(0.25, max(0.07, 6.6 / self.columns), 6.6 / 10)
        if self.columns > 200:
            self.cell = 8.0 / self.columns
        self.labelled = self.columns <= MOST_LABELS
        self.points = max(4.5, min(8.0, self.cell * 72 * 0.55))
        self.left = self.top = 0.1
        if self.labelled:
            labels = [self.label(i) for i in range(length)]
            labels += [self.query_label(int(i)) for i in picture.queried]
            self.left += max(_inches(x, self.points) for x in labels)
            self.top += max(
                _inches(_cut(x), self.points)
                for x in (*picture.memory, *picture.tokens)
            )
        if picture.segments is not None:
            self.left += 0.1
            self.top += 0.1
        self.width = max(NARROWEST, self.left + self.columns * self.cell + 0.1)
        characters = int(self.width / 0.073)
        self.lines = [
            part
            for line in picture.lines
            for part in textwrap.wrap(line, characters)
        ]
        self.chips, rows = self._flow()
        self.flow = rows * (self.chip + self.below)
        self.height = (
            0.36
            + self.line * len(self.lines)
            + 0.08
            + self.flow
            + self._mask_height(len(picture.content))
        )
        if picture.queries is not None:
            self.height += self._mask_height(len(picture.queries), top=False)

    def _mask_height(self, rows: int, top: bool = True) -> float:
        return 0.36 + (self.top if top else 0.0) + rows * self.cell + 0.12

    def label(self, place: int) -> str:
        """What stands left of a row of the content mask."""
        token = _cut(self.picture.tokens[place])
        if place in self.picture.asked and place not in self.picture.queried:
            return f'{token} → {_cut(self.picture.asked[place])}'
        return token

    def query_label(self, place: int) -> str:
        """What stands left of a row of the query mask."""
        return f'? → {_cut(self.picture.asked[place])}'

    def under(self, place: int) -> str:
        """What stands below a token where it is read."""
        if place in self.picture.numbers:
            return str(self.picture.numbers[place])
        if place in self.picture.asked and self.picture.kinds[place] == 'asked':
            return self.picture.asked[place]
        return ''

    def _flow(self) -> tuple[list[tuple[int, float, float, float]], int]:
        """(place, x, y, width) of each token that is shown, and lines."""
        found, x, y = [], 0.0, 0
        blocks = self.picture.blocks
        for place, token in enumerate(self.picture.tokens[:MOST_CHIPS]):
            wide = 0.1 + max(
                _inches(token, 8.5), _inches(self.under(place), 7.5)
            )
            gap = 0.04
            if place and blocks[place] != blocks[place - 1]:
                gap = 0.22
            if x and x + gap + wide > self.width:
                x, y = 0.0, y + 1
            else:
                x += gap if found else 0.0
            found.append((place, x, y * (self.chip + self.below), wide))
            x += wide
        return found, y + 1


def _background(panel: _Panel, place: int) -> tuple[str, str]:
    """Colours of a token's face and edge."""
    picture = panel.picture
    if picture.left_over[place]:
        return '#fafbfb', '#e6eaed'
    if picture.kinds[place] == 'asked':
        return '#fdf0e2', KINDS['asked'][0]
    if picture.kinds[place] == 'special':
        return '#eceff2', LINE
    return '#ffffff', LINE


def _draw_tokens(axes: Any, panel: _Panel, x: float, y: float) -> None:
    """The tokens as they are read, with what is asked for below them."""
    from matplotlib import patches

    picture = panel.picture
    for place, left, down, wide in panel.chips:
        face, edge = _background(panel, place)
        start = place in picture.starts
        box = patches.FancyBboxPatch(
            (x + left + 0.02, y + down + 0.02),
            wide - 0.04,
            panel.chip - 0.04,
            boxstyle='round,pad=0.015,rounding_size=0.04',
            facecolor=face,
            edgecolor=START if start else edge,
            linewidth=1.6 if start or place in picture.asked
            and picture.kinds[place] == 'asked' else 0.8,
        )
        axes.add_patch(box)
        faint = picture.left_over[place]
        axes.text(
            x + left + wide / 2,
            y + down + panel.chip / 2,
            picture.tokens[place],
            ha='center',
            va='center_baseline',
            fontsize=8.5,
            family='monospace',
            color=LINE if faint
            else QUIET if picture.kinds[place] == 'special'
            else INK,
        )
        if picture.segments is not None and not faint:
            axes.add_patch(
                patches.Rectangle(
                    (x + left, y + down + panel.chip + 0.005),
                    wide,
                    0.025,
                    facecolor=_segment(picture.segments[place]),
                    edgecolor='none',
                )
            )
        if under := panel.under(place):
            axes.text(
                x + left + wide / 2,
                y + down + panel.chip + 0.115,
                under,
                ha='center',
                va='center_baseline',
                fontsize=7.5,
                family='monospace',
                weight='bold',
                color='#b8641a',
            )
    more = len(picture.tokens) - len(panel.chips)
    if more:
        axes.text(
            x + panel.width,
            y + panel.flow - 0.06,
            f'… {more} more',
            ha='right',
            va='center',
            fontsize=7.5,
            color=QUIET,
        )


def _segment(number: int) -> str:
    return SEGMENTS[int(number) % len(SEGMENTS)]


def _draw_mask(
    axes: Any,
    panel: _Panel,
    mask: np.ndarray,
    labels: Sequence[tuple[str, str]],
    title: str,
    x: float,
    y: float,
    rows: np.ndarray,
    top: bool = True,
) -> None:
    """A mask with its labels; rows [Q] are the places that look."""
    from matplotlib import collections, colors, patches

    picture, cell = panel.picture, panel.cell
    axes.text(x, y + 0.2, title, fontsize=8.5, color=QUIET, va='center')
    left, above = x + panel.left, y + 0.36 + (panel.top if top else 0.0)
    height, width = (n * cell for n in mask.shape)
    shown = np.array([colors.to_rgb(KINDS[name][0]) for name in NAMES])[mask]
    shown[picture.left_over[rows]] = (
        0.3 * shown[picture.left_over[rows]] + 0.7
    )
    axes.imshow(
        shown,
        extent=(left, left + width, above + height, above),
        interpolation='nearest',
        aspect='auto',
        zorder=1,
    )
    if cell > 0.1:
        across = [
            [(left, above + i * cell), (left + width, above + i * cell)]
            for i in range(mask.shape[0] + 1)
        ]
        down = [
            [(left + i * cell, above), (left + i * cell, above + height)]
            for i in range(mask.shape[1] + 1)
        ]
        axes.add_collection(
            collections.LineCollection(
                across + down, colors='white', linewidths=0.9, zorder=2
            )
        )
    for row, column in zip(
        *np.nonzero(mask == NAMES.index('blind')), strict=True
    ):
        inset = 0.14 * cell
        axes.add_patch(
            patches.Rectangle(
                (left + column * cell + inset, above + row * cell + inset),
                cell - 2 * inset,
                cell - 2 * inset,
                facecolor='white',
                edgecolor=KINDS['asked'][0],
                linewidth=1.4,
                zorder=3,
            )
        )
    memory = len(picture.memory)
    if memory:
        edge = left + memory * cell
        axes.plot(
            [edge, edge],
            [above - (panel.top if top else 0.0), above + height],
            color=INK,
            linewidth=1.0,
            zorder=4,
        )
    if picture.segments is not None:
        strips = []
        if top:
            strips += [
                (left + (memory + i) * cell, above - 0.09, cell, 0.06, segment)
                for i, segment in enumerate(picture.segments)
            ]
        strips += [
            (left - 0.09, above + i * cell, 0.06, cell, picture.segments[place])
            for i, place in enumerate(rows)
        ]
        for a, b, wide, high, segment in strips:
            axes.add_patch(
                patches.Rectangle(
                    (a, b), wide, high, facecolor=_segment(segment),
                    edgecolor='none',
                )
            )
    if not panel.labelled:
        return
    gap = 0.05 if picture.segments is None else 0.13
    if top:
        for i, word in enumerate((*picture.memory, *picture.tokens)):
            place = i - memory
            axes.text(
                left + (i + 0.5) * cell,
                above - gap,
                _cut(word),
                rotation=90,
                ha='center',
                va='bottom',
                fontsize=panel.points,
                family='monospace',
                color=_label_colour(picture, place),
            )
    for i, (word, colour) in enumerate(labels):
        axes.text(
            left - gap,
            above + (i + 0.5) * cell,
            word,
            ha='right',
            va='center_baseline',
            fontsize=panel.points,
            family='monospace',
            color=colour,
        )


def _label_colour(picture: Picture, place: int) -> str:
    if place < 0:
        return '#4b8a55'
    if picture.left_over[place]:
        return LINE
    if picture.kinds[place] == 'asked':
        return '#b8641a'
    return QUIET if picture.kinds[place] == 'special' else INK


def _draw_panel(axes: Any, panel: _Panel, x: float, y: float) -> None:
    picture = panel.picture
    axes.text(
        x, y + 0.12, picture.title, fontsize=13, weight='bold', color=INK,
        va='center',
    )
    y += 0.36
    for line in panel.lines:
        axes.text(x, y, line, fontsize=8.5, color=QUIET, va='center')
        y += panel.line
    y += 0.08
    _draw_tokens(axes, panel, x, y)
    y += panel.flow
    length = len(picture.tokens)
    two = picture.queries is not None
    _draw_mask(
        axes,
        panel,
        picture.content,
        [
            (panel.label(i), _label_colour(picture, i))
            for i in range(length)
        ],
        'the content stream: states that know their own word'
        if two
        else 'a row is a token that looks, a column what it looks at',
        x,
        y,
        np.arange(length),
    )
    y += panel._mask_height(length)
    if two:
        _draw_mask(
            axes,
            panel,
            picture.queries,
            [
                (panel.query_label(int(i)), '#b8641a')
                for i in picture.queried
            ],
            'the query stream: states that know their place alone',
            x,
            y,
            picture.queried,
            top=False,
        )


def _legend(pictures: Sequence[Picture]) -> list[tuple[str, str, str]]:
    """(face, edge, words) of what occurs."""
    masks = [
        mask.ravel()
        for one in pictures
        for mask in (one.content, one.queries)
        if mask is not None
    ]
    there = np.unique(np.concatenate(masks))
    entries = [
        (KINDS[name][0], KINDS['asked'][0] if name == 'blind' else LINE,
         KINDS[name][1])
        for number, name in enumerate(NAMES)
        if number in there
    ]
    entries.append(entries.pop(0)) if 0 in there else None
    segments = sorted(
        {int(s) for one in pictures if one.segments is not None
         for s in one.segments}
    )
    entries += [
        (_segment(s), _segment(s), f'segment {s}') for s in segments
    ]
    return entries


def draw(
    path: pathlib.Path, heads: Sequence[tuple[str, str]],
    pictures: Sequence[Picture],
) -> None:
    """Draws pictures side by side into a PNG.

    Args:
        path: of the PNG.
        heads: (name, sentence) of each row, above everything.
        pictures: one a panel.
    """
    import matplotlib

    matplotlib.use('Agg')
    from matplotlib import patches, pyplot

    from infoword_tf import files

    panels = [_Panel(one) for one in pictures]
    edge, between = 0.3, 0.45
    spots, x, y, tallest, right = [], edge, 0.0, 0.0, 0.0
    for panel in panels:
        if x > edge and x + panel.width > WIDEST:
            x, y, tallest = edge, y + tallest + 0.35, 0.0
        spots.append((x, y))
        x += panel.width + between
        tallest = max(tallest, panel.height)
        right = max(right, x - between)
    bottom = y + tallest
    width = right + edge
    name_width = 0.2 + max(_inches(name, 11) for name, _ in heads)
    characters = int((width - 2 * edge - name_width) / 0.08)
    heads = [
        (name, textwrap.wrap(sentence, characters)) for name, sentence in heads
    ]
    head = 0.25 + sum(0.08 + 0.2 * len(lines) for _, lines in heads)

    legend, entries, at, down = _legend(pictures), [], edge, 0.0
    for entry in legend:
        wide = 0.42 + 0.063 * len(entry[2])
        if at > edge and at + wide > width - edge:
            at, down = edge, down + 0.23
        entries.append((at, down, *entry))
        at += wide
    height = head + bottom + 0.3 + down + 0.4

    figure = pyplot.figure(figsize=(width, height), facecolor='white')
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    at = 0.28
    for name, lines in heads:
        axes.text(
            edge, at, name, fontsize=11, weight='bold', color=START,
            va='center', family='monospace',
        )
        for line in lines:
            axes.text(
                edge + name_width, at, line, fontsize=9.5, color=INK,
                va='center',
            )
            at += 0.2
        at += 0.08
    axes.plot(
        [edge, width - edge], [head - 0.02] * 2, color=LINE, linewidth=0.8
    )
    for panel, (x, y) in zip(panels, spots, strict=True):
        _draw_panel(axes, panel, x, head + 0.1 + y)
    base = head + bottom + 0.35
    for at, down, face, line, words in entries:
        axes.add_patch(
            patches.Rectangle(
                (at, base + down - 0.07), 0.14, 0.14, facecolor=face,
                edgecolor=line, linewidth=1.0,
            )
        )
        axes.text(
            at + 0.22, base + down, words, fontsize=8.5, color=INK, va='center'
        )
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    with files.written(path) as partial:
        figure.savefig(partial, format='png', dpi=150)
    pyplot.close(figure)
