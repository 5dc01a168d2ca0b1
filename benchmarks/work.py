"""The work of a training step, for the benchmarks: model, batch, operations.

No framework is imported here: step.py runs it under TensorFlow, gpu.py under
JAX. The text is random, which costs what real text costs.

Glossary of shapes: B sequences, T tokens of each, M of memory, K = M + T keys,
Q places that a view's rows ask for, P of one row, N = B P pairs, S n-grams of a
sequence, H heads, D width, F = 4 D inner width, V vocabulary.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import sampling
from infoword_tf.data.batches import Batches
from infoword_tf.plan import make_plan
from infoword_tf.sizes import SIZES
from infoword_tf.views import Specials, View

SEED, POSITIONS = 0, 512
WORD_SHARE = 2 / 3  # of the pieces begin a word


def rows_of(objectives: str) -> dict[str, float]:
    """Weight of each row that is built.

    Args:
        objectives: as `--objectives` of the trainer.

    Raises:
        ValueError: it names no rows.
    """
    from infoword_tf.objectives import parse

    return {row: weight for row, weight in parse(objectives).items() if weight}


class Source(NamedTuple):
    """A source of text: one function of the step."""

    batch: Callable[[int], Any]


@dataclasses.dataclass(frozen=True)
class Work:
    """A row or a sum of rows, the size of its encoder and of its batch.

    Attributes:
        objectives: a row, a sum with a name, or weighted rows.
        size: name in SIZES.
        batch_size: B.
        seq_len: T of a text, with specials.
        vocab_size: V.
        rate: dropout.
        memory_length: M, of an encoder that has memory.
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

    @property
    def encoder(self) -> str:
        """Name of the encoder, of the first row's choice."""
        from infoword_tf.objectives import TABLE

        return TABLE[next(iter(self.rows))].encoders[0]

    @property
    def fixed(self) -> dict[str, Any]:
        """Arguments of the encoder that the rows fix."""
        from infoword_tf.objectives import TABLE

        return {
            name: value
            for row in self.rows
            for name, value in TABLE[row].arguments.items()
        }

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
        """P: hidden tokens of a sequence."""
        return sampling.budget(self.seq_len - 2)

    @property
    def tokens(self) -> int:
        """Tokens of a step: those of the text, in whatever views."""
        return self.batch_size * self.seq_len

    @property
    def specials(self) -> Specials:
        """Ids of the special pieces."""
        return Specials(1, 2, 3, self.vocab_size)

    @property
    def frequencies(self) -> np.ndarray:
        """[V] p(b) of the text."""
        return np.full(self.vocab_size, 1 / self.vocab_size)

    def config(self, precision: str) -> dict[str, Any]:
        """What `infoword_tf.model.Model` wants.

        Args:
            precision: Keras dtype policy.
        """
        from infoword_tf.objectives import TABLE

        return {
            'encoder': {
                'name': self.encoder,
                'arguments': {
                    'vocab_size': self.vocab_size,
                    **SIZES[self.size],
                    'max_length': max(POSITIONS, self.seq_len),
                    'rate': self.rate,
                    **self.fixed,
                },
            },
            'rows': {
                row: {'weight': weight, 'settings': dict(TABLE[row].settings)}
                for row, weight in self.rows.items()
            },
            'precision': precision,
            'memory_length': self.memory_length,
        }

    def windows(self, step: int, length: int) -> sampling.Windows:
        """Uniformly random pieces in words of about 1.5."""
        random, ids = self._pieces(step, length)
        word_starts = random.random(ids.shape) < WORD_SHARE
        word_starts[:, 0] = True
        return sampling.Windows(ids, word_starts, np.zeros(ids.shape, bool))

    def documents(self, step: int, length: int) -> sampling.Documents:
        """Full documents of four sentences, as long as the windows."""
        _, ids = self._pieces(step, length)
        starts = np.zeros(ids.shape, bool)
        starts[:, :: -(-ids.shape[1] // 4)] = True
        lengths = np.full(len(ids), ids.shape[1], np.int32)
        return sampling.Documents(ids, lengths, starts)

    def pairs(self, step: int, length: int) -> sampling.Pairs:
        """Full pairs of two halves, half of them random."""
        text = self.windows(step, length)
        b = self.batch_size
        a = (length - 1) // 2
        separators = np.zeros(text.ids.shape, bool)
        separators[:, a] = True
        word_starts = text.word_starts.copy()
        word_starts[:, a : a + 2] = True
        return sampling.Pairs(
            text.ids, word_starts, separators,
            np.full(b, a, np.int32), np.full(b, length - 1 - a, np.int32),
            (np.arange(b) % 2).astype(np.int32),
        )  # fmt: skip

    def next_pairs(self, step: int, length: int) -> sampling.Pairs:
        """The same, each with three rivals."""
        own = self.pairs(step, length)
        rivals = [np.repeat(x, 3, axis=0) for x in own[:6]]
        return own._replace(
            labels=np.zeros_like(own.labels), rivals=sampling.Pairs(*rivals)
        )

    def streams(
        self,
        step: int,
        length: int,
        advance: int | None = None,
        both_directions: bool = False,
    ) -> sampling.Streams:
        """The windows as rows that go on; every step is another text."""
        del advance
        text = self.windows(step, length)
        directions = np.ones(self.batch_size, np.int32)
        if both_directions:
            directions[1::2] = -1
        return sampling.Streams(*text, directions, text.ids[:, 0])

    def _pieces(
        self, step: int, length: int
    ) -> tuple[np.random.Generator, np.ndarray]:
        random = sampling.generator(SEED, step, 'text')
        shape = (self.batch_size, length)
        return random, random.integers(5, self.vocab_size, shape, np.int32)

    def make_views(self, step: int = 0) -> dict[str, View]:
        """The views of a step's global batch, NumPy, as the trainer's are."""
        from infoword_tf.objectives import TABLE

        maskings = [TABLE[r].masking for r in self.rows if TABLE[r].masking]
        plan = make_plan(
            {row: TABLE[row].settings for row in self.rows},
            self.seq_len,
            maskings[0] if maskings else 'tokens',
        )
        sources = {
            name: Source(functools.partial(getattr(self, name), **how))
            for name, how in plan.reading.items()
        }
        return Batches(sources, plan, self.specials, SEED).views(step)

    def operations(self, batch: Mapping[str, View]) -> int:
        """Floating-point operations of the matrix products of a step.

        Each view passes through the encoder once; its last block asks at the
        places of its rows only. Packed n-grams count as they are computed, a
        whole row looking at itself. The backward pass is two products for
        each product of the forward pass.

        Args:
            batch: what `make_views` gives.
        """
        found = 0
        for name, view in batch.items():
            *texts, t = view.ids.shape
            b = math.prod(texts)
            asking = sum(places.shape[-1] for places in view.places.values())
            asking = asking or t  # a row that wants the text
            if self.encoder == 'transformer_xl':
                found += self._relative(name, view, b, t, asking)
                continue
            found += 3 * (self.layers - 1) * block_operations(
                b, t, t, self.width
            ) + 3 * block_operations(b, t, asking, self.width)
        for row in self.rows:
            found += 3 * self.score_operations(row, batch)
        return found

    def _relative(
        self, name: str, view: View, b: int, t: int, asking: int
    ) -> int:
        """Operations of a pass of `transformer_xl`, both ways."""
        from infoword_tf.objectives import TABLE

        block = functools.partial(
            relative_operations,
            b,
            t,
            d=self.width,
            heads=SIZES[self.size]['heads'],
            memory=self.memory_length,
            causal=self.fixed.get('causal', False),
            directed=view.directions is not None,
            segments=view.segment_ids is not None,
        )
        # The query stream asks in all blocks, the content stream in all but
        # the last one.
        wants = [TABLE[row].views.get(name) for row in self.rows]
        queries = asking if 'queries' in wants else 0
        return (self.layers - 1) * block(content=t, queries=queries) + (
            block(content=0, queries=queries)
            if queries
            else block(content=asking, queries=0)
        )

    def score_operations(
        self, row: str, batch: Mapping[str, View]
    ) -> int:
        """Forward operations of a row's scores.

        Args:
            row: one of `rows`, with its settings as they are in the table.
            batch: what `make_views` gives.
        """
        b, d = self.batch_size, self.width
        if row == 'nsp':  # pooler and two classes
            return 2 * b * d * (d + 2)
        if row == 'nsp_nce':  # psi and the true and three other pairs
            return 2 * 4 * b * d
        if row == 'ict':  # both ways, and pooled as a and as candidates
            sides = [batch[side].ids for side in ('passage', 'sentence')]
            queries = columns = len(sides[0])
            pooled = 2 * 2 * sum(ids.size for ids in sides) * d
            return 2 * (pooled + 2 * queries * d * columns)
        if row == 'dim':  # the n-grams of a sequence share their a
            queries, slots = batch['ngrams'].targets[row].shape
            columns = queries * slots
        else:
            (view,) = (v for v in batch.values() if row in v.targets)
            queries = view.targets[row].size
            columns = self.vocab_size
            if row == 'bert_nce':
                columns = min(queries, columns)
        return 2 * queries * d * columns


def block_operations(b: int, t: int, asking: int, d: int) -> int:
    """Forward operations of a block where `asking` tokens of each row ask.

    All T tokens are keys and values; queries, the output and the feed-forward
    are computed for those that ask.

    Args:
        b: B.
        t: T.
        asking: how many of a row ask.
        d: D.
    """
    keys_and_values = t * d * 2 * d
    queries_and_output = 2 * asking * d * d
    attention = 2 * asking * t * d  # all heads: scores, weighted values
    feed_forward = 2 * asking * d * 4 * d
    return 2 * b * (
        keys_and_values + queries_and_output + attention + feed_forward
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
    """Operations of a block of relative attention, forward and backward.

    Distances are constants: the backward pass of their projection is one
    product, that of all others two. A directed row takes its distances twice,
    sines apart from cosines. Where all tokens ask they do so in blocks, each
    of which needs the distances within its reach.

    Args:
        b: B.
        t: T.
        content: tokens of a row that ask in the content stream.
        queries: places that ask in the query stream.
        d: D.
        heads: H.
        memory: M.
        causal: whether there are no distances to later tokens.
        directed: whether rows have directions.
        segments: whether there are segments.
    """
    from infoword_tf.layers.relative import blocks_of

    keys = memory + t
    distances = keys + (1 if causal else t)
    products = keys * d * 2 * d  # keys and values of the memory too
    for asking, in_blocks in ((content, content == t), (queries, False)):
        columns = distances
        if in_blocks and not causal:
            columns = keys + t // blocks_of(t)
        each = 2 * d * d  # query and output
        each += 2 * keys * d  # scores, weighted values
        each += columns * d * (2 if directed else 1)
        each += d * heads * segments
        each += 2 * d * 4 * d  # feed-forward
        products += asking * each
    return 2 * (3 * b * products + 2 * distances * d * d)
