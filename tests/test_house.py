"""Rules of the house that a reader would otherwise have to remember."""

import ast
import functools
import graphlib
import itertools
import os
import pathlib
import re

from absl.testing import parameterized

from infoword_tf.critics import CRITICS
from infoword_tf.encoders import ENCODERS
from infoword_tf.objectives import TABLE
from tests import language
from tests.language import parsed
from tests.runs import ROOT, python

LIBRARY = ROOT / 'infoword_tf'
# What each folder may import of the others; benchmarks/encode.py measures
# exports.
DIRECTIONS = {
    'infoword_tf': set(),
    'tasks': {'infoword_tf'},
    'export': {'infoword_tf'},
    'benchmarks': {'export', 'tasks', 'infoword_tf'},
    'notebooks': {'export', 'tasks', 'infoword_tf'},
    'tests': {'benchmarks', 'export', 'tasks', 'infoword_tf'},
}
# Where scores are masked.
MASKED = ('layers', 'encoders', 'critics', 'objectives')
FREE = tuple(f'infoword_tf/{name}' for name in (
    'layers', 'encoders', 'critics', 'objectives', 'views', 'model.py',
    'resolve.py', 'plan.py', 'config.py', 'settings.py', 'pictures.py',
    'sizes.py',
))  # fmt: skip
DANGEROUS = ('pickle', 'cPickle', 'cloudpickle', 'dill', 'joblib', 'marshal',
             'shelve', 'tarfile', 'yaml', 'zipfile')  # fmt: skip
REFUSALS = 'UsageError', 'InputError', 'NoColumn'
FLAGS = ('commands.py', 'helptext.py')  # make them, and explain them


def sources(*folders):
    """All Python files of these folders; of each there is one at least."""
    actual = [sorted((ROOT / folder).rglob('*.py')) for folder in folders]
    assert all(actual), folders
    return [file for files in actual for file in files]


@functools.cache
def imports(path, top_level_only):
    """Modules that a file imports, at its top level or anywhere."""
    tree = parsed(path)
    actual = []
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            actual += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            room = path.relative_to(ROOT).parts[: -node.level or None]
            base = room if node.level else ()
            module = '.'.join([*base, *filter(None, [node.module])])
            actual.append(module)
            actual += [f'{module}.{a.name}' for a in node.names]
    return actual


def is_command(tree):
    """Whether a file ends with `if __name__ == '__main__'` and runs itself."""
    last = tree.body[-1]
    return isinstance(last, ast.If) and any(
        start in ast.unparse(last) for start in ('commands.start(', 'app.run(')
    )


def infinities(tree):
    """Lines where infinity is more than compared with, or returned.

    A score of -inf gives gradients of NaN, and so does one in a type that it
    does not fit.
    """
    harmless = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            harmless |= {id(x) for x in (node.left, *node.comparators)}
        elif isinstance(node, ast.Return):
            harmless.add(id(node.value))
    for node in ast.walk(tree):
        actual = False
        if isinstance(node, ast.Attribute | ast.Name):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            actual = name.lower() in ('inf', 'ninf', 'infty', 'finfo')
            actual |= name.lower() == 'infinity'
        elif isinstance(node, ast.Call):
            values = [x.value for x in node.args if isinstance(x, ast.Constant)]
            actual = ast.unparse(node.func) == 'float' and any(
                str(x).strip().lower().lstrip('+-').startswith('inf')
                for x in values
            )
        elif isinstance(node, ast.Constant):
            actual = isinstance(node.value, float) and node.value > 3.4e38
        if actual and id(node) not in harmless:
            yield node.lineno


def dangers(tree):
    """Names by which a file that is read could run code, or leave its folder.

    Pickles, archives, and text that is taken for a program.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, 'module', None)
            for name in [module] if module else [x.name for x in node.names]:
                if name.split('.')[0] in DANGEROUS:
                    yield name
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            keywords = {x.arg: ast.unparse(x.value) for x in node.keywords}
            if called in ('eval', 'exec', 'os.system', 'os.popen') or (
                called.split('.')[-1] in ('unpack_archive', 'extractall')
                or keywords.get('allow_pickle', 'False') != 'False'
                or keywords.get('shell', 'False') != 'False'
            ):
                yield called


def refusals(tree):
    """Lines and ids of all errors for users; of a plain ValueError, None.

    The id is None where it is not a literal of two to five words, and '' where
    an error is passed on with its id.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            raised = getattr(node.exc, 'func', node.exc)
            if ast.unparse(raised) == 'ValueError':
                yield node.lineno, None
        elif isinstance(node, ast.Call):
            if ast.unparse(node.func).split('.')[-1] in REFUSALS:
                id = ast.unparse(node.args[0]) if len(node.args) == 2 else ''
                literal = re.fullmatch(r"'([a-z]+(_[a-z0-9]+){1,4})'", id)
                passed = '' if id == 'error.id' else None
                yield node.lineno, literal[1] if literal else passed


