"""SentencePiece: pieces of text that carry the spaces before them.

Kudo and Richardson 2018, with the unigram model of Kudo 2018. A model holds
its pieces, how it normalises text (NFKC, case, runs of spaces) and how it
chooses among the ways to part it; spaces are written as the mark U+2581, one
also before the first word.

`SentencepieceTokenizer` maps its offsets to the original bytes;
`FastSentencepieceTokenizer` has none.

Glossary of shapes: B strings, N pieces of all strings together, S bytes of
all strings together.
"""

import dataclasses
import functools
import hashlib
import io
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.python.ops import sentencepiece_tokenizer

from infoword_tf.text import normalization
from infoword_tf.text import vocabulary as vocabularies
from infoword_tf.text.characters import after_spaces
from infoword_tf.text.normalizers import BLANK, Mapped
from infoword_tf.text.tokenizer import (
    Between,
    Pieces,
    Tokenizer,
    string_of,
    with_word_starts,
)

# What public models call the special pieces: ALBERT as BERT, XLNet otherwise,
# XLM-R as fairseq does.
NAMES = {
    vocabularies.PAD: ('[PAD]', '<pad>'),
    vocabularies.UNK: ('[UNK]', '<unk>'),
    vocabularies.CLS: ('[CLS]', '<cls>', '<s>'),
    vocabularies.SEP: ('[SEP]', '<sep>', '</s>'),
    vocabularies.MASK: ('[MASK]', '<mask>'),
}
# The shares of a sum over threads depend on their number, hence also what is
# learned: it is the same everywhere.
_THREADS = 4
# Words of up to 512 characters together, or so much of a longer one: the time
# that learning takes grows with the square of a line that repeats itself (60
# kB of one word: 18 s), and a line of more than 4 kB would be left out.
_LINE = re.compile(r'\S(?:.{0,510}\S)?(?!\S)|\S{1,512}')
_BYTES = tuple(f'<0x{byte:02X}>' for byte in range(256))
_MARK = '\u2581'
_APART = b'\xff'  # no byte of UTF-8
_EDGE = _APART + rb'\1'
_WHITE = [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B),
          0x2028, 0x2029, 0x202F, 0x205F, 0x3000, ord(_MARK)]  # fmt: skip
_SPACES = r'[\s\p{Z}]+'


