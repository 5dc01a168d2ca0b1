"""Adapters: a few weights that change the kernels of an encoder that stays.

LoRA (Hu et al. 2021, Eq. 3): a kernel W becomes W + (alpha / rank) A B, with A
[D, rank] drawn and B [rank, F] 0 at first. Only A and B learn. No layer knows:
where a model computes, such kernels replace its weights (`lazy.instead`), and
`attention.project` computes the gradients of A and B without that of W.
Queries, keys and values lie in one kernel, and each has an A and a B; so have
the two halves of a gated feed-forward.

A workdir of adapters holds these and the heads. What is read of it are the
kernels of its base with the products added: `open_weights`.

Glossary of shapes: F outputs of a kernel or of a part.
"""

import contextlib
import functools
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import errors, files
from infoword_tf.config import WEIGHTS, AdapterConfig, Config
from infoword_tf.lazy import ChangedKernel, ops
from infoword_tf.settings import Setting
from infoword_tf.tensors import Tensor

NONE, LORA = KINDS = ('none', 'lora')
ADAPTER = 'adapter'  # the flag, and what its settings begin with
NARROW = 'bfloat16'
PREFIX = 'adapters/'  # of the paths of A and B
# By value of `where`, the parts of kernels that have adapters.
WHERE = {
    # Hu et al. 2021, §4.2.
    'query_value': ('query', 'value'),
    'attention': ('query', 'key', 'value', 'output', 'position'),
    # Dettmers et al. 2023, "QLoRA", §4.
    'all': (
        'query', 'key', 'value', 'output', 'position', 'inner', 'gate', 'up',
        'outer',
    ),
}  # fmt: skip
SETTINGS = {
    'rank': Setting(8, 'Rank of a change of a kernel.', at_least=1),
    'alpha': Setting(
        16.0, 'Changes are multiplied by alpha / rank (16 for rank 8 as in the '
        'examples of PEFT).', at_least=1e-6),
    'where': Setting(
        'all', 'Which kernels change: of queries and values (Hu et al. 2021), '
        'of attention, or all of the blocks (Dettmers et al. 2023).',
        choices=tuple(WHERE)),
    'frozen': Setting(
        'float32', 'Type in which the matrices that stay are held; bfloat16 '
        'takes half of the memory, and rounds them.',
        choices=('float32', NARROW)),
}  # fmt: skip
# The published rates of adapters are ten times those of all weights (Hu et al.
# 2021, App. D: 4e-4 and 5e-4).
RATE = 10.0
_CHUNK = 1 << 22
_KERNEL = re.compile(r'encoder/layer_\d+/(?:.*/)?(\w+)_kernel')


class Part(NamedTuple):
    """Columns of a kernel with one adapter.

    Attributes:
        name: one of the names in WHERE.
        begin, width: the first column, and how many.
        whole: whether they are all of the kernel.
    """

    name: str
    begin: int
    width: int
    whole: bool


def parts_of(path: str, shapes: Mapping[str, Any], where: str) -> list[Part]:
    """Lists the parts of a kernel that have adapters; of other weights none.

    Args:
        path: path of the weight.
        shapes: shapes of all weights of the encoder, by path.
        where: key of WHERE.
    """
    if not (matched := _KERNEL.fullmatch(path)):
        return []
    name, width = matched[1], shapes[path][1]
    folder, widths = path.rpartition('/')[0], {name: width}
    if name == 'qkv':
        queries = shapes[f'{folder}/output_kernel'][0]
        others = (width - queries) // 2
        widths = {'query': queries, 'key': others, 'value': others}
    elif name == 'inner':
        inner = shapes[f'{folder}/outer_kernel'][0]
        if width == 2 * inner:
            widths = {'gate': inner, 'up': inner}
    parts, begin = [], 0
    for name, size in widths.items():
        parts.append(Part(name, begin, size, len(widths) == 1))
        begin += size
    return [part for part in parts if part.name in WHERE[where]]


