"""Searches text by the meaning of a question, with an exported model.

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
import hashlib
import pathlib
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from export import index as indexes
from export.index import Index, Passage, passages
from infoword_tf import commands
from infoword_tf.choices import flag
from infoword_tf.config import read_exported
from infoword_tf.data import tables
from infoword_tf.data.documents import Document, split_sentences
from infoword_tf.evaluation import ranking
from infoword_tf.evaluation.quantized import KINDS
from tasks import retrieval
from tasks.vectors import digest

BATCH_SIZE = 64  # passages embedded at once, of like length
HYBRID = 0.5  # share of words in --hybrid


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    model: str | None = flag(None, 'An exported model, DIR/1.')
    corpus: str = flag(
        'pydocs', 'What to search: pydocs, text:GLOB or '
        'tfds:NAME[/CONFIG][:FEATURE]; all of it.')
    documents: str | None = flag(
        None, 'A table to search instead, a row a document: .jsonl, .csv, '
        '.tsv (also as .gz or .zst) or .parquet.')
    id: str | None = flag(
        None, 'The column of --documents that names them, each otherwise; by '
        'default a document is called FILE:LINE.')
    text: str = flag(
        'text', 'The columns of --documents that are searched: one, or '
        'several with commas between.')
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
        'for each answer.', at_least=1, shown=indexes.OVERSAMPLE)
    top_k: int = flag(5, 'Answers to a query.', at_least=1)
    hybrid: bool = flag(
        False, 'Search by words (BM25) as well, and add both scores.')
    dims: int | None = flag(
        None, 'Compare the first so many numbers of vectors alone.',
        at_least=1)


# ------------------------------------------------------------------------ text


class Text(NamedTuple):
    """What is indexed.

    Attributes:
        name: of the corpus or the table.
        fingerprint: changes when it does.
        documents: begins a new pass over it.
    """

    name: str
    fingerprint: str
    documents: Callable[[], Iterable[Any]]


def table(name: str, id: str | None, text: str) -> Text:
    """Rows of a table as documents.

    Args:
        name: of its file.
        id: the column that names them; None: they are called FILE:LINE.
        text: columns that are joined by a space, with commas between.

    Raises:
        FileNotFoundError, ValueError: there is no such file, or column; when
            it is read, a row without a name, or with that of another one.
    """
    if name.startswith('tfds:'):
        raise commands.UsageError(
            f'--documents={name} is no file; name a data set of TFDS with '
            '--corpus'
        )
    wanted = text.split(',')

    def columns(opened: tables.Table) -> tuple[int | None, list[int]]:
        named = None if id is None else tables.column_of(opened, id)
        return named, [tables.column_of(opened, column) for column in wanted]

    columns(tables.open_table(name))

    def documents() -> Iterator[Document]:
        opened = tables.open_table(name)
        named, texts = columns(opened)
        seen: dict[str, int] = {}
        for line, cells in opened.rows:
            source = f'{name}:{line}'
            if named is not None:
                source = cells[named] or ''
                if not source.strip():
                    raise ValueError(
                        f'{name}, line {line}: the column {id!r}, which names '
                        'documents, is empty'
                    )
                first = seen.setdefault(source, line)
                if first != line:
                    raise ValueError(
                        f'{name}, line {line}: the {id} {source!r} is that of '
                        f'line {first} too'
                    )
            joined = ' '.join(cells[i] for i in texts if cells[i])
            yield Document(tuple(split_sentences(joined)), source)

    path = pathlib.Path(name).expanduser()
    stat = path.stat()
    of = (str(path.resolve()), stat.st_size, stat.st_mtime_ns, id, text)
    fingerprint = hashlib.blake2b(repr(of).encode(), digest_size=16)
    return Text(name, fingerprint.hexdigest(), documents)


def corpus(name: str) -> Text:
    """All documents of a corpus; errors as of `corpora.open_corpus`."""
    from infoword_tf.data import corpora

    opened = corpora.open_corpus(name)

    def documents() -> Iterator[Document]:
        if opened.every is not None:  # nothing needs to be held out
            yield from opened.every()
        else:
            yield from opened.train()
            yield from opened.heldout()

    return Text(name, opened.fingerprint, documents)


# ----------------------------------------------------------------------- index


def check(
    folder: pathlib.Path,
    key: Mapping[str, str],
    vectors: str | None,
    own: bool,
) -> dict[str, Any] | None:
    """What the index of a folder says of itself, if it is of use here.

    Args:
        folder: perhaps without an index.
        key: what is wanted, or less.
        vectors: the kind that is wanted; None: any.
        own: whether it is that of --index, which is never made of something
            else; another one may be.

    Returns:
        None if there is none, or none to keep.

    Raises:
        commands.UsageError: it is of another kind, or is the user's own and
            of something else.
    """
    found = indexes.read_key(folder)
    if found is None:
        return None
    if not own and found.get('format') != indexes.FORMAT:
        return None
    indexes.check_format(folder, found)
    if vectors is not None and found['vectors'] != vectors:
        raise commands.UsageError(
            f'{folder} holds vectors of the kind {found["vectors"]}: leave '
            f'out --vectors={vectors}, name another folder with --index, or '
            'delete that one'
        )
    if own and 'model' in key and found.get('model') != key['model']:
        raise commands.UsageError(
            f'{folder} is an index of another model: name that one with '
            '--model, or another folder with --index'
        )
    if 'corpus' in key and found.get('updates'):
        raise commands.UsageError(
            f'{folder} was updated: give --update as well, or search it as it '
            'is, without --corpus and --documents'
        )
    if own and 'corpus' in key and found.get('corpus') != key['corpus']:
        raise commands.UsageError(
            f'{folder} is an index of {found.get("corpus")}: give --update to '
            f'add {key["corpus"]}, or name another folder with --index'
        )
    return found


def open_index(
    folder: pathlib.Path,
    key: Mapping[str, str],
    documents: Callable[[], Iterable[Any]],
    embed: retrieval.Encoder,
    similarity: str = 'cosine',
    vectors: str | None = None,
    own: bool = False,
) -> Index:
    """Opens the index of a text, which is made anew if its key differs.

    Args:
        folder: of the index.
        key: what it depends on.
        documents: begins a new pass over the text.
        embed: as of `retrieval.exported`.
        similarity: likewise.
        vectors, own: as of `check`.

    Raises:
        commands.UsageError: there is no text, or as of `check`.
    """
    found = check(folder, key, vectors, own)
    if found and {name: found.get(name) for name in key} == dict(key):
        return Index(folder, found)
    kind = vectors or (found['vectors'] if found else 'float32')
    key = {**key, 'vectors': kind, 'similarity': similarity}
    return indexes.make(folder, key, passages(documents()), embed)


# --------------------------------------------------------------------- answers


def find(
    query: str,
    index: Index,
    embed: retrieval.Encoder,
    top_k: int,
    words: float = 0.0,
    oversample: int = indexes.OVERSAMPLE,
) -> list[tuple[float, Passage]]:
    """The best passages and their scores.

    Args:
        query: is embedded.
        index: is searched.
        embed: as of `retrieval.exported`.
        top_k: how many, at most.
        words: the share of BM25 in the score. 0: vectors search alone, and
            scores are theirs; 1: words alone, likewise. Between them, scores
            are sums of standardised ones, see `ranking.merge`; at HYBRID each
            has the weight 1.
        oversample: as of `Index.search`.
    """
    depth = ranking.MERGED if 0 < words < 1 else top_k
    rankings = []
    if words < 1:
        vectors = embed([query], 'query')
        rankings.append(index.search(vectors, depth, oversample))
    if words > 0:
        rankings.append(index.words.search([query], depth))
    found = rankings[0]
    if len(rankings) > 1:
        weights = [2 * (1 - words), 2 * words]
        found = ranking.merge(rankings, top_k, weights)
    return [
        (float(score), index.passage(int(number)))
        for score, number in zip(found[0][0], found[1][0], strict=True)
        if number >= 0
    ]


def answer(query: str, found: Iterable[tuple[float, Passage]]) -> str:
    """What is printed for a query and what it has found."""
    lines = [f'"{query}"']
    for score, passage in found:
        lines.append(f'  {score:.3f}  {passage.source}')
        lines.append(
            textwrap.indent(
                textwrap.shorten(passage.text, 230, placeholder=' ...'),
                '         ',
            )
        )
    return '\n'.join(lines)


def indexed(given: Choices, chosen: Mapping[str, Any]) -> Text | None:
    """The text that is to be indexed; None: --index is searched as it is.

    Raises:
        commands.UsageError: choices do not go together.
    """
    if given.documents is not None and 'corpus' in chosen:
        raise commands.UsageError('give --documents or --corpus')
    for name in ('id', 'text'):
        if name in chosen and given.documents is None:
            raise commands.UsageError(
                f'--{name} is for --documents; leave it out'
            )
    named = given.documents is not None or 'corpus' in chosen
    if given.update and not (named and given.index):
        raise commands.UsageError(
            '--update wants --index, and --documents or --corpus to add to it'
        )
    if given.index is not None and not named:
        return None
    if given.documents is not None:
        return table(given.documents, given.id, given.text)
    return corpus(given.corpus)


def prepare(
    given: Choices, chosen: Mapping[str, Any]
) -> Callable[[Any], tuple[Index, retrieval.Encoder]]:
    """Looks at all choices; what it returns opens the index, or makes it.

    Complaints come here, before TensorFlow, which takes seconds.

    Returns:
        a function of the loaded model, or of None: it is loaded. It gives the
        index and what embeds queries.

    Raises:
        commands.UsageError, FileNotFoundError, ValueError: something does not
            fit; the function may raise them as well.
    """
    commands.require(vars(given), model='an exported model, DIR/1')
    path = pathlib.Path(given.model)
    own = given.index is not None
    folder = pathlib.Path(given.index) if own else path.parent / 'search'
    config, _ = read_exported(path)
    text = indexed(given, chosen)
    key: dict[str, str] = {'model': digest(path)}
    if text is not None:
        key |= {
            'corpus': text.name,
            'fingerprint': text.fingerprint,
            'passage_words': str(indexes.PASSAGE_WORDS),
        }
    wanted = {'model': key['model']} if given.update else key
    found = check(folder, wanted, given.vectors, own)
    if found is None and text is None:
        raise commands.UsageError(
            f'--index={folder} holds no index yet: name the text with '
            '--corpus or --documents'
        )
    kind = given.vectors or (found['vectors'] if found else 'float32')
    if given.oversample is not None and kind != 'binary':
        raise commands.UsageError(
            f'--oversample is for --vectors=binary; the index is of {kind}'
        )

    def opened(model: Any) -> tuple[Index, retrieval.Encoder]:
        embed, similarity = retrieval.exported(path, BATCH_SIZE, model=model)
        if text is None or (given.update and found is not None):
            index = Index.open(folder, key['model'])
            if given.update:
                index = index.update(text.documents, embed)
        else:
            index = open_index(
                folder, key, text.documents, embed, similarity, given.vectors,
                own,
            )  # fmt: skip
        if given.dims is not None:
            index.cut(given.dims, config.normalize)
        return index, embed

    return opened


def _opened(
    given: Choices, chosen: Mapping[str, Any]
) -> tuple[Index, Callable[[str], list[tuple[float, Passage]]]]:
    """The index, and what answers a query."""
    index, embed = prepare(given, chosen)(None)
    oversample = given.oversample or indexes.OVERSAMPLE
    words = HYBRID if given.hybrid else 0.0

    def ask(query: str) -> list[tuple[float, Passage]]:
        return find(query, index, embed, given.top_k, words, oversample)

    return index, ask


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
        commands.UsageError, FileNotFoundError, ValueError: as of `prepare`.
    """
    return _opened(given, chosen)[1]


@commands.takes(Choices)
def run(
    queries: Sequence[str], given: Choices, chosen: Mapping[str, Any]
) -> None:
    """Answers queries, those of standard input where there are none.

    An update alone asks nothing of standard input.
    """
    index, ask = _opened(given, chosen)
    if given.update and not queries:
        print(f'{given.index}: {len(index):,} passages')
        return
    for query in queries or map(str.strip, sys.stdin):
        if not query.strip():
            print('an empty query has no answer', flush=True)
            continue
        print(answer(query, ask(query)), flush=True)


if __name__ == '__main__':
    stopped = 'what was encoded is kept, and the same command goes on'
    commands.start(run, 'queries', stopped)
