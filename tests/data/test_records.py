"""JSON lines, Parquet and Arrow as corpora."""

import contextlib
import functools
import gzip
import io
from unittest import mock

import numpy as np
import pyarrow
from absl.testing import parameterized
from pyarrow import feather, ipc, parquet

from infoword_tf.data import corpora, readers, textfiles
from tests import corpus as topics
from tests import runs
from tests.data import texts
from tests.refused import refused

json_lines = functools.partial(topics.file_of, 'jsonl')
MEMORY = """
import pathlib, sys
from infoword_tf.data.readers import read_columns
def peak():
    status = pathlib.Path('/proc/self/status').read_text()
    return int(status.split('VmHWM:')[1].split()[0]) / 1024
values = []
for name in sys.argv[1:]:
    rows = sum(1 for _ in read_columns(pathlib.Path(name), field='text'))
    values += [rows, peak()]
print(*values)
"""


def zst(data):
    """Data as two frames, one after the other."""
    half = len(data) // 2
    return b''.join(
        pyarrow.compress(part, codec='zstd', asbytes=True)
        for part in (data[:half], data[half:])
    )


def table_of(values):
    """Texts as `text`, and as `meta/body`, of two columns among others."""
    meta = [{'body': text, 'number': i} for i, text in enumerate(values)]
    ids = [f'id{i}' for i in range(len(values))]
    return pyarrow.table({'id': ids, 'meta': meta, 'text': values})


def write_arrow(path, table, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        pyarrow.OSFile(str(path), 'wb') as file,
        ipc.new_stream(file, table.schema) as writer,
    ):
        writer.write_table(table, max_chunksize=rows)


class Recorded(texts.Temporary):
    def write_all(self, values):
        """The same texts in all formats: names of corpora."""
        table = table_of(values)
        self.write('x.txt', '\n\n'.join(values))
        lines = json_lines(table.to_pylist())
        for end, packed in (('', lines), ('.gz', gzip.compress(lines)),
                            ('.zst', zst(lines))):  # fmt: skip
            self.write(f'x.jsonl{end}', packed)
        parquet.write_table(table, self.folder / 'x.parquet', row_group_size=7)
        dictionary = table.set_column(
            2, 'text', table['text'].dictionary_encode()
        )
        parquet.write_table(
            dictionary, self.folder / 'one.parquet', compression='zstd'
        )
        write_arrow(self.folder / 'saved' / 'data-00000.arrow', table, 9)
        write_arrow(self.folder / 'saved' / 'cache-1.arrow', table, 9)
        # Not a stream, but a file whose batches have places.
        feather.write_feather(table, self.folder / 'x.feather', chunksize=9)
        return [
            f'{kind}:{self.folder}/{rest}'
            for kind, rest in (
                ('text', 'x.txt'), ('jsonl', 'x.jsonl'),
                ('jsonl', 'x.jsonl.gz'), ('jsonl', 'x.jsonl.zst'),
                ('jsonl', 'x.jsonl:meta/body'), ('parquet', 'x.parquet'),
                ('parquet', 'x.parquet:meta/body'), ('parquet', 'one.parquet'),
                ('arrow', 'saved'), ('arrow', 'x.feather'),
                ('arrow', 'saved/data-*.arrow:meta/body'),
            )
        ]  # fmt: skip

    def open(self, name, heldout=None):
        kind, _, rest = name.partition(':')
        return corpora.open_corpus(
            f'{kind}:{self.folder}/{rest}',
            heldout and f'{self.folder}/{heldout}',
        )

    def real(self):
        """Documents of real text, as they are written."""
        topics.write_topics(self.folder / 'topics')
        text = (self.folder / 'topics' / 'train.txt').read_text()
        return [part for part in text.strip().split('\n\n') if part.strip()]


