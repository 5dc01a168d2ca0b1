"""SQuAD files: questions, contexts, and the windows that a model reads.

Rajpurkar et al. 2016 (1.1) and 2018 (2.0: a question may have no answer). All
that is kept of a file are strings joined to one and flat arrays. Answers are
bytes of the context as it is written; the tokenizer's offsets say which pieces
have them.

Glossary of shapes: C contexts, Q questions, n windows, P pieces of all
contexts, N those of all windows.
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import tensorflow as tf

from infoword_tf.data.examples import Examples
from infoword_tf.data.tables import subset
from infoword_tf.inference.context_windows import (
    ContextWindows,
    beside,
    most_context,
    question_limit,
    windows,
)
from infoword_tf.objectives import TABLE, span
from infoword_tf.text import characters
from infoword_tf.text.template import Template
from infoword_tf.text.tokenizer import Tokenizer

SETTINGS = {  # of the row, where a run does not choose
    name: setting.default for name, setting in TABLE['span'].settings.items()
}
NONE, UNKNOWN = -1, -2  # instead of an answer's bytes
_STRINGS_A_CALL = 4096  # of the tokenizer


# ------------------------------------------------------------------- the file


@dataclasses.dataclass(frozen=True)
class Strings:
    """Many strings as one.

    Attributes:
        data: UTF-8; a lone surrogate is written as it is.
        begins: [n + 1] int64, where each begins.
    """

    data: bytes
    begins: np.ndarray

    @classmethod
    def of(cls, strings: Sequence[bytes]) -> Self:
        """Joins them."""
        lengths = np.fromiter(map(len, strings), np.int64, len(strings))
        begins = np.concatenate([[0], np.cumsum(lengths)])
        return cls(b''.join(strings), begins)

    def __len__(self) -> int:
        """n."""
        return len(self.begins) - 1

    def __iter__(self) -> Iterator[str]:
        """All of them."""
        return (self[i] for i in range(len(self)))

    def __getitem__(self, number: int) -> str:
        """One of them."""
        return _decoded(self.raw(number))

    def raw(self, number: int) -> bytes:
        """The bytes of one of them."""
        return self.data[self.begins[number] : self.begins[number + 1]]

    def subset(self, numbers: np.ndarray) -> Self:
        """Some of them."""
        return type(self).of([self.raw(i) for i in numbers])

    def cut(self, number: int, begin: int, end: int) -> str:
        """Bytes of one of them, with all of the characters that they are of."""
        raw = self.raw(number)
        while _continues(raw, begin):
            begin -= 1
        while _continues(raw, end):
            end += 1
        return _decoded(raw[begin:end])


def _continues(raw: bytes, place: int) -> bool:
    """Whether a byte is not the first of its character."""
    return 0 < place < len(raw) and raw[place] & 0xC0 == 0x80


def _encoded(text: str) -> bytes:
    return text.encode('utf-8', 'surrogatepass')


def _decoded(raw: bytes) -> str:
    return raw.decode('utf-8', 'surrogatepass')


@dataclasses.dataclass(frozen=True)
class Questions:
    """What a file says.

    Attributes:
        path: of the file.
        contexts, ids, texts: strings: C contexts, and of Q questions.
        context: [Q] int32, that of each question.
        answers: [Q, 2] int64, the first byte of an answer in its context and
            the one after its last; NONE twice where a question has none,
            UNKNOWN twice where no answer stands where the file says.
        golds: strings, all answers of all questions.
        gold_begins: [Q + 1] int64, where those of each question begin.
        notes: what is worth saying of it, for people.
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
        """So many of them, see `tables.subset`; None: all."""
        if count is None or count >= len(self.ids):
            return self
        numbers = subset(len(self.ids), count)
        kept, context = np.unique(self.context[numbers], return_inverse=True)
        golds = [self.golds_of(i) for i in numbers]
        return dataclasses.replace(
            self,
            contexts=self.contexts.subset(kept),
            ids=self.ids.subset(numbers),
            texts=self.texts.subset(numbers),
            context=context.astype(np.int32),
            answers=self.answers[numbers],
            golds=Strings.of([_encoded(x) for part in golds for x in part]),
            gold_begins=np.cumsum([0, *map(len, golds)]),
        )

    @property
    def golds_by_id(self) -> dict[str, list[str]]:
        """By question, its answers."""
        return {name: self.golds_of(i) for i, name in enumerate(self.ids)}

    def golds_of(self, number: int) -> list[str]:
        """The answers of a question."""
        begin, end = self.gold_begins[number : number + 2]
        return [self.golds[i] for i in range(begin, end)]


