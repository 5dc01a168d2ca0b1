"""Tables, flags and configs of any values, tried on drawn ones."""

import csv
import functools
import io
import json

import hypothesis
from absl.testing import absltest
from hypothesis import strategies as some

from infoword_tf import commands, errors
from infoword_tf.choices import RunChoices, flags_of
from infoword_tf.data import tables
from infoword_tf.objectives import TABLE
from infoword_tf.resolve import resolve
from tests import places


def tried(count):
    """Fixes the examples, and ignores the clock."""
    return hypothesis.settings(
        max_examples=count, derandomize=True, deadline=None, database=None
    )


# Cells, two or more a row; a mark of UTF-8 at the beginning is none of them.
CELLS = some.text(max_size=12).map(lambda x: x.replace('\ufeff', ''))
ROWS = some.integers(2, 4).flatmap(
    lambda width: some.lists(
        some.lists(CELLS, min_size=width, max_size=width),
        min_size=1, max_size=6,
    )
)  # fmt: skip


class TablesTest(places.Folder, absltest.TestCase):
    def read(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding='utf-8', newline='')
        table = tables.open_table(str(path))
        return [list(table.names), *(list(cells) for _, cells in table.rows)]

    @tried(60)
    @hypothesis.given(ROWS, some.sampled_from(['\n', '\r\n', '\t']))
    def test_csv_and_tsv(self, rows, end):
        text = io.StringIO(newline='')
        if end == '\t':
            rows = [
                [cell.translate({9: ' ', 10: ' ', 13: ' '}) for cell in row]
                for row in rows
            ]
            text.write(''.join('\t'.join(row) + '\n' for row in rows))
        else:
            # Of \r alone a writer of Python 3.11 thinks that it ends no line.
            quoting = csv.QUOTE_ALL if end == '\n' else csv.QUOTE_MINIMAL
            writer = csv.writer(text, lineterminator=end, quoting=quoting)
            writer.writerows(rows)
        rows[0] = [name.strip() for name in rows[0]]
        name = 'x.tsv' if end == '\t' else 'x.csv'
        self.assertEqual(self.read(name, text.getvalue()), rows)

    @tried(40)
    @hypothesis.given(
        some.lists(
            some.dictionaries(
                some.text(max_size=5),
                some.text(max_size=9) | some.integers() | some.none(),
                min_size=1, max_size=4,
            ),
            min_size=1, max_size=5,
        ),
        some.booleans(),
    )  # fmt: skip
    def test_jsonl(self, records, as_ascii):
        text = ''.join(
            json.dumps(x, ensure_ascii=as_ascii) + '\n' for x in records
        )
        names, *rows = self.read('x.jsonl', text)
        columns = dict.fromkeys(name for x in records for name in x)
        self.assertEqual(names, list(columns))
        for record, row in zip(records, rows, strict=True):
            expected = [record.get(name) for name in names]
            expected = [str(x) if isinstance(x, int) else x for x in expected]
            self.assertEqual(row, expected)


@functools.cache
def names():
    """Draws values of all flags, settings of rows included."""
    rows = [f'{row}.{x}' for row in TABLE for x in TABLE[row].settings]
    return [*flags_of(RunChoices), *rows]


VALUES = some.text(max_size=12) | some.sampled_from(
    ['nan', 'inf', '-1', '1e400', '9' * 30, '', ' ', '0x1', 'True', 'mlm:', '=']
)


class ChoicesTest(places.Folder, absltest.TestCase):
    def resolved(self, arguments):
        """Checks that flags are resolved, or refused in a sentence."""
        try:
            choices = RunChoices(**commands.parse(RunChoices, arguments))
            resolve(choices)
        except (errors.UsageError, ValueError) as error:
            self.assertNotEmpty(str(error))

    @tried(40)
    @hypothesis.given(some.data())
    def test_any_value_is_parsed_or_complained_of(self, data):
        name = data.draw(some.sampled_from(names()))
        value = data.draw(VALUES)
        self.resolved([f'--{name}={value}'])

    @tried(40)
    @hypothesis.given(
        some.lists(some.text(max_size=20).map(str.encode), max_size=5).map(
            b'\n'.join
        )
        | some.binary(max_size=30)
    )
    def test_so_is_any_flagfile(self, data):
        path = self.folder / 'x.flags'
        path.write_bytes(data)
        self.resolved([f'--flagfile={path}'])
