"""Faults that are drawn blindly and planted one by one: what no test notices.

A draw takes functions of the product at random, and a place of each. In a copy
of the tree that has the fault the tests of `tests_of` run until one fails.
"""

import argparse
import ast
import concurrent.futures
import contextlib
import functools
import importlib
import itertools
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from absl import flags
from absl.testing import absltest  # noqa: F401  it defines --test_tmpdir

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOT_COPIED = (
    '.git', '.venv*', '.*_cache', '*.egg-info', '__pycache__', 'build', 'dist',
    'models', 'runs',
)  # fmt: skip
# Seconds that tests may take: at least; times those without a fault.
LEAST, TIMES = 60, 3
# Files of tests that import a file, at most, as far as they count as its own.
FEW = 9
# Tests of a file or folder besides these and the folder of its room.
ALSO = {
    'infoword_tf/__init__.py': 'inference/test_loaded test_train',
    'infoword_tf/adapters.py': 'weights/test_peft',
    'infoword_tf/choices.py': (
        'test_resolve test_complaints test_recorded test_flags '
        'data/test_mixture'
    ),
    'infoword_tf/commands.py': (
        'test_complaints test_flags tasks/test_help test_progress '
        'test_notebooks tasks/test_sts'
    ),
    'infoword_tf/config.py': 'test_resolve test_model inference/test_loaded',
    'infoword_tf/convert.py': 'weights',
    'infoword_tf/critics': (
        'objectives/test_sentences objectives/test_queue '
        'objectives/test_contrast layers/test_late inference '
        'export/test_critic_signatures tasks/test_retrieval test_sentence_runs '
        'test_complaints'
    ),
    'infoword_tf/data/batches.py': 'tasks/test_classify',
    'infoword_tf/data/opened.py': 'test_complaints',
    'infoword_tf/data/sharded.py': 'test_prepare',
    'infoword_tf/encoders': 'test_recorded test_memory',
    'infoword_tf/errors.py': 'test_complaints',
    'infoword_tf/evaluation': (
        'tasks/test_mine tasks/test_retrieval tasks/test_sts tasks/test_tatoeba'
    ),
    'infoword_tf/files.py': (
        'data/test_store test_folders weights/test_complaints_of_weights'
    ),
    'infoword_tf/helptext.py': 'tasks/test_help',
    'infoword_tf/inference': (
        'tasks/test_classify tasks/test_students export/test_savedmodel'
    ),
    'infoword_tf/languages.py': 'data/test_mixture test_language_runs',
    'infoword_tf/layers': 'encoders',
    'infoword_tf/assembly.py': 'test_model test_contract',
    'infoword_tf/model.py': 'training/test_loop test_contract',
    'infoword_tf/model_choice.py': (
        'test_resolve critics/test_critics test_adapters'
    ),
    'infoword_tf/lazy.py': 'test_adapters encoders/test_transformer',
    'infoword_tf/objectives': 'test_recorded critics/test_critics',
    'infoword_tf/resolve.py': 'test_plan test_memory data/test_batches',
    'infoword_tf/settings.py': 'test_config test_complaints',
    'infoword_tf/tensors.py': 'test_house',
    'infoword_tf/text': 'weights/test_added',
    'infoword_tf/training': 'test_train',
    'infoword_tf/training/begin.py': 'test_complaints',
    'infoword_tf/training/fit.py': 'test_resume',
    'infoword_tf/training/guide.py': 'test_sentence_runs',
    'infoword_tf/training/loop.py': 'test_memory',
    'infoword_tf/views': 'test_recorded',
    'infoword_tf/workdir.py': 'test_folders test_contract',
    'export': 'test_recorded',
    'tasks': 'test_recorded',
}
PAIRS = (
    (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq),
    (ast.In, ast.NotIn), (ast.Is, ast.IsNot), (ast.Add, ast.Sub),
    (ast.Mult, ast.Div), (ast.FloorDiv, ast.Mod), (ast.And, ast.Or),
)  # fmt: skip
OTHER = dict(PAIRS) | {b: a for a, b in PAIRS}
MESSAGES = re.compile(r'.*(Error|Exception|Warning|NoColumn)|logging\..*')
# Functions that read two arguments in any order.
SYMMETRIC = {
    'add', 'equal', 'logical_and', 'logical_or', 'logaddexp', 'max', 'maximum',
    'min', 'minimum', 'multiply', 'not_equal',
}  # fmt: skip


