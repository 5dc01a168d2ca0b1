"""The work of a training step, for the benchmarks: model, batch, operations.

No framework is imported here: step.py runs it under TensorFlow, gpu.py under
JAX. The text is random, which costs what real text costs.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import errors
from infoword_tf.sizes import SIZES
from infoword_tf.views import Specials, View, generator
from infoword_tf.views.cloze import Documents
from infoword_tf.views.masked import Pairs, Windows, budget
from infoword_tf.views.streams import Streams

SEED, POSITIONS = 0, 512
WORD_SHARE = 2 / 3  # of the tokens begin a word


def rows_of(objectives: str) -> dict[str, float]:
    """Returns the weight of each row that has one.

    Args:
        objectives: value of `--objectives` of the trainer.

    Raises:
        ValueError: it names no rows.
    """
    from infoword_tf.objectives import parse

    return {row: weight for row, weight in parse(objectives).items() if weight}


class StepSource(NamedTuple):
    """Source of text: a function of the step."""

    batch: Callable[[int], Any]


@dataclasses.dataclass(frozen=True)
class Work:
    """A row or a sum of rows, with the sizes of encoder and batch.

    Attributes:
        objectives: a row, a sum with a name, or weighted rows.
        size: name in SIZES.
        batch_size: B.
        seq_len: T of a text, with specials.
        vocab_size: V.
        rate: dropout.
        memory_length: tokens of memory, of an encoder that has it.
    """

    objectives: str
    size: str
    batch_size: int
    seq_len: int
    vocab_size: int
    rate: float = 0.1
    memory_length: int = 0

    @property
    def rows(self) -> dict[str, float]:
        """Weight of each row."""
        return rows_of(self.objectives)

    @functools.cached_property
    def resolved(self) -> Any:
        """An `infoword_tf.resolve.Resolved`, as the trainer decides.

        The encoder is that of the peers, `transformer`, if the rows allow it.
        """
        from infoword_tf import resolve
        from infoword_tf.objectives import TABLE

        choices = resolve.ModelChoices(
            objectives=self.objectives,
            size=self.size,
            positions=max(POSITIONS, self.seq_len),
            dropout=self.rate,
            seq_len=self.seq_len,
            batch_size=self.batch_size,
        )
        peers = all(
            'transformer' in TABLE[row].encoders(entry.settings)
            for row, entry in resolve.resolve_rows(choices).items()
        )
        encoder = 'transformer' if peers else None
        return resolve.resolve(dataclasses.replace(choices, encoder=encoder))

    @property
    def encoder(self) -> str:
        """Name of the encoder that all rows allow."""
        return self.resolved.encoder.name

    @property
    def has_memory(self) -> bool:
        """True for an encoder with memory."""
        return self.resolved.memory_length is not None

    @property
    def layers(self) -> int:
        """Blocks of the encoder."""
        return SIZES[self.size]['layers']

    @property
    def width(self) -> int:
        """D."""
        return SIZES[self.size]['width']

    @property
    def places(self) -> int:
        """P: masked tokens of a sequence."""
        return budget(self.seq_len - 2)

    @property
    def specials(self) -> Specials:
        """Ids of the special tokens."""
        return Specials(1, 2, 3, self.vocab_size)

    @property
    def statistics(self) -> Any:
        """Counts of the text, in which all tokens are as frequent."""
        from infoword_tf.objectives import Statistics

        counts = np.full(self.vocab_size, 1 / self.vocab_size)
        return Statistics(counts, counts)

    def config(self, precision: str) -> Any:
        """Returns the config of a `infoword_tf.model.Model`.

        Args:
            precision: Keras dtype policy.
        """
        config = self.resolved.config(self.vocab_size, precision=precision)
        return config.replace(memory_length=self.memory_length)

    def windows(self, step: int, length: int) -> Windows:
        """Draws uniformly random tokens in words of about 1.5."""
        random, ids = self._tokens(step, length)
        word_starts = random.random(ids.shape) < WORD_SHARE
        word_starts[:, 0] = True
        return Windows(ids, word_starts, np.zeros(ids.shape, bool))

    def documents(self, step: int, length: int) -> Documents:
        """Draws full documents of four sentences, as long as the windows."""
        _, ids = self._tokens(step, length)
        starts = np.zeros(ids.shape, bool)
        starts[:, :: -(-ids.shape[1] // 4)] = True
        lengths = np.full(len(ids), ids.shape[1], np.int32)
        return Documents(ids, lengths, starts)

    def pairs(self, step: int, length: int, packed: bool = False) -> Pairs:
        """Draws full pairs of two halves, every second one a random pair."""
        del packed
        text = self.windows(step, length)
        b = self.batch_size
        a = (length - 1) // 2
        separators = np.zeros(text.ids.shape, bool)
        separators[:, a] = True
        word_starts = text.word_starts.copy()
        word_starts[:, a : a + 2] = True
        return Pairs(
            text.ids, word_starts, separators,
            np.full(b, a, np.int32), np.full(b, length - 1 - a, np.int32),
            (np.arange(b) % 2).astype(np.int32),
        )  # fmt: skip

    def next_pairs(self, step: int, length: int) -> Pairs:
        """Draws pairs with three negatives each."""
        pairs = self.pairs(step, length)
        negatives = [np.repeat(x, 3, axis=0) for x in pairs[:6]]
        return pairs._replace(
            labels=np.zeros_like(pairs.labels), negatives=Pairs(*negatives)
        )

    def streams(
        self,
        step: int,
        length: int,
        advance: int | None = None,
        both_directions: bool = False,
    ) -> Streams:
        """Draws windows as streams; every step is another text."""
        text = self.windows(step, length)
        directions = np.ones(self.batch_size, np.int32)
        if both_directions:
            directions[1::2] = -1
        repeated = np.full_like(directions, length - (advance or length))
        return Streams(
            text.ids,
            text.word_starts,
            text.separators,
            text.separators,
            directions,
            text.ids[:, 0],
            repeated,
        )

    def _tokens(
        self, step: int, length: int
    ) -> tuple[np.random.Generator, np.ndarray]:
        random = generator(SEED, step, 'text')
        shape = (self.batch_size, length)
        return random, random.integers(5, self.vocab_size, shape, np.int32)

    def make_views(self, step: int = 0) -> dict[str, View]:
        """Makes the views of a step's global batch, as the trainer does."""
        from infoword_tf.data.batches import Batches

        plan = self.resolved.plan
        if plan.labelled:
            raise errors.InputError(
                'work_reads_labels',
                f'{self.objectives} reads labelled examples',
            )
        for source_spec in plan.source_specs:
            if not hasattr(self, source_spec.source):
                raise errors.InputError(
                    'work_makes_no_source',
                    f'{self.objectives} reads {source_spec.source}, which are '
                    'not made here; the rate of a run says how fast it is',
                )
        sources = {
            source_spec: StepSource(
                functools.partial(
                    getattr(self, source_spec.source),
                    **dict(source_spec.arguments),
                )
            )
            for source_spec in plan.source_specs
        }
        return Batches(sources, plan, self.specials, SEED).views(step)

    def operations(self, batch: Mapping[str, View]) -> int:
        """Counts floating-point operations of the matrix products of a step.

        Each view passes through the encoder once; in its last block only the
        places of its rows are queries. Packed n-grams count as they are
        computed: the whole sequence attends to itself. The backward pass is
        two products for each product of the forward pass.

        Args:
            batch: views by name, of `make_views`.
        """
        total = 0
        for name, view in batch.items():
            *texts, t = view.ids.shape
            b = math.prod(texts)
            queries = sum(places.shape[-1] for places in view.places.values())
            if set(view.targets) - set(view.places) or not queries:
                queries = t  # a row that wants the text
            if self.encoder == 'relative':
                total += self._relative(name, view, b, t, queries)
                continue
            if self.encoder in ('rnn', 'elmo'):
                total += 3 * self._recurrent(view)
                continue
            total += 3 * (self.layers - 1) * block_operations(
                b, t, t, self.width
            ) + 3 * block_operations(b, t, queries, self.width)
        for row in self.rows:
            total += 3 * self.score_operations(row, batch)
        return total

    def _relative(
        self, name: str, view: View, b: int, t: int, places: int
    ) -> int:
        """Counts operations of the encoder `relative`, forward and backward."""
        block = functools.partial(
            relative_operations,
            b,
            t,
            d=self.width,
            heads=SIZES[self.size]['heads'],
            memory=self.memory_length,
            causal=self.resolved.encoder.arguments['causal'],
            directed=view.directions is not None,
            segments=view.segment_ids is not None,
        )
        # The query stream is in all blocks, the content stream in all but the
        # last one.
        reads = self.resolved.plan.views[name].rows.values()
        queries = 0
        if any(each.where == 'queries' for each in reads):
            queries = places
        return (self.layers - 1) * block(content=t, queries=queries) + (
            block(content=0, queries=queries)
            if queries
            else block(content=places, queries=0)
        )

    def _recurrent(self, view: View) -> int:
        """Counts forward operations of the encoders `rnn` and `elmo`."""
        sizes, d = self._sizes, self.width
        if self.encoder == 'rnn':
            gates = {'lstm': 4, 'gru': 3, 'plain': 1}[sizes['cell']]
            return 2 * view.ids.size * self.layers * 2 * d * gates * d
        p, cells = d // 2, sizes['inner_width']
        direction = 2 * p * 4 * cells + cells * p
        products = view.ids.size * self.layers * 2 * direction
        return 2 * (products + self._tokens_read(view) * self._characters())

    @property
    def _sizes(self) -> dict[str, Any]:
        """All arguments of the encoder, with defaults."""
        from infoword_tf.encoders import ENCODERS

        arguments = self.resolved.encoder.arguments
        return ENCODERS[self.encoder](**arguments).arguments

    def _tokens_read(self, view: View) -> int:
        """Counts the different tokens that `elmo` computes for a view."""
        from infoword_tf.encoders.elmo import SHARES

        sizes = (
            min(self.vocab_size, math.ceil(share * view.ids.size))
            for share in SHARES
        )
        count = len(np.unique(view.ids))
        return next(size for size in sizes if size >= count)

    def _characters(self) -> int:
        """Counts multiplications of `elmo` for each different token."""
        from infoword_tf.encoders.elmo import spelled

        sizes = self._sizes
        filters, width = sizes['filters'], sizes['character_width']
        characters = spelled(self.specials, sizes['characters']).shape[1]
        total = sum(filters)
        return (
            sum(
                (characters - n + 1) * n * width * count
                for n, count in enumerate(filters, 1)
            )
            + sizes['highways'] * total * 2 * total
            + total * (self.width // 2)
        )

    def score_operations(self, row: str, batch: Mapping[str, View]) -> int:
        """Counts forward operations of a row's scores.

        Args:
            row: one of `rows`.
            batch: views by name, of `make_views`.

        Raises:
            ValueError: the row has no `products`.
        """
        from infoword_tf.objectives import TABLE
        from infoword_tf.objectives.objective import Scoring

        products = TABLE[row].products
        if products is None:
            raise errors.InputError(
                'row_without_products',
                f'{row} does not count its scores: Row.products',
            )
        return 2 * products(
            Scoring(
                row,
                self.resolved.rows[row].settings,
                batch,
                self.batch_size,
                self.width,
                self.vocab_size,
            )
        )


def tokens_of(batch: Mapping[str, View]) -> int:
    """Counts the tokens of a step's text, each once, without specials.

    Args:
        batch: views by name, of `Work.make_views`.
    """
    counted = (view.counts.get('tokens', 0) for view in batch.values())
    return int(sum(map(np.sum, counted)))


def block_operations(b: int, t: int, queries: int, d: int) -> int:
    """Counts forward operations of a Transformer block.

    All T tokens are keys and values; the output and the feed-forward are
    computed for the queries alone.

    Args:
        b: B.
        t: T.
        queries: number of tokens of a sequence that are queries.
        d: D.
    """
    keys_and_values = t * d * 2 * d
    queries_and_output = 2 * queries * d * d
    attention = 2 * queries * t * d  # all heads: scores, weighted values
    feed_forward = 2 * queries * d * 4 * d
    return (
        2
        * b
        * (keys_and_values + queries_and_output + attention + feed_forward)
    )


def relative_operations(
    b: int,
    t: int,
    *,
    content: int,
    queries: int,
    d: int,
    heads: int,
    memory: int = 0,
    causal: bool = False,
    directed: bool = False,
    segments: bool = False,
) -> int:
    """Counts operations of a relative attention block, forward and backward.

    Distances are constants: the backward pass of their projection is one
    product, that of all others two. A directed sequence takes its distances
    twice, sines apart from cosines. Where all tokens are queries they come in
    blocks, each of which needs the distances within its reach.

    Args:
        b: B.
        t: T.
        content: queries of a sequence in the content stream.
        queries: places in the query stream.
        d: D.
        heads: H.
        memory: tokens of memory.
        causal: whether there are no distances to later tokens.
        directed: whether sequences have directions.
        segments: whether there are segments.
    """
    from infoword_tf.layers.relative import block_count

    keys = memory + t
    distances = keys + (1 if causal else t)
    products = keys * d * 2 * d  # keys and values of the memory too
    for number, in_blocks in ((content, content == t), (queries, False)):
        columns = distances
        if in_blocks and not causal:
            columns = keys + t // block_count(t)
        each = 2 * d * d  # query and output
        each += 2 * keys * d  # scores, weighted values
        each += columns * d * (2 if directed else 1)
        each += d * heads * segments
        each += 2 * d * 4 * d  # feed-forward
        products += number * each
    return 2 * (3 * b * products + 2 * distances * d * d)
