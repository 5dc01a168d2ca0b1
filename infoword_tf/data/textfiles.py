"""The corpora `text:GLOB` and `lines:GLOB`: your own text, of any size.

Plain text, or the same packed (readers.py). Of `text:` a line is a sentence
or a paragraph, and a blank line parts documents. Of `lines:` every line is a
document, blank ones too, so that each line end of a file becomes one piece:
what language models are measured on. Files are read in the order of their
names and never held in memory.
"""

import glob
import itertools
import math
import os
import pathlib
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

from infoword_tf.data import documents, readers
from infoword_tf.data.documents import Document

HELDOUT_IN = 100  # one document in so many is held out ...
MAX_HELDOUT = 2000  # ... and at most so many
LONGEST = 1 << 20  # bytes; a longer document goes on as the next one

_BREAK = re.compile(rb'\n[ \t\r]*\n')
_HEAD = 8192  # bytes of a file that are looked at when a corpus is opened


def find(pattern: str) -> list[pathlib.Path]:
    """The files that a pattern names, sorted.

    Args:
      pattern: as in a shell: `~`, `*`, `?`, `[...]`, and `**` for folders at
        any depth.

    Raises:
      ValueError: there is none.
    """
    names = glob.glob(os.path.expanduser(pattern), recursive=True)
    paths = sorted(pathlib.Path(n) for n in names if os.path.isfile(n))
    if not paths:
        raise ValueError(
            f'No file matches {pattern} (in {os.getcwd()}). Check the '
            'path, and quote the pattern so that the shell leaves it alone, as '
            "in 'text:DIR/**/*.txt'."
        )
    return paths


def check(paths: Iterable[pathlib.Path]) -> None:
    """Looks at each file's first bytes; ValueError: binary, or cut."""
    for path in paths:
        with readers.opened(path) as stream:
            head = stream.read(_HEAD)
            if b'\0' in head and head[:2] not in readers.UTF16:
                raise ValueError(
                    f'{path} looks binary: there is a NUL byte in its first '
                    f'{_HEAD} bytes. Expected plain text in UTF-8, or such '
                    'text as .gz or .zst; convert the file, or narrow the '
                    'pattern.'
                )


class Piece(NamedTuple):
    """Some documents of a file, one after the other.

    Attributes:
      path: the file.
      begin: offset of the first byte; 0 of files that are no plain UTF-8.
      end: offset of the one after the last; None: the end of the file.
      size: bytes, about.
    """

    path: pathlib.Path
    begin: int = 0
    end: int | None = None
    size: int = 0


def pieces(
    paths: Iterable[pathlib.Path], size: int, by_line: bool = False
) -> list[Piece]:
    """Files in pieces of about `size` bytes, each of whole documents.

    Pieces in order yield the documents of the files in order. A file is cut at
    blank lines (`by_line`: at any) that are found within 4 MB of where they are
    wanted, and no more of it is read; what is packed stays whole.
    """
    found = []
    for path in paths:
        cuts, wanted = [0], size
        total = path.stat().st_size
        if readers.is_plain(path):
            with open(path, 'rb') as file:
                while wanted < total:
                    cut = _cut(file, wanted, by_line)
                    if cut is not None and cut < total:
                        cuts.append(cut)
                    wanted = (cut or wanted) + size
        for begin, end in itertools.pairwise([*cuts, None]):
            last = total if end is None else end
            found.append(Piece(path, begin, end, last - begin))
    return found


def _cut(file: BinaryIO, place: int, by_line: bool) -> int | None:
    """Where the first document after a place begins."""
    file.seek(place)
    if by_line:
        while line := file.readline(LONGEST):
            if line.endswith(b'\n'):
                break
        return file.tell()
    rest, last = b'', place + 4 * LONGEST
    while place < last and (chunk := file.read(_HEAD)):
        rest += chunk
        if match := _BREAK.search(rest):
            return place + match.end()
        # A line of white space may go on in the next chunk.
        keep = len(rest) - len(rest.rstrip(b' \t\r\n'))
        place, rest = place + len(rest) - keep, rest[len(rest) - keep :]
    return None


