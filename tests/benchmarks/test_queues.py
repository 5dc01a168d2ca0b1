"""What takes turns: updates that are traced, and bare products."""

from absl.testing import absltest

from benchmarks import queues


class QueuesTest(absltest.TestCase):
    def test_contestants(self):
        said = {}
        for way in queues.WAYS:
            turn, said[way] = queues.contestant(
                queues.Choices(
                    queue=64, size='tiny', batch_size=4, seq_len=12,
                    vocab_size=99, steps=2, serve=way,
                )
            )  # fmt: skip
            self.assertIsNone(turn())
            self.assertEqual(said[way]['amount'], 2 * 4, way)
        self.assertEqual(said['queue']['tokens'], 4)
        # Two products of 4 x 128 x 64; vectors read twice, scores four times.
        more = {
            name: said['queue'][name] - said['no queue'][name]
            for name in ('operations', 'traffic')
        }
        self.assertEqual(more['operations'], 2 * 2 * 4 * 128 * 64)
        self.assertEqual(more['traffic'], 8 * 64 * 128 + 16 * 4 * 64)

    def test_sentences_fill_their_places(self):
        given = queues.Choices(batch_size=4, seq_len=12)
        view = queues.batches(given, 0).views(0)['sentences']
        real = view.block_ids < view.targets['simcse'][0].size
        self.assertEqual(real.sum(), 4 * 2 * 12)


if __name__ == '__main__':
    absltest.main()
