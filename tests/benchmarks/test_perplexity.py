"""The table of several results, and what it refuses."""

import json
import pathlib
import subprocess
import sys

from absl.testing import absltest

ROOT = pathlib.Path(__file__).parent.parent.parent


class PerplexityTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def write(self, name, weights, memory, value, **more):
        record = {
            'weights': f'runs/{weights}',
            'memory_length': memory,
            'pieces': 20,
            'words': 10,
            'characters': 60,
            'perplexity_per_word': value,
            **more,
        }
        path = self.folder / f'{name}.json'
        path.write_text(json.dumps(record))
        return path

    def run_here(self, *paths):
        return subprocess.run(
            [
                sys.executable, '-m', 'benchmarks.perplexity',
                f'--output={self.folder}/pictures/memory.png', *paths,
            ],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def test_table_and_picture(self):
        done = self.run_here(
            self.write('a', 'short', 64, 90.0),
            self.write('b', 'long', 64, 80.5),
            self.write('c', 'short', 0, 100.125),
            self.write('d', 'short', 256, 95.0),
            self.write('e', 'short', 256, 85.0, clamp=128),
        )
        self.assertEqual(
            done.stdout.splitlines(),
            [
                '| model | memory 0 | memory 64 | memory 256 |',
                '|---|---|---|---|',
                '| short | 100.12 | 90.00 | 95.00 |',
                '| long | - | 80.50 | - |',
                '| short, clamp 128 | - | - | 85.00 |',
            ],
            done.stderr,
        )
        picture = self.folder / 'pictures' / 'memory.png'
        self.assertEqual(picture.read_bytes()[:4], b'\x89PNG')

    def test_other_texts(self):
        done = self.run_here(
            self.write('a', 'short', 64, 90.0),
            self.write('b', 'long', 64, 80.5, words=11),
        )
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, 'b.json is of another text than .*a.json')


if __name__ == '__main__':
    absltest.main()
