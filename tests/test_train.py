"""The real command on real text: training, resuming, and every complaint."""

import contextlib
import errno
import io
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from unittest import mock

import numpy as np
import tensorflow as tf
from absl import flags
from absl.testing import absltest, flagsaver, parameterized

import infoword_tf
from infoword_tf import files, train
from infoword_tf.training import checkpoint, loop, optim
from tests import corpus

ROOT = pathlib.Path(__file__).parent.parent
SMALL = (
    '--steps=30',
    '--log_every=3',
    '--eval_every=15',
    '--checkpoint_every=6',
    '--batch_size=8',
    '--seq_len=32',
    '--precision=float32',
    '--learning_rate=0.002',
)


def setUpModule():
    global TEMPORARY, CORPUS, HELDOUT
    TEMPORARY = pathlib.Path(tempfile.mkdtemp())
    os.environ['INFOWORD_CACHE'] = str(TEMPORARY / 'cache')
    CORPUS, HELDOUT = corpus.write_topics(TEMPORARY / 'text')


def arguments(workdir, *more):
    text = (f'--corpus={CORPUS}', f'--heldout={HELDOUT}')
    if not any(flag.startswith('--init') for flag in more):
        text += ('--vocab_size=600',)
    return [*SMALL, *text, f'--workdir={workdir}', *more]


