"""Tokenizers of public folders, from the files that hold them.

tokenizer.json           WordPiece, Unigram or BPE of the library tokenizers
vocab.txt                WordPiece, with tokenizer_config.json
sentencepiece.bpe.model  SentencePiece of XLM-R
spiece.model             SentencePiece of XLNet and ALBERT
spm.model                SentencePiece of DeBERTa 2 and 3
tokenizer.model          SentencePiece of Llama and Mistral
vocabulary.spm           SentencePiece of KerasHub, as it is
vocab.json, merges.txt   byte-pair encodings of GPT, GPT-2 and RoBERTa
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from infoword_tf import errors, files
from infoword_tf.text import vocabulary as vocabularies
from infoword_tf.text.added import AddedToken, with_added
from infoword_tf.text.bytepairs import BytePairs
from infoword_tf.text.characterpairs import ENDS, CharacterPairs
from infoword_tf.text.layout import LAYOUTS
from infoword_tf.text.markedpairs import MARK, MarkedPairs
from infoword_tf.text.normalizers import steps_of
from infoword_tf.text.numbers import Numbers
from infoword_tf.text.pairs import NAMES
from infoword_tf.text.sentencepiece import SentencePiece, parse_model
from infoword_tf.text.tokenizer import TextTokenizer, UnsupportedTokenizer
from infoword_tf.text.vocabulary import unnamed
from infoword_tf.text.wordpiece import LONGEST_WORD, WordPieceTokenizer
from infoword_tf.weights import post_processors, unigram
from infoword_tf.weights.architectures import check_values
from infoword_tf.weights.post_processors import PostProcessor

SHIFTED_MODEL = 'sentencepiece.bpe.model'
XLNET_MODEL = 'spiece.model'
DEBERTA_MODEL = 'spm.model'
LLAMA_MODEL = 'tokenizer.model'
KERAS_MODEL = 'vocabulary.spm'

# The class of transformers that reads the tokenizer of each model_type, where
# tokenizer_config.json names none; and other names of such classes.
_CLASSES = {
    'bert': 'BertTokenizer', 'distilbert': 'BertTokenizer',
    'electra': 'BertTokenizer', 'roberta': 'RobertaTokenizer',
    'camembert': 'CamembertTokenizer', 'xlm-roberta': 'XLMRobertaTokenizer',
    'xlnet': 'XLNetTokenizer', 'gpt2': 'GPT2Tokenizer',
    'openai-gpt': 'OpenAIGPTTokenizer', 'mpnet': 'MPNetTokenizer',
    'albert': 'AlbertTokenizer', 'deberta-v2': 'DebertaV2Tokenizer',
    'nomic_bert': 'BertTokenizer',
}  # fmt: skip
_ALIASES = {
    'DistilBertTokenizer': 'BertTokenizer',
    'ElectraTokenizer': 'BertTokenizer',
    'MobileBertTokenizer': 'BertTokenizer',
    'SqueezeBertTokenizer': 'BertTokenizer',
    'BartTokenizer': 'RobertaTokenizer',
    'LongformerTokenizer': 'RobertaTokenizer',
}
# The layout of texts, and the model in a tokenizer.json, by class.
_LAYOUTS = {
    'BertTokenizer': ('bert', 'WordPiece'),
    'RobertaTokenizer': ('roberta', 'BPE'),
    'CamembertTokenizer': ('roberta', 'Unigram'),
    'XLMRobertaTokenizer': ('roberta', 'Unigram'),
    'XLNetTokenizer': ('xlnet', 'Unigram'),
    'MPNetTokenizer': ('roberta', 'WordPiece'),
    'AlbertTokenizer': ('bert', 'Unigram'),
    'DebertaV2Tokenizer': ('bert', 'Unigram'),
}
_LLAMA = 'LlamaTokenizer'
# Tokens that a class puts before and after texts where settings ask for them.
_ENDS = {
    'GPT2Tokenizer': ('<|endoftext|>', '<|endoftext|>'),
    'OpenAIGPTTokenizer': ('<|endoftext|>', '<|endoftext|>'),
    _LLAMA: ('<s>', '</s>'),
}
_NAMED = 'pad', 'unk', 'cls', 'sep', 'mask'
_FLAGS = 'lstrip', 'rstrip', 'single_word', 'normalized', 'special'
_UNTRIMMED = {
    'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': False,
    'use_regex': True,
}  # fmt: skip

# All keys of tokenizer_config.json: what they do here, or the values that can
# be kept, the default of transformers first.
FOLLOWED, NAMED, IDLE = 'followed', 'named by a note', 'without effect'
KEYS: Mapping[str, str | tuple[Any, ...]] = {
    **dict.fromkeys(
        ('bos_token', 'eos_token', 'unk_token', 'sep_token', 'pad_token',
         'cls_token', 'mask_token', 'added_tokens_decoder',
         'additional_special_tokens', 'extra_special_tokens',
         'model_specific_special_tokens'),
        FOLLOWED,
    ),
    # As far as the class of the tokenizer has them.
    **dict.fromkeys(
        ('add_bos_token', 'add_eos_token', 'add_prefix_space', 'do_lower_case',
         'keep_accents', 'legacy', 'strip_accents', 'tokenize_chinese_chars',
         'tokenizer_class', 'trim_offsets'),
        FOLLOWED,
    ),
    **dict.fromkeys(
        ('max_len', 'model_input_names', 'model_max_length', 'padding_side'),
        FOLLOWED,
    ),
    'auto_map': NAMED,
    'truncation_side': NAMED,
    'fix_mistral_regex': (None, False),
    'split_by_punct': (False, None),
    'split_special_tokens': (False, None),
    # Of ids to texts, and of conversations.
    **dict.fromkeys(
        ('chat_control_tokens', 'chat_template', 'clean_up_tokenization_spaces',
         'clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_'
         'output', 'errors', 'response_schema', 'response_template',
         'use_default_system_prompt'),
        IDLE,
    ),
    # Where the tokenizer came from; parts that a file of its own has.
    **dict.fromkeys(
        ('_json_padding', '_json_truncation', '_spm_precompiled_charsmap',
         'backend', 'files_loaded', 'gguf_file', 'init_inputs', 'merges',
         'merges_file', 'name_or_path', 'post_processor', 'processor_class',
         'remove_space', 'tokenizer', 'tokenizer_file', 'tokenizer_object',
         'tokenizer_padding', 'tokenizer_truncation', 'unk_id', 'verbose',
         'vocab', 'vocab_file'),
        IDLE,
    ),
}  # fmt: skip
_REFUSED = {key: x for key, x in KEYS.items() if isinstance(x, tuple)}

Result = tuple[TextTokenizer, PostProcessor | None]


class FolderTokenizer(NamedTuple):
    """The tokenizer of a folder.

    Attributes:
        tokenizer: of this project.
        max_length: of texts, with specials; None: the folder does not say it.
        notes: for people.
        post_processor: special tokens around texts; None: those of the
            architecture.
        padding_side: of batches, left or right.
    """

    tokenizer: TextTokenizer
    max_length: int | None
    notes: list[str]
    post_processor: PostProcessor | None = None
    padding_side: str = 'right'


@dataclasses.dataclass(frozen=True)
class _Folder:
    """Settings of a folder besides the file of the vocabulary.

    Attributes:
        settings: tokenizer_config.json.
        class_name: of the tokenizer in transformers, without `Fast`.
        vocab_size: V of the encoder.
        notes: for people.
        added: fields of added tokens that the file of the vocabulary may lack,
            by content; the id is None where none is known.
    """

    settings: Mapping[str, Any]
    class_name: str | None
    vocab_size: int
    notes: list[str]
    added: Mapping[str, dict[str, Any]]

    def count_unnamed(self, ids: Collection[int], where: Any) -> int:
        """Counts embeddings without a token; ValueError: too few embeddings."""
        count = max(ids, default=-1) + 1
        if count > self.vocab_size:
            raise errors.InputError(
                'more_tokens_than_embeddings',
                f'{where} has {count:,} tokens, but the encoder has '
                f'{self.vocab_size:,} embeddings; one of the two is of another '
                'model',
            )
        lacking = self.vocab_size - len(set(ids))
        if lacking:
            self.notes.append(
                f'{lacking} embeddings have no token of the vocabulary'
            )
        return lacking


def is_one(folder: pathlib.Path) -> bool:
    """Tells whether a folder has a tokenizer."""
    return any((folder / name).is_file() for name in _READERS)


def read(
    folder: pathlib.Path,
    vocab_size: int,
    config: Mapping[str, Any] | None = None,
) -> FolderTokenizer:
    """Reads the tokenizer of a folder.

    Args:
        vocab_size: V of the encoder; a shorter vocabulary is filled up with
            names that no text has.
        config: the folder's config.json.

    Raises:
        FileNotFoundError: the folder has no tokenizer.
        ValueError: a vocabulary of another size, or a tokenizer that reads
            text in a way that cannot be kept.
    """
    settings = read_optional_json(folder / 'tokenizer_config.json')
    check_values(settings, _REFUSED, f'{folder}/tokenizer_config.json')
    longest = settings.get('model_max_length', settings.get('max_len'))
    if not isinstance(longest, int) or longest > 1_000_000:
        longest = None
    known = _Folder(
        settings, _class_name(settings, config or {}), vocab_size, [],
        _added_in_settings(folder, settings),
    )  # fmt: skip
    if settings.get('auto_map'):
        known.notes.append(
            'code of this tokenizer (auto_map of tokenizer_config.json) is not '
            'run'
        )
    if settings.get('truncation_side', 'right') != 'right':
        known.notes.append(
            'long texts lose their ends; by tokenizer_config.json '
            '(truncation_side) their beginnings'
        )
    for name, reader in _READERS.items():
        if (folder / name).is_file():
            tokenizer, post_processor = reader(folder / name, known)
            if post_processor is not None and not _gives_segments(known):
                post_processor = post_processor.without_segments()
            side = 'left' if known.class_name == _LLAMA else 'right'
            return FolderTokenizer(
                tokenizer, longest, known.notes, post_processor,
                settings.get('padding_side', side),
            )  # fmt: skip
    *names, last = _READERS
    raise FileNotFoundError(
        f'{folder} has no tokenizer: none of {", ".join(names)} and {last}'
    )


def read_file(
    path: pathlib.Path, name: str, vocab_size: int, settings: Mapping[str, Any]
) -> FolderTokenizer:
    """Reads the file of a vocabulary as one that other folders call `name`.

    Special tokens stand where the architecture has them.

    Args:
        path: of the file.
        name: first column of this module's docstring.
        vocab_size: as of `read`.
        settings: as in tokenizer_config.json.

    Raises:
        ValueError: as `read`.
    """
    known = _Folder(settings, None, vocab_size, [], {})
    tokenizer, _ = _READERS[name](path, known)
    return FolderTokenizer(tokenizer, None, known.notes)


def read_optional_json(path: pathlib.Path) -> dict[str, Any]:
    """Reads a file of JSON; {} if the file is missing."""
    return files.read_json(path) if path.is_file() else {}


def _class_name(
    settings: Mapping[str, Any], config: Mapping[str, Any]
) -> str | None:
    kind = config.get('model_type')
    if kind in ('modernbert', 'mistral'):  # their class does not matter
        return None
    name = settings.get('tokenizer_class') or config.get('tokenizer_class')
    name = (name or _CLASSES.get(kind, '')).removesuffix('Fast')
    return _ALIASES.get(name, name) or None


def _gives_segments(known: _Folder) -> bool:
    """Tells whether the tokenizer gives segments to the model."""
    names = known.settings.get('model_input_names')
    if names is None:
        return known.class_name in (
            None, 'BertTokenizer', 'XLNetTokenizer', 'DebertaV2Tokenizer'
        )  # fmt: skip
    return 'token_type_ids' in names


# ------------------------------------------------------------- added tokens


def _added_in_settings(
    folder: pathlib.Path, settings: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Reads `_Folder.added` from the small files beside the vocabulary."""
    tokens: dict[str, dict[str, Any]] = {}

    def add(token: str | Mapping[str, Any], number: int | None = None) -> None:
        fields = {'content': token} if isinstance(token, str) else token
        flags = {x: bool(fields.get(x, x == 'special')) for x in _FLAGS}
        tokens.setdefault(fields['content'], {**flags, 'id': number})

    decoder = settings.get('added_tokens_decoder') or {}
    for number, token in decoder.items():
        add(token, int(number))
    named = dict(settings)
    if not decoder:
        named |= read_optional_json(folder / 'special_tokens_map.json')
    for key, value in named.items():
        if key in ('additional_special_tokens', 'extra_special_tokens'):
            values = value.values() if isinstance(value, dict) else value or ()
            for token in values:
                add(token)
        elif key.endswith('_token') and isinstance(value, str | dict):
            add(value)
    if not decoder:
        ids = read_optional_json(folder / 'added_tokens.json')
        for content, number in ids.items():
            add({'content': content, 'normalized': True, 'special': False})
            tokens[content]['id'] = number
    # Tokens without an id get one after all that have one.
    order = sorted(filter(None, tokens), key=lambda x: tokens[x]['id'] is None)
    return {content: tokens[content] for content in order}


