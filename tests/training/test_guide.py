"""Numbers of guides and judges, kept in the cache by all that makes them."""

import shutil
from unittest import mock

import numpy as np

from infoword_tf import choices
from infoword_tf.files import read_tensors, write_tensors
from infoword_tf.training import begin, guide
from tests import places
from tests.export import critics, workdirs
from tests.objectives.eq1 import EagerCase

TEXTS = [['names', 'a class'], ['a name', 'type'], ['', 'a list']]


class GuideTest(EagerCase):
    def setUp(self):
        super().setUp()
        self.folder = places.make(self.addCleanup)

    def test_vectors_have_the_prompts_of_their_roles(self):
        prompts = {'query': 'ask ', 'passage': 'find '}
        workdir = workdirs.write(
            self.folder / 'guide', ('ict',), encoder='lookup', width=16,
            fields={'prompts': prompts},
        )  # fmt: skip
        folders = begin.guides_of(choices.RunChoices(settings={
            'simcse.guide': str(workdir), 'simcse.head': 'none',
            'diffcse.guide': '',
        }))  # fmt: skip
        opened = guide.open_guides(folders)
        self.assertEqual(list(opened), ['simcse.guide'])
        opened = opened['simcse.guide']
        expected = np.zeros((2, 3, 16))
        for k, prompt in enumerate(('query', 'passage', 'passage')):
            expected[:, k] = opened.loaded.encode(
                TEXTS[k], normalize=True, progress=False, prompt=prompt
            )
        expected[0, 2] = 0.0
        for times in (1, 0):  # then from the cache
            with mock.patch.object(
                opened.loaded, 'encode', wraps=opened.loaded.encode
            ) as encode:
                actual = opened.numbers(TEXTS)
            self.assertEqual(encode.call_count, 3 * times)
            self.assertEqual(actual.dtype, 'float16')
            np.testing.assert_allclose(actual, expected, atol=1e-3)
        others = self.folder / 'others'  # weights, all else the same
        shutil.copytree(workdir, others)
        tensors = read_tensors(workdir / 'weights.safetensors')
        name = 'encoder/word_embeddings'
        moved = {**tensors, name: tensors[name][::-1]}
        write_tensors(others / 'weights.safetensors', moved)
        actual = guide.Guide(str(others)).numbers(TEXTS)
        self.assertGreater(np.abs(actual - expected).max(), 0.01)

    def test_a_judge_scores_the_first_text_with_each(self):
        judge = guide.Judge(str(critics.workdir('pairs_bare')))
        of_a, of_c = (
            judge.loaded.score_pairs(TEXTS[0], TEXTS[k]) for k in (1, 2)
        )
        expected = [[0, of_a[0], 0], [0, of_a[1], of_c[1]]]
        actual = judge.numbers(TEXTS)
        self.assertEqual(actual.dtype, 'float32')
        self.assertEqual(actual.shape, (2, 3, 1))
        np.testing.assert_allclose(actual[..., 0], expected, atol=1e-5)
