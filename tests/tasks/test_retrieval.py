"""The command on tiny folders, with a stand-in for a trained model."""

import gzip
import json
import math
import pathlib
from unittest import mock

import numpy as np
import tensorflow as tf
from absl import flags
from absl.testing import absltest, parameterized

import infoword_tf
from tasks import ranking, retrieval
from tests.tasks import command, counting
from tests.tasks.counting import BUCKETS, embed

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

def write_folder(folder, packed=False):
    folder = pathlib.Path(folder)
    (folder / 'qrels').mkdir(parents=True, exist_ok=True)
    for name, records in (('corpus', DOCUMENTS), ('queries', QUERIES)):
        text = ''.join(json.dumps(r) + '\n' for r in records).encode()
        if packed:
            (folder / f'{name}.jsonl.gz').write_bytes(gzip.compress(text))
        else:
            (folder / f'{name}.jsonl').write_bytes(text)
    (folder / 'qrels' / 'test.tsv').write_bytes(JUDGEMENTS.encode())
    return folder


class StandIn:
    """What the command uses of a loaded model."""

    def __init__(self, seed=None, similarity='cosine'):
        self.config = counting.config(similarity, run={'seed': 7})
        random = np.random.default_rng(seed or 0)
        self.seeds, self.prompts = [], set()
        self.weight = 1 if seed is None else random.standard_normal(BUCKETS)
        self.encoder = mock.Mock(
            embedding_table=random.standard_normal((BUCKETS, 5))
        )
        self.tokenizer = mock.Mock(
            tokenize=lambda texts: tf.cast(
                tf.strings.to_hash_bucket_fast(
                    tf.strings.split(texts), BUCKETS
                ),
                tf.int32,
            )
        )

    def encode(self, texts, batch_size=32, progress=True, prompt=None):
        assert not progress
        self.prompts.add((prompt, len(texts)))
        vectors = embed(tf.constant(texts)).numpy()
        return np.float32(vectors * self.weight)

    def untrained(self, seed):
        self.seeds.append(seed)
        return StandIn(seed, self.config.similarity)


def attempt(*given, model=None):
    """The command with a stand-in for the workdir."""
    model = model or StandIn()
    with mock.patch.object(infoword_tf, 'load', lambda *_: model):
        return command.run(retrieval, *given)


def run(*given, model=None):
    """Returns (record, printed, model)."""
    model = model or StandIn()
    done = attempt(*given, model=model)
    assert done.status == 0, done.err
    return done.result, done.out, model


