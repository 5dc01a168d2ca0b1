r"""Mines translations: pairs of sentences from two files that are not aligned.

    python -m tasks.bitext --init=runs/minilm --source=news.de.gz \
        --target=news.en.gz --threshold=1.05 --workdir=runs/mined
    python -m infoword_tf.train --init=runs/minilm --objectives=simcse \
        --pairs=runs/mined/mined.tsv --pair_columns=source,target \
        --simcse.pooling=mean --workdir=runs/translations

A file has a sentence a line (.gz too); one that it repeats counts once. Of its
--neighbours nearest by cosine in the other file each sentence, of either file,
keeps the one with the largest margin: the cosine over what is usual around the
two (Artetxe & Schwenk 2019, "Margin-based Parallel Corpus Mining with
Multilingual Sentence Embeddings", Eq. 2-3 and §3.2, max. score). The best of
these pairs are kept, no sentence twice. Search is exact, in blocks: only the
sentences and their vectors are held.

WORKDIR/mined.tsv has the columns score, source and target, the best pair first;
--threshold says which score is enough. Above 1 two sentences are nearer to each
other than their neighbours are on average.

With --gold, line numbers of the source and the target that belong together
(from 1, parted by a tab), precision, recall and F1 are those of the threshold
that makes F1 largest (BUCC's protocol, Zweigenbaum et al. 2018); those of
--threshold, which may have been found on other files, stand beside them.

The last line of the output is one JSON object, also in WORKDIR/metrics.json.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from infoword_tf import commands, files
from infoword_tf.choices import flag
from infoword_tf.evaluation import bitext
from tasks import retrieval, tatoeba

MINED = 'mined.tsv'  # in the workdir


@dataclasses.dataclass(frozen=True)
class Choices(tatoeba.VectorChoices):
    """All that the command may choose."""

    source: str | None = flag(None, 'A file of sentences, one a line.')
    target: str | None = flag(None, 'A file of those of the other language.')
    threshold: float | None = flag(
        None, 'The lowest margin of a pair; by default there is none.')
    gold: str | None = flag(
        None, 'A file of line numbers of both, parted by a tab, that are '
        'translations.')


def write(
    path: pathlib.Path,
    mined: bitext.Mined,
    source: bitext.Sentences,
    target: bitext.Sentences,
) -> None:
    """Writes pairs, whole or not at all; a tab in a sentence becomes a space.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        files.written(path) as partial,
        open(partial, 'w', encoding='utf-8', newline='') as file,
    ):
        file.write('score\tsource\ttarget\n')
        for score, i, j in zip(*mined, strict=True):
            a, b = (
                text.replace('\t', ' ')
                for text in (source.texts[i], target.texts[j])
            )
            file.write(f'{score:.6f}\t{a}\t{b}\n')


def shown(judged: Mapping[str, float]) -> dict[str, float]:
    """For JSON: x 100 but for the threshold, which is not rounded."""
    return {
        name: value if name == 'threshold' else round(100 * value, 2)
        for name, value in judged.items()
    }


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command.

    Raises:
        UsageError: neither or both of --init and --model, or choices that do
            not go together.
        FileNotFoundError, ValueError: of the files, as the message says.
    """
    commands.require(
        vars(given),
        source='a file of sentences',
        target='a file of those of the other language',
        workdir=f'a folder for {MINED}',
    )
    retrieval.check_source(
        given.init, given.model, layer=given.layer, pooling=given.pooling
    )
    workdir = commands.result_folder(given.workdir)
    sides = {
        name: bitext.distinct(bitext.sentences_of(pathlib.Path(path)))
        for name, path in (('source', given.source), ('target', given.target))
    }
    source, target = sides.values()
    gold = None
    if given.gold is not None:
        gold = bitext.read_gold(pathlib.Path(given.gold), source, target)
    encode = tatoeba.encoder_of(given)
    every = bitext.mine(
        encode(source.texts, None), encode(target.texts, None), given.neighbours
    )
    mined = every
    if given.threshold is not None:
        enough = every.scores >= given.threshold
        mined = bitext.Mined(*(values[enough] for values in every))
    write(workdir / MINED, mined, source, target)
    record = {
        'task': 'bitext',
        'source': given.source,
        'target': given.target,
        **tatoeba.source_of(given),
        'neighbours': given.neighbours,
        'threshold': given.threshold,
        **{
            what: {name: getattr(side, what) for name, side in sides.items()}
            for what in ('copies', 'blank')
        },
        'sentences': {name: len(side.texts) for name, side in sides.items()},
        'mined': len(mined.scores),
    }
    print(
        f'{len(mined.scores):,} pairs of {len(source.texts):,} and '
        f'{len(target.texts):,} sentences in {workdir / MINED}'
    )
    if gold is not None:
        record['gold'] = len(gold)
        record['best'] = shown(bitext.judge(every, gold))
        thresholds = {'best threshold': record['best']}
        if given.threshold is not None:
            judged = shown(bitext.judge(every, gold, given.threshold))
            record['judged'] = thresholds['--threshold'] = judged
        for name, judged in thresholds.items():
            print(
                f'{name} {judged["threshold"]:.4f}: precision '
                f'{judged["precision"]:.2f}, recall {judged["recall"]:.2f}, F1 '
                f'{judged["f1"]:.2f} of {len(gold):,} translations'
            )
    commands.record(workdir, record)
    return record


if __name__ == '__main__':
    commands.start(run)
