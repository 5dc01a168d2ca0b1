"""TensorFlow Serving's messages, as far as the tests read them.

Names and numbers are those of its model.proto, predict.proto,
prediction_log.proto, model_server_config.proto and
session_bundle_config.proto.
"""

import functools

import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf import wrappers_pb2 as wrappers
from tensorflow.core.framework import tensor_pb2

PACKAGE = 'tensorflow.serving'
_TENSOR = tensor_pb2.TensorProto.DESCRIPTOR
_INT64 = wrappers.Int64Value.DESCRIPTOR

# By message the fields: number, name, type, and 'repeated' if it is. A type
# is a scalar's name, a message of this list, or another message's descriptor.
_MESSAGES = {
    'ModelSpec': [
        (1, 'name', 'string'), (2, 'version', _INT64),
        (3, 'signature_name', 'string'),
    ],
    'PredictRequest': [
        (1, 'model_spec', 'ModelSpec'),
        (2, 'inputs', 'PredictRequest.InputsEntry', 'repeated'),
    ],
    'PredictLog': [(1, 'request', 'PredictRequest')],
    'PredictionLog': [(6, 'predict_log', 'PredictLog')],
    'ModelConfig': [
        (1, 'name', 'string'), (2, 'base_path', 'string'),
        (4, 'model_platform', 'string'),
    ],
    'ModelConfigList': [(1, 'config', 'ModelConfig', 'repeated')],
    'ModelServerConfig': [(1, 'model_config_list', 'ModelConfigList')],
    'BatchingParameters': [
        (1, 'max_batch_size', _INT64), (2, 'batch_timeout_micros', _INT64),
        (3, 'max_enqueued_batches', _INT64), (4, 'num_batch_threads', _INT64),
        (6, 'allowed_batch_sizes', 'int64', 'repeated'),
        (7, 'pad_variable_length_inputs', 'bool'),
    ],
}  # fmt: skip


def _add(message, number, name, kind, repeated=None):
    field = message.field.add(number=number, name=name)
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    if isinstance(kind, str) and kind.islower():
        field.type = getattr(field, f'TYPE_{kind.upper()}')
    else:
        field.type = field.TYPE_MESSAGE
        full = kind if isinstance(kind, str) else kind.full_name
        prefix = f'.{PACKAGE}.' if isinstance(kind, str) else '.'
        field.type_name = prefix + full


@functools.cache
def _pool():
    pool = descriptor_pool.DescriptorPool()
    knserving = set()

    def add(file):
        if file.name in knserving:
            return
        knserving.add(file.name)
        for dependency in file.dependencies:
            add(dependency)
        copy = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(copy)
        pool.Add(copy)

    serving = descriptor_pb2.FileDescriptorProto(
        name='serving.proto', package=PACKAGE, syntax='proto3'
    )
    for descriptor in (_TENSOR, _INT64):
        add(descriptor.file)
        serving.dependency.append(descriptor.file.name)
    for name, fields in _MESSAGES.items():
        message = serving.message_type.add(name=name)
        for field in fields:
            _add(message, *field)
    message = serving.message_type[list(_MESSAGES).index('PredictRequest')]
    entry = message.nested_type.add(name='InputsEntry')
    entry.options.map_entry = True
    _add(entry, 1, 'key', 'string')
    _add(entry, 2, 'value', _TENSOR)
    pool.Add(serving)
    return pool


def message(name):
    actual = _pool().FindMessageTypeByName(f'{PACKAGE}.{name}')
    return message_factory.GetMessageClass(actual)


def warmups(version):
    """The signature and the inputs of each request that warms a version up."""
    path = version / 'assets.extra/tf_serving_warmup_requests'
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        log = message('PredictionLog').FromString(record)
        assert log.ByteSize() == len(record)
        request = log.predict_log.request
        assert request.model_spec.name == 'infoword'
        yield request.model_spec.signature_name, {
            name: tf.make_ndarray(tensor)
            for name, tensor in request.inputs.items()
        }
