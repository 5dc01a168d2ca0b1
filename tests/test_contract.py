"""The contract holds what is to come: each toy, and what all rows are promised.
"""

import dataclasses
import json
import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import infoword_tf
from infoword_tf import checkpoint, errors, files
from infoword_tf.encoders import Inputs
from infoword_tf.layers import dropout
from infoword_tf.layers.pooling import unit
from infoword_tf.model import Model
from infoword_tf.objectives import TABLE, Ring, Statistics
from infoword_tf.training import loop
from infoword_tf.training.state import State
from infoword_tf.views import flatten
from tests import corpus, eager, places, quick, toys, zoo
from tests.eager import eagerly
from tests.objectives import eq1
from tests.refused import refused

ROOT = pathlib.Path(__file__).parent.parent
KEY = eager.new_key(0, 0)


def setUpModule():
    global _ADDED
    _ADDED = toys.added()
    _ADDED.__enter__()


def tearDownModule():
    _ADDED.__exit__(None, None, None)


def state_of(model):
    """Returns the state that the first step reads."""
    return {k: entry.empty for k, entry in model.empty_state(8).items()}


def batch_of(name, model, key=KEY, state=None, statistics=None):
    """Returns the batch of a toy's row."""
    batches, _ = model.batches(
        zoo.make_views(name),
        statistics or zoo.statistics(),
        key,
        state=state or state_of(model),
    )
    (row,) = batches
    return batches[row]


class DrawnTest(absltest.TestCase):
    """(a) Negatives from unigram^0.75."""

    def test_they_are_drawn_from_q(self):
        counts = zoo.frequencies() * 1000
        model = zoo.make_model('toy_drawn')
        objective = model.objectives['drawn']
        batch = batch_of('toy_drawn', model)._replace(
            statistics=Statistics(counts, counts)
        )
        q = (counts + 1e-6) ** 0.75
        q /= q.sum()
        np.testing.assert_allclose(objective.q(batch.statistics), q)
        drawn = np.concatenate([
            objective.candidates(batch._replace(key=dropout.new_key(7, i)))
            for i in range(300)
        ])  # fmt: skip
        self.assertLen(drawn, 300 * 32)
        actual = np.bincount(drawn, minlength=zoo.V)
        error = (actual - len(drawn) * q) / np.sqrt(len(drawn) * q + 1)
        self.assertLess(np.abs(error).max(), 4.5)

    def test_mi_takes_the_divergence_off(self):
        """p is of the measured text, q of the training text, b of the pairs."""
        p = zoo.frequencies()
        counts = np.arange(1.0, zoo.V + 1) ** 2
        model = zoo.make_model('toy_drawn')
        views = zoo.make_views('toy_drawn')
        statistics = Statistics(counts, p)
        outcomes, _ = model.outcomes(views, statistics, KEY)
        actual = eq1.mean(outcomes['drawn'])
        q = (counts + 1e-6) ** 0.75
        q /= q.sum()
        view = views['masked']
        real = view.weights['drawn'] > 0
        targets = view.targets['drawn'][real]
        kl = np.log(p[targets] / q[targets]).mean()
        self.assertGreater(kl, 0.5)
        self.assertAlmostEqual(actual.log_candidates, np.log(33), places=5)
        self.assertAlmostEqual(
            actual.mi, np.log(33) - kl - actual.loss, places=4
        )
        batch = batch_of('toy_drawn', model, statistics=statistics)
        drawn = np.asarray(model.objectives['drawn'].candidates(batch))
        copies = (drawn == targets[:, None]).sum(axis=1)
        self.assertAlmostEqual(
            actual.ceiling, np.mean(np.log(33 / (1 + copies))) - kl, places=4
        )
        # Without a the candidate of the highest p / w is the best answer.
        likely = p / (1 - (1 - q) ** 32)
        others = np.where(drawn == targets[:, None], 0, likely[drawn])
        right = others.max(axis=1) < likely[targets]
        self.assertAlmostEqual(actual.chance, right.mean(), places=6)
        # A critic that knows the training text's frequencies, log p / q.
        expected = (1 + counts) / (1 + counts).sum()
        self.assertAlmostEqual(
            actual.unigram_mi,
            np.log(expected[targets] / p[targets]).mean(),
            places=4,
        )

    def test_the_same_on_all_replicas_and_others_in_each_step(self):
        model = zoo.make_model('toy_drawn')

        def drawn(key):
            batch = batch_of('toy_drawn', model, key)
            return np.asarray(model.objectives['drawn'].candidates(batch))

        step = dropout.new_key(0, 3)
        np.testing.assert_array_equal(drawn(step), drawn(step))
        self.assertFalse(np.array_equal(drawn(step), drawn(KEY)))
        # Held-out text always has the same ones.
        np.testing.assert_array_equal(drawn(None), drawn(None))


