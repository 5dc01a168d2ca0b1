"""An index of passages: a folder of two files that any language opens.

    passages.sqlite   passages, their words (FTS5), and the vectors of texts
    vectors-N.faiss   the vectors once more, as FAISS scans them; ids are those
                      of the table `vectors`; of the critic `cosine`

Of `late` and `lexical` a text has as many vectors as tokens, or as weights: an
id and a weight.

SQLite holds the truth. Vectors are committed block by block, by a digest of
text and encoder. When the next file for FAISS is whole, one transaction
exchanges the passages that differ: after a kill the old index stands, and the
same command encodes the rest alone. The vectors of SQLite order what FAISS
proposes; without FAISS, or without its file, all of them are compared.

Glossary of shapes: m vectors of a block.
"""

import array
import contextlib
import hashlib
import importlib.util
import itertools
import json
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from export.residual import Residual, centroids_of
from infoword_tf import errors, files, progress
from infoword_tf.critics import CRITICS, Critic
from infoword_tf.critics.texts import Texts, Tokens, flat, restored
from infoword_tf.data import tables
from infoword_tf.data.documents import Document, passages
from infoword_tf.evaluation import ranking
from infoword_tf.evaluation.retrieval import Rankings
from tasks.retrieval import Encoder

# TensorFlow exports symbols of a SQLite without FTS5, and Python's module calls
# them if TensorFlow came first; RTLD_DEEPBIND prefers the module's library.
_flags = sys.getdlopenflags()
sys.setdlopenflags(_flags | getattr(os, 'RTLD_DEEPBIND', 0))
import sqlite3  # noqa: E402

sys.setdlopenflags(_flags)

About = Mapping[str, Any]  # the table `about`: model, text, kind of vectors
Db = sqlite3.Connection
FILE, FORMAT = 'passages.sqlite', 3
BLOCK = 4096  # vectors that are encoded, written or compared at once
TEXTS = 256  # likewise, where a text has several
SAMPLE = 1 << 14  # vectors that FAISS fits its 8 bits to
# The index of FAISS, and how many proposals an answer needs.
KINDS = {'float32': ('Flat', 2), 'int8': ('SQ8', 4), 'binary': ('LSH', 8)}
RESIDUAL = 'residual'
FITTED = 1024  # passages that its codes are fitted to
# Nearly every text has these words, which would take most of the time.
STOP = frozenset(
    'a an and are as at be but by for if in into is it no not of on or such '
    'that the their then there these they this to was will with'.split()
)
SCHEMA = """
    PRAGMA page_size = 16384;
    PRAGMA cache_size = -65536;
    PRAGMA temp.cache_size = -65536;
    CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value);
    CREATE TABLE IF NOT EXISTS vectors
        (id INTEGER PRIMARY KEY, digest BLOB UNIQUE, code BLOB);
    CREATE TABLE IF NOT EXISTS codes (model TEXT PRIMARY KEY, value BLOB);
    CREATE TABLE IF NOT EXISTS passages (id INTEGER PRIMARY KEY, source TEXT,
        place INTEGER, digest BLOB, text TEXT);
    CREATE INDEX IF NOT EXISTS of_source ON passages (source, place, digest);
    CREATE INDEX IF NOT EXISTS of_digest ON passages (digest);
    CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5
        (text, content=passages, content_rowid=id, tokenize='porter unicode61');
    CREATE TRIGGER IF NOT EXISTS came AFTER INSERT ON passages BEGIN
        INSERT INTO words (rowid, text) VALUES (new.id, new.text); END;
    CREATE TRIGGER IF NOT EXISTS went AFTER DELETE ON passages BEGIN
        INSERT INTO words (words, rowid, text)
        VALUES ('delete', old.id, old.text); END;
    CREATE TEMP TABLE sources (source TEXT PRIMARY KEY);
    CREATE TEMP TABLE staged (source TEXT, place INTEGER, digest BLOB,
        text TEXT, PRIMARY KEY (source, place, digest));
"""
LACKING = """
    CREATE TEMP TABLE lacking AS SELECT min(rowid) AS staged FROM staged
    WHERE digest NOT IN (SELECT digest FROM vectors) GROUP BY digest
"""
COME = """
    INSERT INTO passages (source, place, digest, text) SELECT * FROM staged
    WHERE (source, place, digest) NOT IN
    (SELECT source, place, digest FROM passages) ORDER BY rowid
"""
GO = """
    DELETE FROM passages WHERE (source, place, digest) NOT IN
    (SELECT source, place, digest FROM staged)
"""
UNUSED = 'DELETE FROM vectors WHERE digest NOT IN (SELECT digest FROM passages)'
_BY_ID = 'WHERE id IN (SELECT value FROM json_each(?))'


