"""Pairs of text: where they are cut, what the other ones are."""


import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from infoword_tf.data import pairs
from tests.chances import assert_share, assert_shares
from tests.data.test_passages import make_store


def pieces(text):
    """For each row A, B as lists of piece ids."""
    for row in range(len(text.ids)):
        a, b = text.firsts[row], text.seconds[row]
        ids = text.ids[row].tolist()
        yield ids[:a], ids[a + 1 : a + 1 + b]


class PairsTest(parameterized.TestCase):
    def checked(self, store, text):
        """Yields A, B and whether B is the next text, of pairs that are right.

        Each is of one text in its order; half of the texts are another's.
        """
        for (a, b), label in zip(
            pieces(text), text.labels.tolist(), strict=True
        ):
            for piece in (a, b):
                self.assertEqual(piece, [*range(piece[0], piece[-1] + 1)])
            same = document_of(store, a[0]) == document_of(store, b[0])
            self.assertEqual(same, label == 0)
            yield a, b, same


def random_store(seed, documents=40, longest=12):
    """Documents of one to nine sentences; token i is piece i, [SEP] is 0."""
    random = np.random.default_rng(seed)
    return make_store([
        random.integers(1, longest + 1, random.integers(1, 10)).tolist()
        for _ in range(documents)
    ])  # fmt: skip


def document_of(store, piece):
    return np.searchsorted(store.documents, piece, 'right') - 1


