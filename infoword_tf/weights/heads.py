"""Heads of public models: which rows have them, how config.json tells of them.

A row names its head (`Row.public_head`). kinds/ has the names of the weights.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf.config import EncoderConfig
from infoword_tf.critics import CRITICS
from infoword_tf.inference.loaded import Loaded
from infoword_tf.objectives import TABLE
from infoword_tf.objectives.label import NO_POOLER
from infoword_tf.objectives.span import CONDITIONAL
from infoword_tf.objectives.tag import ALL, FIRST
from infoword_tf.weights import architectures
from infoword_tf.weights.kinds import ARCHITECTURES
from infoword_tf.weights.names import Lines

Settings = Mapping[str, Any]
# Where config.json says how labels of tokens become spans, and how answers are
# extracted.
_PARAMETERS, _OF_TAGS, _OF_SPANS, _STRATEGY = (
    'task_specific_params', 'token-classification', 'question-answering',
    'aggregation_strategy',
)  # fmt: skip
# Settings of spans by key there.
_SPANS = {
    'handle_impossible_answer': 'null', 'max_question_len': 'question',
    'max_answer_len': 'longest',
}  # fmt: skip
# The key for the problem that a head on the whole text solves; by default
# classes.
PROBLEM, SEVERAL, NUMBER = (
    'problem_type', 'multi_label_classification', 'regression'
)  # fmt: skip
_ONE_LABEL = 'LABEL_0'  # the class of a head with one number
# What sentence-transformers before version 6 makes of the score of a pair: by
# default it is logistic, and the score of a critic stays as it is.
_READ_BY_OTHERS = {
    'sentence_transformers': {
        'activation_fn': 'torch.nn.modules.linear.Identity'
    }
}


class PublicConfig(NamedTuple):
    """A config.json that is read.

    Attributes:
        values: content of the file.
        encoder: encoder that the file describes.
        where: the file, for errors.
    """

    values: Settings
    encoder: EncoderConfig
    where: str

    @property
    def kind(self) -> str:
        """Name in ARCHITECTURES."""
        return self.values['model_type']

    def parameters(self, pipeline: str) -> Settings:
        """Returns the settings of a pipeline of transformers."""
        return (self.values.get(_PARAMETERS) or {}).get(pipeline) or {}


class PublicFolder(NamedTuple):
    """A folder that is written.

    Attributes:
        loaded: the model.
        values: content of config.json.
        tensors: arrays by path here.
        dropped: descriptions of what has no place there.
    """

    loaded: Loaded
    values: dict[str, Any]
    tensors: dict[str, np.ndarray]
    dropped: list[str]

    @property
    def kind(self) -> str:
        """Name in ARCHITECTURES."""
        return self.values['model_type']

    def add_labels(self, names: Sequence[str]) -> None:
        """Adds the names of classes to config.json."""
        self.values['id2label'] = {str(i): x for i, x in enumerate(names)}
        self.values['label2id'] = {x: i for i, x in enumerate(names)}


class ReadHead(NamedTuple):
    """The row of a head that is read.

    Attributes:
        row: the row of the table.
        settings: settings of the row, those that are read.
    """

    row: str
    settings: Settings


class PublicHead:
    """A head without settings.

    Attributes:
        ending: end of names of architectures with such a head; '': they have
            another.
        task: the task_type of PEFT; None: it has none.
        labelled: whether classes have names there.
        scores_tokens: whether its table is that of the embeddings.
    """

    ending: str = ''
    task: str | None = None
    labelled: bool = False
    scores_tokens: bool = False

    def __init__(self, name: str):
        """Sets the name in HEADS."""
        self.name = name

    def read(self, config: PublicConfig) -> dict[str, Any]:
        """Reads settings of the row.

        Raises:
            ValueError: a setting without a counterpart here.
        """
        return {}

    def fits(self, loaded: Loaded, settings: Settings, kind: str) -> bool:
        """Tells whether transformers has a row's head on a kind of encoder."""
        return self.name in ARCHITECTURES[kind].naming.heads

    def why(self, loaded: Loaded, row: str, kind: str) -> str:
        """Names the reason why the head of a row does not fit; '': none."""
        return ''

    def write(self, folder: PublicFolder, row: str) -> None:
        """Adds the head of a row, or of a critic, to a folder."""


class WordsHead(PublicHead):
    """A head that scores tokens by the embeddings."""

    scores_tokens = True


