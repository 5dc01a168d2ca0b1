"""Blocks on each other, as Transformers without relative positions have them.

Glossary of shapes: B batch, T tokens, Q places, D width, L layers.
"""

import functools
from collections.abc import Callable
from typing import Any

from infoword_tf.encoders.encoder import Encoded, Encoder, Inputs
from infoword_tf.layers import dropout, norm
from infoword_tf.layers.attention import as_numbers
from infoword_tf.layers.block import Sized, take
from infoword_tf.lazy import Layer, ops, remat

Tensor = Any


def blocks_of(
    sizes: Encoder, count: int, kind: type[Sized], layer: Layer, name: str,
    **more: Any,
) -> list[Any]:  # fmt: skip
    """Makes blocks of a kind, of the sizes of an encoder.

    Args:
        sizes: the encoder.
        count: how many.
        kind: what they are.
        layer: whose they are, and whose dtype they have.
        name: of each, before its number.
        **more: what such blocks take besides.
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
    """An encoder whose blocks take rows of tokens, and states at places.

    Attributes:
        gamma, beta: [D] of the norm of the embeddings; None: there is none.
        last_gamma, last_beta: likewise after the last block.
    """

    can_remat = True
    gamma = beta = last_gamma = last_beta = None

    def begun(
        self, x: Tensor, kept: Tensor | None, key: Tensor | None
    ) -> Tensor:
        """Normalises and drops the sum of the embeddings.

        Args:
            x: [B, T, D] float32, D as wide as the embeddings.
            kept: as of `Inputs`.
            key: as in `Encoder.call`.

        Returns:
            [B, T, D] in the compute dtype; without a key its rows [B T, D],
            so that no operation has to change a shape from here on.
        """
        if key is None:
            x = ops.reshape(x, (-1, self.embedding_width))
        else:
            key = dropout.fold_in(key, len(self.blocks))
        if self.gamma is None:
            x = dropout.drop(x, key=key, rate=self.rate)
            x = ops.cast(x, self.compute_dtype)
        else:
            x = self._normalized(
                x, self.gamma, self.beta, key=key, rate=self.rate
            )
        if kept is None:
            return x
        return x * ops.reshape(ops.cast(kept, x.dtype), ops.shape(x))

    def _normalized(self, x: Tensor, *weights: Tensor, **more: Any) -> Tensor:
        how = {'epsilon': self.epsilon, 'dtype': self.compute_dtype}
        return norm.norm(x, *weights, **how, **more)

    def allowed(
        self, inputs: Inputs, rule: Tensor | None, key: Tensor | None
    ) -> Tensor | None:
        """What tokens see: of their own block, and by a rule; None: all.

        Args:
            inputs: with the blocks.
            rule: [1, 1, T, T] bool, or None.
            key: as in `Encoder.call`.

        Returns:
            As `Block.call` takes it.
        """
        allowed, blocks = rule, inputs.block_ids
        if blocks is not None:
            allowed = ops.equal(
                blocks[:, None, :, None], blocks[:, None, None, :]
            )  # [B, 1, T, T]
            if rule is not None:
                allowed = ops.logical_and(allowed, rule)
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
        given: Callable[[int, Tensor | None], dict[str, Any]],
    ) -> Encoded:
        """Runs the blocks one after the other, and the norm behind them.

        Args:
            x: of `begun`.
            length: T.
            places, key, all_layers: as in `Encoder.call`.
            given: (number of a block, its places) -> what else it takes.
        """
        rows = length if key is None else None
        keys, layers = dropout.keys_of(key, len(self.blocks)), [x]
        for i, block in enumerate(self.blocks):
            last = i == len(self.blocks) - 1 and all_layers is not True
            at = places if last else None
            run = functools.partial(
                block, places=at, key=keys[i], length=rows, **given(i, at)
            )
            # Of what is given here x alone has a gradient.
            x = remat(run)(x) if self.remat and key is not None else run(x)
            if all_layers and not last:
                layers.append(x)
        if self.last_gamma is not None:
            x = self._normalized(
                x, self.last_gamma, self.last_beta, key=key
            )
            if all_layers is True:
                layers[-1] = x
        if rows is not None:
            shape = (-1, rows, self.width)
            if all_layers:
                layers = [ops.reshape(states, shape) for states in layers]
            if all_layers is True:
                x = layers[-1]
            elif places is None:
                x = ops.reshape(x, shape)
        if all_layers is True and places is not None:
            x = take(x, places)
        return Encoded(x, layers if all_layers else None)
