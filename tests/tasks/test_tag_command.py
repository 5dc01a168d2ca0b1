"""tasks.tag: files and their labels, and a run on real text."""

import gzip
import json
import pathlib
from pydoc_data import topics

import numpy as np
from absl.testing import absltest, parameterized

import infoword_tf
from infoword_tf.views import flatten, unflatten
from infoword_tf.views.examples import EXAMPLES, by_token
from tasks import distill, tag, tag_data, tag_scores, tag_windows
from tests import places
from tests.export import workdirs
from tests.refused import refused
from tests.tasks import finetuning

COLUMNS = tag_data.TagColumns()
CONLL = '''-DOCSTART- -X- O

EU NNP B-ORG
rejects VBZ O
U.S. NNP B-LOC
call NN O

Peter NNP B-PER
Blackburn NNP I-PER
'''
CONLLU = '''# newdoc id = first of all
# newpar
# a remark of many words
# sent_id = 1
# text = Au revoir # 1
1-2\tAu\t_\t_
1\tA\tà\tADP
2\tle\tle\tDET
3\trevoir\trevoir\tNOUN
4\t#\t#\tSYM

'''
# What conlleval of CoNLL-2003 printed: spans of a type that are right, guessed
# and true, and accuracy in percent.
JUDGED = (
    ('B-A I-A O B-B', 'B-A I-A O O', {'A': (1, 1, 1), 'B': (0, 0, 1)}, 75.0),
    ('B-A I-A O B-B', 'B-A O O I-B', {'A': (0, 1, 1), 'B': (1, 1, 1)}, 50.0),
    ('I-A I-A I-B B-B', 'I-A B-A I-B I-B',
     {'A': (0, 2, 1), 'B': (0, 1, 2)}, 50.0),
    ('B-A O I-A I-A', 'B-A O B-A I-A', {'A': (2, 2, 2)}, 75.0),
    ('O O B-A', 'B-A B-A B-A', {'A': (1, 3, 1)}, 100 / 3),
)  # fmt: skip


def setUpModule():
    global FOLDER
    FOLDER = places.make()


def write(name, text):
    path = FOLDER / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


class FilesTest(parameterized.TestCase):
    def test_columns_of_conll(self):
        tagged = tag_data.read(write('a.conll', CONLL), COLUMNS)
        self.assertEqual(
            tagged.words,
            [['EU', 'rejects', 'U.S.', 'call'], ['Peter', 'Blackburn']],
        )
        self.assertEqual(tagged.tags[1], ['B-PER', 'I-PER'])
        self.assertEqual(tagged.lines.tolist(), [3, 8])
        parts = tag_data.read(
            write('a.conll.gz', gzip.compress(CONLL.encode())),
            tag_data.TagColumns(label=1),
        )
        self.assertEqual(parts.tags[1], ['NNP', 'NNP'])
        bare = tag_data.read(write('b.conll', 'a\nb\n\nc'), COLUMNS, False)
        self.assertEqual((bare.words, bare.tags), ([['a', 'b'], ['c']], None))

    def test_columns_of_conll_u(self):
        tagged = tag_data.read(
            write('a.conllu', CONLLU), tag_data.TagColumns(word=1, label=3)
        )
        self.assertEqual(tagged.words, [['A', 'le', 'revoir', '#']])
        self.assertEqual(tagged.tags, [['ADP', 'DET', 'NOUN', 'SYM']])
        # A first word that is a mark, in columns with and without tabs.
        for name, text in (('tab', '#\tSYM\n1\tNUM\n'), ('bl', '# SYM\n1 NUM')):
            tagged = tag_data.read(write(f'{name}.conll', text), COLUMNS)
            self.assertEqual(tagged.words, [['#', '1']])

    def test_lists_of_a_table(self):
        lines = [
            {'tokens': ['Ada', 'ran'], 'tags': [1, 0]},
            {'tokens': ['x'], 'tags': [0]},
        ]
        path = write('a.jsonl', '\n'.join(map(json.dumps, lines)))
        names = tag_data.TagColumns(names=('O', 'B-PER'))
        tagged = tag_data.read(path, names)
        self.assertEqual(tagged.tags, [['B-PER', 'O'], ['O']])

    @parameterized.parameters(
        ('short.conll', 'a O\n\nb\n', 'tag_column_missing', 'line 3', '1'),
        ('none.conll', '\n\n', 'no_tagged_text', 'none.conll'),
        ('odd.jsonl', '{"tokens": ["a"], "tags": ["O", "O"]}',
         'unequal_tags', 'line 1', '1 words', '2 labels'),
        ('bare.jsonl', '{"tokens": [], "tags": []}', 'text_without_words',
         'line 1'),
        ('text.jsonl', '{"tokens": "a b", "tags": []}', 'no_list_of_words',
         'tokens', 'a b'),
    )
    def test_wrong_files(self, name, text, error, *values):
        columns = COLUMNS
        if error == 'tag_column_missing':
            columns = tag_data.TagColumns(label=1)
        with refused(error, *values):
            tag_data.read(write(name, text), columns)

    def test_numbers_without_names(self):
        path = write('n.jsonl', '{"tokens": ["a"], "tags": [2]}')
        with refused('label_without_name', "'2'", '2 --names', 'line 1'):
            tag_data.read(path, tag_data.TagColumns(names=('O', 'B-PER')))


