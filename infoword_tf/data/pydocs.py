"""The corpus `pydocs`: the English docstrings that every machine already has.

Docstrings of the standard library of the running interpreter and of all that
the project depends on. In the order in which it happens:

  dependency_closure, stdlib_files, distribution_files   which files
  extract      source -> docstrings -> `prose` -> documents, in parallel
  split_heldout    what trains, what is held out, what is neither
  build, load      the cache on disk

Sources are parsed, never imported. Processes that parse are plain
subprocesses: `fork` would not be safe beside TensorFlow's threads, and
`multiprocessing`'s `spawn` imports the main module again, which in a training
run is TensorFlow itself. Hence this file needs only light imports.
"""

import ast
import collections
import concurrent.futures
import contextlib
import hashlib
import importlib.metadata
import inspect
import itertools
import json
import os
import pathlib
import platform
import queue
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from infoword_tf.data import documents

Document = documents.Document

# Part of the cache's name: count up when the same files give other documents.
EXTRACTION = 1

PROJECT = 'infoword_tf'
STDLIB = 'python'  # the "distribution" of the standard library, and its package
MIN_WORDS = 8  # of a document: one shingle
HELDOUT_IN = 20  # one document in so many is a candidate
SHINGLE = 8  # words
MAX_SHARED = 0.2  # of a candidate's shingles; from here on it is dropped

_BATCH = 48  # files parsed per message to a process: ~0.1 s of work


# --- Which files -------------------------------------------------------------


class File(NamedTuple):
    """A source file: its place on disk, and its name in `Document.source`."""

    path: str
    name: str


_SKIPPED_FOLDERS = frozenset(
    'test tests idle_test site-packages dist-packages __pycache__'.split()
)


def _is_wanted(parts: tuple[str, ...]) -> bool:
    name = parts[-1]
    return (
        name.endswith('.py')
        and not name.endswith(('_test.py', '_pb2.py', '_pb2_grpc.py'))
        and not name.startswith('test_')
        and _SKIPPED_FOLDERS.isdisjoint(p.lower() for p in parts[:-1])
    )


def stdlib_files() -> list[File]:
    """The standard library's source files, sorted, tests left out."""
    root = pathlib.Path(sysconfig.get_path('stdlib'))
    names = []
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [f for f in subfolders if f not in _SKIPPED_FOLDERS]
        parts = pathlib.Path(folder).relative_to(root).parts
        names += ['/'.join((*parts, f)) for f in files]
    return [
        File(str(root / name), f'{STDLIB}/{name}')
        for name in sorted(names)
        if _is_wanted(tuple(name.split('/')))
    ]


def _normalised(name: str) -> str:
    return re.sub(r'[-_.]+', '-', name).lower()


