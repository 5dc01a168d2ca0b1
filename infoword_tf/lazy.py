"""Keras, imported when something is computed and not before.

A row and an encoder say what they are (their settings, the views that they
read) in the file that computes them, and commands read that for their flags.
Keras, which takes seconds, is imported at the first operation, or when the
first layer is made. Whoever runs a saved graph does without it: `tensorflow`.
"""

import contextlib
import functools
import importlib.util
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras import Variable, ops
    from keras.layers import Layer
else:
    Variable = Any

    class _Operations:
        """`keras.ops`; each operation is looked up once."""

        def __getattr__(self, name: str) -> Any:
            from keras import ops

            operation = getattr(ops, name)
            setattr(self, name, operation)
            return operation

    ops = _Operations()

    @functools.cache
    def _layer(cls: type) -> type:
        """`cls` as a Keras layer."""
        import keras

        own = {'__module__': cls.__module__, '__qualname__': cls.__qualname__}
        return type(cls.__name__, (cls, keras.layers.Layer), own)

    class Layer:
        """`keras.layers.Layer` for whoever makes one of these."""

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            """A Keras layer, which is an instance of the class too."""
            import keras

            if not issubclass(cls, keras.layers.Layer):
                cls = _layer(cls)
            return super().__new__(cls, *args, **kwargs)


@contextlib.contextmanager
def _absent(*names: str) -> Iterator[None]:
    """Inside, packages that are not imported yet seem not to be installed."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)


# What Keras and TensorFlow import for others, where it is installed.
FOR_OTHERS = 'jax', 'matplotlib', 'pandas', 'sklearn'
_left_out: set[str] = set()


def lean() -> None:
    """Has `import_keras` leave out FOR_OTHERS, in a process of our own.

    Keras wraps models for scikit-learn, reads tables of pandas and draws with
    matplotlib, and TensorFlow converts JAX to LiteRT. Without these both are
    imported in half the time, a second or more of every command's.
    """
    _left_out.update(FOR_OTHERS)


def import_keras() -> None:
    """Imports TensorFlow and Keras.

    What `lean` leaves out can be imported afterwards as ever.
    """
    with _absent(*_left_out - {os.environ.get('KERAS_BACKEND')}):
        import keras
        import tensorflow

    del keras, tensorflow


def tensorflow() -> Any:
    """TensorFlow for whoever only runs a graph: in half the time.

    Importing it imports Keras and JAX, where they are installed, for the sake
    of those who save optimizers and convert JAX to LiteRT, and Keras imports
    scikit-learn and matplotlib. A graph needs none of them. Keras and JAX can
    be imported afterwards as ever. tensorflow_text would import Keras too:
    its operations alone are loaded.
    """
    if 'tensorflow' in sys.modules:
        import tensorflow as tf
    else:
        with _absent('keras', 'jax'):
            import tensorflow as tf
    text = importlib.util.find_spec('tensorflow_text')
    tf.load_library(str(pathlib.Path(text.origin).parent / 'python' / 'ops'))
    return tf


def remat(function: Callable[..., Any]) -> Callable[..., Any]:
    """`keras.remat`: what the function computes is not kept for its gradient.

    Of the tensors that it reads only its arguments have gradients, beside
    weights.
    """
    import keras

    return keras.remat(function)


def dtype_of(x: Any) -> str:
    """The name of a tensor's dtype on any backend, 'float32' and the like."""
    import keras

    return keras.backend.standardize_dtype(x.dtype)


__all__ = [
    'Layer', 'Variable', 'dtype_of', 'import_keras', 'lean', 'ops', 'remat',
    'tensorflow',
]  # fmt: skip