class MaskedWordsHead(WordsHead):
    """A head that fills masks, with an output transform or without."""

    def read(self, config: PublicConfig) -> dict[str, Any]:
        """Overrides `PublicHead.read`."""
        form = architectures.transform_activation(*config)
        return {'transform_activation': form}

    def fits(self, loaded: Loaded, settings: Settings, kind: str) -> bool:
        """Overrides `PublicHead.fits`."""
        heads = ARCHITECTURES[kind].naming.heads
        if self.name not in heads:
            return False
        same = settings['transform'] == bool(heads[self.name])
        return same and not self._missed(loaded, settings, kind)

    def _activation(self, loaded: Loaded, settings: Settings) -> str | None:
        """Returns the activation of the transform; None: no transform."""
        if not settings.get('transform'):
            return None
        usual = loaded.encoder.arguments['activation']
        return settings.get('transform_activation') or usual

    def _missed(
        self, loaded: Loaded, settings: Settings, kind: str
    ) -> str | None:
        """Names the other part of the transform of transformers, or None."""
        known, theirs = ARCHITECTURES[kind], loaded.encoder.arguments
        activation = self._activation(loaded, settings)
        if activation is None:
            return None
        epsilon = settings.get('transform_epsilon') or theirs['epsilon']
        if epsilon != theirs['epsilon']:
            return f'{theirs["epsilon"]}, not {epsilon}, in its norm'
        missed = theirs['activation']
        if known.fills_by is not None:
            key, default = known.fills_by
            if key is not None:
                return None
            missed = known.activations.get(default, missed)
        return None if missed == activation else f'the activation {missed}'

    def why(self, loaded: Loaded, row: str, kind: str) -> str:
        """Overrides `PublicHead.why`."""
        missed = self._missed(loaded, settings_of(loaded, row), kind)
        if not missed:
            return ''
        return f' (there its transform has {missed})'

    def write(self, folder: PublicFolder, row: str) -> None:
        """Overrides `PublicHead.write`."""
        key, _ = ARCHITECTURES[folder.kind].fills_by or (None, None)
        if key is not None:
            settings = settings_of(folder.loaded, row)
            form = self._activation(folder.loaded, settings)
            folder.values[key] = architectures.spelled(folder.kind, form)


class ClassesHead(PublicHead):
    """A head on the whole text: classes, or a number."""

    ending = 'ForSequenceClassification'
    task = 'SEQ_CLS'
    labelled = True

    def read(self, config: PublicConfig) -> dict[str, Any]:
        """Overrides `PublicHead.read`."""
        known, values = ARCHITECTURES[config.kind], config.values
        settings: dict[str, Any] = {'pooler': known.classes, 'mean': False}
        if known.pooling is not None:
            settings['mean'] = values.get(known.pooling) == 'mean'
        if not is_number(values):
            settings['multilabel'] = values.get(PROBLEM) == SEVERAL
        return settings

    def fits(self, loaded: Loaded, settings: Settings, kind: str) -> bool:
        """Overrides `PublicHead.fits`.

        Heads without a layer before them read the last state.
        """
        known, first = ARCHITECTURES[kind], loaded.layout.first
        return (
            settings['pooler'] == known.classes
            and not (known.classes == NO_POOLER and first)
            and (not settings.get('mean') or bool(known.pooling))
            and not ends_with_padding(loaded, kind)
        )

    def why(self, loaded: Loaded, row: str, kind: str) -> str:
        """Overrides `PublicHead.why`."""
        known = ARCHITECTURES[kind]
        if ends_with_padding(loaded, kind):
            return ' (texts end with the token that pads)'
        if settings_of(loaded, row)['pooler'] != known.classes:
            return f' (there it has --{row}.pooler={known.classes})'
        return ''

    def write(self, folder: PublicFolder, row: str) -> None:
        """Overrides `PublicHead.write`."""
        known, values = ARCHITECTURES[folder.kind], folder.values
        settings = settings_of(folder.loaded, row)
        labels = folder.loaded.config.labels
        if known.pooling:
            mean = settings.get('mean')
            values[known.pooling] = 'mean' if mean else known.first
        if row in CRITICS:
            labels = (_ONE_LABEL,)
            values.update(_READ_BY_OTHERS)
        elif 'numbers' in TABLE[row].answers:
            labels = (_ONE_LABEL,)
            values[PROBLEM] = NUMBER
        elif settings['multilabel']:
            values[PROBLEM] = SEVERAL
        folder.add_labels(labels)


class TokensHead(PublicHead):
    """A head of one layer over the last states, with a dense layer or not.

    kinds/ says apart which architectures have it.
    """

    def names(self, kind: str) -> Lines:
        """Returns the names of the weights; {}: a kind lacks the head."""
        raise NotImplementedError

    def pooler(self, kind: str) -> str:
        """Returns the activation of the dense layer below the scores."""
        pools = 'pooler_kernel' in self.names(kind)
        return ARCHITECTURES[kind].classes if pools else NO_POOLER

    def fits(self, loaded: Loaded, settings: Settings, kind: str) -> bool:
        """Overrides `PublicHead.fits`."""
        joined = 'mix', 'embeddings', 'bilstm', 'crf'
        return (
            settings.get('pooler', NO_POOLER) == self.pooler(kind)
            and not any(settings.get(name) for name in joined)
            and settings.get('end') != CONDITIONAL
            and bool(self.names(kind))
        )


