r"""Mines hard negatives: texts near a, by the vectors of a model, except b.

    python -m tasks.mine --init=runs/minilm --pairs=pairs.csv \
        --corpus='text:texts/*.txt' --negatives=3 --workdir=runs/mined
    python -m infoword_tf.train --init=runs/minilm \
        --pairs=runs/mined/pairs.csv --workdir=runs/hard
    python -m tasks.mine --init=runs/minilm --data_dir=beir/scifact \
        --workdir=runs/mined

Every a searches all documents of --corpus (of a data set with a held-out split,
those of the training split) and all b of --pairs, exactly. Of a BEIR folder
(--data_dir) a are the judged queries, b their documents of a grade above 0, and
the corpus is searched. Excluded are a itself, its own b, documents that were
judged for it, and the `--skip` best results. A negative scores less than b by
`--margin` and by `--relative_margin` of |b's score|: a text that scores higher
is probably an answer that nobody has marked. With `--rescore` a cross-encoder
(a workdir of `score` or of two classes, trained on pairs) gives the scores of
these two rules.

WORKDIR/pairs.csv is the pairs with negatives as further columns; missing ones
are empty cells. metrics.json counts the a by their number of negatives, and the
texts that each rule excluded.
"""

import collections
import csv
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from infoword_tf import commands, errors, files
from infoword_tf.choices import TextChoices, again, flag
from infoword_tf.config import Config
from infoword_tf.critics import CRITICS
from infoword_tf.data import corpora, text_pairs
from infoword_tf.evaluation import models, ranking, retrieval
from infoword_tf.evaluation.stages import Encoder
from infoword_tf.resolve import answering

from .retrieval import RetrievalChoices, decided

if TYPE_CHECKING:
    from infoword_tf.inference.loaded import Loaded

BLOCK = 4096  # texts that are encoded and compared at a time
RULES = ('own', 'skipped', 'margin')


@dataclasses.dataclass(frozen=True)
class MineChoices:
    """Choices of the command."""

    init: str = flag(
        '', 'The workdir whose vectors search.', model=True)
    pairs: str | None = flag(None, 'GLOB of pairs, as of infoword_tf.train.')
    pair_columns: tuple[str, ...] = flag(
        (), 'Names of the columns a and b; by default as infoword_tf.train '
        'finds them.')
    pair_delimiter: str | None = again(TextChoices, 'pair_delimiter', None)
    corpus: str | None = flag(
        None, 'Text whose documents are candidates too; none: only the b.')
    data_dir: str | None = flag(
        None, 'A BEIR folder instead of --pairs and --corpus: corpus.jsonl, '
        'queries.jsonl, qrels/.')
    split: str = again(RetrievalChoices, 'split', 'train')
    positives: int = flag(
        8, 'Documents of each query of --data_dir, at most, those of the '
        'highest grades.', at_least=1)
    negatives: int = flag(3, 'Negatives of each a, at most.', at_least=1)
    window: int = flag(
        50, 'How many of the best texts are looked at.', at_least=1)
    skip: int = flag(0, 'How many of the best are skipped.', at_least=0)
    margin: float = flag(
        0.0, 'By how much a negative scores less than b.', at_least=0.0)
    relative_margin: float = flag(
        0.05, "By what share of |b's score| it scores less than b.",
        at_least=0.0)
    rescore: str | None = flag(
        None, 'A cross-encoder workdir that gives the scores of the margins.',
        model=True)
    batch_size: int = again(RetrievalChoices, 'batch_size', 32)
    precision: str = again(RetrievalChoices, 'precision', 'float32')
    workdir: str = flag('', 'Where pairs.csv and metrics.json go.')


class JudgedPairs(NamedTuple):
    """Pairs whose negatives are sought.

    Attributes:
        firsts, seconds: a and b of each.
        belongs: texts that are no negatives, by a, as `same` returns them.
        more: further candidates.
    """

    firsts: list[str]
    seconds: list[str]
    belongs: Mapping[str, set[str]]
    more: Iterable[str]


