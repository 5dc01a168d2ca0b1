"""Exports of fine-tuned workdirs: classes, numbers and choices of strings."""

import json
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from export import comparison, signatures
from infoword_tf.config import Config
from tests.export import answers, finetuned, protos, workdirs
from tests.export.finetuned import loaded
from tests.tasks import command

TEXTS = ['a c x', 'z b b y d', '', 'x y z ' * 20]
PAIRS = ['b a', 'a b c d x y z x y z a b c d', 'z', '']
# By kind, what its row answers.
SIGNATURES = {
    'classes': 'classify', 'pairs': 'classify_pairs', 'several': 'classify',
    'number': 'regress', 'numbers': 'regress_pairs', 'choices': 'choose',
}  # fmt: skip


class FinetunedTest(command.Checks, parameterized.TestCase):
    @parameterized.parameters(*SIGNATURES)
    def test_what_it_was_trained_on_is_asked(self, kind):
        names = {'serving_default', 'embed', 'tokens', SIGNATURES[kind]}
        if kind == 'numbers':
            names |= {'next_token', 'score_pairs'}
        self.assertEqual(set(finetuned.served(kind)), names)
        every, outputs = answers.check(
            self, finetuned.exported(kind), loaded(kind), SIGNATURES[kind],
            [*(text.encode() for text in TEXTS), *comparison.NASTY[:6]],
        )  # fmt: skip
        of = f'{SIGNATURES[kind]}/'
        actual = {
            name.removeprefix(of): value
            for name, value in every.items()
            if name.startswith(of)
        }
        output = 'score' if 'number' in kind else 'probabilities'
        expected = outputs[of + output]
        self.assertGreater(np.ptp(expected), 1e-3)  # mistakes would be seen
        if kind == 'choices':
            best = actual[output].argmax(axis=1)
            np.testing.assert_array_equal(actual['choice'], best)
            self.assertEqual(actual['choice'].dtype, np.int32)
        elif 'labels' in actual:
            names, shares = [b'bad', b'fair', b'good'], tf.nn.softmax
            if kind == 'several':
                names, shares = [b'x', b'y', b'z'], tf.sigmoid
            np.testing.assert_allclose(
                expected, shares(actual['scores']), atol=1e-5
            )
            best = actual['scores'].argmax(axis=1)
            self.assertEqual(actual['labels'].tolist(), [names] * len(best))
            label = [names[i] for i in best]
            if kind == 'several':  # as in predictions.tsv
                label = [
                    json.dumps([
                        name.decode()
                        for name, p in zip(names, row, strict=True)
                        if p >= 0.5
                    ]).encode()
                    for row in expected
                ]
            self.assertEqual(actual['label'].tolist(), label)

    def test_several_labels_of_a_text_are_a_list(self):
        """Lists those of .5 or more in their order, as predictions.tsv does."""
        graphs = mock.MagicMock()
        graphs.loaded.config.labels = 'x', 'a "b"', 'ü'
        graphs.loaded.classes.probabilities = tf.sigmoid
        graphs._scores.return_value = tf.constant(
            [[3.0, 0.0, 1.0], [-1.0, -1.0, 9.0], [-3.0, -1.0, -2.0]]
        )
        actual = signatures._Graphs.classify(graphs, 'label', None)['label']
        self.assertEqual(
            [label.decode() for label in actual.numpy()],
            ['["x", "a \\"b\\"", "ü"]', '["ü"]', '[]'],
        )

    def test_next_words_are_those_of_the_examples(self):
        """Bounds of `gpt` by hand: of the dev pairs, as they are served."""
        workdir, model = finetuned.workdir('numbers'), loaded('numbers')
        metrics_text = json.loads((workdir / 'metrics.json').read_text())
        self.assertEmpty([x for x in metrics_text if x.startswith('streamed/')])
        tokenizer, counts = model.tokenizer, []
        ends = [tokenizer.sep_id, tokenizer.mask_id]
        for path in finetuned.data():
            lines = path.read_text().splitlines()[1:]
            sides = list(zip(*(x.split('\t')[:2] for x in lines), strict=True))
            ids, lengths, _ = model.format_texts(*sides)
            a, b = (tokenizer.tokenize([x[0]])[0].numpy() for x in sides)
            self.assertEqual(
                ids[0, : lengths[0]].numpy().tolist(),
                [tokenizer.cls_id, *a, tokenizer.sep_id, *b,
                 tokenizer.mask_id],
            )  # fmt: skip
            targets = [
                row[1:size] for row, size in zip(ids.numpy(), lengths.numpy(),
                                                 strict=True)
            ]  # fmt: skip
            flat = np.concatenate(targets)
            counted = flat[~np.isin(flat, ends)]
            counts.append(np.bincount(counted, minlength=len(tokenizer)))
        training, heldout = counts
        p = heldout[counted] / heldout.sum()
        expected = (training + 1) / (training + 1).sum()
        for name, value in (
            ('ceiling', -np.log(p).mean()),
            ('unigram_mi', np.log(expected[counted] / p).mean()),
            ('chance', heldout.max() / heldout.sum()),
        ):
            self.assertAlmostEqual(
                metrics_text[f'heldout/gpt/{name}'], value, delta=1e-4, msg=name
            )

    def test_more_texts_than_a_chunk_holds(self):
        function = finetuned.served('pairs')['classify_pairs']
        few, many = (
            workdirs.answer(function, TEXTS * n, pairs=PAIRS * n)['scores']
            for n in (1, 300)
        )
        np.testing.assert_allclose(many, np.tile(few, (300, 1)), atol=1e-5)

    @parameterized.parameters(*SIGNATURES)
    def test_warm_up_asks_all(self, kind):
        asked = []
        for name, inputs in protos.warmups(finetuned.exported(kind)):
            if name not in (SIGNATURES[kind], 'serving_default'):
                continue
            function = finetuned.served(kind)[name]
            specs = function.structured_input_signature[1]
            self.assertEqual({k: v.ndim for k, v in inputs.items()},
                             {k: len(x.shape) for k, x in specs.items()})
            workdirs.answer(function, **inputs)
            asked.append(len(inputs['texts']))
        self.assertEqual(asked, [1, 32] * 2)

    @parameterized.parameters(
        ('classes', '`classify`: which label a text has, of `bad`, `fair`',
         '"instances": ["a text to classify"]'),
        ('pairs', '`classify`: which label a text and another has',
         '`classify_pairs` takes as many `pairs` too'),
        ('several', '`classify`: which of these labels a text has, several or '
         'none: `x`, `y`, `z`.', 'each where a text may have several, the log'),
        ('number', '`classify`: a number for a text.',
         '| `score` | [B] | float32 | the number |'),
        ('numbers', '`classify`: a number for a text and another.',
         '`regress_pairs` takes as many `pairs` too'),
        ('choices', '`classify`: which of several second texts goes with',
         '| `probabilities` | [B, J] | float32 | of each choice |'),
    )  # fmt: skip
    def test_the_card(self, kind, asked, how):
        text = workdirs.card_of(finetuned.exported(kind))
        train, dev = finetuned.data()
        for fact in (
            '# Text encoder fine-tuned on classify, version 1',
            asked,
            how,
            f'Trained on 24 examples (`.../{train.name}`)',
            f'on 12 others (`.../{dev.name}`), by whose',
            f'### `{SIGNATURES[kind]}`',
            'On held-out examples.',
            'Fine-tuning has changed its vectors',
        ):
            self.assertIn(fact, text)
        bounded = 'number' not in kind
        self.assertEqual('text and label' in text, bounded)
        self.assertEqual('bounds no mutual information' in text, not bounded)
        metrics = Config.read(finetuned.workdir(kind)).task.metrics
        for metric in metrics:
            self.assertRegex(text, rf'\| {metric} \| -?[01]\.\d{{4}} \|')
