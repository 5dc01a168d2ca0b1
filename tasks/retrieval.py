r"""Retrieval: finds documents by their vectors, compared with four baselines.

    python -m tasks.retrieval --init=runs/dim --corpus=pydocs \
        --workdir=runs/dim_pydocs
    python -m tasks.retrieval --init=runs/dim --data_dir=beir/scifact \
        --workdir=runs/dim_scifact
    python -m tasks.retrieval --model=exported/1 --data_dir=beir/scifact \
        --workdir=runs/exported_scifact
    python -m tasks.retrieval --run=others/run.trec --data_dir=beir/scifact \
        --workdir=runs/others_scifact
    python -m tasks.retrieval --init=runs/two --data_dir=beir/scifact \
        --queries=scifact_de.jsonl --workdir=runs/two_scifact_de
    python -m tasks.retrieval --init=runs/dim --data_dir=beir/scifact \
        --tune=train --workdir=runs/dim_scifact
    python -m tasks.retrieval --init=runs/late --data_dir=beir/scifact \
        --first=bm25 --rerank=runs/cross --costs --workdir=runs/late_scifact

With --corpus the first sentence of each held-out document is a query, and the
rest of the document is to be found among the rests of all. --data_dir is a BEIR
folder (Thakur et al. 2021), and --queries replaces its queries, by translations
say. Search is exact; measures are trec_eval's. The last line of the table is
`export.search --hybrid`: the results of the model and of BM25, merged. --tune
chooses the share of words on other queries than those that are measured.

Documents are read as a stream, with the vectors of one block in memory. With
--vectors all vectors stay in that folder: a stopped command goes on, and other
queries need not encode the corpus again.

The critic of the model compares: vectors, vectors of tokens (`late`) or weights
of the vocabulary (`lexical`) of all documents. With --first it compares those
alone that BM25 or another model put first, at most --rerank_top of a query; a
`cross` model, which encodes pairs, needs that. --rerank orders the best of the
model anew by another one. All models may be of any critic.

WORKDIR/run.trec has the results of the last stage in trec_eval's format; --run
measures such a file of any system.

The last line of the output is one JSON object, also in WORKDIR/metrics.json.
"""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from infoword_tf import commands, errors, files, lazy, progress
from infoword_tf.choices import AUTO, DeviceChoices, again, flag
from infoword_tf.config import FILE, ROLES, WEIGHTS, Config, read_exported
from infoword_tf.critics import CRITICS, Critic
from infoword_tf.critics.texts import Texts, Tokens, nbytes, restored
from infoword_tf.data import tables
from infoword_tf.evaluation import bm25, ranking
from infoword_tf.evaluation.retrieval import (
    BLOCK,
    DEPTH,
    Rankings,
    RetrievalTask,
    beir_task,
    candidates,
    measure,
    repeated,
    tune,
)
from infoword_tf.evaluation.stages import Costs, Rate, by_pairs
from infoword_tf.evaluation.trec import read_run, write_run
from infoword_tf.evaluation.vectors import (
    TokenFile,
    VectorFile,
    digest,
    file_of,
)
from infoword_tf.folders import workdir_of
from infoword_tf.text import strings

if TYPE_CHECKING:  # it imports TensorFlow
    from infoword_tf.inference.loaded import Loaded

RUN = 'run.trec'  # in the workdir
BM25 = 'bm25'
VECTORS = 'cosine'  # the critic whose texts are vectors
RERANKED = 100  # documents of a query that a later stage compares


@dataclasses.dataclass(frozen=True)
class VectorChoices:
    """Choices of an evaluation of the vectors of a workdir or an export."""

    init: str | None = flag(
        None, 'The workdir of a finished run, or a converted one.', model=True)
    model: str | None = flag(None, 'An export instead, DIR/1.')
    dims: int | None = flag(
        None, 'How many of the first numbers of a vector are used; by default '
        'all.', at_least=1)
    workdir: str | None = flag(None, 'Where metrics.json goes.')


