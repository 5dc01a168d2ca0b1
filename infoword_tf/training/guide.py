"""A guide: a workdir whose vectors say which candidates are no negatives.

It reads the texts of `--pairs` as strings, each once, before training begins:
its vocabulary and its size need not be those of the run, and no step encodes
with it. Its vectors lie in the cache, under a hash of its weights and of the
texts, and are read from there by the examples of a batch. (Sentences of a
corpus have no guide: a and b are copies of one sentence, of which each guide
says that they are alike.)

Glossary of shapes: n examples, K texts of each, G width of the guide.
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
    """A workdir that makes vectors of texts.

    Attributes:
        folder: the workdir.
        digest: of its weights.
    """

    def __init__(self, folder: str):
        """Loads it.

        Raises:
            FileNotFoundError: it is no workdir.
            ValueError: its texts become no vectors.
        """
        self.folder, self.loaded = folder, infoword_tf.load(folder)
        self.digest = files.digest_of(pathlib.Path(folder) / WEIGHTS)

    def vectors(self, texts: Sequence[Sequence[str]]) -> np.ndarray:
        """Of K times [n] texts, [n, K, G] float16 on disk; 0 where one is ''.

        As `encode` has them, with the guide's prompts: that for queries before
        the first text of an example, that for passages before the others.

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
                kept = np.lib.format.open_memmap(
                    partial, 'w+', np.float16, shape
                )
                for k, column in enumerate(texts):
                    there = np.flatnonzero([text != '' for text in column])
                    for begin in range(0, len(there), AT_ONCE):
                        some = there[begin : begin + AT_ONCE]
                        kept[some, k] = self.loaded.encode(
                            [column[i] for i in some],
                            prompt=prompts[k > 0],
                            normalize=True,
                        )
                kept.flush()
        return np.load(path, mmap_mode='r')

    def _key(self, texts: Sequence[Sequence[str]]) -> str:
        """Other weights, settings or texts have another."""
        config = self.loaded.config.to_json()
        for name in ('rows', 'run', 'replicas', 'precision'):
            del config[name]
        digest = hashlib.blake2b(self.digest.encode(), digest_size=10)
        digest.update(json.dumps(config, sort_keys=True).encode())
        for column in texts:
            digest.update('\0'.join(column).encode('utf-8', 'replace'))
            digest.update(b'\1')
        return digest.hexdigest()
