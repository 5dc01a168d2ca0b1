"""Folders of Hugging Face's transformers: in, and out.

    config.json   model.safetensors   tokenizer.json, vocab.txt or a *.model
"""

import dataclasses
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from infoword_tf import errors, files
from infoword_tf.config import EncoderConfig, Layout
from infoword_tf.critics import CRITICS
from infoword_tf.folders import ADAPTER
from infoword_tf.inference.loaded import Loaded
from infoword_tf.objectives import TABLE
from infoword_tf.objectives.label import NO_POOLER
from infoword_tf.objectives.span import CONDITIONAL
from infoword_tf.objectives.tag import ALL, FIRST
from infoword_tf.text.numbers import Numbers
from infoword_tf.text.tokenizer import TextTokenizer
from infoword_tf.text.vocabulary import unnamed
from infoword_tf.weights import (
    architectures,
    mapping,
    post_processors,
    tokenizer_reader,
    tokenizer_writer,
)
from infoword_tf.weights.converted import EncoderSource
from infoword_tf.weights.kinds import ARCHITECTURES
from infoword_tf.weights.names import (
    Lines,
    Naming,
    after_padding,
    is_unnamed_bias,
)
from infoword_tf.weights.tensors import SINGLE, open_folder

CONFIG = 'config.json'
_POSITIONS = 'position_embeddings'
# Rows by how the names of architectures end.
TASKS = {
    'ForSequenceClassification': 'label',
    'ForTokenClassification': 'tag',
    'ForQuestionAnswering': 'span',
}
_CHOOSES = 'ForMultipleChoice'
# Where config.json says how labels of tokens become spans, and how answers are
# extracted.
PARAMETERS, OF_TAGS, STRATEGY = (
    'task_specific_params', 'token-classification', 'aggregation_strategy'
)  # fmt: skip
_PADS = {'gemma3_text': 0}  # where config.json has no pad_token_id
OF_SPANS = 'question-answering'
# Settings of the row `span` by key there.
_OF_SPANS = {
    'handle_impossible_answer': 'null', 'max_question_len': 'question',
    'max_answer_len': 'longest',
}  # fmt: skip
# `Architecture.notes` of all kinds.
_NOTES = {
    'auto_map': 'code of this repository (auto_map) is not run: it is read '
    'as any {model_type}',
}
# The key for the problem that a head on the whole text solves; by default
# classes.
PROBLEM, SEVERAL, NUMBER = (
    'problem_type', 'multi_label_classification', 'regression'
)  # fmt: skip
# What sentence-transformers before version 6 makes of the score of a pair: by
# default it is logistic, and the score of a critic stays as it is.
_READ_BY_OTHERS = {
    'sentence_transformers': {
        'activation_fn': 'torch.nn.modules.linear.Identity'
    }
}
# What is said of heads without a place.


