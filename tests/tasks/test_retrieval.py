"""The command on tiny folders, with a stand-in for a trained model."""

import collections
import dataclasses
import json
import math
import pathlib
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from scipy import sparse

import infoword_tf
from infoword_tf import files
from infoword_tf.config import DenseConfig
from infoword_tf.critics.late import LateConfig
from infoword_tf.critics.texts import Tokens
from infoword_tf.evaluation import models, ranking, stages, trec
from infoword_tf.evaluation import retrieval as evaluation
from infoword_tf.evaluation.retrieval import corpus_task
from tasks import retrieval
from tests import places
from tests.corpus import file_of
from tests.refused import refused
from tests.tasks import command, counting
from tests.tasks.counting import BUCKETS, PASSAGES, embed

DOCUMENTS = [
    {'_id': 'a', 'title': 'Apples', 'text': 'grow on trees'},
    {'_id': 'b', 'title': 'Boats', 'text': 'float on rivers'},
    {'_id': 'c', 'title': '', 'text': 'cats sleep all day'},
    {'_id': 'q3', 'title': None, 'text': 'where do boats float'},
    {'_id': 'e', 'text': 'Élan vital'},
]
QUERIES = [
    {'_id': 'q1', 'text': 'apple growing'},
    {'_id': 'q2', 'text': 'unheard', 'metadata': {}},
    {'_id': 'q3', 'text': 'where do boats float'},
    {'_id': 'q4', 'text': 'never judged'},
]
JUDGEMENTS = (
    'query-id\tcorpus-id\tscore\r\n'
    'q1\ta\t2\r\nq2\tc\t1\r\nq3\tb\t1\r\n'
)
LATE = LateConfig((DenseConfig(BUCKETS, 'linear'),))
SEARCHED = set(retrieval.LABELS) - {
    'run', 'tuned', 'first_stage', 'reranked', 'reranked_hybrid'
}  # fmt: skip


def write_folder(
    folder, documents=DOCUMENTS, queries=QUERIES, judged=JUDGEMENTS,
    packed=False,
):  # fmt: skip
    folder = pathlib.Path(folder)
    (folder / 'qrels').mkdir(parents=True, exist_ok=True)
    for name, records, pack in (
        ('corpus', documents, '.gz'), ('queries', queries, '.zst')
    ):  # fmt: skip
        end = 'jsonl' + pack * packed
        (folder / f'{name}.{end}').write_bytes(file_of(end, records))
    (folder / 'qrels' / 'test.tsv').write_bytes(judged.encode())
    return folder


class CriticStandIn:
    """Stand-in for a critic of a loaded model."""

    width = BUCKETS

    def __init__(self, critic):
        self.critic = critic

    def encode(self, texts, role, batch_size, progress, dims=None):
        del role, batch_size, progress
        if self.critic == 'lexical':
            return sparse.csr_array(embed(tf.constant(texts)).numpy())
        words = [
            embed(tf.constant(text.split(), tf.string)).numpy()
            for text in texts
        ]
        return [x.reshape(-1, BUCKETS)[:, :dims] for x in words]


class RetrievalStandIn:
    """Parts of a loaded model that the command uses."""

    def __init__(self, seed=None, similarity='cosine', critic='cosine'):
        self.config = counting.config(
            similarity, run={'seed': 7}, critic=critic, late=LATE
        )
        self.late, self.lexical = map(CriticStandIn, ('late', 'lexical'))
        self.by_critic = {'late': self.late, 'lexical': self.lexical}
        random = np.random.default_rng(seed or 0)
        self.seeds = []
        self.weight = 1 if seed is None else random.standard_normal(BUCKETS)
        self.encoder = mock.Mock(
            embedding_table=random.standard_normal((BUCKETS, 5))
        )
        self.tokenizer = mock.Mock(
            file='vocab.txt', tokenize=lambda texts: tf.cast(
                counting.hashes(tf.strings.split(texts)), tf.int32
            ),
        )  # fmt: skip

    def encode(
        self, texts, batch_size=32, progress=True, prompt=None, dims=None
    ):
        assert not progress
        vectors = embed(tf.constant(texts)).numpy()
        return np.float32(vectors * self.weight)[:, :dims]

    def score_pairs(self, queries, passages, batch_size):
        assert batch_size == 32
        return np.float32([*map(len, passages)]) + 0 * len(queries)

    def vector_width(self):
        return BUCKETS

    def untrained(self, seed):
        self.seeds.append(seed)
        return RetrievalStandIn(
            seed, self.config.similarity, self.config.critic
        )


