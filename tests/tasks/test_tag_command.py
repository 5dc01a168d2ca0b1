"""tasks.tag: files and their labels, and a run on real text."""

import contextlib
import gzip
import io
import json
import pathlib
from pydoc_data import topics

import numpy as np
import pyarrow
from absl.testing import absltest, parameterized
from pyarrow import parquet

import infoword_tf
from infoword_tf.evaluation import commonest
from infoword_tf.views import flatten, unflatten
from infoword_tf.views.examples import EXAMPLES, by_token
from tasks import finetune, tag, tag_data, tag_scores, tag_windows
from tests import places, quick, zoo
from tests.export import workdirs
from tests.refused import refused
from tests.tasks import finetuning, squad_files

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
4.1\t_\t_\t_

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
        self.assertEqual((bare.words, bare.tags), ([['a', 'b'], ['c']], []))

    def test_columns_of_conll_u(self):
        tagged = tag_data.read(
            write('a.conllu', CONLLU), tag_data.TagColumns(word=1, label=3)
        )
        self.assertEqual(tagged.words, [['A', 'le', 'revoir', '#']])
        self.assertEqual(tagged.tags, [['ADP', 'DET', 'NOUN', 'SYM']])
        # A first word that is a mark, in columns with and without tabs.
        text = '# SYM\n1 NUM\n# SYM\n'
        for mark in ' \t':
            path = write('mark.conll', text.replace(' ', mark))
            tagged = tag_data.read(path, COLUMNS)
            self.assertEqual(tagged.words, [['#', '1', '#']])

    @parameterized.parameters(
        # What stands before a text: MultiCoNER, OntoNotes and others.
        ('# id ab-0 domain=en\n', '{} _ _ {}\n'),
        ("#\tid='0'-document_id='3'\n", '{}\t{}\n'),
        ('#begin document (bc/00); part 000\n', '{} {}\n'),
        ('#end document\n\n#begin document\n', '{} {}\n'),
        ('# newpar\n# text\n', '{}\t{}\n'), ('# newpar\n', '{} {}\n'),
    )
    def test_remarks_before_texts(self, head, line):
        """Words that begin with # stand in texts, and before them."""
        lines = [('#a', 'O'), ('b', 'B-X'), ('#c', 'I-X')]
        text = head + ''.join(line.format(*x) for x in lines) + '\n'
        path = write('remarks.conll', 2 * text)
        tagged = tag_data.read(path, COLUMNS)
        self.assertEqual(tagged.words, 2 * [['#a', 'b', '#c']])
        self.assertEqual(tagged.tags, 2 * [['O', 'B-X', 'I-X']])
        unread = tag_data.read(path, COLUMNS, labelled=False)
        self.assertEqual(unread.words, tagged.words)
        bare = write('bare.conll', f'{head}#a\nb\n#c\n')
        bare = tag_data.read(bare, COLUMNS, labelled=False)
        self.assertEqual(bare.words, [['#a', 'b', '#c']])

    @parameterized.parameters('B_PER I_PER O', 'PER-B PER-I O', 'B-PER E-PER O',
                              'b-PER i-PER o', 'B-PER I-PER O')  # fmt: skip
    def test_spans_however_they_are_written(self, labels):
        words = zip('abc', labels.split(), strict=True)
        path = write('w.conll', ''.join(f'{x} {y}\n' for x, y in words))
        choices = tag.TagChoices(train=path, dev=path)
        train = tag.Tagging.read(choices).splits['train']
        self.assertEqual(train.tags, [['B-PER', 'I-PER', 'O']])
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            tag.say_labels(train)
        self.assertIn("of 1 spans, by frequency 'PER' 1", shown.getvalue())

    def test_names_of_numbers_in_a_file(self):
        """Reads names of the file, or others that people name."""
        lists = {'tokens': [['a', 'b']], 'tags': [[1, 0]]}
        names = {'names': ['O', 'B-X'], '_type': 'ClassLabel'}
        about = {'info': {'features': {'tags': {'feature': names}}}}
        table = pyarrow.table(lists).replace_schema_metadata(
            {'huggingface': json.dumps(about)}
        )
        parquet.write_table(table, FOLDER / 'names.parquet')
        for more, expected in (((), 'B-X'), (('O', 'B-Y'), 'B-Y')):
            columns = tag_data.TagColumns(names=more)
            tagged = tag_data.read(str(FOLDER / 'names.parquet'), columns)
            self.assertEqual(tagged.tags, [[expected, 'O']])

    def test_some_texts_and_their_lines(self):
        text = ''.join(f'{line} T{line}\n\n' for line in range(1, 20, 2))
        few = tag_data.read(write('s.conll', text), COLUMNS).subset(2)
        self.assertEqual(few.words, [[str(line)] for line in few.lines])
        self.assertEqual(few.tags, [[f'T{line}'] for line in few.lines])
        self.assertEqual(few.spelled('bioes').tags, few.tags)

    def test_numbers_that_may_be_names(self):
        tagged = tag_data.read(write('d.conll', 'a 0\nb 3\n'), COLUMNS)
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            tag.say_labels(tagged)
        self.assertIn("2 words, by frequency '0' 1, '3' 1", shown.getvalue())
        self.assertIn('--names=', shown.getvalue())