def read(
    folder: pathlib.Path,
    config: Mapping[str, Any] | None = None,
    tokenizer_folder: pathlib.Path | None = None,
) -> EncoderSource:
    """Reads all of a folder but the weights.

    Args:
        folder: with config.json, weights and a tokenizer.
        config: instead of the folder's config.json.
        tokenizer_folder: with a tokenizer that counts instead, if it has one.

    Raises:
        FileNotFoundError: no config.json, weights or tokenizer.
        ValueError: an unknown architecture, or damaged files.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f'{folder} has no {CONFIG}')
    config = files.read_json(path) if config is None else config
    encoder = architectures.encoder_of(config, str(path))
    kind = config['model_type']
    if (name := _name(config)).endswith(_CHOOSES):
        raise errors.InputError(
            'multiple_choice_folder',
            f'{path} is of the architecture {name}, whose head chooses among '
            'texts and cannot be converted; name another one in architectures '
            f'({name.removesuffix(_CHOOSES)}Model) to convert the encoder',
        )
    architecture, naming = ARCHITECTURES[kind], _naming(config)
    labels, problem = labels_of(config), config.get(PROBLEM)
    if problem == NUMBER and 'label' in naming.heads:
        if len(labels) > 1:
            raise errors.InputError(
                'several_regression_numbers',
                f'{path} has {PROBLEM} {NUMBER!r} of {len(labels)} numbers; '
                'only one can be converted',
            )
        heads = dict(naming.heads)
        naming = naming._replace(heads=heads | {'score': heads.pop('label')})
    if (folder / ADAPTER).is_file():
        raise errors.InputError(
            'adapter_folder',
            f'{folder} holds an adapter ({ADAPTER}) for weights elsewhere; '
            'merge them with peft (merge_and_unload) and save the result',
        )
    size = encoder.arguments['vocab_size']
    if tokenizer_folder is None or not (
        tokenizer_reader.is_one(tokenizer_folder)
    ):  # fmt: skip
        tokenizer_folder = folder
    tokenizer = tokenizer_reader.read(tokenizer_folder, size, config)
    layout = architecture.layout
    if tokenizer.post_processor is not None:
        layout = post_processors.layout_for(
            tokenizer.post_processor,
            tokenizer.tokenizer,
            layout,
            encoder,
            str(tokenizer_folder),
        )
    if isinstance(layout, Layout):
        side = tokenizer.padding_side
        layout = dataclasses.replace(layout, padding_side=side)
    if token := _text_as_padding(config, tokenizer.tokenizer):
        tokenizer.notes.append(
            f'transformers takes {token} in a text for padding and does not '
            'count it in positions; here it has a position like any other'
        )
    for key, note in {**_NOTES, **architecture.notes}.items():
        if config.get(key):
            tokenizer.notes.append(note.format(**config))
    return EncoderSource(
        where=str(folder),
        naming=naming,
        tensors=open_folder(folder, config.get('transformers_weights')),
        encoder=encoder,
        tokenizer=tokenizer,
        layout=layout,
        pooler=architecture.classes,
        mean=config.get(architecture.pooling) == 'mean',
        labels=labels,
        multilabel=problem == SEVERAL,
        tied=_tied(config, encoder),
        tag_pooler=_token_pooler(kind, 'tag'),
        tag_tokens=_tag_tokens(config),
        padding=_padding(config, tokenizer.tokenizer),
        span=_span(config),
        transform_activation=architectures.transform_activation(
            config, encoder, str(path)
        ),
    )


def naming_of(config: Mapping[str, Any], where: str) -> Naming:
    """Returns the names of the weights beside a config.json.

    Raises:
        ValueError: as `architectures.encoder_of`.
    """
    architectures.encoder_of(config, where)
    return _naming(config)


def _name(config: Mapping[str, Any]) -> str:
    """Returns the name of the architecture; '' where the file names none."""
    return (config.get('architectures') or [''])[0]


def _naming(config: Mapping[str, Any], task: str | None = None) -> Naming:
    """Chooses the names of the weights beside a config.json.

    Args:
        config: content of the file.
        task: the row of TASKS whose head there is; None: the file says it.
    """
    architecture = ARCHITECTURES[config['model_type']]
    naming = architecture.naming
    if task is None:
        name = _name(config)
        task = next((row for x, row in TASKS.items() if name.endswith(x)), '')
    if names := _of_tokens(config['model_type'], task):
        # Heads of several tasks may have the same names.
        heads = {k: x for k, x in naming.heads.items() if k != 'label'}
        naming = naming._replace(heads=heads | {task: names})
    if architecture.adapt:
        naming = architecture.adapt(naming, config)
    first = architectures.first_position(config)
    return after_padding(naming, first) if first else naming


def _of_tokens(kind: str, row: str) -> Lines:
    """Returns the names of a head on tokens, `tag` or `span`; {}: none."""
    known = ARCHITECTURES[kind]
    return {'tag': known.tags, 'span': known.spans}.get(row, {})


def _token_pooler(kind: str, row: str) -> str:
    """Returns the activation below the scores of a head on tokens."""
    pools = 'pooler_kernel' in _of_tokens(kind, row)
    return ARCHITECTURES[kind].classes if pools else NO_POOLER


def _span(config: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the settings of the row `span`."""
    known = (config.get(PARAMETERS) or {}).get(OF_SPANS) or {}
    pooler = _token_pooler(config['model_type'], 'span')
    ours = {x: known[key] for key, x in _OF_SPANS.items() if key in known}
    return {'pooler': pooler, 'biases': True, **ours}


def _tag_tokens(config: Mapping[str, Any]) -> str:
    """Returns which tokens have labels, of `objectives.tag.TOKENS`."""
    ours = (config.get(PARAMETERS) or {}).get(OF_TAGS) or {}
    return FIRST if ours.get(STRATEGY) == FIRST else ALL


