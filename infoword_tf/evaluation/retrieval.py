"""Retrieval tasks: folders of BEIR (Thakur et al. 2021), trec_eval measures."""

import hashlib
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from infoword_tf import errors
from infoword_tf.critics.texts import Texts
from infoword_tf.data import readers, tables
from infoword_tf.evaluation import ranking

DEPTH = 1000  # documents of a ranking, as in BEIR
EXACT = 10_000  # documents at most whose vectors of tokens are all compared
BLOCK = 1024  # documents whose texts and vectors are held at a time
SHARES = tuple(n / 10 for n in range(11))  # of words, which `tune` compares
Rankings = tuple[np.ndarray, np.ndarray]  # scores and numbers, `Best.sorted`
_DIGEST = 16  # bytes of a text's hash: the texts may not fit into memory


class RetrievalTask(NamedTuple):
    """Queries, documents and judgements; documents are numbered by id.

    Attributes:
        name: name of the task, for people.
        size: number of documents.
        documents: begins a new pass over (number, text).
        queries: texts.
        relevance: document -> grade of each query. Numbers from `size` on are
            judged documents that the corpus lacks: no search finds them.
        same_id: document of the same id as each query, which is not among its
            results, or -1.
        query_ids: ids of the queries in files.
        document_ids: ids of the documents in files, by number, also of judged
            documents that the corpus lacks.
        fingerprint: changes when the documents or their order may have.
        copies: all other documents of the same text, by the first one in the
            order of `documents`.
    """

    name: str
    size: int
    documents: Callable[[], Iterator[tuple[int, str]]]
    queries: list[str]
    relevance: list[dict[int, int]]
    same_id: list[int]
    query_ids: Sequence[str]
    document_ids: Sequence[str]
    fingerprint: str = ''
    copies: Mapping[int, Sequence[int]] = {}

    @property
    def absent(self) -> int:
        """Number of judgements of documents that the corpus lacks."""
        return sum(n >= self.size for x in self.relevance for n in x)

    def part(self, places: Sequence[int]) -> 'RetrievalTask':
        """Returns the task with a part of the queries."""
        return self._replace(
            queries=[self.queries[place] for place in places],
            relevance=[self.relevance[place] for place in places],
            same_id=[self.same_id[place] for place in places],
            query_ids=[self.query_ids[place] for place in places],
        )

    def joined(self, other: 'RetrievalTask') -> 'RetrievalTask':
        """Appends the queries of another split of the same documents."""
        return self._replace(
            queries=[*self.queries, *other.queries],
            relevance=[*self.relevance, *other.relevance],
            same_id=[*self.same_id, *other.same_id],
            query_ids=[*self.query_ids, *other.query_ids],
        )

    @property
    def distinct(self) -> int:
        """Number of documents of `blocks`."""
        return self.size - sum(map(len, self.copies.values()))

    def blocks(self) -> Iterator[tuple[np.ndarray, list[str]]]:
        """Yields numbers [C] and texts of documents without copies."""
        again = set(itertools.chain(*self.copies.values()))
        documents = (x for x in self.documents() if x[0] not in again)
        while block := list(itertools.islice(documents, BLOCK)):
            yield np.array([n for n, _ in block]), [text for _, text in block]

    def with_copies(
        self, numbers: np.ndarray, texts: Texts
    ) -> tuple[np.ndarray, Texts]:
        """Adds copies to numbers [C] and the texts of a critic of a block.

        Equal texts get one vector, because the last bits of a vector depend on
        its batch.
        """
        groups = [(n, *self.copies.get(n, ())) for n in numbers.tolist()]
        if len(groups) == sum(map(len, groups)):
            return numbers, texts
        places = np.repeat(np.arange(len(groups)), [*map(len, groups)])
        return np.array([*itertools.chain(*groups)]), texts[places]


