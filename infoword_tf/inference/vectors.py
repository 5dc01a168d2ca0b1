"""One vector for each text.

The config of a workdir sets the steps, which are the same wherever vectors are
computed, in exports too: a prompt before the text (`Vectors.prompted`), special
tokens around it, pooling of the states of some layers, by learned weights of a
row where the pooling has them, dense layers, truncation to `dims` and
normalisation to length 1.

Glossary of shapes: n texts, m distinct texts.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from infoword_tf import errors
from infoword_tf.critics.learned import LearnedCosine
from infoword_tf.inference import variants
from infoword_tf.inference.batches import (
    ID_SPECS,
    BatchPredictor,
    Tokenized,
    chunks,
    unit_rows,
)
from infoword_tf.inference.states import (
    States,
    cls_places,
    end_places,
)
from infoword_tf.inference.wordvectors import WordVectors
from infoword_tf.layers.block import take
from infoword_tf.layers.pooling import (
    LAYERS,
    LEARNED,
    POOLINGS,
    pool,
    real_places,
    unit,
)
from infoword_tf.tensors import Tensor
from infoword_tf.text import strings


class Vectors(BatchPredictor):
    """The vectors that a workdir gives texts, and words."""

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
        """Computes one vector for each sequence; graph or eager, any shape.

        Args:
            ids, lengths, layers, segment_ids, key: inputs of `States.__call__`.
            pooling: 'cls', 'last', 'mean', 'max', 'by_position' (the mean with
                weights 1, 2, 3, ...), 'weighted' (weights that a row has
                learned), 'first_last' (the mean over layers 1 and L), 'mix'
                (over all layers) or 'words' (weighted, followed by a row's
                vector of words); None: the config's, with its dense layers,
                `dims` and normalisation.

        Returns:
            [B, `width`] float32.

        Raises:
            ValueError: a pooling that this model does not have.
        """
        name = self.config.pooling if pooling is None else pooling
        places = self._places(ids, lengths, name)
        states = self.states(
            ids, lengths, LAYERS.get(name) if layers is None else layers,
            places, segment_ids=segment_ids, key=key,
        )  # fmt: skip
        pooled = self._pool(ids, lengths, states, name)
        return self._finish(pooled) if pooling is None else pooled

    def embed_with_states(
        self,
        ids: Tensor,
        lengths: Tensor,
        segment_ids: Tensor | None = None,
        key: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Computes states, [B, T, D], and vectors, [B, `width`], in one pass.

        Args as of `embed`, whose vectors they are.
        """
        name = self.config.pooling
        layers = LAYERS.get(name)
        encoded = self.states.encode(
            ids, lengths, layers is not None,
            segment_ids=segment_ids, key=key,
        )  # fmt: skip
        last = ops.cast(encoded.states, 'float32')
        places = self._places(ids, lengths, name)
        states = last
        if layers is not None:
            states = self.states.mean(encoded.layers, layers)
        if places is not None:
            states = take(states, places)
        return last, self._finish(self._pool(ids, lengths, states, name))

    def embed_tokens(self, tokens: tf.RaggedTensor) -> Tensor:
        """Computes the vectors of `embed` from a table, without padding.

        For models that are `is_table`. One operation looks up and adds; for a
        `folded` workdir no table is made first. Graph or eager.

        Args:
            tokens: [B, None] int32, of whole texts without special tokens
                around them; those beyond `free_length` do not count.

        Returns:
            [B, `width`] float32.
        """
        workdir, encoder = self.workdir, self.workdir.encoder
        table = tf.convert_to_tensor(encoder.embedding_table)
        if encoder.arguments.get('weighted'):
            weights = tf.convert_to_tensor(encoder.piece_weights)
            table = table * weights[:, None]
        splits = tokens.row_splits
        sizes = tf.minimum(splits[1:] - splits[:-1], workdir.free_length)
        text = tokens.value_rowids()
        place = tf.range(splits[-1]) - tf.gather(splits, text)
        is_read = place < workdir.free_length
        total = tf.sparse.segment_sum(
            table,
            tf.boolean_mask(tokens.flat_values, is_read),
            tf.boolean_mask(text, is_read),
            num_segments=tokens.nrows(),
        )
        around = [*workdir.before, *workdir.after]
        ends = tf.reduce_sum(tf.gather(table, around), axis=0)
        count = tf.cast(sizes + len(around), tf.float32)
        return self._finish(tf.cast(total + ends, tf.float32) / count[:, None])

    @property
    def is_table(self) -> bool:
        """The case that a text's vector is the mean of one vector a token,
        whatever is around it: `embed_tokens` computes it then."""
        encoder = self.workdir.encoder
        return not encoder.contextual and self.config.pooling == 'mean'

    def _places(
        self, ids: Tensor, lengths: Tensor, pooling: str
    ) -> Tensor | None:
        """Returns the one place [B, 1] that a pooling reads, or None: all."""
        self._pooling_critic(pooling)  # complains of an unknown pooling
        if POOLINGS[pooling] is not None:
            return None
        if pooling == 'cls':
            return cls_places(self.workdir.template, ids, lengths)
        return end_places(self.workdir.template, ids, lengths)

    def _pool(
        self, ids: Tensor, lengths: Tensor, states: Tensor, pooling: str
    ) -> Tensor:
        """Pools states, [B, T, D] or of `_places` [B, 1, D], into vectors."""
        form, compute = self._pooling_critic(pooling), POOLINGS[pooling]
        if compute is None:
            pooled = states[:, 0]
            if len(self.workdir.before) + len(self.workdir.after):
                return pooled
            # Without special tokens an empty text has no state.
            real = ops.expand_dims(lengths, 1) > 0
            return ops.where(real, pooled, ops.zeros_like(pooled))
        real = real_places(ids, lengths)
        if form is None:
            return compute(states, real)
        if pooling == 'words':
            return form.text_vectors(ids, real, states, self.workdir.unigram)
        return pool(states, real, ops.convert_to_tensor(form.pooling_kernel))

    def _finish(self, pooled: Tensor) -> Tensor:
        """Applies the dense layers, `dims` and the length of the config."""
        for layer in self.workdir.model.dense:
            pooled = layer(pooled)
        pooled = pooled[:, : self.config.dims]
        return unit(pooled) if self.config.normalize else pooled

    def _pooling_critic(self, pooling: str) -> LearnedCosine | None:
        """Returns the critic of a row whose weights a pooling needs, or None.

        Raises:
            ValueError: an unknown pooling, or no row has its weights.
        """
        if pooling not in POOLINGS:
            raise errors.InputError(
                'vectors_unknown_pooling',
                f'pooling {pooling!r}: known are {", ".join(POOLINGS)}',
            )
        if pooling not in LEARNED:
            return None
        for row in self.states.rows_that('vectors'):
            form = self.workdir.model.objectives[row].form
            counted = self.workdir.unigram is not None or pooling != 'words'
            if not (isinstance(form, LearnedCosine) and counted):
                continue
            if pooling in form.poolings:
                return form
        raise errors.InputError(
            'pooling_not_learned',
            f'pooling {pooling}: {self.states.rows_text} have learned no '
            f'{LEARNED[pooling]}; take cls, mean or first_last',
        )

    @property
    def weights(self) -> dict[str, list[Any]]:
        """The weights of rows that the config's vectors need, by row."""
        pooling = self.config.pooling
        if pooling == 'mix':
            row = self.states.mixing_row()
            return {} if row is None else {row.row: row.mixer.weights}
        form = self._pooling_critic(pooling)
        return {} if form is None else {form.row.row: form.poolings[pooling]}

    def width(self, pooling: str | None = None) -> int:
        """Returns how many numbers a vector of a pooling has."""
        config, default = self.config, pooling is None
        pooling = pooling or config.pooling
        form = self._pooling_critic(pooling)
        more = form.words if form is not None and pooling == 'words' else 0
        width = self.workdir.encoder.width + more
        if default and config.dense:
            width = config.dense[-1].width
        return min(width, (default and config.dims) or width)

    # -------------------------------------------------------------- graphs

    def graph(
        self,
        pooling: str | None = None,
        layers: Sequence[int] | str | None = None,
    ) -> Any:
        """Returns `embed` as a tf.function: (ids, lengths) -> [B, D]."""
        return self._graphs(pooling, _hashable(layers))

    @functools.cached_property
    def _graphs(self) -> Callable[..., Any]:
        """The graphs of `graph` by pooling and layers."""

        def build(pooling: str | None, layers: Any) -> Any:
            # Complains before the work.
            self._pooling_critic(pooling or self.config.pooling)
            return tf.function(
                lambda ids, lengths: self.embed(ids, lengths, pooling, layers),
                input_signature=ID_SPECS, autograph=False,
            )  # fmt: skip

        return functools.cache(build)

    @functools.cached_property
    def _text_graphs(self) -> Callable[..., Any]:
        """Graphs of a batch of texts [B], by pooling and layers."""

        def build(pooling: str | None, layers: Any) -> Any:
            self._pooling_critic(pooling or self.config.pooling)  # complains

            def answer(tokens: tf.RaggedTensor) -> Tensor:
                ids, lengths = self.states.format_tokens(tokens)
                return self.embed(ids, lengths, pooling, layers)

            if self._reads_table(pooling, layers):
                table = Vectors(States(variants.folded(self.workdir)))
                answer = table.embed_tokens
            return self._graph_of_texts(answer, self.workdir.max_length)

        return functools.cache(build)

    @functools.cached_property
    def _token_graph(self) -> Any:
        """A graph of `embed_tokens`, by the weights at each call."""
        return tf.function(
            self.embed_tokens,
            input_signature=[tf.RaggedTensorSpec((None, None), tf.int32, 1)],
            autograph=False,
        )

    def _reads_table(self, pooling: str | None, layers: Any) -> bool:
        """Tells whether `embed_tokens` computes the vectors."""
        return self.is_table and pooling is None and not layers

    # -------------------------------------------------- strings to vectors

    def encode(
        self,
        texts: Sequence[strings.Text],
        batch_size: int = 8,
        pooling: str | None = None,
        normalize: bool = False,
        progress: bool = True,
        layers: Sequence[int] | int | str | None = None,
        prompt: str | None = None,
        dims: int | None = None,
    ) -> np.ndarray:
        """Computes vectors of texts, in order.

        Equal texts are encoded once, and have equal vectors. Texts are sorted
        by length and batched by tokens, so that hardly any padding is
        computed; two batches are computed at a time, or as many as there are
        cores where TensorFlow has one thread for an operation
        (`tf.config.threading.set_intra_op_parallelism_threads(1)`), with which
        one text alone is faster, too. Texts longer than `max_length` are
        truncated; `cut` says how many.

        Args:
            texts: n strings (or bytes, UTF-8), as of `strings.checked`.
            batch_size: texts of `max_length` in a batch, which holds as many
                tokens of shorter ones. Few, so that states stay in the caches
                of a processor.
            pooling, layers: settings of `embed`; one layer may be a number.
            normalize: whether vectors are scaled to length 1.
            progress: shows a bar for more than one batch.
            prompt: name of the prompt before each text, as 'query'; None: the
                config's, '': none.
            dims: number of the first numbers of a vector that are returned (of
                length 1 where vectors are), as models trained with
                `--simcse.dims` allow.

        Returns:
            float32 [n, `width`], or [n, dims].

        Raises:
            TypeError: one string instead of a sequence of strings, or an
                entry that is no text.
            ValueError: a pooling, layer or prompt that this model does not
                have, more `dims` than numbers, or half a surrogate pair.
        """
        texts, indices = strings.distinct(strings.checked(texts))
        if isinstance(layers, int):
            layers = (layers,)
        # What follows complains before the work.
        self.states.check_layers(layers)
        self.config.prompt_text(prompt)
        width = self._checked_width(pooling, dims)
        is_table = self._reads_table(pooling, layers)
        if is_table or 0 < len(texts) <= batch_size:
            graph = self._text_graphs(pooling, _hashable(layers))
            vectors = np.empty((len(texts), width), np.float32)
            is_long = np.zeros(len(texts), bool)
            for chunk in chunks(texts) if is_table else [slice(None)]:
                vectors[chunk], is_long[chunk] = graph(
                    self.states.prompted(texts[chunk], prompt)
                )
            vectors = _repeat(vectors, indices)
            self.cut = int(is_long[indices].sum())
        else:
            tokenized = self._tokenize(
                texts, indices, prompt, self.workdir.max_length
            )
            self.cut = tokenized.cut
            vectors = self.encode_tokenized(
                tokenized,
                batch_size=batch_size,
                pooling=pooling,
                progress=progress,
                layers=layers,
            )
        if dims is not None:
            vectors = np.ascontiguousarray(vectors[:, :dims])
            normalize |= pooling is None and self.config.normalize
        return unit_rows(vectors) if normalize else vectors

    def _checked_width(self, pooling: str | None, dims: int | None) -> int:
        """Returns `width`, or raises ValueError for more `dims`."""
        width = self.width(pooling)
        if dims is not None and not 0 < dims <= width:
            raise errors.InputError(
                'dims_out_of_range',
                f'dims {dims}: vectors have {width} numbers',
            )
        return width

    def encode_tokenized(
        self,
        texts: Tokenized,
        batch_size: int = 8,
        pooling: str | None = None,
        progress: bool = False,
        layers: Sequence[int] | str | None = None,
    ) -> np.ndarray:
        """Computes vectors as `encode` does, of texts that `tokenize` returned.

        By the weights as they are at each call. Args and errors as of
        `encode`.

        Returns:
            float32 [n, `width`].
        """
        workdir, ids, lengths = self.workdir, texts.ids, texts.lengths
        if self._reads_table(pooling, layers):
            ragged = tf.RaggedTensor.from_row_lengths(ids, lengths)
            before, after = len(workdir.before), len(workdir.after)
            tokens = ragged[:, before : -after or None]
            return _repeat(self._token_graph(tokens).numpy(), texts.indices)
        width = self.width(pooling)
        vectors = np.empty((len(lengths), width), np.float32)
        # Traced here: what surrounds the call is of this thread alone.
        embed = self.graph(pooling, layers).get_concrete_function()

        def answer(batch: np.ndarray, ids: Tensor, lengths: Tensor) -> None:
            vectors[batch] = embed(ids, lengths)

        self._in_batches(
            texts, answer, batch_size * workdir.max_length, progress
        )
        return _repeat(vectors, texts.indices)

    def tokenize(
        self, texts: Sequence[strings.Text], prompt: str | None = None
    ) -> Tokenized:
        """Tokenizes texts that are to be encoded again and again; args as of
        `encode`.
        """
        return self._tokenize(
            *strings.distinct(strings.checked(texts)), prompt,
            self.workdir.max_length,
        )  # fmt: skip

    def word_vectors(
        self, words: Sequence[strings.Text] | None = None
    ) -> WordVectors:
        """Returns vectors of words.

        Args:
            words: None: all tokens of the vocabulary but special ones. Words
                that a vocabulary of whole words lacks are left out.

        Returns:
            Input embeddings where words are tokens of the vocabulary, or
            `words` is None; of other vocabularies what `encode` computes of
            each word alone.

        Raises:
            TypeError: one string instead of a sequence of strings.
        """
        tokenizer = self.workdir.tokenizer
        if words is not None:
            named = [
                word.decode('utf-8', 'replace') if isinstance(word, bytes)
                else word
                for word in strings.checked(words, 'words')
            ]  # fmt: skip
            if tokenizer.kind != 'words':
                return WordVectors(named, self.encode(named, progress=False))
        ids = {word: i for i, word in enumerate(tokenizer.vocabulary)}
        for special in (*tokenizer.control_ids, tokenizer.unk_id):
            ids.pop(tokenizer.vocabulary[special], None)
        if words is not None:
            ids = {word: ids[word] for word in named if word in ids}
        table = np.asarray(self.workdir.encoder.embedding_table, np.float32)
        return WordVectors(list(ids), table[list(ids.values())])


def _hashable(layers: Sequence[int] | str | None) -> Any:
    if layers is None or isinstance(layers, str):
        return layers
    return tuple(layers)


def _repeat(vectors: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Repeats vectors [m, D] of distinct texts for each text: [n, D]."""
    return vectors if len(vectors) == len(indices) else vectors[indices]
