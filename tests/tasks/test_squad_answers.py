"""Answers from scores: beside BERT's code, and loops in plain Python."""

import json
import types

import numpy as np
from absl.testing import parameterized

from infoword_tf.data.examples import pack_examples
from infoword_tf.inference.answers import BestSpans
from infoword_tf.inference.reader import Answer
from infoword_tf.views.examples import examples as make_view
from tasks import squad_answers, squad_data
from tests import places, zoo
from tests.tasks.squad_files import WORDS, asked, question, template, write

LENGTH = 24


def draw_questions(folder, seed=0, count=12):
    """Contexts of words that are pieces, with one space between them."""
    random = np.random.default_rng(seed)
    paragraphs = []
    for number in range(count):
        size = int(random.integers(1, 60))
        context = ' '.join(random.choice(WORDS, size))
        first = context.split()[0]
        paragraphs.append((context, *(
            asked(context, first, 'who saw', f'{number}-{i}')
            for i in range(1 + number % 3)
        )))  # fmt: skip
    return squad_data.read(write(folder / 'drawn.json', *paragraphs))


def scores_of(features, seed=1):
    """First and last, [N] float32, and those of nowhere [n]."""
    random = np.random.default_rng(seed)
    total, n = int(features.sizes.sum()), features.examples.size
    first, last = random.standard_normal((2, total)).astype(np.float32)
    return first, last, random.standard_normal(n).astype(np.float32)


def bert_s(questions, features, first, last, nowhere, **settings):
    from official.nlp.data import squad_lib

    examples = []
    for number in range(len(questions.ids)):
        context = questions.contexts[questions.context[number]]
        examples.append(
            squad_lib.SquadExample(questions.ids[number], '', context.split())
        )
    actual, results = [], []
    begins = np.cumsum(features.sizes) - features.sizes
    for i in range(features.examples.size):
        begin, end = features.examples.candidates['span'][i]
        number = int(features.questions[i])
        words = examples[number].doc_tokens
        of = {
            int(begin + j): int(features.firsts[i] + j)
            for j in range(end - begin)
        }
        here = slice(begins[i], begins[i] + end - begin)
        most = features.most[here]
        # There all tokens compete for the best places.
        scores = np.full((2, end + 1), -1e6)
        scores[:, 0] = nowhere[i] / 2
        scores[0, begin:end] = np.where(most, first[here], -1e6)
        scores[1, begin:end] = last[here]
        actual.append(types.SimpleNamespace(
            unique_id=i, example_index=number, token_to_orig_map=of,
            tokens=['-'] * begin + [words[of[j]] for j in of] + ['-'],
            token_is_max_context={
                int(begin + j): bool(m) for j, m in enumerate(most)
            },
        ))  # fmt: skip
        results.append(types.SimpleNamespace(
            unique_id=i, start_logits=scores[0].tolist(),
            end_logits=scores[1].tolist(),
        ))  # fmt: skip
    return squad_lib.postprocess_output(
        examples, actual, results, do_lower_case=True, **settings
    )


