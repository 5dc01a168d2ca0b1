"""Texts that people have paired: `--pairs`, and the source `text_pairs`.

A row of a file has a, texts b that belong to it, and texts that do not (hard
negatives); data/pair_tables.py finds them. Each b makes an example. An update
reads one file, so that all negatives in it are of one kind.

Glossary of shapes: n examples, K texts of each, B of an update, R rows, J
examples that a row has room for, F files, G width of a guide.
"""

import hashlib
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from infoword_tf.data import pair_tables, textfiles
from infoword_tf.data.documents import Document, hash_bucket
from infoword_tf.data.examples import Examples, ExampleSource, lay_out
from infoword_tf.data.mixture import FILES, Turns
from infoword_tf.data.pair_tables import Layout
from infoword_tf.data.source import Source
from infoword_tf.views.examples import Labelled

if TYPE_CHECKING:  # it imports TensorFlow
    from infoword_tf.text.template import Template

# K times [n] texts to vectors [n, K, G].
Guide = Callable[[Sequence[Sequence[str]]], np.ndarray]
HELD_OUT = 20  # one in so many, by the text of a
HELDOUT = 512  # examples that are measured


class Columns(NamedTuple):
    """Examples of one file, or of two languages, as strings.

    Attributes:
        where: the file, or what named it.
        texts: K times [n]; '' for a negative that is not there.
        empty: how many rows were left out, because a or b is empty.
        languages: of translations those of a and b, in order of their codes.
    """

    where: str
    texts: list[list[str]]
    empty: int
    languages: tuple[str, str] | None = None

    def taken(self, numbers: Sequence[int]) -> 'Columns':
        """Some of the examples."""
        texts = [[column[i] for i in numbers] for column in self.texts]
        return self._replace(texts=texts)


class Pairs(NamedTuple):
    """All files, opened; also the corpus that a vocabulary is learned from.

    Attributes:
        train, heldout: by file, or by two languages; of a small file nothing
            may be held out.
        fingerprint: changes when the texts do.
        notes: what people are told, a line each: what columns are, or what
            there is of each two languages.
    """

    train: list[Columns]
    heldout: list[Columns]
    fingerprint: str
    notes: tuple[str, ...] = ()

    @property
    def languages(self) -> list[str]:
        """Of translations those that are trained on, in order."""
        return sorted({code for x in self.train for code in x.languages or ()})

    def documents(self) -> Iterator[Document]:
        """Every text that is trained on."""
        for file in self.train:
            for column in file.texts:
                yield from _documents(column, file.where)

    def documents_of(self, language: str) -> Iterator[Document]:
        """Every translation of one language that is trained on."""
        for file in self.train:
            for code, column in zip(file.languages, file.texts, strict=True):
                if code == language:
                    yield from _documents(column, file.where)


def _documents(column: Sequence[str], where: str) -> Iterator[Document]:
    for text in filter(None, column):
        yield Document((' '.join(text.split()),), where)


def layouts_of(
    pattern: str,
    columns: Sequence[str] = (),
    delimiter: str | None = None,
    negatives: int | None = None,
) -> list[Layout]:
    """Files, and which of their columns are a, b and negatives.

    Args:
        pattern: of files, as in a shell.
        columns, delimiter, negatives: as of `pair_tables.layout_of`.

    Raises:
        ValueError: there is no file; as of `pair_tables.layout_of`.
    """
    return [
        pair_tables.layout_of(str(path), columns, delimiter, negatives)
        for path in textfiles.find(pattern)
    ]


def texts_of(layouts: Sequence[Layout]) -> int:
    """K, of the file with the most."""
    return 2 + max(layout.most for layout in layouts)


