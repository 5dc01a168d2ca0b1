"""Held-out texts and their vectors for TensorBoard's Embedding Projector.

    tensorboard/projector_config.pbtxt   names the other two
    tensorboard/texts.tsv                a text a line, and what is known of it
    tensorboard/vectors.tsv              its vector, of the weights as they are

Vectors are written as numbers: the plugin tells binary files from others by
whether they happen to be UTF-8.

Glossary of shapes: n texts, D width.
"""

import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from infoword_tf import files
from infoword_tf.commands import UsageError
from infoword_tf.data.examples import Examples
from infoword_tf.data.store import SEPARATOR, Store, sentence_starts
from infoword_tf.data.translations import TokenPairs
from infoword_tf.inference.vectors import Vectors
from infoword_tf.text.tokenizer import Tokenizer

CONFIG, TEXTS, VECTORS = 'projector_config.pbtxt', 'texts.tsv', 'vectors.tsv'


class Part(NamedTuple):
    """Texts of one kind.

    Attributes:
        size: how many.
        row: by column what is known of a text; 'text' is it.
    """

    size: int
    row: Callable[[int], Mapping[str, str]]


def of_store(store: Store, tokenizer: Tokenizer, language: str) -> Part:
    """The sentences of a text; `language`: its name, or ''."""
    begins = np.concatenate([np.zeros(0, np.int64), *sentence_starts(store)])
    ends = np.append(begins[1:], len(store.ids))

    def row(number: int) -> dict[str, str]:
        some = slice(begins[number], ends[number])
        ids = np.asarray(store.ids[some])
        text = tokenizer.text(ids[(store.flags[some] & SEPARATOR) == 0])
        return {'text': text, **({'language': language} if language else {})}

    return Part(len(begins), row)


def of_examples(
    examples: Examples, tokenizer: Tokenizer, labels: Sequence[str] = ()
) -> Part:
    """Labelled examples, or pairs of texts, of which the first is shown."""

    def row(number: int) -> dict[str, str]:
        first = number * examples.texts
        ids = examples.ids[examples.begins[first] : examples.begins[first + 1]]
        found = {'text': tokenizer.text(ids)}
        if labels and 'label' in examples.targets:
            found['label'] = labels[int(examples.targets['label'][number])]
        if 'score' in examples.targets:
            found['score'] = f'{float(examples.targets["score"][number]):g}'
        return found

    return Part(examples.size, row)


def of_translations(
    pairs: TokenPairs, tokenizer: Tokenizer, languages: Sequence[str]
) -> Part:
    """All texts of one language, then those of the other."""

    def row(number: int) -> dict[str, str]:
        side, pair = divmod(number, pairs.size)
        place = 2 * pair + side
        ids = pairs.ids[pairs.begins[place] : pairs.begins[place + 1]]
        return {'text': tokenizer.text(ids), 'language': languages[side]}

    return Part(2 * pairs.size, row)


def chosen(parts: Sequence[Part], count: int) -> list[Mapping[str, str]]:
    """So many texts, evenly over all parts.

    Raises:
        UsageError: there are not as many.
    """
    total = sum(part.size for part in parts)
    if count > total:
        has = f'{total:,} held-out texts' if total else 'no held-out text'
        raise UsageError(f'--projector={count}: this run has {has}; lower it')
    return list(_rows(parts, np.arange(count) * total // count))


def _rows(
    parts: Sequence[Part], numbers: np.ndarray
) -> Iterator[Mapping[str, str]]:
    before = 0
    for part in parts:
        for number in numbers - before:
            if 0 <= number < part.size:
                yield part.row(int(number))
        before += part.size


class Projector:
    """Writes vectors of some texts, by a model's weights as they then are."""

    def __init__(
        self,
        folder: pathlib.Path,
        rows: Sequence[Mapping[str, str]],
        vectors: Vectors,
    ):
        """Tokenizes the texts, and writes them; args: where, n, whose."""
        self.folder, self.vectors = folder, vectors
        self.texts = vectors.tokenized([row['text'] for row in rows], None)
        columns = list(dict.fromkeys(name for row in rows for name in row))
        lines = [[row.get(name, '') for name in columns] for row in rows]
        if len(columns) > 1:  # one alone has no title
            lines.insert(0, columns)
        folder.mkdir(parents=True, exist_ok=True)
        with files.written(folder / TEXTS) as partial:
            partial.write_text(''.join(map(_line, lines)), encoding='utf-8')

    def __call__(self) -> None:
        """Writes the vectors [n, D]."""
        found = self.vectors.encode_tokenized(self.texts)
        with files.written(self.folder / VECTORS) as partial:
            np.savetxt(partial, found, '%.6g', '\t')
        n, d = found.shape
        with files.written(self.folder / CONFIG) as partial:
            partial.write_text(
                'embeddings {\n'
                '  tensor_name: "held-out texts"\n'
                f'  tensor_shape: {n}\n  tensor_shape: {d}\n'
                f'  tensor_path: "{VECTORS}"\n'
                f'  metadata_path: "{TEXTS}"\n'
                '}\n'
            )


def _line(cells: Sequence[str]) -> str:
    """Without tabs and line ends; an empty line would be left out."""
    return '\t'.join(' '.join(cell.split()) or '-' for cell in cells) + '\n'