class CorporaTest(Recorded):
    @parameterized.parameters(1 << 20, 700)
    def test_the_same_documents_of_all_formats(self, longest):
        """And of long ones the same parts; the same is held out of them."""
        random = np.random.default_rng(3)
        values = [f'{random.integers(9)}. Of {x}' for x in self.real()]
        with mock.patch.object(textfiles, 'LONGEST', longest):
            text, *others = (
                corpora.open_corpus(name) for name in self.write_all(values)
            )
            expected = self.sentences(text)
            self.assertGreaterEqual(len(expected[2]), len(values))
            self.assertNotEmpty(expected[1])
            keys = {text.fingerprint}
            for corpus in others:
                actual = self.sentences(corpus)
                self.assertEqual(actual, expected, corpus.name)
                keys.add(corpus.fingerprint)
                for size in (5000, 10**9):
                    parts = corpora.chunks_of(corpus, size)
                    actual = [x.sentences for part in parts
                              for x in part.read()]  # fmt: skip
                    self.assertEqual(actual, expected[2])
            self.assertLen(keys, 1 + len(others))

    def sentences(self, corpus):
        """Returns texts of each document: to train on, held out, and all."""
        return [
            [document.sentences for document in part()]
            for part in (corpus.train, corpus.heldout, corpus.every)
        ]

    def test_lines_of_a_record_are_paragraphs(self):
        """Blank ones among them part no documents."""
        lines = '\ufeff{"text": "One. Two\\r\\n\\r\\nThree"}\r\n\r\n{"text": '
        path = self.write('x.jsonl', lines + '"Four \\ud83d"}')
        values = list(self.open('jsonl:x.jsonl').every())
        self.assertEqual(
            [(x.sentences, x.source) for x in values],
            [(('One.', 'Two', 'Three'), f'{path}:1'),
             (('Four ?',), f'{path}:3')],
        )  # fmt: skip

    def test_a_name_with_a_slash_or_a_point(self):
        values = {'a/b': ['One', 'Two'], 'c.d': ['Three', 'Four']}
        self.write('x.jsonl', json_lines(
            [{'a/b': 'One', 'c.d': 'Three'}, {'a/b': 'Two', 'c.d': 'Four'}]
        ))  # fmt: skip
        parquet.write_table(pyarrow.table(values), self.folder / 'x.parquet')
        write_arrow(self.folder / 'x.arrow', pyarrow.table(values), 1)
        for kind in ('jsonl', 'parquet', 'arrow'):
            for name, expected in values.items():
                corpus = self.open(f'{kind}:x.{kind}:{name}')
                self.assertEqual([x.text for x in corpus.every()], expected)

    @parameterized.parameters('jsonl', 'parquet', 'arrow')
    def test_records_without_a_text(self, kind):
        """Says once that of 40, 4 are null, 3 empty and 2 blank."""
        values = [f'Text {i}.' for i in range(31)]
        values[5:5] = [None, '', ' \n\t', None]
        values += [None, '', '\u00a0', '', None]
        self.write('x.jsonl', json_lines({'text': x} for x in values))
        table = pyarrow.table({'text': values})
        parquet.write_table(table, self.folder / 'x.parquet', row_group_size=6)
        write_arrow(self.folder / 'x.arrow', table, 11)
        corpus, output = self.open(f'{kind}:x.{kind}'), io.StringIO()
        with contextlib.redirect_stdout(output):
            for _ in range(2):
                self.assertLen(list(corpus.every()), 31)
        self.assertEqual(
            output.getvalue(), f'{kind}:{self.folder}/x.{kind}: 9 record(s) '
            'without a text are left out\n',
        )  # fmt: skip
        self.assertEqual(list(corpus.every())[5].source[-3:], ':10')

    def test_null_where_the_field_would_be(self):
        self.write('x.jsonl', json_lines(
            [{'a': {'b': 'One'}}, {'a': None}, {'a': {'b': None}}]
        ))  # fmt: skip
        with contextlib.redirect_stdout(io.StringIO()) as output:
            self.assertLen(list(self.open('jsonl:x.jsonl:a/b').every()), 1)
        self.assertIn('2 record(s) without', output.getvalue())

    def test_heldout_files(self):
        self.write('a.jsonl', json_lines([{'body': 'One'}, {'body': 'Two'}]))
        self.write('b.jsonl', json_lines([{'body': 'Three', 'x': 'Four'}]))
        values = []
        for heldout, text in (('b.jsonl', 'Three'), ('b.jsonl:x', 'Four')):
            corpus = self.open('jsonl:a.jsonl:body', heldout)
            self.assertEqual([x.text for x in corpus.train()], ['One', 'Two'])
            self.assertEqual([x.text for x in corpus.heldout()], [text])
            self.assertEqual(
                [(part.kind, len(list(part.read())))
                 for part in corpora.chunks_of(corpus, 9)],
                [('train', 1), ('train', 1), ('heldout', 1)],
            )  # fmt: skip
            values.append(corpus.fingerprint)
        self.assertLen(set(values), 2)
        with refused('heldout_files_trained', 'a.jsonl and 0 '):
            self.open('jsonl:a.jsonl:body', 'a.jsonl')

    def test_a_data_set_of_several_splits(self):
        """In a folder whose name would be a pattern."""
        for split in ('test', 'train'):
            path = self.folder / 'x[1]' / split / 'data-00000.arrow'
            write_arrow(path, table_of([f'Of {split}.', 'More.']), 1)
        self.write('x[1]/dataset_dict.json', '{}')
        with refused('several_splits', ' test, train:', 'x[1]/train,'):
            self.open('arrow:x[1]')
        corpus = self.open('arrow:x[1]/train', 'x[1]/test')
        self.assertEqual([x.text for x in corpus.heldout()][0], 'Of test.')

    def test_what_follows_the_last_colon(self):
        for spec, expected in (
            ('a/*.jsonl', ('a/*.jsonl', 'text')),
            ('a:b.jsonl:text', ('a:b.jsonl', 'text')),
            ('x.jsonl:meta/body', ('x.jsonl', 'meta/body')),
        ):
            self.assertEqual(readers.split_spec(spec), expected)
        for spec in ('x.jsonl:', ':text'):
            with refused('wrong_glob_and_field', spec):
                readers.split_spec(spec)

    def test_memory_does_not_grow_with_a_row_group(self):
        random = np.random.default_rng(0)
        for name, rows in (('few', 6_000), ('many', 36_000)):
            values = [random.bytes(1000).hex() for _ in range(rows)]
            table = pyarrow.table({'text': values, 'other': values})
            path = self.folder / f'{name}.parquet'
            parquet.write_table(table, path, row_group_size=rows)
            write_arrow(self.folder / f'{name}.arrow', table, 1000)
        for kind in ('parquet', 'arrow'):
            paths = [self.folder / f'{name}.{kind}' for name in ('few', 'many')]
            done = runs.python('-c', MEMORY, *paths)
            few, before, many, after = map(float, done.stdout.split())
            self.assertEqual((few, many), (6_000, 36_000))
            self.assertLess(after - before, 15, kind)  # MB