class CommandTest(command.Checks, absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.data = write_folder(self.folder / 'tiny')
        self.out = self.folder / 'out'

    def test_a_folder_gives_a_table_and_json(self):
        record, printed, model = run(
            '--init=any', f'--data_dir={self.data}', f'--workdir={self.out}'
        )
        last = printed.splitlines()[-1]
        self.assertEqual(json.loads(last), record)
        self.assertEqual(
            json.loads((self.out / 'metrics.json').read_text()), record
        )
        self.assertEqual(record['task'], 'tiny (test)')
        self.assertEqual((record['queries'], record['documents']), (3, 5))
        self.assertIn('3 queries, 5 documents', printed)
        self.assertEqual(model.seeds, [7])
        for row, label in retrieval.LABELS.items():
            self.assertCountEqual(record[row], ranking.MEASURES)
            self.assertIn(label, printed)
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
        with open(self.data / 'qrels' / 'test.tsv', 'a') as file:
            file.write('q1\tx\t3\nq1\ty\t1\nq4\tx\t1\nq3\tx\t0\n')
        task = retrieval.beir_task(self.data)
        self.assertEqual(task.absent, 4)
        self.assertEqual(task.size, 5)
        record, printed, _ = run(
            '--init=any', f'--data_dir={self.data}', f'--workdir={self.out}'
        )
        self.assertIn(
            '4 queries, 5 documents\n4 judgements name documents that are not '
            'there: they count as not found\n',
            printed,
        )
        self.assertEqual(record['absent_judgements'], 4)
        ideal = 3 + 2 / math.log2(3) + 1 / 2
        wanted = {
            'ndcg@10': (2 / ideal + 0 + 1 + 0) / 4,
            'recall@10': (1 / 3 + 0 + 1 + 0) / 4,
            'recall@100': (1 / 3 + 0 + 1 + 0) / 4,
            'map': (1 / 3 + 0 + 1 + 0) / 4,
            'mrr@10': (1 + 0 + 1 + 0) / 4,
        }
        self.assertEqual(
            record['bm25'], {name: round(x, 5) for name, x in wanted.items()}
        )

    def test_packed_files_and_the_seed(self):
        packed = write_folder(self.folder / 'packed' / 'tiny', packed=True)
        records = []
        for data in (self.data, packed):
            record, _, model = run(
                '--init=any',
                f'--data_dir={data}',
                f'--workdir={self.out}',
                '--seed=3',
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
        self.assertEqual(
            set(alone) & set(retrieval.LABELS), {'model', 'bm25', 'hybrid'}
        )
        self.assertContainsSubset(retrieval.LABELS, beside)
        loaded = self._run('--init=any')
        self.assertEqual(alone['model'], loaded['model'])
        self.assertEqual(beside, loaded | {'weights': str(path)})

    def _run(self, *more, **kwargs):
        return run(*self._given(), *more, **kwargs)[0]

    def _refused(self, given, message):
        self.assert_complains(attempt(*self._given(), given), message)

    def _given(self):
        return f'--data_dir={self.data}', f'--workdir={self.out}'

    def test_vectors_are_compared_as_the_config_says(self):
        """Of vectors that point elsewhere the longer wins by `dot` alone."""
        for name, texts in (
            ('corpus', {'a': 'boats', 'b': 'boats boats cats'}),
            ('queries', {'q': 'boats'}),
        ):
            (self.data / f'{name}.jsonl').write_text(
                '\n'.join(
                    json.dumps({'_id': i, 'text': text})
                    for i, text in texts.items()
                )
            )
        (self.data / 'qrels' / 'test.tsv').write_text('q\tb\t1\n')
        for similarity, found in (('cosine', 0.5), ('dot', 1.0)):
            path = self.folder / similarity / '1'
            counting.save(path, similarity)
            loaded = self._run(
                '--init=any', model=StandIn(similarity=similarity)
            )
            exported = self._run(f'--model={path}')
            for record in (loaded, exported):
                self.assertEqual(record['model']['mrr@10'], found)

    def test_the_baselines_are_compared_alike(self):
        """Untrained vectors as the model's, sums of embeddings by angle."""
        for similarity in ('cosine', 'dot'):
            model = StandIn(similarity=similarity)
            with (
                mock.patch.object(retrieval, 'by_vectors') as by_vectors,
                mock.patch.object(retrieval, 'table', return_value=''),
            ):
                by_vectors.return_value = (
                    np.zeros((3, 1)), np.zeros((3, 1), np.int64)
                )
                self._run('--init=any', model=model)
            found = {
                call.args[3]: call.args[2] for call in by_vectors.mock_calls
            }
            wanted = {
                'model': similarity,
                'untrained': similarity,
                'untrained_embeddings': 'cosine',
                'embeddings': 'cosine',
            }
            self.assertEqual(
                found, {retrieval.LABELS[k]: v for k, v in wanted.items()}
            )

    def test_blocks_change_nothing(self):
        whole = self._run('--init=any')
        with mock.patch.object(retrieval, 'BLOCK', 2):
            self.assertEqual(self._run('--init=any'), whole)

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
        record, printed, _ = run(
            '--init=any',
            f'--corpus=text:{text}',
            f'--heldout={heldout}',
            f'--workdir={self.out}',
        )
        self.assertEqual((record['queries'], record['documents']), (3, 3))
        # Two bodies are the same text: either is right for both queries.
        task = retrieval.corpus_task(f'text:{text}', str(heldout))
        self.assertEqual(task.relevance, [{0: 1}, {1: 1, 2: 1}, {1: 1, 2: 1}])
        self.assertEqual(
            list(task.documents()),
            [
                (0, 'Red apples grow here. They are good.'),
                (1, 'Slow boats float.'),
                (2, 'Slow boats float.'),
            ],
        )
        # `Ships sink.` shares no word with any body.
        self.assertEqual(record['bm25']['mrr@10'], 0.66667)

    def test_a_corpus_without_second_sentences(self):
        (self.folder / 'a.txt').write_text('Some text. More text.\n')
        (self.folder / 'b.txt').write_text('One sentence.\n')
        with self.assertRaisesRegex(ValueError, 'two sentences; give more'):
            retrieval.corpus_task(
                f'text:{self.folder}/a.txt', f'{self.folder}/b.txt'
            )

    def test_words_that_nobody_has(self):
        task = retrieval.RetrievalTask(
            't', 2, lambda: iter([(0, '!'), (1, '')]), ['?'], [{0: 1}], [-1]
        )
        zero = dict.fromkeys(ranking.MEASURES, 0.0)
        found = retrieval.by_words(task)
        self.assertEqual(retrieval.measure(task, found), zero)

    def test_the_sum_of_embeddings(self):
        model = StandIn()
        mean = retrieval.mean_of_embeddings(model)
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


class FolderTest(parameterized.TestCase):
    @parameterized.parameters(
        ('corpus.jsonl', 2, '{"_id": "b", "text"', 'line 2: no JSON'),
        ('corpus.jsonl', 2, '\xff', 'line 2 is not UTF-8'),
        ('corpus.jsonl', 3, '["c"]', 'line 3: expected a JSON object'),
        ('corpus.jsonl', 1, '{"_id": "a"}', 'line 1: text is missing'),
        ('corpus.jsonl', 1, '{"_id": 1, "text": ""}', 'line 1: _id is missing'),
        (
            'corpus.jsonl',
            1,
            '{"_id": "a", "text": "", "title": 1}',
            'line 1: title is missing, or is no string',
        ),
        (
            'corpus.jsonl',
            3,
            '{"_id": "a", "text": ""}',
            "line 3: _id 'a' is that of line 1 too",
        ),
        (
            'queries.jsonl',
            2,
            '{"_id": "q1", "text": ""}',
            "queries.jsonl, line 2: _id 'q1' is that of line 1",
        ),
        (
            'qrels/test.tsv',
            2,
            'q9\ta\t1',
            "test.tsv, line 2: no query has the _id 'q9'",
        ),
        ('qrels/test.tsv', 2, 'q1 a 1', 'line 2: expected query-id, corpus-id'),
        ('qrels/test.tsv', 2, 'q1\t0\ta\t1', 'line 2: expected query-id'),
        ('qrels/test.tsv', 2, 'q1\ta\tyes', 'line 2: expected query-id'),
        ('qrels/test.tsv', 3, 'q1\ta\t1', "line 3: 'a' has another grade"),
    )
    def test_a_malformed_line_is_named(self, name, line, text, message):
        folder = write_folder(self.create_tempdir().full_path)
        path = folder / name
        lines = path.read_bytes().splitlines()
        lines[line - 1] = text.encode('latin1')
        path.write_bytes(b'\n'.join(lines))
        with self.assertRaisesRegex(ValueError, message):
            retrieval.beir_task(folder)

    @parameterized.parameters(
        ('corpus.jsonl', 'is no BEIR folder: it has no corpus.jsonl'),
        ('queries.jsonl', 'it has no queries.jsonl'),
        ('qrels/test.tsv', 'has no qrels/test.tsv; it is where'),
    )
    def test_a_file_is_missing(self, name, message):
        folder = write_folder(self.create_tempdir().full_path)
        (folder / name).unlink()
        with self.assertRaisesRegex(FileNotFoundError, message):
            retrieval.beir_task(folder)

    def test_another_split(self):
        folder = write_folder(self.create_tempdir().full_path)
        with self.assertRaisesRegex(FileNotFoundError, '--split may be test'):
            retrieval.beir_task(folder, 'dev')

    @parameterized.parameters(
        ('corpus.jsonl', 'holds no document'),
        ('qrels/test.tsv', 'holds no judgement'),
    )
    def test_an_empty_file(self, name, message):
        folder = write_folder(self.create_tempdir().full_path)
        (folder / name).write_text('')
        with self.assertRaisesRegex(ValueError, message):
            retrieval.beir_task(folder)

    def test_judgements_of_another_data_set(self):
        folder = write_folder(self.create_tempdir().full_path)
        (folder / 'qrels' / 'test.tsv').write_text('q1\tx\t1\nq2\ty\t1\n')
        with self.assertRaisesRegex(ValueError, 'not of one data set'):
            retrieval.beir_task(folder)

    def test_a_cut_gz(self):
        folder = write_folder(self.create_tempdir().full_path, packed=True)
        path = folder / 'corpus.jsonl.gz'
        data = path.read_bytes()
        for broken in (data[:-12], b'no gz'):
            path.write_bytes(broken)
            with self.assertRaisesRegex(ValueError, 'gz is cut or damaged'):
                retrieval.beir_task(folder)


class FlagsTest(command.Checks, parameterized.TestCase):
    @parameterized.parameters(
        ('--init=a --corpus=pydocs', '--workdir is missing'),
        ('--workdir=a --corpus=pydocs', 'no model'),
        ('--workdir=a --init=b', 'either --corpus .* or --data_dir'),
        ('--workdir=a --init=b --corpus=c --data_dir=d', 'either --corpus'),
        (
            '--workdir=a --init=b --data_dir=d --heldout=c',
            '--heldout is for --corpus',
        ),
        (
            '--workdir=a --init=b --corpus=c --split=d',
            '--split is for --data_dir',
        ),
        (
            '--workdir=a --model=b --corpus=c --seed=1',
            '--seed is for --init',
        ),
        ('--workdir=a --init=b --corpus=wiki', 'one of pydocs, text'),
        ('--workdir=a --init=b --data_dir=/nowhere', 'is no BEIR folder'),
    )
    def test_one_sentence(self, given, message):
        self.assert_complains(attempt(*given.split()), message)

    def test_the_workdir_of_a_model_is_left_alone(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / 'config.json').write_text('{}')
        done = attempt('--init=a', '--corpus=pydocs', f'--workdir={folder}')
        self.assert_complains(done, 'name another')

    def test_what_is_no_flag(self):
        self.assert_complains(attempt('tiny'), "'tiny' is no flag")
        with self.assertRaisesRegex(flags.Error, 'Unknown command line flag'):
            attempt('--inti=a')


if __name__ == '__main__':
    absltest.main()
