"""What a run may choose: each choice once, with its default, bounds and help.

`commands.takes` makes of a function of them one that is called by name from
Python, and as a command, whose flags are made of these fields. None was not
chosen.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, NamedTuple

# What is so where nothing else is said, but for the defaults of fields.
VOCAB_SIZE, POSITIONS, GELU, STEPS = 8192, 512, 'tanh', 1000
AUTO = (
    'auto: mixed_bfloat16 where the device multiplies matrices of bfloat16 '
    'itself (AMX, AVX512-BF16, a GPU of compute capability 8.0 or more, a '
    'TPU), else float32.'
)
SETTINGS = 'settings'  # the field of all flags --ROW.NAME


class Flag(NamedTuple):
    """A field's flag.

    Attributes:
        help: one sentence or two for --help.
        choices: all values of a string.
        at_least, at_most: of a number.
        shown: the default that --help shows, where what else was chosen
            decides it and the field's own is None.
    """

    help: str
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    shown: Any = None


def flag(default: Any, help: str, **more: Any) -> Any:
    """A field that is a flag too; `more` as of `Flag`."""
    return dataclasses.field(
        default=default, metadata={'flag': Flag(help, **more)}
    )


def again(kind: type, name: str, default: Any, **more: Any) -> Any:
    """A field of `kind` that begins elsewhere in a class made from it."""
    found = flags_of(kind)[name][1]._replace(**more)
    return flag(default, **found._asdict())


def flags_of(kind: type) -> dict[str, tuple[type, Flag]]:
    """By name of a field, its type (not None) and its flag."""
    found, hints = {}, typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if 'flag' in field.metadata:
            of = hints[field.name]
            if isinstance(of, types.UnionType):
                of = next(t for t in typing.get_args(of) if t is not type(None))
            of = typing.get_origin(of) or of
            found[field.name] = of, field.metadata['flag']
    return found


# --------------------------------------------------------------------- choices


@dataclasses.dataclass(frozen=True)
class TextChoices:
    """What a run may choose of its text."""

    corpus: str | None = flag(
        'pydocs', 'pydocs, or text:GLOB (one sentence or paragraph a '
        'line, a blank line between documents, also .gz), or lines:GLOB (one '
        'text whose line ends count; with --heldout), or '
        'tfds:NAME[/CONFIG][:FEATURE] (what tensorflow-datasets has prepared).')
    heldout: str | None = flag(
        None, 'GLOB of held-out text, of tfds: a split; without it '
        'what the corpus holds out by itself: 1 document in 100, at least one.')
    pairs: str | None = flag(
        None, 'GLOB of texts that belong together (.csv, .tsv, .jsonl, also '
        '.gz), for rows that contrast sentences: the columns are a, b and '
        'texts that do not belong to a.')
    pair_columns: tuple[str, ...] = flag(
        (), 'Names of these columns, in order; by default all, as they come.')
    heldout_pairs: str | None = flag(
        None, 'GLOB of held-out pairs; without it 1 in 20, by the hash of a.')
    tokenizer: str | None = flag(
        None, 'How text becomes pieces; by default as --vocab is, else '
        'wordpiece.', choices=('wordpiece', 'sentencepiece', 'words'))
    vocab: str | None = flag(
        None, 'A vocab.txt, a SentencePiece *.model or a words.txt; '
        'without it one is learned from the corpus.')
    vocab_size: int | None = flag(
        None, f'Pieces to learn; {VOCAB_SIZE} by default, every one of words.',
        at_least=1)
    lower_case: bool | None = flag(
        None, 'Lower-case text; wordpiece strips accents too. True by default, '
        'but of words.')


@dataclasses.dataclass(frozen=True)
class Choices:
    """What a run may choose of its model and of its batches.

    Attributes:
        settings: by 'ROW.NAME', of rows and their views; each is a flag.
    """

    objectives: str | None = flag(
        'bert_nce', 'A named sum, or weighted rows: bert_nce:1,mlm:0.5.')
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    masking: str | None = flag(
        None, 'What is masked; by default what the rows want, else tokens.',
        choices=('spans', 'words', 'tokens'))
    encoder: str | None = flag(
        None, 'Another encoder, where the rows allow it.')
    size: str | None = flag(
        None, 'tiny, mini, small, medium, base, large or elmo; tiny by '
        'default.')
    width: int | None = flag(
        None, 'Of vectors of the encoder lookup; 256 by default.', at_least=1)
    positions: int | None = flag(
        None, f'Positions of the encoder; {POSITIONS} by default.', at_least=1)
    dropout: float = flag(
        0.1, 'Share dropped of states and attention weights.', at_least=0.0,
        at_most=0.99)
    gelu: str | None = flag(
        None, "tanh: Google's BERT; erf: Hugging Face's. "
        f'{GELU} by default.', choices=('tanh', 'erf'))
    # Arguments of an encoder, named alike; not chosen, its own default counts.
    untie: bool | None = flag(
        None, 'transformer_xl, plm: biases u and v of each layer, not of '
        'all layers together; true by default.')
    clamp: int | None = flag(
        None, 'transformer_xl, plm: farther tokens are as far as this; '
        'without it no distance is cut.', at_least=1)
    same_length: bool | None = flag(
        None, 'transformer_xl: every token sees as many as the '
        'memory holds, the first of a step and the last; false by default.')
    seq_len: int = flag(
        128, 'Tokens of a sequence, with specials.', at_least=8)
    batch_size: int = flag(32, 'Sequences of the global batch.', at_least=1)
    memory_length: int | None = flag(
        None, 'Tokens of the steps before that an encoder with memory sees; '
        '--seq_len by default, 0: none.', at_least=0)


@dataclasses.dataclass(frozen=True)
class PaceChoices:
    """What a run may choose of its length, its optimizer and its records."""

    steps: int | None = flag(None, 'Updates.', at_least=1, shown=STEPS)
    minutes: float | None = flag(
        None, 'Instead of --steps: as many as fit, by the rate of the '
        'first ones; tracing and held-out values come on top.', at_least=1e-6)
    learning_rate: float = flag(1e-3, 'Highest learning rate.', at_least=0.0)
    warmup_steps: int | None = flag(
        None, 'Updates until it is reached; steps / 10 by default.',
        at_least=0)
    optimizer: str = flag(
        'infoword', 'Whose: moments, decay, clip and the shape of the schedule '
        'as published.', choices=(
            'infoword', 'adamw', 'bert', 'xlnet', 'gpt', 'transformer_xl',
            'elmo', 'word2vec'))
    weight_decay: float | None = flag(
        None, 'Decoupled decay, not of biases and norms; by default as '
        '--optimizer has it, 0.01.', at_least=0.0)
    clip_norm: float | None = flag(
        None, 'Largest global norm of the gradient, 0: no clip; by default as '
        '--optimizer has it, 1.', at_least=0.0)
    init_deviation: float | None = flag(
        None, 'Deviation of the first weights; 0.02 sqrt(768 / width) by '
        'default.', at_least=1e-6)
    layer_decay: float = flag(
        1.0, 'Share of the learning rate that each layer leaves to the one '
        'below it.', at_least=1e-6, at_most=1.0)
    freeze: bool = flag(
        False, 'Leave the encoder as --init has it; the rows alone are '
        'trained.')
    seed: int = flag(
        0, 'Of weights, text order, masks and dropout.', at_least=0)
    checkpoint_every: int | None = flag(
        None, 'Updates between checkpoints, rounded up to a logging step; '
        'steps / 10, at most 1000, by default.', at_least=1)
    keep_checkpoints: int = flag(2, 'How many are kept.', at_least=1)
    log_every: int | None = flag(
        None, 'Updates between logging steps; steps / 50, at most 100, by '
        'default.', at_least=1)
    eval_every: int | None = flag(
        None, 'Updates between held-out values, rounded up to a logging step; '
        'steps / 10 by default.', at_least=1)
    best: bool | None = flag(
        None, 'Keep the weights of the lowest held-out loss (of the sum, '
        'as --objectives weighs it) instead of the last.')
    patience_evals: int | None = flag(
        None, 'End after so many held-out values without a better one.',
        at_least=1)


@dataclasses.dataclass(frozen=True)
class DeviceChoices:
    """What a run may choose of what computes it."""

    strategy: str = flag(
        'one', 'tf.distribute: one device, all of this machine, several '
        'machines, a TPU.', choices=('one', 'mirrored', 'multiworker', 'tpu'))
    logical_cpus: int = flag(
        1, 'Splits the CPU into devices, to try --strategy=mirrored on.',
        at_least=1)
    precision: str = flag(
        'auto', AUTO, choices=('auto', 'float32', 'mixed_bfloat16'))
    microbatch: int | None = flag(
        None, 'Sequences of the global batch that are encoded at a time, for '
        'batches that need more memory than there is; the gradient is that of '
        'the whole batch.', at_least=1)
    xla: bool = flag(
        False, 'Compile forward and backward pass whole; for GPU and TPU.')


@dataclasses.dataclass(frozen=True)
class RunChoices(TextChoices, Choices, PaceChoices, DeviceChoices):
    """All that a run may choose."""

    init: str | None = flag(
        None, 'A workdir to start from: encoder, tokenizer, and the '
        'objectives of the same rows.')
    workdir: str | None = flag(None, 'Where the run lives.')

    def __post_init__(self) -> None:
        """Where the encoder is not trained nothing of it is dropped."""
        if self.freeze:
            object.__setattr__(self, 'dropout', 0.0)

    def decided(
        self, settings: Mapping[str, Any] | None = None, **fields: Any
    ) -> typing.Self:
        """With other values; settings that are None stay as they are."""
        found = {k: v for k, v in (settings or {}).items() if v is not None}
        return dataclasses.replace(
            self, settings={**self.settings, **found}, **fields
        )
