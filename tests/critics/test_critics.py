"""Critics and a reranker's scores, on three texts that are written out.

Glossary of shapes: S texts of an example.
"""

import dataclasses
import string
import types
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from scipy import special

from infoword_tf.critics import CRITICS, OF_DOCUMENTS
from infoword_tf.critics.critic import Start
from infoword_tf.critics.late import LateConfig
from infoword_tf.critics.lexical import (
    LexicalConfig,
    LexicalCritic,
    LexicalWeights,
    flops,
)
from infoword_tf.layers import dropout
from infoword_tf.model import Model
from infoword_tf.objectives import TABLE, comparing
from infoword_tf.settings import setting
from infoword_tf.views import View
from tests import zoo
from tests.eager import eagerly
from tests.objectives.eq1 import (
    EagerCase,
    batch_of,
    mean,
    of_pair,
    sums,
    view_of,
)
from tests.refused import refused

N, D = 3, 16
HALF, LONG = 0.5, 3**0.5 / 2  # cosines of 60 and of 30 degrees
# Angles of two tokens of each a and b, in degrees.
ANGLES = [[[0, 90], [0, 90]], [[60, 60], [60, 60]], [[180, 270], [180, 270]]]
# MaxSim of each a with each b.
SCORES = np.array([
    [2, HALF + LONG, 0], [2 * LONG, 2, -2 * HALF], [0, -HALF - LONG, 2],
])  # fmt: skip
# What a token of words 10, 11 and 12 scores; weights are log(1 + relu).
E1, E2 = np.e - 1, np.e**2 - 1
WORDS = [
    [[[E1, 0, -3], [0, E2, 0]], [[E2, -9, 0], [0, -1, 0]]],
    [[[0, 0, E1], [0, 0, E2]], [[0, E1, E1], [0, 0, 0]]],
    [[[E1, 0, 0], [E1, 0, 0]], [[0, E2, 0], [E1, 0, -1]]],
]
WEIGHTS = np.array([  # [N, S, 3]
    [[1, 2, 0], [2, 0, 0]], [[0, 0, 2], [0, 1, 1]], [[1, 0, 0], [1, 2, 0]],
])  # fmt: skip
SETTINGS = {
    'late': {'token_width': 3}, 'lexical': {'terms': 'vocabulary'},
}  # fmt: skip
PUNCTUATION = tuple(string.punctuation)
TOKENS = [f'[{i}]' for i in range(zoo.V)]
TOKENS[40] = '.'


def on_circle(angles):
    """Vectors [..., 2] of angles [...]."""
    angles = np.radians(angles)
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


def wide(x):
    """States [N, T, D] of [N, S, 2, C]."""
    x = np.asarray(x, np.float32)
    x = x.reshape(len(x), -1, x.shape[-1])
    return np.pad(x, ((0, 0), (0, 0), (0, D - x.shape[-1])))


