"""Exact match and F1 of answers, as the official scripts of SQuAD have them.

evaluate-v1.1.py (Rajpurkar et al. 2016) and evaluate-v2.0.py (2018), whose ways
differ: a question without a prediction counts as wrong in 1.1 and does not
count in 2.0; of two answers that are empty once normalised, F1 is 0 in 1.1 and
1 in 2.0. Shares are percent, as there.
"""

import collections
import re
import string
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_PUNCTUATION = str.maketrans('', '', string.punctuation)
_ARTICLES = re.compile(r'\b(a|an|the)\b')


def normalized(text: str) -> str:
    """Lower case, without punctuation, articles and superfluous spaces."""
    text = _ARTICLES.sub(' ', text.lower().translate(_PUNCTUATION))
    return ' '.join(text.split())


def overlap(gold: Sequence[str], answer: Sequence[str]) -> float:
    """F1 of two bags of words; 0 where they have none in common."""
    both = collections.Counter(gold) & collections.Counter(answer)
    common = sum(both.values())
    if not common:
        return 0.0
    precision, recall = common / len(answer), common / len(gold)
    return 2 * precision * recall / (precision + recall)


def scores(
    golds: Mapping[str, Sequence[str]], answers: Mapping[str, str]
) -> dict[str, float]:
    """SQuAD 1.1.

    Args:
        golds: by question, its answers, one or more.
        answers: by question, what was predicted.

    Returns:
        'exact_match' and 'f1', means over all questions.
    """
    exact = f1 = 0.0
    for question, known in golds.items():
        if question not in answers:
            continue
        answer = normalized(answers[question])
        known = [normalized(gold) for gold in known]
        exact += answer in known
        f1 += max(overlap(gold.split(), answer.split()) for gold in known)
    total = len(golds)
    return {'exact_match': 100 * exact / total, 'f1': 100 * f1 / total}


class Raw(NamedTuple):
    """By question that has a prediction, its scores (SQuAD 2.0)."""

    exact: dict[str, float]
    f1: dict[str, float]


def raw_scores(
    golds: Mapping[str, Sequence[str]], answers: Mapping[str, str]
) -> Raw:
    """SQuAD 2.0, question by question; '' is no answer.

    Args:
        golds: by question, its answers; none where it has none.
        answers: as in `scores`.
    """
    found = Raw({}, {})
    for question, known in golds.items():
        if question not in answers:
            continue
        answer = normalized(answers[question])
        words = answer.split()
        known = [text for gold in known if (text := normalized(gold))] or ['']
        found.exact[question] = float(answer in known)
        found.f1[question] = max(
            overlap(gold.split(), words)
            if gold and words
            else float(gold == answer)
            for gold in known
        )
    return found


class Threshold(NamedTuple):
    """The best of all thresholds of `null_odds`.

    Attributes:
        score: percent.
        odds: above these the answer is ''. None: always.
    """

    score: float
    odds: float | None


def best_threshold(
    golds: Mapping[str, Sequence[str]],
    answers: Mapping[str, str],
    raw: Mapping[str, float],
    null_odds: Mapping[str, float],
) -> Threshold:
    """Where answers are worth more than ''.

    Args:
        golds, answers: as in `raw_scores`.
        raw: one of its results.
        null_odds: by question, how much more '' scores than the answer.
    """
    now = best = sum(not known for known in golds.values())
    odds = None
    for question in sorted(null_odds, key=null_odds.__getitem__):
        if question not in raw:
            continue
        if golds[question]:
            now += raw[question]
        elif answers[question]:
            now -= 1
        if now > best:
            best, odds = now, null_odds[question]
    return Threshold(100 * best / len(raw), odds)


def scores2(
    golds: Mapping[str, Sequence[str]],
    answers: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    threshold: float = float('inf'),
) -> dict[str, float]:
    """SQuAD 2.0.

    Args:
        golds, answers: as in `raw_scores`.
        null_odds: as in `best_threshold`; None: 0 everywhere.
        threshold: odds above which the answer is ''.

    Returns:
        'exact', 'f1', 'total'; the same with 'HasAns_' and 'NoAns_' of the
        questions that have an answer, or have none, where there are some; and
        what the best thresholds come to, 'best_exact', 'best_exact_thresh',
        'best_f1', 'best_f1_thresh' (0 where '' is always best, as the script
        has it).

    Raises:
        ValueError: no question has a prediction.
    """
    golds = {q: known for q, known in golds.items() if q in answers}
    if not golds:
        raise ValueError('no question of the file has a prediction')
    odds = dict.fromkeys(golds, 0.0) if null_odds is None else null_odds
    raw = raw_scores(golds, answers)
    applied = [
        {
            q: float(not golds[q]) if odds[q] > threshold else score
            for q, score in part.items()
        }
        for part in raw
    ]
    found: dict[str, float] = {}
    groups = (
        ('', list(golds)),
        ('HasAns_', [q for q in golds if golds[q]]),
        ('NoAns_', [q for q in golds if not golds[q]]),
    )
    for name, group in groups:
        if not group:
            continue
        for measure, part in zip(('exact', 'f1'), applied, strict=True):
            total = sum(part[q] for q in group)
            found[name + measure] = 100 * total / len(group)
        found[f'{name}total'] = len(group)
    for measure, part in zip(('exact', 'f1'), raw, strict=True):
        best = best_threshold(golds, answers, part, odds)
        found[f'best_{measure}'] = best.score
        found[f'best_{measure}_thresh'] = best.odds or 0.0
    return found