class ScoresTest(parameterized.TestCase):
    @parameterized.parameters(*JUDGED)
    def test_counts_of_conlleval(self, true, guessed, expected, accuracy):
        true, guessed = true.split(), guessed.split()
        truth = tag_scores.truth_of([true], sorted({*true, *guessed}))
        numbers = [truth.labels.index(label) for label in guessed]
        counts = tag_scores.counts(truth, np.array(numbers))
        rows = zip(sorted(expected), map(tuple, counts.tolist()), strict=True)
        self.assertEqual(dict(rows), expected)
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
        self.assertAlmostEqual(truth.commonest().score, 2 / 3)
        self.assertEqual(truth.commonest().answer, "'NN' for every text")
        self.assertEqual(truth.frequencies, {'NN': 2, 'VB': 1})
        two = tag_data.Tagged('f', [['a', 'b']], [['NN', 'VB']], np.arange(1))
        self.assertEqual(tag.Tagging.of(two, two).labels, ('NN', 'VB'))

    def test_one_right_span_is_nothing_learned(self):
        """It is within the error of none, the error of a count."""
        truth = tag_scores.truth_of([['B-A', 'O'] * 50], ['O', 'B-A'])
        self.assertEqual(truth.frequencies, {'A': 50})
        for right, is_nothing in ((1, True), (2, False)):
            labels = np.zeros(100, np.int64)
            labels[: 2 * right : 2] = 1
            f1 = tag_scores.scores(truth, labels)['f1']
            sentence = commonest.complaint(
                'f1', f1, truth.commonest(), 400, 1e-4, 400
            )
            self.assertEqual(sentence is not None, is_nothing)


def windows(tagged, length=24, context=4):
    labels = tag_data.labels_of(tagged)
    model = workdirs.load(finetuning.init())
    return labels, tag_windows.features(
        tagged, labels, model.template, length, context, 'first'
    )


