"""Records: the objects of JSON lines, the rows of Parquet and of Arrow.

Tables read all of their columns. In the corpora `jsonl:`, `parquet:` and
`arrow:` a record is a document, and the lines of one field its paragraphs. A
field of an object inside a record has a path, as `meta/title`. Files are read
as streams, however large they or their row groups are.
"""

import glob
import io
import itertools
import json
import pathlib
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from infoword_tf import errors
from infoword_tf.data import readers, textfiles
from infoword_tf.data.documents import Document
from infoword_tf.data.textfiles import Chunk

# Numbers of lines or of Parquet's rows, from 1, and the records.
Numbered = Iterator[tuple[int, dict[str, Any]]]

FIELD = 'text'  # by default
_ROWS = 64  # of Parquet and Arrow, that become Python's at a time
_BUFFER = 1 << 18  # bytes of a column that are read at once
_SHOWN, _LETTERS = 20, 40  # fields in a complaint; letters of a value


def read_jsonl(
    path: pathlib.Path,
    begin: int = 0,
    end: int | None = None,
    field: str | None = None,
) -> Numbered:
    """Yields (line, object) of the bytes [begin, end), without blank lines.

    `field` is ignored, since a line is read as a whole.

    Raises:
        ValueError: as of `readers.lines`, or a line is no JSON object.
    """
    del field
    for number, line in enumerate(readers.lines(path, begin, end), 1):
        if not line.strip():
            continue
        try:
            record, fault = json.loads(line), 'expected a JSON object'
        except (ValueError, RecursionError) as error:
            reason = str(error).replace('line 1 ', '')  # of one line
            record, fault = None, f'no JSON ({reason})'
        if not isinstance(record, dict):
            where = readers.line_at(begin, number)
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
        path: of the file.
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
                _ROWS, [group], columns, use_threads=False
            )

    is_parquet = _head(path)[:4] == b'PAR1'
    try:
        with pyarrow.OSFile(where) as file:
            if is_parquet:
                # Without a buffer a whole row group would be held.
                opened = parquet.ParquetFile(
                    file, pre_buffer=False, buffer_size=_BUFFER,
                    page_checksum_verification=True,
                )  # fmt: skip
                schema = opened.schema_arrow
            else:
                is_file = _head(path) == b'ARROW1'
                opened = (ipc.open_file if is_file else ipc.open_stream)(file)
                schema = opened.schema
            if field is not None:
                types = _types(schema)
                _value(types, field, where)  # raises if it is missing
                way = [field] if field in types else field.split('/')
                columns = ['.'.join(way) if is_parquet else way[0]]
            for batch in batches():
                for first in range(0, batch.num_rows, _ROWS):
                    rows = batch.slice(first, _ROWS)
                    rows.validate(full=True)  # damaged, it may point anywhere
                    for record in _plain(rows).to_pylist():
                        number += 1
                        yield number, record
    except (
        pyarrow.ArrowException, OSError, UnicodeDecodeError, KeyError
    ) as error:  # fmt: skip
        readers.check_system(error)
        why = str(error).partition('\n')[0]
        raise errors.InputError(
            'damaged_columns',
            f'{where} cannot be read as Parquet or Arrow ({why})',
        ) from None


def class_names(path: pathlib.Path) -> dict[str, tuple[str, ...]]:
    """Reads the names that Parquet or Arrow has for numbers of classes.

    Hugging Face's datasets writes them beside the schema (`ClassLabel`).

    Returns:
        Names in the order of their numbers, by column; of lists too.
    """
    import pyarrow
    from pyarrow import ipc, parquet

    head = _head(path)
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


def _head(path: pathlib.Path) -> bytes:
    """Reads six bytes, from which the format of a file is known."""
    with open(path, 'rb') as file:
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


def _value(record: dict[str, Any], field: str, where: str) -> Any:
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
    if colon and not (pattern and named):
        raise errors.InputError(
            'wrong_glob_and_field',
            f'{spec}: expected GLOB and FIELD around the last :',
        )
    return (pattern, named) if colon else (spec, field)


class Records(textfiles.Files):
    """Reader of files of records, of which one field holds the texts."""

    expected = 'a text in a field of a record'

    def __init__(self, kind: str, field: str):
        """Sets the kind of the corpus, and the field's name or path."""
        super().__init__(kind)
        self.field, self.key = field, f'{kind} {field!r}'

    def find(self, pattern: str) -> list[pathlib.Path]:
        """Returns files; a folder is one that `datasets` has saved."""
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

    def check(self, paths: Sequence[pathlib.Path]) -> None:
        """Reads the first text of each file; raises as `read_chunk`."""
        for path in paths:
            next(self.read_chunk(Chunk(path)), None)

    def chunks(self, paths: Sequence[pathlib.Path], size: int) -> list[Chunk]:
        """Divides files at lines, or at row groups of Parquet."""
        if self.kind == 'jsonl':
            return textfiles.chunks(paths, size, by_line=True)
        from pyarrow import parquet

        chunks = []
        for path in paths:
            if _head(path)[:4] != b'PAR1':
                chunks.append(Chunk(path, size=path.stat().st_size))
                continue
            file, begin, room = parquet.read_metadata(path), 0, 0
            for end in range(1, file.num_row_groups + 1):
                room += file.row_group(end - 1).total_byte_size
                if room >= size or end == file.num_row_groups:
                    chunks.append(Chunk(path, begin, end, room))
                    begin, room = end, 0
        return chunks

    def read_chunk(self, chunk: Chunk) -> Generator[Document, None, int]:
        """Yields documents; returns how many records have no text.

        Raises:
            ValueError: the file cannot be read, or a record has no such field,
                or no string there; with its line or row.
        """
        path, empty = chunk.path, 0
        numbered = READERS[self.kind](path, chunk.begin, chunk.end, self.field)
        for number, record in numbered:
            where = f'{path}, row {number}'
            if self.kind == 'jsonl':
                where = f'{path}, {readers.line_at(chunk.begin, number)}'
            text = _value(record, self.field, where)
            if not isinstance(text, str | None):
                raise errors.InputError(
                    'field_no_string',
                    f'{where}: the field {self.field!r} is no string, but '
                    f'{repr(text)[:_LETTERS]}',
                )
            if not text or text.isspace():
                empty += 1
                continue
            stream = io.BytesIO(text.encode('utf-8', 'replace'))
            lines = readers.lines_of(stream, path, cut=textfiles.LONGEST)
            for _, sentences in textfiles.gathered(lines, whole=True):
                yield Document(sentences, f'{path}:{number}')
        return empty
