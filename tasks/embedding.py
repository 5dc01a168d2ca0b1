"""Students of an embedding model, for tasks.distill.

Examples are the distinct sentences of a corpus, without labels: b is the
teacher's vector of the sentence. The student is the first layers of a
transformer, or the encoder `lookup`.

Of translations both texts are examples with one b: the teacher's vector of the
text in the language that the teacher reads (Reimers & Gurevych 2020, "Making
Monolingual Sentence Embeddings Multilingual", Eq. 1).
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
from infoword_tf.data import corpora, documents, labelling, parallel, text_pairs
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

from . import finetune
from .student import (
    FIRST,
    SIF,
    TAKES,
    WEIGHTINGS,
    lookup_of,
    pooling_of,
    start_of,
    with_vocabulary,
)
from .teacher import Embedder

if TYPE_CHECKING:
    from infoword_tf.data.examples import Examples
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.text.tokenizer import TextTokenizer

TASK = 'embed'
LAYERS, LOOKUP = STUDENTS = ('layers', 'lookup')
OBJECTIVES = 'embed_distance'
# Defaults of --student=lookup that differ.
LOOKUP_DEFAULTS = {'learning_rate': 1e-3, 'batch_size': 256, 'dropout': 0.0}
HELDOUT = 1000  # held-out sentences of a corpus, pairs of two languages
# Flags that need --task=embed.
OF_PAIRS = 'teacher_language', 'heldout_parallel', 'drop_equal'
OF_VECTORS = ('student', 'weighting', 'parallel', *OF_PAIRS)
VOCABULARY = ('vocab', 'vocab_size', 'tokenizer', 'lower_case')
GOALS = {'embed': 'heldout/embed/mi',
         'embed_distance': 'heldout/embed_distance/cosine'}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class EmbeddingChoices(finetune.FinetuneChoices):
    """Choices of a student, and of the text that a teacher reads."""

    teacher: str = flag(
        '', 'A workdir that was fine-tuned on the same task.', model=True)
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
        SIF, 'Initial weights of the tokens of a lookup table: a / (a + '
        'frequency), or log(1 + rank).', choices=WEIGHTINGS)
    teacher_language: str = flag(
        'en', 'Language that --teacher reads, of those of --parallel.')


def check(choices: EmbeddingChoices, chosen: Mapping[str, Any]) -> None:
    """Refuses contradicting choices, before anything is read.

    Raises:
        UsageError: what contradicts, and what to leave out.
    """
    if not choices.parallel:
        commands.require(
            vars(choices), corpus='text for the teacher to read, or --parallel'
        )
        commands.refuse(chosen, OF_PAIRS, '{} is for --parallel; give both')
    if choices.heldout and not choices.corpus:
        raise errors.UsageError(
            'heldout_without_corpus',
            '--heldout is of --corpus; of --parallel it is --heldout_parallel',
        )
    choose_tokenizer(choices)  # complains
    lookup = choices.student == LOOKUP
    commands.refuse(
        chosen,
        ('layers', 'take') if lookup else ('weighting', 'width'),
        f'--student={choices.student} has no {{}}; leave it out',
    )
    if lookup and choices.init:
        raise errors.UsageError(
            'lookup_with_init',
            '--student=lookup starts from tokens of --teacher; leave out '
            '--init',
        )
    objectives = choices.objectives or OBJECTIVES
    for row in parse(objectives):
        if row not in GOALS:
            raise errors.UsageError(
                'row_reads_no_teacher',
                f'--objectives={objectives}: {row} reads no vectors of a '
                f'teacher; known are {", ".join(GOALS)}',
            )


class Texts(NamedTuple):
    """The n texts of a student, paired with the texts that the teacher reads.

    Attributes:
        student: texts, distinct among those with the same `teacher`.
        teacher: the same text, or the one that it translates.
        languages: codes of `student`; '' of a corpus.
    """

    student: list[str]
    teacher: list[str]
    languages: list[str]

    @classmethod
    def of(cls, examples: Iterable[tuple[str, str, str]]) -> 'Texts':
        """Collects (student, teacher, language)."""
        examples = list(examples)
        return cls(*([example[i] for example in examples] for i in range(3)))

    @property
    def sentences(self) -> list[str]:
        """Distinct texts that the teacher reads."""
        return list(dict.fromkeys(self.teacher))

    def where(self, condition: Callable[[str], bool]) -> 'Texts':
        """Selects texts by a condition on the teacher's text."""
        examples = zip(*self, strict=True)
        return self.of(x for x in examples if condition(x[1]))


