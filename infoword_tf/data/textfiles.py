"""Corpora of files, `text:GLOB` to `arrow:GLOB`: your own text, of any size.

Plain text, or the same packed (readers.py). In `text:` a line is a sentence or
a paragraph, and a blank line separates documents. In `lines:` every line is a
document, blank lines too, so that each line end of a file becomes one token, as
language models are measured. In `jsonl:`, `parquet:` and `arrow:` a record is a
document, and the lines of one field are its paragraphs. Files are read in the
order of their names and never held in memory.
"""

import glob
import io
import itertools
import os
import pathlib
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

from infoword_tf import errors, files, hub
from infoword_tf.data import documents, readers
from infoword_tf.data.documents import Document

HELDOUT_IN = 100  # one document in so many is held out ...
MAX_HELDOUT = 2000  # ... and at most so many
LONGEST = 1 << 20  # bytes; a longer document continues as the next one

_BREAK = re.compile(rb'\n[ \t\r]*\n')
_HEAD = 8192  # bytes of a file that are checked when a corpus is opened


def find(pattern: str) -> list[pathlib.Path]:
    """Returns the files that match a pattern, sorted.

    Args:
      pattern: as in a shell: `~`, `*`, `?`, `[...]`, and `**` for folders at
        any depth. Of the Hub, hf://datasets/..., see `hub.files_of`.

    Raises:
      ValueError: no file matches.
    """
    if files.is_of_hub(pattern):
        return hub.files_of(pattern)
    names = glob.glob(os.path.expanduser(pattern), recursive=True)
    paths = sorted(pathlib.Path(n) for n in names if os.path.isfile(n))
    if not paths:
        raise errors.InputError(
            'no_file_matches',
            f'No file matches {pattern} (in {os.getcwd()}). Check the '
            'path, and quote the pattern so that the shell leaves it alone, as '
            "in 'text:DIR/**/*.txt'.",
        )
    return paths


def check(paths: Iterable[pathlib.Path]) -> None:
    """Checks each file's first bytes; ValueError: binary, or damaged."""
    for path in paths:
        with readers.opened(path) as stream:
            head = stream.read(_HEAD)
            if b'\0' in head and head[:2] not in readers.UTF16:
                raise errors.InputError(
                    'binary_file',
                    f'{path} looks binary: there is a NUL byte in its first '
                    f'{_HEAD} bytes. Expected plain text in UTF-8, or such '
                    'text as .gz or .zst; convert the file, or narrow the '
                    'pattern.',
                )


class Chunk(NamedTuple):
    """Consecutive documents of a file.

    Attributes:
      path: the file.
      begin: offset of the first byte; 0 of files that are no plain UTF-8.
      end: offset after the last byte; None: the end of the file.
      size: bytes, about.
    """

    path: pathlib.Path
    begin: int = 0
    end: int | None = None
    size: int = 0


def chunks(
    paths: Iterable[pathlib.Path], size: int, by_line: bool = False
) -> list[Chunk]:
    """Divides files into chunks of about `size` bytes, of whole documents.

    Chunks in order yield the documents of the files in order. A file is divided
    at blank lines (`by_line`: at any line) within 4 MB after each multiple of
    the size, and no more of it is read; a packed file is one chunk.
    """
    all_chunks = []
    for path in paths:
        begins, target = [0], size
        total = files.size_of(path)
        if readers.is_plain(path):
            with files.open_file(path, _HEAD) as file:
                while target < total:
                    begin = _next_document(file, target, by_line)
                    if begin is not None and begin < total:
                        begins.append(begin)
                    target = (begin or target) + size
        ends: list[int | None] = [*begins[1:], None]
        for begin, end in zip(begins, ends, strict=True):
            last = total if end is None else end
            all_chunks.append(Chunk(path, begin, end, last - begin))
    return all_chunks


def _next_document(file: BinaryIO, place: int, by_line: bool) -> int | None:
    """Returns where the first document after a place begins."""
    file.seek(place)
    if by_line:
        while line := file.readline(LONGEST):
            if line.endswith(b'\n'):
                break
        return file.tell()
    rest, last = b'', place + 4 * LONGEST
    while place < last and (block := file.read(_HEAD)):
        rest += block
        if match := _BREAK.search(rest):
            return place + match.end()
        # A line of white space may continue in the next block.
        blank = len(rest) - len(rest.rstrip(b' \t\r\n'))
        place, rest = place + len(rest) - blank, rest[len(rest) - blank :]
    return None


