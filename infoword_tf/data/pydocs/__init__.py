"""The corpus `pydocs`: the English docstrings that every machine already has.

Docstrings of the standard library of the running interpreter and of all that
the project depends on. In the order in which it happens:

  packages.py    which packages are read, and which of their files
  docstrings.py  source -> docstrings -> documents
  prose.py       docstring -> English sentences, by way of paragraphs.py (what
                 is running text) and markup.py (what of it is markup)
  extraction.py  all files, in parallel, without duplicates
  heldout.py     what trains, what is held out, what is neither
  cache.py       the corpus on disk: built once, then read

Sources are parsed, never imported.
"""

from infoword_tf.data.pydocs.cache import prepare, read

__all__ = ['prepare', 'read']
