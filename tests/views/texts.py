"""Texts and draws for tests of masked views."""

import numpy as np

from infoword_tf import views
from infoword_tf.views.masked import Masking, Pairs, Windows
from tests.near import same

SPECIALS = views.Specials(cls_id=2, sep_id=3, mask_id=4, size=100)


def make_windows():
    """Makes two sequences of 7 tokens; a document ends in the second."""
    ids = np.array(
        [[10, 11, 12, 13, 14, 15, 16], [20, 21, 22, 3, 23, 24, 25]], np.int32
    )
    return Windows(ids, np.ones((2, 7), bool), ids == 3)


def random_windows(
    b, length, word_rate, separator_rate=0.02, tokens=8, seed=0
):
    """Draws windows of few tokens, so that n-grams repeat."""
    random = np.random.default_rng(seed)
    ids = random.integers(5, 5 + tokens, (b, length), dtype=np.int32)
    word_starts = random.random((b, length)) < word_rate
    separators = random.random((b, length)) < separator_rate
    word_starts |= separators
    word_starts[:, 1:] |= separators[:, :-1]
    word_starts[:, 0] = True
    ids[separators] = SPECIALS.sep_id
    return Windows(ids, word_starts, separators)


def make_draw(masked, shown=None, random=None, **more):
    mask = pair_draw(masked, 7).masked
    shown = np.zeros((2, 7), np.int32) if shown is None else np.array(shown)
    random = np.zeros((2, 7)) if random is None else np.array(random)
    return Masking(mask, shown, random, **more)


def make_pairs(rows, length=9, **more):
    """Makes pairs (A, B) of tokens."""
    ids = np.zeros((len(rows), length), np.int32)
    separators = np.ones((len(rows), length), bool)
    for row, (a, b) in enumerate(rows):
        for begin, text in ((0, a), (len(a) + 1, b)):
            ids[row, begin : begin + len(text)] = text
            separators[row, begin : begin + len(text)] = False
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
    """Makes pairs of at most 9 tokens; the second is padded."""
    rows = [([10, 11, 12], [13, 14, 15, 16, 17]), ([20], [21, 22])]
    return make_pairs(rows, labels=[0, 1])


def two_pairs_draw():
    """Masks x11 and x16, and x21."""
    return pair_draw([[1, 7], [2]])


def assert_view(view, row=None, **fields):
    """Asserts values of fields, a row's entries, or counts; and all types."""
    for name, expected in fields.items():
        actual = view.counts.get(name)
        actual = getattr(view, name) if actual is None else actual
        actual = actual[row] if isinstance(actual, dict) else actual
        same(actual, expected, name)
    for path, array in views.flatten({'view': view}).items():
        is_real = path.split('/')[1] in ('weights', 'measured', 'mixes')
        assert array.dtype == (np.float32 if is_real else np.int32), path
