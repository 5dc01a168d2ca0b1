"""Exact match and F1 of answers, as in the official scripts of SQuAD.

evaluate-v1.1.py (Rajpurkar et al. 2016) and evaluate-v2.0.py (2018) differ: a
question without a prediction is wrong in 1.1 and does not count in 2.0; F1 of
two answers that are empty once normalised is 0 in 1.1 and 1 in 2.0. Scores are
percent.
"""

import collections
import re
import string
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from infoword_tf import errors

_PUNCTUATION = str.maketrans('', '', string.punctuation)
_ARTICLES = re.compile(r'\b(a|an|the)\b')


def normalized(text: str) -> str:
    """Lowers case, and removes punctuation, articles and extra spaces."""
    text = _ARTICLES.sub(' ', text.lower().translate(_PUNCTUATION))
    return ' '.join(text.split())


def overlap(gold: Sequence[str], answer: Sequence[str]) -> float:
    """Returns F1 of two bags of words; 0 without common words."""
    both = collections.Counter(gold) & collections.Counter(answer)
    common = sum(both.values())
    if not common:
        return 0.0
    precision, recall = common / len(answer), common / len(gold)
    return 2 * precision * recall / (precision + recall)


def scores(
    golds: Mapping[str, Sequence[str]], answers: Mapping[str, str]
) -> dict[str, float]:
    """Returns 'exact_match' and 'f1' of SQuAD 1.1, means over all questions."""
    raw = raw_scores(golds, answers, version2=False)
    exact, f1 = (sum(score.values()) for score in raw)
    total = len(golds)
    return {'exact_match': 100 * exact / total, 'f1': 100 * f1 / total}


class Raw(NamedTuple):
    """Scores by question with a prediction."""

    exact: dict[str, float]
    f1: dict[str, float]


def raw_scores(
    golds: Mapping[str, Sequence[str]],
    answers: Mapping[str, str],
    version2: bool = True,
) -> Raw:
    """Scores questions; in SQuAD 2.0 without golds '' is the answer."""
    raw = Raw({}, {})
    for question, known in golds.items():
        if question not in answers:
            continue
        answer = normalized(answers[question])
        known = [normalized(gold) for gold in known]
        if version2:
            known = [*filter(None, known)] or ['']
        raw.exact[question] = float(answer in known)
        # Of two empty texts F1 is 1 in 2.0, and else that of no common words.
        raw.f1[question] = max(
            overlap(gold.split(), answer.split())
            or float(version2 and gold == answer)
            for gold in known
        )
    return raw


def best_threshold(
    golds: Mapping[str, Sequence[str]],
    answers: Mapping[str, str],
    raw: Mapping[str, float],
    null_odds: Mapping[str, float],
) -> tuple[float, float | None]:
    """Finds the best threshold for answering ''.

    Args:
        golds, answers: arguments of `raw_scores`.
        raw: 'exact' or 'f1' of `raw_scores`.
        null_odds: score of '' minus that of the answer, by question.

    Returns:
        The score in percent, and the odds above which the answer is ''; None
        if always.
    """
    now = best = float(sum(not known for known in golds.values()))
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
    return 100 * best / len(raw), odds


def scores2(
    golds: Mapping[str, Sequence[str]], answers: Mapping[str, str]
) -> dict[str, float]:
    """Returns 'exact' and 'f1' of SQuAD 2.0, over questions with predictions.

    With the prefixes 'HasAns_' and 'NoAns_' also over the questions with and
    without an answer, if there are any.

    Raises:
        ValueError: no question has a prediction.
    """
    raw = raw_scores(golds, answers)
    if not raw.exact:
        raise errors.InputError(
            'squad_no_prediction', 'no question of the file has a prediction'
        )
    groups = {
        '': list(raw.exact),
        'HasAns_': [q for q in raw.exact if golds[q]],
        'NoAns_': [q for q in raw.exact if not golds[q]],
    }
    return {
        name + measure: 100 * sum(values[q] for q in group) / len(group)
        for name, group in groups.items()
        if group
        for measure, values in raw._asdict().items()
    }