def sentences_of(
    corpus: Iterable[documents.Document], count: int | None = None
) -> Iterator[tuple[str, str, str]]:
    """Yields distinct sentences of documents, at most so many, for `Texts`."""
    every = ((s, s, '') for document in corpus for s in document.sentences)
    return itertools.islice(_once(every), count)


def translations_of(
    pairs: text_pairs.Columns, language: str, count: int | None = None
) -> Iterator[tuple[str, str, str]]:
    """Yields both texts of translations, for `Texts`; `language` is read."""
    languages = pairs.languages or ('', '')
    side = languages.index(language)
    other = languages[1 - side]
    both = zip(pairs.texts[side], pairs.texts[1 - side], strict=True)
    for text, translation in itertools.islice(both, count):
        yield text, text, language
        yield translation, text, other


def _once(examples: Iterable[tuple[str, ...]]) -> Iterator[Any]:
    """Yields examples whose first two texts did not occur before."""
    seen: set[bytes] = set()
    for example in examples:
        text = '\n'.join(example[:2]).encode('utf-8', 'replace')
        digest = hashlib.blake2b(text, digest_size=10).digest()
        if digest not in seen:
            seen.add(digest)
            yield example


def check_parallel(choices: EmbeddingChoices) -> str | None:
    """Returns the code of --teacher_language; None without --parallel.

    Reads no file to its end.

    Raises:
        UsageError: no translations of this language.
        ValueError: as `parallel.check`.
    """
    if not choices.parallel:
        return None
    named = choices.teacher_language
    language = code_of(named)
    pairs = parallel.check(choices.parallel, choices.heldout_parallel)
    if not any(language in pair for pair in pairs):
        raise errors.UsageError(
            'unknown_teacher_language',
            f'--teacher_language={named}: no translations of --parallel are of '
            f'it, they are of {", ".join("-".join(pair) for pair in pairs)}; '
            'name the language that --teacher reads',
        )
    return language


def read(
    choices: TextChoices, count: int | None = None, language: str | None = None
) -> dict[str, Texts]:
    """Reads texts to train on and held-out texts.

    Args:
        choices: choices of the command.
        count: sentences of the teacher that are drawn; None: all.
        language: language of translations that the teacher reads.

    Raises:
        UsageError: a split has no sentence.
    """
    examples: dict[str, list[tuple[str, str, str]]] = {
        'train': [], 'heldout': []
    }  # fmt: skip
    if choices.corpus:
        corpus = corpora.chained([*open_corpora(choices).values()])
        examples['train'] += sentences_of(corpus.train())
        examples['heldout'] += sentences_of(corpus.heldout(), HELDOUT)
    if language is not None:
        pairs = parallel.read(
            choices.parallel, choices.heldout_parallel, choices.drop_equal
        )
        print(*pairs.notes, sep='\n', flush=True)
        for split, most in (('train', None), ('heldout', HELDOUT)):
            for columns in getattr(pairs, split):
                if language in columns.languages:
                    examples[split] += translations_of(columns, language, most)
    splits = {split: Texts.of(_once(x)) for split, x in examples.items()}
    held = set(splits['heldout'].teacher)
    splits['train'] = splits['train'].where(lambda s: s not in held)
    sentences = splits['train'].sentences
    if count is not None and count < len(sentences):
        subset = {sentences[i] for i in labelling.subset(len(sentences), count)}
        splits['train'] = splits['train'].where(lambda s: s in subset)
    where = f'--parallel={" ".join(choices.parallel)}'
    if choices.corpus:
        where = f'--corpus={corpus.name}'
    for split, texts in splits.items():
        if not texts.student:
            raise errors.UsageError(
                'split_without_sentence',
                f'{where} has no sentence for {split}; give more text',
            )
    return splits


