"""What both sides of benchmarks/words.py read."""

import gzip
import pathlib

from absl.testing import absltest

from benchmarks import kept, words


class PrepareTest(absltest.TestCase):
    def test_words_are_runs_of_letters(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        path = folder / 'novel.txt.gz'
        lines = ["A cat's cat."] * 6 + ['', 'Dog 7']
        lines += ['dog'] * words.PARAGRAPHS
        path.write_bytes(gzip.compress('\n'.join(lines).encode()))
        size = words.prepare(path, folder)
        text = (folder / 'text.txt').read_text().split('\n')
        self.assertEqual(text[:8], ['a cat s cat'] * 6 + ['', 'dog'])
        heldout = (folder / 'heldout.txt').read_text().splitlines()
        self.assertEqual(heldout, text[: words.PARAGRAPHS])
        # a, cat, s, dog: all five times or more; and the specials.
        self.assertEqual(size, 4 + len(words.SPECIALS))

    def test_a_process_that_fails_says_why(self):
        log = pathlib.Path(self.create_tempdir().full_path) / 'log'
        with self.assertRaisesRegex(RuntimeError, 'log: no such thing'):
            kept.call(
                log, 'python3', '-c', "raise SystemExit('no such thing')"
            )


if __name__ == '__main__':
    absltest.main()