def attempt(*choices, model=None):
    """The command with a stand-in for the workdir."""
    model = model or RetrievalStandIn()
    with mock.patch.object(infoword_tf, 'load', lambda *_: model):
        return command.run(retrieval, *choices)


def run(*choices, model=None):
    """Returns (record, printed, model)."""
    model = model or RetrievalStandIn()
    done = attempt(*choices, model=model)
    assert done.status == 0, done.err
    return done.result, done.out, model


class Case(places.Folder, command.Checks, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.data = write_folder(self.folder / 'tiny')
        self.out = self.folder / 'out'

    def typed(self, *more):
        return f'--data_dir={self.data}', f'--workdir={self.out}', *more

    def append(self, name, text):
        with open(self.data / name, 'a') as file:
            file.write(text)


class RetrievalCommandTest(Case):
    def test_a_folder_gives_a_table_and_json(self):
        record, printed, model = run(*self.typed('--init=any'))
        self.assertEqual(record['task'], 'tiny (test)')
        self.assertEqual((record['queries'], record['documents']), (3, 5))
        self.assertIn('3 queries, 5 documents', printed)
        self.assertEqual(model.seeds, [7])
        for row in SEARCHED:
            self.assertCountEqual(record[row], ranking.MEASURES)
            self.assertIn(retrieval.LABELS[row], printed)
        # q1 shares a stem with a, q2 no word with any; q3 finds b, for its own
        # copy is no result.
        self.assertEqual(record['bm25']['ndcg@10'], 0.66667)
        self.assertEqual(record['bm25']['recall@100'], 0.66667)
        # All cosines of q2 are 0: ties, by id from the last on, q3 e c b a.
        self.assertEqual(record['model']['recall@10'], 1)

    def test_judged_documents_that_are_not_there(self):
        """They count as not found, also where a query has no other.

        q1 finds a (grade 2) first, and of grades 2, 3 and 1 two are of
        documents that are not there: nDCG is 2 / (3 + 2 / log2 3 + 1 / 2),
        recall and MAP a third, the reciprocal rank 1. q4 finds nothing. Of q3,
        which finds b, a document that is judged irrelevant is not there.
        """
        judged = 'q1\tx\t3\nq1\ty\t1\nq4\tx\t1\nq3\tx\t0\n'
        self.append('qrels/test.tsv', judged)
        task = retrieval.beir_task(self.data)
        self.assertEqual(task.absent, 4)
        self.assertEqual(task.size, 5)
        record, printed, _ = run(*self.typed('--init=any'))
        self.assertIn(
            '4 queries, 5 documents\n4 judgements name documents that are '
            'missing: they count as not found\n',
            printed,
        )
        self.assertEqual(record['absent_judgements'], 4)
        ideal = 3 + 2 / math.log2(3) + 1 / 2
        third = (1 / 3 + 0 + 1 + 0) / 4
        expected = {
            'ndcg@10': (2 / ideal + 0 + 1 + 0) / 4, 'recall@10': third,
            'recall@100': third, 'map': third, 'mrr@10': (1 + 0 + 1 + 0) / 4,
        }  # fmt: skip
        self.assertEqual(
            record['bm25'], {name: round(x, 5) for name, x in expected.items()}
        )

    def test_queries_of_another_language(self):
        """Other texts of the same ids; not all that nobody judged."""
        path = self.folder / 'others.jsonl'
        texts = {'q3': 'boats', 'q1': 'trees', 'q2': 'cats', 'q9': 'boats'}
        path.write_text(''.join(
            json.dumps({'_id': name, 'text': text}) + '\n'
            for name, text in texts.items()
        ))  # fmt: skip
        english = retrieval.beir_task(self.data)
        task = retrieval.beir_task(self.data, 'test', path)
        self.assertEqual(task.queries, ['trees', 'cats', 'boats'])
        for field in ('relevance', 'same_id', 'query_ids', 'fingerprint'):
            self.assertEqual(getattr(task, field), getattr(english, field))
        record = self._run('--init=any', f'--queries={path}')
        self.assertEqual(record['task'], f'tiny (test, queries of {path})')
        self.assertEqual(record['bm25']['ndcg@10'], 1)

    def test_tuned_on_another_split(self):
        """--tune adds a row; other rows, of the measured queries, stay."""
        before = self._run('--init=any')
        results = (self.out / 'run.trec').read_bytes()
        # q1 is measured, and hence does not choose.
        judged = 'q4\te\t1\nq4\tlost\t1\nq1\tb\t1\n'
        (self.data / 'qrels' / 'dev.tsv').write_text(judged)
        with mock.patch.object(
            retrieval, 'tune', return_value=(0.3, {0.3: 0.5})
        ) as tune:
            record, printed, _ = run(*self.typed('--init=any', '--tune=dev'))
        task, *last = tune.call_args.args
        self.assertEqual(task.query_ids, ['q4'])
        self.assertEqual([len(x) for scored in last for x in scored], [1] * 4)
        self.assertEqual((self.out / 'run.trec').read_bytes(), results)
        self.assertLessEqual({
            **before, 'tune': 'dev', 'tune_queries': 1, 'hybrid_share': 0.3,
            'tune_ndcg@10': {'0.3': 0.5},
        }.items(), record.items())  # fmt: skip
        self.assertIn('--hybrid_share=0.3\n', printed)
        self.assertIn(retrieval.LABELS['tuned'], printed)
        with mock.patch.object(ranking, 'SHARE', 0.3):
            again = self._run('--init=any', '--tune=dev')
        self.assertLen(again['tune_ndcg@10'], 11)

    def test_tuned_on_some_of_the_queries(self):
        task = retrieval.beir_task(self.data)
        record = self._run('--init=any', '--tune=2')
        self.assertEqual((record['queries'], record['tune_queries']), (1, 2))
        lines = (self.out / 'run.trec').read_text().splitlines()
        self.assertEqual({line.split()[0] for line in lines}, {'q3'})
        self.assertEqual(record['bm25']['ndcg@10'], 1)
        self.assertEqual(len(task.queries), 3)

    def test_packed_files_and_the_seed(self):
        packed = write_folder(self.folder / 'packed' / 'tiny', packed=True)
        records = []
        for data in (self.data, packed):
            record, _, model = run(
                *self.typed('--init=any', f'--data_dir={data}', '--seed=3')
            )
            self.assertEqual(model.seeds, [3])
            records.append(record)
        self.assertEqual(*records)

    def test_an_exported_model_gives_the_same(self):
        path = self.folder / 'exported' / '1'
        counting.save(path)
        self._refused(f'--model={path}', 'assets.extra/config')
        counting.write_config(path, 'cosine')
        self._refused(f'--model={path.parent}', 'numbered folder')
        alone = self._run(f'--model={path}', '--batch_size=2')
        beside = self._run(f'--model={path}', '--init=any')
        self.assertEqual(set(alone) & SEARCHED, {'model', 'bm25', 'hybrid'})
        loaded = self._run('--init=any')
        self.assertEqual(alone['model'], loaded['model'])
        self.assertEqual(beside, loaded | {'weights': str(path)})

    def _run(self, *more, **kwargs):
        return run(*self.typed(*more), **kwargs)[0]

    def _refused(self, choices, message):
        self.assert_refused(attempt(*self.typed(choices)), None, message)

    def test_the_baselines_are_compared_alike(self):
        """Untrained vectors as the model's, sums of embeddings by angle.

        An export is compared as its config says, too.
        """
        for similarity in ('cosine', 'dot'):
            model = RetrievalStandIn(similarity=similarity)
            path = self.folder / similarity / '1'
            counting.save(path, similarity)
            with (
                mock.patch.object(stages, 'by_vectors') as by_vectors,
                mock.patch.object(retrieval, 'table', return_value=''),
            ):
                by_vectors.return_value = (
                    np.zeros((3, 1)), np.zeros((3, 1), np.int64)
                )
                self._run('--init=any', model=model)
                self._run(f'--model={path}')
            *calls, exported = by_vectors.mock_calls
            self.assertEqual(exported.kwargs['similarity'], similarity)
            self.assertEqual({
                call.kwargs['label']: call.kwargs['similarity']
                for call in calls
            }, {
                retrieval.LABELS['model']: similarity,
                retrieval.LABELS['untrained']: similarity,
                retrieval.LABELS['untrained_embeddings']: 'cosine',
                retrieval.LABELS['embeddings']: 'cosine',
            })  # fmt: skip

    @mock.patch.object(evaluation, 'BLOCK', 2)
    def test_documents_of_one_text(self):
        """Encoded once wherever they stand, found together, the larger id
        first; an encoder that is never twice the same would part them.
        """
        for name in ('zz', 'aa', 'yy'):
            row = {'_id': name, 'title': 'Boats', 'text': 'float on rivers'}
            self.append('corpus.jsonl', json.dumps(row) + '\n')
        task = evaluation.beir_task(self.data)
        self.assertEqual((task.size, task.distinct), (8, 5))
        random, read = np.random.default_rng(0), []

        def encode(texts, role):
            read.extend(texts)
            vectors = embed(tf.constant(texts)).numpy()
            return vectors + random.normal(0, 1e-3, vectors.shape)

        scores, numbers = stages.by_vectors(task, encode, 'cosine', '')
        self.assertLen(read, 3 + 5)
        ids = [task.document_ids[n] for n in numbers[2, :5]]
        self.assertEqual(ids, ['q3', 'zz', 'yy', 'b', 'aa'])
        self.assertLen(set(scores[2, 1:5]), 1)
        self.assertEqual(sorted(numbers[2, :8]), [*range(8)])
        # What another stage has chosen, although its text stands elsewhere.
        zz = task.document_ids.index('zz')
        _, numbers = stages.by_vectors(
            task, encode, 'cosine', '', chosen=np.array([[zz]] * 3)
        )
        self.assertEqual(numbers.tolist(), [[zz]] * 3)

    def encoded(self, *choices, most=99):
        """The command, and how many texts of which role it encodes; of
        passages so many before somebody stops it.
        """
        counts, exported = collections.Counter(), models.exported

        def counting_calls(*choices, **more):
            encode, similarity = exported(*choices, **more)

            def counted(texts, role):
                counts[role] += len(texts)
                if role == 'passage' and counts[role] > most:
                    raise KeyboardInterrupt
                return encode(texts, role)

            return counted, similarity

        with mock.patch.object(models, 'exported', counting_calls):
            return attempt(*self.typed(*choices)), dict(counts)

    @mock.patch.object(evaluation, 'BLOCK', 2)
    def test_vectors_that_stay(self):
        """Goes on where it stopped, to the same results, to the bit."""
        path = self.folder / 'exported' / '1'
        counting.save(path, 'dot')
        model = f'--model={path}'
        whole, counts = self.encoded(model)
        self.assertEqual(counts, {'query': 3, 'passage': 5})
        actual = (self.out / 'run.trec').read_bytes()
        with_vectors = model, f'--vectors={self.folder}/kept'
        stopped, counts = self.encoded(*with_vectors, most=4)
        self.assertEqual(stopped.status, 130)
        (self.out / 'run.trec').unlink()
        for passages in (1, 0):  # of 5; then all are there
            done, counts = self.encoded(*with_vectors)
            self.assertEqual(counts.get('passage', 0), passages)
            self.assertEqual(done.result, whole.result)
            self.assertEqual((self.out / 'run.trec').read_bytes(), actual)
        # Other queries ask the same vectors ...
        (self.data / 'qrels' / 'dev.tsv').write_text('q4\tb\t1\n')
        done, counts = self.encoded(*with_vectors, '--split=dev')
        self.assertEqual(counts, {'query': 1})
        # ... other models and other documents have their own.
        (path / 'note').write_text('another')
        done, counts = self.encoded(*with_vectors)
        self.assertEqual(counts['passage'], 5)
        new = {'_id': 'z', 'text': 'a new one'}
        self.append('corpus.jsonl', json.dumps(new))
        done, counts = self.encoded(*with_vectors)
        self.assertEqual(counts['passage'], 6)
        self.assertLen(list((self.folder / 'kept').glob('model-*.npy')), 3)
        with files.locked(self.folder / 'kept'):
            done, counts = self.encoded(*with_vectors)
        self.assert_refused(done, None, 'another run is writing to it')
        self.assertEqual(counts, {})

    def test_heldout_documents_of_a_corpus(self):
        text = self.folder / 'text.txt'
        heldout = self.folder / 'heldout.txt'
        text.write_text('Some words to train on. And others.\n')
        heldout.write_text(
            'Apples are red. Red apples grow here. They are good.\n\n'
            'One sentence alone.\n\n'
            'Boats are slow. Slow boats float.\n\n'
            'Ships sink. Slow boats float.\n\n'
        )
        record, _, _ = run(
            '--init=any', f'--corpus=text:{text}', f'--heldout={heldout}',
            f'--workdir={self.out}',
        )  # fmt: skip
        self.assertEqual((record['queries'], record['documents']), (3, 3))
        lines = (self.out / 'run.trec').read_text().splitlines()
        self.assertLen(lines, 9)
        self.assertEqual(
            {tuple(line.split()[:3]) for line in lines},
            {(q, 'Q0', d) for q in '012' for d in '012'},
        )
        # Two bodies are the same text: either is right for both queries.
        task = corpus_task(f'text:{text}', str(heldout))
        self.assertEqual(task.relevance, [{0: 1}, {1: 1, 2: 1}, {1: 1, 2: 1}])
        apples = 'Red apples grow here. They are good.'
        boats = 'Slow boats float.'
        self.assertEqual(
            [*task.documents()], [(0, apples), (1, boats), (2, boats)]
        )
        # `Ships sink.` shares no word with any body.
        self.assertEqual(record['bm25']['mrr@10'], 0.66667)
        # Vectors that are kept belong to documents: others are another task.
        heldout.write_text(f'{heldout.read_text()}Trees grow. Slowly.\n')
        other = corpus_task(f'text:{text}', str(heldout))
        self.assertNotEqual(other.fingerprint, task.fingerprint)

    def test_words_that_nobody_has(self):
        task = retrieval.RetrievalTask(
            't', 2, lambda: iter([(0, '!'), (1, '')]), ['?'], [{0: 1}], [-1],
            ['q'], ['a', 'b'],
        )  # fmt: skip
        zero = dict.fromkeys(ranking.MEASURES, 0.0)
        actual = stages.by_words(task)
        self.assertEqual(retrieval.measure(task, actual), zero)

    def test_the_sum_of_embeddings(self):
        model = RetrievalStandIn()
        mean = models.mean_of_embeddings(model)
        vectors = mean(['one two one', '', 'two'])
        one, two = mean(['one', 'two'])
        np.testing.assert_allclose(vectors[0], 2 * one + two, rtol=1e-5)
        self.assertEqual(np.abs(vectors[1]).max(), 0)

    def test_half_characters(self):
        records = [{'_id': 'a', 'text': 'half \ud800 character'}]
        (self.data / 'corpus.jsonl').write_text(json.dumps(records[0]))
        (self.data / 'qrels' / 'test.tsv').write_text('q1\ta\t1\n')
        task = retrieval.beir_task(self.data)
        self.assertEqual(list(task.documents()), [(0, 'half ? character')])
        self.assertEqual(task.relevance, [{0: 1}])  # without a header, too


class CriticTest(places.Folder, command.Checks, parameterized.TestCase):
    """Five passages whose order each critic sees in another way."""

    def setUp(self):
        super().setUp()
        self.data = write_folder(
            self.folder / 'five', [{'_id': i, 'text': x}
                                   for i, x in PASSAGES.items()],
            [{'_id': 'q', 'text': counting.QUERY}], 'q\tc\t1\n',
        )  # fmt: skip
        for name in ('late', 'lexical', 'cross'):
            (self.folder / name).mkdir()
            (self.folder / name / 'config.json').write_text(
                json.dumps(counting.config('cosine').to_json())
            )
            for file in 'weights.safetensors', 'vocab.txt':
                (self.folder / name / file).write_text(name)

    def attempt(self, *choices):
        def load(path, dtype='float32'):
            return RetrievalStandIn(critic=pathlib.Path(path).name)

        with mock.patch.object(infoword_tf, 'load', load):
            return command.run(
                retrieval, f'--data_dir={self.data}',
                f'--workdir={self.folder}/out',
                *(x.replace('$', f'{self.folder}/') for x in choices),
            )  # fmt: skip

    @parameterized.parameters(
        ('late', 'abcde', 'model', '--init=$late'),
        ('lexical', 'abcde', 'model', '--init=$lexical'),
        ('late', 'abcde', 'model', '--init=$lexical', '--critic=late'),
        ('late', 'abcde', 'model', '--init=$late', '--vectors=$kept'),
        ('lexical', 'abcde', 'model', '--init=$lexical', '--vectors=$kept'),
        ('late', 'abcde', 'model', '--model=$1', '--critic=late'),
        ('lexical', 'abcde', 'model', '--model=$1', '--critic=lexical',
         '--batch_size=2'),
        # Only a, b and c have a word of the query.
        ('late', 'abc', 'model', '--init=$late', '--first=bm25'),
        ('cross', 'abc', 'model', '--init=$cross', '--first=bm25'),
        ('cross', 'abc', 'model', '--model=$1', '--critic=cross',
         '--first=bm25'),
        ('late', 'ac', 'model', '--init=$late', '--first=$lexical',
         '--rerank_top=2'),
        ('cross', 'ac', 'reranked', '--init=$lexical', '--rerank=$cross',
         '--rerank_top=2'),
        ('lexical', 'ac', 'reranked', '--init=$late', '--rerank=$lexical',
         '--rerank_top=2', '--vectors=$kept'),
        # --dims is of the model alone.
        ('late', 'ac', 'model', '--init=$late', '--first=$lexical',
         '--rerank_top=2', '--dims=64'),
        ('lexical', 'ac', 'reranked', '--init=$late', '--rerank=$lexical',
         '--rerank_top=2', '--dims=63'),
    )  # fmt: skip
    def test_results(self, critic, names, row, *choices):
        """With --vectors made, and then read. What is timed changes none."""
        if '--model=$1' in choices:
            counting.save_critics(self.folder / '1')
            counting.write_config(self.folder / '1', 'cosine', late=LATE)
        scores = dict(zip(PASSAGES, counting.SCORES[critic], strict=True))
        expected, results = {name: scores[name] for name in names}, []
        for more in [], ['--costs']:
            done = command.succeeded(self.attempt(*choices, *more))
            lines = (self.folder / 'out' / 'run.trec').read_text().splitlines()
            self.assertEqual(
                {x.split()[2]: float(x.split()[4]) for x in lines}, expected
            )
            costs = done.result.pop('costs', {})
            results.append(done.result)
        self.assertEqual(*results)
        for name in 'critic', 'first', 'rerank', 'rerank_top':
            typed = [x.partition('=')[2] for x in choices
                     if x.startswith(f'--{name}=')]  # fmt: skip
            self.assertEqual(
                [str(done.result[name])] if name in done.result else [],
                [x.replace('$', f'{self.folder}/') for x in typed],
            )
        rank = 1 + sum(score > scores['c'] for score in expected.values())
        self.assertEqual(done.result[row]['mrr@10'], 1 / rank)
        for name in (row, 'bm25'):
            self.assertGreater(costs[name]['ms_per_query'], 0)
        if len(names) == 5:
            # 8 tokens of 64 numbers, or 5 weights of 4 bytes, with their ids.
            size = {'late': 8 * 4 * BUCKETS, 'lexical': 5 * 8}[critic] / 5
            self.assertEqual(costs[row]['bytes_per_passage'], round(size))

    @parameterized.parameters(
        ('cross_without_candidates', '--init=$cross'),
        ('cross_without_candidates', '--init=$late', '--first=$cross'),
        ('dims_without_vectors', '--init=$lexical', '--dims=3'),
        ('dims_over_width', '--init=$late', '--dims=99'),
        ('dims_without_vectors', '--init=$cross', '--first=bm25', '--dims=3'),
        ('export_without_embed', '--init=$late', '--rerank=$1'),
    )
    def test_refused(self, error, *choices):
        if '--rerank=$1' in choices:
            counting.save(self.folder / '1')
            counting.write_config(self.folder / '1', 'dot', critic='cross')
        done = self.attempt(*choices)
        last = choices[-1].replace('$', f'{self.folder}/')
        values = [last.partition('=')[0] if '=' in last else last]
        if error in ('cross_without_candidates', 'export_without_embed'):
            values = []
        self.assert_refused(done, error, *values)

    def test_vectors_that_stay_are_of_all_that_makes_them(self):
        """Encodes 5 passages by the model, as many by the untrained encoder."""
        folder, encode, counts = self.folder / 'late', CriticStandIn.encode, []

        def counted(critic, texts, role, **settings):
            counts.extend(texts if role == 'passage' else ())
            return encode(critic, texts, role, **settings)

        for expected, file, *choices in (
            (10, None), (0, None), (5, None, '--seed=3'), (0, None, '--seed=3'),
            (10, None, '--precision=mixed_bfloat16'),
            (10, None, '--batch_size=16'), (10, None, '--dims=3'),
            (10, None, '--critic=lexical'), (0, 'note.txt'),
            (10, 'vocab.txt'), (10, 'weights.safetensors'),
            (10, 'config.json'),
        ):  # fmt: skip
            if file is not None:
                with open(folder / file, 'a') as changed:
                    changed.write(' ')
            counts.clear()
            with mock.patch.object(CriticStandIn, 'encode', counted):
                command.succeeded(self.attempt(
                    '--init=$late', '--vectors=$kept', *choices
                ))  # fmt: skip
            self.assertLen(counts, expected, (file, choices))

    def test_the_untrained_encoder_compares_what_the_model_does(self):
        """BM25 does not find d; means of embeddings are of all documents."""
        (self.data / 'qrels' / 'test.tsv').write_text('q\td\t1\n')
        recall = {}
        for choices in ('--init=$late', '--first=bm25'), ('--init=$late',):
            for name, measures in self.attempt(*choices).result.items():
                if name in SEARCHED:
                    recall.setdefault(name, []).append(measures['recall@100'])
        self.assertEqual(recall['model'], [0, 1])
        self.assertEqual(recall['untrained'], [0, 1])
        self.assertEqual(recall['embeddings'], [1, 1])

    def test_means_are_of_queries(self):
        """Vectors of two words have half their length, as those of an export.
        """
        path = self.folder / 'mean' / '1'
        counting.save_critics(path)
        late = dataclasses.replace(LATE, mean=True)
        counting.write_config(path, 'cosine', late=late)
        encode, _ = models.exported(path, 2, critic='late')
        for role, length in ('query', 0.5), ('passage', 1):
            vectors = encode(['red boat'], role).vectors
            self.assertEqual(
                np.linalg.norm(vectors, axis=1).tolist(), [length] * 2
            )

    def test_a_reranker_is_looked_at_first(self):
        with mock.patch.object(
            CriticStandIn, 'encode', side_effect=AssertionError
        ):
            done = self.attempt('--init=$late', '--rerank=$five')
        self.assert_refused(done, None, 'five')

    def test_first_numbers_of_an_export(self):
        """Its vectors are cut, and of length 1 where the config says so."""
        path, texts = self.folder / 'model' / '1', [*PASSAGES.values()]
        counting.save(path)
        counting.write_config(path, 'dot', normalize=True)
        few, _ = models.exported(path, 2, 50)
        query, *others = embed(tf.constant(texts)).numpy()
        np.testing.assert_allclose(
            models.exported_scores(path, 2)(texts[0], texts[1:]),
            np.array(others) @ query, rtol=1e-5,
        )  # fmt: skip
        vectors = embed(tf.constant(texts)).numpy()[:, :50]
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        expected = vectors / np.maximum(norms, 1e-12)  # one has no word
        np.testing.assert_allclose(few(texts, None), expected, rtol=1e-6)
        with refused('dims_over_width', '--dims=65', '64'):
            models.exported(path, 2, 65)
        models.exported(path, 2, 64)

    def test_first_numbers_of_tokens(self):
        """They have the length that all numbers had: 1, or a query's share."""
        vectors = np.array([[3, 4, 12], [0, 1, 0], [3, 0, 4]])
        vectors = vectors / [[13], [2], [5]]
        tokens = Tokens(np.float32(vectors), np.array([2, 1]))
        actual = models.first_numbers(tokens, 2, False)
        lengths = np.linalg.norm(vectors, axis=1)
        expected = np.array([[0.6, 0.8], [0, 1], [1, 0]]) * lengths[:, None]
        np.testing.assert_allclose(actual.vectors, expected, rtol=1e-6)


class RunFileTest(Case):
    """Files of trec_eval's format; ids of the folder are a b c e q3."""

    def setUp(self):
        super().setUp()
        self.path = self.folder / 'given.trec'

    def measured(self, path=None):
        measured = f'--workdir={self.folder}/measured'
        return run(*self.typed(f'--run={path or self.path}', measured))[:2]

    def test_what_the_model_found(self):
        """It has the model's measures, and is as trec_eval wants it."""
        # Another document of q1's vector: a tie, which ids decide.
        for name in 'zd':
            row = {'_id': name, 'text': 'apple growing'}
            self.append('corpus.jsonl', json.dumps(row) + '\n')
        record, _, _ = run(*self.typed('--init=any'))
        path = self.out / 'run.trec'
        rows = [line.split() for line in path.read_text().splitlines()]
        self.assertEqual(
            [row[0] for row in rows], 7 * ['q1'] + 7 * ['q2'] + 6 * ['q3']
        )
        self.assertEqual({(row[1], row[5]) for row in rows}, {('Q0', trec.TAG)})
        self.assertEqual([row[2] for row in rows[:2]], ['z', 'd'])
        self.assertNotIn(['q3', 'q3'], [[row[0], row[2]] for row in rows])
        for query in ('q1', 'q2', 'q3'):
            lines = [row for row in rows if row[0] == query]
            self.assertEqual(
                [int(row[3]) for row in lines], list(range(1, len(lines) + 1))
            )
            order = sorted(
                lines, key=lambda row: (float(row[4]), row[2]), reverse=True
            )
            self.assertEqual(lines, order)
        again, printed = self.measured(path)
        self.assertEqual(again['run'], record['model'])
        self.assertEqual(again['run_file'], str(path))
        for name in ('unjudged_queries', 'queries_without_results',
                     'unknown_documents'):  # fmt: skip
            self.assertEqual(again[name], 0)
        self.assertNotIn('bm25', again)
        self.assertIn('this file', printed)
        # Neither the order of lines nor their ranks count.
        self.path.write_text(''.join(
            '\t'.join([*row[:3], '1', *row[4:]]) + '\r\n'
            for row in reversed(rows)
        ))  # fmt: skip
        self.assertEqual(self.measured()[0]['run'], record['model'])

    def test_written_out(self):
        """q1 finds a third, q2 nothing, q3 b second.

        x and y are not there, and x is judged: of q1 the ideal is x, then a
        (grades 3 and 2), it finds y e a. Of q3 x of the same score comes
        before b, for its id is larger, and q3 itself is no result; scores are
        float32, where 1 + 1e-9 is 1.
        """
        self.append('qrels/test.tsv', 'q1\tx\t3\n')
        self.path.write_text(
            'q4 Q0 a 1 3 t\n\n'
            'q1 Q0 a 1 -2 t\nq1 Q0 y 2 5e-1 t\nq1 Q0 e 3 0 t\n'
            'q3 Q0 b 1 1.000000001 t\nq3 Q0 x 1 1 t\nq3 Q0 q3 1 9 t\n'
        )
        actual, printed = self.measured()
        log = math.log2
        sums = {
            'ndcg@10': 2 / log(4) / (3 + 2 / log(3)) + 1 / log(3),
            'recall@100': 1 / 2 + 1, 'recall@10': 1 / 2 + 1,
            'map': 1 / 3 / 2 + 1 / 2, 'mrr@10': 1 / 3 + 1 / 2,
        }  # fmt: skip
        self.assertEqual(
            actual['run'], {name: round(x / 3, 5) for name, x in sums.items()}
        )
        self.assertIn('1 queries of the file are not judged', printed)
        self.assertIn('1 queries have no result in the file', printed)
        self.assertIn('1 documents of the file are not of the corpus', printed)
        self.assertNotIn('judgements name', printed)

    def test_what_was_found_and_is_judged_counts(self):
        """Also where the folder lacks it, as in trec_eval."""
        self.append('qrels/test.tsv', 'q2\tx\t1\n')
        self.path.write_text('q2 Q0 x 1 1 t\nq2 Q0 c 2 0 t\n')
        actual, _ = self.measured()
        self.assertEqual(actual['run']['ndcg@10'], 0.33333)
        self.assertEqual(actual['unknown_documents'], 0)
        self.assertEqual(actual['queries_without_results'], 2)

    def test_at_most_depth(self):
        with mock.patch.object(evaluation, 'DEPTH', 2):
            record, _, _ = run(*self.typed('--init=any'))
            path = self.out / 'run.trec'
            self.assertLen(path.read_text().splitlines(), 6)
            self.assertEqual(self.measured(path)[0]['run'], record['model'])
            self.path.write_text(
                'q1 Q0 a 1 1 t\nq1 Q0 b 2 2 t\nq1 Q0 c 3 3 t\n'
            )
            self.assertEqual(self.measured()[0]['run']['map'], 0)

    def test_an_id_that_the_format_cannot_hold(self):
        """All is measured; the file of another run does not stay."""
        self.out.mkdir()
        (self.out / 'run.trec').write_text('old')
        row = {'_id': 'two words', 'text': ''}
        self.append('corpus.jsonl', json.dumps(row) + '\n')
        record, printed, _ = run(*self.typed('--init=any'))
        self.assertEqual(record['documents'], 6)
        self.assertIn("not written: the id 'two words' is empty", printed)
        self.assertFalse((self.out / 'run.trec').exists())


class FolderTest(places.Folder, parameterized.TestCase):
    @parameterized.parameters(
        '\ufeff' + JUDGEMENTS.partition('\n')[2],
        '\ufeff' + JUDGEMENTS,
        '\ufeff\n' + JUDGEMENTS.replace('\r\n', ' \r\n\r\n'),
        JUDGEMENTS.replace('\t', ';'),
        JUDGEMENTS.replace('\t', ', '),
    )
    def test_judgements_as_people_have_them(self, text):
        """A byte order mark, blank lines, other characters between cells."""
        path = write_folder(self.folder) / 'qrels' / 'test.tsv'
        expected = retrieval.beir_task(self.folder)
        path.write_bytes(text.encode())
        actual = retrieval.beir_task(self.folder)
        self.assertEqual(actual.query_ids, expected.query_ids)
        self.assertEqual(actual.relevance, expected.relevance)

    def test_a_cut_gz(self):
        path = write_folder(self.folder, packed=True) / 'corpus.jsonl.gz'
        data = path.read_bytes()
        for broken in (data[:-12], b'no gz'):
            path.write_bytes(broken)
            with self.assertRaisesRegex(ValueError, 'is not a whole gzip file'):
                retrieval.beir_task(self.folder)
