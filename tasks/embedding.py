"""Students of a workdir whose texts become vectors, for tasks.distill.

Examples are the sentences of a corpus, each once, without labels: b is the
vector that the teacher gives it. The student is the first layers of a
transformer, or the encoder `lookup`.

Of translations both texts are examples, with one b: the vector that the teacher
gives the text in its own language (Reimers & Gurevych 2020, "Making Monolingual
Sentence Embeddings Multilingual", Eq. 1).
"""

import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from infoword_tf import commands, errors, files
from infoword_tf.choices import TextChoices, flag
from infoword_tf.data import corpora, documents, parallel, tables, text_pairs
from infoword_tf.data.opened import (
    choose_tokenizer,
    digest_of,
    open_corpora,
    open_tokenizer,
)
from infoword_tf.languages import code_of
from infoword_tf.objectives import built, parse
from infoword_tf.objectives.embed import MEAN
from infoword_tf.resolve import resolve_rows
from tasks import finetune
from tasks.student import (
    FIRST,
    SIF,
    TAKES,
    WEIGHTINGS,
    lookup_of,
    pooling_of,
    start_of,
    with_vocabulary,
)
from tasks.teacher import Embedder

if TYPE_CHECKING:
    from infoword_tf.text.tokenizer import Tokenizer

TASK = 'embed'
LAYERS, LOOKUP = STUDENTS = ('layers', 'lookup')
OBJECTIVES = 'embed_distance'
# What begins elsewhere for a table lookup.
LOOKUP_DEFAULTS = {'learning_rate': 1e-3, 'batch_size': 256, 'dropout': 0.0}
HELDOUT = 1000  # sentences of a corpus, of two languages: of all held out
# Flags of vectors alone.
OF_PAIRS = 'teacher_language', 'heldout_parallel', 'drop_equal'
OF_VECTORS = ('student', 'weighting', 'parallel', *OF_PAIRS)
VOCABULARY = ('vocab', 'vocab_size', 'tokenizer', 'lower_case')
GOALS = {'embed': 'heldout/embed/mi',
         'embed_distance': 'heldout/embed_distance/cosine'}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Choices(finetune.Choices):
    """What may be chosen of a student, and of the text of its teacher."""

    teacher: str | None = flag(
        None, 'A workdir that was fine-tuned on the same task.', model=True)
    layers: int | None = flag(
        None, 'Layers of the student; all of --init by default.', at_least=1)
    take: str = flag(
        FIRST, 'Which layers of --init the student takes: the first ones, or '
        'every n-th.',
        choices=TAKES)
    student: str = flag(
        LAYERS, 'Student of an embedding model: layers of --init, or a lookup '
        'table.', choices=STUDENTS)
    weighting: str = flag(
        SIF, 'Initial weights of the pieces of a lookup table: a / (a + '
        'frequency), or log(1 + rank).', choices=WEIGHTINGS)
    teacher_language: str = flag(
        'en', 'Language that --teacher reads, of those of --parallel.')


def check(given: Choices, chosen: Mapping[str, Any]) -> None:
    """Complains of choices that do not go together, before anything is read.

    Raises:
        UsageError: they do not.
    """
    if not given.parallel:
        commands.require(
            vars(given), corpus='text for the teacher to read, or --parallel'
        )
        commands.refuse(chosen, OF_PAIRS, '{} is for --parallel; give both')
    if given.heldout and not given.corpus:
        raise errors.UsageError(
            '--heldout is of --corpus; of --parallel it is --heldout_parallel'
        )
    choose_tokenizer(given)  # complains
    lookup = given.student == LOOKUP
    commands.refuse(
        chosen,
        ('layers', 'take') if lookup else ('weighting', 'width'),
        f'--student={given.student} has no {{}}; leave it out',
    )
    if lookup and given.init:
        raise errors.UsageError(
            '--student=lookup starts from pieces of --teacher; leave out '
            '--init'
        )
    objectives = given.objectives or OBJECTIVES
    for row in parse(objectives):
        if row not in GOALS:
            raise errors.UsageError(
                f'--objectives={objectives}: {row} reads no vectors of a '
                f'teacher; known are {", ".join(GOALS)}'
            )


