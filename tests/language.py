"""Rules of the project's language, which tests/test_house.py holds up.

    python -m tests.language infoword_tf/data tests/data

lists what breaks them in these files and folders, one line each.
"""

import ast
import functools
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence

# What a function's docstring may begin with: verbs, third person.
VERBS = frozenset(
    """
    accepts accumulates adds adjusts advances aligns allocates allows
    answers appends applies apportions asks assembles asserts assigns
    attends averages balances batches begins binds blocks bounds branches
    breaks brings broadcasts builds caches calculates calls cancels casts
    centres changes checks chooses clears clips clones closes collects
    colours combines commits compares compiles completes composes compresses
    computes concatenates configures connects constructs continues contrasts
    converts copies corrects correlates counts covers creates cuts decays
    decides declares decodes defines deletes derives describes detects
    determines differentiates disables discards displays distils distributes
    divides doubles downloads draws drops embeds empties enables encodes
    ends enforces enters enumerates erases estimates evaluates exchanges
    excludes executes exits expands explains exports exposes extends
    extracts fails fetches fills filters finds fine- fine-tunes finishes
    fits fixes flattens flushes folds follows forgets formats forwards
    freezes gathers generates gets gives groups guards guesses handles hands
    hashes hides holds identifies ignores implements imports includes
    indexes infers initializes inserts installs interpolates inverts invokes
    isolates iterates joins keeps knows labels learns leaves lets limits
    lists loads locates locks logs looks lowers maintains makes maps marks
    masks matches maximizes measures merges mines minimizes mixes moves
    multiplies names narrows negates normalises normalizes notes notifies
    numbers obtains opens optimizes orders overrides overwrites packs pads
    pairs parses partitions passes patches permutes perturbs picks places
    plans plots points pools pops precomputes predicts prefixes prepares
    prepends prints processes produces projects propagates protects proves
    provides pulls pushes puts queues raises ranks rates reads rearranges
    rebuilds recalls receives recomputes records recovers reduces refers
    refuses registers rejects releases reloads removes renames renders
    reorders repeats replaces replays reports represents reproduces requires
    resamples rescales reserves resets reshapes resolves restores restricts
    resumes retries returns reuses reverses rewinds rewrites rotates rounds
    runs samples saves scales scans scatters schedules scores searches seeds
    selects sends separates serializes serves sets shares shifts shortens
    shows shuffles signals simulates skips slices smooths solves sorts
    specifies spells splits spreads stacks standardizes stands starts states
    stops stores streams strips subtracts suggests sums swaps switches
    synchronizes takes tells tests times tokenizes traces trains transforms
    translates transposes traverses treats tries trims truncates tunes turns
    unpacks updates uploads uses validates verifies views visits waits walks
    warms warns weighs weights whitens wraps writes yields zeroes
    """.split()
)
# A class's or a property's begins with a noun, which these are not.
NO_NOUNS = frozenset(
    """
    also an and another as at because before behind but by elsewhere for from
    has here how if in into is it its likewise nor not of on or others ours
    since so some such that their them there these they this those to what
    whatever when where whether which while who whose why with without
    """.split()
) - {'an', 'another'}
# Neither does what a docstring says of an argument begin with these.
NO_BEGINNINGS = frozenset(
    'as at by for from how in of see to what where which with'.split()
)
# Their nouns stand elsewhere. Relative `that` is none of them.
PRONOUNS = frozenset(
    """
    he her here him his it its itself ones ours some such theirs them
    themselves there these they this those their what whatever
    """.split()
)
PHRASES = re.compile(
    r'\b(likewise|the same as|(this|that|each|every|the) one\b(?! \w))', re.I
)
NAMES = frozenset(
    'begun found given kept made own said some such there told wanted'.split()
)
ALPHABET = {
    'B': 'batch', 'D': 'width', 'H': 'heads', 'K': 'memory and tokens',
    'L': 'layers', 'M': 'candidates', 'N': 'scored pairs', 'R': 'replicas',
    'T': 'tokens', 'V': 'vocabulary',
}  # fmt: skip
_PROPERTIES = ('property', 'cached_property', 'functools.cached_property')
_GLOSSARY = re.compile(r'Glossary[^:]*:(.*?)(?:\n\s*\n|\.\s*$|"""|\Z)', re.S)


@functools.cache
def parsed(path: pathlib.Path) -> ast.Module:
    """Returns what a file of Python says."""
    return ast.parse(path.read_text())


def complaints(path: pathlib.Path, prose: bool = True) -> Iterator[str]:
    """Lists what breaks a rule in a file of Python.

    Args:
        path: the file.
        prose: whether docstrings are read, too.

    Yields:
        Lines `PATH:LINE: RULE: what breaks it`.
    """
    for node in ast.walk(parsed(path)):
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        if prose and isinstance(node, kinds):
            for rule, words in (*_first_line(node), *_arguments(node)):
                yield f'{path}:{node.lineno}: {rule}: {words}'
        for name in _bound(node):
            if name.strip('_') in NAMES:
                yield f'{path}:{node.lineno}: name: {name}'
        if isinstance(node, ast.Module | kinds):
            text = ast.get_docstring(node) or ''
            for glossary in _GLOSSARY.findall(text):
                for letter in re.findall(r'\b([A-Z])\b(?= [a-z])', glossary):
                    if letter in ALPHABET:
                        line = getattr(node, 'lineno', 1)
                        yield f'{path}:{line}: glossary: {letter}'


def class_names(paths: Sequence[pathlib.Path]) -> list[str]:
    """Returns the names of all classes in these files, in order."""
    return sorted(
        node.name
        for path in paths
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    )


def _first_line(node: ast.AST) -> Iterator[tuple[str, str]]:
    line = (ast.get_docstring(node) or '').partition('\n')[0]
    if not line or node.name.startswith('test_'):
        return
    # Code is quoted, and not read as words.
    words = re.findall(r"[A-Za-z'-]+", re.sub(r'`[^`]*`', 'X', line))
    first = words[0].lower() if words else ''
    nouns = isinstance(node, ast.ClassDef) or any(
        ast.unparse(x) in _PROPERTIES for x in node.decorator_list
    )
    if nouns and first in NO_NOUNS:
        yield 'no noun first', line
    if not nouns and first not in VERBS:
        yield 'no verb first', line
    if pronouns := [x for x in words if x.lower() in PRONOUNS]:
        yield f'pronoun {", ".join(pronouns)}', line
    elif phrase := PHRASES.search(line):
        yield f'pronoun {phrase[0]}', line


def _arguments(node: ast.AST) -> Iterator[tuple[str, str]]:
    section = ''
    for line in (ast.get_docstring(node) or '').splitlines():
        if named := re.fullmatch(r'([A-Z]\w+):', line):
            section = named[1]
        match = re.match(r' {4}[\w*, ]+: ([A-Za-z]+)', line)
        if match and section in ('Args', 'Attributes') and (
            match[1].lower() in NO_BEGINNINGS
        ):
            yield 'no noun for an argument', line.strip()


def _bound(node: ast.AST) -> Iterator[str]:
    """Yields names that a node binds: variables, arguments, definitions."""
    if isinstance(node, ast.Name | ast.Attribute):
        if isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name


if __name__ == '__main__':
    total = 0
    for name in sys.argv[1:]:
        folder = pathlib.Path(name)
        files = sorted(folder.rglob('*.py')) if folder.is_dir() else [folder]
        for file in files:
            for line in complaints(file, prose='tests' not in file.parts):
                total += 1
                print(line)
    print(f'{total} in all')
