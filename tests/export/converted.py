"""Converted weights of several kinds, each exported once, for tests."""

import functools
import pathlib
import tempfile

from export import bundle
from infoword_tf import convert
from infoword_tf.config import Config
from tests.export import workdirs
from tests.weights import folders

KINDS = {
    'classes': ('bert_classes', {}),
    'one_class': ('bert_one_class', {}),
    'roberta': ('xlm_roberta_classes', {}),
    'xlnet': ('xlnet_classes', {}),
    'prompts': ('bert', {'query': 'ask: ', 'passage': 'it says '}),
    'masks': ('distilbert', {}),
}


@functools.cache
def folder():
    """Where all of them lie."""
    return pathlib.Path(tempfile.mkdtemp())


@functools.cache
def workdir(kind):
    """A converted workdir."""
    case, prompts = KINDS[kind]
    source = folders.write(folder() / kind / 'source', case)
    made = folder() / kind / 'workdir'
    convert.convert(source, made, prompts=prompts)
    if prompts:
        Config.read(made).replace(prompt='query').write(made)
    return made


@functools.cache
def exported(kind, precision='float32'):
    """A version of it."""
    return bundle.write(
        workdir(kind), folder() / kind / precision, 1, precision
    )


def loaded(kind):
    """The workdir in memory."""
    return workdirs.load(workdir(kind))


def served(kind):
    """Functions of the version."""
    return workdirs.serve(str(exported(kind))).signatures
