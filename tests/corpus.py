"""Real English that every Python brings along as a corpus, and records."""

import gzip
import io
import json
import pathlib
import pydoc_data.topics
from collections.abc import Mapping, Sequence
from typing import Any

HELDOUT_EVERY = 8


def write_topics(folder: pathlib.Path) -> tuple[str, str]:
    """Writes the language reference's topics as text.

    One paragraph a line, a blank line between topics.

    Returns:
        --corpus and --heldout.
    """
    folder.mkdir(parents=True, exist_ok=True)
    topics = pydoc_data.topics.topics
    parts = {'train': [], 'heldout': []}
    for number, name in enumerate(sorted(topics)):
        lines = parts['train' if number % HELDOUT_EVERY else 'heldout']
        for paragraph in topics[name].split('\n\n'):
            words = paragraph.split()
            if len(words) > 5:
                lines.append(' '.join(words))
        lines.append('')
    for part, lines in parts.items():
        path = folder / f'{part}.txt'
        path.write_text('\n'.join(lines), encoding='utf-8')
    return f'text:{folder}/train.txt', f'{folder}/heldout.txt'


def file_of(
    end: str, rows: Sequence[Mapping[str, Any]], group: int = 100
) -> bytes:
    """Returns the bytes of a file of records, of the kind that its end says.

    Args:
        end: txt, jsonl, jsonl.gz, jsonl.zst, parquet or arrow.
        rows: records; of the first field alone are the documents of a text.
        group: rows of a group of Parquet, and of a batch of Arrow.
    """
    import pyarrow
    from pyarrow import ipc, parquet

    lines = ''.join(json.dumps(row) + '\n' for row in rows).encode()
    if end == 'txt':
        return '\n\n'.join(next(iter(row.values())) for row in rows).encode()
    if end == 'jsonl':
        return lines
    if end == 'jsonl.gz':
        return gzip.compress(lines, mtime=0)
    if end == 'jsonl.zst':
        return pyarrow.compress(lines, codec='zstd', asbytes=True)
    file, table = io.BytesIO(), pyarrow.Table.from_pylist(rows)
    if end == 'parquet':
        parquet.write_table(table, file, row_group_size=group)
    else:
        with ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=group)
    return file.getvalue()
