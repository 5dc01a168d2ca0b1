"""Streams: rows go on, nothing is lost, every token is a target."""

import pathlib

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf import views
from infoword_tf.data import store as stores
from infoword_tf.data import streams
from infoword_tf.data.batches import heldout_views
from infoword_tf.plan import make_plan
from tests.near import same
from tests.refused import refused

SPECIALS = views.Specials(cls_id=2, sep_id=3, mask_id=4, size=10_000)
ROW = 'transformer_xl'


def make_store(tokens):
    """Token i is piece 10 + i, but separators; words of one to three pieces,
    sentences of some words."""
    random = np.random.default_rng(0)
    ids = 10 + np.arange(tokens)
    flags = (random.random(tokens) < 0.6) * stores.WORD_START
    flags[0] = stores.WORD_START
    ends = np.append(np.arange(49, tokens - 1, 50), tokens - 1)
    ids[ends] = SPECIALS.sep_id
    flags[ends] = stores.WORD_START | stores.SEPARATOR
    flags[ends[:-1] + 1] |= stores.WORD_START
    begins = (random.random(tokens) < 0.2) & (flags == stores.WORD_START)
    begins[np.append(0, ends[:-1] + 1)] = True
    flags[begins & (ids != SPECIALS.sep_id)] |= stores.SENTENCE_START
    return stores.Store(
        ids.astype(np.uint16), flags.astype(np.uint8),
        np.concatenate([[0], ends + 1]), np.ones(10 + tokens, np.int64),
        pathlib.Path('nowhere'),
    )  # fmt: skip


def numbered(tokens):
    """A store whose token i is piece i."""
    return make_store(tokens)._replace(ids=np.arange(tokens, dtype=np.uint32))