class Passage(NamedTuple):
    """A passage of a document, and the name of the document."""

    text: str
    source: str


def encoded(texts: Texts, kind: str | Residual) -> list[bytes]:
    """Encodes n texts of a critic, each as rows of numbers."""
    texts = flat(texts)
    if not isinstance(texts, Tokens):
        return [row.tobytes() for row in _coded(texts, kind)]
    rows = _coded(texts.vectors, kind)
    return [part.tobytes() for part in np.split(rows, texts.ends[:-1])]


def _coded(vectors: np.ndarray, kind: str | Residual) -> np.ndarray:
    """Encodes vectors [m, D] in rows [m, bytes] uint8: numbers of 4 or 2 bytes,
    a step and a byte a number, or fitted codes.
    """
    if isinstance(kind, Residual):
        return kind.encode(vectors)
    if kind in ('float32', 'float16'):
        vectors = np.ascontiguousarray(vectors, kind)
        size = vectors.shape[1] * vectors.itemsize
        return vectors.view(np.uint8).reshape(len(vectors), size)
    steps = np.abs(vectors).max(axis=1, keepdims=True) / np.float32(127)
    # The smallest numbers have no inverse.
    codes = np.rint(vectors / np.maximum(steps, np.finfo(np.float32).tiny))
    codes = codes.astype(np.int8).view(np.uint8)
    return np.hstack([steps.view(np.uint8), codes])