def read(path: pathlib.Path, version2: bool = False) -> Questions:
    """Reads a file of SQuAD 1.1 or, where questions may have no answer, 2.0.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is not what it should be; it has no question, two of
            one id, or one without an answer that should have one.
    """
    contexts, ids, texts, golds = [], [], [], []
    context, answers, gold_begins = [], [], [0]
    lost: list[str] = []  # questions whose answer is elsewhere
    seen: set[bytes] = set()
    for where, paragraph in _paragraphs(path):
        text = _field(paragraph, 'context', str, where)
        raw = _encoded(text)
        contexts.append(raw)
        for number, entry in enumerate(_field(paragraph, 'qas', list, where)):
            here = f'{where}.qas[{number}]'
            name = _encoded(_field(entry, 'id', str, here))
            if name in seen:
                raise ValueError(
                    f'{here}: another question has its id, {_decoded(name)!r}'
                )
            seen.add(name)
            given = _answers(entry, here, version2)
            found = [_bytes_of(text, raw, *answer) for answer in given]
            found = [places for places in found if places]
            if given and not found:
                lost.append(f'{here} ({given[0][0]!r})')
            if found:
                answers.append(found[0])
            else:
                answers.append((UNKNOWN if given else NONE,) * 2)
            ids.append(name)
            texts.append(_encoded(_field(entry, 'question', str, here)))
            context.append(len(contexts) - 1)
            golds += [_encoded(answer) for answer, _ in given]
            gold_begins.append(len(golds))
    if not ids:
        raise ValueError(f'{path} has no question')
    notes = []
    if lost:
        notes.append(
            f'{path}: {len(lost):,} of {len(ids):,} answers are not where '
            f'their context should have them; the first: {lost[0]}'
        )
    return Questions(
        path,
        Strings.of(contexts),
        Strings.of(ids),
        Strings.of(texts),
        np.array(context, np.int32),
        np.array(answers, np.int64),
        Strings.of(golds),
        np.array(gold_begins),
        tuple(notes),
    )


def _answers(entry: Any, where: str, version2: bool) -> list[tuple[str, int]]:
    """Text and first character of each; none where none need be."""
    impossible = version2 and entry.get('is_impossible', False)
    given = [] if impossible else _field(entry, 'answers', list, where)
    if not given and not impossible:
        if not version2:
            raise ValueError(
                f'{where} has no answer; SQuAD 2.0, where a question may have '
                'none, is read with --version2'
            )
        if not entry.get('is_impossible', True):
            raise ValueError(
                f'{where} has no answer, and is_impossible says that it has'
            )
    return [
        (
            _field(answer, 'text', str, f'{where}.answers[{i}]'),
            _field(answer, 'answer_start', int, f'{where}.answers[{i}]'),
        )
        for i, answer in enumerate(given)
    ]


def _bytes_of(
    context: str, raw: bytes, answer: str, start: int
) -> tuple[int, int] | None:
    """Where an answer stands; None: it stands elsewhere, if anywhere."""
    if not answer or start < 0 or not context.startswith(answer, start):
        return None
    if len(context) == len(raw):
        return start, start + len(answer)
    begin = len(_encoded(context[:start]))
    return begin, begin + len(_encoded(answer))


def _field(value: Any, name: str, kind: type, where: str) -> Any:
    """One field of an object, unless it is missing, or of another kind."""
    kinds = {str: 'a string', int: 'a whole number', list: 'a list'}
    field = value.get(name) if isinstance(value, dict) else None
    if not isinstance(field, kind) or isinstance(field, bool):
        raise ValueError(f'{where}: {name!r} should be {kinds[kind]}')
    return field


def _paragraphs(path: pathlib.Path) -> Iterator[tuple[str, Any]]:
    """Paragraphs with their place in the file; args and errors as `read`."""
    if not path.is_file():
        raise FileNotFoundError(f'{path}: there is no such file')
    try:
        found = json.loads(path.read_bytes().decode('utf-8-sig'))
    except json.JSONDecodeError as error:
        raise ValueError(
            f'{path}, line {error.lineno}, column {error.colno}: this is no '
            f'file of SQuAD ({error.msg})'
        ) from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f'{path} is no text in UTF-8: byte {error.start}'
        ) from None
    for number, article in enumerate(_field(found, 'data', list, str(path))):
        where = f'{path}, data[{number}]'
        paragraphs = _field(article, 'paragraphs', list, where)
        for place, paragraph in enumerate(paragraphs):
            yield f'{where}.paragraphs[{place}]', paragraph


