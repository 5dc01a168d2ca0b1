"""Flags of any value and files of any flags, tried on drawn ones."""

import functools

import hypothesis
from absl.testing import absltest
from hypothesis import strategies as some

from infoword_tf import commands, errors
from infoword_tf.choices import RunChoices, flags_of
from infoword_tf.objectives import TABLE
from infoword_tf.resolve import resolve
from tests import places


def tried(count):
    """Fixes the examples, and ignores the clock."""
    return hypothesis.settings(
        max_examples=count, derandomize=True, deadline=None, database=None
    )


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
