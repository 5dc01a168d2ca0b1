"""First numbers of the vectors of an export, which has all of them.

That each command hands --dims on is in tests/test_flags.py.
"""

import numpy as np
from absl.testing import absltest

from export import search
from infoword_tf.evaluation import models
from tests import corpus, places
from tests.refused import refused
from tests.tasks import command, counting

DIMS = 5


class DimsTest(command.Checks, absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = places.make()
        _, heldout = corpus.write_topics(self.folder / 'text')
        with open(heldout) as file:
            texts = [line.strip() for line in file if len(line.split()) > 8]
        self.texts = texts[:40]

    def test_an_export_with_all_numbers(self):
        """Its vectors are cut, and of length 1 where the config says so."""
        path = self.folder / 'model' / '1'
        counting.save(path)
        counting.write_config(path, 'dot', normalize=True)
        whole, _ = models.exported(path, 2)
        few, _ = models.exported(path, 2, DIMS)
        vectors = whole(self.texts, None)[:, :DIMS]
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        expected = vectors / np.maximum(norms, 1e-12)  # some have none of these
        np.testing.assert_allclose(few(self.texts, None), expected, rtol=1e-6)
        with refused('dims_over_width', '--dims=65', '64'):
            models.exported(path, 2, 65)

    def test_search(self):
        """By the index of whole vectors, which stays as it is."""
        path = self.folder / 'model' / '1'
        counting.save(path)
        counting.write_config(path, 'dot', normalize=True)
        (self.folder / 'text.txt').write_text('\n\n'.join(self.texts))
        choices = (f'--model={path}', f'--corpus=text:{self.folder}/text.txt',
                 '--top_k=3', self.texts[0])  # fmt: skip
        command.run(search, *choices, words='queries')
        [folder] = path.parent.glob('search')
        before = [(x.name, x.stat().st_mtime_ns) for x in folder.glob('*')]
        done = command.run(search, *choices, '--dims=9', words='queries')
        self.assertEqual(done.status, 0, done.err)
        encode, _ = models.exported(path, 2, 9)
        vectors = encode(self.texts, None)
        scores = np.sort(vectors @ vectors[0])[::-1]
        actual = [line for line in done.out.splitlines() if 'text.txt' in line]
        for line, score in zip(actual, scores[:3], strict=True):
            self.assertStartsWith(line, f'  {score:.3f}  ')
        after = [(x.name, x.stat().st_mtime_ns) for x in folder.glob('*')]
        self.assertCountEqual(before, after)
        done = command.run(search, *choices, '--dims=65', words='queries')
        self.assert_refused(done, 'dims_over_width', '--dims=65', '64')
