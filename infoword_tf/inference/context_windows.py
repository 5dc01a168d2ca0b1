"""Contexts that are too long for a row: windows over them, beside a question.

    bert    [CLS] question [SEP] context [SEP]
    xlnet   context [SEP] question [SEP] [CLS]

A window begins `stride` pieces after the one before it, until one holds the
last piece (Devlin et al. 2019, as its code has it). A piece that is in several
windows is read best where it has most context; spans begin there alone.

Glossary of shapes: B contexts, W windows, N pieces of all windows together.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from infoword_tf.text.template import Template

Tensor = Any


class ContextWindows(NamedTuple):
    """Windows, in the order of their contexts.

    Attributes:
        contexts: [W] int64, the number of each one's context.
        firsts: [W] int64, its first piece there.
        sizes: [W] int64, how many pieces it has.
    """

    contexts: Tensor
    firsts: Tensor
    sizes: Tensor


def windows(sizes: Tensor, limits: Tensor, stride: int) -> ContextWindows:
    """Where windows lie over contexts of sizes [B] int64; graph or eager.

    Args:
        limits: [B] int64, pieces that a window of it has room for, 1 or more.
        stride: pieces between the beginnings of windows, at most.
    """
    steps = tf.minimum(limits, tf.cast(stride, limits.dtype))
    beyond = tf.maximum(sizes - limits, 0)
    counts = tf.where(sizes > 0, 1 + (beyond + steps - 1) // steps, 0)
    contexts = tf.repeat(tf.range(tf.size(sizes, tf.int64)), counts)
    number = tf.range(tf.size(contexts, tf.int64)) - tf.gather(
        tf.cumsum(counts, exclusive=True), contexts
    )
    firsts = number * tf.gather(steps, contexts)
    return ContextWindows(
        contexts,
        firsts,
        tf.minimum(
            tf.gather(limits, contexts), tf.gather(sizes, contexts) - firsts
        ),
    )


def most_context(found: ContextWindows, sizes: Tensor) -> Tensor:
    """Which pieces have nowhere more context than in this window.

    The context of a piece is the smaller number of pieces on either side and
    a hundredth of the window's length. Among equals it is the first window.

    Returns:
        [N] bool, of the pieces of one window after those of the other.
    """
    window = tf.repeat(tf.range(tf.size(found.sizes, tf.int64)), found.sizes)
    begins = tf.cumsum(found.sizes, exclusive=True)
    place = tf.range(tf.size(window, tf.int64)) - tf.gather(begins, window)
    size = tf.gather(found.sizes, window)
    context = 100 * tf.minimum(place, size - 1 - place) + size
    context_score = context * tf.size(found.sizes, tf.int64) - window
    piece = place + tf.gather(
        tf.gather(tf.cumsum(sizes, exclusive=True), found.contexts)
        + found.firsts,
        window,
    )
    best = tf.math.unsorted_segment_max(
        context_score, piece, tf.reduce_sum(sizes)
    )
    return tf.equal(context_score, tf.gather(best, piece))


def question_limit(max_length: int, specials: int, longest: int) -> int:
    """Pieces of a question that are read: `longest`, or half of the room."""
    return min(longest, (max_length - specials) // 2)


def beside(
    questions: tf.RaggedTensor, contexts: tf.RaggedTensor, template: Template
) -> tuple[tf.RaggedTensor, Tensor, Tensor]:
    """Lays questions and parts of contexts, [W, pieces] int32 each, out.

    Returns:
        ids [W, tokens]; and [W] int64 where the second text of each begins,
        and its context.
    """
    ahead = 'cls' in template.layout.two[1]  # the context, as in XLNet
    texts = (contexts, questions) if ahead else (questions, contexts)
    before, between = len(template.around_two[0]), len(template.between)
    second = before + texts[0].row_lengths() + between
    first = tf.fill(tf.shape(second), tf.cast(before, second.dtype))
    return template.two(*texts), second, first if ahead else second
