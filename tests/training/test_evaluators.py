"""--best=sts:FILE and --best=retrieval:DIR: measures, and the best weights."""

import dataclasses
import json
import pathlib
import types
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized
from scipy import sparse

import infoword_tf
from infoword_tf import checkpoint, commands
from infoword_tf.choices import RunChoices
from infoword_tf.config import Config
from infoword_tf.data.documents import split_sentences
from infoword_tf.evaluation import judgements, stages
from infoword_tf.evaluation import retrieval as evaluation
from infoword_tf.evaluation.retrieval import DEPTH
from infoword_tf.training import begin, distribution
from infoword_tf.training.evaluators import Evaluator
from tasks import retrieval, sts
from tests import places, runs, zoo
from tests.refused import refused
from tests.runs import records, run_here
from tests.tasks import command

STS, RETRIEVAL = 'sts/spearman', 'retrieval/ndcg@10'


def setUpModule():
    """Pairs of sentences with scores, and documents with queries."""
    global FOLDER, PAIRS, BEIR
    runs.set_up()
    FOLDER = places.make()
    text = pathlib.Path(runs.TEXT['heldout']).read_text()
    texts = [split_sentences(line) for line in text.split('\n')]
    texts = [actual for actual in texts if len(actual) > 1][:40]
    scores = np.random.default_rng(0).integers(0, 50, len(texts)) / 10
    PAIRS = write_pairs(
        FOLDER, [(x, *y[:2]) for x, y in zip(scores, texts, strict=True)]
    )
    BEIR = write_search(
        FOLDER / 'beir',
        {f'q{i}': texts[0] for i, texts in enumerate(texts)},
        {f'c{i}': texts[1] for i, texts in enumerate(texts)},
        test=[(f'q{i}', f'c{i}') for i in range(30)],
        dev=[(f'q{i}', f'c{i}') for i in range(30, 40)],
    )


def write_pairs(folder, rows):
    """A file of pairs: (score, text, text) each."""
    path = folder / 'pairs.tsv'
    lines = [('score', 'sentence1', 'sentence2'), *rows]
    path.write_text(''.join('\t'.join(map(str, x)) + '\n' for x in lines))
    return path


def write_search(folder, queries, corpus, **relevant):
    """A folder of BEIR: texts by id; by split, what (query, text) match."""
    (folder / 'qrels').mkdir(parents=True)
    for name, texts in ('queries', queries), ('corpus', corpus):
        lines = [json.dumps({'_id': i, 'text': x}) for i, x in texts.items()]
        (folder / f'{name}.jsonl').write_text('\n'.join(lines))
    for split, matches in relevant.items():
        lines = [f'{query}\t{text}\t1\n' for query, text in matches]
        (folder / 'qrels' / f'{split}.tsv').write_text(''.join(lines))
    return folder


def spearman(workdir):
    """Returns the number that tasks.sts prints."""
    done = command.run(
        sts, f'--init={workdir}', f'--data={PAIRS}', f'--workdir={FOLDER}/sts'
    )
    return done.result['spearman']


def ndcg(workdir, split='test'):
    """Returns the number that tasks.retrieval prints."""
    with mock.patch.object(stages, 'by_words', lambda task, _: (
        np.full((len(task.queries), DEPTH + 1), -np.inf, np.float32),
        np.full((len(task.queries), DEPTH + 1), -1, np.int64),
    )):  # fmt: skip
        done = command.run(
            retrieval, f'--init={workdir}', f'--data_dir={BEIR}',
            f'--split={split}', f'--workdir={FOLDER}/retrieval',
        )  # fmt: skip
    return done.result['model']['ndcg@10']


def train(workdir, *more, **ways):
    """Runs with an evaluation at each step; returns the output."""
    return run_here(
        workdir, '--steps=4', '--eval_every=1', '--objectives=skip_gram',
        '--learning_rate=0.01', *more, **ways,
    )  # fmt: skip


