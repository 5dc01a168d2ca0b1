"""Files as people have them: packed or not, in UTF-8 or in UTF-16.

A file that ends in .gz or .zst is unpacked while it is read, however many
members or frames it has. A byte order mark says that a text is UTF-16, else it
is UTF-8. `lines` reads all text that is read line by line.
"""

import codecs
import contextlib
import gzip
import io
import pathlib
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from infoword_tf import errors

PACKED = {'.gz': 'gzip', '.zst': 'zstd'}  # endings, and programs that test them
LONGEST = 1 << 26  # bytes of a line; a binary file may have no line end
_BLOCK = 1 << 18  # bytes that are read at once
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def unpacked(path: pathlib.Path) -> str:
    """Returns the name of a file without .gz or .zst."""
    return path.stem if path.suffix in PACKED else path.name


@contextlib.contextmanager
def opened(path: pathlib.Path) -> Iterator[BinaryIO]:
    """Opens a file, unpacked; ValueError: the content is damaged."""
    program = PACKED.get(path.suffix)
    try:
        with _stream(path) as stream:
            yield stream
    except (EOFError, OSError, zlib.error) as error:
        check_system(error)
        raise errors.InputError(
            'file_not_whole',
            f'{path} is not a whole {program} file ({error}). It may have been '
            f'cut off while it was copied: check it by `{program} -t`, and '
            'fetch it again; a file that is not compressed must not end in '
            f'{path.suffix}.',
        ) from None


def check_system(error: Exception) -> None:
    """Raises an error again that the system has given a number."""
    if getattr(error, 'errno', None) is not None:
        raise error


def _stream(path: pathlib.Path) -> BinaryIO:
    if path.suffix == '.gz':
        return gzip.open(path)
    if path.suffix == '.zst':
        import pyarrow

        raw = pyarrow.input_stream(str(path), compression='zstd')
        return io.BufferedReader(raw, _BLOCK)
    return open(path, 'rb')


def is_plain(path: pathlib.Path) -> bool:
    """Tells whether a file is UTF-8 and not packed, so divisible."""
    if path.suffix in PACKED:
        return False
    with open(path, 'rb') as file:
        return file.read(2) not in UTF16


def line_at(begin: int, number: int) -> str:
    """Names a line for people, where lines are counted from a byte on."""
    return f'line {number}' + (f' after byte {begin:,}' if begin else '')


def lines(
    path: pathlib.Path,
    begin: int = 0,
    end: int | None = None,
    cut: int | None = None,
) -> Iterator[str]:
    """Yields lines with line ends, the first without a byte order mark.

    Args:
        path: of a text, perhaps packed.
        begin, end: bytes at which lines begin; None: to the end of the file.
            Other values only for a plain file.
        cut: bytes after which a longer line continues as the next line; None: a
            line of more than 64 MB is an error.

    Raises:
        ValueError: the file is neither UTF-8 nor UTF-16, or damaged, or has a
            too long line; with its number.
    """
    with opened(path) as stream:
        if stream.peek(2)[:2] not in UTF16:
            if begin:
                stream.seek(begin)
            yield from lines_of(stream, path, begin, end, cut)
            return
        text = io.TextIOWrapper(stream, 'utf-16', newline='\n')
        try:
            yield from iter(lambda: text.readline(cut or LONGEST), '')
        except UnicodeDecodeError as error:
            raise errors.InputError(
                'broken_utf16',
                f'{path} begins as UTF-16 and does not go on so '
                f'({error.reason}). Convert the file to UTF-8.',
            ) from None


def lines_of(
    stream: BinaryIO,
    path: pathlib.Path,
    begin: int = 0,
    end: int | None = None,
    cut: int | None = None,
) -> Iterator[str]:
    """Yields the lines of a stream of UTF-8 that is at `begin`; see `lines`."""
    most = cut or LONGEST
    place = offset = begin  # of the next byte to read, and to decode
    number = 1  # of the next line to decode

    def read(function: Callable[[int], bytes], size: int) -> bytes:
        nonlocal place
        data = function(size if end is None else min(size, end - place))
        place += len(data)
        return data

    def decoded(data: bytes) -> str:
        nonlocal offset, number
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            bad = error.start
            where = line_at(begin, number + data[:bad].count(b'\n'))
            raise errors.InputError(
                'file_not_utf8',
                f'{path}, {where} is not UTF-8: byte 0x{data[bad]:02x} at '
                f'offset {offset + bad:,} of the text ({error.reason}). '
                'Convert the file first, for example by `iconv -f LATIN1 -t '
                'UTF-8`.',
            ) from None
        if offset == 0:
            text = text.removeprefix('\ufeff')
        offset += len(data)
        number += data.count(b'\n')
        return text

    while block := read(stream.read, min(_BLOCK, most - 1)):
        # Whole lines at once, and then the line that the block ends in.
        whole = block.rfind(b'\n') + 1
        try:
            texts = decoded(block[:whole]).split('\n')[:-1]
        except ValueError:  # yields the lines before the wrong one
            texts = (
                decoded(line + b'\n')[:-1]
                for line in block[:whole].split(b'\n')[:-1]
            )
        for text in texts:
            yield text + '\n'
        if whole == len(block):
            continue
        line = block[whole:] + read(stream.readline, most - len(block) + whole)
        while len(line) >= most and not line.endswith(b'\n'):
            if cut is None:
                raise errors.InputError(
                    'long_line',
                    f'{path}, {line_at(begin, number)} is longer than '
                    f'{most >> 20} MB; give a file with one record a line',
                )
            size = _last_break(line)
            yield decoded(line[:size])
            line = line[size:] + read(stream.readline, most)
        if line:
            yield decoded(line)


def _last_break(line: bytes) -> int:
    """Returns where to divide a long line: after a space, else a character."""
    if cut := line.rfind(b' ') + 1:
        return cut
    cut = len(line) - 1
    while cut > 1 and line[cut] & 0xC0 == 0x80:  # inside a character
        cut -= 1
    return cut