def _added_tokens(
    known: _Folder, index: Mapping[str, int], listed: Sequence[Any]
) -> list[AddedToken]:
    """Lists added tokens, of tokenizer.json (`listed`) and of other files."""
    fields = dataclasses.fields(AddedToken)
    tokens = {
        token['content']: AddedToken(
            **{x.name: token.get(x.name, x.default) for x in fields}
        )
        for token in listed
        if token['content']
    }
    last = max([*index.values(), *(t.id for t in tokens.values())], default=-1)
    for content, flags in known.added.items():
        number = index.get(content, flags['id'])
        if content in tokens:
            number = tokens[content].id
            # Other classes keep the flags of tokenizer.json.
            if known.class_name not in _CLASSES.values() or flags['id'] is None:
                continue
        elif number is None:
            number = last + 1
        if number >= known.vocab_size:
            known.notes.append(
                f'the added token {content!r} has no embedding, so it is text '
                'like any other'
            )
            continue
        tokens[content] = AddedToken(content, **{**flags, 'id': number})
        last = max(last, number)
    return list(tokens.values())


def _with_added(
    tokenizer: TextTokenizer, tokens: Sequence[AddedToken], known: _Folder
) -> TextTokenizer:
    if tokenizer.kind == 'bytes':  # which finds several blanks itself
        tokens = [token for token in tokens if token.content.strip(' ')]
    try:
        return with_added(tokenizer, map(dataclasses.asdict, tokens))
    except ValueError as error:
        known.notes.append(f'{error}, so they are text like any other')
        return tokenizer


