"""SQuAD files: questions, contexts, and the windows that a model reads.

Rajpurkar et al. 2016 (1.1) and 2018 (2.0: a question may have no answer). JSON
lines, Parquet and Arrow have a question a row, with its context, as Hugging
Face's datasets has them: `answers` are then lists of texts and of starts. A
file is held as joined strings and flat arrays, to save memory. Answers are
bytes of the context; the tokenizer's offsets map bytes to tokens.

Glossary of shapes: C contexts, Q questions, n windows, A tokens of all
contexts, P tokens of the contexts of all windows.
"""

import dataclasses
import itertools
import json
import operator
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import tensorflow as tf

from infoword_tf import errors
from infoword_tf.data import readers
from infoword_tf.data.examples import Examples
from infoword_tf.data.labelling import subset
from infoword_tf.inference.context_windows import (
    ContextWindows,
    add_questions,
    most_context,
    question_limit,
    windows,
)
from infoword_tf.objectives import TABLE, span
from infoword_tf.text import characters
from infoword_tf.text.template import Template
from infoword_tf.text.tokenizer import TextTokenizer

SETTINGS = {  # defaults of the row
    name: setting.default for name, setting in TABLE['span'].settings.items()
}
NONE, UNKNOWN = -1, -2  # in place of an answer's bytes
_STRINGS_A_CALL = 4096  # of the tokenizer


# ------------------------------------------------------------------- the file


@dataclasses.dataclass(frozen=True)
class Strings:
    """A sequence of n strings, joined.

    Attributes:
        data: UTF-8, also of lone surrogates.
        begins: [n + 1] int64, offsets of the strings.
    """

    data: bytes
    begins: np.ndarray

    @classmethod
    def of(cls, strings: Sequence[bytes]) -> Self:
        """Joins strings."""
        lengths = np.fromiter(map(len, strings), np.int64, len(strings))
        begins = np.concatenate([[0], np.cumsum(lengths)])
        return cls(b''.join(strings), begins)

    def __len__(self) -> int:
        """Returns the number of strings."""
        return len(self.begins) - 1

    def __iter__(self) -> Iterator[str]:
        """Iterates over all strings."""
        return (self[i] for i in range(len(self)))

    def __getitem__(self, number: int) -> str:
        """Returns a string by number."""
        return _decoded(self.raw(number))

    def raw(self, number: int) -> bytes:
        """Returns the bytes of a string."""
        return self.data[self.begins[number] : self.begins[number + 1]]

    def take(self, numbers: np.ndarray) -> Self:
        """Returns strings by number, joined anew."""
        return type(self).of([self.raw(i) for i in numbers])

    def cut(self, number: int, begin: int, end: int) -> str:
        """Returns bytes of a string, widened to whole characters."""
        raw = self.raw(number)
        while _continues(raw, begin):
            begin -= 1
        while _continues(raw, end):
            end += 1
        return _decoded(raw[begin:end])


def _continues(raw: bytes, place: int) -> bool:
    """Returns true if a byte goes on with a character."""
    return 0 < place < len(raw) and raw[place] & 0xC0 == 0x80


def _encoded(text: str) -> bytes:
    return text.encode('utf-8', 'surrogatepass')


def _decoded(raw: bytes) -> str:
    return raw.decode('utf-8', 'surrogatepass')


