"""Contexts that are too long for a sequence: windows over them, and a question.

    bert    [CLS] question [SEP] context [SEP]
    xlnet   context [SEP] question [SEP] [CLS]

A window begins `stride` tokens after the one before it, until one holds the
last token (Devlin et al. 2019, as its code has it). A token that is in several
windows is read best where it has most context; spans begin there alone.

Glossary of shapes: G windows of all contexts, J tokens of all windows together.
"""

from typing import NamedTuple

import tensorflow as tf

from infoword_tf.tensors import Tensor
from infoword_tf.text.template import Template


class ContextWindows(NamedTuple):
    """Windows, in the order of contexts.

    Attributes:
        contexts: [G] int64, the index of each window's context.
        firsts: [G] int64, the first token of the window in its context.
        sizes: [G] int64, tokens of the window.
    """

    contexts: Tensor
    firsts: Tensor
    sizes: Tensor


def windows(sizes: Tensor, limits: Tensor, stride: int) -> ContextWindows:
    """Places windows over contexts of `sizes` tokens; graph or eager.

    Args:
        sizes: [B] int64.
        limits: [B] int64, tokens that a window has room for, 1 or more.
        stride: tokens between the beginnings of windows, at most.
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


def most_context(windows: ContextWindows, sizes: Tensor) -> Tensor:
    """Finds the tokens that no other window shows with more context.

    The context of a token is the smaller number of tokens on either side and
    a hundredth of the window's length. Among equals it is the first window.
    `sizes` [B] are tokens of the contexts.

    Returns:
        [J] bool, window after window.
    """
    window = tf.repeat(
        tf.range(tf.size(windows.sizes, tf.int64)), windows.sizes
    )
    begins = tf.cumsum(windows.sizes, exclusive=True)
    place = tf.range(tf.size(window, tf.int64)) - tf.gather(begins, window)
    size = tf.gather(windows.sizes, window)
    context = 100 * tf.minimum(place, size - 1 - place) + size
    context_score = context * tf.size(windows.sizes, tf.int64) - window
    token = place + tf.gather(
        tf.gather(tf.cumsum(sizes, exclusive=True), windows.contexts)
        + windows.firsts,
        window,
    )
    best = tf.math.unsorted_segment_max(
        context_score, token, tf.reduce_sum(sizes)
    )
    return tf.equal(context_score, tf.gather(best, token))


def question_limit(max_length: int, specials: int, longest: int) -> int:
    """Returns how many tokens of a question are read.

    `longest`, or half of the room that is left by `specials` special tokens.
    """
    return min(longest, (max_length - specials) // 2)


def add_questions(
    questions: tf.RaggedTensor, contexts: tf.RaggedTensor, template: Template
) -> tuple[tf.RaggedTensor, Tensor, Tensor]:
    """Formats questions and windows of contexts, [G, None] int32 each.

    Returns:
        ids [G, None]; and [G] int64 where the second text of each begins, and
        where its context does.
    """
    context_first = 'cls' in template.layout.two[1]  # as in XLNet
    texts = (contexts, questions) if context_first else (questions, contexts)
    before, between = len(template.around_two[0]), len(template.between)
    second = before + texts[0].row_lengths() + between
    first = tf.fill(tf.shape(second), tf.cast(before, second.dtype))
    ids = template.two(*texts)
    return ids, second, first if context_first else second
