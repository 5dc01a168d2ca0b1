"""Texts of any number and length: tokenized, batched and answered.

Glossary of shapes: n texts, m distinct texts, S texts of a batch, t entries of
a text, F numbers of an entry.
"""

import functools
import os
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from infoword_tf import commands, errors
from infoword_tf.config import ROLES
from infoword_tf.inference.states import Predictor
from infoword_tf.tensors import Tensor
from infoword_tf.text import strings

ID_SPECS = (  # of ids and lengths
    tf.TensorSpec((None, None), tf.int32),
    tf.TensorSpec((None,), tf.int32),
)
_TEXTS_A_CALL = 4096  # of the tokenizer
_PADDING = 64  # tokens that take as long as one more batch, about


class Tokenized(NamedTuple):
    """Texts as ids, with special tokens, truncated at a length.

    Attributes:
        ids: tokens of the m distinct texts, flat int32.
        lengths: [m] int64.
        indices: [n] int64, the distinct text that each text equals.
        cut: number of the n texts that were truncated.
    """

    ids: np.ndarray
    lengths: np.ndarray
    indices: np.ndarray
    cut: int


class BatchPredictor(Predictor):
    """Answers for texts, which are computed in batches of like length.

    Attributes:
        cut: number of texts that the last call truncated.
    """

    cut = 0

    def _tokenize(
        self,
        texts: Sequence[strings.Text],
        indices: np.ndarray,
        prompt: str | None,
        max_length: int,
    ) -> Tokenized:
        """Tokenizes the outputs of `strings.distinct`."""
        template = self.workdir.template
        ids, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        is_long = np.zeros(len(texts), bool)
        for chunk in chunks(texts):
            tokens = template.tokenizer.tokenize(
                self.states.prompted(texts[chunk], prompt)
            )
            sizes = tokens.row_lengths().numpy()
            is_long[chunk] = sizes > template.free_length(max_length)
            tokens = template.one(tokens, max_length)
            ids.append(tokens.flat_values.numpy())
            lengths.append(tokens.row_lengths().numpy())
        return Tokenized(
            np.concatenate(ids),
            np.concatenate(lengths),
            indices,
            int(is_long[indices].sum()),
        )

    def _graph_of_texts(
        self, answer: Callable[[tf.RaggedTensor], Any], max_length: int
    ) -> Any:
        """Returns a graph of texts [B]: answers, and which were truncated.

        For one short text all that `_tokenize` does call by call takes as long
        as the encoder.

        Args:
            answer: function of tokens [B, None], without special ones.
            max_length: T.
        """
        template = self.workdir.template
        limit = template.free_length(max_length)

        def compute(texts: Tensor) -> tuple[Any, Tensor]:
            tokens = template.tokenizer.tokenize(texts)
            return answer(tokens), tokens.row_lengths() > limit

        return tf.function(
            compute, input_signature=[tf.TensorSpec((None,), tf.string)],
            autograph=False,
        )  # fmt: skip

    def _in_batches(
        self,
        texts: Tokenized,
        answer: Callable[[np.ndarray, Tensor, Tensor], None],
        tokens: int,
        progress: bool,
        most: int | None = None,
    ) -> None:
        """Answers texts, sorted by length, in batches.

        A batch ends where its padding would take longer than another batch.
        Two batches at a time, see `_batches_at_a_time`.

        Args:
            answer: called in threads with the numbers [S] of the texts of a
                batch, ids [S, T] and lengths [S].
            tokens: size of a batch in tokens, about.
            progress: shows a bar for more than one batch.
            most: S at most; None: any number.
        """
        ids, lengths = texts.ids, texts.lengths
        begins = np.cumsum(lengths) - lengths
        order = np.argsort(lengths, kind='stable')[::-1]
        batches, done = [], 0
        while done < len(lengths):
            longest = lengths[order[done]]
            size = max(1, min(tokens // longest, most or tokens))
            batch = order[done : done + size]
            if len(batch) < len(lengths):  # else as those of `_graph_of_texts`
                padding = np.cumsum(longest - lengths[batch])
                batch = batch[: np.searchsorted(padding, _PADDING, 'right')]
            batches.append(batch)
            done += len(batches[-1])

        def compute(batch: np.ndarray) -> int:
            place = np.arange(lengths[batch[0]])
            real = place < lengths[batch, None]
            source = np.where(real, begins[batch, None] + place, 0)
            padded = np.where(real, ids[source], self.workdir.tokenizer.pad_id)
            sizes = tf.constant(lengths[batch], tf.int32)
            answer(batch, tf.constant(padded), sizes)
            return len(batch)

        with (
            commands.bar(
                total=len(lengths),
                unit=' texts',
                disable=not progress or lengths.sum() <= tokens,
            ) as bar,
            futures.ThreadPoolExecutor(_batches_at_a_time()) as threads,
        ):
            for count in threads.map(compute, batches):
                bar.update(count)


class RolePredictor(BatchPredictor):
    """Answers of any number of entries, for texts of a role.

    Attributes:
        head: head of the model; ValueError: it has none.
        width: numbers of an entry.
    """

    head: Any
    width: int

    def entries(
        self, ids: Tensor, lengths: Tensor, role: str
    ) -> tf.RaggedTensor:
        """Computes the entries of texts; graph or eager, any shape.

        Args:
            ids, lengths: inputs of `States.__call__`, made by
                `States.format_role`.
            role: one of config.ROLES.

        Returns:
            [B, t, F] float32.
        """
        raise NotImplementedError

    def most_texts(self, tokens: int, role: str) -> int | None:
        """Returns how many texts a batch of `tokens` has at most.

        None: any number.
        """
        del tokens, role
        return None

    def outputs(self, entries: tf.RaggedTensor) -> dict[str, Tensor]:
        """Returns outputs of a signature: `entries`, padded."""
        raise NotImplementedError

    def expected(
        self, texts: Sequence[bytes], role: str
    ) -> dict[str, np.ndarray]:
        """Computes `outputs` of texts, to compare an export with."""
        raise NotImplementedError

    @functools.cached_property
    def _graphs(self) -> Callable[[str], Any]:
        """The graphs of ids and of texts, by role."""

        def build(role: str) -> tuple[Any, Any]:
            _, length = self._side(role)

            def entries(ids: Tensor, lengths: Tensor) -> tf.RaggedTensor:
                return self.entries(ids, lengths, role)

            return tf.function(
                entries, input_signature=ID_SPECS, autograph=False
            ), self._graph_of_texts(
                lambda x: entries(*self.states.format_tokens(x, length)), length
            )

        return functools.cache(build)

    def tokenize(
        self, texts: Sequence[strings.Text], role: str = 'passage'
    ) -> Tokenized:
        """Tokenizes texts that are to be encoded again and again; args as of
        `encode`.
        """
        return self._tokenize(
            *strings.distinct(strings.checked(texts)), *self._side(role)
        )

    def _arrays(
        self,
        texts: Sequence[strings.Text],
        role: str,
        batch_size: int,
        progress: bool,
    ) -> list[np.ndarray]:
        """Computes entries of texts, n times [t, F]; args as of `encode`."""
        prompt, length = self._side(role)
        texts, indices = strings.distinct(strings.checked(texts))
        most = self.most_texts(batch_size * self.workdir.max_length, role)
        if not 0 < len(texts) <= min(batch_size, most or batch_size):
            tokenized = self._tokenize(texts, indices, prompt, length)
            self.cut = tokenized.cut
            return self._arrays_of(tokenized, role, batch_size, progress)
        entries, is_long = self._graphs(role)[1](
            self.states.prompted(texts, prompt)
        )
        self.cut = int(is_long.numpy()[indices].sum())
        parts = _split(entries)
        return [parts[i] for i in indices]

    def _arrays_of(
        self, texts: Tokenized, role: str, batch_size: int, progress: bool
    ) -> list[np.ndarray]:
        """Computes entries as `_arrays`, of texts that `tokenize` returned."""
        parts: list[Any] = [None] * len(texts.lengths)
        # Traced here: what surrounds the call is of this thread alone.
        graph = self._graphs(role)[0].get_concrete_function()

        def answer(batch: np.ndarray, ids: Tensor, lengths: Tensor) -> None:
            entries = _split(graph(ids, lengths))
            for number, part in zip(batch, entries, strict=True):
                parts[number] = part

        tokens = batch_size * self.workdir.max_length
        most = self.most_texts(tokens, role)
        self._in_batches(
            texts,
            answer,
            tokens=tokens,
            progress=progress,
            most=most,
        )
        return [parts[i] for i in texts.indices]

    def _side(self, role: str) -> tuple[str, int]:
        """Returns the prompt of a role, and T of a text.

        Raises:
            ValueError: there is no such role, or the model has no `head`.
        """
        _ = self.head
        if role not in ROLES:
            raise errors.InputError(
                'unknown_role', f'role {role!r}: known are {", ".join(ROLES)}'
            )
        return self.config.prompt_for(role), self.config.length_for(role)


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Scales vectors [n, D], in place, to length 1."""
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return vectors


def _split(entries: tf.RaggedTensor) -> list[np.ndarray]:
    """Splits [B, t, F] into B arrays."""
    values, splits = entries.flat_values.numpy(), entries.row_splits.numpy()
    return np.split(values, splits[1:-1])


def _batches_at_a_time() -> int:
    """Returns how many batches are computed at a time.

    Two, so that one computes where the other waits for a thread; where an
    operation has one thread alone, one for each core.
    """
    # TensorFlow reads the variable if nothing is set, and does not tell.
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    threads = threads or os.environ.get('TF_NUM_INTRAOP_THREADS')
    return max(2, os.cpu_count() or 1) if threads in (1, '1') else 2


def chunks(texts: Sequence[strings.Text]) -> list[slice]:
    """Splits texts into chunks that a tokenizer gets at once."""
    starts = range(0, len(texts), _TEXTS_A_CALL)
    return [slice(start, start + _TEXTS_A_CALL) for start in starts]