def plain_part(source, number, u, v, w, target):
    """`_part` of one pair, token by token."""
    store, room = source.store, source.length - 1
    which = max(i for i, n in enumerate(source.numbers) if n <= number)
    visits = source.numbers[which + 1] - source.numbers[which]
    document = source.documents[which]
    begin, stop = store.documents[document], store.documents[document + 1] - 1
    starts = [i for i in range(begin, stop) if store.flags[i] & 2]
    place = begin
    if visits > 1:
        share = (number - source.numbers[which] + u) / visits
        place += int(share * (stop - begin - room // 2))
    number = max(i for i, start in enumerate(starts) if start <= place)
    sentences = starts[min(number, len(starts) - 2) :]
    enough = room if w >= pairs.SHORT_SHARE else 2 + int(target * (room - 1))
    end = next((i for i in sentences if i >= sentences[0] + enough), stop)
    if end <= sentences[1]:
        end = [*sentences, stop][2]
    middles = [i for i in sentences[1:] if i < end]
    return sentences[0], middles[int(v * len(middles))], end


class PartTest(parameterized.TestCase):
    @parameterized.product(
        room=(2, 7, 29, 125), longest=(1, 12, 200), seed=(0, 1)
    )
    def test_as_written_plainly(self, room, longest, seed):
        """Sentences shorter and longer than what is looked at at once."""
        store = random_store(seed, longest=longest)
        source = pairs.PairSource(store, room + 1, 4, seed=0)
        number = np.random.default_rng(2).integers(0, source.numbers[-1], 300)
        actual = source._spans(number, np.random.default_rng(3))
        drawn = np.random.default_rng(3).random((4, 300))
        expected = [
            plain_part(source, *arguments)
            for arguments in zip(number, *drawn, strict=True)
        ]
        np.testing.assert_array_equal(np.transpose(actual), expected)

    def test_visits(self):
        """Visits 2, 10 and 11 of R = 10 tokens; one sentence is left out."""
        store = make_store([[1, 1], [20], [5, 5], [5, 6]])
        source = pairs.PairSource(store, 11, 2, seed=0)
        self.assertEqual(source.single, 1)
        np.testing.assert_array_equal(source.documents, [0, 2, 3])
        np.testing.assert_array_equal(source.numbers, [0, 1, 2, 4])


class CutTest(parameterized.TestCase):
    @parameterized.parameters(2, 3, 8, 13)
    def test_as_token_by_token(self, room):
        for a in range(1, 20):
            for b in range(1, 20):
                x, y = a, b
                while x + y > room:
                    if x > y:
                        x -= 1
                    else:
                        y -= 1
                np.testing.assert_array_equal(
                    pairs.cut_lengths(np.array([a]), np.array([b]), room),
                    [[x], [y]],
                )

    def test_tokens_go_at_either_end_alike(self):
        """A of 3 tokens stays, B of 40 keeps 16 that follow each other."""
        store = make_store([[3, 40]] * 40)
        source = pairs.NextPairSource(store, 20, 40, seed=0)
        gone = []
        for step in range(50):
            for a, b in pieces(source.batch(step)):
                self.assertLen(b, 16)
                self.assertEqual(b, list(range(b[0], b[0] + 16)))
                self.assertEqual(a, list(range(a[0], a[0] + 3)))
                gone.append(b[0] - a[-1] - 1)
        self.assertBetween(min(gone), 0, 8)
        self.assertBetween(max(gone), 16, 24)
        expected = stats.binom(24, 0.5)
        self.assertAlmostEqual(np.mean(gone), 12, delta=0.3)
        self.assertAlmostEqual(np.var(gone), expected.var(), delta=0.6)


class PairSourceTest(PairsTest):
    def test_a_batch_written_out(self):
        """Two documents of two sentences: there are four possible rows."""
        store = make_store([[2, 3], [4], [1, 2]])
        source = pairs.PairSource(store, 8, 2, seed=0)
        rows = {
            (0, 0): [0, 1, 0, 2, 3, 4, 0, 0],
            (0, 1): [0, 1, 0, 12, 13, 0, 0, 0],
            (11, 0): [11, 0, 12, 13, 0, 0, 0, 0],
            (11, 1): [11, 0, 2, 3, 4, 0, 0, 0],
        }
        seen = set()
        for step in range(20):
            text = source.batch(step)
            for row in range(2):
                key = int(text.ids[row, 0]), int(text.labels[row])
                seen.add(key)
                np.testing.assert_array_equal(text.ids[row], rows[key])
                a, b = {(0, 0): (2, 3), (0, 1): (2, 2),
                        (11, 0): (1, 2), (11, 1): (1, 3)}[key]  # fmt: skip
                self.assertEqual((text.firsts[row], text.seconds[row]), (a, b))
                column = np.arange(8)
                np.testing.assert_array_equal(
                    text.separators[row], (column == a) | (column > a + b)
                )
                self.assertTrue(text.word_starts[row].all())
        self.assertEqual(seen, set(rows))
        self.assertIsNone(text.negatives)
        for array in (text.ids, text.firsts, text.seconds, text.labels):
            self.assertEqual(array.dtype, np.int32)

    @parameterized.parameters((0, 12, 30), (1, 50, 126), (2, 90, 30))
    def test_labels(self, seed, longest, length):
        store = random_store(seed, 60, longest)
        source = pairs.PairSource(store, length, 16, seed)
        labels, cut = [], 0
        for step in range(120):
            text = source.batch(step)
            labels += text.labels.tolist()
            self.assertLessEqual((text.firsts + text.seconds).max(), length - 1)
            self.assertTrue((np.minimum(text.firsts, text.seconds) > 0).all())
            for a, b, same in self.checked(store, text):
                if same and len(a) + len(b) < length - 1:
                    self.assertEqual(b[0], a[-1] + 1)
                    self.assertTrue(store.flags[b[0]] & 2)
                elif same:
                    self.assertGreater(b[0], a[-1])
                    cut += 1
        self.assertGreater(cut, 0)
        assert_share(sum(labels), len(labels))

    def test_others_are_of_all_other_documents_alike(self):
        """Documents of one length, so that length chooses nothing."""
        store = make_store([[2, 3]] * 12)
        source = pairs.PairSource(store, 20, 12, seed=0)
        counts = np.zeros((12, 12), int)
        rows = np.arange(12)
        for step in range(300):
            text = source.batch(step)
            b = text.ids[rows, text.firsts + 1]
            np.add.at(counts, (text.ids[:, 0] // 6, b // 6), 1)
        others = counts[~np.eye(12, dtype=bool)]
        assert_shares(others)
        self.assertGreater(counts.diagonal().min(), 100)

    def test_others_are_as_long_as_the_true_ones(self):
        """B has 9 tokens or 10, and with 10 a pair fills its sequence."""
        store = make_store([[9, 9], [9, 10]] * 20)
        text = pairs.NextPairSource(store, 20, 20, seed=0).batch(0)
        self.assertEqual({*text.seconds.tolist()}, {9, 10})
        np.testing.assert_array_equal(
            text.negatives.seconds, np.repeat(text.seconds, 3)
        )

    @parameterized.parameters(30, 126)
    def test_others_have_about_the_length_of_the_true_ones(self, length):
        """Lengths alone tell random pairs from true ones badly."""
        store = random_store(3, 300, 25)
        source = pairs.PairSource(store, length, 64, seed=0)
        sizes = {0: [], 1: []}
        for step in range(60):
            text = source.batch(step)
            for label in (0, 1):
                here = text.labels == label
                sizes[label] += (text.firsts + text.seconds)[here].tolist()
        full = [np.mean(np.array(x) == length - 1) for x in sizes.values()]
        self.assertAlmostEqual(full[0], full[1], delta=0.06)
        # Shares of a rule "shorter than this": far apart where it is seen.
        distance = stats.ks_2samp(sizes[0], sizes[1]).statistic
        self.assertLess(distance, 0.08)

    def test_a_piece_cut_inside_a_word_begins_with_a_word(self):
        store = make_store([[3, 40]] * 8)
        flags = np.array(store.flags)
        flags[1::2] &= ~np.uint8(1)
        flags |= (flags & 2) >> 1
        source = pairs.PairSource(store._replace(flags=flags), 20, 8, seed=0)
        text = source.batch(0)
        rows = np.arange(8)
        self.assertTrue(text.word_starts[:, 0].all())
        self.assertTrue(text.word_starts[rows, text.firsts + 1].all())
        self.assertTrue(text.word_starts[text.separators].all())
        inside = ~text.separators & ~text.word_starts
        self.assertBetween(inside.sum(axis=1).min(), 7, 12)


class SharedRowsTest(parameterized.TestCase):
    def test_written_out(self):
        """Best fit: 3 goes to 7, not to 5; what fits nowhere is cut."""
        row, sizes = pairs.share_sequences(np.array([3, 5, 7, 2]), 2, 3, 10)
        np.testing.assert_array_equal(row, [0, 1, 0, 1])
        np.testing.assert_array_equal(sizes, [3, 5, 7, 2])
        row, sizes = pairs.share_sequences(np.array([9, 8, 6, 5]), 2, 2, 10)
        np.testing.assert_array_equal(row, [0, 1, 1, 0])
        np.testing.assert_array_equal(sizes, [5, 5, 5, 5])
        row, sizes = pairs.share_sequences(np.array([9, 3]), 1, 2, 10)
        np.testing.assert_array_equal(row, [0, 0])
        np.testing.assert_array_equal(sizes, [7, 3])
        # A row that has all the pairs it may have takes no more.
        row, _ = pairs.share_sequences(np.array([8, 4, 2, 2]), 2, 2, 10)
        np.testing.assert_array_equal(row, [0, 1, 0, 1])
        row, _ = pairs.share_sequences(np.ones(8, int), 2, 4, 10)
        np.testing.assert_array_equal(np.bincount(row), [4, 4])

    @parameterized.product(
        rows=(1, 5, 32), share=(1.0, 1.7, 3.0), seed=(0, 1, 2)
    )
    def test_rows_hold_what_they_get(self, rows, share, seed):
        random = np.random.default_rng(seed)
        slots, room = 4, 60
        before = random.integers(5, room + 1, int(rows * share))
        row, sizes = pairs.share_sequences(before, rows, slots, room)
        self.assertEqual(set(row.tolist()), set(range(rows)))
        self.assertLessEqual(np.bincount(row).max(), slots)
        self.assertLessEqual(np.bincount(row, sizes).max(), room)
        self.assertTrue((sizes <= before).all())
        self.assertGreaterEqual(sizes.min(), pairs.SHORTEST)
        for number in range(rows):  # no more is cut than must be
            is_here = row == number
            lost = before[is_here].sum() - sizes[is_here].sum()
            if lost:
                self.assertGreater(sizes[is_here].sum(), room - is_here.sum())


class PackedPairsTest(PairsTest):
    def source(self, seed=0, store=None, length=62, batch=16):
        store = random_store(7, 300, 8) if store is None else store
        return pairs.PairSource(store, length, batch, seed, packed=True)

    def test_rows_are_full(self):
        source, shares = self.source(), []
        self.assertGreater(source.pairs, 1.3 * 16)
        for step in range(40):
            text = source.batch(step)
            self.assertEqual(text.slots.shape, (16, source.slots))
            self.assertEqual(text.slots.sum(), source.pairs)
            self.assertLen(text.ids, source.pairs)
            used = text.tokens + 3 * text.slots.sum(axis=1)
            self.assertLessEqual(used.max(), 64)
            self.assertTrue(text.slots[:, 0].all())
            shares.append(used.mean() / 64)
        self.assertBetween(np.mean(shares), 0.85, 0.95)

    def test_pairs_are_pairs(self):
        source = self.source()
        labels, sizes = [], []
        for step in range(60):
            for a, b, same in self.checked(source.store, source.batch(step)):
                labels.append(not same)
                sizes.append(len(a) + len(b))
        labels, sizes = np.array(labels), np.array(sizes)
        assert_share(labels.sum(), len(labels))
        distance = stats.ks_2samp(sizes[labels > 0], sizes[labels == 0])
        self.assertLess(distance.statistic, 0.1)

    @parameterized.parameters(2, 3)
    def test_long_pairs_stay_alone(self, batch):
        """A pair that fills a row leaves room for none."""
        source = self.source(
            store=random_store(1, 40, 90), length=30, batch=batch
        )
        self.assertEqual(source.pairs, batch)

    def test_little_text(self):
        """No more pairs are in a batch than there are."""
        source = self.source(store=make_store([[2, 3]] * 5), length=62, batch=4)
        self.assertEqual(source.pairs, 5)
        self.assertEqual(source.batch(0).slots.sum(), 5)


class NextPairSourceTest(absltest.TestCase):
    def test_negatives(self):
        store = random_store(5, 60)
        source = pairs.NextPairSource(store, 40, 8, seed=0)
        for step in range(40):
            text = source.batch(step)
            self.assertEqual(text.negatives.ids.shape, (24, 40))
            np.testing.assert_array_equal(text.labels, 0)
            np.testing.assert_array_equal(text.negatives.labels, 1)
            self.assertIsNone(text.negatives.negatives)
            true = [x for x in pieces(text) for _ in range(3)]
            for (a, b), (c, d) in zip(
                true, pieces(text.negatives), strict=True
            ):
                is_here = document_of(store, a[0])
                self.assertEqual(document_of(store, b[0]), is_here)
                self.assertEqual(document_of(store, c[0]), is_here)
                self.assertNotEqual(document_of(store, d[0]), is_here)
                if len(a) + len(b) < 39 and len(c) + len(d) < 39:
                    self.assertEqual(a, c)
                else:  # the same piece, cut elsewhere
                    first, last = max(a[0], c[0]), min(a[-1], c[-1])
                    self.assertLess(first - 40, last + 40)

    def test_the_true_one_is_no_longer_and_no_shorter(self):
        store = random_store(6, 300, 25)
        source = pairs.NextPairSource(store, 60, 64, seed=0)
        longer = []
        for step in range(40):
            text = source.batch(step)
            true = text.firsts + text.seconds
            others = text.negatives.firsts + text.negatives.seconds
            longer.append(others.reshape(64, 3) - true[:, None])
        self.assertAlmostEqual(np.mean(longer), 0.0, delta=0.2)
        self.assertLess(np.std(longer), 3.0)
        less, greater = np.less(longer, 0), np.greater(longer, 0)
        self.assertAlmostEqual(less.mean(), greater.mean(), delta=0.05)
