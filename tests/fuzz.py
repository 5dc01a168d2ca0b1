"""Damaged files of every kind that is read: a complaint, and nothing else.

A good file of each kind is damaged at random, as transfers, editors and people
damage files, and read. What a reader may raise is what commands turn into one
sentence.
"""

import collections
import contextlib
import io
import json
import pathlib
import re
import tempfile
import traceback
import types
from collections.abc import Callable

import numpy as np

from infoword_tf import errors, files
from infoword_tf.config import Config
from infoword_tf.data import parallel, sharded, tables, text_pairs, textfiles
from infoword_tf.data import store as stores
from infoword_tf.evaluation import retrieval, sts
from infoword_tf.inference import wordvectors
from infoword_tf.resolve import ModelChoices, resolve
from infoword_tf.text.tokenizer import read_vocabulary
from infoword_tf.weights import tensors
from tasks import squad_data, words
from tests.corpus import file_of

KNOWN = (errors.UsageError, ValueError, OSError, RuntimeError)
Reader = Callable[[pathlib.Path], object]

_SQUAD = b"""{"version": "1.1", "data": [{"title": "T", "paragraphs": [
{"context": "The cat sat on the mat.", "qas": [{"id": "1",
"question": "Who sat?", "answers": [{"text": "The cat",
"answer_start": 0}]}]}]}]}"""
_WORDS = b'2 3\nthe 0.1 -2 3e-4\ncat 1 2 3\n'


def _safetensors() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / 'x.safetensors'
        files.write_tensors(path, {'a': np.ones((2, 3), np.float32),
                                   'b/c': np.arange(4)})  # fmt: skip
        return path.read_bytes()


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _spm() -> bytes:
    """Returns a SentencePiece model of a few tokens."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    kinds = model.SentencePiece
    for number, (piece, kind) in enumerate((
        ('[PAD]', kinds.CONTROL), ('<unk>', kinds.UNKNOWN),
        ('[CLS]', kinds.CONTROL), ('[SEP]', kinds.CONTROL),
        ('[MASK]', kinds.CONTROL), ('\u2581', kinds.NORMAL),
        ('\u2581a', kinds.NORMAL), ('a', kinds.NORMAL), ('b', kinds.NORMAL),
    )):  # fmt: skip
        model.pieces.add(piece=piece, score=-number, type=kind)
    model.trainer_spec.model_type = model.trainer_spec.UNIGRAM
    model.normalizer_spec.name = 'identity'
    return model.SerializeToString()


def _written_config() -> bytes:
    config = resolve(ModelChoices('dim:1,mlm:1')).config(600)
    return json.dumps(config.to_json()).encode()


def _table(path: pathlib.Path) -> object:
    return list(tables.open_table(str(path)).rows)


def _aligned(path: pathlib.Path) -> object:
    path.with_name('x.fr').write_text('Un.\nDeux.\nTrois.\n')
    return parallel.read([f'{path.parent}/x.{{de,fr}}'])


def _beir(path: pathlib.Path) -> object:
    folder, data = path.parent, path.read_bytes()
    (folder / 'corpus.jsonl').write_bytes(SEEDS['corpus.jsonl'])
    (folder / 'queries.jsonl').write_bytes(SEEDS['queries.jsonl'])
    (folder / 'qrels').mkdir(exist_ok=True)
    (folder / 'qrels' / 'test.tsv').write_bytes(SEEDS['test.tsv'])
    place = folder / 'qrels' if path.suffix == '.tsv' else folder
    (place / path.name).write_bytes(data)
    task = retrieval.beir_task(folder, 'test')
    return list(task.blocks())


def _tokens(path: pathlib.Path) -> object:
    """Reads a token store of which one file is damaged."""
    for name, data in _STORE.items():
        if name != path.name:
            path.with_name(name).write_bytes(data)
    opened = stores.open_store(path.parent, types.SimpleNamespace(unk_id=1))
    return opened.ids.sum(), opened.flags.sum(), opened.documents.sum()


def _records(path: pathlib.Path) -> object:
    """Reads a corpus of the kind that the file's name says."""
    kind = path.name.split('.')[1]
    reader = textfiles.Records(kind, 'text')
    reader.check([path])
    return list(reader.read([path], str(path)))


