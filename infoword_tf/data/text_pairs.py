"""Texts that people have paired: `--pairs`, and the source `text_pairs`.

A record of a file has a, texts b that belong to a, and texts that do not (hard
negatives); see data/pair_tables.py. Each b makes an example. An update reads
one file, so that all negatives in it are of one kind.

Glossary of shapes: n examples, X texts of each, S sequences, J examples that a
sequence has room for, F files, E width of a guide.
"""

import hashlib
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from infoword_tf import errors
from infoword_tf.data import pair_tables, textfiles
from infoword_tf.data.documents import Document, hash_bucket
from infoword_tf.data.examples import Examples, ExampleSource, format_texts
from infoword_tf.data.mixture import FILES, Turns
from infoword_tf.data.pair_tables import Roles
from infoword_tf.data.source import Source, naming
from infoword_tf.views.examples import Labelled
from infoword_tf.views.pair_candidates import Joining

if TYPE_CHECKING:  # it imports TensorFlow
    from infoword_tf.text.template import Template

# X times [n] texts to vectors [n, X, E].
Guide = Callable[[Sequence[Sequence[str]]], np.ndarray]
HELD_OUT = 20  # one in so many, by the text of a
HELDOUT = 512  # examples that are measured


class Columns(NamedTuple):
    """Examples of one file, or of two languages, as strings.

    Attributes:
        where: the file, or the flag's pattern.
        texts: X times [n]; '' for a missing negative.
        empty: records that were omitted, because a or b is empty.
        languages: codes of a and b, in order; (): they are no translations.
    """

    where: str
    texts: list[list[str]]
    empty: int
    languages: tuple[str, ...] = ()

    def select(self, numbers: Sequence[int] | np.ndarray) -> 'Columns':
        """Selects examples by number."""
        texts = [[column[i] for i in numbers] for column in self.texts]
        return self._replace(texts=texts)


class PairCorpus(NamedTuple):
    """Pairs of all files, from which a vocabulary may be learned.

    Attributes:
        train, heldout: columns of each file, or of each two languages; small
            files hold nothing out.
        fingerprint: changes when the texts do.
        notes: lines for the log: the roles of columns, or counts of pairs.
    """

    train: list[Columns]
    heldout: list[Columns]
    fingerprint: str
    notes: tuple[str, ...] = ()

    @property
    def languages(self) -> list[str]:
        """Languages of the training translations, in order."""
        return sorted({code for x in self.train for code in x.languages})

    def documents(self) -> Iterator[Document]:
        """Yields every text that is trained on."""
        for file in self.train:
            for column in file.texts:
                yield from _documents(column, file.where)

    def documents_of(self, language: str) -> Iterator[Document]:
        """Yields every training translation of one language."""
        for file in self.train:
            for code, column in zip(file.languages, file.texts, strict=False):
                if code == language:
                    yield from _documents(column, file.where)


def _documents(column: Sequence[str], where: str) -> Iterator[Document]:
    for text in filter(None, column):
        yield Document((' '.join(text.split()),), where)


def roles_of(
    pattern: str,
    columns: Sequence[str] = (),
    delimiter: str | None = None,
    negatives: int | None = None,
) -> list[Roles]:
    """Finds files and columns; see `pair_tables.roles_of`."""
    return [
        pair_tables.roles_of(str(path), columns, delimiter, negatives)
        for path in textfiles.find(pattern)
    ]


def texts_of(files: Sequence[Roles]) -> int:
    """Returns X, of the file with the most texts."""
    return 2 + max(roles.most for roles in files)


def read(
    pattern: str,
    columns: Sequence[str] = (),
    heldout: str | None = None,
    delimiter: str | None = None,
    negatives: int | None = None,
) -> PairCorpus:
    """Reads all files, and separates training from held-out examples.

    Args:
        pattern, columns, delimiter, negatives: files and columns, see
            `roles_of`.
        heldout: pattern of held-out files; None: one example in 20 is held out,
            by the hash of its a.

    Raises:
        ValueError: as of `roles_of`; a record is malformed; no example is left
            to train on, or to hold out.
    """
    files = roles_of(pattern, columns, delimiter, negatives)
    texts = texts_of(files)
    train = [_read(roles, texts) for roles in files]
    if heldout is not None:
        more = roles_of(heldout, columns, delimiter, negatives)
        held = [_read(roles, texts) for roles in more]
        files += more
    else:
        held = []
        for number, file in enumerate(train):
            out = [hash_bucket(a, HELD_OUT) == 0 for a in file.texts[0]]
            held.append(file.select(np.flatnonzero(out)))
            train[number] = file.select(np.flatnonzero(np.logical_not(out)))
            if all(out):
                raise errors.InputError(
                    'pairs_all_heldout',
                    f'{file.where} has nothing left to train on: all of it '
                    'is held out, by the hash of its first texts; give more '
                    'pairs, or name others with --heldout_pairs=GLOB',
                )
    fingerprint = fingerprint_of([*train, *held])
    held = [file for file in held if file.texts[0]]  # not of small files
    if not held:
        raise errors.InputError(
            'no_heldout_pairs',
            f'--pairs={pattern} holds nothing out: of so few examples none is '
            'drawn; name some with --heldout_pairs=GLOB',
        )
    return PairCorpus(train, held, fingerprint, notes_of(files))


