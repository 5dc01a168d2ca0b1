"""What is measured of runs that begin and of those that go on late."""

import contextlib
import io
import json
import pathlib
from unittest import mock

from absl.testing import absltest

from benchmarks import start
from infoword_tf import checkpoint
from tests import runs
from tests.tasks import command

LATE = 1_000_000


def setUpModule():
    runs.set_up()


class LateTest(absltest.TestCase):
    def test_a_run_goes_on_from_a_late_step(self):
        workdir = pathlib.Path(self.create_tempdir().full_path)
        given = (f'--steps={LATE + 1}', '--log_every=1', '--eval_every=1000')
        with (
            contextlib.suppress(KeyboardInterrupt),
            self.stopped_at(1),
        ):
            runs.run_here(workdir, *given, '--checkpoint_every=1')
        self.assertEqual(checkpoint.last_step(workdir), 1)
        start.make_late(workdir, LATE)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            runs.run_here(workdir, *given, '--checkpoint_every=1')
        self.assertIn(f'(step {LATE})', out.getvalue())
        self.assertEqual(runs.records(workdir)[-1]['step'], LATE + 1)
        self.assertEqual(checkpoint.last_step(workdir), LATE + 1)

    def stopped_at(self, last):
        """Inside, a run is interrupted after a checkpoint."""

        def save(self, step, variables, whole=checkpoint.Checkpoints.save):
            whole(self, step, variables)
            if step == last:
                raise KeyboardInterrupt

        return mock.patch.object(checkpoint.Checkpoints, 'save', save)


class TableTest(absltest.TestCase):
    def test_medians_by_stage(self):
        seconds = iter([9.0, 3.0, 5.0, 1.0, 6.0, 8.0, 7.0])

        def one_step(*given):
            del given
            stages = {'imports': next(seconds), 'whole': 9.0}
            return {'stages': stages, 'kernels': 34}

        steps = {
            'run': [0.5, 0.2, 0.3],
            'outside': [0.03, 0.02, 0.06],
            'alone': [0.2, 0.4, 0.1],
        }
        with (
            mock.patch.object(start, 'one_step', one_step),
            mock.patch.object(start, 'call', return_value=steps),
        ):
            done = command.run(
                start, f'--workdir={self.create_tempdir().full_path}',
                '--steps=10',
            )  # fmt: skip
        self.assertEqual(done.status, 0, done.err)
        (record,) = json.loads(done.out.splitlines()[-1])['records']
        begins, goes_on = (row['stages'] for row in record['rows'])
        # The first run of all fills the cache.
        self.assertEqual((begins['imports'], begins['whole']), (3.0, 9.0))
        self.assertEqual((goes_on['imports'], goes_on['text']), (6.0, 0.0))
        steps = record['steps']
        self.assertAlmostEqual(steps.pop('share'), 1 / 3)
        self.assertEqual(
            steps, {'size': 'mini', 'run': 30.0, 'alone': 20.0, 'outside': 0.1,
                    'spread': [20.0, 50.0]},
        )  # fmt: skip
        self.assertIn('| imports | 3.0 | 6.0 |', done.out)
        self.assertIn('takes 30 ms in a run (20-50), of which 33.3%', done.out)

    def test_what_xla_says(self):
        said = (
            'I0000 device_compiler.h:501] Compilation of XLA executable time: '
            '483 ms (482676 us) (cumulative: 10.2 s, max: 601 ms, #called: 34)'
        )
        self.assertEqual(start.COMPILED.findall(said), [('10.2', 's', '34')])


if __name__ == '__main__':
    absltest.main()
