"""Adapters: what they change, what learns, and what a workdir holds."""

import dataclasses
import functools
import pathlib
import re
import shutil
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import infoword_tf
from infoword_tf import adapters, files
from infoword_tf.choices import RunChoices
from infoword_tf.config import WEIGHTS, AdapterConfig, Config
from infoword_tf.inference.loaded import Loaded
from infoword_tf.layers import dropout
from infoword_tf.model import Model
from infoword_tf.objectives import Replicas
from infoword_tf.resolve import resolve
from infoword_tf.training.microbatch import MicrobatchStep
from infoword_tf.views import flatten, unflatten
from infoword_tf.workdir import Workdir
from tests import places, quick, runs, zoo
from tests.eager import eagerly
from tests.export import workdirs
from tests.near import assert_near
from tests.refused import refused

LORA = AdapterConfig('lora', rank=2, alpha=3.0, where='all', frozen='float32')
SCALE = 1.5
# Cases of encoders that have adapters, and parts of the first layer.
JOINED = ['qkv_kernel/query', 'qkv_kernel/key', 'qkv_kernel/value']
CASES = {
    'label': [*JOINED, 'output_kernel', 'inner_kernel', 'outer_kernel'],
    'label_modern': [*JOINED, 'output_kernel', 'inner_kernel/gate',
                     'inner_kernel/up', 'outer_kernel'],
    'label_relative': [*JOINED, 'position_kernel', 'output_kernel',
                       'inner_kernel', 'outer_kernel'],
}  # fmt: skip
# Kernels whose rows are split.
SPLIT = {'label_relative': {'position_kernel'}}


TEXTS = ['read a file', 'a list of what is returned']


def setUpModule():
    runs.set_up()


@functools.cache
def views_of(name):
    flat = flatten(zoo.make_views(name))
    return unflatten({k: tf.constant(x) for k, x in flat.items()})


def with_adapters(name, **changes):
    """A case's model with adapters, B of 0, and the model without them."""
    plain = zoo.make_model(name)
    lora = dataclasses.replace(LORA, **changes)
    model = Model(plain.config.replace(adapter=lora), zoo.SPECIALS)
    for path, variable in plain.variables.items():
        model.variables[path].assign(variable)
    return model, plain


def set_b(model):
    random = np.random.default_rng(1)
    for path, variable in model.variables.items():
        if path.startswith('adapters/') and path.endswith('/b'):
            variable.assign(0.3 * random.standard_normal(variable.shape))


def gradients(model, name, variables, key=(0, 3)):
    """Sums of the outcome, gradients, and which W + s A B have one."""
    key = dropout.new_key(*key) if key else None
    state = {n: e.empty for n, e in model.empty_state(8).items()}
    with eagerly(), tf.GradientTape() as tape:
        sums = model.adapters.values() if model.adapters else []
        with mock.patch.object(adapters.Adapters, 'values', lambda _: sums):
            outcomes, _ = model.outcomes(
                views_of(name), zoo.statistics(), key, state=state
            )
        loss = model.loss(outcomes)
    sources = [v.value for v in variables], [total.value for _, total in sums]
    each, whole = tape.gradient(loss, sources)
    (outcome,) = outcomes.values()
    through = {
        kernel.path.split('/')[-1]
        for (kernel, _), x in zip(sums, whole, strict=True)
        if x is not None and x.numpy().any()
    }
    return np.array(outcome.sums), [x.numpy() for x in each], through


