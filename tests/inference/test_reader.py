"""Answers out of contexts of any length, against one window at a time."""

import itertools
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from scipy import special

from infoword_tf.inference import reader
from infoword_tf.inference.answers import SURE
from infoword_tf.objectives.span import STARTS
from tests.eager import eagerly
from tests.export import workdirs
from tests.inference.test_context_windows import plainly as windows
from tests.objectives.test_span import scores_of
from tests.refused import refused

LENGTH, STRIDE, LONGEST = 40, 9, 4
CONTEXTS = [
    'The statement is a name, or an expression list.',
    'an object whose value can change is said to be mutable; ' * 3 + 'End.',
    '',
    'caf\u00e9, cafe\u0301 \U0001f600 names\u200b of the  module',
    'x',
]
QUESTIONS = ['which value?', 'what is an object ' * 20, 'nothing?', '', 'x']
KINDS = {
    'plain': ('transformer', {}),
    'null': ('transformer', {'span.null': True}),
    'conditional': ('relative', {'span.end': 'conditional'}),
    'conditional_null': (
        'relative', {'span.end': 'conditional', 'span.null': True}
    ),
}  # fmt: skip


def write(kind):
    encoder, settings = KINDS[kind]
    return workdirs.write(
        workdirs.folder() / 'reader' / kind, ('span',), encoder,
        max_length=LENGTH, settings={
            'span.stride': STRIDE, 'span.question': 8, 'span.longest': LONGEST,
            **settings,
        },
    )  # fmt: skip


_, _, loaded_of, _ = workdirs.kinds('reader', write)


@eagerly()  # each window has a length of its own
def plainly(loaded, question, context):
    """Best score of every text, and the lowest score of nowhere."""
    from official.nlp.data import squad_lib

    head, layout = loaded.model.objectives['span'], loaded.layout
    tokenizer = loaded.tokenizer
    asked = tokenizer.tokenize([question]).to_list()[0][:8]
    tokens, starts, ends = (
        x.to_list()[0] for x in tokenizer.tokenize_with_offsets([context])
    )
    raw = context.encode()
    # Marks belong to what they follow.
    ends = [
        end + 2 if raw[end : end + 2] == '\u0301'.encode() else end
        for end in ends
    ]
    room = LENGTH - 3 - len(asked)
    spans = windows(len(tokens), room, STRIDE)
    best, lowest = {}, float('inf')
    for number, (begin, size) in enumerate(spans):
        window = tokens[begin : begin + size]
        cls, sep = [tokenizer.cls_id], [tokenizer.sep_id]
        if layout.first:
            ids, at = [*cls, *asked, *sep, *window, *sep], 0
            offset = second = len(asked) + 2
        else:
            ids = [*window, *sep, *asked, *sep, *cls]
            at, offset, second = len(ids) - 1, 0, size + 1
        states = loaded.states(
            tf.constant([ids]), tf.constant([len(ids)]),
            second=tf.constant([second]),
        )[0].numpy().astype(np.float64)  # fmt: skip
        places = [offset + i for i in range(size)] + [at] * head.null

        def after(first, states=states, places=places):
            scores = scores_of(head, states, first)[places, 1]
            return special.log_softmax(scores)

        first, last = scores_of(head, states, 0)[places].T
        if head.conditional:
            first = special.log_softmax(first)
            chosen = np.argsort(-first[:size])[:STARTS]
            score = {
                (i, j): first[i] + after(places[i])[j]
                for i in chosen
                for j in range(size)
            }
            last = after(at)
        else:
            score = {
                (i, j): first[i] + last[j]
                for i, j in itertools.product(range(size), repeat=2)
            }
        if head.null:
            lowest = min(lowest, first[-1] + last[-1])
        for (i, j), value in score.items():
            if 0 <= j - i < LONGEST and squad_lib._check_is_max_context(
                spans, number, begin + i
            ):
                text = raw[starts[begin + i] : ends[begin + j]].decode()
                best[text] = max(best.get(text, -np.inf), value)
    return best, lowest


