"""Scores of places to answers: the best spans, cut out of the original text.

An answer begins where it has most context (`windows.most_context`), is at most
so long, and is arg max of f(first) + f(last), which within a window is that of
p(first) p(last) (Kong et al. 2019, App. C). Spans of all windows of a question
compete, and "no answer" with them: its score is the lowest of all windows
(Devlin et al. 2019, as its code has it). Of equal texts the best stays.

Glossary of shapes: W windows, T pieces of the longest context of a window, S
first places of a window, L pieces of an answer at most, K spans of a window, B
questions, N answers of each.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from infoword_tf.objectives.infonce import NEVER

Tensor = Any
N_BEST = 20
SPANS = 40  # of a window: some of them are equal as texts
AMONG = 100  # best spans of a question, of which answers are made
NOWHERE = -1  # the bytes of no answer
# Odds of no answer where there is no other: what JSON and thresholds can hold.
SURE = -NEVER


class BestSpans(NamedTuple):
    """The best spans of windows, best first.

    Attributes:
        scores: [W, K] float32, nats; NEVER or less where there are fewer.
        firsts, lasts: [W, K] int32, places among the pieces of the window's
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
    """Spans of first and last places whose scores are added; graph or eager.

    Args:
        first, last: [W, T] float32, scores of places of contexts.
        most: [W, T] bool, where a span may begin.
        sizes: [W] int32, pieces of each context.
    """
    length = tf.shape(first)[1]
    inside = tf.sequence_mask(sizes, length)
    first = tf.where(tf.logical_and(most, inside), first, NEVER)
    last = tf.where(inside, last, NEVER)
    last = tf.pad(last, [[0, 0], [0, longest]], constant_values=NEVER)
    after = tf.stack(
        [last[:, i : length + i] for i in range(longest)], axis=2
    )  # [W, T, L]
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
    """The same where last places are scored for given first ones.

    Args:
        starts: [W, S] int32, first places.
        first: [W, S] float32, their scores; NEVER: there is none.
        last: [W, T, S] float32, scores of last places after each.
        most, sizes, longest, count: as in `spans`.
    """
    # What is no first place has no score, wherever it points.
    starts = tf.clip_by_value(starts, 0, tf.shape(last)[1] - 1)
    may = tf.gather(most, starts, batch_dims=1)
    first = tf.where(may, first, NEVER)
    places = starts[:, :, None] + tf.range(longest)  # [W, S, L]
    inside = places < sizes[:, None, None]
    after = tf.gather(
        tf.transpose(last, (0, 2, 1)), tf.where(inside, places, 0), batch_dims=2
    )
    after = tf.where(inside, after, NEVER)
    return _best(first[:, :, None] + after, starts, longest, count)


def _best(
    scores: Tensor, firsts: Tensor, longest: int, count: int
) -> BestSpans:
    """The best of [W, X, L], whose first places are [W, X]."""
    rows = tf.shape(scores)[0]
    scores = tf.reshape(scores, [rows, -1])
    # There may be fewer than wanted.
    scores = tf.pad(scores, [[0, 0], [0, count]], constant_values=2 * NEVER)
    best = tf.math.top_k(scores, count)
    number, gap = best.indices // longest, best.indices % longest
    firsts = tf.pad(firsts, [[0, 0], [0, count]])
    firsts = tf.gather(firsts, number, batch_dims=1)
    return BestSpans(best.values, firsts, firsts + gap)


class Answers(NamedTuple):
    """The best answers of questions, best first.

    Attributes:
        texts: [B, N] string, as contexts have them; '' where there are fewer.
        scores: [B, N] float32, nats; NEVER where there are fewer.
        begins, ends: [B, N] int32, bytes of the context; NOWHERE likewise.
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
    """Spans of all windows as answers; graph or eager.

    Args:
        contexts: [B] string.
        questions: [W] int64, that of each window.
        scores: [W, K] float32.
        begins, ends: [W, K] int32, bytes of the context.
        among: so many of the best spans of a question become answers.
    """
    rows = tf.size(contexts)
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
    found = [tf.gather(x, order) for x in (question, scores, begins, ends)]
    # A context may be a megabyte, and each span takes a copy of it.
    kept = _places(found[0], contexts) < among
    question, scores, begins, ends = (tf.boolean_mask(x, kept) for x in found)
    texts = tf.strings.substr(
        tf.gather(contexts, question), begins, ends - begins
    )
    # Of equal texts of a question the first.
    names = tf.strings.join([tf.strings.as_string(question), texts], ' ')
    unique, number = tf.unique(names)
    place = tf.range(tf.size(names))
    first = tf.math.unsorted_segment_min(place, number, tf.size(unique))
    kept = tf.equal(place, tf.gather(first, number))
    question, scores, begins, ends, texts = (
        tf.boolean_mask(x, kept)
        for x in (question, scores, begins, ends, texts)
    )
    place = _places(question, contexts)
    kept = place < count
    to = tf.stack([question, tf.cast(place, question.dtype)], axis=1)
    to = tf.boolean_mask(to, kept)

    def filled(values: Tensor, empty: Any) -> Tensor:
        return tf.tensor_scatter_nd_update(
            tf.fill([rows, count], empty), to, tf.boolean_mask(values, kept)
        )

    return Answers(
        filled(texts, ''),
        filled(scores, NEVER),
        filled(begins, NOWHERE),
        filled(ends, NOWHERE),
    )


def _places(questions: Tensor, contexts: Tensor) -> Tensor:
    """Of each of the sorted numbers of questions, how many are before it."""
    begins = tf.searchsorted(questions, tf.range(tf.size(contexts, tf.int64)))
    return tf.range(tf.size(questions)) - tf.gather(begins, questions)


def lowest(nowhere: Tensor, questions: Tensor, count: Tensor) -> Tensor:
    """What "no answer" scores in a whole context, [B] float32, by its windows
    [W]: SURE where there is none.
    """
    found = tf.math.unsorted_segment_min(nowhere, questions, count)
    return tf.minimum(found, SURE)
