"""A recurrent encoder: layers of LSTM, GRU or plain recurrence, left to right.

Each token's state has read all tokens before it, however far, through a state
of one size that goes on from one text to the next (Mikolov et al. 2010; Zaremba
et al. 2014 for the places of dropout: never in time).

Glossary of shapes: B rows, T tokens, Q places, D width, L layers.
"""

import math
from typing import Any

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
        'What carries the text so far from word to word.',
        choices=CELLS,
    )

    def make_blocks(self) -> None:
        """As `Encoder.make_blocks`."""
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
        """Of rows that have read nothing: [L, B, D] by what a cell has."""
        del length  # whatever was read, it is of one size
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
        """As `Encoder.call`. A block of a row begins with an empty state.

        Raises:
            ValueError: inputs that it does not read; an `advance` that is not
                all of the text.
        """
        self.check_inputs(inputs)
        check_advance(inputs.ids, advance)
        keys = dropout.keys_of(key, len(self.blocks) + 1)
        keep = begins_anew(inputs.block_ids)
        # Of deviation 0.55 at first, whatever the width: what is much smaller
        # leaves all gates where they are, and hardly anything to learn from.
        x = self.lookup(inputs.ids) * math.sqrt(self.width)
        x = ops.cast(x, self.compute_dtype)
        layers, new = [x], []
        for i, block in enumerate(self.blocks):
            x, own = block(
                dropout.drop(x, key=keys[i], rate=self.rate),
                None if state is None else of_layer(state, i),
                keep,
                key,
            )
            layers.append(x)
            new.append(own)
        if state is not None:
            state = stacked(new)
        key = keys[-1]
        return encoded(layers, places, key, self.rate, all_layers, state)


def encoded(
    layers: list[Tensor],
    places: Tensor | None,
    key: Tensor | None,
    rate: float,
    all_layers: bool | str,
    state: dict[str, Tensor] | None,
) -> Encoded:
    """What a recurrent encoder returns, its last states dropped.

    Args:
        layers: L + 1 times [B, T, D], embeddings first.
        places, all_layers: as in `Encoder.call`.
        key, rate: of dropout.
        state: for the next step, or None.
    """
    last = layers[-1] if places is None else take(layers[-1], places)
    found = None
    if all_layers:
        found = layers if all_layers is True else layers[:-1]
    return Encoded(dropout.drop(last, key=key, rate=rate), found, state)


def stacked(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """States of L layers -> [L, B, ...] by name."""
    return {
        name: ops.stack([state[name] for state in states])
        for name in states[0]
    }


def of_layer(state: dict[str, Tensor], number: int) -> dict[str, Tensor]:
    """What `stacked` had of one layer."""
    return {name: value[number] for name, value in state.items()}


def check_advance(ids: Tensor, advance: int | None) -> None:
    """Complains of a step that reads tokens again.

    Raises:
        ValueError: a recurrent state cannot go back to before them.
    """
    if advance not in (None, ids.shape[1]):
        raise ValueError(
            f'{ids.shape[1]} tokens, of which {advance} go on: a recurrent '
            'state has read them all'
        )
