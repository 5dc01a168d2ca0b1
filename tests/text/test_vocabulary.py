import itertools
import json
import random
from pydoc_data import topics

from absl.testing import absltest, parameterized

from infoword_tf.text import wordpiece
from infoword_tf.text.tokenizer import (
    read_vocabulary,
    sample_texts,
    write_vocabulary,
)
from tests import places, runs

SPECIALS = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
TEXTS = list(topics.topics.values())


class FileTest(places.Folder, absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = self.folder / 'vocab.txt'

    def test_write_then_read(self):
        # Pieces that other notions of a line would split.
        pieces = [*SPECIALS, 'a', '##b', 'é', '中', '\u2028', '\x85', '\x0c']
        write_vocabulary(self.path, pieces)
        self.assertEqual(read_vocabulary(self.path), pieces)
        write_vocabulary(str(self.path), pieces[:6])
        self.assertEqual(
            self.path.read_bytes(), b'[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n'
        )

    def test_other_line_ends(self):
        for text in ('\r\n'.join([*SPECIALS, 'a', '']),
                     '\n'.join([*SPECIALS, 'a'])):  # fmt: skip
            self.path.write_bytes(text.encode())
            self.assertEqual(read_vocabulary(self.path), [*SPECIALS, 'a'])

    def test_a_folder(self):
        with self.assertRaises(FileNotFoundError):
            read_vocabulary(self.path.parent)


class LearnTest(parameterized.TestCase):
    def assert_same(self, a, b):
        """As assertEqual, without pages of differences."""
        self.assertEqual(len(a), len(b))
        differ = [i for i, piece in enumerate(a) if piece != b[i]]
        if differ:
            self.fail(f'{len(differ)} of {len(a)} ids differ: {differ[:3]}...')

    @parameterized.parameters(7, 10, 50)
    def test_a_small_vocabulary_is_no_larger_than_asked(self, size):
        self.assertLessEqual(len(wordpiece.learn(TEXTS[:9], size)), size)
        self.assertLen({*wordpiece.learn(TEXTS[:9], 300)}, 300)

    def test_learns_words_and_their_ends(self):
        pieces = wordpiece.learn(TEXTS[::3], 2000)
        for word in ('the', 'python', 'class', '##ing', '##s', 'z', '##z'):
            self.assertIn(word, pieces)

    def test_another_process_learns_the_same(self):
        code = (
            'import json\n'
            'from pydoc_data import topics\n'
            'from infoword_tf.text import wordpiece\n'
            'pieces = wordpiece.learn(topics.topics.values(), 1000)\n'
            'print(json.dumps(pieces))'
        )
        printed = runs.python('-c', code).stdout
        self.assert_same(json.loads(printed), wordpiece.learn(TEXTS, 1000))

    def test_case(self):
        texts = ['Über CAFÉ Straße'] * 3
        pieces = wordpiece.learn(texts, 200)
        self.assertContainsSubset(['uber', 'cafe'], pieces)
        # A lower-cased tokenizer never looks an upper-case letter up.
        self.assertEqual([p for p in pieces[5:] if p != p.lower()], [])
        pieces = wordpiece.learn(texts, 200, False)
        self.assertContainsSubset(['Über', 'CAFÉ'], pieces)
        self.assertNotIn('uber', pieces)

    def test_small_text_gives_fewer(self):
        pieces = wordpiece.learn(['ab ab ab'], 1000)
        self.assertEqual(pieces[:5], SPECIALS)
        self.assertCountEqual(pieces[5:], ['a', 'b', '##b', 'ab'])

class SampleTest(absltest.TestCase):
    def texts(self):
        return [f'{i} ' + 'x' * (i % 500) for i in range(4000)]  # 1 MB

    def test_small_text_is_taken_whole(self):
        texts = self.texts()
        self.assertCountEqual(sample_texts(texts, 2.0), texts)

    def test_is_bounded_and_not_much_smaller(self):
        sampled = list(sample_texts(self.texts(), 0.1))
        size = sum(map(len, sampled))
        self.assertLessEqual(size, 100_000)
        self.assertGreater(size, 40_000)  # the last halving's loss
        self.assertContainsSubset(sampled, self.texts())

    def test_does_not_depend_on_the_order(self):
        texts = self.texts()
        sampled = sorted(sample_texts(texts, 0.1))
        for seed in range(5):
            random.Random(seed).shuffle(texts)
            self.assertEqual(sorted(sample_texts(texts, 0.1)), sampled)

    def test_nor_does_it_with_a_few_large_texts(self):
        for i in range(20):
            texts = [f'{i} {j} ' + 'x' * (700, 700, 100)[j] for j in range(3)]
            sampled = {
                tuple(sorted(sample_texts(order, 0.001)))
                for order in itertools.permutations(texts)
            }
            self.assertEqual(len(sampled), 1, f'of triple {i}')

    def test_is_no_prefix(self):
        sampled = set(sample_texts(self.texts(), 0.1))
        late = [text for text in self.texts()[2000:] if text in sampled]
        self.assertBetween(len(late) / len(sampled), 0.3, 0.7)

    def test_large_texts_leave_something(self):
        # Each fits; together they do not. One of them has to stay.
        for i in range(20):
            texts = [f'{i} {j} ' + 'x' * 700 for j in range(2)]
            sampled = list(sample_texts(texts, 0.001))
            self.assertEqual(len(sampled), 1, f'of pair {i}')

    def test_one_text_beyond_the_bound_stays(self):
        texts = ['x' * 5000]
        self.assertEqual(list(sample_texts(texts, 0.001)), texts)
