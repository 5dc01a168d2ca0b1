r"""Across languages: does a sentence find its translation?

    python -m tasks.tatoeba --init=runs/minilm --data_dir=tatoeba/v1 \
        --workdir=runs/minilm/tatoeba
    python -m tasks.tatoeba --init=runs/xlmr --data_dir=tatoeba/v1 --layer=7 \
        --pooling=mean --languages=deu,fra --workdir=runs/xlmr/tatoeba

Every sentence looks for its translation among all of the other language, from
each language into English and from English into each (Artetxe & Schwenk 2019,
the Tatoeba test set). The folder is that of LASER: tatoeba.deu-eng.deu and
tatoeba.deu-eng.eng, a sentence a line, and the same of other languages; names
may have other codes, as de-en.de and de-en.en.

Vectors are compared by cosine, whatever the model was trained with. With
--score=margin each sentence takes, of its nearest --neighbours, the one with
the largest margin (Artetxe & Schwenk 2019, "Margin-based Parallel Corpus
Mining", Eq. 2-3).

Accuracy compares sentences: where one stands in several lines, each of them is
right. `by_line`, which is printed where that makes a difference, compares the
numbers of lines; of copies the first is found. Weighted F1 is that of
scikit-learn over numbers of lines. What is published as what:

    LASER      error rates are 100 - accuracy, in both directions
    XTREME     `by_line`, en>xx, the mean over 36 languages
    InfoXLM    `by_line`, xx>en and en>xx, means over 14 and over 36 languages
    MTEB       weighted F1, xx>en

XTREME pools the mean of one layer's states, the 7th of 12: --layer=7
--pooling=mean.

The last line of the output is one JSON object, also in WORKDIR/metrics.json.
"""

import dataclasses
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from infoword_tf import commands, errors
from infoword_tf.choices import flag
from infoword_tf.evaluation import bitext
from tasks import retrieval

SHOWN = ('accuracy', 'f1')  # in the table


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    init: str | None = flag(
        None, 'The workdir of a finished run, or a converted one.', model=True)
    model: str | None = flag(None, 'An export instead, DIR/1.')
    layer: int | None = flag(
        None, 'Layer of --init whose states are pooled, 0 the embeddings; by '
        'default as the workdir says.', at_least=0)
    pooling: str | None = flag(
        None, 'Pooling of the vectors; by default that of --init.')
    dims: int | None = flag(
        None, 'The first so many numbers of a vector alone.', at_least=1)
    neighbours: int = flag(
        bitext.NEIGHBOURS, 'Nearest sentences that a margin is made of.',
        at_least=1)
    workdir: str | None = flag(None, 'Where metrics.json goes.')
    data_dir: str | None = flag(
        None, "A folder of translations into English, as LASER's Tatoeba.")
    languages: tuple[str, ...] = flag(
        (), 'Which of its languages, as deu,fra; by default all.')
    score: str = flag(
        'cosine', 'How two vectors are compared.', choices=('cosine', 'margin'))


def mean(languages: Collection[bitext.Shares]) -> bitext.Shares:
    """Over languages, each of which counts the same."""
    return {
        name: {
            direction: float(np.mean([x[name][direction] for x in languages]))
            for direction in bitext.DIRECTIONS
        }
        for name in bitext.MEASURES
    }


def percent(shares: bitext.Shares) -> bitext.Shares:
    """x 100, rounded, for JSON."""
    return {
        name: {k: round(100 * value, 2) for k, value in values.items()}
        for name, values in shares.items()
    }


def head() -> str:
    """The two lines above a table of `row`s."""
    above = f'{"":17}{"accuracy":>26}{"weighted F1":>26}'
    names = ''.join(f'{x:>10}{y:>8}{z:>8}' for x, y, z in [
        ('xx>en', 'en>xx', 'mean')] * len(SHOWN))  # fmt: skip
    return f'{above}\n{"language":<10}{"pairs":>7}{names}'


def row(name: str, pairs: int | None, shares: bitext.Shares) -> str:
    """A line of the table."""
    cells = ''.join(
        f'{100 * shares[measure][direction]:{10 if i == 0 else 8}.2f}'
        for measure in SHOWN
        for i, direction in enumerate(bitext.DIRECTIONS)
    )
    return f'{name:<10}{"" if pairs is None else f"{pairs:,}":>7}{cells}'


def notes(found: bitext.Bitext, shares: bitext.Shares) -> list[str]:
    """What is to be known of a language's files."""
    said = []
    if copies := found.foreign.copies + found.english.copies:
        values = ', '.join(
            f'{100 * shares["by_line"][direction]:.2f}'
            for direction in bitext.DIRECTIONS
        )
        said.append(
            f'{found.language}: {copies:,} lines repeat a sentence of their '
            f'file; by number of the line accuracy is {values}'
        )
    if found.is_sorted:
        said.append(
            f'{found.language}: the English sentences are in the order of the '
            "alphabet, as XTREME's preparation leaves them, and so probably "
            'beside wrong ones; take the files of LASER'
        )
    return said


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command.

    Raises:
        UsageError: neither or both of --init and --model, or choices that do
            not go together.
        FileNotFoundError, ValueError: of the data, as the message says.
    """
    commands.require(
        vars(given),
        data_dir="a folder of translations into English, as LASER's Tatoeba",
        workdir='a folder for metrics.json',
    )
    retrieval.check_source(
        given.init, given.model, layer=given.layer, pooling=given.pooling
    )
    by_margin = given.score == 'margin'
    if 'neighbours' in chosen and not by_margin:
        raise errors.UsageError(
            f'--neighbours={given.neighbours} goes with --score=margin; a '
            'cosine has none'
        )
    workdir = commands.result_folder(given.workdir)
    found = bitext.read(pathlib.Path(given.data_dir), given.languages)
    encode, _ = retrieval.vectors_of(
        given.init, given.model, given.dims, given.pooling, given.layer
    )
    english, places = bitext.english_of(found)
    vectors = encode(english, None)
    languages = {}
    print(head(), flush=True)
    for language, own in zip(found, places, strict=True):
        shares = languages[language.language] = bitext.measure_both(
            language,
            encode(language.foreign.texts, None),
            vectors[own],
            given.score,
            given.neighbours,
        )
        pairs = len(language.foreign.place)
        print(row(language.language, pairs, shares), flush=True)
    average = mean(languages.values())
    print(row(f'mean of {len(found)}', None, average))
    for language in found:
        for note in notes(language, languages[language.language]):
            print(note)
    record = {
        'task': 'tatoeba',
        'data_dir': given.data_dir,
        'weights': given.model or given.init,
        'layer': given.layer,
        'pooling': given.pooling,
        'dims': given.dims,
        'score': given.score,
        'neighbours': given.neighbours if by_margin else None,
        **percent(average),
        'languages': {
            x.language: {
                'pairs': len(x.foreign.place),
                'copies': {'xx': x.foreign.copies, 'en': x.english.copies},
                **percent(languages[x.language]),
            }
            for x in found
        },
    }
    commands.record(workdir, record)
    return record


if __name__ == '__main__':
    commands.start(run)
