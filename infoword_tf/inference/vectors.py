"""One vector for each text.

The steps are set by a workdir's config, and are the same wherever vectors are
computed, in exports too: a prompt before the text (`prompted`), special tokens
around it (`States.laid_out`), pooling of the states of some layers, with the
learned weights of a row if it has some, dense layers, and where the config says
so normalisation to length 1 (`embed`).

Glossary of shapes: B texts of a batch, T tokens, n texts, N distinct ones, D
width.
"""

import functools
import os
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from keras import ops

from infoword_tf import progress as shown
from infoword_tf.inference.states import States, last_places, real_places
from infoword_tf.inference.wordvectors import WordVectors
from infoword_tf.layers.block import take
from infoword_tf.layers.pooling import LAYERS, LEARNED, POOLINGS, unit
from infoword_tf.objectives.contrast import SentenceContrast
from infoword_tf.text import strings
from infoword_tf.text.template import padded

Tensor = Any
_TEXTS_A_CALL = 4096  # of the tokenizer


class Tokenized(NamedTuple):
    """n texts in their layout, cut at the longest that the model reads.

    Attributes:
        ids: of the N distinct texts, flat int32.
        lengths: of these, [N] int64.
        place: [n] int64, which of them each text is.
        cut: how many of the n were longer.
    """

    ids: np.ndarray
    lengths: np.ndarray
    place: np.ndarray
    cut: int


