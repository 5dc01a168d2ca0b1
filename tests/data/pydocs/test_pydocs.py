import collections
import contextlib
import io
import json
import time
from unittest import mock

from infoword_tf.data import pydocs
from infoword_tf.data.pydocs import packages
from tests.data import texts


class PrepareTest(texts.Temporary):
    def prepare(self, root, *more):
        """Prepares one package, without the standard library."""
        with (
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.redirect_stdout(io.StringIO()) as printed,
            mock.patch.object(
                packages.sysconfig, 'get_path', return_value='/nowhere'
            ),
        ):
            folder = pydocs.prepare(root, ['absl-py', *more])
        return folder, printed.getvalue()

    def test_build_and_open(self):
        began = time.monotonic()
        folder, built = self.prepare(self.folder / 'a' / 'b')
        most = time.monotonic() - began
        again, opened = self.prepare(self.folder / 'a' / 'b')
        other, _ = self.prepare(self.folder / 'c')
        self.assertEqual(folder, again)
        self.assertEqual(built.splitlines()[-1], opened.strip())
        self.assertStartsWith(opened, 'pydocs: ')
        self.assertEqual(folder.name, other.name)
        for name in ('train.jsonl', 'heldout.jsonl'):
            self.assertEqual(
                (folder / name).read_bytes(), (other / name).read_bytes()
            )
        # No temporary folder stays behind.
        self.assertEqual(list(folder.parent.iterdir()), [folder])
        figures = json.loads((folder / 'figures.json').read_text())
        train = list(pydocs.read(folder / 'train.jsonl'))
        heldout = list(pydocs.read(folder / 'heldout.jsonl'))
        self.assertLen(train, figures['train'])
        self.assertLen(heldout, figures['heldout'])
        self.assertEqual(
            figures['documents'],
            len(train) + len(heldout) + figures['dropped'],
        )
        self.assertBetween(figures['seconds'], 0, most)
        self.assertGreater(len(train), 100)
        self.assertEqual({d.source.split('/')[0] for d in train}, {'absl'})
        for document in train:
            self.assertGreaterEqual(len(document.text.split()), 8)
            self.assertEqual(document.text, ' '.join(document.text.split()))

    def test_a_failed_build_leaves_nothing(self):
        with mock.patch.object(
            pydocs, '_write', side_effect=OSError('disk full')
        ):
            with self.assertRaisesRegex(OSError, 'disk full'):
                self.prepare(self.folder)
        self.assertEmpty(list(self.folder.iterdir()))

    def test_another_process_was_first(self):
        root = self.folder
        write = pydocs._write

        def overtaken(path, corpus):
            write(path, corpus)
            folder = root / path.parent.parent.name.rsplit('.', 1)[0]
            folder.mkdir(exist_ok=True)
            (folder / 'figures.json').write_text(json.dumps(FIGURES))

        with mock.patch.object(pydocs, '_write', overtaken):
            folder, printed = self.prepare(root)
        self.assertIn('12,345 documents', printed)
        self.assertEqual(list(root.iterdir()), [folder])

    def test_a_package_that_is_not_installed(self):
        folder, built = self.prepare(self.folder, 'nothing-of-the-name')
        self.assertIn(
            'pydocs: without nothing-of-the-name: not installed\n', built
        )
        again, opened = self.prepare(self.folder)
        self.assertEqual(folder, again)
        self.assertNotIn('not installed', opened)

    def test_the_name_is_of_the_environment(self):
        Distribution = collections.namedtuple('Distribution', 'version files')

        def name(version):
            actual = {'absl-py': Distribution(version, [])}
            with mock.patch.object(packages, 'installed', return_value=actual):
                return self.prepare(self.folder)[0].name

        one, two = name('1'), name('2')
        with mock.patch.object(pydocs, 'EXTRACTION', -1):
            three = name('1')
        self.assertLen({one, two, three}, 3)
        self.assertRegex(one, '^pydocs-[0-9a-f]{32}$')


FIGURES = dict.fromkeys(
    'words megabytes train candidates dropped heldout files skipped_files '
    'seconds'.split(),
    0,
) | {'documents': 12345}
