"""The contract of views: `View`, `ViewSpec`, and what a row `Reads`.

Each file of this package is a family of views: the tuple of text from a source
of `data/sources.py`, the draw, the function that makes the view, and at the end
one `ViewSpec` a view. All is NumPy over the global batch, with static shapes,
and pure in the text and the draw.

Glossary of shapes: P places, k texts of a sequence or place, J tokens around a
place, G width of a guide.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.errors import InputError
from infoword_tf.settings import Setting


class View(NamedTuple):
    """One view of the global batch: inputs of an encoder, and targets.

    A view with k texts to a sequence has [B, k, T] for [B, T], and [B, k, P]
    places; the encoder reads B k sequences.

    Attributes:
        ids: [B, T] int32.
        sequences: [B] int32: number of the text that each sequence is made
            from; candidates of the same text are no negatives. [B, P] where a
            sequence holds several texts, each with one place; -1 for none.
        positions, segment_ids, block_ids: [B, T] int32, or None for counting
            from 0, for 0 everywhere, for one block.
        ranks, sees: [B, T] int32: token i attends to token j where
            sees[i] > ranks[j], or i is j; a query at i only where
            sees[i] > ranks[j]. None: everywhere.
        directions: [B] int32: 1, or -1 for text that is read backward. None: 1
            everywhere.
        places: places by row at which states are read, [B, P] int32; missing
            for a row that reads all tokens.
        targets: the true b of each place, by row, [B, P] int32; equal numbers
            mean the same b. Missing for a row whose a alone is here. Of
            labelled examples the labels, float32 if numbers.
        weights: weights by row, [B, P] float32: 0 for padding; of the rows of
            `targets`.
        measured: flags by row, [B, P] float32: 0 where a shows b, or b is a
            separator: such a pair counts in the loss alone. Missing for a row
            all of whose pairs count.
        candidates: numbers by row whose b are places of the text, [B, T] int32:
            the text of the sequence for which a token is a candidate, -1 for
            none.
        mixes: weights of the J tokens around a place, by row whose a are means
            of tokens, [B, T, J] float32.
        guides: vectors of another model, by row, [B, P, k, G] float16, of the k
            texts of each place.
        drawn: sampled tokens that all pairs of a sequence are compared with,
            by row, [B, M] int32.
        hidden: [B, T] int32, 1 for tokens that no token attends to; None: 0
            everywhere.
        counts: counts for the metrics, by name, [B] int32. 'padding' becomes
            the share of padding. 'tokens', of the text, is added where batches
            are made (data/batches.py) and becomes tokens/s.
    """

    ids: Any
    sequences: Any
    positions: Any = None
    segment_ids: Any = None
    block_ids: Any = None
    ranks: Any = None
    sees: Any = None
    directions: Any = None
    places: dict[str, Any] = {}
    targets: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    measured: dict[str, Any] = {}
    candidates: dict[str, Any] = {}
    mixes: dict[str, Any] = {}
    guides: dict[str, Any] = {}
    drawn: dict[str, Any] = {}
    hidden: Any = None
    counts: dict[str, Any] = {}


class Specials(NamedTuple):
    """The properties of a vocabulary that views and encoders use.

    Attributes:
        cls_id, sep_id, mask_id: ids of special tokens.
        size: V.
        tokens: spellings in the order of the ids; empty if unknown.
        unk_id: id of [UNK], for words that the vocabulary lacks; None: no
            [UNK].
    """

    cls_id: int
    sep_id: int
    mask_id: int
    size: int
    tokens: Sequence[str] = ()
    unk_id: int | None = None


class Draw(NamedTuple):
    """A draw in a text, made once a step for all views that share the draw.

    Attributes:
        name: name of its random numbers, which come from (seed, step, name).
        function: (text, generator, **settings) -> result of the draw.
        settings: further arguments of the function.
    """

    name: str
    function: Callable[..., Any]
    settings: Mapping[str, Any] = {}


def _without_specials(
    length: int, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Asks for T - 2 tokens of text between [CLS] and [SEP]."""
    del settings
    return {'length': length - 2}


