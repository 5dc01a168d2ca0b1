"""The small files beside the vocabulary of a public folder.

tokenizer_config.json names a class of transformers, and special tokens, as
special_tokens_map.json; added_tokens.json has tokens that the file of the
vocabulary may lack.
"""

import dataclasses
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from infoword_tf import errors, files
from infoword_tf.text.added import AddedToken, with_added
from infoword_tf.text.layout import LAYOUTS
from infoword_tf.text.pairs import NAMES
from infoword_tf.text.tokenizer import MASK, TextTokenizer
from infoword_tf.weights import post_processors
from infoword_tf.weights.post_processors import Entry, PostProcessor

# The class of transformers that reads the tokenizer of each model_type, where
# tokenizer_config.json names none; and other names of such classes.
CLASSES = {
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
LAYOUT_OF_CLASS: dict[str | None, tuple[str, str]] = {
    'BertTokenizer': ('bert', 'WordPiece'),
    'RobertaTokenizer': ('roberta', 'BPE'),
    'CamembertTokenizer': ('roberta', 'Unigram'),
    'XLMRobertaTokenizer': ('roberta', 'Unigram'),
    'XLNetTokenizer': ('xlnet', 'Unigram'),
    'MPNetTokenizer': ('roberta', 'WordPiece'),
    'AlbertTokenizer': ('bert', 'Unigram'),
    'DebertaV2Tokenizer': ('bert', 'Unigram'),
}
LLAMA = 'LlamaTokenizer'
# Tokens that a class puts before and after texts where settings ask for them.
_ENDS: dict[str | None, tuple[str, str]] = {
    'GPT2Tokenizer': ('<|endoftext|>', '<|endoftext|>'),
    'OpenAIGPTTokenizer': ('<|endoftext|>', '<|endoftext|>'),
    LLAMA: ('<s>', '</s>'),
}
_FLAGS = 'lstrip', 'rstrip', 'single_word', 'normalized', 'special'
# A tokenizer, and what stands around texts; None: as the architecture has it.
Result = tuple[TextTokenizer, PostProcessor | None]


@dataclasses.dataclass(frozen=True)
class TokenizerFolder:
    """Settings of a folder besides the file of the vocabulary.

    Attributes:
        settings: tokenizer_config.json.
        class_name: name of the tokenizer's class in transformers, without
            `Fast`; None: unknown.
        vocab_size: V of the encoder.
        notes: remarks for people.
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


def read_optional_json(path: pathlib.Path) -> dict[str, Any]:
    """Reads a file of JSON; {} if the file is missing."""
    return files.read_json(path) if path.is_file() else {}


def class_name_of(
    settings: Mapping[str, Any], config: Mapping[str, Any]
) -> str | None:
    """Names the class of a tokenizer in transformers; None: unknown."""
    kind = config.get('model_type', '')
    if kind in ('modernbert', 'mistral'):  # their class does not matter
        return None
    name = settings.get('tokenizer_class') or config.get('tokenizer_class')
    name = (name or CLASSES.get(kind, '')).removesuffix('Fast')
    return _ALIASES.get(name, name) or None


def gives_segments(known: TokenizerFolder) -> bool:
    """Tells whether the tokenizer gives segments to the model."""
    names = known.settings.get('model_input_names')
    if names is None:
        return known.class_name in (
            None, 'BertTokenizer', 'XLNetTokenizer', 'DebertaV2Tokenizer'
        )  # fmt: skip
    return 'token_type_ids' in names


def added_in_settings(
    folder: pathlib.Path, settings: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Reads `TokenizerFolder.added` from the files beside the vocabulary."""
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


def added_tokens(
    known: TokenizerFolder, index: Mapping[str, int], listed: Sequence[Any]
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
            if known.class_name not in CLASSES.values() or flags['id'] is None:
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


def with_tokens(
    tokenizer: TextTokenizer,
    tokens: Sequence[AddedToken],
    known: TokenizerFolder,
) -> TextTokenizer:
    """Lets a tokenizer match added tokens, or notes why not."""
    if tokenizer.kind == 'bytes':  # which finds several blanks itself
        tokens = [token for token in tokens if token.content.strip(' ')]
    try:
        return with_added(tokenizer, map(dataclasses.asdict, tokens))
    except ValueError as error:
        known.notes.append(f'{error}, so they are text like any other')
        return tokenizer


def special_token(token: str, number: int) -> dict[str, Any]:
    """Describes a special token as tokenizer.json does."""
    return {
        'id': number, 'content': token, 'single_word': False,
        'lstrip': token in NAMES[MASK][:2], 'rstrip': False,
        'normalized': False, 'special': True,
    }  # fmt: skip


def class_post_processor(
    known: TokenizerFolder, tokenizer: TextTokenizer
) -> PostProcessor | None:
    """Returns the special tokens that a class of transformers puts around
    texts; None if unknown.

    Raises:
        ValueError: the settings ask for a token without an embedding.
    """
    if known.class_name in LAYOUT_OF_CLASS:
        layout, _ = LAYOUT_OF_CLASS[known.class_name]
        return post_processors.of_layout(LAYOUTS[layout], tokenizer)
    if known.class_name not in _ENDS:
        return None
    begin, end = _ENDS[known.class_name]

    def special(name: str, usual: str) -> list[Entry]:
        token = known.settings.get(f'{name}_token') or usual
        if not known.settings.get(f'add_{name}_token'):
            return []
        if isinstance(token, dict):
            token = token['content']
        if token not in tokenizer.vocabulary:
            raise errors.InputError(
                'end_without_embedding',
                f'tokenizer_config.json puts {name}_token {token!r} around '
                f'texts (add_{name}_token), and the encoder has no embedding '
                f'for it; set add_{name}_token to false',
            )
        return [(tokenizer.vocabulary.index(token), 0)]

    before, after = special('bos', begin), special('eos', end)
    one = [*before, ('A', 0), *after]
    return PostProcessor(tuple(one), (*one, *before, ('B', 0), *after))