def _pieces(path: pathlib.Path) -> object:
    from infoword_tf.text import sentencepiece  # which imports TensorFlow

    model = sentencepiece.SentencePiece.read(path)
    return model.tokenize_flat([b'ab b', 'é'.encode()])


def _text(path: pathlib.Path) -> object:
    textfiles.check([path])
    return list(textfiles.Files('text').read([path], str(path)))


# Two groups, or batches, of four lines and two columns.
_ROWS = [
    {'text': 'One.', 'meta': {'a': [1]}}, {'text': None, 'meta': None},
    {'text': 'Two.', 'meta': {'a': []}}, {'text': 'Three.', 'meta': None},
]  # fmt: skip
_STORE = {
    'meta.json': b'{"dtype": "uint16", "tokens": 4, "documents": 1}',
    'ids.bin': np.array([5, 6, 5, 3], np.uint16).tobytes(),
    'flags.bin': np.array([3, 1, 1, 5], np.uint8).tobytes(),
    'documents.npy': _npy(np.array([0, 4])),
    'counts.npy': _npy(np.array([0, 0, 0, 0, 0, 2, 1])),
}
SEEDS = {
    'corpus.jsonl': b'{"_id": "d1", "title": "T", "text": "A cat."}\n'
    b'{"_id": "d2", "text": "A dog."}\n',
    'queries.jsonl': b'{"_id": "q1", "text": "cat"}\n',
    'test.tsv': b'query-id\tcorpus-id\tscore\nq1\td1\t1\n',
}
# By kind: the file's name, a good one, and what reads it.
READERS: dict[str, tuple[str, bytes, Reader]] = {
    'text': ('x.txt', 'One. Two.\n\nÜber drei.\r\n'.encode(), _text),
    'tsv': ('x.tsv', b'text\tlabel\nA cat\t1\n"A" dog\t0\n', _table),
    'csv': ('x.csv', b'text,label\n"A, ""cat""",1\ndog,0\n', _table),
    'jsonl': ('x.jsonl', b'{"text": "A", "label": 1}\n'
              b'{"text": "B", "label": 0}\n', _table),
    'csv;': ('x.csv', b'text;label\n"A, ""cat""";1\ndog, cat;0\n', _table),
    'utf-16': ('x.csv', 'text,label\nÄ,1\ndog,0\n'.encode('utf-16'), _table),
    'records': ('x.jsonl', b'{"text": "A.", "b": {}}\n{"text": null}\n'
                b'{"text": "B. C."}\n', _records),
    'records.zst': ('x.jsonl.zst', file_of('jsonl.zst', [{'text': 'A.'}] * 9),
                    _records),
    'parquet': ('x.parquet', file_of('parquet', _ROWS, 2), _records),
    'parquet.table': ('x.parquet', file_of('parquet', _ROWS, 2), _table),
    'arrow': ('x.arrow', file_of('arrow', _ROWS, 2), _records),
    'pairs': ('x.csv', b'a,b\n"One, two",three\nfour,five\n',
              lambda path: text_pairs.read(str(path))),
    'pairs.jsonl': ('x.jsonl', b''.join(b'{"a": "x%d", "b": "y"}\n' % i
                                        for i in range(60)),
                    lambda path: text_pairs.read(str(path))),
    'sts': ('x.csv', b'score\tsentence1\tsentence2\n'
            b'1.5\ta\tb\n4\tc\td\n3\te\tf\n', sts.read),
    'aligned': ('x.de', b'Eins.\nZwei.\nDrei.\n', _aligned),
    'translations': ('x.tsv', b'Eins.\tOne.\nZwei.\tTwo.\nDrei.\tThree.\n',
                     lambda path: parallel.read([f'de-en={path}'])),
    'corpus': ('corpus.jsonl', SEEDS['corpus.jsonl'], _beir),
    'queries': ('queries.jsonl', SEEDS['queries.jsonl'], _beir),
    'qrels': ('test.tsv', SEEDS['test.tsv'], _beir),
    'squad': ('x.json', _SQUAD, squad_data.read),
    'words': ('x.txt', b'the\tcat\t3.5\na\tdog\t1\n', words.read),
    'vectors': ('x.txt', _WORDS, wordvectors.read),
    'vocabulary': ('vocab.txt', b'[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n',
                   read_vocabulary),
    'safetensors': ('model.safetensors', _safetensors(), files.read_tensors),
    'json': ('x.json', b'{"a": [1, {"b": null}]}', files.read_json),
    'index': ('store.json', b'{"version": 1, "tokens": 3, "shards": []}',
              lambda path: sharded.open_prepared(path.parent)),
    'config': ('config.json', _written_config(),
               lambda path: Config.read(path.parent)),
    'meta': ('meta.json', _STORE['meta.json'], _tokens),
    'npy': ('documents.npy', _STORE['documents.npy'], _tokens),
    'converted': ('model.safetensors', _safetensors(),
                  lambda path: dict(tensors.open_folder(path.parent))),
    'pieces': ('spm.model', _spm(), _pieces),
}  # fmt: skip
_PIECES = [
    b'\0', b'\n', b'\r', b'\t', b',', b'"', b'{', b'}', b'[', b']', b'-1',
    b'1e999', b'99999999999', b'NaN', b'null', b'\xff', b'\xef\xbb\xbf',
    b'\xed\xa0\x80', b'\\u0000', b'\\ud800', b'  ', b'\xe2\x80\xa8', b'\x85',
    b'\x1f\x8b',
]  # fmt: skip


