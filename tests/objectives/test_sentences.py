"""`simcse` against plain implementations of the published losses."""

import itertools
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from scipy import special

from infoword_tf.config import DenseConfig
from infoword_tf.encoders import Encoded, Inputs
from infoword_tf.model import Model
from infoword_tf.objectives import TABLE, Ring, flag_of
from infoword_tf.training import loop
from infoword_tf.training.state import State
from infoword_tf.views import flatten, unflatten
from tests import eager, zoo
from tests.near import near, same
from tests.objectives.eq1 import (
    EagerCase,
    F,
    batch_of,
    mean,
    of_pair,
    sums,
    unit,
    view_of,
)
from tests.refused import refused

N, K, D, TAU = 5, 3, 16, 0.05
KEY = eager.new_key(4)
WAYS = {'forward': [(0, 1)], 'both': [(0, 1), (1, 0)]}
WAYS['joint'] = WAYS['both']


def opened(objectives='simcse', key=KEY, **more):
    """The model of a case, its views, and the batch of `simcse`."""
    case = zoo.Case(objectives, **more)
    model, all_views = zoo.model_of(case, 0.0), zoo.views_of(case.resolved)
    batches, _ = model.batches(all_views, zoo.statistics(), key)
    return model, all_views, batches['simcse']


def combinations(way):
    """All settings of what is contrasted that may stand together.

    Of each two, half are of prefixes too, and half of hardness.
    """
    dims = itertools.cycle(('', '4', '4', ''))
    hardness = itertools.cycle((0.0, 0.0, 2.0, 2.0))
    for guide, queue, momentum, keys, pairs in itertools.product(
        ('', 'nowhere'), (0, 8), (0.0, 0.9), ('queue', 'positives'), (2, 3)
    ):
        of_keys = keys == 'positives'
        if (
            (guide and queue)
            or (momentum and not (queue or of_keys))
            or (of_keys and not (momentum and way == 'forward'))
        ):
            continue
        yield {
            'directions': way, 'pairs': pairs, 'guide': guide,
            'hardness': next(hardness), 'queue': queue, 'momentum': momentum,
            'keys': keys, 'dims': next(dims),
        }  # fmt: skip