class Fault(NamedTuple):
    """A change of one place: Python that stands at bytes of a file instead."""

    file: str
    line: int
    before: str
    after: str
    start: int
    end: int

    def __str__(self):
        return f'{self.file}:{self.line}: {self.before} -> {self.after}'

    def of(self, content: bytes) -> bytes:
        """Returns the content of the file with the fault."""
        after = self.after.encode()
        return content[: self.start] + after + content[self.end :]


def faults_of(file: str, content: bytes) -> dict[str, list[Fault]]:
    """Returns the faults of a file, by qualified name of a function."""
    sizes = map(len, content.splitlines(keepends=True))
    starts = [0, *itertools.accumulate(sizes)]
    faults: dict[str, list[Fault]] = {}
    for function, node in visited(ast.parse(content)):
        for old, new in changes(node):
            before, after = ast.unparse(old), ast.unparse(new)
            if before != after:
                faults.setdefault(function, []).append(Fault(
                    file, old.lineno, before, after,
                    starts[old.lineno - 1] + old.col_offset,
                    starts[old.end_lineno - 1] + old.end_col_offset,
                ))  # fmt: skip
    return faults


def visited(
    node: ast.AST, names: tuple[str, ...] = ()
) -> Iterator[tuple[str, ast.AST]]:
    """Yields the function and each node whose change is a fault.

    No docstrings, annotations, decorators, messages, and nothing inside of
    f-strings, whose places Python 3.11 does not know.
    """
    match node:
        case ast.Raise() | ast.JoinedStr() | ast.Expr(ast.Constant()):
            return
        case ast.Call() if MESSAGES.fullmatch(ast.unparse(node.func)):
            return
        case ast.If(ast.Name('TYPE_CHECKING')):
            return
        case ast.If(ast.Compare(ast.Name('__name__'))):
            return
        case ast.FunctionDef(name=name, args=of):
            names = *names, name
            parts = [x for x in of.defaults + of.kw_defaults if x] + node.body
        case ast.ClassDef(name=name):
            names, parts = (*names, name), node.body
        case ast.Assert(test):
            parts = [test]
        case ast.AnnAssign(value=value):
            parts = [value] if value else []
        case _:
            parts = ast.iter_child_nodes(node)
    yield '.'.join(names), node
    for part in parts:
        yield from visited(part, names)


