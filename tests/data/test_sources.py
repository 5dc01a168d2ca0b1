"""What every source promises, whatever text it reads and however."""

import functools

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf.data import (
    examples,
    pairs,
    passages,
    sentences,
    streams,
    text_pairs,
    translations,
    windows,
    words,
)
from infoword_tf.data.sources import SOURCES
from tests import zoo
from tests.data import (
    test_examples,
    test_passages,
    test_streams,
    test_translation_source,
    test_windows,
)

STRATA = {'stratified': True}
SENTENCES = {'copies': 2, **STRATA}


def of_words(tokens):
    """Text of as many words."""
    return test_windows.make_store(np.ones(tokens, int))


def of_documents(count, more=0):
    """So many documents of two sentences, and others of one."""
    return test_passages.make_store([[2, 3]] * count + [[3]] * more)


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


# By name: the class, its text, T, B, and its other arguments.
CASES = {
    'windows': (windows.WindowSource, of_words(1000), 30, 8, {}),
    'documents': (passages.DocumentSource, of_documents(12, 5), 8, 4, {}),
    'pairs': (pairs.PairSource, of_documents(12), 20, 4, {}),
    'packed pairs': (
        pairs.PairSource, of_documents(120), 20, 8, {'packed': True},
    ),
    'next_pairs': (pairs.NextPairSource, of_documents(12), 20, 4, {}),
    'streams': (streams.StreamSource, test_streams.make_store(900), 20, 4, {}),
    'words': (
        words.WordSource, zoo.make_store(0, 200), 24, 4,
        {'subsample': 0.05, 'negatives': 32},
    ),
    'examples': (examples.ExampleSource, of_examples(50), 24, 8, STRATA),
    'sentences': (
        sentences.SentenceSource, zoo.make_store(longest=12), 16, 8, SENTENCES,
    ),
    'text_pairs': (text_pairs.TextPairSource, of_pairs(90, 40), 8, 8, STRATA),
    'translations': (
        translations.TranslationSource, of_translations(320), 40, 8, STRATA,
    ),
    'crossed translations': (
        translations.TranslationSource, of_translations(320), 40, 8,
        {'crossed': True, **STRATA},
    ),
}  # fmt: skip


def opened(name, seed=4):
    kind, store, length, rows, more = CASES[name]
    return kind(store, length, rows, seed, **more)


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
        kinds = {kind for kind, *_ in CASES.values()}
        self.assertEqual(kinds, set(SOURCES.values()))

    @parameterized.parameters(*CASES)
    def test_a_step_is_of_the_seed_and_its_number_alone(self, name):
        """In whatever order steps are made, and of one shape."""
        whole, again = opened(name), opened(name)
        steps = (0, 1, 7, 900)
        first = [arrays(whole.batch(step)) for step in steps]
        np.random.seed(0)
        for step, one in zip(steps[::-1], first[::-1], strict=True):
            two = arrays(again.batch(step))
            self.assertEqual(list(one), list(two))
            for field, array in one.items():
                np.testing.assert_array_equal(array, two[field], field)
                self.assertEqual(array.dtype, two[field].dtype)
        other = arrays(opened(name, seed=5).batch(7))
        is_fixed = name == 'streams'  # they go around, nothing is at random
        drawn = ('texts', 'drawn') if name == 'words' else ()
        for field in ('ids', *drawn):
            same = np.array_equal(other[field], first[2][field])
            self.assertEqual(same, is_fixed, field)
        for a, b in ((0, 1), (2, 3)):
            self.assertFalse(
                np.array_equal(first[a]['ids'], first[b]['ids'])
            )

    @parameterized.parameters(
        # What tells the items of a batch apart, and how many an epoch has in
        # so many steps; None: all but less than a batch.
        ('windows', 'ids', 32, 4),
        ('documents', 'ids', 12, 3),
        ('pairs', 'ids', 12, 3),
        ('packed pairs', 'ids', 120, 6),
        ('next_pairs', 'ids', 12, 3),
        ('examples', 'numbers', 48, 6),
        ('sentences', 'numbers', None, None),
        ('translations', 'numbers', None, None),
        ('crossed translations', 'numbers', 320, 20),
    )
    def test_an_epoch_has_each_once(self, name, field, count, steps):
        """And the next one in another order."""
        source = opened(name)
        if steps is None:
            steps = getattr(source, 'updates', None) or (
                320 // source.parts[0].count
            )
        epochs = []
        for begin in (0, steps):
            seen = [
                getattr(source.batch(step), field)
                for step in range(begin, begin + steps)
            ]
            seen = np.concatenate(seen)
            seen = seen[:, 0] if seen.ndim > 1 else seen
            self.assertLen(set(seen.tolist()), len(seen))
            if count is None:
                total = source.store.size if name == 'sentences' else 320
                self.assertGreater(len(seen), total - len(seen) // steps)
            else:
                self.assertLen(seen, count)
            epochs.append(seen)
        self.assertFalse(np.array_equal(*epochs))

    @parameterized.parameters(
        ('windows', of_words(89), 30, 2,
         'the text has 89 tokens.*room for 1 windows of 30.*a batch takes 2'
         '.*--batch_size'),
        ('windows', of_words(30), 30, 2, '30 tokens.*room for 0 windows of 30'),
        ('windows', of_words(0), 30, 2, ' 0 tokens.*room for 0 windows of 30'),
        ('documents', of_documents(2, 1), 6, 3,
         '2 of 3 documents have two sentences.*takes 3'),
        ('pairs', test_passages.make_store([[3, 4], [5]]), 20, 2,
         '1 of 2 documents have two sentences.*blank'),
        ('pairs', test_passages.make_store([[5], [2]]), 20, 1,
         '0 of 2 documents have two sentences'),
        ('pairs', test_passages.make_store([[3, 4], [2, 2]]), 20, 3,
         'has 2 pairs.*takes 3.*--batch_size'),
        ('streams', test_streams.make_store(100), 30, 4,
         '100 tokens, too few for 4 sequences of 30; give more'),
        ('words', zoo.make_store(), 64, 4096, 'lower --batch_size'),
        ('examples', test_examples.make([3] * 7), 64, 8,
         'there are 7 examples, but an update takes 8; lower --batch_size'),
        ('examples', test_examples.make([65] * 8), 64, 8,
         'an example has 65 tokens, a sequence 64; raise --seq_len'),
        ('sentences', zoo.make_store(longest=12), 16, 5000,
         'but a batch takes 5000'),
        ('text_pairs', of_pairs(90, 4), 8, 8,
         '4.csv: there are 4 examples, but an update takes 8'),
        ('crossed translations', of_translations(100, 10), 40, 8,
         'a1-b: there are 10 pairs of texts, but an update takes 16'),
    )  # fmt: skip
    def test_too_little_text(self, name, store, length, rows, message):
        kind, *_, more = CASES[name]
        with self.assertRaisesRegex(ValueError, message):
            kind(store, length, rows, 0, **more)

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
        kind, *_, more = CASES[name]
        more = {k: x for k, x in more.items() if k not in STRATA}
        capacity = functools.partial(kind.capacity, store, length)
        self.assertEqual(capacity(**more), rows)


if __name__ == '__main__':
    absltest.main()
