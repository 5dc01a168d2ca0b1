"""The corpora `text:GLOB` and `lines:GLOB`: your own text, of any size.

Plain UTF-8, or the same compressed as `.gz`. Of `text:` a line is a sentence
or a paragraph, and a blank line parts documents. Of `lines:` every line is a
document, blank ones too, so that each line end of a file becomes one piece:
what language models are measured on. Files are read in the order of their
names and never held in memory.
"""

import functools
import glob
import gzip
import itertools
import math
import os
import pathlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

from infoword_tf.data import documents

Document = documents.Document

HELDOUT_IN = 100  # one document in so many is held out ...
MAX_HELDOUT = 2000  # ... and at most so many
LONGEST = 1 << 20  # bytes; a longer document goes on as the next one

_BREAK = re.compile(rb'\n[ \t\r]*\n')
_BLOCK = 1 << 18  # bytes that are read at once
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
            'path, and quote the pattern so that the shell leaves it alone: '
            "'text:DIR/**/*.txt'."
        )
    return paths


def check(paths: Iterable[pathlib.Path]) -> None:
    """Looks at each file's first bytes; ValueError: binary, or a cut .gz."""
    for path in paths:
        with _open(path) as stream:
            read_head = functools.partial(stream.read, _HEAD)
            if b'\0' in _guarded(read_head, path):
                raise ValueError(
                    f'{path} looks binary: there is a NUL byte in its first '
                    f'{_HEAD} bytes. Expected plain UTF-8 text, or such text '
                    'as .gz; convert the file, or narrow the pattern.'
                )


class Piece(NamedTuple):
    """Some documents of a file, one after the other.

    Attributes:
      path: the file.
      begin: offset of the first byte; of .gz 0.
      end: offset of the one after the last; None: the end of the file.
    """

    path: pathlib.Path
    begin: int = 0
    end: int | None = None

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        end = self.path.stat().st_size if self.end is None else self.end
        return end - self.begin


def pieces(
    paths: Iterable[pathlib.Path], size: int, by_line: bool = False
) -> list[Piece]:
    """Files in pieces of about `size` bytes, each of whole documents.

    Pieces in order yield the documents of the files in order. A file is cut at
    blank lines (`by_line`: at any) that are found within 4 MB of where they are
    wanted, and no more of it is read; .gz stays whole.
    """
    found = []
    for path in paths:
        cuts, wanted = [0], size
        total = path.stat().st_size
        if path.suffix != '.gz':
            with open(path, 'rb') as file:
                while wanted < total:
                    cut = _cut(file, wanted, by_line)
                    if cut is not None and cut < total:
                        cuts.append(cut)
                    wanted = (cut or wanted) + size
        ends = [*cuts[1:], None]
        found += [Piece(path, *both) for both in zip(cuts, ends, strict=True)]
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


def read_piece(
    piece: Piece,
    by_line: bool = False,
    split: Callable[[str], list[str]] = documents.split_sentences,
) -> Iterator[Document]:
    """The documents of a piece.

    Args:
      split: what makes sentences of a line.

    Raises:
      ValueError: it is not UTF-8, or a truncated .gz.
    """
    return (_read_lines if by_line else _read_file)(piece, split)


