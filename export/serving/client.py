"""Asks an export that TensorFlow Serving serves, by REST or by gRPC.

    client = Client('http://localhost:8501')        # or 'grpc://localhost:8500'
    client.call('embed', texts=['strings in'])      # {'embeddings': [[...]]}

    python client.py --url=http://localhost:8501 --signature=embed "strings in"
    python client.py --url=grpc://localhost:8500 --signature=embed < lines
    python client.py --pair "a text<TAB>and its second"
    python client.py --choices "a text<TAB>one choice<TAB>another"

As a command it prints one JSON object for each text; without a text on the
command line every line of standard input is one, and all are one request.

This file stands alone: copy it. REST needs the standard library, gRPC the
packages grpcio and protobuf besides.
"""

from __future__ import annotations

import argparse
import base64
import functools
import http.client
import itertools
import json
import math
import os
import struct
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

MODEL = 'infoword'  # as in models.config
SIGNATURE = 'serving_default'
METHOD = '/tensorflow.serving.PredictionService/Predict'

# By DataType: the field of TensorProto, the code in `struct`, the type here.
_TYPES = {
    1: ('float_val', 'f', float),
    2: ('double_val', 'd', float),
    3: ('int_val', 'i', int),
    7: ('string_val', '', str),
    9: ('int64_val', 'q', int),
    10: ('bool_val', '?', bool),
}
_STRING = 7
# What is used of Serving's predict.proto, model.proto and prediction_log.proto
# and of TensorFlow's tensor.proto; a star for lists. On the wire a map is a
# list of entries.
_MESSAGES = {
    'Version': {'value': (1, 'int64')},
    'ModelSpec': {
        'name': (1, 'string'),
        'version': (2, 'Version'),
        'signature_name': (3, 'string'),
    },
    'Dim': {'size': (1, 'int64')},
    'Shape': {'dim': (2, '*Dim')},
    'TensorProto': {
        'dtype': (1, 'int32'),
        'tensor_shape': (2, 'Shape'),
        'tensor_content': (4, 'bytes'),
        'float_val': (5, '*float'),
        'double_val': (6, '*double'),
        'int_val': (7, '*int32'),
        'string_val': (8, '*bytes'),
        'int64_val': (10, '*int64'),
        'bool_val': (11, '*bool'),
    },
    'Entry': {'key': (1, 'string'), 'value': (2, 'TensorProto')},
    'PredictRequest': {
        'model_spec': (1, 'ModelSpec'), 'inputs': (2, '*Entry'),
    },
    'PredictResponse': {'outputs': (1, '*Entry')},
    'PredictLog': {'request': (1, 'PredictRequest')},
    'PredictionLog': {'predict_log': (6, 'PredictLog')},
}  # fmt: skip


class ServingError(Exception):
    """No answer, or a refusal; the message has the server's own words."""


class Client:
    """A model on a server. Threads may share one."""

    def __init__(
        self,
        url: str,
        model: str = MODEL,
        version: int | None = None,
        timeout: float = 60.0,
    ):
        """Connects to nothing yet.

        Args:
            url: http://HOST:PORT or https://HOST:PORT (REST), or
                grpc://HOST:PORT, which is not encrypted.
            model: its name there.
            version: None is the newest.
            timeout: seconds that an answer may take. REST has them anew
                whenever something arrives.

        Raises:
            ValueError: `url` is none of these.
            ImportError: grpcio or protobuf is missing.
        """
        kinds = {'http': _Rest, 'https': _Rest, 'grpc': _Grpc}
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in kinds or not parts.netloc:
            raise ValueError(
                f'{url!r} is neither http://HOST:PORT nor grpc://HOST:PORT'
            )
        self._ask = kinds[parts.scheme](url, model, version, timeout)

    def call(
        self, signature: str, /, **inputs: Sequence[Any]
    ) -> dict[str, Any]:
        """Asks once; nothing is tried again.

        Args:
            signature: embed, tokens, ...
            **inputs: by name, texts, or of choices as many lists of them, all
                of one length; bytes need not be UTF-8.

        Returns:
            The outputs by name: lists in lists, as the shape of the tensor
            says. Strings are str, or bytes where they are no UTF-8.

        Raises:
            ServingError: there was no answer, or a refusal.
            TypeError: an input is no list of str or bytes, nor of such lists.
            UnicodeEncodeError: a str has half a surrogate pair.
            ValueError: lists of an input have different lengths.
        """
        return self._ask.predict(
            signature, {name: _encoded(name, v) for name, v in inputs.items()}
        )


