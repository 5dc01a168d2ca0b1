"""The view `overlap`: two cuts of a text that overlap, masked, in one row.

What is masked in one cut is often there in the other, some way off: by how much
the second cut begins before or after the first one is drawn for every row, so
no distance says where, only the words around it do. Where a row asks whether
both are of one text, the second one is of another text in a quarter of rows.

Glossary of shapes: B sequences, L tokens drawn, T tokens with specials.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.views import masking as maskings
from infoword_tf.views.masked import masked
from infoword_tf.views.masking import Masking, Pairs, Windows
from infoword_tf.views.view import Draw, Specials, View, ViewSpec

# With half of them, as in BERT's next sentence prediction (Devlin et al. 2019,
# §3.1), words are not yet looked for in the other cut after 2,740 updates.
STRANGERS = 0.25


class Cuts(NamedTuple):
    """Two cuts of each text, and what of them is masked.

    Attributes:
        text: A [SEP] B, which fill L places; its label is 1 where B is a cut
            of another text.
        masking: of both.
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
    """Chooses two cuts of each text, and what is masked in them.

    A has a quarter to three quarters of the tokens, B the others, and the
    shorter one has half of its tokens in common with the longer one at least.
    Each length, each distance and each place in the text is as likely.
    A stranger is cut in the same way, out of the text of the next row.

    Args:
        text: windows.
        random: of the draw.
        masking: a name in MASKINGS.
        share: of the tokens, what is masked.
        strangers: of the rows, how many have a B of another text; none in a
            batch of one text.
    """
    b, length = text.ids.shape
    total = length - 1  # all but [SEP]
    firsts = random.integers(total // 4, total - total // 4, b, endpoint=True)
    seconds = total - firsts
    common = np.minimum(firsts, seconds) // 2
    # How far behind A's begin that of B is.
    behind = random.integers(common - seconds, firsts - common, endpoint=True)
    before = np.maximum(-behind, 0)
    both = before + np.maximum(firsts, behind + seconds)
    begin = random.integers(0, length - both, endpoint=True) + before
    place = np.arange(length)
    border = place == firsts[:, None]
    first, second = (x[:, None] for x in (begin, begin + behind - firsts - 1))
    source = np.where(place < firsts[:, None], first, second) + place
    source = np.where(border, 0, source)
    row = np.arange(b)
    # Drawn only if it is asked for: `overlap` alone is masked as ever.
    strange = np.zeros(b, bool)
    if strangers and b > 1:
        strange = random.random(b) < strangers
    beyond = strange[:, None] & (place > firsts[:, None])
    read = np.where(beyond, (row[:, None] + 1) % b, row[:, None])
    ids, starts, ends = (x[read, source] for x in text)
    # A word that a cut begins in begins anew there.
    starts |= border | (place == 0) | (place == firsts[:, None] + 1)
    pairs = Pairs(
        np.where(border, 0, ids),
        starts,
        ends | border,
        firsts.astype(np.int32),
        seconds.astype(np.int32),
        strange.astype(np.int32),
    )
    return Cuts(pairs, maskings.masking(masking)(pairs, random, share))


def overlap(
    text: Windows, draw: Cuts, rows: Mapping[str, str], specials: Specials
) -> View:
    """[CLS] A [SEP] B [SEP]: both cuts, masked.

    a of `overlap`, and both views of `same_text`.

    All of a row is one block: tokens of one cut see the other.
    """
    del text
    view = masked(draw.text, draw.masking, rows, specials)
    counts = {k: v for k, v in view.counts.items() if k != 'padding'}
    return view._replace(block_ids=None, counts=counts)  # there is none


def draw(settings: Mapping[str, Any]) -> Draw:
    """What is drawn: the cuts, and what is masked in them."""
    chosen = {
        'masking': settings['masking'],
        'share': settings['mask_share'],
        'strangers': STRANGERS if 'next' in settings['where'] else 0.0,
    }
    return Draw('overlap', cut, chosen)


OVERLAP = ViewSpec(make=overlap, draw=draw, any_encoder=True)