class DrawsTest(absltest.TestCase):
    """(b) Two rows that draw differently from `windows` in one run."""

    def test_each_has_the_draw_that_it_has_alone(self):
        plan = toys.zoo.Case('early:1,late:1,mlm:1').resolved.plan
        self.assertLen(plan.source_specs, 1)
        both = zoo.views_of(zoo.Case('early:1,late:1,mlm:1').resolved)
        for row in ('early', 'late', 'mlm'):
            alone = flatten(zoo.views_of(zoo.Case(row).resolved))
            together = flatten(both)
            for path, array in alone.items():
                if path.endswith('/counts/tokens'):
                    continue  # a text is counted once, in its first view
                np.testing.assert_array_equal(array, together[path], path)
        self.assertFalse(np.array_equal(both['early'].ids, both['late'].ids))

    def test_of_one_text(self):
        text = zoo.make_windows()
        both = zoo.views_of(zoo.Case('early:1,late:1').resolved)
        for name, low, high in (('early', 0, 4), ('late', 8, 16)):
            begins = np.array([
                [np.array_equal(row[i : i + 6], ids[1:-1])
                 for i in range(zoo.T - 8)]
                for row, ids in zip(text.ids, both[name].ids, strict=True)
            ])  # fmt: skip
            self.assertTrue(begins[:, low:high].any(axis=1).all())


class QueueTest(absltest.TestCase):
    """(c) A momentum encoder, and a queue of 64 keys; both by a setting."""

    def test_the_oldest_key_is_overwritten_first(self):
        model = zoo.make_model('toy_twice')
        objective, seen = model.objectives['twice'], []
        state = State(model, zoo.strategy(1), 8)
        for step in range(10):
            views = zoo.make_views('toy_twice', seed=step)
            batches, _ = model.batches(
                views, zoo.statistics(), KEY, state=state.read()
            )
            before = state.read()['objectives/twice']['rows']
            held = np.array(before)
            pool = objective.keys(batches['twice'])
            seen.append(np.asarray(pool.states))
            new = {'objectives/twice': objective.update_state(batches['twice'])}
            state.write(new, tf.constant(False))  # a loss that is not finite
            state.write(new, tf.constant(True))
            np.testing.assert_array_equal(before, held)  # what was read stays
            keys = np.concatenate(seen)
            queue = state.read()['objectives/twice']
            self.assertEqual(int(queue['count']), len(keys))
            for place, row in enumerate(queue['rows'].numpy()):
                mine = keys[place::64][-1] if place < len(keys) else 0 * row
                np.testing.assert_array_equal(row, mine)

    def test_a_ring_takes_the_last_of_many(self):
        ring = Ring(4, 2)
        rows = np.arange(20, dtype='float32').reshape(10, 2)
        actual = ring.add(ring.empty(), rows, np.arange(10, dtype='int32'))
        self.assertEqual(int(actual['count']), 10)
        np.testing.assert_array_equal(actual['texts'].places, [2, 3, 0, 1])
        np.testing.assert_array_equal(actual['rows'].values, rows[6:])

    def test_the_loss_alone_contrasts_what_the_queue_holds(self):
        """Of length 0, so that each adds exp(0) to a pair's sum."""
        model, losses = zoo.make_model('toy_twice'), {}
        for count in (0, 8, 64, 100):
            state = {**model.objectives['twice'].ring.empty(), 'count': count}
            outcomes, _ = model.outcomes(
                zoo.make_views('toy_twice'),
                zoo.statistics(),
                KEY,
                state={'objectives/twice': state},
            )
            actual = outcomes['twice']
            self.assertAlmostEqual(
                float(actual.ceiling / actual.measured), np.log(8), places=5
            )
            losses[count] = float(actual.loss)
        self.assertLess(losses[0], losses[8])
        self.assertLess(losses[8], losses[64])
        self.assertEqual(losses[64], losses[100])

    def test_without_a_queue_there_is_no_second_encoder(self):
        model = zoo.make_model('toy_passes')
        self.assertEqual(list(model.encoders), ['encoder'])
        self.assertEmpty(model.empty_state(8))

    def test_the_average_follows(self):
        """A copy at first; then 0.9 of itself and 0.1 of the encoder."""
        model = Model(zoo.config('toy_twice'), zoo.SPECIALS)
        pairs = model.averages['momentum']
        self.assertLen(pairs, len(model.encoder.weights))
        for copy, source in pairs:
            np.testing.assert_array_equal(copy.numpy(), source.numpy())
            source.assign(source + 1.0)
        before = [copy.numpy() for copy, _ in pairs]
        state = State(model, zoo.strategy(1), 8)
        state.update_averages(tf.constant(False))
        for (copy, _), old in zip(pairs, before, strict=True):
            np.testing.assert_array_equal(copy.numpy(), old)
        state.update_averages(tf.constant(True))
        for (copy, source), old in zip(pairs, before, strict=True):
            np.testing.assert_allclose(
                copy.numpy(), 0.9 * old + 0.1 * source.numpy(), atol=1e-6
            )

    def test_a_loss_that_is_not_finite_changes_nothing(self):
        trainer = zoo.make_trainer('toy_twice', 1, steps=2)
        model = trainer.model
        trainer.train(tf.constant(1))
        weights = {k: v.numpy() for k, v in model.variables.items()}
        state = {k: v.numpy() for k, v in trainer.state.variables().items()}
        self.assertEqual(state['state/objectives/twice/count'], 8)
        table = model.encoder.embedding_table
        table.assign(table * np.nan)
        with self.assertRaises(loop.NonFiniteLoss):
            trainer.train(tf.constant(1))
        for path, value in trainer.state.variables().items():
            np.testing.assert_array_equal(value.numpy(), state[path], path)
        for path, variable in model.variables.items():
            if path.startswith('momentum/'):
                np.testing.assert_array_equal(variable, weights[path], path)


