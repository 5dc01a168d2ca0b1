"""What a run may choose: each choice once, with its default, bounds and help.

`commands.takes` turns a function of such choices into one that takes them by
name in Python, and into a command whose flags are made of these fields. None
means that nothing was chosen.
"""

import dataclasses
import functools
import operator
import re
import types
import typing
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from infoword_tf.encoders import ENCODERS, FLAGS
from infoword_tf.languages import code_of

DELIMITERS = {',': ',', ';': ';', 'tab': '\t', '|': '|'}  # of CSV, as chosen
# Defaults of fields that are None because other choices may decide them.
VOCAB_SIZE, STEPS = 8192, 1000
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
        repeated: whether it may be given several times, each time with one
            value, which may have commas.
        model: whether it names one: a workdir, or what `folders` makes one of.
    """

    help: str
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    shown: Any = None
    repeated: bool = False
    model: bool = False


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
    """By name of a field, its type (without None) and its flag."""
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
    """What --help shows first, and the flags of each group, by its name.

    A group are the flags that stand in one class. First are those of `USUAL`,
    if a class has that, behind all that stand in classes made from it;
    otherwise all are.
    """
    usual = next((x for x in kind.__mro__ if 'USUAL' in vars(x)), object)
    left, first, groups = list(flags_of(kind)), [], {}
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


def given_several(values: str | Sequence[str] | None) -> tuple[str, ...]:
    """What a repeated flag was given, also where it is one string or none."""
    if not values:
        return ()
    return (values,) if isinstance(values, str) else tuple(values)


# A name before a corpus: of a language, --corpus=de=text:GLOB, or another one.
_NAMED = re.compile(
    r'([A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*)=(.+)', re.DOTALL
)
_LANGUAGE = re.compile('[a-z]{2,3}(_[a-z0-9]+)*')
_CORPUS = re.compile('[a-z]+:.*|pydocs', re.DOTALL)


def name_of(text: str) -> str:
    """A name as it counts: a language's as translations name it."""
    code, *region = re.split('[-_]', text.lower())
    return '_'.join([code_of(code) or code, *region])  # a region stays: pt_br


def by_language(
    values: str | Sequence[str] | None, names: Container[str] | None = None
) -> dict[str, str]:
    """What --corpus or --heldout was given for each language, sorted.

    Parts of a text may have other names than those of languages (web, books).
    The last of each counts, so that what stands in a flagfile can be replaced.
    One without a name, '', stands alone.

    Args:
        names: of --heldout, those that --corpus has: no other word before a
            = is one, but a language's, since files may have such names.
    """
    found: dict[str, str] = {}
    for value in given_several(values):
        name = ''
        if named := _NAMED.fullmatch(value):
            name = name_of(named[1])
            if not _LANGUAGE.fullmatch(name) and not (
                _CORPUS.fullmatch(named[2]) if names is None else name in names
            ):
                name = ''
        if not name or '' in found:
            found.clear()
        found[name] = named[2] if name else value
    return dict(sorted(found.items()))


# --------------------------------------------------------------------- choices


