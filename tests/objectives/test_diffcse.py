"""`diffcse` against what the publication says, written out."""

from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from scipy import special

from infoword_tf.encoders import Encoded, Inputs
from infoword_tf.layers import dropout
from infoword_tf.objectives import Replicas
from infoword_tf.objectives.masked_copies import masked_copy, sequence_key
from infoword_tf.training.microbatch import MicrobatchStep
from tests import eager, zoo
from tests.layers.operations import fed_forward, normed
from tests.objectives.eq1 import EagerCase, check, losses_of, mean

KEY = eager.new_key(4)


def discriminated(encoder, inputs):
    """[R, T, D] of an encoder of one layer, in NumPy.

    At `first_places` the layer reads `first`, and what the embeddings give
    there is lost (voidism/DiffCSE, modeling_bert.py, line 961).
    """
    layer = {
        w.path.split('/', 1)[1].removeprefix('layer_0/'): w.numpy()
        for w in encoder.weights
    }

    x = layer['word_embeddings'][np.array(inputs.ids)]
    x = x + layer['position_embeddings'][np.array(inputs.positions)]
    x = normed(x + layer['segment_embeddings'][0], layer, 'norm', 0)
    for row, j in np.argwhere(np.array(inputs.first_places) >= 0):
        x[row, inputs.first_places[row, j]] = inputs.first[row, j]
    r, t, d = x.shape
    heads = encoder.arguments['heads']
    qkv = x @ layer['attention/qkv_kernel'] + layer['attention/qkv_bias']
    q, k, v = qkv.reshape(r, t, 3, heads, d // heads).transpose(2, 0, 3, 1, 4)
    scores = q @ k.swapaxes(2, 3) / np.sqrt(d // heads)
    blocks = np.array(inputs.block_ids)
    same = blocks[:, None, :, None] == blocks[:, None, None]
    mixed = special.softmax(np.where(same, scores, -np.inf), axis=-1) @ v
    mixed = mixed.swapaxes(1, 2).reshape(r, t, d)
    mixed = mixed @ layer['attention/output_kernel'] + layer['attention_bias']
    x = normed(x + mixed, layer, 'attention_norm', 0)
    return normed(x + fed_forward(x, layer), layer, 'outer_norm', 0)


class MaskedCopyTest(absltest.TestCase):
    def test_a_share_of_each_row_and_no_specials(self):
        """80 % [MASK], 10 % any piece, 10 % as they are."""
        random = np.random.default_rng(0)
        r, t = 20000, 24
        ids = random.integers(zoo.FIRST, zoo.V, (r, t)).astype(np.int32)
        ids[:, 0], ids[:, 9], ids[:, 10] = zoo.CLS, zoo.SEP, zoo.CLS
        lengths = random.integers(12, t + 1, r)
        real = np.arange(t) < lengths[:, None]
        copy = masked_copy(KEY, ids, tf.constant(real), 0.4, zoo.SPECIALS)
        shown, places = np.array(copy.ids), np.array(copy.places)
        is_text = np.array(copy.weights) > 0
        inner = real & ~np.isin(ids, (zoo.CLS, zoo.SEP))
        np.testing.assert_array_equal(
            is_text.sum(1), np.floor(0.4 * inner.sum(1) + 0.5)
        )
        masked = np.zeros((r, t), bool)
        rows = np.arange(r)[:, None].repeat(places.shape[1], 1)
        masked[rows[is_text], places[is_text]] = True
        self.assertEqual(masked.sum(), is_text.sum())  # no place twice
        self.assertFalse((masked & ~inner).any())
        np.testing.assert_array_equal(shown[~masked], ids[~masked])
        np.testing.assert_array_equal(
            np.array(copy.targets)[is_text], ids[rows[is_text], places[is_text]]
        )
        hidden = np.array(copy.hidden)[is_text] > 0
        now = shown[rows[is_text], places[is_text]]
        before = ids[rows[is_text], places[is_text]]
        self.assertTrue((now[hidden] == zoo.MASK).all())
        self.assertAlmostEqual(hidden.mean(), 0.8, delta=0.01)
        unchanged = (now == before)[~hidden].mean()
        self.assertAlmostEqual(unchanged, 0.5 + 0.5 / zoo.V, delta=0.04)
        # Each place of a text is masked as often as any other.
        often = masked.sum(0) / np.maximum(inner.sum(0), 1)
        self.assertLess(np.abs(often[inner.any(0)] - 0.4).max(), 0.05)

    def test_shares_of_a_batch_are_masked_as_the_whole(self):
        """A replica's by its number, a microbatch by its key."""

        def drawn(key, size, replica=0):
            batch = mock.Mock(key=key, replicas=mock.Mock(id=replica))
            key = sequence_key(batch, size)
            return np.array(dropout.uniform(key, (size, 5)))

        whole = drawn(KEY, 6)
        np.testing.assert_array_equal(drawn(KEY, 2, 1), whole[2:4])
        part = drawn(dropout.of_rows(KEY, 3, 2), 2)
        np.testing.assert_array_equal(part, whole[3:5])


class DiffCseTest(EagerCase):
    def make(
        self, rate=0.0, replaced=None, simcse=None,
        objectives='simcse:1,diffcse:0.5', **settings,
    ):  # fmt: skip
        """A model with a batch of its row; what was encoded on the way."""
        settings = {f'diffcse.{k}': x for k, x in settings.items()}
        settings |= {f'simcse.{k}': x for k, x in (simcse or {}).items()}
        case = zoo.Case(objectives, settings=settings)
        self.model = zoo.model_of(case, rate=rate)
        self.model.assign_copies()
        self.views = zoo.views_of(case.resolved)
        batches, _ = self.model.batches(self.views, zoo.statistics(), KEY)
        self.batch = batches['diffcse']
        self.objective = self.model.objectives['diffcse']
        self.seen, encode = {}, self.batch.encode

        def watched(inputs, encoder, **more):
            self.seen[encoder] = inputs
            actual = encode(inputs, encoder, **more)
            if encoder == 'generator' and replaced is not None:
                actual = Encoded(replaced)
            return actual

        self.batch = self.batch._replace(encode=watched)
        return self.objective.score(self.batch, None)

    def real(self):
        view = self.views['sentences']
        _, slots, texts = view.targets['diffcse'].shape
        return view.block_ids < slots * texts

    def test_the_generator_answers_everywhere_but_at_the_start(self):
        self.make()
        view = self.views['sentences']
        read = np.array(self.seen['generator'].ids)
        states = self.model.encoders['generator'](
            Inputs(read, view.positions, block_ids=view.block_ids)
        ).states
        table = self.model.encoders['generator'].embedding_table
        likeliest = np.argmax(np.array(states) @ np.array(table).T, axis=-1)
        fixed = ~self.real() | (view.ids == zoo.CLS)
        words = np.where(fixed, view.ids, likeliest)
        np.testing.assert_array_equal(self.seen['discriminator'].ids, words)
        # [SEP] is a word like others there, as published.
        end = self.real() & (view.ids == zoo.SEP)
        self.assertTrue((words != view.ids)[end].any())
        share = (read == zoo.MASK).sum() / (~fixed & ~end).sum()
        self.assertAlmostEqual(share, 0.3 * 0.8, delta=0.06)

    @parameterized.parameters(True, False)
    def test_the_vector_stands_at_the_start_of_its_text(self, projected):
        """Behind simcse's head, or before it; of each copy its own."""
        self.make(projected=projected)
        inputs, view = self.seen['discriminator'], self.views['sentences']
        simcse = self.model.objectives['simcse']
        texts = simcse.vectors(self.batch.scorer_batch)['texts']
        if projected:
            texts = simcse.train_head(tf.reshape(texts, (-1, texts.shape[-1])))
        places = np.array(inputs.first_places)
        np.testing.assert_allclose(
            tf.reshape(inputs.first, (-1, texts.shape[-1])),
            tf.reshape(texts, (-1, texts.shape[-1])),
            atol=1e-6,
        )
        ids = np.take_along_axis(view.ids, np.maximum(places, 0), axis=1)
        self.assertTrue((ids[places >= 0] == zoo.CLS).all())
        self.assertEqual((places >= 0).sum(), (view.ids == zoo.CLS).sum())

    def losses(self):
        """[R, T] of the discriminator, in NumPy, and what was replaced."""
        inputs, view = self.seen['discriminator'], self.views['sentences']
        states = discriminated(self.model.encoders['discriminator'], inputs)
        scores = states @ np.array(self.objective.kernel)
        scores += np.array(self.objective.bias)
        replaced = (np.array(inputs.ids) != view.ids).astype(int)
        return losses_of(scores, replaced), replaced

    @parameterized.parameters('training', 'none')
    def test_the_loss_is_that_of_real_words(self, head):
        """Chuang et al. 2022, Eq. 3, without padding and [CLS].

        The vector stands where the embeddings' output was: of any length.
        """
        outcome = self.make(simcse={'head': head})
        losses, replaced = self.losses()
        view = self.views['sentences']
        asked = self.real() & (view.ids != zoo.CLS)
        self.assertEqual(outcome.weight, asked.sum())
        self.assertEqual(outcome.measured, asked.sum())
        loss, p = losses[asked].mean(), replaced[asked].mean()
        entropy = -(p * np.log(p) + (1 - p) * np.log(1 - p))
        means = mean(outcome)
        check(means, 1e-5, loss=loss, mi=entropy - loss, ceiling=entropy)
        check(means, 1e-6, chance=max(p, 1 - p))

    def test_as_published_padding_is_counted(self):
        """The sum named so: all of the places of texts as long as the longest.

        `loss_fct` of diffcse/models.py is a mean over them, [CLS] too, 0.005
        of which is added; here without the loss at padding.
        """
        outcome = self.make(objectives='diffcse_published')
        losses, replaced = self.losses()
        view = self.views['sentences']
        texts = np.where(self.real(), view.block_ids, -1)
        lengths = np.concatenate(
            [np.unique(x[x >= 0], return_counts=True)[1] for x in texts]
        )
        self.assertEqual(outcome.weight, len(lengths) * max(lengths))
        self.assertEqual(outcome.measured, self.real().sum() - len(lengths))
        total = losses[self.real()].sum()
        self.assertAlmostEqual(outcome.loss, total, delta=1e-3)
        self.assertEqual(replaced[view.ids == zoo.CLS].sum(), 0)
        self.assertAlmostEqual(
            self.model.loss({'diffcse': outcome}),
            0.005 * total / (len(lengths) * max(lengths)),
            delta=1e-6,
        )

    def test_sampled_words_are_as_likely_as_the_generator_says(self):
        """Half are one word, and 50 others each one in 100."""
        p = np.full(zoo.V, 1e-9)
        p[zoo.FIRST : zoo.FIRST + 51] = [0.5, *[0.01] * 50]
        view = zoo.make_views('diffcse')['sentences']
        states = np.zeros((*view.ids.shape, 16), np.float32)
        states[..., 0] = 1
        table = np.zeros((zoo.V, 16))
        table[:, 0] = np.log(p)
        self.make(replaced=states, sampled=True)
        self.model.encoders['generator'].embedding_table.assign(table)
        drawn = []
        for number in range(8):
            key = dropout.new_key(number)
            words = self.objective._words(self.batch._replace(key=key))
            asked = self.real() & (view.ids != zoo.CLS)
            drawn.append(np.array(words)[asked])
        shares = np.bincount(np.concatenate(drawn), minlength=zoo.V)
        shares = shares / shares.sum()
        # Noise of the other sign gives the likely one 0.9.
        self.assertAlmostEqual(shares[zoo.FIRST], 0.5, delta=0.04)
        self.assertAlmostEqual(shares[zoo.FIRST :].sum(), 1, delta=1e-6)

    def test_a_generator_that_scores_words_itself(self):
        """The row of its workdir that does, with counts of the training."""
        self.make()
        scores = np.zeros((*self.real().shape, zoo.V), np.float32)
        scores[..., zoo.FIRST + 7] = 1
        rows = mock.Mock(spec=['token_scores'])
        rows.token_scores.return_value = scores
        self.objective.auxiliary_rows = {
            'generator': {'none': mock.Mock(spec=[]), 'mlm': rows}
        }
        self.objective.score(self.batch, None)
        ids = np.array(self.seen['discriminator'].ids)
        view = self.views['sentences']
        asked = self.real() & (view.ids != zoo.CLS)
        self.assertEqual({*ids[asked]}, {zoo.FIRST + 7})
        np.testing.assert_array_equal(ids[~asked], view.ids[~asked])
        _, counts = rows.token_scores.call_args.args
        np.testing.assert_array_equal(counts, zoo.statistics().training)

    def test_the_gradient_goes_through_the_vector_alone(self):
        """Into the encoder; into the discriminator; not the generator."""
        with tf.GradientTape() as tape:
            outcome = self.make()
        weights = {p: x.value for p, x in self.model.variables.items()}
        actual = tape.gradient(outcome.loss, weights)
        moved = {p.split('/')[0] for p, x in actual.items() if x is not None}
        self.assertEqual(moved, {'encoder', 'discriminator', 'objectives'})
        self.assertNoCommonElements(
            {p.split('/')[0] for p in self.model.trainable}, {'generator'}
        )
        stopped = tf.zeros_like(self.seen['discriminator'].first)
        with (
            absltest.mock.patch.object(
                type(self.objective), '_vectors', lambda *_: stopped
            ),
            tf.GradientTape() as tape,
        ):
            loss = self.objective.score(self.batch, None).loss
        encoder = {p: x for p, x in weights.items() if p.startswith('encoder')}
        for gradient in tape.gradient(loss, encoder).values():
            self.assertIsNone(gradient)

    def test_both_networks_begin_as_the_encoder(self):
        self.make()
        encoder = self.model.encoder.weights
        for name in ('generator', 'discriminator'):
            weights = self.model.encoders[name].weights
            for mine, its in zip(weights, encoder, strict=True):
                np.testing.assert_array_equal(mine, its)
        self.assertNoCommonElements(
            {p.split('/')[0] for p in self.model.exported},
            {'generator', 'discriminator'},
        )

    def test_a_norm_over_the_batch_cannot_be_parted(self):
        model = zoo.make_model('diffcse_published')
        views = zoo.make_views('diffcse_published')
        with self.assertRaisesRegex(ValueError, 'leave out --microbatch'):
            MicrobatchStep(
                model, views, zoo.statistics(), KEY, Replicas(), {}, 3
            )
