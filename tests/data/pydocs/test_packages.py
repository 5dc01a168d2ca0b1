import pathlib
import re

from absl.testing import absltest

from infoword_tf.data.pydocs import packages

ROOT = pathlib.Path(__file__).parents[3]


class FilesTest(absltest.TestCase):
    def test_of_the_standard_library(self):
        names = [file.name for file in packages.source_files([])]
        self.assertIn('python/argparse.py', names)
        self.assertIn('python/json/decoder.py', names)
        self.assertEqual(names, sorted(names))
        for name in names:
            self.assertNotRegex(name, '/tests?/|site-packages|idle_test')

    def test_of_a_package(self):
        installed = packages.installed(['nothing-of-the-name', 'absl-py'])
        self.assertEqual(list(installed), ['absl-py'])
        of_python = packages.source_files([])
        files = packages.source_files(installed.values())
        self.assertEqual(files[: len(of_python)], of_python)
        names = [file.name for file in files[len(of_python) :]]
        self.assertIn('absl/flags/_flag.py', names)
        self.assertEqual(names, sorted(names))
        for name in names:
            self.assertNotRegex(name, '/tests?/')

    def test_every_package_has_an_exact_version(self):
        """Lets setup.py's change, and not the text of the list."""
        lines = (ROOT / 'constraints.txt').read_text().split()
        pinned = {
            re.sub('[-_.]+', '-', line.split('==')[0]).lower()
            for line in lines
        }
        self.assertContainsSubset(packages.PACKAGES, pinned)
        self.assertEqual(
            packages.PACKAGES, tuple(sorted(set(packages.PACKAGES)))
        )