class TableTest(absltest.TestCase):
    def test_a_setting_is_of_one_critic(self):
        """Rows would take the later of two, and say nothing."""
        settings = {}
        for critic in (*CRITICS.values(), *OF_DOCUMENTS.values()):
            for name, known in critic.settings.items():
                # One that derives from another has the same.
                self.assertIs(settings.setdefault(name, known), known)
        self.assertGreater(len(settings), 9)

    def test_a_setting_is_for_critics_that_have_it(self):
        class Derived(LexicalCritic):
            name = 'derived'
            of_derived: int = setting(0, '')

        settings = comparing.settings_of({**CRITICS, 'derived': Derived})
        needs = {
            'top_k': ('lexical', 'derived'), 'of_derived': ('derived',),
            'token_width': ('late',), 'hardness': ('cosine',),
        }  # fmt: skip
        for name, critics in needs.items():
            self.assertEqual(settings[name].needs, ('critic', critics))

    def test_settings_that_a_critic_lacks(self):
        """Rows would take these, and compare as without them."""
        of_queues = ('queue', 9), ('momentum', 0.9)
        of_vectors = *of_queues, ('dims', '3'), ('expand', True)
        for row, critic, *lacks in (
            ('simcse', 'cosine', ('expand', True)),
            ('simcse', 'late', *of_queues, ('directions', 'joint')),
            ('simcse', 'lexical', *of_vectors),
            ('simcse', 'cross', *of_vectors, ('guide', 'nowhere'),
             ('directions', 'both'), ('directions', 'joint')),
            ('ict', 'late', ('queue', 9)), ('ict', 'lexical', ('queue', 9)),
        ):  # fmt: skip
            usual = zoo.defaults_of(row)
            for name, value in lacks:
                settings = {**usual, 'critic': critic, name: value}
                if name == 'momentum':  # else it wants a queue first
                    settings['keys'] = 'positives'
                named = f'{name}={value}', f'critic={critic}'
                with refused('critic_without_setting', *named):
                    TABLE[row].objective.check_settings(row, {row: settings})

    def test_heads_begin_as_those_of_init(self):
        """Takes the dense layer of a score, and the transform of terms."""

        def init(critics, **rows):
            rows = {k: types.SimpleNamespace(settings=v)
                    for k, v in rows.items()}  # fmt: skip
            return types.SimpleNamespace(critics=critics, rows=rows)

        cross, lexical = CRITICS['cross'], CRITICS['lexical']
        score, label = {'pooler': 'relu'}, {'classes': 1, 'pooler': 'tanh'}
        for config, pooler, begins in (
            (None, 'none', None), (init({}, mlm={}), 'none', []),
            (init({'cross': {'pooler': 'gelu_erf'}}, score=score), 'gelu_erf',
             ['objectives/score']),
            (init({}, label=label, score=score), 'relu', ['objectives/score']),
            (init({}, label=label), 'tanh', ['objectives/label']),
            (init({}, label={**label, 'classes': 3}), 'none', []),
        ):  # fmt: skip
            actual = cross.decide({}, Start(config))
            self.assertEqual(actual.pooler, pooler)
            if config is not None:
                self.assertEqual(cross.begins_as(config), begins)
        self.assertEqual(lexical.begins_as(config), ['objectives/mlm'])
        old = LexicalConfig('tokens', activation='relu', top_k=5)
        start = Start(init({'lexical': old.written()}), blanks=[
            {'transform': True}], transform={'transform_epsilon': 0.1},
        )  # fmt: skip
        whole = LexicalConfig(transform=True, transform_epsilon=0.1)
        for terms, top_k, expected in (
            ('init', 0, old), ('tokens', 0, old), ('vocabulary', 0, whole),
            ('init', 3, dataclasses.replace(old, top_k=3)),
        ):  # fmt: skip
            chosen = {'terms': terms, 'top_k': top_k}
            self.assertEqual(lexical.decide(chosen, start), expected)

    def test_how_far_masks_behind_a_query_see(self):
        """8 near tokens are 4 back, so the last of 5 sees the first."""
        late = CRITICS['late']
        sees = {'global_every': 3, 'local_window': 8, 'max_length': 6}
        entry = LateConfig((), expand=True)

        def check(entry=entry, length=None, **other):
            vectors = types.SimpleNamespace(query_length=length)
            late.check_public(entry, 'there', {**sees, **other}, vectors, True)

        for length in (None, 6):
            with refused('expansion_beyond_window', 'there', 6, 4, 5):
                check(length=length)
        check(length=5)
        check(global_every=1)
        check(local_window=None)
        check(LateConfig((), expand=False))
        check(LateConfig((), expand=True, attend=True))

    def test_terms_are_spelled_in_silence(self):
        """Most first, as many as are asked for, without a bar of progress."""
        arrays = mock.Mock(return_value=[np.array([[0.5, 2], [0.25, 1]])])
        model = types.SimpleNamespace(spelled=['a', 'b', 'c'], _arrays=arrays)
        for top_k, expected in (
            (None, [('c', 0.5), ('b', 0.25)]), (1, [('c', 0.5)])
        ):  # fmt: skip
            actual = LexicalWeights.terms(model, ['text'], 'query', top_k)
            self.assertEqual(actual, [expected])
            self.assertEqual(arrays.call_args.args[:2], (['text'], 'query'))
            self.assertIs(arrays.call_args.args[3], False)