class LossTest(EagerCase):
    """Losses of vectors that are given, as published."""

    def setUp(self):
        super().setUp()
        random = np.random.default_rng(0)
        self.texts = random.standard_normal((N, K, D)).astype(np.float32)
        self.numbers = np.arange(N * K).reshape(N, K)
        self.cosines = np.einsum(
            'nad,mbd->nmab', unit(self.texts), unit(self.texts)
        )

    def score(
        self,
        texts=2,
        weights=None,
        state=None,
        key=KEY,
        guides=None,
        limit=None,
        **settings,
    ):
        """Its outcome, of the first so many texts of each example."""
        case = zoo.Case(
            'simcse',
            settings={
                'simcse.head': 'none',
                'sentences.pairs': texts,
                **{flag_of('simcse', k): x for k, x in settings.items()},
            },
        )
        model = zoo.model_of(case, rate=0.0)
        objective = model.objectives['simcse']
        view = view_of('simcse', self.numbers[:, :texts], weights)
        if guides is not None:
            actual = guides[:, None, :texts].astype(np.float16)
            view = view._replace(guides={'simcse': actual})
        batch = batch_of(
            {'sentences': view}, {'sentences': self.texts[:, :texts]}, key,
            limit,
        )  # fmt: skip
        batch = batch._replace(state=state or {})
        if objective.momentum:
            batch.views['sentence_keys'] = view
            batch.encoded['sentence_keys'] = {
                'momentum': [Encoded(self.keys[:, None])]
            }
        self.objective, self.batch = objective, batch
        return objective.score(batch, objective.candidates(batch))

    def losses(self, logits):
        """Cross-entropy of the diagonal, [N]."""
        return special.logsumexp(logits, axis=1) - np.diag(logits)

    def test_an_empty_slot_is_nobody(self):
        whole = self.score(weights=[1, 1, 1, 1, 0])
        self.texts, self.numbers = self.texts[:4], self.numbers[:4]
        near(sums(whole), sums(self.score()), rtol=1e-5)

    @parameterized.parameters('none', 'training', 'kept')
    def test_prefixes_are_of_what_is_exported(self, head):
        """With a queue, whose vectors have prefixes of length 1 too.

        A head of training is above the whole alone, which Kusupati et al.
        do not have; of the vector without it the whole is a prefix then.
        """
        random = np.random.default_rng(1)
        sides = 1 + (head == 'training')
        wide = 128 if head == 'kept' else D  # of the zoo's kept layer
        queued = unit(random.standard_normal((sides, 8, wide))).astype('f')
        state = {
            'rows': np.concatenate(queued, axis=1),
            'texts': 100 + np.arange(8, dtype=np.int32),
            'count': np.int32(5),
        }
        outcome = self.score(dims='4,16', head=head, queue=8, state=state)
        whole = exported = self.texts[:, :2]
        if head != 'none':
            dense = self.objective.train_head or self.objective.dense[0]
            whole = np.tanh(whole @ np.array(dense.kernel) + dense.bias)
        if head == 'kept':
            exported = whole
        parts = [(whole, queued[0])]
        for width in (4,) if head == 'none' else (4, 16):
            parts.append((exported[..., :width], queued[-1][:, :width]))
        losses = []
        for x, rows in parts:
            a, b = np.moveaxis(unit(x), 1, 0)
            losses.append(
                self.losses(np.hstack([a @ b.T, a @ unit(rows)[:5].T]) / TAU)
            )
        self.assertAlmostEqual(mean(outcome).loss, np.mean(losses), delta=1e-4)
        plain = unit(np.array(whole))
        bound = np.log(N) - self.losses(plain[:, 0] @ plain[:, 1].T / TAU)
        self.assertAlmostEqual(mean(outcome).mi, bound.mean(), delta=1e-4)
        added = self.objective.update_state(self.batch)
        expected = [plain, unit(exported)][:sides]
        near(
            added['rows'].values, np.concatenate(expected, axis=2)[:, 1],
            atol=1e-5,
        )  # fmt: skip
        same(added['texts'].values, self.numbers[:, 1])

    def test_prefixes_that_there_are_not(self):
        for dims, id, value in (
            ('8,x', 'dims_no_numbers', '8,x'), ('32', 'dims_too_wide', 16)
        ):  # fmt: skip
            with refused(id, value):
                self.score(dims=dims)

    def test_a_workdir_whose_vectors_are_narrower(self):
        """As one that `tasks.whiten` made of fewer numbers."""
        for settings, id, *values in (
            ({'head': 'none', 'dims': '12'}, 'dims_too_wide', 8, 12),
            ({}, 'head_of_other_width', 8, '--simcse.head=none'),
        ):
            config = zoo.config_of(zoo.of('simcse', **settings))
            config = config.replace(dense=(DenseConfig(8, 'identity'),))
            with refused(id, *values):
                Model(config, zoo.SPECIALS)

    def written_out(self, *arguments):
        """Sums whose loss is the mean over prefixes; as `of_prefixes`."""
        total, guided = self.of_prefixes(D, *arguments)
        dims = arguments[-1]['dims']
        if dims:
            prefixes, _ = self.of_prefixes(int(dims), *arguments)
            total[0] = (total[0] + prefixes[0]) / 2
        return total, guided

    def of_prefixes(self, width, seen, queued, settings):
        """Sums, and what share of candidates each pair's guide takes out.

        Args:
            width: how many numbers of each vector are compared.
            seen: [N, K, G] of length 1, of a guide.
            queued: [S, D] of length 1, and [S] what they are; -1: nothing.
            settings: as of `combinations`.
        """
        way, beta = settings['directions'], settings['hardness']
        x, numbers = unit(self.texts[..., :width]), self.numbers
        rows, texts = unit(queued[0][:, :width]), queued[1]
        if settings['keys'] == 'positives':
            x[:, 1] = unit(self.keys[:, :width])
        negatives = list(range(2, settings['pairs']))
        total, guided = np.zeros(F), 0.0
        for query, answer in WAYS[way]:
            sides = {'joint': [1, 0, *negatives]}.get(way)
            if sides is None:
                sides = [1, *negatives] if answer == 1 else [0]
            for i in range(N):
                of_b = x[i, query] @ x[i, answer] / TAU
                drawn, copies, contrasted, out = [], [], [], []
                for side, j in itertools.product(sides, range(N)):
                    if (j == i and side < 2) or numbers[j, side] < 0:
                        continue
                    copy = numbers[j, side] == numbers[i, answer]
                    cosine = x[i, query] @ x[j, side]
                    if side == answer:
                        drawn.append(cosine / TAU)
                        copies.append(copy)
                    edge = seen[i, query] @ seen[i, answer] - 0.3
                    out.append(
                        bool(settings['guide'])
                        and not copy
                        and seen[i, query] @ seen[j, side] > edge
                    )
                    if not copy and not out[-1]:
                        contrasted.append(cosine)
                if settings['queue'] and (way == 'joint' or answer == 1):
                    contrasted += [
                        x[i, query] @ row
                        for row, text in zip(rows, texts, strict=True)
                        if text not in (-1, numbers[i, answer])
                    ]
                hard = np.exp(beta * np.array(contrasted))
                hard *= len(hard) / max(hard.sum(), 1e-9)
                pair = of_pair(of_b, drawn, copies)
                pair[0] = (
                    special.logsumexp(
                        [of_b, *(np.array(contrasted) / TAU + np.log(hard))]
                    )
                    - of_b
                )
                total += pair
                guided += np.mean(out)
        return total / len(WAYS[way]), guided / len(WAYS[way])

    @parameterized.parameters(*WAYS)
    def test_whatever_the_loss_contrasts_the_bound_has_other_b(self, way):
        """Solatorio 2024, "GISTEmbed", §3, Robinson et al. 2021, Eq. 4, He et
        al. 2020, Eq. 1, and what they may be put together with.
        """
        random = np.random.default_rng(3)
        guides = random.standard_normal((N, K, 4)).astype(np.float16)
        self.numbers[4, 1] = self.numbers[0, 1]  # equal, for a guide too
        self.texts[4, 1], guides[4, 1] = self.texts[0, 1], guides[0, 1]
        self.numbers[3, 2] = -1
        self.keys = random.standard_normal((N, D)).astype(np.float32)
        self.keys[4] = self.keys[0]
        rows = unit(random.standard_normal((8, D))).astype(np.float32)
        texts = np.array([50, 51, self.numbers[2, 1], 53, -1, -1, -1, -1])
        state = {'rows': rows, 'texts': texts.astype('i'), 'count': np.int32(4)}
        seen = unit(guides.astype(np.float32))
        shares = []
        for settings in combinations(way):
            with self.subTest(**settings):
                outcome = self.score(
                    settings['pairs'],
                    state=state if settings['queue'] else None,
                    guides=guides if settings['guide'] else None,
                    guide_margin=0.3 if settings['guide'] else 0.0,
                    **{k: x for k, x in settings.items() if k != 'pairs'},
                )
                expected, share = self.written_out(
                    seen, (rows, texts), settings
                )
                near(sums(outcome), expected, rtol=2e-5)
                if settings['guide']:
                    self.assertAlmostEqual(
                        float(outcome.more['guided']), share, delta=1e-5
                    )
                    shares.append(share / N)
                    self.assertEqual(
                        self.objective.more, ('identical', 'guided')
                    )
        self.assertBetween(min(shares), 0.1, 0.9)
        self.assertBetween(max(shares), 0.1, 0.9)

    def test_a_guide_does_not_see_a_queue(self):
        with refused('guide_and_queue', 'nowhere', '--simcse.queue=4'):
            self.score(guide='nowhere', queue=4)
        with refused('margin_without_guide', '--simcse.guide_margin=0.1'):
            self.score(guide_margin=0.1)


