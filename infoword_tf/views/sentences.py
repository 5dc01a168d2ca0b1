"""Views of whole sentences: several texts of each example.

    view           shows
    sentences      k texts of each example: copies of a sentence, which differ
                   by dropout and by random changes; or a pair and its negatives
                   as given
    sentence_keys  one of them, for a momentum encoder: the plain sentence, or
                   the second text of a pair

All are formatted as [CLS] text [SEP] and packed like labelled examples.

The last copy is changed, or the only one where a momentum encoder makes b from
the plain sentence: `repeat` doubles tokens (Wu et al. 2022, "ESimCSE", §3.1),
`shuffle` permutes positions (Yan et al. 2021, "ConSERT", §3.2).

Glossary of shapes: n examples, k texts of each, C tokens of the longest,
S sequences, J examples that a sequence has room for.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.errors import InputError
from infoword_tf.settings import Setting
from infoword_tf.views.examples import Labelled, examples
from infoword_tf.views.view import Draw, Specials, View, ViewSpec

PAIRED = 'sentences'  # the view of both sides of pairs
COPIES = 2
LATER, POSITIVES = KEYS = ('queue', 'positives')
_ODD = np.uint64(0x9E3779B97F4A7C15)


class Sides(NamedTuple):
    """Settings of the two sides of pairs, for both texts that are compared.

    Attributes:
        expand: whether [MASK] tokens follow each a.
        attend: whether tokens attend to these.
        limits: tokens of an a and of a b at most; 0: as long as they are.
    """

    expand: bool = False
    attend: bool = False
    limits: tuple[int, int] = (0, 0)


ALONE = Sides()  # of texts without sides


class Changed(NamedTuple):
    """The changed texts of a batch.

    Attributes:
        source: [n, k, C] int64, index of each token in the text.
        lengths: [n, k] int32, of the changed texts.
        positions: [n, k, C] int32, of the tokens.
        key: index of the text, of k, that a momentum encoder reads.
        expanded: whether [MASK] tokens follow each first text.
        attended: whether tokens attend to these.
        others: [n, K] int64, other examples, whose b are candidates of each;
            None: none are drawn.
        limits: tokens of an a and of a b at most; 0: as long as they are.
    """

    source: np.ndarray
    lengths: np.ndarray
    positions: np.ndarray
    key: int
    expanded: bool = False
    attended: bool = True
    others: np.ndarray | None = None
    limits: tuple[int, int] = (0, 0)


def most_repeated(lengths: np.ndarray, repeat: float) -> np.ndarray:
    """Returns the largest number of doubled tokens of a text.

    It is max(2, int(repeat m)) of m tokens with specials (Wu et al. 2022,
    §3.1), specials excluded.

    Args:
        lengths: [...] integers, m.
        repeat: share of the tokens; 0: none is doubled.
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
    sides: Sides = ALONE,
    others: int = 0,
) -> Changed:
    """Doubles and permutes tokens of the last copy of each sentence.

    Args:
        text: copies, or texts of pairs, which do not change.
        random: generator of the draw.
        pairs, repeat, shuffle: settings of the view.
        sides: settings of pairs.
        others: K of `Changed.others`, at most the other examples; 0: none.
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
        # How often each token is shown, and the index after its last copy.
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
        # A permutation of all positions, of [CLS] and [SEP] too, as published.
        positions[:, -1] = order.argsort(axis=1, kind='stable')
    drawn = None
    if others:  # ranks of random numbers, of all examples but the own one
        order = random.random((b, b))
        np.fill_diagonal(order, 2.0)
        drawn = order.argsort(axis=1)[:, : min(others, b - 1)]
    return Changed(
        sources,
        lengths,
        positions,
        key=int(pairs > 0),
        expanded=sides.expand,
        attended=sides.attend or not sides.expand,
        others=drawn,
        limits=sides.limits,
    )


def draw(settings: Mapping[str, Any]) -> Draw:
    """Describes the draw of changed copies."""
    names = ('pairs', 'repeat', 'shuffle')
    chosen = {name: settings[name] for name in names}
    limits = settings['query_length'], settings['passage_length']
    chosen['sides'] = Sides(settings['expand'], settings['attend'], limits)
    if 'pair' in settings['where']:
        chosen['others'] = settings['others']
    return Draw('sentences', change, chosen)


def text_numbers(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Hashes the tokens of each text.

    `text_ids` does so in the graph, with other numbers, for rows that make
    texts in the step.

    Args:
        ids: [..., C] int32; anything beyond the lengths.
        lengths: [...].

    Returns:
        [...] int32, at least 0; -1 for a text without tokens.
    """
    place = np.arange(1, ids.shape[-1] + 1, dtype=np.uint64)
    mixed: np.ndarray = (ids.astype(np.uint64) + np.uint64(1)) * (place * _ODD)
    mixed ^= mixed >> np.uint64(29)
    mixed *= _ODD
    mixed ^= mixed >> np.uint64(32)
    real = place <= lengths[..., None]
    numbers = np.where(real, mixed, 0).sum(axis=-1, dtype=np.uint64)
    numbers = (numbers & np.uint64(0x7FFFFFFF)).astype(np.int32)
    return np.where(lengths > 0, numbers, -1).astype(np.int32)


def expansion(ids: np.ndarray, lengths: np.ndarray, mask_id: int) -> np.ndarray:
    """Marks [MASK] tokens behind the last other token of each text.

    Args:
        ids: [..., C] int32; anything beyond the lengths.
        lengths: [...].
        mask_id: id of [MASK].

    Returns:
        [..., C] bool.
    """
    real = np.arange(ids.shape[-1]) < lengths[..., None]
    none_else = np.logical_or(ids == mask_id, ~real)
    backward = none_else[..., ::-1]
    behind = np.logical_and.accumulate(backward, axis=-1)[..., ::-1]
    return behind & real


