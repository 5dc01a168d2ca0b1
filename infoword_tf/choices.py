"""The choices of a run: each once, with default, bounds and help.

`commands.takes` makes of a function of choices one that is called with names in
Python, and a command with a flag for each field. None means that nothing was
chosen.
"""

import dataclasses
import functools
import operator
import re
import types
import typing
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from infoword_tf.adapters import ADAPTER, KINDS, NONE
from infoword_tf.adapters import SETTINGS as SETTINGS_OF_ADAPTERS
from infoword_tf.encoders import ENCODERS, FLAGS
from infoword_tf.languages import code_of
from infoword_tf.settings import Setting

DELIMITERS = {',': ',', ';': ';', 'tab': '\t', '|': '|'}  # of CSV
# Defaults of fields that are None because other choices may decide them.
VOCAB_SIZE, STEPS = 8192, 1000
AUTO = (
    'auto: mixed_bfloat16 where the device multiplies matrices of bfloat16 '
    'itself (AMX, AVX512-BF16, a GPU of compute capability 8.0 or more, a '
    'TPU), else float32.'
)
SETTINGS = 'settings'  # the field of all flags --ROW.NAME and --VIEW.NAME


class Flag(NamedTuple):
    """A field's flag.

    Attributes:
        help: one sentence or two.
        choices: all values of a string, or of each one of a list.
        at_least, at_most: bounds of a number.
        shown: the default that --help shows, where the field's is None
            because other choices decide the value.
        repeated: whether the flag may stand several times, each time with one
            value, which may have commas.
        model: whether the value names a workdir, or a public folder that
            `folders` converts.
    """

    help: str
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    shown: Any = None
    repeated: bool = False
    model: bool = False


def flag(default: Any, help: str, **more: Any) -> Any:
    """Returns a dataclass field that is a flag too; `more` as of `Flag`."""
    return dataclasses.field(
        default=default, metadata={'flag': Flag(help, **more)}
    )


def again(kind: type, name: str, default: Any, **more: Any) -> Any:
    """Repeats a field of `kind` for a subclass, with another default."""
    repeated = flags_of(kind)[name][1]._replace(**more)
    return flag(default, **repeated._asdict())


def flags_of(kind: type) -> dict[str, tuple[type, Flag]]:
    """Returns the type (without None) and the flag of each field, by name."""
    flags, hints = {}, typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if 'flag' in field.metadata:
            of = hints[field.name]
            kinds = [of]
            if isinstance(of, types.UnionType):
                kinds = [t for t in typing.get_args(of) if t is not type(None)]
            kinds = [typing.get_origin(kind) or kind for kind in kinds]
            of = functools.reduce(operator.or_, kinds)
            flags[field.name] = of, field.metadata['flag']
    return flags


def groups_of(kind: type) -> tuple[list[str], dict[str, list[str]]]:
    """Returns the flags that --help shows first, and all flags by group.

    A group are the flags of one class. If a class has `USUAL`, first are the
    flags of its subclasses, then those of `USUAL`; otherwise all flags.
    """
    usual = next((x for x in kind.__mro__ if 'USUAL' in vars(x)), object)
    left, first = list(flags_of(kind)), list[str]()
    groups: dict[str, list[str]] = {}
    for base in reversed(kind.__mro__):
        names = [x for x in left if x in vars(base).get('__annotations__', ())]
        left = [x for x in left if x not in names]
        if names:
            word = base.__name__.removesuffix('Choices').lower()
            word = word or base.__module__.rpartition('.')[2]
            groups = {'more' if base is kind else word: names, **groups}
        if not issubclass(usual, base):
            first += names
    return [*first, *getattr(usual, 'USUAL', ())], groups


def values_of(values: str | Sequence[str] | None) -> tuple[str, ...]:
    """Returns the values of a repeated flag, also of one string or None."""
    if not values:
        return ()
    return (values,) if isinstance(values, str) else tuple(values)


# A name before a corpus, of a language or not: --corpus=de=text:GLOB.
_NAMED = re.compile(
    r'([A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*)=(.+)', re.DOTALL
)
_LANGUAGE = re.compile('[a-z]{2,3}(_[a-z0-9]+)*')
_CORPUS = re.compile('[a-z]+:.*|pydocs', re.DOTALL)


