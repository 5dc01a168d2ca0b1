"""data.tables: every kind of table, and what is said of bad ones."""

import gzip
import itertools
import json
import tracemalloc
from unittest import mock

import numpy as np
import pyarrow
import tensorflow as tf
from absl.testing import parameterized
from pyarrow import parquet

from infoword_tf.data import labelling, readers, tables
from infoword_tf.data.labelling import TableColumns
from tests import places
from tests.data import datasets, texts
from tests.near import same
from tests.refused import refused

NAMES = ('stars', 'review', 'about')
ROWS = [
    ('1', 'bad "film"', 'one, two'), ('0', 'Größe\u2028', ''), ('1', 'x', 'y')
]  # fmt: skip
TSV = ''.join('\t'.join(row) + '\n' for row in [NAMES, *ROWS])
CSV = (
    'stars,review,about\r\n1,"bad ""film""","one, two"\r\n'
    '0,Größe\u2028,\r\n1,x,y\r\n'
)
JSONL = ''.join(
    json.dumps(dict(zip(NAMES, (int(row[0]), *row[1:]), strict=True))) + '\n'
    for row in ROWS
)  # fmt: skip


def examples_of(table, *columns, **more):
    """Reads columns of a table."""
    return labelling.examples_of(table, TableColumns(*columns, **more))


