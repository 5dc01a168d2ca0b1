import collections
import contextlib
import gzip
import importlib.metadata
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf.data import corpora, documents, pydocs, textfiles

Document = documents.Document


def made(text, source='made'):
    return Document(tuple(documents.split_sentences(text)), source)


class Temporary(parameterized.TestCase):
    """Tests with a folder of their own."""

    def setUp(self):
        super().setUp()
        # Not absltest's: pytest does not parse the flag that it reads.
        temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.enterContext(temporary)).resolve()

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            content = content.encode()
        path.write_bytes(content)
        return path


class SplitSentencesTest(parameterized.TestCase):
    @parameterized.parameters(
        ('', []),
        (' \n\t ', []),
        ('One. Two.', ['One.', 'Two.']),
        ('No end', ['No end']),
        ('Is it? It is! Good.', ['Is it?', 'It is!', 'Good.']),
        ('He said "Go." Then he left.', ['He said "Go."', 'Then he left.']),
        ('It is so. (See there.) Yes.', ['It is so.', '(See there.)', 'Yes.']),
        ('Why? "Because," he said.', ['Why?', '"Because," he said.']),
        ('It has 3. 4 is more.', ['It has 3.', '4 is more.']),
        ('Pi is 3.14 or so.', ['Pi is 3.14 or so.']),
        ('Use os.Path here.', ['Use os.Path here.']),
        ('Pets, e.g. Cats, i.e. Felines.', None),
        ('Dogs, cats etc. Birds too.', None),
        ('Mr. Smith vs. Dr. Jones.', None),
        ('See No. 5 and Fig. 3.', None),
        ('Say no. It is enough.', ['Say no.', 'It is enough.']),
        ('By J. R. Tolkien and D. Knuth.', None),
        ('The U.S. Army came.', None),
        ('x, y, ... N more.', None),
        ('end. and lower case.', None),
        ('Él vino. Él se fue. él', ['Él vino.', 'Él se fue. él']),
    )
    def test_cases(self, text, expected):
        self.assertEqual(
            documents.split_sentences(text),
            [text] if expected is None else expected,
        )

    def test_white_space_becomes_single_spaces(self):
        text = 'One\ttwo \r\n three.\u00a0Four\u2003 five.\x0bSix\x1c.'
        self.assertEqual(
            documents.split_sentences(text),
            ['One two three.', 'Four five.', 'Six .'],
        )

    def test_hash_bucket_is_fixed(self):
        # Other numbers would move documents between the parts of a corpus.
        self.assertEqual(
            [documents.hash_bucket(t, 100) for t in ('', 'a', 'b', 'é')],
            [76, 43, 33, 43],
        )


NUMPY = """
    Compute the norm of ``x``.

    This function is able to return one of *eight* norms [1]_, depending
    on the value of the ``ord`` parameter. For example:

    Parameters
    ----------
    x : array_like
        Input array. It must not be empty, for that has no norm at all.

        A second paragraph of the description of x is no prose either.
    ord : {int, str}, optional
        Order of the norm.

    Returns
    -------
    n : float
        Norm of the matrix or vector that was given.

    See Also
    --------
    scipy.linalg.norm : Similar function in SciPy.

    Notes
    -----
    For values below 1 the result is **not** a mathematical norm.

    .. math:: \\sum_i x_i

    The sum was described by :func:`~scipy.linalg.norm` and `Golub
    <https://golub.org>`_ in their book.

    References
    ----------
    .. [1] G. H. Golub and C. F. Van Loan, *Matrix Computations*.

    Examples
    --------
    >>> norm(a)
    7.745966692414834
    The output goes on here.

    The second example is run along an axis.
    """

