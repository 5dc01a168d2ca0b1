"""Labels of words of texts of any length, on models with random weights."""

import functools
from unittest import mock

import numpy as np
from absl.testing import parameterized

import infoword_tf
from infoword_tf.inference import tagger
from tests.export import workdirs
from tests.processor import AVX512
from tests.refused import refused

LABELS = 'B-PER', 'I-PER', 'O', 'B-LOC', 'I-LOC'
LONG = "Names refer to objects, e.g. Turin's \u6771\u4eac caf\u00e9 x. " * 9
KINDS = {
    # No state depends on another token.
    'lookup': {'encoder': 'lookup', 'settings': {'tag.context': 3}},
    'chain': {'encoder': 'lookup', 'settings': {'tag.crf': True}},
    'all': {'settings': {'tag.tokens': 'all', 'tag.pooler': 'tanh'}},
    'other': {'settings': {'tag.context': 20}},
}


@functools.cache
def make(kind, max_length=20):
    more = dict(KINDS[kind])
    settings = {'tag.classes': len(LABELS), **more.pop('settings')}
    folder = workdirs.folder() / 'tagger' / f'{kind}{max_length}'
    if not folder.exists():
        fields = {'labels': LABELS, 'max_length': max_length}
        more |= {'settings': settings, 'fields': fields}
        workdirs.write(folder, ('tag',), **more)
    loaded = infoword_tf.load(folder)
    # Another label for each token, so that there are many spans.
    kernel = loaded.model.objectives['tag'].kernel
    kernel.assign(40 * kernel)
    return loaded


def plainly(loaded, text):
    """Best labels of the tokens of a short text, with bytes."""
    ids, lengths, _ = loaded.format_texts([text])
    states = loaded.states(ids, lengths)[0, 1:-1]
    head = loaded.model.objectives['tag']
    scores = head.class_scores(states).numpy()
    _, starts, ends = loaded.tokenizer.tokenize_with_offsets([text])
    shares = np.exp(scores - scores.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    return [
        (LABELS[row.argmax()], float(share.max()), begin, end)
        for row, share, begin, end in zip(
            scores, shares, starts.to_list()[0], ends.to_list()[0], strict=True
        )
    ]


class TaggerTest(parameterized.TestCase):
    def check_same(self, spans, others):
        """But for how a product of more rows is rounded."""
        for x, y in zip(spans, others, strict=True):
            self.assertEqual(x._replace(score=y.score), y)
            self.assertAlmostEqual(x.score, y.score, places=5)

    @parameterized.parameters('lookup', 'chain')
    def test_windows_change_no_label(self, kind):
        texts = [LONG, '', 'Turin.', LONG[7:400]]
        short, long = (make(kind, length).tag(texts) for length in (20, 600))
        self.assertGreater(len(long[0]), 20)
        self.assertEmpty(long[1])
        for one, other in zip(short, long, strict=True):
            self.check_same(one, other)

    @parameterized.parameters(('lookup', 3), ('other', 18 // 4))
    def test_every_token_counts_once_and_has_context(self, kind, context):
        loaded, texts = make(kind, 20), [LONG, 'x', LONG[:99]]
        windows = loaded.tagger.windows(texts)
        self.assertGreater(len(windows.lengths), 20)
        most = windows.most.numpy()
        tokens = windows.tokens.numpy()[most]
        np.testing.assert_array_equal(tokens, np.arange(len(tokens)))
        in_windows, in_texts = (
            np.concatenate([
                np.minimum(np.arange(n), np.arange(n)[::-1]) for n in sizes
            ])
            for sizes in (
                windows.sizes.numpy(),
                loaded.tokenizer.tokenize(texts).row_lengths().numpy(),
            )
        )
        lacking = np.minimum(in_texts, context) - in_windows[most]
        self.assertLessEqual(lacking.max(), 0)

    def test_many_spans_of_a_long_text(self):
        """Copies of the text are few at a time."""
        loaded = make('lookup', 20)
        with mock.patch.object(tagger, '_COPIED', 2 * len(LONG.encode())):
            actual = loaded.tag(['', LONG, 'x', LONG])
        for other in (actual[3], loaded.tag([LONG])[0]):
            self.check_same(actual[1], other)
            if AVX512:
                self.assertEqual(actual[1], other)
        # Texts of another length are no other graph.
        traced = loaded.tagger.decide.experimental_get_tracing_count()
        loaded.tag(['x', LONG[:40], LONG[:60], LONG[9:90]])
        loaded.tag([LONG[:200]])
        self.assertEqual(
            loaded.tagger.decide.experimental_get_tracing_count(), traced
        )
        raw = LONG.encode()
        for span in actual[1]:
            self.assertEqual(raw[span.begin : span.end].decode(), span.text)

    @parameterized.parameters(('all', False), ('other', True))
    def test_labels_without_parts(self, kind, alone):
        """Each word is a span; of tokens, equal neighbours are one."""
        known = make.__wrapped__(kind).tagger
        config = known.config.replace(labels=('PER', 'LOC', 'X', 'Y', 'Z'))
        with mock.patch.object(tagger.Tagger, 'config', config):
            self.assertEqual([*known.kinds.begins], 5 * [alone])
            self.assertEqual([*known.kinds.ends], 5 * [alone])

    def test_simple_spans_of_tokens(self):
        loaded, text = make('all', 40), "Names refer to objects: Turin's"
        expected = []
        for label, share, begin, end in plainly(loaded, text):
            kind = label[2:]
            goes_on = expected and expected[-1][0] == kind
            if not goes_on or label[0] == 'B':
                expected.append((kind, [share], begin, end))
            else:
                _, shares, begin, _ = expected[-1]
                expected[-1] = kind, [*shares, share], begin, end
        expected = [x for x in expected if x[0]]
        (actual,) = loaded.tag([text])
        self.assertGreater(len(actual), 2)
        self.assertEqual(
            [(x.label, x.begin, x.end) for x in actual],
            [(kind, begin, end) for kind, _, begin, end in expected],
        )
        for x, (_, shares, begin, end) in zip(actual, expected, strict=True):
            self.assertAlmostEqual(x.score, np.mean(shares), places=5)
            self.assertEqual(x.text, text[begin:end])

    def test_a_word_has_the_label_of_its_first_token(self):
        loaded = make('lookup', 40)
        text = ['Names', "Turin's", '', 'caf\u00e9', 'objects,']
        (actual,) = loaded.tag_words([text])
        joined = ' '.join(text)
        by_byte = {x[2]: x[0] for x in plainly(loaded, joined)}
        begins = np.cumsum([0, *(len(x.encode()) + 1 for x in text[:-1])])
        self.assertEqual(
            actual,
            [by_byte[b] if x else 'O'
             for b, x in zip(begins, text, strict=True)],
        )  # fmt: skip
        self.assertEqual(loaded.tag_words([[], ['x']])[0], [])

    def test_what_labels_no_words(self):
        with refused('no_row_answers', 'label no words', 'tag'):
            workdirs.loaded().tag(['x'])
        with self.assertRaisesRegex(TypeError, 'one string'):
            make('lookup').tag('x')
        with self.assertRaisesRegex(TypeError, r'texts\[1\]'):
            make('lookup').tag_words([['a'], [None]])
