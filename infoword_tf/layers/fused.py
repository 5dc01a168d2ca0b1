"""What fused pieces are made with: kernels and custom gradients.

On a CPU only a third of a plain training step is matrix products. What is
element-wise and costs most has its forward and backward written out, beside
what uses it (`norm`, `activation`, `heads`, `relative_scores`,
`vocabulary_scores`, `queue_scores`, `dropout`). Each such piece is one loop
over memory instead of ten: under TensorFlow it is compiled alone by XLA while
the products around it stay with oneDNN, under JAX it is traced into the
compiled step. Inside, arithmetic is float32; dtypes change at the edges. What
the backward pass needs is few numbers: normalised values and 1/sigma, never a
mask (bits are hashed again from the key).

Every piece takes `key`: None runs the plain operations (held-out text, encode,
export, where a graph must run anywhere); a key runs the fused form, also at
rate 0, and also where shapes are not known when a graph is traced (a kernel is
compiled for each shape that it meets). Plain operations are written in the
forms that TensorFlow's own optimizer of graphs (Grappler) puts into the matrix
products before them: bias, bias and GELU, bias and residual. tests/layers holds
each against plain operations and their automatic gradients.

Glossary of shapes: D width; `...` any.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from infoword_tf.lazy import ops

Tensor = Any
LANES = 16  # runs of columns that are combined; see `over_columns`


def compiled(function: Callable) -> Callable:
    """`function` as one kernel: under TensorFlow by XLA, elsewhere itself."""
    return _as_graph(function, jit_compile=True)


def traced_once(function: Callable) -> Callable:
    """`function` of which TensorFlow's graphs hold calls; elsewhere itself.

    For what is small, has no gradient and is everywhere: tracing it again and
    again takes longer than a tiny model does. What runs is the same: TensorFlow
    puts it in place of the calls.
    """
    return _as_graph(function)


def _as_graph(function: Callable, **options: Any) -> Callable:
    """A `tf.function`, under TensorFlow.

    TensorFlow is imported at the first call, so that this module can be
    imported without it.
    """
    kernel = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal kernel
        if kernel is None:
            kernel = function
            import keras

            if keras.backend.backend() == 'tensorflow':
                import tensorflow as tf

                # There is no Python that depends on tensors to be converted.
                kernel = tf.function(function, autograph=False, **options)
        return kernel(*args, **kwargs)

    return call


def to_float(x: Tensor) -> Tensor:
    """x [...] of any dtype as float32."""
    return ops.cast(x, 'float32')


def rounded(x: Tensor, dtype: str) -> Tensor:
    """x [...] float32 in a compute dtype, as a cast rounds it.

    To bfloat16 by its bits, half to even: with XLA's own cast a loop over rows
    of uneven length is no longer vectorised and takes nearly twice as long.
    """
    if dtype != 'bfloat16':
        return ops.cast(x, dtype)
    half, one, places = (np.uint32(n) for n in (0x7FFF, 1, 16))
    bits = ops.view(x, 'uint32')
    odd = ops.bitwise_and(ops.bitwise_right_shift(bits, places), one)
    bits = ops.bitwise_right_shift(bits + odd + half, places)
    return ops.view(ops.cast(bits, 'uint16'), dtype)


def over_columns(
    number: Callable,
    combine: Callable,
    reduce: Callable,
    *arrays: Any,
    lanes: int | None = None,
) -> Tensor:
    """[..., M] arrays -> [...]: a number of each column, reduced over M.

    XLA takes a row one number after the other, since it may not reorder a sum.
    `LANES` runs of columns are combined element-wise instead, which goes as
    fast as memory is read. Numbers are made of each run by itself: of all at
    once they would be stored first.

    Args:
        number: of runs of the arrays, [..., m] -> [..., m].
        combine, reduce: two of these, and one of them over its last axis.
        *arrays: of M columns; None stays None.
        lanes: how many runs; None: `LANES`.
    """
    count = arrays[0].shape[-1]
    lanes = min(lanes or LANES, count)
    width = count // lanes

    def run(begin, end):
        some = (None if x is None else x[..., begin:end] for x in arrays)
        return number(*some)

    runs = (run(i * width, (i + 1) * width) for i in range(lanes))
    total = reduce(functools.reduce(combine, runs), axis=-1)
    if lanes * width < count:
        rest = run(lanes * width, count)
        total = combine(total, reduce(rest, axis=-1))
    return total


def upstream_of(args: tuple, upstream: Any) -> tuple:
    """What a `grad(*args, upstream=None)` was called with, one for each result.

    TensorFlow gives upstream gradients one by one, JAX as a tuple.
    """
    gradients = args if upstream is None else upstream
    if isinstance(gradients, tuple | list):
        if len(gradients) == 1 and isinstance(gradients[0], tuple | list):
            (gradients,) = gradients
        return tuple(gradients)
    return (gradients,)


def with_gradient(function: Callable, *inputs: Tensor | None) -> Any:
    """What a function with a written gradient gives.

    Args:
        function: of the inputs -> results, and a function of their gradients
            that gives those of the inputs, one or a tuple.
        inputs: no variables (`read`); None stays None and has no gradient.
    """

    @ops.custom_gradient
    def call(*given):
        rest = iter(given)
        results, gradient = function(
            *(None if x is None else next(rest) for x in inputs)
        )

        def grad(*args, upstream=None):
            found = gradient(*upstream_of(args, upstream))
            found = found if isinstance(found, tuple) else (found,)
            both = zip(found, inputs, strict=True)
            return tuple(d_x for d_x, x in both if x is not None)

        return results, grad

    return call(*(x for x in inputs if x is not None))


def read(weight: Tensor | None) -> Tensor | None:
    """A weight's value: a custom gradient takes no variables."""
    return None if weight is None else ops.reshape(weight, weight.shape)


def plus_bias(x: Tensor, bias: Tensor | None) -> Tensor:
    """x [..., D] + bias [D] in float32; without a bias x alone."""
    return to_float(x) if bias is None else to_float(x) + bias


def with_bias(x: Tensor, bias: Tensor | None) -> Tensor:
    """x [..., D] + bias [D] float32, in x's dtype: for `key=None`.

    `ops.add`, not `+`: under TensorFlow it adds biases by an operation of
    their own, which the optimizer of graphs joins to the product before it.
    """
    return x if bias is None else ops.add(x, ops.cast(bias, x.dtype))


def sum_rows(x: Tensor) -> Tensor:
    """[..., D] -> [D] float32, as a product with a row of ones.

    A matrix product, so that oneDNN makes it; inside a fused loop XLA's sum
    over rows costs more than all the rest. In bfloat16 the result is rounded
    once, as every kernel's gradient is.
    """
    rows = ops.reshape(x, (-1, x.shape[-1]))
    ones = ops.ones((1, ops.shape(rows)[0]), x.dtype)
    return ops.reshape(to_float(ops.matmul(ones, rows)), (x.shape[-1],))
