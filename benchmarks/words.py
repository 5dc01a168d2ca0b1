r"""Word vectors beside gensim's word2vec: words a second, and what they know.

    python -m benchmarks.words --text=novels.txt --data_dir=words \
        --workdir=runs/words

Both sides read the same text once: lower-cased runs of letters, one paragraph a
line, a blank line between documents; with the same width, window, subsampling
and least count. Each is a process of its own, in turns; the peer runs in the
environment that `make bench-peers` makes, with a thread for each of 2 cores.
Words are those of the text before any are dropped, seconds those of training
alone: of ours without the first logging step, which traces. With --data_dir
`tasks.words` then measures both; WORKDIR/table.md has all of it.
"""

import collections
import gzip
import json
import pathlib
import re
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from absl import flags

from benchmarks import kept, report, turns
from infoword_tf import commands
from infoword_tf.text.vocabulary import SPECIALS

PEER = kept.ROOT / 'benchmarks' / 'peers' / 'wordvectors.py'
LEAST = 5  # occurrences of a word
PARAGRAPHS = 200  # held out, and trained on too, since the peer has no such

# Imported, they stand beside the trainer's, which have the same names.
FLAGS = flags.FLAGS if __name__ == '__main__' else flags.FlagValues()

TEXT = flags.DEFINE_string(
    'text', None, 'A file of text, also .gz: a paragraph a line.',
    flag_values=FLAGS)
DATA_DIR = flags.DEFINE_string(
    'data_dir', None, 'Tests, as tasks.words takes them; none: only speed.',
    flag_values=FLAGS)
WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Where all of it goes.',
    flag_values=FLAGS)
ROWS = flags.DEFINE_list('rows', ['skip_gram', 'cbow'], 'Of the two.',
    flag_values=FLAGS)
WIDTH = flags.DEFINE_integer('width', 100, 'Of vectors.', lower_bound=1,
    flag_values=FLAGS)
NEGATIVES = flags.DEFINE_integer(
    'negatives', 5, "The peer's.", lower_bound=1,
    flag_values=FLAGS)
DRAWS = flags.DEFINE_integer('draws', 64, 'Ours, of a row.', lower_bound=1,
    flag_values=FLAGS)
BATCH_SIZE = flags.DEFINE_integer('batch_size', 8, 'Rows.', lower_bound=1,
    flag_values=FLAGS)
SEQ_LEN = flags.DEFINE_integer('seq_len', 512, 'Words of a row.',
    flag_values=FLAGS)
LEARNING_RATE = flags.DEFINE_float('learning_rate', 0.1, 'Ours.',
    flag_values=FLAGS)
LOSS = flags.DEFINE_string('loss', 'infonce', 'Ours.',
    flag_values=FLAGS)
PRECISION = flags.DEFINE_string('precision', 'float32', 'Ours.',
    flag_values=FLAGS)
STEPS = flags.DEFINE_integer('steps', None, 'Updates instead of one epoch.',
    flag_values=FLAGS)
TURNS = flags.DEFINE_integer('turns', 1, 'Runs of each side.', lower_bound=1,
    flag_values=FLAGS)
PEER_PYTHON = flags.DEFINE_string(
    'python', str(kept.PEERS_PYTHON), "The peer's interpreter.",
    flag_values=FLAGS)


def prepare(path: pathlib.Path, folder: pathlib.Path) -> int:
    """Writes the text and some of it to be held out; returns V."""
    opened = gzip.open if path.suffix == '.gz' else open
    counts: collections.Counter[str] = collections.Counter()
    with (
        opened(path, 'rt', encoding='utf-8') as text,
        open(folder / 'text.txt', 'w') as out,
        open(folder / 'heldout.txt', 'w') as heldout,
    ):
        for number, line in enumerate(text):
            words = re.findall('[a-z]+', line.lower())
            counts.update(words)
            for file in (out, *([heldout] if number < PARAGRAPHS else [])):
                file.write(' '.join(words) + '\n')
    known = sum(count >= LEAST for count in counts.values())
    return known + len(SPECIALS)


def epoch(folder: pathlib.Path, row: str, size: int) -> int:
    """Updates in which all of the text is read once."""
    from infoword_tf.data.batches import open_sources
    from infoword_tf.data.opened import TextChoices, open_text
    from infoword_tf.resolve import ModelChoices, resolve

    text = open_text(
        TextChoices(
            f'text:{folder}/text.txt', f'{folder}/heldout.txt', 'words',
            vocab_size=size,
        )
    )  # fmt: skip
    plan = resolve(ModelChoices(objectives=row, seq_len=SEQ_LEN.value)).plan
    sources = open_sources(text.train, plan, BATCH_SIZE.value, 0)
    (source,) = sources.values()
    return source.windows // BATCH_SIZE.value


