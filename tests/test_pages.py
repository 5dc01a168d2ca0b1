"""The short Python of the pages, run on small workdirs, and what it gives.

That of docs/keras.md is a test of test_keras_models.py, of the README one of
tests/inference; the rest needs servers, or programs that are not installed.
"""

import contextlib
import importlib.util
import shutil

import numpy as np
from absl.testing import absltest, parameterized

import infoword_tf
from tests import pages, places
from tests.eager import eagerly
from tests.export import critics, workdirs

LABEL, TAG = {'label.classes': 2}, {'tag.classes': 3}
# By the name that pages give it, how a workdir is made.
WORKDIRS = {
    'books': {'layers': 2},
    'minilm': {'fields': {'prompts': {'query': 'ask '}}},
    'cross_encoder': {
        'rows': ('label',), 'settings': LABEL,
        'fields': {'labels': ('no', 'yes')},
    },
    'mails': {
        'rows': ('label',), 'settings': LABEL, 'fields': {'labels': ('a', 'b')},
    },
    'squad': {'rows': ('span',), 'max_length': 40},
    'names': {
        'rows': ('tag',), 'settings': TAG,
        'fields': {'labels': ('O', 'B-X', 'I-X')},
    },
    'colbert': {'rows': ('simcse',), **critics.KINDS['both']},
}  # fmt: skip
# By page, the number of a block: the workdir that it reads, or that blocks
# before it have read.
BLOCKS = {
    'serving': {0: 'books', 1: 'minilm', 2: 'colbert', 3: 'books'},
    'weights': {0: 'minilm', 1: 'cross_encoder', 2: 'colbert'},
    'finetune': {0: 'mails', 1: 'squad', 2: 'names'},
}


class EnginesTest(places.Folder, parameterized.TestCase):
    @parameterized.parameters('faiss', 'qdrant_client')
    def test_a_text_is_found(self, package):
        if importlib.util.find_spec(package) is None:
            self.skipTest(f'{package} is not installed')
        if package == 'faiss':
            shutil.copytree(workdirs.exported(), self.folder / 'models/books/1')
        else:
            path = self.folder / 'runs' / 'colbert'
            workdirs.write(path, **WORKDIRS['colbert'])
        (block,) = (
            x for x in pages.python_of('docs/serving.md')
            if f' {package}' in x and 'answers =' in x
        )  # fmt: skip
        names = {}
        with contextlib.chdir(self.folder), eagerly():
            exec(block, names)
        self.assertLen(names['answers'], 1)
        # A text is the best answer to itself.
        if package == 'faiss':
            vectors = names['vectors_of'](names['texts'])
            _, ids = names['index'].search(vectors, 1)
            self.assertEqual(ids[:, 0].tolist(), [0, 1])
            return
        several = names['model'].encode_tokens(names['texts'])
        scores = [[(a @ b.T).max(axis=1).sum() for b in several]
                  for a in [names['query'], *several]]  # fmt: skip
        for query, expected in zip([names['query'], *several], scores,
                                   strict=True):  # fmt: skip
            points = names['client'].query_points(
                'books', query=query.tolist(), limit=2
            ).points
            for point in points:
                self.assertAlmostEqual(
                    point.score, expected[point.id], places=4
                )
            self.assertEqual(points[0].id, np.argmax(expected))
        names['client'].close()


class DocumentsTest(places.Folder, absltest.TestCase):
    def test_blocks_run_to_their_ends(self):
        for name, options in WORKDIRS.items():
            workdirs.write(self.folder / 'runs' / name, **options)
        names = {}
        with contextlib.chdir(self.folder), eagerly():
            for page, numbers in BLOCKS.items():
                blocks = pages.python_of(f'docs/{page}.md')
                for number, name in numbers.items():
                    model = infoword_tf.load(f'runs/{name}')
                    of_block = {'model': model, 'infoword_tf': infoword_tf}
                    with contextlib.redirect_stdout(None):
                        exec(blocks[number], of_block)
                    names[page, number] = of_block
        first, second = (names['serving', 0][x] for x in ('first', 'second'))
        self.assertEqual(first.shape, second.shape)
        self.assertEqual(names['serving', 2]['scores'].shape, (1, 2))
        words, vectors = (names['serving', 3][x] for x in ('words', 'vectors'))
        self.assertLen(vectors, len(words))
        model = names['weights', 0]['model']
        np.testing.assert_allclose(
            names['weights', 0]['questions'],
            model.encode(['ask how tall is it'], prompt=''), atol=1e-6,
        )  # fmt: skip
        odds, scores = (names['weights', 1][x] for x in ('odds', 'scores'))
        self.assertEqual((odds.shape, scores.shape), ((1, 2), (1, 2)))
        width = critics.LATE.dense[-1].width
        self.assertEqual(names['weights', 2]['passages'][0].shape[1], width)
        self.assertEqual(names['finetune', 0]['probabilities'].shape, (1, 2))
        self.assertLen(names['finetune', 2]['words'][0], 4)
