import contextlib
import io

from infoword_tf.data.pydocs import extraction, packages
from tests import runs
from tests.data import texts

SOURCE = '''
"""This is the docstring of a module, and it is long enough."""

if True:
    class Outer:
        """Outer is the class that all of these functions are in."""

        def method(self):
            """The method has a docstring that is long enough."""

            def inner():
                "A function inside a function may have a docstring too."

        def short(self):
            """Too short."""

        async def copied(self):
            """The method  has a Docstring that is
            long enough."""

try:
    from elsewhere import g
except ImportError:
    def g():
        """This is defined where something else cannot be imported."""
'''

EXPECTED = [
    'p/a.py',
    'p/a.py:Outer',
    'p/a.py:Outer.method',
    'p/a.py:Outer.method.inner',
    'p/a.py:g',
]


class ExtractTest(texts.Temporary):
    def files(self, **contents):
        return [
            packages.SourceFile(str(self.write(f'{n}.py', c)), f'p/{n}.py')
            for n, c in contents.items()
        ]

    def extract(self, files):
        with contextlib.redirect_stderr(io.StringIO()):
            return extraction.extract(files)

    def test_names_order_and_duplicates(self):
        actual, skipped = self.extract(self.files(a=SOURCE, b=SOURCE))
        self.assertEqual([d.source for d in actual], EXPECTED)
        self.assertEqual(skipped, 0)
        self.assertEqual(
            actual[2].sentences,
            ('The method has a docstring that is long enough.',),
        )

    def test_files_that_do_not_parse_are_counted(self):
        latin = '"""Ein Café is the place where all of us are."""'
        files = self.files(
            syntax='def f(:\n',
            latin=latin.encode('latin1'),
            declared=f'# coding: latin1\n{latin}'.encode('latin1'),
            bom=b'\xef\xbb\xbf' + latin.replace('all', 'none').encode(),
            null=b'"""A null byte is not allowed in any source."""\0',
            empty='',
        )
        gone = str(self.folder / 'gone.py')
        files.append(packages.SourceFile(gone, 'p/gone.py'))
        actual, skipped = self.extract(files)
        self.assertEqual(
            [d.source for d in actual], ['p/declared.py', 'p/bom.py']
        )
        self.assertIn('Café', actual[0].text)
        self.assertEqual(skipped, 4)

    def test_extraction_does_not_import_tensorflow(self):
        code = (
            'import sys; from infoword_tf.data import corpora; '
            "assert not {'tensorflow', 'keras'} & set(sys.modules)"
        )
        self.assertEqual(runs.python('-c', code).returncode, 0)
