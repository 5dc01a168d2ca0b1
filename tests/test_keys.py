"""Keys under which things are kept, which hold all that decides them.

A case of `KEYS` is a function of inputs that gives a key, as the product makes
it; each of its inputs is changed alone. The functions that hash are listed, so
that nothing new is kept without a case.
"""

import ast
import contextlib
import dataclasses
import io
import os
import pathlib
import shutil
import types
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf import files, prepare
from infoword_tf.choices import RunChoices, TextChoices, flags_of
from infoword_tf.config import (
    AdapterConfig,
    DenseConfig,
    EncoderConfig,
    RowConfig,
)
from infoword_tf.data import (
    corpora,
    opened,
    prepared,
    pydocs,
    table_documents,
    text_pairs,
)
from infoword_tf.data import store as stores
from infoword_tf.data.documents import Document
from infoword_tf.evaluation import judgements, stages, vectors
from infoword_tf.text import normalization
from infoword_tf.text.wholewords import WholeWords
from infoword_tf.text.wordpiece import WordPieceTokenizer
from infoword_tf.training import guide, optim, record
from infoword_tf.training.build import shape_of
from tasks import classify, squad, teacher
from tests import places, zoo

ROOT = pathlib.Path(__file__).parent.parent
WORDS = '[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'a', 'b', '##b'
LINES = 'One is here.\n\nTwo are there.\n\nThree.\n'
EARLY, LATE = 10**18, 10**18 + 1  # times of change, nanoseconds


class Key(NamedTuple):
    """Maker of a key, and what it is made of.

    Attributes:
        function: of a folder and of all inputs, by name; gives the key.
        inputs: by name, two values: each alone makes another key.
        free: likewise, what makes none.
    """

    function: Callable[..., Any]
    inputs: Mapping[str, tuple[Any, Any]]
    free: Mapping[str, tuple[Any, Any]] = {}