def name_of(text: str) -> str:
    """Normalizes the name of a corpus; that of a language becomes a code."""
    code, *region = re.split('[-_]', text.lower())
    return '_'.join([code_of(code) or code, *region])  # a region stays: pt_br


def by_language(
    values: str | Sequence[str] | None, names: Container[str] | None = None
) -> dict[str, str]:
    """Returns the values of --corpus or --heldout by language, sorted.

    A corpus may have another name than a language's (web, books). The last
    value of a name counts, so that flags replace those of a flagfile. A corpus
    without a name, '', stands alone.

    Args:
        names: names of --corpus, where these are values of --heldout. Any other
            word before a = that is no language belongs to the GLOB.
    """
    by_name: dict[str, str] = {}
    for value in values_of(values):
        name = ''
        if named := _NAMED.fullmatch(value):
            code = name_of(named[1])
            if _LANGUAGE.fullmatch(code) or (
                _CORPUS.fullmatch(named[2]) if names is None else code in names
            ):
                name, value = code, named[2]
        if not name or '' in by_name:
            by_name.clear()
        by_name[name] = value
    return dict(sorted(by_name.items()))


# --------------------------------------------------------------------- choices


@dataclasses.dataclass(frozen=True)
class TextChoices:
    """Choices of the text."""

    corpus: tuple[str, ...] = flag(
        ('pydocs',), 'The text: pydocs, text:GLOB, jsonl:GLOB[:FIELD], '
        'parquet:GLOB[:COLUMN], arrow:DIR[:COLUMN], lines:GLOB, '
        'tfds:NAME[/CONFIG][:FEATURE] or store:DIR. In text: a line is a '
        'sentence or a paragraph, and a blank line ends a document. In jsonl:, '
        'parquet: and arrow: a record is a document; FIELD and COLUMN are '
        'text by default (nested ones as meta/title), and arrow: reads a '
        'folder of datasets.save_to_disk, or a GLOB. lines: is one running '
        'text whose line ends are tokens, and needs --heldout. tfds: was '
        'prepared by tensorflow-datasets, store: by infoword_tf.prepare. Text '
        'and JSON lines may be .gz or .zst. Repeat the flag for several '
        'languages or sources, each with a name: --corpus=de=text:GLOB.',
        repeated=True)
    heldout: tuple[str, ...] = flag(
        (), 'GLOB of held-out files, or a split of tfds:. By default a part of '
        'the corpus is held out: of files 1 document in 100, at least one. '
        'For several languages --heldout=de=GLOB.', repeated=True)
    language_exponent: float = flag(
        0.7, 'Each of several languages has a share of the updates '
        'proportional to its size to this power; 1: by size, 0: equal '
        'shares.', at_least=0.0)
    corpus_weights: tuple[str, ...] = flag(
        (), 'Shares of the updates for several --corpus, instead of shares by '
        'size, as web=3,books=1.')
    shuffle_block: int | None = flag(
        None, 'Tokens of text that are read at a time, for text on a network '
        'disk: blocks come in a random order, and the contents of some 64 '
        'blocks are shuffled together. By default the whole text is shuffled.',
        at_least=1)
    parallel: tuple[str, ...] = flag(
        (), 'Translations, for rows that read them: two files of aligned lines '
        '(europarl.{de,en}), or a .tsv; --parallel=en-de=... names the '
        'languages. Repeat the flag for more.', repeated=True)
    heldout_parallel: tuple[str, ...] = flag(
        (), 'Held-out translations; by default 1 in 100, chosen by the hash of '
        'the English text, or of the first.', repeated=True)
    drop_equal: bool = flag(
        False, 'Leave out translations whose two texts are equal.')
    pairs: str | None = flag(
        None, 'GLOB of paired texts (.csv, .tsv, .jsonl, .parquet, .arrow; .gz '
        'and .zst too), for rows that contrast sentences. The columns are a '
        'text, its positive, and any number of hard negatives; a cell may be '
        'a list of texts.')
    pair_columns: tuple[str, ...] = flag(
        (), 'Names of the columns a, b and negatives of --pairs; by default '
        'anchor, positive, negative and others that docs/data.md lists.')
    pair_negatives: int | None = flag(
        None, 'At most this many hard negatives of each pair, the first ones; '
        'all by default.', at_least=0)
    pair_delimiter: str | None = flag(
        None, 'Delimiter of .csv files of pairs; by default found in the first '
        'lines.', choices=tuple(DELIMITERS))
    heldout_pairs: str | None = flag(
        None, 'GLOB of held-out pairs; by default 1 pair in 20, chosen by the '
        'hash of its first text.')
    pair_weights: tuple[str, ...] = flag(
        (), 'Shares of the updates for the files of --pairs in the order of '
        'their names, as 2,1; by default by numbers of pairs.')
    tokenizer: str | None = flag(
        None, 'Tokenizer; by default the one that --vocab belongs to, else '
        'wordpiece.', choices=('wordpiece', 'sentencepiece', 'bytes', 'words'))
    vocab: str | None = flag(
        None, 'A vocab.txt, a SentencePiece *.model, a tokenizer.json of byte '
        'pairs or a words.txt; by default a vocabulary is learned from the '
        'corpus.')
    vocab_size: int | None = flag(
        None, f'Size of the learned vocabulary; {VOCAB_SIZE} by default, every '
        'word for --tokenizer=words.',
        at_least=1)
    lower_case: bool | None = flag(
        None, 'Lower-case text; wordpiece strips accents too. True by default, '
        'false for --tokenizer=bytes and words.')