def _padding(
    config: Mapping[str, Any], tokenizer: TextTokenizer
) -> str | None:
    """Names the token that a head on the last state does not read.

    As transformers has it: the one that pads by config.json, wherever it
    stands. None: there is none, or the head reads another state.
    """
    kind = config['model_type']
    pad = config.get('pad_token_id', _PADS.get(kind))
    if ARCHITECTURES[kind].classes != NO_POOLER or pad is None:
        return None
    return tokenizer.vocabulary[pad] if 0 <= pad < len(tokenizer) else None


def _tied(config: Mapping[str, Any], encoder: EncoderConfig) -> str | None:
    """Names the row without weights of a head, or None."""
    architecture = ARCHITECTURES[config['model_type']]
    ties = config.get('tie_word_embeddings', architecture.ties)
    causal = encoder.arguments.get('causal', False)
    if not ties or causal != (architecture.tied == 'gpt'):
        return None
    return architecture.tied


def _text_as_padding(
    config: Mapping[str, Any], tokenizer: TextTokenizer
) -> str | None:
    """Names the token that a config.json takes for padding, and that texts may
    hold; None: there is none.
    """
    pad = architectures.first_position(config) - 1
    around = tokenizer.cls_id, tokenizer.sep_id
    if tokenizer.kind == Numbers.kind or not 0 <= pad < len(tokenizer) or (
        pad == tokenizer.pad_id and pad not in around
    ):  # fmt: skip
        return None
    token = tokenizer.vocabulary[pad]
    return None if token == unnamed(pad) else f'{token!r} (pad_token_id {pad})'


