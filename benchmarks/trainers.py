r"""Training compared with other trainers: speed and quality.

    python -m benchmarks.trainers --of=labels --source=MiniLM \
        --task=sst-2 --data_dir=glue --workdir=runs/labels
    python -m benchmarks.trainers --of=words --source=MiniLM \
        --train=train.conll --dev=dev.conll --workdir=runs/words
    python -m benchmarks.trainers --of=pairs --source=MiniLM \
        --pairs=nli-triplets.csv --critic=late --workdir=runs/pairs
    python -m benchmarks.trainers --of=pairs --source=MiniLM \
        --pairs=pairs.csv --search=scifact --workdir=runs/searches
    python -m benchmarks.trainers --of=pairs --source=MiniLM \
        --pairs=pairs.csv --search=scifact --same_batches --dropout=0 \
        --workdir=runs/same

Labels: `tasks.glue` and transformers' Trainer; of words `tasks.tag`. Pairs (a
csv: a, b and negatives): the row `simcse` and sentence-transformers' trainer of
the same --critic, of several one after the other; pairs of equal texts are
SimCSE without labels.

Both sides begin with the weights of one folder, and read the same text with the
same batch size, length, rate and number of updates, each in a process, in turns
(turns.py), with another seed in each turn. The peer runs in the environment of
`make bench-peers`. A rate is the median over updates, so that compiling does
not count; the score of labels is that of held-out examples after the last
update, of words F1 of spans or accuracy, of pairs nDCG@10 of --search, of both
sides by `tasks.retrieval`. Models of pairs are WORKDIR/ours_0 and
WORKDIR/sentence-transformers_0/model, which `tasks.sts` can evaluate. Each side
draws its batches, unless --same_batches: without dropout a critic without fresh
weights then learns the same on both.
"""

import csv
import dataclasses
import functools
import pathlib
import shutil
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks import kept, report, turns
from infoword_tf import commands, errors, files
from infoword_tf.choices import flag
from infoword_tf.config import Config
from infoword_tf.critics import CRITICS
from infoword_tf.data import glue_layout, labelling, text_pairs
from infoword_tf.evaluation.measures import MEASURES
from tasks import tag_data, tag_scores

TRAINER = kept.ROOT / 'benchmarks' / 'peers' / 'trainer.py'
WEIGHT_DECAY = 0.01  # of labels; of pairs none
NAMES = {
    'labels': 'Trainer', 'words': 'Trainer', 'pairs': 'sentence-transformers',
}  # fmt: skip
PYDOCS = 'pydocs'  # a corpus: first sentences find the rest
COMPILED = f'{NAMES["labels"]}, compiled'  # by PyTorch
# Critics that the peer trains, and flags with which both compute the same.
TYPED: dict[str, Callable[[Any], list[str]]] = {
    'cosine': lambda _: ['--simcse.pooling=mean', '--simcse.head=none'],
    'late': lambda choices: (
        [f'--sentences.query_length={choices.query_len}']
        if choices.query_len else []
    ),
    'lexical': lambda choices: [
        '--simcse.terms=vocabulary',
        f'--simcse.query_flops={choices.flops}',
        f'--simcse.passage_flops={choices.flops}',
        f'--simcse.flops_steps={choices.steps // 3}',
    ],
    'cross': lambda _: [],
}  # fmt: skip
# Choices of one kind of data.
ONLY_OF = {
    'labels': ('task', 'data_dir', 'examples'),
    'words': ('train', 'dev', 'word_column', 'column'),
    'pairs': (
        'pairs', 'critic', 'temperature', 'query_len', 'flops', 'search',
        'same_batches',
    ),
}  # fmt: skip
# Choices with the same names on both sides.
SAME = 'steps', 'batch_size', 'seq_len', 'learning_rate'


