"""Tables of pairs as people have them: the same texts, whatever the layout."""

import json
import os
from unittest import mock

import pyarrow
from absl.testing import parameterized
from pyarrow import ipc, parquet

from infoword_tf.data import pair_tables, readers, text_pairs
from infoword_tf.data.pair_tables import PASSAGE, SELECTED
from tests import runs
from tests.data.texts import Temporary
from tests.refused import refused

# The numbers of rows differ from those of texts: 85 rows, the first 79 of them
# without a negative, as a file is that somebody has put together.
ROWS = [
    (f'what is {i}', f'it is {i}', f'he is {i}' if i >= 79 else '')
    for i in range(85)
]
SEVERAL = [
    ('what is a', ['it is a', 'they are a'], ['he is a']),
    ('what is b', ['it is b'], ['he is b', 'she is b', 'who is b']),
    ('what is c', [], ['he is c']),
    ('what is d', ['it is d'], []),
]
# The same by hand: a, b and three negatives, padded.
EXAMPLES = [
    ('what is a', 'it is a', 'he is a', '', ''),
    ('what is a', 'they are a', 'he is a', '', ''),
    ('what is b', 'it is b', 'he is b', 'she is b', 'who is b'),
    ('what is d', 'it is d', '', '', ''),
]


def passage(text, selected=None):
    """Makes a passage of MS MARCO; else of Tevatron, some with a title."""
    if selected is not None:
        return {PASSAGE: text, SELECTED: int(selected), 'title': ''}
    titled = text.startswith('he ')
    title, _, rest = text.partition(' ') if titled else ('', '', text)
    return {'text': rest, 'title': title}


# Of a row (a, texts that belong to it, others) the record of each library, and
# what a run says of its columns.
RECORDS = {
    'FlagEmbedding': (
        lambda a, b, c: {
            'neg': c, 'neg_scores': [0.5] * len(c), 'pos': b, 'prompt': 'Ask:',
            'query': a, 'type': 'x',
        },
        'a is query, b pos, negatives neg (3 at most); not read: neg_scores, '
        'prompt, type',
    ),
    'plurals': (
        lambda a, b, c: {'id': 'q7', 'positives': b, 'question': a,
                         'negatives': c},
        'a is question, b positives, negatives negatives (3 at most); not '
        'read: id',
    ),
    'Tevatron': (
        lambda a, b, c: {
            'query_id': 7, 'query': a,
            'positive_passages': [*map(passage, b)],
            'negative_passages': [*map(passage, c)],
        },
        'a is query, b positive_passages, negatives negative_passages (3 at '
        'most); not read: query_id',
    ),
    'MS MARCO as data sets have it': (
        lambda a, b, c: {
            'answers': ['no'],
            'passages': {SELECTED: [0] * len(c) + [1] * len(b),
                         PASSAGE: [*c, *b], 'url': ['u'] * len(b + c)},
            'query': a, 'query_type': 'NUMERIC',
        },
        'a is query, b passages, negatives passages (3 at most); not read: '
        'answers, query_type',
    ),
    'MS MARCO as it is published': (
        lambda a, b, c: {
            'query_id': 19, 'query': a,
            'passages': [*(passage(x, True) for x in b),
                         *(passage(x, False) for x in c)],
        },
        'a is query, b passages, negatives passages (3 at most); not read: '
        'query_id',
    ),
}  # fmt: skip


