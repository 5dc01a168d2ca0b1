"""Tools of fused operations: compiled kernels and custom gradients.

On a CPU matrix products are a third of a plain training step. The costliest
element-wise operations have forward and backward passes by hand, in
`pointwise`, `attention`, `relative_scores`, `vocabulary_scores`,
`queue_scores`, `rotary_block`, `recurrent` and `dropout`. Each is one loop over
memory instead of ten: under TensorFlow XLA compiles it alone while the products
around it stay with oneDNN, under JAX it is traced into the compiled step.
Inside, arithmetic is float32; dtypes change at the edges. The backward pass
reads few stored numbers: normalised values and 1/sigma, never a mask (bits are
hashed again from the key).

Every fused operation takes `key`. None runs plain operations (held-out text,
encode, export, where a graph must run anywhere); a key runs the fused form, at
rate 0 too, and also where shapes are not known when a graph is traced (a kernel
is compiled for each shape). Plain operations have the forms that TensorFlow's
optimizer of graphs (Grappler) merges into the matrix products before them:
bias, bias and GELU, bias and residual. tests/layers compares both forms and
their gradients.
"""

import functools
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from infoword_tf.lazy import ops
from infoword_tf.tensors import Tensor

LANES = 16  # runs of columns that `over_columns` combines


class Compiled(Protocol):
    """A function that becomes a kernel, or a graph, at the first call.

    Attributes:
        __wrapped__: the function itself, of plain operations.
    """

    __wrapped__: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the kernel."""


def compiled(function: Callable) -> Compiled:
    """Compiles a function to one kernel by XLA; only under TensorFlow."""
    return _as_graph(function, jit_compile=True)


def by_key(function: Compiled, key: Tensor | None) -> Callable[..., Any]:
    """Returns a kernel; without a key the function, of plain operations."""
    return function.__wrapped__ if key is None else function


def traced_once(function: Callable) -> Compiled:
    """Lets TensorFlow's graphs call a function, which is traced once.

    For small functions without a gradient that are used everywhere: tracing
    them again and again takes longer than a tiny model does. What runs is the
    same, since TensorFlow inlines the calls.
    """
    return _as_graph(function)


def _as_graph(function: Callable, **options: Any) -> Compiled:
    """Returns a function that becomes a `tf.function` at the first call.

    Only then TensorFlow is imported, and only if it is the backend.
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

                # No Python control flow depends on tensors.
                kernel = tf.function(function, autograph=False, **options)
        return kernel(*args, **kwargs)

    return call


def row_major(x: Tensor) -> Tensor:
    """Stores x [...] and the gradient of x row by row, under JAX.

    Else the sum of a gradient over sequences, such as of the position
    embeddings, makes XLA lay out all states on a GPU with the batch as the
    innermost dimension, and transpose them before and after every product.
    """
    import keras

    if keras.backend.backend() != 'jax':
        return x
    from jax.experimental import layout

    order = layout.Layout(tuple(range(len(x.shape))))
    return layout.with_layout_constraint(x, order)


def computed_again(x: Tensor) -> Tensor:
    """Returns x [...] for the backward pass: under JAX behind a barrier.

    Both passes are compiled together there, and XLA would store what the
    forward pass computes of the same x, in float32, instead of computing twice.
    """
    import keras

    if keras.backend.backend() != 'jax':
        return x
    import jax

    return jax.lax.optimization_barrier(x)


def to_float(x: Tensor) -> Tensor:
    """Casts x [...] to float32."""
    return ops.cast(x, 'float32')


def rounded(x: Tensor, dtype: str) -> Tensor:
    """Rounds x [...] float32 to a compute dtype, exactly as a cast.

    To bfloat16 by bits, half to even: with XLA's own cast a loop over an odd
    number of columns is not vectorised and takes nearly twice as long.
    """
    if dtype != 'bfloat16':
        return ops.cast(x, dtype)
    half, one, shift = (np.uint32(n) for n in (0x7FFF, 1, 16))
    bits = ops.view(x, 'uint32')
    odd = ops.bitwise_and(ops.bitwise_right_shift(bits, shift), one)
    bits = ops.bitwise_right_shift(bits + odd + half, shift)
    return ops.view(ops.cast(bits, 'uint16'), dtype)