def tokenizer_of(choices: EmbeddingChoices, texts: Texts) -> 'TextTokenizer':
    """Opens the tokenizer of --vocab, or learns one from texts."""
    digest = hashlib.blake2b(digest_size=16)
    for text in texts.student:
        digest.update(text.encode('utf-8', 'replace') + b'\n')

    def every() -> Iterator[documents.Document]:
        for text in texts.student:
            yield documents.Document((' '.join(text.split()),), '')

    corpus = corpora.Corpus('', digest.hexdigest(), every, lambda: iter(()))
    return open_tokenizer(choices, {'': corpus}, files.cache_dir())


def by_language(languages: Sequence[str]) -> Callable[..., dict[str, float]]:
    """Returns a function that averages cosines by language of examples."""
    places = {
        code: np.flatnonzero(np.array(languages) == code)
        for code in sorted(set(languages) - {''})
    }

    def measure(predictions: dict[str, np.ndarray], view: Any) -> dict:
        from infoword_tf.views.examples import by_example

        cosines = by_example(predictions['cosine'], view)
        return {
            f'cosine_{code}': float(cosines[numbers].mean())
            for code, numbers in places.items()
        }

    return measure


class PromptedTexts(NamedTuple):
    """Texts of both models by split, after prompts.

    Attributes:
        student: n texts of the student.
        teacher: n texts of the teacher.
        vectors: [n, W], vectors of the teacher.
    """

    student: dict[str, list[str]]
    teacher: dict[str, list[str]]
    vectors: dict[str, np.ndarray]


def inputs_of(teacher: Embedder, splits: Mapping[str, Texts]) -> PromptedTexts:
    """Computes the teacher's vectors of the texts of `read`."""
    inputs = PromptedTexts({}, {}, {})
    for split, texts in splits.items():
        sentences = texts.sentences
        number = {sentence: i for i, sentence in enumerate(sentences)}
        numbers = [number[sentence] for sentence in texts.teacher]
        inputs.teacher[split] = teacher.prompted(texts.teacher, numbers)
        inputs.student[split] = teacher.prompted(texts.student, numbers)
        vectors = teacher.vectors(teacher.prompted(sentences))
        inputs.vectors[split] = vectors[numbers]
    return inputs


def examples_of(
    teacher: Embedder,
    started: 'Loaded',
    inputs: PromptedTexts,
    rows: Iterable[str],
    length: int,
) -> tuple[dict[str, 'Examples'], str]:
    """Formats texts as inputs of a student; returns a fingerprint, too."""
    examples, digest = {}, hashlib.blake2b(digest_size=16)
    for split, texts in inputs.student.items():
        examples[split] = finetune.format_examples(
            started,
            [(texts, None)],
            length,
            split,
            targets=dict.fromkeys(rows, inputs.vectors[split]),
            what='sentences',
        )
        digest.update(teacher.key('texts', *texts).encode())
        if inputs.teacher[split] != texts:
            digest.update(teacher.key('texts', *inputs.teacher[split]).encode())
    return examples, digest.hexdigest()


def has_vocabulary(choices: EmbeddingChoices) -> bool:
    """Tells whether the student gets other tokens than --init or --teacher has.

    A vocabulary is chosen by flags, or learned for translations unless --init
    has one.
    """
    chosen = any(getattr(choices, name) is not None for name in VOCABULARY)
    return chosen or bool(choices.parallel and not choices.init)


def with_rows(
    choices: EmbeddingChoices, pooling: str, width: int
) -> EmbeddingChoices:
    """Decides --objectives, and settings of the rows.

    Args:
        choices: choices of the command.
        pooling: pooling of the student.
        width: width of the teacher, where the student has another; else 0.
    """
    objectives = choices.objectives or OBJECTIVES
    rows = built(parse(objectives))
    settings: dict[str, Any] = {f'{row}.pooling': pooling for row in rows}
    settings |= {f'{row}.width': width for row in rows}
    return choices.decided(settings, objectives=objectives)


