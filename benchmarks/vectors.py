"""What vectors of a workdir are worth, by what people have said of texts.

For the tables `sentences` and `infocse` of benchmarks/tables.py; all of it in
one process, where a command for each set would start a dozen.
"""

import pathlib
import statistics

from benchmarks.kept import ROOT, read_json
from infoword_tf import files

STS = {
    'STS-B dev': 'sts/sts-dev.csv',
    'STS-B test': 'sts/sts-test.csv',
    'STS12': 'sts/STS12-en-test',
    'STS14': 'sts/STS14-en-test',
    'STS15': 'sts/STS15-en-test',
}
MEAN, SEARCH = 'mean of STS', 'SciFact nDCG@10'
BEIR = 'scifact'
START, TEXTS = 'runs/sentences_start', 'texts'
DATA = START, TEXTS, 'pairs.csv', *STS.values(), BEIR

_POOLED = (
    'infoword_tf.train',
    f'--flagfile={ROOT / "tasks" / "flags" / "simcse_mini.flags"}',
    '--simcse.head=none',
    '--learning_rate=0',
    '--steps=1',
)
_FITTED = (
    f'--init={START}',
    f'--corpus=text:{TEXTS}/*.txt',
    '--pooling=first_last',
)
# The start, and what is made of it without training the encoder.
MADE = {
    'the start, [CLS]': (*_POOLED, '--simcse.pooling=cls'),
    'the start, mean': (*_POOLED, '--simcse.pooling=mean'),
    'the start, first_last': (*_POOLED, '--simcse.pooling=first_last'),
    'the start, whitened': ('tasks.whiten', *_FITTED),
    'the start, by flow': ('tasks.flow', *_FITTED),
}


def judged(
    workdir: pathlib.Path, pooling: str | None = None
) -> dict[str, float]:
    """By the head of its column: Spearman x 100 of pairs, of search nDCG@10.

    What was measured is kept in WORKDIR/vectors.json.

    Args:
        workdir: whose vectors.
        pooling: theirs, compared by cosine; None: as the workdir has it.
    """
    path = workdir / f'{pooling or "vectors"}.json'
    if path.exists():
        return read_json(path)
    import infoword_tf
    from infoword_tf.evaluation import judgements
    from infoword_tf.training.evaluators import Evaluator

    loaded = infoword_tf.load(workdir)
    if pooling:
        loaded.config = loaded.config.replace(
            pooling=pooling, similarity='cosine'
        )

    def measured(spec: str) -> float:
        (value,) = Evaluator(judgements.read(spec), loaded)().values()
        return value

    each = {name: measured(f'sts:{data}') for name, data in STS.items()}
    found = {
        MEAN: statistics.fmean(each.values()),
        **each,
        SEARCH: measured(f'retrieval:{BEIR}'),
    }
    files.write_json(path, found)
    return found
