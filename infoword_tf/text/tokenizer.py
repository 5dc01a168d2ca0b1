"""The interface of all tokenizers: strings to ids, in the graph and out of it.

And what several share: a vocabulary is a list of tokens in the order of their
ids, and `vocab.txt` holds one token a line.

Glossary of shapes: n tokens of all strings together.
"""

import abc
import hashlib
import heapq
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import tensorflow as tf

from infoword_tf import errors
from infoword_tf.config import TokenizerConfig
from infoword_tf.views import Specials

PAD, UNK, CLS, SEP, MASK = '[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'
SPECIALS = (PAD, UNK, CLS, SEP, MASK)


class UnsupportedTokenizer(errors.InputError):
    """A valid tokenizer that reads text in a way that no class does."""


class FlatTokens(NamedTuple):
    """Tokens of several strings in one array.

    Attributes:
        ids: [n] int32.
        word_starts: [n] bool: the token begins a whitespace-delimited word.
        row_splits: [B + 1] int64: where each string begins in `ids`.
    """

    ids: np.ndarray
    word_starts: np.ndarray
    row_splits: np.ndarray


class PlainTexts(NamedTuple):
    """Texts between added tokens, [B] each.

    Attributes:
        texts: strings.
        follows: bool: something stands before the text.
        begins, ends: bool: the text begins, and ends, what is normalised.
    """

    texts: tf.Tensor
    follows: tf.Tensor
    begins: tf.Tensor
    ends: tf.Tensor


