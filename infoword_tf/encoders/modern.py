"""The encoder of ModernBERT (Warner et al. 2024, §2.1).

Rotary positions; every third layer sees the whole text, the others what is
near; GeGLU; no biases; norms before attention and feed-forward. Texts that are
packed into rows are blocks, so that no padding is computed.

Glossary of shapes: B batch, T tokens, D width, E width of one head.
"""

from typing import Any

from infoword_tf.encoders.encoder import ACTIVATION, Encoded, Inputs
from infoword_tf.encoders.stack import Stack, blocks_of
from infoword_tf.layers import band
from infoword_tf.layers.attention import vector
from infoword_tf.layers.rotary import turns
from infoword_tf.layers.rotary_block import RotaryBlock
from infoword_tf.lazy import ops
from infoword_tf.settings import setting

Tensor = Any


class ModernTransformer(Stack):
    """g_omega of ModernBERT."""

    input_fields = (
        'ids', 'positions', 'block_ids', 'first', 'first_places', 'kept',
    )  # fmt: skip
    biased = False

    layers: int = setting(2, 'L.', at_least=1)
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
        self.blocks = blocks_of(self, self.layers, RotaryBlock, self, 'layer')
        self.blocks[0].first = True

    def build(self) -> None:
        """As `Encoder.build`."""
        self.make_embedding_table()
        self.gamma = vector(self, 'norm_gamma', self.width, 'ones')
        self.last_gamma = vector(self, 'last_norm_gamma', self.width, 'ones')
        super().build()

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
        x = self.lookup(inputs.ids)  # [B, T, D]
        length = ops.shape(inputs.ids)[1]
        x = self.entered(self.begun(x, inputs.kept, key), inputs)
        kinds: dict[tuple[bool, bool], dict[str, Any]] = {}

        def given(number: int, at: Tensor | None) -> dict[str, Any]:
            near = number % self.global_every != 0
            banded = near and at is None and band.worth(length, self.reach)
            kind = near, banded  # layers of one kind share what they are given
            if kind not in kinds:
                kinds[kind] = self._given(inputs, length, *kind, key)
            return kinds[kind]

        return self.run_blocks(x, length, places, key, all_layers, given)

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
        return {'turn': turn, 'allowed': self.allowed(inputs, allowed, key)}
