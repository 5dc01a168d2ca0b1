"""Set-up of every test process before TensorFlow starts."""

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
# Whole runs, which start before anything else, so that none is the last.
LONGEST = ('tests/test_train.py', 'tests/test_memory.py', 'tests/test_jax.py')

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
    if hasattr(config, 'workerinput') or not config.getoption('-n', None):
        from infoword_tf import commands, lazy

        commands.own_process()
        lazy.import_keras()
        _split_cpu()
        from tests.eager import keys_at_once

        keys_at_once()
        gc.collect()
        gc.freeze()


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


def pytest_collection_modifyitems(items):
    """Sorts long tests first."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
