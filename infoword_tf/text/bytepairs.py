r"""Byte-level byte-pair encoding: GPT-2's (Radford et al. 2019) and later ones.

Text is split into words by kinds of characters, each with the blank before it;
the bytes of a word are the symbols that merges begin with, so nothing is
unknown. Ids and offsets are those of `tokenizers`, but the text of a special
token is text like any other, and offsets count bytes.

A word matches an expression: GPT-2's, or one of later models, the keys of
SPLITS. TensorFlow has no operation with such lookaheads, and needs none: the
kinds of a character, of two before it and of one after it tell whether a word
begins there; only ends of lines and long numbers need more.

Glossary of shapes: C characters of all strings together, W words.
"""

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import tensorflow as tf

from infoword_tf.text.normalizers import Normalizer, normalizer_of, steps_of
from infoword_tf.text.pairs import (
    PairEncoding,
    SplitWords,
    UnsupportedTokenizer,
    marked_first,
    words_at,
)
from infoword_tf.text.tokenizer import (
    MASK,
    SPECIALS,
    no_room,
    no_text,
    sample_texts,
)

# Kinds of characters; _EDGE is beyond the ends of a string.
(
    _OTHER, _LETTER, _NUMBER, _WHITE, _BLANK, _APOSTROPHE, _LINE_END, _EDGE,
) = range(8)  # fmt: skip
_KINDS = 8
_BLANKS, _SIGNS = (_WHITE, _BLANK, _LINE_END), (_OTHER, _APOSTROPHE)
# A character goes on with a word, begins one, or is an apostrophe that begins
# one unless it belongs to a contraction.
_GOES_ON, _BEGINS, _MAY_CONTRACT = range(3)
_SHORT = [ord(c) for c in 'stmd']
_LONG = tuple((ord(a), ord(b)) for a, b in ('re', 've', 'll'))
# Two ways to say that words are what matches.
_WAYS = ('Isolated', False), ('Removed', True)
_LONG_S = 0x17F  # lower case of S where case does not matter
# The byte of each character that vocabularies write bytes as: Latin-1 where
# that prints, else the characters from U+0100 on.
_PRINTED = *range(33, 127), *range(161, 173), *range(174, 256)
_UNPRINTED = sorted({*range(256)} - {*_PRINTED})
_BYTES = {
    **{chr(byte): byte for byte in _PRINTED},
    **{chr(256 + i): byte for i, byte in enumerate(_UNPRINTED)},
}


class Split(NamedTuple):
    """Rules by which text is split into words.

    Attributes:
        letters: the class of letters, as `tokenizers` writes it.
        digits: the most of a word; None: any number.
        alone: whether texts end before numbers and begin after them.
        later: the rules of models after GPT-2: any one character but a line
            end stands before letters, nothing before numbers, line ends are
            apart from other white space or follow signs, and contractions have
            any case.
    """

    letters: str = r'\p{L}'
    digits: int | None = None
    later: bool = False
    alone: bool = False


_GPT_2 = Split()
_ENDS = r'\s*[\r\n]+|\s+(?!\S)|\s+'
_ANY_CASE = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
# By expression, as tokenizer.json has it.
SPLITS = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
    r'|\s+(?!\S)|\s+': _GPT_2,
    # GPT-4 and Llama 3, in two spellings.
    rf'{_ANY_CASE}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}'
    rf'| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_ENDS}': Split(digits=3, later=True),
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r'| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+': Split(
        digits=3, later=True
    ),
    # Qwen 2 and 3; and 3.5.
    rf'{_ANY_CASE}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}'
    rf'| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_ENDS}': Split(digits=1, later=True),
    rf'{_ANY_CASE}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}'
    rf'| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_ENDS}': Split(
        r'[\p{L}\p{M}]', 1, True
    ),
}


