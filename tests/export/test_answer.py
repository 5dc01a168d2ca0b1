"""Answers out of an export: in this process, in another, and in C's."""

import pathlib
import sys

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import infoword_tf
from export import comparison, serving_ops
from infoword_tf.config import read_exported
from tests.export import answers
from tests.export.answering import KINDS, exported, loaded, served, workdir

QUESTIONS = ['what is a name?', '', 'which value ' * 30, 'a\u0301']
CONTEXTS = [
    'a statement, or the name of an object. ' * 9,
    'x', '', 'caf\u00e9 and cafe\u0301 \U0001f600, names\u200b of them',
]  # fmt: skip


class AnswerTest(parameterized.TestCase):
    @parameterized.parameters(*KINDS)
    def test_what_python_answers(self, kind):
        model = loaded(kind)
        wanted = model.answer(QUESTIONS, CONTEXTS)
        found = served(kind)['answer'](
            texts=tf.constant(QUESTIONS), pairs=tf.constant(CONTEXTS)
        )
        found = {name: value.numpy() for name, value in found.items()}
        null = model.model.objectives['span'].null
        self.assertEqual('null_odds' in found, null)
        for row, reply in enumerate(wanted):
            self.assertEqual(found['text'][row].decode(), reply.text)
            self.assertEqual(found['begin'][row], reply.begin)
            self.assertEqual(found['end'][row], reply.end)
            count = len(reply.best)
            np.testing.assert_allclose(
                found['scores'][row, :count],
                [answer.score for answer in reply.best], atol=1e-5,
            )  # fmt: skip
            self.assertTrue((found['scores'][row, count:] < -1e29).all())
            np.testing.assert_allclose(
                found['probabilities'][row, :count],
                [answer.probability for answer in reply.best], atol=1e-5,
            )  # fmt: skip
            raw = CONTEXTS[row].encode()
            for text, begin, end in zip(
                found['texts'][row], found['begins'][row], found['ends'][row],
                strict=True,
            ):  # fmt: skip
                self.assertEqual(text, raw[begin:end] if begin >= 0 else b'')
                text.decode()  # whole characters
            if null and count:
                self.assertAlmostEqual(
                    float(found['null_odds'][row]), reply.null_odds, places=4
                )

    @parameterized.parameters('null', 'conditional')
    def test_says_what_the_workdir_says(self, kind):
        """One kind in a process that has not this project."""
        content = [
            *(text.encode() for text in (*QUESTIONS, *CONTEXTS)),
            *comparison.NASTY[:-2],
            b'many short words ' * 3000,
        ]
        model = exported(kind)
        self.assertEmpty(serving_ops.unservable(model))
        _, export = read_exported(model)
        names = [*export['signatures']]
        self.assertIn('answer', names)
        self.assertEqual(export['default'], 'answer')
        batches = {'all': content, 'none': []}
        if kind == 'null':
            found, _ = comparison.run_elsewhere(
                model, batches, sys.executable
            )
        else:
            found = answers.here(model, batches)
        in_memory = loaded(kind)
        wanted = {
            batch: comparison.in_python(in_memory, texts, names)
            for batch, texts in (('all', content), ('none', []))
        }
        gaps = comparison.largest(found, wanted, 1e-5)
        self.assertIn('answer/scores', gaps)
        self.assertLess(max(gaps.values()), 2e-5, gaps)

    def test_bfloat16(self):
        found = tf.saved_model.load(str(exported('null', 'bfloat16')))
        found = found.signatures['answer'](
            texts=tf.constant(QUESTIONS), pairs=tf.constant(CONTEXTS)
        )
        wanted = infoword_tf.load(workdir('null'), 'mixed_bfloat16').answer(
            QUESTIONS, CONTEXTS
        )
        for row, reply in enumerate(wanted):
            self.assertEqual(
                (found['scores'][row] > -1e29).numpy().sum(), len(reply.best)
            )
            if reply.best:
                self.assertLess(
                    abs(float(found['scores'][row, 0]) - reply.best[0].score),
                    0.2,
                )

    def test_the_card_says_what_goes_in_and_comes_out(self):
        card = (exported('null').parent / 'MODEL_CARD.md').read_text()
        self.assertIn('`answer` takes the contexts of these questions', card)
        self.assertIn('| `null_odds` | [B] | float32 |', card)
        self.assertIn('| `texts` | [B, 20] | string |', card)
        warm = pathlib.Path(
            exported('plain'), 'assets.extra', 'tf_serving_warmup_requests'
        )
        self.assertIn(b'pairs', warm.read_bytes())


if __name__ == '__main__':
    absltest.main()
