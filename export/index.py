"""An index: passages and their vectors on disk, searched as they lie there.

    index = Index.open('models/books/search')
    scores, numbers = index.search(embed(['who hides it'], 'query'), 5)
    index.passage(numbers[0, 0]).text
    index = index.update(documents, embed)

A folder holds `key.json`, which says what was indexed, by which model and how,
and a folder of the files that it names:

    passages.jsonl  ends.npy      texts and sources; where each line ends
    digests.npy                   of the texts
    vectors.npy                   or codes.npy, steps.npy, bits.npy, see
                                  evaluation/quantized.py
    words/                        what BM25 counted, once it was asked

Files are never changed. An index is made beside the one that it replaces, in
blocks, and `key.json` is replaced last: whoever was stopped has lost nothing.
A passage whose text has a vector of the same model in the folder, also of one
that was stopped, is not encoded again.

Glossary of shapes: Q queries, K best, m passages of a block, D width.
"""

import contextlib
import functools
import hashlib
import itertools
import json
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from infoword_tf import commands, files
from infoword_tf.evaluation import ranking
from infoword_tf.evaluation.quantized import KINDS, Float32, products
from tasks import bm25, retrieval
from tasks.vectors import VectorFile

FORMAT = 2
KEY = 'key.json'
PASSAGES, ENDS, DIGESTS = 'passages.jsonl', 'ends.npy', 'digests.npy'
PASSAGE_WORDS = 100  # a passage is whole sentences of about so many words
BLOCK = 4096  # passages sorted by length, and compared, at once
# What `binary` orders anew, for each answer.
OVERSAMPLE = 8
# What decides a vector besides its text.
_BASIS = ('model', 'vectors', 'similarity')
_DATA = re.compile(r'data-(\d+)')
_OF_FORMAT_1 = ('vectors.npy', 'offsets.npy', PASSAGES, 'words')


class Passage(NamedTuple):
    """A piece of a document.

    Attributes:
        text: its sentences.
        source: where the document is from, for people; its id.
    """

    text: str
    source: str


def passages(documents: Iterable[Any]) -> Iterator[Passage]:
    """Documents in pieces of whole sentences, about PASSAGE_WORDS each."""
    for document in documents:
        piece: list[str] = []
        words = 0
        for sentence in document.sentences:
            size = len(sentence.split())
            if piece and words + size > PASSAGE_WORDS:
                yield Passage(' '.join(piece), document.source)
                piece, words = [], 0
            piece.append(sentence)
            words += size
        if piece:
            yield Passage(' '.join(piece), document.source)


# ---------------------------------------------------------------------- search


