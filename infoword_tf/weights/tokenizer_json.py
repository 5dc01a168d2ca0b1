"""Tokenizers of a tokenizer.json: WordPiece, Unigram and byte pairs."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from infoword_tf import errors, files
from infoword_tf.text.bytepairs import BytePairs
from infoword_tf.text.characterpairs import CharacterPairs
from infoword_tf.text.markedpairs import MARK, MarkedPairs
from infoword_tf.text.normalizers import steps_of
from infoword_tf.text.numbers import Numbers
from infoword_tf.text.pairs import NAMES
from infoword_tf.text.sentencepiece import SentencePiece, parse_model
from infoword_tf.text.tokenizer import (
    SPECIALS,
    TextTokenizer,
    UnsupportedTokenizer,
    check_vocabulary,
    unnamed,
)
from infoword_tf.text.wordpiece import LONGEST_WORD, WordPieceTokenizer
from infoword_tf.weights import post_processors, unigram
from infoword_tf.weights.post_processors import PostProcessor
from infoword_tf.weights.tokenizer_folder import (
    LAYOUT_OF_CLASS,
    LLAMA,
    Result,
    TokenizerFolder,
    added_tokens,
    class_post_processor,
    read_optional_json,
    special_token,
    with_tokens,
)

UNTRIMMED = {
    'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': False,
    'use_regex': True,
}  # fmt: skip
_NAMED = 'pad', 'unk', 'cls', 'sep', 'mask'


def tokenizer_json(path: pathlib.Path, known: TokenizerFolder) -> Result:
    """Reads a tokenizer.json.

    Raises:
        ValueError: a model of an unknown type, or a part that cannot be kept.
    """
    described = files.read_json(path)
    model = dict(described.get('model') or {})
    kind = model.get('type')
    if kind is None and 'vocab' in model:  # older files
        kind = 'BPE' if 'merges' in model else 'WordPiece'
    described['model'] = {**model, 'type': kind}
    described |= class_parts(described, known, path)
    processor = described.get('post_processor')
    post_processor: PostProcessor | None
    post_processor = post_processors.read(processor, str(path))
    if kind not in _MODELS:
        raise errors.InputError(
            'unknown_tokenizer_model',
            f'{path} has a model of the type {kind!r}; known are '
            f'{", ".join(_MODELS)}',
        )
    tokenizer = make_tokenizer(described, known, path)
    # Some classes put special tokens around texts whatever the file says.
    _, usual = LAYOUT_OF_CLASS.get(known.class_name, ('', ''))
    named = known.settings.get('tokenizer_class')
    if usual and (processor is None or (named and usual == kind)):
        post_processor = class_post_processor(known, tokenizer)
    return tokenizer, post_processor


def class_parts(
    described: Mapping[str, Any], known: TokenizerFolder, path: pathlib.Path
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
        parts['normalizer'] = bert_normalizer(settings)
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
    elif kind == 'BPE' and known.class_name == LLAMA:
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
    described: Mapping[str, Any], known: TokenizerFolder, path: pathlib.Path
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
    tokens = added_tokens(known, index, described.get('added_tokens') or [])
    hidden = {t.content: t.id for t in tokens if t.content not in index}
    plain = make_wordpiece(
        index, hidden, normalizer, known=known, where=path
    )
    return with_tokens(plain, tokens, known)


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


def make_unigram(
    described: Mapping[str, Any], known: TokenizerFolder, path: pathlib.Path
) -> TextTokenizer:
    """Makes a SentencePiece model of a Unigram."""
    vocabulary = described['model']['vocab']
    index = {token: i for i, (token, *_) in enumerate(vocabulary)}
    tokens = added_tokens(known, index, described.get('added_tokens') or [])
    model, options = unigram.read(described, tokens, path)
    plain = make_sentencepiece(model, known, path, **options)
    return with_tokens(plain, tokens, known)


def bert_normalizer(settings: Mapping[str, Any]) -> dict[str, Any]:
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
    index: Mapping[str, int], known: TokenizerFolder, where: Any
) -> list[str]:
    """Lists V tokens; ids without one get a name."""
    known.count_unnamed(index.values(), where)
    tokens = {number: token for token, number in index.items()}
    return [tokens.get(i, unnamed(i)) for i in range(known.vocab_size)]


def make_wordpiece(
    index: Mapping[str, int],
    hidden: Mapping[str, int],
    normalizer: Mapping[str, Any],
    known: TokenizerFolder,
    where: Any,
) -> WordPieceTokenizer:
    """Makes a WordPiece; `hidden` are ids of added tokens that are not in the
    vocabulary.
    """
    index = {**index, **hidden}
    specials = []
    for usual, name in zip(SPECIALS, _NAMED, strict=True):
        token = known.settings.get(f'{name}_token')
        token = token['content'] if isinstance(token, dict) else token
        known_names = token, *NAMES[usual]
        specials.append(next((x for x in known_names if x in index), usual))
    tokens = _full_vocabulary(index, known, where)
    for content, number in hidden.items():
        if content not in specials:
            tokens[number] = unnamed(number)  # no word holds the token
    return WordPieceTokenizer(
        check_vocabulary(tokens, str(where), specials),
        specials=specials,
        lower_case=bool(normalizer.get('lowercase', True)),
        strip_accents=normalizer.get('strip_accents'),
        chinese_characters=bool(normalizer.get('handle_chinese_chars', True)),
        clean=bool(normalizer.get('clean_text', True)),
    )


def make_sentencepiece(
    model: bytes, known: TokenizerFolder, where: Any, **options: Any
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
    described: dict[str, Any], known: TokenizerFolder, where: Any
) -> TextTokenizer:
    """Makes a byte-pair encoding."""
    model = described['model']
    index = dict(model['vocab'])
    listed = described.get('added_tokens') or []
    tokens = added_tokens(known, index, listed)
    index |= {token.content: token.id for token in tokens}
    vocabulary = _full_vocabulary(index, known, where)
    more = [
        special_token(token, number)
        for number, token in enumerate(vocabulary)
        if index.get(token) != number
    ]
    contents = {token['content'] for token in listed}
    more += [dataclasses.asdict(t) for t in tokens if t.content not in contents]
    described = {
        **described,
        'added_tokens': sorted([*listed, *more], key=lambda token: token['id']),
        # By default blanks stay in offsets.
        'post_processor': described.get('post_processor') or UNTRIMMED,
    }
    splits = steps_of(described.get('pre_tokenizer'))
    kind: type[BytePairs | CharacterPairs | MarkedPairs] = BytePairs
    if model.get('end_of_word_suffix'):
        kind = CharacterPairs
    elif model.get('byte_fallback') and not any(
        step['type'] == 'ByteLevel' for step in splits
    ):
        kind = MarkedPairs
    specials = _specials(described, index, known, where)
    return with_tokens(kind(described, str(where), specials), tokens, known)


def _specials(
    described: Mapping[str, Any],
    index: Mapping[str, int],
    known: TokenizerFolder,
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
    tokens = []
    for name, usual in zip(_NAMED, NAMES.values(), strict=True):
        known_names = roles[name], *usual, *ends
        tokens += [x for x in known_names if x is not None and x in index][:1]
    return tokens if len(tokens) == len(_NAMED) else []


def make_tokenizer(
    described: dict[str, Any], known: TokenizerFolder, where: Any
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
    tokens = added_tokens(known, vocab, listed)
    index = {**vocab, **{token.content: token.id for token in tokens}}
    specials = [
        next((index[name] for name in names if name in index), 0)
        for names in NAMES.values()
    ]
    return Numbers(_full_vocabulary(index, known, where), specials)


_MODELS = {
    'WordPiece': _wordpiece_json,
    'Unigram': make_unigram,
    'BPE': _pair_encoding,
}
