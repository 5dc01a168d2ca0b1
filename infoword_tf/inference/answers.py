"""Scores of places to answers: the best spans, as the original text has them.

An answer begins where it has most context (`context_windows.most_context`), has
a limited length, and is arg max of f(first) + f(last), which within a window is
that of p(first) p(last) (Kong et al. 2019, App. C). Spans of all windows of a
question compete, and "no answer" with them: its score is the lowest of all
windows (Devlin et al. 2019, as its code has it). Of equal texts the best stays.

Glossary of shapes: G windows, J tokens of the longest context of
a window, P first places of a window, E tokens of an answer at most, S spans of
a window, A answers of a question.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from infoword_tf.objectives.infonce import NEVER
from infoword_tf.tensors import Tensor

N_BEST = 20
SPANS = 40  # of a window: several may be the same text
AMONG = 100  # best spans of a question that become answers
NOWHERE = -1  # the bytes of no answer
# Odds of no answer where there is no other: what JSON and thresholds can hold.
SURE = -NEVER


class BestSpans(NamedTuple):
    """The best spans of windows, best first.

    Attributes:
        scores: [G, S] float32, nats; NEVER or less where there are fewer.
        firsts, lasts: [G, S] int32, places among the tokens of the window's
            context.
    """

    scores: Tensor
    firsts: Tensor
    lasts: Tensor


def spans(
    first: Tensor,
    last: Tensor,
    most: Tensor,
    sizes: Tensor,
    longest: int,
    count: int = SPANS,
) -> BestSpans:
    """Finds the best spans by f(first) + f(last); graph or eager.

    Args:
        first, last: [G, J] float32, scores of places of contexts.
        most: [G, J] bool, where a span may begin.
        sizes: [G] int32, tokens of each context.
        longest: E.
        count: S.
    """
    length = tf.shape(first)[1]
    inside = tf.sequence_mask(sizes, length)
    first = tf.where(tf.logical_and(most, inside), first, NEVER)
    last = tf.where(inside, last, NEVER)
    last = tf.pad(last, [[0, 0], [0, longest]], constant_values=NEVER)
    after = tf.stack(
        [last[:, i : length + i] for i in range(longest)], axis=2
    )  # [G, J, E]
    firsts = tf.broadcast_to(tf.range(length)[None], tf.shape(first))
    return _best(first[:, :, None] + after, firsts, longest, count)


def spans_after(
    starts: Tensor,
    first: Tensor,
    last: Tensor,
    most: Tensor,
    sizes: Tensor,
    longest: int,
    count: int = SPANS,
) -> BestSpans:
    """Finds the best spans where scores of last places depend on the first.

    Args:
        starts: [G, P] int32, first places.
        first: [G, P] float32, their scores; NEVER: no place.
        last: [G, J, P] float32, scores of last places after each.
        most, sizes, longest, count: arguments of `spans`.
    """
    # What is no first place has no score, wherever it points.
    starts = tf.clip_by_value(starts, 0, tf.shape(last)[1] - 1)
    may = tf.gather(most, starts, batch_dims=1)
    first = tf.where(may, first, NEVER)
    places = starts[:, :, None] + tf.range(longest)  # [G, P, E]
    inside = places < sizes[:, None, None]
    after = tf.gather(
        tf.transpose(last, (0, 2, 1)), tf.where(inside, places, 0), batch_dims=2
    )
    after = tf.where(inside, after, NEVER)
    return _best(first[:, :, None] + after, starts, longest, count)


def _best(
    scores: Tensor, firsts: Tensor, longest: int, count: int
) -> BestSpans:
    """Returns the best of scores [G, P, E] of first places [G, P]."""
    windows = tf.shape(scores)[0]
    scores = tf.reshape(scores, [windows, -1])
    # There may be fewer than `count`.
    scores = tf.pad(scores, [[0, 0], [0, count]], constant_values=2 * NEVER)
    best = tf.math.top_k(scores, count)
    number, gap = best.indices // longest, best.indices % longest
    firsts = tf.pad(firsts, [[0, 0], [0, count]])
    firsts = tf.gather(firsts, number, batch_dims=1)
    return BestSpans(best.values, firsts, firsts + gap)


class Answers(NamedTuple):
    """The best answers of questions, best first.

    Attributes:
        texts: [B, A] string, as contexts have them; '' where there are fewer.
        scores: [B, A] float32, nats; NEVER where there are fewer.
        begins, ends: [B, A] int32, bytes of the context; NOWHERE likewise.
    """

    texts: Tensor
    scores: Tensor
    begins: Tensor
    ends: Tensor


def answers(
    contexts: Tensor,
    questions: Tensor,
    scores: Tensor,
    begins: Tensor,
    ends: Tensor,
    count: int = N_BEST,
    among: int = AMONG,
) -> Answers:
    """Makes answers of the spans of all windows; graph or eager.

    Args:
        contexts: [B] string.
        questions: [G] int64, the index of each window's question.
        scores: [G, S] float32.
        begins, ends: [G, S] int32, bytes of the context.
        count: A.
        among: number of the best spans of a question that become answers.
    """
    question = tf.repeat(questions, tf.shape(scores)[1])
    scores, begins, ends = (tf.reshape(x, [-1]) for x in (scores, begins, ends))
    real = tf.logical_and(scores > NEVER / 2, ends > begins)
    question, scores, begins, ends = (
        tf.boolean_mask(x, real) for x in (question, scores, begins, ends)
    )
    # By question, the best first; of equal scores the earlier one.
    order = tf.argsort(scores, direction='DESCENDING', stable=True)
    order = tf.gather(
        order, tf.argsort(tf.gather(question, order), stable=True)
    )
    ordered = [tf.gather(x, order) for x in (question, scores, begins, ends)]
    # A context may be a megabyte, and each span takes a copy of it.
    stays = _ranks(ordered[0], contexts) < among
    question, scores, begins, ends = (
        tf.boolean_mask(x, stays) for x in ordered
    )
    texts = tf.strings.substr(
        tf.gather(contexts, question), begins, ends - begins
    )
    # Of equal texts of a question the first.
    names = tf.strings.join([tf.strings.as_string(question), texts], ' ')
    unique, number = tf.unique(names)
    place = tf.range(tf.size(names))
    first = tf.math.unsorted_segment_min(place, number, tf.size(unique))
    is_first = tf.equal(place, tf.gather(first, number))
    question, scores, begins, ends, texts = (
        tf.boolean_mask(x, is_first)
        for x in (question, scores, begins, ends, texts)
    )
    rank = _ranks(question, contexts)
    stays = rank < count
    indices = tf.stack([question, tf.cast(rank, question.dtype)], axis=1)
    indices = tf.boolean_mask(indices, stays)
    shape = [tf.size(contexts), count]

    def filled(values: Tensor, empty: Any) -> Tensor:
        return tf.tensor_scatter_nd_update(
            tf.fill(shape, empty), indices, tf.boolean_mask(values, stays)
        )

    return Answers(
        filled(texts, ''),
        filled(scores, NEVER),
        filled(begins, NOWHERE),
        filled(ends, NOWHERE),
    )


def _ranks(questions: Tensor, contexts: Tensor) -> Tensor:
    """Ranks entries of sorted question numbers among equals, from 0."""
    begins = tf.searchsorted(questions, tf.range(tf.size(contexts, tf.int64)))
    return tf.range(tf.size(questions)) - tf.gather(begins, questions)


def lowest(nowhere: Tensor, questions: Tensor, count: Tensor) -> Tensor:
    """Returns the score of "no answer" in a whole context, [B] float32.

    The lowest of its windows (`nowhere` [G]), or SURE without a window.
    """
    lowest = tf.math.unsorted_segment_min(nowhere, questions, count)
    return tf.minimum(lowest, SURE)
