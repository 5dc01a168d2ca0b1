"""A version of a model: SavedModel, warm-up requests, config and model card.

    DIR/1/saved_model.pb, variables/      what a server loads
    DIR/1/assets.extra/                   warm-up requests, config.json
    DIR/MODEL_CARD.md                     of the newest version

A version appears whole or not at all, by a rename, and is never changed
afterwards: servers look into DIR while it is written.
"""

import errno
import functools
import json
import os
import pathlib
import platform
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import infoword_tf
from infoword_tf import errors, files
from infoword_tf.config import EXPORTED, Config, read_exported
from infoword_tf.critics import CRITICS
from infoword_tf.evaluation import models
from infoword_tf.evaluation import sts as task

from . import serving_ops, warmup

if TYPE_CHECKING:  # these import TensorFlow
    from infoword_tf.inference.loaded import Loaded

    from .signatures import Signatures

# The names of Keras: weights that are not cast stay float32.
POLICIES = {'float32': 'float32', 'bfloat16': 'mixed_bfloat16'}


def check_free(output: pathlib.Path, version: int) -> None:
    """Raises FileExistsError if the version exists."""
    if (output / str(version)).exists():
        names = [p.name for p in output.iterdir()]
        last = max(int(name) for name in names if name.isdecimal())
        raise FileExistsError(
            f'{output}/{version} is there already, and a version that may be '
            f'served is never changed; write --version={last + 1}'
        )


def check_same(
    output: pathlib.Path, config: Config, described: dict[str, Any]
) -> None:
    """Raises ValueError if the versions in `output` answer otherwise.

    Versions of a model share its name: a client need not know which one
    answers. Names and types of outputs (`described`), labels, the number of
    labels of a text and the default signature are compared; sizes of vectors
    may differ, as a student's from its teacher's.
    """

    def answers(config: Config, described: dict[str, Any]) -> dict[str, Any]:
        return {
            'labels': list(config.labels),
            'number of labels': any(
                entry.settings.get('multilabel', False)
                for entry in config.rows.values()
            ),
            'dims': config.dims,
            'serving_default': described.get('default', 'embed'),
        } | {
            name: {output: kind for output, (kind, *_) in outputs.items()}
            for name, outputs in described['signatures'].items()
        }

    ours = answers(config, described)
    for path in sorted(output.glob(f'*/{EXPORTED}')):
        version = path.parent.parent
        if not version.name.isdecimal():
            continue
        theirs = answers(*read_exported(version))
        differ = [
            name
            for name in sorted(ours | theirs)
            if ours.get(name) != theirs.get(name)
        ]
        if differ:
            raise errors.InputError(
                'other_answers',
                f'{version} has another {", ".join(differ)} than this '
                'workdir gives, and all versions of a model must have the '
                'same; name another --output',
            )


def with_dims(loaded: 'Loaded', dims: int | None) -> 'Loaded':
    """Returns the model with vectors truncated to `dims` numbers.

    Raises:
        ValueError: vectors have fewer numbers.
    """
    if dims is not None:
        width = CRITICS[loaded.config.critic].width_in(loaded)
        models.check_dims(dims, width)
    return loaded.with_config(loaded.config.replace(dims=dims))


