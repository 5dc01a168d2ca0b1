"""The signatures of an export: strings in, a graph of plain operations.

    embed           texts [B] -> embeddings [B, D]
    embed_PROMPT    the same, of each text with that prompt before it
    embed_tokens    texts (passages) [B] -> embeddings [B, T, W], count [B]
    embed_sparse    texts (passages) [B] -> ids, weights, tokens [B, U],
                    count [B]
    embed_tokens_query, embed_sparse_query    the same, of queries
    tokens          texts [B] -> states [B, T, D], starts, ends, ids [B, T],
                    lengths [B]
    fill_mask       texts [B] -> tokens, scores [B, MASKS, ANSWERS], count [B]
    next_token      texts [B] -> tokens, scores [B, ANSWERS]
    classify        texts [B] -> label [B] (of several a JSON list), labels,
                    probabilities, scores [B, C]
    classify_pairs  texts, pairs [B] -> the same
    regress         texts [B] -> score [B]
    regress_pairs   texts, pairs [B] -> the same
    score_pairs     texts (queries), pairs (passages) [B] -> score [B]
    choose          texts [B], choices [B, J] -> choice [B], probabilities
                    [B, J]
    answer          texts (questions), pairs (contexts) [B] -> text, score,
                    begin, end [B], texts, scores, probabilities, begins, ends
                    [B, A], null_odds [B]
    tag             texts [B] -> texts, labels, scores, begins, ends [B, E],
                    count [B]

`serving_default` is one of them, see `Signatures.default`. They compute what
the methods of `Loaded` with like names compute, through the same layers. A
batch goes through the encoder in chunks, one after the other, so that memory
does not grow with the batch. All but `tokens` and `fill_mask` take texts by
their length: chunks are of equal length, nearly without padding, and small
enough for the caches of a processor.

Glossary of shapes: S texts of a chunk, C classes, J choices, A answers, E spans
of a text at most, U tokens with a weight of a text at most, W width of a vector
of a token, t entries of a text.
"""

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from infoword_tf import lazy
from infoword_tf.config import ROLES
from infoword_tf.critics import CRITICS
from infoword_tf.evaluation import measures
from infoword_tf.inference import blanks
from infoword_tf.inference.batches import RolePredictor
from infoword_tf.inference.loaded import Loaded
from infoword_tf.tensors import Tensor
from infoword_tf.text.template import to_dense, with_special_tokens

from . import chunks
from .branches import check as check_branches
from .branches import split

TEXTS = 256  # of a chunk, at most
TOKENS = 32_768  # tokens of a chunk, at most: 256 texts of 128
SORTED_TOKENS = 2048  # of a chunk of `embed`, about
MASKS = 8  # of a text are answered
ANSWERS = 10  # for each of them
# Signatures of people's labels; of single texts where pairs are possible, too.
LABELLED = (
    'answer', 'choose', 'classify', 'classify_pairs', 'regress',
    'regress_pairs', 'tag',
)  # fmt: skip
NOWHERE = -1  # offset of special tokens and padding
_INPUTS = {
    'texts': tf.TensorSpec((None,), tf.string, name='texts'),
    'pairs': tf.TensorSpec((None,), tf.string, name='pairs'),
    'choices': tf.TensorSpec((None, None), tf.string, name='choices'),
}

Outputs = dict[str, Tensor]
Graph = tuple[Callable[..., Outputs], tuple[str, ...]]  # with its inputs


