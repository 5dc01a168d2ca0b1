"""Files as people have them: text by line, and records.

A file that ends in .gz or .zst is unpacked while it is read, however many
members or frames it has. A byte order mark says that a text is UTF-16, else it
is UTF-8. `lines` reads all text that is read line by line. Records are the
objects of JSON lines and the rows of Parquet and of Arrow; a field of an object
inside a record has a path, as `meta/title`. Files are read as streams, however
large they or their row groups are.
"""

import codecs
import contextlib
import gzip
import io
import itertools
import json
import pathlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, cast

from infoword_tf import errors, files

Stream = io.BufferedReader | gzip.GzipFile
# Numbers of lines or of Parquet's rows, from 1, and the records.
Numbered = Iterator[tuple[int, dict[str, Any]]]

FIELD = 'text'  # of a record, by default
ROWS = 64  # of Parquet and Arrow, that become Python's at a time
_SHOWN, LETTERS = 20, 40  # fields in a complaint; letters of a value
PACKED = {'.gz': 'gzip', '.zst': 'zstd'}  # endings, and programs that test them
LONGEST = 1 << 26  # bytes of a line; a binary file may have no line end
_BLOCK = 1 << 18  # bytes that are read at once
_HEAD = 512  # of a file of which only the beginning is read
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def unpacked(path: pathlib.Path) -> str:
    """Returns the name of a file without .gz or .zst."""
    return path.stem if path.suffix in PACKED else path.name


@contextlib.contextmanager
def opened(path: pathlib.Path) -> Iterator[Stream]:
    """Opens a file, unpacked; ValueError: the content is damaged."""
    program = PACKED.get(path.suffix)
    try:
        with files.open_file(path) as file, _stream(path, file) as stream:
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


def _stream(path: pathlib.Path, file: BinaryIO) -> Stream:
    if path.suffix == '.gz':
        return gzip.GzipFile(fileobj=file)
    if path.suffix == '.zst':
        import pyarrow

        raw = pyarrow.input_stream(file, compression='zstd')
        return io.BufferedReader(raw, _BLOCK)
    return cast(io.BufferedReader, file)


def is_plain(path: pathlib.Path) -> bool:
    """Tells whether a file is UTF-8 and not packed, so divisible."""
    if path.suffix in PACKED:
        return False
    with files.open_file(path, _HEAD) as file:
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
        path: name of a text, perhaps packed.
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
            yield from lines_of(stream, path, begin, end=end, cut=cut)
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
    stream: io.BufferedIOBase,
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
        texts: Iterable[str]
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


def read_jsonl(
    path: pathlib.Path,
    begin: int = 0,
    end: int | None = None,
    field: str | None = None,
) -> Numbered:
    """Yields (line, object) of the bytes [begin, end), without blank lines.

    `field` is ignored, since a line is read as a whole.

    Raises:
        ValueError: as of `lines`, or a line is no JSON object.
    """
    del field
    for number, line in enumerate(lines(path, begin, end), 1):
        if not line.strip():
            continue
        try:
            record, fault = json.loads(line), 'expected a JSON object'
        except (ValueError, RecursionError) as error:
            reason = str(error).replace('line 1 ', '')  # of one line
            record, fault = None, f'no JSON ({reason})'
        if not isinstance(record, dict):
            where = line_at(begin, number)
            raise errors.InputError(
                'no_json_object', f'{path}, {where}: {fault}'
            )
        yield number, record


def read_columns(
    path: pathlib.Path,
    begin: int = 0,
    end: int | None = None,
    field: str | None = None,
) -> Numbered:
    """Yields (row, record) of Parquet or Arrow, as a stream or a file.

    Args:
        path: name of the file.
        begin, end: row groups of Parquet; Arrow is read whole.
        field: the only field to read; None: all.

    Raises:
        ValueError: the file is neither, or damaged, or has no such field.
    """
    import pyarrow
    from pyarrow import ipc, parquet

    where, number, columns = str(path), 0, None

    def batches() -> Iterator[pyarrow.RecordBatch]:
        nonlocal where, number
        if not is_parquet:
            every = opened
            if isinstance(opened, ipc.RecordBatchFileReader):
                places = range(opened.num_record_batches)
                every = map(opened.get_batch, places)
            for batch in every:
                yield batch if field is None else batch.select(columns)
            return
        for group in range(opened.num_row_groups)[:end]:
            where = f'{path}, row group {group}'
            if group < begin:
                number += opened.metadata.row_group(group).num_rows
                continue
            yield from opened.iter_batches(
                ROWS, [group], columns, use_threads=False
            )

    is_parquet = head_of(path)[:4] == b'PAR1'
    try:
        with open_columns(path) as file:
            if is_parquet:
                # Without a buffer a whole row group would be held.
                opened = parquet.ParquetFile(
                    file, pre_buffer=False, buffer_size=_BLOCK,
                    page_checksum_verification=True,
                )  # fmt: skip
                schema = opened.schema_arrow
            else:
                is_file = head_of(path) == b'ARROW1'
                opened = (ipc.open_file if is_file else ipc.open_stream)(file)
                schema = opened.schema
            if field is not None:
                types = _types(schema)
                value_of(types, field, where)  # raises if it is missing
                way = [field] if field in types else field.split('/')
                columns = ['.'.join(way) if is_parquet else way[0]]
            for batch in batches():
                for first in range(0, batch.num_rows, ROWS):
                    rows = batch.slice(first, ROWS)
                    rows.validate(full=True)  # damaged, it may point anywhere
                    for record in _plain(rows).to_pylist():
                        number += 1
                        yield number, record
    except (
        pyarrow.ArrowException, OSError, UnicodeDecodeError, KeyError
    ) as error:  # fmt: skip
        check_system(error)
        why = str(error).partition('\n')[0]
        raise errors.InputError(
            'damaged_columns',
            f'{where} cannot be read as Parquet or Arrow ({why})',
        ) from None


