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

import os
import pathlib
import tempfile
import time
from collections.abc import Mapping, Sequence
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
    'turns', 3, 'How often each setting is measured.', lower_bound=1)
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
BASIS = SETTINGS[3]  # what export/serving/ has


class Clients:
    """So many of them, who ask a side: a contestant of `turns`.

    Attributes:
        name, group: how the server is started, and how many ask.
    """

    def __init__(self, side: Any, setting: Setting, clients: int):
        """Args: the process, which others share; the rest as the attributes."""
        self.name = str(setting)
        self.group = f'{clients} client' + 's' * (clients > 1)
        self._side, self._setting, self._clients = side, setting, clients
        self.waited: list[list[float]] = []  # by turn
        self.processor: list[float] = []

    @property
    def facts(self) -> dict[str, Any]:
        """As of the side."""
        return self._side.facts

    def ask(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Has the texts asked for, for so many seconds."""
        time.sleep(PAUSE)
        answer = self._side.ask({
            **asked, 'clients': self._clients,
            'batchers': self._setting.batchers, 'wait': self._setting.wait,
        })  # fmt: skip
        self.waited.append(answer.pop('waited'))
        self.processor.append(answer['processor'])
        return answer

    def used(self) -> Any:
        """By the side, so far."""
        return self._side.used()

    def close(self) -> None:
        """The side is ended by whoever started it."""


def start(model: str) -> dict[str, Any]:
    """`peers.Side`s by name: each with one thread, and with two."""
    from benchmarks import peers

    kinds = [('encode', INIT.value, ()), (OURS, model, (-1,))]
    if PEERS.value:
        kinds += [(ONNX, PEERS.value, ()), (TORCH, PEERS.value, ())]
    return {
        f'{kind} {n}': peers.Side(kind, path, f'{kind} {n}', n, more=more)
        for kind, path, more in kinds
        for n in (1, 2)
    }


def contest(sides: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """A record of `turns`: a group for each number of clients."""
    from benchmarks import peers, turns

    texts = [batch[0] for batch in peers.batches_of(words, 1, WORDS, 200)]
    contestants = [
        Clients(sides[setting.side], setting, n)
        for n in map(int, CLIENTS.value)
        for setting in SETTINGS
        if setting.side in sides and (setting.served or n == 1)
    ]
    # The first turn traces graphs.
    asked = [{'texts': texts, 'seconds': SECONDS.value}] * (1 + TURNS.value)
    record = turns.compete(contestants, 'texts', asked, warm_up=1)
    record |= {'kind': 'clients', 'basis': str(BASIS)}
    for row, each in zip(record['rows'], contestants, strict=True):
        if 'failed' not in row:
            waited = np.concatenate(each.waited[1:])
            row['percentiles'] = np.percentile(waited, (50, 99)).tolist()
            row['processor'] = float(np.median(each.processor[1:]))
            # Not of the pauses.
            row['cores'] = row['processor'] * float(
                np.median(np.divide(row['amounts'], row['seconds']))
            )
    return record


def main() -> None:
    """Measures and prints the table."""
    from benchmarks import peers, report, turns

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
        with turns.ended(list(sides.values())):
            report.show(contest(sides, words))


if __name__ == '__main__':
    commands.start(main)
