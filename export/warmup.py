"""Requests that TensorFlow Serving replays before a version takes traffic.

The first request of a kind pays for things that later ones find ready. The
file is assets.extra/tf_serving_warmup_requests, a TFRecord of PredictionLog
messages. These are nested strings of bytes and nothing else, so they are
written here by hand and need no package of Serving's (the numbers are those
of its prediction_log.proto, predict.proto and model.proto):

    PredictionLog.predict_log = 6
      PredictLog.request = 1
        PredictRequest.model_spec = 1, .inputs = 2 (a map: key 1, value 2)
          ModelSpec.name = 1, .signature_name = 3
"""

import pathlib
from collections.abc import Sequence

FOLDER, NAME = 'assets.extra', 'tf_serving_warmup_requests'
MODEL = 'infoword'  # as in export/serving/models.config
INPUTS = {'classify_pairs': ('texts', 'pairs')}  # others: texts alone


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited field of a protocol buffer."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more come."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def prediction_log(signature: str, texts: Sequence[str]) -> bytes:
    """A PredictionLog with a request for one signature."""
    import tensorflow as tf

    tensor = tf.make_tensor_proto(list(texts), tf.string, [len(texts)])
    spec = _field(1, MODEL.encode()) + _field(3, signature.encode())
    request = _field(1, spec)
    for name in INPUTS.get(signature, ('texts',)):
        entry = _field(1, name.encode())
        request += _field(2, entry + _field(2, tensor.SerializeToString()))
    return _field(6, _field(1, request))


def write(folder: pathlib.Path, signatures: Sequence[str], length: int) -> None:
    """Writes the requests of a version.

    Args:
        folder: of the version.
        signatures: their names; each is asked with one text and with 32.
        length: the longest text, in words.
    """
    import tensorflow as tf

    path = folder / FOLDER / NAME
    path.parent.mkdir(exist_ok=True)
    one = ['one [MASK] before the others']
    many = [' '.join(['[MASK]', *['word'] * (n * length // 32)])
            for n in range(1, 33)]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature in signatures:
            for texts in (one, many):
                writer.write(prediction_log(signature, texts))
