"""Workdirs made of another one, beside the weights that they are made of."""

import numpy as np
from absl.testing import absltest

import infoword_tf
from infoword_tf.inference import variants
from tests import places
from tests.eager import eagerly
from tests.export import workdirs

TEXTS = ['a list of names', '', 'x']


class FoldedWeightsTest(places.Folder, absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(eagerly())

    def test_weights_of_tokens_are_in_the_table(self):
        loaded = infoword_tf.load(workdirs.write(
            self.folder / 'run', ('ict',), encoder='lookup',
            pooling='weighted', arguments={'weighted': True},
        ))  # fmt: skip
        old = {k: v.numpy() for k, v in loaded.model.variables.items()}
        weights = old.pop('encoder/piece_weights')
        self.assertGreater(np.ptp(weights), 0.1)
        folded = loaded.folded
        actual = {k: v.numpy() for k, v in folded.model.variables.items()}
        self.assertEqual(set(actual), set(old))
        table = 'encoder/word_embeddings'
        expected = old | {table: old[table] * weights[:, None]}
        for path, value in expected.items():
            np.testing.assert_array_equal(actual[path], value, path)
        np.testing.assert_allclose(
            folded.encode(TEXTS), loaded.encode(TEXTS), atol=1e-6
        )
        tokens = loaded.tokenizer.tokenize(TEXTS)
        means = [
            expected[table][[*loaded.before, *ids, *loaded.after]].mean(axis=0)
            for ids in tokens.to_list()
        ]
        np.testing.assert_allclose(
            loaded.embed_tokens(tokens), means, atol=1e-6
        )
        self.assertIs(variants.folded(folded.workdir), folded.workdir)
