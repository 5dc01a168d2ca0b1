"""The view `words`: the words of a text and, around each, a window of others.

For Skip-gram and CBOW (Mikolov et al. 2013), like word2vec.c: unknown words
([UNK]) are dropped, frequent words with a probability, and only then windows
are formed, with half-widths drawn uniformly from 1 to w. Windows end with
documents and sequences (the code's after 1,000 words). Tokens T are words.

Glossary of shapes: J = 2 w + 1 words of a window.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from infoword_tf.settings import Setting
from infoword_tf.views.view import (
    Draw,
    Specials,
    View,
    ViewSpec,
    require_where,
)

POWER = 0.75  # of the counts, for the distribution of negatives

# A field of rows, too, whose type is a float as soon as it is set.
SUBSAMPLE: Any = Setting(
    1e-3,
    'Relative frequency above which words are randomly dropped (word2vec: '
    'sample); 0: none is.',
    at_least=0.0,
)


class Words(NamedTuple):
    """A global batch of the source `words`.

    Attributes:
        ids: [B, T] int32, the remaining words of the text, in order.
        texts: [B, T] int32, equal for words of one passage of one document; -1
            for padding, at the end of the batch alone.
        drawn: [B, M] int32, negatives of all pairs of a sequence.
        tokens: [B] int32, of the text before words were dropped.
    """

    ids: np.ndarray
    texts: np.ndarray
    drawn: np.ndarray
    tokens: np.ndarray


def known(counts: np.ndarray, unk_id: int | None) -> np.ndarray:
    """Returns the counts [V] of a text, with 0 for [UNK]."""
    counts = np.array(counts)
    if unk_id is not None:
        counts[unk_id] = 0
    return counts


def keep_probabilities(counts: np.ndarray, subsample: float) -> np.ndarray:
    """Returns the probability [V] float64 that an occurrence of a word stays.

    min(1, sqrt(t / f) + t / f), with f the word's share of the text and t the
    threshold, as in the code; the paper has sqrt(t / f). Words without a count
    have 0.
    """
    counted = (counts > 0).astype(np.float64)
    if not subsample:
        return counted
    share = np.maximum(counts, 1) / max(1, counts.sum())
    likely = np.sqrt(subsample / share) + subsample / share
    return counted * np.minimum(1.0, likely)


def noise(counts: np.ndarray) -> np.ndarray:
    """Returns q [V] float64, the distribution of negatives: unigram^0.75."""
    weights = np.asarray(counts, np.float64) ** POWER
    return weights / max(1.0, weights.sum())


def around(x: np.ndarray, window: int, fill: int) -> np.ndarray:
    """Returns windows of x [B, T]: [B, T, J], `fill` beyond the sequence."""
    padded = np.pad(x, ((0, 0), (window, window)), constant_values=fill)
    return sliding_window_view(padded, 2 * window + 1, axis=1)


def windows(
    text: Words, random: np.random.Generator, window: int
) -> np.ndarray:
    """Draws the words of each word's window: [B, T, J] bool.

    The half-width is uniform on 1 to w, so that a word at distance d is in the
    window with probability (w - d + 1) / w. The window ends where the passage
    does, and does not hold the word itself.
    """
    reach = random.integers(1, window + 1, text.ids.shape)
    distance = np.abs(np.arange(-window, window + 1))
    near = (distance <= reach[:, :, None]) & (distance > 0)
    same = around(text.texts, window, -1) == text.texts[:, :, None]
    return near & same & (text.texts >= 0)[:, :, None]


def words(
    text: Words, near: np.ndarray, rows: Mapping[str, str], specials: Specials
) -> View:
    """Makes pairs of every word and the words around.

    For a row that reads 'around' each word has J pairs, with all words that its
    window could hold; pairs with other words have weight 0. For a row that
    reads 'middle' each word has one pair, with the mean of its window.
    """
    del specials
    require_where(rows, 'around', 'middle')
    batch, _, size = near.shape
    targets, weights, mixes = {}, {}, {}
    for row, where in rows.items():
        if where == 'around':
            targets[row] = around(text.ids, size // 2, 0).reshape(batch, -1)
            weights[row] = near.reshape(batch, -1).astype(np.float32)
        else:
            count = near.sum(axis=2)
            targets[row] = text.ids
            weights[row] = (count > 0).astype(np.float32)
            share = 1 / np.maximum(count, 1).astype(np.float32)
            mixes[row] = near * share[:, :, None]
    return View(
        ids=text.ids,
        sequences=np.arange(batch, dtype=np.int32),
        targets=targets,
        weights=weights,
        mixes=mixes,
        drawn=dict.fromkeys(rows, text.drawn),
        counts={'padding': (text.texts < 0).sum(axis=1).astype(np.int32)},
    )


def draw(settings: Mapping[str, Any]) -> Draw:
    """Describes the draw of windows."""
    return Draw('words', windows, {'window': settings['window']})


def source_args(length: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Asks for T words that stay in the text, and M negatives a sequence."""
    return {
        'length': length,
        'subsample': settings['subsample'],
        'negatives': settings['negatives'],
    }


WORDS = ViewSpec(
    make=words,
    source='words',
    draw=draw,
    source_args=source_args,
    settings={
        'window': Setting(
            5, 'Largest window: words on each side of a word.', at_least=1
        ),
        'subsample': SUBSAMPLE,
        'negatives': Setting(
            64,
            'Negatives sampled for each sequence of a batch and shared by all '
            'its pairs.',
            at_least=1,
        ),
    },
)
