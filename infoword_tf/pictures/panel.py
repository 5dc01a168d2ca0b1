"""Where the parts of one view's picture lie; all in inches, y downward."""

import textwrap
from typing import Any

from infoword_tf.pictures.description import Picture
from infoword_tf.pictures.palette import ASKED_INK, INK, LINE, MEMORY_INK, QUIET

MOST_CHIPS = 192  # tokens that are shown as they are read
MOST_LABELS = 96  # columns of a mask that has words at its sides
LONGEST_LABEL = 12  # characters
NARROWEST = 5.2  # a panel


def cut(word: str, most: int = LONGEST_LABEL) -> str:
    """A word of so many characters at most."""
    return word if len(word) <= most else word[: most - 1] + '…'


def inches(word: str, points: float) -> float:
    """How wide a word is in the font of fixed width."""
    return 0.602 * points / 72 * len(word)


def write(
    axes: Any, x: float, y: float, words: str, points: float, colour: str,
    va: str = 'center', **more: Any,
) -> None:  # fmt: skip
    """Writes words; `more` as of Matplotlib's `text`."""
    axes.text(x, y, words, fontsize=points, color=colour, va=va, **more)


def box(
    axes: Any, x: float, y: float, width: float, height: float, face: str,
    edge: str = 'none', **more: Any,
) -> None:  # fmt: skip
    """Draws a rectangle; `more` as of Matplotlib's."""
    from matplotlib.patches import Rectangle

    axes.add_patch(
        Rectangle(
            (x, y), width, height, facecolor=face, edgecolor=edge, **more
        )
    )


class Panel:
    """The layout of a picture.

    Attributes:
        picture: what is drawn.
        columns: M + T, of its masks.
        cell: width and height of a column or row of a mask.
        labelled: whether rows and columns have words.
        points: size of those words.
        left, top: the room that they take.
        lines: sentences, broken to the width.
        chips: (place, x, y, width) of each token that is shown.
        flow: height of all tokens.
        width, height: of the panel.
    """

    chip, below, line = 0.25, 0.19, 0.18  # a token, what is below it; a line

    def __init__(self, picture: Picture):
        """Args: what is drawn."""
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
            self.left += max(inches(x, self.points) for x in labels)
            self.top += max(
                inches(cut(x), self.points)
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
            + self.mask_height(len(picture.content))
        )
        if picture.queries is not None:
            self.height += self.mask_height(len(picture.queries), top=False)

    def mask_height(self, rows: int, top: bool = True) -> float:
        """Of a mask of some rows; `top`: with words above its columns."""
        return 0.36 + (self.top if top else 0.0) + rows * self.cell + 0.12

    def label(self, place: int) -> str:
        """What stands left of a row of the content mask."""
        token = cut(self.picture.tokens[place])
        if place in self.picture.asked and place not in self.picture.queried:
            return f'{token} → {cut(self.picture.asked[place])}'
        return token

    def query_label(self, place: int) -> str:
        """What stands left of a row of the query mask."""
        return f'? → {cut(self.picture.asked[place])}'

    def label_colour(self, place: int) -> str:
        """Of the word at a place; places below 0 are of the memory."""
        picture = self.picture
        if place < 0:
            return MEMORY_INK
        if picture.left_over[place]:
            return LINE
        if picture.kinds[place] == 'asked':
            return ASKED_INK
        return QUIET if picture.kinds[place] == 'special' else INK

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
                inches(token, 8.5), inches(self.under(place), 7.5)
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
