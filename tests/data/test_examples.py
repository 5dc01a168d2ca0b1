"""Labelled examples: sequences that they share, strata, and formatted texts.

Glossary of shapes: n examples, J examples of a sequence.
"""

import contextlib
import io
import math
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf import commands
from infoword_tf.config import Layout
from infoword_tf.data.examples import (
    MULTIPLE,
    Examples,
    ExampleSource,
    best_width,
    format_texts,
    pack_examples,
)
from infoword_tf.data.text_pairs import TextPairs
from infoword_tf.text.layout import LAYOUTS
from infoword_tf.text.template import Template
from tests.export import workdirs
from tests.near import same

TEXTS = ['Yes.', 'the import statement finds a module', '',
         'a class is an object, and so is its type', 'no']  # fmt: skip
PAIRS = ['It is.', 'no', 'why not', '', 'the names in the class body']


def make(sizes, texts=1):
    """Examples of some sizes [n K]; their ids are 0, 1, 2, ..."""
    begins = np.concatenate([[0], np.cumsum(sizes)])
    n = len(sizes) // texts
    return Examples(
        np.arange(begins[-1], dtype=np.int32),
        (np.arange(begins[-1]) % 3).astype(np.int8),
        begins,
        np.asarray(sizes, np.int32) - 1,
        {'label': np.arange(n, dtype=np.int32)},
        {'span': np.stack([np.arange(n), np.arange(n) + 1], 1)},
        {'label': np.ones(n, np.int64)},
        texts,
    )


