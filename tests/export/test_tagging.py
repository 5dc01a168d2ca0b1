"""Labels of words out of an export, and how the demo shows the words."""

import numpy as np
from absl.testing import absltest

from export import demo
from tests.export import workdirs

LABELS = 'O', 'B-PER', 'I-PER', 'B-LOC'
TEXTS = [
    'Names refer to objects (U.S.), \u6771\u4eac too. ' * 9, '', 'x',
    'caf\u00e9 and cafe\u0301 \U0001f600, names\u200b of them',
]  # fmt: skip


def write(kind):
    """A workdir whose labels a CRF scores over an LSTM over all layers."""
    del kind
    more = 'crf', 'bilstm', 'mix', 'embeddings'
    return workdirs.write(
        workdirs.folder() / 'tagging', rows=('tag',), max_length=20,
        settings={'tag.classes': len(LABELS), 'tag.context': 4,
                  **{f'tag.{x}': True for x in more}},
        fields={'labels': LABELS},
    )  # fmt: skip


workdir, exported, loaded, served = workdirs.kinds('tagging', write)


class TaggingTest(absltest.TestCase):
    def test_what_python_says(self):
        model = loaded('chain')
        actual = workdirs.answer(served('chain')['tag'], TEXTS)
        expected = model.tag(TEXTS)
        self.assertGreater(len(expected[0]), 5)
        for row, spans in enumerate(expected):
            raw, count = TEXTS[row].encode(), actual['count'][row]
            self.assertLen(spans, count)
            for i, span in enumerate(spans):
                begin, end = actual['begins'][row, i], actual['ends'][row, i]
                self.assertEqual((begin, end), (span.begin, span.end))
                self.assertEqual(actual['texts'][row, i], raw[begin:end])
                self.assertEqual(actual['labels'][row, i].decode(), span.label)
                self.assertAlmostEqual(
                    float(actual['scores'][row, i]), span.score, places=5
                )
            self.assertTrue((actual['begins'][row, count:] == -1).all())
            self.assertTrue((actual['texts'][row, count:] == b'').all())

    def test_the_demo_splits_a_text(self):
        text = 'A cat, Ada and Turin.'
        outputs = {
            'sent': np.array([text.encode()]),
            'begins': np.array([[7, 15]]), 'ends': np.array([[10, 20]]),
            'labels': np.array([[b'PER', b'LOC']]), 'count': np.array([2]),
        }  # fmt: skip
        self.assertEqual(
            demo.words(outputs),
            [('A cat, ', None), ('Ada', 'PER'), (' and ', None),
             ('Turin', 'LOC'), ('.', None)],
        )  # fmt: skip
        shown = demo.ask('tag', served('chain')['tag'], TEXTS[0])
        self.assertEqual(''.join(part for part, _ in shown), TEXTS[0])
