"""Stacks of Transformer blocks: their constructor and the loop over them.

Glossary of shapes: P places.
"""

import functools
from collections.abc import Callable
from typing import Any

from infoword_tf.encoders.encoder import Encoded, Encoder, Inputs
from infoword_tf.layers import dropout, norm
from infoword_tf.layers.attention import as_numbers, table
from infoword_tf.layers.block import Sized, take
from infoword_tf.layers.fused import row_major
from infoword_tf.lazy import Layer, ops, remat
from infoword_tf.settings import setting

Tensor = Any


def blocks_of(
    sizes: Encoder, count: int, kind: type[Sized], layer: Layer, name: str,
    **more: Any,
) -> list[Any]:  # fmt: skip
    """Makes blocks with the sizes of an encoder.

    Args:
        sizes, count, kind: the encoder, number and class of the blocks.
        layer: that has the blocks, and gives their dtype.
        name: of each block, before its number.
        **more: arguments of this kind alone.
    """
    return [
        kind(
            sizes.width,
            sizes.heads,
            sizes.inner_width,
            sizes.rate,
            sizes.activation,
            sizes.epsilon,
            dtype=layer.dtype_policy,
            name=f'{name}_{i}',
            **more,
        )
        for i in range(count)
    ]


class Stack(Encoder):
    """An encoder whose blocks see sequences alone, without memory or streams.

    Attributes:
        gamma, beta: [D] of the norm of the embeddings; None: no norm.
        last_gamma, last_beta: [D] of the norm after the last block; None: no
            norm.
        rms: whether these are RMS norms.
        segments: kinds of segment; 0: it knows none.
        segment_table: their embeddings; None: no segments.
    """

    abilities = {'alone': {}, 'attention': {}, 'at_once': {}, 'words': {}}
    input_fields = (
        'ids', 'positions', 'segment_ids', 'block_ids', 'first',
        'first_places', 'multipliers', 'hidden',
    )  # fmt: skip
    can_remat = True
    rms = False
    gamma = beta = last_gamma = last_beta = None
    segments = 0
    segment_table = None
    layers: int = setting(2, 'L.', at_least=1)
    heads: int = setting(2, 'H.', at_least=1)

    def make_segment_table(self) -> None:
        """Makes `segment_table`, if the encoder has segments."""
        if self.segments:
            self.segment_table = table(
                self, 'segment_embeddings', self.segments, self.embedding_width
            )

    def add_segments(self, x: Tensor, inputs: Inputs) -> Tensor:
        """Adds the embeddings of segments, if any, to x [B, T, D]."""
        if self.segment_table is None:
            return x
        if inputs.segment_ids is None:
            return x + self.segment_table[0]
        return x + ops.take(self.segment_table, inputs.segment_ids, axis=0)

    def start_blocks(
        self, x: Tensor, multipliers: Tensor | None, key: Tensor | None
    ) -> Tensor:
        """Normalizes the sum of the embeddings, and applies dropout.

        Args:
            x: [B, T, D] float32, D the width of the embeddings.
            multipliers: as in `Inputs`.
            key: as in `Encoder.call`.

        Returns:
            [B, T, D] in the compute dtype; without a key flattened [B T, D],
            so that no later operation has to change a shape.
        """
        if key is None:
            x = ops.reshape(x, (-1, self.embedding_width))
        else:
            x = row_major(x)
            key = dropout.fold_in(key, len(self.blocks))
        if self.gamma is None:
            x = dropout.drop(x, key=key, rate=self.rate)
            x = ops.cast(x, self.compute_dtype)
        else:
            x = self._normalized(
                x, self.gamma, self.beta, key=key, rate=self.rate
            )
        if multipliers is None:
            return x
        return x * ops.reshape(ops.cast(multipliers, x.dtype), ops.shape(x))

    def _normalized(self, x: Tensor, *weights: Tensor, **more: Any) -> Tensor:
        more |= {
            'epsilon': self.epsilon, 'dtype': self.compute_dtype,
            'rms': self.rms,
        }  # fmt: skip
        return norm.norm(x, *weights, **more)

    def attention_mask(
        self, inputs: Inputs, rule: Tensor | None, key: Tensor | None
    ) -> Tensor | None:
        """Builds the mask `allowed` of `Block.call`: within blocks, by a rule.

        Args:
            inputs: with the blocks.
            rule: [1, 1, T, T] bool, or None.
            key: as in `Encoder.call`.

        Returns:
            None: tokens attend to all tokens.
        """
        allowed, blocks = rule, inputs.block_ids
        if blocks is not None:
            allowed = ops.equal(
                blocks[:, None, :, None], blocks[:, None, None, :]
            )  # [B, 1, T, T]
            if rule is not None:
                allowed = ops.logical_and(allowed, rule)
        if inputs.hidden is not None:
            shown = ops.equal(inputs.hidden, 0)[:, None, None]
            allowed = (
                shown if allowed is None else ops.logical_and(allowed, shown)
            )
        if key is None and allowed is not None:
            allowed = as_numbers(allowed, self.compute_dtype)
        return allowed

    def run_blocks(
        self,
        x: Tensor,
        length: Any,
        places: Tensor | None,
        key: Tensor | None,
        all_layers: bool | str,
        arguments_of: Callable[[int, Tensor | None], dict[str, Any]],
        *learned: Tensor,
    ) -> Encoded:
        """Runs the blocks one after another, and the norm after the last.

        Args:
            x: result of `start_blocks`.
            length: T.
            places, key, all_layers: as in `Encoder.call`.
            arguments_of: (number of a block, its places) -> its other
                arguments.
            *learned: what all blocks read after x, with a gradient.
        """
        flat_length = length if key is None else None
        keys, layers = dropout.keys_of(key, len(self.blocks)), [x]
        for i, block in enumerate(self.blocks):
            is_last = i == len(self.blocks) - 1 and all_layers is not True
            at = places if is_last else None
            more = arguments_of(i, at)
            run = functools.partial(
                block, places=at, key=keys[i], length=flat_length, **more
            )
            # Under remat other arguments would have no gradient.
            if self.remat and key is not None:
                run = remat(run, block)
            x = run(x, *learned)
            if all_layers and not is_last:
                layers.append(x)
        if self.last_gamma is not None:
            x = self._normalized(
                x, self.last_gamma, self.last_beta, key=key
            )
            if all_layers is True:
                layers[-1] = x
        if flat_length is not None:
            shape = (-1, flat_length, self.width)
            if all_layers:
                layers = [ops.reshape(states, shape) for states in layers]
            if all_layers is True:
                x = layers[-1]
            elif places is None:
                x = ops.reshape(x, shape)
        if all_layers is True and places is not None:
            x = take(x, places)
        return Encoded(x, layers if all_layers else None)