class ScoresTest(parameterized.TestCase):
    @parameterized.parameters(*JUDGED)
    def test_counts_of_conlleval(self, true, guessed, expected, accuracy):
        true, guessed = true.split(), guessed.split()
        truth = tag_scores.truth_of([true], sorted({*true, *guessed}))
        numbers = [truth.labels.index(label) for label in guessed]
        counts = tag_scores.counts(truth, np.array(numbers))
        self.assertEqual(
            dict(zip(sorted(expected), map(tuple, counts.tolist()),
                     strict=True)),
            expected,
        )  # fmt: skip
        scores = tag_scores.scores(truth, np.array(numbers))
        self.assertAlmostEqual(100 * scores['accuracy'], accuracy)
        right, guesses, all_ = counts.sum(axis=0)
        self.assertAlmostEqual(scores['precision'], right / guesses)
        self.assertAlmostEqual(scores['recall'], right / all_)

    def test_words_that_mark_no_spans(self):
        truth = tag_scores.truth_of([['NN', 'VB'], ['NN']], ['NN', 'VB'])
        self.assertEqual(
            tag_scores.scores(truth, np.array([0, 0, 0])), {'accuracy': 2 / 3}
        )
        self.assertAlmostEqual(truth.commonest.score, 2 / 3)
        self.assertEqual(truth.commonest.answer, "'NN' for every text")


class WindowsTest(absltest.TestCase):
    def test_labels_stand_at_the_first_token_of_each_word(self):
        loaded = infoword_tf.load(finetuning.init())
        tagged = tag_data.read(write('c.conll', CONLL), COLUMNS)
        labels = tag_data.labels_of(tagged)
        self.assertEqual(labels, ('O', 'B-LOC', 'I-LOC', 'B-ORG', 'I-ORG',
                                  'B-PER', 'I-PER'))  # fmt: skip
        for length, context in ((24, 4), (7, 1)):
            features = tag_windows.features(
                tagged, labels, loaded.template, length, context, 'first'
            )
            examples = features.examples
            targets = examples.of_tokens['tag']
            named = [labels[i] for i in targets if i >= 0]
            # U.S. is four words of a text.
            self.assertEqual(
                named,
                ['B-ORG', 'O', 'B-LOC', 'I-LOC', 'I-LOC', 'I-LOC', 'O',
                 'B-PER', 'I-PER'],
            )  # fmt: skip
            self.assertEqual(examples.counts['tag'].sum(), 9)
            self.assertEqual(
                [labels[i] for i in targets[features.words]],
                [label for text in tagged.tags for label in text],
            )
            self.assertLessEqual(examples.sizes.max(), length)
            # Back out of a batch, whose order is another.
            order = np.random.default_rng(0).permutation(examples.size)
            slots = np.full((examples.size + 1, 2), -1)
            slots[order + (order > 0), 0] = np.arange(examples.size)
            batch = examples.batch(np.arange(examples.size), slots, 32)
            view = EXAMPLES.make(
                batch, None, {'tag': 'text'}, loaded.tokenizer.specials
            )
            view = unflatten(flatten({'examples': view}))['examples']
            np.testing.assert_array_equal(
                by_token(view.targets['tag'], view), targets
            )
            self.assertEqual(view.weights['tag'].sum(), 9)

    def test_ends_of_spans_stand_at_the_last_part(self):
        loaded = infoword_tf.load(finetuning.init())
        tagged = tag_data.read(write('e.conll', CONLL), COLUMNS)
        tagged = tagged.spelled('bioes')
        self.assertEqual(tagged.tags[0], ['S-ORG', 'O', 'S-LOC', 'O'])
        labels = tag_data.labels_of(tagged)
        features = tag_windows.features(
            tagged, labels, loaded.template, 24, 4, 'first'
        )
        targets = features.examples.of_tokens['tag']
        self.assertEqual(
            [labels[i] for i in targets if i >= 0],
            ['S-ORG', 'O', 'B-LOC', 'I-LOC', 'I-LOC', 'E-LOC', 'O', 'B-PER',
             'E-PER'],
        )  # fmt: skip

    def test_every_token_of_a_word(self):
        loaded = infoword_tf.load(finetuning.init())
        tagged = tag_data.read(write('d.conll', CONLL), COLUMNS)
        features = tag_windows.features(
            tagged, tag_data.labels_of(tagged), loaded.template, 24, 4, 'all'
        )
        targets = features.examples.of_tokens['tag']
        specials = 2 * features.examples.size
        self.assertEqual((targets >= 0).sum(), len(targets) - specials)


