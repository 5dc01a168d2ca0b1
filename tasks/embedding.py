"""Students of a workdir whose texts become vectors, for tasks.distill.

Examples are the sentences of a corpus, each once, without labels: b is the
vector that the teacher gives it. The student is the first layers of a
transformer, or the encoder `lookup`.
"""

import hashlib
import itertools
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from infoword_tf import commands, train
from infoword_tf.data import corpora
from infoword_tf.objectives import built, parse
from infoword_tf.objectives.embed import MEAN
from infoword_tf.resolve import resolve_rows
from tasks import finetune, tables
from tasks.student import lookup_of, pooling_of, start_of
from tasks.teacher import Embedder

TASK = 'embed'
LAYERS, LOOKUP = STUDENTS = ('layers', 'lookup')
OBJECTIVES = 'embed_distance'
# Flags of the trainer that begin elsewhere for a table lookup.
LOOKUP_DEFAULTS = {'learning_rate': 1e-3, 'batch_size': 256, 'dropout': 0.0}
HELDOUT = 1000  # sentences, of all that are held out
GOALS = {'embed': 'heldout/embed/mi',
         'embed_distance': 'heldout/embed_distance/cosine'}  # fmt: skip


def sentences_of(
    documents: Iterable[Any], count: int | None = None
) -> list[str]:
    """The sentences of documents in their order, each once.

    Args:
        documents: of a corpus.
        count: at most; None: all.
    """
    every = (s for document in documents for s in document.sentences)
    return list(itertools.islice(_once(every), count))


def _once(texts: Iterable[str]) -> Iterable[str]:
    """Each text where it comes first."""
    seen: set[bytes] = set()
    for text in texts:
        digest = hashlib.blake2b(text.encode(), digest_size=10).digest()
        if digest not in seen:
            seen.add(digest)
            yield text


def read(
    given: Mapping[str, Any], count: int | None = None
) -> dict[str, list[str]]:
    """Sentences to train on, and held-out ones.

    Args:
        given: by flag of the trainer, its value.
        count: of sentences to train on, drawn from all; None: all.

    Raises:
        UsageError: there is no sentence in one of the parts.
    """
    corpus = corpora.open_corpus(given['corpus'], given['heldout'] or None)
    heldout = sentences_of(corpus.heldout(), HELDOUT)
    held = set(heldout)
    texts = [s for s in sentences_of(corpus.train()) if s not in held]
    if count is not None and count < len(texts):
        texts = [texts[i] for i in tables.subset(len(texts), count)]
    found = {'train': texts, 'heldout': heldout}
    for part, some in found.items():
        if not some:
            raise commands.UsageError(
                f'--corpus={given["corpus"]} has no sentence for {part}; '
                'give more text'
            )
    return found


def prepare(
    teacher: Embedder,
    parts: Mapping[str, list[str]],
    given: Mapping[str, Any],
    own: Mapping[str, Any],
) -> finetune.Prepared:
    """A student before its training, and sentences with their vectors.

    Args:
        teacher: of `Embedder`.
        parts: sentences, as `read` gives them.
        given: by flag of the trainer, its value.
        own: flags of the command, by name.

    Returns:
        What a run needs.
    """
    from infoword_tf.data.examples import lay_out
    from infoword_tf.training import fit
    from infoword_tf.training.run import Labelled

    texts = {part: teacher.prompted(some) for part, some in parts.items()}
    vectors = {part: teacher.vectors(some) for part, some in texts.items()}
    objectives = given['objectives'] or OBJECTIVES
    if own['student'] == LOOKUP:
        width, pooling = given['width'] or teacher.width, MEAN
        started, source = None, f'pieces of --teacher={teacher.folder}'
    else:
        started = start_of(
            given['init'] or teacher.folder, own['layers'], own['take']
        )
        width, source = started.encoder.width, ''
        pooling = pooling_of(started.config)
    rows = built(parse(objectives))
    decided: dict[str, Any] = {
        'objectives': objectives,
        'width': None,  # it is that of the start
        'task': TASK,
        'student': own['student'],
        'init': given['init'] or teacher.folder,
        'teacher': f'{teacher.folder} (weights {teacher.digest})',
    }
    for row in rows:
        decided[f'{row}.pooling'] = pooling
        decided[f'{row}.width'] = 0 if width == teacher.width else teacher.width
    if started is None:
        decided |= {flag: given[flag] for flag in LOOKUP_DEFAULTS}
        decided['weighting'] = own['weighting']
        choices = train.choices({**given, **decided})
        started = lookup_of(
            teacher, width, own['weighting'], texts['train'],
            resolve_rows(choices),
        )  # fmt: skip
    else:
        decided |= {'layers': started.encoder.depth, 'take': own['take']}
        started.config = started.config.replace(
            pooling=pooling, similarity=teacher.loaded.config.similarity
        )
    examples, digest = {}, hashlib.blake2b(digest_size=16)
    for part, some in texts.items():
        examples[part], cut = lay_out(
            started.frame,
            [(some, None)],
            given['seq_len'],
            dict.fromkeys(rows, vectors[part]),
        )
        if cut:
            print(
                f'{part}: {cut:,} of {len(some):,} sentences are cut at '
                f'--seq_len={given["seq_len"]} tokens',
                flush=True,
            )
        digest.update(teacher.key('texts', *some).encode())
    taught = teacher.loaded.config
    kept = {
        'normalize': taught.normalize,
        'prompts': taught.prompts,
        'prompt': taught.prompt,
    }
    return finetune.Prepared(
        Labelled(
            examples['train'],
            examples['heldout'],
            digest.hexdigest(),
            fit.Goal(next(GOALS[row] for row in GOALS if row in rows)),
            {},
            kept,
            started,
            source=source,
        ),
        decided,
    )


def run(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The command with --task=embed; args as in `prepare`."""
    parts = read(given, own['examples'])  # before TensorFlow is imported
    teacher = Embedder(own['teacher'])
    prepared = prepare(teacher, parts, given, own)
    best = finetune.train_once(prepared, own)
    values = {
        name.removeprefix('heldout/'): round(value, 6)
        for name, value in best.items()
        if name.startswith('heldout/')
    }
    return finetune.finish(
        pathlib.Path(given['workdir']),
        {'task': TASK, **values, 'step': best['step'],
         'seconds': best.get('seconds')},
    )  # fmt: skip
