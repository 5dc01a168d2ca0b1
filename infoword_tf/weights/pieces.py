"""Tokenizers of other people's folders: theirs to ours, and ours to theirs.

WordPiece is read from tokenizer.json, or from vocab.txt with
tokenizer_config.json. Of SentencePiece a model is made whose pieces stand in
the order of the encoder's ids, so that an id is a piece's place here as
everywhere: XLM-R shifts the ids of its model by one and puts specials of its
own before them.
"""

import base64
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from infoword_tf import files
from infoword_tf.config import TokenizerConfig
from infoword_tf.text import vocabulary as vocabularies
from infoword_tf.text.numbers import Numbers
from infoword_tf.text.sentencepiece import SentencePiece
from infoword_tf.text.tokenizer import Tokenizer
from infoword_tf.text.wordpiece import WordPiece
from infoword_tf.weights.tensors import read_json

# What fairseq puts before the pieces of a model: Conneau et al. 2020.
_FAIRSEQ = ('<s>', '<pad>', '</s>', '<unk>')
_SHIFTED = 'sentencepiece.bpe.model'
_PLAIN = 'spiece.model'
_WORD = 100  # characters of the longest word that has pieces


class Read(NamedTuple):
    """A tokenizer as a folder holds it.

    Attributes:
        tokenizer: ours.
        config: how to read it again.
        max_length: of its texts, with specials; None: it does not say.
        said: what people should know of it.
    """

    tokenizer: Tokenizer
    config: TokenizerConfig
    max_length: int | None
    said: list[str]


def read(folder: pathlib.Path, vocab_size: int) -> Read:
    """Finds out what tokenizer a folder has.

    Args:
        folder: with tokenizer.json, vocab.txt or a SentencePiece model.
        vocab_size: V of the encoder; a vocabulary that is shorter gets names
            for the ids that no text has.

    Raises:
        FileNotFoundError: it has none.
        ValueError: a vocabulary of another size, or a tokenizer that reads
            text in a way that cannot be kept.
    """
    described, settings = folder / 'tokenizer.json', {}
    if (folder / 'tokenizer_config.json').is_file():
        settings = read_json(folder / 'tokenizer_config.json')
    longest = settings.get('model_max_length')
    if not isinstance(longest, int) or longest > 1_000_000:
        longest = None
    said: list[str] = []
    if described.is_file():
        made = _described(described, read_json(described), vocab_size, said)
    elif (folder / 'vocab.txt').is_file():
        path = folder / 'vocab.txt'
        pieces = path.read_text(encoding='utf-8').split('\n')
        while pieces and not pieces[-1]:
            pieces.pop()
        if not settings.get('do_basic_tokenize', True):
            raise ValueError(
                f'{folder}/tokenizer_config.json says do_basic_tokenize '
                'false; such a tokenizer cannot be kept'
            )
        made = _wordpiece(
            _filled(pieces, vocab_size, path, said),
            bool(settings.get('do_lower_case', True)),
            settings.get('strip_accents'),
            bool(settings.get('tokenize_chinese_chars', True)),
            True,
            path,
        )
    elif (folder / _SHIFTED).is_file():
        made = _sentencepiece(
            shifted((folder / _SHIFTED).read_bytes(), folder / _SHIFTED),
            vocab_size,
            folder / _SHIFTED,
        )
    elif (folder / _PLAIN).is_file():
        path = folder / _PLAIN
        made = _sentencepiece(
            folded(path.read_bytes(), settings, path), vocab_size, path
        )
    elif (folder / 'vocab.json').is_file():
        index = read_json(folder / 'vocab.json')
        made = _numbers(sorted(index, key=index.get), vocab_size, folder, said)
    else:
        raise FileNotFoundError(
            f'{folder} has no tokenizer: none of tokenizer.json, vocab.txt, '
            f'{_SHIFTED}, {_PLAIN} and vocab.json'
        )
    return Read(*made, longest, said)


