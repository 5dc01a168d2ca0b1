"""trec_eval, through its Python port, on random scores, some of them equal.

    .venv-oracles/bin/python -m tests.oracles.trec_eval [--write]

Glossary of shapes: Q queries, n documents, J judgements.
"""

import numpy as np

from tests.oracles import frozen

QUERIES, DOCUMENTS = 10, 1100
# Scores are whole numbers between -level and level: equal in droves, or not.
LEVELS = (2, 30, 30_000)
# trec_eval orders equal scores by name, so the number n of a document is that
# of its name in this order.
NAMES = sorted(f'd{n}' for n in range(DOCUMENTS))
MEASURES = (
    'ndcg_cut_10', 'recall_10', 'recall_100', 'map_cut_1000', 'recip_rank'
)  # fmt: skip


def make() -> dict[str, np.ndarray]:
    """By level: scores [Q, n], judgements [J, 3], values [Q, measures].

    A judgement is query, document, grade.
    """
    import pytrec_eval

    random = np.random.default_rng(0)
    arrays = {}
    for level in LEVELS:
        shape = QUERIES, DOCUMENTS
        scores = random.integers(-level, level, shape).astype(np.int16)
        judged = [
            (query, int(document), int(random.integers(-1, 4)))
            for query, size in enumerate(random.integers(1, 60, QUERIES))
            for document in random.choice(DOCUMENTS, size, replace=False)
        ]
        grades = {str(query): {} for query in range(QUERIES)}
        for query, document, grade in judged:
            grades[str(query)][NAMES[document]] = grade
        evaluator = pytrec_eval.RelevanceEvaluator(
            grades,
            {'ndcg_cut.10', 'recall.10,100', 'map_cut.1000', 'recip_rank'},
        )
        actual = evaluator.evaluate({
            str(query): dict(zip(NAMES, map(float, row), strict=True))
            for query, row in enumerate(scores)
        })  # fmt: skip
        arrays[f'{level}/scores'] = scores
        arrays[f'{level}/judged'] = np.array(judged, np.int32)
        arrays[f'{level}/values'] = np.array([
            [actual[str(query)][name] for name in MEASURES]
            for query in range(QUERIES)
        ])  # fmt: skip
    return arrays


if __name__ == '__main__':
    frozen.main('trec_eval', make)
