"""Folders as people bring them: what their own libraries answer, we answer."""

import pathlib
import tempfile

import numpy as np
from absl.testing import parameterized

import infoword_tf
from tests.oracles import frozen, public_folders
from tests.oracles.public_folders import CASES, NOTHING, PAIRS, TEXTS

NEAR = 1e-5


def rows(array):
    """The rows of ids that `padded` was given."""
    return [row[row != NOTHING].tolist() for row in array]


class PublicFoldersTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.answers = frozen.read(frozen.FOLDER / 'public_folders.npz')
        cls.shapes, cls.saved = (
            public_folders.from_bytes(cls.answers.pop(name))
            for name in ('shapes', 'saved')
        )
        root = tempfile.TemporaryDirectory()
        cls.addClassCleanup(root.cleanup)
        cls.root = pathlib.Path(root.name)

    def loaded(self, case):
        """A case, and by name what its library answers."""
        folder = public_folders.write(
            self.root / case, case, self.shapes[case], self.saved.get(case)
        )
        answers = {
            name.partition('/')[2]: array
            for name, array in self.answers.items()
            if name.startswith(f'{case}/')
        }
        return infoword_tf.load(folder), answers

    @parameterized.parameters(
        *(case for case in CASES if CASES[case].modules is not None)
    )
    def test_ids_and_vectors(self, case):
        model, answers = self.loaded(case)
        ids, lengths, _ = model.laid_out(list(TEXTS))
        found = [
            row[:size].tolist()
            for row, size in zip(ids.numpy(), lengths.numpy(), strict=True)
        ]
        self.assertEqual(found, rows(answers['ids']))
        self.near(
            model.encode(TEXTS, progress=False), answers['vectors'], 'vectors'
        )
        for role, name in (('query', 'query'), ('passage', 'document')):
            if name in answers:
                prompt = model.config.prompt_for(role)
                vectors = model.encode(TEXTS, prompt=prompt, progress=False)
                self.near(vectors, answers[name], name)

    @parameterized.parameters(
        *(case for case in CASES if CASES[case].modules is None)
    )
    def test_ids_and_scores_of_pairs(self, case):
        model, answers = self.loaded(case)
        a, b = zip(*PAIRS, strict=True)
        ids, lengths, second = model.laid_out(list(a), list(b))
        self.assertEqual(
            [
                row[:size].tolist()
                for row, size in zip(ids.numpy(), lengths.numpy(), strict=True)
            ],
            rows(answers['pair_ids']),
        )
        scores = model.text_scores(list(a), list(b)).numpy()
        self.near(scores, answers['scores'], 'scores')

    def near(self, found, wanted, name):
        np.testing.assert_allclose(found, wanted, atol=NEAR, err_msg=name)
