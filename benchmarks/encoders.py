r"""Speed of other encoders than BERT's, beside transformers.

    python -m benchmarks.encoders --tokenizer=MiniLM --workdir=runs/encoders
    python -m benchmarks.encoders --of=labels --data_dir=glue \
        --tokenizer=MiniLM --workdir=runs/encoders_labels

Encoders have random weights and the sizes of MiniLM (peers/folder.py), and read
the tokens of --tokenizer. Ours reads the same folders. By --of:

texts: `encode` of sentences of `pydocs`, beside sentence-transformers, eager
    and compiled by PyTorch.
labels: fine-tuning on a task of GLUE, beside transformers' Trainer, eager and
    with the encoder compiled.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from benchmarks import encode, kept, peers, report, trainers, turns
from infoword_tf import commands
from infoword_tf.choices import flag

FOLDER = kept.ROOT / 'benchmarks' / 'peers' / 'folder.py'
KINDS = 'mpnet', 'deberta', 'eurobert'
COMPILED = f'{encode.TORCH}, compiled'


@dataclasses.dataclass(frozen=True)
class EncodersChoices:
    """Choices of the command."""

    of: str = flag('texts', 'What is measured.', choices=('texts', 'labels'))
    kinds: tuple[str, ...] = flag(KINDS, 'Encoders.', choices=KINDS)
    tokenizer: str | None = flag(
        None, "A folder with the files of BERT's tokenizer."
    )
    data_dir: str | None = flag(None, "GLUE's data, of labels.")
    texts: int = flag(600, 'Sentences at most.', at_least=1)
    rounds: int = flag(3, 'Turns of each; of labels seeds.', at_least=1)
    steps: int = flag(24, 'Updates, of labels.', at_least=4)
    workdir: str | None = flag(None, 'Where all files go.')


def folder_of(kind: str, choices: EncodersChoices) -> pathlib.Path:
    """Makes a folder with random weights, unless made before."""
    path = pathlib.Path(choices.workdir).absolute() / kind
    if not (path / 'modules.json').exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        kept.call(
            path.with_suffix('.log'), str(kept.PEERS_PYTHON), str(FOLDER), kind,
            str(choices.tokenizer), str(path),
        )  # fmt: skip
    return path


def of_texts(kind: str, choices: EncodersChoices) -> dict[str, Any]:
    """Encodes sentences: a record of `turns`."""
    folder = str(folder_of(kind, choices))
    names = encode.TORCH, COMPILED, 'encode'
    sides = [peers.start(name, folder) for name in names]
    texts = encode.sentences(encode.EncodeChoices(texts=choices.texts))
    with turns.closing(sides):
        record = peers.in_turns(sides, [texts] * (1 + choices.rounds))
    for row in record['rows']:
        row['group'] = kind
    return record


def of_labels(kind: str, choices: EncodersChoices) -> dict[str, Any]:
    """Fine-tunes: a record of `turns`."""
    source = folder_of(kind, choices)
    return trainers.compete(
        trainers.TrainersChoices(
            source=str(source),
            data_dir=choices.data_dir,
            steps=choices.steps,
            seeds=choices.rounds,
            workdir=str(source.with_name(f'{kind}_labels')),
        ),
        kind,
        compiled=True,
    )


@commands.takes(EncodersChoices)
def run(choices: EncodersChoices, chosen: Mapping[str, Any]) -> None:
    """Measures and prints the table.

    Raises:
        UsageError: a choice is missing.
    """
    del chosen
    commands.require(vars(choices), tokenizer='a folder', workdir='a folder')
    measure = {'texts': of_texts, 'labels': of_labels}[choices.of]
    if choices.of == 'labels':
        commands.require(vars(choices), data_dir="GLUE's data")
    records = [measure(kind, choices) for kind in choices.kinds]
    settings = dataclasses.asdict(choices)
    report.show(report.merged(records) | {'settings': settings})


if __name__ == '__main__':
    commands.start(run)