class Critics(EagerCase):
    """Makes a critic and its texts, of two tokens each."""

    def open(self, critic, texts=2, objectives='simcse', **settings):
        """Sets a model with these settings, its weights and a view."""
        chosen = {'critic': critic, 'temperature': 1.0, **settings}
        settings = {
            (name if '.' in name else f'simcse.{name}'): value
            for name, value in chosen.items()
        }
        if 'soft' in objectives:
            settings |= zoo.JUDGED
        case = zoo.Case(
            objectives, settings={**settings, 'sentences.pairs': texts}
        )
        self.model = Model(
            zoo.config_of(case, rate=0.0), zoo.SPECIALS._replace(tokens=TOKENS)
        )
        weights = self.model.variables
        if critic == 'late':
            self.kernel = next(
                x for path, x in weights.items() if 'late_0/kernel' in path
            )
            self.kernel.assign(np.eye(D)[:, : self.kernel.shape[1]])
        table = np.zeros((zoo.V, D))
        table[10:13] = np.eye(D)[:3]
        weights['encoder/word_embeddings'].assign(table)
        self.objective = self.model.objectives['simcse']
        numbers = np.arange(N * texts).reshape(N, texts)
        self.view = view_of('simcse', numbers)
        places = np.tile(np.arange(texts, dtype=np.int32) * 2, (N, 1))
        self.view = self.view._replace(places={'simcse': places})

    def score(self, states, key=None, state=None):
        batch = batch_of({'sentences': self.view}, {'sentences': states}, key)
        batch = batch._replace(state=state or {})
        self.batch = batch
        return self.objective.score(batch, self.objective.candidates(batch))


