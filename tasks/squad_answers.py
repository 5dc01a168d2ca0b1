"""Answers from the scores of all windows of a SQuAD file, and files of answers.

`inference.answers` decodes. A question without a span has the answer ''.

Glossary of shapes: n windows, P tokens of the contexts of all windows, S spans
of a window.
"""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from infoword_tf import files
from infoword_tf.inference import answers as decoding
from infoword_tf.inference.answers import SURE, BestSpans
from infoword_tf.inference.reader import Answer
from infoword_tf.objectives.infonce import NEVER

from .squad_data import Features, Questions

PREDICTIONS, BEST, ODDS = 'predictions.json', 'nbest.json', 'null_odds.json'
_WINDOWS = 256  # at once


def of_context(values: np.ndarray, view: Any) -> np.ndarray:
    """Selects values [B, T, ...] of context tokens: [P, ...], by window.

    `view` is the view `examples`.
    """
    slot = view.candidates['span']  # [B, T]
    number = np.take_along_axis(view.sequences, np.maximum(slot, 0), axis=1)
    inside = slot >= 0
    order = np.argsort(number[inside], kind='stable')
    return values[inside][order]


def spans(
    features: Features,
    predictions: Mapping[str, np.ndarray],
    longest: int,
) -> BestSpans:
    """Finds the best S spans of every window, as NumPy arrays.

    Args:
        features: the windows.
        predictions: arrays of tokens [P, ...] or of windows [n, ...], by the
            names of `objectives.span.BestSpans.spans`.
        longest: tokens of a span.
    """
    sizes = features.sizes
    begins = np.cumsum(sizes) - sizes
    chunks = []
    for begin in range(0, len(sizes), _WINDOWS):
        chunk = slice(begin, begin + _WINDOWS)
        column = np.arange(sizes[chunk].max())
        inside = column < sizes[chunk, None]
        places = np.where(inside, begins[chunk, None] + column, 0)
        more = (
            predictions['last'][places],
            features.most[places],
            sizes[chunk].astype(np.int32),
            longest,
        )
        if 'starts' in predictions:
            best = decoding.spans_after(
                predictions['starts'][chunk],
                predictions['first'][chunk],
                *more,
            )
        else:
            best = decoding.spans(predictions['first'][places], *more)
        chunks.append([x.numpy() for x in best])
    return BestSpans(*map(np.concatenate, zip(*chunks, strict=True)))


class Predictions(NamedTuple):
    """Answers by question.

    Attributes:
        best: the best answers, with '' if a question may have no answer; empty
            where they are only scored.
        texts: the best answer that is not '', or ''.
        null_odds: score of "no answer" minus that of the best answer, in nats;
            empty if every question has an answer.
    """

    best: dict[str, list[Answer]]
    texts: dict[str, str]
    null_odds: dict[str, float]

    def predictions(self, threshold: float = 0.0) -> dict[str, str]:
        """Returns answers, '' where the null odds exceed a threshold."""
        texts = dict(self.texts)
        for name, odds in self.null_odds.items():
            if odds > threshold:
                texts[name] = ''
        return texts


def answers(
    questions: Questions,
    features: Features,
    spans: BestSpans,
    nowhere: np.ndarray | None = None,
) -> Predictions:
    """Finds the best answer of each question, to be scored.

    Args:
        questions, features: questions of the file, and windows of them.
        spans: best spans of the windows.
        nowhere: [n] float32, scores of "no answer"; None: every question has
            an answer.
    """
    numbers = features.questions.astype(np.int64)
    token = features.begins[questions.context[numbers]] + features.firsts
    # Places of unused spans may be anywhere.
    last = len(features.offsets) - 1
    begins, ends = (
        features.offsets[np.minimum(token[:, None] + x, last), i]
        for i, x in enumerate(spans[1:])
    )
    contexts = [questions.contexts.raw(i) for i in questions.context]
    decoded = decoding.answers(
        tf.constant(contexts, tf.string),
        numbers,
        scores=spans.scores,
        begins=begins,
        ends=ends,
        count=1,
    )
    best = zip(*(x.numpy()[:, 0].tolist() for x in decoded[1:]), strict=True)
    lowest = None
    if nowhere is not None:
        lowest = decoding.lowest(nowhere, numbers, len(contexts)).numpy()
    predictions = Predictions({}, {}, {})
    for number, (score, begin, end) in enumerate(best):
        name, context = questions.ids[number], questions.context[number]
        has_answer = score > NEVER / 2
        predictions.texts[name] = (
            questions.contexts.cut(context, begin, end) if has_answer else ''
        )
        if lowest is not None:
            odds = float(lowest[number]) - score if has_answer else SURE
            predictions.null_odds[name] = odds
    return predictions


def write(
    folder: pathlib.Path, predictions: Predictions, threshold: float = 0.0
) -> None:
    """Writes PREDICTIONS, BEST and, if questions may have no answer, ODDS."""
    folder.mkdir(parents=True, exist_ok=True)
    files.write_json(folder / PREDICTIONS, predictions.predictions(threshold))
    best = {
        name: [answer._asdict() for answer in answers]
        for name, answers in predictions.best.items()
    }
    files.write_json(folder / BEST, best)
    if predictions.null_odds:
        files.write_json(folder / ODDS, predictions.null_odds)
