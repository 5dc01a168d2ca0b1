"""Rules of the house that a reader would otherwise have to remember."""

import ast
import pathlib
import subprocess
import sys

from absl.testing import absltest

ROOT = pathlib.Path(__file__).parent.parent
LIBRARY = ROOT / 'infoword_tf'
FREE = ('layers', 'encoders', 'objectives', 'views.py', 'sampling.py',
        'model.py', 'pictures', 'sizes.py')
COMMANDS = ('train.py', 'show.py', 'commands.py')


def imports(path, top_level_only):
    """Modules that a file imports, at its top level or anywhere."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f'{node.module}.{a.name}' for a in node.names)


class HouseTest(absltest.TestCase):
    def test_importing_the_package_imports_no_framework(self):
        code = (
            'import sys, infoword_tf; '
            "print([m for m in ('tensorflow', 'keras') if m in sys.modules])"
        )
        done = subprocess.run(
            [sys.executable, '-c', code],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertEqual(done.stdout.strip(), '[]')

    def test_what_runs_under_jax_imports_no_tensorflow(self):
        for name in FREE:
            path = LIBRARY / name
            files = path.rglob('*.py') if path.is_dir() else [path]
            for file in files:
                for module in imports(file, top_level_only=True):
                    self.assertFalse(
                        module.startswith(('tensorflow', 'tf_keras', 'orbit')),
                        f'{file} imports {module}',
                    )

    def test_only_the_commands_know_flags(self):
        for file in LIBRARY.rglob('*.py'):
            if file.name not in COMMANDS:
                self.assertNotIn(
                    'absl.flags', list(imports(file, False)), file
                )

    def test_the_library_stands_alone(self):
        for file in LIBRARY.rglob('*.py'):
            for module in imports(file, top_level_only=False):
                self.assertNotIn(
                    module.split('.')[0],
                    ('tests', 'tasks', 'export', 'benchmarks', 'tf_keras',
                     'official'),
                    file,
                )

    def test_no_dropout_with_a_hidden_state(self):
        for file in LIBRARY.rglob('*.py'):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Attribute):
                    self.assertNotIn(
                        node.attr, ('Dropout', 'SeedGenerator'), file
                    )


if __name__ == '__main__':
    absltest.main()
