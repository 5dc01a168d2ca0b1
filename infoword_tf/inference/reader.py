"""Answers to questions, out of contexts of any length, by a row of spans.

Glossary of shapes: G windows of all contexts, J tokens of the longest context
of a window, S spans of a window, A answers of a question.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from keras import ops

from infoword_tf import errors
from infoword_tf.inference import answers, context_windows
from infoword_tf.inference.states import Predictor
from infoword_tf.objectives.infonce import NEVER
from infoword_tf.objectives.span import Spans, slots_of
from infoword_tf.tensors import Tensor
from infoword_tf.text import characters, strings
from infoword_tf.text.template import padded, to_dense

_QUESTIONS = 256  # whose windows are in memory at once


class Pages(NamedTuple):
    """Windows over contexts, formatted for the model.

    Attributes:
        questions: [G] int64, the index of each window's question.
        ids: [G, T] int32.
        lengths: [G] int32.
        second: [G] int32, where the second of the two texts begins.
        begins: [G] int32, where the context does.
        sizes: [G] int32, tokens of the context.
        most: [G, J] bool, the tokens that have most context in this window.
        starts, ends: [G, J] int32, bytes of each token in its context.
    """

    questions: Tensor
    ids: Tensor
    lengths: Tensor
    second: Tensor
    begins: Tensor
    sizes: Tensor
    most: Tensor
    starts: Tensor
    ends: Tensor


class Answer(NamedTuple):
    """One of the answers to a question.

    Attributes:
        text: words of the context; '': no answer.
        probability: among the best answers of the question.
        score: nats.
        begin, end: bytes of the context; -1: no answer.
    """

    text: str
    probability: float
    score: float
    begin: int
    end: int


class Reply(NamedTuple):
    """The reply to a question.

    Attributes:
        text, begin, end: best answer and its place; '' and -1 for no answer.
        best: the best answers, best first.
        null_odds: nats by which "no answer" scores more than the best one;
            None: every question has an answer for this model.
    """

    text: str
    begin: int
    end: int
    best: list[Answer]
    null_odds: float | None


class Reader(Predictor):
    """The answers that a workdir reads out of contexts."""

    width = 3 * answers.SPANS + 1  # of `spans`

    @functools.cached_property
    def head(self) -> Spans:
        """The row of spans; ValueError: the model has none."""
        objectives = self.workdir.model.objectives
        return objectives[self.states.row_that('spans')]

    @functools.cached_property
    def _graph(self) -> Any:
        """A graph of `spans`."""
        spec = tf.TensorSpec
        return tf.function(
            self.spans,
            input_signature=[
                spec((None, None), tf.int32),
                *[spec((None,), tf.int32)] * 4,
                spec((None, None), tf.bool),
            ],
            autograph=False,
        )

    def pages(self, questions: Tensor, contexts: Tensor) -> Pages:
        """Formats contexts [B] as windows, with questions [B]; both string."""
        workdir, head = self.workdir, self.head
        limit = workdir.template.free_length(workdir.max_length, texts=2)
        longest = context_windows.question_limit(
            workdir.max_length, workdir.max_length - limit, head.question
        )
        question_tokens = workdir.tokenizer.tokenize(questions)[:, :longest]
        tokens, starts, ends = characters.read(workdir.tokenizer, contexts)
        sizes = tokens.row_lengths()
        windows = context_windows.windows(
            sizes, limit - question_tokens.row_lengths(), head.stride
        )
        most = context_windows.most_context(windows, sizes)
        first = tf.gather(tokens.row_starts(), windows.contexts)
        first += windows.firsts
        indices = tf.ragged.range(first, first + windows.sizes)

        def in_windows(values: tf.RaggedTensor) -> tf.RaggedTensor:
            return tf.gather(tf.cast(values.values, tf.int32), indices)

        ids, second, begins = context_windows.add_questions(
            tf.gather(question_tokens, windows.contexts),
            in_windows(tokens),
            workdir.template,
        )
        padded_ids, lengths = padded(ids, workdir.tokenizer.pad_id)
        return Pages(
            questions=windows.contexts,
            ids=padded_ids,
            lengths=lengths,
            second=tf.cast(second, tf.int32),
            begins=tf.cast(begins, tf.int32),
            sizes=tf.cast(windows.sizes, tf.int32),
            most=to_dense(indices.with_values(most), False),
            starts=to_dense(in_windows(starts), 0),
            ends=to_dense(in_windows(ends), 0),
        )

    def spans(
        self,
        ids: Tensor,
        lengths: Tensor,
        second: Tensor,
        begins: Tensor,
        sizes: Tensor,
        most: Tensor,
    ) -> Tensor:
        """Computes the best spans of windows; args as in `Pages`.

        Returns:
            [G, 3 S + 1] float32: S scores, first places, last places, and the
            score of no answer (0 of a model that always answers).
        """
        head, layout = self.head, self.workdir.layout
        states = self.states(ids, lengths, second=second)
        length = tf.shape(ids)[1]
        column = tf.range(length)[None, :]
        after = column >= begins[:, None]
        inside = after & (column < (begins + sizes)[:, None])
        nowhere = tf.zeros_like(lengths) if layout.first else lengths - 1
        scores = head.spans(
            states,
            slots_of(
                inside[:, None], nowhere[:, None], length if head.null else None
            ),
        )
        # Of tokens, those of contexts.
        places = begins[:, None] + tf.range(tf.shape(most)[1])
        places = tf.minimum(places, length - 1)
        last = tf.gather(scores['last'], places, batch_dims=1)
        limits = most, sizes, head.longest
        if head.conditional:
            best = answers.spans_after(
                scores['starts'][:, 0], scores['first'][:, 0], last, *limits
            )
        else:
            first = tf.gather(scores['first'], places, batch_dims=1)
            best = answers.spans(first, last, *limits)
        none = tf.zeros_like(best.scores[:, :1])
        return tf.concat(
            [
                best.scores,
                tf.cast(best.firsts, tf.float32),
                tf.cast(best.lasts, tf.float32),
                scores.get('nowhere', none),
            ],
            axis=1,
        )

    def replies(
        self, contexts: Tensor, pages: Pages, spans: Tensor
    ) -> dict[str, Tensor]:
        """Finds the best answers of questions among the spans of windows.

        Returns:
            'text', 'score', 'begin' and 'end' [B] of the best answer, 'texts',
            'scores', 'probabilities', 'begins' and 'ends' [B, A] of the best
            answers, and 'null_odds' [B] of a model that may not answer.
        """
        count = answers.SPANS
        scores = spans[:, :count]
        firsts, lasts = (
            tf.cast(spans[:, i * count : (i + 1) * count], tf.int32)
            for i in (1, 2)
        )
        # What is no span points anywhere.
        limit = tf.shape(pages.starts)[1] - 1
        begins, ends = (
            tf.gather(offsets, tf.minimum(places, limit), batch_dims=1)
            for offsets, places in ((pages.starts, firsts), (pages.ends, lasts))
        )
        best = answers.answers(
            contexts,
            pages.questions,
            scores=scores,
            begins=begins,
            ends=ends,
        )
        real = best.scores > NEVER / 2
        compared = best.scores
        several = {
            'texts': best.texts,
            'scores': best.scores,
            'begins': best.begins,
            'ends': best.ends,
        }
        one = {name[:-1]: value[:, 0] for name, value in several.items()}
        if self.head.null:
            none = answers.lowest(
                spans[:, -1], pages.questions, tf.size(contexts)
            )
            odds = tf.where(real[:, 0], none - one['score'], answers.SURE)
            several['null_odds'] = odds
            silent = odds > self.config.null_threshold
            one |= {
                'text': tf.where(silent, '', one['text']),
                'begin': tf.where(silent, answers.NOWHERE, one['begin']),
                'end': tf.where(silent, answers.NOWHERE, one['end']),
            }
            compared = tf.concat([compared, none[:, None]], axis=1)
        shares = ops.softmax(compared, axis=1)[:, : best.scores.shape[1]]
        several['probabilities'] = tf.where(real, shares, 0.0)
        return one | several

    def answer(
        self,
        questions: Sequence[strings.Text],
        contexts: Sequence[strings.Text],
        batch_size: int = 32,
    ) -> list[Reply]:
        """Answers questions out of contexts.

        Args:
            questions, contexts: n strings each (or bytes, UTF-8).
            batch_size: windows that are computed together.

        Raises:
            TypeError: one string instead of a sequence of strings, or an
                entry that is no text.
            ValueError: no row of this model answers; questions and contexts
                of different numbers; half a surrogate pair.
        """
        _ = self.head  # complains before the work
        questions = strings.checked(questions, 'questions')
        contexts = strings.checked(contexts, 'contexts')
        if len(questions) != len(contexts):
            raise errors.InputError(
                'unequal_contexts',
                f'{len(questions)} questions and {len(contexts)} contexts',
            )
        replies = []
        for begin in range(0, len(questions), _QUESTIONS):
            chunk = [
                tf.constant(texts[begin : begin + _QUESTIONS], tf.string)
                for texts in (questions, contexts)
            ]
            pages = self.pages(*chunk)
            # Windows of like length together: hardly any padding is computed.
            order = np.argsort(pages.lengths.numpy(), kind='stable')
            spans = np.zeros((len(order), self.width), np.float32)
            for start in range(0, len(order), batch_size):
                batch = order[start : start + batch_size]
                ids, lengths, *more = (tf.gather(x, batch) for x in pages[1:7])
                longest = tf.reduce_max(lengths)
                spans[batch] = self._graph(ids[:, :longest], lengths, *more)
            outputs = self.replies(chunk[1], pages, tf.constant(spans))
            outputs = {name: value.numpy() for name, value in outputs.items()}
            replies += [
                _reply({name: value[i] for name, value in outputs.items()})
                for i in range(len(chunk[0]))
            ]
        return replies


def _reply(outputs: dict[str, Any]) -> Reply:
    """Makes the reply to one question from outputs of `Reader.replies`."""
    fields = 'texts', 'probabilities', 'scores', 'begins', 'ends'
    columns = (outputs[name].tolist() for name in fields)
    best = [
        Answer(text.decode(errors='replace'), share, score, *offsets)
        for text, share, score, *offsets in zip(*columns, strict=True)
        if score > NEVER / 2
    ]
    odds = outputs.get('null_odds')
    return Reply(
        text=outputs['text'].decode(errors='replace'),
        begin=int(outputs['begin']),
        end=int(outputs['end']),
        best=best,
        null_odds=None if odds is None else float(odds),
    )
