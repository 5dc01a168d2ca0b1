r"""Word vectors beside gensim's word2vec: words a second, and what they know.

    python -m benchmarks.words --text=novels.txt --data_dir=words \
        --workdir=runs/words

Both sides read the same text once: lower-cased runs of letters, one paragraph a
line, a blank line between documents; with the same width, window, subsampling
and least count. Each is a process of its own, in turns; the peer runs in the
environment that `make bench-peers` makes, with a thread for each of 2 cores.
Words are those of the text before any are dropped, seconds those of training
alone: of ours without the first logging step, which traces. Then `tasks.words`
measures both. The table is also in WORKDIR/table.md.
"""

import collections
import gzip
import json
import pathlib
import re
import statistics
from typing import Any

from absl import flags

from benchmarks import kept
from infoword_tf import commands
from infoword_tf.text.vocabulary import SPECIALS

PYTHON = kept.ROOT / '.venv-peers' / 'bin' / 'python'
PEER = kept.ROOT / 'benchmarks' / 'peers' / 'wordvectors.py'
LEAST = 5  # occurrences of a word
PARAGRAPHS = 200  # held out, and trained on too, since the peer has no such
THREADS = 2

# Imported, they stand beside the trainer's, which have the same names.
FLAGS = flags.FLAGS if __name__ == '__main__' else flags.FlagValues()

TEXT = flags.DEFINE_string(
    'text', None, 'A file of text, also .gz: a paragraph a line.',
    flag_values=FLAGS)
DATA_DIR = flags.DEFINE_string(
    'data_dir', None, 'Tests, as tasks.words takes them.',
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
    'python', str(PYTHON), "The peer's interpreter.",
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
) -> tuple[float, str]:
    """Words a second, and the flag that names the vectors."""
    steps = STEPS.value or epoch(folder, row, size)
    workdir = folder / name
    kept.run(
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
    return statistics.harmonic_mean(rates), f'--init={workdir}'


def peer(row: str, folder: pathlib.Path, name: str) -> tuple[float, str]:
    """As `ours`."""
    vectors = folder / f'{name}.txt'
    options = {
        'vector_size': WIDTH.value, 'window': 5, 'sample': 1e-3,
        'negative': NEGATIVES.value, 'sg': int(row == 'skip_gram'),
        'min_count': LEAST, 'workers': THREADS, 'seed': 1,
    }  # fmt: skip
    log = folder / f'{name}.log'
    kept.call(
        log, PEER_PYTHON.value, str(PEER), str(folder / 'text.txt'),
        str(vectors), json.dumps(options),
    )  # fmt: skip
    found = json.loads(log.read_text().splitlines()[-1])
    return found['words'] / found['seconds'], f'--vectors={vectors}'


def measured(vectors: str, folder: pathlib.Path) -> dict[str, float]:
    """By test of tasks.words, its figure."""
    kept.run(
        'tasks.words', folder.with_suffix('.log'), vectors,
        f'--data_dir={DATA_DIR.value}', f'--workdir={folder}',
    )  # fmt: skip
    found = kept.read_json(folder / 'metrics.json')['tests']
    return {
        name: record.get('spearman', record.get('accuracy'))
        for name, record in found.items()
    }


def run() -> dict[str, Any]:
    """The whole benchmark."""
    values = FLAGS.flag_values_dict()
    commands.require(
        values, text='a file', data_dir='tests', workdir='a folder'
    )
    folder = commands.result_folder(WORKDIR.value).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    size = prepare(pathlib.Path(TEXT.value), folder)
    sides = {'ours': ours, 'gensim': peer}
    lines, record = [], {}
    for row in ROWS.value:
        rates: dict[str, list[float]] = {side: [] for side in sides}
        known: dict[str, list[dict]] = {side: [] for side in sides}
        for repeat in range(TURNS.value):
            for side in sides:
                name = f'{side}_{row}_{repeat}'
                if side == 'ours':
                    rate, vectors = ours(row, folder, size, name)
                else:
                    rate, vectors = peer(row, folder, name)
                rates[side].append(rate)
                known[side].append(measured(vectors, folder / f'{name}_words'))
                print(f'{name}: {rate:,.0f} words/s', known[side][-1],
                      flush=True)  # fmt: skip
        ratios = [
            a / b for a, b in zip(rates['ours'], rates['gensim'], strict=True)
        ]
        record[row] = {
            'ratio': statistics.median(ratios),
            'words_per_second': rates,
            'tests': known,
        }
        for side in sides:
            tests = known[side][0]
            if not lines:
                lines = [
                    f'| row | side | words/s | {" | ".join(tests)} |',
                    '|---' * (3 + len(tests)) + '|',
                ]
            means = (
                statistics.mean(found[name] for found in known[side])
                for name in tests
            )
            cells = ' | '.join(f'{value:.4g}' for value in means)
            rate = statistics.median(rates[side])
            lines.append(f'| `{row}` | {side} | {rate:,.0f} | {cells} |')
    (folder / 'table.md').write_text('\n'.join(lines) + '\n')
    print('\n'.join(lines))
    commands.record(folder, record)
    return record


if __name__ == '__main__':
    commands.start(run)
