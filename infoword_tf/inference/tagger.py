"""Labels of words, of texts of any length, by a row of tags.

A text that is too long is read in windows; each token counts in the window that
shows most context. Glossary of shapes: G windows of all texts, A tokens of all
texts, Q labelled tokens of all texts, C labels, E spans of a text at most.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from keras import ops

from infoword_tf.inference import context_windows
from infoword_tf.inference.answers import NOWHERE
from infoword_tf.inference.states import Predictor
from infoword_tf.layers.crf import chains_of
from infoword_tf.layers.pooling import real_places
from infoword_tf.objectives.tag import ALL, Tags
from infoword_tf.tensors import Tensor
from infoword_tf.text import characters, strings, tags, words
from infoword_tf.text.template import Template, padded
from infoword_tf.text.tokenizer import ragged, string_of

_TEXTS = 256  # whose windows are in memory at once
_COPIED = 1 << 25  # bytes of texts that spans are cut out of at a time


class TextWindows(NamedTuple):
    """Texts as windows for the model.

    Attributes:
        ids: [G, T] int32.
        lengths: [G] int32, with special tokens.
        tokens: [tokens of all windows] int64, their numbers among A.
        most: [tokens of all windows] bool, whether a token has most context in
            its window.
        sizes: [G] int32, tokens of the text in each window.
        labelled: [A] bool, the tokens that are labelled.
        starts, ends: [B, labelled tokens] int64, bytes of each word.
    """

    ids: Tensor
    lengths: Tensor
    tokens: Tensor
    most: Tensor
    sizes: Tensor
    labelled: Tensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


class Span(NamedTuple):
    """Words of a text with one label.

    Attributes:
        text: part of the text that the span covers.
        label: the type of span, such as PER.
        score: mean probability of the words' labels.
        begin, end: bytes of the text.
    """

    text: str
    label: str
    score: float
    begin: int
    end: int


class Tagger(Predictor):
    """The labels that a workdir gives the words of texts."""

    @functools.cached_property
    def head(self) -> Tags:
        """The row of tags; ValueError: the model has none."""
        objectives = self.workdir.model.objectives
        return objectives[self.states.row_that('tags')]

    @functools.cached_property
    def kinds(self) -> tags.Kinds:
        """Types, beginnings and ends of spans, by label."""
        return tags.kinds_of(self.config.labels, self.head.tokens == ALL)

    @functools.cached_property
    def _graph(self) -> Any:
        """A graph of `token_scores`."""
        spec = (
            tf.TensorSpec((None, None), tf.int32),
            tf.TensorSpec((None,), tf.int32),
        )
        return tf.function(
            self.token_scores, input_signature=spec, autograph=False
        )

    @functools.cached_property
    def decide(self) -> Any:
        """A graph of `labels`: a CRF is a loop over words."""
        return tf.function(self.labels, autograph=False, reduce_retracing=True)

    def windows(self, texts: Tensor) -> TextWindows:
        """Splits texts [B] string into windows; graph or eager."""
        workdir, head = self.workdir, self.head
        return windows_of(
            texts,
            workdir.template,
            max_length=workdir.max_length,
            context=head.context,
            which=head.tokens,
        )

    def token_scores(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Scores the labels of the tokens of windows, without special tokens.

        Args:
            ids: [G, T] int32.
            lengths: [G] int32.

        Returns:
            [tokens of all windows, C] float32.
        """
        head, workdir = self.head, self.workdir
        encoded = self.states.encode(ids, lengths, head.layers)
        padding = ops.cast(ops.logical_not(real_places(ids, lengths)), 'int32')
        scores = head.scores_of(encoded.states, encoded.layers or [], padding)
        column = tf.range(tf.shape(ids)[1])[None, :]
        inside = column >= len(workdir.before)
        inside &= column < (lengths - len(workdir.after))[:, None]
        return tf.boolean_mask(scores, inside)

    def labels(
        self, windows: TextWindows, scores: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Decides on the labels of words; graph or eager.

        Args:
            windows: windows over the texts.
            scores: result of `token_scores` for all windows.

        Returns:
            [Q] int32 numbers of labels, and [Q] float32 how likely they are.
        """
        scores = tf.boolean_mask(scores, windows.most)
        scores = tf.boolean_mask(scores, windows.labelled)
        if not self.head.crf:
            chosen = tf.argmax(scores, axis=1, output_type=tf.int32)
            shares = tf.nn.softmax(scores)
        else:
            splits = windows.starts.row_splits
            sizes = splits[1:] - splits[:-1]
            dense = ragged(scores, splits).to_tensor(0.0)
            dense = tf.pad(dense, [[0, 0], [0, 1], [0, 0]])  # at least one
            dense.set_shape((None, None, len(self.config.labels)))
            word = tf.sequence_mask(sizes, tf.shape(dense)[1])
            chains = chains_of(word, tf.zeros_like(word, tf.int32))
            best = self.head.chain.best(dense, chains)
            log_p, _ = self.head.chain.posteriors(dense, None, chains)
            chosen, shares = (
                tf.boolean_mask(x, word) for x in (best, tf.exp(log_p))
            )
        return chosen, tf.gather(shares, chosen, batch_dims=1)

    def spans(
        self,
        texts: Tensor,
        windows: TextWindows,
        chosen: Tensor,
        shares: Tensor,
    ) -> dict[str, Tensor]:
        """Joins words of one label; graph or eager.

        Args:
            texts: [B] string.
            windows: windows over the texts.
            chosen, shares: results of `labels`.

        Returns:
            'texts', 'labels' [B, E] string, 'scores' [B, E] float32, 'begins'
            and 'ends' [B, E] int32, bytes of the text (NOWHERE, '' and 0 where
            there are fewer), in their order; 'count' [B] int32.
        """
        kinds, number = self.kinds, string_of(windows.starts.row_splits)
        kind = tf.gather(kinds.numbers, chosen)

        def before(values: Tensor, none: Any) -> Tensor:
            return tf.concat([[none], values[:-1]], axis=0)

        begins = tags.begin_spans(
            numbers=kind,
            before=before(kind, -1),
            begins=tf.gather(kinds.begins, chosen),
            ended=before(tf.gather(kinds.ends, chosen), False),
            first=before(number, tf.constant(-1, tf.int64)) != number,
        )
        span = tf.cumsum(tf.cast(begins, tf.int32)) - 1
        count = tf.reduce_sum(tf.cast(begins, tf.int32))
        starts, ends = windows.starts.values, windows.ends.values
        # Tokens may have no bytes of the text: a mark of a word alone.
        members = tf.where(kind >= 0, span, -1)
        seen = tf.where(ends > starts, members, -1)
        starts = tf.math.unsorted_segment_min(starts, seen, count)
        ends = tf.math.unsorted_segment_max(ends, seen, count)
        shares = tf.math.unsorted_segment_mean(shares, members, count)
        columns = (
            *(tf.boolean_mask(x, begins) for x in (number, kind)),
            starts, ends, shares,
        )  # fmt: skip
        of_text, kind, starts, ends, shares = (
            tf.boolean_mask(x, ends > starts) for x in columns
        )
        values = {
            'texts': _cut(texts, of_text, starts, ends),
            'labels': tf.gather(tf.constant([*kinds.types, '']), kind),
            'scores': shares,
            'begins': tf.cast(starts, tf.int32),
            'ends': tf.cast(ends, tf.int32),
        }
        splits = splits_of(of_text, texts)
        nothing = {'texts': '', 'labels': '', 'scores': 0.0}
        outputs = {}
        for name, value in values.items():
            none = nothing.get(name, NOWHERE)
            dense = ragged(value, splits).to_tensor(none)
            lacking = tf.maximum(1 - tf.shape(dense)[1], 0)  # one at least
            outputs[name] = tf.pad(
                dense, [[0, 0], [0, lacking]], constant_values=none
            )
        outputs['count'] = tf.cast(splits[1:] - splits[:-1], tf.int32)
        return outputs

    # ------------------------------------------------------------- strings

    def tag(
        self, texts: Sequence[strings.Text], batch_size: int = 32
    ) -> list[list[Span]]:
        """Finds the labelled spans of texts of any length.

        Args:
            texts: n strings (or bytes, UTF-8).
            batch_size: windows that are computed together.

        Returns:
            The spans of each text, in its order; of labels that mark no spans
            (parts of speech) every word.

        Raises:
            TypeError: one string instead of a sequence of strings, or an
                entry that is no text.
            ValueError: no row of this model labels words; half a surrogate
                pair.
        """
        _ = self.head  # complains before the work
        texts = strings.checked(texts)
        results = []
        for begin in range(0, len(texts), _TEXTS):
            chunk = tf.constant(texts[begin : begin + _TEXTS], tf.string)
            windows = self.windows(chunk)
            scores = self.scores(windows, batch_size)
            labels = self.decide(windows, scores)
            outputs = self.spans(chunk, windows, *labels)
            *columns, count = (x.numpy().tolist() for x in outputs.values())
            for *fields, n in zip(*columns, count, strict=True):
                results.append([
                    Span(text.decode(errors='replace'), label.decode(), *rest)
                    for text, label, *rest in zip(*fields, strict=True)
                ][:n])  # fmt: skip
        return results

    def tag_words(
        self, texts: Sequence[Sequence[str]], batch_size: int = 32
    ) -> list[list[str]]:
        """Labels the words of texts that are split already.

        Args:
            texts: the words of each text.
            batch_size: windows that are computed together.

        Returns:
            A label for each word; for one of which the tokenizer leaves
            nothing the first that is no span's.

        Raises: as `tag`.
        """
        _ = self.head
        names = np.array(self.config.labels)
        silent = int(np.argmin(self.kinds.numbers))  # O, where it is
        results = []
        for begin in range(0, len(texts), _TEXTS):
            joined, bounds = join_words(
                texts[begin : begin + _TEXTS], begin
            )
            windows = self.windows(tf.constant(joined, tf.string))
            scores = self.scores(windows, batch_size)
            chosen = self.decide(windows, scores)[0].numpy()
            places = first_tokens(windows.starts, bounds)
            chosen = np.append(chosen, silent)[places]
            splits = np.cumsum([0, *map(len, bounds)])
            first = np.zeros(len(chosen), bool)
            first[splits[:-1][np.diff(splits) > 0]] = True
            chosen = tags.with_ends(chosen, first, self.config.labels)
            results += [
                names[chosen[start:stop]].tolist()
                for start, stop in zip(splits, splits[1:], strict=False)
            ]
        return results

    def scores(self, windows: TextWindows, batch_size: int = 32) -> Tensor:
        """Computes `token_scores` of all windows, `batch_size` at a time."""
        # Windows of like length together: hardly any padding is computed.
        order = np.argsort(windows.lengths.numpy(), kind='stable')
        splits = np.cumsum([0, *windows.sizes.numpy()])
        size = len(self.config.labels)
        scores = np.zeros((splits[-1], size), np.float32)
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            lengths = tf.gather(windows.lengths, batch)
            ids = tf.gather(windows.ids, batch)[:, : tf.reduce_max(lengths)]
            outputs = self._graph(ids, lengths).numpy()
            done = 0
            for number in batch:
                begin, end = splits[number], splits[number + 1]
                scores[begin:end] = outputs[done : done + end - begin]
                done += end - begin
        return tf.constant(scores)


def windows_of(
    texts: Tensor, template: Template, max_length: int, context: int, which: str
) -> TextWindows:
    """Splits texts into windows; graph or eager.

    Args:
        texts: [B] string.
        template: format of the model's inputs.
        max_length: T.
        context: tokens that a word has on either side, if the text has them;
            a quarter of a window at most.
        which: choice of the tokens that are labelled, in
            `objectives.tag.TOKENS`.
    """
    tokenizer, limit = template.tokenizer, template.free_length(max_length)
    tokens, starts, ends = characters.read(tokenizer, texts)
    sizes = tokens.row_lengths()
    split = context_windows.windows(
        sizes,
        tf.fill(tf.shape(sizes), tf.cast(limit, tf.int64)),
        max(limit - 2 * context, -(-limit // 2)),
    )
    first = tf.gather(tokens.row_starts(), split.contexts) + split.firsts
    places = tf.ragged.range(first, first + split.sizes)
    ids = tf.gather(tf.cast(tokens.values, tf.int32), places)
    labelled = tf.fill(tf.shape(starts.values), True)
    if which != ALL:
        labelled = words.starts(texts, starts)
    # A word ends with the last of its tokens.
    number = tf.cumsum(tf.cast(labelled, tf.int32)) - 1
    count = tf.reduce_sum(tf.cast(labelled, tf.int32))
    last = tf.math.unsorted_segment_max(ends.values, number, count)
    of_text = tf.boolean_mask(string_of(starts.row_splits), labelled)
    splits = splits_of(of_text, texts)
    padded_ids, lengths = padded(
        template.one(ids, max_length), tokenizer.pad_id
    )
    return TextWindows(
        ids=padded_ids,
        lengths=lengths,
        tokens=places.values,
        most=context_windows.most_context(split, sizes),
        sizes=tf.cast(split.sizes, tf.int32),
        labelled=labelled,
        starts=ragged(tf.boolean_mask(starts.values, labelled), splits),
        ends=ragged(last, splits),
    )


def _cut(
    texts: Tensor, of_text: Tensor, starts: Tensor, ends: Tensor
) -> Tensor:
    """Cuts spans out of texts; all but texts are [S].

    Some spans at a time: each takes a copy of a text, which may be a megabyte.
    """
    longest = tf.reduce_max(tf.strings.length(tf.concat([texts, ['']], 0)))
    size = tf.maximum(_COPIED // tf.maximum(longest, 1), 1)
    count = tf.maximum(-(-tf.size(of_text) // size), 1)

    def body(number: Tensor, array: tf.TensorArray) -> tuple:
        chunk = slice(number * size, (number + 1) * size)
        begin, length = starts[chunk], ends[chunk] - starts[chunk]
        cut = tf.strings.substr(
            tf.gather(texts, of_text[chunk]), begin, length
        )
        return number + 1, array.write(number, cut)

    array = tf.TensorArray(
        tf.string, count, element_shape=(None,), infer_shape=False
    )
    loop = tf.while_loop(
        lambda number, _: number < count, body, (0, array),
        parallel_iterations=1,
    )  # fmt: skip
    return loop[1].concat()


def splits_of(of_text: Tensor, texts: Tensor) -> Tensor:
    """Returns splits [B + 1] int64 of values by text [B], in order."""
    number = tf.range(tf.size(texts, tf.int64) + 1)
    return tf.searchsorted(of_text, number, out_type=tf.int64)


def join_words(
    texts: Sequence[Sequence[str]], first: int = 0
) -> tuple[list[bytes], list[np.ndarray]]:
    """Joins the words of each text by spaces.

    Args:
        texts: the words of each text.
        first: the number of the first text, for complaints.

    Returns:
        UTF-8 strings, and of each text bounds of words in bytes, [words, 2].

    Raises:
        ValueError: half a surrogate pair.
    """
    joined, bounds = [], []
    for number, text in enumerate(texts, first):
        encoded = strings.checked(text, f'texts[{number}]')
        raw = [x if isinstance(x, bytes) else x.encode() for x in encoded]
        ends = np.cumsum([len(word) + 1 for word in raw], dtype=np.int64) - 1
        begins = ends - np.array([*map(len, raw)], np.int64)
        joined.append(b' '.join(raw))
        bounds.append(np.stack([begins, ends], axis=1))
    return joined, bounds


def first_tokens(
    starts: tf.RaggedTensor, bounds: Sequence[np.ndarray]
) -> np.ndarray:
    """Finds the first of the tokens inside each word.

    Args:
        starts: [B, tokens], the first byte of each token.
        bounds: bounds of the words of each text, from `join_words`.

    Returns:
        [words of all texts] int64, numbers of tokens among those of all texts;
        -1: none.
    """
    splits, values = starts.row_splits.numpy(), starts.values.numpy()
    places = []
    for number, words_of in enumerate(bounds):
        inside = values[splits[number] : splits[number + 1]]
        first = np.searchsorted(inside, words_of[:, 0])
        after = np.append(inside, np.iinfo(np.int64).max)[first]
        here = splits[number] + first
        places.append(np.where(after < words_of[:, 1], here, -1))
    return np.concatenate([np.zeros(0, np.int64), *places])
