import pathlib

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf import views
from infoword_tf.data import store as stores
from infoword_tf.data.batches import Batches, heldout_views, open_sources
from infoword_tf.plan import make_plan
from tests.near import same
from tests.refused import refused

LENGTH, TOKENS = 30, 6_000
ROWS, INFOWORD = ('mlm', 'bert_nce'), ('bert_nce', 'dim')
SPECIALS = views.Specials(
    cls_id=TOKENS, sep_id=TOKENS + 1, mask_id=TOKENS + 2, size=TOKENS + 3
)
# Of `make_store()`: where the first held-out sequences begin, and what the
# first rows hide.
FIRST_TOKENS = [1484, 4575, 5743, 5895]
FIRST_PLACES = [
    [3, 4, 5, 6, 7], [10, 11, 12, 13, 14], [23, 24, 25, 26, 27],
    [22, 23, 24, 25, 26],
]  # fmt: skip


def make_store(tokens=TOKENS):
    """Token i is piece i; words of 1 to 3 pieces, a separator in 50 tokens."""
    random = np.random.default_rng(0)
    flags = (random.random(tokens) < 0.6).astype(np.uint8) * stores.WORD_START
    flags[0] = stores.WORD_START
    flags[49::50] = stores.WORD_START | stores.SEPARATOR
    flags[50::50] = stores.WORD_START
    return stores.Store(
        np.arange(tokens, dtype=np.uint16), flags, np.array([0, tokens]),
        np.ones(tokens + 3, np.int64), pathlib.Path('nowhere'),
    )  # fmt: skip


def plan_of(rows=None, masking='spans'):
    """Returns a plan of all rows that predict pieces so masked, or of some."""
    rows = rows or (ROWS if masking == 'spans' else ROWS[:1])
    if not {'mlm', 'bert_nce', 'dim'} & set(rows):
        masking = None
    settings = {
        'dim': {'one_mask': False, 'momentum': 0.0},
        'ict': {'momentum': 0.0},
    }
    arguments = {row: settings.get(row, {}) for row in rows}
    return make_plan(arguments, LENGTH + 2, masking)


def make_batches(masking='spans', seed=1, batch_size=8, rows=None):
    plan = plan_of(rows, masking)
    sources = open_sources(make_store(), plan, batch_size, seed)
    return Batches(sources, plan, SPECIALS, seed)


def assert_same(a, b):
    assert list(a) == list(b), (list(a), list(b))
    for name in a:
        assert a[name].dtype == b[name].dtype, name
        same(a[name], b[name], message=name)


def check_dataset(batches, expected, first, count):
    """The dataset of so many steps has the views, bit for bit."""
    dataset = batches.dataset(first, first + count).as_numpy_iterator()
    for step, flat in zip(range(first, first + count), dataset, strict=True):
        assert_same(flat, views.flatten(expected.views(step)))


def text_of(view):
    """The ids of a view, with what is hidden put back."""
    ids = view.ids.copy()
    np.put_along_axis(ids, view.places['mlm'], view.targets['mlm'], axis=1)
    return ids


