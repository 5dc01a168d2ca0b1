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
from infoword_tf.text.numbers import Numbers
from infoword_tf.text.tokenizer import TextTokenizer, unnamed
from infoword_tf.weights import (
    architectures,
    mapping,
    post_processors,
    tokenizer_reader,
    tokenizer_writer,
)
from infoword_tf.weights.converted import EncoderSource
from infoword_tf.weights.heads import (
    CLASSES,
    HEADS,
    MASKED_WORDS,
    NEXT_TEXT,
    NEXT_WORDS,
    NUMBER,
    PROBLEM,
    TASKS,
    PublicConfig,
    PublicFolder,
    TokensHead,
    is_number,
    read_heads,
)
from infoword_tf.weights.kinds import ARCHITECTURES
from infoword_tf.weights.names import (
    Naming,
    after_padding,
    is_unnamed_bias,
)
from infoword_tf.weights.tensors import SINGLE, open_folder
from infoword_tf.weights.tokenizer_reader import FolderTokenizer

CONFIG = 'config.json'
_POSITIONS = 'position_embeddings'
_CHOOSES = 'ForMultipleChoice'
_PADS = {'gemma3_text': 0}  # where config.json has no pad_token_id
# `Architecture.notes` of all kinds.
_NOTES = {
    'auto_map': 'code of this repository (auto_map) is not run: it is read '
    'as any {model_type}',
}


