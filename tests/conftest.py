"""Set-up of every test process before TensorFlow starts."""

import fnmatch
import gc
import logging
import os
import pathlib
import sys
import unittest

import pytest
from absl import flags

os.environ['KERAS_BACKEND'] = 'tensorflow'
os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
# As all commands, on every processor.
os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '1')
# Everything is compared with the CPU's own arithmetic.
os.environ.setdefault('CUDA_VISIBLE_DEVICES', '')
# Models are tiny here, so nearly all that XLA takes is the time to compile.
os.environ.setdefault(
    'XLA_FLAGS',
    '--xla_backend_optimization_level=0 '
    '--xla_llvm_disable_expensive_passes=true '
    '--xla_cpu_use_fusion_emitters=false',
)
# Files that take longest, which start before all others.
LONGEST = (
    'tests/test_jax.py', 'tests/test_recorded.py',
    'tests/training/test_combined.py', 'tests/test_lessons.py',
    'tests/export/test_savedmodel.py', 'tests/encoders/test_every_encoder.py',
    'tests/test_sentence_runs.py', 'tests/test_resume.py',
    'tests/test_keras_models.py', 'tests/test_workers.py',
    'tests/export/test_litert.py', 'tests/export/test_finetuned.py',
    'tests/export/test_converted.py', 'tests/test_train.py',
    'tests/text/test_every_tokenizer.py', 'tests/tasks/test_classify.py',
)  # fmt: skip

# What `make test` leaves to `make test-all`: it repeats at the height of
# programs what smaller tests ask. Pattern of names -> why.
SECOND = {
    'tests/training/test_combined.py::*taken_*': 'settings in pairs',
    'tests/test_jax.py::*every_case*': 'every row under JAX',
    'tests/benchmarks/test_step.py::*': 'contests of programs',
    'tests/benchmarks/test_work.py::*': 'contests of programs',
    'tests/benchmarks/test_exports.py::*': 'contests of programs',
    'tests/test_workers.py::RunTest*two_workers*': 'two workers, resumed',
    'tests/export/test_savedmodel.py::*rows_and_poolings*': 'other graphs',
    'tests/export/test_savedmodel.py::*rows_with_memory*': 'other graphs',
    'tests/export/test_savedmodel.py::*test_branches*': 'other graphs',
    'tests/export/test_savedmodel.py::*bfloat16*': 'another precision',
    'tests/export/test_savedmodel.py::*ten_thousand*': 'a sweep',
    'tests/export/test_finetuned.py::*bfloat16*': 'another precision',
    'tests/export/test_converted.py::*bfloat16_is*': 'another precision',
    'tests/export/test_answer.py::*bfloat16*': 'another precision',
    'tests/export/test_optimized.py::*': 'another precision',
    'tests/export/test_litert.py::FineTuned*': 'LiteRT of other models',
    'tests/export/test_litert.py::*vectors[1-9]': 'LiteRT, all precisions',
    'tests/export/test_litert.py::*operations': 'LiteRT, all precisions',
    'tests/export/test_litert.py::*test_words': 'LiteRT of other encoders',
    'tests/export/test_serving.py::*': 'exports in C, as servers link it',
    'tests/export/test_versions.py::*': 'servers of several versions',
    'tests/test_properties.py::*': 'drawn inputs',
    'tests/text/*::*every_code_point*': 'every code point',
    'tests/test_packaging.py::*': 'a wheel',
    'tests/test_data_service.py::CommandTest*': 'workers and kills',
    'tests/test_faults.py::*': 'faults, which others have one by one',
    'tests/export/test_index.py::*killed*': 'kills',
    'tests/test_prepare.py::*processes': 'processes',
    'tests/test_prepare.py::*process_*': 'kills',
    'tests/test_resume.py::CleanTest*': 'a good run',
    'tests/test_resume.py::*of_two_replicas': 'a second device',
    'tests/test_train.py::StrategyTest*': 'a second device',
    'tests/test_train.py::*xla_over*': 'the whole step compiled',
    'tests/test_keras_models.py::*two_devices*': 'a second device',
    'tests/test_keras_models.py::*elsewhere': 'another process',
    'tests/test_keras_models.py::*its_python_runs': 'documents that run',
    'tests/test_memory.py::RealTest*': 'whole runs with memory',
    'tests/test_contract.py::*replicas*': 'a second device',
    'tests/test_contract.py::*stopped_gives*': 'kills',
    'tests/test_language_runs.py::*resumed*': 'kills',
    'tests/test_language_runs.py::*from_xlm*': 'a run of each sum',
    'tests/test_language_runs.py::*twenty*': 'a sweep',
    'tests/tasks/test_classify.py::ClassifyKilled*': 'kills',
    'tests/tasks/test_students.py::StudentsKept*': 'kills',
}
# Of each, `make test` runs the first, as one of many that go the same way.
ONE_OF = {
    'tests/test_lessons.py::*every_row_learns*': 'rows that learn',
    'tests/test_sentence_runs.py::*': 'runs of sums',
    'tests/training/test_distribution.py::SameAsOne*': 'rows on devices',
    'tests/training/test_distribution.py::Remat*': 'encoders computed again',
    'tests/encoders/test_every_encoder.py::*unknown_shapes*': 'graphs',
    'tests/encoders/test_every_encoder.py::*mixed_bfloat16*': 'precisions',
    'tests/export/test_finetuned.py::*no_texts*': 'kinds of answers',
    'tests/export/test_finetuned.py::*says_what_the_workdir*': 'kinds',
    'tests/export/test_converted.py::*says_what_the_workdir*': 'kinds',
    'tests/export/test_converted.py::*classes_of*': 'kinds of answers',
    'tests/export/test_answer.py::*workdir_says*': 'kinds of answers',
    'tests/text/test_every_tokenizer.py::*in_a_graph*': 'tokenizers',
    'tests/text/test_every_tokenizer.py::*nasty_strings*': 'tokenizers',
    'tests/text/test_every_tokenizer.py::*test_export': 'tokenizers',
    'tests/test_resume.py::*same_bytes*': 'choices that resume',
    'tests/test_show.py::CommandTest*': 'the command',
}


