"""Answers out of an export in this process; test_serving.py: in C."""

import numpy as np
from absl.testing import parameterized

from tests.export import protos, workdirs
from tests.export.answering import KINDS, exported, loaded, served

QUESTIONS = ['what is a name?', '', 'which value ' * 30, 'a\u0301']
CONTEXTS = [
    'a statement, or the name of an object. ' * 9,
    'x', '', 'caf\u00e9 and cafe\u0301 \U0001f600, names\u200b of them',
]  # fmt: skip


class AnswerTest(parameterized.TestCase):
    @parameterized.parameters(*KINDS)
    def test_what_python_answers(self, kind):
        model = loaded(kind)
        expected = model.answer(QUESTIONS, CONTEXTS)
        actual = workdirs.answer(
            served(kind)['answer'], QUESTIONS, pairs=CONTEXTS
        )
        null = model.model.objectives['span'].null
        self.assertEqual('null_odds' in actual, null)
        for row, reply in enumerate(expected):
            self.assertEqual(actual['text'][row].decode(), reply.text)
            self.assertEqual(actual['begin'][row], reply.begin)
            self.assertEqual(actual['end'][row], reply.end)
            count = len(reply.best)
            for output, name in (
                ('scores', 'score'), ('probabilities', 'probability')
            ):  # fmt: skip
                values = [getattr(answer, name) for answer in reply.best]
                np.testing.assert_allclose(
                    actual[output][row, :count], values, atol=1e-5
                )
            self.assertTrue((actual['scores'][row, count:] < -1e29).all())
            raw = CONTEXTS[row].encode()
            for text, begin, end in zip(
                *(actual[key][row] for key in ('texts', 'begins', 'ends')),
                strict=True,
            ):
                self.assertEqual(text, raw[begin:end] if begin >= 0 else b'')
                text.decode()  # whole characters
            if null and count:
                self.assertAlmostEqual(
                    float(actual['null_odds'][row]), reply.null_odds, places=4
                )

    def test_the_card_says_what_goes_in_and_comes_out(self):
        card = workdirs.card_of(exported('null'))
        self.assertIn('`answer` takes the contexts of these questions', card)
        self.assertIn('| `null_odds` | [B] | float32 |', card)
        self.assertIn('| `texts` | [B, 20] | string |', card)
        asked = dict(protos.warmups(exported('null')))
        self.assertEqual({*asked['answer']}, {'texts', 'pairs'})
