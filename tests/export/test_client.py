"""The client against servers that read and write with other programs."""

import ast
import base64
import concurrent.futures
import contextlib
import http.server
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

import grpc
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from google.protobuf import text_format
from tensorflow.core.framework import tensor_pb2

from export import comparison
from export.serving import client
from tests.export import protos, workdirs

FILE = pathlib.Path(client.__file__)
TEXTS = [text for text in comparison.NASTY if len(text) < 1000]
MASKED = [text for text in comparison.MASKED if len(text) < 1000]
PLAIN = ['strings in, vectors out', 'a second text', 'naïve 😀 Straße']
LATE = 0.3  # seconds
GIVEN_UP = threading.Event()  # until then nothing late is answered


def read(tensor: bytes):
    """A TensorProto, as the client reads it."""
    return client._read_tensor(client.message('TensorProto').FromString(tensor))


class Refusal(Exception):
    """What a server answers: the status of either protocol, and words."""

    def __init__(self, code, words):
        super().__init__(code, words)
        self.code, self.words = code, words


# Of an export that reads pairs, and of none at all.
OTHERS = {
    'pair': lambda texts, pairs: {
        'joined': tf.strings.join([texts, '|', pairs]),
        'longer': tf.strings.length(texts) > tf.strings.length(pairs),
    },
    'choose': lambda texts, choices: {
        'joined': tf.strings.join(
            [tf.repeat(texts[:, None], choices.shape[1], 1), '|', choices]
        ),
        'choice': tf.argmax(tf.strings.length(choices), 1, tf.int32),
    },
    'echo': lambda texts: {
        'texts': texts,
        'sizes': tf.strings.length(texts) - 4,
        'rank': tf.constant(1, tf.int64),
        'empty': tf.zeros([2, 0, 3]),
        'cube': tf.reshape(tf.range(12.0, dtype=tf.float64), [2, 3, 2]),
    },
    'big': lambda texts: {'zeros': tf.zeros(1_500_000)},
    'late': lambda texts: GIVEN_UP.wait() and {'texts': texts},
}


def functions():
    return dict(workdirs.served().items()) | OTHERS


def predict(model, version, signature, inputs):
    """Answers as a server with the export in version 1 does."""
    if (model, version) not in (('infoword', None), ('infoword', 1)):
        raise Refusal('NOT_FOUND', f'Servable not found: {model}')
    if signature not in functions():
        raise Refusal(
            'INVALID_ARGUMENT',
            f'Serving signature name: "{signature}" not found\n  in there',
        )
    tensors = {k: tf.constant(v, tf.string) for k, v in inputs.items()}
    try:
        return functions()[signature](**tensors)
    except TypeError:
        raise Refusal('INVALID_ARGUMENT', 'other inputs') from None


class Rest(http.server.BaseHTTPRequestHandler):
    """What json_tensor.cc of Serving does with columns."""

    asked = []  # paths

    def do_POST(self):
        path, _, verb = self.path.rpartition(':')
        size = int(self.headers['Content-Length'])
        request = json.loads(self.rfile.read(size).decode())
        self.reply(verb, lambda: self.predict(path, request))

    def do_GET(self):
        path, _, verb = self.path.rpartition('/')
        self.reply(verb, lambda: self.metadata(path))

    def reply(self, verb, answer):
        self.asked.append(self.path)
        assert verb in ('predict', 'metadata'), verb
        try:
            status, found = 200, answer()
        except Refusal as refusal:
            status = {'NOT_FOUND': 404, 'INVALID_ARGUMENT': 400}[refusal.code]
            found = {'error': refusal.words}
        text = json.dumps(found, ensure_ascii=False, indent=4)
        with contextlib.suppress(BrokenPipeError):  # the client waits no more
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode('utf-8', 'surrogateescape'))

    def predict(self, path, request):
        def value(given):
            if isinstance(given, list):
                return [value(item) for item in given]
            if isinstance(given, dict):
                return base64.b64decode(given['b64'], validate=True)
            return given.encode()

        inputs = {k: value(given) for k, given in request['inputs'].items()}
        outputs = predict(*model_of(path), request['signature_name'], inputs)
        columns = {name: column(tensor) for name, tensor in outputs.items()}
        if len(columns) == 1:
            (columns,) = columns.values()
        return {'outputs': columns}

    def metadata(self, path):
        model, version = model_of(path)
        signatures = {
            name: {'outputs': {
                output: {'dtype': 'DT_FLOAT'}
                for output in function.structured_outputs
            }}
            for name, function in workdirs.served().items()
        }  # fmt: skip
        return {
            'model_spec': {'name': model, 'version': version or '1'},
            'metadata': {'signature_def': {'signature_def': signatures}},
        }

    def log_message(self, *_):
        pass


