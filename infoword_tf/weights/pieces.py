"""Tokenizers of other people's folders: theirs to ours, and ours to theirs.

WordPiece is read from tokenizer.json, or from vocab.txt with
tokenizer_config.json; a byte-pair encoding from tokenizer.json, or from
vocab.json with merges.txt. Of SentencePiece a model is made whose pieces stand
in the order of the encoder's ids, so that an id is a piece's place here as
everywhere: XLM-R shifts the ids of its model by one and puts specials of its
own before them.
"""

import base64
import dataclasses
import itertools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from infoword_tf import files
from infoword_tf.config import Layout
from infoword_tf.text import vocabulary as vocabularies
from infoword_tf.text.added import AddedToken, WithAdded, with_added
from infoword_tf.text.bytepairs import BytePairs
from infoword_tf.text.characterpairs import ENDS, CharacterPairs
from infoword_tf.text.layout import LAYOUTS
from infoword_tf.text.normalizers import BLANK
from infoword_tf.text.numbers import Numbers
from infoword_tf.text.pairs import NAMES, CannotKeep, Pairs
from infoword_tf.text.sentencepiece import SentencePiece, blanks_of
from infoword_tf.text.tokenizer import Tokenizer
from infoword_tf.text.wordpiece import WordPiece
from infoword_tf.weights import around
from infoword_tf.weights.around import Around

# What fairseq puts before the pieces of a model: Conneau et al. 2020.
_FAIRSEQ = ('<s>', '<pad>', '</s>', '<unk>')
_SHIFTED = 'sentencepiece.bpe.model'
_PLAIN = 'spiece.model'
_WORD = 100  # characters of the longest word that has pieces


class Read(NamedTuple):
    """A tokenizer as a folder holds it.

    Attributes:
        tokenizer: ours.
        max_length: of its texts, with specials; None: it does not say.
        said: what people should know of it.
        around: what it puts around texts; None: what the architecture has.
    """

    tokenizer: Tokenizer
    max_length: int | None
    said: list[str]
    around: Around | None = None


@dataclasses.dataclass(frozen=True)
class _Folder:
    """Settings of a folder beside the file of its vocabulary.

    Attributes:
        settings: its tokenizer_config.json.
        whose: the class of transformers that reads it, without `Fast`.
        size: V of the encoder.
        said: what people should know.
        more: added tokens that are in none of the files of the vocabulary, by
            what texts spell; their ids are None where they have none.
    """

    settings: Mapping[str, Any]
    whose: str | None
    size: int
    said: list[str]
    more: Mapping[str, dict[str, Any]]


def read(
    folder: pathlib.Path,
    vocab_size: int,
    config: Mapping[str, Any] | None = None,
) -> Read:
    """Finds out what tokenizer a folder has.

    Args:
        vocab_size: V of the encoder; a vocabulary that is shorter gets names
            for the ids that no text has.
        config: what its config.json says.

    Raises:
        FileNotFoundError: it has none.
        ValueError: a vocabulary of another size, or a tokenizer that reads
            text in a way that cannot be kept.
    """
    settings = _json(folder / 'tokenizer_config.json')
    longest = settings.get('model_max_length')
    if not isinstance(longest, int) or longest > 1_000_000:
        longest = None
    known = _Folder(
        settings, _class(settings, config or {}), vocab_size, [],
        _more_tokens(folder, settings),
    )  # fmt: skip
    for name, make in _FILES.items():
        if (folder / name).is_file():
            made, around_texts = make(folder / name, known)
            if around_texts is not None and not _gives_segments(known):
                around_texts = around.without_segments(around_texts)
            return Read(made, longest, known.said, around_texts)
    *names, last = _FILES
    raise FileNotFoundError(
        f'{folder} has no tokenizer: none of {", ".join(names)} and {last}'
    )


def _other_size(where: Any, found: int, size: int) -> ValueError:
    return ValueError(
        f'{where} has {found:,} pieces, but the encoder has {size:,} '
        'embeddings; one of the two is of another model'
    )


def _named(index: Mapping[str, int], known: '_Folder', where: Any) -> list[str]:
    """A vocabulary of V tokens by their ids; ids without one get a name.

    Raises:
        ValueError: there are more than V.
    """
    count = max(index.values(), default=-1) + 1
    if count > known.size:
        raise _other_size(where, count, known.size)
    tokens = {number: token for token, number in index.items()}
    unnamed = known.size - len(tokens)
    if unnamed:
        known.said.append(
            f'{unnamed} embeddings have no piece of the vocabulary'
        )
    return [tokens.get(i, _nameless(i)) for i in range(known.size)]


def _nameless(number: int) -> str:
    """A name with a blank in it: no text has such a token."""
    return f'[no {number}]'


# ------------------------------------------------------- what a folder says

