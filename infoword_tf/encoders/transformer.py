"""The Transformer of BERT (Devlin et al. 2019): embeddings and blocks.

Bidirectional and post-norm as BERT's; causal (Radford et al. 2018), pre-norm,
and narrow embeddings (Clark et al. 2020, ELECTRA) by argument.

Glossary of shapes: B batch, T tokens, Q places, D width, L layers,
V vocabulary.
"""

import functools
from typing import Any

from infoword_tf.encoders.encoder import ACTIVATION, Encoded, Encoder, Inputs
from infoword_tf.layers import dropout, norm
from infoword_tf.layers.attention import as_numbers, causal_mask, project
from infoword_tf.layers.block import Block, take
from infoword_tf.lazy import ops, remat
from infoword_tf.settings import setting

Tensor = Any


class Transformer(Encoder):
    """g_omega of BERT, BERT-NCE and InfoWord."""

    input_fields = (
        'ids', 'positions', 'segment_ids', 'block_ids', 'first',
        'first_places', 'kept',
    )  # fmt: skip

    layers: int = setting(2, 'L.', at_least=1)
    can_remat = True
    heads: int = setting(2, 'H.', at_least=1)
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
        'Of the embeddings, which a dense layer then takes to D; D.',
        kind=int,
    )

    def make_blocks(self) -> None:
        """As `Encoder.make_blocks`."""
        self.inner_width = self.inner_width or 4 * self.width
        self.blocks = [
            Block(
                self.width,
                self.heads,
                self.inner_width,
                self.rate,
                self.activation,
                self.epsilon,
                pre_norm=self.pre_norm,
                dtype=self.dtype_policy,
                name=f'layer_{i}',
            )
            for i in range(self.layers)
        ]

    def build(self) -> None:
        """Makes the weights, each under an explicit path."""
        sizes = self.arguments
        self.embedding_width = self.embedding_width or self.width

        def weight(name: str, *shape: int, initializer: str = 'zeros') -> Any:
            return self.add_weight(
                shape=shape, initializer=initializer, name=name, autocast=False
            )

        self.make_embedding_table()
        width = self.embedding_width
        self.position_table = weight(
            'position_embeddings', self.max_length, width
        )
        self.segment_table = None
        if sizes['segments']:
            self.segment_table = weight(
                'segment_embeddings', sizes['segments'], width
            )
        if sizes['embedding_norm']:
            self.gamma = weight('norm_gamma', width, initializer='ones')
            self.beta = weight('norm_beta', width)
        if width != self.width:
            self.projection_kernel = weight(
                'projection_kernel', width, self.width
            )
            self.projection_bias = weight('projection_bias', self.width)
        if self.pre_norm:
            self.last_gamma = weight(
                'last_norm_gamma', self.width, initializer='ones'
            )
            self.last_beta = weight('last_norm_beta', self.width)
        for block in self.blocks:
            block.build()
        self.built = True

    def call(
        self,
        inputs: Inputs,
        places: Tensor | None = None,
        key: Tensor | None = None,
        all_layers: bool | str = False,
    ) -> Encoded:
        """As `Encoder.call`.

        Raises:
            ValueError: T beyond the positions; inputs that it does not read.
        """
        self.check_inputs(inputs)
        ids, positions, segment_ids, block_ids, *_ = inputs
        length = ids.shape[1]
        if length is not None and positions is None:
            if length > self.max_length:
                raise ValueError(
                    f'{length} tokens a sequence, but the encoder has '
                    f'{self.max_length} positions'
                )
        x = self.embedded(inputs)  # [B, T, D]
        # What is the same for all texts is summed first.
        if positions is None:
            places_of = self.position_table[: ops.shape(ids)[1]]  # [T, D]
        else:
            places_of = ops.take(self.position_table, positions, axis=0)
        if self.segment_table is None:
            if segment_ids is not None:
                raise ValueError('segment_ids for an encoder without segments')
            x = x + places_of
        elif segment_ids is None:
            x = x + (places_of + self.segment_table[0])
        else:
            x = x + places_of
            x = x + ops.take(self.segment_table, segment_ids, axis=0)
        tokens = None
        if key is None:
            # Rows of one matrix from here on: no shape in between.
            tokens = ops.shape(ids)[1]
            x = ops.reshape(x, (-1, self.embedding_width))
        keys = [None] * (len(self.blocks) + 1) if key is None else [
            dropout.fold_in(key, site) for site in range(len(self.blocks) + 1)
        ]
        if self.arguments['embedding_norm']:
            x = norm.norm(
                x,
                self.gamma,
                self.beta,
                epsilon=self.epsilon,
                dtype=self.compute_dtype,
                key=keys[-1],
                rate=self.rate,
            )
        else:
            x = dropout.drop(x, key=keys[-1], rate=self.rate)
            x = ops.cast(x, self.compute_dtype)
        if inputs.kept is not None:
            kept = ops.cast(inputs.kept, x.dtype)
            x = x * ops.reshape(kept, ops.shape(x))
        if self.embedding_width != self.width:
            x = project(x, ops.cast(self.projection_kernel, x.dtype))
            x = ops.add(x, ops.cast(self.projection_bias, x.dtype))
        allowed = None
        if block_ids is not None:
            allowed = ops.equal(
                block_ids[:, None, :, None], block_ids[:, None, None, :]
            )  # [B, 1, T, T]
        if self.causal:
            earlier = causal_mask(ops.shape(ids)[1])  # [1, 1, T, T]
            allowed = (
                earlier
                if allowed is None
                else ops.logical_and(allowed, earlier)
            )
        if key is None and allowed is not None:
            allowed = as_numbers(allowed, self.compute_dtype)
        layers = [x]
        for i, block in enumerate(self.blocks):
            last = i == len(self.blocks) - 1 and all_layers is not True
            run = functools.partial(
                block,
                allowed=allowed,
                places=places if last else None,
                key=keys[i],
                length=tokens,
            )
            # Of what is given here x alone has a gradient.
            x = remat(run)(x) if self.remat and key is not None else run(x)
            if all_layers and not last:
                layers.append(x)
        if self.pre_norm:
            x = norm.norm(
                x,
                self.last_gamma,
                self.last_beta,
                epsilon=self.epsilon,
                dtype=self.compute_dtype,
                key=key,
            )
            if all_layers is True:
                layers[-1] = x
        if tokens is not None:
            shape = (-1, tokens, self.width)
            if all_layers:
                layers = [ops.reshape(states, shape) for states in layers]
            if all_layers is True:
                x = layers[-1]
            elif places is None:
                x = ops.reshape(x, shape)
        if all_layers is True and places is not None:
            x = take(x, places)
        return Encoded(x, layers if all_layers else None)