class RolesTest(Temporary):
    def test_a_file_is_read_once_for_its_roles(self):
        """And again when it has changed, though it has as many bytes."""
        path = self.records('x.jsonl', [{'a': 'x', 'b': 'y'}] * 3)
        read = mock.Mock(wraps=readers.read_jsonl)
        with mock.patch.object(readers, 'READERS', {'jsonl': read}):
            for negatives in (None, 0, None, 0):
                pair_tables.roles_of(path, negatives=negatives)
            self.assertEqual(read.call_count, 4)  # names, and texts
            before = os.stat(path)
            self.records('x.jsonl', [{'b': 'x', 'a': 'y'}] * 3)
            os.utime(path, ns=(0, before.st_mtime_ns + 10**9))
            after = os.stat(path)
            self.assertEqual(
                (after.st_ino, after.st_size), (before.st_ino, before.st_size)
            )
            roles = pair_tables.roles_of(path)
            self.assertEqual([*pair_tables.read(roles)][0], ('y', ['x'], []))

    def records(self, name, rows):
        return str(self.write(name, '\n'.join(map(json.dumps, rows))))

    def texts(self, path, *columns, **more):
        """(a, b, negatives) of each example, and the line that a run says."""
        actual = text_pairs.read(path, columns, heldout=path, **more)
        (file,) = actual.train
        self.assertEqual(actual.heldout, [file])
        _, _, summary = actual.notes[0].partition(': ')
        return [*zip(*file.texts, strict=True)], summary

    @parameterized.named_parameters(
        (name, *case) for name, case in RECORDS.items()
    )
    def test_lists(self, record, summary):
        """Each positive is a pair; negatives are padded; three formats."""
        rows = [record(*row) for row in SEVERAL]
        paths = [self.records('x.jsonl', rows)]
        table = pyarrow.Table.from_pylist(rows)
        paths += [str(self.folder / f'x.{end}') for end in ('parquet', 'arrow')]
        parquet.write_table(table, paths[1], row_group_size=2)
        with ipc.new_stream(paths[2], table.schema) as stream:
            stream.write_table(table)
        for path in paths:
            self.assertEqual(self.texts(path), (EXAMPLES, summary))
        (file,), _ = text_pairs.read_pairs(path)
        self.assertEqual((file.empty, len(file.texts)), (1, 2))

    @parameterized.parameters(
        ('sent0,sent1,hard_neg', '{0},{1},{2}', ''),
        # An index, as pandas writes it.
        (',sent0,sent1,hard_neg', '7,{0},{1},{2}', "''"),
        ('Unnamed: 0,a,b,negative', '3,{0},{1},{2}', 'Unnamed: 0'),
        # Others are not read, wherever they stand.
        ('a,b,negative,score,label', '{0},{1},{2},.5,yes', 'score, label'),
        ('type,anchor,notes,pos,neg', 'x,{0},,{1},{2}', 'type, notes'),
        # Nor a negative that is always empty.
        ('query,neg_1,answer,neg_2', '{0},,{1},{2}', 'neg_1'),
        # In any order, in any case.
        ('negative,Anchor,POSITIVE', '{2},{0},{1}', ''),
        ('hypothesis,label,negative,premise', '{1},1,{2},{0}', 'label'),
        # Of several the first name.
        ('question,query,answer,pos,neg', 'x,{0},y,{1},{2}',
         'question, answer'),
    )
    def test_columns(self, head, line, unread):
        lines = [head, *(line.format(*row) for row in ROWS)]
        path = str(self.write('x.csv', '\n'.join(lines)))
        texts, summary = self.texts(path)
        self.assertEqual(texts, ROWS)
        self.assertEqual(summary.partition('; not read: ')[2], unread)

    def test_the_page_lists_all_names(self):
        page = (runs.ROOT / 'docs' / 'data.md').read_text()
        for role, names in pair_tables.NAMES.items():
            listed = ', '.join(f'`{name}`' for name in names)
            self.assertIn(f'\n| {role} | {listed} |\n', page)
        self.assertTrue(set(pair_tables.UNNAMED) <= {
            x for names in pair_tables.NAMES.values() for x in names
        })  # fmt: skip

    def test_a_file_without_a_line_of_names(self):
        """A first line of more than four words, or a number, has no names."""
        rows = [('how many words are these', 'five', 'six'), *ROWS]
        without = '; there is no line of names'
        for count, columns, summary in (
            (3, (), 'a is a, b b, negatives negative'),
            (2, (), 'a is a, b b, negatives none'),
            (3, 'xyz', 'a is x, b y, negatives z'),
            (2, 'ba', 'a is b, b a, negatives none'),
        ):
            for first in rows[0], ('5', *rows[0][1:]):
                lines = ['\t'.join(row[:count]) for row in (first, *rows[1:])]
                path = str(self.write('x.tsv', '\n'.join(lines)))
                texts, actual = self.texts(path, *columns)
                self.assertEqual(
                    texts, [row[:count] for row in (first, *rows[1:])]
                )
                self.assertEqual(actual, summary + without)
        # A short first line has none, if columns say so that it does not name.
        path = str(self.write('x.csv', 'one,two\nthree,four'))
        self.assertEqual(
            self.texts(path, 'a', 'b')[0], [('one', 'two'), ('three', 'four')]
        )
        self.assertEqual(self.texts(path, 'two', 'one')[0], [('four', 'three')])

    @parameterized.parameters(
        ('one,two\nthree,four', 'one, two', '--pair_columns='),
        ('text,score\nthree,0.5', 'text, score', '--pair_columns='),
        ('what are the words here,a text,0.5\nthree,four,-1e3',
         'last column holds numbers', '--pair_columns='),
        ('what are the words here,0.5\nthree,-1e3',
         'last column holds numbers', '--pair_columns='),
        ('what are the words here,x,y,z\nd,e,f,g', '--pair_columns='),
    )  # fmt: skip
    def test_names_that_say_nothing(self, text, *values):
        path = str(self.write('x.csv', text))
        with refused('unknown_pair_columns', path, *values):
            self.texts(path)

    def test_a_name_that_is_missing(self):
        path = str(self.write('x.csv', 'one,two\nthree,four'))
        for columns in (['one', 'b'], ['one', 'two', 'a']):
            with refused('no_single_column', columns[-1], 'one, two'):
                self.texts(path, *columns)
        path = str(self.write('x.csv', 'a,b,b\nthree,four,five'))
        with refused('no_single_column', "'b'"):
            self.texts(path)

    def test_chosen_columns(self):
        """Whatever their names are, and lists likewise."""
        lines = ['query,answer,query no', *(','.join(row) for row in ROWS)]
        path = str(self.write('x.csv', '\n'.join([*lines, 'query,me,'])))
        texts, summary = self.texts(path)
        self.assertEqual(texts, [row[:2] for row in (*ROWS, ('query', 'me'))])
        self.assertEndsWith(summary, '; not read: query no')
        texts, _ = self.texts(path, 'query', 'answer', 'query no')
        self.assertEqual(texts, [*ROWS, ('query', 'me', '')])
        rows = [{'c': c, 'tags': ['x'], 'b': b, 'a': a} for a, b, c in SEVERAL]
        path = self.records('x.jsonl', rows)
        self.assertEqual(self.texts(path, 'a', 'b', 'c')[0], EXAMPLES)
        # Of three negatives the first, of lists and of columns.
        few = [row[:3] for row in EXAMPLES]
        self.assertEqual(self.texts(path, 'a', 'b', 'c', negatives=1)[0], few)
        table = [f'{i}\t' + '\t'.join(row) for i, row in enumerate(EXAMPLES)]
        table.insert(0, 'id\ta\tb\tneg_1\tneg_2\tneg_3')
        path = str(self.write('x.tsv', '\n'.join(table)))
        self.assertEqual(self.texts(path, negatives=1)[0], few)

    @parameterized.parameters(
        ([{'query': 'x', 'pos': ['y']}, {'query': 'x', 'pos': ['y', 3]}],
         'pair_cell_no_text', 'line 2:', "'pos'"),
        ([{'query': 'x', 'pos': [{'text': 'y', 'title': 3}]}],
         'pair_cell_no_text', 'line 1:', "'pos'"),
        ([{'query': 'x', 'pos': [{'text': 3, 'title': 'y'}]}],
         'pair_cell_no_text', 'line 1:', "'pos'"),
        ([{'query': 'x', 'pos': [{'text': None}]}], 'pair_cell_no_text'),
        ([{'query': 'x', 'pos': [{PASSAGE: 'y', SELECTED: 2}]}],
         'pair_cell_no_text', 'line 1:', "'pos'"),
        ([{'query': 'x', 'passages': {SELECTED: [1], PASSAGE: ['y']}},
          {'query': 'x', 'passages': {SELECTED: [1], PASSAGE: ['y', 'z']}}],
         'pair_cell_no_text', 'line 2:', "'passages'"),
        ([{'id': 'x', 'text': 'y', 'score': 1}],
         'unknown_pair_columns', '(id, text, score)'),
        ([{'pos': ['x'], 'neg': ['y']}], 'unknown_pair_columns', 'pos, neg'),
        ([{'id': 1, 'meta': {'x': 1}}], 'unknown_pair_columns'),
        ([], 'empty_table'),
    )  # fmt: skip
    def test_complaints(self, rows, id, *values):
        with refused(id, 'x.jsonl', *values):
            self.texts(self.records('x.jsonl', rows))

    def test_complaints_of_chosen_columns(self):
        path = self.records('x.jsonl', [{'a': ['x'], 'b': 'y', 'c': {'d': 1}}])
        for columns, id, *values in (
            ('ab', 'pair_cell_no_text', 'line 1:', "'a'"),
            ('bc', 'pair_cell_no_text', 'line 1:', "'c'"),
            ('be', 'no_single_column', "'e'", ' a, b, c'),
            ('b', 'unknown_pair_columns', 'a, b, c'),
        ):
            with refused(id, *values):
                self.texts(path, *columns)

    def test_many_columns_in_a_line(self):
        names = ['a', 'b', *(f'negative_{i}' for i in range(30))]
        path = self.records('x.jsonl', [dict.fromkeys(names, 'x')])
        self.assertEqual(
            self.texts(path)[1],
            'a is a, b b, negatives negative_0, negative_1 ... negative_29 (30 '
            'columns)',
        )