class CriticTest(Critics):
    def check(self, actual, scores):
        expected = sum(
            of_pair(scores[i, i], np.delete(scores[i], i), [0] * (N - 1))
            for i in range(N)
        )
        np.testing.assert_allclose(sums(actual), expected, atol=1e-5)

    def test_settings_of_heads(self):
        for settings, actual, expected in (
            ({'critic': 'late', 'skip_punctuation': False}, 'skip', []),
            ({'critic': 'late'}, 'skip', [*PUNCTUATION]),
            ({'critic': 'lexical', 'top_k': 5}, 'top_k', 5),
            ({'critic': 'lexical'}, 'top_k', None),
        ):  # fmt: skip
            config = zoo.config_of(zoo.of('ict', **settings))
            [entry] = config.critics.values()
            self.assertEqual(entry[actual], expected)

    def test_the_temperature_is_that_of_the_critic(self):
        """Unless one is chosen; what a sum sets for others does nothing."""
        for objectives, chosen, expected in (
            ('simcse', {}, 0.05), ('simcse', {'simcse.critic': 'late'}, 1.0),
            ('pairs', {'simcse.critic': 'lexical'}, 1.0), ('splade', {}, 1.0),
            ('colbert', {'simcse.temperature': 0.3}, 0.3),
        ):  # fmt: skip
            case = zoo.Case(
                objectives, settings={'sentences.pairs': 2, **chosen}
            )
            actual = case.settings_of('simcse')['temperature']
            self.assertEqual(actual, expected)

    def test_late(self):
        """And a token of b that is punctuation, and one that is padding."""
        self.open('late', token_width=2)
        states = wide(on_circle(ANGLES))
        self.check(self.score(5 * states), SCORES)
        self.check(self.score(states, key=dropout.new_key(4)), SCORES)
        self.view.block_ids[1, 1] = 2  # a has one token of 60 degrees
        halves = SCORES * [[1], [0.5], [1]]
        self.check(self.score(states), halves)
        self.objective.form.layer.mean = True
        self.check(self.score(states), SCORES / 2)
        self.objective.form.layer.mean = False
        self.view.block_ids[1, 1] = 0
        self.view.ids[2, 3] = 40  # b of 180 degrees alone
        self.view.ids[2, 1] = 40  # a has both
        self.view.block_ids[0, 3] = 2  # b of 0 degrees alone
        scores = SCORES.copy()
        scores[:, 2] = [-1 + 0, -1, 1 + 0]
        scores[:, 0] = [1, 1, -1]
        self.check(self.score(states), scores)

    @parameterized.parameters(
        ((0, 0), (0, 0)), ((2, 0), (2, 0)), ((3, 1), (2, 1)), ((1, 9), (1, 7))
    )
    def test_late_of_texts_as_long_as_the_longest(self, longest, expected):
        """Places that no text has change nothing; settings stay."""
        a, b = expected
        self.open('late', token_width=2, **{
            'sentences.query_length': 2 * (a == 2),
            'sentences.passage_length': 7 * (b == 7),
        })  # fmt: skip
        self.objective.limit_texts(longest)
        self.assertEqual(self.objective.form.lengths, expected)
        angles = np.array(ANGLES, float)  # [N, S, 2]
        for side, length in enumerate(expected):
            if length == 1:
                self.view.block_ids[:, 2 * side + 1] = 2
        vectors = on_circle(angles)
        a, b = (vectors[:, i, : x or 2] for i, x in enumerate(expected))
        products = np.einsum('ntw,msw->nmts', a, b)
        self.check(self.score(wide(vectors)), products.max(axis=3).sum(axis=2))

    def test_late_of_both_sides_and_fewer_numbers(self):
        """f(a, b) of each a, whichever of both is searched for."""
        self.open('late', token_width=2, directions='both', dims='1')
        angles = [[[10, 100], [20, 130]], [[65, 40], [200, 50]],
                  [[170, 280], [300, 160]]]  # fmt: skip
        vectors = on_circle(angles)  # [N, S, 2, 2]
        losses = []
        for part in (vectors, np.sign(vectors[..., :1])):
            products = np.einsum('ntw,msw->nmts', part[:, 0], part[:, 1])
            scores = products.max(axis=3).sum(axis=2)
            for way in (scores, scores.T):
                losses.append(-np.diag(special.log_softmax(way, axis=1)))
        actual = self.score(wide(vectors))
        self.assertAlmostEqual(mean(actual).loss, np.mean(losses), delta=1e-5)

    def test_lexical(self):
        self.open('lexical', terms='vocabulary')
        scores = WEIGHTS[:, 0] @ WEIGHTS[:, 1].T
        actual = self.score(wide(WORDS))
        self.check(actual, scores)
        counts = (WEIGHTS > 0).sum(axis=2).sum(axis=0)
        for name, count in zip(
            ('query_terms', 'passage_terms'), counts, strict=True
        ):
            self.assertAlmostEqual(float(actual.more[name]), count, places=5)

    @parameterized.product(
        at=((0, 0.0), (1, 0.25), (2, 1.0), (7, 1.0)),
        rise=({'flops_steps': 2}, {}),
    )
    def test_flops_rise_quadratically(self, at, rise):
        """Paria et al. 2020: sums of squared mean weights, of each side.

        By default in a third of the run, here of 6 updates.
        """
        updates, share = at
        squares = (WEIGHTS.mean(axis=0) ** 2).sum(axis=1)
        np.testing.assert_allclose(squares, [4 / 3, 19 / 9])
        self.open(
            'lexical', terms='vocabulary', query_flops=0.3, passage_flops=0.5,
            **rise,
        )  # fmt: skip
        self.objective.steps = 6
        plain = self.score(wide(WORDS))  # held out: no such term
        actual = self.score(
            wide(WORDS), dropout.new_key(4), {'updates': tf.constant(updates)}
        )
        expected = share * (0.3 * 4 / 3 + 0.5 * 19 / 9)
        self.assertAlmostEqual(
            mean(actual).loss - mean(plain).loss, expected, places=5
        )
        self.assertEqual(self.objective.empty_state()['updates'], 0)
        state = self.objective.update_state(self.batch)
        self.assertEqual(state['updates'], updates + 1)
        # They count whatever the row weighs.
        for weight in (0.0, 0.5, 1.0):
            self.model.weights['simcse'] = weight
            self.assertAlmostEqual(
                float(self.model.loss({'simcse': actual})),
                weight * mean(plain).loss + expected, places=5,
            )  # fmt: skip

    def test_flops_are_of_texts_that_are_there(self):
        """Queries 0 and 2; all b, and two of three negatives."""
        term = flops(np.float32(WEIGHTS[:, 0]), np.float32([1, 0, 1]))
        self.assertAlmostEqual(float(term), 1 + 1, places=5)
        self.open(
            'lexical', 3, terms='vocabulary', query_flops=0.3,
            passage_flops=0.5, flops_steps=0,
        )  # fmt: skip
        negatives = [
            [[E1, 0, 0], [0, 0, 0]], [[0, 0, E2], [0, 0, 0]], [[9, 9, 9]] * 2
        ]  # fmt: skip
        states = np.concatenate([WORDS, np.array(negatives)[:, None]], axis=1)
        self.view.targets['simcse'][2, 0, 2] = -1
        plain = self.score(wide(states))
        actual = self.score(wide(states), dropout.new_key(4))
        # The mean of five passages is (4, 3, 3) / 5.
        expected = 0.3 * 4 / 3 + 0.5 * (16 + 9 + 9) / 25
        self.assertAlmostEqual(
            mean(actual).loss - mean(plain).loss, expected, places=5
        )

    def test_a_text_without_tokens_scores_nothing(self):
        for critic, states in (('late', on_circle(ANGLES)), ('lexical', WORDS)):
            self.open(critic, **SETTINGS[critic])
            self.view.block_ids[1, 2:] = 2
            actual = self.score(wide(states))
            scores = (
                SCORES if critic == 'late'
                else WEIGHTS[:, 0] @ WEIGHTS[:, 1].T
            ).copy()  # fmt: skip
            scores[:, 1] = 0
            self.check(actual, scores)


