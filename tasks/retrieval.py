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

With --corpus the first sentence of each held-out document is a query, and the
rest of it what should be found among the rests of all. With --data_dir it is
a BEIR folder (Thakur et al. 2021), and --queries asks it in other words, of
another language say. Search is exact; measures are trec_eval's. The last row is
what `export.search --hybrid` does: the model and BM25 merged.

Texts are read as a stream, and vectors of one block of documents are held at a
time. With --vectors they stay in that folder: a command that was stopped goes
on, and other queries are compared with them without encoding the corpus again.

What the model found is written to WORKDIR/run.trec, as trec_eval reads it, and
--run measures such a file of whoever searched.

The last line of the output is one JSON object, also in WORKDIR/metrics.json.
"""

import contextlib
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from infoword_tf import commands, errors, files, lazy, progress
from infoword_tf.choices import AUTO, DeviceChoices, again, flag
from infoword_tf.config import FILE, ROLES, WEIGHTS, read_exported
from infoword_tf.data import tables
from infoword_tf.evaluation import ranking
from infoword_tf.evaluation.retrieval import (
    BLOCK,
    DEPTH,
    Rankings,
    RetrievalTask,
    beir_task,
    measure,
    repeated,
)
from infoword_tf.text import strings
from tasks import bm25
from tasks.trec import read_run, write_run
from tasks.vectors import VectorFile, digest

if TYPE_CHECKING:  # it imports TensorFlow
    from infoword_tf.inference.loaded import Loaded

RUN = 'run.trec'  # in the workdir


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    init: str | None = flag(
        None, 'The workdir of a finished run; four baselines are measured '
        'beside it.', model=True)
    model: str | None = flag(None, 'An exported model, DIR/1.')
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
    workdir: str | None = flag(None, 'Where metrics.json is written.')
    seed: int | None = flag(
        None, 'Random seed of the untrained baselines; by default the '
        "run's own.", at_least=0)
    batch_size: int = flag(32, 'Texts encoded at a time.', at_least=1)
    dims: int | None = flag(
        None, 'The first so many numbers of a vector alone.', at_least=1)
    vectors: str | None = flag(
        None, 'A folder where vectors of documents stay, from which the same '
        'command goes on, and others begin.')
    precision: str = again(
        DeviceChoices, 'precision', 'float32',
        help=f'Precision of --init; {AUTO}')


# ----------------------------------------------------------------------- tasks


def corpus_task(name: str, heldout: str | None = None) -> RetrievalTask:
    """First sentences as queries, the rests of their documents to be found.

    Documents of one sentence are left out. Where several documents have the
    same rest, all of them are relevant: their vectors cannot differ.

    Raises:
        ValueError: there is no such corpus, or nothing to find in it.
    """
    from infoword_tf.data import corpora

    corpus = corpora.open_corpus(name, heldout)

    def sentences() -> Iterator[tuple[str, ...]]:
        every = (document.sentences for document in corpus.heldout())
        return (found for found in every if len(found) > 1)

    def documents() -> Iterator[tuple[int, str]]:
        for number, (_, *rest) in enumerate(sentences()):
            yield number, tables.valid(' '.join(rest))

    size, groups = repeated(text for _, text in documents())
    if not size:
        raise ValueError(
            f'--corpus={name}: no held-out document has two sentences; give '
            'more text, or name held-out files with --heldout=GLOB'
        )
    relevance = {number: {number: 1} for number in range(size)}
    for group in groups:
        relevance |= dict.fromkeys(group, dict.fromkeys(group, 1))
    # Of one width: ties are ordered by id, as strings.
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

# n texts and their role (config.ROLES; None: the default) -> [n, D] float32
Encoder = Callable[[list[str], str | None], np.ndarray]


def check_source(
    init: str | None, model: str | None, **of_init: str | int | None
) -> None:
    """Complains of neither or both of a workdir and an export.

    Args:
        init, model: as of `vectors_of`.
        of_init: choices by name that only a workdir leaves.

    Raises:
        errors.UsageError: of them, or of such a choice beside an export.
    """
    if bool(init) == bool(model):
        raise errors.UsageError('give --init or --model')
    for name, value in of_init.items():
        if model and value is not None:
            raise errors.UsageError(
                f'--{name} goes with --init: an export pools as it was '
                'written to'
            )


def vectors_of(
    init: str | None,
    model: str | None,
    dims: int | None = None,
    pooling: str | None = None,
    layer: int | None = None,
) -> tuple[Encoder, str]:
    """What encodes texts, and how vectors are compared.

    Args:
        init: a workdir, or else
        model: the folder of an export's version.
        dims: the first so many numbers of each vector alone; None: all.
        pooling: as in `Loaded.encode`; of a workdir.
        layer: whose states are pooled, 0 the embeddings, without the layers
            that may follow pooling; None: as the workdir says. Of a workdir.

    Raises:
        FileNotFoundError: there is no such model.
        ValueError: it cannot be read, its vectors are shorter, or it has no
            such layer.
    """
    if model:
        return exported(pathlib.Path(model), 64, dims)
    import infoword_tf

    loaded = infoword_tf.load(init)
    if layer is not None:
        depth = loaded.encoder.depth
        if layer > depth:
            raise ValueError(
                f'--layer={layer}: {init} has layers 0 (its embeddings) to '
                f'{depth}'
            )
        pooling = pooling or loaded.config.pooling
    if dims is not None:
        check_dims(dims, loaded.vector_width(pooling))
    encode = encoder_of(loaded, dims=dims, pooling=pooling, layers=layer)
    return encode, loaded.config.similarity


def encoder_of(loaded: 'Loaded', **settings: Any) -> Encoder:
    """A workdir as an encoder; `settings` are of `encode`."""

    def encode(texts: list[str], role: str | None) -> np.ndarray:
        prompt = None if role is None else loaded.config.prompt_for(role)
        return loaded.encode(texts, prompt=prompt, **settings)

    return encode


def check_dims(dims: int, width: int) -> None:
    """Complains of more numbers than vectors have; ValueError."""
    if dims > width:
        raise ValueError(f'--dims={dims}: vectors have {width} numbers')


def first_numbers(
    vectors: np.ndarray, dims: int, normalize: bool
) -> np.ndarray:
    """[n, D] -> [n, dims], of length 1 again where vectors are."""
    found = np.ascontiguousarray(vectors[:, :dims])
    if normalize:
        norms = np.linalg.norm(found, axis=1, keepdims=True)
        found = found / np.maximum(norms, 1e-12)
    return found


def exported(
    folder: pathlib.Path,
    batch_size: int,
    dims: int | None = None,
    model: Any = None,
) -> tuple[Encoder, str]:
    """The `embed` signatures of an exported model, and its similarity.

    Queries and passages go through those of their prompts, where it has them.
    `dims` is as in `vectors_of`; `model` is the loaded one where it is at hand.

    Raises:
        FileNotFoundError: it is no such model.
        ValueError: its config cannot be read, it has no such signature, or
            its vectors are shorter.
    """
    config, _ = read_exported(folder)  # before TensorFlow is imported

    tf = lazy.tensorflow()
    if model is None:
        model = tf.saved_model.load(str(folder))
    if 'embed' not in model.signatures:
        raise ValueError(f'--model={folder} has no signature `embed`')
    if dims is not None:
        outputs = model.signatures['embed'].structured_outputs
        check_dims(dims, outputs['embeddings'].shape[1])

    signatures = {None: model.signatures['embed']}
    for role in ROLES:
        prompt = config.prompt_for(role)
        if not prompt and config.prompt_text():
            raise ValueError(
                f'--model={folder} puts the prompt {config.prompt!r} before '
                f'every text, and has none for a {role}; export it again from '
                'weights that have one, be it empty'
            )
        name = f'embed_{prompt}' if prompt else 'embed'
        signatures[role] = model.signatures[name]

    def embed(texts: list[str], role: str | None = 'passage') -> np.ndarray:
        # Half characters of a command line or of JSON are no UTF-8. Texts of
        # like length together: less padding.
        several, place = strings.distinct(map(tables.valid, texts))
        order = sorted(range(len(several)), key=lambda i: len(several[i]))
        vectors = []
        for begin in range(0, len(order), batch_size):
            batch = [several[i] for i in order[begin : begin + batch_size]]
            made = signatures[role](texts=tf.constant(batch))
            vectors.append(made['embeddings'].numpy())
        found = np.concatenate(vectors)[np.argsort(order)[place]]
        if dims is None:
            return found
        return first_numbers(found, dims, config.normalize)

    return embed, config.similarity


def mean_of_embeddings(loaded: 'Loaded') -> Encoder:
    """Texts as the sum of the encoder's input embeddings of all their pieces.

    To be compared by cosine, which is the same for the mean.
    """
    from scipy import sparse

    table = np.asarray(loaded.encoder.embedding_table, np.float32)

    def embed(texts: list[str], role: str = 'passage') -> np.ndarray:
        del role
        pieces = loaded.tokenizer.tokenize(texts)
        ids = np.asarray(pieces.flat_values)
        splits = np.asarray(pieces.row_splits)
        counts = sparse.csr_array(
            (np.ones(len(ids), np.float32), ids, splits),
            shape=(len(texts), len(table)),
        )
        return counts @ table

    return embed


# ----------------------------------------------------------------------- rows


def by_vectors(
    task: RetrievalTask,
    encode: Encoder,
    similarity: str,
    label: str,
    kept: VectorFile | None = None,
) -> Rankings:
    """What an encoder finds; documents are read and encoded in blocks.

    Args:
        task: what is to be found.
        encode: queries and passages.
        similarity: `cosine` or `dot`.
        label: of the progress bar.
        kept: vectors of the first documents, to which those of all others are
            added; None: they are not kept.
    """
    queries = encode(task.queries, 'query')
    with progress.bar(total=task.size, desc=label, unit=' documents') as bar:

        def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            done = 0
            for numbers, texts in task.blocks():
                end = done + len(numbers)
                if kept is not None and end <= kept.rows:
                    vectors = kept.read(done, end)
                else:
                    vectors = encode(texts, 'passage')
                    if kept is not None:
                        kept.append(vectors)
                done = end
                numbers, vectors = task.with_copies(numbers, vectors)
                yield numbers, vectors
                bar.update(len(numbers))

        return ranking.search(queries, blocks(), DEPTH + 1, similarity)


def kept_file(
    folder: pathlib.Path, name: str, task: RetrievalTask, **key: Any
) -> VectorFile:
    """The vectors of a task's documents that a folder has; perhaps none yet.

    Args:
        folder: of --vectors.
        name: of the encoder.
        task: of which documents.
        key: what else decides vectors, to the last bit.
    """
    key |= {
        'documents': task.fingerprint,
        'size': task.distinct,
        'block': BLOCK,
    }
    text = json.dumps(key, sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    return VectorFile(folder / f'{name}-{digest}.npy')


def by_words(task: RetrievalTask) -> Rankings:
    """What BM25 finds, see `bm25.Bm25`."""
    numbers = np.empty(task.size, np.int64)

    def texts() -> Iterator[str]:
        for place, (number, text) in enumerate(task.documents()):
            numbers[place] = number
            yield text

    return bm25.Bm25(texts()).search(task.queries, DEPTH + 1, numbers)


# ----------------------------------------------------------------------- table


LABELS = {
    'model': 'this model',
    'untrained': 'untrained encoder',
    'untrained_embeddings': 'mean of untrained embeddings',
    'embeddings': "mean of this model's embeddings",
    'bm25': 'BM25',
    'hybrid': 'this model and BM25 merged',
    'run': 'this file',
}
NOTES = {  # lines below the table's first
    'absent_judgements': '{:,} judgements name documents that are not there: '
    'they count as not found',
    'odd_id': 'run.trec is not written: the id {!r} is empty or has a blank, '
    'which its format cannot hold',
    'unjudged_queries': '{:,} queries of the file are not judged: they do not '
    'count',
    'queries_without_results': '{:,} queries have no result in the file: they '
    'count as 0 (as with trec_eval -c)',
    'unknown_documents': '{:,} documents of the file are not there: they keep '
    'their rank',
}


def table(
    task: RetrievalTask,
    rows: Mapping[str, Mapping[str, float]],
    notes: Sequence[str] = (),
) -> str:
    """What was measured, for people: a line for each way to search.

    `notes` are lines below the first.
    """
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


def check(given: Choices, chosen: Mapping[str, Any]) -> pathlib.Path:
    """Complains of choices that do not go together; returns --workdir.

    Raises:
        errors.UsageError: they do not.
    """
    commands.require(vars(given), workdir='a folder for metrics.json')
    workdir = commands.result_folder(given.workdir)
    if given.init is None and given.model is None and given.run is None:
        raise errors.UsageError(
            'no model: name a finished run with --init, an exported model '
            'with --model, or a file of results with --run'
        )
    if given.run is not None:
        commands.refuse(
            chosen, ('init', 'model', 'batch_size', 'dims', 'vectors'),
            '--run names results, and nothing is searched: leave out {}',
        )  # fmt: skip
    if (given.corpus is None) == (given.data_dir is None):
        raise errors.UsageError(
            'name either --corpus (pydocs, text:GLOB, tfds:NAME) or --data_dir '
            '(a BEIR folder)'
        )
    for other, names in (('corpus', ['heldout']),
                         ('data_dir', ['split', 'queries']),
                         ('init', ['seed', 'precision'])):
        if getattr(given, other) is None:
            why = f'{{}} is for --{other}; leave it out'
            commands.refuse(chosen, names, why)
    return workdir


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Measures the model and its baselines; returns what metrics.json holds."""
    workdir = check(given, chosen)
    if given.corpus is not None:
        task = corpus_task(given.corpus, given.heldout)
    else:
        queries = pathlib.Path(given.queries) if given.queries else None
        task = beir_task(pathlib.Path(given.data_dir), given.split, queries)
    if given.run is not None:
        ranked, counts = read_run(pathlib.Path(given.run), task)
        notes = [NOTES[name].format(n) for name, n in counts.items() if n]
        source = {'run_file': given.run, **counts}
        return finish(workdir, task, {'run': ranked}, source, notes)

    bm25.library()  # what it lacks is said before all is encoded
    with contextlib.ExitStack() as held:
        if given.vectors is not None:
            held.enter_context(files.locked(pathlib.Path(given.vectors)))
        found = searched(given, task)
    notes = []
    if task.absent:
        notes.append(NOTES['absent_judgements'].format(task.absent))
    odd = write_run(workdir / RUN, task, found['model'])
    if odd is not None:
        notes.append(NOTES['odd_id'].format(odd))
    source = {'weights': given.model or given.init, 'dims': given.dims}
    return finish(workdir, task, found, source, notes)