def write(
    init: str | pathlib.Path,
    output: str | pathlib.Path,
    version: int = 1,
    precision: str = 'float32',
    sts: str | None = None,
    dims: int | None = None,
    branches: int = 1,
) -> pathlib.Path:
    """Exports a workdir.

    Args:
        init: the workdir of a finished run.
        output: the base path of the model, in the words of servers.
        version: the number of the folder in it.
        precision: 'float32' or 'bfloat16', in which the encoder stores and
            computes; vectors are float32.
        sts: a file of STS-B; the card then says what `precision` costs on it.
        dims: number of first numbers of a vector that are exported; None: all.
        branches: number of branches of a block of the encoder, which threads
            compute side by side.

    Returns:
        The folder of the version.

    Raises:
        FileExistsError: the version exists.
        FileNotFoundError: `init` is no finished workdir.
        ValueError: the graph holds what servers cannot run, another version
            answers otherwise, there are more dims than numbers, or blocks
            cannot have so many branches.
    """
    init, output = pathlib.Path(init), pathlib.Path(output)
    final = output / str(version)
    check_free(output, version)
    Config.read(init)  # complains before TensorFlow starts
    from . import card  # from here on what takes seconds
    from .signatures import Signatures

    loaded = with_dims(infoword_tf.load(init, POLICIES[precision]), dims)
    signatures = Signatures.of(loaded, branches)
    described = describe(signatures, version, precision)
    check_same(output, loaded.config, described)
    output.mkdir(parents=True, exist_ok=True)
    _delete_partial(output)
    # No number: not served.
    partial = output / f'.{version}.{platform.node()}.{os.getpid()}'
    try:
        signatures.save(str(partial))
        inputs = signatures.inputs
        warmup.write(
            partial,
            {'serving_default': inputs[signatures.default], **inputs},
            loaded.max_length,
        )
        if sts is not None:
            exact = with_dims(infoword_tf.load(init), dims)
            models = {'float32': exact, precision: loaded}
            described['sts'] = correlations(sts, models)
        files.write_json(
            partial / EXPORTED, {**loaded.config.to_json(), 'export': described}
        )
        check_servable(partial)
        with files.written(output / 'MODEL_CARD.md') as file:
            file.write_text(
                card.render(
                    loaded.config,
                    described,
                    tokens=loaded.workdir.training_pieces,
                    flags=_text(init / 'flags.txt'),
                    metrics=json.loads(_text(init / 'metrics.json') or '{}'),
                )
            )
        _flush(partial)
        _appear(partial, output, version)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return final


def correlations(path: str, models: Mapping[str, 'Loaded']) -> dict[str, Any]:
    """Measures models of equal vectors on a file of STS-B, by name."""
    encoders = {
        name: functools.partial(model.encode, progress=False)
        for name, model in models.items()
    }
    similarity = models['float32'].config.similarity
    return task.correlations(path, similarity, encoders)


def check_servable(folder: pathlib.Path) -> None:
    """Raises InputError if the graph of a version holds other operations."""
    if ops := serving_ops.unservable(folder):
        raise errors.InputError(
            'unservable_graph',
            'TensorFlow Serving cannot run this graph: '
            f'{"; ".join(ops[:3])}; export/serving_ops.py says which '
            'operations it has',
        )


def _appear(partial: pathlib.Path, output: pathlib.Path, version: int) -> None:
    """Renames a partial folder; FileExistsError: the version exists."""
    try:
        os.rename(partial, output / str(version))
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        check_free(output, version)  # another export was faster
        raise


def _delete_partial(output: pathlib.Path) -> None:
    """Deletes partial folders of killed exports on the same machine."""
    for partial in output.glob(f'.*.{platform.node()}.*'):
        number = partial.name.rpartition('.')[2]
        try:
            os.kill(int(number), 0)
        except (ValueError, PermissionError):
            continue  # of another user
        except ProcessLookupError:
            shutil.rmtree(partial, ignore_errors=True)


def describe(
    signatures: 'Signatures', version: int, precision: str
) -> dict[str, Any]:
    """Returns the facts that an export adds to the config of the run."""
    import tensorflow as tf

    weights = [*signatures.weights.values(), *signatures.constants.values()]
    return {
        'version': version,
        'precision': precision,
        'tensorflow': tf.__version__,
        'weights': sum(int(weight.shape.num_elements()) for weight in weights),
        'default': signatures.default,
        'signatures': {
            name: {
                output: [tensor.dtype.name, *tensor.shape.as_list()]
                for output, tensor in function.structured_outputs.items()
            }
            for name, function in signatures.functions.items()
        },
    }


def _text(path: pathlib.Path) -> str:
    return path.read_text() if path.is_file() else ''


def _flush(folder: pathlib.Path) -> None:
    """Flushes every file to the disk, which must be before the rename."""
    for path in folder.rglob('*'):
        if path.is_file():
            with open(path, 'rb') as file:
                os.fsync(file.fileno())