# By model_type the class of transformers that reads its tokenizer, where
# tokenizer_config.json names none; and what else such classes are called.
_CLASSES = {
    'bert': 'BertTokenizer', 'distilbert': 'BertTokenizer',
    'electra': 'BertTokenizer', 'roberta': 'RobertaTokenizer',
    'camembert': 'CamembertTokenizer', 'xlm-roberta': 'XLMRobertaTokenizer',
    'xlnet': 'XLNetTokenizer', 'gpt2': 'GPT2Tokenizer',
    'openai-gpt': 'OpenAIGPTTokenizer',
}  # fmt: skip
_ALIASES = {
    'DistilBertTokenizer': 'BertTokenizer',
    'ElectraTokenizer': 'BertTokenizer',
    'MobileBertTokenizer': 'BertTokenizer',
    'SqueezeBertTokenizer': 'BertTokenizer',
    'BartTokenizer': 'RobertaTokenizer',
    'LongformerTokenizer': 'RobertaTokenizer',
}
# By class the layout of its texts, where no file says it.
_LAYOUTS = {
    'BertTokenizer': 'bert', 'RobertaTokenizer': 'roberta',
    'CamembertTokenizer': 'roberta', 'XLMRobertaTokenizer': 'roberta',
    'XLNetTokenizer': 'xlnet',
}  # fmt: skip
# By class the model of a tokenizer.json that it reads.
_MODELS = {
    'BertTokenizer': 'WordPiece', 'RobertaTokenizer': 'BPE',
    'CamembertTokenizer': 'Unigram', 'XLMRobertaTokenizer': 'Unigram',
    'XLNetTokenizer': 'Unigram',
}  # fmt: skip
_GPTS = 'GPT2Tokenizer', 'OpenAIGPTTokenizer'


def _json(path: pathlib.Path) -> dict[str, Any]:
    return files.read_json(path) if path.is_file() else {}


def _class(
    settings: Mapping[str, Any], config: Mapping[str, Any]
) -> str | None:
    kind = config.get('model_type')
    if kind == 'modernbert':  # its folders name another one
        return None
    name = settings.get('tokenizer_class') or config.get('tokenizer_class')
    name = (name or _CLASSES.get(kind, '')).removesuffix('Fast')
    return _ALIASES.get(name, name) or None


def _gives_segments(known: _Folder) -> bool:
    """Tells whether models get the segments of texts from a tokenizer."""
    names = known.settings.get('model_input_names')
    if names is None:
        return known.whose in (None, 'BertTokenizer', 'XLNetTokenizer')
    return 'token_type_ids' in names