_ROOT = str(pathlib.Path(__file__).resolve().parent.parent)
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)


def _split_cpu() -> None:
    """Makes two logical devices, for two replicas in one process."""
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices('CPU')[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )


def pytest_configure(config):
    """Prepares processes that run tests, not the one that hands them out."""
    if not hasattr(config, 'workerinput'):
        from tests import places

        sharing = places.sharing()
        sharing.__enter__()
        config.add_cleanup(lambda: sharing.__exit__(None, None, None))
    if hasattr(config, 'workerinput') or not config.getoption('-n', None):
        from infoword_tf import commands, lazy

        commands.own_process()
        lazy.import_keras()
        _split_cpu()
        from tests.eager import keys_at_once

        keys_at_once()
        gc.collect()
        gc.freeze()
        if hasattr(config, 'workerinput') and sys.platform == 'linux':
            from tests.forks import Forks

            config.pluginmanager.register(Forks(config))


def _converts(record):
    """Asserts that AutoGraph can read all functions of the project."""
    message = record.getMessage()
    assert 'AutoGraph could not transform' not in message, message
    return True


logging.getLogger('tensorflow').addFilter(_converts)
flags.FLAGS.mark_as_parsed()  # temporary folders of absltest read flags


@pytest.fixture(autouse=True, scope='module')
def leave_nothing():
    """Cleans up after a module as unittest does, and pytest does not."""
    import tensorflow as tf

    before = _environment()
    yield
    unittest.doModuleCleanups()
    assert not tf.config.functions_run_eagerly(), 'others want graphs'
    # Processes that later tests start inherit it.
    assert _environment() == before, 'a variable is not as it was'


def _environment():
    """Returns variables that change results, or where they are stored."""
    ours = 'CUDA_', 'INFOWORD_', 'KERAS_', 'TF_', 'XLA_'
    return {k: v for k, v in os.environ.items() if k.startswith(ours)}


def pytest_collection_modifyitems(config, items):
    """Sorts long files first, and marks what `make test` leaves out."""
    first = {name: number for number, name in enumerate(LONGEST)}
    items.sort(
        key=lambda item: first.get(item.nodeid.split('::')[0], len(first))
    )
    unused, one_of = {*SECOND, *ONE_OF}, set(ONE_OF)
    for item in items:
        for pattern, reason in (SECOND | ONE_OF).items():
            if fnmatch.fnmatchcase(item.nodeid, pattern):
                unused.discard(pattern)
                if pattern in one_of:
                    one_of.remove(pattern)
                else:
                    item.add_marker(pytest.mark.second(reason))
    if not config.args_source.name == 'ARGS' and unused:
        raise pytest.UsageError(f'tests/conftest.py: no test is {unused}')
