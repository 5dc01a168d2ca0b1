"""Recurrence over the tokens of a text: LSTM, GRU and plain.

    plain  h' = tanh(z + h U)                                  (Elman 1990)
    gru    s, r = sigmoid of z + h U; n = tanh(z + r (h U))
           h' = s h + (1 - s) n                          (Cho et al. 2014)
    lstm   i, f, g, o of z + h U; c' = sigmoid(f + 1) c + sigmoid(i) tanh(g)
           h' = sigmoid(o) tanh(c'), or that times P
                              (Hochreiter and Schmidhuber 1997; Sak et al. 2014)

z = x W + b is one product for all tokens before the loop, which is left with
the product with the state and element-wise operations. Gates are side by side
in the order written above, as in Keras (its `gru` is `reset_after`, with a
second bias added to h U).

A fused operation, see `fused.py`: with a key the loop is one kernel, and so is
the loop back in time. The latter computes the gradient of z alone; those of W,
U and P are one product each for all tokens, after it. Without a projection C
is D.

Glossary of shapes: C cells, G gates, F width of inputs or results.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from infoword_tf import errors
from infoword_tf.layers.attention import matrix, project, vector
from infoword_tf.layers.fused import (
    Compiled,
    compiled,
    read,
    rounded,
    sum_rows,
    to_float,
    with_bias,
    with_gradient,
)
from infoword_tf.lazy import Layer, ops
from infoword_tf.tensors import Tensor


class Cell(NamedTuple):
    """The element-wise operations of a step, on [B, ...] float32.

    Attributes:
        gates: G; z is [B, G C].
        saved: width of what the backward pass needs, in multiples of C.
        has_cells: whether the state has c besides h.
        two: whether the gradients of z and h U differ.
        forward: (z, h U, h, c, clip) -> h' without projection, c', saved;
            c is None in a cell without it.
        backward: (saved, h, c, c', gradients of h' and c', clip) -> gradients
            of z, of h U, of h (except through h U), of c; None for 0.
    """

    gates: int
    saved: int
    has_cells: bool
    two: bool
    forward: Compiled
    backward: Compiled


class Weights(NamedTuple):
    """Weights of the recurrence alone.

    Attributes:
        kernel: [D, G C], U.
        bias: [G C] float32, added to the product with the state; None: 0.
        projection: [C, D] of `lstm`, P; None: no projection.
    """

    kernel: Tensor
    bias: Tensor | None = None
    projection: Tensor | None = None


class Carried(NamedTuple):
    """Numbers that a token hands on to the next.

    Attributes:
        h: [B, D] float32.
        c: [B, C] float32 of `lstm`; None of other cells.
    """

    h: Tensor
    c: Tensor | None = None


class Passed(NamedTuple):
    """Results of the forward pass, which the backward pass reads.

    Attributes:
        states: [T, B, D] float32, h'.
        cells: [T, B, C] float32, c' of `lstm`; None of other cells.
        saved: [T, B, `Cell.saved` C] float32.
    """

    states: Tensor
    cells: Tensor | None
    saved: Tensor


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
    # Open at first, so that cells keep their values (Gers et al. 2000).
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
    'lstm': Cell(
        gates=4, saved=4, has_cells=True, two=False,
        forward=compiled(_lstm), backward=compiled(_lstm_back),
    ),
    'gru': Cell(
        gates=3, saved=4, has_cells=False, two=True,
        forward=compiled(_gru), backward=compiled(_gru_back),
    ),
    'plain': Cell(
        gates=1, saved=1, has_cells=False, two=False,
        forward=compiled(_plain), backward=compiled(_plain_back),
    ),
}  # fmt: skip
# Size of U up to which the whole loop is one XLA kernel. With larger ones
# oneDNN's faster products outweigh the cost of the loop.
SMALL = 2**17


def _clipped(x: Tensor, limit: float | None) -> Tensor:
    return x if limit is None else ops.clip(x, -limit, limit)


def _within(gradient: Tensor, clipped: Tensor, limit: float | None) -> Tensor:
    """Returns the gradient of a clipped number: 0 beyond the limit."""
    if limit is None:
        return gradient
    return ops.where(ops.less(ops.abs(clipped), limit), gradient, 0.0)


def _loop(z, start, keep, weights, *, cell, clip, saved):
    """Returns states [T, B, D], cells if any, and `saved`; see `recur`."""
    cell, (kernel, bias, projection) = CELLS[cell], weights
    h, c = start
    forward = cell.forward if saved else cell.forward.__wrapped__

    def step(carry, z):
        h, *cells = carry[: 1 + cell.has_cells]
        if keep is not None:
            z, old = z[:, :-1], z[:, -1:]
            h, cells = h * old, [c * old for c in cells]
        product = _times(h, kernel)
        if bias is not None:
            product = product + bias
        (c,) = cells or [None]
        out, c, to_save = forward(z, product, h, c, clip=clip)
        if projection is not None:
            out = _clipped(_times(out, projection), clip)
        results = (out,) + (c,) * cell.has_cells + (to_save,) * saved
        # Keras under TensorFlow stacks results that are like the carry.
        return results, results

    carry = (h,) if c is None else (h, c)
    if saved:
        width = cell.saved * kernel.shape[1] // cell.gates
        carry += (ops.zeros((ops.shape(h)[0], width), 'float32'),)
    # One array: for several Keras needs a known length.
    inputs = z if keep is None else ops.concatenate([z, keep], axis=-1)
    # The static length, if known: XLA needs it to allocate the results.
    return ops.scan(step, carry, inputs, length=z.shape[0])[1]


def _loop_back(d_states, start, keep, passed, weights, *, cell, clip):
    """Runs back in time; arguments as of `_loop`, and `Passed`.

    Returns:
        Gradients [T, B, ...] of z; of h U, where they differ; of the projected
        h' before clipping, with a projection.
    """
    cell, (kernel, _, projection) = CELLS[cell], weights
    (h, c), (states, cells, saved) = start, passed

    def step(carry, inputs):
        d_h, *d_cells = carry[: 1 + cell.has_cells]
        inputs = list(inputs)
        d_state, state, saved, h = (inputs.pop(0) for _ in range(4))
        new_c, c = (inputs.pop(0), inputs.pop(0)) if d_cells else (None, None)
        d_out = d_h + d_state
        if projection is not None:
            d_projected = _within(d_out, state, clip)
            d_out = _times(d_projected, ops.transpose(projection))
        (d_c,) = d_cells or [None]
        d_z, d_product, d_direct, d_c = cell.backward(
            saved, h, c, new_c, d_out=d_out, d_c=d_c, clip=clip
        )
        d_h = _times(d_product, ops.transpose(kernel))
        if d_direct is not None:
            d_h = d_h + d_direct
        if inputs:  # keep
            d_h = d_h * inputs[0]
            d_c = None if d_c is None else d_c * inputs[0]
        results = (d_h,) + (d_c,) * cell.has_cells
        results += (d_z,) + (d_product,) * cell.two
        if projection is not None:
            results += (d_projected,)
        return results, results

    batch, gates = ops.shape(h)[0], kernel.shape[1]
    inputs = [d_states, states, saved, _before(h, states, keep)]
    carry = [ops.zeros_like(h)]
    if c is not None:
        inputs += [cells, _before(c, cells, keep)]
        carry.append(ops.zeros_like(c))
    carry += [ops.zeros((batch, gates), 'float32')] * (1 + cell.two)
    if projection is not None:
        carry.append(ops.zeros_like(h))
    if keep is not None:
        inputs.append(keep)
    length = states.shape[0]
    results = ops.scan(
        step, tuple(carry), tuple(inputs), length=length, reverse=True
    )[1]
    return results[1 + cell.has_cells :]


def _times(x: Tensor, kernel: Tensor) -> Tensor:
    """Multiplies [B, D] by [D, F] in the kernel's dtype: [B, F] float32."""
    return to_float(ops.matmul(ops.cast(x, kernel.dtype), kernel))


def _before(first: Tensor, states: Tensor, keep: Tensor | None) -> Tensor:
    """Returns the state with which each step begins: [T, B, ...]."""
    before = ops.concatenate([first[None], states[:-1]], axis=0)
    return before if keep is None else before * keep


_small_loop, _small_loop_back = compiled(_loop), compiled(_loop_back)


def recur(
    z: Tensor,
    start: Carried,
    weights: Weights,
    *,
    cell: str,
    keep: Tensor | None = None,
    clip: float | None = None,
    dtype: str = 'float32',
    key: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Runs a cell over the tokens of B sequences.

    Gradients reach z and the weights. They go back through all T tokens, but
    not into the initial state.

    Args:
        z: [T, B, G C] float32.
        start: state before the first token.
        weights: kernels in the compute dtype.
        cell: name in CELLS.
        keep: [T, B, 1] float32, 0 where a sequence forgets its state first.
        clip: the largest |c'|, and |h'| if projected; None: no limit.
        dtype: dtype of the products after the loop.
        key: None runs plain operations.

    Returns:
        h' of all tokens [T, B, D], c' of the last token [B, C] or None;
        float32.
    """
    if key is None or z.shape[0] is None:
        # The gradient scans several arrays: for these Keras needs a length.
        states, *cells = _loop(
            z, start, keep, weights, cell=cell, clip=clip, saved=False
        )
        return states, cells[0][-1] if cells else None
    loop: Callable[..., Any] = _loop
    loop_back: Callable[..., Any] = _loop_back
    kernel, bias, projection = weights
    if kernel.shape[0] * kernel.shape[1] <= SMALL:
        loop, loop_back = _small_loop, _small_loop_back
        kernel = to_float(kernel)
        projection = None if projection is None else to_float(projection)

    def function(*inputs):
        # Otherwise TensorFlow's tape would record the loop.
        z, *arrays = (
            None if x is None else ops.stop_gradient(x) for x in inputs
        )
        weights = Weights(*arrays)
        states, *cells, saved = loop(
            z, start, keep, weights, cell=cell, clip=clip, saved=True
        )
        passed = Passed(states, cells[0] if cells else None, saved)

        def grad(d_states, *_):
            d_z, *more = loop_back(
                d_states, start, keep, passed,
                weights=weights._replace(bias=None), cell=cell, clip=clip,
            )  # fmt: skip
            d_product = more.pop(0) if CELLS[cell].two else d_z
            kind = weights.kernel.dtype
            before = _before(start.h, states, keep)
            d_kernel = _product(before, d_product, kind, dtype)
            d_bias = None if weights.bias is None else sum_rows(d_product)
            d_projection = None
            if weights.projection is not None:
                o = ops.split(saved, 4, axis=-1)[3]
                out = o * ops.tanh(cells[0])
                d_projection = _product(out, more[0], kind, dtype)
            return d_z, d_kernel, d_bias, d_projection

        return (states, *(c[-1] for c in cells)), grad

    arrays = map(read, (kernel, bias, projection))
    states, *last = with_gradient(function, z, *arrays)
    return states, last[0] if last else None


def _product(x: Tensor, gradient: Tensor, kind: Any, dtype: str) -> Tensor:
    """Returns a kernel's gradient [D, F] from [T, B, D] and [T, B, F]."""
    x, gradient = (
        rounded(ops.reshape(a, (-1, a.shape[-1])), dtype) for a in (x, gradient)
    )
    return ops.cast(ops.matmul(ops.transpose(x), gradient), kind)


class Recurrent(Layer):
    """A recurrent layer of one direction: [B, T, F] -> [B, T, D]."""

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
            cell: name in CELLS.
            width: D.
            cells: C of an `lstm` whose states are projected to D; None: D,
                without a projection.
            clip: the largest number of a cell or projected state; None: no
                limit.
            backward: whether tokens are read from the last to the first.

        Raises:
            ValueError: an unknown cell, or one without a projection.
        """
        if cell not in CELLS:
            raise errors.InputError(
                'unknown_cell',
                f'cell is one of {", ".join(CELLS)}, not {cell!r}',
            )
        if cells is not None and cell != 'lstm':
            raise errors.InputError(
                'cell_without_projection', f'the cell {cell} has no projection'
            )
        # A state stays float32.
        super().__init__(dtype=dtype, name=name, autocast=False)
        self.cell, self.width, self.cells = cell, width, cells
        self.clip, self.backward = clip, backward

    def build(self, width: int | None = None) -> None:
        """Makes the weights for inputs of width F, by default D."""
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

    def empty_state(self, batch: Any) -> dict[str, Tensor]:
        """Returns the initial state: 'hidden' [B, D], 'cells' [B, C]."""
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
            state: like `empty_state`, before the first token read; None: empty.
            keep: [T, B, 1] float32 in the order of the text: 0 where a
                sequence forgets its state before that token is read.

        Returns:
            States [B, T, D] in the compute dtype; the state after the last
            token read, without a gradient.
        """
        if state is None:
            state = self.empty_state(ops.shape(x)[0])
        x = ops.transpose(x, (1, 0, 2))  # a step's inputs are contiguous
        if self.backward:
            x, keep = (
                None if a is None else ops.flip(a, axis=0) for a in (x, keep)
            )
        z = to_float(
            with_bias(project(x, ops.cast(self.input_kernel, x.dtype)),
                      self.input_bias)
        )  # fmt: skip
        projection = self.projection_kernel
        if projection is not None:
            projection = ops.cast(projection, x.dtype)
        states, cells = recur(
            z,
            Carried(state['hidden'], state.get('cells')),
            Weights(
                ops.cast(self.state_kernel, x.dtype),
                self.state_bias,
                projection,
            ),
            cell=self.cell,
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
    """Returns `keep` [T, B, 1]: 0 where a block begins (backward: ends)."""
    if block_ids is None:
        return None
    same = ops.equal(block_ids[:, 1:], block_ids[:, :-1])
    same = ops.cast(ops.transpose(same), 'float32')
    ends = (0, 1) if backward else (1, 0)
    return ops.pad(same, (ends, (0, 0)), constant_values=1.0)[:, :, None]
