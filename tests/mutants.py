"""Faults that are drawn blindly and planted one by one: what no test notices.

A draw takes functions of the product at random, and a place of each. In a copy
of the tree that has the fault the tests of `tests_of` run until one fails.
"""

import argparse
import ast
import collections
import contextlib
import importlib
import itertools
import json
import math
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
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

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
# Tests of a file or folder besides its mirror and the folder of its room.
ALSO = {
    'infoword_tf/__init__.py': 'inference/test_loaded test_train',
    'infoword_tf/adapters.py': 'weights/test_peft',
    'infoword_tf/checkpoint.py': 'test_contract test_resume',
    'infoword_tf/choices.py': (
        'test_resolve test_complaints test_flags data/test_mixture'
    ),
    'infoword_tf/commands.py': 'test_complaints test_flags tasks/test_help',
    'infoword_tf/config.py': 'test_resolve test_model inference/test_loaded',
    'infoword_tf/convert.py': 'weights',
    'infoword_tf/errors.py': 'test_complaints',
    'infoword_tf/evaluation': (
        'tasks/test_mine tasks/test_retrieval tasks/test_sts tasks/test_tatoeba'
    ),
    'infoword_tf/files.py': (
        'data/test_store test_folders weights/test_complaints_of_weights'
    ),
    'infoword_tf/helptext.py': 'tasks/test_help',
    'infoword_tf/inference': 'tasks/test_classify',
    'infoword_tf/languages.py': (
        'data/test_mixture data/test_parallel test_language_runs'
    ),
    'infoword_tf/layers/attention.py': 'encoders/test_transformer',
    'infoword_tf/model.py': 'training/test_loop test_contract',
    'infoword_tf/pictures.py': 'test_show',
    'infoword_tf/preemption.py': 'test_resume',
    'infoword_tf/progress.py': 'data/test_store',
    'infoword_tf/resolve.py': 'test_plan test_memory data/test_batches',
    'infoword_tf/settings.py': 'test_config test_complaints',
    'infoword_tf/sizes.py': 'test_resolve',
    'infoword_tf/text': 'weights/test_added',
    'infoword_tf/training/checks.py': 'test_complaints',
    'infoword_tf/training/distribution.py': 'test_workers',
    'infoword_tf/training/guide.py': 'test_keys test_sentence_runs',
    'infoword_tf/training/record.py': 'test_keys test_resume',
    'infoword_tf/workdir.py': 'test_folders test_contract',
}
PAIRS = (
    (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq),
    (ast.In, ast.NotIn), (ast.Is, ast.IsNot), (ast.Add, ast.Sub),
    (ast.Mult, ast.Div), (ast.FloorDiv, ast.Mod), (ast.And, ast.Or),
)  # fmt: skip
OTHER = dict(PAIRS) | {b: a for a, b in PAIRS}
DEFINED = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
MESSAGES = re.compile(r'.*(Error|Exception|Warning|NoColumn)|logging\..*')
# Functions that read two arguments in any order.
SYMMETRIC = {
    'add', 'equal', 'logical_and', 'logical_or', 'logaddexp', 'max', 'maximum',
    'min', 'minimum', 'multiply', 'not_equal',
}  # fmt: skip


class Fault(NamedTuple):
    """A change of one place.

    Attributes:
        function: the qualified name; of a class, or '', outside of functions.
        before, after: Python of what changes.
        number: among faults of the function that read the same.
        start, end: bytes of the file, in place of which `after` stands.
    """

    file: str
    function: str
    before: str
    after: str
    number: int
    line: int
    start: int
    end: int

    def __str__(self):
        return f'{self.file}:{self.line}: {self.before} -> {self.after}'

    def of(self, content: bytes) -> bytes:
        """Returns the content of the file with the fault."""
        after = self.after.encode()
        return content[: self.start] + after + content[self.end :]


def faults_of(file: str, content: bytes) -> dict[str, list[Fault]]:
    """Returns the faults of a file, by function."""
    sizes = map(len, content.splitlines(keepends=True))
    starts = [0, *itertools.accumulate(sizes)]
    faults: dict[str, list[Fault]] = {}
    numbers: dict[Any, int] = collections.Counter()
    for function, node in visited(ast.parse(content)):
        for old, new in changes(node):
            what = file, function, ast.unparse(old), ast.unparse(new)
            if what[2] != what[3]:
                faults.setdefault(function, []).append(Fault(
                    *what, numbers[what], old.lineno,
                    starts[old.lineno - 1] + old.col_offset,
                    starts[old.end_lineno - 1] + old.end_col_offset,
                ))  # fmt: skip
                numbers[what] += 1
    return faults


