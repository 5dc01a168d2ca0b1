"""What every tokenizer is: strings to ids, in the graph and out of it.

Glossary of shapes: B strings, N pieces of all strings together, V vocabulary.
"""

import abc
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import tensorflow as tf

from infoword_tf.config import TokenizerConfig
from infoword_tf.views import Specials


class Pieces(NamedTuple):
    """Tokenized strings, flat.

    Attributes:
        ids: [N] int32.
        word_starts: [N] bool: the piece begins a whitespace-delimited word.
        row_splits: [B + 1] int64: where each string begins in `ids`.
    """

    ids: np.ndarray
    word_starts: np.ndarray
    row_splits: np.ndarray


class Between(NamedTuple):
    """Texts that stand between added tokens, [B] each.

    Attributes:
        texts: strings.
        after: bool: something stands before the text.
        begins, ends: bool: the text begins, and ends, what is normalised.
    """

    texts: tf.Tensor
    after: tf.Tensor
    begins: tf.Tensor
    ends: tf.Tensor


class Tokenizer(tf.Module, abc.ABC):
    """One object for the pipeline and for the SavedModel.

    Attributes:
        kind: its name in the config and among the flags.
        file: what a workdir calls its vocabulary.
        as_written: whether a text is learned with its case, where nobody says
            otherwise.
        unbounded: whether all pieces are learned, where nobody says how many.
        vocabulary: pieces in the order of their ids.
        pad_id, unk_id, cls_id, sep_id, mask_id: of the special pieces;
            `special_ids` has them in this order.
        control_ids: pieces that no text has, these but [UNK] among them.
        lower_case: whether it folds case.
        trims: whether offsets leave out the blank before a word.
    """

    trims: bool = True
    kind: ClassVar[str]
    file: ClassVar[str]
    as_written: ClassVar[bool] = False
    unbounded: ClassVar[bool] = False

    def __init__(
        self,
        vocabulary: Sequence[str],
        specials: Sequence[int],
        control_ids: Sequence[int],
        lower_case: bool,
    ):
        """Args: as the attributes; `specials` in the order given there."""
        super().__init__(name='tokenizer')
        self.vocabulary = tuple(vocabulary)
        self.special_ids = tuple(specials)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            specials
        )
        self.control_ids = tuple(control_ids)
        self.lower_case = lower_case

    @classmethod
    @abc.abstractmethod
    def learn(
        cls, texts: Iterable[str], size: int, lower_case: bool = True
    ) -> Self:
        """Learns one from texts, the same from the same set of texts.

        Args:
            texts: documents; of a large corpus a sample is used.
            size: pieces, specials included; a small corpus gives fewer.
            lower_case: whether it shall fold case.

        Raises:
            ValueError: there is no text, or `size` is too small for it.
        """

    @classmethod
    @abc.abstractmethod
    def read(
        cls, path: str | pathlib.Path, lower_case: bool = True, **options: Any
    ) -> Self:
        """Reads what `write` wrote, or what others have made.

        Args:
            lower_case: where the file does not say it.
            **options: of the constructor, by name; most have none.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is not what it should be, or lacks special pieces.
        """

    @property
    def config(self) -> TokenizerConfig:
        """How to read it again."""
        return TokenizerConfig(self.kind, self.lower_case, self.options)

    @property
    def options(self) -> dict[str, Any]:
        """What `read` needs besides to make the same one again."""
        return {}

    @abc.abstractmethod
    def write(self, path: str | pathlib.Path) -> None:
        """Writes the vocabulary."""

    @property
    @abc.abstractmethod
    def identity(self) -> str:
        """Equal for tokenizers that give equal ids, case aside."""

    @property
    def specials(self) -> Specials:
        """What views, objectives and encoders need to know."""
        return Specials(
            self.cls_id,
            self.sep_id,
            self.mask_id,
            len(self),
            self.vocabulary,
            self.unk_id,
        )

    @property
    def inner(self) -> 'Tokenizer':
        """Returns the tokenizer without added tokens; by default itself."""
        return self

    @property
    def normalizer(self) -> Any:
        """What becomes of a text before it is parted, a `Normalizer`; None: it
        stays as it is written.
        """
        return None

    @property
    def mask_text(self) -> str | None:
        """Returns the spelling of [MASK] in texts; None where it has none."""
        return None

    @property
    def ends_texts(self) -> bool:
        """Whether [SEP] is a piece that no text has: GPT's vocabulary has none
        such, and one that is unknown stands in for it.
        """
        return self.sep_id in self.control_ids

    def __len__(self) -> int:
        """V."""
        return len(self.vocabulary)

    @abc.abstractmethod
    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Strings [B] -> ragged ids [B, pieces] int32, without specials."""

    @abc.abstractmethod
    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """As `tokenize`, with the first byte of each piece and the one after.

        Offsets count bytes of the string that was given, not of its
        normalised form.
        """

    def tokenize_parts(
        self, parts: tf.Tensor, inside: tf.Tensor
    ) -> tf.RaggedTensor:
        """As `tokenize`, of texts that were parted at [MASK].

        Args:
            parts: [B] strings.
            inside: [B] bool: the part is not the first of its text. It may
                begin inside a word, for tokenizers to which that matters.
        """
        del inside
        return self.tokenize(parts)

    def tokenize_between(
        self, parts: Between, places: bool
    ) -> tuple[tf.RaggedTensor, ...]:
        """As `tokenize_with_offsets`, of texts that stand between added tokens;
        without `places` ids alone.
        """
        if places:
            return self.tokenize_with_offsets(parts.texts)
        return (self.tokenize(parts.texts),)

    def text(self, ids: Sequence[int]) -> str:
        """What pieces spell, as far as it is known: a text, not its bytes.
        Those that no text has are left out.
        """
        return ' '.join(
            self.vocabulary[i] for i in ids if i not in self.control_ids
        )

    @abc.abstractmethod
    def pieces(self, strings: Sequence[bytes]) -> Pieces:
        """Tokenizes B UTF-8 strings whose words are parted by single spaces.

        Returns:
            `Pieces`. A piece starts a word if a space lies between it and the
            piece before it: punctuation stays with its word, and characters
            that normalisation deletes do not part one.
        """


def string_of(splits: tf.Tensor) -> tf.Tensor:
    """[B + 1] -> [N] int64: the string of each piece."""
    return tf.searchsorted(splits[1:], tf.range(splits[-1]), 'right', tf.int64)


def with_word_starts(
    strings: Sequence[bytes], tokens: tf.RaggedTensor, places: np.ndarray
) -> Pieces:
    """Finds the words that pieces belong to.

    Args:
        places: [N] of each piece a byte of its string, in its word or the
            space before it.
    """
    splits = tokens.row_splits.numpy()
    lengths = np.fromiter(map(len, strings), np.int64, len(strings))
    # Strings are joined by a space, so a new string is a new word too.
    text = np.frombuffer(b' '.join(strings) + b' ', np.uint8)
    begin = np.cumsum(lengths + 1) - (lengths + 1)  # [B]
    words = np.cumsum(text == ord(' '))
    word = words[places + np.repeat(begin, np.diff(splits))]  # [N]
    return Pieces(
        tokens.flat_values.numpy(), np.diff(word, prepend=-1) != 0, splits
    )