def model_of(path):
    """/v1/models/infoword/versions/1 -> infoword, 1"""
    _, v1, models, name, *version = path.split('/')
    assert (v1, models) == ('v1', 'models'), path
    assert version[:1] in ([], ['versions']), path
    return name, int(version[1]) if version else None


def column(tensor):
    value = tensor.numpy()
    if tensor.dtype == tf.string:  # any bytes, raw
        decode = np.vectorize(
            lambda text: text.decode('utf-8', 'surrogateescape'), otypes='O'
        )
        value = decode(value)
    return value.tolist()


class Grpc(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == '/tensorflow.serving.PredictionService/Predict':
            return grpc.unary_unary_rpc_method_handler(
                self.predict,
                protos.message('PredictRequest').FromString,
                protos.message('PredictResponse').SerializeToString,
            )

    def predict(self, request, context):
        spec = request.model_spec
        version = spec.version.value if spec.HasField('version') else None
        inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
        try:
            outputs = predict(spec.name, version, spec.signature_name, inputs)
        except Refusal as refusal:
            context.abort(grpc.StatusCode[refusal.code], refusal.words)
        answer = protos.message('PredictResponse')()
        answer.model_spec.CopyFrom(spec)
        for name, tensor in outputs.items():
            # Of a class of its own: `protos` has a pool of its own.
            answer.outputs[name].MergeFromString(
                listed(tensor).SerializeToString()
            )
        return answer


def listed(tensor):
    """A TensorProto with a list of values, as Serving writes it."""
    proto = tensor_pb2.TensorProto(
        dtype=tensor.dtype.as_datatype_enum,
        tensor_shape=tensor.shape.as_proto(),
    )
    name = {
        tf.float32: 'float_val', tf.float64: 'double_val', tf.int32: 'int_val',
        tf.int64: 'int64_val', tf.string: 'string_val', tf.bool: 'bool_val',
    }[tensor.dtype]  # fmt: skip
    getattr(proto, name).extend(tensor.numpy().ravel().tolist())
    return proto


def setUpModule():
    workdirs.served()  # in one thread
    own = {'no_proxy': '127.0.0.1', 'NO_PROXY': '127.0.0.1'}
    environment = mock.patch.dict(os.environ, own)
    unittest.enterModuleContext(environment)
    rest = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Rest)
    threading.Thread(target=rest.serve_forever, args=[0.01]).start()
    unittest.addModuleCleanup(rest.server_close)
    unittest.addModuleCleanup(rest.shutdown)
    pool = unittest.enterModuleContext(
        concurrent.futures.ThreadPoolExecutor(2)
    )
    server = grpc.server(pool, [Grpc()])
    port = server.add_insecure_port('127.0.0.1:0')
    server.start()
    unittest.addModuleCleanup(lambda: server.stop(None).wait())
    global URLS
    URLS = {
        'http': f'http://127.0.0.1:{rest.server_port}',
        'grpc': f'grpc://127.0.0.1:{port}',
    }


both = parameterized.parameters('http', 'grpc')


