"""The table, of steps that are traced."""

from absl.testing import absltest

from benchmarks import keras_fit
from tests.tasks import command


class KerasFitTest(absltest.TestCase):
    def test_the_table(self):
        done = command.run(
            keras_fit, '--size=tiny', '--batch_size=4', '--seq_len=12',
            '--vocab_size=99', '--rounds=1', '--steps=1',
        )  # fmt: skip
        self.assertEqual(done.status, 0, done.err)
        cells = (
            r'[\d.]+ s, [\d.]+ x; of all cores [\d.]+ s, [\d.]+ x '
            r'\([\d.]+-[\d.]+\)'
        )
        self.assertRegex(
            done.out,
            rf'tiny, 4 x 12 tokens, float32\ntrainer +{cells}\nfit +{cells}\n$',
        )


if __name__ == '__main__':
    absltest.main()
