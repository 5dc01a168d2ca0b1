"""The docstrings of a source file, as documents.

Sources are parsed, never imported: nothing of them runs.
"""

import ast
import pathlib
import warnings
from collections.abc import Iterator

from infoword_tf.data.documents import Document
from infoword_tf.data.pydocs.packages import File
from infoword_tf.data.pydocs.prose import prose

MIN_WORDS = 8  # of a document: one shingle of heldout.py

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
    documents = []
    for name, docstring in docstrings:
        sentences = prose(docstring)
        if sum(s.count(' ') + 1 for s in sentences) >= MIN_WORDS:
            source_name = f'{file.name}:{name}' if name else file.name
            documents.append(Document(tuple(sentences), source_name))
    return documents


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
