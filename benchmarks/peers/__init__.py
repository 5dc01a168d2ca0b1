"""Other people's programs on the same texts, in turns with ours.

Each side is a process of its own (`side.py`) with the same number of threads;
peers run in the environment that `make bench-peers` makes. Every round asks
all sides for the same texts, each time beginning with another one, so that
what else a machine does falls on all of them; what is reported are medians
and ratios.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PYTHON = ROOT / '.venv-peers' / 'bin' / 'python'
THREADS = 2


class Side:
    """A process that encodes what it is asked for.

    Attributes:
        ready: seconds from its imports to a model in memory.
        megabytes: of its weights, where the side says it, else None.
    """

    def __init__(
        self,
        kind: str,
        path: str,
        name: str | None = None,
        threads: int = THREADS,
        *more: int,
    ):
        """Starts it.

        Args:
            kind: in `side.SIDES`.
            path: of the model, as that side takes it.
            name: in tables; None: the kind.
            threads: that it computes with.
            more: numbers that this side takes besides.

        Raises:
            FileNotFoundError: a peer without its environment.
            RuntimeError: it does not start.
        """
        ours = kind in ('encode', 'savedmodel', 'litert')
        python = pathlib.Path(sys.executable) if ours else PYTHON
        if not python.exists():
            raise FileNotFoundError(f'{python} is missing: make bench-peers')
        self.name = name or kind
        self._process = subprocess.Popen(
            [python, ROOT / 'benchmarks/peers/side.py', kind, path,
             str(threads), *map(str, more)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, 'PYTHONPATH': str(ROOT) if ours else ''},
        )  # fmt: skip
        answer = self._answer()
        self.ready, self.megabytes = answer['ready'], answer['megabytes']

    def ask(
        self, texts: Sequence[str], batch_size: int = 32
    ) -> tuple[float, np.ndarray]:
        """Seconds, and the first and the last vector to length 1 [2, D]."""
        asked = {'texts': list(texts), 'batch_size': batch_size}
        self._process.stdin.write(json.dumps(asked) + '\n')
        self._process.stdin.flush()
        answer = self._answer()
        vectors = np.array(answer['vectors'], np.float32)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return answer['seconds'], vectors / norms

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """All vectors of some texts, as they are: [n, D] float32."""
        with tempfile.TemporaryDirectory() as folder:
            file = f'{folder}/vectors.npy'
            asked = {'texts': list(texts), 'batch_size': 32, 'file': file}
            self._process.stdin.write(json.dumps(asked) + '\n')
            self._process.stdin.flush()
            self._answer()
            return np.load(file)

    def at_once(
        self,
        texts: Sequence[str],
        clients: int,
        seconds: float,
        batchers: int = 0,
        wait: float = 0.0,
    ) -> tuple[float, np.ndarray, float]:
        """Answers a second to so many clients, how long each was waited for,
        and processor time of each, in seconds; args as of `side.at_once`.
        """
        asked = {'texts': list(texts), 'clients': clients, 'seconds': seconds,
                 'batchers': batchers, 'wait': wait}  # fmt: skip
        self._process.stdin.write(json.dumps(asked) + '\n')
        self._process.stdin.flush()
        answer = self._answer()
        waited = np.array(answer['waited'])
        rate = len(waited) / answer['seconds']
        return rate, waited, answer['processor']

    def _answer(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                f'{self.name} ended with {self._process.wait()}: run '
                'benchmarks/peers/side.py by hand to see why'
            )
        return json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()


def in_turns(
    sides: Sequence[Side],
    batches: Sequence[Sequence[str]],
    warm_up: int = 1,
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Asks all sides for each batch.

    Args:
        sides: the first is what others are compared with.
        batches: of texts, one a round.
        warm_up: rounds that are not counted.

    Returns:
        By side the seconds of each round, and how far its vectors were from
        those of the first side at most; nan where these are of another width.
    """
    seconds = {side.name: [] for side in sides}
    apart = {side.name: 0.0 for side in sides}
    for number, texts in enumerate(batches):
        start = number % len(sides)
        found = {}
        for side in [*sides[start:], *sides[:start]]:
            took, found[side.name] = side.ask(texts)
            if number >= warm_up:
                seconds[side.name].append(took)
        for name, vectors in found.items():
            first = found[sides[0].name]
            off = np.nan
            if vectors.shape == first.shape:
                off = np.abs(vectors - first).max()
            apart[name] = float(np.maximum(apart[name], off))
    return {name: np.array(took) for name, took in seconds.items()}, apart


def table(
    seconds: Mapping[str, np.ndarray], apart: Mapping[str, float], texts: int
) -> list[str]:
    """Lines for people: rates, percentiles, and how much longer others took.

    The ratio is the median over rounds of a side's seconds by the first's.
    """
    first = next(iter(seconds.values()))
    lines = [
        f'{"":<31} {"p50 ms":>9} {"p99 ms":>9} {"texts/s":>8} '
        f'{"x first":>8} {"p99 x":>6} {"apart":>8}'
    ]
    for name, took in seconds.items():
        p50, p99 = np.percentile(took, (50, 99))
        lines.append(
            f'{name:<31} {1e3 * p50:>9.2f} {1e3 * p99:>9.2f} '
            f'{texts / p50:>8,.0f} {np.median(took / first):>8.2f} '
            f'{p99 / np.percentile(first, 99):>6.2f} {apart[name]:>8.1e}'
        )
    return lines


def read_lines(paths: Sequence[str]) -> list[str]:
    """What stands in each line of files, up to a tab."""
    return [
        line.split('\t')[0]
        for path in paths
        for line in pathlib.Path(path).read_text().splitlines()
    ]


def reference() -> list[str]:
    """The reference of the language, sentence by sentence."""
    from pydoc_data import topics

    from infoword_tf.data.documents import split_sentences

    return [
        sentence
        for text in topics.topics.values()
        for sentence in split_sentences(text)
        if len(sentence.split()) > 3
    ]


def batches_of(
    words: Sequence[str], texts: int, length: int, count: int
) -> list[list[str]]:
    """Texts of `length` words each, as they follow each other, in batches."""
    made = []
    for number in range(count * texts):
        begin = number * length % (len(words) - length)
        made.append(' '.join(words[begin : begin + length]))
    return [made[i * texts : (i + 1) * texts] for i in range(count)]
