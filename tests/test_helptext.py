"""What --help says of a flag; tests/tasks/test_help.py has all of a screen."""

from absl import flags
from absl.testing import absltest

from infoword_tf import helptext


class DescribedTest(absltest.TestCase):
    def test_a_flag_and_its_text(self):
        """Switches that are off, and choices of nothing, say no default."""
        values = flags.FlagValues()
        flags.DEFINE_bool('on', True, 'One. Two.', values)
        flags.DEFINE_bool('off', False, 'One; two.', values)
        flags.DEFINE_enum('one', 'x', ['x', 'y'], 'Any.', values)
        flags.DEFINE_enum('none', None, ['x', 'y'], 'Any.', values)
        flags.DEFINE_integer('number', 3, 'A. B.', 1, flag_values=values)
        flags.DEFINE_list('several', ['u', 'v'], 'Some', values)
        flags.DEFINE_string('name', None, 'A name', values)
        for name, left, first, whole in (
            ('on', '--[no]on', 'One. Default: true.',
             'One. Two. Default: true.'),
            ('off', '--[no]off', 'One.', 'One; two.'),
            ('one', '--one=x|y', 'Any. Default: x.', 'Any. Default: x.'),
            ('none', '--none=x|y', 'Any.', 'Any.'),
            ('number', '--number=3', 'A.', 'A. B. (a positive integer)'),
            ('several', '--several=u,v', 'Some.',
             'Some (a comma separated list)'),
            ('name', '--name=...', 'A name.', 'A name'),
        ):  # fmt: skip
            for is_whole, text in (False, first), (True, whole):
                actual = helptext._described(values[name], is_whole)
                self.assertEqual(actual, (left, text))