@dataclasses.dataclass(frozen=True)
class Questions:
    """The content of a SQuAD file.

    Attributes:
        path: path of the file.
        contexts, ids, texts: C contexts; ids and texts of Q questions.
        context: [Q] int32, number of the context of each question.
        answers: [Q, 2] int64, begin and end of an answer in the bytes of the
            context; NONE twice if a question has no answer, UNKNOWN twice if
            the context does not have the answer at that position.
        golds: all answers of all questions.
        gold_begins: [Q + 1] int64, offsets of the questions in `golds`.
        notes: remarks for people.
    """

    path: pathlib.Path
    contexts: Strings
    ids: Strings
    texts: Strings
    context: np.ndarray
    answers: np.ndarray
    golds: Strings
    gold_begins: np.ndarray
    notes: tuple[str, ...] = ()

    def subset(self, count: int | None) -> Self:
        """Returns so many questions, see `labelling.subset`; None: all."""
        if count is None or count >= len(self.ids):
            return self
        numbers = subset(len(self.ids), count)
        contexts, context = np.unique(
            self.context[numbers], return_inverse=True
        )
        golds = [self.golds_of(i) for i in numbers]
        return dataclasses.replace(
            self,
            contexts=self.contexts.take(contexts),
            ids=self.ids.take(numbers),
            texts=self.texts.take(numbers),
            context=context.astype(np.int32),
            answers=self.answers[numbers],
            golds=Strings.of([_encoded(x) for texts in golds for x in texts]),
            gold_begins=np.cumsum([0, *map(len, golds)]),
        )

    @property
    def golds_by_id(self) -> dict[str, list[str]]:
        """Correct answers by the id of the question."""
        return {name: self.golds_of(i) for i, name in enumerate(self.ids)}

    def golds_of(self, number: int) -> list[str]:
        """Returns the correct answers of a question."""
        begin, end = self.gold_begins[number : number + 2]
        return [self.golds[i] for i in range(begin, end)]


def read(path: pathlib.Path, version2: bool = False) -> Questions:
    """Reads a file of SQuAD 1.1, or of 2.0 with `version2`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is malformed, has no question, an id twice, or a question
            that lacks an answer.
    """
    contexts, ids, texts, golds = [], [], [], []
    context, answers, gold_begins = [], [], [0]
    lost: list[str] = []  # questions whose contexts lack the answer
    seen: set[bytes] = set()
    for text, entries in _paragraphs(path):
        raw = _encoded(text)
        contexts.append(raw)
        for here, entry in entries:
            name = _encoded(_field(entry, 'id', str, here))
            if name in seen:
                raise errors.InputError(
                    'squad_id_twice',
                    f'{here}: another question has its id, {_decoded(name)!r}',
                )
            seen.add(name)
            choices = _answers(entry, here, version2)
            places = [_bytes_of(text, raw, *answer) for answer in choices]
            places = [place for place in places if place]
            if choices and not places:
                lost.append(f'{here} ({choices[0][0]!r})')
            if places:
                answers.append(places[0])
            else:
                answers.append((UNKNOWN if choices else NONE,) * 2)
            ids.append(name)
            texts.append(_encoded(_field(entry, 'question', str, here)))
            context.append(len(contexts) - 1)
            golds += [_encoded(answer) for answer, _ in choices]
            gold_begins.append(len(golds))
    if not ids:
        raise errors.InputError('squad_no_question', f'{path} has no question')
    notes = []
    if lost:
        notes.append(
            f'{path}: {len(lost):,} of {len(ids):,} answers are not where '
            f'their context should have them; the first: {lost[0]}'
        )
    return Questions(
        path=path,
        contexts=Strings.of(contexts),
        ids=Strings.of(ids),
        texts=Strings.of(texts),
        context=np.array(context, np.int32),
        answers=np.array(answers, np.int64),
        golds=Strings.of(golds),
        gold_begins=np.array(gold_begins),
        notes=tuple(notes),
    )


def _answers(entry: Any, where: str, version2: bool) -> list[tuple[str, int]]:
    """Returns the text and the first character of each answer."""
    impossible = version2 and entry.get('is_impossible', False)
    answers = entry.get('answers')
    if isinstance(answers, dict) and answers:  # of a question a row
        names = 'text', 'answer_start'
        lists = [_field(answers, x, list, f'{where}.answers') for x in names]
        if len({*map(len, lists)}) > 1:
            raise errors.InputError(
                'squad_unequal_answers',
                f'{where}.answers: {len(lists[0])} texts, and {len(lists[1])} '
                'starts',
            )
        pairs = zip(*lists, strict=True)
        answers = [dict(zip(names, x, strict=True)) for x in pairs]
        entry = {**entry, 'answers': answers}
    choices = [] if impossible else _field(entry, 'answers', list, where)
    if not choices and not impossible:
        if not version2:
            raise errors.InputError(
                'squad_unanswered',
                f'{where} has no answer; SQuAD 2.0, where a question may have '
                'none, is read with --version2',
            )
        if not entry.get('is_impossible', True):
            raise errors.InputError(
                'squad_answer_missing',
                f'{where} has no answer, and is_impossible says that it has',
            )
    return [
        (
            _field(answer, 'text', str, f'{where}.answers[{i}]'),
            _field(answer, 'answer_start', int, f'{where}.answers[{i}]'),
        )
        for i, answer in enumerate(choices)
    ]


