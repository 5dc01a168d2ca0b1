"""Choices that checks of a run decide, or refuse, without a run."""

from absl.testing import absltest, parameterized

from infoword_tf import errors
from infoword_tf.objectives import Auxiliary
from infoword_tf.training import begin
from tests import places, quick, zoo
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
        self.assertEqual(actual.objectives, 'pairs')


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


class OlderRunsTest(places.Folder, absltest.TestCase):
    def test_a_run_goes_on_with_its_encoder_and_dropout(self):
        """Unless others are chosen, or other rows are trained."""
        config = zoo.config('simcse', rate=0.3)
        name = config.encoder.name
        workdir = f'--workdir={self.folder}'
        for typed in (), (workdir,):  # no run yet
            choices = quick.choices(*typed)
            self.assertIs(begin.with_older_defaults(choices, ['simcse']),
                          choices)  # fmt: skip
        config.write(self.folder)
        for more, rows, encoder, rate in (
            ((), ['simcse'], name, 0.3),
            (('--dropout=0.2',), ['simcse'], name, 0.2),
            ((f'--encoder={name}',), ['simcse'], name, 0.3),
            ((), ['mlm'], None, None), ((), ['simcse', 'mlm'], None, None),
            (('--encoder=lookup',), ['simcse'], 'lookup', None),
        ):  # fmt: skip
            choices = quick.choices(workdir, *more)
            actual = begin.with_older_defaults(choices, rows)
            self.assertEqual((actual.encoder, actual.dropout), (encoder, rate))

    def test_unknown_rows(self):
        begin.refuse_unknown_rows(quick.choices('--objectives=mlm:0.5,ict'))
        with self.assertRaises(errors.UsageError) as caught:
            begin.refuse_unknown_rows(quick.choices('--objectives=berta'))
        self.assertEqual(caught.exception.id, 'unknown_row')

    def test_workdirs_of_auxiliaries(self):
        zoo.config('ict').write(self.folder)
        for answers in ('vectors',), ():
            auxiliary = Auxiliary(workdir=self.folder, answers=answers)
            begin.refuse_auxiliaries_without_answers({'one': auxiliary})
        auxiliary = auxiliary._replace(answers=('blanks',))
        with refused('auxiliary_without_answer', 'one begins', 'ict', 'mlm'):
            begin.refuse_auxiliaries_without_answers({'one': auxiliary})
        begin.refuse_auxiliaries_without_answers({
            'one': auxiliary._replace(workdir=None)})  # fmt: skip