def read(
    pattern: str,
    columns: Sequence[str] = (),
    heldout: str | None = None,
    delimiter: str | None = None,
    negatives: int | None = None,
) -> Pairs:
    """Reads all files, and parts them.

    Args:
        pattern, columns, delimiter, negatives: as of `layouts_of`.
        heldout: pattern of files that are held out; None: one example in
            20, chosen by the hash of its a.

    Raises:
        ValueError: as `layouts_of`; a row is malformed; there is nothing to
            train on, or nothing held out.
    """
    layouts = layouts_of(pattern, columns, delimiter, negatives)
    texts = texts_of(layouts)
    train = [_read(layout, texts) for layout in layouts]
    if heldout is not None:
        more = layouts_of(heldout, columns, delimiter, negatives)
        held = [_read(layout, texts) for layout in more]
        layouts += more
    else:
        held = []
        for number, file in enumerate(train):
            out = [hash_bucket(a, HELD_OUT) == 0 for a in file.texts[0]]
            held.append(file.taken(np.flatnonzero(out)))
            train[number] = file.taken(np.flatnonzero(np.logical_not(out)))
            if all(out):
                raise ValueError(
                    f'{file.where} has nothing left to train on: all of it '
                    'is held out, by the hash of its first texts; give more '
                    'pairs, or name others with --heldout_pairs=GLOB'
                )
    fingerprint = fingerprint_of([*train, *held])
    held = [file for file in held if file.texts[0]]  # a small one has none
    if not held:
        raise ValueError(
            f'--pairs={pattern} holds nothing out: of so few examples none is '
            'drawn; name some with --heldout_pairs=GLOB'
        )
    return Pairs(train, held, fingerprint, notes_of(layouts))


def notes_of(layouts: Sequence[Layout]) -> tuple[str, ...]:
    """Describes the columns, in one line for all files that agree."""
    files: dict[str, list[str]] = {}
    for layout in layouts:
        files.setdefault(layout.summary, []).append(layout.where)
    return tuple(
        f'{where[0]}{f" and {len(where) - 1:,} more" * (len(where) > 1)}: '
        f'{summary}'
        for summary, where in files.items()
    )


def fingerprint_of(files: Sequence[Columns]) -> str:
    """What changes when the texts or their languages do."""
    digest = hashlib.blake2b(digest_size=10)
    for file in files:
        digest.update('-'.join(file.languages or ()).encode())
        for column in file.texts:
            digest.update('\0'.join(column).encode('utf-8', 'replace'))
            digest.update(b'\1')
    return digest.hexdigest()


def read_pairs(
    pattern: str, columns: Sequence[str] = (), delimiter: str | None = None
) -> tuple[list[Columns], tuple[str, ...]]:
    """a and b of all files, none held out, and notes; raises as `read`."""
    layouts = layouts_of(pattern, columns, delimiter, 0)
    return [_read(layout, 2) for layout in layouts], notes_of(layouts)


def _read(layout: Layout, count: int) -> Columns:
    """One file, with as many texts as the one that has the most."""
    texts: list[list[str]] = [[] for _ in range(count)]
    empty = 0
    for a, positives, negatives in pair_tables.read(layout):
        positives = [text for text in positives if text]
        if not (a and positives):
            empty += 1
            continue
        # Held-out ones may have more than any that is trained on.
        others = [*negatives, *[''] * count][: count - 2]
        for b in positives:
            for column, text in zip(texts, (a, b, *others), strict=True):
                column.append(text)
    if not texts[0]:
        raise ValueError(f'{layout.where} has no pair of two texts')
    return Columns(layout.where, texts, empty)


class TextPairs(NamedTuple):
    """Examples of F files, tokenized, each of K texts.

    Attributes:
        parts, files: the examples of each, and where they are from.
        weights: of each, how many of the updates it has; none: as many as its
            examples make.
    """

    parts: tuple[Examples, ...]
    files: tuple[str, ...]
    weights: tuple[float, ...] = ()

    @property
    def ids(self) -> np.ndarray:
        """All tokens."""
        return np.concatenate([part.ids for part in self.parts])

    def pieces(self, size: int, control_ids: Sequence[int]) -> np.ndarray:
        """As of `Examples`."""
        return sum(part.pieces(size, control_ids) for part in self.parts)