def _of_encoders() -> Iterator[tuple[str, Any, Any]]:
    """Yields names, types and fields of the arguments that have a flag."""
    for name, argument_of in FLAGS.items():
        (first, argument), *_ = argument_of.items()
        setting = ENCODERS[first].settings[argument]
        kind, default = setting.kind or type(setting.default), setting.default
        begins = '' if default in (None, '') else f' By default {default}.'
        text = f'{setting.help}{begins} Encoders: {", ".join(argument_of)}.'
        more = {'choices': setting.choices, 'at_least': setting.at_least}
        yield name, kind | None, flag(None, text, **more)


# The fields are known when Python runs, not to a checker of types.
EncoderChoices: Any = dataclasses.make_dataclass(
    'EncoderChoices', _of_encoders(), frozen=True, kw_only=True
)


@dataclasses.dataclass(frozen=True)
class ModelChoices(EncoderChoices):
    """Choices of the model and of the batches.

    Attributes:
        settings: values by flag, of rows ('ROW.NAME') and views ('VIEW.NAME');
            in `RunChoices` of adapters too.
    """

    objectives: str = flag(
        'bert_nce', 'What is trained: a named sum, or rows with weights: '
        'bert_nce:1,mlm:0.5. With --pairs by default the sum pairs, with a '
        'length and a rate of its own from --init.')
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    masking: str | None = flag(
        None, 'Unit of masking; by default the one that the rows require, else '
        'tokens.',
        choices=('spans', 'words', 'tokens'))
    mask_share: float | None = flag(
        None, 'Share of the tokens that is masked; 0.15 by default.',
        at_least=0.01, at_most=0.9)
    encoder: str | None = flag(
        None, 'Encoder; from scratch by default the first of modern, '
        'transformer, relative, ... that all rows allow; of published sums the '
        'published one.')
    size: str | None = flag(
        None, 'Size of the encoder: tiny, mini, small, medium, base, large or '
        'elmo.', shown='tiny')
    dropout: float | None = flag(
        None, 'Dropout rate; 0.1 by default, 0 for a modern encoder below base '
        'that reads running text from scratch.', at_least=0.0, at_most=0.99)
    seq_len: int = flag(
        128, 'Sequence length in tokens, special tokens included.', at_least=8)
    batch_size: int = flag(
        32, 'Sequences of the global batch, over all devices.', at_least=1)
    memory_length: int | None = flag(
        None, 'Memory of the encoder relative: tokens of earlier steps that '
        'are attended to; --seq_len by default, 0: no memory.', at_least=0)