class ModelTest(parameterized.TestCase):
    @parameterized.parameters(*zip(CASES))
    def test_a_model_with_adapters(self, name):
        model, plain = with_adapters(name)
        a = [p for p in model.trainable if p.endswith('/a')]
        parts = [re.sub('.*?/layer_0/(attention/)?|/a$', '', p) for p in a]
        self.assertEqual(set(CASES[name]), set(parts) & set(CASES[name]))
        self.assertTrue(all(np.any(model.variables[p].numpy()) for p in a))
        kernels = {k.path: k for k, _ in model.adapters.kernels}
        of_plain = [plain.variables[path] for path in kernels]

        # B = 0 changes no bit, with dropout and without.
        for key in ((0, 3), None):
            expected, *_ = gradients(plain, name, of_plain, key)
            actual, *_ = gradients(model, name, model.adapters.weights, key)
            np.testing.assert_array_equal(actual, expected)

        # What it computes is what the plain model does with W + s A B.
        set_b(model)
        for kernel, total in model.adapters.values():
            plain.variables[kernel.path].assign(total.value)
        expected, of_kernels, _ = gradients(plain, name, of_plain)
        learning = list(model.trainable.values())
        actual, each, through = gradients(model, name, learning)
        np.testing.assert_array_equal(actual, expected)
        each = dict(zip(model.trainable, each, strict=True))
        self.assertEqual(through, SPLIT.get(name, set()))

        # dA = s dW B^T and dB = s A^T dW, of the columns of a part.
        of_kernels = dict(zip(kernels, of_kernels, strict=True))
        for kernel, of_kernel in model.adapters.kernels:
            for part, a, b in of_kernel:
                columns = slice(part.begin, part.begin + part.width)
                d = of_kernels[kernel.path][:, columns]
                assert_near(each, {
                    a.path: SCALE * d @ b.numpy().T,
                    b.path: SCALE * a.numpy().T @ d,
                }, rtol=1e-4, of_each=1e-5)  # fmt: skip

        # In microbatches, and with the blocks computed again.
        state = {n: e.empty for n, e in model.empty_state(8).items()}
        step = MicrobatchStep(
            model, views_of(name), zoo.statistics(), dropout.new_key(0, 3),
            Replicas(), state, 3,
        )  # fmt: skip
        with eagerly():
            others = [step.gradients([v.value for v in learning])[0]]
        if model.encoder.can_remat:
            model.encoder.remat = True
            _, again, through = gradients(model, name, learning)
            others.append(again)
            self.assertEqual(through, SPLIT.get(name, set()))
        for other in others:
            other = dict(zip(model.trainable, other, strict=True))
            assert_near(other, each, rtol=1e-4, of_each=1e-5)

    def test_what_learns_and_what_is_written(self):
        model, plain = with_adapters('label')
        of_encoder = {p for p in plain.variables if p.startswith('encoder/')}
        self.assertEqual(
            set(model.variables) - set(plain.variables),
            {w.path for w in model.adapters.weights},
        )
        for weights in (model.trainable, model.checkpointed, model.exported):
            self.assertEqual(set(weights), set(model.variables) - of_encoder)
        self.assertEqual(set(model.inherited), set(model.variables))

    def test_an_encoder_without_attention(self):
        choices = RunChoices(objectives='label', seq_len=16, adapter='lora')
        with refused('encoder_without_adapters', '--adapter=lora', 'lookup'):
            resolve(choices, zoo.config('label_lookup'))

    @parameterized.parameters(
        ('query_value', {'query', 'value'}),
        ('attention', {'query', 'key', 'value', 'position', 'output'}),
    )
    def test_fewer_kernels(self, where, expected):
        model, _ = with_adapters('label_relative', where=where)
        parts = {part.name for _, x in model.adapters.kernels for part, *_ in x}
        self.assertEqual(parts, expected)

    @parameterized.parameters(
        ({}, 8), ({'kv_heads': 1}, 4), ({'kv_heads': 1, 'head_width': 2}, 2),
        ({'inner_width': 6}, 6), ({'heads': None}, 0),
    )  # fmt: skip
    def test_the_shortest_side(self, more, expected):
        arguments = {'width': 8, 'heads': 2, **more}
        self.assertEqual(adapters.narrowest(arguments, 'all'), expected)


def adapted_model(workdir):
    """A model that has the adapters of a workdir, not folded."""
    config = Config.read(workdir)
    plain = Workdir.bare(workdir)
    model = Model(
        config.replace(precision='float32'), plain.tokenizer.specials,
        seed=None, auxiliaries=False,
    )  # fmt: skip
    base = files.read_tensors(pathlib.Path(config.adapter.base) / WEIGHTS)
    tensors = base | files.read_tensors(workdir / WEIGHTS)
    for path, variable in model.variables.items():
        variable.assign(tensors[path])
    return Loaded(Workdir(model, plain.tokenizer, plain.config))


