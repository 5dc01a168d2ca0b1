"""A guide: a workdir whose vectors tell which candidates are no negatives.

Before training begins, the guide encodes each text of `--pairs` once, as a
string: its vocabulary and its size need not be those of the run, and no step
encodes with it. Its vectors are kept in the cache, under a hash of its weights
and of the texts. (Sentences of a corpus have no guide: a and b are copies of
one sentence, which every guide finds alike.)

A judge is one that reads both texts at once: its score of the first text of an
example with each other one, for rows that learn from it (objectives/judged.py).

Glossary of shapes: n examples, J texts of each, G width of the guide.
"""

import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

import infoword_tf
from infoword_tf import files
from infoword_tf.config import WEIGHTS

AT_ONCE = 1 << 16  # texts that are encoded by one call


class Guide:
    """Workdir that makes vectors of texts.

    Attributes:
        folder: the workdir.
        digest: hash of its weights.
        what, dtype: its numbers, in words and on disk.
        ignored: fields of the config that do not change its numbers.
    """

    what = 'vectors'
    dtype: type[np.floating] = np.float16
    ignored: tuple[str, ...] = ('rows', 'run', 'replicas', 'precision')

    def __init__(self, folder: str):
        """Loads the workdir.

        Raises:
            FileNotFoundError: it is no workdir.
            ValueError: it makes no vectors of texts.
        """
        self.folder, self.loaded = folder, infoword_tf.load(folder)
        self.digest = files.digest_of(pathlib.Path(folder) / WEIGHTS)

    def numbers(self, texts: Sequence[Sequence[str]]) -> np.ndarray:
        """Encodes texts as `encode` does, with the guide's prompts.

        Args:
            texts: J times [n]; the first of an example is a query, the others
                are passages.

        Returns:
            [n, J, G] float16 on disk; 0 where a text is ''.

        Raises:
            OSError: the disk is full.
        """
        path = files.cache_dir() / 'guides' / f'{self._key(texts)}.npy'
        if not path.is_file():
            shape = len(texts[0]), len(texts), self.width
            print(
                f'{self.folder}: its {self.what} of {shape[0]:,} examples are '
                f'kept in {path}',
                flush=True,
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            with files.written(path) as partial:
                vectors = np.lib.format.open_memmap(
                    partial, 'w+', self.dtype, shape
                )
                for k, column in enumerate(texts):
                    present = np.flatnonzero([text != '' for text in column])
                    for begin in range(0, len(present), AT_ONCE):
                        chunk = present[begin : begin + AT_ONCE]
                        vectors[chunk, k] = self.compute(texts, k, chunk)
                vectors.flush()
        return np.load(path, mmap_mode='r')

    @property
    def width(self) -> int:
        """G."""
        return self.loaded.vector_width()

    def compute(
        self, texts: Sequence[Sequence[str]], k: int, chunk: np.ndarray
    ) -> np.ndarray:
        """Computes the numbers [m, G] of texts k of examples `chunk` [m]."""
        config = self.loaded.config
        return self.loaded.encode(
            [texts[k][i] for i in chunk],
            prompt=config.prompt_for('passage' if k else 'query'),
            normalize=True,
        )

    def _key(self, texts: Sequence[Sequence[str]]) -> str:
        """Hashes weights, settings and texts."""
        config = self.loaded.config.to_json()
        for name in self.ignored:
            del config[name]
        digest = hashlib.blake2b(self.digest.encode(), digest_size=10)
        digest.update(json.dumps(config, sort_keys=True).encode())
        for column in texts:
            digest.update('\0'.join(column).encode('utf-8', 'replace'))
            digest.update(b'\1')
        return digest.hexdigest()


class Judge(Guide):
    """Workdir that scores the first text of an example with each other one."""

    what, width = 'scores', 1
    dtype = np.float32
    ignored = ('run', 'replicas', 'precision')

    def compute(
        self, texts: Sequence[Sequence[str]], k: int, chunk: np.ndarray
    ) -> np.ndarray:
        """Overrides `Guide.compute`; 0 for the first text."""
        if not k:
            return np.zeros((len(chunk), 1), self.dtype)
        first, other = ([texts[x][i] for i in chunk] for x in (0, k))
        scores = self.loaded.score_pairs(first, other, progress=True)
        return scores[:, None]


KINDS = {'guide': Guide, 'teacher': Judge}  # by name of the setting


def open_guides(folders: Mapping[str, str]) -> dict[str, Guide]:
    """Opens workdirs of guides and judges, by flag."""
    return {
        flag: KINDS[flag.rpartition('.')[2]](folder)
        for flag, folder in folders.items()
    }
