"""Each flag of each command changes what the command leaves.

A way is a command that runs on small files: another value of each flag, alone,
changes what it returns or writes, besides what repeats the choices. Where that
takes long its innermost calls are replaced, and what they are called with is
noted; a spy is called, and noted too.
"""

import contextlib
import importlib
import inspect
import io
import itertools
import json
import os
import pkgutil
import re
import shutil
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from absl.testing import parameterized

import infoword_tf
from infoword_tf import sizes
from infoword_tf.choices import flags_of
from infoword_tf.data import batches
from infoword_tf.training import record
from tasks import finetune
from tests import places, quick, runs, zoo
from tests.tasks import finetuning, squad_files, test_typed
from tests.training import test_evaluators


class Done(Exception):
    """The innermost call was reached."""


class Way(NamedTuple):
    """A command, the flags that it is given, and another value of each.

    Attributes:
        command: its module.
        choices: by flag; {} in texts is the folder.
        others: by flag, another value, which changes what is called.
        calls: by what is replaced, what it returns, or a function that it
            calls; Done ends the command; SPY: what it is.
        words: what is typed besides flags; None: it takes none.
    """

    command: str
    choices: Mapping[str, Any]
    others: Mapping[str, Any]
    calls: Mapping[str, Any] = {}
    words: tuple[str, ...] | None = None


class Into(NamedTuple):
    """A value that several calls are told: how their names end."""

    value: Any
    calls: tuple[str, ...]


class Made(NamedTuple):
    """Result of a call, made of the folder; its own calls are noted."""

    of: Any


def vectors(texts, role='passage'):
    """Vectors [n, 4] that differ."""
    return np.eye(4, dtype=np.float32)[[len(x) % 4 for x in texts]]


FAKE = mock.MagicMock
SPY = 'spy'
ENCODER = vectors, 'cosine'
ONE = {'init': '{}/one', 'workdir': '{}/out'}
TWO = {'init': '{}/two', 'workdir': '{}/other'}
EXPORT = {'model': '{}/one', 'workdir': '{}/out'}
VECTORS_OF = {
    'infoword_tf.evaluation.models.vectors_of': lambda *_, **__: ENCODER,
}


def faked(*names):
    """Replaces the parts of a search, and others of `tasks.retrieval`.

    Names of `models` and `stages` are those of `tasks.retrieval`, too.
    """
    parts = 'ranking.hybrid', 'write_run', 'finish'
    every = [f'tasks.retrieval.{name}' for name in (*parts, *names)]
    searches = 'by_vectors', 'by_words'
    every += [f'infoword_tf.evaluation.stages.{name}' for name in searches]
    load = Made(lambda _: of_vectors())
    return {'infoword_tf.load': load, **dict.fromkeys(every, FAKE)}


