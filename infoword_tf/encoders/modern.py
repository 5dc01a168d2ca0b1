"""The encoder of ModernBERT (Warner et al. 2024, §2.1).

Rotary positions; every third layer attends to the whole text, the others to
near tokens; GeGLU; no biases; norms before attention and feed-forward. Several
texts can be packed into one sequence as blocks, so that no padding is computed.
Not ModernBERT's are segments, for rows of two texts, and a causal mask, for
rows of next words, both by argument. So are the differences of encoders with
the same layers: norms, their places and biases, heads of keys and values.

    ModernBERT    layer norms before, of the embeddings too
    nomic, GTE    layer norms with biases, after; of the embeddings too
    Llama, Qwen   RMS norms before; fewer heads of keys and values
    Gemma 3       RMS norms before and after; scaled embeddings; every sixth
                  layer, the last of six, sees the whole text
"""

import math
from typing import Any

from infoword_tf.encoders.encoder import (
    ACTIVATION,
    Encoded,
    Inputs,
    Stack,
    blocks_of,
)
from infoword_tf.layers.attention import causal_mask, vector
from infoword_tf.layers.rotary_block import (
    AFTER,
    BIASES,
    NORMS,
    ORDERS,
    RMS,
    Band,
    RotaryBlock,
    band_is_faster,
    near_mask,
    turns,
)
from infoword_tf.lazy import ops
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor


