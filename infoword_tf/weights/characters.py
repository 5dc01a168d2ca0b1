"""A table of characters for SentencePiece: what a tokenizer does before it.

XLNet's tokenizer changes a text before its model's own normalisation. Each
change is one of a character alone (but for two quotes in a row), so both
together are one table, which the model applies in the graph and maps offsets
through. Hangul is read as SentencePiece reads it, whole; the package tokenizers
takes its syllables apart, and then knows none of them.
"""

import io
import sys
import unicodedata
from typing import Any


def table(
    proto: Any, strip_accents: bool, lower_case: bool, quotes: bool
) -> bytes:
    """The `precompiled_charsmap` of the changes and then of the model's own
    table: marks stripped (NFKD), each character lower-cased, `` and '' as ".
    """
    import sentencepiece

    own = sentencepiece.SentencePieceProcessor(
        model_proto=proto.SerializeToString()
    )
    characters = [
        chr(number)
        for number in range(sys.maxunicode + 1)
        if not 0xD800 <= number < 0xE000  # halves of pairs
    ]

    def changed(text: str) -> str:
        if strip_accents:
            text = ''.join(
                c
                for c in unicodedata.normalize('NFKD', text)
                if not unicodedata.category(c).startswith('M')
            )
        # Character by character: no other one decides.
        return ''.join(map(str.lower, text)) if lower_case else text

    alone = {c: _normalised(own, changed(c)) for c in characters}
    found = [(c, made) for c, made in alone.items() if made != c]
    # Characters in several parts, which the model puts together.
    for character in characters:
        parts = unicodedata.normalize('NFD', character)
        made = _normalised(own, changed(parts)) if len(parts) > 1 else ''
        if len(parts) > 1 and made != ''.join(map(alone.get, parts)):
            found.append((parts, made))
    if quotes:
        found += [(pair, _normalised(own, '"')) for pair in ('``', "''")]
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
