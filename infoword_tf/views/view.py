"""What a view is, how it comes about, and what a row may want of it.

A file of this package is a family of views: the tuple of text that it reads
(from a source of `data/sources.py`), the draw, and the function that makes the
view; it ends in one `ViewSpec` a view. All of it is NumPy over the whole
global batch, static shapes, pure in the text and the draw.

Glossary of shapes: B sequences, T tokens with specials, P places, K texts of a
sequence or place, G width of a guide.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.settings import Setting


class View(NamedTuple):
    """One view of the global batch, as an encoder takes it.

    A view of several texts to a sequence has [B, K, T] where [B, T] is said
    and [B, K, P] places; the encoder sees them as B K sequences.

    Attributes:
        ids: [B, T] int32.
        sequences: [B] int32: the number of the text each row is made from;
            candidates of the same text are no negatives. [B, P] where rows
            hold several texts, each with one place; -1 for none.
        positions, segment_ids, block_ids: [B, T] int32, or None for counting
            from 0, for 0 everywhere, for one block.
        ranks, sees: [B, T] int32: token i may look at token j where
            sees[i] > ranks[j], or i is j; a query at i where
            sees[i] > ranks[j] alone. None: everywhere.
        directions: [B] int32: 1, or -1 for texts that are read backward, in
            which left is right. None: 1 everywhere.
        places: by row, [B, P] int32: where its states are; not for a row that
            wants all.
        targets: by row, [B, P] int32: the true b of each place; equal numbers
            mean the same b. Not for a row that has only its a here. Of
            labelled examples the label of each, float32 where it is a
            number.
        weights: by row, [B, P] float32: 0 where a place is padding; of the
            same rows as `targets`.
        measured: by row, [B, P] float32: 0 where a shows b, or b is a
            separator, which then counts in the loss alone; not for a row
            all of whose pairs count.
        candidates: by row, [B, T] int32: for a row whose b are places of the
            text: of which of a row's texts a token is a candidate, -1 for none.
        mixes: by row, [B, T, J] float32: for a row whose a are means of tokens:
            the weight of each of the J tokens around a place.
        guides: by row, [B, P, K, G] float16: of the K texts of each place, a
            vector that another model has made.
        drawn: by row, [B, M] int32: pieces that all pairs of a sequence are
            compared with.
        counts: by name, [B] int32: counts for the metrics. 'padding' becomes
            the share of places that are padding. 'tokens', of the text, is
            added where batches are made (data/batches.py) and becomes
            tokens/s.
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
    counts: dict[str, Any] = {}


class Specials(NamedTuple):
    """What views and encoders need to know of the vocabulary.

    Attributes:
        cls_id, sep_id, mask_id: of special pieces.
        size: V.
        pieces: as they are written, in the order of their ids; none where
            nobody knows.
        unk_id: of [UNK], which stands for what the vocabulary lacks; None:
            there is none.
    """

    cls_id: int
    sep_id: int
    mask_id: int
    size: int
    pieces: Sequence[str] = ()
    unk_id: int | None = None


class Draw(NamedTuple):
    """What is drawn in a text, once a step for all views that share it.

    Attributes:
        name: of its random numbers, which are those of (seed, step, name).
        function: (text, generator, **settings) -> what is drawn.
        settings: of the function.
    """

    name: str
    function: Callable[..., Any]
    settings: Mapping[str, Any] = {}


def _without_specials(
    length: int, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """T - 2 tokens of text between [CLS] and [SEP]."""
    del settings
    return {'length': length - 2}


def all_text(length: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """T tokens of text, none of them twice, or of labelled texts at most."""
    del settings
    return {'length': length}


class ViewSpec(NamedTuple):
    """How a view comes about.

    Attributes:
        make: (text, what was drawn, rows, specials) -> View; rows: what each
            row wants there, `Reads.where`. Raises ValueError where there is
            no such thing.
        source: name in SOURCES of its text, unless a row narrows it.
        draw: settings -> `Draw`; None: nothing is drawn. The settings are
            the view's own, `masking`, a name in MASKINGS, `mask_share`, of
            the tokens, and `where`, all that rows want of the text.
        source_args: (T, settings) -> arguments of the source: `length`, the
            tokens that it reads, and others that it has. The settings are
            these and `source`, its name. Raises ValueError where they do not
            fit together.
        settings: what rows that read it may choose.
        like: the view that it is cut out of: source, source_args and draw are
            that one's.
        any_encoder: whether it is laid out for all encoders: of its positions
            and segments each takes what it knows.
    """

    make: Callable[..., View]
    source: str = 'windows'
    draw: Callable[[Mapping[str, Any]], Draw] | None = None
    source_args: Callable[..., dict[str, Any]] = _without_specials
    settings: Mapping[str, Setting] = {}
    like: str | None = None
    any_encoder: bool = False


class Reads(NamedTuple):
    """What a row wants of a view.

    Attributes:
        where: 'pieces', the places of what is predicted; 'queries',
            the query stream there, which knows the place and not the piece;
            'start', [CLS]; 'next', that and whether the second piece of text
            goes with the first; 'example', what sums a labelled text up;
            'text', all tokens; 'following', those of labelled texts, each with
            the one after it; 'around', all words with those around each;
            'middle', with each in the middle of those.
        encoders: by name, those that encode it: 'encoder', or what the row
            brings along (`Row.companions`); none for a view that brings
            targets alone.
        layers: whether it wants the states of all layers there too; 'below':
            of those below the last alone.
        everywhere: whether it wants the states of all tokens, not of its
            places alone. Of an encoder that is not contextual 'example' is
            all tokens.
        passes: how often each encodes it, each time with other dropout.
        dropped: whether held-out text is encoded with dropout, because the
            texts that are compared differ by that alone. With several passes
            it always is.
        source: the one name in SOURCES that it can use; None: any.
        masking: the one name in MASKINGS that it can use; None: any.
    """

    where: str
    encoders: tuple[str, ...] = ('encoder',)
    layers: bool | str = False
    everywhere: bool = False
    passes: int = 1
    dropped: bool = False
    source: str | None = None
    masking: str | None = None


def flatten(views: dict[str, View]) -> dict[str, Any]:
    """Views as one flat dict, 'masked/targets/mlm' and the like."""
    flat = {}
    for name, view in views.items():
        for field, value in view._asdict().items():
            if isinstance(value, dict):
                for part, array in value.items():
                    flat[f'{name}/{field}/{part}'] = array
            elif value is not None:
                flat[f'{name}/{field}'] = value
    return flat


def unflatten(flat: dict[str, Any]) -> dict[str, View]:
    """What `flatten` was given."""
    fields: dict[str, dict[str, Any]] = {}
    for path, array in flat.items():
        name, field, *part = path.split('/')
        view = fields.setdefault(name, {})
        if part:
            view.setdefault(field, {})[part[0]] = array
        else:
            view[field] = array
    return {name: View(**view) for name, view in fields.items()}


def generator(seed: int, step: int, name: str) -> np.random.Generator:
    """The random numbers of one draw of one step."""
    return np.random.default_rng([seed, step, zlib.crc32(name.encode())])


def numbered(texts: np.ndarray) -> np.ndarray:
    """Equal rows of [n, T] get equal numbers: [n] int32."""
    _, number = np.unique(texts, axis=0, return_inverse=True)
    return number.ravel().astype(np.int32)