@dataclasses.dataclass(frozen=True)
class RetrievalChoices(VectorChoices):
    """Choices of the command."""

    run: str | None = flag(
        None, "A file of results in trec_eval's format, measured instead of a "
        'model: query-id Q0 doc-id rank score tag.')
    corpus: str | None = flag(
        None, 'A text, as of infoword_tf.train: pydocs, text:GLOB, '
        'jsonl:GLOB[:FIELD] ...: first sentences find the rest of held-out '
        'documents.')
    heldout: str | None = flag(
        None, 'GLOB of held-out files, or a split of tfds:; by default what '
        'the corpus itself holds out.')
    data_dir: str | None = flag(
        None, 'A BEIR folder: corpus.jsonl, queries.jsonl, qrels/.')
    split: str = flag(
        'test', 'The split of --data_dir: the name of a file of qrels/, '
        'without .tsv.')
    queries: str | None = flag(
        None, 'A file like queries.jsonl of --data_dir, with the same ids and '
        'other texts: translations, say.')
    critic: str | None = flag(
        None, 'What compares a query with a document; by default what the '
        'model was trained with.', choices=tuple(CRITICS))
    first: str | None = flag(
        None, 'What finds the documents that the model compares: bm25, a '
        'workdir or an export; by default all are compared.')
    rerank: str | None = flag(
        None, 'A workdir or an export that orders the best documents of the '
        'model anew.')
    rerank_top: int | None = flag(
        None, 'How many documents of a query go from stage to stage.',
        at_least=1, shown=RERANKED)
    costs: bool = flag(
        False, 'Measure time and bytes, too: milliseconds of a single query, '
        'bytes of a document, seconds to encode 1,000 documents.')
    baselines: bool = flag(
        True, 'Measure the untrained encoder and means of embeddings of '
        '--init, too.')
    tune: str | None = flag(
        None, 'Choose the share of words in the merged search on the queries '
        'of another split of --data_dir, or on this number of queries, evenly '
        'spaced, which are then not measured.')
    seed: int | None = flag(
        None, 'Random seed of the untrained baselines; by default the '
        "run's own.", at_least=0)
    batch_size: int = flag(32, 'Texts encoded at a time.', at_least=1)
    vectors: str | None = flag(
        None, 'A folder where vectors of documents stay, from which the same '
        'command goes on, and others begin.')
    precision: str = again(
        DeviceChoices, 'precision', 'float32',
        help=f'Precision of --init; {AUTO}')


# ----------------------------------------------------------------------- tasks


def corpus_task(name: str, heldout: str | None = None) -> RetrievalTask:
    """Builds the search for held-out documents by first sentences.

    Documents of one sentence do not count. Documents with the same rest are
    relevant to each other's queries, because their vectors cannot differ.

    Raises:
        ValueError: no such corpus, or no document of two sentences.
    """
    from infoword_tf.data import corpora

    corpus = corpora.open_corpus(name, heldout)

    def sentences() -> Iterator[tuple[str, ...]]:
        every = (document.sentences for document in corpus.heldout())
        return (document for document in every if len(document) > 1)

    def documents() -> Iterator[tuple[int, str]]:
        for number, (_, *rest) in enumerate(sentences()):
            yield number, tables.valid(' '.join(rest))

    size, groups = repeated(text for _, text in documents())
    if not size:
        raise errors.InputError(
            'corpus_without_queries',
            f'--corpus={name}: no held-out document has two sentences; give '
            'more text, or name held-out files with --heldout=GLOB',
        )
    relevance = {number: {number: 1} for number in range(size)}
    for group in groups:
        relevance |= dict.fromkeys(group, dict.fromkeys(group, 1))
    # All ids are equally long, because ties are ordered by id, as strings.
    ids = [f'{number:0{len(str(size - 1))}}' for number in range(size)]
    return RetrievalTask(
        name,
        size,
        documents,
        [tables.valid(first) for first, *_ in sentences()],
        [relevance[number] for number in range(size)],
        [-1] * size,
        ids,
        ids,
        fingerprint=corpus.fingerprint,
        copies={first: others for first, *others in groups},
    )


# -------------------------------------------------------------------- encoders

# n texts and their role (config.ROLES; None: the default) -> texts of a critic
Encoder = Callable[[list[str], str | None], Texts]


def check_source(choices: VectorChoices, *of_init: str) -> pathlib.Path:
    """Checks --init, --model and --workdir; returns the last as a path.

    Choices named by `of_init` need --init.

    Raises:
        errors.UsageError: neither or both of --init and --model, a choice of
            `of_init` with an export, or --workdir holds a model.
    """
    if bool(choices.init) == bool(choices.model):
        raise errors.UsageError('init_or_model', 'give --init or --model')
    for name in of_init:
        if choices.model and getattr(choices, name) is not None:
            raise errors.UsageError(
                'flag_of_init',
                f'--{name} goes with --init: the pooling of an export is fixed',
            )
    return commands.result_folder(choices.workdir)


