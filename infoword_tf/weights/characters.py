"""A table of characters for SentencePiece: what a tokenizer does before it.

XLNet's tokenizer changes a text before its model's own normalisation. Each
change is one of a character alone (but for two quotes in a row), so both
together are one table, which the model applies in the graph and maps offsets
through.
"""

import io
import sys
import unicodedata
from typing import Any


def table(
    proto: Any,
    strip_accents: bool,
    lower_case: bool,
    quotes: bool,
) -> bytes:
    """The `precompiled_charsmap` of the changes and then of the model.

    Args:
        proto: the ModelProto, with its own table.
        strip_accents: NFKD, without combining marks.
        lower_case: character by character.
        quotes: `` and '' become ".
    """
    import sentencepiece

    own = sentencepiece.SentencePieceProcessor(
        model_proto=proto.SerializeToString()
    )
    rules = []
    if quotes:
        rules += [('``', '"'), ("''", '"')]
    for number in range(sys.maxunicode + 1):
        if 0xD800 <= number < 0xE000:
            continue
        character = chr(number)
        made = character
        if strip_accents:
            made = ''.join(
                c
                for c in unicodedata.normalize('NFKD', made)
                if not unicodedata.combining(c)
            )
        if lower_case:
            made = made.lower()
        rules.append((character, made))
    found = []
    for before, after in rules:
        made = _normalised(own, after)
        if made != before:
            found.append((before, made))
    lines = '\n'.join(
        ' '.join(f'{ord(c):X}' for c in before)
        + '\t'
        + ' '.join(f'{ord(c):X}' for c in after)
        for before, after in found
    )
    return _compiled(lines)


def _normalised(own: Any, text: str) -> str:
    """A text as the model reads it, its marks for blanks as blanks."""
    if not text:
        return ''
    if text.isspace():
        return ' '
    made = own.normalize(f'a{text}a').replace('\u2581', ' ')
    return made.strip()[1:-1]


def _compiled(lines: str) -> bytes:
    """The binary form of rules, which the trainer alone makes."""
    import pathlib
    import tempfile

    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / 'rules.tsv'
        path.write_text(lines + '\n', encoding='utf-8')
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(['a b c d e']),
            model_writer=model,
            model_type='char',
            vocab_size=16,
            hard_vocab_limit=False,
            normalization_rule_tsv=str(path),
            minloglevel=2,
        )
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto.normalizer_spec.precompiled_charsmap