class EveryLayerTest(absltest.TestCase):
    """(d) [CLS] of every layer."""

    def test_they_are_the_encoder_s(self):
        model = zoo.make_model('toy_every_layer')
        batch = batch_of('toy_every_layer', model, key=None)
        actual = batch.layers('masked')
        self.assertLen(actual, model.encoder.depth + 1)
        view = batch.views['masked']
        expected = model.encoder(
            Inputs(tf.constant(view.ids)), all_layers=True
        ).layers
        for one, other in zip(actual, expected, strict=True):
            np.testing.assert_allclose(one, other[:, :1], atol=1e-6)
        np.testing.assert_array_equal(actual[-1], batch.states('masked'))


class TwiceTest(absltest.TestCase):
    """(c) Two passes of one view, without a queue."""

    def test_they_drop_differently_and_the_first_as_ever(self):
        model = zoo.make_model('toy_passes', rate=0.1)
        batch = batch_of('toy_passes', model)
        first, second = (
            np.asarray(batch.states('masked', pass_index=i)) for i in range(2)
        )
        self.assertGreater(np.abs(first - second).max(), 0.1)
        alone = zoo.make_model('toy_taught', rate=0.1)
        batch = batch_of('toy_taught', alone)
        np.testing.assert_allclose(batch.states('masked'), first, atol=1e-5)

    def test_without_dropout_they_are_equal(self):
        model = zoo.make_model('toy_passes', rate=0.0)
        batch = batch_of('toy_passes', model)
        np.testing.assert_array_equal(
            batch.states('masked', pass_index=0),
            batch.states('masked', pass_index=1),
        )

    def test_held_out_they_differ_too_and_always_alike(self):
        """Beside a row that reads one pass, which nothing is dropped from."""
        case = zoo.Case('twice:1,taught:1', settings={'twice.queue': 0})
        with absltest.mock.patch.dict(zoo.CASES, both=case):
            model = zoo.make_model('both', rate=0.1)
            views = zoo.make_views('both')
        actual = [model.batches(views, zoo.statistics())[0] for _ in range(2)]
        states = [
            np.asarray(batches['twice'].states('masked', pass_index=i))
            for batches in actual
            for i in range(2)
        ]
        self.assertGreater(np.abs(states[0] - states[1]).max(), 0.1)
        np.testing.assert_array_equal(states[:2], states[2:])
        model = zoo.make_model('toy_taught', rate=0.0)
        clean = batch_of('toy_taught', model, key=None)
        np.testing.assert_allclose(
            actual[0]['taught'].states('masked'),
            clean.states('masked'),
            atol=1e-5,
        )