def read(
    folder: pathlib.Path,
    config: Mapping[str, Any] | None = None,
    tokenizer_folder: pathlib.Path | None = None,
) -> EncoderSource:
    """Reads all of a folder but the weights.

    Args:
        folder: path of config.json, weights and a tokenizer.
        config: content that replaces the folder's config.json.
        tokenizer_folder: path of a tokenizer that replaces the folder's, if
            there is one.

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
    labels = labels_of(config)
    if is_number(config) and CLASSES in naming.heads and len(labels) > 1:
        raise errors.InputError(
            'several_regression_numbers',
            f'{path} has {PROBLEM} {NUMBER!r} of {len(labels)} numbers; '
            'only one can be converted',
        )
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
    layout = _layout(tokenizer, architecture.layout, encoder, tokenizer_folder)
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
        heads=read_heads(PublicConfig(config, encoder, str(path))),
        labels=labels,
        tied=_tied(config, encoder),
        padding=_padding(config, tokenizer.tokenizer),
    )


def _layout(
    tokenizer: FolderTokenizer,
    usual: str,
    encoder: EncoderConfig,
    folder: pathlib.Path,
) -> str | Layout:
    """Returns the layout of texts by the files of a tokenizer.

    Args:
        tokenizer: tokenizer of the folder.
        usual: name of the layout of the architecture.
        encoder: encoder that reads the texts.
        folder: path of the files, for errors.
    """
    if tokenizer.post_processor is None:
        return usual
    layout = post_processors.layout_for(
        tokenizer.post_processor,
        tokenizer.tokenizer,
        usual=usual,
        encoder=encoder,
        where=str(folder),
    )
    if isinstance(layout, Layout):
        side = tokenizer.padding_side
        return dataclasses.replace(layout, padding_side=side)
    return layout


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


def _naming(config: Mapping[str, Any], head: str | None = None) -> Naming:
    """Chooses the names of the weights beside a config.json.

    Args:
        config: content of the file.
        head: name in HEADS of one on states, '' for none; None: the file says
            it.
    """
    architecture = ARCHITECTURES[config['model_type']]
    naming = architecture.naming
    if head is None:
        name = _name(config)
        named = (x for x in TASKS if name.endswith(HEADS[x].ending))
        head = next(named, None)
    known = HEADS[head] if head else None
    if head and isinstance(known, TokensHead):
        # Heads of several tasks may have the same names.
        heads = {k: x for k, x in naming.heads.items() if k != CLASSES}
        if names := known.names(config['model_type']):
            naming = naming._replace(heads=heads | {head: names})
    if architecture.adapt:
        naming = architecture.adapt(naming, config)
    first = architectures.first_position(config)
    return after_padding(naming, first) if first else naming


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
    """Names the head without weights, or None."""
    architecture = ARCHITECTURES[config['model_type']]
    ties = config.get('tie_word_embeddings', architecture.ties)
    causal = encoder.arguments.get('causal', False)
    if not ties or causal != (architecture.tied == NEXT_WORDS):
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
    naming, rows = naming.at(heads), list(heads.values())
    dropped = [
        f'the row {row}{why(row, loaded, kind)}'
        for row in lacking(loaded, rows)
    ] + unwritten(loaded, rows)
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
    places = tuple(f'{mapping.place_of(row)}/' for row in rows)
    for path, variable in loaded.model.exported.items():
        if path.startswith(places) and is_unnamed_bias(naming, path):
            if np.any(variable.numpy()):
                *_, row, name = path.split('/')
                dropped.append(f'{name} of the row {row}')
        elif path.startswith(('encoder/', *places)):
            tensors[path] = variable.numpy()
    if _keeps_one_segment(kind, arguments):
        first, *_ = tensors.pop('encoder/segment_embeddings')
        table = f'encoder/{_POSITIONS}'
        tensors[table] = tensors[table] + first
        dropped.append(
            'segments but the first, which all positions hold: of two texts '
            'the second has it, too'
        )
    model = f'{architecture.name}Model'
    if tasks := [HEADS[x].ending for x in TASKS if x in heads]:
        model = f'{architecture.name}{tasks[0]}'
    elif {*heads} == {MASKED_WORDS, NEXT_TEXT}:
        model = 'BertForPreTraining'
    elif {*heads} == {NEXT_TEXT}:
        model = 'BertForNextSentencePrediction'
    elif heads:
        model = architecture.name.removesuffix('Text') + architecture.fills
    values |= {'architectures': [model], 'torch_dtype': 'float32'}
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    if config.layout == 'roberta' or kind in ('modernbert', 'albert'):
        values |= {'bos_token_id': cls, 'eos_token_id': sep}
    if kind == 'modernbert':
        values |= {'cls_token_id': cls, 'sep_token_id': sep}
    public = PublicFolder(loaded, values, tensors, dropped)
    for name, head in HEADS.items():
        if name in heads:
            head.write(public, heads[name])
    arrays = mapping.write(
        naming,
        tensors,
        layers=arguments['layers'],
        heads=arguments['heads'],
        rows=rows,
    )
    tokenizer_writer.write(
        folder,
        tokenizer,
        kind=kind,
        max_length=config.max_length,
        layout=config.layout,
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
    task = next((x for x in TASKS if x in heads), '')
    return _naming(values, task), values


def _keeps_one_segment(kind: str, arguments: Mapping[str, Any]) -> bool:
    """Tells whether a kind has positions alone, and an encoder segments."""
    names = ARCHITECTURES[kind].naming.encoder
    lacks = _POSITIONS in names and 'segment_embeddings' not in names
    return lacks and bool(arguments.get('segments'))


def heads_of(loaded: Loaded) -> dict[str, str]:
    """Maps each head of HEADS that is written to a row, or to a critic."""
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
    for row in loaded.model.objectives:
        head = TABLE[row].public_head
        if head is not None and (
            HEADS[head].fits(loaded, loaded.config.rows[row].settings, kind)
        ):
            heads.setdefault(head, row)
    critic = CRITICS[loaded.config.critic]
    entry = critic.of(loaded.config)
    written = None if entry is None else critic.writes_head(entry)
    if written is not None:
        head, settings = written
        if HEADS[head].fits(loaded, settings, kind):
            heads[head] = critic.name
    tasks = [head for head in TASKS if head in heads]
    for head in tasks[1:]:  # a folder has one of them
        heads.pop(head)
    names = ARCHITECTURES[kind].naming.heads
    fills, classes = (
        {name for name, _ in names.get(head, {}).values()}
        for head in (MASKED_WORDS, CLASSES)
    )
    if tasks and fills & classes:  # of ModernBERT one layer is in both
        heads.pop(MASKED_WORDS, None)
    return heads


def why(row: str, loaded: Loaded, kind: str) -> str:
    """Names, for a row whose head has no place, the reason; '': none."""
    head = TABLE[row].public_head
    return '' if head is None else HEADS[head].why(loaded, row, kind)
