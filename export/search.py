"""Searches a corpus by the meaning of a question, with an exported model.

    python -m export.search --model=DIR/1 --corpus=pydocs "read a csv file"
    python -m export.search --model=DIR/1 --corpus='text:notes/*.txt' < queries
    python -m export.search --model=DIR/1 --hybrid "read a csv file"

Without a query on the command line every line of standard input is one. The
index lies beside the model, in DIR/search/; it is made at the first search
and again whenever the corpus or the model has changed. With --hybrid vectors
and BM25 search both, and their scores are summed, see `ranking.merge`.

Glossary of shapes: n passages, K answers, D width.
"""

import array
import contextlib
import dataclasses
import functools
import itertools
import json
import os
import pathlib
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import commands
from infoword_tf.choices import flag
from infoword_tf.config import read_exported
from infoword_tf.evaluation import ranking
from tasks import bm25, retrieval
from tasks.vectors import VectorFile, digest

PASSAGE_WORDS = 100  # a passage is whole sentences of about so many words
BATCH_SIZE = 64  # passages embedded at once, of like length
_BLOCK = 4096  # passages sorted by length, and compared, at once


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    model: str | None = flag(None, 'An exported model, DIR/1.')
    corpus: str = flag(
        'pydocs', 'What to search: pydocs, text:GLOB or '
        'tfds:NAME[/CONFIG][:FEATURE]; all of it.')
    top_k: int = flag(5, 'Answers to a query.', at_least=1)
    hybrid: bool = flag(
        False, 'Search by words (BM25) as well, and add both scores.')
    dims: int | None = flag(
        None, 'Compare the first so many numbers of vectors alone.',
        at_least=1)


class Passage(NamedTuple):
    """A piece of a document.

    Attributes:
        text: its sentences.
        source: where the document is from, for people.
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


class Index:
    """Passages of a corpus and their vectors, on disk."""

    def __init__(self, folder: pathlib.Path):
        """Opens an index; args: its folder."""
        self.folder = folder
        self.vectors = np.load(folder / 'vectors.npy', mmap_mode='r')
        self.offsets = np.load(folder / 'offsets.npy', mmap_mode='r')
        self._file = open(folder / 'passages.jsonl', 'rb')
        self._cut: Callable[[np.ndarray], np.ndarray] = np.asarray

    def cut(self, dims: int, normalize: bool) -> None:
        """Compares first numbers alone from now on; as `first_numbers`.

        Raises:
            ValueError: there are not so many.
        """
        retrieval.check_dims(dims, self.vectors.shape[1])
        self._cut = functools.partial(
            retrieval.first_numbers, dims=dims, normalize=normalize
        )

    def passage(self, number: int) -> Passage:
        """One passage, read from disk."""
        self._file.seek(int(self.offsets[number]))
        return Passage(**json.loads(self._file.readline()))

    def search(
        self, queries: Any, top_k: int, similarity: str
    ) -> tuple[Any, Any]:
        """The K best of [Q, D]: scores and numbers [Q, K], see `ranking`."""
        blocks = (
            (np.arange(begin, min(begin + _BLOCK, len(self.vectors))),
             self._cut(self.vectors[begin : begin + _BLOCK]))
            for begin in range(0, len(self.vectors), _BLOCK)
        )  # fmt: skip
        return ranking.search(self._cut(queries), blocks, top_k, similarity)

    @functools.cached_property
    def words(self) -> bm25.Bm25:
        """The words of the passages, counted at the first use, and kept."""
        folder = self.folder / 'words'
        if folder.is_dir():
            return bm25.Bm25.load(folder)
        with open(self.folder / 'passages.jsonl', 'rb') as file:
            index = bm25.Bm25(json.loads(line)['text'] for line in file)
        with tempfile.TemporaryDirectory(dir=self.folder) as partial:
            index.save(pathlib.Path(partial) / 'words')
            with contextlib.suppress(OSError):  # another process was first
                os.rename(f'{partial}/words', folder)
        return index


def open_index(
    folder: pathlib.Path,
    key: dict[str, str],
    documents: Callable[[], Iterable[Any]],
    embed: retrieval.Encoder,
) -> Index:
    """Opens the index of a corpus, which is made anew if its key differs.

    The key is what it depends on; `embed` is as of `retrieval.exported`.

    Raises:
        commands.UsageError: the corpus is empty.
    """
    import tqdm

    meta = folder / 'key.json'
    if meta.is_file() and json.loads(meta.read_text()) == key:
        return Index(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = pathlib.Path(
        tempfile.mkdtemp(prefix=folder.name + '.', dir=folder.parent)
    )
    try:
        vectors = VectorFile(partial / 'vectors.npy')
        offsets, end = array.array('q'), 0
        with (
            open(partial / 'passages.jsonl', 'wb') as file,
            tqdm.tqdm(desc='indexing', unit=' passages') as bar,
        ):
            found = passages(documents())
            while block := list(itertools.islice(found, _BLOCK)):
                for passage in block:
                    line = json.dumps(passage._asdict()).encode() + b'\n'
                    offsets.append(end)
                    end += file.write(line)
                vectors.append(embed([p.text for p in block], 'passage'))
                bar.update(len(block))
        if not vectors.rows:
            raise commands.UsageError(
                f'{key["corpus"]} has no text to search'
            )
        np.save(partial / 'offsets.npy', np.array(offsets, np.int64))
        (partial / 'key.json').write_text(json.dumps(key, indent=2) + '\n')
        partial.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Index(folder)


def answer(
    query: str,
    index: Index,
    embed: retrieval.Encoder,
    similarity: str,
    top_k: int,
    hybrid: bool = False,
) -> str:
    """What is printed for a query; hybrid: vectors and words search."""
    if not query.strip():
        return 'an empty query has no answer'
    depth = ranking.MERGED if hybrid else top_k
    scores, numbers = index.search(embed([query], 'query'), depth, similarity)
    if hybrid:
        by_words = index.words.search([query], depth)
        scores, numbers = ranking.merge([(scores, numbers), by_words], top_k)
    lines = [f'"{query}"']
    for score, number in zip(scores[0], numbers[0], strict=True):
        if number < 0:
            break
        passage = index.passage(number)
        lines.append(f'  {score:.3f}  {passage.source}')
        lines.append(
            textwrap.indent(
                textwrap.shorten(passage.text, 230, placeholder=' ...'),
                '         ',
            )
        )
    return '\n'.join(lines)


@commands.takes(Choices)
def run(
    queries: Sequence[str], given: Choices, chosen: Mapping[str, Any]
) -> None:
    """Answers queries, those of standard input where there are none."""
    from infoword_tf.data import corpora

    commands.require(vars(given), model='an exported model, DIR/1')
    path = pathlib.Path(given.model)
    corpus = corpora.open_corpus(given.corpus)
    embed, similarity = retrieval.exported(path, BATCH_SIZE)

    def documents() -> Iterator[Any]:
        yield from corpus.train()
        yield from corpus.heldout()

    key = {
        'corpus': given.corpus,
        'fingerprint': corpus.fingerprint,
        'model': digest(path),
        'passage_words': str(PASSAGE_WORDS),
    }
    index = open_index(path.parent / 'search', key, documents, embed)
    if given.dims is not None:
        index.cut(given.dims, read_exported(path)[0].normalize)
    for query in queries or map(str.strip, sys.stdin):
        found = answer(
            query, index, embed, similarity, given.top_k, given.hybrid
        )
        print(found, flush=True)


if __name__ == '__main__':
    commands.start(run, 'queries', 'a finished index is kept')