class TextTokenizer(tf.Module, abc.ABC):
    """A tokenizer that the data pipeline and the SavedModel share.

    Attributes:
        kind: name in the config and among the flags.
        file: name of the vocabulary file in a workdir.
        as_written: whether `learn` keeps case by default.
        unbounded: whether `learn` keeps all tokens by default.
        vocabulary: tokens in the order of their ids.
        pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special tokens;
            `special_ids` has them in this order.
        control_ids: ids of tokens that no text has: the special ones but
            [UNK], and others.
        lower_case: whether case is folded.
        trims: whether offsets leave out the blank before a word.
    """

    trims: bool = True
    kind: str
    file: str
    as_written: ClassVar[bool] = False
    unbounded: ClassVar[bool] = False

    def __init__(
        self,
        vocabulary: Sequence[str],
        specials: Sequence[int],
        control_ids: Sequence[int],
        lower_case: bool,
    ):
        """Sets the attributes; `specials` are the `special_ids`."""
        super().__init__(name='tokenizer')
        self.vocabulary = tuple(vocabulary)
        self.special_ids = tuple(specials)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            specials
        )
        self.control_ids = tuple(control_ids)
        self.lower_case = lower_case

    @classmethod
    def learn(
        cls, texts: Iterable[str], size: int, lower_case: bool = True
    ) -> Self:
        """Learns a tokenizer from texts; the order of texts does not matter.

        Args:
            texts: documents; of a large corpus a sample is used.
            size: most tokens, specials included; a small corpus gives fewer.
            lower_case: whether to fold case.

        Raises:
            ValueError: no text, or a `size` that is too small.
        """
        raise NotImplementedError

    @classmethod
    def read(
        cls, path: str | pathlib.Path, lower_case: bool = True, **options: Any
    ) -> Self:
        """Reads a vocabulary that `write` or another library wrote.

        Args:
            lower_case: whether to fold case, where the file does not say it.
            **options: arguments of the constructor; most kinds have none.

        Raises:
            FileNotFoundError: no such file.
            ValueError: a damaged file, or one without special tokens.
        """
        raise NotImplementedError

    @property
    def config(self) -> TokenizerConfig:
        """Kind, case and options, which `read` needs besides the file."""
        return TokenizerConfig(self.kind, self.lower_case, self.options)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of `read` besides path and case that are not defaults."""
        return {}

    @abc.abstractmethod
    def write(self, path: str | pathlib.Path) -> None:
        """Writes the vocabulary."""

    @property
    @abc.abstractmethod
    def identity(self) -> str:
        """A string that is equal for tokenizers of equal ids, case aside."""

    @property
    def specials(self) -> Specials:
        """Special ids and the vocabulary, for views, objectives, encoders."""
        return Specials(
            self.cls_id,
            self.sep_id,
            self.mask_id,
            size=len(self),
            tokens=self.vocabulary,
            unk_id=self.unk_id,
        )

    @property
    def inner(self) -> 'TextTokenizer':
        """The tokenizer without added tokens; by default `self`."""
        return self

    @property
    def normalizer(self) -> Any:
        """The `Normalizer` of texts; None: texts are not changed."""
        return None

    @property
    def mask_text(self) -> str | None:
        """The spelling of [MASK] in texts; None where no text has [MASK]."""
        return None

    @property
    def ends_texts(self) -> bool:
        """True if [SEP] is in no text. In GPT's vocabulary, which has no [SEP],
        a token of texts stands in for one.
        """
        return self.sep_id in self.control_ids

    def __len__(self) -> int:
        """Returns V."""
        return len(self.vocabulary)

    @abc.abstractmethod
    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Maps strings [B] to ids [B, tokens] int32, without specials."""

    @abc.abstractmethod
    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Tokenizes strings [B]; offsets count bytes before normalisation.

        Returns:
            ids [B, tokens] int32; the first byte of each token and the one
            after its last, [B, tokens] int64.
        """

    def tokenize_between_masks(
        self, texts: tf.Tensor, inside: tf.Tensor
    ) -> tf.RaggedTensor:
        """Tokenizes the stretches of text before, between and after [MASK].

        Args:
            texts: [B] strings.
            inside: [B] bool: a [MASK] stands before the text, which may
                therefore begin inside a word.
        """
        del inside
        return self.tokenize(texts)

    def tokenize_between_added(
        self, plain: PlainTexts, with_offsets: bool
    ) -> tuple[tf.RaggedTensor, ...]:
        """Returns `tokenize_with_offsets` of texts between added tokens, or
        the ids alone.
        """
        if with_offsets:
            return self.tokenize_with_offsets(plain.texts)
        return (self.tokenize(plain.texts),)

    def detokenize(self, ids: Sequence[int]) -> str:
        """Spells tokens as text, without special tokens.

        What normalisation changed is not restored.
        """
        return ' '.join(
            self.vocabulary[i] for i in ids if i not in self.control_ids
        )

    def text(self, ids: Sequence[int]) -> str:
        """Calls `detokenize`; kept for callers of the older name."""
        return self.detokenize(ids)

    @abc.abstractmethod
    def tokenize_flat(self, strings: Sequence[bytes]) -> FlatTokens:
        """Tokenizes B UTF-8 strings with single spaces between words.

        A token starts a word if a space lies between it and the token before
        it: punctuation stays with its word, and characters that normalisation
        deletes do not end a word.
        """


def string_of(splits: tf.Tensor) -> tf.Tensor:
    """Returns the string of each token, [n] int64, of splits [B + 1]."""
    return tf.searchsorted(splits[1:], tf.range(splits[-1]), 'right', tf.int64)


def ragged(values: tf.Tensor, splits: tf.Tensor) -> tf.RaggedTensor:
    """Returns a ragged tensor, without a check of splits."""
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


def lookup_table(
    values: Mapping[str, int] | Mapping[bytes, int],
    default: int,
    dtype: tf.DType = tf.int64,
) -> tf.lookup.StaticHashTable:
    """Builds a table from strings to numbers; `default` is for all others."""
    return tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(
            tf.constant(list(values), tf.string),
            tf.constant(list(values.values()), dtype),
        ),
        default,
    )


def with_word_starts(
    strings: Sequence[bytes], tokens: tf.RaggedTensor, offsets: np.ndarray
) -> FlatTokens:
    """Finds the tokens that begin words.

    Args:
        offsets: [n]: a byte of each token's string, in its word or in the
            space before it.
    """
    splits = tokens.row_splits.numpy()
    lengths = np.fromiter(map(len, strings), np.int64, len(strings))
    # Strings are joined by a space, so a new string is a new word too.
    text = np.frombuffer(b' '.join(strings) + b' ', np.uint8)
    begin = np.cumsum(lengths + 1) - (lengths + 1)  # [B]
    words = np.cumsum(text == ord(' '))
    word = words[offsets + np.repeat(begin, np.diff(splits))]  # [n]
    return FlatTokens(
        tokens.flat_values.numpy(), np.diff(word, prepend=-1) != 0, splits
    )


# ------------------------------------------------------------------ vocabulary


def no_text() -> errors.InputError:
    """Makes the error for a corpus of which nothing can be learned."""
    return errors.InputError(
        'no_text_to_learn',
        'the corpus holds no text to learn a vocabulary from; check --corpus, '
        'or give a vocabulary with --vocab',
    )


def no_room(size: int, why: str) -> errors.InputError:
    """Makes the error for a size without room for all tokens."""
    return errors.InputError(
        'small_vocab_size', f'--vocab_size={size} has no room {why}'
    )


def check_vocabulary(
    vocabulary: Sequence[str], where: str, specials: Sequence[str] = SPECIALS
) -> list[str]:
    """Returns the tokens; ValueError: a special is missing, or any twice."""
    vocabulary = list(vocabulary)
    missing = [token for token in specials if token not in vocabulary]
    if missing:
        raise errors.InputError(
            'vocabulary_without_specials',
            f'{where}: the vocabulary lacks {", ".join(missing)}; add a line '
            'for each, or leave out --vocab to learn one from the corpus',
        )
    seen: dict[str, int] = {}
    for line, token in enumerate(vocabulary, 1):
        if token in seen:
            raise errors.InputError(
                'token_twice',
                f'{where}: {token!r} is on line {seen[token]} and again on '
                f'line {line}; keep one of them (ids of later tokens move)',
            )
        seen[token] = line
    return vocabulary


def special_ids(
    vocabulary: Sequence[str], specials: Sequence[str] = SPECIALS
) -> tuple[list[int], list[int]]:
    """Returns the ids of special tokens; and, sorted, without that of [UNK]."""
    ids = [vocabulary.index(token) for token in specials]
    return ids, sorted({*ids} - {ids[1]})


def unnamed(number: int) -> str:
    """Names an id without a token, with a blank, which no text spells."""
    return f'[no {number}]'


def read_vocabulary(
    path: str | pathlib.Path, specials: Sequence[str] = SPECIALS
) -> list[str]:
    """Reads and checks a `vocab.txt`."""
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f'{path}: no such vocabulary; --vocab takes a vocab.txt with one '
            'token a line, or a SentencePiece *.model'
        )
    try:
        lines = path.read_text(encoding='utf-8').split('\n')
    except UnicodeDecodeError as error:
        raise errors.InputError(
            'vocabulary_not_utf8',
            f'{path}: byte {error.start} is not UTF-8; a vocabulary is a text '
            'file with one token a line',
        ) from error
    while lines and not lines[-1]:
        lines.pop()
    return check_vocabulary(lines, str(path), specials)


def write_vocabulary(
    path: str | pathlib.Path, vocabulary: Sequence[str]
) -> None:
    """Writes a `vocab.txt`."""
    text = ''.join(token + '\n' for token in vocabulary)
    pathlib.Path(path).write_text(text, encoding='utf-8')


def sample_texts(
    texts: Iterable[str], megabytes: float = 64.0
) -> Iterator[str]:
    """Samples texts up to a total size, uniformly and reproducibly.

    The texts of the lowest hashes that fit are taken, whatever the order of
    the corpus. One text is taken however large it is.
    """
    budget, limit = int(megabytes * 1e6), 2**64
    heap: list[tuple[int, str]] = []  # the highest hash on top
    size = 0
    for text in texts:
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        order = int.from_bytes(digest, 'big')
        if order >= limit:
            continue
        heapq.heappush(heap, (-order, text))
        size += len(text)
        while size > budget and len(heap) > 1:
            order, last = heapq.heappop(heap)
            limit, size = -order, size - len(last)
    return (text for _, text in heap)