class TagsHead(TokensHead):
    """A head of labels of words."""

    ending = 'ForTokenClassification'
    task = 'TOKEN_CLS'
    labelled = True

    def names(self, kind: str) -> Lines:
        """Overrides `TokensHead.names`."""
        return ARCHITECTURES[kind].tags

    def read(self, config: PublicConfig) -> dict[str, Any]:
        """Overrides `PublicHead.read`."""
        strategy = config.parameters(_OF_TAGS).get(_STRATEGY)
        return {
            'pooler': self.pooler(config.kind),
            'tokens': FIRST if strategy == FIRST else ALL,
        }

    def why(self, loaded: Loaded, row: str, kind: str) -> str:
        """Overrides `PublicHead.why`."""
        return ' (there it is one layer over the last states)'

    def write(self, folder: PublicFolder, row: str) -> None:
        """Overrides `PublicHead.write`."""
        if settings_of(folder.loaded, row)['tokens'] == FIRST:
            folder.values[_PARAMETERS] = {_OF_TAGS: {_STRATEGY: FIRST}}
        folder.add_labels(folder.loaded.config.labels)


class SpansHead(TokensHead):
    """A head of both ends of an answer."""

    ending = 'ForQuestionAnswering'
    task = 'QUESTION_ANS'

    def names(self, kind: str) -> Lines:
        """Overrides `TokensHead.names`."""
        return ARCHITECTURES[kind].spans

    def read(self, config: PublicConfig) -> dict[str, Any]:
        """Overrides `PublicHead.read`."""
        known = config.parameters(_OF_SPANS)
        ours = {x: known[key] for key, x in _SPANS.items() if key in known}
        return {'pooler': self.pooler(config.kind), 'biases': True, **ours}

    def why(self, loaded: Loaded, row: str, kind: str) -> str:
        """Overrides `PublicHead.why`."""
        pooler = self.pooler(kind)
        ours = settings_of(loaded, row).get('pooler', NO_POOLER)
        if not self.names(kind) or ours == pooler:
            return ''
        return f' (there it has --{row}.pooler={pooler})'

    def write(self, folder: PublicFolder, row: str) -> None:
        """Overrides `PublicHead.write`."""
        span = folder.loaded.model.objectives[row]
        if not span.biases:  # heads there have one
            folder.tensors[f'objectives/{row}/bias'] = np.zeros(2, np.float32)
        folder.values[_PARAMETERS] = {
            _OF_SPANS: {key: getattr(span, x) for key, x in _SPANS.items()}
        }
        if folder.loaded.config.null_threshold:
            folder.dropped.append('the odds above which it gives no answer')


MASKED_WORDS, NEXT_TEXT, CLASSES = 'masked_words', 'next_text', 'classes'
NEXT_WORDS = 'next_words'
# By name in `Naming.heads`; of those with an `ending` a folder has the first.
HEADS: dict[str, PublicHead] = {
    head.name: head
    for head in (
        ClassesHead(CLASSES),
        TagsHead('tags'),
        SpansHead('spans'),
        MaskedWordsHead(MASKED_WORDS),
        WordsHead('permuted_words'),
        WordsHead(NEXT_WORDS),
        PublicHead(NEXT_TEXT),
    )
}
TASKS = tuple(name for name, head in HEADS.items() if head.ending)


def read_heads(config: PublicConfig) -> dict[str, ReadHead]:
    """Reads the row and settings of each head, by name.

    Raises:
        ValueError: a setting without a counterpart here.
    """
    return {
        name: ReadHead(row_of(name, config.values), head.read(config))
        for name, head in HEADS.items()
    }


def row_of(head: str, config: Settings) -> str:
    """Returns the row of a head: of two the one that answers so."""
    rows = [
        row
        for row, entry in TABLE.items()
        if entry.public_head == head and not entry.begins_as
    ]
    answer = 'numbers' if is_number(config) else 'classes'
    return next((x for x in rows if answer in TABLE[x].answers), rows[0])


def is_number(config: Settings) -> bool:
    """Tells whether the head of a config.json on the whole text is a number."""
    return config.get(PROBLEM) == NUMBER


def settings_of(loaded: Loaded, row: str) -> Settings:
    """Returns the settings of a row or of a critic."""
    if row in loaded.config.rows:
        return loaded.config.rows[row].settings
    return dataclasses.asdict(CRITICS[row].of(loaded.config))


def ends_with_padding(loaded: Loaded, kind: str) -> bool:
    """Tells whether texts end with the token that pads, behind which heads that
    read the last state would not look, but those here do.
    """
    tokenizer, padding = loaded.tokenizer, loaded.layout.padding
    reads_last = ARCHITECTURES[kind].classes == NO_POOLER
    ends = tokenizer.sep_id, *loaded.after[-1:]
    return reads_last and padding is None and tokenizer.pad_id in ends
