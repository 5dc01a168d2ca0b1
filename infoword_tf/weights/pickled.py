"""Weights that `torch.save` pickled, read without PyTorch.

A file is a zip of ROOT/data.pkl, which describes tensors, and of their numbers
in ROOT/data/KEY. A pickle calls what it names; here it can name what such
tensors are made of, and nothing else, so that no code of a file is run.
"""

import collections
import functools
import pathlib
import pickle
import zipfile
from collections.abc import Callable, Mapping
from typing import IO, Any, NamedTuple

import numpy as np

from infoword_tf import errors

_DTYPES = {
    'FloatStorage': 'float32', 'HalfStorage': 'float16',
    'BFloat16Storage': 'bfloat16', 'DoubleStorage': 'float64',
    'LongStorage': 'int64', 'IntStorage': 'int32', 'BoolStorage': 'bool',
    'ByteStorage': 'uint8',
}  # fmt: skip


class _Numbers(NamedTuple):
    """A storage: the name of the dtype, and the KEY of the file."""

    dtype: str
    key: str


class _Tensor(NamedTuple):
    """A part of a storage; offset and strides count numbers."""

    numbers: _Numbers
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _tensor(
    numbers: _Numbers, offset: int, shape: Any, strides: Any, *more: Any
) -> _Tensor:
    """Describes a part of a storage; `more` is for gradients."""
    del more
    if not isinstance(numbers, _Numbers):
        raise pickle.UnpicklingError('it has a tensor without numbers')
    return _Tensor(numbers, offset, tuple(shape), tuple(strides))


_KNOWN: Mapping[tuple[str, str], Any] = {
    ('collections', 'OrderedDict'): collections.OrderedDict,
    ('torch._utils', '_rebuild_tensor_v2'): _tensor,
    **{('torch', storage): dtype for storage, dtype in _DTYPES.items()},
}


class _Unpickler(pickle.Unpickler):
    """Unpickler of tensors alone."""

    def __init__(self, file: IO[bytes]):
        super().__init__(file, encoding='utf-8')

    def find_class(self, module: str, name: str) -> Any:
        """Returns a known name; UnpicklingError: another one."""
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f'it names {module}.{name}')
        return _KNOWN[module, name]

    def persistent_load(self, pid: Any) -> _Numbers:
        """Returns the storage that a pickle refers to."""
        _, dtype, key, *_ = pid
        if dtype not in _DTYPES.values():  # an array of objects has addresses
            raise pickle.UnpicklingError(f'it has numbers of {dtype}')
        return _Numbers(dtype, key)


def readers(path: pathlib.Path) -> dict[str, Callable[[], np.ndarray]]:
    """Returns functions that read the arrays of a file, by name.

    Raises:
        ValueError: it names what is no part of a tensor, or is no such zip.
    """
    import ml_dtypes  # noqa: F401  names bfloat16 to NumPy

    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            (pickles,) = {x for x in names if x.endswith('/data.pkl')}
            root = pickles.removesuffix('data.pkl')
            order = f'{root}byteorder'
            if order in names and archive.read(order) != b'little':
                raise pickle.UnpicklingError('its numbers are big-endian')
            with archive.open(pickles) as file:
                tensors = dict(_Unpickler(file).load())
        if not all(isinstance(x, _Tensor) for x in tensors.values()):
            raise pickle.UnpicklingError('it holds more than tensors')
    except Exception as error:  # a broken pickle may raise anything
        raise errors.InputError(
            'pickled_weights',
            f'{path.parent} holds its weights pickled ({path.name}), which can '
            f'run any code when read, and not as tensors alone ({error}); '
            'where you trust them, load the folder with transformers and call '
            'save_pretrained(folder), which writes model.safetensors',
        ) from error

    def read(tensor: _Tensor) -> np.ndarray:
        try:
            dtype = np.dtype(tensor.numbers.dtype)
            with zipfile.ZipFile(path) as archive:
                stored = archive.read(f'{root}data/{tensor.numbers.key}')
            # Raises where a part lies beyond the numbers.
            return np.ndarray(
                tensor.shape, dtype, stored, tensor.offset * dtype.itemsize,
                tuple(x * dtype.itemsize for x in tensor.strides),
            )  # fmt: skip
        except Exception as error:  # as a broken archive may, too
            raise errors.InputError(
                'pickled_numbers_damaged',
                f'{path} cannot be read ({error}); the file is truncated or '
                'damaged: fetch it again',
            ) from error

    return {
        name: functools.partial(read, tensor)
        for name, tensor in tensors.items()
    }
