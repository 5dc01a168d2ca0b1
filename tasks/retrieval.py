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
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from infoword_tf import commands, errors, files
from infoword_tf.choices import AUTO, DeviceChoices, again, flag
from infoword_tf.config import FILE, WEIGHTS, Config, read_exported
from infoword_tf.critics import CRITICS
from infoword_tf.evaluation import bm25, models, ranking, stages
from infoword_tf.evaluation.retrieval import (
    DEPTH,
    Rankings,
    RetrievalTask,
    beir_task,
    candidates,
    corpus_task,
    measure,
    tune,
)
from infoword_tf.evaluation.stages import Costs, Rate, StageChoices, by_pairs
from infoword_tf.evaluation.trec import read_run, write_run
from infoword_tf.evaluation.vectors import digest
from infoword_tf.folders import workdir_of

if TYPE_CHECKING:  # it imports TensorFlow
    from infoword_tf.inference.loaded import Loaded

RUN = 'run.trec'  # in the workdir


@dataclasses.dataclass(frozen=True)
class VectorChoices:
    """Choices of an evaluation of the vectors of a workdir or an export."""

    init: str | None = flag(
        None, 'The workdir of a finished run, or a converted one.', model=True)
    model: str | None = flag(None, 'An export instead, DIR/1.')
    dims: int | None = again(StageChoices, 'dims', None)
    workdir: str = flag('', 'Where metrics.json goes.')


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
    critic: str | None = again(StageChoices, 'critic', None)
    first: str | None = flag(
        None, 'What finds the documents that the model compares: bm25, a '
        'workdir or an export; by default all are compared.', model=True)
    rerank: str | None = flag(
        None, 'A workdir or an export that orders the best documents of the '
        'model anew.', model=True)
    rerank_top: int | None = again(StageChoices, 'rerank_top', None)
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


# -------------------------------------------------------------------- encoders


def check_source(
    choices: VectorChoices, *of_init: str, **needed: str
) -> pathlib.Path:
    """Checks --init, --model and --workdir; returns the last as a path.

    Choices named by `of_init` need --init; `needed` are other flags that must
    have a value, as of `commands.require`.

    Raises:
        errors.UsageError: a flag has no value, neither or both of --init and
            --model, a choice of `of_init` with an export, or --workdir holds a
            model.
    """
    commands.require(
        vars(choices), **needed, workdir='a folder for metrics.json'
    )
    if bool(choices.init) == bool(choices.model):
        raise errors.UsageError('init_or_model', 'give --init or --model')
    for name in of_init:
        if choices.model and getattr(choices, name) is not None:
            raise errors.UsageError(
                'flag_of_init',
                f'--{name} goes with --init: the pooling of an export is fixed',
            )
    return commands.result_folder(choices.workdir)


def decided(precision: str) -> str:
    """Returns --precision, of which `auto` is read off the device."""
    from infoword_tf.training.record import faster_precision

    return faster_precision() if precision == 'auto' else precision


# -------------------------------------------------------------------- searches