class ComplaintsTest(Recorded):
    def check(self, name, id, *values):
        with refused(id, *values), contextlib.redirect_stdout(io.StringIO()):
            list(self.open(name).every())

    @parameterized.parameters(
        (b'{"text": "a"}\n{"body": "b", "c": {"d": 1}}\n',
         'unknown_field', 'line 2:', "'text'", ' body, c/d'),
        (b'{"text": "a"}\n\n{"text": 7}\n',
         'field_no_string', 'line 3:', "'text'", ' 7'),
        (b'{"text": 0}\n', 'field_no_string', 'line 1:', "'text'", ' 0'),
        (b'{"text": "a"}\n{"text": ["b"]}\n', 'field_no_string', "['b']"),
        (b'{"text": "a"}\n{"text": \n', 'no_json_object',
         'line 2: no JSON (Expecting value'),
        (b'{"text": "a"}\n{"text": "b', 'no_json_object',
         'line 2: no JSON (Unterminated'),
        (b'{"text": "a\0"}\n', 'no_json_object',
         'line 1: no JSON (Invalid control char'),
        (b'[1]\n', 'no_json_object', 'line 1: expected a JSON object'),
        (b'{"text": "a"}\n{"text": "\xe9"}\n', 'file_not_utf8', 'line 2 ',
         '0xe9', ' 24 '),
        (b'[' * 100_000 + b'\n', 'no_json_object', 'line 1: no JSON'),
        (b'', 'files_without_text', ' 1 file'),
        (b'{"text": null}\n{"text": ""}\n', 'files_without_text', ' 1 file',
         'Expected a text in a field'),
    )  # fmt: skip
    def test_json_lines(self, content, id, *values):
        for end, data in (('', content), ('.gz', gzip.compress(content)),
                          ('.zst', zst(content))):  # fmt: skip
            self.write(f'x.jsonl{end}', data)
            name = f'x.jsonl{end}'
            self.check(f'jsonl:{name}', id, name, *values)

    def test_a_line_of_a_part(self):
        lines = json_lines([{'text': f'Text {i}.'} for i in range(50)])
        self.write('x.jsonl', lines + b'{"text": 3}\n')
        table = pyarrow.table({'text': ['One.'] * 5, 'b': [1] * 5})
        parquet.write_table(table, self.folder / 'x.parquet', row_group_size=2)
        part = corpora.chunks_of(self.open('parquet:x.parquet'), 1)[1]
        rows = [document.source for document in part.read()]
        expected = [f'{self.folder}/x.parquet:{row}' for row in (3, 4)]
        self.assertEqual(rows, expected)
        corpus = self.open('jsonl:x.jsonl')
        *parts, last = corpora.chunks_of(corpus, 400)
        for part in parts:
            self.assertNotEmpty(list(part.read()))
        with refused('field_no_string', 'x.jsonl, line ', ' after byte '):
            list(last.read())

    @parameterized.parameters(
        ('other', 'unknown_field', ' id, meta/body, meta/number, text'),
        ('meta/b', 'unknown_field'),
        ('text/x', 'unknown_field'),
        ('meta', 'field_no_string', "{'body': "),
        ('meta/number', 'field_no_string', ' 0'),
    )
    def test_columns(self, field, id, *values):
        self.write_all(['One.', 'Two.'])
        for name in ('parquet:x.parquet', 'arrow:saved', 'jsonl:x.jsonl'):
            kind = 'line' if 'jsonl' in name else 'row'
            where = f', {kind} 1:' if id == 'field_no_string' else ''
            self.check(f'{name}:{field}', id, repr(field), where, *values)

    def test_many_fields(self):
        self.write('x.jsonl', json_lines([{f'f{i}': 1 for i in range(30)}]))
        self.check('jsonl:x.jsonl', 'unknown_field', 'f18, f19, ...')

    def test_text_that_is_no_utf8(self):
        """Nothing of Parquet or Arrow says so before it is read."""
        values = pyarrow.array([b'One', b'caf\xe9']).view(pyarrow.string())
        table = pyarrow.table({'text': values})
        parquet.write_table(table, self.folder / 'x.parquet')
        write_arrow(self.folder / 'x.arrow', table, 5)
        for kind in ('parquet', 'arrow'):
            name = f'{kind}:x.{kind}'
            self.check(name, 'damaged_columns', f'x.{kind}', 'Invalid UTF8')
