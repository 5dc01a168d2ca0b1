r"""A search of text by the meaning of a question, with an exported model.

    python -m export.search --model=DIR/1 --corpus=pydocs "read a csv file"
    python -m export.search --model=DIR/1 --corpus='text:notes/*.txt' < queries
    python -m export.search --model=DIR/1 --hybrid "read a csv file"
    python -m export.search --model=DIR/1 --hybrid_share=0.3 "read a csv file"
    python -m export.search --model=DIR/1 --index=news --vectors=int8 \
        --documents=news.jsonl --id=_id --text=title,text "who won"
    python -m export.search --model=DIR/1 --index=news --update \
        --documents=today.jsonl --id=_id --text=title,text
    python -m export.search --model=DIR/1 --index=news "who won"

    python -m export.search --model=LATE/1 --first=bm25 --rerank=CROSS/1 \
        "who won"

Without a query on the command line every line of standard input is a query. The
index is DIR/search/, made at the first search, and again whenever the corpus or
the model has changed. An index named by --index is never replaced: another
model, text or kind of vectors is refused. Only passages with new text are
encoded. With --hybrid the scores of vectors and BM25 are summed, see
`ranking.hybrid`; `tasks.retrieval --tune` chooses --hybrid_share.

The index holds what the critic of the model compares: vectors, vectors of
tokens (`late`) or weights of the vocabulary (`lexical`). With --first=bm25
vectors order what BM25 has found; --rerank orders the best anew by another
model, which may encode pairs (`cross`).
"""

import dataclasses
import functools
import itertools
import pathlib
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from export.index import (
    KINDS,
    Index,
    Passage,
    has_faiss,
)
from infoword_tf import commands
from infoword_tf.choices import TextChoices, again, flag
from infoword_tf.config import read_exported
from infoword_tf.critics import CRITICS
from infoword_tf.data import table_documents
from infoword_tf.data.documents import Document
from infoword_tf.errors import UsageError
from infoword_tf.evaluation import ranking
from infoword_tf.evaluation.retrieval import EXACT
from tasks import retrieval
from tasks.vectors import digest

BATCH_SIZE = 64  # passages embedded at once, of like length


@dataclasses.dataclass(frozen=True)
class SearchChoices:
    """The choices of the command."""

    model: str | None = flag(None, 'An exported model, DIR/1.')
    corpus: str = flag(
        'pydocs', 'What to search, all of it: pydocs, text:GLOB, '
        'jsonl:GLOB[:FIELD], parquet:GLOB[:COLUMN], arrow:DIR[:COLUMN], '
        'tfds:NAME[/CONFIG][:FEATURE] or store:DIR, as of infoword_tf.train.')
    documents: str | None = flag(
        None, 'A table to search instead, a document a line: .jsonl, .csv or '
        '.tsv (also as .gz or .zst) or .parquet.')
    id: str | None = flag(
        None, 'The column of --documents with unique names; by default a '
        'document is called FILE:LINE.')
    text: str = flag(
        'text', 'The columns of --documents that are searched: one, or '
        'several with commas between.')
    delimiter: str | None = again(
        TextChoices, 'pair_delimiter', None, help='What is between the '
        'cells of a .csv; by default as its first lines suggest.')
    index: str | None = flag(
        None, 'The folder of the index; by default DIR/search. Without '
        '--corpus and --documents it is searched as it is.')
    update: bool = flag(
        False, 'Add --documents or --corpus to --index; documents with known '
        'names are replaced.')
    vectors: str | None = flag(
        None, 'How the index stores vectors: float32 (4 bytes a number), int8 '
        '(1 byte), or binary (1 bit to search by, and int8 for the best); '
        'vectors of tokens as float32, float16, int8, or residual (2 bits). By '
        'default as before, else float32.',
        choices=tuple({k: 0 for x in CRITICS.values() for k in x.stored}))
    oversample: int | None = flag(
        None, 'With --vectors=binary: how many passages are compared by '
        'int8 for each answer.', at_least=1, shown=KINDS['binary'][1])
    critic: str | None = again(retrieval.RetrievalChoices, 'critic', None)
    first: str | None = flag(
        None, 'bm25: vectors order what a search by words has found; by '
        'default all passages are compared.', choices=(retrieval.BM25,))
    rerank: str | None = flag(
        None, 'Another exported model, which orders the best passages anew.')
    rerank_top: int | None = again(
        retrieval.RetrievalChoices, 'rerank_top', None)
    top_k: int = flag(5, 'Answers to a query.', at_least=1)
    hybrid: bool = flag(
        False, 'Search by words (BM25) as well, and add both scores.')
    hybrid_share: float | None = flag(
        None, 'The share of words in that sum, and --hybrid as well: 0 is the '
        'vectors alone, 1 the words alone.', at_least=0.0, at_most=1.0,
        shown=ranking.SHARE)
    dims: int | None = flag(
        None, 'How many first numbers of vectors are compared; by default '
        'all.', at_least=1)

    @property
    def words(self) -> float:
        """The share of words in the score of an answer."""
        if self.hybrid_share is None:
            return ranking.SHARE if self.hybrid else 0.0
        return self.hybrid_share


