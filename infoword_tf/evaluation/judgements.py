"""Judgements by which a run measures its vectors: `--best=SCHEME:PATH`.

    sts:FILE                      Spearman x 100, see evaluation/sts.py
    retrieval:DIR                 nDCG@10 of a BEIR folder, its split test
    retrieval:DIR/qrels/dev.tsv   nDCG@10 of another split
    tatoeba:DIR                   accuracy in percent of finding translations,
                                  evaluation/bitext.py: the mean of both
                                  directions, over all languages of a folder
"""

import hashlib
import pathlib
from typing import NamedTuple

from infoword_tf import errors
from infoword_tf.evaluation import bitext, retrieval, sts

NAMES = {
    'sts': 'sts/spearman',
    'retrieval': 'retrieval/ndcg@10',
    'tatoeba': 'tatoeba/accuracy',
}


class Judgements(NamedTuple):
    """Judgements of texts by people.

    Attributes:
        spec: 'SCHEME:PATH'.
        name: name of the measure in records; higher is better.
        judged: scored pairs, a retrieval task, or the languages of a folder.
        fingerprint: changes when the files do.
    """

    spec: str
    name: str
    judged: sts.ScoredPairs | retrieval.RetrievalTask | list[bitext.Bitext]
    fingerprint: str


def read(spec: str) -> Judgements:
    """Reads the judgements 'SCHEME:PATH'.

    Raises:
        FileNotFoundError: a file or folder is missing.
        ValueError: there is no such scheme, or a file is malformed.
    """
    scheme, _, rest = spec.partition(':')
    if scheme not in NAMES or not rest:
        raise errors.InputError(
            'unknown_judgement',
            'expected sts:FILE (pairs with scores), retrieval:DIR (a BEIR '
            'folder) or tatoeba:DIR (translations)',
        )
    path = pathlib.Path(rest)
    judged: sts.ScoredPairs | retrieval.RetrievalTask | list[bitext.Bitext]
    if scheme == 'sts':
        judged = sts.read(path)
        files = sorted(path.glob('STS.*.txt')) if path.is_dir() else [path]
    elif scheme == 'tatoeba':
        judged = bitext.read(path)
        files = bitext.files_of(path)
    else:
        folder, split = path, 'test'
        if path.suffix == '.tsv' and not path.is_dir():
            folder, split = path.parent.parent, path.stem
        judged = retrieval.beir_task(folder, split)
        files = retrieval.files_of(folder, split)
    digest = hashlib.blake2b(digest_size=10)
    for file in files:
        with open(file, 'rb') as stream:
            file_digest = hashlib.file_digest(stream, hashlib.blake2b)
        digest.update(file_digest.digest())
    return Judgements(spec, NAMES[scheme], judged, digest.hexdigest())