def labels_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Lists the names of classes in the order of numbers."""
    names = config.get('id2label') or {}
    count = len(names) or config.get('num_labels') or 2
    return tuple(str(names.get(str(i), f'LABEL_{i}')) for i in range(count))


def write(folder: pathlib.Path, loaded: Loaded) -> list[str]:
    """Writes a workdir as a folder that transformers loads.

    Returns:
        Descriptions of what has no place in the folder.

    Raises:
        ValueError: transformers has no such encoder or tokenizer.
    """
    config, tokenizer = loaded.config, loaded.tokenizer
    naming, values = named(loaded)
    kind, arguments = values['model_type'], loaded.encoder.arguments
    architecture, heads = ARCHITECTURES[kind], _heads(loaded, kind)
    rows, ours = list(heads), heads.values()
    dropped = [
        f'the row {row}{why(row, loaded, kind)}'
        for row in lacking(loaded, ours)
    ] + unwritten(loaded, ours)
    if token := _text_as_padding(values, tokenizer):
        pad = architectures.first_position(values) - 1
        if pad in (tokenizer.cls_id, tokenizer.sep_id):
            raise errors.InputError(
                'padding_around_texts',
                f'{kind} does not count {token} in positions, and this '
                'tokenizer puts it around texts',
            )
        dropped.append(f'the position of {token}, which is no padding here')
    tensors = {}
    for path, variable in loaded.model.exported.items():
        if path.startswith('encoder/'):
            tensors[path] = variable.numpy()
        for head, row in heads.items():
            place = mapping.place_of(row)
            if not path.startswith(f'{place}/'):
                continue
            theirs = path.replace(place, mapping.place_of(head), 1)
            if not is_unnamed_bias(naming, theirs):
                tensors[theirs] = variable.numpy()
            elif np.any(variable.numpy()):
                dropped.append(f'{path.split("/")[-1]} of the row {row}')
    if _keeps_one_segment(kind, arguments):
        first, *_ = tensors.pop('encoder/segment_embeddings')
        table = f'encoder/{_POSITIONS}'
        tensors[table] = tensors[table] + first
        dropped.append(
            'segments but the first, which all positions hold: of two texts '
            'the second has it, too'
        )
    model = f'{architecture.name}Model'
    if tasks := [x for x, row in TASKS.items() if row in rows]:
        model = f'{architecture.name}{tasks[0]}'
    elif rows == ['mlm', 'nsp'] or rows == ['nsp', 'mlm']:
        model = 'BertForPreTraining'
    elif rows == ['nsp']:
        model = 'BertForNextSentencePrediction'
    elif rows:
        model = architecture.name.removesuffix('Text') + architecture.fills
    values |= {'architectures': [model], 'torch_dtype': 'float32'}
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    if config.layout == 'roberta' or kind in ('modernbert', 'albert'):
        values |= {'bos_token_id': cls, 'eos_token_id': sep}
    if kind == 'modernbert':
        values |= {'cls_token_id': cls, 'sep_token_id': sep}
    labels = config.labels
    if 'label' in rows:
        row = heads['label']
        settings = config.rows[row].settings if row in config.rows else {}
        if architecture.pooling:
            values[architecture.pooling] = (
                'mean' if settings.get('mean') else architecture.first
            )
        if row in CRITICS or row == 'score':
            labels = ('LABEL_0',)
        if row in CRITICS:
            values |= _READ_BY_OTHERS
        elif row == 'score':
            values[PROBLEM] = NUMBER
        elif settings['multilabel']:
            values[PROBLEM] = SEVERAL
    if 'tag' in rows and config.rows['tag'].settings['tokens'] == FIRST:
        values[PARAMETERS] = {OF_TAGS: {STRATEGY: FIRST}}
    if 'span' in rows:
        span = loaded.model.objectives['span']
        if not span.biases:  # heads there have one
            tensors['objectives/span/bias'] = np.zeros(2, np.float32)
        values[PARAMETERS] = {
            OF_SPANS: {key: getattr(span, x) for key, x in _OF_SPANS.items()}
        }
        if config.null_threshold:
            dropped.append('the odds above which it gives no answer')
    if 'mlm' in rows and architecture.fills_by:
        key, _ = architecture.fills_by
        if key is not None:
            form = _transform_activation(loaded, heads['mlm'])
            values[key] = architectures.spelled(kind, form)
    if {'label', 'tag'} & {*rows}:
        values['id2label'] = {str(i): label for i, label in enumerate(labels)}
        values['label2id'] = {label: i for i, label in enumerate(labels)}
    arrays = mapping.write(
        naming, tensors, arguments['layers'], arguments['heads'], rows
    )
    tokenizer_writer.write(
        folder, tokenizer, kind, config.max_length, config.layout
    )
    files.write_tensors(folder / SINGLE, arrays, {'format': 'pt'})
    files.write_json(folder / CONFIG, values)
    return dropped


def named(loaded: Loaded) -> tuple[Naming, dict[str, Any]]:
    """Returns the names of a workdir's weights in transformers, and the
    config.json beside them.

    Raises:
        ValueError: transformers has no such encoder.
    """
    encoder, kind = _encoder(loaded)
    arguments, pad_id = encoder.arguments, loaded.tokenizer.pad_id
    if loaded.layout.padding is not None:
        pad_id = loaded.template.padding
    if _keeps_one_segment(kind, arguments):
        encoder = EncoderConfig(encoder.name, {**arguments, 'segments': 0})
    values = architectures.config_of(kind, encoder, pad_id)
    heads = _heads(loaded, kind)
    task = next((row for row in TASKS.values() if row in heads), '')
    return _naming(values, task), values


def _keeps_one_segment(kind: str, arguments: Mapping[str, Any]) -> bool:
    """Tells whether a kind has positions alone, and an encoder segments."""
    names = ARCHITECTURES[kind].naming.encoder
    lacks = _POSITIONS in names and 'segment_embeddings' not in names
    return lacks and bool(arguments.get('segments'))


def heads_of(loaded: Loaded) -> dict[str, str]:
    """Maps each head that can be written to a row, or to a critic."""
    return _heads(loaded, _encoder(loaded)[1])


def lacking(loaded: Loaded, written: Collection[str]) -> list[str]:
    """Lists the rows without a place.

    A row that has no weights and answers nothing leaves nothing behind.
    `written` are rows of `heads_of`.
    """
    return [
        row
        for row, objective in loaded.model.objectives.items()
        if row not in written and (objective.weights or TABLE[row].answers)
    ]


def unwritten(loaded: Loaded, written: Collection[str]) -> list[str]:
    """Describes heads of critics without a place.

    `written` are rows of `heads_of`.
    """
    heads = (name for name in loaded.model.critics if name not in written)
    return [CRITICS[name].described for name in heads]


def _encoder(loaded: Loaded) -> tuple[EncoderConfig, str]:
    """Completes the encoder's arguments, and chooses a model_type."""
    config = loaded.config
    roberta = None
    if config.layout == 'roberta':
        bytes_ = config.tokenizer.kind == 'bytes'
        roberta = 'roberta' if bytes_ else 'xlm-roberta'
    # A config may leave out defaults.
    encoder = EncoderConfig(config.encoder.name, loaded.encoder.arguments)
    return encoder, architectures.kind_of(encoder, roberta)


