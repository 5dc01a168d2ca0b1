"""What a workdir says of its model: config.json, written and read here alone.

    {"version": 3, "encoder": {"name": ..., "arguments": {...}},
     "rows": {"mlm": {"weight": 1.0, "settings": {...}}}, ...}
"""

import copy
import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any, Self

from infoword_tf import files

VERSION = 3
GELUS_OF_2 = {'tanh': 'gelu_tanh', 'erf': 'gelu_erf'}
FILE = 'config.json'
WEIGHTS = 'weights.safetensors'  # beside it: what is exported
# What prompts are called by what a text is for, the first that is there: in
# the order of encode_query and encode_document of sentence-transformers 6.
ROLES = {
    'query': ('query',),
    'passage': ('document', 'passage', 'corpus'),
}
SPECIAL = 'cls', 'sep', 'mask'  # what layouts call special tokens
EXPORTED = f'assets.extra/{FILE}'  # in the folder of an export's version


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """g_omega: a name in ENCODERS and the arguments of its constructor."""

    name: str
    arguments: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
    """How strings become pieces.

    Attributes:
        kind: a name in TOKENIZERS.
        lower_case: whether it folds case.
        options: further arguments of its constructor.
    """

    kind: str
    lower_case: bool
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Tokens around a text, or around two.

    A token is 'cls', 'sep' or 'mask', that special one of the tokenizer, or
    itself as the vocabulary spells it.

    Attributes:
        before, after: of a text, in order.
        last_segment: segment of the last token; None: that of the text before
            it.
        first: whether the first state is the pooled one (`cls`), or the last.
        between: stand between two texts.
        second_segment: of the second text and of what is after it.
        around_two: before and after two texts; None: as around one.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    last_segment: int | None = None
    first: bool = False
    between: tuple[str, ...] = ('sep',)
    second_segment: int = 0
    around_two: tuple[tuple[str, ...], tuple[str, ...]] | None = None

    @property
    def two(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the tokens before and after two texts."""
        return self.around_two or (self.before, self.after)

    @property
    def shown(self) -> str:
        """Writes the layout as '[CLS] text [SEP]', for messages and cards."""
        before, after = (
            [f'[{x.upper()}]' if x in SPECIAL else x for x in tokens]
            for tokens in (self.before, self.after)
        )
        return ' '.join([*before, 'text', *after])


@dataclasses.dataclass(frozen=True)
class RowConfig:
    """A row of the sum: its weight, and every one of its settings."""

    weight: float
    settings: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class DenseConfig:
    """A dense layer over the vector of a text.

    Attributes:
        width: of what it gives.
        activation: name in layers.dense.ACTIVATIONS.
        bias: whether it has one.
    """

    width: int
    activation: str
    bias: bool = True


REVERSAL, LEARNED = PERMUTATIONS = 'reversal', 'learned'


@dataclasses.dataclass(frozen=True)
class FlowConfig:
    """An invertible network over the vector of a text, layers/flow.py.

    Attributes:
        width: of what it takes and gives.
        levels: how many, each of half the numbers of the one before.
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
    """What a row was taught by labelled examples.

    Attributes:
        name: of the task.
        row: which of the table.
        pairs: whether an example has two texts.
        metrics: what was measured; the first one chose the weights.
        data: by 'train' and 'heldout', where the examples are from.
        sizes: likewise, how many.
    """

    name: str
    row: str
    pairs: bool
    metrics: tuple[str, ...]
    data: dict[str, str]
    sizes: dict[str, int]


@dataclasses.dataclass(frozen=True)
class TeacherConfig:
    """The model that a student has learned from.

    Attributes:
        name: its workdir.
        digest: of its weights.
        layers: that it has.
        weights: how many numbers.
        metric: what both were measured by on held-out examples; None: nothing
            was.
        score: of the teacher there.
    """

    name: str
    digest: str
    layers: int
    weights: int
    metric: str | None = None
    score: float | None = None


@dataclasses.dataclass(frozen=True)
class Config:
    """All that decides what a model computes, and what it was trained by.

    Attributes:
        encoder: g_omega.
        rows: of the sum, by name in TABLE.
        max_length: T, the longest text that it was trained on, with specials:
            the limit of `encode` and of exports.
        tokenizer: of the vocabulary that lies beside it.
        precision: a Keras dtype policy, as decided.
        masking: what is masked, a name in MASKINGS.
        mask_share: of the tokens; None where nothing is masked.
        memory_length: tokens of memory in training; None for an encoder that
            has none.
        layout: what stands around a text, or around two: a name in
            text.layout.LAYOUTS, or one that a public tokenizer has.
        pooling, similarity: how a text becomes a vector, and how two of them
            are compared.
        dense: layers over that vector, in order.
        dims: how many of its first numbers count; None: all.
        normalize: whether it then has length 1.
        prompts: by name, what is put before a text: 'query: '.
        prompt: name of the one that counts where none is asked for; None:
            nothing is put before it.
        labels: names of the classes of the row `label`.
        null_threshold: of the row `span`, nats by which "no answer" has to
            score more than the best one.
        task: what labelled examples taught; None: there were none here.
        teacher: whose student this is; None: nobody's.
        vocabulary: digest of the tokenizer's file; None: nobody knows.
        replicas: that the run had.
        run: by flag, what decides the weights; compared on resume.
        version: of this format.
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
    labels: tuple[str, ...] = ()
    null_threshold: float = 0.0
    task: TaskConfig | None = None
    teacher: TeacherConfig | None = None
    vocabulary: str | None = None
    replicas: int = 1
    run: dict[str, Any] = dataclasses.field(default_factory=dict)
    version: int = VERSION

    def replace(self, **changes: Any) -> Self:
        """The same with other values."""
        return dataclasses.replace(self, **changes)

    def prompt_for(self, role: str) -> str:
        """Names the prompt of a role in ROLES; '': none, not the default."""
        return next((n for n in ROLES[role] if n in self.prompts), '')

    def prompt_text(self, name: str | None = None) -> str:
        """What is put before a text.

        Args:
            name: of a prompt; None: the config's; '': none.

        Raises:
            ValueError: there is none of that name.
        """
        name = self.prompt if name is None else name
        if not name:
            return ''
        if name not in self.prompts:
            known = ', '.join(self.prompts) or 'none'
            raise ValueError(f'prompt {name!r}: this model has {known}')
        return self.prompts[name]

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it: what JSON can hold, and nothing else."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def from_json(cls, values: Mapping[str, Any], where: str = FILE) -> Self:
        """Reads what `to_json` gave.

        Args:
            values: by name.
            where: for complaints.

        Raises:
            ValueError: no object; another version; a value that is lacking,
                or that nobody knows.
        """
        if not isinstance(values, Mapping):
            raise ValueError(f'{where} is no config: it holds no object')
        if 'model_type' in values and 'encoder' not in values:
            raise ValueError(
                f'{where} is of a folder for transformers; bring it in with '
                'python -m infoword_tf.convert --source=FOLDER --workdir=W'
            )
        version = values.get('version')
        if version not in (2, VERSION):
            raise ValueError(
                f'{where} has version {version}, this code reads version '
                f'{VERSION}; load it with the release that wrote it'
            )
        try:
            if version == 2:
                values = _of_version_2(values)
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
                    'teacher': _teacher(values.get('teacher')),
                }
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f'{where} is no config of version {VERSION}: {error}'
            ) from error

    def write(self, folder: pathlib.Path) -> None:
        """Writes config.json into a workdir, whole or not at all."""
        files.write_json(folder / FILE, self.to_json())

    @classmethod
    def read(cls, folder: pathlib.Path) -> Self:
        """Reads config.json of a workdir.

        Raises:
            FileNotFoundError: it has none.
            ValueError: as `from_json`.
        """
        path = pathlib.Path(folder) / FILE
        if not path.is_file():
            raise FileNotFoundError(
                f'{folder} has no {FILE}: it is not the workdir of a run of '
                'infoword_tf.train'
            )
        try:
            values = json.loads(path.read_text())
        except ValueError as error:
            raise ValueError(f'{path} is no JSON: {error}') from None
        return cls.from_json(values, str(path))


def _of_version_2(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same in today's words: an activation was 'gelu', 'tanh' or 'erf'."""
    found = {**copy.deepcopy(values), 'version': VERSION}
    for named in (found['encoder']['arguments'], found.get('run', {})):
        if 'gelu' in named:
            form = named.pop('gelu')
            named['activation'] = GELUS_OF_2.get(form, form)
    return found


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


def _teacher(values: Mapping[str, Any] | None) -> TeacherConfig | None:
    return None if values is None else TeacherConfig(**values)


def read_exported(model: pathlib.Path) -> tuple[Config, dict[str, Any]]:
    """The config of an export's run, and what the export says of itself.

    Args:
        model: the folder of a version, DIR/1.

    Raises:
        FileNotFoundError: it is none.
        ValueError: its config.json cannot be read.
    """
    path = model / EXPORTED
    if not path.is_file():
        raise FileNotFoundError(
            f'--model={model} is no version of an export: it has no '
            f'{EXPORTED}; name the numbered folder, DIR/1'
        )
    try:
        values = json.loads(path.read_text())
        described = values.pop('export')
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f'{path} is not of an export: {error}') from None
    return Config.from_json(values, str(path)), described
