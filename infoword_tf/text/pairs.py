"""Byte-pair encoding: words to tokens by merges, of characters or of bytes.

The file of such a tokenizer is a tokenizer.json of the library `tokenizers`,
which reads what is learned here, and the other way round.

Glossary of shapes: C characters of all strings together, n tokens of all
strings together, W words.
"""

import abc
import functools
import hashlib
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import tensorflow as tf

from infoword_tf import errors, files
from infoword_tf.text.merges import Merges
from infoword_tf.text.normalizers import (
    Characters,
    Normalizer,
    characters_of,
    utf8_widths,
)
from infoword_tf.text.tokenizer import (
    CLS,
    MASK,
    PAD,
    SEP,
    UNK,
    FlatTokens,
    TextTokenizer,
    UnsupportedTokenizer,
    lookup_table,
    ragged,
    string_of,
    with_word_starts,
)

# Names of the special tokens in public vocabularies, the best first. Some
# vocabularies have one token for all of them: it ends a text.
_END = '<|endoftext|>', '<|end_of_text|>', '</s>', '<unk>'
NAMES = {
    PAD: (
        '[PAD]', '<pad>', '<|pad|>', '<|finetune_right_pad_id|>', *_END
    ),
    UNK: ('[UNK]', '<unk>', *_END),
    CLS: ('[CLS]', '<s>', '<bos>', '<|begin_of_text|>', *_END),
    SEP: ('[SEP]', '</s>', '<eos>', '<|end_of_text|>', *_END),
    MASK: ('[MASK]', '<mask>', '<|mask|>', *_END),
}  # fmt: skip


class SplitWords(NamedTuple):
    """Words of several strings.

    Attributes:
        words: [W] strings.
        splits: [B + 1] int64: where each string begins in `words`.
        first: [W] int64: the number of each word's first character.
        starts: [C] int64: the first byte of each character in its string.
        ends: [C] int64: the byte after the character.
        widths: [C] int64: of a character, in units of a token's length.
    """

    words: tf.Tensor
    splits: tf.Tensor
    first: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    widths: tf.Tensor


def words_at(begins: tf.Tensor, characters: Characters) -> SplitWords:
    """Makes words of characters where `begins` [C] is true; widths are bytes
    of UTF-8.
    """
    codes, splits, starts, ends = characters
    first = tf.where(begins)[:, 0]
    words = tf.raw_ops.UnicodeEncode(
        input_values=codes,
        input_splits=tf.concat([first, splits[-1:]], 0),
        output_encoding='UTF-8',
    )
    before = tf.cumsum(tf.pad(tf.cast(begins, tf.int64), [[1, 0]]))
    return SplitWords(
        words=words,
        splits=tf.gather(before, splits),
        first=first,
        starts=starts,
        ends=ends,
        widths=utf8_widths(codes),
    )


def marked_first(
    normalizer: Normalizer,
    strings: tf.Tensor,
    bare: tf.Tensor | None,
    with_offsets: bool,
    trims: bool,
) -> Characters:
    """Normalises strings [B], with a blank before each bare one.

    Args:
        bare: [B] bool; None: no string is.
        trims: whether such a blank has no bytes; else it has those of the
            character that follows.
    """
    if bare is None:
        return characters_of(normalizer, strings, with_offsets)
    strings = tf.where(bare, tf.strings.join([' ', strings]), strings)
    codes, splits, starts, ends = characters_of(
        normalizer, strings, with_offsets
    )
    if with_offsets:
        added = tf.gather(tf.cast(bare, tf.int64), string_of(splits))
        starts, ends = tf.maximum(starts - added, 0), ends - added
        if not trims:
            ends = tf.where(ends > 0, ends, tf.concat([ends[1:], [0]], 0))
    return Characters(codes, splits, starts, ends)