def _special(token: str, number: int) -> dict[str, Any]:
    """Describes a special token as tokenizer.json does."""
    return {
        'id': number, 'content': token, 'single_word': False,
        'lstrip': token in NAMES[vocabularies.MASK][:2], 'rstrip': False,
        'normalized': False, 'special': True,
    }  # fmt: skip


# ------------------------------------------------ without a tokenizer.json


def _plain(known: _Folder, tokenizer: TextTokenizer) -> Result:
    """Completes a tokenizer with added tokens and the class's layout."""
    vocabulary, names = tokenizer.vocabulary, []
    if known.class_name in _CLASSES.values():
        names += [vocabulary[number] for number in tokenizer.special_ids]
    if known.class_name == 'XLNetTokenizer':
        names += [x for x in ('<eop>', '<eod>') if x in vocabulary]
    specials = [_special(x, vocabulary.index(x)) for x in dict.fromkeys(names)]
    index = {x: i for i, x in enumerate(vocabulary) if x != unnamed(i)}
    tokens = _added_tokens(known, index, specials)
    post_processor = _class_post_processor(known, tokenizer)
    return _with_added(tokenizer, tokens, known), post_processor


def _class_post_processor(
    known: _Folder, tokenizer: TextTokenizer
) -> PostProcessor | None:
    """Returns the special tokens that a class of transformers puts around
    texts; None if unknown.
    """
    if known.class_name in _LAYOUTS:
        layout, _ = _LAYOUTS[known.class_name]
        return post_processors.of_layout(LAYOUTS[layout], tokenizer)
    if known.class_name not in _ENDS:
        return None
    begin, end = _ENDS[known.class_name]

    def special(name: str, usual: str) -> list[tuple[int, int]]:
        token = known.settings.get(f'{name}_token') or usual
        if not known.settings.get(f'add_{name}_token'):
            return []
        if isinstance(token, dict):
            token = token['content']
        return [(tokenizer.vocabulary.index(token), 0)]

    before, after = special('bos', begin), special('eos', end)
    one = [*before, ('A', 0), *after]
    return PostProcessor(tuple(one), (*one, *before, ('B', 0), *after))


