"""Each flag of the commands of tasks/ and export/ reaches what it is for.

A way is a command with its innermost calls replaced: what these are called
with is noted, and another value of each flag, alone, changes it. What a
command says of itself in metrics.json does not count.
"""

import collections
import contextlib
import importlib
import io
import itertools
import json
import operator
import pathlib
import re
import shutil
import types
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import infoword_tf
from infoword_tf.choices import flags_of
from infoword_tf.text.wholewords import WholeWords
from tasks import finetune
from tests import places, zoo
from tests.tasks import test_typed


class Done(Exception):
    """The innermost call was reached."""


class Way(NamedTuple):
    """A command, the flags that it is given, and another value of each.

    Attributes:
        command: its module.
        choices: by flag; {} in texts is the folder.
        others: by flag, another value, which changes what is called.
        calls: by what is replaced, what it returns, or a function that it
            calls; Done ends the command.
        words: what is typed besides flags; None: it takes none.
    """

    command: str
    choices: Mapping[str, Any]
    others: Mapping[str, Any]
    calls: Mapping[str, Any]
    words: tuple[str, ...] | None = None


class Into(NamedTuple):
    """A value that several calls are told: how their names end."""

    value: Any
    calls: tuple[str, ...]


class Made(NamedTuple):
    """What a call returns, made of the folder; its own calls are noted."""

    of: Any


def vectors(texts, role='passage'):
    """Vectors [n, 4] that differ."""
    return np.eye(4, dtype=np.float32)[[len(x) % 4 for x in texts]]


