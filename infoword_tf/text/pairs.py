"""What tokenizers by byte-pair encoding share: words to pieces by merges.

Their file is a tokenizer.json as `tokenizers` writes it, so that what it has
learned can be read, and what we have learned be used there.

Glossary of shapes: B strings, C characters of all strings together, N pieces,
W words, V vocabulary.
"""

import abc
import functools
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import tensorflow as tf

from infoword_tf import files
from infoword_tf.text import vocabulary as vocabularies
from infoword_tf.text.merges import Merges
from infoword_tf.text.tokenizer import (
    Pieces,
    Tokenizer,
    string_of,
    with_word_starts,
)

# What public vocabularies call the special pieces, the best name first. Some
# have one piece for all of them: it ends a text.
_END = '<|endoftext|>', '<unk>'
NAMES = {
    vocabularies.PAD: ('[PAD]', '<pad>', *_END),
    vocabularies.UNK: ('[UNK]', '<unk>', *_END),
    vocabularies.CLS: ('[CLS]', '<s>', *_END),
    vocabularies.SEP: ('[SEP]', '</s>', *_END),
    vocabularies.MASK: ('[MASK]', '<mask>', *_END),
}


class CannotKeep(ValueError):
    """A tokenizer that is whole, but reads text in a way of its own."""


class Words(NamedTuple):
    """Strings, parted into words, flat.

    Attributes:
        words: [W] strings.
        splits: [B + 1] int64: where each string begins in `words`.
        first: [W] int64: the place of each word's first character.
        starts: [C] int64: where each character begins in its string, bytes.
        ends: [C] int64: the byte after it.
        widths: [C] int64: how much of a piece's length each character is.
    """

    words: tf.Tensor
    splits: tf.Tensor
    first: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    widths: tf.Tensor