class Mined(NamedTuple):
    """Negatives of one a.

    Attributes:
        negatives: numbers of texts.
        lost: number of texts that each rule excluded.
    """

    negatives: list[int]
    lost: Mapping[str, int]


def same(text: str) -> str:
    """Returns a text without differences of case and white space."""
    return ' '.join(text.casefold().split())


def select(
    texts: Sequence[int],
    scores: Sequence[float],
    positive: float,
    excluded: Sequence[bool],
    choices: MineChoices,
) -> Mined:
    """Selects the negatives of one a by the rules.

    Args:
        texts: numbers of texts, best first; -1 where there are no more.
        scores: scores of these texts.
        positive: the lowest score of a b.
        excluded: texts that are a or one of its b.
        choices: the rules.
    """
    # Of |positive|, so that the limit is below a negative score, too.
    least = positive - max(
        choices.margin, choices.relative_margin * abs(positive)
    )
    negatives: list[int] = []
    lost: collections.Counter[str] = collections.Counter()
    for text, score, is_excluded in zip(texts, scores, excluded, strict=True):
        seen = lost['skipped'] + lost['margin'] + len(negatives)
        if len(negatives) == choices.negatives or text < 0:
            break
        if is_excluded:
            lost['own'] += 1
        elif seen == choices.skip + choices.window:
            break
        elif seen < choices.skip:
            lost['skipped'] += 1
        elif score > least:
            lost['margin'] += 1
        else:
            negatives.append(text)
    return Mined(negatives, lost)


def search(
    queries: np.ndarray,
    known: np.ndarray,
    texts: list[str],
    most: int,
    encode: Encoder,
) -> retrieval.Rankings:
    """Searches n texts for queries [Q, D]; returns as `Best.sorted`.

    The vectors of the first texts are `known` [S, D]; others are encoded.
    """
    begins = [
        *range(0, len(known), BLOCK),
        *range(len(known), len(texts), BLOCK),
    ]

    def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        with commands.bar(total=len(texts), unit=' texts') as bar:
            for begin, end in itertools.pairwise([*begins, len(texts)]):
                block = known[begin:end]
                if begin >= len(known):
                    block = encode(texts[begin:end], 'passage')
                yield np.arange(begin, end), block
                bar.update(end - begin)

    return ranking.search(queries, blocks(), most, 'dot')


def check_judge(folder: str) -> None:
    """Refuses a --rescore that does not rate pairs of texts.

    Raises:
        FileNotFoundError, ValueError: it is no workdir.
        UsageError: it predicts neither numbers nor one of two classes, or was
            trained on single texts.
    """
    config = Config.read(pathlib.Path(folder))
    heads = [
        config.rows[row].settings
        for row in answering(('classes',), config.rows)
    ]
    classes = [head.get('classes', 2) for head in heads]
    if heads and heads[0].get('multilabel'):
        fault = 'gives several labels'
    elif config.task is not None and not config.task.pairs:
        fault = 'was taught by single texts'
    elif answering(('numbers',), config.rows) or classes and classes[0] <= 2:
        return
    elif classes:
        fault = f'gives {classes[0]} classes'
    else:
        rows = ', '.join(config.rows) or 'none'
        fault = f'gives neither numbers nor classes (its rows: {rows})'
    raise errors.UsageError(
        'rescore_cannot_judge',
        f'--rescore={folder} {fault}; name a workdir of `score`, or of `label` '
        'with two classes, that was taught by pairs',
    )


def rated(loaded: 'Loaded', first: list[str], second: list[str]) -> np.ndarray:
    """Rates pairs of texts with a cross-encoder, [n]."""
    if loaded.rows_that('numbers'):
        return loaded.rate(first, second)
    return loaded.classify(first, second)[:, -1]


