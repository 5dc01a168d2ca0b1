"""An export as TensorFlow Serving loads it: by C, by its configuration."""

import functools
import json
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

import numpy as np
import tensorflow as tf
import tensorflow_text
from absl.testing import absltest, parameterized
from google.protobuf import text_format

import infoword_tf
from export import bundle, comparison, serving_ops
from tests.export import (
    answering,
    converted,
    critics,
    finetuned,
    protos,
    workdirs,
)

HERE = pathlib.Path(__file__).parent
SERVING = HERE.parent.parent / 'export' / 'serving'
TENSORFLOW = pathlib.Path(tf.__file__).parent
TEXT = pathlib.Path(tensorflow_text.__file__).parent / 'python' / 'ops'
LINKED = [
    TENSORFLOW / f'libtensorflow_{part}.so.2' for part in ('cc', 'framework')
]
# The libraries have 1.3 GB, for which the other linker takes ten seconds.
LINKER = ['-fuse-ld=gold'] if shutil.which('ld.gold') else []


def setUpModule():
    global MODEL
    MODEL = workdirs.exported()


FEW = [b'a cab.', b'', b'x y z ' * 40, *comparison.NASTY[:9]]
# By what servers link: kinds of exports. All of them for those that lack most.
OLDEST, *OTHERS = serving_ops.TEXT_LIBRARIES


def asked_of(kinds, few):
    """Every kind with the libraries of the oldest, a few with the others'."""
    return [
        *((OLDEST, kind) for kind in kinds),
        *((serving, kind) for serving in OTHERS for kind in few),
    ]


def libraries(serving):
    return [TEXT / f'_{n}.so' for n in serving_ops.TEXT_LIBRARIES[serving]]


def write_texts(path, texts):
    """As serve.c reads them: their number, then the length and bytes of each.
    """
    numbered = [struct.pack('<Q', len(text)) + text for text in texts]
    path.write_bytes(struct.pack('<Q', len(texts)) + b''.join(numbered))


def missing():
    """Why the C program cannot be made here; '' if it can."""
    if not shutil.which('gcc'):
        return 'there is no gcc'
    header = TENSORFLOW / 'include/tensorflow/c/c_api.h'
    expected = [header, *LINKED, *libraries('2.20')]
    lacking = [str(path) for path in expected if not path.exists()]
    return f'there is no {lacking[0]}' if lacking else ''


@functools.cache
def resource(kind):
    """A version with a tokenizer of a kind, texts, and their vectors."""
    run, texts = workdirs.folder() / f'run_{kind}', comparison.texts(60)
    model = bundle.write(
        workdirs.write(run, kind=kind), workdirs.folder() / f'resource_{kind}'
    )
    return model, texts, infoword_tf.load(run).encode(texts, progress=False)


