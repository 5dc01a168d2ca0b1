"""Scores of places to answers: the best spans, cut out of the original text.

As BERT's code (Devlin et al. 2019): of each window the best first and last
places are paired; an answer begins where it has most context, and is not too
long; of equal texts the best stays. Spans of all windows of a question compete,
and "no answer" with them: its score is the lowest of all windows. XLNet's last
places are scored for given first ones, so each of those has its own.

Unlike there only the context competes for the best places, and where no span
is left the answer is ''.

Glossary of shapes: n windows, N pieces of the contexts of all windows, K spans,
S first places of a window, Q questions.
"""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import files
from infoword_tf.objectives.infonce import NEVER
from tasks.squad_data import Features, Questions

N_BEST = 20  # first and last places of a window, and answers of a question
AFTER_EACH = 5  # last places after each first one, with a conditional end
LONGEST = 30  # pieces of an answer
PREDICTIONS, BEST, ODDS = 'predictions.json', 'nbest.json', 'null_odds.json'
_WINDOWS = 256  # at once
_NO_SPAN = -NEVER  # odds of no answer where there is no other


class Spans(NamedTuple):
    """Spans of windows, in the order of these.

    Attributes:
        windows: [K] int64.
        firsts, lasts: [K] int64, places among the pieces of the window's
            context.
        scores: [K] float32, nats.
    """

    windows: np.ndarray
    firsts: np.ndarray
    lasts: np.ndarray
    scores: np.ndarray


def of_context(features: Features, values: np.ndarray) -> np.ndarray:
    """What is known of all tokens, of those of contexts: [tokens, ...] ->
    [N, ...].
    """
    begins = features.examples.begins[:-1]
    begins = begins + features.examples.candidates['span'][:, 0]
    sizes = features.sizes
    ends = np.cumsum(sizes)
    return values[np.arange(ends[-1]) + np.repeat(begins - ends + sizes, sizes)]


def independent(
    first: np.ndarray,
    last: np.ndarray,
    features: Features,
    n_best: int = N_BEST,
    longest: int = LONGEST,
) -> Spans:
    """Pairs the best first places with the best last ones.

    Args:
        first, last: [N] float32, scores of places of contexts.
        features: the windows.
        n_best: places of either kind in a window.
        longest: pieces of a span.
    """

    def pairs(rows: slice, places: np.ndarray, inside: np.ndarray) -> tuple:
        may_begin = inside & features.most[places]
        begins, scores = _best(may_begin, first[places], n_best)
        ends, more = _best(inside, last[places], n_best)
        return begins[:, :, None], ends[:, None], (
            scores[:, :, None] + more[:, None]
        )

    return _paired(features.sizes, pairs, longest)


def conditional(
    starts: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
    features: Features,
    n_best: int = AFTER_EACH,
    longest: int = LONGEST,
) -> Spans:
    """Pairs first places with the best last ones after each.

    Args:
        starts: [n, S] int32, first places.
        first: [n, S] float32, their scores; below NEVER / 2: there is none.
        last: [N, S] float32, scores of last places after each.
        features: the windows.
        n_best: last places after a first one.
        longest: as in `independent`.
    """

    def pairs(rows: slice, places: np.ndarray, inside: np.ndarray) -> tuple:
        # What is no first place has no score, wherever it points.
        begins = np.clip(starts[rows], 0, places.shape[1] - 1)
        most = np.take_along_axis(inside & features.most[places], begins, 1)
        scores = np.where(most, first[rows], NEVER)
        column = np.arange(places.shape[1])
        gap = column - begins[:, :, None]
        fits = (gap >= 0) & (gap < longest) & inside[:, None]
        ends, more = _best(fits, np.moveaxis(last[places], 2, 1), n_best)
        return begins[:, :, None], ends, scores[:, :, None] + more

    return _paired(features.sizes, pairs, longest)


