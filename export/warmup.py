"""Requests that TensorFlow Serving replays before a version takes traffic.

The first request of a kind pays for things that later ones find ready. The
file is assets.extra/tf_serving_warmup_requests, a TFRecord of PredictionLog
messages.
"""

import pathlib
from collections.abc import Mapping, Sequence

FOLDER, NAME = 'assets.extra', 'tf_serving_warmup_requests'
MODEL = 'infoword'  # as in serving/models.config
# Numbers of the fields, all of them strings or messages, in Serving's
# prediction_log.proto, predict.proto and model.proto.
FIELDS = {
    'PredictionLog.predict_log': 6,
    'PredictLog.request': 1,
    'PredictRequest.model_spec': 1,
    'PredictRequest.inputs': 2,  # a map: on the wire a list of entries
    'InputsEntry.key': 1,
    'InputsEntry.value': 2,  # a TensorProto
    'ModelSpec.name': 1,
    'ModelSpec.signature_name': 3,
}


def _field(name: str, content: bytes) -> bytes:
    """Encodes a field: number and wire type, length, content."""
    head, length = [FIELDS[name] << 3 | 2], len(content)
    while length > 0x7F:  # seven bits a byte, and whether more follow
        head.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*head, length]) + content


def prediction_log(
    signature: str, inputs: Sequence[str], texts: Sequence[str]
) -> bytes:
    """Encodes a PredictionLog; every input of the signature is `texts`."""
    import tensorflow as tf

    request = _field(
        'PredictRequest.model_spec',
        _field('ModelSpec.name', MODEL.encode())
        + _field('ModelSpec.signature_name', signature.encode()),
    )
    for name in inputs:
        values = [[t, t] for t in texts] if name == 'choices' else texts
        tensor = tf.make_tensor_proto(values, tf.string).SerializeToString()
        request += _field(
            'PredictRequest.inputs',
            _field('InputsEntry.key', name.encode())
            + _field('InputsEntry.value', tensor),
        )
    return _field(
        'PredictionLog.predict_log', _field('PredictLog.request', request)
    )


def write(
    folder: pathlib.Path,
    signatures: Mapping[str, Sequence[str]],
    length: int,
) -> None:
    """Writes the requests of a version.

    Args:
        folder: folder of the version.
        signatures: inputs of signatures by name; each gets a request of one
            text and one of 32.
        length: the longest text, in words.
    """
    import tensorflow as tf

    path = folder / FOLDER / NAME
    path.parent.mkdir(exist_ok=True)
    # oneDNN stores constant weights in the order that suits the first request,
    # and reorders them anew for a request that wants another one. A short
    # question is what most servers are asked.
    one = ['one [MASK] before the others, as questions are that people ask']
    many = [' '.join(['[MASK]', *['word'] * (n * length // 32)])
            for n in range(1, 33)]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, inputs in signatures.items():
            for texts in (one, many):
                writer.write(prediction_log(signature, inputs, texts))