class SentencePiece(Tokenizer):
    """A SentencePiece model of any type whose specials are control symbols.

    Attributes:
        model: what its file holds.
        blanks: what is done with blanks, as `_Blanks` takes it, where it is
            not what SentencePiece does; else None.
    """

    kind = 'sentencepiece'
    file = 'spm.model'

    def __init__(
        self,
        model: bytes,
        where: str = 'the tokenizer',
        blanks: Mapping[str, Any] | None = None,
    ):
        """Args: what a file *.model holds, what to call it in a ValueError,
        `blanks` as the attribute.
        """
        proto = _parse(model, where)
        self.blanks = blanks and _Blanks(**blanks)
        self._maps = bytes(proto.normalizer_spec.precompiled_charsmap)
        super().__init__(
            [piece.piece for piece in proto.pieces],
            _special_ids(proto, where),
            [
                number
                for number, piece in enumerate(proto.pieces)
                if piece.type in (piece.CONTROL, piece.UNUSED)
            ],
            proto.normalizer_spec.name.endswith('_cf'),
        )
        self.model = model
        # A model that has pieces for bytes knows no unknown characters.
        self._split_unknown = set(_BYTES).isdisjoint(self.vocabulary)
        if self._split_unknown:
            _name_bytes(proto)
        self._tokenizer = _build(proto, 'pieces')
        # The same pieces for text that may begin inside a word.
        self._marks_first = proto.normalizer_spec.add_dummy_prefix
        proto.normalizer_spec.add_dummy_prefix = False
        proto.normalizer_spec.remove_extra_whitespaces = False
        self._inside = _build(proto, 'pieces_inside')

    @classmethod
    def learn(
        cls, texts: Iterable[str], size: int, lower_case: bool = True
    ) -> Self:
        """As `Tokenizer.learn`; accents stay."""
        return cls(learn(texts, size, lower_case), 'the learned model')

    @classmethod
    def read(
        cls, path: str | pathlib.Path, lower_case: bool = True, **options: Any
    ) -> Self:
        """As `Tokenizer.read`; the model itself says whether it folds case."""
        del lower_case
        path = pathlib.Path(path)
        if not path.is_file():
            raise FileNotFoundError(
                f'{path}: no such vocabulary; --vocab takes a SentencePiece '
                '*.model, or a vocab.txt'
            )
        return cls(path.read_bytes(), str(path), **options)

    @property
    def options(self) -> dict[str, Any]:
        """As `Tokenizer.options`."""
        if self.blanks is None:
            return {}
        return {'blanks': dataclasses.asdict(self.blanks)}

    @functools.cached_property
    def normalizer(self) -> Mapped | None:
        """As `Tokenizer.normalizer`."""
        if not self._maps:
            return None
        with tf.init_scope():
            return Mapped(normalization.mapped(self._maps))

    @functools.cached_property
    def _blank(self) -> str:
        return '|'.join(blanks_of(self._maps))

    def write(self, path: str | pathlib.Path) -> None:
        """Writes the model as it was given."""
        pathlib.Path(path).write_bytes(self.model)

    @property
    def identity(self) -> str:
        """A digest of the model: scores and normalisation count too."""
        rules = b'' if self.blanks is None else repr(self.blanks).encode()
        digest = hashlib.blake2b(self.model + rules, digest_size=16).hexdigest()
        return f'{self.kind} {digest}'

    def tokenize(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """As `Tokenizer.tokenize`."""
        if self.blanks is not None:
            return self._by_words(_alone(strings), False)[0]
        return self._joined(self._tokenizer.tokenize(strings))[0]

    def tokenize_with_offsets(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """As `Tokenizer.tokenize_with_offsets`.

        The spaces before a word (blank, tab, line ends) are not among the
        bytes of its first piece. A piece that has no bytes of its own, such
        as a mark alone or the first of several for one character, begins
        where it ends.
        """
        strings = tf.convert_to_tensor(strings, tf.string)
        if self.blanks is not None:
            return self._by_words(_alone(strings), True)
        tokens, starts, ends = self._joined(
            *self._tokenizer.tokenize_with_offsets(strings)
        )
        return tokens, after_spaces(strings, starts, ends), ends

    def tokenize_parts(
        self, parts: tf.Tensor, inside: tf.Tensor
    ) -> tf.RaggedTensor:
        """As `Tokenizer.tokenize_parts`.

        After a [MASK] only what a space parts from it begins with a mark, as
        in the text that a model has learned from.
        """
        if self.blanks is not None:
            whole = _alone(parts)._replace(after=inside)
            return self._by_words(whole, False)[0]
        parts = tf.strings.regex_replace(parts, _SPACES, ' ')
        parts = tf.strings.regex_replace(parts, ' $', '')
        first = tf.strings.regex_replace(parts, '^ ', '')
        if self._marks_first:
            marked = tf.strings.join([' ', first])
            first = tf.where(tf.equal(first, ''), '', marked)
        parts = tf.where(inside, parts, first)
        return self._joined(self._inside.tokenize(parts))[0]

    def tokenize_between(
        self, parts: Between, places: bool
    ) -> tuple[tf.RaggedTensor, ...]:
        """As `Tokenizer.tokenize_between`."""
        if self.blanks is None:
            return super().tokenize_between(parts, places)
        return self._by_words(parts, places)

    def _by_words(
        self, parts: Between, places: bool
    ) -> tuple[tf.RaggedTensor, ...]:
        """Each word by itself; as `tokenize_between`."""
        strings = parts.texts
        words = self.blanks.words(parts, self._blank)
        read = self._inside
        if not places:
            (ids,) = self._joined(read.tokenize(words.values))
        else:
            ids, first, last = self._joined(
                *read.tokenize_with_offsets(words.values)
            )
        splits = tf.gather(ids.row_splits, words.row_splits)
        rows = tf.RaggedTensor.from_row_splits(
            ids.values, splits, validate=False
        )
        if not places:
            return (rows,)
        number = string_of(ids.row_splits)
        sizes = tf.cast(tf.strings.length(words.values), tf.int64)
        begin = tf.gather(tf.cumsum(sizes, exclusive=True), number)
        # Words have all that is no blank, in its order.
        solid = tf.cumsum(
            tf.pad(tf.cast(_solid(words.values), tf.int64), [[1, 0]])
        )
        first = tf.gather(solid, begin + first.values)
        last = tf.gather(solid, begin + last.values)
        lengths = tf.cast(tf.strings.length(strings), tf.int64)
        place = tf.concat(
            [tf.where(_solid(strings))[:, 0], [tf.reduce_sum(lengths)]], 0
        )
        row = string_of(splits)
        begin = tf.gather(tf.cumsum(lengths, exclusive=True), row)
        start = tf.minimum(
            tf.gather(place, first) - begin, tf.gather(lengths, row)
        )
        end = tf.gather(place, tf.maximum(last - 1, 0)) - begin + 1
        end = tf.where(last > first, end, start)
        return rows, rows.with_values(start), rows.with_values(end)

    def text(self, ids: Sequence[int]) -> str:
        """As `Tokenizer.text`."""
        kept = [int(i) for i in ids if i not in self.control_ids]
        joined = self._tokenizer.detokenize(tf.constant(kept, tf.int32))
        return joined.numpy().decode(errors='replace')

    def pieces(self, strings: Sequence[bytes]) -> Pieces:
        """As `Tokenizer.pieces`.

        Words are found by the spaces of the text and not by marks: NFKC also
        makes spaces where none was, such as of U+00A8.
        """
        texts = tf.constant(strings, tf.string)
        if self.blanks is not None:
            tokens, starts, ends = self._by_words(_alone(texts), True)
        else:
            tokens, starts, ends = self._joined(
                *self._tokenizer.tokenize_with_offsets(texts)
            )
        # A piece has the spaces before it, and what normalisation deletes
        # there; its last byte is its own. Some have none at all.
        places = np.maximum(starts.values.numpy(), ends.values.numpy() - 1)
        return with_word_starts(strings, tokens, places)

    def _joined(
        self,
        tokens: tf.RaggedTensor,
        starts: tf.RaggedTensor | None = None,
        ends: tf.RaggedTensor | None = None,
    ) -> list[tf.RaggedTensor]:
        """What was given, with one [UNK] for bytes (`_name_bytes`) in a row."""
        given = [part for part in (tokens, starts, ends) if part is not None]
        if not self._split_unknown:
            return given
        ids, splits = tokens.values, tokens.row_splits
        unknown = ids >= len(self)
        number = string_of(splits)
        goes_on = unknown[1:] & unknown[:-1] & (number[1:] == number[:-1])
        stays = tf.concat([ids[:1] >= 0, ~goes_on], axis=0)
        first = tf.where(stays)[:, 0]
        last = tf.concat([first, splits[-1:]], axis=0)[1:] - 1
        before = tf.cumsum(tf.pad(tf.cast(stays, tf.int64), [[1, 0]]))
        splits = tf.gather(before, splits)
        kept = [tf.gather(tf.where(unknown, self.unk_id, ids), first)]
        if starts is not None:
            kept += [
                tf.gather(starts.values, first), tf.gather(ends.values, last)
            ]  # fmt: skip
        return [
            tf.RaggedTensor.from_row_splits(part, splits, validate=False)
            for part in kept
        ]


@dataclasses.dataclass(frozen=True)
class _Blanks:
    """What other code than SentencePiece's does with blanks: `tokenizers`.

    Attributes:
        rewrites: expressions and what is written instead, in order.
        white: whether all white space parts words; else blanks do.
        scheme: before which words a mark is written that had no blank: of all
            ('always'), the first of a text ('first') or none ('never').
        split: whether a word begins at each mark.
    """

    rewrites: Sequence[Sequence[str]]
    white: bool
    scheme: str
    split: bool

    def words(self, parts: Between, blank: str) -> tf.RaggedTensor:
        """Parts texts [B] into words [B, words]; `blank`: an expression of what
        a table of characters makes one blank of, '' where it does not.
        """
        replace = tf.strings.regex_replace
        strings, after = parts.texts, parts.after
        texts = replace(strings, blank, ' ') if blank else strings
        rewrites = self.rewrites
        for pattern, rewrite in rewrites:
            where = tf.ones_like(after)
            if pattern[0] == '^':
                where = parts.begins
            elif pattern[-1] == '$':
                where = parts.ends
            texts = tf.where(where, replace(texts, pattern, rewrite), texts)
        if self.white:
            words = tf.strings.split(replace(texts, f'{BLANK}+', ' '))
        else:
            words = tf.RaggedTensor.from_row_lengths(
                replace(texts, ' ', _MARK), tf.ones_like(after, tf.int64)
            )
        flat = words.values
        if self.scheme != 'never':
            bare = ~tf.strings.regex_full_match(flat, rf'(?:{_MARK}\C*)?')
            if self.scheme == 'first':
                begins = after | tf.not_equal(
                    tf.strings.length(replace(strings, f'^{BLANK}+', '')),
                    tf.strings.length(strings),
                )
                stripped = self.white or any(p[0] == '^' for p, _ in rewrites)
                begins = begins if stripped else after
                place = tf.range(tf.size(flat, tf.int64))
                row = string_of(words.row_splits)
                bare &= place == tf.gather(words.row_splits, row)
                bare &= ~tf.gather(begins, row)
            flat = tf.where(bare, tf.strings.join([_MARK, flat]), flat)
        if not self.split:
            return words.with_values(flat)
        parts = tf.strings.split(replace(flat, f'({_MARK})', _EDGE), _APART)
        return tf.RaggedTensor.from_row_splits(
            parts.values,
            tf.gather(parts.row_splits, words.row_splits),
            validate=False,
        )


def blanks_of(charsmap: bytes) -> list[str]:
    """Lists the white space that a table of characters makes one blank of.

    An end of a line of two characters is first: `tokenizers` reads it as one.
    """
    if not charsmap:
        return []
    from tokenizers import normalizers

    written = normalizers.Precompiled(charsmap).normalize_str
    return [x for x in ['\r\n', *map(chr, _WHITE)] if written(x) == ' ']


def _alone(strings: tf.Tensor) -> Between:
    """Texts with nothing around them."""
    strings = tf.convert_to_tensor(strings, tf.string)
    yes = tf.ones_like(strings, tf.bool)
    return Between(strings, ~yes, yes, yes)


def _solid(strings: tf.Tensor) -> tf.Tensor:
    """Which bytes of all strings are neither white space nor marks, bool."""
    codes, starts = tf.strings.unicode_decode_with_offsets(strings, 'UTF-8')
    lengths = tf.cast(tf.strings.length(strings), tf.int64)
    base = tf.cumsum(lengths, exclusive=True)
    row = string_of(codes.row_splits)
    place = starts.values + tf.gather(base, row)
    total = tf.reduce_sum(lengths)
    widths = tf.concat([place[1:], [total]], 0) - place
    blank = tf.reduce_any(codes.values[:, None] == _WHITE, 1)
    return tf.repeat(~blank, widths)


def learn(texts: Iterable[str], size: int, lower_case: bool = True) -> bytes:
    """Learns a unigram model (Kudo 2018) with NFKC, and perhaps case folding.

    Args and errors are those of `Tokenizer.learn`. Specials come first, then
    pieces by their scores.
    """
    import sentencepiece

    lines = [
        line
        for text in sorted(vocabularies.sample(texts))
        for line in _LINE.findall(' '.join(text.split()))
    ]
    no_room = (
        f'--vocab_size={size} has no room for the special pieces and the '
        'characters of the corpus; a few thousand is usual'
    )
    if size <= len(vocabularies.SPECIALS):
        raise ValueError(no_room)
    if not lines:
        raise ValueError(vocabularies.NO_TEXT)
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
            pad_piece=vocabularies.PAD,
            unk_piece=vocabularies.UNK,
            control_symbols=[
                vocabularies.CLS, vocabularies.SEP, vocabularies.MASK
            ],
            num_threads=_THREADS,
            minloglevel=2,
        )  # fmt: skip
    except RuntimeError as error:
        if 'required_chars' not in str(error):
            raise
        raise ValueError(no_room) from error
    return model.getvalue()


def _name_bytes(proto: Any) -> None:
    """Adds a piece for each byte, after those of the model.

    SentencePiece joins unknown neighbours to one piece by copying what it has
    for each of them: a megabyte takes half a minute. With such pieces it
    gives the bytes instead; it parts what is known as before. `_joined` then
    does in one pass what was wanted.
    """
    for name in _BYTES:
        proto.pieces.add(piece=name, type=proto.SentencePiece.BYTE)
    proto.trainer_spec.byte_fallback = True


class _Model(tf.saved_model.experimental.TrackableResource):
    """A model in TensorFlow's memory, for as long as the process lives.

    Equal models are one. Without a name of its own it would go with the kernel
    that made it, which `tf.random.set_seed`, and with it
    `keras.utils.set_random_seed`, throws away.
    """

    def __init__(self, model: bytes, name: str):
        """Args: what a file *.model holds; of the operation."""
        super().__init__()
        self._model, self._name = model, name
        _ = self.resource_handle  # makes it

    def _create_resource(self) -> tf.Tensor:
        digest = hashlib.blake2b(self._model, digest_size=16).hexdigest()
        operations = sentencepiece_tokenizer.gen_sentencepiece_tokenizer
        return operations.sentencepiece_op(
            model=self._model,
            shared_name=f'sentencepiece_{digest}',
            name=self._name,
        )


def _build(proto: Any, name: str) -> tf_text.SentencepieceTokenizer:
    """The tokenizer of a model."""
    model = proto.SerializeToString(deterministic=True)
    tokenizer = tf_text.SentencepieceTokenizer(model, name=name)
    tokenizer._model_resource = _Model(model, name)
    return tokenizer


def _parse(model: bytes, where: str) -> Any:
    """The ModelProto, once it is known to be one that can be used."""
    import sentencepiece
    from google.protobuf import message
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()
    try:
        proto.ParseFromString(model)
        if not proto.pieces:
            raise ValueError('it has no pieces')
        names = [proto.normalizer_spec.name, *(x.piece for x in proto.pieces)]
        if not all(isinstance(name, str) for name in names):
            raise ValueError('some of its strings are not UTF-8')
        sentencepiece.SentencePieceProcessor(model_proto=model)
    except (message.DecodeError, RuntimeError, ValueError) as error:
        raise ValueError(
            f'{where} is no SentencePiece model, or is damaged ({error})'
        ) from error
    if proto.trainer_spec.treat_whitespace_as_suffix:
        raise ValueError(
            f'{where} marks the ends of words (treat_whitespace_as_suffix), '
            'but rows want their beginnings; train it without that option'
        )
    return proto


def _special_ids(proto: Any, where: str) -> list[int]:
    """The ids of the special pieces, by the names that models give them."""
    index = {piece.piece: i for i, piece in enumerate(proto.pieces)}
    ids, missing = [], []
    for name, known in NAMES.items():
        number = next((index[k] for k in known if k in index), None)
        if name == vocabularies.UNK:  # every model has one, however called
            number = next(
                i for i, p in enumerate(proto.pieces) if p.type == p.UNKNOWN
            )
        elif number is None:
            missing.append(' or '.join(known))
        elif proto.pieces[number].type != proto.pieces[number].CONTROL:
            raise ValueError(
                f'{where}: {proto.pieces[number].piece} is a piece that text '
                'can spell; train the model with --control_symbols for it'
            )
        ids.append(number)
    if missing:
        raise ValueError(
            f'{where}: the model lacks {", ".join(missing)}; train it with '
            '--control_symbols=[CLS],[SEP],[MASK] --pad_piece=[PAD] --pad_id=0 '
            '--unk_id=1 --bos_id=-1 --eos_id=-1, or leave out --vocab to learn '
            'one from the corpus'
        )
    return ids
