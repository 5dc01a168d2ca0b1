"""Batches of ours that another trainer learns from."""

import csv
import dataclasses

import numpy as np
from absl.testing import absltest

from benchmarks import trainers
from infoword_tf.data import text_pairs
from tests import places
from tests.export import workdirs
from tests.refused import refused

# b has 1 to 12 words, four pairs each; other texts have two.
ROWS = [
    (f'name {i}', ' '.join(['value'] * (i // 4 + 1)), f'other {i}')
    for i in range(48)
]


class SameBatchesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = places.make()
        self.choices = trainers.TrainersChoices(
            of='pairs', source=str(workdirs.shared()), batch_size=4, steps=9,
            seq_len=24, pairs=str(self.folder / 'pairs.csv'),
        )  # fmt: skip

    def write(self, rows, *names):
        with open(self.choices.pairs, 'w', newline='') as file:
            csv.writer(file).writerows([names, *rows])

    def batches(self, seed):
        names, *lines = trainers.batches_of(self.choices, 'cosine', seed)
        self.assertLen(lines, 9 * 4)
        return names, np.reshape(lines, (9, 4, len(names)))

    def test_batches(self):
        """Updates have a pair of each quarter of lengths, and none held out."""
        self.write(ROWS, 'a', 'b', 'negative')
        names, batches = self.batches(0)
        self.assertEqual(names, ('a', 'b', 'negative_0'))
        (held,) = text_pairs.read(self.choices.pairs).heldout
        self.assertNotEmpty(held.texts[0])
        self.assertEmpty({*held.texts[0]} & {*batches[..., 0].ravel()})
        for batch in batches:
            for a, b, negative in batch:
                self.assertIn((a, b, negative), ROWS)
            # One of each quarter, the shortest first.
            words = [len(b.split()) for _, b, _ in batch]
            self.assertEqual(words, sorted(words))
            self.assertGreater(words[-1] - words[0], 5)
        # Eleven updates are an epoch: nothing comes twice in nine.
        self.assertLen({*batches[..., 0].ravel()}, 36)
        _, again = self.batches(0)
        np.testing.assert_array_equal(again, batches)
        _, other = self.batches(1)
        self.assertTrue((other != batches).any())

    def test_refused(self):
        self.write([(a, b, '') for a, b, _ in ROWS[:9]] + ROWS[9:],
                   'a', 'b', 'negative')  # fmt: skip
        with refused('peer_reads_other_texts', 'negatives'):
            trainers.batches_of(self.choices, 'cosine', 0)
        self.write([row[:2] for row in ROWS], 'a', 'b')
        names, _ = self.batches(0)
        self.assertEqual(names, ('a', 'b'))
        prompted = workdirs.write(
            self.folder / 'prompted', fields={'prompts': {'query': 'q: '}}
        )
        choices = dataclasses.replace(self.choices, source=str(prompted))
        with refused('peer_reads_other_texts', 'prompts'):
            trainers.batches_of(choices, 'cosine', 0)