class Texts(NamedTuple):
    """n texts of a student, and of each what its teacher reads.

    Attributes:
        own: each once with the same `taught`.
        taught: the same text, or what it is a translation of.
        languages: codes of `own`; '' of a corpus.
    """

    own: list[str]
    taught: list[str]
    languages: list[str]

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str, str]]) -> 'Texts':
        """Of what each has of the three."""
        rows = list(rows)
        return cls(*([row[i] for row in rows] for i in range(3)))

    @property
    def sentences(self) -> list[str]:
        """What the teacher reads, each once."""
        return list(dict.fromkeys(self.taught))

    def where(self, wanted: Callable[[str], bool]) -> 'Texts':
        """Those of which the teacher reads such a sentence."""
        return self.of(row for row in zip(*self, strict=True) if wanted(row[1]))


def sentences_of(
    corpus: Iterable[documents.Document], count: int | None = None
) -> Iterator[tuple[str, str, str]]:
    """Rows of `Texts`: the sentences of documents; so many at most, each once.
    """
    every = ((s, s, '') for document in corpus for s in document.sentences)
    return itertools.islice(_once(every), count)


def translations_of(
    pairs: text_pairs.Columns, language: str, count: int | None = None
) -> Iterator[tuple[str, str, str]]:
    """Likewise both texts of translations, of which `language` is one's."""
    side = pairs.languages.index(language)
    other = pairs.languages[1 - side]
    both = zip(pairs.texts[side], pairs.texts[1 - side], strict=True)
    for taught, translation in itertools.islice(both, count):
        yield taught, taught, language
        yield translation, taught, other


def _once(found: Iterable[tuple[str, ...]]) -> Iterator[Any]:
    """Each row of two texts and more where they come first."""
    seen: set[bytes] = set()
    for row in found:
        text = '\n'.join(row[:2]).encode('utf-8', 'replace')
        digest = hashlib.blake2b(text, digest_size=10).digest()
        if digest not in seen:
            seen.add(digest)
            yield row


def check_parallel(given: Choices) -> str | None:
    """The code of --teacher_language, or None without --parallel.

    Reads no file to its end.

    Raises:
        UsageError: no translations are of this language.
        ValueError: as `parallel.check`.
    """
    if not given.parallel:
        return None
    language, named = code_of(given.teacher_language), given.teacher_language
    pairs = parallel.check(given.parallel, given.heldout_parallel)
    if not any(language in pair for pair in pairs):
        raise errors.UsageError(
            f'--teacher_language={named}: no translations of --parallel are of '
            f'it, they are of {", ".join("-".join(pair) for pair in pairs)}; '
            'name the language that --teacher reads'
        )
    return language


def read(
    given: TextChoices, count: int | None = None, language: str | None = None
) -> dict[str, Texts]:
    """Held-out texts, and those to train on: of so many sentences, drawn from
    all that the teacher reads; None: of all.

    `language` is the one that the teacher reads, of translations.

    Raises:
        UsageError: there is no sentence in one of the parts.
    """
    found: dict[str, list[tuple[str, str, str]]] = {'train': [], 'heldout': []}
    if given.corpus:
        corpus = corpora.chained([*open_corpora(given).values()])
        found['train'] += sentences_of(corpus.train())
        found['heldout'] += sentences_of(corpus.heldout(), HELDOUT)
    if language is not None:
        pairs = parallel.read(
            given.parallel, given.heldout_parallel, given.drop_equal
        )
        print(*pairs.notes, sep='\n', flush=True)
        for part, most in (('train', None), ('heldout', HELDOUT)):
            for some in getattr(pairs, part):
                if language in some.languages:
                    found[part] += translations_of(some, language, most)
    parts = {part: Texts.of(_once(rows)) for part, rows in found.items()}
    held = set(parts['heldout'].taught)
    parts['train'] = parts['train'].where(lambda s: s not in held)
    sentences = parts['train'].sentences
    if count is not None and count < len(sentences):
        some = {sentences[i] for i in tables.subset(len(sentences), count)}
        parts['train'] = parts['train'].where(lambda s: s in some)
    where = f'--parallel={" ".join(given.parallel)}'
    if given.corpus:
        where = f'--corpus={corpus.name}'
    for part, texts in parts.items():
        if not texts.own:
            raise errors.UsageError(
                f'{where} has no sentence for {part}; give more text'
            )
    return parts


def tokenizer_of(given: Choices, texts: Texts) -> 'Tokenizer':
    """What --vocab names, or what was learned from texts."""
    digest = hashlib.blake2b(digest_size=16)
    for text in texts.own:
        digest.update(text.encode('utf-8', 'replace') + b'\n')

    def every() -> Iterator[documents.Document]:
        for text in texts.own:
            yield documents.Document((' '.join(text.split()),), '')

    corpus = corpora.Corpus('', digest.hexdigest(), every, tuple)
    return open_tokenizer(given, {'': corpus}, files.cache_dir())


