"""The critics of docs/critic.md: one file, one line, and all else is there."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from absl.testing import parameterized

from tests import places

ROOT = pathlib.Path(__file__).parents[2]
PAIRS = '\n'.join(
    f'where does the {animal} sleep\tthe {animal} sleeps in the {place}'
    for animal in ('cat', 'dog', 'owl', 'fox')
    for place in ('barn', 'wood', 'house', 'tree')
)
# In a process: the package is a copy that has the critic NAME.
CODE = """
import pathlib
import numpy as np
import infoword_tf
from export import savedmodel, verify
from infoword_tf.evaluation import models

infoword_tf.train(
    pairs='pairs.tsv', objectives='simcse', encoder=ENCODER, size='tiny',
    steps=3, seq_len=16, batch_size=8, vocab_size=90, workdir='run',
    settings={'simcse.critic': NAME, **SETTINGS},
)
loaded = infoword_tf.load('run')
texts = ['where does the cat sleep', 'the owl sleeps in the tree', 'zebra']
states = loaded.encode(texts, pooling='mean')
queries, passages = (
    loaded.by_critic[NAME].encode(texts, role) for role in ('query', 'passage')
)
CHECKS
savedmodel.run(init='run', output='out')
if NAME == 'blend':  # a process, which knows no critic
    assert verify.run(init='run', model='out/1', texts=8)
scores = models.exported_scores(pathlib.Path('out/1'), 8)(texts[0], texts)
expected = queries @ passages.T
np.testing.assert_allclose(scores, expected[0], atol=1e-5)
card = pathlib.Path('out/MODEL_CARD.md').read_text()
assert CARD in card
assert f'embed_{NAME}_query' in card
print('all of it')
"""
OF_BLEND = """
queries, passages = queries.toarray(), passages.toarray()
size = len(loaded.tokenizer)
weights, vectors = passages[:, :size], passages[:, size:]
units = states / np.linalg.norm(states, axis=1, keepdims=True)
np.testing.assert_allclose(vectors, 0.5 * units, atol=1e-5)
assert (weights >= 0).all() and (weights > 0).any()
"""
OF_DISTANCE = """
form = loaded.model.objectives['simcse'].form
vectors = states @ form.layer.kernel.numpy()
gaps = vectors[:, None] - vectors
expected = -np.square(gaps).sum(axis=2)
np.testing.assert_allclose(queries @ passages.T, expected, atol=1e-5)
scores = form.scores(vectors, vectors[:2], None, None)
np.testing.assert_allclose(scores, expected[:, :2], atol=1e-5)
scores = form.paired(vectors[:2], vectors[1:], None)
np.testing.assert_allclose(scores, np.diag(expected, 1), atol=1e-5)
assert loaded.distance.encode([]).shape == (0, 6 + 2)
"""


class OwnCriticTest(places.Folder, parameterized.TestCase):
    @parameterized.parameters(
        ('blend', 'transformer', OF_BLEND, 'tokens, then numbers of a vector', {
            'simcse.share': 0.25, 'simcse.terms': 'tokens',
            'simcse.query_flops': 1e-3,
        }),
        ('distance', 'lookup', OF_DISTANCE, 'squared', {'simcse.map_width': 6}),
    )  # fmt: skip
    def test_it_is_one_file_and_one_line(
        self, name, encoder, checks, card, settings
    ):
        """Trains, loads, exports, and compares as the formula says."""
        page = (ROOT / 'docs/critic.md').read_text()
        files = re.findall(r'```python\n(.*?)```', page, re.DOTALL)
        (file,) = (x for x in files if f"    name = '{name}'\n" in x)
        (line,) = re.findall(rf"`('{name}': \w+,)`", page)
        for folder in ('infoword_tf', 'tasks', 'export'):
            shutil.copytree(ROOT / folder, self.folder / folder)
        critics = self.folder / 'infoword_tf/critics'
        (critics / f'{name}.py').write_text(file)
        table = (critics / '__init__.py').read_text()
        first = "    'cosine': SentenceCosine,\n"
        self.assertIn(first, table)
        table = table.replace(first, f'{first}    {line}\n')
        table = table.replace(
            'from infoword_tf.critics.cosine',
            f'from infoword_tf.critics.{name} import {line.split()[1][:-1]}\n'
            'from infoword_tf.critics.cosine',
        )
        (critics / '__init__.py').write_text(table)
        (self.folder / 'pairs.tsv').write_text(f'a\tb\n{PAIRS}\n')
        values = name, encoder, settings, card
        code = f'NAME, ENCODER, SETTINGS, CARD = {values!r}\n'
        code += CODE.replace('CHECKS', checks)
        done = subprocess.run(
            [sys.executable, '-c', code], cwd=self.folder,
            env={**os.environ, 'PYTHONPATH': str(self.folder)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn('all of it', done.stdout)
