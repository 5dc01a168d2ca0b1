r"""Searches text by the meaning of a question, with an exported model.

    python -m export.search --model=DIR/1 --corpus=pydocs "read a csv file"
    python -m export.search --model=DIR/1 --corpus='text:notes/*.txt' < queries
    python -m export.search --model=DIR/1 --hybrid "read a csv file"
    python -m export.search --model=DIR/1 --index=news --vectors=int8 \
        --documents=news.jsonl --id=_id --text=title,text "who won"
    python -m export.search --model=DIR/1 --index=news --update \
        --documents=today.jsonl --id=_id --text=title,text
    python -m export.search --model=DIR/1 --index=news "who won"

Without a query on the command line every line of standard input is one. The
index lies beside the model, in DIR/search/; it is made at the first search
and again whenever the corpus or the model has changed. One of --index is yours:
what is not of the same model, text and kind of vectors is refused. In both only
passages are encoded whose text is new. With --hybrid vectors and BM25 search
both, and their scores are summed, see `ranking.merge`.
"""

import dataclasses
import functools
import itertools
import pathlib
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from export.index import KINDS, Index, Passage, has_faiss
from infoword_tf import commands, errors
from infoword_tf.choices import TextChoices, again, flag
from infoword_tf.config import read_exported
from infoword_tf.data import table_documents
from infoword_tf.data.documents import Document
from tasks import retrieval
from tasks.vectors import digest

BATCH_SIZE = 64  # passages embedded at once, of like length
HYBRID = 0.5  # share of words in --hybrid


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    model: str | None = flag(None, 'An exported model, DIR/1.')
    corpus: str = flag(
        'pydocs', 'What to search, all of it: pydocs, text:GLOB, '
        'jsonl:GLOB[:FIELD], parquet:GLOB[:COLUMN], arrow:DIR[:COLUMN], '
        'tfds:NAME[/CONFIG][:FEATURE] or store:DIR, as of infoword_tf.train.')
    documents: str | None = flag(
        None, 'A table to search instead, a row a document: .jsonl, .csv or '
        '.tsv (also as .gz or .zst) or .parquet.')
    id: str | None = flag(
        None, 'The column of --documents that names them, each otherwise; by '
        'default a document is called FILE:LINE.')
    text: str = flag(
        'text', 'The columns of --documents that are searched: one, or '
        'several with commas between.')
    delimiter: str | None = again(
        TextChoices, 'pair_delimiter', None, help='What parts the cells of a '
        '.csv; by default as its first lines say.')
    index: str | None = flag(
        None, 'The folder of the index; by default search/ beside the model. '
        'Without --corpus and --documents it is searched as it is.')
    update: bool = flag(
        False, 'Add --documents or --corpus to --index; those that it has '
        'under the same name are replaced.')
    vectors: str | None = flag(
        None, 'How the index keeps vectors: float32 (4 bytes a number), int8 '
        '(1 byte), or binary (1 bit to search by, and int8 for the best). By '
        'default as it was made, else float32.', choices=tuple(KINDS))
    oversample: int | None = flag(
        None, 'Of --vectors=binary: how many passages are compared by int8 '
        'for each answer.', at_least=1, shown=KINDS['binary'][1])
    top_k: int = flag(5, 'Answers to a query.', at_least=1)
    hybrid: bool = flag(
        False, 'Search by words (BM25) as well, and add both scores.')
    dims: int | None = flag(
        None, 'Compare the first so many numbers of vectors alone.',
        at_least=1)


def refuse(complaints: Mapping[str, Any]) -> None:
    """UsageError with the first message whose condition holds."""
    for message, wrong in complaints.items():
        if wrong:
            raise errors.UsageError(message)


def indexed(given: Choices) -> tuple[str, Callable[[], Iterable[Document]]]:
    """The text to index: what changes when it does, and its documents."""
    if given.documents is not None:
        return table_documents.documents_of(
            given.documents, given.id, given.text, given.delimiter
        )
    from infoword_tf.data import corpora

    corpus = corpora.open_corpus(given.corpus)
    return corpus.fingerprint, corpus.every or (
        lambda: itertools.chain(corpus.train(), corpus.heldout())
    )


