"""How fast texts become vectors, beside other programs with the same weights.

    python -m benchmarks.encode --init=runs/quickstart
    python -m benchmarks.encode --init=MiniLM --peers=MiniLM --ask=calls

--peers is a folder of sentence-transformers with the weights of --init; without
it ours alone are asked. Every side is a process of its own (peers/), all are
asked in turns, and every text is asked for as a string. What is asked, --ask:

texts: sentences of `pydocs` or of --lines, as they come, all in one call.
calls: an export of --init, as a server runs it: 32 texts of 100 words in a
    call, and one of 12. A server adds its network and its queue.
clients: one text of 12 words, as a search box sends it, by many clients at once
    and by the settings of a server (SETTINGS). Each client waits for its vector
    before it asks again; requests are put together as TensorFlow Serving does
    it, by threads that take what is waiting. Processor time, of all threads of
    a side, is what other work disturbs least; threads that spin count.
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
# Threads of other libraries go on spinning for so long after a call, and would
# take a core from whoever is measured next.
PAUSE = 0.3
CALLS = {(32, 100): 0.1, (1, 12): 1.0}  # texts, words: share of the rounds
WARM_UP, WORDS = 20, 12


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    init: str | None = flag(None, 'Whose vectors.', model=True)
    peers: str | None = flag(
        None, 'A sentence-transformers folder with the same weights.')
    ask: str = flag(
        'texts', 'What is asked.', choices=('texts', 'calls', 'clients'))
    lines: tuple[str, ...] = flag(
        (), 'Files with a sentence a line, up to a tab, instead of pydocs or, '
        'for calls and clients, the reference of the language.')
    texts: int = flag(2000, 'Sentences at most.', at_least=1)
    rounds: int = flag(3, 'Turns of each.', at_least=1)
    precision: str = flag(
        'float32', 'What an export computes in.',
        choices=('float32', 'bfloat16'))
    seconds: float = flag(0.5, 'For how long clients ask.', at_least=0.1)
    clients: tuple[str, ...] = flag(
        ('1', '2', '8', '32'), 'How many of them ask at once.')


def sentences(given: Choices) -> list[str]:
    """Reads --lines, or some of `pydocs`, or the reference of the language."""
    from infoword_tf.data import corpora

    if given.lines:
        return [
            line.split('\t')[0]
            for path in given.lines
            for line in pathlib.Path(path).read_text().splitlines()
        ][: given.texts]
    if given.ask in ('calls', 'clients'):
        return peers.reference()
    first: list[str] = []
    for document in corpora.open_corpus('pydocs').train():
        first += document.sentences
        if len(first) >= given.texts:
            break
    return first[: given.texts]


def of_texts(given: Choices) -> dict[str, Any]:
    """Asks for all texts in one call: a record of `turns`."""
    kinds = [TORCH, ONNX] if given.peers else []
    sides = [peers.start(kind, given.peers) for kind in kinds]
    sides += [peers.start('encode', given.init),
              peers.start('encode', given.init, 'encode 1', 1)]  # fmt: skip
    texts = sentences(given)
    with turns.ended(sides):
        return peers.in_turns(sides, [texts] * (1 + given.rounds))


# ----------------------------------------------------------------------- calls


def of_calls(given: Choices, model: str) -> dict[str, Any]:
    """Asks an export and peers for small calls: a record of `turns`."""
    kinds = [TORCH, ONNX] if given.peers else []
    if given.peers and given.precision != 'float32':
        kinds.append(f'{TORCH}-{given.precision}')
    sides = [peers.start(OURS, model)]
    sides += [peers.start(kind, given.peers) for kind in kinds]
    words = ' '.join(sentences(given)).split()
    records = []
    with turns.ended(sides):
        for (texts, length), share in CALLS.items():
            warm_up = max(2, round(WARM_UP * share))
            rounds = warm_up + max(5, round(given.rounds * share))
            batches = peers.batches_of(words, texts, length, rounds)
            record = peers.in_turns(sides, batches, warm_up)
            for row in record['rows']:
                row['group'] = f'{texts} of {length} words, {given.precision}'
            records.append(record)
    return report.merged(records) | {'basis': sides[min(1, len(kinds))].name}


# --------------------------------------------------------------------- clients


class Setting(NamedTuple):
    """How a server is started.

    Attributes:
        side: by name, a process.
        batchers: threads that put requests together; 0: none does.
    """

    side: str
    batchers: int = 0

    @property
    def served(self) -> bool:
        """Whether it may be asked by several at once."""
        return not self.side.startswith('encode')

    def __str__(self) -> str:
        """Its name in tables."""
        if not self.served:
            return self.side
        if not self.batchers:
            return f'{self.side}, no batching'
        return f'{self.side}, batches by {self.batchers}'


SETTINGS = (
    Setting('encode 1'),
    Setting('encode 2'),
    Setting(f'{OURS} 1'),
    Setting(f'{OURS} 1', 2),
    Setting(f'{OURS} 2'),
    Setting(f'{OURS} 2', 1),
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
    """So many clients of a side, a contestant of `turns`.

    Attributes:
        name, group: how the server is started, and how many ask.
        waited, processor: by turn, what it said of them.
    """

    def __init__(self, side: Any, setting: Setting, clients: int):
        """Args: the process, which others share; the rest as the attributes."""
        self.name = str(setting)
        self.group = f'{clients} client' + 's' * (clients > 1)
        self._side, self._setting, self._clients = side, setting, clients
        self.waited: list[list[float]] = []
        self.processor: list[float] = []

    @property
    def facts(self) -> dict[str, Any]:
        """What the side says of itself."""
        return self._side.facts

    def ask(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Has the texts asked for, for so many seconds."""
        time.sleep(PAUSE)
        answer = self._side.ask({
            **asked, 'clients': self._clients,
            'batchers': self._setting.batchers,
        })  # fmt: skip
        self.waited.append(answer.pop('waited'))
        self.processor.append(answer['processor'])
        return answer

    def used(self) -> Any:
        """Says what the side has used so far."""
        return self._side.used()

    def close(self) -> None:
        """Does nothing: the side is ended by whoever started it."""


