"""Promises of every source, whatever text it reads and however."""

from typing import Any, NamedTuple

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf.data import (
    batches,
    examples,
    opened,
    pairs,
    passages,
    sentences,
    source,
    streams,
    text_pairs,
    translations,
    words,
)
from infoword_tf.data.sources import SOURCES
from infoword_tf.objectives import TABLE
from tests import zoo
from tests.data import (
    test_examples,
    test_passages,
    test_streams,
    test_translation_source,
    test_windows,
)
from tests.refused import refused

STRATA = {'stratified': True}
SENTENCES = {'copies': 2, **STRATA}


def of_words(tokens):
    """Text of as many words."""
    return test_windows.make_store(np.ones(tokens, int))


def of_documents(count, more=0):
    """So many documents of two sentences, and others of one."""
    return test_passages.make_store([[2, 3]] * count + [[3]] * more)


def of_one_word():
    """Text of one word, and of what is unknown."""
    store = zoo.make_store()
    counts = np.zeros_like(store.counts)
    counts[[7, zoo.UNK]] = len(store.ids), 9
    return store._replace(counts=counts)


def of_examples(count):
    random = np.random.default_rng(0)
    return test_examples.make(random.integers(1, 20, count))


def of_pairs(*counts):
    parts = tuple(test_examples.make([3, 4] * n, 2) for n in counts)
    files = tuple(f'{n}.csv' for n in counts)
    return text_pairs.TextPairs(parts, files)


def of_translations(*counts):
    return translations.ParallelText({
        f'a{i}-b': test_translation_source.bitext(n, i)
        for i, n in enumerate(counts)
    })  # fmt: skip


class Case(NamedTuple):
    """A source, and what it promises.

    Attributes:
        kind, store, length, batch: the class, its text, T and B.
        more: its other arguments.
        item: the field that tells the items of a batch apart.
        epoch: how many items come once an epoch; None: nothing comes to an end.
        steps: of an epoch.
        drawn: fields that the seed decides.
    """

    kind: type
    store: Any
    length: int
    batch: int
    more: dict = {}
    item: str = 'ids'
    epoch: int | None = None
    steps: int = 0
    drawn: tuple[str, ...] = ('ids',)

    def opened(self, seed=4):
        arguments = self.store, self.length, self.batch, seed
        return self.kind(*arguments, **self.more)

    @property
    def plan(self):
        """Arguments of held-out text too."""
        return {k: x for k, x in self.more.items() if k not in STRATA}


CASES = {
    'windows': Case(
        source.WindowSource, of_words(1000), 30, 8, epoch=32, steps=4,
    ),
    'documents': Case(
        passages.DocumentSource, of_documents(12, 5), 8, 4, epoch=12, steps=3,
    ),
    'pairs': Case(pairs.PairSource, of_documents(12), 20, 4, epoch=12, steps=3),
    'packed pairs': Case(
        pairs.PairSource, of_documents(120), 20, 8, {'packed': True},
        epoch=120, steps=6,
    ),
    'next_pairs': Case(
        pairs.NextPairSource, of_documents(12), 20, 4, epoch=12, steps=3,
    ),
    'streams': Case(  # they go around, nothing is at random
        streams.StreamSource, test_streams.make_store(900), 20, 4, drawn=(),
    ),
    'words': Case(
        words.WordSource, zoo.make_store(0, 200), 24, 4,
        {'subsample': 0.05, 'negatives': 32}, drawn=('ids', 'texts', 'drawn'),
    ),
    'examples': Case(
        examples.ExampleSource, of_examples(50), 24, 8, STRATA,
        'numbers', 48, 6,
    ),
    'sentences': Case(
        sentences.SentenceSource, zoo.make_store(longest=12), 16, 8, SENTENCES,
        'numbers', 216, 27,
    ),
    'text_pairs': Case(
        text_pairs.TextPairSource, of_pairs(90), 8, 8, STRATA,
        'numbers', 88, 11,
    ),
    'text_pairs of files': Case(
        text_pairs.TextPairSource, of_pairs(90, 40), 8, 8, STRATA,
    ),
    'translations': Case(
        translations.TranslationSource, of_translations(320), 40, 8, STRATA,
        'numbers', 319, 29,
    ),
    'crossed translations': Case(
        translations.TranslationSource, of_translations(320), 40, 8,
        {'crossed': True, **STRATA}, 'numbers', 320, 20,
    ),
}  # fmt: skip
IN_ORDER = [name for name, case in CASES.items() if case.kind.whole]
EPOCHS = [name for name, case in CASES.items() if case.epoch]