def prepare(
    given: Choices, chosen: Mapping[str, Any]
) -> Callable[[Any], tuple[Index, retrieval.Encoder]]:
    """Looks at all choices; what it returns opens the index, or makes it.

    Complaints come here, before TensorFlow, which takes seconds.

    Returns:
        a function of the loaded model, or of None: it is loaded. It gives the
        index and what embeds queries.

    Raises:
        errors.UsageError, FileNotFoundError, ValueError: something does not
            fit; the function may raise them as well.
    """
    commands.require(vars(given), model='an exported model, DIR/1')
    table, own = given.documents, given.index
    name = table or given.corpus
    named = table is not None or 'corpus' in chosen
    refuse({
        'give --documents or --corpus': table and 'corpus' in chosen,
        f'--documents={table} is no file; name a data set of TFDS with '
        '--corpus': table and table.startswith('tfds:'),
        '--id, --text and --delimiter are for --documents; leave them out':
            not table and {'id', 'text', 'delimiter'} & set(chosen),
        '--update wants --index, and --documents or --corpus to add to it':
            given.update and not (named and own),
        "--index needs FAISS: pip install 'infoword_tf[search]'":
            own and not has_faiss(),
    })  # fmt: skip
    path = pathlib.Path(given.model)
    config, _ = read_exported(path)
    index = Index(pathlib.Path(own or path.parent / 'search'))
    there = index.key()
    key, documents = {'model': digest(path)}, None
    if named or not own:
        state, documents = indexed(given)
        key |= {'corpus': name, 'fingerprint': state}
    kind = there.get('vectors', given.vectors or 'float32')
    again = there and documents and not given.update
    refuse({
        f'--index={own} holds no index yet: name the text with --corpus or '
        '--documents': not (there or documents),
        f'{index.folder} holds vectors of the kind {kind}: leave out '
        f'--vectors={given.vectors}, name another folder with --index, or '
        'delete that one': given.vectors not in (None, kind),
        f'--oversample is for --vectors=binary; the index is of {kind}':
            given.oversample is not None and kind != 'binary',
        f'{own} is an index of another model: name that one with --model, or '
        'another folder with --index':
            own and there and there['model'] != key['model'],
        f'{own} was updated: give --update as well, or search it as it is, '
        'without --corpus and --documents': again and there.get('updates'),
        f'{own} is an index of {there.get("corpus")}: give --update to add '
        f'{name}, or name another folder with --index':
            own and again and there['corpus'] != name,
    })  # fmt: skip

    def opened(model: Any) -> tuple[Index, retrieval.Encoder]:
        embed, similarity = retrieval.exported(path, BATCH_SIZE, model=model)
        if given.dims is not None:
            retrieval.check_dims(given.dims, embed(['']).shape[1])
            index.cut = functools.partial(
                retrieval.first_numbers, dims=given.dims,
                normalize=config.normalize,
            )  # fmt: skip
        if given.update and there:
            index.write(documents(), embed)
        elif documents and not key.items() <= there.items():
            more = {'vectors': kind, 'similarity': similarity}
            index.write(documents(), embed, key | more)
        index.mend()
        return index, embed

    return opened


# --------------------------------------------------------------------- answers


def find(
    query: str,
    index: Index,
    embed: retrieval.Encoder,
    top_k: int,
    words: float = 0.0,
    oversample: int | None = None,
) -> list[tuple[float, Passage]]:
    """The best passages and their scores, see `Index.find`."""
    vector = embed([query], 'query') if words < 1 else None
    return index.find(query, vector, top_k, words, oversample)


def answer(query: str, found: Iterable[tuple[float, Passage]]) -> str:
    """What is printed for a query and what it has found."""
    lines = [f'"{query}"']
    for score, passage in found:
        text = textwrap.shorten(passage.text, 230, placeholder=' ...')
        lines += [f'  {score:.3f}  {passage.source}', f'         {text}']
    return '\n'.join(lines)


@commands.takes(Choices)
def opened(
    given: Choices, chosen: Mapping[str, Any]
) -> Callable[[str], list[tuple[float, Passage]]]:
    """The same search from Python, for many queries one after the other.

        ask = search.opened(model='models/books/1', corpus='pydocs')
        for score, passage in ask('read a csv file'):
            print(score, passage.source, passage.text)

    Returns:
        of a query the best passages and their scores, as of `find`.

    Raises:
        errors.UsageError, FileNotFoundError, ValueError: as of `prepare`.
    """
    index, embed = prepare(given, chosen)(None)
    return functools.partial(
        find, index=index, embed=embed, top_k=given.top_k,
        words=HYBRID if given.hybrid else 0.0, oversample=given.oversample,
    )  # fmt: skip


@commands.takes(Choices)
def run(
    queries: Sequence[str], given: Choices, chosen: Mapping[str, Any]
) -> None:
    """Answers queries, those of standard input where there are none.

    An update alone asks nothing of standard input.
    """
    ask = opened(**chosen)
    if given.update and not queries:
        print(f'{given.index}: {len(ask.keywords["index"]):,} passages')
        return
    for query in queries or map(str.strip, sys.stdin):
        if query.strip():
            print(answer(query, ask(query)), flush=True)
        else:
            print('an empty query has no answer', flush=True)


if __name__ == '__main__':
    stopped = 'what was encoded is kept, and the same command goes on'
    commands.start(run, 'queries', stopped)
