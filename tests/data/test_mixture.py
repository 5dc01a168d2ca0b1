"""Texts of several languages: which of them each update reads."""


import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf.data.batches import Batches, open_sources
from infoword_tf.data.mixture import (
    FILES,
    LANGUAGES,
    TRANSLATIONS,
    MixedSource,
    Mixture,
    Turns,
    apportion,
    as_drawn,
    mixed,
    shares,
)
from infoword_tf.data.source import WindowSource
from infoword_tf.data.streams import StreamSource
from infoword_tf.data.words import WordSource
from infoword_tf.resolve import ModelChoices, resolve
from tests import zoo
from tests.near import near, same
from tests.refused import refused


def store(language, documents=60):
    """Text whose pieces say which language it is of."""
    actual = zoo.make_store(seed=language, documents=documents)
    ids = zoo.of_kind(actual.ids.astype(np.int32), language, 3)
    ids = np.where(actual.ids == zoo.SEP, zoo.SEP, ids).astype(np.uint16)
    counts = np.bincount(ids[ids != zoo.SEP], minlength=zoo.V)
    return actual._replace(ids=ids, counts=counts)


def mixture(exponent=0.7):
    sizes = {'aa': 200, 'bb': 60, 'cc': 25}
    return Mixture(
        {k: store(i, n) for i, (k, n) in enumerate(sizes.items())}, exponent
    )


def languages_of(ids):
    """Which languages pieces are of."""
    ids = np.unique(ids)
    return set(((ids[ids >= zoo.FIRST] - zoo.FIRST) % 3).tolist())


class SharesTest(parameterized.TestCase):
    def test_of_an_exponent(self):
        near(shares([1, 3], 1.0), [0.25, 0.75])
        near(shares([1, 9], 0.5), [0.25, 0.75])
        near(shares([1, 900], 0.0), [0.5, 0.5])

    @parameterized.parameters(8, 100, 1023)
    def test_parted_to_the_last(self, total):
        expected_counts = shares([5, 1000, 40, 900], 0.7)
        actual = apportion(total, expected_counts)
        self.assertEqual(actual.sum(), total)
        self.assertGreaterEqual(actual.min(), 1)
        self.assertLess(np.abs(actual - total * expected_counts).max(), 4)

    def test_the_rarest_has_a_turn(self):
        actual = apportion(10, np.array([0.999, 0.0005, 0.0005]))
        same(actual, [8, 1, 1])


class TurnsTest(absltest.TestCase):
    def test_each_round_has_all(self):
        turns = Turns(np.array([3, 1, 6]), 2, FILES)
        for number in range(3):
            part, turn = zip(
                *(turns.turn(10 * number + i) for i in range(10)), strict=True
            )
            same(np.bincount(part), [3, 1, 6])
            for this, count in enumerate([3, 1, 6]):
                mine = [o for p, o in zip(part, turn, strict=True) if p == this]
                first = number * count
                self.assertEqual(mine, [*range(first, first + count)])

    def test_rounds_and_seeds_differ(self):
        orders = {
            tuple(Turns(np.array([8, 8]), seed, what).turn(16 * n + i)[0]
                  for i in range(16))
            for seed in (0, 1) for n in (0, 1)
            for what in (LANGUAGES, TRANSLATIONS)
        }  # fmt: skip
        self.assertLen(orders, 8)