def notes_of(files: Sequence[Roles]) -> tuple[str, ...]:
    """Describes the columns, in one line for all files that agree."""
    names: dict[str, list[str]] = {}
    for roles in files:
        names.setdefault(roles.summary, []).append(roles.where)
    return tuple(
        f'{where[0]}{f" and {len(where) - 1:,} more" * (len(where) > 1)}: '
        f'{summary}'
        for summary, where in names.items()
    )


def fingerprint_of(files: Sequence[Columns]) -> str:
    """Hashes texts and languages."""
    digest = hashlib.blake2b(digest_size=10)
    for file in files:
        digest.update('-'.join(file.languages).encode())
        for column in file.texts:
            digest.update('\0'.join(column).encode('utf-8', 'replace'))
            digest.update(b'\1')
    return digest.hexdigest()


def read_pairs(
    pattern: str, columns: Sequence[str] = (), delimiter: str | None = None
) -> tuple[list[Columns], tuple[str, ...]]:
    """Reads a and b of all files, none held out, and notes; see `read`."""
    files = roles_of(pattern, columns, delimiter, 0)
    return [_read(roles, 2) for roles in files], notes_of(files)


def _read(roles: Roles, count: int) -> Columns:
    """Reads one file, with `count` texts an example."""
    texts: list[list[str]] = [[] for _ in range(count)]
    empty = 0
    for a, positives, negatives in pair_tables.read(roles):
        positives = [text for text in positives if text]
        if not (a and positives):
            empty += 1
            continue
        # Held-out files may have more negatives than the training files.
        others = [*negatives, *[''] * count][: count - 2]
        for b in positives:
            for column, text in zip(texts, (a, b, *others), strict=True):
                column.append(text)
    if not texts[0]:
        raise errors.InputError(
            'no_whole_pair', f'{roles.where} has no pair of two texts'
        )
    return Columns(roles.where, texts, empty)


class TextPairs(NamedTuple):
    """Examples of F files, tokenized, each of X texts.

    Attributes:
        parts, files: the examples of each file, and its name.
        weights: number for each file, in proportion to its updates; empty: as
            many updates as its examples make.
        joining: way in which two texts become one sequence.
    """

    parts: tuple[Examples, ...]
    files: tuple[str, ...]
    weights: tuple[float, ...] = ()
    joining: Joining | None = None

    @property
    def longest(self) -> tuple[int, int]:
        """Tokens of the longest a, and of the longest other text."""
        a, others = [0], [0]
        for part in self.parts:
            sizes = np.diff(part.begins).reshape(-1, part.texts)
            a.append(sizes[:, :1].max(initial=0))
            others.append(sizes[:, 1:].max(initial=0))
        return int(max(a)), int(max(others))

    @property
    def ids(self) -> np.ndarray:
        """Ids of all files, [tokens] int32."""
        return np.concatenate([part.ids for part in self.parts])

    def tally(self, size: int, control_ids: Sequence[int]) -> np.ndarray:
        """Counts the tokens of texts, [V] int64; see `Examples.tally`."""
        counts = [part.tally(size, control_ids) for part in self.parts]
        return np.sum(counts, axis=0)


def tokenized(
    files: Sequence[Columns],
    template: 'Template',
    max_lengths: tuple[int, int],
    prompts: tuple[str, str] = ('', ''),
    guides: Mapping[str, Guide] = types.MappingProxyType({}),
    expand: bool = False,
) -> tuple[TextPairs, int]:
    """Tokenizes and formats the texts of files.

    Args:
        files: X columns each.
        max_lengths: tokens of an a and of another text at most; longer texts
            are truncated.
        prompts: put before each a, and before all other texts.
        guides: functions, by row, that make vectors of texts without these
            prompts.
        expand: whether [MASK] tokens follow each a, up to its `max_lengths`.

    Returns:
        The examples, and how many have a truncated text.
    """
    formatted, cut = [], 0
    for file in files:
        texts = [
            [f'{prompts[number > 0]}{text}' if text else '' for text in column]
            for number, column in enumerate(file.texts)
        ]
        examples, truncated = format_texts(
            template,
            [(column, None) for column in texts],
            [max_lengths[number > 0] for number in range(len(texts))],
            {row: guide(file.texts) for row, guide in guides.items()},
        )
        if expand:
            examples = examples.expanded(
                max_lengths[0], template.tokenizer.mask_id
            )
        formatted.append(examples)
        cut += truncated
    return TextPairs(tuple(formatted), tuple(file.where for file in files)), cut


