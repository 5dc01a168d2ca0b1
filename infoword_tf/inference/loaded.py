"""A trained workdir in memory: strings to vectors, and pieces for blanks.

    model = infoword_tf.load('runs/quickstart')
    model.encode(['a sentence', 'another'])        # float32 [2, D]
    model.fill_mask('read a [MASK] file')
    model.next_pieces('returns a list of')         # rows of next words
    model.classify(['a question'], ['a passage'])  # converted classifiers

Glossary of shapes: B texts of a batch, T tokens, Q places, n texts, D width,
L layers, V vocabulary.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from infoword_tf import files
from infoword_tf.config import Config
from infoword_tf.encoders import Encoded, Inputs
from infoword_tf.inference.pairs import join
from infoword_tf.inference.reader import Reader, Reply
from infoword_tf.inference.wordvectors import WordVectors
from infoword_tf.layers.block import take
from infoword_tf.layers.pooling import (
    LEARNED,
    POOLINGS,
    pool,
    pool_by_position,
    pool_highest,
    unit,
)
from infoword_tf.model import Model
from infoword_tf.objectives.infonce import NEVER
from infoword_tf.objectives.lm import NextPieces
from infoword_tf.text import vocabulary
from infoword_tf.text.layout import LAYOUTS
from infoword_tf.text.tokenizer import Tokenizer
from infoword_tf.training.checkpoint import WEIGHTS

Tensor = Any
FILL_ROWS = ('mlm', 'bert_nce')  # rows that can fill a blank, the first wins
_TEXTS_A_CALL = 4096  # of the tokenizer
_AT_A_TIME = 2  # batches: one computes where the other waits for a thread


class Loaded:
    """A workdir in memory.

    Attributes:
        encoder: the encoder with its trained weights.
        tokenizer: strings to ids.
        config: what `config.json` holds.
        model: the encoder with its rows.
        unigram: [V] int64, how often each piece was in the training text;
            None where the workdir does not say it.
        missing: by row of the config that is not in the model, why.
        layout: what stands around a text.
        before, between, after: the same as ids.
        room: pieces of a text that fit between them.
        cut: how many texts the last `encode` cut at `max_length`.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        config: Config,
        unigram: np.ndarray | None = None,
        missing: Mapping[str, str] | None = None,
    ):
        """Args: as the attributes."""
        self.model, self.encoder = model, model.encoder
        self.tokenizer, self.config = tokenizer, config
        self.unigram, self.missing = unigram, dict(missing or {})
        self.layout = LAYOUTS[config.layout]
        ids = {
            'cls': tokenizer.cls_id,
            'sep': tokenizer.sep_id,
            'mask': tokenizer.mask_id,
        }
        self.before = [ids[name] for name in self.layout.before]
        self.between = [ids[name] for name in self.layout.between]
        self.after = [ids[name] for name in self.layout.after]
        self.room = self.max_length - len(self.before) - len(self.after)
        self.cut = 0
        self._traced = functools.cache(self._trace)
        self._traced_scores = functools.cache(self._trace_scores)

    @property
    def max_length(self) -> int:
        """T: the longest that it was trained on, with specials."""
        return self.config.max_length

    def untrained(self, seed: int = 0) -> 'Loaded':
        """The same model with fresh weights: a baseline."""
        model = Model(
            self.model.config, self.tokenizer.specials, seed, companions=False
        )
        for row in self.missing:
            model.drop(row)
        return Loaded(
            model, self.tokenizer, self.config, self.unigram, self.missing
        )

    def shortened(self, numbers: Sequence[int]) -> 'Loaded':
        """An encoder of some of the layers of this one, and no rows.

        Args:
            numbers: of the layers that stay, from 1 on.

        Raises:
            ValueError: it has no such layers.
        """
        depth = self.encoder.depth
        if not set(numbers) <= set(range(1, depth + 1)):
            raise ValueError(
                f'layers {", ".join(map(str, numbers))} are asked for, but '
                f'this encoder has {depth}'
            )
        encoder = self.config.encoder
        arguments = {**encoder.arguments, 'layers': len(numbers)}
        config = self.config.replace(
            encoder=dataclasses.replace(encoder, arguments=arguments), rows={}
        )
        model = Model(
            config.replace(precision=self.model.config.precision),
            self.tokenizer.specials,
            seed=None,
            companions=False,
        )

        def origin(path: str) -> str:
            layer = re.match(r'encoder/layer_(\d+)/', path)
            if not layer:
                return path
            number = numbers[int(layer[1])] - 1
            return f'encoder/layer_{number}/{path[layer.end() :]}'

        old = self.model.variables
        files.assign(
            model.variables,
            {path: old[origin(path)].numpy() for path in model.variables},
            'the encoder with fewer layers',
        )
        return Loaded(model, self.tokenizer, config, self.unigram)

    def with_layout(self, layout: str) -> 'Loaded':
        """The same model, with other pieces around a text.

        Args:
            layout: a name in LAYOUTS.
        """
        if layout == self.config.layout:
            return self
        config = self.config.replace(layout=layout)
        return Loaded(
            self.model, self.tokenizer, config, self.unigram, self.missing
        )

    @functools.cached_property
    def folded(self) -> 'Loaded':
        """The same vectors, with weights of pieces inside the table.

        Itself where pieces have none. What is trained on has them apart.
        """
        encoder = self.config.encoder
        if not encoder.arguments.get('weighted'):
            return self
        arguments = {**encoder.arguments, 'weighted': False}
        config = self.config.replace(
            encoder=dataclasses.replace(encoder, arguments=arguments)
        )
        model = Model(
            config.replace(precision=self.model.config.precision),
            self.tokenizer.specials,
            seed=None,
            companions=False,
        )
        for row in self.missing:
            model.drop(row)
        old = self.model.variables
        values = {path: old[path].numpy() for path in model.variables}
        table = self.encoder.embedding_table.path
        weights = self.encoder.piece_weights.numpy()
        values[table] = values[table] * weights[:, None]
        files.assign(model.variables, values, 'the encoder with its weights')
        return Loaded(
            model, self.tokenizer, config, self.unigram, self.missing
        )

    def start(self, model: Model) -> str:
        """Copies what a fresh model can take from this one.

        Args:
            model: of the same encoder.

        Returns:
            What was taken, what is fresh and what was dropped, for people.
        """
        old, new = self.model.variables, model.travelling
        files.assign(
            {path: new[path] for path in new if path in old},
            {path: old[path].numpy() for path in new if path in old},
            'the workdir to start from',
        )
        model.copy_averages()

        def parts(paths: Sequence[str]) -> str:
            names = {
                '/'.join(p.split('/')[: 1 + p.startswith('objectives/')])
                for p in paths
            }
            return ', '.join(sorted(names)) or 'nothing'

        return (
            f'taken {parts([p for p in new if p in old])} and the tokenizer; '
            f'fresh {parts([p for p in new if p not in old])}; '
            f'dropped {parts([p for p in old if p not in new])}'
        )

    @property
    def training_pieces(self) -> int | None:
        """How long the training text was; None: the workdir does not say."""
        return None if self.unigram is None else int(self.unigram.sum())

    @property
    def fill_rows(self) -> list[str]:
        """Rows that can fill a blank here; the first one does.

        `bert_nce` needs `unigram`: its scores are of p(b | a) / p(b).
        """
        return [
            row
            for row in FILL_ROWS
            if row in self.model.objectives
            and (row != 'bert_nce' or self.unigram is not None)
        ]

    # ------------------------------------------------------ ids to vectors

    def states(
        self,
        ids: Tensor,
        lengths: Tensor,
        layers: Sequence[int] | str | None = None,
        places: Tensor | None = None,
        second: Tensor | None = None,
    ) -> Tensor:
        """States of padded ids; graph or eager, any shape.

        Args:
            ids: [B, T] int32, with specials.
            lengths: [B] int32; what follows in a row is padding.
            layers: of which layers the mean is taken, 0 the embeddings, -1
                or L the last; 'mix': of all, with the weights that a row has
                learned for them, else alike (ELMo); None: the last.
            places: [B, Q] int32, or None for all.
            second: [B] int32, where the second of two texts begins; None:
                there is one.

        Returns:
            [B, Q or T, D] float32.
        """
        every = layers is not None
        encoded = self._encoded(ids, lengths, every, places, second)
        if layers is None:
            return ops.cast(encoded.states, 'float32')
        if layers == 'mix':
            mean = self._mix(encoded.layers)
        else:
            chosen = [ops.cast(encoded.layers[i], 'float32') for i in layers]
            mean = sum(chosen) / len(chosen)
        return mean if places is None else take(mean, places)

    def _mix(self, layers: Sequence[Tensor]) -> Tensor:
        """L + 1 times [B, T, D] -> [B, T, D] float32."""
        for objective in self.model.objectives.values():
            if getattr(objective, 'mix', None) is not None:
                return objective.mix(layers)
        return sum(ops.cast(x, 'float32') for x in layers) / len(layers)

    def _encoded(
        self,
        ids: Tensor,
        lengths: Tensor,
        all_layers: bool = False,
        places: Tensor | None = None,
        second: Tensor | None = None,
    ) -> Encoded:
        """What the encoder gives; args as in `states`."""
        padding = ops.logical_not(self._real(ids, lengths))
        segment_ids = None
        if self.layout.last_segment:
            last = ops.equal(self._column(ids), self._last(lengths))
            segment_ids = self.layout.last_segment * ops.cast(last, 'int32')
        knows = self.encoder.arguments.get('segments', 0) > 1
        if second is not None and self.layout.second_segment and knows:
            behind = ops.greater_equal(self._column(ids), second[:, None])
            # No cast of booleans, which LiteRT's converter makes wrong here.
            inside = ops.where(behind, self.layout.second_segment, 0)
            segment_ids = (
                inside
                if segment_ids is None
                else ops.where(last, segment_ids, inside)
            )
        return self.encoder(
            Inputs(
                ids,
                segment_ids=segment_ids,
                block_ids=ops.cast(padding, 'int32'),
            ),
            places=places,
            all_layers=all_layers,
        )

    def embed(
        self,
        ids: Tensor,
        lengths: Tensor,
        pooling: str | None = None,
        layers: Sequence[int] | str | None = None,
    ) -> Tensor:
        """One vector for each text; graph or eager, any shape.

        Args:
            ids, lengths, layers: as in `states`.
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
        if pooling is None:
            pooled = self.embed(ids, lengths, self.config.pooling, layers)
            for layer in self.model.dense:
                pooled = layer(pooled)
            return unit(pooled) if self.config.normalize else pooled
        row = self._pooling_row(pooling)
        if pooling == 'first_last':
            layers = (1, -1) if layers is None else layers
        if pooling == 'mix':
            layers = 'mix' if layers is None else layers
        if pooling in ('cls', 'last'):
            return self._summary(
                ids, lengths, layers, pooling == 'cls' and self.layout.first
            )
        states = self.states(ids, lengths, layers)
        real = self._real(ids, lengths)
        if pooling == 'words':
            return row.text_vectors(ids, real, states, self.unigram)
        if pooling == 'weighted':
            return pool(states, real, ops.convert_to_tensor(row.pooling_kernel))
        if pooling == 'max':
            return pool_highest(states, real)
        if pooling == 'by_position':
            return pool_by_position(states, real)
        return pool(states, real)

    @property
    def is_table(self) -> bool:
        """Whether a text's vector is the mean of what its pieces are alone,
        whatever is around them: then `embed_pieces` gives it."""
        return not self.encoder.contextual and self.config.pooling == 'mean'

    def embed_pieces(self, pieces: tf.RaggedTensor) -> Tensor:
        """One vector for each text, from its pieces: no padding is computed.

        What `embed` gives, of a `folded` model that `is_table`, by one
        operation that looks up and adds. Graph or eager.

        Args:
            pieces: [B, None] int32, of whole texts without what stands around
                them; those beyond `room` do not count.

        Returns:
            [B, `vector_width`] float32.
        """
        table = tf.convert_to_tensor(self.encoder.embedding_table)
        splits = pieces.row_splits
        sizes = tf.minimum(splits[1:] - splits[:-1], self.room)
        text = pieces.value_rowids()
        place = tf.range(splits[-1]) - tf.gather(splits, text)
        kept = place < self.room
        total = tf.sparse.segment_sum(
            table,
            tf.boolean_mask(pieces.flat_values, kept),
            tf.boolean_mask(text, kept),
            num_segments=pieces.nrows(),
        )
        around = [*self.before, *self.after]
        ends = tf.reduce_sum(tf.gather(table, around), axis=0)
        count = tf.cast(sizes + len(around), tf.float32)
        pooled = tf.cast(total + ends, tf.float32) / count[:, None]
        for layer in self.model.dense:
            pooled = layer(pooled)
        return unit(pooled) if self.config.normalize else pooled

    def class_scores(
        self,
        ids: Tensor,
        lengths: Tensor,
        second: Tensor | None = None,
        row: str = 'label',
    ) -> Tensor:
        """What a row makes of what sums a text up; graph or eager.

        Args:
            ids, lengths, second: as in `states`.
            row: 'label', or 'score', whose one number this is.

        Returns:
            [B, C] float32, one number each where there is one class.

        Raises:
            ValueError: this model has no such row.
        """
        head = self._head(row)
        place = None
        if not self.model.reads[row]['examples'].everywhere:
            place = self._last(lengths)
            place = ops.zeros_like(place) if self.layout.first else place
        every = head.mix is not None
        encoded = self._encoded(ids, lengths, every, place, second)
        layers = encoded.layers
        if every and place is not None:
            layers = [take(layer, place) for layer in layers]
        padding = ops.cast(ops.logical_not(self._real(ids, lengths)), 'int32')
        states = head.summed(encoded.states, layers, padding, texts=1)
        return head.class_scores(states[:, 0])

    def text_scores(
        self, texts: Tensor, pairs: Tensor | None = None, row: str = 'label'
    ) -> Tensor:
        """The same of strings; graph or eager.

        Args:
            texts, pairs: [B] string. Of a model that reads two texts in both
                orders the sum of both.
            row: as in `class_scores`.
        """
        scores = self.class_scores(*self.laid_out(texts, pairs), row)
        if self._head(row).texts == 'both_ways':
            scores += self.class_scores(*self.laid_out(pairs, texts), row)
        return scores

    def sides(self, row: str) -> tuple[int, ...]:
        """How many texts an example of `label` or `score` has.

        Returns:
            One of 1 and 2, or both where nobody says what it was trained on.

        Raises:
            ValueError: this model has no such row.
        """
        if self._head(row).texts != 'joined':
            return (2,)
        task = self.config.task
        return (1, 2) if task is None else (1 + task.pairs,)

    def _head(self, row: str) -> Any:
        """The objective of a row that reads labelled examples."""
        if row not in self.model.objectives:
            what = {'label': 'labels', 'score': 'scores'}[row]
            raise ValueError(f'{self._rows} know no {what}: that takes {row}')
        return self.model.objectives[row]

    def _summary(
        self,
        ids: Tensor,
        lengths: Tensor,
        layers: Sequence[int] | None,
        first: bool,
        second: Tensor | None = None,
    ) -> Tensor:
        """[B, D]: the first state of each text, or its last."""
        place = self._last(lengths)  # [B, 1]
        if first:
            place = ops.zeros_like(place)
        # Of the last layer this state alone is computed.
        return self.states(ids, lengths, layers, place, second)[:, 0]

    def piece_scores(
        self, ids: Tensor, lengths: Tensor, places: Tensor
    ) -> Tensor:
        """log p of every piece at some places; graph or eager.

        Args:
            ids, lengths: as in `states`.
            places: [B, Q] int32, of [MASK].

        Returns:
            [B, Q, V] float32 log-probabilities; special pieces but [UNK]
            have none.

        Raises:
            ValueError: no row of this model can, or what it needs is missing.
        """
        rows = self.fill_rows
        if not rows and 'bert_nce' in self.model.objectives:
            raise ValueError(
                'bert_nce fills blanks with the piece counts of its training '
                'text, and this workdir has none (`unigram` in '
                f'{WEIGHTS})'
            )
        if not rows:
            raise ValueError(
                f'{self._rows} fill no blanks: that takes '
                f'{" or ".join(FILL_ROWS)}'
            )
        states = self.states(ids, lengths, places=places)
        counts = None
        if self.unigram is not None:
            counts = np.maximum(self.unigram, 1e-9)
        scores = self.model.objectives[rows[0]].piece_scores(states, counts)
        never = np.zeros(len(self.tokenizer), 'float32')
        never[list(self.tokenizer.control_ids)] = NEVER
        return ops.log_softmax(scores + never, axis=-1)

    def next_row(self) -> str:
        """The row that scores the next piece.

        Raises:
            ValueError: no row of this model does.
        """
        for row, objective in self.model.objectives.items():
            if isinstance(objective, NextPieces):
                return row
        raise ValueError(f'{self._rows} score no next piece')

    def next_log_p(self, states: Tensor) -> Tensor:
        """log p of the piece after a place; graph or eager.

        Args:
            states: [..., D], of that place.

        Returns:
            [..., V] float32. Of special pieces [UNK] and the end of a document,
            [SEP], have one alone.
        """
        scores = self.model.objectives[self.next_row()].piece_scores(states)
        never = np.zeros(len(self.tokenizer), 'float32')
        never[list(self.tokenizer.control_ids)] = NEVER
        never[self.tokenizer.sep_id] = 0
        return ops.log_softmax(scores + never, axis=-1)

    def next_scores(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """The same after each text, [B, V]; args as in `states`."""
        place = self._last(lengths)
        return self.next_log_p(self.states(ids, lengths, places=place)[:, 0])

    def begun(self, texts: Tensor) -> tuple[Tensor, Tensor]:
        """Ids of texts that shall go on; graph or eager.

        A text begins behind the end of another, [SEP]; of one that is too long
        the end stays.

        Args:
            texts: [B] string.

        Returns:
            ids [B, T] and lengths [B], as `next_scores` takes them.
        """
        pieces = self.tokenizer.tokenize(texts)
        ends = tf.fill([pieces.nrows(), 1], self.tokenizer.sep_id)
        ids = tf.concat([tf.RaggedTensor.from_tensor(ends), pieces], axis=1)
        ids = ids[:, -self.max_length :]
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        # Two wide at least, also where there are no texts.
        padding = self.tokenizer.pad_id
        ids = ids.to_tensor(padding)
        more = tf.maximum(0, 2 - tf.shape(ids)[1])
        ids = tf.pad(ids, [[0, 0], [0, more]], constant_values=padding)
        return ids, lengths

    def next_pieces(
        self, text: str | bytes, top_k: int = 10
    ) -> list[tuple[str, float]]:
        """What may come next.

        Args:
            text: so far; of one that is too long its end is read.
            top_k: answers.

        Returns:
            The best pieces with their log-probabilities (nats), best first;
            '[SEP]' (as the vocabulary calls it) is the end.

        Raises:
            ValueError: no row of this model scores the next piece.
        """
        self.next_row()  # complains before the work
        scores = self.next_scores(*self.begun(tf.constant([text])))[0]
        best = tf.math.top_k(scores, min(top_k, len(self.tokenizer)))
        return [
            (self.tokenizer.vocabulary[i], float(value))
            for value, i in zip(
                best.values.numpy(), best.indices.numpy(), strict=True
            )
        ]

    def _real(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """[B, T] bool: what is no padding."""
        return ops.less_equal(self._column(ids), self._last(lengths))

    def _column(self, ids: Tensor) -> Tensor:
        """[1, T] int32: 0, 1, 2, ..."""
        return ops.arange(ops.shape(ids)[1], dtype='int32')[None, :]

    def _last(self, lengths: Tensor) -> Tensor:
        """[B, 1] int32: the last place of each text."""
        return ops.convert_to_tensor(lengths, dtype='int32')[:, None] - 1

    @property
    def _rows(self) -> str:
        """The rows, for complaints."""
        rows = ', '.join(self.model.objectives) or 'none'
        reasons = ''.join(
            f' ({row}: {why})' for row, why in self.missing.items()
        )
        return f'rows {rows}{reasons}'

    def vector_width(self, pooling: str | None = None) -> int:
        """How long the vectors of a pooling are; args as in `embed`."""
        if pooling is None and self.config.dense:
            return self.config.dense[-1].width
        pooling = pooling or self.config.pooling
        more = self._pooling_row(pooling).words if pooling == 'words' else 0
        return self.encoder.width + more

    def _pooling_row(self, pooling: str) -> Any:
        """The row whose weights a pooling needs; None: it needs none."""
        if pooling not in POOLINGS:
            raise ValueError(
                f'pooling {pooling!r}: known are {", ".join(POOLINGS)}'
            )
        if pooling not in LEARNED:
            return None
        for objective in self.model.objectives.values():
            if getattr(objective, 'pooling_kernel', None) is None:
                continue
            has_words = getattr(objective, 'words', 0)
            if pooling == 'weighted' or (
                has_words and self.unigram is not None
            ):
                return objective
        learned = 'weights' if pooling == 'weighted' else 'words'
        raise ValueError(
            f'pooling {pooling}: {self._rows} have learned no {learned}; take '
            'cls, mean or first_last'
        )

    def graph(
        self,
        pooling: str | None = None,
        layers: Sequence[int] | None = None,
    ) -> Any:
        """`embed` as one graph for all shapes: (ids, lengths) -> [B, D]."""
        if layers not in (None, 'mix'):
            layers = tuple(layers)
        return self._traced(pooling, layers)

    # ----------------------------------------------------------- strings

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
        if isinstance(words, str | bytes):
            raise TypeError('words are a list, this is one string')
        if words is not None and self.tokenizer.kind != 'words':
            return WordVectors(list(words), self.encode(words, progress=False))
        index = {word: i for i, word in enumerate(self.tokenizer.vocabulary)}
        for special in (*self.tokenizer.control_ids, self.tokenizer.unk_id):
            index.pop(self.tokenizer.vocabulary[special], None)
        if words is not None:
            index = {word: index[word] for word in words if word in index}
        table = np.asarray(self.encoder.embedding_table, np.float32)
        return WordVectors(list(index), table[list(index.values())])

    def encode(
        self,
        texts: Sequence[str],
        batch_size: int = 8,
        pooling: str | None = None,
        normalize: bool = False,
        progress: bool = True,
        layers: Sequence[int] | int | str | None = None,
        prompt: str | None = None,
    ) -> np.ndarray:
        """Vectors of texts, in their order.

        Texts are sorted by length and batched by tokens, so that hardly any
        padding is computed; two batches are computed at a time. Longer texts
        than `max_length` are cut; `cut` says how many.

        Args:
            texts: n strings (or bytes, UTF-8).
            batch_size: a batch holds so many texts of `max_length`, or as
                many tokens of shorter ones. Few, so that states stay in the
                caches of a processor.
            pooling, layers: as in `embed`; one layer may be a number.
            normalize: to length 1.
            progress: shows a bar for more than one batch.
            prompt: name of what is put before each text, as 'query'; None:
                what the config says, '': nothing.

        Returns:
            float32 [n, `vector_width`].

        Raises:
            TypeError: one string instead of a sequence of them.
            ValueError: a pooling, layer or prompt that this model does not
                have.
        """
        import tqdm

        if isinstance(texts, str | bytes):
            raise TypeError('encode takes a list of texts, this is one string')
        if isinstance(layers, int):
            layers = (layers,)
        for layer in () if layers in (None, 'mix') else layers:
            depth = self.encoder.depth
            if not -depth - 1 <= layer <= depth:
                raise ValueError(f'layer {layer}: there are 0 to {depth}')
        texts = self._prompted(texts, prompt)
        if self.is_table and pooling is None and not layers:
            return self._encode_pieces(texts, normalize)
        # Traced here: what surrounds the call is of this thread alone.
        embed = self.graph(pooling, layers).get_concrete_function()
        ids, lengths = self._ids(texts)
        begins = np.cumsum(lengths) - lengths
        order = np.argsort(lengths, kind='stable')[::-1]
        width = self.vector_width(pooling)
        vectors = np.empty((len(texts), width), np.float32)
        tokens = batch_size * self.max_length
        batches, done = [], 0
        while done < len(texts):
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
            tqdm.tqdm(
                total=len(texts),
                unit=' texts',
                disable=not progress or lengths.sum() <= tokens,
            ) as bar,
            futures.ThreadPoolExecutor(_AT_A_TIME) as threads,
        ):
            for count in threads.map(compute, batches):
                bar.update(count)
        return _unit(vectors) if normalize else vectors

    def _encode_pieces(
        self, texts: list[str | bytes], normalize: bool
    ) -> np.ndarray:
        """`encode` of a model that `is_table`."""
        width = self.vector_width()
        vectors = np.empty((len(texts), width), np.float32)
        self.cut = 0
        for begin in range(0, len(texts), _TEXTS_A_CALL):
            some = slice(begin, begin + _TEXTS_A_CALL)
            found, cut = self._table_graph(tf.constant(texts[some], tf.string))
            vectors[some] = found
            self.cut += int(cut)
        return _unit(vectors) if normalize else vectors

    @functools.cached_property
    def _table_graph(self) -> Any:
        """Texts [B] to vectors, and how many of them were cut."""
        folded = self.folded

        def compute(texts: Tensor) -> tuple[Tensor, Tensor]:
            pieces = self.tokenizer.tokenize(texts)
            cut = tf.math.count_nonzero(pieces.row_lengths() > self.room)
            return folded.embed_pieces(pieces), cut

        return tf.function(
            compute, input_signature=[tf.TensorSpec((None,), tf.string)]
        )

    def prompt_of(self, name: str | None = None) -> str:
        """What is put before a text.

        Args:
            name: of a prompt; None: the config's; '': none.

        Raises:
            ValueError: there is none of that name.
        """
        name = self.config.prompt if name is None else name
        if not name:
            return ''
        if name not in self.config.prompts:
            known = ', '.join(self.config.prompts) or 'none'
            raise ValueError(f'prompt {name!r}: this model has {known}')
        return self.config.prompts[name]

    def _prompted(
        self, texts: Sequence[str], prompt: str | None
    ) -> list[str | bytes]:
        """The texts with what is put before each."""
        before = self.prompt_of(prompt)
        if not before:
            return list(texts)
        return [
            before + text if isinstance(text, str) else before.encode() + text
            for text in texts
        ]

    def classify(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        batch_size: int = 32,
    ) -> np.ndarray:
        """What the row `label` says of texts, or of pairs of them.

        Args:
            texts: n strings (or bytes, UTF-8).
            pairs: n second texts; None: there are none.
            batch_size: texts that are computed together.

        Returns:
            float32 [n, C]: by class, in the order of `config.labels`, its
            probability; of one class alone the logistic function of its
            score.

        Raises:
            ValueError: no such row; texts and pairs of different numbers.
        """
        scores = self._text_scores(texts, pairs, 'label', batch_size)
        return np.asarray(self.probabilities_of(scores))

    def choose(
        self,
        texts: Sequence[str],
        choices: Sequence[Sequence[str]],
        batch_size: int = 32,
    ) -> np.ndarray:
        """Which of several second texts is right.

        Args:
            texts: n strings.
            choices: K times n of them.
            batch_size: texts that are computed together.

        Returns:
            float32 [n, K], the probability of each.
        """
        scores = [
            self._text_scores(texts, choice, 'label', batch_size)
            for choice in choices
        ]
        return np.asarray(ops.softmax(np.concatenate(scores, axis=1), axis=1))

    def answer(
        self,
        questions: Sequence[str],
        contexts: Sequence[str],
        batch_size: int = 32,
    ) -> list[Reply]:
        """What the row `span` answers; see `reader.Reader.answer`."""
        return self.reader.answer(questions, contexts, batch_size)

    @functools.cached_property
    def reader(self) -> Reader:
        """The row `span` at work; ValueError: there is none."""
        return Reader(self)

    def rate(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        batch_size: int = 32,
    ) -> np.ndarray:
        """float32 [n], the numbers of the row `score`; see `classify`."""
        return self._text_scores(texts, pairs, 'score', batch_size)[:, 0]

    def _text_scores(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None,
        row: str,
        batch_size: int,
    ) -> np.ndarray:
        """`text_scores` of any number of texts: [n, C] float32."""
        head = self._head(row)
        if isinstance(texts, str | bytes):
            raise TypeError('this takes a list of texts, this is one string')
        if pairs is not None and len(pairs) != len(texts):
            raise ValueError(f'{len(texts)} texts and {len(pairs)} pairs')
        sides = [texts] if pairs is None else [texts, pairs]
        if len(sides) not in self.sides(row):
            wanted = 'two texts' if pairs is None else 'one text'
            raise ValueError(f'{row} was trained on examples of {wanted}')
        # Those of like length together: hardly any padding is computed.
        sizes = [sum(map(len, row)) for row in zip(*sides, strict=True)]
        order = np.argsort(sizes)
        found = np.zeros((len(texts), head.classes), np.float32)
        graph = self._traced_scores(row, len(sides))
        for begin in range(0, len(texts), batch_size):
            some = order[begin : begin + batch_size]
            found[some] = graph(
                *(tf.constant([side[i] for i in some], tf.string)
                  for side in sides)
            )  # fmt: skip
        return found

    def _trace_scores(self, row: str, sides: int) -> Any:
        """`text_scores` as one graph for any number of texts."""
        return tf.function(
            lambda *texts: self.text_scores(*texts, row=row),
            input_signature=[tf.TensorSpec((None,), tf.string)] * sides,
        )

    def probabilities(
        self, ids: Tensor, lengths: Tensor, second: Tensor | None = None
    ) -> Tensor:
        """[B, C] float32 of `class_scores`; args as there."""
        return self.probabilities_of(self.class_scores(ids, lengths, second))

    def probabilities_of(self, scores: Tensor) -> Tensor:
        """[B, C] scores of classes -> [B, C], see `classify`."""
        if scores.shape[-1] == 1:
            return ops.sigmoid(scores)
        return ops.softmax(scores, axis=-1)

    def laid_out(
        self,
        texts: Tensor,
        pairs: Tensor | None = None,
        max_length: int | None = None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Ids of texts, or of pairs of them; graph or eager.

        Args:
            texts, pairs: [B] string.
            max_length: T at most; None: the model's.

        Returns:
            ids, lengths and second, as `states` takes them.
        """
        max_length = max_length or self.max_length
        pieces = self.tokenizer.tokenize(texts)
        if pairs is not None:
            return join(
                pieces,
                self.tokenizer.tokenize(pairs),
                (self.before, self.between, self.after),
                max_length,
                self.tokenizer.pad_id,
            )
        nothing = tf.RaggedTensor.from_row_lengths(
            tf.zeros([0], tf.int32), tf.zeros_like(pieces.row_lengths())
        )
        ids, lengths, _ = join(
            pieces,
            nothing,
            (self.before, (), self.after),
            max_length,
            self.tokenizer.pad_id,
        )
        return ids, lengths, None

    def fill_mask(
        self, text: str | bytes, top_k: int = 10
    ) -> list[list[tuple[str, float]]]:
        """What may stand at each [MASK] of a text.

        Args:
            text: with [MASK] where a piece is wanted.
            top_k: answers for each.

        Returns:
            For each [MASK] the best pieces with their log-probabilities
            (nats), best first.

        Raises:
            ValueError: no [MASK], a text too long, or no row that can.
        """
        mask = vocabulary.MASK
        parts = text.split(mask if isinstance(text, str) else mask.encode())
        if len(parts) == 1:
            raise ValueError(f'there is no {vocabulary.MASK} in {text!r}')
        tokenizer = self.tokenizer
        ids = list(self.before)
        inside = [False] + [True] * (len(parts) - 1)
        found = tokenizer.tokenize_parts(
            tf.constant(parts, tf.string), tf.constant(inside)
        )
        for number, part in enumerate(found.to_list()):
            ids += [tokenizer.mask_id] * (number > 0) + part
        ids += self.after
        if len(ids) > self.max_length:
            raise ValueError(
                f'{len(ids)} tokens, but this model takes {self.max_length}; '
                'shorten the text'
            )
        ids = np.array([ids], np.int32)
        places = np.nonzero(ids[0] == tokenizer.mask_id)[0]
        scores = self.piece_scores(
            tf.constant(ids),
            tf.constant([ids.shape[1]]),
            tf.constant(places[None], tf.int32),
        )
        best = tf.math.top_k(scores[0], min(top_k, len(tokenizer)))
        return [
            [
                (tokenizer.vocabulary[i], float(value))
                for value, i in zip(values, found, strict=True)
            ]
            for values, found in zip(
                best.values.numpy(), best.indices.numpy(), strict=True
            )
        ]

    def _trace(
        self, pooling: str | None, layers: tuple[int, ...] | None
    ) -> Any:
        """`embed` as a graph that takes any shape."""
        # Complains before the work.
        self._pooling_row(pooling or self.config.pooling)
        return tf.function(
            lambda ids, lengths: self.embed(ids, lengths, pooling, layers),
            input_signature=[
                tf.TensorSpec((None, None), tf.int32),
                tf.TensorSpec((None,), tf.int32),
            ],
        )

    def _ids(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """All texts in their layout: flat int32 ids, lengths [n] int64."""
        before, after = len(self.before), len(self.after)
        flat, lengths = [], []
        self.cut = 0
        for begin in range(0, len(texts), _TEXTS_A_CALL):
            pieces = self.tokenizer.tokenize(
                tf.constant(texts[begin : begin + _TEXTS_A_CALL], tf.string)
            )
            values = pieces.flat_values.numpy()
            splits = pieces.row_splits.numpy()
            sizes = np.minimum(np.diff(splits), self.room)
            self.cut += int((np.diff(splits) > self.room).sum())
            lengths.append(before + sizes + after)
            ends = np.cumsum(lengths[-1])
            begins = ends - lengths[-1]
            made = np.empty(ends[-1], np.int32)
            for place, number in enumerate(self.before):
                made[begins + place] = number
            for place, number in enumerate(self.after):
                made[ends - after + place] = number
            within = np.arange(sizes.sum())
            within -= np.repeat(np.cumsum(sizes) - sizes, sizes)
            made[np.repeat(begins + before, sizes) + within] = values[
                np.repeat(splits[:-1], sizes) + within
            ]
            flat.append(made)
        if not texts:
            return np.zeros(0, np.int32), np.zeros(0, np.int64)
        return np.concatenate(flat), np.concatenate(lengths)


def _unit(vectors: np.ndarray) -> np.ndarray:
    """[n, D], in place, to length 1."""
    vectors /= np.maximum(
        np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12
    )
    return vectors