class RingTest(absltest.TestCase):
    def test_rows_that_are_none_change_nothing(self):
        """As if the others alone were added, over and over."""
        random = np.random.default_rng(2)
        ring = Ring(6, 2)
        state, plain = (
            {k: np.array(x) for k, x in ring.empty().items()} for _ in range(2)
        )
        for step in range(7):
            weights = (random.random(4) < 0.6).astype(np.float32)
            rows = random.standard_normal((4, 2)).astype(np.float32)
            texts = np.arange(4, dtype=np.int32) + 10 * step
            new = ring.add(state, rows, texts, weights)
            for name in ('rows', 'texts'):
                self.assertLen(set(new[name].places.numpy()), 4)
                state[name][new[name].places] = new[name].values
            state['count'] = np.int32(new['count'])
            for row in np.flatnonzero(weights):
                place = plain['count'] % 6
                plain['rows'][place] = rows[row]
                plain['texts'][place] = texts[row]
                plain['count'] = plain['count'] + 1
            for name, expected in plain.items():
                same(state[name], expected, name)
        self.assertGreater(plain['count'], 12)


class PoolingTest(EagerCase):
    @parameterized.parameters('cls', 'mean', 'first_last', 'last_two')
    def test_as_what_is_loaded_pools(self, pooling):
        """Pools copies that share rows as each text alone."""
        model, all_views, batch = opened(
            settings={'simcse.pooling': pooling}, layers=3
        )
        actual = model.objectives['simcse'].vectors(batch)['texts']
        view = all_views['sentences']
        for slot in np.ndindex(*view.weights['simcse'].shape):
            row, j = slot
            at = np.ravel_multi_index(slot, view.weights['simcse'].shape)
            for copy in range(2):
                here = view.block_ids[row] == 2 * j + copy
                if not here.any():
                    continue
                encoded = model.encoder(
                    Inputs(view.ids[row][here][None]),
                    all_layers=True,
                )
                layers = [x.numpy()[0] for x in encoded.layers]
                expected = {
                    'cls': layers[-1][0],
                    'mean': layers[-1].mean(0),
                    'first_last': (layers[1] + layers[-1]).mean(0) / 2,
                    'last_two': (layers[-2] + layers[-1]).mean(0) / 2,
                }[pooling]
                near(actual[at, copy], expected, atol=2e-5)

    def test_copies_differ_by_dropout_in_held_out_text_too(self):
        case = zoo.Case('simcse')
        model = zoo.model_of(case, rate=0.1)
        all_views = zoo.views_of(case.resolved)
        objective = model.objectives['simcse']
        for key in (None, KEY):
            batch = model.batches(all_views, zoo.statistics(), key)[0]['simcse']
            a, b = np.moveaxis(objective.vectors(batch)['texts'], 1, 0)
            self.assertGreater(np.abs(a - b).max(), 0.01)
            again = model.batches(all_views, zoo.statistics(), key)[0]['simcse']
            same(objective.vectors(again)['texts'][:, 0], a)
        still, _, batch = opened()
        a, b = np.moveaxis(still.objectives['simcse'].vectors(batch)['texts'],
                           1, 0)  # fmt: skip
        near(a, b, atol=1e-5)