def refuse(complaints: Mapping[UsageError, Any]) -> None:
    """Raises the first error whose condition holds."""
    for error, wrong in complaints.items():
        if wrong:
            raise error


def indexed(
    choices: SearchChoices,
) -> tuple[str, Callable[[], Iterable[Document]]]:
    """Returns a fingerprint of the text to index, and all documents."""
    if choices.documents is not None:
        return table_documents.documents_of(
            choices.documents, choices.id, choices.text, choices.delimiter
        )
    from infoword_tf.data import corpora

    corpus = corpora.open_corpus(choices.corpus)
    return corpus.fingerprint, corpus.every or (
        lambda: itertools.chain(corpus.train(), corpus.heldout())
    )


def prepare(
    choices: SearchChoices, chosen: Mapping[str, Any]
) -> Callable[[Any], tuple[Index, retrieval.Encoder]]:
    """Checks all choices before TensorFlow is imported, which takes seconds.

    Returns:
        A function that opens or makes the index: of the loaded model, or of
        None, which loads it, to the index and the encoder of queries.

    Raises:
        UsageError, FileNotFoundError, ValueError: something does not
            fit; the function may raise them as well.
    """
    commands.require(vars(choices), model='an exported model, DIR/1')
    table, folder = choices.documents, choices.index
    name = table or choices.corpus
    named = table is not None or 'corpus' in chosen
    refuse({
        UsageError('documents_or_corpus', 'give --documents or --corpus'):
            table and 'corpus' in chosen,
        UsageError(
            'documents_of_tfds',
            f'--documents={table} is no file; name a data set of TFDS with '
            '--corpus'): table and table.startswith('tfds:'),
        UsageError(
            'flag_of_documents',
            '--id, --text and --delimiter are for --documents; leave them out'):
            not table and {'id', 'text', 'delimiter'} & set(chosen),
        UsageError(
            'update_of_what',
            '--update wants --index, and --documents or --corpus to add to it'):
            choices.update and not (named and folder),
    })  # fmt: skip
    retrieval.check_stages(choices.first, choices.rerank, choices.rerank_top)
    path = pathlib.Path(choices.model)
    config, _ = read_exported(path)
    critic = choices.critic or config.critic
    if choices.rerank is not None:
        read_exported(pathlib.Path(choices.rerank))
    refuse({
        UsageError(
            'cross_without_index',
            f'--model={path} rates pairs, and makes no index: name another '
            'one, and this one with --rerank'): CRITICS[critic].of_pairs,
        UsageError(
            'missing_faiss',
            "--index needs FAISS: pip install -e '.[search]'"):
            folder and not has_faiss() and CRITICS[critic].has_vector,
    })  # fmt: skip
    index = Index(pathlib.Path(folder or path.parent / 'search'))
    about = index.key()
    if about:
        about = {'critic': 'cosine', **about}  # older ones do not say
    key, documents = {'model': digest(path), 'critic': critic}, None
    if named or not folder:
        state, documents = indexed(choices)
        key |= {'corpus': name, 'fingerprint': state}
    kind = about.get('vectors', choices.vectors or 'float32')
    again = about and documents and not choices.update
    refuse({
        UsageError(
            'no_index_yet',
            f'--index={folder} holds no index yet: name the text with --corpus '
            'or --documents'): not (about or documents),
        UsageError(
            'index_of_other_critic',
            f'{index.folder} is an index of the critic {about.get("critic")}, '
            f'and {critic} compares: name another folder with --index, or '
            'delete that one'): about and about['critic'] != critic,
        UsageError(
            'vectors_of_other_critic',
            f'--vectors={kind}: an index of the critic {critic} holds '
            f'{", ".join(CRITICS[critic].stored)}'):
            kind not in CRITICS[critic].stored,
        UsageError(
            'index_of_other_vectors',
            f'{index.folder} holds vectors of the kind {kind}: leave out '
            f'--vectors={choices.vectors}, name another folder with --index, '
            'or delete that one'): choices.vectors not in (None, kind),
        UsageError(
            'oversample_without_bits',
            f'--oversample is for --vectors=binary; the index is of {kind}'):
            choices.oversample is not None and kind != 'binary',
        UsageError(
            'index_of_other_model',
            f'{folder} is an index of another model: name that one with '
            '--model, or another folder with --index'):
            folder and about and about['model'] != key['model'],
        UsageError(
            'index_was_updated',
            f'{folder} was updated: give --update as well, or search it as it '
            'is, without --corpus and --documents'):
            again and about.get('updates'),
        UsageError(
            'index_of_other_text',
            f'{folder} is an index of {about.get("corpus")}: give --update to '
            f'add {name}, or name another folder with --index'):
            folder and again and about['corpus'] != name,
    })  # fmt: skip

    def opened(model: Any) -> tuple[Index, retrieval.Encoder]:
        embed, similarity = retrieval.exported(
            path, BATCH_SIZE, model=model, critic=critic
        )
        if choices.dims is not None:
            retrieval.check_critic_dims(critic)
            retrieval.check_dims(choices.dims, embed(['']).shape[1])
            index.cut = functools.partial(
                retrieval.first_numbers, dims=choices.dims,
                normalize=config.normalize,
            )  # fmt: skip
        if choices.update and about:
            index.write(documents(), embed)
        elif documents and not key.items() <= about.items():
            more = {'vectors': kind, 'similarity': similarity}
            index.write(documents(), embed, key | more)
        index.mend()
        top = choices.rerank_top or retrieval.RERANKED
        index.first = top if choices.first else None
        if choices.rerank is not None:
            index.rerank = reranker(pathlib.Path(choices.rerank))
            index.top = top
        compares_all = CRITICS[critic].compares_few and not choices.first
        if compares_all and choices.words < 1 and len(index) > EXACT:
            raise UsageError(
                'late_without_first',
                f'{index.folder} holds {len(index):,} passages, and vectors of '
                f'the tokens of {EXACT:,} are compared at most: give '
                '--first=bm25',
            )
        return index, embed

    return opened