def ours(
    row: str, folder: pathlib.Path, size: int, name: str
) -> tuple[float, kept.Used]:
    """Words a second, and what it used."""
    steps = STEPS.value or epoch(folder, row, size)
    workdir = folder / name
    used = kept.run(
        'infoword_tf.train', folder / f'{name}.log',
        f'--corpus=text:{folder}/text.txt',
        f'--heldout={folder}/heldout.txt', '--tokenizer=words',
        f'--vocab_size={size}', f'--objectives={row}',
        f'--width={WIDTH.value}', '--dropout=0', '--optimizer=word2vec',
        f'--{row}.negatives={DRAWS.value}', f'--{row}.loss={LOSS.value}',
        f'--precision={PRECISION.value}', f'--steps={steps}',
        f'--batch_size={BATCH_SIZE.value}', f'--seq_len={SEQ_LEN.value}',
        f'--learning_rate={LEARNING_RATE.value}', '--init_deviation=0.01',
        f'--workdir={workdir}',
        f'--eval_every={steps}', f'--checkpoint_every={steps}',
        f'--log_every={max(1, steps // 10)}',
    )  # fmt: skip
    records = kept.records_of(workdir)
    rates = [r['tokens_per_second'] for r in records[1:] or records]
    # All steps are of one size: the mean over time.
    return statistics.harmonic_mean(rates), used


def peer(
    row: str, folder: pathlib.Path, size: int, name: str
) -> tuple[float, kept.Used]:
    """As `ours`."""
    del size  # it counts by itself
    vectors = folder / f'{name}.txt'
    options = {
        'vector_size': WIDTH.value, 'window': 5, 'sample': 1e-3,
        'negative': NEGATIVES.value, 'sg': int(row == 'skip_gram'),
        'min_count': LEAST, 'workers': kept.THREADS, 'seed': 1,
    }  # fmt: skip
    log = folder / f'{name}.log'
    used = kept.call(
        log, PEER_PYTHON.value, str(PEER), str(folder / 'text.txt'),
        str(vectors), json.dumps(options),
    )  # fmt: skip
    found = json.loads(log.read_text().splitlines()[-1])
    return found['words'] / found['seconds'], used


def measured(side: str, folder: pathlib.Path, name: str) -> dict[str, float]:
    """By test of tasks.words, its figure."""
    vectors = f'--vectors={folder / name}.txt'
    if side == 'ours':
        vectors = f'--init={folder / name}'
    folder = folder / f'{name}_words'
    kept.run(
        'tasks.words', folder.with_suffix('.log'), vectors,
        f'--data_dir={DATA_DIR.value}', f'--workdir={folder}',
    )  # fmt: skip
    found = kept.read_json(folder / 'metrics.json')['tests']
    return {
        name: record.get('spearman', record.get('accuracy'))
        for name, record in found.items()
    }


def turn(
    side: str, row: str, folder: pathlib.Path, size: int
) -> Callable[..., tuple[dict[str, float], kept.Used]]:
    """Trains a side anew, for `turns.Whole`."""
    train = ours if side == 'ours' else peer

    def run(number: int) -> tuple[dict[str, float], kept.Used]:
        rate, used = train(row, folder, size, f'{side}_{row}_{number}')
        return {'seconds': 1.0, 'amount': rate}, used

    return run


def run() -> dict[str, Any]:
    """The whole benchmark."""
    values = FLAGS.flag_values_dict()
    commands.require(values, text='a file', workdir='a folder')
    kept.require_peers()
    folder = commands.result_folder(WORKDIR.value).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    size = prepare(pathlib.Path(TEXT.value), folder)
    asked = [{'number': number} for number in range(TURNS.value)]
    record: dict[str, Any] = {}
    for row in ROWS.value:
        sides = [
            turns.Whole(side, turn(side, row, folder, size), row)
            for side in ('gensim', 'ours')
        ]
        found = turns.compete(sides, 'words', asked)
        found['rows'] = record.get('rows', []) + found['rows']
        record = found
    if DATA_DIR.value:
        for one in record['rows']:
            one['tests'] = [
                measured(one['name'], folder, f'{one["name"]}_{row}_{number}')
                for row in [one['group']]
                for number in range(TURNS.value)
            ]
        lines = table(record)
        (folder / 'table.md').write_text('\n'.join(lines) + '\n')
        print('\n'.join(lines))
    report.show(record)
    return record


def table(record: Mapping[str, Any]) -> list[str]:
    """Rates and means of all tests, a line for each row and side."""
    names = list(record['rows'][0]['tests'][0])
    rows = []
    for one in record['rows']:
        means = (
            statistics.mean(found[name] for found in one['tests'])
            for name in names
        )
        rate = statistics.median(report.rates(one))
        rows.append(
            [f'`{one["group"]}`', one['name'], f'{rate:,.0f}',
             *(f'{mean:.4g}' for mean in means)]
        )  # fmt: skip
    return report.table(('row', 'side', 'words/s', *names), rows)


if __name__ == '__main__':
    commands.start(run)
