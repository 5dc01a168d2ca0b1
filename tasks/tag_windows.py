"""Windows over texts whose words are labelled, as a model reads them.

Glossary of shapes: W words of all texts, A tokens of all texts, C labels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from infoword_tf import errors
from infoword_tf.data.examples import Examples
from infoword_tf.inference.tagger import first_tokens, join_words, windows_of
from infoword_tf.text import tags
from infoword_tf.text.layout import Layout
from infoword_tf.text.template import Template
from infoword_tf.views.examples import UNKNOWN, UNLABELLED

from .tag_data import Tagged

_TEXTS_A_CALL = 4096  # of the tokenizer


class TaggedWindows(NamedTuple):
    """Windows over texts, and the places of words.

    Attributes:
        examples: windows, for the row `tag`.
        words: [W] int64, the first token of each word among those of all
            windows; -1: none.
        notes: remarks for people.
    """

    examples: Examples
    words: np.ndarray
    notes: tuple[str, ...] = ()


def features(
    tagged: Tagged,
    labels: Sequence[str],
    template: Template,
    max_length: int,
    context: int,
    tokens: str,
) -> TaggedWindows:
    """Splits texts into windows, as inputs of a model.

    A label counts at the first token of its word, or, as --tag.tokens has it,
    at all. What the model reads as several words (`text.words`) has as many
    labels: those of one span.

    Args:
        tagged: texts with labels in one scheme, or without.
        labels: C names; others are unknown to the model.
        template: template of the model's inputs.
        max_length: T.
        context, tokens: settings of the row.
    """
    chunks, total, unread = [], 0, 0
    for begin in range(0, len(tagged.words), _TEXTS_A_CALL):
        chunk = slice(begin, begin + _TEXTS_A_CALL)
        texts, bounds = join_words(tagged.words[chunk], begin)
        windows = windows_of(
            tf.constant(texts, tf.string),
            template,
            max_length=max_length,
            context=context,
            which=tokens,
        )
        labelled = windows.labelled.numpy()
        starts = windows.starts
        classes = _classes(tagged.tags[chunk], starts, bounds, labels)
        of_tokens = np.full(len(labelled), UNKNOWN, np.int32)
        of_tokens[labelled] = classes
        most, source = windows.most.numpy(), windows.tokens.numpy()
        lengths, ids = windows.lengths.numpy(), windows.ids.numpy()
        column = np.arange(ids.shape[1])
        real = column < lengths[:, None]
        text = column >= len(template.before)
        text = text & (column < (lengths - len(template.after))[:, None])
        targets = np.full(ids.shape, UNKNOWN, np.int32)
        targets[text] = np.where(most, of_tokens[source], UNKNOWN)
        # Among the tokens of windows, the one that counts for each of A.
        place = np.zeros(len(labelled) + 1, np.int64)
        place[source[most]] = (total + np.flatnonzero(text[real]))[most]
        words = first_tokens(starts, bounds)
        unread += int((words < 0).sum())
        place_of_word = place[:-1][labelled][words] if labelled.any() else 0
        chunks.append((
            ids[real], targets[real], lengths,
            np.where(words < 0, -1, place_of_word),
        ))  # fmt: skip
        total += int(lengths.sum())
    ids, targets, lengths, words = map(
        np.concatenate, zip(*chunks, strict=True)
    )
    if not len(lengths):
        raise errors.InputError(
            'no_token_of_words', f'{tagged.where}: the tokenizer leaves nothing'
        )
    return TaggedWindows(
        _examples(
            ids,
            targets,
            lengths=lengths,
            layout=template.layout,
            classes=len(labels),
        ),
        words,
        _notes(
            tagged,
            labels,
            words=len(words),
            windows=len(lengths),
            unread=unread,
        ),
    )


def _examples(
    ids: np.ndarray,
    targets: np.ndarray,
    lengths: np.ndarray,
    layout: Layout,
    classes: int,
) -> Examples:
    """Makes examples of tokens, labels of tokens and lengths of windows."""
    segments = np.zeros(len(ids), np.int8)
    if layout.last_segment is not None:
        segments[np.cumsum(lengths) - 1] = layout.last_segment
    places = np.zeros_like(lengths) if layout.first else lengths - 1
    known = targets[targets >= 0]
    return Examples(
        ids=ids.astype(np.int32),
        segments=segments,
        begins=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        places=places.astype(np.int32),
        targets={},
        counts={'tag': np.bincount(known, minlength=classes)},
        of_tokens={'tag': targets},
    )


def _classes(
    texts: Sequence[Sequence[str]],
    starts: tf.RaggedTensor,
    bounds: Sequence[np.ndarray],
    labels: Sequence[str],
) -> list[int]:
    """Numbers the labels of all parts of the words of texts.

    Args:
        texts: labels of the words of each; none: unknown.
        starts: places where parts begin, by text.
        bounds: places where words begin and end, by text.
        labels: C names.
    """
    numbers = {label: number for number, label in enumerate(labels)}
    marked, ends = tags.marks_spans(labels), tags.marks_ends(labels)
    classes = []
    splits, values = starts.row_splits.numpy(), starts.values.numpy()
    places = np.split(values, splits[1:-1])
    for tag, inside, bound in zip(texts, places, bounds, strict=True):
        if not tag:
            classes += [UNLABELLED] * len(inside)
            continue
        word = np.searchsorted(bound[:, 0], inside, 'right') - 1
        if ends:  # that of a word is none of its parts
            tag = tags.spelled(tag, tags.IOB2)
        parts = [tag[i] for i in word]
        if marked:
            for i in np.flatnonzero(np.diff(word, prepend=-1) == 0):
                if parts[i] != tags.NONE:
                    parts[i] = f'I-{parts[i][2:]}'
        if ends:
            parts = tags.spelled(parts, tags.BIOES)
        classes += [numbers.get(part, UNKNOWN) for part in parts]
    return classes


def _notes(
    tagged: Tagged, labels: Sequence[str], words: int, windows: int, unread: int
) -> tuple[str, ...]:
    """Describes windows for people: counts, and labels that training lacks."""
    notes = [
        f'{tagged.where}: {len(tagged.words):,} texts of {words:,} words '
        f'in {windows:,} windows'
    ]
    if unread:
        notes.append(
            f'{tagged.where}: the tokenizer leaves nothing of {unread:,} words'
        )
    others = {x for text in tagged.tags for x in text} - {*labels}
    if others:
        notes.append(
            f'{tagged.where} has labels that training lacks, which count as '
            f'mistakes: {", ".join(sorted(others)[:10])}'
        )
    return tuple(notes)