def vectors_of(
    init: str | None,
    model: str | None,
    dims: int | None = None,
    pooling: str | None = None,
    layer: int | None = None,
) -> tuple[Encoder, str]:
    """Returns an encoder of texts, and the similarity of vectors.

    Those of another critic than the cosine are pooled states, not trained as
    vectors: a line says so.

    Args:
        init: a workdir; None with `model`.
        model: the folder of an export's version.
        dims: how many of the first numbers of a vector are used; None: all.
        pooling: as in `Loaded.encode`; of a workdir.
        layer: the layer that is pooled, 0 the embeddings, without dense layers
            after pooling; None: as config.json says. Of a workdir.

    Raises:
        FileNotFoundError: no such model.
        ValueError: the model cannot be read, or lacks so many numbers or
            layers.
    """
    if model:
        tell_critic(model, read_exported(pathlib.Path(model))[0])
        return exported(pathlib.Path(model), 64, dims)
    import infoword_tf

    loaded = infoword_tf.load(init)
    tell_critic(init, loaded.config)
    if layer is not None:
        depth = loaded.encoder.depth
        if layer > depth:
            raise errors.InputError(
                'no_such_layer',
                f'--layer={layer}: {init} has layers 0 (its embeddings) to '
                f'{depth}',
            )
        pooling = pooling or loaded.config.pooling
    if dims is not None:
        check_dims(dims, loaded.vector_width(pooling))
    encode = encoder_of(loaded, dims=dims, pooling=pooling, layers=layer)
    return encode, loaded.config.similarity


def tell_critic(path: str, config: Config) -> None:
    """Prints that pooled states of another critic were not trained."""
    if not CRITICS[config.critic].has_vector:
        print(
            f'{path} compares texts by the critic {config.critic}; its pooled '
            'states, which are measured here, were not trained as vectors of '
            'texts (tasks.retrieval measures the critic)',
            flush=True,
        )


def encoder_of(
    loaded: 'Loaded', critic: str = VECTORS, **settings: Any
) -> Encoder:
    """Makes a workdir an `Encoder`; args as of `Critic.encode`."""

    def encode(texts: list[str], role: str | None) -> Texts:
        return CRITICS[critic].encode(loaded, texts, role, **settings)

    return encode


def check_critic_dims(critic: str) -> None:
    """Raises ValueError if a critic compares no vectors."""
    if not CRITICS[critic].has_dims:
        raise errors.InputError(
            'dims_without_vectors',
            f'--dims is of vectors, and the critic {critic} compares none',
        )


def check_dims(dims: int, width: int) -> None:
    """Raises ValueError if vectors have fewer numbers than `dims`."""
    if dims > width:
        raise errors.InputError(
            'dims_over_width', f'--dims={dims}: vectors have {width} numbers'
        )


def first_numbers(vectors: Texts, dims: int, normalize: bool) -> Texts:
    """Truncates [n, D] to [n, dims], and restores length 1 if `normalize`.

    Vectors of tokens get back the length that they have, 1 or, of a query
    whose tokens are averaged, less.
    """
    if isinstance(vectors, Tokens):
        lengths = np.linalg.norm(vectors.vectors, axis=1, keepdims=True)
        cut = first_numbers(vectors.vectors, dims, True)
        return vectors.replaced(cut * lengths)
    vectors = np.ascontiguousarray(vectors[:, :dims])
    if normalize:
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.maximum(norms, 1e-12)
    return vectors


def signature_of(
    folder: pathlib.Path, model: Any, name: str
) -> Callable[..., Mapping[str, Any]]:
    """Returns a signature of an export, or raises ValueError."""
    if name not in model.signatures:
        raise errors.InputError(
            'export_without_embed',
            f'{folder} has no signature `{name}`; name an export of a model '
            'that has it',
        )
    return model.signatures[name]


def batched(
    size: int, *sides: Sequence[str]
) -> Iterator[tuple[list[int], list[Any]]]:
    """Yields batches of texts, or of pairs of texts, of like length.

    Yields:
        Places, and a tensor of each side.
    """
    tf = lazy.tensorflow()
    lengths = [sum(map(len, both)) for both in zip(*sides, strict=True)]
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for begin in range(0, len(order), size):
        places = order[begin : begin + size]
        yield places, [tf.constant([x[i] for i in places]) for x in sides]


