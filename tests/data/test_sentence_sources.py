"""Sentences of a store, and pairs that people have written, by step."""

import contextlib
import io
import itertools
from unittest import mock

import numpy as np
from absl.testing import absltest

from infoword_tf.choices import RunChoices
from infoword_tf.data import opened, store, text_pairs
from infoword_tf.data.documents import hash_bucket
from infoword_tf.data.passages import count_sentences
from infoword_tf.data.sentences import SentenceSource, StoreSentences
from infoword_tf.data.store import SENTENCE_START
from infoword_tf.resolve import resolve
from infoword_tf.text.layout import LAYOUTS
from infoword_tf.text.template import Template
from infoword_tf.text.tokenizers import TOKENIZERS
from infoword_tf.text.wholewords import WholeWords
from tests import places, zoo
from tests.data import test_examples
from tests.data.texts import Temporary
from tests.near import same
from tests.refused import refused


class SentencesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.store = zoo.make_store(longest=12)

    def test_all_are_found_whole(self):
        """Each from its start to the next, without the document's [SEP]."""
        actual = StoreSentences.of(self.store, 99, 2, 0.0)
        total = 0
        for begin, length in zip(actual.begins, actual.lengths, strict=True):
            ids = self.store.ids[begin : begin + length - 2]
            self.assertNotIn(zoo.SEP, ids)
            self.assertTrue(self.store.flags[begin] & SENTENCE_START)
            total += len(ids)
        self.assertEqual(total, (self.store.ids != zoo.SEP).sum())
        self.assertFalse(actual.truncated.any())

    def test_the_size_of_a_block_changes_nothing(self):
        """Sentences may begin at its first token, or at its last."""
        whole = StoreSentences.of(self.store, 99, 2, 0.0)
        counts = count_sentences(self.store)
        self.assertEqual(counts.sum(), whole.size)
        for size in (1, 7, 64):
            with mock.patch.object(store, '_BLOCK', size):
                actual = StoreSentences.of(self.store, 99, 2, 0.0)
                again = count_sentences(self.store)
            np.testing.assert_array_equal(actual.begins, whole.begins)
            np.testing.assert_array_equal(again, counts)

    def test_longer_ones_are_cut_and_counted(self):
        actual = StoreSentences.of(self.store, 8, 1, 0.0)
        whole = StoreSentences.of(self.store, 99, 1, 0.0)
        self.assertEqual(actual.lengths.max(), 8)
        np.testing.assert_array_equal(actual.truncated, whole.lengths > 8)
        self.assertBetween(actual.truncated.mean(), 0.2, 0.8)

    def test_a_prompt_stands_before_each(self):
        """Behind [CLS]; its tokens count in the length."""
        prompted = self.store._replace(prompt=[7, 8, 9])
        plain, actual = (
            StoreSentences.of(*arguments, 2, 0.0)
            for arguments in ((self.store, 8), (prompted, 11))
        )
        same(actual.lengths, plain.lengths + 3)
        same(actual.truncated, plain.truncated)
        numbers, slots = np.arange(9), np.arange(9)[:, None]
        a, b = (x.batch(numbers, slots, 22) for x in (plain, actual))
        np.testing.assert_array_equal(b.lengths, a.lengths + 3)
        self.assertTrue((b.ids[..., 1:4] == [7, 8, 9]).all())
        np.testing.assert_array_equal(b.ids[..., 4:], a.ids[..., 1:])

    def test_held_out_ones_are_the_same_whatever_is_trained(self):
        room = SentenceSource.capacity(self.store, 16)
        one = SentenceSource(self.store, 16, room, 5)
        two = SentenceSource(self.store, 16, room, 5, copies=2, repeat=0.3)
        same(one.batch(0).ids[:, 0], two.batch(0).ids[:, 0])

    def test_repeated_ones_always_fit(self):
        source = SentenceSource(
            self.store, 16, 8, 0, copies=2, repeat=0.5, stratified=True
        )
        for step in range(20):
            text = source.batch(step)
            most = source.store.select(text.numbers).sizes
            sums = np.where(text.slots < 0, 0, most[text.slots]).sum(axis=1)
            self.assertLessEqual(sums.max(), text.width)

TRIPLES = [
    ('a', 'b', 'negative'),
    *((f'question {i}', f'answer {i}', f'wrong {i}') for i in range(200)),
]


