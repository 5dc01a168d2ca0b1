"""tasks.words on words whose meanings are angles."""

from unittest import mock

import numpy as np
from absl.testing import parameterized

import infoword_tf
from infoword_tf.inference import wordvectors
from infoword_tf.inference.wordvectors import WordVectors
from tasks import words
from tests import places
from tests.tasks import command

# By word its angle in degrees; lengths differ.
ANGLES = {'up': 90, 'high': 80, 'right': 0, 'down': -90, 'east': 5, 'low': -75}
PAIRS = ['up\thigh\t9', 'right\tEast\t9.5', 'up\tright\t3', 'low\tup\t0.5',
         'up\tnowhere\t4']  # fmt: skip


def vectors(angles=ANGLES):
    a = np.radians(np.float32(list(angles.values())))
    lengths = np.arange(1, len(a) + 1)[:, None]
    return WordVectors(
        list(angles),
        (np.stack([np.cos(a), np.sin(a)], 1) * lengths).astype(np.float32),
    )


class WordsCommandTest(command.Checks, places.Folder, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.data = self.folder / 'data'
        self.data.mkdir()
        self.vectors = self.folder / 'vectors.txt'
        vectors().write(self.vectors)

    def test_other_layouts_of_pairs(self):
        """Comments, headers, columns between words and score and behind it.

        As gensim's copies, WS-353's own and SimLex-999's own have them.
        """
        path = self.data / 'pairs.tsv'
        header = ['# A collection', '# Word 1\tWord 2\tHuman (mean)']
        wide = [
            '\t'.join([*pair.split('\t')[:2], 'N', pair.split('\t')[2], '1'])
            for pair in PAIRS
        ]
        plain = words.read(self.write(path, PAIRS))
        for lines in (
            [*header, *PAIRS],
            ['Word 1\tWord 2\tHuman (mean)', *PAIRS],
            ['Word 1\tWord 2\tHuman (mean)\t1', *(f'{p}\t8' for p in PAIRS)],
            ['word1\tword2\tPOS\tSimLex999\tSD(SimLex)', *wide],
            [*PAIRS[:2], '', '# more', *PAIRS[2:]],
        ):
            self.assertEqual(words.read(self.write(path, lines)), plain)
        self.assertEqual(plain.scores, [9, 9.5, 3, 0.5, 4])
        questions = [*header, ': x', 'a b c d']
        self.assertEqual(
            words.read(self.write(path, questions)).words, [list('abcd')]
        )

    def write(self, path, lines):
        path.write_text('\n'.join(lines) + '\n')
        return path

    def test_a_word_as_it_is_written_comes_first(self):
        index = {'paris': 0, 'Paris': 1, 'rome': 2}
        actual, known = words.look_up(
            [['Paris', 'paris'], ['PARIS', 'Rome'], ['Oslo', 'rome']], index
        )
        np.testing.assert_array_equal(actual, [[1, 0], [0, 2], [-1, 2]])
        np.testing.assert_array_equal(known, [True, True, False])

    def test_questions(self):
        """The nearest to b - a + c that is none of the three."""
        vectors = WordVectors(
            ['king', 'man', 'woman', 'queen', 'apple'],
            np.float32(
                [[1, 1, 0], [1, 0, 0], [1, 0, 1], [1, 1, 1], [0, 1, -1]]
            ),
        )
        lines = [
            ': royal', 'man king woman queen', 'king man queen woman',
            ': fruit', 'man king woman apple', 'man king woman Pear',
        ]  # fmt: skip
        (self.data / 'questions.txt').write_text('\n'.join(lines))
        actual = words.measure(words.read(self.data / 'questions.txt'), vectors)
        self.assertEqual(actual['sections'], {'royal': 1.0, 'fruit': 0.0})
        self.assertEqual(actual['accuracy'], round(2 / 3, 4))
        self.assertEqual(actual['used'], 3)
        self.assertEqual(actual['left_out'], 1)
        self.assertEqual(words.lines_of('three', actual), [
            'three: right 0.6667 of 3; 1 left out, whose 1 words have no '
            'vector', '  royal: 1.0000', '  fruit: 0.0000',
        ])  # fmt: skip

    def test_question_words_are_no_answers(self):
        """b - a + c is nearest to c itself where a and b are alike."""
        units = np.float32([[1, 0], [1, 0.01], [0, 1], [0.1, 1]])
        units /= np.linalg.norm(units, axis=1, keepdims=True)
        np.testing.assert_array_equal(
            words.answers(units, np.array([[0, 1, 2], [1, 0, 2]])), [3, 3]
        )

    def run_it(self, *choices):
        return command.succeeded(command.run(
            words, f'--data_dir={self.data}', f'--workdir={self.folder}/out',
            *choices,
        ))  # fmt: skip

    def test_pairs(self):
        """Angles 10, 5, 90 and 165 rank as people say; one word is unknown."""
        (self.data / 'pairs.txt').write_text('\n'.join(PAIRS) + '\n')
        done = self.run_it(
            f'--vectors={self.vectors}', f'--word2vec={self.folder}/again.txt'
        )
        self.assertIn(
            'pairs: Spearman 100.00 of 4 pairs (95 %: -69.2 to 100.0); 1 left',
            done.out,
        )
        self.assertEqual(done.result['tests']['pairs'], {
            'spearman': 100.0, 'interval': [-69.2, 100.0], 'used': 4,
            'left_out': 1, 'unknown_words': 1,
        })  # fmt: skip
        again = wordvectors.read(self.folder / 'again.txt')
        np.testing.assert_array_equal(again.vectors, vectors().vectors)

    def test_words_of_a_model(self):
        """All that it has; of one that knows pieces those of the tests."""
        (self.data / 'pairs.txt').write_text('\n'.join(PAIRS))
        words_of_tests = 'up', 'high', 'right', 'East', 'low', 'nowhere'
        for kind, asked in ('words', ()), ('bytes', ([*words_of_tests],)):
            model = mock.Mock(tokenizer=mock.Mock(kind=kind))
            model.word_vectors.return_value = vectors()
            with mock.patch.object(infoword_tf, 'load', lambda _, x=model: x):
                self.run_it('--init=any')
            model.word_vectors.assert_called_once_with(*asked)
