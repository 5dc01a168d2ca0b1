"""Commands that take names of the Hub, some against the files themselves.

All of them replace names by paths in the same place, before they run.
"""

import contextlib
import io
import json
from unittest import mock

import numpy as np
from absl.testing import parameterized

import infoword_tf
from infoword_tf import convert, folders, hub, keras_models, prepare
from infoword_tf.config import WEIGHTS, Config
from infoword_tf.training import begin
from tasks import distill, embedding, finetune, glue, mine, retrieval, squad
from tests import hubserver, places, quick
from tests.eager import eagerly
from tests.runs import records
from tests.tasks import command, finetuning, squad_files, test_retrieval
from tests.weights import folders as public

MODEL, DATA = 'hf://o/bert', 'hf://datasets/o/d'
WORDS = ('a cab', 'bad dad', 'an egg', 'a big bag', 'deaf', 'feed a bee')


def setUpModule():
    """Serves a model, which is converted once, and a data set."""
    global FOLDER, HERE, WORKDIR
    FOLDER = places.make()
    cleanups = contextlib.ExitStack()
    places.unittest.addModuleCleanup(cleanups.close)
    served = cleanups.enter_context(hubserver.serving(FOLDER / 'hf'))
    served.add('models/o/bert', public.write(FOLDER / 'bert', 'bert'))
    HERE = FOLDER / 'data'
    write(HERE)
    served.add('datasets/o/d', HERE)
    with eagerly(), contextlib.redirect_stderr(io.StringIO()):
        WORKDIR = folders.workdir_of(MODEL, begin.convert)
        folders.workdir_of(FOLDER / 'bert', begin.convert)


def write(folder):
    texts = [text for text, _ in finetuning.sentences()[:40]]
    names = 'index', 'sentence1', 'sentence2'
    for split, count in ('train', 16), ('dev', 6):
        finetuning.write(
            folder / f'glue/RTE/{split}.tsv', (*names, 'label'),
            [(i, texts[i], texts[-i - 1],
              ('entailment', 'not_entailment')[i % 2]) for i in range(count)],
        )  # fmt: skip
        context = 'the cat saw the dog on the mat'
        squad_files.write(folder / f'{split}.json', (
            context, squad_files.asked(context, 'dog', 'what saw', split)
        ))  # fmt: skip
    finetuning.write(
        folder / 'pairs.tsv', ('query', 'passage'),
        [(a, f'{b} {a}') for a in WORDS for b in WORDS],
    )  # fmt: skip
    finetuning.write(
        folder / 'heldout.tsv', ('query', 'passage'),
        [(f'{a} egg', f'fed {a}') for a in WORDS],
    )  # fmt: skip
    lines = [json.dumps({'text': f'{a} {b}.'}) for a in WORDS for b in WORDS]
    (folder / 'corpus.jsonl').write_text('\n'.join(lines))
    (folder / 'heldout.jsonl').write_text('\n'.join(lines[::2]))
    for name, part in ('words', WORDS), ('heldout', WORDS[:2]):
        (folder / f'{name}.txt').write_text('\n'.join(part))
    test_retrieval.write_folder(folder / 'beir')


class NamesCase(command.Checks, places.Folder, parameterized.TestCase):
    """Test with the progress of downloads out of sight."""

    def setUp(self):
        super().setUp()
        self.enterContext(contextlib.redirect_stderr(io.StringIO()))

    def both(self, run):
        """Returns what a function makes of the files, and of the names."""
        return run(str(FOLDER / 'bert'), HERE), run(MODEL, DATA)

    def stopped(self, where, name, module, arguments):
        """Returns what a function gets of a command, which ends there."""
        with mock.patch.object(where, name, side_effect=ValueError) as called:
            done = command.run(module, *arguments)
        self.assertTrue(called.called, done.err)
        return called.call_args.args[0]