@dataclasses.dataclass(frozen=True)
class TextChoices:
    """What a run may choose of its text."""

    corpus: tuple[str, ...] = flag(
        ('pydocs',), 'The text: pydocs, text:GLOB, jsonl:GLOB[:FIELD], '
        'parquet:GLOB[:COLUMN], arrow:DIR[:COLUMN], lines:GLOB, '
        'tfds:NAME[/CONFIG][:FEATURE] or store:DIR. In text: a line is a '
        'sentence or a paragraph, and a blank line ends a document; of the '
        'next three a record is a document, FIELD is text, or what follows the '
        'last colon (nested ones as meta/title), and arrow: takes what '
        'datasets.save_to_disk left, or a GLOB; lines: is one running text '
        'whose line ends are tokens, and needs --heldout; tfds: was prepared '
        'by tensorflow-datasets, store: by infoword_tf.prepare. Text and JSON '
        'lines may be .gz or .zst. Of '
        'several languages, or several parts of a text, give it several times, '
        'each with its name: --corpus=de=text:GLOB.', repeated=True)
    heldout: tuple[str, ...] = flag(
        (), 'GLOB of held-out files, or a split of tfds:. By default the '
        'corpus itself holds some out: of files 1 document in 100, at least '
        'one. Of several languages --heldout=de=GLOB.', repeated=True)
    language_exponent: float = flag(
        0.7, 'Of several languages each has a share of the updates in '
        'proportion to its size to this power; 1: as large as they are, 0: '
        'all alike.', at_least=0.0)
    corpus_weights: tuple[str, ...] = flag(
        (), 'Of several --corpus each has such a share of the updates instead '
        'of one by its size, as web=3,books=1.')
    shuffle_block: int | None = flag(
        None, 'Tokens of text that are read at a time: such blocks come in a '
        'random order, and what is in some 64 of them is shuffled together, '
        'as text on a disk of the network wants it; by default all of the '
        'text is.', at_least=1)
    parallel: tuple[str, ...] = flag(
        (), 'Translations, for rows that read them: two files of aligned lines '
        '(europarl.{de,en}), or a .tsv; --parallel=en-de=... names the '
        'languages. Give it several times for more.', repeated=True)
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
        (), 'Names of these columns, in this order; by default as their names '
        'say, else all that hold texts in the order of the file.')
    pair_negatives: int | None = flag(
        None, 'Hard negatives of each pair, at most: the first ones; all by '
        'default.', at_least=0)
    pair_delimiter: str | None = flag(
        None, 'What parts the cells of .csv files of pairs; by default as '
        'their first lines say.', choices=tuple(DELIMITERS))
    heldout_pairs: str | None = flag(
        None, 'GLOB of held-out pairs; by default 1 pair in 20, chosen by the '
        'hash of its first text.')
    pair_weights: tuple[str, ...] = flag(
        (), 'Weights of the files of --pairs in the order of their names, as '
        '2,1: each has such a share of the updates; by default as many as its '
        'pairs make.')
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
    """Names, types and fields of what encoders say that a run may choose."""
    for name, argument_of in FLAGS.items():
        (first, argument), *_ = argument_of.items()
        found = ENCODERS[first].settings[argument]
        kind, default = found.kind or type(found.default), found.default
        begins = '' if default in (None, '') else f' By default {default}.'
        text = f'{found.help}{begins} Encoders: {", ".join(argument_of)}.'
        more = {'choices': found.choices, 'at_least': found.at_least}
        yield name, kind | None, flag(None, text, **more)


EncoderChoices = dataclasses.make_dataclass(
    'EncoderChoices', _of_encoders(), frozen=True, kw_only=True
)


@dataclasses.dataclass(frozen=True)
class ModelChoices(EncoderChoices):
    """What a run may choose of its model and of its batches.

    Those of encoders are not chosen where they are None.

    Attributes:
        settings: by 'ROW.NAME', of rows and their views; each is a flag.
    """

    objectives: str | None = flag(
        'bert_nce', 'What is trained: a named sum, or rows with weights: '
        'bert_nce:1,mlm:0.5.')
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    masking: str | None = flag(
        None, 'Unit of masking; by default the one that the rows require, else '
        'tokens.',
        choices=('spans', 'words', 'tokens'))
    mask_share: float | None = flag(
        None, 'Share of the tokens that is masked; 0.15 by default.',
        at_least=0.01, at_most=0.9)
    encoder: str | None = flag(
        None, 'Encoder; by default the first one that all rows allow.')
    size: str | None = flag(
        None, 'Of the encoder: tiny, mini, small, medium, base, large or elmo.',
        shown='tiny')
    dropout: float = flag(
        0.1, 'Dropout rate of states and attention weights.', at_least=0.0,
        at_most=0.99)
    seq_len: int = flag(
        128, 'Sequence length in tokens, special tokens included.', at_least=8)
    batch_size: int = flag(
        32, 'Sequences of the global batch, over all devices.', at_least=1)
    memory_length: int | None = flag(
        None, 'Memory of the encoder relative: tokens of earlier steps that it '
        'attends to; --seq_len by default, 0: none.', at_least=0)