class Files:
    """Files of `text:` or `lines:`; what a corpus asks of files of any kind.

    Attributes:
      kind: of the corpus.
      key: changes when other text is read of the same files.
      expected: what a file holds, for people.
    """

    expected = 'one sentence or paragraph a line'

    def __init__(self, kind: str):
        """Args: as of the attributes."""
        self.kind = self.key = kind
        self._is_told = False  # how many records have no text

    find, check = staticmethod(find), staticmethod(check)

    def pieces(self, paths: Sequence[pathlib.Path], size: int) -> list[Piece]:
        """See the function `pieces`."""
        return pieces(paths, size, self.kind == 'lines')

    def read_piece(self, piece: Piece) -> Generator[Document, None, int]:
        """The documents of a piece; returns how many records have no text.

        Raises:
          ValueError: it is not UTF-8, or cut.
        """
        path = piece.path
        lines = readers.lines(path, piece.begin, piece.end, cut=LONGEST)
        if self.kind == 'lines':
            for number, line in enumerate(lines, 1):
                sentences = tuple(documents.split_sentences(line))
                yield Document(sentences, f'{path}:{number}', len(line))
            return 0
        for number, sentences in gathered(lines):
            yield Document(sentences, f'{path}:{number}')
        return 0

    def read_pieces(
        self, pieces: Iterable[Piece]
    ) -> Generator[Document, None, int]:
        """As `read_piece`, one piece after the other."""
        lacking = 0
        for piece in pieces:
            lacking += yield from self.read_piece(piece)
        return lacking

    def read(
        self, paths: Sequence[pathlib.Path], pattern: str
    ) -> Iterator[Document]:
        """Yields the documents of the files in order.

        Says, the first time, how many records have no text.

        Raises:
          ValueError: as `read_piece`, or there is no document in any file.
        """
        is_empty, lacking = True, 0

        def documents_of_all() -> Iterator[Document]:
            nonlocal lacking
            lacking = yield from self.read_pieces(map(Piece, paths))

        for document in documents_of_all():
            is_empty = is_empty and not document.sentences
            yield document
        if is_empty:
            raise ValueError(
                f'There is no text in the {len(paths)} file(s) of {pattern} '
                f'({paths[0]} ...): they are empty or hold white space alone. '
                f'Expected {self.expected}.'
            )
        if lacking and not self._is_told:
            self._is_told = True
            print(
                f'{self.kind}:{pattern}: {lacking:,} record(s) without a text '
                'are left out',
                flush=True,
            )


class HeldoutRule(NamedTuple):
    """What is held out of a corpus.

    Attributes:
      lowest: the hash of the text that is held out; None: 1 document in 100
        by hash.
      is_alone: there is no other text; its last hundredth is held out.
    """

    lowest: int | None = None
    is_alone: bool = False

    def holds_out(self, document: Document) -> bool:
        """Whether a document is held out, or its end."""
        hashed = documents.text_hash(document.text)
        if self.lowest is None:
            return hashed % HELDOUT_IN == 0
        return hashed == self.lowest

    def parted(
        self, document: Document
    ) -> tuple[Document | None, Document | None]:
        """What of a document is trained on, and what is held out.

        Of the only one there is its last hundredth, a sentence at least.
        """
        if not self.holds_out(document):
            return document, None
        if not self.is_alone:
            return None, document
        sentences, source, _ = document
        cut = len(sentences) - max(1, len(sentences) // HELDOUT_IN)
        return Document(sentences[:cut], source), Document(
            sentences[cut:], source
        )


BY_HASH = HeldoutRule()


def split(corpus: Iterable[Document], pattern: str) -> HeldoutRule:
    """Decides what is held out, whatever the order of the documents.

    1 document in 100 by the hash of its text. Where that leaves one of the
    two parts empty, the document of the lowest hash, and of a single one its
    end. It reads on until both parts have a document: of all but small
    corpora the first few hundred.

    Raises:
      ValueError: there is one document, of one sentence.
    """
    buckets, lowest, highest, sentences = set(), math.inf, -1, 0
    for document in corpus:
        found = documents.text_hash(document.text)
        buckets.add(found % HELDOUT_IN == 0)
        if len(buckets) == 2:
            return BY_HASH
        lowest, highest = min(lowest, found), max(highest, found)
        sentences = len(document.sentences)
    if lowest < highest:
        return HeldoutRule(lowest)
    if sentences == 1:
        raise ValueError(
            f'{pattern} is one sentence, of which nothing can be held out: '
            'give more text, or name held-out files with --heldout=GLOB'
        )
    return HeldoutRule(lowest, is_alone=True)


def train(
    corpus: Iterable[Document], how: HeldoutRule = BY_HASH
) -> Iterator[Document]:
    """Yields the documents that are not held out.

    Not those of the held-out hash beyond the limit: a copy of a held-out
    document may be among them.
    """
    yield from (
        trained for x in corpus if (trained := how.parted(x)[0]) is not None
    )


def heldout(
    corpus: Iterable[Document],
    how: HeldoutRule = BY_HASH,
    limit: int = MAX_HELDOUT,
) -> Iterator[Document]:
    """Yields the documents that are held out, the first `limit`."""
    found = (held for x in corpus if (held := how.parted(x)[1]) is not None)
    # Stops at the limit: there may be gigabytes to come.
    return itertools.islice(found, limit)


def gathered(
    lines: Iterable[str], whole: bool = False
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yields documents: the number of a first line, from 1, and sentences.

    Args:
      whole: blank lines part no documents.
    """
    sentences: list[str] = []
    first = size = 0  # line number and bytes of the document that is read
    for number, line in enumerate(lines, 1):
        found = documents.split_sentences(line)
        if sentences and (size > LONGEST or not (found or whole)):
            yield first, tuple(sentences)
            sentences = []
        if found and not sentences:
            first, size = number, 0
        sentences += found
        size += len(line)
    if sentences:
        yield first, tuple(sentences)
