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

from infoword_tf.sizes import SIZES
from infoword_tf.views import Specials, View, generator
from infoword_tf.views.cloze import Documents
from infoword_tf.views.masking import Pairs, Windows, budget
from infoword_tf.views.streams import Streams

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


class StepSource(NamedTuple):
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

    @functools.cached_property
    def resolved(self) -> Any:
        """What the trainer would decide, an `infoword_tf.resolve.Resolved`."""
        from infoword_tf.resolve import ModelChoices, resolve

        return resolve(
            ModelChoices(
                objectives=self.objectives,
                size=self.size,
                positions=max(POSITIONS, self.seq_len),
                dropout=self.rate,
                seq_len=self.seq_len,
                batch_size=self.batch_size,
            )
        )

    @property
    def encoder(self) -> str:
        """Name of the encoder that all rows allow."""
        return self.resolved.encoder.name

    @property
    def remembers(self) -> bool:
        """Whether it has memory."""
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
        """Ids of the special pieces."""
        return Specials(1, 2, 3, self.vocab_size)

    @property
    def statistics(self) -> Any:
        """Of the text: all pieces are alike."""
        from infoword_tf.objectives import Statistics

        counts = np.full(self.vocab_size, 1 / self.vocab_size)
        return Statistics(counts, counts)

    def config(self, precision: str) -> Any:
        """What `infoword_tf.model.Model` wants.

        Args:
            precision: Keras dtype policy.
        """
        config = self.resolved.config(self.vocab_size, precision=precision)
        return config.replace(memory_length=self.memory_length)

    def windows(self, step: int, length: int) -> Windows:
        """Uniformly random pieces in words of about 1.5."""
        random, ids = self._pieces(step, length)
        word_starts = random.random(ids.shape) < WORD_SHARE
        word_starts[:, 0] = True
        return Windows(ids, word_starts, np.zeros(ids.shape, bool))

    def documents(self, step: int, length: int) -> Documents:
        """Full documents of four sentences, as long as the windows."""
        _, ids = self._pieces(step, length)
        starts = np.zeros(ids.shape, bool)
        starts[:, :: -(-ids.shape[1] // 4)] = True
        lengths = np.full(len(ids), ids.shape[1], np.int32)
        return Documents(ids, lengths, starts)

    def pairs(self, step: int, length: int, packed: bool = False) -> Pairs:
        """Full pairs of two halves, half of them random: none shares a row."""
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
        """The same, each with three negatives."""
        own = self.pairs(step, length)
        negatives = [np.repeat(x, 3, axis=0) for x in own[:6]]
        return own._replace(
            labels=np.zeros_like(own.labels), negatives=Pairs(*negatives)
        )

    def streams(
        self,
        step: int,
        length: int,
        advance: int | None = None,
        both_directions: bool = False,
    ) -> Streams:
        """The windows as rows that go on; every step is another text."""
        text = self.windows(step, length)
        directions = np.ones(self.batch_size, np.int32)
        if both_directions:
            directions[1::2] = -1
        again = np.full_like(directions, length - (advance or length))
        return Streams(
            text.ids,
            text.word_starts,
            text.separators,
            text.separators,
            directions,
            text.ids[:, 0],
            again,
        )

    def _pieces(
        self, step: int, length: int
    ) -> tuple[np.random.Generator, np.ndarray]:
        random = generator(SEED, step, 'text')
        shape = (self.batch_size, length)
        return random, random.integers(5, self.vocab_size, shape, np.int32)

    def make_views(self, step: int = 0) -> dict[str, View]:
        """The views of a step's global batch, NumPy, as the trainer's are."""
        from infoword_tf.data.batches import Batches

        plan = self.resolved.plan
        if plan.labelled:
            raise ValueError(f'{self.objectives} reads labelled examples')
        for source_spec in plan.source_specs:
            if not hasattr(self, source_spec.source):
                raise ValueError(
                    f'{self.objectives} reads {source_spec.source}, which are '
                    'not made here; the rate of a run says how fast it is'
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
            if set(view.targets) - set(view.places) or not asking:
                asking = t  # a row that wants the text
            if self.encoder == 'relative':
                found += self._relative(name, view, b, t, asking)
                continue
            if self.encoder in ('rnn', 'elmo'):
                found += 3 * self._recurrent(view)
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
        """Operations of a pass of the encoder `relative`, both ways."""
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
        # The query stream asks in all blocks, the content stream in all but
        # the last one.
        reads = self.resolved.plan.views[name].rows.values()
        queries = 0
        if any(each.where == 'queries' for each in reads):
            queries = asking
        return (self.layers - 1) * block(content=t, queries=queries) + (
            block(content=0, queries=queries)
            if queries
            else block(content=asking, queries=0)
        )

    def _recurrent(self, view: View) -> int:
        """Forward operations of a pass of the encoders `rnn` and `elmo`."""
        sizes, d = self._sizes, self.width
        if self.encoder == 'rnn':
            gates = {'lstm': 4, 'gru': 3, 'plain': 1}[sizes['cell']]
            return 2 * view.ids.size * self.layers * 2 * d * gates * d
        p, cells = d // 2, sizes['inner_width']
        direction = 2 * p * 4 * cells + cells * p
        found = view.ids.size * self.layers * 2 * direction
        return 2 * (found + self._pieces_read(view) * self._characters())

    @property
    def _sizes(self) -> dict[str, Any]:
        """All arguments of the encoder, its defaults too."""
        from infoword_tf.encoders import ENCODERS

        choices = self.resolved.encoder.arguments
        return ENCODERS[self.encoder](**choices).arguments

    def _pieces_read(self, view: View) -> int:
        """How many pieces `elmo` reads of a view, as it computes them."""
        from infoword_tf.encoders.elmo import SHARES

        sizes = (
            min(self.vocab_size, math.ceil(share * view.ids.size))
            for share in SHARES
        )
        count = len(np.unique(view.ids))
        return next(size for size in sizes if size >= count)

    def _characters(self) -> int:
        """Multiplications of `elmo` for each piece that it reads."""
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

    def score_operations(
        self, row: str, batch: Mapping[str, View]
    ) -> int:
        """Forward operations of a row's scores.

        Args:
            row: one of `rows`.
            batch: what `make_views` gives.
        """
        b, d = self.batch_size, self.width
        if row == 'elmo':  # of both directions
            d //= 2
        if row in ('nsp', 'same_text'):  # pooler and two classes
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
            if self.resolved.rows[row].settings.get('transform'):
                columns += d  # BERT's dense layer before the scores
        return 2 * queries * d * columns


def tokens_of(batch: Mapping[str, View]) -> int:
    """Tokens of text of a step, each once: no specials, nothing read again.

    Args:
        batch: what `Work.make_views` gives.
    """
    counted = (view.counts.get('tokens', 0) for view in batch.values())
    return int(sum(map(np.sum, counted)))


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
    from infoword_tf.layers.relative import block_count

    keys = memory + t
    distances = keys + (1 if causal else t)
    products = keys * d * 2 * d  # keys and values of the memory too
    for asking, in_blocks in ((content, content == t), (queries, False)):
        columns = distances
        if in_blocks and not causal:
            columns = keys + t // block_count(t)
        each = 2 * d * d  # query and output
        each += 2 * keys * d  # scores, weighted values
        each += columns * d * (2 if directed else 1)
        each += d * heads * segments
        each += 2 * d * 4 * d  # feed-forward
        products += asking * each
    return 2 * (3 * b * products + 2 * distances * d * d)
