"""A row of one's own: what a researcher writes, in full, and it trains."""

import json
import os
import pathlib
import tempfile
from unittest import mock

import numpy as np
from absl import flags
from absl.testing import absltest, flagsaver, parameterized
from keras import ops

from infoword_tf import train, views
from infoword_tf.objectives import TABLE, Objective, Row, infonce
from infoword_tf.objectives.objective import gather_pool
from tests import corpus


def opening(windows, draw, rows, specials):
    """[CLS] x [SEP], the first words of a text; b is the very first."""
    b, few = len(windows.ids), windows.ids[:, :6]
    one = np.ones((b, 1), np.int32)
    return views.View(
        ids=np.hstack([specials.cls_id * one, few, specials.sep_id * one]),
        sequences=np.arange(b, dtype=np.int32),
        places=dict.fromkeys(rows, one),
        targets=dict.fromkeys(rows, few[:, :1]),
        weights=dict.fromkeys(rows, one.astype(np.float32)),
    )


class FirstWord(Objective):
    """The first word, from its place, among first words of other texts."""

    def candidates(self, views, states, replicas, limit=None):
        return gather_pool(views['opening'], self.row, replicas, limit)

    def score(self, views, states, candidates, kl, key=None):
        view = views['opening']
        a = ops.cast(states['opening'][:, 0], 'float32')
        targets = view.targets[self.row][:, 0]
        return infonce.contrast(
            ops.sum(a * self.encoder.lookup(targets), axis=1),
            ops.matmul(a, ops.transpose(self.encoder.lookup(candidates.ids))),
            candidates.others(view.sequences),
            ops.equal(candidates.ids[None, :], targets[:, None]),
            view.weights[self.row][:, 0],
            kl,
            drop_identical=True,
        )


TOY = Row(
    objective=FirstWord,
    a='how a text begins',
    b='its first word',
    relation='the word that stands there',
    candidates='first words of other sequences',
    views={'opening': 'start'},
    heldout_candidates=16,
)


def setUpModule():
    global CORPUS, HELDOUT
    folder = pathlib.Path(tempfile.mkdtemp())
    os.environ['INFOWORD_CACHE'] = str(folder / 'cache')
    CORPUS, HELDOUT = corpus.write_topics(folder / 'text')


class ToyTest(parameterized.TestCase):
    @parameterized.parameters('toy', 'toy:1,bert_nce:0.5')
    def test_trains(self, objectives):
        workdir = pathlib.Path(self.create_tempdir().full_path)
        given = [
            f'--objectives={objectives}',
            f'--corpus={CORPUS}',
            f'--heldout={HELDOUT}',
            f'--workdir={workdir}',
            '--vocab_size=600',
            '--steps=30',
            '--log_every=10',
            '--batch_size=16',
            '--seq_len=32',
            '--learning_rate=0.002',
            '--precision=float32',
        ]
        with (
            mock.patch.dict(TABLE, toy=TOY),
            mock.patch.dict(
                views.VIEWS, opening=views.Kind(opening, 'windows')
            ),
            flagsaver.flagsaver(),
        ):
            flags.FLAGS(['train', *given])
            train.train()
        lines = (workdir / 'metrics.jsonl').read_text().splitlines()
        first, *_, last = map(json.loads, lines)
        self.assertAlmostEqual(last['toy/ceiling'], np.log(16), places=5)
        self.assertGreater(last['toy/mi'], 1.0)
        self.assertGreater(last['toy/mi'], first['toy/mi'])
        self.assertGreater(last['toy/accuracy'], 5 * last['toy/chance'])
        self.assertGreater(last['heldout/toy/mi'], 1.0)
        self.assertAlmostEqual(
            last['heldout/toy/ceiling'], np.log(17), places=5
        )
        self.assertEqual('bert_nce/mi' in last, 'bert_nce' in objectives)


if __name__ == '__main__':
    absltest.main()