class TablesTest(NamesCase):
    def examples(self, module, *arguments):
        """Returns what a task would train on and be measured on."""
        prepared = self.stopped(finetune, 'train_once', module, [
            f'--init={finetuning.init()}', f'--workdir={self.folder / "run"}',
            '--seq_len=40', '--batch_size=4', '--epochs=1', *arguments,
        ])  # fmt: skip
        train = prepared.labelled.train
        return {k: x.tolist() for k, x in train._asdict().items()
                if isinstance(x, np.ndarray)}  # fmt: skip

    @parameterized.parameters(
        (glue, '--task=rte', '--data_dir={}/glue'),
        (squad, '--train={}/train.json', '--dev={}/dev.json'),
    )
    def test_examples(self, module, *arguments):
        one, two = self.both(lambda _, data: self.examples(
            module, *(x.format(data) for x in arguments)
        ))  # fmt: skip
        self.assertNotEmpty(one['ids'])
        self.assertEqual(one, two)

    def test_pairs_and_texts_of_a_run(self):
        """Also --init and a guide: all of a run has names of the Hub."""

        def run(model, data):
            workdir = self.folder / f'run{model == MODEL}'
            with contextlib.redirect_stdout(io.StringIO()):
                quick.run(
                    '--objectives=simcse,mlm', f'--init={model}',
                    f'--simcse.guide={model}',
                    f'--pairs={data}/pairs.tsv', '--steps=1',
                    f'--heldout_pairs={data}/heldout.tsv', '--batch_size=4',
                    f'--corpus=jsonl:{data}/corpus.jsonl', '--seq_len=16',
                    f'--heldout={data}/heldout.jsonl',
                    f'--workdir={workdir}', '--log_every=1',
                    '--eval_every=1', '--precision=float32',
                )  # fmt: skip
            (record,) = records(workdir)
            return {k: x for k, x in record.items() if '/' in k}

        one, two = self.both(run)
        self.assertIn('heldout/simcse/mi', one)
        self.assertEqual(one, two)

    def test_a_store(self):
        def run(model, data):
            del model
            folder = self.folder / f'store{data == DATA}'
            with contextlib.redirect_stdout(io.StringIO()):
                prepare.run(
                    corpus=f'jsonl:{data}/*.jsonl', output=str(folder),
                    vocab=str(WORKDIR / 'vocab.txt'), processes=1,
                )  # fmt: skip
            return {
                path.relative_to(folder): path.read_bytes()
                for path in folder.rglob('*.npy')
            }

        one, two = self.both(run)
        self.assertNotEmpty(one)
        self.assertEqual(one, two)


class ModelsTest(NamesCase):
    def measured(self, module, *arguments):
        with eagerly():
            done = command.run(module, *arguments)
        result = command.succeeded(done).result
        return {
            k: x for k, x in result.items()
            if not isinstance(x, str) and 'seconds' not in k
        }  # fmt: skip

    def test_measures(self):
        one, two = self.both(lambda model, data: self.measured(
            retrieval, f'--init={model}', f'--first={model}',
            f'--rerank={model}', f'--data_dir={data}/beir',
            f'--workdir={self.folder / str(model == MODEL)}',
        ))  # fmt: skip
        self.assertNotEmpty(one)
        self.assertEqual(one, two)

    @parameterized.parameters(
        (embedding, 'Embedder', distill, '--task=embed', f'--teacher={MODEL}',
         f'--corpus=lines:{DATA}/words.txt', '--steps=1',
         f'--heldout={DATA}/heldout.txt'),
        (mine, 'check_judge', mine, f'--rescore={MODEL}',
         f'--data_dir={DATA}/beir'),
    )  # fmt: skip
    def test_a_teacher_and_a_judge(self, where, name, module, *flags):
        folder = self.stopped(where, name, module, [
            f'--init={MODEL}', f'--workdir={self.folder / "new"}', *flags,
        ])  # fmt: skip
        self.assertEqual(folder, str(WORKDIR))

    def test_convert(self):
        with eagerly(), contextlib.redirect_stdout(io.StringIO()):
            convert.run(source=MODEL, workdir=str(self.folder / 'made'))
        self.assertEqual(
            (self.folder / 'made' / WEIGHTS).read_bytes(),
            (WORKDIR / WEIGHTS).read_bytes(),
        )
        source = Config.read(self.folder / 'made').run['source']
        self.assertEqual(source, hub.commit_of(hub.folder_of(MODEL)))

    def test_load_and_from_preset(self):
        with eagerly():
            expected = infoword_tf.load(WORKDIR).encode(WORDS, progress=False)
            actual = infoword_tf.load(MODEL).encode(WORDS, progress=False)
            layer = keras_models.TextEncoder.from_preset(MODEL)
            tokens = keras_models.Tokenizer.from_preset(MODEL)([*WORDS])
            np.testing.assert_allclose(layer([*WORDS]), expected, atol=1e-6)
        np.testing.assert_array_equal(actual, expected)
        self.assertLen(tokens['token_ids'], len(WORDS))
