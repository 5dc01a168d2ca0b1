"""Tables as documents that have names."""

import pathlib
from collections.abc import Callable, Iterator

from infoword_tf import errors
from infoword_tf.data import tables
from infoword_tf.data.documents import Document, split_sentences


def documents_of(
    name: str, id: str | None, text: str, delimiter: str | None = None
) -> tuple[str, Callable[[], Iterator[Document]]]:
    """Opens a table as documents, one a line or record.

    Args:
        name: path of its file.
        id: the column of names; None: names are FILE:LINE.
        text: columns that are joined by a space, with commas between.
        delimiter: character between cells, see `tables.open_table`.

    Returns:
        A key that changes when the file does, and a function that reads the
        documents anew.

    Raises:
        FileNotFoundError, ValueError: the file or a column is missing; while
            reading, a name is empty or repeated.
    """
    if name.startswith('tfds:'):
        raise errors.UsageError(
            'documents_of_tfds',
            f'--documents={name} is no file; name a data set of TFDS with '
            '--corpus',
        )

    def documents() -> Iterator[Document]:
        table = tables.open_table(name, delimiter=delimiter)
        named = None if id is None else tables.column_of(table, id)
        columns = [tables.column_of(table, x) for x in text.split(',')]
        lines: dict[str, int] = {}  # of names
        for line, cells in table.rows:
            where = f'{name}, line {line}'
            source = f'{name}:{line}' if named is None else cells[named] or ''
            if not source.strip():
                raise errors.InputError(
                    'document_without_id',
                    f'{where}: the column {id!r}, which names documents, is '
                    'empty',
                )
            if named is not None and lines.setdefault(source, line) != line:
                raise errors.InputError(
                    'document_id_twice',
                    f'{where}: the {id} {source!r} is that of line '
                    f'{lines[source]} too',
                )
            joined = ' '.join(cell for i in columns if (cell := cells[i]))
            yield Document(tuple(split_sentences(joined)), source)

    next(documents(), None)  # raises here if a column is missing
    path = pathlib.Path(name).expanduser().resolve()
    stat = path.stat()
    state = path, stat.st_size, stat.st_mtime_ns, id, text
    return repr(state if delimiter is None else (*state, delimiter)), documents