def write(path, text, time=EARLY):
    """A file that was last changed then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(time, time))
    return path


def of_corpus(folder, kind, name, text, heldout, time, more):
    """Files of text, and what is held out beside them."""
    write(folder / name, text, time)
    write(folder / 'held.out', heldout)
    if more:
        write(folder / 'x.txt', 'More.')
    return corpora.open_corpus(
        f'{kind}:{folder}/*.txt', f'{folder}/held.out'
    ).fingerprint


def corpus(fingerprint='0', words='a b', name='c'):
    """One document to train on, and one to measure on."""
    def documents():
        return iter([Document((words,), 'd')])
    return corpora.Corpus(name, fingerprint, documents, documents)


def of_store(folder, fingerprint, words, lower_case, strip_accents, name):
    tokenizer = WordPieceTokenizer(
        WORDS + words, lower_case, strip_accents=strip_accents
    )
    with mock.patch.object(stores, 'write_store') as instance:
        opened._stores(corpus(fingerprint, name=name), tokenizer, folder)
    return instance.call_args_list[0].args[0].parent.name


def of_vocabulary(folder, texts, exponent, weights, **named):
    choices = TextChoices(
        corpus=tuple(f'{name}=text:{name}' for name in texts),
        language_exponent=exponent, corpus_weights=weights, **named,
    )  # fmt: skip
    texts = {name: corpus(print_) for name, print_ in texts.items()}
    with (
        mock.patch.object(
            WordPieceTokenizer, 'learn', return_value=WordPieceTokenizer(WORDS)
        ),
        mock.patch.object(
            WholeWords, 'learn', return_value=WordPieceTokenizer(WORDS)
        ),
    ):
        opened.open_tokenizer(choices, texts, folder)
    (path,) = (folder / 'vocabularies').glob('*.txt')
    return path.name


def of_prepared(folder, name, path, splits, file, size, time):
    stat = types.SimpleNamespace(length=size, mtime=time)
    info = types.SimpleNamespace(full_name=name, splits={
        split: types.SimpleNamespace(filepaths=[
            types.SimpleNamespace(name=file, stat=lambda: stat)
        ]) for split in splits
    })  # fmt: skip
    builder = types.SimpleNamespace(info=info)
    return prepared.fingerprint(
        prepared.TfdsDataset('tfds:x', builder, {}), path, splits
    )


def of_pydocs(folder, extraction, python, package, version):
    actual = {package: types.SimpleNamespace(version=version)}

    def build(folder, sources):
        write(folder / 'figures.json', '{}')

    with (
        mock.patch.object(pydocs, 'EXTRACTION', extraction),
        mock.patch.object(
            pydocs.platform, 'python_version', return_value=python
        ),
        mock.patch.object(pydocs.packages, 'installed', return_value=actual),
        mock.patch.object(pydocs.packages, 'source_files'),
        mock.patch.object(pydocs, '_FIGURES', ''),
        mock.patch.object(pydocs, '_build', build),
    ):
        return pydocs.prepare(folder, [package]).name


def of_pairs(folder, a, b, languages, second, moved, where):
    """Texts of --pairs, or translations; a letter may be of a, or of b."""
    if moved:
        a, b = (*a[:-1], a[-1] + b[0]), ('', *b[1:])
    return text_pairs.fingerprint_of([
        text_pairs.Columns(where, [list(a), list(b)], 0, languages or ()),
        *([text_pairs.Columns('x', [['c'], ['d']], 0)] * second),
    ])  # fmt: skip


def loaded(words=WORDS, lower_case=True, **changes):
    """A workdir in memory, as keys look at it."""
    tokenizer = WordPieceTokenizer(words, lower_case)
    config = zoo.config('simcse').replace(tokenizer=tokenizer.config)
    return types.SimpleNamespace(
        config=config.replace(**changes), tokenizer=tokenizer
    )


def of_guide(folder, weights, texts, kind=guide.Guide, **changes):
    instance = kind.__new__(kind)
    instance.digest, instance.loaded = weights, loaded(**changes)
    return instance._key(texts)


def of_judge(folder, **inputs):
    return of_guide(folder, kind=guide.Judge, **inputs)


def of_embedder(folder, weights, what, texts, **changes):
    instance = teacher.Embedder.__new__(teacher.Embedder)
    instance.digest, instance.loaded = weights, loaded(**changes)
    return instance.key(what, *texts)


def of_teacher(
    folder, weights, row, settings, encoder, ids, segments, begins, places,
    span, label,
):  # fmt: skip
    instance = teacher.Teacher.__new__(teacher.Teacher)
    kinds = {'span': squad.Squad(), 'label': classify.Classify(labels=('a',))}
    instance.digest, instance.settings = weights, settings
    instance.task = kinds[row]
    instance.loaded = loaded(encoder=encoder)
    return instance.key(types.SimpleNamespace(
        ids=np.int32(ids), segments=np.int8(segments),
        begins=np.int64(begins), places=np.int32(places),
        targets={'span': np.int32(span), 'label': np.int32(label)},
    ))  # fmt: skip


def of_retrieval(folder, name, documents, size, block, **key):
    task = types.SimpleNamespace(
        fingerprint=documents, size=size, distinct=size
    )
    with mock.patch.object(stages, 'BLOCK', block):
        return stages.open_vectors(folder, name, task, **key).path.name


def of_folder(folder, name, text, time, other, chosen=None):
    paths = write(folder / name, text, time), write(folder / 'b', other)
    return vectors.digest(folder, paths[:chosen] if chosen else None)


def of_judgements(folder, scheme, first, second, third, time):
    """Files that --best names."""
    if scheme == 'sts':
        write(folder / 'x.tsv', ''.join(
            f'{n}\t{first}\t{second}{third}\n' for n in range(3)
        ).join(['score\tsentence1\tsentence2\n', '']), time)  # fmt: skip
        return judgements.read(f'sts:{folder}/x.tsv').fingerprint
    if scheme == 'tatoeba':
        write(folder / 'tatoeba.deu-eng.deu', f'{first}\n{third}\n', time)
        write(folder / 'tatoeba.deu-eng.eng', f'{second}\nsecond\n', time)
        return judgements.read(f'tatoeba:{folder}').fingerprint
    for name, text in (('corpus', first), ('queries', second)):
        write(folder / f'{name}.jsonl', f'{{"_id": "1", "text": "{text}"}}',
              time)  # fmt: skip
    write(folder / 'qrels' / 'test.tsv', f'1\t1\t{len(third)}\n', time)
    return judgements.read(f'retrieval:{folder}').fingerprint


def of_table(folder, name, text, time, id, columns, delimiter):
    write(folder / name, f'n,t,u\n1,{text},x\n', time)
    return table_documents.documents_of(
        str(folder / name), id, columns, delimiter
    )[0]  # fmt: skip


def of_normalization(folder, asked, tokenizers_version, code):
    """Answers of libraries about characters."""
    with (
        mock.patch.dict(os.environ, {places.CACHE: str(folder)}),
        mock.patch.object(metadata, 'version', return_value=tokenizers_version),
        mock.patch.object(files, 'digest_of', return_value=code),
    ):
        normalization._cached(lambda: {'x': np.zeros(1)}, *asked)
    (path,) = (folder / 'normalization').iterdir()
    return path.name


def of_graphs(folder, rules, warmup_steps, dropout, run, **flags):
    """A model and its graphs, which runs of a sweep share."""
    run_of = RunChoices(workdir='w', **flags)
    config = zoo.config('simcse', dropout).replace(run=run)
    course = optim.Course(
        optim.preset(rules), run_of.steps, warmup_steps, run_of.learning_rate
    )
    return shape_of(run_of, config, course)


def of_identity(folder, kind, words, lower_case, **options):
    """Returns what tokenizers are equal by."""
    tokenizer = {'wordpiece': WordPieceTokenizer, 'words': WholeWords}[kind](
        words, lower_case, **(options if kind == 'wordpiece' else {})
    )
    return opened.identity_of(tokenizer)


_TWO = ('a', 'b'), ('c', 'd')
_JUDGED = {
    'first': ('one', 'two'), 'second': ('four', 'five'),
    'third': ('six', 'seven'),
}  # fmt: skip
_CONFIG = {
    'max_length': (64, 32), 'pooling': ('cls', 'mean'),
    'normalize': (False, True), 'dense': ((), (DenseConfig(16, 'tanh'),)),
    'lower_case': (True, False),
    'encoder': (EncoderConfig('lookup', {}), EncoderConfig('rnn', {})),
}  # fmt: skip
_FREE = {
    'precision': ('float32', 'mixed_bfloat16'), 'replicas': (1, 2),
    'run': ({}, {'seed': 3}),
}  # fmt: skip
KEYS = {
    'corpora._fingerprint': Key(of_corpus, {
        'kind': ('text', 'lines'), 'name': ('a.txt', 'b.txt'),
        'text': (LINES, LINES + 'x'), 'time': (EARLY, LATE),
        'heldout': (LINES, LINES + 'x'), 'more': (False, True),
    }),
    'opened._stores': Key(of_store, {
        'fingerprint': ('0', '1'), 'words': ((), ('c',)),
        'lower_case': (True, False), 'strip_accents': (True, False),
    }, {'name': ('c', 'd')}),
    'opened.open_tokenizer': Key(of_vocabulary, {
        'texts': ({'de': '0', 'en': '1'}, {'de': '0', 'en': '2'}),
        'vocab_size': (300, 301), 'lower_case': (True, False),
        'tokenizer': ('wordpiece', 'words'), 'exponent': (0.7, 0.5),
        'weights': ((), ('de=1', 'en=2')),
    }),
    'opened.identity_of': Key(of_identity, {
        'kind': ('wordpiece', 'words'), 'words': (WORDS, (*WORDS, 'c')),
        'lower_case': (True, False), 'strip_accents': (True, False),
        'chinese_characters': (True, False), 'clean': (True, False),
    }),
    'prepared.fingerprint': Key(of_prepared, {
        'name': ('a', 'b'), 'path': ('text', 'title'),
        'splits': (('train',), ('train', 'test')), 'file': ('0', '1'),
        'size': (1, 2), 'time': (1, 2),
    }),
    'pydocs.prepare': Key(of_pydocs, {
        'extraction': (1, 2), 'python': ('3.11.1', '3.11.2'),
        'package': ('a', 'b'), 'version': ('1', '2'),
    }),
    'text_pairs.fingerprint_of': Key(of_pairs, {
        'a': (('1', '2'), ('1', '3')), 'b': (('4', '5'), ('5', '4')),
        'languages': (None, ('de', 'en')), 'second': (False, True),
        'moved': (False, True),
    }, {'where': ('x', 'y')}),
    'guide.Guide._key': Key(of_guide, {
        'weights': ('0', '1'), 'texts': (_TWO, (('a', 'b'), ('c', 'e'))),
        'prompts': ({}, {'query': 'q '}), 'vocabulary': ('0', '1'),
        'kind': (guide.Guide, guide.Judge),
        **_CONFIG,
    }, {**_FREE, 'rows': ({}, {'label': RowConfig(1.0, {})})}),
    'guide.Guide._key of a judge': Key(of_judge, {
        'weights': ('0', '1'), 'texts': (_TWO, (('a', 'b'), ('c', 'e'))),
        'prompts': ({}, {'query': 'q '}), 'query_length': (None, 8),
        'critics': ({'cross': None}, {'cross': {'pooler': 'none'}}),
        'rows': ({}, {'label': RowConfig(1.0, {})}),
        **_CONFIG,
    }, _FREE),
    'teacher.Embedder.key': Key(of_embedder, {
        'weights': ('0', '1'), 'texts': (('a', 'b'), ('a', 'c')),
        'what': ('texts', 'pieces'), 'words': (WORDS, (*WORDS, 'c')),
        **_CONFIG,
    }, {**_FREE, 'similarity': ('cosine', 'dot')}),
    'teacher.Teacher.key': Key(of_teacher, {
        'weights': ('0', '1'), 'settings': ({'mix': 0}, {'mix': 1}),
        'encoder': _CONFIG['encoder'],
        'ids': ([1, 2], [1, 3]), 'segments': ([0, 0], [0, 1]),
        'begins': ([0, 2], [0, 1]), 'places': ([0], [1]), 'row': (
            'span', 'label'), 'span': ([0], [1]),
    }, {'label': ([0], [1])}),
    'stages.open_vectors': Key(of_retrieval, {
        'name': ('model', 'untrained'), 'documents': ('0', '1'),
        'size': (1, 2), 'block': (1024, 512), 'dims': (None, 8),
        'weights': ('0', '1'), 'batch_size': (32, 64), 'seed': (0, 1),
        'precision': ('float32', 'mixed_bfloat16'),
        'critic': ('late', 'lexical'),
    }),
    'vectors.digest': Key(of_folder, {
        'name': ('a', 'c'), 'text': ('one', 'two'), 'other': ('1', '2'),
    }, {'time': (EARLY, LATE)}),
    'vectors.digest of some files': Key(of_folder, {
        'name': ('a', 'c'), 'text': ('one', 'two'),
    }, {'other': ('1', '2'), 'chosen': (1,), 'time': (EARLY, LATE)}),
    **{
        f'judgements.read {scheme}': Key(of_judgements, {
            'scheme': (scheme,), **_JUDGED,
        }, {'time': (EARLY, LATE)})
        for scheme in ('sts', 'retrieval', 'tatoeba')
    },
    'table_documents.documents_of': Key(of_table, {
        'name': ('a.csv', 'b.csv'), 'text': ('one', 'more'),
        'time': (EARLY, LATE), 'id': (None, 'n'), 'columns': ('t', 't,u'),
        'delimiter': (None, ','),
    }),
    'build.shape_of': Key(of_graphs, {
        'rules': ('adamw', 'bert'), 'warmup_steps': (1, 2),
        'dropout': (0.1, 0.2), 'batch_size': (8, 4), 'steps': (9, 8),
        'microbatch': (None, 2), 'remat': (False, True), 'xla': (
            False, True), 'freeze': (False, True), 'layer_decay': (1.0, 0.9),
        'logical_cpus': (1, 2), 'init': ('x',),
    }, {
        'run': ({}, {'seed': 1}), 'seed': (0, 1), 'learning_rate': (1.0, 2.0),
    }),
    'normalization._cached': Key(of_normalization, {
        'asked': ([1], [2]), 'tokenizers_version': ('1', '2'),
        'code': ('0', '1'),
    }),
}  # fmt: skip

# Functions that hash for another reason than a key, and why; or whose key other
# tests change.
OTHERS = {
    'infoword_tf/data/documents.py text_hash': 'what is held out',
    'infoword_tf/data/opened.py _digest': 'hashes what the others say',
    'infoword_tf/data/sharding.py finish': 'of `prepare._decisive`, below',
    'infoword_tf/files.py _digest': 'the bytes of a file, in it',
    'infoword_tf/files.py digest_of': 'the bytes of a file',
    'infoword_tf/folders.py _digest': 'test_folders',
    'infoword_tf/text/added.py WithAdded.identity': 'test_added: identity',
    'infoword_tf/text/normalization.py steps_model': 'characters by a table',
    'infoword_tf/text/pairs.py PairEncoding.identity': 'test_every_tokenizer',
    'infoword_tf/text/sentencepiece.py SentencePiece.identity':
        'test_every_tokenizer',
    'infoword_tf/text/sentencepiece.py _Model._create_resource':
        'a name in a graph',
    'infoword_tf/text/tokenizer.py sample_texts':
        'which texts are learned from',
    'tasks/embedding.py _once': 'equal sentences',
    'tasks/embedding.py examples_of': 'of `Embedder.key`',
    'tasks/embedding.py tokenizer_of': 'of `open_tokenizer`',
    'tasks/finetune.py write_corpus': 'all of what is written',
    'tasks/finetune.py prepare': 'test_classify: other labels',
    'infoword_tf/evaluation/retrieval.py repeated': 'copies of a text',
}  # fmt: skip


def hashing():
    """FILE FUNCTION of all functions that use hashlib."""
    for folder in ('infoword_tf', 'tasks', 'export'):
        for path in sorted((ROOT / folder).rglob('*.py')):
            scopes = [('', ast.parse(path.read_text()))]
            while scopes:
                name, scope = scopes.pop()
                for node in ast.iter_child_nodes(scope):
                    inner = name
                    if isinstance(node, ast.FunctionDef | ast.ClassDef):
                        inner = f'{name}.{node.name}'.lstrip('.')
                    scopes.append((inner, node))
                    if isinstance(node, ast.Name) and node.id == 'hashlib':
                        yield f'{path.relative_to(ROOT)} {name}'


class KeysTest(parameterized.TestCase):
    def key(self, case, name=None, second=False):
        """With the second value of one input."""
        inputs = {**case.inputs, **case.free}
        chosen = {k: x[k == name and second] for k, x in inputs.items()}
        # One path, which is in some keys; it is emptied each time.
        folder = pathlib.Path(absltest.TEST_TMPDIR.value)
        folder /= f'keys_{os.getpid()}'  # of each worker
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return case.function(folder, **chosen)

    @parameterized.named_parameters(*[(name, name) for name in KEYS])
    def test_each_input_makes_another(self, name):
        case = KEYS[name]
        key = self.key(case)
        self.assertEqual(self.key(case), key)
        keys = [key]
        for which, values in case.inputs.items():
            if len(values) > 1:
                keys.append(self.key(case, which, True))
                self.assertNotIn(keys[-1], keys[:-1], which)
        for which, values in case.free.items():
            if len(values) > 1:
                self.assertEqual(self.key(case, which, True), key, which)

    def test_all_that_hashes_is_here(self):
        every, listed = set(hashing()), set(OTHERS)
        for name in KEYS:
            module, _, function = name.split()[0].partition('.')
            listed |= {
                x for x in every if x.split()[1] == function
                and {f'{module}.py', module} & set(x.split()[0].split('/'))
            }  # fmt: skip
        self.assertEqual(every, listed)


class MadeAgainTest(places.Folder, absltest.TestCase):
    def test_text_that_is_opened_again(self):
        """Adds to the cache for another value of each choice."""
        cache = self.folder / 'cache'
        self.enterContext(
            mock.patch.dict(os.environ, {places.CACHE: str(cache)})
        )
        self.enterContext(contextlib.redirect_stdout(io.StringIO()))
        for name, count in (('a', 90), ('b', 40), ('c', 40)):
            lines = (f'Text {name}{n} is here.' for n in range(count))
            write(self.folder / f'{name}.txt', '\n\n'.join(lines))
        a, b, c = (f'text:{self.folder}/{name}.txt' for name in 'abc')
        base = {
            'corpus': (f'de={a}', f'en={b}'), 'tokenizer': 'words',
            'vocab_size': 50,
        }  # fmt: skip
        vocab = write(self.folder / 'words.txt', '\n'.join((*WORDS[:5], 'is')))
        named = {'tokenizer': None, 'vocab_size': None, 'vocab': str(vocab)}
        for changes, learned, written in (
            ({}, 1, 2), ({}, 0, 0), ({'drop_equal': True}, 0, 0),
            ({'vocab_size': 51}, 1, 2), ({'lower_case': True}, 1, 2),
            ({'tokenizer': 'wordpiece'}, 1, 2),
            ({'language_exponent': 0.1}, 1, 2),
            ({'corpus_weights': ('de=1', 'en=9')}, 1, 2),
            ({'heldout': (f'en={c[5:]}',)}, 1, 2),
            (named, 0, 2), ({**named, 'language_exponent': 0.1}, 0, 0),
            # Of what is there, one text is another.
            ({**named, 'corpus': (f'de={a}', f'en={c}')}, 0, 1),
        ):
            before = {*cache.glob('*/*')}
            opened.open_text(TextChoices(**{**base, **changes}))
            new = {*cache.glob('*/*')} - before
            actual = [
                sum(x.parent.name == kind and x.suffix != '.digest'
                    for x in new)
                for kind in ('vocabularies', 'stores')
            ]  # fmt: skip
            self.assertEqual(actual, [learned, written], changes)


def other(kind, value, known):
    if known.choices:
        return next(x for x in known.choices if x != value)
    if kind is bool or isinstance(value, bool):
        return not value
    if kind in (int, float):
        return kind((value or known.at_least or 0) + 1)
    if kind is tuple:
        return ('other',)
    return 'other'


class RecordTest(parameterized.TestCase):
    """Records by which a run, or the making of a store, goes on."""

    # Of these the config that they led to is compared.
    LED_TO = (
        'activation', 'dropout', 'embedding_width', 'encoder', 'epochs',
        'lower_case', 'mask_share', 'masking', 'memory_length', 'objectives',
        'positions', 'precision', 'relative_buckets', 'shared_layers', 'size',
        'tokenizer', 'vocab_size',
    )  # fmt: skip
    # These change no weight.
    FREE = (
        'checkpoint_every', 'epochs', 'eval_every', 'grace_seconds',
        'keep_checkpoints', 'log_every', 'logical_cpus', 'measure',
        'microbatch', 'on_nonfinite', 'remat', 'rewinds', 'strategy', 'workdir',
    )  # fmt: skip

    def test_every_flag_of_a_run(self):
        config = zoo.config('simcse')

        def key_of(**changes):
            chosen = dataclasses.replace(RunChoices(workdir='w'), **changes)
            return record.run_record(chosen, config, 'text', 'vocabulary')

        alike = set()
        for name, (kind, known) in flags_of(RunChoices).items():
            value = getattr(RunChoices(workdir='w'), name)
            changed = {name: other(kind, value, known)}
            if key_of(**changed) == key_of():
                alike.add(name)
        self.assertEqual(alike, {*self.LED_TO, *self.FREE})
        # The order in which weights are typed is of no matter.
        one, two = (
            key_of(corpus_weights=weights)['corpus_weights']
            for weights in (('b=2', 'a=1'), ('a=1', 'b=2'))
        )
        self.assertEqual(one, two)

    def test_adapters_of_another_base(self):
        """By the weights of --init, which the same folder may hold no more."""
        records = []
        for digest in ('one', 'two'):
            adapter = AdapterConfig('lora', 2, 4.0, 'x', 'x', digest=digest)
            config = zoo.config('simcse').replace(adapter=adapter)
            records.append(record.run_record(
                RunChoices(workdir='w', init='base'), config, 'text', 'x'
            ))  # fmt: skip
        different = {k for k, x in records[0].items() if records[1][k] != x}
        self.assertEqual(different, {'adapter'})

    def test_every_flag_of_prepare(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        vocab = write(folder / 'vocab.txt', 'a')
        base = prepare.PrepareChoices(corpus=('x',), vocab=str(vocab))
        key = prepare._decisive(base, corpus())
        free = 'output', 'processes', 'beam_options', 'language_exponent'
        for name, (kind, known) in flags_of(prepare.PrepareChoices).items():
            value = other(kind, getattr(base, name), known)
            if name == 'vocab':
                value = str(write(folder / 'other.txt', 'b'))
            changed = dataclasses.replace(base, **{name: value})
            same = prepare._decisive(changed, corpus()) == key
            self.assertEqual(same, name in free, name)
        self.assertNotEqual(prepare._decisive(base, corpus('1')), key)
        write(vocab, 'b')
        self.assertNotEqual(prepare._decisive(base, corpus()), key)


class IdentityTest(absltest.TestCase):
    def test_stores_of_before_are_known_again(self):
        """BLAKE2b of 80 bits, as b2sum has it."""
        tokenizer = types.SimpleNamespace(
            identity='a', lower_case=True, options={}
        )
        self.assertEqual(opened.identity_of(tokenizer), 'e04224630e7982bc9535')