def visited(node: ast.AST, names: tuple[str, ...] = ()) -> Iterator[Any]:
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
    yield '.'.join(names), node
    if isinstance(node, DEFINED):
        names = *names, node.name
    for part in parts_of(node):
        yield from visited(part, names)


def parts_of(node: ast.AST) -> Iterable[ast.AST]:
    """Returns the parts of a node that compute."""
    match node:
        case ast.FunctionDef(args=of) | ast.AsyncFunctionDef(args=of):
            return [x for x in of.defaults + of.kw_defaults if x] + node.body
        case ast.ClassDef():
            return node.body
        case ast.Assert():
            return [node.test]
        case ast.AnnAssign():
            return [node.value] if node.value else []
    return ast.iter_child_nodes(node)


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


def changed(node: ast.AST, **fields: Any) -> ast.AST:
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


def survivors_of(path: pathlib.Path) -> list[Fault]:
    """Returns what survived in a file of --write, where its lines are now."""
    known = [x for x in json.loads(path.read_text()) if not x['killed_by']]
    keys = {tuple(map(x.get, Fault._fields[:5])) for x in known}
    return [
        fault for file in sorted({x['file'] for x in known})
        for faults in faults_of(file, (ROOT / file).read_bytes()).values()
        for fault in faults if fault[:5] in keys
    ]  # fmt: skip


def room_of(file: str) -> str:
    """Returns the room of a file: the library's folder, another, or 'root'."""
    first, *names = file.split('/')
    if first != 'infoword_tf':
        return first
    return names[0] if names[1:] else 'root'


