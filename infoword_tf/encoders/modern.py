"""The encoder of ModernBERT (Warner et al. 2024, §2.1).

Rotary positions; every third layer sees the whole text, the others what is
near; GeGLU; no biases; norms before attention and feed-forward. Texts that are
packed into rows are blocks, so that no padding is computed.

Glossary of shapes: B batch, T tokens, D width, E width of one head.
"""

import functools
from typing import Any

from infoword_tf.encoders.encoder import ACTIVATION, Encoded, Encoder, Inputs
from infoword_tf.layers import band, dropout, norm
from infoword_tf.layers.attention import as_numbers, vector
from infoword_tf.layers.block import take
from infoword_tf.layers.rotary import turns
from infoword_tf.layers.rotary_block import RotaryBlock
from infoword_tf.lazy import ops, remat
from infoword_tf.settings import setting

Tensor = Any


class ModernTransformer(Encoder):
    """g_omega of ModernBERT."""

    input_fields = (
        'ids', 'positions', 'block_ids', 'first', 'first_places', 'kept',
    )  # fmt: skip
    biased = False

    layers: int = setting(2, 'L.', at_least=1)
    can_remat = True
    heads: int = setting(2, 'H.', at_least=1)
    inner_width: int = setting(
        None, 'Of the GeGLU; 1.5 D, as in the base size.', kind=int
    )
    activation: str = ACTIVATION
    epsilon: float = setting(1e-5, 'Of every layer norm.')
    global_every: int = setting(
        3,
        'One layer in so many sees the whole text, the first layer first; the '
        'others see what is near.',
        at_least=1,
        flag='global_every',
    )
    local_window: int = setting(
        128,
        'Tokens that these others see: half of them before a token, half '
        'behind it.',
        at_least=2,
        flag='local_window',
    )
    global_theta: float = setting(
        160_000.0,
        'Of the rotary positions of layers that see the whole text.',
        at_least=1.0,
        flag='global_theta',
    )
    local_theta: float = setting(
        10_000.0,
        'Of the rotary positions of the other layers.',
        at_least=1.0,
        flag='local_theta',
    )

    def make_blocks(self) -> None:
        """As `Encoder.make_blocks`."""
        self.inner_width = self.inner_width or 3 * self.width // 2
        self.reach = self.local_window // 2
        self.blocks = [
            RotaryBlock(
                self.width,
                self.heads,
                self.inner_width,
                self.rate,
                self.activation,
                self.epsilon,
                first=i == 0,
                dtype=self.dtype_policy,
                name=f'layer_{i}',
            )
            for i in range(self.layers)
        ]

    def build(self) -> None:
        """Makes the weights, each under an explicit path."""
        self.make_embedding_table()
        self.gamma = vector(self, 'norm_gamma', self.width, 'ones')
        self.last_gamma = vector(self, 'last_norm_gamma', self.width, 'ones')
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
        """As `Encoder.call`; what is near is counted in places of the row.

        Raises:
            ValueError: inputs that it does not read.
        """
        self.check_inputs(inputs)
        x = self.embedded(inputs)  # [B, T, D]
        length = tokens = inputs.ids.shape[1]
        if length is None:
            length = ops.shape(inputs.ids)[1]
        if key is None:
            # Rows of one matrix from here on: no shape in between.
            tokens = length
            x = ops.reshape(x, (-1, self.width))
        else:
            tokens = None
        keys = [None] * (len(self.blocks) + 1) if key is None else [
            dropout.fold_in(key, site) for site in range(len(self.blocks) + 1)
        ]
        x = norm.norm(
            x,
            self.gamma,
            None,
            epsilon=self.epsilon,
            dtype=self.compute_dtype,
            key=keys[-1],
            rate=self.rate,
        )
        if inputs.kept is not None:
            kept = ops.cast(inputs.kept, x.dtype)
            x = x * ops.reshape(kept, ops.shape(x))
        layers = [x]
        given: dict[tuple[bool, bool], dict[str, Any]] = {}
        for i, block in enumerate(self.blocks):
            last = i == len(self.blocks) - 1 and all_layers is not True
            at = places if last else None
            near = i % self.global_every != 0
            banded = near and at is None and band.worth(length, self.reach)
            kind = near, banded  # layers of one kind share what they are given
            if kind not in given:
                given[kind] = self._given(inputs, length, *kind, key)
            run = functools.partial(
                block, places=at, key=keys[i], length=tokens, **given[kind]
            )
            # Of what is given here x alone has a gradient.
            x = remat(run)(x) if self.remat and key is not None else run(x)
            if all_layers and not last:
                layers.append(x)
        x = norm.norm(
            x,
            self.last_gamma,
            None,
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

    def _given(
        self,
        inputs: Inputs,
        length: Any,
        near: bool,
        banded: bool,
        key: Tensor | None,
    ) -> dict[str, Any]:
        """By how much a kind of layer turns tokens, and what these see.

        Args:
            length: T.
            near: whether it sees what is near alone.
            banded: whether it computes that alone.
            key: as in `call`.
        """
        positions, block_ids = inputs.positions, inputs.block_ids
        if positions is None:
            positions = ops.arange(length, dtype='int32')[None]
        theta = self.local_theta if near else self.global_theta
        turn = turns(positions, self.width // self.heads, theta)
        if banded:
            return {'turn': turn, 'reach': self.reach, 'block_ids': block_ids}
        allowed = None
        if near and not (isinstance(length, int) and length <= self.reach + 1):
            allowed = band.near(length, self.reach)  # [1, 1, T, T]
        if block_ids is not None:
            own = ops.equal(
                block_ids[:, None, :, None], block_ids[:, None, None, :]
            )  # [B, 1, T, T]
            allowed = own if allowed is None else ops.logical_and(own, allowed)
        if key is None and allowed is not None:
            allowed = as_numbers(allowed, self.compute_dtype)
        return {'turn': turn, 'allowed': allowed}