def _encoded(name: str, texts: Sequence[Any]) -> list[Any]:
    """Texts as bytes, or lists of them as such lists."""
    nested = bool(texts) and all(isinstance(t, (list, tuple)) for t in texts)
    if nested and isinstance(texts, (list, tuple)):
        if len({len(row) for row in texts}) > 1:
            raise ValueError(f'lists of {name} have different lengths')
        return [_encoded(name, row) for row in texts]
    encoded = [t.encode() if isinstance(t, str) else t for t in texts]
    alone = isinstance(texts, (str, bytes))  # a list of its characters
    if alone or not all(isinstance(text, bytes) for text in encoded):
        raise TypeError(f'{name} has to be a list of str or bytes')
    return encoded


def _decoded(text: bytes) -> str | bytes:
    """A str where it can be one."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text


# -------------------------------------------------------------------- REST


class _Rest:
    """JSON over HTTP, on port 8501."""

    def __init__(
        self, url: str, model: str, version: int | None, timeout: float
    ):
        self.url, self.timeout = url, timeout
        self.model = f'{url.rstrip("/")}/v1/models/{urllib.parse.quote(model)}'
        if version is not None:
            self.model += f'/versions/{version}'
        self.names: dict[str, str] = {}  # by signature, of an only output

    def predict(
        self, signature: str, inputs: dict[str, list[Any]]
    ) -> dict[str, Any]:
        """All inputs in columns, and so the outputs."""
        columns = {name: _json_text(texts) for name, texts in inputs.items()}
        body = {'signature_name': signature, 'inputs': columns}
        answer = self.load(':predict', json.dumps(body).encode())
        if not isinstance(answer, dict) or 'outputs' not in answer:
            raise ServingError(f'{self.url} answered without outputs')
        outputs = answer['outputs']
        if isinstance(outputs, dict):
            return outputs
        # An only output comes without its name.
        if signature not in self.names:
            self.names[signature] = self.only_output(signature)
        return {self.names[signature]: outputs}

    def only_output(self, signature: str) -> str:
        """The name of the output of a signature that has one."""
        answer = self.load('/metadata')
        try:
            signatures = answer['metadata']['signature_def']['signature_def']
            (name,) = signatures[signature]['outputs']
        except (KeyError, TypeError, ValueError):
            raise ServingError(
                f'{self.url} does not say what {signature} gives'
            ) from None
        return name

    def load(self, path: str, body: bytes | None = None) -> Any:
        """What the server answers, as JSON."""
        request = urllib.request.Request(
            self.model + path, body, {'Content-Type': 'application/json'}
        )
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as file:
                answer = file.read()
        except urllib.error.HTTPError as error:
            raise ServingError(
                f'{self.url} answered {error.code}: {_said(error)}'
            ) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, 'reason', error)
            if isinstance(reason, TimeoutError):
                raise _too_late(self.url, self.timeout) from None
            raise ServingError(
                f'{self.url} cannot be reached: {reason}'
            ) from None
        try:
            return _loads(answer)
        except ValueError:
            raise ServingError(f'{self.url} answered no JSON') from None


def _json_text(text: bytes | list[Any]) -> Any:
    """A string, or a list of such, as Serving reads it from JSON."""
    if isinstance(text, list):
        return [_json_text(part) for part in text]
    decoded = _decoded(text)
    if isinstance(decoded, str):
        return decoded
    return {'b64': base64.b64encode(text).decode()}


def _loads(answer: bytes) -> Any:
    """JSON whose strings may hold any byte, as Serving writes them."""
    decoded = _decoded(answer)
    if isinstance(decoded, str):
        return json.loads(decoded)

    def restored(value: Any) -> Any:
        if isinstance(value, str):
            return _decoded(value.encode('utf-8', 'surrogateescape'))
        if isinstance(value, list):
            return [restored(item) for item in value]
        if isinstance(value, dict):
            return {name: restored(item) for name, item in value.items()}
        return value

    return restored(json.loads(decoded.decode('utf-8', 'surrogateescape')))


def _said(error: urllib.error.HTTPError) -> str:
    """Serving's words, or those of HTTP."""
    try:
        return ' '.join(_loads(error.read())['error'].split())
    except (
        OSError, http.client.HTTPException,
        AttributeError, KeyError, TypeError, ValueError,
    ):  # fmt: skip
        return str(error.reason)