class HardTest(absltest.TestCase):
    """(e) Negatives of one's own beside the batch."""

    def test_all_but_what_is_the_positive_s_text_are_negatives(self):
        model = zoo.make_model('toy_hard')
        batch = batch_of('toy_hard', model)
        ids = np.array(batch.views['triple'].ids)
        ids[3, 2] = ids[3, 1]  # a hard negative that is the positive itself
        batch.views['triple'] = batch.views['triple']._replace(ids=ids)
        objective = model.objectives['hard']
        x = np.asarray(unit(batch.states('triple')[:, :, 0]))
        actual = objective.score(batch, objective.candidates(batch))
        loss = 0.0
        for i in range(8):
            scores = [10 * x[i, 0] @ x[i, 1]]
            scores += [10 * x[i, 0] @ x[j, 1] for j in range(8) if j != i]
            scores += [
                10 * x[i, 0] @ x[j, 2]
                for j in range(8)
                if not np.array_equal(ids[j, 2], ids[i, 1])
            ]
            loss += np.log(np.exp(scores).sum()) - scores[0]
        self.assertAlmostEqual(float(actual.loss), loss, places=3)
        self.assertAlmostEqual(
            float(actual.log_candidates), 8 * np.log(8), places=3
        )


class BegunTest(places.Folder, absltest.TestCase):
    """(g), (h) Rows that start from another workdir."""

    def written(self, model):
        """Writes a workdir of a model."""
        model.config.write(self.folder)
        files.write_tensors(
            self.folder / 'weights.safetensors',
            {k: v.numpy() for k, v in model.exported.items()},
        )
        return str(self.folder)

    def test_a_generator_of_other_sizes_and_its_head(self):
        """Words that it chooses are read by a third encoder."""
        other = zoo.Case('mlm', settings={'mlm.transform': True}, layers=3)
        case = zoo.Case('replaced')
        with absltest.mock.patch.dict(zoo.CASES, other=other):
            first = zoo.make_model('other', seed=5)
        case = case._replace(
            settings={'replaced.generator': self.written(first)}
        )
        with absltest.mock.patch.dict(zoo.CASES, replaced=case):
            model = Model(zoo.config('replaced', rate=0.0), zoo.SPECIALS)
            views = zoo.make_views('replaced')
        self.assertEqual(model.encoders['generator'].depth, 3)
        self.assertEqual(model.encoder.depth, 1)
        for path, variable in first.variables.items():
            mine = f'generator/{path.removeprefix("encoder/")}'
            np.testing.assert_array_equal(model.variables[mine], variable, mine)
            self.assertNotIn(mine, model.trainable)
            self.assertNotIn(mine, model.checkpointed)
        learning = {p.split('/')[0] for p in model.trainable}
        self.assertEqual(learning, {'encoder', 'discriminator', 'objectives'})
        kernel = {'objectives/replaced/kernel'}
        self.assertEqual(model.no_decay, kernel)
        self.assertNoCommonElements(kernel, model.exported)
        self.assertContainsSubset(kernel, model.checkpointed)
        with tf.GradientTape() as tape:
            outcomes, _ = model.outcomes(views, zoo.statistics(), KEY)
            loss = model.loss(outcomes)
        self.assertAlmostEqual(float(loss), np.log(2), delta=0.2)
        actual = tape.gradient(
            loss, [v.value for v in model.trainable.values()]
        )
        by_path = dict(zip(model.trainable, actual, strict=True))
        # The encoder learns through the state that is read alone.
        self.assertIsNotNone(by_path['encoder/layer_0/inner_kernel'])
        self.assertIsNotNone(by_path['discriminator/layer_0/inner_kernel'])

    def test_another_vocabulary(self):
        config = zoo.config('mlm')
        arguments = {**config.encoder.arguments, 'vocab_size': 7}
        encoder = dataclasses.replace(config.encoder, arguments=arguments)
        config.replace(encoder=encoder).write(self.folder)
        case = zoo.Case(
            'replaced', settings={'replaced.generator': str(self.folder)}
        )
        with (
            absltest.mock.patch.dict(zoo.CASES, replaced=case),
            refused('auxiliary_of_other_vocabulary', 7, 60),
        ):
            Model(zoo.config('replaced'), zoo.SPECIALS)

    def test_a_network_of_the_row_frozen(self):
        with absltest.mock.patch.dict(
            zoo.CASES, auxiliary=zoo.Case('auxiliary')
        ):
            first = zoo.make_model('auxiliary', seed=6)
            folder = self.written(first)
            block = {p for p in first.variables if '/block/' in p}
            self.assertContainsSubset(block, first.trainable)
        case = zoo.Case(
            'auxiliary',
            settings={'auxiliary.begin': folder, 'auxiliary.frozen': True},
        )
        with absltest.mock.patch.dict(zoo.CASES, auxiliary=case):
            model = Model(zoo.config('auxiliary'), zoo.SPECIALS)
        self.assertEmpty(block & set(model.trainable))
        self.assertContainsSubset(block, model.checkpointed)
        for path in block:
            np.testing.assert_array_equal(
                model.variables[path], first.variables[path], path
            )