def dependency_closure(
    requirements: Sequence[str] | None = None,
) -> dict[str, importlib.metadata.Distribution]:
    """Installed distributions that the requirements lead to, without extras.

    Args:
      requirements: where to begin, as in setup.py; by default what the
        installed distribution of this project requires.

    Returns:
      Normalised name -> distribution, sorted by name.

    Raises:
      RuntimeError: the project is not an installed distribution.
    """
    from packaging.requirements import Requirement

    if requirements is None:
        try:
            requirements = importlib.metadata.requires(PROJECT) or []
        except importlib.metadata.PackageNotFoundError:
            raise RuntimeError(
                f'The corpus pydocs reads what {PROJECT} depends on, but '
                f'{PROJECT} is not installed in {sys.prefix}: run '
                '`pip install -e .` in the root of the project first.'
            ) from None
    closure: dict[str, importlib.metadata.Distribution] = {}
    waiting = list(requirements)
    while waiting:
        requirement = Requirement(waiting.pop())
        marker = requirement.marker
        name = _normalised(requirement.name)
        if name in closure or (marker and not marker.evaluate({'extra': ''})):
            continue
        try:
            closure[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # what is not installed has nothing to read
        waiting += closure[name].requires or []
    return dict(sorted(closure.items()))


def distribution_files(
    distribution: importlib.metadata.Distribution,
) -> list[File]:
    """The source files that a distribution installed, sorted."""
    names = {
        '/'.join(f.parts)
        for f in distribution.files or []
        if '..' not in f.parts and _is_wanted(f.parts)
    }
    return [
        File(str(distribution.locate_file(name)), name)
        for name in sorted(names)
    ]


def package(source: str) -> str:
    """The package that a document of this source is from, `python` included.

    >>> package("numpy/linalg/_linalg.py:norm")
    'numpy'
    """
    return re.split(r'[/:]', source, maxsplit=1)[0].removesuffix('.py')


# --- Prose: what of a docstring is English -----------------------------------

# Sections whose content is a list of names, code or both. Notes are kept.
_SECTIONS = (
    r'args|arguments|call[ ]args|call[ ]arguments|attributes|parameters'
    r'|other[ ]parameters|params|kwargs|keyword[ ]arg(?:ument)?s|inputs?'
    r'|outputs?|input[ ]shapes?|output[ ]shapes?|returns?|return[ ]values?'
    r'|yields?|receives?|raises?|throws|exceptions|warns?|methods|properties'
    r'|see[ ]also|references?|citations?|todos?|authors?|copyright|license'
    r'|fields|variables|options|constants|classes|functions|subclasses'
)
_EXAMPLES = r'examples?|(?:example|sample|standalone)?[ ]?usage|example[ ]code'
_DROPPED_SECTION = re.compile(rf'(?:{_SECTIONS}):{{0,2}}', re.I | re.X)
_KEPT = (
    r'notes?|n\.?b\.?|warnings?|caution|important|tips?|hint|remarks?|details'
    r'|description|background|compatibility|motivation|caveats?|deprecated'
)
_KEPT_SECTION = re.compile(rf'(?:{_KEPT}):{{1,2}}', re.I)
# Lines that begin something other than prose, wherever they stand; what is
# indented deeper below them, and the rest of their paragraph, goes with them.
_HEAD = re.compile(
    rf"""\.\.(?:\s|$)                   # a directive, comment or footnote
    | :[^`:]+:(?:\s|$) | @\w            # fields of Sphinx and Epydoc
    | \#{{1,6}}\s                       # a heading of Markdown
    | [|+]                              # a grid
    | \$\$                              # an equation
    | (?:{_SECTIONS}|{_EXAMPLES}):{{1,2}}\s*$""",
    re.I | re.X,
)
# The same, but only at the beginning of a paragraph or of a list's item, for
# in the middle it may be a line of prose that was broken there.
_FIRST_HEAD = re.compile(
    rf"""(?:{_SECTIONS}|{_EXAMPLES}):\s
    | (?:todo|fixme|xxx)\b
    | where\s                           # the symbols of an equation above
    | (?!(?:{_KEPT}):)                  # a name, its type, and then its text
      [`*'"]{{0,3}}[a-z_][\w.-]*(?:,\s*\*{{0,2}}[\w.]+)*[`*'"]{{0,3}}\s*
      (?:\([^)]*\)|\[[^\]]*\])?\s*[`*]{{0,2}}(?::\s|:$|--?\s|–\s|=\s|->)
    | [^\s.]+\([^)]*\)(?:\s*(?:->|:|=|--).*|\s*)$        # a signature""",
    re.I | re.X,
)
_ITEM = re.compile(r'(?:[-*+•·–]|\(?(?:\d{1,2}|[a-h])\)|\d{1,2}\.)\s+(?=\S)')
_UNDERLINE = re.compile(r"([-=~^#*+_'\"`.])\1{2,}$")
_BORDER = re.compile(r'\+?[-=]{2,}(?:[ +|]+[-=]{2,})+|.*\s\|\s.*\s\|')
_FENCED = re.compile(r'^[ ]*(```|~~~).*?(?:^[ ]*\1[`~ ]*$|\Z)', re.M | re.S)
_DOCTEST = re.compile(r'^[ ]*>>>.*(?:\n.*\S.*)*', re.M)
_WRAPPED = 50  # characters: a first line as long as this was broken by width


def prose(docstring: str) -> list[str]:
    """The sentences of English in a docstring, markup made plain.

    Keeps the summary line, the paragraphs of running text and the items of
    lists that are sentences. Leaves out code, doctests, tables, headings, and
    the descriptions of parameters in the styles of NumPy, Google and Sphinx.
    """
    text = inspect.cleandoc(docstring)
    if '```' in text or '~~~' in text:
        text = _FENCED.sub('', text)
    if '>>>' in text:
        text = _DOCTEST.sub('', text)
    sentences: list[str] = []
    for paragraph in _paragraphs(text.split('\n')):
        if not any(map(_BORDER.match, paragraph.lines)):
            text = ' '.join(paragraph.lines)
            sentences += _sentences(text, paragraph.is_summary)
    return sentences


class _Paragraph(NamedTuple):
    """Lines of what may be running text; `is_summary`: nothing precedes it."""

    lines: list[str]
    is_summary: bool


def _paragraphs(lines: Iterable[str]) -> Iterator[_Paragraph]:
    """Yields the paragraphs that are not marked as something else.

    Indentation tells most: what is deeper than the text around it is code, a
    quotation, or belongs to the line above it.
    """
    paragraph = _Paragraph([], True)
    base: int | None = 0  # indentation of the text here; None: the next line's
    above: int | None = None  # what is indented deeper than this is dropped
    in_section = in_rest = False  # drop until the next heading, blank line
    text = ''
    for line in itertools.chain(lines, ['']):
        before, text = text, line.strip()
        indent = len(line) - len(line.lstrip())
        if not text:
            in_rest = False
            if before:  # the paragraph ends, be it kept or not
                yield paragraph
                paragraph = _Paragraph([], False)
            continue
        if above is not None:
            if indent > above:
                continue
            above = None
        if before and _UNDERLINE.match(text):
            del paragraph.lines[-1:]  # the heading
            yield paragraph
            paragraph = _Paragraph([], False)
            in_section = bool(_DROPPED_SECTION.fullmatch(before))
            in_rest = False
        elif in_section or in_rest:
            pass
        elif _KEPT_SECTION.fullmatch(text):
            base = None
        elif item := _ITEM.match(text):
            yield paragraph
            paragraph = _Paragraph([text[item.end() :]], False)
            base = indent + item.end()
            if _FIRST_HEAD.match(paragraph.lines[0]):
                paragraph.lines.clear()
                in_rest, above = True, indent
        elif _HEAD.match(text) or (
            not paragraph.lines and _FIRST_HEAD.match(text)
        ):
            yield paragraph
            paragraph = _Paragraph([], False)
            in_rest, above = True, indent
        elif base is None or indent <= base:
            base = indent
            paragraph.lines.append(text)
        elif len(paragraph.lines) == 1 and (
            paragraph.is_summary or len(paragraph.lines[0]) >= _WRAPPED
        ):
            base = indent  # a hanging indent
            paragraph.lines.append(text)
        else:
            # An indented block, with or without a blank line before it; below
            # a single line it is the definition of a term.
            above = base
            if len(paragraph.lines) == 1:
                paragraph.lines.clear()


# Markup -> what a reader sees. The rules of a character are tried only where
# it occurs, for most paragraphs have none.
_MARKUP = {
    '`': (
        # Roles, :func:`~numpy.linalg.norm` and :ref:`text <target>`, then
        # links, ``code``, and at last any backtick that has no partner.
        (re.compile(r':[\w:+-]+:`([^`<]+?)\s*<[^`>]*>`'), r'\1'),
        (re.compile(r':[\w:+-]+:`~(?:[^`]*\.)?([^`.]+)`'), r'\1'),
        (re.compile(r':[\w:+-]+:`!?([^`]+)`'), r'\1'),
        (re.compile(r'\[`([^`]+)`\](?!\()'), r'\1'),
        (re.compile(r'`([^`<]+?)\s*<[^`>]*>`_{0,2}'), r'\1'),
        (re.compile(r'`{1,3}([^`]+)`{1,3}(?:__?(?!\w))?'), r'\1'),
        (re.compile(r'`+'), ''),
    ),
    '[': (
        (re.compile(r'\s?\[[\w#*.+-]+\]_(?!\w)'), ''),  # [1]_
        (re.compile(r'!?\[([^\]]+)\]\(\s*[^)\s]*\)'), r'\1'),  # [text](url)
        (re.compile(r'\[([^\]]+)\]\[[\w -]*\]'), r'\1'),  # [text][label]
    ),
    '*': (
        (
            re.compile(r'(?<![\w*])(\*{1,3})(?=\S)([^*]+)(?<=\S)\1(?![\w*])'),
            r'\2',
        ),
    ),
    '|': ((re.compile(r'\|(\w[\w -]*)\|_{0,2}'), r'\1'),),
    '\\': ((re.compile(r'\\([*_`|<>])|\\ '), r'\1'),),
    '<': (
        (
            re.compile(
                r'</?(?:a|b|br|code|em|i|li|p|pre|strong|sub|sup|tt|ul)'
                r'(?:\s[^>]*)?/?>',
                re.I,
            ),
            '',
        ),
    ),
}


def _plain(text: str) -> str:
    """The text without inline markup."""
    for character, rules in _MARKUP.items():
        if character in text:
            for pattern, replacement in rules:
                text = pattern.sub(replacement, text)
    return text


_FINISHED = re.compile(r"""[ ].*[.!?]["'”’)\]]*$""")  # two words or more
_UNFINISHED_SUMMARY = re.compile(r"""[\w"'”’)\]]$""")


def _sentences(text: str, is_summary: bool) -> list[str]:
    """The sentences of a paragraph, [] where it is not English prose."""
    if not text:
        return []
    sentences = documents.split_sentences(_plain(text))
    # A paragraph that leads to code ends in a colon: what comes before that
    # sentence is prose. A summary line needs no full stop.
    while sentences and not _FINISHED.search(sentences[-1]):
        if is_summary and _UNFINISHED_SUMMARY.search(sentences[-1]):
            break
        del sentences[-1]
    min_words = 3 if is_summary else 5
    return sentences if _is_english(' '.join(sentences), min_words) else []


_NOT_LETTERS = re.compile(r'[\W\d_]+')
_FUNCTION_WORD = re.compile(
    r'\b(?:the|an?|of|to|is|in|and|for|with|that|this|it|be|are|on|by|from|as'
    r'|or|if|not|at|was|were|has|have|when|can|will|must|should)\b',
    re.I,
)
_MIN_LETTERS = 0.82  # of what is not a space; plain English has 0.95 to 0.98


def _is_english(text: str, min_words: int) -> bool:
    """Whether it is words, most of them letters, one a function word."""
    spaces = text.count(' ')
    if spaces + 1 < min_words or '\\' in text or not text.isprintable():
        return False
    letters = len(_NOT_LETTERS.sub('', text))
    return (
        letters >= _MIN_LETTERS * (len(text) - spaces)
        and _FUNCTION_WORD.search(text) is not None
    )


# --- Source -> documents -----------------------------------------------------

# Statements whose definitions are named as if they stood outside.
_TRANSPARENT = (ast.If, ast.Try, ast.With, ast.ExceptHandler)
_NAMED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def read_source(file: File) -> list[Document] | None:
    """The documents of a source file by line; None if it does not parse."""
    try:
        source = pathlib.Path(file.path).read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # of other people's escapes
            tree = ast.parse(source)
        docstrings = list(_docstrings(tree, ''))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = []
    for name, docstring in docstrings:
        sentences = prose(docstring)
        if sum(s.count(' ') + 1 for s in sentences) >= MIN_WORDS:
            source_name = f'{file.name}:{name}' if name else file.name
            found.append(Document(tuple(sentences), source_name))
    return found


def _docstrings(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """Yields (qualified name, docstring) of a node and of those inside it."""
    if not isinstance(node, _TRANSPARENT) and node.body:
        match node.body[0]:
            case ast.Expr(value=ast.Constant(value=str(docstring))):
                yield name, docstring
    for part in ('body', 'handlers', 'orelse', 'finalbody'):
        for child in getattr(node, part, ()):
            if isinstance(child, _NAMED):
                inner = f'{name}.{child.name}' if name else child.name
                yield from _docstrings(child, inner)
            elif isinstance(child, _TRANSPARENT):
                yield from _docstrings(child, name)


def extract(
    files: Sequence[File], processes: int | None = None
) -> tuple[list[Document], int]:
    """Reads the documents of all files.

    Args:
      files: in the order in which their documents are wanted.
      processes: how many parse at a time; by default one for every CPU that
        this process may use. The result is the same for any number.

    Returns:
      Documents without duplicates (by lower-case text; the first stays), and
      the number of files that could not be parsed.
    """
    import tqdm

    processes = processes or _cpus()
    batches = [files[i : i + _BATCH] for i in range(0, len(files), _BATCH)]
    answers = (
        map(_read_batch, batches)
        if processes == 1
        else _in_processes(batches, processes)
    )
    unique: dict[str, Document] = {}
    skipped = 0
    with tqdm.tqdm(total=len(files), desc='pydocs', unit=' files') as progress:
        for answer in answers:
            for read in answer:
                skipped += read is None
                for document in read or []:
                    unique.setdefault(document.text.lower(), document)
            progress.update(len(answer))
    return list(unique.values()), skipped


def _cpus() -> int:
    """How many CPUs this process may use."""
    if hasattr(os, 'sched_getaffinity'):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read_batch(batch: Iterable[File]) -> list[list[Document] | None]:
    return [read_source(file) for file in batch]


def _in_processes(
    batches: Sequence[Sequence[File]], processes: int
) -> Iterator[list[list[Document] | None]]:
    """Yields what `_read_batch` returns for each batch, in order.

    Every process runs `_serve`. A thread takes an idle one, writes it a line
    of JSON and waits for its line.
    """
    idle: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()

    def ask(batch: Sequence[File]) -> list[list[Document] | None]:
        process = idle.get()
        try:
            process.stdin.write(json.dumps(batch) + '\n')
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ''
        finally:
            idle.put(process)
        if not answer:
            raise RuntimeError(
                'A process that parses docstrings for pydocs ended early '
                f'(exit status {process.wait()}) at the files {batch[0].path} '
                f'.. {batch[-1].path}. If memory was short, run with fewer '
                'CPUs (`taskset -c 0 ...`).'
            )
        return [
            read and [Document(tuple(s), *rest) for s, *rest in read]
            for read in json.loads(answer)
        ]

    root = pathlib.Path(__file__).resolve().parents[2]
    with contextlib.ExitStack() as stack:
        for _ in range(min(processes, len(batches))):
            process = subprocess.Popen(
                [sys.executable, '-c', _SERVE, str(root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            # Leaving the context closes its input, at which it ends.
            idle.put(stack.enter_context(process))
        pool = concurrent.futures.ThreadPoolExecutor(processes)
        stack.callback(pool.shutdown, cancel_futures=True)
        yield from pool.map(ask, batches)


_SERVE = """
import sys
sys.path.insert(0, sys.argv[1])
from infoword_tf.data import pydocs
pydocs._serve()
"""


def _serve() -> None:
    """Answers each batch of files on stdin by a line on stdout."""
    for line in sys.stdin:
        batch = [File(*file) for file in json.loads(line)]
        print(json.dumps(_read_batch(batch)), flush=True)


# --- What is held out --------------------------------------------------------


class Split(NamedTuple):
    """Documents to train on, held-out ones, and how many are neither."""

    train: list[Document]
    heldout: list[Document]
    dropped: int


def split_heldout(corpus: Sequence[Document]) -> Split:
    """Holds out documents that training does not show elsewhere.

    One document in 20 is a candidate, by the hash of its text. Docstrings are
    copied between classes and packages, so a candidate is dropped, neither
    trained on nor held out, when 20 % or more of its distinct shingles (8
    consecutive words, lower case) occur in a training document or in another
    candidate.
    """
    train, candidates = [], []
    for document in corpus:
        bucket = documents.hash_bucket(document.text, HELDOUT_IN)
        (train if bucket else candidates).append(document)
    shared = _shared(train, candidates)
    heldout = [
        document
        for document, share in zip(candidates, shared, strict=True)
        if share < MAX_SHARED
    ]
    return Split(train, heldout, len(candidates) - len(heldout))


def _shared(
    train: Sequence[Document], candidates: Sequence[Document]
) -> np.ndarray:
    """The share [C] of each candidate's distinct shingles seen elsewhere."""
    shingles, owners = _shingles([*candidates, *train])
    in_train = owners >= len(candidates)
    seen = np.unique(shingles[in_train])
    # Distinct within a candidate: sort by owner, then shingle.
    shingles, owners = shingles[~in_train], owners[~in_train]
    order = np.lexsort((shingles, owners))
    shingles, owners = shingles[order], owners[order]
    distinct = np.ones(len(owners), bool)
    distinct[1:] = (np.diff(owners) != 0) | (shingles[1:] != shingles[:-1])
    shingles, owners = shingles[distinct], owners[distinct]
    _, inverse, counts = np.unique(
        shingles, return_inverse=True, return_counts=True
    )
    elsewhere = np.isin(shingles, seen) | (counts[inverse] > 1)
    size = len(candidates)
    total = np.bincount(owners, minlength=size)
    return np.bincount(owners, elsewhere, size) / np.maximum(total, 1)


def _shingles(corpus: Sequence[Document]) -> tuple[np.ndarray, np.ndarray]:
    """Hashes [S] uint64 of all shingles, and the documents [S] they are of.

    A hash is a polynomial, modulo 2**64, in random numbers of the words: two
    of 10 million different shingles agree with a chance of about 3e-6.
    """
    ids: dict[str, int] = collections.defaultdict(itertools.count().__next__)
    words = [
        [ids[word] for word in document.text.lower().split()]
        for document in corpus
    ]
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    flat = np.fromiter(itertools.chain.from_iterable(words), np.int64)
    owners = np.repeat(np.arange(len(words)), lengths)  # [W]
    random = np.random.default_rng(0).integers(
        2**64, size=len(ids), dtype=np.uint64
    )
    values = random[flat]  # [W]
    starts = max(len(flat) - SHINGLE + 1, 0)
    hashes = np.zeros(starts, np.uint64)
    for i in range(SHINGLE):
        hashes = hashes * _MULTIPLIER + values[i : i + starts]
    inside = owners[:starts] == owners[len(flat) - starts :]
    return hashes[inside], owners[:starts][inside]


_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, so that nothing is lost


# --- The cache on disk -------------------------------------------------------


def environment_hash(
    closure: Mapping[str, importlib.metadata.Distribution],
) -> str:
    """32 hex digits that change when the documents might."""
    parts = [
        f'extraction {EXTRACTION}',
        f'{platform.python_implementation()} {platform.python_version()}',
        *(f'{name} {d.version}' for name, d in closure.items()),
    ]
    text = '\n'.join(parts)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def prepare(
    cache: pathlib.Path,
    requirements: Sequence[str] | None = None,
    processes: int | None = None,
) -> pathlib.Path:
    """The folder of the corpus for this environment, built if need be.

    Prints one line of figures.

    Args:
      cache: folder under which corpora are kept.
      requirements: as in `dependency_closure`.
      processes: as in `extract`.

    Returns:
      A folder with `train.jsonl` and `heldout.jsonl` (one document a line)
      and `figures.json`; its name changes when the documents might.

    Raises:
      RuntimeError: the project is not installed.
      OSError: the cache cannot be written.
    """
    closure = dependency_closure(requirements)
    folder = cache / f'pydocs-{environment_hash(closure)}'
    if not folder.exists():
        print('pydocs: reading docstrings, once for this environment')
        files = stdlib_files()
        for distribution in closure.values():
            files += distribution_files(distribution)
        _build(folder, files, processes)
    figures = json.loads((folder / 'figures.json').read_text())
    print(describe(figures), flush=True)
    return folder


def _build(
    folder: pathlib.Path, files: Sequence[File], processes: int | None
) -> None:
    """Writes the folder of the corpus, whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    corpus, skipped = extract(files, processes)
    split = split_heldout(corpus)
    figures = {
        'documents': len(corpus),
        'words': sum(d.text.count(' ') + 1 for d in corpus),
        'megabytes': sum(len(d.text.encode()) for d in corpus) / 1e6,
        'train': len(split.train),
        'candidates': len(split.heldout) + split.dropped,
        'dropped': split.dropped,
        'heldout': len(split.heldout),
        'files': len(files),
        'skipped_files': skipped,
        'seconds': time.monotonic() - began,
    }
    with tempfile.TemporaryDirectory(
        prefix=f'{folder.name}.', dir=folder.parent, ignore_cleanup_errors=True
    ) as temporary:
        whole = pathlib.Path(temporary) / 'whole'
        whole.mkdir()
        _write(whole / 'train.jsonl', split.train)
        _write(whole / 'heldout.jsonl', split.heldout)
        (whole / 'figures.json').write_text(json.dumps(figures, indent=1))
        try:
            whole.rename(folder)
        except OSError:
            if not folder.exists():
                raise
            # Another process was first: its documents are the same.


def describe(figures: Mapping[str, float]) -> str:
    """The line that is printed when the corpus is built or opened."""
    return (
        'pydocs: {documents:,} documents, {words:,} words, '
        '{megabytes:.1f} MB from {files:,} files ({skipped_files} skipped) '
        'in {seconds:.0f} s; {train:,} to train on; of {candidates:,} '
        'held-out candidates {dropped:,} dropped, {heldout:,} kept'
    ).format(**figures)


def _write(path: pathlib.Path, corpus: Iterable[Document]) -> None:
    with open(path, 'w', encoding='utf-8') as stream:
        for document in corpus:
            line = {
                'source': document.source,
                'sentences': document.sentences,
            }
            stream.write(json.dumps(line, ensure_ascii=False) + '\n')


def read(path: pathlib.Path) -> Iterator[Document]:
    """Yields the documents of `train.jsonl` or `heldout.jsonl`."""
    with open(path, encoding='utf-8') as stream:
        for line in stream:
            fields = json.loads(line)
            yield Document(tuple(fields['sentences']), fields['source'])