def _too_late(url: str, timeout: float) -> ServingError:
    return ServingError(f'{url} did not answer within {timeout:g} seconds')


# -------------------------------------------------------------------- gRPC


class _Grpc:
    """Protocol buffers over HTTP/2, on port 8500."""

    def __init__(
        self, url: str, model: str, version: int | None, timeout: float
    ):
        try:
            import google.protobuf
            import grpc
        except ImportError:
            raise ImportError(
                'grpc:// needs the packages grpcio and protobuf'
            ) from None
        del google
        self.url, self.timeout, self.error = url, timeout, grpc.RpcError
        self.model, self.version = model, version
        channel = grpc.insecure_channel(
            urllib.parse.urlsplit(url).netloc,
            [
                ('grpc.max_receive_message_length', -1),  # 4 MB otherwise
                ('grpc.enable_retries', 0),
            ],
        )
        self.ask = channel.unary_unary(METHOD)

    def predict(
        self, signature: str, inputs: dict[str, list[Any]]
    ) -> dict[str, Any]:
        """A PredictRequest, and what its PredictResponse holds."""
        request = predict_request(
            signature, inputs, self.model, self.version
        ).SerializeToString()
        try:
            answer = self.ask(request, timeout=self.timeout)
        except self.error as error:
            code = error.code().name
            said = ' '.join((error.details() or 'no words').split())
            if code == 'DEADLINE_EXCEEDED':
                raise _too_late(self.url, self.timeout) from None
            if code == 'UNAVAILABLE':
                said = f'{self.url} cannot be reached: {said}'
            else:
                said = f'{self.url} answered {code}: {said}'
            raise ServingError(said) from None
        outputs = message('PredictResponse').FromString(answer).outputs
        return {entry.key: _read_tensor(entry.value) for entry in outputs}


@functools.cache
def message(name: str) -> Any:
    """The class of one of `_MESSAGES`, which protobuf makes."""
    from google.protobuf import message_factory

    found = _pool().FindMessageTypeByName(f'client.{name}')
    return message_factory.GetMessageClass(found)


@functools.cache
def _pool() -> Any:
    """All of `_MESSAGES`, apart from those of the same names elsewhere."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    file = descriptor_pb2.FileDescriptorProto(
        name='client.proto', package='client', syntax='proto3'
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        made = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            listed, kind = kind.startswith('*'), kind.lstrip('*')
            added = made.field.add(
                name=field,
                number=number,
                label=kinds.LABEL_REPEATED if listed else kinds.LABEL_OPTIONAL,
            )
            if kind in _MESSAGES:
                added.type_name = f'.client.{kind}'
                kind = 'message'
            added.type = kinds.Type.Value(f'TYPE_{kind.upper()}')
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def predict_request(
    signature: str,
    inputs: dict[str, list[Any]],
    model: str = MODEL,
    version: int | None = None,
) -> Any:
    """A PredictRequest: `inputs` by name, `version` None is the newest."""
    request = message('PredictRequest')()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    if version is not None:
        request.model_spec.version.value = version
    for name, texts in inputs.items():
        value = request.inputs.add(key=name).value
        value.dtype = _STRING
        value.tensor_shape.dim.add(size=len(texts))
        if texts and isinstance(texts[0], list):  # of two axes
            value.tensor_shape.dim.add(size=len(texts[0]))
            texts = itertools.chain.from_iterable(texts)
        value.string_val.extend(texts)
    return request


def _read_tensor(tensor: Any) -> Any:
    """A TensorProto in lists, as its shape says."""
    if tensor.dtype not in _TYPES:
        raise ServingError(
            f'this client reads no tensors of DataType {tensor.dtype}'
        )
    field, code, kind = _TYPES[tensor.dtype]
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    size, content = math.prod(shape), tensor.tensor_content
    values = getattr(tensor, field)
    if tensor.dtype == _STRING:
        texts = _read_strings(content, size) if content else values
        values = [_decoded(text) for text in texts]
    elif content:
        values = [v for (v,) in struct.iter_unpack('<' + code, content)]
    # The last value stands for all that are left out.
    last = values[-1] if values else kind()
    rest = itertools.repeat(last, size - len(values))
    return _nested(itertools.chain(values, rest), shape)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, seven bits a byte, and where the next thing begins."""
    value = shift = 0
    while data[at] > 0x7F:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1