def changes(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yields nodes, the node or a part, and what may stand there instead."""
    match node:
        case ast.Compare(_, ops):
            for i, op in enumerate(ops):
                others = [*ops[:i], OTHER[type(op)](), *ops[i + 1 :]]
                yield node, changed(node, ops=others)
        case ast.BoolOp(op):
            yield node, changed(node, op=OTHER[type(op)]())
        case ast.BinOp(left, op, right) | ast.AugAssign(left, op, right):
            if type(op) in OTHER and not any(map(is_text, (left, right))):
                yield node, changed(node, op=OTHER[type(op)]())
        case ast.UnaryOp(ast.Not(), operand):
            yield operand, ast.UnaryOp(ast.Not(), operand)
        case ast.If(test) | ast.IfExp(test):
            yield test, ast.UnaryOp(ast.Not(), test)
        case ast.comprehension():
            for test in node.ifs:
                yield test, ast.UnaryOp(ast.Not(), test)
        case ast.keyword('axis', ast.Constant(int() as value)):
            yield node, changed(node, value=ast.Constant(int(not value)))
        case ast.Constant(bool() as value):
            yield node, ast.Constant(not value)
        case ast.Constant(int() as value):
            yield node, ast.Constant(value + 1)
        case ast.Constant(float() as value):
            yield node, ast.Constant(2 * value or 1.0)
        case ast.Subscript(_, ast.Constant(str() as key)):
            yield node.slice, ast.Constant(f'{key}_')
        case ast.Dict(keys):
            for key in keys:
                if isinstance(getattr(key, 'value', None), str):
                    yield key, ast.Constant(f'{key.value}_')
        case ast.Call():
            yield from arguments_of(node)


def changed(node: ast.AST, **fields: object) -> ast.AST:
    """Returns a node with other fields."""
    return type(node)(**{**dict(ast.iter_fields(node)), **fields})


def is_text(node: ast.AST) -> bool:
    """Returns whether a node is a string, also one that is formatted."""
    value = getattr(node, 'value', None)
    return isinstance(node, ast.JoinedStr) or isinstance(value, str)


def arguments_of(node: ast.Call) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yields a call without a keyword, or with two neighbours swapped."""
    for x in node.keywords:
        if x.arg:
            others = [y for y in node.keywords if y is not x]
            yield node, changed(node, keywords=others)
    if ast.unparse(node.func).split('.')[-1] not in SYMMETRIC:
        for i, pair in enumerate(itertools.pairwise(node.args)):
            if not any(map(is_text, pair)):
                others = [*node.args[:i], *pair[::-1], *node.args[i + 2 :]]
                yield node, changed(node, args=others)


def drawn(files: Sequence[str], count: int, seed: int) -> list[Fault]:
    """Draws functions of sorted files, and a fault of each."""
    generator = random.Random(seed)
    functions = [
        faults for file in files
        for faults in faults_of(file, (ROOT / file).read_bytes()).values()
    ]  # fmt: skip
    chosen = generator.sample(functions, min(count, len(functions)))
    return [generator.choice(faults) for faults in chosen]


@functools.cache
def importers() -> dict[str, set[pathlib.Path]]:
    """Returns files of tests by name of a module that they import."""
    files: dict[str, set[pathlib.Path]] = {}
    for path in (ROOT / 'tests').rglob('test_*.py'):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module:
                for name in ('', *(f'.{x.name}' for x in node.names)):
                    files.setdefault(node.module + name, set()).add(path)
    return files


def tests_of(file: str) -> tuple[str, ...]:
    """Returns the files of tests of a file: its mirror, its room, others.

    Others are those of `ALSO`, and tests that import the file, if few do.
    """
    path, tests = pathlib.PurePath(file), ROOT / 'tests'
    *folders, _ = path.parts
    if folders[0] == 'infoword_tf':
        folders = folders[1:] or [f'test_{path.stem}']
    names = folders[:1]
    for place in path, *path.parents:
        names += ALSO.get(str(place), '').split()
    files = {x for name in names for x in tests.glob(f'{name}.py')}
    files |= {x for name in names for x in (tests / name).rglob('test_*.py')}
    near = importers().get('.'.join(path.with_suffix('').parts), set())
    files |= near if len(near) <= FEW else set()
    if not files:
        raise SystemExit(f'error: no tests of {file}: name them in ALSO')
    order = sorted(files, key=lambda x: (
        not x.name.startswith(f'test_{path.stem}'),
        not x.is_relative_to(tests / folders[0]),
        x,
    ))  # fmt: skip
    return tuple(str(x.relative_to(ROOT)) for x in order)


class InOrder:
    """Plugin that runs the first tier, if it has any, in the order of files."""

    def __init__(self, files: Sequence[str]):
        self.files = files

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leaves out the second tier, and sorts as conftest.py does not."""
        first = [x for x in items if not x.get_closest_marker('second')]
        items[:] = sorted(
            first or items,
            key=lambda x: self.files.index(x.nodeid.split('::')[0]),
        )


def outcome(
    tests: Sequence[str], fault: Fault | None, limit: float | None
) -> tuple[float, str]:
    """Runs tests over a copy of the tree with a fault.

    Returns:
        Their seconds, and the test that failed, 'time' after the limit, or ''.
    """
    with tempfile.TemporaryDirectory(
        prefix='mutant_', ignore_cleanup_errors=True
    ) as folder:
        tree = pathlib.Path(folder, 'tree')
        ignored = shutil.ignore_patterns(*NOT_COPIED)
        shutil.copytree(ROOT, tree, symlinks=True, ignore=ignored)
        if fault:
            path = tree / fault.file
            path.write_bytes(fault.of(path.read_bytes()))
        process = multiprocessing.get_context('fork').Process(
            target=run_tests, args=(tree, tests)
        )
        began = time.monotonic()
        process.start()
        try:
            process.join(limit)
        finally:
            status, seconds = process.exitcode, time.monotonic() - began
            process.kill()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.join()
        if not status:
            return seconds, 'time' if status is None else ''
        log = tree.with_suffix('.log').read_text(errors='replace')
        names = re.findall(r'^(?:FAILED|ERROR) (\S+)', log, re.M)
        return seconds, [*names, f'status {status}: {log[-300:]}'][0]


def run_tests(tree: pathlib.Path, tests: Sequence[str]) -> None:
    """Runs tests of a tree in this process, which prints to a file."""
    os.setsid()
    log = os.open(tree.with_suffix('.log'), os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # The project is imported anew, but not what it imports.
    os.chdir(tree)
    for name in list(sys.modules):
        if (tree / name.split('.')[0]).is_dir():
            del sys.modules[name]
    others = [x for x in sys.path if x not in ('', str(ROOT))]
    sys.path[:] = [str(tree), *others]
    folder = str(tree.with_suffix('.tmp'))
    os.mkdir(folder)
    os.environ['PYTHONPATH'] = str(tree)
    os.environ['TMPDIR'] = os.environ['TEST_TMPDIR'] = folder
    tempfile.tempdir = None
    flags.FLAGS.set_default('test_tmpdir', folder)
    options = '-x', '-q', '-rfE', '-p', 'no:cacheprovider'
    sys.exit(pytest.main([*options, *tests], [InOrder(tests)]))


def imported() -> None:
    """Imports what tests need, of TensorFlow too, of which nothing begins."""
    importlib.import_module('tests.conftest')  # variables that TensorFlow reads
    lazy = importlib.import_module('infoword_tf.lazy')
    lazy.lean()
    lazy.import_keras()
    importlib.import_module('tensorflow_text')


def main(*arguments: str) -> int:
    """Plants faults, prints what becomes of them, and counts survivors."""
    parser = argparse.ArgumentParser('mutants', description=__doc__)
    parser.add_argument(
        '--files', help='globs with commas',
        default='infoword_tf/**/*.py,tasks/**/*.py,export/**/*.py',
    )  # fmt: skip
    parser.add_argument('--count', type=int, default=40)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--jobs', type=int, default=2)
    options = parser.parse_args(arguments)
    paths = {x for of in options.files.split(',') for x in ROOT.glob(of)}
    files = sorted(str(x.relative_to(ROOT)) for x in paths)
    faults = drawn(files, options.count, options.seed)
    print(*faults, sep='\n')
    imported()
    tests = [tests_of(x.file) for x in faults]
    sets = {frozenset(x): x for x in tests}
    limits, survivors = {}, []
    with concurrent.futures.ProcessPoolExecutor(
        options.jobs, multiprocessing.get_context('fork')
    ) as executor:
        nothing = itertools.repeat(None)
        outcomes = executor.map(outcome, sets.values(), nothing, nothing)
        for names, (seconds, failed) in zip(sets, outcomes, strict=True):
            print(f'{seconds:.0f} s without a fault: {", ".join(names)}')
            if failed:
                executor.shutdown(cancel_futures=True)
                raise SystemExit(f'error: without a fault {failed} fails')
            limits[names] = max(LEAST, TIMES * seconds)
        outcomes = executor.map(
            outcome, tests, faults, [limits[frozenset(x)] for x in tests]
        )
        for fault, (seconds, failed) in zip(faults, outcomes, strict=True):
            word = f'killed by {failed}' if failed else 'SURVIVED'
            print(f'{seconds:.0f} s {fault}: {word}')
            survivors += [] if failed else [fault]
    print('', f'{len(survivors)} of {len(faults)} survived:', sep='\n')
    print(*survivors, sep='\n')
    return len(survivors)


if __name__ == '__main__':
    sys.stdout.reconfigure(line_buffering=True)
    sys.exit(bool(main(*sys.argv[1:])))