@dataclasses.dataclass(frozen=True)
class OptimizerChoices:
    """Choices of the length and the optimizer."""

    steps: int | None = flag(
        None, 'Number of updates.', at_least=1, shown=STEPS)
    minutes: float | None = flag(
        None, 'Training time instead of --steps, whose number is estimated '
        'from the speed of the first ones; tracing and held-out evaluation are '
        'not included.', at_least=1e-6)
    epochs: float | None = flag(
        None, 'Passes over pairs or labels, instead of --steps.', at_least=0.0)
    learning_rate: float = flag(1e-3, 'Peak learning rate.', at_least=0.0)
    warmup_steps: int | None = flag(
        None, 'Warm-up: updates until the peak learning rate; steps / 10 by '
        'default.',
        at_least=0)
    lr_decay: str | None = flag(
        None, 'Course of the learning rate after the warm-up: linear or cosine '
        'to 0, or none, which is level; by default that of --optimizer '
        '(infoword: linear).', choices=('linear', 'cosine', 'none'))
    optimizer: str = flag(
        'infoword', 'Preset of a published system: betas, weight decay, '
        'clipping and the shape of the learning-rate schedule.', choices=(
            'infoword', 'adamw', 'bert', 'xlnet', 'gpt', 'transformer_xl',
            'elmo', 'word2vec'))
    weight_decay: float | None = flag(
        None, 'Decoupled weight decay, not of biases and norms; by default '
        'that of --optimizer (infoword: 0.01).', at_least=0.0)
    clip_norm: float | None = flag(
        None, 'Scale all gradients down so that their common norm is at most '
        'this; 0: no clipping; by default that of --optimizer (infoword: 1).',
        at_least=0.0)
    moments: str = flag(
        'float32', "Type of Adam's averages between updates; bfloat16 takes "
        'half of the memory, with stochastic rounding.',
        choices=('float32', 'bfloat16'))
    init_deviation: float | None = flag(
        None, 'Standard deviation of the initial weights; 0.02 sqrt(768 / '
        'width) by default.', at_least=1e-6)
    layer_decay: float = flag(
        1.0, 'Layer-wise learning-rate decay: each layer has this share of the '
        'learning rate of the layer above it.', at_least=1e-6, at_most=1.0)
    freeze: bool = flag(
        False, 'Freeze the encoder of --init; only the weights of the rows are '
        'trained.')
    adapter: str = flag(
        NONE, 'Train adapters of the encoder of --init, and the weights of the '
        'rows, instead of all weights: lora (Hu et al. 2021). Sizes are '
        '--adapter.rank, --adapter.alpha, --adapter.where and '
        '--adapter.frozen.', choices=KINDS)
    seed: int = flag(
        0, 'Random seed of weights, text order, masks and dropout.', at_least=0)

    def steps_of(self, updates: int) -> int:
        """Returns --steps, or the updates of --epochs, by default of one."""
        epochs = 1.0 if self.epochs is None else self.epochs
        return self.steps or max(1, round(epochs * updates))


