"""Requests that TensorFlow Serving replays before a version takes traffic.

The first request of a kind pays for things that later ones find ready. The
file is assets.extra/tf_serving_warmup_requests, a TFRecord of PredictionLog
messages, which hold requests as the client writes them.
"""

import pathlib
from collections.abc import Mapping, Sequence

from export.serving import client

FOLDER, NAME = 'assets.extra', 'tf_serving_warmup_requests'


def prediction_log(
    signature: str, inputs: Sequence[str], texts: Sequence[str]
) -> bytes:
    """A PredictionLog with a request: every input of a signature is `texts`."""
    encoded = [text.encode() for text in texts]
    values = {
        name: [[t, t] for t in encoded] if name == 'choices' else encoded
        for name in inputs
    }
    log = client.message('PredictionLog')()
    log.predict_log.request.CopyFrom(client.predict_request(signature, values))
    return log.SerializeToString()


def write(
    folder: pathlib.Path,
    signatures: Mapping[str, Sequence[str]],
    length: int,
) -> None:
    """Writes the requests of a version.

    Args:
        folder: of the version.
        signatures: by name, what they take; each is asked with one text and
            with 32.
        length: the longest text, in words.
    """
    import tensorflow as tf

    path = folder / FOLDER / NAME
    path.parent.mkdir(exist_ok=True)
    one = ['one [MASK] before the others']
    many = [' '.join(['[MASK]', *['word'] * (n * length // 32)])
            for n in range(1, 33)]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, inputs in signatures.items():
            for texts in (one, many):
                writer.write(prediction_log(signature, inputs, texts))