def by_language(languages: Sequence[str]) -> Callable[..., dict[str, float]]:
    """Of cosines of examples in these languages, the mean of each."""
    places = {
        code: np.flatnonzero(np.array(languages) == code)
        for code in sorted(set(languages) - {''})
    }

    def measure(predictions: dict[str, np.ndarray], view: Any) -> dict:
        from infoword_tf.views.examples import by_example

        cosines = by_example(predictions['cosine'], view)
        return {
            f'cosine_{code}': float(cosines[some].mean())
            for code, some in places.items()
        }

    return measure


def prepare(
    teacher: Embedder, parts: Mapping[str, Texts], given: Choices
) -> finetune.PreparedTask:
    """A student before its training, and the texts of `read` as vectors."""
    from infoword_tf.training import fit
    from infoword_tf.training.run import LabelledData

    own, taught, vectors = {}, {}, {}
    for part, some in parts.items():
        sentences = some.sentences
        place = {sentence: i for i, sentence in enumerate(sentences)}
        places = [place[sentence] for sentence in some.taught]
        taught[part] = teacher.prompted(some.taught, places)
        own[part] = teacher.prompted(some.own, places)
        vectors[part] = teacher.vectors(teacher.prompted(sentences))[places]
    init, started = given.init or teacher.folder, None
    read, tokenizer = own['train'], None
    record: dict[str, Any] = {}
    # Of its own where one is chosen, or where translations are read and no
    # --init brings one.
    chosen = any(getattr(given, name) is not None for name in VOCABULARY)
    if chosen or (given.parallel and not given.init):
        tokenizer = tokenizer_of(given, parts['train'])
        record['vocab'] = (
            f'{given.vocab or "learned"} (text {digest_of(tokenizer)})'
        )
        # Decided, and no longer by --init.
        given = given.decided(**dict.fromkeys(VOCABULARY))
    if given.student == LOOKUP:
        width, pooling = given.width or teacher.width, MEAN
        what = 'pieces' if tokenizer is None else 'texts'
        source = f'{what} of --teacher={teacher.folder}'
        record |= {'weighting': given.weighting}
    else:
        started, source = start_of(init, given.layers, given.take), ''
        if tokenizer is not None:
            started = with_vocabulary(
                started, tokenizer, read, taught['train']
            )
            source = f'--init={init}, with other pieces'
        width, pooling = started.encoder.width, pooling_of(started.config)
        record |= {'layers': started.encoder.depth, 'take': given.take}
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
            teacher, width, given.weighting, read, resolve_rows(given),
            None if tokenizer is None else (tokenizer, vectors['train']),
        )  # fmt: skip
    else:
        started.config = started.config.replace(
            pooling=pooling, similarity=teacher.loaded.config.similarity
        )
    examples, digest = {}, hashlib.blake2b(digest_size=16)
    for part, some in own.items():
        examples[part] = finetune.lay_out(
            started, [(some, None)], given.seq_len, part,
            dict.fromkeys(rows, vectors[part]), what='sentences',
        )  # fmt: skip
        digest.update(teacher.key('texts', *some).encode())
        if taught[part] != some:
            digest.update(teacher.key('texts', *taught[part]).encode())
    config = teacher.loaded.config
    kept = {
        'normalize': config.normalize,
        'prompts': config.prompts,
        'prompt': config.prompt,
    }
    record |= {
        'task': TASK,
        'student': given.student,
        'teacher': f'{teacher.folder} (weights {teacher.digest})',
    }
    measures = {}
    if any(parts['heldout'].languages):
        measure = by_language(parts['heldout'].languages)
        measures = dict.fromkeys(rows, measure)
    labelled = LabelledData(
        examples['train'],
        examples['heldout'],
        digest.hexdigest(),
        fit.Goal(next(GOALS[row] for row in GOALS if row in rows)),
        measures,
        kept,
        started,
        source=source,
        record=record,
    )
    return finetune.PreparedTask(labelled, given)


def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The command with --task=embed."""
    own = LOOKUP_DEFAULTS if given.student == LOOKUP else {}
    given = given.decided(
        seq_len=given.seq_len or finetune.Choices.seq_len,
        **{name: own[name] for name in own if name not in chosen},
    )
    # Before TensorFlow is imported.
    parts = read(given, given.examples, check_parallel(given))
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
