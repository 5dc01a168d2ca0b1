"""Recurrence over the tokens of a text: LSTM, GRU and the plain one.

    plain  h' = tanh(z + h U)                                  (Elman 1990)
    gru    s, r = sigmoid of z + h U; n = tanh(z + r (h U))
           h' = s h + (1 - s) n                          (Cho et al. 2014)
    lstm   i, f, g, o of z + h U; c' = sigmoid(f + 1) c + sigmoid(i) tanh(g)
           h' = sigmoid(o) tanh(c'), or that times P
                              (Hochreiter and Schmidhuber 1997; Sak et al. 2014)

z = x W + b is one product for all tokens, made before the loop; what is left to
it is the product with the state, and what is element-wise. Gates lie beside
each other in the order written above, as Keras has them (its `gru` is
`reset_after`, and has a second bias beside h U).

A fused piece, see `fused.py`: with a key the loop is one kernel, and so is the
loop back in time. That one gives the gradient of z alone; those of W, U and P
are one product each for all tokens, after it.

Glossary of shapes: B rows, T tokens, D width of a state, H of its cells (D
without a projection), G gates.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from infoword_tf.layers.attention import matrix, project, vector
from infoword_tf.layers.fused import (
    compiled,
    read,
    rounded,
    sum_rows,
    to_float,
    with_bias,
    with_gradient,
)
from infoword_tf.lazy import Layer, ops

Tensor = Any


class Cell(NamedTuple):
    """What is element-wise in a step, [B, ...] float32.

    Attributes:
        gates: G, how many times H wide z is.
        saved: how many times H wide is what the backward pass needs.
        has_cells: whether c goes on beside h.
        two: whether z and h U have gradients of their own.
        forward: (z, h U, h, c, clip) -> h' without projection, c', saved;
            c is None where there is none.
        backward: (saved, h, c, c', gradients of h' and c', clip) -> of z, of
            h U, of h beside that, of c; None for 0.
    """

    gates: int
    saved: int
    has_cells: bool
    two: bool
    forward: Callable[..., tuple]
    backward: Callable[..., tuple]


def _plain(z, product, h, c, clip):
    out = ops.tanh(z + product)
    return out, None, out


def _plain_back(out, h, c, new_c, d_out, d_c, clip):
    d_z = d_out * (1.0 - out * out)
    return d_z, d_z, None, None


def _gru(z, product, h, c, clip):
    z_s, z_r, z_n = ops.split(z, 3, axis=-1)
    p_s, p_r, p_n = ops.split(product, 3, axis=-1)
    s, r = ops.sigmoid(z_s + p_s), ops.sigmoid(z_r + p_r)
    n = ops.tanh(z_n + r * p_n)
    saved = ops.concatenate([s, r, n, p_n], axis=-1)
    return s * h + (1.0 - s) * n, None, saved


def _gru_back(saved, h, c, new_c, d_out, d_c, clip):
    s, r, n, p_n = ops.split(saved, 4, axis=-1)
    d_s = d_out * (h - n) * s * (1.0 - s)
    d_n = d_out * (1.0 - s) * (1.0 - n * n)
    d_r = d_n * p_n * r * (1.0 - r)
    return (
        ops.concatenate([d_s, d_r, d_n], axis=-1),
        ops.concatenate([d_s, d_r, d_n * r], axis=-1),
        d_out * s,
        None,
    )


def _lstm(z, product, h, c, clip):
    i, f, g, o = ops.split(z + product, 4, axis=-1)
    # Open at first: what a cell holds stays (Gers et al. 2000).
    i, f, o = ops.sigmoid(i), ops.sigmoid(f + 1.0), ops.sigmoid(o)
    g = ops.tanh(g)
    c = _clipped(f * c + i * g, clip)
    return o * ops.tanh(c), c, ops.concatenate([i, f, g, o], axis=-1)


def _lstm_back(saved, h, c, new_c, d_out, d_c, clip):
    i, f, g, o = ops.split(saved, 4, axis=-1)
    open_c = ops.tanh(new_c)
    d_c = d_c + d_out * o * (1.0 - open_c * open_c)
    d_c = _within(d_c, new_c, clip)
    d_z = ops.concatenate(
        [
            d_c * g * i * (1.0 - i),
            d_c * c * f * (1.0 - f),
            d_c * i * (1.0 - g * g),
            d_out * open_c * o * (1.0 - o),
        ],
        axis=-1,
    )
    return d_z, d_z, None, d_c * f


CELLS = {
    'lstm': Cell(4, 4, True, False, compiled(_lstm), compiled(_lstm_back)),
    'gru': Cell(3, 4, False, True, compiled(_gru), compiled(_gru_back)),
    'plain': Cell(1, 1, False, False, compiled(_plain), compiled(_plain_back)),
}
# Numbers of a kernel up to which the whole loop is one XLA kernel. Beyond,
# oneDNN's products are faster than XLA's by more than its loop costs.
SMALL = 2**17


def _clipped(x: Tensor, limit: float | None) -> Tensor:
    return x if limit is None else ops.clip(x, -limit, limit)


def _within(gradient: Tensor, clipped: Tensor, limit: float | None) -> Tensor:
    """The gradient of what was clipped: 0 beyond the limit."""
    if limit is None:
        return gradient
    return ops.where(ops.less(ops.abs(clipped), limit), gradient, 0.0)


def _loop(z, h, c, keep, kernel, bias, projection, *, cell, clip, saved):
    """All states [T, B, D], cells if there are, what is saved; as `recur`."""
    cell = CELLS[cell]
    forward = cell.forward if saved else cell.forward.__wrapped__

    def step(carry, given):
        h, *cells = carry[: 1 + cell.has_cells]
        z = given
        if keep is not None:
            z, old = given[:, :-1], given[:, -1:]
            h, cells = h * old, [c * old for c in cells]
        product = _times(h, kernel)
        if bias is not None:
            product = product + bias
        out, c, kept = forward(z, product, h, *(cells or [None]), clip)
        if projection is not None:
            out = _clipped(_times(out, projection), clip)
        found = (out,) + (c,) * cell.has_cells + (kept,) * saved
        # Keras under TensorFlow stacks what is like the carry.
        return found, found

    start = (h,) if c is None else (h, c)
    if saved:
        width = cell.saved * kernel.shape[1] // cell.gates
        start += (ops.zeros((ops.shape(h)[0], width), 'float32'),)
    # One array: of several Keras wants to know how long they are.
    given = z if keep is None else ops.concatenate([z, keep], axis=-1)
    # Known, where it is: XLA wants to know how much the loop stores.
    return ops.scan(step, start, given, length=z.shape[0])[1]


def _loop_back(
    d_states, h, c, keep, states, cells, saved, kernel, projection, *,
    cell, clip,
):  # fmt: skip
    """Back in time: gradients of z, h U and unprojected h'; as of `_loop`."""
    own = CELLS[cell]

    def step(carry, given):
        d_h, *d_cells = carry[: 1 + own.has_cells]
        given = list(given)
        d_state, state, kept, h = (given.pop(0) for _ in range(4))
        new_c, c = (given.pop(0), given.pop(0)) if d_cells else (None, None)
        d_out = d_h + d_state
        if projection is not None:
            d_projected = _within(d_out, state, clip)
            d_out = _times(d_projected, ops.transpose(projection))
        d_z, d_product, beside, d_c = own.backward(
            kept, h, c, new_c, d_out, *(d_cells or [None]), clip
        )
        d_h = _times(d_product, ops.transpose(kernel))
        if beside is not None:
            d_h = d_h + beside
        if given:  # keep
            d_h = d_h * given[0]
            d_c = None if d_c is None else d_c * given[0]
        found = (d_h,) + (d_c,) * own.has_cells
        found += (d_z,) + (d_product,) * own.two
        if projection is not None:
            found += (d_projected,)
        return found, found

    rows, wide = ops.shape(h)[0], kernel.shape[1]
    inputs = [d_states, states, saved, _before(h, states, keep)]
    start = [ops.zeros_like(h)]
    if c is not None:
        inputs += [cells, _before(c, cells, keep)]
        start.append(ops.zeros_like(c))
    start += [ops.zeros((rows, wide), 'float32')] * (1 + own.two)
    if projection is not None:
        start.append(ops.zeros_like(h))
    if keep is not None:
        inputs.append(keep)
    length = states.shape[0]
    found = ops.scan(
        step, tuple(start), tuple(inputs), length=length, reverse=True
    )[1]
    return found[1 + own.has_cells :]


def _times(x: Tensor, kernel: Tensor) -> Tensor:
    """[B, D] times [D, F] in the kernel's dtype -> [B, F] float32."""
    return to_float(ops.matmul(ops.cast(x, kernel.dtype), kernel))


def _before(first: Tensor, states: Tensor, keep: Tensor | None) -> Tensor:
    """What each step finds of the one before it: [T, B, ...]."""
    found = ops.concatenate([first[None], states[:-1]], axis=0)
    return found if keep is None else found * keep


_small_loop, _small_loop_back = compiled(_loop), compiled(_loop_back)


def recur(
    z: Tensor,
    h: Tensor,
    c: Tensor | None,
    kernel: Tensor,
    *,
    cell: str,
    bias: Tensor | None = None,
    projection: Tensor | None = None,
    keep: Tensor | None = None,
    clip: float | None = None,
    dtype: str = 'float32',
    key: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Runs a cell over the tokens of B rows; kernel [D, G H] float32.

    Gradients reach z and the weights. They go back through all T tokens, and
    stop at the state that was given.

    Args:
        z: [T, B, G H] float32.
        h: [B, D] float32, the state before the first token.
        c: [B, H] float32 of `lstm`, else None.
        bias: [G H] float32, beside the product with the state.
        projection: [H, D] float32 of `lstm`.
        keep: [T, B, 1] float32, 0 where a row forgets its state first.
        clip: the largest |c'|, and |h'| where that is projected.
        dtype: in which the products after the loop are computed.
        key: None runs plain operations.

    Returns:
        h' of all tokens [T, B, D], c' of the last one [B, H] or None; float32.
    """
    if key is None or z.shape[0] is None:
        # Of several arrays Keras wants to know how long they are.
        states, *cells = _loop(
            z, h, c, keep, kernel, bias, projection,
            cell=cell, clip=clip, saved=False,
        )  # fmt: skip
        return states, cells[0][-1] if cells else None
    loop, loop_back = _loop, _loop_back
    if kernel.shape[0] * kernel.shape[1] <= SMALL:
        loop, loop_back = _small_loop, _small_loop_back
        kernel = to_float(kernel)
        projection = None if projection is None else to_float(projection)

    def function(*inputs):
        # Without this TensorFlow's tape would look into the loop.
        z, kernel, bias, projection = (
            None if x is None else ops.stop_gradient(x) for x in inputs
        )
        states, *cells, saved = loop(
            z, h, c, keep, kernel, bias, projection,
            cell=cell, clip=clip, saved=True,
        )  # fmt: skip

        def grad(d_states, *_):
            d_z, *more = loop_back(
                d_states, h, c, keep, states, cells[0] if cells else None,
                saved, kernel, projection, cell=cell, clip=clip,
            )  # fmt: skip
            d_product = more.pop(0) if CELLS[cell].two else d_z
            before = _before(h, states, keep)
            d_kernel = _product(before, d_product, kernel.dtype, dtype)
            d_bias = None if bias is None else sum_rows(d_product)
            d_projection = None
            if projection is not None:
                o = ops.split(saved, 4, axis=-1)[3]
                out = o * ops.tanh(cells[0])
                d_projection = _product(out, more[0], kernel.dtype, dtype)
            return d_z, d_kernel, d_bias, d_projection

        return (states, *(c[-1] for c in cells)), grad

    weights = map(read, (kernel, bias, projection))
    states, *last = with_gradient(function, z, *weights)
    return states, last[0] if last else None


def _product(x: Tensor, gradient: Tensor, kind: Any, dtype: str) -> Tensor:
    """[T, B, D] and [T, B, F] -> [D, F]: the gradient of a kernel."""
    x, gradient = (
        rounded(ops.reshape(a, (-1, a.shape[-1])), dtype) for a in (x, gradient)
    )
    return ops.cast(ops.matmul(ops.transpose(x), gradient), kind)


class Recurrent(Layer):
    """A layer of one direction: [B, T, F] -> [B, T, D]."""

    def __init__(
        self,
        cell: str,
        width: int,
        cells: int | None = None,
        clip: float | None = None,
        backward: bool = False,
        dtype: Any = None,
        name: str = 'recurrent',
    ):
        """Sets the sizes; `build()` makes the weights.

        Args:
            cell: in CELLS.
            width: D.
            cells: H of an `lstm` whose states are projected to D; None: D,
                and there is no projection.
            clip: see `recur`.
            backward: whether it reads from the last token to the first.

        Raises:
            ValueError: no such cell, or one that has no projection.
        """
        if cell not in CELLS:
            raise ValueError(f'cell is one of {", ".join(CELLS)}, not {cell!r}')
        if cells is not None and cell != 'lstm':
            raise ValueError(f'the cell {cell} has no projection')
        # A state stays float32.
        super().__init__(dtype=dtype, name=name, autocast=False)
        self.cell, self.width, self.cells = cell, width, cells
        self.clip, self.backward = clip, backward

    def build(self, width: int | None = None) -> None:
        """Makes the weights; args: F, D by default."""
        gates = CELLS[self.cell].gates * (self.cells or self.width)
        self.input_kernel = matrix(
            self, 'input_kernel', width or self.width, gates
        )
        self.input_bias = vector(self, 'input_bias', gates)
        self.state_kernel = matrix(self, 'state_kernel', self.width, gates)
        self.state_bias = self.projection_kernel = None
        if self.cell == 'gru':
            self.state_bias = vector(self, 'state_bias', gates)
        if self.cells:
            self.projection_kernel = matrix(
                self, 'projection_kernel', self.cells, self.width
            )
        self.built = True

    def empty_state(self, batch: Any) -> dict[str, Tensor]:
        """Of rows that have read nothing: 'hidden' [B, D], 'cells' [B, H]."""
        state = {'hidden': ops.zeros((batch, self.width), 'float32')}
        if CELLS[self.cell].has_cells:
            cells = self.cells or self.width
            state['cells'] = ops.zeros((batch, cells), 'float32')
        return state

    def call(
        self,
        x: Tensor,
        state: dict[str, Tensor] | None = None,
        keep: Tensor | None = None,
        key: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Runs the layer.

        Args:
            x: [B, T, F] in the compute dtype.
            state: as of `empty_state`, before the first token that is read;
                None: empty.
            keep: [T, B, 1] float32 in the order of the text: 0 where a row
                forgets its state before that token is read.

        Returns:
            States [B, T, D] in the compute dtype; the state after the last
            token that is read, without a gradient.
        """
        if state is None:
            state = self.empty_state(ops.shape(x)[0])
        x = ops.transpose(x, (1, 0, 2))  # a step's rows beside each other
        if self.backward:
            x, keep = (
                None if a is None else ops.flip(a, axis=0) for a in (x, keep)
            )
        z = to_float(
            with_bias(project(x, ops.cast(self.input_kernel, x.dtype)),
                      self.input_bias)
        )  # fmt: skip
        states, cells = recur(
            z,
            state['hidden'],
            state.get('cells'),
            ops.cast(self.state_kernel, x.dtype),
            cell=self.cell,
            bias=self.state_bias,
            projection=None
            if self.projection_kernel is None
            else ops.cast(self.projection_kernel, x.dtype),
            keep=keep,
            clip=self.clip,
            dtype=self.compute_dtype,
            key=key,
        )
        new = {'hidden': states[-1]}
        if cells is not None:
            new['cells'] = cells
        if self.backward:
            states = ops.flip(states, axis=0)
        return (
            ops.cast(ops.transpose(states, (1, 0, 2)), self.compute_dtype),
            {name: ops.stop_gradient(value) for name, value in new.items()},
        )


def begins_anew(
    block_ids: Tensor | None, backward: bool = False
) -> Tensor | None:
    """[B, T] -> [T, B, 1] float32: 0 where a block begins within a row.

    Backward, where it ends.
    """
    if block_ids is None:
        return None
    same = ops.equal(block_ids[:, 1:], block_ids[:, :-1])
    same = ops.cast(ops.transpose(same), 'float32')
    ends = (0, 1) if backward else (1, 0)
    return ops.pad(same, (ends, (0, 0)), constant_values=1.0)[:, :, None]
