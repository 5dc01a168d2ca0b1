r"""A search of text by the meaning of a question, with an exported model.

    python -m export.search --model=DIR/1 --corpus=pydocs "read a csv file"
    python -m export.search --model=DIR/1 --corpus='text:notes/*.txt' < queries
    python -m export.search --model=DIR/1 --hybrid "read a csv file"
    python -m export.search --model=DIR/1 --index=news --documents=news.jsonl \
        --id=_id --text=title,text "who won"
    python -m export.search --model=LATE/1 --first=bm25 --rerank=CROSS/1 \
        "who won"

Without a query every line of standard input is one. The index is DIR/search/
(index.py), made at the first search, and again when text or model has changed;
texts that have vectors are not encoded again. With --hybrid the scores of
vectors and BM25 are summed, see `ranking.hybrid`; `tasks.retrieval --tune`
chooses --hybrid_share. The critic of the model compares. With --first=bm25 it
orders what BM25 has found; --rerank orders the best anew by another model,
which may encode pairs (`cross`).
"""

import dataclasses
import pathlib
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from infoword_tf import commands
from infoword_tf.choices import again, flag
from infoword_tf.config import read_exported
from infoword_tf.critics import CRITICS
from infoword_tf.critics.texts import Texts
from infoword_tf.data import corpora, table_documents
from infoword_tf.data.labelling import ColumnChoices
from infoword_tf.errors import UsageError
from infoword_tf.evaluation import models, ranking, stages
from infoword_tf.evaluation.retrieval import EXACT
from infoword_tf.evaluation.vectors import digest

from .index import Index, Passage

BATCH_SIZE = 64  # passages embedded at once, of like length
Results = list[tuple[float, Passage]]  # with scores, the best first
Search = Callable[..., Results]  # of a query, share of words, how many


@dataclasses.dataclass(frozen=True)
class SearchChoices:
    """The choices of the command."""

    model: str = flag('', 'An exported model, DIR/1.')
    corpus: str = flag(
        'pydocs', 'What to search, all of it, named as of infoword_tf.train: '
        'pydocs, text:GLOB, jsonl:GLOB[:FIELD], parquet:GLOB[:COLUMN] ...')
    documents: str | None = flag(
        None, 'A table to search instead, a document a line: .jsonl, .csv or '
        '.tsv (also as .gz or .zst) or .parquet.')
    id: str | None = flag(
        None, 'The column of --documents with unique names; by default a '
        'document is called FILE:LINE.')
    text: str = flag('text', 'Columns of --documents, with commas between.')
    delimiter: str | None = again(ColumnChoices, 'delimiter', None)
    index: str | None = flag(
        None, 'The folder of the index; by default DIR/search. Without '
        '--corpus and --documents it is searched as it is.')
    critic: str | None = again(stages.StageChoices, 'critic', None)
    first: str | None = flag(
        None, 'bm25: vectors order what a search by words has found; by '
        'default all passages are compared.', choices=(stages.BM25,))
    rerank: str | None = flag(
        None, 'Another exported model, which orders the best passages anew.')
    rerank_top: int | None = again(stages.StageChoices, 'rerank_top', None)
    top_k: int = flag(5, 'Answers to a query.', at_least=1)
    hybrid: bool = flag(
        False, 'Search by words (BM25) as well, and add both scores.')
    hybrid_share: float | None = flag(
        None, 'The share of words in that sum, and --hybrid as well: 0 is the '
        'vectors alone, 1 the words alone.', at_least=0.0, at_most=1.0,
        shown=ranking.SHARE)
    dims: int | None = again(stages.StageChoices, 'dims', None)

    @property
    def words(self) -> float:
        """The share of words in the score of an answer."""
        if self.hybrid_share is None:
            return ranking.SHARE if self.hybrid else 0.0
        return self.hybrid_share