def _vocab_txt(path: pathlib.Path, known: _Folder) -> Result:
    settings = known.settings
    lines = path.read_text(encoding='utf-8-sig').split('\n')
    while lines and not lines[-1]:
        lines.pop()
    if not settings.get('do_basic_tokenize', True):
        raise errors.InputError(
            'no_basic_tokenize',
            f'{path.parent}/tokenizer_config.json says do_basic_tokenize '
            'false; such a tokenizer cannot be kept',
        )
    # Of a token that is there twice the last id counts.
    index = {line: number for number, line in enumerate(lines) if line}
    hidden = {
        content: token['id']
        for content, token in known.added.items()
        if token['id'] is not None and content not in index
    }
    normalizer = _bert_normalizer(settings)
    return _plain(known, _wordpiece(index, hidden, normalizer, known, path))


def _shifted_model(path: pathlib.Path, known: _Folder) -> Result:
    model = unigram.shifted(path.read_bytes(), path)
    return _plain(known, _sentencepiece(model, known, path))


def _xlnet_model(path: pathlib.Path, known: _Folder) -> Result:
    before = unigram.before_model(
        known.settings, lower_case=known.class_name == 'AlbertTokenizer'
    )
    tokenizer = _sentencepiece(path.read_bytes(), known, path, before=before)
    return _plain(known, tokenizer)