class ModernTransformer(Stack):
    """g_omega of ModernBERT."""

    abilities = {
        **Stack.abilities,
        'both_sides': {'causal': False},
        'causal': {'causal': True},
        'positions': {},
        'segments': {'segments': 2},
    }
    drops_when_small = False
    inner_width: int = setting(
        None, 'Of the GeGLU; 1.5 D, as in the base size.', kind=int
    )
    segments: int = setting(0, 'Kinds of segment; 0: it knows none.')
    causal: bool = setting(False, 'Whether tokens see no later ones.')
    activation: str = ACTIVATION
    epsilon: float = setting(1e-5, 'Of every norm.')
    norm: str = setting(
        'layer',
        'Norms that centre (layer), or that divide by the root mean square '
        "alone (rms, Llama's).",
        choices=NORMS,
        flag='norm',
    )
    norms: str = setting(
        'before',
        "Where norms stand: before attention and feed-forward (ModernBERT's), "
        "after their sums (after, BERT's), or before and after both (both, "
        "Gemma 3's).",
        choices=ORDERS,
        flag='norms',
    )
    embedding_norm: bool = setting(
        True, "Whether the embeddings are normalised; Llama's are not."
    )
    scale_embeddings: bool = setting(
        False, "Whether the embeddings are multiplied by sqrt(D), Gemma's."
    )
    biases: str = setting(
        'none',
        "Parts with biases: none, norms (nomic's), queries, keys and values "
        "(qkv, Qwen2's), or these and outputs (all, GTE's).",
        choices=tuple(BIASES),
    )
    kv_heads: int = setting(
        None,
        'Heads of keys and values, each read by as many of the H heads of '
        'queries (grouped queries); H.',
        kind=int,
        at_least=1,
        flag='kv_heads',
    )
    head_width: int = setting(
        None, 'Of a head, where H of them are not D wide.', kind=int
    )
    qk_norm: bool = setting(
        False,
        "Whether queries and keys are normalised over each head (Qwen3's).",
        flag='qk_norm',
    )
    query_scalar: float = setting(
        None,
        'Scores are divided by its root; the width of a head.',
        kind=float,
    )
    global_every: int = setting(
        3,
        'One layer in so many sees the whole text, the first layer first; the '
        'others see near tokens.',
        at_least=1,
        flag='global_every',
    )
    global_first: int = setting(
        0, 'Number of the first layer that sees the whole text.'
    )
    local_window: int = setting(
        128,
        'Tokens that these others see: half of them before a token, half '
        'after it.',
        at_least=2,
        flag='local_window',
    )
    global_theta: float = setting(
        160_000.0,
        'Of the rotary positions of layers that see the whole text.',
        at_least=1.0,
        flag='global_theta',
    )
    global_factor: float = setting(
        1.0, 'What positions are divided by in these layers.'
    )
    turn_bounds: list = setting(
        None,
        "Llama 3.1's [low, high, T]: planes that make `high` turns in T tokens "
        'or more are not slowed by `global_factor`, those that make `low` or '
        'fewer are, others in part; all planes.',
        kind=list,
    )
    local_theta: float = setting(
        10_000.0,
        'Of the rotary positions of the other layers.',
        at_least=1.0,
        flag='local_theta',
    )

    def make_blocks(self) -> None:
        """Overrides `Encoder.make_blocks`."""
        self.inner_width = self.inner_width or 3 * self.width // 2
        self.reach = self.local_window // 2
        self.rms = self.norm == RMS
        self.biased = 'norms' in BIASES[self.biases]
        names = (
            'norm', 'norms', 'biases', 'kv_heads', 'head_width', 'qk_norm',
            'query_scalar',
        )  # fmt: skip
        self.blocks = blocks_of(
            self, self.layers, RotaryBlock, layer=self, name='layer',
            **{name: getattr(self, name) for name in names},
        )  # fmt: skip
        self.blocks[0].first = self.embedding_norm

    def build(self) -> None:
        """Overrides `Encoder.build`."""
        self.make_embedding_table()
        self.make_segment_table()
        has_betas = self.biased and not self.rms
        for name, is_there in (
            ('', self.embedding_norm), ('last_', self.norms != AFTER)
        ):  # fmt: skip
            if is_there:
                weight = vector(self, f'{name}norm_gamma', self.width, 'ones')
                setattr(self, f'{name}gamma', weight)
            if is_there and has_betas:
                weight = vector(self, f'{name}norm_beta', self.width)
                setattr(self, f'{name}beta', weight)
        super().build()

    def call(
        self,
        inputs: Inputs,
        places: Tensor | None = None,
        key: Tensor | None = None,
        all_layers: bool | str = False,
    ) -> Encoded:
        """Encodes a view, see `Encoder.call`.

        Distances of local attention count positions in the sequence, whatever
        `Inputs.positions` are.
        """
        self.check_inputs(inputs)
        x = self.lookup(inputs.ids)  # [B, T, D]
        if self.scale_embeddings:
            x = x * math.sqrt(self.width)
        x = self.add_segments(x, inputs)
        length = ops.shape(inputs.ids)[1]
        x = self.start_blocks(x, inputs.multipliers, key)
        x = self.put_first(x, inputs)
        kinds: dict[tuple[bool, bool], dict[str, Any]] = {}

        def arguments_of(number: int, at: Tensor | None) -> dict[str, Any]:
            is_local = number % self.global_every != self.global_first
            banded = (
                is_local and at is None and not self.causal
                and inputs.hidden is None and band_is_faster(length, self.reach)
            )  # fmt: skip
            kind = is_local, banded  # layers of one kind share their arguments
            if kind not in kinds:
                kinds[kind] = self._arguments_of(inputs, length, *kind, key)
            return kinds[kind]

        return self.run_blocks(
            x, length, places, key,
            all_layers=all_layers, arguments_of=arguments_of,
        )  # fmt: skip

    def _arguments_of(
        self,
        inputs: Inputs,
        length: Any,
        is_local: bool,
        banded: bool,
        key: Tensor | None,
    ) -> dict[str, Any]:
        """Returns rotation and attention mask of one kind of layer.

        Args:
            inputs: fields of the view.
            length: T.
            is_local: whether tokens attend to near tokens alone.
            banded: whether the other scores are not computed either.
            key: [2] uint32 for dropout; None: inference.
        """
        positions, block_ids = inputs.positions, inputs.block_ids
        if positions is None:
            positions = ops.arange(length, dtype='int32')[None]
        turn = turns(
            positions,
            self.head_width or self.width // self.heads,
            self.local_theta if is_local else self.global_theta,
            factor=1.0 if is_local else self.global_factor,
            bounds=None if is_local else self.turn_bounds,
        )
        if banded:
            return {'turn': turn, 'band': Band(self.reach, block_ids)}
        rule = causal_mask(length) if self.causal else None  # [1, 1, T, T]
        all_near = isinstance(length, int) and length <= self.reach + 1
        if is_local and not all_near:
            near = near_mask(length, self.reach)
            rule = near if rule is None else ops.logical_and(rule, near)
        return {'turn': turn, 'allowed': self.attention_mask(inputs, rule, key)}
