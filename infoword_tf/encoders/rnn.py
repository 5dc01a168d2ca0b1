"""A recurrent encoder: layers of LSTM, GRU or plain recurrence, left to right.

The state of a token depends on all tokens before it, through a memory of fixed
size that goes on from one text to the next (Mikolov et al. 2010). Dropout acts
between layers, never in time (Zaremba et al. 2014).

Glossary of shapes: P places.
"""

import functools
import math
from typing import Any

from infoword_tf import errors
from infoword_tf.encoders.encoder import Encoded, Encoder, Inputs
from infoword_tf.layers import dropout
from infoword_tf.layers.block import take
from infoword_tf.layers.recurrent import Recurrent, begins_anew
from infoword_tf.lazy import ops
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor

CELLS = ('lstm', 'gru', 'plain')


class Recurrence(Encoder):
    """An encoder of recurrent layers, whose memory has one size.

    A layer reads streams, one of each direction, and returns new ones; side by
    side they are its states. Only the first direction, from the left, goes on
    from step to step.

    Attributes:
        directions: one flag a stream, whether it reads from the right.
    """

    input_fields = ('ids', 'block_ids')
    directions: tuple[bool, ...] = (False,)

    def empty_state(self, batch: int, length: int = 0) -> dict[str, Tensor]:
        """Returns the memory of no text: [L, B, ...] by name of a state."""
        del length  # the memory has one size
        return _stacked([block.empty_state(batch) for block in self.blocks])

    def start(self, ids: Tensor) -> list[Tensor]:
        """Returns the first layer's inputs, by direction: [B, T, ...]."""
        raise NotImplementedError

    def run_layer(
        self,
        block: Any,
        streams: list[Tensor],
        state: dict[str, Tensor] | None,
        *,
        keeps: list[Tensor | None],
        key: Tensor | None,
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Runs a layer; arguments and results as of `Directions`."""
        return block(streams, state, keeps, key)

    def call(
        self,
        inputs: Inputs,
        places: Tensor | None = None,
        key: Tensor | None = None,
        all_layers: bool | str = False,
        state: dict[str, Tensor] | None = None,
        advance: int | None = None,
    ) -> Encoded:
        """Encodes a view, see `Encoder.call`; each block is a separate text.

        Raises:
            ValueError: inputs that are not read; an `advance` that is not the
                whole text.
        """
        self.check_inputs(inputs)
        length = inputs.ids.shape[1]
        if advance not in (None, length):
            raise errors.InputError(
                'recurrent_advance',
                f'{length} tokens, of which {advance} go on: a recurrent state '
                'has read them all',
            )
        count = len(self.directions)
        keys = dropout.keys_of(key, count * len(self.blocks) + 1)
        drop = functools.partial(dropout.drop, rate=self.rate)
        keeps = [begins_anew(inputs.block_ids, way) for way in self.directions]
        streams = self.start(inputs.ids)
        layers, states = [_joined(streams)], []
        for i, block in enumerate(self.blocks):
            sites = keys[count * i : count * (i + 1)]
            streams, block_state = self.run_layer(
                block,
                [drop(x, key=k) for x, k in zip(streams, sites, strict=True)],
                state and {name: value[i] for name, value in state.items()},
                keeps=keeps,
                key=key,
            )
            layers.append(_joined(streams))
            states.append(block_state)
        last = layers[-1] if places is None else take(layers[-1], places)
        if not all_layers:
            layers = []
        elif all_layers is not True:
            layers = layers[:-1]
        return Encoded(
            drop(last, key=keys[-1]), layers, state and _stacked(states)
        )


def _joined(streams: list[Tensor]) -> Tensor:
    """Puts streams side by side."""
    return streams[0] if len(streams) == 1 else ops.concatenate(streams, -1)


def _stacked(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Stacks the states of L layers: [L, B, ...] by name."""
    return {
        name: ops.stack([state[name] for state in states]) for name in states[0]
    }


class Rnn(Recurrence):
    """g_omega of `rnn_lm`."""

    abilities = {'causal': {}, 'recurrence': {}}
    causal = True
    layers: int = setting(2, 'L.', at_least=1)
    cell: str = setting(
        'lstm',
        'What carries the text so far from token to token.',
        choices=CELLS,
    )

    def make_blocks(self) -> None:
        """Overrides `Encoder.make_blocks`."""
        self.autocast = False  # a state stays float32
        self.blocks = [
            Recurrent(
                self.cell,
                self.width,
                dtype=self.dtype_policy,
                name=f'layer_{i}',
            )
            for i in range(self.layers)
        ]

    def build(self) -> None:
        """Makes the weights."""
        self.make_embedding_table()
        super().build()

    def start(self, ids: Tensor) -> list[Tensor]:
        """Overrides `Recurrence.start`."""
        # A deviation of 0.55 at first, whatever the width: with much smaller
        # inputs the gates hardly move, and the gradient is too small.
        x = self.lookup(ids) * math.sqrt(self.width)
        return [ops.cast(x, self.compute_dtype)]

    def run_layer(
        self,
        block: Recurrent,
        streams: list[Tensor],
        state: dict[str, Tensor] | None,
        *,
        keeps: list[Tensor | None],
        key: Tensor | None,
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Overrides `Recurrence.run_layer`."""
        y, state = block(streams[0], state, keeps[0], key)
        return [y], state