class WindowsTest(absltest.TestCase):
    def test_labels_stand_at_the_first_token_of_each_word(self):
        tagged = tag_data.read(write('c.conll', CONLL), COLUMNS)
        for length, context in ((24, 4), (7, 1)):
            labels, features = windows(tagged, length, context)
            self.assertEqual(labels, ('O', 'B-LOC', 'I-LOC', 'B-ORG', 'I-ORG',
                                      'B-PER', 'I-PER'))  # fmt: skip
            examples = features.examples
            targets = examples.of_tokens['tag']
            named = [labels[i] for i in targets if i >= 0]
            # U.S. is four words of a text.
            self.assertEqual(named, [
                'B-ORG', 'O', 'B-LOC', 'I-LOC', 'I-LOC', 'I-LOC', 'O', 'B-PER',
                'I-PER',
            ])  # fmt: skip
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
            view = EXAMPLES.make(batch, None, {'tag': 'text'}, zoo.SPECIALS)
            view = unflatten(flatten({'examples': view}))['examples']
            np.testing.assert_array_equal(
                by_token(view.targets['tag'], view), targets
            )
            self.assertEqual(view.weights['tag'].sum(), 9)

    def test_ends_of_spans_stand_at_the_last_part(self):
        tagged = tag_data.read(write('e.conll', CONLL), COLUMNS)
        tagged = tagged.spelled('bioes')
        self.assertEqual(tagged.tags[0], ['S-ORG', 'O', 'S-LOC', 'O'])
        labels, features = windows(tagged)
        targets = features.examples.of_tokens['tag']
        self.assertEqual([labels[i] for i in targets if i >= 0], [
            'S-ORG', 'O', 'B-LOC', 'I-LOC', 'I-LOC', 'E-LOC', 'O', 'B-PER',
            'E-PER',
        ])  # fmt: skip

    def test_a_text_that_the_tokenizer_cannot_read(self):
        path = write('z.conll', '\u200b O\n\nthe B-A\n')
        tagged = tag_data.read(path, COLUMNS).spelled('bioes')
        _, features = windows(tagged)
        self.assertEqual(features.words.tolist()[0], -1)
        self.assertIn('leaves nothing of 1 words', features.notes[1])
        nothing = tag_data.read(write('n.conll', '\u200b O\n'), COLUMNS)
        with refused('no_token_of_words', 'n.conll'):
            windows(nothing)

    def test_labels_that_training_lacks(self):
        tagged = tag_data.read(write('l.conll', 'the A\ncat B\n'), COLUMNS)
        model = workdirs.load(finetuning.init())
        actual = tag_windows.features(
            tagged, ('B', 'C'), model.template, 24, 4, 'first'
        )
        targets = actual.examples.of_tokens['tag'][actual.words]
        self.assertEqual(targets.tolist(), [-1, 0])
        self.assertRegex(actual.notes[-1], 'l.conll .* as mistakes: A$')

    def test_segments_and_the_place_of_the_whole_text(self):
        text = tag_data.read(write('x.conll', 'the O\ncat O\n'), COLUMNS)
        for layout, segments, place in (
            ('xlnet', [0, 0, 0, 2], 3), ('bert', [0, 0, 0, 0], 0)
        ):  # fmt: skip
            template = squad_files.template(layout)
            examples = tag_windows.features(
                text, ('O',), template, 24, 4, 'first'
            ).examples
            self.assertEqual(examples.segments.tolist(), segments)
            self.assertEqual(examples.places.tolist(), [place])


def real_text(path, topic):
    """Words of Python's topics, of which a few of two kinds are spans."""
    kinds = dict.fromkeys(('a', 'an', 'the'), 'B-ART')
    kinds |= dict.fromkeys(('of', 'to', 'in', 'for', 'with'), 'B-PRE')
    words = topics.topics[topic].split()[:500]
    lines = (
        f'{word}\t{kinds.get(word.lower(), "O")}\n' + '\n' * (number % 9 == 8)
        for number, word in enumerate(words)
    )
    pathlib.Path(path).write_text(''.join(lines), encoding='utf-8')
    return str(path)


