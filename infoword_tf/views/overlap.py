"""The view `overlap`: two overlapping cuts of a text, masked, in one sequence.

Tokens masked in one cut often occur in the other. The distance between the cuts
is drawn for every sequence, so only the words around a token tell where. For
rows that ask whether both cuts are of one text, the second cut is of another
text in a quarter of the sequences.

Glossary of shapes: C tokens of a window.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.views.masked import Masking, Pairs, Windows, masked, masking_of
from infoword_tf.views.view import Draw, Specials, View, ViewSpec

# With a half, as in BERT's next sentence prediction (Devlin et al. 2019, §3.1),
# the model has not learned to use the other cut after 2,740 updates.
STRANGERS = 0.25


class Cuts(NamedTuple):
    """Two cuts of each text, and a masking of both.

    Attributes:
        text: A [SEP] B, C tokens; the label is 1 where B is a cut of another
            text.
        masking: masked tokens of both.
    """

    text: Pairs
    masking: Masking


def cut(
    text: Windows,
    random: np.random.Generator,
    masking: str,
    share: float,
    strangers: float = 0.0,
) -> Cuts:
    """Draws two cuts of each text and a masking.

    A has a quarter to three quarters of the tokens, B the others, and the
    shorter cut has at least half of its tokens in common with the longer one.
    Lengths, distances and starts in the text are uniform. A stranger is cut in
    the same way, out of the next text of the batch.

    Args:
        text: windows.
        random: generator of the draw.
        masking: a name in MASKINGS.
        share: share of the tokens to mask.
        strangers: share of texts whose B is of another text; 0 in a batch of
            one text.
    """
    b, length = text.ids.shape
    total = length - 1  # all but [SEP]
    firsts = random.integers(total // 4, total - total // 4, b, endpoint=True)
    seconds = total - firsts
    common = np.minimum(firsts, seconds) // 2
    # From A's first token to B's.
    offset = random.integers(common - seconds, firsts - common, endpoint=True)
    before = np.maximum(-offset, 0)
    both = before + np.maximum(firsts, offset + seconds)
    begin = random.integers(0, length - both, endpoint=True) + before
    place = np.arange(length)
    border = place == firsts[:, None]
    first, second = (x[:, None] for x in (begin, begin + offset - firsts - 1))
    source = np.where(place < firsts[:, None], first, second) + place
    source = np.where(border, 0, source)
    sequence = np.arange(b)[:, None]
    # Nothing is drawn without strangers: maskings of `overlap` stay the same.
    strange = np.zeros(b, bool)
    if strangers and b > 1:
        strange = random.random((b,)) < strangers
    of_next = strange[:, None] & (place > firsts[:, None])
    number = np.where(of_next, (sequence + 1) % b, sequence)
    ids, starts, ends = (x[number, source] for x in text)
    # The rest of a word with which a cut begins is a word.
    begins = border | (place == 0) | (place == firsts[:, None] + 1)
    starts = starts | begins
    pairs = Pairs(
        ids=np.where(border, 0, ids),
        word_starts=starts,
        separators=ends | border,
        firsts=firsts.astype(np.int32),
        seconds=seconds.astype(np.int32),
        labels=strange.astype(np.int32),
    )
    return Cuts(pairs, masking_of(masking)(pairs, random, share))


def overlap(
    text: Windows, draw: Cuts, rows: Mapping[str, str], specials: Specials
) -> View:
    """Makes [CLS] A [SEP] B [SEP] of both cuts, masked.

    a of `overlap`, and both views of `same_text`. A sequence is one block:
    tokens attend to both cuts.
    """
    del text
    view = masked(draw.text, draw.masking, rows, specials)
    counts = {k: v for k, v in view.counts.items() if k != 'padding'}
    return view._replace(block_ids=None, counts=counts)  # without padding


def draw(settings: Mapping[str, Any]) -> Draw:
    """Describes the draw of cuts and masking."""
    chosen = {
        'masking': settings['masking'],
        'share': settings['mask_share'],
        'strangers': STRANGERS if 'next' in settings['where'] else 0.0,
    }
    return Draw('overlap', cut, chosen)


OVERLAP = ViewSpec(make=overlap, draw=draw, any_encoder=True)