def _deberta_model(path: pathlib.Path, known: _Folder) -> Result:
    model, names = unigram.vocabulary_of(path.read_bytes(), path)
    index = {token: i for i, (token, _) in enumerate(model['vocab'])}
    index.setdefault(vocabularies.MASK, len(index))
    described = {
        'added_tokens': [
            _special(x, index[x]) for x in (*names, vocabularies.MASK)
        ],
        'model': model,
        **unigram.of_deberta(known.settings),
    }
    tokenizer = _unigram(described, known, path)
    return tokenizer, _class_post_processor(known, tokenizer)


def _llama_model(path: pathlib.Path, known: _Folder) -> Result:
    if known.class_name not in (None, _LLAMA):
        raise errors.InputError(
            'model_of_another_class',
            f'{path} is of the class {known.class_name}, of which '
            'tokenizer.json alone can be read',
        )
    known = dataclasses.replace(known, class_name=_LLAMA)
    described = unigram.merges_of(path.read_bytes(), path)
    described |= _class_parts(described, known, path)
    tokenizer = _described(described, known, path)
    return tokenizer, _class_post_processor(known, tokenizer)


def _keras_model(path: pathlib.Path, known: _Folder) -> Result:
    """Reads a model unchanged, but adds a [MASK] that is lacking at the end."""
    model = path.read_bytes()
    proto = parse_model(model, path)
    mask = vocabularies.MASK
    if all(piece.piece != mask for piece in proto.pieces):
        proto.pieces.add(piece=mask, type=proto.SentencePiece.CONTROL)
        model = proto.SerializeToString()
    return _sentencepiece(model, known, path), None


def _vocab_json(path: pathlib.Path, known: _Folder) -> Result:
    """Reads vocab.json and merges.txt as a tokenizer.json."""
    index = files.read_json(path)
    merges = path.with_name('merges.txt')
    if not merges.is_file():
        raise FileNotFoundError(
            f'{path.parent} has a {path.name} but no {merges.name}; both make '
            'the tokenizer'
        )
    lines = merges.read_text(encoding='utf-8').split('\n')
    names = dict.fromkeys(itertools.chain(*NAMES.values()))
    described: dict[str, Any] = {
        'version': '1.0',
        'added_tokens': [_special(x, index[x]) for x in names if x in index],
        'normalizer': None,
        'pre_tokenizer': {
            **_UNTRIMMED,
            'add_prefix_space': bool(known.settings.get('add_prefix_space')),
            'trim_offsets': True,
        },
        'model': {
            'type': 'BPE',
            'vocab': index,
            'merges': [x for x in lines if x and x[:8] != '#version'],
        },
    }
    if any(token.endswith(ENDS) for token in index):
        described['normalizer'] = _bert_normalizer({})
        described['pre_tokenizer'] = {'type': 'BertPreTokenizer'}
        described['model'] |= {'unk_token': '<unk>', 'end_of_word_suffix': ENDS}
    if known.class_name == 'RobertaTokenizer':
        trims = bool(known.settings.get('trim_offsets', True))
        described['post_processor'] = {**_UNTRIMMED, 'trim_offsets': trims}
    tokenizer = _described(described, known, path)
    return tokenizer, _class_post_processor(known, tokenizer)


# ------------------------------------------------------------ tokenizer.json


