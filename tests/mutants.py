"""Faults that are drawn blindly and planted one by one: what no test notices.

    python -m tests.mutants [--room=layers,views] [--files=GLOB,...]
        [--count=40] [--seed=0] [--jobs=2] [--write=FILE] [--only=FILE]

A draw takes functions of the product at random, and a place of each. In a copy
of the tree that has the fault the tests of `TESTS` run until one fails. --only
plants what survived in a file that --write wrote, also where lines have moved.
"""

import ast
import collections
import contextlib
import fnmatch
import importlib
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from absl import flags

ROOT = pathlib.Path(__file__).resolve().parent.parent
PRODUCT = 'infoword_tf', 'tasks', 'export'
NOT_COPIED = (
    '.git', '.venv*', '.*_cache', '*.egg-info', '__pycache__', 'build', 'dist',
    'models', 'runs',
)  # fmt: skip
# Seconds that tests may take: at least; times the first; of the first.
LEAST, TIMES, MOST = 60, 3, 3600
# Files and folders of tests, of a file or folder of the product: the most
# specific name counts. A folder is its files without LONG, whole programs.
TESTS = {
    'export': 'export',
    'export/bundle.py': 'export/test_versions export',
    'export/card.py': 'export/test_versions export',
    'export/litert.py': 'export/test_litert',
    'export/savedmodel.py': 'export/test_savedmodel',
    'export/serving': 'export/test_client export',
    'export/signatures.py': 'export/test_answer export/test_savedmodel',
    'infoword_tf/__init__.py': 'test_packaging',
    'infoword_tf/adapters.py': 'test_adapters weights/test_peft',
    'infoword_tf/checkpoint.py': (
        'test_checkpoint test_faults test_contract test_resume'
    ),
    'infoword_tf/choices.py': (
        'test_resolve test_settings test_complaints test_flags '
        'data/test_mixture'
    ),
    'infoword_tf/commands.py': (
        'test_complaints test_flags test_packaging tasks/test_help '
        'tasks/test_typed'
    ),
    'infoword_tf/config.py': (
        'test_config test_resolve test_model test_adapters '
        'inference/test_loaded'
    ),
    'infoword_tf/convert.py': 'weights',
    'infoword_tf/data': 'data',
    'infoword_tf/data_service.py': 'test_data_service',
    'infoword_tf/encoders': 'encoders',
    'infoword_tf/errors.py': 'test_complaints',
    'infoword_tf/evaluation': (
        'evaluation tasks/test_retrieval tasks/test_sts tasks/test_tatoeba '
        'tasks/test_mine tasks/test_wrong_files'
    ),
    'infoword_tf/files.py': (
        'data/test_store test_folders weights/test_complaints_of_weights '
        'test_faults'
    ),
    'infoword_tf/folders.py': 'test_folders',
    'infoword_tf/helptext.py': 'tasks/test_help test_packaging',
    'infoword_tf/inference': 'inference',
    'infoword_tf/inference/classes.py': 'tasks/test_classify inference',
    'infoword_tf/keras_models.py': 'test_keras_models',
    'infoword_tf/languages.py': (
        'data/test_mixture data/test_parallel tasks/test_tatoeba '
        'test_language_runs'
    ),
    'infoword_tf/layers': 'layers',
    'infoword_tf/layers/attention.py': 'layers encoders/test_transformer',
    'infoword_tf/lazy.py': 'test_lazy test_adapters',
    'infoword_tf/model.py': (
        'test_model training/test_loop test_adapters test_contract'
    ),
    'infoword_tf/objectives': 'objectives',
    'infoword_tf/pictures.py': 'test_show',
    'infoword_tf/preemption.py': 'test_resume',
    'infoword_tf/prepare.py': 'test_prepare',
    'infoword_tf/progress.py': 'test_progress data/test_store',
    'infoword_tf/resolve.py': (
        'test_resolve test_plan test_model test_memory data/test_batches'
    ),
    'infoword_tf/settings.py': 'test_settings test_config test_complaints',
    'infoword_tf/show.py': 'test_show',
    'infoword_tf/sizes.py': 'test_resolve',
    'infoword_tf/text': 'text',
    'infoword_tf/train.py': 'test_packaging test_train',
    'infoword_tf/training': 'training',
    'infoword_tf/training/checks.py': (
        'test_complaints tasks/test_typed training'
    ),
    'infoword_tf/training/distribution.py': (
        'training/test_distribution test_workers'
    ),
    'infoword_tf/training/guide.py': 'test_keys test_sentence_runs',
    'infoword_tf/training/record.py': 'training test_keys test_resume',
    'infoword_tf/training/run.py': 'training test_train',
    'infoword_tf/views': 'views',
    'infoword_tf/weights': 'weights',
    'infoword_tf/workdir.py': (
        'test_workdir test_folders inference/test_loaded test_contract'
    ),
    'tasks': 'tasks',
    'tasks/bm25.py': 'tasks/test_retrieval evaluation',
    'tasks/classify.py': 'tasks/test_classify',
    'tasks/distill.py': 'tasks/test_embedding tasks/test_students',
    'tasks/finetune.py': 'tasks/test_classify tasks/test_glue',
    'tasks/flow.py': 'tasks/test_flow_command',
    'tasks/glue.py': 'tasks/test_glue tasks/test_help',
    'tasks/student.py': 'tasks/test_students tasks/test_translated_students',
    'tasks/tag.py': 'tasks/test_tag_command',
    'tasks/tag_data.py': 'tasks/test_tag_command',
    'tasks/tag_scores.py': 'tasks/test_tag_command',
    'tasks/tag_windows.py': 'tasks/test_tag_command',
    'tasks/teacher.py': (
        'tasks/test_embedding tasks/test_students '
        'tasks/test_translated_students'
    ),
    'tasks/whiten.py': 'tasks/test_whiten',
}
LONG = """
    export/test_converted export/test_finetuned export/test_litert
    export/test_savedmodel tasks/test_all_tasks tasks/test_classify
    tasks/test_flow_command tasks/test_glue tasks/test_students
    tasks/test_tag_command tasks/test_translated_students tasks/test_whiten
    training/test_combined training/test_distribution training/test_compiled
""".split()
# It asks what is imported where PYTHONPATH does not name the tree.
LEFT_OUT = (
    'tests/test_packaging.py::SetupTest::'
    'test_a_script_beside_the_checkout_can_import_it'
)
PAIRS = (
    ('<', '<='), ('>', '>='), ('==', '!='), ('in', 'not in'), ('is', 'is not'),
    ('+', '-'), ('*', '/'), ('//', '%'), ('and', 'or'),
)  # fmt: skip
OTHER = dict(PAIRS) | {b: a for a, b in PAIRS}
OPERATOR = re.compile(
    rb'#[^\n]*|(\bnot\s+in\b|\bis\s+not\b|\b(?:in|is|and|or)\b'
    rb'|//|<=|>=|==|!=|[-+*/%<>])'
)
ARITHMETIC = ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod
DEFINED = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
MESSAGES = re.compile(r'.*(Error|Exception|Warning|NoColumn)|logging\..*')
# Functions that read two arguments in any order.
SYMMETRIC = {
    'add', 'equal', 'logical_and', 'logical_or', 'logaddexp', 'max', 'maximum',
    'min', 'minimum', 'multiply', 'not_equal',
}  # fmt: skip
Change = tuple[int, int, bytes]  # from, to, the new text


