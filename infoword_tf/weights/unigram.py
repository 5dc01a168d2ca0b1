"""SentencePiece models of public folders, and Unigram of `tokenizers`.

A model is changed so that its tokens stand in the order of the encoder's ids:
XLM-R shifts the ids of a model by one and puts special tokens before them.
"""

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from infoword_tf import errors
from infoword_tf.text.added import AddedToken
from infoword_tf.text.normalization import normalizer_of, precompiled
from infoword_tf.text.normalizers import BLANK, steps_of
from infoword_tf.text.sentencepiece import (
    SentencePiece,
    blanks_of,
    empty_model,
    parse_model,
)
from infoword_tf.text.tokenizer import UnsupportedTokenizer, unnamed

# What fairseq puts before the tokens of a model: Conneau et al. 2020.
_FAIRSEQ = ('<s>', '<pad>', '</s>', '<unk>')
_MARK = '\u2581'
_BLANKS, _WHITE = ' {2,}', r'\s{2,}|[\n\r\t]'
# Expressions that join blanks, and the same for RE2.
_JOINS = {_BLANKS: _BLANKS, _WHITE: rf'{BLANK}{{2,}}|[\n\r\t]'}


# -------------------------------------------------------------- *.model files


def shifted(model: bytes, where: Any) -> bytes:
    """Puts the tokens of a model of XLM-R in the order of the encoder's ids.

    <s> <pad> </s> <unk>, then all tokens of the file but the first three (<unk>
    <s> </s>), then <mask>.
    """
    proto = parse_model(model, where)
    first = [piece.piece for piece in proto.pieces[:3]]
    if first != ['<unk>', '<s>', '</s>']:
        raise errors.InputError(
            'unigram_other_specials',
            f'{where} begins with {", ".join(first)}, not with <unk>, <s> and '
            '</s> as the models of XLM-R do',
        )
    by_name = {piece.piece: piece for piece in proto.pieces[:3]}
    rest = list(proto.pieces[3:])

    def control(name: str) -> Any:
        kind = proto.SentencePiece
        return kind(piece=name, score=0.0, type=kind.CONTROL)

    specials = [by_name.get(name) or control(name) for name in _FAIRSEQ]
    del proto.pieces[:]
    proto.pieces.extend([*specials, *rest, control('<mask>')])
    return proto.SerializeToString()


def unshifted(model: bytes) -> bytes | None:
    """Reverses `shifted`; None: the model has another order."""
    proto = parse_model(model, 'the tokenizer')
    while proto.pieces[-1].type == proto.SentencePiece.UNUSED:
        del proto.pieces[-1]  # of embeddings without a token
    names = tuple(piece.piece for piece in proto.pieces[:4])
    if names != _FAIRSEQ or proto.pieces[-1].piece != '<mask>':
        return None
    first, _, last, unknown = proto.pieces[:4]
    pieces = [unknown, first, last, *proto.pieces[4:-1]]
    pieces = [type(x).FromString(x.SerializeToString()) for x in pieces]
    del proto.pieces[:]
    proto.pieces.extend(pieces)
    return proto.SerializeToString()


def before_model(
    settings: Mapping[str, Any], lower_case: bool
) -> list[dict[str, Any]]:
    """Lists the changes that XLNet and ALBERT make to texts before a model's:
    quotes `` and '' become ", accents are stripped unless `keep_accents`, and
    `do_lower_case`, by default `lower_case`, folds case.
    """
    steps: list[dict[str, Any]] = [
        {'type': 'Replace', 'pattern': {'String': quotes}, 'content': '"'}
        for quotes in ('``', "''")
    ]
    if not settings.get('keep_accents', False):
        steps += [{'type': 'NFKD'}, {'type': 'StripAccents'}]
    if settings.get('do_lower_case', lower_case):
        steps.append({'type': 'Lowercase'})
    return steps