class Pairs(Tokenizer):
    """A tokenizer whose words are merged from symbols.

    Attributes:
        json: what its file holds.
    """

    file = 'tokenizer.json'
    as_written = True

    def __init__(
        self,
        described: Mapping[str, Any],
        where: str,
        lower_case: bool,
    ):
        """Args: what a tokenizer.json holds, what to call it in a ValueError,
        whether it folds case.
        """
        self.json = json.dumps(described, ensure_ascii=False)
        pieces, merges = _parsed(described, where)
        index = {piece: i for i, piece in enumerate(pieces)}
        specials = [
            next((index[name] for name in known if name in index), None)
            for known in NAMES.values()
        ]
        if None in specials:
            raise CannotKeep(
                f'{where} has no piece that ends a text, such as [SEP], </s> '
                f'or {_END[0]}; add it to added_tokens'
            )
        model = described['model']
        unknown = index.get(model.get('unk_token'))
        added = {token['id'] for token in described.get('added_tokens') or ()}
        super().__init__(
            pieces,
            specials,
            sorted(added.union(specials) - {unknown}),
            lower_case,
        )
        self._merges = Merges(merges, len(pieces))
        self._whole = self._whole_words(index, model)
        self._lengths = tf.constant(
            [self._length(piece) for piece in pieces], tf.int64
        )

    @abc.abstractmethod
    def _word(self, piece: str) -> bytes | None:
        """The word that is just this piece; None: no word is."""

    @abc.abstractmethod
    def _length(self, piece: str) -> int:
        """Of a piece, in the units of `Words.widths`."""

    @abc.abstractmethod
    def _symbols(self, words: tf.Tensor) -> tf.RaggedTensor:
        """[W] -> ragged ids [W, symbols] int64, before any merge."""

    @abc.abstractmethod
    def _parted(self, strings: tf.Tensor, places: bool) -> Words:
        """The words of strings; without `places` no field after `splits`
        counts.
        """

    def _whole_words(
        self, index: Mapping[str, int], model: Mapping[str, Any]
    ) -> tf.lookup.StaticHashTable:
        """Words that are pieces: most of a text needs no merging."""
        words, never = {}, set(self.control_ids)
        for piece, number in index.items():
            if number not in never and piece:
                if (word := self._word(piece)) is not None:
                    words[word] = number
        if words and not model.get('ignore_merges'):
            # Merges need not make a piece of its own text.
            ids, splits = self._merged(tf.constant(list(words), tf.string))
            first = tf.gather(ids, splits[:-1])
            alone = tf.where(splits[1:] - splits[:-1] == 1, first, -1).numpy()
            words = {
                word: number
                for (word, number), found in zip(
                    words.items(), alone, strict=True
                )
                if number == found
            }
        words |= {b'': -1, **self._more_words()}  # a table must hold something
        return tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(list(words), tf.string),
                tf.constant(list(words.values()), tf.int64),
            ),
            -1,
        )

    def _more_words(self) -> dict[bytes, int]:
        """Words that are pieces though no merge makes them."""
        return {}

    @classmethod
    def read(
        cls, path: str | pathlib.Path, lower_case: bool = True, **options: Any
    ) -> Self:
        """As `Tokenizer.read`, a tokenizer.json; it says whether it folds
        case.
        """
        del lower_case
        return cls(read_described(path), str(path), **options)

    def write(self, path: str | pathlib.Path) -> None:
        """Writes the tokenizer.json as it was given."""
        pathlib.Path(path).write_text(self.json, encoding='utf-8')

    @functools.cached_property
    def identity(self) -> str:
        """A digest of all that its file says."""
        text = json.dumps(json.loads(self.json), sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        return f'{self.kind} {digest}'

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """As `Tokenizer.tokenize`."""
        found = self._parted(tf.convert_to_tensor(strings, tf.string), False)
        ids, splits = self._pieces(found.words)
        return tf.RaggedTensor.from_row_splits(
            tf.cast(ids, tf.int32),
            tf.gather(splits, found.splits),
            validate=False,
        )

    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """As `Tokenizer.tokenize_with_offsets`.

        A piece that is a part of a character has all of its bytes. The blank
        before a word is among the bytes of its first piece where the file says
        so (`trims`).
        """
        return self._places(strings, trimmed=self.trims)

    def pieces(self, strings: Sequence[bytes]) -> Pieces:
        """As `Tokenizer.pieces`."""
        tokens, starts, _ = self._places(
            tf.constant(strings, tf.string), trimmed=False
        )
        return with_word_starts(strings, tokens, starts.values.numpy())

    @functools.cached_property
    def _blanks(self) -> tf.Tensor:
        """[V] int64: blanks that pieces begin with."""
        with tf.init_scope():
            words = (self._word(piece) or b'' for piece in self.vocabulary)
            return tf.constant(
                [len(word) - len(word.lstrip(b' ')) for word in words], tf.int64
            )

    def _places(
        self, strings: tf.Tensor, trimmed: bool
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """`tokenize`, with the bytes of characters that pieces are of;
        `trimmed`: but the blanks that they begin with.
        """
        found = self._parted(tf.convert_to_tensor(strings, tf.string), True)
        ids, splits = self._pieces(found.words)
        # Pieces of a word tile it.
        lengths = tf.gather(self._lengths, ids)  # [N]
        within = tf.cumsum(lengths, exclusive=True)
        before = tf.cumsum(found.widths, exclusive=True)  # [C]
        begin = tf.gather(before, found.first) - tf.gather(within, splits[:-1])
        starts = within + tf.gather(begin, string_of(splits))
        first = tf.searchsorted(before, starts, 'right', tf.int64) - 1
        last = starts + lengths - 1
        last = tf.searchsorted(before, last, 'right', tf.int64) - 1
        begin = tf.gather(found.starts, first)
        end = tf.gather(found.ends, last)
        if trimmed:
            first += tf.gather(self._blanks, ids)
            begin = tf.gather(found.starts, tf.minimum(first, last))
            begin = tf.where(first > last, end, begin)
        splits = tf.gather(splits, found.splits)
        return tuple(
            tf.RaggedTensor.from_row_splits(values, splits, validate=False)
            for values in (
                tf.cast(ids, tf.int32),
                begin,
                end,
            )
        )

    def _pieces(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[W] -> ids of their pieces [N] and splits [W + 1], int64."""
        whole = self._whole.lookup(words)  # [W]

        def merged() -> tuple[tf.Tensor, tf.Tensor]:
            left = tf.where(whole < 0)[:, 0]
            texts, number = tf.unique(tf.gather(words, left))
            found = tf.RaggedTensor.from_row_splits(
                *self._merged(texts), validate=False
            )
            counts = tf.tensor_scatter_nd_update(
                tf.ones_like(whole),
                left[:, None],
                tf.gather(found.row_lengths(), number),
            )
            splits = tf.cumsum(tf.pad(counts, [[1, 0]]))
            ids = tf.gather(whole, string_of(splits))
            ids = tf.tensor_scatter_nd_update(
                ids, tf.where(ids < 0), tf.gather(found, number).values
            )
            return ids, splits

        return tf.cond(
            tf.reduce_all(whole >= 0),
            lambda: (whole, tf.range(tf.size(whole, tf.int64) + 1)),
            merged,
        )

    def _merged(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """As `_pieces`, by merges alone."""
        symbols = self._symbols(words)
        count = symbols.nrows()
        word = string_of(symbols.row_splits)
        ids, word = self._merges(symbols.values, word, count)
        return ids, tf.searchsorted(word, tf.range(count + 1), 'left', tf.int64)


def read_described(path: str | pathlib.Path) -> dict[str, Any]:
    """What a tokenizer.json holds.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no JSON, or none of a byte-pair encoding.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f'{path}: no such vocabulary; --vocab takes a tokenizer.json, a '
            'SentencePiece *.model or a vocab.txt'
        )
    found = files.read_json(path)
    if (found.get('model') or {}).get('type') != 'BPE':
        raise ValueError(
            f'{path} holds no byte-pair encoding (its model is not of the '
            'type BPE)'
        )
    return found


def _parsed(
    described: Mapping[str, Any], where: str
) -> tuple[list[str], list[tuple[int, int, int]]]:
    """Pieces by their ids, and merges in ids."""
    model = described['model']
    for name in 'dropout', 'continuing_subword_prefix', 'byte_fallback':
        if model.get(name):
            raise CannotKeep(
                f'{where}: a byte-pair encoding with {name} cannot be kept'
            )
    index = dict(model['vocab'])
    index |= {
        token['content']: token['id']
        for token in described.get('added_tokens') or ()
    }
    pieces = sorted(index, key=index.get)
    if [index[piece] for piece in pieces] != list(range(len(pieces))):
        raise ValueError(
            f'{where}: the ids of {len(pieces):,} pieces are not 0 to '
            f'{len(pieces) - 1:,}, each once'
        )
    merges = []
    for rank, merge in enumerate(model['merges']):
        parts = merge.split(' ') if isinstance(merge, str) else merge
        try:
            left, right = parts
            merges.append((index[left], index[right], index[left + right]))
        except (KeyError, ValueError, TypeError) as error:
            raise ValueError(
                f'{where}: the merge {rank + 1:,} of {len(model["merges"]):,}, '
                f'{merge!r}, is none of two pieces to a third; these merges '
                'are of another vocabulary'
            ) from error
    return pieces, merges