@dataclasses.dataclass(frozen=True)
class TrainersChoices:
    """Choices of the command."""

    of: str = flag('labels', 'The training data.', choices=tuple(NAMES))
    source: str | None = flag(None, 'A folder of sentence-transformers.')
    task: str = flag(
        'sst-2', 'Of GLUE, labels.', choices=tuple(glue_layout.TASKS))
    data_dir: str | None = flag(None, "GLUE's data, of labels.")
    examples: int = flag(6000, 'Labelled texts at most.', at_least=1)
    train: str | None = flag(None, 'A file of labelled words, see tasks.tag.')
    dev: str | None = flag(None, 'Another, on which both are scored.')
    word_column: int = flag(0, 'Column of the words, from 0; -1 is the last.')
    column: int = flag(-1, 'Column of the labels, likewise.')
    pairs: str | None = flag(None, 'A csv with a line of names, of pairs.')
    critic: tuple[str, ...] = flag(
        ('cosine',), 'Of pairs; several are trained one after the other.',
        choices=tuple(TYPED))
    temperature: float | None = flag(
        None, 'Of pairs; by default 0.05 of cosines, else 1.', at_least=1e-6)
    query_len: int | None = flag(
        None, 'Tokens of an a of pairs at most, of --critic=late.',
        at_least=8)
    flops: float = flag(
        1e-4, 'Of --critic=lexical, the weight of FLOPS of both sides.',
        at_least=0.0)
    search: str | None = flag(
        None, f'Of pairs, a folder of BEIR or {PYDOCS}: what is scored.')
    same_batches: bool = flag(
        False, 'Of pairs: sentence-transformers learns from the batches of '
        'ours, which have pairs of all lengths: for scores, not for rates.')
    dropout: float | None = flag(
        None, 'Of both; by default that of --source.', at_least=0.0,
        at_most=0.9)
    batch_size: int = flag(32, 'Examples of an update.', at_least=2)
    seq_len: int = flag(128, 'Tokens of a text at most.', at_least=8)
    steps: int = flag(60, 'Updates.', at_least=4)
    learning_rate: float = flag(
        5e-5, 'Peak of the learning rate.', at_least=0.0)
    precision: str = flag(
        'float32', 'Of both.', choices=('float32', 'mixed_bfloat16'))
    seeds: int = flag(3, 'Runs of each side.', at_least=1)
    workdir: str | None = flag(None, 'Where all files go.')


def temperature_of(choices: TrainersChoices, critic: str) -> float:
    """Returns the temperature of both sides."""
    return choices.temperature or CRITICS[critic].usual_temperature


def score_of(choices: TrainersChoices, critic: str, out: pathlib.Path) -> float:
    """Measures a model of pairs by --search, of --seq_len tokens a text."""
    typed = f'--data_dir={choices.search}'
    if choices.search == PYDOCS:
        typed = f'--corpus={PYDOCS}'
    theirs = out / 'model'
    init = theirs if theirs.exists() else out
    if init is out:  # else it reads texts as long as --init does
        config = Config.read(out)
        config.replace(max_length=choices.seq_len).write(out)
    record = kept.search(out / 'search', critic, typed, init=init)
    return record['model']['ndcg@10']


def folder_of(
    choices: TrainersChoices, critic: str, name: str, seed: int
) -> pathlib.Path:
    """Returns the folder of a run."""
    out = pathlib.Path(choices.workdir)
    if len(choices.critic) > 1:
        out /= critic
    return out / f'{name}_{seed}'


def run_ours(
    choices: TrainersChoices, out: pathlib.Path, seed: int, critic: str
) -> tuple[dict[str, float], kept.Used]:
    """Trains a workdir; returns rate and score, and used resources."""
    same = [f'--{name}={getattr(choices, name)}' for name in SAME]
    if choices.dropout is not None:
        same.append(f'--dropout={choices.dropout}')
    same += [
        f'--init={choices.source}', f'--workdir={out}', f'--seed={seed}',
        f'--precision={choices.precision}', '--log_every=1',
        f'--eval_every={choices.steps}',
    ]  # fmt: skip
    log = out.parent / f'{out.name}.log'
    if choices.of == 'labels':
        used = kept.run(
            'tasks.glue', log, *same, f'--task={choices.task}', '--notest',
            f'--data_dir={choices.data_dir}', f'--examples={choices.examples}',
            f'--weight_decay={WEIGHT_DECAY}',
        )  # fmt: skip
    elif choices.of == 'words':
        used = kept.run(
            'tasks.tag', log, *same, f'--train={choices.train}',
            f'--dev={choices.dev}', f'--word_column={choices.word_column}',
            f'--column={choices.column}', f'--weight_decay={WEIGHT_DECAY}',
        )  # fmt: skip
    else:
        used = kept.run(
            'infoword_tf.train', log, *same, '--objectives=simcse',
            f'--pairs={choices.pairs}', f'--simcse.critic={critic}',
            f'--simcse.temperature={temperature_of(choices, critic)}',
            '--optimizer=adamw', '--weight_decay=0',
            f'--checkpoint_every={choices.steps}', *TYPED[critic](choices),
        )  # fmt: skip
    updates = kept.records_of(out)
    answer = {'rate': statistics.median(u['steps_per_second'] for u in updates)}
    if choices.of == 'labels':
        measure = glue_layout.TASKS[choices.task].measures[0]
        answer['score'] = kept.read_json(out / 'metrics.json')[measure]
    if choices.of == 'words':
        scores = kept.read_json(out / 'metrics.json')
        answer['score'] = scores.get('f1', scores['accuracy'])
    return answer, used