def arrays(batch, path=''):
    """By name the arrays of a batch."""
    actual = {}
    for name, x in (
        batch.items() if isinstance(batch, dict) else batch._asdict().items()
    ):
        if isinstance(x, dict) or hasattr(x, '_asdict'):
            actual |= arrays(x, f'{path}{name}/')
        elif x is not None:
            actual[path + name] = np.asarray(x)
    return actual


class SourcesTest(parameterized.TestCase):
    def test_all_are_here(self):
        kinds = {case.kind for case in CASES.values()}
        self.assertEqual(kinds, set(SOURCES.values()))

    @parameterized.parameters(*CASES)
    def test_a_step_is_of_the_seed_and_its_number_alone(self, name):
        """In whatever order steps are made, and of one shape."""
        case = CASES[name]
        whole, again = case.opened(), case.opened()
        steps = (0, 1, 7, 900)
        first = [arrays(whole.batch(step)) for step in steps]
        np.random.seed(0)
        for step, one in zip(steps[::-1], first[::-1], strict=True):
            two = arrays(again.batch(step))
            self.assertEqual(list(one), list(two))
            for field, array in one.items():
                np.testing.assert_array_equal(array, two[field], field)
                self.assertEqual(array.dtype, two[field].dtype)
        other = arrays(case.opened(seed=5).batch(7))
        for field in ('ids', *case.drawn):
            same = np.array_equal(other[field], first[2][field])
            self.assertEqual(same, field not in case.drawn, field)
        for a, b in ((0, 1), (2, 3)):
            ids = first[a]['ids'], first[b]['ids']
            self.assertFalse(np.array_equal(*ids))

    @parameterized.parameters(*EPOCHS)
    def test_an_epoch_has_each_once(self, name):
        """And the next one in another order."""
        case = CASES[name]
        source, epochs = case.opened(), []
        for begin in (0, case.steps):
            seen = np.concatenate([
                getattr(source.batch(step), case.item)
                for step in range(begin, begin + case.steps)
            ])  # fmt: skip
            seen = seen[:, 0] if seen.ndim > 1 else seen
            self.assertLen(seen, case.epoch)
            self.assertLen(set(seen.tolist()), case.epoch)
            epochs.append(seen)
        self.assertFalse(np.array_equal(*epochs))

    @parameterized.parameters(*IN_ORDER)
    def test_held_out_are_all_in_their_order(self, name):
        case = CASES[name]
        arguments = case.store, case.length
        count = case.kind.capacity(*arguments, **case.plan)
        batch = case.kind(*arguments, count, 0, **case.plan).batch(0)
        count *= 1 + bool(case.plan.get('crossed'))
        np.testing.assert_array_equal(batch.numbers, np.arange(count))

    @parameterized.parameters(
        ('windows', of_words(89), 30, 2, 'few_windows', ' 89 ', ' 1 windows',
         ' takes 2;', '--batch_size'),
        ('windows', of_words(30), 30, 2, 'few_windows', ' 30 ', ' 0 windows'),
        ('windows', of_words(0), 30, 2, 'few_windows', ' 0 tok', ' 0 windows'),
        ('documents', of_documents(2, 1), 6, 3, 'few_documents', '2 of 3 ',
         ' takes 3;'),
        ('pairs', test_passages.make_store([[3, 4], [5]]), 20, 2,
         'few_documents_for_pairs', '1 of 2 '),
        ('pairs', test_passages.make_store([[5], [2]]), 20, 1,
         'few_documents_for_pairs', '0 of 2 '),
        ('pairs', test_passages.make_store([[3, 4], [2, 2]]), 20, 3,
         'few_sentence_pairs', ' 2 ', ' takes 3;', '--batch_size'),
        ('streams', test_streams.make_store(100), 30, 4,
         'few_tokens_for_streams', ' 100 ', ' 4 sequences of 30;'),
        ('streams', test_streams.make_store(100), 30, 8,
         'few_tokens_for_streams', ' 4 sequences of each direction of 30;',
         {'both_directions': True}),
        ('streams', test_streams.make_store(500), 30, 4,
         'advance_skips_tokens', ' 31 ', {'advance': 31}),
        ('streams', test_streams.make_store(500), 30, 4,
         'advance_skips_tokens', ' -1 ', {'advance': -1}),
        ('words', zoo.make_store(), 64, 4096, 'few_windows', '--batch_size'),
        ('words', of_one_word(), 8, 2, 'one_known_word', '--vocab_size'),
        ('examples', test_examples.make([3] * 7), 64, 8, 'few_examples',
         ' 7 ', ' takes 8;', '--batch_size'),
        ('examples', test_examples.make([65] * 8), 64, 8, 'long_example',
         ' 65 ', ' 64;', '--seq_len'),
        ('sentences', zoo.make_store(longest=12), 16, 5000, 'few_sentences',
         ' 5000;'),
        ('sentences', zoo.make_store()._replace(prompt=[7, 8, 9]), 5, 2,
         'prompt_fills_sequence', '--seq_len=5 ', ' 5 tokens'),
        ('text_pairs', of_pairs(90, 4), 8, 8, 'few_examples', '4.csv: ', ' 4 ',
         ' 8;'),
        ('crossed translations', of_translations(100, 10), 40, 8,
         'few_translations', 'a1-b: ', ' 10 ', ' 16;'),
    )  # fmt: skip
    def test_too_little_text(self, name, store, length, rows, id, *values):
        more = values[-1] if isinstance(values[-1], dict) else CASES[name].more
        values = [x for x in values if isinstance(x, str)]
        with refused(id, *values):
            CASES[name].kind(store, length, rows, 0, **more)

    @parameterized.parameters(
        ('windows', of_words(90), 30, 2),
        ('documents', of_documents(2, 1), 6, 2),
        ('streams', test_streams.make_store(100), 25, 4),
        ('examples', test_examples.make([64] * 8), 64, 8),
        ('text_pairs', of_pairs(90, 8), 8, 8),
        ('crossed translations', of_translations(100, 16), 40, 8),
    )
    def test_just_enough_text(self, name, store, length, rows):
        source = CASES[name].kind(store, length, rows, 0, **CASES[name].more)
        shapes = {np.shape(source.batch(step).ids)[:-1] for step in range(50)}
        self.assertLen(shapes, 1)

    @parameterized.parameters(
        ('documents', of_documents(2, 1), 6, 2),
        ('pairs', of_documents(0, 2), 9, 0),
        ('pairs', test_passages.make_store([[1, 1], [20], [5, 5], [5, 6]]), 11,
         4),
        ('pairs', of_documents(120), 20, 120),
        ('pairs', test_passages.make_store([[3, 4], [5]]), 9, 0),
        ('packed pairs', of_documents(120), 20, 45),  # 2.6 to a row
        ('packed pairs', of_documents(1), 20, 0),
        ('packed pairs', of_documents(2), 20, 1),
        ('examples', of_examples(21), 64, 21),
        ('translations', of_translations(30), 40, 30),
        ('crossed translations', of_translations(30), 40, 15),
    )  # fmt: skip
    def test_rows_that_a_text_has(self, name, store, length, rows):
        case = CASES[name]
        self.assertEqual(case.kind.capacity(store, length, **case.plan), rows)