class CutTest(EagerCase):
    def test_so_many_features_and_tokens_of_first_texts(self):
        """The same features in all of a text's tokens; others elsewhere."""
        model, all_views, batch = opened('consert', settings={
            'simcse.cut_features': 0.2, 'simcse.cut_tokens': 0.3,
            'sentences.shuffle': False,
        })  # fmt: skip
        view = all_views['sentences']
        cut_mask = model.objectives['simcse'].form.cut_mask(batch, view).numpy()
        seen = set()
        for row, j in np.argwhere(view.weights['simcse'] > 0):
            second = cut_mask[row][view.block_ids[row] == 2 * j + 1]
            self.assertTrue((second == 1).all())
            first = cut_mask[row][view.block_ids[row] == 2 * j]
            whole = first.sum(axis=1) == 0
            self.assertEqual(whole.sum(), int(0.3 * len(first)))
            features = np.unique(first[~whole], axis=0)
            self.assertLen(features, 1)
            self.assertEqual((features == 0).sum(), int(0.2 * D))
            seen.add(tuple(features[0]))
        self.assertGreater(len(seen), 5)
        last = cut_mask[view.block_ids == view.targets['simcse'][0].size]
        self.assertTrue((last == 1).all())

    @parameterized.parameters('mean', 'first_last')
    def test_none_of_few_tokens_is_cut(self, pooling):
        """Pools layers as those of whole texts."""
        vectors = []
        for settings in {}, {'simcse.cut_tokens': 1e-6}:
            model, _, batch = opened(
                settings={**settings, 'simcse.pooling': pooling}, layers=3
            )
            vectors.append(model.objectives['simcse'].vectors(batch)['texts'])
        near(*vectors, atol=1e-5)

    def test_the_only_copy_is_cut(self):
        """Where a momentum encoder makes b."""
        model, all_views, batch = opened(settings={
            'sentences.keys': 'positives', 'simcse.momentum': 0.9,
            'simcse.cut_features': 0.2,
        })  # fmt: skip
        view, objective = all_views['sentences'], model.objectives['simcse']
        cut_mask = objective.form.cut_mask(batch, view).numpy()
        for row, j in np.argwhere(view.weights['simcse'] > 0):
            actual = cut_mask[row][view.block_ids[row] == j]
            same((actual == 0).sum(1), int(0.2 * D))
        vectors = objective.vectors(batch)
        self.assertEqual(vectors['texts'].shape[1], 1)
        self.assertGreater(
            np.abs(vectors['texts'][:, 0] - vectors['keys']).max(), 1e-2
        )


