"""The encoder of DeBERTa, versions 2 and 3 (He et al. 2021, 2023).

BERT's blocks with disentangled attention: how far tokens are apart counts in
each layer, and no position in the embeddings. Segments, of which published
models have none, are for rows of two texts.
"""

import dataclasses

from infoword_tf import errors
from infoword_tf.encoders.encoder import (
    ACTIVATION,
    Encoded,
    Inputs,
    Stack,
    blocks_of,
)
from infoword_tf.layers import dropout
from infoword_tf.layers.attention import table, vector
from infoword_tf.layers.disentangled import DisentangledBlock, distances_of
from infoword_tf.layers.fused import read
from infoword_tf.lazy import ops
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor


class DisentangledTransformer(Stack):
    """g_omega of DeBERTa.

    Distances count places in the sequence, whatever `Inputs.positions` are.
    """

    abilities = {
        **Stack.abilities,
        'both_sides': {},
        'segments': {'segments': 2},
    }
    inner_width: int = setting(None, 'Feed-forward; 4 D.', kind=int)
    segments: int = setting(0, 'Kinds of segment; 0: it knows none.')
    activation: str = ACTIVATION
    epsilon: float = setting(1e-7, 'Of every layer norm.')
    buckets: int = setting(
        256,
        'Distances of each direction that are told apart; those up to half of '
        'them exactly.',
        at_least=2,
    )
    max_distance: int = setting(
        512, 'From here on all distances of a direction are one.', at_least=3
    )

    def make_blocks(self) -> None:
        """Overrides `Encoder.make_blocks`."""
        if self.max_distance <= self.buckets // 2 + 1:
            raise errors.InputError(
                'distances_below_buckets',
                f'a max_distance of {self.max_distance}: it has to be above '
                f'{self.buckets // 2 + 1}, half of the {self.buckets} buckets '
                'and 1',
            )
        self.inner_width = self.inner_width or 4 * self.width
        self.blocks = blocks_of(
            self, self.layers, DisentangledBlock, layer=self, name='layer'
        )

    def build(self) -> None:
        """Overrides `Encoder.build`."""
        self.make_embedding_table()
        self.make_segment_table()
        self.distance_table = table(
            self, 'distance_embeddings', 2 * self.buckets, self.width
        )
        self.gamma, self.distance_gamma = (
            vector(self, f'{name}_gamma', self.width, 'ones')
            for name in ('norm', 'distance_norm')
        )
        self.beta, self.distance_beta = (
            vector(self, f'{name}_beta', self.width)
            for name in ('norm', 'distance_norm')
        )
        super().build()

    def call(
        self,
        inputs: Inputs,
        places: Tensor | None = None,
        key: Tensor | None = None,
        all_layers: bool | str = False,
    ) -> Encoded:
        """Encodes a view, see `Encoder.call`."""
        self.check_inputs(inputs)
        x = self.lookup(inputs.ids)  # [B, T, D]
        x = self.add_segments(x, inputs)
        x = self.start_blocks(x, inputs.multipliers, key)
        x = self.put_first(x, inputs)
        known = self._vectors_of_distances(None) if key is None else None

        def vectors(key: Tensor | None) -> Tensor:
            return self._vectors_of_distances(key) if known is None else known

        length = ops.shape(inputs.ids)[1]
        distances = distances_of(
            length, self.buckets, self.max_distance, vectors
        )
        allowed = self.attention_mask(inputs, None, key)
        return self.run_blocks(
            x, length, places, key, all_layers=all_layers,
            arguments_of=lambda number, at: {
                'allowed': allowed,
                'distances': dataclasses.replace(distances, places=at),
            },
        )  # fmt: skip

    def _vectors_of_distances(self, key: Tensor | None) -> Tensor:
        """Normalizes the table, with the dropout of a layer: [2 k, D].

        Each layer reads the weights itself: a block that is recomputed has
        gradients of no other tensors.
        """
        return self._normalized(
            read(self.distance_table), self.distance_gamma, self.distance_beta,
            key=dropout.of_all(key), rate=self.rate,
        )  # fmt: skip