class PairEncoding(TextTokenizer):
    """A tokenizer that merges the symbols of a word to tokens.

    Attributes:
        json: the text of its tokenizer.json.
    """

    file = 'tokenizer.json'
    as_written = True

    def __init__(
        self,
        described: Mapping[str, Any],
        where: str,
        lower_case: bool,
        specials: Sequence[str] = (),
    ):
        """Reads a tokenizer.json.

        Args:
            described: its content.
            where: the file, for errors.
            lower_case: whether it folds case.
            specials: names of the special tokens, in the order of NAMES; empty:
                those of NAMES.
        """
        self.json = json.dumps(described, ensure_ascii=False)
        self._names = tuple(specials)
        tokens, merges = _vocabulary_and_merges(described, where)
        index = {token: i for i, token in enumerate(tokens)}
        known = [[name] for name in specials] or NAMES.values()
        numbers = [
            next((index[name] for name in names if name in index), None)
            for names in known
        ]
        ids = [number for number in numbers if number is not None]
        if len(ids) < len(numbers):
            raise UnsupportedTokenizer(
                'no_end_token',
                f'{where} has no token that ends a text, such as [SEP], </s> '
                f'or {_END[0]}; name one in tokenizer_config.json (eos_token)',
            )
        model = described['model']
        unknown = index.get(model.get('unk_token'))
        added = {token['id'] for token in described.get('added_tokens') or ()}
        super().__init__(
            tokens,
            ids,
            sorted(added.union(ids) - {unknown}),
            lower_case,
        )
        self._merges = Merges(merges, len(tokens), self._ends(tokens))
        self._whole = self._whole_words(index, model)
        self._lengths = tf.constant(
            [self._length(token) for token in tokens], tf.int64
        )

    @classmethod
    def learn(
        cls, texts: Iterable[str], size: int, lower_case: bool = True
    ) -> Self:
        """Raises ValueError: most kinds are read, never learned."""
        raise errors.InputError(
            'pairs_never_learned',
            f'a tokenizer of the kind {cls.kind} is read from public models '
            'alone; learn --tokenizer=bytes instead',
        )

    @abc.abstractmethod
    def _word(self, token: str) -> bytes | None:
        """Returns the word that is one token, `token`; None: no word is."""

    @abc.abstractmethod
    def _length(self, token: str) -> int:
        """Returns the length of a token in units of `SplitWords.widths`."""

    @abc.abstractmethod
    def _symbols(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Maps words [W] to symbols, ids [W, symbols] int64, unmerged."""

    @abc.abstractmethod
    def _split(self, strings: tf.Tensor, with_offsets: bool) -> SplitWords:
        """Splits strings [B] into words; without `with_offsets` only the
        fields `words` and `splits` count.
        """

    def _ends(
        self, tokens: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Returns `ends` of `Merges`; None: as merges say."""
        return None

    def _whole_words(
        self, index: Mapping[str, int], model: Mapping[str, Any]
    ) -> tf.lookup.StaticHashTable:
        """Collects words that are one token: most of a text needs no merge."""
        words, never = {}, set(self.control_ids)
        for token, number in index.items():
            if number not in never and token:
                if (word := self._word(token)) is not None:
                    words[word] = number
        if words and not model.get('ignore_merges'):
            # Merges may split the text of a token otherwise.
            ids, splits = self._merged(tf.constant(list(words), tf.string))
            first = tf.gather(ids, splits[:-1])
            alone = tf.where(splits[1:] - splits[:-1] == 1, first, -1).numpy()
            words = {
                word: number
                for (word, number), merged in zip(
                    words.items(), alone, strict=True
                )
                if number == merged
            }
        words |= {b'': -1, **self._more_words()}  # a table must hold something
        return lookup_table(words, -1)

    def _more_words(self) -> dict[bytes, int]:
        """Returns words that are tokens without a merge."""
        return {}

    @classmethod
    def read(
        cls, path: str | pathlib.Path, lower_case: bool = True, **options: Any
    ) -> Self:
        """Reads a tokenizer.json, which says whether case is folded."""
        del lower_case
        return cls(read_tokenizer_json(path), str(path), **options)

    def write(self, path: str | pathlib.Path) -> None:
        """Writes the tokenizer.json."""
        pathlib.Path(path).write_text(self.json, encoding='utf-8')

    @property
    def options(self) -> dict[str, Any]:
        """Names of special tokens that NAMES lacks."""
        return {'specials': [*self._names]} if self._names else {}

    @functools.cached_property
    def identity(self) -> str:
        """A digest of the tokenizer.json, and names of special tokens."""
        text = json.dumps(json.loads(self.json), sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        return ' '.join([self.kind, digest, *self._names])

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Implements `TextTokenizer.tokenize`."""
        return self._ids(
            self._split(tf.convert_to_tensor(strings, tf.string), False)
        )

    def _ids(self, split: SplitWords) -> tf.RaggedTensor:
        ids, splits = self._tokens(split.words)
        return ragged(tf.cast(ids, tf.int32), tf.gather(splits, split.splits))

    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Implements `TextTokenizer.tokenize_with_offsets`.

        A token within a character has all of the character's bytes. The blank
        before a word is among the bytes of its first token unless `trims`.
        """
        strings = tf.convert_to_tensor(strings, tf.string)
        return self._with_offsets(self._split(strings, True), self.trims)

    def tokenize_flat(self, strings: Sequence[bytes]) -> FlatTokens:
        """Implements `TextTokenizer.tokenize_flat`."""
        tokens, starts, _ = self._with_offsets(
            self._split(tf.constant(strings, tf.string), True), trimmed=False
        )
        return with_word_starts(strings, tokens, starts.values.numpy())

    @functools.cached_property
    def _blanks(self) -> tf.Tensor:
        """The number of blanks at the beginning of each token, [V] int64."""
        with tf.init_scope():
            words = (self._word(token) or b'' for token in self.vocabulary)
            return tf.constant(
                [len(word) - len(word.lstrip(b' ')) for word in words], tf.int64
            )

    def _with_offsets(
        self, split: SplitWords, trimmed: bool
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Implements `tokenize_with_offsets`; `trimmed`: without the blanks
        that tokens begin with.
        """
        ids, splits = self._tokens(split.words)
        # Tokens of a word tile it.
        lengths = tf.gather(self._lengths, ids)  # [n]
        within = tf.cumsum(lengths, exclusive=True)
        before = tf.cumsum(split.widths, exclusive=True)  # [C]
        begin = tf.gather(before, split.first) - tf.gather(within, splits[:-1])
        starts = within + tf.gather(begin, string_of(splits))
        first = tf.searchsorted(before, starts, 'right', tf.int64) - 1
        last = starts + lengths - 1
        last = tf.searchsorted(before, last, 'right', tf.int64) - 1
        begin = tf.gather(split.starts, first)
        end = tf.gather(split.ends, last)
        if trimmed:
            first += tf.gather(self._blanks, ids)
            begin = tf.gather(split.starts, tf.minimum(first, last))
            begin = tf.where(first > last, end, begin)
        splits = tf.gather(splits, split.splits)
        return tuple(
            ragged(values, splits)
            for values in (tf.cast(ids, tf.int32), begin, end)
        )

    def _tokens(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Maps words [W] to ids [n] and splits [W + 1], int64."""
        whole = self._whole.lookup(words)  # [W]

        def merged() -> tuple[tf.Tensor, tf.Tensor]:
            others = tf.where(whole < 0)[:, 0]
            texts, number = tf.unique(tf.gather(words, others))
            tokens = ragged(*self._merged(texts))
            counts = tf.tensor_scatter_nd_update(
                tf.ones_like(whole),
                others[:, None],
                tf.gather(tokens.row_lengths(), number),
            )
            splits = tf.cumsum(tf.pad(counts, [[1, 0]]))
            ids = tf.gather(whole, string_of(splits))
            ids = tf.tensor_scatter_nd_update(
                ids, tf.where(ids < 0), tf.gather(tokens, number).values
            )
            return ids, splits

        return tf.cond(
            tf.reduce_all(whole >= 0),
            lambda: (whole, tf.range(tf.size(whole, tf.int64) + 1)),
            merged,
        )

    def _merged(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes `_tokens` by merges alone."""
        symbols = self._symbols(words)
        count = symbols.nrows()
        word = string_of(symbols.row_splits)
        ids, word = self._merges(symbols.values, word, count)
        return ids, tf.searchsorted(word, tf.range(count + 1), 'left', tf.int64)


def read_tokenizer_json(path: str | pathlib.Path) -> dict[str, Any]:
    """Reads the tokenizer.json of a byte-pair encoding.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no JSON, or of another kind of tokenizer.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f'{path}: no such vocabulary; --vocab takes a tokenizer.json, a '
            'SentencePiece *.model or a vocab.txt'
        )
    described = files.read_json(path)
    if (described.get('model') or {}).get('type') != 'BPE':
        raise errors.InputError(
            'no_byte_pairs',
            f'{path} holds no byte-pair encoding (its model is not of the '
            'type BPE)',
        )
    return described


def _vocabulary_and_merges(
    described: Mapping[str, Any], where: str
) -> tuple[list[str], list[tuple[int, int, int]]]:
    """Returns tokens in the order of ids, and merges as ids."""
    model = described['model']
    for name in 'dropout', 'continuing_subword_prefix':
        if model.get(name):
            raise UnsupportedTokenizer(
                'unsupported_byte_pairs',
                f'{where}: a byte-pair encoding with {name} cannot be kept',
            )
    index = dict(model['vocab'])
    index |= {
        token['content']: token['id']
        for token in described.get('added_tokens') or ()
    }
    tokens = sorted(index, key=index.__getitem__)
    if [index[token] for token in tokens] != list(range(len(tokens))):
        raise errors.InputError(
            'wrong_token_ids',
            f'{where}: the ids of {len(tokens):,} tokens are not 0 to '
            f'{len(tokens) - 1:,}, each once',
        )
    merges = []
    for rank, merge in enumerate(model['merges']):
        try:
            left, right = merge.split(' ') if isinstance(merge, str) else merge
            merges.append((index[left], index[right], index[left + right]))
        except (KeyError, ValueError, TypeError) as error:
            raise errors.InputError(
                'wrong_merge',
                f'{where}: the merge {rank + 1:,} of {len(model["merges"]):,}, '
                f'{merge!r}, is none of two tokens to a third; these merges '
                'are of another vocabulary',
            ) from error
    return tokens, merges
