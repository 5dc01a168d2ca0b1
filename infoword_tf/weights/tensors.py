"""Named arrays of public files, read one at a time.

So a model of 1.3 GB is not in memory twice.
"""

import functools
import pathlib
from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np

from infoword_tf import errors, files
from infoword_tf.weights import pickled

INDEX = 'model.safetensors.index.json'
SINGLE = 'model.safetensors'
PICKLES = ('pytorch_model.bin', 'pytorch_model.bin.index.json')
PICKLED = ('.bin', '.pt')  # how the names of such files end
_VALUE = '/.ATTRIBUTES/VARIABLE_VALUE'


class Tensors(Mapping[str, np.ndarray]):
    """Arrays by name; floats of other sizes are read as float32.

    Attributes:
        where: name of the file, for errors.
    """

    def __init__(
        self, readers: Mapping[str, Callable[[], np.ndarray]], where: str
    ):
        """Takes a function that reads the array of each name."""
        self._readers, self.where = dict(readers), where

    def __getitem__(self, name: str) -> np.ndarray:
        """Reads an array; ValueError: not all numbers are finite."""
        array = np.asarray(self._readers[name]())
        if array.dtype.kind not in 'iub' and array.dtype != np.float32:
            array = array.astype(np.float32)
        # Both are NaN where one is; a mask would be as long as the array.
        ends = (array.min(), array.max()) if array.size else ()
        if array.dtype.kind == 'f' and not np.isfinite(ends).all():
            raise errors.InputError(
                'public_weights_not_finite',
                f'{self.where}: {name} holds numbers that are not finite; the '
                'file is damaged: fetch it again',
            )
        return array

    def without(self, names: Collection[str]) -> 'Tensors':
        """Leaves out arrays by name."""
        readers = {x: r for x, r in self._readers.items() if x not in names}
        return Tensors(readers, self.where)

    def __iter__(self) -> Iterator[str]:
        """Iterates over names."""
        return iter(self._readers)

    def __len__(self) -> int:
        """Counts the arrays."""
        return len(self._readers)


def open_folder(folder: pathlib.Path, name: str | None = None) -> Tensors:
    """Opens model.safetensors, or else the shards that an index names; where
    there are none what PyTorch pickled.

    transformers ignores an index beside model.safetensors, which is of older
    weights.

    Args:
        name: the only file or index that counts; None: not known.

    Raises:
        FileNotFoundError: no weights, or a missing shard.
        ValueError: a truncated or damaged file; a pickle of more than tensors.
    """
    names = [name] if name else [SINGLE, INDEX, *PICKLES]
    for path in (folder / name for name in names):
        if path.is_file():
            if path.name.endswith('.json'):
                return _shards(path)
            return open_file(path)
    if name:
        raise FileNotFoundError(f'{folder} has no {name}; fetch it, too')
    others = ', '.join(sorted(x.name for x in folder.glob('*.safetensors')))
    raise FileNotFoundError(
        f'{folder} has no {SINGLE}: it holds no weights'
        f'{others and f" by that name, but {others}"}; fetch that file, or '
        f'{INDEX} with all shards that it names'
    )


def open_file(path: pathlib.Path) -> Tensors:
    """Opens a file of safetensors or, by the ending, of PyTorch."""
    return Tensors(_readers(path), str(path))


def _shards(index: pathlib.Path) -> Tensors:
    """Opens the files that an index names."""
    folder = index.parent
    places = files.read_json(index).get('weight_map', {})
    readers: dict[str, Callable[[], np.ndarray]] = {}
    for shard in sorted(set(places.values())):
        if not (folder / shard).is_file():
            raise FileNotFoundError(
                f'{folder}: {index.name} names the shard {shard}, which is '
                'not there; fetch it, too'
            )
        readers |= {
            name: reader
            for name, reader in _readers(folder / shard).items()
            if places.get(name) == shard
        }
    if lacking := sorted(set(places) - set(readers)):
        raise errors.InputError(
            'shard_lacks_weight',
            f'{folder}/{places[lacking[0]]} lacks {lacking[0]}, which '
            f'{index.name} says it holds; fetch the folder again',
        )
    return Tensors(readers, str(folder))


def _damaged(where: object, error: Exception) -> ValueError:
    return errors.InputError(
        'public_weights_damaged',
        f'{where} cannot be read ({error}); the file is truncated or damaged: '
        'fetch it again',
    )


def _readers(path: pathlib.Path) -> dict[str, Callable[[], np.ndarray]]:
    """Returns functions that read the arrays of a file, by name."""
    if path.suffix in PICKLED:
        return pickled.readers(path)
    import ml_dtypes  # noqa: F401  names bfloat16 to NumPy
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, 'numpy') as file:
            names = list(file.keys())
    except (SafetensorError, OSError) as error:
        raise _damaged(path, error) from error

    def read(name: str) -> np.ndarray:
        # Opened each time: all that an open file has read stays in memory.
        with safe_open(path, 'numpy') as file:
            return file.get_tensor(name)

    return {name: functools.partial(read, name) for name in names}


def open_checkpoint(folder: pathlib.Path) -> tuple[Tensors, pathlib.Path]:
    """Opens the only TensorFlow checkpoint of a folder.

    Returns:
        The arrays, by name without the ending that object checkpoints add; and
        the path without `.index`.

    Raises:
        FileNotFoundError: no checkpoint.
        ValueError: several, or one that cannot be read.
    """
    import tensorflow as tf

    paths = sorted(folder.glob('*.index'))
    if not paths:
        raise FileNotFoundError(
            f'{folder} has no *.index: it holds no checkpoint'
        )
    if len(paths) > 1:
        names = ', '.join(path.stem for path in paths)
        raise errors.InputError(
            'several_checkpoints',
            f'{folder} holds several checkpoints ({names}); leave one',
        )
    prefix = paths[0].with_suffix('')
    # What TensorFlow raises on damaged files.
    damaged = tf.errors.OpError, RuntimeError, ValueError, IndexError
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        names = reader.get_variable_to_shape_map()
    except damaged as error:
        raise _damaged(prefix, error) from error

    def read(name: str) -> np.ndarray:
        try:
            return reader.get_tensor(name)
        except damaged as error:
            raise _damaged(f'{prefix}: {name}', error) from error

    return Tensors(
        {
            name.removesuffix(_VALUE): functools.partial(read, name)
            for name in names
            if not name.startswith('_CHECKPOINTABLE')
        },
        str(prefix),
    ), prefix