class TagFlagsTest(absltest.TestCase):
    def test_where_files_have_words_and_labels(self):
        rows = {'of': ['a'], 'is': [1]}
        for text, flags in (
            ('B-X q a\n', ('--word_column=2', '--column=0')),
            (json.dumps(rows), ('--words=of', '--labels=is', '--names=O,B-X')),
        ):
            path = write(f'w.{"jsonl" if "{" in text else "conll"}', text)
            choices = quick.choices(
                *flags, f'--train={path}', f'--dev={path}', f'--test={path}',
                f'--predict={path}', '--scheme=bioes', kind=tag.TagChoices,
            )  # fmt: skip
            task = tag.Tagging.read(choices).with_others(choices)
            for tagged in (*task.splits.values(), task.tests):
                self.assertEqual(
                    (tagged.words, tagged.tags), ([['a']], [['S-X']])
                )
            unknown = task.unknown
            self.assertEqual((unknown.words, unknown.tags), ([['a']], []))

    def test_what_windows_hold(self):
        loaded = workdirs.load(finetuning.init())
        words = ['zq', *'cdefghijkl']  # the first is two tokens
        tagged = tag_data.Tagged(
            'f', 3 * [words], 3 * [['B-X', *'OOOOOOOOOO']], np.arange(3)
        )
        for flags, sizes, labels in (
            ('--seq_len=16', 3 * [14], [30, 3, 0]),
            ('--seq_len=16 --tag.tokens=all', 3 * [14], [30, 3, 3]),
            ('--seq_len=16 --examples=2', 2 * [14], [20, 2, 0]),
            ('--seq_len=8 --tag.context=0', 3 * [8, 8], [30, 3, 0]),
            ('--seq_len=8 --tag.context=1', 3 * [8, 8, 6], [30, 3, 0]),
        ):
            choices = quick.choices(
                f'--init={finetuning.init()}', *flags.split(),
                kind=tag.TagChoices,
            )  # fmt: skip
            actual = finetune.prepare(
                tag.Tagging.of(tagged, tagged), choices, loaded
            ).labelled.train
            with self.subTest(flags):
                self.assertEqual(actual.sizes.tolist(), sizes)
                self.assertEqual(actual.counts['tag'].tolist(), labels)


class TagsOfAFileTest(absltest.TestCase):
    def test_a_word_and_a_label_a_line(self):
        path = FOLDER / 'written.conll'
        words = [['a\tb ', 'x'], ['y']]
        tag.write_predictions(
            path, tag_data.Tagged('f', words, None, np.array([1, 4])),
            [['O', 'B-A'], ['I-A']],
        )  # fmt: skip
        self.assertEqual(path.read_text(), 'a b\tO\nx\tB-A\n\ny\tI-A\n')


class RunTest(absltest.TestCase):
    def test_from_files_to_labels(self):
        train = real_text(FOLDER / 'train.conll', 'assignment')
        dev = real_text(FOLDER / 'dev.conll', 'strings')
        workdir = FOLDER / 'run'
        init = workdirs.write(FOLDER / 'words', rows=('ict',), encoder='lookup')
        flags = (
            f'--init={init}', f'--train={train}', f'--dev={dev}',
            '--scheme=bioes', '--epochs=4', '--learning_rate=0.03',
            '--log_every=100',
            f'--test={dev}', f'--predict={dev}', f'--workdir={workdir}',
        )  # fmt: skip
        done = finetuning.run(tag, *flags)
        result = finetuning.last_line(done)
        self.assertContainsSubset(
            ('precision', 'recall', 'accuracy', 'ceiling'), result
        )
        self.assertGreater(result['f1'], 0.8)
        self.assertLess(result['mi'], result['ceiling'])
        # Chosen weights give the same scores out of the workdir, of a file
        # that is spelled in another scheme.
        for name in tag_scores.SPANS:
            self.assertAlmostEqual(
                result[f'test_{name}'], result[name], places=6
            )
        self.assertIn('PRE ', done.out)
        (words, tags), (same, predicted) = (
            zip(*(line.split('\t') for line in text.split('\n') if line),
                strict=True)
            for text in (
                pathlib.Path(dev).read_text(),
                (workdir / tag.PREDICTIONS).read_text(),
            )
        )  # fmt: skip
        self.assertEqual(words, same)
        right = [
            one == other.replace('B-', 'S-')  # spans are a word each
            for one, other in zip(predicted, tags, strict=True)
        ]
        self.assertAlmostEqual(result['accuracy'], np.mean(right), places=6)
        loaded = infoword_tf.load(workdir)
        self.assertIn('S-PRE', loaded.config.labels)
        (spans,) = loaded.tag(['It names the object, of a kind.'])
        self.assertEqual(
            [span[:2] for span in spans],
            [('the', 'ART'), ('of', 'PRE'), ('a', 'ART')],
        )