def real_text(path, topic):
    """Words of Python's topics, of which a few of two kinds are spans."""
    kinds = dict.fromkeys(('a', 'an', 'the'), 'B-ART')
    kinds |= dict.fromkeys(('of', 'to', 'in', 'for', 'with'), 'B-PRE')
    words = topics.topics[topic].split()[:900]
    lines = (
        f'{word}\t{kinds.get(word.lower(), "O")}\n' + '\n' * (number % 9 == 8)
        for number, word in enumerate(words)
    )
    pathlib.Path(path).write_text(''.join(lines), encoding='utf-8')
    return str(path)


class RunTest(absltest.TestCase):
    def test_from_files_to_labels_and_a_student(self):
        train = real_text(FOLDER / 'train.conll', 'assignment')
        dev = real_text(FOLDER / 'dev.conll', 'strings')
        workdir = FOLDER / 'run'
        init = workdirs.write(
            FOLDER / 'words', rows=('ict',), encoder='lookup'
        )
        flags = (
            f'--init={init}', f'--train={train}', f'--dev={dev}',
            '--scheme=bioes', '--epochs=4', '--learning_rate=0.02',
            f'--test={dev}', f'--predict={dev}', f'--workdir={workdir}',
        )  # fmt: skip
        done = finetuning.run(tag, *flags)
        result = finetuning.last_line(done)
        self.assertContainsSubset(
            ('precision', 'recall', 'accuracy', 'ceiling'), result
        )
        self.assertGreater(result['f1'], 0.8)
        self.assertLess(result['mi'], result['ceiling'])
        # Chosen weights give the same scores out of the workdir.
        self.assertAlmostEqual(result['test_f1'], result['f1'], places=6)
        self.assertIn('PRE ', done.out)
        columns = [
            line.split('\t')
            for line in (workdir / 'predictions.conll').read_text().split('\n')
            if line
        ]
        loaded = infoword_tf.load(workdir)
        tagged = tag_data.read(dev, COLUMNS)
        predicted = loaded.tag_words(tagged.words)
        self.assertEqual(
            columns,
            [[word, label]
             for words, labels in zip(tagged.words, predicted, strict=True)
             for word, label in zip(words, labels, strict=True)],
        )  # fmt: skip
        self.assertIn('S-PRE', loaded.config.labels)
        (spans,) = loaded.tag(['It names the object, of a kind.'])
        self.assertEqual(
            [span[:2] for span in spans],
            [('the', 'ART'), ('of', 'PRE'), ('a', 'ART')],
        )
        student = FOLDER / 'student'
        done = finetuning.run(
            distill, '--task=tag', f'--teacher={workdir}', f'--train={train}',
            f'--dev={dev}', '--patience=none', '--scheme=bioes', '--epochs=1',
            f'--workdir={student}',
        )  # fmt: skip
        taught = finetuning.last_line(done)
        self.assertAlmostEqual(taught['teacher_f1'], result['f1'], places=6)
        self.assertEqual(
            infoword_tf.load(student).config.labels, loaded.config.labels
        )


if __name__ == '__main__':
    absltest.main()
