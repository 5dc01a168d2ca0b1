"""What is to be found among documents, and how good what was found is.

Folders are those of BEIR (Thakur et al. 2021), measures trec_eval's.
"""

import hashlib
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from infoword_tf.data import readers, records, tables
from infoword_tf.evaluation import ranking

DEPTH = 1000  # documents of a ranking, as in BEIR
BLOCK = 1024  # documents whose texts and vectors are held at a time
Found = tuple[np.ndarray, np.ndarray]  # scores and numbers, `Best.sorted`
_DIGEST = 16  # bytes that tell texts apart: not all of them may fit into memory


class RetrievalTask(NamedTuple):
    """What is to be found. Documents are numbers, in the order of their ids.

    Attributes:
        name: for people.
        size: how many documents there are.
        documents: begins a new pass over (number, text).
        queries: their texts.
        relevance: for each query, document -> grade. A number from `size` on
            is a document that is judged and not there: nobody finds it.
        own: for each query the document of the same id, which is no result
            of it, or -1.
        query_ids: by which files name the queries.
        document_ids: likewise, by number, also of documents that are judged
            and not there.
        absent: judgements of documents that are not there.
        fingerprint: changes when the documents or their order may have.
        copies: by the first document of a text, in the order of `documents`,
            all others that have the same text.
    """

    name: str
    size: int
    documents: Callable[[], Iterator[tuple[int, str]]]
    queries: list[str]
    relevance: list[dict[int, int]]
    own: list[int]
    query_ids: Sequence[str]
    document_ids: Sequence[str]
    absent: int = 0
    fingerprint: str = ''
    copies: Mapping[int, Sequence[int]] = {}

    @property
    def distinct(self) -> int:
        """Counts the documents of `blocks`."""
        return self.size - sum(map(len, self.copies.values()))

    def blocks(self) -> Iterator[tuple[np.ndarray, list[str]]]:
        """Documents without copies, BLOCK at a time: numbers [N] and texts."""
        again = set(itertools.chain(*self.copies.values()))
        documents = (x for x in self.documents() if x[0] not in again)
        while block := list(itertools.islice(documents, BLOCK)):
            yield np.array([n for n, _ in block]), [text for _, text in block]

    def with_copies(
        self, numbers: np.ndarray, vectors: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Numbers [N] of a block and [N, D], with those of copies: equal texts
        have one vector, which the batch that it was computed in decides.
        """
        groups = [(n, *self.copies.get(n, ())) for n in numbers.tolist()]
        if len(groups) == sum(map(len, groups)):
            return numbers, vectors
        vectors = np.repeat(vectors, [*map(len, groups)], axis=0)
        return np.array([*itertools.chain(*groups)]), vectors


def beir_task(
    folder: pathlib.Path,
    split: str = 'test',
    queries: pathlib.Path | None = None,
) -> RetrievalTask:
    """A folder as BEIR lays it out; .jsonl may be packed.

    Queries are those that the split judges. A document's text is its title, a
    space, and its text. What is judged and not there (as 5 documents of
    BEIR's ArguAna) counts as not found, as trec_eval has it.

    Args:
        folder, split: its name, and which of its judgements.
        queries: a file like its queries.jsonl with other texts of the same
            ids, translations say; None: that one.

    Raises:
        FileNotFoundError: it is no such folder, or has no such split.
        ValueError: a line is malformed, an id occurs twice, or a judgement
            names a query that is not there, with file and line; or no
            judgement names a document that is there.
    """
    corpus = _find(folder, 'corpus.jsonl')
    names: list[str] = []

    def texts_alone() -> Iterator[str]:
        for name, text in _texts(corpus, titled=True):
            names.append(name)
            yield text

    _, groups = repeated(texts_alone())
    ids = sorted(names)
    if not ids:
        raise ValueError(f'{corpus} holds no document')
    number = {name: place for place, name in enumerate(ids)}
    copies = [[number[names[place]] for place in group] for group in groups]
    asked = queries or _find(folder, 'queries.jsonl')
    if not asked.is_file():
        raise FileNotFoundError(f'--queries={asked}: there is no such file')
    texts = dict(_texts(asked))
    relevance, missing = _judgements(folder, split, number, texts, asked)
    absent = sum(n >= len(ids) for found in relevance.values() for n in found)
    if absent == sum(map(len, relevance.values())):
        raise ValueError(
            f'{folder}: no document of {corpus.name} is judged in '
            f'qrels/{split}.tsv; the two are not of one data set'
        )

    stat = corpus.stat()

    def documents() -> Iterator[tuple[int, str]]:
        for name, text in _texts(corpus, titled=True, known=True):
            yield number[name], text

    return RetrievalTask(
        f'{folder.resolve().name} ({split}'
        + (f', queries of {queries})' if queries else ')'),
        len(ids),
        documents,
        [texts[query] for query in relevance],
        list(relevance.values()),
        [number.get(query, -1) for query in relevance],
        list(relevance),
        ids + missing,
        absent,
        repr((str(corpus.resolve()), stat.st_size, stat.st_mtime_ns)),
        {first: others for first, *others in copies},
    )


def repeated(texts: Iterable[str]) -> tuple[int, list[list[int]]]:
    """Which texts are equal; each is held for a moment.

    Returns:
        How many texts there are, and of each that occurs several times its
        places, from 0.
    """
    digests = bytearray()
    for text in texts:
        digests += hashlib.blake2b(text.encode(), digest_size=_DIGEST).digest()
    keys = np.frombuffer(bytes(digests), f'S{_DIGEST}')
    order = np.argsort(keys, kind='stable')
    differs = keys[order][1:] != keys[order][:-1]
    begins = np.flatnonzero(np.concatenate([[True], differs]))
    counts = np.diff(begins, append=len(keys))
    several = zip(begins[counts > 1], counts[counts > 1], strict=True)
    return len(keys), [
        order[begin : begin + count].tolist() for begin, count in several
    ]


def files_of(folder: pathlib.Path, split: str) -> list[pathlib.Path]:
    """What `beir_task` reads."""
    return [
        _find(folder, 'corpus.jsonl'),
        _find(folder, 'queries.jsonl'),
        folder / 'qrels' / f'{split}.tsv',
    ]


def _find(folder: pathlib.Path, name: str) -> pathlib.Path:
    for packed in ('', *readers.PACKED):
        path = folder / f'{name}{packed}'
        if path.is_file():
            return path
    raise FileNotFoundError(
        f'{folder} is no BEIR folder: it has no {name}; expected are '
        'corpus.jsonl, queries.jsonl (also with .gz or .zst) and '
        'qrels/SPLIT.tsv'
    )


def _texts(
    path: pathlib.Path, titled: bool = False, known: bool = False
) -> Iterator[tuple[str, str]]:
    """Yields (id, text, after its title if titled) of a file of JSON lines.

    known: whether it was read before, and no id occurs twice.
    """
    seen: dict[str, int] = {}
    for line, record in records.read_jsonl(path):
        where = f'{path}, line {line}'
        if titled and record.get('title') is None:
            record['title'] = ''
        for field in ('_id', 'text', 'title')[: 2 + titled]:
            if not isinstance(record.get(field), str):
                raise ValueError(
                    f'{where}: {field} is missing, or is no string'
                )
        name, text = record['_id'], record['text']
        first = line if known else seen.setdefault(name, line)
        if first != line:
            raise ValueError(
                f'{where}: _id {name!r} is that of line {first} too'
            )
        if titled:
            text = f'{record["title"]} {text}'
        yield name, tables.valid(text.strip())


def _judgements(
    folder: pathlib.Path,
    split: str,
    number: Mapping[str, int],
    queries: Mapping[str, str],
    asked: pathlib.Path,
) -> tuple[dict[str, dict[int, int]], list[str]]:
    """Query -> document -> grade of qrels/SPLIT.tsv, in the file's order.

    Documents that are not there are numbered on from those that are; their
    ids come second.
    """
    path = folder / 'qrels' / f'{split}.tsv'
    if not path.is_file():
        splits = sorted(p.stem for p in path.parent.glob('*.tsv'))
        raise FileNotFoundError(
            f'{folder} has no qrels/{split}.tsv; '
            + (f'its splits are {", ".join(splits)}' if splits else 'it is '
               'where a BEIR folder says what is relevant')
        )
    relevance: dict[str, dict[int, int]] = {}
    absent: dict[str, int] = {}
    parted = ''
    for line, row in enumerate(map(str.strip, readers.lines(path)), 1):
        if not row:
            continue
        where, is_first = f'{path}, line {line}', not parted
        parted = parted or next((x for x in '\t;,' if row.count(x) == 2), '\t')
        fields = [field.strip() for field in row.split(parted)]
        is_header = is_first and not fields[-1].strip('-').isdigit()
        if is_header and len(fields) == 3:
            continue
        try:
            query, document, grade = fields
            grade = int(grade)
        except ValueError:
            raise ValueError(
                f'{where}: expected query-id, corpus-id and a whole '
                f'number, parted by tabs, not {row!r}'
            ) from None
        if query not in queries:
            raise ValueError(
                f'{where}: no query has the _id {query!r} in {asked}'
            )
        place = number.get(document)
        if place is None:
            place = absent.setdefault(document, len(number) + len(absent))
        grades = relevance.setdefault(query, {})
        if grades.setdefault(place, grade) != grade:
            raise ValueError(
                f'{where}: {document!r} has another grade for {query!r} '
                'further up'
            )
    if not relevance:
        raise ValueError(f'{path} holds no judgement')
    return relevance, list(absent)


def results(
    task: RetrievalTask, found: Found
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields (scores, numbers) of each query's results, at most DEPTH."""
    for scores, numbers, own in zip(*found, task.own, strict=True):
        places = np.nonzero((numbers >= 0) & (numbers != own))[0][:DEPTH]
        yield scores[places], numbers[places]


def measure(task: RetrievalTask, found: Found) -> dict[str, float]:
    """`ranking.evaluate` of what was found."""
    rankings = [numbers.tolist() for _, numbers in results(task, found)]
    return ranking.evaluate(rankings, task.relevance)