class MixedTest(parameterized.TestCase):
    def test_what_a_language_is_read_of_is_as_alone(self):
        text = mixture()
        source = mixed(WindowSource, text, 4, 5, length=10)
        for number, one in enumerate(text.stores.values()):
            alone = WindowSource(one, 10, 4, seed=5 + number)
            steps = [s for s in range(60) if source.turns.turn(s)[0] == number]
            for turn, step in enumerate(steps):
                same(source.batch(step).ids, alone.batch(turn).ids)

    def test_parts_come_by_their_weights(self):
        """The largest seldom, in 1,024 updates exactly; counts likewise."""
        text = mixture()._replace(weights={'bb': 6, 'aa': 1.0, 'cc': 3})
        near(text.shares, [0.1, 0.6, 0.3])
        source = mixed(WindowSource, text, 4, 0, length=10)
        seen = np.bincount([source.turns.turn(s)[0] for s in range(1024)])
        near(seen, 1024 * text.shares, atol=2)
        kind = (np.arange(zoo.V) - zoo.FIRST) % 3
        real = np.arange(zoo.V) >= zoo.FIRST
        drawn = [text.counts[real & (kind == k)].sum() for k in range(3)]
        near(drawn / np.sum(drawn), text.shares, rtol=0.01)

    @parameterized.parameters(
        'mlm', 'nsp', 'ict', 'simcse', 'skip_gram', 'gpt', 'plm', 'nsp_nce'
    )
    def test_every_source_keeps_one_shape(self, row):
        """Whatever the language of an update."""
        choices = ModelChoices(objectives=row, seq_len=24, batch_size=6)
        plan = resolve(choices).plan
        sources = open_sources(mixture(), plan, 6, 0)
        batches = Batches(sources, plan, zoo.SPECIALS, 0)
        shapes, read = set(), set()
        for step in range(12):
            flat = {
                f'{name}/{field}': np.shape(x)
                for name, view in batches.views(step).items()
                for field, x in view._asdict().items()
                if x is not None and not isinstance(x, dict)
            }
            shapes.add(tuple(sorted(flat.items())))
            for view in batches.views(step).values():
                read |= languages_of(view.ids)
        self.assertLen(shapes, 1)
        self.assertEqual(read, {0, 1, 2})

    def test_rows_that_go_on_are_of_one_language(self):
        source = mixed(StreamSource, mixture(), 8, 0, length=10)
        self.assertNotIsInstance(source, MixedSource)
        batches = [source.batch(step) for step in range(6)]
        for row in range(8):
            ids = np.concatenate([batch.ids[row] for batch in batches])
            self.assertLen(languages_of(ids), 1)
        for before, after in zip(batches[:-1], batches[1:], strict=True):
            same(before.following, after.ids[:, 0])
        every = [languages_of(batches[0].ids[row]).pop() for row in range(8)]
        same(np.bincount(every), apportion(8, mixture().shares))

    def test_too_few_rows_for_all(self):
        id = 'few_sequences_for_languages'
        with refused(id, '2 sequences', '3 languages', '--batch_size'):
            mixed(StreamSource, mixture(), 2, 0, length=10)
        with refused(id, '4 sequences', '3 languages', ' 2;'):
            mixed(StreamSource, mixture(), 4, 0, length=10,
                  both_directions=True)  # fmt: skip

    def test_a_language_of_too_little_text(self):
        text = mixture()
        few = {**text.stores, 'cc': store(2, 1)}
        with refused('few_windows', 'cc: '):
            mixed(WindowSource, text._replace(stores=few), 64, 0, length=20)

    def test_counts_are_as_drawn(self):
        # 1001 pieces, of which a ten-thousandth is none, but what occurs is.
        drawn = as_drawn(np.array([[1000, 0, 0], [0, 1, 0]]), [0.9999, 0.0001])
        self.assertEqual(drawn.tolist(), [1001, 1, 0])

    def test_words_are_dropped_by_the_counts_of_all(self):
        """A word of one language is as rare as in the mixture, not in its own.

        Mikolov et al. 2013, in word2vec.c: sqrt(t / f) + t / f of the words
        are kept, f being their share.
        """
        text, t = mixture(), 0.01
        sources = text.sources(
            WordSource, [4] * 3, 0, length=10, subsample=t, negatives=3
        )
        counts = np.where(np.arange(zoo.V) == zoo.UNK, 0, text.counts)
        share = t * counts.sum() / np.maximum(counts, 1)
        expected = np.minimum(np.sqrt(share) + share, 1) * (counts > 0)
        for source, turn in zip(sources, text.stores.values(), strict=True):
            near(source.keep, expected, rtol=1e-6)
            # As many as it has, for the length of passages.
            size = source.store.counts.sum()
            self.assertAlmostEqual(size, turn.counts.sum(), delta=1e-6)