class ClientTest(parameterized.TestCase):
    @both
    def test_embed(self, protocol):
        asked = client.Client(URLS[protocol])
        found = asked.call('embed', texts=[*PLAIN, *TEXTS])
        self.assertEqual(list(found), ['embeddings'])
        wanted = workdirs.loaded().encode([*PLAIN, *TEXTS], progress=False)
        self.assertLess(np.abs(found['embeddings'] - wanted).max(), 1e-6)
        self.assertIsInstance(found['embeddings'][0], list)

    @both
    def test_outputs_of_all_types(self, protocol):
        """Floats, whole numbers and pieces, in the shapes of the tensors."""
        asked = client.Client(URLS[protocol], version=1)
        for signature in ('tokens', 'fill_mask'):
            found = asked.call(signature, texts=MASKED)
            wanted = workdirs.served()[signature](texts=tf.constant(MASKED))
            self.assertEqual(set(found), set(wanted))
            for name, tensor in wanted.items():
                value = np.array(found[name])
                self.assertEqual(value.shape, tensor.shape)
                if tensor.dtype == tf.string:
                    value = np.char.encode(value)
                    self.assertEqual(value.tolist(), tensor.numpy().tolist())
                elif tensor.dtype.is_integer:
                    self.assertEqual(value.tolist(), tensor.numpy().tolist())
                else:
                    self.assertLess(np.abs(value - tensor).max(), 1e-6)

    @both
    def test_any_bytes_and_any_shape(self, protocol):
        found = client.Client(URLS[protocol]).call('echo', texts=TEXTS)

        def text(raw):
            with contextlib.suppress(UnicodeDecodeError):
                return raw.decode()
            return raw

        self.assertEqual(found['texts'], [text(raw) for raw in TEXTS])
        self.assertIn(bytes, map(type, found['texts']))
        self.assertEqual(found['sizes'], [len(raw) - 4 for raw in TEXTS])
        self.assertLess(min(found['sizes']), 0)
        self.assertEqual(found['rank'], 1)
        self.assertEqual(found['empty'], [[], []])
        self.assertEqual(
            found['cube'], np.arange(12.0).reshape(2, 3, 2).tolist()
        )

    def test_answers_of_many_megabytes(self):
        found = client.Client(URLS['grpc']).call('big', texts=[])
        self.assertEqual(found['zeros'], [0.0] * 1_500_000)

    @both
    def test_pairs(self, protocol):
        found = client.Client(URLS[protocol]).call(
            'pair', texts=['one', b'\xff'], pairs=[b'of', '二']
        )
        self.assertEqual(
            found,
            {
                'joined': ['one|of', '\xff|'.encode('latin1') + '二'.encode()],
                'longer': [True, False],
            },
        )
        self.assertIs(found['longer'][0], True)

    @both
    def test_choices(self, protocol):
        found = client.Client(URLS[protocol]).call(
            'choose', texts=['one', '二'], choices=[['of', b'\xff'], ('', 'b')]
        )
        self.assertEqual(
            found,
            {
                'joined': [['one|of', b'one|\xff'], ['二|', '二|b']],
                'choice': [0, 1],
            },
        )

    @both
    def test_choices_that_are_none(self, protocol):
        asked = client.Client(URLS[protocol])
        for choices, error, words in (
            ([['a', 'b'], ['c']], ValueError, 'lists of choices have differe'),
            (['a', ['b']], TypeError, 'choices has to be a list of'),
            ([[1, 2]], TypeError, 'choices has to be a list of'),
        ):
            with self.assertRaisesRegex(error, words):
                asked.call('choose', texts=['a', 'b'], choices=choices)

    @both
    def test_no_texts(self, protocol):
        asked = client.Client(URLS[protocol])
        self.assertEqual(asked.call('embed', texts=[]), {'embeddings': []})

    def test_the_name_of_an_only_output_is_asked_once(self):
        asked = client.Client(URLS['http'] + '/', version=1)
        del Rest.asked[:]
        for signature in ('embed', 'embed', 'fill_mask'):
            asked.call(signature, texts=PLAIN)
        model = '/v1/models/infoword/versions/1'
        verbs = [':predict', '/metadata', ':predict', ':predict']
        self.assertEqual(Rest.asked, [model + verb for verb in verbs])

    @both
    def test_refusals(self, protocol):
        url = URLS[protocol]
        not_found, invalid = {
            'http': ('404', '400'), 'grpc': ('NOT_FOUND', 'INVALID_ARGUMENT'),
        }[protocol]  # fmt: skip
        for arguments, signature, inputs, words in (
            ({}, 'nope', {'texts': ['a']},
             f'{invalid}: Serving signature name: "nope" not found in there'),
            ({}, 'pair', {'texts': ['a']}, f'{invalid}: other inputs'),
            ({'model': 'other'}, 'embed', {'texts': ['a']},
             f'{not_found}: Servable not found: other'),
            ({'version': 2}, 'embed', {'texts': ['a']},
             f'{not_found}: Servable not found: infoword'),
        ):  # fmt: skip
            asked = client.Client(url, **arguments)
            with self.assertRaises(client.ServingError) as caught:
                asked.call(signature, **inputs)
            self.assertEqual(str(caught.exception), f'{url} answered {words}')

    @both
    def test_no_server(self, protocol):
        with socket.socket() as taken:  # nobody listens, and nobody else will
            taken.bind(('127.0.0.1', 0))
            url = f'{protocol}://127.0.0.1:{taken.getsockname()[1]}'
            with self.assertRaisesRegex(
                client.ServingError, f'{url} cannot be reached: .*refused'
            ):
                client.Client(url).call('embed', texts=['a'])

    @both
    def test_timeout(self, protocol):
        GIVEN_UP.clear()
        self.addCleanup(GIVEN_UP.set)
        asked = client.Client(URLS[protocol], timeout=LATE)
        with self.assertRaisesRegex(
            client.ServingError,
            f'{URLS[protocol]} did not answer within {LATE} seconds',
        ):
            asked.call('late', texts=['a'])

    @parameterized.parameters(
        (200, b'<html>', 'answered no JSON'),
        (200, b'[]', 'answered without outputs'),
        (200, b'{"outputs": [1]}', 'does not say what embed gives'),
        (503, b'<html>', 'answered 503: Service Unavailable'),
    )
    def test_a_server_of_something_else(self, status, answer, words):
        class Other(Rest):
            def do_POST(self):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST

        with http.server.HTTPServer(('127.0.0.1', 0), Other) as server:
            threading.Thread(target=server.serve_forever, args=[0.01]).start()
            url = f'http://127.0.0.1:{server.server_port}'
            try:
                with self.assertRaisesRegex(client.ServingError, words):
                    client.Client(url).call('embed', texts=['a'])
            finally:
                server.shutdown()

    @both
    def test_what_is_no_list_of_texts(self, protocol):
        asked = client.Client(URLS[protocol])
        for texts in ('a text', b'a text', [1], [['a'], 'b'], [[1]]):
            with self.assertRaisesRegex(TypeError, 'texts has to be a list'):
                asked.call('embed', texts=texts)
        with self.assertRaisesRegex(UnicodeEncodeError, 'surrogates'):
            asked.call('embed', texts=['\ud800'])

    def test_urls(self):
        for url in ('localhost:8501', '127.0.0.1', 'ftp://a:1', 'http:', ''):
            with self.assertRaisesRegex(ValueError, 'http://HOST:PORT'):
                client.Client(url)

    def test_grpcio_is_missing(self):
        with mock.patch.dict(sys.modules, {'grpc': None}):
            client.Client(URLS['http'])
            with self.assertRaisesRegex(ImportError, 'packages grpcio and'):
                client.Client(URLS['grpc'])


