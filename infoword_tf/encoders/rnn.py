"""A recurrent encoder: layers of LSTM, GRU or plain recurrence, left to right.

The state of a token depends on all tokens before it, through a memory of fixed
size that goes on from one text to the next (Mikolov et al. 2010). Dropout acts
between layers, never in time (Zaremba et al. 2014).

Glossary of shapes: P places.
"""

import math
from typing import Any

from infoword_tf import errors
from infoword_tf.encoders.encoder import Encoded, Encoder, Inputs
from infoword_tf.layers import dropout
from infoword_tf.layers.block import take
from infoword_tf.layers.recurrent import Recurrent, begins_anew
from infoword_tf.lazy import ops
from infoword_tf.settings import setting

Tensor = Any
CELLS = ('lstm', 'gru', 'plain')


class Rnn(Encoder):
    """g_omega of `rnn_lm`."""

    input_fields = ('ids', 'block_ids')
    remembers = causal = True

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

    def empty_state(self, batch: int, length: int = 0) -> dict[str, Tensor]:
        """Returns the memory of no text: [L, B, D] by name of a state."""
        del length  # the memory has one size
        return stacked([block.empty_state(batch) for block in self.blocks])

    def call(
        self,
        inputs: Inputs,
        places: Tensor | None = None,
        key: Tensor | None = None,
        all_layers: bool | str = False,
        state: dict[str, Tensor] | None = None,
        advance: int | None = None,
    ) -> Encoded:
        """Encodes a view, see `Encoder.call`.

        Each block of a sequence begins with an empty memory.

        Raises:
            ValueError: inputs that are not read; an `advance` that is not the
                whole text.
        """
        self.check_inputs(inputs)
        check_advance(inputs.ids, advance)
        keys = dropout.keys_of(key, len(self.blocks) + 1)
        keep = begins_anew(inputs.block_ids)
        # A deviation of 0.55 at first, whatever the width: with much smaller
        # inputs the gates hardly move, and the gradient is too small.
        x = self.lookup(inputs.ids) * math.sqrt(self.width)
        x = ops.cast(x, self.compute_dtype)
        layers, states = [x], []
        for i, block in enumerate(self.blocks):
            x, block_state = block(
                dropout.drop(x, key=keys[i], rate=self.rate),
                None if state is None else of_layer(state, i),
                keep,
                key,
            )
            layers.append(x)
            states.append(block_state)
        if state is not None:
            state = stacked(states)
        return encoded(layers, places, keys[-1], self.rate, all_layers, state)


def encoded(
    layers: list[Tensor],
    places: Tensor | None,
    key: Tensor | None,
    rate: float,
    all_layers: bool | str,
    state: dict[str, Tensor] | None,
) -> Encoded:
    """Returns a recurrent encoder's result, with dropout on the last layer.

    Args:
        layers: L + 1 times [B, T, D], embeddings first.
        places, all_layers: as in `Encoder.call`.
        key, rate: of dropout.
        state: for the next step, or None.
    """
    last = layers[-1] if places is None else take(layers[-1], places)
    if not all_layers:
        layers = None
    elif all_layers is not True:
        layers = layers[:-1]
    return Encoded(dropout.drop(last, key=key, rate=rate), layers, state)


def stacked(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Stacks the states of L layers: [L, B, ...] by name."""
    return {
        name: ops.stack([state[name] for state in states])
        for name in states[0]
    }


def of_layer(state: dict[str, Tensor], number: int) -> dict[str, Tensor]:
    """Returns the states of layer `number`, the reverse of `stacked`."""
    return {name: value[number] for name, value in state.items()}


def check_advance(ids: Tensor, advance: int | None) -> None:
    """Raises a ValueError if a step reads tokens again: no memory goes back."""
    if advance not in (None, ids.shape[1]):
        raise errors.InputError(
            'recurrent_advance',
            f'{ids.shape[1]} tokens, of which {advance} go on: a recurrent '
            'state has read them all',
        )
