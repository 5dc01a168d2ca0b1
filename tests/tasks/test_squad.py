"""tasks.squad on small files of real text: what a run leaves."""

import json
import pathlib
import re
import types
from pydoc_data import topics
from unittest import mock

import numpy as np
from absl.testing import parameterized

import infoword_tf
from infoword_tf.config import Config
from infoword_tf.inference.answers import SURE
from infoword_tf.inference.reader import Answer, Reply
from tasks import squad, squad_answers, squad_data, squad_scores
from tests import places
from tests.runs import records
from tests.tasks import finetuning
from tests.tasks.command import Checks
from tests.tasks.finetuning import last_line
from tests.tasks.squad_files import asked, question, write

UMLAUTS = '\u00dcn\u00ef cat'
SENTENCE = re.compile(r'[A-Z][^.]{20,120}\.')


def paragraphs(topic, count, unanswered=0):
    """Real ones; a question asks for the third word of a sentence."""
    text = ' '.join(topics.topics[topic].split())
    actual = SENTENCE.findall(text)[: 3 * count]
    for number in range(count):
        three = actual[3 * number : 3 * number + 3]
        context = ' '.join(three)
        words = three[number % 3].split()
        name = f'{topic}-{number}'
        qas = [asked(context, words[2], ' '.join(words[:2]), name)]
        qas[0]['answers'][0]['answer_start'] = context.index(
            words[2], context.index(three[number % 3])
        )
        if number < unanswered:
            qas.append(question(f'{name}-none', 'why', is_impossible=True))
        yield context, *qas


def setUpModule():
    global FOLDER
    FOLDER = places.make()
    write(FOLDER / 'train.json', *paragraphs('assignment', 8))
    write(FOLDER / 'dev.json', *paragraphs('specialnames', 6))
    write(FOLDER / 'train2.json', *paragraphs('assignment', 8, 4))
    write(FOLDER / 'dev2.json', *paragraphs('specialnames', 6, 3))
    finetuning.init()


def run(name, *more, version='', run=finetuning.run):
    return run(
        squad, f'--init={finetuning.init()}', f'--workdir={FOLDER / name}',
        f'--train={FOLDER}/train{version}.json',
        f'--dev={FOLDER}/dev{version}.json', '--seq_len=40', '--batch_size=4',
        '--span.stride=12', *(['--version2'] if version else []), *more,
    )  # fmt: skip


def read(name, file):
    return json.loads((FOLDER / name / file).read_text())


def golds(version=''):
    path = FOLDER / f'dev{version}.json'
    return squad_data.read(path, version2=bool(version)).golds_by_id


