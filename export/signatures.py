"""The signatures of an export: strings in, a graph of plain operations.

    embed           texts [B] -> embeddings [B, D]
    embed_PROMPT    the same, of each text with that prompt before it
    tokens          texts [B] -> states [B, T, D], starts, ends, ids [B, T],
                    lengths [B]
    fill_mask       texts [B] -> tokens, scores [B, MASKS, ANSWERS], count [B]
    next_token      texts [B] -> tokens, scores [B, ANSWERS]
    classify        texts [B] -> label [B], labels, probabilities, scores
                    [B, C]
    classify_pairs  texts, pairs [B] -> the same
    regress         texts [B] -> score [B]
    regress_pairs   texts, pairs [B] -> the same
    choose          texts [B], choices [B, K] -> choice [B], probabilities
                    [B, K]
    answer          texts (questions), pairs (contexts) [B] -> text, score,
                    begin, end [B], texts, scores, probabilities, begins, ends
                    [B, N], null_odds [B]

`serving_default` is one of them, see `Signatures.default`. They compute what
`Loaded.encode`, `states`, `fill_mask`, `next_pieces`,
`classify`, `rate`, `choose` and `answer` compute, through the same layers. A
batch goes through the encoder in chunks, one after the other, so that memory
does not grow with the batch. All but `tokens` and `fill_mask` take texts by
their length: chunks are of equal length, nearly without padding, and small
enough for the caches of a processor.

Glossary of shapes: B texts of a call, C texts of a chunk, T tokens with
specials, N pieces of all texts together, Q masks of a text, D width, C also
classes, K choices.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from export import chunks
from infoword_tf.inference import blanks
from infoword_tf.inference.loaded import Loaded
from infoword_tf.text.template import lay_out, padded, table

ROWS = 256  # texts of a chunk, at most
TOKENS = 32_768  # tokens of a chunk, at most: 256 texts of 128
SORTED_TOKENS = 2048  # of a chunk of `embed`, about
MASKS = 8  # of a text are answered
ANSWERS = 10  # for each of them
# What people gave labels for; of single texts where pairs can be asked too.
LABELLED = (
    'answer', 'choose', 'classify', 'classify_pairs', 'regress',
    'regress_pairs',
)  # fmt: skip
NOWHERE = -1  # offset of special pieces and padding

Tensor = Any


class Signatures:
    """The signatures that the rows of a workdir allow, as graphs.

    Attributes:
        loaded: the workdir.
        functions: by name, a concrete function of `texts` [B] string, and of
            `pairs` [B] where it is about two texts, of `choices` [B, K] where
            it is about one of several.
        inputs: by name, the names of what it takes.
        weights: by path, the variables that they read; what only training
            needs is not among them.
        default: the one that answers where a request names none: what the
            workdir was trained for, vectors where that was no label.
        constants: by path, the weights that are constants of the graphs.
        narrow: by path, variables in bfloat16 that stand for those of the
            workdir.
    """

    def __init__(self, loaded: Loaded):
        """Traces them."""
        self.loaded = loaded = loaded.folded
        texts, pairs = (
            tf.TensorSpec((None,), tf.string, name=name)
            for name in ('texts', 'pairs')
        )
        choices = tf.TensorSpec((None, None), tf.string, name='choices')
        # One graph, whatever stands before a text.
        bare = tf.function(
            self._embed, input_signature=[texts], autograph=False
        )
        prompts = {'embed': None}
        prompts |= {f'embed_{name}': name for name in loaded.config.prompts}
        # By name a function, and what it takes.
        wanted: dict[str, tuple[Callable, list[tf.TensorSpec]]] = {
            name: (functools.partial(self._prompted, bare, prompt), [texts])
            for name, prompt in prompts.items()
        }
        wanted['tokens'] = self._tokens, [texts]
        if loaded.fill_rows:
            wanted['fill_mask'] = self._fill_mask, [texts]
        if loaded.rows_that('next'):
            wanted['next_token'] = self._next_token, [texts]
        for answer, name, function in (
            ('classes', 'classify', self._classify),
            ('numbers', 'regress', self._regress),
        ):
            for row in loaded.rows_that(answer):
                if loaded.model.objectives[row].texts == 'choices':
                    choose = functools.partial(self._choose, row)
                    wanted['choose'] = choose, [texts, choices]
                    continue
                # Of what it was trained on.
                for sides in loaded.sides(row):
                    full_name = name if sides == 1 else f'{name}_pairs'
                    of_row = functools.partial(function, row)
                    wanted[full_name] = of_row, [texts, pairs][:sides]
        if loaded.rows_that('spans'):
            wanted['answer'] = self._answer, [texts, pairs]
        self.constants, self.narrow = _cast(loaded)
        with _instead(loaded, self.constants | self.narrow):
            self.functions = {
                name: tf.function(
                    _ranked(function), input_signature=specs, autograph=False
                ).get_concrete_function()
                for name, (function, specs) in wanted.items()
            }
        self.default = next((n for n in LABELLED if n in wanted), 'embed')
        self.inputs = {
            name: [spec.name for spec in specs]
            for name, (_, specs) in wanted.items()
        }
        variables = loaded.model.variables.items()
        held = {path: variable.value for path, variable in variables}
        read = {
            variable.ref()
            for function in self.functions.values()
            for variable in function.variables
        }
        self.weights = {
            path: variable
            for path, variable in (held | self.narrow).items()
            if variable.ref() in read
        }

    def save(self, folder: str) -> None:
        """Writes the SavedModel: `serving_default` is what `default` names."""
        # What is saved are graphs and their weights, no layer of Keras.
        module = tf.Module(name='infoword')
        module.weights = self.weights
        module.tokenizer = self.loaded.tokenizer  # with what it holds
        signatures = {'serving_default': self.functions[self.default]}
        tf.saved_model.save(module, folder, signatures | self.functions)

    # ------------------------------------------------------- the signatures

    def _prompted(
        self, embed: Callable, prompt: str | None, texts: Tensor
    ) -> dict[str, Tensor]:
        """`embed` of texts with a prompt before each."""
        return embed(self.loaded.prompted(texts, prompt))

    def _embed(self, texts: Tensor) -> dict[str, Tensor]:
        """One vector for each text, pooled as the config says."""
        if self.loaded.is_table:
            pieces = self.loaded.tokenizer.tokenize(texts)
            return {'embeddings': self.loaded.embed_pieces(pieces)}
        return {
            'embeddings': self._by_length(
                self.loaded.embed,
                self.loaded.vector_width(),
                *self.loaded.laid_out(texts),
            )
        }

    def _classify(
        self, row: str, texts: Tensor, pairs: Tensor | None = None
    ) -> dict[str, Tensor]:
        """What each text is, or each two: all classes, the best one's name."""
        names = tf.constant(self.loaded.config.labels)
        scores = self._scores(row, texts, pairs)
        count = tf.shape(scores)[0]
        return {
            'label': tf.gather(names, tf.argmax(scores, axis=1)),
            'labels': tf.tile(names[None], [count, 1]),
            'probabilities': self.loaded.probabilities_of(scores),
            'scores': scores,
        }

    def _regress(
        self, row: str, texts: Tensor, pairs: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The number of each text, or of each two."""
        return {'score': self._scores(row, texts, pairs)[:, 0]}

    def _choose(
        self, row: str, texts: Tensor, choices: Tensor
    ) -> dict[str, Tensor]:
        """Which of several second texts goes with each."""
        shape = tf.shape(choices)
        scores = self._scores(
            row, tf.repeat(texts, shape[1]), tf.reshape(choices, [-1])
        )
        probabilities = tf.nn.softmax(tf.reshape(scores, shape))
        return {
            'choice': tf.argmax(probabilities, axis=1, output_type=tf.int32),
            'probabilities': probabilities,
        }

    def _scores(
        self, row: str, texts: Tensor, pairs: Tensor | None = None
    ) -> Tensor:
        """[B, C] float32: `Loaded.text_scores`, in chunks."""
        compute = functools.partial(
            self._by_length,
            functools.partial(self.loaded.class_scores, row=row),
            self.loaded.model.objectives[row].columns,
        )
        return self.loaded.text_scores(texts, pairs, row, compute)

    def _answer(self, texts: Tensor, pairs: Tensor) -> dict[str, Tensor]:
        """What each context says to its question."""
        reader = self.loaded.reader
        pages = reader.pages(texts, pairs)
        spans = self._by_length(
            reader.spans, reader.width, pages.ids, pages.lengths, pages.second,
            pages.begins, pages.sizes, pages.most,
        )  # fmt: skip
        return reader.replies(pairs, pages, spans)

    def _by_length(
        self,
        compute: Callable[..., Tensor],
        width: int,
        ids: Tensor,
        lengths: Tensor,
        *more: Tensor | None,
    ) -> Tensor:
        """Computes something of each text, those of like length together.

        Args:
            compute: of ids [C, T], lengths [C] and of those `more` that are
                there, [C, ...] -> [C, width] float32.
            width, ids, lengths, *more: likewise, of B texts.
        """
        order = tf.argsort(lengths, stable=True)
        ids, lengths, *more = (
            tf.gather(x, order)
            for x in (ids, lengths, *more)
            if x is not None
        )

        def chunk(begin: Tensor, end: Tensor) -> tuple[Tensor, ...]:
            here = lengths[begin:end]
            # Constants of the loop itself, not what is passed to it.
            own = {k: tf.constant(v.numpy()) for k, v in self.constants.items()}
            with _instead(self.loaded, own | self.narrow):
                return (
                    compute(
                        ids[begin:end, : chunks.longest(here)],
                        here,
                        *(x[begin:end] for x in more),
                    ),
                )

        (found,) = chunks.in_chunks(
            chunks.ends_by_tokens(
                lengths, max(SORTED_TOKENS, self.loaded.max_length)
            ),
            chunk,
            [((width,), tf.float32)],
        )
        # As they came.
        return tf.tensor_scatter_nd_update(found, order[:, None], found)

    def _tokens(self, texts: Tensor) -> dict[str, Tensor]:
        """The state of each token, and the bytes that it stands for."""
        ends = chunks.ends(tf.size(texts), self._rows())
        limit = self.loaded.free_length

        def tokenize(begin: Tensor, end: Tensor) -> tuple[Tensor, ...]:
            tokenizer = self.loaded.tokenizer
            here = tokenizer.tokenize_with_offsets(texts[begin:end])
            here = [tf.cast(x, tf.int32)[:, :limit] for x in here]
            return *(x.flat_values for x in here), here[0].row_lengths()

        # First all pieces, which say how long the longest text is.
        *found, sizes = chunks.in_chunks(
            ends,
            tokenize,
            [((), tf.int32)] * 3 + [((), tf.int64)],
        )
        pieces, firsts, lasts = (
            tf.RaggedTensor.from_row_lengths(x, sizes, validate=False)
            for x in found
        )
        ids, lengths = self._padded(pieces)
        longest = tf.shape(ids)[1]

        def encode(begin: Tensor, end: Tensor) -> tuple[Tensor, ...]:
            here = lengths[begin:end]
            length = chunks.longest(here)
            states = self.loaded.states(ids[begin:end, :length], here)
            real = tf.sequence_mask(here, length, tf.float32)
            states = states * real[:, :, None]
            return (tf.pad(states, [[0, 0], [0, longest - length], [0, 0]]),)

        (states,) = chunks.in_chunks(
            ends, encode, [((None, self.loaded.encoder.width), tf.float32)]
        )
        before = [NOWHERE] * len(self.loaded.before)
        after = [NOWHERE] * len(self.loaded.after)
        starts, ends = (
            table(lay_out(before, x, after), NOWHERE) for x in (firsts, lasts)
        )
        return {'states': states, 'starts': starts, 'ends': ends, 'ids': ids,
                'lengths': lengths}  # fmt: skip

    def _fill_mask(self, texts: Tensor) -> dict[str, Tensor]:
        """The likeliest pieces at the first `MASKS` [MASK] of each text."""
        names = tf.constant(self.loaded.tokenizer.vocabulary)
        answers = min(ANSWERS, len(self.loaded.tokenizer))

        def chunk(begin: Tensor, end: Tensor) -> tuple[Tensor, ...]:
            tokenizer, limit = self.loaded.tokenizer, self.loaded.free_length
            pieces = blanks.with_masks(tokenizer, texts[begin:end])
            found = blanks.masks_of(pieces, tokenizer.mask_id)
            masks = blanks.first_masks(found, MASKS)
            pieces = blanks.near_masks(pieces, masks, limit)
            ids, lengths = self._padded(pieces)
            masks = blanks.masks_of(pieces, tokenizer.mask_id)
            masks = blanks.first_masks(masks, MASKS)
            there = masks >= 0
            scores = self.loaded.piece_scores(
                ids,
                lengths,
                tf.where(there, masks + len(self.loaded.before), 0),
            )
            best = tf.math.top_k(scores, answers)
            return (
                tf.where(there[:, :, None], tf.gather(names, best.indices), ''),
                tf.where(there[:, :, None], best.values, 0.0),
                tf.cast(found.row_lengths(), tf.int32),
            )

        # As many masks as an `embed` has texts: each costs V scores.
        tokens, scores, count = chunks.in_chunks(
            chunks.ends(tf.size(texts), max(1, self._rows() // MASKS)),
            chunk,
            [
                ((MASKS, answers), tf.string),
                ((MASKS, answers), tf.float32),
                ((), tf.int32),
            ],
        )
        return {'tokens': tokens, 'scores': scores, 'count': count}

    def _next_token(self, texts: Tensor) -> dict[str, Tensor]:
        """The likeliest pieces after each text."""
        names = tf.constant(self.loaded.tokenizer.vocabulary)
        answers = min(ANSWERS, len(self.loaded.tokenizer))

        def best(ids: Tensor, lengths: Tensor) -> Tensor:
            best_pieces = tf.math.top_k(
                self.loaded.next_scores(ids, lengths), answers
            )
            # Ids are exact in float32: there are fewer than 2^24.
            numbers = tf.cast(best_pieces.indices, tf.float32)
            return tf.concat([best_pieces.values, numbers], axis=1)

        best_pieces = self._by_length(
            best, 2 * answers, *self.loaded.begun(texts)
        )
        scores, numbers = tf.split(best_pieces, 2, axis=1)
        return {
            'tokens': tf.gather(names, tf.cast(numbers, tf.int32)),
            'scores': scores,
        }

    # ----------------------------------------------------------- their parts

    def _rows(self) -> int:
        """How many texts make a chunk."""
        return max(1, min(ROWS, TOKENS // self.loaded.max_length))

    def _padded(self, pieces: tf.RaggedTensor) -> tuple[Tensor, Tensor]:
        """Ids [C, T] and lengths [C] of texts in their layout, cut."""
        loaded = self.loaded
        return padded(
            loaded.template.one(pieces, loaded.max_length),
            loaded.tokenizer.pad_id,
        )


def _ranked(function: Callable) -> Callable:
    """The same, of tensors that have the rank of the signature alone.

    A server does not look at ranks, and an operation of tf.text that is given
    a lone string ends the process. Of another rank than it was told a slice is
    refused; that it is all of the tensor nobody knows before, so it stays in
    the graph, and it copies nothing.
    """

    def called(*tensors: Tensor) -> dict[str, Tensor]:
        return function(
            *(tf.slice(x, [0] * x.shape.rank, tf.shape(x)) for x in tensors)
        )

    return called


def _cast(
    loaded: Loaded,
) -> tuple[dict[str, Tensor], dict[str, tf.Variable]]:
    """By path, weights of the encoder as constants and as narrow variables.

    Constants are its biases and what its norms multiply by. For one short text
    it counts what is read in each call, and they are small.

    Where it computes in bfloat16 kernels are constants too, and embeddings
    variables. A processor that multiplies in bfloat16 wants weights in an order
    of its own. TensorFlow keeps constants in that order and brings variables
    into it in each call, after casting them. In float32 the order depends on
    the number of rows and there is nothing to gain. Embeddings are looked up,
    not multiplied: as variables they are stored once.
    """
    dtype, variables = loaded.encoder.compute_dtype, loaded.model.variables
    constants = {
        path: tf.constant(variable.numpy())
        for path, variable in variables.items()
        if path.startswith('encoder/') and len(variable.shape) == 1
    }
    if dtype == 'float32':
        return constants, {}
    # Those that layers cast at use: it is what they do in `embed` too.
    constants |= {
        path: tf.constant(tf.cast(variable.value, dtype))
        for path, variable in variables.items()
        if path.startswith('encoder/') and path.endswith('_kernel')
    }
    table = variables.get('encoder/word_embeddings')
    if table is None:  # characters are read
        return constants, {}
    narrow = tf.Variable(
        tf.cast(table.value, dtype), trainable=False, name='embeddings'
    )
    return constants, {table.path: narrow}


def _instead(
    loaded: Loaded, values: dict[str, Tensor]
) -> keras.StatelessScope:
    """Inside, weights have these values."""
    scope = keras.StatelessScope()
    for path, value in values.items():
        scope.add_update((loaded.model.variables[path], value))
    return scope