def read(
    paths: Sequence[pathlib.Path], pattern: str, by_line: bool = False
) -> Iterator[Document]:
    """Yields the documents of the files in order.

    Raises:
      ValueError: a file is not UTF-8 or a truncated .gz, or there is no
        document in any file.
    """
    is_empty = True
    for path in paths:
        for document in read_piece(Piece(path), by_line):
            is_empty = is_empty and not document.sentences
            yield document
    if is_empty:
        raise ValueError(
            f'There is no text in the {len(paths)} file(s) of {pattern} '
            f'({paths[0]} ...): they are empty or hold white space alone. '
            'Expected one sentence or paragraph a line.'
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
        """What of a document is trained on, and what is held out."""
        if not self.holds_out(document):
            return document, None
        return _parted(document) if self.is_alone else (None, document)


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
    for document in corpus:
        trained, _ = how.parted(document)
        if trained is not None:
            yield trained


def heldout(
    corpus: Iterable[Document],
    how: HeldoutRule = BY_HASH,
    limit: int = MAX_HELDOUT,
) -> Iterator[Document]:
    """Yields the documents that are held out, the first `limit`."""
    found = (held for x in corpus if (held := how.parted(x)[1]) is not None)
    # Stops at the limit: there may be gigabytes to come.
    return itertools.islice(found, limit)


def _parted(document: Document) -> tuple[Document, Document]:
    """A document without its last hundredth, and that: a sentence at least."""
    sentences = document.sentences
    cut = len(sentences) - max(1, len(sentences) // HELDOUT_IN)
    return (
        Document(sentences[:cut], document.source),
        Document(sentences[cut:], document.source),
    )


def _read_file(
    piece: Piece, split: Callable[[str], list[str]]
) -> Iterator[Document]:
    path, sentences = piece.path, []
    first = size = 0  # line number and bytes of the document that is read
    for number, line in enumerate(_lines(piece), 1):
        found = split(line)
        if sentences and (not found or size > LONGEST):
            yield Document(tuple(sentences), f'{path}:{first}')
            sentences = []
        if found and not sentences:
            first, size = number, 0
        sentences += found
        size += len(line)
    if sentences:
        yield Document(tuple(sentences), f'{path}:{first}')


def _read_lines(
    piece: Piece, split: Callable[[str], list[str]]
) -> Iterator[Document]:
    for number, line in enumerate(_lines(piece), 1):
        sentences = tuple(split(line))
        yield Document(sentences, f'{piece.path}:{number}', len(line))


def _lines(piece: Piece) -> Iterator[str]:
    """Yields the decoded lines of a piece, without the byte order mark."""
    path = piece.path
    offset = piece.begin  # of what is decoded next, in uncompressed bytes
    with _open(path) as stream:
        stream.seek(offset)

        def left(most: int) -> int:
            if piece.end is None:
                return most
            return min(most, piece.end - stream.tell())

        def read_block() -> bytes:
            return stream.read(left(min(_BLOCK, LONGEST - 1)))

        def read_line(most: int = LONGEST) -> bytes:
            return stream.readline(left(most))

        def decoded(data: bytes) -> str:
            nonlocal offset
            try:
                text = data.decode()
            except UnicodeDecodeError as error:
                raise ValueError(
                    f'{path} is not UTF-8: byte 0x{data[error.start]:02x} at '
                    f'offset {offset + error.start:,} of the text '
                    f'({error.reason}). Convert the file first, for example '
                    'by `iconv -f LATIN1 -t UTF-8`.'
                ) from None
            text = text.removeprefix('\ufeff') if offset == 0 else text
            offset += len(data)
            return text

        while block := _guarded(read_block, path):
            # Whole lines at once, and by itself the one that the block cuts.
            end = block.rfind(b'\n') + 1
            try:
                lines = decoded(block[:end]).split('\n')[:-1]
            except ValueError:  # after the lines before the one that is wrong
                lines = (
                    decoded(line + b'\n')[:-1]
                    for line in block[:end].split(b'\n')[:-1]
                )
            for line in lines:
                yield line + '\n'
            if end == len(block):
                continue
            line = block[end:]
            more = functools.partial(read_line, LONGEST - len(line))
            line += _guarded(more, path)
            while len(line) >= LONGEST and not line.endswith(b'\n'):
                cut = _last_break(line)
                yield decoded(line[:cut])
                line = line[cut:] + _guarded(read_line, path)
            if line:
                yield decoded(line)


def _last_break(line: bytes) -> int:
    """Where a long line can be cut: after a space, else between characters."""
    if cut := line.rfind(b' ') + 1:
        return cut
    cut = len(line) - 1
    while cut > 1 and line[cut] & 0xC0 == 0x80:  # inside a character
        cut -= 1
    return cut


def _open(path: pathlib.Path) -> BinaryIO:
    return gzip.open(path) if path.suffix == '.gz' else open(path, 'rb')


def _guarded(function: Callable[[], bytes], path: pathlib.Path) -> bytes:
    """Calls a function that reads, and says what a broken .gz means."""
    try:
        return function()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f'{path} is not a whole gzip file ({error}). It may have been cut '
            'off while it was copied: check it by `gzip -t`, and fetch it '
            'again; a file that is not compressed must not end in .gz.'
        ) from error
