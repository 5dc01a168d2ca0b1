"""TensorBoard's event files, truncated where a run resumes."""

import pathlib
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.core.util import event_pb2

from infoword_tf import files


def truncate(folder: pathlib.Path, step: int) -> None:
    """Drops the events after a step.

    The records after damage are dropped too: a killed process has not written
    the end. A file without an event is deleted.
    """
    for path in sorted(folder.rglob('events.out.tfevents.*')):
        records, dropped = [], False
        for record, is_whole in _records(path):
            event = event_pb2.Event.FromString(record)
            if is_whole and event.step <= step:
                records.append((record, event.WhichOneof('what')))
            else:
                dropped = True
        if all(kind == 'file_version' for _, kind in records):
            path.unlink()
        elif dropped:
            with files.written(path) as partial:
                with tf.io.TFRecordWriter(str(partial)) as writer:
                    for record, _ in records:
                        writer.write(record)


def _records(path: pathlib.Path) -> Iterator[tuple[bytes, bool]]:
    """Yields (record, True) in order, and (b'', False) where damage begins."""
    try:
        for record in tf.data.TFRecordDataset(str(path)):
            yield record.numpy(), True
    except tf.errors.DataLossError:
        yield b'', False