def _filled(
    pieces: list[str], size: int, where: Any, said: list[str]
) -> list[str]:
    """A vocabulary of just `size` pieces."""
    if len(pieces) > size:
        raise ValueError(
            f'{where} has {len(pieces):,} pieces, but the encoder has '
            f'{size:,} embeddings; one of the two is of another model'
        )
    if len(pieces) < size:
        said.append(
            f'{size - len(pieces)} embeddings have no piece of the vocabulary'
        )
    # A blank in its name: no text has such a piece.
    return pieces + [f'[no {i}]' for i in range(len(pieces), size)]


def _wordpiece(
    pieces: Sequence[str],
    lower_case: bool,
    strip_accents: bool | None,
    chinese_characters: bool,
    clean: bool,
    where: Any,
) -> tuple[Tokenizer, TokenizerConfig]:
    vocabulary = vocabularies.check(pieces, str(where))
    tokenizer = WordPiece(
        vocabulary, lower_case, strip_accents, chinese_characters, clean
    )
    return tokenizer, TokenizerConfig(
        WordPiece.kind, lower_case, tokenizer.options
    )


def _sentencepiece(
    model: bytes, size: int, where: Any
) -> tuple[Tokenizer, TokenizerConfig]:
    tokenizer = SentencePiece(model, str(where))
    if len(tokenizer) != size:
        raise ValueError(
            f'{where} has {len(tokenizer):,} pieces, but the encoder has '
            f'{size:,} embeddings; one of the two is of another model'
        )
    return tokenizer, TokenizerConfig(SentencePiece.kind, tokenizer.lower_case)


def _numbers(
    pieces: list[str], size: int, where: Any, said: list[str]
) -> tuple[Tokenizer, TokenizerConfig]:
    """For a byte-pair encoding; its specials are of no use here."""
    pieces = _filled(pieces, size, where, said)
    index = {piece: i for i, piece in enumerate(pieces)}
    names = (('<pad>',), ('<unk>',), ('<s>', '</s>'),
             ('</s>', '<|endoftext|>'), ('<mask>',))  # fmt: skip
    specials = [
        next((index[name] for name in known if name in index), 0)
        for known in names
    ]
    said.append(
        'its byte-pair vocabulary cannot be tokenized in a graph, so it takes '
        'ids alone'
    )
    return Numbers(pieces, specials), TokenizerConfig(Numbers.kind, False)


# ------------------------------------------------------------ tokenizer.json


def _described(
    path: pathlib.Path, found: Mapping[str, Any], size: int, said: list[str]
) -> tuple[Tokenizer, TokenizerConfig]:
    """What a tokenizer.json holds, if that can be kept."""
    model = found.get('model') or {}
    kind = model.get('type')
    if kind is None and 'vocab' in model:  # older files
        kind = 'BPE' if 'merges' in model else 'WordPiece'
    added = {token['id']: token for token in found.get('added_tokens') or ()}
    if kind == 'WordPiece':
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
        _check_split(path, found.get('pre_tokenizer'))
        return _wordpiece(
            _filled(pieces, size, path, said),
            *_bert_normalizer(path, found.get('normalizer')),
            path,
        )
    if kind == 'Unigram':
        proto = _unigram(path, found, added)
        return _sentencepiece(proto, size, path)
    if kind == 'BPE':
        index = dict(model['vocab'])
        index |= {token['content']: i for i, token in added.items()}
        return _numbers(sorted(index, key=index.get), size, path, said)
    raise ValueError(
        f'{path} has a model of the type {kind!r}; known are WordPiece, '
        'Unigram and, for ids alone, BPE'
    )


def _steps(part: Mapping[str, Any] | None, name: str) -> list[Any]:
    """A part, or those of a sequence, in order."""
    if part is None:
        return []
    return part[name] if part['type'] == 'Sequence' else [part]


def _check_split(path: pathlib.Path, part: Mapping[str, Any] | None) -> None:
    kinds = [step['type'] for step in _steps(part, 'pretokenizers')]
    if kinds != ['BertPreTokenizer']:
        raise ValueError(
            f'{path} splits words by {kinds or "nothing"}; only '
            'BertPreTokenizer can be kept beside WordPiece'
        )


