r"""Speed of exports, compared with the workdirs that they are of.

    python -m benchmarks.exports --inits=runs/cosine,runs/colbert,runs/reranker

Texts are held-out documents of `pydocs` without their first sentences, which
are the queries of a model of the critic `cross`. Both sides encode as
`tasks.retrieval` does, texts of like length together, in one process and in
turns; `apart` is the largest difference of what they compute.
"""

import dataclasses
import functools
import itertools
import pathlib
import resource
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import kept, report, turns
from export import bundle
from infoword_tf import commands
from infoword_tf.choices import flag
from infoword_tf.critics import CRITICS
from infoword_tf.evaluation import models, stages
from infoword_tf.evaluation.retrieval import corpus_task

Answer = Callable[[list[str], list[str]], Any]  # queries, passages


@dataclasses.dataclass(frozen=True)
class ExportsChoices:
    """Choices of the command."""

    inits: tuple[str, ...] = flag((), 'Workdirs, of any critic.')
    texts: int = flag(1000, 'Passages at most.', at_least=2)
    batch_size: int = flag(
        32, 'Texts of a call at most, of an export.', at_least=1)
    precision: str = flag(
        'float32', 'Precision of both.', choices=tuple(bundle.POLICIES))
    rounds: int = flag(3, 'Turns of each.', at_least=1)


def sides_of(
    init: str, folder: pathlib.Path, choices: ExportsChoices
) -> dict[str, Answer]:
    """Returns a workdir and an export, made in `folder`."""
    import infoword_tf

    version = bundle.write(init, folder, 1, choices.precision)
    loaded = infoword_tf.load(init, bundle.POLICIES[choices.precision])
    critic = loaded.config.critic
    if CRITICS[critic].of_pairs:
        return {
            'workdir': loaded.score_pairs,
            'export': models.exported_rate(version, choices.batch_size),
        }
    exported, _ = models.exported(
        version, choices.batch_size, critic=critic
    )
    encoders = {
        'workdir': models.encoder_of(loaded, critic, progress=False),
        'export': exported,
    }
    return {
        name: functools.partial(_encoded, encode)
        for name, encode in encoders.items()
    }


def _encoded(
    encode: stages.Encoder, queries: list[str], passages: list[str]
) -> Any:
    del queries
    return encode(passages, 'passage')


def numbers_of(answer: Any) -> np.ndarray:
    """Returns scores, vectors or weights as an array."""
    from scipy import sparse

    answer = getattr(answer, 'vectors', answer)  # of tokens
    return answer.toarray() if sparse.issparse(answer) else np.asarray(answer)


def compete(
    init: str, task: Sequence[list[str]], choices: ExportsChoices
) -> dict[str, Any]:
    """Lets a workdir and an export take turns: a record of `turns`."""
    answers: dict[str, np.ndarray] = {}

    def turn(name: str, answer: Answer) -> tuple[dict[str, Any], kept.Used]:
        began, before = time.perf_counter(), time.process_time()
        computed = answer(*task)
        seconds = time.perf_counter() - began
        used = kept.Used(
            time.process_time() - before,
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )
        answers[name] = numbers_of(computed)
        return {'seconds': seconds, 'amount': len(task[1])}, used

    with tempfile.TemporaryDirectory() as folder:
        sides = sides_of(init, pathlib.Path(folder), choices)
        contestants = [
            turns.Whole(name, functools.partial(turn, name, answer), init)
            for name, answer in sides.items()
        ]
        record = turns.compete(
            contestants, 'texts', [{}] * (1 + choices.rounds), warm_up=1
        )
    off = np.abs(answers['workdir'] - answers['export']).max()
    for row in record['rows']:
        row['apart'] = float(off)
    return record


@commands.takes(ExportsChoices)
def run(choices: ExportsChoices, chosen: Mapping[str, Any]) -> None:
    """Measures and prints the table.

    Raises:
        UsageError: no workdir is named.
    """
    del chosen
    commands.require(vars(choices), inits='workdirs')
    task = corpus_task('pydocs')
    size = min(choices.texts, task.size)
    passages = [text for _, text in itertools.islice(task.documents(), size)]
    texts = task.queries[:size], passages
    records = [compete(init, texts, choices) for init in choices.inits]
    settings = dataclasses.asdict(choices)
    report.show(report.merged(records) | {'settings': settings})


if __name__ == '__main__':
    commands.start(run)