class SquadTest(Checks, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.done = run('plain')

    def test_scores_are_of_the_predictions_that_it_writes(self):
        line = last_line(self.done)
        actual = read('plain', 'predictions.json')
        scores = squad_scores.scores(golds(), actual)
        self.assertAlmostEqual(line['f1'], scores['f1'], places=3)
        self.assertAlmostEqual(line['exact'], scores['exact_match'], places=3)
        self.assertFalse((FOLDER / 'plain' / 'null_odds.json').exists())
        # And they are those by which the weights were chosen.
        best = max(
            (r for r in records(FOLDER / 'plain') if 'heldout/span/f1' in r),
            key=lambda record: record['heldout/span/f1'],
        )
        self.assertEqual(line['step'], best['step'])
        self.assertAlmostEqual(line['f1'], best['heldout/span/f1'], places=3)
        self.assertEqual(read('plain', 'metrics.json')['f1'], line['f1'])

    def test_windows_are_said_and_mi_is_measured(self):
        self.assertRegex(self.done.out, r'dev.json: 6 questions in \d+ windows')
        line = last_line(self.done)
        self.assertAlmostEqual(
            line['mi'], line['ceiling'] - line['loss'], places=4
        )
        self.assertEqual(Config.read(FOLDER / 'plain').max_length, 40)

    def test_questions_without_an_answer(self):
        done = run('two', '--span.end=conditional', version='2')
        line = last_line(done)
        actual, odds = (
            read('two', name) for name in ('predictions.json', 'null_odds.json')
        )
        scores = squad_scores.scores2(golds('2'), actual)
        for name in ('f1', 'exact', 'HasAns_f1', 'NoAns_exact'):
            self.assertAlmostEqual(line[name], scores[name], places=3)
        threshold = Config.read(FOLDER / 'two').null_threshold
        self.assertEqual(line['null_threshold'], threshold)
        self.assertEqual(
            {name: text == '' for name, text in actual.items()},
            {name: value > threshold for name, value in odds.items()},
        )

    @parameterized.parameters(
        # Answered at 2, not at 0; no question is worth an answer; all are.
        ({'a': 2.0, 'b': 3.0}, {'a': ['cat'], 'b': []}, 2.0),
        ({'a': -1.0, 'b': -2.0}, {'a': [], 'b': []}, -SURE),
        ({'a': 5.0, 'b': 7.0}, {'a': ['cat'], 'b': ['dog']}, 7.0),
    )
    def test_scores_at_the_best_threshold(self, odds, golds, threshold):
        actual = squad_answers.Predictions({}, {'a': 'cat', 'b': 'dog'}, odds)
        questions = types.SimpleNamespace(golds_by_id=golds)
        scores, best = squad.judged(questions, actual, version2=True)
        self.assertEqual(best, threshold)
        self.assertEqual((scores['f1'], scores['exact']), (100.0, 100.0))

    @parameterized.parameters(
        # Articles do not count: all words have 2/5 with one of four right,
        # and 6/7 with three of four; the first 5 have 1/2 and 2/3.
        ({}, False, 'the first 10 words', 100 * 22 / 35, 100 * 8 / 35 / 2**0.5),
        # Three of five have no answer.
        ({'c': [], 'd': [], 'e': []}, True, 'no answer', 60.0,
         100 * (0.6 * 0.4 / 5) ** 0.5),
    )  # fmt: skip
    def test_the_commonest_answer(self, more, version2, answer, score, error):
        golds = {'a': ['cat'], 'b': ['sat on the mat'], **more}
        contexts = mock.Mock(raw=lambda _: b'The cat sat on the mat.')
        questions = types.SimpleNamespace(
            golds_by_id=golds, contexts=contexts, context=[0] * len(golds)
        )
        actual = squad.commonest_of(questions, version2)
        self.assertStartsWith(actual.answer, answer)
        self.assertAlmostEqual(actual.score, score)
        self.assertAlmostEqual(actual.error, error)

    def test_beside_other_rows(self):
        """Their text is the contexts, where no corpus is named."""
        prepared = run(
            'sum', '--objectives=span:1,mlm:0.1', run=finetuning.prepared
        )
        _, _, train = prepared.choices.corpus.partition(':')
        self.assertEqual(
            pathlib.Path(train).read_text().split('\n\n')[:-1],
            [context for context, *_ in paragraphs('assignment', 8)],
        )

    def test_some_of_the_questions(self):
        """Nothing is learned of them, which a line says."""
        done = run('some', '--examples=5', '--dev_examples=3', '--steps=1',
                   '--learning_rate=1e-9')  # fmt: skip
        self.assertIn('train.json: 5 questions', done.out)
        self.assertLen(read('some', 'predictions.json'), 3)
        line = last_line(done)
        self.assertIn('--steps=500', line['nothing_learned'])
        self.assertIn(f'f1 {line["f1"]:.4f} is no', done.out)

    def test_a_workdir_of_another_task(self):
        done = run('plain', '--version2', version='2')
        self.assert_refused(done, None, 'other flags')

    def test_defaults(self):
        choices = squad.SquadChoices()
        self.assertEqual((choices.seq_len, choices.epochs), (384, 2.0))
        self.assertEqual(choices.optimizer, 'adamw')


class SquadPartsTest(places.Folder, parameterized.TestCase):
    def test_no_answer_is_one_of_the_best(self):
        """With the score and the share that are left; words are whole."""
        path = write(
            self.folder / 'umlauts.json',
            (UMLAUTS, asked(UMLAUTS, '\u00dcn\u00ef', name='a'),
             question('b', 'who', is_impossible=True),
             question('c', 'why', is_impossible=True)),
        )  # fmt: skip
        workdir = self.folder
        Config.read(finetuning.init()).write(workdir)
        replies = [  # the first begins and ends inside of letters
            Reply('', 1, 4, [Answer('', 0.6, 2.0, 1, 4),
                             Answer('', 0.25, 1.5, 6, 9)], 0.25),
            Reply('', 6, 9, [Answer('', 0.5, 1.0, 6, 9)], 3.0),
            Reply('', -1, -1, [], 9.0),
        ]  # fmt: skip
        model = mock.Mock()
        model.answer.side_effect = lambda asked, contexts: replies
        task = squad.Squad.read(squad.SquadChoices(
            train=str(path), dev=str(path), version2=True
        ))  # fmt: skip
        with mock.patch.object(infoword_tf, 'load', lambda _: model):
            values = task.write(workdir, workdir)
        asked_of, contexts = model.answer.call_args.args
        self.assertEqual(asked_of, [b'who saw the cat', b'who', b'why'])
        self.assertEqual([*map(bytes.decode, contexts)], 3 * [UMLAUTS])
        self.assertEqual((values['f1'], values['null_threshold']), (100, 0.25))
        self.assertEqual(Config.read(workdir).null_threshold, 0.25)
        self.assertEqual(task.judged(model, None)['NoAns_f1'], 100)
        actual, odds, best = (
            read(workdir, f'{name}.json')
            for name in ('predictions', 'null_odds', 'nbest')
        )
        self.assertEqual(actual, {'a': '\u00dcn\u00ef', 'b': '', 'c': ''})
        self.assertEqual(odds, {'a': 0.25, 'b': 3.0, 'c': 9.0})
        texts, shares, scores = zip(*(
            [entry[x] for x in ('text', 'probability', 'score')]
            for entry in best['a']
        ), strict=True)  # fmt: skip
        self.assertEqual(texts, ('', '\u00dcn\u00ef', 'cat'))
        self.assertEqual(scores, (2.25, 2.0, 1.5))
        self.assertSequenceAlmostEqual(shares, (0.15, 0.6, 0.25))
        self.assertEqual([x['text'] for x in best['b']], ['', 'cat'])
        self.assertEqual(best['c'], [])

    def test_what_a_teacher_says(self):
        """Both ends, and how long it reads."""
        first, last = np.float32([[[1, 2, 3]], [[4, 5, 6]]])
        head = mock.Mock(both_ends=lambda batch: (None, (first, last)))
        actual = squad.Squad().scores(head, None)
        self.assertEqual(actual.dtype, 'float16')
        np.testing.assert_array_equal(actual, [[[1, 4], [2, 5], [3, 6]]])
        config = Config.read(finetuning.init()).replace(max_length=77)
        self.assertEqual(
            squad.Squad().defaults(config), {'seq_len': 77, 'epochs': 3.0}
        )
