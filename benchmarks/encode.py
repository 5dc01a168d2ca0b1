"""Speed of encoding texts, compared with other programs and the same weights.

    python -m benchmarks.encode --init=runs/quickstart
    python -m benchmarks.encode --init=MiniLM --peers=MiniLM --ask=calls

--peers is a folder of sentence-transformers with the weights of --init; without
it only our programs run. Every side is a process (peers/) that takes strings;
sides run in turns. Requests, by --ask:

texts: sentences of `pydocs` or of --lines, all in one call.
calls: to an export of --init, run as by a server: 32 texts of 100 words in a
    call, and one text of 12 words. A server adds its network and its queue.
clients: one text of 12 words, like a search box, from many clients at once and
    by settings of a server (SETTINGS). Each client waits for its vector before
    the next request; threads batch waiting requests as TensorFlow Serving does.
    Processor time of all threads of a side, spinning threads included, is the
    figure that other work disturbs least.
"""

import dataclasses
import os
import pathlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import peers, report, turns
from infoword_tf import commands
from infoword_tf.choices import flag

os.environ['KERAS_BACKEND'] = 'tensorflow'

OURS, ONNX, TORCH = 'savedmodel', 'onnxruntime', 'sentence-transformers'
FROZEN, SMALL = 'savedmodel-frozen', 'onnxruntime-int8'
BRANCHES, COUNT = 'savedmodel in branches', 2  # as many run side by side
# Threads of other libraries go on spinning for so long after a call, which
# would take a core from the next contestant.
PAUSE = 0.3
CALLS = {(32, 100): 0.1, (1, 12): 1.0}  # texts, words: share of the rounds
WARM_UP, WORDS = 20, 12


@dataclasses.dataclass(frozen=True)
class EncodeChoices:
    """Choices of the command."""

    init: str | None = flag(None, 'The workdir that encodes.', model=True)
    peers: str | None = flag(
        None, 'A sentence-transformers folder with the same weights.')
    ask: str = flag(
        'texts', 'The kind of requests.', choices=('texts', 'calls', 'clients'))
    lines: tuple[str, ...] = flag(
        (), 'Files with a sentence a line, up to a tab, instead of pydocs or, '
        'for calls and clients, the reference of the language.')
    texts: int = flag(2000, 'Sentences at most.', at_least=1)
    rounds: int = flag(3, 'Turns of each.', at_least=1)
    precision: str = flag(
        'float32', 'Precision of an export, or of `encode` beside float32.',
        choices=('float32', 'bfloat16'))
    seconds: float = flag(0.5, 'For how long clients ask.', at_least=0.1)
    clients: tuple[str, ...] = flag(
        ('1', '2', '8', '32'), 'How many clients ask at once.')


def sentences(choices: EncodeChoices) -> list[str]:
    """Reads --lines, or `pydocs`, or the reference of the language."""
    from infoword_tf.data import corpora

    if choices.lines:
        return [
            line.split('\t')[0]
            for path in choices.lines
            for line in pathlib.Path(path).read_text().splitlines()
        ][: choices.texts]
    if choices.ask in ('calls', 'clients'):
        return peers.reference()
    first: list[str] = []
    for document in corpora.open_corpus('pydocs').train():
        first += document.sentences
        if len(first) >= choices.texts:
            break
    return first[: choices.texts]


def of_texts(choices: EncodeChoices) -> dict[str, Any]:
    """Asks for all texts in one call: a record of `turns`."""
    kinds = [TORCH, ONNX, SMALL] if choices.peers else []
    sides = [peers.start(kind, choices.peers) for kind in kinds]
    if choices.precision != 'float32':
        kind = f'encode-{choices.precision}'
        sides += [peers.start(kind, choices.init),
                  peers.start(kind, choices.init, f'{kind} 1', 1)]  # fmt: skip
    sides += [peers.start('encode', choices.init),
              peers.start('encode', choices.init, 'encode 1', 1)]  # fmt: skip
    texts = sentences(choices)
    with turns.closing(sides):
        return peers.in_turns(sides, [texts] * (1 + choices.rounds))


# ----------------------------------------------------------------------- calls


def of_calls(choices: EncodeChoices, model: str) -> dict[str, Any]:
    """Asks an export and peers for small calls: a record of `turns`."""
    kinds = [TORCH, ONNX, SMALL] if choices.peers else []
    if choices.peers and choices.precision != 'float32':
        kinds.append(f'{TORCH}-{choices.precision}')
    sides = [peers.start(OURS, model)]
    sides += [peers.start(kind, choices.peers) for kind in kinds]
    words = ' '.join(sentences(choices)).split()
    records = []
    with turns.closing(sides):
        for (texts, length), share in CALLS.items():
            warm_up = max(2, round(WARM_UP * share))
            rounds = warm_up + max(5, round(choices.rounds * share))
            batches = peers.batches_of(words, texts, length, rounds)
            record = peers.in_turns(sides, batches, warm_up)
            for row in record['rows']:
                row['group'] = f'{texts} of {length} words, {choices.precision}'
            records.append(record)
    return report.merged(records) | {'basis': sides[min(1, len(kinds))].name}


# --------------------------------------------------------------------- clients


class ServerSetting(NamedTuple):
    """A way to start a server.

    Attributes:
        side: name of a process.
        batchers: threads that batch requests; 0: no batching.
    """

    side: str
    batchers: int = 0

    @property
    def served(self) -> bool:
        """True if several clients may ask at once."""
        return not self.side.startswith('encode')

    def __str__(self) -> str:
        """Returns the name in tables."""
        if not self.served:
            return self.side
        if not self.batchers:
            return f'{self.side}, no batching'
        return f'{self.side}, batches by {self.batchers}'


