"""The model under JAX, without TensorFlow, against TensorFlow's own values.

`compute` runs in a process of its own, where TensorFlow cannot be imported;
so nothing at the top of this file imports it.

Glossary of shapes: F fields of an outcome.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import unittest
from unittest import mock

import numpy as np
from absl.testing import absltest

from tests import places

ROOT = pathlib.Path(__file__).parent.parent
FORBIDDEN = ('tensorflow', 'tensorflow_text', 'tf_keras', 'orbit')
RATE, STEP = 0.1, 3
# By name: precision, whether there is a key (and dropout).
WAYS = {
    'plain': ('float32', False),
    'dropout': ('float32', True),
    'bfloat16': ('mixed_bfloat16', True),
}
TRAINED = 'dropout'  # of every case, with gradients; others once a kind
# Of the compiler: most of the time is its, and the cases are tiny.
QUICK = (
    '--xla_backend_optimization_level=0 '
    '--xla_llvm_disable_expensive_passes=true '
    '--xla_cpu_use_fusion_emitters=false'
)
LOSS, GRADIENT, BFLOAT16_LOSS = 1e-5, 1e-4, 2e-2  # relative


class Forbid:
    """Makes some modules impossible to import: put it in sys.meta_path."""

    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in FORBIDDEN:
            raise ModuleNotFoundError(f'{name} is forbidden here', name=name)


def run_forbidden(code, *args):
    """Runs code under JAX on the CPU, where TensorFlow cannot be imported.

    Returns:
        What it printed; its errors go to the message of the exception.
    """
    code = (
        'import sys\n'
        'from tests import test_jax\n'
        'sys.meta_path.insert(0, test_jax.Forbid())\n'
        + code
    )
    of_jax = {'KERAS_BACKEND': 'jax', 'JAX_PLATFORMS': 'cpu'}
    done = subprocess.run(
        [sys.executable, '-c', code, *map(str, args)],
        cwd=ROOT, env={**os.environ, **of_jax, 'XLA_FLAGS': QUICK},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f'{done.stdout}\n{done.stderr}')
    return done.stdout


def by_name(values):
    """In the order of their names: JAX sorts what it hands back."""
    return [values[name] for name in sorted(values)]


def compute(folder):
    """Reads the cases, writes what JAX makes of them: of the other process."""
    import jax
    import keras

    from infoword_tf import views
    from infoword_tf.config import Config
    from infoword_tf.layers import dropout, fused
    from infoword_tf.model import Model
    from infoword_tf.objectives import Statistics

    assert keras.backend.backend() == 'jax'
    folder, lanes = pathlib.Path(folder), fused.LANES
    for name, case in json.loads((folder / 'cases.json').read_text()).items():
        # As many runs of columns as users have take long to compile.
        fused.LANES = lanes if name == 'masked' else 2
        with np.load(folder / f'{name}.npz') as file:
            arguments = dict(file)
        by_row = {
            row: Statistics(*[arguments.pop(f'own:{row}')] * 2)
            for row in ('label', 'soft', 'span', 'tag')
        }
        statistics = Statistics(
            arguments.pop('training'), arguments.pop('measured'), by_row=by_row
        )
        weights, flat = {}, {}
        for path, array in arguments.items():
            kind, _, path = path.partition(':')
            {'weight': weights, 'view': flat}[kind][path] = array
        actual = {}
        for way in case['ways']:
            precision, with_key = WAYS[way]
            config = Config.from_json(case['config'])
            model = Model(
                config.replace(precision=precision),
                views.Specials(*case['specials']),
            )
            variables = model.variables
            assert list(variables) == list(weights)

            def loss(
                values, flat, step,
                model=model, statistics=statistics, key=with_key,
            ):  # fmt: skip
                pairs = list(zip(model.variables.values(), values, strict=True))
                with keras.StatelessScope(state_mapping=pairs):
                    outcomes, _ = model.outcomes(
                        views.unflatten(flat),
                        statistics,
                        dropout.new_key(0, step) if key else None,
                    )
                    return model.loss(outcomes), outcomes

            function = loss
            if way == TRAINED:
                function = jax.value_and_grad(loss, has_aux=True)
            result = jax.jit(function)(list(weights.values()), flat, STEP)
            if way == TRAINED:
                result, gradients = result
                for path, gradient in zip(weights, gradients, strict=True):
                    actual[f'{way}:gradient:{path}'] = np.asarray(gradient)
            value, outcomes = result
            actual[f'{way}:loss'] = np.asarray(value)
            for row, outcome in outcomes.items():
                actual[f'{way}:outcome:{row}'] = np.stack(
                    [*outcome.sums, *by_name(outcome.more)]
                )
        np.savez(folder / f'{name}.jax.npz', **actual)
    assert not [m for m in sys.modules if m.split('.')[0] in FORBIDDEN]


def cases():
    """Every row, and what settings add, in few graphs.

    Rows that read one view share its pass. What a head, a teacher's scores or
    a mix are over another encoder is the same operations, and so is a draw.
    """
    from tests.zoo import CASES, JAX, LESSONS, Case

    words = 'skip_gram:1,cbow:1'
    binary = CASES['skip_gram_binary'].settings
    of_cbow = {k.replace('skip_gram', 'cbow'): v for k, v in binary.items()}
    losses = [f'{row}.loss' for row in ('skip_gram', 'cbow')]
    return {
        'lookup': LESSONS['lookup']._replace(settings={
            'label.pooler': 'gelu', 'embed.temperature': 0.1,
            'embed_distance.distance': 'mse', 'embed.width': 24,
            'embed_distance.width': 24,
        }),
        'lookup_vocabulary': Case(
            words, 'lookup', settings=dict.fromkeys(losses, 'vocabulary')
        ),
        'lookup_binary': Case(words, 'lookup', settings=binary | of_cbow),
        'masked': LESSONS['masked']._replace(settings={
            'mlm.transform': True, 'dim.critic': 'cosine', 'ict.words': 24,
            'ict.queue': 8,
        }),
        'pairs': Case(
            'bert_nce:1,dim:1,nsp_nce:1', masking='spans',
            settings={'dim.one_mask': True},
        ),
        'examples': LESSONS['transformer']._replace(settings={
            **CASES['span_null'].settings, 'soft_span.temperature': 2.0,
        }),
        'sentences': CASES['simcse_joint']._replace(settings={
            **CASES['simcse_joint'].settings, 'simcse.cut_features': 0.2,
            'simcse.cut_tokens': 0.2,
        }),
        'relative': Case(
            'label:1,score:1,span:1,embed:1,patience:1', 'relative',
            layers=2, settings={
                'span.end': 'conditional', 'embed.pooling': 'last',
                'score.loss': 'cosent',
            },
        ),
        'modern': Case(
            'mlm:1,dim:1,simcse:1,label:1,patience:1', 'modern',
            masking='spans', layers=2, settings={
                'mlm.transform': True, 'label.mean': True,
                'label.pooler': 'gelu_norm',
            },
        ),
        **{name: x for name, x in CASES.items() if JAX in x.checks},
    }  # fmt: skip


def ways_of_cases(cases):
    """Ways by case: all with dropout, bfloat16 once an encoder and kind of
    state, plain operations with BERT's transform, which is fused.

    What a row adds is the same operations in every way, and plain ones of
    each encoder are compared before.
    """
    from infoword_tf.objectives import TABLE

    seen, ways = set(), {}
    for name, case in cases.items():
        kinds = {
            (case.encoder, reads.where)
            for row in case.rows
            for reads in TABLE[row].reads(case.settings_of(row)).values()
        }
        if case.settings.get('mlm.transform'):
            kinds.add((case.encoder, 'transform'))
        new, seen = kinds - seen, seen | kinds
        plain = 'transform' in {kind for _, kind in new}
        ways[name] = [
            *(['plain'] if plain else []),
            TRAINED,
            *(['bfloat16'] if new else []),
        ]
    return ways


def expected(case, way):
    """TensorFlow's loss, outcomes [F] by row, gradients by path or none."""
    from infoword_tf.layers import dropout
    from tests import zoo
    from tests.eager import eagerly

    precision, with_key = WAYS[way]
    model = zoo.model_of(case, RATE, precision)
    # Nothing compiled: that would take most of the time.
    with eagerly():
        outcomes, _, loss, gradients = zoo.differentiated(
            model, zoo.views_of(case.resolved), zoo.statistics(),
            dropout.new_key(0, STEP) if with_key else None,
            weights=model.variables if way == TRAINED else {},
        )  # fmt: skip
    outcomes = {
        row: np.array([*outcome.sums, *by_name(outcome.more)])
        for row, outcome in outcomes.items()
    }
    gradients = {path: x.numpy() for path, x in gradients.items()}
    return loss.numpy(), outcomes, gradients