@unittest.skipIf(missing(), missing())
class CTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = pathlib.Path(
            cls.enterClassContext(tempfile.TemporaryDirectory())
        )
        subprocess.run([
            'gcc', '-Wall', '-Werror', HERE / 'serve.c',
            f'-I{TENSORFLOW}/include', '-o', cls.folder / 'serve', *LINKED,
            f'-Wl,-rpath,{TENSORFLOW}', *LINKER,
        ], check=True)  # fmt: skip
        shutil.copytree(MODEL, cls.folder / 'moved')
        cls.programs = {}  # by libraries; TensorFlow is loaded once for each

    @classmethod
    def program(cls, *loaded):
        """The C program with these libraries, which answers line by line."""
        if loaded not in cls.programs:
            program = cls.programs[loaded] = subprocess.Popen(
                [cls.folder / 'serve', *loaded],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            cls.addClassCleanup(program.communicate)
        return cls.programs[loaded]

    def check(self, texts, expected, serving, *asked, atol=1e-5, **more):
        """Compares what the program gives; see `serve`."""
        actual, error = self.serve(texts, libraries(serving), *asked, **more)
        self.assertEqual(error, '')
        self.assertLess(np.abs(actual - expected).max(), atol)

    def serve(
        self, texts, loaded, model='moved', name='embed', output='embeddings',
        **more,
    ):  # fmt: skip
        """[n, D] of a signature, and what the program says if it fails.

        more: by name, texts of its second input: as many, or K times as many.
        """
        model = self.folder / model
        signature = serving_ops.read(model).signature_def[name]
        output, index = signature.outputs[output].name.split(':')
        inputs = {'texts': texts, **more}
        for number, content in enumerate(inputs.values()):
            write_texts(self.folder / f'texts.{number}', content)
        operations = [signature.inputs[n].name.split(':')[0] for n in inputs]
        request = (
            model, self.folder / 'texts', self.folder / 'vectors',
            ','.join(operations), output, index,
        )  # fmt: skip
        program = self.program(*loaded)
        print(*request, sep='\t', file=program.stdin, flush=True)
        if not program.stdout.readline():
            return None, self.programs.pop(tuple(loaded)).communicate()[1]
        data = (self.folder / 'vectors').read_bytes()
        shape = np.frombuffer(data, np.int64, 2)
        return np.frombuffer(data, np.float32, offset=16).reshape(shape), ''

    @parameterized.parameters(*serving_ops.TEXT_LIBRARIES)
    def test_with_the_libraries_that_serving_links(self, serving):
        texts = comparison.texts(60)
        if serving == '2.20':
            texts += [b'one of many, %d' % n for n in range(10_000)]
        expected = workdirs.loaded().encode(texts, progress=False)
        self.check(texts, expected, serving)

    @parameterized.product(
        serving=tuple(serving_ops.TEXT_LIBRARIES),
        kind=('sentencepiece', 'bytes'),
    )
    def test_resources(self, serving, kind):
        """A model, or tables, which a server makes as it loads."""
        model, texts, expected = resource(kind)
        self.check(texts, expected, serving, model)

    @parameterized.parameters(
        *asked_of(
            [
                (converted, 'classes', 'classify', 'probabilities'),
                (converted, 'one_class', 'classify', 'scores'),
                (converted, 'prompts', 'embed_query', 'embeddings'),
                (converted, 'roberta', 'embed', 'embeddings'),
                (converted, 'xlnet', 'embed', 'embeddings'),
                (finetuned, 'pairs', 'classify_pairs', 'probabilities'),
                (finetuned, 'number', 'regress', 'score'),
                (finetuned, 'choices', 'choose', 'probabilities'),
                (answering, 'null', 'answer', 'scores'),
                (answering, 'conditional', 'answer', 'scores'),
                (critics, 'both', 'embed_tokens', 'embeddings'),
                (critics, 'both', 'embed_tokens_query', 'embeddings'),
                (critics, 'both', 'embed_sparse', 'weights'),
                (critics, 'pairs', 'score_pairs', 'score'),
            ],
            few=[
                (converted, 'classes', 'classify', 'probabilities'),
                (answering, 'null', 'answer', 'scores'),
                (critics, 'both', 'embed_tokens', 'embeddings'),
                (critics, 'both', 'embed_sparse', 'weights'),
                (critics, 'pairs', 'score_pairs', 'score'),
            ],
        )
    )
    def test_what_it_answers_here(self, serving, asked):
        """Which others compare with the workdirs."""
        kinds, kind, signature, output = asked
        model = kinds.exported(kind)
        function = kinds.served(kind)[signature]
        more, pairs = {}, FEW[::-1]
        names = function.structured_input_signature[1]
        if 'choices' in names:
            more = {'choices': list(zip(pairs, FEW, strict=True))}
        elif 'pairs' in names:
            more = {'pairs': pairs}
        expected = workdirs.answer(function, FEW, **more)[output]
        if 'choices' in names:
            more['choices'] = [x for both in more['choices'] for x in both]
        self.check(
            FEW, expected.reshape(len(FEW), -1), serving, model, signature,
            output, **more,
        )  # fmt: skip

    def test_bfloat16(self):
        texts = [b'a cab.', b'', b'x y z ' * 40]
        function = converted.served('prompts')['embed']
        self.check(
            texts, workdirs.answer(function, texts)['embeddings'], OLDEST,
            converted.exported('prompts', 'bfloat16'), atol=0.1,
        )  # fmt: skip

    def test_no_texts(self):
        actual, error = self.serve([], libraries('2.12 to 2.19'))
        self.assertEqual(error, '')
        self.assertEqual(actual.shape, (0, 64))

    def test_without_the_libraries(self):
        actual, error = self.serve([b'text'], [])
        self.assertIsNone(actual)
        self.assertIn("Op type not registered 'Fast", error)


class ConfigurationTest(absltest.TestCase):
    """The files of export/serving/, by the messages that servers read."""

    def read(self, name, message):
        return text_format.Parse(
            (SERVING / name).read_text(), protos.message(message)()
        )

    def test_models_config(self):
        (model,) = self.read(
            'models.config', 'ModelServerConfig'
        ).model_config_list.config
        self.assertEqual(model.name, 'infoword')
        self.assertEqual(model.model_platform, 'tensorflow')
        self.assertTrue(model.base_path.startswith('/'))

    def test_batching_parameters(self):
        actual = self.read('batching_parameters.txt', 'BatchingParameters')
        self.assertEqual(actual.max_batch_size.value, 256)
        self.assertGreaterEqual(actual.num_batch_threads.value, 1)
        self.assertFalse(actual.pad_variable_length_inputs)
        self.assertEqual(actual.batch_timeout_micros.value, 0)

    def test_compose_starts_what_the_documents_say(self):
        text = (SERVING / 'compose.yaml').read_text()
        # A list of flags, each a line of its own.
        options = re.findall(r'^ +- (--\S+)$', text, re.MULTILINE)
        self.assertIn('--tensorflow_intra_op_parallelism=1', options)
        documents = (SERVING.parent.parent / 'docs' / 'serving.md').read_text()
        for flag in options:
            self.assertIn(flag, documents)
        self.assertIn("TF_NUM_INTEROP_THREADS: '-1'", text)
        self.assertIn('TF_NUM_INTEROP_THREADS=-1', documents)
        for flag in options:
            if '=/config/' in flag:
                name = flag.rpartition('/')[2]
                self.assertTrue((SERVING / name).is_file(), name)

    def test_grpc_request(self):
        actual = self.read('predict_request.txtpb', 'PredictRequest')
        self.assertEqual(actual.model_spec.name, 'infoword')
        self.check(
            actual.model_spec.signature_name,
            {k: tf.make_ndarray(v) for k, v in actual.inputs.items()},
        )

    def test_rest_request(self):
        actual = json.loads((SERVING / 'request.json').read_text())
        # One value an instance, and no name: it goes to the only input.
        signature = serving_ops.read(MODEL).signature_def
        (name,) = signature[actual['signature_name']].inputs
        self.check(actual['signature_name'], {name: actual['instances']})

    def check(self, name, inputs):
        signature = serving_ops.read(MODEL).signature_def[name]
        self.assertEqual(set(inputs), set(signature.inputs))
        self.assertEqual(signature.method_name, 'tensorflow/serving/predict')
        (texts,) = inputs.values()
        answer = workdirs.answer(workdirs.served()[name], texts)
        self.assertEqual(answer['embeddings'].shape, (len(texts), 64))