class MomentumTest(EagerCase):
    def test_keys_are_plain_texts_through_the_head_of_now(self):
        """Without dropout or repetition; the average begins as a copy."""
        case = zoo.Case('esimcse', settings={'simcse.queue': 16})
        model = zoo.model_of(case, rate=0.1)
        model.assign_copies()
        all_views = zoo.views_of(case.resolved)
        state = State(model, zoo.strategy(1), 8)
        _, new = model.outcomes(
            all_views, zoo.statistics(), KEY, state=state.read()
        )
        added = new['objectives/simcse']['rows'].values.numpy()
        objective, view = model.objectives['simcse'], all_views['sentences']
        keys = all_views['sentence_keys']
        real = view.weights['simcse'].ravel() > 0
        self.assertLess(keys.ids.shape[1], view.ids.shape[1])
        expected = []
        for slot in np.argwhere(view.weights['simcse'] > 0):
            row, j = slot
            first = view.ids[row][view.block_ids[row] == 2 * j]
            key = keys.ids[row][keys.block_ids[row] == j]
            same(key, first)
            states = model.encoder(Inputs(first[None])).states
            expected.append(objective.train_head(states[:, 0])[0])
        self.assertEqual(new['objectives/simcse']['count'], 8)
        self.assertLess(8, len(real))  # some slots are empty
        actual = added[-8:]
        near(actual, unit(np.array(expected)), atol=2e-5)

    @parameterized.parameters(0, 3)
    def test_keys_are_positives(self, pairs):
        """k is of the momentum encoder, which differs here, and gets no
        gradient; what the loss makes of it is in LossTest.
        """
        settings = {
            'sentences.keys': 'positives', 'simcse.momentum': 0.9,
            'simcse.queue': 6, 'simcse.head': 'none', 'sentences.pairs': pairs,
        }  # fmt: skip
        case = zoo.Case('simcse', settings=settings)
        model = zoo.model_of(case, rate=0.0)
        random = np.random.default_rng(0)
        for weight in model.encoders['momentum'].weights:
            weight.assign(weight + random.normal(0, 0.05, weight.shape))
        all_views = zoo.views_of(case.resolved)
        objective, view = model.objectives['simcse'], all_views['sentences']
        state = {n: e.empty for n, e in model.empty_state(8).items()}
        rows = unit(random.standard_normal((6, D))).astype(np.float32)
        cut_mask = state['objectives/simcse']
        cut_mask |= {'rows': rows, 'count': np.int32(4)}
        with tf.GradientTape() as tape:
            batches, _ = model.batches(
                all_views, zoo.statistics(), KEY, state=state
            )
            batch = batches['simcse']
            texts = objective.vectors(batch)
            tape.watch(texts)
            batch = batch._replace(vectors=texts)
            outcome = objective.score(batch, objective.candidates(batch))
        self.assertIsNone(tape.gradient(outcome.loss, texts['keys']))
        real = view.weights['simcse'].ravel() > 0
        k = unit(texts['keys'].numpy()[real])
        self.assertEqual(texts['texts'].shape[1], pairs or 1)
        plain = model.encoder(
            Inputs(all_views['sentence_keys'].ids[:1, :8])
        ).states
        moved = model.encoders['momentum'](
            Inputs(all_views['sentence_keys'].ids[:1, :8])
        ).states
        self.assertGreater(np.abs(plain - moved).max(), 0.1)
        added = objective.update_state(batch)['rows'].values.numpy()
        near(added, k[-6:], atol=1e-5)

    def test_what_a_momentum_encoder_needs(self):
        keys = '--sentences.keys=positives'
        for settings, id, *values in (
            ({'momentum': 0.9}, 'momentum_without_queue', '--simcse.queue'),
            ({'keys': 'positives'}, 'keys_without_momentum', keys,
             '--simcse.momentum'),
            ({'keys': 'positives', 'momentum': 0.9, 'directions': 'joint'},
             'keys_of_one_side', keys, '--simcse.directions=joint'),
        ):  # fmt: skip
            with refused(id, *values):
                zoo.model_of(zoo.of('simcse', **settings))