SETTINGS = (
    ServerSetting('encode 1'),
    ServerSetting('encode 2'),
    ServerSetting(f'{OURS} 1'),
    ServerSetting(f'{OURS} 1', 2),
    ServerSetting(f'{OURS} 2'),
    ServerSetting(f'{OURS} 2', 1),
    ServerSetting(f'{FROZEN} 1'),
    ServerSetting(f'{FROZEN} 1', 2),
    ServerSetting(f'{FROZEN} 2'),
    ServerSetting(f'{BRANCHES} 1'),
    ServerSetting(f'{BRANCHES} 1', 2),
    ServerSetting(f'{ONNX} 1'),
    ServerSetting(f'{ONNX} 1', 2),
    ServerSetting(f'{ONNX} 2'),
    ServerSetting(f'{ONNX} 2', 1),
    ServerSetting(f'{SMALL} 1'),
    ServerSetting(f'{SMALL} 1', 2),
    ServerSetting(f'{SMALL} 2'),
    # Its tokenizer cannot be called by two threads at once.
    ServerSetting(f'{TORCH} 1', 1),
    ServerSetting(f'{TORCH} 2', 1),
)
BASIS = SETTINGS[3]  # the settings of export/serving/


class Clients:
    """A contestant of `turns`: several clients of one side.

    Attributes:
        name, group: the setting of the server, and the number of clients.
        waited, processor: seconds by turn, as `peers.side.at_once`.
    """

    def __init__(self, side: Any, setting: ServerSetting, clients: int):
        """Initializes clients of a side, which other contestants share."""
        self.name = str(setting)
        self.group = f'{clients} client' + 's' * (clients > 1)
        self._side, self._setting, self._clients = side, setting, clients
        self.waited: list[list[float]] = []
        self.processor: list[float] = []

    @property
    def facts(self) -> dict[str, Any]:
        """Facts about the side."""
        return self._side.facts

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Lets clients ask for the texts of a request."""
        time.sleep(PAUSE)
        answer = self._side.ask({
            **request, 'clients': self._clients,
            'batchers': self._setting.batchers,
        })  # fmt: skip
        self.waited.append(answer.pop('waited'))
        self.processor.append(answer['processor'])
        return answer

    def used(self) -> Any:
        """Returns the resources that the side has used so far."""
        return self._side.used()

    def close(self) -> None:
        """Leaves the side running, for other contestants."""


def start_sides(
    choices: EncodeChoices, model: str, branched: str
) -> dict[str, turns.Served]:
    """Starts all sides, each with one thread and with two; by name.

    `branched` is an export with branches, of which each has a thread.
    """
    kinds = [('encode', choices.init, ())]
    kinds += [(kind, model, (-1,)) for kind in (OURS, FROZEN)]
    if choices.peers:
        kinds += [(kind, choices.peers, ()) for kind in (ONNX, SMALL, TORCH)]
    name = f'{BRANCHES} 1'
    return {
        f'{kind} {n}': peers.start(kind, path, f'{kind} {n}', n, more)
        for kind, path, more in kinds
        for n in (1, 2)
    } | {name: peers.start(OURS, branched, name, 1, (COUNT,))}


def of_clients(
    choices: EncodeChoices, sides: Mapping[str, Any], words: Sequence[str]
) -> dict[str, Any]:
    """Lets clients ask: a record of `turns`, grouped by number of clients."""
    texts = [batch[0] for batch in peers.batches_of(words, 1, WORDS, 200)]
    contestants = [
        Clients(sides[setting.side], setting, n)
        for n in map(int, choices.clients)
        for setting in SETTINGS
        if setting.side in sides and (setting.served or n == 1)
    ]
    request = {'texts': texts, 'seconds': choices.seconds}
    requests = [request] * (1 + choices.rounds)  # the first traces graphs
    record = turns.compete(contestants, 'texts', requests, warm_up=1)
    for row, each in zip(record['rows'], contestants, strict=True):
        if 'failed' not in row:
            waited = np.concatenate(each.waited[1:])
            row['percentiles'] = np.percentile(waited, (50, 99)).tolist()
            row['processor'] = float(np.median(each.processor[1:]))
            # Without the pauses.
            row['cores'] = row['processor'] * float(
                np.median(np.divide(row['amounts'], row['seconds']))
            )
    return record | {'basis': str(BASIS)}


@commands.takes(EncodeChoices)
def run(choices: EncodeChoices, chosen: Mapping[str, Any]) -> None:
    """Measures and prints the table.

    Raises:
        UsageError: no workdir is named.
    """
    del chosen
    commands.require(vars(choices), init='a workdir')
    if choices.ask == 'texts':
        record = of_texts(choices)
    else:
        from export import bundle

        with tempfile.TemporaryDirectory() as folder:
            model = str(bundle.write(
                choices.init, pathlib.Path(folder), 1, choices.precision
            ))  # fmt: skip
            if choices.ask == 'calls':
                record = of_calls(choices, model)
            else:
                words = ' '.join(sentences(choices)).split()
                branched = str(bundle.write(
                    choices.init, pathlib.Path(folder, 'branched'), 1,
                    choices.precision, branches=COUNT,
                ))  # fmt: skip
                sides = start_sides(choices, model, branched)
                with turns.closing(list(sides.values())):
                    record = of_clients(choices, sides, words)
    settings = dataclasses.asdict(choices)
    report.show(record | {'settings': settings})


if __name__ == '__main__':
    commands.start(run)
