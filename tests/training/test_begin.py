"""Choices that checks of a run decide, or refuse, without a run."""

from absl.testing import parameterized

from infoword_tf.training import begin
from tests import places, quick
from tests.refused import refused


class PairedChoicesTest(places.Folder, parameterized.TestCase):
    @parameterized.parameters(
        ((), 1e-4), (('--adapter=lora',), 1e-3),
        (('--adapter=lora', '--learning_rate=2e-5'), 2e-5),
    )  # fmt: skip
    def test_the_rate_of_a_run_that_starts_from_weights(self, more, rate):
        """Adapters learn at ten times that of whole encoders."""
        path = self.folder / 'pairs.csv'
        path.write_text('a,b\none,two\n')
        typed = f'--pairs={path}', '--init=nowhere', *more
        choices = quick.choices(*typed)
        chosen = {x.removeprefix('--').split('=')[0] for x in typed}
        actual = begin.with_pairs(choices, dict.fromkeys(chosen))
        self.assertAlmostEqual(actual.learning_rate, rate)


class LabelledChoicesTest(parameterized.TestCase):
    @parameterized.parameters(
        '--minutes=3', '--best', '--measure=sts:x', '--shuffle_block=9',
    )  # fmt: skip
    def test_flags_of_text_runs(self, typed):
        choices = quick.choices(typed)
        begin.refuse_contradicting_ends(choices, False)
        with refused('flag_of_text_runs', typed.split('=')[0]):
            begin.refuse_contradicting_ends(choices, True)

    def test_minutes_of_machines(self):
        choices = quick.choices('--minutes=3', '--strategy=multiworker')
        with refused('minutes_of_machines', '--minutes', '--steps'):
            begin.refuse_contradicting_ends(choices, False)

    @parameterized.parameters(
        ('--learning_rate=inf',), ('--weight_decay=nan',),
        ('--simcse.temperature=inf',), ('--sentences.repeat=nan',),
    )  # fmt: skip
    def test_numbers_that_are_none(self, typed):
        """Bounds let them through, of rows too."""
        with refused('infinite_number', typed):
            begin.refuse_infinite_numbers(quick.choices(typed))