class PairsTest(Temporary):
    def write(self, name, lines):
        return str(super().write(name, ''.join(f'{x}\n' for x in lines)))

    def setUp(self):
        super().setUp()
        self.path = self.write('t.csv', map(','.join, TRIPLES))

    def test_a_delimiter(self):
        path = self.write('d.csv', map(';'.join, TRIPLES))
        expected = text_pairs.read(self.path).train[0].texts
        for delimiter in (None, ';'):
            actual = text_pairs.read(path, delimiter=delimiter)
            self.assertEqual(actual.train[0].texts, expected)
        with refused('unknown_pair_columns', 'd.csv: '):
            text_pairs.roles_of(path, delimiter='tab')

    def test_held_out_are_some_by_a(self):
        actual = text_pairs.read(self.path)
        train, held = actual.train[0].texts, actual.heldout[0].texts
        self.assertBetween(len(held[0]), 2, 25)
        self.assertEqual(len(train[0]) + len(held[0]), 200)
        self.assertEmpty(set(train[0]) & set(held[0]))
        fewer = self.write('u.csv', map(','.join, TRIPLES[:100]))
        again = text_pairs.read(fewer).heldout[0].texts[0]
        self.assertContainsSubset(again, held[0])

    def test_bad_files(self):
        for lines, id, *values in (
            (['a,b', 'x,y', 'z'], 'unequal_cells', 'x.csv, line 3: 1 '),
            (['a,b', 'x,y'], 'no_heldout_pairs', '--heldout_pairs='),
        ):
            with refused(id, *values):
                text_pairs.read(self.write('x.csv', lines))
        with refused('no_file_matches'):
            text_pairs.read(str(self.folder / 'nothing*.csv'))

    def test_what_a_run_says_of_bad_pairs(self):
        """Without a side they are none; of one word, or long, they are some."""
        long = 'more words than a text may have ' * 9
        good = [
            'one,word', '.,!', f'{long},short', f'a text,{long}',
            *['the same,pair'] * 4,
            *(f'question {i},answer {i}' for i in range(4)),
        ]  # fmt: skip
        lines = ['a,b', *good, 'first,', ',second', ' , ']
        choices = RunChoices(
            objectives='simcse', seq_len=16, vocab_size=300,
            pairs=self.write('p.csv', lines),
            heldout_pairs=self.write('h.csv', ['a,b', *good[:2], good[-1]]),
        )  # fmt: skip
        places.make(self.addCleanup)  # of the vocabulary
        sides = opened.sides_of(resolve(choices).plan)
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            _, pairs = opened.open_pairs(choices, None, None, sides)
        for note in ('12 examples to train on, a text of 2 is trunc',
                     '3 rows with an empty a or b are left out'):  # fmt: skip
            self.assertIn(note, shown.getvalue())
        self.assertEqual(pairs.train.longest, (16, 16))

    def test_a_small_file_without_a_held_out_pair(self):
        """The held-out ones are those of the other file."""
        held = [hash_bucket(f'question {i}', 20) == 0 for i in range(200)]
        self.write('s.csv', ['a,b,negative', *(
            f'question {i},it,he' for i in range(200) if not held[i]
        )][:5])  # fmt: skip
        actual = text_pairs.read(str(self.folder / '[st].csv'))
        self.assertEqual([len(f.texts[0]) for f in actual.train],
                         [4, 200 - sum(held)])  # fmt: skip
        self.assertEqual([f.where for f in actual.heldout], [self.path])
        held = self.tokenized(actual.heldout)
        room = text_pairs.TextPairSource.capacity(held, 16)
        self.assertEqual(room, len(actual.heldout[0].texts[0]))
        batch = text_pairs.TextPairSource(held, 16, room, 0).batch(0)
        self.assertLen(batch.numbers, room)

    def test_a_file_that_is_all_held_out(self):
        first = next(i for i in range(200)
                     if hash_bucket(f'question {i}', 20) == 0)  # fmt: skip
        self.write('s.csv', ['a,b,negative', f'question {first},it,he'])
        with refused('pairs_all_heldout', 's.csv '):
            text_pairs.read(str(self.folder / '[st].csv'))

    def tokenized(self, files):
        """As a run has them, with a vocabulary of all."""
        if not hasattr(self, 'template'):
            texts = (' '.join(t) for f in files for t in f.texts)
            tokenizer = TOKENIZERS['wordpiece'].learn(texts, 200, True)
            self.template = Template(tokenizer, LAYOUTS['bert'])
        actual, cut = text_pairs.tokenized(files, self.template, (16, 16))
        self.assertEqual(cut, 0)
        return actual

    def test_prompts(self):
        """Puts that of queries before each a, that of passages before others.

        Shows a guide texts without them.
        """
        words = 'ask find question answer wrong 1 2'.split()
        template = Template(WholeWords.learn([*words, *words]), LAYOUTS['bert'])
        texts = [['question 1', 'question 2'], ['answer 1', 'answer 2'],
                 ['', 'wrong 2']]  # fmt: skip
        guide = mock.Mock(return_value=np.eye(2))
        actual, _ = text_pairs.tokenized(
            [text_pairs.Columns('x', texts, 0)], template, (16, 16),
            ('ask ', 'find '), {'simcse': guide},
        )  # fmt: skip
        guide.assert_called_once_with(texts)
        (part,) = actual.parts
        np.testing.assert_array_equal(part.targets['simcse'], np.eye(2))
        names = template.tokenizer.vocabulary
        self.assertEqual(
            [
                ' '.join(names[i] for i in part.ids[begin + 1 : end - 1])
                for begin, end in itertools.pairwise(part.begins)
            ],
            ['ask question 1', 'find answer 1', '',
             'ask question 2', 'find answer 2', 'find wrong 2'],
        )  # fmt: skip

    def test_the_fingerprint_has_all_that_is_read(self):
        other = ['a,b,negative', *(f'who is {i},me,you' for i in range(3))]
        heldout = self.write('h.csv', other)

        def fingerprint(*columns, **more):
            actual = text_pairs.read(self.path, columns, heldout, **more)
            return actual.fingerprint

        seen = [fingerprint(), fingerprint('a', 'negative', 'b'),
                fingerprint(negatives=0)]  # fmt: skip
        self.write('h.csv', [*other[:-1], 'who is 2,me,him'])
        seen.append(fingerprint())
        self.write('t.csv', [*map(','.join, TRIPLES[:-1]), 'x,y,z'])
        seen.append(fingerprint())
        self.assertLen(set(seen), 5)

    def test_an_a_of_several_pairs_is_read_once_an_epoch(self):
        """With its b in turn; held-out text has its first b."""
        count = [3, 1, 2, *[1] * 6]
        texts = [
            [f'who is {a}' for a, n in enumerate(count) for _ in range(n)],
            [f'me {b}' for n in count for b in range(n)],
        ]
        first = np.cumsum([0, *count])
        store = self.tokenized([text_pairs.Columns('x', texts, 0)])
        source = text_pairs.TextPairSource(
            store, 16, 4, 0, stratified=True, once=True
        )
        self.assertEqual(source.updates, 2)  # of 9 a, one is left out
        seen = []
        for epoch in range(30):
            numbers = np.concatenate(
                [source.batch(2 * epoch + i).numbers for i in range(2)]
            )
            read = np.searchsorted(first, numbers, side='right') - 1
            self.assertLen(set(read.tolist()), 8)
            seen += [numbers[read == 0].tolist()]
        in_turn = [x for numbers in seen for x in numbers]
        self.assertCountEqual(set(in_turn), range(3))
        gaps = {(y[0] - x[0]) % 3 for x, y in itertools.pairwise(seen)
                if x and y}  # fmt: skip
        self.assertEqual(gaps, {1})
        self.assertEqual(text_pairs.TextPairSource.capacity(store, 16), 12)
        room = text_pairs.TextPairSource.capacity(store, 16, once=True)
        self.assertEqual(room, 9)
        held = text_pairs.TextPairSource(store, 16, room, 0, once=True)
        (part,) = store.parts
        lengths = np.diff(part.begins).reshape(-1, 2)[first[:-1]]
        np.testing.assert_array_equal(held.batch(0).lengths, lengths)

    def test_512_held_out_examples_are_measured_in_proportion(self):
        files = [test_examples.make([2] * 2 * n, texts=2) for n in (600, 1448)]
        actual = text_pairs.together(files)
        self.assertEqual(actual.size, 512)
        first = actual.targets['label'][:150]
        self.assertEqual((first[0], first[149]), (0, 599))
        self.assertEqual(actual.targets['label'][150], 0)

    def test_weights_share_the_updates_of_an_epoch(self):
        """Each file goes through all of its own before any comes again."""
        self.write('t2.csv', ['a,b', *(f'you {i},me {i}' for i in range(90))])
        actual = text_pairs.read(str(self.folder / 't*.csv'))
        train = self.tokenized(actual.train)

        def seen(weights, steps):
            """[steps, 8]: the examples of updates, and of which file each."""
            source = text_pairs.TextPairSource(
                train._replace(weights=weights), 16, 8, 0, stratified=True
            )
            actual = [source.batch(step) for step in range(steps)]
            lacking = [(b.lengths[:, 2] == 2).mean() for b in actual]
            self.assertEqual({*lacking}, {0, 1})  # a batch is of one file
            return np.array([b.numbers for b in actual]), np.array(lacking) > 0

        of_file = [part.size // 8 for part in train.parts]  # 23 and 10, say
        total = sum(of_file)
        numbers, second = seen((1.0, 3.0), 3 * total)
        counts = second.reshape(3, total).sum(axis=1)
        np.testing.assert_array_equal(counts, round(total * 3 / 4))
        for file, half in enumerate((~second, second)):
            once = numbers[half][: of_file[file]].ravel()
            self.assertLen(set(once.tolist()), 8 * of_file[file])
        again, _ = seen((1.0, 3.0), 3 * total)
        np.testing.assert_array_equal(again, numbers)
        plain = seen((), 2 * total)
        for x, y in zip(plain, seen(tuple(of_file), 2 * total), strict=True):
            np.testing.assert_array_equal(x, y)

    def test_weights_that_do_not_fit(self):
        for arguments, id, *values in (
            (['1'], 'wrong_weight_count', '1 weights', '2 files, a, b;'),
            (['1', 'x'], 'pair_weight_no_number'),
            (['1', '0'], 'pair_weight_not_positive'),
            (['1', 'nan'], 'pair_weight_not_positive'),
        ):
            with refused(id, *values):
                text_pairs.weights_of(arguments, ['a', 'b'])
        self.assertEqual(text_pairs.weights_of(['1', '2.5'], 'ab'), (1.0, 2.5))
