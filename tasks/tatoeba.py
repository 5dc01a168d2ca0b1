r"""Translations: how often the nearest sentence is the translation.

    python -m tasks.tatoeba --init=runs/minilm --data_dir=tatoeba/v1 \
        --workdir=runs/minilm/tatoeba
    python -m tasks.tatoeba --init=runs/xlmr --data_dir=tatoeba/v1 --layer=7 \
        --pooling=mean --languages=deu,fra --workdir=runs/xlmr/tatoeba

Every sentence looks for its translation among all sentences of the other
language, from each language into English and from English into each (Artetxe &
Schwenk 2019, the Tatoeba test set). The folder is that of LASER:
tatoeba.deu-eng.deu and tatoeba.deu-eng.eng, a sentence a line, and two such
files for each language; other codes, as de-en.de and de-en.en, work too.

Vectors are compared by cosine, whatever the similarity of the model. With
--score=margin each sentence takes, of its nearest --neighbours, the one with
the largest margin (Artetxe & Schwenk 2019, "Margin-based Parallel Corpus
Mining", Eq. 2-3).

Accuracy compares sentences: any copy of the right sentence is right. `by_line`
compares line numbers, and only the first of several copies is right; it is
printed where the two differ. Weighted F1 is scikit-learn's over line numbers.
Published figures:

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
from infoword_tf.choices import again, flag
from infoword_tf.evaluation import bitext, models

from . import retrieval
from .whiten import LayerChoices

SHOWN = ('accuracy', 'f1')  # in the table


@dataclasses.dataclass(frozen=True)
class TatoebaChoices(retrieval.VectorChoices):
    """Choices of the command."""

    layer: int | None = flag(
        None, 'Layer of --init whose states are pooled, 0 the embeddings; by '
        'default as the workdir says.', at_least=0)
    pooling: str | None = again(LayerChoices, 'pooling', None, choices=())
    neighbours: int = flag(
        bitext.NEIGHBOURS, 'Nearest sentences that a margin is made of.',
        at_least=1)
    data_dir: str = flag(
        '', "A folder of translations into English, as LASER's Tatoeba.")
    languages: tuple[str, ...] = flag(
        (), 'Which of its languages, as deu,fra; by default all.')
    score: str = flag(
        'cosine', 'How two vectors are compared.', choices=('cosine', 'margin'))


def mean(languages: Collection[bitext.Shares]) -> bitext.Shares:
    """Averages over languages, with equal weights."""
    return {
        name: {
            direction: float(np.mean([x[name][direction] for x in languages]))
            for direction in bitext.DIRECTIONS
        }
        for name in bitext.MEASURES
    }


def percent(shares: bitext.Shares) -> bitext.Shares:
    """Returns shares x 100, rounded, for JSON."""
    return {
        name: {k: round(100 * value, 2) for k, value in values.items()}
        for name, values in shares.items()
    }


def head() -> str:
    """Returns the two lines above a table of `line`s."""
    above = f'{"":17}{"accuracy":>26}{"weighted F1":>26}'
    names = ''.join(f'{x:>10}{y:>8}{z:>8}' for x, y, z in [
        ('xx>en', 'en>xx', 'mean')] * len(SHOWN))  # fmt: skip
    return f'{above}\n{"language":<10}{"pairs":>7}{names}'


def line(name: str, pairs: int | None, shares: bitext.Shares) -> str:
    """Formats the figures of a language as a line of the table."""
    cells = ''.join(
        f'{100 * shares[measure][direction]:{10 if i == 0 else 8}.2f}'
        for measure in SHOWN
        for i, direction in enumerate(bitext.DIRECTIONS)
    )
    return f'{name:<10}{"" if pairs is None else f"{pairs:,}":>7}{cells}'


def notes(pairs: bitext.Bitext, shares: bitext.Shares) -> list[str]:
    """Returns remarks on a language's files: copies, a suspicious order."""
    remarks = []
    if copies := pairs.foreign.copies + pairs.english.copies:
        values = ', '.join(
            f'{100 * shares["by_line"][direction]:.2f}'
            for direction in bitext.DIRECTIONS
        )
        remarks.append(
            f'{pairs.language}: {copies:,} lines repeat a sentence of their '
            f'file; by number of the line accuracy is {values}'
        )
    if pairs.is_sorted:
        remarks.append(
            f'{pairs.language}: the English sentences are in the order of the '
            "alphabet, as XTREME's preparation leaves them, and so probably "
            'beside wrong ones; take the files of LASER'
        )
    return remarks


@commands.takes(TatoebaChoices)
def run(choices: TatoebaChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Searches for translations by vectors; returns metrics.json.

    Raises:
        UsageError: choices that contradict each other.
        FileNotFoundError, ValueError: the data or the model cannot be read.
    """
    workdir = retrieval.check_source(
        choices,
        'layer',
        'pooling',
        data_dir="a folder of translations into English, as LASER's Tatoeba",
    )
    by_margin = choices.score == 'margin'
    if 'neighbours' in chosen and not by_margin:
        raise errors.UsageError(
            'neighbours_of_cosine',
            f'--neighbours={choices.neighbours} goes with --score=margin; a '
            'cosine has none',
        )
    bitexts = bitext.read(pathlib.Path(choices.data_dir), choices.languages)
    encode, _ = models.vectors_of(
        choices.init,
        choices.model,
        dims=choices.dims,
        pooling=choices.pooling,
        layer=choices.layer,
    )
    english, numbers = bitext.english_of(bitexts)
    vectors = encode(english, None)
    languages = {}
    print(head(), flush=True)
    for language, translations in zip(bitexts, numbers, strict=True):
        shares = languages[language.language] = bitext.measure_both(
            language,
            encode(language.foreign.texts, None),
            english=vectors[translations],
            score=choices.score,
            neighbours=choices.neighbours,
        )
        pairs = len(language.foreign.place)
        print(line(language.language, pairs, shares), flush=True)
    average = mean(languages.values())
    print(line(f'mean of {len(bitexts)}', None, average))
    for language in bitexts:
        for note in notes(language, languages[language.language]):
            print(note)
    record = {
        'task': 'tatoeba',
        'data_dir': choices.data_dir,
        'weights': choices.model or choices.init,
        'layer': choices.layer,
        'pooling': choices.pooling,
        'dims': choices.dims,
        'score': choices.score,
        'neighbours': choices.neighbours if by_margin else None,
        **percent(average),
        'languages': {
            x.language: {
                'pairs': len(x.foreign.place),
                'copies': {'xx': x.foreign.copies, 'en': x.english.copies},
                **percent(languages[x.language]),
            }
            for x in bitexts
        },
    }
    commands.record(workdir, record)
    return record


if __name__ == '__main__':
    commands.start(run)