class Fault(NamedTuple):
    """A change of one place.

    Attributes:
        function: the qualified name; of a class, or '', outside of functions.
        before, after: lines that differ, as one.
        number: among faults of the function that read the same.
        content: of the whole file, with the fault.
    """

    file: str
    function: str
    before: str
    after: str
    number: int
    line: int
    content: bytes

    def __str__(self):
        return f'{self.file}:{self.line}: {self.before} -> {self.after}'


class Source:
    """Python in UTF-8, and what may change in it."""

    def __init__(self, content: bytes):
        self.content, self.tree = content, ast.parse(content)
        sizes = map(len, content.splitlines(keepends=True))
        self.starts = [0, *itertools.accumulate(sizes)]

    def faults(self, file: str) -> dict[str, list[Fault]]:
        """Returns the faults of a file of this content, by function."""
        faults: dict[str, list[Fault]] = {}
        numbers: dict[Any, int] = collections.Counter()
        for function, node in visited(self.tree):
            for start, end, new in self._changes(node):
                content = self.content[:start] + new + self.content[end:]
                begin = self.content.rfind(b'\n', 0, start) + 1
                rest = len(self.content[end:].partition(b'\n')[2])
                what = (file, function, *(
                    ' '.join(x[begin : len(x) - rest].decode().split())
                    for x in (self.content, content)
                ))  # fmt: skip
                line = self.content.count(b'\n', 0, start) + 1
                fault = Fault(*what, numbers[what], line, content)
                faults.setdefault(function, []).append(fault)
                numbers[what] += 1
        return faults

    def differs(self, content: bytes) -> bool:
        """Returns whether content is Python, and other Python than this."""
        try:
            compile(content, 'fault', 'exec')
        except SyntaxError:
            return False
        return ast.dump(ast.parse(content)) != ast.dump(self.tree)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _changes(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Compare():
                yield from self._operators(node.left, *node.comparators)
            case ast.BoolOp():
                yield from self._operators(*node.values)
            case ast.BinOp(left, op, right) if isinstance(op, ARITHMETIC):
                if not (is_text(left) or is_text(right)):
                    yield from self._operators(left, right)
            case ast.AugAssign(left, op, right) if isinstance(op, ARITHMETIC):
                if not is_text(right):
                    yield from self._operators(left, right)
            case ast.UnaryOp(ast.Not()):
                start, end = self._span(node)
                yield start, end, self.content[start + 3 : end].lstrip()
            case ast.If() | ast.IfExp():
                yield from self._condition(node.test)
            case ast.comprehension():
                for test in node.ifs:
                    yield from self._condition(test)
            case ast.keyword('axis', value) if type(of(value)) is int:
                new = of(value) - 1 if of(value) > 0 else of(value) + 1
                yield *self._span(value), str(new).encode()
            case ast.Constant() | ast.UnaryOp() if of(node) is not None:
                yield *self._span(node), another(of(node)).encode()
            case ast.Subscript() | ast.Dict():
                keys = getattr(node, 'keys', [getattr(node, 'slice', None)])
                for key in keys:
                    if isinstance(key, ast.Constant) and is_text(key):
                        yield *self._span(key), another(key.value).encode()
            case ast.Call():
                yield from self._arguments(node)

    def _operators(self, *nodes: ast.AST) -> Iterator[Change]:
        """Changes what stands between nodes."""
        for pair in itertools.pairwise(nodes):
            (_, start), (end, _) = map(self._span, pair)
            for x in OPERATOR.finditer(self.content, start, end):
                if x[1]:
                    new = OTHER[' '.join(x[1].decode().split())]
                    yield *x.span(), new.encode()

    def _condition(self, test: ast.AST) -> Iterator[Change]:
        """Negates what no other change negates."""
        others = ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot
        match test:
            case ast.UnaryOp(ast.Not()):
                pass
            case ast.Compare(ops=[op]) if isinstance(op, others):
                pass
            case _:
                start, end = self._span(test)
                yield start, end, b'not (' + self.content[start:end] + b')'

    def _arguments(self, node: ast.Call) -> Iterator[Change]:
        """Drops a keyword, swaps two neighbours."""
        spans = sorted(map(self._span, node.args + node.keywords))
        for keyword in node.keywords:
            start, end = self._span(keyword)
            place = spans.index((start, end))
            if place:  # from the comma before
                before = self.content[spans[place - 1][1] : start]
                start -= len(before) - before.index(b',')
            elif spans[1:]:
                end = spans[1][0]
            if keyword.arg not in (None, 'help', 'help_'):
                yield start, end, b''
        if ast.unparse(node.func).split('.')[-1] in SYMMETRIC:
            return
        for pair in itertools.pairwise(node.args):
            (start, left), (right, end) = map(self._span, pair)
            texts = self.content[start:left], self.content[right:end]
            # A text of several words is a help text, or a message.
            if not any(
                isinstance(x, ast.Starred) or (is_text(x) and b' ' in text)
                for x, text in zip(pair, texts, strict=True)
            ):
                between = self.content[left:right]
                yield start, end, between.join(reversed(texts))


def visited(node: ast.AST, names: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yields the function and each node whose change is a fault.

    No docstrings, annotations, decorators, messages, and nothing inside of
    f-strings, whose places Python 3.11 does not know.
    """
    match node:
        case ast.Raise() | ast.Import() | ast.ImportFrom() | ast.JoinedStr():
            return
        case ast.Expr(ast.Constant()):
            return
        case ast.Assign([ast.Name('__all__' | '__slots__')]):
            return
        case ast.Call() if MESSAGES.fullmatch(ast.unparse(node.func)):
            return
        case ast.If(ast.Name('TYPE_CHECKING')):
            for part in node.orelse:
                yield from visited(part, names)
            return
        case ast.If() if '__name__' in ast.unparse(node.test):
            return
        case ast.Lambda() | ast.FunctionDef() | ast.AsyncFunctionDef():
            defaults = node.args.defaults + node.args.kw_defaults
            body = node.body if isinstance(node.body, list) else [node.body]
            parts = [x for x in defaults if x] + body
        case ast.ClassDef():
            parts = node.body
        case ast.Assert():
            parts = [node.test]
        case ast.AnnAssign():
            parts = [node.value] if node.value else []
        case ast.keyword('help' | 'help_'):
            return
        case ast.keyword('axis', value) if type(of(value)) is int:
            parts = []
        case ast.UnaryOp() if of(node) is not None:
            parts = []
        case _:
            parts = list(ast.iter_child_nodes(node))
    yield '.'.join(names), node
    if isinstance(node, DEFINED):
        names = *names, node.name
    for part in parts:
        yield from visited(part, names)


def of(node: ast.AST) -> bool | int | float | None:
    """Returns the number that a node is, also a negative one."""
    match node:
        case ast.Constant(bool() | int() | float() as value):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
            return -value
    return None


def is_text(node: ast.AST) -> bool:
    """Returns whether a node is a string, also one that is formatted."""
    value = getattr(node, 'value', None)
    return isinstance(node, ast.JoinedStr) or isinstance(value, str)


def another(value: Any) -> str:
    """Returns the text of another constant: not n, n + 1, twice x, x_."""
    if isinstance(value, bool):
        return repr(not value)
    if isinstance(value, str):
        return repr(f'{value}_')
    return repr(value + 1 if isinstance(value, int) or not value else 2 * value)


def drawn(
    root: pathlib.Path, files: Sequence[str], count: int, seed: int
) -> list[Fault]:
    """Draws functions of sorted files, and a fault of each."""
    generator = random.Random(seed)
    sources = {file: Source((root / file).read_bytes()) for file in files}
    functions = [x for f in files for x in sources[f].faults(f).values()]
    faults: list[Fault] = []
    for choices in generator.sample(functions, len(functions)):
        order = generator.sample(choices, len(choices))
        differing = (x for x in order if sources[x.file].differs(x.content))
        faults += itertools.islice(differing, len(faults) < count)
    return faults


def again(root: pathlib.Path, known: Mapping[str, Any]) -> Fault | None:
    """Returns the fault of a file that --write wrote, where it is now."""
    faults = Source((root / known['file']).read_bytes()).faults(known['file'])
    alike = [
        x for x in faults.get(known['function'], [])
        if (x.before, x.after) == (known['before'], known['after'])
    ]  # fmt: skip
    return alike[min(known['number'], len(alike) - 1)] if alike else None


def room_of(file: str) -> str:
    """Returns the room of a file: the library's folder, another, or 'root'."""
    first, *names = file.split('/')
    if first != 'infoword_tf':
        return first
    return names[0] if names[1:] else 'root'


def tests_of(root: pathlib.Path, file: str) -> tuple[str, ...]:
    """Returns the files of tests of a file, its own before others."""
    place = file
    while place not in TESTS:
        place, parts, _ = place.rpartition('/')
        if not parts:
            raise SystemExit(f'error: TESTS has no tests of {file}')
    left_out = {f'tests/{name}.py' for name in LONG}
    names: dict[str, None] = {}
    for name in TESTS[place].split():
        paths = (root / 'tests' / name).rglob('test_*.py')
        inside = {str(x.relative_to(root)) for x in paths} - left_out
        names |= dict.fromkeys(sorted(inside) or [f'tests/{name}.py'])
    mirror = f'/test_{pathlib.Path(file).name}'
    return tuple(sorted(names, key=lambda x: not x.endswith(mirror)))


def _child(tree: pathlib.Path, tests: Sequence[str]) -> None:
    """Runs tests in a group of processes of its own, and exits the process."""
    os.setsid()
    log = os.open(tree.with_suffix('.log'), os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(tree)
    for name in list(sys.modules):
        if name.split('.')[0] in (*PRODUCT, 'tests', 'benchmarks'):
            del sys.modules[name]
    others = [x for x in sys.path if x not in ('', str(ROOT))]
    sys.path[:] = [str(tree), *others]
    sys.dont_write_bytecode, tempfile.tempdir = True, None
    folder = str(tree.with_suffix('.tmp'))
    os.mkdir(folder)
    os.environ.update(
        PYTHONPATH=str(tree), PYTHONDONTWRITEBYTECODE='1',
        TMPDIR=folder, TEST_TMPDIR=folder,
    )  # fmt: skip
    if 'test_tmpdir' in flags.FLAGS:
        flags.FLAGS.set_default('test_tmpdir', folder)
    sys.argv = [
        'pytest', '-x', '-q', '-rfE', '-p', 'no:cacheprovider',
        f'--deselect={LEFT_OUT}', *tests,
    ]  # fmt: skip
    try:
        status = int(pytest.main(sys.argv[1:]))
    except BaseException:
        status = 3
    sys.stdout.flush()
    os._exit(status)


class Run(NamedTuple):
    """Tests of at most `limit` seconds, and a fault, if any."""

    tests: tuple[str, ...]
    fault: Fault | None
    limit: float


def ended(
    root: pathlib.Path, runs: Iterable[Run], jobs: int
) -> Iterator[tuple[Run, float, str]]:
    """Yields runs as they end, their seconds, and what failed, or ''."""
    waiting, running = collections.deque(runs), {}
    ignored = shutil.ignore_patterns(*NOT_COPIED)
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                run = waiting.popleft()
                tree = pathlib.Path(tempfile.mkdtemp(prefix='mutant_'), 'tree')
                shutil.copytree(root, tree, symlinks=True, ignore=ignored)
                if run.fault:
                    (tree / run.fault.file).write_bytes(run.fault.content)
                sys.stdout.flush()
                if not (pid := os.fork()):
                    _child(tree, run.tests)
                running[pid] = run, tree, time.monotonic()
            time.sleep(0.05)
            for pid, (run, tree, began) in list(running.items()):
                seconds = time.monotonic() - began
                over, status = os.waitpid(pid, os.WNOHANG)
                if not over and seconds < run.limit:
                    continue
                log = tree.with_suffix('.log').read_text(errors='replace')
                _end(pid, tree, bool(over))
                del running[pid]
                names = re.findall(r'^(?:FAILED|ERROR) (\S+)', log, re.M)
                what = (names or [f'status {status}: {log[-300:]}'])[0]
                what = what if over else 'time'
                yield run, seconds, what if status or not over else ''
    finally:
        for pid, (_, tree, _) in running.items():
            _end(pid, tree, False)


def _end(pid: int, tree: pathlib.Path, over: bool) -> None:
    """Ends what is left of a process and of those that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if not over:
        os.waitpid(pid, 0)
    shutil.rmtree(tree.parent, ignore_errors=True)


def imported() -> None:
    """Imports what tests need, of TensorFlow too, of which nothing begins."""
    importlib.import_module('tests.conftest')  # variables that TensorFlow reads
    lazy = importlib.import_module('infoword_tf.lazy')
    lazy.lean()
    lazy.import_keras()
    importlib.import_module('tensorflow_text')


def main(*arguments: str) -> int:
    """Plants faults, prints what becomes of them, and counts survivors."""
    options = dict(x.removeprefix('--').split('=', 1) for x in arguments)
    globs = options.get('files', '*').split(',')
    rooms = options.get('room', '').split(',')
    files = sorted(
        str(path.relative_to(ROOT))
        for name in PRODUCT for path in (ROOT / name).rglob('*.py')
    )  # fmt: skip
    tests = {file: tests_of(ROOT, file) for file in files}
    if 'only' in options:
        known = json.loads(pathlib.Path(options['only']).read_text())
        faults = [again(ROOT, x) for x in known if not x['killed_by']]
        print(f'{faults.count(None)} are no longer there')
        faults = [x for x in faults if x]
    else:
        files = [
            x for x in files
            if any(fnmatch.fnmatchcase(x, glob) for glob in globs)
            and (rooms == [''] or room_of(x) in rooms)
        ]  # fmt: skip
        numbers = (int(options.get(*x)) for x in (('count', 40), ('seed', 0)))
        faults = drawn(ROOT, files, *numbers)
    print(*faults, sep='\n')
    imported()
    jobs = int(options.get('jobs', 2))
    limits: dict[frozenset[str], float] = {}
    sets = {frozenset(tests[x.file]): tests[x.file] for x in faults}
    plain = [Run(x, None, MOST) for x in sets.values()]
    for run, seconds, failed in ended(ROOT, plain, jobs):
        print(f'{seconds:.0f} s without a fault: {", ".join(run.tests)}')
        if failed:
            print(f'error: without a fault {failed} fails')
        else:
            limits[frozenset(run.tests)] = max(LEAST, TIMES * seconds)
    runs = [
        Run(tests[x.file], x, limits[frozenset(tests[x.file])])
        for x in faults if frozenset(tests[x.file]) in limits
    ]  # fmt: skip
    outcomes = []
    for run, seconds, failed in ended(ROOT, runs, jobs):
        outcome = {**run.fault._asdict(), 'killed_by': failed}
        del outcome['content']
        outcomes.append(outcome | {'seconds': round(seconds)})
        word = f'killed by {failed}' if failed else 'SURVIVED'
        print(f'{len(outcomes)}: {seconds:.0f} s {run.fault}: {word}')
        if 'write' in options:
            text = json.dumps(outcomes, indent=1)
            pathlib.Path(options['write']).write_text(text)
    table = {room_of(x.file): [0, 0, 0] for x in sorted(faults)}
    print('\nSurvivors:')
    for x in outcomes:
        for column in 0, 1 if x['killed_by'] else 2:
            table[room_of(x['file'])][column] += 1
        if not x['killed_by']:
            print('{file}:{line} {function}: {before} -> {after}'.format(**x))
    print('\n| room | drawn | killed | survived |\n|---|---|---|---|')
    for room, numbers in table.items():
        print(f'| {room} | {" | ".join(map(str, numbers))} |')
    return len(plain) - len(limits) + sum(x[2] for x in table.values())


if __name__ == '__main__':
    sys.stdout.reconfigure(line_buffering=True)
    sys.exit(bool(main(*sys.argv[1:])))
