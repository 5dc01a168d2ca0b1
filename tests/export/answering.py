"""Exports of the row `span` with random weights, each made once, for tests."""

import functools

from export import bundle
from tests.export import workdirs

KINDS = {
    'plain': {},
    'null': {'settings': {'span.null': True, 'span.longest': 5}},
    'conditional': {
        'encoder': 'relative',
        'kind': 'sentencepiece',
        'settings': {'span.end': 'conditional', 'span.null': True},
    },
}


@functools.cache
def workdir(kind):
    return workdirs.write(
        workdirs.folder() / f'span_{kind}', rows=('span',), max_length=40,
        **KINDS[kind],
    )  # fmt: skip


@functools.cache
def exported(kind, precision='float32'):
    return bundle.write(
        workdir(kind), workdirs.folder() / f'answers_{kind}_{precision}', 1,
        precision,
    )  # fmt: skip


def loaded(kind):
    return workdirs.load(workdir(kind))


def served(kind):
    return workdirs.serve(str(exported(kind))).signatures
