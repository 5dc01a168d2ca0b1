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
package grpcio besides. Messages of gRPC are written and read here by hand (the
numbers are those of Serving's predict.proto and model.proto and of
TensorFlow's tensor.proto):

    PredictRequest.model_spec = 1, .inputs = 2 (a map: key 1, value 2)
      ModelSpec.name = 1, .version = 2 (a message: value 1),
        .signature_name = 3
    PredictResponse.outputs = 1 (a map)
    TensorProto.dtype = 1, .tensor_shape = 2 (dim 2: size 1),
      .tensor_content = 4, and a list for each type of value, see `_TYPES`
"""

from __future__ import annotations

import argparse
import base64
import collections
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
    1: (5, 'f', float),
    2: (6, 'd', float),
    3: (7, 'i', int),
    7: (8, '', str),
    9: (10, 'q', int),
    10: (11, '?', bool),
}
_STRING = 7


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
            ImportError: grpcio is missing.
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
        columns = {name: _json_texts(texts) for name, texts in inputs.items()}
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


def _json_texts(texts: list[Any]) -> list[Any]:
    """Strings, or lists of them, as Serving reads them from JSON."""
    return [
        _json_texts(t) if isinstance(t, list) else _json_text(t) for t in texts
    ]


def _json_text(text: bytes) -> str | dict[str, str]:
    """A string as Serving reads it from JSON."""
    found = _decoded(text)
    if isinstance(found, str):
        return found
    return {'b64': base64.b64encode(text).decode()}


def _loads(answer: bytes) -> Any:
    """JSON whose strings may hold any byte, as Serving writes them."""
    found = _decoded(answer)
    if isinstance(found, str):
        return json.loads(found)

    def restored(value: Any) -> Any:
        if isinstance(value, str):
            return _decoded(value.encode('utf-8', 'surrogateescape'))
        if isinstance(value, list):
            return [restored(item) for item in value]
        if isinstance(value, dict):
            return {name: restored(item) for name, item in value.items()}
        return value

    return restored(json.loads(found.decode('utf-8', 'surrogateescape')))


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
            import grpc
        except ImportError:
            raise ImportError('grpc:// needs the package grpcio') from None
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
        )
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
        entries = (dict(_fields(v)) for n, v in _fields(answer) if n == 1)
        return {
            entry[1].decode(): _read_tensor(entry.get(2, b''))
            for entry in entries
        }


def predict_request(
    signature: str,
    inputs: dict[str, list[Any]],
    model: str = MODEL,
    version: int | None = None,
) -> bytes:
    """A PredictRequest: `inputs` by name, `version` None is the newest."""
    spec = field(1, model.encode())
    if version is not None:
        spec += field(2, _number(1, version))
    request = field(1, spec + field(3, signature.encode()))
    for name, texts in inputs.items():
        entry = field(1, name.encode()) + field(2, _write_tensor(texts))
        request += field(2, entry)
    return request


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more come."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _number(number: int, value: int) -> bytes:
    """A field that is a whole number, not below 0."""
    return _varint(number << 3) + _varint(value)


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited field of a protocol buffer."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _write_tensor(texts: Sequence[Any]) -> bytes:
    """A TensorProto of strings: of one axis, of two where they lie in lists."""
    sizes = [len(texts)]
    if texts and isinstance(texts[0], list):
        sizes.append(len(texts[0]))
        texts = list(itertools.chain.from_iterable(texts))
    shape = b''.join(field(2, _number(1, size)) for size in sizes)
    values = b''.join(field(8, text) for text in texts)
    return _number(1, _STRING) + field(2, shape) + values


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where the next thing begins."""
    value = shift = 0
    while data[at] > 0x7F:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1


def _varints(data: bytes) -> Iterator[int]:
    """Numbers that are packed."""
    at = 0
    while at < len(data):
        value, at = _read_varint(data, at)
        yield value


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and values of a message: varints are int, all others bytes."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        if key & 7 == 0:
            value, at = _read_varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(key & 7)  # of fixed width
            if size is None:
                size, at = _read_varint(data, at)
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def _read_tensor(data: bytes) -> Any:
    """A TensorProto in lists, as its shape says."""
    parts = collections.defaultdict(list)
    for number, value in _fields(data):
        parts[number].append(value)
    dtype = parts[1][-1] if parts[1] else 0
    if dtype not in _TYPES:
        raise ServingError(f'this client reads no tensors of DataType {dtype}')
    values_of, code, kind = _TYPES[dtype]
    shape = [
        dict(_fields(dim)).get(1, 0)
        for value in parts[2]
        for number, dim in _fields(value)
        if number == 2
    ]
    size = math.prod(shape)
    content = b''.join(parts[4])
    if dtype == _STRING:
        texts = _read_strings(content, size) if content else parts[values_of]
        values = [_decoded(text) for text in texts]
    elif content or kind is float:
        raw = content or b''.join(parts[values_of])
        values = [v for (v,) in struct.iter_unpack('<' + code, raw)]
    else:  # a list is packed, or its values are fields of their own
        values = [
            kind(number - (1 << 64) if number >> 63 else number)
            for value in parts[values_of]
            for number in ([value] if isinstance(value, int)
                           else _varints(value))
        ]
    # The last value stands for all that are left out.
    last = values[-1] if values else kind()
    rest = itertools.repeat(last, size - len(values))
    return _nested(itertools.chain(values, rest), shape)


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