class TensorTest(parameterized.TestCase):
    """What TensorFlow reads in a TensorProto, the client reads."""

    @parameterized.parameters(
        'dtype: DT_FLOAT float_val: [0.5, -1.25]'
        ' tensor_shape { dim { size: 2 } dim { size: 2 } }',
        'dtype: DT_INT32 int_val: [-1] tensor_shape { dim { size: 3 } }',
        'dtype: DT_INT64 int64_val: [-9223372036854775808, 5]'
        ' tensor_shape { dim { size: 2 } }',
        'dtype: DT_DOUBLE tensor_shape { dim { size: 2 } }',
        'dtype: DT_STRING tensor_shape { dim { size: 2 } }',
        'dtype: DT_STRING string_val: "a" tensor_shape { dim { size: 2 } }',
        'dtype: DT_BOOL bool_val: [true, false]'
        ' tensor_shape { dim { size: 3 } }',
        'dtype: DT_BOOL bool_val: true tensor_shape { }',
        r'dtype: DT_BOOL tensor_content: "\000\001"'
        ' tensor_shape { dim { size: 2 } }',
        r'dtype: DT_INT32 tensor_content: "\001\000\000\200"'
        ' tensor_shape { dim { size: 1 } }',
        r'dtype: DT_FLOAT tensor_content: "\000\000\200\277"'
        ' tensor_shape { dim { size: 1 } }',
        r'dtype: DT_STRING tensor_content: "\001\000\002abc"'
        ' tensor_shape { dim { size: 3 } }',
    )
    def test_lists_and_content(self, written):
        proto = tensor_pb2.TensorProto()
        text_format.Parse(written, proto)
        wanted = tf.io.parse_tensor(proto.SerializeToString(), proto.dtype)
        found = read(proto.SerializeToString())
        if proto.dtype == tf.string:
            self.assertEqual([s.encode() for s in found], list(wanted.numpy()))
        else:
            self.assertEqual(found, wanted.numpy().tolist())

    def test_values_that_are_not_packed(self):
        """As proto2 writes them, and as every parser has to read them."""
        shape = b'\x12\x04\x12\x02\x08\x02'
        for dtype, values, wanted in (
            (b'\x08\x03', b'\x38\x05\x38\x06', [5, 6]),
            (b'\x08\x01', b'\x2d\0\0\x80\x3f\x2d\0\0\0\x40', [1.0, 2.0]),
        ):
            data = dtype + shape + values
            proto = tensor_pb2.TensorProto.FromString(data)
            self.assertEqual(tf.make_ndarray(proto).tolist(), wanted)
            self.assertEqual(read(data), wanted)

    def test_other_types(self):
        proto = tf.make_tensor_proto([1j])
        with self.assertRaisesRegex(client.ServingError, 'DataType 18'):
            read(proto.SerializeToString())


