"""Byte-pair encoding of characters with marks for blanks: Gemma's and Llama's.

Blanks are written as the mark U+2581, as SentencePiece does it. Each character
that the vocabulary lacks becomes a token for each of its bytes. Ids and offsets
are those of `tokenizers`; the mark is among the bytes of a token.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from infoword_tf.text.normalizers import normalizer_of, steps_of
from infoword_tf.text.pairs import (
    PairEncoding,
    SplitWords,
    marked_first,
    words_at,
)
from infoword_tf.text.tokenizer import (
    PlainTexts,
    UnsupportedTokenizer,
    lookup_table,
)

MARK = '\u2581'
_NAMES = {f'<0x{byte:02X}>': byte for byte in range(256)}
_MARKING = {'type': 'Replace', 'pattern': {'String': ' '}, 'content': MARK}


class MarkedPairs(PairEncoding):
    """A tokenizer that merges the characters of words and of marks."""

    kind = 'marked'
    trims = False

    def __init__(
        self,
        described: Mapping[str, Any],
        where: str = 'the tokenizer',
        specials: Sequence[str] = (),
    ):
        """Reads a tokenizer.json; args as of `PairEncoding`."""
        model, steps = described['model'], steps_of(described.get('normalizer'))
        self._scheme, self._alone = _marks_of(
            steps, steps_of(described.get('pre_tokenizer')), where
        )
        others = [step for step in steps if not _marks(step)]
        self._normalizer = normalizer_of(others, where)
        missing = [name for name in _NAMES if name not in model['vocab']]
        if missing or not model.get('byte_fallback'):
            raise UnsupportedTokenizer(
                'marked_without_bytes',
                f'{where} lacks tokens for {len(missing)} of 256 bytes, or '
                'does not use them (byte_fallback); beside marks unknown '
                'characters must become bytes',
            )
        self._single = lookup_table(
            {x: i for x, i in model['vocab'].items() if len(x) == 1}, -1
        )
        self._bytes = tf.constant(
            [model['vocab'][name] for name in _NAMES], tf.int64
        )
        # Mostly no token has a mark behind another character, so that text
        # can be split at marks before it is merged.
        tokens = model['vocab'] if model.get('ignore_merges') else (
            ''.join(x.split(' ') if isinstance(x, str) else x)
            for x in model['merges']
        )  # fmt: skip
        self._whole_texts = any(MARK in x.lstrip(MARK) for x in tokens)
        lower_case = any(step['type'] == 'Lowercase' for step in others)
        super().__init__(described, where, lower_case, specials)

    def tokenize_between_masks(
        self, texts: tf.Tensor, inside: tf.Tensor
    ) -> tf.RaggedTensor:
        """Implements `TextTokenizer.tokenize_between_masks`."""
        texts = tf.convert_to_tensor(texts, tf.string)
        return self._ids(self._split_after(texts, inside, inside, False))

    def tokenize_between_added(
        self, plain: PlainTexts, with_offsets: bool
    ) -> tuple[tf.RaggedTensor, ...]:
        """Implements `TextTokenizer.tokenize_between_added`."""
        goes_on = plain.follows & ~plain.begins & (self._scheme == 'text')
        split = self._split_after(
            plain.texts, plain.follows, goes_on, with_offsets
        )
        if not with_offsets:
            return (self._ids(split),)
        return self._with_offsets(split, self.trims)

    def detokenize(self, ids: Iterable[int]) -> str:
        """Implements `TextTokenizer.detokenize`."""
        tokens = [self.vocabulary[i] for i in ids if i not in self.control_ids]
        words = (
            bytes([_NAMES[x]]) if x in _NAMES else x.encode() for x in tokens
        )
        text = b''.join(words).decode(errors='replace').replace(MARK, ' ')
        return text if self._scheme == 'never' else text.removeprefix(' ')

    def _word(self, token: str) -> bytes | None:
        return token.encode()

    def _length(self, token: str) -> int:
        return 1 if token in _NAMES else len(token.encode())

    def _ends(self, tokens: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        # Some tokens of public vocabularies are made by no merge.
        single = {x: i for i, x in enumerate(tokens) if len(x) == 1}
        first, last = (
            np.array([single.get(x[end:][:1], i) for i, x in enumerate(tokens)])
            for end in (0, -1)
        )
        return first, last

    def _symbols(self, words: tf.Tensor) -> tf.RaggedTensor:
        characters = tf.strings.unicode_split(words, 'UTF-8')
        flat = characters.values
        ids = self._single.lookup(flat)
        unknown = ids < 0
        counts = tf.where(unknown, tf.strings.length(flat), 1)
        text = tf.strings.reduce_join(tf.where(unknown, flat, '-'))
        code = tf.cast(tf.io.decode_raw(text, tf.uint8), tf.int32)
        ids = tf.repeat(ids, counts)
        ids = tf.where(ids < 0, tf.gather(self._bytes, code), ids)
        before = tf.cumsum(tf.pad(tf.cast(counts, tf.int64), [[1, 0]]))
        return tf.RaggedTensor.from_row_splits(
            ids, tf.gather(before, characters.row_splits), validate=False
        )

    def _split(self, strings: tf.Tensor, with_offsets: bool) -> SplitWords:
        no = tf.zeros_like(strings, tf.bool)
        return self._split_after(strings, no, no, with_offsets)

    def _split_after(
        self,
        strings: tf.Tensor,
        follows: tf.Tensor,
        goes_on: tf.Tensor,
        with_offsets: bool,
    ) -> SplitWords:
        """Implements `_split`; strings that follow others get no first mark
        by 'first', and those that go on with them none at all.
        """
        bare = None
        if self._scheme != 'never':
            bare = tf.not_equal(strings, '') & ~goes_on
            if self._scheme != 'text':
                marked = rf'[ {MARK}]\C*'
                bare &= ~tf.strings.regex_full_match(strings, marked)
            if self._scheme == 'first':
                bare &= ~follows
        characters = marked_first(
            self._normalizer, strings, bare, with_offsets, trims=False
        )
        mark = characters.codes == ord(MARK)
        mark |= characters.codes == ord(' ')
        codes = tf.where(mark, ord(MARK), characters.codes)
        begins = tf.scatter_nd(
            characters.splits[:, None],
            tf.ones_like(characters.splits),
            [characters.splits[-1] + 1],
        )
        begins = begins[:-1] > 0
        if self._alone:
            begins |= mark
        elif not self._whole_texts:
            begins |= mark & ~tf.concat([[False], mark[:-1]], 0)
        return words_at(begins, characters._replace(codes=codes))


def _marks(step: Mapping[str, Any]) -> bool:
    return step == _MARKING or step['type'] == 'Prepend'


def _marks_of(
    steps: list[Any], splits: list[Any], where: str
) -> tuple[str, bool]:
    """Reads which texts get a mark first, and whether each mark begins a word.

    Returns:
        'text' (all, whatever they begin with), 'always', 'first' (all without
        a mark, or only those that follow nothing) or 'never'.
    """
    marking = [step for step in steps if _marks(step)]
    if marking and marking[-1] == _MARKING:
        # After that no blank is left to split at.
        blanks = all(
            x['type'] == 'Split' and x['pattern'] == {'String': ' '}
            for x in splits
        )
        if blanks and len(marking) == 1:
            return 'never', False
        first = marking[0]
        if blanks and first == {'type': 'Prepend', 'prepend': MARK}:
            return 'text', False
    elif not marking and [x['type'] for x in splits] == ['Metaspace']:
        (space,) = splits
        if space.get('replacement', MARK) == MARK:
            prefix = space.get('add_prefix_space', True)
            usual = 'always' if prefix else 'never'
            return space.get('prepend_scheme', usual), space.get('split', True)
    kinds = [step['type'] for step in (*marking, *splits)]
    raise UnsupportedTokenizer(
        'marked_otherwise',
        f'{where} marks words by {" and ".join(kinds) or "nothing"}; known are '
        f'Replace of blanks by {MARK}, Prepend before it, and Metaspace',
    )
