"""The work of a training step, for the benchmarks: model, batch, operations.

No framework is imported here: step.py runs it under TensorFlow, gpu.py under
JAX. The text is random, which costs what real text costs.

Glossary of shapes: B sequences, T tokens of each, Q places that a view's rows
ask for, P of one row, N = B P pairs, S n-grams of a sequence, D width, F = 4 D
inner width, V vocabulary.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import sampling
from infoword_tf.data.batches import Batches, source_names
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
    """

    objectives: str
    size: str
    batch_size: int
    seq_len: int
    vocab_size: int
    rate: float = 0.1

    @property
    def rows(self) -> dict[str, float]:
        """Weight of each row."""
        return rows_of(self.objectives)

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
                'name': 'transformer',
                'arguments': {
                    'vocab_size': self.vocab_size,
                    **SIZES[self.size],
                    'max_length': max(POSITIONS, self.seq_len),
                    'rate': self.rate,
                    'gelu': 'tanh',
                },
            },
            'rows': {
                row: {'weight': weight, 'settings': dict(TABLE[row].settings)}
                for row, weight in self.rows.items()
            },
            'precision': precision,
        }

    def windows(self, step: int) -> sampling.Windows:
        """Uniformly random pieces in words of about 1.5."""
        random, ids = self._pieces(step)
        word_starts = random.random(ids.shape) < WORD_SHARE
        word_starts[:, 0] = True
        return sampling.Windows(ids, word_starts, np.zeros(ids.shape, bool))

    def documents(self, step: int) -> sampling.Documents:
        """Full documents of four sentences, as long as the windows."""
        _, ids = self._pieces(step)
        starts = np.zeros(ids.shape, bool)
        starts[:, :: -(-ids.shape[1] // 4)] = True
        lengths = np.full(len(ids), ids.shape[1], np.int32)
        return sampling.Documents(ids, lengths, starts)

    def _pieces(self, step: int) -> tuple[np.random.Generator, np.ndarray]:
        random = sampling.generator(SEED, step, 'text')
        shape = (self.batch_size, self.seq_len - 2)
        return random, random.integers(5, self.vocab_size, shape, np.int32)

    def make_views(self, step: int = 0) -> dict[str, View]:
        """The views of a step's global batch, NumPy, as the trainer's are."""
        from infoword_tf.objectives import TABLE

        wanted = {row: TABLE[row].views for row in self.rows}
        maskings = [TABLE[row].masking for row in wanted if TABLE[row].masking]
        masking = maskings[0] if maskings else 'tokens'
        sources = {name: Source(getattr(self, name))
                   for name in source_names(wanted)}  # fmt: skip
        made = Batches(sources, wanted, masking, self.specials, SEED)
        return made.views(step)

    def operations(self, batch: Mapping[str, View]) -> int:
        """Floating-point operations of the matrix products of a step.

        Each view passes through the encoder once; its last block asks at the
        places of its rows only. Packed n-grams count as they are computed, a
        whole row looking at itself. The backward pass is two products for
        each product of the forward pass.

        Args:
            batch: what `make_views` gives.
        """
        forward = 0
        for view in batch.values():
            b, t = view.ids.shape
            asking = sum(places.shape[1] for places in view.places.values())
            asking = asking or t  # a row that wants the text
            forward += (self.layers - 1) * block_operations(
                b, t, t, self.width
            ) + block_operations(b, t, asking, self.width)
        for row in self.rows:
            forward += self.score_operations(row, batch)
        return 3 * forward

    def score_operations(
        self, row: str, batch: Mapping[str, View]
    ) -> int:
        """Forward operations of a row's scores.

        Args:
            row: one of `rows`, with its settings as they are in the table.
            batch: what `make_views` gives.
        """
        if row == 'ict':  # both ways, and pooled as a and as candidates
            sides = [batch[side].ids for side in ('passage', 'sentence')]
            queries = columns = len(sides[0])
            pooled = 2 * 2 * sum(ids.size for ids in sides) * self.width
            return 2 * (pooled + 2 * queries * self.width * columns)
        if row == 'dim':  # the n-grams of a sequence share their a
            queries, slots = batch['ngrams'].targets[row].shape
            columns = queries * slots
        else:
            queries = batch['masked'].targets[row].size
            columns = {
                'mlm': self.vocab_size,
                'bert_nce': min(queries, self.vocab_size),
            }[row]
        return 2 * queries * self.width * columns


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