class CommandTest(parameterized.TestCase):
    """Of a copy, in a Python that has its standard library alone."""

    def run_copy(self, *arguments, isolated=True, **more):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(FILE, folder)
            flags = ['-I', '-S'] if isolated else ['-I']
            return subprocess.run(
                [sys.executable, *flags, copy, *arguments],
                capture_output=True, check=False, cwd=folder, **more,
            )  # fmt: skip

    @both
    def test_embed(self, protocol):
        texts = [PLAIN[0], b'\xff\xfe no UTF-8 \xc3']
        done = self.run_copy(
            f'--url={URLS[protocol]}', '--signature=embed', *texts,
            isolated=protocol == 'http',
        )  # fmt: skip
        self.assertEqual(done.stderr, b'')
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([list(row) for row in rows], [['embeddings']] * 2)
        found = np.array([row['embeddings'] for row in rows])
        wanted = workdirs.loaded().encode(texts, progress=False)
        self.assertLess(np.abs(found - wanted).max(), 1e-6)

    def test_lines_of_pairs(self):
        done = self.run_copy(
            f'--url={URLS["http"]}', '--signature=pair', '--pair',
            input=b'one\tof\tmany\n\xff\tlast\n',
        )  # fmt: skip
        self.assertEqual(done.stderr, b'')
        self.assertEqual(
            [json.loads(line) for line in done.stdout.splitlines()],
            [
                {'joined': 'one|of\tmany', 'longer': False},
                {
                    'joined': {
                        'b64': base64.b64encode(b'\xff|last').decode()
                    },
                    'longer': False,
                },
            ],
        )

    def test_lines_of_choices(self):
        done = self.run_copy(
            f'--url={URLS["http"]}', '--signature=choose', '--choices',
            input=b'one\tof\tmany\ntwo\tlasting\tof\n',
        )  # fmt: skip
        self.assertEqual(done.stderr, b'')
        self.assertEqual(
            [json.loads(line) for line in done.stdout.splitlines()],
            [
                {'joined': ['one|of', 'one|many'], 'choice': 1},
                {'joined': ['two|lasting', 'two|of'], 'choice': 0},
            ],
        )

    def test_complaints(self):
        for arguments, words in (
            (('--signature=nope', 'a'), b'error: http.* signature name.*nope'),
            (('--pair', 'a\tb', 'c'), b'error: text 2 has no tab'),
            (('--choices', 'a'), b'error: text 1 has no tab, for --choices'),
            (('--choices', 'a\tb', 'c\td\te'), b'error: lists of choices'),
            (('--url=here', 'a'), b"error: 'here' is neither"),
        ):
            done = self.run_copy(f'--url={URLS["http"]}', *arguments)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stdout, b'')
            self.assertRegex(done.stderr, words)
            self.assertLen(done.stderr.splitlines(), 1)

    def test_imports(self):
        """The standard library; two packages where grpc is asked for."""
        tree = ast.parse(FILE.read_text())

        def names(nodes):
            for node in nodes:
                if isinstance(node, ast.Import):
                    yield from (a.name.split('.')[0] for a in node.names)
                elif isinstance(node, ast.ImportFrom):
                    yield node.module.split('.')[0]

        above = set(names(tree.body))
        self.assertContainsSubset(above, sys.stdlib_module_names)
        more = set(names(ast.walk(tree))) - above
        self.assertEqual(more, {'grpc', 'google'})


if __name__ == '__main__':
    absltest.main()
