"""The view `words`: the words of a text and, around each, a window of others.

Skip-gram and CBOW (Mikolov et al. 2013) as word2vec.c has them: words that the
vocabulary lacks ([UNK]) leave the text, frequent ones with a probability, and
only then windows are taken, each of a width of its own, uniform on 1 to w. They
end with documents and with rows of the batch (the code's after 1,000 words).

Glossary of shapes: B rows, T words, J = 2 w + 1 places of a window, M draws,
V vocabulary.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from infoword_tf.settings import Setting
from infoword_tf.views.view import Draw, Specials, View, ViewSpec

POWER = 0.75  # of the counts, which negatives are drawn from

SUBSAMPLE = Setting(
    1e-3,
    'Relative frequency above which words are randomly dropped (word2vec: '
    'sample); 0: none is.',
    at_least=0.0,
)


class Words(NamedTuple):
    """A global batch of the source `words`.

    Attributes:
        ids: [B, T] int32, what is left of the text, in its order.
        texts: [B, T] int32, equal where words are of one passage of one
            document; -1 for padding, at the end of the batch alone.
        drawn: [B, M] int32, words for all pairs of a row to be compared with.
        tokens: [B] int32, of the text before words were dropped.
    """

    ids: np.ndarray
    texts: np.ndarray
    drawn: np.ndarray
    tokens: np.ndarray


def known(counts: np.ndarray, unk_id: int | None) -> np.ndarray:
    """[V]: the counts of a text, 0 of what stands for unknown words."""
    counts = np.array(counts)
    if unk_id is not None:
        counts[unk_id] = 0
    return counts


def keep_probabilities(counts: np.ndarray, subsample: float) -> np.ndarray:
    """[V] float64: how likely an occurrence of a word stays in the text.

    min(1, sqrt(t / f) + t / f), f the word's share of the text, t the
    threshold: as in the code, where the paper has sqrt(t / f). 0 of what is not
    counted.
    """
    counted = (counts > 0).astype(np.float64)
    if not subsample:
        return counted
    share = np.maximum(counts, 1) / max(1, counts.sum())
    likely = np.sqrt(subsample / share) + subsample / share
    return counted * np.minimum(1.0, likely)


def noise(counts: np.ndarray) -> np.ndarray:
    """[V] float64: q, what negatives are drawn from, unigram^0.75."""
    weights = np.asarray(counts, np.float64) ** POWER
    return weights / max(1.0, weights.sum())


def around(x: np.ndarray, window: int, fill: int) -> np.ndarray:
    """Each place's window: x [B, T] -> [B, T, J], `fill` beyond the row."""
    padded = np.pad(x, ((0, 0), (window, window)), constant_values=fill)
    return sliding_window_view(padded, 2 * window + 1, axis=1)


def windows(
    text: Words, random: np.random.Generator, window: int
) -> np.ndarray:
    """[B, T, J] bool: the words around each that its window holds.

    Its half-width is uniform on 1 to w, so that a word at distance d is in it
    with probability (w - d + 1) / w. It ends where the passage does, and does
    not hold the word itself.
    """
    reach = random.integers(1, window + 1, text.ids.shape)
    distance = np.abs(np.arange(-window, window + 1))
    near = (distance <= reach[:, :, None]) & (distance > 0)
    same = around(text.texts, window, -1) == text.texts[:, :, None]
    return near & same & (text.texts >= 0)[:, :, None]


def words(
    text: Words, near: np.ndarray, rows: Mapping[str, str], specials: Specials
) -> View:
    """Every word of a text, with the words around it.

    Of a row that wants 'around' each place has J pairs, of the word with all
    that its window could hold; what it does not hold weighs nothing. Of one
    that wants 'middle' each place is one pair, of the mean of its window with
    the word.
    """
    del specials
    batch, length, places = near.shape
    found: dict[str, dict[str, Any]] = {'targets': {}, 'weights': {}}
    mixes = {}
    for row, wanted in rows.items():
        if wanted == 'around':
            targets = around(text.ids, places // 2, 0).reshape(batch, -1)
            weights = near.reshape(batch, -1).astype(np.float32)
        elif wanted == 'middle':
            size = near.sum(axis=2)
            targets, weights = text.ids, (size > 0).astype(np.float32)
            share = 1 / np.maximum(size, 1).astype(np.float32)
            mixes[row] = near * share[:, :, None]
        else:
            raise ValueError(
                f'rows of this view read windows alone: {row} wants {wanted}'
            )
        found['targets'][row], found['weights'][row] = targets, weights
    return View(
        ids=text.ids,
        sequences=np.arange(batch, dtype=np.int32),
        **found,
        mixes=mixes,
        drawn=dict.fromkeys(rows, text.drawn),
        counts={'padding': (text.texts < 0).sum(axis=1).astype(np.int32)},
    )


def draw(settings: Mapping[str, Any]) -> Draw:
    """How wide windows are."""
    return Draw('words', windows, {'window': settings['window']})


def source_args(length: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """T words of what is left of the text, and M negatives for each row."""
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
            'Negatives sampled for each row of a batch and shared by all its '
            'pairs.',
            at_least=1,
        ),
    },
)