# -------------------------------------------------------------------- windows


class Features(NamedTuple):
    """Windows over the contexts of questions.

    Attributes:
        examples: of the row `span`, n of them.
        questions: [n] int32, that of each window.
        firsts: [n] int32, the first piece of each among those of its context.
        most: [N] bool, of the pieces of the context in one window after
            those in the other: that they have most context there.
        offsets: [P, 2] int32, bytes of all pieces of all contexts.
        begins: [C + 1] int64, where those of each context begin.
        notes: what is worth saying, for people.
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
        """[n] int64: pieces of the context in each window."""
        return np.diff(self.examples.candidates['span'].astype(np.int64))[:, 0]


def features(
    questions: Questions,
    template: Template,
    max_length: int,
    training: bool = False,
    **chosen: Any,
) -> Features:
    """What a model reads of questions.

    An answer that its window does not hold whole is "nowhere" there. A window
    is left out of training where it teaches nothing: "nowhere" is no answer
    (`null`), or the answer is nobody knows where.

    Args:
        questions: of a file.
        template: what lays texts out, as a model reads them.
        max_length: T, of question and context together.
        training: whether it is to be trained on.
        **chosen: settings of the row, where they are not the defaults.

    Raises:
        ValueError: no window is left.
    """
    settings = SETTINGS | chosen
    null, stride = settings['null'], settings['stride']
    limit = template.free_length(max_length, texts=2)
    longest = question_limit(
        max_length, max_length - limit, settings['question']
    )
    ids, offsets, begins = _tokenized(template.tokenizer, questions.contexts)
    answers = _pieces_of(questions, offsets, begins)
    numbers = np.arange(len(questions.ids))
    lost = answers[:, 0] == UNKNOWN
    empty = np.diff(begins)[questions.context] == 0
    if training:
        numbers = numbers[~lost]
    parts, cut = [], 0
    for some in np.array_split(
        numbers, -(-len(numbers) // _STRINGS_A_CALL) or 1
    ):
        asked = template.tokenizer.tokenize(
            tf.constant([questions.texts.raw(i) for i in some], tf.string)
        )
        cut += int((asked.row_lengths().numpy() > longest).sum())
        asked = asked[:, :longest]
        context = questions.context[some]
        sizes = np.diff(begins)[context]
        found = windows(
            tf.constant(sizes), limit - asked.row_lengths(), stride
        )
        most = most_context(found, tf.constant(sizes)).numpy()
        found = ContextWindows(*(x.numpy() for x in found))
        part = _laid_out(
            found, most, asked, ids, begins[context], answers[some], template,
            null, training,
        )  # fmt: skip
        parts.append((some[part[0]], *part[1:]))
    (
        question, firsts, most, rows, segments, lengths, places, targets,
        candidates, known,
    ) = map(np.concatenate, zip(*parts, strict=True))  # fmt: skip
    if not len(question):
        raise ValueError(
            f'{questions.path}: no question is left; their contexts are empty, '
            'or no answer stands where its context should have it'
        )
    examples = Examples(
        ids=rows,
        segments=segments,
        begins=np.concatenate([[0], np.cumsum(lengths)]),
        places=places,
        targets={'span': targets},
        candidates={'span': candidates},
        counts={'span': span.counts_of(targets[known], candidates[known])},
    )
    notes = list(questions.notes)
    many = f'of {len(questions.ids):,} questions'
    more = int((lost & (questions.answers[:, 0] != UNKNOWN)).sum())
    for count, what in (
        (more, 'have answers of which the tokenizer leaves nothing'),
        (int(empty.sum()), 'have a context without a piece'),
        (cut, f'are cut to their first {longest} pieces'),
    ):
        if count:
            notes.append(f'{questions.path}: {count:,} {many} {what}')
    return Features(
        examples,
        question.astype(np.int32),
        firsts.astype(np.int32),
        most,
        offsets,
        begins,
        tuple(notes),
    )


def _tokenized(
    tokenizer: Tokenizer, strings: Strings
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids [P] int32, offsets [P, 2] int32 and begins [C + 1] int64."""
    ids, offsets, lengths = [], [], []
    every = range(len(strings))
    for begin in every[::_STRINGS_A_CALL]:
        some = every[begin : begin + _STRINGS_A_CALL]
        texts = tf.constant([strings.raw(i) for i in some], tf.string)
        pieces, starts, ends = characters.read(tokenizer, texts)
        ids.append(pieces.values.numpy())
        offsets.append(np.stack([starts.values, ends.values], axis=1))
        lengths.append(pieces.row_lengths().numpy())
    begins = np.concatenate([[0], *map(np.int64, lengths)])
    return (
        np.concatenate(ids).astype(np.int32),
        np.concatenate(offsets).astype(np.int32),
        np.cumsum(begins),
    )