def tokenized(
    files: Sequence[Columns],
    template: 'Template',
    max_length: int,
    prompts: tuple[str, str] = ('', ''),
    guides: Mapping[str, Guide] = types.MappingProxyType({}),
) -> tuple[TextPairs, int]:
    """Lays the texts of files out.

    Args:
        files: with K columns each.
        template: what lays a text out.
        max_length: T at most of each text; longer ones are cut.
        prompts: what is put before each a, and before all others.
        guides: by row, what makes vectors of texts without these prompts.

    Returns:
        The examples, and of how many a text was cut.
    """
    parts, cut = [], 0
    for file in files:
        texts = [
            [f'{prompts[number > 0]}{text}' if text else '' for text in column]
            for number, column in enumerate(file.texts)
        ]
        part, longer = lay_out(
            template,
            [(column, None) for column in texts],
            max_length,
            {row: guide(file.texts) for row, guide in guides.items()},
        )
        parts.append(part)
        cut += longer
    return TextPairs(tuple(parts), tuple(file.where for file in files)), cut


def weights_of(
    chosen: Sequence[str], files: Sequence[str]
) -> tuple[float, ...]:
    """What --pair_weights says of files; ValueError: it does not fit them."""
    if not chosen:
        return ()
    given = f'--pair_weights={",".join(chosen)}'
    if len(chosen) != len(files):
        raise ValueError(
            f'{given}: {len(chosen)} weights for {len(files)} files, '
            f'{", ".join(files)}; give one for each'
        )
    try:
        weights = tuple(map(float, chosen))
    except ValueError:
        raise ValueError(f'{given}: give numbers, as 2,1') from None
    if not all(0 < weight < math.inf for weight in weights):
        raise ValueError(f'{given}: weights are above 0')
    return weights


class TextPairSource(Source):
    """Examples of which B of one file make an update.

    An epoch has every file's updates once, in a random order. Where files have
    weights it has as many, but each file such a share of them, one at least;
    it goes on in the next epoch where it was, or begins anew in this one.
    """

    whole = True
    too_little = 'there is no held-out pair'
    in_training = types.MappingProxyType({'stratified': True})

    def __init__(
        self,
        store: TextPairs,
        length: int,
        batch_size: int,
        seed: int,
        stratified: bool = False,
    ):
        """Args: as of `ExampleSource`; the held-out examples of all files are
        one batch.

        Raises:
            ValueError: a file has fewer examples than an update takes.
        """
        parts = store.parts if stratified else [together(store.parts)]
        sources = []
        for number, part in enumerate(parts):
            try:
                source = ExampleSource(
                    part, length, batch_size, seed + number, stratified
                )
            except ValueError as error:
                raise ValueError(f'{store.files[number]}: {error}') from None
            sources.append(source)
        self.sources, self.stratified = sources, stratified
        ExampleSource.agree(sources)  # whichever file an update reads
        self.longest = max(int(np.diff(part.begins).max()) for part in parts)
        if stratified:
            updates = np.array([source.updates for source in sources])
            if store.weights:
                share = np.array(store.weights) / sum(store.weights)
                share = np.rint(share * updates.sum()).astype(np.int64)
                updates = np.maximum(share, 1)  # [F], of an epoch
            self.turns = Turns(updates, seed, FILES)

    @classmethod
    def capacity(cls, store: TextPairs, length: int) -> int:
        """Examples, 512 at most."""
        del length
        return together(store.parts).size

    def batch(self, step: int) -> Labelled:
        """The global batch of a step."""
        if not self.stratified:
            return self.sources[0].batch(step)._replace(longest=self.longest)
        file, own = self.turns.turn(step)
        found = self.sources[file].batch(own)
        return found._replace(longest=self.longest)


def together(parts: Sequence[Examples]) -> Examples:
    """Examples of several files as one.

    At most 512, so many of each file as its share.
    """
    total = sum(part.size for part in parts)
    most = min(HELDOUT, total)
    kept = []
    for part in parts:
        count = max(1, round(most * part.size / total)) if part.size else 0
        every = np.linspace(0, part.size - 1, min(count, part.size))
        kept.append(part.taken(np.unique(every.astype(np.int64))))
    begins, end = [np.zeros(1, np.int64)], 0
    for part in kept:
        begins.append(part.begins[1:] + end)
        end += part.begins[-1]
    return Examples(
        np.concatenate([part.ids for part in kept]),
        np.concatenate([part.segments for part in kept]),
        np.concatenate(begins),
        np.concatenate([part.places for part in kept]),
        {
            row: np.concatenate([part.targets[row] for part in kept])
            for row in parts[0].targets
        },
        texts=parts[0].texts,
    )
