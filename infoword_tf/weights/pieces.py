"""Tokenizers of other people's folders: theirs to ours, and ours to theirs.

WordPiece is read from tokenizer.json, or from vocab.txt with
tokenizer_config.json; a byte-pair encoding from tokenizer.json, or from
vocab.json with merges.txt. Of SentencePiece a model is made whose pieces stand
in the order of the encoder's ids, so that an id is a piece's place here as
everywhere: XLM-R shifts the ids of its model by one and puts specials of its
own before them.
"""

import base64
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from infoword_tf import files
from infoword_tf.text import vocabulary as vocabularies
from infoword_tf.text.bytepairs import BytePairs
from infoword_tf.text.characterpairs import ENDS, CharacterPairs
from infoword_tf.text.numbers import Numbers
from infoword_tf.text.pairs import NAMES, CannotKeep, Pairs
from infoword_tf.text.sentencepiece import SentencePiece
from infoword_tf.text.tokenizer import Tokenizer
from infoword_tf.text.wordpiece import WordPiece

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
    """

    tokenizer: Tokenizer
    max_length: int | None
    said: list[str]


def read(folder: pathlib.Path, vocab_size: int) -> Read:
    """Finds out what tokenizer a folder has.

    Args:
        vocab_size: V of the encoder; a vocabulary that is shorter gets names
            for the ids that no text has.

    Raises:
        FileNotFoundError: it has none.
        ValueError: a vocabulary of another size, or a tokenizer that reads
            text in a way that cannot be kept.
    """
    settings = {}
    if (folder / 'tokenizer_config.json').is_file():
        settings = files.read_json(folder / 'tokenizer_config.json')
    longest = settings.get('model_max_length')
    if not isinstance(longest, int) or longest > 1_000_000:
        longest = None
    said: list[str] = []
    for name, make in _FILES.items():
        if (folder / name).is_file():
            made = make(folder / name, settings, vocab_size, said)
            return Read(made, longest, said)
    *names, last = _FILES
    raise FileNotFoundError(
        f'{folder} has no tokenizer: none of {", ".join(names)} and {last}'
    )


def _other_size(where: Any, found: int, size: int) -> ValueError:
    return ValueError(
        f'{where} has {found:,} pieces, but the encoder has {size:,} '
        'embeddings; one of the two is of another model'
    )


def _filled(
    pieces: list[str], size: int, where: Any, said: list[str]
) -> list[str]:
    """A vocabulary of just `size` pieces."""
    if len(pieces) > size:
        raise _other_size(where, len(pieces), size)
    if len(pieces) < size:
        said.append(
            f'{size - len(pieces)} embeddings have no piece of the vocabulary'
        )
    # A blank in its name: no text has such a piece.
    return pieces + [f'[no {i}]' for i in range(len(pieces), size)]


def _wordpiece(pieces: Sequence[str], where: Any, **options: Any) -> Tokenizer:
    return WordPiece(vocabularies.check(pieces, str(where)), **options)


def _vocab_txt(
    path: pathlib.Path, settings: Mapping[str, Any], size: int, said: list[str]
) -> Tokenizer:
    pieces = path.read_text(encoding='utf-8').split('\n')
    while pieces and not pieces[-1]:
        pieces.pop()
    if not settings.get('do_basic_tokenize', True):
        raise ValueError(
            f'{path.parent}/tokenizer_config.json says do_basic_tokenize '
            'false; such a tokenizer cannot be kept'
        )
    return _wordpiece(
        _filled(pieces, size, path, said),
        path,
        lower_case=bool(settings.get('do_lower_case', True)),
        strip_accents=settings.get('strip_accents'),
        chinese_characters=bool(settings.get('tokenize_chinese_chars', True)),
    )


def _sentencepiece(model: bytes, size: int, where: Any) -> Tokenizer:
    tokenizer = SentencePiece(model, str(where))
    if len(tokenizer) != size:
        raise _other_size(where, len(tokenizer), size)
    return tokenizer


def _pairs(
    described: dict[str, Any], size: int, where: Any, said: list[str]
) -> Tokenizer:
    """A byte-pair encoding; ids alone where it reads text in other ways."""
    model = described['model']
    index = dict(model['vocab'])
    added = described.get('added_tokens') or []
    index |= {token['content']: token['id'] for token in added}
    pieces = sorted(index, key=index.get)
    filled = _filled(pieces, size, where, said)
    more = [
        _added(piece, number)
        for number, piece in enumerate(filled)
        if number >= len(pieces)
    ]
    described = {**described, 'added_tokens': [*added, *more]}
    kind = CharacterPairs if model.get('end_of_word_suffix') else BytePairs
    try:
        made = kind(described, str(where))
    except CannotKeep as error:
        said.append(f'{error}; so it takes ids alone')
        specials = [
            next((index[name] for name in known if name in index), 0)
            for known in NAMES.values()
        ]
        return Numbers(filled, specials)
    spelled = [
        token['content']
        for token in added
        if not token.get('special') and token['content'].strip(' ')
    ]
    if spelled:
        said.append(
            f'{len(spelled)} added pieces, such as {spelled[0]!r}, are text '
            'like any other where a text spells them'
        )
    return made


def _added(piece: str, number: int) -> dict[str, Any]:
    """A special piece as a tokenizer.json describes it."""
    return {
        'id': number, 'content': piece, 'single_word': False,
        'lstrip': piece in NAMES[vocabularies.MASK][:2], 'rstrip': False,
        'normalized': False, 'special': True,
    }  # fmt: skip


# ------------------------------------------------------------ tokenizer.json


def _described(
    path: pathlib.Path, settings: Mapping[str, Any], size: int, said: list[str]
) -> Tokenizer:
    """What a tokenizer.json holds, if that can be kept."""
    del settings
    found = files.read_json(path)
    model = found.get('model') or {}
    kind = model.get('type')
    if kind is None and 'vocab' in model:  # older files
        kind = 'BPE' if 'merges' in model else 'WordPiece'
    added = {token['id']: token for token in found.get('added_tokens') or ()}
    if kind == 'Unigram':
        return _sentencepiece(_unigram(path, found, added), size, path)
    if kind == 'BPE':
        return _pairs(found, size, path, said)
    if kind != 'WordPiece':
        raise ValueError(
            f'{path} has a model of the type {kind!r}; known are WordPiece, '
            'Unigram and BPE'
        )
    index = dict(model['vocab'])
    index |= {token['content']: i for i, token in added.items()}
    pieces = [''] * (max(index.values()) + 1)
    for piece, number in index.items():
        pieces[number] = piece
    longest = model.get('max_input_chars_per_word', _WORD)
    prefix = model.get('continuing_subword_prefix', '##')
    if longest != _WORD or prefix != '##':
        raise ValueError(
            f'{path}: words of up to {longest} characters and pieces that '
            f'go on with {prefix!r}; only {_WORD} and ## can be kept'
        )
    split = _steps(found.get('pre_tokenizer'), 'pretokenizers')
    _only(f'{path} splits words', split, 'BertPreTokenizer')
    step = _only(
        f'{path} normalises',
        _steps(found.get('normalizer'), 'normalizers'),
        'BertNormalizer',
    )
    return _wordpiece(
        _filled(pieces, size, path, said),
        path,
        lower_case=bool(step.get('lowercase', True)),
        strip_accents=step.get('strip_accents'),
        chinese_characters=bool(step.get('handle_chinese_chars', True)),
        clean=bool(step.get('clean_text', True)),
    )


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
    found: Mapping[str, Any],
    added: Mapping[int, Mapping[str, Any]],
) -> bytes:
    """The SentencePiece model that a Unigram of tokenizer.json is."""
    from sentencepiece import sentencepiece_model_pb2

    model = found['model']
    proto = sentencepiece_model_pb2.ModelProto()
    piece_type = proto.SentencePiece
    proto.trainer_spec.model_type = proto.trainer_spec.UNIGRAM
    proto.trainer_spec.byte_fallback = bool(model.get('byte_fallback'))
    pieces = [tuple(entry) for entry in model['vocab']]
    for number in sorted(added):
        if number == len(pieces):
            pieces.append((added[number]['content'], 0.0))
    for number, (piece, score) in enumerate(pieces):
        kind = piece_type.NORMAL
        if number == model['unk_id']:
            kind = piece_type.UNKNOWN
        elif number in added and added[number].get('special'):
            kind = piece_type.CONTROL
        proto.pieces.add(piece=piece, score=score, type=kind)
    proto.trainer_spec.unk_id = model['unk_id']
    proto.trainer_spec.unk_piece = pieces[model['unk_id']][0]
    proto.trainer_spec.vocab_size = len(pieces)
    spec = proto.normalizer_spec
    spec.name = 'nmt_nfkc'
    for step in _steps(found.get('normalizer'), 'normalizers'):
        if step['type'] == 'Precompiled':
            spec.precompiled_charsmap = base64.b64decode(
                step['precompiled_charsmap']
            )
        elif step['type'] not in ('Replace', 'Strip') or not _only_blanks(step):
            raise ValueError(
                f'{path} normalises by {step["type"]}, which cannot be kept '
                'beside Unigram; fetch the folder with its *.model'
            )
    spec.escape_whitespaces = True
    spec.remove_extra_whitespaces = True
    spec.add_dummy_prefix = True
    for step in _steps(found.get('pre_tokenizer'), 'pretokenizers'):
        if step['type'] == 'Metaspace':
            scheme = step.get('prepend_scheme', 'always')
            spec.add_dummy_prefix = scheme != 'never' and step.get(
                'add_prefix_space', True
            )
        elif step['type'] != 'WhitespaceSplit':
            raise ValueError(
                f'{path} splits by {step["type"]}, which cannot be kept '
                'beside Unigram'
            )
    return proto.SerializeToString()


def _only_blanks(step: Mapping[str, Any]) -> bool:
    """Whether a step but joins or strips blanks, as SentencePiece does."""
    if step['type'] == 'Strip':
        return True
    pattern = step.get('pattern') or {}
    return set(pattern.get('Regex', pattern.get('String', 'x'))) <= set(
        ' {2,}+'
    )


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


def _vocab_json(
    path: pathlib.Path, settings: Mapping[str, Any], size: int, said: list[str]
) -> Tokenizer:
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
            'add_prefix_space': bool(settings.get('add_prefix_space', False)),
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
    return _pairs(described, size, path, said)


# What reads a file: (path, what tokenizer_config.json says, V, what people
# should know) -> the tokenizer. The first file that is there counts.
_FILES = {
    'tokenizer.json': _described,
    'vocab.txt': _vocab_txt,
    _SHIFTED: lambda path, settings, size, said: _sentencepiece(
        shifted(path.read_bytes(), path), size, path
    ),
    _PLAIN: lambda path, settings, size, said: _sentencepiece(
        folded(path.read_bytes(), settings, path), size, path
    ),
    'vocab.json': _vocab_json,
}

# ---------------------------------------------------------------------- out


def write(
    folder: pathlib.Path, tokenizer: Tokenizer, kind: str, max_length: int
) -> None:
    """Writes a tokenizer as transformers reads it.

    Raises:
        ValueError: transformers has none like it.
    """
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
    if isinstance(tokenizer, WordPiece):
        options = tokenizer.options
        settings |= {
            'tokenizer_class': 'BertTokenizer',
            'do_lower_case': tokenizer.lower_case,
            'strip_accents': options.get('strip_accents'),
            'tokenize_chinese_chars': options.get('chinese_characters', True),
        }
        vocabularies.write(folder / 'vocab.txt', tokenizer.vocabulary)
        made = _fast_wordpiece(tokenizer)
    elif isinstance(tokenizer, SentencePiece):
        made = _fast_unigram(tokenizer, kind)
        if kind == 'xlnet':
            file, model = _PLAIN, tokenizer.model
            settings['tokenizer_class'] = 'XLNetTokenizer'
        else:
            file, model = _SHIFTED, unshifted(tokenizer.model)
            fairseq = names['cls_token'] == '<s>'
            settings['tokenizer_class'] = (
                'XLMRobertaTokenizer' if fairseq else 'PreTrainedTokenizerFast'
            )
        if model is not None:
            (folder / file).write_bytes(model)
    elif isinstance(tokenizer, Pairs):
        settings['tokenizer_class'] = _CLASSES.get(
            kind, 'PreTrainedTokenizerFast'
        )
        if kind == 'modernbert':  # it knows no segments
            settings['model_input_names'] = ['input_ids', 'attention_mask']
        made = _fast_pairs(tokenizer, kind)
        made.model.save(str(folder))  # vocab.json and merges.txt
    else:
        raise ValueError(
            f'a tokenizer of the kind {tokenizer.kind} cannot be written for '
            'transformers'
        )
    made.save(str(folder / 'tokenizer.json'))
    files.write_json(folder / 'tokenizer_config.json', settings)


# What transformers calls the tokenizers that byte pairs go out as.
_CLASSES = {
    'gpt2': 'GPT2Tokenizer',
    'openai-gpt': 'OpenAIGPTTokenizer',
    'roberta': 'RobertaTokenizer',
}


def _fast_pairs(tokenizer: Pairs, kind: str) -> Any:
    import tokenizers
    from tokenizers import decoders, processors

    made = tokenizers.Tokenizer.from_str(tokenizer.json)
    cls = tokenizer.vocabulary[tokenizer.cls_id]
    sep = tokenizer.vocabulary[tokenizer.sep_id]
    single, pair = f'{cls} $A {sep}', f'{cls} $A {sep} $B:1 {sep}:1'
    if kind == 'roberta':
        pair = f'{cls} $A {sep} {sep} $B {sep}'
    if kind in ('gpt2', 'openai-gpt'):  # theirs put nothing around a text
        made.post_processor = processors.ByteLevel(trim_offsets=True)
    else:
        made.post_processor = _around(tokenizer, single, pair)
    if isinstance(tokenizer, CharacterPairs):
        made.decoder = decoders.BPEDecoder(suffix=ENDS)
    else:
        made.decoder = decoders.ByteLevel()
    return made


def _fast_wordpiece(tokenizer: WordPiece) -> Any:
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers

    pieces = {piece: i for i, piece in enumerate(tokenizer.vocabulary)}
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
    cls, sep = vocabularies.CLS, vocabularies.SEP
    single, pair = f'{cls} $A {sep}', f'{cls} $A {sep} $B:1 {sep}:1'
    made.post_processor = _around(tokenizer, single, pair)
    return made


def _around(tokenizer: Tokenizer, single: str, pair: str) -> Any:
    """Puts [CLS] and [SEP] around texts and pairs, as is written there."""
    from tokenizers import processors

    ids = tokenizer.cls_id, tokenizer.sep_id
    return processors.TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[(tokenizer.vocabulary[i], i) for i in ids],
    )


def _fast_unigram(tokenizer: SentencePiece, kind: str) -> Any:
    import tokenizers
    from tokenizers import AddedToken, models, normalizers, pre_tokenizers

    proto = _parsed(tokenizer.model, 'the tokenizer')
    piece_type = proto.SentencePiece
    if proto.trainer_spec.model_type != proto.trainer_spec.UNIGRAM:
        raise ValueError(
            'only unigram models of SentencePiece have a place in a folder '
            'for transformers'
        )
    made = tokenizers.Tokenizer(
        models.Unigram(
            [(piece.piece, piece.score) for piece in proto.pieces],
            tokenizer.unk_id,
            bool(proto.trainer_spec.byte_fallback),
        )
    )
    steps = []
    if charsmap := proto.normalizer_spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(charsmap))
    steps.append(normalizers.Replace(tokenizers.Regex(' {2,}'), ' '))
    made.normalizer = normalizers.Sequence(steps)
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    made.add_special_tokens(
        [
            AddedToken(piece.piece, special=True, normalized=False)
            for piece in proto.pieces
            if piece.type in (piece_type.CONTROL, piece_type.UNKNOWN)
        ]
    )
    cls = tokenizer.vocabulary[tokenizer.cls_id]
    sep = tokenizer.vocabulary[tokenizer.sep_id]
    single, pair = f'{cls} $A {sep}', f'{cls} $A {sep} {sep} $B {sep}'
    if kind == 'xlnet':
        single, pair = f'$A {sep} {cls}:2', f'$A {sep} $B:1 {sep}:1 {cls}:2'
    elif kind == 'bert':
        pair = f'{cls} $A {sep} $B:1 {sep}:1'
    made.post_processor = _around(tokenizer, single, pair)
    return made
