"""The config of a workdir: config.json, written and read here alone.

{"version": 4, "encoder": {"name": ..., "arguments": {...}},
 "rows": {"mlm": {"weight": 1.0, "settings": {...}}}, ...}
"""

import copy
import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any, Self

from infoword_tf import files
from infoword_tf.errors import InputError

VERSION = 4
GELUS_OF_2 = {'tanh': 'gelu_tanh', 'erf': 'gelu_erf'}
HEADS_OF_3 = 'late', 'lexical', 'cross'
FILE = 'config.json'
WEIGHTS = 'weights.safetensors'  # beside it: what is exported
# By the role of a text, names of its prompt; the first that a config has is
# taken, as in encode_query and encode_document of sentence-transformers 6.
ROLES = {
    'query': ('query',),
    'passage': ('document', 'passage', 'corpus'),
}
SPECIAL = 'cls', 'sep', 'mask'  # names of special tokens in layouts
_NO_FOLDER = (
    ', and there is no such folder; a model of the Hugging Face Hub is '
    'hf://OWNER/NAME'
)
EXPORTED = f'assets.extra/{FILE}'  # in the folder of an export's version


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """Encoder g_omega: name in ENCODERS and arguments of the constructor."""

    name: str
    arguments: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
    """Tokenizer: name in TOKENIZERS and arguments of the constructor."""

    kind: str
    lower_case: bool
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Tokens around a text, or around two.

    A token is 'cls', 'sep' or 'mask', for that special token of the tokenizer,
    or spelled as in the vocabulary.

    Attributes:
        before, after: tokens around a text, in order.
        last_segment: segment of the last token; None: that of the text.
        first: whether `cls` pools the first state, or the last.
        padding: a token whose state is never the last one that is pooled: what
            a public folder pads with, also where a text ends with it; None:
            there is none.
        between: tokens between two texts.
        second_segment: segment of the second text and of the tokens after it.
        around_two: before and after two texts; None: as around one.
        padding_side: side on which a public folder pads; here it is always the
            right.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    last_segment: int | None = None
    first: bool = False
    between: tuple[str, ...] = ('sep',)
    second_segment: int = 0
    around_two: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    padding: str | None = None
    padding_side: str = dataclasses.field(default='right', compare=False)

    @property
    def two(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Tokens before and after two texts."""
        return self.around_two or (self.before, self.after)

    @property
    def shown(self) -> str:
        """Layout as '[CLS] text [SEP]', for messages and cards."""
        before, after = (
            [f'[{x.upper()}]' if x in SPECIAL else x for x in tokens]
            for tokens in (self.before, self.after)
        )
        return ' '.join([*before, 'text', *after])


@dataclasses.dataclass(frozen=True)
class RowConfig:
    """Row of the sum, with all settings."""

    weight: float
    settings: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class DenseConfig:
    """Dense layer over a vector; activation in layers.dense.ACTIVATIONS."""

    width: int
    activation: str
    bias: bool = True


REVERSAL, LEARNED = PERMUTATIONS = 'reversal', 'learned'


@dataclasses.dataclass(frozen=True)
class FlowConfig:
    """Invertible network over the vector of a text, layers/flow.py.

    Attributes:
        levels: number of levels; each transforms half the last one's numbers.
        depth: steps of a level.
        hidden: width of the networks of couplings.
        permutation: one of PERMUTATIONS; older files do not say.
    """

    width: int
    levels: int
    depth: int
    hidden: int
    permutation: str = LEARNED


@dataclasses.dataclass(frozen=True)
class TaskConfig:
    """Task that labelled examples taught.

    Attributes:
        pairs: whether an example has two texts.
        metrics: names of the measures; the first one selected the weights.
        data, sizes: source and number of examples, by 'train' and 'heldout'.
    """

    name: str
    row: str
    pairs: bool
    metrics: tuple[str, ...]
    data: dict[str, str]
    sizes: dict[str, int]


@dataclasses.dataclass(frozen=True)
class TeacherConfig:
    """Model that a student has learned from.

    Attributes:
        name: its workdir.
        digest: hash of its weights.
        weights: number of its weights.
        metric: measure of teacher and student on held-out examples; None: they
            were not measured.
        score: result of the teacher by this metric.
    """

    name: str
    digest: str
    layers: int
    weights: int
    metric: str | None = None
    score: float | None = None


@dataclasses.dataclass(frozen=True)
class AdapterConfig:
    """Adapters of a workdir that holds no other weights of the encoder.

    Attributes:
        kind: 'lora'.
        rank, alpha, where, frozen: settings, see adapters.py.
        base: the workdir that --init named, whose encoder they change.
        digest: hash of its weights.
    """

    kind: str
    rank: int
    alpha: float
    where: str
    frozen: str
    base: str = ''
    digest: str = ''


@dataclasses.dataclass(frozen=True)
class Config:
    """Values that decide the outputs of a model, and a record of training.

    Attributes:
        encoder: g_omega.
        rows: rows of the sum, by name in TABLE.
        max_length: T of the longest training text, with special tokens: the
            limit of `encode` and of exports.
        tokenizer: tokenizer of the vocabulary in the same folder.
        precision: a Keras dtype policy, never 'auto'.
        masking: a name in MASKINGS.
        mask_share: share of the tokens that is masked; None where nothing is
            masked.
        memory_length: tokens of memory in training; None for an encoder
            without memory.
        layout: special tokens around one or two texts: a name in
            text.layout.LAYOUTS, or that of a public tokenizer.
        pooling, similarity: form of a text's vector, and comparison of two
            vectors.
        dense: layers over the vector, in order.
        dims: numbers of the vector that are used, the first ones; None: all.
        normalize: whether vectors have length 1.
        prompts: prefixes of a text by name: 'query: '.
        prompt: name of the default prompt; None: no prefix.
        critics: fields of the `HeadConfig` of each critic that the model has,
            by name in critics.CRITICS, None where it needs no head; the first
            one compares texts by default.
        query_length, passage_length: tokens of a text of that role at most;
            None: `max_length`.
        labels: names of the classes of the row `label`.
        null_threshold: nats by which "no answer" of the row `span` has to score
            more than the best one.
        task: task of labelled examples; None: the model saw none.
        teacher: teacher of a student; None: the model is none.
        adapter: adapter of a workdir of adapters; None: all weights are there.
        vocabulary: digest of the tokenizer's file; None: not recorded.
        replicas: number of replicas of the run.
        run: values by flag that decide the weights; compared on resume.
        version: number of this format.
    """

    encoder: EncoderConfig
    rows: dict[str, RowConfig]
    max_length: int
    tokenizer: TokenizerConfig = TokenizerConfig('wordpiece', True)
    precision: str = 'float32'
    masking: str | None = None
    mask_share: float | None = None
    memory_length: int | None = None
    layout: str | Layout = 'bert'
    pooling: str = 'mean'
    similarity: str = 'cosine'
    dense: tuple[DenseConfig | FlowConfig, ...] = ()
    dims: int | None = None
    normalize: bool = False
    prompts: dict[str, str] = dataclasses.field(default_factory=dict)
    prompt: str | None = None
    critics: dict[str, dict[str, Any] | None] = dataclasses.field(
        default_factory=lambda: {'cosine': None}
    )
    query_length: int | None = None
    passage_length: int | None = None
    labels: tuple[str, ...] = ()
    null_threshold: float = 0.0
    task: TaskConfig | None = None
    teacher: TeacherConfig | None = None
    adapter: AdapterConfig | None = None
    vocabulary: str | None = None
    replicas: int = 1
    run: dict[str, Any] = dataclasses.field(default_factory=dict)
    version: int = VERSION

    @property
    def critic(self) -> str:
        """Name of the critic that compares two texts by default."""
        return next(iter(self.critics))

    def replace(self, **changes: Any) -> Self:
        """Returns a config with other values."""
        return dataclasses.replace(self, **changes)

    def prompt_for(self, role: str) -> str:
        """Names the prompt of a role in ROLES; '': no prompt at all."""
        return next((n for n in ROLES[role] if n in self.prompts), '')

    def length_for(self, role: str) -> int:
        """Returns T of a text of a role in ROLES, with special tokens."""
        most = {'query': self.query_length, 'passage': self.passage_length}
        return most[role] or self.max_length

    def prompt_text(self, name: str | None = None) -> str:
        """Returns the prefix of a text; `name` None: the default, '': none.

        Raises:
            ValueError: there is no prompt of that name.
        """
        name = self.prompt if name is None else name
        if not name:
            return ''
        if name not in self.prompts:
            known = ', '.join(self.prompts) or 'none'
            raise InputError(
                'config_unknown_prompt',
                f'prompt {name!r}: this model has {known}; a prompt without a '
                "name stands in the texts themselves, with prompt=''",
            )
        return self.prompts[name]

    def to_json(self) -> dict[str, Any]:
        """Converts to types of JSON, for `from_json`."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def from_json(cls, values: Mapping[str, Any], where: str = FILE) -> Self:
        """Inverts `to_json`.

        Raises:
            ValueError: no object, another version, or a value that is missing
                or unknown; `where` names the file.
        """
        if not isinstance(values, Mapping):
            raise InputError(
                'config_no_object', f'{where} is no config: it holds no object'
            )
        if 'model_type' in values and 'encoder' not in values:
            raise InputError(
                'config_of_public_folder',
                f'{where} is of a folder for transformers; bring it in with '
                'python -m infoword_tf.convert --source=FOLDER --workdir=W',
            )
        version = values.get('version')
        if version not in (2, 3, VERSION):
            raise InputError(
                'config_of_other_version',
                f'{where} has version {version}, this code reads version '
                f'{VERSION}; load it with the release that wrote it',
            )
        try:
            if version == 2:
                values = _of_version_2(values)
            if version < VERSION:
                values = _of_version_3(values)
            return cls(
                **{
                    **values,
                    'encoder': EncoderConfig(**values['encoder']),
                    'tokenizer': TokenizerConfig(**values['tokenizer']),
                    'rows': {
                        row: RowConfig(**entry)
                        for row, entry in values['rows'].items()
                    },
                    'layout': _layout(values.get('layout', 'bert')),
                    'dense': tuple(map(_dense, values.get('dense', ()))),
                    'labels': tuple(values.get('labels', ())),
                    'task': _task(values.get('task')),
                    'teacher': _optional(TeacherConfig, values.get('teacher')),
                    'adapter': _optional(AdapterConfig, values.get('adapter')),
                }
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(
                'broken_config',
                f'{where} is no config of version {VERSION}: {error}',
            ) from error

    def write(self, folder: pathlib.Path) -> None:
        """Writes config.json into a workdir, whole or not at all."""
        files.write_json(folder / FILE, self.to_json())

    @classmethod
    def read(cls, folder: str | pathlib.Path) -> Self:
        """Reads config.json of a workdir.

        Raises:
            FileNotFoundError: the folder has none.
            ValueError: see `from_json`.
        """
        path = pathlib.Path(folder) / FILE
        if not path.is_file():
            raise FileNotFoundError(
                f'{folder} has no {FILE}: it is not the workdir of a run of '
                'infoword_tf.train'
                + ('' if path.parent.exists() else _NO_FOLDER)
            )
        try:
            values = json.loads(path.read_text())
        except ValueError as error:
            raise InputError(
                'config_no_json', f'{path} is no JSON: {error}'
            ) from None
        return cls.from_json(values, str(path))


def _of_version_2(values: Mapping[str, Any]) -> dict[str, Any]:
    """Converts version 2, which called an activation 'gelu': 'tanh', 'erf'."""
    converted = copy.deepcopy(dict(values))
    for named in (converted['encoder']['arguments'], converted.get('run', {})):
        if 'gelu' in named:
            form = named.pop('gelu')
            named['activation'] = GELUS_OF_2.get(form, form)
    return converted


def _of_version_3(values: Mapping[str, Any]) -> dict[str, Any]:
    """Converts version 3, which had a field for each head of a critic."""
    converted = {**values, 'version': VERSION}
    first = converted.pop('critic', 'cosine')
    heads = {name: converted.pop(name, None) for name in HEADS_OF_3}
    others = {k: x for k, x in heads.items() if x is not None and k != first}
    converted['critics'] = {first: heads.get(first), **others}
    return converted


def _task(values: Mapping[str, Any] | None) -> TaskConfig | None:
    if values is None:
        return None
    return TaskConfig(**{**values, 'metrics': tuple(values['metrics'])})


def _layout(values: str | Mapping[str, Any]) -> str | Layout:
    if isinstance(values, str):
        return values

    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    return Layout(**{name: tuples(value) for name, value in values.items()})


def _dense(values: Mapping[str, Any]) -> DenseConfig | FlowConfig:
    return (FlowConfig if 'levels' in values else DenseConfig)(**values)


def _optional(kind: type, values: Mapping[str, Any] | None) -> Any:
    return None if values is None else kind(**values)


def read_exported(model: pathlib.Path) -> tuple[Config, dict[str, Any]]:
    """Reads config and description of an export's version, DIR/1.

    Raises:
        FileNotFoundError: the folder is no version of an export.
        ValueError: its config.json cannot be read.
    """
    path = model / EXPORTED
    if not path.is_file():
        raise FileNotFoundError(
            f'{model} is no version of an export: it has no '
            f'{EXPORTED}; name the numbered folder, DIR/1'
        )
    try:
        values = json.loads(path.read_text())
        described = values.pop('export')
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            'broken_exported_config', f'{path} is not of an export: {error}'
        ) from None
    return Config.from_json(values, str(path)), described