FAKE = mock.MagicMock
ENCODER = vectors, 'cosine'
ONE = {'init': '{}/one', 'workdir': '{}/out'}
TWO = {'init': '{}/two', 'workdir': '{}/other'}
EXPORT = {'model': '{}/one', 'workdir': '{}/out'}
VECTORS_OF = {'tasks.retrieval.vectors_of': lambda *_: ENCODER}
SHARES = {
    name: dict.fromkeys(('xx_en', 'en_xx', 'mean'), 0.5)
    for name in ('accuracy', 'by_line', 'f1')
}
RATED = {'tasks.sts.similarities': lambda pairs, *_: np.float32(pairs.scores)}
PROBED = {
    'tasks.probe.probe': FAKE,
    'tasks.probe.measure': lambda *_: dict.fromkeys(
        ('accuracy', 'standard_error', 'n', 'majority'), 1),
}  # fmt: skip
# Kept of a result under the name of a flag.
RESULTS = 'languages', 'pairs', 'sentences'
STS = {'data': '{}/a.tsv'}
BEIR = {'data_dir': '{}/beir'}
TABLE = {'train': '{}/a.csv', 'dev': '{}/b.csv'}
TRAIN = 'infoword_tf.train'
UNTIMED = {
    'objectives': 'mlm', 'corpus': ('text:{}/a.txt',), 'workdir': '{}/out',
    'batch_size': 8, 'seq_len': 24, 'precision': 'float32',
    'strategy': 'mirrored', 'on_nonfinite': 'rewind', 'checkpoint_every': 5,
}  # fmt: skip
MLM = {**UNTIMED, 'steps': 50}
LEARNED = dict.fromkeys([
    'infoword_tf.text.wordpiece.WordPieceTokenizer.learn',
    'infoword_tf.text.wholewords.WholeWords.learn',
], lambda *_: of_tokenizer())  # fmt: skip
# All of a run around its loop.
TRAINED = {
    'infoword_tf.training.checks.Config.read': lambda *_: zoo.config('mlm'),
    'infoword_tf.training.run.Workdir.open': lambda *_: of_workdir(),
    'infoword_tf.training.run.open_text': lambda *_: of_text(),
    'infoword_tf.training.run.Evaluator': lambda *_: FAKE(cut=0),
    'infoword_tf.files.digest_of': str,
    'infoword_tf.training.record.run_record': lambda *_: {},
    'infoword_tf.training.record.write_or_compare': None,
    'infoword_tf.training.distribution.make_strategy':
        lambda *_: zoo.strategy(1),
    'infoword_tf.training.run.batches.open_sources': {},
    'infoword_tf.training.run.batches.Batches': FAKE,
    'infoword_tf.training.run.batches.heldout_views': FAKE,
    'infoword_tf.training.run.service.Service': FAKE,
    'infoword_tf.training.run.service.digest': FAKE,
    'infoword_tf.training.run.Model': Made(lambda _: of_model()),
    'infoword_tf.training.run.optim.AdamW': FAKE,
    'infoword_tf.training.run.optim.schedule': 0.0,
    'infoword_tf.training.run.State': FAKE,
    'infoword_tf.training.loop.Trainer': lambda *choices: of_trainer(*choices),
    'infoword_tf.training.loop.Heldout': FAKE,
    'infoword_tf.checkpoint.Checkpoints': Made(lambda _: mock.MagicMock(
        restore=mock.Mock(return_value=0))),
    'infoword_tf.training.fit.Fit': Done,
}  # fmt: skip
WAYS = {
    'sts': Way('tasks.sts', {**ONE, **STS}, {
        **TWO, 'data': '{}/b.tsv', 'dims': 3,
    }, {**VECTORS_OF, **RATED}),
    'sts of an export': Way('tasks.sts', {**EXPORT, **STS}, {
        'model': '{}/two',
    }, {**VECTORS_OF, **RATED}),
    'tatoeba': Way('tasks.tatoeba', {
        **ONE, 'data_dir': '{}/tatoeba', 'score': 'margin',
    }, {
        **TWO, 'data_dir': '{}/tatoeba2', 'score': 'cosine', 'layer': 1,
        'pooling': 'cls', 'dims': 3, 'neighbours': 2, 'languages': ('deu',),
    }, {**VECTORS_OF, 'tasks.tatoeba.bitext.measure_both': lambda *_: SHARES}),
    'tatoeba of an export': Way('tasks.tatoeba', {
        **EXPORT, 'data_dir': '{}/tatoeba',
    }, {'model': '{}/two'}, {
        **VECTORS_OF, 'tasks.tatoeba.bitext.measure_both': lambda *_: SHARES,
    }),
    'probe': Way('tasks.probe', {**ONE, **TABLE}, {
        **TWO, 'train': '{}/b.csv', 'dev': '{}/a.csv', 'delimiter': ';',
        'text': 'other', 'label': 'kind', 'pooling': 'cls', 'dims': 3,
    }, {**VECTORS_OF, **PROBED}),
    'probe of an export': Way('tasks.probe', {**EXPORT, **TABLE}, {
        'model': '{}/two',
    }, {**VECTORS_OF, **PROBED}),
    'words': Way('tasks.words', {**ONE, 'data_dir': '{}/words'}, {
        'init': '{}/two',
    }, {
        'infoword_tf.load': FAKE, 'tasks.words.measure': lambda *_: {},
        'tasks.words.lines_of': lambda *_: [],
    }),
    'words of a file': Way('tasks.words', {
        'vectors': '{}/a.vec', 'data_dir': '{}/words', 'workdir': '{}/out',
        'word2vec': '{}/c.vec',
    }, {
        'vectors': '{}/b.vec', 'data_dir': '{}/words2', 'workdir': '{}/other',
        'word2vec': '{}/d.vec',
    }, {
        'infoword_tf.inference.wordvectors.WordVectors.write': None,
        'tasks.words.measure': lambda test, _: {},
        'tasks.words.lines_of': lambda *_: [],
    }),
    'lm': Way('tasks.lm', {**ONE, 'corpus': 'text:{}/a.txt'}, {
        **TWO, 'corpus': 'text:{}/b.txt', 'heldout': '{}/b.txt',
        'seq_len': 24, 'memory_length': 8, 'clamp': 4, 'same_length': True,
        'batch_size': 3, 'precision': 'mixed_bfloat16',
    }, {
        'infoword_tf.load': lambda *_: of_lm(),
        'tasks.lm.next_token_row': 'gpt',
        'infoword_tf.data.store.write_store':
            lambda _, documents, *__: types.SimpleNamespace(
                documents=[*documents], counts=collections.Counter()),
        'tasks.lm.score': lambda *_: (1.0, 3),
    }),
    'lm samples': Way('tasks.lm', {'init': '{}/one', 'sample': True}, {
        'init': '{}/two', 'prompt': 'b', 'tokens': 3, 'temperature': 0.5,
        'top_p': 0.5, 'seed': 1, 'clamp': 4, 'same_length': True,
    }, {
        'infoword_tf.load': lambda *_: of_lm(),
        'tasks.lm.next_token_row': 'gpt',
        'infoword_tf.inference.continuation.generate':
            lambda _, ids, count, *__: [1] * count,
    }),
    'retrieval': Way('tasks.retrieval', {
        **ONE, **BEIR, 'vectors': '{}/kept',
    }, {
        **TWO, 'data_dir': '{}/beir2', 'split': 'dev',
        'queries': '{}/queries.jsonl', 'seed': 3, 'batch_size': 5, 'dims': 3,
        'precision': 'mixed_bfloat16', 'vectors': '{}/kept2', 'tune': 'dev',
    }, {
        'tasks.retrieval.with_tuned': lambda results, _: (results, {
            'hybrid_share': 0.3, 'tune_queries': 1}),
        **dict.fromkeys([
            'infoword_tf.load', 'tasks.retrieval.by_vectors',
            'tasks.retrieval.by_words', 'tasks.retrieval.encoder_of',
            'tasks.retrieval.mean_of_embeddings',
            'tasks.retrieval.ranking.hybrid', 'tasks.retrieval.digest',
            'tasks.retrieval.open_vectors', 'tasks.retrieval.write_run',
            'tasks.retrieval.check_dims', 'tasks.retrieval.finish',
        ], FAKE),
    }),
    'retrieval in stages': Way('tasks.retrieval', {
        **ONE, **BEIR, 'rerank': '{}/words', 'first': 'bm25',
    }, {
        'rerank': '{}/words2', 'first': '{}/words2', 'rerank_top': 3,
        'critic': 'late', 'costs': True,
    }, dict.fromkeys([
        'infoword_tf.load', 'tasks.retrieval.check_model',
        'tasks.retrieval.by_vectors',
        'tasks.retrieval.by_words', 'tasks.retrieval.encoder_of',
        'tasks.retrieval.mean_of_embeddings', 'tasks.retrieval.candidates',
        'tasks.retrieval.ranking.hybrid', 'tasks.retrieval.write_run',
        'tasks.retrieval.finish',
    ], FAKE)),
    'retrieval keeps nothing': Way('tasks.retrieval', {**ONE, **BEIR}, {
        'seed': Into(3, ('untrained',)), 'batch_size': 5, 'dims': 3,
        'precision': 'mixed_bfloat16', 'baselines': False,
    }, dict.fromkeys([
        'infoword_tf.load', 'tasks.retrieval.by_vectors',
        'tasks.retrieval.by_words', 'tasks.retrieval.encoder_of',
        'tasks.retrieval.mean_of_embeddings',
        'tasks.retrieval.ranking.hybrid', 'tasks.retrieval.write_run',
        'tasks.retrieval.check_dims', 'tasks.retrieval.finish',
    ], FAKE)),
    'retrieval of an export': Way('tasks.retrieval', {
        **EXPORT, 'corpus': 'text:{}/a.txt', 'vectors': '{}/kept',
    }, {
        'model': '{}/two', 'corpus': 'text:{}/b.txt', 'heldout': '{}/b.txt',
        'batch_size': Into(5, ('retrieval_exported',)),
        'dims': Into(3, ('retrieval_exported',)),
        'vectors': '{}/kept2', 'init': '{}/one',
    }, {
        'tasks.retrieval.exported': lambda *_: ENCODER,
        'tasks.retrieval.read_exported': lambda _: (zoo.config('simcse'), {}),
        **dict.fromkeys([
            'infoword_tf.load', 'tasks.retrieval.by_vectors',
            'tasks.retrieval.by_words', 'tasks.retrieval.encoder_of',
            'tasks.retrieval.ranking.hybrid', 'tasks.retrieval.digest',
            'tasks.retrieval.open_vectors', 'tasks.retrieval.write_run',
            'tasks.retrieval.check_dims', 'tasks.retrieval.finish',
        ], FAKE),
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
        'tasks.finetune.check_inits': None,
        'tasks.finetune.prepare': FAKE,
        'tasks.finetune.train_all': lambda _, __, chosen, then: (
            then(pathlib.Path('run')), ({}, {}))[1],
        'tasks.classify.Config.read': lambda *_: zoo.config('label'),
        'tasks.classify.tested': FAKE,
        'tasks.finetune.draw': Done,
    }),
    'glue': Way('tasks.glue', {
        **ONE, 'task': 'cola', 'data_dir': '{}/glue',
    }, {
        'init': '{}/two', 'task': 'sst-2', 'data_dir': '{}/glue2',
        'test': False, 'workdir': '{}/other',
    }, {
        'tasks.finetune.check_inits': None, 'tasks.finetune.prepare': FAKE,
        'tasks.finetune.train_all': lambda *_: ('run', {}),
        'tasks.glue.answer': FAKE, 'tasks.finetune.finish': Done,
    }),
    'squad': Way('tasks.squad', {
        **ONE, 'train': '{}/a.json', 'dev': '{}/b.json',
    }, {
        'init': '{}/two', 'train': '{}/b.json', 'dev': '{}/a.json',
        'version2': True, 'dev_examples': 1, 'workdir': '{}/other',
    }, {
        'tasks.finetune.check_inits': None, 'tasks.squad.prepare': FAKE,
        'tasks.finetune.train_all': lambda *_: ('run', {}),
        'tasks.squad.answer': FAKE, 'tasks.finetune.finish': Done,
    }),
    'tag': Way('tasks.tag', {
        **ONE, 'train': '{}/a.conll', 'dev': '{}/b.conll',
    }, {
        'init': '{}/two', 'train': '{}/b.conll', 'dev': '{}/a.conll',
        'word_column': 1, 'column': 2, 'scheme': 'bioes',
        'test': '{}/a.conll', 'predict': '{}/b.conll', 'workdir': '{}/other',
    }, {
        'tasks.finetune.check_inits': None, 'tasks.tag.prepare': FAKE,
        'tasks.finetune.train_all': lambda _, __, chosen, then: (
            then(pathlib.Path('run')), ({}, {}))[1],
        'tasks.tag.tested': FAKE, 'tasks.finetune.copy_best': None,
        'tasks.finetune.finish': Done,
    }),
    'tag lists': Way('tasks.tag', {
        **ONE, 'train': '{}/a.words.jsonl', 'dev': '{}/a.words.jsonl',
    }, {
        'words': 'other', 'labels': 'parts', 'names': ('O', 'B-A'),
    }, {
        'tasks.finetune.check_inits': None, 'tasks.tag.prepare': FAKE,
        'tasks.finetune.train_all': lambda _, __, chosen, then: (
            then(pathlib.Path('run')), ({}, {}))[1],
        'tasks.tag.tested': FAKE, 'tasks.finetune.copy_best': None,
        'tasks.finetune.finish': Done,
    }),
    'whiten': Way('tasks.whiten', {
        **ONE, 'corpus': 'text:{}/a.txt',
    }, {
        **TWO, 'corpus': 'text:{}/b.txt', 'heldout': '{}/b.txt',
        'sentences': 3, 'pooling': 'mean', 'dims': 2, 'epsilon': 0.5,
    }, {
        'tasks.whiten.Config.read': lambda *_: zoo.config('simcse'),
        'infoword_tf.load': Made(lambda _: of_vectors()),
        'tasks.whiten.fit': lambda x, dims, _: (np.eye(4)[:, :dims], x[0]),
        'infoword_tf.files.write_tensors': None,
        'infoword_tf.files.write_json': None,
    }),
    'mine': Way('tasks.mine', {
        **ONE, 'pairs': '{}/texts.csv', 'corpus': 'text:{}/a.txt',
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
        'tasks.mine.csv.writer': FAKE,
    }),
    'mine a folder': Way('tasks.mine', {**ONE, **BEIR}, {
        'data_dir': '{}/beir2', 'split': 'dev', 'positives': 2,
    }, {
        'tasks.mine.Config.read': lambda *_: zoo.config('simcse'),
        'tasks.mine.retrieval.beir_task': lambda *_: mock.Mock(
            queries=['one'], relevance=[dict.fromkeys(range(3), 1)],
            documents=lambda: enumerate(('some', 'more', 'text'))),
        'infoword_tf.load': Made(lambda _: of_vectors()),
        'tasks.mine.csv.writer': FAKE,
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
        'export.comparison.run_elsewhere': lambda *_: ({}, {
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
        'vectors': 'binary', 'dims': 2,
    }, {
        'model': '{}/two/1', 'documents': '{}/b.csv', 'id': 'number',
        'text': 'other', 'delimiter': ';', 'index': '{}/index2',
        'vectors': 'int8', 'dims': 3, 'oversample': 3,
        'top_k': 3, 'hybrid': True, 'hybrid_share': 0.3,
    }, {
        'export.search.read_exported': lambda _: (zoo.config('simcse'), {}),
        'export.search.digest': 'digest', 'export.search.has_faiss': True,
        'export.search.retrieval.exported': lambda *_, **__: ENCODER,
        'export.search.retrieval.first_numbers': FAKE,
        'export.search.Index': Made(lambda folder: of_no_index(folder)),
        'export.search.find': lambda *_, **__: [],
    }, ('a question',)),
    'search of an index': Way('export.search', {
        'model': '{}/one/1', 'documents': '{}/a.csv', 'index': '{}/index',
    }, {'update': True}, {
        'export.search.read_exported': lambda _: (zoo.config('simcse'), {}),
        'export.search.digest': 'digest', 'export.search.has_faiss': True,
        'export.search.retrieval.exported': lambda *_, **__: ENCODER,
        'export.search.Index': Made(lambda folder: of_index(folder)),
        'export.search.find': lambda *_, **__: [],
    }, ('a question',)),
    'search of a corpus': Way('export.search', {
        'model': '{}/one/1', 'corpus': 'text:{}/a.txt',
    }, {
        'corpus': 'text:{}/b.txt', 'critic': 'late', 'first': 'bm25',
        'rerank': '{}/words',
    }, {
        'export.search.read_exported': lambda _: (zoo.config('simcse'), {}),
        'export.search.digest': 'digest',
        'export.search.retrieval.exported': lambda *_, **__: ENCODER,
        'export.search.Index': Made(lambda folder: of_no_index(folder)),
        'export.search.find': lambda *_, **__: [],
    }, ('a question',)),
    'search that is ordered anew': Way('export.search', {
        'model': '{}/one/1', 'corpus': 'text:{}/a.txt', 'rerank': '{}/words',
    }, {'rerank_top': 7}, {
        'export.search.read_exported': lambda _: (zoo.config('simcse'), {}),
        'export.search.digest': 'digest',
        'export.search.retrieval.exported': lambda *_, **__: ENCODER,
        'export.search.Index': Made(lambda folder: of_no_index(folder)),
        'export.search.find': lambda *_, **__: [],
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
        'corpus': ('text:{}/a.txt',), 'output': '{}/out', 'vocab_size': 60,
    }, {
        'corpus': ('text:{}/b.txt',), 'heldout': ('{}/b.txt',),
        'output': '{}/other', 'vocab_size': 61, 'tokenizer': 'words',
        'lower_case': False, 'shard_size': 0.001, 'processes': 3,
    }, {
        **LEARNED, 'infoword_tf.text.wordpiece.WordPieceTokenizer.read':
            lambda *_: of_tokenizer(),
        'infoword_tf.prepare._in_processes': Done,
    }),
    'prepare with a vocabulary': Way('infoword_tf.prepare', {
        'corpus': ('text:{}/a.txt',), 'output': '{}/out',
        'vocab': '{}/vocab.txt',
    }, {'vocab': '{}/vocab2.txt'}, {
        **LEARNED, 'infoword_tf.text.wordpiece.WordPieceTokenizer.read':
            lambda *_: of_tokenizer(),
        'infoword_tf.prepare._in_processes': Done,
    }),
    'train': Way(TRAIN, MLM, {
        'objectives': 'mlm:1,bert_nce:1', 'masking': 'spans',
        'mask_share': 0.3, 'encoder': 'modern', 'size': 'mini',
        'positions': 77, 'activation': 'relu', 'dropout': 0.3, 'seq_len': 32,
        'batch_size': Into(4, ('open_sources', 'State', 'Trainer')),
        'steps': Into(40, ('schedule', 'Fit')), 'learning_rate': 0.5,
        'warmup_steps': 3, 'optimizer': Into('bert', ('AdamW', 'schedule')),
        'weight_decay': 0.3, 'clip_norm': 0.3, 'moments': 'bfloat16',
        'init_deviation': 0.3, 'layer_decay': 0.3,
        'seed': Into(3, ('open_sources', 'Batches', 'Model', 'Trainer')),
        'checkpoint_every': 7, 'keep_checkpoints': 7,
        'on_nonfinite': 'stop', 'rewinds': 7,
        'grace_seconds': 7.0, 'log_every': 7, 'eval_every': 7, 'best': True,
        'measure': 'sts:{}/a.tsv', 'logical_cpus': 2, 'xla': True,
        'precision': 'mixed_bfloat16', 'microbatch': 4, 'remat': True,
        'shuffle_block': 700, 'data_service': ('host:1',),
        'workdir': '{}/other',
    }, TRAINED),
    'train on several devices': Way(TRAIN, MLM, {
        'strategy': 'one',
    }, TRAINED),
    'train with a band': Way(TRAIN, {**MLM, 'encoder': 'modern'}, {
        'global_every': 4, 'local_window': 6, 'local_theta': 7.0,
        'global_theta': 7.0, 'norm': 'rms', 'norms': 'after', 'kv_heads': 1,
        'qk_norm': True,
    }, TRAINED),
    'train with shared layers': Way(TRAIN, {**MLM, 'encoder': 'transformer'}, {
        'relative_buckets': 4, 'shared_layers': True, 'embedding_width': 8,
    }, TRAINED),
    'train with a memory': Way(TRAIN, {
        **MLM, 'objectives': 'transformer_xl', 'memory_length': 16,
    }, {
        'memory_length': 8, 'clamp': 9, 'same_length': True, 'untie': False,
    }, TRAINED),
    'train a table': Way(TRAIN, {**MLM, 'objectives': 'skip_gram'}, {
        'width': 32,
    }, TRAINED),
    'train for the best': Way(TRAIN, {**MLM, 'best': 'sts:{}/a.tsv'}, {
        'best': 'sts:{}/b.tsv', 'patience_evals': 7,
    }, TRAINED),
    'train for minutes': Way(TRAIN, {**UNTIMED, 'minutes': 3.0}, {
        'minutes': 4.0,
    }, {**TRAINED, 'infoword_tf.training.record.begun_steps': Done}),
    'train from weights': Way(TRAIN, {**MLM, 'init': '{}/one'}, {
        'init': '{}/two', 'freeze': True, 'adapter': 'lora',
    }, TRAINED),
    'train on languages': Way(TRAIN, {
        **MLM, 'vocab_size': 60,
        'corpus': ('de=text:{}/a.txt', 'en=text:{}/b.txt'),
    }, {
        'corpus': ('de=text:{}/b.txt', 'en=text:{}/a.txt'),
        'heldout': ('de={}/b.txt', 'en={}/a.txt'), 'language_exponent': 0.5,
        'corpus_weights': ('de=1', 'en=2'), 'tokenizer': 'words',
        'vocab_size': 61, 'lower_case': False,
    }, {
        'infoword_tf.training.distribution.make_strategy':
            lambda *_: zoo.strategy(1),
        **LEARNED, 'infoword_tf.data.opened._stores':
            lambda *_: (zoo.make_store(), zoo.make_store()),
        'infoword_tf.data.opened.Mixture': FAKE,
        'infoword_tf.training.run.batches.open_sources': Done,
    }),
    'train with a vocabulary': Way(TRAIN, {
        **MLM, 'vocab': '{}/vocab.txt',
    }, {'vocab': '{}/vocab2.txt'}, {
        'infoword_tf.training.distribution.make_strategy':
            lambda *_: zoo.strategy(1),
        'infoword_tf.data.opened._stores': Done,
        'infoword_tf.text.wordpiece.WordPieceTokenizer.read':
            lambda *_: of_tokenizer(),
    }),
    'train on pairs for epochs': Way(TRAIN, {
        **UNTIMED, 'objectives': 'simcse', 'pairs': '{}/a.csv', 'corpus': (),
        'epochs': 3.0,
    }, {'epochs': 4.0}, {
        **TRAINED, 'infoword_tf.training.run._open_pairs':
            lambda *_: (of_tokenizer(), FAKE(record={}, fingerprint='')),
        'infoword_tf.training.run.batches.Batches':
            lambda *_: FAKE(sources={FAKE(reads='pairs'): FAKE(updates=9)}),
    }),
    'train on pairs': Way(TRAIN, {
        **MLM, 'objectives': 'simcse', 'pairs': '{}/a.csv', 'corpus': (),
    }, {
        'pairs': '{}/b.csv', 'pair_columns': ('text', 'other'),
        'heldout_pairs': '{}/b.csv', 'pair_weights': ('1',),
        'pair_delimiter': ';', 'pair_negatives': 1,
    }, {
        'infoword_tf.training.distribution.make_strategy':
            lambda *_: zoo.strategy(1),
        **LEARNED,
        'infoword_tf.data.text_pairs.tokenized': lambda *_: (FAKE(), 0),
        'infoword_tf.training.run.text_pairs.read': lambda *_: FAKE(
            train=[], heldout=[], fingerprint='pairs'),
        'infoword_tf.data.text_pairs.weights_of': None,
        'infoword_tf.training.run.batches.open_sources': Done,
    }),
    'train on translations': Way(TRAIN, {
        **MLM, 'objectives': 'tlm', 'corpus': (),
        'parallel': ('{}/tatoeba/tatoeba.deu-eng.{deu,eng}',),
    }, {
        'parallel': ('{}/tatoeba2/tatoeba.deu-eng.{deu,eng}',),
        'heldout_parallel': ('{}/tatoeba2/tatoeba.deu-eng.{deu,eng}',),
        'drop_equal': True,
    }, {
        'infoword_tf.training.distribution.make_strategy':
            lambda *_: zoo.strategy(1),
        'infoword_tf.training.run.parallel.read': Done,
    }),
}  # fmt: skip
# Flags of these are those of `RunChoices`, which test_keys.py goes over; or
# their own tests have each of them.
ELSEWHERE = {
    'infoword_tf.data_service': 'test_data_service',
    'infoword_tf.show': 'test_show',
    'tasks.distill': 'test_students, test_embedding',
    'tasks.flow': 'test_flow_command',
    'export.demo': 'test_demo',
}
# What ways differ by; what does nothing here; and test_beam's.
FREE = {
    'tasks.lm': ('sample',),
    'tasks.squad': ('seq_len', 'epochs'),  # other defaults
    'infoword_tf.prepare': ('beam_options', 'language_exponent'),
}


def of_lm():
    """A language model."""
    loaded = mock.MagicMock()
    loaded.config.memory_length, loaded.config.max_length = 16, 32
    loaded.config.run = {}
    loaded.model.encoder.input_fields = ()
    loaded.tokenizer.tokenize = lambda texts: tf.strings.unicode_decode(
        texts, 'UTF-8'
    )
    loaded.tokenizer.detokenize.return_value = ''
    return loaded


def of_text():
    """A text of the zoo's vocabulary."""
    from infoword_tf.data.opened import OpenedText

    words = '[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'
    words += tuple(f'w{n}' for n in range(len(words), zoo.V))
    store = zoo.make_store()
    return OpenedText(WholeWords(words), store, store, 'text')


def of_workdir():
    """Weights to begin with."""
    stand_in = mock.MagicMock(config=zoo.config('mlm'), unigram=None)
    stand_in.tokenizer = of_text().tokenizer
    return stand_in


def of_vectors():
    """A workdir whose vectors a text decides."""
    stand_in = mock.MagicMock(config=zoo.config('simcse'), unigram=None)
    stand_in.encode.side_effect = lambda texts, *_, **__: np.stack([
        np.random.default_rng(zlib.crc32(x.encode())).standard_normal(4)
        for x in texts
    ]).astype(np.float32)  # fmt: skip
    stand_in.vector_width.return_value = stand_in.encoder.width = 4
    stand_in.tokenizer, stand_in.model.exported = of_text().tokenizer, {}
    return stand_in


def of_model():
    """One that has weights of an encoder and of a row."""
    stand_in = mock.MagicMock(trainable={'encoder/layer_0/a': 1, 'row/b': 2})
    stand_in.encoder.depth, stand_in.encoder.remat = 2, False
    stand_in.exported = stand_in.checkpointed = stand_in.variables = {}
    return stand_in


def of_trainer(model, dataset, strategy, optimizer, step, rate, *_):
    """Asks for the rate of an update."""
    rate(tf.constant(3))
    return mock.MagicMock()


def of_tokenizer():
    """One that is written nowhere."""
    return WholeWords(('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'a'))


def of_no_index(folder):
    """An index that is not made yet."""
    stand_in = mock.MagicMock(folder=folder)
    stand_in.key.return_value = {}
    return stand_in


def of_index(folder):
    """An index of a table, which was made by that model."""
    stand_in = mock.MagicMock(folder=folder)
    stand_in.key.return_value = {'model': 'digest', 'corpus': f'{folder}/a.csv'}
    return stand_in


# Whichever parts its cells there are columns of these names.
NAMES = 'text,other,label,kind,number,x;text;label;other;kind;number'


def write_files():
    """What ways name, in a folder; each in two versions that differ."""
    folder = places.make()
    sentences = 'One thing.', 'Two of them.', 'A third one.', 'And a last.'
    for name, begin in (('a', 0), ('b', 1)):
        turned = sentences[begin:] + sentences[:begin]
        (folder / f'{name}.txt').write_text(
            '\n\n'.join(f'{x} {y}' for x, y in itertools.pairwise(turned))
        )
        (folder / f'{name}.tsv').write_text(
            'score\tsentence1\tsentence2\n'
            + ''.join(f'{n}\t{x}\t{turned[-n]}\n' for n, x in enumerate(turned))
        )
        lines = [
            f'{x},other {x},{n % 2},{n // 2 % 2},{n},'
            f';other {x};{n % 2};;{n % 3};{n}'
            for n, x in enumerate(turned * 12)
        ]  # fmt: skip
        (folder / f'{name}.csv').write_text(
            '\n'.join([NAMES, *lines]) + '\n'
        )
        more = '' if name == 'a' else '2'
        (folder / f'texts{more}.csv').write_text('\n'.join(
            ['text,other,label;text;other;label']
            + [f'a{n} {name},b{n // 2},1;{n};b{n};0' for n in range(12)]
        ))  # fmt: skip
        (folder / f'{name}.vec').write_text(f'1 2\n{name} 1 2\n')
        (folder / f'{name}.run').write_text(f'q{begin} Q0 d0 1 1 {name}\n')
        paragraph = {'context': 'Some of it.', 'qas': [
            {'id': f'{name}{n}', 'question': x, 'answers': [
                {'text': 'Some', 'answer_start': 0}]}
            for n, x in enumerate(turned)
        ]}  # fmt: skip
        # Words, numbers and two sets of labels.
        (folder / f'{name}.conll').write_text(
            f'{name} B-X B-A B-A\nx B-Y O O\n\n' * 3 + 'y B-Z O B-B\n'
        )
        (folder / f'{name}.words.jsonl').write_text(json.dumps({
            'tokens': [name, 'x'], 'other': ['x', name], 'tags': [0, 1],
            'parts': [1, 0],
        }))
        (folder / f'{name}.json').write_text(json.dumps({
            'version': '1.1',
            'data': [{'title': name, 'paragraphs': [paragraph]}],
        }))  # fmt: skip
        words = folder / f'words{more}'
        words.mkdir()
        (words / f'{name}.tsv').write_text('one\ttwo\t3\n')
        bitexts = folder / f'tatoeba{more}'
        bitexts.mkdir()
        for pair in ('deu-eng', 'fra-eng'):
            for code in pair.split('-'):
                (bitexts / f'tatoeba.{pair}.{code}').write_text(
                    '\n'.join(f'{code} {x}' for x in turned)
                )
        beir = folder / f'beir{more}'
        (beir / 'qrels').mkdir(parents=True)
        for kind in ('corpus', 'queries'):
            (beir / f'{kind}.jsonl').write_text('\n'.join(
                json.dumps({'_id': f'{kind[0].replace("c", "d")}{n}',
                            'text': x}) for n, x in enumerate(turned)
            ))  # fmt: skip
        for n, split in enumerate(('test', 'dev')):
            (beir / 'qrels' / f'{split}.tsv').write_text(
                f'q{n}\td0\t1\nq{n + 1}\td1\t1\n'
            )
        glue = folder / f'glue{more}'
        for task in ('CoLA', 'SST-2'):
            (glue / task).mkdir(parents=True)
            for split in ('train', 'dev', 'test'):
                rows = {
                    'CoLA': [
                        f'x\t{n % 2}\t\t{x}' for n, x in enumerate(turned)
                    ],
                    'SST-2': ['sentence\tlabel', *(
                        f'{x}\t{n % 2}' for n, x in enumerate(turned))],
                }[task]  # fmt: skip
                if split == 'test':
                    rows = ['index\tsentence', *(
                        f'{n}\t{x}' for n, x in enumerate(turned))]  # fmt: skip
                (glue / task / f'{split}.tsv').write_text('\n'.join(rows))
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


def run_of(command):
    """What is called, of a command."""
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

    def in_folder(self, value):
        if isinstance(value, tuple):
            return tuple(map(self.in_folder, value))
        if isinstance(value, str):
            return value.replace('{}', str(self.folder))
        return value

    def called(self, way, **changes):
        """Everything that is called, as text; and the complaint, if any."""
        for name in ('out', 'other', 'cache'):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        run, log = run_of(way.command), mock.MagicMock()
        choices = {k: self.in_folder(x)
                 for k, x in {**way.choices, **changes}.items()}  # fmt: skip
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            for name, answer in {
                **way.calls,
                'infoword_tf.commands.record': lambda *_: None,
                'infoword_tf.commands.result_folder': pathlib.Path,
            }.items():
                noted = getattr(log, name.replace('.', '_'))
                if isinstance(answer, Made):
                    noted.return_value = answer.of(self.folder)
                elif callable(answer) and answer is not FAKE:
                    noted.side_effect = answer
                elif answer is not FAKE:
                    noted.return_value = answer
                stack.enter_context(mock.patch(name, noted))
            try:
                words = () if way.words is None else (way.words,)
                record = run(*words, **choices)
                if isinstance(record, dict):
                    self.check_record(record, choices)
            except Done:
                pass
        actual: dict[str, str] = {}
        with np.printoptions(threshold=10**6):
            for name, args, more in log.mock_calls:
                typed = [x for x in args if not is_all(x)], more
                actual[name] = actual.get(name, '') + re.sub(
                    VARYING, '', repr(typed)
                )
        # These are told all that was chosen, to write it down.
        actual.pop('infoword_tf_commands_record', None)
        actual.pop('infoword_tf_training_record_agree', None)
        for name, attribute in (
            ('export_search_Index', 'cut'),
            ('export_search_Index', 'first'),
            ('export_search_Index', 'top'),
            ('infoword_tf_training_run_Model', 'encoder.remat'),
        ):
            if name in actual:
                stand_in = getattr(log, name).return_value
                value = operator.attrgetter(attribute)(stand_in)
                actual[attribute] = re.sub(VARYING, '', repr(value))
        return actual

    @parameterized.named_parameters(*[(name, name) for name in WAYS])
    def test_each_changes_a_call(self, name):
        way = WAYS[name]
        calls = self.called(way)
        self.assertEqual(self.called(way), calls)  # nothing else changes them
        for flag, value in way.others.items():
            expected = ()
            if isinstance(value, Into):
                value, expected = value
            with self.subTest(flag):
                others = self.called(way, **{flag: value})
                self.assertNotEqual(others, calls)
                for end in expected:
                    (of,) = (x for x in calls if x.endswith(end))
                    self.assertNotEqual(others[of], calls[of], of)

    def check_record(self, record, choices):
        """It says what was chosen: by its name, and of which model."""
        for flag, value in choices.items():
            if flag in record and flag not in RESULTS:
                self.assertEqual(record[flag], value)
            if flag in ('init', 'model', 'vectors'):
                self.assertEqual(record.get('weights', value), value)

    def test_every_flag_of_every_command_is_here(self):
        every = set()
        for command in test_typed.commands():
            if command.split('.')[0] == 'benchmarks' or command in ELSEWHERE:
                continue
            every.add(command)
            flags = set(flags_of(run_of(command).choices))
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


if __name__ == '__main__':
    absltest.main()