class TablesTest(texts.Temporary):
    def rows(self, name, content, **more):
        path = self.write(name, content)
        more = {'text': 'review', 'label': 'stars', **more}
        return examples_of(tables.open_table(str(path)), **more)

    @parameterized.parameters(
        ('a.tsv', TSV, [2, 3, 4]),
        ('a.txt', TSV.replace('\n', '\r\n'), [2, 3, 4]),
        ('a.tsv', '\ufeff' + TSV.rstrip('\n'), [2, 3, 4]),
        ('a.tsv.gz', TSV, [2, 3, 4]),
        ('a.csv', CSV, [2, 3, 4]),
        ('a.csv', '\ufeff' + CSV.rstrip(), [2, 3, 4]),
        ('a.csv.gz', CSV.replace('\r\n', '\n'), [2, 3, 4]),
        ('a.jsonl', JSONL, [1, 2, 3]),
        ('a.jsonl.gz', '\n' + JSONL, [2, 3, 4]),
        ('a.jsonl.zst', JSONL, [1, 2, 3]),
        ('a.tsv.zst', TSV, [2, 3, 4]),
        ('a.csv.zst', CSV, [2, 3, 4]),
        ('a.csv', CSV.replace('stars,review', ' stars,  review '), [2, 3, 4]),
        ('a.tsv', TSV.replace('review', ' review '), [2, 3, 4]),
        ('a.csv', TSV.replace('"', '""').replace('bad ""film""',
                                                 '"bad ""film"""'), [2, 3, 4]),
        ('a.csv', 'stars;review;about\n1;"bad ""film""";one, two\n'
         '0;Größe\u2028;\n1;x;y\n', [2, 3, 4]),
        ('a.csv', 'stars|review|about\n1|"bad ""film"""|one, two\n'
         '0|Größe\u2028|\n1|x|y\n', [2, 3, 4]),
    )
    def test_the_same_rows_of_all_kinds(self, name, content, lines):
        content = content.encode()
        if name.endswith('.gz'):
            content = gzip.compress(content)
        elif name.endswith('.zst'):
            content = pyarrow.compress(content, codec='zstd', asbytes=True)
        self.check_rows(name, content, lines)

    def check_rows(self, name, content, lines):
        actual = self.rows(name, content, pair='about')
        self.assertEqual(actual.first, [row[1] for row in ROWS])
        self.assertEqual(actual.second, [row[2] for row in ROWS])
        self.assertEqual(actual.labels, ['1', '0', '1'])
        self.assertIsNone(actual.scores)
        np.testing.assert_array_equal(actual.lines, lines)
        self.assertEqual(actual.where, str(self.folder / name))

    @parameterized.parameters('utf-16', 'utf-16-le', 'utf-16-be')
    def test_utf16(self, encoding):
        """By its byte order mark, packed or not."""
        mark = '' if encoding == 'utf-16' else '\ufeff'
        for name, text, first in (('a.csv', CSV, 2), ('a.tsv', TSV, 2),
                                  ('a.jsonl', JSONL, 1)):  # fmt: skip
            content, lines = (mark + text).encode(encoding), range(first, 9)
            self.check_rows(name, content, lines[:3])
            self.check_rows(f'{name}.gz', gzip.compress(content), lines[:3])
        with refused('broken_utf16', 'a.tsv '):
            self.rows('a.tsv', TSV.encode('utf-16')[:-1])

    def test_parquet(self):
        columns = dict(zip(NAMES, zip(*ROWS, strict=True), strict=True))
        columns['stars'] = [int(x) for x in columns['stars']]
        columns |= {
            'words': [['a'], [], None], 'meta': [{'a': 1}] * 3,
            'raw': [b'x'] * 3, 'part': [0.5, 1e-3, 2.0],
            'is': [True, None, False],
            'at': pyarrow.array([1, 10**9, None], pyarrow.timestamp('ns')),
        }  # fmt: skip
        path = self.folder / 'a.parquet'
        parquet.write_table(pyarrow.table(columns), path, row_group_size=2)
        self.check_rows(path.name, path.read_bytes(), [1, 2, 3])
        for name, cells in (('part', ('0.5', '0.001', '2.0')),
                            ('is', ('true', None, 'false')),
                            ('at', ('1970-01-01 00:00:00.000000001',
                                    '1970-01-01 00:00:01.000000000', None)),
                            ):  # fmt: skip
            table = tables.open_table(str(path))
            place = tables.column_of(table, name)
            self.assertEqual(tuple(x[place] for _, x in table.rows), cells)
        for name in ('words', 'meta', 'raw'):
            with refused('column_of_lists', 'a.parquet:', repr(name)):
                examples_of(tables.open_table(str(path)), name)
        for content in (b'', path.read_bytes()[:-5]):
            with refused('damaged_columns', 'a.parquet '):
                self.rows('a.parquet', content)

    @parameterized.parameters(
        # A comma if it parts all of a file.
        ('a,b\n"x; y",1\n"z; w",2\n', ('a', 'b')),
        ('a,b;c\nx,1;2\ny,3;4\n', ('a', 'b;c')),
        # Whatever stands in quotes, or in a text.
        ('a;b\n"x, y";1\n"z";2\n"1,2,3";4\n', ('a', 'b')),
        ('a;b\nOne, or two;1\nThree\u2028;2\n"a ""b""; c, d";3\n', ('a', 'b')),
        ('a\tb\n"x, y\n1,2"\t1\nz\t2\n', ('a', 'b')),
        ('a;b\n' + '"x\n, y";1\n' * 80, ('a', 'b')),  # the last is cut
        ('a;b;c\n0;A;"one ; two , three"\n1;B;four , five\n', ('a', 'b', 'c')),
        # One column, of which nothing is parted.
        ('text\nOne; two\nThree\nFour; five; six\n', ('text',)),
        ('text\nOne, two\nThree\n', None),
    )
    def test_what_parts_cells_is_found(self, content, names):
        path = str(self.write('a.csv', content))
        table = tables.open_table(path)
        if names is None:
            with refused('unequal_cells', 'line 2: 2 '):
                list(table.rows)
            return
        self.assertEqual(table.names, names)
        for _, cells in table.rows:
            self.assertLen(cells, len(names))

    @parameterized.parameters((';', 'b;c'), ('tab', 'b\tc'), ('|', 'b|c'))
    def test_what_parts_cells_is_said(self, delimiter, rest):
        path = str(self.write('a.csv', f'a,{rest}\n1,{rest}\n'))
        self.assertEqual(tables.open_table(path).names, ('a', rest))
        table = tables.open_table(path, delimiter=delimiter)
        self.assertEqual(table.names, ('a,b', 'c'))
        self.assertEqual(list(table.rows), [(2, ('1,b', 'c'))])

    def test_cells_over_several_lines(self):
        """A record's line is that on which it begins."""
        text = 'review,stars\n"a\nb, c",1\n\nd,0\n"e\n\nf",0\n'
        actual = self.rows('a.csv', text)
        self.assertEqual(actual.first, ['a\nb, c', 'd', 'e\n\nf'])
        np.testing.assert_array_equal(actual.lines, [2, 5, 6])

    def test_one_text_without_labels(self):
        actual = self.rows('a.tsv', 'review\na\n\nb\n', label=None)
        self.assertEqual(actual.first, ['a', '', 'b'])  # an empty text is one
        self.assertIsNone(actual.labels)
        self.assertIsNone(actual.second)

    def test_scores(self):
        text = 'review\tstars\na\t1.5\nb\t -2e1 \n'
        actual = self.rows('a.tsv', text, regress=True)
        self.assertIsNone(actual.labels)
        self.assertEqual(actual.scores.dtype, np.float32)
        np.testing.assert_array_equal(actual.scores, [1.5, -20])
        one = actual.scores[labelling.subset(2, 1)]
        np.testing.assert_array_equal(actual.subset(1).scores, one)

    @parameterized.parameters(
        ('x\t1\ny\t0\n', ['x', 'y']),
        ('review\tstars\nx\t1\n', ['x']),  # names after all
        ('x\ny\n', ['x', 'y']),
        ('review\nx\n', ['x']),
    )
    def test_names_of_which_one_may_be_lacking(self, content, texts):
        path = str(self.write('a.tsv', content))
        names = ['review', 'stars']
        table = tables.open_table(path, names, lacking='stars')
        self.assertEqual(examples_of(table, 'review').first, texts)
        for other in ('review', None):
            if '\t' not in content:
                id = 'no_single_column' if other else 'unequal_cells'
                table = tables.open_table(path, names, lacking=other)
                with refused(id):
                    examples_of(table, 'review')

    @parameterized.parameters(
        ('a.tsv', 'body\tgrade\na\tb\n', False),
        ('a.tsv', 'a body\tgrade of it\nbody\ta\n', False),
        ('a.tsv', 'body\t3\na\tb\n', True),
        ('a.csv', 'body,-1.5\na,b\n', True),
        ('a.csv', 'body,\na,b\n', True),
        ('a.tsv', 'one two three four five\tno\na\tb\n', True),
        ('a.tsv', 'body\tno\na\tyes\nb\tno\n', True),
        ('a.jsonl', '{"1": 2}\n', False),
    )
    def test_a_first_line_that_reads_like_a_row(self, name, content, is_row):
        table = tables.open_table(str(self.write(name, content)))
        with self.assertRaises(tables.NoColumn):
            examples_of(table, 'review')
        self.assertEqual(tables.lacks_names(table), is_row)

    def test_it_streams(self):
        """Rows come before a bad line far below is read."""
        good = 'review\tstars\n' + 'a\t1\n' * 100_000
        path = self.write('a.tsv', good.encode() + b'\xff\t1\n')
        table = tables.open_table(str(path))
        first_lines = itertools.islice(table.rows, 100_000)
        self.assertEqual({cells for _, cells in first_lines}, {('a', '1')})
        with refused('file_not_utf8', 'line 100002 '):
            next(table.rows)

    def test_a_line_without_end_is_not_held(self):
        self.assertEqual(readers.LONGEST, 1 << 26)
        zeros = gzip.compress(bytes(1 << 24))
        for name in ('a.tsv.gz', 'a.csv.gz'):
            path = self.write(name, zeros)
            tracemalloc.start()
            with (
                mock.patch.object(readers, 'LONGEST', 1 << 22),
                refused('long_line', f'{name}, line 1 ', ' MB'),
            ):
                tables.open_table(str(path))
            held = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            self.assertLess(held, 3 << 22)
        just = b'a\tb\n' + b'a' * ((1 << 10) - 3) + b'\tb\n'
        with mock.patch.object(readers, 'LONGEST', 1 << 10):
            lines = list(readers.lines(self.write('b.tsv', just)))
            self.assertLen(lines, 2)
            longer = self.write('c.tsv', just.replace(b'\tb\n', b'\tbc\n'))
            with refused('long_line', 'line 2 '):
                list(readers.lines(longer))

    def test_other_values_of_json(self):
        lines = [{'review': 2012, 'stars': True},
                 {'stars': False, 'review': '\ud83d\ude00 \ud83d'}]  # fmt: skip
        actual = self.rows('a.jsonl', '\n'.join(map(json.dumps, lines)))
        self.assertEqual(actual.first, ['2012', '😀 ?'])
        self.assertEqual(actual.labels, ['true', 'false'])

    @parameterized.parameters(
        # Files with wrong contents: name, contents, id, values.
        ('a.tsv', '', 'empty_table'),
        ('a.csv', '', 'empty_table'),
        ('a.jsonl', '\n\n', 'empty_table'),
        ('a.tsv', 'review\tstars\n', 'table_without_rows'),
        ('a.tsv', 'text\tstars\na\t1\n', 'no_single_column', "no column 'rev",
         ' text, stars'),
        ('a.tsv', 'review\treview\tstars\n', 'no_single_column',
         "more than one column 'review'"),
        ('a.tsv', 'review\tstars\na\t1\nb\n', 'unequal_cells',
         'a.tsv, line 3: 1 ', ' 2 columns'),
        ('a.csv', 'review,stars\na,1\nb,c,1\n', 'unequal_cells', 'line 3: 3 '),
        # Two cells, of which the first is blank, are no blank line.
        ('a.csv', 'review,stars,x\n ,1\n', 'unequal_cells', 'line 2: 2 '),
        ('a.csv', 'review,stars\n"a"b,1\n', 'no_csv', 'line 2:'),
        ('a.csv', 'review,stars\na,1\n"b,1\nc,0\n', 'no_csv', 'line 3:'),
        ('a.tsv', b'review\tstars\na\t1\n\xe4\t1\n', 'file_not_utf8', 'line 3'),
        ('a.csv', b'review,stars\na,1\n\xe4,1\n', 'file_not_utf8', 'line 3 '),
        ('a.tsv', 'review\tstars\na\t\n', 'missing_cell', 'line 2:', 'label',
         'stars'),
        ('a.jsonl', '{"review": "a", "stars": 1}\n{"review": "b"}\n',
         'missing_cell', 'line 2:', 'label'),
        ('a.jsonl', '{"review": "a", "stars": 1}\n{"stars": 1}\n',
         'missing_cell', 'line 2:', 'text', 'review'),
        ('a.jsonl', '{"review": ["a"], "stars": 1}\n', 'column_of_lists',
         "'review'"),
        ('a.jsonl', '{"review": "a", "stars": 1}\n{"review": ["b"]}\n',
         'missing_cell', 'line 2:', 'text'),
        ('a.jsonl', '{"review": "a", "stars": 1}\n{"review": \n',
         'no_json_object', 'line 2:', '(Expecting value'),
        ('a.jsonl', '[1]\n', 'no_json_object', 'line 1: expected'),
        ('a.xlsx', 'x', 'unknown_table_kind', ' .csv, .jsonl, .parquet'),
        ('eng.train', 'EU NNP B-NP B-ORG\n', 'unknown_table_kind', '(CoNLL)'),
        ('a.tsv.gz', 'review\tstars', 'file_not_whole', ' gzip '),
        ('a.csv.zst', 'review,stars', 'file_not_whole', ' zstd '),
    )  # fmt: skip
    def test_complaints(self, name, content, id, *values):
        with refused(id, name, *values):
            self.rows(name, content)

    def test_a_name_of_the_hub_that_is_of_a_model(self):
        name = 'hf://o/d/a.csv'
        message = f'^{name}: .* is hf://datasets/OWNER/NAME/PATH$'
        with self.assertRaisesRegex(FileNotFoundError, message):
            tables.open_table(name)

    def test_columns_of_json_lines_are_those_of_all(self):
        path = self.write('a.jsonl', '{"a": "x"}\n\n{"b": 1, "a": "y"}\n')
        table = tables.open_table(str(path))
        self.assertEqual(table.names, ('a', 'b'))
        self.assertEqual([*table.rows], [(1, ('x', None)), (3, ('y', '1'))])

    @parameterized.parameters('nan', 'good', 'inf', '1e39', '4,5')
    def test_complaints_of_scores(self, score):
        with refused('label_no_score', f'a.tsv, line 3: {score!r} '):
            text = f'review\tstars\na\t1\nb\t{score}\n'
            self.rows('a.tsv', text, regress=True)

    def test_a_pair_without_its_second_column(self):
        with refused('no_single_column', "'about'"):
            self.rows('a.tsv', 'review\tstars\na\t1\n', pair='about')

    def test_no_file(self):
        with self.assertRaisesRegex(FileNotFoundError, 'b.tsv: there is no'):
            tables.open_table(str(self.folder / 'b.tsv'))

    @parameterized.parameters(
        ('10 2 10 1', ['1', '2', '10']),
        ('no yes no', ['no', 'yes']),
        ('1 +1 x', ['+1', '1', 'x']),
    )
    def test_classes(self, labels, expected):
        rows = self.rows('a.tsv', 'review\tstars\n' + ''.join(
            f'a\t{label}\n' for label in labels.split()))  # fmt: skip
        self.assertEqual(labelling.classes(rows), expected)
        numbers = [expected.index(label) for label in labels.split()]
        same(labelling.known_labels(rows, expected), numbers)

    @parameterized.parameters(
        ('a.jsonl', '{"text": "a", "of": ["y", "x"]}\n'
         '{"text": "b", "of": []}\n{"text": "c", "of": [10, " y ", "y"]}\n'),
        ('a.tsv', 'of\ttext\n["y", "x"]\ta\n []\tb\n[10, "y"]\tc\n'),
        ('a.csv', 'text,of\na,"[""x"",""y""]"\nb,[]\nc,"[""10"",""y""]"\n'),
        ('a.csv', 'text,x,y,10\na,1,1,0\nb,0,False,0.0\nc,0,true,1.0\n'),
        ('a.jsonl', '{"text": "a", "x": 1, "y": true, "10": 0.0}\n'
         '{"text": "b", "x": 0, "y": false, "10": 0}\n'
         '{"text": "c", "x": "0", "y": 1.0, "10": true}\n'),
    )  # fmt: skip
    def test_several_labels(self, name, content):
        """Lists, or a column each; a text without any is one like others."""
        rows = self.several(name, content)
        self.assertEqual(rows.first, ['a', 'b', 'c'])
        self.assertIsNone(rows.labels)
        sets = [{'x', 'y'}, frozenset(), {'10', 'y'}]
        self.assertEqual(rows.label_sets, sets)
        self.assertEqual(labelling.classes(rows), ['10', 'x', 'y'])
        targets = labelling.known_labels(rows, ['x', 'none', 'y', '10'])
        same(targets, [[1, 0, 1, 0], [0] * 4, [0, 0, 1, 1]])
        self.assertEqual(targets.dtype, np.int32)
        one = [sets[i] for i in labelling.subset(3, 1)]
        self.assertEqual(rows.subset(1).label_sets, one)
        self.assertIsNone(labelling.joined(rows, rows).label_sets)
        chosen = rows._replace(choices=[['a', 'b', 'c'], ['x', 'y', 'z']])
        self.assertEqual(
            labelling.joined(chosen, chosen).choices,
            [['a', 'b', 'c'] * 2, ['x', 'y', 'z'] * 2],
        )
        self.assertIsNone(labelling.joined(rows, chosen).choices)
        with refused('unknown_label', f'{name}, line ', "'10'", ' x, y'):
            labelling.known_labels(rows, ['x', 'y'])

    def several(self, name, content):
        """Opens sets of labels in the column `of`, or in x, y and 10."""
        path = self.write(name, content)
        columns = () if 'of' in content else ('x', 'y', '10')
        return examples_of(
            tables.open_table(str(path), lists=['of']), 'text', label='of',
            label_columns=columns, lists=True,
        )  # fmt: skip

    @parameterized.parameters(
        ('{"text": "a", "of": ["x"]}\n{"text": "b", "of": "x"}',
         'label_no_list', "line 2: 'x' "),
        ('{"text": "a", "of": "x"}\n{"text": "b", "of": ["x"]}',
         'label_is_list', "line 2: '[\"x\"]' "),
        ('{"text": "a", "of": "x"}\n{"text": "b", "of": "[\'x\', \'y\']"}',
         'label_list_not_json', 'line 2:'),
        ('{"text": "a", "of": [1, 2.5]}', 'wrong_label_in_list',
         "line 1: '2.5' "),
        ('{"text": "a", "of": [true]}', 'wrong_label_in_list', "1: 'true' "),
        ('{"text": "a", "of": [[1]]}', 'wrong_label_in_list', "1: '[1]' "),
        ('{"text": "a", "of": [" "]}', 'wrong_label_in_list', '1:'),
        ('{"text": "a", "of": ["x"]}\n{"text": "b", "of": null}',
         'missing_cell', 'line 2:', 'label', ' of'),
        ('{"text": "a", "of": {"x": 1}}', 'column_of_lists', "'of'"),
        ('{"text": "a", "x": 1, "y": 0, "10": 0}\n'
         '{"text": "b", "x": 0, "y": 2, "10": 0}',
         'label_not_0_or_1', "line 2: '2' in the column y "),
        ('{"text": "a", "x": "yes", "y": 0, "10": 0}', 'label_not_0_or_1',
         "1: 'yes' "),
        ('{"text": "a", "x": 0, "y": -1, "10": 0}', 'label_not_0_or_1',
         "1: '-1' in the column y "),
        ('{"text": "a", "x": 0, "y": null, "10": 0}', 'missing_cell',
         'line 1:', 'label'),
        ('{"text": "a", "x": 0, "y": 0}', 'no_single_column', "'10'"),
    )  # fmt: skip
    def test_complaints_of_several_labels(self, content, id, *values):
        with refused(id, 'a.jsonl', *values):
            self.several('a.jsonl', content)

    def test_cells_of_several_labels(self):
        """Whichever separator: blanks around a label are no part of it."""
        for separator in (';', '|'):
            text = f'text\tof\na\tx{separator}y\nb\t\nc\t y {separator} 10\n'
            table = tables.open_table(str(self.write('a.tsv', text)))
            rows = examples_of(table, 'text', label='of', separator=separator)
            self.assertEqual(rows.label_sets, [{'x', 'y'}, set(), {'10', 'y'}])
        path = self.write('a.jsonl', '{"text": "a", "of": ["x"]}')
        table = tables.open_table(str(path), lists=['of'])
        with refused('separator_of_lists', 'line 1', '["x"]'):
            examples_of(table, 'text', label='of', separator=';')

    @parameterized.parameters(
        # Rows that nobody has labelled: content, columns, what is left.
        ('text,of\na,yes\nb,-\nc,no\n', {'label': 'of'}, 'ac'),
        ('text,x,y\na,0,1\nb,0,-\nc,1,1\n', {'label_columns': ('x', 'y')},
         'ac'),
        ('text,of\na,1.5\nb, - \nc,2\n', {'label': 'of', 'regress': True},
         'ac'),
    )
    def test_rows_without_a_label_are_left_out(self, content, columns, left):
        def read(**more):
            table = tables.open_table(str(self.write('a.csv', content)))
            return examples_of(table, 'text', **columns, **more)

        rows = read(drop=['-'])
        self.assertEqual(''.join(rows.first), left)
        (note,) = rows.notes
        self.assertIn("a.csv: 1 of 3 rows have no label ('-')", note)
        with refused('table_without_rows', 'with a label'):
            read(drop=['-', 'yes', 'no', '0', '1', '1.5', '2'])

    def test_an_unknown_label_may_be_none(self):
        rows = self.rows('a.tsv', 'review\tstars\na\tno\nb\t-\n')
        with refused('unknown_label', "'-'", '--drop_label=-'):
            labelling.known_labels(rows, ['no', 'yes'])

    @parameterized.product(kind=('parquet', 'arrow'), form=('List', 'list', ''))
    def test_names_that_a_file_has_for_numbers(self, kind, form):
        """As Hugging Face's datasets writes them; -1 is no class."""
        feature = {'names': ['yes', 'maybe', 'no'], '_type': 'ClassLabel'}
        numbers = [2, -1, 0, 2, None]
        if form:
            numbers = [x if x is None else [x] for x in [2, 0, 0, 2, None]]
            nested = {'feature': feature, '_type': form}
            feature = [feature] if form == 'list' else nested
        about = {'info': {'features': {'of': feature, 'n': {'dtype': 'x'}}}}
        table = pyarrow.table({'text': list('abcde'), 'of': numbers})
        about = {'huggingface': json.dumps(about)}
        table = table.replace_schema_metadata(about)
        path = self.folder / f'a.{kind}'
        if kind == 'parquet':
            parquet.write_table(table, path)
        else:
            with pyarrow.ipc.new_stream(path, table.schema) as stream:
                stream.write_table(table)
        table = tables.open_table(str(path), lists=['of'])
        rows = examples_of(table, 'text', label='of', lists=True)
        self.assertEqual(labelling.classes(rows), ['yes', 'no'])
        if form:
            sets = [{'no'}, {'yes'}, {'yes'}, {'no'}]
            self.assertEqual(rows.label_sets, sets)
            return
        self.assertEqual(rows.first, ['a', 'c', 'd'])
        self.assertEqual(rows.labels, ['no', 'yes', 'no'])
        self.assertIn('2 of 5 rows', rows.notes[0])
        # A model that has learned the numbers reads them.
        for known in (['yes', 'no'], ['0', '2']):
            targets = labelling.known_labels(rows, known)
            self.assertEqual(targets.tolist(), [1, 0, 1])
        table = tables.open_table(str(path))
        with refused('missing_cell', 'line 5'):  # numbers stay numbers
            examples_of(table, 'text', label='of', regress=True)

    def test_numbers_beyond_the_names_of_a_file(self):
        table = tables.Table('f', ('text', 'of'), iter([(1, ('a', '3'))]),
                             classes={'of': ('x', 'y')})  # fmt: skip
        with refused('label_beyond_classes', 'f, line 1', "'3'", '2 classes'):
            examples_of(table, 'text', label='of')

    def test_no_label_at_all(self):
        rows = self.several('a.tsv', 'text\tof\na\t[]\nb\t[]\n')
        with refused('no_label_at_all', 'a.tsv'):
            labelling.classes(rows)

    def test_complaints_of_labels(self):
        rows = self.rows('a.tsv', 'review\tstars\na\tno\nb\tno\nc\t maybe \n')
        with refused('unknown_label', 'a.tsv, line 4:', "'maybe'", ' no, yes'):
            labelling.known_labels(rows, ['no', 'yes'])
        rows = rows._replace(labels=['no'] * 3)
        with refused('one_label_alone', "'no'"):
            labelling.classes(rows)
        many = [str(n) for n in range(150)]
        with refused('unknown_label', ' 19 and 130 '):
            labelling.known_labels(rows, many)


class TfdsTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = places.make(cls.addClassCleanup)
        kinds = datasets.kinds
        features = {
            'title': {'text': kinds.Text()}, 'score': tf.float32,
            'label': kinds.ClassLabel(names=['no', 'yes']),
            'picture': kinds.Tensor(shape=(2,), dtype=tf.uint8),
        }  # fmt: skip
        row = {'title': {'text': 'a'}, 'score': 3.8, 'picture': [0, 0]}
        splits = {
            split: [row | {'label': label} for label in labels]
            for split, labels in (('train', [0, 1]), ('test', [1, -1]))
        }
        datasets.prepare(cls.folder, 'rated', features, splits, config='small')

    def setUp(self):
        super().setUp()
        self.enterContext(datasets.only(self.folder))

    def test_rows(self):
        table = tables.open_table('tfds:rated/small')
        self.assertEqual(table.names, ('label', 'score', 'title/text'))
        actual = examples_of(table, 'title/text', label='label')
        self.assertEqual(actual.first, ['a', 'a'])
        self.assertCountEqual(actual.labels, ['no', 'yes'])
        self.assertEqual(actual.where, 'tfds:rated/small:train')
        np.testing.assert_array_equal(actual.lines, [1, 2])

    def test_scores_and_a_label_that_is_none(self):
        scored, labelled = (
            examples_of(
                tables.open_table('tfds:rated/small:test'), 'title/text',
                None, *columns,
            )
            for columns in (('score', True), ('label',))
        )  # fmt: skip
        same(scored.scores, np.float32([3.8, 3.8]))
        self.assertEqual(labelled.labels, ['yes'])
        self.assertIn('1 of 2 rows have no label', labelled.notes[0])