class WholeTest(EagerCase):
    def test_held_out_text_is_normed_as_a_whole(self):
        """In whatever slices it is read, and candidates as what asks."""
        case = zoo.Case(
            'simcse:1,diffcse:1',
            settings={
                'simcse.head': 'projector', 'sentences.pairs': 3,
            },
        )  # fmt: skip
        model = zoo.model_of(case, rate=0.0)
        all_views = zoo.views_of(case.resolved, 9)
        actual = []
        for size in (32, 2):
            with mock.patch.object(loop, 'HELDOUT_BATCH', size):
                heldout = loop.Heldout(model, all_views, zoo.statistics())
                actual.append(heldout.evaluate())
        whole, sliced = actual
        names = [name for name in whole if name.startswith('heldout/simcse')]
        self.assertIn('heldout/simcse/mi', names)
        for name in names:
            self.assertAlmostEqual(sliced[name], whole[name], places=4)
        batches, _ = model.batches(all_views, zoo.statistics())
        row = model.objectives['diffcse']
        whole = row._vectors(batches['diffcse'], {})
        norms = row.candidates(batches['diffcse'])
        first = {name: x[:1] for name, x in flatten(all_views).items()}
        batches, _ = model.batches(unflatten(first), zoo.statistics())
        near(row._vectors(batches['diffcse'], norms), whole[:1], atol=1e-4)

    def test_a_kept_head_is_a_layer_of_the_vector(self):
        case = zoo.Case('simcse', settings={'simcse.head': 'kept'})
        model = zoo.model_of(case, rate=0.0)
        self.assertIn('dense_0/kernel', model.exported)
        all_views = zoo.views_of(case.resolved)
        with tf.GradientTape() as tape:
            outcomes, _ = model.outcomes(all_views, zoo.statistics(), KEY)
            loss = model.loss(outcomes)
        gradient = tape.gradient(loss, model.dense[0].kernel.value)
        self.assertGreater(np.abs(gradient).max(), 1e-3)

    def test_copies_are_warned_of_random_weights(self):
        advice = TABLE['simcse'].init_advice
        self.assertIn('--init', advice({'pairs': 0}))
        self.assertEqual(advice({'pairs': 2}), '')

    def test_a_head_of_training_stays_behind(self):
        model = zoo.make_model('simcse')
        paths = {p for p in model.variables if p.startswith('objectives')}
        self.assertNotEmpty(paths)
        self.assertContainsSubset(paths, model.trainable)
        self.assertNoCommonElements(paths, model.exported)
