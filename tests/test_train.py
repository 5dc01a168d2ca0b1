"""The real command on real text: what a run of each row leaves."""

import contextlib
import dataclasses
import importlib
import inspect
import io
import json
import warnings
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest

import infoword_tf
from infoword_tf import checkpoint
from infoword_tf.choices import RunChoices
from infoword_tf.config import Config
from infoword_tf.data.opened import TextChoices, open_text
from infoword_tf.data.store import SEPARATOR
from infoword_tf.data.text_pairs import TextPairSource
from infoword_tf.objectives import SUMS
from infoword_tf.objectives.objective import Auxiliary
from infoword_tf.training import (
    begin,
    distribution,
    fit,
    loop,
    optim,
    record,
    run,
)
from tests import places, quick, runs
from tests.refused import refused
from tests.runs import python, records, run_here, weights


def setUpModule():
    runs.set_up()


class TrainTest(places.Folder, absltest.TestCase):
    def test_a_run_leaves_a_workdir(self):
        workdir = self.folder / 'run'
        run_here(workdir, '--objectives=bert_nce:1,mlm:0.5', pictures=True)
        actual = {path.name for path in workdir.iterdir()}
        self.assertContainsSubset(
            {'config.json', 'vocab.txt', 'weights.safetensors', 'flags.txt',
             'metrics.jsonl', 'metrics.json', 'bounds.png', 'checkpoints',
             'tensorboard'},
            actual,
        )  # fmt: skip
        self.assertLen(list((workdir / 'checkpoints').iterdir()), 2)
        self.assertTrue(
            (workdir / 'bounds.png').read_bytes().startswith(b'\x89PNG')
        )
        lines = records(workdir)
        self.assertEqual([r['step'] for r in lines], list(range(1, 7)))
        last = json.loads((workdir / 'metrics.json').read_text())
        for row in ('bert_nce', 'mlm'):
            for name in ('loss', 'mi', 'ceiling', 'accuracy', 'chance'):
                self.assertIn(f'{row}/{name}', last)
                self.assertIn(f'heldout/{row}/{name}', last)
        # 8 sequences of P = ceil(0.15 * 30) = 5: 35 candidates and one's own.
        self.assertAlmostEqual(
            last['bert_nce/log_candidates'], np.log(36), places=5
        )
        # 64 sequences held out: all but one's own, and that.
        self.assertAlmostEqual(
            last['heldout/bert_nce/log_candidates'],
            np.log(63 * 5 + 1),
            places=5,
        )
        self.assertLess(last['bert_nce/ceiling'], np.log(36) - 0.01)
        for line in lines:  # 8 x 30, some of them separators
            tokens, steps = (
                line[f'{name}_per_second'] for name in ('tokens', 'steps')
            )
            self.assertGreater(tokens, 200 * steps)
            # Both are rounded, to .1 and to .0001.
            self.assertLessEqual(tokens, 240 * (steps + 5.1e-5) + 0.051)
            self.assertEqual(line['padding'], 0)
            self.assertNotIn('masked/tokens', line)
        self.assertLess(lines[-1]['mlm/loss'], lines[0]['mlm/loss'])
        self.assertAlmostEqual(lines[0]['learning_rate'], 0.002)
        self.assertAlmostEqual(lines[-1]['learning_rate'], 0.002 / 5)

        loaded = infoword_tf.load(workdir)
        self.assertEqual(loaded.config.max_length, 32)
        text = open_text(
            TextChoices(runs.TEXT['corpus'], runs.TEXT['heldout']),
            loaded.tokenizer,
        )
        np.testing.assert_array_equal(
            loaded.unigram,
            np.bincount(
                text.train.ids[text.train.flags & SEPARATOR == 0],
                minlength=len(loaded.tokenizer),
            ),
        )
        self.assertEqual(loaded.encoder.compute_dtype, 'float32')

        # The run's flags are a flagfile that runs it again.
        flags = quick.choices(f'--flagfile={workdir}/flags.txt')
        self.assertEqual(flags.objectives, 'bert_nce:1,mlm:0.5')
        self.assertEqual(flags.batch_size, 8)

    def test_the_function_leaves_what_the_command_does(self):
        code = (
            'import runpy\n'
            'from tests import quick\n'
            'with quick.small():\n'
            '    runpy.run_module("infoword_tf.train", run_name="__main__")\n'
        )
        python(
            '-c', code, '--objectives=infoword', '--dim.critic=cosine',
            '--nolower_case', '--vocab_size=600', '--steps=2', '--batch_size=8',
            '--seq_len=32', '--learning_rate=2e-3',
            f'--workdir={self.folder / "command"}',
            *(f'--{name}={x}' for name, x in runs.TEXT.items()),
        )  # fmt: skip
        with quick.small():
            actual = infoword_tf.train(
                objectives='infoword', settings={'dim.critic': 'cosine'},
                lower_case=False, vocab_size=600, size=None, steps=2,
                batch_size=8, seq_len=32, learning_rate=0.002,
                workdir=self.folder / 'function', **runs.TEXT,
            )  # fmt: skip
        self.assertEqual(actual['step'], 2)
        for file in ('config.json', 'weights.safetensors', 'vocab.txt'):
            one, other = ((self.folder / name / file).read_bytes()
                          for name in ('command', 'function'))
            self.assertEqual(one, other, file)
        one, other = ((self.folder / name / 'flags.txt').read_text()
                      for name in ('command', 'function'))
        self.assertEqual(one.replace('/command\n', '/function\n'), other)

    def test_the_function_complains_as_the_command_does(self):
        for chosen, value in (
            ({'steps': 0}, '--steps=0'),
            ({'optimizer': 'sgd'}, '--optimizer=sgd'),
            ({'stepps': 3}, "'stepps'"),
            ({'settings': {'dim.critik': 'dot'}}, "'dim.critik'"),
        ):
            with refused('bad_flag', value):
                infoword_tf.train(**chosen)
        with self.assertRaisesRegex(ImportError, 'import infoword_tf, and c'):
            importlib.import_module('infoword_tf.train')
        self.assertTrue(callable(infoword_tf.train))

    def test_minutes_are_as_many_updates_as_fit(self):
        """A run of 3, stopped and gone on with."""
        few = '--objectives=mlm', '--mlm.transform'
        workdir = self.folder / 'b'
        flags = (workdir, '--minutes=0.001', *few)
        tried, save = fit.steps_in, checkpoint.Checkpoints.save

        def three(minutes, trainer):
            self.assertEqual(minutes, 0.001)
            self.assertGreater(tried(minutes, trainer), 0)
            return 3

        def stopped(self, step, variables):
            if step == 3:
                raise KeyboardInterrupt
            save(self, step, variables)

        shown = io.StringIO()
        with (
            mock.patch.object(fit, 'TRIAL_STEPS', 1),
            mock.patch.object(fit, 'steps_in', three),
            mock.patch.object(checkpoint.Checkpoints, 'save', stopped),
            self.assertRaises(KeyboardInterrupt),
            contextlib.redirect_stdout(shown),
        ):
            run_here(*flags)
        self.assertIn('3 updates are too few', shown.getvalue())
        # Its steps are in its record: nothing is tried again.
        with mock.patch.object(fit, 'steps_in', side_effect=Stop):
            run_here(*flags)
            with refused('run_other_flags', '--minutes was 0.001, is 5.0'):
                run_here(*flags, '--minutes=5')
        self.assertEqual(Config.read(workdir).run['steps'], 3)
        run_here(self.folder / 'a', '--steps=3', *few)
        self.assertEqual(weights(self.folder / 'a'), weights(workdir))

    def test_epochs_of_pairs(self):
        """A sum of pairs that starts from --init has a length of its own."""
        pairs, text = (mock.Mock(reads=x) for x in ('pairs', 'text'))

        def steps(updates, **choices):
            source = mock.Mock(spec=TextPairSource, updates=updates)
            sources = {text: mock.Mock(), pairs: source}
            if not updates:
                del sources[pairs]
            return run._steps_of(
                RunChoices(**choices), mock.Mock(sources=sources)
            )

        named = SUMS['pairs']
        advised = {'objectives': 'pairs', 'init': 'm'}
        self.assertEqual(steps(14, epochs=2.5), 35)
        self.assertEqual(steps(14, epochs=0.01), 1)
        self.assertEqual(steps(14, **advised, epochs=1.0), 14)
        self.assertEqual(steps(14, **advised, steps=5), 5)
        self.assertEqual(steps(14, **advised), named.least)
        self.assertEqual(steps(900, **advised), round(900 * named.epochs))
        for others in ({'init': 'm', 'objectives': 'simcse'},
                       {'objectives': 'pairs'}):  # fmt: skip
            self.assertEqual(steps(900, **others), 1000)
        self.assertEqual(steps(0), 1000)

    def test_minutes_for_few_updates(self):
        """Advises 1.67 minutes for 200 steps, where 0.5 make 60."""
        choices = RunChoices(minutes=0.5, seq_len=96)
        self.assertEqual(run.FEW_STEPS, 200)
        advice = run.too_few(60, choices.minutes, choices)
        for part in ('60 updates', '--minutes=2;', '--size', 'than 96'):
            self.assertIn(part, advice)
        started = dataclasses.replace(choices, init='runs/a')
        advice = run.too_few(60, choices.minutes, started)
        self.assertNotIn('--size', advice)

    def test_an_auxiliary_encoder_reads_the_tokens_of_the_run(self):
        """One that has no workdir begins with weights of the run itself."""
        ours, theirs = self.folder / 'vocab.txt', self.folder / 'theirs'
        ours.write_text('ours')
        theirs.mkdir()
        named = {'of': Auxiliary(str(theirs)), 'copy': Auxiliary(copied=True)}
        for brought in None, 'theirs', 'ours':
            if brought:
                (theirs / ours.name).write_text(brought)
            with (
                contextlib.nullcontext() if brought == 'ours'
                else refused('auxiliary_other_vocabulary', 'of begins', theirs)
            ):  # fmt: skip
                run.refuse_other_vocabularies(named, ours)

    def test_the_best_weights_stay_and_the_run_ends(self):
        """At a rate of 0.3 the loss of the sum soon rises, on any text."""
        workdir = self.folder
        shown = run_here(
            workdir, '--steps=20', '--objectives=mlm:1,bert_nce:0.5',
            '--encoder=transformer', '--learning_rate=0.3', '--warmup_steps=0',
            '--eval_every=1', '--best', '--patience_evals=2',
        )  # fmt: skip
        # An evaluation is one of those that choose the weights.
        self.assertEqual(Config.read(workdir).run['eval_every'], 1)
        *_, best, _, last = lines = records(workdir)
        for step in 1, last['step']:
            self.assertRegex(shown, rf'step {step}/20 \| .* \| \d:\d\d left')
        for line in lines:
            self.assertAlmostEqual(
                line['heldout_loss'],
                line['heldout/mlm/loss'] + line['heldout/bert_nce/loss'] / 2,
            )
        losses = [line['heldout_loss'] for line in lines]
        self.assertLess(len(losses), 20)
        self.assertEqual(losses.index(min(losses)), len(losses) - 3)
        # The seconds are of the run, the rest of the weights.
        metrics = json.loads((workdir / 'metrics.json').read_text())
        self.assertEqual(metrics, {**best, 'seconds': last['seconds']})
        self.assertGreater(metrics['seconds'], best['seconds'])
        with warnings.catch_warnings(action='error'):
            infoword_tf.load(workdir)  # whose checkpoint is later
        self.assertEqual(checkpoint.weights_step(workdir), best['step'])
        self.assertEqual(checkpoint.last_step(workdir), last['step'])

    def test_xla_over_the_whole_step_changes_no_more_than_rounding(self):
        few = ('--steps=2', '--log_every=1', '--objectives=bert_nce:1,mlm:1')
        plain, xla = self.folder / 'plain', self.folder / 'xla'
        run_here(plain, *few)
        run_here(xla, *few, '--xla', eagerly=False)
        for a, b in zip(records(plain), records(xla), strict=True):
            for loss in ('bert_nce/loss', 'mlm/loss'):
                self.assertAlmostEqual(a[loss], b[loss], delta=1e-4)