def all_text(length: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Asks for T tokens of text, or labelled texts of at most T tokens."""
    del settings
    return {'length': length}


class ViewSpec(NamedTuple):
    """The specification of a view.

    Attributes:
        make: (text, result of the draw, rows, specials) -> View; rows: the
            `Reads.where` of each row. Raises InputError for a `where` that the
            view does not have.
        source: name in SOURCES of the text, unless a row narrows it.
        draw: settings -> `Draw`; None: nothing is drawn. The settings are
            those of the view, `masking` (a name in MASKINGS), `mask_share` (of
            the tokens), and `where`, the set of all rows' `Reads.where`.
        source_args: (T, settings) -> arguments of the source: `length`, the
            tokens that it reads, and others. The settings are those of `draw`
            and `source`, its name. Raises InputError if they do not fit
            together.
        settings: that rows which read the view may choose.
        like: the view whose source, source_args and draw this view shares.
        any_encoder: whether all encoders can read the view: each takes the
            positions and segments that it knows.
    """

    make: Callable[..., View]
    source: str = 'windows'
    draw: Callable[[Mapping[str, Any]], Draw] | None = None
    source_args: Callable[..., dict[str, Any]] = _without_specials
    settings: Mapping[str, Setting] = {}
    like: str | None = None
    any_encoder: bool = False


class ViewTable(dict[str, ViewSpec]):
    """Views by name."""

    def root(self, view: str) -> str:
        """Returns the view whose text and draw a view shares, or `view`."""
        return self[view].like or view


_TEXT = 'The state of each [CLS] in bold stands for its text.'
CAPTIONS = {  # by `Reads.where`, for pictures
    'tokens': 'The states of orange words are compared with what the arrows '
    'name.',
    'queries': 'The query states are compared with what the arrows name, in '
    'the order of the numbers.',
    'start': _TEXT,
    'example': _TEXT,
    'next': 'The state of [CLS] tells whether the second segment of text goes '
    'with the first.',
    'text': 'All states are wanted: a mean of them stands for the text.',
    'following': 'Every state is compared with the word that comes next.',
    'around': 'Each word is compared with those of a window around it.',
    'pair': 'The state of each [CLS] in bold stands for two texts.',
    'middle': 'The mean of each window is compared with the word in its '
    'middle.',
}


class Reads(NamedTuple):
    """The states, encoders and texts that a row reads of a view.

    Attributes:
        where: 'tokens', at the predicted tokens; 'queries', the query stream
            there, which knows the position and not the token; 'start', at
            [CLS]; 'next', at [CLS], with a label whether the second text
            follows the first; 'example', the state that represents a text,
            such as that of [CLS]; 'text', all tokens; 'following', tokens of
            labelled texts, each with its next token; 'around', words with the
            words around each; 'middle', windows of words with the word in the
            middle; 'pair', the state that represents two texts.
        encoders: names of those that encode the view: 'encoder', or auxiliary
            encoders of the row; none for a view that has targets alone.
        layers: whether the row reads the states of all layers; 'below': of
            those below the last alone.
        everywhere: whether it reads the states of all tokens, not only at its
            places. 'example' always does with an encoder that is not
            contextual.
        passes: times that each encoder encodes the view, with other dropout.
        dropped: whether held-out text is encoded with dropout, because the
            texts that are compared differ by that alone. With several passes
            it always is.
        source: the one name in SOURCES that it can use; None: any.
        masking: the one name in MASKINGS that it can use; None: any.
        caption: a sentence about that for pictures (`infoword_tf.show`); '':
            that of CAPTIONS.
    """

    where: str
    encoders: tuple[str, ...] = ('encoder',)
    layers: bool | str = False
    everywhere: bool = False
    passes: int = 1
    dropped: bool = False
    source: str | None = None
    masking: str | None = None
    caption: str = ''


def require_where(rows: Mapping[str, str], *known: str) -> None:
    """Raises InputError for a row whose `Reads.where` a view does not have."""
    if set(rows.values()) - set(known):
        raise InputError(
            'where_not_in_view',
            f'rows of this view read {" and ".join(known)} alone: {rows}',
        )


def flatten(views: dict[str, View]) -> dict[str, Any]:
    """Flattens views to one dict, with keys like 'masked/targets/mlm'."""
    flat = {}
    for name, view in views.items():
        for field, value in view._asdict().items():
            if isinstance(value, dict):
                for row, array in value.items():
                    flat[f'{name}/{field}/{row}'] = array
            elif value is not None:
                flat[f'{name}/{field}'] = value
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, View]:
    """Reverses `flatten`."""
    fields: dict[str, dict[str, Any]] = {}
    for path, array in flat.items():
        name, field, *row = path.split('/')
        view = fields.setdefault(name, {})
        if row:
            view.setdefault(field, {})[row[0]] = array
        else:
            view[field] = array
    return {name: View(**view) for name, view in fields.items()}


def generator(seed: int, step: int, name: str) -> np.random.Generator:
    """Returns the generator of one draw of one step."""
    return np.random.default_rng([seed, step, zlib.crc32(name.encode())])


def numbered(texts: np.ndarray) -> np.ndarray:
    """Assigns numbers to texts [n, T], equal for equal texts: [n] int32."""
    _, number = np.unique(texts, axis=0, return_inverse=True)
    return number.ravel().astype(np.int32)
