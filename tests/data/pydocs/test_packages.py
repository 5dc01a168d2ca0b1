import importlib.metadata
from unittest import mock

from absl.testing import absltest

from infoword_tf.data.pydocs import packages


class FilesTest(absltest.TestCase):
    def test_stdlib(self):
        names = [file.name for file in packages.stdlib_files()]
        self.assertIn('python/argparse.py', names)
        self.assertIn('python/json/decoder.py', names)
        self.assertEqual(names, sorted(names))
        for name in names:
            self.assertNotRegex(name, '/tests?/|site-packages|idle_test')

    def test_closure_of_a_package(self):
        # absltest comes from absl-py, which requires nothing.
        closure = packages.dependency_closure(
            ['absl_py>=0.1', 'nothing-of-the-name', 'numpy; extra == "x"']
        )
        self.assertEqual(list(closure), ['absl-py'])
        found = packages.distribution_files(closure['absl-py'])
        names = [f.name for f in found]
        self.assertIn('absl/flags/_flag.py', names)
        for file in names:
            self.assertNotRegex(file, '/tests?/')

    def test_not_installed(self):
        error = importlib.metadata.PackageNotFoundError
        with mock.patch.object(
            importlib.metadata, 'requires', side_effect=error
        ):
            with self.assertRaisesRegex(RuntimeError, 'pip install -e'):
                packages.dependency_closure()


if __name__ == '__main__':
    absltest.main()