def over_columns(
    number: Callable,
    combine: Callable,
    reduce: Callable,
    *arrays: Any,
    lanes: int | None = None,
) -> Tensor:
    """Reduces a function of arrays [..., M] over M columns: [...].

    XLA sums the columns one after another, since it may not reorder a sum.
    `LANES` runs of columns are combined element-wise instead, as fast as memory
    is read. The function is applied to each run: of all columns at once the
    values would be stored first.

    Args:
        number: function of runs of the arrays, [..., m] -> [..., m].
        combine, reduce: combines two runs; reduces one over its last axis.
        *arrays: arrays of M columns; None stays None.
        lanes: number of runs; None: `LANES`.
    """
    count = arrays[0].shape[-1]
    lanes = min(lanes or LANES, count)
    width = count // lanes

    def run(begin, end):
        parts = (None if x is None else x[..., begin:end] for x in arrays)
        return number(*parts)

    runs = (run(i * width, (i + 1) * width) for i in range(lanes))
    total = reduce(functools.reduce(combine, runs), axis=-1)
    if lanes * width < count:
        rest = run(lanes * width, count)
        total = combine(total, reduce(rest, axis=-1))
    return total


def in_turn(function: Callable, size: int, step: Tensor) -> Tensor:
    """Calls a function of ranges of 0, 1, ..., size - 1, one after the other.

    In graphs of TensorFlow, which otherwise compute whatever is ready, so that
    all ranges may be in memory at once.

    Args:
        function: maps the begin and the end of a range, [] int32, to
            [end - begin, B] float32.
        size: end of the last range.
        step: [] int32, size of all others.

    Returns:
        [size, B] float32.
    """
    import tensorflow as tf

    count = -(-size // step)

    def body(number: Tensor, array: Any) -> tuple:
        begin = number * step
        part = function(begin, tf.minimum(begin + step, size))
        return number + 1, array.write(number, part)

    array = tf.TensorArray(
        'float32', count, element_shape=(None, None), infer_shape=False
    )
    loop = tf.while_loop(
        lambda number, _: number < count, body, (tf.constant(0), array),
        parallel_iterations=1,
    )  # fmt: skip
    # The loop forgets its size, which layers after it ask for.
    # (Servers lack `ensure_shape`.)
    return tf.reshape(loop[1].concat(), (size, -1))


def upstream_of(args: tuple, upstream: Any) -> tuple:
    """Returns the arguments of `grad(*args, upstream=None)`, one for a result.

    TensorFlow passes upstream gradients one by one, JAX as a tuple.
    """
    gradients = args if upstream is None else upstream
    if isinstance(gradients, tuple | list):
        if len(gradients) == 1 and isinstance(gradients[0], tuple | list):
            (gradients,) = gradients
        return tuple(gradients)
    return (gradients,)


def with_gradient(function: Callable, *inputs: Tensor | None) -> Any:
    """Calls a function that returns results and a gradient; returns results.

    Args:
        function: maps the inputs to results, and to a function from gradients
            of the results to those of the inputs, one or a tuple.
        *inputs: no variables (`read`); None stays None and has no gradient.
    """

    @ops.custom_gradient
    def call(*tensors):
        rest = iter(tensors)
        results, gradient = function(
            *(None if x is None else next(rest) for x in inputs)
        )

        def grad(*args, upstream=None):
            gradients = gradient(*upstream_of(args, upstream))
            if not isinstance(gradients, tuple):
                gradients = (gradients,)
            both = zip(gradients, inputs, strict=True)
            return tuple(d_x for d_x, x in both if x is not None)

        return results, grad

    return call(*(x for x in inputs if x is not None))


def read(weight: Tensor | None) -> Tensor | None:
    """Reads a weight's value: a custom gradient takes no variables."""
    return None if weight is None else ops.reshape(weight, weight.shape)


def plus_bias(x: Tensor, bias: Tensor | None) -> Tensor:
    """Adds a bias [D] or None to x [..., D], in float32."""
    return to_float(x) if bias is None else to_float(x) + bias


def with_bias(x: Tensor, bias: Tensor | None) -> Tensor:
    """Adds a bias [D] float32 or None to x [..., D] in x's dtype.

    For `key=None`. `ops.add`, not `+`: under TensorFlow it becomes `BiasAdd`,
    which the optimizer of graphs merges into the product before it.
    """
    return x if bias is None else ops.add(x, ops.cast(bias, x.dtype))


def sum_rows(x: Tensor) -> Tensor:
    """Sums x [..., D] over all axes but the last: [D] float32.

    As a matrix product with ones, by oneDNN: inside a fused loop XLA's sum
    costs more than all the rest. In bfloat16 the result is rounded once, as
    every kernel's gradient is.
    """
    flat = ops.reshape(x, (-1, x.shape[-1]))
    ones = ops.ones((1, ops.shape(flat)[0]), x.dtype)
    return ops.reshape(to_float(ops.matmul(ones, flat)), (x.shape[-1],))