def exported(
    folder: pathlib.Path,
    batch_size: int,
    dims: int | None = None,
    model: Any = None,
    critic: str = VECTORS,
) -> tuple[Encoder, str]:
    """Returns an encoder that calls an export, and the similarity.

    Queries and passages go through the signatures that the critic has for
    their role. `model` is the export, if it is loaded already.

    Raises:
        FileNotFoundError: the folder holds no export.
        ValueError: its config cannot be read, it has no signature of the
            critic, or its vectors are shorter than `dims`.
    """
    config, _ = read_exported(folder)  # before TensorFlow is imported
    if model is None:
        model = lazy.tensorflow().saved_model.load(str(folder))
    kind: type[Critic] = CRITICS[critic]
    signatures = {None: signature_of(folder, model, kind.signature)}
    for role in ROLES:
        name = kind.signature_of(config, role, folder)
        signatures[role] = signature_of(folder, model, name)
    if dims is not None:
        check_critic_dims(critic)
        outputs = signatures[None].structured_outputs
        check_dims(dims, outputs['embeddings'].shape[-1])

    def embed(texts: list[str], role: str | None = 'passage') -> Texts:
        # `valid`, since lone surrogates of a command line or of JSON are no
        # UTF-8. Sorted by length, since that saves padding.
        several, place = strings.distinct(map(tables.valid, texts))
        order, encoded = [], []
        for places, tensors in batched(batch_size, several):
            outputs = signatures[role](texts=tensors[0])
            encoded.append({k: v.numpy() for k, v in outputs.items()})
            order += places
        vectors = kind.joined(encoded, config, role)[np.argsort(order)[place]]
        if dims is None:
            return vectors
        return first_numbers(vectors, dims, config.normalize)

    return embed, config.similarity


def exported_rate(folder: pathlib.Path, batch_size: int) -> Rate:
    """Returns a function that rates pairs; ValueError: no `score_pairs`."""
    model = lazy.tensorflow().saved_model.load(str(folder))
    signature = signature_of(folder, model, 'score_pairs')

    def rate(queries: list[str], passages: list[str]) -> np.ndarray:
        scores = np.empty(len(queries), np.float32)
        sides = ([*map(tables.valid, side)] for side in (queries, passages))
        for places, (texts, pairs) in batched(batch_size, *sides):
            scores[places] = signature(texts=texts, pairs=pairs)['score']
        return scores

    return rate


def exported_scores(
    folder: pathlib.Path, batch_size: int
) -> Callable[[str, list[str]], np.ndarray]:
    """Returns scores of texts for a query, by an export of any critic."""
    config, _ = read_exported(folder)
    if CRITICS[config.critic].of_pairs:
        rate = exported_rate(folder, batch_size)
        return lambda query, texts: rate([query] * len(texts), texts)
    encode, similarity = exported(folder, batch_size, critic=config.critic)

    def scores(query: str, texts: list[str]) -> np.ndarray:
        a, b = encode([query], 'query'), encode(texts, 'passage')
        a, b = (ranking.prepared(x, similarity) for x in (a, b))
        return ranking.comparer(b)(a)[0]

    return scores


def mean_of_embeddings(loaded: 'Loaded') -> Encoder:
    """Returns an encoder that sums the input embeddings of a text's tokens.

    The sum stands for the mean, since vectors are compared by cosine.
    """
    from scipy import sparse

    table = np.asarray(loaded.encoder.embedding_table, np.float32)

    def embed(texts: list[str], role: str = 'passage') -> np.ndarray:
        del role
        tokens = loaded.tokenizer.tokenize(texts)
        ids = np.asarray(tokens.flat_values)
        splits = np.asarray(tokens.row_splits)
        counts = sparse.csr_array(
            (np.ones(len(ids), np.float32), ids, splits),
            shape=(len(texts), len(table)),
        )
        return counts @ table

    return embed


# -------------------------------------------------------------------- searches


def by_vectors(
    task: RetrievalTask,
    encode: Encoder,
    similarity: str,
    label: str,
    store: VectorFile | TokenFile | None = None,
    chosen: np.ndarray | None = None,
    costs: Costs | None = None,
) -> Rankings:
    """Searches by vectors or weights; documents are encoded in blocks.

    Args:
        task, encode: queries and documents, and the encoder of both.
        similarity: `cosine` or `dot`.
        label: of the progress bar.
        store: has the first documents, and gets others.
        chosen: candidates, as of `ranking.rescore`, which alone are compared,
            and encoded where nothing is stored; None: all.
        costs: gets what this search takes.
    """
    queries, costs = encode(task.queries, 'query'), costs or Costs(0)
    costs.query(lambda query: encode([query], 'query'), task.queries)
    named = set() if chosen is None else set(chosen.ravel().tolist())
    with progress.bar(total=task.size, desc=label, unit=' documents') as bar:

        def blocks() -> Iterator[tuple[np.ndarray, Texts]]:
            done = 0
            for numbers, texts in task.blocks():
                end = done + len(numbers)
                if store is not None and end <= store.rows:
                    encoded = store.read(done, end)
                    encoded = restored(encoded, queries)
                else:
                    if chosen is not None and store is None:
                        is_read = [
                            not named.isdisjoint((n, *task.copies.get(n, ())))
                            for n in numbers.tolist()
                        ]
                        numbers = numbers[is_read]
                        texts = [*itertools.compress(texts, is_read)]
                    encoded = costs.encode(encode, texts) if texts else None
                    if store is not None:
                        store.append(encoded)
                done = end
                if texts:
                    costs.count(encoded.shape[0], nbytes(encoded))
                    yield task.with_copies(numbers, encoded)
                bar.update(len(numbers))

        if chosen is None:
            return ranking.search(
                queries, blocks(), DEPTH + 1, similarity, costs.seconds
            )
        return ranking.rescore(
            queries, blocks(), chosen, similarity, costs.seconds
        )


