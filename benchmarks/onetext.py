"""One text at a time, as a search box sends it, and many clients that do so.

    python -m benchmarks.onetext --init=runs/minilm --peers=FOLDER --lines=FILE

asks `encode`, an export of the workdir, ONNX Runtime and sentence-transformers
for texts of 12 words, with one and with two threads each, by the settings of a
server: 1, 2, 8 and 32 clients, of which each waits for its vector before it
asks again. FOLDER is a sentence-transformers folder with the same weights;
without it ours alone are asked. All are asked in turns. Processor time, of all
threads of a side, is what other work on the machine disturbs least; threads
that spin count.

Each side is a process of its own. Clients are threads of that process, and
requests are put together as TensorFlow Serving does it, by threads that take
what is waiting (`peers.side.Batched`): so the model, its threads and batching
are measured, without network and without a server's own work. `--model` is an
export that is there already. The last line is all figures as JSON.
"""

import json
import os
import pathlib
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from infoword_tf import commands

os.environ['KERAS_BACKEND'] = 'tensorflow'

INIT = flags.DEFINE_string('init', None, 'The workdir of a finished run.')
MODEL = flags.DEFINE_string(
    'model', None, 'An export of it, DIR/1; it is made where none is named.')
PEERS = flags.DEFINE_string(
    'peers', None, 'A sentence-transformers folder with the same weights.')
LINES = flags.DEFINE_multi_string(
    'lines', [], 'Files with a sentence a line, up to a tab, for pydocs.')
TURNS = flags.DEFINE_integer(
    'turns', 5, 'How often each setting is measured.', lower_bound=1)
SECONDS = flags.DEFINE_float(
    'seconds', 0.5, 'For how long clients ask.', lower_bound=0.1)
CLIENTS = flags.DEFINE_list('clients', ['1', '2', '8', '32'], 'How many ask.')

WORDS = 12
# Threads of other libraries go on spinning for so long after a call, and would
# take a core from whoever is measured next.
PAUSE = 0.3
OURS, ONNX, TORCH = 'savedmodel', 'onnxruntime', 'sentence-transformers'


class Setting(NamedTuple):
    """How a server is started.

    Attributes:
        side: by name, a process.
        batchers: threads that put requests together; 0: none does.
        wait: seconds that they wait for more requests.
    """

    side: str
    batchers: int = 0
    wait: float = 0.0

    @property
    def served(self) -> bool:
        """Whether it may be asked by several at once."""
        return not self.side.startswith('encode')

    def __str__(self) -> str:
        """As it stands in tables."""
        if not self.served:
            return self.side
        if not self.batchers:
            return f'{self.side}, no batching'
        waits = f' after {1e3 * self.wait:g} ms' if self.wait else ''
        return f'{self.side}, batches by {self.batchers}{waits}'


SETTINGS = (
    Setting('encode 1'),
    Setting('encode 2'),
    Setting(f'{OURS} 1'),
    Setting(f'{OURS} 1', 2),
    Setting(f'{OURS} 1', 2, 0.002),
    Setting(f'{OURS} 2'),
    Setting(f'{OURS} 2', 1),
    Setting(f'{OURS} 2', 2, 0.002),
    Setting(f'{ONNX} 1'),
    Setting(f'{ONNX} 1', 2),
    Setting(f'{ONNX} 2'),
    Setting(f'{ONNX} 2', 1),
    # Its tokenizer refuses to be asked by two threads at once.
    Setting(f'{TORCH} 1', 1),
    Setting(f'{TORCH} 2', 1),
)


def start(model: str) -> dict[str, Any]:
    """`peers.Side`s by name: each with one thread, and with two."""
    from benchmarks import peers

    kinds = [(OURS, model, -1), ('encode', INIT.value)]
    if PEERS.value:
        kinds += [(ONNX, PEERS.value), (TORCH, PEERS.value)]
    return {
        f'{kind} {n}': peers.Side(kind, path, f'{kind} {n}', n, *more)
        for kind, path, *more in kinds
        for n in (1, 2)
    }


def apart(sides: dict[str, Any], text: str) -> dict[str, float]:
    """By side, how far its vector of a text is from that of the first."""
    vectors = {name: side.ask([text])[1] for name, side in sides.items()}
    first = next(iter(vectors.values()))
    return {
        name: float(np.abs(vector - first).max())
        for name, vector in vectors.items()
    }


def many_clients(
    sides: dict[str, Any], words: Sequence[str]
) -> list[dict[str, Any]]:
    """Prints how many texts a second each setting answers."""
    from benchmarks import peers

    texts = [batch[0] for batch in peers.batches_of(words, 1, WORDS, 200)]
    settings = [s for s in SETTINGS if s.side in sides]
    clients = [int(number) for number in CLIENTS.value]
    rates: dict[Any, list[float]] = {}
    processor: dict[Any, list[float]] = {}
    waits: dict[Any, list[np.ndarray]] = {}
    for turn in range(TURNS.value):
        shift = turn * len(settings) // TURNS.value
        for setting in settings[shift:] + settings[:shift]:
            for n in clients if setting.served else (1,):
                time.sleep(PAUSE)
                rate, waited, took = sides[setting.side].at_once(
                    texts, n, SECONDS.value, setting.batchers, setting.wait
                )
                rates.setdefault((setting, n), []).append(rate)
                waits.setdefault((setting, n), []).append(waited)
                processor.setdefault((setting, n), []).append(1e3 * took)
    print(
        'by clients: texts/s (lowest-highest turn), p50 and p99 ms, ms of '
        'processor time a text\n'
        f'{"":<42}' + ''.join(f'{n:>38}' for n in clients)
    )
    found = []
    for setting in settings:
        line = f'{setting!s:<42}'
        for n in clients if setting.served else (1,):
            rate = rates[setting, n]
            p50, p99 = np.percentile(
                1e3 * np.concatenate(waits[setting, n]), (50, 99)
            )
            line += (
                f'{np.median(rate):>8.0f} ({min(rate):.0f}-{max(rate):.0f})'
                f' {p50:>6.1f} {p99:>6.1f}'
                f' {np.median(processor[setting, n]):>5.1f}'
            ).rjust(38)
            found.append({
                'setting': str(setting), 'clients': n,
                'texts_per_s': float(np.median(rate)),
                'lowest': min(rate), 'highest': max(rate),
                'p50_ms': p50, 'p99_ms': p99,
                'processor_ms': float(np.median(processor[setting, n])),
            })  # fmt: skip
        print(line, flush=True)
    return found


def main() -> None:
    """Measures and prints the table."""
    from benchmarks import peers

    if INIT.value is None:
        raise commands.UsageError('--init is missing: name a workdir')
    lines = peers.read_lines(LINES.value) if LINES.value else peers.reference()
    words = ' '.join(lines).split()
    with tempfile.TemporaryDirectory() as folder:
        model = MODEL.value
        if model is None:
            from export import bundle

            model = str(bundle.write(INIT.value, pathlib.Path(folder)))
        sides = start(model)
        found = {
            'benchmark': 'onetext',
            'words': WORDS,
            'apart': apart(sides, ' '.join(words[:WORDS])),
            'clients': many_clients(sides, words),
        }
        for side in sides.values():
            side.close()
    print(f'vectors apart: {max(found["apart"].values()):.1e} at most')
    print(json.dumps(found))


if __name__ == '__main__':
    commands.start(main)