def _heads(loaded: Loaded, kind: str) -> dict[str, str]:
    heads: dict[str, str] = {}
    known = ARCHITECTURES[kind].naming

    def fits(head: str, row: str, settings: Mapping[str, Any]) -> bool:
        return _fits(head, settings, kind, loaded.layout.first) and not (
            head == 'label' and _ends_with_padding(loaded, kind)
            or head == 'mlm' and _missed_activation(loaded, row, kind)
        )

    for row in loaded.model.objectives:
        head = TABLE[row].begins_as or row
        head = 'label' if head == 'score' else head
        if fits(head, row, loaded.config.rows[row].settings):
            heads.setdefault(head, row)
    critic = CRITICS[loaded.config.critic]
    entry = critic.of(loaded.config)
    written = None if entry is None else critic.writes_head(entry)
    if written and fits(written[0], critic.name, written[1]):
        heads[written[0]] = critic.name
    tasks = [row for row in TASKS.values() if row in heads]
    for row in tasks[1:]:  # a folder has one of them
        heads.pop(row)
    fills, classes = (
        {name for name, _ in known.heads.get(row, {}).values()}
        for row in ('mlm', 'label')
    )
    if tasks and fills & classes:  # of ModernBERT one layer is in both
        heads.pop('mlm', None)
    return heads


def _ends_with_padding(loaded: Loaded, kind: str) -> bool:
    """Tells whether texts end with the token that pads, behind which heads that
    read the last state would not look, but those here do.
    """
    tokenizer, padding = loaded.tokenizer, loaded.layout.padding
    reads_last = ARCHITECTURES[kind].classes == NO_POOLER
    ends = tokenizer.sep_id, *loaded.after[-1:]
    return reads_last and padding is None and tokenizer.pad_id in ends


def _transform_activation(loaded: Loaded, row: str) -> str | None:
    """Returns the activation of the output transform of a row, or of a critic;
    None: there is no such transform.
    """
    settings = loaded.config.critics.get(row)
    if settings is None:
        settings = loaded.config.rows[row].settings
    if not settings.get('transform'):
        return None
    usual = loaded.encoder.arguments['activation']
    return settings.get('transform_activation') or usual


def _missed_activation(loaded: Loaded, row: str, kind: str) -> str | None:
    """Names the activation of the output transform of transformers, where the
    row, or the critic, has another.
    """
    known, usual = ARCHITECTURES[kind], loaded.encoder.arguments
    key, default = known.fills_by or (None, None)
    activation = _transform_activation(loaded, row)
    if activation is None or key is not None:
        return None
    theirs = known.activations.get(default, usual['activation'])
    return None if theirs == activation else theirs


def why(row: str, loaded: Loaded, kind: str) -> str:
    """Names, for a head on whole texts without a place, the reason."""
    settings = loaded.config.rows[row].settings
    known = ARCHITECTURES[kind]
    if row == 'tag':
        return ' (there it is one layer over the last states)'
    if row == 'span':
        pooler = _token_pooler(kind, row)
        if not known.spans or settings.get('pooler', NO_POOLER) == pooler:
            return ''
        return f' (there it has --span.pooler={pooler})'
    head = TABLE[row].begins_as or row
    if head == 'mlm' and (missed := _missed_activation(loaded, row, kind)):
        return f' (there the activation of its transform is {missed})'
    if head not in ('label', 'score'):
        return ''
    if _ends_with_padding(loaded, kind):
        return ' (texts end with the token that pads)'
    if settings['pooler'] != known.classes:
        return f' (there it has --{row}.pooler={known.classes})'
    return ''


def _fits(
    row: str, settings: Mapping[str, Any], kind: str, first: bool
) -> bool:
    """Tells whether transformers has a head on a kind of encoder.

    Heads for classes without a layer before them read the last state; `first`
    says whether the pooled state is the first.
    """
    heads = ARCHITECTURES[kind].naming.heads
    if row == 'mlm':
        return row in heads and settings['transform'] == bool(heads[row])
    if row == 'label':
        known = ARCHITECTURES[kind]
        same = settings['pooler'] == known.classes
        same = same and not (known.classes == NO_POOLER and first)
        return same and (not settings.get('mean') or bool(known.pooling))
    if row in ('tag', 'span'):
        joined = 'mix', 'embeddings', 'bilstm', 'crf'
        same = settings.get('pooler', NO_POOLER) == _token_pooler(kind, row)
        same = same and not any(settings.get(name) for name in joined)
        same = same and settings.get('end') != CONDITIONAL
        return same and bool(_of_tokens(kind, row))
    return row in heads