def narrowest(arguments: Mapping[str, Any], where: str) -> int:
    """Returns the shortest side of kernels with adapters; 0: no kernel has any.

    Args:
        arguments: arguments of the encoder.
        where: key of WHERE.
    """
    heads, width = arguments.get('heads'), arguments['width']
    if not heads:
        return 0
    head_width = arguments.get('head_width') or width // heads
    sides = [width, head_width * (arguments.get('kv_heads') or heads)]
    if where == 'all':
        sides.append(arguments.get('inner_width') or width)
    return min(sides)


def adapted(
    kernel: Tensor,
    parts: Iterable[tuple[Part, Tensor, Tensor]],
    scale: float,
) -> ChangedKernel:
    """Returns W + s A B [D, F] in float32, with s A and B of all parts joined.

    Args:
        kernel: W [D, F], of any type.
        parts: parts of the kernel, each with A [D, rank] and B [rank, F].
        scale: s.
    """
    columns, rows = [], []
    for part, a, b in parts:
        after = kernel.shape[1] - part.begin - part.width
        columns.append(a)
        rows.append(ops.pad(b, ((0, 0), (part.begin, after))))
    a = scale * ops.concatenate(columns, axis=1)
    b = ops.concatenate(rows, axis=0)
    return ChangedKernel(ops.cast(kernel, 'float32') + ops.matmul(a, b), a, b)


class Adapters:
    """The adapters of an encoder.

    Attributes:
        scale: alpha / rank.
        kernels: kernels, each with its parts, A [D, rank] and B [rank, F].
        weights: all A and B.
    """

    def __init__(self, encoder: Any, config: AdapterConfig):
        """Makes the weights under explicit paths: adapters/KERNEL/PART/a."""
        self.scale = config.alpha / config.rank
        self.dtype = encoder.compute_dtype
        self.kernels: list[tuple[Any, list[tuple[Part, Any, Any]]]] = []
        shapes = {x.path: tuple(x.shape) for x in encoder.weights}
        for kernel in encoder.weights:
            parts = [
                (part, *_pair(kernel, part, config.rank))
                for part in parts_of(kernel.path, shapes, config.where)
            ]
            if parts:
                self.kernels.append((kernel, parts))

    @property
    def weights(self) -> list[Any]:
        """All A and B, kernel by kernel."""
        return [x for _, parts in self.kernels for y in parts for x in y[1:]]

    def reset(self) -> None:
        """Sets every B to 0."""
        for _, parts in self.kernels:
            for _, _, b in parts:
                b.assign(np.zeros(b.shape, 'float32'))

    def values(self) -> list[tuple[Any, ChangedKernel]]:
        """Returns each kernel with a value in the compute dtype."""
        return [
            (kernel, ChangedKernel(*(
                ops.cast(x, self.dtype)
                for x in adapted(kernel, parts, self.scale)
            )))
            for kernel, parts in self.kernels
        ]  # fmt: skip


def paths_of(kernel: str, part: Part) -> tuple[str, str]:
    """Returns the paths of A and B."""
    folder = f'{PREFIX}{kernel}' if part.whole else (
        f'{PREFIX}{kernel}/{part.name}'
    )  # fmt: skip
    return f'{folder}/a', f'{folder}/b'


def _pair(kernel: Any, part: Part, rank: int) -> list[Any]:
    """Makes A and B of a part."""
    import keras

    pair = []
    shapes = (kernel.shape[0], rank), (rank, part.width)
    for path, shape in zip(paths_of(kernel.path, part), shapes, strict=True):
        *scopes, name = path.split('/')
        with contextlib.ExitStack() as stack:
            for scope in scopes:
                stack.enter_context(keras.name_scope(scope))
            pair.append(keras.Variable('zeros', shape, 'float32', name=name))
    return pair