def batches_of(
    choices: TrainersChoices, critic: str, seed: int
) -> list[tuple[str, ...]]:
    """Returns lines of a csv: examples in the order of `infoword_tf.train`.

    Raises:
        UsageError: the peer would read other texts: --source puts prompts
            before them, or examples have different numbers of negatives.
    """
    from infoword_tf.folders import workdir_of
    from infoword_tf.workdir import Workdir  # it imports TensorFlow

    started = Workdir.open(workdir_of(choices.source))
    (columns,) = files = text_pairs.read(choices.pairs).train
    prompted = any(started.config.prompts.values())
    if prompted or not all(map(all, columns.texts)):
        raise errors.UsageError(
            'peer_reads_other_texts',
            '--same_batches: the peer knows neither prompts of --source nor '
            'examples with different numbers of negatives; take another model '
            'or other --pairs',
        )
    shorter = choices.query_len if critic == 'late' else None
    lengths = min(shorter or choices.seq_len, choices.seq_len), choices.seq_len
    source = text_pairs.TextPairSource(
        text_pairs.tokenized(files, started.template, lengths)[0],
        choices.seq_len, choices.batch_size, seed, stratified=True,
    )  # fmt: skip
    examples = [*zip(*columns.texts, strict=True)]
    names = 'a', 'b', *(f'negative_{n}' for n in range(len(columns.texts) - 2))
    return [names] + [
        examples[number]
        for step in range(choices.steps)
        for number in source.sources[0].strata.members(step)
    ]


def run_theirs(
    choices: TrainersChoices,
    out: pathlib.Path,
    seed: int,
    critic: str,
    compiled: bool = False,
) -> tuple[dict[str, float], kept.Used]:
    """Trains the peer; returns rate and score, and used resources."""
    out.mkdir(parents=True)
    spec = {name: getattr(choices, name) for name in SAME} | {
        'of': choices.of, 'source': choices.source, 'seed': seed,
        'dropout': choices.dropout, 'threads': kept.THREADS,
        'bf16': choices.precision != 'float32',
    }  # fmt: skip
    if choices.of == 'labels':
        layout = glue_layout.TASKS[choices.task]
        splits = {
            name: glue_layout.read(choices.task, choices.data_dir, part)
            for name, part in (('train', 'train'), ('heldout', 'dev'))
        }
        splits['train'] = splits['train'].subset(choices.examples)
        targets = {
            split: labelling.known_labels(table, layout.labels)
            if layout.labels else table.scores
            for split, table in splits.items()
        }  # fmt: skip
        spec |= {
            'classes': len(layout.labels), 'weight_decay': WEIGHT_DECAY,
            'compiled': compiled,
        }  # fmt: skip
        spec['examples'] = {
            split: {'first': table.first, 'second': table.second,
                    'targets': targets[split].tolist()}
            for split, table in splits.items()
        }  # fmt: skip
    elif choices.of == 'words':
        columns = tag_data.TagColumns(choices.word_column, choices.column)
        splits = {
            split: tag_data.read(path, columns).spelled('iob2')
            for split, path in (
                ('train', choices.train), ('heldout', choices.dev)
            )
        }  # fmt: skip
        labels = tag_data.labels_of(splits['train'])
        truths = {
            split: tag_scores.truth_of(tagged.tags, labels)
            for split, tagged in splits.items()
        }
        spec |= {'classes': len(labels), 'weight_decay': WEIGHT_DECAY}
        spec['examples'] = {
            split: {
                'words': tagged.words, 'targets': truths[split].numbers.tolist()
            }
            for split, tagged in splits.items()
        }  # fmt: skip
    else:
        spec |= {
            'pairs': choices.pairs, 'critic': critic,
            'temperature': temperature_of(choices, critic),
            'save': str(out / 'model'), 'query_len': choices.query_len,
            'flops': [choices.flops] * 2, 'in_order': choices.same_batches,
        }  # fmt: skip
        if choices.same_batches:
            spec['pairs'] = str(out / 'pairs.csv')
            lines = batches_of(choices, critic, seed)
            with open(spec['pairs'], 'w', newline='', encoding='utf-8') as file:
                csv.writer(file).writerows(lines)
    files.write_json(out / 'spec.json', spec)
    used = kept.call(
        out / 'log.txt', str(kept.PEERS_PYTHON), str(TRAINER),
        str(out / 'spec.json'), str(out / 'result.json'),
    )  # fmt: skip
    result = kept.read_json(out / 'result.json')
    answer = {'rate': 1 / statistics.median(result['seconds'])}
    if choices.of == 'labels':
        scores = np.array(result['scores'])
        predictions = scores.argmax(axis=1) if layout.labels else scores
        answer['score'] = MEASURES[layout.measures[0]](
            predictions, targets['heldout']
        )
    if choices.of == 'words':
        scores = tag_scores.scores(
            truths['heldout'], np.array(result['scores'])
        )
        answer['score'] = scores.get('f1', scores['accuracy'])
    return answer, used


