"""Speed of the input pipeline, compared with training: tokens a second.

    python -m benchmarks.pipeline

On reference text of the standard library: training of `bert_nce`, tokenizing,
and batches of masked views through tf.data. Each is a process (`--serve`), and
all run in turns. Batches should come at least FASTER times as fast as training
takes them.
"""

import dataclasses
import itertools
import os
import pathlib
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks import report, turns
from infoword_tf import commands
from infoword_tf.choices import flag

os.environ['KERAS_BACKEND'] = 'tensorflow'

FASTER, WARM_UP = 5, 5
TRAINING, TOKENIZING = 'training', 'tokenizing'


@dataclasses.dataclass(frozen=True)
class PipelineChoices:
    """Choices of the command."""

    megabytes: float = flag(20.0, 'Text that is tokenized.', at_least=0.5)
    vocab_size: int = flag(8192, 'Tokens to learn.', at_least=100)
    size: str = flag('tiny', 'Of the encoder that is trained.')
    batch_size: int = flag(32, 'Sequences of a batch.', at_least=1)
    seq_len: int = flag(
        128, 'Tokens of a sequence, with specials.', at_least=8)
    batches: int = flag(300, 'Batches that are drawn.', at_least=1)
    steps: int = flag(
        30, f'Training steps of a turn, after a warm-up of {WARM_UP}.',
        at_least=1)
    rounds: int = flag(3, 'Turns of each.', at_least=1)
    precision: str = flag(
        'auto', 'As in training.',
        choices=('auto', 'float32', 'mixed_bfloat16'))
    serve: str | None = flag(
        None, f'Only: answer lines, as {TRAINING}, {TOKENIZING} or the name '
        'of a masking.')


def read_documents() -> list[Any]:
    """Reads the reference of the language, half a megabyte of real text."""
    from pydoc_data import topics

    from infoword_tf.data.documents import Document, split_sentences

    return [
        Document(tuple(split_sentences(text)), name)
        for name, text in topics.topics.items()
    ]


def repeated(documents: Sequence[Any], megabytes: float) -> Iterator[Any]:
    """Yields documents again and again, up to an amount of text."""
    size = sum(len(d.text.encode()) for d in documents)
    times = max(1, round(megabytes * 1e6 / size))
    return itertools.chain.from_iterable(itertools.repeat(documents, times))


def tokenizing(
    choices: PipelineChoices, documents: Sequence[Any], tokenizer: Any
) -> Callable[[], dict[str, int]]:
    """Makes turns of `store.tokenized`, whose amounts are tokens."""
    from infoword_tf.data import store

    for _ in store.tokenized(documents, tokenizer):  # warm
        pass

    def turn() -> dict[str, int]:
        text = repeated(documents, choices.megabytes)
        tokens = store.tokenized(text, tokenizer)
        return {'amount': sum(len(ids) for ids, _, _ in tokens)}

    return turn


def make_batches(
    choices: PipelineChoices,
    text: Any,
    tokenizer: Any,
    masking: str,
    row: str = 'mlm',
) -> Any:
    """Makes batches of the view that a row reads, by a kind of masking."""
    from infoword_tf.data.batches import Batches, open_sources
    from infoword_tf.plan import make_plan

    plan = make_plan({row: {}}, choices.seq_len, masking)
    sources = open_sources(text, plan, choices.batch_size, 0)
    return Batches(sources, plan, tokenizer.specials, 0)


def drawing(choices: PipelineChoices, batches: Any) -> Callable[[], None]:
    """Makes turns of `Batches.dataset`."""
    count = WARM_UP + choices.rounds * choices.batches
    iterator = iter(batches.dataset(0, count))
    for _ in range(WARM_UP):
        next(iterator)

    def turn() -> None:
        for _ in range(choices.batches):
            next(iterator)

    return turn


def training(
    choices: PipelineChoices, text: Any, tokenizer: Any, batches: Any
) -> Callable[[], None]:
    """Makes turns of training `bert_nce`."""
    import tensorflow as tf

    from infoword_tf.model import Model
    from infoword_tf.objectives import Statistics
    from infoword_tf.resolve import ModelChoices, resolve
    from infoword_tf.training import distribution, loop, optim
    from infoword_tf.training.record import faster_precision
    from infoword_tf.training.state import State

    policy = choices.precision
    if policy == 'auto':
        policy = faster_precision()
    config = resolve(
        ModelChoices(
            size=choices.size,
            positions=max(512, choices.seq_len),
            seq_len=choices.seq_len,
            batch_size=choices.batch_size,
        )
    ).config(len(tokenizer), precision=policy)
    strategy = distribution.make_strategy('one')
    with strategy.scope():
        model = Model(config, tokenizer.specials)
        optimizer = optim.AdamW(model.trainable)
    steps = WARM_UP + choices.rounds * choices.steps
    trainer = loop.Trainer(
        batches.dataset(0, steps),
        State(model, strategy, choices.batch_size),
        optimizer,
        lambda step: optim.schedule(step, 1e-3, steps, steps),
        Statistics(text.counts, text.counts),
        seed=0,
    )
    trainer.train(tf.constant(WARM_UP))

    def turn() -> None:
        trainer.train(tf.constant(choices.steps))

    return turn


def contestant(
    choices: PipelineChoices, folder: pathlib.Path
) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Makes the contestant of --serve, for `turns.serve`.

    Amounts are tokens with padding. Turns are long, because some batches are
    made ahead during the turns of others.
    """
    from infoword_tf.data import store
    from infoword_tf.text import wordpiece
    from infoword_tf.text.wordpiece import WordPieceTokenizer

    documents = read_documents()
    tokens = wordpiece.learn((d.text for d in documents), choices.vocab_size)
    tokenizer = WordPieceTokenizer(tokens)
    if choices.serve == TOKENIZING:
        return tokenizing(choices, documents, tokenizer), {}
    text = store.write_store(
        folder, repeated(documents, choices.megabytes / 4), tokenizer,
        progress=False,
    )  # fmt: skip
    places = choices.batch_size * choices.seq_len
    if choices.serve == TRAINING:
        batches = make_batches(choices, text, tokenizer, 'spans', 'bert_nce')
        turn = training(choices, text, tokenizer, batches)
        return turn, {'amount': choices.steps * places}
    batches = make_batches(choices, text, tokenizer, choices.serve)
    turn = drawing(choices, batches)
    return turn, {'amount': choices.batches * places}


@commands.takes(PipelineChoices)
def run(choices: PipelineChoices, chosen: Mapping[str, Any]) -> None:
    """Serves one contestant, or runs all and prints the table."""
    if choices.serve:
        with tempfile.TemporaryDirectory() as folder:
            turns.serve(lambda: contestant(choices, pathlib.Path(folder) / 'x'))
        return
    from infoword_tf.views.masked import MASKINGS

    names = {
        TRAINING: f'training bert_nce, {choices.size}',
        TOKENIZING: f'tokenizing {choices.megabytes:g} MB',
        **{masking: f'batches, masked {masking}' for masking in MASKINGS},
    }
    record = turns.ways_of(
        'benchmarks.pipeline', names, commands.typed(chosen), 'tokens',
        choices.rounds,
    )  # fmt: skip
    for row, basis in report.grouped(record):
        times = statistics.median(report.ratios(row, basis))
        if row is not basis and times < FASTER:
            print(f'{row["name"]}: {times:.1f} times, and should be {FASTER}')
    report.show(record)


if __name__ == '__main__':
    commands.start(run)
