"""The client against a server that answers as TensorFlow Serving does."""

import base64
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

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from export import comparison
from export.serving import client

FILE = pathlib.Path(client.__file__)
TEXTS = [text for text in comparison.NASTY if len(text) < 1000]
PLAIN = ['strings in, vectors out', 'a second text', 'naïve 😀 Straße']
LATE = 0.3  # seconds
GIVEN_UP = threading.Event()  # until then nothing late is answered


class Refusal(Exception):
    """Answer of a server that refuses: a status, and words."""


def embed(texts):
    """Vectors [n, 2] of a text's length: its half, and its square."""
    size = tf.cast(tf.strings.length(texts), tf.float32)
    return {'embeddings': tf.stack([size / 2, size**2], axis=1)}


# What the server has, by signature.
FUNCTIONS = {
    'embed': embed,
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
    'late': lambda texts: GIVEN_UP.wait() and {'texts': texts},
}


def predict(model, version, signature, inputs):
    """Answers as a server with the export in version 1 does."""
    if (model, version) not in (('infoword', None), ('infoword', 1)):
        raise Refusal(404, f'Servable not found: {model}')
    if signature not in FUNCTIONS:
        name = f'Serving signature name: "{signature}"'
        raise Refusal(400, f'{name} not found\n  in there')
    try:
        tensors = {k: tf.constant(v, tf.string) for k, v in inputs.items()}
        return FUNCTIONS[signature](**tensors)
    except (TypeError, ValueError, tf.errors.InvalidArgumentError):
        raise Refusal(400, 'other inputs') from None


class Rest(http.server.BaseHTTPRequestHandler):
    """Stand-in for json_tensor.cc of Serving, for what it does with columns."""

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
            status, actual = 200, answer()
        except Refusal as refusal:
            status, words = refusal.args
            actual = {'error': words}
        text = json.dumps(actual, ensure_ascii=False, indent=4)
        with contextlib.suppress(BrokenPipeError):  # the client waits no more
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode('utf-8', 'surrogateescape'))

    def predict(self, path, request):
        def value(proto):
            if isinstance(proto, list):
                return [value(item) for item in proto]
            if isinstance(proto, dict):
                return base64.b64decode(proto['b64'], validate=True)
            return proto.encode()

        inputs = {k: value(proto) for k, proto in request['inputs'].items()}
        outputs = predict(*model_of(path), request['signature_name'], inputs)
        columns = {name: column(tensor) for name, tensor in outputs.items()}
        if len(columns) == 1:
            (columns,) = columns.values()
        return {'outputs': columns}

    def metadata(self, path):
        model, version = model_of(path)
        signatures = {
            name: {'outputs': {output: {'dtype': kind}}}
            for name, output, kind in (
                ('late', 'texts', 'DT_STRING'),
                ('embed', 'embeddings', 'DT_FLOAT'),
            )
        }
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
    if tensor.dtype == tf.string:  # any bytes, raw
        return np.vectorize(os.fsdecode, otypes='O')(tensor.numpy()).tolist()
    return tensor.numpy().tolist()


def setUpModule():
    environ = {'no_proxy': '127.0.0.1', 'NO_PROXY': '127.0.0.1'}
    environment = mock.patch.dict(os.environ, environ)
    unittest.enterModuleContext(environment)
    rest = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Rest)
    threading.Thread(target=rest.serve_forever, args=[0.01]).start()
    unittest.addModuleCleanup(rest.server_close)
    unittest.addModuleCleanup(rest.shutdown)
    global URL
    URL = f'http://127.0.0.1:{rest.server_port}'