def _read_strings(content: bytes, count: int) -> Iterator[bytes]:
    """Strings of `tensor_content`: first all lengths, then all bytes."""
    lengths, at = [], 0
    for _ in range(count):
        length, at = _read_varint(content, at)
        lengths.append(length)
    for length in lengths:
        yield content[at : at + length]
        at += length


def _nested(values: Iterator[Any], shape: Sequence[int]) -> Any:
    """Values of a tensor as lists in lists; of no axis, the value."""
    if not shape:
        return next(values)
    if len(shape) == 1:
        return list(itertools.islice(values, shape[0]))
    return [_nested(values, shape[1:]) for _ in range(shape[0])]


# ----------------------------------------------------------------- command


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description='Asks an export that TensorFlow Serving serves.'
    )
    parser.add_argument(
        '--url', default='http://localhost:8501',
        help='http://HOST:PORT or grpc://HOST:PORT (%(default)s)')
    parser.add_argument('--model', default=MODEL, help='(%(default)s)')
    parser.add_argument('--version', type=int, help='(the newest)')
    parser.add_argument(
        '--signature', default=SIGNATURE,
        help='(%(default)s, what the model was trained for)')
    more = parser.add_mutually_exclusive_group()
    more.add_argument(
        '--pair', action='store_true', help='texts are TEXT<TAB>SECOND')
    more.add_argument(
        '--choices', action='store_true',
        help='texts are TEXT<TAB>CHOICE<TAB>CHOICE...')
    parser.add_argument(
        '--timeout', type=float, default=60.0, help='seconds (%(default)g)')
    parser.add_argument(
        'texts', nargs='*', metavar='TEXT',
        help='(the lines of standard input)')
    return parser.parse_args()


def main() -> None:
    """The command."""
    given = _arguments()
    texts = [os.fsencode(text) for text in given.texts]
    if not texts:
        texts = [line.rstrip(b'\r\n') for line in sys.stdin.buffer]
    try:
        inputs: dict[str, list[Any]] = {'texts': texts}
        if given.pair or given.choices:
            parts = [t.split(b'\t', 1 if given.pair else -1) for t in texts]
            for number, part in enumerate(parts, 1):
                if len(part) < 2:
                    flag = 'pair' if given.pair else 'choices'
                    raise ValueError(f'text {number} has no tab, for --{flag}')
            inputs = {'texts': [part[0] for part in parts]}
            if given.pair:
                inputs['pairs'] = [part[1] for part in parts]
            else:
                inputs['choices'] = [part[1:] for part in parts]
        client = Client(given.url, given.model, given.version, given.timeout)
        outputs = client.call(given.signature, **inputs)
    except (ServingError, ValueError, ImportError) as error:
        sys.exit(f'error: {error}')
    for row in zip(*outputs.values(), strict=True):
        print(json.dumps(dict(zip(outputs, row, strict=True)),
                         default=_json_text))


if __name__ == '__main__':
    main()