class Vectors(States):
    """A workdir that makes vectors of texts, which all do.

    Attributes:
        cut: how many texts the last `encode` cut at `max_length`.
    """

    cut = 0

    # ------------------------------------------------------ ids to vectors

    def embed(
        self,
        ids: Tensor,
        lengths: Tensor,
        pooling: str | None = None,
        layers: Sequence[int] | str | None = None,
        segment_ids: Tensor | None = None,
        key: Tensor | None = None,
    ) -> Tensor:
        """One vector for each text; graph or eager, any shape.

        Args:
            ids, lengths, layers, segment_ids, key: as in `states`.
            pooling: 'cls', 'last', 'mean', 'max', 'by_position' (the mean with
                weights 1, 2, 3, ...), 'weighted' (weights that a row has
                learned), 'first_last' (the mean over layers 1 and L), 'mix'
                (over all layers, see `states`) or 'words' (weighted, and
                beside it a row's words); None: the config's, with the layers
                over it and the length 1 that the config may ask for.

        Returns:
            [B, `vector_width`] float32.

        Raises:
            ValueError: a pooling that this model does not have.
        """

        def states(
            layers: Sequence[int] | str | None, places: Tensor | None = None
        ) -> Tensor:
            return self.states(
                ids, lengths, layers, places,
                segment_ids=segment_ids, key=key,
            )  # fmt: skip

        if layers is None:
            layers = LAYERS.get(pooling or self.config.pooling)
        return self._vector(ids, lengths, states, pooling, layers)

    def states_and_vector(
        self,
        ids: Tensor,
        lengths: Tensor,
        segment_ids: Tensor | None = None,
        key: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """What `states` and `embed` give, of one pass; args as there."""
        layers = LAYERS.get(self.config.pooling)
        encoded = self._encoded(
            ids, lengths, layers is not None,
            segment_ids=segment_ids, key=key,
        )  # fmt: skip
        last = ops.cast(encoded.states, 'float32')

        def states(
            layers: Sequence[int] | str | None, places: Tensor | None = None
        ) -> Tensor:
            found = last
            if layers is not None:
                found = self._mean(encoded.layers, layers)
            return found if places is None else take(found, places)

        return last, self._vector(ids, lengths, states, None, layers)

    def _vector(
        self,
        ids: Tensor,
        lengths: Tensor,
        states: Callable[..., Tensor],
        pooling: str | None,
        layers: Sequence[int] | str | None,
    ) -> Tensor:
        """One vector for each text, of states by layers and places; args as of
        `embed`.
        """
        if pooling is None:
            return self._finished(
                self._vector(ids, lengths, states, self.config.pooling, layers)
            )
        row, compute = self._pooling_row(pooling), POOLINGS[pooling]
        if compute is None:
            place = last_places(lengths)
            if pooling == 'cls' and self.layout.first:
                place = ops.zeros_like(place)
            # Of the last layer this state alone is computed.
            pooled = states(layers, place)[:, 0]
            if len(self.before) + len(self.after):
                return pooled
            # Where nothing stands around a text, an empty one has no state.
            real = ops.expand_dims(lengths, 1) > 0
            return ops.where(real, pooled, ops.zeros_like(pooled))
        states = states(layers)
        real = real_places(ids, lengths)
        if pooling == 'words':
            return row.text_vectors(ids, real, states, self.unigram)
        if row is None:
            return compute(states, real)
        return compute(states, real, ops.convert_to_tensor(row.pooling_kernel))

    def _finished(self, pooled: Tensor) -> Tensor:
        """The steps after pooling, as the config says."""
        for layer in self.model.dense:
            pooled = layer(pooled)
        pooled = pooled[:, : self.config.dims]
        return unit(pooled) if self.config.normalize else pooled

    def _pooling_row(self, pooling: str) -> SentenceContrast | None:
        """The row whose weights a pooling needs; None: it needs none."""
        if pooling not in POOLINGS:
            raise ValueError(
                f'pooling {pooling!r}: known are {", ".join(POOLINGS)}'
            )
        if pooling not in LEARNED:
            return None
        for row in self.rows_that('vectors'):
            objective = self.model.objectives[row]
            if pooling == 'weighted' or (
                objective.words and self.unigram is not None
            ):
                return objective
        raise ValueError(
            f'pooling {pooling}: {self._rows} have learned no '
            f'{LEARNED[pooling]}; take cls, mean or first_last'
        )

    @property
    def vector_weights(self) -> dict[str, list[Any]]:
        """By row, its weights that the config's vectors are made with."""
        pooling = self.config.pooling
        if pooling == 'mix':
            row = self._mixing_row()
            return {} if row is None else {row.row: row.mixer.weights}
        row = self._pooling_row(pooling)
        if row is None:
            return {}
        weights = [row.pooling_kernel]
        if pooling == 'words':
            weights += [row.word_embeddings, row.word_kernel]
        return {row.row: weights}

    def vector_width(self, pooling: str | None = None) -> int:
        """How long the vectors of a pooling are; args as in `embed`."""
        config, default = self.config, pooling is None
        pooling = pooling or config.pooling
        more = self._pooling_row(pooling).words if pooling == 'words' else 0
        width = self.encoder.width + more
        if default and config.dense:
            width = config.dense[-1].width
        return min(width, (default and config.dims) or width)

    def graph(
        self,
        pooling: str | None = None,
        layers: Sequence[int] | str | None = None,
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """`embed` as one graph for all shapes: (ids, lengths) -> [B, D]."""
        if layers not in (None, 'mix'):
            layers = tuple(layers)
        return self._traced(pooling, layers)

    @functools.cached_property
    def _traced(self) -> Callable[..., Any]:
        return functools.cache(self._trace)

    def _trace(
        self, pooling: str | None, layers: tuple[int, ...] | str | None
    ) -> Any:
        # Complains before the work.
        self._pooling_row(pooling or self.config.pooling)
        return tf.function(
            lambda ids, lengths: self.embed(ids, lengths, pooling, layers),
            input_signature=[
                tf.TensorSpec((None, None), tf.int32),
                tf.TensorSpec((None,), tf.int32),
            ],
            autograph=False,
        )

    @functools.cached_property
    def _one_batch(self) -> Callable[..., Any]:
        """By pooling and layers a graph for texts that are one batch: [B] to
        vectors, and which of them were cut.

        One call from strings to vectors. For one short text everything that
        `tokenized` does call by call takes as long as the encoder.
        """

        def trace(pooling: str | None, layers: Any) -> Any:
            self._pooling_row(pooling or self.config.pooling)

            def compute(texts: Tensor) -> tuple[Tensor, Tensor]:
                pieces = self.tokenizer.tokenize(texts)
                long = pieces.row_lengths() > self.free_length
                rows = self.template.one(pieces, self.max_length)
                ids, lengths = padded(rows, self.tokenizer.pad_id)
                return self.embed(ids, lengths, pooling, layers), long

            return tf.function(
                compute, input_signature=[tf.TensorSpec((None,), tf.string)],
                autograph=False,
            )  # fmt: skip

        return functools.cache(trace)

    # ------------------------------------------------ tables of embeddings

    @property
    def is_table(self) -> bool:
        """Whether a text's vector is the mean of what its pieces are alone,
        whatever is around them: then `embed_pieces` gives it."""
        return not self.encoder.contextual and self.config.pooling == 'mean'

    def embed_pieces(self, pieces: tf.RaggedTensor) -> Tensor:
        """One vector for each text, from its pieces: no padding is computed.

        What `embed` gives, of a model that `is_table`, by one operation that
        looks up and adds; of one that is `folded` too, without first making
        a table. Graph or eager.

        Args:
            pieces: [B, None] int32, of whole texts without what stands around
                them; those beyond `free_length` do not count.

        Returns:
            [B, `vector_width`] float32.
        """
        table = tf.convert_to_tensor(self.encoder.embedding_table)
        if self.encoder.arguments.get('weighted'):
            weights = tf.convert_to_tensor(self.encoder.piece_weights)
            table = table * weights[:, None]
        splits = pieces.row_splits
        sizes = tf.minimum(splits[1:] - splits[:-1], self.free_length)
        text = pieces.value_rowids()
        place = tf.range(splits[-1]) - tf.gather(splits, text)
        kept = place < self.free_length
        total = tf.sparse.segment_sum(
            table,
            tf.boolean_mask(pieces.flat_values, kept),
            tf.boolean_mask(text, kept),
            num_segments=pieces.nrows(),
        )
        around = [*self.before, *self.after]
        ends = tf.reduce_sum(tf.gather(table, around), axis=0)
        count = tf.cast(sizes + len(around), tf.float32)
        return self._finished(
            tf.cast(total + ends, tf.float32) / count[:, None]
        )

    @functools.cached_property
    def _table_graph(self) -> Any:
        """Texts [B] to vectors, and which of them were cut."""
        folded = self.folded

        def compute(texts: Tensor) -> tuple[Tensor, Tensor]:
            pieces = self.tokenizer.tokenize(texts)
            long = pieces.row_lengths() > self.free_length
            return folded.embed_pieces(pieces), long

        return tf.function(
            compute, input_signature=[tf.TensorSpec((None,), tf.string)],
            autograph=False,
        )  # fmt: skip

    @functools.cached_property
    def _pieces_graph(self) -> Any:
        """`embed_pieces`, of weights as they are when it is called."""
        return tf.function(
            self.embed_pieces,
            input_signature=[tf.RaggedTensorSpec((None, None), tf.int32, 1)],
            autograph=False,
        )

    # -------------------------------------------------- strings to vectors

    def encode(
        self,
        texts: Sequence[str],
        batch_size: int = 8,
        pooling: str | None = None,
        normalize: bool = False,
        progress: bool = True,
        layers: Sequence[int] | int | str | None = None,
        prompt: str | None = None,
        dims: int | None = None,
    ) -> np.ndarray:
        """Vectors of texts, in their order.

        Equal texts are encoded once, and have equal vectors. Texts are sorted
        by length and batched by tokens, so that hardly any padding is
        computed; two batches are computed at a time, or as many as there are
        cores where TensorFlow has one thread for an operation
        (`tf.config.threading.set_intra_op_parallelism_threads(1)`), with which
        one text alone is faster too. Longer texts than `max_length` are cut;
        `cut` says how many.

        Args:
            texts: n strings (or bytes, UTF-8), as of `strings.checked`.
            batch_size: a batch holds so many texts of `max_length`, or as
                many tokens of shorter ones. Few, so that states stay in the
                caches of a processor.
            pooling, layers: as in `embed`; one layer may be a number.
            normalize: to length 1.
            progress: shows a bar for more than one batch.
            prompt: name of what is put before each text, as 'query'; None:
                what the config says, '': nothing.
            dims: the first so many numbers alone (of length 1 where vectors
                are), as models trained with `--simcse.dims` allow.

        Returns:
            float32 [n, `vector_width`], or [n, dims].

        Raises:
            TypeError: one string instead of a sequence of them, or one of
                them is no text.
            ValueError: a pooling, layer or prompt that this model does not
                have, more `dims` than numbers, or half a surrogate pair.
        """
        texts, place = strings.distinct(strings.checked(texts))
        if isinstance(layers, int):
            layers = (layers,)
        for layer in () if layers in (None, 'mix') else layers:
            depth = self.encoder.depth
            if not -depth - 1 <= layer <= depth:
                raise ValueError(f'layer {layer}: there are 0 to {depth}')
        self.config.prompt_text(prompt)  # complains before the work
        width = self.vector_width(pooling)
        if dims is not None and not 0 < dims <= width:
            raise ValueError(f'dims {dims}: vectors have {width} numbers')
        if self.is_table and pooling is None and not layers:
            vectors = np.empty((len(texts), width), np.float32)
            long = np.zeros(len(texts), bool)
            for some in _parts(texts):
                vectors[some], long[some] = self._table_graph(
                    self.prompted(texts[some], prompt)
                )
            vectors, self.cut = _each(vectors, place), int(long[place].sum())
        elif 0 < len(texts) <= batch_size:
            if layers not in (None, 'mix'):
                layers = tuple(layers)
            graph = self._one_batch(pooling, layers)
            found, long = graph(self.prompted(texts, prompt))
            vectors = _each(found.numpy(), place)
            self.cut = int(long.numpy()[place].sum())
        else:
            tokenized = self._tokenized(texts, place, prompt)
            self.cut = tokenized.cut
            vectors = self.encode_tokenized(
                tokenized, batch_size, pooling, progress, layers
            )
        if dims is not None:
            vectors = np.ascontiguousarray(vectors[:, :dims])
            normalize |= pooling is None and self.config.normalize
        return _unit(vectors) if normalize else vectors

    def encode_tokenized(
        self,
        texts: Tokenized,
        batch_size: int = 8,
        pooling: str | None = None,
        progress: bool = False,
        layers: Sequence[int] | str | None = None,
    ) -> np.ndarray:
        """Vectors of texts as `encode` makes them, of `tokenized` ones.

        By the weights as they are at each call. Args and errors as of
        `encode`.

        Returns:
            float32 [n, `vector_width`].
        """
        ids, lengths = texts.ids, texts.lengths
        if self.is_table and pooling is None and not layers:
            ragged = tf.RaggedTensor.from_row_lengths(ids, lengths)
            around = len(self.before), len(self.after)
            pieces = ragged[:, around[0] : -around[1] or None]
            return _each(self._pieces_graph(pieces).numpy(), texts.place)
        width = self.vector_width(pooling)
        vectors = np.empty((len(lengths), width), np.float32)
        # Traced here: what surrounds the call is of this thread alone.
        embed = self.graph(pooling, layers).get_concrete_function()
        begins = np.cumsum(lengths) - lengths
        order = np.argsort(lengths, kind='stable')[::-1]
        tokens = batch_size * self.max_length
        batches, done = [], 0
        while done < len(lengths):
            longest = lengths[order[done]]
            batches.append(order[done : done + max(1, tokens // longest)])
            done += len(batches[-1])

        def compute(rows: np.ndarray) -> int:
            column = np.arange(lengths[rows[0]])
            real = column < lengths[rows, None]
            source = np.where(real, begins[rows, None] + column, 0)
            padded = np.where(real, ids[source], self.tokenizer.pad_id)
            vectors[rows] = embed(
                tf.constant(padded), tf.constant(lengths[rows], tf.int32)
            )
            return len(rows)

        with (
            shown.bar(
                total=len(lengths),
                unit=' texts',
                disable=not progress or lengths.sum() <= tokens,
            ) as bar,
            futures.ThreadPoolExecutor(_batches_at_a_time()) as threads,
        ):
            for count in threads.map(compute, batches):
                bar.update(count)
        return _each(vectors, texts.place)

    def tokenized(
        self, texts: Sequence[str], prompt: str | None = None
    ) -> Tokenized:
        """Texts to be encoded again and again; args as of `encode`."""
        return self._tokenized(
            *strings.distinct(strings.checked(texts)), prompt
        )

    def _tokenized(
        self, texts: Sequence[str], place: np.ndarray, prompt: str | None
    ) -> Tokenized:
        """Tokenizes what `strings.distinct` returns; see `tokenized`."""
        flat, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        long = np.zeros(len(texts), bool)
        for some in _parts(texts):
            pieces = self.tokenizer.tokenize(self.prompted(texts[some], prompt))
            long[some] = pieces.row_lengths().numpy() > self.free_length
            rows = self.template.one(pieces, self.max_length)
            flat.append(rows.flat_values.numpy())
            lengths.append(rows.row_lengths().numpy())
        return Tokenized(
            np.concatenate(flat),
            np.concatenate(lengths),
            place,
            int(long[place].sum()),
        )

    def prompted(
        self, texts: Sequence[str] | Tensor, prompt: str | None = None
    ) -> Tensor:
        """Texts [B] with what is put before each; args as
        `Config.prompt_text`.
        """
        before = self.config.prompt_text(prompt)
        texts = tf.convert_to_tensor(texts, tf.string)
        return tf.strings.join([before, texts]) if before else texts

    def word_vectors(self, words: Sequence[str] | None = None) -> WordVectors:
        """Vectors of words.

        Args:
            words: of which; None: all pieces of the vocabulary that are not
                special. Of a vocabulary of whole words those that it lacks
                are left out.

        Returns:
            Input embeddings where a word is a piece of the vocabulary, or
            none are named; of other vocabularies what `encode` makes of each
            word alone.

        Raises:
            TypeError: one string instead of a sequence of them.
        """
        if words is not None:
            words = strings.checked(words, 'words')
        if words is not None and self.tokenizer.kind != 'words':
            return WordVectors(list(words), self.encode(words, progress=False))
        index = {word: i for i, word in enumerate(self.tokenizer.vocabulary)}
        for special in (*self.tokenizer.control_ids, self.tokenizer.unk_id):
            index.pop(self.tokenizer.vocabulary[special], None)
        if words is not None:
            index = {word: index[word] for word in words if word in index}
        table = np.asarray(self.encoder.embedding_table, np.float32)
        return WordVectors(list(index), table[list(index.values())])


def _batches_at_a_time() -> int:
    """Of `encode`: two, so that one computes where the other waits for a
    thread; where an operation has one thread alone, one for each core."""
    # TensorFlow reads the variable where nothing is set, and does not tell.
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    threads = threads or os.environ.get('TF_NUM_INTRAOP_THREADS')
    return max(2, os.cpu_count() or 1) if threads in (1, '1') else 2


def _parts(texts: Sequence[str]) -> list[slice]:
    """All texts, so many at once as a tokenizer gets."""
    starts = range(0, len(texts), _TEXTS_A_CALL)
    return [slice(start, start + _TEXTS_A_CALL) for start in starts]


def _each(vectors: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Repeats vectors [N, D] of distinct texts for each text: [n, D]."""
    return vectors if len(vectors) == len(place) else vectors[place]


def _unit(vectors: np.ndarray) -> np.ndarray:
    """[n, D], in place, to length 1."""
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return vectors