@dataclasses.dataclass(frozen=True)
class SavingChoices:
    """Choices of checkpoints, records, and of the weights that stay."""

    checkpoint_every: int | None = flag(
        None, 'Updates between checkpoints, rounded up to a logging step; '
        'steps / 10, at most 1000, by default.', at_least=1)
    keep_checkpoints: int = flag(
        2, 'Number of checkpoints that are kept.', at_least=1)
    on_nonfinite: str = flag(
        'stop', 'After a loss that is not finite: stop, or rewind to the '
        'weights of the last checkpoint and go on with the batch after the '
        'failed one.', choices=('stop', 'rewind'))
    rewinds: int = flag(
        3, 'Rewinds before the run stops after all.', at_least=1)
    grace_seconds: float = flag(
        25.0, 'Seconds after SIGTERM in which a run may save at its next '
        'logging step; then it ends without. The exit status is 42.',
        at_least=0.0)
    log_every: int | None = flag(
        None, 'Updates between logging steps; steps / 50, at most 100, by '
        'default.', at_least=1)
    eval_every: int | None = flag(
        None, 'Updates between held-out evaluations, rounded up to a logging '
        'step; steps / 10 by default.', at_least=1)
    best: bool | str | None = flag(
        None, 'Keep the best weights instead of the last ones: those with the '
        'lowest held-out loss (the weighted sum of --objectives), with the '
        "highest Spearman's correlation of similarities and people's scores "
        '(--best=sts:FILE, as --data of tasks.sts), or with the highest '
        'nDCG@10 of a BEIR folder (--best=retrieval:DIR, split test, or '
        '--best=retrieval:DIR/qrels/SPLIT.tsv), or that find most '
        'translations of a folder (--best=tatoeba:DIR).')
    measure: str | None = flag(
        None, 'A measure as of --best (sts:, retrieval:, tatoeba:) with every '
        'held-out evaluation; it chooses no weights.')
    patience_evals: int | None = flag(
        None, 'Early stopping: end after this many held-out evaluations '
        'without an improvement.',
        at_least=1)


@dataclasses.dataclass(frozen=True)
class DeviceChoices:
    """Choices of the devices."""

    strategy: str = flag(
        'one', 'Devices (tf.distribute): one, all of this machine (mirrored), '
        'several machines (multiworker), or a TPU.',
        choices=('one', 'mirrored', 'multiworker', 'tpu'))
    logical_cpus: int = flag(
        1, 'Split the CPU into this many devices, to try --strategy=mirrored.',
        at_least=1)
    precision: str = flag(
        'auto', f'Precision of the arithmetic; {AUTO}',
        choices=('auto', 'float32', 'mixed_bfloat16'))
    microbatch: int | None = flag(
        None, 'Sequences of the global batch that are encoded at a time '
        '(gradient accumulation, or gradient caching), to save memory; the '
        'gradient is that of the whole batch.', at_least=1)
    remat: bool = flag(
        False, 'Keep only the states between the blocks of the encoder, and '
        'compute the inside of blocks again for the gradient: less memory, '
        'more time, the same weights.')
    xla: bool = flag(
        False, 'Compile the whole forward and backward pass with XLA; for GPU '
        'and TPU.')


@dataclasses.dataclass(frozen=True)
class RunChoices(
    TextChoices, ModelChoices, OptimizerChoices, SavingChoices, DeviceChoices
):
    """All choices of a run."""

    USUAL: ClassVar[tuple[str, ...]] = (
        'corpus', 'objectives', 'init', 'size', 'seq_len', 'batch_size',
        'steps', 'learning_rate', 'precision', 'seed', 'workdir',
    )  # fmt: skip

    init: str | None = flag(
        None, 'A workdir to start from, or a public model: a folder of '
        'transformers or sentence-transformers, or hf://OWNER/NAME of the '
        'Hugging Face Hub; the run takes the encoder, the tokenizer, and the '
        'heads of rows that both have.', model=True)
    workdir: str = flag('', 'The folder of the run.')

    @staticmethod
    def setting_flags() -> dict[str, tuple[Setting, list[str]]]:
        """Returns the settings of rows, views and adapters by flag."""
        from infoword_tf.objectives import setting_flags

        return setting_flags() | {
            f'{ADAPTER}.{name}': (known, [ADAPTER])
            for name, known in SETTINGS_OF_ADAPTERS.items()
        }

    def __post_init__(self) -> None:
        """Sets dropout to 0 where the encoder is not trained."""
        if self.freeze:
            object.__setattr__(self, 'dropout', 0.0)

    def decided(
        self, settings: Mapping[str, Any] | None = None, **fields: Any
    ) -> typing.Self:
        """Returns other choices; settings that are None stay unchanged."""
        changes = {k: v for k, v in (settings or {}).items() if v is not None}
        return dataclasses.replace(
            self, settings={**self.settings, **changes}, **fields
        )


# Flags that may be given several times, by name.
REPEATED = frozenset(
    name for name, (_, flag) in flags_of(TextChoices).items() if flag.repeated
)
BY_LANGUAGE = 'corpus', 'heldout'  # flags with a value by language
