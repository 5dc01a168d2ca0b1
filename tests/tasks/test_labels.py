"""Lines about labels before a run, and doubts of some labels."""

from absl.testing import parameterized

from tasks import labels


class LabelsTest(parameterized.TestCase):
    @parameterized.parameters(
        ({'a': 1, 'b': 2000},
         "2 labels of rows, by frequency 'b' 2,000, 'a' 1"),
        ({'a': 1}, "1 label of rows, by frequency 'a' 1"),
        (dict(zip('abcdefg', range(7), strict=True)),
         "7 labels of rows, by frequency 'g' 6, 'f' 5, 'e' 4, ..., 'c' 2, "
         "'b' 1, 'a' 0"),
    )  # fmt: skip
    def test_labels_are_counted(self, counts, expected):
        self.assertEqual(labels.line('f', counts), f'f: {expected}')

    @parameterized.parameters(
        # Rows of no label.
        ('yes no -', '--drop_label=-'), ('yes no -1', '--drop_label=-1'),
        ('0 1 2 -1', '--drop_label=-1'), ('3 7 -', '--drop_label=-'),
        ('-1 1', None), ('1 2 -1', None), ('yes no', None), ('0 1', None),
        # Several labels in a cell.
        ('a a;_b b b;_c', "--separator=';'"), ('2 2,27 27 3,27', "','"),
        ('x|y x|z y|z x|y|z', "--separator='|'"),
        ('a b c;d', None), ('Rome,IT Bonn,DE Kiel,DE', None),
        ('a/b a/c b a', None), ('a;b b;c a', None),  # no fewer of them
    )  # fmt: skip
    def test_what_is_doubted(self, names, advice):
        every = (name.replace('_', ' ') for name in names.split())
        actual = [*labels.doubts('f', dict.fromkeys(every, 3))]
        self.assertLen(actual, 0 if advice is None else 1)
        for sentence in actual:
            self.assertStartsWith(sentence, 'f: ')
            self.assertIn(advice, sentence)

    @parameterized.parameters(('0 3', True), ('O B-X', False), ('1 x', False))
    def test_numbers_of_words(self, names, is_doubted):
        actual = [*labels.doubts_of_words('f', dict.fromkeys(names.split(), 1))]
        self.assertEqual('--names=' in ''.join(actual), is_doubted)