# A fine-tuning that ends before a run: the task has all that was read.
UNTRAINED = {
    'tasks.finetune.check_inits': None,
    'tasks.finetune.prepare': lambda _, choices: choices.workdir,
    'tasks.finetune.train_and_write': Done,
}  # fmt: skip
# Kept of a result under the name of a flag.
RESULTS = 'languages', 'pairs', 'sentences', 'tokenizer', 'tokens'
STS = {'data': '{}/a.tsv'}
BEIR = {'data_dir': '{}/beir'}
TABLE = {'train': '{}/a.csv', 'dev': '{}/b.csv'}
TRAIN = 'infoword_tf.train'
MLM = {
    'objectives': 'mlm', 'corpus': ('text:{}/long.txt',),
    'heldout': '{}/held.txt', 'vocab_size': 300, 'workdir': '{}/out',
    'batch_size': 8, 'seq_len': 16, 'steps': 2, 'checkpoint_every': 1,
    'log_every': 1, 'eval_every': 2, 'precision': 'float32',
}  # fmt: skip
PAIRED = {
    **MLM, 'objectives': 'simcse', 'corpus': (), 'heldout': (),
    'heldout_pairs': '{}/a.csv', 'pair_columns': ('text', 'label', 'other'),
}  # fmt: skip
WAYS = {
    'sts': Way('tasks.sts', {**ONE, **STS}, {
        **TWO, 'data': '{}/b.tsv', 'dims': 3,
    }),
    'sts of an export': Way('tasks.sts', {**EXPORT, **STS}, {
        'model': '{}/two',
    }, VECTORS_OF),
    'tatoeba': Way('tasks.tatoeba', {
        **ONE, 'data_dir': '{}/tatoeba', 'score': 'margin',
    }, {
        **TWO, 'data_dir': '{}/tatoeba2', 'score': 'cosine', 'layer': 1,
        'pooling': 'mean', 'dims': 3, 'neighbours': 2, 'languages': ('deu',),
    }, {'tasks.tatoeba.bitext.measure_both': SPY}),
    'tatoeba of an export': Way('tasks.tatoeba', {
        **EXPORT, 'data_dir': '{}/tatoeba',
    }, {'model': '{}/two'}, VECTORS_OF),
    'probe': Way('tasks.probe', {**ONE, **TABLE}, {
        **TWO, 'train': '{}/b.csv', 'dev': '{}/a.csv', 'delimiter': ';',
        'text': 'other', 'label': 'kind', 'pooling': 'mean', 'dims': 3,
    }, {'tasks.probe.probe': SPY}),
    'probe of an export': Way('tasks.probe', {**EXPORT, **TABLE}, {
        'model': '{}/two',
    }, VECTORS_OF),
    'words': Way('tasks.words', {
        'init': '{}/table', 'data_dir': '{}/words', 'workdir': '{}/out',
    }, {'init': '{}/table2'}, {'tasks.words.measure': SPY}),
    'words of a file': Way('tasks.words', {
        'vectors': '{}/a.vec', 'data_dir': '{}/words', 'workdir': '{}/out',
        'word2vec': '{}/out/c.vec',
    }, {
        'vectors': '{}/b.vec', 'data_dir': '{}/words2', 'workdir': '{}/other',
        'word2vec': '{}/out/d.vec',
    }),
    'lm': Way('tasks.lm', {
        'init': '{}/next', 'workdir': '{}/out', 'corpus': 'text:{}/a.txt',
    }, {
        'init': '{}/next2', 'workdir': '{}/other', 'corpus': 'text:{}/b.txt',
        'heldout': '{}/b.txt', 'seq_len': 12, 'memory_length': 8, 'clamp': 4,
        'same_length': True, 'batch_size': 3, 'precision': 'mixed_bfloat16',
    }),
    'lm samples': Way('tasks.lm', {
        'init': '{}/next', 'sample': True, 'tokens': 4,
    }, {
        'init': '{}/next2', 'prompt': 'b', 'tokens': 3, 'temperature': 0.5,
        'top_p': 0.5, 'seed': 1,
    }, {'infoword_tf.inference.continuation.generate': SPY}),
    'retrieval': Way('tasks.retrieval', {
        **ONE, **BEIR, 'vectors': '{}/kept',
    }, {
        **TWO, 'data_dir': '{}/beir2', 'split': 'dev',
        'queries': '{}/queries.jsonl', 'seed': 3, 'batch_size': 5, 'dims': 3,
        'precision': 'mixed_bfloat16', 'vectors': '{}/kept2', 'tune': 'dev',
    }, {
        'tasks.retrieval.with_tuned': lambda results, _: (results, {
            'hybrid_share': 0.3, 'tune_queries': 1}),
        **faked('models.encoder_of', 'models.mean_of_embeddings', 'digest',
                'stages.open_vectors', 'models.check_dims'),
    }),
    'retrieval in stages': Way('tasks.retrieval', {
        **ONE, **BEIR, 'rerank': '{}/words', 'first': 'bm25',
    }, {
        'rerank': '{}/words2', 'first': '{}/words2', 'rerank_top': 3,
        'critic': 'late', 'costs': True,
    }, faked('check_model', 'models.encoder_of', 'models.mean_of_embeddings',
             'candidates')),
    'retrieval keeps nothing': Way('tasks.retrieval', {**ONE, **BEIR}, {
        'seed': Into(3, ('untrained',)), 'batch_size': 5, 'dims': 3,
        'precision': 'mixed_bfloat16', 'baselines': False,
    }, faked('models.encoder_of', 'models.mean_of_embeddings',
             'models.check_dims')),
    'retrieval of an export': Way('tasks.retrieval', {
        **EXPORT, 'corpus': 'text:{}/a.txt', 'vectors': '{}/kept',
    }, {
        'model': '{}/two', 'corpus': 'text:{}/b.txt', 'heldout': '{}/b.txt',
        'batch_size': Into(5, ('models_exported',)),
        'dims': Into(3, ('models_exported',)),
        'vectors': '{}/kept2', 'init': '{}/one',
    }, {
        'infoword_tf.evaluation.models.exported': lambda *_, **__: ENCODER,
        'tasks.retrieval.read_exported': lambda _: (zoo.config('simcse'), {}),
        **faked('models.encoder_of', 'digest', 'stages.open_vectors',
                'models.check_dims'),
    }),
    'retrieval of results': Way('tasks.retrieval', {
        **BEIR, 'run': '{}/a.run', 'workdir': '{}/out',
    }, {'run': '{}/b.run', 'workdir': '{}/other'}, {
        'tasks.retrieval.finish': FAKE,
    }),
    'classify': Way('tasks.classify', {
        **ONE, **TABLE, 'test': '{}/b.csv', 'predict': '{}/a.csv',
        'test_by': 'kind',
    }, {
        'init': '{}/two', 'train': '{}/b.csv', 'dev': '{}/a.csv',
        'delimiter': ';', 'text': 'other', 'label': 'kind', 'pair': 'other',
        'label_columns': ('label', 'kind'),
        'choices': ('text', 'other'), 'regress': True, 'metric': 'f1',
        'columns': (
            'other', 'text', 'label', 'kind', 'n', 'more'),
        'test': '{}/a.csv',
        'test_by': 'label', 'test_only': ('0',), 'predict': '{}/b.csv',
        'workdir': '{}/other',
    }, {
        **UNTRAINED,
        'tasks.classify.Config.read': lambda *_: zoo.config('label'),
    }),
    'classify numbers': Way('tasks.classify', {
        **ONE, **TABLE, 'label': 'number',
    }, {'separator': ';', 'drop_label': ('3',)}, {
        **UNTRAINED,
        'tasks.classify.Config.read': lambda *_: zoo.config('label'),
    }),
    'glue': Way('tasks.glue', {
        **ONE, 'task': 'cola', 'data_dir': '{}/glue',
    }, {
        'init': '{}/two', 'task': 'sst-2', 'data_dir': '{}/glue2',
        'test': False, 'workdir': '{}/other',
    }, UNTRAINED),
    'squad': Way('tasks.squad', {
        **ONE, 'train': '{}/a.json', 'dev': '{}/b.json',
    }, {
        'init': '{}/two', 'train': '{}/b.json', 'dev': '{}/a.json',
        'version2': True, 'dev_examples': 1, 'workdir': '{}/other',
    }, UNTRAINED),
    'tag': Way('tasks.tag', {
        **ONE, 'train': '{}/a.conll', 'dev': '{}/b.conll',
    }, {
        'init': '{}/two', 'train': '{}/b.conll', 'dev': '{}/a.conll',
        'word_column': 1, 'column': 2, 'scheme': 'bioes',
        'test': '{}/a.conll', 'predict': '{}/b.conll', 'workdir': '{}/other',
    }, UNTRAINED),
    'tag lists': Way('tasks.tag', {
        **ONE, 'train': '{}/a.words.jsonl', 'dev': '{}/a.words.jsonl',
    }, {
        'words': 'other', 'labels': 'parts', 'names': ('O', 'B-A'),
    }, UNTRAINED),
    'whiten': Way('tasks.whiten', {**ONE, 'corpus': 'text:{}/a.txt'}, {
        **TWO, 'corpus': 'text:{}/b.txt', 'heldout': '{}/b.txt',
        'sentences': 3, 'pooling': 'mean', 'dims': 2, 'epsilon': 0.5,
    }),
    'mine': Way('tasks.mine', {
        **ONE, 'pairs': '{}/texts.csv', 'corpus': 'text:{}/a.txt',
        'pair_columns': ('text', 'other'),
    }, {
        **TWO, 'pairs': '{}/texts2.csv', 'pair_columns': ('other', 'text'),
        'pair_delimiter': ';', 'corpus': 'text:{}/b.txt', 'negatives': 2,
        'window': 1, 'skip': 1, 'margin': 0.4, 'relative_margin': 0.9,
        'rescore': '{}/two', 'batch_size': 5, 'precision': 'mixed_bfloat16',
    }, {
        'tasks.mine.Config.read': lambda *_: zoo.config('simcse'),
        'tasks.mine.check_judge': None,
        'infoword_tf.load': Made(lambda _: of_vectors()),
        'tasks.mine.rated': lambda _, a, b: np.linspace(0, 1, len(a)),
        'tasks.mine.csv': FAKE,
    }),
    'mine a folder': Way('tasks.mine', {**ONE, **BEIR}, {
        'data_dir': '{}/beir2', 'split': 'dev', 'positives': 2,
    }, {
        'tasks.mine.Config.read': lambda *_: zoo.config('simcse'),
        'tasks.mine.retrieval.beir_task': lambda *_: mock.Mock(
            queries=['one'], relevance=[dict.fromkeys(range(3), 1)],
            documents=lambda: enumerate(('some', 'more', 'text'))),
        'infoword_tf.load': Made(lambda _: of_vectors()),
        'tasks.mine.csv': FAKE,
    }),
    'savedmodel': Way('export.savedmodel', {
        'init': '{}/one', 'output': '{}/out', 'sts': '{}/a.tsv',
    }, {
        'init': '{}/two', 'output': '{}/other', 'version': 2, 'dims': 3,
        'precision': 'bfloat16', 'sts': '{}/b.tsv', 'branches': 2,
    }, {'export.bundle.write': Done}),
    'litert': Way('export.litert', {
        'init': '{}/one', 'output': '{}/out', 'dev': '{}/a.csv',
    }, {
        'init': '{}/two', 'output': '{}/other', 'seq_len': 8,
        'precision': 'float16', 'dev': '{}/b.csv', 'text': 'other',
        'pair': 'other', 'label': 'kind',
        'label_columns': ('label', 'kind'),
    }, {
        'export.litert.Config.read': lambda *_: zoo.config('label'),
        'export.litert.check': None, 'export.litert.write': Done,
    }),
    'litert of vectors': Way('export.litert', {
        'init': '{}/one', 'output': '{}/out', 'sts': '{}/a.tsv',
    }, {'sts': '{}/b.tsv'}, {
        'export.litert.Config.read': lambda *_: zoo.config('simcse'),
        'export.litert.check': None, 'export.litert.write': Done,
    }),
    'verify': Way('export.verify', {'model': '{}/one', 'init': '{}/one'}, {
        'model': '{}/two', 'init': '{}/two', 'texts': 7,
    }, {
        'export.verify.read_exported': lambda _: (zoo.config('simcse'), {
            'precision': 'float32', 'signatures': []}),
        'infoword_tf.config.Config.read': lambda _: zoo.config('simcse'),
        'export.comparison.batches': FAKE,
        'export.comparison.run_elsewhere': lambda *_, **__: ({}, {
            'imported': [], 'imported_by_the_model': []}),
        'export.serving_ops.unservable': lambda _: [],
        'infoword_tf.load': Done,
    }),
    'compat': Way('export.compat', {'python': '{}/a.csv', 'model': '{}/one'}, {
        'python': '{}/b.csv', 'model': '{}/two',
    }, {
        'export.compat.read_exported': lambda _: (None, {
            'precision': 'float32'}),
        'export.comparison.batches': FAKE,
        'export.comparison.run_elsewhere': lambda *_: (None, {
            'tensorflow': '1'}),
        'export.comparison.largest': Done,
    }),
    'search': Way('export.search', {
        'model': '{}/one/1', 'documents': '{}/a.csv', 'index': '{}/index',
        'dims': 2,
    }, {
        'model': '{}/two/1', 'documents': '{}/b.csv', 'id': 'number',
        'text': 'other', 'delimiter': ';', 'index': '{}/index2',
        'dims': 3, 'top_k': 3, 'hybrid': True, 'hybrid_share': 0.3,
    }, {
        'export.search.read_exported': lambda _: (zoo.config('simcse'), {}),
        'export.search.digest': 'digest',
        'infoword_tf.evaluation.models.exported': lambda *_, **__: ENCODER,
        'infoword_tf.evaluation.models.first_numbers': SPY,
        'export.search.Index': Made(lambda folder: of_no_index(folder)),
    }, ('a question',)),
    'convert': Way('infoword_tf.convert', {
        'source': '{}/one', 'workdir': '{}/out',
    }, {
        'source': '{}/two', 'workdir': '{}/other', 'pooling': 'max',
        'prompts': '{"query": "q"}',
    }, {'infoword_tf.convert.convert': FAKE}),
    'convert back': Way('infoword_tf.convert', {
        'init': '{}/one', 'output': '{}/out',
    }, {
        'init': '{}/two', 'output': '{}/other',
        'format': 'sentence_transformers',
    }, {'infoword_tf.convert.write': FAKE}),
    'prepare': Way('infoword_tf.prepare', {
        'corpus': ('text:{}/long.txt',), 'output': '{}/out', 'vocab_size': 300,
        'processes': 1,
    }, {
        'corpus': ('text:{}/held.txt',), 'heldout': ('{}/held.txt',),
        'output': '{}/other', 'vocab_size': 301, 'tokenizer': 'words',
        'lower_case': False, 'shard_size': 0.05,
    }),
    'prepare with a vocabulary': Way('infoword_tf.prepare', {
        'corpus': ('text:{}/a.txt',), 'output': '{}/out',
        'vocab': '{}/vocab.txt', 'processes': 1,
    }, {'vocab': '{}/vocab2.txt'}),
    'prepare in processes': Way('infoword_tf.prepare', {
        'corpus': ('text:{}/a.txt',), 'output': '{}/out',
        'vocab': '{}/vocab.txt',
    }, {'processes': 3}, {'infoword_tf.prepare._in_processes': Done}),
    'train': Way(TRAIN, {**MLM, 'encoder': 'transformer'}, {
        'objectives': 'mlm:1,bert_nce:1', 'masking': 'spans',
        'mask_share': 0.3, 'encoder': 'modern', 'size': 'mini',
        'positions': 77, 'activation': 'relu', 'dropout': 0.3, 'seq_len': 32,
        'learning_rate': 0.5, 'warmup_steps': 2, 'weight_decay': 0.3,
        'clip_norm': 0.3, 'moments': 'bfloat16', 'init_deviation': 0.3,
        'layer_decay': 0.3,
        'checkpoint_every': 2, 'keep_checkpoints': 1,
        'log_every': 2, 'eval_every': 1, 'measure': 'sts:{}/a.tsv',
        'precision': 'mixed_bfloat16', 'shuffle_block': 700,
        'corpus': ('lines:{}/long.txt',), 'heldout': '{}/short.txt',
        'vocab_size': 301, 'tokenizer': 'words', 'lower_case': False,
        'workdir': '{}/other',
    }),
    'train by numbers': Way(TRAIN, MLM, {
        'batch_size': Into(4, ('open_sources', 'State')),
        'steps': Into(3, ('schedule', 'Fit')),
        'lr_decay': Into('none', ('AdamW', 'schedule')),
        'optimizer': Into('bert', ('AdamW', 'schedule')),
        'seed': Into(3, ('open_sources', 'Batches', 'Model', 'Trainer')),
    }, dict.fromkeys([
        'infoword_tf.data.opened.batches.open_sources',
        'infoword_tf.data.opened.batches.Batches',
        'infoword_tf.training.build.Model',
        'infoword_tf.training.build.optim.AdamW',
        'infoword_tf.training.build.optim.schedule',
        'infoword_tf.training.build.State',
        'infoword_tf.training.loop.Trainer',
        'infoword_tf.training.fit.Fit',
    ], SPY)),
    'train in parts': Way(TRAIN, MLM, {
        'microbatch': 4, 'remat': True, 'on_nonfinite': 'rewind',
        'grace_seconds': 7.0,
    }, {
        'infoword_tf.training.loop.MicrobatchStep': SPY,
        'infoword_tf.encoders.encoder.remat': SPY,
        'infoword_tf.training.fit.Fit': SPY,
    }),
    'train around what is not finite': Way(TRAIN, {
        **MLM, 'on_nonfinite': 'rewind',
    }, {'rewinds': 7}, {'infoword_tf.training.fit.Fit': SPY}),
    'train with a band': Way(TRAIN, {**MLM, 'encoder': 'modern'}, {
        'global_every': 4, 'local_window': 6, 'local_theta': 7.0,
        'global_theta': 7.0, 'norm': 'rms', 'norms': 'after', 'kv_heads': 1,
        'qk_norm': True,
    }),
    'train with shared layers': Way(TRAIN, {
        **MLM, 'objectives': 'nsp', 'encoder': 'transformer',
    }, {
        'relative_buckets': 4, 'shared_layers': True, 'embedding_width': 8,
    }),
    'train with a memory': Way(TRAIN, {
        **MLM, 'objectives': 'transformer_xl', 'memory_length': 16,
    }, {
        'memory_length': 8, 'clamp': 9, 'same_length': True, 'untie': False,
    }),
    'train a table': Way(TRAIN, {**MLM, 'objectives': 'skip_gram'}, {
        'width': 32,
    }),
    'train for the best': Way(TRAIN, {
        **MLM, 'best': 'sts:{}/a.tsv', 'eval_every': 1, 'learning_rate': 0.0,
        'steps': 3, 'objectives': 'skip_gram',
    }, {'best': 'sts:{}/b.tsv', 'patience_evals': 1}),
    'train from weights': Way(TRAIN, {
        **MLM, 'vocab_size': None, 'init': '{}/one',
    }, {'init': '{}/two', 'freeze': True, 'adapter': 'lora'}),
    'train on languages': Way(TRAIN, {
        **MLM, 'corpus': ('de=text:{}/long.txt', 'en=text:{}/held.txt'),
        'heldout': (),
    }, {
        'corpus': ('de=text:{}/held.txt', 'en=text:{}/long.txt'),
        'heldout': ('de={}/held.txt', 'en={}/long.txt'),
        'language_exponent': 0.1, 'corpus_weights': ('de=1', 'en=2'),
    }),
    'train with a vocabulary': Way(TRAIN, {
        **MLM, 'vocab_size': None, 'vocab': '{}/vocab.txt',
    }, {'vocab': '{}/vocab2.txt'}),
    'train on pairs': Way(TRAIN, {
        **PAIRED, 'pairs': '{}/a.csv',
    }, {
        'pairs': '{}/b.csv', 'pair_columns': ('other', 'text', 'label'),
        'heldout_pairs': '{}/b.csv', 'pair_delimiter': ';',
        'pair_negatives': 0,
    }, {'infoword_tf.training.fit.Fit': Done}),
    'train on files of pairs': Way(TRAIN, {
        **PAIRED, 'pairs': '{}/[ab].csv',
    }, {'pair_weights': ('1', '5')}),
    'train on translations': Way(TRAIN, {
        **MLM, 'objectives': 'tlm', 'corpus': (), 'heldout': (),
        'parallel': ('{}/tatoeba/tatoeba.deu-eng.{deu,eng}',),
    }, {
        'parallel': ('{}/tatoeba2/tatoeba.deu-eng.{deu,eng}',),
        'heldout_parallel': ('{}/tatoeba2/tatoeba.deu-eng.{deu,eng}',),
        'drop_equal': True,
    }, {'infoword_tf.data.opened.parallel.read': Done}),
}  # fmt: skip
# Flags of these are those of `RunChoices`, which test_keys.py goes over; or
# their own tests have each of them.
ELSEWHERE = {
    'infoword_tf.show': 'test_show',
    'tasks.distill': 'test_students, test_embedding',
    'tasks.flow': 'test_flow_command',
    'export.demo': 'test_demo',
}
# What ways differ by; what does nothing here; and what tests of the commands
# have: test_beam, test_search, test_savedmodel, test_train, test_sentence_runs.
FREE = {
    'tasks.lm': ('sample',),
    'tasks.squad': ('seq_len', 'epochs'),  # other defaults
    'export.search': ('corpus', 'critic', 'first', 'rerank', 'rerank_top'),
    'export.verify': ('speed',),
    'infoword_tf.prepare': ('beam_options',),
    'infoword_tf.train': (
        'minutes', 'strategy', 'logical_cpus', 'xla', 'epochs',
    ),
}  # fmt: skip