def _bytes_of(
    context: str, raw: bytes, answer: str, start: int
) -> tuple[int, int] | None:
    """Returns the bytes of an answer; None if the context has other text."""
    if not answer or start < 0 or not context.startswith(answer, start):
        return None
    if len(context) == len(raw):
        return start, start + len(answer)
    begin = len(_encoded(context[:start]))
    return begin, begin + len(_encoded(answer))


def _field(value: Any, name: str, kind: type, where: str) -> Any:
    """Returns a field of an object; ValueError if missing or no `kind`."""
    kinds = {str: 'a string', int: 'a whole number', list: 'a list'}
    field = value.get(name) if isinstance(value, dict) else None
    if not isinstance(field, kind) or isinstance(field, bool):
        raise errors.InputError(
            'squad_bad_field', f'{where}: {name!r} should be {kinds[kind]}'
        )
    return field


def _paragraphs(
    path: pathlib.Path,
) -> Iterator[tuple[str, Iterable[tuple[str, Any]]]]:
    """Yields each context and the places and contents of questions."""
    if not path.is_file():
        raise FileNotFoundError(f'{path}: there is no such file')
    kind = pathlib.Path(readers.unpacked(path)).suffix.removeprefix('.')
    if kind in readers.READERS:
        rows = (
            (_field(row, 'context', str, f'{path}, line {line}'),
             (f'{path}, line {line}', row))
            for line, row in readers.READERS[kind](path)
        )  # fmt: skip
        for context, group in itertools.groupby(rows, operator.itemgetter(0)):
            yield context, (entry for _, entry in group)
        return
    try:
        content = json.loads(path.read_bytes().decode('utf-8-sig'))
    except json.JSONDecodeError as error:
        raise errors.InputError(
            'squad_no_json',
            f'{path}, line {error.lineno}, column {error.colno}: this is no '
            f'file of SQuAD ({error.msg}); a question a line is .jsonl',
        ) from None
    except UnicodeDecodeError as error:
        raise errors.InputError(
            'squad_not_utf8', f'{path} is no text in UTF-8: byte {error.start}'
        ) from None
    for number, article in enumerate(_field(content, 'data', list, str(path))):
        where = f'{path}, data[{number}]'
        paragraphs = _field(article, 'paragraphs', list, where)
        for place, paragraph in enumerate(paragraphs):
            here = f'{where}.paragraphs[{place}]'
            context = _field(paragraph, 'context', str, here)
            entries = enumerate(_field(paragraph, 'qas', list, here))
            yield context, [(f'{here}.qas[{i}]', x) for i, x in entries]


# -------------------------------------------------------------------- windows


class Features(NamedTuple):
    """Windows over the contexts of questions.

    Attributes:
        examples: n windows, for the row `span`.
        questions: [n] int32, number of the question of each window.
        firsts: [n] int32, offset of each window in the tokens of its context.
        most: [P] bool, whether a token has most context in this window.
        offsets: [A, 2] int32, bytes of all tokens of all contexts.
        begins: [C + 1] int64, offsets of the contexts in `offsets`.
        notes: remarks for people.
    """

    examples: Examples
    questions: np.ndarray
    firsts: np.ndarray
    most: np.ndarray
    offsets: np.ndarray
    begins: np.ndarray
    notes: tuple[str, ...] = ()

    @property
    def sizes(self) -> np.ndarray:
        """Numbers of context tokens in each window, [n] int64."""
        return np.diff(self.examples.candidates['span'].astype(np.int64))[:, 0]