@dataclasses.dataclass(frozen=True)
class Signatures:
    """The signatures that the rows of a workdir allow, as graphs.

    Attributes:
        loaded: the workdir.
        functions: concrete functions by name, of `texts` [B] string, and of
            `pairs` [B] where one is about two texts, of `choices` [B, J] where
            it is about one of several.
        inputs: names of the inputs of each, by name.
        weights: variables that they read, by path; what only training needs
            is not among them.
        constants: weights that are constants of the graphs, by path.
    """

    loaded: Loaded
    functions: Mapping[str, Any]
    inputs: Mapping[str, tuple[str, ...]]
    weights: Mapping[str, tf.Variable]
    constants: Mapping[str, Tensor]

    @classmethod
    def of(cls, loaded: Loaded, branches: int = 1) -> 'Signatures':
        """Traces the signatures of a workdir.

        Args:
            loaded: the workdir.
            branches: number of branches of a block, see export/branches.py.

        Raises:
            ValueError: the encoder cannot have so many branches.
        """
        loaded = loaded.folded
        replaced = _replaced(loaded, branches)
        graphs = _Graphs(loaded, replaced).functions()
        with _replace_weights(loaded, replaced):
            functions = {
                name: tf.function(
                    _check_ranks(function),
                    input_signature=[_INPUTS[x] for x in inputs],
                    autograph=False,
                ).get_concrete_function()
                for name, (function, inputs) in graphs.items()
            }
        read = {
            variable.ref()
            for function in functions.values()
            for variable in function.variables
        }
        variables = loaded.model.variables.items()
        weights = {path: variable.value for path, variable in variables}
        constants: dict[str, Tensor] = {}
        for path, value in _values_by_path(replaced).items():
            of_kind = weights if isinstance(value, tf.Variable) else constants
            of_kind[path] = value
        return cls(
            loaded=loaded,
            functions=functions,
            inputs={name: inputs for name, (_, inputs) in graphs.items()},
            weights={k: v for k, v in weights.items() if v.ref() in read},
            constants=constants,
        )

    @property
    def default(self) -> str:
        """The signature that answers where a request names none.

        What the workdir was trained for, vectors where that was no label.
        """
        vectors = CRITICS[self.loaded.config.critic].signature
        return next((n for n in LABELLED if n in self.functions), vectors)

    def save(self, folder: str) -> None:
        """Writes the SavedModel."""
        # What is saved are graphs and their weights, no layer of Keras.
        module = tf.Module(name='infoword')
        module.weights = self.weights
        module.tokenizer = self.loaded.tokenizer  # with its tables
        signatures = {'serving_default': self.functions[self.default]}
        tf.saved_model.save(module, folder, {**signatures, **self.functions})


