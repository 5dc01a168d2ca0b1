"""The Transformer of BERT (Devlin et al. 2019): embeddings and blocks.

Bidirectional and post-norm as BERT's; by argument causal (Radford et al. 2018),
pre-norm, of narrow embeddings (Clark et al. 2020, ELECTRA), with a bias of each
distance (Song et al. 2020, MPNet), or of one block that runs L times (Lan et
al. 2020, ALBERT).
"""

from typing import Any

from infoword_tf import errors
from infoword_tf.encoders.encoder import (
    ACTIVATION,
    Encoded,
    Inputs,
    Stack,
    blocks_of,
)
from infoword_tf.layers.attention import (
    causal_mask,
    distance_buckets,
    project,
    table,
    vector,
)
from infoword_tf.layers.block import Block
from infoword_tf.lazy import ops
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor


class Transformer(Stack):
    """Transformer: g_omega of BERT, BERT-NCE and InfoWord."""

    abilities = {
        **Stack.abilities,
        'both_sides': {'causal': False},
        'causal': {  # GPT's
            'causal': True,
            'segments': 0,
            'embedding_norm': False,
            'epsilon': 1e-5,
        },
        'positions': {},
        'segments': {},
    }
    inner_width: int = setting(None, 'Feed-forward; 4 D.', kind=int)
    segments: int = setting(2, 'Kinds of segment; 0: it knows none.')
    activation: str = ACTIVATION
    epsilon: float = setting(1e-12, 'Of every layer norm.')
    causal: bool = setting(False, 'Whether tokens see no later ones.')
    pre_norm: bool = setting(
        False,
        'Whether blocks begin with their norms, and one more follows the last; '
        'else they end with them.',
    )
    embedding_norm: bool = setting(
        True, "Whether the sum of the embeddings is normalised; GPT's is not."
    )
    embedding_width: int = setting(
        None,
        'Width of the embeddings, which a dense layer then takes to that of '
        'the layers (ELECTRA, ALBERT); by default that of the layers.',
        at_least=1,
        kind=int,
        flag='embedding_width',
    )
    relative_buckets: int = setting(
        0,
        'Buckets of distances between tokens: of each the heads learn a bias, '
        'which all layers add to their scores (MPNet has 32); 0: none.',
        at_least=0,
        flag='relative_buckets',
    )
    shared_layers: bool = setting(
        False,
        'Whether all layers have the same weights (ALBERT).',
        flag='shared_layers',
    )

    def make_blocks(self) -> None:
        """Overrides `Encoder.make_blocks`."""
        count = self.relative_buckets
        if count and (count % 2 or not 4 <= count <= 256):
            raise errors.InputError(
                'unknown_bucket_count',
                f'{count} buckets of distances: an even number from 4 to 256, '
                'or 0 for none',
            )
        self.inner_width = self.inner_width or 4 * self.width
        repeats = self.layers if self.shared_layers else 1
        self.blocks = repeats * blocks_of(
            self, self.layers // repeats, Block, layer=self, name='layer',
            pre_norm=self.pre_norm,
        )  # fmt: skip

    def complete(self) -> None:
        """Overrides `Encoder.complete`."""
        self.embedding_width = self.embedding_width or self.width

    def build(self) -> None:
        """Overrides `Encoder.build`."""
        sizes = self.arguments
        self.make_embedding_table()
        width = self.embedding_width
        self.position_table = table(
            self, 'position_embeddings', self.max_length, width
        )
        self.make_segment_table()
        if sizes['embedding_norm']:
            self.gamma = vector(self, 'norm_gamma', width, 'ones')
            self.beta = vector(self, 'norm_beta', width)
        if width != self.width:
            self.projection_kernel = table(
                self, 'projection_kernel', width, self.width
            )
            self.projection_bias = vector(self, 'projection_bias', self.width)
        if self.relative_buckets:
            self.bucket_table = table(
                self, 'relative_bias', self.relative_buckets, self.heads
            )
        if self.pre_norm:
            self.last_gamma = vector(
                self, 'last_norm_gamma', self.width, 'ones'
            )
            self.last_beta = vector(self, 'last_norm_beta', self.width)
        super().build()

    def call(
        self,
        inputs: Inputs,
        places: Tensor | None = None,
        key: Tensor | None = None,
        all_layers: bool | str = False,
    ) -> Encoded:
        """Encodes a view, see `Encoder.call`.

        Distances count tokens of the sequence, whatever `Inputs.positions` are.

        Raises:
            ValueError: T beyond the positions; inputs that are not read.
        """
        self.check_inputs(inputs)
        ids, positions, segment_ids, *_ = inputs
        length = ids.shape[1]
        if positions is None and (length or 0) > self.max_length:
            raise errors.InputError(
                'more_tokens_than_positions',
                f'{length} tokens a sequence, but the encoder has '
                f'{self.max_length} positions',
            )
        x = self.lookup(ids)  # [B, T, D]
        # Terms that all texts share are summed first.
        if positions is None:
            of_positions = self.position_table[: ops.shape(ids)[1]]  # [T, D]
        else:
            of_positions = ops.take(self.position_table, positions, axis=0)
        if self.segment_table is None:
            x = x + of_positions
        elif segment_ids is None:
            x = x + (of_positions + self.segment_table[0])
        else:
            x = x + of_positions
            x = x + ops.take(self.segment_table, segment_ids, axis=0)
        x = self.start_blocks(x, inputs.multipliers, key)
        if self.embedding_width != self.width:
            x = project(x, ops.cast(self.projection_kernel, x.dtype))
            x = ops.add(x, ops.cast(self.projection_bias, x.dtype))
        x = self.put_first(x, inputs)
        length = ops.shape(ids)[1]
        earlier = causal_mask(length) if self.causal else None
        allowed, learned = self.attention_mask(inputs, earlier, key), []
        if self.relative_buckets:
            learned.append(self.bias_of_distances(length))
        if key is None and learned and allowed is not None:
            allowed = learned.pop() + allowed  # one sum for all layers
        return self.run_blocks(
            x, length, places, key, *learned, all_layers=all_layers,
            arguments_of=lambda number, at: {'allowed': allowed},
        )  # fmt: skip

    def bias_of_distances(self, length: Any) -> Tensor:
        """Returns the bias of scores [1, H, T, T], in the compute dtype."""
        buckets = distance_buckets(self.relative_buckets)
        by_head = ops.transpose(self.bucket_table)
        by_distance = ops.take(by_head, buckets, axis=1)  # [H, 257]
        i, longest = ops.arange(length, dtype='int32'), len(buckets) // 2
        distances = ops.clip(i - i[:, None], -longest, longest)
        # In float32, as is the sum of the gradients of a bucket.
        bias = ops.take(by_distance, distances + longest, axis=1)[None]
        return ops.cast(bias, self.compute_dtype)
