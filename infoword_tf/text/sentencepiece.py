"""SentencePiece: tokens that include the spaces before them.

Kudo and Richardson 2018, with the unigram model of Kudo 2018. A model holds
tokens with scores, and rules of normalisation (NFKC, case, runs of spaces).
Spaces are written as the mark U+2581, one also before the first word.

`SentencepieceTokenizer` maps offsets to the original bytes;
`FastSentencepieceTokenizer` has no offsets.
"""

import dataclasses
import functools
import hashlib
import io
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.python.ops import sentencepiece_tokenizer

from infoword_tf import errors
from infoword_tf.text import normalization
from infoword_tf.text.characters import after_spaces
from infoword_tf.text.normalizers import (
    BLANK,
    Normalizer,
    normalizer_of,
    traced,
)
from infoword_tf.text.tokenizer import (
    CLS,
    MASK,
    PAD,
    SEP,
    SPECIALS,
    UNK,
    FlatTokens,
    PlainTexts,
    TextTokenizer,
    no_room,
    no_text,
    ragged,
    sample_texts,
    string_of,
    with_word_starts,
)

# Names of the special tokens in public models: ALBERT's are BERT's, then
# XLNet's, then fairseq's, which XLM-R has.
NAMES = {
    PAD: ('[PAD]', '<pad>'),
    UNK: ('[UNK]', '<unk>'),
    CLS: ('[CLS]', '<cls>', '<s>'),
    SEP: ('[SEP]', '<sep>', '</s>'),
    MASK: ('[MASK]', '<mask>'),
}
# What is learned depends on the number of threads, so it is fixed.
_THREADS = 4
# Lines of up to 512 characters: learning takes time by the square of a line
# that repeats itself (60 kB of one word: 18 s), and the trainer leaves out
# lines of more than 4 kB.
_LINE = re.compile(r'\S(?:.{0,510}\S)?(?!\S)|\S{1,512}')
_BYTES = tuple(f'<0x{byte:02X}>' for byte in range(256))
_MARK = '\u2581'
_APART = b'\xff'  # no byte of UTF-8
_EDGE = _APART + rb'\1'
_WHITE = [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B),
          0x2028, 0x2029, 0x202F, 0x205F, 0x3000, ord(_MARK)]  # fmt: skip
_SPACES = r'[\s\p{Z}]+'


