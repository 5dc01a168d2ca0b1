"""Documents of many source files, without duplicates.

Sources are parsed, never imported: no code of theirs runs.
"""

import ast
import pathlib
import warnings
from collections.abc import Iterator, Sequence

from infoword_tf import commands
from infoword_tf.data.documents import Document
from infoword_tf.data.pydocs.packages import SourceFile
from infoword_tf.data.pydocs.prose import prose

MIN_WORDS = 8  # of a document: one shingle of heldout.py
# Statements whose definitions are named as if outside of them.
_TRANSPARENT = (ast.If, ast.Try, ast.With, ast.ExceptHandler)
_NAMED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def extract(files: Sequence[SourceFile]) -> tuple[list[Document], int]:
    """Reads the documents of all files.

    Returns:
        Documents without duplicates (by lower-case text; the first stays), and
        the number of files that could not be parsed.
    """
    unique: dict[str, Document] = {}
    skipped = 0
    for file in commands.bar(files, 'pydocs', unit=' files'):
        try:
            source = pathlib.Path(file.path).read_bytes()
            with warnings.catch_warnings():
                warnings.simplefilter('ignore')  # of other people's escapes
                docstrings = list(_docstrings(ast.parse(source), file.name))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            skipped += 1
            continue
        for name, docstring in docstrings:
            document = Document(tuple(prose(docstring)), name)
            if document.text.count(' ') + 1 >= MIN_WORDS:
                unique.setdefault(document.text.lower(), document)
    return list(unique.values()), skipped


def _docstrings(
    node: ast.AST, name: str, separator: str = ':'
) -> Iterator[tuple[str, str]]:
    """Yields (qualified name, docstring) of a node and all nodes inside."""
    if isinstance(
        node,
        ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
    ):
        if docstring := ast.get_docstring(node, clean=False):
            yield name, docstring
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _NAMED):
            yield from _docstrings(child, name + separator + child.name, '.')
        elif isinstance(child, _TRANSPARENT):
            yield from _docstrings(child, name, separator)
