r"""Mines hard negatives: texts that a model finds for a, and that are not b.

    python -m tasks.mine --init=runs/minilm --pairs=pairs.csv \
        --corpus='text:texts/*.txt' --negatives=3 --workdir=runs/mined
    python -m infoword_tf.train --init=runs/minilm --objectives=simcse \
        --pairs=runs/mined/pairs.csv --simcse.pooling=mean --workdir=runs/hard

Every a searches all documents of --corpus (of data sets with a split that is
held out, those of the other one) and all b of --pairs, exactly. Texts that are
a itself or one of its own b are no negatives, nor are the first `--skip` of
what it finds. A negative scores less than b by `--margin`, and by
`--relative_margin` of |b's score|: what scores higher is probably an answer
that nobody has marked. With `--rescore` a cross-encoder (a workdir of `score`
or of two classes, taught by pairs) gives the scores of these two rules.

WORKDIR/pairs.csv is --pairs with the negatives as further columns; a cell is
empty where there is none. metrics.json says for how many a how many were found,
and how many texts each rule cost.
"""

import collections
import csv
import dataclasses
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from infoword_tf import commands, errors, files
from infoword_tf import progress as shown
from infoword_tf.choices import TextChoices, again, flag
from infoword_tf.config import Config
from infoword_tf.data import corpora, text_pairs
from infoword_tf.evaluation import ranking
from infoword_tf.plan import answering

if TYPE_CHECKING:
    from infoword_tf.inference.loaded import Loaded

BLOCK = 4096  # texts that are encoded and compared at a time
RULES = ('own', 'skipped', 'margin')


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    init: str | None = flag(
        None, 'The workdir whose vectors search.', model=True)
    pairs: str | None = flag(None, 'GLOB of pairs, as of infoword_tf.train.')
    pair_columns: tuple[str, ...] = flag(
        (), 'Names of the columns a and b; by default as infoword_tf.train '
        'finds them.')
    pair_delimiter: str | None = again(TextChoices, 'pair_delimiter', None)
    corpus: str | None = flag(
        None, 'Text whose documents are candidates too; none: only the b.')
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
    batch_size: int = flag(32, 'Texts encoded at a time.', at_least=1)
    workdir: str | None = flag(None, 'Where pairs.csv and metrics.json go.')


class Mined(NamedTuple):
    """What was found for one a.

    Attributes:
        negatives: numbers of texts.
        lost: by rule, how many texts it cost.
    """

    negatives: list[int]
    lost: Mapping[str, int]


def same(text: str) -> str:
    """What two copies of a text have in common: case and spaces apart."""
    return ' '.join(text.casefold().split())


def chosen_of(
    found: Sequence[int],
    scores: Sequence[float],
    positive: float,
    own: Sequence[bool],
    given: Choices,
) -> Mined:
    """The negatives of one a.

    Args:
        found: texts, best first; -1: there were no more.
        scores: of each.
        positive: of the b that has the lowest score.
        own: which are a or one of its b.
        given: the rules.
    """
    # A share of |positive|: of a negative score the bound is below it, too.
    least = positive - max(
        given.margin, given.relative_margin * abs(positive)
    )
    kept: list[int] = []
    lost: collections.Counter[str] = collections.Counter()
    for text, score, is_own in zip(found, scores, own, strict=True):
        seen = lost['skipped'] + lost['margin'] + len(kept)
        if len(kept) == given.negatives or text < 0:
            break
        if is_own:
            lost['own'] += 1
        elif seen == given.skip + given.window:
            break
        elif seen < given.skip:
            lost['skipped'] += 1
        elif score > least:
            lost['margin'] += 1
        else:
            kept.append(text)
    return Mined(kept, lost)


def encode(
    loaded: 'Loaded',
    texts: list[str],
    role: str,
    given: Choices,
    progress: bool = True,
) -> np.ndarray:
    """[n, D], of length 1 where vectors are compared by cosine."""
    return loaded.encode(
        texts,
        given.batch_size,
        normalize=loaded.config.similarity == 'cosine',
        progress=progress,
        prompt=loaded.config.prompt_for(role),
    )


def search(
    loaded: 'Loaded',
    queries: np.ndarray,
    known: np.ndarray,
    texts: list[str],
    most: int,
    given: Choices,
) -> tuple[np.ndarray, np.ndarray]:
    """The best so many of n texts for each of [Q, D], see `Best.sorted`.

    Those of the first texts are `known`, [S, D]; others are encoded as `given`.
    """
    def vectors() -> Iterator[np.ndarray]:
        for begin in range(0, len(known), BLOCK):
            yield known[begin : begin + BLOCK]
        for begin in range(len(known), len(texts), BLOCK):
            rest = texts[begin : begin + BLOCK]
            yield encode(loaded, rest, 'passage', given, False)

    def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        begin = 0
        with shown.bar(total=len(texts), unit=' texts') as bar:
            for block in vectors():
                yield begin + np.arange(len(block)), block
                begin += len(block)
                bar.update(len(block))

    return ranking.search(queries, blocks(), most, 'dot')


