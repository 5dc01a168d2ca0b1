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
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from infoword_tf.inference.loaded import Loaded
from infoword_tf.objectives.lm import NextPieces
from infoword_tf.text import vocabulary

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
_FAR = 2**30  # from every piece

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
        wanted = {
            'embed': self._prompted(bare, loaded.prompt_of()),
            'tokens': self._tokens,
        }
        for name in loaded.config.prompts:
            wanted[f'embed_{name}'] = self._prompted(
                bare, loaded.prompt_of(name)
            )
        if loaded.fill_rows:
            wanted['fill_mask'] = self._fill_mask
        if any(
            isinstance(objective, NextPieces)
            for objective in loaded.model.objectives.values()
        ):
            wanted['next_token'] = self._next_token
        inputs = {}
        for row, name, answer in (
            ('label', 'classify', self._classify),
            ('score', 'regress', self._regress),
        ):
            if row not in loaded.model.objectives:
                continue
            if loaded.model.objectives[row].texts == 'choices':
                wanted['choose'] = self._choose
                inputs['choose'] = [texts, choices]
                continue
            # Of what it was trained on.
            for sides in loaded.sides(row):
                full_name = name if sides == 1 else f'{name}_pairs'
                wanted[full_name] = answer
                inputs[full_name] = [texts, pairs][:sides]
        if 'span' in loaded.model.objectives:
            wanted['answer'] = self._answer
            inputs['answer'] = [texts, pairs]
        self.constants, self.narrow = _constants(loaded), _narrow(loaded)
        with _instead(loaded, self.constants | self.narrow):
            self.functions = {
                name: tf.function(
                    function,
                    input_signature=inputs.get(name, [texts]),
                    autograph=False,
                ).get_concrete_function()
                for name, function in wanted.items()
            }
        self.default = next((n for n in LABELLED if n in wanted), 'embed')
        self.inputs = {
            name: [spec.name for spec in inputs.get(name, [texts])]
            for name in wanted
        }
        read = {
            variable.ref()
            for function in self.functions.values()
            for variable in function.variables
        }
        held = {
            path: variable.value
            for path, variable in loaded.model.variables.items()
        } | self.narrow
        self.weights = {
            path: variable
            for path, variable in held.items()
            if variable.ref() in read
        }

    def save(self, folder: str) -> None:
        """Writes the SavedModel: `serving_default` is what `default` names."""
        # What is saved are graphs and their weights, no layer of Keras.
        module = tf.Module(name='infoword')
        module.weights = self.weights
        module.tokenizer = self.loaded.tokenizer  # what it holds travels too
        signatures = {'serving_default': self.functions[self.default]}
        tf.saved_model.save(module, folder, signatures | self.functions)

    # ------------------------------------------------------- the signatures

    def _prompted(self, embed: Callable, prompt: str) -> Callable:
        """`embed` of texts with a prompt before each."""
        if not prompt:
            return embed
        return lambda texts: embed(tf.strings.join([prompt, texts]))

    def _embed(self, texts: Tensor) -> dict[str, Tensor]:
        """One vector for each text, pooled as the config says."""
        pieces = self.loaded.tokenizer.tokenize(texts)
        if self.loaded.is_table:
            return {'embeddings': self.loaded.embed_pieces(pieces)}
        ids, lengths = self._padded(pieces.flat_values, pieces.row_splits)
        return {
            'embeddings': self._by_length(
                self.loaded.embed, self.loaded.vector_width(), ids, lengths
            )
        }

    def _classify(
        self, texts: Tensor, pairs: Tensor | None = None
    ) -> dict[str, Tensor]:
        """What each text is, or each two: all classes, the best one's name."""
        names = tf.constant(self.loaded.config.labels)
        scores = self._scores('label', texts, pairs)
        count = tf.shape(scores)[0]
        return {
            'label': tf.gather(names, tf.argmax(scores, axis=1)),
            'labels': tf.tile(names[None], [count, 1]),
            'probabilities': self.loaded.probabilities_of(scores),
            'scores': scores,
        }

    def _regress(
        self, texts: Tensor, pairs: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The number of each text, or of each two."""
        return {'score': self._scores('score', texts, pairs)[:, 0]}

    def _choose(self, texts: Tensor, choices: Tensor) -> dict[str, Tensor]:
        """Which of several second texts goes with each."""
        shape = tf.shape(choices)
        scores = self._scores(
            'label', tf.repeat(texts, shape[1]), tf.reshape(choices, [-1])
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
        head = self.loaded.model.objectives[row]
        compute = functools.partial(self.loaded.class_scores, row=row)
        if pairs is None:
            pieces = self.loaded.tokenizer.tokenize(texts)
            padded = self._padded(pieces.flat_values, pieces.row_splits)
            return self._by_length(compute, head.classes, *padded)

        def one_way(first: Tensor, second: Tensor) -> Tensor:
            laid_out = self.loaded.laid_out(first, second)
            return self._by_length(compute, head.classes, *laid_out)

        scores = one_way(texts, pairs)
        if head.texts == 'both_ways':
            scores += one_way(pairs, texts)
        return scores

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
        *more: Tensor,
    ) -> Tensor:
        """Computes something of each text, those of like length together.

        Args:
            compute: of ids [C, T], lengths [C] and of `more` -> [C, width].
            width: of what it gives.
            ids: [B, T] int32.
            lengths: [B] int32.
            *more: [B, ...] each.

        Returns:
            [B, width] float32 in the order of `ids`.
        """
        order = tf.argsort(lengths, stable=True)
        ids, lengths, *more = (
            tf.gather(x, order) for x in (ids, lengths, *more)
        )

        def chunk(begin: Tensor, end: Tensor) -> tuple[Tensor, ...]:
            here = lengths[begin:end]
            # Constants of the loop itself, not what is passed to it.
            own = {k: tf.constant(v.numpy()) for k, v in self.constants.items()}
            with _instead(self.loaded, own | self.narrow):
                return (
                    compute(
                        ids[begin:end, : _longest(here)],
                        here,
                        *(x[begin:end] for x in more),
                    ),
                )

        (found,) = _in_chunks(
            _ends_by_tokens(
                lengths, max(SORTED_TOKENS, self.loaded.max_length)
            ),
            chunk,
            [((width,), tf.float32)],
        )
        # As they came.
        return tf.tensor_scatter_nd_update(found, order[:, None], found)

    def _tokens(self, texts: Tensor) -> dict[str, Tensor]:
        """The state of each token, and the bytes that it stands for."""
        ends = _ends(tf.size(texts), self._rows())
        room = self.loaded.room

        def tokenize(begin: Tensor, end: Tensor) -> tuple[Tensor, ...]:
            tokenizer = self.loaded.tokenizer
            here = tokenizer.tokenize_with_offsets(texts[begin:end])
            splits = here[0].row_splits
            _, places = _in_texts(splits)
            keep = places < room
            flat = [tf.cast(x.flat_values, tf.int32)[keep] for x in here]
            return *flat, tf.minimum(splits[1:] - splits[:-1], room)

        # First all pieces, which say how long the longest text is.
        pieces, firsts, lasts, sizes = _in_chunks(
            ends,
            tokenize,
            [((), tf.int32)] * 3 + [((), tf.int64)],
        )
        splits = tf.cumsum(tf.pad(sizes, [[1, 0]]))
        ids, lengths = self._padded(pieces, splits)
        longest = tf.shape(ids)[1]

        def encode(begin: Tensor, end: Tensor) -> tuple[Tensor, ...]:
            here = lengths[begin:end]
            length = _longest(here)
            states = self.loaded.states(ids[begin:end, :length], here)
            real = tf.sequence_mask(here, length, tf.float32)
            states = states * real[:, :, None]
            return (tf.pad(states, [[0, 0], [0, longest - length], [0, 0]]),)

        (states,) = _in_chunks(
            ends, encode, [((None, self._width()), tf.float32)]
        )
        before = [NOWHERE] * len(self.loaded.before)
        after = [NOWHERE] * len(self.loaded.after)
        around = before, after, NOWHERE
        return {
            'states': states,
            'starts': _laid_out(firsts, splits, lengths, *around),
            'ends': _laid_out(lasts, splits, lengths, *around),
            'ids': ids,
            'lengths': lengths,
        }

    def _fill_mask(self, texts: Tensor) -> dict[str, Tensor]:
        """The likeliest pieces at the first `MASKS` [MASK] of each text."""
        names = tf.constant(self.loaded.tokenizer.vocabulary)
        answers = min(ANSWERS, len(self.loaded.tokenizer))

        def chunk(begin: Tensor, end: Tensor) -> tuple[Tensor, ...]:
            flat, splits, count = self._with_masks(texts[begin:end])
            flat, splits = self._near_masks(flat, splits)
            ids, lengths = self._padded(flat, splits)
            masks = self._first_masks(flat, splits)
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
                count,
            )

        # As many masks as an `embed` has texts: each costs V scores.
        tokens, scores, count = _in_chunks(
            _ends(tf.size(texts), max(1, self._rows() // MASKS)),
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
            found = tf.math.top_k(
                self.loaded.next_scores(ids, lengths), answers
            )
            # Ids are exact in float32: there are fewer than 2^24.
            numbers = tf.cast(found.indices, tf.float32)
            return tf.concat([found.values, numbers], axis=1)

        found = self._by_length(
            best, 2 * answers, *self.loaded.begun(texts)
        )
        scores, numbers = tf.split(found, 2, axis=1)
        return {
            'tokens': tf.gather(names, tf.cast(numbers, tf.int32)),
            'scores': scores,
        }

    # ----------------------------------------------------------- their parts

    def _rows(self) -> int:
        """How many texts make a chunk."""
        return max(1, min(ROWS, TOKENS // self.loaded.max_length))

    def _width(self) -> int:
        return self.loaded.encoder.width

    def _padded(self, flat: Tensor, splits: Tensor) -> tuple[Tensor, Tensor]:
        """Texts in their layout, cut at `max_length`, padded to the longest.

        Args:
            flat: [N] int32 ids.
            splits: [C + 1] int64, where each text begins among them.

        Returns:
            ids [C, T] and lengths [C], int32.
        """
        before, after = self.loaded.before, self.loaded.after
        sizes = tf.minimum(splits[1:] - splits[:-1], self.loaded.room)
        lengths = tf.cast(sizes, tf.int32) + len(before) + len(after)
        padding = self.loaded.tokenizer.pad_id
        ids = _laid_out(flat, splits, lengths, before, after, padding)
        return ids, lengths

    def _with_masks(self, texts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Pieces of texts that have [MASK] in them.

        To a tokenizer [MASK] is text like any other, so texts are parted
        there.

        Returns:
            ids [N] int32, splits [C + 1] int64, masks of each text [C] int32.
        """
        parts = tf.strings.split(texts, vocabulary.MASK)
        _, number = _in_texts(parts.row_splits)
        pieces = self.loaded.tokenizer.tokenize_parts(
            parts.flat_values, number > 0
        )
        masks = tf.cast(number > 0, tf.int64)  # before each part but the first
        ends = tf.cumsum(pieces.row_lengths() + masks)
        part, place = _in_texts(pieces.row_splits)
        to = tf.gather(tf.pad(ends, [[1, 0]])[:-1] + masks, part) + place
        ids = tf.fill([tf.reduce_sum(masks) + tf.size(to, tf.int64)],
                      self.loaded.tokenizer.mask_id)
        ids = tf.tensor_scatter_nd_update(ids, to[:, None], pieces.flat_values)
        splits = tf.gather(tf.pad(ends, [[1, 0]]), parts.row_splits)
        count = tf.maximum(parts.row_lengths() - 1, 0)
        return ids, splits, tf.cast(count, tf.int32)

    def _near_masks(
        self, flat: Tensor, splits: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Cuts texts that are too long to what is nearest to their masks.

        The first `MASKS` masks stay, then pieces by their distance from the
        nearest of these, the earlier first; in their order. Of a text without
        masks the beginning stays.

        Args:
            flat, splits: as `_with_masks` gives them.

        Returns:
            The same of what stays.
        """
        room = self.loaded.room
        text, place = _in_texts(splits)
        masks = tf.gather(self._first_masks(flat, splits), text)  # [N, Q]
        far = tf.abs(tf.cast(place, tf.int32)[:, None] - masks)
        far = tf.cast(tf.reduce_min(far, axis=1), tf.int64)
        order = tf.argsort(text * 2**32 + far, stable=True)
        # Texts lie as before, each by distance: its first `room` stay.
        stay = tf.sort(tf.boolean_mask(order, place < room))
        sizes = tf.minimum(splits[1:] - splits[:-1], room)
        return tf.gather(flat, stay), tf.cumsum(tf.pad(sizes, [[1, 0]]))

    def _first_masks(self, flat: Tensor, splits: Tensor) -> Tensor:
        """[C, MASKS] int32: which pieces are masks; beyond them `-_FAR`."""
        text, place = _in_texts(splits)
        is_mask = tf.equal(flat, self.loaded.tokenizer.mask_id)
        before = tf.cumsum(tf.cast(is_mask, tf.int64), exclusive=True)  # [N]
        # A text may begin behind the last piece.
        at_begin = tf.gather(tf.pad(before, [[0, 1]]), splits[:-1])
        number = before - tf.gather(at_begin, text)
        keep = tf.logical_and(is_mask, number < MASKS)
        where = tf.boolean_mask(tf.stack([text, number], axis=1), keep)
        found = tf.fill([tf.size(splits) - 1, MASKS], -_FAR)
        return tf.tensor_scatter_nd_update(
            found, where, tf.boolean_mask(tf.cast(place, tf.int32), keep)
        )


def _constants(loaded: Loaded) -> dict[str, Tensor]:
    """By path, the encoder's kernels in bfloat16; none where it is float32.

    A processor that multiplies in bfloat16 wants weights in an order of its
    own. TensorFlow keeps constants in that order and brings variables into it
    in each call, after casting them. In float32 the order depends on the
    number of rows and there is nothing to gain.
    """
    dtype = loaded.encoder.compute_dtype
    if dtype == 'float32':
        return {}
    # Those that layers cast at use: it is what they do in `embed` too.
    return {
        path: tf.constant(tf.cast(variable.value, dtype))
        for path, variable in loaded.model.variables.items()
        if path.startswith('encoder/') and path.endswith('_kernel')
    }


def _narrow(loaded: Loaded) -> dict[str, tf.Variable]:
    """By path, the embeddings in bfloat16; none where it is float32.

    They are looked up, not multiplied: as variables they are stored once.
    """
    dtype = loaded.encoder.compute_dtype
    if dtype == 'float32':
        return {}
    table = loaded.model.variables.get('encoder/word_embeddings')
    if table is None:  # characters are read
        return {}
    return {
        table.path: tf.Variable(
            tf.cast(table.value, dtype), trainable=False, name='embeddings'
        )
    }


def _instead(
    loaded: Loaded, values: dict[str, Tensor]
) -> keras.StatelessScope:
    """Inside, weights have these values."""
    scope = keras.StatelessScope()
    for path, value in values.items():
        scope.add_update((loaded.model.variables[path], value))
    return scope


def _in_texts(splits: Tensor) -> tuple[Tensor, Tensor]:
    """Of each piece its text and its place there: [C + 1] -> [N], [N] int64."""
    everything = tf.range(splits[-1])
    text = tf.searchsorted(splits[1:], everything, 'right', tf.int64)
    return text, everything - tf.gather(splits, text)


def _longest(lengths: Tensor) -> Tensor:
    """T of [C] lengths, also where there are none."""
    return tf.maximum(tf.reduce_max(lengths), 2)


def _laid_out(
    flat: Tensor,
    splits: Tensor,
    lengths: Tensor,
    before: Sequence[int],
    after: Sequence[int],
    beyond: int,
) -> Tensor:
    """Flat values as rows, with something before and after each.

    Args:
        flat: [N] int32.
        splits: [C + 1] int64, where each row begins among them.
        lengths: [C] int32 with both; what does not fit is cut.
        before, after: stand at the ends of each row.
        beyond: fills rows up to the longest.

    Returns:
        [C, T] int32.
    """
    column = tf.range(_longest(lengths))[None, :]
    end = lengths[:, None] - len(after)
    # Gathering needs something to gather, also where no text has a piece.
    values = tf.pad(flat, [[0, 1]])
    source = splits[:-1, None] + tf.cast(column - len(before), tf.int64)
    inside = tf.logical_and(column >= len(before), column < end)
    rows = tf.gather(values, tf.where(inside, source, 0))
    rows = tf.where(inside, rows, beyond)
    for place, value in enumerate(before):
        rows = tf.where(tf.equal(column, place), value, rows)
    for place, value in enumerate(after):
        rows = tf.where(tf.equal(column, end + place), value, rows)
    return rows


def _ends(total: Tensor, rows: int) -> Tensor:
    """Chunks of `rows` of B texts: [] int32 -> [chunks] int32, see below."""
    return tf.minimum(rows * (1 + tf.range((total + rows - 1) // rows)), total)


def _ends_by_tokens(lengths: Tensor, tokens: int) -> Tensor:
    """Chunks of about as many tokens each, which none is longer than.

    Args:
        lengths: [B] int32, at most `tokens` each.
        tokens: of a chunk.

    Returns:
        [chunks] int32. None is empty: no text reaches over a whole chunk.
    """
    total = tf.cumsum(lengths)
    chunks = (tf.reduce_sum(lengths) + tokens - 1) // tokens
    return tf.searchsorted(total, tokens * (1 + tf.range(chunks)), 'right')


def _in_chunks(
    ends: Tensor,
    chunk: Callable[[Tensor, Tensor], tuple[Tensor, ...]],
    kinds: Sequence[tuple[tuple[int | None, ...], tf.DType]],
) -> list[Tensor]:
    """Computes parts of a batch one after the other and joins them.

    Args:
        ends: [parts] int32, the row after the last of each part.
        chunk: from its first row and the row after its last to tensors whose
            first axes are joined.
        kinds: of each tensor the shape without the first axis, and the dtype.

    Returns:
        The joined tensors. An empty batch is one empty part, so that its
        shapes are those of any other.
    """
    count = tf.maximum(tf.size(ends), 1)
    bounds = tf.pad(ends, [[1, 0]])
    bounds = tf.pad(bounds, [[0, count - tf.size(ends)]])

    def body(number: Tensor, *arrays: tf.TensorArray) -> tuple:
        parts = chunk(bounds[number], bounds[number + 1])
        written = [
            array.write(number, part)
            for array, part in zip(arrays, parts, strict=True)
        ]
        return number + 1, *written

    arrays = [
        tf.TensorArray(
            dtype, count, element_shape=(None, *shape), infer_shape=False
        )
        for shape, dtype in kinds
    ]
    _, *arrays = tf.while_loop(
        lambda number, *_: number < count,
        body,
        (tf.constant(0), *arrays),
        parallel_iterations=1,
    )
    return [array.concat() for array in arrays]
