"""Pictures of views: the tokens, and which of them attend to which.

Drawn from the fields of a view alone, as an encoder gets them: a line of
squares is a query, a column a key. Shapes: Q places of the query stream, n
tokens of memory.
"""

import pathlib
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import files
from infoword_tf.views import Reads
from infoword_tf.views.view import CAPTIONS

INK, QUIET, LINE = '#22303c', '#6b7883', '#c9d1d8'
KINDS = {  # of squares, by their numbers: colours of them and of words; legend
    'nothing': ('#f2f4f6', LINE, 'may not look there'),
    'word': ('#8fb8de', INK, 'looks at a word'),
    'special': ('#c3ccd5', QUIET, 'looks at [CLS] or [SEP]'),
    'asked': ('#f2a65e', '#b8641a', 'looks at a place that is asked for'),
    'memory': ('#93c29a', '#4b8a55', 'looks at the memory: no gradient'),
    'self': ('#3f6491', '', 'looks at itself'),
    'blind': ('#fdf0e2', '', 'a query: it knows its place, not its word'),
}
NAMES = list(KINDS)
HOW = (
    'Each row of squares is a token that looks, with its position and, where '
    'there are several, its segment (A, B, ...); each column is what it may '
    'look at.'
)
MOST_WORDS = 96  # keys whose words are written


class Picture(NamedTuple):
    """The first text of a view, with labels and attention mask."""

    title: str
    lines: list[str]  # sentences below the squares
    keys: list[str]  # [n + T] words
    queries: list[str]  # [T + Q] words, with positions and targets
    kinds: list[str]  # [n + T] names in KINDS, of keys
    places: list[int]  # [T + Q] of queries
    starts: list[int]  # places whose states stand for texts
    mask: np.ndarray  # [T + Q, n + T] int, numbers of KINDS


def first(field: Any, default: Any = ()) -> np.ndarray:
    """Returns the first text of a field, [T] of [B, T] or [B, J, T]."""
    if field is None:
        return np.asarray(default, int)
    text = np.asarray(field)[0]
    return text if text.ndim == 1 else text[0]


def seen(
    view: Any,
    causal: bool = False,
    memory: int = 0,
    queries: Sequence[int] = (),
) -> np.ndarray:
    """Computes the attention mask of the first text.

    Args:
        view: a `views.View`.
        causal: whether the encoder looks back alone.
        memory: n, tokens that all others see.
        queries: [Q] places of the query stream.

    Returns:
        [T + Q, n + T] bool: the content stream above the query stream.
    """
    places = np.arange(len(first(view.ids)))
    looking = np.array([*places, *queries])[:, None]  # [T + Q, 1]
    block = first(view.block_ids, 0 * places)
    allowed = block[looking] == block
    if causal:
        allowed &= places <= looking
    if view.ranks is not None:
        before = first(view.sees)[looking] > first(view.ranks)
        before[: len(places)] |= np.eye(len(places), dtype=bool)
        allowed &= before
    return np.pad(allowed, ((0, 0), (memory, 0)), constant_values=True)


def picture(
    title: str,
    view: Any,
    rows: Mapping[str, Reads],
    words: Sequence[str],
    specials: Any,
    causal: bool = False,
    memory: Sequence[int] = (),
) -> Picture:
    """Describes the first text of a view.

    Args:
        title: name of the view.
        view, causal: arguments of `seen`.
        rows: parts of the view that each row reads, by row.
        words: [V] the vocabulary.
        specials: special tokens of the vocabulary.
        memory: [n] ids of the tokens before the text.
    """
    ids = first(view.ids)
    special = np.isin(ids, (specials.cls_id, specials.sep_id))
    kinds = np.where(special, 'special', 'word')
    targets_at: dict[int, str] = {}
    numbers: dict[int, int] = {}
    starts: set[int] = set()
    named: Sequence[int]  # ids of what is predicted
    lines = [f'Read by {" and ".join(rows)}.'] if rows else []
    for row, reads in rows.items():
        where = reads.where
        default = CAPTIONS.get(where, f'{row} wants {where!r}.')
        line = reads.caption or default
        places, targets, weights = (
            first(x.get(row)) for x in (view.places, view.targets, view.weights)
        )
        real: Any = slice(None)
        if weights.shape == places.shape:
            real = weights > 0  # no padding
        places = places[real]
        if where in ('tokens', 'queries'):
            named, kinds[places] = targets[real].tolist(), 'asked'
        elif where == 'text' and targets.shape == ids.shape:
            line, places = CAPTIONS['following'], np.arange(len(ids))
            named = targets.tolist()
        else:
            starts.update(places.tolist())
            named = ()
        if where == 'queries':
            turns = first(view.ranks)[places].argsort().argsort() + 1
            numbers = dict(zip(places.tolist(), turns.tolist(), strict=True))
        names = (words[target] for target in named)
        targets_at |= zip(places.tolist(), names, strict=False)
        if line not in lines:
            lines.append(line)
    if view.directions is not None and view.directions[0] < 0:
        lines.append('This text is read backward.')
    if np.ndim(view.ids) == 3:
        lines.append(f'One of {np.shape(view.ids)[1]} that belong together.')
    # A block of which no state is wanted is padding.
    block = first(view.block_ids, 0 * ids)
    kinds[~np.isin(block, block[[*targets_at, *starts] or [0]])] = 'nothing'

    all_kinds = ['memory'] * len(memory) + kinds.tolist()
    tokens = [words[i] for i in ids]
    mask = seen(view, causal, len(memory), [*numbers]) * np.array(
        [NAMES.index(kind) for kind in all_kinds]
    )
    queries = _queries(view, tokens, numbers, targets_at, mask=mask)
    keys = [words[i] for i in memory] + tokens
    return Picture(
        title=title,
        lines=lines,
        keys=keys,
        queries=queries,
        kinds=all_kinds,
        places=[*range(len(ids)), *numbers],
        starts=sorted(starts),
        mask=mask,
    )