def reranker(folder: pathlib.Path) -> Callable[[str, list[str]], np.ndarray]:
    """Returns scores of texts for a query, by an export of any critic.

    Raises:
        ValueError: the export has no signature of its critic.
    """
    config, _ = read_exported(folder)
    if CRITICS[config.critic].of_pairs:
        rate = retrieval.exported_rate(folder, BATCH_SIZE)
        return lambda query, texts: rate([query] * len(texts), texts)
    embed, similarity = retrieval.exported(
        folder, BATCH_SIZE, critic=config.critic
    )

    def scores(query: str, texts: list[str]) -> np.ndarray:
        a, b = embed([query], 'query'), embed(texts, 'passage')
        a, b = (ranking.prepared(x, similarity) for x in (a, b))
        return ranking.comparer(b)(a)[0]

    return scores


# --------------------------------------------------------------------- answers


def find(
    query: str,
    index: Index,
    embed: retrieval.Encoder,
    top_k: int,
    words: float = 0.0,
    oversample: int | None = None,
) -> list[tuple[float, Passage]]:
    """Finds the best passages, with scores; see `Index.find`."""
    vector = embed([query], 'query') if words < 1 else None
    return index.find(query, vector, top_k, words, oversample)


def answer(query: str, results: Iterable[tuple[float, Passage]]) -> str:
    """Formats a query and the results of `find`."""
    lines = [f'"{query}"']
    for score, passage in results:
        text = textwrap.shorten(passage.text, 230, placeholder=' ...')
        lines += [f'  {score:.3f}  {passage.source}', f'         {text}']
    return '\n'.join(lines)


@commands.takes(SearchChoices)
def opened(
    choices: SearchChoices, chosen: Mapping[str, Any]
) -> Callable[[str], list[tuple[float, Passage]]]:
    """Opens the search for many queries from Python.

        ask = search.opened(model='models/books/1', corpus='pydocs')
        for score, passage in ask('read a csv file'):
            print(score, passage.source, passage.text)

    Returns:
        A function of a query: the best passages and scores, as of `find`.

    Raises:
        UsageError, FileNotFoundError, ValueError: as of `prepare`.
    """
    index, embed = prepare(choices, chosen)(None)
    return functools.partial(
        find, index=index, embed=embed, top_k=choices.top_k,
        words=choices.words, oversample=choices.oversample,
    )  # fmt: skip


@commands.takes(SearchChoices)
def run(
    queries: Sequence[str], choices: SearchChoices, chosen: Mapping[str, Any]
) -> None:
    """Answers queries, or lines of standard input.

    An update without a query reads no standard input.
    """
    ask = opened(**chosen)
    if choices.update and not queries:
        print(f'{choices.index}: {len(ask.keywords["index"]):,} passages')
        return
    for query in queries or map(str.strip, sys.stdin):
        if query.strip():
            print(answer(query, ask(query)), flush=True)
        else:
            print('an empty query has no answer', flush=True)


if __name__ == '__main__':
    stopped = 'what was encoded stays, and the same command goes on'
    commands.start(run, 'queries', stopped)
