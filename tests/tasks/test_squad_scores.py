"""Exact match and F1 beside the official scripts."""

import numpy as np
from absl.testing import parameterized

from tasks import squad_scores
from tests.refused import refused

WORDS = ['The', 'cat', 'sat', 'a', 'An', 'mat.', '"on"', 'Ünï', 'x-y', '3.5',
         '!', 'the', 'theatre', '\u00a0', '\n', "dog's", '猫']  # fmt: skip


def drawn(seed, unanswerable):
    """Golds and predictions of 300 questions that often agree."""
    random = np.random.default_rng(seed)

    def text():
        return ' '.join(random.choice(WORDS, random.integers(0, 5)))

    golds, answers, odds = {}, {}, {}
    for number in range(300):
        known = [text() for _ in range(random.integers(1, 4))]
        if unanswerable and random.random() < 0.4:
            known = []
        name = f'q{number}'
        golds[name] = known
        kind = random.random()
        if kind < 0.1:
            continue  # no prediction
        if known and kind < 0.5:
            answers[name] = known[0]
        else:
            answers[name] = '' if kind > 0.85 else text()
        odds[name] = float(random.integers(-5, 6) + number / 1000)
    return golds, answers, odds


def dataset_of(golds):
    return [
        {'paragraphs': [{'qas': [
            {'id': name, 'answers': [{'text': t} for t in known]}
        ]}]}
        for name, known in golds.items()
    ]  # fmt: skip


class ScoresTest(parameterized.TestCase):
    @parameterized.parameters(
        ('The  Cat, sat!', 'cat sat'),
        ('a an the', ''),
        ("Theatre of the dog's", 'theatre of dogs'),
        ('x-y (3.5)', 'xy 35'),
        ('\u00a0Ünï\u2003the\n', 'ünï'),
        ('“a” b', '“ ” b'),  # only ASCII's punctuation goes
    )
    def test_normalized(self, text, expected):
        self.assertEqual(squad_scores.normalized(text), expected)

    def test_no_answer_is_worth_saying(self):
        golds = {'a': ['x'], 'b': []}
        answers, odds = {'a': 'y', 'b': 'no'}, {'a': -3.0, 'b': 1.0}
        raw = squad_scores.raw_scores(golds, answers).f1
        actual = squad_scores.best_threshold(golds, answers, raw, odds)
        self.assertEqual(actual, (50.0, None))
        odds = {'other': -9.0, **odds}  # of a question that is not scored
        again = squad_scores.best_threshold(golds, answers, raw, odds)
        self.assertEqual(again, actual)

    def test_no_predictions(self):
        with refused('squad_no_prediction'):
            squad_scores.scores2({'a': ['b']}, {})

    @parameterized.parameters(range(4))
    def test_the_script_of_1(self, seed):
        from official.nlp.tools import squad_evaluate_v1_1 as script

        golds, answers, _ = drawn(seed, unanswerable=False)
        expected = script.evaluate(dataset_of(golds), answers)
        actual = squad_scores.scores(golds, answers)
        self.assertAlmostEqual(
            actual['exact_match'], 100 * expected['exact_match'], places=10
        )
        self.assertAlmostEqual(
            actual['f1'], 100 * expected['final_f1'], places=10
        )
        self.assertGreater(actual['f1'], actual['exact_match'] * 0.5)

    @parameterized.product(seed=(0, 1, 2, 3), with_odds=(False, True))
    def test_the_script_of_2(self, seed, with_odds):
        from official.nlp.tools import squad_evaluate_v2_0 as script

        golds, answers, odds = drawn(seed, unanswerable=True)
        best = script.evaluate(dataset_of(golds), answers, odds)
        for name, part in squad_scores.raw_scores(
            golds, answers
        )._asdict().items():
            known = {q: golds[q] for q in part}
            score, threshold = squad_scores.best_threshold(
                known, answers, part, odds
            )
            self.assertAlmostEqual(score, best[f'final_{name}'], places=10)
            self.assertEqual(threshold or 0, best[f'final_{name}_thresh'])
        if with_odds:
            answers = {q: x * (odds[q] <= 1) for q, x in answers.items()}
        expected = script.evaluate(dataset_of(golds), answers)
        actual = squad_scores.scores2(golds, answers)
        for name, value in actual.items():
            self.assertAlmostEqual(value, expected[name], places=10, msg=name)
        self.assertLen(actual, 6)
