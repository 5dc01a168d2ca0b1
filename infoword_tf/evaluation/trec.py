"""Files of search results, in trec_eval's format.

A line is `query-id Q0 doc-id rank score tag`. Scores are float32, as
trec_eval's own, and written to the last bit.
"""

import pathlib

import numpy as np

from infoword_tf import errors, files
from infoword_tf.data import readers
from infoword_tf.evaluation.retrieval import Rankings, RetrievalTask, results

TAG = 'infoword_tf'  # which system searched
LARGEST = float(np.finfo(np.float32).max)


def write_run(
    path: pathlib.Path, task: RetrievalTask, ranked: Rankings
) -> str | None:
    """Writes results atomically.

    Returns:
        None; or, if the format cannot hold an id because it is empty or has a
        blank, that id, and no file is left.
    """
    for name in (*task.query_ids, *task.document_ids):
        if name.split() != [name]:
            path.unlink(missing_ok=True)  # results of an earlier run
            return name
    path.parent.mkdir(parents=True, exist_ok=True)
    by_query = zip(task.query_ids, results(task, ranked), strict=True)
    with (
        files.written(path) as partial,
        open(partial, 'w', encoding='utf-8', errors='replace') as file,
    ):
        for query, (scores, numbers) in by_query:
            pairs = zip(scores.astype(np.float32), numbers, strict=True)
            for rank, (score, number) in enumerate(pairs, 1):
                document = task.document_ids[number]
                file.write(f'{query} Q0 {document} {rank} {score!s} {TAG}\n')
    return None


def read_run(
    path: pathlib.Path, task: RetrievalTask
) -> tuple[Rankings, dict[str, int]]:
    """Reads results of any system, in trec_eval's order.

    The order is by score, as float32, then by id, both descending; the order
    and the ranks of the file do not count. Queries without judgements are left
    out; judged queries that the file lacks have no result. A document that is
    neither in the corpus nor judged is a result like any other.

    Returns:
        Results, with unknown documents numbered after those of the task; and
        counts of unexpected queries and documents.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line is malformed, or a document occurs twice in a query,
            with file and line; or no query is one of the task's.
    """
    if not path.is_file():
        raise FileNotFoundError(f'--run={path}: there is no such file')
    number = {name: place for place, name in enumerate(task.document_ids)}
    known = len(number)
    ranked: dict[str, dict[int, float]] = {}
    for number_of_line, line in enumerate(readers.lines(path), 1):
        if not (fields := line.split()):
            continue
        where = f'{path}, line {number_of_line}'
        try:
            query, _, document, _, cell, _ = fields
            score = float(cell)
        except ValueError:
            raise errors.InputError(
                'trec_bad_line',
                f'{where}: expected query-id, Q0, doc-id, rank, score and '
                f'tag, separated by blanks, not {line.strip()!r}',
            ) from None
        if not abs(score) <= LARGEST:  # NaN as well
            raise errors.InputError(
                'trec_bad_score',
                f'{where}: the score {cell} is no float32',
            )
        place = number.setdefault(document, len(number))
        of_query = ranked.setdefault(query, {})
        if place in of_query:
            raise errors.InputError(
                'trec_document_twice',
                f'{where}: {document!r} is found for {query!r} further up too',
            )
        of_query[place] = float(np.float32(score))
    listed = [ranked.get(query, {}) for query in task.query_ids]
    if not any(listed):
        raise errors.InputError(
            'trec_other_queries',
            f'{path}: no query of {task.name} has a result there; the two are '
            'not of one data set',
        )
    ids = list(number)
    shape = len(listed), max(map(len, listed))
    scores, numbers = (
        np.full(shape, -np.inf, np.float32), np.full(shape, -1, np.int64)
    )  # fmt: skip
    for row, by_number in enumerate(listed):
        best = sorted(
            by_number, key=lambda n: (by_number[n], ids[n]), reverse=True
        )
        scores[row, : len(best)] = [by_number[n] for n in best]
        numbers[row, : len(best)] = best
    return (scores, numbers), {
        'unjudged_queries': len(ranked.keys() - set(task.query_ids)),
        'queries_without_results': listed.count({}),
        'unknown_documents': len(number) - known,
    }