class Files:
    """Reader of the files of `text:` or `lines:`, and base of other kinds.

    Attributes:
      kind: name of the kind of a corpus.
      key: changes when other text is read of the same files.
      expected: content of a file, for messages.
    """

    expected = 'one sentence or paragraph a line'

    def __init__(self, kind: str):
        """Sets the kind of the corpus."""
        self.kind = self.key = kind
        self._is_reported = False  # how many records have no text

    find, check = staticmethod(find), staticmethod(check)

    def chunks(self, paths: Sequence[pathlib.Path], size: int) -> list[Chunk]:
        """Divides files; see the function `chunks`."""
        return chunks(paths, size, self.kind == 'lines')

    def read_chunk(self, chunk: Chunk) -> Generator[Document, None, int]:
        """Yields documents; returns how many records have no text.

        Raises:
          ValueError: the file is not UTF-8, or damaged.
        """
        path = chunk.path
        lines = readers.lines(path, chunk.begin, chunk.end, cut=LONGEST)
        if self.kind == 'lines':
            for number, line in enumerate(lines, 1):
                sentences = tuple(documents.split_sentences(line))
                yield Document(sentences, f'{path}:{number}', len(line))
            return 0
        for number, sentences in gathered(lines):
            yield Document(sentences, f'{path}:{number}')
        return 0

    def read_chunks(
        self, chunks: Iterable[Chunk]
    ) -> Generator[Document, None, int]:
        """Yields the documents of chunks in order; see `read_chunk`."""
        lacking = 0
        for chunk in chunks:
            lacking += yield from self.read_chunk(chunk)
        return lacking

    def read(
        self, paths: Sequence[pathlib.Path], pattern: str
    ) -> Iterator[Document]:
        """Yields the documents of the files in order.

        Prints, the first time, how many records have no text.

        Raises:
          ValueError: as `read_chunk`, or no file has a document.
        """
        is_empty, lacking = True, 0

        def documents_of_all() -> Iterator[Document]:
            nonlocal lacking
            lacking = yield from self.read_chunks(map(Chunk, paths))

        for document in documents_of_all():
            is_empty = is_empty and not document.sentences
            yield document
        if is_empty:
            raise errors.InputError(
                'files_without_text',
                f'There is no text in the {len(paths)} file(s) of {pattern} '
                f'({paths[0]} ...): they are empty or hold white space alone. '
                f'Expected {self.expected}.',
            )
        if lacking and not self._is_reported:
            self._is_reported = True
            print(
                f'{self.kind}:{pattern}: {lacking:,} record(s) without a text '
                'are left out',
                flush=True,
            )


class Records(Files):
    """Reader of files of records, of which one field holds the texts."""

    expected = 'a text in a field of a record'

    def __init__(self, kind: str, field: str):
        """Sets the kind of the corpus, and the field's name or path."""
        super().__init__(kind)
        self.field, self.key = field, f'{kind} {field!r}'

    def find(self, pattern: str) -> list[pathlib.Path]:
        """Returns files; a folder is one that `datasets` has saved."""
        if self.kind == 'arrow' and files.is_of_hub(pattern):
            pattern = hub.path_of(pattern)  # a folder, of several files
        folder = pathlib.Path(pattern).expanduser()
        if (folder / 'dataset_dict.json').exists():
            splits = sorted(x.name for x in folder.iterdir() if x.is_dir())
            raise errors.InputError(
                'several_splits',
                f'{pattern} has the splits {", ".join(splits)}: name one, as '
                f'arrow:{pattern}/{splits[-1] if splits else "train"}, and '
                'another one with --heldout',
            )
        if self.kind == 'arrow' and folder.is_dir():
            pattern = f'{glob.escape(str(folder))}/data-*.arrow'
        return super().find(pattern)

    def check(self, paths: Iterable[pathlib.Path]) -> None:
        """Reads the first text of each file; raises as `read_chunk`."""
        for path in paths:
            next(self.read_chunk(Chunk(path)), None)

    def chunks(self, paths: Sequence[pathlib.Path], size: int) -> list[Chunk]:
        """Divides files at lines, or at row groups of Parquet."""
        if self.kind == 'jsonl':
            return chunks(paths, size, by_line=True)
        from pyarrow import parquet

        groups = []
        for path in paths:
            if readers.head_of(path)[:4] != b'PAR1':
                groups.append(Chunk(path, size=files.size_of(path)))
                continue
            with readers.open_columns(path) as opened:
                file, begin, room = parquet.read_metadata(opened), 0, 0
            for end in range(1, file.num_row_groups + 1):
                room += file.row_group(end - 1).total_byte_size
                if room >= size or end == file.num_row_groups:
                    groups.append(Chunk(path, begin, end, room))
                    begin, room = end, 0
        return groups

    def read_chunk(self, chunk: Chunk) -> Generator[Document, None, int]:
        """Yields documents; returns how many records have no text.

        Raises:
            ValueError: the file cannot be read, or a record has no such field,
                or no string there; with its line or row.
        """
        path, empty = chunk.path, 0
        numbered = readers.READERS[self.kind](
            path, chunk.begin, chunk.end, self.field
        )
        for number, record in numbered:
            where = f'{path}, row {number}'
            if self.kind == 'jsonl':
                where = f'{path}, {readers.line_at(chunk.begin, number)}'
            text = readers.value_of(record, self.field, where)
            if not isinstance(text, str | None):
                raise errors.InputError(
                    'field_no_string',
                    f'{where}: the field {self.field!r} is no string, but '
                    f'{repr(text)[:readers.LETTERS]}',
                )
            if not text or text.isspace():
                empty += 1
                continue
            stream = io.BytesIO(text.encode('utf-8', 'replace'))
            lines = readers.lines_of(stream, path, cut=LONGEST)
            for _, sentences in gathered(lines, whole=True):
                yield Document(sentences, f'{path}:{number}')
        return empty


