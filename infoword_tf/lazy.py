"""Lazy imports: Keras at the first operation or layer, not before.

A row and an encoder declare settings and views in the file that computes them,
and commands read these files for their flags. Keras takes seconds to import,
so `--help` and complaints would wait for it. Programs that only run a saved
graph use `tensorflow`, without Keras.

Nothing here changes what is computed; it saves start time alone. If a new
release breaks `_Operations` or `Layer`, replace both by the imports of the
branch TYPE_CHECKING. If a package fails because `_absent` hides another, take
that one's name out of FOR_OTHERS, or replace the body of `_absent` by `yield`.
"""

import contextlib
import contextvars
import functools
import importlib.util
import os
import pathlib
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from keras import Variable, ops
    from keras.layers import Layer
else:
    Variable = Any

    class _Operations:
        """Namespace `keras.ops`; an operation is looked up once."""

        def __getattr__(self, name: str) -> Any:
            from keras import ops

            operation = getattr(ops, name)
            setattr(self, name, operation)
            return operation

    ops = _Operations()

    @functools.cache
    def _layer(cls: type) -> type:
        """Derives a class from `cls` and `keras.layers.Layer`."""
        import keras

        names = {'__module__': cls.__module__, '__qualname__': cls.__qualname__}
        return type(cls.__name__, (cls, keras.layers.Layer), names)

    class Layer:
        """Base of layers, which becomes `keras.layers.Layer` in a call."""

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            """Creates an instance of `cls` that is a Keras layer too."""
            import keras

            if not issubclass(cls, keras.layers.Layer):
                cls = _layer(cls)
            return super().__new__(cls, *args, **kwargs)


@contextlib.contextmanager
def _absent(*names: str) -> Iterator[None]:
    """Makes packages that are not imported yet seem not installed."""
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        # Python's import takes None for "not installed"; its stub does not.
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)


FOR_OTHERS = 'jax', 'matplotlib', 'pandas', 'sklearn'
_hidden: set[str] = set()


def lean() -> None:
    """Makes `import_keras` skip FOR_OTHERS, in the process of a command.

    Keras and TensorFlow import these for features that are not used here.
    Without them a command starts a second or more earlier.
    """
    _hidden.update(FOR_OTHERS)


def import_keras() -> None:
    """Imports TensorFlow and Keras.

    The packages that `lean` skips can be imported afterwards.
    """
    with _absent(*_hidden - {os.environ.get('KERAS_BACKEND')}):
        import keras
        import tensorflow

    del keras, tensorflow


def tensorflow() -> Any:
    """Imports TensorFlow alone, in half the time, to run a saved graph.

    TensorFlow would import Keras and JAX, where installed; a graph needs
    neither, and both can be imported afterwards. tensorflow_text would import
    Keras too: its operations alone are loaded.
    """
    if 'tensorflow' in sys.modules:
        import tensorflow as tf
    else:
        with _absent('keras', 'jax'):
            import tensorflow as tf
    text = importlib.util.find_spec('tensorflow_text')
    if text is None or text.origin is None:
        raise ModuleNotFoundError(
            "No module named 'tensorflow_text'", name='tensorflow_text'
        )
    tf.load_library(str(pathlib.Path(text.origin).parent / 'python' / 'ops'))
    return tf


class ChangedKernel(NamedTuple):
    """Value of a kernel, W + A B, of which A and B alone learn.

    Attributes:
        value: [D, F], the sum.
        a, b: [D, rank] and [rank, F].
    """

    value: Any
    a: Any
    b: Any


class Parts(NamedTuple):
    """Shares of a weight by branch, see layers/attention.py.

    Attributes:
        values: a tensor or variable each.
    """

    values: tuple[Any, ...]


_changes: contextvars.ContextVar[Mapping[int, ChangedKernel | Parts]] = (
    contextvars.ContextVar('changes', default=types.MappingProxyType({}))
)


def change_of(weight: Any) -> ChangedKernel | None:
    """Returns the changed kernel that replaces a weight, or that is one."""
    if isinstance(weight, ChangedKernel):
        return weight
    value = _changes.get().get(id(weight))
    return value if isinstance(value, ChangedKernel) else None


def parts_of(weight: Any) -> Parts | None:
    """Returns the parts that replace a weight."""
    value = _changes.get().get(id(weight))
    return value if isinstance(value, Parts) else None


@contextlib.contextmanager
def instead(values: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
    """Replaces weights by values inside a `with`; other values stay replaced.

    Yields the scope of Keras, which has the value of a replaced weight.

    Args:
        values: weights, each with its value, a `ChangedKernel` or `Parts`.
    """
    import keras

    changes = dict(_changes.get())
    with keras.StatelessScope(initialize_variables=False) as scope:
        if scope.original_scope is not None:
            scope.state_mapping.update(scope.original_scope.state_mapping)
        for weight, value in values:
            changes.pop(id(weight), None)
            if isinstance(value, Parts):
                changes[id(weight)] = value
                continue
            if isinstance(value, ChangedKernel):
                changes[id(weight)], value = value, value.value
            scope.add_update((weight, value))
        token = _changes.set(changes)
        try:
            yield scope
        finally:
            _changes.reset(token)


def remat(function: Callable[..., Any], layer: Any) -> Callable[..., Any]:
    """Wraps a function by `keras.remat`: the gradient recomputes the inside.

    Only arguments and weights get gradients, no other tensors that the
    function reads. What replaces weights of the `layer` becomes an argument:
    TensorFlow recomputes where they are no longer replaced.
    """
    import keras

    with instead(()) as scope:
        current = [
            (w, change_of(w) or scope.get_current_value(w))
            for w in layer.weights
        ]
    replaced = [(w, value) for w, value in current if value is not None]
    if not replaced or keras.backend.backend() != 'tensorflow':
        return keras.remat(function)
    weights, values = zip(*replaced, strict=True)

    def call(*arguments: Any) -> Any:
        with instead(zip(weights, arguments, strict=False)):
            return function(*arguments[len(weights) :])

    return functools.partial(keras.remat(call), *values)


def dtype_of(x: Any) -> str:
    """Names a tensor's dtype on any backend, 'float32' and the like."""
    import keras

    return keras.backend.standardize_dtype(x.dtype)


__all__ = [
    'ChangedKernel', 'Layer', 'Parts', 'Variable', 'change_of', 'dtype_of',
    'import_keras', 'instead', 'lean', 'ops', 'parts_of', 'remat', 'tensorflow',
]  # fmt: skip