def of_vectors():
    """A workdir whose vectors a text decides."""
    stand_in = mock.MagicMock(config=zoo.config('simcse'), unigram=None)
    stand_in.encode.side_effect = lambda texts, *_, **__: np.stack([
        np.random.default_rng(zlib.crc32(x.encode())).standard_normal(4)
        for x in texts
    ]).astype(np.float32)  # fmt: skip
    stand_in.untrained.return_value = stand_in
    stand_in.vector_width.return_value = stand_in.encoder.width = 4
    return stand_in


def of_no_index(folder):
    stand_in = mock.MagicMock(folder=folder)
    stand_in.about = {}
    stand_in.find.side_effect = lambda _, vector, prepare, *__, **___: [
        *prepare(vector)[:0]
    ]
    return stand_in


# Whichever parts its cells there are columns of these names.
NAMES = 'text,other,label,kind,number,x;text;label;other;kind;number'


def write_files():
    """Writes what ways name, each in two versions that differ."""
    folder = places.make()
    (folder / 'cache').mkdir(exist_ok=True)
    runs.set_up()
    os.environ[places.CACHE] = f'{folder}/cache'
    for name, key in (('long', 'corpus'), ('held', 'heldout')):
        path = runs.TEXT[key].removeprefix('text:')
        shutil.copy(path, folder / f'{name}.txt')
    text = (folder / 'held.txt').read_text()
    (folder / 'short.txt').write_text(text[:9000])
    for name, row in (
        ('one', 'simcse'), ('table', 'skip_gram'), ('next', 'transformer_xl')
    ):
        for seed, more in enumerate(('', '2')):
            name = f'{name}{more}'.replace('one2', 'two')
            runs.run_here(
                folder / name, f'--objectives={row}', f'--seed={seed}',
                '--steps=1',
            )  # fmt: skip
    sentences = 'One thing.', 'Two of them.', 'A third one.', 'And a last.'
    for name, begin in (('a', 0), ('b', 1)):
        turned = sentences[begin:] + sentences[:begin]
        (folder / f'{name}.txt').write_text(
            '\n\n'.join(f'{x} {y}' for x, y in itertools.pairwise(turned))
        )
        finetuning.write(
            folder / f'{name}.tsv', ('score', 'sentence1', 'sentence2'),
            [(n, f'{x} {n}', turned[-n % 4]) for n, x in enumerate(turned * 2)],
        )  # fmt: skip
        lines = [
            f'{x},other {x},{n % 2},{n // 2 % 2},{n},'
            f';other {x};{n % 2};;{n % 3};{n}'
            for n, x in enumerate(turned * 12)
        ]  # fmt: skip
        (folder / f'{name}.csv').write_text('\n'.join([NAMES, *lines]) + '\n')
        more = '' if name == 'a' else '2'
        (folder / f'texts{more}.csv').write_text('\n'.join(
            ['text,other,label;text;other;label']
            + [f'a{n} {name},b{n // 2},1;{n};b{n};0' for n in range(12)]
        ))  # fmt: skip
        (folder / f'{name}.vec').write_text(''.join(
            f'{word} {n + begin} {n * n}\n'
            for n, word in enumerate(('the', 'a', 'is', 'of'))
        ).join(['4 2\n', '']))
        (folder / f'{name}.run').write_text(f'q{begin} Q0 d0 1 1 {name}\n')
        # Words, numbers and two sets of labels.
        (folder / f'{name}.conll').write_text(
            f'{name} B-X B-A B-A\nx B-Y O O\n\n' * 3 + 'y B-Z O B-B\n'
        )
        (folder / f'{name}.words.jsonl').write_text(json.dumps({
            'tokens': [name, 'x'], 'other': ['x', name], 'tags': [0, 1],
            'parts': [1, 0],
        }))
        squad_files.write(folder / f'{name}.json', ('Some of it.', *(
            squad_files.question(f'{name}{n}', x, ('Some', 0))
            for n, x in enumerate(turned)
        )))  # fmt: skip
        words = folder / f'words{more}'
        words.mkdir()
        (words / f'{name}.tsv').write_text(
            f'the\ta\t3\nis\tof\t{begin}\nthe\tis\t2\n'
        )
        bitexts = folder / f'tatoeba{more}'
        bitexts.mkdir()
        for pair in ('deu-eng', 'fra-eng'):
            for code in pair.split('-'):
                (bitexts / f'tatoeba.{pair}.{code}').write_text(
                    '\n'.join(f'{code} {x}' for x in turned)
                )
        texts = {f'd{n}': x for n, x in enumerate(turned)}
        queries = {f'q{n}': x for n, x in enumerate(turned)}
        test_evaluators.write_search(
            folder / f'beir{more}', queries, texts,
            test=(('q0', 'd0'), ('q1', 'd1')), dev=(('q1', 'd0'), ('q2', 'd1')),
        )  # fmt: skip
        numbered = [*enumerate(turned)]
        lines = {
            'CoLA': [('x', n % 2, '', x) for n, x in numbered],
            'SST-2': [('sentence', 'label'),
                      *((x, n % 2) for n, x in numbered)],
        }  # fmt: skip
        for task, split in itertools.product(lines, ('train', 'dev', 'test')):
            path = folder / f'glue{more}' / task / f'{split}.tsv'
            tested = ('index', 'sentence'), *numbered
            first, *rows = tested if split == 'test' else lines[task]
            finetuning.write(path, first, rows)
    text = json.dumps({'_id': 'q0', 'text': 'Another one.'})
    text += '\n' + json.dumps({'_id': 'q1', 'text': 'Yet another.'})
    (folder / 'queries.jsonl').write_text(text)
    for name, word in (('vocab', 'a'), ('vocab2', 'b')):
        (folder / f'{name}.txt').write_text(
            '\n'.join(('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', word))
        )
    return folder


