"""WordPiece: BERT's tokenizer (Devlin et al. 2019).

Ids and offsets are those of Hugging Face's BertTokenizerFast (`normalization`
names an exception), but the text of a special token is text like any other,
and offsets count bytes.

Glossary of shapes: n tokens of all strings together, W words of all strings
together.
"""

import collections
import functools
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, Self

import tensorflow as tf
import tensorflow_text as tf_text

from infoword_tf.text import normalization
from infoword_tf.text.normalization import Normalization
from infoword_tf.text.normalizers import Mapped, ends_of
from infoword_tf.text.tokenizer import (
    SPECIALS,
    UNK,
    FlatTokens,
    TextTokenizer,
    check_vocabulary,
    no_room,
    no_text,
    ragged,
    read_vocabulary,
    sample_texts,
    special_ids,
    string_of,
    with_word_starts,
    write_vocabulary,
)

_GOES_ON = '##'
LONGEST_WORD = 100  # normalised characters; a longer word is [UNK]
_BYTES = 4  # of a character in UTF-8, at most


class WordPieceTokenizer(TextTokenizer):
    """A tokenizer that takes the longest token from the left of a word; tokens
    inside words begin with `##`.
    """

    kind = 'wordpiece'
    file = 'vocab.txt'

    def __init__(
        self,
        vocabulary: Sequence[str],
        lower_case: bool = True,
        strip_accents: bool | None = None,
        chinese_characters: bool = True,
        clean: bool = True,
        specials: Sequence[str] = SPECIALS,
    ):
        """Takes args of `check_vocabulary` and `Normalization`; `specials` in
        the order of SPECIALS.
        """
        vocabulary = check_vocabulary(vocabulary, 'the tokenizer', specials)
        ids = special_ids(vocabulary, specials)
        super().__init__(vocabulary, *ids, lower_case)
        self.normalization = Normalization(
            lower_case, strip_accents, chinese_characters, clean
        )
        table, spelled = normalization.fit(self.normalization, vocabulary)
        self._normalizer = tf_text.FastBertNormalizer(
            model_buffer=tf.constant(table)
        )
        self._tokenizer = _splitter(tuple(spelled), spelled[self.unk_id])
        begins = [not token.startswith(_GOES_ON) for token in vocabulary]
        self._begins = tf.constant(begins)  # [V]
        self._lengths = tf.constant([  # [V] characters
            len(token.removeprefix(_GOES_ON)) for token in vocabulary
        ])  # fmt: skip

    @classmethod
    def learn(
        cls, texts: Iterable[str], size: int, lower_case: bool = True
    ) -> Self:
        """Implements `TextTokenizer.learn`."""
        return cls(learn(texts, size, lower_case), lower_case)

    @classmethod
    def read(
        cls, path: str | pathlib.Path, lower_case: bool = True, **options: Any
    ) -> Self:
        """Reads a `vocab.txt`."""
        specials = options.get('specials', SPECIALS)
        return cls(read_vocabulary(path, specials), lower_case, **options)

    @functools.cached_property
    def normalizer(self) -> Mapped:
        """The `Normalizer` of texts."""
        with tf.init_scope():
            return Mapped(normalization.bert_model(self.normalization))

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of the constructor that are not the defaults."""
        normal = self.normalization
        options: dict[str, Any] = {}
        if normal.strip_accents not in (None, self.lower_case):
            options['strip_accents'] = normal.strip_accents
        if not normal.chinese_characters:
            options['chinese_characters'] = False
        if not normal.clean:
            options['clean'] = False
        specials = [self.vocabulary[number] for number in self.special_ids]
        if specials != [*SPECIALS]:
            options['specials'] = specials
        return options

    def write(self, path: str | pathlib.Path) -> None:
        """Writes a `vocab.txt`."""
        write_vocabulary(path, self.vocabulary)

    @property
    def identity(self) -> str:
        """The normalisation, case aside, and the vocabulary."""
        options = self.normalization
        strips = options.strip_accents
        if strips is None:
            strips = options.lower_case
        return '\n'.join([
            f'tokenizers {strips} {options.chinese_characters} {options.clean}',
            *self.vocabulary,
        ])  # fmt: skip

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Implements `TextTokenizer.tokenize`."""
        tokens, _, _ = self._tokenize(self._normalizer.normalize(strings))
        return tokens

    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Implements `TextTokenizer.tokenize_with_offsets`.

        What normalisation deletes beside a token is not among the token's
        bytes, as an accent that is a character by itself. All tokens of a
        character that becomes several have the character's bytes.
        """
        strings = tf.convert_to_tensor(strings, tf.string)
        tokens, starts, lasts = self._offsets(strings)
        ends = ends_of(strings, string_of(tokens.row_splits), lasts)
        return tokens, tokens.with_values(starts), tokens.with_values(ends)

    def detokenize(self, ids: Sequence[int]) -> str:
        """Spells tokens as text; punctuation stands apart, as words do."""
        joined = super().detokenize(ids).replace(f' {_GOES_ON}', '')
        return joined.removeprefix(_GOES_ON)

    def tokenize_flat(self, strings: Sequence[bytes]) -> FlatTokens:
        """Implements `TextTokenizer.tokenize_flat`."""
        tokens, starts, _ = self._offsets(tf.constant(strings, tf.string))
        return with_word_starts(strings, tokens, starts.numpy())

    def _offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Returns ids, the first byte of each token, and the `lasts` of
        `ends_of`, [n] int64.
        """
        normal, offsets = self._normalizer.normalize_with_offsets(strings)
        tokens, starts, ends = self._tokenize(normal)
        begin = tf.gather(offsets.row_splits, string_of(tokens.row_splits))
        return (
            tokens,
            tf.gather(offsets.values, begin + starts),
            tf.gather(offsets.values, begin + ends - 1),
        )

    def _tokenize(
        self, normal: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Tokenizes normalised strings [B]; returns ids, starts, ends [n]."""
        tokens, starts, ends = self._tokenizer.tokenize_with_offsets(normal)
        ids, splits = tokens.values, tokens.row_splits
        starts, ends = starts.values, ends.values
        begins = tf.gather(self._begins, ids)
        first = tf.where(begins)[:, 0]  # [W]
        last = tf.concat([first, splits[-1:]], axis=0)[1:] - 1
        widths = tf.gather(ends, last) - tf.gather(starts, first)  # [W] bytes
        ids, splits, starts, ends = tf.cond(
            tf.reduce_max(widths) > LONGEST_WORD,
            lambda: self._shortened(
                ids, splits, starts=starts, ends=ends, first=first, last=last
            ),
            lambda: (ids, splits, starts, ends),
        )
        tokens = ragged(ids, splits)
        return tokens, starts, ends

    def _shortened(
        self,
        ids: tf.Tensor,
        splits: tf.Tensor,
        starts: tf.Tensor,
        ends: tf.Tensor,
        first: tf.Tensor,
        last: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        """Makes [UNK] of words of too many characters; `first`, `last`: [W]."""
        lengths = tf.gather(self._lengths, ids)
        until = tf.cumsum(lengths)
        before = tf.gather(until - lengths, first)
        long = tf.gather(until, last) - before > LONGEST_WORD  # [W]
        begins = tf.gather(self._begins, ids)
        word = tf.cumsum(tf.cast(begins, tf.int32)) - 1  # [n]
        inside = tf.gather(long, word)
        stays = begins | ~inside
        number = tf.where(stays)[:, 0]
        count = tf.cumsum(tf.pad(tf.cast(stays, splits.dtype), [[1, 0]]))
        ends = tf.where(inside, tf.gather(tf.gather(ends, last), word), ends)
        return (
            tf.gather(tf.where(inside, self.unk_id, ids), number),
            tf.gather(count, splits),
            tf.gather(starts, number),
            tf.gather(ends, number),
        )


@functools.lru_cache(maxsize=8)  # a process opens one vocabulary often
def _splitter(
    vocabulary: tuple[str, ...], unknown: str
) -> tf_text.FastWordpieceTokenizer:
    with tf.init_scope():
        return tf_text.FastWordpieceTokenizer(
            vocab=list(vocabulary),
            suffix_indicator=_GOES_ON,
            # It counts bytes; `_shortened` counts characters.
            max_bytes_per_word=_BYTES * LONGEST_WORD,
            token_out_type=tf.int32,
            unknown_token=unknown,
        )


def learn(
    texts: Iterable[str], size: int, lower_case: bool = True
) -> list[str]:
    """Learns a WordPiece vocabulary (Schuster and Nakajima 2012).

    Args and errors are those of `TextTokenizer.learn`; without case there are
    no accents. Specials come first, then characters, then longer tokens.
    """
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    # Each character is a token at the beginning of a word and one inside.
    max_characters = (size - len(SPECIALS)) // 2
    if max_characters < 1:
        raise no_room(
            size,
            f'beside the {len(SPECIALS)} special tokens; a few thousand is '
            'usual',
        )
    texts = list(sample_texts(texts))
    learner = tokenizers.Tokenizer(models.WordPiece(unk_token=UNK))
    learner.normalizer = normalizers.BertNormalizer(lowercase=lower_case)
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    alphabet, continuing = _alphabet(
        texts,
        learner.normalizer,
        learner.pre_tokenizer,
        min(1000, max_characters),
    )
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        # The trainer breaks ties between merges by the numbers of characters
        # inside words, which it gives in the order of a hash map, another in
        # each call; named here they have the same number every time.
        special_tokens=[*SPECIALS, *(f'##{c}' for c in continuing)],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix='##',
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    index = learner.get_vocab()
    if not alphabet:
        raise no_text()
    in_order = sorted(index, key=index.__getitem__)
    return check_vocabulary(in_order, 'the learned vocabulary')


def _alphabet(
    texts: Sequence[str], normalizer: Any, pre_tokenizer: Any, most: int
) -> tuple[list[str], list[str]]:
    """Returns the commonest characters, lest rare scripts fill a small
    vocabulary, and which of the characters occur inside words.
    """
    words: collections.Counter[str] = collections.Counter()
    for text in texts:
        words.update(normalizer.normalize_str(text).split())
    counts: collections.Counter[str] = collections.Counter()
    continuing: set[str] = set()
    for word, count in words.items():
        for part, _ in pre_tokenizer.pre_tokenize_str(word):
            for character in part:
                counts[character] += count
            continuing.update(part[1:])
    common = sorted(counts, key=lambda c: (-counts[c], c))[:most]
    return sorted(common), sorted(continuing.intersection(common))
