"""Scores of places to answers, their probabilities, and the files of them.

What `inference.answers` makes of all windows of a file. Where no span is left
the answer is ''.

Glossary of shapes: n windows, N pieces of the contexts of all windows, S first
places of a window, K spans of a window.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from infoword_tf import files
from infoword_tf.inference import answers as decoding
from infoword_tf.inference.answers import AMONG, SPANS, SURE, BestSpans
from infoword_tf.inference.reader import Answer
from infoword_tf.objectives.infonce import NEVER
from tasks.squad_data import Features, Questions

PREDICTIONS, BEST, ODDS = 'predictions.json', 'nbest.json', 'null_odds.json'
_WINDOWS = 256  # at once


def of_context(values: np.ndarray, view: Any) -> np.ndarray:
    """[N, ...]: what is known of tokens [R, T, ...], of contexts alone.

    Window by window; `view` is the view `examples` of R rows.
    """
    slot = view.candidates['span']  # [R, T]
    number = np.take_along_axis(view.sequences, np.maximum(slot, 0), axis=1)
    inside = slot >= 0
    order = np.argsort(number[inside], kind='stable')
    return values[inside][order]


def spans(
    features: Features,
    predictions: Mapping[str, np.ndarray],
    longest: int,
    count: int = SPANS,
) -> BestSpans:
    """The best K spans of every window, NumPy arrays.

    Args:
        features: the windows.
        predictions: as `objectives.span.BestSpans.spans` names them; [N, ...]
            what there is of tokens, [n, ...] what there is of examples.
        longest: pieces of a span.
        count: K.
    """
    sizes = features.sizes
    begins = np.cumsum(sizes) - sizes
    found = []
    for begin in range(0, len(sizes), _WINDOWS):
        rows = slice(begin, begin + _WINDOWS)
        column = np.arange(sizes[rows].max())
        inside = column < sizes[rows, None]
        places = np.where(inside, begins[rows, None] + column, 0)
        more = (
            predictions['last'][places],
            features.most[places],
            sizes[rows].astype(np.int32),
            longest,
            count,
        )
        if 'starts' in predictions:
            part = decoding.spans_after(
                predictions['starts'][rows], predictions['first'][rows], *more
            )
        else:
            part = decoding.spans(predictions['first'][places], *more)
        found.append([x.numpy() for x in part])
    return BestSpans(*map(np.concatenate, zip(*found, strict=True)))


class Predictions(NamedTuple):
    """What is answered, by question.

    Attributes:
        best: the best answers, '' among them where it may be one.
        texts: the best one that is not ''; '' where there is none.
        null_odds: where there may be no answer, how much more that scores
            than the best one, nats.
    """

    best: dict[str, list[Answer]]
    texts: dict[str, str]
    null_odds: dict[str, float]

    def predictions(self, threshold: float = 0.0) -> dict[str, str]:
        """By question its answer, '' where the odds are above a threshold."""
        texts = dict(self.texts)
        for name, odds in self.null_odds.items():
            if odds > threshold:
                texts[name] = ''
        return texts


def answers(
    questions: Questions,
    features: Features,
    found: BestSpans,
    nowhere: np.ndarray | None = None,
    among: int = AMONG,
) -> Predictions:
    """The best answers of all questions.

    Args:
        questions, features: of the file, and their windows.
        found: spans of these.
        nowhere: [n] float32, what "no answer" scores in each window; None:
            every question has one.
        among: as in `inference.answers.answers`.
    """
    numbers = features.questions.astype(np.int64)
    piece = features.begins[questions.context[numbers]] + features.firsts
    # What is no span points anywhere.
    last = len(features.offsets) - 1
    begins, ends = (
        features.offsets[np.minimum(piece[:, None] + x, last), i]
        for i, x in enumerate(found[1:])
    )
    contexts = [questions.contexts.raw(i) for i in questions.context]
    best = decoding.answers(
        tf.constant(contexts, tf.string), numbers, found.scores, begins, ends,
        among=among,
    )  # fmt: skip
    best = [x.numpy().tolist() for x in best[1:]]
    lowest = None
    if nowhere is not None:
        lowest = decoding.lowest(nowhere, numbers, len(contexts)).numpy()
    made = Predictions({}, {}, {})
    for number, (scores, firsts, lasts) in enumerate(zip(*best, strict=True)):
        name = questions.ids[number]
        kept = [
            (questions.contexts.cut(questions.context[number], *places),
             score, *places)
            for score, *places in zip(scores, firsts, lasts, strict=True)
            if score > NEVER / 2
        ]  # fmt: skip
        made.texts[name] = kept[0][0] if kept else ''
        if lowest is not None:
            none = float(lowest[number])
            made.null_odds[name] = none - kept[0][1] if kept else SURE
            if none < SURE:
                kept.append(('', none, *[decoding.NOWHERE] * 2))
        made.best[name] = _with_probabilities(kept)
    return made


def _with_probabilities(
    found: Sequence[tuple[str, float, int, int]],
) -> list[Answer]:
    """Text, score, begin and end of each, sorted, with their softmax."""
    found = sorted(found, key=lambda answer: -answer[1])
    shares = np.exp([score - found[0][1] for _, score, *_ in found])
    return [
        Answer(text, float(share / shares.sum()), score, *places)
        for (text, score, *places), share in zip(found, shares, strict=True)
    ]


def write(
    folder: pathlib.Path, found: Predictions, threshold: float = 0.0
) -> None:
    """Writes PREDICTIONS, BEST and, where there may be no answer, ODDS."""
    folder.mkdir(parents=True, exist_ok=True)
    files.write_json(folder / PREDICTIONS, found.predictions(threshold))
    best = {
        name: [answer._asdict() for answer in some]
        for name, some in found.best.items()
    }
    files.write_json(folder / BEST, best)
    if found.null_odds:
        files.write_json(folder / ODDS, found.null_odds)