class BatchesTest(parameterized.TestCase):
    @parameterized.product(
        masking=('spans', 'words', 'tokens'), first=(0, 3, 1000)
    )
    def test_dataset_is_the_views_bit_for_bit(self, masking, first):
        check_dataset(make_batches(masking), make_batches(masking), first, 5)

    def test_dataset_knows_its_shapes(self):
        spec = make_batches().dataset(0, 2).element_spec
        self.assertEqual(
            {name: (tuple(s.shape), s.dtype.name) for name, s in spec.items()},
            {
                'masked/ids': ((8, 32), 'int32'),
                **{
                    f'masked/{name}': ((8,), 'int32') for name in
                    ('sequences', 'counts/shortened_spans', 'counts/tokens')
                },
                **{
                    f'masked/{field}/{row}': ((8, 5), kind)
                    for row in ROWS for field, kind in (
                        ('places', 'int32'), ('targets', 'int32'),
                        ('weights', 'float32'), ('measured', 'float32'),
                    )
                },
            },
        )  # fmt: skip

    def test_dataset_is_not_tuned_while_it_runs(self):
        """The tuner's thread may hold up an iterator's end for a minute."""
        options = make_batches().dataset(0, 2).options()
        self.assertIs(options.autotune.enabled, False)

    def test_masks_are_of_the_seed(self):
        """Masks the same windows otherwise by another seed."""
        whole = make_batches().views(0)['masked']
        sources = open_sources(make_store(), plan_of(), 8, 1)
        other = Batches(sources, plan_of(), SPECIALS, 2)
        other = other.views(0)['masked']
        differ = other.ids != whole.ids
        self.assertTrue(differ.any())
        either = [x.ids == SPECIALS.mask_id for x in (other, whole)]
        self.assertFalse((differ & ~np.any(either, axis=0)).any())

    def test_rows_of_several_views(self):
        batches = make_batches(rows=INFOWORD)
        result = batches.views(3)
        self.assertEqual(list(result), ['masked', 'ngrams'])
        self.assertEqual(list(result['masked'].places), ['bert_nce', 'dim'])
        self.assertEqual(list(result['masked'].weights), ['bert_nce'])
        self.assertEqual(list(result['ngrams'].weights), ['dim'])
        check_dataset(batches, batches, 3, 3)

    def test_the_first_view_of_a_text_counts_its_tokens(self):
        result = make_batches(rows=INFOWORD).views(3)
        shown = result['masked'].ids[:, 1:-1]
        same(
            result['masked'].counts['tokens'],
            (shown % 50 != 49).sum(axis=1),  # as `make_store` parts it
        )
        self.assertNotIn('tokens', result['ngrams'].counts)