def _tokenizer_json(path: pathlib.Path, known: _Folder) -> Result:
    described = files.read_json(path)
    model = dict(described.get('model') or {})
    kind = model.get('type')
    if kind is None and 'vocab' in model:  # older files
        kind = 'BPE' if 'merges' in model else 'WordPiece'
    described['model'] = {**model, 'type': kind}
    described |= _class_parts(described, known, path)
    processor = described.get('post_processor')
    post_processor = post_processors.read(processor, str(path))
    if kind not in _MODELS:
        raise errors.InputError(
            'unknown_tokenizer_model',
            f'{path} has a model of the type {kind!r}; known are '
            f'{", ".join(_MODELS)}',
        )
    tokenizer = _described(described, known, path)
    # Some classes put special tokens around texts whatever the file says.
    _, usual = _LAYOUTS.get(known.class_name, (None, None))
    named = known.settings.get('tokenizer_class')
    if usual and (processor is None or (named and usual == kind)):
        post_processor = _class_post_processor(known, tokenizer)
    return tokenizer, post_processor


def _class_parts(
    described: Mapping[str, Any], known: _Folder, path: pathlib.Path
) -> dict[str, Any]:
    """Returns parts of a tokenizer.json that transformers 5 replaces, by
    tokenizer_config.json or by defaults of the tokenizer's class.
    """
    kind, settings = described['model']['type'], known.settings
    parts: dict[str, Any] = {}
    split = described.get('pre_tokenizer') or {}
    prefix = settings.get('add_prefix_space')
    bert = (kind, known.class_name) in (
        ('WordPiece', 'BertTokenizer'), ('WordPiece', 'MPNetTokenizer')
    )  # fmt: skip
    normalizer = described.get('normalizer') or {'type': 'BertNormalizer'}
    if bert and normalizer['type'] == 'BertNormalizer':
        parts['normalizer'] = _bert_normalizer(settings)
    elif kind == 'BPE' and split.get('type') == 'ByteLevel':
        if known.class_name in ('GPT2Tokenizer', 'RobertaTokenizer'):
            parts['pre_tokenizer'] = {**split, 'add_prefix_space': bool(prefix)}
        post = described.get('post_processor') or {}
        roberta = known.class_name == 'RobertaTokenizer'
        if roberta and 'trim_offsets' in settings:
            trims = bool(settings['trim_offsets'])
            parts['post_processor'] = {**post, 'trim_offsets': trims}
    elif kind == 'Unigram' and known.class_name in (
        'XLMRobertaTokenizer', 'CamembertTokenizer'
    ):  # fmt: skip
        scheme = 'never' if prefix is False else 'always'
        # These differ in blanks alone, so no note is made.
        return {
            'normalizer': _step_of(described, 'Precompiled'),
            'pre_tokenizer': {
                'type': 'Sequence',
                'pretokenizers': [
                    {'type': 'WhitespaceSplit'},
                    {'type': 'Metaspace', 'prepend_scheme': scheme},
                ],
            },
        }
    elif kind == 'BPE' and known.class_name == _LLAMA:
        scheme = 'always' if settings.get('legacy') else 'first'
        scheme = 'never' if prefix is False else scheme
        if not any(
            step['type'] == 'ByteLevel'
            for step in steps_of(described.get('pre_tokenizer'))
        ):
            return {
                'normalizer': None,
                'pre_tokenizer': {
                    'type': 'Metaspace', 'replacement': MARK,
                    'prepend_scheme': scheme, 'split': False,
                },
            }  # fmt: skip
    elif (kind, known.class_name) == ('Unigram', 'DebertaV2Tokenizer'):
        if _step_of(described, 'Precompiled'):
            known.notes.append(
                f'NFC and no other change of characters, as {known.class_name} '
                f'of transformers 5 has it, not as {path.name}'
            )
        return unigram.of_deberta(settings)
    elif (kind, known.class_name) == ('Unigram', 'AlbertTokenizer'):
        steps = unigram.before_model(settings, lower_case=True)
        steps += filter(None, [_step_of(described, 'Precompiled')])
        return {'normalizer': {'type': 'Sequence', 'normalizers': steps}}
    for name, part in parts.items():
        old = described.get(name) or {}
        changed = [x for x in part if old.get(x) != part[x] and x in old]
        if changed:
            values = ', '.join(f'{x} {part[x]}' for x in changed)
            known.notes.append(
                f'{values}, as tokenizer_config.json and {known.class_name} '
                f'have it, not as {path.name}'
            )
    return parts


