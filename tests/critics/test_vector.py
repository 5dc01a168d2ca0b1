"""A critic of one vector a text; those of a page run in test_own.py."""

import functools
from types import SimpleNamespace
from unittest import mock

import numpy as np

from infoword_tf.critics.vector import HeadVectors, VectorCritic
from tests.objectives.eq1 import EagerCase

X = np.float32([[[1, 0], [3, 4], [4, 1], [9, 9]]])  # texts of 2 and 1, padding
HEAD = np.float32([[1, 0, 1], [0, 2, 1]])


class Turned(VectorCritic):
    """Queries are negative, passages twice as long."""

    @classmethod
    def side(cls, layer, vectors, role):
        return -vectors if role == 'query' else 2 * vectors


class VectorTest(EagerCase):
    def test_means_the_head_and_sides(self):
        """Means are 2 2 and 4 1, and of all three tokens 8/3 5/3."""
        critic, blocks = Turned(None, {}), np.int32([[0, 0, 1, 2]])
        critic.set_head(lambda x: x @ HEAD)
        texts = SimpleNamespace(view=SimpleNamespace(block_ids=blocks), slots=2)
        means = critic.pooled(None, texts, SimpleNamespace(states=X))
        (v,) = critic.finished(None, texts, means[None]).numpy()
        np.testing.assert_allclose(v, [[2, 4, 4], [4, 2, 5]], rtol=1e-6)
        a = np.float32([[1, 0, 1]])
        scores = critic.scores(a, v, None, None)
        np.testing.assert_allclose(scores, [[-12, -18]], rtol=1e-6)
        scores = critic.paired(a, v[1:], None)
        np.testing.assert_allclose(scores, [-18], rtol=1e-6)
        loaded = SimpleNamespace(
            critic=Turned, layer=critic.layer, states=lambda *_: X
        )
        loaded._of_means = functools.partial(HeadVectors._of_means, loaded)
        for role, factor in (('query', -1), ('passage', 2)):
            actual = HeadVectors.entries(loaded, blocks, np.int32([3]), role)[0]
            expected = factor * np.array([[8, 10, 13]]) / 3
            np.testing.assert_allclose(actual, expected, rtol=1e-6)

    def test_texts_and_tokenized_ones_alike(self):
        """Hands on the size of batches, and whether there is a bar."""
        both = mock.Mock(return_value=[HEAD[:1], HEAD])
        loaded = SimpleNamespace(_arrays=both, _arrays_of=both, width=3)
        loaded._joined = functools.partial(HeadVectors._joined, loaded)
        for encode in HeadVectors.encode, HeadVectors.encode_tokenized:
            actual = encode(loaded, X, 'query', 4, False)
            np.testing.assert_array_equal(actual, HEAD[[0, 0, 1]])
            both.assert_called_with(X, 'query', 4, False)
