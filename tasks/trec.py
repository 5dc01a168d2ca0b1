"""Results of a search in files, as trec_eval reads them.

A line is `query-id Q0 doc-id rank score tag`. Scores are float32, as
trec_eval's own, and written to the last bit.
"""

import pathlib

import numpy as np

from infoword_tf import files
from infoword_tf.data import readers
from infoword_tf.evaluation.retrieval import Rankings, RetrievalTask, results

TAG = 'infoword_tf'  # which system searched
LARGEST = float(np.finfo(np.float32).max)


def write_run(
    path: pathlib.Path, task: RetrievalTask, found: Rankings
) -> str | None:
    """Writes results, whole or not at all.

    Returns:
        An id that is empty or has a blank, which the format cannot hold: then
        no file is there. Else None.
    """
    for name in (*task.query_ids, *task.document_ids):
        if name.split() != [name]:
            path.unlink(missing_ok=True)  # of another run, it would mislead
            return name
    path.parent.mkdir(parents=True, exist_ok=True)
    ranked = zip(task.query_ids, results(task, found), strict=True)
    with (
        files.written(path) as partial,
        open(partial, 'w', encoding='utf-8', errors='replace') as file,
    ):
        for query, (scores, numbers) in ranked:
            pairs = zip(scores.astype(np.float32), numbers, strict=True)
            for rank, (score, number) in enumerate(pairs, 1):
                document = task.document_ids[number]
                file.write(f'{query} Q0 {document} {rank} {score!s} {TAG}\n')
    return None


def read_run(
    path: pathlib.Path, task: RetrievalTask
) -> tuple[Rankings, dict[str, int]]:
    """Results of whoever searched, in the order that trec_eval gives them.

    That is by score, as float32, then by id, both descending; the file's order
    and ranks do not count. Queries that nobody judged are left out, and of the
    others those that the file lacks have no result. A document that is neither
    there nor judged is a result like any other.

    Returns:
        What was found, documents that are not known being numbered on from
        those that are; and how many queries and documents are not as expected.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is malformed, or a document is found twice for a
            query, with file and line; or no query is one of the task's.
    """
    if not path.is_file():
        raise FileNotFoundError(f'--run={path}: there is no such file')
    number = {name: place for place, name in enumerate(task.document_ids)}
    known = len(number)
    ranked: dict[str, dict[int, float]] = {}
    for line, row in enumerate(readers.lines(path), 1):
        if not (fields := row.split()):
            continue
        where = f'{path}, line {line}'
        try:
            query, _, document, _, score, _ = fields
            score = float(score)
        except ValueError:
            raise ValueError(
                f'{where}: expected query-id, Q0, doc-id, rank, score and '
                f'tag, parted by blanks, not {row.strip()!r}'
            ) from None
        if not abs(score) <= LARGEST:  # NaN as well
            raise ValueError(
                f'{where}: the score {fields[4]} is no float32'
            )
        place = number.setdefault(document, len(number))
        scores = ranked.setdefault(query, {})
        if place in scores:
            raise ValueError(
                f'{where}: {document!r} is found for {query!r} further up '
                'too'
            )
        scores[place] = float(np.float32(score))
    rows = [ranked.get(query, {}) for query in task.query_ids]
    if not any(rows):
        raise ValueError(
            f'{path}: no query of {task.name} has a result there; the two are '
            'not of one data set'
        )
    ids = list(number)
    shape = len(rows), max(map(len, rows))
    found = np.full(shape, -np.inf, np.float32), np.full(shape, -1, np.int64)
    for place, row in enumerate(rows):
        best = sorted(row, key=lambda n: (row[n], ids[n]), reverse=True)
        found[0][place, : len(row)] = [row[n] for n in best]
        found[1][place, : len(row)] = best
    return found, {
        'unjudged_queries': len(ranked.keys() - set(task.query_ids)),
        'queries_without_results': rows.count({}),
        'unknown_documents': len(number) - known,
    }
