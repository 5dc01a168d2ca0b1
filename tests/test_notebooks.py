"""The notebooks as they are kept: short, clean, and of calls that exist.

`make notebooks` runs them; this reads their JSON, without Jupyter.
"""

import ast
import contextlib
import importlib
import inspect
import json
import pathlib
import runpy
from unittest import mock

from absl.testing import parameterized

from infoword_tf import commands, errors
from infoword_tf.inference.loaded import Loaded

ROOT = pathlib.Path(__file__).parent.parent
FILES = sorted((ROOT / 'notebooks').glob('*.ipynb'))
OURS = ('infoword_tf', 'tasks', 'export')
runner = runpy.run_path(str(ROOT / 'notebooks' / 'run.py'))


def read(path):
    return json.loads(path.read_text(encoding='utf-8'))


def code_of(notebook):
    """All that it runs, as a tree."""
    cells = [c for c in notebook['cells'] if c['cell_type'] == 'code']
    return ast.parse('\n'.join(''.join(cell['source']) for cell in cells))


def calls_of(tree):
    """Calls of what is ours, each with the function that it names."""
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in OURS:
                    known[alias.asname or alias.name] = importlib.import_module(
                        alias.name
                    )
        elif isinstance(node, ast.ImportFrom):
            if node.module.split('.')[0] in OURS:
                for alias in node.names:
                    known[alias.name] = importlib.import_module(
                        f'{node.module}.{alias.name}'
                    )
    for node in ast.walk(tree):
        if not (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        ):
            continue
        owner = node.func.value
        if isinstance(owner, ast.Name) and owner.id in known:
            yield node, getattr(known[owner.id], node.func.attr)
        elif ast.unparse(owner).startswith(('infoword_tf.load(', 'model')):
            if hasattr(Loaded, node.func.attr):
                yield node, getattr(Loaded, node.func.attr)


def literals(pairs):
    """Those of some (name, expression) that say themselves what they are."""
    actual = {}
    for name, value in pairs:
        with contextlib.suppress(ValueError):
            actual[name] = ast.literal_eval(value)
    return actual


def wrong(tree):
    """Returns what no call of ours takes, in words."""
    constants = literals(
        (node.targets[0].id, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
    )
    for node, function in calls_of(tree):
        name = ast.unparse(node.func)
        takes = inspect.signature(function).parameters
        words = {word.arg for word in node.keywords if word.arg}
        values = literals((w.arg, w.value) for w in node.keywords if w.arg)
        for word in node.keywords:
            if word.arg is None:  # **TABLE
                values |= constants[word.value.id]
        if unknown := (words | set(values)) - set(takes):
            yield f'{name} has no {", ".join(sorted(unknown))}'
        elif kind := getattr(function, 'choices', None):
            try:
                commands.parse(kind, commands.typed(values))
            except errors.UsageError as error:
                yield f'{name}: {error}'


class NotebooksTest(parameterized.TestCase):
    @parameterized.parameters('search', 'serve')
    def test_nothing_to_complain_of(self, name):
        self.assertLen(FILES, 2)
        notebook = read(ROOT / 'notebooks' / f'{name}.ipynb')
        self.assertEmpty(list(runner['complaints'](notebook)))
        self.assertNotEmpty(list(calls_of(code_of(notebook))))
        self.assertEmpty(list(wrong(code_of(notebook))))

    def test_every_mistake_is_seen(self):
        cells = [{'id': f'{i}', 'cell_type': 'markdown', 'source': ['x']}
                 for i in range(13)]  # fmt: skip
        output = {'output_type': 'stream', 'name': 'stdout', 'text': ['x']}
        cells += [
            {'id': 'long', 'source': ['x\n'] * 10 + ['x']},
            {'id': 'said', 'source': ['x'], 'outputs': [output]},
            {'id': 'ran', 'source': ['x'], 'execution_count': 1},
            {'id': 'where', 'source': ["open('/home/me/x')"]},
            {'id': 'empty', 'source': ['\n']},
        ]
        cells = [{'metadata': {}, **cell} for cell in cells]
        actual = list(runner['complaints']({'cells': cells, 'metadata': {}}))
        self.assertEqual(
            actual,
            [
                '18 cells are more than 15',
                'its metadata are of somebody: only a kernel should be named',
                '0 pictures are fewer than 2',
                'cell long: 11 lines are more than 10',
                'cell said: shows something else than a picture',
                'cell ran: has metadata, or a number of its run',
                'cell where: /home/ is a path of one machine',
                'cell empty: is empty',
            ],
        )

    @parameterized.parameters(
        ('infoword_tf.train(step=3)', 'infoword_tf.train has no step'),
        ("infoword_tf.train(steps='few')", 'infoword_tf.train: '),
        ("infoword_tf.train(settings={'ict.word': 3})", 'infoword_tf.train: '),
        ("infoword_tf.load('runs/x').encode(text='x')", ' has no text'),
        ("X = {'step': 3}\ninfoword_tf.train(**X)", ' has no step'),
        ("infoword_tf.train(steps=3, settings={'ict.words': 3})", None),
    )
    def test_what_a_call_takes(self, code, want):
        actual = list(wrong(ast.parse(f'import infoword_tf\n{code}')))
        if want is None:
            self.assertEmpty(actual)
        else:
            self.assertLen(actual, 1)
            self.assertIn(want, actual[0])

    def test_pictures_of_documents(self):
        for picture, (name, cell_id) in runner['SHOWN'].items():
            notebook = read(ROOT / 'notebooks' / f'{name}.ipynb')
            (cell,) = (c for c in notebook['cells'] if c['id'] == cell_id)
            self.assertEqual(
                (ROOT / 'docs' / picture).read_bytes(),
                runner['pictures_of'](cell)[-1],
            )

    def test_a_notebook_that_fails_stays(self):
        """And what is written is what was made."""
        folder = pathlib.Path(self.create_tempdir().full_path)
        copied = folder / 'x.ipynb'
        copied.write_text('old')
        main = runner['main']
        run = mock.Mock(side_effect=[
            RuntimeError('no'), [(copied, b'x')], AssertionError
        ])  # fmt: skip
        with mock.patch.dict(
            main.__globals__, FOLDER=folder, ROOT=folder, run=run
        ):
            with self.assertRaisesRegex(SystemExit, 'error: no'):
                main([])
            self.assertEqual(copied.read_text(), 'old')
            main([])
            self.assertEqual(copied.read_text(), 'x')
            with self.assertRaisesRegex(SystemExit, 'there is no notebook'):
                main(['y'])
        run.assert_called_with('x')