def check_judge(folder: str) -> None:
    """Complains of a --rescore that rates no pairs of texts.

    Raises:
        FileNotFoundError, ValueError: it is no workdir.
        UsageError: it gives neither numbers nor one of two classes, or knows
            single texts.
    """
    config = Config.read(pathlib.Path(folder))
    heads = [
        config.rows[row].settings
        for row in answering(('classes',), config.rows)
    ]
    classes = [head.get('classes', 2) for head in heads]
    if heads and heads[0].get('multilabel'):
        wrong = 'gives several labels'
    elif config.task is not None and not config.task.pairs:
        wrong = 'was taught by single texts'
    elif answering(('numbers',), config.rows) or classes and classes[0] <= 2:
        return
    elif classes:
        wrong = f'gives {classes[0]} classes'
    else:
        rows = ', '.join(config.rows) or 'none'
        wrong = f'gives neither numbers nor classes (its rows: {rows})'
    raise errors.UsageError(
        f'--rescore={folder} {wrong}; name a workdir of `score`, or of `label` '
        'with two classes, that was taught by pairs'
    )


def rated(loaded: 'Loaded', first: list[str], second: list[str]) -> np.ndarray:
    """[n] how well a cross-encoder finds that texts belong together."""
    if loaded.rows_that('numbers'):
        return loaded.rate(first, second)
    return loaded.classify(first, second)[:, -1]


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command; returns what metrics.json holds.

    Raises:
        FileNotFoundError, UsageError, ValueError: what was chosen cannot be.
    """
    commands.require(
        vars(given),
        init='a workdir',
        pairs='a file of pairs',
        workdir='a folder for pairs.csv',
    )
    workdir = commands.result_folder(given.workdir)
    Config.read(pathlib.Path(given.init))  # complains before the work
    if given.rescore:
        check_judge(given.rescore)
    parts, notes = text_pairs.read_pairs(
        given.pairs, given.pair_columns, given.pair_delimiter
    )
    print('\n'.join(notes), flush=True)
    firsts = [a for part in parts for a in part.texts[0]]
    seconds = [b for part in parts for b in part.texts[1]]
    place, row_of = _numbered(seconds), _numbered(firsts)
    known, queries = list(place), list(row_of)
    texts = known
    if given.corpus:
        corpus = corpora.open_corpus(given.corpus, whole=True)
        documents = (corpus.every or corpus.train)()
        more = (document.text for document in documents)
        texts = list(_numbered(itertools.chain(known, more)))
    belongs: dict[str, set[str]] = {a: {same(a)} for a in queries}
    for a, b in zip(firsts, seconds, strict=True):
        belongs[a].add(same(b))

    import infoword_tf

    loaded = infoword_tf.load(given.init)
    most = given.window + given.skip + max(map(len, belongs.values()))
    vectors = encode(loaded, queries, 'query', given)
    own_vectors = encode(loaded, known, 'passage', given)
    scores, found = search(
        loaded, vectors, own_vectors, texts, min(most, len(texts)), given
    )
    if given.rescore:
        judge = infoword_tf.load(given.rescore)
        row, column = np.nonzero(found >= 0)
        scores[row, column] = rated(
            judge,
            [queries[i] for i in row],
            [texts[i] for i in found[row, column]],
        )
        own_scores = rated(judge, firsts, seconds)
    else:
        own_scores = np.einsum(
            'nd,nd->n',
            vectors[[row_of[a] for a in firsts]],
            own_vectors[[place[b] for b in seconds]],
        )
    positives: dict[str, float] = {}  # of the b that scores lowest
    for a, score in zip(firsts, own_scores.tolist(), strict=True):
        positives[a] = min(positives.get(a, np.inf), score)
    mined = {}
    for a, numbers, rated_as in zip(
        queries, found.tolist(), scores.tolist(), strict=True
    ):
        own = [n >= 0 and same(texts[n]) in belongs[a] for n in numbers]
        mined[a] = chosen_of(numbers, rated_as, positives[a], own, given)
    workdir.mkdir(parents=True, exist_ok=True)
    with files.written(workdir / 'pairs.csv') as partial:
        with open(partial, 'w', newline='', encoding='utf-8') as file:
            writer = csv.writer(file)
            names = [f'negative_{i + 1}' for i in range(given.negatives)]
            writer.writerow(['a', 'b', *names])
            for a, b in zip(firsts, seconds, strict=True):
                kept = [texts[i] for i in mined[a].negatives]
                kept += [''] * (given.negatives - len(kept))
                writer.writerow([a, b, *kept])
    counts = collections.Counter(len(m.negatives) for m in mined.values())
    record = {
        'pairs': len(firsts),
        'queries': len(queries),
        'texts': len(texts),
        'found': {str(k): counts[k] for k in range(given.negatives + 1)},
        'lost': {
            rule: sum(m.lost.get(rule, 0) for m in mined.values())
            for rule in RULES
        },
    }
    if few := len(queries) - counts[given.negatives]:
        print(
            f'{few:,} of {len(queries):,} texts have fewer than '
            f'{given.negatives} negatives; raise --window (now '
            f'{given.window}), or lower --relative_margin '
            f'({given.relative_margin:g})'
        )
    commands.record(workdir, record)
    return record


def _numbered(texts: Iterable[str]) -> dict[str, int]:
    """Each text once, in order, with its number."""
    return {text: i for i, text in enumerate(dict.fromkeys(texts))}


if __name__ == '__main__':
    commands.start(run)