class _Graphs:
    """The computations of the signatures: a method each."""

    def __init__(
        self,
        loaded: Loaded,
        replaced: Mapping[str, Tensor | tf.Variable | lazy.Parts],
    ):
        self.loaded, self.replaced = loaded, replaced
        self.tokenizer = loaded.tokenizer
        # One graph, whatever stands before a text.
        self.graph_of_embed = tf.function(
            self.embed, input_signature=[_INPUTS['texts']], autograph=False
        )

    def functions(self) -> dict[str, Graph]:
        """Returns the functions that the rows allow, with names of inputs."""
        loaded, one, two = self.loaded, ('texts',), ('texts', 'pairs')
        graphs: dict[str, Graph] = {'embed': (self.prompted(None), one)}
        for prompt in loaded.config.prompts:
            graphs[f'embed_{prompt}'] = self.prompted(prompt), one
        for role in reversed(ROLES):
            for critic, answer in loaded.by_critic.items():
                if CRITICS[critic].of(loaded.config) is not None:
                    name = CRITICS[critic].signature_of(
                        loaded.config, role, loaded
                    )
                    of_role = functools.partial(self.of_role, answer, role)
                    graphs[name] = of_role, one
        if loaded.cross.available:
            graphs['score_pairs'] = self.score_pairs, two
        graphs['tokens'] = self.tokens, one
        if loaded.blanks.rows:
            graphs['fill_mask'] = self.fill_mask, one
        if loaded.rows_that('next'):
            graphs['next_token'] = self.next_token, one
        for kind, name, function in (
            ('classes', 'classify', self.classify),
            ('numbers', 'regress', self.regress),
        ):
            for row in loaded.rows_that(kind):
                if loaded.model.objectives[row].texts == 'choices':
                    choose = functools.partial(self.choose, row)
                    graphs['choose'] = choose, ('texts', 'choices')
                    continue
                # Of what it was trained on.
                for sides in loaded.classes.sides(row):
                    full_name = name if sides == 1 else f'{name}_pairs'
                    of_row = functools.partial(function, row)
                    graphs[full_name] = of_row, two[:sides]
        if loaded.rows_that('spans'):
            graphs['answer'] = self.answer, two
        if loaded.rows_that('tags'):
            graphs['tag'] = self.tag, one
        return graphs

    # ------------------------------------------------------- the signatures

    def prompted(self, prompt: str | None) -> Callable[[Tensor], Outputs]:
        """Returns `embed` of texts with a prompt before each."""
        prompted = self.loaded.states.prompted
        return lambda texts: self.graph_of_embed(prompted(texts, prompt))

    def embed(self, texts: Tensor) -> Outputs:
        """Computes one vector for each text, as the config says."""
        vectors = self.loaded.vectors
        if vectors.is_table:
            tokens = self.tokenizer.tokenize(texts)
            return {'embeddings': vectors.embed_tokens(tokens)}
        return {
            'embeddings': self._by_length(
                vectors.embed,
                vectors.width(),
                *self.loaded.format_texts(texts),
            )
        }

    def of_role(
        self, answer: RolePredictor, role: str, texts: Tensor
    ) -> Outputs:
        """Computes outputs of texts of a role, for a critic."""
        entries = self._entries(
            functools.partial(answer.entries, role=role),
            answer.width,
            *self.loaded.states.format_role(texts, role),
            most=answer.most_texts(self._tokens_of_a_chunk(), role),
        )
        return answer.outputs(entries)

    def classify(
        self, row: str, texts: Tensor, pairs: Tensor | None = None
    ) -> Outputs:
        """Computes scores of all classes, and names the best one.

        Where a text may have several, `label` is a JSON list of those that it
        has, as in the predictions of `tasks.classify`.
        """
        names = self.loaded.config.labels
        scores = self._scores(row, texts, pairs)
        probabilities = self.loaded.classes.probabilities(scores)
        count = [tf.shape(scores)[0], 1]
        if self.loaded.model.objectives[row].multilabel:
            quoted = [json.dumps(name, ensure_ascii=False) for name in names]
            likely = probabilities >= measures.LIKELY
            is_first = tf.cumsum(tf.cast(likely, tf.int32), axis=1) == 1
            later = [f', {name}' for name in quoted]
            cells = tf.where(likely, tf.where(is_first, quoted, later), '')
            listed = tf.strings.reduce_join(cells, axis=1)
            label = tf.strings.join(['[', listed, ']'])
        else:
            label = tf.gather(names, tf.argmax(scores, axis=1))
        return {
            'label': label,
            'labels': tf.tile([names], count),
            'probabilities': probabilities,
            'scores': scores,
        }

    def score_pairs(self, texts: Tensor, pairs: Tensor) -> Outputs:
        """Computes the score of each query with a passage."""
        cross, row = self.loaded.cross, self.loaded.cross.row
        scores = cross.pair_scores
        if row is not None:
            classes = self.loaded.classes
            scores = functools.partial(classes.class_scores, row=row)
        compute = functools.partial(self._by_length, scores, 1)
        return {'score': cross.text_scores(texts, pairs, compute)}

    def regress(
        self, row: str, texts: Tensor, pairs: Tensor | None = None
    ) -> Outputs:
        """Computes the number of each text, or pair of texts."""
        return {'score': self._scores(row, texts, pairs)[:, 0]}

    def choose(self, row: str, texts: Tensor, choices: Tensor) -> Outputs:
        """Computes which of several second texts goes with each text."""
        shape = tf.shape(choices)
        scores = self._scores(
            row, tf.repeat(texts, shape[1]), tf.reshape(choices, [-1])
        )
        probabilities = tf.nn.softmax(tf.reshape(scores, shape))
        return {
            'choice': tf.argmax(probabilities, axis=1, output_type=tf.int32),
            'probabilities': probabilities,
        }

    def answer(self, texts: Tensor, pairs: Tensor) -> Outputs:
        """Reads the answer to each question out of a context."""
        reader = self.loaded.reader
        pages = reader.pages(texts, pairs)
        inputs = (
            pages.ids, pages.lengths, pages.second, pages.begins, pages.sizes,
            pages.most,
        )  # fmt: skip
        spans = self._by_length(reader.spans, reader.width, *inputs)
        return reader.replies(pairs, pages, spans)

    def tag(self, texts: Tensor) -> Outputs:
        """Finds the labelled spans of each text."""
        tagger = self.loaded.tagger
        windows = tagger.windows(texts)

        def scores(ids: Tensor, lengths: Tensor, sizes: Tensor) -> Any:
            return tf.RaggedTensor.from_row_lengths(
                tagger.token_scores(ids, lengths), sizes, validate=False
            )

        inputs = windows.ids, windows.lengths, windows.sizes
        width = len(self.loaded.config.labels)
        entries = self._entries(scores, width, *inputs)
        labels = tagger.labels(windows, entries.flat_values)
        return tagger.spans(texts, windows, *labels)

    def tokens(self, texts: Tensor) -> Outputs:
        """Computes the state of each token, and bytes in the text."""
        ends = chunks.ends(tf.size(texts), self._texts_of_a_chunk())
        limit = self.loaded.workdir.free_length

        def tokenize(begin: Tensor, end: Tensor) -> tuple[Tensor, ...]:
            tokens = self.tokenizer.tokenize_with_offsets(texts[begin:end])
            tokens = [tf.cast(x, tf.int32)[:, :limit] for x in tokens]
            return *(x.flat_values for x in tokens), tokens[0].row_lengths()

        # First all tokens, which say how long the longest text is.
        *flat, sizes = chunks.in_chunks(
            ends,
            tokenize,
            [((), tf.int32)] * 3 + [((), tf.int64)],
        )
        tokens, firsts, lasts = (
            tf.RaggedTensor.from_row_lengths(x, sizes, validate=False)
            for x in flat
        )
        ids, lengths = self.loaded.states.format_tokens(tokens)
        longest = tf.shape(ids)[1]

        def encode(begin: Tensor, end: Tensor) -> tuple[Tensor, ...]:
            sizes = lengths[begin:end]
            length = chunks.longest(sizes)
            states = self.loaded.states(ids[begin:end, :length], sizes)
            real = tf.sequence_mask(sizes, length, tf.float32)
            states = states * real[:, :, None]
            return (tf.pad(states, [[0, 0], [0, longest - length], [0, 0]]),)

        (states,) = chunks.in_chunks(
            ends, encode, [((None, self.loaded.encoder.width), tf.float32)]
        )
        before = [NOWHERE] * len(self.loaded.before)
        after = [NOWHERE] * len(self.loaded.after)
        starts, ends = (
            to_dense(with_special_tokens(before, x, after), NOWHERE)
            for x in (firsts, lasts)
        )
        return {'states': states, 'starts': starts, 'ends': ends, 'ids': ids,
                'lengths': lengths}  # fmt: skip

    def fill_mask(self, texts: Tensor) -> Outputs:
        """Finds the likeliest tokens for the first `MASKS` masks of texts."""
        loaded, mask_id = self.loaded, self.tokenizer.mask_id
        limit = loaded.workdir.free_length
        names = tf.constant(self.tokenizer.vocabulary)
        answers = min(ANSWERS, len(self.tokenizer))

        def chunk(begin: Tensor, end: Tensor) -> tuple[Tensor, ...]:
            tokens = blanks.with_masks(self.tokenizer, texts[begin:end])
            all_masks = blanks.masks_of(tokens, mask_id)
            masks = blanks.first_masks(all_masks, MASKS)
            tokens = blanks.near_masks(tokens, masks, limit)
            ids, lengths = loaded.states.format_tokens(tokens)
            masks = blanks.masks_of(tokens, mask_id)
            masks = blanks.first_masks(masks, MASKS)
            is_mask = masks >= 0
            scores = loaded.blanks.token_scores(
                ids,
                lengths,
                tf.where(is_mask, masks + len(loaded.before), 0),
            )
            best = tf.math.top_k(scores, answers)
            return (
                tf.where(
                    is_mask[:, :, None], tf.gather(names, best.indices), ''
                ),
                tf.where(is_mask[:, :, None], best.values, 0.0),
                tf.cast(all_masks.row_lengths(), tf.int32),
            )

        # As many masks as an `embed` has texts: each costs V scores.
        count = max(1, self._texts_of_a_chunk() // MASKS)
        tokens, scores, count = chunks.in_chunks(
            chunks.ends(tf.size(texts), count),
            chunk,
            [
                ((MASKS, answers), tf.string),
                ((MASKS, answers), tf.float32),
                ((), tf.int32),
            ],
        )
        return {'tokens': tokens, 'scores': scores, 'count': count}

    def next_token(self, texts: Tensor) -> Outputs:
        """Finds the likeliest tokens after each text."""
        continuation = self.loaded.continuation
        names = tf.constant(self.tokenizer.vocabulary)
        answers = min(ANSWERS, len(self.tokenizer))

        def best(ids: Tensor, lengths: Tensor) -> Tensor:
            scores = continuation.token_scores(ids, lengths)
            best = tf.math.top_k(scores, answers)
            # Ids are exact in float32: there are fewer than 2^24.
            numbers = tf.cast(best.indices, tf.float32)
            return tf.concat([best.values, numbers], axis=1)

        scores, numbers = tf.split(
            self._by_length(
                best, 2 * answers, *continuation.format_texts(texts)
            ),
            2,
            axis=1,
        )
        return {
            'tokens': tf.gather(names, tf.cast(numbers, tf.int32)),
            'scores': scores,
        }

    # ------------------------------------------------------------- chunks

    def _scores(
        self, row: str, texts: Tensor, pairs: Tensor | None = None
    ) -> Tensor:
        """Computes `Classes.text_scores` [B, C] float32, in chunks."""
        classes = self.loaded.classes
        compute = functools.partial(
            self._by_length,
            functools.partial(classes.class_scores, row=row),
            self.loaded.model.objectives[row].columns,
        )
        return classes.text_scores(texts, pairs, row, compute)

    def _by_length(
        self,
        compute: Callable[..., Tensor],
        width: int,
        ids: Tensor,
        lengths: Tensor,
        *more: Tensor | None,
    ) -> Tensor:
        """Computes an output of texts, in chunks of like length: [B, width].

        Args:
            compute: function of ids [S, T], lengths [S] and of the `more` that
                are not None, [S, ...] -> [S, width] float32.
            width, ids, lengths, *more: likewise, of B texts.
        """
        (outputs,), order = self._in_order(
            lambda *inputs: (compute(*inputs),),
            [((width,), tf.float32)],
            (ids, lengths, *more),
        )
        # As they came.
        return tf.tensor_scatter_nd_update(outputs, order[:, None], outputs)

    def _entries(
        self,
        compute: Callable[..., tf.RaggedTensor],
        width: int,
        ids: Tensor,
        lengths: Tensor,
        *more: Tensor | None,
        most: int | None = None,
    ) -> tf.RaggedTensor:
        """Computes entries of texts, in chunks of like length: [B, t, width].

        Args as of `_by_length`, and:

        Args:
            compute: likewise, -> [S, t, width] float32.
            most: S at most; None: any number.
        """

        def parts(*inputs: Tensor) -> tuple[Tensor, Tensor]:
            entries = compute(*inputs)
            return entries.flat_values, tf.cast(entries.row_lengths(), tf.int64)

        (flat, sizes), order = self._in_order(
            parts,
            [((width,), tf.float32), ((), tf.int64)],
            (ids, lengths, *more),
            most,
        )
        in_order = tf.RaggedTensor.from_row_lengths(flat, sizes, validate=False)
        return tf.gather(in_order, tf.argsort(order))  # as they came

    def _in_order(
        self,
        compute: Callable[..., tuple[Tensor, ...]],
        kinds: Sequence[tuple[tuple[int | None, ...], tf.DType]],
        inputs: Sequence[Tensor | None],
        most: int | None = None,
    ) -> tuple[list[Tensor], Tensor]:
        """Computes outputs of texts by length, in chunks.

        Args:
            compute: function of ids [S, T], lengths [S] and more inputs that
                are not None, [S, ...], to tensors whose first axes are joined.
            kinds: kind of each tensor, as of `chunks.in_chunks`.
            inputs: ids, lengths and more of B texts.
            most: S at most; None: any number.

        Returns:
            The joined outputs, and the order of the texts, [B] int32.
        """
        ids, lengths, *more = (x for x in inputs if x is not None)
        order = tf.argsort(lengths, stable=True)
        ids, lengths, *more = (
            tf.gather(x, order) for x in (ids, lengths, *more)
        )

        def chunk(begin: Tensor, end: Tensor) -> tuple[Tensor, ...]:
            sizes = lengths[begin:end]
            # Constants of the loop itself, not what is passed to it.
            replaced = {k: _copy_constants(v) for k, v in self.replaced.items()}
            with _replace_weights(self.loaded, replaced):
                return compute(
                    ids[begin:end, : chunks.longest(sizes)],
                    sizes,
                    *(x[begin:end] for x in more),
                )

        tokens = self._tokens_of_a_chunk()
        costs = lengths if most is None else tf.maximum(lengths, tokens // most)
        ends = chunks.ends_by_tokens(costs, tokens)
        return chunks.in_chunks(ends, chunk, kinds), order

    def _tokens_of_a_chunk(self) -> int:
        return max(SORTED_TOKENS, self.loaded.max_length)

    def _texts_of_a_chunk(self) -> int:
        return max(1, min(TEXTS, TOKENS // self.loaded.max_length))


def _check_ranks(function: Callable) -> Callable:
    """Makes a function refuse tensors of another rank than the signature's.

    A server does not check ranks, and an operation of tf.text that gets a lone
    string ends the process. `tf.slice` refuses another rank than it was traced
    with; nothing can know before that the slice is all of the tensor, so it
    stays in the graph, and it copies nothing.
    """

    def called(*tensors: Tensor) -> dict[str, Tensor]:
        return function(
            *(tf.slice(x, [0] * x.shape.rank, tf.shape(x)) for x in tensors)
        )

    return called


def _replaced(
    loaded: Loaded, branches: int
) -> dict[str, Tensor | tf.Variable | lazy.Parts]:
    """Makes constants and variables that replace weights of the encoder.

    Constants are biases and scales of norms: they are small, and for one short
    text the number of reads in a call counts.

    In bfloat16 kernels are constants, too, and embeddings variables in
    bfloat16. A processor that multiplies in bfloat16 wants weights in a special
    order: TensorFlow stores constants in it, and casts and reorders variables
    in each call. In float32 the order depends on the number of sequences, and
    there is nothing to gain. Embeddings are looked up, not multiplied: as
    variables they are stored once.

    Args:
        loaded: the workdir.
        branches: number of branches of each block.

    Returns:
        By path.
    """
    dtype, variables = loaded.encoder.compute_dtype, loaded.model.variables
    encoder = {k: v for k, v in variables.items() if k.startswith('encoder/')}
    shapes = {path: tuple(v.shape) for path, v in encoder.items()}
    if branches > 1:
        name = loaded.config.encoder.name
        check_branches(name, loaded.encoder.arguments, branches)

    def stored(value: np.ndarray) -> Tensor | tf.Variable:
        if value.ndim == 1:
            return tf.constant(value)
        if dtype == 'float32':
            return tf.Variable(value, trainable=False)
        return tf.constant(tf.cast(value, dtype))

    replaced: dict[str, Any] = {}
    for path, variable in encoder.items():
        # Kernels are what layers cast at use, as in `Loaded.embed`.
        kernel = path.endswith('_kernel')
        if len(variable.shape) > 1 and not (
            kernel and (dtype != 'float32' or branches > 1)
        ):
            continue
        shares = split(path, variable.numpy(), shapes, branches)
        if len(shares) > 1:
            replaced[path] = lazy.Parts(tuple(map(stored, shares)))
        elif len(variable.shape) == 1 or dtype != 'float32':
            replaced[path] = stored(shares[0])
    # An encoder that reads characters has none.
    table = variables.get('encoder/word_embeddings')
    if table is not None and dtype != 'float32':
        replaced[table.path] = tf.Variable(
            tf.cast(table.value, dtype), trainable=False, name='embeddings'
        )
    return replaced


def _values_by_path(
    replaced: Mapping[str, Tensor | tf.Variable | lazy.Parts],
) -> dict[str, Tensor | tf.Variable]:
    """Lists replacements of weights one by one; branches have numbers."""
    values: dict[str, Tensor | tf.Variable] = {}
    for path, value in replaced.items():
        if isinstance(value, lazy.Parts):
            values |= {f'{path}_{i}': x for i, x in enumerate(value.values)}
        else:
            values[path] = value
    return values


def _copy_constants(value: Tensor | tf.Variable | lazy.Parts) -> Any:
    """Makes a constant anew, for the body of a loop; a variable stays."""
    if isinstance(value, lazy.Parts):
        return lazy.Parts(tuple(map(_copy_constants, value.values)))
    if isinstance(value, tf.Variable):
        return value
    return tf.constant(value.numpy())


def _replace_weights(
    loaded: Loaded, values: Mapping[str, Tensor | tf.Variable | lazy.Parts]
) -> contextlib.AbstractContextManager[Any]:
    """Replaces weights by values, by path, inside a `with`."""
    variables = loaded.model.variables
    return lazy.instead([(variables[k], v) for k, v in values.items()])
