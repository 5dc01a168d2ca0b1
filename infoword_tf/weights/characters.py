"""The table of characters that includes what XLNet does before SentencePiece.

XLNet's tokenizer changes a text before the model normalises it, each character
by itself (but for two quotes in a row). So both steps are one table, which the
model applies in the graph, with offsets. Hangul is read as SentencePiece reads
it, whole; the library tokenizers takes syllables apart and then knows none.
"""

import io
import sys
import unicodedata
from typing import Any


def table(
    proto: Any, strip_accents: bool, lower_case: bool, quotes: bool
) -> bytes:
    """Makes the `precompiled_charsmap` of changes before a model's own table:
    marks stripped (NFKD), characters lower-cased, `` and '' as ".
    """
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(
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

    alone = {c: _normalised(processor, changed(c)) for c in characters}
    rules = [(c, form) for c, form in alone.items() if form != c]
    # Letters with accents of their own, which the model composes.
    for character in characters:
        decomposed = unicodedata.normalize('NFD', character)
        if len(decomposed) > 1:
            form = _normalised(processor, changed(decomposed))
            if form != ''.join(map(alone.get, decomposed)):
                rules.append((decomposed, form))
    if quotes:
        rules += [(pair, _normalised(processor, '"')) for pair in ('``', "''")]
    lines = '\n'.join(
        '\t'.join(' '.join(f'{ord(c):X}' for c in side) for side in rule)
        for rule in rules
    )
    return _compiled(lines)


def _normalised(processor: Any, text: str) -> str:
    """Normalises a text as the model does, with blanks for marks."""
    if not text:
        return ''
    if text.isspace():
        return ' '
    normal = processor.normalize(f'a{text}a').replace('\u2581', ' ')
    return normal.strip()[1:-1]


def _compiled(lines: str) -> bytes:
    """Compiles rules to the binary form, which only the trainer can do."""
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
