"""Texts out of help packages that are made here."""

import pathlib
import shutil
import subprocess
import sys
import unittest

from absl.testing import absltest

from tests.test_house import ROOT

CONTROL = """Package: {name}
Version: 1
Architecture: all
Maintainer: none <none@example.com>
Description: help
"""
PAGE = """<html><body><h1 id="h1">{}</h1>
<p id="p1">{}</p><p>without a number</p><p id="p2">{}</p></body></html>"""
TEXTS = {
    'en-US': ('Tables', 'Insert a  new\n<b>table</b> here.', 'See the menu.'),
    'de': ('Tabellen', 'Hier eine neue Tabelle.', 'See the menu.'),
    'en-GB': ('Tables', 'Insert a new table here.', 'See the menu.'),
}


@unittest.skipUnless(shutil.which('dpkg-deb'), 'packages are made by dpkg-deb')
class HelpTextsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.packages = self.folder / 'packages'
        self.packages.mkdir()

    def package(self, language):
        name = f'libreoffice-help-{language.lower()}'
        tree = self.folder / name
        text = tree / f'usr/share/libreoffice/help/{language}/text/swriter'
        text.mkdir(parents=True)
        (text / 'a.html').write_text(PAGE.format(*TEXTS[language]))
        (tree / 'DEBIAN').mkdir()
        control = tree / 'DEBIAN' / 'control'
        control.write_text(CONTROL.format(name=name))
        subprocess.run(
            ['dpkg-deb', '--build', tree, self.packages / f'{name}.deb'],
            check=True, capture_output=True,
        )  # fmt: skip

    def ran(self):
        return subprocess.run(
            [
                sys.executable, '-m', 'benchmarks.helptexts',
                f'--packages={self.packages}', f'--output={self.folder}',
            ],
            cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip

    def test_texts(self):
        self.package('en-US')
        self.package('de')
        done = self.ran()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('de: 1 pages, 47 characters, 1 translations', done.stdout)
        # What is left in English is no translation, nor is a title of a word.
        for name, text in {
            'de.txt': 'Tabellen\nHier eine neue Tabelle.\nSee the menu.\n\n',
            'de-en.de': 'Hier eine neue Tabelle.\n',
            'de-en.en': 'Insert a new table here.\n',
        }.items():
            found = (self.folder / name).read_text()
            self.assertEqual(found.strip(), text.strip())

    def test_complaints(self):
        self.package('en-US')
        self.assertIn('English is needed, en-us, and', self.ran().stderr)
        self.package('en-GB')
        self.assertIn(
            'has en-GB and en-US, which are both called en', self.ran().stderr
        )
        (self.packages / 'libreoffice-help-de.deb').write_text('half of it')
        self.assertIn('libreoffice-help-de.deb cannot be opened (',
                      self.ran().stderr)  # fmt: skip


if __name__ == '__main__':
    absltest.main()