class SentencePiece(TextTokenizer):
    """A SentencePiece model of any type whose specials are control symbols.

    Attributes:
        model: the bytes of its file.
        blanks: rules for blanks other than SentencePiece's, or None.
    """

    kind = 'sentencepiece'
    file = 'spm.model'

    def __init__(
        self,
        model: bytes,
        where: str = 'the tokenizer',
        blanks: Mapping[str, Any] | None = None,
        before: Sequence[Mapping[str, Any]] = (),
    ):
        """Reads the bytes of a *.model.

        Args:
            blanks: fields of `_Blanks`.
            before: normalizers, see the property.
        """
        proto = _checked_model(model, where)
        self.blanks = _Blanks(**blanks) if blanks else None
        self._steps = json.dumps(list(before))  # as text: modules wrap dicts
        self._before = normalizer_of(before, where)
        self._charsmap = bytes(proto.normalizer_spec.precompiled_charsmap)
        super().__init__(
            [piece.piece for piece in proto.pieces],
            _special_ids(proto, where),
            [
                number
                for number, piece in enumerate(proto.pieces)
                if piece.type in (piece.CONTROL, piece.UNUSED)
            ],
            proto.normalizer_spec.name.endswith('_cf')
            or any(step['type'] == 'Lowercase' for step in before),
        )
        self.model = model
        # A model that has tokens for bytes knows no unknown characters.
        self._split_unknown = set(_BYTES).isdisjoint(self.vocabulary)
        if self._split_unknown:
            _add_bytes(proto)
        self._tokenizer = _build(proto, 'pieces')
        # The same model for text that may begin inside a word.
        self._marks_first = proto.normalizer_spec.add_dummy_prefix
        proto.normalizer_spec.add_dummy_prefix = False
        proto.normalizer_spec.remove_extra_whitespaces = False
        self._inside = _build(proto, 'pieces_inside')

    @classmethod
    def learn(
        cls, texts: Iterable[str], size: int, lower_case: bool = True
    ) -> Self:
        """Implements `TextTokenizer.learn`; accents stay."""
        return cls(learn(texts, size, lower_case), 'the learned model')

    @classmethod
    def read(
        cls, path: str | pathlib.Path, lower_case: bool = True, **options: Any
    ) -> Self:
        """Reads a *.model, which says whether case is folded."""
        del lower_case
        path = pathlib.Path(path)
        if not path.is_file():
            raise FileNotFoundError(
                f'{path}: no such vocabulary; --vocab takes a SentencePiece '
                '*.model, or a vocab.txt'
            )
        return cls(path.read_bytes(), str(path), **options)

    @property
    def before(self) -> list[dict[str, Any]]:
        """Normalizers of a tokenizer.json that come before the model's."""
        return json.loads(self._steps)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of `read` besides path and case."""
        options: dict[str, Any] = {}
        if self.blanks is not None:
            options['blanks'] = dataclasses.asdict(self.blanks)
        if self.before:
            options['before'] = self.before
        return options

    @functools.cached_property
    def normalizer(self) -> Normalizer | None:
        """The `Normalizer` of texts."""
        steps = [*self.before]
        if self._charsmap:
            steps.append(normalization.precompiled(self._charsmap))
        return normalizer_of(steps, 'the model') if steps else None

    @functools.cached_property
    def _blank(self) -> str:
        return '|'.join(blanks_of(self._charsmap))

    def write(self, path: str | pathlib.Path) -> None:
        """Writes the *.model."""
        pathlib.Path(path).write_bytes(self.model)

    @property
    def identity(self) -> str:
        """A digest of the model, with scores and normalisation."""
        rules = b'' if self.blanks is None else repr(self.blanks).encode()
        rules += self._steps.encode() if self.before else b''
        digest = hashlib.blake2b(self.model + rules, digest_size=16).hexdigest()
        return f'{self.kind} {digest}'

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Implements `TextTokenizer.tokenize`."""
        strings = self._before(tf.convert_to_tensor(strings, tf.string))
        if self.blanks is not None:
            return self._by_words(self.blanks, _alone(strings), False)[0]
        return self._joined(self._tokenizer.tokenize(strings))[0]

    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Implements `TextTokenizer.tokenize_with_offsets`.

        The spaces before a word (blank, tab, line ends) are not among the
        bytes of its first token. A token without bytes, such as a mark alone
        or the first of several for one character, begins where it ends.
        """
        strings = tf.convert_to_tensor(strings, tf.string)
        tokens, starts, ends = self._offsets(strings)
        if self.blanks is None:
            starts = after_spaces(strings, starts, ends)
        return tokens, starts, ends

    def _offsets(self, strings: tf.Tensor) -> Sequence[tf.RaggedTensor]:
        """Implements `tokenize_with_offsets`, perhaps with spaces before."""

        def whole(plain: PlainTexts, _: bool) -> list[tf.RaggedTensor]:
            tokens = self._tokenizer.tokenize_with_offsets(plain.texts)
            return self._joined(*tokens)

        if self.blanks is None:
            return self._normalised(_alone(strings), whole)
        by_words = functools.partial(self._by_words, self.blanks)
        return self._normalised(_alone(strings), by_words)

    def _normalised(
        self,
        plain: PlainTexts,
        tokenize: Callable[[PlainTexts, bool], Sequence[tf.RaggedTensor]],
        with_offsets: bool = True,
    ) -> Sequence[tf.RaggedTensor]:
        """Calls `tokenize` of texts after `before`; offsets are of the texts
        as they were.
        """
        if not self.before:
            return tokenize(plain, with_offsets)
        texts = self._before(plain.texts)
        parts = tokenize(plain._replace(texts=texts), with_offsets)
        if not with_offsets:
            return parts
        tokens, starts, ends = parts
        bounds = traced(
            self._before.characters(plain.texts),
            string_of(tokens.row_splits),
            starts.values,
            ends.values,
        )
        return tokens, *map(tokens.with_values, bounds)

    def tokenize_between_masks(
        self, texts: tf.Tensor, inside: tf.Tensor
    ) -> tf.RaggedTensor:
        """Implements `TextTokenizer.tokenize_between_masks`.

        After [MASK], text begins with a mark only if a space stands between.
        """
        texts = self._before(tf.convert_to_tensor(texts, tf.string))
        if self.blanks is not None:
            plain = _alone(texts)._replace(follows=inside)
            return self._by_words(self.blanks, plain, False)[0]
        texts = tf.strings.regex_replace(texts, _SPACES, ' ')
        texts = tf.strings.regex_replace(texts, ' $', '')
        first = tf.strings.regex_replace(texts, '^ ', '')
        if self._marks_first:
            marked = tf.strings.join([' ', first])
            first = tf.where(tf.equal(first, ''), '', marked)
        texts = tf.where(inside, texts, first)
        return self._joined(self._inside.tokenize(texts))[0]

    def tokenize_between_added(
        self, plain: PlainTexts, with_offsets: bool
    ) -> tuple[tf.RaggedTensor, ...]:
        """Implements `TextTokenizer.tokenize_between_added`."""
        if self.blanks is None:
            return super().tokenize_between_added(plain, with_offsets)
        by_words = functools.partial(self._by_words, self.blanks)
        return tuple(self._normalised(plain, by_words, with_offsets))

    def _by_words(
        self, blanks: '_Blanks', plain: PlainTexts, with_offsets: bool
    ) -> tuple[tf.RaggedTensor, ...]:
        """Implements `tokenize_between_added`, word by word."""
        strings = plain.texts
        words = blanks.words(plain, self._blank)
        if not with_offsets:
            (ids,) = self._joined(self._inside.tokenize(words.values))
        else:
            ids, first, last = self._joined(
                *self._inside.tokenize_with_offsets(words.values)
            )
        splits = tf.gather(ids.row_splits, words.row_splits)
        tokens = ragged(ids.values, splits)
        if not with_offsets:
            return (tokens,)
        number = string_of(ids.row_splits)
        sizes = tf.cast(tf.strings.length(words.values), tf.int64)
        begin = tf.gather(tf.cumsum(sizes, exclusive=True), number)
        # The solid bytes of words are those of the strings, in order.
        solid = tf.cumsum(
            tf.pad(tf.cast(_solid(words.values), tf.int64), [[1, 0]])
        )
        first = tf.gather(solid, begin + first.values)
        last = tf.gather(solid, begin + last.values)
        lengths = tf.cast(tf.strings.length(strings), tf.int64)
        place = tf.concat(
            [tf.where(_solid(strings))[:, 0], [tf.reduce_sum(lengths)]], 0
        )
        string = string_of(splits)
        begin = tf.gather(tf.cumsum(lengths, exclusive=True), string)
        start = tf.minimum(
            tf.gather(place, first) - begin, tf.gather(lengths, string)
        )
        end = tf.gather(place, tf.maximum(last - 1, 0)) - begin + 1
        end = tf.where(last > first, end, start)
        return tokens, tokens.with_values(start), tokens.with_values(end)

    def detokenize(self, ids: Sequence[int]) -> str:
        """Implements `TextTokenizer.detokenize`."""
        ids = [int(i) for i in ids if i not in self.control_ids]
        joined = self._tokenizer.detokenize(tf.constant(ids, tf.int32))
        return joined.numpy().decode(errors='replace')

    def tokenize_flat(self, strings: Sequence[bytes]) -> FlatTokens:
        """Implements `TextTokenizer.tokenize_flat`.

        Words begin at spaces of the text and not at marks: NFKC makes spaces
        of other characters, such as U+00A8.
        """
        texts = tf.constant(strings, tf.string)
        tokens, starts, ends = self._offsets(texts)
        # The bytes of a token include the spaces before it, and what
        # normalisation deletes there: only the last byte is sure to be its
        # own. Some tokens have no bytes.
        lasts = np.maximum(starts.values.numpy(), ends.values.numpy() - 1)
        return with_word_starts(strings, tokens, lasts)

    def _joined(
        self, tokens: tf.RaggedTensor, *offsets: tf.RaggedTensor
    ) -> list[tf.RaggedTensor]:
        """Joins byte tokens (`_add_bytes`) in a row to one [UNK].

        Args:
            tokens: ids [B, tokens].
            *offsets: starts and ends, likewise; or nothing.

        Returns:
            As many tensors as come in.
        """
        if not self._split_unknown:
            return [tokens, *offsets]
        ids, splits = tokens.values, tokens.row_splits
        unknown = ids >= len(self)
        number = string_of(splits)
        goes_on = unknown[1:] & unknown[:-1] & (number[1:] == number[:-1])
        stays = tf.concat([ids[:1] >= 0, ~goes_on], axis=0)
        first = tf.where(stays)[:, 0]
        last = tf.concat([first, splits[-1:]], axis=0)[1:] - 1
        before = tf.cumsum(tf.pad(tf.cast(stays, tf.int64), [[1, 0]]))
        splits = tf.gather(before, splits)
        joined = [tf.gather(tf.where(unknown, self.unk_id, ids), first)]
        if offsets:
            starts, ends = offsets
            joined += [
                tf.gather(starts.values, first), tf.gather(ends.values, last)
            ]  # fmt: skip
        return [ragged(values, splits) for values in joined]


@dataclasses.dataclass(frozen=True)
class _Blanks:
    """Rules for blanks of a Unigram of the library `tokenizers`.

    Attributes:
        rewrites: expressions and their replacements, in order.
        white: whether all white space splits words; else blanks do.
        scheme: name of the words without a blank before them that get a mark:
            all ('always'), the first of a text ('first') or none ('never').
        split: whether a word begins at each mark.
    """

    rewrites: Sequence[Sequence[str]]
    white: bool
    scheme: str
    split: bool

    def words(self, plain: PlainTexts, blank: str) -> tf.RaggedTensor:
        """Splits texts [B] into words [B, words].

        Args:
            blank: an expression of `blanks_of`, '' for none.
        """
        replace = tf.strings.regex_replace
        strings, follows = plain.texts, plain.follows
        texts = replace(strings, blank, ' ') if blank else strings
        rewrites = self.rewrites
        for pattern, rewrite in rewrites:
            applies = tf.ones_like(follows)
            if pattern[0] == '^':
                applies = plain.begins
            elif pattern[-1] == '$':
                applies = plain.ends
            texts = tf.where(applies, replace(texts, pattern, rewrite), texts)
        if self.white:
            words = tf.strings.split(replace(texts, f'{BLANK}+', ' '))
        else:
            words = tf.RaggedTensor.from_row_lengths(
                replace(texts, ' ', _MARK), tf.ones_like(follows, tf.int64)
            )
        flat = words.values
        if self.scheme != 'never':
            bare = ~tf.strings.regex_full_match(flat, rf'(?:{_MARK}\C*)?')
            if self.scheme == 'first':
                begins = follows | tf.not_equal(
                    tf.strings.length(replace(strings, f'^{BLANK}+', '')),
                    tf.strings.length(strings),
                )
                stripped = self.white or any(p[0] == '^' for p, _ in rewrites)
                begins = begins if stripped else follows
                place = tf.range(tf.size(flat, tf.int64))
                string = string_of(words.row_splits)
                bare &= place == tf.gather(words.row_splits, string)
                bare &= ~tf.gather(begins, string)
            flat = tf.where(bare, tf.strings.join([_MARK, flat]), flat)
        if not self.split:
            return words.with_values(flat)
        split = tf.strings.split(replace(flat, f'({_MARK})', _EDGE), _APART)
        return ragged(
            split.values, tf.gather(split.row_splits, words.row_splits)
        )


def blanks_of(charsmap: bytes) -> list[str]:
    """Lists white space that a table of characters makes a blank of.

    A line end of two characters is first: `tokenizers` reads it as one.
    """
    if not charsmap:
        return []
    from tokenizers import normalizers

    normalize = normalizers.Precompiled(charsmap).normalize_str
    return [x for x in ['\r\n', *map(chr, _WHITE)] if normalize(x) == ' ']


def _alone(strings: tf.Tensor) -> PlainTexts:
    """Returns texts without added tokens."""
    strings = tf.convert_to_tensor(strings, tf.string)
    yes = tf.ones_like(strings, tf.bool)
    return PlainTexts(strings, ~yes, yes, yes)


def _solid(strings: tf.Tensor) -> tf.Tensor:
    """Marks the bytes of all strings but white space and marks, bool."""
    codes, starts = tf.strings.unicode_decode_with_offsets(strings, 'UTF-8')
    lengths = tf.cast(tf.strings.length(strings), tf.int64)
    base = tf.cumsum(lengths, exclusive=True)
    place = starts.values + tf.gather(base, string_of(codes.row_splits))
    total = tf.reduce_sum(lengths)
    widths = tf.concat([place[1:], [total]], 0) - place
    blank = tf.reduce_any(codes.values[:, None] == _WHITE, 1)
    return tf.repeat(~blank, widths)


def learn(texts: Iterable[str], size: int, lower_case: bool = True) -> bytes:
    """Learns a unigram model (Kudo 2018) with NFKC; args and errors as of
    `TextTokenizer.learn`. Specials come first, then tokens by score.
    """
    import sentencepiece

    lines = [
        line
        for text in sorted(sample_texts(texts))
        for line in _LINE.findall(' '.join(text.split()))
    ]
    too_small = no_room(
        size,
        'for the special tokens and the characters of the corpus; a few '
        'thousand is usual',
    )
    if size <= len(SPECIALS):
        raise too_small
    if not lines:
        raise no_text()
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type='unigram',
            vocab_size=size,
            hard_vocab_limit=False,
            normalization_rule_name='nmt_nfkc_cf' if lower_case else 'nmt_nfkc',
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            pad_piece=PAD,
            unk_piece=UNK,
            control_symbols=[
                CLS, SEP, MASK
            ],
            num_threads=_THREADS,
            minloglevel=2,
        )  # fmt: skip
    except RuntimeError as error:
        if 'required_chars' not in str(error):
            raise
        raise too_small from error
    return model.getvalue()


def _add_bytes(proto: Any) -> None:
    """Adds a token for each byte after the tokens of a model.

    SentencePiece joins neighbouring unknown characters to one token by copying
    all of it for each: a megabyte takes half a minute. With byte tokens it
    returns bytes instead, which `_joined` joins in one pass; known text is
    tokenized as before.
    """
    for name in _BYTES:
        proto.pieces.add(piece=name, type=proto.SentencePiece.BYTE)
    proto.trainer_spec.byte_fallback = True


class _Model(tf.saved_model.experimental.TrackableResource):
    """A model in TensorFlow's memory, for as long as the process lives.

    Equal models share a name and the memory. Without a `shared_name` a model
    would be lost with the kernel that made it, which `tf.random.set_seed` and
    `keras.utils.set_random_seed` throw away.
    """

    def __init__(self, model: bytes, name: str):
        """Loads the bytes of a *.model; `name` is of the operation."""
        super().__init__()
        self._model, self._name = model, name
        _ = self.resource_handle  # creates the resource

    def _create_resource(self) -> tf.Tensor:
        digest = hashlib.blake2b(self._model, digest_size=16).hexdigest()
        operations = sentencepiece_tokenizer.gen_sentencepiece_tokenizer
        return operations.sentencepiece_op(
            model=self._model,
            shared_name=f'sentencepiece_{digest}',
            name=self._name,
        )


def _build(proto: Any, name: str) -> tf_text.SentencepieceTokenizer:
    model = proto.SerializeToString(deterministic=True)
    tokenizer = tf_text.SentencepieceTokenizer(model, name=name)
    tokenizer._model_resource = _Model(model, name)
    return tokenizer


def empty_model() -> Any:
    """Makes a ModelProto without pieces."""
    from sentencepiece import sentencepiece_model_pb2

    # The module makes its classes when it is imported.
    return sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]


def parse_model(model: bytes, where: Any) -> Any:
    """Parses a ModelProto; ValueError: damaged."""
    from google.protobuf import message

    proto = empty_model()
    try:
        proto.ParseFromString(model)
    except message.DecodeError as error:
        raise _damaged(where, error) from error
    return proto


def _damaged(where: Any, error: Any) -> errors.InputError:
    return errors.InputError(
        'damaged_model',
        f'{where} is no SentencePiece model, or is damaged ({error})',
    )


def _checked_model(model: bytes, where: str) -> Any:
    """Parses and checks a ModelProto."""
    import sentencepiece

    proto = parse_model(model, where)
    if not proto.pieces:
        raise _damaged(where, 'it has no pieces')
    try:
        names = [proto.normalizer_spec.name, *(x.piece for x in proto.pieces)]
        ''.join(names)  # bytes among them are not UTF-8
        sentencepiece.SentencePieceProcessor(model_proto=model)
    except (RuntimeError, ValueError, TypeError) as error:
        raise _damaged(where, error) from error
    if proto.trainer_spec.treat_whitespace_as_suffix:
        raise errors.InputError(
            'ends_of_words_marked',
            f'{where} marks the ends of words (treat_whitespace_as_suffix), '
            'but rows want their beginnings; train it without that option',
        )
    return proto


def _special_ids(proto: Any, where: str) -> list[int]:
    """Returns the ids of the special tokens, found by `NAMES`."""
    index = {piece.piece: i for i, piece in enumerate(proto.pieces)}
    ids, missing = [], []
    for name, known in NAMES.items():
        number = next((index[k] for k in known if k in index), None)
        if name == UNK:  # every model has one, by any name
            number = next(
                i for i, p in enumerate(proto.pieces) if p.type == p.UNKNOWN
            )
        elif number is None:
            missing.append(' or '.join(known))
            continue
        elif proto.pieces[number].type != proto.pieces[number].CONTROL:
            raise errors.InputError(
                'special_in_texts',
                f'{where}: {proto.pieces[number].piece} is a token that text '
                'can spell; train the model with --control_symbols for it',
            )
        ids.append(number)
    if missing:
        raise errors.InputError(
            'model_without_specials',
            f'{where}: the model lacks {", ".join(missing)}; train it with '
            '--control_symbols=[CLS],[SEP],[MASK] --pad_piece=[PAD] --pad_id=0 '
            '--unk_id=1 --bos_id=-1 --eos_id=-1, or leave out --vocab to learn '
            'one from the corpus',
        )
    return ids