class TracedTest(places.Folder, absltest.TestCase):
    def test_each_graph_once_and_when_it_is_needed(self):
        """To trace a function is most of what a short run takes."""
        actual = []

        def noted(kind, name):
            function = getattr(kind, name)

            def call(self, *args):
                actual.append(name)
                return function(self, *args)

            call = tf.autograph.experimental.do_not_convert(call)
            return mock.patch.object(kind, name, call)

        with contextlib.ExitStack() as stack:
            for kind, name in (
                (loop.Trainer, 'train_step'),
                (fit.Fit, '_act'),
                (loop.Heldout, '_first_candidates'),
                (loop.Heldout, '_batch_sums'),
            ):
                stack.enter_context(noted(kind, name))
            run_here(
                self.folder, '--objectives=ict', '--encoder=lookup',
                '--log_every=2', '--eval_every=4', '--steps=8', eagerly=False,
            )  # fmt: skip
        self.assertEqual(
            actual,
            ['train_step', '_act', '_act', '_first_candidates', '_batch_sums',
             '_act', '_act'],
        )  # fmt: skip


class Stop(Exception):
    """End of a run that has done what was to be seen."""


class FlagsReachTest(places.Folder, absltest.TestCase):
    """Choices at the places where they count."""

    def capture(self, *more):
        """Arguments of the trainer that a run makes, which then stops."""
        with (
            mock.patch.object(loop, 'Trainer', side_effect=Stop) as trainer,
            contextlib.suppress(Stop),
        ):
            run_here(self.folder, '--steps=20', '--learning_rate=0.4', *more)
        names = list(inspect.signature(loop.Trainer.__init__).parameters)[1:]
        call = trainer.call_args
        return dict(zip(names, call.args, strict=False)) | call.kwargs

    def test_of_the_optimizer_and_the_step(self):
        actual = self.capture(
            '--warmup_steps=8', '--weight_decay=0.3', '--clip_norm=0.7',
            '--dropout=0.4', '--xla',
        )  # fmt: skip
        optimizer = actual['optimizer']
        self.assertEqual(optimizer.rules.weight_decay, 0.3)
        self.assertEqual(optimizer.rules.clip_norm, 0.7)
        self.assertEqual(actual['state'].model.encoder.rate, 0.4)
        # It compiles the whole gradient.
        self.assertTrue(actual['computation'].xla)
        self.assertTrue(loop.Trainer(**actual).gradients._jit_compile)
        rates = [float(actual['learning_rate'](step)) for step in (0, 7, 14)]
        np.testing.assert_allclose(rates, [0.05, 0.4, 0.2], rtol=1e-6)

    def test_of_published_optimizers(self):
        path = self.folder / 'cpuinfo'
        path.write_text('flags : fpu amx_bf16\n')
        with mock.patch.object(record, 'CPUINFO', path):
            actual = self.capture(
                '--optimizer=xlnet', '--clip_norm=0.25', '--precision=auto'
            )
        self.assertFalse(actual['computation'].xla)
        plain = loop.Trainer(**actual).gradients
        self.assertFalse(getattr(plain, '_jit_compile', False))
        # Nothing is timed: the processor says it.
        encoder = actual['state'].model.encoder
        self.assertEqual(encoder.compute_dtype, 'bfloat16')
        self.assertEqual(
            actual['optimizer'].rules, optim.preset('xlnet', clip_norm=0.25)
        )
        # Two updates of climb, the first of 0.
        rates = [float(actual['learning_rate'](step)) for step in (0, 1, 2)]
        np.testing.assert_allclose(rates, [0.0, 0.2, 0.4], rtol=1e-6)

    def test_replicas_and_devices(self):
        with refused('xla_on_cpus', '--xla', '--logical_cpus'):
            distribution.check(2, 8, one_cpu=True, xla=True)
        with refused('unequal_replicas', '--batch_size=8', 3):
            distribution.check(3, 8)
        distribution.check(2, 8, one_cpu=True)
        distribution.check(2, 8, xla=True)

    def test_what_may_end_a_run(self):
        several, early = {'strategy': 'multiworker'}, {'patience_evals': 2}
        for changes, labelled in (
            (early, True),
            ({**early, 'best': True}, False),
            ({'best': True, **several}, False),
        ):
            begin.refuse_contradicting_ends(RunChoices(**changes), labelled)


class NspTest(places.Folder, absltest.TestCase):
    def test_bert(self):
        """Says which documents have no part, and how often a label is right."""
        workdir = self.folder
        shown = run_here(workdir, '--objectives=bert', '--steps=2')
        self.assertRegex(
            shown, r'\d+ documents have one sentence and no part in mlm, nsp\n'
        )
        # Of label 0; of held-out text, of the commoner one.
        last = records(workdir)[-1]
        self.assertBetween(last['nsp/chance'], 0.0, 1.0)
        self.assertBetween(last['heldout/nsp/chance'], 0.5, 1.0)
        config = Config.read(workdir)
        self.assertEqual(config.masking, 'tokens')
        self.assertEqual(config.pooling, 'mean')