class HeldoutRule(NamedTuple):
    """Rule that chooses held-out documents.

    Attributes:
      lowest: hash of the one document that is held out; None: 1 document in
        100, by hash.
      is_alone: whether it is the only document, of which the last hundredth is
        held out.
    """

    lowest: int | None = None
    is_alone: bool = False

    def holds_out(self, document: Document) -> bool:
        """Tells whether a document is held out, at least in part."""
        hashed = documents.text_hash(document.text)
        if self.lowest is None:
            return hashed % HELDOUT_IN == 0
        return hashed == self.lowest

    def divide(
        self, document: Document
    ) -> tuple[Document | None, Document | None]:
        """Returns the training and the held-out part of a document.

        A single document is held out by its last hundredth, a sentence at
        least.
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
    """Makes the rule of a corpus, independent of the order of documents.

    1 document in 100 by the hash of its text. Where no document or every one
    is held out so, the document of the lowest hash, and of a single document
    its end. Reads until one document of both kinds is found: of all but small
    corpora the first few hundred.

    Raises:
      ValueError: the text is one document of one sentence.
    """
    lowest: int | None = None
    buckets, highest, sentences = set(), -1, 0
    for document in corpus:
        hashed = documents.text_hash(document.text)
        buckets.add(hashed % HELDOUT_IN == 0)
        if len(buckets) == 2:
            return BY_HASH
        lowest = hashed if lowest is None else min(lowest, hashed)
        highest = max(highest, hashed)
        sentences = len(document.sentences)
    if lowest is not None and lowest < highest:
        return HeldoutRule(lowest)
    if sentences == 1:
        raise errors.InputError(
            'text_of_one_sentence',
            f'{pattern} is one sentence, of which nothing can be held out: '
            'give more text, or name held-out files with --heldout=GLOB',
        )
    return HeldoutRule(lowest, is_alone=True)


def train(
    corpus: Iterable[Document], rule: HeldoutRule = BY_HASH
) -> Iterator[Document]:
    """Yields the documents that are not held out.

    Held-out documents beyond the limit are omitted: a copy of a held-out
    document may be among them.
    """
    yield from (
        trained for x in corpus if (trained := rule.divide(x)[0]) is not None
    )


def heldout(
    corpus: Iterable[Document],
    rule: HeldoutRule = BY_HASH,
    limit: int = MAX_HELDOUT,
) -> Iterator[Document]:
    """Yields the documents that are held out, the first `limit`."""
    # Stops at the limit: gigabytes may follow.
    every = (held for x in corpus if (held := rule.divide(x)[1]) is not None)
    return itertools.islice(every, limit)


def gathered(
    lines: Iterable[str], whole: bool = False
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yields documents as (number of the first line from 1, sentences).

    Args:
      lines: lines of a text.
      whole: whether blank lines are ignored, instead of separating documents.
    """
    sentences: list[str] = []
    first = size = 0  # first line and bytes of the document being read
    for number, line in enumerate(lines, 1):
        more = documents.split_sentences(line)
        if sentences and (size > LONGEST or not (more or whole)):
            yield first, tuple(sentences)
            sentences = []
        if more and not sentences:
            first, size = number, 0
        sentences += more
        size += len(line)
    if sentences:
        yield first, tuple(sentences)