class TaughtTest(absltest.TestCase):
    """(f) A second, frozen encoder."""

    def test_it_does_not_learn_and_does_not_travel(self):
        model = zoo.make_model('toy_taught')
        guide = {p for p in model.variables if p.startswith('guide/')}
        self.assertLen(guide, len(model.encoder.weights))
        self.assertEmpty(guide & set(model.trainable))
        self.assertEmpty(guide & set(model.exported))
        self.assertContainsSubset(guide, model.checkpointed)
        changed = {
            path.removeprefix('guide/')
            for path in guide
            if path.endswith(('kernel', 'embeddings'))
            and np.array_equal(
                model.variables[path],
                model.variables['encoder/' + path.removeprefix('guide/')],
            )
        }
        self.assertEmpty(changed, 'it has weights of its own')
        variables = {k: v.value for k, v in model.variables.items()}
        with tf.GradientTape() as tape:
            outcomes, _ = model.outcomes(
                zoo.make_views('toy_taught'), zoo.statistics(), KEY
            )
            loss = model.loss(outcomes)
        gradients = dict(
            zip(
                variables,
                tape.gradient(loss, list(variables.values())),
                strict=True,
            )
        )
        for path in guide:
            self.assertIsNone(gradients[path], path)
        self.assertIsNotNone(gradients['encoder/word_embeddings'])

    def test_it_is_not_built_where_nothing_is_trained(self):
        model = Model(zoo.config('toy_taught'), zoo.SPECIALS, auxiliaries=False)
        self.assertEqual(list(model.encoders), ['encoder'])


class AuxiliaryTest(parameterized.TestCase):
    @parameterized.parameters(
        ({'frozen': False, 'momentum': 0.5}, 'other',
         'momentum_encoder_learns'),
        ({'saved': False, 'momentum': 0.5}, 'other',
         'auxiliary_encoder_unsaved'),
        ({'saved': False, 'frozen': False}, 'other',
         'auxiliary_encoder_unsaved'),
        ({'momentum': 0.5}, 'taught:1,other:1', 'other_auxiliary_encoder'),
    )  # fmt: skip
    def test_what_one_cannot_be(self, auxiliary, rows, id):
        other = dataclasses.replace(
            toys.ROWS['taught'],
            auxiliaries={'guide': toys.Auxiliary(**auxiliary)},
        )
        with (
            absltest.mock.patch.dict(TABLE, other=other),
            refused(id, f'--objectives={rows}', 'guide'),
        ):
            zoo.Case(rows).resolved  # noqa: B018


class BegunRunTest(absltest.TestCase):
    """(g) in the real command."""

    def test_a_generator_of_a_workdir(self):
        folder = places.make(self.addCleanup)
        text, heldout = corpus.write_topics(folder / 'text')

        def run(name, *more):
            quick.run(
                f'--corpus={text}', f'--heldout={heldout}',
                f'--workdir={folder / name}', '--steps=1', '--batch_size=8',
                '--seq_len=32', '--precision=float32', *more,
            )  # fmt: skip
            return folder / name

        first = run('first', '--objectives=mlm', '--vocab_size=600')
        options = '--objectives=replaced', f'--replaced.generator={first}'
        actual = run('second', *options, f'--vocab={first}/vocab.txt')
        parts = {
            name.split('/')[0]
            for name in files.read_tensors(actual / 'weights.safetensors')
        }
        self.assertEqual(parts, {'encoder', 'unigram', 'step'})
        weights = files.read_tensors(first / 'weights.safetensors')
        weights['unigram'] = weights['unigram'] + 1
        files.write_tensors(first / 'weights.safetensors', weights)
        for name, more, message in (
            ('second', [f'--vocab={first}/vocab.txt'], '--replaced.generator '
             r'was .*first \(weights \w+\), is .*first '),
            ('third', ['--vocab_size=600', '--nolower_case'],
             'generator begins with .* another vocab.txt'),
        ):  # fmt: skip
            with self.assertRaisesRegex(errors.UsageError, message):
                run(name, *options, *more)