def run(workdir, *more):
    """The command in a process of its own; returns (exit status, output)."""
    done = subprocess.run(
        [sys.executable, '-m', 'infoword_tf.train', *arguments(workdir, *more)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def run_here(workdir, *more):
    """The command in this process."""
    given = arguments(workdir, *more)
    with flagsaver.flagsaver():
        flags.FLAGS(['train', *given])
        train.train()


def records(workdir):
    lines = (pathlib.Path(workdir) / 'metrics.jsonl').read_text().splitlines()
    return [json.loads(line) for line in lines]


class TrainTest(absltest.TestCase):
    def test_a_run_leaves_a_workdir(self):
        workdir = pathlib.Path(self.create_tempdir().full_path) / 'run'
        run_here(workdir, '--objectives=bert_nce:1,mlm:0.5')
        found = {path.name for path in workdir.iterdir()}
        self.assertContainsSubset(
            {
                'config.json',
                'vocab.txt',
                'weights.safetensors',
                'flags.txt',
                'metrics.jsonl',
                'metrics.json',
                'bounds.png',
                'checkpoints',
                'tensorboard',
            },
            found,
        )
        self.assertLen(list((workdir / 'checkpoints').iterdir()), 2)
        self.assertTrue(
            (workdir / 'bounds.png').read_bytes().startswith(b'\x89PNG')
        )
        lines = records(workdir)
        self.assertEqual([r['step'] for r in lines], list(range(3, 31, 3)))
        last = json.loads((workdir / 'metrics.json').read_text())
        for row in ('bert_nce', 'mlm'):
            for name in ('loss', 'mi', 'ceiling', 'accuracy', 'chance'):
                self.assertIn(f'{row}/{name}', last)
                self.assertIn(f'heldout/{row}/{name}', last)
        # 8 sequences of P = ceil(0.15 * 30) = 5: 35 candidates and one's own.
        self.assertAlmostEqual(last['bert_nce/ceiling'], np.log(36), places=5)
        self.assertAlmostEqual(last['bert_nce/chance'], 1 / 36, places=6)
        self.assertLess(lines[-1]['mlm/loss'], lines[0]['mlm/loss'])
        self.assertAlmostEqual(lines[0]['learning_rate'], 0.002)
        self.assertLess(lines[-1]['learning_rate'], 0.0002)

        loaded = infoword_tf.load(workdir)
        self.assertEqual(loaded.config['max_length'], 32)
        self.assertLen(loaded.tokenizer, len(loaded.unigram))
        self.assertEqual(loaded.encoder.compute_dtype, 'float32')
        states = loaded.encoder(np.array([[2, 7, 8, 3]], 'int32')).states
        self.assertEqual(states.shape, (1, 4, 128))
        self.assertTrue(np.isfinite(np.asarray(states)).all())

        # The run's flags are a flagfile that runs it again.
        with flagsaver.flagsaver():
            flags.FLAGS(['train', f'--flagfile={workdir}/flags.txt'])
            self.assertEqual(train.OBJECTIVES.value, 'bert_nce:1,mlm:0.5')
            self.assertEqual(train.STEPS.value, 30)

    def test_the_same_seed_gives_the_same_weights_and_init_takes_them(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        few = ('--steps=6', '--objectives=mlm', '--transform')
        for name, more in (('a', ()), ('b', ()), ('c', ('--seed=1',))):
            run_here(folder / name, *few, *more)
        a, b, c = (
            (folder / name / 'weights.safetensors').read_bytes()
            for name in 'abc'
        )
        self.assertEqual(a, b)
        self.assertNotEqual(a, c)
        with contextlib.redirect_stdout(open(folder / 'log', 'w')):
            run_here(
                folder / 'd',
                '--steps=1',
                '--learning_rate=0',
                '--objectives=mlm:1,bert_nce:1',
                '--transform',
                f'--init={folder}/a',
            )
        log = (folder / 'log').read_text()
        self.assertIn(
            'taken encoder, objectives/mlm and the tokenizer; fresh nothing; '
            'dropped nothing',
            log,
        )
        old = infoword_tf.load(folder / 'a').model.variables
        new = infoword_tf.load(folder / 'd').model.variables
        self.assertEqual(list(old), list(new))
        for path, variable in old.items():
            np.testing.assert_array_equal(variable, new[path], err_msg=path)
        for flag, message in (
            ('--size=base', 'is not the size of'),
            ('--gelu=erf', '--gelu is decided by --init'),
        ):
            with self.assertRaisesRegex(train.UsageError, message):
                run_here(folder / 'e', f'--init={folder}/a', flag)

    def test_xla_over_the_whole_step_changes_no_more_than_rounding(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        few = ('--steps=3', '--log_every=1', '--objectives=bert_nce:1,mlm:1')
        run_here(folder / 'plain', *few)
        run_here(folder / 'xla', *few, '--xla')
        for a, b in zip(
            records(folder / 'plain'), records(folder / 'xla'), strict=True
        ):
            for row in ('bert_nce', 'mlm'):
                self.assertAlmostEqual(
                    a[f'{row}/loss'], b[f'{row}/loss'], delta=1e-4
                )

    def test_the_report_counts_candidates_of_all_heldout_text(self):
        workdir = pathlib.Path(self.create_tempdir().full_path)
        run_here(workdir, '--steps=2', '--log_every=1')
        config = json.loads((workdir / 'config.json').read_text())
        self.assertEqual(config['rows']['bert_nce']['weight'], 1.0)
        self.assertEqual(config['masking'], 'spans')
        ceiling = records(workdir)[-1]['heldout/bert_nce/ceiling']
        self.assertLessEqual(ceiling, np.log(1025) + 1e-5)


class IctTest(parameterized.TestCase):
    @parameterized.parameters(
        ('--objectives=ict',),
        ('--objectives=ict', '--encoder=lookup', '--learning_rate=0.01'),
        ('--objectives=bert_nce:1,dim:0.8,ict:1',),
    )
    def test_trains(self, *more):
        workdir = pathlib.Path(self.create_tempdir().full_path)
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            run_here(workdir, *more)
        self.assertRegex(
            shown.getvalue(), r'\d+ documents have one sentence and no part '
            r'in ict\n',
        )  # fmt: skip
        config = json.loads((workdir / 'config.json').read_text())
        self.assertEqual(config['pooling'], 'weighted')
        self.assertEqual(config['similarity'], 'cosine')
        lines = records(workdir)
        self.assertTrue(np.isfinite(lines[-1]['ict/mi']))
        # Some documents are one long paragraph and weigh nothing.
        self.assertBetween(lines[-1]['ict/ceiling'], np.log(3), np.log(8.01))
        model = infoword_tf.load(workdir)
        vectors = model.encode(['a list', 'a tuple'], progress=False)
        width = model.encoder.arguments['width']
        self.assertEqual(vectors.shape, (2, width))
        self.assertEqual(width, 256 if '--encoder=lookup' in more else 128)

    def test_what_it_cannot_have(self):
        for more, message in (
            (('--objectives=bert_nce', '--encoder=lookup'), 'allows transf'),
            (
                ('--objectives=bert_nce:1,ict:1', '--encoder=lookup'),
                'bert_nce allows transformer',
            ),
            (
                ('--objectives=ict', '--encoder=lookup', '--gelu=erf'),
                'the encoder lookup has none',
            ),
        ):
            with self.assertRaisesRegex(train.UsageError, message):
                run_here(self.create_tempdir().full_path, *more)


class NspTest(parameterized.TestCase):
    def test_bert(self):
        """Of one pass of pairs; no MI of `nsp`; it loads and encodes."""
        workdir = pathlib.Path(self.create_tempdir().full_path)
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            run_here(workdir, '--objectives=bert')
        self.assertRegex(
            shown.getvalue(),
            r'\d+ documents have one sentence and no part in mlm, nsp\n',
        )
        self.assertRegex(
            shown.getvalue(),
            r'nats \| nsp MI -, accuracy 0\.\d+, held out 0\.\d+\n',
        )
        self.assertRegex(
            shown.getvalue(), r'nsp +training +- +- +0\.\d+ +[01]\.\d+ +0\.5'
        )
        last = records(workdir)[-1]
        for prefix in ('', 'heldout/'):
            for name in ('loss', 'accuracy', 'chance'):
                self.assertIn(f'{prefix}nsp/{name}', last)
            for name in ('mi', 'ceiling'):
                self.assertNotIn(f'{prefix}nsp/{name}', last)
                self.assertIn(f'{prefix}mlm/{name}', last)
            self.assertEqual(last[f'{prefix}nsp/chance'], 0.5)
        config = json.loads((workdir / 'config.json').read_text())
        self.assertEqual(config['masking'], 'tokens')
        self.assertEqual(config['pooling'], 'mean')
        model = infoword_tf.load(workdir)
        self.assertEqual(
            model.encode(['a list', 'a tuple'], progress=False).shape, (2, 128)
        )
        self.assertLen(model.fill_mask('a [MASK] of names')[0], 10)

    @parameterized.parameters(
        ('nsp_nce', 'tokens'), ('bert_nce:1,dim:0.8,nsp_nce:1', 'spans')
    )
    def test_nsp_nce(self, objectives, masking):
        workdir = pathlib.Path(self.create_tempdir().full_path)
        run_here(workdir, f'--objectives={objectives}', '--steps=6')
        config = json.loads((workdir / 'config.json').read_text())
        self.assertEqual(config['masking'], masking)
        last = records(workdir)[-1]
        for prefix in ('', 'heldout/'):
            self.assertAlmostEqual(
                last[f'{prefix}nsp_nce/ceiling'], np.log(4), places=5
            )
            self.assertAlmostEqual(
                last[f'{prefix}nsp_nce/chance'], 0.25, places=6
            )
            self.assertTrue(np.isfinite(last[f'{prefix}nsp_nce/mi']))

    def test_nsp_alone(self):
        """Without a bound there is a picture that says so."""
        workdir = pathlib.Path(self.create_tempdir().full_path)
        run_here(workdir, '--objectives=nsp', '--steps=3')
        self.assertTrue((workdir / 'bounds.png').is_file())

    def test_both_contradict_each_other(self):
        for objectives in ('nsp:1,nsp_nce:1', 'mlm:1,nsp_nce:1,nsp:0.5'):
            with self.assertRaisesRegex(
                train.UsageError,
                f"--objectives={objectives}: .*pairs.*'masked'.*leave out",
            ):
                run_here(
                    self.create_tempdir().full_path,
                    f'--objectives={objectives}',
                )
        with flagsaver.flagsaver():  # a row of weight 0 is not there
            flags.FLAGS(['train', '--objectives=nsp:1,nsp_nce:0'])
            self.assertEqual(list(train.choose_rows()[0]), ['nsp'])

    def test_text_without_pairs(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        sentences = 'One fish two fish. Red fish blue fish.\n'
        for name, text in (
            ('single', 'one fish two fish\n\n' * 200),
            ('lone', sentences.replace('. ', '.\n') * 200),
            ('good', (sentences.replace('. ', '.\n') + '\n') * 50),
        ):
            (folder / f'{name}.txt').write_text(text)
        for train_text, heldout, message in (
            ('single', 'good', '0 of 200 documents have two sentences'),
            ('lone', 'good', '1 of 1 documents have two sentences.*blank'),
            ('good', 'lone', 'held-out text .* no two documents'),
        ):
            with self.assertRaisesRegex(ValueError, message):
                run_here(
                    folder / f'{train_text}-{heldout}',
                    '--objectives=bert',
                    '--vocab_size=60',
                    f'--corpus=text:{folder}/{train_text}.txt',
                    f'--heldout={folder}/{heldout}.txt',
                )


class DimTest(parameterized.TestCase):
    @parameterized.parameters('dot', 'cosine')
    def test_alone(self, critic):
        workdir = pathlib.Path(self.create_tempdir().full_path)
        given = ('--objectives=dim', '--steps=6')
        if critic != 'dot':
            given += (f'--critic={critic}', '--temperature=0.1')
        run_here(workdir, *given)
        config = json.loads((workdir / 'config.json').read_text())
        self.assertEqual(config['masking'], 'spans')
        self.assertEqual(config['pooling'], 'cls')
        self.assertEqual(config['similarity'], critic)
        last = records(workdir)[-1]
        # P = 5, S = 3; one n-gram a sequence is the least.
        self.assertBetween(last['dim/ceiling'], np.log(8), np.log(22))
        self.assertBetween(last['dim/chance'], 1 / 22, 1 / 8)
        self.assertIn('ngrams/dropped_spans', last)
        self.assertAlmostEqual(
            last['heldout/dim/ceiling'], np.log(129), places=5
        )
        self.assertAlmostEqual(last['heldout/dim/chance'], 1 / 129, places=7)
        self.assertEqual(
            infoword_tf.load(workdir).model.objectives['dim'].critic, critic
        )
        with self.assertRaisesRegex(
            train.UsageError,
            f'--critic was {critic}, is scaled.*another --workdir',
        ):
            run_here(workdir, *given[:2], '--critic=scaled')

    def test_what_compares_texts(self):
        """Pooling and similarity are of `dim`, where it is trained."""
        for given, expected in (
            ('--objectives=bert_nce', ('mean', 'cosine')),
            ('--objectives=bert_nce:1,dim:0', ('mean', 'cosine')),
            ('--objectives=infoword', ('cls', 'dot')),
        ):
            with flagsaver.flagsaver():
                flags.FLAGS(['train', given])
                rows, *_ = train.choose_rows()
            found = train.compare_texts(rows)
            self.assertEqual(
                (found['pooling'], found['similarity']), expected
            )

    def assert_finite(self, workdir):
        for record in records(workdir):
            for name, value in record.items():
                self.assertTrue(np.isfinite(value), name)

    def test_documents_that_are_all_the_same(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        for part in ('train', 'heldout'):
            (folder / f'{part}.txt').write_text(
                'one fish two fish red fish blue fish\n\n' * 200
            )
        run_here(
            folder / 'run',
            '--objectives=infoword',
            '--steps=9',
            f'--corpus=text:{folder}/train.txt',
            f'--heldout={folder}/heldout.txt',
        )
        self.assert_finite(folder / 'run')
        self.assertLen(records(folder / 'run'), 3)

    def test_little_heldout_text(self):
        """Fewer than 128 n-grams of others: the ceiling says how many."""
        folder = pathlib.Path(self.create_tempdir().full_path)
        text = pathlib.Path(HELDOUT).read_text().split()
        (folder / 'few.txt').write_text(' '.join(text[:300]) + '\n')
        run_here(
            folder / 'run',
            '--objectives=dim',
            '--steps=3',
            f'--heldout={folder}/few.txt',
        )
        self.assert_finite(folder / 'run')
        last = records(folder / 'run')[-1]
        self.assertBetween(
            last['heldout/dim/ceiling'], np.log(5), np.log(129) - 0.5
        )
        self.assertGreater(last['heldout/dim/chance'], 1 / 129)


class ResumeTest(parameterized.TestCase):
    @parameterized.named_parameters(
        ('one_device', (), (0, 1)),
        ('two_replicas', ('--strategy=mirrored', '--logical_cpus=2'), (0,)),
    )
    def test_killed_gives_the_same_weights(self, more, kills):
        """kill -9 at a random moment, and while a checkpoint is written."""
        more += ('--objectives=infoword',)  # two rows, two views
        folder = pathlib.Path(self.create_tempdir().full_path)
        whole, broken = folder / 'whole', folder / 'broken'
        status, output = run(whole, *more)
        self.assertEqual(status, 0, output)
        command = [
            sys.executable,
            '-m',
            'infoword_tf.train',
            *arguments(broken, *more),
        ]
        dice = random.Random(len(more))
        for kill in kills:
            environment = dict(os.environ)
            if kill == 1:
                # Stops inside the second write of a checkpoint: the bytes are
                # on disk, the rename has not happened.
                environment['PYTHONPATH'] = str(self._slow_rename(folder))
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            self._wait(process, broken, kill)
            time.sleep(dice.random() * 0.05)
            process.send_signal(signal.SIGKILL)
            process.wait()
        status, output = run(broken, *more)
        self.assertEqual(status, 0, output)
        self.assertIn('resuming from', output)
        self.assertEqual(
            (whole / 'weights.safetensors').read_bytes(),
            (broken / 'weights.safetensors').read_bytes(),
        )
        steps = [r['step'] for r in records(broken)]
        self.assertEqual(steps, list(range(3, 31, 3)))
        for a, b in zip(records(whole), records(broken), strict=True):
            for name in a:
                if name not in ('seconds', 'tokens_per_second'):
                    self.assertEqual(a[name], b[name], name)

    def _slow_rename(self, folder):
        """A sitecustomize that makes renaming a checkpoint take a minute."""
        hook = folder / 'hook'
        hook.mkdir(exist_ok=True)
        (hook / 'sitecustomize.py').write_text(
            'import os, time\n'
            'rename = os.replace\n'
            'def slow(a, b, *rest, **more):\n'
            "    if 'step-' in str(b):\n"
            f"        open({str(folder / 'writing')!r}, 'w').close()\n"
            '        time.sleep(60)\n'
            '    return rename(a, b, *rest, **more)\n'
            'os.replace = slow\n'
        )
        return hook

    def _wait(self, process, workdir, kill):
        """Until the run did something worth interrupting."""
        wanted = {
            0: lambda: self._lines(workdir) >= 3,
            1: lambda: (workdir.parent / 'writing').exists(),
        }[kill]
        deadline = time.monotonic() + 120
        while not wanted():
            self.assertIsNone(process.poll(), 'the run ended by itself')
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def _lines(self, workdir):
        path = workdir / 'metrics.jsonl'
        return len(path.read_text().splitlines()) if path.exists() else 0


class DamageTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.finished = pathlib.Path(tempfile.mkdtemp()) / 'run'
        run_here(cls.finished, '--steps=12')

    def setUp(self):
        super().setUp()
        self.workdir = pathlib.Path(self.create_tempdir().full_path) / 'run'
        shutil.copytree(self.finished, self.workdir)

    def test_a_cut_checkpoint_is_skipped_and_said(self):
        weights = (self.workdir / 'weights.safetensors').read_bytes()
        newest = sorted((self.workdir / 'checkpoints').iterdir())[-1]
        data = newest.read_bytes()
        newest.write_bytes(data[: len(data) // 2])
        log = self.workdir.parent / 'log'
        with contextlib.redirect_stdout(open(log, 'w')):
            run_here(self.workdir, '--steps=12')
        self.assertRegex(
            log.read_text(), r'skipped a damaged checkpoint: .*step-000000012'
        )
        self.assertRegex(log.read_text(), r'resuming from .*step 6')
        self.assertEqual(
            (self.workdir / 'weights.safetensors').read_bytes(), weights
        )

    def test_all_checkpoints_cut(self):
        for path in (self.workdir / 'checkpoints').iterdir():
            path.write_bytes(b'\x10')
        with self.assertRaisesRegex(ValueError, 'no checkpoint can be read'):
            run_here(self.workdir, '--steps=12')

    def test_other_flags_are_listed(self):
        with self.assertRaisesRegex(
            train.UsageError,
            '(?s)--steps was 12, is 13.*--learning_rate was 0.002, is 0.5'
            '.*another --workdir',
        ):
            run_here(self.workdir, '--steps=13', '--learning_rate=0.5')
        # What changes no weight may differ, and so may the spelling.
        run_here(
            self.workdir,
            '--steps=12',
            '--log_every=4',
            '--objectives=bert_nce:1.0',
            '--masking=spans',
            '--precision=auto',
        )

    def test_two_runs_on_one_workdir(self):
        with (
            files.locked(self.workdir),
            self.assertRaisesRegex(RuntimeError, 'another run is writing'),
        ):
            run_here(self.workdir, '--steps=12')

    def test_a_full_disk_while_saving_loses_nothing(self):
        before = {
            path.name: path.read_bytes()
            for path in (self.workdir / 'checkpoints').iterdir()
        }
        workdir = self.workdir.parent / 'full'
        real = checkpoint.os.replace

        def full(source, target):
            if 'step-000000012' in str(target):
                raise OSError(errno.ENOSPC, 'No space left on device')
            real(source, target)

        with (
            mock.patch.object(checkpoint.os, 'replace', full),
            self.assertRaisesRegex(
                OSError, 'step-000000012.*No space left.*make room'
            ),
        ):
            run_here(workdir, '--steps=12')
        self.assertEqual(
            [path.name for path in (workdir / 'checkpoints').iterdir()],
            ['step-000000006.safetensors'],
        )
        run_here(workdir, '--steps=12')
        for name, data in before.items():
            self.assertEqual(
                (workdir / 'checkpoints' / name).read_bytes(), data
            )

    def test_not_a_finished_workdir(self):
        (self.workdir / 'weights.safetensors').unlink()
        with self.assertRaisesRegex(FileNotFoundError, 'weights.safetensors'):
            infoword_tf.load(self.workdir)


class NonFiniteTest(absltest.TestCase):
    def test_the_run_stops_names_step_and_row_and_loses_nothing(self):
        """A learning rate of 1e30 in update 7 breaks the loss of update 8."""
        folder = pathlib.Path(self.create_tempdir().full_path)
        run_here(folder / 'whole', '--steps=12')
        real = optim.schedule

        def broken(step, *rest):
            return real(step, *rest) + tf.where(step == 7, 1e30, 0.0)

        with (
            mock.patch.object(optim, 'schedule', broken),
            self.assertRaisesRegex(
                loop.NonFiniteLoss, 'step 8: bert_nce is not finite.*No weight'
            ),
        ):
            run_here(folder / 'broken', '--steps=12')
        # Its weights can be had from the last checkpoint on ...
        other = (f'--init={folder}/broken', '--learning_rate=0.0001')
        run_here(folder / 'other', '--steps=3', *other)
        # ... and it can go on itself.
        run_here(folder / 'broken', '--steps=12')
        self.assertEqual(
            (folder / 'whole' / 'weights.safetensors').read_bytes(),
            (folder / 'broken' / 'weights.safetensors').read_bytes(),
        )


class BadInputTest(parameterized.TestCase):
    @parameterized.named_parameters(
        ('no_files', '--corpus=text:/nowhere/*.txt', '/nowhere/'),
        ('no_kind', '--corpus=wikipedia', 'pydocs'),
        ('no_heldout_files', '--heldout=/nowhere/*.txt', '/nowhere/'),
        ('row', '--objectives=berta', "no row 'berta'.*bert_nce"),
        ('weight', '--objectives=mlm:x', "'x' is no weight"),
        ('negative', '--objectives=mlm:-1', 'weights are 0 or more'),
        ('all_zero', '--objectives=mlm:0,bert_nce:0', 'every weight is 0'),
        ('twice', '--objectives=mlm,mlm', 'twice'),
        ('size', '--size=huge', 'tiny, mini, small'),
        ('encoder', '--encoder=lookup', 'bert_nce allows transformer'),
        ('masking', '--masking=words', 'bert_nce hides spans'),
        ('length', '--seq_len=600', '512 positions'),
        ('one_sequence', '--batch_size=1', 'take 2 or more'),
        ('transform', '--transform', '--transform is for mlm'),
        ('vocab', '--vocab=/nowhere/vocab.txt', 'no such vocabulary'),
        ('batch', '--batch_size=100000', 'a batch takes 100000'),
        ('init', '--init=/nowhere', 'not the workdir of a finished run'),
        ('vocab_size', '--vocab_size=5', 'no room'),
        ('logical', '--logical_cpus=2', 'is for --strategy=mirrored'),
    )
    def test_one_sentence(self, flag, message):
        workdir = self.create_tempdir().full_path
        with self.assertRaisesRegex(
            (train.UsageError, ValueError, OSError), message
        ):
            run_here(workdir, flag)

    @parameterized.named_parameters(
        ('unknown_flag', ('--stepps=3',), 'stepps'),
        ('temperature', ('--critic=cosine', '--temperature=0'), 'temperature'),
        ('flag_value', ('--strategy=many',), 'mirrored'),
        ('no_flag', ('tiny',), 'is no flag'),
        (
            'replicas',
            (
                '--strategy=mirrored',
                '--logical_cpus=3',
            ),
            'cannot be shared by 3 replicas',
        ),
    )
    def test_the_command_says_it_and_fails(self, more, message):
        status, output = run(self.create_tempdir().full_path, *more)
        self.assertNotEqual(status, 0)
        self.assertIn(message, output)
        self.assertNotIn('Traceback', output)

    @parameterized.named_parameters(
        (
            'masking',
            ('--objectives=infoword', '--masking=words'),
            '--masking=words: bert_nce hides spans',
        ),
        (
            'masking_of_dim',
            ('--objectives=dim', '--masking=tokens'),
            '--masking=tokens: dim hides spans',
        ),
        (
            'critic',
            ('--critic=dot',),
            '--critic is for dim, not for --objectives=bert_nce',
        ),
        (
            'critic_of_a_row_of_weight_0',
            ('--objectives=bert_nce:1,dim:0', '--critic=scaled'),
            '--critic is for dim, not for',
        ),
        (
            'temperature',
            ('--objectives=infoword', '--temperature=0.1'),
            '--temperature is for --critic=cosine',
        ),
        (
            'temperature_of_another_critic',
            ('--objectives=dim', '--critic=scaled', '--temperature=0.1'),
            '--temperature is for --critic=cosine',
        ),
        (
            'one_sequence',
            ('--objectives=dim', '--batch_size=1'),
            'the candidates of dim come from other sequences.*take 2',
        ),
    )
    def test_of_dim(self, more, message):
        """One sentence, and exit status 1."""
        workdir = self.create_tempdir().full_path
        shown = io.StringIO()
        with (
            flagsaver.flagsaver(),
            contextlib.redirect_stderr(shown),
            self.assertRaises(SystemExit) as raised,
        ):
            flags.FLAGS(['train', *arguments(workdir, *more)])
            train.main(['train'])
        self.assertEqual(raised.exception.code, 1)
        self.assertRegex(shown.getvalue(), r'\Aerror: [^\n]+\n\Z')
        self.assertRegex(shown.getvalue(), message)

    def test_vocabularies(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        path = folder / 'vocab.txt'
        path.write_text('[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n')
        with self.assertRaisesRegex(ValueError, r'lacks \[MASK\]'):
            run_here(folder / 'run', f'--vocab={path}')
        path.write_text('[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\n')
        with self.assertRaisesRegex(ValueError, 'line 6 and again on line 8'):
            run_here(folder / 'run', f'--vocab={path}')

    def test_corpora(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        path = folder / 'text.txt'
        for data, message in (
            (b'', 'no '),
            (b'abc\x00def' * 100, 'binary'),
            (b'Some words.\n' * 10 + b'caf\xe9\n', 'offset 123'),
            (b'One document alone, no other. ' * 500, 'held-out'),
        ):
            path.write_bytes(data)
            with self.assertRaisesRegex(ValueError, message):
                run_here(folder / 'run', f'--corpus=text:{path}', '--heldout=')


if __name__ == '__main__':
    absltest.main()
