"""The critic of docs/critic.md: one file, one line, and all else is there."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from absl.testing import absltest

from tests import places

ROOT = pathlib.Path(__file__).parents[2]
PAIRS = '\n'.join(
    f'where does the {animal} sleep\tthe {animal} sleeps in the {place}'
    for animal in ('cat', 'dog', 'owl', 'fox')
    for place in ('barn', 'wood', 'house', 'tree')
)
# In a process: the package is a copy that has the critic.
CODE = """
import pathlib
import numpy as np
import infoword_tf
from export import savedmodel, verify

infoword_tf.train(
    pairs='pairs.tsv', objectives='simcse', encoder='transformer', size='tiny',
    steps=3, seq_len=16, batch_size=8, vocab_size=90, workdir='run',
    settings={
        'simcse.critic': 'blend', 'simcse.share': 0.25,
        'simcse.terms': 'tokens', 'simcse.query_flops': 1e-3,
    },
)
loaded = infoword_tf.load('run')
texts = ['where does the cat sleep', 'the owl sleeps in the tree', 'zebra']
both = loaded.by_critic['blend'].encode(texts).toarray()
size = len(loaded.tokenizer)
weights, vectors = both[:, :size], both[:, size:]
states = loaded.encode(texts, pooling='mean')
units = states / np.linalg.norm(states, axis=1, keepdims=True)
np.testing.assert_allclose(vectors, 0.5 * units, atol=1e-5)
assert (weights >= 0).all() and (weights > 0).any()
savedmodel.run(init='run', output='out')
assert verify.run(init='run', model='out/1', texts=8)
card = pathlib.Path('out/MODEL_CARD.md').read_text()
assert 'tokens, then numbers of a vector' in card
assert 'embed_blend_query' in card
print('all of it')
"""


class OwnCriticTest(places.Folder, absltest.TestCase):
    def test_it_is_one_file_and_one_line(self):
        """Trains, loads, exports, and compares as the formula says."""
        page = (ROOT / 'docs/critic.md').read_text()
        (file,) = re.findall(r'```python\n(.*?)```', page, re.DOTALL)
        (line,) = re.findall(r"`('blend': \w+,)`", page)
        for name in ('infoword_tf', 'tasks', 'export'):
            shutil.copytree(ROOT / name, self.folder / name)
        critics = self.folder / 'infoword_tf/critics'
        (critics / 'blend.py').write_text(file)
        table = (critics / '__init__.py').read_text()
        first = "    'cosine': SentenceCosine,\n"
        self.assertIn(first, table)
        table = table.replace(first, f'{first}    {line}\n')
        end = '\n__all__'
        table = table.replace(
            'from infoword_tf.critics.cosine',
            'from infoword_tf.critics.blend import BlendCritic\n'
            'from infoword_tf.critics.cosine',
        )
        self.assertIn(end, table)
        (critics / '__init__.py').write_text(table)
        (self.folder / 'pairs.tsv').write_text(f'a\tb\n{PAIRS}\n')
        done = subprocess.run(
            [sys.executable, '-c', CODE], cwd=self.folder,
            env={**os.environ, 'PYTHONPATH': str(self.folder)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn('all of it', done.stdout)


if __name__ == '__main__':
    absltest.main()