class SquadAnswersTest(places.Folder, parameterized.TestCase):
    @parameterized.product(longest=(3, 30), null=(False, True))
    def test_what_bert_answers(self, longest, null):
        """Pairs 20 pieces with 20, also of windows that have fewer."""
        questions = draw_questions(self.folder)
        features = squad_data.features(
            questions, template(), LENGTH, null=True, stride=5
        )
        self.assertGreater(features.examples.size, 2 * len(questions.ids))
        first, last, nowhere = scores_of(features)
        predicted, _, odds = bert_s(
            questions, features, first, last,
            nowhere if null else nowhere - 1e6,
            n_best_size=20, max_answer_length=longest,
            version_2_with_negative=null,
        )  # fmt: skip
        spans = squad_answers.spans(
            features, {'first': first, 'last': last}, longest
        )
        actual = squad_answers.answers(
            questions, features, spans, nowhere if null else None
        )
        self.assertGreater(len(set(predicted.values())), 5)
        self.assertEqual(actual.predictions(), dict(predicted))
        self.assertEqual(set(actual.null_odds), set(odds))
        for name, value in odds.items():
            self.assertAlmostEqual(actual.null_odds[name], value, places=5)

    def answer(self, *answers, context='the cat saw the cat', **more):
        """One window, and spans of it: first, last, score."""
        questions = squad_data.read(
            write(self.folder / 'one.json', (context, asked(context, 'cat')))
        )
        features = squad_data.features(questions, template(), 64)
        firsts, lasts, scores = np.array(answers).reshape(-1, 3).T
        spans = BestSpans(
            np.float32([scores]), np.int32([firsts]), np.int32([lasts])
        )
        return squad_answers.answers(questions, features, spans, **more)

    def test_the_best_of_several_spans(self):
        actual = self.answer((1, 1, 2.0), (3, 4, 3.0), (0, 1, 1.0))
        self.assertEqual(actual.predictions(), {'q': 'the cat'})

    def test_nothing_is_left(self):
        actual = self.answer()
        self.assertEqual(actual.predictions(), {'q': ''})
        actual = self.answer(nowhere=np.array([-3.0], np.float32))
        self.assertEqual(actual.predictions(threshold=1e9), {'q': ''})
        json.dumps(actual.null_odds, allow_nan=False)

    def test_the_threshold(self):
        actual = self.answer((1, 1, 2.0), nowhere=np.array([5.0], np.float32))
        self.assertEqual(actual.null_odds, {'q': 3.0})
        self.assertEqual(actual.predictions(), {'q': ''})
        self.assertEqual(actual.predictions(3.0), {'q': 'cat'})

    def test_a_question_without_a_window(self):
        questions = squad_data.read(write(
            self.folder / 'two.json', ('', question('a', 'who', ('x', 0))),
            ('a cat', asked('a cat', 'cat', name='b')),
        ))  # fmt: skip
        features = squad_data.features(questions, template(), 64, null=True)
        scores = np.array([0.0, 1.0], np.float32)
        spans = squad_answers.spans(
            features, {'first': scores, 'last': scores}, 30
        )
        actual = squad_answers.answers(
            questions, features, spans, np.array([9.0], np.float32)
        )
        self.assertEqual(actual.predictions(7.0), {'a': '', 'b': 'cat'})

    def test_tokens_of_contexts(self):
        """Out of rows that windows share, in the order of these."""
        questions = draw_questions(self.folder)
        for layout in ('bert', 'xlnet'):
            features = squad_data.features(
                questions, template(layout), LENGTH, null=True, stride=5
            )
            examples = features.examples
            slots = pack_examples(examples.sizes, 40)
            text = examples.batch(np.arange(examples.size), slots, 40)
            view = make_view(text, None, {'span': 'text'}, zoo.SPECIALS)
            self.assertLess(len(view.ids), examples.size)
            windows = zip(examples.begins, examples.candidates['span'],
                          strict=False)  # fmt: skip
            expected = np.concatenate([
                examples.ids[start + begin : start + end]
                for start, (begin, end) in windows
            ])  # fmt: skip
            actual = squad_answers.of_context(view.ids, view)
            np.testing.assert_array_equal(actual, expected)

    def test_files(self):
        nowhere = np.array([5.0], np.float32)
        actual = self.answer(
            (1, 1, 2.0), context='caf\u00e9 cat', nowhere=nowhere
        )
        best = [Answer('', 0.9, 5.0, -1, -1), Answer('cat', 0.1, 2.0, 6, 9)]
        actual = actual._replace(best={'q': best})
        folder = self.folder / 'out'
        squad_answers.write(folder, actual, threshold=4.0)
        predictions = json.loads((folder / 'predictions.json').read_text())
        self.assertEqual(predictions, {'q': 'cat'})
        odds = json.loads((folder / 'null_odds.json').read_text())
        self.assertEqual(odds, {'q': 3.0})
        best = json.loads((folder / 'nbest.json').read_text())
        self.assertEqual([entry['text'] for entry in best['q']], ['', 'cat'])
        self.assertEqual(
            set(best['q'][0]), {'text', 'probability', 'score', 'begin', 'end'}
        )
        squad_answers.write(self.folder / 'more', self.answer((1, 1, 2.0)))
        self.assertFalse((self.folder / 'more' / 'null_odds.json').exists())
