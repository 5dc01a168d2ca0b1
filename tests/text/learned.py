"""Tokenizers: learned from real text, each once, and small ones by hand."""

import functools
from collections.abc import Iterator, Sequence
from pydoc_data import topics
from typing import Any

import numpy as np

from infoword_tf.text.sentencepiece import SentencePiece
from infoword_tf.text.tokenizer import TextTokenizer
from infoword_tf.text.tokenizers import TOKENIZERS
from infoword_tf.text.wholewords import WholeWords
from infoword_tf.text.wordpiece import WordPieceTokenizer

SPECIALS = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
# Half of Python's manual; words are parted by single spaces.
TEXTS = [' '.join(text.split()) for text in [*topics.topics.values()][::2]]
# Where the expression of the words asks for more than a look.
HARD = [
    "it's we're I've I'm you'll he'd don't 'tis 'S 'RE", "''s '''s 's's",
    "a's'll'vex 're'd", " 's  't", "\u00a0's \t'll", "'", "'r", "'re", "x'v",
    "é's 1's !'s s's", '  a', 'a  ', ' \n a', '\n\n a\n\n', 'a\t b \tc',
    '\u3000\u3000字 \u2003x', ' 12 ab!? 3rd x²½Ⅷ', '...  \r\n ...', '   ',
    'aaaaaaa aaaa aaa', 'ababab', '', ' ', 'a\x00b', '\ufeff\u200b',
]  # fmt: skip
# Pieces of those that can be learned; None: every word is one.
LEARNED = {
    'wordpiece': 2000,
    'sentencepiece': 2000,
    'bytes': 600,
    'words': None,
}


@functools.cache
def learned(kind: str, lower_case: bool = True) -> TextTokenizer:
    """One of LEARNED."""
    return TOKENIZERS[kind].learn(TEXTS, LEARNED[kind], lower_case)


PIECES = (
    '▁', '▁un', 'want', 'ed', ',', 'run', 'ning', '▁a', 'a', 'b', '▁the',
    '▁b', 'cafe', 'é', '.', '(', ')', 'c', '▁c', 'mask', '[', ']', '1', 'i',
    '▁f',
)  # fmt: skip
XLNET = ('<unk>', '<s>', '</s>', '<cls>', '<sep>', '<pad>', '<mask>')


def model(
    specials=SPECIALS, types=None, pieces=PIECES, has_bytes=False, **trainer
):
    """A SentencePiece model in which the fewest pieces win."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(
        learned('sentencepiece').model
    )
    del proto.pieces[:]
    for name in specials:
        kind = proto.SentencePiece.CONTROL
        if name in ('[UNK]', '<unk>'):
            kind = proto.SentencePiece.UNKNOWN
        proto.pieces.add(
            piece=name, score=0, type=(types or {}).get(name, kind)
        )
    for piece in pieces:
        proto.pieces.add(piece=piece, score=-1)
    if has_bytes:
        for byte in range(256):
            name = f'<0x{byte:02X}>'
            proto.pieces.add(piece=name, type=proto.SentencePiece.BYTE)
        trainer['byte_fallback'] = True
    for name, value in trainer.items():
        setattr(proto.trainer_spec, name, value)
    return proto.SerializeToString()


# Tokenizers whose tokens can be told by hand.
SMALL = {
    'wordpiece': lambda: WordPieceTokenizer([
        *SPECIALS, 'want', '##want', '##ed', 'wa', 'un', 'runn', '##ing', ',',
        'a', 'b', 'cafe', '中', '人', 'mask', '[', ']', '.', '(', ')', 'ab',
    ]),
    'wordpiece with case': lambda: WordPieceTokenizer([
        *SPECIALS, 'UN', '##want', '##éd', ',', 'runn', '##ing', 'Café', 'cafe',
    ], lower_case=False),
    'wordpiece, specials anywhere': lambda: WordPieceTokenizer(
        ['a', '[MASK]', '[SEP]', 'b', '[UNK]', '[CLS]', '[PAD]']
    ),
    'sentencepiece': lambda: SentencePiece(model()),
    'sentencepiece with bytes': lambda: SentencePiece(model(has_bytes=True)),
    'sentencepiece of XLNet': lambda: SentencePiece(model(XLNET)),
    'words': lambda: WholeWords(
        [*SPECIALS, 'the', 'The', '.', 'café', '@-@', 'a,']
    ),
    'words without case': lambda: WholeWords(
        [*SPECIALS, 'the', 'émil', 'σας'], lower_case=True
    ),
    'bytes': lambda: learned('bytes', lower_case=False),
}  # fmt: skip
small = functools.cache(lambda name: SMALL[name]())


def places_in_bytes(
    text: str, places: Sequence[tuple[int, int]]
) -> np.ndarray:
    """Places in characters, as bytes of the text: [n, 2]."""
    begins = np.cumsum([0, *(len(c.encode()) for c in text)])
    return begins[np.array(places, int).reshape(-1, 2)]


def encoded(ours: TextTokenizer, theirs: Any, texts: Sequence[str]) -> Iterator:
    """Yields a text, ids and places in bytes [n, 2] of ours, and of theirs."""
    ids, *places = ours.tokenize_with_offsets(texts)
    np.testing.assert_array_equal(ours.tokenize(texts).values, ids.values)
    places = np.stack([part.values for part in places], axis=1)
    values, splits = ids.values.numpy(), ids.row_splits.numpy()
    others = theirs.encode_batch(texts, add_special_tokens=False)
    for i, (text, other) in enumerate(zip(texts, others, strict=True)):
        row = slice(splits[i], splits[i + 1])
        yield (
            text, values[row].tolist(), places[row], other.ids,
            places_in_bytes(text, other.offsets),
        )  # fmt: skip


def words_of(tokenizer: TextTokenizer, *strings: str) -> list[str]:
    """The pieces of each word, joined: word starts made readable."""
    actual = tokenizer.tokenize_flat([string.encode() for string in strings])
    words: list[list[str]] = []
    for i, start in zip(actual.ids, actual.word_starts, strict=True):
        if start:
            words.append([])
        words[-1].append(tokenizer.vocabulary[i])
    return [' '.join(word) for word in words]