def prepare(
    choices: SearchChoices, chosen: Mapping[str, Any]
) -> Callable[[Any], Search]:
    """Checks all choices before TensorFlow is imported, which takes seconds.

    Returns:
        A function of the loaded model, or of None, which loads it. Both raise
        UsageError, FileNotFoundError or ValueError where something is wrong.
    """
    commands.require(vars(choices), model='an exported model, DIR/1')
    if choices.documents and 'corpus' in chosen:
        raise UsageError('documents_or_corpus', 'give --documents or --corpus')
    if not choices.documents:
        names = 'id', 'text', 'delimiter'
        commands.refuse(chosen, names, '{} is for --documents; leave it out')
    stages.check_stages(choices.first, choices.rerank, choices.rerank_top)
    path, folder = pathlib.Path(choices.model), choices.index
    config, _ = read_exported(path)
    critic = choices.critic or config.critic
    if CRITICS[critic].of_pairs:
        raise UsageError(
            'cross_without_index',
            f'--model={choices.model} rates pairs: name another one, and this '
            'one with --rerank',
        )
    if choices.rerank is not None:
        read_exported(pathlib.Path(choices.rerank))
    index = Index(pathlib.Path(folder or path.parent / 'search'))
    key, documents = {'model': digest(path), 'critic': critic}, None
    if choices.documents:
        state, documents = table_documents.documents_of(
            choices.documents, choices.id, choices.text, choices.delimiter
        )
    elif 'corpus' in chosen or not folder:
        state, documents = corpora.whole(choices.corpus)
    elif not len(index):
        raise UsageError(
            'no_index_yet',
            f'--index={folder} holds no index yet: name the text with --corpus '
            'or --documents',
        )
    if documents:
        name = choices.documents or choices.corpus
        key |= {'corpus': name, 'fingerprint': state}
    for name in ('critic', 'model', 'corpus') if folder else ('critic',):
        if name in key and index.about.get(name, key[name]) != key[name]:
            raise UsageError(
                'index_of_other',
                f'{index.folder} is of another {name}, {index.about[name]}: '
                'name another folder with --index, or delete that one',
            )

    def opened(model: Any) -> Search:
        encode, _ = models.exported(
            path, BATCH_SIZE, model=model, critic=critic
        )
        search = search_of(choices, critic, index, encode)
        if documents and not key.items() <= index.about.items():
            index.write(documents(), encode, key)
        compares_all = CRITICS[critic].compares_few and not choices.first
        if compares_all and choices.words < 1 and len(index) > EXACT:
            raise UsageError(
                'late_without_first',
                f'vectors of the tokens of {EXACT:,} passages are compared at '
                f'most, and there are {len(index):,}: give --first=bm25',
            )
        return search

    return opened


def search_of(
    choices: SearchChoices, critic: str, index: Index, encode: stages.Encoder
) -> Search:
    """Returns a search of an index by a critic; `encode`: of queries."""
    config, _ = read_exported(pathlib.Path(choices.model))
    dims, top = choices.dims, choices.rerank_top or stages.RERANKED
    if dims is not None:
        models.check_critic_dims(critic)
        models.check_dims(dims, encode([''], None).shape[1])
    rerank = None
    if other := choices.rerank:
        rerank = models.exported_scores(pathlib.Path(other), BATCH_SIZE)

    def compared(texts: Texts) -> Texts:
        if dims is not None:
            texts = models.first_numbers(texts, dims, config.normalize)
        similarity = CRITICS[critic].similarity or config.similarity
        return ranking.prepared(texts, similarity)

    def search(
        query: str, words: float = choices.words, top_k: int = choices.top_k
    ) -> Results:
        results = index.find(
            query,
            encode([query], 'query') if words < 1 else None,
            prepare=compared,
            top_k=max(top_k, top) if rerank else top_k,
            words=words,
            first=top if choices.first else None,
        )
        if rerank and results:
            scores = rerank(query, [passage.text for _, passage in results])
            best = np.argsort(-scores, kind='stable')[:top_k]
            results = [(float(scores[i]), results[i][1]) for i in best]
        return results

    return search


def answer(query: str, results: Results) -> str:
    """Formats a query and the results."""
    lines = [f'"{query}"']
    for score, passage in results:
        text = textwrap.shorten(passage.text, 230, placeholder=' ...')
        lines += [f'  {score:.3f}  {passage.source}', f'         {text}']
    return '\n'.join(lines)


@commands.takes(SearchChoices)
def opened(choices: SearchChoices, chosen: Mapping[str, Any]) -> Search:
    """Opens the search for many queries from Python.

        ask = search.opened(model='models/books/1', corpus='pydocs')
        for score, passage in ask('read a csv file'):
            print(score, passage.source, passage.text)
    """
    return prepare(choices, chosen)(None)


@commands.takes(SearchChoices)
def run(
    queries: Sequence[str], choices: SearchChoices, chosen: Mapping[str, Any]
) -> None:
    """Answers queries, or lines of standard input."""
    ask = prepare(choices, chosen)(None)
    for query in queries or map(str.strip, sys.stdin):
        is_empty = not query.strip()
        print('an empty query has no answer' if is_empty
              else answer(query, ask(query)), flush=True)  # fmt: skip


if __name__ == '__main__':
    stopped = 'what was encoded stays, and the same command goes on'
    commands.start(run, 'queries', stopped)