def policy_of(precision: str, frozen: str) -> Any:
    """Returns the dtype policy of an encoder whose matrices are `frozen`."""
    import keras

    policy = keras.DTypePolicy(precision)
    if frozen == policy.variable_dtype:
        return policy
    kind = type('Held', (keras.DTypePolicy,), {'variable_dtype': frozen})
    return kind(precision)


def is_narrow(path: str) -> bool:
    """Tells whether a weight is held as `frozen`: a kernel, or the tokens."""
    return path == 'encoder/word_embeddings' or bool(_KERNEL.fullmatch(path))


def rounded(weight: np.ndarray) -> np.ndarray:
    """Rounds float32 to bfloat16, half to even, in place where that can be."""
    weight = np.require(weight, requirements=('C', 'W'))
    bits = weight.reshape(-1).view(np.uint32)
    for begin in range(0, len(bits), _CHUNK):  # a table has no room for a copy
        part = bits[begin : begin + _CHUNK]
        part += ((part >> 16) & 1) + np.uint32(0x7FFF)
        part &= np.uint32(0xFFFF0000)
    return weight


# -------------------------------------------------------------------- workdirs


def folded(
    config: AdapterConfig,
    base: files.Unread,
    stored: files.Unread,
    where: pathlib.Path,
) -> files.Unread:
    """Returns the weights of a workdir of adapters as of a plain one, by path.

    Args:
        config: config of the workdir.
        base: weights of the base.
        stored: weights of the workdir.
        where: the workdir, for people.

    Raises:
        InputError: the workdir lacks an adapter.
    """
    of_base = base.where(lambda path: path.startswith('encoder/'))
    shapes = {x: base[x].shape for x in of_base if _KERNEL.fullmatch(x)}
    parts = {x: parts_of(x, shapes, config.where) for x in shapes}
    needed = {y for k, x in parts.items() for p in x for y in paths_of(k, p)}
    if lacking := sorted(needed - set(stored)):
        raise errors.InputError(
            'workdir_lacks_adapter',
            f'{where}/{WEIGHTS} has no {lacking[0]}; it is damaged: take it '
            'from a backup, or train again',
        )

    def fold(path: str) -> np.ndarray:
        weight = of_base[path]
        if config.frozen == NARROW and is_narrow(path):
            weight = rounded(weight)
        if not parts.get(path):
            return weight
        pairs = []
        for part in parts[path]:
            a, b = (stored[x] for x in paths_of(path, part))
            pairs.append((part, a, b))
        scale = config.alpha / config.rank
        return ops.convert_to_numpy(adapted(weight, pairs, scale).value)

    heads = stored.where(lambda path: not path.startswith(PREFIX))
    encoder = {path: functools.partial(fold, path) for path in of_base}
    return files.Unread(encoder | heads.readers)


def base_of(workdir: pathlib.Path, config: AdapterConfig) -> pathlib.Path:
    """Finds the base of a workdir: at the recorded path, or beside the workdir.

    Raises:
        InputError: it is not there, or has other weights.
    """
    recorded = pathlib.Path(config.base)
    beside = workdir.resolve().parent / recorded.name
    for folder in (recorded, beside):
        if (folder / WEIGHTS).is_file():
            break
    else:
        raise errors.InputError(
            'adapter_base_gone',
            f'{workdir} holds adapters of {recorded}, which is not there; '
            f'put that workdir back, or to {beside}',
        )
    if (digest := files.digest_of(folder / WEIGHTS)) != config.digest:
        raise errors.InputError(
            'adapter_of_other_base',
            f'{workdir} holds adapters of a workdir with the weights '
            f'{config.digest}; {folder} has the weights {digest}',
        )
    return folder


def open_weights(workdir: pathlib.Path) -> files.Unread:
    """Opens the weights of a workdir by path, adapters folded.

    Raises:
        ValueError: a file is damaged, or as `base_of`.
    """
    stored = files.open_tensors(workdir / WEIGHTS)
    adapter = Config.read(workdir).adapter
    if adapter is None:
        return stored
    base = open_weights(base_of(workdir, adapter))
    return folded(adapter, base, stored, workdir)