def started(given: Choices, model: str) -> dict[str, turns.Served]:
    """Starts all sides, each with one thread and with two; by name."""
    kinds = [('encode', given.init, ()), (OURS, model, (-1,))]
    if given.peers:
        kinds += [(ONNX, given.peers, ()), (TORCH, given.peers, ())]
    return {
        f'{kind} {n}': peers.start(kind, path, f'{kind} {n}', n, more)
        for kind, path, more in kinds
        for n in (1, 2)
    }


def of_clients(
    given: Choices, sides: Mapping[str, Any], words: Sequence[str]
) -> dict[str, Any]:
    """Lets clients ask: a record of `turns`, a group a number of clients."""
    texts = [batch[0] for batch in peers.batches_of(words, 1, WORDS, 200)]
    contestants = [
        Clients(sides[setting.side], setting, n)
        for n in map(int, given.clients)
        for setting in SETTINGS
        if setting.side in sides and (setting.served or n == 1)
    ]
    # The first turn traces graphs.
    asked = [{'texts': texts, 'seconds': given.seconds}] * (1 + given.rounds)
    record = turns.compete(contestants, 'texts', asked, warm_up=1)
    for row, each in zip(record['rows'], contestants, strict=True):
        if 'failed' not in row:
            waited = np.concatenate(each.waited[1:])
            row['percentiles'] = np.percentile(waited, (50, 99)).tolist()
            row['processor'] = float(np.median(each.processor[1:]))
            # Not of the pauses.
            row['cores'] = row['processor'] * float(
                np.median(np.divide(row['amounts'], row['seconds']))
            )
    return record | {'basis': str(BASIS)}


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> None:
    """Measures and prints the table.

    Raises:
        UsageError: no workdir is named.
    """
    del chosen
    commands.require(vars(given), init='a workdir')
    if given.ask == 'texts':
        record = of_texts(given)
    else:
        from export import bundle

        with tempfile.TemporaryDirectory() as folder:
            model = str(bundle.write(
                given.init, pathlib.Path(folder), 1, given.precision
            ))  # fmt: skip
            if given.ask == 'calls':
                record = of_calls(given, model)
            else:
                words = ' '.join(sentences(given)).split()
                sides = started(given, model)
                with turns.ended(list(sides.values())):
                    record = of_clients(given, sides, words)
    settings = dataclasses.asdict(given)
    report.show(record | {'settings': settings})


if __name__ == '__main__':
    commands.start(run)