def _more_tokens(
    folder: pathlib.Path, settings: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """As `_Folder.more`."""
    tokens: dict[str, dict[str, Any]] = {}

    def add(token: str | Mapping[str, Any], number: int | None = None) -> None:
        fields = {'content': token} if isinstance(token, str) else dict(token)
        flags = {
            name: bool(fields.get(name))
            for name in ('lstrip', 'rstrip', 'single_word', 'normalized')
        }
        special = bool(fields.get('special', True))
        tokens.setdefault(
            fields['content'], {**flags, 'special': special, 'id': number}
        )

    decoder = settings.get('added_tokens_decoder') or {}
    for number, token in decoder.items():
        add(token, int(number))
    named = dict(settings)
    if not decoder:
        named |= _json(folder / 'special_tokens_map.json')
    for key, value in named.items():
        if key in ('additional_special_tokens', 'extra_special_tokens'):
            values = value.values() if isinstance(value, dict) else value or ()
            for token in values:
                add(token)
        elif key.endswith('_token') and isinstance(value, str | dict):
            add(value)
    if not decoder:
        for content, number in _json(folder / 'added_tokens.json').items():
            plain = {'content': content, 'normalized': True, 'special': False}
            add(plain)
            tokens[content]['id'] = number
    # Those with an id first: others come behind them.
    order = sorted(filter(None, tokens), key=lambda x: tokens[x]['id'] is None)
    return {content: tokens[content] for content in order}


def _added_tokens(
    known: _Folder, index: Mapping[str, int], listed: Sequence[Any]
) -> list[AddedToken]:
    """All tokens that texts may spell.

    Args:
        index: ids of the vocabulary.
        listed: added tokens of tokenizer.json.
    """
    tokens = {
        token['content']: AddedToken(
            **{
                field.name: token.get(field.name, field.default)
                for field in dataclasses.fields(AddedToken)
            }
        )
        for token in listed
        if token['content']
    }
    free = max([*index.values(), *(t.id for t in tokens.values())], default=-1)
    for content, flags in known.more.items():
        number = index.get(content, flags['id'])
        if content in tokens:
            number = tokens[content].id
            # Only classes of their own read these flags again.
            if known.whose not in _CLASSES.values() or flags['id'] is None:
                continue
        elif number is None:
            number = free + 1
        if number >= known.size:
            known.said.append(
                f'the added token {content!r} has no embedding, so it is text '
                'like any other'
            )
            continue
        tokens[content] = AddedToken(content, **{**flags, 'id': number})
        free = max(free, number)
    return list(tokens.values())


def _finding(
    tokenizer: Tokenizer, tokens: Sequence[AddedToken], said: list[str]
) -> Tokenizer:
    """A tokenizer that finds added tokens in texts."""
    if tokenizer.kind == 'bytes':  # it has rows of blanks itself
        tokens = [token for token in tokens if token.content.strip(' ')]
    try:
        return with_added(tokenizer, map(dataclasses.asdict, tokens))
    except ValueError as error:
        said.append(f'{error}, so they are text like any other')
        return tokenizer


def _specials(known: _Folder, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Lists the special tokens of a class as tokenizer.json would."""
    if known.whose not in _CLASSES.values():
        return []
    names = [tokenizer.vocabulary[number] for number in tokenizer.special_ids]
    if known.whose == 'XLNetTokenizer':
        names += [x for x in ('<eop>', '<eod>') if x in tokenizer.vocabulary]
    return [
        _added(name, tokenizer.vocabulary.index(name))
        for name in dict.fromkeys(names)
    ]


def _around(known: _Folder, tokenizer: Tokenizer) -> Around | None:
    """Looks up what a class puts around texts; None where unknown."""
    if known.whose in _LAYOUTS:
        return around.entries(LAYOUTS[_LAYOUTS[known.whose]], tokenizer)
    if known.whose not in _GPTS:
        return None

    def marks(name: str) -> list[tuple[int, int]]:
        token = known.settings.get(f'{name}_token') or '<|endoftext|>'
        if not known.settings.get(f'add_{name}_token'):
            return []
        if isinstance(token, dict):
            token = token['content']
        return [(tokenizer.vocabulary.index(token), 0)]

    one = [*marks('bos'), ('A', 0), *marks('eos')]
    two = [*one, *marks('bos'), ('B', 0), *marks('eos')]
    return Around(tuple(one), tuple(two))


# ------------------------------------------------------ vocab.txt and *.model


def _plain(known: _Folder, tokenizer: Tokenizer) -> Any:
    """Reads a folder without a tokenizer.json: (tokenizer, around)."""
    index = {
        token: number
        for number, token in enumerate(tokenizer.vocabulary)
        if token != _nameless(number)
    }
    tokens = _added_tokens(known, index, _specials(known, tokenizer))
    finding = _finding(tokenizer, tokens, known.said)
    return finding, _around(known, tokenizer)


def _vocab_txt(path: pathlib.Path, known: _Folder) -> Any:
    settings = known.settings
    lines = path.read_text(encoding='utf-8-sig').split('\n')
    while lines and not lines[-1]:
        lines.pop()
    if not settings.get('do_basic_tokenize', True):
        raise ValueError(
            f'{path.parent}/tokenizer_config.json says do_basic_tokenize '
            'false; such a tokenizer cannot be kept'
        )
    # Of a token that is there twice the last id counts.
    index = {line: number for number, line in enumerate(lines) if line}
    hidden = {
        content: token['id']
        for content, token in known.more.items()
        if token['id'] is not None and content not in index
    }
    return _plain(
        known, _wordpiece(index, hidden, _bert(settings), known, path)
    )


def _bert(settings: Mapping[str, Any]) -> dict[str, Any]:
    """How tokenizer_config.json normalises BERT's texts, as tokenizer.json
    says it.
    """
    return {
        'type': 'BertNormalizer',
        'clean_text': True,
        'handle_chinese_chars': bool(
            settings.get('tokenize_chinese_chars', True)
        ),
        'strip_accents': settings.get('strip_accents'),
        'lowercase': bool(settings.get('do_lower_case', True)),
    }


def _wordpiece(
    index: Mapping[str, int],
    hidden: Mapping[str, int],
    step: Mapping[str, Any],
    known: _Folder,
    where: Any,
) -> WordPiece:
    """Args: the vocabulary, ids that only added tokens have, how texts are
    normalised.
    """
    pieces = _named({**index, **hidden}, known, where)
    for content, number in hidden.items():
        if content not in vocabularies.SPECIALS:
            pieces[number] = _nameless(number)  # words have no such piece
    return WordPiece(
        vocabularies.check(pieces, str(where)),
        lower_case=bool(step.get('lowercase', True)),
        strip_accents=step.get('strip_accents'),
        chinese_characters=bool(step.get('handle_chinese_chars', True)),
        clean=bool(step.get('clean_text', True)),
    )


def _sentencepiece(
    model: bytes, known: _Folder, where: Any, **options: Any
) -> SentencePiece:
    """A model, and as many pieces more as there are embeddings."""
    proto = _parsed(model, where)
    count = len(proto.pieces)
    if count > known.size:
        raise _other_size(where, count, known.size)
    if count == known.size:
        return SentencePiece(model, str(where), **options)
    known.said.append(
        f'{known.size - count} embeddings have no piece of the vocabulary'
    )
    for number in range(count, known.size):
        proto.pieces.add(
            piece=_nameless(number), type=proto.SentencePiece.UNUSED
        )
    return SentencePiece(proto.SerializeToString(), str(where), **options)


def _pairs(described: dict[str, Any], known: _Folder, where: Any) -> Tokenizer:
    """A byte-pair encoding; ids alone where it reads text in other ways."""
    model = described['model']
    index = dict(model['vocab'])
    added = described.get('added_tokens') or []
    tokens = _added_tokens(known, index, added)
    index |= {token.content: token.id for token in tokens}
    filled = _named(index, known, where)
    more = [
        _added(piece, number)
        for number, piece in enumerate(filled)
        if index.get(piece) != number
    ]
    listed = {token['content'] for token in added}
    more += [
        dataclasses.asdict(token)
        for token in tokens
        if token.content not in listed
    ]
    described = {
        **described,
        'added_tokens': sorted([*added, *more], key=lambda token: token['id']),
        # Of a folder that says nothing blanks stay in offsets.
        'post_processor': described.get('post_processor') or _UNTRIMMED,
    }
    kind = CharacterPairs if model.get('end_of_word_suffix') else BytePairs
    try:
        made = kind(described, str(where))
    except CannotKeep as error:
        known.said.append(f'{error}; so it takes ids alone')
        specials = [
            next((index[name] for name in known_as if name in index), 0)
            for known_as in NAMES.values()
        ]
        return Numbers(filled, specials)
    return _finding(made, tokens, known.said)


_UNTRIMMED = {
    'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': False,
    'use_regex': True,
}  # fmt: skip


def _added(piece: str, number: int) -> dict[str, Any]:
    """A special piece as a tokenizer.json describes it."""
    return {
        'id': number, 'content': piece, 'single_word': False,
        'lstrip': piece in NAMES[vocabularies.MASK][:2], 'rstrip': False,
        'normalized': False, 'special': True,
    }  # fmt: skip


# ------------------------------------------------------------ tokenizer.json


def _described(path: pathlib.Path, known: _Folder) -> Any:
    """Reads a tokenizer.json, if it can be kept: (tokenizer, around)."""
    described = files.read_json(path)
    model = dict(described.get('model') or {})
    kind = model.get('type')
    if kind is None and 'vocab' in model:  # older files
        kind = 'BPE' if 'merges' in model else 'WordPiece'
    described['model'] = {**model, 'type': kind}
    described |= _of_class(described, known, path)
    listed = described.get('added_tokens') or []
    processor = described.get('post_processor')
    texts = around.parsed(processor, str(path))
    tokenizer = _tokenizer(described, listed, known, path)
    # Classes of their own lay texts out as they always do.
    named = known.settings.get('tokenizer_class') and _MODELS.get(known.whose)
    if named == described['model']['type'] or (
        processor is None and known.whose in _LAYOUTS
    ):
        texts = _around(known, tokenizer)
    return tokenizer, texts


def _tokenizer(
    described: dict[str, Any],
    listed: Sequence[Any],
    known: _Folder,
    path: pathlib.Path,
) -> Tokenizer:
    """Makes the tokenizer of a tokenizer.json; `listed`: added tokens."""
    model = described['model']
    kind = model['type']
    if kind == 'BPE':
        return _pairs(described, known, path)
    if kind == 'Unigram':
        index = {entry[0]: i for i, entry in enumerate(model['vocab'])}
        tokens = _added_tokens(known, index, listed)
        plain = _unigram(path, described, tokens, known)
        return _finding(plain, tokens, known.said)
    if kind != 'WordPiece':
        raise ValueError(
            f'{path} has a model of the type {kind!r}; known are WordPiece, '
            'Unigram and BPE'
        )
    longest = model.get('max_input_chars_per_word', _WORD)
    prefix = model.get('continuing_subword_prefix', '##')
    if longest != _WORD or prefix != '##':
        raise ValueError(
            f'{path}: words of up to {longest} characters and pieces that '
            f'go on with {prefix!r}; only {_WORD} and ## can be kept'
        )
    split = _steps(described.get('pre_tokenizer'), 'pretokenizers')
    _only(f'{path} splits words', split, 'BertPreTokenizer')
    step = _only(
        f'{path} normalises',
        _steps(described.get('normalizer'), 'normalizers'),
        'BertNormalizer',
    )
    index = {token: i for token, i in model['vocab'].items() if token}
    tokens = _added_tokens(known, index, listed)
    hidden = {t.content: t.id for t in tokens if t.content not in index}
    plain = _wordpiece(index, hidden, step, known, path)
    return _finding(plain, tokens, known.said)


def _of_class(
    described: Mapping[str, Any], known: _Folder, path: pathlib.Path
) -> dict[str, Any]:
    """Parts of a tokenizer.json that the class which reads it makes anew, from
    tokenizer_config.json or by its own defaults: as transformers 5 does.
    """
    kind, settings = described['model']['type'], known.settings
    parts: dict[str, Any] = {}
    split = described.get('pre_tokenizer') or {}
    prefix = settings.get('add_prefix_space')
    bert = (kind, known.whose) == ('WordPiece', 'BertTokenizer')
    normalizer = described.get('normalizer') or {'type': 'BertNormalizer'}
    if bert and normalizer['type'] == 'BertNormalizer':
        parts['normalizer'] = _bert(settings)
    elif kind == 'BPE' and split.get('type') == 'ByteLevel':
        if known.whose in ('GPT2Tokenizer', 'RobertaTokenizer'):
            parts['pre_tokenizer'] = {**split, 'add_prefix_space': bool(prefix)}
        post = described.get('post_processor') or {}
        if known.whose == 'RobertaTokenizer' and 'trim_offsets' in settings:
            trims = bool(settings['trim_offsets'])
            parts['post_processor'] = {**post, 'trim_offsets': trims}
    elif kind == 'Unigram' and known.whose in (
        'XLMRobertaTokenizer', 'CamembertTokenizer'
    ):  # fmt: skip
        scheme = 'never' if prefix is False else 'always'
        parts['normalizer'] = next(
            (
                step
                for step in _steps(described.get('normalizer'), 'normalizers')
                if step['type'] == 'Precompiled'
            ),
            None,
        )
        parts['pre_tokenizer'] = {
            'type': 'Sequence',
            'pretokenizers': [
                {'type': 'WhitespaceSplit'},
                {'type': 'Metaspace', 'prepend_scheme': scheme},
            ],
        }
        return parts  # the same but for blanks
    for name, part in parts.items():
        old = described.get(name) or {}
        changed = [x for x in part if old.get(x) != part[x] and x in old]
        if changed:
            says = ', '.join(f'{x} {part[x]}' for x in changed)
            known.said.append(
                f'{says}, as tokenizer_config.json and {known.whose} have it, '
                f'not as {path.name}'
            )
    return parts


def _steps(part: Mapping[str, Any] | None, name: str) -> list[Any]:
    """A part, or those of a sequence, in order."""
    if part is None:
        return []
    return part[name] if part['type'] == 'Sequence' else [part]


def _only(what: str, steps: Sequence[Any], kind: str) -> Mapping[str, Any]:
    """The one step that can be kept beside WordPiece."""
    kinds = [step['type'] for step in steps]
    if kinds != [kind]:
        raise ValueError(
            f'{what} by {kinds or "nothing"}; only {kind} can be kept beside '
            'WordPiece'
        )
    return steps[0]


def _unigram(
    path: pathlib.Path,
    described: Mapping[str, Any],
    tokens: Sequence[AddedToken],
    known: _Folder,
) -> SentencePiece:
    """The SentencePiece model that a Unigram of tokenizer.json is."""
    from sentencepiece import sentencepiece_model_pb2

    model = described['model']
    proto = sentencepiece_model_pb2.ModelProto()
    piece_type = proto.SentencePiece
    proto.trainer_spec.model_type = proto.trainer_spec.UNIGRAM
    proto.trainer_spec.byte_fallback = bool(model.get('byte_fallback'))
    special = {token.id for token in tokens if token.special}
    pieces = [
        (piece, score, number in special)
        for number, (piece, score) in enumerate(model['vocab'])
    ]
    for token in sorted(tokens, key=lambda token: token.id):
        while len(pieces) < token.id:
            pieces.append((_nameless(len(pieces)), 0.0, True))
        if len(pieces) == token.id:  # no text is parted into it
            pieces.append((token.content, 0.0, True))
    for number, (piece, score, control) in enumerate(pieces):
        kind = piece_type.CONTROL if control else piece_type.NORMAL
        if number == model['unk_id']:
            kind = piece_type.UNKNOWN
        proto.pieces.add(piece=piece, score=score, type=kind)
    proto.trainer_spec.unk_id = model['unk_id']
    proto.trainer_spec.unk_piece = pieces[model['unk_id']][0]
    proto.trainer_spec.vocab_size = len(pieces)
    spec = proto.normalizer_spec
    spec.name = 'nmt_nfkc'
    spec.escape_whitespaces = True
    spec.remove_extra_whitespaces = True
    spec.add_dummy_prefix = True
    blanks = _blanks(path, described, spec)
    names = {piece for piece, _, control in pieces if not control}
    # Where added tokens part what was stripped, blanks stay beside them.
    stripped = blanks['white'] or not any(t.normalized for t in tokens)
    options: dict[str, Any] = {}
    if not (stripped and _as_sentencepiece(blanks, spec, names)):
        options['blanks'] = blanks
    return _sentencepiece(proto.SerializeToString(), known, path, **options)


def _blanks(
    path: pathlib.Path, described: Mapping[str, Any], spec: Any
) -> dict[str, Any]:
    """What a Unigram does with blanks, as `SentencePiece` takes it; the table
    of characters goes into the model.
    """
    rewrites: list[list[str]] = []
    for step in _steps(described.get('normalizer'), 'normalizers'):
        if step['type'] == 'Precompiled':
            spec.precompiled_charsmap = base64.b64decode(
                step['precompiled_charsmap'] or ''
            )
        elif step['type'] == 'Strip':
            for side, pattern in (
                ('strip_left', f'^{BLANK}+'), ('strip_right', f'{BLANK}+$')
            ):  # fmt: skip
                if step.get(side):
                    rewrites.append([pattern, ''])
        elif step['type'] == 'Replace' and _only_blanks(step):
            rewrites.append([' {2,}', step['content']])
        else:
            raise ValueError(
                f'{path} normalises by {step["type"]}, which cannot be kept '
                'beside Unigram; fetch the folder with its *.model'
            )
    white, scheme, split = False, None, True
    for step in _steps(described.get('pre_tokenizer'), 'pretokenizers'):
        if step['type'] == 'Metaspace':
            prefix = step.get('add_prefix_space', True)
            scheme = step.get('prepend_scheme', 'always' if prefix else 'never')
            split = step.get('split', True)
        elif step['type'] == 'WhitespaceSplit':
            white = True
        else:
            raise ValueError(
                f'{path} splits by {step["type"]}, which cannot be kept '
                'beside Unigram'
            )
    if scheme is None:
        raise ValueError(
            f'{path} does not mark words (a pre_tokenizer Metaspace), which '
            'cannot be kept beside Unigram'
        )
    return {
        'rewrites': rewrites, 'white': white, 'scheme': scheme, 'split': split,
    }  # fmt: skip


def _as_sentencepiece(
    blanks: Mapping[str, Any], spec: Any, pieces: set[str]
) -> bool:
    """Whether SentencePiece itself does the same with blanks: it strips and
    joins them, and writes a mark before each word.
    """
    if not spec.precompiled_charsmap or '\u2581' not in pieces:
        return False
    if any('\u2581' in piece[1:] for piece in pieces):
        return False
    if blanks['scheme'] != 'always' or not blanks['split']:
        return False
    patterns = [pattern for pattern, _ in blanks['rewrites']]
    if blanks['white']:
        return set('\t\n\r') <= set(blanks_of(spec.precompiled_charsmap))
    return {' {2,}', f'{BLANK}+$'} <= set(patterns)


def _only_blanks(step: Mapping[str, Any]) -> bool:
    """Tells whether a step only joins blanks, as SentencePiece does."""
    pattern = step.get('pattern') or {}
    joins = pattern.get('Regex') == ' {2,}' or pattern.get('String') == '  '
    return joins and step.get('content') in (' ', '\u2581')


# ---------------------------------------------------------- SentencePiece


def shifted(model: bytes, where: Any) -> bytes:
    """XLM-R's model, its pieces in the order of its ids.

    <s> <pad> </s> <unk>, then all pieces of the file but its own first
    three (<unk> <s> </s>), then <mask>.
    """
    proto = _parsed(model, where)
    own = [piece.piece for piece in proto.pieces[:3]]
    if own != ['<unk>', '<s>', '</s>']:
        raise ValueError(
            f'{where} begins with {", ".join(own)}, not with <unk>, <s> and '
            '</s> as the models of XLM-R do'
        )
    by_name = {piece.piece: piece for piece in proto.pieces[:3]}
    rest = list(proto.pieces[3:])
    piece_type = proto.SentencePiece
    made = [
        by_name.get(name)
        or piece_type(piece=name, score=0.0, type=piece_type.CONTROL)
        for name in _FAIRSEQ
    ]
    mask = piece_type(piece='<mask>', score=0.0, type=piece_type.CONTROL)
    del proto.pieces[:]
    proto.pieces.extend([*made, *rest, mask])
    return proto.SerializeToString()


def unshifted(model: bytes) -> bytes | None:
    """What `shifted` was given; None: no such order."""
    proto = _parsed(model, 'the tokenizer')
    while proto.pieces[-1].type == proto.SentencePiece.UNUSED:
        del proto.pieces[-1]  # of embeddings without a piece
    names = tuple(piece.piece for piece in proto.pieces[:4])
    if names != _FAIRSEQ or proto.pieces[-1].piece != '<mask>':
        return None
    first, _, last, unknown = proto.pieces[:4]
    kept = [unknown, first, last, *proto.pieces[4:-1]]
    kept = [type(piece).FromString(piece.SerializeToString()) for piece in kept]
    del proto.pieces[:]
    proto.pieces.extend(kept)
    return proto.SerializeToString()


def folded(model: bytes, settings: Mapping[str, Any], where: Any) -> bytes:
    """XLNet's model with what its tokenizer does before it.

    It writes `` and '' as ", and unless `keep_accents` strips accents; with
    `do_lower_case` it folds case. All of that becomes part of the model's
    own table of characters.
    """
    from infoword_tf.weights import characters

    proto = _parsed(model, where)
    proto.normalizer_spec.precompiled_charsmap = characters.table(
        proto,
        strip_accents=not settings.get('keep_accents', False),
        lower_case=bool(settings.get('do_lower_case', False)),
        quotes=True,
    )
    if settings.get('do_lower_case'):
        proto.normalizer_spec.name += '_cf'
    return proto.SerializeToString()


def _parsed(model: bytes, where: Any) -> Any:
    from google.protobuf import message
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()
    try:
        proto.ParseFromString(model)
    except message.DecodeError as error:
        raise ValueError(
            f'{where} is no SentencePiece model, or is damaged ({error})'
        ) from error
    return proto


def _vocab_json(path: pathlib.Path, known: _Folder) -> Any:
    """vocab.json and merges.txt, as GPT's and RoBERTa's own code has them."""
    index = files.read_json(path)
    merges = path.with_name('merges.txt')
    if not merges.is_file():
        raise FileNotFoundError(
            f'{path.parent} has a {path.name} but no {merges.name}; both make '
            'the tokenizer'
        )
    lines = merges.read_text(encoding='utf-8').split('\n')
    specials = dict.fromkeys(itertools.chain(*NAMES.values()))
    described: dict[str, Any] = {
        'version': '1.0',
        'added_tokens': [
            _added(piece, index[piece]) for piece in specials if piece in index
        ],
        'normalizer': None,
        'pre_tokenizer': {
            'type': 'ByteLevel',
            'add_prefix_space': bool(
                known.settings.get('add_prefix_space', False)
            ),
            'trim_offsets': True,
            'use_regex': True,
        },
        'model': {
            'type': 'BPE',
            'vocab': index,
            'merges': [
                line for line in lines if line and line[:8] != '#version'
            ],
        },
    }
    if any(piece.endswith(ENDS) for piece in index):
        described['normalizer'] = {
            'type': 'BertNormalizer', 'clean_text': True,
            'handle_chinese_chars': True, 'strip_accents': None,
            'lowercase': True,
        }  # fmt: skip
        described['pre_tokenizer'] = {'type': 'BertPreTokenizer'}
        described['model'] |= {'unk_token': '<unk>', 'end_of_word_suffix': ENDS}
    if known.whose == 'RobertaTokenizer':
        trims = bool(known.settings.get('trim_offsets', True))
        described['post_processor'] = {**_UNTRIMMED, 'trim_offsets': trims}
    tokenizer = _pairs(described, known, path)
    return tokenizer, _around(known, tokenizer)


# What reads a file: (path, what the folder says besides) -> the tokenizer, and
# what it puts around texts. The first file that is there counts.
_FILES = {
    'tokenizer.json': _described,
    'vocab.txt': _vocab_txt,
    _SHIFTED: lambda path, known: _plain(
        known, _sentencepiece(shifted(path.read_bytes(), path), known, path)
    ),
    _PLAIN: lambda path, known: _plain(
        known,
        _sentencepiece(
            folded(path.read_bytes(), known.settings, path), known, path
        ),
    ),
    'vocab.json': _vocab_json,
}

# ---------------------------------------------------------------------- out


def write(
    folder: pathlib.Path,
    tokenizer: Tokenizer,
    kind: str,
    max_length: int,
    layout: str | Layout,
) -> None:
    """Writes a tokenizer as transformers reads it.

    Args:
        kind: the model_type.
        max_length: of its texts, with specials.
        layout: what it puts around them.

    Raises:
        ValueError: transformers has none like it.
    """
    inner = tokenizer.inner
    general = 'PreTrainedTokenizerFast'
    import tokenizers
    from tokenizers import decoders, processors

    kinds = ('pad', 'unk', 'cls', 'sep', 'mask')
    names = {
        f'{name}_token': tokenizer.vocabulary[number]
        for name, number in zip(kinds, tokenizer.special_ids, strict=True)
    }
    if len(set(tokenizer.special_ids)) == 1:  # one piece is all of them
        names = {
            name: piece
            for name, piece in names.items()
            if name not in ('pad_token', 'mask_token')
        }
    settings: dict[str, Any] = {**names, 'model_max_length': max_length}
    if isinstance(inner, WordPiece):
        options = tokenizer.options
        settings |= {
            # Others lay texts out by themselves.
            'tokenizer_class': 'BertTokenizer' if layout == 'bert' else general,
            'do_lower_case': tokenizer.lower_case,
            'strip_accents': options.get('strip_accents'),
            'tokenize_chinese_chars': options.get('chinese_characters', True),
        }
        own = _own_pieces(tokenizer)
        vocabularies.write(folder / 'vocab.txt', own)
        made = _fast_wordpiece(inner, own)
    elif isinstance(inner, SentencePiece):
        made = _fast_unigram(inner, tokenizer)
        if kind == 'xlnet':
            file, model = _PLAIN, inner.model
            settings['tokenizer_class'] = 'XLNetTokenizer'
        else:
            file, model = _SHIFTED, unshifted(inner.model)
            fairseq = names['cls_token'] == '<s>' and layout == 'roberta'
            settings['tokenizer_class'] = (
                'XLMRobertaTokenizer'
                if fairseq and inner.blanks is None
                else general
            )
        if model is not None:
            (folder / file).write_bytes(model)
    elif isinstance(inner, Pairs):
        settings['tokenizer_class'] = _WRITTEN.get(kind, general)
        if kind == 'roberta' and layout != 'roberta':
            settings['tokenizer_class'] = general
        made = tokenizers.Tokenizer.from_str(inner.json)
        made.model.save(str(folder))  # vocab.json and merges.txt
        made.decoder = (
            decoders.BPEDecoder(suffix=ENDS)
            if isinstance(inner, CharacterPairs)
            else decoders.ByteLevel()
        )
        split = json.loads(inner.json).get('pre_tokenizer') or {}
        settings['add_prefix_space'] = split.get('add_prefix_space', False)
    else:
        raise ValueError(
            f'a tokenizer of the kind {tokenizer.kind} cannot be written for '
            'transformers'
        )
    if isinstance(tokenizer, WithAdded):
        _add(made, tokenizer)
        settings['added_tokens_decoder'] = {
            str(token.id): {
                name: value
                for name, value in dataclasses.asdict(token).items()
                if name != 'id'
            }
            for token in tokenizer.added
        }
    inputs = ['input_ids', 'attention_mask']
    if kind in _SEGMENTS and settings['tokenizer_class'] != 'BertTokenizer':
        # Classes other than BERT's give segments where they are asked to.
        settings['model_input_names'] = ['token_type_ids', *inputs]
    elif settings['tokenizer_class'] == general:
        settings['model_input_names'] = inputs
    trims = isinstance(inner, Pairs) and tokenizer.trims
    end = processors.ByteLevel(trim_offsets=trims)
    if kind in ('gpt2', 'openai-gpt') and isinstance(layout, str):
        made.post_processor = end  # ours ends a text, theirs does not
    else:
        around_texts = around.processor(layout, tokenizer)
        made.post_processor = (
            processors.Sequence([end, around_texts]) if trims else around_texts
        )
    made.save(str(folder / 'tokenizer.json'))
    files.write_json(folder / 'tokenizer_config.json', settings)


# What transformers calls the tokenizers that byte pairs go out as.
_WRITTEN = {
    'gpt2': 'GPT2Tokenizer',
    'openai-gpt': 'OpenAIGPTTokenizer',
    'roberta': 'RobertaTokenizer',
}


# Those whose models take segments.
_SEGMENTS = 'bert', 'electra', 'xlnet'


def _own_pieces(tokenizer: Tokenizer) -> list[str]:
    """A vocabulary but for what only added tokens, or nobody, has behind it."""
    names = list(tokenizer.inner.vocabulary)
    while names[-1] == _nameless(len(names) - 1):
        names.pop()
    return list(tokenizer.vocabulary[: len(names)])


def _add(made: Any, tokenizer: WithAdded) -> None:
    """Adds tokens to a tokenizer of `tokenizers`, by their ids."""
    from tokenizers import AddedToken as Theirs

    for token in sorted(tokenizer.added, key=lambda token: token.id):
        if made.token_to_id(token.content) is None:
            while (number := made.get_vocab_size()) < token.id:
                made.add_special_tokens([_nameless(number)])
        flags = dataclasses.asdict(token)
        del flags['id']
        made.add_tokens([Theirs(**flags)])


def _fast_wordpiece(tokenizer: WordPiece, names: Sequence[str]) -> Any:
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers

    pieces = {piece: i for i, piece in enumerate(names)}
    made = tokenizers.Tokenizer(
        models.WordPiece(
            pieces, unk_token=vocabularies.UNK, max_input_chars_per_word=_WORD
        )
    )
    options = tokenizer.options
    made.normalizer = normalizers.BertNormalizer(
        lowercase=tokenizer.lower_case,
        strip_accents=options.get('strip_accents'),
        handle_chinese_chars=options.get('chinese_characters', True),
        clean_text=options.get('clean', True),
    )
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(list(vocabularies.SPECIALS))
    return made


def _fast_unigram(tokenizer: SentencePiece, whole: Tokenizer) -> Any:
    import tokenizers
    from tokenizers import AddedToken, models, normalizers, pre_tokenizers

    proto = _parsed(tokenizer.model, 'the tokenizer')
    piece_type = proto.SentencePiece
    if proto.trainer_spec.model_type != proto.trainer_spec.UNIGRAM:
        raise ValueError(
            'only unigram models of SentencePiece have a place in a folder '
            'for transformers'
        )
    every = list(proto.pieces)
    no_text = piece_type.CONTROL, piece_type.UNUSED
    while isinstance(whole, WithAdded) and every[-1].type in no_text:
        every.pop()  # what is only added is in no text else
    made = tokenizers.Tokenizer(
        models.Unigram(
            [(piece.piece, piece.score) for piece in every],
            tokenizer.unk_id,
            bool(proto.trainer_spec.byte_fallback),
        )
    )
    steps = []
    if charsmap := proto.normalizer_spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(charsmap))
    blanks = tokenizer.blanks
    doubled = ' {2,}'
    for pattern, rewrite in blanks.rewrites if blanks else [[doubled, ' ']]:
        left = pattern.startswith('^')
        steps.append(
            normalizers.Replace(tokenizers.Regex(pattern), rewrite)
            if pattern == doubled
            else normalizers.Strip(left=left, right=not left)
        )
    made.normalizer = normalizers.Sequence(steps)
    mark = pre_tokenizers.Metaspace()
    if blanks is not None:
        mark = pre_tokenizers.Metaspace(
            prepend_scheme=blanks.scheme, split=blanks.split
        )
    made.pre_tokenizer = mark
    if blanks is None or blanks.white:
        made.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), mark]
        )
    if not isinstance(whole, WithAdded):
        made.add_special_tokens(
            [
                AddedToken(piece.piece, special=True, normalized=False)
                for piece in proto.pieces
                if piece.type in (piece_type.CONTROL, piece_type.UNKNOWN)
            ]
        )
    return made
