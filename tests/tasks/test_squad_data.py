"""SQuAD files: what is read, where answers are, and the windows."""

import functools
import gzip
import json
from pydoc_data import topics

import numpy as np
import pyarrow
from absl.testing import parameterized
from pyarrow import parquet

from infoword_tf.objectives.span import BINS
from infoword_tf.text import sentencepiece
from tasks import squad_data
from tests import places
from tests.refused import refused
from tests.tasks.squad_files import (
    asked,
    contents,
    question,
    template,
    tokenizer,
    write,
)

CONTEXT = 'the dog saw the cat on the mat. a cat, a dog and a mat.'
# What the tokenizer and JSON may stumble over.
STRANGE = [
    ('a \U0001f600 cat\U0001f600 dog', 'cat\U0001f600'),  # surrogate pairs
    ('x\u200by\u200c z\u200d', 'x\u200by'),  # of no width
    ('the cafe\u0301 on', 'cafe\u0301'),  # combining
    ('\u00a0the\u2003cat \u0130stanbul', '\u0130stanbul'),
    ('\u0e01\u0e33\u0e25\u0e31\u0e07 dog', '\u0e01\u0e33\u0e25\u0e31\u0e07'),
    ('cat\ufe0f\u20e3 1\ufe0f\u20e3', '1\ufe0f\u20e3'),
    ('\ud800 cat', 'cat'),  # half a pair
    ('e\u0301\u0301 o', 'o'),
]


@functools.cache
def learned():
    texts = [' '.join(text.split()) for text in topics.topics.values()]
    return sentencepiece.SentencePiece(sentencepiece.learn(texts, 400))


def cut(questions, actual, window, first, last):
    """The bytes of a span of the tokens of a window."""
    context = questions.context[actual.questions[window]]
    begin = actual.examples.candidates['span'][window, 0]
    piece = actual.begins[context] + actual.firsts[window] - begin
    return questions.contexts.cut(
        context,
        actual.offsets[piece + first, 0],
        actual.offsets[piece + last, 1],
    )


def answered(questions, actual):
    """By window, its answer as text; None: it has none."""
    targets = actual.examples.targets['span']
    candidates = actual.examples.candidates['span']
    return [
        cut(questions, actual, i, first, last)
        if candidates[i, 0] <= first < candidates[i, 1]
        else None
        for i, (first, last, _) in enumerate(targets)
    ]


