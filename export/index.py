"""An index of passages: a folder of files that any program reads.

    index.json     the model, and of each passage its document and its text
    texts.jsonl    texts, one a line
    vectors.npy    what the model makes of each text, [n, D]; of the critics
                   `late` and `lexical` of each token or term of all texts, of
                   which vectors-sizes.npy says how many a text has
    words-N/       words of all passages, as bm25s reads them

Texts and vectors are appended block by block, then index.json says which texts
are passages. So a text is encoded once, and after a kill the old index stands.
"""

import functools
import json
import pathlib
import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import commands, errors, files
from infoword_tf.critics.texts import Texts
from infoword_tf.data import tables
from infoword_tf.data.documents import Document, passages
from infoword_tf.evaluation import ranking
from infoword_tf.evaluation.bm25 import Bm25
from infoword_tf.evaluation.stages import Encoder
from infoword_tf.evaluation.vectors import EncodedTexts

About = Mapping[str, Any]  # content of index.json
ABOUT = 'index.json'
MODEL = 'model', 'critic'  # entries that decide the vectors


class Passage(NamedTuple):
    """A passage of a document, and the name of the document."""

    text: str
    source: str


class Index:
    """Passages of a folder at the time of opening or writing.

    Attributes:
        folder: folder of the files, there or to be made.
        about: content of index.json; empty: the folder has no index yet.
    """

    def __init__(self, folder: pathlib.Path):
        """Opens the folder.

        Raises:
            errors.UsageError: it holds something else, or is damaged.
        """
        self.folder = folder
        self.about: About = {}
        if folder.is_file() or any(folder.glob('[!.]*')):
            try:
                self._open(json.loads((folder / ABOUT).read_text()))
            except (OSError, ValueError, LookupError) as error:
                raise errors.UsageError(
                    'unreadable_index',
                    f'{folder} is no index of this version ({error}): name '
                    'another folder, or delete that one and make it again',
                ) from error

    def _open(self, about: About) -> None:
        """Reads the files that `about` describes."""
        self._encoded = EncodedTexts(self.folder, about['critic'])
        self._places = np.array(about['texts'], np.int64)
        if len(self._places):
            self._encoded.texts[self._places.max()]  # raises: texts are missing
        self.about = about
        vars(self).pop('_words', None)  # those of the index before

    def __len__(self) -> int:
        """Returns the number of passages."""
        return len(self.about.get('texts', ()))

    def write(
        self, documents: Iterable[Document], encode: Encoder, key: About
    ) -> None:
        """Makes the index of documents, in place of an old one.

        Args:
            documents: read once as a stream.
            encode: makes vectors of texts.
            key: entries of `about` from now on, with those of MODEL.

        Raises:
            errors.UsageError: the documents have no passage.
            RuntimeError: another process writes to the folder.
            ValueError: the encoder made a vector that is not finite.
        """
        with files.locked(self.folder):
            if any(self.about.get(name) != key[name] for name in MODEL):
                for path in self.folder.glob('[!.]*'):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                self._save({name: key[name] for name in MODEL}, {})
            place = {text: i for i, text in enumerate(self._encoded.texts)}
            rows: dict[tuple[str, int, int], None] = {}  # an ordered set
            reading = commands.bar(documents, 'reading', unit=' documents')
            for document in reading:
                source = tables.valid(document.source)
                for i, text in enumerate(map(tables.valid, passages(document))):
                    rows[source, i, place.setdefault(text, len(place))] = None
            if not rows:
                raise errors.UsageError(
                    'no_text_to_search',
                    f'{key.get("corpus")} has no text to search',
                )
            self._encoded.add([*place][len(self._encoded.texts) :], encode)
            self._save(key, rows)

    def _save(self, key: About, rows: Iterable[tuple[str, int, int]]) -> None:
        """Writes words and index.json of (source, place, text), and opens."""
        number = self.about.get('number', 0) + 1
        sources, texts = [row[0] for row in rows], [row[2] for row in rows]
        about = {**key, 'number': number, 'sources': sources, 'texts': texts}
        if texts:
            words = Bm25(self._encoded.texts[i] for i in texts)
            words.save(self.folder / f'words-{number}')
        with files.written(self.folder / ABOUT) as partial:
            partial.write_text(json.dumps(about))
        self._open(about)
        for folder in self.folder.glob('words-*'):
            if folder.name != f'words-{number}':
                shutil.rmtree(folder)

    def find(
        self,
        query: str,
        vector: Texts,
        prepare: Callable[[Texts], Texts],
        top_k: int,
        words: float = 0.0,
        first: int | None = None,
    ) -> list[tuple[float, Passage]]:
        """Finds the best passages, with scores.

        Args:
            query: its words are searched by BM25.
            vector: query as a text of the critic; None with words=1.
            prepare: makes texts of the critic such whose products are scores.
            top_k: number of passages, at most.
            words: share of BM25 in the score. 0: vectors alone, with their
                scores; 1: words alone. Between them, scores are sums of
                standardised ones, see `ranking.hybrid`.
            first: number of passages, the best by BM25, that are compared by
                vectors, or `top_k`, if these are more; None: all.
        """
        depth = max(ranking.MERGED, top_k) if 0 < words < 1 else top_k
        if words > 0:
            best = by_words = self._words.search([query], depth)
        if words < 1:
            numbers = np.arange(len(self))
            if first is not None:
                _, [numbers] = self._words.search([query], max(first, top_k))
                numbers = numbers[numbers >= 0]
            texts = self._encoded.read(self._places[numbers], vector)
            block = numbers, prepare(texts)
            best = ranking.search(prepare(vector), [block], depth, 'dot')
        if 0 < words < 1:
            best = ranking.hybrid(best, by_words, top_k, words)
        [scores], [numbers] = best
        texts, sources = self._encoded.texts, self.about['sources']
        return [
            (score, Passage(texts[self._places[i]], sources[i]))
            for score, i in zip(scores.tolist(), numbers.tolist(), strict=True)
            if i >= 0
        ]

    @functools.cached_property
    def _words(self) -> Bm25:
        """Words of all passages, read at the first query by words."""
        return Bm25.load(self.folder / f'words-{self.about["number"]}')