def _best(
    candidates: np.ndarray, scores: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The best along the last axis, and their scores; the first of equals."""
    scores = np.where(candidates, scores, NEVER)
    best = np.argsort(-scores, axis=-1, kind='stable')[..., :count]
    return best, np.take_along_axis(scores, best, -1)


def _paired(sizes: np.ndarray, pairs: Any, longest: int) -> Spans:
    """Spans of all windows, some windows at a time.

    Args:
        sizes: [n] pieces of their contexts.
        pairs: from some windows, numbers of their pieces among all and which
            are no padding, to first places, last ones and scores.
        longest: pieces of a span.
    """
    begins = np.cumsum(sizes) - sizes
    found = []
    for begin in range(0, len(sizes), _WINDOWS):
        rows = slice(begin, begin + _WINDOWS)
        column = np.arange(sizes[rows].max())
        inside = column < sizes[rows, None]
        places = np.where(inside, begins[rows, None] + column, 0)
        firsts, lasts, scores = pairs(rows, places, inside)
        gap = lasts - firsts
        fits = (gap >= 0) & (gap < longest) & (scores > NEVER / 2)
        parts = (np.broadcast_to(x, fits.shape)[fits] for x in (firsts, lasts))
        found.append((np.nonzero(fits)[0] + begin, *parts, scores[fits]))
    return Spans(*map(np.concatenate, zip(*found, strict=True)))


class Answer(NamedTuple):
    """An answer of a question.

    Attributes:
        text: as the context has it; '': none.
        probability: among the best answers of the question.
        score: nats.
        begin, end: bytes of the context; -1: none.
    """

    text: str
    probability: float
    score: float
    begin: int
    end: int


class Answers(NamedTuple):
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
        found = dict(self.texts)
        for name, odds in self.null_odds.items():
            if odds > threshold:
                found[name] = ''
        return found


def answers(
    questions: Questions,
    features: Features,
    spans: Spans,
    nowhere: np.ndarray | None = None,
    n_best: int = N_BEST,
) -> Answers:
    """The best answers of all questions.

    Args:
        questions: of the file.
        features: their windows.
        spans: of these.
        nowhere: [n] float32, what "no answer" scores in each window; None:
            every question has one.
        n_best: answers of a question.
    """
    question = features.questions[spans.windows]
    piece = features.begins[questions.context[question]]
    piece = piece + features.firsts[spans.windows]
    begins = features.offsets[piece + spans.firsts, 0].tolist()
    ends = features.offsets[piece + spans.lasts, 1].tolist()
    # Of equal scores the earlier one first.
    order = np.lexsort((-spans.scores, question))
    numbers = np.arange(len(questions.ids) + 1)
    bounds = np.searchsorted(question[order], numbers)
    lowest = np.full(len(questions.ids), _NO_SPAN)
    if nowhere is not None:
        np.minimum.at(lowest, features.questions, nowhere)
    found = Answers({}, {}, {})
    for number in range(len(questions.ids)):
        best: dict[str, tuple[float, int, int]] = {}
        for k in order[bounds[number] : bounds[number + 1]]:
            if len(best) == n_best:
                break
            begin, end = begins[k], ends[k]
            text = questions.contexts.cut(
                questions.context[number], begin, end
            )
            if text.strip() and text not in best:
                best[text] = float(spans.scores[k]), begin, end
        name = questions.ids[number]
        found.texts[name] = next(iter(best), '')
        if nowhere is not None:
            none = float(lowest[number])
            found.null_odds[name] = _NO_SPAN
            if best:
                found.null_odds[name] = none - next(iter(best.values()))[0]
            if none != _NO_SPAN:
                best[''] = none, -1, -1
        found.best[name] = _with_probabilities(best)
    return found


def _with_probabilities(
    best: Mapping[str, tuple[float, int, int]],
) -> list[Answer]:
    """Sorted by score, with their softmax."""
    ranked = sorted(best.items(), key=lambda item: -item[1][0])
    if not ranked:
        return []
    scores = np.array([score for _, (score, _, _) in ranked])
    shares = np.exp(scores - scores[0])
    return [
        Answer(text, float(share), score, begin, end)
        for (text, (score, begin, end)), share in zip(
            ranked, shares / shares.sum(), strict=True
        )
    ]


def write(
    folder: pathlib.Path, found: Answers, threshold: float = 0.0
) -> None:
    """Writes PREDICTIONS, BEST and, where there may be no answer, ODDS."""
    folder.mkdir(parents=True, exist_ok=True)
    files.write_json(folder / PREDICTIONS, found.predictions(threshold))
    files.write_json(
        folder / BEST,
        {
            name: [answer._asdict() for answer in best]
            for name, best in found.best.items()
        },
    )
    if found.null_odds:
        files.write_json(folder / ODDS, found.null_odds)
