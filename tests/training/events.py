"""What TensorBoard would show of a run."""

import pathlib

import tensorflow as tf
from tensorflow.core.util import event_pb2


def steps_of(workdir: pathlib.Path, name: str) -> list[int]:
    """The steps at which a value was written, in the order of its files."""
    found = []
    for path in sorted((workdir / 'tensorboard').rglob('events*')):
        for record in tf.data.TFRecordDataset(str(path)):
            event = event_pb2.Event.FromString(record.numpy())
            names = [value.tag for value in event.summary.value]
            found += [event.step] * names.count(name)
    return found