@unittest.skipUnless(importlib.util.find_spec('jax'), 'JAX is not installed')
class JaxTest(places.Folder, absltest.TestCase):
    def test_a_row_over_each_encoder(self):
        """Gradients and dropout too of the encoder that compiles soonest."""
        from tests.zoo import CASES, ENCODERS

        names = {case.encoder: name for name, case in CASES.items()
                 if len(case.rows) == 1}  # fmt: skip
        self.assertEqual(set(names), set(ENCODERS))
        ways = dict.fromkeys(names.values(), ['plain'])
        ways[names['lookup']] = ['plain', TRAINED]
        self.check_cases({name: CASES[name] for name in ways}, ways)

    def test_every_case_is_as_under_tensorflow(self):
        """One test, so that nobody compiles the cases twice."""
        from infoword_tf.objectives import TABLE

        listed = cases()
        rows = {row for case in listed.values() for row in case.rows}
        self.assertEqual(rows, set(TABLE))
        self.check_cases(listed, ways_of_cases(listed))

    def check_cases(self, listed, ways_of):
        """Compares cases, each in its ways, with TensorFlow's values."""
        from infoword_tf import views
        from tests import zoo

        arguments = {}
        # Shorter: a recurrence is the same step again.
        self.enterContext(mock.patch.object(zoo, 'T', 32))
        for name, ways in ways_of.items():
            arguments[name] = {
                'ways': ways,
                'config': zoo.config_of(listed[name], RATE).to_json(),
                'specials': zoo.SPECIALS,
            }
            weights = zoo.model_of(listed[name], RATE).variables
            flat = views.flatten(zoo.views_of(listed[name].resolved))
            np.savez(
                self.folder / f'{name}.npz',
                training=zoo.statistics().training,
                measured=zoo.statistics().measured,
                **{
                    f'own:{row}': by_row.measured
                    for row, by_row in zoo.statistics().by_row.items()
                },
                **{f'weight:{p}': v.numpy() for p, v in weights.items()},
                **{f'view:{p}': array for p, array in flat.items()},
            )
        (self.folder / 'cases.json').write_text(json.dumps(arguments))
        run_forbidden('test_jax.compute(sys.argv[1])', self.folder)
        for name, case in listed.items():
            with np.load(self.folder / f'{name}.jax.npz') as file:
                actual = dict(file)
            if {'plain', TRAINED} <= {*ways_of[name]}:
                with self.subTest(name):
                    self.assertNotAlmostEqual(
                        float(actual['plain:loss']),
                        float(actual['dropout:loss']),
                        places=3,
                    )
            for way in ways_of[name]:
                precision, _ = WAYS[way]
                with self.subTest(f'{name}, {way}'):
                    loss, outcomes, gradients = expected(case, way)
                    if precision == 'float32':
                        self.check(way, actual, loss, outcomes, gradients)
                    for row, outcome in outcomes.items():
                        sums = actual[f'{way}:outcome:{row}']
                        np.testing.assert_allclose(
                            sums[0] / sums[1], outcome[0] / outcome[1],
                            rtol=BFLOAT16_LOSS, err_msg=row,
                        )  # fmt: skip

    def check(self, way, actual, loss, outcomes, gradients):
        """Compares what is exact but for the order of sums."""
        np.testing.assert_allclose(actual[f'{way}:loss'], loss, rtol=LOSS)
        for row, outcome in outcomes.items():
            # MI is a difference of what may be much larger.
            np.testing.assert_allclose(
                actual[f'{way}:outcome:{row}'], outcome, rtol=LOSS,
                atol=LOSS * np.abs(outcome).max(),
            )  # fmt: skip
        largest = max((np.abs(x).max() for x in gradients.values()), default=0)
        for path, gradient in gradients.items():
            # A scalar's is a difference of sums that are larger.
            size = max(np.abs(gradient).max(), 0.1 * (gradient.ndim == 0))
            near = GRADIENT * size
            if size < LOSS * largest:
                # 0 but for rounding: the last beta of `nsp_nce` moves all
                # scores of a pair alike.
                near = LOSS * largest
            np.testing.assert_allclose(
                actual[f'{way}:gradient:{path}'], gradient, rtol=0, atol=near,
                err_msg=path,
            )  # fmt: skip