class HeldoutViewsTest(parameterized.TestCase):
    def make(self, tokens=TOKENS):
        return heldout_views(make_store(tokens), plan_of(), SPECIALS)

    def test_the_first_of_them(self):
        # Held-out values of two versions compare only while these hold.
        view = self.make()['masked']
        same(text_of(view)[:4, 1], FIRST_TOKENS)
        same(view.places['mlm'][:4], FIRST_PLACES)

    @parameterized.parameters(
        # room = tokens // 30 - 1; whole batches of at most 32, 512 at most.
        (60, 1), (120, 3), (32 * 30, 31), (33 * 30, 32), (64 * 30, 32),
        (65 * 30, 64), (6_000, 192), (15_420, 512), (60_000, 512),
    )  # fmt: skip
    def test_how_many(self, tokens, sequences):
        view = self.make(tokens)['masked']
        self.assertEqual(view.ids.shape, (sequences, LENGTH + 2))
        same(view.sequences, np.arange(sequences))
        self.assertEqual(view.sequences.dtype, np.int32)
        for part in (view.places, view.targets, view.weights):
            for row in ROWS:
                self.assertEqual(part[row].shape, (sequences, 5))
        self.assertEqual(view.counts['shortened_spans'].shape, (sequences,))

    def test_ngrams_are_numbered_over_all_of_them(self):
        """Text in which every window is there twice, or nearly."""
        ids = (np.arange(TOKENS) % 40).astype(np.uint16)
        store = make_store()._replace(ids=ids)
        result = heldout_views(store, plan_of(INFOWORD), SPECIALS)
        view = result['ngrams']
        self.assertLen(view.ids, 192)
        number, texts, rows = {}, {}, {}
        for row in range(192):
            for slot in range(view.targets['dim'].shape[1]):
                if view.weights['dim'][row, slot]:
                    text = tuple(view.ids[row][view.block_ids[row] == slot])
                    target = view.targets['dim'][row, slot]
                    self.assertEqual(number.setdefault(text, target), target)
                    self.assertEqual(texts.setdefault(target, text), text)
                    rows.setdefault(target, set()).add(row // 32)
        # Some are there in several batches.
        self.assertGreater(max(map(len, rows.values())), 2)

    def test_too_little_text(self):
        with refused('little_heldout_text', ' 59 ', ' 30;', '--heldout'):
            self.make(59)


class SeveralSourcesTest(absltest.TestCase):
    def test_rows_without_their_text(self):
        with refused('source_without_text', 'mlm', 'bert_nce', 'text'):
            open_sources(None, plan_of(), 8, 1)

    def test_the_smaller_one_is_padded_with_what_weighs_nothing(self):
        """400 tokens are 12 windows; of the documents 3 have a sentence
        more."""
        store = make_store(400)
        flags = np.array(store.flags)
        flags[[0, 50, 60, 100, 110, 300, 320]] |= stores.SENTENCE_START
        documents = np.array([0, 50, 100, 300, 400])
        store = store._replace(flags=flags, documents=documents)
        rows = ['bert_nce', 'ict']
        together = heldout_views(store, plan_of(rows), SPECIALS)
        sizes = {len(view.ids) for view in together.values()}
        self.assertEqual(sizes, {12})
        for row in rows:
            alone = heldout_views(store, plan_of([row]), SPECIALS)
            for name, view in alone.items():
                n = len(view.ids)
                self.assertEqual(n, 12 if row == 'bert_nce' else 3)
                whole = together[name]
                same(whole.ids[:n], view.ids)
                same(whole.weights[row][:n], view.weights[row])
                self.assertFalse(whole.weights[row][n:].any())
                same(whole.sequences, np.arange(12))


class PairsTest(parameterized.TestCase):
    BERT, NCE = ('mlm', 'nsp'), ('mlm', 'nsp_nce')

    def make(self):
        """`make_store()` in documents of 49 tokens, a sentence in 7."""
        store = make_store()
        flags = np.array(store.flags)
        flags[np.arange(TOKENS) % 50 % 7 == 0] |= stores.SENTENCE_START
        flags[49::50] &= ~np.uint8(stores.SENTENCE_START)
        return store._replace(
            flags=flags, documents=np.arange(0, TOKENS + 1, 50)
        )

    @parameterized.parameters(
        (BERT, 'pairs', 'spans'), (BERT, 'pairs', 'tokens'),
        (NCE, 'next_pairs', 'words'),
    )  # fmt: skip
    def test_narrowed(self, rows, source, masking):
        """All rows of the view read pairs, and no windows are read."""
        plan = plan_of(rows, masking)
        sources = open_sources(self.make(), plan, 8, 1)
        self.assertEqual([r.source for r in sources], [source])
        batches = Batches(sources, plan, SPECIALS, 1)
        result = batches.views(4)
        view = result['masked']
        self.assertTrue((view.segment_ids == 1).any(axis=1).all())
        self.assertEqual(list(view.places), list(rows))
        if source == 'next_pairs':
            self.assertEqual(result['negatives'].ids.shape, (8, 3, LENGTH + 2))
        check_dataset(batches, batches, 4, 2)

    @parameterized.parameters((BERT, 'pairs'), (NCE, 'next_pairs'))
    def test_held_out(self, rows, source):
        arguments = self.make(), plan_of(rows, 'tokens'), SPECIALS
        result = heldout_views(*arguments)
        again = heldout_views(*arguments)
        assert_same(views.flatten(result), views.flatten(again))
        # 120 documents of 49 tokens, two pairs each: 240, in batches of 32.
        self.assertEqual({len(view.ids) for view in result.values()}, {224})
        if source == 'next_pairs':
            self.assertEqual(result['negatives'].ids.shape[1], 3)
            return
        view = result['masked']
        real = view.weights['nsp'] > 0
        self.assertBetween(view.targets['nsp'][real].mean(), 0.4, 0.6)
        # As many in each of the 7 batches, none of them twice.
        (source,) = open_sources(arguments[0], arguments[1], 32, 0).values()
        self.assertEqual(real.sum(), 7 * source.pairs)
        self.assertLessEqual(real.sum(), 240)

    def test_too_little_heldout_text(self):
        store = self.make()._replace(documents=np.array([0, TOKENS]))
        for rows in (self.BERT, self.NCE):
            with refused('little_heldout_text', '6,000 ', '--heldout'):
                heldout_views(store, plan_of(rows), SPECIALS)