class ClientTest(parameterized.TestCase):
    def test_any_bytes_and_any_shape(self):
        actual = client.Client(URL).call('echo', texts=TEXTS)
        self.assertEqual(actual['texts'], [os.fsdecode(raw) for raw in TEXTS])
        self.assertTrue(any('\udc80' <= max(x, default='') <= '\udcff'
                            for x in actual['texts']))
        self.assertEqual(actual['sizes'], [len(raw) - 4 for raw in TEXTS])
        self.assertLess(min(actual['sizes']), 0)
        self.assertEqual(actual['rank'], 1)
        self.assertEqual(actual['empty'], [[], []])
        self.assertEqual(
            actual['cube'], np.arange(12.0).reshape(2, 3, 2).tolist()
        )

    def test_second_inputs_and_no_texts(self):
        for signature, inputs, expected in (
            ('pair', {'texts': ['one', b'\xff'], 'pairs': [b'of', '二']},
             {'joined': ['one|of', '\udcff|二'], 'longer': [True, False]}),
            ('choose',
             {'texts': ['one', '二'], 'choices': [['of', b'\xff'], ('', 'b')]},
             {'joined': [['one|of', 'one|\udcff'], ['二|', '二|b']],
              'choice': [0, 1]}),
            ('embed', {'texts': []}, {'embeddings': []}),
        ):  # fmt: skip
            actual = client.Client(URL).call(signature, **inputs)
            self.assertEqual(actual, expected)
            # Truth is no number.
            self.assertEqual(repr(actual), repr(expected))

    def test_the_name_of_an_only_output_is_asked_once(self):
        asked = client.Client(URL + '/', version=1)
        del Rest.asked[:]
        for signature in ('embed', 'embed', 'echo'):
            asked.call(signature, texts=PLAIN)
        model = '/v1/models/infoword/versions/1'
        verbs = [':predict', '/metadata', ':predict', ':predict']
        self.assertEqual(Rest.asked, [model + verb for verb in verbs])

    def test_refusals(self):
        lists = [['a', 'b'], ['c']]
        for arguments, signature, inputs, words in (
            ({}, 'nope', {'texts': ['a']},
             '400: .*Serving signature name: .*nope.* not found.* in there'),
            ({}, 'pair', {'texts': ['a']}, '400: .*other inputs'),
            ({}, 'choose', {'texts': ['a', 'b'], 'choices': lists},
             '400: .*other inputs'),
            ({}, 'embed', {'texts': 'a text'}, '400: .*other inputs'),
            ({'model': 'other'}, 'embed', {'texts': ['a']},
             '404: .*Servable not found: other'),
            ({'version': 2}, 'embed', {'texts': ['a']},
             '404: .*Servable not found: infoword'),
        ):  # fmt: skip
            asked = client.Client(URL, **arguments)
            with self.assertRaisesRegex(
                client.ServingError, f'^{URL} answered {words}'
            ):
                asked.call(signature, **inputs)

    def test_no_answer(self):
        with socket.socket() as taken:  # nobody listens, and nobody else will
            taken.bind(('127.0.0.1', 0))
            nobody = f'http://127.0.0.1:{taken.getsockname()[1]}'
            GIVEN_UP.clear()
            self.addCleanup(GIVEN_UP.set)
            for url, signature, why in (
                (nobody, 'embed', '.*refused'), (URL, 'late', 'timed out')
            ):  # fmt: skip
                asked = client.Client(url, timeout=LATE)
                with self.assertRaisesRegex(
                    client.ServingError, f'{url} cannot be reached: {why}'
                ):
                    asked.call(signature, texts=['a'])

    @parameterized.parameters(
        (200, b'<html>', 'is no TensorFlow Serving'),
        (200, b'[]', 'is no TensorFlow Serving'),
        (200, b'{"outputs": [1]}', 'is no TensorFlow Serving'),
        (503, b'<p>\xff\n busy', 'answered 503: <p>\ufffd busy'),
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

    def test_what_is_no_list_of_texts(self):
        for texts in ([object()], {1}, [{'a', 'b'}]):
            with self.assertRaisesRegex(TypeError, 'bytes-like object'):
                client.Client(URL).call('embed', texts=texts)

    def test_urls(self):
        for url in ('localhost:8501', 'grpc://a:1', 'ftp://a:1', 'http:', ''):
            with self.assertRaisesRegex(ValueError, 'is not http://HOST:PORT'):
                client.Client(url)
        with self.assertRaisesRegex(client.ServingError, 'cannot be reached'):
            client.Client('http://').call('embed', texts=[])


class CommandTest(parameterized.TestCase):
    """Client copied alone, in a Python that has its standard library only."""

    def run_copy(self, *arguments, **more):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(FILE, folder)
            return subprocess.run(
                [sys.executable, '-I', '-S', copy, *arguments],
                capture_output=True, check=False, cwd=folder, **more,
            )  # fmt: skip

    def test_embed(self):
        texts = [PLAIN[0], b'\xff\xfe no UTF-8 \xc3']
        done = self.run_copy(f'--url={URL}', '--signature=embed', *texts)
        self.assertEqual(done.stderr, b'')
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        sizes = [len(text) for text in texts]
        self.assertEqual(rows, [{'embeddings': [n / 2, n**2]} for n in sizes])

    @parameterized.parameters(
        ('pair', '--pair', b'one\tof\tmany\n\xff\tlast\n', [
            {'joined': 'one|of\tmany', 'longer': False},
            {'joined': '\udcff|last', 'longer': False},
        ]),
        ('choose', '--choices', b'one\tof\tmany\ntwo\tlasting\tof\n', [
            {'joined': ['one|of', 'one|many'], 'choice': 1},
            {'joined': ['two|lasting', 'two|of'], 'choice': 0},
        ]),
    )  # fmt: skip
    def test_lines_of_several(self, signature, flag, lines, expected):
        done = self.run_copy(
            f'--url={URL}', f'--signature={signature}', flag, input=lines
        )
        self.assertEqual(done.stderr, b'')
        actual = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(actual, expected)

    def test_complaints(self):
        for arguments, words in (
            (('--signature=nope', 'a'), b'error: http.* signature name.*nope'),
            (('--pair', 'a\tb', 'c'), b"error: b'c' has no tab"),
            (('--choices', 'a'), b"error: b'a' has no tab"),
            (('--signature=choose', '--choices', 'a\tb', 'c\td\te'),
             b'error: http.* answered 400: '),
            (('--url=here', 'a'), b"error: 'here' is not http://HOST:PORT"),
        ):
            done = self.run_copy(f'--url={URL}', *arguments)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stdout, b'')
            self.assertRegex(done.stderr, words)
            self.assertLen(done.stderr.splitlines(), 1)