def open_vectors(
    folder: pathlib.Path, name: str, task: RetrievalTask, **key: Any
) -> VectorFile | TokenFile:
    """Opens or creates the file of a task's documents, encoded for a critic.

    `name` is the encoder's; `key` all else that what it makes depends on, with
    `critic` if texts are no vectors.
    """
    key |= {
        'documents': task.fingerprint,
        'size': task.distinct,
        'block': BLOCK,
    }
    text = json.dumps(key, sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    return file_of(folder / f'{name}-{digest}.npy', key.get('critic', VECTORS))


def by_words(task: RetrievalTask, costs: Costs | None = None) -> Rankings:
    """Searches with BM25, see `bm25.Bm25`; `costs` of single queries."""
    numbers = np.empty(task.size, np.int64)

    def texts() -> Iterator[str]:
        for place, (number, text) in enumerate(task.documents()):
            numbers[place] = number
            yield text

    index = bm25.Bm25(texts())
    if costs is not None:
        costs.count(task.size, index.nbytes)
        costs.query(
            lambda query: index.search([query], DEPTH + 1, numbers),
            task.queries,
        )
    return index.search(task.queries, DEPTH + 1, numbers)


def for_tuning(
    choices: RetrievalChoices, task: RetrievalTask
) -> tuple[RetrievalTask, RetrievalTask]:
    """Returns the task to measure, and the task that chooses a share of words.

    Raises:
        FileNotFoundError, ValueError: no such split, or no query is left for
            either.
    """
    size = len(task.queries)
    if choices.tune.isdecimal():
        count = int(choices.tune)
        if not 0 < count < size:
            raise errors.InputError(
                'tune_number',
                f'--tune={count}: {task.name} has {size:,} queries, some to '
                'choose by and others to measure; name another number',
            )
        places = [number * size // count for number in range(count)]
        rest = sorted({*range(size)} - {*places})
        return task.part(rest), task.part(places)
    other = read_split(choices, choices.tune)
    measured = {*task.query_ids}
    names = enumerate(other.query_ids)
    places = [place for place, name in names if name not in measured]
    if not places:
        raise errors.InputError(
            'tune_on_measured',
            f'--tune={choices.tune}: all its queries are measured; name '
            'another split, or how many queries choose, such as --tune=50',
        )
    return task, other.part(places)


# ----------------------------------------------------------------------- table


LABELS = {
    'first_stage': 'the first stage',
    'model': 'this model',
    'reranked': 'this model, reranked',
    'untrained': 'untrained encoder',
    'untrained_embeddings': 'mean of untrained embeddings',
    'embeddings': "mean of this model's embeddings",
    'bm25': 'BM25',
    'hybrid': 'this model and BM25 merged',
    'reranked_hybrid': 'reranked and BM25 merged',
    'tuned': 'merged by the share of --tune',
    'run': 'this file',
}
NOTES = {  # lines below the table's first
    'absent_judgements': '{:,} judgements name documents that are missing: '
    'they count as not found',
    'odd_id': 'run.trec is not written: the id {!r} is empty or has a blank, '
    'which its format cannot hold',
    'tune': 'a share of words of {hybrid_share:g} is the best on '
    '{tune_queries:,} other queries: export.search '
    '--hybrid_share={hybrid_share:g}',
    'unjudged_queries': '{:,} queries of the file are not judged: they do not '
    'count',
    'queries_without_results': '{:,} queries have no result in the file: they '
    'count as 0 (as with trec_eval -c)',
    'unknown_documents': '{:,} documents of the file are not of the corpus: '
    'they keep their rank',
}


def table(
    task: RetrievalTask,
    rows: Mapping[str, Mapping[str, float]],
    notes: Sequence[str] = (),
) -> str:
    """Formats a table with a line for each search; `notes` are more lines."""
    width = max(map(len, LABELS.values()))
    lines = [
        f'{task.name}: {len(task.queries):,} queries, '
        f'{task.size:,} documents',
        *notes,
        ' ' * width + ''.join(f'{name:>12}' for name in ranking.MEASURES),
    ]
    for name, measures in rows.items():
        figures = ''.join(f'{measures[m]:>12.4f}' for m in ranking.MEASURES)
        lines.append(f'{LABELS[name]:<{width}}{figures}')
    return '\n'.join(lines)


# --------------------------------------------------------------------- the run


def check(choices: RetrievalChoices, chosen: Mapping[str, Any]) -> pathlib.Path:
    """Refuses contradicting choices; returns --workdir as a path.

    Raises:
        errors.UsageError: what contradicts, and what to leave out.
    """
    commands.require(vars(choices), workdir='a folder for metrics.json')
    workdir = commands.result_folder(choices.workdir)
    if choices.init is None and choices.model is None and choices.run is None:
        raise errors.UsageError(
            'no_model_named',
            'no model: name a finished run with --init, an exported model '
            'with --model, or a file of results with --run',
        )
    if choices.run is not None:
        commands.refuse(
            chosen,
            ('init', 'model', 'batch_size', 'dims', 'vectors', 'tune',
             'critic', 'first', 'rerank', 'rerank_top', 'costs'),
            '--run names results, and nothing is searched: leave out {}',
        )  # fmt: skip
    if (choices.corpus is None) == (choices.data_dir is None):
        raise errors.UsageError(
            'corpus_or_folder',
            'name either --corpus (pydocs, text:GLOB, tfds:NAME) or --data_dir '
            '(a BEIR folder)',
        )
    for other, names in (('corpus', ['heldout']),
                         ('data_dir', ['split', 'queries']),
                         ('init', ['seed', 'precision'])):
        if getattr(choices, other) is None:
            why = f'{{}} is for --{other}; leave it out'
            commands.refuse(chosen, names, why)
    check_stages(choices.first, choices.rerank, choices.rerank_top)
    splits = choices.data_dir is not None or choices.tune is None
    if not (splits or choices.tune.isdecimal()):
        raise errors.UsageError(
            'tune_without_split',
            f'--tune={choices.tune}: --corpus has no splits; name how many '
            'queries choose, such as --tune=50',
        )
    return workdir


def check_model(folder: pathlib.Path) -> None:
    """Raises FileNotFoundError or ValueError if a folder holds no model."""
    if (folder / 'saved_model.pb').is_file():
        read_exported(folder)
    else:
        Config.read(workdir_of(folder))


def check_stages(
    first: str | None, rerank: str | None, rerank_top: int | None
) -> None:
    """Raises UsageError if a stage is no folder, or --rerank_top has none."""
    for name, path in ('first', first), ('rerank', rerank):
        by_words = name == 'first' and path == BM25
        if path is not None and not (by_words or pathlib.Path(path).is_dir()):
            raise errors.UsageError(
                'stage_of_no_model',
                f'--{name}={path}: there is no such workdir or export',
            )
    if rerank_top is not None and first is None and rerank is None:
        raise errors.UsageError(
            'rerank_top_without_stage',
            '--rerank_top is for --first and --rerank; leave it out',
        )


def read_split(choices: RetrievalChoices, split: str) -> RetrievalTask:
    """Reads a split of --data_dir, with --queries."""
    queries = pathlib.Path(choices.queries) if choices.queries else None
    return beir_task(pathlib.Path(choices.data_dir), split, queries)


@commands.takes(RetrievalChoices)
def run(choices: RetrievalChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Measures the model and the baselines; returns metrics.json."""
    workdir = check(choices, chosen)
    if choices.corpus is not None:
        task = corpus_task(choices.corpus, choices.heldout)
    else:
        task = read_split(choices, choices.split)
    if choices.run is not None:
        ranked, counts = read_run(pathlib.Path(choices.run), task)
        notes = [NOTES[name].format(n) for name, n in counts.items() if n]
        source = {'run_file': choices.run, **counts}
        return finish(workdir, task, {'run': ranked}, source, notes)

    tuning = task.part(())
    if choices.tune is not None:
        task, tuning = for_tuning(choices, task)
    bm25.library()  # complains before the documents are encoded
    with contextlib.ExitStack() as held:
        if choices.vectors is not None:
            held.enter_context(files.locked(pathlib.Path(choices.vectors)))
        results, costs = search_all(choices, task.joined(tuning))
    source = {'weights': choices.model or choices.init, 'dims': choices.dims}
    for name in ('critic', 'first', 'rerank', 'rerank_top'):
        if name in chosen:
            source[name] = chosen[name]
    notes = []
    if tuning.queries:
        results, tuned = with_tuned(results, tuning)
        source |= {'tune': choices.tune, **tuned}
        notes.append(NOTES['tune'].format(**tuned))
    if costs:
        source['costs'] = {name: x.record() for name, x in costs.items()}
        notes += [f'{LABELS[name]}: {x.note()}' for name, x in costs.items()]
    if task.absent:
        notes.append(NOTES['absent_judgements'].format(task.absent))
    last = 'reranked' if choices.rerank else 'model'
    odd = write_run(workdir / RUN, task, results[last])
    if odd is not None:
        notes.append(NOTES['odd_id'].format(odd))
    return finish(workdir, task, results, source, notes)


class Stage(NamedTuple):
    """A model that compares queries with documents.

    Attributes:
        critic: in CRITICS.
        encode, similarity: of critics that encode each text by itself.
        rate: of critics of pairs.
        source: its files, arguments of `digest`.
        key: what else its vectors depend on.
    """

    critic: str
    encode: Encoder | None
    similarity: str
    rate: Rate | None
    source: Sequence[Any] = ()
    key: Mapping[str, Any] = {}


def stage_of_export(choices: RetrievalChoices, folder: pathlib.Path) -> Stage:
    """Opens an export."""
    config, _ = read_exported(folder)
    critic = choices.critic or config.critic
    if CRITICS[critic].of_pairs:
        if choices.dims is not None:
            check_critic_dims(critic)
        rate = exported_rate(folder, choices.batch_size)
        return Stage(critic, None, '', rate)
    encode, similarity = exported(
        folder, choices.batch_size, choices.dims, critic=critic
    )
    key = _key(choices, critic)
    return Stage(critic, encode, similarity, None, [folder], key)


def _key(choices: RetrievalChoices, critic: str) -> dict[str, Any]:
    """Returns the choices that vectors and weights of a critic depend on."""
    key = {'dims': choices.dims, 'batch_size': choices.batch_size}
    return key | ({} if CRITICS[critic].has_vector else {'critic': critic})


def stage_of(
    choices: RetrievalChoices,
    loaded: 'Loaded',
    source: Sequence[Any] = (),
    **key: Any,
) -> Stage:
    """Returns a loaded workdir as a stage."""
    critic, config = choices.critic or loaded.config.critic, loaded.config
    kind = CRITICS[critic]
    if choices.dims is not None:
        check_critic_dims(critic)
    if kind.of_pairs:
        rate = functools.partial(
            loaded.score_pairs, batch_size=choices.batch_size
        )
        return Stage(critic, None, '', rate)
    settings = {'batch_size': choices.batch_size, 'progress': False}
    if choices.dims is not None:
        check_dims(choices.dims, kind.width_in(loaded))
    if kind.has_dims:
        settings['dims'] = choices.dims
    encode = encoder_of(loaded, critic, **settings)
    key = key | _key(choices, critic)
    return Stage(critic, encode, config.similarity, None, source, key)


def search_all(
    choices: RetrievalChoices, task: RetrievalTask
) -> tuple[dict[str, Rankings], dict[str, Costs]]:
    """Searches with all stages and all baselines, by name in LABELS.

    Returns:
        Results, and with --costs what each stage takes.
    """
    import infoword_tf

    results: dict[str, Rankings] = {}
    costs: dict[str, Costs] = {}
    top = choices.rerank_top or RERANKED

    def search(
        name: str, stage: Stage, before: Rankings | None = None
    ) -> Rankings:
        chosen = None if before is None else candidates(task, before, top)
        timed = choices.costs and name in (
            'first_stage', 'model', 'reranked'
        )
        taken = Costs(len(task.queries) if timed else 0)
        if CRITICS[stage.critic].of_pairs:
            if chosen is None:
                raise errors.UsageError(
                    'cross_without_candidates',
                    f'{LABELS[name]} rates pairs, and cannot search all '
                    'documents: give --first=bm25 or another model, or name '
                    'it with --rerank',
                )
            ranked = by_pairs(task, stage.rate, chosen, LABELS[name], taken)
        else:
            store = None
            if stage.source and choices.vectors is not None:
                store = open_vectors(
                    pathlib.Path(choices.vectors),
                    name if name == 'untrained' else 'model', task,
                    weights=digest(*stage.source), **stage.key,
                )  # fmt: skip
            ranked = by_vectors(
                task, stage.encode, stage.similarity, LABELS[name], store,
                chosen, taken,
            )  # fmt: skip
        if timed:
            costs[name] = taken
        return ranked

    def opened(choices: RetrievalChoices, path: str) -> tuple[Any, Stage]:
        folder = pathlib.Path(path)
        if (folder / 'saved_model.pb').is_file():
            return None, stage_of_export(choices, folder)
        from infoword_tf.training import precision

        dtype = choices.precision
        if dtype == 'auto':
            dtype = precision.faster()
        loaded = infoword_tf.load(path, dtype)
        names = FILE, WEIGHTS, loaded.tokenizer.file
        source = folder, [folder / name for name in names]
        return loaded, stage_of(choices, loaded, source, precision=dtype)

    for path in (choices.first, choices.rerank):
        if path not in (None, BM25):
            check_model(pathlib.Path(path))  # before anything is encoded
    words_costs = Costs(len(task.queries) if choices.costs else 0)
    words = before = None
    others = dataclasses.replace(choices, dims=None, critic=None)
    if choices.first == BM25:
        before = words = by_words(task, words_costs)
    elif choices.first is not None:
        _, stage = opened(others, choices.first)
        results['first_stage'] = before = search('first_stage', stage)
    if choices.model is not None:
        stage = stage_of_export(choices, pathlib.Path(choices.model))
        results['model'] = search('model', stage, before)
    if choices.init is not None:
        loaded, stage = opened(choices, choices.init)
        if choices.model is None:
            results['model'] = search('model', stage, before)
        if choices.baselines:
            results |= _baselines(choices, loaded, stage, before, search)
    if choices.rerank is not None:
        _, stage = opened(others, choices.rerank)
        results['reranked'] = search('reranked', stage, results['model'])
    results['bm25'] = words or by_words(task, words_costs)
    if choices.costs:
        costs['bm25'] = words_costs
    for name, row in ('model', 'hybrid'), ('reranked', 'reranked_hybrid'):
        if name in results:
            results[row] = ranking.hybrid(
                results[name], results['bm25'], DEPTH + 1
            )
    return results, costs


def _baselines(
    choices: RetrievalChoices,
    loaded: 'Loaded',
    stage: Stage,
    before: Rankings | None,
    search: Callable[..., Rankings],
) -> dict[str, Rankings]:
    """Searches with the untrained encoder, and with means of embeddings.

    Args:
        choices: of the command.
        loaded, stage: --init.
        before: results of --first.
        search: with a name of LABELS and a stage, perhaps after `before`.
    """
    seed = choices.seed
    if seed is None:
        seed = loaded.config.run.get('seed', 0)
    fresh, results = loaded.untrained(seed), {}
    if not CRITICS[stage.critic].of_pairs:
        untrained = stage_of(
            choices, fresh, stage.source, **stage.key, seed=seed
        )
        results['untrained'] = search('untrained', untrained, before)
    for name, of in ('untrained_embeddings', fresh), ('embeddings', loaded):
        mean = Stage(VECTORS, mean_of_embeddings(of), 'cosine', None)
        results[name] = search(name, mean)
    return results


def with_tuned(
    results: Mapping[str, Rankings], tuning: RetrievalTask
) -> tuple[dict[str, Rankings], dict[str, Any]]:
    """Chooses the share of words on the last queries.

    Args:
        results: as of `search_all`, of the queries to measure, then of
            `tuning`.
        tuning: the queries that choose.

    Returns:
        Results of the queries to measure, with a row `tuned`; and what is
        recorded of the choice.
    """
    size = len(tuning.queries)
    last = {name: (x[-size:], y[-size:]) for name, (x, y) in results.items()}
    first = {name: (x[:-size], y[:-size]) for name, (x, y) in results.items()}
    share, values = tune(tuning, last['model'], last['bm25'])
    first['tuned'] = ranking.hybrid(
        first['model'], first['bm25'], DEPTH + 1, share
    )
    return first, {
        'tune_queries': size,
        'tune_ndcg@10': {f'{x:g}': value for x, value in values.items()},
        'hybrid_share': share,
    }


def finish(
    workdir: pathlib.Path,
    task: RetrievalTask,
    results: Mapping[str, Rankings],
    source: Mapping[str, Any],
    notes: Sequence[str],
) -> dict[str, Any]:
    """Measures results, prints a table and records the measures."""
    rows = {name: measure(task, ranked) for name, ranked in results.items()}
    record = {
        'task': task.name,
        'queries': len(task.queries),
        'documents': task.size,
        'absent_judgements': task.absent,
        **source,
        **rows,
    }
    print(table(task, rows, notes))
    commands.record(workdir, record)
    return record


if __name__ == '__main__':
    stopped = 'with --vectors the same command goes on, else nothing is kept'
    commands.start(run, stopped=stopped)