class CrossTest(absltest.TestCase):
    def outcome(self, scores, numbers, temperature=1.0):
        view = View(
            ids=np.zeros((len(scores), 1), np.int32),
            sequences=np.zeros((len(scores), 1), np.int32),
            targets={'simcse': np.asarray(numbers)},
            weights={'simcse': np.ones((len(scores), 1), np.float32)},
        )
        batch = batch_of({comparing.PAIRS_VIEW: view}, {})
        return comparing.outcome_of_pairs(
            batch, 'simcse', tf.constant(scores, tf.float32), temperature, 3
        )

    def test_by_hand(self):
        """Candidates are b, two drawn ones and a negative, if there is one.

        The bound is over b and what was drawn; copies of b are no negatives of
        the loss, and an own negative counts there alone.
        """
        scores = np.array([[2.0, 1.0, 0.5, 1.5], [0.0, 1.0, -1.0, 9.0]])
        numbers = [[5, 6, 5, 8], [6, 5, 7, -1]]
        actual = self.outcome(scores, numbers, temperature=0.5)
        expected = [
            of_pair(4.0, [2.0, 1.0], [False, True]),
            of_pair(0.0, [2.0, -2.0], [False, False]),
        ]
        expected[0][0] = np.log(np.exp([4.0, 2.0, 3.0]).sum()) - 4.0
        np.testing.assert_allclose(sums(actual), sum(expected), rtol=1e-5)
        self.assertAlmostEqual(float(actual.more['identical']), 1 / 3)

    @eagerly()
    def test_what_is_scored(self):
        """w . s of each pair of the view, with the row's temperature."""
        case = zoo.CASES['simcse_cross']
        case = case._replace(settings={
            **case.settings, 'simcse.temperature': 0.5,
        })  # fmt: skip
        model = zoo.model_of(case, rate=0.0)
        simcse, head = model.objectives['simcse'], model.critics['cross']
        view = zoo.views_of(case.resolved)[comparing.PAIRS_VIEW]
        shape = view.targets['simcse'].shape
        states = np.random.default_rng(0).normal(size=(*shape, 1, D))
        for key in (None, dropout.new_key(4)):
            batch = batch_of(
                {comparing.PAIRS_VIEW: view},
                {comparing.PAIRS_VIEW: np.float32(states)}, key,
            )  # fmt: skip
            candidates = simcse.candidates(batch)
            self.assertIsNone(candidates)
            actual = simcse.score(batch, candidates)
            scores = states[:, :, 0] @ head.kernel.numpy()
            expected = comparing.outcome_of_pairs(
                batch, 'simcse', np.float32(scores[..., 0]), 0.5, simcse.pairs
            )
            np.testing.assert_allclose(sums(actual), sums(expected), 1e-5)