def _queries(
    view: Any,
    tokens: Sequence[str],
    numbers: Mapping[int, int],
    targets_at: Mapping[int, str],
    mask: np.ndarray,
) -> list[str]:
    """Names the positions that look, and marks each one in the mask.

    Args:
        view: view as of `seen`.
        tokens: tokens of the text.
        numbers: turns of the tokens that are asked for in an order, by place.
        targets_at: targets by place.
        mask: [queries, memory + text] int, written to.
    """
    count = len(tokens)
    positions = first(view.positions, np.arange(count))
    segments = first(view.segment_ids, 0 * positions)
    queries, memory = [], mask.shape[1] - count
    for number, place in enumerate([*range(count), *numbers]):
        name, itself = tokens[place], (number, memory + place)
        if number >= count:
            name = f'{numbers[place]}: ?'
            mask[itself] = mask[itself] or NAMES.index('blind')
        elif mask[itself]:
            mask[itself] = NAMES.index('self')
        if place in targets_at and (number >= count or place not in numbers):
            name += f' → {targets_at[place]}'
        name += f' {positions[place]:>3}'
        if any(segments):
            name += f' {chr(ord("A") + segments[place])}'
        queries.append(name)
    return queries


def draw(
    path: pathlib.Path, rows: Sequence[str], pictures: Sequence[Picture]
) -> None:
    """Draws pictures side by side into a PNG.

    Args:
        path: name of the PNG.
        rows: a sentence about each row, above everything.
        pictures: one a panel.

    Raises:
        OSError: the PNG cannot be written.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    shades = ListedColormap([colour for colour, *_ in KINDS.values()])
    sizes = [np.array(one.mask.shape) for one in pictures]
    inches = [min(0.2, 8 / max(size)) * size + (2.5, 2.5) for size in sizes]
    high, wide = np.max(inches, axis=0)[0], np.sum(inches, axis=0)[1]
    figure = Figure((wide, high), layout='compressed')
    panels = figure.subplots(
        1, len(pictures), width_ratios=[x for _, x in inches], squeeze=False
    )
    for axes, one, (queries, keys) in zip(
        panels[0], pictures, sizes, strict=True
    ):
        memory = one.kinds.count('memory')
        length = keys - memory
        lines = [textwrap.fill(x, max(60, 2 * keys)) for x in one.lines]
        axes.imshow(one.mask, shades, vmin=0, vmax=len(KINDS) - 1)
        axes.set_anchor('NW')
        axes.spines[:].set_visible(False)
        axes.set_title(one.title, loc='left', weight='bold', color=INK)
        axes.set_xlabel('\n'.join(lines), loc='left', fontsize=9, color=QUIET)
        axes.axvline(memory - 0.5, color=INK, linewidth=1.0)
        axes.axhline(length - 0.5, color=INK, linewidth=1.0)
        axes.set(xticks=[], yticks=[])
        if keys > MOST_WORDS:
            continue
        axes.set_xticks(range(keys), one.keys, rotation=90)
        axes.set_yticks(range(queries), one.queries)
        axes.set_xticks(np.arange(keys) - 0.5, minor=True)
        axes.set_yticks(np.arange(queries) - 0.5, minor=True)
        axes.grid(which='minor', color='white', linewidth=0.9)
        axes.tick_params(
            which='both', length=0, labeltop=True, labelbottom=False,
            labelsize=7.5, labelfontfamily='monospace',
        )  # fmt: skip
        labels = axes.get_xticklabels() + axes.get_yticklabels()
        places = [*range(-memory, length), *one.places]
        for label, place in zip(labels, places, strict=True):
            label.set_color(KINDS[one.kinds[memory + place]][1])
            label.set_weight('bold' if place in one.starts else 'normal')
    figure.suptitle(
        '\n'.join(textwrap.fill(row, int(13 * wide)) for row in (*rows, HOW)),
        x=0.01, ha='left', fontsize=10, color=INK,
    )  # fmt: skip
    used = set(np.concatenate([np.unique(one.mask) for one in pictures]))
    figure.legend(
        handles=[
            Patch(facecolor=colour, edgecolor=LINE, label=words)
            for number, (colour, _, words) in enumerate(KINDS.values())
            if number in used
        ],
        loc='outside lower left', frameon=False, fontsize=9,
        ncols=max(1, int(wide / 4.5)),
    )  # fmt: skip
    with files.written(path) as partial:
        figure.savefig(partial, format='png', dpi=150, bbox_inches='tight')