def is_all(argument):
    """Whether it is everything that was chosen, which shows no use of it."""
    if isinstance(argument, Mapping):
        return 'workdir' in argument
    return hasattr(type(argument), 'workdir') or 'Choices' in type(
        argument
    ).__name__


def without(result, choices):
    """A result without choices that it repeats, and what a clock measured."""
    if not isinstance(result, dict):
        return None
    return {
        name: value for name, value in result.items()
        if value != choices.get(name) and name not in ('weights', 'run')
        and not name.endswith(('seconds', '_per_second'))
    }  # fmt: skip


def digest(array):
    """Returns what tells arrays apart, sooner than all numbers are printed."""
    if array.dtype == object:
        return repr(array.tolist())
    return f'{array.dtype}{array.shape}{zlib.crc32(array.tobytes())}'


def run_of(command):
    if command == 'infoword_tf.train':
        return infoword_tf.train
    return importlib.import_module(command).run


# Numbers of objects and of processes, and names of files for a while.
VARYING = r'\d{12,}|0x[0-9a-f]+|/tmp\w+/text|\d+\.[0-9a-f]{6}\b'


class EveryFlagTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = write_files()
        cls.files = {*cls.folder.iterdir()}

    def in_folder(self, value):
        if isinstance(value, tuple):
            return tuple(map(self.in_folder, value))
        if isinstance(value, str):
            return value.replace('{}', str(self.folder))
        return value

    def left(self, way, **changes):
        """Returns what a command calls and leaves, but for its choices."""
        for path in self.folder.iterdir():
            if path not in self.files:
                shutil.rmtree(path)
        run, log = run_of(way.command), mock.MagicMock()
        choices = {k: self.in_folder(x)
                 for k, x in {**way.choices, **changes}.items()}  # fmt: skip
        with contextlib.ExitStack() as stack:
            small = {'layers': 1, 'width': 128, 'heads': 2}
            for context in (
                quick.small(), contextlib.redirect_stdout(io.StringIO()),
                mock.patch.object(batches, 'HELDOUT_SEQUENCES', 8),
                mock.patch.dict(sizes.SIZES, mini=small),
                contextlib.redirect_stderr(io.StringIO()),
            ):  # fmt: skip
                stack.enter_context(context)
            for name, answer in way.calls.items():
                noted = getattr(log, name.replace('.', '_'))
                if answer is SPY:
                    noted.side_effect = pkgutil.resolve_name(name)
                elif isinstance(answer, Made):
                    noted.return_value = answer.of(self.folder)
                elif callable(answer) and answer is not FAKE:
                    noted.side_effect = answer
                elif answer is not FAKE:
                    noted.return_value = answer
                stack.enter_context(mock.patch(name, noted))
            result = None
            try:
                words = () if way.words is None else (way.words,)
                result = run(*words, **choices)
                if isinstance(result, dict):
                    self.check_record(result, choices)
            except Done:
                pass
        actual = {'result': without(result, choices), **self.written()}
        with np.printoptions(override_repr=digest):
            for name, args, more in log.mock_calls:
                typed = [x for x in args if not is_all(x)], more
                actual[name] = actual.get(name, '') + re.sub(
                    VARYING, '', repr(typed)
                )
        return actual

    def written(self):
        """The files of a command by path, but for what repeats its choices."""
        actual = {}
        for path in sorted(self.folder.rglob('*')):
            top = self.folder / path.relative_to(self.folder).parts[0]
            if top in self.files or path.is_dir() or 'tensorboard' in str(path):
                continue
            if path.name == 'metrics.jsonl':
                actual[str(path)] = runs.untimed(path.parent)
            elif path.name == 'config.json':
                config = json.loads(path.read_text())
                text = config['run'].get(record.FINGERPRINT)
                actual[str(path)] = {**config, 'run': text}
            elif path.name not in ('flags.txt', '.lock'):
                result = path.name == 'metrics.json'
                actual[str(path)] = '' if result else path.read_bytes()
        return actual

    @parameterized.named_parameters(*[(name, name) for name in WAYS])
    def test_each_changes_what_is_left(self, name):
        way = WAYS[name]
        expected = self.left(way)
        self.assertEqual(self.left(way), expected)  # nothing else changes it
        for flag, value in way.others.items():
            calls = ()
            if isinstance(value, Into):
                value, calls = value
            with self.subTest(flag):
                others = self.left(way, **{flag: value})
                self.assertNotEqual(others, expected)
                for end in calls:
                    (of,) = (x for x in expected if x.endswith(end))
                    self.assertNotEqual(others[of], expected[of], of)

    def check_record(self, record, choices):
        """It says what was chosen: by its name, and of which model."""
        for flag, value in choices.items():
            if flag in record and flag not in RESULTS:
                self.assertEqual(record[flag], value)
            if flag in ('init', 'model', 'vectors'):
                self.assertEqual(record.get('weights', value), value)


class AllFlagsTest(parameterized.TestCase):
    def test_every_flag_of_every_command_is_here(self):
        every = set()
        for command in test_typed.commands():
            if command.split('.')[0] == 'benchmarks' or command in ELSEWHERE:
                continue
            every.add(command)
            run = run_of(command)
            flags = set(flags_of(run.choices))
            takes = inspect.signature(run).parameters
            self.assertLessEqual(flags, takes.keys(), command)
            if 'seeds' in flags:
                kind = finetune.FinetuneChoices
                flags -= set(flags_of(kind)) - {'init', 'workdir'}
            tried = {
                flag for way in WAYS.values() if way.command == command
                for flag in way.others
            }  # fmt: skip
            with self.subTest(command):
                self.assertEmpty(flags - tried - set(FREE.get(command, ())))
        self.assertEqual(every, {way.command for way in WAYS.values()})
