"""TensorBoard's event files: cut where a run goes on."""

import pathlib
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.core.util import event_pb2

from infoword_tf import files


def cut(folder: pathlib.Path, step: int) -> None:
    """Drops the events after a step, as `checkpoint.Metrics` does its lines.

    What stands after damage is dropped too: the end that a killed process has
    not written. A file without an event is deleted.
    """
    for path in sorted(folder.rglob('events.out.tfevents.*')):
        kept, dropped = [], False
        for record, is_whole in _records(path):
            event = event_pb2.Event.FromString(record)
            if is_whole and event.step <= step:
                kept.append((record, event.WhichOneof('what')))
            else:
                dropped = True
        if all(what == 'file_version' for _, what in kept):
            path.unlink()
        elif dropped:
            with files.written(path) as partial:
                with tf.io.TFRecordWriter(str(partial)) as writer:
                    for record, _ in kept:
                        writer.write(record)


def _records(path: pathlib.Path) -> Iterator[tuple[bytes, bool]]:
    """Records in order; last, where the file is damaged, (b'', False)."""
    try:
        for record in tf.data.TFRecordDataset(str(path)):
            yield record.numpy(), True
    except tf.errors.DataLossError:
        yield b'', False