def _pieces_of(
    questions: Questions, offsets: np.ndarray, begins: np.ndarray
) -> np.ndarray:
    """[Q, 2] int64: first and last piece of each answer in its context.

    NONE and UNKNOWN stay what they are; an answer without a piece is UNKNOWN.
    """
    # Bytes of all contexts, one after the other, are in order.
    byte = questions.contexts.begins[:-1]
    starts, ends = (offsets + np.repeat(byte, np.diff(begins))[:, None]).T
    wanted = questions.answers + byte[questions.context][:, None]
    first = np.searchsorted(ends, wanted[:, 0], 'right')
    last = np.searchsorted(starts, wanted[:, 1], 'left') - 1
    here, after = begins[questions.context], begins[questions.context + 1]
    there = (first >= here) & (last >= first) & (last < after)
    places = np.stack([first - here, last - here], axis=1)
    places[~there] = UNKNOWN
    none = questions.answers[:, 0] < 0
    places[none] = questions.answers[none]
    return places


def _laid_out(
    found: ContextWindows,
    most: np.ndarray,
    asked: tf.RaggedTensor,
    ids: np.ndarray,
    begins: np.ndarray,
    answers: np.ndarray,
    template: Template,
    null: bool,
    training: bool,
) -> tuple[np.ndarray, ...]:
    """Windows of some questions as examples.

    `begins` and `answers` are by question, as `found.contexts` numbers them.

    Returns:
        Of the windows that stay: question, first piece, `most`, ids,
        segments, lengths, places, targets, candidates and whether the answer
        is a candidate.
    """
    layout, answer = template.layout, answers[found.contexts]
    inside = (answer[:, 0] >= found.firsts) & (
        answer[:, 1] < found.firsts + found.sizes
    )
    unknown = answer[:, 0] == UNKNOWN
    known = ~unknown if null else inside
    if training:
        most = most[np.repeat(known, found.sizes)]
        found = ContextWindows(*(x[known] for x in found))
        answer, inside, unknown = answer[known], inside[known], unknown[known]
        known = known[known]
    ends = np.cumsum(found.sizes)
    source = np.arange(ends[-1] if len(ends) else 0) + np.repeat(
        begins[found.contexts] + found.firsts - (ends - found.sizes),
        found.sizes,
    )
    rows, second, context = beside(
        tf.gather(asked, found.contexts),
        tf.RaggedTensor.from_row_lengths(ids[source], found.sizes),
        template,
    )
    second, context = second.numpy(), context.numpy()
    lengths = rows.row_lengths().numpy()
    splits = rows.row_splits.numpy()
    column = np.arange(splits[-1]) - np.repeat(splits[:-1], lengths)
    segments = np.where(
        column >= np.repeat(second, lengths), layout.second_segment, 0
    )
    if layout.last_segment is not None:
        segments[splits[1:] - 1] = layout.last_segment
    places = np.zeros_like(lengths) if layout.first else lengths - 1
    candidates = np.stack([context, context + found.sizes], axis=1)
    spans = answer - found.firsts[:, None] + context[:, None]
    spans = np.where(inside[:, None], spans, places[:, None])
    # Nobody knows where: the [SEP] after a context is never a candidate.
    spans = np.where(unknown[:, None], candidates[:, 1:], spans)
    targets = np.concatenate([spans, places[:, None]], axis=1)
    return (
        found.contexts,
        found.firsts,
        most,
        rows.values.numpy(),
        segments.astype(np.int8),
        lengths,
        places.astype(np.int32),
        targets.astype(np.int32),
        candidates.astype(np.int32),
        known,
    )