class PromisesTest(places.Folder, absltest.TestCase):
    """Guarantees of tests/zoo.py, for all toys in one sum."""

    def test_two_replicas_are_one_device(self):
        weights, states, reports = [], [], []
        for replicas in (1, 2):
            trainer = zoo.make_trainer('toys', replicas, steps=3)
            model = trainer.model
            with eagerly(replicas == 1):
                reports.append(trainer.train(tf.constant(3)))
            weights.append({k: v.numpy() for k, v in model.variables.items()})
            states.append(
                {k: v.numpy() for k, v in trainer.state.variables().items()}
            )
        for metric, value in reports[0].items():
            self.assertAlmostEqual(
                reports[1][metric], value, delta=2e-5 * max(1, abs(value)),
                msg=metric,
            )  # fmt: skip
        self.assertEqual(set(states[0]), set(states[1]))
        self.assertEqual(states[1]['state/objectives/twice/count'], 24)
        for (one, two), atol in ((states, 1e-4), (weights, 2e-4)):
            for path, value in one.items():
                np.testing.assert_allclose(
                    two[path], value, atol=atol, err_msg=path
                )

    def test_state_comes_back_for_another_number_of_replicas(self):
        """What is the same on all goes to all; what is of rows says so."""
        saved = {}
        for replicas in (2, 1, 2):
            with zoo.strategy(replicas).scope():
                model = zoo.make_model('toy_twice', 0.0)
            state = State(model, zoo.strategy(replicas), 8)
            checkpoints = checkpoint.Checkpoints(self.folder, 2)
            if not saved:
                for number, part in enumerate(state.variables().values()):
                    part.assign(tf.ones_like(part) * (number + 1))
                saved = {k: v.numpy() for k, v in state.variables().items()}
                checkpoints.save(5, state.variables())
            self.assertEqual(checkpoints.restore({}, state.variables()), 5)
            state.broadcast()
            actual = {k: v.numpy() for k, v in state.variables().items()}
            np.testing.assert_equal(actual, saved)
        # The second replica too, whose variables were never restored.
        both = zoo.strategy(2).run(state.read)['objectives/twice']
        for part, value in both.items():
            for one in zoo.strategy(2).experimental_local_results(value):
                np.testing.assert_array_equal(
                    one, saved[f'state/objectives/twice/{part}']
                )

    def test_stopped_gives_the_same_weights(self):
        """Stopped in the middle; then what is held out, and what travels."""
        folder = places.make(self.addCleanup)
        text, heldout = corpus.write_topics(folder / 'text')

        def go_on(name):
            quick.run(
                f'--objectives={toys.OBJECTIVES}', f'--corpus={text}',
                f'--heldout={heldout}', f'--workdir={folder / name}',
                '--vocab_size=600', '--steps=2', '--log_every=1',
                '--checkpoint_every=1', '--eval_every=2', '--batch_size=8',
                '--seq_len=32', '--learning_rate=0.002',
                '--precision=float32',
            )  # fmt: skip
            weights = folder / name / 'weights.safetensors'
            return weights.read_bytes()

        with quick.copy_before(folder / 'complete', folder / 'broken', at=2):
            complete = go_on('complete')
        self.assertEqual(checkpoint.last_step(folder / 'broken'), 1)
        self.assertEqual(go_on('broken'), complete)
        last = json.loads((folder / 'broken' / 'metrics.json').read_text())
        for row in toys.ROWS:
            self.assertTrue(np.isfinite(last[f'heldout/{row}/mi']), row)
        self.assertAlmostEqual(
            last['heldout/early/log_candidates'], np.log(17), places=5
        )
        path = folder / 'broken' / 'weights.safetensors'
        parts = {name.split('/')[0] for name in files.read_tensors(path)}
        self.assertEqual(parts, {'encoder', 'unigram', 'step'})
        model = infoword_tf.load(folder / 'broken')
        self.assertEqual(model.encode(['a text']).shape, (1, 64))
