"""Views of whole sentences: several texts that belong together, in one row.

    view           shows
    sentences      K texts of each example: copies of a sentence, which differ
                   by dropout and by what is drawn here; or a pair and its
                   negatives, as people have written them
    sentence_keys  the one of them that a momentum encoder reads: the plain
                   sentence, or the second text of a pair

All are laid out as [CLS] text [SEP] and share rows, as labelled examples do.

What is drawn changes the last copy alone, or the only one, where a momentum
encoder makes b of the plain sentence: `repeat` doubles some of its tokens
(Wu et al. 2022, "ESimCSE", §3.1), `shuffle` permutes its positions (Yan et al.
2021, "ConSERT", §3.2).

Glossary of shapes: B examples, K texts of each, L tokens of the longest, R
rows, J examples that a row has room for, T tokens of a row.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.settings import Setting
from infoword_tf.views.examples import Labelled, examples
from infoword_tf.views.view import Draw, Specials, View, ViewSpec

COPIES = 2
LATER, POSITIVES = KEYS = ('queue', 'positives')
_ODD = np.uint64(0x9E3779B97F4A7C15)


class Changed(NamedTuple):
    """What is drawn in the texts of a batch.

    Attributes:
        source: [B, K, L] int64, the token of the text that each place shows.
        lengths: [B, K] int32, of what is shown.
        positions: [B, K, L] int32, of each place.
        key: which of the K texts a momentum encoder reads.
    """

    source: np.ndarray
    lengths: np.ndarray
    positions: np.ndarray
    key: int


def most_repeated(lengths: np.ndarray, repeat: float) -> np.ndarray:
    """How many tokens of a text are doubled at most.

    max(2, int(repeat N)) of N tokens with specials (Wu et al. 2022, §3.1), and
    no special.

    Args:
        lengths: [...] integers, N.
        repeat: share of the tokens; 0: none are doubled.
    """
    if not repeat:
        return np.zeros_like(lengths)
    most = np.maximum(2, (repeat * lengths).astype(lengths.dtype))
    return np.minimum(most, lengths - 2)


def change(
    text: Labelled,
    random: np.random.Generator,
    pairs: int,
    repeat: float,
    shuffle: bool,
) -> Changed:
    """Doubles and permutes tokens of the last copy of each sentence.

    Args:
        text: copies, or texts of pairs, which stay as they are.
        random: of the draw.
        pairs, repeat, shuffle: settings of the view.
    """
    b, k, longest = text.ids.shape
    if pairs:
        repeat, shuffle = 0.0, False
    lengths, width = text.lengths, longest
    if repeat:
        last = lengths[:, -1]  # [B]
        column = np.arange(longest)
        inner = (column > 0) & (column < last[:, None] - 1)
        number = random.integers(0, most_repeated(last, repeat) + 1)
        order = np.where(inner, random.random((b, longest)), 2.0)
        rank = order.argsort(axis=1).argsort(axis=1)
        # How often each is shown, and the place behind that.
        counts = (column < last[:, None]).astype(np.int64)
        counts += inner & (rank < number[:, None])
        ends = counts.cumsum(axis=1)
        lengths = lengths.copy()
        lengths[:, -1] = ends[:, -1]
        width = max(longest, int(ends[:, -1].max(initial=0)))
    place = np.arange(width)
    sources = np.broadcast_to(np.minimum(place, longest - 1), (b, k, width))
    positions = np.broadcast_to(place.astype(np.int32), (b, k, width))
    if repeat:
        source = (place[:, None] >= ends[:, None, :]).sum(axis=2)  # [B, width]
        sources = sources.copy()
        sources[:, -1] = np.minimum(source, longest - 1)
    if shuffle:
        positions = positions.copy()
        order = random.random((b, width))
        order[place >= lengths[:, -1:]] = 2.0
        # A permutation of 0 to n - 1, with [CLS] and [SEP] as published.
        positions[:, -1] = order.argsort(axis=1, kind='stable')
    return Changed(sources, lengths, positions, int(pairs > 0))


def draw(settings: Mapping[str, Any]) -> Draw:
    """What changes in the copies."""
    names = ('pairs', 'repeat', 'shuffle')
    return Draw('sentences', change, {name: settings[name] for name in names})


def text_numbers(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """A number for each text, the same for the same tokens: a hash.

    For rows that make their texts in the step, `objective.text_ids` does so in
    the graph; its numbers are others.

    Args:
        ids: [..., L] int32; anything beyond the lengths.
        lengths: [...].

    Returns:
        [...] int32, not below 0; -1 for a text without tokens.
    """
    place = np.arange(1, ids.shape[-1] + 1, dtype=np.uint64)
    mixed = (ids.astype(np.uint64) + np.uint64(1)) * (place * _ODD)
    mixed ^= mixed >> np.uint64(29)
    mixed *= _ODD
    mixed ^= mixed >> np.uint64(32)
    real = place <= lengths[..., None]
    found = np.where(real, mixed, 0).sum(axis=-1, dtype=np.uint64)
    found = (found & np.uint64(0x7FFFFFFF)).astype(np.int32)
    return np.where(lengths > 0, found, -1).astype(np.int32)


def sentences(
    text: Labelled,
    draw: Changed,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """All texts of each example.

    Rows find in `targets` [R, J, K] the number of each text as it was before
    anything was drawn (equal texts have equal ones, a text that is not there
    -1), weights [R, J], and places [R, J K] of [CLS]. Those that have a guide
    find its vectors in `guides` [R, J, K, G].
    """
    # A negative of which there are [CLS] and [SEP] alone is not there.
    there = (text.lengths > 2) | (np.arange(text.ids.shape[1]) < COPIES)
    numbers = text_numbers(text.ids, np.where(there, text.lengths, 0))
    ids = np.take_along_axis(text.ids, draw.source, axis=2)
    lengths = np.where(there, draw.lengths, 0)
    ids[:, :, 0] = specials.cls_id
    end = np.maximum(lengths - 1, 0)[:, :, None]
    np.put_along_axis(ids, end, specials.sep_id, axis=2)
    view = examples(
        text._replace(
            ids=ids,
            segments=np.zeros_like(ids),
            lengths=lengths,
            positions=draw.positions,
            targets=dict.fromkeys(rows, numbers),
        ),
        None,
        rows,
        specials,
    )
    slots = np.maximum(text.slots, 0)
    view = view._replace(
        guides={r: text.targets[r][slots] for r in rows if r in text.targets}
    )
    if text.cut is None:
        return view
    cut = text.cut[slots] & (text.slots >= 0)
    cut = cut.sum(axis=1).astype(np.int32)
    return view._replace(counts={**view.counts, 'cut_sentences': cut})


def sentence_keys(
    text: Labelled,
    draw: Changed,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """The text of each example that a momentum encoder reads, unchanged.

    Its rows hold the examples of those of `sentences`, in their order.
    """
    one = slice(draw.key, draw.key + 1)
    width = text.width
    if not draw.key:  # copies, of which all are as long
        width = -(-width // text.ids.shape[1])
    elif text.longest:
        width = min(width, text.slots.shape[1] * text.longest)
    plain = text._replace(
        ids=text.ids[:, one],
        segments=text.segments[:, one],
        lengths=text.lengths[:, one],
        places=text.places[:, one],
        width=width,
        targets={},
        cut=None,
    )
    column = np.arange(plain.ids.shape[2])
    shape = plain.ids.shape
    return sentences(
        plain,
        Changed(
            np.broadcast_to(column, shape),
            plain.lengths,
            np.broadcast_to(column, shape).astype(np.int32),
            draw.key,
        ),
        rows,
        specials,
    )


def source_args(length: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """T tokens of each text at most; copies of sentences."""
    if settings['source'] != 'sentences':
        return {'length': length}
    return {
        'length': length,
        'copies': 1 if settings['keys'] == POSITIVES else COPIES,
        'repeat': settings['repeat'],
    }


SETTINGS = {
    'keys': Setting(
        LATER,
        'What the vectors of a momentum encoder are: candidates of later '
        'updates (queue; ESimCSE), or b and the candidates of this one too '
        '(positives; MoCo).',
        choices=KEYS,
    ),
    'pairs': Setting(
        0,
        'Texts of each example of --pairs; 0: two copies of a sentence.',
        decided_by='--pairs',
    ),
    'repeat': Setting(
        0.0,
        'Up to this share of the tokens of the second copy of a sentence is '
        'doubled (ESimCSE: 0.32).',
        at_least=0.0,
    ),
    'shuffle': Setting(
        False,
        'Permute the positions of the second copy of a sentence (ConSERT).',
    ),
}
SENTENCES = ViewSpec(
    make=sentences,
    source='sentences',
    draw=draw,
    source_args=source_args,
    settings=SETTINGS,
    any_encoder=True,
)
SENTENCE_KEYS = SENTENCES._replace(make=sentence_keys, like='sentences')
