"""Where the axis begins and ends in every row, on real held-out text.

A model that knows how frequent pieces are in the measured text has MI 0, one
that knows it of the training text `unigram_mi`, the best constant answer
`chance`.
"""

import dataclasses
import math
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from scipy import special

from infoword_tf.data import batches
from infoword_tf.data.opened import TextChoices, open_text
from infoword_tf.model import Model
from infoword_tf.objectives import Statistics
from infoword_tf.training import loop
from tests import corpus, places, zoo
from tests.eager import eagerly

# Windows, pairs and streams; with a bias of each piece and without.
OVER_VOCABULARY = (
    ('mlm', 'mlm'),
    ('mlm_transform', 'mlm'),
    ('bert', 'mlm'),
    ('transformer_xl', 'transformer_xl'),
    ('rnn_lm', 'rnn_lm'),
    ('rnn_lm_gru', 'rnn_lm'),
    ('gpt', 'gpt'),
    ('elmo', 'elmo'),
    ('plm', 'plm'),
)
NEVER = -30.0  # log p of a piece that does not occur


def setUpModule():
    global TEXT, STATISTICS
    folder = places.make()
    text, heldout = corpus.write_topics(folder / 'text')
    TEXT = open_text(TextChoices(text, heldout, vocab_size=600))
    STATISTICS = Statistics(TEXT.train.counts, TEXT.heldout.counts)


class ZeroTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(batches, 'HELDOUT_SEQUENCES', 48))

    def open(self, name):
        """Held-out values of a case's model, whose weights are all 0."""
        specials = TEXT.tokenizer.specials
        config = zoo.config(name)
        sizes = {'vocab_size': len(TEXT.tokenizer)}
        arguments = config.encoder.arguments | sizes
        encoder = dataclasses.replace(config.encoder, arguments=arguments)
        model = Model(config.replace(encoder=encoder), specials)
        if not model.encoder.remembers:  # a recurrence is slow that way
            self.enterContext(eagerly())
        for variable in model.variables.values():
            variable.assign(tf.zeros_like(variable))
        plan = zoo.CASES[name].resolved.plan
        all_views = batches.heldout_views(TEXT.heldout, plan, specials)
        return all_views, loop.Heldout(model, all_views, STATISTICS)

    def evaluate(self, heldout, row, scores):
        """Where f(a, b) is scores[b], whatever a is."""
        variables = heldout.model.variables
        bias = f'objectives/{row}/piece_bias'
        if bias in variables:
            variables[bias].assign(scores)
        else:  # every state is the first axis
            (last,) = (p for p in variables if p.endswith('outer_norm_beta'))
            variables[last].assign(np.eye(16)[0])
            table = variables['encoder/word_embeddings']
            table.assign(np.outer(scores, np.eye(16)[0]))
        start = f'heldout/{row}/'
        values = heldout.evaluate().items()
        return {path.removeprefix(start): value for path, value in values}

    def targets(self, all_views, row):
        """Returns what is asked for, of measured pairs [N]."""
        (view,) = (v for v in all_views.values() if row in v.targets)
        counted = view.weights[row] * view.measured.get(row, 1.0) > 0
        return view.targets[row][counted]

    @parameterized.parameters(*OVER_VOCABULARY, ('bert_nce', 'bert_nce'))
    def test_of_text(self, name, row):
        """One model of each case, whose graph is traced once."""
        opened = self.open(name)
        if name != 'bert_nce':
            self.check_measured_frequencies(row, *opened)
            self.check_training_frequencies(row, *opened)
        self.check_constants(row, *opened)

    def check_measured_frequencies(self, row, all_views, heldout):
        """They have MI 0."""
        counts = STATISTICS.measured
        p = counts / counts.sum()
        scores = np.where(p > 0, np.log(np.maximum(p, 1e-30)), NEVER)
        actual = self.evaluate(heldout, row, scores)
        self.assertAlmostEqual(actual['mi'], 0.0, delta=1e-6)
        # Not because the targets have these frequencies.
        targets = self.targets(all_views, row)
        entropy = -(p[p > 0] @ np.log(p[p > 0]))
        ceiling = -np.log(p[targets]).mean()
        self.assertGreater(abs(ceiling - entropy), 1e-3)
        self.assertAlmostEqual(actual['ceiling'], ceiling, delta=2e-6)
        size = math.log(len(p))
        self.assertAlmostEqual(actual['log_candidates'], size, delta=2e-6)
        # Who knows how frequent they are has their divergence from the text.
        frequencies = np.bincount(targets, minlength=len(p)) / len(targets)
        occurs = frequencies > 0
        divergence = special.rel_entr(frequencies, p)[occurs].sum()
        scores = np.where(occurs, np.log(np.maximum(frequencies, 1e-30)), NEVER)
        actual = self.evaluate(heldout, row, scores)
        self.assertAlmostEqual(actual['mi'], divergence, delta=1e-5)
        self.assertGreater(divergence, 1e-3)

    def check_training_frequencies(self, row, all_views, heldout):
        """They have unigram_mi."""
        actual = self.evaluate(heldout, row, np.log(STATISTICS.expected))
        self.assertAlmostEqual(actual['mi'], actual['unigram_mi'], delta=1e-6)
        p = STATISTICS.measured / STATISTICS.measured.sum()
        q = (STATISTICS.training + 1) / (STATISTICS.training + 1).sum()
        targets = self.targets(all_views, row)
        expected = np.log(q[targets] / p[targets]).mean()
        self.assertAlmostEqual(actual['unigram_mi'], expected, delta=1e-6)
        self.assertLess(expected, -0.05)

    def check_constants(self, row, all_views, heldout):
        """The best answer of all is chance."""
        counts = np.bincount(self.targets(all_views, row))
        first, second = np.argsort(-counts)[:2]
        for piece in (first, second, TEXT.tokenizer.specials.mask_id):
            actual = self.evaluate(
                heldout, row, np.eye(len(TEXT.tokenizer))[piece]
            )
            answer = counts[piece] if piece < len(counts) else 0
            self.assertEqual(actual['accuracy'], answer / counts.sum())
            self.assertEqual(actual['chance'], counts.max() / counts.sum())
        # Far from one in V.
        self.assertGreater(actual['chance'], 20 / len(TEXT.tokenizer))

    def test_the_best_constant_class_is_chance(self):
        all_views, heldout = self.open('bert')
        weights = all_views['masked'].weights['nsp'] > 0
        labels = np.bincount(all_views['masked'].targets['nsp'][weights])
        self.assertNotEqual(*labels)
        bias = heldout.model.objectives['nsp'].bias
        shares = labels / labels.sum()
        for label in (0, 1):
            bias.assign(np.eye(2)[label])
            actual = heldout.evaluate()
            self.assertEqual(actual['heldout/nsp/accuracy'], shares[label])
            self.assertEqual(actual['heldout/nsp/chance'], shares.max())