def damaged(data: bytes, random: np.random.Generator, most: int = 5) -> bytes:
    """Damages bytes of a file in at most `most` places."""
    for _ in range(random.integers(1, most + 1)):
        place, other = sorted(random.integers(0, len(data) + 1, 2))
        piece = _PIECES[random.integers(len(_PIECES))]
        way = random.integers(8)
        if way == 0:  # cut
            data = data[:place]
        elif way == 1:  # lost
            data = data[:place] + data[other:]
        elif way == 2:  # twice
            data = data[:other] + data[place:]
        elif way == 3 and place < len(data):  # a bit
            flipped = data[place] ^ 1 << random.integers(8)
            data = data[:place] + bytes([flipped]) + data[place + 1 :]
        elif way == 4:  # a number that is another one
            text = bytearray(data)
            digits = [i for i, x in enumerate(text) if 48 <= x < 58]
            if digits:
                at = digits[random.integers(len(digits))]
                data = data[:at] + piece + data[at + 1 :]
        elif way == 5:
            data = data[:place] + random.bytes(random.integers(1, 9)) + (
                data[other:]
            )
        else:
            data = data[:place] + piece + data[place:]
    return data


def tried(
    kind: str, folder: pathlib.Path, count: int, seed: int
) -> tuple[collections.Counter, dict[str, bytes]]:
    """Reads damaged files.

    Returns:
        How many gave what, and of each crash its first file.
    """
    name, good, reader = READERS[kind]
    random = np.random.default_rng([seed, len(kind), *kind.encode()])
    actual: collections.Counter = collections.Counter()
    crashes: dict[str, bytes] = {}
    for number in range(count):
        data = damaged(good, random) if number else good
        how, crash = judged(reader, folder / name, data)
        actual[how] += 1
        if crash or (number == 0 and how != 'read'):
            crashes.setdefault(crash or how, data)
    return actual, crashes


def judged(
    reader: Reader, path: pathlib.Path, data: bytes
) -> tuple[str, str | None]:
    """Reads a file of the given bytes.

    Returns:
        'read', or what was raised; and what was wrong with that.
    """
    path.write_bytes(data)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            reader(path)
        return 'read', None
    except KNOWN as error:
        crash = None
        # Two files are named together, as x.{de,fr}.
        named = path.name, str(path.with_suffix(''))
        if not any(name in str(error) for name in named):
            crash = re.sub(r'\d+|0x..', '', f'no name: {error}')[:120]
        return type(error).__name__, crash
    except Exception:
        lines = traceback.format_exc().strip().splitlines()
        ours = [x.strip() for x in lines if re.search('_tf/|tasks/', x)]
        return 'crash', f'{lines[-1]} | {"".join(ours[-1:])}'
