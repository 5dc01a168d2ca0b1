"""Set-up of every test process before TensorFlow starts."""

import collections
import fnmatch
import functools
import gc
import logging
import os
import pathlib
import sys
import unittest

import pytest
from absl import flags

gc.disable()  # until all is imported and collected, which stays to the end
# Processes that tests start compile the project once, not each for itself.
os.environ.pop('PYTHONDONTWRITEBYTECODE', None)
sys.dont_write_bytecode = False
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
# programs what smaller tests ask, or goes through all of what they take one of.
# Pattern of names -> why.
SECOND = {
    'tests/benchmarks/test_exports.py::*': 'contests of programs',
    'tests/benchmarks/test_step.py::*': 'contests of programs',
    'tests/benchmarks/test_trainers.py::SameB*': 'contests of programs',
    'tests/benchmarks/test_work.py::JaxTest*': 'every row under JAX',
    'tests/critics/test_own.py::*': 'a process',
    'tests/data/pydocs/*::*does_not_import*': 'a process',
    'tests/data/test_records.py::*memory_does*': 'processes',
    'tests/export/test_converted.py::*bfloat16_is*': 'another precision',
    'tests/export/test_converted.py::*says_what*': 'test_savedmodel has it',
    'tests/export/test_converted.py::*the_card': 'an export',
    'tests/export/test_critic_signatures.py::*workdir_says*': 'an export',
    'tests/export/test_finetuned.py::*more_texts*': 'a sweep',
    'tests/export/test_finetuned.py::*next_words*': 'a run',
    'tests/export/test_litert.py::*every_character*': 'a sweep',
    'tests/export/test_litert.py::*operations': 'LiteRT, all precisions',
    'tests/export/test_litert.py::*prompts*': 'LiteRT of other models',
    'tests/export/test_litert.py::*test_words': 'LiteRT of other encoders',
    'tests/export/test_litert.py::*vectors[1-9]': 'LiteRT, all precisions',
    'tests/export/test_litert.py::ComplaintsTest*plaints': 'of a command',
    'tests/export/test_litert.py::FineTuned*': 'LiteRT of other models',
    'tests/export/test_optimized.py::*': 'another precision',
    'tests/export/test_savedmodel.py::*first_numbers*': 'a command',
    'tests/export/test_savedmodel.py::*rows_and_poolings*': 'other graphs',
    'tests/export/test_savedmodel.py::*rows_with_memory*': 'other graphs',
    'tests/export/test_savedmodel.py::*test_branches*': 'other graphs',
    'tests/export/test_savedmodel.py::*verified_in*': 'a process',
    'tests/export/test_search.py::*keras_is_not*': 'a process',
    'tests/export/test_serving.py::*': 'exports in C, as servers link it',
    'tests/export/test_tagging.py::*demo*': 'an export',
    'tests/export/test_tagging.py::*python_says': 'test_tagger has it',
    'tests/export/test_versions.py::*all_of_it': 'an export',
    'tests/export/test_versions.py::*another_is*': 'exports',
    'tests/export/test_versions.py::*its_teacher': 'servers of two versions',
    'tests/inference/test_loaded.py::*at_a_time[1-4]*': 'once more',
    'tests/tasks/test_all_tasks.py::*before_tensorflow': 'a process',
    'tests/tasks/test_all_tasks.py::LeavesTest*': 'a run of each task',
    'tests/tasks/test_classify.py::ClassifyKilled*': 'kills',
    'tests/tasks/test_embedding.py::EmbeddingCommand*layers*': 'a run',
    'tests/tasks/test_embedding.py::EmbeddingCommand*narrower*': 'a run',
    'tests/tasks/test_flow_command.py::FlowCommandTest*': 'an export',
    'tests/tasks/test_glue.py::GlueSweepTest*': 'a sweep',
    'tests/tasks/test_help.py::*first_screen': 'every command, forked',
    'tests/tasks/test_squad.py::*without_an_answer': 'a run',
    'tests/tasks/test_students.py::StudentTest*answers': 'a run',
    'tests/tasks/test_students.py::StudentsKept*stopped*': 'kills',
    'tests/test_complaints.py::*command_says_it*': 'a process',
    'tests/test_faults.py::*': 'faults, which others have one by one',
    'tests/test_flags.py::*what_is_left_*': 'commands that run for real',
    'tests/test_folders.py::*a_run_begins*': 'a run',
    'tests/test_folders.py::*damaged*': 'damage',
    'tests/test_forks.py::*at_import*': 'processes',
    'tests/test_forks.py::*grown*': 'processes',
    'tests/test_jax.py::*every_case*': 'every row under JAX',
    'tests/test_keras_models.py::*its_python_runs': 'documents that run',
    'tests/test_keras_models.py::*two_devices*': 'a second device',
    'tests/test_language_runs.py::*all_of_infoxlm': 'a run of each sum',
    'tests/test_language_runs.py::*from_xlm*': 'a run of each sum',
    'tests/test_lazy.py::*a_backend_is*': 'a process',
    'tests/test_lazy.py::*keras_*': 'a process',
    'tests/test_lazy.py::*needs_no_keras': 'a process',
    'tests/test_memory.py::*two_replicas_remember*': 'a second device',
    'tests/test_packaging.py::*': 'a wheel',
    'tests/test_prepare.py::*process_*': 'kills',
    'tests/test_prepare.py::*processes': 'processes',
    'tests/test_properties.py::*': 'drawn inputs',
    'tests/test_pages.py::*run_to_their_ends': 'documents that run',
    'tests/test_resume.py::*same_bytes_[!m]*': 'choices that resume',
    'tests/test_resume.py::CleanTest*': 'a good run',
    'tests/test_resume.py::*without_an_end': 'a process that is stopped',
    'tests/test_resume.py::NonFinite*often*': 'goes_around has it',
    'tests/test_sentence_runs.py::*two_stages*': 'runs of sums',
    'tests/test_sentence_runs.py::PairsTest*': 'runs of sums',
    'tests/test_train.py::*as_the_command_does': 'a process',
    'tests/test_train.py::*the_command_does': 'a process',
    'tests/test_train.py::*xla_over*': 'the whole step compiled',
    'tests/test_train.py::NspTest*': 'a run',
    'tests/test_workers.py::RunTest*two_workers*': 'two workers, resumed',
    'tests/text/*::*every_code_point*': 'every code point',
    'tests/text/*::*planes_whose*': 'every code point',
    'tests/text/test_vocabulary.py::*another_process*': 'a process',
    'tests/training/test_by_row.py::*two_replicas*': 'a second device',
    'tests/training/test_combined.py::*taken_*': 'settings in pairs',
    'tests/training/test_distribution.py::Remat*': 'encoders computed again',
    'tests/training/test_evaluators.py::BestTest*[!e]': 'more of such runs',
    'tests/weights/test_added.py::*in_a_graph*': 'an export',
    'tests/weights/test_added.py::*litert': 'LiteRT of other tokenizers',
    'tests/weights/test_onward.py::*epsilon*': 'other numbers',
    'tests/weights/test_onward.py::*goes_on*': 'a run',
    'tests/weights/test_onward.py::*no_padding': 'other graphs',
    'tests/weights/test_onward.py::*our_own*': 'runs',
}
# Of each, `make test` runs one in so many, as of many that go the same way.
ONE_IN = {
    'tests/encoders/test_elmo.py::*read_once*': (2, 'settings'),
    'tests/encoders/test_every_encoder.py::*': (6, 'encoders'),
    'tests/encoders/test_every_encoder.py::*Complaints*_of_a*': (1, 'ids'),
    'tests/encoders/test_every_encoder.py::*Complaints*_of_c*': (1, 'ids'),
    'tests/encoders/test_every_encoder.py::*bfloat16*': (8, 'precisions'),
    'tests/encoders/test_every_encoder.py::*unknown_shapes*': (99, 'graphs'),
    'tests/encoders/test_relative_encoder.py::*two_streams*': (5, 'settings'),
    'tests/export/test_answer.py::*python_answers*': (3, 'kinds'),
    'tests/export/test_finetuned.py::*is_asked*': (9, 'kinds'),
    'tests/export/test_finetuned.py::*test_the_card[0-9]': (9, 'kinds'),
    'tests/export/test_finetuned.py::*warm_up*': (9, 'kinds'),
    'tests/export/test_litert.py::*wordpiece_vocabulary*': (4, 'vocabularies'),
    'tests/export/test_savedmodel.py::*that_lacks*': (9, 'poolings'),
    'tests/inference/test_loaded.py::*called_by_hand*': (4, 'encoders'),
    'tests/inference/test_loaded.py::*one_by_one*': (4, 'encoders'),
    'tests/inference/test_reader.py::*one_window*': (2, 'windows'),
    'tests/layers/test_queue_scores.py::*sums_and_gradient*': (2, 'queues'),
    'tests/layers/test_recurrent.py::*by_hand_is*': (3, 'cells'),
    'tests/layers/test_recurrent.py::*begins_anew*': (4, 'settings'),
    'tests/layers/test_relative.py::*equals_loops*': (5, 'settings'),
    'tests/layers/test_rotary_block.py::Band*of_the_mask*': (6, 'bands'),
    'tests/layers/test_vocabulary_scores.py::*any_number*': (2, 'sizes'),
    'tests/objectives/test_contrast.py::SharedRows*': (2, 'losses'),
    'tests/objectives/test_infocse.py::*reached*': (3, 'ways'),
    'tests/objectives/test_mlm.py::Masked*is_cross_entropy*': (2, 'rows'),
    'tests/objectives/test_precision.py::*': (30, 'cases of rows'),
    'tests/objectives/test_queue.py::*step_before*': (2, 'queues'),
    'tests/objectives/test_sentences.py::*whatever*': (2, 'directions'),
    'tests/objectives/test_sentences.py::*loaded_pools*': (2, 'poolings'),
    'tests/objectives/test_zero.py::*of_text*': (9, 'rows by hand elsewhere'),
    'tests/tasks/test_flow_command.py::FlowFit*': (2, 'fits'),
    'tests/tasks/test_lm_command.py::*each_piece*': (3, 'lengths'),
    'tests/tasks/test_squad_data.py::*exact_text*': (6, 'texts'),
    'tests/tasks/test_students.py::*those_of_the_model*': (5, 'kinds'),
    'tests/test_adapters.py::ModelTest*': (2, 'encoders'),
    'tests/test_keras_models.py::*a_backbone*': (4, 'encoders'),
    'tests/test_keras_models.py::*gradients_reach*': (4, 'encoders'),
    'tests/test_keras_models.py::*states_and_vectors*': (6, 'encoders'),
    'tests/test_lessons.py::*every_row_learns*': (99, 'rows that learn'),
    'tests/test_memory.py::*not_finite*': (2, 'devices'),
    'tests/test_memory.py::*same_replicas*': (2, 'devices'),
    'tests/test_memory.py::*sees_those_before*': (2, 'lengths'),
    'tests/test_recorded.py::*test_case*': (5, 'rows by hand elsewhere'),
    'tests/test_show.py::CommandTest*every_*': (99, 'pictures of rows'),
    'tests/text/test_bytepairs.py::*any_merges*': (6, 'vocabularies'),
    'tests/text/test_bytepairs.py::OracleTest*': (3, 'expressions'),
    'tests/text/test_every_tokenizer.py::*in_a_graph*': (3, 'tokenizers'),
    'tests/text/test_every_tokenizer.py::*nasty*': (3, 'tokenizers'),
    'tests/text/test_normalization.py::*long_words*': (8, 'tokenizers'),
    'tests/text/test_normalization.py::*mixtures*': (3, 'tokenizers'),
    'tests/training/test_compiled.py::*': (3, 'rows'),
    'tests/training/test_distribution.py::SameAs*': (99, 'rows on devices'),
    'tests/training/test_distribution.py::Update*': (2, 'clipping'),
    'tests/training/test_loop.py::*dropout_is_off*': (3, 'rows'),
    'tests/training/test_optim.py::Decays*tables_decay*': (4, 'cases'),
    'tests/training/test_optim.py::Narrow*float32*': (2, 'optimizers'),
    'tests/training/test_parts.py::*a_run*': (2, 'ways'),
    'tests/training/test_parts.py::*of_the_whole*': (16, 'rows'),
    'tests/training/test_parts.py::*of_the_whole*_ict_queue': (1, 'queues'),
    'tests/training/test_parts.py::*of_the_whole*_transformer_xl': (1, 'XL'),
    'tests/weights/test_added.py::*test_ids*': (3, 'tokenizers'),
    'tests/weights/test_added.py::*test_ids1[25]*': (1, 'blanks'),
    'tests/weights/test_added.py::*test_ids[6]*': (1, 'blanks'),
    'tests/weights/test_huggingface.py::*out_again*': (2, 'architectures'),
    'tests/weights/test_huggingface.py::*out_again*name[13]': (1, 'heads'),
    'tests/weights/test_keras_hub.py::*ids_states*': (4, 'presets'),
    'tests/weights/test_onward.py::Activation*': (8, 'forms of architectures'),
    'tests/weights/test_public_folders.py::*': (6, 'kinds of folders'),
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


def pytest_collection_finish():
    """From here on there is garbage."""
    gc.enable()


def pytest_collection_modifyitems(config, items):
    """Sorts long files first, and marks what `make test` leaves out."""
    first = {name: number for number, name in enumerate(LONGEST)}
    items.sort(
        key=lambda item: first.get(item.nodeid.split('::')[0], len(first))
    )
    unused, seen = {*SECOND, *ONE_IN}, collections.Counter()

    @functools.cache
    def patterns_of(file):
        """Returns those of the tests of a file."""
        return [
            [x for x in patterns if fnmatch.fnmatchcase(file, x.split('::')[0])]
            for patterns in (SECOND, ONE_IN)
        ]

    for item in items:
        name = item.nodeid
        named, share = (
            [x for x in patterns if fnmatch.fnmatchcase(name, x)]
            for patterns in patterns_of(name.split('::')[0])
        )
        share = sorted(share, key=len)[-1:]
        unused.difference_update(named, share)
        for pattern in share:
            if seen[pattern] % ONE_IN[pattern][0]:
                named.append(pattern)
            seen[pattern] += 1
        if named:
            item.add_marker(pytest.mark.second)
    if config.args_source.name != 'ARGS' and unused:
        raise pytest.UsageError(f'tests/conftest.py: no test is {unused}')