def open_columns(path: pathlib.Path) -> Any:
    """Opens a file for pyarrow."""
    import pyarrow

    if files.is_of_hub(path):
        return pyarrow.PythonFile(files.open_file(path), 'r')
    return pyarrow.OSFile(str(path))


def class_names(path: pathlib.Path) -> dict[str, tuple[str, ...]]:
    """Reads the names that Parquet or Arrow has for numbers of classes.

    Hugging Face's datasets writes them beside the schema (`ClassLabel`).

    Returns:
        Names in the order of their numbers, by column; of lists too.
    """
    import pyarrow
    from pyarrow import ipc, parquet

    head = head_of(path)
    try:
        with pyarrow.OSFile(str(path)) as file:
            if head[:4] == b'PAR1':
                schema = parquet.read_schema(file)
            else:
                is_file = head == b'ARROW1'
                opened = (ipc.open_file if is_file else ipc.open_stream)(file)
                schema = opened.schema
        about = json.loads((schema.metadata or {}).get(b'huggingface', '{}'))
    except (pyarrow.ArrowException, OSError, ValueError):
        return {}  # `read_columns` says what is wrong with a file
    names: dict[str, tuple[str, ...]] = {}
    features = (about.get('info') or {}).get('features') or {}
    for column, feature in features.items():
        while isinstance(feature, dict) and 'feature' in feature:
            feature = feature['feature']
        if isinstance(feature, list):  # a list, as older files have it
            (feature,) = feature
        if isinstance(feature, dict) and feature.get('_type') == 'ClassLabel':
            names[column] = tuple(feature.get('names') or ())
    return names


READERS: dict[str, Callable[..., Numbered]] = {
    'jsonl': read_jsonl, 'parquet': read_columns, 'arrow': read_columns,
}  # fmt: skip


def head_of(path: pathlib.Path) -> bytes:
    """Reads six bytes, from which the format of a file is known."""
    with files.open_file(path, _HEAD) as file:
        return file.read(6)


def _plain(batch: Any) -> Any:
    """Makes times strings, since Python's know no nanoseconds."""
    from pyarrow.types import is_temporal

    for place, column in enumerate(batch.columns):
        if is_temporal(column.type):
            name = batch.schema.names[place]
            batch = batch.set_column(place, name, column.cast('string'))
    return batch


def _types(fields: Any) -> dict[str, Any]:
    """Returns the types of fields, nested as values of a record are."""
    from pyarrow.types import is_struct

    return {
        x.name: _types(x.type) if is_struct(x.type) else x.type for x in fields
    }


def value_of(record: dict[str, Any], field: str, where: str) -> Any:
    """Returns the value of a field; None also where an outer object is null."""
    value: Any = record
    try:
        for name in (field,) if field in record else field.split('/'):
            value = value if value is None else value[name]
    except (KeyError, TypeError):
        listed = list(itertools.islice(_paths(record), _SHOWN + 1))
        listed[_SHOWN:] = ['...'] * (len(listed) > _SHOWN)
        raise errors.InputError(
            'unknown_field',
            f'{where}: there is no field {field!r}; there are '
            f'{", ".join(listed) or "none"}',
        ) from None
    return value


def _paths(record: dict[str, Any], before: str = '') -> Iterator[str]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _paths(value, f'{before}{name}/')
        else:
            yield f'{before}{name}'


def split_spec(spec: str, field: str = FIELD) -> tuple[str, str]:
    """Splits GLOB[:FIELD] at the last colon; `field` is the default."""
    pattern, colon, named = spec.rpartition(':')
    if named.startswith('//'):  # of hf://
        return spec, field
    if colon and not (pattern and named):
        raise errors.InputError(
            'wrong_glob_and_field',
            f'{spec}: expected GLOB and FIELD around the last :',
        )
    return (pattern, named) if colon else (spec, field)
