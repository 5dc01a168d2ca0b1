"""The table of embedding students, with made-up models."""

import pathlib
from unittest import mock

from absl.testing import absltest

from benchmarks import students
from infoword_tf import files
from tasks import retrieval

QUALITY = {
    'STS-B test': 81.5, 'SciFact nDCG@10': 0.6451,
    'NFCorpus nDCG@10': 0.3163, 'pydocs MRR@10': 0.7, 'MB': 90.25,
}  # fmt: skip
LINES = [
    '| | STS-B test | SciFact nDCG@10 | NFCorpus nDCG@10 | pydocs MRR@10 '
    '| texts/s | x teacher | MB |',
    '|---|---|---|---|---|---|---|---|',
    '| teacher | 81.50 | 0.645 | 0.316 | 0.700 | 100 | 1.0 | 90.2 |',
    '| 3 layers | 81.50 | 0.645 | 0.316 | 0.700 | 200 | 2.0 | 90.2 |',
]


class Side:
    """A process that is none."""

    started: list[str] = []

    def __init__(self, kind, path, name=None):
        self.kind, self.path, self.name = kind, path, name or kind
        self.megabytes = 30.5
        self.started.append(self.name)

    def close(self):
        self.started.remove(self.name)


class StudentsTest(absltest.TestCase):
    def test_table(self):
        found = {
            'teacher': {**QUALITY, 'texts/s': 100.0},
            '3 layers': {**QUALITY, 'texts/s': 200.0},
        }
        self.assertEqual(students.table(found).split('\n'), LINES)
        path = pathlib.Path(self.create_tempdir().full_path) / 'p.png'
        students.draw(path, found)
        self.assertEqual(path.read_bytes()[:4], b'\x89PNG')

    def test_what_is_finished_is_kept(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        calls = []

        def run(module, log, *given):
            flags = dict(flag[2:].split('=') for flag in given)
            calls.append((module, log.stem))
            if module == 'export.savedmodel':
                made = pathlib.Path(flags['output']) / '1' / 'variables'
                made.mkdir(parents=True)
                (made / 'weights').write_bytes(bytes(10**6))
            else:
                self.assertEqual(flags['teacher'], 'runs/minilm')
                self.assertTrue(
                    pathlib.Path(flags['flagfile']).is_file(), flags
                )
                workdir = pathlib.Path(flags['workdir'])
                workdir.mkdir()
                files.write_json(workdir / 'metrics.json', {})

        def rates(sides):
            return {side.name: 10.0 for side in sides}

        quality = {k: v for k, v in QUALITY.items() if k != 'MB'}
        root = pathlib.Path(students.__file__).parent.parent
        for again in (False, True):
            with (
                mock.patch.object(
                    students, 'qualities', return_value=quality
                ) as asked,
                mock.patch.object(students, 'rates', side_effect=rates),
                mock.patch.object(students.peers, 'Side', Side),
                mock.patch.object(
                    retrieval, 'exported', return_value=(None, 'cosine')
                ),
            ):
                found = students.measured(
                    folder, 'runs/minilm', 'MiniLM', run,
                    root / 'tasks' / 'flags',
                )  # fmt: skip
            self.assertEqual(asked.call_count, 0 if again else 5)
            self.assertEmpty(Side.started)
        self.assertLen(calls, 3 + 4)
        self.assertEqual(
            list(found), ['teacher', *students.STUDENTS, 'model2vec']
        )
        self.assertEqual(
            found['lookup'], {**quality, 'MB': 1.0, 'texts/s': 10.0}
        )
        self.assertEqual(found['model2vec']['MB'], 30.5)


if __name__ == '__main__':
    absltest.main()
