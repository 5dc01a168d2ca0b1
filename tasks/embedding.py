"""Students of a workdir whose texts become vectors, for tasks.distill.

Examples are the sentences of a corpus, each once, without labels: b is the
vector that the teacher gives it. The student is the first layers of a
transformer, or the encoder `lookup`.
"""

import hashlib
import itertools
import pathlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from infoword_tf import commands
from infoword_tf.choices import TextChoices
from infoword_tf.data import corpora, tables
from infoword_tf.data.opened import open_corpora
from infoword_tf.objectives import built, parse
from infoword_tf.objectives.embed import MEAN
from infoword_tf.resolve import resolve_rows
from tasks import finetune
from tasks.student import lookup_of, pooling_of, start_of
from tasks.teacher import Embedder

if TYPE_CHECKING:
    from tasks.distill import Choices

TASK = 'embed'
LAYERS, LOOKUP = STUDENTS = ('layers', 'lookup')
OBJECTIVES = 'embed_distance'
# What begins elsewhere for a table lookup.
LOOKUP_DEFAULTS = {'learning_rate': 1e-3, 'batch_size': 256, 'dropout': 0.0}
HELDOUT = 1000  # sentences, of all that are held out
GOALS = {'embed': 'heldout/embed/mi',
         'embed_distance': 'heldout/embed_distance/cosine'}  # fmt: skip


def sentences_of(
    documents: Iterable[Any], count: int | None = None
) -> list[str]:
    """The sentences of documents in their order, each once; so many at most."""
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
    given: TextChoices, count: int | None = None
) -> dict[str, list[str]]:
    """Held-out sentences, and so many to train on, drawn from all; None: all.

    Raises:
        UsageError: there is no sentence in one of the parts.
    """
    corpus = corpora.chained([*open_corpora(given).values()])
    heldout = sentences_of(corpus.heldout(), HELDOUT)
    held = set(heldout)
    texts = [s for s in sentences_of(corpus.train()) if s not in held]
    if count is not None and count < len(texts):
        texts = [texts[i] for i in tables.subset(len(texts), count)]
    parts = {'train': texts, 'heldout': heldout}
    for part, some in parts.items():
        if not some:
            raise commands.UsageError(
                f'--corpus={corpus.name} has no sentence for {part}; '
                'give more text'
            )
    return parts


def prepare(
    teacher: Embedder, parts: Mapping[str, list[str]], given: 'Choices'
) -> finetune.PreparedTask:
    """A student before its training, and the sentences of `read` as vectors."""
    from infoword_tf.training import fit
    from infoword_tf.training.run import LabelledData

    texts = {part: teacher.prompted(some) for part, some in parts.items()}
    vectors = {part: teacher.vectors(some) for part, some in texts.items()}
    init, started = given.init or teacher.folder, None
    if given.student == LOOKUP:
        width, pooling = given.width or teacher.width, MEAN
        source = f'pieces of --teacher={teacher.folder}'
        record: dict[str, Any] = {'weighting': given.weighting}
    else:
        started, source = start_of(init, given.layers, given.take), ''
        width, pooling = started.encoder.width, pooling_of(started.config)
        record = {'layers': started.encoder.depth, 'take': given.take}
    objectives = given.objectives or OBJECTIVES
    rows = built(parse(objectives))
    back = 0 if width == teacher.width else teacher.width
    settings = {f'{row}.pooling': pooling for row in rows}
    settings |= {f'{row}.width': back for row in rows}
    # The width is that of the start.
    given = given.decided(
        settings, objectives=objectives, width=None, init=init
    )
    if started is None:
        started = lookup_of(
            teacher, width, given.weighting, texts['train'],
            resolve_rows(given),
        )  # fmt: skip
    else:
        started.config = started.config.replace(
            pooling=pooling, similarity=teacher.loaded.config.similarity
        )
    examples, digest = {}, hashlib.blake2b(digest_size=16)
    for part, some in texts.items():
        examples[part] = finetune.lay_out(
            started, [(some, None)], given.seq_len, part,
            dict.fromkeys(rows, vectors[part]), what='sentences',
        )  # fmt: skip
        digest.update(teacher.key('texts', *some).encode())
    taught = teacher.loaded.config
    kept = {
        'normalize': taught.normalize,
        'prompts': taught.prompts,
        'prompt': taught.prompt,
    }
    record |= {
        'task': TASK,
        'student': given.student,
        'teacher': f'{teacher.folder} (weights {teacher.digest})',
    }
    labelled = LabelledData(
        examples['train'],
        examples['heldout'],
        digest.hexdigest(),
        fit.Goal(next(GOALS[row] for row in GOALS if row in rows)),
        {},
        kept,
        started,
        source=source,
        record=record,
    )
    return finetune.PreparedTask(labelled, given)


def run(given: 'Choices', chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The command with --task=embed."""
    own = LOOKUP_DEFAULTS if given.student == LOOKUP else {}
    given = given.decided(
        seq_len=given.seq_len or finetune.Choices.seq_len,
        **{name: own[name] for name in own if name not in chosen},
    )
    parts = read(given, given.examples)  # before TensorFlow is imported
    prepared = prepare(Embedder(given.teacher), parts, given)
    best = finetune.train_once(prepared, chosen)
    values = {
        name.removeprefix('heldout/'): round(value, 6)
        for name, value in best.items()
        if name.startswith('heldout/')
    }
    return finetune.finish(
        pathlib.Path(given.workdir),
        {'task': TASK, **values, 'step': best['step'],
         'seconds': best.get('seconds')},
    )  # fmt: skip