GOOGLE = """Creates a dataset from a list of files. It is lazy.

    The files are read in the order of their names, which is
    why the order never changes.

    Note:
      A file is opened when it is needed.

    ```python
    dataset = create(files)

    print("This is code. It must not be kept at all.")
    ```

    Args:
      files: A list of strings. Every one must be the path of a file.

        More about the files, still in the section of the arguments.
      size: The number of elements to read at a time, which is 8 by default.

    Returns:
      A `Dataset`. It has as many elements as there are lines.

    Raises:
      ValueError: If there is no file.

    Use `tf.data` and [the guide](https://example.com/a_b) to learn more."""

SPHINX = """
    Sends a :class:`~requests.Request` and returns its :class:`Response`

    :param url: the address to which the request of this session is sent.
        It goes on here.
    :type url: str
    :returns: the response of the server, never None.

    Usage::

        session.send("https://example.com")
        # A comment. It is not prose.

    The following is a warning.

    .. warning::
        Never send a password in this way. It would be read.

    :meth:`close` must be called when it is no longer needed.
    """

LISTS = """Choose a strategy for the run.

    - `one`: a single device, which is the default for all programs.
    - `many`: all devices.

    There are some things to know about it.

    * A device is never used by two programs at a time,
      because its memory is not shared.
    * Fast.

    term
        The definition of the term is left out.

    And then

        an indented block. It is a quotation or it is code.

    1. The first step is to read the files.
    2. The second step is to write them.

    +------+------+
    | This | is a table of words. |
    +------+------+

    ====  =====================
    name  what it is good for.
    ====  =====================

    Title
    ~~~~~
    a + b = c + d * (e - f) / {g: h} is not English.

    kwarg -- it is not kept.
    Das ist ein Satz, aber kein Englischer Satz.
    """


class ProseTest(parameterized.TestCase):
    maxDiff = None

    @parameterized.named_parameters(
        (
            'numpy',
            NUMPY,
            """\
            Compute the norm of x.
            This function is able to return one of eight norms, depending on the value of the ord parameter.
            For values below 1 the result is not a mathematical norm.
            The sum was described by norm and Golub in their book.
            The second example is run along an axis.""",  # noqa: E501
        ),
        (
            'google',
            GOOGLE,
            """\
            Creates a dataset from a list of files.
            It is lazy.
            The files are read in the order of their names, which is why the order never changes.
            A file is opened when it is needed.
            Use tf.data and the guide to learn more.""",  # noqa: E501
        ),
        (
            'sphinx',
            SPHINX,
            """\
            Sends a Request and returns its Response
            The following is a warning.
            close must be called when it is no longer needed.""",
        ),
        (
            'lists_and_tables',
            LISTS,
            """\
            Choose a strategy for the run.
            There are some things to know about it.
            A device is never used by two programs at a time, because its memory is not shared.
            The first step is to read the files.
            The second step is to write them.""",  # noqa: E501
        ),
    )
    def test_style(self, docstring, expected):
        self.assertEqual(
            pydocs.prose(docstring), textwrap.dedent(expected).split('\n')
        )

    @parameterized.parameters(
        ('', []),
        ('   \n  ', []),
        ('norm(x, y) -> float\n\nReturn the norm.', []),
        (
            'norm(x, y) -> float\n\nReturn the norm of all the values.',
            ['Return the norm of all the values.'],
        ),
        # A summary line that was broken by width, its rest indented.
        (
            'Return the sum of all\n        values here.\n\n    Not the mean'
            ' of any of them.',
            [
                'Return the sum of all values here.',
                'Not the mean of any of them.',
            ],
        ),
        # A fence that is never closed.
        ('Draw the line.\n\n```\nIt is code. It is.', ['Draw the line.']),
        # Parameters and stars that are not markup.
        (
            'Call it with *args and **kwargs of the caller.',
            ['Call it with *args and **kwargs of the caller.'],
        ),
        ('It is bad \ud800 to have halves.', []),
    )
    def test_case(self, docstring, expected):
        self.assertEqual(pydocs.prose(docstring), expected)


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