def corpus_task(name: str, heldout: str | None = None) -> RetrievalTask:
    """Builds the search for held-out documents by first sentences.

    Documents of one sentence do not count. Documents with the same rest are
    relevant to each other's queries, because their vectors cannot differ.

    Raises:
        ValueError: no such corpus, or no document of two sentences.
    """
    from infoword_tf.data import corpora

    corpus = corpora.open_corpus(name, heldout)

    def sentences() -> Iterator[tuple[str, ...]]:
        every = (document.sentences for document in corpus.heldout())
        return (document for document in every if len(document) > 1)

    def documents() -> Iterator[tuple[int, str]]:
        for number, (_, *rest) in enumerate(sentences()):
            yield number, tables.valid(' '.join(rest))

    size, groups = repeated(text for _, text in documents())
    if not size:
        raise errors.InputError(
            'corpus_without_queries',
            f'--corpus={name}: no held-out document has two sentences; give '
            'more text, or name held-out files with --heldout=GLOB',
        )
    relevance = {number: {number: 1} for number in range(size)}
    for group in groups:
        relevance |= dict.fromkeys(group, dict.fromkeys(group, 1))
    # All ids are equally long, because ties are ordered by id, as strings.
    ids = [f'{number:0{len(str(size - 1))}}' for number in range(size)]
    return RetrievalTask(
        name=name,
        size=size,
        documents=documents,
        queries=[tables.valid(first) for first, *_ in sentences()],
        relevance=[relevance[number] for number in range(size)],
        same_id=[-1] * size,
        query_ids=ids,
        document_ids=ids,
        fingerprint=corpus.fingerprint,
        copies={first: others for first, *others in groups},
    )


def beir_task(
    folder: pathlib.Path,
    split: str = 'test',
    queries: pathlib.Path | None = None,
) -> RetrievalTask:
    """Reads a folder of BEIR, whose .jsonl may be compressed.

    Queries are those that the split judges. A document's text is its title, a
    space, and its text. Judged documents that the corpus lacks (5 of BEIR's
    ArguAna) count as not found, like in trec_eval.

    Args:
        folder: folder of the task.
        split: name of the judgements.
        queries: a file like queries.jsonl with other texts of the same ids,
            for example translations; None: queries.jsonl.

    Raises:
        FileNotFoundError: a file of BEIR or the split is missing.
        ValueError: a line is malformed, an id occurs twice, or a judgement
            names an unknown query, with file and line; or no judgement names a
            document of the corpus.
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
        raise errors.InputError(
            'beir_no_document', f'{corpus} holds no document'
        )
    number = {name: place for place, name in enumerate(ids)}
    copies = [[number[names[place]] for place in group] for group in groups]
    file = queries or _find(folder, 'queries.jsonl')
    if not file.is_file():
        raise FileNotFoundError(f'--queries={file}: there is no such file')
    texts = dict(_texts(file))
    relevance, missing = _judgements(
        folder,
        split,
        number=number,
        queries=texts,
        query_file=file,
    )
    stat = corpus.stat()

    def documents() -> Iterator[tuple[int, str]]:
        for name, text in _texts(corpus, titled=True, known=True):
            yield number[name], text

    of_queries = f', queries of {queries}' if queries else ''
    task = RetrievalTask(
        name=f'{folder.resolve().name} ({split}{of_queries})',
        size=len(ids),
        documents=documents,
        queries=[texts[query] for query in relevance],
        relevance=list(relevance.values()),
        same_id=[number.get(query, -1) for query in relevance],
        query_ids=list(relevance),
        document_ids=ids + missing,
        fingerprint=repr(
            (str(corpus.resolve()), stat.st_size, stat.st_mtime_ns)
        ),
        copies={first: others for first, *others in copies},
    )
    if task.absent == sum(map(len, task.relevance)):
        raise errors.InputError(
            'beir_other_documents',
            f'{folder}: no document of {corpus.name} is judged in '
            f'qrels/{split}.tsv; the two are not of one data set',
        )
    return task


def repeated(texts: Iterable[str]) -> tuple[int, list[list[int]]]:
    """Finds equal texts by hashes, without holding the texts.

    Returns:
        The number of texts; for each repeated text its indices, from 0.
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
    """Lists the files that `beir_task` reads."""
    return [
        _find(folder, 'corpus.jsonl'),
        _find(folder, 'queries.jsonl'),
        folder / 'qrels' / f'{split}.tsv',
    ]


def _find(folder: pathlib.Path, name: str) -> pathlib.Path:
    for suffix in ('', *readers.PACKED):
        path = folder / f'{name}{suffix}'
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
    """Yields (id, text) of a file of JSON lines.

    Args:
        titled: whether the title comes before the text.
        known: whether the file was read before, and no id occurs twice.
    """
    seen: dict[str, int] = {}
    for line, record in readers.read_jsonl(path):
        where = f'{path}, line {line}'
        if titled and record.get('title') is None:
            record['title'] = ''
        for field in ('_id', 'text', 'title')[: 2 + titled]:
            if not isinstance(record.get(field), str):
                raise errors.InputError(
                    'beir_no_string',
                    f'{where}: {field} is missing, or is no string',
                )
        name, text = record['_id'], record['text']
        first = line if known else seen.setdefault(name, line)
        if first != line:
            raise errors.InputError(
                'beir_id_twice',
                f'{where}: _id {name!r} is that of line {first} too',
            )
        if titled:
            text = f'{record["title"]} {text}'
        yield name, tables.valid(text.strip())


