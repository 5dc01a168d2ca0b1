"""The table, of an update that is traced."""

from absl.testing import absltest

from benchmarks import queues
from tests.tasks import command


class QueuesTest(absltest.TestCase):
    def test_the_table(self):
        done = command.run(
            queues, '--queue=64', '--size=tiny', '--batch_size=4',
            '--seq_len=12', '--vocab_size=99', '--rounds=1', '--steps=1',
        )  # fmt: skip
        self.assertEqual(done.status, 0, done.err)
        self.assertRegex(
            done.out,
            r'tiny, 4 x 12 tokens, float32; a queue of 64 x 128\n'
            r'no queue +[\d.]+ s .* 1\.00 x\n'
            r'queue +[\d.]+ s .* [\d.]+ x\nproducts +[\d.]+ s .* [\d.]+ x\n$',
        )

    def test_sentences_fill_their_places(self):
        given = queues.Choices(batch_size=4, seq_len=12)
        view = queues.batches(given, 0).views(0)['sentences']
        real = view.block_ids < view.targets['simcse'][0].size
        self.assertEqual(real.sum(), 4 * 2 * 12)


if __name__ == '__main__':
    absltest.main()