def for_tuning(
    choices: RetrievalChoices, task: RetrievalTask, tuned: str
) -> tuple[RetrievalTask, RetrievalTask]:
    """Returns the task to measure, and the task that chooses a share of words.

    Args:
        choices: choices of --data_dir.
        task: all queries.
        tuned: value of --tune, a split or a number of queries.

    Raises:
        FileNotFoundError, ValueError: no such split, or no query is left for
            either.
    """
    size = len(task.queries)
    if tuned.isdecimal():
        count = int(tuned)
        if not 0 < count < size:
            raise errors.InputError(
                'tune_number',
                f'--tune={count}: {task.name} has {size:,} queries, some to '
                'choose by and others to measure; name another number',
            )
        places = [number * size // count for number in range(count)]
        rest = sorted({*range(size)} - {*places})
        return task.part(rest), task.part(places)
    other = read_split(choices, tuned)
    measured = {*task.query_ids}
    names = enumerate(other.query_ids)
    places = [place for place, name in names if name not in measured]
    if not places:
        raise errors.InputError(
            'tune_on_measured',
            f'--tune={tuned}: all its queries are measured; name '
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
    stages.check_stages(choices.first, choices.rerank, choices.rerank_top)
    tuned = choices.tune
    if not (choices.data_dir or tuned is None or tuned.isdecimal()):
        raise errors.UsageError(
            'tune_without_split',
            f'--tune={tuned}: --corpus has no splits; name how many '
            'queries choose, such as --tune=50',
        )
    return workdir


def check_model(folder: pathlib.Path) -> None:
    """Raises FileNotFoundError or ValueError if a folder holds no model."""
    if (folder / 'saved_model.pb').is_file():
        read_exported(folder)
    else:
        Config.read(workdir_of(folder))


def read_split(choices: RetrievalChoices, split: str) -> RetrievalTask:
    """Reads a split of --data_dir, with --queries."""
    queries = pathlib.Path(choices.queries) if choices.queries else None
    return beir_task(pathlib.Path(choices.data_dir or ''), split, queries)


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
        return finish(
            workdir, task, results={'run': ranked}, source=source, notes=notes
        )

    tuning = task.part(())
    if choices.tune is not None:
        task, tuning = for_tuning(choices, task, choices.tune)
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
    return finish(workdir, task, results=results, source=source, notes=notes)


class Stage(NamedTuple):
    """A model that compares queries with documents.

    Attributes:
        critic: name in CRITICS.
        encode, similarity: functions of critics that encode each text alone.
        rate: function of critics of pairs, which have no `encode`.
        source: its files, arguments of `digest`.
        key: choices that its vectors depend on.
    """

    critic: str
    encode: stages.Encoder | None = None
    similarity: str = ''
    rate: Rate | None = None
    source: Sequence[Any] = ()
    key: Mapping[str, Any] = {}


def stage_of_export(choices: RetrievalChoices, folder: pathlib.Path) -> Stage:
    """Opens an export."""
    config, _ = read_exported(folder)
    critic = choices.critic or config.critic
    if CRITICS[critic].of_pairs:
        if choices.dims is not None:
            models.check_critic_dims(critic)
        rate = models.exported_rate(folder, choices.batch_size)
        return Stage(critic, rate=rate)
    encode, similarity = models.exported(
        folder, choices.batch_size, choices.dims, critic=critic
    )
    key = _key(choices, critic)
    return Stage(critic, encode, similarity, source=[folder], key=key)


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
        models.check_critic_dims(critic)
    if kind.of_pairs:
        rate = functools.partial(
            loaded.score_pairs, batch_size=choices.batch_size
        )
        return Stage(critic, rate=rate)
    settings: dict[str, Any] = {
        'batch_size': choices.batch_size,
        'progress': False,
    }
    if choices.dims is not None:
        models.check_dims(choices.dims, kind.width_in(loaded))
    if kind.has_dims:
        settings['dims'] = choices.dims
    encode = models.encoder_of(loaded, critic, **settings)
    similarity = kind.similarity or config.similarity
    key = key | _key(choices, critic)
    return Stage(critic, encode, similarity, source=source, key=key)


def opened(choices: RetrievalChoices, path: str) -> tuple[Any, Stage]:
    """Opens a workdir, or an export; returns the loaded model of the first."""
    folder = pathlib.Path(path)
    if (folder / 'saved_model.pb').is_file():
        return None, stage_of_export(choices, folder)
    import infoword_tf

    dtype = decided(choices.precision)
    loaded = infoword_tf.load(path, dtype)
    names = FILE, WEIGHTS, loaded.tokenizer.file
    source = folder, [folder / name for name in names]
    return loaded, stage_of(choices, loaded, source, precision=dtype)


def search_by(
    choices: RetrievalChoices,
    task: RetrievalTask,
    costs: dict[str, Costs],
    name: str,
    stage: Stage,
    before: Rankings | None = None,
) -> Rankings:
    """Searches with a stage.

    Args:
        choices: choices of the command.
        task: queries and documents.
        costs: result, what each stage takes, by name.
        name: name in LABELS.
        stage: model that compares.
        before: results of the stage before; None: there is none.
    """
    top = choices.rerank_top or stages.RERANKED
    chosen = None if before is None else candidates(task, before, top)
    timed = choices.costs and name in ('first_stage', 'model', 'reranked')
    taken = Costs(len(task.queries) if timed else 0)
    if stage.encode is None:
        if chosen is None or stage.rate is None:
            raise errors.UsageError(
                'cross_without_candidates',
                f'{LABELS[name]} rates pairs, and cannot search all '
                'documents: give --first=bm25 or another model, or name '
                'it with --rerank',
            )
        ranked = by_pairs(
            task,
            stage.rate,
            candidates=chosen,
            label=LABELS[name],
            costs=taken,
        )
    else:
        store = None
        if stage.source and choices.vectors is not None:
            store = stages.open_vectors(
                pathlib.Path(choices.vectors),
                name if name == 'untrained' else 'model',
                task,
                weights=digest(*stage.source),
                **stage.key,
            )
        ranked = stages.by_vectors(
            task,
            stage.encode,
            similarity=stage.similarity,
            label=LABELS[name],
            store=store,
            chosen=chosen,
            costs=taken,
        )
    if timed:
        costs[name] = taken
    return ranked


def search_all(
    choices: RetrievalChoices, task: RetrievalTask
) -> tuple[dict[str, Rankings], dict[str, Costs]]:
    """Searches with all stages and all baselines, by name in LABELS.

    Returns:
        Results, and with --costs what each stage takes.
    """
    results: dict[str, Rankings] = {}
    costs: dict[str, Costs] = {}
    search = functools.partial(search_by, choices, task, costs)
    for path in (choices.first, choices.rerank):
        if path not in (None, stages.BM25):
            check_model(pathlib.Path(path))  # before anything is encoded
    words_costs = Costs(len(task.queries) if choices.costs else 0)
    words = before = None
    others = dataclasses.replace(choices, dims=None, critic=None)
    if choices.first == stages.BM25:
        before = words = stages.by_words(task, words_costs)
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
            results |= _baselines(
                choices, loaded, stage=stage, before=before, search=search
            )
    if choices.rerank is not None:
        _, stage = opened(others, choices.rerank)
        results['reranked'] = search('reranked', stage, results['model'])
    results['bm25'] = words or stages.by_words(task, words_costs)
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
        choices: choices of the command.
        loaded, stage: --init.
        before: results of --first.
        search: function of a name in LABELS, a stage and perhaps `before`.
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
        encode = models.mean_of_embeddings(of)
        mean = Stage(models.VECTORS, encode, 'cosine')
        results[name] = search(name, mean)
    return results


def with_tuned(
    results: Mapping[str, Rankings], tuning: RetrievalTask
) -> tuple[dict[str, Rankings], dict[str, Any]]:
    """Chooses the share of words on the last queries.

    Args:
        results: results of `search_all`, of the queries to measure, then of
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