class ReaderTest(parameterized.TestCase):
    @parameterized.parameters(*KINDS)
    def test_one_window_after_the_other(self, kind):
        self.enterContext(eagerly(kind != 'plain'))
        loaded = loaded_of(kind)
        actual = loaded.answer(QUESTIONS, CONTEXTS)
        null = loaded.model.objectives['span'].null
        for question, context, reply in zip(
            QUESTIONS, CONTEXTS, actual, strict=True
        ):
            expected, lowest = plainly(loaded, question, context)
            ranked = sorted(expected, key=lambda text: -expected[text])[:20]
            self.assertGreaterEqual(len(reply.best), min(10, len(expected)))
            for answer, text in zip(reply.best, ranked, strict=False):
                self.assertAlmostEqual(answer.score, expected[text], places=3)
                self.assertAlmostEqual(
                    answer.score, expected[answer.text], places=3
                )
                self.assertEqual(
                    context.encode()[answer.begin : answer.end].decode(),
                    answer.text,
                )
            scores = [answer.score for answer in reply.best]
            if null:
                odds = lowest - scores[0] if scores else SURE
                self.assertAlmostEqual(
                    reply.null_odds / SURE if odds == SURE
                    else reply.null_odds - odds,
                    float(odds == SURE), places=3,
                )  # fmt: skip
                scores += [lowest] * bool(scores)
            else:
                self.assertIsNone(reply.null_odds)
            shares = [answer.probability for answer in reply.best]
            expected = special.softmax(scores or [0])[: len(shares)]
            np.testing.assert_allclose(shares, expected, atol=1e-3)
            silent = not reply.best or (null and reply.null_odds > 0)
            self.assertEqual(reply.text, '' if silent else reply.best[0].text)
            self.assertEqual(reply.begin == -1, silent)

    @eagerly()
    def test_the_threshold(self):
        loaded = loaded_of('null')
        (reply,) = loaded.answer(QUESTIONS[:1], CONTEXTS[:1])
        for gap, expected in ((-0.1, ''), (0.1, reply.best[0].text)):
            model = loaded.with_config(loaded.config.replace(
                null_threshold=reply.null_odds + gap
            ))  # fmt: skip
            (again,) = model.answer(QUESTIONS[:1], CONTEXTS[:1])
            self.assertEqual(again.text, expected)
            self.assertEqual(len(again.best), len(reply.best))

    def test_batches_change_nothing(self):
        """Nor does how many questions are looked up at once."""
        loaded = loaded_of('plain')
        together = loaded.answer(QUESTIONS, CONTEXTS, batch_size=64)
        with mock.patch.object(reader, '_QUESTIONS', 2):
            parted = loaded.answer(QUESTIONS, CONTEXTS, batch_size=1)
        for one, two in zip(parted, together, strict=True):
            self.assertEqual(one.text, two.text)
            self.assertEqual((one.begin, one.end), (two.begin, two.end))
            pair = ([x.score for x in reply.best] for reply in (one, two))
            np.testing.assert_allclose(*pair, atol=1e-4)

    def test_none_at_all(self):
        model = loaded_of('plain')
        self.assertEqual(model.answer([], []), [])
        (reply,) = model.answer(['who?'], [''])  # no window at all
        self.assertEqual((reply.text, reply.best), ('', []))

    def test_complaints(self):
        model = loaded_of('plain')
        with refused('unequal_contexts', 1, 0):
            model.answer(['a'], [])
        with self.assertRaisesRegex(TypeError, r'contexts\[1\] is nan'):
            model.answer(['a', 'b'], ['c', float('nan')])
        with self.assertRaisesRegex(TypeError, r'questions\[0\] is None'):
            model.answer([None], ['c'])
        with refused('no_row_answers', 'span'):
            workdirs.loaded().answer(['a'], ['b'])
