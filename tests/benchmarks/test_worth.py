"""What encoders are worth: rates, seeds and means of made-up scores."""

import json
import pathlib
from unittest import mock

from absl.testing import absltest

from benchmarks import kept, vectors, worth

METRICS = {  # GLUE's own, Wang et al. 2019, table 1
    'sst-2': 'accuracy',
    'cola': 'matthews',
    'mrpc': 'f1',
    'qnli': 'accuracy',
    'sts-b': 'spearman',
}
SCORES = {1e-4: 0.5, 3e-4: 0.75, 1e-3: 0.625}  # by learning rate


def run(module, log, *given):
    """Made-up scores of a command of tasks/."""
    given = dict(flag[2:].split('=') for flag in given if '=' in flag)
    folder = pathlib.Path(given['workdir'])
    seeds = int(given.get('seeds', 1))
    for seed in range(seeds):
        place = folder / f'seed={seed}' if seeds > 1 else folder
        place.mkdir(parents=True)
        score = SCORES[float(given['learning_rate'])] if given.get(
            'learning_rate') else 0.0  # fmt: skip
        metric = METRICS.get(given.get('task'))
        found = {'f1': 40.0, 'tests': {'EN-WS-353-ALL': {'spearman': 30.0}}}
        if metric and seeds > 1:
            row = 'score' if given['task'] == 'sts-b' else 'label'
            found[f'heldout/{row}/{metric}'] = score + seed / 10
        elif metric:
            found[metric] = score
        (place / 'metrics.json').write_text(json.dumps(found))
    (folder / 'metrics.json').write_text(json.dumps(found))
    (folder / 'given.json').write_text(json.dumps(given))


def judged(workdir, pooling=None):
    """Means are best where texts are similar, [CLS] where they are sought."""
    del workdir
    sts = {None: 40.0, 'mean': 60.0, 'first_last': 50.0}[pooling]
    return {vectors.MEAN: sts, vectors.SEARCH: 0.2 if pooling else 0.9}


class WorthTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.workdir = pathlib.Path(self.create_tempdir().full_path)
        self.enterContext(mock.patch.object(kept, 'run', run))
        self.enterContext(mock.patch.object(vectors, 'judged', judged))

    def given(self, name):
        return json.loads((self.workdir / name / 'given.json').read_text())

    def test_measured(self):
        found = worth.measured(self.workdir)
        # The best rate of the short task is every task's.
        self.assertAlmostEqual(found['learning rate x 1e4'], 3)
        self.assertEqual(self.given('rate_0.0001')['task'], 'sst-2')
        self.assertEqual(self.given('cola')['learning_rate'], '0.0003')
        self.assertEqual(self.given('squad')['learning_rate'], '0.0003')
        for name in (worth.TUNED, *worth.TASKS):
            for one, wanted in zip(found[name], (75, 85, 95), strict=True):
                self.assertAlmostEqual(one, wanted, msg=name)
        # Vectors by the pooling that people's judgements of pairs agree with.
        self.assertEqual(found[vectors.MEAN], 60)
        self.assertAlmostEqual(found[vectors.SEARCH], 20)
        self.assertAlmostEqual(found[worth.VECTORS], 40)
        self.assertEqual(found['SQuAD F1'], 40)
        self.assertEqual(found['WS-353'], 30)
        # Two looks at the dev set at least: 10,000 texts twice, 32 at a time.
        self.assertEqual(self.given('sst-2')['eval_every'], '313')

    def test_screened(self):
        with mock.patch.dict(SCORES, {worth.SHORT_RATE: 0.7}):
            found = worth.screened(self.workdir)
        self.assertEqual(found[worth.TUNED], [70])
        self.assertEqual(list(found)[1:4], list(worth.SHORT_TASKS))
        self.assertEqual(self.given('short_mrpc')['task'], 'mrpc')


if __name__ == '__main__':
    absltest.main()
