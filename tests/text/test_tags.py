"""Labels of spans: schemes told apart and spelled again, spans as conlleval."""

import numpy as np
from absl.testing import parameterized

from infoword_tf.text import tags
from tests.refused import refused

# One text in three schemes: two spans of a type side by side, and one alone.
IOB1 = 'I-PER I-PER B-PER O I-LOC I-ORG'.split()
IOB2 = 'B-PER I-PER B-PER O B-LOC B-ORG'.split()
BIOES = 'B-PER E-PER S-PER O S-LOC S-ORG'.split()
BILOU = 'B-PER L-PER U-PER O U-LOC U-ORG'.split()
BMES = 'B-PER M-PER M-PER E-PER O S-LOC'.split()


def spans(text, simple=False):
    labels = sorted({*text})
    kinds = tags.kinds_of(labels, simple)
    numbers = np.array([labels.index(tag) for tag in text])
    first = np.arange(len(text)) == 0
    return [
        (begin, end, kinds.types[kind])
        for begin, end, kind in tags.spans(numbers, first, kinds).tolist()
    ]


class SchemeTest(parameterized.TestCase):
    @parameterized.parameters(
        (IOB1, tags.IOB1), (IOB2, tags.IOB2), (BIOES, tags.BIOES),
        (BILOU, tags.BIOES), ('DT NN VB . O'.split(), ''), (['O', 'O'], ''),
        (BMES, tags.BIOES), ('B-PER M-PER'.split() + BMES[3:], tags.BIOES),
        ('-LRB- NN-X -RRB-'.split(), ''),
        # One stray I- does not make a file of IOB2 one of IOB1.
        ('B-PER O B-LOC O I-ORG'.split(), tags.IOB2),
    )  # fmt: skip
    def test_the_scheme_of_a_text(self, text, scheme):
        self.assertEqual(tags.scheme_of([text], ['x']), scheme)

    @parameterized.product(
        text=(IOB1, IOB2, BIOES, BILOU),
        scheme=((tags.IOB1, IOB1), (tags.IOB2, IOB2), (tags.BIOES, BIOES)),
    )
    def test_every_scheme_is_spelled_in_every_other(self, text, scheme):
        name, expected = scheme
        self.assertEqual(tags.spelled(text, name), expected)
        self.assertEqual(
            spans(text),
            [(0, 2, 'PER'), (2, 3, 'PER'), (4, 5, 'LOC'), (5, 6, 'ORG')],
        )

    def test_the_inside_of_bmes(self):
        self.assertEqual(
            tags.spelled(BMES, tags.IOB2),
            'B-PER I-PER I-PER I-PER O B-LOC'.split(),
        )
        self.assertEqual(spans(BMES), [(0, 4, 'PER'), (5, 6, 'LOC')])
        with refused('tags_without_end', 'word 3', "'PER'"):
            tags.scheme_of(['B-PER M-PER O S-LOC'.split()], ['f'])

    @parameterized.parameters(*tags.SCHEMES)
    def test_a_text_without_words(self, scheme):
        self.assertEqual(tags.spelled([], scheme), [])

    @parameterized.parameters(
        ('O B_PER I_PER', 'O B-PER I-PER'),
        ('O PER-B PER-I LOC_B', 'O B-PER I-PER B-LOC'),
        ('o b-per i-per s_loc', 'O B-per I-per S-loc'),
        ('O B_PER I_PER A-B_C', ''), ('O B-PER I-PER', ''),
        ('B_PER I_PER', ''), ('O I_PER', ''), ('O NN VB', ''),
        ('O B-B I-B', ''), ('O B-b_B', ''),
    )  # fmt: skip
    def test_other_ways_to_write_labels(self, labels, expected):
        spellings = tags.hyphened(labels.split())
        actual = ' '.join(spellings.get(x, '') for x in labels.split())
        self.assertEqual(actual.strip(), expected)

    @parameterized.parameters(
        ('B-PER PER', 'tags_of_no_scheme', 'f, word 2', "'PER'", "'B-PER'"),
        ('O I-PER E-PER', 'tags_without_end', 'f, word 2', "'I-PER'"),
        ('B-PER O S-LOC', 'tags_without_end', 'f, word 2', "'PER'", "'O'"),
        ('B-PER E-LOC', 'tags_without_end', 'f, word 2', "'E-LOC'"),
        ('S-LOC B-PER', 'tags_without_end', 'f, word 2', "'PER'"),
    )
    def test_what_is_no_scheme(self, text, name, *values):
        with refused(name, *values):
            tags.scheme_of([text.split()], ['f'])


class SpansTest(parameterized.TestCase):
    @parameterized.parameters(
        # A span begins after O, at another type and at B-, wherever I- is.
        ('O I-A I-A I-B B-B', [(1, 3, 'A'), (3, 4, 'B'), (4, 5, 'B')]),
        ('B-A I-A O I-A', [(0, 2, 'A'), (3, 4, 'A')]),
        ('S-A S-A B-A E-A E-A', [(0, 1, 'A'), (1, 2, 'A'), (2, 4, 'A'),
                                 (4, 5, 'A')]),
        ('B-A-B I-A-B', [(0, 2, 'A-B')]),
        ('NN NN O VB', [(0, 1, 'NN'), (1, 2, 'NN'), (3, 4, 'VB')]),
        ('O O', []),
    )  # fmt: skip
    def test_spans_written_out(self, text, expected):
        self.assertEqual(spans(text.split()), expected)

    @parameterized.parameters(
        ('B-A I-A B-A', [(0, 2, 'A'), (2, 3, 'A')]),
        ('NN NN O VB', [(0, 2, 'NN'), (3, 4, 'VB')]),
        ('S-A S-A E-A', [(0, 2, 'S-A'), (2, 3, 'E-A')]),
    )
    def test_simple_spans_of_transformers(self, text, expected):
        self.assertEqual(spans(text.split(), simple=True), expected)

    @parameterized.parameters(
        ('B-A O B-B I-B', 'S-A O B-B E-B'),
        ('I-A I-A S-B E-B', 'B-A E-A S-B S-B'),
        ('O O', 'O O'),
    )
    def test_ends_of_spans_are_spelled(self, text, expected):
        labels = ['O'] + [f'{x}-{k}' for k in 'AB' for x in 'BIES']
        numbers = np.array([labels.index(x) for x in text.split()])
        actual = tags.with_ends(numbers, np.arange(len(numbers)) == 0, labels)
        self.assertEqual([labels[i] for i in actual], expected.split())

    @parameterized.parameters('O B-A I-A', 'O B-A I-A L-A U-A')
    def test_ends_of_other_schemes_stay(self, labels):
        numbers = np.arange(len(labels.split()))
        actual = tags.with_ends(numbers, numbers == 0, labels.split())
        np.testing.assert_array_equal(actual, np.arange(len(numbers)))

    def test_a_text_ends_a_span(self):
        kinds = tags.kinds_of(['O', 'I-A'])
        actual = tags.spans(
            np.array([1, 1, 1]), np.array([True, False, True]), kinds
        )
        np.testing.assert_array_equal(actual, [[0, 2, 0], [2, 3, 0]])
