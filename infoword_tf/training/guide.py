"""A guide: a workdir whose vectors tell which candidates are no negatives.

Before training begins, the guide encodes each text of `--pairs` once, as a
string: its vocabulary and its size need not be those of the run, and no step
encodes with it. Its vectors are kept in the cache, under a hash of its weights
and of the texts. (Sentences of a corpus have no guide: a and b are copies of
one sentence, which every guide finds alike.)

Glossary of shapes: n examples, J texts of each, G width of the guide.
"""

import hashlib
import json
import pathlib
from collections.abc import Sequence

import numpy as np

import infoword_tf
from infoword_tf import files
from infoword_tf.config import WEIGHTS

AT_ONCE = 1 << 16  # texts that are encoded by one call


class Guide:
    """Workdir that makes vectors of texts.

    Attributes:
        folder: the workdir.
        digest: of its weights.
    """

    def __init__(self, folder: str):
        """Loads the workdir.

        Raises:
            FileNotFoundError: it is no workdir.
            ValueError: it makes no vectors of texts.
        """
        self.folder, self.loaded = folder, infoword_tf.load(folder)
        self.digest = files.digest_of(pathlib.Path(folder) / WEIGHTS)

    def vectors(self, texts: Sequence[Sequence[str]]) -> np.ndarray:
        """Encodes texts as `encode` does, with the guide's prompts.

        Args:
            texts: J times [n]; the first of an example is a query, the others
                are passages.

        Returns:
            [n, J, G] float16 on disk; 0 where a text is ''.

        Raises:
            OSError: the disk is full.
        """
        config = self.loaded.config
        prompts = [config.prompt_for('query'), config.prompt_for('passage')]
        path = files.cache_dir() / 'guides' / f'{self._key(texts)}.npy'
        if not path.is_file():
            shape = len(texts[0]), len(texts), self.loaded.vector_width()
            print(
                f'{self.folder}: its vectors of {shape[0]:,} examples are kept '
                f'in {path}',
                flush=True,
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            with files.written(path) as partial:
                vectors = np.lib.format.open_memmap(
                    partial, 'w+', np.float16, shape
                )
                for k, column in enumerate(texts):
                    present = np.flatnonzero([text != '' for text in column])
                    for begin in range(0, len(present), AT_ONCE):
                        chunk = present[begin : begin + AT_ONCE]
                        vectors[chunk, k] = self.loaded.encode(
                            [column[i] for i in chunk],
                            prompt=prompts[k > 0],
                            normalize=True,
                        )
                vectors.flush()
        return np.load(path, mmap_mode='r')

    def _key(self, texts: Sequence[Sequence[str]]) -> str:
        """Hashes weights, settings and texts."""
        config = self.loaded.config.to_json()
        for name in ('rows', 'run', 'replicas', 'precision'):
            del config[name]
        digest = hashlib.blake2b(self.digest.encode(), digest_size=10)
        digest.update(json.dumps(config, sort_keys=True).encode())
        for column in texts:
            digest.update('\0'.join(column).encode('utf-8', 'replace'))
            digest.update(b'\1')
        return digest.hexdigest()
