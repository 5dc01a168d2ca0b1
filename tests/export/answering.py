"""Exports of the row `span` with random weights, each made once, for tests."""

from tests.export import workdirs

KINDS = {
    'null': {'settings': {'span.null': True, 'span.longest': 5}},
    'plain': {},
    'conditional': {
        'encoder': 'relative',
        'kind': 'sentencepiece',
        'settings': {'span.end': 'conditional', 'span.null': True},
    },
}
workdir, exported, loaded, served = workdirs.kinds(
    'answers',
    lambda kind: workdirs.write(
        workdirs.folder() / f'span_{kind}', rows=('span',), max_length=40,
        **KINDS[kind],
    ),
)  # fmt: skip