def weights_of(
    chosen: Sequence[str], files: Sequence[str]
) -> tuple[float, ...]:
    """Reads --pair_weights; ValueError: the weights do not fit the files."""
    if not chosen:
        return ()
    flag = f'--pair_weights={",".join(chosen)}'
    if len(chosen) != len(files):
        raise errors.InputError(
            'wrong_weight_count',
            f'{flag}: {len(chosen)} weights for {len(files)} files, '
            f'{", ".join(files)}; give one for each',
        )
    try:
        weights = tuple(map(float, chosen))
    except ValueError:
        raise errors.InputError(
            'pair_weight_no_number', f'{flag}: give numbers, as 2,1'
        ) from None
    if not all(0 < weight < math.inf for weight in weights):
        raise errors.InputError(
            'pair_weight_not_positive', f'{flag}: weights are above 0'
        )
    return weights


class TextPairSource(Source):
    """Examples of which B of one file make an update.

    An epoch has every file's updates once, in a random order. With weights it
    has as many updates in all, but each file has its share of them, one at
    least; a file continues in the next epoch where it stopped, or starts anew
    in this one.
    """

    whole = True
    too_little = 'there is no held-out pair'
    in_training = types.MappingProxyType({'stratified': True})
    by_length = True

    def __init__(
        self,
        store: TextPairs,
        length: int,
        batch_size: int,
        seed: int,
        stratified: bool = False,
        once: bool = False,
    ):
        """Sets how pairs are read; see `ExampleSource`.

        With `once` examples of equal a make one visit an epoch. The held-out
        examples of all files are one batch.

        Raises:
            ValueError: a file has fewer examples than an update takes.
        """
        files = store.parts if stratified else [together(store.parts, once)]
        sources = []
        for number, x in enumerate(files):
            with naming(store.files[number]):
                source = ExampleSource(
                    x,
                    length,
                    batch_size,
                    seed + number,
                    stratified=stratified,
                    groups=x.by_first() if once else (),
                )
            sources.append(source)
        self.sources, self.stratified = sources, stratified
        self.joining = store.joining and store.joining._replace(length=length)
        ExampleSource.unify_shapes(sources)  # one shape, whichever file is read
        self.longest = max(int(np.diff(x.begins).max()) for x in files)
        if stratified:
            updates = np.array([source.updates for source in sources])
            if store.weights:
                share = np.array(store.weights) / sum(store.weights)
                share = np.rint(share * updates.sum()).astype(np.int64)
                updates = np.maximum(share, 1)  # [F], of an epoch
            self.updates = int(updates.sum())
            self.turns = Turns(updates, seed, FILES)

    @classmethod
    def capacity(cls, store: TextPairs, length: int, once: bool = False) -> int:
        """Returns the number of examples, at most 512."""
        del length
        return together(store.parts, once).size

    def batch(self, step: int) -> Labelled:
        """Returns the global batch of a step."""
        if self.stratified:
            file, own_step = self.turns.turn(step)
            batch = self.sources[file].batch(own_step)
        else:
            batch = self.sources[0].batch(step)
        return batch._replace(longest=self.longest, joining=self.joining)


def together(files: Sequence[Examples], once: bool = False) -> Examples:
    """Joins the examples of several files.

    At most 512 examples, of each file in proportion to its size; with `once`
    the first of each a.
    """
    if once:
        files = [
            x.select(np.array([first for first, *_ in x.by_first()], np.int64))
            for x in files
        ]
    total = sum(examples.size for examples in files)
    most = min(HELDOUT, total)
    chosen = []
    for examples in files:
        size = examples.size
        count = max(1, round(most * size / total)) if size else 0
        every = np.linspace(0, size - 1, min(count, size))
        chosen.append(examples.select(np.unique(every.astype(np.int64))))
    begins, end = [np.zeros(1, np.int64)], 0
    for examples in chosen:
        begins.append(examples.begins[1:] + end)
        end += examples.begins[-1]
    return Examples(
        ids=np.concatenate([examples.ids for examples in chosen]),
        segments=np.concatenate([examples.segments for examples in chosen]),
        begins=np.concatenate(begins),
        places=np.concatenate([examples.places for examples in chosen]),
        targets={
            row: np.concatenate([examples.targets[row] for examples in chosen])
            for row in files[0].targets
        },
        texts=files[0].texts,
    )