def searched(given: Choices, task: RetrievalTask) -> dict[str, Rankings]:
    """What the model and its baselines find, by name in LABELS."""
    import infoword_tf

    found: dict[str, Rankings] = {}

    def vectors(
        name: str,
        encode: Encoder,
        similarity: str,
        source: Sequence[Any] = (),  # arguments of `digest`
        **key: Any,
    ) -> None:
        kept = None
        if source and given.vectors is not None:
            key |= {'dims': given.dims, 'batch_size': given.batch_size}
            key['weights'] = digest(*source)
            kept = kept_file(pathlib.Path(given.vectors), name, task, **key)
        found[name] = by_vectors(task, encode, similarity, LABELS[name], kept)

    if given.model is not None:
        folder = pathlib.Path(given.model)
        encode, similarity = exported(folder, given.batch_size, given.dims)
        vectors('model', encode, similarity, [folder])
    if given.init is not None:
        from infoword_tf.training import precision

        decided = given.precision
        if decided == 'auto':
            decided = precision.faster()
        loaded = infoword_tf.load(given.init, decided)
        if given.dims is not None:
            check_dims(given.dims, loaded.vector_width())
        how = {
            'batch_size': given.batch_size,
            'dims': given.dims,
            'progress': False,
        }
        similarity = loaded.config.similarity
        seed = given.seed
        if seed is None:
            seed = loaded.config.run.get('seed', 0)
        fresh = loaded.untrained(seed)
        folder, own = pathlib.Path(given.init), loaded.tokenizer.file
        source = folder, [folder / name for name in (FILE, WEIGHTS, own)]
        key = {'precision': decided}
        if given.model is None:
            encode = encoder_of(loaded, **how)
            vectors('model', encode, similarity, source, **key)
        encode = encoder_of(fresh, **how)
        vectors('untrained', encode, similarity, source, **key, seed=seed)
        vectors('untrained_embeddings', mean_of_embeddings(fresh), 'cosine')
        vectors('embeddings', mean_of_embeddings(loaded), 'cosine')
    found['bm25'] = by_words(task)
    found['hybrid'] = ranking.merge(
        [found['model'], found['bm25']], DEPTH + 1
    )
    return found


def finish(
    workdir: pathlib.Path,
    task: RetrievalTask,
    found: Mapping[str, Rankings],
    source: Mapping[str, Any],
    notes: Sequence[str],
) -> dict[str, Any]:
    """Measures, prints and keeps what was found; returns the record."""
    rows = {name: measure(task, ranked) for name, ranked in found.items()}
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