@dataclasses.dataclass(frozen=True)
class OptimizerChoices:
    """What a run may choose of its length and its optimizer."""

    steps: int | None = flag(
        None, 'Number of updates.', at_least=1, shown=STEPS)
    minutes: float | None = flag(
        None, 'Training time instead of --steps, whose number is estimated '
        'from the speed of the first ones; tracing and held-out evaluation are '
        'not included.', at_least=1e-6)
    learning_rate: float = flag(1e-3, 'Peak learning rate.', at_least=0.0)
    warmup_steps: int | None = flag(
        None, 'Warm-up: updates until the peak learning rate; steps / 10 by '
        'default.',
        at_least=0)
    optimizer: str = flag(
        'infoword', 'Preset of a published system: betas, weight decay, '
        'clipping and the shape of the learning-rate schedule.', choices=(
            'infoword', 'adamw', 'bert', 'xlnet', 'gpt', 'transformer_xl',
            'elmo', 'word2vec'))
    weight_decay: float | None = flag(
        None, 'Decoupled weight decay, not of biases and norms; by default '
        'that of --optimizer (infoword: 0.01).', at_least=0.0)
    clip_norm: float | None = flag(
        None, 'Clip the global gradient norm to this, 0: no clipping; by '
        'default that of --optimizer (infoword: 1).', at_least=0.0)
    moments: str = flag(
        'float32', "As what Adam's averages are kept between updates; bfloat16 "
        'takes half of their memory, and is rounded by chance.',
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
    seed: int = flag(
        0, 'Random seed of weights, text order, masks and dropout.', at_least=0)


@dataclasses.dataclass(frozen=True)
class SavingChoices:
    """What a run may choose of its records, and of the weights that it keeps.
    """

    checkpoint_every: int | None = flag(
        None, 'Updates between checkpoints, rounded up to a logging step; '
        'steps / 10, at most 1000, by default.', at_least=1)
    keep_checkpoints: int = flag(
        2, 'Number of checkpoints that are kept.', at_least=1)
    on_nonfinite: str = flag(
        'stop', 'What a loss that is not finite does: it ends the run, or the '
        'run goes back to the weights of its last checkpoint and on with the '
        'batch after the one that failed.', choices=('stop', 'rewind'))
    rewinds: int = flag(
        3, 'How often a run goes back before it ends after all.', at_least=1)
    grace_seconds: float = flag(
        25.0, 'After SIGTERM a run saves at its next logging step and ends '
        'with status 42; where that takes longer it ends without.',
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
        None, 'The same measures (sts:, retrieval:, tatoeba:) with every '
        'held-out evaluation, without a choice by them: the last weights stay, '
        'or those of --best.')
    patience_evals: int | None = flag(
        None, 'Early stopping: end after this many held-out evaluations '
        'without an improvement.',
        at_least=1)


@dataclasses.dataclass(frozen=True)
class DeviceChoices:
    """What a run may choose of what computes it."""

    strategy: str = flag(
        'one', 'Devices (tf.distribute): one, all of this machine (mirrored), '
        'several machines (multiworker), or a TPU.',
        choices=('one', 'mirrored', 'multiworker', 'tpu'))
    logical_cpus: int = flag(
        1, 'Split the CPU into this many devices, to try --strategy=mirrored.',
        at_least=1)
    precision: str = flag(
        'auto', f'Of the arithmetic; {AUTO}',
        choices=('auto', 'float32', 'mixed_bfloat16'))
    microbatch: int | None = flag(
        None, 'Sequences of the global batch that are encoded at a time '
        '(gradient accumulation, or gradient caching), to save memory; the '
        'gradient is that of the whole batch.', at_least=1)
    remat: bool = flag(
        False, 'Keep the states between the blocks of the encoder alone, and '
        'compute what is inside them once more for the gradient: less memory, '
        'more time, the same weights.')
    data_service: tuple[str, ...] = flag(
        (), 'HOST:PORT, with commas, of processes that make the batches '
        '(infoword_tf.data_service); where none answers this one does.')
    xla: bool = flag(
        False, 'Compile the whole forward and backward pass with XLA; for GPU '
        'and TPU.')


@dataclasses.dataclass(frozen=True)
class RunChoices(
    TextChoices, ModelChoices, OptimizerChoices, SavingChoices, DeviceChoices
):
    """All that a run may choose."""

    USUAL: ClassVar[tuple[str, ...]] = (
        'corpus', 'objectives', 'init', 'size', 'seq_len', 'batch_size',
        'steps', 'learning_rate', 'precision', 'seed', 'workdir',
    )  # fmt: skip

    init: str | None = flag(
        None, 'A workdir to start from, or a folder of transformers or '
        'sentence-transformers. Taken are its encoder, its tokenizer, and the '
        'heads of rows that both have.', model=True)
    workdir: str | None = flag(None, 'The folder of the run.')

    def __post_init__(self) -> None:
        """Where the encoder is not trained nothing of it is dropped."""
        if self.freeze:
            object.__setattr__(self, 'dropout', 0.0)

    def decided(
        self, settings: Mapping[str, Any] | None = None, **fields: Any
    ) -> typing.Self:
        """With other values; settings that are None stay as they are."""
        changes = {k: v for k, v in (settings or {}).items() if v is not None}
        return dataclasses.replace(
            self, settings={**self.settings, **changes}, **fields
        )


# Flags that may be given several times, by name.
REPEATED = frozenset(
    name for name, (_, flag) in flags_of(TextChoices).items() if flag.repeated
)
BY_LANGUAGE = 'corpus', 'heldout'  # those of which each may name one