class BestTest(parameterized.TestCase):
    def check(self, workdir, name):
        """Checks that the weights are the best ones; returns their value."""
        lines = [r for r in records(workdir) if name in r]
        values = [line[name] for line in lines]
        self.assertGreater(len(set(values)), 1)
        best = lines[int(np.argmax(values))]
        self.assertEqual(checkpoint.weights_step(workdir), best['step'])
        metrics = json.loads((workdir / 'metrics.json').read_text())
        self.assertEqual(metrics[name], best[name])
        self.assertEqual(metrics['step'], best['step'])
        return best[name]

    def test_it_is_what_tasks_sts_prints_of_a_table(self):
        """Cuts texts too: 8 tokens are fewer than most have."""
        workdir = places.make() / 'run'
        shown = train(
            workdir, f'--best=sts:{PAIRS}', '--seq_len=8', '--steps=3'
        )
        best = self.check(workdir, STS)
        self.assertEqual(round(best, 2), spearman(workdir))
        self.assertTrue(infoword_tf.load(workdir).vectors.is_table)
        self.assertRegex(shown, 'sts/spearman is measured every 1 .*are trunc')
        self.assertIn(f'| spearman {best:.4f}\n', shown)
        self.assertIn(f'\nsts/spearman: {best:.4f}\n', shown)
        config = Config.read(workdir)
        self.assertStartsWith(config.run['best'], f'sts:{PAIRS} (files ')
        events = list((workdir / 'tensorboard').rglob('events*'))
        self.assertIn(STS.encode(), events[0].read_bytes())

    def test_it_is_what_tasks_retrieval_prints(self):
        """With prompts, a dense layer, and another similarity."""
        folder = places.make()
        run_here(
            folder / 'first', '--steps=1', '--objectives=simcse',
            '--simcse.head=kept',
        )  # fmt: skip
        config = Config.read(folder / 'first')
        self.assertLen(config.dense, 1)
        dataclasses.replace(
            config,
            prompts={'query': 'what is ', 'passage': 'a function that '},
            similarity='dot',
        ).write(folder / 'first')
        workdir, init = folder / 'run', f'--init={folder}/first'
        train(
            workdir, f'--best=retrieval:{BEIR}', init, '--objectives=simcse',
            '--simcse.head=kept', '--learning_rate=0.03', '--steps=3',
        )  # fmt: skip
        best = self.check(workdir, RETRIEVAL)
        self.assertEqual(best, ndcg(workdir))
        loaded = infoword_tf.load(workdir)
        self.assertLen(loaded.config.prompts, 2)
        # Without what stands before texts it is another number.
        plain = loaded.with_config(loaded.config.replace(prompts={}))
        judged = judgements.read(f'retrieval:{BEIR}')
        self.assertNotEqual(Evaluator(judged, plain)()[RETRIEVAL], best)
        # Of another split; and it follows the weights.
        judged = judgements.read(f'retrieval:{BEIR}/qrels/dev.tsv')
        evaluator = Evaluator(judged, loaded)
        actual = evaluator()[RETRIEVAL]
        self.assertEqual(actual, ndcg(workdir, 'dev'))
        for variable in loaded.model.variables.values():
            variable.assign(0 * variable)
        with mock.patch.object(loaded.tokenizer, 'tokenize', None):
            self.assertNotEqual(evaluator()[RETRIEVAL], actual)

    def test_two_replicas(self):
        """In graphs: what the replicas have in common is measured."""
        workdir = places.make() / 'run'
        with mock.patch.object(
            distribution, 'make_strategy', return_value=zoo.strategy(2)
        ):
            train(
                workdir, f'--best=sts:{PAIRS}', '--strategy=mirrored',
                '--steps=2', eagerly=False,
            )  # fmt: skip
        self.assertEqual(round(self.check(workdir, STS), 2), spearman(workdir))


class Spelled:
    """Vectors that texts spell out, as '1 0'."""

    def __init__(self, similarity='cosine', critic='cosine'):
        self.by_critic = {'late': self, 'lexical': self}
        self.config = types.SimpleNamespace(
            similarity=similarity, prompt_for=lambda role: None, critic=critic,
            critics={'late': {'dense': []}},
        )

    def tokenize(self, texts, prompt=None):
        return types.SimpleNamespace(
            vectors=np.float32([text.split() for text in texts]), cut=0
        )

    def encode_tokenized(self, tokenized, batch_size=None, role=None):
        if role is None:
            return tokenized.vectors
        if self.config.critic == 'lexical':
            return sparse.csr_array(tokenized.vectors)
        # A token has two numbers.
        return [text.reshape(-1, 2) for text in tokenized.vectors]


def measured(spec, *of_vectors, **more):
    """Measures of an evaluator, of known vectors."""
    return Evaluator(judgements.read(spec), Spelled(*of_vectors, **more))()