def _bert_normalizer(
    path: pathlib.Path, part: Mapping[str, Any] | None
) -> tuple[bool, bool | None, bool, bool]:
    """lower_case, strip_accents, chinese_characters, clean."""
    steps = _steps(part, 'normalizers')
    kinds = [step['type'] for step in steps]
    if kinds != ['BertNormalizer']:
        raise ValueError(
            f'{path} normalises by {kinds or "nothing"}; only BertNormalizer '
            'can be kept beside WordPiece'
        )
    (step,) = steps
    return (
        bool(step.get('lowercase', True)),
        step.get('strip_accents'),
        bool(step.get('handle_chinese_chars', True)),
        bool(step.get('clean_text', True)),
    )


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

    Raises:
        ValueError: it is no such model.
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


# ---------------------------------------------------------------------- out


def write(
    folder: pathlib.Path,
    tokenizer: Tokenizer,
    config: TokenizerConfig,
    kind: str,
    max_length: int,
) -> None:
    """Writes a tokenizer as transformers reads it.

    Args:
        kind: model_type of the encoder.
        max_length: of a text, with specials.

    Raises:
        ValueError: transformers has none like it.
    """
    names = {
        f'{name}_token': tokenizer.vocabulary[number]
        for name, number in (
            ('pad', tokenizer.pad_id),
            ('unk', tokenizer.unk_id),
            ('cls', tokenizer.cls_id),
            ('sep', tokenizer.sep_id),
            ('mask', tokenizer.mask_id),
        )
    }
    settings: dict[str, Any] = {**names, 'model_max_length': max_length}
    if isinstance(tokenizer, WordPiece):
        options = config.options
        settings |= {
            'tokenizer_class': 'BertTokenizer',
            'do_lower_case': config.lower_case,
            'strip_accents': options.get('strip_accents'),
            'tokenize_chinese_chars': options.get('chinese_characters', True),
        }
        vocabularies.write(folder / 'vocab.txt', tokenizer.vocabulary)
        made = _fast_wordpiece(tokenizer, config)
    elif isinstance(tokenizer, SentencePiece):
        made = _fast_unigram(tokenizer, kind)
        tokenizer_class = 'XLNetTokenizer'
        if kind != 'xlnet':
            tokenizer_class = 'PreTrainedTokenizerFast'
            if names['cls_token'] == '<s>':
                tokenizer_class = 'XLMRobertaTokenizer'
        settings['tokenizer_class'] = tokenizer_class
        path = folder / (_PLAIN if kind == 'xlnet' else _SHIFTED)
        model = tokenizer.model
        if kind != 'xlnet':
            model = unshifted(model)
        if model is not None:
            path.write_bytes(model)
    else:
        raise ValueError(
            f'a tokenizer of the kind {config.kind} cannot be written for '
            'transformers'
        )
    made.save(str(folder / 'tokenizer.json'))
    files.write_json(folder / 'tokenizer_config.json', settings)


def _fast_wordpiece(tokenizer: WordPiece, config: TokenizerConfig) -> Any:
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, processors

    pieces = {piece: i for i, piece in enumerate(tokenizer.vocabulary)}
    made = tokenizers.Tokenizer(
        models.WordPiece(
            pieces, unk_token=vocabularies.UNK, max_input_chars_per_word=_WORD
        )
    )
    made.normalizer = normalizers.BertNormalizer(
        lowercase=config.lower_case,
        strip_accents=config.options.get('strip_accents'),
        handle_chinese_chars=config.options.get('chinese_characters', True),
        clean_text=config.options.get('clean', True),
    )
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(list(vocabularies.SPECIALS))
    cls, sep = vocabularies.CLS, vocabularies.SEP
    made.post_processor = processors.TemplateProcessing(
        single=f'{cls} $A {sep}',
        pair=f'{cls} $A {sep} $B:1 {sep}:1',
        special_tokens=[(cls, tokenizer.cls_id), (sep, tokenizer.sep_id)],
    )
    return made


def _fast_unigram(tokenizer: SentencePiece, kind: str) -> Any:
    import tokenizers
    from tokenizers import (
        AddedToken,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )

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
    made.post_processor = processors.TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[(cls, tokenizer.cls_id), (sep, tokenizer.sep_id)],
    )
    return made