class RunTest(parameterized.TestCase):
    """A run of each type in which the encoder is held, stopped on its way."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = places.make(cls.addClassCleanup, cache=False)
        cls.base = workdirs.write(cls.folder / 'base', rows=('mlm',))
        cls.flags = (
            f'--init={cls.base}', '--objectives=mlm', '--adapter=lora',
            '--adapter.rank=3', '--steps=2', '--seq_len=16', '--best',
            '--adapter.frozen=bfloat16', '--checkpoint_every=1',
            '--eval_every=1',
        )  # fmt: skip
        cls.whole, cls.stopped = cls.folder / 'run', cls.folder / 'stopped'
        with quick.copy_before(cls.whole, cls.stopped, 2):
            runs.run_here(cls.whole, *cls.flags)

    def test_what_the_files_hold(self):
        paths = {
            *(f'adapters/encoder/layer_0/attention/qkv_kernel/{part}/{x}'
              for part in ('query', 'key', 'value') for x in 'ab'),
            *(f'adapters/encoder/layer_0/{kernel}_kernel/{x}'
              for kernel in ('attention/output', 'inner', 'outer')
              for x in 'ab'),
        }  # fmt: skip
        weights = files.read_tensors(self.whole / WEIGHTS)
        for path in paths:
            self.assertIn(3, weights[path].shape)
        others = {x for x in weights if not x.startswith('objectives/mlm/')}
        self.assertEqual(others - {'step', 'unigram'}, paths)
        (*_, last) = sorted((self.whole / 'checkpoints').iterdir())
        saved = {p.split('/', 1)[-1].removeprefix('m/').removeprefix('v/')
                 for p in files.read_tensors(last)}  # fmt: skip
        self.assertEqual(saved, {*weights} - {'unigram'})

    def test_a_run_goes_on_bit_for_bit(self):
        shown = runs.run_here(self.stopped, *self.flags)
        self.assertIn('(step 1)', shown)
        self.assertEqual(runs.weights(self.stopped), runs.weights(self.whole))

    def test_loaded_is_what_was_trained(self):
        expected = adapted_model(self.whole)
        actual = infoword_tf.load(self.whole)
        self.assertIsNone(actual.config.adapter)
        vectors = actual.encode(TEXTS)
        np.testing.assert_array_equal(vectors, expected.encode(TEXTS))
        before = infoword_tf.load(self.base).encode(TEXTS)
        self.assertGreater(np.abs(vectors - before).max(), 1e-4)

        # Written, it is a plain workdir of the same answers.
        actual.write(self.folder / 'plain')
        plain = infoword_tf.load(self.folder / 'plain')
        np.testing.assert_array_equal(plain.encode(TEXTS), vectors)
        path = 'encoder/layer_0/inner_kernel'
        self.assertIn(path, files.read_tensors(self.folder / 'plain' / WEIGHTS))

    def test_a_base_that_moved(self):
        moved = self.folder / 'moved'
        shutil.copytree(self.whole, moved / 'run')
        config = Config.read(moved / 'run')
        adapter = dataclasses.replace(config.adapter, base='/gone/base')
        config.replace(adapter=adapter).write(moved / 'run')
        with refused('adapter_base_gone', '/gone/base', moved / 'base'):
            infoword_tf.load(moved / 'run')
        shutil.copytree(self.base, moved / 'base')
        infoword_tf.load(moved / 'run')
        weights = files.read_tensors(moved / 'run' / WEIGHTS)
        lost = next(x for x in weights if x.endswith('/b'))
        files.write_tensors(
            moved / 'run' / WEIGHTS,
            {k: x for k, x in weights.items() if k != lost},
        )
        with refused('workdir_lacks_adapter', lost):
            infoword_tf.load(moved / 'run')
        weights = files.read_tensors(moved / 'base' / WEIGHTS)
        weights['encoder/word_embeddings'] += 1
        files.write_tensors(moved / 'base' / WEIGHTS, weights)
        with refused('adapter_of_other_base', config.adapter.digest):
            infoword_tf.load(moved / 'run')