def names_compared(tree, names=tuple(CRITICS)):
    """Lines where a critic's name is compared, as `critic == 'late'`.

    A literal that is one of `names`, or that name in capitals; `cosine`, which
    is a similarity too, only of what is called a critic.
    """
    constants = {name.upper() for name in names}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        sides, is_compared = [node.left, *node.comparators], False
        for side in itertools.chain(*(getattr(x, 'elts', [x]) for x in sides)):
            literal = getattr(side, 'value', None)
            name = getattr(side, 'attr', getattr(side, 'id', None))
            is_compared |= name in constants or (
                isinstance(literal, str) and literal in names
            )
        text = ast.unparse(node)
        if is_compared and ('critic' in text or 'cosine' not in text):
            yield node.lineno


def words(tree, names):
    """Strings, and names of keyword arguments, that are among the names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in names:
            yield node.value
        elif isinstance(node, ast.keyword) and node.arg in names:
            yield node.arg


class HouseTest(parameterized.TestCase):
    @parameterized.parameters(('ruff', 'check', '--no-cache', '.'), ('mypy',))
    def test_checker(self, *command):
        """What `make lint` runs; mypy takes half a minute once a clone."""
        done = python('-m', *command)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @parameterized.parameters(*DIRECTIONS)
    def test_language(self, folder):
        """First lines, names and glossaries; tests are free in their prose."""
        complaints = [
            complaint
            for file in sources(folder)
            for complaint in language.complaints(file, folder != 'tests')
        ]
        self.assertEmpty(complaints, '\n'.join(complaints))

    @parameterized.parameters(
        ('def f():\n    """What it is."""', ['no verb first', 'pronoun']),
        ('def f():\n    """Returns the texts."""', []),
        ('def f():\n    """Returns those texts."""', ['pronoun']),
        ('class C:\n    """Of a run."""', ['no noun first']),
        ('class C:\n    """A run."""', []),
        ('@property\ndef f(self):\n    """The width."""', []),
        ('class C:\n    """A run.\n\n    Attributes:\n        a: of it."""',
         ['no noun for an argument']),
        ('def f():\n    """Gets.\n\n    Args:\n        a: the run."""', []),
        ('found = 1', ['name']),
        ('def f(given): pass', ['name']),
        ('self.kept = 1', ['name']),
        ('tokens = found', []),
        ('"""Text.\n\nGlossary of shapes: B rows, C classes.\n"""',
         ['glossary']),
    )  # fmt: skip
    def test_what_breaks_a_rule_of_language(self, code, rules):
        path = pathlib.Path(self.create_tempdir().full_path) / 'code.py'
        path.write_text(code)
        actual = [line.split(': ')[1] for line in language.complaints(path)]
        self.assertLen(actual, len(rules))
        for rule, start in zip(actual, rules, strict=True):
            self.assertStartsWith(rule, start)

    def test_names_are_unique(self):
        """Of classes; of files of tests, which pytest imports by them alone."""
        classes = language.class_names(sources(*set(DIRECTIONS) - {'tests'}))
        files = [x.name for x in sources('tests') if x.name[:5] == 'test_']
        for names, least in (classes, 300), (files, 150):
            self.assertGreater(len(names), least)
            self.assertCountEqual(names, set(names))

    @parameterized.parameters(*DIRECTIONS)
    def test_imports_go_one_way(self, folder):
        forbidden = set(DIRECTIONS) - DIRECTIONS[folder] - {folder}
        for file in sources(folder):
            for module in imports(file, top_level_only=False):
                self.assertNotIn(module.split('.')[0], forbidden, str(file))

    def test_imports_inside_the_library_go_one_way(self):
        """Its folders, and the files beside them, import in no circle."""
        actual = {}
        for file in sources(LIBRARY):
            room = file.relative_to(LIBRARY).parts[0].removesuffix('.py')
            expected = {
                module.split('.')[1]
                for module in imports(file, top_level_only=False)
                if module.startswith('infoword_tf.')
            }
            actual[room] = actual.get(room, set()) | expected - {room}
        self.assertIn('model', actual['training'])
        graphlib.TopologicalSorter(actual).prepare()  # complains of a circle

    def test_nothing_asks_which_critic_it_is(self):
        """Differences of critics stand in the files of critics."""
        places = [
            f'{file.relative_to(ROOT)}:{line}'
            for file in sources('infoword_tf', 'tasks', 'export', 'benchmarks')
            if file.parent.name != 'critics'
            for line in names_compared(parsed(file))
        ]
        self.assertLessEqual(len(places), 10, places)

    @parameterized.parameters('tasks', 'export', 'benchmarks')
    def test_only_commands_define_flags(self, folder):
        commands = 0
        for file in sources(folder):
            if is_command(parsed(file)):
                commands += 1
            elif file.name == 'tuning.py':
                continue  # defines what several commands share
            else:
                actual = set(imports(file, False))
                self.assertNoCommonElements(
                    actual, {'absl.flags', 'absl.app'}, file
                )
        self.assertGreater(commands, 1)

    def test_masked_is_never_infinite(self):
        for file in sources(*(LIBRARY / name for name in MASKED)):
            lines = list(infinities(parsed(file)))
            self.assertEmpty(lines, file)

    @parameterized.parameters(
        ("x = float('-inf')", True),
        ("x = -float('Infinity')", True),
        ('x = -np.inf', True),
        ('x = ops.where(a, b, -math.inf)', True),
        ('x = ops.where(a, b, np.NINF)', True),
        ('from math import inf; x = -inf', True),
        ('x = np.finfo(np.float32).min', True),
        ('x = -1e39', True),
        ('def f():\n    return -math.inf', True),
        ('x = -1e30', False),
        ("assert x < float('inf')", False),
        ('def f():\n    return math.inf', False),
        ('import pickle', True, dangers),
        ('from tarfile import open', True, dangers),
        ('import zipfile as z', True, dangers),
        ('x = np.load(path, allow_pickle=True)', True, dangers),
        ('x = eval(text)', True, dangers),
        ('subprocess.run(text, shell=True)', True, dangers),
        ('shutil.unpack_archive(path)', True, dangers),
        ("x = np.load(path, mmap_mode='r')", False, dangers),
        ('x = model.eval()', False, dangers),
        ('subprocess.run([text], shell=False)', False, dangers),
        ("x = settings['critic'] == 'late'", True, names_compared),
        ("if critic in ('late', LEXICAL): pass", True, names_compared),
        ('if config.CROSS != x: pass', True, names_compared),
        ("x = self.critic != 'cosine'", True, names_compared),
        ("x = similarity == 'cosine'", False, names_compared),
        ("x = {'late': 1}", False, names_compared),
        ("x = name == 'later'", False, names_compared),
    )
    def test_what_a_rule_is_about(self, code, actual, rule=infinities):
        self.assertEqual(bool(list(rule(ast.parse(code)))), actual)

    def test_ids(self):
        """Every complaint has an id, which one place alone raises."""
        places = {}
        for file in sources('infoword_tf', 'tasks', 'export'):
            if file.parent.name == 'serving':
                continue  # stands alone
            for line, id in refusals(parsed(file)):
                places.setdefault(id, []).append(f'{file}:{line}')
        self.assertEmpty(places.pop(None, []), 'no id of two to five words')
        places.pop('')
        self.assertGreater(len(places), 200)
        twice = {k: v for k, v in places.items() if len(v) > 1}
        self.assertEmpty(twice)

    @parameterized.parameters(
        ("raise errors.UsageError('bad_flag', 'no')", 'bad_flag'),
        ("return InputError('no_text_2', f'{x}')", 'no_text_2'),
        ("raise UsageError(error.id, f'--x: {error}') from None", ''),
        ("raise UsageError('no')", None),
        ("raise UsageError(name, 'no')", None),
        ("raise UsageError('flag', 'no')", None),
        ("raise ValueError('no')", None),
        ('raise ValueError', None),
    )
    def test_what_is_an_id(self, code, id):
        ((_, actual),) = refusals(ast.parse(code))
        self.assertEqual(actual, id)

    def test_rows_ask_for_abilities(self):
        """No file of objectives/ names an encoder, but for sums as published.

        `elmo` is a row, too.
        """
        sums = {'__init__.py': ['elmo', 'transformer', 'modern', 'relative']}
        for file in sources(LIBRARY / 'objectives'):
            actual = list(words(parsed(file), ENCODERS))
            self.assertCountEqual(actual, sums.get(file.name, []), file)

    def test_other_rooms_ask_rows(self):
        """Names of rows stand outside objectives/ where they mean no row.

        What a room wants to know of a row is a field of `Row`. `bert_nce` is
        what is trained where nobody says what.
        """
        expected = {
            '__main__.py': {'tag'},  # a command
            'choices.py': {'bert_nce', 'gpt', 'transformer_xl', 'elmo'},
            'encoders/__init__.py': {'elmo'},  # an encoder
            'sizes.py': {'elmo'},  # a size
            'training/optim.py': {'gpt', 'transformer_xl', 'elmo'},  # presets
            'text/layout.py': {'gpt'},  # a layout
            'views/__init__.py': {'overlap'},  # a view
            'views/overlap.py': {'overlap'},
            # Rows whose weights heads begin with; below the table.
            'critics/cross.py': {'label', 'score'},
            'critics/lexical.py': {'mlm'},
            'critics/critic.py': {'embed'},  # a signature
            # Words of tables, of answers, of other libraries' calls and files.
            'data/glue_layout.py': {'label', 'score'},  # columns
            'data/labelling.py': {'label'},
            'evaluation/models.py': {'score'},  # a signature
            'evaluation/sts.py': {'score'},
            'inference/reader.py': {'score'},
            'pictures.py': {'label'},
            'training/report.py': {'label'},
            'training/run.py': {'patience'},
            'weights/kinds/bert.py': {'dim'},
            'weights/kinds/rotary.py': {'score'},
            'weights/unigram.py': {'score'},
        }
        for file in sources(LIBRARY):
            path = file.relative_to(LIBRARY).as_posix()
            if not path.startswith('objectives/'):
                actual = {*words(parsed(file), TABLE)}
                self.assertEqual(actual, expected.get(path, set()), file)

    def test_no_file_that_is_read_can_run_code(self):
        # This one says itself what a pickle may call, and reads no other file
        # of an archive.
        allowed = {'pickled.py': {'pickle', 'zipfile'}}
        for file in sources('infoword_tf', 'tasks', 'export'):
            actual = {*dangers(parsed(file))} - allowed.get(file.name, set())
            self.assertEmpty(actual, file)

    @parameterized.parameters(
        ('import sys, infoword_tf; '
         "print([m for m in ('tensorflow', 'keras') if m in sys.modules])",
         '[]'),
        # A notebook that draws views can then compute.
        ('import os; from infoword_tf import show; '
         "print('KERAS_BACKEND' in os.environ)", 'False'),
        # Commands are TensorFlow's.
        ('import os, tasks; os.environ.pop("KERAS_BACKEND"); import export; '
         "print(os.environ['KERAS_BACKEND'])", 'tensorflow'),
    )  # fmt: skip
    def test_importing_chooses_a_framework(self, code, printed):
        environment = dict(os.environ)
        environment.pop('KERAS_BACKEND', None)
        done = python('-c', code, env=environment)
        self.assertEqual(done.stdout.strip(), printed, done.stderr)

    @parameterized.parameters(
        # A notebook that trains goes on showing figures of its own.
        (r'.*pyplot', 'infoword_tf', 'tasks', 'export'),
        (r'absl\.flags', 'infoword_tf'),  # but the commands
        # The library needs no other model code.
        (r'(tf_keras|official)\b.*', 'infoword_tf'),
        # What runs under JAX is free of it.
        (r'(tensorflow|tf_keras|orbit).*', *FREE),
    )
    def test_what_is_not_imported(self, pattern, *places):
        files = [
            file for place in places
            for file in (sources(place) if '.' not in place else [ROOT / place])
            if file.name not in FLAGS or 'absl' not in pattern
        ]  # fmt: skip
        for file in files:
            for module in imports(file, top_level_only=places == FREE):
                self.assertNotRegex(module, f'^{pattern}$', file)

    def test_pictures_leave_matplotlib_as_it_was(self):
        for file in sources('infoword_tf', 'tasks', 'export'):
            self.assertNotIn('matplotlib.use(', file.read_text(), file)

    def test_no_dropout_with_a_hidden_state(self):
        """Under Keras' `fit` such a state makes the key of a step, with rows
        of the global batch that are each replica's own.
        """
        for file in sources(LIBRARY):
            forbidden = {'Dropout', 'SeedGenerator'}
            if file.name == 'keras_models.py':
                forbidden.remove('SeedGenerator')
            for node in ast.walk(parsed(file)):
                if isinstance(node, ast.Attribute):
                    self.assertNotIn(node.attr, forbidden, file)