class BytePairs(PairEncoding):
    """A tokenizer that merges bytes."""

    kind = 'bytes'

    def __init__(
        self,
        described: Mapping[str, Any],
        where: str = 'the tokenizer',
        specials: Sequence[str] = (),
    ):
        """Reads a tokenizer.json; args as of `PairEncoding`."""
        steps = steps_of(described.get('normalizer'))
        self._normalizer = normalizer_of(steps, where)
        self._split_rules, self._marks_first = _split_of(
            described.get('pre_tokenizer'), where
        )
        post = described.get('post_processor')
        # Without `trim_offsets` the blanks of a token are in its offsets.
        self.trims = post is None or any(
            step.get('trim_offsets', False)
            for step in post.get('processors') or [post]
        )
        self._bytes = tf.constant(_symbols_of(described, where), tf.int64)
        # Some vocabularies have added tokens for several blanks, which stand
        # between words and are never merged.
        self._blank_runs = _blank_runs(described, where)
        self._kinds = tf.constant(_kinds(self._split_rules.letters))
        self._word_starts = tf.constant(_word_starts(self._split_rules.later))
        lower_case = any(step['type'] == 'Lowercase' for step in steps)
        super().__init__(described, where, lower_case, specials)

    @classmethod
    def learn(
        cls, texts: Iterable[str], size: int, lower_case: bool = True
    ) -> Self:
        """Implements `TextTokenizer.learn`; accents stay."""
        return cls(learn(texts, size, lower_case), 'the learned tokenizer')

    @property
    def normalizer(self) -> Normalizer:
        """The `Normalizer` of texts."""
        return self._normalizer

    def tokenize_between_masks(
        self, texts: tf.Tensor, inside: tf.Tensor
    ) -> tf.RaggedTensor:
        """Implements `TextTokenizer.tokenize_between_masks`.

        The blank before [MASK] belongs to it, as to the word that it hides.
        """
        before_mask = tf.concat([inside[1:], [False]], 0)
        texts = tf.where(
            before_mask,
            tf.strings.regex_replace(texts, r'[\s\p{Z}]+$', ''),
            texts,
        )
        return self.tokenize(texts)

    def detokenize(self, ids: Iterable[int]) -> str:
        """Implements `TextTokenizer.detokenize`."""
        words = (self._word(self.vocabulary[i]) for i in ids
                 if i not in self.control_ids)  # fmt: skip
        return b''.join(word or b'' for word in words).decode(errors='replace')

    def _more_words(self) -> dict[bytes, int]:
        return {b' ' * count: number for count, number in self._blank_runs}

    def _word(self, token: str) -> bytes | None:
        try:
            return bytes(_BYTES[character] for character in token)
        except KeyError:
            return None

    def _length(self, token: str) -> int:
        return len(token)

    def _symbols(self, words: tf.Tensor) -> tf.RaggedTensor:
        text = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)
        lengths = tf.strings.length(words, unit='BYTE')
        return tf.RaggedTensor.from_row_lengths(
            tf.gather(self._bytes, tf.cast(text, tf.int32)),
            tf.cast(lengths, tf.int64),
            validate=False,
        )

    def _split(self, strings: tf.Tensor, with_offsets: bool) -> SplitWords:
        bare = None
        if self._marks_first:
            bare = ~tf.strings.regex_full_match(strings, '(?s)( .*)?')
        characters = marked_first(
            self._normalizer,
            strings,
            bare,
            with_offsets=with_offsets,
            trims=self.trims,
        )
        begins = self._begins(characters.codes, characters.splits)
        return words_at(begins, characters)

    def _begins(self, codes: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
        """Marks the characters that begin words, [C] bool."""
        size = tf.size(codes)
        # Where strings begin, and where the last one ends.
        edge = tf.scatter_nd(
            splits[:, None], tf.ones_like(splits), [splits[-1] + 1]
        )
        edge = edge > 0  # [C + 1]
        kind = tf.gather(
            self._kinds, tf.minimum(codes, tf.size(self._kinds) - 1)
        )
        kind = tf.cast(kind, tf.int32)
        if self._blank_runs:
            place = self._place_in_run(codes, edge)
            kind = tf.where(place >= 0, _EDGE, kind)
        number = kind == _NUMBER
        if self._split_rules.alone:
            kind = tf.where(number, _EDGE, kind)
        around = tf.pad(kind, [[2, 1]])
        first, last = edge[:-1], edge[1:]
        before = tf.where(first, _EDGE, around[1:-2])
        second = tf.pad(first, [[1, 0]], constant_values=True)[:-1]
        second = tf.where(first | second, _EDGE, around[:-3])
        after = tf.where(last, _EDGE, around[3:])
        window = (second * _KINDS + before) * _KINDS + kind
        starts = tf.gather(self._word_starts, window * _KINDS + after)
        apostrophes = tf.where(starts == _MAY_CONTRACT)
        starts = tf.cond(
            tf.size(apostrophes) > 0,
            lambda: _contracted(
                starts,
                apostrophes[:, 0],
                codes,
                edge,
                any_case=self._split_rules.later,
            )[:size],
            lambda: starts,
        )
        begins = starts > _GOES_ON
        if digits := self._split_rules.digits:
            since = _since(number & (before != _NUMBER))
            begins |= number & (since % digits == 0)
        if self._split_rules.later:
            begins = tf.cond(
                tf.reduce_any(kind == _LINE_END),
                lambda: _at_line_ends(begins, kind, before),
                lambda: begins,
            )
        if self._blank_runs:
            begins = tf.where(place >= 0, place == 0, begins)
        return begins

    def _place_in_run(self, codes: tf.Tensor, edge: tf.Tensor) -> tf.Tensor:
        """Counts the blanks before each in a token of several, [C] int32; -1 of
        other characters. Of a run the longest token is taken from the left.
        """
        longest = self._blank_runs[-1][0]
        blank = codes == ord(' ')
        before = tf.concat([[False], blank], 0)[:-1]
        begins = blank & (edge[:-1] | ~before)
        number = tf.cumsum(tf.cast(begins, tf.int32))  # of the run, from 1
        length = tf.math.unsorted_segment_sum(
            tf.cast(blank, tf.int32), number, tf.reduce_max(number) + 1
        )
        length = tf.gather(length, number)
        place = _since(begins)
        rest = length % longest  # one blank is no such token, but text
        inside = blank & ((place < length - rest) | (rest > 1))
        return tf.where(inside, place % longest, -1)


def _since(opens: tf.Tensor) -> tf.Tensor:
    """Counts the characters since the last one that opens, [C] int32."""
    starts = tf.pad(tf.cast(tf.where(opens), tf.int32)[:, 0], [[1, 0]])
    number = tf.cumsum(tf.cast(opens, tf.int32))
    return tf.range(tf.size(opens)) - tf.gather(starts, number)


def _any_of(kind: tf.Tensor, kinds: Iterable[int]) -> tf.Tensor:
    return functools.reduce(tf.logical_or, (kind == x for x in kinds))


def _at_line_ends(
    begins: tf.Tensor, kind: tf.Tensor, before: tf.Tensor
) -> tf.Tensor:
    """Changes where words begin in white space with line ends, all [C].

    Line ends after a sign belong to it. What then follows up to the last line
    end is a word, and white space after it another.
    """
    white, end = _any_of(kind, _BLANKS), kind == _LINE_END
    opens = white & ~_any_of(before, _BLANKS)
    number = tf.cumsum(tf.cast(opens, tf.int32))  # of the white space, from 1
    place = tf.range(tf.size(kind))
    last = tf.math.unsorted_segment_max(
        tf.where(end, place, -1), number, tf.reduce_max(number) + 1
    )
    last = tf.gather(last, number)
    first = end & (before != _LINE_END)
    after_sign = first & _any_of(before, _SIGNS)
    of_sign = tf.gather(after_sign, place - _since(first)) & end
    inside = tf.concat([[False], of_sign[:-1]], 0) & ~end | opens & ~of_sign
    begins = tf.where(white & (place <= last), inside, begins)
    return begins | white & (place == last + 1)


def _contracted(
    starts: tf.Tensor,
    apostrophes: tf.Tensor,
    codes: tf.Tensor,
    edge: tf.Tensor,
    any_case: bool,
) -> tf.Tensor:
    """Makes words of contractions: [C + 3]; apostrophes are places, int64."""
    codes = tf.pad(codes, [[0, 2]])
    if any_case:
        upper = (codes >= ord('A')) & (codes <= ord('Z'))
        codes = tf.where(codes == _LONG_S, ord('s'), codes)
        codes = tf.where(upper, codes + (ord('a') - ord('A')), codes)
    edge = tf.concat([edge, [True]], 0)
    second, third = (tf.gather(codes, apostrophes + i) for i in (1, 2))
    short = tf.reduce_any(second[:, None] == _SHORT, 1)
    short &= ~tf.gather(edge, apostrophes + 1)
    long = functools.reduce(
        tf.logical_or, ((second == a) & (third == b) for a, b in _LONG)
    )
    long &= ~tf.gather(edge, apostrophes + 1) & ~tf.gather(
        edge, apostrophes + 2
    )
    starts = tf.pad(starts, [[0, 3]])
    one = tf.boolean_mask(apostrophes, short)
    two = tf.boolean_mask(apostrophes, long)
    inside = tf.concat([one + 1, two + 1, two + 2], 0)
    after = tf.concat([one + 2, two + 3], 0)
    for places, value in (inside, _GOES_ON), (after, _BEGINS):
        starts = tf.tensor_scatter_nd_update(
            starts, places[:, None], tf.fill(tf.shape(places), value)
        )
    return starts


@functools.cache
def _kinds(letters: str) -> np.ndarray:
    """Returns the kind of each code point, uint8; beyond, all are _OTHER."""
    import tokenizers
    from tokenizers import pre_tokenizers

    # No surrogates; neither letters, numbers nor blanks beyond.
    codes = np.array([*range(0xD800), *range(0xE000, 0x40000)])
    text = ''.join(map(chr, codes))
    kinds = np.zeros(0x40000, np.uint8)
    for kind, name in (
        (_LETTER, f'{letters}+'), (_NUMBER, r'\p{N}+'), (_WHITE, r'\s+')
    ):  # fmt: skip
        # `tokenizers` has tables of Unicode that Python's may differ from.
        splitter = pre_tokenizers.Split(tokenizers.Regex(name), 'removed')
        of_kind = np.ones(len(codes), bool)
        for _, (begin, end) in splitter.pre_tokenize_str(text):
            of_kind[begin:end] = False
        kinds[codes[of_kind]] = kind
    kinds[ord(' ')], kinds[ord("'")] = _BLANK, _APOSTROPHE
    kinds[[ord('\r'), ord('\n')]] = _LINE_END
    return kinds[: np.flatnonzero(kinds)[-1] + 2]


@functools.cache
def _word_starts(later: bool) -> np.ndarray:
    """Tells whether a word begins, by kinds: of two characters before, of the
    character, after.

    Returns:
        [_KINDS ** 4] int32 of _GOES_ON, _BEGINS and _MAY_CONTRACT.
    """
    starts = np.zeros(_KINDS**4, np.int32)
    for i, (second, before, kind, after) in enumerate(
        itertools.product(range(_KINDS), repeat=4)
    ):
        alike = any(
            {before, kind} <= {*kinds}
            for kinds in (_BLANKS, _SIGNS, [_LETTER], [_NUMBER])
        )
        if kind in _BLANKS:
            # The last blank of several belongs to the word that follows.
            begins = not alike or after not in (*_BLANKS, _EDGE)
        elif not later or kind in _SIGNS:
            begins = before != _BLANK and not alike
        elif kind == _LETTER and before in _SIGNS:  # one sign alone joins them
            begins = second in (*_SIGNS, _BLANK)
        else:
            joins = kind == _LETTER and before in (_WHITE, _BLANK)
            begins = not alike and not joins
        if begins:
            contracts = kind == _APOSTROPHE
            starts[i] = _MAY_CONTRACT if contracts else _BEGINS
    return starts


def _split_of(
    described: Mapping[str, Any] | None, where: str
) -> tuple[Split, bool]:
    """Reads a pre_tokenizer: rules, and whether a blank stands first."""
    steps = steps_of(described)
    kinds = [step['type'] for step in steps]
    last = steps[-1] if steps else {}
    prefix = bool(last.get('add_prefix_space', True))
    if kinds == ['ByteLevel'] and last.get('use_regex', True):
        return _GPT_2, prefix
    if kinds == ['Digits', 'ByteLevel'] and last.get('use_regex', True):
        if steps[0].get('individual_digits') and not prefix:
            return Split(digits=1, alone=True), False
        kinds[0] = 'Digits of several, or with a blank first,'
    if kinds == ['Split', 'ByteLevel'] and not last.get('use_regex', True):
        pattern = steps[0].get('pattern', {}).get('Regex')
        way = steps[0].get('behavior'), bool(steps[0].get('invert'))
        if pattern in SPLITS and way in _WAYS and not prefix:
            return SPLITS[pattern], False
        kinds[0] = f'Split by {pattern!r} ({way[0]})'
    raise UnsupportedTokenizer(
        'bytes_pre_tokenizer',
        f'{where} splits words by {" and ".join(kinds) or "nothing"}; beside '
        'bytes only ByteLevel with its own expression can be kept, also after '
        'Digits, and the expressions of GPT-2, GPT-4, Llama 3 and Qwen before '
        'it',
    )


def _symbols_of(described: Mapping[str, Any], where: str) -> list[int]:
    """Lists the tokens of the 256 bytes."""
    index = described['model']['vocab']
    by_byte = sorted(_BYTES, key=_BYTES.__getitem__)
    missing = [character for character in by_byte if character not in index]
    if missing:
        raise UnsupportedTokenizer(
            'bytes_without_tokens',
            f'{where} lacks tokens for {len(missing)} of 256 bytes, the first '
            f'of them {missing[0]!r}; it is of no byte-level encoding',
        )
    return [index[character] for character in by_byte]


def _blank_runs(
    described: Mapping[str, Any], where: str
) -> tuple[tuple[int, int], ...]:
    """Lists added tokens of blanks alone: how many, from 2, and the id."""
    runs = {
        len(token['content']): token['id']
        for token in described.get('added_tokens') or ()
        if token['content'] and not token['content'].strip(' ')
    }
    if sorted(runs) != list(range(2, len(runs) + 2)):
        raise UnsupportedTokenizer(
            'wrong_blank_tokens',
            f'{where} has added tokens of {sorted(runs)} blanks; only 2 and '
            'all numbers from there on can be kept',
        )
    return tuple(sorted(runs.items()))


def learn(
    texts: Iterable[str], size: int, lower_case: bool = False
) -> dict[str, Any]:
    """Learns a tokenizer.json; args and errors as of `TextTokenizer.learn`.

    Specials come first, then bytes, then merges, the commonest first.
    """
    import json

    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    specials = SPECIALS
    if size < len(specials) + len(_BYTES):
        raise no_room(
            size,
            f'for {len(specials)} special tokens and {len(_BYTES)} bytes; a '
            'few thousand is usual',
        )
    sampled = sorted(sample_texts(texts))
    if not any(text.strip() for text in sampled):
        raise no_text()
    tokenizer = tokenizers.Tokenizer(models.BPE())
    if lower_case:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(
        sampled,
        trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=[
                tokenizers.AddedToken(
                    # Masking a word hides the blank before it.
                    token,
                    special=True,
                    lstrip=token == MASK,
                )
                for token in specials
            ],
            initial_alphabet=sorted(_BYTES, key=_BYTES.__getitem__),
            show_progress=False,
        ),
    )
    return json.loads(tokenizer.to_str())