def of_deberta(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parts of a tokenizer.json by which DeBERTa's class in
    transformers 5 reads text, whatever its files say.
    """
    lower = [{'type': 'Lowercase'}] if settings.get('do_lower_case') else []
    prefix = settings.get('add_prefix_space', True)
    return {
        'normalizer': {'type': 'Sequence', 'normalizers': [
            *lower,
            {'type': 'Replace', 'pattern': {'Regex': _WHITE}, 'content': ' '},
            {'type': 'NFC'},
            {'type': 'Strip', 'strip_left': False, 'strip_right': True},
        ]},
        'pre_tokenizer': {
            'type': 'Metaspace',
            'prepend_scheme': 'always' if prefix else 'first',
        },
    }  # fmt: skip


def vocabulary_of(model: bytes, where: Any) -> tuple[dict[str, Any], list[str]]:
    """Describes the tokens of a *.model as tokenizer.json does, and lists the
    tokens that no text has.
    """
    proto = parse_model(model, where)
    kinds = proto.SentencePiece.CONTROL, proto.SentencePiece.UNKNOWN
    described = {
        'type': 'Unigram',
        'unk_id': proto.trainer_spec.unk_id,
        'vocab': [[piece.piece, piece.score] for piece in proto.pieces],
    }
    return described, [x.piece for x in proto.pieces if x.type in kinds]


def merges_of(model: bytes, where: Any) -> dict[str, Any]:
    """Describes a *.model of byte pairs (Llama's) as tokenizer.json does.

    Every two tokens that make up a third are merged, those of the lowest id
    first, as in transformers 5.

    Raises:
        ValueError: a model of another type.
    """
    proto = parse_model(model, where)
    if proto.trainer_spec.model_type != proto.trainer_spec.BPE:
        raise errors.InputError(
            'not_byte_pairs', f'{where} is no SentencePiece model of byte pairs'
        )
    index = {piece.piece: i for i, piece in enumerate(proto.pieces)}
    merges = [
        (left, right)
        for token in index
        for i in range(1, len(token))
        for left, right in [(token[:i], token[i:])]
        if left in index and right in index
    ]
    kind = proto.SentencePiece
    return {
        'added_tokens': [
            dataclasses.asdict(
                AddedToken(x.piece, i, special=x.type != kind.USER_DEFINED)
            )
            for i, x in enumerate(proto.pieces)
            if x.type in (kind.UNKNOWN, kind.CONTROL, kind.USER_DEFINED)
        ],
        'model': {
            'type': 'BPE', 'vocab': index, 'merges': merges,
            'unk_token': proto.pieces[proto.trainer_spec.unk_id].piece,
            'fuse_unk': True, 'byte_fallback': True,
        },
    }  # fmt: skip


# ------------------------------------------------- tokenizer.json to a model


def read(
    described: Mapping[str, Any], tokens: Sequence[AddedToken], where: Any
) -> tuple[bytes, dict[str, Any]]:
    """Makes a SentencePiece model of a tokenizer.json and added tokens.

    Returns:
        The bytes of the model, and options of `SentencePiece`.

    Raises:
        ValueError: `described` has a step without a counterpart here.
    """
    model = described['model']
    proto = empty_model()
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
            pieces.append((unnamed(len(pieces)), 0.0, True))
        if len(pieces) == token.id:  # a control symbol, so in no text
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
    spec.escape_whitespaces = spec.remove_extra_whitespaces = True
    spec.add_dummy_prefix = True
    charsmap, before, blanks = _normalisation(described, where)
    if charsmap is not None:
        spec.precompiled_charsmap = charsmap
    names = {piece for piece, _, control in pieces if not control}
    # Beside added tokens in normalised text blanks stay that are else stripped.
    stripped = blanks['white'] or not any(t.normalized for t in tokens)
    options: dict[str, Any] = {'before': before} if before else {}
    if not (stripped and _as_sentencepiece(blanks, charsmap, names)):
        options['blanks'] = blanks
    return proto.SerializeToString(), options


def _normalisation(
    described: Mapping[str, Any], where: Any
) -> tuple[bytes | None, list[Any], dict[str, Any]]:
    """Returns the table of characters, the steps before, and the `blanks` of
    `SentencePiece`.
    """
    charsmap, before, rewrites = None, [], []
    for step in steps_of(described.get('normalizer')):
        if step['type'] == 'Strip':
            for side, pattern in (
                ('strip_left', f'^{BLANK}+'), ('strip_right', f'{BLANK}+$')
            ):  # fmt: skip
                if step.get(side):
                    rewrites.append([pattern, ''])
            continue
        if step['type'] == 'Replace' and (blanks := _joins_blanks(step)):
            rewrites.append([blanks, step['content']])
            continue
        if charsmap:
            before.append(precompiled(charsmap))
        charsmap = None
        if step['type'] == 'Precompiled':
            charsmap = base64.b64decode(step['precompiled_charsmap'] or '')
        else:
            before.append(step)
    scheme: str | None = None
    white, split = False, True
    for step in steps_of(described.get('pre_tokenizer')):
        if step['type'] == 'Metaspace':
            prefix = step.get('add_prefix_space', True)
            scheme = step.get('prepend_scheme', 'always' if prefix else 'never')
            split = step.get('split', True)
        elif step['type'] == 'WhitespaceSplit':
            white = True
        else:
            raise UnsupportedTokenizer(
                'unigram_splits',
                f'{where} splits by {step["type"]}, which cannot be kept '
                'beside Unigram',
            )
    if scheme is None:
        raise UnsupportedTokenizer(
            'unigram_unmarked_words',
            f'{where} does not mark words (a pre_tokenizer Metaspace), which '
            'cannot be kept beside Unigram',
        )
    return charsmap, before, {
        'rewrites': rewrites, 'white': white, 'scheme': scheme, 'split': split,
    }  # fmt: skip


def _as_sentencepiece(
    blanks: Mapping[str, Any], charsmap: bytes | None, names: set[str]
) -> bool:
    """Tells whether SentencePiece treats blanks alike: strips and joins blanks,
    and writes a mark before each word.
    """
    if not charsmap or _MARK not in names:
        return False
    if any(_MARK in name[1:] for name in names):
        return False
    if blanks['scheme'] != 'always' or not blanks['split']:
        return False
    if blanks['white']:
        return set('\t\n\r') <= set(blanks_of(charsmap))
    patterns = {pattern for pattern, _ in blanks['rewrites']}
    return {_BLANKS, f'{BLANK}+$'} <= patterns


def _joins_blanks(step: Mapping[str, Any]) -> str | None:
    """Returns the expression for RE2 of a step that joins blanks."""
    pattern = step.get('pattern') or {}
    if step.get('content') not in (' ', _MARK):
        return None
    if pattern.get('String') == '  ':
        return _BLANKS
    return _JOINS.get(pattern.get('Regex', ''))


# ------------------------------------------------- a model to tokenizer.json


def write(tokenizer: SentencePiece, with_added: bool) -> Any:
    """Makes a `tokenizers.Tokenizer` of a unigram model.

    Args:
        with_added: whether added tokens follow, special ones among them.

    Raises:
        ValueError: the model is of another type.
    """
    import tokenizers
    from tokenizers import models, pre_tokenizers

    proto = parse_model(tokenizer.model, 'the tokenizer')
    piece_type = proto.SentencePiece
    if proto.trainer_spec.model_type != proto.trainer_spec.UNIGRAM:
        raise errors.InputError(
            'not_unigram',
            'only unigram models of SentencePiece have a place in a folder '
            'for transformers',
        )
    pieces = list(proto.pieces)
    no_text = piece_type.CONTROL, piece_type.UNUSED
    while with_added and pieces[-1].type in no_text:
        pieces.pop()
    unigram = tokenizers.Tokenizer(
        models.Unigram(
            [(piece.piece, piece.score) for piece in pieces],
            tokenizer.unk_id,
            bool(proto.trainer_spec.byte_fallback),
        )
    )
    steps: list[Any] = [*tokenizer.before]
    if charsmap := proto.normalizer_spec.precompiled_charsmap:
        steps.append(precompiled(charsmap))
    names = {pattern: name for name, pattern in _JOINS.items()}
    blanks = tokenizer.blanks
    for pattern, rewrite in blanks.rewrites if blanks else [[_BLANKS, ' ']]:
        left = pattern.startswith('^')
        steps.append(
            {'type': 'Replace', 'pattern': {'Regex': names[pattern]},
             'content': rewrite}
            if pattern in names
            else {'type': 'Strip', 'strip_left': left, 'strip_right': not left}
        )  # fmt: skip
    unigram.normalizer = normalizer_of(steps)
    scheme, split, white = 'always', True, True
    if blanks is not None:
        scheme, split, white = blanks.scheme, blanks.split, blanks.white
    mark = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    unigram.pre_tokenizer = mark
    if white:
        unigram.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), mark]
        )
    if not with_added:
        special = piece_type.CONTROL, piece_type.UNKNOWN
        unigram.add_special_tokens(
            [
                tokenizers.AddedToken(x.piece, special=True, normalized=False)
                for x in proto.pieces
                if x.type in special
            ]
        )
    return unigram