SIZES = {
    'all_equal': lambda random, n: np.full(n, 7),
    'one_long': lambda random, n: np.where(np.arange(n) == n // 2, 64, 3),
    'one_short': lambda random, n: np.where(np.arange(n) == 0, 1, 64),
    'uniform': lambda random, n: random.integers(1, 65, n),
    'two_kinds': lambda random, n: random.choice([31, 33], n),
    'steps': lambda random, n: 1 + np.arange(n) % 64,
}


class TallyTest(absltest.TestCase):
    def test_tokens_of_all_files_but_controls(self):
        one = make([3, 2])._replace(ids=np.array([2, 7, 3, 7, 3], np.int32))
        other = make([1])._replace(ids=np.array([5], np.int32))
        same(one.tally(9, (2, 3)), [0, 0, 0, 0, 0, 0, 0, 2, 0])
        pairs = TextPairs((one, other), ('x', 'y'))
        same(pairs.tally(9, (2, 3)), [0, 0, 0, 0, 0, 1, 0, 2, 0])


class ShareRowsTest(parameterized.TestCase):
    def test_by_hand(self):
        """5 with the first 3; 4 with the second, which leaves room for 1."""
        actual = pack_examples(np.array([3, 5, 3, 1, 4]), 8)
        same(actual, [[1, 0, -1], [4, 2, 3]])

    @parameterized.parameters(*SIZES)
    def test_all_are_there_once_and_fit(self, name):
        for seed in range(5):
            sizes = SIZES[name](np.random.default_rng(seed), 37)
            slots = pack_examples(sizes, 64)
            self.assertEqual(slots.dtype, np.int32)
            self.assertEqual(sorted(slots[slots >= 0]), list(range(37)))
            tokens = np.where(slots < 0, 0, sizes[slots]).sum(axis=1)
            self.assertLessEqual(tokens.max(), 64)
            # Who fits best, the longest first, needs at most 11/9 of the rows
            # that would do, and 6/9 of one (Dosa 2007).
            fewest = math.ceil(sizes.sum() / 64)
            fewest = max(fewest, (sizes > 32).sum())
            self.assertLessEqual(len(slots), (11 * fewest + 6) / 9)

    def test_one_and_none(self):
        same(pack_examples(np.array([8]), 8), [[0]])
        self.assertEqual(pack_examples(np.zeros(0, int), 8).shape, (0, 0))


class WidthTest(parameterized.TestCase):
    @parameterized.parameters(
        # Alone of 256 tokens, two by two of 288.
        ([144] * 15 + [256], 256, 288, 9),
        ([144] * 13 + [256], 256, 288, 8),
        # Fewer sequences would be too few to share.
        ([144] * 12 + [256], 256, 256, 13),
        # They are full; a half is full enough where nothing fits beside.
        ([64] * 32, 64, 64, 32),
        ([200] * 20, 256, 400, 10),
        # A little room is not worth it.
        ([60] * 64, 64, 64, 64),
    )
    def test_by_hand(self, sizes, least, width, sequences):
        actual = best_width([np.array(sizes)], least)
        self.assertEqual(actual, width)
        self.assertLen(pack_examples(np.array(sizes), actual), sequences)

    def test_of_two_sources(self):
        """Loses none of one to what the other gains by wider sequences."""
        halves = np.array([144] * 15 + [256])
        whole = np.array([256] * 16)
        self.assertEqual(best_width([halves, whole], 256), 256)
        self.assertEqual(best_width([halves, halves[1:]], 256), 288)
        sources = [
            ExampleSource(make(np.repeat(x, 2)), 256, 16, 0, stratified=True)
            for x in (halves, whole)
        ]
        self.assertEqual([x.width for x in sources], [288, 256])
        ExampleSource.unify_shapes(sources)
        for source in sources:
            self.assertEqual((source.width, *source.slots.shape), (256, 16, 1))

    def test_a_source_of_long_pairs(self):
        """Queries of 16 tokens and passages of 128, but for one query."""
        sizes = [16, 128] * 39 + [128, 128]
        source = ExampleSource(
            make(np.array(sizes), 2), 128, 20, 0, stratified=True
        )
        self.assertEqual(source.batch(0).width, 288)
        self.assertEqual(source.slots.shape, (11, 2))
        held_out = ExampleSource(make(np.array(sizes), 2), 128, 40, 0)
        self.assertEqual(held_out.batch(0).width, 256)


class SourceTest(parameterized.TestCase):
    def source(self, sizes, batch_size=8, seed=0, texts=1, length=64):
        return ExampleSource(
            make(sizes, texts), length, batch_size, seed, stratified=True
        )

    @parameterized.product(name=list(SIZES), n=(8, 23, 40))
    def test_every_epoch_has_each_once_and_every_update_each_stratum(
        self, name, n
    ):
        for seed in range(3):
            sizes = SIZES[name](np.random.default_rng(seed), n)
            source = self.source(sizes, 8, seed)
            updates = n // 8
            seen = []
            for epoch in range(4):
                steps = range(epoch * updates, (epoch + 1) * updates)
                numbers = [source.batch(step).numbers for step in steps]
                everyone = np.concatenate(numbers)
                self.assertLen(set(everyone.tolist()), 8 * updates)
                seen.append(everyone)
                # Strata: those kept, by length, in B equal parts.
                sorted_sizes = np.sort(sizes[everyone]).reshape(8, updates)
                for actual in numbers:
                    lengths = sizes[actual]
                    self.assertTrue((sorted_sizes[:, 0] <= lengths).all())
                    self.assertTrue((lengths <= sorted_sizes[:, -1]).all())
            if n > 8:  # with one update there is one order
                self.assertFalse(np.array_equal(*seen[:2]))
            if n == 23:  # and others are left out
                self.assertNotEqual(set(seen[0]), set(seen[1]))

    @parameterized.parameters(*SIZES)
    def test_rows_never_overflow(self, name):
        for seed in range(4):
            sizes = SIZES[name](np.random.default_rng(seed), 29)
            source = self.source(sizes, 6, seed)
            first = source.batch(0)
            self.assertEqual(first.width, -(-sizes.max() // MULTIPLE) * 8)
            for step in range(40):
                batch = source.batch(step)
                self.assertLessEqual(batch.tokens.max(), batch.width)
                # A graph is traced for one shape.
                self.assertEqual(batch.slots.shape, first.slots.shape)
                self.assertEqual(batch.width, first.width)

    def test_equal_lengths_fall_into_other_strata_with_another_seed(self):
        strata = [
            self.source(np.full(40, 5), seed=seed).strata.order[:5].tolist()
            for seed in range(2)
        ]
        self.assertNotEqual(set(strata[0]), set(strata[1]))

    def test_two_texts(self):
        """Lets each of two texts be as long as a row."""
        source = self.source([40, 30] * 8, texts=2)
        self.assertEqual(source.batch(0).width, 72)


class ExamplesTest(absltest.TestCase):
    def test_taken(self):
        whole = make([2, 1, 3, 4, 1, 1], texts=2)
        actual = whole.select(np.array([2, 0]))
        same(actual.ids, [10, 11, 0, 1, 2])
        same(actual.segments, whole.segments[[10, 11, 0, 1, 2]])
        same(actual.begins, [0, 1, 2, 4, 5])
        same(actual.places, [0, 0, 1, 0])
        same(actual.targets['label'], [2, 0])
        same(actual.candidates['span'], [[2, 3], [0, 1]])
        self.assertIs(actual.counts, whole.counts)
        nobody = whole.select(np.zeros(0, int))
        self.assertEqual((nobody.size, len(nobody.ids)), (0, 0))

    def test_batch(self):
        whole = make([2, 1, 3, 4, 1, 1], texts=2)
        slots = np.array([[1, 0, -1]])
        actual = whole.batch(np.array([1, 0]), slots, 16)
        same(actual.lengths, [[3, 4], [2, 1]])
        self.assertEqual(actual.ids.shape, (2, 2, 4))
        for b, k, ids in (
            (0, 0, [3, 4, 5]), (0, 1, [6, 7, 8, 9]), (1, 0, [0, 1]),
            (1, 1, [2]),
        ):  # fmt: skip
            same(actual.ids[b, k, : len(ids)], ids)
            same(actual.segments[b, k, : len(ids)], np.array(ids) % 3)
        same(actual.places, [[2, 3], [1, 0]])
        same(actual.numbers, [1, 0])
        same(actual.targets['label'], [1, 0])
        same(actual.sizes, [[3, 7, 0]])
        same(actual.tokens, [10])


class LayOutTest(parameterized.TestCase):
    """Against what the model itself reads when it is asked about strings."""

    def setUp(self):
        super().setUp()
        self.loaded = workdirs.loaded()

    def format_texts(self, sides, length, loaded=None, **more):
        template = (loaded or self.loaded).template
        targets = {'label': np.arange(5)}
        return format_texts(template, sides, length, targets, **more)

    def test_the_last_token_that_is_no_padding(self):
        layout = Layout((), ('[SEP]', '[SEP]'), padding='[SEP]')
        template = Template(self.loaded.tokenizer, layout)
        columns = [['a', '', 'no no'], ['', 'a', 'no']]
        sides = [(column, None) for column in columns]
        examples, _ = format_texts(template, sides, 9, {})
        # Of nothing but padding the first token.
        same(examples.places, np.maximum(np.diff(examples.begins) - 3, 0))
        self.assertGreater(examples.places[4], examples.places[5])

    def test_long_work_says_how_far_it_is(self):
        printed = io.StringIO()
        with (
            mock.patch.object(commands, 'BAR_EVERY', 0),
            contextlib.redirect_stderr(printed),
        ):
            self.format_texts([(TEXTS, None)], 12, chunk=2)
        last = printed.getvalue().splitlines()[-1]
        self.assertRegex(last, '^tokenizing: 100%.* 5/5 .* texts/s')

    def in_layout(self, name):
        """The model as if its config said another layout."""
        config = self.loaded.config.replace(layout=name)
        return self.loaded.with_config(config)

    def read(self, loaded, first, second, max_length):
        """By text, the ids and segments that the encoder gets, [T] each."""
        ids, lengths, begins = loaded.format_texts(first, second, max_length)
        encoder = mock.Mock()
        encoder.arguments = {'segments': 3}
        encoder.return_value.states = np.zeros(1)
        with mock.patch.object(loaded.workdir, 'encoder', encoder):
            loaded.states(ids, lengths, second=begins)
        (inputs,), _ = encoder.call_args
        segments = inputs.segment_ids
        if segments is None:
            segments = np.zeros_like(ids)
        segments = np.broadcast_to(segments, ids.shape)
        return [
            (x[:n], s[:n])
            for x, s, n in zip(ids.numpy(), segments, lengths, strict=True)
        ]

    def check(self, actual, texts, expected):
        """These texts of examples have these ids and segments."""
        for text, (ids, segments) in zip(texts, expected, strict=True):
            one = slice(*actual.begins[text : text + 2])
            same(actual.ids[one], ids)
            same(actual.segments[one], segments)

    @parameterized.product(layout=list(LAYOUTS), pairs=(False, True))
    def test_equals_what_is_read(self, layout, pairs):
        loaded = self.in_layout(layout)
        second = PAIRS if pairs else None
        actual, _ = self.format_texts([(TEXTS, second)], 12, loaded, chunk=2)
        expected = self.read(loaded, TEXTS, second, 12)
        self.assertEqual(actual.size, 5)
        self.check(actual, range(5), expected)
        last = np.array([len(ids) - 1 for ids, _ in expected])
        places = np.zeros(5) if LAYOUTS[layout].first else last
        same(actual.places, places)
        self.assertEqual(actual.texts, 1)
        # Segments are there where the layout has some, and only there.
        marked = LAYOUTS[layout].last_segment or (
            pairs and LAYOUTS[layout].second_segment
        )
        self.assertEqual(actual.segments.any(), bool(marked))

    def test_several_texts(self):
        sides = [(TEXTS, PAIRS), (PAIRS, TEXTS)]
        actual, _ = self.format_texts(sides, 16, chunk=3)
        self.assertEqual((actual.size, actual.texts), (5, 2))
        for k, both in enumerate(sides):
            expected = self.read(self.loaded, *both, 16)
            self.check(actual, range(k, 10, 2), expected)

    def test_what_is_cut_is_counted(self):
        """A text that just fits is not cut."""
        whole, cut = self.format_texts([(TEXTS, None)], 64)
        self.assertEqual(cut, 0)
        sizes = np.sort(whole.sizes)
        for length in (sizes[-1], sizes[-1] - 1, sizes[-2], sizes[-2] - 1):
            actual, cut = self.format_texts([(TEXTS, None)], length)
            self.assertEqual(cut, (sizes > length).sum(), length)
            self.assertEqual(actual.sizes.max(), length)
            # Its end is cut; [SEP] stays.
            i = int(np.argmax(whole.sizes))
            one = slice(*actual.begins[i : i + 2])
            left = whole.ids[whole.begins[i] :][: length - 1]
            same(actual.ids[one], [*left, self.loaded.tokenizer.sep_id])

    def test_whichever_of_its_texts_are_cut(self):
        """An example of which both are is counted once."""
        others = [PAIRS[0], TEXTS[3], *PAIRS[2:]]
        sides = [(TEXTS, None), (others, None)]
        whole, _ = self.format_texts(sides, 64)
        sizes = np.diff(whole.begins).reshape(5, 2)
        for length in (4, 6):
            longer = sizes > length
            self.assertFalse(longer[:, 0].all())
            self.assertTrue((longer[:, 1] > longer[:, 0]).any())
            self.assertTrue(longer.all(axis=1).any())
            _, cut = self.format_texts(sides, length)
            self.assertEqual(cut, longer.any(axis=1).sum())