def decoded(
    codes: Sequence[bytes],
    kind: str | Residual,
    queries: Texts | None = None,
) -> Texts:
    """Decodes texts; bytes are exact to half a step.

    Args:
        codes: of n texts.
        kind: of the index, or its codes.
        queries: that they are compared with, as wide, which tell the critic;
            None: vectors.
    """
    data = np.frombuffer(b''.join(codes), np.uint8)
    if queries is None or isinstance(queries, np.ndarray):
        return _vectors(data.reshape(len(codes), -1), kind)
    width = flat(queries).shape[1]
    size = _coded(np.zeros((1, width), np.float32), kind).shape[1]
    sizes = np.array([len(code) // size for code in codes])
    tokens = Tokens(_vectors(data.reshape(-1, size), kind), sizes)
    return restored(tokens, queries)


def _vectors(rows: np.ndarray, kind: str | Residual) -> np.ndarray:
    """Inverts `_coded`: [m, D] float32."""
    if isinstance(kind, Residual):
        return kind.decode(rows)
    if kind in ('float32', 'float16'):
        return np.float32(rows.view(kind))
    return rows[:, 4:].view(np.int8) * rows[:, :4].copy().view(np.float32)


def has_faiss() -> bool:
    """Returns whether FAISS is installed."""
    return importlib.util.find_spec('faiss') is not None


class Index:
    """An index of passages on the disk, for any number of threads.

    The next search sees what another process wrote. All methods raise
    UsageError if a file is damaged or locked, or the disk full.

    Attributes:
        folder: where the two files are, or will be.
        cut: applied to vectors before they are compared; None: nothing.
        first: how many passages, the best by BM25, are compared by vectors,
            or as many as answers, if these are more; None: all.
        rerank: (query, texts) -> scores, by which the best `top` passages are
            ordered anew; None: they are not.
        top: how many, or as `first`.
    """

    rerank: Callable[[str, list[str]], np.ndarray] | None = None
    first: int | None = None
    top = 0

    def __init__(self, folder: pathlib.Path):
        """Checks the folder.

        Raises:
            errors.UsageError: it holds something else.
        """
        self.folder, self.cut = folder, None
        self._scanner: tuple[str, Any] = '', None
        self._weights: tuple[int, list[Any]] = 0, []
        names = [path.name for path in folder.glob('[!.]*')]
        if folder.is_file() or names and FILE not in names:
            raise errors.UsageError(
                'folder_of_other_things',
                f'{folder} holds other things than an index of this version: '
                'name another folder, or delete that one',
            )

    def __len__(self) -> int:
        """Returns the number of passages."""
        return self.key().get('passages', 0)

    def key(self) -> About:
        """Returns the table `about`; empty: the folder has no index yet."""
        if not (self.folder / FILE).is_file():
            return {}
        with self._opened() as db:
            return self._key(db)

    @contextlib.contextmanager
    def _opened(self, mode: str = 'rw') -> Iterator[Db]:
        path = self.folder / FILE
        uri = f'{path.absolute().as_uri()}?mode={mode}'
        try:
            with contextlib.closing(
                sqlite3.connect(uri, 600, isolation_level=None, uri=True)
            ) as db:
                yield db
        except sqlite3.Error as error:
            raise errors.UsageError(
                'unreadable_index',
                f'{path}: {error}; make room if the disk is full; if the file '
                f'is damaged delete {self.folder}, and make it again',
            ) from error

    def _key(self, db: Db) -> About:
        [(version,)] = db.execute('PRAGMA user_version')
        if version not in (0, FORMAT):
            raise errors.UsageError(
                'index_of_other_version',
                f'{self.folder} is an index of another version of this '
                'project; delete it, and make it again',
            )
        return dict(db.execute('SELECT * FROM about')) if version else {}

    # ------------------------------------------------------------ writing

    def write(
        self,
        texts: Iterable[Document],
        embed: Encoder | None,
        key: About | None = None,
    ) -> None:
        """Writes a new index, or updates an old one.

        Of a document with a known name the passages that differ are exchanged.
        A text that has a vector is not encoded again.

        Args:
            texts: documents, read once as a stream.
            embed: as of `retrieval.exported`.
            key: `about` from now on, with `model`, `critic`, `vectors` (of
                `Critic.stored`) and `similarity`; all other documents are
                deleted. None: as it was, and other documents stay.

        Raises:
            errors.UsageError: no passage would be left.
            RuntimeError: another process writes to the folder.
            ValueError: the encoder made a vector that is not finite.
        """
        with files.locked(self.folder), self._opened('rwc') as db:
            db.executescript(SCHEMA)
            before = self._key(db)
            about = {**before, **(key or {})}
            _stage(db, texts, about)
            _encode(db, embed, about)
            with db:
                db.execute('BEGIN IMMEDIATE')
                start = db.total_changes
                db.execute(COME)
                within = '' if key else 'AND source IN (SELECT * FROM sources)'
                db.execute(GO + within)
                changed = db.total_changes > start
                db.execute(UNUSED)
                db.execute('DELETE FROM codes WHERE model <> ?',
                           [about['model']])  # fmt: skip
                [(about['passages'],)] = db.execute(
                    'SELECT count(*) FROM passages'
                )
                if not about['passages']:
                    raise errors.UsageError(
                        'no_text_to_search',
                        f'{about.get("corpus")} has no text to search',
                    )
                if not key:
                    about['updates'] = about.get('updates', 0) + changed
                if changed or not self._whole(before):
                    number = before.get('number', 0) + 1
                    about |= {'number': number, 'bytes': 0}
                    if has_faiss() and _critic(about).has_vector:
                        about['bytes'] = _write_faiss(
                            db, self._path(number), about
                        )
                db.executemany(
                    'REPLACE INTO about VALUES (?, ?)', about.items()
                )
                db.execute(f'PRAGMA user_version = {FORMAT}')
            for path in self.folder.glob('vectors-*.faiss'):
                if path != self._path(about['number']):
                    path.unlink()

    def _path(self, number: int) -> pathlib.Path:
        return self.folder / f'vectors-{number}.faiss'

    def _whole(self, about: About) -> bool:
        """Returns whether the file for FAISS exists in full length.

        Or is not needed.
        """
        if not _critic(about).has_vector:
            return True
        path = self._path(about.get('number', 0))
        return path.is_file() and path.stat().st_size == about['bytes']

    def mend(self) -> None:
        """Writes the file for FAISS if none of full length exists."""
        if has_faiss() and not self._whole(self.key()):
            self.write((), None)

    # ---------------------------------------------------------- searching

    def find(
        self,
        query: str,
        vector: np.ndarray | None,
        top_k: int,
        words: float = 0.0,
        oversample: int | None = None,
    ) -> list[tuple[float, Passage]]:
        """Finds the best passages, with scores, in one transaction.

        Args:
            query: its words are searched by BM25.
            vector: of the query, [1, D]; None with words=1.
            top_k: how many, at most.
            words: the share of BM25 in the score. 0: vectors alone, with their
                scores; 1: words alone. Between them, scores are sums of
                standardised ones, see `ranking.hybrid`.
            oversample: how many proposals of FAISS an answer needs.
        """
        count = max(self.top, top_k) if self.rerank else top_k
        depth = max(ranking.MERGED, count) if 0 < words < 1 else count
        rankings = []
        with self._opened() as db:
            db.execute('BEGIN')
            if words < 1:
                proposed = None
                if self.first is not None:
                    size = max(self.first, top_k)
                    _, [proposed] = _by_words(db, query, size)
                rankings.append(
                    self._by_vector(db, vector, depth, oversample, proposed)
                )
            if words > 0:
                rankings.append(_by_words(db, query, depth))
            if len(rankings) > 1:
                rankings = [ranking.hybrid(*rankings, count, words)]
            [([scores], [ids])] = rankings
            cursor = db.execute(
                f'SELECT id, text, source FROM passages {_BY_ID}',
                [json.dumps(ids.tolist())],
            )
            by_id = {id: Passage(*row) for id, *row in cursor}
        ids = ids[ids >= 0].tolist()
        results = [by_id[id] for id in ids]
        scores = scores[: len(ids)]
        if self.rerank and results:
            scores = self.rerank(query, [passage.text for passage in results])
            best = np.argsort(-scores, kind='stable')[:top_k]
            scores, results = scores[best], [results[i] for i in best]
        return [*zip(scores.tolist(), results, strict=True)]

    def _by_vector(
        self,
        db: Db,
        vector: Texts,
        top_k: int,
        times: int | None,
        proposed: np.ndarray | None,
    ) -> Rankings:
        """Finds the best of the proposals of FAISS or BM25, or of all.

        Args:
            vector: of the query.
            times: as `oversample`.
            proposed: passages that are compared; None: all.

        Returns:
            As of `Best.sorted`.
        """
        about = self._key(db)
        kind, similarity = about['vectors'], about['similarity']
        whole = vector
        if self.cut is not None:
            vector = self.cut(whole)
        query = ranking.prepared(vector, similarity)
        critic, where, source = _critic(about), '', 'vectors'
        coder = _codes(db, about) or kind
        if proposed is not None:
            where, source = _BY_ID, 'passages'
        elif (
            critic.has_vector
            and not self.cut
            and has_faiss()
            and self._whole(about)
        ):
            import faiss

            path = str(self._path(about['number']))
            if self._scanner[0] != path:
                scanner = faiss.read_index(path, faiss.IO_FLAG_MMAP_IFC)
                self._scanner = path, scanner
            # Threads share queries: with a single query they would only wait.
            faiss.omp_set_num_threads(1)
            size = top_k * (times or KINDS[kind][1])
            _, [proposed] = self._scanner[1].search(query, size)
            where = _BY_ID
        proposals = [json.dumps(proposed.tolist())] if where else []
        other = 'passages' if source == 'vectors' else 'vectors'
        cursor = db.execute(
            f'SELECT passages.id, code FROM (SELECT * FROM {source} {where}) '
            f'AS {source} CROSS JOIN {other} USING (digest)', proposals,
        )  # fmt: skip

        def blocks() -> Iterator[tuple[np.ndarray, Texts]]:
            for ids, codes in _blocks(cursor, critic.has_vector):
                vectors = decoded(codes, coder, whole)
                if self.cut:
                    vectors = ranking.prepared(self.cut(vectors), similarity)
                yield np.array(ids), vectors

        if not critic.inverted or proposed is not None:
            return ranking.search(query, blocks(), top_k, 'dot')
        if self._weights[0] != about['number']:
            # The weights of all passages, by tokens, stay in memory.
            held = [(ids, ranking.comparer(texts)) for ids, texts in blocks()]
            self._weights = about['number'], held
        scorers = (
            (ids, lambda _, compare=compare: compare(query))
            for ids, compare in self._weights[1]
        )
        return ranking.scan(1, scorers, top_k)


def _codes(db: Db, about: About) -> Residual | None:
    """Returns fitted codes; None: the index has no codes."""
    if about['vectors'] != RESIDUAL:
        return None
    rows = db.execute('SELECT value FROM codes WHERE model = ?',
                      [about['model']]).fetchall()  # fmt: skip
    return Residual.of_bytes(rows[0][0]) if rows else None


def _critic(about: About) -> type[Critic]:
    return CRITICS[about.get('critic', 'cosine')]  # older ones do not say


def _by_words(db: Db, query: str, top_k: int) -> Rankings:
    """Finds the best passages by BM25, that share a word; see `Best.sorted`."""
    words = sorted({*re.findall(r'\w\w+', query.lower())} - STOP)
    cursor = db.execute(
        'SELECT -rank, rowid FROM words WHERE words MATCH ? '
        'ORDER BY rank, rowid DESC LIMIT ?',
        [' OR '.join(f'"{word}"' for word in words) or '""', top_k],
    )
    scores, ids = np.array([*cursor]).reshape(-1, 2).T
    best = ranking.Best(1, top_k)
    best.add(slice(0, 1), scores[None].astype(np.float32), ids)
    return best.sorted()


def _blocks(
    cursor: sqlite3.Cursor, has_vector: bool = True
) -> Iterator[tuple[tuple[Any, ...], ...]]:
    """Yields the columns of BLOCK, or TEXTS, lines at a time."""
    while block := cursor.fetchmany(BLOCK if has_vector else TEXTS):
        yield tuple(zip(*block, strict=True))


def _stage(db: Db, texts: Iterable[Document], about: About) -> None:
    """Fills the tables `sources` and `staged`."""
    names = ['model', 'vectors', 'similarity']
    names += ['critic'] * (not _critic(about).has_vector)
    basis = repr([about[x] for x in names])
    with db:
        db.execute('BEGIN')
        for document in progress.bar(texts, 'reading', unit=' documents'):
            source = tables.valid(document.source)
            db.execute('INSERT OR IGNORE INTO sources VALUES (?)', [source])
            for place, text in enumerate(passages(document)):
                text = tables.valid(text)
                digest = hashlib.blake2b(f'{basis} {text}'.encode()).digest()
                db.execute('INSERT OR IGNORE INTO staged VALUES (?, ?, ?, ?)',
                           [source, place, digest[:16], text])  # fmt: skip


def _encode(db: Db, embed: Encoder | None, about: About) -> None:
    """Commits vectors of the texts in `staged` without one, by blocks."""
    db.execute(LACKING)
    [(total,)] = db.execute('SELECT count(*) FROM lacking')
    cursor = db.execute(
        'SELECT digest, text FROM lacking JOIN staged ON staged.rowid = '
        'lacking.staged ORDER BY staged.rowid'
    )
    coder = _codes(db, about) or about['vectors']
    if isinstance(coder, Residual):
        # Nearly every passage has a vector at least.
        fit = centroids_of(min(total, FITTED))
        if fit > 2 * len(coder.centroids):
            print(
                f'{about["corpus"]}: codes of {len(coder.centroids):,} '
                'centroids were fitted to the first passages, and are coarse '
                f'for {total:,} new ones; delete the index and make it again, '
                'which fits finer ones',
                file=sys.stderr,
            )
    if coder == RESIDUAL and total:
        sample = db.execute(
            'SELECT text FROM lacking JOIN staged ON staged.rowid = '
            'lacking.staged WHERE lacking.rowid % ? = 0',
            [-(-total // FITTED)],
        )
        texts = [text for (text,) in sample]
        vectors = embed(texts, 'passage').vectors
        if not len(vectors):
            raise errors.UsageError(
                'nothing_to_fit',
                f'--vectors={RESIDUAL} is fitted to passages, and of '
                f'{len(texts):,} none has a token that the model compares; '
                'choose other passages, or --vectors=int8',
            )
        coder = Residual.fit(vectors)
        row = about['model'], coder.to_bytes()
        db.execute('INSERT INTO codes VALUES (?, ?)', row)
    with progress.bar(total=total, desc='encoding', unit=' passages') as bar:
        for digests, texts in _blocks(cursor, _critic(about).has_vector):
            vectors = embed(list(texts), 'passage')
            vectors = ranking.prepared(vectors, about['similarity'])
            codes = encoded(vectors, coder)
            with db:
                db.execute('BEGIN')
                db.executemany(
                    'INSERT INTO vectors (digest, code) VALUES (?, ?)',
                    zip(digests, codes, strict=True),
                )
            bar.update(len(texts))


def _write_faiss(db: Db, path: pathlib.Path, about: About) -> int:
    """Writes a file as `faiss.write_index`, by blocks; returns the bytes."""
    import faiss

    kind = about['vectors']
    [(count, *ends)] = db.execute(
        'SELECT count(*), min(id), max(id) FROM vectors'
    )
    sample_ids = json.dumps(np.linspace(*ends, SAMPLE, dtype=int).tolist())
    cursor = db.execute(f'SELECT code FROM vectors {_BY_ID}', [sample_ids])
    sample = decoded([*itertools.chain(*cursor)], kind)
    index = faiss.index_factory(
        sample.shape[1], f'IDMap,{KINDS[kind][0]}',
        faiss.METRIC_L2 if kind == 'binary' else faiss.METRIC_INNER_PRODUCT,
    )  # fmt: skip
    index.train(sample)
    flat = faiss.downcast_index(index.index)
    # The file of an index of one vector, with the number of all in its head,
    # ends in the size of the codes, the code, the number of ids, and the id.
    index.add_with_ids(sample[:1], np.zeros(1, np.int64))
    index.ntotal = flat.ntotal = count
    head = faiss.serialize_index(index).tobytes()[: -16 - flat.code_size]
    size = count * int.from_bytes(head[-8:], 'little')
    all_ids = array.array('q')
    with files.written(path) as partial, open(partial, 'wb') as file:
        file.write(head[:-8] + size.to_bytes(8, 'little'))
        cursor = db.execute('SELECT id, code FROM vectors ORDER BY id')
        for ids, codes in _blocks(cursor):
            file.write(flat.sa_encode(decoded(codes, kind)))
            all_ids.extend(ids)
        file.write(count.to_bytes(8, 'little') + all_ids.tobytes())
    return path.stat().st_size