TWO_LENGTHS = test_passages.make_store([[2, 2]] * 96 + [[6, 6]] * 48)


class IndependentTest(parameterized.TestCase):
    """MI of a critic that knows p(a, b), by the candidates of a batch."""

    @parameterized.parameters(
        ('documents', TWO_LENGTHS, lambda x: x.lengths > 7),
        ('windows', of_words(4320), lambda x: x.ids[:, 0] < 1440),
    )
    def test_never_above_what_a_says_of_b(self, name, store, kind):
        """Bounds MI of two kinds of texts, which a says, by their entropy.

        Of B texts c have the kind of b, so that Eq. 1 is log B - log c.
        """
        case = CASES[name]
        source = case.kind(store, 30, 8, 4, **case.kind.in_training)
        self.assertFalse(source.by_length)
        kinds = np.array([kind(source.batch(step)) for step in range(400)])
        same = (kinds[:, :, None] == kinds[:, None]).sum(axis=2)
        bounds = np.log(8 / same).mean(axis=1)
        share = kinds.mean()
        truth = -share * np.log(share) - (1 - share) * np.log(1 - share)
        self.assertAlmostEqual(share, 1 / 3, delta=0.03)
        self.assertLess(bounds.mean(), truth + bounds.std() / 5)
        self.assertGreater(bounds.mean(), truth - 0.15)

    def test_batches_of_all_lengths_flatter(self):
        """a and b are short or long, and of one length in 8 pairs of 10."""
        sizes = [2, 2] * 96 + [2, 6] * 24 + [6, 2] * 24 + [6, 6] * 96
        pairs = text_pairs.TextPairs((test_examples.make(sizes, 2),), ('a',))
        source = text_pairs.TextPairSource(pairs, 30, 8, 4, **STRATA)
        f = np.log([[0.4 / 0.25, 0.1 / 0.25], [0.1 / 0.25, 0.4 / 0.25]])
        truth = 0.8 * f[0, 0] + 0.2 * f[0, 1]
        bounds = []
        for step in range(400):
            a, b = (source.batch(step).lengths // 6).T
            scores = f[a][:, b]
            sums = np.log(np.exp(scores).mean(axis=1))
            bounds.append((np.diag(scores) - sums).mean())
        error = np.std(bounds) / 20
        self.assertGreater(np.mean(bounds), truth + 2 * error)
        self.assertTrue(source.by_length)

    def test_rows_without_mi_of_the_training_text(self):
        self.assertEqual(
            {
                row: sorted(batches.unmeasured(zoo.of(row).resolved.plan))
                for row in TABLE
                if TABLE[row].objective.contrasts
            },
            {
                'bert_nce': [], 'dim': [], 'ict': [], 'simcse': ['simcse'],
                'xlco': ['xlco'], 'embed': ['embed'],
            },
        )  # fmt: skip
        plan = zoo.of('label').resolved.plan  # all labels are candidates
        self.assertEmpty(batches.unmeasured(plan))


class LongestTest(absltest.TestCase):
    def test_of_all_files_and_of_held_out_pairs(self):
        train = text_pairs.TextPairs(
            (test_examples.make([3, 4, 2, 9, 1, 1], 3),
             test_examples.make([5, 2], 2), test_examples.make([], 2)),
            ('a', 'b', 'c'),
        )  # fmt: skip
        self.assertEqual(train.longest, (9, 4))
        heldout = text_pairs.TextPairs((test_examples.make([2, 8], 2),), ('a',))
        pairs = opened.TokenizedPairs(train, heldout, '')
        data = opened.RunData(*[None] * 7)
        self.assertEqual(data.longest, (0, 0))
        self.assertEqual(data._replace(pairs=pairs).longest, (9, 8))