class JudgedTest(Critics):
    """Scores of b and two negatives, of b and one, and of b alone."""

    def judged(self, row):
        self.open(
            'late', 4, 'simcse:0,soft_margin:1,soft_order:1', token_width=2,
            **{'soft_order.temperature': 2.0},
        )  # fmt: skip
        negatives = [
            [[60, 60], [180, 270]], [[0, 90], [60, 60]], [[0, 0], [0, 0]]
        ]  # fmt: skip
        angles = np.concatenate([ANGLES, negatives], axis=1)
        numbers = np.arange(N * 4).reshape(N, 1, 4)
        numbers[1, 0, 3] = numbers[2, 0, 2] = numbers[2, 0, 3] = -1
        self.teacher = np.array(
            [[0, 5, 1, 2], [0, 2, 3, 9], [0, 1, 9, 9]], float
        )
        both = 'simcse', row
        view = self.view._replace(
            targets=dict.fromkeys(both, numbers),
            weights=dict.fromkeys(both, self.view.weights['simcse']),
            places=dict.fromkeys(both, self.view.places['simcse']),
            guides={row: self.teacher[:, None, :, None].astype(np.float32)},
        )
        views = {'sentences': view}
        batch = batch_of(views, {'sentences': wide(on_circle(angles))})
        batch = batch_of(views, {})._replace(scorer_batch=batch)
        return self.model.objectives[row].score(batch, None)

    def test_margins(self):
        """Hofstätter et al. 2020, Eq. 1, the mean over negatives."""
        actual = self.judged('soft_margin')
        student = [2 - (HALF + LONG), 2 - 0, 2 - 2 * LONG]
        squares = np.square(np.array([4, 3, -1]) - student)
        expected = (squares[0] + squares[1]) / 2 + squares[2]
        self.assertAlmostEqual(float(actual.loss), expected, places=5)
        self.assertEqual((float(actual.weight), float(actual.accuracy)), (3, 2))

    def test_order(self):
        """Divided by 2, and multiplied by 4."""
        actual = self.judged('soft_order')
        total = 0.0
        for teacher, student in (
            ([5, 1, 2], [2, HALF + LONG, 0]), ([2, 3], [2, 2 * LONG]),
        ):  # fmt: skip
            p, q = special.softmax(np.array([teacher, student]) / 2, axis=1)
            total += 4 * (p * np.log(p / q)).sum()
        self.assertAlmostEqual(float(actual.loss), total, places=5)

    @parameterized.parameters('training', 'projector', 'none')
    def test_scores_of_cosines_with_dims(self, head):
        """Compares what the head gives, not the exported vector beside it."""
        case = zoo.Case('simcse:0,soft_margin:1', settings={
            'soft_margin.teacher': 'nowhere', 'sentences.pairs': 3,
            'simcse.head': head, 'simcse.dims': '3',
        })  # fmt: skip
        model = Model(zoo.config_of(case), zoo.SPECIALS)
        simcse = model.objectives['simcse']
        judged = model.objectives['soft_margin']
        width = model.encoder.width
        texts = np.random.default_rng(0).normal(size=(4, 3, 2 * width))
        if head == 'none':
            texts = texts[..., :width]
        with mock.patch.object(simcse, '_texts', return_value=texts):
            actual = simcse.own_scores(None)
        whole = texts[..., :width]
        expected = np.einsum('nd,nsd->ns', whole[:, 0], whole[:, 1:]) / 0.05
        np.testing.assert_allclose(actual, expected, rtol=1e-5)
        self.assertEqual(judged.needs_whole_batch, head == 'projector')

    def test_a_reranker_is_not_taught(self):
        case = zoo.Case('simcse:0,soft_margin:1', settings={
            'soft_margin.teacher': 'nowhere', 'sentences.pairs': 3,
            'simcse.critic': 'cross',
        })  # fmt: skip
        with refused('reranker_taught', 'cross'):
            Model(zoo.config_of(case), zoo.SPECIALS)
