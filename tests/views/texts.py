"""What tests of masked views share: texts and draws that are written out."""

import numpy as np

from infoword_tf import views
from infoword_tf.views.masking import Masking, Pairs, Windows

SPECIALS = views.Specials(cls_id=2, sep_id=3, mask_id=4, size=100)


def make_windows():
    """Two rows of L = 7 tokens, P = 2; a document ends in the second."""
    ids = np.array(
        [[10, 11, 12, 13, 14, 15, 16], [20, 21, 22, 3, 23, 24, 25]], np.int32
    )
    return Windows(ids, np.ones((2, 7), bool), ids == 3)


def make_draw(masked, shown=None, random=None, **more):
    mask = np.zeros((2, 7), bool)
    for row, places in enumerate(masked):
        mask[row, places] = True
    return Masking(
        mask,
        np.zeros((2, 7), np.int32) if shown is None else np.array(shown),
        np.zeros((2, 7)) if random is None else np.array(random),
        **more,
    )


def make_pairs(rows, length=9, **more):
    """Pairs of (A, B): pieces of each."""
    ids = np.zeros((len(rows), length), np.int32)
    separators = np.ones((len(rows), length), bool)
    for row, (a, b) in enumerate(rows):
        for begin, piece in ((0, a), (len(a) + 1, b)):
            ids[row, begin : begin + len(piece)] = piece
            separators[row, begin : begin + len(piece)] = False
    return Pairs(
        ids, np.ones(ids.shape, bool), separators,
        np.array([len(a) for a, _ in rows], np.int32),
        np.array([len(b) for _, b in rows], np.int32),
        np.array(more.pop('labels', [0] * len(rows)), np.int32), **more,
    )  # fmt: skip


def pair_draw(masked, length=9, **more):
    mask = np.zeros((len(masked), length), bool)
    for row, places in enumerate(masked):
        mask[row, places] = True
    return Masking(
        mask, np.zeros(mask.shape, np.int32), np.zeros(mask.shape), **more
    )


def two_pairs():
    """L = 9: T = 11, P = 2. The first pair is full, the second is padded."""
    return make_pairs(
        [([10, 11, 12], [13, 14, 15, 16, 17]), ([20], [21, 22])],
        labels=[0, 1],
    )


def two_pairs_draw():
    """What is masked of them: x11 and x16, and x21."""
    return pair_draw([[1, 7], [2]])


def same(actual, expected, message=''):
    """Asserts that numbers are these."""
    np.testing.assert_array_equal(actual, expected, message)


def assert_view(view, row=None, **fields):
    """Asserts that fields of a view are these, or what a row has of them."""
    for name, expected in fields.items():
        actual = getattr(view, name)
        actual = actual[row] if isinstance(actual, dict) else actual
        same(actual, expected, name)