class ExtractTest(Temporary):
    def files(self, **contents):
        return [
            pydocs.File(str(self.write(f'{n}.py', c)), f'p/{n}.py')
            for n, c in contents.items()
        ]

    def extract(self, files, processes=1):
        with contextlib.redirect_stderr(io.StringIO()):
            return pydocs.extract(files, processes)

    def test_names_order_and_duplicates(self):
        found, skipped = self.extract(self.files(a=SOURCE, b=SOURCE))
        self.assertEqual([d.source for d in found], EXPECTED)
        self.assertEqual(skipped, 0)
        self.assertEqual(
            found[2].sentences,
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
        files.append(pydocs.File(str(self.folder / 'gone.py'), 'p/gone.py'))
        found, skipped = self.extract(files)
        self.assertEqual(
            [d.source for d in found], ['p/declared.py', 'p/bom.py']
        )
        self.assertIn('Café', found[0].text)
        self.assertEqual(skipped, 4)

    def test_processes_change_nothing(self):
        sources = {
            f'm{i:03}': SOURCE.replace('long enough', f'as long as {i} words')
            for i in range(120)
        }
        sources['broken'] = '('
        files = self.files(**sources)
        one = self.extract(files, 1)
        self.assertEqual(one, self.extract(files, 2))
        self.assertGreater(len(one[0]), 120)
        self.assertEqual(one[1], 1)

    def test_a_process_that_ends_is_an_error(self):
        with mock.patch.object(pydocs, '_SERVE', 'raise SystemExit(3)'):
            with self.assertRaisesRegex(RuntimeError, 'exit status 3.*a.py'):
                self.extract(self.files(a=SOURCE), 2)

    def test_extraction_does_not_import_tensorflow(self):
        code = (
            'import sys; from infoword_tf.data import corpora; '
            "assert not {'tensorflow', 'keras'} & set(sys.modules)"
        )
        subprocess.run([sys.executable, '-c', code], check=True)


class FilesTest(absltest.TestCase):
    def test_stdlib(self):
        names = [file.name for file in pydocs.stdlib_files()]
        self.assertIn('python/argparse.py', names)
        self.assertIn('python/json/decoder.py', names)
        self.assertEqual(names, sorted(names))
        for name in names:
            self.assertNotRegex(name, '/tests?/|site-packages|idle_test')

    def test_closure_of_a_package(self):
        # absltest comes from absl-py, which requires nothing.
        closure = pydocs.dependency_closure(
            ['absl_py>=0.1', 'nothing-of-the-name', 'numpy; extra == "x"']
        )
        self.assertEqual(list(closure), ['absl-py'])
        names = [f.name for f in pydocs.distribution_files(closure['absl-py'])]
        self.assertIn('absl/flags/_flag.py', names)
        for file in names:
            self.assertNotRegex(file, '/tests?/')

    def test_not_installed(self):
        error = importlib.metadata.PackageNotFoundError
        with mock.patch.object(
            importlib.metadata, 'requires', side_effect=error
        ):
            with self.assertRaisesRegex(RuntimeError, 'pip install -e'):
                pydocs.dependency_closure()

    def test_package(self):
        self.assertEqual(pydocs.package('numpy/linalg/x.py:norm'), 'numpy')
        self.assertEqual(pydocs.package('python/argparse.py'), 'python')
        self.assertEqual(pydocs.package('six.py:u.v'), 'six')


def words(rng, n):
    return ' '.join(f'w{i}' for i in rng.integers(10**9, size=n))


def in_bucket(rng, n, is_candidate, prefix=''):
    """A text that begins so, of n words more, candidate or not."""
    while True:
        text = f'{prefix} {words(rng, n)}'.strip()
        if (documents.hash_bucket(text, 20) == 0) == is_candidate:
            return text


class SplitHeldoutTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(5)

    def split(self, *texts):
        split = pydocs.split_heldout([Document((t,), t) for t in texts])
        return (
            [d.text for d in split.train],
            [d.text for d in split.heldout],
            split.dropped,
        )

    def test_share_of_candidates(self):
        texts = [words(self.rng, 9) for _ in range(4000)]
        train, heldout, dropped = self.split(*texts)
        self.assertBetween(len(heldout), 140, 260)  # 200 +- 4.4 sigma
        self.assertEqual(dropped, 0)
        self.assertEqual(sorted(train + heldout), sorted(texts))
        self.assertEqual(train, [t for t in texts if t in set(train)])

    def test_a_copy_with_a_changed_word_is_dropped(self):
        rng = self.rng
        original = in_bucket(rng, 60, False)
        while True:
            changed = f'{original.rsplit(" ", 1)[0]} {words(rng, 1)}'
            if documents.hash_bucket(changed, 20) == 0:
                break
        other = in_bucket(rng, 60, True)
        self.assertEqual(
            self.split(changed.upper(), original, changed, other)[1:],
            ([other], 1),
        )

    # A candidate of 27 words has 20 shingles; when its first 7 + s words are
    # another's, s of them are shared. Four of 20 are the 20 %.
    @parameterized.product(shared=(0, 3, 4, 5), is_trained=(False, True))
    def test_threshold(self, shared, is_trained):
        rng = self.rng
        prefix = words(rng, 7 + shared)
        text = in_bucket(rng, 20 - shared, True, prefix)
        # The other is long: if a candidate, its own share stays small.
        other = in_bucket(rng, 100, not is_trained, prefix)
        train, heldout, dropped = self.split(text, other)
        self.assertEqual(text not in heldout, shared >= 4)
        self.assertEqual(dropped, int(shared >= 4))
        self.assertEqual(train, [other] if is_trained else [])

    def test_both_of_two_like_candidates_are_dropped(self):
        prefix = words(self.rng, 30)
        texts = [in_bucket(self.rng, 5, True, prefix) for _ in range(2)]
        self.assertEqual(self.split(*texts), ([], [], 2))

    def test_repetition_inside_a_document_is_not_shared(self):
        while True:
            text = ' '.join([words(self.rng, 10)] * 5)
            if documents.hash_bucket(text, 20) == 0:
                break
        self.assertEqual(self.split(text), ([], [text], 0))

    def test_shingles_do_not_cross_documents(self):
        # The last words of one and the first of the next are in training
        # together; the candidate's only shingle is across them.
        rng = self.rng
        while True:
            a, b = words(rng, 20), words(rng, 20)
            text = ' '.join(a.split()[-4:] + b.split()[:4])
            if documents.hash_bucket(text, 20) == 0 and all(
                documents.hash_bucket(t, 20) for t in (a, b)
            ):
                break
        self.assertEqual(self.split(a, b, text), ([a, b], [text], 0))

    def test_nothing(self):
        self.assertEqual(self.split(), ([], [], 0))


class PrepareTest(Temporary):
    def prepare(self, cache):
        with (
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.redirect_stdout(io.StringIO()) as printed,
            mock.patch.object(pydocs, 'stdlib_files', list),
        ):
            folder = pydocs.prepare(cache, ['absl-py'], 1)
        return folder, printed.getvalue()

    def test_build_and_open(self):
        folder, built = self.prepare(self.folder / 'a' / 'b')
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
        self.assertGreater(len(train), 100)
        self.assertEqual({pydocs.package(d.source) for d in train}, {'absl'})
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
        cache = self.folder
        write = pydocs._write

        def overtaken(path, corpus):
            write(path, corpus)
            folder = cache / path.parent.parent.name.rsplit('.', 1)[0]
            folder.mkdir(exist_ok=True)
            (folder / 'figures.json').write_text(json.dumps(FIGURES))

        with mock.patch.object(pydocs, '_write', overtaken):
            folder, printed = self.prepare(cache)
        self.assertIn('12,345 documents', printed)
        self.assertEqual(list(cache.iterdir()), [folder])

    def test_hash_of_the_environment(self):
        Distribution = collections.namedtuple('Distribution', 'version')
        one = pydocs.environment_hash({'a': Distribution('1')})
        two = pydocs.environment_hash({'a': Distribution('2')})
        with mock.patch.object(pydocs, 'EXTRACTION', -1):
            three = pydocs.environment_hash({'a': Distribution('1')})
        self.assertLen({one, two, three}, 3)
        self.assertRegex(one, '^[0-9a-f]{32}$')


FIGURES = dict.fromkeys(
    'words megabytes train candidates dropped heldout files skipped_files '
    'seconds'.split(),
    0,
) | {'documents': 12345}


class TextTest(Temporary):
    def open(self, pattern='*.txt*', heldout=None):
        return corpora.open_corpus(
            f'text:{self.folder}/{pattern}',
            heldout and f'{self.folder}/{heldout}',
        )

    def all(self, pattern='*.txt*'):
        corpus = self.open(pattern)
        return list(corpus.train()) + list(corpus.heldout())

    def test_documents_of_many_files(self):
        self.write('b.txt', '\n\nOne. Two.\nThree\n \t\nFour')
        zipped = gzip.compress('Fünf\r\n\r\n\r\nSix\r\n'.encode())
        a = self.write('a.txt.gz', zipped)
        c = self.write('deep/er/c.txt', '\ufeffBom first.\n\nThen\u00a0more')
        self.write('deep/empty.txt', '')
        b = self.folder / 'b.txt'
        self.assertCountEqual(
            self.all('**/*.txt*'),
            [
                Document(('Fünf',), f'{a}:1'),
                Document(('Six',), f'{a}:4'),
                Document(('One.', 'Two.', 'Three'), f'{b}:3'),
                Document(('Four',), f'{b}:6'),
                Document(('Bom first.',), f'{c}:1'),
                Document(('Then more',), f'{c}:3'),
            ],
        )

    def test_home(self):
        self.write('home.txt', 'Home')
        with mock.patch.dict(os.environ, HOME=str(self.folder)):
            found = textfiles.find('~/*.txt')
        self.assertEqual(found, [self.folder / 'home.txt'])

    def test_no_file(self):
        with self.assertRaisesRegex(ValueError, r'No file matches.*\*\.txt'):
            self.open()

    def test_no_text(self):
        self.write('a.txt', '')
        self.write('b.txt.gz', gzip.compress(b' \n\n\t\n'))
        with self.assertRaisesRegex(ValueError, 'no text in the 2 file'):
            self.open()

    @parameterized.parameters(False, True)
    def test_binary(self, is_zipped):
        content = b'a' * 8191 + b'\0'
        name = 'x.txt.gz' if is_zipped else 'x.txt'
        self.write(name, gzip.compress(content) if is_zipped else content)
        self.write('a.txt', 'Fine')
        with self.assertRaisesRegex(ValueError, rf'{name} looks binary.*UTF-8'):
            self.open()

    @parameterized.parameters(False, True)
    def test_bad_utf8(self, is_zipped):
        content = b'\xef\xbb\xbfOne\r\n\r\n' + 'é\n\n'.encode() * 300
        bad = content + b'abc\xe9d\n'
        name = 'x.txt.gz' if is_zipped else 'x.txt'
        self.write(name, gzip.compress(bad) if is_zipped else bad)
        corpus = self.open()
        offset = f'{len(content) + 3:,}'
        with self.assertRaisesRegex(
            ValueError, rf'{name} is not UTF-8: byte 0xe9 at offset {offset} '
        ):
            list(corpus.train())

    @parameterized.parameters(-1, -9, 40, 3)
    def test_truncated_gz(self, end):
        rng = np.random.default_rng(0)
        lines = '\n\n'.join(words(rng, 9) for _ in range(3000))
        self.write('x.txt.gz', gzip.compress(lines.encode())[:end])
        with self.assertRaisesRegex(ValueError, 'x.txt.gz is not a whole gzip'):
            list(self.open().train())

    def test_not_gz(self):
        self.write('x.txt.gz', 'Just text.')
        with self.assertRaisesRegex(ValueError, 'must not end in .gz'):
            self.open()

    def test_a_long_document_goes_on(self):
        self.write('x.txt', 'One line of it.\n' * 100)
        with mock.patch.object(textfiles, 'LONGEST', 400):
            found = self.all()
        self.assertEqual(sum(len(d.sentences) for d in found), 100)
        self.assertBetween(len(found), 3, 5)

    @parameterized.parameters('word and ', 'wort', 'w\u00f6rt', '\u8a9e')
    def test_a_line_that_is_too_long_to_hold(self, text):
        text = (text * 300).strip()
        self.write('x.txt', text + '\nThe end.')
        with mock.patch.object(textfiles, 'LONGEST', 64):
            found = [s for d in self.all() for s in d.sentences]
        self.assertEqual(found[-1], 'The end.')
        space = ' ' if ' ' in text else ''
        self.assertEqual(space.join(found[:-1]), text)
        self.assertLess(max(map(len, found)), 130)

    def test_heldout_share(self):
        rng = np.random.default_rng(1)
        texts = [words(rng, 5) for _ in range(5000)]
        self.write('x.txt', '\n\n'.join(texts))
        corpus = self.open()
        train = [d.text for d in corpus.train()]
        heldout = [d.text for d in corpus.heldout()]
        self.assertBetween(len(heldout), 20, 80)  # 50 +- 4.3 sigma
        self.assertEqual(sorted(train + heldout), sorted(texts))
        # Both begin anew, and the order of a pass is that of the file.
        self.assertEqual(train, [d.text for d in corpus.train()])
        held = set(heldout)
        self.assertEqual(train, [t for t in texts if t not in held])
        self.assertEqual(heldout, [t for t in texts if t in held])

    def test_heldout_cap(self):
        rng = np.random.default_rng(1)
        every = [made(words(rng, 5)) for _ in range(1500)]
        free = list(textfiles.heldout(every))
        self.assertGreater(len(free), 4)
        self.assertEqual(list(textfiles.heldout(every, 3)), free[:3])
        # What lies beyond the limit is not trained on: it may be a copy.
        train = list(textfiles.train(every))
        self.assertEqual(train, [d for d in every if d not in free])

    def test_heldout_glob(self):
        self.write('train.txt', '\n\n'.join(f'Text {i}' for i in range(300)))
        self.write('valid.txt', 'Valid 1\n\nValid 2')
        corpus = self.open('train.txt', 'valid.txt')
        self.assertLen(list(corpus.train()), 300)
        self.assertEqual(
            [d.text for d in corpus.heldout()], ['Valid 1', 'Valid 2']
        )
        self.assertNotEqual(
            corpus.fingerprint, self.open('train.txt').fingerprint
        )
        with self.assertRaisesRegex(ValueError, 'valid.txt.*match both'):
            self.open('*.txt', 'valid.txt')
        with self.assertRaisesRegex(ValueError, 'No file matches.*none'):
            self.open('*.txt', 'none')

    def test_fingerprint(self):
        path = self.write('x.txt', 'One')
        one = self.open()
        self.assertEqual(one.fingerprint, self.open().fingerprint)
        self.assertEqual(one.name, f'text:{self.folder}/*.txt*')
        os.utime(path, ns=(1, 1))
        two = self.open().fingerprint
        self.write('y.txt', 'Two')
        self.assertLen({one.fingerprint, two, self.open().fingerprint}, 3)


class LinesTest(Temporary):
    def open(self, heldout='valid.txt'):
        return corpora.open_corpus(
            f'lines:{self.folder}/train*.txt',
            heldout and f'{self.folder}/{heldout}',
        )

    def test_every_line_is_a_document(self):
        a = self.write('train1.txt', ' \n = One = \n \n It is. So is\tit .\n')
        b = self.write('train2.txt', '\n\nno end')
        c = self.write('valid.txt', 'Held out .\r\n')
        corpus = self.open()
        self.assertEqual(
            list(corpus.train()),
            [
                Document((), f'{a}:1', 2),
                Document(('= One =',), f'{a}:2', 10),
                Document((), f'{a}:3', 2),
                Document(('It is.', 'So is it .'), f'{a}:4', 19),
                Document((), f'{b}:1', 1),
                Document((), f'{b}:2', 1),
                Document(('no end',), f'{b}:3', 6),
            ],
        )
        self.assertEqual(
            list(corpus.heldout()), [Document(('Held out .',), f'{c}:1', 12)]
        )

    def test_something_is_held_out(self):
        self.write('train.txt', 'One\n')
        with self.assertRaisesRegex(ValueError, 'with --heldout=GLOB'):
            self.open(None)
        with self.assertRaisesRegex(ValueError, 'match both lines:'):
            self.open('train.txt')

    def test_another_corpus_than_text(self):
        self.write('train.txt', 'One\n')
        self.write('valid.txt', 'Two\n')
        corpus = self.open()
        other = corpora.open_corpus(
            corpus.name.replace('lines:', 'text:'), f'{self.folder}/valid.txt'
        )
        self.assertNotEqual(corpus.fingerprint, other.fingerprint)

    def test_no_text(self):
        self.write('train.txt', 'One\n')
        self.write('valid.txt', '\n \n')
        with self.assertRaisesRegex(ValueError, 'no text in the 1 file'):
            list(self.open().heldout())


class PartsTest(parameterized.TestCase):
    @parameterized.parameters(
        ('', ['']),
        ('a b', ['a b']),
        ('<unk>', ['', '']),
        ('a <unk> b', ['a', 'b']),
        ('<unk> <unk> b <unk>', ['', '', 'b', '']),
        ('<unk>s of "<unk>" and x<unk> y', ['<unk>s of "<unk>" and x<unk> y']),
    )
    def test_around_the_words_unk(self, text, expected):
        self.assertEqual(documents.parts(text), expected)


class OpenCorpusTest(Temporary):
    def test_unknown_kind(self):
        with self.assertRaisesRegex(ValueError, "'wiki'.*pydocs, text"):
            corpora.open_corpus('wiki')

    def test_pydocs_takes_no_heldout(self):
        with self.assertRaisesRegex(ValueError, 'held-out part of its own'):
            corpora.open_corpus('pydocs', 'x.txt')
        with self.assertRaisesRegex(ValueError, 'nothing after a colon'):
            corpora.open_corpus('pydocs:x')

    def test_pydocs(self):
        folder = self.folder / 'pydocs-0123'
        document = Document(('Größe is the size.', 'So it is.'), 'p/a.py:f')
        folder.mkdir()
        pydocs._write(folder / 'train.jsonl', [document])
        pydocs._write(folder / 'heldout.jsonl', [])
        with mock.patch.object(pydocs, 'prepare', return_value=folder):
            corpus = corpora.open_corpus('pydocs', cache=self.folder)
        self.assertEqual(corpus[:2], ('pydocs', '0123'))
        for _ in range(2):
            self.assertEqual(list(corpus.train()), [document])
            self.assertEqual(list(corpus.heldout()), [])

    def test_cache_dir(self):
        with mock.patch.dict(os.environ, HOME='/h', clear=True):
            path = pathlib.Path('/h/.cache/infoword_tf')
            self.assertEqual(corpora.cache_dir(), path)
            os.environ['XDG_CACHE_HOME'] = '/x'
            path = pathlib.Path('/x/infoword_tf')
            self.assertEqual(corpora.cache_dir(), path)
            os.environ['INFOWORD_CACHE'] = '~/c'
            self.assertEqual(corpora.cache_dir(), pathlib.Path('/h/c'))


if __name__ == '__main__':
    absltest.main()
