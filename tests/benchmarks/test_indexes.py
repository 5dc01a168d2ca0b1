"""The table of kinds of vectors: what is found, and in how many bytes."""

import json
import pathlib

from absl.testing import absltest

from benchmarks import indexes
from export.index import Index
from tests import places
from tests.tasks import command, counting


class IndexesTest(command.Checks, absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(places.make())
        self.given = f'--workdir={self.folder}/indexes', '--turns=1'

    def test_random_passages(self):
        done = command.run(
            indexes, *self.given, '--passages=1000', '--width=256',
            '--queries=4', '--words',
        )  # fmt: skip
        self.assertEqual(done.status, 0, done.err)
        head, names, *lines = done.out.splitlines()
        self.assertEqual(head, '1,000 passages, 256 numbers')
        self.assertEqual(
            names.split(),
            'found MB MB read peak MB with words queries/s x float32'.split(),
        )
        self.assertEqual(
            [line.split()[:4] for line in lines[:3]],
            [['float32', '1.0000', '1.02', '1.02'],
             ['int8', '1.0000', '0.26', '0.26'],
             ['binary', '1.0000', '0.29', '0.03']],
        )  # fmt: skip
        row = done.result['binary']
        self.assertGreater(row['with words'], row['peak MB'])
        # A query is as near as is said to the passage that it looks for.
        given = indexes.Choices(passages=1000, width=256, queries=4)
        numbers, queries = indexes.random_queries(given)
        index = Index.open(self.folder / 'indexes' / 'float32')
        cosines = (index.vectors(numbers) * queries).sum(axis=1)
        self.assertTrue(((0.3 < cosines) & (cosines < 0.85)).all(), cosines)

    def test_a_beir_folder(self):
        texts = ['boats on a river', 'cats in a tree', 'dogs', 'dogs']
        data = self.folder / 'data'
        (data / 'qrels').mkdir(parents=True)
        for name, some in (('corpus', texts), ('queries', texts[:2])):
            (data / f'{name}.jsonl').write_text(''.join(
                json.dumps({'_id': f'{name[0]}{n}', 'text': text}) + '\n'
                for n, text in enumerate(some)
            ))  # fmt: skip
        (data / 'qrels' / 'test.tsv').write_text('q0\tc0\t1\nq1\tc3\t1\n')
        model = self.folder / 'model' / '1'
        counting.save(model, 'cosine')
        given = f'--model={model}', f'--data_dir={data}'
        done = command.run(indexes, *self.given, *given)
        self.assertEqual(done.status, 0, done.err)
        # The one finds its document first, the other finds its own third:
        # after two that share words, the last of equal ones.
        for name, row in done.result.items():
            self.assertEqual(row['nDCG@10'], 0.75, name)
        for arguments, message in (
            ((), 'give --model and --data_dir, or --passages alone'),
            ((*given, '--passages=3'), 'or --passages alone'),
            ((given[1],), 'give --model and --data_dir'),
            ((*given, '--words'), '--words is for --passages'),
        ):
            done = command.run(indexes, *self.given, *arguments)
            self.assert_complains(done, message)


if __name__ == '__main__':
    absltest.main()