def features(
    questions: Questions,
    template: Template,
    max_length: int,
    training: bool = False,
    **changes: Any,
) -> Features:
    """Splits contexts into windows, as inputs of a model.

    In a window without the whole answer the target is "nowhere". Training
    leaves out windows that teach nothing: "nowhere" without `null`, and those
    of an UNKNOWN answer.

    Args:
        questions: questions of a file.
        template: template of the model's inputs.
        max_length: T, of question and context together.
        training: whether the windows are to be trained on.
        **changes: settings of the row that differ from the defaults.

    Raises:
        ValueError: no window is left.
    """
    settings = SETTINGS | changes
    null, stride = settings['null'], settings['stride']
    limit = template.free_length(max_length, texts=2)
    longest = question_limit(
        max_length, max_length - limit, settings['question']
    )
    ids, offsets, begins = _tokenized(template.tokenizer, questions.contexts)
    answers = _tokens_of(questions, offsets, begins)
    numbers = np.arange(len(questions.ids))
    lost = answers[:, 0] == UNKNOWN
    sizes = np.diff(begins)[questions.context]
    if training:
        numbers = numbers[~lost]
    chunks, truncated = [], 0
    parts = -(-len(numbers) // _STRINGS_A_CALL) or 1
    for chunk in np.array_split(numbers, parts):
        texts = [questions.texts.raw(i) for i in chunk]
        tokens = template.tokenizer.tokenize(tf.constant(texts, tf.string))
        truncated += int((tokens.row_lengths().numpy() > longest).sum())
        tokens = tokens[:, :longest]
        context = questions.context[chunk]
        lengths = tf.constant(sizes[chunk])
        split = windows(lengths, limit - tokens.row_lengths(), stride)
        most = most_context(split, lengths).numpy()
        split = ContextWindows(*(x.numpy() for x in split))
        inside, unknown = _inside(split, answers[chunk])
        known = ~unknown if null else inside
        if training:
            most = most[np.repeat(known, split.sizes)]
            split = ContextWindows(*(x[known] for x in split))
            known = known[known]
        formatted = _formatted(
            split,
            tokens=tokens,
            ids=ids,
            begins=begins[context],
            answers=answers[chunk],
            template=template,
        )
        question = chunk[split.contexts]
        chunks.append((question, split.firsts, most, *formatted, known))
    question, firsts, most, *arrays = map(
        np.concatenate, zip(*chunks, strict=True)
    )
    if not len(question):
        raise errors.InputError(
            'squad_no_window',
            f'{questions.path}: no question is left; their contexts are empty, '
            'or no answer stands where its context should have it',
        )
    tokenless = int((lost & (questions.answers[:, 0] != UNKNOWN)).sum())
    counts = {
        'have answers of which the tokenizer leaves nothing': tokenless,
        'have a context without a token': int((sizes == 0).sum()),
        f'are truncated to their first {longest} tokens': truncated,
    }
    return Features(
        examples=_examples(*arrays),
        questions=question.astype(np.int32),
        firsts=firsts.astype(np.int32),
        most=most,
        offsets=offsets,
        begins=begins,
        notes=(*questions.notes, *_notes(questions, counts)),
    )


def _notes(questions: Questions, counts: Mapping[str, int]) -> list[str]:
    """Lists how many questions something is true of, if of any."""
    total = f'of {len(questions.ids):,} questions'
    return [
        f'{questions.path}: {count:,} {total} {what}'
        for what, count in counts.items()
        if count
    ]


def _examples(
    ids: np.ndarray,
    segments: np.ndarray,
    lengths: np.ndarray,
    places: np.ndarray,
    targets: np.ndarray,
    candidates: np.ndarray,
    known: np.ndarray,
) -> Examples:
    """Makes examples of the arrays that `_formatted` returns.

    `known` [n] bool are the windows whose targets are counted.
    """
    return Examples(
        ids=ids,
        segments=segments,
        begins=np.concatenate([[0], np.cumsum(lengths)]),
        places=places,
        targets={'span': targets},
        candidates={'span': candidates},
        counts={'span': span.counts_of(targets[known], candidates[known])},
    )


def _tokenized(
    tokenizer: TextTokenizer, strings: Strings
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokenizes contexts: ids [A], offsets [A, 2], begins [C + 1]."""
    ids, offsets, lengths = [], [], []
    every = range(len(strings))
    for begin in every[::_STRINGS_A_CALL]:
        chunk = every[begin : begin + _STRINGS_A_CALL]
        texts = tf.constant([strings.raw(i) for i in chunk], tf.string)
        tokens, starts, ends = characters.read(tokenizer, texts)
        ids.append(tokens.values.numpy())
        offsets.append(np.stack([starts.values, ends.values], axis=1))
        lengths.append(tokens.row_lengths().numpy())
    begins = np.concatenate([[0], *map(np.int64, lengths)])
    return (
        np.concatenate(ids).astype(np.int32),
        np.concatenate(offsets).astype(np.int32),
        np.cumsum(begins),
    )


def _tokens_of(
    questions: Questions, offsets: np.ndarray, begins: np.ndarray
) -> np.ndarray:
    """Finds the first and last token of each answer, [Q, 2] int64.

    NONE and UNKNOWN do not change; an answer without a token is UNKNOWN.
    """
    # With offsets in the joined contexts all answers are one sorted search.
    byte = questions.contexts.begins[:-1]
    starts, ends = (offsets + np.repeat(byte, np.diff(begins))[:, None]).T
    answers = questions.answers + byte[questions.context][:, None]
    first = np.searchsorted(ends, answers[:, 0], 'right')
    last = np.searchsorted(starts, answers[:, 1], 'left') - 1
    here, after = begins[questions.context], begins[questions.context + 1]
    has_tokens = (first >= here) & (last >= first) & (last < after)
    places = np.stack([first - here, last - here], axis=1)
    places[~has_tokens] = UNKNOWN
    none = questions.answers[:, 0] < 0
    places[none] = questions.answers[none]
    return places


def _inside(
    split: ContextWindows, answers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Tells which windows hold the whole answer, and whose is UNKNOWN."""
    answer = answers[split.contexts]
    inside = (answer[:, 0] >= split.firsts) & (
        answer[:, 1] < split.firsts + split.sizes
    )
    return inside, answer[:, 0] == UNKNOWN


def _formatted(
    split: ContextWindows,
    tokens: tf.RaggedTensor,
    ids: np.ndarray,
    begins: np.ndarray,
    answers: np.ndarray,
    template: Template,
) -> tuple[np.ndarray, ...]:
    """Formats windows of questions as examples.

    `tokens`, `begins` and `answers` are by question, as `split.contexts`.

    Returns:
        Ids, segments, lengths, places, targets and candidates.
    """
    layout, answer = template.layout, answers[split.contexts]
    inside, unknown = _inside(split, answers)
    ends = np.cumsum(split.sizes)
    source = np.arange(ends[-1] if len(ends) else 0) + np.repeat(
        begins[split.contexts] + split.firsts - (ends - split.sizes),
        split.sizes,
    )
    inputs, second, context = add_questions(
        tf.gather(tokens, split.contexts),
        tf.RaggedTensor.from_row_lengths(ids[source], split.sizes),
        template,
    )
    second, context = second.numpy(), context.numpy()
    lengths = inputs.row_lengths().numpy()
    splits = inputs.row_splits.numpy()
    column = np.arange(splits[-1]) - np.repeat(splits[:-1], lengths)
    segments = np.where(
        column >= np.repeat(second, lengths), layout.second_segment, 0
    )
    if layout.last_segment is not None:
        segments[splits[1:] - 1] = layout.last_segment
    places = np.zeros_like(lengths) if layout.first else lengths - 1
    candidates = np.stack([context, context + split.sizes], axis=1)
    spans = answer - split.firsts[:, None] + context[:, None]
    spans = np.where(inside[:, None], spans, places[:, None])
    # UNKNOWN becomes the [SEP] after a context, which is never a candidate.
    spans = np.where(unknown[:, None], candidates[:, 1:], spans)
    targets = np.concatenate([spans, places[:, None]], axis=1)
    return (
        inputs.values.numpy(),
        segments.astype(np.int8),
        lengths,
        places.astype(np.int32),
        targets.astype(np.int32),
        candidates.astype(np.int32),
    )