class Index:
    """Passages of documents and their vectors, on disk."""

    def __init__(self, folder: pathlib.Path, key: Mapping[str, Any]):
        """Opens an index; args: its folder, and what `read_key` gave.

        Raises:
            commands.UsageError: a file is not there or not whole.
        """
        self.folder, self.key = folder, dict(key)
        self.kind = KINDS[key['vectors']]
        self.similarity: str = key['similarity']
        self._data = folder / key['data']
        for name, size in key['files'].items():
            path = self._data / name
            found = path.stat().st_size if path.is_file() else 0
            if found != size:
                raise commands.UsageError(
                    f'{path} has {found:,} bytes instead of {size:,}: the '
                    f'index is cut; delete {folder}, and make it again'
                )
        self._arrays = _arrays(self._data, self.kind)
        self._ends = np.load(self._data / ENDS, mmap_mode='r')[:, 0]
        self._file = open(self._data / PASSAGES, 'rb')
        self._cut: Callable[[np.ndarray], np.ndarray] | None = None

    @classmethod
    def open(cls, folder: pathlib.Path, model: str | None = None) -> Self:
        """Opens what a folder holds.

        Args:
            folder: of the index.
            model: `digest` of the model that asks; None: any.

        Raises:
            commands.UsageError: there is none, another model made it, or it
                is not whole.
        """
        key = read_key(folder)
        if key is None:
            raise commands.UsageError(f'{folder} is no index: it has no {KEY}')
        check_format(folder, key)
        if model is not None and key.get('model') != model:
            raise commands.UsageError(
                f'{folder} is an index of another model, whose vectors mean '
                'nothing to this one: name that model with --model, or '
                'another folder with --index'
            )
        return cls(folder, key)

    def __len__(self) -> int:
        """How many passages there are."""
        return len(self._ends)

    @property
    def width(self) -> int:
        """D."""
        return self.key['width']

    @property
    def size(self) -> int:
        """Bytes of all arrays of vectors."""
        return sum(self.key['files'][f'{name}.npy'] for name in self._arrays)

    @property
    def scanned(self) -> int:
        """Bytes that every search reads."""
        return sum(
            self.key['files'][f'{name}.npy'] for name in self.kind.scanned
        )

    def cut(self, dims: int, normalize: bool) -> None:
        """Compares first numbers alone from now on; as `first_numbers`.

        Raises:
            ValueError: there are not so many.
        """
        retrieval.check_dims(dims, self.width)
        self._cut = functools.partial(
            retrieval.first_numbers, dims=dims, normalize=normalize
        )

    def passage(self, number: int) -> Passage:
        """One passage, read from disk."""
        begin = int(self._ends[number - 1]) if number else 0
        line = os.pread(
            self._file.fileno(), int(self._ends[number]) - begin, begin
        )
        return Passage(**json.loads(line))

    def passages(self) -> Iterator[Passage]:
        """All of them in order, read as a stream."""
        with open(self._data / PASSAGES, 'rb') as file:
            for line in file:
                yield Passage(**json.loads(line))

    def vectors(self, numbers: np.ndarray) -> np.ndarray:
        """Those of some passages [n], decoded: [n, D] float32."""
        return self._vectors({
            name: self._arrays[name].take(numbers)
            for name in self.kind.decoded
        })  # fmt: skip

    def search(
        self, queries: Any, top_k: int, oversample: int = OVERSAMPLE
    ) -> tuple[Any, Any]:
        """The K best of [Q, D]: scores and numbers [Q, K], see `ranking`.

        oversample: of `binary`, so many times K are compared in full.
        """
        if self._cut is not None:
            queries = self._cut(queries)
        queries = ranking.prepared(queries, self.similarity)
        if self.key['vectors'] == 'binary':
            _, found = ranking.scan(
                len(queries),
                self._blocks(lambda arrays: self.kind.scorer(queries, arrays)),
                min(top_k * oversample, len(self)),
            )
            return self._rescored(queries, found, top_k)

        def scorer(arrays: Mapping[str, np.ndarray]) -> ranking.Scorer:
            if self._cut is None:
                return self.kind.scorer(queries, arrays)
            vectors = self._vectors(arrays)
            return lambda rows: products(queries[rows], vectors)

        return ranking.scan(len(queries), self._blocks(scorer), top_k)

    def _blocks(
        self, scorer: Callable[[Mapping[str, np.ndarray]], ranking.Scorer]
    ) -> Iterator[tuple[np.ndarray, ranking.Scorer]]:
        """Numbers of passages and what scores them, a block at a time."""
        names = self.kind.scanned
        # Of few bytes more at once: a block costs time of its own.
        size = 4 * BLOCK if names == ('bits',) else BLOCK
        each = (self._arrays[name].blocks(size) for name in names)
        begin = 0
        for block in zip(*each, strict=True):
            numbers = begin + np.arange(len(block[0]))
            yield numbers, scorer(dict(zip(names, block, strict=True)))
            begin += len(numbers)

    def _vectors(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """[m, D] whose products with queries are similarities."""
        vectors = self.kind.decode(arrays)
        if self._cut is not None:
            vectors = ranking.prepared(self._cut(vectors), self.similarity)
        return vectors

    def _rescored(
        self, queries: np.ndarray, found: np.ndarray, top_k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The K best of those that each query has found."""
        best = ranking.Best(len(queries), top_k)
        for row, numbers in enumerate(found):
            numbers = np.sort(numbers[numbers >= 0])
            vectors = self.vectors(numbers)
            rows = slice(row, row + 1)
            best.add(rows, products(queries[rows], vectors), numbers)
        return best.sorted()

    @functools.cached_property
    def words(self) -> bm25.Bm25:
        """The words of the passages, counted at the first use, and kept."""
        folder = self._data / 'words'
        if folder.is_dir():
            return bm25.Bm25.load(folder)
        index = bm25.Bm25(passage.text for passage in self.passages())
        with tempfile.TemporaryDirectory(dir=self._data) as partial:
            index.save(pathlib.Path(partial) / 'words')
            with contextlib.suppress(OSError):  # another process was first
                os.rename(f'{partial}/words', folder)
        return index

    def update(
        self, documents: Callable[[], Iterable[Any]], embed: retrieval.Encoder
    ) -> Self:
        """Adds documents, and replaces those of the same source.

        A document whose passages are the same stays as and where it is. Of
        one that differs all passages leave, and the new ones come last, where
        only those are encoded whose text is new. One without text leaves.

        Args:
            documents: begins a new pass over them; they are read twice.
            embed: as of `retrieval.exported`, of the model of the index.

        Returns:
            The new index; this one can be searched as long as it is open.

        Raises:
            ValueError: a source occurs twice among the documents.
            commands.UsageError: another process writes to the folder, or
                nothing would be left.
        """
        known: dict[str, bytes] = {}
        for passage in self.passages():
            _count(known, passage)
        given: dict[str, bytes] = {}
        for document in documents():
            if document.source in given:
                raise ValueError(
                    f'{document.source} occurs twice among the documents; '
                    'each must have a name of its own'
                )
            given[document.source] = b''
            for passage in passages([document]):
                _count(given, passage)
        changed = {
            source
            for source, digest in given.items()
            if known.get(source, b'') != digest
        }
        del known, given
        if not changed:
            return self
        kept = (p for p in self.passages() if p.source not in changed)
        new = passages(d for d in documents() if d.source in changed)
        key = {k: v for k, v in self.key.items() if k not in _WRITTEN}
        key['updates'] = key.get('updates', 0) + 1
        return make(self.folder, key, itertools.chain(kept, new), embed)


def _count(digests: dict[str, bytes], passage: Passage) -> None:
    """Adds a passage to what tells the text of its document from others."""
    before = digests.get(passage.source, b'')
    digests[passage.source] = _digest(before.hex() + passage.text)


def _digest(text: str) -> bytes:
    # Half characters of JSON have no UTF-8.
    text = text.encode('utf-8', 'surrogatepass')
    return hashlib.blake2b(text, digest_size=16).digest()


def _arrays(folder: pathlib.Path, kind: Float32) -> dict[str, VectorFile]:
    return {
        name: VectorFile(folder / f'{name}.npy', part.dtype)
        for name, part in kind.parts.items()
    }


# ------------------------------------------------------------------------- key


_WRITTEN = ('format', 'data', 'rows', 'width', 'files')  # by `make` itself


def read_key(folder: pathlib.Path) -> dict[str, Any] | None:
    """What the index of a folder says of itself; None: it has none.

    Raises:
        commands.UsageError: that cannot be read, or the folder holds what is
            no index.
    """
    path = folder / KEY
    if path.is_file():
        try:
            key = json.loads(path.read_text())
            if not isinstance(key, dict):
                raise ValueError('no JSON object')
        except ValueError as error:
            raise commands.UsageError(
                f'{path} is not of an index ({error}); delete {folder}, and '
                'make it again'
            ) from None
        return key
    if folder.exists() and (
        not folder.is_dir() or any(not _ours(p) for p in folder.iterdir())
    ):
        raise commands.UsageError(
            f'{folder} holds other things than an index; name a folder that '
            'is empty, or not there'
        )
    return None


def check_format(folder: pathlib.Path, key: Mapping[str, Any]) -> None:
    """Complains of an index that another version of this project made."""
    if key.get('format') != FORMAT or key.get('vectors') not in KINDS:
        raise commands.UsageError(
            f'{folder} is an index of another version of this project; '
            'delete it, and make it again'
        )


def _ours(path: pathlib.Path) -> bool:
    """Whether something in a folder is of an index that was never finished."""
    return path.name.startswith('.') or bool(_DATA.fullmatch(path.name))


def _number(path: pathlib.Path) -> int:
    """Of a folder of files."""
    return int(_DATA.fullmatch(path.name)[1])


# ------------------------------------------------------------------------ made


class _Kept:
    """Vectors of texts that a folder of an index has, perhaps half made."""

    def __init__(self, folder: pathlib.Path, kind: Float32):
        self._digests = VectorFile(folder / DIGESTS, np.uint64)
        self.arrays = _arrays(folder, kind)
        rows = min(self._digests.rows, *(a.rows for a in self.arrays.values()))
        first = np.empty(rows, np.uint64)
        end = 0
        for block in self._digests.blocks(BLOCK):
            first[end : end + len(block)] = block[: rows - end, 0]
            end = min(end + len(block), rows)
        self._order = np.argsort(first, kind='stable')
        self._sorted = first[self._order]

    def find(self, digests: np.ndarray) -> np.ndarray:
        """Rows of [m, 2] digests, -1 where there is none: [m] int64."""
        found = np.full(len(digests), -1)
        places = np.searchsorted(self._sorted, digests[:, 0])
        maybe = np.nonzero(places < len(self._sorted))[0]
        rows = self._order[places[maybe]]
        if len(rows):
            same = (self._digests.take(rows) == digests[maybe]).all(axis=1)
            found[maybe[same]] = rows[same]
        return found


def make(
    folder: pathlib.Path,
    key: Mapping[str, Any],
    found: Iterable[Passage],
    embed: retrieval.Encoder,
) -> Index:
    """Makes an index, and only then lets go of the one that was there.

    Args:
        folder: where; it may hold an index, or what is left of one.
        key: what it is known by; its `model`, `vectors` (of KINDS) and
            `similarity` decide which vectors can be taken from there.
        found: all passages.
        embed: as of `retrieval.exported`.

    Raises:
        commands.UsageError: there are no passages, or another process writes
            to the folder.
        ValueError: the encoder made a vector that is not finite.
    """
    new = not folder.exists()
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(files.locked(folder))
        except RuntimeError as error:
            raise commands.UsageError(
                f'another process writes to {folder}; wait for it, or name '
                'another folder with --index'
            ) from error
        old = sorted(
            (p for p in folder.iterdir() if _DATA.fullmatch(p.name)),
            key=_number,
        )
        data = folder / f'data-{_number(old[-1]) + 1 if old else 1}'
        basis = {name: key.get(name) for name in _BASIS}
        kind = KINDS[key['vectors']]
        kept = [
            _Kept(path, kind)
            for path in reversed(old)
            if (path / KEY).is_file()
            and json.loads((path / KEY).read_text()) == basis
        ]
        data.mkdir()
        files.write_json(data / KEY, basis)
        rows, width = _write(data, kind, key['similarity'], found, embed, kept)
        if not rows:
            shutil.rmtree(data)
            if new:
                shutil.rmtree(folder)
            raise commands.UsageError(
                f'{key.get("corpus")} has no text to search'
            )
        names = (PASSAGES, ENDS, DIGESTS, *(f'{n}.npy' for n in kind.parts))
        written = {
            'format': FORMAT,
            'data': data.name,
            'rows': rows,
            'width': width,
            'files': {name: (data / name).stat().st_size for name in names},
        }
        files.write_json(folder / KEY, {**key, **written})
        for path in (*old, *(folder / name for name in _OF_FORMAT_1)):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    return Index(folder, read_key(folder))


def _write(
    data: pathlib.Path,
    kind: Float32,
    similarity: str,
    found: Iterable[Passage],
    embed: retrieval.Encoder,
    kept: list[_Kept],
) -> tuple[int, int]:
    """Writes all files of an index in blocks; returns rows and D."""
    import tqdm

    arrays = _arrays(data, kind)
    digests = VectorFile(data / DIGESTS, np.uint64)
    ends = VectorFile(data / ENDS, np.int64)
    end = encoded = width = 0
    found = iter(found)
    with (
        open(data / PASSAGES, 'wb') as file,
        tqdm.tqdm(desc='indexing', unit=' passages') as bar,
    ):
        while block := list(itertools.islice(found, BLOCK)):
            lines = [json.dumps(p._asdict()).encode() + b'\n' for p in block]
            file.write(b''.join(lines))
            sizes = np.cumsum([len(line) for line in lines])
            own = np.frombuffer(
                b''.join(_digest(p.text) for p in block), np.uint64
            ).reshape(-1, 2)
            parts, count = _encoded(block, own, kind, similarity, embed, kept)
            for name, array in arrays.items():
                array.append(parts[name])
            digests.append(own)
            ends.append(end + sizes[:, None])
            end += int(sizes[-1])
            encoded += count
            bar.set_postfix(encoded=encoded, refresh=False)
            bar.update(len(block))
        file.flush()
        os.fsync(file.fileno())
    if ends.rows:
        width = _width(kind, arrays)
    return ends.rows, width


def _encoded(
    block: list[Passage],
    digests: np.ndarray,
    kind: Float32,
    similarity: str,
    embed: retrieval.Encoder,
    kept: list[_Kept],
) -> tuple[dict[str, np.ndarray], int]:
    """Arrays of a block, and how many of its texts were encoded for them.

    A text that is kept is taken from there, and one that occurs several times
    is encoded once.
    """
    parts: dict[str, np.ndarray] = {}

    def put(places: np.ndarray, values: Mapping[str, np.ndarray]) -> None:
        for name, value in values.items():
            shape = [len(block), value.shape[1]]
            whole = parts.setdefault(name, np.empty(shape, value.dtype))
            whole[places] = value

    lacking = np.arange(len(block))
    for source in kept:
        rows = source.find(digests[lacking])
        known = rows >= 0
        if known.any():
            put(lacking[known], {
                name: array.take(rows[known])
                for name, array in source.arrays.items()
            })  # fmt: skip
        lacking = lacking[~known]
    _, firsts, copies = np.unique(
        digests[lacking], axis=0, return_index=True, return_inverse=True
    )
    if len(firsts):
        order = np.argsort(firsts)  # of the text, not of digests
        texts = [block[i].text for i in lacking[firsts[order]]]
        vectors = ranking.prepared(embed(texts, 'passage'), similarity)
        places = np.argsort(order)[copies.ravel()]
        encoded = kind.encode(vectors)
        put(lacking, {name: v[places] for name, v in encoded.items()})
    return parts, len(firsts)


def _width(kind: Float32, arrays: Mapping[str, VectorFile]) -> int:
    """D."""
    first = {name: arrays[name].take(np.arange(1)) for name in kind.decoded}
    return kind.decode(first).shape[1]