def read_pairs(choices: MineChoices) -> JudgedPairs:
    """Reads --pairs and --corpus; errors as of `run`."""
    parts, notes = text_pairs.read_pairs(
        choices.pairs or '', choices.pair_columns, choices.pair_delimiter
    )
    print('\n'.join(notes), flush=True)
    firsts = [a for part in parts for a in part.texts[0]]
    seconds = [b for part in parts for b in part.texts[1]]
    belongs: dict[str, set[str]] = {a: {same(a)} for a in firsts}
    for a, b in zip(firsts, seconds, strict=True):
        belongs[a].add(same(b))
    more: Iterable[str] = ()
    if choices.corpus:
        corpus = corpora.open_corpus(choices.corpus, whole=True)
        documents = (corpus.every or corpus.train)()
        more = (document.text for document in documents)
    return JudgedPairs(firsts, seconds, belongs, more)


def read_folder(choices: MineChoices, folder: pathlib.Path) -> JudgedPairs:
    """Reads the judgements of --data_dir; errors as of `beir_task`."""
    task = retrieval.beir_task(folder, choices.split)
    texts = dict(task.documents())
    firsts: list[str] = []
    seconds: list[str] = []
    belongs: dict[str, set[str]] = {}
    for a, grades in zip(task.queries, task.relevance, strict=True):
        judged = [n for n in grades if texts.get(n)]
        best = sorted(judged, key=grades.__getitem__, reverse=True)
        best = [n for n in best if grades[n] > 0][: choices.positives]
        firsts += [a] * len(best)
        seconds += [texts[n] for n in best]
        belongs.setdefault(a, {same(a)}).update(same(texts[n]) for n in judged)
    if not firsts:
        raise errors.InputError(
            'no_positive_judgement',
            f'{task.name}: no query has a document of a grade above 0',
        )
    return JudgedPairs(firsts, seconds, belongs, filter(None, texts.values()))


def check(choices: MineChoices, chosen: Mapping[str, Any]) -> pathlib.Path:
    """Refuses contradicting choices; returns --workdir as a path."""
    commands.require(
        vars(choices), init='a workdir', workdir='a folder for pairs.csv'
    )
    if (choices.pairs is None) == (choices.data_dir is None):
        raise errors.UsageError(
            'pairs_or_folder',
            'name either --pairs (a table) or --data_dir (a BEIR folder)',
        )
    of_pairs = 'pair_columns', 'pair_delimiter', 'corpus'
    for other, names in (
        ('pairs', of_pairs), ('data_dir', ('split', 'positives')),
    ):  # fmt: skip
        if getattr(choices, other) is None:
            why = f'{{}} is for --{other}; leave it out'
            commands.refuse(chosen, names, why)
    workdir = commands.result_folder(choices.workdir)
    config = Config.read(pathlib.Path(choices.init))
    if not CRITICS[config.critic].has_vector:
        raise errors.UsageError(
            'mine_by_other_critic',
            f'--init={choices.init} compares by the critic {config.critic}, '
            'and texts are ranked by vectors here; name a model of the critic '
            'cosine, such as the one that this one began with',
        )
    if choices.rescore:
        check_judge(choices.rescore)
    return workdir