class MeasureTest(places.Folder, parameterized.TestCase):
    """Measures of known vectors, against numbers computed by hand."""

    @parameterized.parameters(('cosine', 50.0), ('dot', 100.0))
    def test_similarity(self, similarity, value):
        """Cosines .6, 1 and 0 rank 2, 3, 1; products 6, 1, 0 rank 3, 2, 1."""
        path = write_pairs(
            self.folder,
            [(5, '6 8', '1 0'), (3, '1 0', '1 0'), (1, '0 1', '1 0')],
        )
        actual = measured(f'sts:{path}', similarity)
        self.assertEqual(list(actual), [STS])
        self.assertAlmostEqual(actual[STS], value)

    def test_ten_documents_beside_its_own(self):
        """The query's document is no result: what is relevant is the tenth."""
        write_search(
            self.folder, {'d00': '20 0'},
            {f'd{i:02d}': f'{20 - i} {i}' for i in range(13)},
            test=[('d00', 'd10')],
        )  # fmt: skip
        actual = measured(f'retrieval:{self.folder}')
        self.assertAlmostEqual(actual[RETRIEVAL], 1 / np.log2(11), 5)

    @parameterized.parameters(('cosine', 'b'), ('late', 'c'), ('lexical', 'a'))
    def test_by_its_critic(self, critic, best):
        """The query's tokens are (1, 0) and (0, 1).

        Cosines are .5 (a), .93 (b) and .38 (c), products 3, 1.22 and 1.9, sums
        of the largest products of tokens 3 + 0, .61 + .61 and 3.1 + 1.
        """
        folder = write_search(
            self.folder, {'q': '1 0 0 1'},
            {'a': '3 0 3 0', 'b': '.61 .35 0 .61', 'c': '.9 1 3.1 1'},
            test=[('q', best)],
        )  # fmt: skip
        actual = measured(f'retrieval:{folder}', critic=critic)
        self.assertEqual(actual[RETRIEVAL], 1)
        pairs = write_pairs(folder, [(5, 1, 1), (3, 1, 0), (1, 0, 1)])
        others = [(f'sts:{pairs}', critic)] * (critic != 'cosine')
        for spec, other in *others, (f'retrieval:{folder}', 'cross'):
            with refused('judgement_of_other_critic', spec, other):
                measured(spec, critic=other)
        if critic == 'late':
            with mock.patch.object(evaluation, 'EXACT', 2), refused(
                'judgement_of_too_many', 'has 3 documents'
            ):
                measured(f'retrieval:{folder}', critic=critic)

    def test_translations_both_ways(self):
        """The mean of both: three of three, and two of three."""
        for pair, foreign, english in (
            ('deu', '1 0,1 .1,1 .2', '1 0,1 .11,1 .14'),
            ('fra', '1 0,0 1', '1 0,0 1'),
        ):  # fmt: skip
            for code, texts in (pair, foreign), ('eng', english):
                path = self.folder / f'tatoeba.{pair}-eng.{code}'
                path.write_text(texts.replace(',', '\n') + '\n')
        actual = measured(f'tatoeba:{self.folder}')
        # Into English all find theirs; back .14 finds .1, and not .2.
        expected = {'deu': 250 / 3, 'fra': 100, 'accuracy': 275 / 3}
        self.assertEqual(set(actual), {f'tatoeba/{x}' for x in expected})
        for name, value in expected.items():
            self.assertAlmostEqual(actual[f'tatoeba/{name}'], value)


class ChoiceTest(absltest.TestCase):
    def test_no_judgements(self):
        for best in (None, True, False):
            self.assertIsNone(begin.read_judgements(RunChoices(best=best)))

    def test_how_it_is_typed(self):
        """Alone as ever, or with what is measured."""
        for typed, best in (
            ([], None), (['--best'], True), (['--best=true'], True),
            (['--nobest'], False), (['--best=sts:a,b.tsv'], 'sts:a,b.tsv'),
        ):  # fmt: skip
            actual = commands.parse(RunChoices, typed)
            self.assertEqual(actual.get('best'), best)
            again = commands.typed(actual)
            self.assertEqual(commands.parse(RunChoices, again), actual)

    def test_none_of_what_is_given_several_times(self):
        """Nothing is said so, since it is not what is the default."""
        for values, typed in (
            ((), ['--corpus=']), ('a', ['--corpus=a']),
            (('a', 'b'), ['--corpus=a', '--corpus=b']),
        ):  # fmt: skip
            self.assertEqual(commands.typed({'corpus': values}), typed)
        self.assertEqual(commands.parse(RunChoices, ['--corpus=']),
                         {'corpus': []})  # fmt: skip
