"""Sentences and pairs as files have them: empty, of one word, much too long."""

import math

import numpy as np
from absl.testing import absltest

import infoword_tf
from tests import places, runs
from tests.runs import records, run_here

LONG = 'more words than a text may have ' * 9


def setUpModule():
    runs.set_up()


class SentencesTest(places.Folder, absltest.TestCase):
    def write(self, name, lines):
        path = self.folder / name
        path.write_text(''.join(f'{line}\n' for line in lines))
        return path

    def train(self, *more):
        """Three steps of four sentences; its workdir and what it printed."""
        workdir = self.folder / 'run'
        shown = run_here(
            workdir, '--objectives=simcse', '--steps=3', '--batch_size=4',
            '--seq_len=16', '--vocab_size=300', *more,
        )  # fmt: skip
        for line in records(workdir):
            for name, value in line.items():
                self.assertTrue(math.isfinite(value), name)
        return workdir, shown

    def check_batch(self, workdir):
        """The bound is over the batch, whatever the queue holds."""
        for line in records(workdir):
            self.assertAlmostEqual(
                line['simcse/log_candidates'], np.log(4), places=5
            )

    def test_of_a_text(self):
        """All twelve in one epoch, with a queue smaller than a batch."""
        path = self.write('text.txt', [
            'Yes', '', '...', '', '   ', '', '\u2603 \u2603', '', LONG, '',
            *(f'sentence {i} stands alone\n' for i in range(8)),
        ])  # fmt: skip
        workdir, shown = self.train(f'--corpus=text:{path}', '--simcse.queue=3')
        self.assertEqual(
            sum(r['sentences/cut_sentences'] for r in records(workdir)), 1
        )
        self.check_batch(workdir)
        vectors = infoword_tf.load(workdir).encode(
            ['', 'Yes', LONG], progress=False
        )
        self.assertTrue(np.isfinite(vectors).all())
        self.assertNotIn('left out', shown)

    def test_of_pairs(self):
        """With an empty side they are none; and the queue is no multiple."""
        good = [
            'one,word', '.,!', f'{LONG},short', f'a text,{LONG}',
            *['the same,pair'] * 4,
            *(f'question {i},answer {i}' for i in range(4)),
        ]  # fmt: skip
        bad = ['first,', ',second', ' , ']
        path = self.write('pairs.csv', ['a,b', *good, *bad])
        held = self.write('held.csv', ['a,b', *good[:2], good[-1]])
        workdir, shown = self.train(
            f'--pairs={path}', f'--heldout_pairs={held}', '--simcse.queue=6'
        )
        self.assertIn('12 examples to train on, a text of 2 is trunc', shown)
        self.assertIn('3 rows with an empty a or b are left out', shown)
        self.check_batch(workdir)