@commands.takes(MineChoices)
def run(choices: MineChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Mines negatives and writes pairs.csv; returns metrics.json.

    Raises:
        FileNotFoundError, UsageError, ValueError: what is wrong with a choice.
    """
    workdir = check(choices, chosen)
    if choices.data_dir is not None:
        pairs = read_folder(choices, pathlib.Path(choices.data_dir))
    else:
        pairs = read_pairs(choices)
    firsts, seconds, belongs, more = pairs
    text_of, query_of = _numbered(seconds), _numbered(firsts)
    known, queries = list(text_of), list(query_of)
    texts = list(_numbered(itertools.chain(known, more)))

    import infoword_tf

    loaded = infoword_tf.load(choices.init, decided(choices.precision))
    most = choices.window + choices.skip + max(map(len, belongs.values()))
    encoder = functools.partial(
        models.encoder_of,
        loaded,
        batch_size=choices.batch_size,
        normalize=loaded.config.similarity == 'cosine',
    )
    encode = encoder()
    vectors, known_vectors = encode(queries, 'query'), encode(known, 'passage')
    scores, results = search(
        vectors,
        known=known_vectors,
        texts=texts,
        most=min(most, len(texts)),
        encode=encoder(progress=False),
    )
    if choices.rescore:
        judge = infoword_tf.load(choices.rescore)
        query, rank = np.nonzero(results >= 0)
        scores[query, rank] = rated(
            judge,
            [queries[i] for i in query],
            [texts[i] for i in results[query, rank]],
        )
        pair_scores = rated(judge, firsts, seconds)
    else:
        pair_scores = np.einsum(
            'nd,nd->n',
            vectors[[query_of[a] for a in firsts]],
            known_vectors[[text_of[b] for b in seconds]],
        )
    positives = lowest_of(firsts, pair_scores)
    mined = {}
    for a, numbers, ratings in zip(
        queries, results.tolist(), scores.tolist(), strict=True
    ):
        excluded = [n >= 0 and same(texts[n]) in belongs[a] for n in numbers]
        mined[a] = select(
            numbers,
            ratings,
            positive=positives[a],
            excluded=excluded,
            choices=choices,
        )
    workdir.mkdir(parents=True, exist_ok=True)
    negatives = {a: [texts[i] for i in of.negatives] for a, of in mined.items()}
    both = zip(firsts, seconds, strict=True)
    write_pairs(workdir / 'pairs.csv', both, negatives, choices.negatives)
    counts = collections.Counter(len(m.negatives) for m in mined.values())
    record = {
        'pairs': len(firsts),
        'queries': len(queries),
        'texts': len(texts),
        'found': {str(k): counts[k] for k in range(choices.negatives + 1)},
        'lost': {
            rule: sum(m.lost.get(rule, 0) for m in mined.values())
            for rule in RULES
        },
    }
    tell_few(len(queries) - counts[choices.negatives], len(queries), choices)
    commands.record(workdir, record)
    return record


def tell_few(few: int, count: int, choices: MineChoices) -> None:
    """Prints how many of so many texts lack negatives, if any, and advises."""
    if few:
        print(
            f'{few:,} of {count:,} texts have fewer than '
            f'{choices.negatives} negatives; raise --window (now '
            f'{choices.window}), or lower --relative_margin '
            f'({choices.relative_margin:g})'
        )


def write_pairs(
    path: pathlib.Path,
    pairs: Iterable[tuple[str, str]],
    negatives: Mapping[str, Sequence[str]],
    count: int,
) -> None:
    """Writes a table of a, b and `count` columns of negatives, atomically.

    Args:
        path: file of the table.
        pairs: a and b of each row.
        negatives: texts by a, `count` at most.
        count: number of columns.
    """
    names = [f'negative_{i + 1}' for i in range(count)]
    with files.written(path) as partial:
        with open(partial, 'w', newline='', encoding='utf-8') as file:
            writer = csv.writer(file)
            writer.writerow(['a', 'b', *names])
            for a, b in pairs:
                empty = [''] * (count - len(negatives[a]))
                writer.writerow([a, b, *negatives[a], *empty])


def lowest_of(firsts: Iterable[str], scores: np.ndarray) -> dict[str, float]:
    """Returns the lowest score of a b, by a."""
    lowest: dict[str, float] = {}
    for a, score in zip(firsts, scores.tolist(), strict=True):
        lowest[a] = min(lowest.get(a, np.inf), score)
    return lowest


def _numbered(texts: Iterable[str]) -> dict[str, int]:
    """Numbers distinct texts, in order."""
    return {text: i for i, text in enumerate(dict.fromkeys(texts))}


if __name__ == '__main__':
    commands.start(run)