def _judgements(
    folder: pathlib.Path,
    split: str,
    number: Mapping[str, int],
    queries: Mapping[str, str],
    query_file: pathlib.Path,
) -> tuple[dict[str, dict[int, int]], list[str]]:
    """Reads query -> document -> grade of qrels/SPLIT.tsv, in the file's order.

    Documents that the corpus lacks get the next numbers; their ids come second.
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
    separator = ''
    for line_number, line in enumerate(map(str.strip, readers.lines(path)), 1):
        if not line:
            continue
        where, is_first = f'{path}, line {line_number}', not separator
        if is_first:
            separator = next((x for x in '\t;,' if line.count(x) == 2), '\t')
        fields = [field.strip() for field in line.split(separator)]
        is_header = is_first and not fields[-1].strip('-').isdigit()
        if is_header and len(fields) == 3:
            continue
        try:
            query, document, last = fields
            grade = int(last)
        except ValueError:
            raise errors.InputError(
                'beir_no_grade',
                f'{where}: expected query-id, corpus-id and a whole '
                f'number, separated by tabs, not {line!r}',
            ) from None
        if query not in queries:
            raise errors.InputError(
                'beir_unknown_query',
                f'{where}: no query has the _id {query!r} in {query_file}',
            )
        place = number.get(document)
        if place is None:
            place = absent.setdefault(document, len(number) + len(absent))
        grades = relevance.setdefault(query, {})
        if grades.setdefault(place, grade) != grade:
            raise errors.InputError(
                'beir_two_grades',
                f'{where}: {document!r} has another grade for {query!r} '
                'further up',
            )
    if not relevance:
        raise errors.InputError(
            'beir_no_judgement', f'{path} holds no judgement'
        )
    return relevance, list(absent)


def results(
    task: RetrievalTask, rankings: Rankings
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields (scores, numbers) of each query's results, at most DEPTH."""
    for scores, numbers, same_id in zip(*rankings, task.same_id, strict=True):
        places = np.nonzero((numbers >= 0) & (numbers != same_id))[0][:DEPTH]
        yield scores[places], numbers[places]


def tune(
    task: RetrievalTask, vectors: Rankings, words: Rankings
) -> tuple[float, dict[float, float]]:
    """Chooses the share of words in `ranking.hybrid`.

    Returns:
        That of SHARES which is nearest to the default among the best: behind
        the best by half a standard error at most, so that a few queries do not
        choose by chance; and nDCG@10 by share.
    """
    values = []
    for share in SHARES:
        merged = ranking.hybrid(vectors, words, DEPTH + 1, share)
        values.append([
            ranking.measure(numbers.tolist(), grades)['ndcg@10']
            for (_, numbers), grades in zip(
                results(task, merged), task.relevance, strict=True
            )
        ])
    means = np.mean(values, axis=1)
    behind = values[means.argmax()] - np.array(values)
    error = behind.std(axis=1) / len(task.relevance) ** 0.5
    best = np.array(SHARES)[behind.mean(axis=1) <= error / 2]
    nearest = min(best.tolist(), key=lambda x: abs(x - ranking.SHARE))
    return nearest, dict(zip(SHARES, means.round(5).tolist(), strict=True))


def candidates(
    task: RetrievalTask, rankings: Rankings, top: int
) -> np.ndarray:
    """Returns the best `top` results of each query for `ranking.rescore`.

    Returns:
        [Q, DEPTH + 1] numbers, -1: none.
    """
    best = np.full((len(task.queries), DEPTH + 1), -1)
    for row, (_, numbers) in zip(best, results(task, rankings), strict=True):
        row[: min(top, len(numbers))] = numbers[:top]
    return best


def measure(task: RetrievalTask, rankings: Rankings) -> dict[str, float]:
    """Computes `ranking.evaluate` of the results of a task."""
    documents = [numbers.tolist() for _, numbers in results(task, rankings)]
    return ranking.evaluate(documents, task.relevance)