def sentences(
    text: Labelled,
    draw: Changed,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """Packs all texts of each example.

    Targets [S, J, k] are numbers of the unchanged texts (equal for equal texts,
    -1 for a missing text), weights are [S, J], places [S, J k] those of [CLS].
    Rows with a guide get the guide's vectors in `guides` [S, J, k, G].
    """
    # A negative of [CLS] and [SEP] alone is missing.
    exists = (text.lengths > 2) | (np.arange(text.ids.shape[1]) < COPIES)
    numbers = text_numbers(text.ids, np.where(exists, text.lengths, 0))
    ids = np.take_along_axis(text.ids, draw.source, axis=2)
    lengths = np.where(exists, draw.lengths, 0)
    ids[:, :, 0] = specials.cls_id
    sizes, hidden = lengths, None
    if draw.expanded:
        masks = expansion(ids, lengths, specials.mask_id)
        sizes = lengths - masks.sum(axis=2)
        hidden = None if draw.attended else masks.astype(np.int32)
    end = np.maximum(sizes - 1, 0)[:, :, None]
    np.put_along_axis(ids, end, specials.sep_id, axis=2)
    view = examples(
        text._replace(
            ids=ids,
            segments=np.zeros_like(ids),
            lengths=lengths,
            positions=draw.positions,
            targets=dict.fromkeys(rows, numbers),
            hidden=hidden,
        ),
        None,
        rows,
        specials,
    )
    slots = np.maximum(text.slots, 0)
    view = view._replace(
        guides={r: text.targets[r][slots] for r in rows if r in text.targets}
    )
    if text.truncated is None:
        return view
    truncated = text.truncated[slots] & (text.slots >= 0)
    truncated = truncated.sum(axis=1).astype(np.int32)
    return view._replace(counts={**view.counts, 'cut_sentences': truncated})


def sentence_keys(
    text: Labelled,
    draw: Changed,
    rows: Mapping[str, str],
    specials: Specials,
) -> View:
    """Packs the unchanged text of each example that a momentum encoder reads.

    Its sequences hold the examples of those of `sentences`, in the same order.
    """
    one = slice(draw.key, draw.key + 1)
    width = text.width
    if not draw.key:  # copies of one length
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
        truncated=None,
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
    """Asks for texts of at most T tokens, and copies of sentences.

    Raises:
        InputError: settings that need --pairs, or do not fit together.
    """
    chosen = [x for x in OF_PAIRS if settings[x] != SETTINGS[x].default]
    if chosen and not settings['pairs']:
        raise InputError(
            'sides_without_pairs',
            f'--sentences.{chosen[0]} is for the two sides of --pairs; give '
            '--pairs, or leave it out',
        )
    if 'pair' in settings.get('where', ()) and not settings['pairs']:
        raise InputError(
            'cross_without_pairs',
            'simcse.critic=cross reads an a and a b at once, and two copies '
            'of a sentence are alike; give --pairs',
        )
    if settings['expand'] and not settings['query_length']:
        raise InputError(
            'expand_to_no_length',
            '--sentences.expand pads to --sentences.query_length; give both',
        )
    markers = settings['markers'].split(',') if settings['markers'] else []
    if markers and (len(markers) != COPIES or not all(markers)):
        raise InputError(
            'markers_are_not_two',
            f'--sentences.markers={settings["markers"]}: give two tokens, one '
            'of a and one of b, as [unused0],[unused1]',
        )
    if settings['source'] != 'sentences':
        once = {'once': True} if settings['once'] else {}
        return {'length': length, **once}
    return {
        'length': length,
        'copies': 1 if settings['keys'] == POSITIVES else COPIES,
        'repeat': settings['repeat'],
    }


# Settings of the two sides of pairs.
OF_PAIRS = 'query_length', 'passage_length', 'expand', 'attend', 'markers'
# Fields of rows, too, whose types differ from a `Setting` until they are set.
SETTINGS: dict[str, Any] = {
    'attend': Setting(
        False,
        'Let other tokens attend to the [MASK] of an expanded a.',
        needs=('expand', (True,)),
    ),
    'expand': Setting(
        False,
        'Pad each a of --pairs with [MASK] to query_length tokens, whose '
        'states count as those of its words do (ColBERT).',
    ),
    'markers': Setting(
        '',
        'Two tokens of the vocabulary, which are put before each a and each b '
        'of --pairs, as [unused0],[unused1] (ColBERT); empty: none.',
    ),
    'others': Setting(
        4,
        'Of texts that are joined: b of how many other examples of the batch '
        'are candidates of each a (simcse.critic=cross).',
        at_least=1,
    ),
    'passage_length': Setting(
        0,
        'Tokens of a b of --pairs at most, special ones included, and not more '
        'than --seq_len; 0: as many.',
        at_least=0,
    ),
    'query_length': Setting(
        0,
        'Tokens of an a of --pairs at most, special ones included; 0: as many '
        'as --seq_len.',
        at_least=0,
    ),
    'keys': Setting(
        LATER,
        'What the vectors of a momentum encoder are: candidates of later '
        'updates (queue; ESimCSE), or b and the candidates of this one too '
        '(positives; MoCo).',
        choices=KEYS,
    ),
    'once': Setting(
        False,
        'Read an a of several --pairs once an epoch, with its b in turn; by '
        'default each b makes an example.',
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