def prepare(
    teacher: Embedder, splits: Mapping[str, Texts], choices: EmbeddingChoices
) -> finetune.PreparedTask:
    """Prepares a student, and the teacher's vectors of the texts of `read`."""
    from infoword_tf.training import fit
    from infoword_tf.training.build import LabelledData

    inputs = inputs_of(teacher, splits)
    init, started = choices.init or teacher.folder, None
    tokenizer = None
    record: dict[str, Any] = {}
    if has_vocabulary(choices):
        tokenizer = tokenizer_of(choices, splits['train'])
        record['vocab'] = (
            f'{choices.vocab or "learned"} (text {digest_of(tokenizer)})'
        )
        # The start has the tokenizer now.
        choices = choices.decided(**dict.fromkeys(VOCABULARY))
    if choices.student == LOOKUP:
        width, pooling = choices.width or teacher.width, MEAN
        what = 'tokens' if tokenizer is None else 'texts'
        source = f'{what} of --teacher={teacher.folder}'
        record |= {'weighting': choices.weighting}
    else:
        started, source = start_of(init, choices.layers, choices.take), ''
        if tokenizer is not None:
            both = inputs.student['train'], inputs.teacher['train']
            started = with_vocabulary(started, tokenizer, *both)
            source = f'--init={init}, with other tokens'
        width, pooling = started.encoder.width, pooling_of(started.config)
        record |= {'layers': started.encoder.depth, 'take': choices.take}
    back = 0 if width == teacher.width else teacher.width
    # The start has the width now.
    choices = with_rows(choices, pooling, back).decided(width=None, init=init)
    rows = built(parse(choices.objectives))
    if started is None:
        vocabulary = None
        if tokenizer is not None:
            vocabulary = tokenizer, inputs.vectors['train']
        started = lookup_of(
            teacher,
            width,
            weighting=choices.weighting,
            texts=inputs.student['train'],
            rows=resolve_rows(choices),
            vocabulary=vocabulary,
        )
    else:
        started.config = started.config.replace(
            pooling=pooling, similarity=teacher.loaded.config.similarity
        )
    examples, fingerprint = examples_of(
        teacher, started, inputs, rows=rows, length=choices.seq_len
    )
    config = teacher.loaded.config
    names = 'normalize', 'prompts', 'prompt'
    fields = {name: getattr(config, name) for name in names}
    record |= {
        'task': TASK,
        'student': choices.student,
        'teacher': f'{teacher.folder} (weights {teacher.digest})',
    }
    measures = {}
    if any(languages := splits['heldout'].languages):
        measures = dict.fromkeys(rows, by_language(languages))
    labelled = LabelledData(
        train=examples['train'],
        heldout=examples['heldout'],
        fingerprint=fingerprint,
        goal=fit.Goal(next(GOALS[row] for row in GOALS if row in rows)),
        measures=measures,
        config_fields=fields,
        started=started.workdir,
        source=source,
        record=record,
    )
    choices = finetune.with_rate(choices, started.encoder.width)
    return finetune.PreparedTask(labelled, choices)


def run(choices: EmbeddingChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Runs tasks.distill with --task=embed."""
    defaults: dict[str, Any] = {'epochs': finetune.EPOCHS}
    if choices.student == LOOKUP:
        defaults |= LOOKUP_DEFAULTS
    choices = choices.decided(
        seq_len=choices.seq_len or finetune.FinetuneChoices.seq_len,
        **{k: value for k, value in defaults.items() if k not in chosen},
    )
    # Before TensorFlow is imported.
    splits = read(choices, choices.examples, check_parallel(choices))
    prepared = prepare(Embedder(choices.teacher), splits, choices)
    best = finetune.train_once(prepared, chosen)
    values = {
        name.removeprefix('heldout/'): round(value, 6)
        for name, value in best.items()
        if name.startswith('heldout/')
    }
    return finetune.finish(
        pathlib.Path(choices.workdir),
        {'task': TASK, **values, 'step': best['step'],
         'seconds': best.get('seconds')},
    )  # fmt: skip