def _step_of(described: Mapping[str, Any], kind: str) -> Any:
    """Returns the first normalizer of a type; None: none is."""
    steps = steps_of(described.get('normalizer'))
    return next((step for step in steps if step['type'] == kind), None)


def _wordpiece_json(
    described: Mapping[str, Any], known: _Folder, path: pathlib.Path
) -> TextTokenizer:
    model = described['model']
    longest = model.get('max_input_chars_per_word', LONGEST_WORD)
    prefix = model.get('continuing_subword_prefix', '##')
    if longest != LONGEST_WORD or prefix != '##':
        raise UnsupportedTokenizer(
            'wordpiece_other_words',
            f'{path}: words of up to {longest} characters and tokens that '
            f'go on with {prefix!r}; only {LONGEST_WORD} and ## can be kept',
        )
    _only_step(
        f'{path} splits words',
        steps_of(described.get('pre_tokenizer')),
        'BertPreTokenizer',
    )
    normalizer = _only_step(
        f'{path} normalises',
        steps_of(described.get('normalizer')),
        'BertNormalizer',
    )
    index = {token: i for token, i in model['vocab'].items() if token}
    tokens = _added_tokens(known, index, described.get('added_tokens') or [])
    hidden = {t.content: t.id for t in tokens if t.content not in index}
    plain = _wordpiece(index, hidden, normalizer, known, path)
    return _with_added(plain, tokens, known)


def _only_step(
    does: str, sequence: Sequence[Any], kind: str
) -> Mapping[str, Any]:
    """Returns the one step that can be kept beside WordPiece."""
    kinds = [step['type'] for step in sequence]
    if kinds != [kind]:
        raise UnsupportedTokenizer(
            'wordpiece_other_step',
            f'{does} by {kinds or "nothing"}; only {kind} can be kept beside '
            'WordPiece',
        )
    return sequence[0]


def _unigram(
    described: Mapping[str, Any], known: _Folder, path: pathlib.Path
) -> TextTokenizer:
    vocabulary = described['model']['vocab']
    index = {token: i for i, (token, *_) in enumerate(vocabulary)}
    tokens = _added_tokens(known, index, described.get('added_tokens') or [])
    model, options = unigram.read(described, tokens, path)
    plain = _sentencepiece(model, known, path, **options)
    return _with_added(plain, tokens, known)


# ---------------------------------------------------------- the four kinds


