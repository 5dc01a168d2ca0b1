"""Values that TensorBoard would show of a run."""

import itertools
import pathlib

import tensorflow as tf
from tensorflow.core.util import event_pb2


def steps_of(workdir: pathlib.Path, name: str) -> list[int]:
    """Returns the steps at which a value was written, in the files' order.

    Files are ordered by their last event: their names and their first events,
    which say the version, count whole seconds, and a run can be killed and go
    on within one.
    """
    files = []
    for path in (workdir / 'tensorboard').rglob('events*'):
        records = tf.data.TFRecordDataset(str(path))
        files.append([event_pb2.Event.FromString(r.numpy()) for r in records])
    actual = []
    for event in itertools.chain(*sorted(files, key=lambda e: e[-1].wall_time)):
        names = [value.tag for value in event.summary.value]
        actual += [event.step] * names.count(name)
    return actual