def tests_of(file: str) -> tuple[str, ...]:
    """Returns the files of tests of a file, those of its name before others."""
    path, tests = pathlib.PurePath(file), ROOT / 'tests'
    room = room_of(file)
    names = [f'test_{path.stem}' if room == 'root' else room]
    for place in path, *path.parents:
        names += ALSO.get(str(place), '').split()
    files = {x for name in names for x in tests.glob(f'{name}.py')}
    files |= {x for name in names for x in (tests / name).rglob('test_*.py')}
    if not files:
        raise SystemExit(f'error: no tests of {file}: name them in ALSO')
    order = sorted(files, key=lambda x: (
        not x.name.startswith(f'test_{path.stem}'), x,
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


class Running:
    """Tests in a fork of this process, over a copy of the tree with a fault."""

    def __init__(self, tests: Sequence[str], fault: Fault | None, limit: float):
        self.tests, self.fault, self.limit = tests, fault, limit
        self.tree = pathlib.Path(tempfile.mkdtemp(prefix='mutant_'), 'tree')
        ignored = shutil.ignore_patterns(*NOT_COPIED)
        shutil.copytree(ROOT, self.tree, symlinks=True, ignore=ignored)
        if fault:
            path = self.tree / fault.file
            path.write_bytes(fault.of(path.read_bytes()))
        self.process = multiprocessing.get_context('fork').Process(
            target=self._test
        )
        self.process.start()
        self.began = time.monotonic()

    def _test(self) -> None:
        """Runs the tests in this process, which prints to a file."""
        os.setsid()
        log = os.open(self.tree.with_suffix('.log'), os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        self._import_from_the_tree()
        folder = str(self.tree.with_suffix('.tmp'))
        os.mkdir(folder)
        os.environ.update(TMPDIR=folder, TEST_TMPDIR=folder)
        tempfile.tempdir = None
        flags.FLAGS.set_default('test_tmpdir', folder)
        options = '-x', '-q', '-rfE', '-p', 'no:cacheprovider'
        sys.exit(pytest.main([*options, *self.tests], [InOrder(self.tests)]))

    def _import_from_the_tree(self) -> None:
        """Imports the project anew, but not what it imports."""
        os.chdir(self.tree)
        for name in list(sys.modules):
            if (self.tree / name.split('.')[0]).is_dir():
                del sys.modules[name]
        others = [x for x in sys.path if x not in ('', str(ROOT))]
        sys.path[:] = [str(self.tree), *others]
        os.environ['PYTHONPATH'] = str(self.tree)

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began

    def is_over(self) -> bool:
        """Returns whether it ended, or its time did."""
        return not self.process.is_alive() or self.seconds > self.limit

    def failed(self) -> str:
        """Returns what failed of a run that is over, or ''."""
        if self.process.is_alive():
            return 'time'
        if not self.process.exitcode:
            return ''
        log = self.tree.with_suffix('.log').read_text(errors='replace')
        names = re.findall(r'^(?:FAILED|ERROR) (\S+)', log, re.M)
        return [*names, f'status {self.process.exitcode}: {log[-300:]}'][0]

    def end(self) -> None:
        """Ends what is left of its processes, and removes its files."""
        self.process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join()
        shutil.rmtree(self.tree.parent, ignore_errors=True)


def ended(
    runs: Sequence[tuple[Any, ...]], jobs: int
) -> Iterator[tuple[Running, str]]:
    """Yields runs of these arguments as they end, and what failed, or ''."""
    waiting, running = collections.deque(runs), []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(Running(*waiting.popleft()))
            time.sleep(0.05)
            for run in [x for x in running if x.is_over()]:
                yield run, run.failed()
                run.end()
                running.remove(run)
    finally:
        for run in running:
            run.end()


def imported() -> None:
    """Imports what tests need, of TensorFlow too, of which nothing begins."""
    importlib.import_module('tests.conftest')  # variables that TensorFlow reads
    lazy = importlib.import_module('infoword_tf.lazy')
    lazy.lean()
    lazy.import_keras()
    importlib.import_module('tensorflow_text')


def limits_of(sets: Iterable[Sequence[str]], jobs: int) -> dict[Any, float]:
    """Returns the seconds that sets of tests may take, which pass by now."""
    different = {frozenset(x): x for x in sets}.values()
    limits = {}
    for run, failed in ended([(x, None, math.inf) for x in different], jobs):
        print(f'{run.seconds:.0f} s without a fault: {", ".join(run.tests)}')
        if failed:
            raise SystemExit(f'error: without a fault {failed} fails')
        limits[frozenset(run.tests)] = max(LEAST, TIMES * run.seconds)
    return limits


def table_of(outcomes: Sequence[dict[str, Any]]) -> str:
    """Returns survivors, and a table of rooms."""
    line = '{file}:{line} {function}: {before} -> {after}'
    lines = [line.format(**x) for x in outcomes if not x['killed_by']]
    rooms = collections.defaultdict(list)
    for x in outcomes:
        rooms[room_of(x['file'])].append(x['killed_by'])
    lines = ['', 'Survivors:', *lines]
    lines += ['', '| room | planted | killed | survived |', '|---|---|---|---|']
    for room, of in sorted(rooms.items()):
        lost = of.count('')
        lines.append(f'| {room} | {len(of)} | {len(of) - lost} | {lost} |')
    return '\n'.join(lines)


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
    parser.add_argument('--write', type=pathlib.Path, help='outcomes, as JSON')
    parser.add_argument(
        '--only', type=pathlib.Path, help='survivors of a file of --write'
    )
    options = parser.parse_args(arguments)
    if options.only:
        faults = survivors_of(options.only)
    else:
        paths = {x for of in options.files.split(',') for x in ROOT.glob(of)}
        files = sorted(str(x.relative_to(ROOT)) for x in paths)
        faults = drawn(files, options.count, options.seed)
    print(*faults, sep='\n')
    imported()
    tests = [tests_of(x.file) for x in faults]
    limits = limits_of(tests, options.jobs)
    runs = [
        (names, fault, limits[frozenset(names)])
        for names, fault in zip(tests, faults, strict=True)
    ]
    outcomes = []
    for run, failed in ended(runs, options.jobs):
        outcomes.append(run.fault._asdict() | {'killed_by': failed})
        word = f'killed by {failed}' if failed else 'SURVIVED'
        print(f'{len(outcomes)}: {run.seconds:.0f} s {run.fault}: {word}')
        if options.write:
            options.write.write_text(json.dumps(outcomes, indent=1))
    print(table_of(outcomes))
    return sum(not x['killed_by'] for x in outcomes)


if __name__ == '__main__':
    sys.stdout.reconfigure(line_buffering=True)
    sys.exit(bool(main(*sys.argv[1:])))