class StreamSourceTest(parameterized.TestCase):
    def test_written_out(self):
        store = numbered(10)
        source = streams.StreamSource(store, 2, 3, seed=5)
        read = [source.batch(step) for step in range(4)]
        for step, (ids, following) in enumerate((
            ([[0, 1], [3, 4], [6, 7]], [2, 5, 8]),
            ([[2, 3], [5, 6], [8, 9]], [4, 7, 0]),
            ([[4, 5], [7, 8], [0, 1]], [6, 9, 2]),
            ([[6, 7], [9, 0], [2, 3]], [8, 1, 4]),
        )):  # fmt: skip
            same(read[step].ids, ids)
            same(read[step].following, following)
        self.assertEqual(read[0].ids.dtype, np.int32)
        self.assertEqual(read[0].directions.tolist(), [1, 1, 1])

    def test_both_directions_written_out(self):
        store = numbered(10)
        source = streams.StreamSource(store, 3, 4, 0, both_directions=True)
        read = source.batch(0), source.batch(1)
        same(read[0].ids, [[0, 1, 2], [9, 8, 7], [5, 6, 7], [4, 3, 2]])
        same(read[1].ids, [[3, 4, 5], [6, 5, 4], [8, 9, 0], [1, 0, 9]])
        self.assertEqual(read[0].following.tolist(), [3, 6, 8, 1])
        self.assertEqual(read[0].directions.tolist(), [1, -1, 1, -1])

    @parameterized.product(
        tokens=(240, 241, 263, 997),
        batch=(1, 4, 7),
        both=(False, True),
        advance=(None, 12),
    )
    def test_a_row_goes_on_for_ever(self, tokens, batch, both, advance):
        store = numbered(tokens)
        source = streams.StreamSource(store, 24, batch, 0, advance, both)
        step = advance or 24
        read = [source.batch(s) for s in range(3 * tokens // step)]
        for before, after in zip(read, read[1:], strict=False):
            whole = np.hstack([before.ids, before.following[:, None]])
            same(whole[:, step:-1], after.ids[:, : 24 - step])
            same(whole[:, step], after.ids[:, 0])
            # Neighbours everywhere, around the circle.
            ways = before.directions[:, None] % tokens
            same(np.diff(whole) % tokens, np.broadcast_to(ways, (batch, 24)))

    @parameterized.product(
        tokens=(240, 241, 263, 997), batch=(1, 4, 7), both=(False, True)
    )
    def test_all_tokens_equally_often(self, tokens, batch, both):
        """After any number of steps to within one, in each direction."""
        store = numbered(tokens)
        source = streams.StreamSource(store, 24, batch, 0, None, both)
        counts = np.zeros((2, 2, tokens), int)  # input or target, direction
        for step in range(90):
            text = source.batch(step)
            whole = np.hstack([text.ids, text.following[:, None]])
            for way in (0, 1):
                rows = whole[text.directions == (-1 if way else 1)]
                np.add.at(counts[0, way], rows[:, :-1], 1)
                np.add.at(counts[1, way], rows[:, 1:], 1)
            for count in counts.reshape(4, -1):
                self.assertLessEqual(np.ptp(count), 1)
        self.assertGreater(counts[:, 0].min(), 1)
        self.assertEqual(counts[:, 1].min() > 1, both and batch > 1)

    @parameterized.parameters(None, 10, 15)
    def test_tokens_that_are_new(self, advance):
        """Once around, every token that is no separator is new once."""
        store = make_store(4800)
        source = streams.StreamSource(store, 20, 8, 0, advance)
        steps = 4800 // 8 // (advance or 20)
        total = sum(source.batch(step).tokens.sum() for step in range(steps))
        self.assertEqual(total, (store.ids != SPECIALS.sep_id).sum())

    @parameterized.parameters(False, True)
    def test_words_sentences_and_separators(self, both):
        """From whatever side one is read, it is the same pieces."""
        store = make_store(997)
        place = {int(i): n for n, i in enumerate(store.ids) if i != 3}
        words, sentences = (
            np.cumsum(store.flags & flag > 0)
            for flag in (stores.WORD_START, stores.SENTENCE_START)
        )
        source = streams.StreamSource(store, 40, 4, 0, None, both)
        inside = 0
        for step in range(30):
            text = source.batch(step)
            same(text.separators, text.ids == 3)
            inside += (~text.word_starts[:, 0]).sum()
            for number, begins in (
                (words, text.word_starts), (sentences, text.sentence_starts)
            ):  # fmt: skip
                self.assertTrue(begins[text.separators].all())
                for ids, starts in zip(text.ids, begins, strict=True):
                    for j in range(1, 40):
                        two = ids[j - 1 : j + 1].tolist()
                        goes_on = 3 not in two and len(
                            {number[place[i]] for i in two}
                        ) == 1
                        self.assertEqual(bool(starts[j]), not goes_on)
        self.assertGreater(inside, 5)


class OnceTest(parameterized.TestCase):
    @parameterized.product(
        tokens=(1, 5, 30, 61, 240), length=(1, 7, 30), rows=(1, 2, 7)
    )
    def test_every_token_is_the_next_one_once(self, tokens, length, rows):
        store = numbered(tokens)
        seen, before = [], None
        for text, weights in streams.once(store, length, rows):
            whole = np.hstack([text.ids, text.following[:, None]])
            self.assertEqual(weights.shape, (rows, length))
            if before is not None:
                same(whole[:, 0], before)
            before = whole[:, -1]
            seen += whole[:, 1:][weights > 0].tolist()
        self.assertEqual(sorted(seen), list(range(tokens)))

    def test_the_first_follows_a_separator(self):
        text, _ = next(streams.once(make_store(60), 10))
        self.assertEqual(text.ids[0, :3].tolist(), [SPECIALS.sep_id, 10, 11])


class HeldoutTest(absltest.TestCase):
    def make(self, tokens, *rows):
        plan = make_plan(dict.fromkeys(rows or [ROW], {}), 20)
        return heldout_views(make_store(tokens), plan, SPECIALS)

    def test_eight_rows_step_by_step(self):
        view = self.make(1000)['streamed']
        self.assertEqual(view.ids.shape, (48, 20))
        by_step = view.ids.reshape(6, 8, 20).transpose(1, 0, 2).reshape(8, -1)
        store = make_store(1000)
        for row, ids in enumerate(by_step):
            same(ids, store.ids[125 * row :][:120])

    def test_no_more_than_512(self):
        self.assertLen(self.make(60_000)['streamed'].ids, 512)

    def test_too_little_text(self):
        with refused('little_heldout_text', '159 ', ' 8 ', ' 20;', '--heldout'):
            self.make(159)
        self.assertLen(self.make(160)['streamed'].ids, 8)