def side(
    choices: TrainersChoices, name: str, group: str, critic: str,
    train: Callable[..., Any],
) -> turns.Whole:
    """Makes a contestant that is trained from the start in each turn."""

    def turn(seed: int) -> tuple[dict[str, float], kept.Used]:
        out = folder_of(choices, critic, name, seed)
        shutil.rmtree(out, ignore_errors=True)
        answer, used = train(choices, out, seed, critic)
        rate = answer.pop('rate') * choices.batch_size
        return {'seconds': 1.0, 'amount': rate, **answer}, used

    return turns.Whole(name, turn, group)


def compete(
    choices: TrainersChoices,
    group: str = '',
    compiled: bool = False,
    critic: str = 'cosine',
) -> dict[str, Any]:
    """Trains both sides with each seed: a record of `turns`.

    Args:
        choices: choices of the command.
        group: group of the lines.
        compiled: whether the peer is trained compiled, too.
        critic: name of the critic that is trained on pairs.

    Raises:
        UsageError: the peer is not installed.
    """
    if not kept.PEERS_PYTHON.exists():
        raise errors.UsageError(
            'no_peers_python',
            f'{kept.PEERS_PYTHON} is missing: make bench-peers',
        )
    also = functools.partial(run_theirs, compiled=True)
    record = turns.compete(
        [side(choices, NAMES[choices.of], group, critic, run_theirs),
         *([side(choices, COMPILED, group, critic, also)] if compiled else []),
         side(choices, 'ours', group, critic, run_ours)],
        'examples',
        [{'seed': seed} for seed in range(choices.seeds)],
    )  # fmt: skip
    # Afterwards: nothing else runs while a side is measured.
    if choices.search is not None:
        for row in record['rows']:
            if 'failed' not in row:
                row['scores'] = [
                    score_of(
                        choices, critic,
                        folder_of(choices, critic, row['name'], seed),
                    )
                    for seed in range(choices.seeds)
                ]  # fmt: skip
    return record


@commands.takes(TrainersChoices)
def run(choices: TrainersChoices, chosen: Mapping[str, Any]) -> None:
    """Trains both sides, and prints the table.

    Raises:
        UsageError: a choice is missing or of other data, or the peer is not
            installed.
    """
    for kind, names in ONLY_OF.items():
        if kind != choices.of:
            commands.refuse(chosen, names, f'{{}} is for --of={kind}')
    data = {'data_dir': "GLUE's data"}
    if choices.of == 'words':
        data = {'train': 'a file of labelled words', 'dev': 'another'}
    if choices.of == 'pairs':
        data = {'pairs': 'a csv'}
    commands.require(
        vars(choices), source='a folder of sentence-transformers', **data,
        workdir='a folder',
    )  # fmt: skip
    if choices.search not in (None, PYDOCS):
        kept.check_data([choices.search])
    if choices.of == 'pairs':
        named = len(choices.critic) > 1
        records = [
            compete(choices, critic if named else '', critic=critic)
            for critic in choices.critic
        ]
    else:
        group = choices.task if choices.of == 'labels' else ''
        records = [compete(choices, group)]
    settings = dataclasses.asdict(choices)
    report.show(report.merged(records) | {'settings': settings})


if __name__ == '__main__':
    commands.start(run)