def _bert_normalizer(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Describes the normaliser of a tokenizer_config.json as tokenizer.json
    does.
    """
    chinese = bool(settings.get('tokenize_chinese_chars', True))
    return {
        'type': 'BertNormalizer',
        'clean_text': True,
        'handle_chinese_chars': chinese,
        'strip_accents': settings.get('strip_accents'),
        'lowercase': bool(settings.get('do_lower_case', True)),
    }


def _full_vocabulary(
    index: Mapping[str, int], known: _Folder, where: Any
) -> list[str]:
    """Lists V tokens; ids without one get a name."""
    known.count_unnamed(index.values(), where)
    tokens = {number: token for token, number in index.items()}
    return [tokens.get(i, unnamed(i)) for i in range(known.vocab_size)]


def _wordpiece(
    index: Mapping[str, int],
    hidden: Mapping[str, int],
    normalizer: Mapping[str, Any],
    known: _Folder,
    where: Any,
) -> WordPieceTokenizer:
    """Makes a WordPiece; `hidden` are ids of added tokens that are not in the
    vocabulary.
    """
    index = {**index, **hidden}
    specials = []
    for usual, name in zip(vocabularies.SPECIALS, _NAMED, strict=True):
        token = known.settings.get(f'{name}_token')
        token = token['content'] if isinstance(token, dict) else token
        known_names = token, *NAMES[usual]
        specials.append(next((x for x in known_names if x in index), usual))
    tokens = _full_vocabulary(index, known, where)
    for content, number in hidden.items():
        if content not in specials:
            tokens[number] = unnamed(number)  # no word holds the token
    return WordPieceTokenizer(
        vocabularies.check(tokens, str(where), specials),
        specials=specials,
        lower_case=bool(normalizer.get('lowercase', True)),
        strip_accents=normalizer.get('strip_accents'),
        chinese_characters=bool(normalizer.get('handle_chinese_chars', True)),
        clean=bool(normalizer.get('clean_text', True)),
    )


def _sentencepiece(
    model: bytes, known: _Folder, where: Any, **options: Any
) -> SentencePiece:
    """Makes a SentencePiece, with unused tokens up to V."""
    proto = parse_model(model, where)
    count = len(proto.pieces)
    if known.count_unnamed(range(count), where):
        for number in range(count, known.vocab_size):
            proto.pieces.add(
                piece=unnamed(number), type=proto.SentencePiece.UNUSED
            )
        model = proto.SerializeToString()
    return SentencePiece(model, str(where), **options)


def _pair_encoding(
    described: dict[str, Any], known: _Folder, where: Any
) -> TextTokenizer:
    """Makes a byte-pair encoding."""
    model = described['model']
    index = dict(model['vocab'])
    listed = described.get('added_tokens') or []
    tokens = _added_tokens(known, index, listed)
    index |= {token.content: token.id for token in tokens}
    vocabulary = _full_vocabulary(index, known, where)
    more = [
        _special(token, number)
        for number, token in enumerate(vocabulary)
        if index.get(token) != number
    ]
    contents = {token['content'] for token in listed}
    more += [dataclasses.asdict(t) for t in tokens if t.content not in contents]
    described = {
        **described,
        'added_tokens': sorted([*listed, *more], key=lambda token: token['id']),
        # By default blanks stay in offsets.
        'post_processor': described.get('post_processor') or _UNTRIMMED,
    }
    splits = steps_of(described.get('pre_tokenizer'))
    kind = BytePairs
    if model.get('end_of_word_suffix'):
        kind = CharacterPairs
    elif model.get('byte_fallback') and not any(
        step['type'] == 'ByteLevel' for step in splits
    ):
        kind = MarkedPairs
    specials = _specials(described, index, known, where)
    return _with_added(kind(described, str(where), specials), tokens, known)


def _specials(
    described: Mapping[str, Any],
    index: Mapping[str, int],
    known: _Folder,
    where: pathlib.Path,
) -> list[str]:
    """Names the special tokens that NAMES does not, by the folder.

    One without a name is the token that ends texts: eos_token, or the last one
    of the template.

    Returns:
        The names in the order of NAMES; empty where NAMES has all of them, or
        the folder names no end.
    """
    if all(any(x in index for x in names) for names in NAMES.values()):
        return []
    beside = where.with_name('special_tokens_map.json')
    settings = {**read_optional_json(beside), **known.settings}
    roles: dict[str, str | None] = {}
    for name in (*_NAMED, 'eos'):
        token = settings.get(f'{name}_token')
        roles[name] = token['content'] if isinstance(token, dict) else token
    processor = post_processors.read(described['post_processor'], str(where))
    after = [x for x, _ in processor.one if isinstance(x, int)][-1:]
    ends = roles['eos'], *(x for x, number in index.items() if number in after)
    tokens = [
        next((x for x in (roles[name], *usual, *ends) if x in index), None)
        for name, usual in zip(_NAMED, NAMES.values(), strict=True)
    ]
    return [] if None in tokens else tokens


def _described(
    described: dict[str, Any], known: _Folder, where: Any
) -> TextTokenizer:
    """Makes the tokenizer of a tokenizer.json; `Numbers` where text is read in
    a way that no class does.
    """
    model, count = described['model'], len(known.notes)
    try:
        return _MODELS[model['type']](described, known, where)
    except UnsupportedTokenizer as error:
        known.notes[count:] = [f'{error}; so it takes ids alone']
    vocab = model['vocab']
    if not isinstance(vocab, Mapping):
        vocab = {token: number for number, (token, *_) in enumerate(vocab)}
    listed = described.get('added_tokens') or []
    tokens = _added_tokens(known, vocab, listed)
    index = {**vocab, **{token.content: token.id for token in tokens}}
    specials = [
        next((index[name] for name in names if name in index), 0)
        for names in NAMES.values()
    ]
    return Numbers(_full_vocabulary(index, known, where), specials)


_MODELS = {
    'WordPiece': _wordpiece_json, 'Unigram': _unigram, 'BPE': _pair_encoding,
}  # fmt: skip
# The first of these files in a folder counts.
_READERS = {
    'tokenizer.json': _tokenizer_json,
    'vocab.txt': _vocab_txt,
    SHIFTED_MODEL: _shifted_model,
    XLNET_MODEL: _xlnet_model,
    DEBERTA_MODEL: _deberta_model,
    LLAMA_MODEL: _llama_model,
    KERAS_MODEL: _keras_model,
    'vocab.json': _vocab_json,
}