class Case(places.Folder, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = self.folder / 'squad.json'

    def read(self, *paragraphs, **more):
        return squad_data.read(write(self.path, *paragraphs), **more)


class ReadTest(Case):

    def test_a_file(self):
        actual = self.read(
            (CONTEXT, asked(CONTEXT, 'dog'),
             question('é', 'what?', ('cat', 34), ('mat', 27))),
            ('cafe\u0301 cat', asked('cafe\u0301 cat', 'cat', name='r')),
        )  # fmt: skip
        self.assertEqual([*actual.contexts], [CONTEXT, 'cafe\u0301 cat'])
        self.assertEqual([*actual.ids], ['q', 'é', 'r'])
        self.assertEqual(actual.texts[1], 'what?')
        self.assertEqual(actual.context.tolist(), [0, 0, 1])
        self.assertEqual(actual.answers.tolist(), [[4, 7], [34, 37], [7, 10]])
        self.assertEqual(actual.golds_of(1), ['cat', 'mat'])
        self.assertEqual(actual.notes, ())
        self.assertIs(actual.subset(None), actual)

    def test_some_keep_all_of_their_answers(self):
        """One to three of each; all say whose they are."""
        chosen = self.read(*(
            (f'{i}a {i}b {i}c', question(
                str(i), f'who {i}',
                *((f'{i}{c}', 3 * n) for n, c in enumerate('abc'[: 1 + i % 3])),
            ))
            for i in range(7)
        )).subset(5)  # fmt: skip
        self.assertLen(chosen.ids, 5)
        self.assertLen(chosen.contexts, 5)
        self.assertEqual(
            chosen.golds_by_id,
            {name: [name + c for c in 'abc'[: 1 + int(name) % 3]]
             for name in chosen.ids},
        )  # fmt: skip
        for i, name in enumerate(chosen.ids):
            self.assertEqual(chosen.texts[i], f'who {name}')
            context = chosen.contexts[chosen.context[i]]
            begin, end = chosen.answers[i]
            self.assertEqual(context[begin:end], f'{name}a')

    def test_the_order_of_fields_does_not_matter(self):
        """And the list is read article by article."""
        choices = contents((CONTEXT, asked(CONTEXT, 'dog')))
        choices = {'data': choices['data'] * 2, 'more': [1, {'data': []}]}
        text = json.dumps(choices, indent=1).replace('}', '} ')
        self.path.write_text('\ufeff' + text.replace('"q"', '"p"', 1))
        self.assertEqual([*squad_data.read(self.path).ids], ['p', 'q'])

    @parameterized.parameters('jsonl', 'jsonl.gz', 'parquet')
    def test_a_question_a_row(self, kind):
        """As Hugging Face's datasets has them; equal to the same in JSON."""
        choices = (CONTEXT, asked(CONTEXT, 'dog', name='a'),
                   question('b', 'who', ('bird', 0), ('cat', 16)),
                   question('c', 'who', is_impossible=True)), (
            'é mat', question('d', 'what', ('mat', 2)))  # fmt: skip
        expected = self.read(*choices, version2=True)
        rows = [
            {'id': x['id'], 'title': 't', 'context': context,
             'question': x['question'], 'answers': {
                 name: [answer[name] for answer in x['answers']]
                 for name in ('text', 'answer_start')}}
            for context, *every in choices for x in every
        ]  # fmt: skip
        path = self.folder / f'flat.{kind}'

        def read(**more):
            text = '\n'.join(map(json.dumps, rows)).encode()
            if kind == 'parquet':
                parquet.write_table(pyarrow.Table.from_pylist(rows), path)
            else:
                path.write_bytes(gzip.compress(text) if 'gz' in kind else text)
            return squad_data.read(path, **more)

        actual = read(version2=True)
        for name in ('contexts', 'ids', 'texts', 'golds', 'context', 'answers',
                     'gold_begins'):  # fmt: skip
            one, other = (
                list(map(str, getattr(x, name))) for x in (actual, expected)
            )
            self.assertEqual(one, other, name)
        with refused('squad_unanswered', 'line 3', '--version2'):
            read()
        rows[1]['answers']['text'] = []
        with refused('squad_unequal_answers', 'line 2', '0 texts', '2 starts'):
            read(version2=True)

    def test_answers_that_are_elsewhere(self):
        actual = self.read(
            (CONTEXT, question('a', 'who', ('dog', 5)),
             question('b', 'who', ('bird', 0), ('cat', 16)),
             question('c', 'who', ('', 0)), question('d', 'who', ('mat', -4))),
        )  # fmt: skip
        unknown = [squad_data.UNKNOWN] * 2
        self.assertEqual(
            actual.answers.tolist(), [unknown, [16, 19], unknown, unknown]
        )
        (note,) = actual.notes
        self.assertIn('3 of 4 answers are not where their context', note)
        self.assertIn("data[0].paragraphs[0].qas[0] ('dog')", note)

    def test_questions_without_an_answer(self):
        choices = CONTEXT, asked(CONTEXT, 'dog'), question(
            'b', 'who', is_impossible=True
        ), question('c', 'who', ('dog', 4), is_impossible=True)
        actual = self.read(choices, version2=True)
        none = [squad_data.NONE] * 2
        self.assertEqual(actual.answers.tolist(), [[4, 7], none, none])
        self.assertEqual([actual.golds_of(i) for i in range(3)],
                         [['dog'], [], []])  # fmt: skip


class FeaturesTest(Case):

    def tokens(self, actual, number, pieces):
        begin, end = actual.examples.begins[number : number + 2]
        ids = actual.examples.ids[begin:end]
        return ' '.join(pieces.vocabulary[i] for i in ids)

    def test_a_short_context(self):
        questions = self.read((CONTEXT, asked(CONTEXT, 'the cat')))
        model = template()
        actual = squad_data.features(questions, model, 64)
        examples = actual.examples
        self.assertEqual(examples.size, 1)
        self.assertEqual(
            self.tokens(actual, 0, model.tokenizer),
            '[CLS] who saw the cat [SEP] the dog saw the cat on the mat . '
            'a cat , a dog a ##n ##d a mat . [SEP]',
        )
        self.assertEqual(examples.candidates['span'].tolist(), [[6, 26]])
        self.assertEqual(examples.targets['span'].tolist(), [[9, 10, 0]])
        self.assertEqual(examples.segments.tolist(), [0] * 6 + [1] * 21)
        self.assertEqual(examples.places.tolist(), [0])
        self.assertEqual(answered(questions, actual), ['the cat'])
        first, last = examples.counts['span'].reshape(2, BINS + 1)
        self.assertEqual(np.nonzero(first)[0].tolist(), [3])
        self.assertEqual(np.nonzero(last)[0].tolist(), [4])
        self.assertTrue(actual.most.all())

    def test_the_layout_of_xlnet(self):
        questions = self.read((CONTEXT, asked(CONTEXT, 'the cat')))
        model = template('xlnet')
        actual = squad_data.features(questions, model, 64, null=True)
        self.assertTrue(
            self.tokens(actual, 0, model.tokenizer).endswith(
                'a mat . [SEP] who saw the cat [SEP] [CLS]'
            )
        )
        examples = actual.examples
        self.assertEqual(examples.candidates['span'].tolist(), [[0, 20]])
        self.assertEqual(examples.targets['span'].tolist(), [[3, 4, 26]])
        self.assertEqual(examples.segments.tolist(), [0] * 21 + [1] * 5 + [2])
        self.assertEqual(answered(questions, actual), ['the cat'])

    @parameterized.product(
        layout=('bert', 'roberta', 'end', 'xlnet'), null=(False, True)
    )
    def test_windows(self, layout, null):
        long = ' '.join([CONTEXT] * 4)
        choices = [
            (long, asked(long, 'the cat', name='a'),
             question('b', 'who ' * 30, ('a dog', 39)),
             question('c', '', ('mat.', len(long) - 4))),
            (CONTEXT, asked(CONTEXT, 'cat, a', name='d'),
             question('e', 'the mat', ('elsewhere', 0))),
        ]  # fmt: skip
        questions = self.read(*choices)
        model = template(layout)
        actual = squad_data.features(
            questions, model, 48, null=null, stride=7, question=9
        )
        examples = actual.examples
        self.assertLessEqual(examples.sizes.max(), 48)
        self.assertEqual(set(actual.questions), {0, 1, 2, 3, 4})
        contexts = model.tokenizer.tokenize([long, CONTEXT]).to_list()
        expected = {'a': 'the cat', 'b': 'a dog', 'c': 'mat.', 'd': 'cat, a'}
        texts = answered(questions, actual)
        for i in range(examples.size):
            ids = examples.ids[examples.begins[i] : examples.begins[i + 1]]
            begin, end = examples.candidates['span'][i]
            tokens = contexts[questions.context[actual.questions[i]]]
            first = actual.firsts[i]
            self.assertEqual(
                ids[begin:end].tolist(), tokens[first : first + end - begin]
            )
            name = questions.ids[actual.questions[i]]
            target = examples.targets['span'][i]
            self.assertEqual(target[2], examples.places[i])
            if texts[i] is not None:
                self.assertEqual(texts[i], expected[name])
            elif name == 'e':
                self.assertEqual(target[0], end)
                self.assertEqual(ids[end], model.tokenizer.sep_id)
            else:
                self.assertEqual(target[0], target[2])
            summed = ids[examples.places[i]]
            wanted_id = model.tokenizer.cls_id
            if layout == 'end':
                wanted_id = model.tokenizer.sep_id
            self.assertEqual(summed, wanted_id)
        # Each answer is whole in some window.
        named = {questions.ids[actual.questions[i]]
                 for i, text in enumerate(texts) if text}  # fmt: skip
        self.assertEqual(named, set(expected))
        self.assertEqual(len(actual.most), actual.sizes.sum())
        # Shares are of windows whose answer is a candidate.
        known = sum(
            text is not None or (null and actual.questions[i] != 4)
            for i, text in enumerate(texts)
        )
        self.assertEqual(examples.counts['span'].sum(), 2 * known)
        notes = ' '.join(actual.notes)
        self.assertIn('1 of 5 questions are truncated to their first 9', notes)

        # Of these, what teaches something.
        trained = squad_data.features(
            questions, model, 48, null=null, training=True, stride=7,
            question=9,
        )  # fmt: skip
        numbers = [
            i for i, text in enumerate(texts)
            if actual.questions[i] != 4 and (null or text is not None)
        ]  # fmt: skip
        taken = examples.select(np.array(numbers))
        np.testing.assert_array_equal(trained.examples.ids, taken.ids)
        np.testing.assert_array_equal(trained.examples.segments, taken.segments)
        np.testing.assert_array_equal(
            trained.examples.targets['span'], taken.targets['span']
        )
        np.testing.assert_array_equal(
            trained.examples.counts['span'], examples.counts['span']
        )
        self.assertEqual(len(trained.most), trained.sizes.sum())

    @parameterized.product(
        case=STRANGE, kind=('wordpiece', 'sentencepiece'), null=(False, True)
    )
    def test_the_exact_text_comes_out(self, case, kind, null):
        context, answer = case
        pieces = learned() if kind == 'sentencepiece' else tokenizer()
        questions = self.read((context, asked(context, answer)))
        actual = squad_data.features(
            questions, template(pieces=pieces), 64, null=null
        )
        self.assertEqual(answered(questions, actual), [answer])
        # Whatever span is cut out, it is in the context.
        begin, end = actual.examples.candidates['span'][0]
        for first in range(begin, end):
            for last in range(first, end):
                text = cut(questions, actual, 0, first, last)
                self.assertIn(text, context)

    def test_an_answer_inside_a_piece(self):
        """Its piece is the answer, as BERT has it."""
        questions = self.read(('the cats', question('q', 'who', ('at', 5))))
        actual = squad_data.features(questions, template(), 64)
        self.assertEqual(answered(questions, actual), ['cat'])

    @parameterized.parameters('', ' \n', '\u200b')
    def test_an_empty_context(self, context):
        choices = (context, question('a', 'who', ('\u200b', 0))), (
            CONTEXT, asked(CONTEXT, 'dog'))  # fmt: skip
        questions = self.read(*choices)
        actual = squad_data.features(questions, template(), 64)
        self.assertEqual(actual.questions.tolist(), [1])
        notes = ' '.join(actual.notes)
        self.assertIn('1 of 2 questions have a context without a token', notes)
        with refused('squad_no_window', self.path):
            squad_data.features(self.read(choices[0]), template(), 64)

    def test_a_question_of_many_pieces(self):
        questions = self.read((CONTEXT, asked(CONTEXT, 'dog', 'who ' * 99)))
        actual = squad_data.features(questions, template(), 384)
        self.assertEqual(actual.examples.candidates['span'][0, 0], 66)
        self.assertIn('first 64 tokens', actual.notes[0])
