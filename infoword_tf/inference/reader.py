"""Answers to questions, out of contexts of any length, by a row of spans.

Glossary of shapes: B questions, W windows of all contexts, T tokens, X pieces
of the longest context of a window, K spans of a window, N answers of a
question.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from keras import ops

from infoword_tf.inference import answers, context_windows
from infoword_tf.inference.states import States
from infoword_tf.objectives.infonce import NEVER
from infoword_tf.objectives.span import slots_of
from infoword_tf.text import characters, strings
from infoword_tf.text.template import padded, table

Tensor = Any
_QUESTIONS = 256  # whose windows are in memory at once


class Pages(NamedTuple):
    """Windows as a model reads them.

    Attributes:
        questions: [W] int64, that of each.
        ids: [W, T] int32.
        lengths: [W] int32.
        second: [W] int32, where the second of the two texts begins.
        begins: [W] int32, where the context does.
        sizes: [W] int32, pieces of the context.
        most: [W, X] bool, which of them have most context here.
        starts, ends: [W, X] int32, bytes of each of them in its context.
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
        text: as the context has it; '': there is none.
        probability: among the best answers of the question.
        score: nats.
        begin, end: bytes of the context; -1: none.
    """

    text: str
    probability: float
    score: float
    begin: int
    end: int


class Reply(NamedTuple):
    """The reply to a question.

    Attributes:
        text, begin, end: of the best answer, '' and -1 where there is none.
        best: the best answers, best first.
        null_odds: how much more "no answer" scores than the best one, nats;
            None of a model to which every question has an answer.
    """

    text: str
    begin: int
    end: int
    best: list[Answer]
    null_odds: float | None


class Reader:
    """The row of a workdir that answers spans, at work; graph or eager."""

    width = 3 * answers.SPANS + 1

    def __init__(self, loaded: States):
        """Finds the row; ValueError: there is none."""
        self.loaded = loaded
        self.head = loaded.model.objectives[loaded.row_that('spans')]
        spec = tf.TensorSpec
        self._graph = tf.function(
            self.spans,
            input_signature=[
                spec((None, None), tf.int32),
                *[spec((None,), tf.int32)] * 4,
                spec((None, None), tf.bool),
            ],
            autograph=False,
        )

    def pages(self, questions: Tensor, contexts: Tensor) -> Pages:
        """Windows over contexts, beside their questions: [B] string each."""
        loaded, head = self.loaded, self.head
        limit = loaded.template.free_length(loaded.max_length, texts=2)
        longest = context_windows.question_limit(
            loaded.max_length, loaded.max_length - limit, head.question
        )
        asked = loaded.tokenizer.tokenize(questions)[:, :longest]
        pieces, *offsets = characters.read(loaded.tokenizer, contexts)
        sizes = pieces.row_lengths()
        found = context_windows.windows(
            sizes, limit - asked.row_lengths(), head.stride
        )
        most = context_windows.most_context(found, sizes)
        first = tf.gather(pieces.row_starts(), found.contexts) + found.firsts
        places = tf.ragged.range(first, first + found.sizes)

        def part(of: tf.RaggedTensor) -> tf.RaggedTensor:
            return tf.gather(tf.cast(of.values, tf.int32), places)

        rows, second, begins = context_windows.beside(
            tf.gather(asked, found.contexts), part(pieces), loaded.template
        )
        return Pages(
            found.contexts,
            *padded(rows, loaded.tokenizer.pad_id),
            *(tf.cast(x, tf.int32) for x in (second, begins, found.sizes)),
            table(places.with_values(most), False),
            *(table(part(x), 0) for x in offsets),
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
        """The best spans of windows; args as in `Pages`.

        Returns:
            [W, 3 K + 1] float32: K scores, first places, last ones, and what
            "nowhere" scores (0 of a model that has it not).
        """
        loaded, head = self.loaded, self.head
        states = loaded.states(ids, lengths, second=second)
        length = tf.shape(ids)[1]
        column = tf.range(length)[None, :]
        after = column >= begins[:, None]
        inside = after & (column < (begins + sizes)[:, None])
        nowhere = tf.zeros_like(lengths) if loaded.layout.first else lengths - 1
        said = head.spans(
            states,
            slots_of(
                inside[:, None], nowhere[:, None], length if head.null else None
            ),
        )
        # Of tokens, those of contexts.
        places = begins[:, None] + tf.range(tf.shape(most)[1])
        places = tf.minimum(places, length - 1)
        last = tf.gather(said['last'], places, batch_dims=1)
        how = most, sizes, head.longest
        if head.conditional:
            found = answers.spans_after(
                said['starts'][:, 0], said['first'][:, 0], last, *how
            )
        else:
            first = tf.gather(said['first'], places, batch_dims=1)
            found = answers.spans(first, last, *how)
        none = tf.zeros_like(found.scores[:, :1])
        return tf.concat(
            [
                found.scores,
                tf.cast(found.firsts, tf.float32),
                tf.cast(found.lasts, tf.float32),
                said.get('nowhere', none),
            ],
            axis=1,
        )

    def replies(
        self, contexts: Tensor, pages: Pages, spans: Tensor
    ) -> dict[str, Tensor]:
        """The replies to questions.

        Returns:
            'text', 'score', 'begin' and 'end' [B] of the best answer, 'texts',
            'scores', 'probabilities', 'begins' and 'ends' [B, N] of the best
            ones, and 'null_odds' [B] where there may be no answer.
        """
        count = answers.SPANS
        scores = spans[:, :count]
        firsts, lasts = (
            tf.cast(spans[:, i * count : (i + 1) * count], tf.int32)
            for i in (1, 2)
        )
        # What is no span points anywhere.
        most = tf.shape(pages.starts)[1] - 1
        begins, ends = (
            tf.gather(of, tf.minimum(places, most), batch_dims=1)
            for of, places in ((pages.starts, firsts), (pages.ends, lasts))
        )
        best = answers.answers(contexts, pages.questions, scores, begins, ends)
        real = best.scores > NEVER / 2
        compared = best.scores
        found = {
            'texts': best.texts,
            'scores': best.scores,
            'begins': best.begins,
            'ends': best.ends,
        }
        one = {name[:-1]: value[:, 0] for name, value in found.items()}
        if self.head.null:
            none = answers.lowest(
                spans[:, -1], pages.questions, tf.size(contexts)
            )
            odds = tf.where(real[:, 0], none - one['score'], answers.SURE)
            found['null_odds'] = odds
            silent = odds > self.loaded.config.null_threshold
            one |= {
                'text': tf.where(silent, '', one['text']),
                'begin': tf.where(silent, answers.NOWHERE, one['begin']),
                'end': tf.where(silent, answers.NOWHERE, one['end']),
            }
            compared = tf.concat([compared, none[:, None]], axis=1)
        shares = ops.softmax(compared, axis=1)[:, : best.scores.shape[1]]
        found['probabilities'] = tf.where(real, shares, 0.0)
        return one | found

    def answer(
        self,
        questions: Sequence[str],
        contexts: Sequence[str],
        batch_size: int = 32,
    ) -> list[Reply]:
        """Answers questions out of their contexts.

        Args:
            questions, contexts: n strings each (or bytes, UTF-8).
            batch_size: windows that are computed together.

        Raises:
            TypeError: one string instead of a sequence of them, or one of
                them is no text.
            ValueError: they are not equally many; half a surrogate pair.
        """
        questions = strings.checked(questions, 'questions')
        contexts = strings.checked(contexts, 'contexts')
        if len(questions) != len(contexts):
            raise ValueError(
                f'{len(questions)} questions and {len(contexts)} contexts'
            )
        replies = []
        for begin in range(0, len(questions), _QUESTIONS):
            some = slice(begin, begin + _QUESTIONS)
            asked, given = (
                tf.constant(texts[some], tf.string)
                for texts in (questions, contexts)
            )
            pages = self.pages(asked, given)
            # Those of like length together: hardly any padding is computed.
            order = np.argsort(pages.lengths.numpy(), kind='stable')
            spans = np.zeros((len(order), self.width), np.float32)
            for start in range(0, len(order), batch_size):
                rows = order[start : start + batch_size]
                part = [tf.gather(x, rows) for x in pages[1:7]]
                longest = tf.reduce_max(part[1])
                spans[rows] = self._graph(part[0][:, :longest], *part[1:])
            said = self.replies(given, pages, tf.constant(spans))
            said = {name: value.numpy() for name, value in said.items()}
            replies += [
                self._reply({name: value[row] for name, value in said.items()})
                for row in range(len(asked))
            ]
        return replies

    def _reply(self, said: dict[str, Any]) -> Reply:
        """One question of what `replies` gives."""
        fields = 'texts', 'probabilities', 'scores', 'begins', 'ends'
        columns = (said[name].tolist() for name in fields)
        best = [
            Answer(text.decode(errors='replace'), share, score, *places)
            for text, share, score, *places in zip(*columns, strict=True)
            if score > NEVER / 2
        ]
        odds = said.get('null_odds')
        return Reply(
            said['text'].decode(errors='replace'),
            int(said['begin']),
            int(said['end']),
            best,
            None if odds is None else float(odds),
        )
