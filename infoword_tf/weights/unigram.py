"""SentencePiece models of public folders, and Unigram of `tokenizers`.

A model is changed so that its tokens stand in the order of the encoder's ids:
XLM-R shifts the ids of a model by one and puts special tokens before them.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from infoword_tf import errors
from infoword_tf.text.added import AddedToken
from infoword_tf.text.normalizers import BLANK
from infoword_tf.text.sentencepiece import (
    SentencePiece,
    blanks_of,
    parse_model,
)
from infoword_tf.text.vocabulary import unnamed

# What fairseq puts before the tokens of a model: Conneau et al. 2020.
_FAIRSEQ = ('<s>', '<pad>', '</s>', '<unk>')
_MARK = '\u2581'
_BLANKS = ' {2,}'


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


def with_xlnet_rules(
    model: bytes, settings: Mapping[str, Any], where: Any
) -> bytes:
    """Adds to a model's table the changes that XLNet makes to texts before.

    Quotes `` and '' become ", accents are stripped unless `keep_accents`, and
    `do_lower_case` folds case.
    """
    from infoword_tf.weights import characters

    proto = parse_model(model, where)
    proto.normalizer_spec.precompiled_charsmap = characters.table(
        proto,
        strip_accents=not settings.get('keep_accents', False),
        lower_case=bool(settings.get('do_lower_case', False)),
        quotes=True,
    )
    if settings.get('do_lower_case'):
        proto.normalizer_spec.name += '_cf'
    return proto.SerializeToString()


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
    charsmap, blanks = _normalisation(described, where)
    if charsmap is not None:
        spec.precompiled_charsmap = charsmap
    names = {piece for piece, _, control in pieces if not control}
    # Beside added tokens in normalised text blanks stay that are else stripped.
    stripped = blanks['white'] or not any(t.normalized for t in tokens)
    options: dict[str, Any] = {}
    if not (stripped and _as_sentencepiece(blanks, charsmap, names)):
        options['blanks'] = blanks
    return proto.SerializeToString(), options


def _normalisation(
    described: Mapping[str, Any], where: Any
) -> tuple[bytes | None, dict[str, Any]]:
    """Returns the table of characters, and the `blanks` of `SentencePiece`."""
    charsmap, rewrites = None, []
    for step in steps(described.get('normalizer'), 'normalizers'):
        if step['type'] == 'Precompiled':
            charsmap = base64.b64decode(step['precompiled_charsmap'] or '')
        elif step['type'] == 'Strip':
            for side, pattern in (
                ('strip_left', f'^{BLANK}+'), ('strip_right', f'{BLANK}+$')
            ):  # fmt: skip
                if step.get(side):
                    rewrites.append([pattern, ''])
        elif step['type'] == 'Replace' and _joins_blanks(step):
            rewrites.append([_BLANKS, step['content']])
        else:
            raise errors.InputError(
                'unigram_normalizes',
                f'{where} normalises by {step["type"]}, which cannot be kept '
                'beside Unigram; fetch the folder with its *.model',
            )
    white, scheme, split = False, None, True
    for step in steps(described.get('pre_tokenizer'), 'pretokenizers'):
        if step['type'] == 'Metaspace':
            prefix = step.get('add_prefix_space', True)
            scheme = step.get('prepend_scheme', 'always' if prefix else 'never')
            split = step.get('split', True)
        elif step['type'] == 'WhitespaceSplit':
            white = True
        else:
            raise errors.InputError(
                'unigram_splits',
                f'{where} splits by {step["type"]}, which cannot be kept '
                'beside Unigram',
            )
    if scheme is None:
        raise errors.InputError(
            'unigram_unmarked_words',
            f'{where} does not mark words (a pre_tokenizer Metaspace), which '
            'cannot be kept beside Unigram',
        )
    return charsmap, {
        'rewrites': rewrites, 'white': white, 'scheme': scheme, 'split': split,
    }  # fmt: skip


def steps(part: Mapping[str, Any] | None, name: str) -> list[Any]:
    """Lists a part of a tokenizer.json, or the steps of a sequence."""
    if part is None:
        return []
    return part[name] if part['type'] == 'Sequence' else [part]


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


def _joins_blanks(step: Mapping[str, Any]) -> bool:
    pattern = step.get('pattern') or {}
    joins = pattern.get('Regex') == _BLANKS or pattern.get('String') == '  '
    return joins and step.get('content') in (' ', _MARK)


# ------------------------------------------------- a model to tokenizer.json


def write(tokenizer: SentencePiece, with_added: bool) -> Any:
    """Makes a `tokenizers.Tokenizer` of a unigram model.

    Args:
        with_added: whether added tokens follow, special ones among them.

    Raises:
        ValueError: the model is of another type.
    """
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers

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
    normalisation = []
    if charsmap := proto.normalizer_spec.precompiled_charsmap:
        normalisation.append(normalizers.Precompiled(charsmap))
    blanks = tokenizer.blanks
    for pattern, rewrite in blanks.rewrites if blanks else [[_BLANKS, ' ']]:
        left = pattern.startswith('^')
        normalisation.append(
            normalizers.Replace(tokenizers.Regex(pattern), rewrite)
            if pattern == _BLANKS
            else normalizers.Strip(left=left, right=not left)
        )
    unigram.normalizer = normalizers.Sequence(normalisation)
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
        names = [x.piece for x in proto.pieces if x.type in special]
        unigram.add_special_tokens(
            [
                tokenizers.AddedToken(x, special=True, normalized=False)
                for x in names
            ]
        )
    return unigram
